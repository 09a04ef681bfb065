"""Boosted trees as plain arrays: what scikit-learn has grown, evaluated and kept without it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from manygp.arrays import Array, IndexArray

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
        found = np.full(len(X), self.baseline)
        size = max(1, min(len(X), PLACES))
        together = PLACES // size
        for start in range(0, len(X), size):
            rows = np.ascontiguousarray(X[start : start + size])
            total = found[start : start + size]
            for roots in np.split(self.roots, range(together, len(self.roots), together)):
                leaves = self.value.take(self._leaves(rows, roots))
                # One after the other, so that no row's digits depend on how many rows there are.
                total[:] = np.cumsum(np.vstack([total, leaves]), axis=0)[-1]
        return found

    def _leaves(self, X: Array, roots: IndexArray) -> IndexArray:
        """The leaf of each of T trees that each of N rows ends in: (T, N)."""
        n, d = X.shape
        values, children = X.reshape(-1), self.children.reshape(-1)
        found = at = np.repeat(roots, n)
        moving, first = np.arange(len(at)), np.tile(d * np.arange(n), len(roots))
        while len(moving):
            for _ in range(STEPS):
                here = at
                larger = values.take(first + self.column.take(here)) > self.threshold.take(here)
                at = children.take(2 * here + larger)
            found[moving] = at
            going = np.flatnonzero(at != here)
            moving, at, first = moving[going], at[going], first[going]
        return found.reshape(len(roots), n)


def split_gains(model: Any, d: int) -> Array:
    """How much the splits on each column of a HistGradientBoostingRegressor have gained: (d,)."""
    nodes = np.concatenate([tree.nodes for (tree,) in model._predictors])
    inner = nodes[nodes["is_leaf"] == 0]
    gains = np.maximum(inner["gain"], 0.0).astype(float)
    found: Array = np.bincount(inner["feature_idx"], gains, minlength=d).astype(float)
    return found
