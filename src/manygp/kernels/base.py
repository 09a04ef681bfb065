"""What a kernel is, and how kernels combine: sums, products, constants and noise.

A kernel is an immutable record of positive hyperparameters. `theta` holds the logarithms of
those that are free, and `with_theta` makes the same kernel at other values. The derivative is
a *pullback*: given K_bar = dL/dK it returns dL/dtheta directly, so no (n, n, p) array of
derivatives is ever built.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from manygp.arrays import Array
from manygp.kernels.reading import Readable

Interval = tuple[float, float]
Bounds = Interval | tuple[Interval, ...] | Literal["fixed"]
LengthScale = float | tuple[float, ...]
Pullback = Callable[[Array], Array]

DEFAULT_BOUNDS: Bounds = (1e-5, 1e5)


class Workspace:
    """Scratch arrays of one shape that are handed out in turn and used again after `reset`.

    Allocating fresh arrays costs more than the arithmetic on them at the size of an expert.
    """

    def __init__(self, shape: tuple[int, int] = (0, 0)) -> None:
        self.shape = shape
        self._arrays: list[Array] = []
        self._used = 0

    def reset(self, shape: tuple[int, int] | None = None) -> None:
        """Take all arrays back, and hand them out in another shape if one is given."""
        self._used = 0
        self.shape = shape or self.shape

    def take(self) -> Array:
        rows, columns = self.shape
        size = rows * columns
        if self._used == len(self._arrays):
            self._arrays.append(np.empty(size))
        elif len(self._arrays[self._used]) < size:
            self._arrays[self._used] = np.empty(size)
        self._used += 1
        return self._arrays[self._used - 1][:size].reshape(rows, columns)

    @property
    def n_arrays(self) -> int:
        """The most arrays that were in use at a time."""
        return len(self._arrays)


class Kernel(Readable, ABC):
    """Base of all kernels. A leaf is a frozen dataclass with a `<name>_bounds` per hyperparameter.

    Bounds are a pair (low, high) in the hyperparameter's own units, one such pair per column where
    it holds one number per column, or "fixed".
    """

    parameters: ClassVar[tuple[str, ...]] = ()
    # Those that may hold one number per column.
    per_column: ClassVar[tuple[str, ...]] = ()
    # Whether all rows have the same variance, whatever their columns are.
    is_stationary: ClassVar[bool] = False

    @abstractmethod
    def cross(self, X1: Array, X2: Array, work: Workspace) -> Array:
        """Covariances of two sets of rows: (n1, n2), or a scalar where all are equal."""

    @abstractmethod
    def vjp(self, X: Array, work: Workspace) -> tuple[Array, Pullback]:
        """Covariance of X with itself, (n, n) or scalar, and its pullback.

        The pullback maps any K_bar of shape (n, n), symmetric or not, to the free
        hyperparameters' sum_ij K_bar_ij dK_ij / dtheta, shape (p,). It may overwrite
        nothing but scratch arrays, and must run before the workspace is reset.
        """

    @abstractmethod
    def diag(self, X: Array) -> Array:
        """Prior variances of the rows: (n,)."""

    def __call__(self, X1: Array, X2: Array | None = None) -> Array:
        """Covariance matrix: (n1, n2), or (n1, n1) without X2."""
        X1 = np.asarray(X1, dtype=float)
        if X2 is None:
            work = Workspace((len(X1), len(X1)))
            return np.array(np.broadcast_to(self.vjp(X1, work)[0], work.shape))
        work = Workspace((len(X1), len(X2)))
        values = self.cross(X1, np.asarray(X2, dtype=float), work)
        return np.array(np.broadcast_to(values, work.shape))

    def pullback(self, X: Array, K_bar: Array) -> Array:
        """sum_ij K_bar_ij dK_ij / dtheta for the free hyperparameters: (p,)."""
        X = np.asarray(X, dtype=float)
        return self.vjp(X, Workspace((len(X), len(X))))[1](np.asarray(K_bar, dtype=float))

    def __str__(self) -> str:
        """One line for people: `1.44 * Matern(length_scale=0.5, nu=2.5) + White(0.1)`."""
        from manygp.kernels.text import describe

        return describe(self)

    def __add__(self, other: Kernel | float) -> Sum:
        return Sum(self, other if isinstance(other, Kernel) else Constant(other))

    def __radd__(self, other: float) -> Sum:
        return Sum(Constant(other), self)

    def __mul__(self, other: Kernel | float) -> Product:
        return Product(self, other if isinstance(other, Kernel) else Constant(other))

    def __rmul__(self, other: float) -> Product:
        return Product(Constant(other), self)

    @property
    def free(self) -> tuple[str, ...]:
        """Names of the hyperparameters that may be fitted."""
        return tuple(p for p in self.parameters if getattr(self, f"{p}_bounds") != "fixed")

    @property
    def n_free(self) -> int:
        """Length of theta."""
        values = (getattr(self, p) for p in self.free)
        return sum(len(value) if isinstance(value, tuple) else 1 for value in values)

    @property
    def values(self) -> Array:
        """The free hyperparameters: (p,)."""
        values = [np.atleast_1d(getattr(self, p)) for p in self.free]
        return np.concatenate(values) if values else np.empty(0)

    @property
    def theta(self) -> Array:
        """Logarithms of the free hyperparameters: (p,)."""
        return np.log(self.values)

    @property
    def bounds(self) -> Array:
        """Logarithms of the free hyperparameters' bounds: (p, 2)."""
        rows = [
            np.broadcast_to(getattr(self, f"{p}_bounds"), (np.size(getattr(self, p)), 2))
            for p in self.free
        ]
        return np.log(np.concatenate(rows)) if rows else np.empty((0, 2))

    @property
    def theta_names(self) -> list[str]:
        """One readable name per element of theta."""
        names = []
        for p in self.free:
            size = np.size(getattr(self, p))
            label = f"{type(self).__name__}.{p}"
            names += [label] if size == 1 else [f"{label}[{i}]" for i in range(size)]
        return names

    def with_theta(self, theta: Array) -> Self:
        """The same kernel with the free hyperparameters exp(theta)."""
        if len(theta) != self.n_free:
            raise ValueError(f"{self!r} needs {self.n_free} elements of theta, not {len(theta)}")
        values = np.exp(theta)
        if not np.all(np.isfinite(values) & (values > 0)):
            raise ValueError(f"exp(theta) must be positive and finite, not {values}")
        return self.with_values(values.tolist())

    def with_values(self, values: list[float]) -> Self:
        """The same kernel with these free hyperparameters, which are positive and finite."""
        changed = copy(self)  # valid as it is: nothing of __post_init__ needs to run again
        for p in self.free:
            old = getattr(self, p)
            n = len(old) if isinstance(old, tuple) else 1
            value = tuple(values[:n]) if isinstance(old, tuple) else values[0]
            object.__setattr__(changed, p, value)
            values = values[n:]
        return changed

    def inverse_lengths(self, n_features: int) -> Array:
        """How fast it varies along each column: (d,), zeros where distance has no meaning."""
        return np.zeros(n_features)

    def in_units(self, scale: Array) -> Kernel:
        """The same kernel for columns that are multiplied by `scale` (d,)."""
        return self

    def check_columns(self, n_features: int) -> None:
        """Raise ValueError unless the kernel can be evaluated on rows of n_features columns."""
        for name in self.per_column:
            value, words = getattr(self, name), name.replace("_", "-")
            if np.ndim(value) and np.size(value) != n_features:
                raise ValueError(
                    f"{type(self).__name__} has {np.size(value)} {words}s but X has "
                    f"{n_features} columns; give one {words}, or one per column"
                )

    def __post_init__(self) -> None:
        for p in self.parameters:
            raw = getattr(self, p)
            value = float(raw) if np.ndim(raw) == 0 else tuple(float(v) for v in raw)
            object.__setattr__(self, p, value)
            name = f"{type(self).__name__}.{p}"
            bounds = _checked_bounds(name, getattr(self, f"{p}_bounds"), value)
            object.__setattr__(self, f"{p}_bounds", bounds)
            # A fixed 0 is no such term.
            off = bounds == "fixed" and value == 0.0 and p in ("variance", "offset")
            if not (off or (np.all(np.isfinite(value)) and np.all(np.greater(value, 0)))):
                raise ValueError(f"{name} must be positive and finite, not {value!r}")


def _checked_bounds(name: str, bounds: Any, value: Any) -> Bounds:
    """Bounds of a hyperparameter with this value: a pair, one per element, or "fixed"."""
    if isinstance(bounds, str):
        if bounds != "fixed":
            raise ValueError(f"{name}_bounds must be a pair or 'fixed', not {bounds!r}")
        return "fixed"
    pairs = np.array(bounds, dtype=float)
    if pairs.shape not in ((2,), (np.size(value), 2)):
        raise ValueError(
            f"{name}_bounds must be a pair (low, high), or one per element of {value!r}, not "
            f"{bounds!r}"
        )
    low, high = pairs.T
    if not np.all((low > 0) & (low <= high) & (high < np.inf)):
        raise ValueError(
            f"{name}_bounds must be 0 < low <= high, not {bounds!r}: the optimiser requires that "
            "all bounds are finite"
        )
    if pairs.ndim == 1:
        return float(low), float(high)
    return tuple((float(a), float(b)) for a, b in pairs)


@dataclass(frozen=True)
class Constant(Kernel):
    """k(x, x') = variance. Times another kernel it is that kernel's signal variance."""

    variance: float = 1.0
    variance_bounds: Bounds = DEFAULT_BOUNDS
    parameters: ClassVar = ("variance",)
    is_stationary: ClassVar = True

    def cross(self, X1: Array, X2: Array, work: Workspace) -> Array:
        return np.asarray(self.variance)

    def vjp(self, X: Array, work: Workspace) -> tuple[Array, Pullback]:
        def pullback(K_bar: Array) -> Array:
            return np.array([self.variance * K_bar.sum()] if self.free else [])

        return np.asarray(self.variance), pullback

    def diag(self, X: Array) -> Array:
        return np.full(len(X), self.variance)


@dataclass(frozen=True)
class White(Kernel):
    """k(x, x') = variance where x and x' are the same row of the same array, else 0: noise."""

    variance: float = 1.0
    variance_bounds: Bounds = DEFAULT_BOUNDS
    parameters: ClassVar = ("variance",)
    is_stationary: ClassVar = True

    def cross(self, X1: Array, X2: Array, work: Workspace) -> Array:
        return np.asarray(0.0)

    def vjp(self, X: Array, work: Workspace) -> tuple[Array, Pullback]:
        def pullback(K_bar: Array) -> Array:
            return np.array([self.variance * K_bar.trace()] if self.free else [])

        K = work.take()
        K.fill(0.0)
        np.fill_diagonal(K, self.variance)
        return K, pullback

    def diag(self, X: Array) -> Array:
        return np.full(len(X), self.variance)


@dataclass(frozen=True)
class Pair(Kernel):
    """Two kernels combined element by element."""

    left: Kernel
    right: Kernel

    def __post_init__(self) -> None:
        for part in (self.left, self.right):
            if not isinstance(part, Kernel):
                raise TypeError(f"a kernel combines with kernels, not with {part!r}")

    @property
    def k1(self) -> Kernel:
        """The left one, by scikit-learn's name."""
        return self.left

    @property
    def k2(self) -> Kernel:
        """The right one, by scikit-learn's name."""
        return self.right

    @property
    def n_free(self) -> int:
        return self.left.n_free + self.right.n_free

    @property
    def values(self) -> Array:
        return np.concatenate([self.left.values, self.right.values])

    @property
    def bounds(self) -> Array:
        return np.concatenate([self.left.bounds, self.right.bounds])

    @property
    def theta_names(self) -> list[str]:
        seen: Counter[str] = Counter()
        names = []
        for name in self.left.theta_names + self.right.theta_names:
            bare = name.partition("#")[0]
            seen[bare] += 1  # the second of the same kind is #2
            names.append(bare if seen[bare] == 1 else f"{bare}#{seen[bare]}")
        return names

    def with_values(self, values: list[float]) -> Self:
        n = self.left.n_free
        return type(self)(self.left.with_values(values[:n]), self.right.with_values(values[n:]))

    @property
    def is_stationary(self) -> bool:  # type: ignore[override]
        return self.left.is_stationary and self.right.is_stationary

    def in_units(self, scale: Array) -> Kernel:
        return replace(self, left=self.left.in_units(scale), right=self.right.in_units(scale))

    def inverse_lengths(self, n_features: int) -> Array:
        return np.hypot(
            self.left.inverse_lengths(n_features), self.right.inverse_lengths(n_features)
        )

    def check_columns(self, n_features: int) -> None:
        self.left.check_columns(n_features)
        self.right.check_columns(n_features)


class Sum(Pair):
    """k = left + right."""

    def cross(self, X1: Array, X2: Array, work: Workspace) -> Array:
        left, right = self.left.cross(X1, X2, work), self.right.cross(X1, X2, work)
        return np.add(left, right, out=_array_of(left, right))

    def vjp(self, X: Array, work: Workspace) -> tuple[Array, Pullback]:
        (left, left_pullback), (right, right_pullback) = (
            self.left.vjp(X, work),
            self.right.vjp(X, work),
        )

        def pullback(K_bar: Array) -> Array:
            return np.concatenate([left_pullback(K_bar), right_pullback(K_bar)])

        return np.add(left, right, out=work.take()), pullback

    def diag(self, X: Array) -> Array:
        return self.left.diag(X) + self.right.diag(X)


class NoisyKernel(Sum):
    """k = signal + noise: what every fit works with. Without noise its variance is a fixed 0."""

    left: Kernel
    right: White

    @property
    def signal(self) -> Kernel:
        """The covariance of the latent function."""
        return self.left

    @property
    def noise(self) -> White:
        """The noise of each row."""
        return self.right

    @property
    def noise_variance(self) -> float:
        """The variance of the noise, the same for all rows."""
        return self.right.variance


class Product(Pair):
    """k = left * right."""

    def cross(self, X1: Array, X2: Array, work: Workspace) -> Array:
        left, right = self.left.cross(X1, X2, work), self.right.cross(X1, X2, work)
        return np.multiply(left, right, out=_array_of(left, right))

    def vjp(self, X: Array, work: Workspace) -> tuple[Array, Pullback]:
        (left, left_pullback), (right, right_pullback) = (
            self.left.vjp(X, work),
            self.right.vjp(X, work),
        )

        def pullback(K_bar: Array) -> Array:
            if left.ndim == 0 and right.ndim:  # pullbacks are linear: a constant needs no pass
                total = np.asarray(np.vdot(K_bar, right))
                return np.concatenate([left_pullback(total), left * right_pullback(K_bar)])
            scratch = work.take()
            gradient = left_pullback(np.multiply(K_bar, right, out=scratch))
            return np.concatenate(
                [gradient, right_pullback(np.multiply(K_bar, left, out=scratch))]
            )

        return np.multiply(left, right, out=work.take()), pullback

    def diag(self, X: Array) -> Array:
        return self.left.diag(X) * self.right.diag(X)


def _array_of(left: Array, right: Array) -> Array:
    """The one of two scratch arrays that can hold their combination, should one be a scalar."""
    return left if left.ndim else right


def parts_of(kernel: Kernel) -> list[Kernel]:
    """The kernel, and those that it combines."""
    inner = [kernel.left, kernel.right] if isinstance(kernel, Pair) else []
    return [kernel, *(part for one in inner for part in parts_of(one))]


def scratch_arrays(kernel: Kernel, row: Array) -> int:
    """How many scratch arrays the covariances of two sets of rows need; `row` is (1, d)."""
    rows, work = np.repeat(row, 2, axis=0), Workspace((2, 2))  # a single row may need fewer
    kernel.cross(rows, rows, work)
    return work.n_arrays


def metric(kernel: Kernel, n_features: int) -> Array:
    """Factors of the columns that make Euclidean distance the kernel's own: (d,)."""
    factors = kernel.inverse_lengths(n_features)
    return factors if factors.any() else np.ones(n_features)


def split_noise(kernel: Kernel) -> NoisyKernel:
    """The same kernel as signal and noise, with a White of 0 where it has none."""
    terms = _terms(kernel)
    noise = [t for t in terms if isinstance(t, White)]
    signals = [t for t in terms if not isinstance(t, White)]
    if not signals:
        raise ValueError("the kernel is only noise (White); add a signal, such as Matern()")
    if len(noise) > 1 or any(isinstance(one, White) for t in signals for one in parts_of(t)):
        from manygp.kernels.mixed import MixedKernel

        return MixedKernel.of(kernel)
    signal = signals[0]
    for term in signals[1:]:
        signal = signal + term
    return NoisyKernel(signal, noise[0] if noise else White(0.0, "fixed"))


def _terms(kernel: Kernel) -> list[Kernel]:
    return _terms(kernel.left) + _terms(kernel.right) if isinstance(kernel, Sum) else [kernel]
