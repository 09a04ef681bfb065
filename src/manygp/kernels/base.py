"""Interface of kernels, and their combinations: sums, products, constants and noise.

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
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from scipy.spatial.distance import cdist

from manygp.arrays import Array
from manygp.kernels.sklearn_mixin import SklearnKernelMixin

Interval = tuple[float, float]
Bounds = Interval | tuple[Interval, ...] | Literal["fixed"]
LengthScale = float | tuple[float, ...]
Pullback = Callable[[Array], Array]
K = TypeVar("K", bound="Kernel")

DEFAULT_BOUNDS: Bounds = (1e-5, 1e5)
# A derivative that is not needed, or that a kernel does not have.
NO_DERIVATIVE = np.empty(0)
# Beyond this squared norm the differences of a matrix product lose too many digits.
LARGEST_SQUARE = 1e6
# Rows of one matrix product: with a fixed shape the digits of a row do not depend on the number
# of other rows.
TILE = 32
# Products of this number of rows have the digits of those of a tile, and of fewer rows have not.
FEW_ROWS = 16


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


# Kernels that have a text, and so a place in model files, by name.
KERNELS: dict[str, type[Kernel]] = {}


def register_kernel(kind: type[K]) -> type[K]:
    """Give a kernel class a text, and so a place in model files: a decorator.

    The class is a dataclass whose arguments are numbers, tuples of numbers, or kernels.
    """
    if KERNELS.setdefault(kind.__name__, kind) is not kind:
        raise ValueError(f"a kernel {kind.__name__} is registered already; name yours differently")
    return kind


class Kernel(SklearnKernelMixin, ABC):
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

    def slopes(self, X1: Array, X2: Array, K_bar: Array) -> Array:
        """sum_i K_bar_ai dk(x_a, x_i) / dx_a for rows x_a of X1 (N, d) and x_i of X2: (N, d).

        K_bar has the shape (N, n), or (..., N, n) for several sums, (..., N, d). So summed up, no
        derivative needs an (N, n, d) array.
        """
        raise ValueError(
            f"the kernel {self} has no derivative by its inputs; sums and products of those of "
            "manygp.kernels have one"
        )

    def diag_slope(self, X: Array) -> Array:
        """dk(x, x) / dx at the rows x of X (N, d): (N, d)."""
        return np.zeros_like(X)

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
class OneVariance(Kernel):
    """Base class of `Constant` and `White`."""

    variance: float = 1.0
    variance_bounds: Bounds = DEFAULT_BOUNDS
    parameters: ClassVar = ("variance",)
    is_stationary: ClassVar = True

    def diag(self, X: Array) -> Array:
        return np.full(len(X), self.variance)

    def slopes(self, X1: Array, X2: Array, K_bar: Array) -> Array:
        return np.zeros((*K_bar.shape[:-1], X1.shape[1]))


@register_kernel
class Constant(OneVariance):
    """k(x, x') = variance. Times another kernel it is that kernel's signal variance."""

    def cross(self, X1: Array, X2: Array, work: Workspace) -> Array:
        return np.asarray(self.variance)

    def vjp(self, X: Array, work: Workspace) -> tuple[Array, Pullback]:
        def pullback(K_bar: Array) -> Array:
            return np.array([self.variance * K_bar.sum()] if self.free else [])

        return np.asarray(self.variance), pullback


@register_kernel
class White(OneVariance):
    """k(x, x') = variance where x and x' are the same row of the same array, else 0: noise."""

    def cross(self, X1: Array, X2: Array, work: Workspace) -> Array:
        return np.asarray(0.0)

    def vjp(self, X: Array, work: Workspace) -> tuple[Array, Pullback]:
        def pullback(K_bar: Array) -> Array:
            return np.array([self.variance * K_bar.trace()] if self.free else [])

        K = work.take()
        K.fill(0.0)
        np.fill_diagonal(K, self.variance)
        return K, pullback


class Combination(Kernel):
    """A kernel made of kernels, its only arguments: it has their hyperparameters."""

    @property
    def operands(self) -> tuple[Kernel, ...]:
        """The kernels that it is made of."""
        return tuple(self.get_params(deep=False).values())

    @property
    def n_free(self) -> int:
        return sum(one.n_free for one in self.operands)

    @property
    def values(self) -> Array:
        return np.concatenate([one.values for one in self.operands])

    @property
    def bounds(self) -> Array:
        return np.concatenate([one.bounds for one in self.operands])

    @property
    def theta_names(self) -> list[str]:
        seen: Counter[str] = Counter()
        names = []
        for name in (name for one in self.operands for name in one.theta_names):
            bare = name.partition("#")[0]
            seen[bare] += 1  # the second of the same kind is #2
            names.append(bare if seen[bare] == 1 else f"{bare}#{seen[bare]}")
        return names

    def with_values(self, values: list[float]) -> Self:
        changed = []
        for one in self.operands:
            changed.append(one.with_values(values[: one.n_free]))
            values = values[one.n_free :]
        return type(self)(*changed)

    @property
    def is_stationary(self) -> bool:  # type: ignore[override]
        return all(one.is_stationary for one in self.operands)

    def in_units(self, scale: Array) -> Kernel:
        return type(self)(*(one.in_units(scale) for one in self.operands))

    def inverse_lengths(self, n_features: int) -> Array:
        lengths = [one.inverse_lengths(n_features) for one in self.operands]
        return np.asarray(np.hypot.reduce(lengths))

    def check_columns(self, n_features: int) -> None:
        for one in self.operands:
            one.check_columns(n_features)


@dataclass(frozen=True)
class Pair(Combination):
    """Two kernels combined element by element."""

    left: Kernel
    right: Kernel

    @property
    def operands(self) -> tuple[Kernel, Kernel]:
        return self.left, self.right

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


@register_kernel
class Sum(Pair):
    """k = left + right."""

    def cross(self, X1: Array, X2: Array, work: Workspace) -> Array:
        left, right = self.left.cross(X1, X2, work), self.right.cross(X1, X2, work)
        return np.add(left, right, out=_array_of(left, right))

    def vjp(self, X: Array, work: Workspace) -> tuple[Array, Pullback]:
        left, left_pullback = self.left.vjp(X, work)
        right, right_pullback = self.right.vjp(X, work)

        def pullback(K_bar: Array) -> Array:
            return np.concatenate([left_pullback(K_bar), right_pullback(K_bar)])

        return np.add(left, right, out=work.take()), pullback

    def diag(self, X: Array) -> Array:
        return self.left.diag(X) + self.right.diag(X)

    def slopes(self, X1: Array, X2: Array, K_bar: Array) -> Array:
        return self.left.slopes(X1, X2, K_bar) + self.right.slopes(X1, X2, K_bar)

    def diag_slope(self, X: Array) -> Array:
        return self.left.diag_slope(X) + self.right.diag_slope(X)


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


@register_kernel
class Product(Pair):
    """k = left * right."""

    def cross(self, X1: Array, X2: Array, work: Workspace) -> Array:
        left, right = self.left.cross(X1, X2, work), self.right.cross(X1, X2, work)
        return np.multiply(left, right, out=_array_of(left, right))

    def vjp(self, X: Array, work: Workspace) -> tuple[Array, Pullback]:
        left, left_pullback = self.left.vjp(X, work)
        right, right_pullback = self.right.vjp(X, work)

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

    def slopes(self, X1: Array, X2: Array, K_bar: Array) -> Array:
        total = np.zeros((*K_bar.shape[:-1], X1.shape[1]))
        for one, other in ((self.left, self.right), (self.right, self.left)):
            if not isinstance(one, OneVariance):  # which has no slope
                factor = other.cross(X1, X2, Workspace(K_bar.shape[-2:]))
                total += one.slopes(X1, X2, K_bar * factor)
        return total

    def diag_slope(self, X: Array) -> Array:
        left, right = (one.diag(X)[:, None] for one in (self.left, self.right))
        return self.left.diag_slope(X) * right + self.right.diag_slope(X) * left


def _array_of(left: Array, right: Array) -> Array:
    """The one of two scratch arrays that can hold their combination, should one be a scalar."""
    return left if left.ndim else right


def parts_of(kernel: Kernel) -> list[Kernel]:
    """The kernel, and those that it combines."""
    inner = kernel.operands if isinstance(kernel, Pair) else ()
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


class Stationary(Kernel):
    """k(x, x') = profile(r^2) with r^2 = stretch^2 sum_j (x_j - x'_j)^2 / length_scale_j^2.

    One length-scale serves all columns; a sequence holds one per column (ARD).
    """

    length_scale: LengthScale
    stretch: float = 1.0
    parameters: ClassVar[tuple[str, ...]] = ("length_scale",)
    per_column: ClassVar[tuple[str, ...]] = ("length_scale",)
    is_stationary: ClassVar[bool] = True

    @abstractmethod
    def profile(self, r2: Array, work: Workspace, *, slope: bool) -> tuple[Array, Array, Array]:
        """The kernel as a function of the squared distance, and its derivatives.

        Parameters
        ----------
        r2 : ndarray of shape (n1, n2)
            Squared distances r^2; the method may overwrite them.
        work : Workspace
            Scratch arrays of the shape of `r2`, for the results too.
        slope : bool
            Whether the derivatives are needed.

        Returns
        -------
        k, dk/d(r^2), dk/dlog(shape) : ndarrays of shape (n1, n2)
            The shape is the hyperparameter beside `length_scale`, if the kernel has one. A
            derivative that is not needed, or does not exist, is empty.
        """

    def squared_distances(self, Z1: Array, Z2: Array, out: Array) -> Array:
        """``|z1|^2 + |z2|^2 - 2 z1.z2`` as one product of the rows ``(-2 z1, |z1|^2, 1)``.

        A kernel that is not smooth at r = 0 must not use products at all: see `Matern`.
        """
        if len(Z1) == 1:  # digits depend on the shape
            few = np.repeat(Z1, FEW_ROWS, axis=0)
            out[:] = self.squared_distances(few, Z2, np.empty((FEW_ROWS, len(Z2))))[:1]
            return out
        shift = Z2.mean(axis=0)  # keeps the squares small: less cancellation
        d = len(shift)
        left, right = np.ones((len(Z1), d + 2)), np.ones((len(Z2), d + 2))
        moved = np.subtract(Z2, shift, out=right[:, :d])
        np.einsum("ij,ij->i", moved, moved, out=right[:, d + 1])
        if right[:, d + 1].max() > LARGEST_SQUARE:  # where the shift itself would lose digits
            return cdist(Z1, Z2, "sqeuclidean", out=out)
        moved = np.subtract(Z1, shift, out=left[:, :d])
        np.einsum("ij,ij->i", moved, moved, out=left[:, d])
        moved *= -2
        step = TILE if len(Z1) % TILE == 0 else len(Z1)
        tiles = out.reshape(-1, step, len(Z2))
        np.matmul(left.reshape(-1, step, d + 2), right.T, out=tiles)
        return np.maximum(out, 0.0, out=out)

    def cross(self, X1: Array, X2: Array, work: Workspace) -> Array:
        scale = self.stretch / np.asarray(self.length_scale)
        r2 = self.squared_distances(X1 * scale, X2 * scale, work.take())
        return self.profile(r2, work, slope=False)[0]

    def vjp(self, X: Array, work: Workspace) -> tuple[Array, Pullback]:
        Z = X * (self.stretch / np.asarray(self.length_scale))
        r2 = self.squared_distances(Z, Z, work.take())
        np.fill_diagonal(r2, 0.0)
        K, slope, shape_slope = self.profile(r2, work, slope=True)

        def pullback(K_bar: Array) -> Array:
            gradient = []
            if "length_scale" in self.free:
                # dr^2_ik/dlog(length_scale_j) = -2 (z_ij - z_kj)^2, expanded: no (n, n, d) array
                H = np.multiply(K_bar, slope, out=work.take())
                HZ = H @ np.hstack([Z, np.ones((len(Z), 1))])
                sums = HZ[:, -1] + H.sum(axis=0)
                by_column = 4 * np.einsum("ij,ij->j", Z, HZ[:, :-1]) - 2 * (sums @ (Z * Z))
                gradient.append(by_column if np.ndim(self.length_scale) else [by_column.sum()])
            if len(shape_slope) and len(self.free) > len(gradient):
                gradient.append([np.einsum("ij,ij->", K_bar, shape_slope)])
            return np.concatenate(gradient) if gradient else np.empty(0)

        return K, pullback

    def diag(self, X: Array) -> Array:
        return np.ones(len(X))

    def slopes(self, X1: Array, X2: Array, K_bar: Array) -> Array:
        """dk/d(r^2) times d(r^2)/dx_j = 2 (x_j - x_ij) stretch^2 / length_scale_j^2, summed."""
        scale, work = self.stretch / np.asarray(self.length_scale), Workspace(K_bar.shape[-2:])
        middle = X2.mean(axis=0)
        Z1, Z2 = (X1 - middle) * scale, (X2 - middle) * scale
        r2 = self.squared_distances(Z1, Z2, work.take())
        H = K_bar * self.profile(r2, work, slope=True)[1]
        slopes: Array = 2 * scale * (H.sum(axis=-1)[..., None] * Z1 - H @ Z2)
        return slopes

    def inverse_lengths(self, n_features: int) -> Array:
        return np.broadcast_to(1 / np.asarray(self.length_scale), n_features)

    def in_units(self, scale: Array) -> Any:
        return scaled_lengths(self, scale)


@register_kernel
@dataclass(frozen=True)
class Matern(Stationary):
    """Matern kernel of smoothness nu = 1/2, 3/2 or 5/2.

    ==== ===========================
    nu   k
    ==== ===========================
    1/2  exp(-r)
    3/2  (1 + r) exp(-r)
    5/2  (1 + r + r^2 / 3) exp(-r)
    ==== ===========================

    Here r is the distance in length-scales, stretched by sqrt(2 nu).
    """

    length_scale: LengthScale = 1.0
    length_scale_bounds: Bounds = DEFAULT_BOUNDS
    nu: float = 2.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"Matern.nu must be 0.5, 1.5 or 2.5, not {self.nu!r}")

    @property
    def stretch(self) -> float:  # type: ignore[override]
        return float(np.sqrt(2 * self.nu))

    def squared_distances(self, Z1: Array, Z2: Array, out: Array) -> Array:
        if self.nu == 0.5:  # not differentiable at r = 0, where a matrix product rounds too much
            return cdist(Z1, Z2, "sqeuclidean", out=out)
        return super().squared_distances(Z1, Z2, out)

    def profile(self, r2: Array, work: Workspace, *, slope: bool) -> tuple[Array, Array, Array]:
        """k and dk/d(r^2) as `MATERN_PROFILES` has them for nu."""
        r = np.sqrt(r2, out=work.take())
        decay = np.negative(r, out=work.take())  # -r
        np.exp(decay, out=decay)  # exp(-r)
        k, dk = MATERN_PROFILES[self.nu](r2, r, decay, work.take() if slope else None)
        return k, dk, NO_DERIVATIVE


def _matern_12(r2: Array, r: Array, decay: Array, dk: Array | None) -> tuple[Array, Array]:
    """k = exp(-r), dk/d(r^2) = -exp(-r) / (2 r)."""
    if dk is None:
        return decay, NO_DERIVATIVE
    dk.fill(0.0)  # any number will do at r = 0: it is multiplied by a difference of 0
    np.divide(decay, r, out=dk, where=r > 0)  # exp(-r) / r
    dk *= -0.5  # -exp(-r) / (2 r)
    return decay, dk


def _matern_32(r2: Array, r: Array, decay: Array, dk: Array | None) -> tuple[Array, Array]:
    """k = (1 + r) exp(-r), dk/d(r^2) = -exp(-r) / 2."""
    dk = NO_DERIVATIVE if dk is None else np.multiply(decay, -0.5, out=dk)  # -exp(-r) / 2
    k = r
    k += 1.0  # 1 + r
    k *= decay  # (1 + r) exp(-r)
    return k, dk


def _matern_52(r2: Array, r: Array, decay: Array, dk: Array | None) -> tuple[Array, Array]:
    """k = (1 + r + r^2 / 3) exp(-r), dk/d(r^2) = -(1 + r) exp(-r) / 6."""
    r += 1.0  # 1 + r
    if dk is not None:
        np.multiply(r, decay, out=dk)  # (1 + r) exp(-r)
        dk *= -1 / 6  # -(1 + r) exp(-r) / 6
    k = r2
    k *= 1 / 3  # r^2 / 3
    k += r  # 1 + r + r^2 / 3
    k *= decay  # (1 + r + r^2 / 3) exp(-r)
    return k, NO_DERIVATIVE if dk is None else dk


# By nu: functions of r^2, r, exp(-r) and, if dk/d(r^2) is needed, an array for it. They overwrite
# all of these.
MATERN_PROFILES = {0.5: _matern_12, 1.5: _matern_32, 2.5: _matern_52}


def of_free(kernel: Kernel, gradient: Array) -> Array:
    """The derivatives by the free hyperparameters, from those by parameter and column."""
    parts = [
        by_column if np.ndim(getattr(kernel, name)) else by_column.sum(keepdims=True)
        for name, by_column in zip(kernel.parameters, gradient, strict=True)
        if name in kernel.free
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def scaled_lengths(kernel: Any, scale: Array) -> Any:
    """The same kernel for columns that are multiplied by `scale` (d,): other length-scales."""
    smallest, largest = np.finfo(float).tiny, np.finfo(float).max  # of columns near the ends
    with np.errstate(over="ignore"):
        lengths = np.clip(scale * np.asarray(kernel.length_scale), smallest, largest)
        bounds = kernel.length_scale_bounds
        if bounds != "fixed":
            bounds = scale[:, None] * np.broadcast_to(bounds, (len(scale), 2))
            bounds = np.clip(bounds, smallest, largest)
    return replace(kernel, length_scale=lengths, length_scale_bounds=bounds)


def default_kernel(
    n_features: int,
    spread: Array | float = 12**-0.5,
    variance: float = 1.0,
    weight: float = 1.0,
) -> Sum:
    """Signal variance times Matern-5/2 with ARD, plus noise, for inputs scaled to [0, 1].

    The length-scales start at the columns' standard deviations, `spread`, times the root of the
    number of columns. Typical distances are then a few length-scales. By default `spread` is that
    of uniform columns. From far larger length-scales the optimiser gets stuck on a plateau.
    `variance` is that of the targets, and `weight` the mean of the weights of rows: the noise is
    that of a row of weight 1.
    """
    scales = np.clip(np.sqrt(n_features) * np.broadcast_to(spread, n_features), 0.02, 1e2)
    signal = Constant(variance, (1e-3 * variance, 1e3 * variance)) * Matern(
        tuple(scales), (1e-2, 1e3)
    )
    noise = variance * weight
    return signal + White(0.1 * noise, (1e-6 * noise, 1e1 * noise))
