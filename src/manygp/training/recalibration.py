"""A scale and a power of the aggregated variance, learned from rows that are left out."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

from manygp.arrays import Array
from manygp.findings import Alternative
from manygp.rules.calibration import Recalibration

# The smallest and largest scale of variances that is believed.
SCALES = (1e-3, 1e3)
# Nats that a fitted parameter must gain, summed over the rows.
LEAST_GAIN = 2.0
# Powers of the variance among which the best is sought.
POWERS = (0.0, 4.0)
# Variances that are told apart.
SHAPES = (1e-250, 1e250)


def recalibrate(squares: Array, variance: Array, alternatives: list[Alternative]) -> Recalibration:
    """The scale of lowest NLL and, where it gains, the power.

    Parameters
    ----------
    squares : ndarray of shape (t, N)
        Squared errors of rows that were left out.
    variance : ndarray of shape (N,)
        Variances that were predicted for them.
    alternatives : list of Alternative
        What is compared is added to it.
    """
    squares = squares.mean(axis=0)
    log_variance = np.log(variance)
    centre = float(np.exp(log_variance.mean()))
    low, high = float(variance.min()), float(variance.max())

    def fitted(power: float) -> tuple[Recalibration, Array]:
        with np.errstate(over="ignore", under="ignore"):
            shape = np.exp((power - 1) * (log_variance - np.log(centre))) * variance
        shape = np.clip(shape, *SHAPES)
        scale = float(np.clip((squares / shape).mean(), *SCALES))
        nll = 0.5 * (np.log(2 * np.pi * scale * shape) + squares / (scale * shape))
        return Recalibration(scale, power, centre, low, high), nll

    plain = 0.5 * (np.log(2 * np.pi * variance) + squares / variance)
    scaled, scaled_nll = fitted(1.0)
    power = minimize_scalar(lambda p: fitted(p)[1].mean(), bounds=POWERS, method="bounded").x
    spread, spread_nll = fitted(float(power))
    chosen = Recalibration()
    if (plain - scaled_nll).sum() > LEAST_GAIN:
        chosen = scaled
    if (scaled_nll - spread_nll).sum() > LEAST_GAIN:
        chosen = spread
    alternatives += [
        Alternative("scale", 1.0, float(plain.mean()), chosen.scale == 1),
        Alternative("scale", scaled.scale, float(scaled_nll.mean()), chosen.scale != 1),
        Alternative("power", 1.0, float(scaled_nll.mean()), chosen.power == 1),
        Alternative("power", spread.power, float(spread_nll.mean()), chosen is spread),
    ]
    return chosen
