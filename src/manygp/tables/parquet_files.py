"""Format of tables: Parquet, also a folder of files (extra `parquet`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manygp.arrays import Array
from manygp.tables.base import (
    BATCH_ROWS,
    Batch,
    TableFile,
    TableFormat,
    WriteRows,
    bounded_rows,
    is_missing,
    refuse_repeated,
)
from manygp.tables.frames import numbers_of, words_of

ENDINGS = (".parquet", ".pq")


def _parquet_file(path: Path) -> TableFile:
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
    paths = sorted(
        one
        for one in path.rglob("*")
        if one.suffix.lower() in ENDINGS
        and one.is_file()
        and not any(part.startswith((".", "_")) for part in one.relative_to(path).parts)
    )
    if not paths:
        raise ValueError(f"{path} is a folder, not a table: there are no Parquet files in it")
    return paths


def parquet_table(path: Path, decimal: str = ".") -> TableFile:
    """A Parquet file, or all in a folder, which have the same columns, as one table."""
    tables = [_parquet_file(one) for one in parquet_paths(path)]
    names = tables[0].names
    for table in tables[1:]:
        if set(table.names) != set(names):
            other = sorted(set(table.names) ^ set(names))
            raise ValueError(
                f"{table.path} and {tables[0].path} differ in the columns {', '.join(other)}"
            )

    def pieces(
        columns: tuple[str, ...], kept: tuple[str, ...], batch_rows: int
    ) -> Iterator[Batch]:
        before = 0
        for table in tables:
            end = before
            for batch in table.pieces(columns, kept, batch_rows):
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


def _parquet_pieces(
    path: Path, columns: tuple[str, ...], kept: tuple[str, ...], batch_rows: int
) -> Iterator[Batch]:
    import pyarrow

    with open_parquet(path) as file:
        for name in columns:
            kind = file.schema_arrow.field(name).type
            if not is_readable(kind):
                raise ValueError(
                    f"{path}: column {name!r} is of type {kind}, not a number, text or a date; "
                    "leave it out"
                )
        kinds = {name: file.schema_arrow.field(name).type for name in columns}
        categorical = frozenset(
            n for n, kind in kinds.items() if pyarrow.types.is_dictionary(kind)
        )
        text = frozenset(name for name, kind in kinds.items() if _is_text(kind))
        start = 0
        names = list(dict.fromkeys([*columns, *kept]))
        batches = file.iter_batches(bounded_rows(batch_rows, len(names)), columns=names)
        try:
            for batch in batches:
                if batch.num_rows:
                    arrays = {name: from_arrow(batch.column(name)) for name in columns}
                    copies = tuple(batch.column(name) for name in kept)
                    yield Batch(start, arrays, None, categorical, kept=copies, text=text)
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
    missing: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    if types.is_integer(column.type) and missing.any():
        column = column.fill_null(0)  # else all of them would be floats
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    # Bools with missing values are objects; as text nobody takes them for numbers.
    if _is_text(column.type) or (types.is_boolean(column.type) and missing.any()):
        return words_of(values, missing)
    if is_numeric(column.type) or types.is_null(column.type):
        return numbers_of(values, missing)
    return values


class NumericTable(NamedTuple):
    """Inputs (n, d), targets (n,) and the names of the inputs' columns."""

    X: Array
    y: Array
    names: tuple[str, ...]


def read_parquet(
    path: str | PathLike[str], target: str, columns: Sequence[str] | None = None
) -> NumericTable:
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
    if columns is None:
        columns = [name for name in parquet_table(Path(path)).names if name != target]
    pieces = parquet_batches(path, [*columns, target])
    rows = np.empty((count_rows(Path(path)), len(columns)))
    y, start = np.empty(len(rows)), 0
    for piece in pieces:
        end = start + len(piece)
        rows[start:end], y[start:end] = piece[:, :-1], piece[:, -1]
        start = end
    return NumericTable(rows, y, tuple(columns))


def parquet_batches(
    path: str | PathLike[str], columns: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS
) -> Iterator[Array]:
    """Read pieces (N, d) of Parquet, in its order; it may be larger than memory.

    Parameters
    ----------
    path : path
        A file, or a folder of files.
    columns : sequence of str, optional
        The columns of a piece, of numbers or bools; by default all.
    batch_rows : int
        The largest number of rows of a piece.
    """
    table = parquet_table(Path(path))
    names = tuple(table.names if columns is None else columns)
    if not names:
        raise ValueError(f"{path}: name at least one column to read")
    for name in names:
        table.check_column(name)
    for one in parquet_paths(table.path):
        with open_parquet(one) as file:
            require_numbers(one, file.schema_arrow, names, "leave it out of `columns`")
    return (_stacked(batch) for batch in table.pieces(names, (), batch_rows))


def require_numbers(path: Path, schema: Any, columns: Sequence[str], remedy: str) -> None:
    """Refuse columns of a file that are not there, or hold neither numbers nor bools."""
    from pyarrow import types

    for name in columns:
        if name not in schema.names:
            raise ValueError(f"{path} has no column {name!r}, which other files have")
        kind = schema.field(name).type
        if not (is_numeric(kind) or types.is_boolean(kind)):
            raise ValueError(
                f"{path}: column {name!r} is of type {kind}, not a number; {remedy}, or encode it "
                "first"
            )


def _stacked(batch: Batch) -> Array:
    """The columns of a batch side by side (N, d); missing values are refused."""
    for name, values in batch.columns.items():
        missing = is_missing(values)
        if missing.any():
            place = batch.place(int(missing.argmax()))
            raise ValueError(f"column {name!r} has no value in {place}; drop or fill it")
    return np.column_stack([np.asarray(one, dtype=np.float64) for one in batch.columns.values()])


@contextmanager
def parquet_writer(
    file: IO[bytes], names: Sequence[str], kept_names: Sequence[str]
) -> Iterator[WriteRows]:
    """Write columns that are kept, with their own types, and numbers as float64."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError('Parquet needs an extra: pip install "manygp[parquet]"') from error
    opened: list[Any] = []
    with ExitStack() as stack:

        def begin(kept: Sequence[Any]) -> None:
            kinds = [getattr(values, "type", pyarrow.string()) for values in kept]
            fields = [
                *zip(kept_names, kinds, strict=True),
                *((n, pyarrow.float64()) for n in names),
            ]
            writer = pyarrow.parquet.ParquetWriter(file, pyarrow.schema(fields))
            opened.append(stack.enter_context(writer))

        def write(columns: Array, kept: Sequence[Any] = ()) -> None:
            if not opened:  # the first piece tells the types of the columns
                begin(kept)
            schema = opened[0].schema
            copies = [_as_type(one, schema.field(j)) for j, one in enumerate(kept)]
            opened[0].write_table(pyarrow.table([*copies, *columns], schema=schema))

        if not kept_names:
            begin(())
        yield write


def _as_type(column: Any, field: Any) -> Any:
    """A column that is kept as an array of the type that its first piece had."""
    import pyarrow

    if not hasattr(column, "type"):
        return pyarrow.array(column, field.type)
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pyarrow.ArrowException as error:
        raise ValueError(
            f"column {field.name!r} is of type {field.type} in one file and {column.type} in "
            f"another, and cannot be kept: {error}"
        ) from None


PARQUET = TableFormat("Parquet", ENDINGS, b"PAR1", False, parquet_table, parquet_writer)
