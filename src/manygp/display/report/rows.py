"""The rows that a report speaks of: training rows that were left out, and tested ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manygp import answers, metrics
from manygp.answers import LEFT_OUT_ROWS
from manygp.arrays import Array, IndexArray
from manygp.display.report.columns import Inputs, comparable, training_inputs
from manygp.model import FittedModel, ids_of
from manygp.runtime.words import LEFT_OUT_WORDS, counted
from manygp.steps import SteppedDistribution

# The share of rows that intervals hold, unless tested rows have others.
COVERAGE = 0.9
# Training rows that are left out beside tested rows, at most.
FEWER_ROWS = 5_000
# How many std a normal interval of 90% extends to either side.
NORMAL_REACH = 1.6449
# Rows are the same if their values differ by less than this share of a column's range.
RESOLUTION = 1e-6


class Tested(NamedTuple):
    """Predictions of rows whose targets are known.

    Attributes
    ----------
    y, mean, std, lower, upper : ndarrays of shape (N,) or (N, t)
        Targets, `predict` and `predict_interval`.
    coverage : float
        The share of rows that the intervals should hold.
    name : str
        Name of the data.
    X : ndarray of shape (N, d), optional
        The rows, as `fit` saw them; without them the page cannot tell where they lie.
    numbers : ndarray of shape (N,), optional
        What the page calls the rows: their places in a file. By default 1, 2, ...
    codes : ndarray of shape (N, w), optional
        Categories of the rows in columns that became means, as `TableEncoder.codes` tells them.
    transformed_mean, transformed_std : ndarrays of shape (N,) or (N, t), optional
        Of `answers.predict_transformed`; by default mean and std, which they are unless the model
        transforms its targets.
    """

    y: Array
    mean: Array
    std: Array
    lower: Array
    upper: Array
    coverage: float
    name: str
    X: Array | None = None
    numbers: IndexArray | None = None
    codes: npt.NDArray[Any] | None = None
    transformed_mean: Array | None = None
    transformed_std: Array | None = None

    def some(self, rows: npt.NDArray[np.bool_]) -> Tested:
        """Some of the rows."""
        fields = self._replace(numbers=self.row_numbers)._asdict()
        return Tested(**{name: one[rows] if np.ndim(one) else one for name, one in fields.items()})

    @property
    def row_numbers(self) -> IndexArray:
        """What the page calls each row."""
        return np.arange(len(self.y)) + 1 if self.numbers is None else self.numbers

    @property
    def inputs(self) -> Inputs | None:
        """The rows as the model sees them."""
        return None if self.X is None else Inputs(self.X, self.codes)

    def transformed(self, model: FittedModel) -> tuple[Array, Array]:
        """Mean and std of the transformed target."""
        if self.transformed_mean is not None and self.transformed_std is not None:
            return self.transformed_mean, self.transformed_std
        if model.target_transform is None:
            return self.mean, self.std
        if self.X is None:
            raise ValueError(
                "the model transforms its targets: a report needs the rows X, or their "
                "transformed_mean and transformed_std (answers.predict_transformed)"
            )
        return answers.predict_transformed(model, self.X)


class Target(NamedTuple):
    """Name of a target, and the units that it names in brackets, if any: "speed [m/s]"."""

    name: str
    unit: str

    @classmethod
    def of(cls, name: str) -> Target:
        """The target of this name."""
        unit = re.search(r"[(\[]([^()\[\]]{1,20})[)\]]\s*$", name)
        return cls(name, unit[1].strip() if unit else "")

    @property
    def units(self) -> str:
        """What errors are measured in."""
        return self.unit or f"the units of {self.name}"

    def with_unit(self, text: str) -> str:
        """A number and its unit, if that is known."""
        return f"{text} {self.unit}" if self.unit else text


class Scored(NamedTuple):
    """One target of a set of rows: true values and answers, of shape (N,) each.

    `pit` is the predicted probability of at most y; `nll` is the negative log-likelihood of y;
    `lower` and `upper` are the ends of the interval.
    """

    target: Target
    y: Array
    mean: Array
    std: Array
    pit: Array
    nll: Array
    lower: Array
    upper: Array

    @property
    def rows(self) -> tuple[Array, Array, Array]:
        """What metrics are computed of."""
        return self.y, self.mean, self.std

    @property
    def error(self) -> Array:
        return self.y - self.mean

    @property
    def z(self) -> Array:
        """Errors in units of the std."""
        return self.error / self.std

    @property
    def held(self) -> npt.NDArray[np.bool_]:
        """Whether the interval holds the target."""
        return (self.lower <= self.y) & (self.y <= self.upper)


@dataclass(frozen=True, eq=False)
class RowSet:
    """Rows whose targets are known, and what is said of them.

    Attributes
    ----------
    name : str
        What the page calls them.
    left_out : bool
        Whether they are training rows, each predicted without itself.
    numbers : ndarray of shape (N,)
        What each is called.
    inputs : Inputs or None
        In the units of the data.
    coverage : float
        The share that intervals should hold.
    scored : tuple of Scored
        One for each target.
    places : ndarray of shape (N,) or None
        Places among the training rows, if they are some of them.
    """

    name: str
    left_out: bool
    numbers: IndexArray
    inputs: Inputs | None
    coverage: float
    scored: tuple[Scored, ...]
    places: IndexArray | None = None

    def __len__(self) -> int:
        return len(self.numbers)


def spread(y: Array) -> float:
    """The std of values (n,), whose squares may overflow; never 0."""
    return metrics.rmse(y, np.full(len(y), y.mean())) or 1e-300


def target_names(model: FittedModel, given: tuple[str, ...]) -> list[Target]:
    """Names of the targets: those given, that of the training table, or y."""
    names = given or ((model.target,) if model.target else ())
    if len(names) != model.n_targets:
        n = model.n_targets
        names = ("y",) if n == 1 else tuple(f"target {j + 1}" for j in range(n))
    return [Target.of(name) for name in names]


def left_out_set(
    model: FittedModel,
    targets: list[Target],
    tested: Tested | None = None,
    numbers: IndexArray | None = None,
) -> RowSet:
    """Training rows, all or a random sample, each left out; fewer beside tested ones.

    `numbers` are what the page calls the rows that `fit` was given; by default 1, 2, ...
    """
    most, coverage = LEFT_OUT_ROWS, COVERAGE
    if tested is not None:
        most, coverage = FEWER_ROWS, tested.coverage
    rows, Y, *transformed = answers.left_out_transformed(model, most)
    mean, std = answers.in_units_of_y(model, *transformed)
    try:
        ends = answers.interval_of(model, transformed[0], transformed[1], coverage)
    except ValueError:  # too few rows to promise it
        coverage, ends = COVERAGE, (mean - NORMAL_REACH * std, mean + NORMAL_REACH * std)
    every = training_inputs(model)
    n, t = len(every.X), len(targets)
    ids = np.sort(ids_of(model))
    called = ids + 1 if numbers is None else np.asarray(numbers)[ids]
    how = LEFT_OUT_WORDS[model.left_out_by]
    some = f"{counted(n, 'training row')}, {how}"
    if len(rows) < n:
        kind = "of the" if model.left_out_by == "time" else "random ones of"
        some = f"{len(rows):,} {kind} {n:,} training rows, {how}"
    columns = tuple(one.reshape(-1, t) for one in (Y, mean, std, *ends))
    scored = _scored(model, targets, columns, (transformed[0], transformed[1]))
    return RowSet(some, True, called[rows], every.some(rows), coverage, scored, rows)


def tested_set(model: FittedModel, targets: list[Target], tested: Tested) -> RowSet:
    """Rows that the model has not seen."""
    n, t = len(tested.y), len(targets)
    name = f"{counted(n, 'row')} of {tested.name or 'tested data'}"
    columns = tuple(one.reshape(-1, t) for one in tested[:5])
    scored = _scored(model, targets, columns, tested.transformed(model))
    return RowSet(name, False, tested.row_numbers, tested.inputs, tested.coverage, scored)


def _scored(
    model: FittedModel,
    targets: list[Target],
    columns: tuple[Array, ...],
    transformed: tuple[Array, Array],
) -> tuple[Scored, ...]:
    """Each target with its answers; the columns are y, mean, std, lower and upper, (N, t) each.

    `transformed` are mean and std of the transformed target, whose distribution is known.
    """
    y, mean, std, lower, upper = columns
    shape = (len(y),) if len(targets) == 1 else y.shape
    inner = [one.reshape(shape) for one in transformed]
    dist = answers.distribution_of(model, *inner)
    pit = np.asarray(dist.cdf(y.reshape(shape))).reshape(y.shape)
    if isinstance(dist, SteppedDistribution):  # the middle of the step
        pit = pit - 0.5 * np.where(y == dist.value, dist.chance.reshape(y.shape), 0.0)
    nll = answers.nll_of(model, y.reshape(shape), *inner).reshape(y.shape)
    return tuple(
        Scored(target, *(one[:, j] for one in (y, mean, std, pit, nll, lower, upper)))
        for j, target in enumerate(targets)
    )


def are_training_rows(
    model: FittedModel, X: Array, y: Array, codes: npt.NDArray[Any] | None = None
) -> npt.NDArray[np.bool_]:
    """Which of some rows the model has learned from: (N,).

    All columns and the target are compared. Files of manygp 0.2 do not tell the categories of
    columns that became means, and these are not compared then.

    Parameters
    ----------
    model : FittedModel
    X : ndarray of shape (N, d)
    y : ndarray of shape (N,)
    codes : ndarray of shape (N, w), optional
        What `TableEncoder.codes` says of the rows.
    """
    training, rows = training_inputs(model), Inputs(X, codes)
    if training.codes is None or codes is None:
        training, rows = training._replace(codes=None), rows._replace(codes=None)
    own = np.column_stack([comparable(model, training), answers.training_rows(model)[1]])
    other = np.column_stack([comparable(model, rows), y])
    low = own.min(axis=0)
    step = RESOLUTION * np.maximum(np.ptp(own, axis=0), 1e-300)
    known = {row.tobytes() for row in _whole((own - low) / step)}
    return np.array([row.tobytes() in known for row in _whole((other - low) / step)], dtype=bool)


def _whole(values: Array) -> npt.NDArray[np.int64]:
    """Nearest whole numbers; what is far outside of the range of the others is cut."""
    return np.rint(np.clip(values, -1e9, 1e9)).astype(np.int64)
