"""Where committees are built: any pull, any overlap, and what two of them share only once."""

from __future__ import annotations

import numpy as np

from manygp.committee import Committee, Layout
from manygp.expert import Expert, condition
from manygp.fitting import MANY_ROWS, Progress, fit_kernels
from manygp.kernel import Sum
from manygp.likelihood import TrainingData
from manygp.parallel import thread_map
from manygp.types import Array, IndexArray, Pull


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
    n_jobs : int or None
    progress : callable
        Wraps the iterator of fits and their number.
    """

    def __init__(
        self,
        data: TrainingData,
        layout: Layout,
        kernel: Sum,
        starts: list[Array],
        communication: IndexArray | None,
        n_jobs: int | None,
        progress: Progress,
    ) -> None:
        self.data, self.layout, self.kernel, self.starts = data, layout, kernel, starts
        self.communication, self.n_jobs, self.progress = communication, n_jobs, progress
        self._rows_in_metric = data.X * layout.metric
        # Judges are kept with the fits, or their id might become another's.
        self._kernels: dict[
            tuple[float | Pull, int], tuple[IndexArray | None, dict[int, tuple[Sum, int]]]
        ] = {}
        self._neighbours: dict[tuple[int, int], IndexArray] = {}
        first = {id(part): m for m, part in reversed(list(enumerate(layout.parts)))}
        self._twin = [first[id(part)] for part in layout.parts]
        self._alone = len(first) == 1

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
        distinct = list(dict.fromkeys(self._twin[m] for m in seats))
        kernels = self._fit(pull, distinct, judges)
        count = self.n_neighbours(overlap)

        def build(m: int) -> Expert:
            neighbours = self._nearest_rows(m, count)
            if self.communication is not None:
                known = np.concatenate([self.layout.parts[m], neighbours])
                more = self.communication[~np.isin(self.communication, known)]
                neighbours = np.concatenate([neighbours, more])
            return condition(
                self.data, self.layout.parts[m], neighbours, *kernels[m], exact=self._alone
            )

        limit = not (self._alone and len(self.data.X) > MANY_ROWS)
        with thread_map(self.n_jobs, limit) as parallel_map:
            experts = dict(zip(distinct, parallel_map(build, distinct), strict=True))
        common = None
        if self.communication is not None:
            common = condition(self.data, self.communication, self.communication[:0], self.kernel)
        layout = self.layout if members is None else self.layout.subset(members)
        return Committee([experts[self._twin[m]] for m in seats], layout, common)

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
                self.n_jobs,
                self.progress,
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
