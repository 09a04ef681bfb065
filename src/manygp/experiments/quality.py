"""The default model on the ten tasks, beside the paper's columns and other libraries."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from manygp import datasets
from manygp.datasets.files import DATA_FILES
from manygp.display.page import Table
from manygp.experiments.grid import Configuration, Store
from manygp.experiments.names import PAPER_TASKS, QUALITY_MODELS, SCORES
from manygp.experiments.peers import PEERS, Missing
from manygp.experiments.processes import run_alone
from manygp.experiments.published import published
from manygp.metrics import coverage, ence, nll, rmse
from manygp.runtime.files import write_atomically

SEEDS = 5
TIMEOUT = 600


class Cell(NamedTuple):
    """One model on one split."""

    task: str
    model: str
    seed: int


def plan(tasks: Iterable[str], models: Iterable[str], n_seeds: int) -> list[Cell]:
    """This library on all seeds, the others on the first."""
    models, tasks = list(models), list(tasks)
    return [
        Cell(task, model, seed)
        for seed in range(n_seeds)
        for model in models
        for task in tasks
        if seed == 0 or model == "manygp"
    ]


def run_cell(cell: Cell, data_dir: str | None) -> dict[str, Any]:
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


def run(
    store: Store[Cell], cells: list[Cell], data_dir: str | None, finished: Callable[[Cell], None]
) -> None:
    """Compute the missing cells one after the other, each in a process of its own.

    One that takes too long, or fails, is a result too. One that cannot run here is left out.
    """
    for name in sorted({cell.task for cell in store.missing(cells)} & set(DATA_FILES)):
        datasets.load(name, data_dir=data_dir)  # a missing file is an error before any work
    for cell in store.missing(cells):
        result, failure, timed_out = run_alone(__name__, cell, data_dir, TIMEOUT)
        if timed_out:
            store.add(cell, {**cell._asdict(), "note": f"not finished in {TIMEOUT} s"})
        elif failure:
            store.add(cell, {**cell._asdict(), "note": f"failed: {failure[:200]}"})
        elif result is not None:
            store.add(cell, result)
        finished(cell)


def quality_table(results: list[dict[str, Any]]) -> Table:
    """RMSE / NLL / ENCE of this library's default beside the best of the paper's columns."""
    header = [
        "task",
        "paper: best RMSE",
        "paper: best NLL",
        "paper: GP-pro-c",
        "manygp",
        "90% interval",
    ]
    rows = []
    for task in PAPER_TASKS:
        own = _scores(results, task, "manygp")
        if own:
            columns = {m: _paper(task, m) for m in SCORES}
            best = [min(columns[m].items(), key=lambda item: item[1]) for m in ("rmse", "nll")]
            rows.append(
                [
                    task,
                    *(f"{value:.3f} ({model})" for model, value in best),
                    " / ".join(f"{columns[m]['bt-ent-c']:.3f}" for m in SCORES),
                    " / ".join(f"**{np.mean([one[m] for one in own]):.3f}**" for m in SCORES),
                    f"{100 * np.mean([one['interval_coverage'] for one in own]):.1f}%",
                ]
            )
    if rows:
        means = [_mean_over_tasks(results, m) for m in SCORES]
        rows.append(["average", "", "", "", " / ".join(f"{mean:.3f}" for mean in means), ""])
    n_seeds = max(len(_scores(results, task, "manygp")) for task in PAPER_TASKS)
    title = f"RMSE / NLL / ENCE of `ManyGPRegressor()`, mean of {n_seeds} splits"
    return Table(title, header, rows)


def peer_table(results: list[dict[str, Any]]) -> Table:
    """All models on the first seed: RMSE / NLL, and seconds of fit + predict."""
    models = [m for m in QUALITY_MODELS if any(one["model"] == m for one in results)]
    rows = []
    for task in PAPER_TASKS:
        found = {one["model"]: one for one in results if one["task"] == task and one["seed"] == 0}
        if found:
            rows.append([task, *(_shown(found.get(model)) for model in models)])
    header = ["task", *(QUALITY_MODELS[model] for model in models)]
    return Table("The first split: RMSE / NLL / ENCE (seconds to fit + predict)", header, rows)


def write(folder: Path, results: list[dict[str, Any]]) -> list[Path]:
    """results.csv and tables.md."""
    text = io.StringIO()
    fields = list(dict.fromkeys(field for one in results for field in one))
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(results)
    tables = "\n".join(table.markdown() for table in (quality_table(results), peer_table(results)))
    files = {"results.csv": text.getvalue(), "tables.md": tables}
    for name, content in files.items():
        write_atomically(folder / name, content)
    return [folder / name for name in files]


def open_store(folder: Path) -> Store[Cell]:
    return Store(folder, Configuration(), Cell)


def _scores(results: list[dict[str, Any]], task: str, model: str) -> list[dict[str, Any]]:
    return [r for r in results if r["task"] == task and r["model"] == model and "nll" in r]


def _paper(task: str, metric: str) -> dict[str, float]:
    cells = published().items()
    return {model: value for (t, model, m), value in cells if t == task and m == metric}


def _mean_over_tasks(results: list[dict[str, Any]], metric: str) -> float:
    by_task = [_scores(results, task, "manygp") for task in PAPER_TASKS]
    return float(np.mean([np.mean([one[metric] for one in own]) for own in by_task if own]))


def _shown(result: dict[str, Any] | None) -> str:
    if result is None:
        return "-"
    if "nll" not in result:
        return str(result["note"]).replace("|", "/")
    scores = " / ".join(f"{result[metric]:.3f}" for metric in SCORES)
    return f"{scores} ({result['fit_seconds']:.3g} + {result['predict_seconds']:.3g})"


if __name__ == "__main__":
    try:
        print(json.dumps(run_cell(Cell(*json.loads(sys.argv[1])), json.loads(sys.argv[2]))))
    except Missing as missing:
        print(missing, file=sys.stderr)
