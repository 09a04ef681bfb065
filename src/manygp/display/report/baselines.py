"""Baselines that a model is compared with: a constant and a linear fit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manygp import answers
from manygp.answers import LEFT_OUT_ROWS, sample_rows
from manygp.arrays import Array
from manygp.display.report.rows import RowSet
from manygp.model import FittedModel

# Penalties of the linear fit, of columns with a standard deviation of 1.
PENALTIES = tuple(10.0 ** np.arange(-6.0, 7.0))
# Fewer rows say nothing about a straight line.
FEWEST_LINE_ROWS = 4


class Baseline(NamedTuple):
    """Predictions of a simple model: means (N,), and one std for all rows."""

    mean: Array
    std: float

    def times(self, size: float) -> Baseline:
        """The same in other units."""
        return Baseline(size * self.mean, size * self.std)


class Baselines(NamedTuple):
    """A linear fit, unless there are too few rows for it or X is not known, and a constant."""

    linear: Baseline | None
    constant: Baseline


def baselines_of(model: FittedModel, rows: RowSet) -> list[Baselines]:
    """The baselines for each target; training rows are left out in turn here too.

    They learn from the rows that are left out in turn, or from at most `LEFT_OUT_ROWS`.
    """
    X, Y = answers.training_rows(model)
    some = sample_rows(len(Y), LEFT_OUT_ROWS) if rows.places is None else rows.places
    X, Y = X[some], Y[some]
    center, width = X.mean(axis=0), np.where(np.ptp(X, axis=0) > 0, X.std(axis=0), 1.0)
    Z = (X - center) / width
    new = None if rows.left_out or rows.inputs is None else (rows.inputs.X - center) / width
    has_line = len(Y) >= FEWEST_LINE_ROWS and rows.inputs is not None
    baselines = []
    for y in Y.T:
        size = float(np.abs(y).max()) or 1.0  # squares may overflow
        constant = _constant(y / size, None if rows.left_out else len(rows))
        line = _line(Z, y / size, new).times(size) if has_line else None
        baselines.append(Baselines(line, constant.times(size)))
    return baselines


def _constant(y: Array, n_new: int | None) -> Baseline:
    """The mean of the other rows, or of all for so many new ones."""
    n = len(y)
    others = (y.sum() - y) / max(n - 1, 1) if n > 1 else y
    std = _size(y - others)
    return Baseline(others, std) if n_new is None else Baseline(np.full(n_new, y.mean()), std)


def _line(Z: Array, y: Array, new: Array | None) -> Baseline:
    """Ridge regression, whose penalty leave-one-out chooses, of rows left out or of new ones."""
    from sklearn.linear_model import RidgeCV

    fit = RidgeCV(PENALTIES, store_cv_results=True).fit(Z, y)
    squares = fit.cv_results_[:, PENALTIES.index(fit.alpha_)]
    error = np.sign(y - fit.predict(Z)) * np.sqrt(squares)  # of each row, left out
    std = _size(error)
    return Baseline(y - error, std) if new is None else Baseline(fit.predict(new), std)


def _size(error: Array) -> float:
    """The root mean square of errors, which a std must not be 0 as."""
    return float(np.sqrt(np.mean(error**2))) or 1e-12
