"""The choice of the trend under all experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from time import perf_counter
from typing import Any

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.calibration import gains
from manygp.committee.committee import Layout, balltree
from manygp.fit_report import Alternative
from manygp.gp.marginal_likelihood import Objective, TrainingData, maximise
from manygp.gp.trend import SMALLEST_REST, TrendCandidate, TrendFactory
from manygp.kernels.base import NoisyKernel, metric
from manygp.runtime.parallel import thread_map
from manygp.settings import SearchSpace
from manygp.training.choose import COMMITTEE, Choice, LeftOut, evaluate
from manygp.training.experts import (
    Builder,
    Candidate,
    ExecutionContext,
    cluster_blocks,
    random_blocks,
    start_kernel,
)
from manygp.trend.boosted import regressor_factory
from manygp.trend.registry import families


@dataclass(frozen=True)
class TrendChoice:
    """Numbers of the choice among trends, and why they are what they are."""

    # Fewer rows do not choose a trend.
    fewest_rows: int = 250
    # Rows of the committees that are compared, at most; of more, some regions take part, and what
    # a trend leaves of rows that are left out stands for the trend.
    rows: int = 6000
    regions: int = 8
    region_rows: int = 1500
    # Share of a region, in its middle, whose rows are left out: at its rim experts know too
    # little.
    middle: float = 0.5
    # A kernel of these committees is fitted on this many blocks of random rows, another on as many
    # of clusters of rows near each other, since some see what others miss; the better one counts.
    kernel_blocks: int = 2
    clusters: int = 4
    cluster_rows: int = 125
    # Up to this many rows, which two of either blocks hold, one kernel is enough.
    one_kernel_rows: int = 1000
    # Relative improvement of the likelihood at which these fits stop.
    tolerance: float = 1e-4
    # Rows of one of their experts, and their overlap, if it may be chosen.
    points: int = 200
    overlap: float = 1.0
    # How many of them are queried about a row, if that may be chosen.
    nearest: int = 4
    # A trend that alone is worse than the best so far by this much NLL (twice the error) is not
    # worth a comparison: its steps would spoil what experts see.
    max_nll_deficit: float = float(np.log(2))
    # Where a simpler one of nested trends has lost, a richer one must have a lower NLL without
    # experts by this much (half the squared error): lines that lose say little of pairs.
    nested_gain: float = float(np.log(2) / 2)
    # Standard errors of its gain that a richer trend must gain.
    min_gain: float = 2.0


TREND = TrendChoice()


def trend_factories(
    trend: Any, data: TrainingData, seed: int, run: ExecutionContext
) -> Iterator[TrendFactory]:
    """The trends that the parameter leaves to choose from, the simplest first.

    Parameters
    ----------
    trend : str or regressor
        The parameter of the estimator.
    data : TrainingData
    seed : int
    run : ExecutionContext
    """
    is_learned = trend not in ("auto", "constant", "none")
    if is_learned and len(data.X) == 1:
        raise ValueError(f"trend={trend!r} cannot be learned from one row; set trend='none'")
    if not isinstance(trend, str):
        yield regressor_factory(trend, data, seed, run)
        return
    if not is_learned:
        yield TrendFactory(lambda _: TrendCandidate("constant", data.residuals))
    if trend != "auto" or len(data.X) >= TREND.fewest_rows:
        for family in families(trend):
            yield from family.factories(trend, data, seed, run)


def choose_trend(
    factories: Iterator[TrendFactory],
    data: TrainingData,
    space: SearchSpace,
    run: ExecutionContext,
    deadline: float,
) -> tuple[TrendCandidate, list[Alternative]]:
    """The trend under which rows that are left out are predicted best.

    Committees of one shared kernel are compared, since they are quick to fit. What is alone is
    not compared. After the deadline no other trend is tried.
    """
    first = next(factories).fit(None)
    second = next(factories, None) if perf_counter() < deadline else None
    if second is None:
        return first, []
    comparison = _TrendComparison.of(data, space, run)
    rows = None if comparison.is_whole else comparison.rows
    choice: Choice[TrendCandidate] = Choice(
        "trend", lambda one: comparison.nll(one, choice.nll.get(choice.value)), TREND.min_gain
    )
    choice.consider(first.name, first)
    fit_best, lost_nll = None, np.inf
    for factory in chain([second], _in_time(factories, deadline)):
        alone = 0.5 * np.log(2 * np.pi * np.e * max(factory.mean_square, SMALLEST_REST))
        limit = choice.best_nll + TREND.max_nll_deficit
        if alone > (lost_nll - TREND.nested_gain if factory.is_nested else limit):
            continue  # it cannot win
        candidate = factory.fit(rows)
        choice.consider(candidate.name, candidate)
        lost_nll = alone if choice.lost(candidate.name) else np.inf
        fit_best = factory.fit if choice.best is candidate else fit_best
    best = choice.best
    if not best.depends_on_experts and rows is not None and fit_best is not None:
        best = fit_best(None)  # it held for these rows alone
    return best, choice.alternatives


def _in_time(factories: Iterator[TrendFactory], deadline: float) -> Iterator[TrendFactory]:
    """Those that are made before the deadline: some take time."""
    while perf_counter() < deadline:
        factory = next(factories, None)
        if factory is None:
            return
        yield factory


@dataclass
class _TrendComparison:
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
    kinds : list of lists of index arrays
        Blocks of `rows` from which a kernel is learned, those that the first trend prefers first.
    space : SearchSpace
    run : ExecutionContext
    """

    data: TrainingData
    rows: IndexArray
    groups: list[IndexArray]
    is_whole: bool
    kinds: list[list[IndexArray]]
    space: SearchSpace
    run: ExecutionContext

    @classmethod
    def of(cls, data: TrainingData, space: SearchSpace, run: ExecutionContext) -> _TrendComparison:
        rng, n = np.random.default_rng(0), len(data.X)
        if n <= TREND.rows:
            left_out = np.sort(rng.permutation(n)[: COMMITTEE.rows])
            kinds = _kernel_blocks(data.X)
            return cls(data, np.arange(n), list(left_out[:, None]), True, kinds, space, run)
        parts = balltree(data.X, n // TREND.region_rows, rng)
        regions = [parts[i] for i in rng.permutation(len(parts))[: TREND.regions]]
        rows = np.sort(np.concatenate(regions))
        size = COMMITTEE.rows // len(regions)
        groups = [rng.permutation(_middle(data.X, region))[:size] for region in regions]
        places = [np.searchsorted(rows, np.sort(group)) for group in groups]
        kinds = _kernel_blocks(data.X[rows])
        return cls(data.some(rows), rows, places, False, kinds, space, run)

    def nll(self, candidate: TrendCandidate, best: Array | None) -> Array:
        """Mean NLL of each group of rows that are left out, by the better of the kernels: (G,).

        By the first of them alone where it is clearly better or worse than the best trend so far.
        """
        candidate = candidate.some(self.rows)
        first, *others = self.kinds
        nll = self._nll_by(candidate, self._kernel(candidate, first))
        is_clear = best is not None and any(
            gains(*pair, TREND.min_gain) for pair in ((best, nll), (nll, best))
        )
        for other in () if is_clear else others:
            own = self._nll_by(candidate, self._kernel(candidate, other))
            if own.mean() < nll.mean():
                nll = own
                if best is None:
                    self.kinds.reverse()
        return nll

    def _kernel(self, candidate: TrendCandidate, blocks: list[IndexArray]) -> NoisyKernel:
        """A kernel for all experts, learned from blocks of rows."""
        learned = self.data._replace(residuals=candidate.residuals)
        kernel = start_kernel(learned, candidate.mean_square)
        likelihoods = [it for one in blocks for it in learned.likelihoods(one)]
        objective = Objective(kernel, np.zeros(kernel.n_free), TREND.tolerance, self.run.optimizer)
        with thread_map(self.run.n_jobs) as parallel_map:
            return maximise(likelihoods, objective, kernel.theta[None], parallel_map).kernel

    def _nll_by(self, candidate: TrendCandidate, kernel: NoisyKernel) -> Array:
        """The same by experts that have a kernel."""
        columns = metric(kernel, self.data.X.shape[1])
        U = self.data.X * columns
        parts = balltree(U, max(1, len(U) // TREND.points), np.random.default_rng(0))
        data = self.data._replace(residuals=candidate.residuals)
        if self.is_whole:
            data = candidate.under(self.data, parts, kernel, self.run.n_jobs)
        layout, starts = Layout.of(data.X, parts, columns), [kernel.theta[None]] * len(parts)
        builder = Builder(data, layout, kernel, starts, None, self.run)
        one_overlap = len(self.space.overlaps) == 1
        overlap = self.space.overlaps[0] if one_overlap else TREND.overlap
        left_out = LeftOut(None, [np.concatenate(self.groups)], held_out=False)
        space = self.space
        if len(space.nearest) > 1:
            space = space._replace(nearest=(TREND.nearest,))
        losses = evaluate(builder, space, left_out, Candidate(np.inf, overlap)).best_nll
        ends = np.cumsum([len(group) for group in self.groups])[:-1]
        return np.array([group.mean() for group in np.split(losses, ends)])


def _kernel_blocks(X: Array) -> list[list[IndexArray]]:
    """Random rows of X to learn a kernel from, and clusters of rows near each other."""
    rng, n = np.random.default_rng(0), len(X)
    kinds = [random_blocks(n, TREND.clusters * TREND.cluster_rows, rng)]
    if n > TREND.one_kernel_rows:
        kinds.append(cluster_blocks(X, TREND.cluster_rows, TREND.clusters, rng))
    return [blocks[: TREND.kernel_blocks] for blocks in kinds]


def _middle(X: Array, region: IndexArray) -> IndexArray:
    """The rows of a region that are nearest to its mean."""
    distance = ((X[region] - X[region].mean(axis=0)) ** 2).sum(axis=1)
    return region[np.argsort(distance, kind="stable")[: int(TREND.middle * len(region))]]
