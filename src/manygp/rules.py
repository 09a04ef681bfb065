"""From the experts' predictions to the answer: weight, calibrate, aggregate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from manygp.aggregation import AGGREGATIONS, barycentre, normalise
from manygp.calibration import CALIBRATIONS
from manygp.committee import predict_experts
from manygp.expert import Expert
from manygp.types import Aggregation, Array, Calibration, ExpertPredictions, Gaussian, Weighting
from manygp.weighting import WEIGHTINGS, uniform


class Rules(NamedTuple):
    """The three rules. Methods take the experts and a block of N rows, and return tuples."""

    weighting: Weighting
    calibration: Calibration
    aggregation: Aggregation

    @classmethod
    def named(cls, weighting: Any, calibration: Any, aggregation: Any) -> Self:
        """Each a name or a callable."""
        return cls(
            choose("weighting", weighting, WEIGHTINGS),
            choose("calibration", calibration, CALIBRATIONS),
            choose("aggregation", aggregation, AGGREGATIONS),
        )

    def distribution(self, experts: list[Expert], X: Array) -> tuple[Array, Array, Array]:
        """Means (t, N), latent variances (N,) and noise variances (N,): GP-pro-c."""
        return self.combine(predict_experts(experts, X))

    def combine(self, by_target: list[ExpertPredictions]) -> tuple[Array, Array, Array]:
        """The same from what the experts say, one record per target.

        A single expert has seen all there is, and is asked as it is.
        """
        local = by_target[0]
        weights = _checked("weighting", self.weighting(local), local)
        if len(local.mean) == 1:
            answers = [Gaussian(one.mean[0], one.variance[0]) for one in by_target]
        else:
            # Of the raw variances: weights and ratio are siblings, not a chain. The prior is
            # calibrated alike, so that an expert who knows nothing seems to know nothing.
            ratio = _checked("calibration", self.calibration(local), local)
            prior_ratio = self.calibration(local._replace(variance=local.prior_variance))
            variance, prior = ratio * local.variance, prior_ratio * local.prior_variance
            calibrated = [
                one._replace(variance=variance, prior_variance=prior) for one in by_target
            ]
            answers = [self.aggregation(one, weights) for one in calibrated]
        noise = (normalise(weights) * local.noise_variance).sum(axis=0)
        return np.array([answer.mean for answer in answers]), answers[0].variance, noise

    def means(self, experts: list[Expert], X: Array) -> tuple[Array]:
        """Means (t, N) alone, without variances where they have no influence."""
        if len(experts) == 1 or (self.weighting is uniform and self.aggregation is barycentre):
            by_target = predict_experts(experts, X, with_variance=False)
            weights = np.full((len(experts), len(X)), 1 / len(experts))
            return (np.array([(weights * one.mean).sum(axis=0) for one in by_target]),)
        return (self.distribution(experts, X)[0],)

    def normalised_weights(self, experts: list[Expert], X: Array) -> tuple[Array]:
        """Weights (M, N) that sum to one over the experts."""
        return (normalise(self.weighting(predict_experts(experts, X)[0])),)

    def ratio(self, experts: list[Expert], X: Array) -> tuple[Array]:
        """Factors (M, N) of the experts' variances."""
        return (self.calibration(predict_experts(experts, X)[0]),)


def _checked(what: str, values: Array, local: ExpertPredictions) -> Array:
    """What a rule returned, if it can be right: a wrong shape would broadcast into nonsense."""
    if np.shape(values) != local.mean.shape or not np.all(np.asarray(values) >= 0):
        raise ValueError(
            f"{what} must return numbers of shape {local.mean.shape}, one per expert and row, "
            f"none of them negative or NaN; it returned shape {np.shape(values)}"
        )
    return values


def choose(what: str, choice: Any, known: Mapping[str, Any]) -> Any:
    """The rule of that name, or the callable itself."""
    if callable(choice):
        return choice
    if isinstance(choice, str) and choice in known:
        return known[choice]
    raise ValueError(f"{what} must be one of {', '.join(known)} or a callable, not {choice!r}")
