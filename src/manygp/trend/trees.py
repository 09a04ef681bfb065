"""Boosted trees as plain arrays: what scikit-learn has grown, evaluated and kept without it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from manygp.arrays import Array, IndexArray

# Places in trees that are followed at a time: rows times trees.
PLACES = 2**19


class Trees(NamedTuple):
    """The sum of many trees. A node of each is the root, and leaves lead to themselves.

    Attributes
    ----------
    roots : ndarray of shape (T,)
        Nodes at which the trees begin.
    column, left, right : ndarrays of shape (m,)
        Column of X that each node asks for, and the nodes to go on with: left if its value is at
        most the threshold.
    threshold, value : ndarrays of shape (m,)
    baseline : float
    """

    roots: IndexArray
    column: IndexArray
    left: IndexArray
    right: IndexArray
    threshold: Array
    value: Array
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
        return cls(
            roots,
            np.where(leaf, 0, every["feature_idx"]).astype(np.intp),
            np.where(leaf, own, start + every["left"].astype(np.intp)),
            np.where(leaf, own, start + every["right"].astype(np.intp)),
            np.where(leaf, 0.0, every["num_threshold"]),
            every["value"].astype(float),
            float(np.ravel(model._baseline_prediction)[0]),
        )

    def predict(self, X: Array) -> Array:
        """The sums of the leaves that rows X (N, d) end in: (N,)."""
        found = np.empty(len(X))
        size = max(1, PLACES // len(self.roots))
        for start in range(0, len(X), size):
            rows = X[start : start + size]
            found[start : start + size] = self.value[self._leaves(rows)].sum(axis=1)
        return found + self.baseline

    def _leaves(self, X: Array) -> IndexArray:
        """The leaf of each tree that each row ends in: (N, T)."""
        flat, width = np.ascontiguousarray(X).reshape(-1), X.shape[1]
        at = np.broadcast_to(self.roots, (len(X), len(self.roots)))
        first = (width * np.arange(len(X)))[:, None]
        while True:
            goes_left = flat[first + self.column[at]] <= self.threshold[at]
            following = np.where(goes_left, self.left[at], self.right[at])
            if np.array_equal(following, at):
                return following
            at = following


def split_gains(model: Any, d: int) -> Array:
    """How much the splits on each column of a HistGradientBoostingRegressor have gained: (d,)."""
    nodes = np.concatenate([tree.nodes for (tree,) in model._predictors])
    inner = nodes[nodes["is_leaf"] == 0]
    gains = np.maximum(inner["gain"], 0.0).astype(float)
    found: Array = np.bincount(inner["feature_idx"], gains, minlength=d).astype(float)
    return found
