"""Small random data that no test can write to."""

import numpy as np


def read_only(values):
    """A copy that cannot be written to."""
    values = np.array(values)
    values.flags.writeable = False
    return values


def slope_and_wave(X):
    return 3 + np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]


def two_waves(X):
    return 3 + np.sin(2 * X[:, 0]) * np.cos(X[:, 1])


def noisy_rows(function, n_rows, n_queries=0, reach=2.0):
    """X in a square, y with a noise of 0.1, and rows to ask about, up to `reach` from 0."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n_rows, 2))
    y = function(X) + 0.1 * rng.normal(size=n_rows)
    return read_only(X), read_only(y), read_only(rng.uniform(-reach, reach, (n_queries, 2)))


def spoilt(values, *where):
    """A copy with other values in some places."""
    values = values.copy()
    for place, value in where:
        values[place] = value
    return values


def strided(values):
    """The same values, not next to each other in memory."""
    wide = np.full((2 * len(values), *values.shape[1:]), np.nan)
    wide[::2] = values
    return wide[::2]
