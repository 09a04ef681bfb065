"""Terms, ridge and the linear trend: exact leave-one-out, uncertainty, and what is kept."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import manygp
from manygp import ManyGPRegressor, answers
from manygp.committee.committee import Layout, assemble
from manygp.display import TrendDisplay
from manygp.gp.marginal_likelihood import KernelFit
from manygp.trend import linear
from manygp.trend import linear as ridge
from manygp.trend.linear import (
    Axis,
    Basis,
    Term,
    fit_linear,
    line_terms,
    ranges,
    rows_under,
    spline_axes,
)

RNG = np.random.default_rng(0)
X = RNG.random((150, 3))
X[:, 2] = np.round(3 * X[:, 2])  # four distinct values
Y = np.sin(5 * X[:, 0]) + 2 * X[:, 1] + 0.3 * (X[:, 2] == 2) + 0.1 * RNG.normal(size=150)
QUERIES = RNG.random((40, 3)) * [1.2, 1.2, 3] - [0.1, 0.1, 0]


def model(**parameters):
    settings = {"points_per_expert": 40, "hyperparameters": "shared", "routing": 2}
    return ManyGPRegressor(random_state=0, **{**settings, **parameters})


def splines(segments=4):
    terms = [Term((axis,)) for axis in spline_axes(X, segments).values()]
    return Basis(*ranges(X), tuple(terms))


def test_splines_hold_inside_the_range_and_fade_outside():
    basis = splines()
    _, holds = basis.functions(X)
    assert_array_equal(holds, 1.0)
    far = X[:1] + 10 * np.ptp(X, axis=0)
    functions, holds = basis.functions(far)
    assert_allclose(functions[:, 1:], 0.0, atol=1e-12)
    assert_allclose(holds, 0.0, atol=1e-12)
    assert_allclose(basis.beyond(far), 10.0, atol=1.1)


def test_a_column_of_few_values_gets_a_step_for_each():
    axis = spline_axes(X, 4)[2]
    assert axis == Axis(2, (0.0, 1 / 3, 2 / 3, 1.0), 1)
    functions, _ = Basis(*ranges(X), (Term((axis,)),)).functions(X)
    assert_allclose(functions[:, 1:], np.eye(4)[X[:, 2].astype(int)], atol=1e-12)


def test_a_pair_has_all_products_of_its_columns():
    first, second = spline_axes(X, 2)[0], spline_axes(X, 2)[1]
    basis = Basis(*ranges(X), tuple(Term(axes) for axes in ((first,), (second,), (first, second))))
    functions, _ = basis.functions(X)
    a, b, both = (functions[:, place] for place in basis.slices())
    assert_allclose(both, np.einsum("ni,nj->nij", a, b).reshape(len(X), -1))


def test_a_constant_column_has_no_term():
    flat = np.column_stack([X, np.full(len(X), 3.0)])
    assert len(line_terms(flat)) == 3
    assert 3 not in spline_axes(flat, 4)


def test_leave_one_out_of_ridge_equals_refitting_without_the_row():
    basis = splines()
    found = ridge.fit_ridge(basis, X, Y[:, None])
    H, _ = basis.functions(X)
    for row in (0, 7, 149):
        rest = np.arange(150) != row
        A = H[rest].T @ H[rest] + found.penalty * np.eye(basis.size)
        error = Y[row] - H[row] @ np.linalg.solve(A, H[rest].T @ Y[rest])
        assert_allclose(found.errors[row, 0], error, rtol=1e-6)
    assert_allclose(ridge.left_out_errors(found, X, Y[:, None]), found.errors, rtol=1e-6)


def test_the_pair_that_matters_comes_first():
    rng = np.random.default_rng(1)
    Z = rng.random((400, 5))
    y = Z[:, 0] + 4 * (Z[:, 1] - 0.5) * (Z[:, 3] - 0.5) + 0.01 * rng.normal(size=400)
    additive = ridge.fit_splines(Z, y[:, None])
    assert ridge.rank_pairs(additive.basis, Z, additive.errors)[0] == (1, 3)
    paired = ridge.fit_pairs(additive, Z, y[:, None])
    assert (1, 3) in {term.columns for term in paired.basis.terms}
    assert paired.mean_square < 0.1 * additive.mean_square


def test_pairs_pay_for_rows_that_have_not_chosen_them_or_are_no_part_of_it():
    rng = np.random.default_rng(0)
    Z = 20 * rng.random((1200, 10)) - 10  # as Ackley's, whose pairs promise too much
    y = -20 * np.exp(-0.2 * np.sqrt((Z**2).mean(axis=1))) + 0.5 * rng.normal(size=1200)
    additive = ridge.fit_splines(Z, y[:, None])
    lured = ridge._with_pairs(additive, Z, y[:, None], Z)
    assert lured.mean_square < 0.99 * additive.mean_square
    assert ridge.fit_pairs(additive, Z, y[:, None]) is additive


def test_a_column_that_one_half_of_the_rows_does_not_vary_in_may_be_part_of_a_pair():
    rng = np.random.default_rng(0)
    Z = rng.random((400, 3))
    Z[:, 2] = np.arange(400) == rng.integers(400)  # one row differs
    y = 4 * (Z[:, :1] - 0.5) * (Z[:, 1:2] - 0.5)
    found = ridge.fit_pairs(ridge.fit_splines(Z, y), Z, y)
    assert (0, 1) in {term.columns for term in found.basis.terms}


def without_row(fitted, row):
    """The model whose trend and experts are fitted again without a row, kernels apart."""
    committee, model = fitted.model_.committee, fitted.model_.committee.trend.model
    data = committee.training_data()
    whole = data._replace(residuals=data.targets, trend=None)
    keep = np.setdiff1d(np.arange(len(data.X)), [row])
    rest = whole.some(keep)

    def places(rows):
        return np.searchsorted(keep, rows[rows != row])

    parts = tuple(places(part) for part in committee.layout.parts)
    again = fit_linear(model.form, rest, parts, model.kernel)
    trend = rows_under(again, rest, parts)
    known = [places(expert.neighbours) for expert in committee.experts]
    other = assemble(
        rest._replace(residuals=rest.residuals - trend.fitted, trend=trend),
        Layout(parts, committee.layout.metric, committee.layout.centres),
        [KernelFit(expert.kernel) for expert in committee.experts],
        lambda m: known[m],
        None,
        1,
    )
    return replace(fitted.model_, committee=other)


@pytest.mark.parametrize("overlap", [0, 1.0])
@pytest.mark.parametrize("trend", ["linear", "additive"])
def test_leave_one_out_equals_refitting_trend_and_committee_without_the_row(trend, overlap):
    fitted = model(trend=trend, overlap=overlap).fit(X, Y)
    mean, std = fitted.loo_predict()
    for row in (3, 77):
        expected = answers.predict(without_row(fitted, row), X[[row]])
        assert_allclose([mean[row], std[row]], np.ravel(expected), rtol=1e-6)


def test_leave_one_out_of_two_targets_is_that_of_each():
    both = model(trend="linear", overlap=0).fit(X, np.column_stack([Y, -2 * Y]))
    mean, _ = both.loo_predict()
    assert_allclose(mean[:, 1], -2 * mean[:, 0], atol=1e-8)


def test_where_memory_is_short_leverage_still_counts(monkeypatch):
    whole = model(trend="linear", overlap=0).fit(X, Y)
    monkeypatch.setattr(linear, "MOST_KEPT_NUMBERS", 0)
    thin = model(trend="linear", overlap=0).fit(X, Y)
    trend = thin.model_.committee.trend
    assert trend.kriging is None
    assert np.all(trend.growth > 0)
    assert_allclose(thin.predict(QUERIES), whole.predict(QUERIES), atol=0.2)
    rest = [np.mean(np.abs(Y - one.loo_predict()[0])) for one in (thin, whole)]
    assert_allclose(*rest, rtol=0.2)


@pytest.mark.parametrize("trend", ["linear", "additive", "boosted"])
def test_std_grows_outside_and_ends_at_that_of_y(trend):
    fitted = model(trend=trend).fit(X, Y)
    middle = np.array([[0.5, 0.5, 1.0]])
    steps = middle + np.array([[0], [0.8], [3], [1000]]) * [1, 1, 3]
    mean, std = fitted.predict(steps, return_std=True)
    assert std[0] < std[1] <= 3.01 * Y.std()
    assert np.all((0.9 * Y.std() <= std[2:]) & (std[2:] <= 3.01 * Y.std()))
    assert_allclose(mean[2:], Y.mean(), atol=Y.std())


def test_joint_covariance_has_the_variances_and_is_positive():
    fitted = model(trend="additive").fit(X, Y)
    _, std = fitted.predict(QUERIES, return_std=True)
    _, cov = fitted.predict(QUERIES, return_cov=True)
    assert_allclose(np.sqrt(np.diag(cov)), std)
    assert np.linalg.eigvalsh(cov).min() > 0
    assert fitted.sample_y(QUERIES, 3).shape == (40, 3)


@pytest.mark.parametrize("trend", ["linear", "additive", "boosted"])
def test_a_row_does_not_depend_on_its_batch(trend):
    fitted = model(trend=trend).fit(X, Y)
    together = np.array(fitted.predict(QUERIES, return_std=True))
    apart = np.hstack([fitted.predict(QUERIES[i : i + 17], return_std=True) for i in (0, 17, 34)])
    assert_allclose(together, apart, rtol=1e-10)


@pytest.mark.parametrize("trend", ["linear", "additive", "boosted"])
def test_a_model_file_keeps_the_trend(trend, tmp_path):
    fitted = model(trend=trend).fit(X, Y)
    fitted.save(tmp_path / "one.manygp")
    loaded = manygp.load(tmp_path / "one.manygp")
    for one, other in zip(
        fitted.predict(QUERIES, return_std=True), loaded.predict(QUERIES, return_std=True),
        strict=True,
    ):  # fmt: skip
        assert_array_equal(one, other)
    assert_array_equal(fitted.loo_predict(), loaded.loo_predict())
    assert str(loaded.relevance()) == str(fitted.relevance())


def test_relevance_finds_the_columns_that_matter():
    noise = np.random.default_rng(3).random((150, 1))
    fitted = model(trend="additive").fit(np.column_stack([X, noise]), Y)
    found = fitted.relevance()
    assert found.column == ("x0", "x1", "x2", "x3")
    assert int(np.argmin(found.trend)) == 3
    assert 0.8 < found.total.sum() < 1.1
    assert [line[:2] for line in str(found).splitlines()[1:3]] == ["x0", "x1"]


def test_a_straight_column_counts_as_much_as_a_wave_of_its_variance():
    """Length-scales told how fast a function varies, not how much."""
    X = np.random.default_rng(0).uniform(-3, 3, (150, 2))
    y = np.sqrt(2) * np.sin(3 * X[:, 0]) + X[:, 1] / np.sqrt(3)
    fitted = model(trend="none").fit(X, y)
    assert fitted.feature_importances_ == pytest.approx([0.5, 0.5], abs=0.1)


def test_shares_of_columns_that_go_together_sum_to_what_is_explained():
    twin = X[:, :1] + 0.01 * np.random.default_rng(3).normal(size=(150, 1))
    fitted = model(trend="linear", normalize_y=False).fit(np.column_stack([X, twin]), 7 * Y)
    found, error = fitted.relevance(), fitted.loo_score()["rmse"]
    assert found.total.sum() == pytest.approx(1 - error**2 / np.var(7 * Y))
    assert found.total.min() >= 0


def test_the_display_draws_the_components(tmp_path):
    import matplotlib

    matplotlib.use("Agg")
    display = TrendDisplay.from_estimator(model(trend="additive").fit(X, Y), most=2)
    assert len(display.components) == 2
    assert all(np.all(one.std > 0) for one in display.components)
    display.figure_.savefig(tmp_path / "trend.png")
    with pytest.raises(ValueError, match="no trend, which has no components"):
        TrendDisplay.from_estimator(model(trend="constant").fit(X, Y))
