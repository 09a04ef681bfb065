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
from manygp.outofcore.work import RowFile, Token, read_arrays, write_arrays
from manygp.rules import Partitioner
from manygp.runtime.files import replacing
from manygp.training.experts import ExecutionContext, Task, fit_kernels, starts_of

Numbers = npt.NDArray[np.int64]

# Rows that are sorted by group at a time; each time is a file.
SEGMENT_ROWS = 2**20
# Rows that a trend is asked about at a time.
TREND_ROWS = 4096


class ScanTask(NamedTuple):
    """A block, the number of its first row, and the lots below which rows are in the sample."""

    block: Any
    start: int
    columns: Columns
    threshold: int
    seed: int


class Scanned(NamedTuple):
    """What is known of the rows of a block, and those in the sample."""

    statistics: Statistics
    numbers: Numbers
    values: Array


def scan(task: ScanTask) -> Scanned:
    """Look at all rows of a block."""
    found, numbers, values = [], [], []
    for first, rows, piece in _numbered(task.block, task.start, task.columns):
        task.columns.refuse(piece, task.block.place, task.block.first + first - task.start)
        found.append(Statistics.of(rows, piece, task.columns.targets))
        chosen = row_hashes(rows, task.seed) < np.uint64(min(task.threshold, 2**64 - 1))
        numbers.append(rows[chosen])
        values.append(piece[chosen])
    width = len(task.columns.names) + task.columns.n_targets + task.columns.noise
    return Scanned(
        Statistics.joined(found),
        np.concatenate([np.empty(0, dtype=np.int64), *numbers]),
        np.concatenate([np.empty((0, width)), *values]),
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
    """How rows are scaled, and sorted into groups.

    Attributes
    ----------
    columns : Columns
    x_scaling, y_scaling : Scaling
    alpha : float
        Known noise variance of all rows; columns may have one for each.
    metric : ndarray of shape (d,)
    tree : GroupTree
    seed : int
    """

    columns: Columns
    x_scaling: Scaling
    y_scaling: Scaling
    alpha: float
    metric: Array
    tree: GroupTree
    seed: int

    def scaled(self, values: Array) -> Array:
        """Rows (N, c) in the units of the kernel: inputs, targets, noise (N, d + t + 1)."""
        d, t = len(self.columns.names), self.columns.n_targets
        X = self.x_scaling.apply(values[:, :d])
        check_magnitude(X, "X", self.columns.names)
        noise = values[:, -1] if self.columns.noise else np.full(len(values), self.alpha)
        alpha = normalised_alpha(noise, self.y_scaling.scale)
        return np.column_stack([X, self.y_scaling.apply(values[:, d : d + t]), alpha])

    def groups(self, numbers: Numbers, X: Array) -> IndexArray:
        """The group of each scaled row (N, d): (N,)."""
        last = row_hashes(numbers, self.seed).astype(float) / 2.0**64
        return self.tree.group_of(np.column_stack([X * self.metric, last]))


class SortTask(NamedTuple):
    """A block, the number of its first row, and the file name that sorted rows begin with."""

    block: Any
    start: int
    sorting: Token
    output: str


def sort(task: SortTask) -> Numbers:
    """Sort the rows of a block by group into files, segment by segment: counts (S, G)."""
    done = Path(f"{task.output}.counts")
    known = read_arrays(done)
    if known is not None:
        return known["counts"]
    sorting: Sorting = task.sorting.get()
    counts: list[Numbers] = []
    kept: list[tuple[Numbers, Array]] = []

    def flush() -> None:
        numbers, values = (np.concatenate(one) for one in zip(*kept, strict=True))
        kept.clear()
        group = sorting.groups(numbers, values[:, : len(sorting.columns.names)])
        order = np.argsort(group, kind="stable")
        counts.append(np.bincount(group, minlength=sorting.tree.n_groups))
        with replacing(f"{task.output}.{len(counts) - 1}") as file:
            file.write(numbers[order].astype("<i8").tobytes())
            file.write(values[order].astype("<f8").tobytes())

    for _, numbers, piece in _numbered(task.block, task.start, sorting.columns):
        kept.append((numbers, sorting.scaled(piece)))
        if sum(len(one) for one, _ in kept) >= SEGMENT_ROWS:
            flush()
    if kept:
        flush()
    found = np.array(counts, dtype=np.int64).reshape(len(counts), sorting.tree.n_groups)
    write_arrays(done, counts=found)
    return found


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


class Sampled(NamedTuple):
    """The rows of the sample, by number, and what the trend says about them, who knew them."""

    numbers: Numbers
    fitted: Array
    shift: Array
    growth: Array


class Rows(NamedTuple):
    """The files of all rows, sorted by part."""

    X: RowFile
    Y: RowFile
    alpha: RowFile
    order: RowFile
    fitted: RowFile
    shift: RowFile
    growth: RowFile

    @classmethod
    def of(cls, folder: Path, n: int, d: int, n_targets: int, *, trend: bool) -> Rows:
        """The files of n rows in a folder; without a trend some are empty."""
        rest = n if trend else 0
        shapes = {
            "X": (n, d), "Y": (n, n_targets), "alpha": (n,), "order": (n,),
            "fitted": (rest, n_targets), "shift": (rest, n_targets), "growth": (rest,),
        }  # fmt: skip
        kinds = {"order": "<i8"}
        return cls(
            *(
                RowFile(str(folder / name), shape, kinds.get(name, "<f8"))
                for name, shape in shapes.items()
            )
        )

    def data(self, trend: TrendModel | None, *, constant_mean: bool) -> TrainingData:
        """The rows, mapped into memory."""
        said = None
        if trend is not None:
            said = Trend(trend, self.fitted.mapped(), self.shift.mapped(), self.growth.mapped())
        return TrainingData(
            self.X.mapped(), self.Y.mapped(), self.alpha.mapped(), constant_mean, said
        )


class Arranging(NamedTuple):
    """How the groups become parts.

    Attributes
    ----------
    segments : tuple of Segment
        In the order of the rows.
    rows : Rows
        Files to write to.
    partitioner : callable
    points_per_expert : int
    metric : ndarray of shape (d,)
    trend : TrendModel or None
    sampled : Sampled or None
        If there is a trend.
    seed : int
    """

    segments: tuple[Segment, ...]
    rows: Rows
    partitioner: Partitioner
    points_per_expert: int
    metric: Array
    trend: TrendModel | None
    sampled: Sampled | None
    seed: int


class ArrangeTask(NamedTuple):
    """A group, where its rows begin in the files, and the file that says it is done."""

    group: int
    start: int
    arranging: Token
    output: str


class Arranged(NamedTuple):
    """Sizes (k,) and centres (k, d) of the parts of a group."""

    sizes: Numbers
    centres: Array


def arrange(task: ArrangeTask) -> Arranged:
    """Partition a group among experts, and write its rows part by part."""
    done = Path(task.output)
    known = read_arrays(done)
    if known is not None:
        return Arranged(**known)
    how: Arranging = task.arranging.get()
    rows, (_, d), (_, n_targets) = how.rows, how.rows.X.shape, how.rows.Y.shape
    pieces = [one.read(task.group, d + n_targets + 1) for one in how.segments]
    numbers, values = (np.concatenate(one) for one in zip(*pieces, strict=True))
    X, Y, alpha = values[:, :d], values[:, d:-1], values[:, -1]
    U = np.ascontiguousarray(X) * how.metric
    n_parts = max(1, len(U) // how.points_per_expert)
    parts = how.partitioner(U, n_parts, np.random.default_rng([how.seed, task.group]))
    check_parts(parts, len(U))
    order = np.concatenate(parts)
    if len(order) != len(U):
        raise ValueError("the partition has a row in two parts, which files cannot hold")
    if how.trend is not None and how.sampled is not None:
        fitted, shift, growth = _said(how.trend, how.sampled, numbers, np.ascontiguousarray(X))
        Y = Y - fitted
        for file, found in zip((rows.fitted, rows.shift, rows.growth), (fitted, shift, growth),
                               strict=True):  # fmt: skip
            file.write(task.start, found[order])
    for file, found in ((rows.X, X), (rows.Y, Y), (rows.alpha, alpha), (rows.order, numbers)):
        file.write(task.start, found[order])
    sizes = np.array([len(part) for part in parts], dtype=np.int64)
    centres = np.array([U[part].mean(axis=0) for part in parts])
    write_arrays(done, sizes=sizes, centres=centres)
    return Arranged(sizes, centres)


def _said(
    trend: TrendModel, sampled: Sampled, numbers: Numbers, X: Array
) -> tuple[Array, Array, Array]:
    """What a trend says about rows: those that it has learned from, as if it had not."""
    starts = range(0, len(X), TREND_ROWS)
    fitted = np.concatenate([trend.at(X[i : i + TREND_ROWS]).mean for i in starts])
    shift, growth = np.zeros_like(fitted), np.zeros(len(fitted))
    place = np.searchsorted(sampled.numbers, numbers)
    place = np.minimum(place, len(sampled.numbers) - 1)
    inside = sampled.numbers[place] == numbers
    own = place[inside]
    fitted[inside], shift[inside] = sampled.fitted[own], sampled.shift[own]
    growth[inside] = sampled.growth[own]
    return fitted, shift, growth


class Fitting(NamedTuple):
    """How the kernels of experts are fitted.

    Attributes
    ----------
    rows : Rows
    bounds : ndarray of shape (M + 1,)
        Where each part begins.
    kernel : NoisyKernel
        The shared one.
    shrinkage : float or callable
    constant_mean : bool
    n_restarts, seed : int
    optimizer : None, str or callable
    """

    rows: Rows
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


class FitTask(NamedTuple):
    """Parts from `first` to `end`, and the file of their kernels."""

    first: int
    end: int
    fitting: Token
    output: str


def fit(task: FitTask) -> tuple[Array, Numbers]:
    """Hyperparameters (k, p) of the experts of some parts, and the evaluations (k,)."""
    done = Path(task.output)
    known = read_arrays(done)
    if known is not None:
        return known["values"], known["counts"]
    how: Fitting = task.fitting.get()
    start, end = int(how.bounds[task.first]), int(how.bounds[task.end])
    X, Y, alpha = (
        np.array(file.mapped()[start:end]) for file in (how.rows.X, how.rows.Y, how.rows.alpha)
    )
    data = TrainingData(X, Y, alpha, how.constant_mean)
    tasks = [
        Task(np.arange(how.bounds[m], how.bounds[m + 1]) - start, how.starts(m))
        for m in range(task.first, task.end)
    ]
    found = fit_kernels(
        data, tasks, how.kernel, how.shrinkage, ExecutionContext(1, optimizer=how.optimizer)
    )
    values = np.array([one.kernel.values for one in found])
    counts = np.array([one.n_evaluations for one in found], dtype=np.int64)
    write_arrays(done, values=values, counts=counts)
    return values, counts


class Neighbouring(NamedTuple):
    """All rows, their layout, and how many rows of others an expert knows."""

    X: RowFile
    layout: Layout
    n_neighbours: int


class NeighbourTask(NamedTuple):
    """Parts from `first` to `end`, and the file of the rows that their experts know as well."""

    first: int
    end: int
    neighbouring: Token
    output: str


def neighbours(task: NeighbourTask) -> tuple[Numbers, Numbers]:
    """Rows of others, nearest first, that the experts of some parts know, and their numbers (k,).

    The rows of one expert stand behind those of the other.
    """
    done = Path(task.output)
    known = read_arrays(done)
    if known is not None:
        return known["rows"], known["sizes"]
    how: Neighbouring = task.neighbouring.get()
    X = how.X.mapped()
    rows = [how.layout.neighbours(X, m, how.n_neighbours) for m in range(task.first, task.end)]
    sizes = np.array([len(one) for one in rows], dtype=np.int64)
    found = np.concatenate(rows).astype(np.int64)
    write_arrays(done, rows=found, sizes=sizes)
    return found, sizes
