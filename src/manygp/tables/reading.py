"""Opens tables of all formats, and reads Parquet files of numbers into arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np

from manygp.arrays import Array
from manygp.tables.base import BATCH_ROWS, Batch, TableFile, is_missing, starts_with
from manygp.tables.csv_files import csv_table
from manygp.tables.parquet_files import (
    PARQUET_SUFFIXES,
    count_rows,
    is_numeric,
    open_parquet,
    parquet_folder,
    parquet_paths,
    parquet_table,
)

# How files that are no tables here begin, what they are, and what to do.
OTHER_FORMATS = {
    b"PK\x03\x04": ("an Excel workbook or a zip archive", "save its sheet as CSV in UTF-8"),
    b"\xd0\xcf\x11\xe0": ("an old Excel workbook", "save its sheet as CSV in UTF-8"),
    b"ARROW1": ("an Arrow (Feather) file", "save it as Parquet"),
    b"\x89HDF": ("an HDF5 file", "save the table as CSV or Parquet"),
    b"\x93NUMPY": ("a NumPy file", "use it from Python, or save it as CSV with names"),
    b"SQLite format 3": ("a SQLite database", "export a table as CSV"),
    b"BZh": ("a bzip2 file", "unpack it, or pack it with gzip"),
    b"\xfd7zXZ": ("an xz file", "unpack it, or pack it with gzip"),
    b"\x28\xb5\x2f\xfd": ("a zstandard file", "unpack it, or pack it with gzip"),
    b"%PDF": ("a PDF file", "export the table as CSV"),
    b"\x80\x04": ("a pickle", "save the table as CSV or Parquet"),
    b"\x80\x05": ("a pickle", "save the table as CSV or Parquet"),
    b"{": ("JSON", "save the table as CSV or Parquet"),
    b"[": ("JSON", "save the table as CSV or Parquet"),
    b"<": ("HTML or XML", "save the table as CSV or Parquet"),
    b"\xff\xfe": ("text in UTF-16", "save it as CSV in UTF-8"),
    b"\xfe\xff": ("text in UTF-16", "save it as CSV in UTF-8"),
}


def open_table(path: str | PathLike[str], decimal: str = ".") -> TableFile:
    """Find out the format and the columns of a table.

    A folder is the table of all Parquet files in it. A Parquet file is known by its ending
    (.parquet, .pq) or its first bytes, a gzipped one by its first bytes. Any other file is taken
    for CSV in UTF-8: its first line names the columns, which are separated by commas, semicolons,
    tabs or bars.

    Parameters
    ----------
    path : path
    decimal : {".", ","}
        What stands before the decimals of a number in CSV.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if path.is_dir():
        return parquet_folder(path)
    if not path.is_file():
        raise ValueError(f"{path} is not a file on disk; a table is read more than once")
    if path.suffix.lower() in PARQUET_SUFFIXES or starts_with(path, b"PAR1"):
        return parquet_table(path)
    _refuse_other_formats(path)
    return csv_table(path, decimal)


def _refuse_other_formats(path: Path) -> None:
    """Name a file for what it is, if it is something else than text."""
    for magic, (what, remedy) in OTHER_FORMATS.items():
        if not starts_with(path, magic):
            continue
        if magic == b"PK\x03\x04" and path.suffix.lower() in (".xlsx", ".xlsm"):
            what = "an Excel workbook"
        raise ValueError(f"{path} is {what}, not CSV or Parquet; {remedy}")


class Rows(NamedTuple):
    """Inputs (n, d), targets (n,) and the names of the inputs' columns."""

    X: Array
    y: Array
    names: tuple[str, ...]


def read_parquet(
    path: str | PathLike[str], target: str, columns: Sequence[str] | None = None
) -> Rows:
    """Read Parquet into arrays; beside these, memory holds one piece of a file.

    Parameters
    ----------
    path : path
        A file, or a folder of files.
    target : str
        The column of y.
    columns : sequence of str, optional
        The columns of X, in this order; by default all but the target.
    """
    table = parquet_folder(Path(path))
    if columns is None:
        columns = [name for name in table.names if name != target]
    pieces = _number_pieces(table, [*columns, target], BATCH_ROWS)
    n_rows = count_rows(table.path)
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
    """Read pieces (N, d) of Parquet, in its order; it may be larger than memory.

    Parameters
    ----------
    path : path
        A file, or a folder of files.
    columns : sequence of str, optional
        The columns of a piece; by default all.
    batch_rows : int
        The largest number of rows of a piece.
    """
    table = parquet_folder(Path(path))
    return _number_pieces(table, list(table.names if columns is None else columns), batch_rows)


def _number_pieces(table: TableFile, columns: Sequence[str], batch_rows: int) -> Iterator[Array]:
    """Pieces (N, d) of columns of numbers or bools; others are refused before reading."""
    from pyarrow import types

    if not columns:
        raise ValueError(f"{table.path}: name at least one column to read")
    for name in columns:
        table.check_column(name)
    for path in parquet_paths(table.path):
        with open_parquet(path) as file:
            kinds = {name: file.schema_arrow.field(name).type for name in columns}
        for name, kind in kinds.items():
            if not (is_numeric(kind) or types.is_boolean(kind)):
                raise ValueError(
                    f"{path}: column {name!r} is of type {kind}, not a number; leave it out of "
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
