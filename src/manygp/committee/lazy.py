"""Experts that exist when they are first needed: a large model is rows on a disk and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

from manygp.arrays import AnyArray, Array, IndexArray
from manygp.gp.expert import Expert, condition_later
from manygp.gp.factors import Factors
from manygp.gp.likelihood import KernelFit, TrainingData
from manygp.kernels.base import NoisyKernel

# Rows of the experts that are kept once they were needed, at most.
MOST_ROWS = 2**23


class Spans(Sequence[IndexArray]):
    """Parts of rows that lie one after the other; `bounds` (M + 1,) says where each begins."""

    def __init__(self, bounds: IndexArray) -> None:
        self.bounds = bounds

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, m: Any) -> Any:
        if not 0 <= m < len(self):
            raise IndexError(m)
        return self.between(self.bounds[m], self.bounds[m + 1])

    def between(self, start: int, end: int) -> IndexArray:
        """Rows of all parts, one after the other, from one place to another."""
        return np.arange(start, end)

    @property
    def flat(self) -> IndexArray:
        """Rows of all parts."""
        return self.between(0, self.bounds[-1])


class Slices(Spans):
    """Parts whose rows lie one after the other in an array of row numbers."""

    def __init__(self, rows: IndexArray, bounds: IndexArray) -> None:
        super().__init__(bounds)
        self.rows = rows

    def between(self, start: int, end: int) -> IndexArray:
        return self.rows[start:end]


def in_one(parts: Sequence[IndexArray]) -> Spans:
    """The parts as pieces of one array, if they are not yet."""
    if isinstance(parts, Spans):
        return parts
    bounds = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return Slices(np.concatenate(parts), bounds)


class LazyFits(Sequence[KernelFit]):
    """Kernels of the experts, kept as numbers.

    Parameters
    ----------
    kernel : NoisyKernel
        Whose form all of them have.
    values : ndarray of shape (M, p)
        Hyperparameters.
    counts : ndarray of shape (M,)
        Evaluations of the likelihood that each fit took.
    """

    def __init__(self, kernel: NoisyKernel, values: Array, counts: AnyArray) -> None:
        self.kernel, self.values, self.counts = kernel, values, counts
        same = len(values) > 0 and bool(np.all(values == values[0]))
        self._shared = kernel.with_values(values[0].tolist()) if same else None

    @classmethod
    def of(cls, fits: Sequence[KernelFit]) -> LazyFits:
        """The numbers of fits, whose kernels have one form."""
        values = np.array([one.kernel.values for one in fits])
        return cls(fits[0].kernel, values, np.array([one.n_evaluations for one in fits]))

    def at(self, places: IndexArray) -> LazyFits:
        """The kernels at some places."""
        return LazyFits(self.kernel, self.values[places], self.counts[places])

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, m: Any) -> Any:
        kernel = self._shared or self.kernel.with_values(self.values[m].tolist())
        return KernelFit(kernel, int(self.counts[m]))


class LazyExperts(Sequence[Expert]):
    """Experts that are made when they are first needed, and their factors when first queried.

    Parameters
    ----------
    data : TrainingData
        All rows; they may be memory-mapped.
    parts : sequence of index arrays
    neighbours : sequence of index arrays
        Rows of others that the expert of each part knows as well.
    fits : LazyFits
    sizes : ndarray of shape (M,)
        How many rows each expert knows.
    """

    def __init__(
        self,
        data: TrainingData,
        parts: Sequence[IndexArray],
        neighbours: Sequence[IndexArray],
        fits: LazyFits,
        sizes: AnyArray,
    ) -> None:
        self.data, self.parts, self.neighbours = data, parts, neighbours
        self.fits, self.sizes = fits, sizes
        self._factors = Factors()
        self._made: dict[int, Expert] = {}
        self._most = max(1, int(MOST_ROWS * len(parts) / max(1, int(sizes.sum()))))

    def __len__(self) -> int:
        return len(self.parts)

    @overload
    def __getitem__(self, m: int) -> Expert: ...
    @overload
    def __getitem__(self, m: slice) -> tuple[Expert, ...]: ...
    def __getitem__(self, m: Any) -> Any:
        if isinstance(m, slice):
            return tuple(self[i] for i in range(*m.indices(len(self))))
        place = m + len(self) if m < 0 else m
        made = self._made
        known = made.get(place)
        if known is not None:
            return known
        if not 0 <= place < len(self):
            raise IndexError(m)
        expert = condition_later(
            self.data,
            self.parts[place],
            self.neighbours[place],
            self.fits[place],
            self._factors,
        )
        if len(made) >= self._most:  # others, which are in use, live on where they are used
            made = self._made = {}
        return made.setdefault(place, expert)  # of two threads one wins

    def __iter__(self) -> Iterator[Expert]:
        return (self[m] for m in range(len(self)))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": {}}
