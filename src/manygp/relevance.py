"""Relevance of columns: their shares in the variance of y, by trend and by experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from manygp.arrays import Array
from manygp.committee.committee import Committee
from manygp.gp.marginal_likelihood import TrainingData

# Rows whose values are exchanged.
ROWS = 200


class Relevance(NamedTuple):
    """A row for each column, as shares of the variance of y, which sum to what is explained.

    Attributes
    ----------
    column : tuple of str
    trend : ndarray of shape (d,)
        What the trend explains by the column: the variance of the trend, dealt out by those of
        its terms. A pair of columns counts half for each.
    local : ndarray of shape (d,)
        What the experts explain beyond that, dealt out by how much their predictions change where
        a row takes its value in the column from another row, on average.
    """

    column: tuple[str, ...]
    trend: Array
    local: Array

    @property
    def total(self) -> Array:
        """Both together: (d,)."""
        return self.trend + self.local

    def summed(self, columns: tuple[str, ...], places: list[slice]) -> Relevance:
        """That of columns, each of which became those of these at a place."""
        trend, local = (np.array([one[own].sum() for own in places]) for one in self[1:])
        return Relevance(columns, trend, local)

    def __str__(self) -> str:
        width = max([6, *(len(name) for name in self.column)])
        lines = [f"{'column':<{width}} {'trend':>7} {'local':>7} {'total':>7}"]
        for j in np.argsort(-self.total, kind="stable").tolist():
            shares = (self.trend[j], self.local[j], self.total[j])
            lines.append(f"{self.column[j]:<{width}} " + " ".join(f"{x:>7.1%}" for x in shares))
        return "\n".join(lines)


def relevance_of(
    committee: Committee,
    columns: tuple[str, ...],
    explained: float,
    local: Callable[[Array], Array],
) -> Relevance:
    """The relevance of columns, where so much of the variance of y is explained in all.

    Parameters
    ----------
    committee : Committee
    columns : tuple of str
    explained : float
        Share of the variance of y, by rows that were left out.
    local : callable
        From scaled rows (N, d) to what is predicted for them beyond the trend, normalised: (N, t).
    """
    data = committee.training_data()
    explained = max(0.0, explained)
    trend = _by_trend(committee, len(columns)) * min(explained, trend_share(data))
    rng = np.random.default_rng(0)
    X = data.X[np.sort(rng.permutation(len(data.X))[:ROWS])]
    others, before = X[rng.permutation(len(X))], local(X)
    moved = np.zeros(len(columns))
    for j in np.flatnonzero(np.ptp(X, axis=0)):
        changed = X.copy()
        changed[:, j] = others[:, j]
        moved[j] = ((local(changed) - before) ** 2).mean()
    rest = max(0.0, explained - float(trend.sum()))
    return Relevance(columns, trend, rest * moved / max(float(moved.sum()), 1e-300))


def trend_share(data: TrainingData) -> float:
    """The variance of what the trend says about the training rows, as a share of that of y."""
    if data.trend is None:
        return 0.0
    whole = float(data.targets.var(axis=0).sum())
    return float(data.trend.fitted.var(axis=0).sum()) / max(whole, 1e-300)


def _by_trend(committee: Committee, d: int) -> Array:
    """The share of each column in the trend, which sum to one if there is a trend: (d,)."""
    if committee.trend is None:
        return np.zeros(d)
    importance: Array = committee.trend.model.importance
    return importance / max(float(importance.sum()), 1e-300)
