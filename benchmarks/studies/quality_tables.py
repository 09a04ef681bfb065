"""The tables of the study `quality`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.studies.names import (
    PAPER_SCORES,
    PAPER_TASKS,
    QUALITY_MODELS,
    QUALITY_TASKS,
    RAW_UNITS,
)
from benchmarks.studies.published import published
from benchmarks.studies.study import Result, csv_text, is_scored, write_texts
from manygp.display.page import TextTable

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
    tables = [quality_table(results), peer_table(results), distribution_table(results)]
    markdown = "\n".join(table.markdown() for table in tables)
    return write_texts(folder, {"results.csv": csv_text(results), "tables.md": markdown})


def quality_table(results: list[Result]) -> TextTable:
    """RMSE / NLL / ENCE of this library's default beside the best of the paper's columns."""
    by_task = {task: _own_results(results, task) for task in QUALITY_TASKS}
    rows = [_quality_row(task, own) for task, own in by_task.items() if own]
    in_paper = [by_task[task] for task in PAPER_TASKS if by_task[task]]
    if in_paper:  # the average is that of the paper's tasks, which come first
        means = [np.mean([_mean(own, score) for own in in_paper]) for score in PAPER_SCORES]
        text = " / ".join(f"{mean:.3f}" for mean in means)
        rows.insert(len(in_paper), ["average", "", "", "", text, ""])
    n_seeds = max(len(own) for own in by_task.values())
    title = f"RMSE / NLL / ENCE of `ManyGPRegressor()`, mean of {n_seeds} splits"
    return TextTable(title, QUALITY_HEADER, rows)


def peer_table(results: list[Result]) -> TextTable:
    """All models on the first seed: RMSE / NLL / ENCE, and seconds of fit + predict."""
    title = "The first split: RMSE / NLL / ENCE (seconds to fit + predict)"
    return _first_split(title, results, _peer_text)


def distribution_table(results: list[Result]) -> TextTable:
    """All models on the first seed: log score / CRPS of their predictive distributions."""
    return _first_split("The first split: log score / CRPS", results, _distribution_text)


def _first_split(
    title: str, results: list[Result], text: Callable[[Result | None], str]
) -> TextTable:
    """A row for each task and a column for each model that took part."""
    models = [m for m in QUALITY_MODELS if any(result["model"] == m for result in results)]
    rows = []
    for task in QUALITY_TASKS:
        found = {r["model"]: r for r in results if (r["task"], r["seed"]) == (task, 0)}
        if found:
            rows.append([_head(task), *(text(found.get(model)) for model in models)])
    return TextTable(title, ["task", *(QUALITY_MODELS[model] for model in models)], rows)


def _head(task: str) -> str:
    """A task, and its unit if its targets are not standardised."""
    return f"{task} ({RAW_UNITS[task]})" if task in RAW_UNITS else task


def _own_results(results: list[Result], task: str) -> list[Result]:
    """This library's default on all splits of a task, where it finished."""
    key = (task, "manygp")
    return [r for r in results if (r["task"], r["model"]) == key and is_scored(r)]


def _quality_row(task: str, own: list[Result]) -> list[str]:
    """The paper's numbers of a task and the means of this library's results."""
    return [
        _head(task),
        *(_paper_texts(task) if task in PAPER_TASKS else ["-"] * 3),
        " / ".join(f"**{_mean(own, score):.3f}**" for score in PAPER_SCORES),
        f"{100 * _mean(own, 'interval_coverage'):.1f}%",
    ]


def _paper_texts(task: str) -> list[str]:
    """The paper's best RMSE, its best NLL, and all scores of its GP-pro-c."""
    columns = {score: _paper_column(task, score) for score in PAPER_SCORES}
    best = [min(columns[score].items(), key=lambda item: item[1]) for score in ("rmse", "nll")]
    return [
        *(f"{value:.3f} ({model})" for model, value in best),
        " / ".join(f"{columns[score]['bt-ent-c']:.3f}" for score in PAPER_SCORES),
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


def _distribution_text(result: Result | None) -> str:
    """Log score and CRPS, if they were scored."""
    if result is None or "log_score" not in result:
        return "-"
    return f"{result['log_score']:.3f} / {result['crps']:.4f}"
