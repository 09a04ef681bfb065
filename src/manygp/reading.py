"""Tables on disk, CSV or Parquet (extra `parquet`), in pieces to arrays.

Rows of a file count from 1 in messages, without its header; lines are those of an editor.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

from manygp.types import Array
from manygp.validation import check_integer

PARQUET_SUFFIXES = (".parquet", ".pq")
BATCH_ROWS = 2**16
# Of a wide table a piece has fewer rows, since text takes ten times the memory of a number.
BATCH_CELLS = 2**20
# A header with as many of one as of another is split at the one that names rarely hold.
DELIMITERS = ("\t", "|", ";", ",")
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
        return _place(self.start + index + 1, None if self.lines is None else self.lines[index])


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
        raise ValueError(f"{self.path}: no column {name!r}; {hint} are {_listed(self.names)}")

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


def open_table(path: str | PathLike[str]) -> Table:
    """Find out the format and the columns of a table.

    Parquet is known by its ending (.parquet, .pq) or its first bytes, and gzip by its first
    bytes. All else is taken for CSV in UTF-8, whose first line names the columns, split at
    commas, semicolons, tabs or bars.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a table; name a file in it")
    if not path.is_file():
        raise ValueError(f"{path} is not a file on disk; a table is read more than once")
    if path.suffix.lower() in PARQUET_SUFFIXES or _starts_with(path, b"PAR1"):
        return _parquet_table(path)
    names, delimiter = _header(path)
    _refuse_ambiguous(path, names)
    return Table(path, names, partial(_csv_pieces, path, delimiter))


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


def _place(row: int, line: int | None) -> str:
    if row == 0:
        return f"line {line}"
    return f"row {row}" if line is None else f"row {row} (line {line})"


def _listed(names: Sequence[str]) -> str:
    shown = [n if n.isprintable() and n and "," not in n else repr(n) for n in names[:LISTED]]
    more = [f"... ({len(names)} in all)"] if len(names) > LISTED else []
    return ", ".join([*shown, *more])


def _starts_with(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _refuse_ambiguous(path: Path, names: Sequence[str]) -> None:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"{path}: more than one column is called {_listed(twice)}")


# CSV


def _header(path: Path) -> tuple[tuple[str, ...], str]:
    """The names of the columns, and the delimiter: the one that gives most of them."""
    fields: list[str] = []
    delimiter, failure = "", None
    for candidate in DELIMITERS:
        try:
            _, found = next(_records(path, candidate), (0, []))
        except ValueError as error:
            failure = error
        else:
            if len(found) > len(fields):
                fields, delimiter = found, candidate
    if failure is not None and len(fields) < 2:  # names that the right delimiter cannot split
        raise failure
    names = tuple(name.strip() for name in fields)
    if not names:
        raise ValueError(f"{path} is empty")
    if all(_is_number(name) for name in names):
        raise ValueError(
            f"{path}: the first line holds numbers, not column names; add a line of names"
        )
    if "" in names:
        raise ValueError(
            f"{path}: column {names.index('') + 1} of {len(names)} has no name in the first line "
            "(pandas leaves its index out with `index=False`)"
        )
    return names, delimiter


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _csv_pieces(
    path: Path, delimiter: str, columns: tuple[str, ...], batch_rows: int
) -> Iterator[Batch]:
    records = _records(path, delimiter)
    _, header = next(records)
    names = [name.strip() for name in header]
    positions = [names.index(name) for name in columns]
    batch_rows = bounded_rows(batch_rows, len(names))
    start = 0
    lines: list[int] = []
    rows: list[list[str]] = []

    def batch() -> Batch:
        cells = zip(*rows, strict=True)
        arrays = {name: _stripped(column) for name, column in zip(columns, cells, strict=True)}
        return Batch(start, arrays, np.array(lines, dtype=np.int64))

    for line, fields in records:
        lines.append(line)
        rows.append([fields[j] for j in positions])  # a long text that nobody wants is not held
        if len(rows) == batch_rows:
            yield batch()
            start += len(rows)
            lines, rows = [], []
    if rows:
        yield batch()


def _stripped(column: Iterable[str]) -> npt.NDArray[Any]:
    return np.array([text.strip() for text in column], dtype=object)


def _records(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """First line and fields of the header and of each row; lines that are blank are skipped."""
    with _open_text(path) as file:
        # Strict, since a quote at the wrong place would otherwise join rows in silence.
        reader = csv.reader(
            _checked_lines(file), delimiter=delimiter, skipinitialspace=True, strict=True
        )
        header: list[str] = []
        row, line = 0, 1
        try:
            for fields in reader:
                if len(fields) != len(header) or not fields:
                    if not fields or (len(fields) == 1 and not fields[0].strip()):
                        line = reader.line_num + 1
                        continue
                    if header:
                        _refuse_ragged(f"{path}: {_place(row, line)}", fields, header)
                    header = fields
                yield line, fields
                row += 1
                line = reader.line_num + 1
        except UnicodeError as error:
            raise ValueError(f"{path}: {_place(row, reader.line_num + 1)} {error}") from None
        except csv.Error as error:
            raise ValueError(
                f"{path}: {_place(row, line)} is not CSV: {error}; is there a quote too many or "
                "too few?"
            ) from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(
                f"{path} is a gzip file that is cut off or damaged, near {_place(row, line)}: "
                f"{error}"
            ) from error


def _open_text(path: Path) -> TextIO:
    # Bytes that are no text are let through here, and refused with their line afterwards.
    how = {"encoding": "utf-8-sig", "errors": "surrogateescape", "newline": ""}
    opened: Any = gzip.open if _starts_with(path, b"\x1f\x8b") else open
    file: TextIO = opened(path, "rt", **how)
    return file


def _checked_lines(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if "\0" in line:
            raise UnicodeError("holds a NUL byte; this is not a text file in UTF-8")
        if not line.isascii():  # which costs no look at the characters
            try:
                line.encode()
            except UnicodeEncodeError:
                raise UnicodeError("is not UTF-8 text; save the table as CSV in UTF-8") from None
        yield line


def _refuse_ragged(place: str, fields: Sequence[str], header: Sequence[str]) -> None:
    lacking = header[len(fields) :]
    why = f"none for column {lacking[0].strip()!r}" if lacking else "too many"
    raise ValueError(f"{place} has {len(fields)} fields, the header {len(header)}: {why}")


# Parquet


class Rows(NamedTuple):
    """Inputs (n, d), targets (n,) and the names of the inputs' columns."""

    X: Array
    y: Array
    names: tuple[str, ...]


def read_parquet(
    path: str | PathLike[str], target: str, columns: Sequence[str] | None = None
) -> Rows:
    """Read a Parquet file without holding more of it than one piece beside the arrays.

    Parameters
    ----------
    path : path
    target : str
        The column of y.
    columns : sequence of str, optional
        The columns of X, in this order; by default all but the target.
    """
    table = _parquet_table(Path(path))
    if columns is None:
        columns = [name for name in table.names if name != target]
    pieces = _number_pieces(table, [*columns, target], BATCH_ROWS)
    with _open_parquet(table.path) as file:
        n_rows = file.metadata.num_rows
    X, y = np.empty((n_rows, len(columns))), np.empty(n_rows)
    start = 0
    for piece in pieces:
        end = start + len(piece)
        X[start:end], y[start:end] = piece[:, :-1], piece[:, -1]
        start = end
    return Rows(X, y, tuple(columns))


def parquet_batches(
    path: str | PathLike[str], columns: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS
) -> Iterator[Array]:
    """Pieces (N, d) of a Parquet file that may be larger than memory, in its order.

    Parameters
    ----------
    path : path
    columns : sequence of str, optional
        By default all.
    batch_rows : int
        Rows of a piece, at most.
    """
    table = _parquet_table(Path(path))
    return _number_pieces(table, list(columns or table.names), batch_rows)


def _number_pieces(table: Table, columns: Sequence[str], batch_rows: int) -> Iterator[Array]:
    """Pieces (N, d) of columns of numbers or bools; others are refused before reading."""
    from pyarrow import types

    for name in columns:
        table.check_column(name)
    with _open_parquet(table.path) as file:
        for name in columns:
            kind = file.schema_arrow.field(name).type
            if not (_is_numeric(kind) or types.is_boolean(kind)):
                raise ValueError(
                    f"column {name!r} is of type {kind}, not a number; leave it out of "
                    "`columns`, or encode it first"
                )
    pieces = table.pieces(tuple(columns), batch_rows)
    return (_stacked(batch, columns) for batch in pieces)


def _stacked(batch: Batch, columns: Sequence[str]) -> Array:
    piece = np.empty((batch.n_rows, len(columns)))
    for j, name in enumerate(columns):
        missing = is_missing(batch.columns[name])
        if missing.any():
            place = batch.place(int(missing.argmax()))
            raise ValueError(f"column {name!r} has no value in {place}; drop or fill it")
        piece[:, j] = batch.columns[name]
    return piece


def _parquet_table(path: Path) -> Table:
    with _open_parquet(path) as file:
        # pandas keeps the numbers of rows that were filtered or shuffled under such names.
        names = tuple(
            name
            for name in file.schema_arrow.names
            if not re.fullmatch(r"__index_level_\d+__", name)
        )
    if not names:
        raise ValueError(f"{path} has no columns")
    _refuse_ambiguous(path, names)
    return Table(path, names, partial(_parquet_pieces, path))


def _open_parquet(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError('Parquet needs an extra: pip install "manygp[parquet]"') from error
    try:
        return pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        if getattr(error, "errno", None):  # no such file, or not ours to read
            raise
        raise ValueError(f"{path} is not a readable Parquet file: {error}") from error


def _parquet_pieces(path: Path, columns: tuple[str, ...], batch_rows: int) -> Iterator[Batch]:
    import pyarrow

    with _open_parquet(path) as file:
        for name in columns:
            kind = file.schema_arrow.field(name).type
            if not _is_readable(kind):
                raise ValueError(
                    f"{path}: column {name!r} is of type {kind}, not a number, text or a date; "
                    "leave it out"
                )
        start = 0
        batches = file.iter_batches(bounded_rows(batch_rows, len(columns)), columns=list(columns))
        try:
            for batch in batches:
                if batch.num_rows:
                    arrays = {name: _from_arrow(batch.column(name)) for name in columns}
                    yield Batch(start, arrays, None)
                    start += batch.num_rows
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise ValueError(
                f"{path} is not a readable Parquet file, after row {start}: {error}"
            ) from error


def _is_numeric(kind: Any) -> bool:
    from pyarrow import types

    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _is_readable(kind: Any) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    other = (types.is_boolean, types.is_date, types.is_timestamp, types.is_null)
    return _is_numeric(kind) or _is_text(kind) or any(is_kind(kind) for is_kind in other)


def _from_arrow(column: Any) -> npt.NDArray[Any]:
    """A column as an array of one of the types that `Batch` names."""
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if _is_text(column.type):
        return np.array([v if v is None else v.strip() for v in values], dtype=object)
    if types.is_boolean(column.type):
        if values.dtype == bool:
            return values
        # With holes they are objects; as text they cannot be taken for numbers.
        return np.array([v if v is None else str(v) for v in values], dtype=object)
    if _is_numeric(column.type) or types.is_null(column.type):
        return np.asarray(values, dtype=np.float64)
    return values
