"""From the experts' predictions to the answer: weight, calibrate, aggregate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from manygp.aggregation import AGGREGATIONS, barycentre, normalise
from manygp.calibration import CALIBRATIONS
from manygp.committee import predict_experts
from manygp.expert import Expert
from manygp.types import Aggregation, Array, Calibration, Weighting
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
        local, means = predict_experts(experts, X)
        weights = self.weighting(local)
        ratio = self.calibration(local)  # of the raw variances: siblings, not a chain
        calibrated = local._replace(variance=ratio * local.variance)
        answers = [self.aggregation(calibrated._replace(mean=mean), weights) for mean in means]
        noise = (normalise(weights) * local.noise_variance).sum(axis=0)
        return np.array([answer.mean for answer in answers]), answers[0].variance, noise

    def means(self, experts: list[Expert], X: Array) -> tuple[Array]:
        """Means (t, N) alone, without variances where they have no influence."""
        if len(experts) == 1 or (self.weighting is uniform and self.aggregation is barycentre):
            return (predict_experts(experts, X, with_variance=False)[1].mean(axis=1),)
        return (self.distribution(experts, X)[0],)

    def normalised_weights(self, experts: list[Expert], X: Array) -> tuple[Array]:
        """Weights (M, N) that sum to one over the experts."""
        return (normalise(self.weighting(predict_experts(experts, X)[0])),)

    def ratio(self, experts: list[Expert], X: Array) -> tuple[Array]:
        """Factors (M, N) of the experts' variances."""
        return (self.calibration(predict_experts(experts, X)[0]),)


def choose(what: str, choice: Any, known: Mapping[str, Any]) -> Any:
    """The rule of that name, or the callable itself."""
    if callable(choice):
        return choice
    if isinstance(choice, str) and choice in known:
        return known[choice]
    raise ValueError(f"{what} must be one of {', '.join(known)} or a callable, not {choice!r}")
