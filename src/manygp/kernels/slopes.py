"""Derivatives of kernels by their inputs."""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from manygp.arrays import Array
from manygp.kernels.additive import PROFILES, ByColumn
from manygp.kernels.base import Constant, Kernel, Product, Sum, White, Workspace
from manygp.kernels.catalogue import Linear, Periodic, Stationary
from manygp.kernels.mixed import Quiet


@singledispatch
def slopes(kernel: Kernel, x: Array, X: Array) -> Array:
    """dk(x, x_i) / dx for one row x (d,) and the rows x_i of X (n, d): (n, d)."""
    raise ValueError(
        f"the kernel {kernel} has no derivative by its inputs; sums and products of those of "
        "manygp.kernels have one"
    )


def diag_slope(kernel: Kernel, x: Array) -> Array:
    """dk(x, x) / dx at one row x (d,), whose kernel has `slopes`: (d,)."""
    if isinstance(kernel, Linear):
        return 2 * x
    if isinstance(kernel, Quiet):
        return diag_slope(kernel.whole, x)
    if isinstance(kernel, Sum | Product):
        left, right = diag_slope(kernel.left, x), diag_slope(kernel.right, x)
        if isinstance(kernel, Sum):
            return left + right
        return left * kernel.right.diag(x[None]) + right * kernel.left.diag(x[None])
    return np.zeros(len(x))


@slopes.register(Constant)
@slopes.register(White)
def _constant(kernel: Kernel, x: Array, X: Array) -> Array:
    return np.zeros(X.shape)


@slopes.register
def _linear(kernel: Linear, x: Array, X: Array) -> Array:
    return X


@slopes.register
def _stationary(kernel: Stationary, x: Array, X: Array) -> Array:
    """dk/d(r^2) times d(r^2)/dx_j = 2 (x_j - x_ij) stretch^2 / length_scale_j^2."""
    scale = kernel.stretch / np.asarray(kernel.length_scale)
    work = Workspace((1, len(X)))
    r2 = kernel.squared_distances(x[None] * scale, X * scale, work.take())
    by_r2 = kernel.profile(r2, work, slope=True)[1][0]
    found: Array = 2 * by_r2[:, None] * (x - X) * scale**2
    return found


@slopes.register
def _periodic(kernel: Periodic, x: Array, X: Array) -> Array:
    """-2 k sin(2 angle_j) pi / period_j / length_scale_j^2."""
    k = kernel(x[None], X)[0]
    angles = np.pi * (x - X) / np.asarray(kernel.period)
    rise = np.pi / np.asarray(kernel.period) / np.asarray(kernel.length_scale) ** 2
    found: Array = -2 * k[:, None] * np.sin(2 * angles) * rise
    return found


@slopes.register
def _by_column(kernel: ByColumn, x: Array, X: Array) -> Array:
    """k_j' of p(r) exp(-r), times the sum of the other kernels where it is one of pairs."""
    scale = np.sqrt(2 * kernel.nu) / np.asarray(kernel.length_scale)
    u, variances = (x - X) * scale, kernel.variances(X.shape[1])
    r, coefficients = np.abs(u), PROFILES[kernel.nu][0].coefficients
    p = np.polynomial.polynomial.Polynomial(coefficients)
    decay = variances * np.exp(-r)
    by_column = (p.deriv()(r) - p(r)) * decay * np.sign(u) * scale
    if kernel.degree == 1:
        return by_column
    k = p(r) * decay
    found: Array = by_column * (k.sum(axis=1, keepdims=True) - k)
    return found


@slopes.register
def _quiet(kernel: Quiet, x: Array, X: Array) -> Array:
    return slopes(kernel.whole, x, X)


@slopes.register
def _sum(kernel: Sum, x: Array, X: Array) -> Array:
    return slopes(kernel.left, x, X) + slopes(kernel.right, x, X)


@slopes.register
def _product(kernel: Product, x: Array, X: Array) -> Array:
    left, right = (one(x[None], X)[0][:, None] for one in (kernel.left, kernel.right))
    return slopes(kernel.left, x, X) * right + left * slopes(kernel.right, x, X)
