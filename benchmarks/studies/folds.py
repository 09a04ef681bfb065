"""This library and others on official folds, beside published numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from benchmarks import datasets
from benchmarks.studies.answers import scores_of
from benchmarks.studies.cases import FOLDED, require_cases
from benchmarks.studies.folds_tables import write_folds
from benchmarks.studies.peers import PEERS
from benchmarks.studies.processes import print_result
from benchmarks.studies.study import CELL_SECONDS, InOwnProcesses, Result, Study


class FoldCell(NamedTuple):
    """One model on one official fold."""

    task: str
    fold: int
    model: str


def fold_study(seconds: float = CELL_SECONDS) -> Study[FoldCell]:
    """The study whose cells may take `seconds` each."""
    compute = InOwnProcesses[FoldCell](__name__, seconds, slow_note=f"not finished in {seconds} s")
    return Study("folds", FoldCell, compute, write_folds, require=_require_folds)


def fold_cells(tasks: Iterable[str], models: Iterable[str], n_folds: int) -> list[FoldCell]:
    """Every model on the first folds of every task; all models have a fold before the next."""
    models, tasks = list(models), list(tasks)
    return [FoldCell(t, fold, m) for fold in range(n_folds) for t in tasks for m in models]


def run_fold_cell(cell: FoldCell, data_dir: str | None) -> Result:
    """Fit, predict and score; the fold is also the seed of the model."""
    data = datasets.official_fold(cell.task, cell.fold, data_dir)
    answer = PEERS[cell.model](data.X_train, data.y_train, data.X_test, cell.fold)
    return {**cell._asdict(), **scores_of(answer, data.y_test)}


def _require_folds(task: str, data_dir: str | None) -> None:
    require_cases(task + FOLDED, data_dir)


if __name__ == "__main__":
    print_result(FoldCell, run_fold_cell)
