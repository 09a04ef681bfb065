"""The default model is one of the rows, in whatever order they come."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from data import read_only
from manygp import ManyGPRegressor, load
from manygp.kernels import Matern, White
from test_random_data import random_case

RNG = np.random.default_rng(0)
X = read_only(np.round(RNG.uniform(size=(160, 2)), 2))
y = read_only(np.sin(6 * X[:, 0]) + X[:, 1] + (0.05 + X[:, 1]) * RNG.normal(size=160) / 4)
QUERIES = read_only(RNG.uniform(size=(7, 2)))
ORDER = read_only(RNG.permutation(160))
KINDS = {
    "one expert": {},
    "several": {"points_per_expert": 40},
    "local noise": {"points_per_expert": 40, "noise": "local"},
    "common rows": {
        "points_per_expert": 40,
        "hyperparameters": "shared",
        "aggregation": "grbcm",
    },
    **{name: {"points_per_expert": 40, "trend": name} for name in ("linear", "boosted")},
}


def fitted(rows=slice(None), **parameters):
    return ManyGPRegressor(random_state=0, **parameters).fit(X[rows], y[rows])


@pytest.mark.parametrize("name", KINDS)
def test_the_order_of_rows_has_no_say(name, tmp_path):
    first, second = fitted(**KINDS[name]), fitted(ORDER, **KINDS[name])
    assert_array_equal(
        second.predict(QUERIES, return_std=True), first.predict(QUERIES, return_std=True)
    )
    for model, rows in ((first, X), (second, X[ORDER])):  # they are numbered as they came
        data = model.model_.committee.training_data()
        scaling = model.model_.x_scaling
        assert_allclose(scaling.undo(data.X), rows, atol=1e-12)
        for expert in model.experts_:
            assert_array_equal(expert.X, data.X[expert.rows])
    answers = np.array(first.loo_predict())
    assert_allclose(second.loo_predict(), answers[:, ORDER], rtol=1e-9)
    rmse = np.sqrt(np.mean((answers[0] - y) ** 2))
    assert rmse < 0.3
    assert_allclose(second.loo_score()["rmse"], first.loo_score()["rmse"], rtol=1e-9)
    second.save(tmp_path / "model.manygp")
    loaded = load(tmp_path / "model.manygp")
    assert_array_equal(loaded.predict(QUERIES), first.predict(QUERIES))
    assert_array_equal(loaded.loo_predict(), second.loo_predict())


def test_noise_and_weights_go_with_their_rows():
    alpha, weights = np.linspace(0, 1, 160), np.linspace(2, 1, 160)
    model = ManyGPRegressor(random_state=0)
    first = model.fit(X, y, alpha=alpha, sample_weight=weights).predict(QUERIES)
    data = model.model_.committee.training_data()
    assert_allclose(data.alpha, alpha / y.var(), rtol=0.1)
    assert_allclose(data.spread, 1 / weights)
    model.fit(X[ORDER], y[ORDER], alpha=alpha[ORDER], sample_weight=weights[ORDER])
    assert_array_equal(model.predict(QUERIES), first)


def test_what_a_kernel_of_ones_own_learns_is_in_the_order_of_the_data():
    kernel = Matern(nu=2.5) + White(0.1)
    model = ManyGPRegressor(kernel).fit(X, y)
    assert_array_equal(model.X_train_, X)
    assert_array_equal(model.experts_[0].indices, np.arange(160))


@pytest.mark.filterwarnings("ignore:15 rows are copies")
def test_a_shift_of_y_moves_no_mean_where_the_likelihood_is_flat():
    """Without noise the likelihood is flat, and rounding decided where the search ended."""
    rows, targets, queries = random_case(129)
    model = ManyGPRegressor(random_state=0).fit(rows, targets)
    mean, std = model.predict(queries, return_std=True)
    shifted = ManyGPRegressor(random_state=0).fit(rows, targets + 5)
    assert np.all(np.abs(shifted.predict(queries) - 5 - mean) < 0.1 * std)
