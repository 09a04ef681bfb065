"""The paper's evaluation as a grid of cells: fitted once each, kept as they finish."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from joblib import Parallel, delayed

from manygp import datasets
from manygp.arrays import Array
from manygp.datasets.files import DATA_FILES
from manygp.experiments.names import PAPER_TASKS
from manygp.metrics import ence, nll, reliability_curve, rmse
from manygp.regressor import ManyGPRegressor
from manygp.rules.combine import Rules
from manygp.rules.labels import LABELS
from manygp.rules.records import ExpertPredictions
from manygp.runtime.files import write_atomically

TASKS = ("ackley1d", *PAPER_TASKS)
QUICK_TASKS = ("ackley1d", "ackley")
QUICK_ROWS = 1_000
SIZE_STUDY_TASKS = tuple(task for task in PAPER_TASKS if task not in ("concrete", "airfoil"))
SIZES = (100, 200, 300, 400, 500, 600)
SIZE_STUDY_SEEDS = 3
POINTS = 200
LARGEST_GLOBAL = 5_000  # training rows of gp-full, as in the paper
# The paper's 1-d illustration has two experts for its 250 training rows.
POINTS_OF_TASK = {"ackley1d": 125}
REGIMES = ("independent", "hierarchical")
REPEATED = ("mean", "variance", "prior_variance", "noise_variance", "prior_mean")
ASSIGNMENTS = ("bt", "kx", "rd", "full")
SHAPES: dict[str, tuple[int, int]] = {
    **{name: (task.n_rows, task.n_features) for name, task in datasets.SYNTHETIC_TASKS.items()},
    **{name: (file.n_rows, file.n_features) for name, file in DATA_FILES.items()},
}


class Cell(NamedTuple):
    """One fit, and all models that reuse its experts."""

    task: str
    assignment: str
    regime: str
    points: int
    seed: int

    @property
    def name(self) -> str:
        return "-".join(str(part) for part in self)

    @property
    def cost(self) -> float:
        """Roughly the seconds that it takes on one core, to plan and to tell the time left."""
        n_rows, n_features = SHAPES[self.task]
        n = n_rows / 2
        points = n if self.assignment == "full" else min(n, self.points)
        experts = n / points
        evaluations = 12 if self.regime == "hierarchical" else 40 + 2 * n_features
        if self.assignment == "full":
            evaluations = 30
        fit = evaluations * experts * (2e-11 * points**3 + 2e-8 * points**2)
        predict = n * experts * (2.5e-11 * points**2 + 4e-9 * points + 1e-6)
        return float(fit + predict)


class Configuration(NamedTuple):
    """What must be the same for all cells of a results folder."""

    version: int = 1
    n_rows: int | None = None  # of synthetic tasks, where not the paper's


def labels_of(assignment: str) -> list[str]:
    """The models that share the experts of an assignment."""
    if assignment == "full":
        return ["gp-full", "gp-pro-full"]
    extra = ["gp-pro-sm"] if assignment == "bt" else []
    return [label for label in LABELS if label.startswith(f"{assignment}-")] + extra


def plan(
    tasks: Iterable[str],
    models: Iterable[str],
    n_seeds: int,
    with_sizes: bool,
) -> list[Cell]:
    """The cells that these tasks and models need: seed by seed, the most costly first."""
    wanted, tasks = set(models), list(tasks)
    cells: set[Cell] = set()
    for task in tasks:
        points = POINTS_OF_TASK.get(task, POINTS)
        for assignment in ASSIGNMENTS:
            if not wanted & set(labels_of(assignment)):
                continue
            if assignment == "full":
                if SHAPES[task][0] // 2 <= LARGEST_GLOBAL:
                    cells |= {Cell(task, "full", "independent", points, s) for s in range(n_seeds)}
                continue
            for regime in REGIMES:
                cells |= {Cell(task, assignment, regime, points, s) for s in range(n_seeds)}
            if with_sizes and task in SIZE_STUDY_TASKS and f"{assignment}-ent-c" in wanted:
                seeds = range(min(n_seeds, SIZE_STUDY_SEEDS))
                sizes = [size for size in SIZES if size != points]
                cells |= {
                    Cell(task, assignment, "independent", size, s) for size in sizes for s in seeds
                }
    return sorted(cells, key=lambda cell: (cell.seed, -cell.cost, cell.name))


def run_cell(cell: Cell, configuration: Configuration, data_dir: str | None) -> dict[str, Any]:
    """Fit the experts of a cell and score every model that uses them."""
    dataset = datasets.load(cell.task, cell.seed, configuration.n_rows, data_dir)
    data = datasets.split(dataset, cell.seed)
    labels = labels_of(cell.assignment)
    model = ManyGPRegressor.from_label(
        labels[0],
        hyperparameters=cell.regime,
        points_per_expert=cell.points,
        random_state=cell.seed,
    )
    start = perf_counter()
    model.fit(data.X_train, data.y_train)
    fit_seconds = perf_counter() - start
    start = perf_counter()
    local = model.predict_experts(data.X_test)
    expert_seconds = perf_counter() - start
    models = {}
    for label in labels:
        start = perf_counter()
        said = local
        if label == "gp-pro-full":  # every expert would be the same one: it is fitted once
            copies = max(1, len(data.y_train) // cell.points)
            arrays = {name: getattr(local, name).repeat(copies, axis=0) for name in REPEATED}
            said = ExpertPredictions(**arrays)
        settings = LABELS[label]
        rules = Rules.named(
            settings["weighting"], settings["calibration"], "gpoe", settings.get("temperature")
        )
        (mean,), variance, noise = rules.combine([said])
        std = np.sqrt(variance + noise)
        seconds = expert_seconds + perf_counter() - start
        models[label] = _scores(data.y_test, mean, std, seconds)
    sizes = [len(expert.indices) for expert in model.experts_]
    evaluations = [expert.n_evaluations for expert in model.experts_]
    return {
        **cell._asdict(),
        "fit_seconds": round(fit_seconds, 4),
        "n_experts": len(sizes),
        "largest_expert": max(sizes),
        "mean_evaluations": float(np.mean(evaluations)),
        "models": models,
    }


def _scores(y: Array, mean: Array, std: Array, seconds: float) -> dict[str, Any]:
    curve = reliability_curve(y, mean, std)
    return {
        "rmse": rmse(y, mean),
        "nll": nll(y, mean, std),
        "ence": ence(y, mean, std),
        "predict_seconds": round(seconds, 4),
        "curve": {name: np.round(values, 5).tolist() for name, values in curve._asdict().items()},
    }


CellType = TypeVar("CellType", bound="NamedTuple")


class Store(Generic[CellType]):
    """A results folder: one line of `cells.jsonl` per finished cell, appended as it finishes."""

    def __init__(
        self, folder: Path, configuration: Configuration, cell_type: Callable[..., CellType]
    ) -> None:
        self.configuration, self._cell_type = configuration, cell_type
        self.path = folder / "cells.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "configuration.json"
        if path.exists():
            found = json.loads(path.read_text())
            if found != configuration._asdict():
                raise ValueError(
                    f"{folder} holds results of another configuration ({found}, not "
                    f"{configuration._asdict()}); name another results folder"
                )
        else:
            write_atomically(path, json.dumps(configuration._asdict()))
        self.results: dict[CellType, dict[str, Any]] = {}
        if self.path.exists():
            self._load()

    def _load(self) -> None:
        lines = self.path.read_text().splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):  # of a run that was killed as it wrote
            lines.pop()
            write_atomically(self.path, "".join(lines))
        for line in lines:
            result = json.loads(line)
            fields = self._cell_type._fields  # type: ignore[attr-defined]
            self.results[self._cell_type(*(result[field] for field in fields))] = result

    def add(self, cell: CellType, result: dict[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(result) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.results[cell] = result

    def missing(self, cells: Iterable[CellType]) -> list[CellType]:
        return [cell for cell in cells if cell not in self.results]

    def read(self, cells: Iterable[CellType]) -> list[dict[str, Any]]:
        """Results of the cells that are finished."""
        return [self.results[cell] for cell in cells if cell in self.results]


def run(
    store: Store[Cell],
    cells: list[Cell],
    data_dir: str | None,
    n_jobs: int,
    finished: Callable[[Cell], None],
) -> None:
    """Compute the cells that are missing, `n_jobs` at a time, and call `finished` after each.

    Whatever stops it, finished cells are on disk.
    """
    for name in sorted({cell.task for cell in store.missing(cells)} & set(DATA_FILES)):
        datasets.load(name, data_dir=data_dir)  # a missing file is an error before any work
    missing = store.missing(cells)
    tasks = (delayed(_run)(cell, store.configuration, data_dir) for cell in missing)
    parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered", batch_size=1)
    for cell, result in parallel(tasks):
        store.add(cell, result)
        finished(cell)


def _run(
    cell: Cell, configuration: Configuration, data_dir: str | None
) -> tuple[Cell, dict[str, Any]]:
    return cell, run_cell(cell, configuration, data_dir)
