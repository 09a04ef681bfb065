"""From the experts' predictions to the answer: weight, calibrate, aggregate, recalibrate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from manygp.arrays import Array
from manygp.rules.aggregation import AGGREGATIONS, normalise
from manygp.rules.calibration import (
    CALIBRATIONS,
    FARTHEST_VARIANCE,
    Correction,
    VarianceCurve,
    none,
)
from manygp.rules.records import (
    Aggregation,
    Calibration,
    ExpertPredictions,
    Gaussian,
    Needs,
    Weighting,
    needs_of,
)
from manygp.rules.weighting import TEMPERED, WEIGHTINGS

# What is left of a variance, at least, if noise alone is larger than that far from all data.
SMALLEST_SHARE = 1e-12
# A trend holds up to the first number of ranges outside of all data, and not beyond the second.
BEYOND = (1.0, 2.0)


class PredictionRules(NamedTuple):
    """How experts are queried, and how their predictions become one answer.

    Methods take the experts' predictions for N rows, one record per target.

    Attributes
    ----------
    weighting, calibration, aggregation : callable
    recalibration : VarianceCurve or Recalibration
        Correction of the aggregated variance.
    nearest : int or None
        How many experts are queried about a row, those with the nearest centres; None for all.
    """

    weighting: Weighting
    calibration: Calibration
    aggregation: Aggregation
    recalibration: Correction = VarianceCurve()
    nearest: int | None = None

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
            weights = _checked("weighting", self.weighting(local), local)
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
        return (normalise(self.weighting(local)),)

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
