"""Scores of committees on rows of the training data that they leave out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.committee.committee import Query
from manygp.findings import Shrinkage
from manygp.rules.combine import PredictionRules
from manygp.rules.records import ExpertPredictions
from manygp.settings import SearchSpace
from manygp.training.builder import Builder

# Rows that are left out to compare committees, at most.
COMPARED_ROWS = 2000
# Experts of the committees that are compared, at most; of more, those of some regions take part.
COMPARED_EXPERTS = 64
REGIONS = 8
# Experts learn their hyperparameters without the rows of the fold that is left out.
FOLDS = 4
# The smallest and largest scale of variances that is believed.
SCALES = (1e-3, 1e3)


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
    shuffled = [rng.permutation(parts[m]) for m in members if len(parts[m]) > FOLDS]
    if not shuffled:
        rows = rng.permutation(len(builder.data.X))[:COMPARED_ROWS]
        return LeftOut(None, [np.sort(rows)], unlearned=False)
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
        squares.append((builder.data.Y[rows].T - means) ** 2)
        variances.append(variance)
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
