"""A tree that sorts rows into groups of neighbours, grown on a sample of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manygp.arrays import Array, IndexArray


class GroupTree(NamedTuple):
    """Nodes that ask for one column each, and leaves that are groups.

    Attributes
    ----------
    column : ndarray of shape (m,)
        The column that a node asks for; -1 in a leaf.
    threshold : ndarray of shape (m,)
    left, right : ndarrays of shape (m,)
        Nodes to go on with: left if the value is at most the threshold. In a leaf, `left` is the
        number of its group.
    """

    column: IndexArray
    threshold: Array
    left: IndexArray
    right: IndexArray

    @property
    def n_groups(self) -> int:
        return int((self.column < 0).sum())

    def group_of(self, U: Array) -> IndexArray:
        """The group of each row of U (N, d): (N,)."""
        node, rows = np.zeros(len(U), dtype=np.intp), np.arange(len(U))
        while True:
            column = self.column[node]
            inner = column >= 0
            if not inner.any():
                groups: IndexArray = self.left[node]
                return groups
            goes_left = U[rows, np.maximum(column, 0)] <= self.threshold[node]
            following = np.where(goes_left, self.left[node], self.right[node])
            node = np.where(inner, following, node)


def grow(U: Array, n_groups: int) -> GroupTree:
    """Cut a sample U (n, d) in two along its widest column, and each half again.

    Groups hold about the same number of rows. The last column comes into play only where the
    others do not differ.
    """
    nodes: list[list[float]] = []
    groups = 0

    def cut(rows: IndexArray, share: int) -> int:
        nonlocal groups
        place = len(nodes)
        nodes.append([-1.0, 0.0, 0.0, 0.0])
        split = _split(U[rows], share) if share > 1 and len(rows) > 1 else None
        if split is None:
            nodes[place][2] = groups
            groups += 1
            return place
        column, threshold = split
        inside = U[rows, column] <= threshold
        part = int(np.clip(round(share * inside.mean()), 1, share - 1))
        left = cut(rows[inside], part)
        nodes[place] = [column, threshold, left, cut(rows[~inside], share - part)]
        return place

    cut(np.arange(len(U)), n_groups)
    column, threshold, left, right = np.array(nodes).T
    return GroupTree(
        column.astype(np.intp), threshold, left.astype(np.intp), right.astype(np.intp)
    )


def _split(U: Array, share: int) -> tuple[int, float] | None:
    """The column and the value at which rows are cut, so that neither side is empty."""
    width = np.ptp(U, axis=0)
    if width[:-1].any():
        width[-1] = 0.0
    column = int(np.argmax(width))
    values = np.sort(U[:, column])
    if values[0] == values[-1]:
        return None
    threshold = values[max(0, len(values) * (share // 2) // share - 1)]
    if threshold == values[-1]:
        threshold = values[np.searchsorted(values, threshold) - 1]
    return column, float(threshold)
