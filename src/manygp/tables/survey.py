"""What the columns of a training table hold: learned batch by batch.

A column holds numbers; or dates, if every value is one; or else categories. Some text among
numbers is a mistake, not a category, and so are more than `MOST_CATEGORIES` different values.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy.typing as npt

from manygp.arrays import Array
from manygp.tables.base import Batch, is_missing, quoted, refuse_repeated
from manygp.tables.encoding import (
    MISSING_VALUE,
    Column,
    Encoding,
    Refusal,
    as_days,
    as_number,
    as_numbers,
    at,
    first_undated,
    refuse,
    why_not_date,
    why_not_number,
)

# A column of more different values than that is refused, since each becomes a feature.
MOST_CATEGORIES = 100


class Survey:
    """What the columns of a table have held so far.

    Parameters
    ----------
    columns : sequence of str
        Names of the columns.
    encode : bool
        Whether columns may hold dates and categories, or numbers only.
    """

    def __init__(self, columns: Sequence[str], *, encode: bool) -> None:
        self.columns = tuple(columns)
        self.encode = encode
        self.n_rows = 0
        self._seen = [_Seen(name) for name in columns]

    def add(self, batch: Batch) -> list[Array] | None:
        """Take note of a batch; its columns as numbers, while there has been nothing else."""
        self.n_rows += batch.n_rows
        found = [column.add(batch, encode=self.encode) for column in self._seen]
        text = [column for column in self._seen if column.stray]
        if text and not self.encode:
            _refuse_text(*text)
        return None if text else [numbers for numbers in found if numbers is not None]

    def conclude(self) -> tuple[Encoding, int]:
        """How to encode the columns, and the number of rows."""
        encoding = Encoding(tuple(column.conclude(self.n_rows) for column in self._seen))
        refuse_repeated("encoded column", encoding.names)
        return encoding, self.n_rows


@dataclass
class _Seen:
    """What one column has held so far."""

    name: str
    # How many values were numbers.
    n_numbers: int = 0
    # The first value that is not a number: its place, and what it is.
    stray: str = ""
    # Whether every value was a date; if not, the first one that was none after some that were.
    all_dates: bool = True
    undated: str = ""
    # All different values as text, to be encoded; no more are added when they are too many.
    distinct: set[str] = field(default_factory=set)

    def add(self, batch: Batch, *, encode: bool) -> Array | None:
        """Take note of a batch; its values as numbers, if all of them are."""
        values = batch.columns[self.name]
        numbers = as_numbers(values)
        if numbers is not None:
            self.n_numbers += len(values)
            self.all_dates = False
        else:
            self._note_text(batch, encode=encode)
        if encode:
            self._note_distinct(values)  # also of numbers: text may follow
        if encode and numbers is None and not self.all_dates:
            self._refuse_many(batch.start + len(values))
        return numbers

    def _note_text(self, batch: Batch, *, encode: bool) -> None:
        """Take note of a batch that does not hold numbers only."""
        values = batch.columns[self.name]
        first, n_numbers = _first_and_numbers(values.tolist())
        _refuse_unusable(self.name, batch, first, missing_anywhere=encode)
        self.n_numbers += n_numbers
        self.stray = self.stray or at(self.name, batch, first) + why_not_number(values[first])
        if self.all_dates and as_days(values) is None:
            self.all_dates = False
            self.undated = _undated(batch, values)

    def _note_distinct(self, values: npt.NDArray[Any]) -> None:
        if len(self.distinct) <= MOST_CATEGORIES:
            self.distinct.update(map(str, values.tolist()))

    def conclude(self, n_rows: int) -> Column:
        """What the column holds, after all rows."""
        if not self.stray:
            return Column(self.name, "number")
        if self.all_dates:
            return Column(self.name, "date")
        self._refuse_many(n_rows)
        self._refuse_stray(n_rows)
        return Column(self.name, "category", tuple(sorted(self.distinct)))

    def _refuse_stray(self, n_rows: int) -> None:
        """Refuse text where at least half of the values are numbers."""
        if 2 * self.n_numbers >= n_rows:
            raise Refusal(f"{self.stray}, in a column of numbers; {_correct_or_drop(self.name)}")

    def _refuse_many(self, n_rows: int) -> None:
        """Refuse too many different values."""
        if len(self.distinct) <= MOST_CATEGORIES:
            return
        self._refuse_stray(n_rows)
        undated = f"; or, if they are dates, look at {self.undated}" if self.undated else ""
        raise Refusal(
            f"column {self.name!r} has {len(self.distinct):,} different values so far, in "
            f"{n_rows:,} rows, and at most {MOST_CATEGORIES} can be categories; leave it out "
            f"({_drop(self.name)}){undated}"
        )


def _first_and_numbers(values: list[Any]) -> tuple[int, int]:
    """The index of the first value that is not a number, and how many values are numbers."""
    times = Counter(values)  # each different value is looked at once
    others = [value for value in times if as_number(value) is None]
    return values.index(others[0]), len(values) - sum(times[value] for value in others)


def _refuse_unusable(name: str, batch: Batch, first: int, *, missing_anywhere: bool) -> None:
    """Refuse values that are neither numbers nor text: missing ones, and infinities.

    Parameters
    ----------
    name : str
    batch : Batch
    first : int
        Index of the first value that is not a number.
    missing_anywhere : bool
        Whether to look for missing values among all values, or at the first only.
    """
    values = batch.columns[name]
    missing = is_missing(values)
    if missing[first] or (missing_anywhere and missing.any()):
        why = f"{MISSING_VALUE}, or leave the column out ({_drop(name)})"
        refuse(name, batch, int(missing.argmax()), why)
    if values.dtype.kind == "f":
        refuse(name, batch, first, f"{why_not_number(values[first])}; {_correct_or_drop(name)}")


def _undated(batch: Batch, values: npt.NDArray[Any]) -> str:
    """The first value that is not a date; nothing if it is the first of the whole table."""
    index = first_undated(values)
    if batch.start + index == 0:
        return ""
    return f"{batch.place(index)}: {why_not_date(values[index])}"


def _refuse_text(first: _Seen, *others: _Seen) -> NoReturn:
    """Refuse columns that must be encoded, or left out."""
    correct = "correct it, " if first.n_numbers else ""
    also = quoted([column.name for column in others])
    raise Refusal(
        f"{first.stray}; {correct}leave the column out ({_drop(first.name)}), or encode it "
        "(--encode)" + (f". Not all numbers either: {also}" if also else "")
    )


def _correct_or_drop(name: str) -> str:
    return f"correct it, or leave the column out ({_drop(name)})"


def _drop(name: str) -> str:
    return f"--drop {shlex.quote(name)}"
