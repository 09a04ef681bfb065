"""Models to compare: X (n, d), y (n,), X_test (N, d) and a seed -> Answer.

Each imports its library when it is called; the package itself needs none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.studies import peers_gp, peers_trees
from benchmarks.studies.answers import (
    FEWEST_CONFORMAL,
    INTERVAL_LEVEL,
    Answer,
    hold_out,
    imported,
    seconds_of,
    timed,
)
from manygp.arrays import Array
from manygp.regressor import ManyGPRegressor

Peer = Callable[[Array, Array, Array, int], Answer]


def many(X: Array, y: Array, X_test: Array, seed: int, **parameters: Any) -> Answer:
    """This library: `ManyGPRegressor()` with other parameters, if any."""
    return answer_of(*fitted(X, y, seed, **parameters), X_test)


def fitted(X: Array, y: Array, seed: int, **parameters: Any) -> tuple[ManyGPRegressor, float]:
    """A model of this library, and the seconds that it took."""
    model = ManyGPRegressor(random_state=seed, n_jobs=-1, **parameters)
    return model, seconds_of(lambda: model.fit(X, y))


def answer_of(model: ManyGPRegressor, fit_seconds: float, X_test: Array) -> Answer:
    """What a model of this library answers; few rows allow no conformal interval."""
    (mean, std), seconds = timed(lambda: model.predict(X_test, return_std=True))
    report = model.calibration_report_
    chosen = {} if report is None else report.chosen
    interval = None
    if len(model.model_.committee.training_data().X) >= FEWEST_CONFORMAL:
        interval = model.predict_interval(X_test, INTERVAL_LEVEL)
    distribution = model.predict_dist(X_test)
    note = ", ".join(_choice_texts(chosen))
    return Answer(mean, std, fit_seconds, seconds, note, interval, distribution)


def manygp_uncalibrated(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """This library with `calibration="none"`, and normal distributions."""
    return many(X, y, X_test, seed, calibration="none")._replace(distribution=None)


def manygp_nested(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """This library with an aggregation that models dependence."""
    return many(X, y, X_test, seed, aggregation="nested")


def manygp_grbcm(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """This library with a communication expert."""
    return many(X, y, X_test, seed, aggregation="grbcm")


def manygp_hurried(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """This library with five seconds to fit."""
    return many(X, y, X_test, seed, time_budget=5.0)


def mapie(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """MAPIE's split-conformal intervals around the mean of this library.

    A fifth of the rows is held out of the fit. The root mean square error of these is the std of
    every row.
    """
    imported("mapie")
    from mapie.regression import SplitConformalRegressor

    rows = hold_out(X, y, seed)
    model, fit_seconds = fitted(rows.X, rows.y, seed)
    conformal = SplitConformalRegressor(model, confidence_level=INTERVAL_LEVEL, prefit=True)
    fit_seconds += seconds_of(lambda: conformal.conformalize(rows.X_held, rows.y_held))
    (mean, ends), seconds = timed(lambda: conformal.predict_interval(X_test))
    errors = rows.y_held - model.predict(rows.X_held)
    std = np.full(len(mean), np.sqrt(np.mean(errors**2)))
    interval = (ends[:, 0, 0], ends[:, 1, 0])
    return Answer(mean, std, fit_seconds, seconds, interval=interval)


# The models by name; `names` has the heads of their columns.
PEERS: dict[str, Peer] = {
    "manygp": many,
    "manygp-nested": manygp_nested,
    "manygp-grbcm": manygp_grbcm,
    "exact": peers_gp.exact,
    "neighbours": peers_gp.neighbours,
    "scikit-learn": peers_gp.sklearn_gpr,
    "gpboost": peers_gp.gpboost,
    "svgp": peers_gp.svgp,
    "muygps": peers_gp.muygps,
    "catboost": peers_trees.catboost_uncertainty,
    "catboost-conformal": peers_trees.catboost_conformal,
    "catboost-quantiles": peers_trees.catboost_quantiles,
    "ngboost": peers_trees.ngboost,
    "treeffuser": peers_trees.treeffuser,
    "lightgbm": peers_trees.lightgbm,
    "lightgbm-quantiles": peers_trees.lightgbm_quantiles,
    "hist-boosting": peers_trees.hist_boosting,
    "extra-trees": peers_trees.extra_trees,
    "mapie": mapie,
    "manygp-5s": manygp_hurried,
    "manygp-uncalibrated": manygp_uncalibrated,
}


def _choice_texts(chosen: dict[str, Any]) -> list[str]:
    """Names and values of what the calibration chose."""
    return [
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in chosen.items()
    ]
