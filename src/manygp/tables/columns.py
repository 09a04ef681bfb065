"""Columns of a table: the record of one, and the encoding of its values as numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from manygp.arrays import Array
from manygp.tables.base import MISSING, Batch, is_missing, quoted, refuse_repeated, shortened
from manygp.tables.values import as_days, as_floats, as_number, as_words, is_date, is_infinite

COLUMN_KINDS = ("number", "category", "date")
# Periods of the cycles of dates, in days. A place in a week is its day, since Sundays are not
# between Saturdays and Mondays; files of version 0.3 have sine and cosine of the "week".
PERIODS = {"year": 365.2425, "weekday": 7.0, "week": 7.0, "day": 1.0}
# What a cycle becomes.
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
PARTS = {cycle: WEEKDAYS if cycle == "weekday" else ("sin", "cos") for cycle in PERIODS}
# The first Monday after the beginning of 1970.
MONDAY = 4
# Categories of a column of a file that may become features of 0 and 1.
MOST_FEATURES = 1000
# What a missing value or an unknown category may be.
POLICIES = ("fill", "error")
REFUSED = "the value is missing; look for all missing values, and fill or drop them"


class Refusal(ValueError):
    """A value cannot be encoded; the message does not name the file yet."""


class Column(NamedTuple):
    """Record of a column of the training table.

    Attributes
    ----------
    name : str
    kind : str
        One of `COLUMN_KINDS`.
    categories : tuple of str
        Sorted; "" stands for a missing value.
    means : tuple of tuples of float
        For each target the mean of each category; nothing if the column is one-hot.
    cycles : tuple of str
        Names of `PERIODS`, for a date.
    fill : tuple of float
        The features of a value that is missing or unknown; nothing if that is refused.
    has_missing : bool
        Whether training rows lacked the number or date: the model then knows what that means.
    noise : float
        By how much the variance of the target grows where the value is missing, if training
        rows have shown it.
    """

    name: str
    kind: str
    categories: tuple[str, ...] = ()
    means: tuple[tuple[float, ...], ...] = ()
    cycles: tuple[str, ...] = ()
    fill: tuple[float, ...] = ()
    has_missing: bool = False
    noise: float = 0.0

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that it becomes."""
        if self.kind == "category":
            return self._features_of_categories()
        cycles = (f"{self.name} ({c}, {part})" for c in self.cycles for part in PARTS[c])
        missing = (f"{self.name} (missing)",) if self.has_missing else ()
        return (self.name, *cycles, *missing)

    def _features_of_categories(self) -> tuple[str, ...]:
        """A mean per target, or a feature per category; for two categories one is enough."""
        if len(self.means) == 1:
            return (f"{self.name} (mean)",)
        if self.means:
            return tuple(f"{self.name} (mean {j})" for j in range(len(self.means)))
        shown = self.categories[1:] if len(self.categories) == 2 else self.categories
        return tuple(f"{self.name}={one}" if one else f"{self.name} (missing)" for one in shown)

    @property
    def is_plain(self) -> bool:
        """Whether the numbers of the column are the feature."""
        return self.kind == "number" and not self.has_missing

    def to_json(self) -> dict[str, Any]:
        """The column as lists, dicts and text, without what is empty."""
        record = {"name": self.name, "kind": self.kind}
        rest = {key: value for key, value in self._asdict().items() if key not in record and value}
        return record | rest


class Unusual(NamedTuple):
    """Which values of a column (N,) are missing, and which are unknown categories.

    What is not `learned` was so in no training row.
    """

    missing: npt.NDArray[np.bool_]
    unknown: npt.NDArray[np.bool_]
    learned: bool


def encode_column(column: Column, batch: Batch) -> tuple[Array, Unusual]:
    """The features (N, f) of a column; a value that can never be one is refused with its place."""
    values = batch.columns[column.name]
    if column.kind == "category":
        return _encode_categories(column, batch)
    if column.kind == "number":
        numbers = as_floats(values)
        if numbers is None:
            _refuse_first(column.name, batch, lambda v: as_number(v) is not None, why_not_number)
        features = [numbers]
    else:
        days = as_days(values)
        if days is None:
            _refuse_first(column.name, batch, is_date, why_not_date)
        features = [days, *cycles_of(days, column.cycles)]
    missing = np.isnan(features[0])
    if column.has_missing:
        features.append(missing.astype(np.float64))
    X = np.column_stack(features)
    never = np.zeros(len(X), dtype=bool)
    if missing.any() and column.fill:
        X[missing] = column.fill
    return X, Unusual(missing, never, column.has_missing)


def cycles_of(days: Array, cycles: tuple[str, ...]) -> list[Array]:
    """Sine and cosine of each cycle, or 0 and 1 for each day of the week."""
    features = []
    for cycle in cycles:
        if cycle == "weekday":
            day = np.floor(days - MONDAY) % len(WEEKDAYS)
            features += [(day == k).astype(np.float64) for k in range(len(WEEKDAYS))]
        else:
            angle = 2 * np.pi * np.mod(days / PERIODS[cycle], 1.0)
            features += [np.sin(angle), np.cos(angle)]
    return features


def codes_of(column: Column, words: list[str]) -> npt.NDArray[np.intp]:
    """Places of words among the categories; -1 for unknown ones."""
    code = {category: k for k, category in enumerate(column.categories)}
    return np.array([code.get(word, -1) for word in words], dtype=np.intp)


def _encode_categories(column: Column, batch: Batch) -> tuple[Array, Unusual]:
    words = as_words(batch.columns[column.name])
    codes = codes_of(column, words)
    if column.means:
        table = np.array(column.means).T
    else:
        table = np.eye(len(column.categories))[:, -len(column.features) :]
    X = table[codes]
    strange = codes < 0
    missing = np.array([not word for word in words], dtype=bool)
    if column.fill:
        X[strange] = column.fill
    return X, Unusual(missing, strange & ~missing, "" in column.categories)


def check_policies(
    column: Column, batch: Batch, unusual: Unusual, policies: tuple[str, str]
) -> None:
    """Refuse missing values, or unknown categories, if these are to be errors."""
    missing, unknown = (policy == "error" or not column.fill for policy in policies)
    if missing and unusual.missing.any():
        refuse(column.name, batch, int(unusual.missing.argmax()), REFUSED)
    if unknown and unusual.unknown.any():
        index = int(unusual.unknown.argmax())
        known = [category for category in column.categories if category]
        shown = shortened(batch.columns[column.name][index])
        why = f"{shown} is not one of the {len(known)} known categories: {quoted(known)}"
        refuse(column.name, batch, index, why)


def _refuse_first(
    name: str, batch: Batch, is_good: Callable[[Any], bool], why: Callable[[Any], str]
) -> NoReturn:
    """Refuse the first value that is there and is not good."""
    values = batch.columns[name]
    missing = is_missing(values)
    first = next(i for i, v in enumerate(values) if not (missing[i] or is_good(v)))
    refuse(name, batch, first, why(values[first]))


def refuse(name: str, batch: Batch, index: int, why: str) -> NoReturn:
    """Say what is wrong with a value, and where it is."""
    raise Refusal(f"column {name!r}, {batch.place(index)}: {why}")


def why_not_number(value: Any) -> str:
    """A sentence on a value that is not a number."""
    shown, text = shortened(value), str(value)
    if is_infinite(text):
        return f"{shown} is {'infinite' if 'inf' in text.lower() else 'too large for a float'}"
    points = [text.replace(".", "").replace(",", "."), text.replace(",", "")]
    if "," in text and any(as_number(point) is not None for point in points):
        return f"{shown} is not a number (write a decimal point, or pass --decimal ,)"
    return f"{shown} is not a number"


def why_not_date(value: Any) -> str:
    """A sentence on a value that is not a date."""
    return f"{shortened(value)} is not a date such as 2024-12-31 or 2024-12-31T23:59"


def column_from_json(record: Any) -> Column:
    """The column that `to_json` has written; anything else is a ValueError."""
    name, kind = _name_and_kind(record)
    allowed = {"name", "kind", "fill", "noise"} | ENTRIES[kind]
    if not set(record) <= allowed or (kind == "category" and "categories" not in record):
        raise ValueError(
            f"column {name!r} has the entries {sorted(map(str, record))}, not {sorted(allowed)}"
        )
    column = Column(
        name,
        kind,
        _categories_from_json(name, record["categories"]) if kind == "category" else (),
        tuple(numbers_from_json(name, row) for row in _list(name, record.get("means", []))),
        _cycles_from_json(name, record.get("cycles", [])),
        numbers_from_json(name, record.get("fill", [])),
        record.get("has_missing", False) is True,
        *numbers_from_json(name, [record.get("noise", 0.0)]),
    )
    if column.noise < 0:
        raise ValueError(f"column {name!r} has a negative noise")
    if any(len(row) != len(column.categories) for row in column.means):
        raise ValueError(f"column {name!r} has other means than categories")
    if column.kind == "category" and not column.means and len(column.categories) > MOST_FEATURES:
        raise ValueError(f"column {name!r} has more than {MOST_FEATURES} categories without means")
    if len(column.fill) not in (0, len(column.features)):
        raise ValueError(f"column {name!r} is not filled with the features that it has")
    return column


# Entries of a column beside its name, kind, fill and noise.
ENTRIES = {
    "number": {"has_missing"},
    "category": {"categories", "means"},
    "date": {"cycles", "has_missing"},
}


def _name_and_kind(record: Any) -> tuple[str, str]:
    if not isinstance(record, dict):
        raise ValueError(f"a column of an encoding is an object, not {shortened(record)}")
    name, kind = record.get("name"), record.get("kind")
    if not isinstance(name, str) or not name:
        raise ValueError(f"the name of a column is text, not {shortened(name)}")
    if kind not in COLUMN_KINDS:
        raise ValueError(
            f"column {name!r}: the kind is one of {', '.join(COLUMN_KINDS)}, not {kind!r}"
        )
    return name, kind


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"column {name!r} has {shortened(value)} in the place of a list")
    return value


def numbers_from_json(name: str, value: Any) -> tuple[float, ...]:
    """Finite numbers of a list."""
    numbers = _list(name, value)
    if not all(type(one) in (int, float) and np.isfinite(one) for one in numbers):
        raise ValueError(f"column {name!r} has {shortened(numbers)} in the place of numbers")
    return tuple(map(float, numbers))


def _cycles_from_json(name: str, value: Any) -> tuple[str, ...]:
    cycles = _list(name, value)
    if not all(isinstance(one, str) and one in PERIODS for one in cycles):
        raise ValueError(f"the cycles of column {name!r} are some of {', '.join(PERIODS)}")
    refuse_repeated(f"cycle of column {name!r}", cycles)
    return tuple(cycles)


def _categories_from_json(name: str, value: Any) -> tuple[str, ...]:
    is_list = isinstance(value, list) and value
    if not is_list or not all(
        isinstance(one, str) and (not one or one not in MISSING) for one in value
    ):
        raise ValueError(
            f"the categories of column {name!r} are a list of text, not {shortened(value)}"
        )
    refuse_repeated(f"category of column {name!r}", value)
    return tuple(value)
