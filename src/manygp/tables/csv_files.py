"""Format of tables: CSV, also gzipped."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, TextIO

import numpy as np
import numpy.typing as npt

from manygp.arrays import Array
from manygp.tables.base import (
    Batch,
    TableFile,
    TableFormat,
    WriteRows,
    bounded_rows,
    place_of,
    refuse_repeated,
    shortened,
    starts_with,
)
from manygp.tables.values import as_number, with_point

# Candidates for the delimiter. Where two give the same number of columns the first one counts:
# names rarely hold it.
DELIMITERS = ("\t", "|", ";", ",")


def csv_table(path: Path, decimal: str = ".") -> TableFile:
    """The table of a CSV file in UTF-8 whose first line names the columns.

    Parameters
    ----------
    path : path
    decimal : {".", ","}
        What stands before the decimals of a number.
    """
    names, delimiter = _names_and_delimiter(path)
    refuse_repeated("column", names, path)
    read = _with_commas if decimal == "," else str.strip
    return TableFile(path, names, partial(_csv_pieces, path, delimiter, read))


def _with_commas(text: str) -> str:
    """A field of a file with decimal commas; a point is none there, and 1.5 no number."""
    text = text.strip()
    if "." in text and as_number(text) is not None:
        raise ValueError(f"{shortened(text)} has a point where decimals follow a comma")
    return with_point(text)


def _names_and_delimiter(path: Path) -> tuple[tuple[str, ...], str]:
    """The names of the columns, and the delimiter: the candidate that gives most names."""
    fields: list[str] = []
    delimiter = ""
    failure = None
    for candidate in DELIMITERS:
        try:
            _, split = next(_records(path, candidate), (0, []))
        except ValueError as error:
            failure = error
        else:
            if len(split) > len(fields):
                fields, delimiter = split, candidate
    if failure is not None and len(fields) < 2:  # the right delimiter cannot split the names
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
    path: Path,
    delimiter: str,
    read: Callable[[str], str],
    columns: tuple[str, ...],
    kept: tuple[str, ...],
    batch_rows: int,
) -> Iterator[Batch]:
    records = _records(path, delimiter)
    _, header = next(records)
    names = [name.strip() for name in header]
    positions = [names.index(name) for name in (*columns, *kept)]
    batch_rows = bounded_rows(batch_rows, len(names))
    start = 0
    lines: list[int] = []
    rows: list[list[str]] = []

    def batch() -> Batch:
        cells = list(zip(*rows, strict=True))
        pairs = zip(columns, cells, strict=False)
        arrays = {name: _read_column(path, name, cell, read) for name, cell in pairs}
        copies = [[text.strip() for text in cell] for cell in cells[len(columns) :]]
        return Batch(start, arrays, np.array(lines, dtype=np.int64), kept=tuple(copies))

    for line, fields in records:
        lines.append(line)
        rows.append([fields[j] for j in positions])  # keeps no long text of other columns
        if len(rows) == batch_rows:
            yield batch()
            start += len(rows)
            lines, rows = [], []
    if rows:
        yield batch()


def _read_column(
    path: Path, name: str, cells: Sequence[str], read: Callable[[str], str]
) -> npt.NDArray[Any]:
    try:
        return np.array([read(text) for text in cells], dtype=object)
    except ValueError as error:
        raise ValueError(
            f"{path}: column {name!r}: {error}, as --decimal , says; remove points that separate "
            "thousands"
        ) from None


def _records(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The first line and the fields of the header and of each row; blank lines are skipped."""
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
                        _refuse_ragged(f"{path}: {place_of(row, line)}", fields, header)
                    header = fields
                yield line, fields
                row += 1
                line = reader.line_num + 1
        except UnicodeError as error:
            raise ValueError(f"{path}: {place_of(row, reader.line_num + 1)} {error}") from None
        except csv.Error as error:
            raise ValueError(
                f"{path}: {place_of(row, line)} is not CSV: {error}; is there a quote too many or "
                "too few?"
            ) from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(
                f"{path} is a gzip file that is cut off or damaged, near {place_of(row, line)}: "
                f"{error}"
            ) from error


def _open_text(path: Path) -> TextIO:
    # Bytes that are no text pass here; `_checked_lines` refuses them, and their line is known.
    how = {"encoding": "utf-8-sig", "errors": "surrogateescape", "newline": ""}
    opened: Any = gzip.open if starts_with(path, b"\x1f\x8b") else open
    file: TextIO = opened(path, "rt", **how)
    return file


def _checked_lines(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if "\0" in line:
            raise UnicodeError("holds a NUL byte; this is not a text file in UTF-8")
        if not line.isascii():  # a flag of the string: no character is looked at
            try:
                line.encode()
            except UnicodeEncodeError:
                raise UnicodeError("is not UTF-8 text; save the table as CSV in UTF-8") from None
        yield line


def _refuse_ragged(place: str, fields: Sequence[str], header: Sequence[str]) -> None:
    lacking = header[len(fields) :]
    why = f"none for column {lacking[0].strip()!r}" if lacking else "too many"
    raise ValueError(f"{place} has {len(fields)} fields, the header {len(header)}: {why}")


@contextmanager
def csv_writer(
    file: IO[bytes], names: Sequence[str], kept_names: Sequence[str], delimiter: str = ","
) -> Iterator[WriteRows]:
    """Write columns that are kept, and numbers with all of their digits."""

    def write_lines(rows: Iterable[Any]) -> None:
        text = io.StringIO()
        csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(rows)
        file.write(text.getvalue().encode())

    def write(columns: Array, kept: Sequence[Any] = ()) -> None:
        numbers = [map(repr, row) for row in columns.tolist()]
        if kept:
            write_lines(zip(*map(_as_text, kept), *numbers, strict=True))
        else:
            lines = (delimiter.join(row) for row in zip(*numbers, strict=True))
            file.write("".join(f"{line}\n" for line in lines).encode())

    write_lines([[*kept_names, *names]])
    yield write


def _as_text(column: Any) -> Sequence[Any]:
    """A column that is kept as text, or as what the CSV writer makes text of."""
    if not hasattr(column, "to_pylist"):
        cells: Sequence[Any] = column
        return cells
    from pyarrow import string, types

    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if types.is_temporal(column.type):  # Python's own dates have no nanoseconds
        column = column.cast(string())
    values: list[Any] = column.to_pylist()
    return values


CSV = TableFormat("CSV", (".csv",), b"", True, csv_table, csv_writer)
