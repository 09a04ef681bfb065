"""The models of the paper by the labels of its tables."""

from __future__ import annotations

from typing import Any

from manygp.committee.committee import full_parts, one_part

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
