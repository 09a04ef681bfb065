"""The paper's tables with our numbers beside the published ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from html import escape
from typing import Any, NamedTuple

import numpy as np

from benchmarks.studies.names import PAPER_SCORES
from benchmarks.studies.paper_plan import points_of
from benchmarks.studies.published import published, published_cells
from benchmarks.studies.study import Result, csv_text
from manygp.display.page import TextTable

# Our names of seconds, and the paper's.
PAPER_SECONDS = {"fit_seconds": "train_seconds", "predict_seconds": "test_seconds"}
# Models of one GP on all rows, which have no regime.
GLOBAL_MODELS = ("gp-full", "gp-pro-full")
# The paper's tables by their names in paper_results.csv.
TABLE_TITLES = {
    "tab_rmse_nll_ence_analyse": "GP-pro, GP-pro-full and GP-full",
    "tab_train_test_time_analyse": "Seconds of GP-pro, GP-pro-full and GP-full",
    "tab_rmse": "RMSE of all variants",
    "tab_nll": "NLL of all variants",
    "tab_ence": "ENCE of all variants",
    "tab_train_time": "Seconds of all variants",
    "tab_rmse_nll_ence_baseline": "GP-pro-c against the baselines",
    "tab_train_test_time_baseline": "Seconds of GP-pro-c and the baselines",
}
# Models of a table; a table with more of them is cut into several.
MOST_MODELS = 6
# Digits of the numbers in results.csv.
CSV_DIGITS = 6


class Summary(NamedTuple):
    """The mean over the seeds, its standard error (0 for one seed) and the number of seeds."""

    mean: float
    error: float
    n_seeds: int


Key = tuple[str, str, str, int, str]  # regime, task, model, points per expert, metric
TableScores = dict[tuple[str, str, str], Summary]  # by task, model and metric


def tidy(results: Iterable[Result]) -> list[dict[str, Any]]:
    """One row per model, seed and metric."""
    rows = []
    for cell in results:
        for model, scores in cell["models"].items():
            rows += [
                {
                    "task": cell["task"],
                    "model": model,
                    "regime": cell["regime"],
                    "points_per_expert": cell["points"],
                    "seed": cell["seed"],
                    "metric": metric,
                    "value": scores[metric],
                    "fit_seconds": cell["fit_seconds"],
                    "predict_seconds": scores["predict_seconds"],
                }
                for metric in PAPER_SCORES
            ]
    return sorted(rows, key=lambda row: [str(value) for value in list(row.values())[:6]])


def tidy_csv(rows: list[dict[str, Any]]) -> str:
    """The tidy rows as CSV, with six significant digits."""
    return csv_text(
        [
            {k: f"{v:.{CSV_DIGITS}g}" if isinstance(v, float) else v for k, v in row.items()}
            for row in rows
        ]
    )


def summarise(rows: list[dict[str, Any]]) -> dict[Key, Summary]:
    """Means over the seeds; seconds count as metrics too."""
    values: dict[Key, dict[int, float]] = defaultdict(dict)
    for row in rows:
        key = (row["regime"], row["task"], row["model"], row["points_per_expert"])
        values[(*key, row["metric"])][row["seed"]] = row["value"]
        for seconds in PAPER_SECONDS:
            values[(*key, seconds)][row["seed"]] = row[seconds]
    found = {}
    for full_key, by_seed in values.items():
        column = np.array(list(by_seed.values()))
        error = column.std(ddof=1) / np.sqrt(len(column)) if len(column) > 1 else 0.0
        found[full_key] = Summary(float(column.mean()), float(error), len(column))
    return found


def table_scores(summary: dict[Key, Summary], regime: str) -> TableScores:
    """What the paper's tables show of a regime; a global GP is the same in all regimes."""
    scores = {}
    for (its_regime, task, model, points, metric), value in summary.items():
        wanted = "independent" if model in GLOBAL_MODELS else regime
        if (its_regime, points) == (wanted, points_of(task)):
            scores[task, model, PAPER_SECONDS.get(metric, metric)] = value
    return scores


def paper_tables(scores: TableScores) -> list[TextTable]:
    """Every table of the paper: our mean and standard error, the paper's number in brackets."""
    tables = []
    for name, title in TABLE_TITLES.items():
        cells = [cell for cell in published_cells() if cell.table == name]
        for metric in dict.fromkeys(cell.metric for cell in cells):
            theirs = {(c.task, c.model): c.value for c in cells if c.metric == metric}
            suffix = "" if metric.upper() in title else f": {metric.replace('_', ' ')}"
            tables += _metric_tables(scores, metric, theirs, title + suffix)
    return tables


def _metric_tables(
    scores: TableScores, metric: str, theirs: dict[tuple[str, str], float], title: str
) -> list[TextTable]:
    """Tasks by models, a few models at a time; `theirs` has the paper's number of each."""
    tasks = list(dict.fromkeys(task for task, _ in theirs))
    models = list(dict.fromkeys(model for _, model in theirs))
    tables = []
    for start in range(0, len(models), MOST_MODELS):
        some = models[start : start + MOST_MODELS]
        rows = [
            [task, *(_cell_text(scores, (task, model, metric), theirs) for model in some)]
            for task in tasks
        ]
        tables.append(TextTable(title, ["", *some], rows))
    return tables


def _cell_text(
    scores: TableScores, key: tuple[str, str, str], theirs: dict[tuple[str, str], float]
) -> str:
    """Our number of a task, model and metric, and the paper's."""
    task, model, metric = key
    paper = f"({theirs[task, model]:.3f})" if (task, model) in theirs else ""
    if task == "average":
        tasks = [t for t, m in theirs if m == model and t != "average"]
        found = average(scores, tasks, model, metric)
        return f"**{found:.3f}** {paper}" if found is not None else paper
    ours = scores.get(key)
    if ours is None:
        return paper or "-"
    error = f" ±{ours.error:.3f}" if ours.n_seeds > 1 else ""
    return f"{ours.mean:.3f}{error} {paper}"


def cell_markup(cell: str) -> str:
    """A table cell as HTML: bold stays bold, and the paper's number in brackets is grey."""
    text = escape(cell)
    if text.startswith("**"):
        bold, _, rest = text[2:].partition("**")
        text = f"<b>{bold}</b>{rest}"
    return text.replace("(", '<span class="paper">(').replace(")", ")</span>")


def average(scores: TableScores, tasks: list[str], model: str, metric: str) -> float | None:
    """The mean over tasks, or None unless all of them are finished."""
    found = [scores[task, model, metric].mean for task in tasks if (task, model, metric) in scores]
    return float(np.mean(found)) if found and len(found) == len(tasks) else None


def calibration_table(scores: TableScores, tasks: list[str]) -> TextTable:
    """Averages over the tasks without and with calibration, and the relative change.

    A row has numbers once all of the tasks are finished.
    """
    variants = [f"{a}-{w}" for a in ("bt", "kx", "rd") for w in ("ent", "var", "uni")]
    header = [""]
    for metric in PAPER_SCORES:
        header += [f"{metric.upper()}, without → with", "change"]
    rows = []
    for model in variants:
        changes = [_change_texts(scores, tasks, model, metric) for metric in PAPER_SCORES]
        rows.append([model, *(text for pair in changes for text in pair)])
    return TextTable("What calibration changes, on average over the tasks", header, rows)


def _change_texts(
    scores: TableScores, tasks: list[str], model: str, metric: str
) -> tuple[str, str]:
    """A metric without and with calibration, and the change; the paper's in brackets."""
    before, after = (average(scores, tasks, m, metric) for m in (model, f"{model}-c"))
    if before is None or after is None:
        return "-", "-"
    paper_before, paper_after = (
        float(np.mean([published()[task, m, metric] for task in tasks]))
        for m in (model, f"{model}-c")
    )
    return (
        f"{before:.3f} → {after:.3f} ({paper_before:.3f} → {paper_after:.3f})",
        f"{_change(before, after)} ({_change(paper_before, paper_after)})",
    )


def _change(before: float, after: float) -> str:
    return f"{100 * (after - before) / abs(before):+.1f}%"
