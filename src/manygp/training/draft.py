"""A committee while rows come and go: who gets them, and who is conditioned anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from manygp.arrays import AnyArray, Array, IndexArray
from manygp.committee.committee import PARTITION, QUERYING, Committee, Layout
from manygp.gp.expert import Expert, KernelFits, condition
from manygp.gp.marginal_likelihood import TrainingData
from manygp.inputs import read_only
from manygp.runtime.parallel import thread_map
from manygp.settings import Settings


@dataclass
class Draft:
    """A committee while its rows change.

    Attributes
    ----------
    before : Committee
    parts, neighbours : lists of index arrays
        Rows of each expert, and those of others that it knows as well.
    fits : KernelFits
    centres : ndarray of shape (M, d)
    sizes : ndarray of shape (M,)
        How many rows each expert knows.
    known : dict of Expert
        Experts that stay what they are, by their place.
    stale : set of int
        Experts that are to be conditioned anew.
    moved : set of int
        Experts whose own rows have changed.
    counts : dict of int
        How many rows of others those know whose part was split.
    """

    before: Committee
    parts: list[IndexArray]
    neighbours: list[IndexArray]
    fits: KernelFits
    centres: Array
    sizes: AnyArray
    known: dict[int, Expert]
    stale: set[int]
    moved: set[int]
    counts: dict[int, int]

    @classmethod
    def of(cls, committee: Committee) -> Draft:
        experts, centres = committee.experts, np.array(committee.layout.centres)
        own, others = [*experts.parts], [*experts.neighbours]
        sizes, known = np.array(experts.sizes), experts.known
        return cls(committee, own, others, experts.fits, centres, sizes, known, set(), set(), {})

    def add(self, seats: IndexArray, overlapping: Mapping[int, IndexArray], n: int) -> None:
        """New rows, numbered from n, to the experts at `seats` (k,) and those that overlap."""
        rows = np.arange(n, n + len(seats))
        self.moved = set(np.unique(seats).tolist())
        for m in self.moved:
            self.parts[m] = np.concatenate([self.parts[m], rows[seats == m]])
        for m, some in overlapping.items():
            self.neighbours[m] = np.concatenate([rows[some], self.neighbours[m]])
        self.stale = {*self.moved, *overlapping}
        for m in self.stale:
            self.known.pop(m, None)
            self.sizes[m] = len(self.parts[m]) + len(self.neighbours[m])

    def forget(self, stays: AnyArray, numbers: IndexArray) -> None:
        """Drop rows that do not stay (n,), and number the others anew: (n,)."""
        seats, known = list[int](), dict[int, Expert]()
        for m, (own, others) in enumerate(zip(self.parts, self.neighbours, strict=True)):
            left = stays[own]
            if not left.any():
                continue
            untouched = left.all() and stays[others].all()
            if m in self.known and untouched:
                known[len(seats)] = self.known[m].renumbered(numbers)
            else:
                self.stale.add(len(seats))
            if not left.all():
                self.moved.add(len(seats))
            self.parts[len(seats)] = numbers[own[left]]
            self.neighbours[len(seats)] = numbers[others[stays[others]]]
            seats.append(m)
        self.known = known
        del self.parts[len(seats) :], self.neighbours[len(seats) :]
        self.fits, self.centres = self.fits.at(np.array(seats)), self.centres[seats]
        pairs = zip(self.parts, self.neighbours, strict=True)
        self.sizes = np.array([len(own) + len(others) for own, others in pairs])

    def split(self, X: Array, size: int, most: float) -> None:
        """Cut experts of more than `most` times so many rows, each along its widest column."""
        for m in sorted(self.moved):
            part = self.parts[m]
            if len(part) <= most * size:
                continue
            U = X[part] * self.before.layout.metric
            order = np.argsort(U[:, np.argmax(np.ptp(U, axis=0))], kind="stable")
            n_pieces = max(2, round(len(part) / size))
            first, *others = (np.sort(part[one]) for one in np.array_split(order, n_pieces))
            new = range(len(self.parts), len(self.parts) + len(others))
            overlap = len(self.neighbours[m]) / len(part)
            self.parts = [*self.parts[:m], first, *self.parts[m + 1 :], *others]
            self.neighbours += [part[:0]] * len(others)
            self.counts |= {seat: round(overlap * len(self.parts[seat])) for seat in (m, *new)}
            heirs = np.full(len(others), m)
            self.fits = self.fits.at(np.concatenate([np.arange(len(self.fits)), heirs]))
            self.centres = np.concatenate([self.centres, self.centres[heirs]])
            self.sizes = np.concatenate([self.sizes, heirs])  # which _layout sets
        self.moved |= self.counts.keys()
        self.stale |= self.counts.keys()

    def committee(self, data: TrainingData, settings: Settings) -> Committee:
        """The committee of all rows: experts that are not known any more are conditioned.

        Where experts are made when they are needed, so are these.
        """
        layout = self._layout(data.X)
        parts, before, single = layout.parts, self.before.experts, layout.is_single
        if single != self.before.is_single:  # which decides on the precision of factors
            self.known, self.stale = {}, set(range(len(parts)))
        if not before.are_made_later or single:
            missing = sorted(self.stale)

            def build(m: int) -> Expert:
                return condition(data, parts[m], self.neighbours[m], self.fits[m], exact=single)

            one_thread = not (single and len(data.X) > QUERYING.many_rows)
            n_jobs = settings.n_jobs if len(missing) > 1 else 1
            with thread_map(n_jobs, limit=one_thread) as parallel_map:
                self.known |= dict(zip(missing, parallel_map(build, missing), strict=True))
        experts = before.changed(self.known, data, parts, self.neighbours, self.fits, self.sizes)
        return replace(self.before, experts=experts, layout=layout, trend=data.trend)

    def _layout(self, X: Array) -> Layout:
        """Where the parts lie now; those that were split learn their neighbours."""
        layout = self.before.layout
        for m in self.moved:
            self.centres[m] = (X[self.parts[m]] * layout.metric).mean(axis=0)
        layout = replace(layout, parts=self.parts, centres=read_only(self.centres))
        common = self.before.communication
        for m, count in self.counts.items():
            near = layout.neighbours(X, m, count)
            self.neighbours[m] = _with_common(near, self.parts[m], common)
            self.sizes[m] = len(self.parts[m]) + len(self.neighbours[m])
        return layout


def overlapping(
    committee: Committee, X: Array, new: Array, seats: IndexArray
) -> dict[int, IndexArray]:
    """The experts that know rows of others as far away as some of the new ones, and which these.

    Experts with near centres are asked, as in `Layout.neighbours`.
    """
    experts, layout = committee.experts, committee.layout
    known = experts.sizes.sum() / len(X) - 1
    if layout.is_single or known <= 0:
        return {}
    k = min(len(layout.parts), 1 + int(np.ceil(PARTITION.candidates * known)))
    near = layout.nearest(new, k)[0]
    near = np.where(near == seats[:, None], -1, near)
    common = () if committee.communication is None else committee.communication.indices
    inside_of = {}
    for m in np.unique(near[near >= 0]).tolist():
        others = experts.neighbours[m]
        others = others[~np.isin(others, common)] if len(common) else others
        if not len(others):
            continue
        centre, asked = layout.centres[m], np.flatnonzero((near == m).any(axis=1))
        own, known_others, candidates = (
            some * layout.metric - centre for some in (X[layout.parts[m]], X[others], new[asked])
        )
        reach = _squared_distances(known_others, own).max()
        inside = asked[_squared_distances(candidates, own) <= reach]
        if len(inside):
            inside_of[m] = inside
    return inside_of


def _squared_distances(rows: Array, own: Array) -> Array:
    """From each row to the nearest of an expert's own."""
    squares = rows @ own.T
    squares *= -2
    squares += np.einsum("ij,ij->i", own, own)
    distances: Array = squares.min(axis=1) + np.einsum("ij,ij->i", rows, rows)
    return distances


def _with_common(near: IndexArray, own: IndexArray, common: Expert | None) -> IndexArray:
    """Rows of others that an expert knows, with those that all know."""
    if common is None:
        return near
    more = common.indices[~np.isin(common.indices, np.concatenate([own, near]))]
    return np.concatenate([near, more])
