"""Regression tasks with known answers, and the split that every experiment uses."""

from benchmarks.datasets.tasks import (
    SYNTHETIC_TASKS,
    TASKS,
    Dataset,
    Split,
    ackley,
    levy,
    load,
    official_fold,
    rastrigin,
    rosenbrock,
    split,
)

__all__ = [
    "SYNTHETIC_TASKS",
    "TASKS",
    "Dataset",
    "Split",
    "ackley",
    "levy",
    "load",
    "official_fold",
    "rastrigin",
    "rosenbrock",
    "split",
]
