"""The parts of the rows: where they lie in the kernel's metric, and which are near."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from manygp.arrays import Array, IndexArray, read_only

# The neighbours of a part are sought among this multiple of their number, in the nearest parts.
CANDIDATES = 8


@dataclass(frozen=True)
class Layout:
    """Parts of the rows, and where they lie in the kernel's metric.

    Attributes
    ----------
    parts : sequence of index arrays
    metric : ndarray of shape (d,)
        Inputs times this are in the kernel's metric.
    centres : ndarray of shape (M, d)
        Means of the parts in that metric.
    copies : int
        How often a single part counts: 1, but M in the paper's GP-pro-full, whose M experts all
        have all rows.
    """

    parts: Sequence[IndexArray]
    metric: Array
    centres: Array
    copies: int = 1

    @classmethod
    def of(cls, X: Array, parts: Sequence[IndexArray], metric: Array) -> Layout:
        """The layout of parts of the rows X (n, d).

        Equal parts, if all are equal, are one part that counts several times.
        """
        copies = 1
        if all(np.array_equal(part, parts[0]) for part in parts):
            parts, copies = (parts[0],), len(parts)
        centres = np.array([(X[part] * metric).mean(axis=0) for part in parts])
        parts = tuple(parts) if isinstance(parts, list) else parts
        return cls(parts, read_only(metric), read_only(centres), copies)

    def __len__(self) -> int:
        """The number of experts, copies included."""
        return len(self.parts) * self.copies

    @property
    def is_single(self) -> bool:
        """Whether there is one part, which has all rows."""
        return len(self.parts) == 1

    def subset(self, members: IndexArray) -> Layout:
        """The layout of some of the parts."""
        parts = tuple(self.parts[m] for m in members)
        return Layout(parts, self.metric, self.centres[members])

    def __getstate__(self) -> dict[str, Any]:
        """All but the tree, which not every format can hold."""
        return {name: value for name, value in vars(self).items() if name != "tree"}

    @cached_property
    def tree(self) -> cKDTree:
        return cKDTree(self.centres)

    def nearest(self, X: Array, k: int) -> IndexArray:
        """The k parts whose centres are nearest to each row of X, nearest first: (N, k)."""
        found: IndexArray = self.tree.query(X * self.metric, k=np.arange(1, k + 1))[1]
        return found

    def neighbours(self, X: Array, m: int, count: int) -> IndexArray:
        """`count` rows of X outside part m, nearest first to any row of it, in nearby parts."""
        size = len(X) / len(self.parts)
        k = min(len(self.parts), 1 + int(np.ceil(CANDIDATES * count / size)))
        near = self.tree.query(self.centres[m], k=np.arange(1, k + 1))[1]
        others = [self.parts[i] for i in near if i != m]
        if count == 0 or not others:
            return np.empty(0, dtype=np.intp)
        rows = np.setdiff1d(np.concatenate(others), self.parts[m])
        own, candidates = (
            X[some] * self.metric - self.centres[m] for some in (self.parts[m], rows)
        )
        squares = candidates @ own.T
        squares *= -2
        squares += np.einsum("ij,ij->i", own, own)
        distance = squares.min(axis=1) + np.einsum("ij,ij->i", candidates, candidates)
        return rows[np.argsort(distance, kind="stable")[:count]]
