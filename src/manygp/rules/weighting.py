"""How reliable each expert is at each row: ExpertPredictions -> weights (M, N) >= 0.

Weights come out unnormalised: the aggregation decides whether they must sum to one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manygp.arrays import Array
from manygp.rules.records import ExpertPredictions, Weighting

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
