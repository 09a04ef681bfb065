"""The columns of the table, and which features of the model each of them became."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manygp import answers
from manygp.arrays import Array
from manygp.display.charts import minus, number
from manygp.model import FittedModel
from manygp.tables.columns import Column

DAY = 86_400
# Whole numbers below this are written without a comma.
MOST_WHOLE = 10_000


class Inputs(NamedTuple):
    """Rows as the model sees them, and what that does not tell.

    Attributes
    ----------
    X : ndarray of shape (N, d)
    codes : ndarray of shape (N, w) or None
        Categories in each of the w columns that became means, -1 if unknown; None if nobody knows
        them.
    """

    X: Array
    codes: npt.NDArray[np.integer[Any]] | None = None

    def some(self, rows: npt.NDArray[Any]) -> Inputs:
        """Some of the rows."""
        return Inputs(self.X[rows], None if self.codes is None else self.codes[rows])


class SourceColumn(NamedTuple):
    """A column of the table.

    Attributes
    ----------
    column : Column
        What was learned about it; a plain number where the rows were an array.
    place : slice
        Its features.
    wide : int or None
        Its place among the columns that became means, if it is one of them.
    """

    column: Column
    place: slice
    wide: int | None = None

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def is_number(self) -> bool:
        """Whether its first feature is a number or a date."""
        return self.column.kind != "category"

    def has_categories(self, rows: Inputs) -> bool:
        """Whether the categories of rows can be told."""
        return not self.is_number and (self.wide is None or rows.codes is not None)

    def values(self, rows: Inputs) -> Array:
        """Numbers, or days, of rows (N,): NaN where they are missing."""
        own = rows.X[:, self.place]
        missing = own[:, -1] > 0.5 if self.column.has_missing else np.zeros(len(own), dtype=bool)
        return np.where(missing, np.nan, own[:, 0])

    def codes(self, rows: Inputs) -> npt.NDArray[np.integer[Any]]:
        """Places of the categories of rows among `categories`; -1 if unknown."""
        if self.wide is not None and rows.codes is not None:
            return rows.codes[:, self.wide]
        own = rows.X[:, self.place]
        if len(self.column.categories) == 2:
            own = np.column_stack([1 - own, own])
        return np.where(own.max(axis=1) > 0.99, own.argmax(axis=1), -1)

    def is_missing(self, rows: Inputs) -> npt.NDArray[np.bool_]:
        """Which rows lack a value of the column, as far as that can be told: (N,)."""
        if self.is_number:
            return np.isnan(self.values(rows))
        if not self.has_categories(rows) or "" not in self.column.categories:
            return np.zeros(len(rows.X), dtype=bool)
        return self.codes(rows) == self.column.categories.index("")

    def words(self, rows: Inputs) -> list[str]:
        """The values of rows in words; "-" where nobody knows them."""
        if self.is_number:
            return [self.word(value) for value in self.values(rows).tolist()]
        if not self.has_categories(rows):
            return ["-"] * len(rows.X)
        shown = [*map(category_word, self.column.categories), "unknown"]
        return [shown[code] for code in self.codes(rows).tolist()]

    def word(self, value: float) -> str:
        """A number or a day in words."""
        if np.isnan(value):
            return "missing"
        if self.column.kind == "date":
            return day_word(value, "m" if "day" in self.column.cycles else "D")
        if abs(value) < MOST_WHOLE and abs(value - round(value)) < 1e-9 * MOST_WHOLE:
            return minus(f"{round(value)}")  # such as a year
        return number(value)

    def short_word(self, value: float) -> str:
        """The same, a moment to the day."""
        is_date = self.column.kind == "date" and not np.isnan(value)
        return day_word(value, "D") if is_date else self.word(value)


def category_word(category: str) -> str:
    """A category in words."""
    return category or "missing"


def day_word(value: float, unit: str) -> str:
    """A day since 1970 as a date, to the day ("D") or the minute ("m")."""
    moment = np.datetime64(round(value * DAY), "s").astype(f"datetime64[{unit}]")
    return str(moment).replace("T", " ")


def sources_of(model: FittedModel) -> list[SourceColumn]:
    """The columns of the table that a model has learned from."""
    if model.encoder is None:
        return [
            SourceColumn(Column(str(name), "number"), slice(j, j + 1))
            for j, name in enumerate(model.feature_names)
        ]
    wide = [column.name for column in model.encoder.mean_columns]
    return [
        SourceColumn(column, place, wide.index(column.name) if column.name in wide else None)
        for column, place in zip(model.encoder.columns_, model.encoder.places, strict=True)
    ]


def training_inputs(model: FittedModel) -> Inputs:
    """The training rows of a model."""
    X, _ = answers.training_rows(model)
    if model.encoder is None:
        return Inputs(X, np.empty((len(X), 0), dtype=np.int32))
    return Inputs(X, model.encoder.codes_)


def comparable(model: FittedModel, rows: Inputs) -> Array:
    """Numbers that are equal where all columns of rows are: (N, d).

    The means of categories differ between folds of training rows; in their place stand the
    categories themselves, if these are known.
    """
    if model.encoder is None:
        return rows.X
    means = [bool(column.means) for column in model.encoder.columns_ for _ in column.features]
    codes = [] if rows.codes is None else [rows.codes.astype(np.float64)]
    return np.hstack([rows.X[:, ~np.array(means, dtype=bool)], *codes])
