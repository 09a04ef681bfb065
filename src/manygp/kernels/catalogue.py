"""The catalogue of covariance functions.

Matrices of an expert are large, so kernels compute in scratch arrays, in place. Beside each step
stands what the array holds after it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.spatial.distance import cdist

from manygp.arrays import Array
from manygp.kernels.base import (
    DEFAULT_BOUNDS,
    Bounds,
    Constant,
    Kernel,
    LengthScale,
    Product,
    Pullback,
    Sum,
    White,
    Workspace,
)

__all__ = [
    "RBF",
    "Constant",
    "Kernel",
    "Linear",
    "Matern",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "Sum",
    "White",
    "default_kernel",
]

# A derivative that is not needed, or that a kernel does not have.
NOTHING = np.empty(0)
# Beyond this squared norm the differences of a matrix product lose too many digits.
LARGEST_SQUARE = 1e6
# Rows of one matrix product: with a fixed shape the digits of a row do not depend on the number
# of other rows.
TILE = 32
# Products of this number of rows have the digits of those of a tile, and of fewer rows have not.
FEW_ROWS = 16


@dataclass(frozen=True)
class Linear(Kernel):
    """k(x, x') = offset^2 + x . x'"""

    offset: float = 1.0
    offset_bounds: Bounds = DEFAULT_BOUNDS
    parameters: ClassVar = ("offset",)

    def cross(self, X1: Array, X2: Array, work: Workspace) -> Array:
        K = np.matmul(X1, X2.T, out=work.take())  # x . x'
        K += self.offset**2  # offset^2 + x . x'
        return K

    def vjp(self, X: Array, work: Workspace) -> tuple[Array, Pullback]:
        def pullback(K_bar: Array) -> Array:
            return np.array([2 * self.offset**2 * K_bar.sum()] if self.free else [])

        return self.cross(X, X, work), pullback

    def diag(self, X: Array) -> Array:
        return np.einsum("ij,ij->i", X, X) + self.offset**2


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

    def inverse_lengths(self, n_features: int) -> Array:
        return np.broadcast_to(1 / np.asarray(self.length_scale), n_features)

    def in_units(self, scale: Array) -> Any:
        return scaled_lengths(self, scale)


@dataclass(frozen=True)
class RBF(Stationary):
    """k = exp(-r^2 / 2)."""

    length_scale: LengthScale = 1.0
    length_scale_bounds: Bounds = DEFAULT_BOUNDS

    def profile(self, r2: Array, work: Workspace, *, slope: bool) -> tuple[Array, Array, Array]:
        """k = exp(-r^2 / 2), dk/d(r^2) = -k / 2."""
        r2 *= -0.5  # -r^2 / 2
        k = np.exp(r2, out=r2)  # exp(-r^2 / 2)
        if not slope:
            return k, NOTHING, NOTHING
        return k, np.multiply(k, -0.5, out=work.take()), NOTHING


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
        return k, dk, NOTHING


def _matern_12(r2: Array, r: Array, decay: Array, dk: Array | None) -> tuple[Array, Array]:
    """k = exp(-r), dk/d(r^2) = -exp(-r) / (2 r)."""
    if dk is None:
        return decay, NOTHING
    dk.fill(0.0)  # any number will do at r = 0: it is multiplied by a difference of 0
    np.divide(decay, r, out=dk, where=r > 0)  # exp(-r) / r
    dk *= -0.5  # -exp(-r) / (2 r)
    return decay, dk


def _matern_32(r2: Array, r: Array, decay: Array, dk: Array | None) -> tuple[Array, Array]:
    """k = (1 + r) exp(-r), dk/d(r^2) = -exp(-r) / 2."""
    dk = NOTHING if dk is None else np.multiply(decay, -0.5, out=dk)  # -exp(-r) / 2
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
    return k, NOTHING if dk is None else dk


# By nu: functions of r^2, r, exp(-r) and, if dk/d(r^2) is needed, an array for it. They overwrite
# all of these.
MATERN_PROFILES = {0.5: _matern_12, 1.5: _matern_32, 2.5: _matern_52}


@dataclass(frozen=True)
class RationalQuadratic(Stationary):
    """k = (1 + r^2 / (2 alpha))^(-alpha)."""

    length_scale: LengthScale = 1.0
    alpha: float = 1.0
    length_scale_bounds: Bounds = DEFAULT_BOUNDS
    alpha_bounds: Bounds = DEFAULT_BOUNDS
    parameters: ClassVar = ("length_scale", "alpha")

    def profile(self, r2: Array, work: Workspace, *, slope: bool) -> tuple[Array, Array, Array]:
        """k and its derivatives, with base = 1 + r^2 / (2 alpha).

        k = base^(-alpha), dk/d(r^2) = -k / (2 base), and
        dk/dlog(alpha) = k (r^2 / (2 base) - alpha log(base)).
        """
        base = np.multiply(r2, 0.5 / self.alpha, out=work.take())  # r^2 / (2 alpha)
        base += 1.0  # 1 + r^2 / (2 alpha)
        log_k = np.log(base, out=work.take())  # log(base)
        log_k *= -self.alpha  # -alpha log(base)
        k = np.exp(log_k, out=work.take())  # base^(-alpha)
        if not slope:
            return k, NOTHING, NOTHING
        half = np.divide(0.5, base, out=base)  # 1 / (2 base)
        r2 *= half  # r^2 / (2 base)
        dk_shape = np.add(log_k, r2, out=log_k)  # r^2 / (2 base) - alpha log(base)
        dk_shape *= k  # k (r^2 / (2 base) - alpha log(base))
        half *= k  # k / (2 base)
        return k, np.negative(half, out=half), dk_shape


@dataclass(frozen=True)
class Periodic(Kernel):
    """k = exp(-2 sum_j sin^2(pi (x_j - x'_j) / period_j) / length_scale_j^2).

    One period, or length-scale, serves all columns; a sequence holds one per column. The sum over
    columns keeps it positive definite; a function of the Euclidean distance would not be, with
    more than one column.
    """

    length_scale: LengthScale = 1.0
    period: LengthScale = 1.0
    length_scale_bounds: Bounds = DEFAULT_BOUNDS
    period_bounds: Bounds = DEFAULT_BOUNDS
    parameters: ClassVar = ("length_scale", "period")
    per_column: ClassVar = ("length_scale", "period")
    is_stationary: ClassVar = True

    def angles(self, X1: Array, X2: Array) -> Iterator[tuple[Array, float]]:
        """pi (x_j - x'_j) / period_j, (n1, n2), and length_scale_j, column by column."""
        d = X1.shape[1]
        periods, scales = np.broadcast_to(self.period, d), np.broadcast_to(self.length_scale, d)
        for x1, x2, period, scale in zip(X1.T, X2.T, periods, scales, strict=True):
            yield (np.pi / period) * np.subtract.outer(x1, x2), scale

    def cross(self, X1: Array, X2: Array, work: Workspace) -> Array:
        K = work.take()
        K.fill(0.0)
        for angle, scale in self.angles(X1, X2):
            K += (np.sin(angle) / scale) ** 2
        K *= -2
        return np.exp(K, out=K)  # exp(-2 sum_j sin^2(angle_j) / length_scale_j^2)

    def vjp(self, X: Array, work: Workspace) -> tuple[Array, Pullback]:
        K = self.cross(X, X, work)

        def pullback(K_bar: Array) -> Array:
            # dk/dlog(length_scale_j) = k 4 / length_scale_j^2 sin^2(angle_j)
            # dk/dlog(period_j) = k 2 / length_scale_j^2 angle_j sin(2 angle_j)
            weight = 4 * K_bar * K
            gradient = np.empty((2, X.shape[1]))
            for j, (angle, scale) in enumerate(self.angles(X, X)):
                gradient[0, j] = np.vdot(weight, np.sin(angle) ** 2) / scale**2
                gradient[1, j] = np.vdot(weight, angle * np.sin(2 * angle)) / (2 * scale**2)
            return of_free(self, gradient)

        return K, pullback

    def diag(self, X: Array) -> Array:
        return np.ones(len(X))


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
    lengths, bounds = scale * np.asarray(kernel.length_scale), kernel.length_scale_bounds
    if bounds != "fixed":
        bounds = scale[:, None] * np.broadcast_to(bounds, (len(scale), 2))
    return replace(kernel, length_scale=lengths, length_scale_bounds=bounds)


def default_kernel(
    n_features: int, spread: Array | float = 12**-0.5, variance: float = 1.0
) -> Sum:
    """Signal variance times Matern-5/2 with ARD, plus noise, for inputs scaled to [0, 1].

    The length-scales start at the columns' standard deviations, `spread`, times the root of the
    number of columns. Typical distances are then a few length-scales. By default `spread` is that
    of uniform columns. From far larger length-scales the optimiser gets stuck on a plateau.
    `variance` is that of the targets.
    """
    scales = np.clip(np.sqrt(n_features) * np.broadcast_to(spread, n_features), 0.02, 1e2)
    signal = Constant(variance, (1e-3 * variance, 1e3 * variance)) * Matern(
        tuple(scales), (1e-2, 1e3)
    )
    return signal + White(0.1 * variance, (1e-6 * variance, 1e1 * variance))
