"""Gradients that there are not; those that there are: see `test_contracts.py`."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process import kernels as sk

from data import read_only
from manygp import ManyGPRegressor
from manygp.committee import gradients
from manygp.dual import Dual
from manygp.kernels import Matern, White

rng = np.random.default_rng(0)
X = read_only(rng.uniform(0, 10, (150, 2)) * [1.0, 30.0])
y = read_only(60 * np.sin(X[:, 0]) * np.cos(X[:, 1] / 40) + 12 * rng.normal(size=150))
QUERIES = read_only([[4.3, 120.0], [0.4, 7.0], [11.0, 310.0], [16.0, 500.0]])


@pytest.fixture(scope="module")
def one_expert():
    return ManyGPRegressor(points_per_expert=1000, random_state=0).fit(X, y)


def test_slopes_of_a_row_do_not_depend_on_the_others_nor_on_blocks(monkeypatch):
    fitted = ManyGPRegressor(points_per_expert=20, trend="linear", random_state=0).fit(X, y)
    many = fitted.predict_slopes(np.vstack([QUERIES] * 20))
    monkeypatch.setattr(gradients, "BLOCK_NUMBERS", 40)
    for place, x in enumerate(QUERIES):
        for found, expected in zip(many, fitted.predict_slopes(x[None]), strict=True):
            assert_allclose(found[place :: len(QUERIES)], [expected[0]] * 20, rtol=1e-9)


def test_slopes_across_a_table_that_is_encoded_are_refused():
    table = pd.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 100, "high", "low")})
    fitted = ManyGPRegressor(random_state=0).fit(table[:40], y[:40])
    with pytest.raises(ValueError, match="fit plain numbers"):
        fitted.predict_slopes(table[:2])


def test_the_mean_alone_has_a_gradient(one_expert):
    found = one_expert.predict(QUERIES[:1], return_std=True, return_mean_grad=True)
    assert len(found) == 3
    both = one_expert.predict(
        QUERIES[:1], return_std=True, return_mean_grad=True, return_std_grad=True
    )
    assert_allclose(found[2], both[2])


@pytest.mark.parametrize(
    ("rows", "asked"),
    [
        (QUERIES, {"return_std": True}),
        (QUERIES[:1], {}),
        (QUERIES[:1], {"return_std": True, "latent": True}),
        (QUERIES[:1], {"return_cov": True}),
    ],
    ids=["rows", "no-std", "latent", "cov"],
)
def test_gradients_of_anything_else_are_refused(rows, asked, one_expert):
    with pytest.raises(ValueError, match=f"for one row of numbers.*X has {len(rows)} rows"):
        one_expert.predict(rows, return_mean_grad=True, **asked)


def weight(experts):
    return np.cosh(experts.mean)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trend": "boosted"}, "trend 'boosted' have no gradients.*'additive'"),
        ({"aggregation": "nested", "trend": "none"}, "'nested' have no gradients"),
        (
            {"kernel": sk.Matern((2.0, 60.0), nu=1.1) + sk.WhiteKernel(), "optimizer": None},
            "no derivative by its inputs",
        ),
        (
            {"weighting": weight, "calibration": "none", "trend": "none"},
            "elementary functions.*cosh",
        ),
    ],
    ids=["trend", "nested", "foreign", "own-rule"],
)
def test_what_has_no_gradient_says_so(settings, message):
    given = {"points_per_expert": 40, "random_state": 0, "hyperparameters": "shared", **settings}
    fitted = ManyGPRegressor(**given).fit(X, y)
    with pytest.raises(ValueError, match=message):
        fitted.predict(QUERIES[:1], return_std=True, return_mean_grad=True)


def test_several_targets_have_no_gradient():
    fitted = ManyGPRegressor(Matern((2.0, 60.0)) + White(), optimizer=None)
    fitted.fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="one target"):
        fitted.predict(QUERIES[:1], return_std=True, return_mean_grad=True)


def test_a_dual_refuses_to_lose_its_derivatives():
    dual = Dual(np.ones(2), np.ones((2, 3)))
    with pytest.raises(TypeError, match="lose the derivatives"):
        np.array([dual, dual])
    with pytest.raises(TypeError):
        np.arctan(dual)
    with pytest.raises(TypeError):
        np.linalg.norm(dual)
