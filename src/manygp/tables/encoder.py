"""The encoder: columns of a table of any kind become numbers, the same way ever after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from manygp.arrays import Array
from manygp.runtime.progress import warn
from manygp.tables.base import Batch, refuse_repeated, shortened
from manygp.tables.columns import (
    PERIODS,
    POLICIES,
    Column,
    check_policies,
    codes_of,
    column_from_json,
    cycles_of,
    encode_column,
    numbers_from_json,
)
from manygp.tables.frames import as_batch
from manygp.tables.survey import MOST_ONE_HOT, Finding, Problems, Survey, problems_of
from manygp.tables.values import as_days, as_floats, as_words


@dataclass(frozen=True)
class EncodingChoice:
    """Numbers of the encoding of a table, and why they are what they are."""

    # Training rows whose values take the place of one that is missing or unknown, each in turn.
    donors: int = 20
    # Folds of the target means: a training row's own target is in none of its features.
    folds: int = 5
    # At least so many rows tell how much noise missing values make, and at most so many are asked.
    noise_rows: tuple[int, int] = (50, 20_000)
    # A cycle shows if the data hold it this often, two moments in half of it,
    cycle_turns: int = 2
    # and its phases differ: all equal have a spread of 0, those of a whole turn of 1.
    cycle_spread: float = 0.01
    # Rows of which the alternatives are asked about at once.
    doubtful_rows: int = 4096


ENCODING = EncodingChoice()
# The cycles that a new encoder looks for.
SHOWN_CYCLES = ("year", "weekday", "day")


class Encoded(NamedTuple):
    """Rows as numbers, and what is not known about them.

    Attributes
    ----------
    X : ndarray of shape (N, d)
    missing, unknown : ndarrays of shape (N, columns)
        Values that are missing, and categories that are unknown.
    doubtful : ndarray of shape (N, columns)
        Those of them about which training rows have told nothing.
    noise : ndarray of shape (N,)
        By how much missing values, as those of training rows, make the variance of y larger.
    """

    X: Array
    missing: npt.NDArray[np.bool_]
    unknown: npt.NDArray[np.bool_]
    doubtful: npt.NDArray[np.bool_]
    noise: Array

    def some(self, rows: npt.NDArray[Any]) -> Encoded:
        """Some of the rows."""
        return Encoded(*(one[rows] for one in self))


class TableEncoder(TransformerMixin, BaseEstimator):
    """Columns of numbers, categories, text, booleans and dates as numbers.

    Numbers stay as they are. At most ten categories become one feature of 0 and 1 each, more
    become the mean of the target among rows of the category, shrunk towards the mean of all; a
    training row gets that of other folds, in which it is not. Dates become days since 1970
    (UTC), and the cycles of year, week and day that their range and resolution can show: a week as
    one feature of 0 and 1 for each of its days. A
    missing number or date is filled with the median; if training rows lack it too, a further
    feature says so. A missing category is a category.

    Parameters
    ----------
    missing : {"fill", "error"}, default="fill"
        Whether missing values are filled or refused.
    unknown : {"fill", "error"}, default="fill"
        Whether categories that were not there in `fit` are filled with the average of the
        known ones, or refused.
    random_state : int, default=0
        Seed of the folds and of the donors.

    Attributes
    ----------
    columns_ : tuple of Column
        What was learned about each column.
    training_noise_ : ndarray of shape (n,)
        By how much missing values make the variance of the training targets larger.
    donors_ : ndarray of shape (k, d)
        Encoded training rows. `predicted` puts their values, each in turn, in the place of one
        that is missing or unknown.
    codes_ : ndarray of shape (n, w)
        Which of its `categories` a training row has in each of the w columns that became means,
        since the means of other folds do not tell; None in files of manygp 0.2.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (d,)

    Examples
    --------
    >>> import pandas
    >>> from manygp.tables import TableEncoder
    >>> houses = pandas.DataFrame({"size": [50.0, None, 70.0], "town": ["Ulm", "Bonn", "Bern"]})
    >>> encoder = TableEncoder().fit(houses, [1.0, 2.0, 3.0])
    >>> list(encoder.get_feature_names_out())
    ['size', 'size (missing)', 'town=Bern', 'town=Bonn', 'town=Ulm']
    """

    columns_: tuple[Column, ...]
    donors_: Array
    training_noise_: Array
    codes_: npt.NDArray[np.int32] | None = None

    def __init__(
        self, *, missing: str = "fill", unknown: str = "fill", random_state: int = 0
    ) -> None:
        self.missing = missing
        self.unknown = unknown
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Learn what the columns of a table hold.

        Parameters
        ----------
        X : table of shape (n, columns)
            Of pandas, polars or pyarrow.
        y : array-like of shape (n,) or (n, t)
            The targets, for the means of categories.
        """
        self.fit_transform(X, y)
        return self

    def fit_transform(
        self, X: Any, y: Any = None, rows: Any = None, groups: Any = None, **_: Any
    ) -> Array:
        """Learn what the columns hold, and encode them: (n, d), or those that `rows` marks.

        The means of categories are those of other folds; `transform` has those of all rows. Rows
        of the same number in `groups` (n,), from 0 on, are in the same fold, and a category that
        one group alone has tells nothing about others: its mean is that of all.
        """
        batch, Y = _required(as_batch(X)), _targets(y)
        if rows is not None and len(rows) == len(Y):
            batch, Y = batch.some(rows), Y[rows]
            groups = None if groups is None else groups[rows]
        findings = self._findings(batch, len(Y))
        rng = np.random.RandomState(self.random_state)
        folds = _folds(len(Y), groups, rng)
        given = rng.permutation(len(Y))[: ENCODING.donors]
        columns, pieces, donors, gaps = [], [], [], []
        for one in findings:
            column = _learn(one.name, one.kind, batch, Y)
            column = _without_own_groups(column, batch, Y, groups)
            piece, unusual = encode_column(column, batch)
            if column.kind == "category":
                column = column._replace(fill=tuple(safe_mean(piece).tolist()))
            columns.append(column)
            donors.append(piece[given])
            strange = None if groups is None else safe_mean(Y)
            pieces.append(
                _out_of_fold(column, batch, Y, folds, strange) if column.means else piece
            )
            gaps.append(unusual.missing)
        refuse_repeated("encoded column", [name for one in columns for name in one.features])
        encoded, lacking = np.hstack(pieces), np.column_stack(gaps)
        noise = _noise_of_gaps(encoded, Y, lacking, self.random_state)
        self.columns_ = tuple(
            column._replace(noise=float(one)) for column, one in zip(columns, noise, strict=True)
        )
        self.training_noise_ = lacking @ noise
        self.donors_ = np.hstack(donors)
        self.codes_ = self.codes(batch)
        self._set_names()
        return encoded

    def _findings(self, batch: Batch, n_targets: int) -> list[Finding]:
        """What the columns hold; problems of all of them are refused at once."""
        for name in ("missing", "unknown"):
            if getattr(self, name) not in POLICIES:
                raise ValueError(f"{name} is one of {POLICIES}, not {getattr(self, name)!r}")
        if n_targets != batch.n_rows:
            raise ValueError(f"X has {batch.n_rows} rows, and y {n_targets}")
        survey = Survey(tuple(batch.columns))
        survey.add(batch)
        findings = survey.findings()
        problems = problems_of(findings, self.missing)
        if problems:
            raise Problems(problems, command=batch.first == 1)
        return findings

    def transform(self, X: Any) -> Array:
        """Encode a table with the columns of `fit`: (N, d)."""
        check_is_fitted(self)
        return self.encode(_required(as_batch(X))).X

    def encode(self, batch: Batch) -> Encoded:
        """Encode rows, and tell what is not known about them."""
        pieces, doubts = [], []
        for column in self.columns_:
            if column.name not in batch.columns:
                raise ValueError(f"X lacks the column {column.name!r}")
            piece, unusual = encode_column(column, batch)
            check_policies(column, batch, unusual, (self.missing, self.unknown))
            pieces.append(piece)
            doubts.append(unusual)
        missing = np.column_stack([one.missing for one in doubts])
        unknown = np.column_stack([one.unknown for one in doubts])
        learned = np.array([one.learned for one in doubts])
        noise = missing @ np.array([column.noise for column in self.columns_])
        return Encoded(np.hstack(pieces), missing, unknown, unknown | (missing & ~learned), noise)

    @property
    def mean_columns(self) -> list[Column]:
        """The columns of so many categories that they became means."""
        return [column for column in self.columns_ if column.means]

    def codes(self, batch: Batch) -> npt.NDArray[np.int32]:
        """Places of the categories of rows in each of `mean_columns`; -1 if unknown: (N, w)."""
        codes = np.empty((batch.n_rows, len(self.mean_columns)), dtype=np.int32)
        for j, column in enumerate(self.mean_columns):
            codes[:, j] = codes_of(column, as_words(batch.columns[column.name]))
        return codes

    def predicted(
        self, answer: Callable[[Array, Any], tuple[Array, Array]], rows: Encoded, alpha: Any = 0.0
    ) -> tuple[Array, Array]:
        """Mean and std of rows, some values of which are not known.

        The model is asked what it would say if they were those of one training row, of another,
        and so on; the answer is the mean and std of that mixture. It is as uncertain as the
        value matters.

        Parameters
        ----------
        answer : callable
            (X (N, d), alpha) -> mean and std, of shape (N,) or (N, t).
        rows : Encoded
        alpha : float or ndarray of shape (N,)
            Known noise variances, passed on.
        """
        alpha = alpha + rows.noise
        mean, std = answer(rows.X, alpha)
        where = np.flatnonzero(rows.doubtful.any(axis=1))
        for start in range(0, len(where), ENCODING.doubtful_rows):
            index = where[start : start + ENCODING.doubtful_rows]
            copies = self.alternatives(rows.X[index], rows.doubtful[index])
            known = np.tile(alpha[index], len(copies))
            means, stds = answer(copies.reshape(-1, copies.shape[2]), known)
            shape = (len(copies), len(index), *mean.shape[1:])
            means, stds = means.reshape(shape), stds.reshape(shape)
            mean[index] = safe_mean(means)
            unit = stds.max(axis=0)  # whose square may overflow
            spread = ((stds / unit) ** 2).mean(axis=0) + (means / unit).var(axis=0)
            std[index] = unit * np.sqrt(spread)
        return mean, std

    def alternatives(self, X: Array, doubtful: npt.NDArray[np.bool_]) -> Array:
        """The rows with the values of each donor where they are doubtful: (k, N, d)."""
        copies = np.repeat(X[None], len(self.donors_), axis=0)
        for j, own in enumerate(self.places):
            copies[:, doubtful[:, j], own] = self.donors_[:, None, own]
        return copies

    @property
    def places(self) -> list[slice]:
        """Which features each column became."""
        ends = np.cumsum([len(column.features) for column in self.columns_]).tolist()
        return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """Names of the features."""
        check_is_fitted(self)
        return np.array(self.names, dtype=object)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(name for column in self.columns_ for name in column.features)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the table's columns."""
        return tuple(column.name for column in self.columns_)

    @property
    def is_plain(self) -> bool:
        """Whether the columns themselves are the features."""
        return all(column.is_plain for column in self.columns_)

    def to_json(self) -> dict[str, Any]:
        """What was learned, as lists, dicts and text."""
        return {
            **self.get_params(),
            "columns": [column.to_json() for column in self.columns_],
            "donors": self.donors_.tolist(),
        }

    @classmethod
    def from_json(cls, record: Any) -> Self:
        """The encoder that `to_json` has written; anything else is a ValueError."""
        match record:
            case {
                "missing": "fill" | "error", "unknown": "fill" | "error",
                "random_state": int(), "columns": list(), "donors": list(), **rest,
            } if not rest:  # fmt: skip
                pass
            case _:
                raise ValueError(f"an encoder is not {shortened(record)}")
        encoder = cls(**{name: record[name] for name in ("missing", "unknown", "random_state")})
        encoder.columns_ = _columns_from_json(record["columns"])
        d = len(encoder.names)
        donors = [numbers_from_json("donors", row) for row in record["donors"]]
        if any(len(row) != d for row in donors) or len(donors) > ENCODING.donors:
            raise ValueError("the donors of the encoder are not rows of its features")
        encoder.donors_ = np.array(donors).reshape(-1, d)
        encoder._set_names()
        return encoder

    @classmethod
    def from_columns(cls, columns: Any) -> Self:
        """The encoder of a file of manygp 0.1, which fills nothing."""
        encoder = cls(missing="error", unknown="error")
        encoder.columns_ = _columns_from_json(columns)
        encoder.donors_ = np.empty((0, len(encoder.names)))
        encoder._set_names()
        return encoder

    def _set_names(self) -> None:
        self.n_features_in_ = len(self.columns_)
        self.feature_names_in_ = np.array(self.column_names, dtype=object)


def safe_mean(values: Array) -> Array:
    """The mean along the first axis; a sum that may overflow is that of a 2^40th part."""
    if np.abs(values).max(initial=0.0) < 2.0**980:
        return np.asarray(values.mean(axis=0))
    return np.asarray((values * 2.0**-40).mean(axis=0) * 2.0**40)


def _columns_from_json(records: Any) -> tuple[Column, ...]:
    if not isinstance(records, list) or not records:
        raise ValueError(f"an encoding is a list of columns, not {shortened(records)}")
    columns = tuple(map(column_from_json, records))
    refuse_repeated("column of the encoding", [column.name for column in columns])
    return columns


def _required(batch: Batch | None) -> Batch:
    if batch is None:
        raise ValueError("X must be a table of pandas, polars or pyarrow, with named columns")
    return batch


def _targets(y: Any) -> Array:
    """Targets of shape (n, t)."""
    if y is None:
        raise ValueError("the encoder requires y to be passed: it learns means of the target")
    Y = np.asarray(y, dtype=np.float64)
    if Y.ndim not in (1, 2) or not np.isfinite(Y).all():
        raise ValueError("y must hold finite numbers, one or several for each row")
    return Y.reshape(len(Y), -1)


def _noise_of_gaps(X: Array, Y: Array, gaps: npt.NDArray[np.bool_], seed: int) -> Array:
    """By how much missing values of each column make the variance of y larger: (columns,).

    The squared errors of boosted trees, in folds that have not seen the row, as a sum over the
    columns that are missing. With several targets, whose units may differ, it is 0.
    """
    noise = np.zeros(gaps.shape[1])
    which = np.flatnonzero(gaps.any(axis=0))
    if not len(which) or len(Y) < ENCODING.noise_rows[0] or Y.shape[1] > 1:
        return noise
    from scipy.optimize import nnls
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.model_selection import KFold, cross_val_predict
    from threadpoolctl import threadpool_limits

    rng = np.random.RandomState(seed)
    rows = rng.permutation(len(Y))[: ENCODING.noise_rows[1]]
    scale = float(np.ptp(Y)) or 1.0
    y = Y[rows, 0] / scale
    trees = HistGradientBoostingRegressor(early_stopping=False, random_state=seed)
    with threadpool_limits(1):  # else the last digits may depend on the machine
        guess = cross_val_predict(trees, X[rows], y, cv=KFold(ENCODING.folds))
    parts = np.column_stack([np.ones(len(rows)), gaps[rows][:, which]])
    with np.errstate(over="ignore"):
        noise[which] = nnls(parts, (y - guess) ** 2)[0][1:] * np.square(scale)
    if not np.isfinite(noise).all():
        warn("y is so large that the noise of missing values overflows, and is left out; scale y")
    return np.where(np.isfinite(noise), noise, 0.0)


def _raw(column: Column, batch: Batch) -> Array:
    """Numbers or days, NaN where they are missing."""
    values = batch.columns[column.name]
    numbers = as_floats(values) if column.kind == "number" else as_days(values)
    return np.empty(0) if numbers is None else numbers


def _learn(name: str, kind: str, batch: Batch, Y: Array) -> Column:
    """What a column of this kind holds."""
    column = Column(name, kind)
    if kind == "category":
        return _learn_categories(column, batch, Y)
    raw = _raw(column, batch)
    missing = np.isnan(raw)
    present = raw[~missing]
    column = column._replace(has_missing=bool(missing.any()))
    if kind == "date":
        column = column._replace(cycles=_cycles_that_show(present))
    middle = np.median(present, keepdims=True)
    indicator = [np.ones(1)] if column.has_missing else []
    fill = [middle, *cycles_of(middle, column.cycles), *indicator]
    return column._replace(fill=tuple(float(one[0]) for one in fill))


def _learn_categories(column: Column, batch: Batch, Y: Array) -> Column:
    words = as_words(batch.columns[column.name])
    column = column._replace(categories=tuple(sorted(set(words))))
    if len(column.categories) > MOST_ONE_HOT + ("" in column.categories):
        codes = codes_of(column, words)
        means = _target_means(codes, Y, len(column.categories))
        column = column._replace(means=tuple(map(tuple, means.tolist())))
    return column


def _target_means(codes: npt.NDArray[np.intp], Y: Array, n_categories: int) -> Array:
    """For each target the mean of each category, shrunk as far as its rows are few: (t, C)."""
    from sklearn.preprocessing import TargetEncoder

    encoder = TargetEncoder(categories=[np.arange(n_categories)], target_type="continuous")
    every = np.arange(n_categories)[:, None]
    # Squares of targets may overflow; a power of two costs no digit.
    unit = 2.0 ** np.clip(np.frexp(np.abs(Y).max(axis=0, initial=0.0))[1], -1000, 1000)
    parts = [encoder.fit(codes[:, None], y).transform(every)[:, 0] for y in (Y / unit).T]
    return np.array(parts) * unit[:, None]


def _folds(n: int, groups: Any, rng: np.random.RandomState) -> npt.NDArray[Any]:
    """The fold of each of n rows, or of its group."""
    n_units = n if groups is None else int(groups.max()) + 1
    few = n <= 2 * ENCODING.folds
    folds = np.arange(n_units) % 2 if few else rng.randint(ENCODING.folds, size=n_units)
    return folds if groups is None else folds[groups]


def _without_own_groups(column: Column, batch: Batch, Y: Array, groups: Any) -> Column:
    """The column, in which a category of one group alone has the mean of all rows."""
    if not column.means or groups is None:
        return column
    codes = codes_of(column, as_words(batch.columns[column.name]))
    pairs = np.unique(np.column_stack([codes, groups]), axis=0)
    own = np.bincount(pairs[:, 0], minlength=len(column.categories)) == 1
    means = np.where(own, safe_mean(Y)[:, None], np.array(column.means))
    return column._replace(means=tuple(map(tuple, means.tolist())))


def _out_of_fold(
    column: Column, batch: Batch, Y: Array, folds: npt.NDArray[Any], strange: Array | None
) -> Array:
    """The means of the categories of training rows, by rows of other folds: (n, t).

    Categories that no other fold has get `strange` (t,), if it is given.
    """
    codes = codes_of(column, as_words(batch.columns[column.name]))
    encoded = np.empty((len(codes), Y.shape[1]))
    for fold in np.unique(folds):
        own = folds == fold
        means = _target_means(codes[~own], Y[~own], len(column.categories))
        encoded[own] = means.T[codes[own]]
        if strange is not None:
            encoded[own & ~np.isin(codes, codes[~own])] = strange
    return encoded


def _cycles_that_show(days: Array) -> tuple[str, ...]:
    """The cycles that days of this range and resolution can show."""
    shown = []
    resolution = np.diff(np.unique(days)).min(initial=np.inf)
    for cycle in SHOWN_CYCLES:
        period = PERIODS[cycle]
        turns = np.ptp(days) / period
        spread = 1 - np.abs(np.exp(2j * np.pi * np.mod(days / period, 1.0)).mean())
        differ = turns >= ENCODING.cycle_turns and spread > ENCODING.cycle_spread
        if differ and resolution <= period / 2:
            shown.append(cycle)
    return tuple(shown)
