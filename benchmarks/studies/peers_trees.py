"""Boosted trees to compare with: X (n, d), y (n,), X_test (N, d), seed -> Answer.

Parameters are the libraries' own, but for the seed and the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri

from benchmarks.studies.answers import (
    INTERVAL_LEVEL,
    Answer,
    conformal_reach,
    conformal_shift,
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
# Levels of the quantiles that are made conformal: the ends of the interval, and the median.
QUANTILES = (0.5 - INTERVAL_LEVEL / 2, 0.5, 0.5 + INTERVAL_LEVEL / 2)
# The least std of a row whose interval is empty, in units of the std of y.
LEAST_STD = 1e-3
# Draws of Treeffuser for each row.
DRAWS = 100


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


def catboost_quantiles(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """CatBoost's quantiles, all of one model, made conformal; see `_with_quantiles`."""
    levels = ",".join(f"{level:g}" for level in QUANTILES)
    model = _catboost(seed, loss_function=f"MultiQuantile:alpha={levels}")
    return _with_quantiles(model, X, y, X_test, seed)


def lightgbm_quantiles(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """LightGBM's quantiles, of a model each, made conformal; see `_with_quantiles`."""
    return _with_quantiles(_LightGBMQuantiles(seed), X, y, X_test, seed)


def lightgbm(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """LightGBM's mean with a split-conformal interval; see `_with_constant_std`."""
    return _with_constant_std(_lightgbm(seed), X, y, X_test, seed)


def hist_boosting(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """scikit-learn's histogram boosting, split-conformal; see `_with_constant_std`."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    return _with_constant_std(HistGradientBoostingRegressor(random_state=seed), X, y, X_test, seed)


def extra_trees(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """scikit-learn's extra trees, split-conformal; see `_with_constant_std`."""
    from sklearn.ensemble import ExtraTreesRegressor

    return _with_constant_std(ExtraTreesRegressor(random_state=seed), X, y, X_test, seed)


def ngboost(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """NGBoost, which learns the mean and std of a normal distribution of each row."""
    model = imported("ngboost").NGBRegressor(random_state=seed, verbose=False)
    fit_seconds = seconds_of(lambda: model.fit(X, y))
    found, seconds = timed(lambda: model.pred_dist(X_test))
    return Answer(found.loc, found.scale, fit_seconds, seconds)


def treeffuser(X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """Treeffuser, a diffusion model of trees, which draws from the distribution of each row.

    Mean, std and interval are those of 100 draws; distributions are normal.
    """
    model = imported("treeffuser").Treeffuser(seed=seed)
    fit_seconds = seconds_of(lambda: model.fit(X, y))
    draws, seconds = timed(lambda: np.reshape(model.sample(X_test, DRAWS, seed=seed), (DRAWS, -1)))
    lower, _, upper = np.quantile(draws, QUANTILES, axis=0)
    mean, std = draws.mean(axis=0), np.maximum(draws.std(axis=0), LEAST_STD * y.std())
    return Answer(mean, std, fit_seconds, seconds, interval=(lower, upper))


class _LightGBMQuantiles:
    """Three models of LightGBM, which answer as one: quantiles (m, 3) of rows."""

    def __init__(self, seed: int) -> None:
        self.models = [_lightgbm(seed, objective="quantile", alpha=level) for level in QUANTILES]

    def fit(self, X: Array, y: Array) -> None:
        for model in self.models:
            model.fit(X, y)

    def predict(self, X: Array) -> Array:
        return np.column_stack([model.predict(X) for model in self.models])


def _lightgbm(seed: int, **parameters: Any) -> Any:
    lightgbm = imported("lightgbm")
    return lightgbm.LGBMRegressor(random_state=seed, n_jobs=THREADS, verbose=-1, **parameters)


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


def _with_quantiles(model: Any, X: Array, y: Array, X_test: Array, seed: int) -> Answer:
    """A model of the quantiles `QUANTILES`, fitted to four fifths of the rows.

    The ends of the interval move by what makes them right on the other fifth (conformalized
    quantile regression). Distributions are normal: the median is the mean, and the std is the one
    of a normal distribution with an interval of that width. Quantiles that cross are sorted.
    """
    rows = hold_out(X, y, seed)
    fit_seconds = seconds_of(lambda: model.fit(rows.X, rows.y))
    quantiles, seconds = timed(lambda: np.sort(model.predict(X_test), axis=1).astype(float).T)
    lower, median, upper = quantiles
    low, _, high = np.sort(model.predict(rows.X_held), axis=1).T
    shift = conformal_shift(np.maximum(low - rows.y_held, rows.y_held - high))
    # Where the interval would be empty, it is its middle.
    half = np.maximum((upper - lower) / 2 + shift, 0.0)
    middle = (lower + upper) / 2
    std = np.maximum(half / ndtri(QUANTILES[-1]), LEAST_STD * y.std())
    return Answer(median, std, fit_seconds, seconds, interval=(middle - half, middle + half))
