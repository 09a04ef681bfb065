"""The default model on the ten tasks, beside the paper's columns and other libraries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from benchmarks.studies.answers import scores_of
from benchmarks.studies.cases import split_of
from benchmarks.studies.names import RAW_UNITS
from benchmarks.studies.peers import PEERS
from benchmarks.studies.processes import print_result
from benchmarks.studies.quality_tables import write_quality
from benchmarks.studies.study import CELL_SECONDS, InOwnProcesses, Result, Study


class QualityCell(NamedTuple):
    """One model on one split."""

    task: str
    model: str
    seed: int


def quality_study(seconds: float = CELL_SECONDS) -> Study[QualityCell]:
    """The study whose cells may take `seconds` each."""
    compute = InOwnProcesses[QualityCell](
        __name__, seconds, slow_note=f"not finished in {seconds} s"
    )
    return Study("quality", QualityCell, compute, write_quality)


def quality_cells(tasks: Iterable[str], models: Iterable[str], n_seeds: int) -> list[QualityCell]:
    """This library on all seeds, the others on the first."""
    models, tasks = list(models), list(tasks)
    return [
        QualityCell(task, model, seed)
        for seed in range(n_seeds)
        for model in models
        for task in tasks
        if seed == 0 or model == "manygp"
    ]


def run_quality_cell(cell: QualityCell, data_dir: str | None) -> Result:
    """Fit, predict and score; in units of y's std, but for the tasks of `RAW_UNITS`."""
    data = split_of(cell.task, cell.seed, data_dir)
    unit = data.y_scale if cell.task in RAW_UNITS else 1.0
    answer = PEERS[cell.model](data.X_train, data.y_train, data.X_test, cell.seed)
    return {**cell._asdict(), **scores_of(answer, data.y_test, unit)}


if __name__ == "__main__":
    print_result(QualityCell, run_quality_cell)
