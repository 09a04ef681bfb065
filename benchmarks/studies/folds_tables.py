"""The tables of the study `folds`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.studies.names import FOLD_MODELS, FOLD_TASKS
from benchmarks.studies.study import Result, csv_text, is_scored, write_texts
from manygp.display.page import TextTable

# RMSE and NLL of exact Gaussian processes that were trained on a GPU, as the literature on large
# exact GPs prints them for these data sets with standardised targets. They are quoted from this
# project's issue on official folds, and were not run here.
PUBLISHED = {"kin40k": (0.065, -1.319), "protein": (0.538, 0.575), "pol": (0.127, -0.961)}
# The same with 64% of the rows for training, from the same place.
PUBLISHED_64 = {"pol": (0.076, -1.22)}

SCORES = {"rmse": "RMSE", "nll": "NLL"}
OTHER_SCORES = {"log_score": "log score", "crps": "CRPS", "ence": "ENCE"}


def write_folds(folder: Path, results: list[Result]) -> list[Path]:
    """Write results.csv and tables.md, and return their paths."""
    tables = [published_table(results), distribution_table(results), time_table(results)]
    markdown = "\n".join(table.markdown() for table in tables)
    return write_texts(folder, {"results.csv": csv_text(results), "tables.md": markdown})


def published_table(results: list[Result]) -> TextTable:
    """RMSE / NLL of all models beside the published ones."""
    n_folds = len({result["fold"] for result in results})
    title = f"RMSE / NLL, mean of {n_folds} official 90/10 folds"
    table = _by_model(title, results, lambda own: _means(own, list(SCORES)))
    rows = [[row[0], _published_text(row[0]), *row[1:]] for row in table.rows]
    header = [table.header[0], "published: exact GP on a GPU", *table.header[1:]]
    return TextTable(title, header, rows)


def distribution_table(results: list[Result]) -> TextTable:
    """Log score / CRPS / ENCE, and how often the 90% interval held."""

    def text(own: list[Result]) -> str:
        inside = [result["interval_coverage"] for result in own]
        if None in inside:  # no interval of its own: that of the normal distribution
            inside = [result["coverage"] for result in own]
        return f"{_means(own, list(OTHER_SCORES))} ({100 * np.mean(inside):.1f}%)"

    return _by_model("Log score / CRPS / ENCE (coverage of 90% intervals)", results, text)


def time_table(results: list[Result]) -> TextTable:
    """Seconds to fit and to predict a fold."""

    def text(own: list[Result]) -> str:
        fit, predict = (np.mean([r[f"{s}_seconds"] for r in own]) for s in ("fit", "predict"))
        return f"{fit:.3g} + {predict:.3g}"

    return _by_model("Seconds to fit + predict, mean of the folds", results, text)


def _by_model(title: str, results: list[Result], text: Callable[[list[Result]], str]) -> TextTable:
    """A row for each task and a column for each model that took part."""
    models = [m for m in FOLD_MODELS if any(result["model"] == m for result in results)]
    rows = [
        [task, *(_cell_text(results, task, model, text) for model in models)]
        for task in FOLD_TASKS
        if any(result["task"] == task for result in results)
    ]
    return TextTable(title, ["task", *(FOLD_MODELS[model] for model in models)], rows)


def _cell_text(
    results: list[Result], task: str, model: str, text: Callable[[list[Result]], str]
) -> str:
    """The text of the folds that a model finished, or why there are none."""
    own = [r for r in results if (r["task"], r["model"]) == (task, model)]
    scored = [result for result in own if is_scored(result)]
    if not scored:
        return str(own[0]["note"]).replace("|", "/") if own else "-"
    missing = len(own) - len(scored)
    return text(scored) + (f", {missing} not finished" if missing else "")


def _means(results: list[Result], fields: Sequence[str]) -> str:
    return " / ".join(f"{np.mean([result[field] for result in results]):.3f}" for field in fields)


def _published_text(task: str) -> str:
    text = " / ".join(f"{value:.3f}" for value in PUBLISHED[task])
    if task in PUBLISHED_64:
        text += f" (64%: {' / '.join(f'{value:.3f}' for value in PUBLISHED_64[task])})"
    return text
