"""Sample paths: their moments, their slopes, and what has none."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from data import read_only
from manygp import ManyGPRegressor
from manygp.committee import paths as committee_paths
from manygp.committee.paths import waves_of
from manygp.kernels import (
    RBF,
    Additive,
    Constant,
    Linear,
    Matern,
    Pairwise,
    RationalQuadratic,
    White,
)
from patching import with_numbers

rng = np.random.default_rng(0)
X = read_only(rng.random((240, 2)) * [1.0, 30.0])
Y = read_only(np.exp(np.sin(6 * X[:, 0]) + X[:, 1] / 30) + 0.2 * rng.normal(size=240) + 3)
QUERIES = read_only(rng.random((8, 2)) * [1.3, 35.0])
LEAN = {"points_per_expert": 60, "random_state": 0}
MODELS = {
    "committee": {"trend": "constant", "hyperparameters": "independent"},
    "splines": {"trend": "additive"},
    "one expert": {"trend": "constant", "points_per_expert": 1000},
    "copies": {"kernel": Matern((0.5, 10.0)) + White(0.1), "partition": lambda X, n, rng: [
        np.arange(len(X))] * n, "overlap": 0},
    "logarithm": {"trend": "linear", "target_transform": "log"},
}  # fmt: skip


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    return ManyGPRegressor(**{**LEAN, **MODELS[request.param]}).fit(X, Y)


def test_moments_are_those_of_predict_and_of_its_covariance(fitted):
    n = 500
    values = fitted.sample_paths(n, random_state=1)(QUERIES)
    mean, cov = fitted.predict(QUERIES, return_cov=True, latent=True)
    std = np.sqrt(np.diag(cov))
    assert_allclose((values.mean(axis=1) - mean) / std, 0.0, atol=4.5 / np.sqrt(n))
    assert_allclose(values.std(axis=1) / std, 1.0, atol=0.14)
    assert_allclose(np.corrcoef(values), cov / np.outer(std, std), atol=0.18)


def test_a_path_is_one_function_and_has_its_slopes(fitted, monkeypatch):
    paths = fitted.sample_paths(20, random_state=2)
    chosen = paths[[3, 18]]
    whole = paths(QUERIES)
    assert_array_equal(chosen(QUERIES).shape, (8, 2))
    assert_allclose(chosen(QUERIES), whole[:, [3, 18]], rtol=1e-9)
    assert_allclose(paths[3](QUERIES[5:6])[0], whole[5, 3], rtol=1e-7)
    value, slope = chosen.slopes(QUERIES)
    assert_allclose(value, whole[:, [3, 18]], rtol=1e-6)
    which = np.array([18, 3, 3, 19, 0, 1, 2, 3])  # one at each row
    each = paths.slopes(QUERIES, which)
    assert_allclose(each.value[:, 0], whole[np.arange(8), which], rtol=1e-6)
    assert_allclose(each.slope[1:3, 0], slope[1:3, 0], rtol=1e-7, atol=1e-9)
    h = 1e-5
    for j, step in enumerate(np.diag(h * np.array([1.0, 30.0]))):
        difference = (chosen(QUERIES + step) - chosen(QUERIES - step)) / (2 * step[j])
        assert_allclose(slope[..., j], difference, rtol=1e-3, atol=1e-3 * np.abs(slope).max())
    with_numbers(monkeypatch, committee_paths, "SIZES", block_rows=4)
    assert_allclose(paths(QUERIES), whole, rtol=1e-9)
    assert_allclose(chosen.slopes(QUERIES).slope, slope, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "kernel",
    [
        2.0 * Matern((0.4, 0.9), nu=1.5),
        Matern(0.5) * RBF(0.9) + Constant(0.5),
        RationalQuadratic(0.7, 0.8),
        Additive((0.4, 0.9), (2.0, 0.3)) + Pairwise(0.7, 0.5, nu=1.5),
    ],
    ids=str,
)
def test_waves_have_the_covariance_of_the_kernel(kernel):
    Z = np.random.default_rng(0).random((6, 2)) * 2
    waves = waves_of(kernel, 40_000, 2, np.random.default_rng(1)).at(Z)
    assert_allclose(waves @ waves.T, kernel(Z), atol=0.03)
    assert_allclose(np.sum(waves**2, axis=1), kernel.diag(Z), rtol=1e-9)


def test_paths_stay_when_the_estimator_is_fitted_again():
    model = ManyGPRegressor(**LEAN, trend="constant").fit(X, Y)
    paths = model.sample_paths(2, random_state=0)
    before = paths(QUERIES)
    again = model.sample_paths(2, random_state=0)(QUERIES)
    assert_array_equal(before, again)
    model.fit(X[:100], Y[:100] * 10)
    assert_array_equal(paths(QUERIES), before)
    assert len(paths) == 2


def test_paths_of_a_table_take_tables_and_have_no_slopes():
    table = pd.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 10, "high", "low")})
    model = ManyGPRegressor(trend="constant", random_state=0).fit(table[:60], Y[:60])
    paths = model.sample_paths(300)
    mean, std = model.predict(table[60:70], return_std=True, latent=True)
    values = paths(table[60:70])
    assert np.all(np.abs(values.mean(axis=1) - mean) < 5 * std / np.sqrt(300))
    with pytest.raises(ValueError, match="fit plain numbers"):
        paths.slopes(table[60:70])


@pytest.mark.parametrize(
    ("settings", "targets", "message"),
    [
        ({"kernel": Linear() + White()}, Y, r"the kernel Linear.*sample_y"),
        ({"trend": "constant"}, np.column_stack([Y, Y]), "one target"),
        (
            {"aggregation": "nested", "hyperparameters": "shared", "trend": "none"},
            Y,
            "have in common",
        ),
    ],
    ids=["kernel", "targets", "aggregation"],
)
def test_what_has_no_paths_says_so(settings, targets, message):
    model = ManyGPRegressor(**LEAN, optimizer=None, **settings).fit(X, targets)
    with pytest.raises(ValueError, match=message):
        model.sample_paths()


def test_a_number_of_paths_is_an_integer():
    model = ManyGPRegressor(**LEAN, trend="constant").fit(X[:60], Y[:60])
    with pytest.raises(ValueError, match="n_paths must be an integer"):
        model.sample_paths(0)
