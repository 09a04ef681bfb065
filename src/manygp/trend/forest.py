"""Forests as a trend of few experts: each row is predicted by the trees that have not seen it.

A tree learns from a draw of the rows. What the trees without a row say of it is honest for free:
the experts learn what these predictions leave. A share of the forest below 1 is a mean of forest
and Gaussian process, which learns the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.gp.trend import FittedCandidate, Trend, TrendFactory
from manygp.trend.boosted import FoldTrend, Trees
from manygp.trend.linear import ranges


@dataclass(frozen=True)
class ForestChoice:
    """Numbers of forests, and why they are what they are."""

    # Trees: with twice as many errors fall by less than a hundredth.
    trees: int = 100
    leaf_rows: int = 1
    # "auto" tries forests from the first number of rows to the second: of fewer rows a tree
    # learns nothing, and of more boosted trees do better.
    rows: tuple[int, int] = (30, 1000)
    # Seconds of a tree, and of one for each row.
    tree_seconds: float = 5e-4
    row_seconds: float = 2e-6


FOREST = ForestChoice()


def grow(X: Array, Y: Array, seed: int) -> tuple[tuple[Trees, ...], Array, Array]:
    """The forest of each target, what trees that have not seen a row say of it, and importances.

    Parameters
    ----------
    X, Y : ndarrays of shape (n, d), (n, t)
    seed : int

    Returns
    -------
    forests : tuple of t Trees
    unseen : ndarray of shape (n, t)
    importance : ndarray of shape (d,)
    """
    from sklearn.ensemble import ExtraTreesRegressor

    order = np.lexsort([*Y.T, *X.T])  # whatever the order that rows come in
    X, Y = X[order], _rounded(Y[order])
    forests, unseen, importance = [], [], np.zeros(X.shape[1])
    for y in Y.T:
        forest = ExtraTreesRegressor(
            FOREST.trees, min_samples_leaf=FOREST.leaf_rows, bootstrap=True, random_state=seed
        )
        forest.fit(X, y)
        trees = trees_of(forest)
        forests.append(trees)
        unseen.append(_unseen(forest, trees, X))
        importance += forest.feature_importances_
    said = np.column_stack(unseen)[np.argsort(order)]
    return tuple(forests), said, importance / max(float(importance.sum()), 1e-300)


def _rounded(Y: Array) -> Array:
    """Targets (n, t) to nine digits: rounding in other units of y shall not tip a split over."""
    _, power = np.frexp(np.abs(Y).max(axis=0))
    rounded: Array = np.ldexp(np.round(np.ldexp(Y, 30 - power)), power - 30)
    return rounded


def trees_of(forest: Any) -> Trees:
    """The trees of a fitted forest of scikit-learn as plain arrays."""
    trees = [one.tree_ for one in forest.estimators_]
    sizes = [one.node_count for one in trees]
    roots = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp)
    start, own = np.repeat(roots, sizes), np.arange(sum(sizes))
    left, right, column = (
        np.concatenate([getattr(one, name) for one in trees])
        for name in ("children_left", "children_right", "feature")
    )
    leaf = left < 0
    threshold = np.concatenate([one.threshold for one in trees])
    value = np.concatenate([one.value[:, 0, 0] for one in trees]) / len(trees)
    children = [np.where(leaf, own, start + side) for side in (left, right)]
    return Trees(
        roots,
        np.where(leaf, 0, column).astype(np.intp),
        np.where(leaf, 0.0, threshold),
        np.where(leaf, value, 0.0),
        np.column_stack(children).astype(np.intp),
        0.0,
    )


def _unseen(forest: Any, trees: Trees, X: Array) -> Array:
    """The mean of the trees that have not learned from a row: (n,)."""
    n = len(X)
    is_new = np.ones((len(trees.roots), n), dtype=bool)
    for own, rows in zip(is_new, forest.estimators_samples_, strict=True):
        own[rows] = False
    is_new |= ~is_new.any(axis=0)  # all of them have: then all speak
    said = trees.value[trees._leaves(np.ascontiguousarray(X), trees.roots)] * len(trees.roots)
    mean: Array = (is_new * said).sum(axis=0) / is_new.sum(axis=0)
    return mean


def forest_trend(X: Array, Y: Array, seed: int) -> Trend:
    """The forest of rows X (n, d) and targets Y (n, t), and what it says about these rows."""
    forests, unseen, importance = grow(X, Y, seed)
    explained = float(unseen.var(axis=0).mean())
    model = FoldTrend("forest", (forests,), *ranges(X), explained, importance)
    said = np.column_stack([one.predict(X) for one in forests])
    return Trend(model, unseen, unseen - said, np.zeros(len(X)))


def part_of(trend: Trend, share: float) -> Trend:
    """A share of a forest: with an expert that learns the rest, a mean of both."""
    forest = trend.model
    assert isinstance(forest, FoldTrend)
    (trees,) = forest.models
    scaled = tuple(one._replace(value=share * one.value) for one in trees)
    model = replace(forest, models=(scaled,), explained=share**2 * forest.explained)
    return Trend(model, share * trend.fitted, share * trend.shift, trend.growth)


class ForestFamily:
    """Extra trees, whose rows out of the bag stand for rows that are left out."""

    model = FoldTrend
    names = ("forest",)

    def factories(self, trend: str, data: Any, seed: int, run: Any) -> Iterator[TrendFactory]:
        if not self.is_tried(trend, len(data.X)):
            return
        run.progress.begin("forest trend")
        forest = forest_trend(data.X, data.residuals, seed)
        residuals = data.residuals - forest.fitted

        def fit(_: IndexArray | None) -> FittedCandidate:
            return FittedCandidate("forest", residuals, forest)

        yield TrendFactory(fit, float(np.mean(residuals**2)))

    def is_tried(self, trend: str, n: int) -> bool:
        """Whether the parameter asks for it, or leaves it to the number of rows."""
        return trend != "auto" or FOREST.rows[0] <= n <= FOREST.rows[1]

    def seconds(self, trend: str, shape: tuple[int, int], speed: Any) -> dict[str, float]:
        n, _ = shape
        if not self.is_tried(trend, n):
            return {}
        each = FOREST.tree_seconds + FOREST.row_seconds * n * np.log2(n + 1)
        return {"forest": float(FOREST.trees * each)}


FAMILY = ForestFamily()
