"""Whether intervals hold as many rows as they should in every part of the data.

On average a model can be right that is too sure in one place and too careful in another. Groups of
test rows and the worst slab tell; each share stands beside what chance allows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from benchmarks.studies.answers import INTERVAL_LEVEL
from benchmarks.studies.peers_gp import shared_kernel
from manygp.arrays import Array, IndexArray
from manygp.kernels.base import metric
from manygp.metrics import N_BINS, conditional_coverage, worst_slab

# Columns whose quarters are groups, the most relevant ones.
N_RELEVANT = 3
# Groups of rows by a column, and by the prediction.
N_QUARTERS = 4
N_FIFTHS = 5
# What is measured, in the order of the tables: the ends of the names of the results.
MEASURES = {
    "worst_decile": "worst tenth by std",
    "worst_quarter": "worst quarter of a column",
    "lowest_fifth": "lowest fifth of predictions",
    "highest_fifth": "highest fifth of predictions",
    "worst_slab": "worst slab",
}


class AskedRows(NamedTuple):
    """Test rows, as groups are made of them.

    Attributes
    ----------
    X : ndarray of shape (m, d)
    relevant : ndarray of shape (m, r)
        Values of the r most relevant columns.
    mean, std : ndarrays of shape (m,)
        What the model predicts.
    """

    X: Array
    relevant: Array
    mean: Array
    std: Array


class Share(NamedTuple):
    """A share of rows that intervals hold, and bounds that chance keeps 99 times of 100."""

    share: float
    low: float
    high: float


def relevant_columns(X: Array, y: Array) -> IndexArray:
    """The columns of the shortest length-scales in units of their std, the shortest first.

    The kernel is the one that this library would share among its experts, whatever the model that
    is judged: all models have the same groups.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Training rows.
    y : ndarray of shape (n,)
        Their targets.

    Returns
    -------
    ndarray of shape (min(3, d),)
    """
    relevance = metric(shared_kernel(X, y, 0), X.shape[1]) * X.std(axis=0)
    return np.argsort(-relevance, kind="stable")[:N_RELEVANT]


def conditional_scores(held: Array, rows: AskedRows) -> dict[str, float | None]:
    """Coverage of the groups that `MEASURES` names, with bounds of chance.

    Parameters
    ----------
    held : ndarray of bool of shape (m,)
        Whether the 90% interval of a row holds its target.
    rows : AskedRows

    Returns
    -------
    dict
        For each measure its share by its name, and the bounds with ``_low`` and ``_high`` behind
        it; None where the rows are too few to find a slab.
    """
    fifths = group_shares(held, rows.mean, N_FIFTHS)
    shares = {
        "worst_decile": min(group_shares(held, rows.std, N_BINS)),
        "worst_quarter": _worst_quarter(held, rows.relevant.T),
        "lowest_fifth": fifths[0],
        "highest_fifth": fifths[-1],
        "worst_slab": _slab_share(held, rows),
    }
    found: dict[str, float | None] = {}
    for name in MEASURES:
        share = shares[name]
        found[name] = None if share is None else share.share
        found[f"{name}_low"] = None if share is None else share.low
        found[f"{name}_high"] = None if share is None else share.high
    return found


def group_shares(held: Array, values: Array, n_groups: int) -> list[Share]:
    """Coverage of groups of equal size, from the smallest values (m,) to the largest."""
    groups = np.empty(len(values), dtype=np.intp)
    for k, rows in enumerate(np.array_split(np.argsort(values, kind="stable"), n_groups)):
        groups[rows] = k
    found = conditional_coverage(held, groups, INTERVAL_LEVEL)
    ends = zip(found.share.tolist(), found.low.tolist(), found.high.tolist(), strict=True)
    return [Share(*one) for one in ends]


def _worst_quarter(held: Array, columns: Iterable[Array]) -> Share:
    """The least coverage among the quarters of some columns (m,)."""
    return min(share for column in columns for share in group_shares(held, column, N_QUARTERS))


def _slab_share(held: Array, rows: AskedRows) -> Share | None:
    """Coverage of the worst region by columns, std and prediction; None if there is none."""
    slab = worst_slab(np.column_stack([rows.X, rows.std, rows.mean]), held, INTERVAL_LEVEL)
    if slab is None:
        return None
    (share,), (low,), (high,) = (
        ends.tolist() for ends in (slab.coverage.share, slab.coverage.low, slab.coverage.high)
    )
    return Share(share, low, high)
