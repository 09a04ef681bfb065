"""The trend under the committee: what is tried, and what rows that are left out choose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.committee.layout import Layout
from manygp.findings import Alternative
from manygp.gp.likelihood import Objective, TrainingData, maximise
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
from manygp.trend.regressors import Folds, choose_boosting, fit_folds

# Rows of the committees that are compared, at most; of more, some regions take part, and what a
# trend leaves of rows that are left out stands for the trend.
COMPARED = 6000
REGIONS = 8
REGION_ROWS = 1500
# Share of a region, in its middle, whose rows are left out: at its rim experts know too little.
MIDDLE = 0.5
# A kernel of these committees is fitted on this many blocks of random rows, another on as many of
# clusters of rows near each other, since some see what others miss; the better one counts.
KERNEL_BLOCKS = 2
CLUSTERS = 4
CLUSTER_ROWS = 125
# Relative improvement of the likelihood at which these fits stop.
TOLERANCE = 1e-4
# Their overlap, if it may be chosen.
OVERLAP = 1.0
# Rows of one of their experts.
POINTS = 200
# Fewer rows do not choose a trend.
FEWEST_ROWS = 250
# From how many rows on, up to how many, boosted trees are tried: of more they take too long.
BOOSTED_ROWS = (1000, 400_000)
# Boosted trees that alone are worse than the best so far by this much NLL (twice the error) are
# not worth the folds: their steps would spoil what experts see.
HOPELESS = float(np.log(2))
# Lines, splines and pairs: where a simpler one of them has lost, a richer one must have a lower
# NLL without experts by this much (half the squared error): lines that lose say little of pairs.
RICHER = float(np.log(2) / 2)
# The least variance that a trend is taken to leave of targets whose variance is 1.
SMALLEST_REST = 1e-12
# Standard errors of its gain that a richer trend must gain.
NEAR_TIE = 2.0


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


class Offer(NamedTuple):
    """A trend that can be fitted.

    Attributes
    ----------
    fit : callable
        Given rows, the prospect need hold for these alone, which is quicker; None are all.
    nll : float
        Its NLL without experts, if that tells whether it may pay.
    is_nested : bool
        Whether it contains the simpler trends that are offered before it.
    """

    fit: Callable[[IndexArray | None], Prospect]
    nll: float = -np.inf
    is_nested: bool = False

    def may_pay(self, best_nll: float, lost_nll: float) -> bool:
        """Whether it is worth trying.

        Parameters
        ----------
        best_nll : float
            That of the best so far, with experts.
        lost_nll : float
            That of the last trend that this one contains, without experts, if it was worse than
            the best; else infinity.
        """
        return self.nll <= (lost_nll - RICHER if self.is_nested else best_nll + HOPELESS)


def offers(trend: Any, data: TrainingData, seed: int, run: Run) -> Iterator[Offer]:
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
    fewest, most = BOOSTED_ROWS
    folds = partial(Folds.of, len(data.X), seed)
    if auto or trend in ("constant", "none"):
        yield Offer(lambda _: Prospect("constant", data.Y))
    if auto and len(data.X) < FEWEST_ROWS:
        return
    if auto or trend in ("linear", "additive"):
        yield from _linear_offers(trend, data, seed, run)
    if trend == "boosted" or (auto and fewest <= len(data.X) <= most):
        run.progress.begin(trend_phase("boosted"))
        boosting = choose_boosting(data, seed, run.n_jobs)
        yield Offer(
            lambda rows: _of_folds("boosted", boosting.regressors, data, folds(rows), run),
            _normal_nll(boosting.mean_square),
        )
    elif not isinstance(trend, str):
        regressors = (trend,) * data.Y.shape[1]
        name = type(trend).__name__
        run.progress.begin(trend_phase(name))
        yield Offer(lambda rows: _of_folds(name, regressors, data, folds(rows), run))


def _normal_nll(mean_square: float) -> float:
    """The NLL of normal errors with this mean square."""
    return float(0.5 * np.log(2 * np.pi * np.e * max(mean_square, SMALLEST_REST)))


def _of_folds(
    name: str, regressors: tuple[Any, ...], data: TrainingData, folds: Folds, run: Run
) -> Prospect:
    found = fit_folds(name, regressors, data, folds, run.n_jobs)
    return Prospect(name, data.Y - found.fitted, trend=found)


def trend_phase(name: str) -> str:
    """What progress calls the phase in which a trend is fitted, and compared with the best."""
    return f"{name} trend"


def _linear_offers(trend: str, data: TrainingData, seed: int, run: Run) -> Iterator[Offer]:
    """Lines, splines, and splines with pairs: which of them, the parameter says."""
    rows = additive.choosing_rows(len(data.X), np.random.default_rng(seed))
    X, Y = data.X[rows], data.Y[rows]
    least = float(np.mean(Y**2)) if trend == "auto" else np.inf

    def offer(name: str, ridge: additive.Ridge) -> Iterator[Offer]:
        nonlocal least
        if ridge.mean_square < (1 - additive.WORTHWHILE) * least:
            least = ridge.mean_square
            yield Offer(
                lambda _: Prospect(name, additive.left_out_errors(ridge, data.X, data.Y), ridge),
                _normal_nll(ridge.mean_square),
                is_nested=True,
            )

    if trend != "additive":
        run.progress.begin(trend_phase("linear"))
        yield from offer("linear", additive.fit_lines(X, Y))
    if trend != "linear":
        run.progress.begin(trend_phase("additive"))
        splines = additive.fit_splines(X, Y)
        yield from offer("additive", splines)
        run.progress.begin(trend_phase("pairs"))
        yield from offer("pairs", additive.fit_pairs(splines, X, Y))


def start_kernel(data: TrainingData, variance: float) -> NoisyKernel:
    """The default kernel for what is left of the targets."""
    return split_noise(default_kernel(data.X.shape[1], data.X.std(axis=0), variance))


def choose(
    found: Iterator[Offer], data: TrainingData, space: SearchSpace, run: Run, deadline: float
) -> tuple[Prospect, list[Alternative]]:
    """The trend under which rows that are left out are predicted best, the simplest first.

    Committees of one shared kernel are compared, since they are quick to fit. What is alone is
    not compared. After the deadline no other trend is tried.
    """
    best = next(found).fit(None)
    second = next(found, None) if perf_counter() < deadline else None
    if second is None:
        return best, []
    comparison = _Comparison.of(data, space, run)
    rows = None if comparison.is_whole else comparison.rows
    scores, fit_best, lost_nll = {best.name: comparison.nll(best)}, None, np.inf
    for offer in chain([second], _in_time(found, deadline)):
        if not offer.may_pay(float(scores[best.name].mean()), lost_nll):
            continue
        prospect = offer.fit(rows)
        before, after = scores[best.name], comparison.nll(prospect)
        scores[prospect.name] = after
        lost_nll = offer.nll if gains(after, before, NEAR_TIE) else np.inf
        if gains(before, after, NEAR_TIE):
            best, fit_best = prospect, offer.fit
    if best.trend is not None and rows is not None and fit_best is not None:
        best = fit_best(None)  # it held for these rows alone
    return best, [
        Alternative("trend", name, float(nll.mean()), name == best.name)
        for name, nll in scores.items()
    ]


def _in_time(found: Iterator[Offer], deadline: float) -> Iterator[Offer]:
    """Those that are made before the deadline: some take time."""
    while perf_counter() < deadline:
        offer = next(found, None)
        if offer is None:
            return
        yield offer


def _clusters(X: Array, rng: np.random.Generator) -> list[IndexArray]:
    """Blocks of rows, each of some clusters."""
    parts = balltree(X, max(1, len(X) // CLUSTER_ROWS), rng)
    order = rng.permutation(len(parts))[: KERNEL_BLOCKS * CLUSTERS]
    return [
        np.sort(np.concatenate([parts[i] for i in order[start : start + CLUSTERS]]))
        for start in range(0, len(order), CLUSTERS)
    ]


def _middle(X: Array, region: IndexArray) -> IndexArray:
    """The rows of a region that are nearest to its mean."""
    distance = ((X[region] - X[region].mean(axis=0)) ** 2).sum(axis=1)
    return region[np.argsort(distance, kind="stable")[: int(MIDDLE * len(region))]]


class _Comparison(NamedTuple):
    """Rows on which trends are compared.

    Attributes
    ----------
    data : TrainingData
    rows : ndarray of shape (m,)
        Those of all training rows that take part.
    groups : list of index arrays
        Those of `rows` that are left out. Rows of a region err together: each is one group; if
        all rows take part, each row is.
    is_whole : bool
        Whether all rows take part.
    space : SearchSpace
    run : Run
    """

    data: TrainingData
    rows: IndexArray
    groups: list[IndexArray]
    is_whole: bool
    space: SearchSpace
    run: Run

    @classmethod
    def of(cls, data: TrainingData, space: SearchSpace, run: Run) -> _Comparison:
        rng, n = np.random.default_rng(0), len(data.X)
        if n <= COMPARED:
            left_out = np.sort(rng.permutation(n)[:COMPARED_ROWS])
            return cls(data, np.arange(n), list(left_out[:, None]), True, space, run)
        parts = balltree(data.X, n // REGION_ROWS, rng)
        regions = [parts[i] for i in rng.permutation(len(parts))[:REGIONS]]
        rows = np.sort(np.concatenate(regions))
        size = COMPARED_ROWS // len(regions)
        groups = [rng.permutation(_middle(data.X, region))[:size] for region in regions]
        places = [np.searchsorted(rows, np.sort(group)) for group in groups]
        return cls(data.some(rows), rows, places, False, space, run)

    def nll(self, prospect: Prospect) -> Array:
        """Mean NLL of each group of rows that are left out, by the best rules: (G,)."""
        rng = np.random.default_rng(0)
        prospect = prospect.some(self.rows)
        learned = prospect.learned_from(self.data)
        random = random_blocks(len(self.rows), CLUSTERS * CLUSTER_ROWS, rng)[:KERNEL_BLOCKS]

        def nll_by(blocks: list[IndexArray]) -> Array:
            return self._nll_by(prospect, self._kernel(learned, blocks, prospect.mean_square))

        with thread_map(self.run.n_jobs) as parallel_map:
            found = list(parallel_map(nll_by, (random, _clusters(learned.X, rng))))
        return min(found, key=lambda nll: float(nll.mean()))

    def _kernel(
        self, learned: TrainingData, blocks: list[IndexArray], variance: float
    ) -> NoisyKernel:
        """A kernel for all experts, learned from blocks of rows."""
        kernel = start_kernel(learned, variance)
        likelihoods, free = [learned.likelihood(one) for one in blocks], np.zeros(kernel.n_free)
        objective = Objective(kernel, free, TOLERANCE, self.run.optimizer)
        return maximise(likelihoods, objective, kernel.theta[None]).kernel

    def _nll_by(self, prospect: Prospect, kernel: NoisyKernel) -> Array:
        """The same by experts that have a kernel."""
        data = prospect.learned_from(self.data)
        columns = metric(kernel, data.X.shape[1])
        U = data.X * columns
        parts = balltree(U, max(1, len(U) // POINTS), np.random.default_rng(0))
        if self.is_whole:
            data = prospect.under(self.data, parts, kernel, 1)
        layout, starts = Layout.of(data.X, parts, columns), [kernel.theta[None]] * len(parts)
        builder = Builder(data, layout, kernel, starts, None, self.run._replace(n_jobs=1))
        overlap = OVERLAP if len(self.space.overlaps) > 1 else self.space.overlaps[0]
        left_out = LeftOut(None, [np.concatenate(self.groups)], unlearned=False)
        found = score(builder, self.space, left_out, Candidate(np.inf, overlap)).best_nll
        ends = np.cumsum([len(group) for group in self.groups])[:-1]
        return np.array([group.mean() for group in np.split(found, ends)])
