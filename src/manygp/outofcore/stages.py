"""The stages of a fit on blocks of rows, as pure functions of small tasks.

Each reads files, writes files and returns a few numbers. What it writes depends on its task alone,
and is there whole or not at all: a task that was lost can be done again, by anybody, at any time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manygp.arrays import Array, IndexArray
from manygp.committee.committee import Layout, check_parts
from manygp.fit_report import Shrinkage
from manygp.gp.marginal_likelihood import TrainingData
from manygp.gp.trend import Trend, TrendModel
from manygp.inputs import Scaling, check_magnitude, normalised_alpha
from manygp.kernels.base import NoisyKernel
from manygp.outofcore.blocks import Columns
from manygp.outofcore.groups import GroupTree
from manygp.outofcore.statistics import Statistics, row_hashes
from manygp.outofcore.work import Arrays, RowFile, StageTask, stage
from manygp.rules import Partitioner
from manygp.runtime.files import replacing
from manygp.targets import TargetTransform
from manygp.training.experts import ExecutionContext, Task, fit_kernels, starts_of

Numbers = npt.NDArray[np.int64]

# Rows that are sorted by group at a time; each time is a file.
SEGMENT_ROWS = 2**20
# Rows that a trend is asked about at a time.
TREND_ROWS = 4096


class ScanTask(NamedTuple):
    """A block, the number of its first row, and the hash below which rows are in the sample."""

    block: Any
    start: int
    columns: Columns
    threshold: int
    seed: int


class Scanned(NamedTuple):
    """Statistics of the rows of a block, and those in the sample."""

    statistics: Statistics
    numbers: Numbers
    values: Array


def scan(task: ScanTask) -> Scanned:
    """Look at all rows of a block."""
    statistics, numbers, values = [], [], []
    for first, rows, piece in _numbered(task.block, task.start, task.columns):
        task.columns.refuse(piece, task.block.place, task.block.first + first - task.start)
        statistics.append(Statistics.of(rows, piece, task.columns.targets))
        chosen = row_hashes(rows, task.seed) < np.uint64(min(task.threshold, 2**64 - 1))
        numbers.append(rows[chosen])
        values.append(piece[chosen])
    return Scanned(
        Statistics.joined(statistics),
        np.concatenate([np.empty(0, dtype=np.int64), *numbers]),
        np.concatenate([np.empty((0, task.columns.width)), *values]),
    )


def _numbered(block: Any, start: int, columns: Columns) -> Any:
    """Pieces of a block: number of the first row, numbers and values of rows with targets."""
    for piece in block.pieces():
        numbers = np.arange(start, start + len(piece))
        known = ~np.isnan(piece[:, columns.targets]).any(axis=1)
        if not known.all():
            numbers, piece = numbers[known], piece[known]
        if len(numbers):
            yield start, numbers, piece
        start += len(known)


class Sorting(NamedTuple):
    """Settings of the stage that scales rows and sorts them into groups.

    Attributes
    ----------
    columns : Columns
    x_scaling, y_scaling : Scaling
    transform : TargetTransform or None
        What is done with targets before they are scaled.
    alpha : float
        Known noise variance of all rows; columns may have one for each.
    metric : ndarray of shape (d,)
    tree : GroupTree
    sizes : tuple of int
        Rows of each block: other blocks of the same rows have files of their own.
    seed : int
    """

    columns: Columns
    x_scaling: Scaling
    y_scaling: Scaling
    transform: TargetTransform | None
    alpha: float
    metric: Array
    tree: GroupTree
    sizes: tuple[int, ...]
    seed: int

    def scaled(self, values: Array) -> Array:
        """Rows (N, c) in the units of the kernel: inputs, targets, noise (N, d + t + 1)."""
        d, t = len(self.columns.names), self.columns.n_targets
        X = self.x_scaling.apply(values[:, :d])
        check_magnitude(X, "X", self.columns.names)
        noise = values[:, -1] if self.columns.noise else np.full(len(values), self.alpha)
        Y = values[:, d : d + t]
        if self.transform is not None:
            noise, Y = self.transform.of_rows(noise, Y)
        alpha = normalised_alpha(noise, self.y_scaling.scale)
        return np.column_stack([X, self.y_scaling.apply(Y), alpha])

    def groups(self, numbers: Numbers, X: Array) -> IndexArray:
        """The group of each scaled row (N, d): (N,)."""
        last = row_hashes(numbers, self.seed).astype(float) / 2.0**64
        return self.tree.group_of(np.column_stack([X * self.metric, last]))


@stage
def sort(sorting: Sorting, task: StageTask) -> Arrays:
    """Sort the rows of a block by group into files, segment by segment.

    The arguments are the block and the number of its first row; the result is `counts` (S, G),
    and segment i is in the file of the task's name with `.i` behind it.
    """
    counts: list[Numbers] = []
    kept: list[tuple[Numbers, Array]] = []

    def flush() -> None:
        numbers, values = (np.concatenate(one) for one in zip(*kept, strict=True))
        kept.clear()
        group = sorting.groups(numbers, values[:, : len(sorting.columns.names)])
        order = np.argsort(group, kind="stable")
        with replacing(f"{task.output}.{len(counts)}") as file:
            file.write(numbers[order].astype("<i8").tobytes())
            file.write(values[order].astype("<f8").tobytes())
        counts.append(np.bincount(group, minlength=sorting.tree.n_groups))

    block, start = task.arguments
    for _, numbers, piece in _numbered(block, start, sorting.columns):
        kept.append((numbers, sorting.scaled(piece)))
        if sum(len(one) for one, _ in kept) >= SEGMENT_ROWS:
            flush()
    if kept:
        flush()
    shape = len(counts), sorting.tree.n_groups
    return {"counts": np.array(counts, dtype=np.int64).reshape(shape)}


class Segment(NamedTuple):
    """A file of rows sorted by group; `bounds` (G + 1,) says where each group begins."""

    path: str
    bounds: Numbers

    def read(self, group: int, width: int) -> tuple[Numbers, Array]:
        """Numbers (N,) and values (N, width) of the rows of a group."""
        start, end, n = (int(self.bounds[i]) for i in (group, group + 1, -1))
        with open(self.path, "rb") as file:
            file.seek(8 * start)
            numbers = np.frombuffer(file.read(8 * (end - start)), "<i8")
            file.seek(8 * (n + width * start))
            values = np.frombuffer(file.read(8 * width * (end - start)), "<f8")
        if len(numbers) != end - start or len(values) != width * (end - start):
            raise ValueError(f"{self.path} was cut short; remove its folder and fit again")
        return numbers.astype(np.int64), values.reshape(-1, width).astype(float)


class RowFiles(NamedTuple):
    """The files of all rows, sorted by part."""

    X: RowFile
    residuals: RowFile
    alpha: RowFile
    order: RowFile
    fitted: RowFile
    shift: RowFile
    growth: RowFile

    @classmethod
    def of(cls, folder: Path, n: int, d: int, n_targets: int, *, trend: bool) -> RowFiles:
        """The files of n rows in a folder; without a trend some are empty."""
        rest = n if trend else 0
        shapes: tuple[tuple[int, ...], ...] = (
            (n, d), (n, n_targets), (n,), (n,), (rest, n_targets), (rest, n_targets), (rest,)
        )  # fmt: skip
        return cls(
            *(
                RowFile(str(folder / name), shape, "<i8" if name == "order" else "<f8")
                for name, shape in zip(cls._fields, shapes, strict=True)
            )
        )

    def data(self, trend: TrendModel | None, *, constant_mean: bool) -> TrainingData:
        """The rows, mapped into memory."""
        X, residuals, alpha, _, fitted, shift, growth = (file.mapped() for file in self)
        known = None if trend is None else Trend(trend, fitted, shift, growth)
        return TrainingData(X, residuals, alpha, constant_mean, known)


class Arranging(NamedTuple):
    """Settings of the stage that cuts groups into parts.

    Attributes
    ----------
    segments : tuple of Segment
        In the order of the rows.
    rows : RowFiles
        Files to write to.
    partitioner : callable
    points_per_expert : int
    metric : ndarray of shape (d,)
    trend : Trend or None
        It knows the rows of the sample.
    sample : ndarray of shape (n,)
        The numbers of these rows.
    seed : int
    """

    segments: tuple[Segment, ...]
    rows: RowFiles
    partitioner: Partitioner
    points_per_expert: int
    metric: Array
    trend: Trend | None
    sample: Numbers
    seed: int


@stage
def arrange(how: Arranging, task: StageTask) -> Arrays:
    """Partition a group among experts, and write its rows part by part.

    The arguments are the group and where its rows begin in the files; the result is the `sizes`
    (k,) and `centres` (k, d) of its parts.
    """
    group, start = task.arguments
    rows, (_, d), (_, n_targets) = how.rows, how.rows.X.shape, how.rows.residuals.shape
    pieces = [one.read(group, d + n_targets + 1) for one in how.segments]
    numbers, values = (np.concatenate(one) for one in zip(*pieces, strict=True))
    X, residuals, alpha = np.ascontiguousarray(values[:, :d]), values[:, d:-1], values[:, -1]
    U = X * how.metric
    n_parts = max(1, len(U) // how.points_per_expert)
    parts = how.partitioner(U, n_parts, np.random.default_rng([how.seed, group]))
    check_parts(parts, len(U))
    order = np.concatenate(parts)
    if len(order) != len(U):
        raise ValueError("the partition has a row in two parts, which files cannot hold")
    about_trend: tuple[Array, ...] = ()
    if how.trend is not None:
        about_trend = _trend_at(how.trend, how.sample, numbers, X)
        residuals = residuals - about_trend[0]
    for file, array in zip(rows, (X, residuals, alpha, numbers, *about_trend), strict=False):
        file.write(start, array[order])
    return {
        "sizes": np.array([len(part) for part in parts], dtype=np.int64),
        "centres": np.array([U[part].mean(axis=0) for part in parts]),
    }


def _trend_at(
    trend: Trend, sample: Numbers, numbers: Numbers, X: Array
) -> tuple[Array, Array, Array]:
    """What a trend predicts for rows X, and shift and growth of those that it has learned from.

    See `Trend`; `sample` are the numbers of the rows that it has learned from.
    """
    starts = range(0, len(X), TREND_ROWS)
    fitted = np.concatenate([trend.model.at(X[i : i + TREND_ROWS]).mean for i in starts])
    shift, growth = np.zeros_like(fitted), np.zeros(len(fitted))
    place = np.minimum(np.searchsorted(sample, numbers), len(sample) - 1)
    inside = sample[place] == numbers
    own = place[inside]
    fitted[inside], shift[inside] = trend.fitted[own], trend.shift[own]
    growth[inside] = trend.growth[own]
    return fitted, shift, growth


class Fitting(NamedTuple):
    """Settings of the stage that fits the kernels of experts.

    Attributes
    ----------
    rows : RowFiles
    bounds : ndarray of shape (M + 1,)
        Where each part begins.
    kernel : NoisyKernel
        The shared one.
    shrinkage : float or callable
    constant_mean : bool
    n_restarts, seed : int
    optimizer : None, str or callable
    """

    rows: RowFiles
    bounds: Numbers
    kernel: NoisyKernel
    shrinkage: Shrinkage
    constant_mean: bool
    n_restarts: int
    seed: int
    optimizer: Any

    def starts(self, m: int) -> Array:
        """Where the fit of a part starts from."""
        return starts_of(self.kernel, self.n_restarts, np.random.default_rng([self.seed, 1, m]))


@stage
def fit(how: Fitting, task: StageTask) -> Arrays:
    """Fit the experts of some parts.

    The arguments are the first part and the one behind the last; the result is the
    hyperparameters, `values` (k, p), and the evaluations of the likelihood, `counts` (k,).
    """
    first, end = task.arguments
    start = int(how.bounds[first])
    X, residuals, alpha = (
        np.array(file.mapped()[start : int(how.bounds[end])])
        for file in (how.rows.X, how.rows.residuals, how.rows.alpha)
    )
    fits = fit_kernels(
        TrainingData(X, residuals, alpha, how.constant_mean),
        [
            Task(np.arange(how.bounds[m], how.bounds[m + 1]) - start, how.starts(m))
            for m in range(first, end)
        ],
        how.kernel,
        how.shrinkage,
        ExecutionContext(1, optimizer=how.optimizer),
    )
    return {
        "values": np.array([one.kernel.values for one in fits]),
        "counts": np.array([one.n_evaluations for one in fits], dtype=np.int64),
    }


class Neighbouring(NamedTuple):
    """All rows, their layout, and how many rows of others an expert knows."""

    X: RowFile
    layout: Layout
    n_neighbours: int


@stage
def neighbours(how: Neighbouring, task: StageTask) -> Arrays:
    """Find the rows of others that the experts of some parts know, nearest first.

    The arguments are those of `fit`; the result is all `rows`, one expert's behind the other's,
    and their `sizes` (k,).
    """
    X = how.X.mapped()
    rows = [how.layout.neighbours(X, m, how.n_neighbours) for m in range(*task.arguments)]
    return {
        "rows": np.concatenate(rows).astype(np.int64),
        "sizes": np.array([len(one) for one in rows], dtype=np.int64),
    }
