"""Noise of few rows is not taken for signal."""

import numpy as np
import pytest

from manygp import ManyGPRegressor
from manygp.calibration import normal_nll

N_ROWS = 30
# Draws that were taken for signal: the std at training rows was 0, or the order of rows decided.
DRAWS = (4, 20, 23, 25)


def noise(seed):
    rng = np.random.default_rng(seed)
    return rng.uniform(size=(N_ROWS, 1 + seed % 3)), rng.normal(size=N_ROWS), rng


@pytest.mark.parametrize("seed", DRAWS)
def test_noise_of_few_rows_is_honest_in_any_order(seed):
    X, y, rng = noise(seed)
    order = rng.permutation(N_ROWS)
    mean, std = ManyGPRegressor(random_state=0).fit(X, y).predict(X, return_std=True)
    other = ManyGPRegressor(random_state=0).fit(X[order], y[order]).predict(X)
    again = rng.normal(size=(200, N_ROWS))  # repeated measurements
    assert np.mean(np.abs(again - mean) < 1.645 * std) > 0.4
    assert np.all(np.abs(other - mean) < 0.1 * std)


@pytest.mark.slow
def test_intervals_hold_repeated_measurements_of_noise():
    held = []
    for seed in range(40):
        X, y, rng = noise(seed)
        mean, std = ManyGPRegressor(random_state=0).fit(X, y).predict(X, return_std=True)
        held.append(np.mean(np.abs(rng.normal(size=(200, N_ROWS)) - mean) < 1.645 * std))
    assert np.mean(held) > 0.8


def test_a_smooth_function_without_noise_is_still_interpolated():
    X = np.random.default_rng(0).uniform(size=(N_ROWS, 2))
    y = np.sin(4 * X[:, 0]) + X[:, 1] ** 2
    mean, std = ManyGPRegressor(random_state=0).fit(X, y).predict(X, return_std=True)
    assert std.max() < 0.01 * y.std()
    assert np.abs(mean - y).max() < 0.01 * y.std()


def test_a_committee_of_few_rows_promises_what_experts_say_of_rows_they_have_not_learned_from():
    rng = np.random.default_rng(1)
    X = rng.random((2240, 4))
    y = np.sin(4 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=len(X))
    fixed = {"hyperparameters": "independent", "overlap": 0, "trend": "constant"}
    model = ManyGPRegressor(points_per_expert=25, noise="constant", random_state=0, **fixed)
    model.fit(X[:240], y[:240])

    def nll(rows, mean, std):
        return np.mean(normal_nll((y[rows] - mean) ** 2, std**2))

    closed_form = nll(slice(240), *model.loo_predict())
    got = nll(slice(240, None), *model.predict(X[240:], return_std=True))
    promised = model.loo_score()["nll"]
    assert closed_form + 0.04 < promised == pytest.approx(got, abs=0.04)
    lower, upper = model.predict_interval(X[240:], 0.9)
    held = np.mean((y[240:] >= lower) & (y[240:] <= upper))
    assert held == pytest.approx(0.9, abs=0.04)  # by five draws of the rows: .897 to .934
