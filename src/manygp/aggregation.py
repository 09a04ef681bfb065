"""One normal distribution from many: (ExpertPredictions, weights (M, N)) -> Gaussian (N,)."""

from __future__ import annotations

import numpy as np

from manygp.types import Aggregation, Array, ExpertPredictions, Gaussian


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
}
