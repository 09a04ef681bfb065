"""How good are predicted distributions: accuracy, likelihood, calibration.

Most metrics take ``(y_true, mean, std)``, where ``std`` describes the distribution of y, noise
included; `log_score`, `pit` and `crps` take a predictive distribution. Smaller is better, except
for `coverage`, which should equal its level, and `pit`, which is no score.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from manygp.arrays import Array
from manygp.calibration import normal_crps, student_nll

# Bins of the reliability diagram and of ENCE.
N_BINS = 10


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
    """
    y, mu = _check_rows(y_true=y_true, mean=mean)
    return _root_mean_square(y - mu)


def nll(y_true: ArrayLike, mean: ArrayLike, std: ArrayLike) -> float:
    """Mean negative log-likelihood of the targets, in nats per row.

    Parameters
    ----------
    y_true, mean, std : array-like of shape (n,)
        Observed targets, predicted means and predicted standard deviations.
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
    """
    return float(-np.mean(distribution.logpdf(np.asarray(y_true, dtype=np.float64))))


def pit(y_true: ArrayLike, distribution: Distribution) -> Array:
    """Probability integral transform: predicted probability of at most each target, (n,).

    If the distributions are right, the values are spread evenly between 0 and 1.

    Parameters
    ----------
    y_true : array-like of shape (n,)
        Observed targets.
    distribution : PredictiveDistribution
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
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1; got {level}")
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
    """
    curve = reliability_curve(y_true, mean, std, n_bins)
    return float(np.mean(np.abs(curve.rmv - curve.rmse) / curve.rmv))


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
