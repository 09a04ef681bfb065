"""From the experts' predictions to the answer: weight, calibrate, aggregate, recalibrate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from manygp.arrays import Array
from manygp.rules.aggregation import AGGREGATIONS, DEPENDENT, barycentre, nested, normalise
from manygp.rules.calibration import CALIBRATIONS, Recalibration, none
from manygp.rules.records import Aggregation, Calibration, ExpertPredictions, Gaussian, Weighting
from manygp.rules.weighting import TEMPERED, WEIGHTINGS, uniform


class Rules(NamedTuple):
    """The rules. Methods take what the experts say about N rows, one record per target."""

    weighting: Weighting
    calibration: Calibration
    aggregation: Aggregation
    recalibration: Recalibration = Recalibration()

    @classmethod
    def named(
        cls, weighting: Any, calibration: Any, aggregation: Any, temperature: float | None = None
    ) -> Self:
        """Each a name or a callable."""
        return cls(
            weighting_of(weighting, temperature),
            choose("calibration", calibration, CALIBRATIONS),
            choose("aggregation", aggregation, AGGREGATIONS),
        )

    @property
    def needs_covariance(self) -> bool:
        return self.aggregation is nested

    def needs_variance(self, n_experts: int) -> bool:
        """Whether means depend on the experts' variances."""
        mixes = self.weighting is uniform and self.aggregation is barycentre
        return n_experts > 1 and not mixes

    def combine(self, by_target: list[ExpertPredictions]) -> tuple[Array, Array, Array]:
        """Means (t, N), latent variances (N,) and noise variances (N,): GP-pro-c.

        A single expert has seen all there is, and is asked as it is.
        """
        local = by_target[0]
        weights = _checked("weighting", self.weighting(local), local)
        if len(local.mean) == 1:
            answers = [Gaussian(one.mean[0], one.variance[0]) for one in by_target]
        else:
            calibrated = self._calibrated(by_target)
            answers = [self.aggregation(one, weights) for one in calibrated]
        variance = answers[0].variance
        noise = (normalise(weights) * local.noise_variance).sum(axis=0)
        factor = self.recalibration(variance + noise)
        return np.array([answer.mean for answer in answers]), factor * variance, factor * noise

    def means(self, by_target: list[ExpertPredictions]) -> tuple[Array]:
        """Means (t, N), for which variances are not needed."""
        return (np.array([one.mean.mean(axis=0) for one in by_target]),)

    def normalised_weights(self, by_target: list[ExpertPredictions]) -> tuple[Array]:
        """Weights (M, N) that sum to one over the experts."""
        return (normalise(self.weighting(by_target[0])),)

    def ratio(self, by_target: list[ExpertPredictions]) -> tuple[Array]:
        """Factors (M, N) of the experts' variances."""
        rule = none if self.aggregation in DEPENDENT else self.calibration
        return (rule(by_target[0]),)

    def _calibrated(self, by_target: list[ExpertPredictions]) -> list[ExpertPredictions]:
        if self.calibration is none or self.aggregation in DEPENDENT:
            return by_target
        # Of the raw variances: weights and ratio are siblings, not a chain. The prior is
        # calibrated alike, so that an expert who knows nothing seems to know nothing.
        local = by_target[0]
        ratio = _checked("calibration", self.calibration(local), local)
        prior_ratio = self.calibration(local._replace(variance=local.prior_variance))
        variance, prior = ratio * local.variance, prior_ratio * local.prior_variance
        return [one._replace(variance=variance, prior_variance=prior) for one in by_target]


def weighting_of(weighting: Any, temperature: float | None) -> Weighting:
    """The weighting of that name and temperature, or the callable itself."""
    rule: Weighting = choose("weighting", weighting, WEIGHTINGS)
    if temperature is None or not isinstance(weighting, str) or weighting not in TEMPERED:
        return rule
    return TEMPERED[weighting][0](temperature)


def _checked(what: str, values: Array, local: ExpertPredictions) -> Array:
    """What a rule returned, if it can be right: a wrong shape would broadcast into nonsense."""
    if np.shape(values) != local.mean.shape or not np.all(np.asarray(values) >= 0):
        raise ValueError(
            f"{what} must return numbers of shape {local.mean.shape}, one per expert and row, "
            f"none of them negative or NaN; it returned shape {np.shape(values)}"
        )
    return values


def choose(what: str, choice: Any, known: Mapping[str, Any], *others: str) -> Any:
    """The rule of that name, or the callable itself; `others` are names known elsewhere."""
    if callable(choice):
        return choice
    if isinstance(choice, str) and choice in known:
        return known[choice]
    names = ", ".join([*others, *known])
    raise ValueError(f"{what} must be one of {names} or a callable, not {choice!r}")
