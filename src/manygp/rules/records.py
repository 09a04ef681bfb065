"""The records that rules read and return, the signatures of rules, and what a rule needs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from manygp.arrays import Array, IndexArray


class Gaussian(NamedTuple):
    """Independent normal distributions of N rows: mean and variance, both of shape (N,)."""

    mean: Array
    variance: Array


class Outside(NamedTuple):
    """What a trend under the experts tells about where N rows are.

    Attributes
    ----------
    explained : float
        The variance of the targets that is the trend's.
    beyond : ndarray of shape (N,)
        How many ranges a row lies outside of the range of the training rows; 0 inside.
    """

    explained: float
    beyond: Array


class ExpertPredictions(NamedTuple):
    """What M experts predict, each on its own, for N rows.

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
        Noise variances of the experts; (M, N) where rows have different experts.
    prior_mean : ndarray of shape (M, 1) or (M, N)
        Prior means of the experts, mu~_m.
    covariance : ndarray of shape (M, M, N), optional
        Prior covariances of the experts' means, for an aggregation that needs them.
    communication : Gaussian, optional
        The prediction of an expert whose rows all others know, likewise.
    outside : Outside, optional
        Where the rows are, if there is a trend under the experts.
    """

    mean: Array
    variance: Array
    prior_variance: Array
    noise_variance: Array
    prior_mean: Array
    covariance: Array | None = None
    communication: Gaussian | None = None
    outside: Outside | None = None

    def first_experts(self, k: int | None) -> ExpertPredictions:
        """The record of the first k experts, or of all."""
        return self._replace(
            mean=self.mean[:k],
            variance=self.variance[:k],
            prior_variance=self.prior_variance[:k],
            noise_variance=self.noise_variance[:k],
            prior_mean=self.prior_mean[:k],
            covariance=None if self.covariance is None else self.covariance[:k, :k],
        )

    def rows(self, start: int, end: int) -> ExpertPredictions:
        """The record of some of the rows."""
        cut = slice(start, end)

        def some(array: Array) -> Array:  # one column may stand for all rows
            return array if array.shape[1] == 1 else array[:, cut]

        common = self.communication
        if common is not None:
            common = Gaussian(common.mean[cut], common.variance[cut])
        outside = self.outside
        if outside is not None:
            outside = Outside(outside.explained, outside.beyond[cut])
        return ExpertPredictions(
            mean=self.mean[:, cut],
            variance=self.variance[:, cut],
            prior_variance=self.prior_variance[:, cut],
            noise_variance=some(self.noise_variance),
            prior_mean=some(self.prior_mean),
            covariance=None if self.covariance is None else self.covariance[..., cut],
            communication=common,
            outside=outside,
        )

    def repeated(self, times: int) -> ExpertPredictions:
        """The record of one expert as if there were several that all predict the same."""
        covariance = self.covariance
        if covariance is not None:
            covariance = np.tile(covariance, (times, times, 1))
        return self._replace(
            mean=self.mean.repeat(times, axis=0),
            variance=self.variance.repeat(times, axis=0),
            prior_variance=self.prior_variance.repeat(times, axis=0),
            noise_variance=self.noise_variance.repeat(times, axis=0),
            prior_mean=self.prior_mean.repeat(times, axis=0),
            covariance=covariance,
        )


Partitioner: TypeAlias = Callable[[Array, int, np.random.Generator], list[IndexArray]]
Weighting: TypeAlias = Callable[[ExpertPredictions], Array]
Calibration: TypeAlias = Callable[[ExpertPredictions], Array]
Aggregation: TypeAlias = Callable[[ExpertPredictions, Array], Gaussian]


class Needs(NamedTuple):
    """What an aggregation needs beside the experts' means and variances.

    Attributes
    ----------
    covariances : bool
        `ExpertPredictions.covariance`.
    communication : bool
        `ExpertPredictions.communication`.
    one_kernel : bool
        Experts that all have the same kernel.
    """

    covariances: bool = False
    communication: bool = False
    one_kernel: bool = False

    @property
    def dependence(self) -> bool:
        """Whether the aggregation models what experts have in common.

        It then takes the place of weights and of the experts' calibration, which would count
        the same thing again.
        """
        return self.covariances or self.communication


Rule = TypeVar("Rule", bound=Callable[..., Any])


def needs(
    *, covariances: bool = False, communication: bool = False, one_kernel: bool = False
) -> Callable[[Rule], Rule]:
    """Declare what an aggregation needs: a decorator that sets its attribute `needs`."""

    def declare(aggregation: Rule) -> Rule:
        aggregation.needs = Needs(covariances, communication, one_kernel)  # type: ignore[attr-defined]
        return aggregation

    return declare


def needs_of(aggregation: Aggregation) -> Needs:
    """What an aggregation has declared; nothing by default."""
    while isinstance(aggregation, partial):
        aggregation = aggregation.func
    declared: Needs = getattr(aggregation, "needs", Needs())
    return declared
