"""Spaces that are searched: columns that are numbers, whole numbers or categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from manygp.arrays import Array
from manygp.inputs import is_number


@dataclass(frozen=True)
class Dimension:
    """One column. It is searched by a unit from 0 to 1.

    Attributes
    ----------
    name : str
    low, high : float
        Of numbers.
    kind : {"real", "log", "integer", "category"}
    values : tuple
        Categories: text, numbers or booleans.
    """

    name: str
    low: float
    high: float
    kind: str = "real"
    values: tuple[Any, ...] = ()

    @classmethod
    def of(cls, name: str, spec: Any) -> Dimension:
        """What a specification says: see `Space`."""
        if isinstance(spec, list):
            return cls(name, 0.0, 1.0, "category", _categories(name, spec))
        ends, log = _range(spec)
        if ends is None:
            raise ValueError(
                f"the range of {name} is (low, high), (low, high, 'log') or a list of categories, "
                f"not {spec!r}"
            )
        low, high = ends
        if not low < high:
            raise ValueError(f"the range of {name} must have low < high, not {low!r}, {high!r}")
        if log and low <= 0:
            raise ValueError(f"the logarithmic range of {name} must begin above 0, not at {low!r}")
        size = float(high) / float(low) if log else float(high) - float(low)
        if not 0 < 1 / size < np.inf or not np.isfinite(size):
            raise ValueError(f"the range of {name} is too wide, or too narrow: {low!r}, {high!r}")
        whole = isinstance(low, Integral) and isinstance(high, Integral)
        return cls(name, float(low), float(high), "log" if log else "integer" if whole else "real")

    @property
    def width(self) -> int:
        """Columns that the model sees."""
        return len(self.values) if self.kind == "category" else 1

    def value(self, unit: float) -> Any:
        """The value at a unit."""
        if self.kind == "category":
            return self.values[min(int(unit * len(self.values)), len(self.values) - 1)]
        if self.kind == "log":
            value = self.low * (self.high / self.low) ** unit
        elif self.kind == "integer":
            return min(int(self.low + unit * (self.high - self.low + 1)), int(self.high))
        else:
            value = self.low + unit * (self.high - self.low)
        return float(min(max(value, self.low), self.high))

    def unit(self, value: Any) -> float:
        """The unit of a value, in the middle of those that mean it."""
        if self.kind == "category":
            if value not in self.values:
                raise ValueError(f"{self.name} is one of {list(self.values)}, not {value!r}")
            return (self.values.index(value) + 0.5) / len(self.values)
        if not _is_number(value) or not self.low <= value <= self.high:
            raise ValueError(
                f"{self.name} lies from {self.low:g} to {self.high:g}, and is {value!r}"
            )
        if self.kind == "log":
            return float(np.log(value / self.low) / np.log(self.high / self.low))
        if self.kind == "integer":
            if value != int(value):
                raise ValueError(f"{self.name} is a whole number, not {value!r}")
            return float((value - self.low + 0.5) / (self.high - self.low + 1))
        return float((value - self.low) / (self.high - self.low))

    def spec(self) -> Any:
        """What `of` makes this from: plain JSON."""
        if self.kind == "category":
            return list(self.values)
        ends = [int(one) if self.kind == "integer" else one for one in (self.low, self.high)]
        return (*ends, "log") if self.kind == "log" else tuple(ends)


def _categories(name: str, values: list[Any]) -> tuple[Any, ...]:
    if len(values) == 2 and all(_is_number(one) for one in values):
        raise ValueError(
            f"the range of {name} is {values!r}: a range is a tuple, {tuple(values)!r}, and two "
            "categories are text"
        )
    plain = all(isinstance(one, str | bool | int | float) for one in values)
    plain = plain and not any(isinstance(one, float) and not np.isfinite(one) for one in values)
    if not plain or len(set(values)) != len(values) or len(values) < 2:
        raise ValueError(
            f"the categories of {name} are two or more different texts, numbers or booleans, "
            f"not {values!r}"
        )
    return tuple(values)


def _range(spec: Any) -> tuple[Any, bool]:
    """Both ends, or None if these are none; and whether the range is logarithmic."""
    parts = tuple(spec) if isinstance(spec, tuple | np.ndarray) else ()
    log = parts[2:] == ("log",)
    known = len(parts) == 2 + log and all(_is_number(one) for one in parts[:2])
    return (parts[:2] if known else None), log


def _is_number(value: Any) -> bool:
    try:
        return is_number(value) and bool(np.isfinite(float(value)))
    except OverflowError:  # an integer of more than 308 digits
        return False


class Space:
    """Columns that are searched together.

    Parameters
    ----------
    bounds : mapping, or sequence
        One entry for each column, by name or in order: `(low, high)`, whole numbers if both
        ends are; `(low, high, "log")` for what is searched by its logarithm; a list of categories.

    Examples
    --------
    >>> from manygp.optimise import Space
    >>> Space({"rate": (1e-5, 1e-1, "log"), "layers": (1, 6), "kind": ["tree", "net"]}).names
    ['rate', 'layers', 'kind']
    """

    def __init__(self, bounds: Any) -> None:
        is_named = isinstance(bounds, Mapping)
        if not is_named and (
            isinstance(bounds, str) or not isinstance(bounds, Sequence | np.ndarray)
        ):
            raise ValueError(f"a space is a list or a dictionary of ranges, not {bounds!r}")
        if is_named:
            entries = [(str(name), spec) for name, spec in bounds.items()]
        else:
            entries = [(f"x{j}", spec) for j, spec in enumerate(bounds)]
        if not entries:
            raise ValueError("a space needs a column or more")
        if len({name for name, _ in entries}) < len(entries):
            raise ValueError("two columns of a space have one name")
        self.is_named = is_named
        self.dimensions = tuple(Dimension.of(name, spec) for name, spec in entries)

    def __len__(self) -> int:
        return len(self.dimensions)

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.dimensions]

    def values(self, units: Array) -> list[Any]:
        """Rows for units (N, d): dictionaries, or lists in the order of the columns."""
        rows = [
            [one.value(u) for one, u in zip(self.dimensions, row, strict=True)] for row in units
        ]
        return [dict(zip(self.names, row, strict=True)) for row in rows] if self.is_named else rows

    def units(self, rows: Any) -> Array:
        """Units (N, d) of rows; an error names the row and the column."""
        units = []
        for place, row in enumerate(rows):
            if isinstance(row, Mapping):
                missing = [name for name in self.names if name not in row]
                if missing or len(row) != len(self):
                    raise ValueError(f"row {place} has the columns {list(row)}, not {self.names}")
                row = [row[name] for name in self.names]
            elif np.ndim(row) != 1 or len(row) != len(self):
                raise ValueError(
                    f"row {place} has {np.size(row)} values, and the space {len(self)}"
                )
            try:
                units.append(
                    [o.unit(_plain(v)) for o, v in zip(self.dimensions, row, strict=True)]
                )
            except ValueError as error:
                raise ValueError(f"row {place}: {error}") from None
        return np.array(units).reshape(len(units), len(self))

    def snapped(self, units: Array) -> Array:
        """Units of the values that these mean: whole numbers and categories have one each."""
        snapped = units.copy()
        for j, one in enumerate(self.dimensions):
            size = len(one.values) or (one.high - one.low + 1 if one.kind == "integer" else 0)
            if size:
                snapped[:, j] = (np.minimum(np.floor(units[:, j] * size), size - 1) + 0.5) / size
        return snapped

    def features(self, units: Array) -> Array:
        """What the model sees of snapped units (N, d): a category is a column of 0 and 1 each."""
        columns: list[Array] = []
        for one, unit in zip(self.dimensions, units.T, strict=True):
            if one.kind == "category":
                place = np.floor(unit * len(one.values))
                columns += [1.0 * (place == k) for k in range(len(one.values))]
            else:
                columns.append(unit)
        return np.column_stack(columns)

    def widths(self) -> list[int]:
        """How many columns of the model each column of the space is."""
        return [one.width for one in self.dimensions]

    def spec(self) -> Any:
        """What makes the same space: plain JSON."""
        if self.is_named:
            return {one.name: one.spec() for one in self.dimensions}
        return [one.spec() for one in self.dimensions]

    @classmethod
    def from_json(cls, plain: Any) -> Space:
        """The space of what `spec` has said, after JSON has made lists of tuples."""
        kinds, specs = plain["kinds"], plain["bounds"]
        entries = specs.values() if isinstance(specs, dict) else specs
        made = [
            one if kind == "category" else tuple(one)
            for kind, one in zip(kinds, entries, strict=True)
        ]
        return cls(dict(zip(specs, made, strict=True)) if isinstance(specs, dict) else made)

    def to_json(self) -> dict[str, Any]:
        return {"bounds": self.spec(), "kinds": [one.kind for one in self.dimensions]}


def _plain(value: Any) -> Any:
    """A number of NumPy's as Python's."""
    return value.item() if isinstance(value, np.generic) else value
