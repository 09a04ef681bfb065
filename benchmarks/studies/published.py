"""The numbers that the paper printed."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class PublishedCell(NamedTuple):
    """One number of one table."""

    table: str
    task: str
    model: str
    metric: str
    value: float


@cache
def published_cells() -> tuple[PublishedCell, ...]:
    """All cells in the order of the paper's tables."""
    text = files("benchmarks.studies").joinpath("paper_results.csv").read_text()
    return tuple(
        PublishedCell(r["table"], r["dataset"], r["model"], r["metric"], float(r["value"]))
        for r in csv.DictReader(text.splitlines())
    )


@cache
def published() -> dict[tuple[str, str, str], float]:
    """Numbers by (task, model, metric): rmse, nll, ence, train_seconds or test_seconds.

    Averages are left out, since each table averages over other tasks.
    """
    return {
        (cell.task, cell.model, cell.metric): cell.value
        for cell in reversed(published_cells())
        if cell.task != "average"
    }
