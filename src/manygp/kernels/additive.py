"""Kernels of functions that are sums over columns, or over pairs of columns.

Both are made of one-dimensional kernels k_j(x, x') = variance_j m(|x_j - x'_j| / length_scale_j),
where m is a Matern kernel: their first and second elementary symmetric polynomials. Each k_j is
computed in blocks of rows that stay in the processor's cache, so there is never more than one of
them, and no (d, n, n) array.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from manygp.arrays import Array
from manygp.kernels.base import (
    DEFAULT_BOUNDS,
    Bounds,
    Constant,
    Kernel,
    LengthScale,
    Pullback,
    Sum,
    White,
    Workspace,
)
from manygp.kernels.catalogue import MATERN_PROFILES, Matern

# Elements of a block: a few arrays of that size fit into a core's cache.
BLOCK = 2**14


@dataclass(frozen=True)
class ByColumn(Kernel):
    """What `Additive` and `Pairwise` have in common.

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
        if self.nu not in MATERN_PROFILES:
            raise ValueError(f"{type(self).__name__}.nu must be 0.5, 1.5 or 2.5, not {self.nu!r}")

    def cross(self, X1: Array, X2: Array, work: Workspace) -> Array:
        Z1, Z2 = self._scaled(X1), self._scaled(X2)
        polynomials = self._zeros(work)
        for rows in _blocks(len(X1), len(X2)):
            self._fill(Z1[:, rows], Z2, [one[rows] for one in polynomials])
        return polynomials[-1]

    def vjp(self, X: Array, work: Workspace) -> tuple[Array, Pullback]:
        n, Z = len(X), self._scaled(X)
        polynomials = self._zeros(work)
        for rows in _blocks(n, n):  # from the diagonal on: the matrices are symmetric
            upper = [one[rows, rows.start :] for one in polynomials]
            self._fill(Z[:, rows], Z[:, rows.start :], upper)
            for one in polynomials:
                one[rows.stop :, rows] = one[rows, rows.stop :].T
        total = polynomials[0]

        def pullback(K_bar: Array) -> Array:
            gradient = np.zeros((2, len(Z)))
            for rows in _blocks(n, n):
                weight = K_bar[rows, rows.start :].copy()
                weight[:, rows.stop - rows.start :] += K_bar[rows.stop :, rows].T
                others = None if self.degree == 1 else total[rows, rows.start :]
                gradient += self._gradient(Z[:, rows], Z[:, rows.start :], weight, others)
            by_name = dict(zip(self.parameters, gradient, strict=True))
            parts = [
                by_name[p] if np.ndim(getattr(self, p)) else by_name[p].sum(keepdims=True)
                for p in self.free
            ]
            return np.concatenate(parts) if parts else np.empty(0)

        return polynomials[-1], pullback

    def _scaled(self, X: Array) -> Array:
        """Columns in length-scales, stretched by sqrt(2 nu): (d, n)."""
        scale = np.sqrt(2 * self.nu) / np.asarray(self.length_scale)
        return np.ascontiguousarray((X * scale).T)

    def variances(self, n_features: int) -> Array:
        """The prior variance of each column's function: (d,)."""
        return np.broadcast_to(self.variance, n_features)

    def _zeros(self, work: Workspace) -> list[Array]:
        """Room for the polynomials of degree 1 to `degree`."""
        arrays = [work.take() for _ in range(self.degree)]
        for one in arrays:
            one.fill(0.0)
        return arrays

    def _fill(self, Z1: Array, Z2: Array, polynomials: list[Array]) -> None:
        """Add a block of the polynomials: the next is that of pairs of a column and its left."""
        scratch = _scratch(4, Z1, Z2)
        for z1, z2, variance in zip(Z1, Z2, self.variances(len(Z1)), strict=True):
            k, _ = self._profile(z1, z2, scratch[:3], None)  # k_j / variance_j
            k *= variance
            if self.degree == 2:
                polynomials[1] += np.multiply(polynomials[0], k, out=scratch[3])
            polynomials[0] += k

    def _gradient(self, Z1: Array, Z2: Array, weight: Array, total: Array | None) -> Array:
        """A block's sums of weight times dk/dlog(length_scale_j) and dk/dlog(variance_j): (2, d).

        `total` is the sum of all k_j, if what is differentiated are the products of pairs.
        """
        scratch = _scratch(6, Z1, Z2)
        gradient = np.empty((2, len(Z1)))
        for j, variance in enumerate(self.variances(len(Z1))):
            k, slope = self._profile(Z1[j], Z2[j], scratch[:3], scratch[3:5])
            bar = weight
            if total is not None:  # d(sum of products) / dk_j is the sum of the others
                bar = np.multiply(k, -variance, out=scratch[5])
                bar += total
                bar *= weight
            gradient[:, j] = variance * np.vdot(bar, slope), variance * np.vdot(bar, k)
        return gradient

    def _profile(
        self, z1: Array, z2: Array, scratch: Array, slopes: Array | None
    ) -> tuple[Array, Array]:
        """One column's Matern kernel, and its derivative by log(length_scale) if asked for."""
        r, r2, decay = scratch
        np.subtract.outer(z1, z2, out=r)
        np.abs(r, out=r)  # r = |z - z'|
        np.multiply(r, r, out=r2)
        np.negative(r, out=decay)
        np.exp(decay, out=decay)  # exp(-r)
        profile = MATERN_PROFILES[self.nu]
        if slopes is None:
            return profile(r2, r, decay, None)
        slope, dk = slopes
        np.multiply(r2, -2.0, out=slope)  # dr^2 / dlog(length_scale)
        k, dk = profile(r2, r, decay, dk)
        slope *= dk
        return k, slope

    def check_columns(self, n_features: int) -> None:
        for name, words in (("length_scale", "length-scale"), ("variance", "variance")):
            value = getattr(self, name)
            if np.ndim(value) and np.size(value) != n_features:
                raise ValueError(
                    f"{type(self).__name__} has {np.size(value)} {words}s but X has "
                    f"{n_features} columns; give one {words}, or one per column"
                )


@dataclass(frozen=True)
class Additive(ByColumn):
    """k(x, x') = sum_j variance_j m(|x_j - x'_j| / length_scale_j): a function of each column.

    m is the Matern kernel of smoothness nu. A column of small variance has no influence.
    """

    degree: ClassVar = 1

    def diag(self, X: Array) -> Array:
        return np.full(len(X), self.variances(X.shape[1]).sum())

    def inverse_lengths(self, n_features: int) -> Array:
        return np.sqrt(self.variances(n_features)) / np.asarray(self.length_scale)


@dataclass(frozen=True)
class Pairwise(ByColumn):
    """k(x, x') = sum_{i < j} k_i k_j: a function of each pair of columns.

    k_j = variance_j m(|x_j - x'_j| / length_scale_j), and m is the Matern kernel of smoothness
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


def _blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Slices of rows that make blocks of about BLOCK elements."""
    step = max(1, BLOCK // max(1, n_columns))
    for start in range(0, n_rows, step):
        yield slice(start, min(n_rows, start + step))


def _scratch(n: int, Z1: Array, Z2: Array) -> Array:
    return np.empty((n, Z1.shape[1], Z2.shape[1]))
