"""Trends of your own: a function that fits a model becomes a family that can be registered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from manygp.arrays import Array
from manygp.gp.marginal_likelihood import TrainingData
from manygp.gp.trend import FittedCandidate, Trend, TrendFactory, TrendModel
from manygp.runtime.parallel import thread_map

# Folds of rows that a model is fitted without: as many as boosted trees have.
LEFT_OUT_FOLDS = 5


class CustomTrend:
    """Family of one trend, which is fitted to rows without regard to the experts.

    A model is fitted to all rows, and one without each of five folds: the experts learn what these
    leave of rows that they have not seen, so that a trend which follows noise is seen through.

    Parameters
    ----------
    name : str
        What the parameter `trend`, reports and files call it; the name of its models.
    model : type of TrendModel
        What `fit` returns, and what a file is read by.
    fit : callable
        From scaled rows X (n, d) and normalised targets Y (n, t) to a model.
    row_seconds : float
        Seconds that `fit` takes for a row: `time_budget` and the progress bar plan with it.
    """

    def __init__(
        self,
        name: str,
        model: type[TrendModel],
        fit: Callable[[Array, Array], TrendModel],
        row_seconds: float = 1e-5,
    ) -> None:
        self.names, self.model = (name,), model
        self.fit, self.row_seconds = fit, row_seconds

    def factories(self, trend: str, data: Any, seed: int, run: Any) -> Iterator[TrendFactory]:
        (name,) = self.names
        run.progress.begin(f"{name} trend")
        fitted = self._trend(data, seed, run.n_jobs)
        residuals = data.residuals - fitted.fitted
        yield TrendFactory(
            lambda _: FittedCandidate(name, residuals, fitted), float(np.mean(residuals**2))
        )

    def seconds(self, trend: str, shape: tuple[int, int], speed: Any) -> dict[str, float]:
        fits = 1 + LEFT_OUT_FOLDS / speed.gain
        return {self.names[0]: fits * self.row_seconds * shape[0]}

    def _trend(self, data: TrainingData, seed: int, n_jobs: int | None) -> Trend:
        """The model of all rows, and what models of folds say about rows they have not seen."""
        X, Y = data.X, data.residuals
        fold_of = np.random.default_rng(seed).permutation(len(X)) % min(LEFT_OUT_FOLDS, len(X))
        folds = [fold_of == fold for fold in range(LEFT_OUT_FOLDS)]
        with thread_map(n_jobs) as parallel_map:
            models = list(parallel_map(lambda own: self._checked(X[~own], Y[~own]), folds))
        unseen = np.empty_like(Y)
        for own, model in zip(folds, models, strict=True):
            unseen[own] = self._means(model, X[own], Y.shape[1])
        whole = self._checked(X, Y)
        shift = unseen - self._means(whole, X, Y.shape[1])
        return Trend(whole, unseen, shift, np.zeros(len(X)))

    def _checked(self, X: Array, Y: Array) -> TrendModel:
        """The model of these rows, if it has what a trend needs."""
        (name,), model = self.names, self.fit(X, Y)
        for attribute in ("name", "explained", "importance"):
            if not hasattr(model, attribute):
                raise ValueError(f"the model of trend={name!r} has no {attribute}: give it one")
        if model.name != name:
            raise ValueError(f"the model of trend={name!r} has the name {model.name!r}")
        return model

    def _means(self, model: TrendModel, X: Array, n_targets: int) -> Array:
        """What a model says about rows: (N, t)."""
        mean = np.asarray(model.at(X).mean)
        if mean.shape != (len(X), n_targets) or not np.all(np.isfinite(mean)):
            raise ValueError(
                f"the mean of trend={self.names[0]!r} must hold {n_targets} finite numbers for "
                f"each of {len(X):,} rows; its shape is {mean.shape}"
            )
        return mean
