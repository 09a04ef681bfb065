"""The default model on the ten tasks, beside the paper's columns and other libraries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from manygp import datasets
from manygp.experiments.peers import PEERS
from manygp.experiments.processes import print_result
from manygp.experiments.quality_tables import write_quality
from manygp.experiments.study import CELL_SECONDS, InOwnProcesses, Result, Study
from manygp.metrics import coverage, ence, nll, rmse


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
    """Fit, predict and score."""
    data = datasets.split(datasets.load(cell.task, cell.seed, data_dir=data_dir), cell.seed)
    answer = PEERS[cell.model](data.X_train, data.y_train, data.X_test, cell.seed)
    y = data.y_test[: len(answer.mean)]
    covered = None
    if answer.interval is not None:
        lower, upper = answer.interval
        covered = float(np.mean((lower <= y) & (y <= upper)))
    return {
        **cell._asdict(),
        "rmse": rmse(y, answer.mean),
        "nll": nll(y, answer.mean, answer.std),
        "ence": ence(y, answer.mean, answer.std),
        "coverage": coverage(y, answer.mean, answer.std),
        "interval_coverage": covered,
        "fit_seconds": round(answer.fit_seconds, 3),
        "predict_seconds": round(answer.predict_seconds, 3),
        "n_scored": len(y),
        "note": answer.note,
    }


if __name__ == "__main__":
    print_result(QualityCell, run_quality_cell)
