"""The paper's tables with our numbers beside the published ones."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable
from html import escape
from typing import Any, NamedTuple

import numpy as np

from manygp.display.page import Table
from manygp.experiments.grid import POINTS, POINTS_OF_TASK
from manygp.experiments.names import SCORES
from manygp.experiments.published import published, published_cells

# The paper's names of what we measure in seconds.
SECONDS = {"train_seconds": "fit_seconds", "test_seconds": "predict_seconds"}
TITLES = {
    "tab_rmse_nll_ence_analyse": "GP-pro, GP-pro-full and GP-full",
    "tab_train_test_time_analyse": "Seconds of GP-pro, GP-pro-full and GP-full",
    "tab_rmse": "RMSE of all variants",
    "tab_nll": "NLL of all variants",
    "tab_ence": "ENCE of all variants",
    "tab_train_time": "Seconds of all variants",
    "tab_rmse_nll_ence_baseline": "GP-pro-c against the baselines",
    "tab_train_test_time_baseline": "Seconds of GP-pro-c and the baselines",
}
# A table that is wider than this is cut into several.
MOST_COLUMNS = 6


class Summary(NamedTuple):
    """Mean over the seeds, its standard error (0 for one seed) and their number."""

    mean: float
    error: float
    n_seeds: int


Key = tuple[str, str, str, int, str]  # regime, task, model, points per expert, metric


def tidy(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
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
                for metric in SCORES
            ]
    return sorted(rows, key=lambda row: [str(value) for value in list(row.values())[:6]])


def as_csv(rows: list[dict[str, Any]]) -> str:
    """The tidy rows, with six significant digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        short = {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()}
        writer.writerow(short)
    return text.getvalue()


def summarise(rows: list[dict[str, Any]]) -> dict[Key, Summary]:
    """Means over the seeds; seconds appear as metrics of their own."""
    values: dict[Key, dict[int, float]] = defaultdict(dict)
    for row in rows:
        key = (row["regime"], row["task"], row["model"], row["points_per_expert"])
        values[(*key, row["metric"])][row["seed"]] = row["value"]
        for seconds in SECONDS.values():
            values[(*key, seconds)][row["seed"]] = row[seconds]
    found = {}
    for full_key, by_seed in values.items():
        column = np.array(list(by_seed.values()))
        error = column.std(ddof=1) / np.sqrt(len(column)) if len(column) > 1 else 0.0
        found[full_key] = Summary(float(column.mean()), float(error), len(column))
    return found


def lookup(
    summary: dict[Key, Summary], regime: str, task: str, model: str, metric: str
) -> Summary | None:
    """The cell at the paper's points per expert; a global GP has no regime."""
    regime = "independent" if model in ("gp-full", "gp-pro-full") else regime
    points = POINTS_OF_TASK.get(task, POINTS)
    return summary.get((regime, task, model, points, SECONDS.get(metric, metric)))


def paper_tables(summary: dict[Key, Summary], regime: str) -> list[Table]:
    """Every table of the paper: our mean and standard error, the paper's cell in brackets."""
    tables = []
    for name, title in TITLES.items():
        cells = [cell for cell in published_cells() if cell.table == name]
        for metric in dict.fromkeys(cell.metric for cell in cells):
            theirs = {(c.task, c.model): c.value for c in cells if c.metric == metric}
            tasks = list(dict.fromkeys(task for task, _ in theirs))
            models = list(dict.fromkeys(model for _, model in theirs))
            of = "" if metric.upper() in title else f": {metric.replace('_', ' ')}"
            for start in range(0, len(models), MOST_COLUMNS):
                some = models[start : start + MOST_COLUMNS]
                rows = [
                    [task, *(_cell(summary, regime, task, m, metric, theirs) for m in some)]
                    for task in tasks
                ]
                tables.append(Table(f"{title}{of}", ["", *some], rows))
    return tables


def _cell(
    summary: dict[Key, Summary],
    regime: str,
    task: str,
    model: str,
    metric: str,
    theirs: dict[tuple[str, str], float],
) -> str:
    paper = f"({theirs[task, model]:.3f})" if (task, model) in theirs else ""
    if task == "average":
        tasks = [t for t, m in theirs if m == model and t != "average"]
        found = average(summary, regime, tasks, model, metric)
        return f"**{found:.3f}** {paper}" if found is not None else paper
    ours = lookup(summary, regime, task, model, metric)
    if ours is None:
        return paper or "-"
    error = f" ±{ours.error:.3f}" if ours.n_seeds > 1 else ""
    return f"{ours.mean:.3f}{error} {paper}"


def markup(cell: str) -> str:
    """A cell as HTML: bold stays bold; what stands in brackets, the paper's, is set back."""
    text = escape(cell)
    if text.startswith("**"):
        bold, _, rest = text[2:].partition("**")
        text = f"<b>{bold}</b>{rest}"
    return text.replace("(", '<span class="paper">(').replace(")", ")</span>")


def average(
    summary: dict[Key, Summary], regime: str, tasks: list[str], model: str, metric: str
) -> float | None:
    """Mean over tasks, or None where one of them is not finished."""
    cells = [lookup(summary, regime, task, model, metric) for task in tasks]
    found = [cell.mean for cell in cells if cell is not None]
    return float(np.mean(found)) if found and len(found) == len(cells) else None


def calibration_table(summary: dict[Key, Summary], regime: str, tasks: list[str]) -> Table:
    """Averages over the tasks without and with calibration, and the relative change.

    A row waits for all of the tasks.
    """
    rows = []
    variants = [f"{a}-{w}" for a in ("bt", "kx", "rd") for w in ("ent", "var", "uni")]
    for model in variants:
        row = [model]
        for metric in SCORES:
            pair = [average(summary, regime, tasks, m, metric) for m in (model, f"{model}-c")]
            paper = [
                float(np.mean([published()[task, m, metric] for task in tasks]))
                for m in (model, f"{model}-c")
            ]
            if pair[0] is None or pair[1] is None:
                row += ["-", "-"]
                continue
            row.append(f"{pair[0]:.3f} → {pair[1]:.3f} ({paper[0]:.3f} → {paper[1]:.3f})")
            row.append(f"{_change(pair[0], pair[1])} ({_change(paper[0], paper[1])})")
        rows.append(row)
    header = [""]
    for metric in SCORES:
        header += [f"{metric.upper()}, without → with", "change"]
    return Table("What calibration changes, on average over the tasks", header, rows)


def _change(before: float, after: float) -> str:
    return f"{100 * (after - before) / abs(before):+.1f}%"
