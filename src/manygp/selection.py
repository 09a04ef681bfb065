"""The committee that calibrates itself: choices by leave-one-out, without test data."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from manygp.calibration import Recalibration, none
from manygp.committee import Committee
from manygp.rules import Rules, weighting_of
from manygp.types import Aggregation, Array, Calibration, ExpertPredictions, IndexArray, Pull
from manygp.workshop import Workshop

# The pull of the hierarchy and the overlap, from the simpler to the more flexible.
PULL_LADDER = (np.inf, 30.0, 10.0, 3.0)
OVERLAP_LADDER = (0.0, 1.0, 2.0, 4.0)
NEAREST_LADDER = (1, 2, 4, 8)
STRENGTHS = (0.0, 0.5, 1.0)
# Experts' factors may take so many bytes before an overlap is too large.
LARGEST_FACTORS = 2e9
# Committees are judged on so many rows, of all experts or of those in some regions. Experts learn
# their hyperparameters without the rows of the fold that judges them.
JUDGED_ROWS, JUDGED_EXPERTS, REGIONS, FOLDS = 2000, 128, 16, 4
SOME_ROWS = 500
# Standard errors of its gain that the more flexible of two choices must gain.
NEAR_TIE = 0.5
# Nats that a fitted parameter of the recalibration must gain, summed over the rows.
LEAST_GAIN = 2.0
SCALES, POWERS = (1e-3, 1e3), (0.0, 4.0)


class Space(NamedTuple):
    """What there is to choose from; one entry where the user has chosen."""

    pulls: tuple[float | Pull, ...]
    overlaps: tuple[float, ...]
    weighting: Any
    temperatures: tuple[float | None, ...]
    calibrations: tuple[Calibration, ...]
    aggregation: Aggregation
    nearest: tuple[int | None, ...]
    tolerance: float | None  # neglected weight that chooses `nearest`
    recalibrate: bool

    @property
    def fixed(self) -> bool:
        choices = (self.pulls, self.overlaps, self.temperatures, self.calibrations, self.nearest)
        chosen = all(len(choice) == 1 for choice in choices)
        return chosen and not self.recalibrate and self.tolerance is None


class Rule(NamedTuple):
    """How a committee is asked."""

    temperature: float | None
    calibration: Calibration
    nearest: int | None


class Choice(NamedTuple):
    """What was chosen, and how wrong the chosen committee is about rows that it leaves out.

    `nearest` experts are asked about a row, or all. `conformity` (t, m) holds |y - mean| / std
    of m rows that were left out, sorted, for each target, if they were.
    """

    pull: float | Pull
    overlap: float
    weighting: Any
    temperature: float | None
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


class _Scores(NamedTuple):
    """Of every rule of a grid: NLL of each row, (R, N), squared errors (R, t, N), variances."""

    rules: list[Rule]
    nll: Array
    squares: Array
    variance: Array

    @property
    def best(self) -> int:
        """The first of those that are equal but for rounding."""
        mean = self.nll.mean(axis=1)
        return int(np.argmax(mean <= mean.min() + 1e-9))


def select(
    workshop: Workshop, space: Space, rng: np.random.Generator
) -> tuple[Committee, Choice, CalibrationReport | None]:
    """The committee of lowest leave-one-out NLL, its rules and their recalibration.

    One expert leaves nothing to choose, and what the user has chosen is not questioned.
    """
    alone = len(set(map(id, workshop.layout.parts))) == 1
    if alone or space.fixed:
        rule = Rule(space.temperatures[0], space.calibrations[0], space.nearest[0])
        pull, overlap = space.pulls[0], space.overlaps[0]
        if alone:
            rule, pull, overlap = Rule(None, none, None), 0.0, 0.0
        choice = _choice(space, pull, overlap, rule, Recalibration(), None)
        return workshop.committee(pull, overlap), choice, None
    jury = _jury(workshop, rng)
    alternatives: list[Alternative] = []
    pull, overlap = _climb(workshop, space, jury, alternatives)
    committee = workshop.committee(pull, overlap)
    if space.tolerance is not None:
        k = _sufficient(committee, workshop, space, rng)
        space = space._replace(nearest=(k,))
    scores = _judge(workshop, space, jury, pull, overlap)
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
    report = CalibrationReport(chosen, tuple(alternatives), len(variance))
    return committee, _choice(space, pull, overlap, rule, recalibration, conformity), report


def _choice(
    space: Space,
    pull: float | Pull,
    overlap: float,
    rule: Rule,
    recalibration: Recalibration,
    conformity: Array | None,
) -> Choice:
    weighting = weighting_of(space.weighting, rule.temperature)
    rules = Rules(weighting, rule.calibration, space.aggregation, recalibration)
    return Choice(
        pull, overlap, space.weighting, rule.temperature, rules, rule.nearest, conformity
    )


class _Jury(NamedTuple):
    """The members of the committees that are compared, and folds of rows that judge them.

    `held_out` says whether the members learn their hyperparameters without the fold.
    """

    members: IndexArray | None
    folds: list[IndexArray]
    held_out: bool


def _jury(workshop: Workshop, rng: np.random.Generator) -> _Jury:
    """Each fold is a part of an expert's rows only, so that it can learn from the others.

    Experts of next to no rows have no folds. Of a large committee the members are those of
    some regions, so that the cost does not grow with n.
    """
    parts, layout = workshop.layout.parts, workshop.layout
    members = np.arange(len(parts))
    if len(parts) > JUDGED_EXPERTS:
        centres = layout.centres[rng.choice(len(parts), REGIONS, replace=False)]
        members = np.unique(layout.tree.query(centres, k=JUDGED_EXPERTS // REGIONS)[1])
    shuffled = [rng.permutation(parts[m]) for m in members if len(parts[m]) > FOLDS]
    if not shuffled:
        rows = rng.permutation(len(workshop.data.X))[:JUDGED_ROWS]
        return _Jury(None, [np.sort(rows)], held_out=False)
    folds = [np.concatenate([rows[f::FOLDS] for rows in shuffled]) for f in range(FOLDS)]
    n_folds = min(FOLDS, -(-JUDGED_ROWS // len(folds[0])))
    most = JUDGED_ROWS // n_folds
    folds = [np.sort(rng.permutation(fold)[:most]) for fold in folds[:n_folds]]
    return _Jury(members, folds, held_out=True)


def _climb(
    workshop: Workshop, space: Space, jury: _Jury, alternatives: list[Alternative]
) -> tuple[float | Pull, float]:
    """Pull, then overlap, then pull again, from the simpler to the more flexible."""
    pull, overlap = space.pulls[0], space.overlaps[0]
    if len(space.pulls) == len(space.overlaps) == 1:
        return pull, overlap
    found: dict[tuple[float | Pull, float], Array] = {}

    def score(pull: float | Pull, overlap: float) -> Array:
        if (pull, overlap) not in found:
            scores = _judge(workshop, space, jury, pull, overlap)
            found[pull, overlap] = scores.nll[scores.best]
        return found[pull, overlap]

    def climb_pull(pulls: tuple[float | Pull, ...]) -> float | Pull:
        best = pulls[0]
        for other in pulls[1:]:
            if _gains(score(best, overlap), score(other, overlap)):
                best = other
        return best

    pull = first_pull = climb_pull(space.pulls)
    for other_overlap in _affordable(workshop, space.overlaps):
        if _gains(score(pull, overlap), score(pull, other_overlap)):
            overlap = other_overlap
    if overlap != space.overlaps[0]:
        i = space.pulls.index(pull)
        pull = climb_pull(space.pulls[max(0, i - 1) : i + 2])
    for (p, o), nll in found.items():
        if o == overlap and len(space.pulls) > 1:
            alternatives.append(Alternative("pull", p, float(nll.mean()), p == pull))
    for (p, o), nll in found.items():
        if p == first_pull and len(space.overlaps) > 1:
            alternatives.append(Alternative("overlap", o, float(nll.mean()), o == overlap))
    return pull, overlap


def _gains(incumbent: Array, challenger: Array) -> bool:
    """Whether the mean NLL of rows falls by more than chance would let it."""
    gain = incumbent - challenger
    return bool(gain.mean() > NEAR_TIE * gain.std() / np.sqrt(len(gain)))


def _affordable(workshop: Workshop, overlaps: tuple[float, ...]) -> list[float]:
    """Overlaps that differ in what experts know, and whose factors fit into memory."""
    n, m = len(workshop.data.X), len(workshop.layout.parts)
    kept: dict[int, float] = {}
    for overlap in overlaps:
        known = min(n, n // m + workshop.n_neighbours(overlap))
        if not kept or 8 * m * known**2 <= LARGEST_FACTORS:
            kept.setdefault(known, overlap)
    return list(kept.values())


def _judge(
    workshop: Workshop, space: Space, jury: _Jury, pull: float | Pull, overlap: float
) -> _Scores:
    """Leave rows out in turn, and score all rules of the space on them."""
    folds, held_out = jury.folds, jury.held_out
    if pull == np.inf:  # the shared kernel hardly depends on any one row: nothing to hold out
        folds, held_out = [np.concatenate(folds)], False
    n_seats = len(workshop.layout.parts if jury.members is None else jury.members)
    counts = {None if k is None else min(k, n_seats): None for k in space.nearest}
    widest = None if None in counts else max(k for k in counts if k is not None)
    grid = [
        Rule(*entry) for entry in product(space.temperatures, space.calibrations, list(counts))
    ]
    rules = [
        Rules(weighting_of(space.weighting, rule.temperature), rule.calibration, space.aggregation)
        for rule in grid
    ]

    def answers(said: list[ExpertPredictions]) -> tuple[Array, Array]:
        means, variances = [], []
        for rule, how in zip(grid, rules, strict=True):
            mean, variance, noise = how.combine([_nearest(one, rule.nearest) for one in said])
            means.append(mean)
            variances.append(variance + noise)
        return np.array(means), np.array(variances)

    squares, variances = [], []
    for rows in folds:
        judges = rows if held_out else None
        means, variance = workshop.committee(pull, overlap, jury.members, judges).map_blocks(
            answers,
            workshop.data.X[rows],
            widest,
            workshop.n_jobs,
            left_out=rows,
            with_covariance=rules[0].needs_covariance,
        )
        squares.append((workshop.data.Y[rows].T - means) ** 2)
        variances.append(variance)
    return _score(
        grid,
        np.concatenate(squares, axis=-1),
        np.concatenate(variances, axis=-1),
        space.recalibrate,
    )


def _score(grid: list[Rule], squares: Array, variance: Array, rescale: bool) -> _Scores:
    """From squared errors (R, t, N) and variances (R, N), which may have a scale for each rule."""
    ratio = squares.mean(axis=1) / variance
    scale = np.clip(ratio.mean(axis=1), *SCALES)[:, None] if rescale else 1.0
    nll = 0.5 * (np.log(2 * np.pi * variance * scale) + ratio / scale)
    return _Scores(grid, nll, squares, variance)


def _nearest(said: ExpertPredictions, k: int | None) -> ExpertPredictions:
    """What the first k experts say."""
    covariance = None if said.covariance is None else said.covariance[:k, :k]
    return ExpertPredictions(
        said.mean[:k],
        said.variance[:k],
        said.prior_variance[:k],
        said.noise_variance[:k],
        said.prior_mean[:k],
        covariance,
        said.communication,
    )


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
        workshop.n_jobs,
        left_out=rows,
    )
    neglected = 1 - np.cumsum(weights.mean(axis=1))
    return 1 + int(np.argmax(neglected <= (space.tolerance or 0.0) + 1e-12))


def _neighbouring_rules(scores: _Scores, rule: Rule) -> list[Alternative]:
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
        shape = np.exp((power - 1) * (log_variance - np.log(centre))) * variance
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
