"""Writes columns of numbers to CSV or Parquet, piece by piece."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from os import PathLike
from pathlib import Path
from typing import IO

from manygp.arrays import Array
from manygp.runtime.files import replacing
from manygp.tables.parquet_files import PARQUET_SUFFIXES

Write = Callable[[Array], None]


@contextmanager
def open_writer(path: str | PathLike[str], names: Sequence[str]) -> Iterator[Write]:
    """Open a table to write; gives a function that adds rows.

    The file appears when all of it is written.

    Parameters
    ----------
    path : path
        A name that ends with .parquet or .pq makes a Parquet file, any other CSV, gzipped if it
        ends with .gz; "-" is standard output, as CSV.
    names : sequence of str
        Names of the columns. The function takes arrays of shape (columns, N).
    """
    with ExitStack() as stack:
        if str(path) == "-":
            yield _csv_writer(sys.stdout.buffer, names)
            sys.stdout.buffer.flush()
            return
        file = stack.enter_context(replacing(path))
        if Path(path).suffix.lower() in PARQUET_SUFFIXES:
            yield _parquet_writer(file, names, stack)
            return
        if Path(path).suffix.lower() == ".gz":
            packed = stack.enter_context(gzip.GzipFile(fileobj=file, mode="wb", mtime=0))
            yield _csv_writer(packed, names)
            return
        yield _csv_writer(file, names)


def _csv_writer(file: IO[bytes] | gzip.GzipFile, names: Sequence[str]) -> Write:
    file.write((",".join(names) + "\n").encode())

    def write(columns: Array) -> None:
        lines = (",".join(map(repr, row)) for row in columns.T.tolist())
        file.write("".join(f"{line}\n" for line in lines).encode())

    return write


def _parquet_writer(file: IO[bytes], names: Sequence[str], stack: ExitStack) -> Write:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError('Parquet needs an extra: pip install "manygp[parquet]"') from error
    schema = pyarrow.schema([(name, pyarrow.float64()) for name in names])
    writer = stack.enter_context(pyarrow.parquet.ParquetWriter(file, schema))

    def write(columns: Array) -> None:
        writer.write_table(pyarrow.table(list(columns), schema=schema))

    return write
