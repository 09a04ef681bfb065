"""Tables of training rows, of new rows, and of rows to be tested."""

from __future__ import annotations

import shlex
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from typing import NamedTuple, NoReturn

import numpy as np

from manygp.arrays import Array
from manygp.tables.base import BATCH_ROWS, Batch, Table, bounded_rows, is_missing
from manygp.tables.encoding import (
    LISTED,
    MISSING_VALUE,
    Column,
    Encoding,
    Refusal,
    as_days,
    as_number,
    as_numbers,
    at,
    encode_numbers,
    first_undated,
    refuse,
    refuse_repeated,
    why_not_date,
    why_not_number,
)
from manygp.tables.reading import open_table

# Rows to learn from at a time: so few that their text stays in the cache of the processor.
LEARNED_ROWS = 2**13
MOST_CATEGORIES = 100


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
    survey = Survey(_chosen(table, target, columns, drop), encode)
    pieces: deque[tuple[Array, Array]] = deque()
    with naming(table):
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
    refuse_repeated("columns", columns or ())
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


@contextmanager
def naming(table: Table) -> Iterator[None]:
    """Say in which file a value was refused."""
    try:
        yield
    except Refusal as refusal:
        raise ValueError(f"{table.path}: {refusal}") from None


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
        numbers = as_numbers(values)
        if numbers is not None:
            self.numbers += len(values)
            self.all_dates = False
            if encode and len(self.distinct) <= MOST_CATEGORIES:  # text may follow
                self.distinct.update(map(str, values.tolist()))
            return numbers
        listed = values.tolist()
        counts = Counter(listed)  # so that each is looked at once
        not_numbers = [value for value in counts if as_number(value) is None]
        first = listed.index(not_numbers[0])
        missing = is_missing(values)
        if missing[first] or (encode and missing.any()):
            why = f"{MISSING_VALUE}, or leave the column out ({_drop(self.name)})"
            refuse(self.name, batch, int(missing.argmax()), why)
        why = why_not_number(values[first])
        if values.dtype.kind == "f":  # an infinity is no category
            refuse(self.name, batch, first, f"{why}; {self._correct_or_drop()}")
        self.stray = self.stray or at(self.name, batch, first) + why
        self.numbers += len(listed) - sum(counts[value] for value in not_numbers)
        if self.all_dates and as_days(values) is None:
            self.all_dates = False
            index = first_undated(values)
            if batch.start + index:
                self.undated = f"{batch.place(index)}: {why_not_date(values[index])}"
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
            raise Refusal(f"{self.stray}, in a column of numbers; {self._correct_or_drop()}")

    def _correct_or_drop(self) -> str:
        return f"correct it, or leave the column out ({_drop(self.name)})"

    def _refuse_many(self, n_rows: int) -> None:
        if len(self.distinct) <= MOST_CATEGORIES:
            return
        self._refuse_stray(n_rows)
        undated = f"; or, if they are dates, look at {self.undated}" if self.undated else ""
        raise Refusal(
            f"column {self.name!r} has {len(self.distinct):,} different values so far, in "
            f"{n_rows:,} rows, and at most {MOST_CATEGORIES} can be categories; leave it out "
            f"({_drop(self.name)}){undated}"
        )


class Survey:
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
        refuse_repeated("encoded columns", encoding.names)
        return encoding, self.n_rows


def _refuse_text(first: _Seen, *others: _Seen) -> NoReturn:
    """Of columns that must be encoded, or left out."""
    correct = "correct it, " if first.numbers else ""
    also = ", ".join(repr(column.name) for column in others[:LISTED])
    more = ", ..." if len(others) > LISTED else ""
    raise Refusal(
        f"{first.stray}; {correct}leave the column out ({_drop(first.name)}), or encode it "
        "(--encode)" + (f". Not all numbers either: {also}{more}" if also else "")
    )


def _drop(name: str) -> str:
    return f"--drop {shlex.quote(name)}"


def _apply(encoding: Encoding, batch: Batch, table: Table) -> Array:
    with naming(table):
        return encoding.apply(batch)


def _apply_with_target(
    encoding: Encoding, target: str, batch: Batch, table: Table
) -> tuple[Array, Array]:
    with naming(table):
        return encoding.apply(batch), _encode_target(target, batch)


def _encode_target(target: str, batch: Batch) -> Array:
    try:
        return encode_numbers(Column(target, "number"), batch)[:, 0]
    except Refusal as refusal:
        raise Refusal(f"the target must be a number: {refusal}") from None


def _pieces_with_target(
    table: Table, encoding: Encoding, target: str, batch_rows: int
) -> Iterator[tuple[Array, Array]]:
    batch_rows = bounded_rows(batch_rows, len(encoding.names))
    batches = table.batches([*encoding.column_names, target], batch_rows)
    return (_apply_with_target(encoding, target, batch, table) for batch in batches)
