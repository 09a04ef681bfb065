"""How the columns of a table become numbers: learned from training rows, applied to others."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from manygp.arrays import Array
from manygp.tables.base import MISSING, Batch, is_missing, quoted, refuse_repeated, shortened

COLUMN_KINDS = ("number", "category", "date")
MISSING_VALUE = "the value is missing; look for all missing values, and fill or drop them"
# Dates are days since then.
EPOCH = np.datetime64("1970-01-01")


class Column(NamedTuple):
    """What a column of the training table holds: one of `COLUMN_KINDS`, and sorted categories."""

    name: str
    kind: str
    categories: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that it becomes; for two categories one feature is enough."""
        if self.kind != "category":
            return (self.name,)
        shown = self.categories[1:] if len(self.categories) == 2 else self.categories
        return tuple(f"{self.name}={category}" for category in shown)


class Encoding(NamedTuple):
    """What each column of the training table holds, and with it how rows become numbers.

    Numbers are kept, dates become days since 1970 (UTC), and categories a column of 0 and 1 each.
    """

    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded features."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the table's columns."""
        return tuple(column.name for column in self.columns)

    def apply(self, batch: Batch) -> Array:
        """The rows of a batch as features (N, d); a bad value is refused, and its place named."""
        X = np.empty((batch.n_rows, len(self.names)))
        start = 0
        for column in self.columns:
            end = start + len(column.features)
            X[:, start:end] = ENCODERS[column.kind](column, batch)
            start = end
        return X

    def to_json(self) -> list[dict[str, Any]]:
        """The encoding as lists, dicts and text."""
        return [
            {"name": column.name, "kind": column.kind}
            | ({"categories": list(column.categories)} if column.kind == "category" else {})
            for column in self.columns
        ]

    @classmethod
    def from_json(cls, columns: Any) -> Encoding:
        """The encoding that `to_json` has written; anything else is a ValueError."""
        if not isinstance(columns, list) or not columns:
            raise ValueError(f"an encoding is a list of columns, not {shortened(columns)}")
        encoding = cls(tuple(_column_from_json(column) for column in columns))
        refuse_repeated("column of the encoding", encoding.column_names)
        return encoding


class Refusal(ValueError):
    """A value cannot be encoded; the message does not name the file yet."""


def as_numbers(values: npt.NDArray[Any]) -> Array | None:
    """All values as floats, or None if one is not a finite number."""
    if values.dtype.kind == "O":
        try:
            if "_" in "".join(values):  # float() would read 1_000
                return None
            values = values.astype(np.float64)
        except (TypeError, ValueError):
            return None
    return values if values.dtype.kind == "f" and np.isfinite(values).all() else None


def as_number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, str) and "_" not in value:
        try:
            value = float(value)
        except ValueError:
            return None
    return value if isinstance(value, float) and math.isfinite(value) else None


def as_days(values: npt.NDArray[Any]) -> Array | None:
    """All values as days since 1970, or None if one is not a date or time in ISO format."""
    if values.dtype.kind == "O":
        try:
            values = np.array([_as_utc(value) for value in values], dtype="datetime64[us]")
        except (TypeError, ValueError, OverflowError):
            return None
    if values.dtype.kind != "M" or np.isnat(values).any():
        return None
    days: Array = (values - EPOCH) / np.timedelta64(1, "D")
    return days


def first_undated(values: npt.NDArray[Any]) -> int:
    """The index of the first value that is not a date."""
    return next(i for i in range(len(values)) if as_days(values[i : i + 1]) is None)


def _as_utc(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


def encode_numbers(column: Column, batch: Batch) -> Array:
    """A column of numbers: (N, 1)."""
    values = batch.columns[column.name]
    numbers = as_numbers(values)
    if numbers is None:
        first = next(i for i, value in enumerate(values) if as_number(value) is None)
        _refuse_value(column.name, batch, first, why_not_number(values[first]))
    return numbers[:, None]


def _encode_dates(column: Column, batch: Batch) -> Array:
    values = batch.columns[column.name]
    days = as_days(values)
    if days is None:
        first = first_undated(values)
        _refuse_value(column.name, batch, first, why_not_date(values[first]))
    return days[:, None]


def _encode_categories(column: Column, batch: Batch) -> Array:
    values = batch.columns[column.name]
    code = {category: k for k, category in enumerate(column.categories)}
    codes = np.array([code.get(text, -1) for text in map(str, values.tolist())], dtype=np.intp)
    if codes.min() < 0:
        first = int(codes.argmin())
        known = f"one of the {len(code)} known categories: {quoted(column.categories)}"
        why = f"{shortened(values[first])} is not {known}"
        _refuse_value(column.name, batch, first, why)
    return np.eye(len(code))[:, -len(column.features) :][codes]


ENCODERS = {
    "number": encode_numbers,
    "date": _encode_dates,
    "category": _encode_categories,
}


def _refuse_value(name: str, batch: Batch, index: int, why: str) -> NoReturn:
    missing = is_missing(batch.columns[name][index : index + 1]).any()
    refuse(name, batch, index, MISSING_VALUE if missing else why)


def refuse(name: str, batch: Batch, index: int, why: str) -> NoReturn:
    """Say what is wrong with a value, and where it is."""
    raise Refusal(at(name, batch, index) + why)


def at(name: str, batch: Batch, index: int) -> str:
    """The place of a value, for the beginning of a message."""
    return f"column {name!r}, {batch.place(index)}: "


def why_not_number(value: Any) -> str:
    """A sentence on a value that is not a number."""
    shown, text = shortened(value), str(value)
    try:
        infinite = "_" not in text and math.isinf(float(text))
    except ValueError:
        infinite = False
    if infinite:
        return f"{shown} is {'infinite' if 'inf' in text.lower() else 'too large for a float'}"
    points = [text.replace(".", "").replace(",", "."), text.replace(",", "")]
    if "," in text and any(as_number(point) is not None for point in points):
        return f"{shown} is not a number (write a decimal point, and no commas)"
    return f"{shown} is not a number"


def why_not_date(value: Any) -> str:
    """A sentence on a value that is not a date."""
    return f"{shortened(value)} is not a date such as 2024-12-31 or 2024-12-31T23:59"


def _column_from_json(column: Any) -> Column:
    if not isinstance(column, dict):
        raise ValueError(f"a column of an encoding is an object, not {shortened(column)}")
    name, kind = column.get("name"), column.get("kind")
    if not isinstance(name, str) or not name:
        raise ValueError(f"the name of a column is text, not {shortened(name)}")
    if kind not in COLUMN_KINDS:
        raise ValueError(
            f"column {name!r}: the kind is one of {', '.join(COLUMN_KINDS)}, not {kind!r}"
        )
    keys = {"name", "kind"} | ({"categories"} if kind == "category" else set())
    if set(column) != keys:
        raise ValueError(
            f"column {name!r} has the entries {sorted(map(str, column))}, not {sorted(keys)}"
        )
    if kind != "category":
        return Column(name, kind)
    return Column(name, kind, _categories_from_json(name, column["categories"]))


def _categories_from_json(name: str, categories: Any) -> tuple[str, ...]:
    is_list = isinstance(categories, list) and categories
    if not is_list or not all(isinstance(one, str) and one not in MISSING for one in categories):
        raise ValueError(
            f"the categories of column {name!r} are a list of text, not {shortened(categories)}"
        )
    refuse_repeated(f"category of column {name!r}", categories)
    return tuple(categories)
