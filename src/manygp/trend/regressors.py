"""Any regressor as a trend: each row is predicted by a model that has not seen it.

The rows are dealt into folds. The model of a fold is fitted without it, and predicts it: the
experts learn what these predictions leave. New rows get the mean of all models.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from manygp.arrays import Array, IndexArray
from manygp.gp.likelihood import TrainingData
from manygp.gp.trend import Trend, TrendAt
from manygp.runtime.parallel import thread_map
from manygp.trend.terms import beyond, ranges
from manygp.trend.trees import Trees, split_gains

FOLDS = 5
# Folds if only some rows are to be predicted.
TRIAL_FOLDS = 2
# Leaves of a boosted tree: a part of the root of the number of rows, within limits.
LEAVES_PER_ROOT = 0.25
LEAVES = (31, 127)
# The most trees; rows that are left out choose how many.
MOST_TREES = 300
# Share of the rows that are left out for that.
CHOOSING_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class FoldTrend:
    """The models of the folds.

    Attributes
    ----------
    name : str
    models : tuple of tuples of regressors
        For each fold one for each target.
    low, width : ndarrays of shape (d,)
        Ranges of the columns of the training rows.
    explained : float
    importance : ndarray of shape (d,)
        Share of each column in what the models do, as they say themselves; all the same if they
        do not say.
    """

    name: str
    models: tuple[tuple[Any, ...], ...]
    low: Array
    width: Array
    explained: float
    importance: Array

    def at(self, X: Array) -> TrendAt:
        """What the models say about rows X (N, d): their mean, and how far they differ outside.

        Inside of the range of the training rows, the experts know how far the models differ: the
        errors of rows that a model has not seen, from which they have learned, contain it.
        """
        said = np.array([_predict(models, X, self.name) for models in self.models])
        outside = beyond(X, self.low, self.width)
        spread = said.var(axis=0).mean(axis=1) * np.minimum(outside, 1.0)
        return TrendAt(said.mean(axis=0), spread, outside)


class Boosting(NamedTuple):
    """How many trees each target needs, and what they then leave of rows that are left out.

    Attributes
    ----------
    regressors : tuple of t HistGradientBoostingRegressor
        Not fitted.
    mean_square : float
        The mean squared error of trees fitted to the other rows.
    """

    regressors: tuple[Any, ...]
    mean_square: float


def choose_boosting(data: TrainingData, seed: int, n_jobs: int | None) -> Boosting:
    """The number of trees for each target, by rows that are left out."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    leaves = int(np.clip(LEAVES_PER_ROOT * np.sqrt(len(data.X)), *LEAVES))
    trees = partial(HistGradientBoostingRegressor, max_leaf_nodes=leaves, random_state=seed)

    def scores(y: Array) -> Array:
        tried = trees(max_iter=MOST_TREES, early_stopping=True, validation_fraction=CHOOSING_SHARE)
        with threadpool_limits(1, user_api="openmp"):
            found: Array = tried.fit(data.X, y).validation_score_
        return -2 * found  # they are halves of negative squared errors, from no tree on

    with thread_map(n_jobs) as parallel_map:
        errors = list(parallel_map(scores, data.Y.T))
    regressors = tuple(
        trees(max_iter=max(1, int(np.argmin(one))), early_stopping=False) for one in errors
    )
    return Boosting(regressors, float(np.mean([one.min() for one in errors])))


class Folds(NamedTuple):
    """The fold of each row: (n,). Rows of fold -1 are never left out, nor predicted."""

    fold_of: IndexArray
    n_folds: int

    @classmethod
    def of(cls, n: int, seed: int, rows: IndexArray | None = None) -> Folds:
        """Folds of all rows, or few folds of some that stand for all."""
        rng = np.random.default_rng(seed)
        if rows is None:
            return cls(rng.permutation(n) % min(FOLDS, n), min(FOLDS, n))
        fold_of = np.full(n, -1)
        fold_of[rows] = rng.permutation(len(rows)) % TRIAL_FOLDS
        return cls(fold_of, TRIAL_FOLDS)


def fit_folds(
    name: str, regressors: tuple[Any, ...], data: TrainingData, folds: Folds, n_jobs: int | None
) -> Trend:
    """The trend of a regressor for each target, cloned for each fold, and its training rows.

    Boosted trees, by this name, are kept as plain arrays.
    """
    X, Y, (fold_of, n_folds) = data.X, data.Y, folds
    asked = np.flatnonzero(fold_of >= 0)

    def fit(fold: int) -> tuple[tuple[Any, ...], Array, Array]:
        others = fold_of != fold
        with threadpool_limits(1, user_api="openmp"):  # folds run in parallel
            pairs = zip(regressors, Y[others].T, strict=True)
            models = tuple(_fit(name, one, X[others], y) for one, y in pairs)
            importance = _importance(models, X.shape[1])
            if name == "boosted":
                models = tuple(map(Trees.of, models))
            return models, importance, _predict(models, X[asked], name)

    with thread_map(n_jobs) as parallel_map:
        models, importances, predictions = zip(*parallel_map(fit, range(n_folds)), strict=True)
    importance, said = np.mean(importances, axis=0), np.array(predictions)
    own, mean = np.zeros_like(Y), np.zeros_like(Y)
    own[asked] = said[fold_of[asked], np.arange(len(asked))]
    mean[asked] = said.mean(axis=0)
    explained = float(own[asked].var(axis=0).mean())
    trend = FoldTrend(name, models, *ranges(X), explained, importance)
    return Trend(trend, own, own - mean, np.zeros(len(X)))


def _importance(models: tuple[Any, ...], d: int) -> Array:
    """The mean of what models say about the columns, which sums to one: (d,)."""
    total = np.zeros(d)
    for model in models:
        if hasattr(model, "_predictors"):
            said = split_gains(model, d)
        else:
            said = np.abs(np.ravel(getattr(model, "feature_importances_", np.ones(d))))
        total += said / max(said.sum(), 1e-300) if len(said) == d else 1 / d
    return total / max(total.sum(), 1e-300)


def _fit(name: str, regressor: Any, X: Array, y: Array) -> Any:
    from sklearn.base import clone

    try:
        model = clone(regressor)
    except (TypeError, RuntimeError) as error:
        raise ValueError(
            f"trend={name} cannot be cloned, and each fold needs one of its own: {error}"
        ) from error
    try:
        return model.fit(X, y)
    except Exception as error:
        raise ValueError(
            f"trend={name} cannot be fitted to {len(X):,} rows, which are scaled: {error}"
        ) from error


def _predict(models: tuple[Any, ...], X: Array, name: str) -> Array:
    """What the model of each target predicts: (N, t)."""
    columns = [np.asarray(model.predict(X), dtype=float) for model in models]
    if any(column.size != len(X) or not np.all(np.isfinite(column)) for column in columns):
        shapes = ", ".join(str(column.shape) for column in columns)
        raise ValueError(
            f"trend={name} must predict a finite number for each of {len(X):,} rows; it gave "
            f"numbers of shape {shapes}, or numbers that are not finite"
        )
    return np.column_stack([column.reshape(len(X)) for column in columns])
