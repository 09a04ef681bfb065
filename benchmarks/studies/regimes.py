"""How the experts of the paper's models were trained: what was published beside two regimes.

The converged regime is `benchmarks/paper/results.csv` (`python -m benchmarks paper`), the early
stopped one `benchmarks/early/results.csv` (`python -m benchmarks.early`), of the ball tree only.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from statistics import fmean

from benchmarks.studies.names import PAPER_SCORES, PAPER_TASKS
from benchmarks.studies.paper_plan import labels_of, points_of
from benchmarks.studies.published import published

FOLDER = Path(__file__).parents[1]
MODELS = tuple(labels_of("bt"))
# Means over the seeds by task, model and score.
Means = dict[tuple[str, str, str], float]
CONVERGED = "converged"


@cache
def regimes() -> dict[str | int, Means]:
    """The means of the converged regime, and of each number of steps."""
    found: dict[str | int, dict[tuple[str, str, str], list[float]]] = {}
    with (FOLDER / "early" / "results.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            cells = found.setdefault(int(row["steps"]), {})
            for score in PAPER_SCORES:
                key = (row["task"], row["model"], score)
                cells.setdefault(key, []).append(float(row[score]))
    with (FOLDER / "paper" / "results.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if (row["regime"], int(row["points_per_expert"])) != (
                "independent",
                points_of(row["task"]),
            ):
                continue
            key = (row["task"], row["model"], row["metric"])
            found.setdefault(CONVERGED, {}).setdefault(key, []).append(float(row["value"]))
    return {
        name: {key: fmean(values) for key, values in cells.items()}
        for name, cells in found.items()
    }


@cache
def n_seeds() -> dict[str, int]:
    """Seeds of each task in the early stopped regime."""
    with (FOLDER / "early" / "results.csv").open(newline="") as file:
        seen = {(row["task"], row["seed"]) for row in csv.DictReader(file)}
    return {task: sum(one == task for one, _ in seen) for task in PAPER_TASKS}


def tasks() -> list[str]:
    """The tasks that both regimes have."""
    return [task for task in PAPER_TASKS if n_seeds()[task]]


def distance(means: Means, task: str, score: str, models: tuple[str, ...] = MODELS) -> float:
    """Mean absolute difference of a score to the published cells of a task."""
    return fmean(abs(means[task, m, score] - published()[task, m, score]) for m in models)


def distances(means: Means, some: list[str]) -> list[float]:
    """The same for all scores, as means over tasks."""
    return [fmean(distance(means, task, score) for task in some) for score in PAPER_SCORES]


def best_steps() -> int:
    """The number of steps whose three distances have the least sum."""
    early = [steps for steps in regimes() if steps != CONVERGED]
    return int(min(early, key=lambda steps: sum(distances(regimes()[steps], tasks()))))
