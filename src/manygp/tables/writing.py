"""Writes columns of numbers, and columns that are kept as they are, to CSV or Parquet."""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from os import PathLike
from pathlib import Path
from typing import IO, Any, TypeAlias

from manygp.arrays import Array
from manygp.runtime.files import replacing
from manygp.tables.parquet_files import PARQUET_SUFFIXES

# Takes numbers (columns, N), and lists of N values of the columns that are kept.
Write: TypeAlias = Callable[..., None]


def check_output(path: str | PathLike[str]) -> None:
    """Refuse a name with an ending that no format of ours has; one without is CSV."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes[-2:]]
    if suffixes[-1:] == [".gz"]:
        suffixes = suffixes[:-1]
        if suffixes[-1:] and suffixes[-1] in PARQUET_SUFFIXES:
            raise ValueError(f"{path}: Parquet is packed already; leave .gz out")
    known = (".csv", *PARQUET_SUFFIXES)
    ending = suffixes[-1] if suffixes else ""
    is_ending = ending.removeprefix(".").isalnum() and not ending.removeprefix(".").isdecimal()
    if is_ending and ending not in known and Path(path).name != ending:
        raise ValueError(f"{path} must end with .csv, .csv.gz, .parquet or .pq, not {ending}")


@contextmanager
def open_writer(
    path: str | PathLike[str], names: Sequence[str], kept: Sequence[str] = ()
) -> Iterator[Write]:
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
        Names of columns of any kind, which come first. The function takes lists of their values
        too.
    """
    with ExitStack() as stack:
        if str(path) == "-":
            yield _csv_writer(sys.stdout.buffer, [*kept, *names])
            sys.stdout.buffer.flush()
            return
        file = stack.enter_context(replacing(path))
        if Path(path).suffix.lower() in PARQUET_SUFFIXES:
            yield _parquet_writer(file, names, kept, stack)
            return
        if Path(path).suffix.lower() == ".gz":
            packed = stack.enter_context(gzip.GzipFile(fileobj=file, mode="wb", mtime=0))
            yield _csv_writer(packed, [*kept, *names])
            return
        yield _csv_writer(file, [*kept, *names])


def _csv_writer(file: IO[bytes] | gzip.GzipFile, names: Sequence[str]) -> Write:
    def lines_of(rows: Any) -> bytes:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        return text.getvalue().encode()

    file.write(lines_of([names]))

    def write(columns: Array, kept: Sequence[Sequence[Any]] = ()) -> None:
        numbers = [map(repr, row) for row in columns.tolist()]
        if kept:
            file.write(lines_of(zip(*kept, *numbers, strict=True)))
        else:
            lines = (",".join(row) for row in zip(*numbers, strict=True))
            file.write("".join(f"{line}\n" for line in lines).encode())

    return write


def _parquet_writer(
    file: IO[bytes], names: Sequence[str], kept_names: Sequence[str], stack: ExitStack
) -> Write:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError('Parquet needs an extra: pip install "manygp[parquet]"') from error
    numbers = [(name, pyarrow.float64()) for name in names]
    opened: list[Any] = []

    def begin(kept: Sequence[Sequence[Any]]) -> None:
        kinds = [pyarrow.array(values).type for values in kept]
        known = [pyarrow.string() if pyarrow.types.is_null(kind) else kind for kind in kinds]
        schema = pyarrow.schema([*zip(kept_names, known, strict=True), *numbers])
        opened.append(stack.enter_context(pyarrow.parquet.ParquetWriter(file, schema)))

    def write(columns: Array, kept: Sequence[Sequence[Any]] = ()) -> None:
        if not opened:  # the first values tell what the columns hold
            begin(kept)
        opened[0].write_table(pyarrow.table([*kept, *columns], schema=opened[0].schema))

    if not kept_names:
        begin(())
    return write
