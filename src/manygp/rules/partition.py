"""Assignments of rows to experts: (X, n_parts, rng) -> index arrays."""

from __future__ import annotations

import warnings
from typing import TypeVar

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.rules.records import Partitioner

# k-means clusters outside these multiples of the mean size are mended.
SMALLEST_CLUSTER = 0.1
LARGEST_CLUSTER = 3.0
# More clusters than this are sought in groups, since the seeding of k-means takes time of order
# n k^2: groups of at least this many clusters, found with this many rows per group.
MOST_CLUSTERS = 128
GROUP_CLUSTERS = 16
SAMPLED_ROWS = 100
# A group with more than this share of all rows has nothing to tell them apart.
MOST_OF_ALL = 0.9


Rule = TypeVar("Rule", bound=Partitioner)


def whole(partition: Rule) -> Rule:
    """Declare that each part of a partition holds all rows, whatever their number."""
    partition.all_rows = True  # type: ignore[attr-defined]
    return partition


def has_all_rows(partition: Partitioner) -> bool:
    """Whether a partition has declared that each of its parts holds all rows."""
    return bool(getattr(partition, "all_rows", False))


def random(X: Array, n_parts: int, rng: np.random.Generator) -> list[IndexArray]:
    """Rows at random, in parts whose sizes differ by at most one."""
    return [np.sort(part) for part in np.array_split(rng.permutation(len(X)), n_parts)]


def kmeans(X: Array, n_parts: int, rng: np.random.Generator) -> list[IndexArray]:
    """SciPy's k-means clusters, mended.

    Rows of empty and tiny clusters join the nearest of the other centres; a cluster of many
    times the mean size is cut along its widest column. Fewer distinct rows than parts have no
    clusters: they are partitioned at random. Many clusters are sought within larger ones.
    """
    from scipy.cluster.vq import kmeans2  # here and below: the command line starts faster
    from scipy.spatial import cKDTree

    parts: list[IndexArray] = []
    if n_parts > MOST_CLUSTERS:
        for rows in _groups(X, min(MOST_CLUSTERS, n_parts // GROUP_CLUSTERS), rng):
            method = random if len(rows) > MOST_OF_ALL * len(X) else kmeans
            n_own = max(1, round(n_parts * len(rows) / len(X)))
            parts += [rows[part] for part in method(X[rows], n_own, rng)]
        return parts
    if len(np.unique(X, axis=0)) < n_parts:
        return random(X, n_parts, rng)
    # Rows may be so near each other that their squared distances are 0.
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.filterwarnings("ignore", message="One of the clusters is empty")
        centres, labels = kmeans2(X, n_parts, minit="++", rng=rng)
    mean_size = len(X) / n_parts
    sizes = np.bincount(labels, minlength=n_parts)
    kept = np.flatnonzero(sizes >= max(1.0, SMALLEST_CLUSTER * mean_size))
    orphans = np.flatnonzero(~np.isin(labels, kept))
    if len(orphans):
        labels[orphans] = kept[cKDTree(centres[kept]).query(X[orphans])[1]]
    for label in kept:
        rows = np.flatnonzero(labels == label)
        n_pieces = 1
        if len(rows) > LARGEST_CLUSTER * mean_size:
            n_pieces = round(len(rows) / mean_size)
            rows = rows[np.argsort(X[rows, np.argmax(np.ptp(X[rows], axis=0))], kind="stable")]
        parts += [np.sort(piece) for piece in np.array_split(rows, n_pieces)]
    return parts


def _groups(X: Array, n_groups: int, rng: np.random.Generator) -> list[IndexArray]:
    """Rows by the nearest centre of the k-means clusters of a sample."""
    from scipy.spatial import cKDTree

    sample = X[rng.permutation(len(X))[: SAMPLED_ROWS * n_groups]]
    parts = kmeans(sample, n_groups, rng)
    labels = cKDTree([sample[part].mean(axis=0) for part in parts]).query(X)[1]
    order = np.argsort(labels, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(labels, minlength=len(parts)))[:-1])
    return [rows for rows in groups if len(rows)]


def balltree(X: Array, n_parts: int, rng: np.random.Generator) -> list[IndexArray]:
    """Rows drawn from the nodes of a ball tree, from the leaves to the root.

    The tree is as deep as it can be with n / n_parts rows or more in each leaf. Each node in
    turn gives parts of n // n_parts of its rows that are not in use yet, while it has enough.
    The fewer than n_parts rows that are left join the nearest part each, at most one a part:
    sizes differ by at most one.
    """
    from sklearn.neighbors import BallTree

    size = len(X) // n_parts
    n_leaves = 2 ** (n_parts.bit_length() - 1)
    _, order, nodes, _ = BallTree(X, leaf_size=max(1, (len(X) - 1) // n_leaves)).get_arrays()
    unused = np.ones(len(X), dtype=bool)
    parts: list[IndexArray] = []
    for node in nodes[::-1]:  # children come after their parents
        rows = order[node["idx_start"] : node["idx_end"]]
        rows = rng.permutation(rows[unused[rows]])
        for start in range(0, len(rows) - size + 1, size):
            if len(parts) < n_parts:
                parts.append(rows[start : start + size])
                unused[parts[-1]] = False
    centres = np.array([X[part].mean(axis=0) for part in parts])
    open_parts = np.ones(n_parts, dtype=bool)
    for row in np.flatnonzero(unused):
        distances = ((centres - X[row]) ** 2).sum(axis=1)
        nearest = int(np.argmin(np.where(open_parts, distances, np.inf)))
        parts[nearest] = np.append(parts[nearest], row)
        open_parts[nearest] = False
    return [np.sort(part) for part in parts]


@whole
def one_part(X: Array, n_parts: int, rng: np.random.Generator) -> list[IndexArray]:
    """All rows in one part: the global GP (GP-full)."""
    return [np.arange(len(X))]


@whole
def full_parts(X: Array, n_parts: int, rng: np.random.Generator) -> list[IndexArray]:
    """All rows in every part: the paper's diagnostic GP-pro-full."""
    return one_part(X, n_parts, rng) * n_parts


PARTITIONS: dict[str, Partitioner] = {"balltree": balltree, "kmeans": kmeans, "random": random}
