"""How errors are spread, in units of the std: learned from rows that were left out.

Where the std is small, errors may have other tails than where it is large. Rows that were left out
then are cut into groups by their std, and what a row gets lies between those of the two groups
that are next to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from manygp.arrays import Array, read_only
from manygp.distribution import PredictiveDistribution, fit_tail

# Degrees of freedom from which on a Student-t is taken for normal.
NEARLY_INFINITE = 1e4


@dataclass(frozen=True, eq=False)
class Conformity:
    """Errors of m rows that were left out, in G groups of rows by their std.

    Attributes
    ----------
    errors : ndarray of shape (t, m)
        ``|y - mean| / std`` of each target. Groups stand one after the other, the smallest std
        first, and are sorted in themselves. They have m / G rows each, the first ones one more.
    places : ndarray of shape (G,)
        Logarithm of the median std of each group, in units of the normalised targets.
    """

    errors: Array
    places: Array

    @classmethod
    def of(cls, errors: Array, std: Array, n_groups: int = 1) -> Conformity:
        """The errors (t, m), of either sign, of rows with the std (m,)."""
        groups = np.array_split(np.argsort(std, kind="stable"), n_groups)
        places = np.array([np.median(np.log(std[group])) for group in groups])
        found = [np.sort(np.abs(errors[:, group]), axis=1) for group in groups]
        return cls(read_only(np.concatenate(found, axis=1)), read_only(places))

    @property
    def groups(self) -> list[Array]:
        """The errors of each group: (t, m / G)."""
        return np.array_split(self.errors, len(self.places), axis=1)

    def require(self, coverage: float) -> None:
        """Refuse a coverage that so many rows cannot promise."""
        check_coverage(coverage)
        m = self.errors.shape[1]
        if m == 1:
            raise ValueError("a single training row tells nothing about errors; fit more")
        if _rank(m, coverage) > m:
            raise ValueError(
                f"{m} training rows can promise a coverage of at most {m / (m + 1):.4g}, not "
                f"{coverage!r}"
            )

    def reach(self, coverage: float, std: Array) -> Array:
        """How many std an interval extends to either side of rows with the std (N, t): (N, t).

        Where a group has too few rows to promise the coverage, it is that of all rows, or the
        largest error of the group if that is larger.
        """
        self.require(coverage)
        groups = self.groups
        ranks = [min(_rank(group.shape[1], coverage), group.shape[1]) for group in groups]
        quantiles = [group[:, rank - 1] for group, rank in zip(groups, ranks, strict=True)]
        found = self._between(np.array(quantiles), std)
        if all(_rank(group.shape[1], coverage) <= group.shape[1] for group in groups):
            return found
        every = np.sort(self.errors, axis=1)
        return np.maximum(found, every[:, _rank(every.shape[1], coverage) - 1])

    @cached_property
    def tails(self) -> Array:
        """One over the degrees of freedom, and the scale, of each group and target: (2, G, t)."""
        found = [[fit_tail(errors) for errors in group] for group in self.groups]
        dof, scale = np.moveaxis(np.array(found), -1, 0)
        return np.array([1 / dof, scale])

    def distribution(self, mean: Array, std: Array, units: Array) -> PredictiveDistribution:
        """Of rows with this mean and std, (N,) or (N, t), in these units of each target (t,)."""
        if len(self.places) == 1:
            inverse, scale = self.tails[:, 0] if std.ndim == 2 else self.tails[:, 0, 0]
        else:
            normalised = (std if std.ndim == 2 else std[:, None]) / units
            found = (self._between(one, normalised) for one in self.tails)
            inverse, scale = (one.reshape(std.shape) for one in found)
        normal = inverse < 1 / NEARLY_INFINITE
        dof = np.where(normal, np.inf, 1 / np.where(normal, 1.0, inverse))
        return PredictiveDistribution(mean, std, dof, np.asarray(scale))

    def _between(self, values: Array, std: Array) -> Array:
        """What rows with the std (N, t) get of the values (G, t) of groups: (N, t)."""
        columns = zip(np.log(std).T, values.T, strict=True)
        return np.column_stack([np.interp(x, self.places, value) for x, value in columns])


def check_coverage(coverage: float) -> None:
    """Refuse what is no coverage."""
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must lie between 0 and 1, not be {coverage!r}")


def _rank(m: int, coverage: float) -> int:
    """Which of m sorted errors, from 1 on, a new one exceeds with a chance of 1 - coverage."""
    return int(np.ceil((m + 1) * coverage - 1e-9))
