"""The tables of the study `speed`."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.studies.names import SPEED_MODELS, SPEED_TASKS, SYNTHETIC_ROWS
from benchmarks.studies.speed_figures import Medians, draw_scaling, draw_trade
from benchmarks.studies.study import Result, csv_text, is_scored, write_texts
from manygp.display.page import TextTable

SPEED_HEADER = [
    "model", "fit", "over manygp's", "predict a row", "peak memory", "RMSE", "NLL", "repeats",
]  # fmt: skip
# Fields of a result whose median over the repeats is shown.
MEASURED = ("fit_seconds", "predict_seconds", "peak_megabytes", "rmse", "nll")


def write_speed(folder: Path, results: list[Result]) -> list[Path]:
    """Write results.csv, tables.md and the figures that have something to show."""
    found = medians(results)
    growth = [
        f"- {name}: fit time grows as n^{power:.2f}"
        for model, name in SPEED_MODELS.items()
        if (power := exponent(found, model)) is not None
    ]
    tables = [table.markdown() for table in speed_tables(found)]
    markdown = "\n".join([*tables, "\n".join(growth)]) + "\n"
    written = write_texts(folder, {"results.csv": csv_text(results), "tables.md": markdown})
    figures = {"scaling.png": draw_scaling, "trade.png": draw_trade}
    return written + [
        folder / name for name, draw in figures.items() if draw(found, folder / name)
    ]


def medians(results: list[Result]) -> Medians:
    """Medians over the repeats by task and model; a model that did not finish has only a note."""
    found: Medians = {}
    for task in SPEED_TASKS:
        for model in SPEED_MODELS:
            runs = [r for r in results if (r["task"], r["model"]) == (task, model)]
            finished = [r for r in runs if is_scored(r)]
            if finished:
                found[task, model] = {
                    **{name: median(r[name] for r in finished) for name in MEASURED},
                    "n_rows": finished[0]["n_rows"],
                    "n_queries": finished[0]["n_queries"],
                    "repeats": len(finished),
                }
            elif runs:
                found[task, model] = {"note": runs[0]["note"]}
    return found


def exponent(found: Medians, model: str) -> float | None:
    """The b of fit time ~ n^b over the synthetic tasks, if the model finished at least two."""
    points = [
        (np.log(one["n_rows"]), np.log(one["fit_seconds"]))
        for task in SYNTHETIC_ROWS
        if is_scored(one := found.get((task, model), {}))
    ]
    if len(points) < 2:
        return None
    sizes, seconds = np.array(points).T
    return float(np.polyfit(sizes, seconds, 1)[0])


def speed_tables(found: Medians) -> list[TextTable]:
    """One table per task."""
    tables = []
    for task in SPEED_TASKS:
        by_model = {model: found[task, model] for model in SPEED_MODELS if (task, model) in found}
        if by_model:
            own_seconds = by_model.get("manygp", {}).get("fit_seconds", np.nan)
            rows = [_speed_row(model, one, own_seconds) for model, one in by_model.items()]
            tables.append(TextTable(_title(task, by_model), SPEED_HEADER, rows))
    return tables


def _title(task: str, by_model: dict[str, dict[str, Any]]) -> str:
    """The task with its numbers of rows, if a model finished."""
    for one in by_model.values():
        if is_scored(one):
            return f"{task}: {one['n_rows']:,} rows, {one['n_queries']:,} queries"
    return task


def _speed_row(model: str, one: dict[str, Any], own_seconds: float) -> list[str]:
    """The medians of a model as text; `own_seconds` is this library's fit time."""
    name = SPEED_MODELS[model]
    if not is_scored(one):
        return [name, one["note"].replace("|", "/"), *[""] * (len(SPEED_HEADER) - 2)]
    return [
        name,
        f"{one['fit_seconds']:.3g} s",
        f"{one['fit_seconds'] / own_seconds:.2g}",
        f"{1e6 * one['predict_seconds'] / one['n_queries']:.3g} us",
        f"{one['peak_megabytes'] / 1000:.2g} GB",
        f"{one['rmse']:.3f}",
        f"{one['nll']:.3f}",
        str(one["repeats"]),
    ]
