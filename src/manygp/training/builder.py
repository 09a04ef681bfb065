"""Builds committees of any shrinkage and overlap, and what two of them share only once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.committee.committee import Committee, assemble
from manygp.committee.layout import Layout
from manygp.findings import Plan, Shrinkage
from manygp.gp.likelihood import KernelFit, TrainingData
from manygp.kernels.base import NoisyKernel
from manygp.training.fitting import Run, Task, fit_kernels

# Bytes of the experts' factors above which an overlap is too large.
LARGEST_FACTORS = 2e9
# Bytes of the interpreter and its libraries, and of an expert without its arrays.
INTERPRETER = 1.5e8
RECORD = 2e4


def affordable(n: int, n_parts: int, overlaps: tuple[float, ...]) -> list[float]:
    """Overlaps that differ in what experts know, and whose factors fit into memory."""
    kept: dict[int, float] = {}
    for overlap in overlaps:
        known = min(n, round((1 + overlap) * n / n_parts))
        if not kept or 8 * n_parts * known**2 <= LARGEST_FACTORS:
            kept.setdefault(known, overlap)
    return list(kept.values())


def memory_of(plan: Plan, shape: tuple[int, ...]) -> float:
    """Bytes that a fit of rows of a shape needs: data, what experts know, and their factors."""
    n, d = shape
    n_experts = max(1, n // plan.points_per_expert)
    overlap = max(affordable(n, n_experts, plan.overlaps)) if n_experts > 1 else 0.0
    known = min(n, n / n_experts * (1 + overlap))
    numbers = 4 * n * (d + 2) + 2 * n_experts * known * (d + 2) + n_experts * known**2
    return float(INTERPRETER + 8 * numbers + RECORD * n_experts)


def within_memory(plan: Plan, n: int) -> Plan:
    """The same plan for n rows, without overlaps whose factors are too large."""
    n_experts = max(1, n // plan.points_per_expert)
    return plan._replace(overlaps=tuple(affordable(n, n_experts, plan.overlaps)))


class Builder:
    """Builds the committees of one layout.

    Parameters
    ----------
    data : TrainingData
    layout : Layout
    kernel : NoisyKernel
        The shared kernel, or the start of independent fits.
    starts : sequence of ndarrays of shape (r, p)
        Where the fit of each part starts from.
    communication : ndarray of indices, optional
        Rows that all experts are to know.
    run : Run
    """

    def __init__(
        self,
        data: TrainingData,
        layout: Layout,
        kernel: NoisyKernel,
        starts: Sequence[Array],
        communication: IndexArray | None,
        run: Run,
    ) -> None:
        self.data, self.layout, self.kernel, self.starts = data, layout, kernel, starts
        self.communication, self.run = communication, run
        # By shrinkage and the rows that hyperparameters were learned without, then by part.
        self._fits: dict[tuple[Shrinkage, bytes], dict[int, KernelFit]] = {}
        self._neighbours: dict[tuple[int, int], IndexArray] = {}

    def n_neighbours(self, overlap: float) -> int:
        """Rows that an expert learns from others: `overlap` times the mean size of a part."""
        return round(overlap * len(self.data.X) / len(self.layout.parts))

    def some_rows(self, most: int, rng: np.random.Generator) -> IndexArray:
        """At most this number of rows, drawn at random, in their order."""
        return np.sort(rng.permutation(len(self.data.X))[:most])

    def committee(
        self,
        shrinkage: Shrinkage,
        overlap: float,
        members: IndexArray | None = None,
        unlearned: IndexArray | None = None,
    ) -> Committee:
        """The committee of all parts, or of some.

        Parameters
        ----------
        shrinkage : float or callable
        overlap : float
        members : ndarray of int, optional
            The parts that have an expert.
        unlearned : ndarray of int, optional
            Rows that hyperparameters are to be learned without, so that these rows can tell how
            good they are.
        """
        seats = range(len(self.layout.parts)) if members is None else members.tolist()
        fits = self.fits(shrinkage, list(seats), unlearned)
        count = self.n_neighbours(overlap)

        def neighbours_of(seat: int) -> IndexArray:
            m = seats[seat]
            return self._with_communication(m, self._nearest_rows(m, count))

        common = None
        if self.communication is not None:
            single = self.layout.is_single
            common = self.communication, fits[0] if single else KernelFit(self.kernel)
        return assemble(
            self.data,
            self.layout if members is None else self.layout.subset(members),
            [fits[m] for m in seats],
            neighbours_of,
            common,
            self.run.n_jobs,
        )

    def final(self, shrinkage: Shrinkage, overlap: float) -> Committee:
        """The committee of all parts, which is kept."""
        self.run.progress.begin("experts")
        self.fits(shrinkage, list(range(len(self.layout.parts))))
        self.run.progress.begin("conditioning")
        return self.committee(shrinkage, overlap)

    def _with_communication(self, m: int, neighbours: IndexArray) -> IndexArray:
        """Rows of others that the expert of part m knows, with those that all know."""
        if self.communication is None:
            return neighbours
        known = np.concatenate([self.layout.parts[m], neighbours])
        more = self.communication[~np.isin(self.communication, known)]
        return np.concatenate([neighbours, more])

    def fits(
        self, shrinkage: Shrinkage, members: list[int], unlearned: IndexArray | None = None
    ) -> dict[int, KernelFit]:
        """The fit of each member, from the last time or made now."""
        without = b"" if unlearned is None else unlearned.tobytes()
        fits = self._fits.setdefault((shrinkage, without), {})
        missing = [m for m in members if m not in fits]
        if missing:
            parts = [self.layout.parts[m] for m in missing]
            if unlearned is not None:
                parts = [part[~np.isin(part, unlearned)] for part in parts]
            tasks = [Task(*task) for task in zip(parts, self._starts(missing), strict=True)]
            single = self.layout.is_single
            found = fit_kernels(self.data, tasks, self.kernel, shrinkage, self.run, single=single)
            fits.update(zip(missing, found, strict=True))
        return fits

    def _starts(self, members: list[int]) -> list[Array]:
        """Where fits start: where the last one of the part has ended, whatever its shrinkage."""
        found: dict[int, Array] = {}
        for fits in self._fits.values():
            found |= {m: fit.kernel.theta[None] for m, fit in fits.items() if fit.n_evaluations}
        return [found.get(m, self.starts[m]) for m in members]

    def _nearest_rows(self, m: int, count: int) -> IndexArray:
        if (m, count) not in self._neighbours:
            self._neighbours[m, count] = self.layout.neighbours(self.data.X, m, count)
        return self._neighbours[m, count]
