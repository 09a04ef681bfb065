"""Boosted trees, or any regressor, as a trend: each row is predicted by a model without it.

The rows are dealt into folds. The model of a fold is fitted without it, and predicts it: the
experts learn what these predictions leave. New rows get the mean of all models. Boosted trees are
kept as plain arrays: what scikit-learn has grown is evaluated without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from manygp.arrays import LARGEST, AnyArray, Array, IndexArray
from manygp.checks import bounded, indices, require
from manygp.dual import Dual
from manygp.gp.marginal_likelihood import TrainingData
from manygp.gp.trend import (
    FittedCandidate,
    Trend,
    TrendAt,
    TrendCandidate,
    TrendFactory,
    TrendModel,
)
from manygp.runtime.parallel import thread_map
from manygp.trend.linear import beyond, ranges, read_ranges

# Places in trees that are followed at a time: rows times trees, few enough for a fast cache.
PLACES = 2**16
# Steps between two looks at which places have reached a leaf, and need not be followed any more.
STEPS = 4


class Trees(NamedTuple):
    """The sum of many trees. A node of each is the root, and leaves lead to themselves.

    Attributes
    ----------
    roots : ndarray of shape (T,)
        Nodes at which the trees begin.
    column, threshold, value : ndarrays of shape (m,)
        Column of X that each node asks for, what its value is compared with, and what the node
        adds as a leaf.
    children : ndarray of shape (m, 2)
        The nodes to go on with: the first if the value is at most the threshold.
    baseline : float
    """

    roots: IndexArray
    column: IndexArray
    threshold: Array
    value: Array
    children: IndexArray
    baseline: float

    @classmethod
    def of(cls, model: Any) -> Trees:
        """The trees of a fitted HistGradientBoostingRegressor for rows of finite numbers."""
        nodes = [tree.nodes for (tree,) in model._predictors]
        sizes = [len(one) for one in nodes]
        roots = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp)
        every = np.concatenate(nodes)
        start, own = np.repeat(roots, sizes), np.arange(len(every))
        leaf = every["is_leaf"].astype(bool)
        children = [np.where(leaf, own, start + every[side]) for side in ("left", "right")]
        return cls(
            roots,
            np.where(leaf, 0, every["feature_idx"]).astype(np.intp),
            np.where(leaf, 0.0, every["num_threshold"]),
            every["value"].astype(float),
            np.column_stack(children).astype(np.intp),
            float(np.ravel(model._baseline_prediction)[0]),
        )

    def predict(self, X: Array) -> Array:
        """The sums of the leaves that rows X (N, d) end in: (N,)."""
        sums = np.full(len(X), self.baseline)
        size = max(1, min(len(X), PLACES))
        together = PLACES // size
        for start in range(0, len(X), size):
            rows = np.ascontiguousarray(X[start : start + size])
            total = sums[start : start + size]
            for roots in np.split(self.roots, range(together, len(self.roots), together)):
                leaves = self.value.take(self._leaves(rows, roots))
                # One after the other, so that no row's digits depend on how many rows there are.
                total[:] = np.cumsum(np.vstack([total, leaves]), axis=0)[-1]
        return sums

    def _leaves(self, X: Array, roots: IndexArray) -> IndexArray:
        """The leaf of each of T trees that each of N rows ends in: (T, N)."""
        n, d = X.shape
        values, children = X.reshape(-1), self.children.reshape(-1)
        leaves = at = np.repeat(roots, n)
        moving, first = np.arange(len(at)), np.tile(d * np.arange(n), len(roots))
        while len(moving):
            for _ in range(STEPS):
                here = at
                larger = values.take(first + self.column.take(here)) > self.threshold.take(here)
                at = children.take(2 * here + larger)
            leaves[moving] = at
            going = np.flatnonzero(at != here)
            moving, at, first = moving[going], at[going], first[going]
        return leaves.reshape(len(roots), n)


def split_gains(model: Any, d: int) -> Array:
    """How much the splits on each column of a HistGradientBoostingRegressor have gained: (d,)."""
    nodes = np.concatenate([tree.nodes for (tree,) in model._predictors])
    inner = nodes[nodes["is_leaf"] == 0]
    gains = np.maximum(inner["gain"], 0.0).astype(float)
    sums: Array = np.bincount(inner["feature_idx"], gains, minlength=d).astype(float)
    return sums


# Folds and nodes that a file's trees may have, trees of a fold, and steps from a root to a leaf.
MOST_FOLDS = 20
MOST_NODES = 10**8
MOST_READ_TREES = 1000
MOST_STEPS = 200


@dataclass(frozen=True)
class BoostingChoice:
    """Numbers of the choice of boosted trees, and why they are what they are."""

    folds: int = 5
    # Folds if only some rows are to be predicted.
    trial_folds: int = 2
    # Leaves of a boosted tree: a part of the root of the number of rows, within limits.
    leaves_per_root: float = 0.25
    leaves: tuple[int, int] = (31, 127)
    # The most trees; rows that are left out choose how many.
    most_trees: int = 300
    # Share of the rows that are left out for that.
    choosing_share: float = 0.2
    # "auto" tries boosted trees from the first number of rows to the second: of more they take too
    # long.
    rows: tuple[int, int] = (1000, 400_000)
    # Boosted trees of a trend, and seconds of one for each leaf, row and number.
    usual_trees: int = 200
    leaf_seconds: float = 1e-4
    row_seconds: float = 2.4e-7
    number_seconds: float = 8e-9


BOOSTING = BoostingChoice()


@dataclass(frozen=True, eq=False)
class FoldTrend(TrendModel):
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

    def at(self, X: Any) -> TrendAt:
        """What the models say about rows X (N, d): their mean, and how far they differ outside.

        Inside of the range of the training rows, the experts know how far the models differ: the
        errors of rows that a model has not seen, from which they have learned, contain it.
        """
        if isinstance(X, Dual):
            raise ValueError(
                f"predictions with the trend {self.name!r} have no gradients; fit again with "
                "trend='additive', 'linear', 'constant' or 'none'"
            )
        said = np.array([_predict(models, X, self.name) for models in self.models])
        outside = beyond(X, self.low, self.width)
        spread = said.var(axis=0).mean(axis=1) * np.minimum(outside, 1.0)
        return TrendAt(said.mean(axis=0), spread, outside)

    def to_file(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        if self.name not in ("boosted", "forest"):
            raise ValueError(
                f"trend={self.name} is a regressor, which a model file cannot hold; pickle keeps "
                "any model"
            )
        trees: list[Trees] = [one for fold in self.models for one in fold]
        described = {
            "name": self.name,
            "folds": len(self.models),
            "baselines": [one.baseline for one in trees],
            "explained": self.explained,
        }
        return described, {
            "trend_low": self.low,
            "trend_width": self.width,
            "trend_importance": self.importance,
            "trend_trees": np.array([len(one.roots) for one in trees], dtype=np.int32),
            "trend_nodes": np.array([len(one.value) for one in trees], dtype=np.int32),
            **{
                f"trend_{name}": np.concatenate([array_of(one) for one in trees]).astype(kind)
                for name, (array_of, kind) in TREE_ARRAYS.items()
            },
        }

    @classmethod
    def from_file(
        cls, record: dict[str, Any], arrays: dict[str, AnyArray], shape: tuple[int, int]
    ) -> FoldTrend:
        d, n_targets = shape
        folds, baselines, explained = record["folds"], record["baselines"], record["explained"]
        require(
            type(folds) is int and 1 <= folds <= MOST_FOLDS, "its trend must have 1 to 20 folds"
        )
        numbers = [*baselines, explained]
        small = all(type(one) is float and abs(one) <= LARGEST for one in numbers)
        require(small, "numbers of its trend must be finite, and their squares too")
        require(explained >= 0, "its trend explains a negative variance")
        built = _read_trees(arrays, baselines, folds * n_targets)
        require(
            all(np.all(one.column < d) for one in built),
            "its trees need a column that the rows do not have",
        )
        models = tuple(tuple(built[i * n_targets : (i + 1) * n_targets]) for i in range(folds))
        importance = bounded(arrays, "trend_importance", (d,))
        require(np.all(importance >= 0), "the importance of a column of its trend is negative")
        return cls(record["name"], models, *read_ranges(arrays, d), explained, importance)


# Arrays of all nodes of all trees: places, which are integers, and numbers.
NODES = ("column", "left", "right")
VALUES = ("threshold", "value")
TREE_ARRAYS: dict[str, tuple[Callable[[Trees], AnyArray], type]] = {
    "roots": (lambda trees: trees.roots, np.int32),
    "column": (lambda trees: trees.column, np.int32),
    "left": (lambda trees: trees.children[:, 0], np.int32),
    "right": (lambda trees: trees.children[:, 1], np.int32),
    "threshold": (lambda trees: trees.threshold, np.float64),
    "value": (lambda trees: trees.value, np.float64),
}


def _read_trees(arrays: dict[str, AnyArray], baselines: list[float], count: int) -> list[Trees]:
    """The trees of a file, one sum of them for each fold and target."""
    trees, nodes = (indices(arrays, f"trend_{name}", MOST_NODES) for name in ("trees", "nodes"))
    counts = {count, len(trees), len(nodes), len(baselines)}
    require(len(counts) == 1, "its trees are not as many as it says")
    roots = np.split(indices(arrays, "trend_roots", MOST_NODES), np.cumsum(trees)[:-1])
    ends, total = np.cumsum(nodes)[:-1], int(nodes.sum())
    columns = [np.split(indices(arrays, f"trend_{name}", MOST_NODES), ends) for name in NODES]
    values = [np.split(bounded(arrays, f"trend_{name}", (total,)), ends) for name in VALUES]
    return [
        _trees(roots[i], [one[i] for one in columns], [one[i] for one in values], baselines[i])
        for i in range(len(trees))
    ]


def _trees(
    roots: AnyArray, places: list[AnyArray], numbers: list[AnyArray], baseline: float
) -> Trees:
    """Trees whose nodes lead to later nodes, or to themselves: they have an end."""
    m = len(numbers[0])
    for one in places:
        require(len(one) == m, "the nodes of its trees differ in number")
    column, left, right = places
    require(
        m > 0 and len(roots) > 0 and np.all(roots < m),
        "the roots of its trees are not among their nodes",
    )
    own = np.arange(m)
    leaf = (left == own) & (right == own)
    later = (left > own) & (right > own) & (left < m) & (right < m)
    require(np.all(leaf | later), "a node of its trees leads to no leaf")
    threshold, value = numbers
    children = np.column_stack([left, right])
    ways = np.bincount(np.concatenate([roots, children[~leaf].ravel()]), minlength=m)
    require(np.all(ways <= 1), "its trees share a node")
    require(len(roots) <= MOST_READ_TREES, f"its trend has more than {MOST_READ_TREES} trees")
    require(_are_shallow(roots, children), "its trees take too many steps from root to leaf")
    return Trees(roots, column, threshold, value, children, baseline)


def _are_shallow(roots: AnyArray, children: AnyArray) -> bool:
    """Whether all leaves are at most so many steps from their root."""
    nodes = roots
    for _ in range(MOST_STEPS + 1):
        below = children[nodes]
        nodes = below[below != nodes[:, None]]  # a leaf leads to itself
    return len(nodes) == 0


class Boosting(NamedTuple):
    """Number of trees of each target, and what they leave of rows that are left out.

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

    leaves = int(np.clip(BOOSTING.leaves_per_root * np.sqrt(len(data.X)), *BOOSTING.leaves))
    trees = partial(HistGradientBoostingRegressor, max_leaf_nodes=leaves, random_state=seed)

    weights = None if data.spread is None else 1 / data.spread

    def scores(y: Array) -> Array:
        tried = trees(
            max_iter=BOOSTING.most_trees,
            early_stopping=True,
            validation_fraction=BOOSTING.choosing_share,
        )
        with threadpool_limits(1, user_api="openmp"):
            halves: Array = tried.fit(data.X, y, weights).validation_score_
        return -2 * halves  # they are halves of negative squared errors, from no tree on

    with thread_map(n_jobs) as parallel_map:
        errors = list(parallel_map(scores, data.residuals.T))
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
            return cls(rng.permutation(n) % min(BOOSTING.folds, n), min(BOOSTING.folds, n))
        fold_of = np.full(n, -1)
        fold_of[rows] = rng.permutation(len(rows)) % BOOSTING.trial_folds
        return cls(fold_of, BOOSTING.trial_folds)


def fit_folds(
    name: str, regressors: tuple[Any, ...], data: TrainingData, folds: Folds, n_jobs: int | None
) -> Trend:
    """The trend of a regressor for each target, cloned for each fold, and its training rows.

    Boosted trees, by this name, are kept as plain arrays.
    """
    X, Y, (fold_of, n_folds) = data.X, data.residuals, folds
    asked = np.flatnonzero(fold_of >= 0)

    def fit(fold: int) -> tuple[tuple[Any, ...], Array, Array]:
        others = fold_of != fold
        with threadpool_limits(1, user_api="openmp"):  # folds run in parallel
            pairs = zip(regressors, Y[others].T, strict=True)
            weights = None if data.spread is None else 1 / data.spread[others]
            models = tuple(_fit(name, one, X[others], y, weights) for one, y in pairs)
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


def _fit(name: str, regressor: Any, X: Array, y: Array, weights: Array | None) -> Any:
    from sklearn.base import clone
    from sklearn.utils.validation import has_fit_parameter

    try:
        model = clone(regressor)
    except (TypeError, RuntimeError) as error:
        raise ValueError(
            f"trend={name} cannot be cloned, and each fold needs one of its own: {error}"
        ) from error
    try:
        if weights is not None and has_fit_parameter(model, "sample_weight"):
            return model.fit(X, y, sample_weight=weights)
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


def _factory(
    name: str, regressors: tuple[Any, ...], data: Any, seed: int, n_jobs: int | None
) -> Callable[[IndexArray | None], TrendCandidate]:
    """Fits the models of the folds of all rows, or few folds of some."""

    def fit(rows: IndexArray | None) -> TrendCandidate:
        folds = Folds.of(len(data.X), seed, rows)
        trend = fit_folds(name, regressors, data, folds, n_jobs)
        return FittedCandidate(name, data.residuals - trend.fitted, trend)

    return fit


def regressor_factory(regressor: Any, data: Any, seed: int, run: Any) -> TrendFactory:
    """A regressor of the user's as the trend."""
    name = type(regressor).__name__
    run.progress.begin(f"{name} trend")
    regressors = (regressor,) * data.residuals.shape[1]
    return TrendFactory(_factory(name, regressors, data, seed, run.n_jobs))


class BoostedFamily:
    """Boosted trees whose number is chosen by rows that are left out."""

    model = FoldTrend
    names = ("boosted",)

    def factories(self, trend: str, data: Any, seed: int, run: Any) -> Iterator[TrendFactory]:
        if not self.is_tried(trend, len(data.X)):
            return
        run.progress.begin("boosted trend")
        boosting = choose_boosting(data, seed, run.n_jobs)
        fit = _factory("boosted", boosting.regressors, data, seed, run.n_jobs)
        yield TrendFactory(fit, boosting.mean_square)

    def is_tried(self, trend: str, n: int) -> bool:
        """Whether the parameter asks for it, or leaves it to the number of rows."""
        return trend != "auto" or BOOSTING.rows[0] <= n <= BOOSTING.rows[1]

    def seconds(self, trend: str, shape: tuple[int, int], speed: Any) -> dict[str, float]:
        if not self.is_tried(trend, shape[0]):
            return {}
        return {
            "boosted": self.fold_seconds(
                shape, speed, BOOSTING.trial_folds if trend == "auto" else BOOSTING.folds
            )
        }

    def fold_seconds(
        self, shape: tuple[int, int], speed: Any, folds: int = BOOSTING.folds
    ) -> float:
        """Seconds to choose the number of trees, and to fit those of the folds."""
        n, d = shape
        leaves = float(np.clip(BOOSTING.leaves_per_root * np.sqrt(n), *BOOSTING.leaves))
        tree = BOOSTING.leaf_seconds * leaves + n * (
            BOOSTING.row_seconds + BOOSTING.number_seconds * d
        )
        return BOOSTING.usual_trees * tree * (1 + folds / speed.gain)


FAMILY = BoostedFamily()
