"""How the aggregated variance is corrected: learned from rows that are left out.

The correction is nothing, a scale, or a monotone curve. Ten folds of the rows that are left out
choose: each fold is corrected by what the others have taught, and scored as normal errors, since
the std is to be the root mean square error. Most folds decide, not their mean: a few large errors
would decide that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from manygp.arrays import AnyArray, Array, IndexArray
from manygp.conformity import Conformity
from manygp.findings import Alternative
from manygp.rules.calibration import Correction, VarianceCurve

# The smallest and largest scale of variances that is believed.
SCALES = (1e-6, 1e6)
# Rows are sorted by their variance into at most this many blocks of at least this many rows.
MOST_BLOCKS = 16
LEAST_ROWS = 50
# Each block is shrunk towards the scaled variance, as if this many rows had agreed with it.
PSEUDO_ROWS = 5.0
# A block's variance is at least this share of the scaled one.
SMALLEST_SHARE = 1e-6
# Numbers of groups of rows, by their std, whose errors may be spread differently; rows of a group.
GROUPS = (2, 4, 8)
GROUP_ROWS = 500
# The least difference of log std between them: less is rounding.
GROUP_STEP = 0.01
CROSS_FOLDS = 10
# Folds that the more flexible of two corrections must predict better.
MOST_FOLDS = 7
# Standard errors of its gain that the more flexible of two choices must gain.
NEAR_TIE = 0.5
# Where everything is unknown about some row that was left out, nowhere is farther.
MOST_UNKNOWN = 1 - 1e-6


class LeftOutErrors(NamedTuple):
    """Rows that were left out, and what an uncorrected committee predicted for them.

    Attributes
    ----------
    squares : ndarray of shape (t, N)
        Squared errors of each target.
    variance : ndarray of shape (N,)
        Predicted variances, noise included.
    alpha : ndarray of shape (N,)
        Known noise of the rows, which comes on top.
    unknown : ndarray of shape (N,)
        Share of the prior variance that the experts had left.
    """

    squares: Array
    variance: Array
    alpha: Array
    unknown: Array

    def some(self, rows: AnyArray) -> LeftOutErrors:
        """Some of the rows."""
        return LeftOutErrors(*(array[..., rows] for array in self))

    def conformity(self, curve: Correction) -> Conformity:
        """Errors in units of the std, with a correction, in groups if these predict better."""
        total = self.total(curve)
        return fit_conformity(np.sqrt(self.squares / total), np.sqrt(total))

    def nll(self, curve: VarianceCurve) -> float:
        """Mean negative log-likelihood of the normal distribution with a correction."""
        total = self.total(curve)
        return float(np.mean(0.5 * (np.log(2 * np.pi * total) + self.squares / total)))

    def row_nll(self, curve: Correction) -> Array:
        """That of each row, on average over targets: (N,)."""
        total = self.total(curve)
        found: Array = 0.5 * (np.log(2 * np.pi * total) + self.squares.mean(axis=0) / total)
        return found

    def total(self, curve: Correction) -> Array:
        """Corrected variances, known noise included: (N,)."""
        return curve(self.variance) * self.variance + self.alpha


def fit_scale(errors: LeftOutErrors) -> VarianceCurve:
    """The same factor for all variances."""
    squares = np.maximum(errors.squares - errors.alpha, 0.0).mean(axis=0)
    scale = float(np.clip((squares / errors.variance).mean(), *SCALES))
    return VarianceCurve((0.0,), (float(np.log(scale)),))


def fit_curve(errors: LeftOutErrors) -> VarianceCurve:
    """A monotone curve from predicted variances to squared errors, in blocks of rows."""
    scale = fit_scale(errors)
    n_blocks = min(MOST_BLOCKS, len(errors.variance) // LEAST_ROWS)
    if n_blocks < 2:
        return scale
    order = np.argsort(errors.variance, kind="stable")
    squares = np.maximum(errors.squares - errors.alpha, 0.0).mean(axis=0)
    blocks = np.array_split(order, n_blocks)
    rows = np.array([len(block) for block in blocks], dtype=float)
    predicted = np.array([errors.variance[block].mean() for block in blocks])
    observed = np.array([squares[block].mean() for block in blocks])
    scaled = predicted * np.exp(scale.log_factors[0])
    shrunk = (rows * observed + PSEUDO_ROWS * scaled) / (rows + PSEUDO_ROWS)
    monotone = isotonic_regression(shrunk, weights=rows + PSEUDO_ROWS).x
    monotone = np.maximum(monotone, SMALLEST_SHARE * scaled)
    # Between two points the corrected variance is a power of the predicted one: it never falls.
    places, kept = np.unique(np.log(predicted), return_index=True)
    factors = np.log(monotone / predicted)[kept]
    return VarianceCurve(tuple(places.tolist()), tuple(factors.tolist()))


FITS = {"none": lambda errors: VarianceCurve(), "scale": fit_scale, "curve": fit_curve}


def recalibrate(errors: LeftOutErrors, alternatives: list[Alternative]) -> VarianceCurve:
    """The correction that predicts rows best that have not taught it, simplest first.

    A correction under which all rows together are less likely than without is not applied.

    Parameters
    ----------
    errors : LeftOutErrors
    alternatives : list of Alternative
        What is compared is added to it.
    """
    n = len(errors.variance)
    folds = np.random.default_rng(0).permutation(n) % CROSS_FOLDS
    scores = {name: _cross_fitted(errors, folds, name) for name in FITS}
    final = {name: fit(errors) for name, fit in FITS.items()}
    chosen = "none"
    for name in ("scale", "curve"):
        is_better = np.sum(scores[name] < scores[chosen]) >= MOST_FOLDS
        if is_better and errors.nll(final[name]) <= errors.nll(final["none"]):
            chosen = name
    alternatives += [
        Alternative("correction", name, float(score.mean()), name == chosen)
        for name, score in scores.items()
    ]
    return final[chosen]


def fit_conformity(errors: Array, std: Array) -> Conformity:
    """How errors (t, N) of rows with the std (N,) are spread.

    Folds that have not taught it vote on the number of groups: the log score of Student-t
    distributions decides.
    """
    folds = np.random.default_rng(0).permutation(len(std)) % CROSS_FOLDS
    inside = [folds == fold for fold in range(CROSS_FOLDS)]

    def scores(n_groups: int) -> Array:
        return np.array([_log_score(errors, std, rows, n_groups) for rows in inside])

    chosen, best = 1, None
    for n_groups in [one for one in GROUPS if len(std) >= one * GROUP_ROWS]:
        best = scores(chosen) if best is None else best
        found = scores(n_groups)
        differ = np.diff(Conformity.of(errors, std, n_groups).places) > GROUP_STEP
        if np.sum(found < best) >= MOST_FOLDS and differ.all():
            chosen, best = n_groups, found
    return Conformity.of(errors, std, chosen)


def _log_score(errors: Array, std: Array, rows: AnyArray, n_groups: int) -> float:
    """Mean negative log density of some rows by what the others teach, in units of their std."""
    learned = Conformity.of(errors[:, ~rows], std[~rows], n_groups)
    widths = np.repeat(std[rows, None], len(errors), axis=1)
    found = learned.distribution(np.zeros_like(widths), widths, np.ones(len(errors)))
    return -float(np.mean(found.logpdf(errors[:, rows].T * widths)))


def gains(incumbent: Array, challenger: Array, near_tie: float = NEAR_TIE) -> bool:
    """Whether the mean NLL of rows falls by more than some standard errors of that gain."""
    gain = incumbent - challenger
    with np.errstate(over="ignore"):
        return bool(gain.mean() > near_tie * gain.std() / np.sqrt(len(gain)))


def _cross_fitted(errors: LeftOutErrors, folds: IndexArray, name: str) -> Array:
    """The NLL of each fold, corrected by the others: (CROSS_FOLDS,), or all rows if few."""
    if len(folds) < 2 * CROSS_FOLDS:
        return np.array([errors.nll(VarianceCurve())])
    inside = [folds == fold for fold in range(CROSS_FOLDS)]
    return np.array([errors.some(rows).nll(FITS[name](errors.some(~rows))) for rows in inside])


def farthest_known(errors: LeftOutErrors) -> float:
    """The largest share of the prior variance that was left of any row."""
    return float(min(errors.unknown.max(), MOST_UNKNOWN))
