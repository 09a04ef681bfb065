"""The records that rules read and return, and the signatures of the rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from manygp.arrays import Array, IndexArray


class Gaussian(NamedTuple):
    """Independent normal distributions of N rows: mean and variance, both of shape (N,)."""

    mean: Array
    variance: Array


class ExpertPredictions(NamedTuple):
    """What M experts say, each on its own, about N rows.

    All values are in the units of the normalised target.

    Attributes
    ----------
    mean : ndarray of shape (M, N)
        Posterior means, mu_m(x').
    variance : ndarray of shape (M, N)
        Posterior variances of the latent function (without noise), sigma_m^2(x').
    prior_variance : ndarray of shape (M, N)
        Prior variances, k_m(x', x').
    noise_variance : ndarray of shape (M, 1) or (M, N)
        Noise variances of the experts; (M, N) where rows are asked of different experts.
    prior_mean : ndarray of shape (M, 1) or (M, N)
        Prior means of the experts, mu~_m.
    covariance : ndarray of shape (M, M, N), optional
        Prior covariances of the experts' means, for an aggregation that models dependence.
    communication : Gaussian, optional
        What an expert says whose rows all of them know.
    """

    mean: Array
    variance: Array
    prior_variance: Array
    noise_variance: Array
    prior_mean: Array
    covariance: Array | None = None
    communication: Gaussian | None = None


Partitioner: TypeAlias = Callable[[Array, int, np.random.Generator], list[IndexArray]]
Weighting: TypeAlias = Callable[[ExpertPredictions], Array]
Calibration: TypeAlias = Callable[[ExpertPredictions], Array]
Aggregation: TypeAlias = Callable[[ExpertPredictions, Array], Gaussian]
Pull: TypeAlias = Callable[[Any], Any]
