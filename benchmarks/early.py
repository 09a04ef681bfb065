"""The paper's models after a number of steps of Adam: which number fits the published cells?

python -m benchmarks.early [folder of the real data sets]

Every expert is trained once, and scored after each number of STEPS. A line of
benchmarks/early/results.csv is one model, task and seed; a task and seed that is there is not
computed again.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.datasets import load, split
from benchmarks.studies.paper import predictions
from benchmarks.studies.paper_plan import labels_of, points_of
from manygp import ManyGPRegressor
from manygp.arrays import Array
from manygp.metrics import ence, nll, rmse
from manygp.paper import Adam
from manygp.rules import ExpertPredictions, PredictionRules, normalise

RESULTS = Path(__file__).parent / "early" / "results.csv"
STEPS = (25, 50, 75, 100, 150, 200)
# Seeds of each task; the first seed of all tasks comes first, the cheapest task first.
SEEDS = {
    "concrete": 10, "airfoil": 10, "ackley": 10, "levy": 10, "rastrigin": 10, "parkinsons": 10,
    "power": 10, "kin40k": 2, "protein": 1, "rosenbrock": 1,
}  # fmt: skip
FIELDS = ("task", "seed", "steps", "model", "rmse", "nll", "ence")


class Recorder:
    """Adam that keeps where each expert is after some numbers of steps, in the order of fits."""

    def __init__(self) -> None:
        self.found: list[dict[int, Array]] = []

    def __call__(self, minus: Callable[..., Any], theta: Array, bounds: Array) -> Any:
        path = enumerate(Adam(max(STEPS)).path(minus, len(theta)))
        self.found.append({step: theta for step, theta in path if step in STEPS})
        last = self.found[-1][max(STEPS)]
        return last, minus(last)[0]


class Replay:
    """An optimizer that answers with what was recorded after a number of steps."""

    def __init__(self, found: list[dict[int, Array]], steps: int) -> None:
        self.thetas = iter([one[steps] for one in found])

    def __call__(self, minus: Callable[..., Any], theta: Array, bounds: Array) -> Any:
        theta = next(self.thetas)
        return theta, minus(theta)[0]


def main(data_dir: str | None) -> None:
    """Compute and append what is missing, one task and seed at a time."""
    RESULTS.parent.mkdir(exist_ok=True)
    if not RESULTS.exists():
        RESULTS.write_text(",".join(FIELDS) + "\n")
    with RESULTS.open() as file:
        known = {(row["task"], int(row["seed"])) for row in csv.DictReader(file)}
    for seed in range(max(SEEDS.values())):
        for task, n_seeds in SEEDS.items():
            if seed >= n_seeds or (task, seed) in known:
                continue
            begin, rows = perf_counter(), list(scored(task, seed, data_dir))
            with RESULTS.open("a") as file:
                csv.writer(file, lineterminator="\n").writerows(rows)
            print(f"{task} {seed}: {perf_counter() - begin:.0f} s", flush=True)


def scored(task: str, seed: int, data_dir: str | None) -> Iterator[list[Any]]:
    """The lines of a task and seed."""
    data = split(load(task, seed, data_dir=data_dir), seed)

    def fitted(optimizer: Any) -> ManyGPRegressor:
        model = ManyGPRegressor.from_label(
            "bt-ent", optimizer=optimizer, points_per_expert=points_of(task), n_jobs=1,
            random_state=seed,
        )  # fmt: skip
        return model.fit(data.X_train, data.y_train)

    recorder = Recorder()
    fitted(recorder)
    for steps in STEPS:
        local = fitted(Replay(recorder.found, steps)).predict_experts(data.X_test)
        for name, predict in MODELS.items():
            mean, std = predict(local)
            scores = [f"{score(data.y_test, mean, std):.6g}" for score in (rmse, nll, ence)]
            yield [task, seed, steps, name, *scores]


def softmax_of_entropy(local: ExpertPredictions) -> tuple[Array, Array]:
    """GP-pro-sm with the differential entropy, where ours has the variance."""

    def weights(experts: ExpertPredictions) -> Array:
        exponent = -100.0 * 0.5 * np.log(experts.variance)
        return np.exp(exponent - exponent.max(axis=0))

    rules = PredictionRules.named(weights, "none", "gpoe", None)
    (mean,), variance, noise = rules.combine([local])
    return mean, np.sqrt(variance + noise)


def noise_inside(local: ExpertPredictions, calibration: str) -> tuple[Array, Array]:
    """bt-ent and bt-ent-c where the product is of distributions of y, noise included."""
    rules = PredictionRules.named("entropy", calibration, "gpoe", None)
    (ratio,), (weights,) = rules.ratio([local]), rules.normalised_weights([local])
    precision = normalise(weights) / (ratio * local.variance + local.noise_variance)
    variance = 1 / precision.sum(axis=0)
    return variance * (precision * local.mean).sum(axis=0), np.sqrt(variance)


MODELS: dict[str, Callable[[ExpertPredictions], tuple[Array, Array]]] = {
    **{
        label: lambda local, label=label: predictions(label, local)  # type: ignore[misc]
        for label in labels_of("bt")
    },
    "gp-pro-sm, entropy": softmax_of_entropy,
    "bt-ent, noise inside": lambda local: noise_inside(local, "none"),
    "bt-ent-c, noise inside": lambda local: noise_inside(local, "information"),
}

if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
