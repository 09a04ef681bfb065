"""From blocks of rows to a fitted model: scan, sample, sort, arrange, choose, fit, save."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.committee.committee import Layout, random
from manygp.fit_report import Plan
from manygp.gp.expert import Spans
from manygp.inputs import KnownRows, Moments, check_alpha
from manygp.kernels.base import metric
from manygp.model import FittedModel
from manygp.outofcore import stages
from manygp.outofcore.blocks import Columns
from manygp.outofcore.builder import Disk, DiskBuilder
from manygp.outofcore.groups import grow
from manygp.outofcore.statistics import Statistics, row_hashes
from manygp.outofcore.work import WorkFolder, bounds_of, joined
from manygp.runtime.files import MAKE_ROOM, naming_full_disk
from manygp.runtime.progress import Progress, say, shown
from manygp.settings import Settings
from manygp.storage import read_model, write_model
from manygp.storage.model_file import check_savable
from manygp.training.checkpoint import Checkpoint, identity_of, key_of
from manygp.training.choose import choose_committee
from manygp.training.experts import FITTING, ExecutionContext, affordable
from manygp.training.pipeline import (
    Foundation,
    Prepared,
    choose_noise,
    choose_transform,
    choose_trend_and_kernel,
    fitted_model,
    prepare,
)


@dataclass(frozen=True)
class OutOfCoreSizes:
    """Numbers of a fit of rows on a disk, and why they are what they are."""

    # Up to this number of rows the model is that of rows in memory.
    memory_rows: int = 10**6
    # Of more, trend, shared kernel and groups are learned from a sample of about this number.
    sample_rows: int = 2**18
    # Rows of a group, about: a task arranges one, and fits its experts.
    group_rows: int = 2**16


OUT_OF_CORE = OutOfCoreSizes()

MODEL = "model.manygp"


class FitJob(NamedTuple):
    """A fit of rows in blocks.

    Attributes
    ----------
    settings : Settings
    blocks : sequence of Block
    sizes : sequence of int
        Rows of each block.
    columns : Columns
    work : WorkFolder
    target : str or None
        Name of the target, if it has one.
    """

    settings: Settings
    blocks: Sequence[Any]
    sizes: Sequence[int]
    columns: Columns
    work: WorkFolder
    target: str | None = None

    @property
    def starts(self) -> list[int]:
        """Number of the first row of each block."""
        return [0, *np.cumsum(self.sizes).tolist()][:-1]

    def say(self, message: str) -> None:
        if self.settings.verbose:
            say(message)


def check_settings(settings: Settings) -> None:
    """Refuse what rows on a disk cannot have, before any work."""
    n = f"more than {OUT_OF_CORE.memory_rows:,} rows"
    if settings.has_whole_parts or settings.partitioner is random:
        raise ValueError(
            f"partition={settings.partition!r} spreads the rows of an expert over all of them, "
            f"and {n} are sorted into regions: set partition='balltree' or 'kmeans'"
        )
    if settings.time_budget is not None:
        raise ValueError(f"time_budget is for rows in memory; set it to None for {n}")
    if np.ndim(settings.alpha):
        raise ValueError(f"alpha of {n} must be one number, or the name of a column")
    check_alpha(settings.alpha, 1)
    if not (settings.trend is None or isinstance(settings.trend, str)):
        raise ValueError(f"trend={settings.trend!r} cannot be saved: name a trend for {n}")
    check_savable(settings)


def train_blocks(job: FitJob, seed: int) -> FittedModel:
    """The model of rows in blocks: more of them than make a sample.

    All that is finished is kept in the folder: the same call goes on from there.
    """
    check_settings(job.settings)
    job.work.path.mkdir(parents=True, exist_ok=True)
    with (
        naming_full_disk(job.work.path, MAKE_ROOM),
        shown(verbose=job.settings.verbose) as progress,
    ):
        return _train(job, seed, progress)


def _train(job: FitJob, seed: int, progress: Progress) -> FittedModel:
    settings, folder = job.settings, job.work.path
    progress.begin("reading")
    n_read = int(sum(job.sizes))
    threshold = OUT_OF_CORE.sample_rows * 2**64 // n_read
    scanned = _scan(job, seed, threshold)
    known = Statistics.joined([one.statistics for one in scanned])
    checkpoint = Checkpoint(folder / "checkpoint", _identity(job, known), seed)
    if checkpoint.seed != seed:  # another sample
        seed = checkpoint.seed
        scanned = _scan(job, seed, threshold)
    path = folder / MODEL
    if not path.exists():
        run = ExecutionContext(settings.n_jobs, progress, checkpoint, settings.optimizer)
        write_model(path, _trained(job, known, scanned, seed, run))
        for name in ("rows", "tasks"):
            shutil.rmtree(folder / name, ignore_errors=True)
    return read_model(path)


def _scan(job: FitJob, seed: int, threshold: int) -> list[stages.Scanned]:
    """Look at all rows once."""
    tasks = [
        stages.ScanTask(block, start, job.columns, threshold, seed)
        for block, start in zip(job.blocks, job.starts, strict=True)
    ]
    scans = list(job.work.engine.map(stages.scan, tasks, "it read the data"))
    n = sum(one.statistics.n for one in scans)
    job.say(f"{n:,} rows in {len(tasks)} blocks")
    if n == 0:
        raise ValueError("no row has a target")
    return scans


def _identity(job: FitJob, known: Statistics) -> dict[str, Any]:
    """What a folder must have in common with a fit; not how rows are cut into blocks."""
    identity = identity_of(job.settings, known.n, job.columns.described, key_of(known.digest))
    return {**identity, "sample": OUT_OF_CORE.sample_rows, "group": OUT_OF_CORE.group_rows}


def _trained(
    job: FitJob, known: Statistics, scanned: list[stages.Scanned], seed: int, run: ExecutionContext
) -> FittedModel:
    settings, columns = job.settings, job.columns
    sample = _Sample.of(scanned, columns)
    del scanned
    rows = KnownRows(sample.X, sample.Y, sample.noise(settings))
    scale = {"scale_X": settings.scales_X, "scale_y": settings.normalize_y}
    scalings = known.moments.scalings(**scale)
    ends = np.stack([known.low, known.high])[:, len(columns.names) :]
    transform, compared = choose_transform(settings, rows, columns.described, ends)
    if transform is not None and transform.name != "none":  # its scale is that of the sample
        moved = Moments.of(sample.X, transform.forward(sample.Y))
        scalings = scalings[0], moved.scalings(**scale)[1]
    prepared = prepare(settings, rows, columns.described, scalings, transform)
    prepared = prepared._replace(compared=compared, shared=None)  # not all rows are known here
    points = int(settings.points_per_expert)
    space = settings.space
    overlaps = tuple(affordable(known.n, max(1, known.n // points), space.overlaps))
    plan = Plan(points, space.shrinkages, overlaps, FITTING.shared_rows, settings.shared_kernels)
    job.say(f"{len(sample.numbers):,} of them choose trend and kernel; {plan}")
    foundation = choose_trend_and_kernel(settings, prepared, plan, seed, run, np.inf)
    run.progress.begin("sorting")
    columns_metric = metric(foundation.builder.kernel, len(columns.names))
    groups = _Groups.of(job, prepared, columns_metric, seed, known.n)
    job.say(f"{len(groups.segments)} files of rows, sorted into {groups.n_groups} groups")
    builder, order = _arranged(job, foundation, groups, sample, seed)
    job.say(f"{len(builder.layout.parts):,} experts")
    selection = choose_committee(builder, foundation.space, foundation.rng)
    selection = selection.after(foundation.compared, trend=foundation.trend)
    selection = selection.after(prepared.compared, **prepared.chosen)
    selection = choose_noise(settings, builder.data.X, selection)
    model = fitted_model(settings, prepared, plan, builder.kernel, selection)
    return replace(
        model,
        order=order,
        target=job.target,
        settings=replace(settings, verbose=False),
    )


class _Sample(NamedTuple):
    """Rows of the sample in the order of the data: numbers (n,), X, Y, and noise or None."""

    numbers: stages.Numbers
    X: Array
    Y: Array
    alpha: Array | None

    @classmethod
    def of(cls, scanned: list[stages.Scanned], columns: Columns) -> _Sample:
        numbers = np.concatenate([one.numbers for one in scanned])
        values = np.concatenate([one.values for one in scanned])
        d, t = len(columns.names), columns.n_targets
        X = np.ascontiguousarray(values[:, :d])
        Y = np.ascontiguousarray(values[:, d : d + t])
        return cls(numbers, X, Y, values[:, -1].copy() if columns.noise else None)

    def noise(self, settings: Settings) -> Array:
        """Known noise variances of its rows."""
        return check_alpha(settings.alpha if self.alpha is None else self.alpha, len(self.Y))


class _Groups(NamedTuple):
    """Files of rows sorted by group, and the rows of each group (G,)."""

    segments: tuple[stages.Segment, ...]
    counts: stages.Numbers

    @property
    def n_groups(self) -> int:
        return len(self.counts)

    @classmethod
    def of(
        cls, job: FitJob, prepared: Prepared, columns_metric: Array, seed: int, n: int
    ) -> _Groups:
        """Grow the tree of groups on the sample, and sort all rows by it."""
        X = prepared.data.X
        last = row_hashes(np.arange(len(X)), seed).astype(float) / 2.0**64  # for equal rows
        n_groups = max(1, round(n / OUT_OF_CORE.group_rows))
        tree = grow(np.column_stack([X * columns_metric, last]), n_groups)
        sorting = stages.Sorting(
            job.columns,
            prepared.x_scaling,
            prepared.y_scaling,
            prepared.transform,
            float(job.settings.alpha),
            columns_metric,
            tree,
            tuple(job.sizes),
            seed,
        )
        blocks = zip(job.blocks, job.starts, strict=True)
        tasks = job.work.tasks(stages.sort, sorting, blocks)
        results = job.work.run(stages.sort, tasks, "it sorted rows into groups")
        segments = [
            stages.Segment(f"{task.output}.{i}", bounds_of(counts))
            for task, result in zip(tasks, results, strict=True)
            for i, counts in enumerate(result["counts"])
        ]
        return cls(tuple(segments), joined(results, "counts").sum(axis=0))


def _arranged(
    job: FitJob, foundation: Foundation, groups: _Groups, sample: _Sample, seed: int
) -> tuple[DiskBuilder, IndexArray]:
    """The builder of all rows, which lie part by part in files, and their order."""
    data, kernel = foundation.builder.data, foundation.builder.kernel
    d, n = data.X.shape[1], int(groups.counts.sum())
    trend = data.trend
    if trend is not None:  # as it was learned from the sample
        trend = trend._replace(model=trend.model.without_doubt(), kriging=None)
    rows = stages.RowFiles.of(
        job.work.subfolder("rows"), n, d, data.residuals.shape[1], trend=trend is not None
    )
    for file in rows:
        file.create()
    arranging = stages.Arranging(
        groups.segments,
        rows,
        job.settings.partitioner,
        int(job.settings.points_per_expert),
        metric(kernel, d),
        trend,
        sample.numbers,
        seed,
    )
    starts = bounds_of(groups.counts)
    pairs = [(group, int(starts[group])) for group in np.flatnonzero(groups.counts).tolist()]
    tasks = job.work.tasks(stages.arrange, arranging, pairs)
    results = job.work.run(stages.arrange, tasks, "it arranged rows by expert")
    bounds = bounds_of(joined(results, "sizes"))
    layout = Layout(Spans(bounds), arranging.metric, joined(results, "centres"))
    fitting = stages.Fitting(
        rows,
        bounds,
        kernel,
        np.inf,
        data.constant_mean,
        job.settings.n_restarts_optimizer,
        seed,
        job.settings.optimizer,
    )
    disk = Disk(job.work, bounds_of([len(one["sizes"]) for one in results]), fitting)
    communication = None
    if foundation.space.needs.communication:
        count = n // len(layout.parts)
        communication = foundation.rng.choice(n, count, replace=False, shuffle=False)
    model = None if trend is None else trend.model
    whole = rows.data(model, constant_mean=data.constant_mean)
    builder = DiskBuilder(whole, layout, disk, communication, foundation.builder.run)
    return builder, rows.order.mapped()
