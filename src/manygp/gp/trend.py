"""Interface of trends: what a trend model says about rows, and what the choice of one compares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from manygp.arrays import AnyArray, Array, IndexArray

# The least variance that a trend is taken to leave of targets whose variance is 1.
SMALLEST_REST = 1e-12


class TrendAt(NamedTuple):
    """Values of a trend at N rows, in the units of the normalised targets.

    For rows that carry derivatives (see `manygp.dual`) all of these carry them too.

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

    def variance_with(self, terms: Any) -> Any:
        """The variance of the trend where experts leave this (N, r) of its terms: (N,)."""
        if terms is None:
            return self.spread
        if isinstance(terms, np.ndarray):
            return self.spread + np.einsum("ij,ij->i", terms, terms)
        return self.spread + (terms * terms).sum(axis=1)

    def whole_variance(self) -> Array:
        """The variance of the trend where no expert explains a part of it: (N,)."""
        variance: Array = self.variance_with(self.basis)
        return variance


class Kriging(NamedTuple):
    """Influence of each training row on the coefficients of a trend.

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


class TrendModel(ABC):
    """Interface of trend models.

    Attributes
    ----------
    name : str
        What reports call it.
    explained : float
        The variance of the normalised targets that is the trend's.
    importance : ndarray of shape (d,)
        The share of each column in it.
    """

    name: Any
    explained: Any
    importance: Any

    @abstractmethod
    def at(self, X: Any) -> TrendAt:
        """What it says about rows X (N, d), with derivatives where X carries them.

        Raises
        ------
        ValueError
            If X carries derivatives, and the trend has none.
        """

    def component(self, column: int, unit: Array) -> tuple[Array, Array, Array] | None:
        """What it says about one column alone, if it can tell.

        Parameters
        ----------
        column : int
        unit : ndarray of shape (g,)
            Values of the column, from 0 to 1 over the range of the training rows.

        Returns
        -------
        x, effect, std : ndarrays of shape (g,), (g, t), (g,)
            Scaled values of the column, the mean and its std.
        """
        return None

    def to_file(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """What a model file holds of it: plain values, and arrays named trend_..."""
        raise ValueError(
            f"a model file cannot hold trend={self.name}, whose model has no `to_file`; pickle "
            "keeps any model"
        )

    @classmethod
    def from_file(
        cls, record: dict[str, Any], arrays: dict[str, AnyArray], shape: tuple[int, int]
    ) -> Self:
        """The trend of a file, for d columns and t targets, checked: a ValueError if wrong."""
        raise ValueError(f"a trend cannot be read from a file: {cls.__name__} has no `from_file`")

    def on_rows(self, data: Any, parts: Sequence[IndexArray]) -> Trend | None:
        """What a file does not hold of the training rows, computed again; None if nothing."""
        return None

    def bytes_on_rows(self, n: int, largest: int) -> float:
        """Bytes that `on_rows` needs for n rows in parts of at most `largest`."""
        return 0.0

    def without_doubt(self) -> TrendModel:
        """The same, after so many rows that nothing about it is in doubt."""
        return self


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


@dataclass(frozen=True, eq=False)
class TrendCandidate:
    """A trend that may lie under the committee. This one is a constant: experts see to it.

    Attributes
    ----------
    name : str
    residuals : ndarray of shape (n, t)
        What it leaves of the targets of the training rows, each left out: the kernels of experts
        are learned from this.
    """

    name: str
    residuals: Array
    # Whether it has models, and whether its coefficients depend on the kernel that experts share.
    is_constant = True
    depends_on_experts = False

    @property
    def mean_square(self) -> float:
        """The variance of what it leaves, which rounding keeps above zero."""
        return max(float(np.mean(self.residuals**2)), SMALLEST_REST)

    def under(self, data: Any, parts: Sequence[IndexArray], kernel: Any, n_jobs: Any) -> Any:
        """The training rows with this trend under experts of these parts, who have a kernel."""
        trend = self.on(data, parts, kernel, n_jobs)
        if trend is None:
            return data
        return data._replace(residuals=data.residuals - trend.fitted, trend=trend)

    def on(self, data: Any, parts: Sequence[IndexArray], kernel: Any, n_jobs: Any) -> Trend | None:
        """The trend of the training rows, under these experts."""
        return None

    def some(self, rows: IndexArray) -> Self:
        """The same for some of the rows."""
        return replace(self, residuals=self.residuals[rows])


@dataclass(frozen=True, eq=False)
class FittedCandidate(TrendCandidate):
    """A trend that is fitted already, and does not depend on the experts."""

    trend: Trend
    is_constant = False

    def on(self, data: Any, parts: Sequence[IndexArray], kernel: Any, n_jobs: Any) -> Trend:
        return self.trend

    def some(self, rows: IndexArray) -> Self:
        return replace(super().some(rows), trend=self.trend.some(rows))


class TrendFactory(NamedTuple):
    """A trend that can be fitted.

    Attributes
    ----------
    fit : callable
        Given rows, the candidate need hold for these alone, which is quicker; None are all.
    mean_square : float
        What it leaves of the variance of rows that are left out, without experts; 0 if unknown.
    is_nested : bool
        Whether it contains the simpler trends that come before it.
    """

    fit: Callable[[IndexArray | None], TrendCandidate]
    mean_square: float = 0.0
    is_nested: bool = False


class TrendFamily(Protocol):
    """Interface of what a registered trend is made by: see `manygp.trend.registry`.

    `manygp.trend.custom.CustomTrend` is one for trends that do not depend on the experts.

    Attributes
    ----------
    model : type of TrendModel
        What a file is read by.
    names : tuple of str
        Names of its models.
    """

    model: type[TrendModel]
    names: tuple[str, ...]

    def factories(self, trend: str, data: Any, seed: int, run: Any) -> Iterator[TrendFactory]:
        """The trends that the parameter `trend` leaves to choose from, the simplest first.

        Parameters
        ----------
        trend : str
            A registered name, or "auto".
        data : TrainingData
        seed : int
        run : ExecutionContext
            With `n_jobs` and `progress`.
        """

    def seconds(self, trend: str, shape: tuple[int, int], speed: Any) -> dict[str, float]:
        """Seconds that each of its factories takes, by name, for rows and columns of a shape.

        `speed.evaluation(n)` are the seconds of a likelihood of n rows, `speed.gain` how much
        faster the workers are than one.
        """
