"""One normal distribution from many: (ExpertPredictions, weights (M, N)) -> Gaussian (N,)."""

from __future__ import annotations

import numpy as np

from manygp.arrays import Array
from manygp.rules.records import Aggregation, ExpertPredictions, Gaussian, needs

NO_COMMUNICATION = (
    "aggregation='grbcm' needs experts that share the rows of a communication expert: set it "
    "before fit"
)
# Relative to the largest possible: what is below is rounding.
SMALLEST_EIGENVALUE = 1e-12


def normalise(weights: Array) -> Array:
    """Weights that sum to one over the experts, uniform where all of them are zero."""
    total = weights.sum(axis=0)
    nobody = total <= 0  # far from all data no expert knows anything
    return np.where(nobody, 1 / len(weights), weights / np.where(nobody, 1.0, total))


def gpoe(experts: ExpertPredictions, weights: Array) -> Gaussian:
    """Generalised product of experts, the paper's rule: normalised weights as exponents.

    1 / variance = sum_m w_m / variance_m,  mean = variance * sum_m w_m mean_m / variance_m
    """
    return _product(experts, normalise(weights))


def poe(experts: ExpertPredictions, weights: Array) -> Gaussian:
    """Plain product of experts: all weights are one."""
    return _product(experts, np.ones_like(weights))


def bcm(experts: ExpertPredictions, weights: Array) -> Gaussian:
    """Bayesian committee machine: a product that counts the prior once, not M times."""
    return rbcm(experts, np.ones_like(weights))


def rbcm(experts: ExpertPredictions, weights: Array) -> Gaussian:
    """Robust Bayesian committee machine: unnormalised weights, and the prior counted once.

    1 / variance = sum_m w_m (1 / variance_m - 1 / prior_m) + 1 / prior
    mean / variance = sum_m w_m (mean_m / variance_m - prior mean_m / prior_m) + prior mean / prior

    With one prior of mean 0 for all this is the published formula; where each expert has its
    own, dividing each by its own keeps the variance positive. `prior` is then their mean.
    """
    local, prior = 1 / experts.variance, 1 / experts.prior_variance
    common = 1 / experts.prior_variance.mean(axis=0)
    variance = 1 / ((weights * (local - prior)).sum(axis=0) + common)
    shift = weights * (local * experts.mean - prior * experts.prior_mean)
    mean = variance * (shift.sum(axis=0) + common * experts.prior_mean.mean(axis=0))
    return Gaussian(mean, variance)


def barycentre(experts: ExpertPredictions, weights: Array) -> Gaussian:
    """Wasserstein barycentre: weighted means of the means and of the standard deviations."""
    w = normalise(weights)
    std = (w * np.sqrt(experts.variance)).sum(axis=0)
    return Gaussian((w * experts.mean).sum(axis=0), std**2)


@needs(communication=True, one_kernel=True)
def grbcm(experts: ExpertPredictions, weights: Array) -> Gaussian:
    """Generalised robust BCM: a product that counts once what all experts know.

    Each expert knows the rows of the communication expert c too, and adds what it knows more:

    1 / variance = 1 / variance_c + sum_m b_m (1 / variance_m - 1 / variance_c)

    with b_m = (log variance_c - log variance_m) / 2, but 1 for the most certain expert, so that
    one expert alone is that expert. `weights` are not used.
    """
    if experts.communication is None:
        raise ValueError(NO_COMMUNICATION)
    common = experts.communication
    gain = 0.5 * (np.log(common.variance) - np.log(experts.variance))
    counts = np.where(gain == gain.max(axis=0), 1.0, np.maximum(gain, 0.0))
    local, base = 1 / experts.variance, 1 / common.variance
    # An expert with a kernel of its own may seem to know less than the communication expert.
    more = counts * np.maximum(local - base, 0.0)
    variance = 1 / (base + more.sum(axis=0))
    shift = counts * np.where(local > base, local * experts.mean - base * common.mean, 0.0)
    return Gaussian(variance * (base * common.mean + shift.sum(axis=0)), variance)


@needs(covariances=True, one_kernel=True)
def nested(experts: ExpertPredictions, weights: Array) -> Gaussian:
    """Nested pointwise aggregation: the best linear combination of the experts' means.

    With A = Cov(mean_m, mean_l) under the one kernel of all experts, and k_m = Cov(mean_m, f),
    which is its diagonal:

    mean = prior mean + k' A^-1 (mean_m - prior mean_m),  variance = prior variance - k' A^-1 k

    `weights` are not used. A is inverted on the span of its experts: two that predict the same
    count once.
    """
    if experts.covariance is None:
        raise ValueError("aggregation='nested' needs the covariances between the experts")
    k = np.maximum(np.einsum("iin->in", experts.covariance), 0.0)
    scale = np.sqrt(np.where(k > 0, k, 1.0))
    correlation = np.moveaxis(experts.covariance / (scale * scale[:, None]), -1, 0)
    values, vectors = np.linalg.eigh(correlation)
    kept = values > SMALLEST_EIGENVALUE
    inverse = np.where(kept, 1 / np.where(kept, values, 1.0), 0.0)
    right = (k / scale).T
    projected = inverse * np.einsum("nkj,nk->nj", vectors, right)
    combination = np.einsum("nij,nj->in", vectors, projected)
    shift = combination / scale * (experts.mean - experts.prior_mean)
    prior = experts.prior_variance.mean(axis=0)
    variance = prior - np.einsum("ni,in->n", right, combination)
    # The best combination is at least as good as any expert: what is above is rounding.
    variance = np.minimum(variance, experts.variance.min(axis=0))
    mean = experts.prior_mean.mean(axis=0) + shift.sum(axis=0)
    return Gaussian(mean, np.maximum(variance, SMALLEST_EIGENVALUE * prior))


def _product(experts: ExpertPredictions, exponents: Array) -> Gaussian:
    precision = exponents / experts.variance
    variance = 1 / precision.sum(axis=0)
    return Gaussian(variance * (precision * experts.mean).sum(axis=0), variance)


AGGREGATIONS: dict[str, Aggregation] = {
    "gpoe": gpoe,
    "poe": poe,
    "bcm": bcm,
    "rbcm": rbcm,
    "barycentre": barycentre,
    "grbcm": grbcm,
    "nested": nested,
}
