"""Inputs to [0, 1]^d, targets to mean 0 and standard deviation 1, and back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manygp.arrays import Array


class Scaling(NamedTuple):
    """An affine map of columns: scaled = (raw - shift) / scale, all of shape (columns,).

    It works in halves, since raw - shift and scale may overflow near the largest float.
    """

    shift: Array
    half_scale: Array

    @property
    def scale(self) -> Array:
        return 2 * self.half_scale

    def apply(self, raw: Array) -> Array:
        # A row too far from the others to be scaled becomes infinite, for the caller to refuse.
        with np.errstate(over="ignore"):
            scaled: Array = raw / 2
            scaled -= self.shift / 2
            scaled /= self.half_scale
        return scaled

    def undo(self, scaled: Array) -> Array:
        return scaled * self.scale + self.shift


def identity(n_columns: int) -> Scaling:
    """The map that changes nothing."""
    return Scaling(np.zeros(n_columns), np.full(n_columns, 0.5))


def to_unit_cube(X: Array) -> Scaling:
    """Each column of X of shape (n, d) to [0, 1]; a constant column to 0."""
    low, high = X.min(axis=0), X.max(axis=0)
    half_range = high / 2 - low / 2
    return Scaling(low, np.where(half_range > 0, half_range, 0.5))


def to_standard(Y: Array) -> Scaling:
    """Each column of Y of shape (n, t) to mean 0 and standard deviation 1.

    A constant column keeps its scale. Means and deviations are taken of Y / max|Y|, whose
    squares neither overflow nor underflow.
    """
    size = np.abs(Y).max(axis=0)
    size = np.where(size > 0, size, 1.0)
    unit = Y / size
    mean, std = unit.mean(axis=0), unit.std(axis=0)
    # The mean of equal numbers need not be equal to them: deviations of this size are rounding.
    varies = (Y.max(axis=0) > Y.min(axis=0)) & (std > 0)
    return Scaling(mean * size, np.where(varies, std * size / 2, 0.5))
