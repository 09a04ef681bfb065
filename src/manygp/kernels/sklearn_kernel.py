"""Kernels of scikit-learn's kind that have no counterpart here, used as they are.

They are slower: their derivative is an (n, n, p) array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from manygp.arrays import Array
from manygp.kernels.base import Kernel, Pullback, Workspace


@dataclass(frozen=True, repr=False)
class SklearnKernel(Kernel):
    """A kernel of scikit-learn's, or one that somebody has written for it, with its own gradient.

    Noise in it, which it adds where it is called with one argument, counts as signal.
    """

    kernel: Any

    def __post_init__(self) -> None:
        if not np.all(np.isfinite(self.bounds)):
            raise ValueError(
                f"the kernel {self.kernel!r} has bounds that are 0 or infinite: the optimiser "
                "requires that all bounds are finite"
            )

    def __repr__(self) -> str:  # complete, unlike scikit-learn's
        return f"SklearnKernel({type(self.kernel).__qualname__}, {self.kernel.get_params()!r})"

    def cross(self, X1: Array, X2: Array, work: Workspace) -> Array:
        return np.array(self.kernel(X1, X2), dtype=float, order="C")

    def vjp(self, X: Array, work: Workspace) -> tuple[Array, Pullback]:
        if not self.n_free:
            return np.array(self.kernel(X), dtype=float), lambda K_bar: np.empty(0)
        K, slopes = self.kernel(X, eval_gradient=True)
        return np.array(K, dtype=float), lambda K_bar: np.einsum("ij,ijp->p", K_bar, slopes)

    def diag(self, X: Array) -> Array:
        return np.array(self.kernel.diag(X), dtype=float)

    @property
    def n_free(self) -> int:
        return len(self.kernel.theta)

    @property
    def values(self) -> Array:
        return np.exp(self.kernel.theta)

    @property
    def bounds(self) -> Array:
        return np.array(self.kernel.bounds, dtype=float).reshape(-1, 2)

    @property
    def hyperparameters(self) -> list[Any]:
        found: list[Any] = self.kernel.hyperparameters
        return found

    @property
    def theta_names(self) -> list[str]:
        names = []
        for one in self.hyperparameters:
            label, size = f"{type(self.kernel).__name__}.{one.name}", one.n_elements
            if not one.fixed:
                names += [label] if size == 1 else [f"{label}[{i}]" for i in range(size)]
        return names

    def with_values(self, values: list[float]) -> Self:
        return type(self)(self.kernel.clone_with_theta(np.log(values)))

    def inverse_lengths(self, n_features: int) -> Array:
        length = np.asarray(getattr(self.kernel, "length_scale", np.inf), dtype=float)
        fits = length.shape in ((), (n_features,)) and np.all(length > 0)
        return np.broadcast_to(1 / length, n_features) if fits else np.zeros(n_features)

    def check_columns(self, n_features: int) -> None:
        row = np.zeros((1, n_features))
        try:
            shape = np.shape(self.kernel(row, row))
        except ValueError as error:
            raise ValueError(
                f"the kernel {self.kernel!r} cannot be evaluated on {n_features} columns: {error}"
            ) from error
        if shape != (1, 1):
            raise ValueError(
                f"the kernel {self.kernel!r} gives an array of shape {shape} for one row; a "
                "covariance of one row is (1, 1)"
            )
