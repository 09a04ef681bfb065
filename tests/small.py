"""Small data, and small models of it, for tests of what may go wrong."""

import numpy as np

from manygp import ManyGPRegressor
from manygp.kernels import RBF, White

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, (60, 2))
y = 3 + np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=60)
QUERIES = rng.uniform(-2, 2, (10, 2))
for array in (X, y, QUERIES):
    array.flags.writeable = False

OWN = 1.0 * RBF(1.0) + White(0.1)
# Nothing is left to choose by leave-one-out.
CHOSEN = {
    "overlap": 0,
    "weighting": "entropy",
    "calibration": "information",
    "hyperparameters": "hierarchical",
    "routing": None,
}


def choosing(**parameters):
    """A small model with the library's defaults: three experts."""
    return ManyGPRegressor(**{"points_per_expert": 20, "random_state": 0, **parameters})


def model(**parameters):
    """A small model of the rules above."""
    return choosing(**{**CHOSEN, **parameters})


def answers(fitted, rows=QUERIES):
    return np.stack(fitted.predict(rows, return_std=True))


def assert_sound(fitted, rows=QUERIES):
    """The rule: finite means and positive standard deviations."""
    mean, std = fitted.predict(rows, return_std=True)
    assert np.all(np.isfinite(mean))
    assert np.all(np.isfinite(std) & (std > 0))


def spoilt(values, *where):
    """A copy with other values in some places."""
    values = values.copy()
    for place, value in where:
        values[place] = value
    return values
