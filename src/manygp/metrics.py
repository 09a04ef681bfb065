"""Metrics of predicted distributions: accuracy, likelihood, calibration.

Most metrics take ``(y_true, mean, std)``, where ``std`` describes the distribution of y, noise
included; `log_score`, `pit` and `crps` take a predictive distribution, and `interval_score` takes
the ends of intervals. Smaller is better, except for `coverage`, which should equal its level, and
`pit`, which is no score. `make_scorer` makes of a score what scikit-learn takes for ``scoring``.

`conditional_coverage` and `worst_slab` tell whether intervals hold as many rows as they should in
every part of the data, not only on average.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtrik, ndtri

from manygp.arrays import Array, IndexArray
from manygp.calibration import normal_crps, student_nll

# Bins of the reliability diagram and of ENCE.
N_BINS = 10
# Chance keeps a share within its bounds so often.
SURE = 0.99
# A slab is a leaf of a tree of this depth, and has at least this share, and number, of the rows of
# the half in which it is found.
SLAB_DEPTH = 2
SLAB_SHARE = 0.1
SLAB_ROWS = 20
SCORES = ("log_score", "crps", "interval_score")
# Parts of the rows that are left out in turn to tell how sure a score is, to 16%.
JACKKNIFE_PARTS = 20


@runtime_checkable
class Distribution(Protocol):
    """A predictive distribution, as `ManyGPRegressor.predict_dist` returns it."""

    def logpdf(self, y: Any) -> Array:
        """Logarithm of the density at y."""

    def cdf(self, y: Any) -> Array:
        """Probability of a value of at most y."""

    def crps(self, y: Any) -> Array:
        """Continuous ranked probability score at y."""


class ReliabilityCurve(NamedTuple):
    """Predicted and observed error of rows binned by their predicted error.

    Attributes
    ----------
    rmv : ndarray of shape (n_bins,)
        Root mean variance of each bin, increasing: the predicted error.
    rmse : ndarray of shape (n_bins,)
        Root mean squared error of each bin: the observed error.
    """

    rmv: Array
    rmse: Array


def rmse(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike | None = None) -> float:
    """Root mean squared error of the mean.

    Parameters
    ----------
    y_true, mean : array-like of shape (n,)
        Observed targets and predicted means.
    std : ignored
        Present so that all metrics can be called alike.

    Returns
    -------
    float
        In the units of y; 0 is perfect.

    Examples
    --------
    >>> from manygp.metrics import rmse
    >>> rmse([1.0, 2.0, 3.0], [1.0, 2.0, 5.0])
    1.1547005383792515
    """
    y, mu = _check_rows(y_true=y_true, mean=mean)
    return _root_mean_square(y - mu)


def r2(y_true: ArrayLike, mean: ArrayLike, constant: float) -> float:
    """Share of the squared error of a constant that predictions save; negative if they are worse.

    Parameters
    ----------
    y_true, mean : array-like of shape (n,)
        Observed targets and predicted means.
    constant : float
        The constant, such as the mean of the training targets.

    Returns
    -------
    float
        At most 1, which is perfect.

    Examples
    --------
    >>> from manygp.metrics import r2
    >>> round(r2([1.0, 2.0, 3.0], [1.0, 2.0, 2.0], constant=2.0), 3)
    0.5
    """
    y, mu = _check_rows(y_true=y_true, mean=mean)
    worst = _root_mean_square(y - constant)
    return 1.0 if worst == 0 else 1 - (_root_mean_square(y - mu) / worst) ** 2


def nll(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike) -> float:
    """Mean negative log-likelihood of the targets, in nats per row.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,)
        Observed targets, predicted means and predicted standard deviations.

    Returns
    -------
    float
        Smaller is better. It depends on the units of y.

    Examples
    --------
    >>> from manygp.metrics import nll
    >>> round(nll([0.0, 1.0], [0.0, 0.0], [1.0, 1.0]), 3)
    1.169
    """
    y, mu, sigma = _check_rows(y_true=y_true, mean=mean, std=std)
    return float(np.mean(student_nll(y - mu, np.inf, sigma)))


def log_score(y_true: ArrayLike, distribution: Distribution) -> float:
    """Mean negative log density of the targets, in nats per row.

    For a normal distribution this is `nll`.

    Parameters
    ----------
    y_true : array-like of shape (n,)
        Observed targets.
    distribution : PredictiveDistribution
        What `ManyGPRegressor.predict_dist` returns for the same rows.

    Returns
    -------
    float
        Smaller is better. It depends on the units of y.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> from manygp.metrics import log_score
    >>> float(round(log_score([0.0, 1.0], norm([0.0, 0.0], 1.0)), 3))
    1.169
    """
    return float(-np.mean(distribution.logpdf(np.asarray(y_true, dtype=np.float64))))


def pit(y_true: ArrayLike, distribution: Distribution) -> Array:
    """Probability integral transform: predicted probability of a value of at most each target.

    If the distributions are right, the values are spread evenly between 0 and 1.

    Parameters
    ----------
    y_true : array-like of shape (n,)
        Observed targets.
    distribution : PredictiveDistribution
        What `ManyGPRegressor.predict_dist` returns for the same rows.

    Returns
    -------
    ndarray of shape (n,)
        Numbers between 0 and 1. `manygp.display.PITDisplay` draws their histogram.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> from manygp.metrics import pit
    >>> pit([0.0, 1.0], norm([0.0, 0.0], 1.0)).round(3)
    array([0.5  , 0.841])
    """
    return distribution.cdf(np.asarray(y_true, dtype=np.float64))


def crps(y_true: ArrayLike, mean: ArrayLike | Distribution, std: ArrayLike | None = None) -> float:
    """Mean continuous ranked probability score, in the units of y.

    For a normal distribution the integral of ``(F(t) - 1[t >= y])^2`` over t has the closed form
    ``std * (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi))`` with ``z = (y - mean) / std``.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,)
        Observed targets, predicted means and predicted standard deviations of normal
        distributions; or, instead of mean and std, a `PredictiveDistribution`.

    Returns
    -------
    float
        Smaller is better. Without uncertainty it is the mean absolute error.

    Examples
    --------
    >>> from manygp.metrics import crps
    >>> round(crps([0.0, 1.0], [0.0, 0.0], [1.0, 1.0]), 3)
    0.418
    """
    if isinstance(mean, Distribution):
        return float(np.mean(mean.crps(np.asarray(y_true, dtype=np.float64))))
    if std is None:
        raise ValueError("crps needs mean and std, or a distribution")
    y, mu, sigma = _check_rows(y_true=y_true, mean=mean, std=std)
    return float(np.mean(sigma * normal_crps((y - mu) / sigma)))


def coverage(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, level: float = 0.9) -> float:
    """Share of rows whose central interval contains the target.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,)
        Observed targets, predicted means and predicted standard deviations.
    level : float in (0, 1)
        Probability that the normal distribution gives to the interval.

    Returns
    -------
    float
        A share between 0 and 1, which should be near ``level``.

    Examples
    --------
    >>> import numpy as np
    >>> from manygp.metrics import coverage
    >>> y = np.random.default_rng(0).normal(size=1000)
    >>> coverage(y, np.zeros(1000), np.ones(1000), level=0.9)
    0.914
    """
    _check_level(level)
    y, mu, sigma = _check_rows(y_true=y_true, mean=mean, std=std)
    return float(np.mean(np.abs(y - mu) <= ndtri(0.5 + level / 2) * sigma))


def reliability_curve(
    y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, n_bins: int = N_BINS
) -> ReliabilityCurve:
    """Observed against predicted error in bins of equal count, ordered by ``std``.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,)
        Observed targets, predicted means and predicted standard deviations; n >= n_bins.
    n_bins : int
        Number of bins, J. When J does not divide n, the first bins hold one row more.

    Returns
    -------
    ReliabilityCurve
        A calibrated model has ``rmse`` close to ``rmv`` in every bin.

    Examples
    --------
    >>> import numpy as np
    >>> from manygp.metrics import reliability_curve
    >>> y = np.random.default_rng(0).normal(size=1000)
    >>> curve = reliability_curve(y, np.zeros(1000), np.full(1000, 2.0), n_bins=4)
    >>> curve.rmv  # predicted: twice too large
    array([2., 2., 2., 2.])
    >>> curve.rmse.round(1)
    array([1. , 1. , 1. , 0.9])
    """
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1; got {n_bins}")
    y, mu, sigma = _check_rows(n_bins, y_true=y_true, mean=mean, std=std)
    bins = np.array_split(np.argsort(sigma, kind="stable"), n_bins)
    error = y - mu
    return ReliabilityCurve(
        rmv=np.array([_root_mean_square(sigma[rows]) for rows in bins]),
        rmse=np.array([_root_mean_square(error[rows]) for rows in bins]),
    )


def ence(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, n_bins: int = N_BINS) -> float:
    """Expected normalised calibration error (ENCE): mean over bins of ``|RMV - RMSE| / RMV``.

    Rows are binned by their predicted std. In each bin RMV, the root mean variance, is the
    predicted error, and RMSE the observed one. 0 is a perfect std.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,)
        Observed targets, predicted means and predicted standard deviations; n >= n_bins.
    n_bins : int
        Number of bins of `reliability_curve`.

    Returns
    -------
    float
        0 is perfect; 0.1 means that the std is off by a tenth on average.

    Examples
    --------
    >>> import numpy as np
    >>> from manygp.metrics import ence
    >>> y = np.random.default_rng(0).normal(size=1000)
    >>> round(ence(y, np.zeros(1000), np.full(1000, 2.0)), 2)  # twice too large
    0.51
    """
    curve = reliability_curve(y_true, mean, std, n_bins)
    return float(np.mean(np.abs(curve.rmv - curve.rmse) / curve.rmv))


def interval_score(
    y_true: ArrayLike, lower: ArrayLike, upper: ArrayLike, level: float = 0.9
) -> float:
    """Mean interval score, in the units of y: the width, and a price for targets outside.

    A target outside costs ``2 / (1 - level)`` times its distance from the interval. The score is
    smallest in expectation for the true quantiles.

    Parameters
    ----------
    y_true, lower, upper : array-like of shape (n,)
        Observed targets, and ends of the intervals.
    level : float in (0, 1)
        Share of rows that the intervals should hold.

    Returns
    -------
    float
        Smaller is better.

    Examples
    --------
    >>> from manygp.metrics import interval_score
    >>> round(interval_score([0.0, 3.0], [-1.0, -1.0], [1.0, 1.0], level=0.9), 6)
    22.0
    """
    _check_level(level)
    y, low, high = _check_rows(y_true=y_true, lower=lower, upper=upper)
    _refuse(high < low, high, "upper must not be below lower")
    outside = np.maximum(low - y, 0.0) + np.maximum(y - high, 0.0)
    return float(np.mean(high - low + 2 / (1 - level) * outside))


class ConditionalCoverage(NamedTuple):
    """Shares of rows of G groups that intervals hold, beside what chance allows.

    Attributes
    ----------
    n_rows : ndarray of shape (G,)
    share : ndarray of shape (G,)
        Share of the rows that is held; NaN if there is no row.
    low, high : ndarrays of shape (G,)
        Bounds within which the share lies 99 times of 100 if intervals hold what they should.
    """

    n_rows: IndexArray
    share: Array
    low: Array
    high: Array

    @property
    def is_by_chance(self) -> NDArray[np.bool_]:
        """Whether each share lies within the bounds: (G,)."""
        return (self.low <= self.share) & (self.share <= self.high)


def conditional_coverage(
    held: ArrayLike, groups: ArrayLike, level: float = 0.9
) -> ConditionalCoverage:
    """Coverage of the rows of each group.

    Parameters
    ----------
    held : array-like of bool of shape (n,)
        Whether the interval of a row holds its target.
    groups : array-like of int of shape (n,)
        The group of each row, 0, 1, ...; rows of negative numbers are in none.
    level : float in (0, 1)
        Share of rows that the intervals should hold.

    Returns
    -------
    ConditionalCoverage
        The number of rows, the coverage and its bounds of chance for each group.

    Examples
    --------
    >>> import numpy as np
    >>> from manygp.metrics import conditional_coverage
    >>> groups = conditional_coverage([True, False, True, True], [0, 0, 1, 1], level=0.9)
    >>> groups.share
    array([0.5, 1. ])
    """
    _check_level(level)
    inside, group = np.asarray(held, dtype=bool), np.asarray(groups, dtype=np.intp)
    if inside.ndim != 1 or inside.shape != group.shape:
        raise ValueError(
            f"held and groups must have one shape (n,); got {inside.shape} and {group.shape}"
        )
    known = group >= 0
    n = np.bincount(group[known])
    n_held = np.bincount(group[known], weights=inside[known])
    with np.errstate(invalid="ignore"):
        ends = [bdtrik(tail, n, level) for tail in ((1 - SURE) / 2, (1 + SURE) / 2)]
        low, high = (np.clip(np.ceil(np.nan_to_num(end)), 0, n) / n for end in ends)
        return ConditionalCoverage(n, n_held / n, low, high)


class Slab(NamedTuple):
    """A contiguous region in which intervals hold few rows.

    Attributes
    ----------
    bounds : dict
        ``{column: (low, high)}``, the columns by number: values above low and at most high.
    rows : ndarray of shape (m,)
        The rows that judge it: those of the region in the half that has not found it.
    coverage : ConditionalCoverage
        Of these rows, as one group.
    """

    bounds: dict[int, tuple[float, float]]
    rows: IndexArray
    coverage: ConditionalCoverage


def worst_slab(
    X: ArrayLike, held: ArrayLike, level: float = 0.9, random_state: int = 0
) -> Slab | None:
    """The region of the lowest coverage, found in one half of the rows and judged on the other.

    A shallow tree on half of the rows finds the region. Searched and judged on the same rows, the
    worst region looks bad even where intervals are right.

    Parameters
    ----------
    X : array-like of shape (n, d)
        What regions are made of: columns, and for example the std and the prediction.
    held : array-like of bool of shape (n,)
        Whether the interval of a row holds its target.
    level : float in (0, 1)
        Share of rows that the intervals should hold.
    random_state : int
        Seed of the halves.

    Returns
    -------
    Slab or None
        None if the rows are too few, or no region differs from the others.

    Examples
    --------
    >>> import numpy as np
    >>> from manygp.metrics import worst_slab
    >>> X = np.random.default_rng(0).random((2000, 2))
    >>> slab = worst_slab(X, X[:, 0] < 0.8)  # no interval above 0.8 holds its target
    >>> list(slab.bounds), slab.coverage.share
    ([0], array([0.]))
    """
    from sklearn.tree import DecisionTreeRegressor

    values, inside = np.asarray(X, dtype=np.float64), np.asarray(held, dtype=bool)
    if values.ndim != 2 or len(values) != len(inside):
        raise ValueError(f"X must have shape (n, d), n = {len(inside)}; got {values.shape}")
    order = np.random.default_rng(random_state).permutation(len(inside))
    found_in, judged_in = np.array_split(order, 2)
    least = max(SLAB_ROWS, int(SLAB_SHARE * len(found_in)))
    if len(judged_in) < 2 * least:
        return None
    # Of ranks, since trees have single precision.
    sorted_values, ranks = zip(*(np.unique(x, return_inverse=True) for x in values.T), strict=True)
    places = np.column_stack(ranks)
    tree = DecisionTreeRegressor(
        max_depth=SLAB_DEPTH, min_samples_leaf=least, random_state=random_state
    ).fit(places[found_in], inside[found_in])
    leaf = int(tree.apply(places[found_in])[np.argmin(tree.predict(places[found_in]))])
    rows = np.sort(judged_in[tree.apply(places[judged_in]) == leaf])
    if leaf == 0 or not len(rows):
        return None
    coverage = conditional_coverage(inside[rows], np.zeros(len(rows), dtype=np.intp), level)
    return Slab(_bounds_of(tree.tree_, leaf, sorted_values), rows, coverage)


def _bounds_of(
    tree: Any, leaf: int, sorted_values: tuple[Array, ...]
) -> dict[int, tuple[float, float]]:
    """Between which values of which columns a leaf of a tree of ranks lies."""
    bounds: dict[int, tuple[float, float]] = {}
    node = leaf
    while node:
        is_left = node in tree.children_left
        children = tree.children_left if is_left else tree.children_right
        node = int(np.flatnonzero(children == node)[0])
        column = int(tree.feature[node])
        cut = float(sorted_values[column][int(tree.threshold[node])])
        low, high = bounds.get(column, (-np.inf, np.inf))
        bounds[column] = (low, min(high, cut)) if is_left else (max(low, cut), high)
    return bounds


@dataclass(frozen=True)
class Scorer:
    """A score of an estimator, as scikit-learn takes it: larger is better, so it is minus a score.

    Attributes
    ----------
    name : str
        One of `SCORES`.
    level : float
        Share of rows that intervals should hold, for "interval_score".
    """

    name: str
    level: float = 0.9

    def __call__(self, estimator: Any, X: Any, y: ArrayLike) -> float:
        """Minus the score of rows X (n, d) with targets y (n,)."""
        if hasattr(estimator, "steps"):  # the last step of a pipeline answers
            X, estimator = estimator[:-1].transform(X), estimator[-1]
        method = "predict_interval" if self.name == "interval_score" else "predict_dist"
        if not hasattr(estimator, method):
            raise TypeError(
                f"the scorer {self.name!r} asks for {method}, which {type(estimator).__name__} "
                "does not have; score a ManyGPRegressor, or a pipeline that ends with one"
            )
        if self.name == "interval_score":
            lower, upper = estimator.predict_interval(X, self.level)
            return -interval_score(y, lower, upper, self.level)
        score = log_score if self.name == "log_score" else crps
        return -score(y, estimator.predict_dist(X))


def standard_error(metric: Callable[..., float], *columns: ArrayLike) -> float:
    """By how much a score would change with other rows of the same kind: its standard error.

    A jackknife by 20 random parts of the rows. Rows that err together, as those of one person do,
    make it larger than this says.

    Parameters
    ----------
    metric : callable
        Such as `rmse`, from columns to a number.
    *columns : array-like of shape (n,)
        What the metric takes, n > 1.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from manygp.metrics import rmse, standard_error
    >>> y = np.random.default_rng(0).normal(size=1000)
    >>> mean = np.zeros(1000)
    >>> print(f"{rmse(y, mean):.3f} +- {standard_error(rmse, y, mean):.3f}")
    0.978 +- 0.024
    """
    arrays = _check_rows(2, **{f"column {i}": one for i, one in enumerate(columns, 1)})
    n = len(arrays[0])
    order = np.random.default_rng(0).permutation(n)
    parts = np.array_split(order, min(n, JACKKNIFE_PARTS))
    scores = np.array([metric(*(np.delete(one, part) for one in arrays)) for part in parts])
    return float(np.sqrt(len(parts) - 1)) * _root_mean_square(scores - scores.mean())


def make_scorer(name: str, level: float = 0.9) -> Scorer:
    """A scorer for ``scoring`` of `cross_val_score`, `GridSearchCV` and the like.

    Parameters
    ----------
    name : {"log_score", "crps", "interval_score"}
        The score, whose negative is returned: larger is better.
    level : float in (0, 1)
        Share of rows that intervals should hold, for "interval_score".

    Returns
    -------
    Scorer
        Takes ``(estimator, X, y)``.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> from manygp import ManyGPRegressor
    >>> from manygp.metrics import make_scorer
    >>> import numpy as np
    >>> X = np.linspace(0, 1, 60)[:, None]
    >>> y = np.sin(9 * X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=60)
    >>> model, scoring = ManyGPRegressor(random_state=0), make_scorer("crps")
    >>> scores = cross_val_score(model, X, y, scoring=scoring)
    >>> len(scores)
    5
    """
    if name not in SCORES:
        raise ValueError(f"the scorers are {', '.join(SCORES)}; there is no {name!r}")
    _check_level(level)
    return Scorer(name, level)


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1; got {level}")


def _root_mean_square(values: Array) -> float:
    size = float(np.abs(values).max()) or 1.0  # squares may overflow, or underflow to 0
    return size * float(np.sqrt(np.mean((values / size) ** 2)))


def _check_rows(min_rows: int = 1, **columns: ArrayLike) -> list[Array]:
    """The named columns as finite float arrays of one length (n,), n >= min_rows; std > 0."""
    arrays = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
    for name, array in arrays.items():
        if array.ndim != 1 and not (array.ndim == 2 and array.shape[1] == 1):
            raise ValueError(f"{name} must have shape (n,) or (n, 1); got {array.shape}")
        arrays[name] = array.ravel()
    first, n_rows = next((name, len(array)) for name, array in arrays.items())
    if n_rows < min_rows:
        raise ValueError(f"{first} must have at least {min_rows} rows; it has {n_rows}")
    for name, array in arrays.items():
        if len(array) != n_rows:
            raise ValueError(f"{name} has {len(array)} rows, but {first} has {n_rows}")
        _refuse(~np.isfinite(array), array, f"{name} must be finite")
        if name == "std":
            _refuse(array <= 0, array, "std must be positive")
    return list(arrays.values())


def _refuse(bad: NDArray[np.bool_], array: Array, rule: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"{rule}; row {row} is {array[row]}")
