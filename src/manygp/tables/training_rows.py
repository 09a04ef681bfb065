"""Reads tables of training rows, of new rows, and of rows whose targets are known."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import NamedTuple

import numpy as np

from manygp.arrays import Array
from manygp.tables.base import BATCH_ROWS, Batch, TableFile, bounded_rows, refuse_repeated
from manygp.tables.encoding import Column, Encoding, Refusal, encode_numbers
from manygp.tables.reading import open_table
from manygp.tables.survey import Survey

# Training rows are read in small pieces, whose text stays in the cache of the processor.
TRAINING_PIECE_ROWS = 2**13


class TrainingTable(NamedTuple):
    """Inputs (n, d), targets (n,), how the inputs were encoded, and the target's name."""

    X: Array
    y: Array
    encoding: Encoding
    target: str


def read_training(
    path: str | PathLike[str],
    target: str,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    *,
    encode: bool = False,
) -> TrainingTable:
    """Read a table of training rows.

    It is read once if its columns hold numbers. Otherwise it is read again, after it is known
    what they hold.

    Parameters
    ----------
    path : path
    target : str
        The column of y; it holds numbers.
    columns : sequence of str, optional
        The columns of X, in this order; by default all but the target.
    drop : sequence of str
        Columns to leave out.
    encode : bool
        Whether to turn dates and categories into numbers, or to refuse them.
    """
    table = open_table(path)
    survey = Survey(_chosen(table, target, columns, drop), encode=encode)
    pieces: deque[tuple[Array, Array]] = deque()
    with naming(table):
        for batch in table.batches([*survey.columns, target], TRAINING_PIECE_ROWS):
            numbers = survey.add(batch)
            targets = _encode_target(target, batch)
            if numbers is None:
                pieces.clear()
            else:
                pieces.append((np.column_stack(numbers), targets))
        encoding, n_rows = survey.conclude()
    X, y = np.empty((n_rows, len(encoding.names))), np.empty(n_rows)
    again = _pieces_with_target(table, encoding, target, TRAINING_PIECE_ROWS)
    filled = 0
    for piece, targets in _emptied(pieces) if pieces else again:
        rows = slice(filled, filled + len(piece))
        filled = rows.stop
        if filled > n_rows:
            break
        X[rows], y[rows] = piece, targets
    if filled != n_rows:
        raise ValueError(f"{table.path} was changed while it was read; read it again")
    return TrainingTable(X, y, encoding, target)


def _chosen(
    table: TableFile, target: str, columns: Sequence[str] | None, drop: Sequence[str]
) -> list[str]:
    """Names of the columns of X."""
    for name in (target, *(columns or ()), *drop):
        table.check_column(name)
    if columns is not None and target in columns:
        raise ValueError(f"the target {target!r} is also one of the columns to learn it from")
    refuse_repeated("of the chosen columns", columns or ())
    names = table.names if columns is None else columns
    chosen = [name for name in names if name != target and name not in drop]
    if not chosen:
        raise ValueError(f"{table.path}: no column is left to learn {target!r} from")
    return chosen


def _emptied(pieces: deque[tuple[Array, Array]]) -> Iterator[tuple[Array, Array]]:
    """Yield the pieces, and forget each before the next."""
    while pieces:
        yield pieces.popleft()


def read_features(
    path: str | PathLike[str], encoding: Encoding, batch_rows: int = BATCH_ROWS
) -> Iterator[Array]:
    """Read pieces (N, d) of a table that has the training table's columns, and maybe others."""
    table = open_table(path)
    batch_rows = bounded_rows(batch_rows, len(encoding.names))
    batches = table.batches(encoding.column_names, batch_rows)
    return (_apply(encoding, batch, table) for batch in batches)


def read_evaluation(
    path: str | PathLike[str], encoding: Encoding, target: str, batch_rows: int = BATCH_ROWS
) -> Iterator[tuple[Array, Array]]:
    """Read pieces (N, d) and (N,) of a table with the training table's columns and the target."""
    return _pieces_with_target(open_table(path), encoding, target, batch_rows)


@contextmanager
def naming(table: TableFile) -> Iterator[None]:
    """Name the file in which a value is refused."""
    try:
        yield
    except Refusal as refusal:
        raise ValueError(f"{table.path}: {refusal}") from None


def _apply(encoding: Encoding, batch: Batch, table: TableFile) -> Array:
    with naming(table):
        return encoding.apply(batch)


def _apply_with_target(
    encoding: Encoding, target: str, batch: Batch, table: TableFile
) -> tuple[Array, Array]:
    with naming(table):
        return encoding.apply(batch), _encode_target(target, batch)


def _encode_target(target: str, batch: Batch) -> Array:
    try:
        return encode_numbers(Column(target, "number"), batch)[:, 0]
    except Refusal as refusal:
        raise Refusal(f"the target must be a number: {refusal}") from None


def _pieces_with_target(
    table: TableFile, encoding: Encoding, target: str, batch_rows: int
) -> Iterator[tuple[Array, Array]]:
    batch_rows = bounded_rows(batch_rows, len(encoding.names))
    batches = table.batches([*encoding.column_names, target], batch_rows)
    return (_apply_with_target(encoding, target, batch, table) for batch in batches)
