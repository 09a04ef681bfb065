"""Rows that repeat others: what they tell about the noise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manygp.arrays import Array
from manygp.gp.likelihood import TrainingData
from manygp.kernels.base import NoisyKernel, White

# Fewer repeated rows, or a smaller share of all rows, tell too little: where they agree, the rule
# of succession would claim noise that is not there.
FEWEST_REPEATS = 30
SMALLEST_SHARE = 0.05


class Repeats(NamedTuple):
    """Rows that are equal to an earlier one, and how their targets differ.

    Attributes
    ----------
    n_repeated : int
        Rows that repeat another one: the degrees of freedom of their differences.
    squares : float
        Sum of squared differences of normalised targets from the mean of their equals, averaged
        over the targets, less what is known noise.
    n_rows : int
        All rows.
    """

    n_repeated: int
    squares: float
    n_rows: int

    @property
    def tell_noise(self) -> bool:
        """Whether there are enough of them."""
        return self.n_repeated >= max(FEWEST_REPEATS, SMALLEST_SHARE * self.n_rows)

    @property
    def noise_floor(self) -> float:
        """Noise variance that the repeated rows speak of.

        Where they agree, a rule of succession holds: one more row might have differed as much as
        targets do. Without it the likelihood could choose no noise at all.
        """
        return (self.squares + 1.0) / (self.n_repeated + 1.0)


def find_repeats(data: TrainingData) -> Repeats:
    """Compare the targets of equal rows."""
    groups = _groups(data.X)
    n, n_groups = len(groups), int(groups.max()) + 1
    if n_groups == n:
        return Repeats(0, 0.0, n)
    sizes = np.bincount(groups)
    within = 0.0
    for y in data.Y.T:
        mean = np.bincount(groups, y) / sizes
        within += float(((y - mean[groups]) ** 2).sum()) / data.Y.shape[1]
    known = float((data.alpha * (1 - 1 / sizes[groups])).sum())
    return Repeats(n - n_groups, max(0.0, within - known), n)


def _groups(X: Array) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """A number for each distinct row: (n,).

    Equal rows have equal projections, which are quick to sort.
    """
    projection = X @ np.random.default_rng(0).normal(size=X.shape[1])
    order = np.argsort(projection, kind="stable")
    near = np.diff(projection[order]) == 0
    new = np.ones(len(X), dtype=bool)
    candidates = 1 + np.flatnonzero(near)
    new[candidates] = np.any(X[order[candidates]] != X[order[candidates - 1]], axis=1)
    groups = np.empty(len(X), dtype=np.intp)
    groups[order] = np.cumsum(new) - 1
    return groups


def with_noise_floor(kernel: NoisyKernel, repeats: Repeats) -> NoisyKernel:
    """The kernel whose noise is at least what repeated rows speak of."""
    return with_noise_of(kernel, repeats.noise_floor) if repeats.tell_noise else kernel


def with_noise_of(kernel: NoisyKernel, least: float) -> NoisyKernel:
    """The kernel whose noise variance is at least a number, if it is free."""
    noise = kernel.noise
    if isinstance(noise.variance_bounds, str):
        return kernel
    low, high = (max(float(one), least) for one in noise.variance_bounds)  # type: ignore[arg-type]
    variance = float(np.clip(noise.variance, low, high))
    return NoisyKernel(kernel.signal, White(variance, (low, high)))
