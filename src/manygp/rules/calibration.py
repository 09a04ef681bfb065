"""By how much variances are too large: each expert's, and the committee's.

A rule maps ExpertPredictions to ratios (M, N) in (0, 1] of the experts' variances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

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


# Far from all data the variance is at least that of the normalised targets, and at most this.
FARTHEST_VARIANCE = 9.0


@dataclass(frozen=True)
class VarianceCurve:
    """What rows that were left out have taught about the aggregated variance, noise included.

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
