"""Statistics of all rows: sums over blocks, whatever the blocks."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manygp.arrays import AnyArray, Array
from manygp.inputs import Moments

Words = npt.NDArray[np.uint64]

# A float is an integer of 53 bits times a power of two: its two halves are summed by exponent.
HALF = 27
EXPONENTS = 2200
LOWEST = 1100
# Odd numbers that mix bits, of the generator splitmix64.
STEP, FIRST, SECOND = (
    np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB),
)  # fmt: skip
# Bits of precision of a standard deviation before it is rounded to a float.
ROOT_BITS = 128


def mixed(words: Words) -> Words:
    """Each word as another one that looks random."""
    with np.errstate(over="ignore"):
        words = (words + STEP).astype(np.uint64)
        words = (words ^ (words >> np.uint64(30))) * FIRST
        words = (words ^ (words >> np.uint64(27))) * SECOND
    return words ^ (words >> np.uint64(31))


def row_hashes(numbers: npt.NDArray[np.int64], seed: int) -> Words:
    """A random word for each row, by its number among all rows and a seed: (N,)."""
    return mixed(numbers.astype(np.uint64) ^ mixed(np.array([seed], dtype=np.uint64)))


def fingerprint(numbers: npt.NDArray[np.int64], values: Array) -> int:
    """A number that changes with any number in rows (N, c), as a sum over rows."""
    with np.errstate(over="ignore"):
        total = mixed(numbers.astype(np.uint64))
        for column in values.T:
            total = mixed(total ^ np.ascontiguousarray(column + 0.0).view(np.uint64))
        return int(total.sum(dtype=np.uint64))


def exact_sum(values: Array) -> Fraction:
    """The sum of finite numbers without any rounding, whatever their order."""
    total = 0
    for start in range(0, len(values), 2**20):  # sums of halves stay below 2^53
        fractions, exponents = np.frexp(values[start : start + 2**20])
        integers = np.ldexp(fractions, 53).astype(np.int64)
        places = exponents.astype(np.int64) + LOWEST
        high, low = integers >> HALF, integers & (2**HALF - 1)
        for half, shift in ((high, HALF), (low, 0)):
            sums = np.bincount(places, half.astype(float), minlength=EXPONENTS)
            for place in np.flatnonzero(sums).tolist():
                total += int(sums[place]) << (place + shift)
    return Fraction(total, 1 << (LOWEST + 53))


class Statistics(NamedTuple):
    """Statistics of some rows.

    Attributes
    ----------
    n : int
    low, high : ndarrays of shape (d + t,)
        Ranges of inputs and targets.
    sums, squares : tuples of Fraction
        Exact sums of each target, and of its squares.
    digest : int
        See `fingerprint`.
    """

    n: int
    low: Array
    high: Array
    sums: tuple[Fraction, ...]
    squares: tuple[Fraction, ...]
    digest: int

    @classmethod
    def of(cls, numbers: npt.NDArray[np.int64], values: Array, targets: AnyArray) -> Statistics:
        """Those of rows (N, c) with numbers (N,), whose columns `targets` follow the inputs."""
        sums, squares = [], []
        for y in values[:, targets].T:
            sums.append(exact_sum(y))
            product = y * y
            # Dekker: the product of two halves of 26 bits is exact.
            large = y * 134217729.0
            head = large - (large - y)
            tail = y - head
            rest = ((head * head - product) + 2 * head * tail) + tail * tail
            squares.append(exact_sum(product) + exact_sum(rest))
        digest = fingerprint(numbers, values)
        ranged = values[:, : targets[-1] + 1]
        low, high = ranged.min(axis=0), ranged.max(axis=0)
        return cls(len(values), low, high, tuple(sums), tuple(squares), digest)

    @classmethod
    def joined(cls, pieces: Sequence[Statistics]) -> Statistics:
        """Those of several sets of rows."""
        some = [one for one in pieces if one.n]
        if not some:
            return cls(0, np.empty(0), np.empty(0), (), (), 0)
        sums, squares = (
            tuple(sum(column, Fraction()) for column in zip(*several, strict=True))
            for several in ([one.sums for one in some], [one.squares for one in some])
        )
        return cls(
            sum(one.n for one in some),
            np.min([one.low for one in some], axis=0),
            np.max([one.high for one in some], axis=0),
            sums,
            squares,
            sum(one.digest for one in some) % 2**64,
        )

    @property
    def moments(self) -> Moments:
        """What scales depend on, each number rounded once."""
        means = [total / self.n for total in self.sums]
        variances = [
            max(Fraction(0), squares / self.n - mean * mean)
            for squares, mean in zip(self.squares, means, strict=True)
        ]
        half_std = np.array([_root(variance) / 2 for variance in variances])
        return Moments(self.n, self.low, self.high, np.array(means, dtype=float), half_std)


def _root(variance: Fraction) -> float:
    """The square root, rounded once."""
    size = (variance.numerator.bit_length() - variance.denominator.bit_length()) // 2
    unit = Fraction(2) ** (ROOT_BITS - size)
    return float(isqrt(int(variance * unit * unit)) / unit)
