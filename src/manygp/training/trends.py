"""The trend under the committee: what is tried, and what rows that are left out choose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.committee.layout import Layout
from manygp.findings import Alternative
from manygp.gp.likelihood import TrainingData, maximise
from manygp.gp.trend import Trend
from manygp.kernels.base import NoisyKernel, metric, split_noise
from manygp.kernels.catalogue import default_kernel
from manygp.rules.partition import balltree
from manygp.runtime.parallel import thread_map
from manygp.settings import SearchSpace
from manygp.training.builder import Builder
from manygp.training.fitting import Run, random_blocks
from manygp.training.recalibration import gains
from manygp.training.search import COMPARED_ROWS, Candidate, LeftOut, score
from manygp.trend import ridge as additive
from manygp.trend.linear import Form, fit_linear, rows_under
from manygp.trend.regressors import fit_boosted, fit_folds

# Rows of the committees that are compared, at most; of more, those of some regions take part, and
# what a trend leaves of rows that are left out stands for the trend.
COMPARED = 6000
REGIONS = 4
# Share of a region, in its middle, whose rows are left out: at its rim experts know too little.
MIDDLE = 0.5
# The kernels of these committees are fitted on this many blocks of this many rows.
KERNEL_BLOCKS = 2
KERNEL_ROWS = 500
# Relative improvement of the likelihood at which these fits stop.
TOLERANCE = 1e-4
# Their overlap, if it may be chosen.
OVERLAP = 1.0
# Rows of one of their experts.
POINTS = 200
# Fewer rows do not choose a trend, and fewer than these do not try boosted trees.
FEWEST_ROWS = 250
BOOSTED_ROWS = 1000
# The least variance that a trend is taken to leave of targets whose variance is 1.
SMALLEST_REST = 1e-12
# Standard errors of its gain that a richer trend must gain.
NEAR_TIE = 1.0


class Prospect(NamedTuple):
    """A trend that may lie under the committee.

    Attributes
    ----------
    name : str
    errors : ndarray of shape (n, t)
        What it leaves of the targets of the training rows, each left out: the kernels of experts
        are learned from this.
    ridge : Ridge or None
        The terms of a linear trend, whose coefficients depend on the experts.
    trend : Trend or None
        A trend that does not.
    """

    name: str
    errors: Array
    ridge: additive.Ridge | None = None
    trend: Trend | None = None

    @property
    def is_constant(self) -> bool:
        """Whether there is nothing but what experts see to."""
        return self.ridge is None and self.trend is None

    @property
    def mean_square(self) -> float:
        """The variance of what it leaves, which rounding keeps above zero."""
        return max(float(np.mean(self.errors**2)), SMALLEST_REST)

    def learned_from(self, data: TrainingData) -> TrainingData:
        """The rows from which kernels are learned."""
        return data._replace(Y=self.errors)

    def under(
        self,
        data: TrainingData,
        parts: Sequence[IndexArray],
        kernel: NoisyKernel,
        n_jobs: int | None,
    ) -> TrainingData:
        """The rows with the trend, as it is under experts that have a kernel."""
        trend = self.trend
        if self.ridge is not None:
            precision = self.ridge.penalty / self.mean_square
            form = Form(self.name, self.ridge.basis, precision)
            model = fit_linear(form, data, parts, kernel, n_jobs)
            trend = rows_under(model, data, parts, n_jobs)
        return data if trend is None else data._replace(Y=data.Y - trend.fitted, trend=trend)

    def some(self, rows: IndexArray) -> Prospect:
        """The same for some of the rows."""
        trend = None if self.trend is None else self.trend.some(rows)
        return self._replace(errors=self.errors[rows], trend=trend)


def prospects(trend: Any, data: TrainingData, seed: int, run: Run) -> Iterator[Prospect]:
    """The trends that a parameter leaves to choose from, the simplest first.

    Of those that "auto" names, a linear one that is hardly better than a simpler one, when rows
    are left out, is none.

    Parameters
    ----------
    trend : str or regressor
        The parameter of the estimator.
    data : TrainingData
    seed : int
    run : Run
    """
    auto = isinstance(trend, str) and trend == "auto"
    if auto or trend in ("constant", "none"):
        yield Prospect("constant", data.Y)
    if auto and len(data.X) < FEWEST_ROWS:
        return
    if auto or trend in ("linear", "additive"):
        yield from _linear_prospects(trend, data, seed)
    if trend == "boosted" or (auto and len(data.X) >= BOOSTED_ROWS):
        found = fit_boosted(data, seed, run.n_jobs)
        yield Prospect("boosted", data.Y - found.fitted, trend=found)
    elif not isinstance(trend, str):
        name = type(trend).__name__
        found = fit_folds(name, trend, data, seed, run.n_jobs)
        yield Prospect(name, data.Y - found.fitted, trend=found)


def _linear_prospects(trend: str, data: TrainingData, seed: int) -> Iterator[Prospect]:
    """Lines, splines, and splines with pairs: which of them, the parameter says."""
    rows = additive.choosing_rows(len(data.X), np.random.default_rng(seed))
    X, Y = data.X[rows], data.Y[rows]
    least = float(np.mean(Y**2)) if trend == "auto" else np.inf

    def prospect(name: str, ridge: additive.Ridge) -> Iterator[Prospect]:
        nonlocal least
        if ridge.mean_square < (1 - additive.WORTHWHILE) * least:
            least = ridge.mean_square
            yield Prospect(name, additive.left_out_errors(ridge, data.X, data.Y), ridge)

    if trend != "additive":
        yield from prospect("linear", additive.fit_lines(X, Y))
    if trend != "linear":
        splines = additive.fit_splines(X, Y)
        yield from prospect("additive", splines)
        yield from prospect("pairs", additive.fit_pairs(splines, X, Y))


def start_kernel(data: TrainingData, variance: float) -> NoisyKernel:
    """The default kernel for what is left of the targets."""
    return split_noise(default_kernel(data.X.shape[1], data.X.std(axis=0), variance))


def choose(
    found: Iterator[Prospect], data: TrainingData, space: SearchSpace, run: Run, deadline: float
) -> tuple[Prospect, list[Alternative]]:
    """The trend under which rows that are left out are predicted best, the simplest first.

    Committees of one shared kernel are compared, since they are quick to fit. What is alone is
    not compared. After the deadline no other trend is tried.
    """
    best = next(found)
    second = next(found, None) if perf_counter() < deadline else None
    if second is None:
        return best, []
    comparison = _Comparison.of(data, space, run)
    scores = {best.name: comparison.nll(best)}
    for prospect in chain([second], _in_time(found, deadline)):
        scores[prospect.name] = comparison.nll(prospect)
        if gains(scores[best.name], scores[prospect.name], NEAR_TIE):
            best = prospect
    return best, [
        Alternative("trend", name, float(nll.mean()), name == best.name)
        for name, nll in scores.items()
    ]


def _in_time(found: Iterator[Prospect], deadline: float) -> Iterator[Prospect]:
    """Those that are begun before the deadline: each is fitted when it is asked for."""
    while perf_counter() < deadline:
        prospect = next(found, None)
        if prospect is None:
            return
        yield prospect


def _middle(X: Array, region: IndexArray) -> IndexArray:
    """The rows of a region that are nearest to its mean."""
    distance = ((X[region] - X[region].mean(axis=0)) ** 2).sum(axis=1)
    return region[np.argsort(distance, kind="stable")[: int(MIDDLE * len(region))]]


class _Comparison(NamedTuple):
    """Rows on which trends are compared: `left_out` are some of `rows`.

    `is_whole` says whether these are all rows.
    """

    data: TrainingData
    rows: IndexArray
    left_out: IndexArray
    is_whole: bool
    space: SearchSpace
    run: Run

    @classmethod
    def of(cls, data: TrainingData, space: SearchSpace, run: Run) -> _Comparison:
        rng, n = np.random.default_rng(0), len(data.X)
        rows = middle = np.arange(n)
        if n > COMPARED:
            parts = balltree(data.X, n // (COMPARED // REGIONS), rng)
            regions = [parts[i] for i in rng.permutation(len(parts))[:REGIONS]]
            rows = np.sort(np.concatenate(regions))
            middle = np.concatenate([_middle(data.X, region) for region in regions])
        left_out = np.searchsorted(rows, np.sort(rng.permutation(middle)[:COMPARED_ROWS]))
        return cls(data.some(rows), rows, left_out, n <= COMPARED, space, run)

    def nll(self, prospect: Prospect) -> Array:
        """NLL of the rows that are left out, by the best rules: (N,)."""
        rng = np.random.default_rng(0)
        prospect = prospect.some(self.rows)
        learned = prospect.learned_from(self.data)
        kernel = start_kernel(learned, prospect.mean_square)
        blocks = random_blocks(len(self.rows), KERNEL_ROWS, rng)[:KERNEL_BLOCKS]
        likelihoods, free = [learned.likelihood(one) for one in blocks], np.zeros(kernel.n_free)
        with thread_map(self.run.n_jobs) as parallel_map:
            start = kernel.theta[None]
            kernel = maximise(likelihoods, kernel, free, start, TOLERANCE, parallel_map).kernel
        columns = metric(kernel, learned.X.shape[1])
        U = learned.X * columns
        parts = balltree(U, max(1, len(U) // POINTS), rng)
        data = learned
        if self.is_whole:
            data = prospect.under(self.data, parts, kernel, self.run.n_jobs)
        layout, starts = Layout.of(U, parts, columns), [kernel.theta[None]] * len(parts)
        builder = Builder(data, layout, kernel, starts, None, self.run)
        overlap = OVERLAP if len(self.space.overlaps) > 1 else self.space.overlaps[0]
        left_out = LeftOut(None, [self.left_out], unlearned=False)
        return score(builder, self.space, left_out, Candidate(np.inf, overlap)).best_nll
