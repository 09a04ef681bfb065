"""The trust region: where rows are looked for, how it changes, and which rows are best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from manygp.arrays import Array, IndexArray
from manygp.inputs import check_integer, check_number


@dataclass(frozen=True)
class RegionNumbers:
    """Numbers of the trust region, those of TuRBO (Eriksson et al., 2019) but for the last."""

    start: float = 0.8
    least: float = 0.5**7
    most: float = 1.6
    # Steps in a row that have found better rows, after which it grows.
    successes: int = 3
    # What better means, relative to the best value.
    improvement: float = 1e-3
    # Candidates for each column, and at most: the best ones go on downhill.
    by_column: int = 25
    candidates: int = 5000
    # Columns in which a candidate differs from the centre, on average.
    moved: int = 20
    # Steps downhill of each candidate that is chosen, by its path.
    steps: int = 30
    # Values are cut at so many quartile distances above the upper quartile.
    outlier: float = 3.0


REGION = RegionNumbers()


@dataclass(frozen=True)
class TrustRegion:
    """State of the search.

    Attributes
    ----------
    begin : int
        The first row since the last restart.
    length : float
        Side of the region, of the whole space's 1.
    successes, failures : int
        Steps in a row that have, or have not, found a better row.
    """

    begin: int = 0
    length: float = REGION.start
    successes: int = 0
    failures: int = 0

    def checked(self, n: int) -> TrustRegion:
        """The same, of a file of n rows that is not to be trusted."""
        for name in ("begin", "successes", "failures"):
            check_integer(name, getattr(self, name), 0)
        check_number("length", self.length, REGION.least)
        if self.begin > n or self.length > REGION.most:
            raise ValueError("the region begins behind the last row, or is too long")
        return self

    def after(self, scores: Array, n_known: int, n_initial: int, d: int) -> TrustRegion:
        """The region after new rows: `scores` (n, 2) are of all, `n_known` were there before."""
        if n_known < n_initial or n_known == len(scores):
            return self
        before, now = _least(scores[:n_known]), _least(scores[n_known:])
        margin = REGION.improvement * abs(before[1]) if np.isfinite(before[1]) else 0.0
        better = now[0] < before[0] or (now[0] == before[0] and now[1] < before[1] - margin)
        successes, failures = (self.successes + 1, 0) if better else (0, self.failures + 1)
        batch, length = len(scores) - n_known, self.length
        if successes == REGION.successes:
            length, successes = min(2 * length, REGION.most), 0
        elif failures >= np.ceil(max(4, d) / batch):
            length, failures = length / 2, 0
        if length < REGION.least:
            return TrustRegion(begin=self.begin + len(scores))
        return replace(self, length=length, successes=successes, failures=failures)


def score(y: Array, constraints: Array) -> Array:
    """Sums of what exceeds constraints, and values, (n, 2): the smallest pair is the best row.

    A row whose evaluation has failed has infinities.
    """
    violation = np.maximum(constraints, 0.0).sum(axis=1)
    failed = np.isnan(y) | np.isnan(violation)
    return np.where(failed[:, None], np.inf, np.column_stack([violation, y]))


def levelled(y: Array) -> Array:
    """log(1 + (y - min) / (median - min)) of values (n,), of which some may be NaN.

    Their order is the same, and low ones, which matter, are as far apart as high ones.
    """
    least = np.nanmin(y)
    unit = np.nanmedian(y) - least
    return np.log1p((y - least) / unit) if unit > 0 else y


def _least(scores: Array) -> tuple[float, float]:
    violation, value = scores[np.lexsort(scores.T[::-1])[0]].tolist()
    return violation, value


def initial_rows(n: int, d: int, rng: np.random.Generator) -> Array:
    """Units (n, d), evenly spread along each column (Latin hypercube)."""
    place = rng.permuted(np.tile(np.arange(n), (d, 1)), axis=1).T
    return (place + rng.random((n, d))) / n


def box(centre: Array, inverse: Array, length: float) -> Array:
    """Ends of the region around a row, (2, d).

    It is longer along columns of long length-scales; `inverse` (d,) is one over them.
    """
    lengths = 1 / np.maximum(inverse, 1e-6 * max(inverse.max(), 1e-300))
    sides = length * lengths / np.exp(np.log(lengths).mean())
    return np.clip([centre - sides / 2, centre + sides / 2], 0.0, 1.0)


def candidates(centre: Array, ends: Array, n: int, rng: np.random.Generator) -> Array:
    """Rows (n, d) between ends (2, d) that differ from the centre in some columns."""
    d, (low, high) = len(centre), ends
    moved = rng.random((n, d)) < min(1.0, REGION.moved / d)
    moved[np.arange(n), rng.integers(d, size=n)] = True
    return np.where(moved, low + (high - low) * rng.random((n, d)), centre)


def descended(rows: Array, ends: Array, slopes: Callable[[Array], tuple[Array, Array]]) -> Array:
    """Rows (p, d) moved downhill between ends (2, d), each by the path of its own number.

    `slopes` returns values (p,) of the paths, and their derivatives (p, d).
    """

    def total(flat: Array) -> tuple[float, Array]:
        value, slope = slopes(flat.reshape(rows.shape))
        return float(value.sum()) / unit, slope.ravel() / unit

    unit = max(float(np.abs(slopes(rows)[1]).max()), 1e-300)
    bounds = np.tile(ends, len(rows)).T
    options = {"maxiter": REGION.steps, "maxfun": 2 * REGION.steps}
    start = np.clip(rows, *ends).ravel()
    found = minimize(total, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return found.x.reshape(rows.shape)


def chosen(values: Array, constraints: Array) -> IndexArray:
    """Places of different candidates, each the best by one of the paths: at most (p,).

    Parameters
    ----------
    values : ndarray of shape (N, p)
        Of paths at the candidates.
    constraints : ndarray of shape (c, N, p)
        Paths of the constraints, which must be at most 0.
    """
    violation = np.zeros_like(values)
    if len(constraints):
        violation = np.maximum(constraints, 0.0).sum(axis=0)
    taken: list[int] = []
    free = np.ones(len(values), dtype=bool)
    for value, excess in zip(values.T, violation.T, strict=True):
        if not free.any():
            break
        order = np.where(free, excess, np.inf)
        best = np.flatnonzero(order == order.min())
        place = int(best[np.argmin(value[best])])
        free[place] = False
        taken.append(place)
    return np.array(taken, dtype=np.intp)
