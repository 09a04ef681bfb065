"""A regressor for streams in river (extra `river`): one row at a time, learned in batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import clone

try:
    from river.base import Regressor
    from river.conf.interval import Interval
except ImportError as error:
    raise ImportError('manygp.river needs an extra: pip install "manygp[river]"') from error

from manygp.arrays import Array
from manygp.regressor import ManyGPRegressor

Row = dict[Hashable, float]
Rows = list[tuple[Row, float]]


class RiverManyGP(Regressor):
    """A `ManyGPRegressor` with the methods of river.

    Rows wait until there are `batch` of them. The first batch is fit, later ones are added by
    `partial_fit`, and the oldest rows are forgotten: the model never knows more than `window`.

    A feature that a row lacks has its mean. A new one is learned by a fit to all rows.

    Parameters
    ----------
    estimator : ManyGPRegressor, optional
        What is fit; it stays as it is. By default one with ``random_state=0``.
    batch : int, default=50
        Rows that are learned together. Predictions know nothing of those that wait.
    window : int, default=2000
        Rows that are kept, at least `batch`.
    """

    def __init__(
        self, estimator: ManyGPRegressor | None = None, batch: int = 50, window: int = 2000
    ) -> None:
        if not 1 <= batch <= window:
            raise ValueError(f"1 <= batch <= window must hold, not {batch=} and {window=}")
        self.estimator, self.batch, self.window = estimator, batch, window
        self._model: ManyGPRegressor | None = None
        self._rows: deque[tuple[Row, float]] = deque(maxlen=window)
        self._waiting: Rows = []
        self._means: Row = {}  # of the features that the model knows, in their order
        self._n, self._mean = 0, 0.0

    def learn_one(self, x: Mapping[Hashable, Any], y: Any) -> None:
        """Take a row; with the last of a batch, learn all of them."""
        if not isinstance(y, Real) or not np.isfinite(float(y)):
            raise ValueError(f"y must be a finite number, not {y!r}")
        row, target = _numbers(x), float(y)
        waiting = [*self._waiting, (row, target)]
        if len(waiting) >= self.batch:
            self._learn(waiting)
            waiting = []
        self._waiting, self._n = waiting, self._n + 1
        self._mean += (target - self._mean) / self._n

    def predict_one(self, x: Mapping[Hashable, Any]) -> float:
        """The prediction; before the first batch the mean of the targets so far, or 0."""
        if self._model is None:
            return self._mean
        return float(self._model.predict(_table([_numbers(x)], self._means))[0])

    def predict_interval_one(self, x: Mapping[Hashable, Any], coverage: float = 0.9) -> Interval:
        """The interval that holds a new target with this probability; infinite before a batch."""
        if self._model is None:
            return Interval(-np.inf, np.inf)
        lower, upper = self._model.predict_interval(_table([_numbers(x)], self._means), coverage)
        return Interval(float(lower[0]), float(upper[0]))

    def _learn(self, new: Rows) -> None:
        """Fit, or add, these rows; if that fails, all stays as it was."""
        rows = deque([*self._rows, *new], maxlen=self.window)
        model, means = self._model, _means(rows)
        if model is None or not means.keys() <= self._means.keys():
            model, learned = clone(self.estimator or ManyGPRegressor(random_state=0)), [*rows]
        else:
            learned, means = new, self._means | means
        model.partial_fit(_table([x for x, _ in learned], means), [y for _, y in learned])
        self._model, self._rows, self._means = model, rows, means
        if len(model.row_ids_) > self.window:
            model.forget(older_than=int(model.row_ids_[-self.window]))


def _table(rows: list[Row], means: Row) -> Array:
    """Rows as numbers, with means where a feature is missing: (k, d)."""
    return np.array([[row.get(name, mean) for name, mean in means.items()] for row in rows])


def _number(value: Any, name: Hashable) -> float:
    if not isinstance(value, (Real, np.bool_)):
        raise ValueError(f"{name!r} must be a number, not {value!r}: OneHotEncoder makes some")
    if np.isinf(float(value)):
        raise ValueError(f"{name!r} must be finite, not {value!r}")
    return float(value)


def _numbers(x: Mapping[Hashable, Any]) -> Row:
    """The features of a row that are there."""
    row = {name: _number(value, name) for name, value in x.items() if value is not None}
    return {name: value for name, value in row.items() if not np.isnan(value)}


def _means(rows: deque[tuple[Row, float]]) -> Row:
    """Means of all features that rows have, in an order that is not that of the features."""
    values: dict[Hashable, list[float]] = {}
    for name, value in (pair for row, _ in rows for pair in row.items()):
        values.setdefault(name, []).append(value)
    return {name: float(np.mean(values[name])) for name in sorted(values, key=str)}
