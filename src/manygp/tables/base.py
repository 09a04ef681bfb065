"""Tables on disk: named columns, and rows in pieces.

Rows of a file count from 1 in messages, without its header; lines are those of an editor.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manygp.validation import check_integer

BATCH_ROWS = 2**16
# Of a wide table a piece has fewer rows, since text takes ten times the memory of a number.
BATCH_CELLS = 2**20
MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?"})
# Columns that are listed in a message, at most.
LISTED = 30


class Batch(NamedTuple):
    """Some rows of a table.

    Attributes
    ----------
    start : int
        Rows of the table before it.
    columns : dict of str to ndarray of shape (N,)
        Floats (missing: NaN), bools, datetime64 (missing: NaT), or objects: stripped text,
        where `None` and the words of `MISSING` stand for a missing value.
    lines : ndarray of shape (N,), optional
        The line of the file at which each row starts, if it is text.
    """

    start: int
    columns: dict[str, npt.NDArray[Any]]
    lines: npt.NDArray[np.int64] | None

    @property
    def n_rows(self) -> int:
        """How many rows it has."""
        return len(next(iter(self.columns.values())))

    def place(self, index: int) -> str:
        """Where in the file a row of the batch is, for messages."""
        return place_of(self.start + index + 1, None if self.lines is None else self.lines[index])


@dataclass(frozen=True)
class Table:
    """A table on disk: its columns, and its rows in pieces as often as they are asked for."""

    path: Path
    names: tuple[str, ...]
    # Of the columns' names and the most rows of a piece; may give no piece.
    pieces: Callable[[tuple[str, ...], int], Iterator[Batch]]

    def check_column(self, name: str) -> None:
        """Refuse a name that no column has."""
        if name in self.names:
            return
        lower = {known.lower(): known for known in self.names}
        near = difflib.get_close_matches(name.lower(), lower, n=1)
        hint = f"did you mean {lower[near[0]]!r}? There" if near else "there"
        raise ValueError(f"{self.path}: no column {name!r}; {hint} are {listed(self.names)}")

    def batches(self, columns: Sequence[str], batch_rows: int = BATCH_ROWS) -> Iterator[Batch]:
        """Pieces of some columns, of at most `batch_rows` rows, in the order of the file."""
        check_integer("batch_rows", batch_rows, 1)
        for name in columns:
            self.check_column(name)
        return self._refuse_empty(self.pieces(tuple(columns), batch_rows))

    def _refuse_empty(self, pieces: Iterator[Batch]) -> Iterator[Batch]:
        batch = None
        for batch in pieces:
            yield batch
        if batch is None:
            raise ValueError(f"{self.path} has column names, but no rows (0 rows)")


def is_missing(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which values of a column of a batch are missing, (N,)."""
    match values.dtype.kind:
        case "f":
            return np.isnan(values)
        case "M":
            return np.isnat(values)
        case "O":
            return np.array([value is None or value in MISSING for value in values], dtype=bool)
        case _:
            return np.zeros(len(values), dtype=bool)


def bounded_rows(batch_rows: int, n_columns: int) -> int:
    """`batch_rows`, or what a piece of so many columns may have at most."""
    return min(batch_rows, max(1, BATCH_CELLS // n_columns))


def place_of(row: int, line: int | None) -> str:
    """A row, counted from 1, and its line, if it has one."""
    if row == 0:
        return f"line {line}"
    return f"row {row}" if line is None else f"row {row} (line {line})"


def listed(names: Sequence[str]) -> str:
    """Names for a message, not too many."""
    shown = [n if n.isprintable() and n and "," not in n else repr(n) for n in names[:LISTED]]
    more = [f"... ({len(names)} in all)"] if len(names) > LISTED else []
    return ", ".join([*shown, *more])


def starts_with(path: Path, magic: bytes) -> bool:
    """Whether a file begins with these bytes."""
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def refuse_ambiguous(path: Path, names: Sequence[str]) -> None:
    """Refuse names that are there twice."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"{path}: more than one column is called {listed(twice)}")
