"""All experts together: the parts of the rows, who is near to a row, and what those predict."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from manygp.arrays import Array, IndexArray
from manygp.committee.covariance import between_experts
from manygp.gp.expert import (
    Expert,
    Experts,
    KernelFits,
    Prediction,
    condition,
    is_vector,
    leave_one_out,
    places,
    predict_expert,
)
from manygp.gp.marginal_likelihood import KernelFit, TrainingData
from manygp.gp.trend import Trend, TrendAt
from manygp.inputs import read_only
from manygp.kernels.base import FEW_ROWS, TILE, Workspace
from manygp.rules import ExpertPredictions, Gaussian, Outside, Partitioner
from manygp.runtime.parallel import thread_map


@dataclass(frozen=True)
class PartitionSizes:
    """Numbers of the partition of rows, and why they are what they are."""

    # k-means clusters outside these multiples of the mean size are mended.
    smallest_cluster: float = 0.1
    largest_cluster: float = 3.0
    # More clusters than this are sought in groups, since the seeding of k-means takes time of
    # order n k^2: groups of at least this many clusters, found with this many rows per group.
    most_clusters: int = 128
    group_clusters: int = 16
    sampled_rows: int = 100
    # A group with more than this share of all rows has nothing to tell them apart.
    most_of_all: float = 0.9
    # The neighbours of a part are sought among this multiple of their number, in the nearest
    # parts.
    candidates: int = 8


@dataclass(frozen=True)
class QuerySizes:
    """Numbers of a query of a committee, and why they are what they are."""

    # Rows that one expert predicts at a time.
    chunk_rows: int = 512
    # Numbers in the arrays of one block of rows, and rows of a block, at most.
    block_numbers: int = 2**21
    block_rows: int = 2**18
    # Where factors are built when they are needed, they would be built again for each block: a
    # block then has this number of rows for each expert, as far as arrays of this many numbers
    # hold.
    expert_rows: int = 64
    most_block_numbers: int = 2**23
    # Numbers that a trend needs for a row, about.
    trend_numbers: int = 2**9
    # A query of at most this number of rows is small: it needs no threads, and rows are filled up
    # to this number only.
    small_rows: int = FEW_ROWS
    # From this number of rows on a single expert is faster with all of BLAS's threads than with
    # one.
    many_rows: int = 1000


PARTITION = PartitionSizes()
QUERYING = QuerySizes()


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
    if n_parts > PARTITION.most_clusters:
        n_groups = min(PARTITION.most_clusters, n_parts // PARTITION.group_clusters)
        for rows in _groups(X, n_groups, rng):
            method = random if len(rows) > PARTITION.most_of_all * len(X) else kmeans
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
    kept = np.flatnonzero(sizes >= max(1.0, PARTITION.smallest_cluster * mean_size))
    orphans = np.flatnonzero(~np.isin(labels, kept))
    if len(orphans):
        labels[orphans] = kept[cKDTree(centres[kept]).query(X[orphans])[1]]
    for label in kept:
        rows = np.flatnonzero(labels == label)
        n_pieces = 1
        if len(rows) > PARTITION.largest_cluster * mean_size:
            n_pieces = round(len(rows) / mean_size)
            rows = rows[np.argsort(X[rows, np.argmax(np.ptp(X[rows], axis=0))], kind="stable")]
        parts += [np.sort(piece) for piece in np.array_split(rows, n_pieces)]
    return parts


def _groups(X: Array, n_groups: int, rng: np.random.Generator) -> list[IndexArray]:
    """Rows by the nearest centre of the k-means clusters of a sample."""
    from scipy.spatial import cKDTree

    sample = X[rng.permutation(len(X))[: PARTITION.sampled_rows * n_groups]]
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


PARTITIONS: dict[str, Partitioner] = {"balltree": balltree, "kmeans": kmeans, "random": random}


def check_parts(parts: Sequence[IndexArray], n: int) -> None:
    """Refuse a partition with an empty part, or without one of n rows."""
    if not parts or any(len(part) == 0 for part in parts):
        raise ValueError("the partition has an empty part; every expert needs rows")
    seen = np.zeros(n, dtype=bool)
    for part in parts:
        seen[part] = True
    if not seen.all():
        raise ValueError(f"the partition loses row {int(np.argmin(seen))}; every row needs a part")


# Centres are taken to be at least so far from a row: 0 / 0 is no share of a distance.
SMALLEST_DISTANCE = 1e-200


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
        """The layout of parts of the rows X (n, d), which must hold all of them.

        Equal parts, if all are equal, are one part that counts several times.
        """
        check_parts(parts, len(X))
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
        # Without medians it is built in less than half the time, and asked as fast: an update of
        # one row moves a centre, and needs a new one.
        return cKDTree(self.centres, compact_nodes=False, balanced_tree=False)

    def nearest(self, X: Array, k: int) -> tuple[IndexArray, Array]:
        """The k parts whose centres are nearest to each row of X, nearest first: (N, k).

        With them the distances of these centres and of the next one, infinite if there is none:
        (k + 1, N).
        """
        more = min(k + 1, len(self.parts))
        distance, places = self.tree.query(X * self.metric, k=np.arange(1, more + 1))
        if more == k:
            distance = np.column_stack([distance, np.full(len(X), np.inf)])
        return places[:, :k], np.maximum(distance, SMALLEST_DISTANCE).T

    def neighbours(self, X: Array, m: int, count: int) -> IndexArray:
        """`count` rows of X outside part m, nearest first to any row of it, in nearby parts."""
        size = len(X) / len(self.parts)
        k = min(len(self.parts), 1 + int(np.ceil(PARTITION.candidates * count / size)))
        near = self.tree.query(self.centres[m], k=np.arange(1, k + 1))[1]
        others = [self.parts[i] for i in near if i != m]
        if count == 0 or not others:
            return np.empty(0, dtype=np.intp)
        rows = np.sort(np.concatenate(others))  # `setdiff1d` took longer than all else here
        rows = rows[np.append(True, np.diff(rows) > 0) & ~np.isin(rows, self.parts[m])]
        own, candidates = (
            X[some] * self.metric - self.centres[m] for some in (self.parts[m], rows)
        )
        # |c|^2 - 2 c.o + |o|^2, the last two as one product: passes over all pairs cost more.
        own = np.column_stack([-2 * own, np.einsum("ij,ij->i", own, own)])
        squares = np.column_stack([candidates, np.ones(len(candidates))]) @ own.T
        distance = squares.min(axis=1) + np.einsum("ij,ij->i", candidates, candidates)
        return rows[np.argsort(distance, kind="stable")[:count]]


ExpertTask = tuple[int, Any, IndexArray]


class Query(NamedTuple):
    """Rows that a committee is queried about, and what the answer must hold.

    Attributes
    ----------
    X : ndarray of shape (N, d)
    nearest : int or None
        Query the experts with the nearest centres, nearest first, or all in their order.
    left_out : ndarray of shape (N,), optional
        Rows of the training data that X are, and that no expert shall know.
    variances, covariances : bool
        Whether records hold variances, and covariances between the experts.
    tapered : bool
        Whether records hold distances, so that experts fade out at the edge of those queried.
    """

    X: Array
    nearest: int | None = None
    left_out: IndexArray | None = None
    variances: bool = True
    covariances: bool = False
    tapered: bool = True

    def rows(self, start: int, end: int) -> Query:
        """The same about some of the rows."""
        left_out = None if self.left_out is None else self.left_out[start:end]
        return self._replace(X=self.X[start:end], left_out=left_out)


@dataclass(frozen=True, eq=False)
class Committee:
    """Experts and their layout.

    Attributes
    ----------
    experts : Experts
        One per part; those of a model from a file are made when they are needed.
    layout : Layout
    communication : Expert or None
        An expert on rows that all others know too.
    trend : Trend or None
        What lies under the experts, who have learned what it leaves.
    """

    experts: Experts
    layout: Layout
    communication: Expert | None = None
    trend: Trend | None = None

    def __len__(self) -> int:
        """The number of experts, copies included."""
        return len(self.layout)

    @property
    def is_single(self) -> bool:
        """Whether one expert has all rows."""
        return self.layout.is_single

    @property
    def has_one_kernel(self) -> bool:
        """Whether all experts have the same hyperparameters."""
        first = self.experts[0].kernel
        return all(expert.kernel is first or expert.kernel == first for expert in self.experts)

    def training_data(self) -> TrainingData:
        """All rows, normalised, in their order."""
        return self.experts.data

    def renumbered(self, numbers: IndexArray) -> Committee:
        """The same committee, with new numbers (n,) of the training rows."""
        experts, central = self.experts.renumbered(numbers), self.communication
        return Committee(
            experts,
            replace(self.layout, parts=tuple(experts.parts)),
            None if central is None else central.renumbered(numbers),
            experts.data.trend,
        )

    def map_blocks(
        self,
        function: Callable[[list[ExpertPredictions]], tuple[Array, ...]],
        query: Query,
        n_jobs: int | None,
    ) -> tuple[Array, ...]:
        """Query experts about blocks of rows, apply `function` to each, and join its results.

        Blocks bound the memory whatever the number of rows, and do not depend on n_jobs.

        Parameters
        ----------
        function : callable
            From one record per target, which differ in their means only, to arrays whose last
            axis is that of the rows.
        query : Query
        n_jobs : int or None
        """
        size = self._block_rows(query)
        results: list[tuple[Array, ...]] = []
        with thread_map(1 if len(query.X) <= QUERYING.small_rows else n_jobs) as parallel_map:
            for start in range(0, len(query.X), size):
                block = query.rows(start, start + size)
                records = self._query(block, parallel_map)
                pieces = range(0, len(block.X), QUERYING.chunk_rows)
                chunks = (
                    [one.rows(i, i + QUERYING.chunk_rows) for one in records] for i in pieces
                )
                results += parallel_map(function, chunks)
        columns = zip(*results, strict=True)
        return tuple(np.concatenate(column, axis=-1) for column in columns)

    def _query(
        self, query: Query, parallel_map: Callable[..., Iterable[Any]]
    ) -> list[ExpertPredictions]:
        """The predictions of the experts near to each row, or of all: one record per target."""
        near = distance = None
        if query.nearest is not None and not self.is_single:
            near, distance = self.layout.nearest(query.X, query.nearest)
        records = self._records(query, near, parallel_map)
        if query.tapered and distance is not None:
            records = [one._replace(distance=distance) for one in records]
        if self.layout.copies == 1:
            return records
        times = len(self) if query.nearest is None else query.nearest
        return [record.repeated(times) for record in records]

    def _records(
        self, query: Query, near: IndexArray | None, parallel_map: Callable[..., Iterable[Any]]
    ) -> list[ExpertPredictions]:
        """One record per target of the experts `near` each row, (N, K), or of all."""
        n, n_experts = len(query.X), len(self.layout.parts)
        n_targets = self.experts.data.residuals.shape[1]
        seats = np.arange(n_experts)[:, None] if near is None else near.T
        variance, prior_variance = np.empty((2, len(seats), n if query.variances else 0))
        asked = self._asked(query, parallel_map)
        # Left out, or with a trend, the mean changes with the row; else one is enough for all.
        each = n if near is not None or asked.changes_means else 1
        prior_mean = np.empty((len(seats), each, n_targets))
        mean = np.empty((n_targets, len(seats), n))
        records = _Arrays(mean, variance, prior_variance, prior_mean)
        noise, scratch = np.empty(n_experts), _Scratch()

        def predict(task: ExpertTask) -> None:
            m, seat, rows = task
            expert = self.experts[m]
            records.fill(seat, rows, self._answer(expert, asked.some(rows), scratch.work))
            noise[m] = expert.kernel.noise_variance

        for _ in parallel_map(predict, self._tasks(near, n)):
            pass
        covariance = None
        if query.covariances:
            everyone = np.broadcast_to(seats, (len(seats), n))
            covariance = between_experts(
                self.experts, query.X, everyone, query.left_out, parallel_map
            )
        central, outside = self._communicated(asked), self._outside(asked)
        spread, noises = self.experts.data.spread, noise[seats]
        if spread is not None and query.left_out is not None:
            noises = noises * spread[query.left_out]
        return [
            ExpertPredictions(
                mean[t],
                variance,
                prior_variance,
                noises,
                prior_mean[..., t],
                covariance,
                central[t],
                outside,
            )
            for t in range(n_targets)
        ]

    def _asked(self, query: Query, parallel_map: Callable[..., Iterable[Any]]) -> _Asked:
        """The rows of a query, and what the trend says about them."""
        at = None
        if self.trend is not None:  # a few rows at a time: its functions are many
            step = QUERYING.block_numbers // QUERYING.trend_numbers
            pieces = (query.X[i : i + step] for i in range(0, len(query.X), step))
            at = TrendAt.joined(list(parallel_map(self.trend.model.at, pieces)))
        return _Asked(query.X, query.left_out, at, len(query.X), query.variances)

    def _block_rows(self, query: Query) -> int:
        """Rows of a block: few enough for its arrays, and some for each factor that is built."""
        width = len(self) if query.nearest is None else query.nearest
        width *= len(self) if query.covariances else 1
        if self.trend is not None and self.trend.kriging is not None:
            width = max(width, QUERYING.trend_numbers)
        size = int(
            np.clip(QUERYING.block_numbers // width // TILE * TILE, TILE, QUERYING.block_rows)
        )
        if self.experts.are_made_later and width == query.nearest:
            most = min(QUERYING.most_block_numbers // width, QUERYING.expert_rows * len(self))
            size = max(size, most // TILE * TILE)
        return size

    def _answer(self, expert: Expert, asked: _Asked, work: Workspace) -> Prediction:
        """The prediction of one expert, with the trend under it."""
        answer = _prediction(expert, asked, work)
        if self.trend is None or asked.at is None:
            return answer
        return answer.on(self.trend, asked.at, asked.left_out)

    def _outside(self, asked: _Asked) -> Outside | None:
        """Where the rows are, if there is a trend."""
        if self.trend is None or asked.at is None:
            return None
        return Outside(self.trend.model.explained, asked.at.beyond)

    def _communicated(self, asked: _Asked) -> list[Gaussian | None]:
        """The prediction of the communication expert for each target, if there is one."""
        if self.communication is None or not asked.with_variance:
            return [None] * self.experts.data.residuals.shape[1]
        answer = self._answer(self.communication, asked, Workspace())
        return [Gaussian(one, answer.variance) for one in answer.mean.T]

    def _tasks(self, near: IndexArray | None, n: int) -> Iterator[ExpertTask]:
        """Each expert with its place in the record and rows, so that it is visited once.

        Large experts come first, so that threads finish together.
        """
        if near is None:
            for m in self._by_size(np.arange(len(self.layout.parts))):
                for start in range(0, n, QUERYING.chunk_rows):
                    yield m, m, np.arange(start, min(n, start + QUERYING.chunk_rows))
            return
        order = np.argsort(near, axis=None, kind="stable")
        bounds = np.searchsorted(near.ravel()[order], np.arange(len(self.layout.parts) + 1))
        for m in self._by_size(np.flatnonzero(np.diff(bounds))):
            for start in range(bounds[m], bounds[m + 1], QUERYING.chunk_rows):
                pairs = order[start : min(start + QUERYING.chunk_rows, bounds[m + 1])]
                yield m, pairs % near.shape[1], pairs // near.shape[1]

    def _by_size(self, members: IndexArray) -> list[int]:
        """Places of some experts, the largest first."""
        sizes = self.experts.sizes[members]
        ordered: list[int] = members[np.argsort(-sizes, kind="stable")].tolist()
        return ordered


class _Arrays(NamedTuple):
    """The arrays of records that are being filled."""

    mean: Array  # (t, K, N)
    variance: Array  # (K, N)
    prior_variance: Array  # (K, N)
    prior_mean: Array  # (K, N, t) or (M, 1, t)

    def fill(self, seat: Any, rows: IndexArray, prediction: Prediction) -> None:
        """Enter the prediction of one expert."""
        self.mean[:, seat, rows] = prediction.mean.T
        if self.variance.shape[1]:
            self.variance[seat, rows] = prediction.variance
            self.prior_variance[seat, rows] = prediction.prior_variance
        if self.prior_mean.shape[1] == self.mean.shape[2]:
            self.prior_mean[seat, rows] = prediction.prior_mean
        else:
            self.prior_mean[seat, 0] = prediction.prior_mean[0]


class _Scratch(threading.local):
    """A workspace for each thread."""

    def __init__(self) -> None:
        self.work = Workspace()


class _Asked(NamedTuple):
    """Rows that one expert is queried about.

    Attributes
    ----------
    X, left_out : ndarrays of shape (N, d), (N,)
        As in `Query`.
    at : TrendAt or None
        What the trend says about the rows, if there is one.
    n_queried : int
        Rows of the whole query.
    with_variance : bool
    """

    X: Array
    left_out: IndexArray | None
    at: TrendAt | None
    n_queried: int
    with_variance: bool

    @property
    def tile(self) -> int:
        """They are filled up to a multiple of it: the digits of one do not depend on others."""
        return QUERYING.small_rows if self.n_queried <= QUERYING.small_rows else TILE

    @property
    def changes_means(self) -> bool:
        """Whether the prior mean of an expert differs between rows."""
        return self.left_out is not None or self.at is not None

    def some(self, rows: IndexArray) -> _Asked:
        """Some of the rows."""
        left_out = None if self.left_out is None else self.left_out[rows]
        at = None if self.at is None else self.at.some(rows)
        return self._replace(X=self.X[rows], left_out=left_out, at=at)


def _prediction(expert: Expert, asked: _Asked, work: Workspace) -> Prediction:
    """What one expert predicts, without the trend.

    It predicts training rows that are to be left out as if it did not know them.
    """
    if asked.left_out is not None:
        known = places(expert, asked.left_out)
        inside, outside = np.flatnonzero(known >= 0), np.flatnonzero(known < 0)
        own = leave_one_out(expert, known[inside])
        if len(outside) == 0:
            return own
        others = _prediction(expert, asked.some(outside)._replace(left_out=None), work)
        order = np.argsort(np.concatenate([inside, outside]))
        return Prediction.joined([own, others]).some(order)
    n, filled = len(asked.X), asked
    if not (asked.n_queried == 1 and is_vector(expert, asked.X)):
        filled = asked.some(np.minimum(np.arange(n + -n % asked.tile), n - 1))
    terms = None if filled.at is None else filled.at.basis
    chunks = [
        predict_expert(
            expert,
            filled.X[i : i + QUERYING.chunk_rows],
            work,
            with_variance=asked.with_variance,
            terms=None if terms is None else terms[i : i + QUERYING.chunk_rows],
        )
        for i in range(0, len(filled.X), QUERYING.chunk_rows)
    ]
    return Prediction.joined(chunks).some(slice(n))


def assemble(
    data: TrainingData,
    layout: Layout,
    fits: Sequence[KernelFit],
    neighbours_of: Callable[[int], IndexArray],
    communication: tuple[IndexArray, KernelFit] | None,
    n_jobs: int | None,
) -> Committee:
    """The committee of experts whose kernels are known: what is left is to condition them.

    Parameters
    ----------
    data : TrainingData
    layout : Layout
    fits : sequence of KernelFit
        One per part.
    neighbours_of : callable
        From the place of a part to rows of others that its expert knows as well.
    communication : (ndarray of indices, KernelFit), optional
        Rows that all experts know, and the kernel of the expert of these rows.
    n_jobs : int or None
    """

    def build(m: int) -> Expert:
        return condition(data, layout.parts[m], neighbours_of(m), fits[m], exact=layout.is_single)

    one_thread = not (layout.is_single and len(data.X) > QUERYING.many_rows)
    with thread_map(n_jobs, limit=one_thread) as parallel_map:
        made = tuple(parallel_map(build, range(len(layout.parts))))
    experts = Experts.made(data, made)
    return Committee(experts, layout, _communicating(data, communication), data.trend)


def assemble_later(
    data: TrainingData,
    layout: Layout,
    fits: KernelFits,
    neighbours: Sequence[IndexArray],
    communication: tuple[IndexArray, KernelFit] | None,
) -> Committee:
    """The committee that `assemble` gives, whose experts are conditioned when first queried.

    A single expert and the communication expert, which every answer needs, are conditioned now.
    """
    if layout.is_single:
        return assemble(data, layout, fits, neighbours.__getitem__, communication, n_jobs=1)
    sizes = [len(a) + len(b) for a, b in zip(layout.parts, neighbours, strict=True)]
    experts = Experts(data, layout.parts, neighbours, fits, np.array(sizes))
    return Committee(experts, layout, _communicating(data, communication), data.trend)


def _communicating(
    data: TrainingData, communication: tuple[IndexArray, KernelFit] | None
) -> Expert | None:
    if communication is None:
        return None
    rows, fit = communication
    return condition(data, rows, rows[:0], fit)
