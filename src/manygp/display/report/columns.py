"""The columns of the table, and which features of the model each of them became."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manygp.arrays import Array
from manygp.display.charts import minus, number
from manygp.model import FittedModel
from manygp.tables.columns import Column

DAY = 86_400
# Whole numbers below this are written without a comma.
MOST_WHOLE = 10_000


class Source(NamedTuple):
    """A column of the table.

    Attributes
    ----------
    column : Column
        What was learned about it; a plain number where the rows were an array.
    place : slice
        Its features.
    """

    column: Column
    place: slice

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def is_number(self) -> bool:
        """Whether its first feature is a number or a date."""
        return self.column.kind != "category"

    @property
    def is_one_hot(self) -> bool:
        return self.column.kind == "category" and not self.column.means

    def values(self, X: Array) -> Array:
        """Numbers, or days, of rows X (N, d): NaN where they are missing."""
        own = X[:, self.place]
        missing = own[:, -1] > 0.5 if self.column.has_missing else np.zeros(len(X), dtype=bool)
        return np.where(missing, np.nan, own[:, 0])

    def codes(self, X: Array) -> npt.NDArray[np.intp]:
        """Places of the one-hot categories of rows among `categories`; -1 if unknown."""
        own = X[:, self.place]
        if len(self.column.categories) == 2:
            own = np.column_stack([1 - own, own])
        return np.where(own.max(axis=1) > 0.99, own.argmax(axis=1), -1)

    def words(self, X: Array) -> list[str]:
        """The values of rows in words; "-" where the features do not tell."""
        if self.is_number:
            return [self.word(value) for value in self.values(X).tolist()]
        if not self.is_one_hot:
            return ["-"] * len(X)
        shown = [*map(category_word, self.column.categories), "unknown"]
        return [shown[code] for code in self.codes(X).tolist()]

    def word(self, value: float) -> str:
        """A number or a day in words."""
        if np.isnan(value):
            return "missing"
        if self.column.kind == "date":
            return day_word(value, "m" if "day" in self.column.cycles else "D")
        if abs(value) < MOST_WHOLE and abs(value - round(value)) < 1e-9 * MOST_WHOLE:
            return minus(f"{round(value)}")  # such as a year
        return number(value)


def category_word(category: str) -> str:
    """A category in words."""
    return category or "missing"


def day_word(value: float, unit: str) -> str:
    """A day since 1970 as a date, to the day ("D") or the minute ("m")."""
    moment = np.datetime64(round(value * DAY), "s").astype(f"datetime64[{unit}]")
    return str(moment).replace("T", " ")


def sources_of(model: FittedModel) -> list[Source]:
    """The columns of the table that a model has learned from."""
    if model.encoder is None:
        return [
            Source(Column(str(name), "number"), slice(j, j + 1))
            for j, name in enumerate(model.feature_names)
        ]
    return [*map(Source, model.encoder.columns_, model.encoder.places)]
