"""One way to choose: candidates are evaluated on rows that are left out, the simplest first.

Trends, shared kernels, noise, shrinkages and overlaps are all chosen by `Choice`; `evaluate`
scores a committee, and all rules by which it may be queried, on rows that experts shall not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.calibration import (
    CORRECTION,
    LeftOutErrors,
    curve_of,
    farthest_known,
    gains,
    normal_nll,
    recalibrate,
)
from manygp.committee.committee import QUERYING, Committee, Layout, Query
from manygp.fit_report import Alternative, CalibrationReport, Plan
from manygp.gp.marginal_likelihood import Objective, TrainingData, maximise
from manygp.gp.trend import TrendCandidate
from manygp.kernels.base import NoisyKernel, metric
from manygp.noise import LocalNoise
from manygp.rules import ExpertPredictions, PredictionRules, VarianceCurve
from manygp.runtime.parallel import single_threaded_blas
from manygp.settings import FEWEST_NEAREST, SearchSpace, Settings
from manygp.training.experts import (
    FITTING,
    Builder,
    Candidate,
    ExecutionContext,
    affordable,
    compared_committees,
    fit_shared,
    has_no_noise,
    near_blocks,
    random_blocks,
    shared_objective,
    some_overlap,
    starts_of,
    with_noise_of,
    work_of,
)

T = TypeVar("T")


@dataclass(frozen=True)
class CommitteeChoice:
    """Numbers of the choice among committees, and why they are what they are."""

    # Rows that are left out, at most: a standard error of .02 nats for a std of one nat.
    rows: int = 2000
    # Experts that take part, at most; of more, those of some regions, so that cost does not grow.
    experts: int = 64
    regions: int = 8
    # So few experts may all be queried. (Twelve of a hundred gained .008 NLL on Kin40K, and
    # take half as long again.)
    few_experts: int = 12
    # Experts learn their hyperparameters without the rows of the fold that is left out.
    folds: int = 4
    # Rows that choose how many experts leave a tolerated weight to the others.
    tolerance_rows: int = 500
    # Rows that are left out to correct the variance of the chosen one, at most.
    learned_rows: int = 20_000


COMMITTEE = CommitteeChoice()
# What the report calls the fields of the rules, and what it shows of their values.
SHOWN_FIELDS = {"temperature": "weighting", "strength": "calibration", "nearest": "nearest"}


class Choice(Generic[T]):
    """A choice among candidates, which are considered from the simplest on.

    Parameters
    ----------
    parameter : str
        What the report calls it.
    evaluate : callable
        From a candidate to the NLL of each row, or group of rows, that was left out.
    min_gain : float
        Standard errors of its gain by which a candidate must be better than the best before.
    deadline : float
        After it no other candidate is considered, in the time of `perf_counter`.
    """

    def __init__(
        self,
        parameter: str,
        evaluate: Callable[[T], Array],
        min_gain: float = 0.5,
        deadline: float = np.inf,
    ) -> None:
        self.parameter, self.evaluate = parameter, evaluate
        self.min_gain, self.deadline = min_gain, deadline
        self.nll: dict[Any, Array] = {}
        self.value: Any = None
        self.best: T

    def consider(self, value: Any, candidate: T) -> None:
        """Take a candidate, which the report calls `value`, if it is the best so far."""
        if not self.nll:
            self.nll[value], self.value, self.best = self.evaluate(candidate), value, candidate
        elif perf_counter() < self.deadline:
            before, self.nll[value] = self.nll[self.value], self.evaluate(candidate)
            if gains(before - CORRECTION.rounding, self.nll[value], self.min_gain):
                self.value, self.best = value, candidate

    def lost(self, value: Any, least: float | None = None) -> bool:
        """Whether a candidate is clearly worse than the best, by `least` standard errors."""
        least = self.min_gain if least is None else least
        return gains(self.nll[value], self.nll[self.value], least)

    @property
    def best_nll(self) -> float:
        """Mean NLL of the best."""
        return float(self.nll[self.value].mean())

    @property
    def alternatives(self) -> list[Alternative]:
        """All that were considered, if there was anything to choose."""
        if len(self.nll) < 2:
            return []
        return [
            Alternative(self.parameter, value, float(nll.mean()), value == self.value)
            for value, nll in self.nll.items()
        ]


class LeftOut(NamedTuple):
    """The rows that are left out, in folds, and the experts that take part.

    Attributes
    ----------
    members : ndarray of int, or None
        The parts whose experts take part; None for all.
    folds : list of index arrays
    held_out : bool
        Whether experts learn their hyperparameters without the fold.
    """

    members: IndexArray | None
    folds: list[IndexArray]
    held_out: bool


class Scores(NamedTuple):
    """NLL of each row (R, N) by each of R rules."""

    rules: list[PredictionRules]
    nll: Array

    @property
    def best(self) -> int:
        """The first of those that are equal but for rounding.

        A query costs as much as it asks experts: more of them must gain half a standard error.
        """
        mean, best = self.nll.mean(axis=1), -1
        for count in dict.fromkeys(one.nearest for one in self.rules):
            own = np.array([one.nearest == count for one in self.rules])
            least = mean[own].min()
            place = int(np.argmax(own & (mean <= least + 1e-9)))
            if best < 0 or gains(self.nll[best], self.nll[place]):
                best = place
        return best

    @property
    def best_nll(self) -> Array:
        """The NLL of each row by the best rules: (N,)."""
        nll: Array = self.nll[self.best]
        return nll


def evaluate(
    builder: Builder, space: SearchSpace, left_out: LeftOut, candidate: Candidate
) -> Scores:
    """Leave rows out in turn, and score all rules of the search space on them."""
    folds, held_out = left_out.folds, left_out.held_out
    if candidate.shrinkage == np.inf:  # the shared kernel hardly depends on any one row
        folds, held_out = [np.concatenate(folds)], False
    members = left_out.members
    rules = all_rules(space, len(builder.layout.parts if members is None else members))
    widest = None if rules[-1].nearest is None else max(one.nearest or 0 for one in rules)

    def answers(records: list[ExpertPredictions]) -> tuple[Array, Array]:
        combined = [
            one.combine([record.first_experts(one.nearest) for record in records]) for one in rules
        ]
        means, variances, noises = zip(*combined, strict=True)
        return np.array(means), np.array(variances) + np.array(noises)

    squares, variances = [], []
    for rows in folds:
        committee = builder.committee(*candidate, members, rows if held_out else None)
        query = Query(builder.data.X[rows], widest, rows, covariances=space.needs.covariances)
        means, variance = committee.map_blocks(answers, query, builder.run.n_jobs)
        squares.append((builder.data.targets_of(rows).T - means) ** 2)
        variances.append(variance + builder.data.alpha[rows])
    square = np.concatenate(squares, axis=-1).mean(axis=1)  # (R, N)
    variance = np.concatenate(variances, axis=-1)
    if space.recalibrate:
        variance = _corrected(square, variance)
    return Scores(rules, normal_nll(square, variance))


def _corrected(squares: Array, variances: Array) -> Array:
    """Variances (R, N) on the curve that squared errors (R, N) of the same rules teach.

    What is chosen will be corrected too. With one scale for each of the rules, experts without
    overlap could win whose errors are larger: on 4,000 rows of Protein by .01, and with test rows
    they lost .09.
    """
    pairs = zip(squares, variances, strict=True)
    return np.array([curve_of(square, one)(one) * one for square, one in pairs])


def all_rules(space: SearchSpace, n_experts: int) -> list[PredictionRules]:
    """All combinations of rules, for a committee of some experts."""
    nearest = space.nearest
    if len(nearest) > 1 and n_experts <= COMMITTEE.few_experts:
        nearest = (*nearest, n_experts)
    counts = dict.fromkeys(None if k is None else min(k, n_experts) for k in nearest)
    return [
        PredictionRules(weighting, calibration, space.aggregation, nearest=k)
        for weighting, calibration, k in product(space.weightings, space.calibrations, counts)
    ]


def is_fixed(space: SearchSpace) -> bool:
    """Whether nothing is left to choose."""
    choices = (
        space.shrinkages, space.overlaps, space.weightings, space.calibrations, space.nearest,
    )  # fmt: skip
    chosen = all(len(choice) == 1 for choice in choices)
    return chosen and not space.recalibrate and space.tolerance is None


def draw_left_out(builder: Builder, rng: np.random.Generator) -> LeftOut:
    """Draw the rows to leave out.

    Each fold is a part of an expert's rows only, so that it can learn from the others. Experts
    with next to no rows have no folds. In a large committee the experts of some regions take
    part, so that the cost does not grow with n.
    """
    parts, layout, folds = builder.layout.parts, builder.layout, COMMITTEE.folds
    members = np.arange(len(parts))
    if len(parts) > COMMITTEE.experts:
        centres = layout.centres[rng.choice(len(parts), COMMITTEE.regions, replace=False)]
        near = COMMITTEE.experts // COMMITTEE.regions
        members = np.unique(layout.tree.query(centres, k=near)[1])
    own = [parts[m] for m in members.tolist()]
    shuffled = [rng.permutation(part) for part in own if len(part) > folds]
    if not shuffled:
        return LeftOut(None, [builder.some_rows(COMMITTEE.rows, rng)], held_out=False)
    drawn = [np.concatenate([rows[f::folds] for rows in shuffled]) for f in range(folds)]
    n_folds = min(folds, -(-COMMITTEE.rows // len(drawn[0])))
    most = COMMITTEE.rows // n_folds
    drawn = [np.sort(rng.permutation(fold)[:most]) for fold in drawn[:n_folds]]
    return LeftOut(members, drawn, held_out=True)


# Shared kernels.


class KernelChoice(NamedTuple):
    """The choice of the kernel that experts share, and of the parts of the rows in its metric."""

    data: TrainingData
    trend: TrendCandidate
    settings: Settings
    space: SearchSpace
    plan: Plan
    rng: np.random.Generator
    run: ExecutionContext

    @property
    def n_parts(self) -> int:
        return max(1, len(self.data.X) // self.plan.points_per_expert)

    @property
    def is_shared(self) -> bool:
        """Whether experts have a kernel in common, or the trend needs one."""
        shares = self.n_parts > 1 and self.space.shrinkages[0] != 0.0
        return shares or self.trend.depends_on_experts

    def choose(self, start: NoisyKernel, deadline: float) -> tuple[Builder, list[Alternative]]:
        """The builder with the best shared kernel, and how kernels were compared.

        The first is of random rows, the second of rows near each other. Parts are made in the
        metric of the shared kernel, if there is one. Where the likelihood chooses no noise at all,
        as near rows with different targets or a few huge ones make it, some noise is tried too.
        """
        (n, d), rows, rng = self.data.X.shape, self.plan.shared_rows, self.rng
        shared, kernel = self.is_shared, start
        self.run.progress.begin("kernel")
        if shared:
            kernel = self._fitted(start, random_blocks(n, rows, rng))
        layout = self._layout(metric(kernel, d) if shared else np.ones(d))
        if layout.is_single and not shared and n > QUERYING.many_rows:  # as a warm start
            kernel = self._fitted(start, random_blocks(n, rows, rng), limit=False)
        builder = self._builder(kernel, layout)
        compares = self.plan.kernels == 2 and not layout.is_single
        if not compares or perf_counter() >= deadline:
            return builder, []
        best, compared = builder, list[Alternative]()
        if n >= 2 * rows:
            self.run.progress.begin("near kernel")
            near = self._fitted(kernel, near_blocks(self.data.X, kernel, rows, rng), is_warm=True)
            builders = {"far": builder, "near": self._builder(near, layout)}
            choice = self._compared("kernel", builders, rng)
            best, compared = choice.best, choice.alternatives
        if perf_counter() < deadline and self.space.standard and has_no_noise(best.kernel):
            choice = self._with_some_noise(best)
            best, compared = choice.best, [*compared, *choice.alternatives]
        if best is not builder:
            best = self._builder(best.kernel, self._layout(metric(best.kernel, d)))
        return best, compared

    def _with_some_noise(self, best: Builder) -> Choice[Builder]:
        """The best builder, which has no noise, beside one that has some."""
        (rng,) = self.rng.spawn(1)  # what is not taken changes nothing
        n, rows = len(self.data.X), self.plan.shared_rows
        near = near_blocks(self.data.X, best.kernel, rows, rng) if n >= 2 * rows else None
        blocks = near or random_blocks(n, rows, rng)
        floor = FITTING.noise_floor * self.trend.mean_square * self.data.mean_weight
        noisy = self._fitted(with_noise_of(best.kernel, floor), blocks, is_warm=True)
        builders = {"free": best, "floor": self._builder(noisy, best.layout)}
        return self._compared("noise", builders, rng)

    def _compared(
        self, parameter: str, builders: dict[str, Builder], rng: np.random.Generator
    ) -> Choice[Builder]:
        """Builders of the same parts, compared by committees that share their kernel."""
        left_out = draw_left_out(next(iter(builders.values())), rng)
        candidate = Candidate(np.inf, self.space.overlaps[0])
        choice: Choice[Builder] = Choice(
            parameter, lambda one: evaluate(one, self.space, left_out, candidate).best_nll
        )
        for name, builder in builders.items():
            choice.consider(name, builder)
        return choice

    def _starts(self, kernel: NoisyKernel) -> Array:
        return starts_of(kernel, self.settings.n_restarts_optimizer, self.rng)

    def _fitted(
        self,
        kernel: NoisyKernel,
        blocks: list[IndexArray],
        *,
        is_warm: bool = False,
        limit: bool = True,
    ) -> NoisyKernel:
        learned = self.data._replace(residuals=self.trend.residuals)
        objective = shared_objective(kernel, self.run, is_warm=is_warm)
        starts = self._starts(kernel)
        return fit_shared(learned, blocks, objective, starts, self.run, limit=limit)

    def _layout(self, columns: Array) -> Layout:
        """The parts of the rows in a metric."""
        U = self.data.X * columns
        parts = self.settings.partitioner(U, self.n_parts, self.rng)
        return Layout.of(self.data.X, parts, columns)

    def _builder(self, kernel: NoisyKernel, layout: Layout) -> Builder:
        starts = [self._starts(kernel) for _ in layout.parts]
        communication = None
        if self.space.needs.communication:
            n = len(self.data.X)
            communication = self.rng.permutation(n)[: n // self.n_parts]
        data = self.trend.under(self.data, layout.parts, kernel, self.run.n_jobs)
        return Builder(data, layout, kernel, starts, communication, self.run)


# Committees.


class Selection(NamedTuple):
    """The committee, how it is queried, and how that was chosen.

    Attributes
    ----------
    committee : Committee
    rules : PredictionRules
    errors : LeftOutErrors or None
        What the committee, uncorrected, predicted for rows that were left out.
    report : CalibrationReport or None
    cross_validated : ndarray of shape (t + 1, n), or None
        Mean and std of all rows by experts that have learned nothing from them.
    noise : LocalNoise or None
    """

    committee: Committee
    rules: PredictionRules
    errors: LeftOutErrors | None = None
    report: CalibrationReport | None = None
    cross_validated: Array | None = None
    noise: LocalNoise | None = None

    def after(self, compared: Iterable[Alternative], **chosen: Any) -> Selection:
        """The same; its report begins with what was compared before, and names what was chosen."""
        if self.report is None:
            return self
        report = self.report._replace(
            chosen={**chosen, **self.report.chosen},
            alternatives=(*compared, *self.report.alternatives),
        )
        return self._replace(report=report)

    def row_nll(self) -> Array:
        """Negative log-likelihood of each row that was left out: (N,)."""
        assert self.errors is not None
        return self.errors.row_nll(self.rules.recalibration)


def choose_committee(
    builder: Builder,
    space: SearchSpace,
    rng: np.random.Generator,
    deadline: float = np.inf,
    *,
    holds_out: bool = True,
) -> Selection:
    """The committee of lowest left-out NLL, its rules and their correction.

    What the user has chosen is not questioned. After the deadline no other committee is tried.
    `holds_out` says whether few rows are corrected by kernels that have not learned from them.
    """
    if is_fixed(space):
        committee = builder.final(space.shrinkages[0], space.overlaps[0])
        return Selection(committee, all_rules(space, len(builder.layout))[0])
    progress = builder.run.progress
    progress.begin("choice")
    search = _CommitteeSearch(builder, space, draw_left_out(builder, rng), deadline)
    best, alternatives = search.climb()
    committee = builder.final(*best)
    progress.begin("calibration")
    scores = search.scores_of(best)
    if space.tolerance is not None:
        nearest = _sufficient(committee, builder, space, rng)
        space = space._replace(nearest=(nearest,))
        scores = evaluate(builder, space, search.left_out, best)
    rules = scores.rules[scores.best]
    alternatives += _neighbouring_rules(scores, rules)
    held_out, said = None, None
    if holds_out:
        held_out = held_out_errors(builder, rules, search.left_out, best)
    errors = held_out or left_out_errors(committee, builder, rules, rng)
    curve, compared = VarianceCurve(), list[Alternative]()
    if space.recalibrate:
        curve, compared = recalibrate(errors)
        if held_out is not None:
            said = np.vstack([errors.means, np.sqrt(errors.total(curve))])
        if space.standard:  # else the kernel says what holds far away
            curve = replace(curve, known=farthest_known(errors))
    shown = {name: _shown(getattr(rules, field), name) for name, field in SHOWN_FIELDS.items()}
    if space.needs.dependence:  # weights have no influence
        shown["temperature"] = None
    correction = next((one.value for one in compared if one.chosen), None)
    chosen = {**best._asdict(), **shown, "correction": correction}
    report = CalibrationReport(chosen, (*alternatives, *compared), scores.nll.shape[1])
    return Selection(committee, rules._replace(recalibration=curve), errors, report, said)


def left_out_errors(
    committee: Committee, builder: Builder, rules: PredictionRules, rng: np.random.Generator
) -> LeftOutErrors:
    """What the final committee predicts for rows of all experts, each left out."""
    rows = builder.some_rows(COMMITTEE.learned_rows, rng)
    return _errors_of(committee, builder, rules, rows)


def held_out_errors(
    builder: Builder, rules: PredictionRules, left_out: LeftOut, best: Candidate
) -> LeftOutErrors | None:
    """The same by kernels that have not learned from the row; None if not all rows take part."""
    rows = np.concatenate(left_out.folds)
    if not left_out.held_out or len(rows) < len(builder.data.X):
        return None
    folds = []
    for fold in left_out.folds:
        committee = _without(builder, fold).committee(*best, left_out.members, fold)
        folds.append(_errors_of(committee, builder, rules, fold))
    joined = (np.concatenate(one, axis=-1) for one in zip(*folds, strict=True))
    return LeftOutErrors(*joined).some(np.argsort(rows))


def _without(builder: Builder, fold: IndexArray) -> Builder:
    """A builder whose shared kernel goes on learning without some of the rows."""
    data, kernel, layout, run = builder.data, builder.kernel, builder.layout, builder.run
    rest = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(len(data.X)), fold))
    known = data.likelihoods(np.sort(rest[: FITTING.shared_rows]))
    free, tolerance = np.zeros(kernel.n_free), FITTING.warm_tolerance
    objective = Objective(kernel, free, tolerance, run.optimizer, is_warm=True)
    with single_threaded_blas():
        kernel = maximise(known, objective, kernel.theta[None]).kernel
    starts = [kernel.theta[None]] * len(layout.parts)
    return Builder(data, layout, kernel, starts, builder.communication, run)


def _errors_of(
    committee: Committee, builder: Builder, rules: PredictionRules, rows: IndexArray
) -> LeftOutErrors:
    """What a committee predicts for some of its rows, each left out."""
    data = builder.data

    def answers(records: list[ExpertPredictions]) -> tuple[Array, Array, Array]:
        means, variance, noise = rules.combine(records)
        return means, variance + noise, rules.unknown(records)

    query = Query(data.X[rows], rules.nearest, rows, covariances=rules.needs.covariances)
    means, variance, unknown = committee.map_blocks(answers, query, builder.run.n_jobs)
    squares = (data.targets_of(rows).T - means) ** 2
    return LeftOutErrors(squares, variance, data.alpha[rows], unknown, rows, means)


class _CommitteeSearch:
    """Compares committees, each of which is scored once."""

    def __init__(
        self, builder: Builder, space: SearchSpace, left_out: LeftOut, deadline: float
    ) -> None:
        self.builder, self.space = builder, space
        self.left_out, self.deadline = left_out, deadline
        self.scored: dict[Candidate, Scores] = {}
        n, n_parts = len(builder.data.X), len(builder.layout.parts)
        self.overlaps = affordable(n, n_parts, space.overlaps)
        ahead = list(compared_committees(space.shrinkages, self.overlaps))
        self.planned = sum(work_of(one, ahead[:place]) for place, one in enumerate(ahead))
        self.done = 0.0

    def scores_of(self, candidate: Candidate) -> Scores:
        if candidate not in self.scored:
            self.done += work_of(candidate, self.scored)
            self.scored[candidate] = evaluate(self.builder, self.space, self.left_out, candidate)
            self.builder.run.progress.advance(self.done / self.planned)
        return self.scored[candidate]

    def climb(self) -> tuple[Candidate, list[Alternative]]:
        """Shrinkage where experts know some rows of others, then overlap, the simplest first.

        Where less overlap is better, shrinkages are compared once more, which then costs little.
        """
        shrinkages, late = self.space.shrinkages, perf_counter() >= self.deadline
        overlap = self.overlaps[0] if late else some_overlap(self.overlaps)
        by_shrinkage = self._choose("shrinkage", Candidate(shrinkages[0], overlap), shrinkages)
        by_overlap = self._choose("overlap", by_shrinkage.best, self.overlaps)
        best = by_overlap.best
        if best.overlap < overlap:
            by_shrinkage = self._choose("shrinkage", best, shrinkages)
            best = by_shrinkage.best
        return best, [*by_shrinkage.alternatives, *by_overlap.alternatives]

    def _choose(self, field: str, start: Candidate, values: Sequence[Any]) -> Choice[Candidate]:
        """One field of a candidate, from the first value on, until one is worse than the best.

        On thirteen tasks of 750 to 2,500 rows nothing was chosen beyond such a value.
        """
        choice: Choice[Candidate] = Choice(field, lambda one: self.scores_of(one).best_nll)
        for value in values:
            candidate = start._replace(**{field: value})
            in_time = not self.scored or perf_counter() < self.deadline
            if in_time or candidate in self.scored:
                choice.consider(value, candidate)
                if choice.lost(value, 0.0):
                    break
        return choice


def _sufficient(
    committee: Committee, builder: Builder, space: SearchSpace, rng: np.random.Generator
) -> int:
    """The number of nearest experts that leaves less than the tolerated weight to the others."""
    rows = builder.some_rows(COMMITTEE.tolerance_rows, rng)
    query = Query(builder.data.X[rows], len(committee), rows)
    weigh = space.first_rules.normalised_weights
    (weights,) = committee.map_blocks(weigh, query, builder.run.n_jobs)
    neglected = 1 - np.cumsum(weights.mean(axis=1))
    sufficient = 1 + int(np.argmax(neglected <= (space.tolerance or 0.0) + 1e-12))
    return min(max(FEWEST_NEAREST, sufficient), len(committee))


def _neighbouring_rules(scores: Scores, rules: PredictionRules) -> list[Alternative]:
    """The rules that differ from the chosen ones in one parameter."""
    alternatives = []
    for name, field in SHOWN_FIELDS.items():
        chosen = getattr(rules, field)
        same = [
            (getattr(one, field), nll)
            for one, nll in zip(scores.rules, scores.nll.mean(axis=1), strict=True)
            if one._replace(**{field: chosen}) == rules
        ]
        if len(same) > 1:
            alternatives += [
                Alternative(name, _shown(value, name), float(nll), value == chosen)
                for value, nll in same
            ]
    return alternatives


def _shown(value: object, name: str) -> object:
    """What a report shows of a rule: its parameter of that name, or the number that it is."""
    return getattr(value, name, None if callable(value) else value)
