"""How the experts of the paper's models were trained: what was published beside two regimes.

The converged regime is `benchmarks/paper/results.csv` (`python -m benchmarks paper`), the early
stopped one `benchmarks/early/results.csv` (`python -m benchmarks.early`).
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean

from benchmarks.early import RESULTS, STEPS, STOP
from benchmarks.studies.names import PAPER_SCORES, PAPER_TASKS
from benchmarks.studies.paper_plan import labels_of, points_of
from benchmarks.studies.published import published

# The models whose experts are those of a ball tree, of k-means, and of random parts.
MODELS = {assignment: tuple(labels_of(assignment)) for assignment in ("bt", "kx", "rd")}
ALL_MODELS = tuple(model for models in MODELS.values() for model in models)
# Means over the seeds by task, model and score.
Means = dict[tuple[str, str, str], float]
CONVERGED = "converged"
STOPPED = f"stopped after {STOP} steps"


@cache
def regimes() -> dict[str, Means]:
    """The means of both regimes, over all their seeds."""
    early = {
        (row["task"], row["model"], score, row["seed"]): float(row[score])
        for row in _rows(RESULTS)
        if int(row["steps"]) == STOP
        for score in PAPER_SCORES
    }
    converged = {
        (row["task"], row["model"], row["metric"], row["seed"]): float(row["value"])
        for row in _rows(RESULTS.parents[1] / "paper" / "results.csv")
        if row["regime"] == "independent"
        and int(row["points_per_expert"]) == points_of(row["task"])
    }
    return {CONVERGED: _means(converged), STOPPED: _means(early)}


@cache
def scanned() -> dict[int, Means]:
    """The means after each number of steps, over the seeds that have all of them."""
    return {
        steps: _means(
            {
                (row["task"], row["model"], score, row["seed"]): float(row[score])
                for row in _rows(RESULTS)
                if int(row["steps"]) == steps and (row["task"], row["seed"]) in _scanned_seeds()
                for score in PAPER_SCORES
            }
        )
        for steps in STEPS
    }


@cache
def _scanned_seeds() -> set[tuple[str, str]]:
    last = str(max(STEPS))
    return {(row["task"], row["seed"]) for row in _rows(RESULTS) if row["steps"] == last}


@cache
def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _means(cells: dict[tuple[str, str, str, str], float]) -> Means:
    by_seed: dict[tuple[str, str, str], list[float]] = {}
    for (task, model, score, _), value in cells.items():
        by_seed.setdefault((task, model, score), []).append(value)
    return {key: fmean(values) for key, values in by_seed.items()}


def n_seeds(task: str, model: str) -> int:
    """Seeds of a task and a model that was stopped early."""
    wanted = (task, model, str(STOP))
    return sum((row["task"], row["model"], row["steps"]) == wanted for row in _rows(RESULTS))


def distance(means: Means, task: str, score: str, models: Sequence[str]) -> float:
    """Mean absolute difference of a score to the published cells of a task."""
    return fmean(abs(means[task, m, score] - published()[task, m, score]) for m in models)


def distances(means: Means, tasks: Sequence[str], models: Sequence[str]) -> list[float]:
    """The same for all scores, as means over tasks."""
    return [
        fmean(distance(means, task, score, models) for task in tasks) for score in PAPER_SCORES
    ]


def best_steps() -> int:
    """The number of steps whose three distances have the least sum, of models with a ball tree."""
    return min(STEPS, key=lambda n: sum(distances(scanned()[n], PAPER_TASKS, MODELS["bt"])))
