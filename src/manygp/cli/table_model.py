"""A model file, and how tables become the rows that its model knows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from manygp.arrays import Array
from manygp.model import FittedModel
from manygp.storage import read_model
from manygp.tables.encoding import Column, Encoding
from manygp.tables.training_rows import read_evaluation


class TableModel(NamedTuple):
    """A fitted model with the encoding of its columns.

    Attributes
    ----------
    model : FittedModel
    encoding : Encoding
    target : str or None
        Name of the target in the training table, if it came from one.
    path : Path
    """

    model: FittedModel
    encoding: Encoding
    target: str | None
    path: Path

    @classmethod
    def load(cls, path: Path) -> Self:
        """The model in a file, which must have one target and columns with names."""
        model = read_model(path)
        require_one_target(model)
        table = model.table or {}
        return cls(model, encoding_of(model, path), table.get("target"), path)

    def reach(self, coverage: float) -> float:
        """How many std an interval extends to either side."""
        return float(self.model.reach(coverage)[0])

    def answers(self, X: Array, reach: float, levels: tuple[float, ...] = ()) -> Array:
        """Mean, std, lower, upper and quantiles of rows X (N, d): (4 + q, N)."""
        mean, std = self.model.predict(X)
        ends = mean - reach * std, mean + reach * std
        quantiles = [self.model.distribution_of(mean, std).ppf(level) for level in levels]
        return np.array([mean, std, *ends, *quantiles])

    def tested(self, data: Path, target: str | None, reach: float) -> tuple[Array, Array]:
        """Targets (N,) of a table, and the answers (4, N)."""
        target = target or self.target
        if target is None:
            raise ValueError(f"{self.path} does not know the name of its target; pass --target")
        targets, answers = [], []
        with counting() as count:
            for X, y in read_evaluation(data, self.encoding, target):
                targets.append(y)
                answers.append(self.answers(X, reach))
                count(len(y))
        return np.concatenate(targets), np.concatenate(answers, axis=1)


def encoding_of(model: FittedModel, path: Path) -> Encoding:
    """How the columns of a table become those of a model."""
    if model.table is not None:
        encoding = Encoding.from_json(model.table["columns"])
        if encoding.names != model.names:
            raise ValueError(f"{path}: the columns of its table are not those of its rows")
        return encoding
    if model.names is None:
        raise ValueError(
            f"{path} was fitted on arrays without column names, by which tables are matched; fit "
            "it on a table, or use it from Python"
        )
    return Encoding(tuple(Column(name, "number") for name in model.names))


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
