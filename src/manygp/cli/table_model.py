"""A model file, and how tables become the rows that its model knows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from manygp import answers
from manygp.arrays import Array, IndexArray
from manygp.display.report import Tested
from manygp.model import FittedModel
from manygp.storage import read_model
from manygp.tables.encoder import Encoded, TableEncoder
from manygp.tables.formats import open_table
from manygp.tables.training_rows import naming_file, targets_of


class ScoredRows(NamedTuple):
    """Rows whose targets are known.

    Attributes
    ----------
    y : ndarray of shape (N,)
    answers : ndarray of shape (4, N)
        Mean, std, lower and upper.
    transformed : ndarray of shape (2, N)
        Mean and std of the transformed target, which distributions are made of.
    n_without : int
        Rows that have no target, and are not here.
    numbers : ndarray of shape (N,)
        Places of the rows in the table; 1 is the first below the header.
    X : ndarray of shape (N, d) or None
        Encoded rows, if they were asked for.
    codes : ndarray of shape (N, w) or None
        Their categories in columns that became means, as `TableEncoder.codes` tells them.
    """

    y: Array
    answers: Array
    transformed: Array
    n_without: int
    numbers: IndexArray
    X: Array | None
    codes: IndexArray | None

    def for_report(self, coverage: float, name: str) -> Tested:
        """The same for a report, by the share that intervals should hold and the data's name."""
        mean, std, lower, upper = self.answers
        rows = (self.X, self.numbers, self.codes)
        return Tested(self.y, mean, std, lower, upper, coverage, name, *rows, *self.transformed)


class TableModel(NamedTuple):
    """A fitted model with the encoder of its columns.

    Attributes
    ----------
    model : FittedModel
    encoder : TableEncoder
    target : str or None
        Name of the target in the training table, if it came from one.
    path : Path
    """

    model: FittedModel
    encoder: TableEncoder
    target: str | None
    path: Path

    @classmethod
    def load(cls, path: Path, *, missing: str = "fill", unknown: str = "fill") -> Self:
        """The model in a file, which must have one target and columns with names.

        What the model refuses is refused whatever the options say.
        """
        model = read_model(path)
        require_one_target(model)
        encoder = encoder_of(model, path)
        given = {"missing": missing, "unknown": unknown}
        encoder.set_params(**{name: value for name, value in given.items() if value == "error"})
        return cls(model, encoder, model.target, path)

    def answers(
        self, rows: Encoded, coverage: float | None, levels: tuple[float, ...] = ()
    ) -> Array:
        """Mean, std, lower and upper, and quantiles of rows: (4 + q, N).

        Without a coverage there is neither lower nor upper.
        """
        return self._answers(*self._transformed(rows), coverage, levels)

    def _transformed(self, rows: Encoded) -> tuple[Array, Array]:
        """Mean and std of the transformed target: (N,) each."""
        return self.encoder.predicted(
            lambda X, alpha: answers.predict_transformed(self.model, X, alpha=alpha), rows, 0.0
        )

    def _answers(
        self, mean: Array, std: Array, coverage: float | None, levels: tuple[float, ...] = ()
    ) -> Array:
        """The answers for rows with this mean and std of the transformed target."""
        ends = () if coverage is None else answers.interval_of(self.model, mean, std, coverage)
        quantiles = (self._quantile(mean, std, one) for one in levels)
        return np.array([*answers.in_units_of_y(self.model, mean, std), *ends, *quantiles])

    def _quantile(self, mean: Array, std: Array, level: float) -> Array:
        """An end of the interval that leaves as much outside: 0.05 and 0.95 are those of 90%."""
        if level == 0.5:
            return answers.median_of(self.model, mean)
        lower, upper = answers.interval_of(self.model, mean, std, abs(2 * level - 1))
        return lower if level < 0.5 else upper

    def named_target(self, target: str | None) -> str:
        """The column of the true values."""
        target = target or self.target
        if target is None:
            raise ValueError(f"{self.path} does not know the name of its target; pass --target")
        return target

    def tested(
        self,
        data: Path,
        target: str | None,
        coverage: float | None,
        *,
        decimal: str = ".",
        with_rows: bool = False,
    ) -> ScoredRows:
        """Targets and answers of the rows of a table that have a target."""
        if coverage is not None:
            answers.require_coverage(self.model, coverage)
        target = self.named_target(target)
        columns = dict.fromkeys([*self.encoder.column_names, target])
        table = open_table(data, decimal)
        transformed, kept, every = [], [], []
        with counting() as count, naming_file(table):
            for batch in table.batches(list(columns)):
                y, rows = targets_of(batch, target), self.encoder.encode(batch)
                known = ~np.isnan(y)
                every.append(y)
                if known.any():
                    transformed.append(np.array(self._transformed(rows.some(known))))
                if with_rows:
                    kept.append((rows.X[known], self.encoder.codes(batch)[known]))
                count(len(y))
        if not transformed:
            raise ValueError(f"{table.path}: no row has a value of {target!r}")
        targets = np.concatenate(every)
        known = ~np.isnan(targets)
        X, codes = map(np.concatenate, zip(*kept, strict=True)) if with_rows else (None, None)
        mean, std = np.concatenate(transformed, axis=1)
        return ScoredRows(
            targets[known],
            self._answers(mean, std, coverage),
            np.array([mean, std]),
            int((~known).sum()),
            np.flatnonzero(known) + 1,
            X,
            codes,
        )


def encoder_of(model: FittedModel, path: Path) -> TableEncoder:
    """How the columns of a table become those of a model."""
    if model.encoder is not None:
        encoder: TableEncoder = model.encoder
        return encoder
    if model.names is None:
        raise ValueError(
            f"{path} was fitted on arrays without column names, by which tables are matched; fit "
            "it on a table, or use it from Python"
        )
    return TableEncoder.from_columns([{"name": name, "kind": "number"} for name in model.names])


def require_one_target(model: FittedModel) -> None:
    """Refuse a model of several targets."""
    if model.n_targets > 1:
        raise ValueError("a model of several targets can be asked from Python only")


@contextmanager
def counting(*, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """A function that adds to the number of predicted rows, which a terminal shows."""
    if not shown or not sys.stderr.isatty():
        yield lambda n_rows: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("Predicting: {task.completed:,} rows in"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda n_rows: bar.advance(task, n_rows)
