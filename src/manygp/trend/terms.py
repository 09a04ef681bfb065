"""The terms of an additive trend: lines and splines of columns, and products of pairs of them.

A spline is cubic between quantiles of its column. A column of few distinct values has a spline of
degree 1 between these: a step for each. Outside of the range a spline fades to zero within the
distance of two knots, and a straight line goes on for one range.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.interpolate import BSpline

from manygp.arrays import Array

CUBIC, HATS = 3, 1
# Share of a coefficient's own square in its cost, beside those of second differences.
ROUGHNESS = 0.1
# How many ranges beyond its range a straight line goes on.
LINE_REACH = 1.0


class Axis(NamedTuple):
    """Functions of one column.

    Attributes
    ----------
    column : int
    knots : tuple of float
        Increasing; a spline's segments lie between them. Without knots, a straight line.
    degree : int
    """

    column: int
    knots: tuple[float, ...] = ()
    degree: int = HATS

    @property
    def size(self) -> int:
        """The number of functions."""
        return len(self.knots) - 1 + self.degree if self.knots else 1


class Term(NamedTuple):
    """All products of the functions of one or two columns."""

    axes: tuple[Axis, ...]

    @property
    def columns(self) -> tuple[int, ...]:
        return tuple(axis.column for axis in self.axes)

    @property
    def size(self) -> int:
        return int(np.prod([axis.size for axis in self.axes]))


class Basis(NamedTuple):
    """The functions of a trend: a constant, and those of its terms.

    Attributes
    ----------
    low, width : ndarrays of shape (d,)
        Ranges of the columns of the training rows.
    terms : tuple of Term
    """

    low: Array
    width: Array
    terms: tuple[Term, ...]

    @property
    def size(self) -> int:
        """The number of functions."""
        return 1 + sum(term.size for term in self.terms)

    def functions(self, X: Array) -> tuple[Array, Array]:
        """Values of the functions (N, p) at rows, and how much of each term holds there (N, T).

        What holds is 1 inside of the range of the training rows, and falls to 0 outside.
        """
        unit = (X - self.low) / self.width
        evaluated: dict[Axis, tuple[Array, Array]] = {}
        values, holds = np.ones((len(X), self.size)), np.ones((len(X), len(self.terms)))
        start = 1
        for i, term in enumerate(self.terms):
            for axis in term.axes:
                if axis not in evaluated:
                    evaluated[axis] = _evaluate(axis, unit[:, axis.column])
            first, *others = (evaluated[axis] for axis in term.axes)
            product, holds[:, i] = first
            for functions, share in others:
                product = (product[:, :, None] * functions[:, None]).reshape(len(X), -1)
                holds[:, i] *= share
            values[:, start : start + term.size] = product
            start += term.size
        return values, holds

    def slices(self) -> list[slice]:
        """Where the functions of each term are."""
        ends = np.cumsum([1, *(term.size for term in self.terms)]).tolist()
        return [slice(start, end) for start, end in pairwise(ends)]

    def beyond(self, X: Array) -> Array:
        """How many ranges a row lies outside of the range of the training rows: (N,)."""
        return beyond(X, self.low, self.width)


def _evaluate(axis: Axis, unit: Array) -> tuple[Array, Array]:
    """Functions of a column (N,) in units of its range: (N, size); and how far they hold."""
    if not axis.knots:
        line = np.clip(unit, -LINE_REACH, 1 + LINE_REACH) - 0.5
        return line[:, None], np.ones(len(unit))
    extended, spacing = extended_knots(axis)
    inside = np.clip(unit, axis.knots[0], axis.knots[-1])
    found = BSpline.design_matrix(inside, extended, axis.degree).toarray()
    if axis.degree > HATS:  # steps need not be alike
        found = found @ smooth(axis.size)
    share = np.exp(-(((unit - inside) / spacing) ** 2))
    return found * share[:, None], share


def extended_knots(axis: Axis) -> tuple[Array, float]:
    """The knots of a spline's functions, those outside of its range too, and their spacing."""
    knots = np.array(axis.knots)
    spacing = (knots[-1] - knots[0]) / (len(knots) - 1)
    outer = spacing * np.arange(1, axis.degree + 1)
    return np.concatenate([knots[0] - outer[::-1], knots, knots[-1] + outer]), spacing


@cache
def smooth(size: int) -> Array:
    """What makes the coefficients of neighbouring functions alike: (size, size).

    Independent coefficients times this have the precision D'D + ROUGHNESS I, where D takes second
    differences: straight lines cost little, and waves much.
    """
    second = np.diff(np.eye(size), n=2, axis=0) if size > 2 else np.zeros((0, size))
    precision = second.T @ second + ROUGHNESS * np.eye(size)
    values, vectors = np.linalg.eigh(precision)
    root: Array = vectors / np.sqrt(values)
    return root / np.sqrt((root**2).sum() / size)


def ranges(X: Array) -> tuple[Array, Array]:
    """Lowest values and widths (d,) of the columns; 1 for the width of a constant one."""
    low, high = X.min(axis=0), X.max(axis=0)
    return low, np.where(high > low, high - low, 1.0)


def beyond(X: Array, low: Array, width: Array) -> Array:
    """How many ranges a row lies outside of the ranges from `low` on: (N,)."""
    unit = (X - low) / width
    return np.maximum(np.abs(unit - 0.5).max(axis=1) - 0.5, 0.0)


def line_terms(X: Array) -> tuple[Term, ...]:
    """A straight line for each column that varies."""
    varies = X.max(axis=0) > X.min(axis=0)
    return tuple(Term((Axis(j),)) for j in np.flatnonzero(varies).tolist())


def spline_axes(X: Array, segments: int, degree: int = CUBIC) -> dict[int, Axis]:
    """A spline of some segments for each column that varies, in units of its range.

    A column of no more distinct values than the spline has functions gets a step for each.
    """
    low, width = ranges(X)
    found = {}
    for j, column in enumerate(((X - low) / width).T):
        if column.max() == 0.0:
            continue
        values = np.unique(column)
        if len(values) <= segments + degree:
            found[j] = Axis(j, tuple(values.tolist()), HATS)
            continue
        knots = np.unique(np.quantile(column, np.linspace(0, 1, segments + 1)))
        even = np.linspace(0, 1, segments + 1)
        # Quantiles of a column in which one value is frequent would leave wide gaps.
        knots = knots if len(knots) == segments + 1 else even
        found[j] = Axis(j, tuple((0.5 * (knots + even)).tolist()), degree)
    return found
