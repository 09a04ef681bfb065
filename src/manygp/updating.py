"""What the estimator does with rows that come after `fit`, and with those that are to go."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from manygp import inputs
from manygp.arrays import IndexArray
from manygp.inputs import read_only
from manygp.model import Drift, FittedModel, ids_of
from manygp.runtime.progress import shown
from manygp.training.experts import ExecutionContext
from manygp.training.updates import (
    REFRESHES,
    NewRows,
    forgotten,
    merged,
    places_of,
    refreshed,
    require_row_by_row,
    scaled,
    updated,
    without_copies,
)


class Updating(BaseEstimator):
    """The part of `ManyGPRegressor` that changes the rows of a fitted model.

    Each of its methods sets the model in one step at its end: one that fails or is interrupted
    leaves it as it was.
    """

    fit: Any
    alpha: Any
    n_jobs: int | None
    verbose: bool
    optimizer: Any
    _model: FittedModel
    _require_fit: Any
    _rows: Any
    model_: Any

    def partial_fit(self, X: Any, y: Any, alpha: Any = None, *, refresh: str = "auto") -> Self:
        """Add rows to the model without a new fit.

        Before the first `fit` this is `fit`. After it, rows go to the experts that are nearest,
        which are conditioned anew with the kernel and the trend as they are: predictions are then
        exactly those of these experts on all of their rows. Each row is predicted before it is
        added, and what was seen, `drift_`, is part of what the model knows about its errors.

        Parameters
        ----------
        X : array-like or table of shape (k, d)
            With the columns of `fit`.
        y : array-like of shape (k,) or (k, t)
        alpha : float or array-like of shape (k,), optional
            Known noise variance of these targets, in the square of their units; by default the
            parameter `alpha`, if that is one number.
        refresh : {"auto", "never", "always"}, default="auto"
            When kernel, trend, parts and calibration are learned again, from where they are. With
            "auto" that is when half as many rows have come as they were learned from, or when
            intervals hold other shares of the new rows than they promise.
        """
        _check_refresh(refresh)
        if not self.__sklearn_is_fitted__():
            return self._fitted_first(X, y, alpha)
        self._require_row_by_row()
        model = self._model
        new = self._new_rows(X, y, alpha)
        with shown(verbose=self.verbose) as progress:
            run = ExecutionContext(self.n_jobs, progress, optimizer=self.optimizer)
            changed = updated(model, new, run, refresh)
        return self._changed(model, changed)

    def forget(self, rows: Any = None, *, older_than: int | None = None) -> Self:
        """Take rows out of the model, and what it has learned from their errors.

        Experts that knew them are conditioned anew. Kernel and trend stay as they are.

        Parameters
        ----------
        rows : int or array-like of int, optional
            Numbers of rows: those of `fit` are their places in its data, from 0, and those of
            `partial_fit` go on from there. No number is given twice; `row_ids_` has all of them.
        older_than : int, optional
            All rows with a lower number than this, instead; there need not be any.
        """
        self._require_row_by_row()
        if (rows is None) == (older_than is None):
            raise ValueError("name the rows to forget, or older_than: one of the two")
        model = self._model
        if older_than is not None:
            if not isinstance(older_than, (int, np.integer)):
                raise ValueError(f"older_than must be an integer, not {older_than!r}")
            places = np.flatnonzero(ids_of(model) < int(older_than))
        else:
            places = places_of(model, _integers(rows))
        if not len(places):
            return self
        return self._changed(model, forgotten(model, places, self._context()))

    def merge(self, other: Any, *, refresh: str = "auto") -> Self:
        """Take over the rows of another model, and what it knows about its errors in them.

        Both must have the same columns, targets, scaling and, of tables, the same encoder. Rows
        that both have with the same number are taken once: models that were one before each
        learned rows of its own become one again. New rows get new numbers.

        Parameters
        ----------
        other : ManyGPRegressor
            A fitted model; it stays as it is.
        refresh : {"auto", "never", "always"}, default="auto"
            See `partial_fit`.
        """
        _check_refresh(refresh)
        self._require_row_by_row()
        if not isinstance(other, Updating):
            raise ValueError(f"merge takes a fitted ManyGPRegressor, not a {type(other).__name__}")
        other._require_row_by_row()
        model = self._model
        return self._changed(model, merged(model, other._model, self._context(), refresh))

    def refresh(self) -> Self:
        """Learn kernel, trend, parts and calibration again, from where they are."""
        self._require_row_by_row()
        model = self._model
        with shown(verbose=self.verbose) as progress:
            run = ExecutionContext(self.n_jobs, progress, optimizer=self.optimizer)
            changed = refreshed(model, run)
        return self._changed(model, changed)

    @property
    def drift_(self) -> Drift | None:
        """What rows of `partial_fit` have said about the model; None if there were none."""
        self._require_fit()
        updates = self._model.updates
        return None if updates is None else updates.drift

    @property
    def row_ids_(self) -> IndexArray:
        """Numbers of the training rows, oldest first: (n,)."""
        self._require_fit()
        return read_only(np.sort(ids_of(self._model)))

    def _require_row_by_row(self) -> None:
        """Refuse to change a model whose errors are those of models without groups or time."""
        self._require_fit()
        require_row_by_row(self._model)

    def _changed(self, before: FittedModel, model: FittedModel) -> Self:
        """The estimator with a model that was made of the one that it had before."""
        require_same(self._model, before)
        self._model = model
        return self

    def _context(self) -> ExecutionContext:
        return ExecutionContext(self.n_jobs, optimizer=self.optimizer)

    def _fitted_first(self, X: Any, y: Any, alpha: Any) -> Self:
        """The first fit."""
        fitted: Self = self.fit(X, y) if alpha is None else self.fit(X, y, alpha=alpha)
        return fitted

    def _new_rows(self, X: Any, y: Any, alpha: Any) -> NewRows:
        """Rows and targets in the units of the model."""
        model = self._model
        Y = inputs.targets(self, y)
        inputs.refuse_missing(Y, "y", None)
        if Y.shape[1] != model.n_targets:
            raise ValueError(f"y has {Y.shape[1]} targets, and the model {model.n_targets}")
        if alpha is None and np.ndim(self.alpha):
            raise ValueError(
                "the parameter alpha holds the noise of the rows of `fit`: pass that of these rows"
            )
        values, noise, are_known, codes = self._encoded(X)
        if len(values) != len(Y):
            raise ValueError(f"X has {len(values)} rows, and y {len(Y)}")
        known = inputs.check_alpha(self.alpha if alpha is None else alpha, len(Y)) + noise
        return without_copies(model, scaled(model, values, Y, known, are_known, codes))

    def _encoded(self, X: Any) -> tuple[Any, Any, Any, Any]:
        """Rows as numbers, their noise, whether all of them is known, and their categories."""
        encoder = self._model.encoder
        if encoder is None:
            values = inputs.features(self, X)
            return values, 0.0, np.ones(len(values), dtype=bool), None
        rows, codes = self._rows(X), encoder.codes_
        if rows.encoded is None:
            codes = None if codes is None else np.empty((len(rows.X), 0), dtype=np.int32)
            return rows.X, 0.0, np.ones(len(rows.X), dtype=bool), codes
        if codes is not None:
            from manygp.tables.frames import as_batch

            codes = encoder.codes(as_batch(X))
        return rows.X, rows.encoded.noise, ~rows.encoded.doubtful.any(axis=1), codes


def require_same(model: object, before: object) -> None:
    """Refuse to replace a model by a later one that was made of another."""
    if model is not before:
        raise RuntimeError(
            "another thread has changed the model meanwhile, which is as that one left it: "
            "update it from one thread at a time, and repeat this call"
        )


def _check_refresh(refresh: Any) -> None:
    if not (isinstance(refresh, str) and refresh in REFRESHES):
        raise ValueError(f"refresh must be one of {', '.join(REFRESHES)}, not {refresh!r}")


def _integers(rows: Any) -> IndexArray:
    """Numbers of rows, which must be whole: (k,)."""
    inputs.refuse_masked(rows, "rows")
    try:
        numbers = np.atleast_1d(np.asarray(rows))
    except ValueError:  # rows of different lengths
        numbers = np.empty((0, 0))
    wide = numbers.size and numbers.dtype.kind == "u" and numbers.max() > np.iinfo(np.intp).max
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu") or wide:
        raise ValueError(f"rows are named by whole numbers, see `row_ids_`, not by {rows!r}")
    return numbers.astype(np.intp)
