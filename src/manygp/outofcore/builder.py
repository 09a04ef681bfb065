"""Builds the committees of rows on a disk: a few experts here, all of them by tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.committee.committee import Committee, Layout
from manygp.fit_report import Shrinkage
from manygp.gp.expert import Experts, KernelFits, Slices, condition
from manygp.gp.marginal_likelihood import KernelFit, TrainingData
from manygp.outofcore import stages
from manygp.outofcore.work import Arrays, WorkFolder, bounds_of, joined
from manygp.training.experts import Builder, ExecutionContext, precision_of

# Rows that are left out are drawn from this number of parts, so that few factors are built.
DRAWN_PARTS = 1000


class Starts(Sequence[Array]):
    """Starts of the fits of all parts."""

    def __init__(self, fitting: stages.Fitting) -> None:
        self.fitting = fitting

    def __len__(self) -> int:
        return len(self.fitting.bounds) - 1

    def __getitem__(self, m: Any) -> Any:
        return self.fitting.starts(m)


class Disk(NamedTuple):
    """The folder with the rows of all experts, and the engine that works on them.

    Attributes
    ----------
    work : WorkFolder
    groups : ndarray of shape (G + 1,)
        The parts of each group lie one after the other: where they begin.
    fitting : Fitting
    """

    work: WorkFolder
    groups: IndexArray
    fitting: stages.Fitting

    def run(self, function: Any, shared: Any, what: str) -> list[Arrays]:
        """The results of a stage whose tasks are the parts of each group."""
        pairs = zip(self.groups[:-1].tolist(), self.groups[1:].tolist(), strict=True)
        return self.work.run(function, self.work.tasks(function, shared, pairs), what)


class DiskBuilder(Builder):
    """The builder of committees whose rows are on a disk.

    Parameters
    ----------
    data : TrainingData
        Mapped into memory.
    layout : Layout
    disk : Disk
    communication : ndarray of indices, optional
    run : ExecutionContext
    """

    def __init__(
        self,
        data: TrainingData,
        layout: Layout,
        disk: Disk,
        communication: IndexArray | None,
        run: ExecutionContext,
    ) -> None:
        kernel = disk.fitting.kernel
        super().__init__(data, layout, kernel, Starts(disk.fitting), communication, run)
        self.disk = disk

    def some_rows(self, most: int, rng: np.random.Generator) -> IndexArray:
        """At most this number of rows, from some parts drawn at random, in their order."""
        n_parts = min(DRAWN_PARTS, len(self.layout.parts))
        parts = rng.choice(len(self.layout.parts), n_parts, replace=False).tolist()
        each = -(-most // n_parts)
        rows = [rng.permutation(self.layout.parts[m])[:each] for m in parts]
        return np.sort(np.concatenate(rows)[:most])

    def committee(
        self,
        shrinkage: Shrinkage,
        overlap: float,
        members: IndexArray | None = None,
        held_out: IndexArray | None = None,
    ) -> Committee:
        """The committee of all parts, made when it is needed, or of some."""
        if members is not None or held_out is not None:
            return super().committee(shrinkage, overlap, members, held_out)
        bounds = self.disk.fitting.bounds
        near = self._all_neighbours(self.n_neighbours(overlap))
        neighbours: Sequence[IndexArray] = near
        common = None
        if self.communication is not None:
            rows = self.communication
            neighbours = [self._with_communication(m, one) for m, one in enumerate(near)]
            common = condition(self.data, rows, rows[:0], KernelFit(self.kernel))
        fits, sizes = self._all_fits(shrinkage), np.diff(bounds) + np.diff(near.bounds)
        experts = Experts(self.data, self.layout.parts, neighbours, fits, sizes)
        return Committee(experts, self.layout, common, self.data.trend)

    def final(self, shrinkage: Shrinkage, overlap: float) -> Committee:
        """The committee of all parts, which is kept."""
        self.run.progress.begin("experts")
        return self.committee(shrinkage, overlap)

    def _all_fits(self, shrinkage: Shrinkage) -> KernelFits:
        n_parts = len(self.layout.parts)
        if np.isinf(precision_of(shrinkage, self.kernel)).all():
            values = np.broadcast_to(self.kernel.values, (n_parts, self.kernel.n_free))
            return KernelFits(self.kernel, values, np.zeros(n_parts, dtype=np.int64))
        fitting = self.disk.fitting._replace(shrinkage=shrinkage)
        results = self.disk.run(stages.fit, fitting, "it fitted experts")
        return KernelFits(self.kernel, joined(results, "values"), joined(results, "counts"))

    def _all_neighbours(self, count: int) -> Slices:
        """Rows of others that experts know."""
        n_parts = len(self.layout.parts)
        if count == 0:
            return Slices(np.empty(0, dtype=np.intp), np.zeros(n_parts + 1, dtype=np.intp))
        shared = stages.Neighbouring(self.disk.fitting.rows.X, self.layout, count)
        results = self.disk.run(stages.neighbours, shared, "it looked for neighbours")
        return Slices(joined(results, "rows"), bounds_of(joined(results, "sizes")))
