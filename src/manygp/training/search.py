"""The committee that calibrates itself: what is "auto" is chosen by rows that are left out."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from manygp.arrays import Array
from manygp.committee.committee import Committee, Query
from manygp.findings import Alternative, CalibrationReport, Shrinkage
from manygp.rules.calibration import Recalibration, none
from manygp.rules.combine import PredictionRules
from manygp.settings import SearchSpace
from manygp.training.builder import Builder
from manygp.training.scores import (
    SCALES,
    Candidate,
    LeftOut,
    Scores,
    choose_left_out,
    score,
)

# Bytes of the experts' factors above which an overlap is too large.
LARGEST_FACTORS = 2e9
# Rows that choose how many experts leave a tolerated weight to the others.
TOLERANCE_ROWS = 500
# Standard errors of its gain that the more flexible of two choices must gain.
NEAR_TIE = 0.5
# Nats that a fitted parameter of the recalibration must gain, summed over the rows.
LEAST_GAIN = 2.0
# Powers of the variance among which the best is sought.
POWERS = (0.0, 4.0)
# Variances that are told apart.
SHAPES = (1e-250, 1e250)
# What the report calls the fields of the rules, and what it shows of their values.
SHOWN_FIELDS = {"temperature": "weighting", "strength": "calibration", "nearest": "nearest"}


class Selection(NamedTuple):
    """The committee, how it is queried, and how that was chosen.

    `conformity` (t, m) holds |y - mean| / std of m rows that were left out, sorted, for each
    target, if they were.
    """

    committee: Committee
    rules: PredictionRules
    conformity: Array | None = None
    report: CalibrationReport | None = None


def prefers(
    first: Builder, second: Builder, space: SearchSpace, rng: np.random.Generator
) -> tuple[bool, list[Alternative]]:
    """Whether the second of two builders, with the same parts, has the better shared kernel."""
    left_out = choose_left_out(first, rng)
    candidate = Candidate(np.inf, space.overlaps[0])
    nll = [score(one, space, left_out, candidate).best_nll for one in (first, second)]
    better = _gains(*nll)
    return better, [
        Alternative("kernel", name, float(one.mean()), chosen)
        for name, one, chosen in zip(("far", "near"), nll, (not better, better), strict=True)
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
        rules = space.first_rules._replace(nearest=None)
        rules = rules._replace(calibration=none) if space.recalibrate else rules
        return Selection(builder.committee(0.0, 0.0), rules)
    if space.is_fixed:
        committee = builder.committee(space.shrinkages[0], space.overlaps[0])
        return Selection(committee, space.first_rules)
    search = _Search(builder, space, choose_left_out(builder, rng), deadline)
    first_shrinkage, best = search.climb()
    alternatives = search.alternatives(first_shrinkage, best)
    committee = builder.committee(*best)
    scores = search.scores_of(best)
    if space.tolerance is not None:
        nearest = _sufficient(committee, builder, space, rng)
        space = space._replace(nearest=(nearest,))
        scores = score(builder, space, search.left_out, best)
    rules = scores.rules[scores.best]
    squares, variance = scores.squares[scores.best], scores.variance[scores.best]
    alternatives += _neighbouring_rules(scores, rules)
    recalibration = Recalibration()
    if space.recalibrate:
        recalibration = _recalibrate(squares, variance, alternatives)
    conformity = np.sort(np.sqrt(squares / (variance * recalibration(variance))), axis=-1)
    chosen = {
        **best._asdict(),
        **{name: _shown(getattr(rules, field), name) for name, field in SHOWN_FIELDS.items()},
        **({"temperature": None} if space.needs.dependence else {}),  # weights have no influence
        "scale": recalibration.scale,
        "power": recalibration.power,
    }
    report = CalibrationReport(chosen, (*kernels, *alternatives), len(variance))
    return Selection(committee, rules._replace(recalibration=recalibration), conformity, report)


class _Search:
    """Compares committees, each of which is scored once."""

    def __init__(
        self, builder: Builder, space: SearchSpace, left_out: LeftOut, deadline: float
    ) -> None:
        self.builder, self.space = builder, space
        self.left_out, self.deadline = left_out, deadline
        self.scored: dict[Candidate, Scores] = {}

    def scores_of(self, candidate: Candidate) -> Scores:
        if candidate not in self.scored:
            found = score(self.builder, self.space, self.left_out, candidate)
            self.scored[candidate] = found
        return self.scored[candidate]

    def better(self, old: Candidate, new: Candidate) -> Candidate:
        """The new candidate if there is time to look at it and it gains, else the old one."""
        before = self.scores_of(old).best_nll
        in_time = perf_counter() < self.deadline
        return new if in_time and _gains(before, self.scores_of(new).best_nll) else old

    def climb(self) -> tuple[Shrinkage, Candidate]:
        """Shrinkage, then overlap, then shrinkage again, from the simpler to the more flexible.

        Returns the first choice of shrinkage, with which overlaps were compared, and the best.
        """
        shrinkages = self.space.shrinkages
        n, n_parts = len(self.builder.data.X), len(self.builder.layout.parts)
        narrowest, *wider = affordable(n, n_parts, self.space.overlaps)
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


def _gains(incumbent: Array, challenger: Array) -> bool:
    """Whether the mean NLL of rows falls by more than chance would let it."""
    gain = incumbent - challenger
    return bool(gain.mean() > NEAR_TIE * gain.std() / np.sqrt(len(gain)))


def affordable(n: int, n_parts: int, overlaps: tuple[float, ...]) -> list[float]:
    """Overlaps that differ in what experts know, and whose factors fit into memory."""
    kept: dict[int, float] = {}
    for overlap in overlaps:
        known = min(n, round((1 + overlap) * n / n_parts))
        if not kept or 8 * n_parts * known**2 <= LARGEST_FACTORS:
            kept.setdefault(known, overlap)
    return list(kept.values())


def _sufficient(
    committee: Committee, builder: Builder, space: SearchSpace, rng: np.random.Generator
) -> int:
    """The number of nearest experts that leaves less than the tolerated weight to the others."""
    rows = np.sort(rng.permutation(len(builder.data.X))[:TOLERANCE_ROWS])
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


def _recalibrate(
    squares: Array, variance: Array, alternatives: list[Alternative]
) -> Recalibration:
    """The scale of lowest NLL and, where it gains, the power.

    Parameters
    ----------
    squares : ndarray of shape (t, N)
        Squared errors of rows that were left out.
    variance : ndarray of shape (N,)
        Variances that were predicted for them.
    alternatives : list of Alternative
        What is compared is added to it.
    """
    squares = squares.mean(axis=0)
    log_variance = np.log(variance)
    centre = float(np.exp(log_variance.mean()))
    low, high = float(variance.min()), float(variance.max())

    def fitted(power: float) -> tuple[Recalibration, Array]:
        with np.errstate(over="ignore", under="ignore"):
            shape = np.exp((power - 1) * (log_variance - np.log(centre))) * variance
        shape = np.clip(shape, *SHAPES)
        scale = float(np.clip((squares / shape).mean(), *SCALES))
        nll = 0.5 * (np.log(2 * np.pi * scale * shape) + squares / (scale * shape))
        return Recalibration(scale, power, centre, low, high), nll

    plain = 0.5 * (np.log(2 * np.pi * variance) + squares / variance)
    scaled, scaled_nll = fitted(1.0)
    power = minimize_scalar(lambda p: fitted(p)[1].mean(), bounds=POWERS, method="bounded").x
    spread, spread_nll = fitted(float(power))
    chosen = Recalibration()
    if (plain - scaled_nll).sum() > LEAST_GAIN:
        chosen = scaled
    if (scaled_nll - spread_nll).sum() > LEAST_GAIN:
        chosen = spread
    alternatives += [
        Alternative("scale", 1.0, float(plain.mean()), chosen.scale == 1),
        Alternative("scale", scaled.scale, float(scaled_nll.mean()), chosen.scale != 1),
        Alternative("power", 1.0, float(scaled_nll.mean()), chosen.power == 1),
        Alternative("power", spread.power, float(spread_nll.mean()), chosen is spread),
    ]
    return chosen
