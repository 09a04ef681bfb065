"""The committee that calibrates itself: choices by leave-one-out, without test data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from manygp.arrays import Array
from manygp.committee.committee import Committee
from manygp.rules.calibration import Recalibration, none
from manygp.rules.combine import Rules, weighting_of
from manygp.rules.records import Pull
from manygp.training.builder import Workshop
from manygp.training.scores import SCALES, Rule, Scores, Space, judge, jury_of, rules_of

# The pull of the hierarchy and the overlap, from the simpler to the more flexible.
PULL_LADDER = (np.inf, 30.0, 10.0, 3.0)
OVERLAP_LADDER = (0.0, 1.0, 2.0, 4.0)
NEAREST_LADDER = (1, 2, 4, 8)
STRENGTHS = (0.0, 0.5, 1.0)
# Experts' factors may take so many bytes before an overlap is too large.
LARGEST_FACTORS = 2e9
SOME_ROWS = 500
# Standard errors of its gain that the more flexible of two choices must gain.
NEAR_TIE = 0.5
# Nats that a fitted parameter of the recalibration must gain, summed over the rows.
LEAST_GAIN = 2.0
POWERS = (0.0, 4.0)
# Variances that are told apart.
SHAPES = (1e-250, 1e250)


class Choice(NamedTuple):
    """How the committee is asked, and how wrong it is about rows that it leaves out.

    `nearest` experts are asked about a row, or all. `conformity` (t, m) holds |y - mean| / std
    of m rows that were left out, sorted, for each target, if they were.
    """

    rules: Rules
    nearest: int | None
    conformity: Array | None


class Alternative(NamedTuple):
    """One value of a parameter, and the leave-one-out NLL with it, in normalised units.

    Other parameters have the values that were best at the time.
    """

    parameter: str
    value: Any
    nll: float
    chosen: bool


class CalibrationReport(NamedTuple):
    """What leave-one-out chose, from what.

    Attributes
    ----------
    chosen : dict
        Values by parameter: pull, overlap, temperature, strength, nearest, scale, power.
        (Which kernel was taken, of rows far from each other or near, only `alternatives` say.)
    alternatives : tuple of Alternative
        Those that were compared, and their scores.
    n_rows : int
        Rows that were left out in turn to choose the rules.
    """

    chosen: dict[str, Any]
    alternatives: tuple[Alternative, ...]
    n_rows: int

    def __str__(self) -> str:
        lines = [f"Chosen by leaving out {self.n_rows} rows in turn", ""]
        lines.append(f"{'parameter':<12} {'value':>10} {'NLL':>9}")
        for one in self.alternatives:
            value = f"{one.value:g}" if isinstance(one.value, float) else str(one.value)
            mark = "  <- chosen" if one.chosen else ""
            lines.append(f"{one.parameter:<12} {value:>10} {one.nll:>9.4f}{mark}")
        return "\n".join(lines)


def prefers(
    first: Workshop, second: Workshop, space: Space, rng: np.random.Generator
) -> tuple[bool, list[Alternative]]:
    """Whether the second of two workshops, with the same parts, has the better shared kernel."""
    jury = jury_of(first, rng)
    nll = [judge(one, space, jury, np.inf, space.overlaps[0]).best_nll for one in (first, second)]
    better = _gains(*nll)
    return better, [
        Alternative("kernel", name, float(one.mean()), chosen)
        for name, one, chosen in zip(("far", "near"), nll, (not better, better), strict=True)
    ]


def select(
    workshop: Workshop,
    space: Space,
    rng: np.random.Generator,
    kernels: Iterable[Alternative] = (),
    deadline: float = np.inf,
) -> tuple[Committee, Choice, CalibrationReport | None]:
    """The committee of lowest leave-one-out NLL, its rules and their recalibration.

    One expert leaves nothing to choose, and what the user has chosen is not questioned. After
    the deadline no other committee is tried.
    """
    alone = len(set(map(id, workshop.layout.parts))) == 1
    if alone or space.fixed:
        rule = Rule(space.temperatures[0], space.calibrations[0], space.nearest[0])
        pull, overlap = space.pulls[0], space.overlaps[0]
        if alone:
            rule, pull, overlap = Rule(None, none, None), 0.0, 0.0
        choice = Choice(rules_of(space, rule), rule.nearest, None)
        return workshop.committee(pull, overlap), choice, None
    jury = jury_of(workshop, rng)
    judged: dict[tuple[float | Pull, float], Scores] = {}

    def scores_of(pull: float | Pull, overlap: float) -> Scores:
        if (pull, overlap) not in judged:
            judged[pull, overlap] = judge(workshop, space, jury, pull, overlap)
        return judged[pull, overlap]

    n, m = len(workshop.data.X), len(workshop.layout.parts)
    overlaps = affordable(n, m, space.overlaps)
    first_pull, pull, overlap = _climb(space.pulls, overlaps, scores_of, deadline)
    scores = scores_of(pull, overlap)
    alternatives = _committees(judged, first_pull, pull, overlap)
    committee = workshop.committee(pull, overlap)
    if space.tolerance is not None:
        space = space._replace(nearest=(_sufficient(committee, workshop, space, rng),))
        scores = judge(workshop, space, jury, pull, overlap)
    rule = scores.rules[scores.best]
    squares, variance = scores.squares[scores.best], scores.variance[scores.best]
    alternatives += _neighbouring_rules(scores, rule)
    recalibration = Recalibration()
    if space.recalibrate:
        recalibration = _recalibrate(squares, variance, alternatives)
    conformity = np.sort(np.sqrt(squares / (variance * recalibration(variance))), axis=-1)
    chosen = {
        "pull": pull,
        "overlap": overlap,
        "temperature": rule.temperature,
        "strength": getattr(rule.calibration, "strength", None),
        "nearest": rule.nearest,
        "scale": recalibration.scale,
        "power": recalibration.power,
    }
    report = CalibrationReport(chosen, (*kernels, *alternatives), len(variance))
    rules = rules_of(space, rule)._replace(recalibration=recalibration)
    return committee, Choice(rules, rule.nearest, conformity), report


def _climb(
    pulls: tuple[float | Pull, ...],
    overlaps: list[float],
    scores_of: Callable[[float | Pull, float], Scores],
    deadline: float,
) -> tuple[float | Pull, float | Pull, float]:
    """Pull, then overlap, then pull again, from the simpler to the more flexible.

    Returns the first choice of pull, with which overlaps were compared, and the final choices.
    """

    def better(old: tuple[float | Pull, float], new: tuple[float | Pull, float]) -> bool:
        before = scores_of(*old).best_nll
        return perf_counter() < deadline and _gains(before, scores_of(*new).best_nll)

    pull, overlap = pulls[0], overlaps[0]
    for other in pulls[1:]:
        pull = other if better((pull, overlap), (other, overlap)) else pull
    first = pull
    for wider in overlaps[1:]:
        overlap = wider if better((pull, overlap), (pull, wider)) else overlap
    if overlap != overlaps[0]:
        i = pulls.index(first)
        pull, *others = pulls[max(0, i - 1) : i + 2]
        for other in others:
            pull = other if better((pull, overlap), (other, overlap)) else pull
    return first, pull, overlap


def _committees(
    judged: dict[tuple[float | Pull, float], Scores],
    first_pull: float | Pull,
    pull: float | Pull,
    overlap: float,
) -> list[Alternative]:
    """The pulls that were compared at the chosen overlap, and the overlaps at the first pull."""
    nll = {key: float(scores.best_nll.mean()) for key, scores in judged.items()}
    pulls = [Alternative("pull", p, nll[p, o], p == pull) for p, o in nll if o == overlap]
    overlaps = [
        Alternative("overlap", o, nll[p, o], o == overlap) for p, o in nll if p == first_pull
    ]
    return [*(pulls if len(pulls) > 1 else []), *(overlaps if len(overlaps) > 1 else [])]


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
    committee: Committee, workshop: Workshop, space: Space, rng: np.random.Generator
) -> int:
    """The number of nearest experts that leaves less than the tolerated weight to the others."""
    rows = np.sort(rng.permutation(len(workshop.data.X))[:SOME_ROWS])
    weighting = weighting_of(space.weighting, space.temperatures[0])
    rules = Rules(weighting, none, space.aggregation)
    (weights,) = committee.map_blocks(
        rules.normalised_weights,
        workshop.data.X[rows],
        len(committee),
        workshop.run.n_jobs,
        left_out=rows,
    )
    neglected = 1 - np.cumsum(weights.mean(axis=1))
    return 1 + int(np.argmax(neglected <= (space.tolerance or 0.0) + 1e-12))


def _neighbouring_rules(scores: Scores, rule: Rule) -> list[Alternative]:
    """The rules that differ from the chosen one in one parameter."""
    found = []
    for name, field in (
        ("temperature", "temperature"),
        ("strength", "calibration"),
        ("nearest", "nearest"),
    ):
        same = [
            (getattr(one, field), nll)
            for one, nll in zip(scores.rules, scores.nll.mean(axis=1), strict=True)
            if one._replace(**{field: getattr(rule, field)}) == rule
        ]
        if len(same) > 1:
            for value, nll in same:
                shown = getattr(value, "strength", value)
                found.append(Alternative(name, shown, float(nll), value == getattr(rule, field)))
    return found


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
