"""Kernels beside the default one: RBF, rational quadratic, linear and periodic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from manygp.arrays import Array
from manygp.kernels.base import (
    DEFAULT_BOUNDS,
    NO_DERIVATIVE,
    Bounds,
    Kernel,
    LengthScale,
    Pullback,
    Stationary,
    Workspace,
    of_free,
    register_kernel,
)


@register_kernel
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
            return k, NO_DERIVATIVE, NO_DERIVATIVE
        return k, np.multiply(k, -0.5, out=work.take()), NO_DERIVATIVE


@register_kernel
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
            return k, NO_DERIVATIVE, NO_DERIVATIVE
        half = np.divide(0.5, base, out=base)  # 1 / (2 base)
        r2 *= half  # r^2 / (2 base)
        dk_shape = np.add(log_k, r2, out=log_k)  # r^2 / (2 base) - alpha log(base)
        dk_shape *= k  # k (r^2 / (2 base) - alpha log(base))
        half *= k  # k / (2 base)
        return k, np.negative(half, out=half), dk_shape


@register_kernel
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

    def slopes(self, X1: Array, X2: Array, K_bar: Array) -> Array:
        return K_bar @ X2

    def diag_slope(self, X: Array) -> Array:
        return 2 * X


@register_kernel
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

    def slopes(self, X1: Array, X2: Array, K_bar: Array) -> Array:
        """-2 k sin(2 angle_j) pi / period_j / length_scale_j^2, summed."""
        weight = -2 * K_bar * self(X1, X2)
        angles = [angle for angle, _ in self.angles(X1, X2)]
        sums = [np.einsum("...ai,ai->...a", weight, np.sin(2 * angle)) for angle in angles]
        rise = np.pi / np.asarray(self.period) / np.asarray(self.length_scale) ** 2
        slopes: Array = np.stack(sums, axis=-1) * rise
        return slopes
