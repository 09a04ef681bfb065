"""Rows that repeat others tell the noise."""

import numpy as np
import pytest

from manygp import ManyGPRegressor
from manygp.gp.marginal_likelihood import TrainingData
from manygp.kernels import default_kernel
from manygp.kernels.base import split_noise
from manygp.training.pipeline import REPEATS, find_repeats, with_noise_floor


def rows(n_distinct=50, times=4, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.random((n_distinct, 3)), times, axis=0)
    y = np.sin(4 * X[:, 0]) + noise * rng.normal(size=len(X))
    order = rng.permutation(len(X))
    return X[order], y[order]


def data_of(X, y, alpha=0.0):
    return TrainingData(X, y[:, None], np.full(len(X), alpha), constant_mean=True)


def test_differences_of_equal_rows_are_the_noise():
    X, y = rows()
    found = find_repeats(data_of(X, y))
    assert found.n_repeated == 150
    assert found.squares / found.n_repeated == pytest.approx(0.09, rel=0.3)
    known = find_repeats(data_of(X, y, alpha=0.05))
    assert found.squares - known.squares == pytest.approx(0.05 * 150)


def test_distinct_rows_repeat_nothing():
    X, y = rows(times=1)
    assert find_repeats(data_of(X, y)).n_repeated == 0
    kernel = split_noise(default_kernel(3))
    assert with_noise_floor(kernel, find_repeats(data_of(X, y))) is kernel


def test_rows_that_agree_leave_the_noise_a_rule_of_succession():
    X, y = rows(noise=0.0)
    found = find_repeats(data_of(X, y))
    assert found.squares == pytest.approx(0.0, abs=1e-20)
    assert found.noise_floor == pytest.approx(1 / 151)
    kernel = with_noise_floor(split_noise(default_kernel(3)), found)
    assert kernel.noise.variance_bounds[0] == pytest.approx(1 / 151)


def test_few_repeated_rows_tell_too_little():
    X, y = rows(n_distinct=REPEATS.fewest - 1, times=2)
    kernel = split_noise(default_kernel(3))
    assert with_noise_floor(kernel, find_repeats(data_of(X, y))) is kernel


def test_a_small_share_of_repeated_rows_tells_too_little():
    rng = np.random.default_rng(0)
    X = rng.random((2000, 3))
    X[:40] = X[40:80]  # two in a hundred agree, which says little about the others
    found = find_repeats(data_of(X, np.sin(4 * X[:, 0])))
    assert found.n_repeated == 40
    assert not found.tell_noise


def test_the_experts_have_at_least_that_noise_and_verbose_says_so(capsys):
    X, y = rows(n_distinct=40, times=5, noise=0.0)
    model = ManyGPRegressor(points_per_expert=60, random_state=0, verbose=True).fit(X, y)
    floor = find_repeats(data_of(X, (y - y.mean()) / y.std())).noise_floor
    assert min(expert.noise_variance for expert in model.experts_) >= floor * (1 - 1e-9)
    assert "160 of 200 rows repeat others" in capsys.readouterr().err
