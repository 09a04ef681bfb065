"""Parts of the rows, where they lie, and who is near."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.spatial import cKDTree

from manygp.arrays import Array, IndexArray

# An expert's neighbours are sought in this many times as many rows of the nearest other parts.
CANDIDATES = 8


@dataclass(frozen=True)
class Layout:
    """Parts of the rows, and where they lie in the kernel's metric.

    Attributes
    ----------
    parts : tuple of index arrays
    metric : ndarray of shape (d,)
        Inputs times this are in the kernel's metric.
    centres : ndarray of shape (M, d)
        Means of the parts in that metric.
    """

    parts: tuple[IndexArray, ...]
    metric: Array
    centres: Array

    @classmethod
    def of(cls, U: Array, parts: list[IndexArray], metric: Array) -> Layout:
        """The layout of parts of the rows U (n, d), which are in the metric."""
        return cls(tuple(parts), metric, np.array([U[part].mean(axis=0) for part in parts]))

    def subset(self, members: IndexArray) -> Layout:
        """The layout of some of the parts."""
        parts = tuple(self.parts[m] for m in members)
        return Layout(parts, self.metric, self.centres[members])

    @cached_property
    def tree(self) -> cKDTree:
        return cKDTree(self.centres)

    def nearest(self, X: Array, k: int) -> IndexArray:
        """The k parts whose centres are nearest to each row of X, nearest first: (N, k)."""
        found: IndexArray = self.tree.query(X * self.metric, k=np.arange(1, k + 1))[1]
        return found

    def neighbours(self, U: Array, m: int, count: int) -> IndexArray:
        """`count` rows outside part m, nearest first to any row of it, among nearby parts."""
        size = len(U) / len(self.parts)
        k = min(len(self.parts), 1 + int(np.ceil(CANDIDATES * count / size)))
        near = self.tree.query(self.centres[m], k=np.arange(1, k + 1))[1]
        others = [self.parts[i] for i in near if i != m]
        if count == 0 or not others:
            return np.empty(0, dtype=np.intp)
        rows = np.setdiff1d(np.concatenate(others), self.parts[m])
        own, candidates = U[self.parts[m]] - self.centres[m], U[rows] - self.centres[m]
        squares = candidates @ own.T
        squares *= -2
        squares += np.einsum("ij,ij->i", own, own)
        distance = squares.min(axis=1) + np.einsum("ij,ij->i", candidates, candidates)
        return rows[np.argsort(distance, kind="stable")[:count]]
