"""One expert is exact Gaussian process regression: scikit-learn's, to rounding."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    CompoundKernel,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

from data import read_only
from manygp import ManyGPRegressor, kernels
from manygp.kernels.sklearn_kernel import as_kernel
from manygp.kernels.user_kernel import UserKernel

# Some optima lie at a bound, and both models say so.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

rng = np.random.default_rng(0)
X = read_only(rng.uniform(-2, 2, (60, 3)))
y = read_only(5 + 3 * np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=60))
QUERIES = read_only([*rng.uniform(-3, 3, (12, 3)), *X[:3]])
ALPHAS = read_only(rng.uniform(0.01, 1.0, 60))

NOISE = WhiteKernel(0.05)
IN_THREE_COLUMNS = {
    "rbf": RBF(1.3) + NOISE,
    "rbf-ard": 2.0 * RBF([0.7, 1.5, 3.0]) + NOISE,
    "matern12-ard": 2.0 * Matern([0.7, 1.5, 3.0], nu=0.5) + NOISE,
    "matern32-ard": 2.0 * Matern([0.7, 1.5, 3.0], nu=1.5) + NOISE,
    "matern52-ard": 2.0 * Matern([0.7, 1.5, 3.0], nu=2.5) + NOISE,
    "matern-inf": Matern(1.3, nu=np.inf) + NOISE,
    "rational-quadratic": 1.5 * RationalQuadratic(1.2, 0.6) + NOISE,
    "rbf-plus-dot": RBF(1.0) + DotProduct(0.8) + NOISE,
    "rbf-times-dot": RBF(1.0) * DotProduct(0.8) + NOISE,
    "constant-plus-matern": ConstantKernel(0.5) + Matern(1.1, nu=1.5) + NOISE,
}
IN_ONE_COLUMN = {
    "periodic": ExpSineSquared(1.2, 1.7) + NOISE,
    "periodic-times-rbf": 2.0 * ExpSineSquared(1.2, 1.7) * RBF(2.0) + NOISE,
}
EVERY_KERNEL = IN_THREE_COLUMNS | IN_ONE_COLUMN


def columns(name):
    return slice(0, 1) if name in IN_ONE_COLUMN else slice(None)


def frozen(kernel):
    """The same scikit-learn kernel with all bounds fixed."""
    names = [p.name for p in kernel.hyperparameters]
    return kernel.set_params(**{f"{name}_bounds": "fixed" for name in names})


def pair(kernel, normalize_y=False, alpha=1e-10):
    """Ours and theirs, unfitted. Their alpha is in the units of the normalised target."""
    one_expert = {"points_per_expert": 1000, "alpha": alpha, "random_state": 0}
    theirs = alpha / np.var(y) if normalize_y else alpha
    return (
        ManyGPRegressor(kernel, normalize_y=normalize_y, **one_expert),
        GaussianProcessRegressor(kernel, normalize_y=normalize_y, alpha=theirs),
    )


def assert_same_predictions(ours, theirs, queries):
    mean, std = ours.predict(queries, return_std=True)
    _, cov = ours.predict(queries, return_cov=True)
    their_mean, their_std = theirs.predict(queries, return_std=True)
    _, their_cov = theirs.predict(queries, return_cov=True)
    assert_allclose(mean, their_mean, rtol=1e-8, atol=1e-8)
    assert_allclose(std, their_std, rtol=1e-8, atol=1e-8)
    assert_allclose(cov, their_cov, rtol=1e-8, atol=1e-8)
    assert_allclose(ours.predict(queries), mean, rtol=1e-12)


@pytest.mark.parametrize("normalize_y", [False, True])
@pytest.mark.parametrize("name", EVERY_KERNEL)
def test_one_expert_equals_scikit_learn_at_the_same_hyperparameters(name, normalize_y):
    kernel = frozen(EVERY_KERNEL[name].clone_with_theta(EVERY_KERNEL[name].theta))
    ours, theirs = pair(kernel, normalize_y)
    train = X[:, columns(name)]
    ours.fit(train, y)
    theirs.fit(train, y)
    assert len(ours.experts_) == 1
    assert_same_predictions(ours, theirs, QUERIES[:, columns(name)])


@pytest.mark.parametrize("normalize_y", [False, True])
@pytest.mark.parametrize("alpha", [0.3, ALPHAS], ids=["scalar", "per-row"])
@pytest.mark.parametrize("noise", [True, False], ids=["white", "no-white"])
def test_alpha_equals_scikit_learn(alpha, noise, normalize_y):
    kernel = 2.0 * Matern(1.3, nu=1.5) + WhiteKernel(0.05) if noise else 2.0 * Matern(1.3, nu=1.5)
    ours, theirs = pair(frozen(kernel), normalize_y, alpha)
    assert_same_predictions(ours.fit(X, y), theirs.fit(X, y), QUERIES)


def test_two_targets_equal_scikit_learn():
    Y = np.column_stack([y, np.cos(X[:, 1]) * 7 - 2])
    ours, theirs = pair(frozen(1.5 * RBF(1.1) + WhiteKernel(0.1)), normalize_y=True, alpha=0.0)
    assert_same_predictions(ours.fit(X, Y), theirs.fit(X, Y), QUERIES)


def test_latent_predictions_leave_the_white_noise_out():
    kernel = frozen(1.5 * RBF(1.1) + WhiteKernel(0.1))
    ours = pair(kernel)[0].fit(X, y)
    theirs = GaussianProcessRegressor(kernel.k1, alpha=0.1 + 1e-10).fit(X, y)
    mean, std = ours.predict(QUERIES, return_std=True, latent=True)
    _, cov = ours.predict(QUERIES, return_cov=True, latent=True)
    their_mean, their_cov = theirs.predict(QUERIES, return_cov=True)
    assert_allclose(mean, their_mean, rtol=1e-8, atol=1e-8)
    assert_allclose(cov, their_cov, rtol=1e-8, atol=1e-8)
    assert_allclose(std**2, np.diag(their_cov), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", EVERY_KERNEL)
def test_fixed_bounds_leave_values_as_they_are(name):
    kernel = frozen(EVERY_KERNEL[name].clone_with_theta(EVERY_KERNEL[name].theta))
    model = pair(kernel)[0].fit(X[:, columns(name)], y)
    assert_allclose(model.kernel_.get_params()["k2__noise_level"], 0.05)
    diagonal = model.kernel_.diag(QUERIES[:, columns(name)])
    assert_allclose(diagonal, kernel.diag(QUERIES[:, columns(name)]), rtol=1e-12)
    assert model.experts_[0].hyperparameters == {}
    assert model.experts_[0].n_evaluations == 0


def test_one_fixed_value_stays_while_the_others_are_fitted():
    kernel = ConstantKernel(2.0) * RBF(1.234, "fixed") + WhiteKernel(0.5)
    fitted = pair(kernel)[0].fit(X, y).experts_[0].kernel
    assert fitted.signal.right.length_scale == 1.234
    assert fitted.signal.left.variance != 2.0
    assert fitted.noise_variance != 0.5


@pytest.mark.parametrize("name", EVERY_KERNEL)
def test_log_marginal_likelihood_and_gradient_equal_scikit_learn(name):
    kernel = EVERY_KERNEL[name]
    ours, theirs = pair(kernel)
    train = X[:, columns(name)]
    ours.fit(train, y)
    theirs.set_params(optimizer=None).fit(train, y)
    theta = kernel.theta + np.linspace(-0.3, 0.4, len(kernel.theta))
    value, gradient = ours.log_marginal_likelihood(theta, eval_gradient=True)
    their_value, their_gradient = theirs.log_marginal_likelihood(theta, eval_gradient=True)
    assert value == pytest.approx(their_value, rel=1e-8)
    assert_allclose(gradient, their_gradient, rtol=1e-6, atol=1e-6)
    assert ours.log_marginal_likelihood(theta) == value


def test_log_marginal_likelihood_of_the_fit_is_that_at_its_theta():
    model = pair(EVERY_KERNEL["matern52-ard"], normalize_y=True)[0].fit(X, y)
    at_theta = model.log_marginal_likelihood(model.experts_[0].kernel.theta)
    assert model.log_marginal_likelihood() == pytest.approx(at_theta, rel=1e-10)


def test_eval_gradient_without_theta_is_refused():
    model = pair(EVERY_KERNEL["rbf"])[0].fit(X, y)
    with pytest.raises(ValueError, match="theta"):
        model.log_marginal_likelihood(eval_gradient=True)


@pytest.mark.parametrize("wrong", [0, 1, 2, 4])
@pytest.mark.parametrize(
    "kernel",
    [kernels.RBF((1.0, 1.0, 1.0)), 1.0 * kernels.RBF(1.0) + kernels.White()],
    ids=["ard", "three-terms"],
)
def test_theta_of_the_wrong_length_is_refused(kernel, wrong):
    model = ManyGPRegressor(kernel, alpha=0.1).fit(X, y)
    assert len(model.kernel_.theta) == 3
    with pytest.raises(ValueError, match="theta"):
        model.log_marginal_likelihood(np.zeros(wrong))


@pytest.mark.parametrize("name", EVERY_KERNEL)
def test_the_optimum_is_at_least_as_good_as_scikit_learns(name):
    ours, theirs = pair(EVERY_KERNEL[name], normalize_y=True)
    train = X[:, columns(name)]
    with warnings.catch_warnings():  # theirs warns of values at their bounds
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs.fit(train, y)
    found = ours.fit(train, y).log_marginal_likelihood()
    assert found >= theirs.log_marginal_likelihood_value_ - 1e-4


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_optimum_is_at_least_as_good_on_other_data(seed):
    draw = np.random.default_rng(seed)
    train = draw.uniform(0, 10, (60, 2))
    target = np.sin(train[:, 0]) + draw.normal(0, 0.1 * (seed + 1), 60)
    ours, theirs = pair(1.0 * Matern([1.0, 1.0], nu=2.5) + WhiteKernel(0.1), alpha=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs.fit(train, target)
    found = ours.fit(train, target).log_marginal_likelihood()
    assert found >= theirs.log_marginal_likelihood_value_ - 1e-4


def test_restarts_do_not_make_the_optimum_worse():
    kernel = EVERY_KERNEL["periodic-times-rbf"]
    found = [pair(kernel)[0].set_params(n_restarts_optimizer=n).fit(X[:, :1], y) for n in (0, 3)]
    once, again = (model.log_marginal_likelihood() for model in found)
    assert again >= once - 1e-9
    assert found[1].experts_[0].n_evaluations > found[0].experts_[0].n_evaluations


def test_many_identical_experts_equal_one():
    settings = {"points_per_expert": 15, "random_state": 0}
    full = ManyGPRegressor.from_label("gp-full", **settings).fit(X, y)
    product = ManyGPRegressor.from_label("gp-pro-full", **settings).fit(X, y)
    assert (len(full.experts_), len(product.experts_)) == (1, 4)
    for latent in (True, False):
        for ask in ({"return_std": True}, {"return_cov": True}):
            got = product.predict(QUERIES, latent=latent, **ask)
            expected = full.predict(QUERIES, latent=latent, **ask)
            assert_allclose(got[0], expected[0], rtol=1e-10, atol=1e-10)
            assert_allclose(got[1], expected[1], rtol=1e-10, atol=1e-10)
    assert product.log_marginal_likelihood() == full.log_marginal_likelihood()


def test_bounds_may_differ_between_length_scales():
    kernel = RBF([1.0, 1.0, 1.0], [(0.1, 1.0), (0.1, 1.0), (0.1, 9.0)]) + NOISE
    ours, theirs = pair(kernel)
    least = theirs.fit(X, y).log_marginal_likelihood_value_ - 1e-6
    assert ours.fit(X, y).log_marginal_likelihood() >= least
    assert np.all(ours.kernel_.theta <= ours.kernel_.bounds[:, 1])


@pytest.mark.parametrize("name", EVERY_KERNEL)
def test_conversion_keeps_values_and_bounds(name):
    kernel = EVERY_KERNEL[name]
    converted = as_kernel(kernel)
    order = UserKernel.of(kernel, 1).order  # they sort a kernel's parameters by name
    assert_allclose(converted.theta, kernel.theta[order], rtol=1e-15)
    assert_allclose(converted.bounds, kernel.bounds[order], rtol=1e-15)
    assert as_kernel(converted) is converted


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.RBF((1.0, 1.0)),
        1.0 * kernels.RBF((1.0, 1.0)) + kernels.White(),
        kernels.RBF() + kernels.RBF() * kernels.Matern((1.0, 1.0), nu=1.5),
        1.0 * Matern([1.0, 1.0]) + WhiteKernel(),
    ],
    ids=["leaf", "sum", "product", "scikit-learn"],
)
def test_length_scales_that_do_not_match_the_columns_are_an_error_before_the_work(kernel):
    with pytest.raises(ValueError, match="2 length-scales but X has 3 columns; give one"):
        ManyGPRegressor(kernel, partition=no_work).fit(X, y)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("rbf", "'rbf' has no counterpart"),
        (kernels.RBF, "RBF.* has no counterpart"),
        (kernels.White(), "only noise"),
        (kernels.Linear() * kernels.White(), "differs between rows"),
        (CompoundKernel([RBF(), RBF()]), "CompoundKernel.*has no counterpart"),
    ],
)
def test_what_is_no_kernel_is_refused(kernel, message):
    with pytest.raises(ValueError, match=message):
        ManyGPRegressor(kernel, partition=no_work).fit(X, y)


def no_work(*arguments):
    raise AssertionError("work was done")
