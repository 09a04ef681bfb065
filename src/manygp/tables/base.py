"""Tables on disk: named columns, and rows in pieces.

Rows of a file count from 1 in messages, without its header; lines are those of an editor.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from manygp.inputs import check_integer

# A piece of a table has at most this number of rows.
BATCH_ROWS = 2**16
# A piece of a wide table has fewer rows, since text takes ten times the memory of a number.
BATCH_CELLS = 2**20
# Words that stand for a missing value.
MISSING = frozenset(
    {"", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "NaT", "null", "NULL", "None"}
    | {"?"}
)
EMPTY_CELLS = MISSING | {None}
# A message names at most this number of columns,
MOST_NAMES = 30
# quotes at most this number of values,
MOST_VALUES = 10
# and shows at most this number of characters of a value.
MOST_CHARACTERS = 40


class Batch(NamedTuple):
    """Some rows of a table.

    Attributes
    ----------
    start : int
        Number of rows of the table that come before these.
    columns : dict of str to ndarray of shape (N,)
        Floats (missing: NaN), bools, datetime64 (missing: NaT), or objects: stripped text,
        where `None` and the words of `MISSING` stand for a missing value.
    lines : ndarray of shape (N,), optional
        The line of the file at which each row starts, if the file is text.
    categorical : frozenset of str
        Columns whose type says that they hold categories, also where these look like numbers.
    text : frozenset of str
        Columns whose type says that they hold text: what looks like a number there is a code.
    first : int
        How messages count the first row of the table: 1, but 0 of a table of Python.
    kept : tuple of columns
        Columns of any type to copy as they are: text (N,), or arrays of pyarrow.
    """

    start: int
    columns: dict[str, npt.NDArray[Any]]
    lines: npt.NDArray[np.int64] | None = None
    categorical: frozenset[str] = frozenset()
    first: int = 1
    kept: tuple[Any, ...] = ()
    text: frozenset[str] = frozenset()

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(next(iter((*self.columns.values(), *self.kept))))

    def some(self, rows: npt.NDArray[Any]) -> Batch:
        """Some of the rows of a table of Python."""
        return self._replace(columns={name: one[rows] for name, one in self.columns.items()})

    @property
    def dtypes(self) -> list[np.dtype[Any]]:
        """Types of the columns, as tables of other libraries have them."""
        return [values.dtype for values in self.columns.values()]

    def place(self, index: int) -> str:
        """Where in the file a row of the batch is, for messages."""
        row = self.start + index + self.first
        return f"row {row}" if self.lines is None else place_of(row, self.lines[index])


# Adds rows to a table: takes numbers (columns, N), and a list of columns to copy as they are.
WriteRows: TypeAlias = Callable[..., None]


class TableFormat(NamedTuple):
    """A format of tables on disk.

    Attributes
    ----------
    name : str
    endings : tuple of str
        Endings of names that tell the format, such as ".csv".
    magic : bytes
        The first bytes of every file, by which it is known under any name; may be empty.
    is_text : bool
        Whether what is written may be gzipped.
    open : callable
        (path, decimal) -> TableFile; `decimal` is what stands before the decimals in text.
    writer : callable
        (binary file, names of columns of numbers, names of columns to copy) -> context manager
        that gives a `WriteRows`.
    """

    name: str
    endings: tuple[str, ...]
    magic: bytes
    is_text: bool
    open: Callable[[Path, str], TableFile]
    writer: Callable[[IO[bytes], Sequence[str], Sequence[str]], AbstractContextManager[WriteRows]]

    @property
    def output_endings(self) -> list[str]:
        """Endings of files that are written."""
        packings = ("", ".gz") if self.is_text else ("",)
        return [ending + packing for ending in self.endings for packing in packings]


class TableFile(NamedTuple):
    """A table on disk, whose rows can be read again and again.

    Attributes
    ----------
    path : Path
    names : tuple of str
        Names of its columns.
    pieces : callable
        (names of columns to read, names of columns to copy, largest number of rows) -> pieces of
        the table; none if it has no rows.
    """

    path: Path
    names: tuple[str, ...]
    pieces: Callable[[tuple[str, ...], tuple[str, ...], int], Iterator[Batch]]

    def check_column(self, name: str) -> None:
        """Refuse a name that no column has."""
        if name in self.names:
            return
        lower = {known.lower(): known for known in self.names}
        near = difflib.get_close_matches(name.lower(), lower, n=1)
        hint = f"did you mean {lower[near[0]]!r}? There" if near else "there"
        raise ValueError(f"{self.path}: no column {name!r}; {hint} are {listed(self.names)}")

    def batches(
        self, columns: Sequence[str], batch_rows: int = BATCH_ROWS, kept: Sequence[str] = ()
    ) -> Iterator[Batch]:
        """Pieces of some columns, of at most `batch_rows` rows, in the order of the file."""
        check_integer("batch_rows", batch_rows, 1)
        for name in (*columns, *kept):
            self.check_column(name)
        return self._refuse_empty(self.pieces(tuple(columns), tuple(kept), batch_rows))

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
            return np.array([value in EMPTY_CELLS for value in values], dtype=bool)
        case _:
            return np.zeros(len(values), dtype=bool)


def bounded_rows(batch_rows: int, n_columns: int) -> int:
    """The smaller of `batch_rows` and the number of rows that `BATCH_CELLS` allows."""
    return min(batch_rows, max(1, BATCH_CELLS // n_columns))


def place_of(row: int, line: int) -> str:
    """A row, counted from 1, and its line; row 0 is the header."""
    return f"line {line}" if row == 0 else f"row {row} (line {line})"


def listed(names: Sequence[str]) -> str:
    """Names of columns for a message, the first `MOST_NAMES` of them."""
    shown = [n if n.isprintable() and n and "," not in n else repr(n) for n in names[:MOST_NAMES]]
    more = [f"... ({len(names)} in all)"] if len(names) > MOST_NAMES else []
    return ", ".join([*shown, *more])


def quoted(values: Sequence[str]) -> str:
    """Values in quotes for a message, the first `MOST_VALUES` of them."""
    more = ["..."] if len(values) > MOST_VALUES else []
    return ", ".join([*map(repr, values[:MOST_VALUES]), *more])


def shortened(value: Any) -> str:
    """A value for a message, cut to `MOST_CHARACTERS`."""
    text = repr(value) if isinstance(value, str | list | dict | None) else str(value)
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 3] + "..."


def starts_with(path: Path, magic: bytes) -> bool:
    """Whether a file begins with these bytes."""
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def refuse_repeated(what: str, names: Sequence[str], path: Path | None = None) -> None:
    """Refuse names that occur twice.

    Parameters
    ----------
    what : str
        What has the names, for the message: "column".
    names : sequence of str
    path : path, optional
        The file, for the message.
    """
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        place = "" if path is None else f"{path}: "
        raise ValueError(f"{place}more than one {what} is called {listed(twice)}")
