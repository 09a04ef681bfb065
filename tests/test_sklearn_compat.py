"""What the estimator has in common with scikit-learn's GaussianProcessRegressor."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csc_array, csr_matrix
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk
from sklearn.model_selection import GridSearchCV

import manygp
from data import read_only
from manygp import ManyGPRegressor
from manygp.kernels import RBF, Constant, Matern, White

rng = np.random.default_rng(0)
X = read_only(rng.uniform(-2, 2, (40, 2)))
y = read_only(3 + np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=40))
Y = read_only(np.column_stack([y, 10 * np.cos(X[:, 1])]))
QUERIES = read_only(rng.uniform(-3, 3, (7, 2)))
NOISE_FIRST = sk.WhiteKernel(0.05) + 2.0 * sk.RationalQuadratic(1.2, 0.6)
FIXED = 1.5 * RBF(0.7, "fixed") + White(0.1, "fixed")


def model(kernel=None, **settings):
    return ManyGPRegressor(kernel, random_state=0, **settings)


def answers(estimator):
    return np.array(estimator.predict(QUERIES, return_std=True))


# The kernel as the user wrote it


def test_the_fitted_kernel_is_the_users_expression_with_fitted_values():
    fitted = model(NOISE_FIRST, normalize_y=False, alpha=1e-10).fit(X, y)
    theirs = GaussianProcessRegressor(NOISE_FIRST).fit(X, y)
    assert type(fitted.kernel_) is sk.Sum
    assert fitted.kernel_.k1.noise_level == pytest.approx(theirs.kernel_.k1.noise_level, rel=1e-2)
    assert fitted.kernel_.k2.k2.alpha == pytest.approx(theirs.kernel_.k2.k2.alpha, rel=1e-2)
    assert fitted.kernel_.k1.noise_level == fitted.experts_[0].noise_variance
    expected = theirs.log_marginal_likelihood(fitted.kernel_.theta, eval_gradient=True)
    found = fitted.log_marginal_likelihood(fitted.kernel_.theta, eval_gradient=True)
    assert found[0] == pytest.approx(expected[0], rel=1e-8)
    assert_allclose(found[1], expected[1], atol=1e-5)


def test_an_expression_of_ours_stays_as_it_was_written():
    kernel = White(0.1) + Constant(2.0) * Matern((1.0, 2.0))
    fitted = model(kernel).fit(X, y)
    assert fitted.kernel_.k1.variance == fitted.experts_[0].noise_variance
    assert fitted.kernel_.k2.k2.length_scale == fitted.experts_[0].kernel.signal.right.length_scale
    assert fitted.kernel_.theta_names == kernel.theta_names


def test_changing_the_parameter_after_fit_does_not_change_the_fitted_kernel():
    kernel = sk.RBF(0.7, "fixed") + sk.WhiteKernel(0.1)
    fitted = model(kernel).fit(X, y)
    fitted.set_params(kernel__k1__length_scale=5.0)
    assert fitted.kernel_.k1.length_scale == 0.7


def test_parameters_of_our_kernels_can_be_searched_by_name():
    kernel = Constant(1.0, "fixed") * RBF(1.0, "fixed") + White(0.1, "fixed")
    grid = {"kernel__left__right__length_scale": [0.01, 1.0], "kernel__right__variance": [0.01]}
    search = GridSearchCV(model(kernel), grid, cv=3, error_score="raise").fit(X, y)
    best = search.best_estimator_.kernel
    assert best == Constant(1.0, "fixed") * RBF(1.0, "fixed") + White(0.01, "fixed")
    assert kernel.right.variance == 0.1


def test_kernel_and_its_parameters_can_be_set_together():
    estimator = model(RBF()).set_params(kernel=FIXED, kernel__right__variance=0.5, alpha=0.1)
    assert estimator.kernel == 1.5 * RBF(0.7, "fixed") + White(0.5, "fixed")
    assert estimator.alpha == 0.1
    with pytest.raises(ValueError, match="Sum has no parameter 'middle'; it has left, right"):
        estimator.set_params(kernel__middle__variance=0.5)
    assert clone(estimator).kernel is estimator.kernel


def test_the_default_kernel_is_in_the_units_of_X():
    units = np.array([1000.0, 0.01])
    fitted = model(calibration="none", trend="none").fit(X * units, y)
    again = model(fitted.kernel_, optimizer=None, calibration="none").fit(X * units, y)
    expected = fitted.predict(QUERIES * units, return_std=True)
    assert_allclose(again.predict(QUERIES * units, return_std=True), expected, rtol=1e-8)
    value = fitted.log_marginal_likelihood_value_
    assert again.log_marginal_likelihood_value_ == pytest.approx(value)
    assert fitted.log_marginal_likelihood(fitted.kernel_.theta) == pytest.approx(value)
    better = model(fitted.kernel_, calibration="none").fit(X * units, y)
    assert better.log_marginal_likelihood_value_ == pytest.approx(value, abs=1e-3)


def test_the_fitted_kernel_is_one_line():
    for kernel in (None, NOISE_FIRST, White(0.1) + RBF()):
        assert "\n" not in str(model(kernel, optimizer=None).fit(X, y).kernel_)


# Optimisers


def test_without_an_optimizer_hyperparameters_stay():
    fitted = model(NOISE_FIRST, optimizer=None).fit(X, y)
    assert_allclose(fitted.kernel_.theta, NOISE_FIRST.theta)
    several = model(optimizer=None, points_per_expert=10, trend="none").fit(X, y)
    assert all(expert.kernel == several.model_.kernel for expert in several.experts_)
    assert all(expert.n_evaluations == 0 for expert in several.experts_)


def test_an_optimizer_of_the_users_decides():
    seen = []

    def halve(function, theta, bounds):
        value, gradient = function(theta)
        assert function(theta, eval_gradient=False) == value
        seen.append((len(theta), bounds.shape, gradient.shape))
        return theta - np.log(2), value

    fitted = model(NOISE_FIRST, optimizer=halve, n_restarts_optimizer=1).fit(X, y)
    assert seen == [(4, (4, 2), (4,))] * 2
    assert_allclose(fitted.kernel_.theta, NOISE_FIRST.theta - np.log(2))


def test_of_several_starts_the_best_that_the_optimizer_returns_counts():
    values = iter([3.0, -5.0, 7.0])
    starts = []

    def stay(function, theta, bounds):
        starts.append(theta)
        return theta, next(values)

    fitted = model(RBF() + White(), optimizer=stay, n_restarts_optimizer=2).fit(X, y)
    assert_allclose(fitted.kernel_.theta, starts[1])


@pytest.mark.parametrize("optimizer", ["adam", 3, "fmin_l_bfgs_b "])
def test_an_unknown_optimizer_is_refused(optimizer):
    with pytest.raises(ValueError, match="optimizer must be None, 'fmin_l_bfgs_b' or a callable"):
        model(optimizer=optimizer).fit(X, y)


def test_a_callable_optimizer_cannot_be_saved_and_says_so(tmp_path):
    fitted = model(FIXED, optimizer=lambda f, theta, bounds: (theta, f(theta)[0])).fit(X, y)
    with pytest.raises(ValueError, match=r"optimizer=.*cannot be saved"):
        fitted.save(tmp_path / "model")


def test_an_optimum_at_a_bound_is_a_warning():
    kernel = sk.WhiteKernel(1.0, (0.5, 1e3)) + sk.RBF([1.0, 2.0], (10.0, 20.0))
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        GaussianProcessRegressor(kernel, normalize_y=True, alpha=0).fit(X, y)
    expected = [str(one.message) for one in record if one.category is ConvergenceWarning]
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        model(kernel).fit(X, y)
    assert [str(one.message) for one in record] == expected
    assert {one.category for one in record} == {ConvergenceWarning}
    with pytest.warns(ConvergenceWarning, match=r"right__length_scale .* lower bound 10.0"):
        model(White() + RBF(15.0, (10.0, 20.0))).fit(X, y)


# The prior


@pytest.mark.parametrize("n_targets", [None, 1, 2])
@pytest.mark.parametrize("kernel", [NOISE_FIRST, sk.DotProduct(0.5) * sk.RBF(1.0)])
def test_before_fit_there_is_the_prior(kernel, n_targets):
    ours = model(kernel, n_targets=n_targets)
    theirs = GaussianProcessRegressor(kernel, n_targets=n_targets)
    assert_array_equal(ours.predict(QUERIES), theirs.predict(QUERIES))
    for asked in ("return_std", "return_cov"):
        found, expected = (one.predict(QUERIES, **{asked: True}) for one in (ours, theirs))
        assert_array_equal(found[0], expected[0])
        assert_allclose(found[1], expected[1], atol=1e-12)
    assert ours.sample_y(QUERIES, 3).shape == theirs.sample_y(QUERIES, 3).shape


def test_draws_from_the_prior_have_its_covariance():
    unfitted = model(FIXED, n_targets=2)
    draws = unfitted.sample_y(QUERIES, 20_000, random_state=0)
    expected = unfitted.predict(QUERIES, return_cov=True)[1]
    for target in range(2):
        assert_allclose(np.cov(draws[:, target]), expected[..., target], atol=0.06)
    assert np.abs(np.corrcoef(draws[0])[0, 1]) < 0.03


def test_the_prior_has_noise_unless_it_is_latent():
    unfitted = model(FIXED)
    assert_allclose(unfitted.predict(QUERIES, return_std=True)[1] ** 2, 1.6)
    assert_allclose(unfitted.predict(QUERIES, return_std=True, latent=True)[1] ** 2, 1.5)
    assert_allclose(unfitted.predict(QUERIES, return_std=True, alpha=1.0)[1] ** 2, 2.6)
    assert_allclose(np.diag(unfitted.predict(QUERIES, return_cov=True)[1]), 1.6)
    assert_allclose(model().predict(QUERIES, return_std=True)[1] ** 2, 1.1)


def test_bad_rows_are_refused_before_fit_too():
    with pytest.raises(ValueError, match=r"NaN.*column 1, row 0"):
        model().predict([[0.0, np.nan]])
    with pytest.raises(ValueError, match="RBF has 3 length-scales but X has 2"):
        model(RBF((1.0, 2.0, 3.0))).predict(QUERIES)
    with pytest.raises(NotFittedError):
        model().predict_interval(QUERIES)


def test_another_number_of_targets_than_announced_is_refused():
    with pytest.raises(ValueError, match=r"The number of targets seen in `y`.*Got 2 != 1"):
        model(FIXED, n_targets=1).fit(X, Y)
    with pytest.raises(ValueError, match="n_targets must be None or an integer of at least 1"):
        model(FIXED, n_targets=0).fit(X, y)


# Attributes of one expert


@pytest.mark.parametrize("targets", [y, Y], ids=["one", "two"])
@pytest.mark.parametrize("normalize_y", [True, False])
def test_attributes_of_one_expert_are_scikit_learns(targets, normalize_y):
    kernel = sk.ConstantKernel(1.5, "fixed") * sk.RBF(0.7, "fixed") + sk.WhiteKernel(0.1, "fixed")
    ours = model(kernel, normalize_y=normalize_y).fit(X, targets)
    theirs = GaussianProcessRegressor(kernel, normalize_y=normalize_y, alpha=0.0).fit(X, targets)
    assert_array_equal(ours.X_train_, theirs.X_train_)
    for name in ("y_train_", "L_", "alpha_"):
        assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-9, atol=1e-9)
    their_value = theirs.log_marginal_likelihood_value_
    assert ours.log_marginal_likelihood_value_ == pytest.approx(their_value, rel=1e-10)


def test_several_experts_have_no_common_factor():
    fitted = model(points_per_expert=10, trend="none").fit(X, y)
    assert not hasattr(fitted, "L_")
    with pytest.raises(AttributeError, match=r"X_train_ is that of one expert, and .* has 4"):
        _ = fitted.X_train_
    assert fitted.log_marginal_likelihood_value_ == fitted.log_marginal_likelihood()


def test_known_noise_of_several_normalised_targets_is_in_units_of_their_variances():
    kernel = sk.ConstantKernel(1.5, "fixed") * sk.RBF(0.7, "fixed")
    noises = np.linspace(0.01, 0.3, len(X))
    ours = model(kernel, alpha=noises).fit(X, Y)
    theirs = GaussianProcessRegressor(kernel, normalize_y=True, alpha=noises).fit(X, Y)
    assert_allclose(answers(ours), theirs.predict(QUERIES, return_std=True), rtol=1e-8)
    more = ours.predict(QUERIES, return_std=True, alpha=0.2)[1]
    without = ours.predict(QUERIES, return_std=True)[1]
    assert_allclose(more**2 - without**2, np.tile(0.2 * Y.var(axis=0), (7, 1)), rtol=1e-8)


# What is saved


def test_new_parameters_are_saved(tmp_path):
    fitted = model(FIXED, optimizer=None, n_targets=1, copy_X_train=False).fit(X, y)
    fitted.save(tmp_path / "model")
    loaded = manygp.load(tmp_path / "model")
    assert (loaded.optimizer, loaded.n_targets, loaded.copy_X_train) == (None, 1, False)
    assert_array_equal(answers(loaded), answers(fitted))
    assert loaded.kernel_ == fitted.kernel_
    assert_array_equal(answers(pickle.loads(pickle.dumps(fitted))), answers(fitted))


def test_importances_of_columns_sum_to_one_and_name_the_column_that_matters():
    fitted = model(trend="none").fit(X, y)
    importances = fitted.feature_importances_
    assert importances.shape == (2,)
    assert importances.sum() == pytest.approx(1)
    assert importances[0] > importances[1]
    total = fitted.relevance().total
    assert_allclose(importances, total / total.sum())
    with pytest.raises(NotFittedError):
        model().feature_importances_  # noqa: B018


@pytest.mark.parametrize("kind", [csr_matrix, csc_array])
def test_sparse_rows_are_refused_with_the_remedy(kind):
    with pytest.raises(TypeError, match="toarray"):
        model().fit(kind(X), y)
    with pytest.raises(TypeError, match="toarray"):
        model(FIXED).fit(X, y).predict(kind(X))
