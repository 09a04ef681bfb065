"""Kernels of functions that are sums over columns, or over pairs of columns.

Both are made of one-dimensional kernels k_j(x, x') = variance_j m(|x_j - x'_j| / length_scale_j),
where m is a Matern kernel: they are the first and second elementary symmetric polynomials of
these. Blocks of rows that stay in the processor's cache are computed column by column, so there
is no (d, n, n) array.

A Matern kernel of one column is p(r) exp(-r) with a polynomial p and r = |z - z'|. Without the
absolute value it is a sum of few products of a function of z and one of z': a matrix product in
place of an exponential for each pair of rows. Of f(z - z') and f(z' - z), that of the positive
difference is always the smaller for one such function, and always the larger for the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from typing import Any, ClassVar, NamedTuple

import numpy as np

from manygp.arrays import Array
from manygp.kernels.base import (
    DEFAULT_BOUNDS,
    TILE,
    Bounds,
    Kernel,
    LengthScale,
    Pullback,
    Sum,
    Workspace,
    default_kernel,
    of_free,
    register_kernel,
    scaled_lengths,
)

# Elements of a block: a few arrays of that size fit into a core's cache.
BLOCK_NUMBERS = 2**16
# Distances from the middle of the rows, in stretched length-scales, up to which matrix products
# keep their digits; and that at which other rows are held, far enough to have no covariance.
NEAR, FAR = 100.0, 400.0
# Beyond this distance all is 0, and powers would overflow.
LARGEST_R = 1e3


class Profile(NamedTuple):
    """f(r) = p(r) exp(-r): the coefficients of p, and which of f(r), f(-r) that of r > 0 is."""

    coefficients: tuple[float, ...]
    positive: Any  # np.minimum or np.maximum


# By nu: the Matern kernel and its derivative by log(length_scale).
KERNEL, SLOPE = 0, 1
PROFILES = {
    0.5: (Profile((1,), np.minimum), Profile((0, 1), np.maximum)),
    1.5: (Profile((1, 1), np.maximum), Profile((0, 0, 1), np.minimum)),
    2.5: (Profile((1, 1, 1 / 3), np.minimum), Profile((0, 0, 1 / 3, 1 / 3), np.maximum)),
}


class _OneColumn:
    """A profile of |z - z'| times a variance, for z1 (n1,) and z2 (n2,), block by block.

    Where z2 is near 0 it has factors: f(z - z') and f(z' - z) are products of `left` (2, n1, m)
    and `right` (2, m, n2).
    """

    def __init__(
        self, profile: Profile, z1: Array, z2: Array, variance: float, left: Array, right: Array
    ) -> None:
        self.profile, self.z1, self.z2, self.variance = profile, z1, z2, variance
        self.left, self.right, self.is_near = left, right, np.abs(z2).max() <= NEAR

    @classmethod
    def all(cls, profile: Profile, Z1: Array, Z2: Array, variances: Array) -> list[_OneColumn]:
        """Those of all columns: of Z1 (d, n1) and Z2 (d, n2)."""
        middle = (Z2.min(axis=1) + Z2.max(axis=1))[:, None] / 2
        Z1, Z2 = Z1 - middle, Z2 - middle
        near, signs = (np.clip(one, -FAR, FAR) for one in (Z1, Z2)), np.array([[[1.0]], [[-1.0]]])
        left, right = (signs * one for one in near)
        lefts = np.moveaxis(_left(left, profile) * variances[:, None, None], 0, 1)
        rights = np.moveaxis(_right(right, profile), 0, 1)
        columns = zip(Z1, Z2, variances.tolist(), lefts, rights, strict=True)
        return [cls(profile, *one) for one in columns]

    def block(self, rows: slice, columns: slice, out: Array, spare: Array) -> Array:
        """Its values between some of the rows and columns, in `out`; `spare` is overwritten."""
        if self.is_near:
            for left, right, product in zip(self.left, self.right, (out, spare), strict=True):
                np.matmul(left[rows], right[:, columns], out=product)
            self.profile.positive(out, spare, out=out)
            return out
        r = np.abs(np.subtract.outer(self.z1[rows], self.z2[columns]))
        return np.multiply(_values(self.profile, r), self.variance, out=out)


def _values(profile: Profile, r: Array) -> Array:
    """A profile of r, element by element."""
    r = np.minimum(r, LARGEST_R)
    values: Any = np.polynomial.polynomial.polyval(r, profile.coefficients)
    return values * np.exp(-r)


class _Buffers:
    """Arrays that blocks of at most `size` elements are computed in: new ones take far longer."""

    def __init__(self, number: int, size: int) -> None:
        self.arrays = np.empty((number, size))

    def like(self, block: Array) -> list[Array]:
        """Each of them in the shape of a block."""
        return [one[: block.size].reshape(block.shape) for one in self.arrays]


def _left(z: Array, profile: Profile) -> Array:
    """What f(z - z') has of z (..., n): z^i exp(-z), shape (..., n, m)."""
    return np.exp(-z)[..., None] * _powers(z, len(profile.coefficients))


def _right(z: Array, profile: Profile) -> Array:
    """What f(z' - z) has of z (..., n): coefficients of z'^i exp(-z'), shape (..., m, n)."""
    m = len(profile.coefficients)
    binomial = np.zeros((m, m))  # of (z' - z)^power: z'^i in rows, (-z)^j in columns
    for power, coefficient in enumerate(profile.coefficients):
        for i in range(power + 1):
            binomial[i, power - i] += coefficient * comb(power, i)
    of_powers = _powers(-z, m) @ binomial.T
    return np.ascontiguousarray(np.swapaxes(of_powers * np.exp(z)[..., None], -1, -2))


def _powers(z: Array, m: int) -> Array:
    """z^i for i < m: (..., n, m)."""
    powers = np.ones((*z.shape, m))
    np.cumprod(np.broadcast_to(z[..., None], (*z.shape, m - 1)), axis=-1, out=powers[..., 1:])
    return powers


@dataclass(frozen=True)
class ByColumn(Kernel):
    """Base class of `Additive` and `Pairwise`.

    One length-scale, or variance, serves all columns; a sequence holds one per column.
    """

    length_scale: LengthScale = 1.0
    variance: LengthScale = 1.0
    length_scale_bounds: Bounds = DEFAULT_BOUNDS
    variance_bounds: Bounds = DEFAULT_BOUNDS
    nu: float = 2.5
    parameters: ClassVar = ("length_scale", "variance")
    per_column: ClassVar = ("length_scale", "variance")
    # The degree of the elementary symmetric polynomial: 1 or 2.
    degree: ClassVar[int]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu not in PROFILES:
            raise ValueError(f"{type(self).__name__}.nu must be 0.5, 1.5 or 2.5, not {self.nu!r}")

    def variances(self, n_features: int) -> Array:
        """The variance of each column's kernel: (d,)."""
        return np.broadcast_to(self.variance, n_features)

    def cross(self, X1: Array, X2: Array, work: Workspace) -> Array:
        if len(X1) == 1:
            return self._of_one_row(X1, X2, work.take())
        sums = [work.take() for _ in range(self.degree)]
        kernels, all_columns = self._by_column(KERNEL, X1, X2), slice(0, len(X2))
        buffers = _Buffers(2, TILE * len(X2))
        for rows in _blocks(len(X1), TILE):
            self._sum_up(kernels, rows, all_columns, sums, buffers)
        return sums[-1]

    def _of_one_row(self, x: Array, X: Array, out: Array) -> Array:
        """The covariances of one row: too few for what matrix products need beforehand."""
        k = _values(PROFILES[self.nu][KERNEL], np.abs((X - x) * self._scale))
        k *= self.variances(X.shape[1])
        if self.degree == 2:  # each column times the sum of those on its left
            k[:, 1:] *= np.cumsum(k[:, :-1], axis=1)
            k = k[:, 1:]
        return np.sum(k, axis=1, out=out[0])[None]

    def vjp(self, X: Array, work: Workspace) -> tuple[Array, Pullback]:
        n, step = len(X), max(TILE, BLOCK_NUMBERS // max(1, len(X)))
        sums = [work.take() for _ in range(self.degree)]
        kernels, buffers = self._by_column(KERNEL, X, X), _Buffers(4, step * n)
        for rows in _blocks(n, step):  # from the diagonal on: the matrices are symmetric
            self._sum_up(kernels, rows, slice(rows.start, n), sums, buffers)
            for one in sums:
                one[rows.stop :, rows] = one[rows, rows.stop :].T

        def pullback(K_bar: Array) -> Array:
            slopes = self._by_column(SLOPE, X, X)
            gradient = np.zeros((2, X.shape[1]))
            for rows in _blocks(n, step):
                columns = slice(rows.start, n)
                bar, k, slope, spare = buffers.like(sums[0][rows, columns])
                bar[:] = K_bar[rows, columns]
                bar[:, rows.stop - rows.start :] += K_bar[rows.stop :, rows].T
                for j in range(X.shape[1]):
                    kernels[j].block(rows, columns, k, spare)
                    slopes[j].block(rows, columns, slope, spare)
                    k_bar = bar
                    if self.degree == 2:  # times the sum of the other kernels
                        k_bar = np.subtract(sums[0][rows, columns], k, out=spare)
                        k_bar *= bar
                    gradient[:, j] += np.vdot(k_bar, slope), np.vdot(k_bar, k)
            return of_free(self, gradient)

        return sums[-1], pullback

    @property
    def _scale(self) -> Array:
        return np.sqrt(2 * self.nu) / np.asarray(self.length_scale)

    def _by_column(self, which: int, X1: Array, X2: Array) -> list[_OneColumn]:
        """Each column's kernel, or its derivative by log(length_scale)."""
        columns = (X1 * self._scale).T, (X2 * self._scale).T
        return _OneColumn.all(PROFILES[self.nu][which], *columns, self.variances(X1.shape[1]))

    def _sum_up(
        self,
        kernels: list[_OneColumn],
        rows: slice,
        columns: slice,
        sums: list[Array],
        buffers: _Buffers,
    ) -> None:
        """Overwrite a block of the elementary symmetric polynomials of degree 1 to `degree`."""
        blocks = [one[rows, columns] for one in sums]
        k, spare, *_ = buffers.like(blocks[0])
        for block in blocks:
            block.fill(0.0)
        for kernel in kernels:
            kernel.block(rows, columns, k, spare)
            if self.degree == 2:  # products with the columns on the left
                blocks[1] += np.multiply(blocks[0], k, out=spare)
            blocks[0] += k

    def slopes(self, X1: Array, X2: Array, K_bar: Array) -> Array:
        """k_j' of p(r) exp(-r), times the sum of the other kernels where it is one of pairs."""
        p = np.polynomial.polynomial.Polynomial(PROFILES[self.nu][KERNEL].coefficients)
        fall, scale = p.deriv() - p, np.broadcast_to(self._scale, X1.shape[1])
        of_all = np.zeros(K_bar.shape[-2:])
        for _, r, variance in self._distances(X1, X2):
            of_all += variance * p(r) * np.exp(-r)
        slopes = np.empty((*K_bar.shape[:-1], X1.shape[1]))
        for j, (u, r, variance) in enumerate(self._distances(X1, X2)):
            decay = variance * np.exp(-r)
            weight = K_bar if self.degree == 1 else K_bar * (of_all - p(r) * decay)
            rise = fall(r) * decay * np.sign(u)
            slopes[..., j] = scale[j] * np.einsum("...ai,ai->...a", weight, rise)
        return slopes

    def _distances(self, X1: Array, X2: Array) -> Iterator[tuple[Array, Array, float]]:
        """Of each column: signed and plain distances (n1, n2) in length-scales; its variance."""
        columns = (X1 * self._scale).T, (X2 * self._scale).T, self.variances(X1.shape[1])
        for z1, z2, variance in zip(*columns, strict=True):
            u = np.subtract.outer(z1, z2)
            yield u, np.minimum(np.abs(u), LARGEST_R), variance

    def in_units(self, scale: Array) -> Any:
        return scaled_lengths(self, scale)


@register_kernel
@dataclass(frozen=True)
class Additive(ByColumn):
    """``k(x, x') = sum_j variance_j m(|x_j - x'_j| / length_scale_j)``: a function of each column.

    m is the Matern kernel of smoothness nu. A column of small variance has no influence.
    """

    degree: ClassVar = 1

    def diag(self, X: Array) -> Array:
        return np.full(len(X), self.variances(X.shape[1]).sum())

    def inverse_lengths(self, n_features: int) -> Array:
        return np.sqrt(self.variances(n_features)) / np.asarray(self.length_scale)


@register_kernel
@dataclass(frozen=True)
class Pairwise(ByColumn):
    """k(x, x') = sum_{i < j} k_i k_j: a function of each pair of columns.

    ``k_j = variance_j m(|x_j - x'_j| / length_scale_j)``, and m is the Matern kernel of smoothness
    nu. A column of small variance has no part in any pair.
    """

    degree: ClassVar = 2

    def diag(self, X: Array) -> Array:
        v = self.variances(X.shape[1])
        return np.full(len(X), v @ (v.sum() - v) / 2)

    def inverse_lengths(self, n_features: int) -> Array:
        v = self.variances(n_features)
        return np.sqrt(v * (v.sum() - v)) / np.asarray(self.length_scale)

    def check_columns(self, n_features: int) -> None:
        super().check_columns(n_features)
        if n_features < 2:
            raise ValueError("Pairwise needs two columns or more; X has one, so use Additive")


def structured_kernel(n_features: int, spread: Array | float = 12**-0.5) -> Sum:
    """The default kernel plus a function of each column and of each pair of columns.

    It is for inputs scaled to [0, 1] and few rows: the new terms learn what holds everywhere.
    The three variances start at 1/2, 1 and 1/2. Length-scales of the new terms start at three
    times `spread`, the columns' standard deviations: smooth functions. All pairs have one
    variance; with one for each column the left-out log score was worse on three data sets. A
    single column has no pairs, and its own function is the default kernel.
    """
    default = default_kernel(n_features, spread)
    if n_features < 2:
        return default
    scales = tuple(np.clip(3 * np.broadcast_to(spread, n_features), 0.02, 1e2))
    shares = (1 / n_features,) * n_features
    share = (n_features * (n_features - 1)) ** -0.5  # the pairs' variances sum up to 1/2
    bounds = (1e-2, 1e3), (1e-6, 1e3)
    columns = Additive(scales, shares, *bounds)
    pairs = Pairwise(scales, share, *bounds)
    rows = default.left.with_values([0.5, *default.left.values[1:].tolist()])
    return rows + columns + pairs + default.right


def _blocks(n: int, step: int) -> Iterator[slice]:
    """Slices of `step` of n rows."""
    for start in range(0, n, step):
        yield slice(start, min(n, start + step))
