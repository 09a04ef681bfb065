"""Gradients of predictions by the inputs against finite differences."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process import kernels as sk

from data import read_only
from kernel_cases import CASES, rows
from manygp import ManyGPRegressor
from manygp.dual import Dual, with_slopes
from manygp.gp import expert
from manygp.kernels import Linear, Matern, White
from manygp.kernels.base import White as Noise
from manygp.trend.linear import (
    Axis,
    Basis,
    Form,
    LinearTrend,
    Term,
    line_terms,
    ranges,
    spline_axes,
)

rng = np.random.default_rng(0)
X = read_only(rng.uniform(0, 10, (150, 2)) * [1.0, 30.0])
y = read_only(60 * np.sin(X[:, 0]) * np.cos(X[:, 1] / 40) + 12 * rng.normal(size=150))
# Inside, near the edge, and far from all data.
QUERIES = read_only([[4.3, 120.0], [0.4, 7.0], [11.0, 310.0], [16.0, 500.0]])


def by_differences(function, x, h=1e-5):
    scale = h * np.maximum(np.abs(x), 1.0)
    steps = np.diag(scale)
    return np.array(
        [
            (function(x + step) - function(x - step)) / (2 * s)
            for step, s in zip(steps, scale, strict=True)
        ]
    ).T


def answers(fitted, x):
    return np.array([one[0] for one in fitted.predict(x[None], return_std=True)])


def assert_gradients(fitted, x):
    mean, std, mean_grad, std_grad = fitted.predict(
        x[None], return_std=True, return_mean_grad=True, return_std_grad=True
    )
    assert_allclose([mean[0], std[0]], answers(fitted, x), rtol=1e-12)
    expected = by_differences(lambda z: answers(fitted, z), x, h=3e-4)
    unit = np.abs(expected).max(axis=1)
    assert_allclose(mean_grad, expected[0], rtol=5e-4, atol=5e-5 * unit[0] + 1e-8)
    assert_allclose(std_grad, expected[1], rtol=5e-4, atol=5e-5 * unit[1] + 1e-8)


DIFFERENTIABLE = [name for name, case in CASES.items() if not isinstance(case.kernel, Noise)]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_slopes_of_kernels_equal_differences(name):
    kernel, d = CASES[name].kernel, CASES[name].n_columns
    Z, x = rows(9, d), np.random.default_rng(7).normal(size=d)
    expected = by_differences(lambda z: kernel(z[None], Z)[0], x)
    assert_allclose(kernel.slopes(x, Z), expected, rtol=1e-6, atol=1e-7)
    expected = by_differences(lambda z: kernel.diag(z[None])[0], x)
    assert_allclose(kernel.diag_slope(x), expected, rtol=1e-6, atol=1e-8)


MODELS = {
    "one-expert": {"points_per_expert": 1000},
    "one-expert-own-kernel": {
        "points_per_expert": 1000,
        "kernel": 50.0 * Matern((2.0, 60.0)) + White(),
    },
    "slope": {
        "points_per_expert": 1000,
        "kernel": Linear(3.0) * Matern((2.0, 60.0), nu=1.5) * 0.01
        + 2.0 * (Matern((2.0, 60.0)) + White()),
    },
    "experts": {"trend": "constant"},
    "experts-zero-mean": {"trend": "none"},
    "information": {"trend": "none", "calibration": "information", "weighting": "entropy"},
    "variance": {"trend": "constant", "calibration": "none", "weighting": "variance"},
    "softmax": {"trend": "constant", "calibration": "none", "weighting": "softmax"},
    "uniform": {"trend": "constant", "calibration": "information", "weighting": "uniform"},
    "rbcm": {"trend": "none", "calibration": "information", "aggregation": "rbcm"},
    "poe": {"trend": "none", "calibration": "none", "aggregation": "poe"},
    "barycentre": {"trend": "none", "calibration": "none", "aggregation": "barycentre"},
    "grbcm": {"trend": "none", "aggregation": "grbcm"},
    "all-experts": {"trend": "none", "routing": None},
    "independent": {"trend": "none", "hyperparameters": "independent"},
    "lines": {"trend": "linear"},
    "splines": {"trend": "additive"},
    "splines-rbcm": {"trend": "additive", "calibration": "information", "aggregation": "rbcm"},
    "splines-one-expert": {"trend": "additive", "points_per_expert": 1000},
}


@pytest.fixture(scope="module")
def models():
    """Fitted models by name, in double precision: differences would show the rounding."""
    fitted = {}

    def get(name):
        if name not in fitted:
            settings = {"points_per_expert": 40, "random_state": 0, **MODELS[name]}
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(expert, "SINGLE_ROWS", 10**9)
                fitted[name] = ManyGPRegressor(**settings).fit(X, y)
        return fitted[name]

    return get


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("place", range(len(QUERIES)), ids=["inside", "edge", "outside", "far"])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_equal_differences(name, place, models):
    assert_gradients(models(name), QUERIES[place])


@pytest.mark.parametrize("kriged", [True, False])
def test_slopes_of_trends_equal_differences(kriged):
    axes = spline_axes(X, 5)
    pair = tuple(spline_axes(X, 2, degree=2).values())
    steps = Term((Axis(1, (0.0, 0.2, 0.7, 1.0)),))
    terms = (*line_terms(X), *(Term((axis,)) for axis in axes.values()), Term(pair), steps)
    basis = Basis(*ranges(X), terms)
    draws = np.random.default_rng(1).normal(size=(basis.size + 1, basis.size))
    trend = LinearTrend(
        Form("additive", basis, 1.0), draws[:1].T, draws[1:], np.arange(len(terms)), kriged, None
    )

    def said(x):
        at = trend.at(x[None])
        terms = [] if at.basis is None else at.basis[0]
        return np.array([at.mean[0, 0], at.spread[0], at.beyond[0], *terms])

    for x in QUERIES:
        found = trend.at(with_slopes(x[None]))
        slopes = [found.mean.slope[0, 0], found.spread.slope[0], found.beyond.slope[0]]
        slopes += [] if found.basis is None else list(found.basis.slope[0])
        expected = by_differences(said, x)
        assert_allclose(slopes, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


def test_the_mean_alone_has_a_gradient(models):
    fitted = models("one-expert")
    found = fitted.predict(QUERIES[:1], return_std=True, return_mean_grad=True)
    assert len(found) == 3
    both = fitted.predict(
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
def test_gradients_of_anything_else_are_refused(rows, asked, models):
    with pytest.raises(ValueError, match=f"for one row of numbers.*X has {len(rows)} rows"):
        models("one-expert").predict(rows, return_mean_grad=True, **asked)


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
        np.sin(dual)
    with pytest.raises(TypeError):
        np.linalg.norm(dual)
