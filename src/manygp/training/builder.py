"""Where committees are built: any pull, any overlap, and what two of them share only once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.committee.committee import Committee
from manygp.committee.layout import Layout
from manygp.gp.expert import Expert, condition
from manygp.gp.likelihood import TrainingData
from manygp.kernels.base import Sum
from manygp.rules.records import Pull
from manygp.runtime.parallel import thread_map
from manygp.training.fitting import MANY_ROWS, Run, fit_kernels


class Workshop:
    """Builds the committees of one set of parts.

    Parameters
    ----------
    data : TrainingData
    layout : Layout
        The same part given twice has one expert.
    kernel : Sum
        The shared kernel, or the start of independent fits.
    starts : list of ndarray of shape (r, p)
        Where the fit of each part starts from.
    communication : ndarray of indices, optional
        Rows that all experts are to know.
    run : Run
    """

    def __init__(
        self,
        data: TrainingData,
        layout: Layout,
        kernel: Sum,
        starts: list[Array],
        communication: IndexArray | None,
        run: Run,
    ) -> None:
        self.data, self.layout, self.kernel, self.starts = data, layout, kernel, starts
        self.communication, self.run = communication, run
        self._rows_in_metric = data.X * layout.metric
        # Judges are kept with the fits, or their id might become another's.
        self._kernels: dict[
            tuple[float | Pull, int], tuple[IndexArray | None, dict[int, tuple[Sum, int]]]
        ] = {}
        self._neighbours: dict[tuple[int, int], IndexArray] = {}
        self._twin = twins(layout.parts)
        self._alone = len(set(self._twin)) == 1

    def n_neighbours(self, overlap: float) -> int:
        """Rows that an expert learns from others: `overlap` times the mean size of a part."""
        return round(overlap * len(self.data.X) / len(self.layout.parts))

    def committee(
        self,
        pull: float | Pull,
        overlap: float,
        members: IndexArray | None = None,
        judges: IndexArray | None = None,
    ) -> Committee:
        """The committee of all parts, or of some.

        Parameters
        ----------
        pull : float or callable
        overlap : float
        members : ndarray of int, optional
            The parts that have a seat.
        judges : ndarray of int, optional
            Rows that hyperparameters are to be learned without, so that they can judge them.
        """
        seats = np.arange(len(self.layout.parts)) if members is None else members
        fits = self._fit(pull, list(dict.fromkeys(self._twin[m] for m in seats)), judges)
        count = self.n_neighbours(overlap)

        def neighbours_of(seat: int) -> IndexArray:
            m = self._twin[seats[seat]]
            neighbours = self._nearest_rows(m, count)
            if self.communication is None:
                return neighbours
            known = np.concatenate([self.layout.parts[m], neighbours])
            more = self.communication[~np.isin(self.communication, known)]
            return np.concatenate([neighbours, more])

        return assemble(
            self.data,
            self.layout if members is None else self.layout.subset(members),
            [fits[self._twin[m]] for m in seats],
            neighbours_of,
            None
            if self.communication is None
            else (self.communication, fits[0][0] if self._alone else self.kernel),
            self._alone,
            self.run.n_jobs,
        )

    def _fit(
        self, pull: float | Pull, members: list[int], judges: IndexArray | None
    ) -> dict[int, tuple[Sum, int]]:
        """Kernel and evaluations of each member, from the last time or fitted now."""
        fits = self._kernels.setdefault((pull, id(judges)), (judges, {}))[1]
        missing = [m for m in members if m not in fits]
        if missing:
            parts = [self.layout.parts[m] for m in missing]
            if judges is not None:
                parts = [part[~np.isin(part, judges)] for part in parts]
            starts = self._starts(missing)
            found = fit_kernels(
                self.data,
                parts,
                self.kernel,
                pull,
                starts,
                self._alone,
                self.run,
            )
            fits.update(zip(missing, found, strict=True))
        return fits

    def _starts(self, members: list[int]) -> list[Array]:
        """Where fits start: where the last one of the part has ended, whatever its pull."""
        found = dict(enumerate(self.starts))
        for _, fits in self._kernels.values():
            found |= {m: kernel.theta[None] for m, (kernel, n) in fits.items() if n}
        return [found[m] for m in members]

    def _nearest_rows(self, m: int, count: int) -> IndexArray:
        if (m, count) not in self._neighbours:
            found = self.layout.neighbours(self._rows_in_metric, m, count)
            self._neighbours[m, count] = found
        return self._neighbours[m, count]


def twins(parts: Sequence[IndexArray]) -> list[int]:
    """The first place of each part: the same part given twice has one expert."""
    first = {id(part): m for m, part in reversed(list(enumerate(parts)))}
    return [first[id(part)] for part in parts]


def assemble(
    data: TrainingData,
    layout: Layout,
    fits: list[tuple[Sum, int]],
    neighbours_of: Callable[[int], IndexArray],
    communication: tuple[IndexArray, Sum] | None,
    alone: bool,
    n_jobs: int | None,
) -> Committee:
    """The committee of experts whose kernels are known: what is left is to condition them.

    Parameters
    ----------
    data : TrainingData
    layout : Layout
    fits : list of (Sum, int)
        Kernel of each part, and evaluations of the likelihood that it took.
    neighbours_of : callable
        From the place of a part to rows of others that its expert knows as well.
    communication : (ndarray of indices, Sum), optional
        Rows that all experts know, and the kernel of the expert of these rows.
    alone : bool
        Whether there is one expert, which may use all of BLAS's threads.
    n_jobs : int or None
    """
    twin = twins(layout.parts)

    def build(m: int) -> Expert:
        return condition(data, layout.parts[m], neighbours_of(m), *fits[m], exact=alone)

    distinct = list(dict.fromkeys(twin))
    limit = not (alone and len(data.X) > MANY_ROWS)
    with thread_map(n_jobs, limit) as parallel_map:
        experts = dict(zip(distinct, parallel_map(build, distinct), strict=True))
    common = None
    if communication is not None:
        rows, kernel = communication
        common = condition(data, rows, rows[:0], kernel)
    return Committee([experts[m] for m in twin], layout, common)
