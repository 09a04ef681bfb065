"""Slopes of predictions, and sample paths: draws of functions that answer anywhere."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from manygp import answers, inputs
from manygp.answers import Rows
from manygp.arrays import Array, IndexArray
from manygp.committee.gradients import combined, gradients, record_of
from manygp.committee.paths import CommitteePaths
from manygp.dual import Dual, with_slopes
from manygp.model import FittedModel
from manygp.noise import split_variance

NO_SLOPES_OF_TABLES = (
    "the columns are those of a table, which are encoded: there are no derivatives by them; fit "
    "plain numbers"
)

NO_SLOPES_OF_STEPS = (
    "many targets share a value, which has a chance of its own: paths of such a model have no "
    "slopes; fit with target_transform=None"
)
# Small differences, in units of the std: their error is as small as that of rounding.
DIFFERENCE = 1e-4


class Slopes(NamedTuple):
    """Mean and std (N,) of rows, and their derivatives by the columns (N, d)."""

    mean: Array
    std: Array
    mean_slope: Array
    std_slope: Array


def predict_slopes(model: FittedModel, X: Array, *, latent: bool = False) -> Slopes:
    """Mean and std of y, or of the latent function, with their derivatives.

    A ValueError says what has no derivative.
    """
    total, function = slopes_of_z(model, X)
    if answers.is_of_y(model):
        return function if latent else total
    return _in_units_of_y(model, total, function if latent else None)


def _in_units_of_y(model: FittedModel, total: Slopes, function: Slopes | None) -> Slopes:
    """Those of y, by small differences of mean and std of T(y), and of the function's share."""

    def of_y(mean: Array, std: Array, *share: Array) -> Array:
        latent = share[0] * std if share else None
        return np.array(answers.in_units_of_y(model, mean, std, latent))

    at, moves = [total.mean, total.std], [total.mean_slope, total.std_slope]
    steps = [DIFFERENCE * total.std] * 2
    if function is not None:
        share = np.minimum(function.std / total.std, 1.0)
        rise = (function.std_slope - share[:, None] * total.std_slope) / total.std[:, None]
        at, moves, steps = [*at, share], [*moves, rise], [*steps, DIFFERENCE * share]
    slopes = np.zeros((2, *total.mean_slope.shape))
    for i, (rise, step) in enumerate(zip(moves, steps, strict=True)):
        high = at[i] + step if i < 2 else np.minimum(at[i] + step, 1.0)
        low = at[i] - step
        change = of_y(*at[:i], high, *at[i + 1 :]) - of_y(*at[:i], low, *at[i + 1 :])
        slopes += (change / (high - low))[..., None] * rise
    mean, std = of_y(*at)
    return Slopes(mean, std, *slopes)


def slopes_of_z(model: FittedModel, X: Array) -> tuple[Slopes, Slopes]:
    """Those of T(y), with the noise and without."""
    Z = inputs.scaled_rows(X, model.x_scaling, model.columns)
    moments = gradients(model.committee, model.rules, Z, model.settings.n_jobs)
    return in_units_of_z(model, Z, moments)


def in_units_of_z(
    model: FittedModel, Z: Array, moments: tuple[Dual, ...]
) -> tuple[Slopes, Slopes]:
    """Those of T(y), with the noise and without, of what `gradients` says of scaled rows."""
    mean, function, noise = moments
    total: Any = function + noise
    if model.noise is not None and model.rules == model.chosen:
        total = total * np.exp(model.noise.log_factor(0, with_slopes(Z), total, mean))
        function, _ = split_variance(function, total)  # type: ignore[arg-type, assignment]
    unit, centre = model.y_scaling.scale[0] / model.x_scaling.scale, mean.value[None]
    centre = answers.in_units(model, centre)

    def answered(variance: Any) -> Slopes:
        std: Any = np.sqrt(variance)
        spread = answers.std_in_units(model, std.value)
        return Slopes(centre, spread, unit * mean.slope, unit * std.slope)

    return answered(total), answered(function)


class PathSlopes(NamedTuple):
    """Values of paths at rows, (N, p), and their derivatives by the columns, (N, p, d)."""

    value: Array
    slope: Array


class SamplePaths:
    """Draws of the latent function, each the same whenever and wherever it is asked.

    Their means, std and covariances are those of `predict` with `latent=True`, up to the error
    that a number of draws has. They stay as they are when the estimator is fitted again.

    Parameters
    ----------
    model : FittedModel
    n_paths : int
    seed : int
    rows : callable
        From what the estimator takes as X to `Rows`.
    """

    def __init__(
        self, model: FittedModel, n_paths: int, seed: int, rows: Callable[[Any], Rows]
    ) -> None:
        if model.n_targets > 1:
            raise ValueError("paths are for models of one target; fit each target by itself")
        if model.rules.needs.dependence:
            raise ValueError(
                "paths are for aggregations that weigh the experts; this one models what they "
                "have in common. sample_y draws its values"
            )
        self._model, self._rows = model, rows
        self._drawn = CommitteePaths(
            model.committee, model.rules, n_paths, seed, model.settings.n_jobs
        )
        self._chosen: IndexArray = np.arange(n_paths)

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, which: int | slice | IndexArray) -> SamplePaths:
        """One of the paths, or some of them, which share what was computed."""
        some = object.__new__(SamplePaths)
        some.__dict__.update(self.__dict__)
        some._chosen = np.atleast_1d(self._chosen[which])
        return some

    def __call__(self, X: Any) -> Array:
        """Values of the paths at rows X (N, d): (N, n_paths)."""
        model, rows = self._model, self._rows(X)
        mean, std = rows.transformed(model, latent=True)
        Z = inputs.scaled_rows(rows.X, model.x_scaling, model.columns)
        paths: Array = mean[:, None] + std[:, None] * self._drawn.at(Z, self._chosen)
        if answers.is_of_y(model):
            return paths
        return answers.on_average(model, paths, mean, rows.transformed(model)[1], std)

    def slopes(self, X: Any, which: IndexArray | None = None) -> PathSlopes:
        """Values at rows X (N, d), and their derivatives.

        With `which` (N,) only one path is asked at each row, and arrays have one column.
        """
        model, rows = self._model, self._rows(X)
        if rows.encoded is not None:
            raise ValueError(NO_SLOPES_OF_TABLES)
        if answers.step_of(model) is not None:
            raise ValueError(NO_SLOPES_OF_STEPS)
        Z = inputs.scaled_rows(rows.X, model.x_scaling, model.columns)
        if which is None:
            total, function = slopes_of_z(model, rows.X)
            drawn = self._drawn.slopes(Z, self._chosen)
        else:
            record = record_of(model.committee, model.rules, Z)
            total, function = in_units_of_z(model, Z, combined(model.rules, record))
            drawn = self._drawn.each(Z, self._chosen[which], record)
        mean, std = function.mean[:, None], function.std[:, None]
        value = mean + std * drawn.value
        slope = function.mean_slope[:, None] + std[..., None] * drawn.slope / model.x_scaling.scale
        slope = slope + function.std_slope[:, None] * drawn.value[..., None]
        if model.target_transform is None:
            return PathSlopes(value, slope)
        noise = _noise(total.std, function.std)
        rise = total.std[:, None] * total.std_slope - function.std[:, None] * function.std_slope
        rise = rise / np.maximum(noise, 1e-300)[:, None]
        return PathSlopes(*model.target_transform.expected_slopes(value, slope, noise, rise))


def _noise(total: Array, latent: Array) -> Array:
    """Std of the noise: (N,)."""
    return np.sqrt(np.maximum(total**2 - latent**2, 0.0))


class SlopesAndPaths(BaseEstimator):
    """The part of `ManyGPRegressor` that optimisers ask for."""

    _rows: Any
    model_: Any

    def predict_slopes(self, X: Any, *, latent: bool = False) -> Slopes:
        """Mean and std with their derivatives by the columns, of many rows at once.

        Noise that is known of single rows (alpha) is no part of them. Where the set of queried
        experts changes, slopes may have a step; values have none. Boosted trees, forests,
        `aggregation="nested"`, rules of yours that are not made of NumPy's elementary functions,
        and tables that need an encoder have no derivatives: a ValueError says so.

        Parameters
        ----------
        X : array-like of shape (N, d)
        latent : bool, default=False
            Leave the noise out of std.

        Returns
        -------
        Slopes
            With `mean` and `std` (N,), `mean_slope` and `std_slope` (N, d), in the units of the
            data.
        """
        model, rows = self.model_, self._rows(X)
        if rows.encoded is not None:
            raise ValueError(NO_SLOPES_OF_TABLES)
        return predict_slopes(model, rows.X, latent=latent)

    def sample_paths(self, n_paths: int = 1, random_state: Any = 0) -> SamplePaths:
        """Draw functions: a path answers at any rows, at any time, as one and the same function.

        `paths(X)` are values of the latent function, (N, n_paths), `paths.slopes(X)` has their
        derivatives too, and `paths[i]` is one path. `sample_y` draws exactly from the joint
        distribution of given rows, for which it needs their (N, N) covariance; paths need no
        such matrix, and have the moments of `predict` and of its covariance up to the error of
        the number of draws. Kernels are sums and products of Matern, RBF, RationalQuadratic and
        Constant, Additive or Pairwise; others are refused.

        Parameters
        ----------
        n_paths : int, default=1
        random_state : int or RandomState, default=0

        Returns
        -------
        SamplePaths
        """
        inputs.check_integer("n_paths", n_paths, 1)
        model, seed = self.model_, int(check_random_state(random_state).randint(2**31))
        return SamplePaths(model, n_paths, seed, copy(self)._rows)
