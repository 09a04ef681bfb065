"""Arrays that carry their derivatives: rules, which are functions of arrays, then pass them on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from manygp.arrays import Array

# Derivatives by the first and second argument, of the arguments and the result.
Slopes = tuple[Callable[..., Any], ...]
SLOPES: dict[Any, Slopes] = {
    np.add: (lambda a, b, c: 1.0, lambda a, b, c: 1.0),
    np.subtract: (lambda a, b, c: 1.0, lambda a, b, c: -1.0),
    np.multiply: (lambda a, b, c: b, lambda a, b, c: a),
    np.divide: (lambda a, b, c: 1 / b, lambda a, b, c: -c / b),
    np.power: (lambda a, b, c: b * a ** (b - 1), lambda a, b, c: c * np.log(a)),
    np.maximum: (lambda a, b, c: a >= b, lambda a, b, c: b > a),
    np.minimum: (lambda a, b, c: a <= b, lambda a, b, c: b < a),
    np.negative: (lambda a, c: -1.0,),
    np.absolute: (lambda a, c: np.sign(a),),
    np.square: (lambda a, c: 2 * a,),
    np.sqrt: (lambda a, c: 0.5 / c,),
    np.exp: (lambda a, c: c,),
    np.log: (lambda a, c: 1 / a,),
    np.log1p: (lambda a, c: 1 / (1 + a),),
    np.expm1: (lambda a, c: c + 1,),
    np.sin: (lambda a, c: np.cos(a),),
    np.cos: (lambda a, c: -np.sin(a),),
    np.tanh: (lambda a, c: 1 - c**2,),
}
# What is asked of the values alone.
OF_VALUES = (
    np.greater, np.greater_equal, np.less, np.less_equal, np.equal, np.not_equal, np.isfinite,
    np.isnan,
)  # fmt: skip


class Dual(NDArrayOperatorsMixin):
    """Values (...) and their derivatives by d inputs (..., d).

    NumPy's functions return plain arrays where the answer has no derivative, such as comparisons,
    and refuse with a TypeError what is not in the tables of this module.
    """

    def __init__(self, value: Array, slope: Array) -> None:
        self.value, self.slope = np.asarray(value, dtype=float), np.asarray(slope, dtype=float)

    @classmethod
    def joined(cls, pieces: Sequence[Dual]) -> Dual:
        """Arrays one after the other."""
        if len(pieces) == 1:
            return pieces[0]
        return cls(
            np.concatenate([one.value for one in pieces]),
            np.concatenate([one.slope for one in pieces]),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def ndim(self) -> int:
        return self.value.ndim

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, places: Any) -> Dual:
        return Dual(self.value[places], self.slope[places])

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("a plain array would lose the derivatives")

    def reshape(self, *shape: int) -> Dual:
        value = self.value.reshape(*shape)
        return Dual(value, self.slope.reshape(*value.shape, self.slope.shape[-1]))

    def sum(self, axis: int) -> Dual:
        return Dual(self.value.sum(axis=axis), self.slope.sum(axis=axis))

    def mean(self, axis: int) -> Dual:
        return Dual(self.value.mean(axis=axis), self.slope.mean(axis=axis))

    def max(self, axis: int) -> Dual:
        place = np.expand_dims(self.value.argmax(axis=axis), axis)
        slope = np.take_along_axis(self.slope, place[..., None], axis)
        return Dual(self.value.max(axis=axis), slope.squeeze(axis))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            return NotImplemented
        values = [one.value if isinstance(one, Dual) else np.asarray(one) for one in inputs]
        result = ufunc(*values)
        if ufunc in OF_VALUES:
            return result
        if ufunc not in SLOPES:
            return NotImplemented
        slope: Any = 0.0
        with np.errstate(all="ignore"):  # where it is infinite, another branch is taken
            for one, by in zip(inputs, SLOPES[ufunc], strict=True):
                if isinstance(one, Dual):
                    factor = np.broadcast_to(by(*values, result), result.shape)[..., None]
                    # A branch that is not taken counts nothing, even if it is infinite.
                    slope = slope + np.where(factor == 0, 0.0, factor * one.slope)
        return Dual(result, slope)

    def __array_function__(self, function: Any, types: Any, given: Any, options: Any) -> Any:
        if function in FUNCTIONS:
            return FUNCTIONS[function](*given, **options)
        return NotImplemented


def _where(condition: Array, first: Any, second: Any) -> Dual:
    (a, da), (b, db) = value_and_slope(first), value_and_slope(second)
    return Dual(np.where(condition, a, b), np.where(condition[..., None], da, db))


def _interp(x: Dual, xs: Any, ys: Any) -> Dual:
    """Piecewise linear, and constant outside."""
    xs, ys = np.asarray(xs, dtype=float), np.asarray(ys, dtype=float)
    steps = np.concatenate([[0.0], np.diff(ys) / np.diff(xs), [0.0]])
    rise = steps[np.searchsorted(xs, x.value, side="right")]
    return Dual(np.interp(x.value, xs, ys), rise[..., None] * x.slope)


def _broadcast_to(x: Dual, shape: Any) -> Dual:
    shape = tuple(np.atleast_1d(shape))
    return Dual(
        np.broadcast_to(x.value, shape), np.broadcast_to(x.slope, (*shape, x.slope.shape[-1]))
    )


def _stack(arrays: Any) -> Dual:
    pairs = [value_and_slope(one) for one in arrays]
    return Dual(np.stack([value for value, _ in pairs]), np.stack([slope for _, slope in pairs]))


def value_and_slope(x: Any) -> tuple[Array, Array]:
    """Value and derivatives of an array of any kind."""
    return (x.value, x.slope) if isinstance(x, Dual) else (np.asarray(x), np.zeros(1))


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.where: _where,
    np.interp: _interp,
    np.broadcast_to: _broadcast_to,
    np.stack: _stack,
    np.clip: lambda x, low, high: np.minimum(np.maximum(x, low), high),
    np.shape: lambda x: x.shape,
    np.ndim: lambda x: x.ndim,
    np.ones_like: lambda x: np.ones(x.shape),
    np.zeros_like: lambda x: np.zeros(x.shape),
}


def with_slopes(X: Array) -> Dual:
    """Rows X (N, d) with their derivatives by themselves."""
    n, d = X.shape
    return Dual(X, np.broadcast_to(np.eye(d), (n, d, d)))
