"""The tables of the study `messy`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.studies.names import MESSY_MODELS
from benchmarks.studies.study import Result, csv_text, write_texts
from manygp.display.page import TextTable


def write_messy(folder: Path, results: list[Result]) -> list[Path]:
    """Write all results and the tables of them."""
    markdown = "\n".join(table.markdown() for table in (score_table(results), promises(results)))
    return write_texts(folder, {"results.csv": csv_text(results), "tables.md": markdown})


def by_task(results: list[Result]) -> dict[str, dict[str, list[Result]]]:
    """Results of all splits by task and then by model, in their order."""
    tasks: dict[str, dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for model in MESSY_MODELS:
        for one in results:
            if one["model"] == model:
                tasks[one["task"]][model].append(one)
    return dict(sorted(tasks.items()))


def score_table(results: list[Result]) -> TextTable:
    """Scores of each model on each table, means of the splits."""
    rows = []
    for task, models in by_task(results).items():
        for model, own in models.items():
            numbers = [_mean(own, name) for name in ("interval_score", "crps", "rmse")]
            held = [_mean(own, name) for name in ("held", "held_lowest", "held_highest")]
            rows.append([
                task, f"{own[0]['rows']:,}", MESSY_MODELS[model],
                *(f"{one:.3f}" for one in numbers), *(f"{100 * one:.0f}%" for one in held),
                f"{_mean(own, 'cpu_seconds'):.1f}",
            ])  # fmt: skip
    heads = [
        "table", "rows", "model", "interval score", "CRPS", "RMSE", "held", "lowest fifth",
        "highest fifth", "CPU s",
    ]  # fmt: skip
    title = "Scores in units of the std of y, and shares of 90% intervals that held"
    return TextTable(title, heads, rows)


def promises(results: list[Result]) -> TextTable:
    """What this library promised and got, and the errors of a constant and of a line."""
    rows = []
    for task, models in by_task(results).items():
        if "manygp" not in models:
            continue
        own = models["manygp"]
        shift = [np.log(one["std_of_y"]) for one in own]
        promised = np.mean([one["promised_nll"] for one in own] - np.array(shift))
        got = _mean(own, "nll") - np.mean(shift)
        errors = [_mean(own, name) for name in ("rmse", "rmse_constant", "rmse_line")]
        rows.append([
            task, own[0]["package"], f"{promised:.2f}", f"{got:.2f}",
            *(f"{one:.3f}" for one in errors),
        ])  # fmt: skip
    heads = ["table", "package", "promised NLL", "NLL", "RMSE", "of a constant", "of a line"]
    return TextTable("manygp: promised and got, in units of the std of y", heads, rows)


def _mean(results: list[Result], name: str) -> float:
    return float(np.mean([one[name] for one in results]))
