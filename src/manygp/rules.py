"""The science: weights, calibration, aggregation, and how they follow each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.inputs import check_number


class Gaussian(NamedTuple):
    """Independent normal distributions of N rows: mean and variance, both of shape (N,)."""

    mean: Array
    variance: Array


class Outside(NamedTuple):
    """Place of N rows, as a trend under the experts tells it.

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
    """Predictions of M experts, each on its own, for N rows.

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
    distance : ndarray of shape (M + 1, N), optional
        Distances of a row from the centres of the experts, nearest first, and from that of the
        first one that is not queried; infinity if there is none. See `taper`.
    """

    mean: Array
    variance: Array
    prior_variance: Array
    noise_variance: Array
    prior_mean: Array
    covariance: Array | None = None
    communication: Gaussian | None = None
    outside: Outside | None = None
    distance: Array | None = None

    def first_experts(self, k: int | None) -> ExpertPredictions:
        """The record of the first k experts, or of all."""
        if k is None:
            return self
        return self._replace(
            mean=self.mean[:k],
            variance=self.variance[:k],
            prior_variance=self.prior_variance[:k],
            noise_variance=self.noise_variance[:k],
            prior_mean=self.prior_mean[:k],
            covariance=None if self.covariance is None else self.covariance[:k, :k],
            distance=None if self.distance is None else self.distance[: k + 1],
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
            distance=None if self.distance is None else self.distance[:, cut],
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
    """Needs of an aggregation beside the experts' means and variances.

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


# The modules that this file was are found by their old names: see `manygp._moved`.
__path__: list[str] = []

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


# Far from its data an expert's variance differs from the prior's by rounding, which is no
# knowledge: normalised it would be a weight like any other.
ROUNDING = 1e-12


def entropy(experts: ExpertPredictions) -> Array:
    """Reduction of differential entropy from prior to posterior (ENT).

    Delta H_m = (log prior variance - log variance) / 2
    """
    gain = 0.5 * (np.log(experts.prior_variance) - np.log(experts.variance))
    return np.where(gain > ROUNDING, gain, 0.0)


def variance(experts: ExpertPredictions) -> Array:
    """Reduction of variance from prior to posterior (VAR)."""
    gain = experts.prior_variance - experts.variance
    return np.where(gain > ROUNDING * experts.prior_variance, gain, 0.0)


def uniform(experts: ExpertPredictions) -> Array:
    """1 / M for all (UNI)."""
    return np.full(experts.mean.shape, 1 / len(experts.mean))


@dataclass(frozen=True)
class Softmax:
    """Softmax of -temperature times the variance over the experts (GP-pro-sm).

    The variance is that of the normalised target.
    """

    temperature: float = 100.0

    def __call__(self, experts: ExpertPredictions) -> Array:
        confidence = -self.temperature * experts.variance
        weights = np.exp(confidence - confidence.max(axis=0))
        return weights / weights.sum(axis=0)


@dataclass(frozen=True)
class Tempered:
    """Softmax of temperature times the reduction of entropy: (prior variance / variance)^(T/2).

    The temperature T says how much the surest experts dominate: 0 weights all alike, and the
    higher it is, the more weight they get. It has no unit, so one temperature suits all data.
    """

    temperature: float = 4.0

    def __call__(self, experts: ExpertPredictions) -> Array:
        confidence = self.temperature * entropy(experts)
        return np.exp(confidence - confidence.max(axis=0))


WEIGHTINGS: dict[str, Weighting] = {
    "entropy": entropy,
    "variance": variance,
    "uniform": uniform,
    "softmax": Softmax(),
    "tempered": Tempered(),
}
# Those that have a temperature, and the temperatures that leave-one-out chooses from.
TEMPERED: dict[str, tuple[type[Softmax] | type[Tempered], tuple[float, ...]]] = {
    "softmax": (Softmax, (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)),
    "tempered": (Tempered, (1.0, 2.0, 4.0, 8.0, 16.0)),
}


@dataclass(frozen=True)
class Information:
    """The paper's ratio, from a lower bound on what the rows of the other experts would tell.

    alpha_m = exp(-(e - 1)/e * gain), gain = log(1 + variance / noise variance) / 2

    Parameters
    ----------
    max_gain : float
        The gain is clipped here ("its magnitude does not exceed one").
    strength : float
        Exponent of the ratio: 0 is no calibration, 1 the paper's.
    """

    max_gain: float = 1.0
    strength: float = 1.0

    def __call__(self, experts: ExpertPredictions) -> Array:
        if len(experts.mean) == 1:  # one expert has seen all there is
            return none(experts)
        with np.errstate(divide="ignore", invalid="ignore"):  # noise may be 0
            gain = 0.5 * np.log1p(experts.variance / experts.noise_variance)
        gain = np.where(experts.variance > 0, gain, 0.0)
        exponent = (np.e - 1) / np.e * np.minimum(gain, self.max_gain)
        return np.exp(-self.strength * exponent)


def none(experts: ExpertPredictions) -> Array:
    """1: variances stay as they are."""
    return np.ones(experts.mean.shape)


# Far from all data the variance is at least that of the normalised targets, and at most this.
FARTHEST_VARIANCE = 9.0


@dataclass(frozen=True)
class VarianceCurve:
    """Correction of the aggregated variance, noise included, learned from left-out rows.

    The factor of a variance is piecewise linear in logarithms, and stays what it is outside of
    the variances that it was learned from. Without points it is 1.

    Where less is known than about any row that was left out, the answer moves to the distribution
    of the normalised targets: a mean of 0, and a variance of at least 1.

    Parameters
    ----------
    log_variances, log_factors : tuples of float
        Points of the curve; the first is increasing.
    known : float
        The largest share of the prior variance that was left of a row that was left out;
        infinity to stay with the experts' prior.
    """

    log_variances: tuple[float, ...] = ()
    log_factors: tuple[float, ...] = ()
    known: float = np.inf

    def __call__(self, variance: Array) -> Array:
        """The factor of each variance: (N,)."""
        if not self.log_variances:
            return np.ones_like(variance)
        return np.exp(np.interp(np.log(variance), self.log_variances, self.log_factors))

    def far(self, unknown: Array) -> Array:
        """How far a row is from all data, from 0 to 1: (N,).

        `unknown` is the share of the prior variance that the experts have left. A little beyond
        what was left out hardly counts: the share is squared.
        """
        return np.clip((unknown - self.known) / (1 - self.known), 0.0, 1.0) ** 2


# Factors of a variance that are believed.
FACTORS = (1e-6, 1e6)


@dataclass(frozen=True)
class Recalibration:
    """The correction of version 0.1, for the models that it has saved.

    v becomes scale * v * (v / centre)^(power - 1). Above the largest variance that it was learned
    on, it grows as v does; below the smallest, the factor stays.
    """

    scale: float = 1.0
    power: float = 1.0
    centre: float = 1.0
    low: float = 0.0
    high: float = np.inf
    known: ClassVar[float] = np.inf

    def __call__(self, variance: Array) -> Array:
        """The factor of each variance: (N,)."""
        seen = np.clip(variance, self.low, self.high)
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            factor: Array = self.scale * (seen / self.centre) ** (self.power - 1)
        factor = np.clip(factor, *FACTORS)
        beyond = np.minimum(self.high / variance, 1.0)  # the share of v that was seen
        return beyond * factor + (1 - beyond)

    def far(self, unknown: Array) -> Array:
        """Nowhere is far."""
        return np.zeros_like(unknown)


Correction: TypeAlias = VarianceCurve | Recalibration

CALIBRATIONS: dict[str, Calibration] = {"information": Information(), "none": none}


NO_COMMUNICATION = (
    "aggregation='grbcm' needs experts that share the rows of a communication expert: set it "
    "before fit"
)
# Relative to the largest possible: what is below is rounding.
SMALLEST_EIGENVALUE = 1e-12
# Gains of information, in nats, that differ by less differ by rounding: where experts overlap so
# much that they know the same rows, one of them is the most certain, and always the same one.
SAME_GAIN = 1e-12


# Noise, relative to its variance, of an expert that nested aggregation has faded to a half.
FADING = 1e-3
# How near to its edge a taper bends: the smaller, the more it looks like 1 - r^2.
BEND = 0.05


def taper(experts: ExpertPredictions) -> Array:
    """Factors (M, N) of the experts' weights that fall to zero where an expert is not queried.

    With r the distance of an expert over that of the first one that is not queried, and
    s = 1 - r^2, the factor is s^2 / (s + BEND), scaled to 1 at r = 0. It and its derivative are
    zero at the edge: where the set of queried experts changes, the answer has no step. Its slope
    may change there, since the edge of the other experts is then the centre of another one.
    """
    if experts.distance is None:
        return np.ones(experts.mean.shape)
    s = 1 - (experts.distance[:-1] / experts.distance[-1]) ** 2
    return (1 + BEND) * s**2 / (s + BEND)


def _mean_over_experts(values: Array, experts: ExpertPredictions) -> Array:
    """The mean of values (M, N) or (M, 1) of the experts that are queried: (N,) or (1,)."""
    if experts.distance is None:
        return values.mean(axis=0)
    share = normalise(taper(experts))
    mean: Array = (share * values).sum(axis=0)
    return mean


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
    """Plain product of experts: all weights are one, but for the taper at the edge."""
    return _product(experts, taper(experts))


def bcm(experts: ExpertPredictions, weights: Array) -> Gaussian:
    """Bayesian committee machine: a product that counts the prior once, not M times."""
    return rbcm(experts, taper(experts))


def rbcm(experts: ExpertPredictions, weights: Array) -> Gaussian:
    """Robust Bayesian committee machine: unnormalised weights, and the prior counted once.

    1 / variance = sum_m w_m (1 / variance_m - 1 / prior_m) + 1 / prior
    mean / variance = sum_m w_m (mean_m / variance_m - prior mean_m / prior_m) + prior mean / prior

    With one prior of mean 0 for all this is the published formula; where each expert has its
    own, dividing each by its own keeps the variance positive. `prior` is then their mean.
    """
    local, prior = 1 / experts.variance, 1 / experts.prior_variance
    common = 1 / _mean_over_experts(experts.prior_variance, experts)
    variance = 1 / ((weights * (local - prior)).sum(axis=0) + common)
    shift = weights * (local * experts.mean - prior * experts.prior_mean)
    mean = variance * (
        shift.sum(axis=0) + common * _mean_over_experts(experts.prior_mean, experts)
    )
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
    one expert alone is that expert. Of experts that are equally certain but for rounding it is
    the first. `weights` are not used.
    """
    if experts.communication is None:
        raise ValueError(NO_COMMUNICATION)
    common = experts.communication
    gain = 0.5 * (np.log(common.variance) - np.log(experts.variance))
    surest = gain >= gain.max(axis=0) - SAME_GAIN
    surest = surest & (np.cumsum(surest, axis=0) == 1)
    counts = np.where(surest, 1.0, np.maximum(gain, 0.0)) * taper(experts)
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
    # An expert that fades out is observed with more and more noise; the nearest one never is.
    factor = taper(experts)
    nearest = np.maximum(factor.max(axis=0), SMALLEST_EIGENVALUE)
    fading = factor / nearest
    # Each mean is scaled by the root of its fading, so that no noise is huge beside the others.
    root = np.sqrt(fading)
    correlation = correlation * (root[:, None] * root).transpose(2, 0, 1)
    np.einsum("nii->ni", correlation)[:] += FADING * (1 - fading).T
    values, vectors = np.linalg.eigh(correlation)
    kept = values > SMALLEST_EIGENVALUE
    inverse = np.where(kept, 1 / np.where(kept, values, 1.0), 0.0)
    right = (root * k / scale).T
    projected = inverse * np.einsum("nkj,nk->nj", vectors, right)
    combination = np.einsum("nij,nj->in", vectors, projected)
    shift = root * combination / scale * (experts.mean - experts.prior_mean)
    prior = _mean_over_experts(experts.prior_variance, experts)
    variance = prior - np.einsum("ni,in->n", right, combination)
    # The best combination is at least as good as any expert: what is above is rounding.
    alone = experts.variance * (1 + FADING / np.maximum(fading, SMALLEST_EIGENVALUE))
    variance = np.minimum(variance, alone.min(axis=0))
    mean = _mean_over_experts(experts.prior_mean, experts) + shift.sum(axis=0)
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


# What is left of a variance, at least, if noise alone is larger than that far from all data.
SMALLEST_SHARE = 1e-12
# A trend holds up to the first number of ranges outside of all data, and not beyond the second.
BEYOND = (1.0, 2.0)


class PredictionRules(NamedTuple):
    """Rules by which experts are queried, and by which their predictions become one answer.

    Methods take the experts' predictions for N rows, one record per target.

    Attributes
    ----------
    weighting, calibration, aggregation : callable
    recalibration : VarianceCurve or Recalibration
        Correction of the aggregated variance.
    nearest : int or None
        How many experts are queried about a row, those with the nearest centres; None for all.
    tapered : bool
        Whether their weights fall to zero at the edge; those of models of version 0.2 do not.
    """

    weighting: Weighting
    calibration: Calibration
    aggregation: Aggregation
    recalibration: Correction = VarianceCurve()
    nearest: int | None = None
    tapered: bool = True

    @classmethod
    def named(
        cls, weighting: Any, calibration: Any, aggregation: Any, temperature: float | None = None
    ) -> Self:
        """The rules of these names; a callable stands for itself."""
        return cls(
            weighting_named(weighting, temperature),
            rule_named("calibration", calibration, CALIBRATIONS),
            rule_named("aggregation", aggregation, AGGREGATIONS),
        )

    @property
    def needs(self) -> Needs:
        """What the aggregation needs."""
        return needs_of(self.aggregation)

    def combine(self, by_target: list[ExpertPredictions]) -> tuple[Array, Array, Array]:
        """Means (t, N), latent variances (N,) and noise variances (N,): GP-pro-c.

        Where one expert is queried, its prediction is the answer, and no rule is called.
        """
        local = by_target[0]
        if len(local.mean) == 1:
            answers = [Gaussian(one.mean[0], one.variance[0]) for one in by_target]
            noise = np.broadcast_to(local.noise_variance[0], local.mean.shape[1])
        else:
            weights = self._weights(local)
            answers = [self.aggregation(one, weights) for one in self._calibrated(by_target)]
            noise = (normalise(weights) * local.noise_variance).sum(axis=0)
        means, variance = np.stack([answer.mean for answer in answers]), answers[0].variance
        factor = self.recalibration(variance + noise)
        corrected = means, factor * variance, factor * noise
        if self.recalibration.known == np.inf:
            return corrected
        far = self.recalibration.far(self.unknown(by_target))
        if local.outside is not None:
            low, high = BEYOND
            far = np.maximum(far, np.clip((local.outside.beyond - low) / (high - low), 0.0, 1.0))
        return self._far_from_data(*corrected, far)

    def _far_from_data(
        self, means: Array, variance: Array, noise: Array, far: Array
    ) -> tuple[Array, Array, Array]:
        """The answer, moved by the share `far` (N,) to the distribution of the targets.

        Nowhere is its variance larger than it may be far from all data.
        """
        total = variance + noise
        there = np.clip(total, 1.0, FARTHEST_VARIANCE)
        moved = np.minimum(variance + far * (there - total), FARTHEST_VARIANCE - noise)
        return (1 - far) * means, np.maximum(moved, SMALLEST_SHARE * total), noise

    def unknown(self, by_target: list[ExpertPredictions]) -> Array:
        """The share of the prior variance that the experts have left, by their weights: (N,).

        What a trend explains is known.
        """
        local = by_target[0]
        (weights,) = self.normalised_weights(by_target)
        variance, prior = weights * local.variance, weights * local.prior_variance
        trend = 0.0 if local.outside is None else local.outside.explained
        return variance.sum(axis=0) / (prior.sum(axis=0) + trend)

    def normalised_weights(self, by_target: list[ExpertPredictions]) -> tuple[Array]:
        """Weights (M, N) that sum to one over the experts."""
        local = by_target[0]
        if len(local.mean) == 1:
            return (np.ones(local.mean.shape),)
        return (normalise(self._weights(local)),)

    def _weights(self, local: ExpertPredictions) -> Array:
        """Weights (M, N) as the rule says, and where experts fade out."""
        weights = _checked("weighting", self.weighting(local), local)
        return weights if local.distance is None else weights * taper(local)

    def ratio(self, by_target: list[ExpertPredictions]) -> tuple[Array]:
        """Factors (M, N) of the experts' variances."""
        return (self._ratio_rule()(by_target[0]),)

    def _ratio_rule(self) -> Calibration:
        return none if self.needs.dependence else self.calibration

    def _calibrated(self, by_target: list[ExpertPredictions]) -> list[ExpertPredictions]:
        rule = self._ratio_rule()
        if rule is none:
            return by_target
        # The ratio is that of the raw variances: weights and ratio are siblings, not a chain. The
        # prior is calibrated alike, so that an expert who knows nothing seems to know nothing.
        local = by_target[0]
        ratio = _checked("calibration", rule(local), local)
        prior_ratio = rule(local._replace(variance=local.prior_variance))
        variance, prior = ratio * local.variance, prior_ratio * local.prior_variance
        return [one._replace(variance=variance, prior_variance=prior) for one in by_target]


def only_means(by_target: list[ExpertPredictions]) -> tuple[Array]:
    """Means (t, N) of a single expert, for which no variance is needed."""
    return (np.array([one.mean[0] for one in by_target]),)


def weighting_named(weighting: Any, temperature: float | None) -> Weighting:
    """The weighting of that name and temperature; a callable stands for itself."""
    rule: Weighting = rule_named("weighting", weighting, WEIGHTINGS)
    if temperature is None or not has_temperature(weighting):
        return rule
    return TEMPERED[weighting][0](temperature)


def weightings_named(weighting: Any, temperature: Any, needs: Needs) -> tuple[Weighting, ...]:
    """The weighting at each temperature that there is to choose from."""
    if not (isinstance(temperature, str) and temperature == "auto"):
        check_number("temperature", temperature, 0, "'auto' or ")
        return (weighting_named(weighting, float(temperature)),)
    if has_temperature(weighting) and not needs.dependence:
        return tuple(weighting_named(weighting, one) for one in TEMPERED[weighting][1])
    return (weighting_named(weighting, None),)


def has_temperature(weighting: Any) -> bool:
    """Whether a weighting is the name of one that has a temperature."""
    return isinstance(weighting, str) and weighting in TEMPERED


def rule_named(what: str, choice: Any, known: Mapping[str, Any], *others: str) -> Any:
    """The rule of that name; a callable stands for itself.

    `others` are names with a meaning elsewhere, which an error lists too.
    """
    if callable(choice):
        return choice
    if isinstance(choice, str) and choice in known:
        return known[choice]
    names = ", ".join([*others, *known])
    raise ValueError(f"{what} must be one of {names} or a callable, not {choice!r}")


def _checked(what: str, values: Array, local: ExpertPredictions) -> Array:
    """The values of a rule, if they can be right: a wrong shape would broadcast into nonsense."""
    if np.shape(values) != local.mean.shape or not np.all(np.greater_equal(values, 0)):
        raise ValueError(
            f"{what} must return numbers of shape {local.mean.shape}, one per expert and row, "
            f"none of them negative or NaN; it returned shape {np.shape(values)}"
        )
    return values
