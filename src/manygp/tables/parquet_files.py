"""Tables in Parquet (extra `parquet`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from manygp.tables.base import Batch, TableFile, bounded_rows, refuse_repeated
from manygp.tables.frames import numbers_of

PARQUET_SUFFIXES = (".parquet", ".pq")


def parquet_table(path: Path) -> TableFile:
    """The table of a Parquet file."""
    with open_parquet(path) as file:
        # pandas keeps the numbers of rows that were filtered or shuffled under such names.
        names = tuple(
            name
            for name in file.schema_arrow.names
            if not re.fullmatch(r"__index_level_\d+__", name)
        )
    if not names:
        raise ValueError(f"{path} has no columns")
    refuse_repeated("column", names, path)
    return TableFile(path, names, partial(_parquet_pieces, path))


def parquet_paths(path: Path) -> list[Path]:
    """A Parquet file, or those in a folder by their names; hidden ones are not read."""
    if not path.is_dir():
        return [path]
    found = sorted(
        one
        for one in path.rglob("*")
        if one.suffix.lower() in PARQUET_SUFFIXES
        and one.is_file()
        and not any(part.startswith((".", "_")) for part in one.relative_to(path).parts)
    )
    if not found:
        raise ValueError(f"{path} is a folder, not a table: there are no Parquet files in it")
    return found


def parquet_folder(path: Path) -> TableFile:
    """A Parquet file, or all in a folder, which have the same columns, as one table."""
    tables = [parquet_table(one) for one in parquet_paths(path)]
    names = tables[0].names
    for table in tables[1:]:
        if set(table.names) != set(names):
            other = sorted(set(table.names) ^ set(names))
            raise ValueError(
                f"{table.path} and {tables[0].path} differ in the columns {', '.join(other)}"
            )

    def pieces(columns: tuple[str, ...], batch_rows: int) -> Iterator[Batch]:
        before = 0
        for table in tables:
            end = before
            for batch in table.pieces(columns, batch_rows):
                yield batch._replace(start=before + batch.start)
                end = before + batch.start + batch.n_rows
            before = end

    return TableFile(path, names, pieces)


def count_rows(path: Path) -> int:
    """The number of rows of a Parquet file, or of all in a folder, as they say themselves."""
    total = 0
    for one in parquet_paths(path):
        with open_parquet(one) as file:
            total += file.metadata.num_rows
    return total


def open_parquet(path: Path) -> Any:
    """Open a file with pyarrow; the caller closes it."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError('Parquet needs an extra: pip install "manygp[parquet]"') from error
    try:
        return pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        if getattr(error, "errno", None):  # there is no such file, or no permission to read it
            raise
        raise ValueError(f"{path} is not a readable Parquet file: {error}") from error


def _parquet_pieces(path: Path, columns: tuple[str, ...], batch_rows: int) -> Iterator[Batch]:
    import pyarrow

    with open_parquet(path) as file:
        for name in columns:
            kind = file.schema_arrow.field(name).type
            if not is_readable(kind):
                raise ValueError(
                    f"{path}: column {name!r} is of type {kind}, not a number, text or a date; "
                    "leave it out"
                )
        categorical = frozenset(
            name
            for name in columns
            if pyarrow.types.is_dictionary(file.schema_arrow.field(name).type)
        )
        start = 0
        batches = file.iter_batches(bounded_rows(batch_rows, len(columns)), columns=list(columns))
        try:
            for batch in batches:
                if batch.num_rows:
                    arrays = {name: from_arrow(batch.column(name)) for name in columns}
                    yield Batch(start, arrays, None, categorical)
                    start += batch.num_rows
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise ValueError(
                f"{path} is not a readable Parquet file, after row {start}: {error}"
            ) from error


def is_numeric(kind: Any) -> bool:
    """Whether values of a pyarrow type are numbers."""
    from pyarrow import types

    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def is_readable(kind: Any) -> bool:
    """Whether values of a pyarrow type are numbers, text, bools or dates."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    other = (types.is_boolean, types.is_date, types.is_timestamp, types.is_null)
    return is_numeric(kind) or _is_text(kind) or any(is_kind(kind) for is_kind in other)


def from_arrow(column: Any) -> npt.NDArray[Any]:
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
        # Bools with missing values are objects; as text nobody takes them for numbers.
        return np.array([v if v is None else str(v) for v in values], dtype=object)
    if is_numeric(column.type) or types.is_null(column.type):
        return numbers_of(values)
    return values
