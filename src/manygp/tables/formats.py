"""Registry of table formats: opens tables to read and to write in the format of their file.

A new format is a module with a `TableFormat` (see `csv_files`), and a line in `FORMATS`.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import IO

from manygp.runtime.files import replacing
from manygp.tables.base import TableFile, TableFormat, WriteRows, starts_with
from manygp.tables.csv_files import CSV
from manygp.tables.parquet_files import PARQUET

# The first format that knows the ending or the first bytes of a file is that of the file; the
# last one is that of all others.
FORMATS: list[TableFormat] = [PARQUET, CSV]

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


def _ending(path: Path) -> str:
    """The ending of a name in small letters, that before .gz if the file is gzipped."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def format_of(path: Path) -> TableFormat:
    """The format of a table on disk; a folder is one of Parquet files."""
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    if path.is_dir():
        return PARQUET
    if not path.is_file():
        raise ValueError(f"{path} is not a file on disk; a table is read more than once")
    for one in FORMATS[:-1]:
        if _ending(path) in one.endings or (one.magic and starts_with(path, one.magic)):
            return one
    return FORMATS[-1]


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
    table_format = format_of(path)
    if table_format is FORMATS[-1]:
        _refuse_other_formats(path)
    return table_format.open(path, decimal)


def _refuse_other_formats(path: Path) -> None:
    """Name a file for what it is, if it is something else than text."""
    for magic, (what, remedy) in OTHER_FORMATS.items():
        if starts_with(path, magic):
            is_excel = magic == b"PK\x03\x04" and path.suffix.lower() in (".xlsx", ".xlsm")
            what = "an Excel workbook" if is_excel else what
            raise ValueError(f"{path} is {what}, not CSV or Parquet; {remedy}")


def check_output(path: str | PathLike[str]) -> None:
    """Refuse a name with an ending that no format has; one without is CSV."""
    path = Path(path)
    ending = _ending(path)
    for one in FORMATS:
        if ending in one.endings:
            if not one.is_text and path.suffix.lower() == ".gz":
                raise ValueError(f"{path}: {one.name} is packed already; leave .gz out")
            return
    is_ending = ending[1:].isalnum() and not ending[1:].isdecimal()
    if is_ending:
        *first, last = chain.from_iterable(one.output_endings for one in reversed(FORMATS))
        raise ValueError(f"{path} must end with {', '.join(first)} or {last}, not {ending}")


@contextmanager
def open_writer(
    path: str | PathLike[str], names: Sequence[str], kept: Sequence[str] = ()
) -> Iterator[WriteRows]:
    """Open a table to write; gives a function that adds rows.

    The file appears when all of it is written.

    Parameters
    ----------
    path : path
        A name that ends with .parquet or .pq makes a Parquet file, any other CSV, gzipped if it
        ends with .gz; "-" is standard output, as CSV.
    names : sequence of str
        Names of the columns of numbers. The function takes arrays of shape (columns, N).
    kept : sequence of str
        Names of columns of any kind, which come first. The function takes a list of them too.
    """
    if str(path) == "-":
        with FORMATS[-1].writer(sys.stdout.buffer, names, kept) as write:
            yield write
        sys.stdout.buffer.flush()
        return
    path = Path(path)
    one = next((one for one in FORMATS if _ending(path) in one.endings), FORMATS[-1])
    with ExitStack() as stack:
        file: IO[bytes] = stack.enter_context(replacing(path))
        if one.is_text and path.suffix.lower() == ".gz":
            packed = gzip.GzipFile(path.name, "wb", fileobj=file, mtime=0)
            file = stack.enter_context(packed)  # type: ignore[arg-type]
        yield stack.enter_context(one.writer(file, names, kept))
