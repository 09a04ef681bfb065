"""Seconds and memory of this library and others, side by side in one run."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
from joblib.externals.loky import get_reusable_executor

from benchmarks import datasets
from benchmarks.studies.names import SYNTHETIC_ROWS
from benchmarks.studies.peers import PEERS, Peer
from benchmarks.studies.peers_gp import sklearn_gpr
from benchmarks.studies.processes import print_result
from benchmarks.studies.speed_tables import write_speed
from benchmarks.studies.study import (
    CELL_SECONDS,
    InOwnProcesses,
    Result,
    Study,
    failure_note,
    is_scored,
)
from manygp.arrays import Array
from manygp.metrics import nll, rmse
from manygp.runtime.parallel import n_workers

# Test rows of a synthetic task, if it has that many training rows.
MOST_QUERIES = 100_000
# Columns of the synthetic tasks.
SYNTHETIC_COLUMNS = 8
# Standard deviation of the noise of the synthetic tasks.
SYNTHETIC_NOISE = 0.2
# Bytes that a run may ask for.
MEMORY_LIMIT = 16 * 2**30
# Seconds of fit and predict after which a run is not repeated.
LONGEST_REPEATED = 200
# The models, where scikit-learn's may try any number of rows.
TIMED_PEERS: dict[str, Peer] = {
    **PEERS,
    "scikit-learn": partial(sklearn_gpr, most_rows=sys.maxsize),
}


class SpeedCell(NamedTuple):
    """One run of a model on a task."""

    task: str
    model: str
    repeat: int


def speed_study() -> Study[SpeedCell]:
    """The study, which spares the runs that are hopeless."""
    compute = InOwnProcesses[SpeedCell](
        __name__,
        CELL_SECONDS,
        slow_note=f"> {CELL_SECONDS // 60} min",
        failure_note=_memory_or_failure_note,
        skip_note=_skip_note,
    )
    return Study("speed", SpeedCell, compute, write_speed)


def speed_cells(tasks: Iterable[str], models: Iterable[str], n_repeats: int) -> list[SpeedCell]:
    """Every model on every task; models take turns, so that a busy machine slows all of them."""
    models, tasks = list(models), list(tasks)
    return [SpeedCell(t, m, r) for r in range(n_repeats) for t in tasks for m in models]


def synthetic(n: int, seed: int) -> tuple[Array, Array]:
    """A function of 8 columns that varies in all of them, with noise: X (n, 8) and y (n,)."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, SYNTHETIC_COLUMNS))
    a, b, c, d, e, f, g, h = X.T
    y = np.sin(2 * np.pi * a * b) + 2 * (c - 0.5) ** 2 + np.cos(2 * np.pi * (d + e * f))
    return X, y + g * np.sin(4 * h) + SYNTHETIC_NOISE * rng.normal(size=n)


def rows_of(task: str, data_dir: str | None) -> tuple[Array, Array, Array, Array]:
    """Training rows X (n, d) and y (n,), and test rows X (N, d) and y (N,)."""
    if task in SYNTHETIC_ROWS:
        n = SYNTHETIC_ROWS[task]
        train, test = synthetic(n, 0), synthetic(min(n, MOST_QUERIES), 1)
        mean, std = train[1].mean(), train[1].std()
        return train[0], (train[1] - mean) / std, test[0], (test[1] - mean) / std
    data = datasets.split(datasets.load(task, 0, data_dir=data_dir), 0)
    return data.X_train, data.y_train, data.X_test, data.y_test


def peak_megabytes() -> float:
    """The peak memory of this process, plus that of the largest worker for each core, if any."""
    import resource  # which Windows does not have

    get_reusable_executor().shutdown(wait=True)  # a worker's peak is known when it has ended
    own, worker = (
        resource.getrusage(who).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return float(own + n_workers(-1) * worker)


def run_speed_cell(cell: SpeedCell, data_dir: str | None) -> Result:
    """Fit, predict and score, with bounded memory."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    X, y, X_test, y_test = rows_of(cell.task, data_dir)
    answer = TIMED_PEERS[cell.model](X, y, X_test, cell.repeat)
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


def _memory_or_failure_note(failure: str) -> str:
    if "MemoryError" in failure or "allocate" in failure:
        return f"> {MEMORY_LIMIT // 2**30} GiB"
    return failure_note(failure)


def _skip_note(results: Mapping[SpeedCell, Result], cell: SpeedCell) -> str | None:
    """Why not to run a cell: "" if a repeat takes too long to be worth it, None to run it."""
    first = results.get(cell._replace(repeat=0))
    if cell.repeat and first is not None:
        seconds = first.get("fit_seconds", CELL_SECONDS) + first.get("predict_seconds", 0)
        return "" if seconds > LONGEST_REPEATED else None
    for task in _smaller_tasks(cell.task):
        smaller = results.get(SpeedCell(task, cell.model, 0))
        if smaller is not None and not is_scored(smaller):
            reason = smaller["note"].partition(" with ")[0]
            return f"{reason} with {SYNTHETIC_ROWS[task]:,} rows"
    return None


def _smaller_tasks(task: str) -> list[str]:
    """The synthetic tasks with fewer rows; a model that fails one of them fails this one too."""
    synthetic_tasks = list(SYNTHETIC_ROWS)
    if task in SYNTHETIC_ROWS:
        return synthetic_tasks[: synthetic_tasks.index(task)]
    return synthetic_tasks[:1]  # all others have more rows than the smallest


if __name__ == "__main__":
    print_result(SpeedCell, run_speed_cell)
