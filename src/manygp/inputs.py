"""Data of all kinds to arrays, scaled; errors name the column and the row."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, NamedTuple, Self

import numpy as np

from manygp.arrays import LARGEST, AnyArray, Array, IndexArray
from manygp.runtime.progress import warn

# Raw targets whose variance differs from the kernel's by this factor are beyond its bounds.
FAR = 100.0
# How types that are not numbers call themselves in NumPy, pandas, polars and pyarrow.
NOT_NUMBERS = (
    "str", "large_string", "utf8", "<u", "|s", "cat", "enum", "dictionary", "date", "duration",
    "time", "period", "interval", "<m8", ">m8",
)  # fmt: skip


def read_only(array: AnyArray) -> AnyArray:
    """The same numbers, in an array that refuses to be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def check_number(what: str, value: Any, least: float, other: str = "") -> None:
    """Refuse a parameter that is not a finite number of at least `least`."""
    if is_number(value) and least <= value < np.inf:
        return
    raise ValueError(f"{what} must be {other}a number of at least {least}, not {value!r}")


def check_integer(what: str, value: Any, least: int, other: str = "") -> None:
    """Refuse a parameter that is not an integer of at least `least`."""
    if _is(value, Integral) and value >= least:
        return
    raise ValueError(f"{what} must be {other}an integer of at least {least}, not {value!r}")


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool | np.bool_)


def is_number(value: Any) -> bool:
    """Whether a value is a real number, NaN not among them."""
    return _is(value, Real) and bool(value == value)


def refuse_masked(values: Any, what: str) -> None:
    """Refuse an array of NumPy's that masks values: to take them as they are would be wrong."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(
            f"{what} is a masked array with masked values; fill them, or drop their rows"
        )


def plain_floats(values: Any, what: str) -> Array:
    """Floats of any shape; without elements where these are no real numbers."""
    refuse_masked(values, what)
    try:
        array = np.asarray(values)
        array = np.empty((0, 0, 0)) if np.iscomplexobj(array) else array
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.empty((0, 0, 0))


def check_alpha(alpha: Any, n_rows: int) -> Array:
    """Noise variances of the rows, (n,), from a scalar or one per row."""
    values = plain_floats(alpha, "alpha")
    if values.shape not in ((), (n_rows,)):
        raise ValueError(
            "alpha must be a scalar or an array with same number of entries as y, one per row: "
            f"{n_rows}; it is {alpha!r}"
        )
    if not np.all(np.isfinite(values)) or np.any(values < 0):
        raise ValueError("alpha is a noise variance: it must be finite and not negative")
    return np.array(np.broadcast_to(values, n_rows))


def check_weights(sample_weight: Any, X: Any) -> Array | None:
    """Weights of the rows X, (n,), from one number or one per row; None if all are 1."""
    if sample_weight is None:
        return None
    from sklearn.utils.validation import _num_samples

    n = _num_samples(X)
    values = plain_floats(sample_weight, "sample_weight")
    if values.shape not in ((), (n,)):
        raise ValueError(
            f"sample_weight must be one number for each of the {n} rows, or one for all; its "
            f"shape is {np.shape(sample_weight)}"
        )
    weights = np.array(np.broadcast_to(values, n))
    wrong = ~(np.isfinite(weights) & (weights >= 0)) | (weights > LARGEST)
    wrong |= (weights > 0) & (weights < 1 / LARGEST)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"sample_weight is {weights[row]} in row {row}; weights must be finite and not "
            f"negative, and 0 or between {1 / LARGEST:g} and {LARGEST:g}: the noise of a row is "
            "divided by its weight"
        )
    if not weights.any():
        raise ValueError("sample_weight is zero in all rows: none is left to learn from")
    return None if np.all(weights == 1) else weights


def normalised_alpha(alpha: Array, scale: Array) -> Array:
    """Noise variances (n,) in units of the targets' scales (t,).

    Targets share one covariance: where their scales differ, alpha is in units of each one's own
    variance already.
    """
    unit = scale[0] if np.all(scale == scale[0]) else 1.0
    with np.errstate(over="ignore"):
        normalised = np.asarray((np.sqrt(alpha) / unit) ** 2)
    if len(normalised) and normalised.max() > LARGEST:
        raise ValueError(
            f"alpha is too large for targets of scale {unit:.3g}; it is a variance, "
            "in the square of their units"
        )
    return normalised


def check_targets(Y: Array, n_targets: int | None) -> None:
    """Refuse targets (n, t) of another number than was announced."""
    if n_targets is not None and Y.shape[1] != n_targets:
        raise ValueError(
            "The number of targets seen in `y` is different from the parameter `n_targets`. Got "
            f"{Y.shape[1]} != {n_targets}"
        )


def check_magnitude(values: Array, what: str, names: Any) -> None:
    """Refuse (scaled) values whose squares would overflow."""
    if values.min() >= -LARGEST and values.max() <= LARGEST:
        return
    large = np.abs(values) > LARGEST
    if large.any():
        row, column = np.argwhere(large)[0]
        raise ValueError(
            f"{what} is too large in {_place(what, row, column, names)}: its square overflows. "
            f"Scale it, or set normalize_{what}=True; at predict, it lies too far from the "
            "training data"
        )


def scaled_rows(X: Array, scaling: Scaling, names: Any) -> Array:
    """Rows X (N, d) in the units of the kernel; a row too far from the others is refused."""
    Z = np.ascontiguousarray(scaling.apply(X))
    check_magnitude(Z, "X", None if isinstance(names, int) else names)
    return Z


def scaled_alpha(alpha: Any, n_rows: int, y_scaling: Scaling) -> Array:
    """Noise variances of the rows, (n,), in the units of the normalised target."""
    return normalised_alpha(check_alpha(alpha, n_rows), y_scaling.scale)


def scalings(
    X: Array, Y: Array, weights: Array | None = None, *, scale_X: bool, scale_y: bool
) -> tuple[Scaling, Scaling]:
    """How inputs (n, d) and targets (n, t) of rows with weights (n,) are scaled."""
    if not scale_y:
        check_magnitude(Y, "y", None)
    if len(Y) == 1:
        warn("one row tells nothing about errors; the std is a guess, and there is no interval")
    return Moments.of(X, Y, weights).scalings(scale_X=scale_X, scale_y=scale_y)


def check_raw_targets(Y: Array, least: float, most: float) -> None:
    """Warn of targets without normalize_y that the kernel cannot match.

    `least` is the smallest noise variance and `most` the largest prior variance of its bounds.
    """
    variance = Y.var(axis=0)
    if np.any((variance < least / FAR) | (variance > most * FAR)):
        warn(
            f"y has a standard deviation of {Y.std(axis=0).min():.3g}, which the bounds of the "
            "kernel cannot match; set normalize_y=True, or its std will be meaningless"
        )


def check_repeated_rows(X: Array, Y: Array) -> None:
    """Warn of equal rows with different targets, which a kernel without noise cannot explain."""
    order = np.lexsort(X.T)
    same = np.all(X[order[1:]] == X[order[:-1]], axis=1)
    differ = same & np.any(Y[order[1:]] != Y[order[:-1]], axis=1)
    if differ.any():
        first = int(np.argmax(differ))
        a, b = sorted((int(order[first]), int(order[first + 1])))
        warn(
            f"rows {a} and {b} are equal, their targets are not, and the kernel has no noise: its "
            "std will be meaningless there; add White() to it, or set alpha"
        )


def _columns(data: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Name, type and values of each column of a table, or of the whole of anything else."""
    if hasattr(data, "schema") and hasattr(data, "column"):  # pyarrow
        for name, kind in zip(data.schema.names, data.schema.types, strict=True):
            yield name, kind, data.column(name)
    elif hasattr(data, "dtypes") and hasattr(data, "columns"):  # pandas and polars
        for i, (name, kind) in enumerate(zip(data.columns, data.dtypes, strict=True)):
            yield name, kind, data.iloc[:, i] if hasattr(data, "iloc") else data[name]
    elif hasattr(data, "dtype"):  # a series or an array
        yield getattr(data, "name", None), data.dtype, data


def is_table(data: Any) -> bool:
    """Whether data is a table of pandas, polars or pyarrow, or of `manygp.tables`."""
    arrow = hasattr(data, "schema") and hasattr(data, "column")
    return arrow or (hasattr(data, "columns") and hasattr(data, "dtypes"))


class NamedArray(np.ndarray[Any, np.dtype[Any]]):
    """An array that tells scikit-learn's `validate_data` the names of its columns."""

    names: list[str]

    def __dataframe__(self) -> Self:
        return self

    def column_names(self) -> list[str]:
        """The names, as the protocol calls them."""
        return self.names


def with_names(data: Any) -> Any:
    """Data, or a table or array of it where scikit-learn would not find the names of its columns.

    It finds those of tables of pyarrow, not of their batches. Before 1.9 it asks by a protocol
    that tables of polars 2 do not have.
    """
    if type(data).__name__ == "RecordBatch":
        import pyarrow

        data = pyarrow.Table.from_batches([data])
    names = getattr(data, "column_names", getattr(data, "columns", None))  # pyarrow, polars
    if not isinstance(names, list) or hasattr(data, "__dataframe__"):
        return data
    from sklearn import __version__

    if tuple(map(int, __version__.split(".")[:2])) >= (1, 9):
        return data
    named = np.asarray(data).view(NamedArray)
    named.names = names
    return named


def refuse_unnumeric(data: Any, what: str) -> None:
    """Refuse tables and arrays with columns that hold no numbers, and masked values."""
    refuse_masked(data, what)
    for name, kind, values in _columns(data):
        bad = str(kind).lower().startswith(NOT_NUMBERS)
        if not bad and str(kind) == "object" and name is not None:
            try:
                np.asarray(values, dtype=np.float64)
            except (TypeError, ValueError):
                bad = True
        if bad:
            where = what if name is None else f"column {name!r} of {what}"
            raise ValueError(
                f"{where} is of type {kind}, not a number; encode it first (scikit-learn's "
                "OneHotEncoder for categories, days since a start for dates), or fit a table of "
                "such columns with columns='auto'"
            )


def name_text(X: Any, error: ValueError) -> None:
    """Say where the text is that could not be taken for a number."""
    if "could not convert string" not in str(error):
        return
    for row, values in enumerate(np.asarray(X, dtype=object)):
        for column, value in enumerate(np.atleast_1d(values)):
            if isinstance(value, str):
                raise ValueError(
                    f"X holds the text {value!r} in {_place('X', row, column, None)}: {error}; "
                    "encode it first, or leave the column out"
                ) from error


class MissingValueError(ValueError):
    """A value is missing where numbers must be complete."""


def refuse_missing(values: Array, what: str, names: Any) -> None:
    """Refuse values that are not finite, and say where the first is."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):  # without an array of the answers
            return
    finite = np.isfinite(values)
    if finite.all():
        return
    row, column = np.argwhere(~finite)[0]
    is_nan = np.isnan(values[row, column])
    remedy = "drop such rows, or fill them in, for example with scikit-learn's SimpleImputer"
    if what == "y":
        axis, n_rows = ".all(axis=1)" if values.shape[1] > 1 else "", (~finite).any(axis=1).sum()
        remedy = (
            f"rows without a target teach nothing, {n_rows:,} of {len(values):,}: leave them out "
            f"with known = np.isfinite(y){axis} and fit(X[known], y[known])"
        )
    raise (MissingValueError if is_nan else ValueError)(
        f"Input {what} contains {'NaN' if is_nan else 'infinity'}, first in "
        f"{_place(what, row, column, names)}; {remedy}"
    )


def _place(what: str, row: int, column: int, names: Any) -> str:
    if what == "y":
        return f"row {row}"
    return f"column {column if names is None else repr(names[column])}, row {row}"


class Scaling(NamedTuple):
    """An affine map of columns: scaled = (raw - shift) / scale, all of shape (columns,).

    It works in halves, since raw - shift and scale may overflow near the largest float.
    """

    shift: Array
    half_scale: Array

    @property
    def scale(self) -> Array:
        return 2 * self.half_scale

    def apply(self, raw: Array) -> Array:
        # A row too far from the others to be scaled becomes infinite, for the caller to refuse.
        with np.errstate(over="ignore"):
            scaled: Array = raw / 2
            scaled -= self.shift / 2
            scaled /= self.half_scale
        return scaled

    def spread(self, mean: Array, std: Array) -> tuple[Array, Array]:
        """Scaled std and mean, (N, t) each, of raw ones: (N,) or (N, t)."""
        shape = len(std), -1
        return std.reshape(shape) / self.scale, self.apply(mean.reshape(shape))

    def undo(self, scaled: Array) -> Array:
        return scaled * self.scale + self.shift


def identity(n_columns: int) -> Scaling:
    """The map that changes nothing."""
    return Scaling(np.zeros(n_columns), np.full(n_columns, 0.5))


class Moments(NamedTuple):
    """Moments of rows, on which their scales depend.

    Attributes
    ----------
    n : int
        The number of rows.
    low, high : ndarrays of shape (d + t,)
        Ranges of inputs and targets.
    mean, half_std : ndarrays of shape (t,)
        Of the targets.
    """

    n: int
    low: Array
    high: Array
    mean: Array
    half_std: Array

    @classmethod
    def of(cls, X: Array, Y: Array, weights: Array | None = None) -> Moments:
        """Those of rows in memory: X (n, d) and Y (n, t), with weights (n,)."""
        low, high = (np.concatenate([of(X, axis=0), of(Y, axis=0)]) for of in (np.min, np.max))
        size = np.abs(Y).max(axis=0)
        size = np.where(size > 0, size, 1.0)
        unit = Y / size  # its squares neither overflow nor underflow
        mean, std = unit.mean(axis=0), unit.std(axis=0)
        if weights is not None:
            mean = np.average(unit, axis=0, weights=weights)
            std = np.sqrt(np.average((unit - mean) ** 2, axis=0, weights=weights))
        return cls(len(Y), low, high, mean * size, std * size / 2)

    def scalings(self, *, scale_X: bool, scale_y: bool) -> tuple[Scaling, Scaling]:
        """Inputs to [0, 1], targets to mean 0 and standard deviation 1.

        A constant input becomes 0, and a constant target keeps its scale.
        """
        t = len(self.mean)
        d = len(self.low) - t
        varies = self.high > self.low
        if self.n > 1 and not varies[d:].all():
            warn("y is constant; predictions will be that constant")
        x_scaling, y_scaling = identity(d), identity(t)
        if scale_X:
            half_range = self.high[:d] / 2 - self.low[:d] / 2
            x_scaling = Scaling(self.low[:d], np.where(half_range > 0, half_range, 0.5))
        if scale_y:  # the mean of equal numbers need not be equal to them
            half_std = np.where(varies[d:] & (self.half_std > 0), self.half_std, 0.5)
            y_scaling = Scaling(self.mean, half_std)
        return Scaling(*map(read_only, x_scaling)), Scaling(*map(read_only, y_scaling))


class KnownRows(NamedTuple):
    """Rows to learn from: X (n, d), Y (n, t), known noise variances (n,), and weights if any."""

    X: Array
    Y: Array
    alpha: Array
    weights: Array | None = None

    def some(self, rows: IndexArray) -> KnownRows:
        """Some of the rows, or all in another order."""
        kept = None if self.weights is None else self.weights[rows]
        return KnownRows(self.X[rows], self.Y[rows], self.alpha[rows], kept)

    def in_own_order(self) -> tuple[KnownRows, IndexArray]:
        """The same rows in an order that depends on what they hold alone, and their places (n,).

        They are sorted, which units do not change, and then mixed.
        """
        X, Y, alpha, weights = self
        columns = [*([] if weights is None else [weights]), alpha, *Y.T, *X.T]
        order = np.lexsort(columns)[np.random.default_rng(0).permutation(len(X))]
        return self.some(order), order


def known_rows(
    estimator: Any,
    data: tuple[Any, Any],
    encoder: Any,
    weights: Any,
    alpha: Any,
    groups: IndexArray | None = None,
) -> KnownRows:
    """The rows of the data X, y that have a weight, as finite floats; sets the columns."""
    weights = check_weights(weights, data[1])  # X may be a batch of columns
    kept = None if weights is None or weights.all() else weights > 0
    X, Y = training_rows(estimator, *data, encoder, kept, groups)
    if kept is None:
        noise = check_alpha(alpha, len(Y))
    else:
        noise, weights = check_alpha(alpha, len(kept))[kept], weights[kept]
    if encoder is not None and encoder.training_noise_.any():
        noise = noise + encoder.training_noise_
    return KnownRows(X, Y, noise, weights)


def known_rows_at(
    estimator: Any,
    data: tuple[Any, Any],
    encoder: Any,
    known: tuple[Any, Any],
    places: IndexArray,
) -> KnownRows:
    """Of the rows that have a weight those at some places: the others are rows without one.

    `known` are weights and noise variances.
    """
    weights, alpha = known
    weights = check_weights(weights, data[1])
    given = np.ones(len(data[1])) if weights is None else weights
    kept, own = np.flatnonzero(given)[places], np.zeros(len(given))
    own[kept] = given[kept]
    rows = known_rows(estimator, data, encoder, own, alpha)
    return rows if weights is not None else rows._replace(weights=None)


def training_rows(
    estimator: Any,
    X: Any,
    y: Any,
    encoder: Any,
    kept: AnyArray | None = None,
    groups: IndexArray | None = None,
) -> tuple[Array, Array]:
    """X of shape (n, d) and y of shape (n, t), finite floats; sets the estimator's columns.

    Of all rows, which are checked, those that `kept` marks, if it is given. The encoder learns
    what rows of other groups tell, if there are any.
    """
    from sklearn.utils.validation import check_consistent_length

    table, X = X, _new_features(estimator, X) if encoder is None else None
    Y = targets(estimator, y)
    if X is not None:
        check_consistent_length(X, Y)
    refuse_missing(Y, "y", None)
    if X is None:
        X = np.ascontiguousarray(encoder.fit_transform(table, Y, rows=kept, groups=groups))
        estimator.n_features_in_ = encoder.n_features_in_
        estimator.feature_names_in_ = encoder.feature_names_in_
    elif kept is not None:
        X = X[kept]
    return X, Y if kept is None else Y[kept]


def targets(estimator: Any, y: Any) -> Array:
    """y as floats (n, t), of as many targets as were announced."""
    from scipy.sparse import issparse
    from sklearn.utils.validation import check_array

    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"{name} requires y to be passed, but the target y is None")
    if issparse(y):
        raise ValueError("y is a sparse matrix; pass an array")
    if isinstance(y, Real) or getattr(y, "ndim", 1) == 0:
        raise ValueError(f"y must have one value for each row, also of one row: it is {y!r}")
    refuse_unnumeric(y, "y")
    given = {"ensure_2d": False, "ensure_all_finite": False, "input_name": "y"}
    y = check_array(y, dtype=np.float64, **given)
    Y = np.ascontiguousarray(y.reshape(len(y), -1))  # sums depend on the order in memory
    check_targets(Y, estimator.n_targets)
    return Y


def _new_features(estimator: Any, X: Any) -> Array:
    """X as finite floats (n, d), which sets the columns of the estimator."""
    columns = getattr(X, "columns", None)
    if not isinstance(columns, dict):
        return features(estimator, X, reset=True)
    matrix = features(estimator, np.column_stack(list(columns.values())), reset=True)
    estimator.feature_names_in_ = np.array(list(columns), dtype=object)
    return matrix


def features(estimator: Any, X: Any, *, reset: bool = False) -> Array:
    """X as finite floats (N, d): the columns of fit, or with `reset` those of a new one."""
    if reset or not _is_plain(estimator, X):
        from sklearn.utils.validation import validate_data

        refuse_unnumeric(X, "X")
        try:
            given = with_names(X)
            X = validate_data(
                estimator, given, dtype=np.float64, reset=reset, ensure_all_finite=False
            )
        except ValueError as error:
            name_text(X, error)
            raise
    refuse_missing(X, "X", getattr(estimator, "feature_names_in_", None))
    array: Array = X
    return array


def _is_plain(estimator: Any, X: Any) -> bool:
    """Whether X is what `validate_data` would return, which takes as long as a small query."""
    plain = type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and len(X) > 0
    names = getattr(estimator, "feature_names_in_", None)
    return plain and names is None and X.shape[1] == estimator.n_features_in_


def columns_of(estimator: Any) -> tuple[str, ...] | int:
    """Names of the columns of X, or their number."""
    names = getattr(estimator, "feature_names_in_", None)
    return int(estimator.n_features_in_) if names is None else tuple(names)
