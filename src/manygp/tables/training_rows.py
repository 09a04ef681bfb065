"""Reads tables of training rows, of new rows, and of rows whose targets are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manygp.arrays import Array
from manygp.runtime.words import counted
from manygp.tables.base import Batch, TableFile, is_missing, refuse_repeated
from manygp.tables.columns import Column, Refusal, encode_column
from manygp.tables.formats import open_table
from manygp.tables.survey import KIND_WORDS, Finding, Problem, Problems, Survey, problems_of
from manygp.tables.values import as_moments

# Training rows are read in small pieces, whose text stays in the cache of the processor.
TRAINING_PIECE_ROWS = 2**13


class ColumnRoles(NamedTuple):
    """The columns of a training table that matter.

    Attributes
    ----------
    target : str
        The column of y; it holds numbers.
    columns : sequence of str, optional
        The columns of X, in this order; by default all others.
    drop : sequence of str
        Columns to leave out.
    noise : str, optional
        The column of known noise variances; it holds numbers.
    categories, numbers : sequences of str
        Columns that hold categories, or numbers, whatever they look like.
    groups : str, optional
        The column of the groups that rows are left out by; it is not one of X.
    time : str, optional
        The column of the time of each row; it may be one of X, and is, unless it is left out.
    """

    target: str
    columns: Sequence[str] | None = None
    drop: Sequence[str] = ()
    noise: str | None = None
    categories: Sequence[str] = ()
    numbers: Sequence[str] = ()
    groups: str | None = None
    time: str | None = None

    @property
    def kinds(self) -> dict[str, str]:
        """What is known about what columns hold, for a `Survey`."""
        return {
            **dict.fromkeys(self.categories, "category"),
            **dict.fromkeys(self.numbers, "number"),
            **dict.fromkeys(self.apart, "target"),
            **({} if self.groups is None else {self.groups: "category"}),
        }

    @property
    def apart(self) -> list[str]:
        """Columns of numbers that are not learned from."""
        return [self.target] if self.noise is None else [self.target, self.noise]

    @property
    def splitting(self) -> list[str]:
        """Columns that say which rows are left out together."""
        return [one for one in (self.groups, self.time) if one is not None]

    def check(self, columns: Sequence[str]) -> None:
        """Refuse a column that has two roles; `columns` are those that X is to have."""
        if self.noise == self.target:
            raise ValueError(
                f"{self.target!r} cannot be both the target and the column of its noise"
            )
        for what, name in zip(("target", "noise"), self.apart, strict=False):
            if name in columns:
                raise ValueError(
                    f"the {what} {name!r} is also one of the columns to learn it from"
                )
        if set(self.splitting) & set(self.apart):
            raise ValueError("groups and time are other columns than the target and its noise")

    def beside(self, names: Sequence[str]) -> list[str]:
        """Columns that are read beside those of X, which have these names."""
        return [*self.apart, *(one for one in self.splitting if one not in names)]


class TrainingTable(NamedTuple):
    """Training rows in memory.

    Attributes
    ----------
    rows : Batch
        The columns of X: floats, dates or text.
    y : ndarray of shape (n,)
    target : str
    noise : ndarray of shape (n,) or None
        Known noise variances.
    n_dropped : int
        Rows that were left out, since their target is missing.
    numbers : ndarray of shape (n,)
        Places of the rows in the table; 1 is the first below the header.
    groups, time : ndarrays of shape (n,), or None
        What the columns of these roles hold.
    """

    rows: Batch
    y: Array
    target: str
    noise: Array | None
    n_dropped: int
    numbers: npt.NDArray[np.intp]
    groups: npt.NDArray[Any] | None = None
    time: npt.NDArray[Any] | None = None


def read_training(
    path: str | PathLike[str], roles: ColumnRoles, *, decimal: str = ".", missing: str = "fill"
) -> TrainingTable:
    """Read a table of training rows; rows without a target are left out.

    It is read once, but for columns that begin with numbers and go on with text, which are read
    again. All problems of all columns are refused at once.

    Parameters
    ----------
    path : path
    roles : ColumnRoles
    decimal : {".", ","}
        What stands before the decimals of a number in CSV.
    missing : {"fill", "error"}
        Whether missing values of X are left for the encoder to fill, or refused.
    """
    table = open_table(path, decimal)
    names = input_names(table, roles)
    every = [*names, *roles.beside(names)]
    survey, store = Survey(every, roles.kinds), _Store(every)
    with naming_file(table):
        for batch in table.batches(every, TRAINING_PIECE_ROWS):
            store.add(batch, survey.add(batch))
        findings = survey.findings()
        own = [one for one in findings if one.name != roles.groups]
        problems = problems_of(own, missing, roles.target)
        problems += _noise_problems(findings, roles.noise)
        if problems:
            raise Problems(problems)
    mixed = store.mixed(findings)
    if mixed:
        _read_again(table, store, mixed)
    with naming_file(table):
        return _assembled(store, findings, names, roles)


def survey_table(
    path: str | PathLike[str], roles: ColumnRoles, *, decimal: str = "."
) -> tuple[list[Finding], int]:
    """What the columns of X and the target hold, and the number of rows."""
    table = open_table(path, decimal)
    names = input_names(table, roles)
    survey, n_rows = Survey([*names, *roles.beside(names)], roles.kinds), 0
    for batch in table.batches(survey.columns, TRAINING_PIECE_ROWS):
        survey.add(batch)
        n_rows += batch.n_rows
    return survey.findings(), n_rows


def input_names(table: TableFile, roles: ColumnRoles) -> list[str]:
    """Names of the columns of X."""
    columns = roles.columns
    known = (*roles.categories, *roles.numbers)
    _require_one_target(table, roles.target)
    for name in (*roles.apart, *roles.splitting, *(columns or ()), *roles.drop, *known):
        table.check_column(name)
    refuse_repeated("of the columns of a known kind", known)
    roles.check(columns or ())
    refuse_repeated("of the chosen columns", columns or ())
    names = table.names if columns is None else columns
    left = {*roles.apart, *roles.drop, *(() if columns else (roles.groups,))}
    inputs = [name for name in names if name not in left]
    if not inputs:
        raise ValueError(f"{table.path}: no column is left to learn {roles.target!r} from")
    return inputs


def _require_one_target(table: TableFile, target: str) -> None:
    """Say what to do with the targets that a pattern, or a list, names."""
    parts = target.split(",")
    n = sum(any(fnmatchcase(name, part) for part in parts) for name in table.names)
    if n and target not in table.names:
        raise ValueError(
            f"{table.path}: {target!r} names {counted(n, 'column')}, and the command line fits "
            "one target: fit each alone, or curves from Python, ManyGPEmulator().fit(X, Y)"
        )


class _Store:
    """The columns of a table as they are read: numbers as floats, equal text once in memory."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.pieces: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in columns}
        self._once: dict[str, dict[Any, Any]] = {name: {} for name in columns}

    def add(self, batch: Batch, numbers: dict[str, Array]) -> None:
        """Keep a batch, of which some columns are numbers."""
        for name, pieces in self.pieces.items():
            values = numbers.get(name, batch.columns[name])
            if values.dtype.kind == "O":
                once = self._once[name]
                values = np.array([once.setdefault(v, v) for v in values], dtype=object)
            pieces.append(values)

    def mixed(self, findings: Sequence[Finding]) -> list[str]:
        """Columns of categories of which some were taken for numbers."""
        return [
            one.name
            for one in findings
            if one.kind == "category" and len({v.dtype.kind for v in self.pieces[one.name]}) > 1
        ]

    def column(self, name: str, kind: str) -> npt.NDArray[Any]:
        """All values of a column of this kind; its pieces are forgotten."""
        pieces = self.pieces.pop(name)
        if kind == "date":
            pieces = [_moments(piece) for piece in pieces]
        column: npt.NDArray[Any] = np.concatenate(pieces)
        return column


def _moments(piece: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A piece of a column of dates as moments; numbers are there only if all are missing."""
    if piece.dtype.kind == "M":
        return piece
    if piece.dtype.kind == "f":
        return np.full(len(piece), np.datetime64("NaT"), dtype="datetime64[us]")
    return as_moments(piece)


def _read_again(table: TableFile, store: _Store, names: list[str]) -> None:
    """Read columns as the text that they are."""
    sizes = {name: sum(map(len, store.pieces[name])) for name in names}
    for name in names:
        store.pieces[name] = []
    for batch in table.batches(names, TRAINING_PIECE_ROWS):
        for name in names:
            store.pieces[name].append(batch.columns[name])
    if any(sum(map(len, store.pieces[name])) != size for name, size in sizes.items()):
        raise ValueError(f"{table.path} was changed while it was read; read it again")


def _assembled(
    store: _Store, findings: Sequence[Finding], names: Sequence[str], roles: ColumnRoles
) -> TrainingTable:
    kinds = {one.name: one.kind for one in findings}
    every = [*names, *roles.beside(names)]
    columns = {name: store.column(name, kinds[name]) for name in every}
    y = columns.pop(roles.target)
    known = ~np.isnan(y)
    numbers = np.flatnonzero(known) + 1
    if len(numbers) < len(y):
        columns = {name: values[known] for name, values in columns.items()}
    noise, groups, time = (
        _complete(one, columns, numbers, is_noise=one == roles.noise)
        for one in (roles.noise, roles.groups, roles.time)
    )
    columns = {name: columns[name] for name in names}
    categories = frozenset(name for name in names if kinds[name] == "category")
    rows = Batch(0, columns, None, categories)
    n_dropped = len(y) - len(numbers)
    return TrainingTable(rows, y[known], roles.target, noise, n_dropped, numbers, groups, time)


def _complete(
    name: str | None,
    columns: dict[str, npt.NDArray[Any]],
    numbers: npt.NDArray[np.intp],
    *,
    is_noise: bool,
) -> npt.NDArray[Any] | None:
    """A column beside those of X, if there is one: it says something of all rows."""
    if name is None:
        return None
    values = columns[name]
    for wrong, what in (
        (is_missing(values), "no value"),
        (values < 0 if is_noise else np.array([False]), "a negative noise variance"),
    ):
        if wrong.any():
            raise Refusal(
                f"column {name!r}: {wrong.sum():,} of {len(values):,} rows with a target have "
                f"{what}, first row {numbers[np.argmax(wrong)]}; correct them, or leave them out"
            )
    return values


def _noise_problems(findings: Sequence[Finding], noise: str | None) -> list[Problem]:
    """Problems of the column of noise variances, which are numbers."""
    problems = []
    for one in findings:
        if one.name != noise or one.problem is not None:
            continue
        if one.kind != "number":
            what = f"noise variances are numbers, and this holds {KIND_WORDS[one.kind]}"
            problems.append(Problem(one.name, what, "name another --noise-column", "pass numbers"))
    return problems


def targets_of(batch: Batch, target: str) -> Array:
    """The targets of a batch (N,), NaN where they are missing."""
    try:
        return encode_column(Column(target, "number"), batch)[0][:, 0]
    except Refusal as refusal:
        raise Refusal(f"the target must be a number: {refusal}") from None


@contextmanager
def naming_file(table: TableFile) -> Iterator[None]:
    """Name the file in which a value is refused."""
    try:
        yield
    except Refusal as refusal:
        raise ValueError(f"{table.path}: {refusal}") from None
