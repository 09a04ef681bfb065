"""The committee that calibrates itself: what is "auto" is chosen by rows that are left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from time import perf_counter
from typing import NamedTuple

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.committee.committee import Committee, Query
from manygp.findings import Alternative, CalibrationReport, Shrinkage
from manygp.rules.calibration import VarianceCurve
from manygp.rules.combine import PredictionRules
from manygp.rules.records import ExpertPredictions
from manygp.settings import SearchSpace
from manygp.training.builder import Builder, affordable
from manygp.training.recalibration import farthest_known, gains, recalibrate
from manygp.training.single import Selection, left_out_errors, select_single

# Rows that are left out to compare committees, at most.
COMPARED_ROWS = 2000
# Experts of the committees that are compared, at most; of more, those of some regions take part.
COMPARED_EXPERTS = 64
REGIONS = 8
# Experts learn their hyperparameters without the rows of the fold that is left out.
FOLDS = 4
# The smallest and largest scale of variances that is believed when committees are compared.
SCALES = (1e-3, 1e3)
# Rows that choose how many experts leave a tolerated weight to the others.
TOLERANCE_ROWS = 500
# How the work of scoring a committee grows with what its experts know, and what fitting adds.
SIZE_POWER = 1.5
FITTING_WORK = 4.0
# What the report calls the fields of the rules, and what it shows of their values.
SHOWN_FIELDS = {"temperature": "weighting", "strength": "calibration", "nearest": "nearest"}


class Candidate(NamedTuple):
    """A committee that may be chosen."""

    shrinkage: Shrinkage
    overlap: float


class LeftOut(NamedTuple):
    """The rows that are left out, in folds, and the experts that take part.

    Attributes
    ----------
    members : ndarray of int, or None
        The parts whose experts take part; None for all.
    folds : list of index arrays
    unlearned : bool
        Whether experts learn their hyperparameters without the fold.
    """

    members: IndexArray | None
    folds: list[IndexArray]
    unlearned: bool


class Scores(NamedTuple):
    """Scores of each of R rules: NLL of each row (R, N), squared errors (R, t, N), variances."""

    rules: list[PredictionRules]
    nll: Array
    squares: Array
    variance: Array

    @property
    def best(self) -> int:
        """The first of those that are equal but for rounding."""
        mean = self.nll.mean(axis=1)
        return int(np.argmax(mean <= mean.min() + 1e-9))

    @property
    def best_nll(self) -> Array:
        """The NLL of each row by the best rules: (N,)."""
        nll: Array = self.nll[self.best]
        return nll


def prefers(
    first: Builder,
    second: Builder,
    space: SearchSpace,
    rng: np.random.Generator,
    names: tuple[str, str, str],
) -> tuple[bool, list[Alternative]]:
    """Whether the second of two builders, with the same parts, has the better shared kernel.

    `names` are what is compared, and what the report calls the first and the second.
    """
    left_out = choose_left_out(first, rng)
    candidate = Candidate(np.inf, space.overlaps[0])
    nll = [score(one, space, left_out, candidate).best_nll for one in (first, second)]
    better = gains(nll[0], nll[1])
    return better, [
        Alternative(names[0], name, float(one.mean()), chosen)
        for name, one, chosen in zip(names[1:], nll, (not better, better), strict=True)
    ]


def select(
    builder: Builder,
    space: SearchSpace,
    rng: np.random.Generator,
    kernels: Iterable[Alternative] = (),
    deadline: float = np.inf,
) -> Selection:
    """The committee of lowest leave-one-out NLL, its rules and their recalibration.

    One expert leaves nothing to choose, and what the user has chosen is not questioned. After
    the deadline no other committee is tried.
    """
    if builder.layout.is_single:
        return select_single(builder, space, rng)
    if space.is_fixed:
        committee = builder.final(space.shrinkages[0], space.overlaps[0])
        return Selection(committee, space.all_rules(len(builder.layout))[0])
    progress = builder.run.progress
    progress.begin("choice")
    search = _Search(builder, space, choose_left_out(builder, rng), deadline)
    first_shrinkage, best = search.climb()
    alternatives = search.alternatives(first_shrinkage, best)
    committee = builder.final(*best)
    progress.begin("calibration")
    scores = search.scores_of(best)
    if space.tolerance is not None:
        nearest = _sufficient(committee, builder, space, rng)
        space = space._replace(nearest=(nearest,))
        scores = score(builder, space, search.left_out, best)
    rules = scores.rules[scores.best]
    alternatives += _neighbouring_rules(scores, rules)
    errors = left_out_errors(committee, builder, rules, rng)
    curve = VarianceCurve()
    if space.recalibrate:
        curve = recalibrate(errors, alternatives)
        if space.standard:  # else the kernel says what holds far away
            curve = replace(curve, known=farthest_known(errors))
    chosen = {
        **best._asdict(),
        **{name: _shown(getattr(rules, field), name) for name, field in SHOWN_FIELDS.items()},
        **({"temperature": None} if space.needs.dependence else {}),  # weights have no influence
        "correction": next(
            (one.value for one in alternatives if one.parameter == "correction" and one.chosen),
            None,
        ),
    }
    report = CalibrationReport(chosen, (*kernels, *alternatives), scores.nll.shape[1])
    return Selection(committee, rules._replace(recalibration=curve), errors, report)


def compared(shrinkages: tuple[Shrinkage, ...], overlaps: Sequence[float]) -> Iterator[Candidate]:
    """What `select` compares, as far as that is known before: see `_Search.climb`.

    These are shrinkages at the first overlap, overlaps, and then shrinkages next to the best.
    """
    yield from (Candidate(shrinkage, overlaps[0]) for shrinkage in shrinkages)
    yield from (Candidate(shrinkages[-1], overlap) for overlap in overlaps[1:])
    if len(overlaps) > 1:
        yield from (Candidate(shrinkage, overlaps[-1]) for shrinkage in shrinkages[1:3])


def work_of(candidate: Candidate, known: Iterable[Candidate]) -> float:
    """What it takes to score a committee, in the work of one without overlap that fits nothing."""
    fits = candidate.shrinkage != np.inf
    fits = fits and all(one.shrinkage != candidate.shrinkage for one in known)
    return float((1 + candidate.overlap) ** SIZE_POWER + fits * FITTING_WORK)


class _Search:
    """Compares committees, each of which is scored once."""

    def __init__(
        self, builder: Builder, space: SearchSpace, left_out: LeftOut, deadline: float
    ) -> None:
        self.builder, self.space = builder, space
        self.left_out, self.deadline = left_out, deadline
        self.scored: dict[Candidate, Scores] = {}
        n, n_parts = len(builder.data.X), len(builder.layout.parts)
        self.overlaps = affordable(n, n_parts, space.overlaps)
        ahead = list(compared(space.shrinkages, self.overlaps))
        self.planned = sum(work_of(one, ahead[:place]) for place, one in enumerate(ahead))
        self.done = 0.0

    def scores_of(self, candidate: Candidate) -> Scores:
        if candidate not in self.scored:
            self.done += work_of(candidate, self.scored)
            found = score(self.builder, self.space, self.left_out, candidate)
            self.scored[candidate] = found
            self.builder.run.progress.advance(self.done / self.planned)
        return self.scored[candidate]

    def better(self, old: Candidate, new: Candidate) -> Candidate:
        """The new candidate if there is time to look at it and it gains, else the old one."""
        before = self.scores_of(old).best_nll
        in_time = perf_counter() < self.deadline
        return new if in_time and gains(before, self.scores_of(new).best_nll) else old

    def climb(self) -> tuple[Shrinkage, Candidate]:
        """Shrinkage, then overlap, then shrinkage again, from the simpler to the more flexible.

        Returns the first choice of shrinkage, with which overlaps were compared, and the best.
        """
        shrinkages = self.space.shrinkages
        narrowest, *wider = self.overlaps
        best = Candidate(shrinkages[0], narrowest)
        for shrinkage in shrinkages[1:]:
            best = self.better(best, best._replace(shrinkage=shrinkage))
        first = best.shrinkage
        for overlap in wider:
            best = self.better(best, best._replace(overlap=overlap))
        if best.overlap != narrowest:
            i = shrinkages.index(first)
            simpler, *others = shrinkages[max(0, i - 1) : i + 2]
            best = best._replace(shrinkage=simpler)
            for shrinkage in others:
                best = self.better(best, best._replace(shrinkage=shrinkage))
        return first, best

    def alternatives(self, first_shrinkage: Shrinkage, best: Candidate) -> list[Alternative]:
        """The shrinkages compared at the best overlap, and the overlaps at the first shrinkage."""
        nll = {one: float(scores.best_nll.mean()) for one, scores in self.scored.items()}
        by_shrinkage = [
            Alternative("shrinkage", one.shrinkage, value, one.shrinkage == best.shrinkage)
            for one, value in nll.items()
            if one.overlap == best.overlap
        ]
        by_overlap = [
            Alternative("overlap", one.overlap, value, one.overlap == best.overlap)
            for one, value in nll.items()
            if one.shrinkage == first_shrinkage
        ]
        return [one for both in (by_shrinkage, by_overlap) if len(both) > 1 for one in both]


def choose_left_out(builder: Builder, rng: np.random.Generator) -> LeftOut:
    """Draw the rows to leave out.

    Each fold is a part of an expert's rows only, so that it can learn from the others. Experts
    with next to no rows have no folds. In a large committee the experts of some regions take
    part, so that the cost does not grow with n.
    """
    parts, layout = builder.layout.parts, builder.layout
    members = np.arange(len(parts))
    if len(parts) > COMPARED_EXPERTS:
        centres = layout.centres[rng.choice(len(parts), REGIONS, replace=False)]
        members = np.unique(layout.tree.query(centres, k=COMPARED_EXPERTS // REGIONS)[1])
    own = [parts[m] for m in members.tolist()]
    shuffled = [rng.permutation(part) for part in own if len(part) > FOLDS]
    if not shuffled:
        return LeftOut(None, [builder.some_rows(COMPARED_ROWS, rng)], unlearned=False)
    folds = [np.concatenate([rows[f::FOLDS] for rows in shuffled]) for f in range(FOLDS)]
    n_folds = min(FOLDS, -(-COMPARED_ROWS // len(folds[0])))
    most = COMPARED_ROWS // n_folds
    folds = [np.sort(rng.permutation(fold)[:most]) for fold in folds[:n_folds]]
    return LeftOut(members, folds, unlearned=True)


def score(builder: Builder, space: SearchSpace, left_out: LeftOut, candidate: Candidate) -> Scores:
    """Leave rows out in turn, and score all rules of the search space on them."""
    folds, unlearned = left_out.folds, left_out.unlearned
    if candidate.shrinkage == np.inf:  # the shared kernel hardly depends on any one row
        folds, unlearned = [np.concatenate(folds)], False
    members = left_out.members
    rules = space.all_rules(len(builder.layout.parts if members is None else members))
    widest = None if rules[-1].nearest is None else max(one.nearest or 0 for one in rules)

    def answers(records: list[ExpertPredictions]) -> tuple[Array, Array]:
        combined = [
            one.combine([record.first_experts(one.nearest) for record in records]) for one in rules
        ]
        means, variances, noises = zip(*combined, strict=True)
        return np.array(means), np.array(variances) + np.array(noises)

    squares, variances = [], []
    for rows in folds:
        committee = builder.committee(*candidate, members, rows if unlearned else None)
        query = Query(builder.data.X[rows], widest, rows, covariances=space.needs.covariances)
        means, variance = committee.map_blocks(answers, query, builder.run.n_jobs)
        squares.append((builder.data.targets_of(rows).T - means) ** 2)
        variances.append(variance + builder.data.alpha[rows])
    return _scores(
        rules,
        np.concatenate(squares, axis=-1),
        np.concatenate(variances, axis=-1),
        rescale=space.recalibrate,
    )


def _scores(
    rules: list[PredictionRules], squares: Array, variance: Array, *, rescale: bool
) -> Scores:
    """From squared errors (R, t, N) and variances (R, N), which may have a scale for each rule."""
    ratio = squares.mean(axis=1) / variance
    scale = np.clip(ratio.mean(axis=1), *SCALES)[:, None] if rescale else 1.0
    nll = 0.5 * (np.log(2 * np.pi * variance * scale) + ratio / scale)
    return Scores(rules, nll, squares, variance)


def _sufficient(
    committee: Committee, builder: Builder, space: SearchSpace, rng: np.random.Generator
) -> int:
    """The number of nearest experts that leaves less than the tolerated weight to the others."""
    rows = builder.some_rows(TOLERANCE_ROWS, rng)
    query = Query(builder.data.X[rows], len(committee), rows)
    weigh = space.first_rules.normalised_weights
    (weights,) = committee.map_blocks(weigh, query, builder.run.n_jobs)
    neglected = 1 - np.cumsum(weights.mean(axis=1))
    return 1 + int(np.argmax(neglected <= (space.tolerance or 0.0) + 1e-12))


def _neighbouring_rules(scores: Scores, rules: PredictionRules) -> list[Alternative]:
    """The rules that differ from the chosen ones in one parameter."""
    found = []
    for name, field in SHOWN_FIELDS.items():
        chosen = getattr(rules, field)
        same = [
            (getattr(one, field), nll)
            for one, nll in zip(scores.rules, scores.nll.mean(axis=1), strict=True)
            if one._replace(**{field: chosen}) == rules
        ]
        if len(same) > 1:
            found += [
                Alternative(name, _shown(value, name), float(nll), value == chosen)
                for value, nll in same
            ]
    return found


def _shown(value: object, name: str) -> object:
    """What a report shows of a rule: its parameter of that name, or the number that it is."""
    return getattr(value, name, None if callable(value) else value)
