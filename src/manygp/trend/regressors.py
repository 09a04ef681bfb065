"""Any regressor as a trend: each row is predicted by a model that has not seen it.

The rows are dealt into folds. The model of a fold is fitted without it, and predicts it: the
experts learn what these predictions leave. New rows get the mean of all models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from manygp.arrays import Array
from manygp.gp.likelihood import TrainingData
from manygp.gp.trend import Trend, TrendAt
from manygp.runtime.parallel import thread_map
from manygp.trend.terms import beyond, ranges
from manygp.trend.trees import Trees, split_gains

FOLDS = 5


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
        """What the models say about rows X (N, d): their mean and variance."""
        said = np.array([_predict(models, X, self.name) for models in self.models])
        outside = beyond(X, self.low, self.width)
        return TrendAt(said.mean(axis=0), said.var(axis=0).mean(axis=1), outside)


def fit_boosted(data: TrainingData, seed: int, n_jobs: int | None) -> Trend:
    """The trend of boosted trees, kept as plain arrays."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    trees = HistGradientBoostingRegressor(random_state=seed, early_stopping=False)
    return fit_folds("boosted", trees, data, seed, n_jobs)


def fit_folds(
    name: str, regressor: Any, data: TrainingData, seed: int, n_jobs: int | None
) -> Trend:
    """The trend of a regressor, which is cloned for each fold, and its training rows."""
    X, Y, n = data.X, data.Y, len(data.X)
    n_folds = min(FOLDS, n)
    fold_of = np.random.default_rng(seed).permutation(n) % n_folds

    def fit(fold: int) -> tuple[Any, ...]:
        others = fold_of != fold
        with threadpool_limits(1, user_api="openmp"):  # folds run in parallel
            return tuple(_fit(name, regressor, X[others], y) for y in Y[others].T)

    with thread_map(n_jobs) as parallel_map:
        models = tuple(parallel_map(fit, range(n_folds)))
    importance = _importance(models, X.shape[1])
    if name == "boosted":
        models = tuple(tuple(Trees.of(model) for model in fold) for fold in models)
    own = np.empty_like(Y)
    for fold, fitted in enumerate(models):
        inside = fold_of == fold
        own[inside] = _predict(fitted, X[inside], name)
    explained = float(own.var(axis=0).mean())
    trend = FoldTrend(name, models, *ranges(X), explained, importance)
    said = trend.at(X)
    return Trend(trend, own, own - said.mean, np.zeros(n))


def _importance(models: tuple[tuple[Any, ...], ...], d: int) -> Array:
    """The mean of what the models say about the columns, which sums to one: (d,)."""
    total = np.zeros(d)
    for model in (one for fold in models for one in fold):
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
