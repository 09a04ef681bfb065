"""Data of all kinds to arrays, with errors that name the column and row."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from manygp.types import Array

# Squares of larger numbers, and sums of them, overflow.
LARGEST_INPUT = 1e150


def check_training_data(estimator: BaseEstimator, X: Any, y: Any) -> tuple[Array, Array]:
    """X of shape (n, d) and y of shape (n, t), finite floats; sets n_features_in_."""
    _refuse_unnumeric(X, "X")
    _refuse_unnumeric(y, "y")
    X, y = validate_data(
        estimator, X, y, dtype=np.float64, multi_output=True, y_numeric=True,
        ensure_all_finite=False,
    )  # fmt: skip
    Y = np.asarray(y, dtype=np.float64).reshape(len(X), -1)
    _refuse_missing(X, "X", getattr(estimator, "feature_names_in_", None))
    _refuse_missing(Y, "y", None)
    return X, Y


def check_features(estimator: BaseEstimator, X: Any) -> Array:
    """X of shape (N, d) for predict: finite floats, the columns of fit."""
    _refuse_unnumeric(X, "X")
    X = validate_data(estimator, X, dtype=np.float64, reset=False, ensure_all_finite=False)
    _refuse_missing(X, "X", getattr(estimator, "feature_names_in_", None))
    array: Array = X
    return array


def check_alpha(alpha: Any, n_rows: int) -> Array:
    """Noise variances of the rows, (n,), from a scalar or one per row."""
    values = np.asarray(alpha, dtype=np.float64)
    if values.shape not in ((), (n_rows,)):
        raise ValueError(
            f"alpha must be a number or one per row, shape ({n_rows},), not {values.shape}"
        )
    if not np.all(np.isfinite(values)) or np.any(values < 0):
        raise ValueError("alpha is a noise variance: it must be finite and not negative")
    return np.array(np.broadcast_to(values, n_rows))


def check_magnitude(X: Array, names: Any) -> None:
    """Refuse inputs whose squared distances would overflow."""
    large = np.abs(X).max(axis=0) > LARGEST_INPUT
    if np.any(large):
        raise ValueError(
            f"X holds values beyond {LARGEST_INPUT:g} in column {_name(large, names)}, whose "
            "squares overflow; scale it, or set normalize_X=True"
        )


def _refuse_unnumeric(data: Any, what: str) -> None:
    if isinstance(data, np.ma.MaskedArray) and np.ma.is_masked(data):
        raise ValueError(
            f"{what} is a masked array with masked values; fill them, or drop their rows"
        )
    dtypes = getattr(data, "dtypes", None)
    columns = getattr(data, "columns", None)
    if dtypes is None or columns is None:
        return
    for column, dtype in zip(columns, dtypes, strict=True):
        kind = str(dtype).lower()
        if kind.startswith(("categor", "enum", "date", "duration", "time", "period", "interval")):
            raise ValueError(
                f"column {column!r} of {what} is of type {dtype}, not a number; encode it first "
                "(scikit-learn's OneHotEncoder for categories, days since a start for dates)"
            )


def _refuse_missing(values: Array, what: str, names: Any) -> None:
    finite = np.isfinite(values)
    if finite.all():
        return
    row, column = (int(i) for i in np.argwhere(~finite)[0])
    kind = "NaN" if np.isnan(values[row, column]) else "infinity"
    where = f"column {_name(~finite.all(axis=0), names)}, " if what == "X" else ""
    raise ValueError(
        f"Input {what} contains {kind} ({where}row {row} first); drop such rows, or fill them "
        "in, for example with scikit-learn's SimpleImputer"
    )


def _name(bad: Any, names: Any) -> str:
    first = int(np.argmax(bad))
    return f"{first}" if names is None else f"{names[first]!r}"
