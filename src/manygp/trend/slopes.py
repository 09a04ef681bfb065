"""Derivatives of trends by the inputs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.interpolate import BSpline

from manygp.arrays import Array
from manygp.gp.trend import TrendModel
from manygp.rules.dual import Dual
from manygp.trend.linear import LinearTrend
from manygp.trend.terms import HATS, LINE_REACH, Axis, Basis, extended_knots, smooth


class TrendSlopes(NamedTuple):
    """What a trend says about one row, with derivatives by its inputs (d,): see `TrendAt`.

    Attributes
    ----------
    mean, spread : Dual of shape ()
    beyond : Dual of shape (1,)
    basis : Dual of shape (r,), or None
    """

    mean: Dual
    spread: Dual
    beyond: Dual
    basis: Dual | None

    def variance(self, terms: Dual | None) -> Dual:
        """The variance of the trend if this (r,) is left of its terms: ()."""
        return self.spread if terms is None else self.spread + (terms * terms).sum(axis=0)


def trend_slopes(model: TrendModel, x: Array) -> TrendSlopes:
    """What a trend of one target says about one row x (d,), with derivatives.

    Raises
    ------
    ValueError
        If the trend is made of models, which tell no derivatives; those of trees are steps.
    """
    if not isinstance(model, LinearTrend):
        raise ValueError(
            f"predictions with the trend {model.name!r} have no gradients; fit again with trend="
            "'additive', 'linear', 'constant' or 'none'"
        )
    basis = model.form.basis
    unit = (Dual(x, np.eye(len(x))) - basis.low) / basis.width
    functions, holds = _functions(basis, unit)
    outside = np.maximum(np.abs(unit - 0.5).max(axis=0) - 0.5, 0.0)
    found = TrendSlopes(
        _times(model.coefficients[:, 0], functions),
        ((1 - holds * holds) * model.sizes).sum(axis=0),
        Dual(outside.value[None], outside.slope[None]),
        _times(model.root, functions) if len(model.root) else None,
    )
    if model.kriged:
        return found
    return found._replace(spread=found.variance(found.basis), basis=None)


def _functions(basis: Basis, unit: Dual) -> tuple[Dual, Dual]:
    """The functions of a basis (p,), and how much of each term holds (T,): `Basis.functions`."""
    d = len(unit)
    values, slopes = [np.ones(1)], [np.zeros((1, d))]
    holds = Dual(np.ones(len(basis.terms)), np.zeros((len(basis.terms), d)))
    for i, term in enumerate(basis.terms):
        evaluated = [_evaluate(axis, unit[axis.column]) for axis in term.axes]
        product, share = evaluated[0]
        for other, its_share in evaluated[1:]:
            product, share = product[:, None] * other[None], share * its_share
        values.append(product.value.reshape(-1))
        slopes.append(product.slope.reshape(-1, d))
        holds.value[i], holds.slope[i] = share.value, share.slope
    return Dual(np.concatenate(values), np.concatenate(slopes)), holds


def _evaluate(axis: Axis, unit: Dual) -> tuple[Dual, Dual]:
    """Functions (size,) of a column in units of its range, and how far they hold ()."""
    if not axis.knots:
        line = _clipped(unit, -LINE_REACH, 1 + LINE_REACH) - 0.5
        return line[None], Dual(np.ones(()), np.zeros_like(unit.slope))
    extended, spacing = extended_knots(axis)
    inside = _clipped(unit, axis.knots[0], axis.knots[-1])
    weights = smooth(axis.size) if axis.degree > HATS else np.eye(axis.size)
    spline = BSpline(extended, weights, axis.degree)
    rise = spline.derivative()(inside.value)
    found = Dual(spline(inside.value), rise[:, None] * inside.slope)
    share = np.exp(-(((unit - inside) / spacing) ** 2))
    return found * share, share


def _clipped(x: Dual, low: float, high: float) -> Dual:
    return np.clip(x, low, high)  # type: ignore[return-value]


def _times(matrix: Array, x: Dual) -> Dual:
    """A matrix (r, p) times values (p,), or the sum of these by weights (p,)."""
    return Dual(matrix @ x.value, matrix @ x.slope)
