"""scikit-learn's kernels as ours: converted, or used as they are.

Those without a counterpart here are used as they are. They are slower: their derivative is an
(n, n, p) array.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from manygp.arrays import Array
from manygp.kernels.base import Constant, Kernel, Matern, Product, Pullback, Sum, White, Workspace
from manygp.kernels.catalogue import RBF, Linear, Periodic, RationalQuadratic


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
        hyperparameters: list[Any] = self.kernel.hyperparameters
        return hyperparameters

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


def as_kernel(kernel: Any, n_features: int = 1) -> Kernel:
    """`kernel` itself if it is one of ours, else its conversion from scikit-learn.

    A kernel of scikit-learn's kind that has no counterpart is used as it is.

    Raises
    ------
    ValueError
        If it is no kernel; the message names it.
    """
    if isinstance(kernel, Kernel):
        return kernel
    from sklearn.gaussian_process import kernels as sk

    convert = CONVERTERS.get(type(kernel).__name__)
    if convert is not None and type(kernel) is getattr(sk, type(kernel).__name__, None):
        return convert(kernel, n_features)
    if isinstance(kernel, sk.Kernel) and not isinstance(kernel, sk.CompoundKernel):
        return SklearnKernel(kernel)
    raise ValueError(
        f"the kernel {kernel!r} has no counterpart in manygp; pass a kernel of manygp.kernels or "
        "of sklearn.gaussian_process.kernels, or sums and products of these"
    )


def _matern(kernel: Any, n_features: int) -> Kernel:
    length_scale, bounds = _given(kernel, "length_scale")
    if kernel.nu == np.inf:
        return RBF(length_scale, bounds)
    if kernel.nu not in (0.5, 1.5, 2.5):
        return SklearnKernel(kernel)
    return Matern(length_scale, bounds, nu=kernel.nu)


def _periodic(kernel: Any, n_features: int) -> Kernel:
    if n_features > 1:  # a function of the Euclidean distance, as it is
        return SklearnKernel(kernel)
    return Periodic(*_given(kernel, "length_scale", "periodicity"))


# What makes ours from an object of exactly scikit-learn's class, for inputs of n columns.
CONVERTERS: dict[str, Callable[[Any, int], Kernel]] = {
    "Sum": lambda kernel, n: Sum(as_kernel(kernel.k1, n), as_kernel(kernel.k2, n)),
    "Product": lambda kernel, n: Product(as_kernel(kernel.k1, n), as_kernel(kernel.k2, n)),
    "ConstantKernel": lambda kernel, n: Constant(*_given(kernel, "constant_value")),
    "WhiteKernel": lambda kernel, n: White(*_given(kernel, "noise_level")),
    "DotProduct": lambda kernel, n: Linear(*_given(kernel, "sigma_0")),
    "RBF": lambda kernel, n: RBF(*_given(kernel, "length_scale")),
    "Matern": _matern,
    "RationalQuadratic": lambda kernel, n: RationalQuadratic(
        *_given(kernel, "length_scale", "alpha")
    ),
    "ExpSineSquared": _periodic,
}


def _given(kernel: Any, *parameters: str) -> list[Any]:
    """The values of hyperparameters, and then their bounds."""
    values = [getattr(kernel, parameter) for parameter in parameters]
    return [*values, *(_bounds(kernel, parameter) for parameter in parameters)]


def _bounds(kernel: Any, parameter: str) -> Any:
    """One pair, one per element where they differ, or "fixed"."""
    bounds = getattr(kernel, f"{parameter}_bounds")
    if isinstance(bounds, str):
        return bounds
    pairs = np.atleast_2d(bounds)
    same = np.all(pairs == pairs[0])
    return tuple(pairs[0]) if same else tuple(map(tuple, pairs))
