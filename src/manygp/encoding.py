"""How the columns of a table become numbers: learned from training rows, applied to others."""

from __future__ import annotations

import math
import shlex
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from os import PathLike
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from manygp.reading import (
    BATCH_ROWS,
    MISSING,
    Batch,
    Table,
    bounded_rows,
    is_missing,
    open_table,
)
from manygp.types import Array

# Rows to learn from at a time: so few that their text stays in the cache of the processor.
LEARNED_ROWS = 2**13
KINDS = ("number", "category", "date")
MOST_CATEGORIES = 100
# Categories that a message lists, and characters of a value that it shows, at most.
LISTED = 10
SHOWN = 40
MISSING_VALUE = "the value is missing; look for all missing values, and fill or drop them"
EPOCH = np.datetime64("1970-01-01")


class Column(NamedTuple):
    """What a column of the training table holds; `categories` are sorted text."""

    name: str
    kind: str
    categories: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns of numbers that it becomes; one is enough for two categories."""
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
        """The rows of a batch as features (N, d); what cannot be one is refused with its place."""
        X = np.empty((batch.n_rows, len(self.names)))
        start = 0
        for column in self.columns:
            end = start + len(column.features)
            X[:, start:end] = ENCODERS[column.kind](column, batch)
            start = end
        return X

    def to_json(self) -> list[dict[str, Any]]:
        """As lists, dicts and text."""
        return [
            {"name": column.name, "kind": column.kind}
            | ({"categories": list(column.categories)} if column.kind == "category" else {})
            for column in self.columns
        ]

    @classmethod
    def from_json(cls, columns: Any) -> Encoding:
        """Of what `to_json` gave; anything else is a ValueError."""
        if not isinstance(columns, list) or not columns:
            raise ValueError(f"an encoding is a list of columns, not {_shown(columns)}")
        encoding = cls(tuple(_column_from_json(column) for column in columns))
        _refuse_repeated("columns of the encoding", encoding.column_names)
        return encoding


class TrainingTable(NamedTuple):
    """Inputs (n, d), targets (n,), how the inputs were encoded, and the target's name."""

    X: Array
    y: Array
    encoding: Encoding
    target: str


def read_training(
    path: str | PathLike[str],
    target: str,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    encode: bool = False,
) -> TrainingTable:
    """Read a table: once if its columns hold numbers, else again when they are learned.

    Parameters
    ----------
    path : path
    target : str
        The column of y: numbers.
    columns : sequence of str, optional
        The columns of X, in this order; by default all but the target.
    drop : sequence of str
        Columns to leave out.
    encode : bool
        Whether to turn dates and categories into numbers, or to refuse them.
    """
    table = open_table(path)
    survey = _Survey(_chosen(table, target, columns, drop), encode)
    pieces: deque[tuple[Array, Array]] = deque()
    with _naming(table):
        for batch in table.batches([*survey.columns, target], LEARNED_ROWS):
            numbers = survey.add(batch)
            targets = _encode_target(target, batch)
            if numbers is None:
                pieces.clear()
            else:
                pieces.append((np.column_stack(numbers), targets))
        encoding, n_rows = survey.conclude()
    X, y = np.empty((n_rows, len(encoding.names))), np.empty(n_rows)
    again = _pieces_with_target(table, encoding, target, LEARNED_ROWS)
    filled = 0
    for piece, targets in _emptied(pieces) if pieces else again:
        rows = slice(filled, filled + len(piece))
        filled = rows.stop
        if filled > n_rows:
            break
        X[rows], y[rows] = piece, targets
    if filled != n_rows:
        raise ValueError(f"{table.path} was changed while it was read; read it again")
    return TrainingTable(X, y, encoding, target)


def _chosen(
    table: Table, target: str, columns: Sequence[str] | None, drop: Sequence[str]
) -> list[str]:
    """Names of the columns of X."""
    for name in (target, *(columns or ()), *drop):
        table.check_column(name)
    if columns is not None and target in columns:
        raise ValueError(f"the target {target!r} is also one of the columns to learn it from")
    _refuse_repeated("columns", columns or ())
    names = table.names if columns is None else columns
    chosen = [name for name in names if name != target and name not in drop]
    if not chosen:
        raise ValueError(f"{table.path}: no column is left to learn {target!r} from")
    return chosen


def _emptied(pieces: deque[tuple[Array, Array]]) -> Iterator[tuple[Array, Array]]:
    """The pieces, none of which is held longer than it is used."""
    while pieces:
        yield pieces.popleft()


def read_features(
    path: str | PathLike[str], encoding: Encoding, batch_rows: int = BATCH_ROWS
) -> Iterator[Array]:
    """Pieces (N, d) of a table that has the columns of the training table, and maybe others."""
    table = open_table(path)
    batch_rows = bounded_rows(batch_rows, len(encoding.names))
    batches = table.batches(encoding.column_names, batch_rows)
    return (_apply(encoding, batch, table) for batch in batches)


def read_evaluation(
    path: str | PathLike[str], encoding: Encoding, target: str, batch_rows: int = BATCH_ROWS
) -> Iterator[tuple[Array, Array]]:
    """Pieces (N, d) and (N,) of a table with the training table's columns and the target."""
    return _pieces_with_target(open_table(path), encoding, target, batch_rows)


def learn(table: Table, columns: Sequence[str], encode: bool) -> tuple[Encoding, int]:
    """What each column holds, and the number of rows, from one reading of a table.

    Without `encode` all columns must hold numbers. With it, those of nothing but ISO dates
    become dates, and others categories.
    """
    survey = _Survey(columns, encode)
    with _naming(table):
        for batch in table.batches(columns, LEARNED_ROWS):
            survey.add(batch)
        return survey.conclude()


@contextmanager
def _naming(table: Table) -> Iterator[None]:
    """Say in which file a value was refused."""
    try:
        yield
    except _Refusal as refusal:
        raise ValueError(f"{table.path}: {refusal}") from None


class _Refusal(ValueError):
    """Of a value; the file is still to be named."""


@dataclass
class _Seen:
    """What a column has held so far."""

    name: str
    numbers: int = 0
    # Of the first value that is not a number: where it is, and what it is.
    stray: str = ""
    all_dates: bool = True
    # Of the first value that is not a date after some that are, likewise.
    undated: str = ""
    # All there are, or the first that are too many.
    distinct: set[str] = field(default_factory=set)

    def add(self, batch: Batch, encode: bool) -> Array | None:
        """Note what is in a batch, and give it as numbers if it is of numbers."""
        values = batch.columns[self.name]
        numbers = _as_numbers(values)
        if numbers is not None:
            self.numbers += len(values)
            self.all_dates = False
            if encode and len(self.distinct) <= MOST_CATEGORIES:  # text may follow
                self.distinct.update(map(str, values.tolist()))
            return numbers
        listed = values.tolist()
        counts = Counter(listed)  # so that each is looked at once
        not_numbers = [value for value in counts if _as_number(value) is None]
        first = listed.index(not_numbers[0])
        missing = is_missing(values)
        if missing[first] or (encode and missing.any()):
            why = f"{MISSING_VALUE}, or leave the column out ({_drop(self.name)})"
            _refuse(self.name, batch, int(missing.argmax()), why)
        why = _why_not_number(values[first])
        if values.dtype.kind == "f":  # an infinity is no category
            _refuse(self.name, batch, first, f"{why}; {self._correct_or_drop()}")
        self.stray = self.stray or _at(self.name, batch, first) + why
        self.numbers += len(listed) - sum(counts[value] for value in not_numbers)
        if self.all_dates and _as_days(values) is None:
            self.all_dates = False
            index = _first_undated(values)
            if batch.start + index:
                self.undated = f"{batch.place(index)}: {_why_not_date(values[index])}"
        if encode and len(self.distinct) <= MOST_CATEGORIES:
            self.distinct.update(map(str, counts))
        if encode and not self.all_dates:
            self._refuse_many(batch.start + len(listed))
        return None

    def conclude(self, n_rows: int) -> Column:
        """What it holds, after all rows."""
        if not self.stray:
            return Column(self.name, "number")
        if self.all_dates:
            return Column(self.name, "date")
        self._refuse_many(n_rows)
        self._refuse_stray(n_rows)
        return Column(self.name, "category", tuple(sorted(self.distinct)))

    def _refuse_stray(self, n_rows: int) -> None:
        """Some text among numbers is a mistake, not a category."""
        if 2 * self.numbers >= n_rows:
            raise _Refusal(f"{self.stray}, in a column of numbers; {self._correct_or_drop()}")

    def _correct_or_drop(self) -> str:
        return f"correct it, or leave the column out ({_drop(self.name)})"

    def _refuse_many(self, n_rows: int) -> None:
        if len(self.distinct) <= MOST_CATEGORIES:
            return
        self._refuse_stray(n_rows)
        undated = f"; or, if they are dates, look at {self.undated}" if self.undated else ""
        raise _Refusal(
            f"column {self.name!r} has {len(self.distinct):,} different values so far, in "
            f"{n_rows:,} rows, and at most {MOST_CATEGORIES} can be categories; leave it out "
            f"({_drop(self.name)}){undated}"
        )


class _Survey:
    """What the columns of a table have held so far."""

    def __init__(self, columns: Sequence[str], encode: bool) -> None:
        self.columns = tuple(columns)
        self.encode = encode
        self.n_rows = 0
        self._seen = [_Seen(name) for name in columns]

    def add(self, batch: Batch) -> list[Array] | None:
        """Note what is in a batch, and give it as numbers unless there has been something else."""
        self.n_rows += batch.n_rows
        found = [column.add(batch, self.encode) for column in self._seen]
        numbers = [values for values in found if values is not None]
        text = [column for column in self._seen if column.stray]
        if text and not self.encode:
            _refuse_text(*text)
        return None if text else numbers

    def conclude(self) -> tuple[Encoding, int]:
        """How to encode the columns, and the number of rows."""
        encoding = Encoding(tuple(seen.conclude(self.n_rows) for seen in self._seen))
        _refuse_repeated("encoded columns", encoding.names)
        return encoding, self.n_rows


def _refuse_text(first: _Seen, *others: _Seen) -> NoReturn:
    """Of columns that must be encoded, or left out."""
    correct = "correct it, " if first.numbers else ""
    also = ", ".join(repr(column.name) for column in others[:LISTED])
    more = ", ..." if len(others) > LISTED else ""
    raise _Refusal(
        f"{first.stray}; {correct}leave the column out ({_drop(first.name)}), or encode it "
        "(--encode)" + (f". Not all numbers either: {also}{more}" if also else "")
    )


def _drop(name: str) -> str:
    return f"--drop {shlex.quote(name)}"


# From columns of a batch to numbers: each as a whole, then, to name the culprit, one by one.


def _as_numbers(values: npt.NDArray[Any]) -> Array | None:
    """All values as floats, or None if one is not a finite number."""
    if values.dtype.kind == "O":
        try:
            if "_" in "".join(values):  # float takes 1_000
                return None
            values = values.astype(np.float64)
        except (TypeError, ValueError):
            return None
    return values if values.dtype.kind == "f" and np.isfinite(values).all() else None


def _as_number(value: Any) -> float | None:
    if isinstance(value, str) and "_" not in value:
        try:
            value = float(value)
        except ValueError:
            return None
    return value if isinstance(value, float) and math.isfinite(value) else None


def _as_days(values: npt.NDArray[Any]) -> Array | None:
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


def _first_undated(values: npt.NDArray[Any]) -> int:
    return next(i for i in range(len(values)) if _as_days(values[i : i + 1]) is None)


def _as_utc(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


def _encode_numbers(column: Column, batch: Batch) -> Array:
    values = batch.columns[column.name]
    numbers = _as_numbers(values)
    if numbers is None:
        first = next(i for i, value in enumerate(values) if _as_number(value) is None)
        _refuse_value(column.name, batch, first, _why_not_number(values[first]))
    return numbers[:, None]


def _encode_dates(column: Column, batch: Batch) -> Array:
    values = batch.columns[column.name]
    days = _as_days(values)
    if days is None:
        first = _first_undated(values)
        _refuse_value(column.name, batch, first, _why_not_date(values[first]))
    return days[:, None]


def _encode_categories(column: Column, batch: Batch) -> Array:
    values = batch.columns[column.name]
    code = {category: k for k, category in enumerate(column.categories)}
    codes = np.array([code.get(text, -1) for text in map(str, values.tolist())], dtype=np.intp)
    if codes.min() < 0:
        first = int(codes.argmin())
        more = ", ..." if len(code) > LISTED else ""
        known = ", ".join(map(repr, column.categories[:LISTED])) + more
        why = f"{_shown(values[first])} is not one of the {len(code)} known categories: {known}"
        _refuse_value(column.name, batch, first, why)
    return np.eye(len(code))[:, -len(column.features) :][codes]


ENCODERS = {
    "number": _encode_numbers,
    "date": _encode_dates,
    "category": _encode_categories,
}


def _refuse_value(name: str, batch: Batch, index: int, why: str) -> NoReturn:
    missing = is_missing(batch.columns[name][index : index + 1]).any()
    _refuse(name, batch, index, MISSING_VALUE if missing else why)


def _refuse(name: str, batch: Batch, index: int, why: str) -> NoReturn:
    raise _Refusal(_at(name, batch, index) + why)


def _at(name: str, batch: Batch, index: int) -> str:
    return f"column {name!r}, {batch.place(index)}: "


def _why_not_number(value: Any) -> str:
    shown, text = _shown(value), str(value)
    try:
        infinite = "_" not in text and math.isinf(float(text))
    except ValueError:
        infinite = False
    if infinite:
        return f"{shown} is {'infinite' if 'inf' in text.lower() else 'too large for a float'}"
    points = [text.replace(".", "").replace(",", "."), text.replace(",", "")]
    if "," in text and any(_as_number(point) is not None for point in points):
        return f"{shown} is not a number (write a decimal point, and no commas)"
    return f"{shown} is not a number"


def _why_not_date(value: Any) -> str:
    return f"{_shown(value)} is not a date such as 2024-12-31 or 2024-12-31T23:59"


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str | list | dict | None) else str(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


# Pieces of a table


def _apply(encoding: Encoding, batch: Batch, table: Table) -> Array:
    with _naming(table):
        return encoding.apply(batch)


def _apply_with_target(
    encoding: Encoding, target: str, batch: Batch, table: Table
) -> tuple[Array, Array]:
    with _naming(table):
        return encoding.apply(batch), _encode_target(target, batch)


def _encode_target(target: str, batch: Batch) -> Array:
    try:
        return _encode_numbers(Column(target, "number"), batch)[:, 0]
    except _Refusal as refusal:
        raise _Refusal(f"the target must be a number: {refusal}") from None


def _pieces_with_target(
    table: Table, encoding: Encoding, target: str, batch_rows: int
) -> Iterator[tuple[Array, Array]]:
    batch_rows = bounded_rows(batch_rows, len(encoding.names))
    batches = table.batches([*encoding.column_names, target], batch_rows)
    return (_apply_with_target(encoding, target, batch, table) for batch in batches)


# JSON


def _column_from_json(column: Any) -> Column:
    if not isinstance(column, dict):
        raise ValueError(f"a column of an encoding is an object, not {_shown(column)}")
    name, kind = column.get("name"), column.get("kind")
    if not isinstance(name, str) or not name:
        raise ValueError(f"the name of a column is text, not {_shown(name)}")
    if kind not in KINDS:
        raise ValueError(f"column {name!r}: the kind is one of {', '.join(KINDS)}, not {kind!r}")
    keys = {"name", "kind"} | ({"categories"} if kind == "category" else set())
    if set(column) != keys:
        raise ValueError(
            f"column {name!r} has the entries {sorted(map(str, column))}, not {sorted(keys)}"
        )
    categories = column.get("categories", [])
    is_text = isinstance(categories, list) and all(
        isinstance(category, str) and category not in MISSING for category in categories
    )
    if not is_text or (kind == "category" and not categories):
        raise ValueError(
            f"the categories of column {name!r} are a list of text, not {_shown(categories)}"
        )
    _refuse_repeated(f"categories of column {name!r}", categories)
    return Column(name, kind, tuple(categories))


def _refuse_repeated(what: str, names: Sequence[str]) -> None:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"the {what} are named more than once: {', '.join(map(repr, twice))}")
