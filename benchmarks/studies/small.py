"""Few rows: the default model beside others on 50 to 1,000 rows of each data set."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import cache
from time import process_time
from typing import NamedTuple

import numpy as np

from benchmarks import datasets
from benchmarks.datasets import Dataset, Split
from benchmarks.studies.answers import scores_of
from benchmarks.studies.names import SMALL_ROWS
from benchmarks.studies.peers import PEERS, answer_of, fitted
from benchmarks.studies.processes import CannotRunError
from benchmarks.studies.small_tables import write_small
from benchmarks.studies.study import Result, Store, Study, require_data

# Rows of a data set that are scored, at most; and those that are left for it, at least.
TEST_ROWS = 1000
FEWEST_TEST_ROWS = 100
# The data set that scikit-learn brings.
DIABETES = "diabetes"


class SmallCell(NamedTuple):
    """One model on some rows of a data set; `draw` says which."""

    task: str
    rows: int
    draw: int
    model: str


def small_study() -> Study[SmallCell]:
    """The study, whose cells are computed one after the other."""
    return Study("small", SmallCell, _compute, write_small, require=_require)


def small_cells(tasks: Iterable[str], models: Iterable[str], n_draws: int) -> list[SmallCell]:
    """Every model on every number of rows, draw by draw."""
    models, tasks = list(models), list(tasks)
    return [
        SmallCell(task, rows, draw, model)
        for draw in range(n_draws)
        for task in tasks
        for rows in SMALL_ROWS[task]
        for model in models
    ]


def split_of(task: str, rows: int, draw: int, data_dir: str | None) -> Split:
    """Some rows to learn from, in units of the std of their y, and others to be scored on."""
    data = _data_of(task, data_dir)
    order = np.random.default_rng([draw, rows]).permutation(len(data.y))
    if len(order) - rows < FEWEST_TEST_ROWS:
        raise ValueError(f"{task} has too few rows to learn from {rows:,} of them")
    train, test = order[:rows], order[rows : rows + TEST_ROWS]
    centre, unit = data.y[train].mean(), data.y[train].std()
    y = (data.y - centre) / unit
    return Split(data.X[train], y[train], data.X[test], y[test], float(unit))


def run_small_cell(cell: SmallCell, data_dir: str | None) -> Result:
    """Fit, predict and score, with seconds of the processor, all threads together."""
    data = split_of(cell.task, cell.rows, cell.draw, data_dir)
    begin, promised = process_time(), None
    if cell.model == "manygp":
        own, seconds = fitted(data.X_train, data.y_train, cell.draw)
        promised = own.loo_score()["nll"]
        answer = answer_of(own, seconds, data.X_test)
    else:
        answer = PEERS[cell.model](data.X_train, data.y_train, data.X_test, cell.draw)
    seconds = round(process_time() - begin, 3)
    scores = scores_of(answer, data.y_test)
    return {**cell._asdict(), **scores, "promised_nll": promised, "cpu_seconds": seconds}


def _compute(
    store: Store[SmallCell], cells: list[SmallCell], data_dir: str | None
) -> Iterator[tuple[SmallCell, Result | None]]:
    """One cell after the other; standard error says which models cannot run here."""
    missing: set[str] = set()
    for cell in cells:
        try:
            yield cell, None if cell.model in missing else run_small_cell(cell, data_dir)
        except CannotRunError as error:
            print(f"{cell.model} is left out: {error}", file=sys.stderr)
            missing.add(cell.model)
            yield cell, None


@cache
def _data_of(task: str, data_dir: str | None) -> Dataset:
    if task != DIABETES:
        return datasets.load(task, data_dir=data_dir)
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    return Dataset(DIABETES, X, y)


def _require(task: str, data_dir: str | None) -> None:
    if task != DIABETES:
        require_data(task, data_dir)
