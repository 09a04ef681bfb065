"""The models of the paper by the labels of its tables."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.rules import Partitioner

Rule = TypeVar("Rule", bound=Partitioner)


def whole(partition: Rule) -> Rule:
    """Declare that each part of a partition holds all rows, whatever their number."""
    partition.all_rows = True  # type: ignore[attr-defined]
    return partition


@whole
def one_part(X: Array, n_parts: int, rng: np.random.Generator) -> list[IndexArray]:
    """All rows in one part: the global GP (GP-full)."""
    return [np.arange(len(X))]


@whole
def full_parts(X: Array, n_parts: int, rng: np.random.Generator) -> list[IndexArray]:
    """All rows in every part: the paper's diagnostic GP-pro-full."""
    return one_part(X, n_parts, rng) * n_parts


ASSIGNMENTS = {"bt": "balltree", "kx": "kmeans", "rd": "random"}
WEIGHTINGS = {"ent": "entropy", "var": "variance", "uni": "uniform"}
CALIBRATIONS = {"-c": "information", "": "none"}

# Every expert has its own hyperparameters and constant mean, knows its own rows only, and is
# queried about every row.
PAPER = {
    "hyperparameters": "independent",
    "trend": "constant",
    "overlap": 0,
    "routing": None,
}

LABELS: dict[str, dict[str, Any]] = {
    f"{a}-{w}{c}": {
        **PAPER,
        "partition": partition,
        "weighting": weighting,
        "calibration": calibration,
    }
    for a, partition in ASSIGNMENTS.items()
    for w, weighting in WEIGHTINGS.items()
    for c, calibration in CALIBRATIONS.items()
}
LABELS["gp-pro-sm"] = {**LABELS["bt-ent"], "weighting": "softmax", "temperature": 100.0}
LABELS["gp-full"] = {**LABELS["bt-ent"], "partition": one_part}
LABELS["gp-pro-full"] = {**LABELS["bt-ent"], "partition": full_parts}
