"""Committees on trial: what each would say about rows of the training data that it leaves out."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.rules.combine import Rules, weighting_of
from manygp.rules.records import Aggregation, Calibration, ExpertPredictions, Pull
from manygp.training.builder import Workshop

# Committees are judged on so many rows, of all experts or of those in some regions. Experts learn
# their hyperparameters without the rows of the fold that judges them.
JUDGED_ROWS, JUDGED_EXPERTS, REGIONS, FOLDS = 2000, 64, 8, 4
# The smallest and largest scale of variances that is believed.
SCALES = (1e-3, 1e3)


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


class Scores(NamedTuple):
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

    @property
    def best_nll(self) -> Array:
        """Of each row, by the best rule: (N,)."""
        nll: Array = self.nll[self.best]
        return nll


def rules_of(space: Space, rule: Rule) -> Rules:
    weighting = weighting_of(space.weighting, rule.temperature)
    return Rules(weighting, rule.calibration, space.aggregation)


class Jury(NamedTuple):
    """The members of the committees that are compared, and folds of rows that judge them.

    `held_out` says whether the members learn their hyperparameters without the fold.
    """

    members: IndexArray | None
    folds: list[IndexArray]
    held_out: bool


def jury_of(workshop: Workshop, rng: np.random.Generator) -> Jury:
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
        return Jury(None, [np.sort(rows)], held_out=False)
    folds = [np.concatenate([rows[f::FOLDS] for rows in shuffled]) for f in range(FOLDS)]
    n_folds = min(FOLDS, -(-JUDGED_ROWS // len(folds[0])))
    most = JUDGED_ROWS // n_folds
    folds = [np.sort(rng.permutation(fold)[:most]) for fold in folds[:n_folds]]
    return Jury(members, folds, held_out=True)


def judge(
    workshop: Workshop, space: Space, jury: Jury, pull: float | Pull, overlap: float
) -> Scores:
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
    rules = [rules_of(space, rule) for rule in grid]

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
            workshop.run.n_jobs,
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


def _score(grid: list[Rule], squares: Array, variance: Array, rescale: bool) -> Scores:
    """From squared errors (R, t, N) and variances (R, N), which may have a scale for each rule."""
    ratio = squares.mean(axis=1) / variance
    scale = np.clip(ratio.mean(axis=1), *SCALES)[:, None] if rescale else 1.0
    nll = 0.5 * (np.log(2 * np.pi * variance * scale) + ratio / scale)
    return Scores(grid, nll, squares, variance)


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
