"""Tables of pandas, polars and pyarrow as columns of the types that `Batch` names."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from manygp.tables.base import Batch, refuse_repeated

# Integers from here on may be others as floats.
EXACT_INTEGERS = 2**53
# Kinds of objects that no cell may hold.
NO_VALUES = {list, dict, set, frozenset, np.ndarray, complex}


def as_batch(X: Any) -> Batch | None:
    """The columns of a table; None if X is no table."""
    if isinstance(X, Batch):
        return X
    named = _named_columns(X)
    if named is None:
        return None
    names, values, read = named
    refuse_repeated("column", names)
    if not values or not len(values[0]):
        raise ValueError(f"X has {len(values)} columns and no rows, and at least one is required")
    pairs = list(zip(names, values, strict=True))
    categorical = frozenset(name for name, one in pairs if _is_categorical(one))
    columns = {name: read(name, one) for name, one in pairs}
    text = frozenset(name for name, one in pairs if _is_text(one))
    return Batch(0, columns, None, categorical, first=0, text=text)


def _named_columns(X: Any) -> tuple[list[str], list[Any], Callable[..., Any]] | None:
    """Names and columns of a table, and the function that reads one of them."""
    if hasattr(X, "schema") and hasattr(X, "column"):
        names = list(X.schema.names)
        return names, [X.column(i) for i in range(len(names))], _of_arrow
    if not (hasattr(X, "dtypes") and hasattr(X, "columns")):
        return None
    names = list(map(str, X.columns))
    if hasattr(X, "iloc"):
        return names, [X.iloc[:, i] for i in range(len(names))], _of_pandas
    return names, [X[name] for name in names], _of_polars


def _is_categorical(column: Any) -> bool:
    """Whether a column says by its type that it holds categories."""
    kind = str(getattr(column, "dtype", getattr(column, "type", ""))).lower()
    return kind.startswith(("category", "categorical", "enum", "dictionary"))


def _is_text(column: Any) -> bool:
    """Whether a column holds text by its type, or is one of objects that are all text."""
    kind = str(getattr(column, "dtype", getattr(column, "type", ""))).lower()
    if kind == "object":
        present = column[column.notna()] if hasattr(column, "notna") else column.drop_nulls()
        return all(isinstance(value, str) for value in present)
    return kind.startswith(("str", "string", "large_string"))


def needs_encoding(batch: Batch) -> bool:
    """Whether a column is more than complete numbers."""
    return bool(batch.categorical) or any(
        values.dtype.kind not in "fb" or (values.dtype.kind == "f" and np.isnan(values).any())
        for values in batch.columns.values()
    )


def words_of(values: Any, missing: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Values of any kind as stripped text, None where they are missing."""
    pairs = zip(values, missing, strict=True)
    return np.array([None if gone else str(v).strip() for v, gone in pairs], dtype=object)


def numbers_of(
    values: npt.NDArray[Any], missing: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[Any]:
    """Numbers as floats, NaN where missing, or as text where floats would lose digits of ids.

    Parameters
    ----------
    values : ndarray of shape (N,)
        Floats, integers, or objects: integers, floats and decimals.
    missing : ndarray of shape (N,), optional
        Which of them are missing, and may be anything.
    """
    missing = np.zeros(len(values), dtype=bool) if missing is None else missing
    present = values[~missing]
    if _lose_digits(present):
        return words_of(values.tolist(), missing)
    numbers = np.full(len(values), np.nan)
    numbers[~missing] = present
    return numbers


def _lose_digits(values: npt.NDArray[Any]) -> bool:
    """Whether integers are among numbers that may be others as floats."""
    if values.dtype.kind == "O":
        return any(
            v % 1 == 0 and abs(v) >= EXACT_INTEGERS for v in values if not isinstance(v, float)
        )
    if values.dtype.kind not in "iu" or not len(values):
        return False
    return max(abs(int(values.min())), abs(int(values.max()))) >= EXACT_INTEGERS


def _of_pandas(name: str, column: Any) -> npt.NDArray[Any]:
    kind, dtype = getattr(column.dtype, "kind", "O"), str(column.dtype)
    missing = column.isna().to_numpy(dtype=bool)
    if kind == "M":
        naive = column.dt.tz_convert("UTC").dt.tz_localize(None) if column.dt.tz else column
        moments = naive.to_numpy()  # with its own unit: nanoseconds end in 2262
        return moments if moments.dtype.kind == "M" else np.array(moments, "datetime64[us]")
    if dtype.startswith(("timedelta", "period", "interval", "complex")):
        _refuse_type(name, dtype)
    if dtype != "category" and kind in "iuf":
        if kind == "f":
            return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
        whole = column.fillna(0) if missing.any() else column
        return numbers_of(whole.to_numpy(dtype=np.uint64 if kind == "u" else np.int64), missing)
    if kind == "b" and not missing.any():
        return np.asarray(column.to_numpy(dtype=bool))
    return _of_objects(name, column.astype(object).to_numpy(), missing)


def _of_objects(
    name: str, values: npt.NDArray[Any], missing: npt.NDArray[np.bool_]
) -> npt.NDArray[Any]:
    """Python objects: floats if all of them are numbers, else text."""
    present = values[~missing]
    odd = {*map(type, present)} & NO_VALUES
    if odd:  # their text may be cut, or differ between two processes
        _refuse_type(name, min(one.__name__ for one in odd))
    if len(present) and all(isinstance(v, Real) and not isinstance(v, bool) for v in present):
        return numbers_of(values, missing)
    return words_of(values, missing)


def _of_polars(name: str, column: Any) -> npt.NDArray[Any]:
    import polars

    if column.dtype.is_integer():
        return numbers_of(column.fill_null(0).to_numpy(), column.is_null().to_numpy())
    if column.dtype.is_numeric() or column.dtype == polars.Null:
        return np.asarray(column.cast(polars.Float64).to_numpy(), dtype=np.float64)
    if column.dtype == polars.Date or isinstance(column.dtype, polars.Datetime):
        if getattr(column.dtype, "time_zone", None):
            column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return np.asarray(column.to_numpy())
    if column.dtype == polars.Boolean and column.null_count() == 0:
        return np.asarray(column.to_numpy())
    text = (polars.String, polars.Categorical, polars.Enum, polars.Boolean, polars.Object)
    if not isinstance(column.dtype, text):
        _refuse_type(name, column.dtype)
    values = column.to_list()
    return words_of(values, np.array([value is None for value in values], dtype=bool))


def _of_arrow(name: str, column: Any) -> npt.NDArray[Any]:
    from manygp.tables.parquet_files import from_arrow, is_readable

    if not is_readable(column.type):
        _refuse_type(name, column.type)
    combined = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    return from_arrow(combined)


def _refuse_type(name: str, kind: Any) -> None:
    raise ValueError(
        f"column {name!r} of X is of type {kind}, neither a number, text, a category nor a date; "
        "encode it first (a duration as a number of days, for example)"
    )
