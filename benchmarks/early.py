"""The paper's models after a number of steps of Adam: which number fits the published cells?

python -m benchmarks.early [folder of the real data sets]

The experts of a ball tree are trained once for some seeds, and scored after each number of STEPS;
all other models and seeds after STOP steps, which fit best. A line of benchmarks/early/results.csv
is one model, task and seed; what is there is not computed again.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

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
STOP = 50
# Seeds that are scored after each number of steps; the cheapest task comes first.
SCANNED = {
    "concrete": 10, "airfoil": 10, "ackley": 10, "levy": 10, "rastrigin": 10, "parkinsons": 10,
    "power": 10, "kin40k": 2, "protein": 1, "rosenbrock": 1,
}  # fmt: skip
SEEDS = 10
# A global GP of 2,500 rows takes a minute or more: fewer seeds. The paper has none of Power.
SEEDS_OF_GLOBAL = {
    "concrete": 10, "airfoil": 10, "ackley": 3, "levy": 3, "rastrigin": 3, "parkinsons": 3,
}  # fmt: skip
FIELDS = ("task", "seed", "steps", "model", "rmse", "nll", "ence")


class Job(NamedTuple):
    """Experts that are trained together: those of a task, an assignment and a seed."""

    task: str
    assignment: str
    seed: int

    @property
    def steps(self) -> tuple[int, ...]:
        """The numbers of steps after which they are scored."""
        scanned = self.assignment == "bt" and self.seed < SCANNED[self.task]
        return STEPS if scanned else (STOP,)

    @property
    def label(self) -> str:
        """A model that has these experts."""
        return "gp-full" if self.assignment == "full" else f"{self.assignment}-ent"


class Recorder:
    """Adam that keeps where each expert is after some numbers of steps, in the order of fits."""

    def __init__(self, steps: tuple[int, ...]) -> None:
        self.steps = steps
        self.paths: list[dict[int, Array]] = []

    def __call__(self, minus: Callable[..., Any], theta: Array, bounds: Array) -> Any:
        path = enumerate(Adam(max(self.steps)).path(minus, len(theta)))
        self.paths.append({step: theta for step, theta in path if step in self.steps})
        last = self.paths[-1][max(self.steps)]
        return last, minus(last)[0]


class Replay:
    """An optimizer that answers with what was recorded after a number of steps."""

    def __init__(self, paths: list[dict[int, Array]], steps: int) -> None:
        self.thetas = iter([one[steps] for one in paths])

    def __call__(self, minus: Callable[..., Any], theta: Array, bounds: Array) -> Any:
        theta = next(self.thetas)
        return theta, minus(theta)[0]


def jobs() -> Iterator[Job]:
    """All of them: seed by seed, the cheapest task first."""
    for seed in range(SEEDS):
        for task in SCANNED:
            yield from (Job(task, assignment, seed) for assignment in ("bt", "kx", "rd"))
            if seed < SEEDS_OF_GLOBAL.get(task, 0):
                yield Job(task, "full", seed)


def assignment_of(model: str) -> str:
    """How rows were assigned to the experts of a model."""
    if model == "gp-full":
        return "full"
    return "bt" if model.startswith("gp-pro-sm") else model[:2]


def main(data_dir: str | None) -> None:
    """Compute and append what is missing, one job at a time."""
    RESULTS.parent.mkdir(exist_ok=True)
    if not RESULTS.exists():
        RESULTS.write_text(",".join(FIELDS) + "\n")
    with RESULTS.open() as file:
        done = {
            Job(row["task"], assignment_of(row["model"]), int(row["seed"]))
            for row in csv.DictReader(file)
        }
    for job in jobs():
        if job in done:
            continue
        begin, rows = perf_counter(), list(scored(job, data_dir))
        with RESULTS.open("a") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
        print(f"{job}: {perf_counter() - begin:.0f} s", flush=True)


def scored(job: Job, data_dir: str | None) -> Iterator[list[Any]]:
    """The lines of a job."""
    data = split(load(job.task, job.seed, data_dir=data_dir), job.seed)

    def fitted(optimizer: Any) -> ManyGPRegressor:
        model = ManyGPRegressor.from_label(
            job.label, optimizer=optimizer, points_per_expert=points_of(job.task), n_jobs=1,
            random_state=job.seed,
        )  # fmt: skip
        return model.fit(data.X_train, data.y_train)

    recorder = Recorder(job.steps)
    model = fitted(recorder)
    for steps in job.steps:
        if steps < max(job.steps):
            local = fitted(Replay(recorder.paths, steps)).predict_experts(data.X_test)
        else:
            local = model.predict_experts(data.X_test)
        for name, predict in models_of(job.assignment).items():
            mean, std = predict(local)
            scores = [f"{score(data.y_test, mean, std):.6g}" for score in (rmse, nll, ence)]
            yield [job.task, job.seed, steps, name, *scores]


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


Answer = Callable[[ExpertPredictions], tuple[Array, Array]]
READINGS: dict[str, Answer] = {
    "gp-pro-sm, entropy": softmax_of_entropy,
    "bt-ent, noise inside": lambda local: noise_inside(local, "none"),
    "bt-ent-c, noise inside": lambda local: noise_inside(local, "information"),
}


def models_of(assignment: str) -> dict[str, Answer]:
    """The models that share the experts of an assignment, and other readings of them."""
    labels = [label for label in labels_of(assignment) if label != "gp-pro-full"]
    models: dict[str, Answer] = {label: partial(predictions, label) for label in labels}
    return {**models, **READINGS} if assignment == "bt" else models


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
