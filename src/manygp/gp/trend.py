"""What a trend says about rows: those that a committee is queried about, and the training rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from manygp.arrays import Array, IndexArray


class TrendAt(NamedTuple):
    """What a trend says about N rows, in the units of the normalised targets.

    Attributes
    ----------
    mean : ndarray of shape (N, t)
    spread : ndarray of shape (N,)
        Variance of the trend that no expert can reduce.
    beyond : ndarray of shape (N,)
        How far a row lies outside of the range of the training rows, in ranges; 0 inside.
    basis : ndarray of shape (N, r), or None
        The trend's terms, in units in which their coefficients are independent, each with the
        variance 1, given all training rows. An expert explains a part of them from its own rows.
    """

    mean: Array
    spread: Array
    beyond: Array
    basis: Array | None = None

    @classmethod
    def joined(cls, pieces: Sequence[TrendAt]) -> TrendAt:
        """What it says about several sets of rows as one."""
        if len(pieces) == 1:
            return pieces[0]
        columns = zip(*pieces, strict=True)
        joined: Any = [None if one[0] is None else np.concatenate(one) for one in columns]
        return cls(*joined)

    def some(self, rows: IndexArray) -> TrendAt:
        """The same of some of the rows."""
        basis = None if self.basis is None else self.basis[rows]
        return TrendAt(self.mean[rows], self.spread[rows], self.beyond[rows], basis)

    def whole_variance(self) -> Array:
        """The variance of the trend where no expert explains a part of it: (N,)."""
        if self.basis is None:
            return self.spread
        return self.spread + np.einsum("ij,ij->i", self.basis, self.basis)


class Kriging(NamedTuple):
    """How much each training row has moved the coefficients of a trend.

    With all rows but one, coefficients are those of all rows less `pull` times `step`, and their
    covariance, which is the identity, becomes I + pull pull' / curvature.

    Attributes
    ----------
    basis : ndarray of shape (n, r)
        The terms at the rows; see `TrendAt`.
    pull : ndarray of shape (n, r)
    step : ndarray of shape (n, t)
    curvature : ndarray of shape (n,)
    """

    basis: Array
    pull: Array
    step: Array
    curvature: Array


class TrendModel(Protocol):
    """What can be a trend."""

    @property
    def name(self) -> str:
        """What it is called in reports."""

    @property
    def explained(self) -> float:
        """The variance of the normalised targets that is the trend's."""

    def at(self, X: Array) -> TrendAt:
        """What it says about rows X (N, d)."""


class Trend(NamedTuple):
    """A trend, and what it says about the training rows.

    Attributes
    ----------
    model : TrendModel
    fitted : ndarray of shape (n, t)
        What it predicts for them; the experts learn what is left of the targets.
    shift : ndarray of shape (n, t)
        What is to be added to its mean where the row is left out.
    growth : ndarray of shape (n,)
        What is to be added to its variance there.
    kriging : Kriging or None
        Instead of these two, where experts explain a part of the trend.
    """

    model: TrendModel
    fitted: Array
    shift: Array
    growth: Array
    kriging: Kriging | None = None

    def some(self, rows: IndexArray) -> Trend:
        """The same of some of the rows."""
        kriging = self.kriging
        if kriging is not None:
            kriging = Kriging(*(array[rows] for array in kriging))
        return Trend(self.model, self.fitted[rows], self.shift[rows], self.growth[rows], kriging)

    def left_out(self, rows: IndexArray, unexplained: Array | None) -> tuple[Array, Array]:
        """Shift (N, t) of the mean and growth (N,) of the variance of rows that are left out.

        `unexplained` (N, r) is what an expert leaves of the trend's terms.
        """
        if self.kriging is None or unexplained is None:
            return self.shift[rows], self.growth[rows]
        along = np.einsum("ij,ij->i", unexplained, self.kriging.pull[rows])
        return -along[:, None] * self.kriging.step[rows], along**2 / self.kriging.curvature[rows]
