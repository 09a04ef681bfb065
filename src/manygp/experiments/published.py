"""The numbers that the paper printed."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files


@cache
def published() -> dict[tuple[str, str, str], float]:
    """Cells of the paper's tables by (task, model, metric).

    Metrics are rmse, nll, ence, train_seconds and test_seconds. Where several tables print
    a cell, the first counts.
    """
    text = files("manygp.experiments").joinpath("paper_results.csv").read_text()
    cells: dict[tuple[str, str, str], float] = {}
    for row in csv.DictReader(text.splitlines()):
        key = (row["dataset"], row["model"], row["metric"])
        cells.setdefault(key, float(row["value"]))
    return cells
