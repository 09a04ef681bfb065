"""Boosted trees to compare with: X (n, d), y (n,), X_test (N, d), seed -> Answer.

Parameters are the libraries' own, but for the seed and the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.studies.answers import (
    Answer,
    conformal_reach,
    hold_out,
    imported,
    seconds_of,
    timed,
)
from manygp.arrays import Array

# Threads of a library that asks for their number.
THREADS = 2
# Truncated copies of a CatBoost model whose spread is its knowledge uncertainty.
VIRTUAL_ENSEMBLES = 10


def catboost_uncertainty(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """CatBoost with RMSEWithUncertainty, which learns mean and variance of each row.

    The variance is that of the data plus the spread of ten virtual ensembles (knowledge), without
    posterior sampling. Distributions are normal.
    """
    model = _catboost(seed, loss_function="RMSEWithUncertainty")
    fit_seconds = seconds_of(lambda: model.fit(X, y))

    def predict() -> tuple[Array, Array]:
        mean = model.predict(X_test)[:, 0]
        _, knowledge, data = model.virtual_ensembles_predict(
            X_test,
            prediction_type="TotalUncertainty",
            virtual_ensembles_count=VIRTUAL_ENSEMBLES,
            thread_count=THREADS,
        ).T
        return mean, np.sqrt(knowledge + data)

    (mean, std), seconds = timed(predict)
    return Answer(mean, std, fit_seconds, seconds)


def catboost_conformal(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """CatBoost's mean with a split-conformal interval; see `_with_constant_std`."""
    return _with_constant_std(_catboost(seed), X, y, X_test, seed)


def lightgbm(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """LightGBM's mean with a split-conformal interval; see `_with_constant_std`."""
    model = imported("lightgbm").LGBMRegressor(random_state=seed, n_jobs=THREADS, verbose=-1)
    return _with_constant_std(model, X, y, X_test, seed)


def hist_boosting(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """scikit-learn's histogram boosting, split-conformal; see `_with_constant_std`."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    return _with_constant_std(HistGradientBoostingRegressor(random_state=seed), X, y, X_test, seed)


def ngboost(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """NGBoost, which learns the mean and std of a normal distribution of each row."""
    model = imported("ngboost").NGBRegressor(random_state=seed, verbose=False)
    fit_seconds = seconds_of(lambda: model.fit(X, y))
    found, seconds = timed(lambda: model.pred_dist(X_test))
    return Answer(found.loc, found.scale, fit_seconds, seconds)


def _catboost(seed: int, **parameters: Any) -> Any:
    return imported("catboost").CatBoostRegressor(
        random_seed=seed,
        thread_count=THREADS,
        verbose=False,
        allow_writing_files=False,
        **parameters,
    )


def _with_constant_std(model: Any, X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """A model of the mean, fitted to four fifths of the rows.

    The root mean square error of the other fifth is the std of every row, and the conformal
    quantile of its errors is half the width of every interval.
    """
    rows = hold_out(X, y, seed)
    fit_seconds = seconds_of(lambda: model.fit(rows.X, rows.y))
    mean, seconds = timed(lambda: np.asarray(model.predict(X_test), dtype=float))
    errors = rows.y_held - model.predict(rows.X_held)
    std = np.full(len(mean), np.sqrt(np.mean(errors**2)))
    reach = conformal_reach(errors)
    return Answer(mean, std, fit_seconds, seconds, interval=(mean - reach, mean + reach))
