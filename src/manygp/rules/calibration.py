"""By how much variances are too large: each expert's, and the committee's.

A rule maps ExpertPredictions to ratios (M, N) in (0, 1] of the experts' variances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manygp.arrays import Array
from manygp.rules.records import Calibration, ExpertPredictions


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


# Factors of a variance that are believed.
FACTORS = (1e-6, 1e6)


@dataclass(frozen=True)
class Recalibration:
    """What leave-one-out has learned about the aggregated variance v, noise included.

    v becomes scale * v * (v / centre)^(power - 1): a scale, and a power that spreads or narrows
    variances. Above the largest variance that it was learned on, it grows as v does, so that far
    from all data it returns to the prior; below the smallest, the factor stays.
    """

    scale: float = 1.0
    power: float = 1.0
    centre: float = 1.0
    low: float = 0.0
    high: float = np.inf

    def __call__(self, variance: Array) -> Array:
        """The factor of each variance, shape (N,)."""
        seen = np.clip(variance, self.low, self.high)
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            factor: Array = self.scale * (seen / self.centre) ** (self.power - 1)
        factor = np.clip(factor, *FACTORS)
        beyond = np.minimum(self.high / variance, 1.0)  # the share of v that was seen
        return beyond * factor + (1 - beyond)


CALIBRATIONS: dict[str, Calibration] = {"information": Information(), "none": none}
