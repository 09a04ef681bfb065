"""Notices about odd training rows that can be fitted all the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from manygp.arrays import Array
from manygp.tables.training_rows import TrainingTable
from manygp.tables.values import as_words

# So few rows may agree by chance.
FEWEST_AGREEING_ROWS = 10
# The ranks of a column that is a function of the target have at least this correlation with its.
SAME_RANKS = 0.99999
# Rows that tell whether the target drifts, at least and at most; the last of them in time; and how
# many times larger than among others their squared errors are where it does.
DRIFT_ROWS = (100, 4000)
LAST_SHARE = 0.2
DRIFTED = 1.5


def drift_notices(table: TrainingTable, X: Array) -> list[str]:
    """A line for each date along which the target drifts; X (n, d) are the rows as numbers.

    Boosted trees predict the last fifth of the rows from those before, and a fifth of all from the
    others.
    """
    rng, notices = np.random.default_rng(0), []
    for name, values in table.rows.columns.items():
        known = np.flatnonzero(~np.isnat(values)) if values.dtype.kind == "M" else np.arange(0)
        if len(known) < DRIFT_ROWS[0] or np.ptp(table.y) == 0:
            continue
        rows = rng.permutation(known)[: DRIFT_ROWS[1]]
        in_time = rows[np.argsort(values[rows], kind="stable")]
        later, among = (_square_of_last(X[order], table.y[order]) for order in (in_time, rows))
        if later > DRIFTED * among:
            notices.append(
                f"the target {table.target!r} drifts along {name!r}: squared errors of the last "
                f"fifth of the rows, predicted from those before, are {later / among:.1f} times "
                f"those of rows among others; --time {name} makes scores and intervals hold for "
                "the future"
            )
    return notices


def _square_of_last(X: Array, y: Array) -> float:
    """Mean squared error of the last rows by boosted trees of the others."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    n_known = round((1 - LAST_SHARE) * len(y))
    with threadpool_limits(1):
        trees = HistGradientBoostingRegressor(early_stopping=False, random_state=0)
        guess = trees.fit(X[:n_known], y[:n_known]).predict(X[n_known:])
    return float(np.mean((y[n_known:] - guess) ** 2))


def notices_of(table: TrainingTable) -> list[str]:
    """A line for a constant target, and for each column that is odd."""
    codes = {name: _codes(values) for name, values in table.rows.columns.items()}
    notices = []
    if np.ptp(table.y) == 0:
        notices.append(f"the target {table.target!r} is constant: there is nothing to learn")
    for name, own in codes.items():
        if own.max() == 0:
            notices.append(f"column {name!r} is constant: it teaches nothing")
        elif _tells(table.rows.columns[name], own, table.y):
            notices.append(
                f"column {name!r} tells the target {table.target!r} exactly: is it known before? "
                "If not, leave it out"
            )
    first: dict[bytes, str] = {}
    for name, own in codes.items():
        # Codes of values that hardly repeat are all alike, and say nothing.
        repeats = 2 * own.max() < len(own)
        other = first.setdefault((own if repeats else table.rows.columns[name]).tobytes(), name)
        if other != name and own.max() > 0:
            notices.append(f"columns {other!r} and {name!r} say the same: one is enough")
    return notices


def _codes(values: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Which values of a column are equal: (n,), counted as they first appear."""
    keys = np.array(as_words(values)) if values.dtype.kind in "Ob" else values
    _, first, codes = np.unique(keys, return_index=True, return_inverse=True, equal_nan=True)
    return np.argsort(np.argsort(first))[codes]


def _tells(values: npt.NDArray[Any], codes: npt.NDArray[np.intp], y: Array) -> bool:
    """Whether a column and the target are functions of each other.

    Numbers are if they are in the same or the opposite order; categories, if all rows of each
    have one target, and most come more than once.
    """
    if len(y) < FEWEST_AGREEING_ROWS or np.ptp(y) == 0:
        return False
    if values.dtype.kind == "f":
        ranks = [np.unique(one, return_inverse=True)[1].astype(float) for one in (values, y)]
        return not np.isnan(values).any() and abs(np.corrcoef(ranks)[0, 1]) > SAME_RANKS
    mean = np.bincount(codes, y) / np.bincount(codes)
    return 2 * len(mean) <= len(y) and np.allclose(mean[codes], y, rtol=1e-12, atol=0.0)
