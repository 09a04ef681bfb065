"""Parquet files, in pieces, to arrays (extra `parquet`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from manygp.types import Array

BATCH_ROWS = 2**16


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
    file = _open(path)
    if columns is None:
        columns = [name for name in file.schema_arrow.names if name != target]
    X, y = np.empty((file.metadata.num_rows, len(columns))), np.empty(file.metadata.num_rows)
    start = 0
    for piece in _pieces(file, [*columns, target], BATCH_ROWS):
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
    file = _open(path)
    return _pieces(file, list(columns or file.schema_arrow.names), batch_rows)


def _open(path: str | PathLike[str]) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError('Parquet needs an extra: pip install "manygp[parquet]"') from error
    try:
        return pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path} is not a readable Parquet file: {error}") from error


def _pieces(file: Any, columns: list[str], batch_rows: int) -> Iterator[Array]:
    import pyarrow

    schema = file.schema_arrow
    for name in columns:
        if name not in schema.names:
            raise ValueError(f"no column {name!r}; there are {', '.join(schema.names)}")
        kind = schema.field(name).type
        number = pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind)
        if not (number or pyarrow.types.is_boolean(kind) or pyarrow.types.is_decimal(kind)):
            raise ValueError(
                f"column {name!r} is of type {kind}, not a number; leave it out of `columns`, or "
                "encode it first"
            )
    return _arrays(file, columns, batch_rows)


def _arrays(file: Any, columns: list[str], batch_rows: int) -> Iterator[Array]:
    start = 0
    for batch in file.iter_batches(batch_rows, columns=columns):
        piece = np.empty((batch.num_rows, len(columns)))
        for j, name in enumerate(columns):
            column = batch.column(name)
            if column.null_count:
                row = start + int(np.argmax(np.asarray(column.is_null())))
                raise ValueError(f"column {name!r} has no value in row {row}; drop or fill it")
            piece[:, j] = column.to_numpy(zero_copy_only=False)
        start += batch.num_rows
        yield piece
