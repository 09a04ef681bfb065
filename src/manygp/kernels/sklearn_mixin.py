"""A kernel read like scikit-learn's: parameters by name, and what fits may change."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from manygp.arrays import Array


class SklearnKernelMixin:
    """The methods of scikit-learn's kernels, for a frozen dataclass with `theta` and `bounds`."""

    parameters: ClassVar[tuple[str, ...]]
    with_theta: Any

    def get_params(self, deep: Any = True) -> dict[str, Any]:
        """All arguments by name; with `deep` also those of kernels in it: `left__variance`."""
        parameters = {name: getattr(self, name) for name in argument_names(self)}
        if deep:
            for name, value in list(parameters.items()):
                inner = value.get_params() if hasattr(value, "get_params") else {}
                parameters |= {f"{name}__{key}": one for key, one in inner.items()}
        return parameters

    def set_params(self, **given: Any) -> Self:
        """The same kernel with other arguments, such as `left__length_scale=2.0`.

        A kernel is immutable: unlike scikit-learn's method it returns another kernel.
        """
        known = argument_names(self)
        changed: dict[str, Any] = {}
        inner: dict[str, dict[str, Any]] = {}
        for name, value in given.items():
            head, _, rest = name.partition("__")
            if head not in known:
                raise ValueError(
                    f"{type(self).__name__} has no parameter {head!r}; it has {', '.join(known)}"
                )
            if rest:
                inner.setdefault(head, {})[rest] = value
            else:
                changed[head] = value
        for head, values in inner.items():
            changed[head] = changed.get(head, getattr(self, head)).set_params(**values)
        return replace(self, **changed)  # type: ignore[type-var]

    def __sklearn_clone__(self) -> Self:
        return self  # which is immutable

    @property
    def hyperparameters(self) -> list[Any]:
        """scikit-learn's record of each hyperparameter: name, type, bounds, size, fixed."""
        from sklearn.gaussian_process.kernels import Hyperparameter

        hyperparameters = []
        for name, value in self.get_params(deep=False).items():
            if isinstance(value, SklearnKernelMixin):
                hyperparameters += [
                    one._replace(name=f"{name}__{one.name}") for one in value.hyperparameters
                ]
            elif name in self.parameters:
                bounds = getattr(self, f"{name}_bounds")
                bounds = bounds if isinstance(bounds, str) else np.asarray(bounds)
                own = Hyperparameter(name, "numeric", bounds, int(np.size(value)))
                hyperparameters.append(own)
        return hyperparameters

    def clone_with_theta(self, theta: Array) -> Self:
        """The same kernel with the free hyperparameters exp(theta)."""
        clone: Self = self.with_theta(theta)
        return clone


def argument_names(kernel: Any) -> list[str]:
    """Names of the arguments that make a kernel."""
    if is_dataclass(kernel):
        return [field.name for field in fields(kernel) if field.init]
    return [name for one in kernel.parameters for name in (one, f"{one}_bounds")]
