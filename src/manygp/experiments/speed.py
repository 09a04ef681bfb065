"""How long it takes and what it needs: this library and others, side by side in one run."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from joblib.externals.loky import get_reusable_executor

from manygp import datasets
from manygp.arrays import Array
from manygp.datasets.files import DATA_FILES
from manygp.display.page import Table
from manygp.experiments.grid import Configuration, Store
from manygp.experiments.names import SPEED_MODELS, SPEED_TASKS, SYNTHETIC_ROWS
from manygp.experiments.peers import PEERS, Missing, sklearn_gpr
from manygp.experiments.processes import run_alone
from manygp.metrics import nll, rmse
from manygp.runtime.files import write_atomically
from manygp.runtime.parallel import n_workers

COLUMNS, MOST_QUERIES, NOISE = 8, 100_000, 0.2
REPEATS = 3
# Seconds after which a run is stopped; bytes that it may ask for; a run of so many seconds is not
# repeated.
TIMEOUT, MEMORY, LONG = 600, 16 * 2**30, 200
HEADER = [
    "model", "fit", "over manygp's", "predict a row", "peak memory", "RMSE", "NLL", "repeats",
]  # fmt: skip
MODELS: dict[str, Callable[..., Any]] = {
    **PEERS,
    "scikit-learn": partial(sklearn_gpr, most_rows=sys.maxsize),
}


class Cell(NamedTuple):
    """One run of a model on a task."""

    task: str
    model: str
    repeat: int


def plan(tasks: Iterable[str], models: Iterable[str], n_repeats: int) -> list[Cell]:
    """Models take turns, so that what else the machine does hits all of them."""
    models, tasks = list(models), list(tasks)
    return [Cell(t, m, r) for r in range(n_repeats) for t in tasks for m in models]


def synthetic(n: int, seed: int) -> tuple[Array, Array]:
    """Rows of a function of 8 columns that varies in all of them, with noise of std 0.2."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, COLUMNS))
    a, b, c, d, e, f, g, h = X.T
    y = np.sin(2 * np.pi * a * b) + 2 * (c - 0.5) ** 2 + np.cos(2 * np.pi * (d + e * f))
    return X, y + g * np.sin(4 * h) + NOISE * rng.normal(size=n)


def rows_of(task: str, data_dir: str | None) -> tuple[Array, Array, Array, Array]:
    """Training rows and test rows: X, y, X, y."""
    if task in SYNTHETIC_ROWS:
        n = SYNTHETIC_ROWS[task]
        train, test = synthetic(n, 0), synthetic(min(n, MOST_QUERIES), 1)
        mean, std = train[1].mean(), train[1].std()
        return train[0], (train[1] - mean) / std, test[0], (test[1] - mean) / std
    data = datasets.split(datasets.load(task, 0, data_dir=data_dir), 0)
    return data.X_train, data.y_train, data.X_test, data.y_test


def peak_megabytes() -> float:
    """The most that this process has held, and the most of a worker for each core, if any ran."""
    import resource  # which Windows does not have

    get_reusable_executor().shutdown(wait=True)  # what a worker held is known when it has ended
    own, worker = (
        resource.getrusage(who).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return float(own + n_workers(-1) * worker)


def run_cell(cell: Cell, data_dir: str | None) -> dict[str, Any]:
    """Fit, predict and score, with bounded memory."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    X, y, X_test, y_test = rows_of(cell.task, data_dir)
    answer = MODELS[cell.model](X, y, X_test, cell.repeat)
    y_test = y_test[: len(answer.mean)]
    return {
        **cell._asdict(),
        "n_rows": len(X),
        "n_queries": len(y_test),
        "fit_seconds": round(answer.fit_seconds, 3),
        "predict_seconds": round(answer.predict_seconds, 3),
        "peak_megabytes": round(peak_megabytes()),
        "rmse": rmse(y_test, answer.mean),
        "nll": nll(y_test, answer.mean, answer.std),
        "note": answer.note,
    }


def run(
    store: Store[Cell], cells: list[Cell], data_dir: str | None, finished: Callable[[Cell], None]
) -> None:
    """Run the missing cells one after the other, each in a process of its own."""
    for name in sorted({cell.task for cell in store.missing(cells)} & set(DATA_FILES)):
        datasets.load(name, data_dir=data_dir)  # a missing file is an error before any work
    for cell in store.missing(cells):
        if (why := _hopeless(store, cell)) is not None:
            if why:
                store.add(cell, {**cell._asdict(), "note": why})
            finished(cell)
            continue
        result, failure, timed_out = run_alone(__name__, cell, data_dir, TIMEOUT)
        if "MemoryError" in failure or "allocate" in failure:
            store.add(cell, {**cell._asdict(), "note": f"> {MEMORY // 2**30} GiB"})
        elif timed_out:
            store.add(cell, {**cell._asdict(), "note": f"> {TIMEOUT // 60} min"})
        elif failure:
            store.add(cell, {**cell._asdict(), "note": f"failed: {failure[:200]}"})
        elif result is not None:
            store.add(cell, result)
        finished(cell)


def _hopeless(store: Store[Cell], cell: Cell) -> str | None:
    """Why not to run: nothing to note where a repeat would not tell more."""
    first = store.results.get(cell._replace(repeat=0))
    if cell.repeat and first is not None:
        long = first.get("fit_seconds", TIMEOUT) + first.get("predict_seconds", 0) > LONG
        return "" if long else None
    smaller = (
        list(SYNTHETIC_ROWS)[: list(SYNTHETIC_ROWS).index(cell.task)]
        if cell.task in SYNTHETIC_ROWS
        else []
    )
    if SYNTHETIC_ROWS.get(cell.task, 20_000) > SYNTHETIC_ROWS["synthetic-10k"]:
        smaller = smaller or ["synthetic-10k"]
    for task in smaller:
        before = store.results.get(Cell(task, cell.model, 0))
        if before is not None and "nll" not in before:
            return f"{before['note'].partition(' with ')[0]} with {SYNTHETIC_ROWS[task]:,} rows"
    return None


def medians(results: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Of the repeats of each task and model; what did not finish has only a note."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for task in SPEED_TASKS:
        for model in SPEED_MODELS:
            runs = [r for r in results if (r["task"], r["model"]) == (task, model)]
            finished = [r for r in runs if "nll" in r]
            if finished:
                numbers = ("fit_seconds", "predict_seconds", "peak_megabytes", "rmse", "nll")
                found[task, model] = {
                    **{name: median(r[name] for r in finished) for name in numbers},
                    "n_rows": finished[0]["n_rows"],
                    "n_queries": finished[0]["n_queries"],
                    "repeats": len(finished),
                }
            elif runs:
                found[task, model] = {"note": runs[0]["note"]}
    return found


def exponent(found: dict[tuple[str, str], dict[str, Any]], model: str) -> float | None:
    """b of fit time ~ n^b over the synthetic tasks, if it finished at least two."""
    points = [
        (np.log(one["n_rows"]), np.log(one["fit_seconds"]))
        for task in SYNTHETIC_ROWS
        if "nll" in (one := found.get((task, model), {}))
    ]
    if len(points) < 2:
        return None
    sizes, seconds = np.array(points).T
    return float(np.polyfit(sizes, seconds, 1)[0])


def speed_table(results: list[dict[str, Any]]) -> list[Table]:
    """One table per task."""
    found = medians(results)
    tables = []
    for task in SPEED_TASKS:
        own = found.get((task, "manygp"), {})
        rows = []
        for model, name in SPEED_MODELS.items():
            one = found.get((task, model))
            if one is None:
                continue
            if "nll" not in one:
                rows.append([name, one["note"].replace("|", "/"), *[""] * 6])
                continue
            ratio = one["fit_seconds"] / own["fit_seconds"] if "nll" in own else np.nan
            rows.append(
                [
                    name,
                    f"{one['fit_seconds']:.3g} s",
                    f"{ratio:.2g}",
                    f"{1e6 * one['predict_seconds'] / one['n_queries']:.3g} us",
                    f"{one['peak_megabytes'] / 1000:.2g} GB",
                    f"{one['rmse']:.3f}",
                    f"{one['nll']:.3f}",
                    str(one["repeats"]),
                ]
            )
        if rows:
            done = [one for (t, _), one in found.items() if t == task and "nll" in one]
            shape = [f"{one['n_rows']:,} rows, {one['n_queries']:,} queries" for one in done[:1]]
            tables.append(Table(": ".join([task, *shape]), HEADER, rows))
    return tables


def write(folder: Path, results: list[dict[str, Any]]) -> list[Path]:
    """results.csv, tables.md and figures."""
    text = io.StringIO()
    fields = list(dict.fromkeys(field for one in results for field in one))
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(results)
    found = medians(results)
    growth = [
        f"- {name}: fit time grows as n^{power:.2f}"
        for model, name in SPEED_MODELS.items()
        if (power := exponent(found, model)) is not None
    ]
    tables = [table.markdown() for table in speed_table(results)]
    write_atomically(folder / "results.csv", text.getvalue())
    write_atomically(folder / "tables.md", "\n".join([*tables, "\n".join(growth)]) + "\n")
    written = [folder / "results.csv", folder / "tables.md"]
    figures = {"scaling.png": draw_scaling, "trade.png": draw_trade}
    return written + [
        folder / name for name, draw in figures.items() if draw(found, folder / name)
    ]


STYLES = {
    "manygp": ("#0072B2", "o"),
    "manygp-5s": ("#56B4E9", "o"),
    "muygps": ("#009E73", "s"),
    "gpboost": ("#D55E00", "D"),
    "svgp": ("#CC79A7", "^"),
    "scikit-learn": ("#E69F00", "P"),
}


def draw_scaling(found: dict[tuple[str, str], dict[str, Any]], path: Path) -> bool:
    """Fit time, time of a query and memory against the number of rows."""
    import matplotlib.pyplot as plt

    tasks = [
        task
        for task in SYNTHETIC_ROWS
        if any("nll" in found.get((task, m), {}) for m in SPEED_MODELS)
    ]
    if not tasks:
        return False
    panels: list[tuple[str, Callable[[dict[str, Any]], float]]] = [
        ("seconds to fit", lambda one: one["fit_seconds"]),
        ("microseconds a query", lambda one: 1e6 * one["predict_seconds"] / one["n_queries"]),
        ("peak memory, GB", lambda one: one["peak_megabytes"] / 1000),
    ]
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    for axis, (title, value) in zip(axes, panels, strict=True):
        for model, name in SPEED_MODELS.items():
            ones = [found[t, model] for t in tasks if "nll" in found.get((t, model), {})]
            colour, marker = STYLES[model]
            if ones:
                sizes, values = [one["n_rows"] for one in ones], [value(one) for one in ones]
                axis.plot(sizes, values, color=colour, marker=marker, label=name)
        axis.set(xscale="log", yscale="log", xlabel="training rows", title=title)
        axis.grid(alpha=0.3)
    axes[0].axhline(TIMEOUT, color="grey", linestyle=":", label="ten minutes")
    axes[2].set(yscale="linear", ylim=(0, None))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    figure.savefig(path, dpi=90)
    plt.close(figure)
    return True


def draw_trade(found: dict[tuple[str, str], dict[str, Any]], path: Path) -> bool:
    """NLL against seconds to fit, one panel per task."""
    import matplotlib.pyplot as plt

    tasks = [
        task
        for task in SPEED_TASKS
        if any("nll" in found.get((task, m), {}) for m in SPEED_MODELS)
    ]
    if not tasks:
        return False
    n_rows = -(-len(tasks) // 3)
    figure, axes = plt.subplots(
        n_rows, 3, figsize=(12, 3.6 * n_rows), layout="constrained", squeeze=False
    )
    handles: dict[str, Any] = {}
    for axis, task in zip(axes.ravel(), tasks, strict=False):
        for model, name in SPEED_MODELS.items():
            one = found.get((task, model), {})
            if "nll" in one:
                colour, marker = STYLES[model]
                (line,) = axis.plot(
                    one["fit_seconds"], one["nll"], marker, color=colour, markersize=9
                )
                handles[name] = line
        axis.axvline(TIMEOUT, color="grey", linestyle=":")
        axis.set(xscale="log", xlabel="seconds to fit", ylabel="NLL", title=task)
        axis.set_xlim(0.5, 2 * TIMEOUT)
        axis.grid(alpha=0.3)
    for axis in axes.ravel()[len(tasks) :]:
        axis.set_visible(False)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=6)
    figure.savefig(path, dpi=90)
    plt.close(figure)
    return True


def open_store(folder: Path) -> Store[Cell]:
    return Store(folder, Configuration(), Cell)


if __name__ == "__main__":
    try:
        print(json.dumps(run_cell(Cell(*json.loads(sys.argv[1])), json.loads(sys.argv[2]))))
    except Missing as missing:
        print(missing, file=sys.stderr)
