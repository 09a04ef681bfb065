"""By how much each expert's variance is too large: ExpertPredictions -> ratio (M, N) in (0, 1]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from manygp.types import Array, Calibration, ExpertPredictions


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


CALIBRATIONS: dict[str, Calibration] = {"information": Information(), "none": none}
