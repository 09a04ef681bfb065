"""The tables of `bench quality`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from manygp.display.page import TextTable
from manygp.experiments.names import PAPER_SCORES, PAPER_TASKS, QUALITY_MODELS
from manygp.experiments.published import published
from manygp.experiments.study import Result, csv_text, is_scored, write_texts

QUALITY_HEADER = [
    "task",
    "paper: best RMSE",
    "paper: best NLL",
    "paper: GP-pro-c",
    "manygp",
    "90% interval",
]


def write_quality(folder: Path, results: list[Result]) -> list[Path]:
    """Write results.csv and tables.md, and return their paths."""
    tables = [quality_table(results), peer_table(results)]
    markdown = "\n".join(table.markdown() for table in tables)
    return write_texts(folder, {"results.csv": csv_text(results), "tables.md": markdown})


def quality_table(results: list[Result]) -> TextTable:
    """RMSE / NLL / ENCE of this library's default beside the best of the paper's columns."""
    by_task = {task: _own_results(results, task) for task in PAPER_TASKS}
    rows = [_quality_row(task, own) for task, own in by_task.items() if own]
    if rows:
        means = [
            np.mean([_mean(own, score) for own in by_task.values() if own])
            for score in PAPER_SCORES
        ]
        rows.append(["average", "", "", "", " / ".join(f"{mean:.3f}" for mean in means), ""])
    n_seeds = max(len(own) for own in by_task.values())
    title = f"RMSE / NLL / ENCE of `ManyGPRegressor()`, mean of {n_seeds} splits"
    return TextTable(title, QUALITY_HEADER, rows)


def peer_table(results: list[Result]) -> TextTable:
    """All models on the first seed: RMSE / NLL / ENCE, and seconds of fit + predict."""
    models = [m for m in QUALITY_MODELS if any(result["model"] == m for result in results)]
    rows = []
    for task in PAPER_TASKS:
        found = {r["model"]: r for r in results if (r["task"], r["seed"]) == (task, 0)}
        if found:
            rows.append([task, *(_peer_text(found.get(model)) for model in models)])
    header = ["task", *(QUALITY_MODELS[model] for model in models)]
    return TextTable("The first split: RMSE / NLL / ENCE (seconds to fit + predict)", header, rows)


def _own_results(results: list[Result], task: str) -> list[Result]:
    """This library's default on all splits of a task, where it finished."""
    key = (task, "manygp")
    return [r for r in results if (r["task"], r["model"]) == key and is_scored(r)]


def _quality_row(task: str, own: list[Result]) -> list[str]:
    """The paper's numbers of a task and the means of this library's results."""
    columns = {score: _paper_column(task, score) for score in PAPER_SCORES}
    best = [min(columns[score].items(), key=lambda item: item[1]) for score in ("rmse", "nll")]
    return [
        task,
        *(f"{value:.3f} ({model})" for model, value in best),
        " / ".join(f"{columns[score]['bt-ent-c']:.3f}" for score in PAPER_SCORES),
        " / ".join(f"**{_mean(own, score):.3f}**" for score in PAPER_SCORES),
        f"{100 * _mean(own, 'interval_coverage'):.1f}%",
    ]


def _mean(results: list[Result], field: str) -> float:
    return float(np.mean([result[field] for result in results]))


def _paper_column(task: str, score: str) -> dict[str, float]:
    """The paper's numbers of a task by model."""
    cells = published().items()
    return {model: value for (t, model, s), value in cells if (t, s) == (task, score)}


def _peer_text(result: Result | None) -> str:
    """Scores and seconds, or why there are none."""
    if result is None:
        return "-"
    if not is_scored(result):
        return str(result["note"]).replace("|", "/")
    scores = " / ".join(f"{result[score]:.3f}" for score in PAPER_SCORES)
    return f"{scores} ({result['fit_seconds']:.3g} + {result['predict_seconds']:.3g})"
