"""The paper's evaluation as a study: every cell fits experts once and scores many models."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import datasets
from benchmarks.studies.paper_plan import FULL_SCOPE, PaperCell, Scope, labels_of
from benchmarks.studies.study import Configuration, InParallel, Result, Study
from manygp.arrays import Array
from manygp.metrics import ence, nll, reliability_curve, rmse
from manygp.paper import LABELS
from manygp.regressor import ManyGPRegressor
from manygp.rules import ExpertPredictions, PredictionRules

# The arrays of ExpertPredictions that have one row per expert.
ARRAYS_BY_EXPERT = ("mean", "variance", "prior_variance", "noise_variance", "prior_mean")


def paper_study(n_jobs: int, scope: Scope = FULL_SCOPE) -> Study[PaperCell]:
    """The study that computes `n_jobs` cells at a time."""
    # Imported here, since the workers that import this module need no Matplotlib.
    from benchmarks.studies.paper_page import write_paper

    return Study(
        name="paper",
        cell_type=PaperCell,
        compute=InParallel(partial(run_paper_cell, n_rows=scope.n_rows), n_jobs),
        write=partial(write_paper, remark=scope.remark),
        configuration=Configuration(n_rows=scope.n_rows),
        cost=lambda cell: cell.cost,
    )


def run_paper_cell(cell: PaperCell, data_dir: str | None, n_rows: int | None = None) -> Result:
    """Fit the experts of a cell and score every model that uses them.

    `n_rows` is the size of a synthetic task, if not the paper's.
    """
    data = datasets.split(datasets.load(cell.task, cell.seed, n_rows, data_dir), cell.seed)
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
        if label == "gp-pro-full":  # all experts are the same, so one of them is fitted
            said = _repeated(local, max(1, len(data.y_train) // cell.points))
        mean, std = predictions(label, said)
        seconds = expert_seconds + perf_counter() - start
        models[label] = _score_model(data.y_test, mean, std, seconds)
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


def _repeated(one: ExpertPredictions, copies: int) -> ExpertPredictions:
    """A committee of equal experts: arrays (1, N) become (copies, N)."""
    return ExpertPredictions(
        **{name: getattr(one, name).repeat(copies, axis=0) for name in ARRAYS_BY_EXPERT}
    )


def predictions(label: str, local: ExpertPredictions) -> tuple[Array, Array]:
    """Means (N,) and standard deviations (N,) of a model of the paper from its experts'."""
    settings = LABELS[label]
    rules = PredictionRules.named(
        settings["weighting"], settings["calibration"], "gpoe", settings.get("temperature")
    )
    (mean,), variance, noise = rules.combine([local])
    return mean, np.sqrt(variance + noise)


def _score_model(y: Array, mean: Array, std: Array, seconds: float) -> dict[str, Any]:
    """The scores of predictions (N,) for the targets y (N,)."""
    curve = reliability_curve(y, mean, std)
    return {
        "rmse": rmse(y, mean),
        "nll": nll(y, mean, std),
        "ence": ence(y, mean, std),
        "predict_seconds": round(seconds, 4),
        "curve": {name: np.round(values, 5).tolist() for name, values in curve._asdict().items()},
    }
