"""The models of the paper by the labels of its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.rules import Partitioner

Partition = TypeVar("Partition", bound=Partitioner)


def whole(partition: Partition) -> Partition:
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
WEIGHTINGS_OF_LABELS = {"ent": "entropy", "var": "variance", "uni": "uniform"}
CALIBRATIONS_OF_LABELS = {"-c": "information", "": "none"}

# Every expert has its own hyperparameters and constant mean, knows its own rows only, and is
# queried about every row.
PAPER = {
    "hyperparameters": "independent",
    "trend": "constant",
    "overlap": 0,
    "routing": None,
}

# GPyTorch's least noise variance, and the averages of slopes and squares that Adam keeps.
SMALLEST_NOISE = 1e-4
DECAY = (0.9, 0.999)
TINY = 1e-8

LABELS: dict[str, dict[str, Any]] = {
    f"{a}-{w}{c}": {
        **PAPER,
        "partition": partition,
        "weighting": weighting,
        "calibration": calibration,
    }
    for a, partition in ASSIGNMENTS.items()
    for w, weighting in WEIGHTINGS_OF_LABELS.items()
    for c, calibration in CALIBRATIONS_OF_LABELS.items()
}
LABELS["gp-pro-sm"] = {**LABELS["bt-ent"], "weighting": "softmax", "temperature": 100.0}
LABELS["gp-full"] = {**LABELS["bt-ent"], "partition": one_part}
LABELS["gp-pro-full"] = {**LABELS["bt-ent"], "partition": full_parts}


@dataclass(frozen=True)
class Adam:
    """An optimizer that stops early: `from_label("bt-ent-c", optimizer=Adam(50))`.

    It starts where GPyTorch starts, whatever the kernel says, and every hyperparameter is the
    softplus of what Adam moves, as there: all are log(2) at first, and the noise variance stays
    above 1e-4. The paper names GPyTorch and no schedule, so that this one is an inference.

    Parameters
    ----------
    steps : int
    rate : float
        The learning rate.
    """

    steps: int = 50
    rate: float = 0.1

    def __call__(
        self, minus: Callable[..., tuple[float, Array]], theta: Array, bounds: Array
    ) -> tuple[Array, float]:
        """Where the last step ends, of shape (p,), and minus the log-likelihood there."""
        *_, last = self.path(minus, len(theta))
        return last, minus(last)[0]

    def path(self, minus: Callable[..., tuple[float, Array]], p: int) -> Iterator[Array]:
        """Log-hyperparameters (p,) at the start and after every step; the noise is the last."""
        floor = np.zeros(p)
        floor[-1] = SMALLEST_NOISE
        raw, mean, square = np.zeros((3, p))
        for step in range(1, self.steps + 1):
            value = np.logaddexp(0.0, raw) + floor
            yield np.log(value)
            slope = minus(np.log(value))[1] / (1 + np.exp(-raw)) / value
            mean += (1 - DECAY[0]) * (slope - mean)
            square += (1 - DECAY[1]) * (slope**2 - square)
            unbiased = [m / (1 - b**step) for m, b in zip((mean, square), DECAY, strict=True)]
            raw = raw - self.rate * unbiased[0] / (np.sqrt(unbiased[1]) + TINY)
        yield np.log(np.logaddexp(0.0, raw) + floor)
