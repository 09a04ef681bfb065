"""Kernels of scikit-learn that have no counterpart, and those that users have written for it."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

from data import read_only
from manygp import ManyGPRegressor
from manygp.kernels import Constant, White
from manygp.kernels.base import split_noise
from manygp.kernels.sklearn_kernel import SklearnKernel, as_kernel

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
rng = np.random.default_rng(0)
X = read_only(rng.uniform(-2, 2, (30, 2)))
y = read_only(np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=30))
QUERIES = read_only(rng.uniform(-3, 3, (7, 2)))


class Warped(sk.Kernel):
    """Somebody's own kernel: exp(-|x - x'|^2 / (2 width^2)) (1 + level x_1 x'_1)."""

    def __init__(self, width=1.0, level=0.5, width_bounds=(1e-2, 1e2), level_bounds=(1e-3, 1e3)):
        self.width = width
        self.level = level
        self.width_bounds = width_bounds
        self.level_bounds = level_bounds

    @property
    def hyperparameter_width(self):
        return sk.Hyperparameter("width", "numeric", self.width_bounds)

    @property
    def hyperparameter_level(self):
        return sk.Hyperparameter("level", "numeric", self.level_bounds)

    def __call__(self, X, Y=None, eval_gradient=False):
        Z = X if Y is None else Y
        squares = ((X[:, None] - Z[None]) ** 2).sum(axis=-1)
        bell, line = np.exp(-squares / (2 * self.width**2)), np.outer(X[:, 0], Z[:, 0])
        K = bell * (1 + self.level * line)
        if not eval_gradient:
            return K
        slopes = [bell * self.level * line, K * squares / self.width**2]
        free = [not one.fixed for one in self.hyperparameters]
        return K, np.moveaxis(np.array(slopes)[free], 0, -1)

    def diag(self, X):
        return 1 + self.level * X[:, 0] ** 2

    def is_stationary(self):
        return False


class Louder(sk.RBF):
    """A subclass that changes what it inherits."""

    def __call__(self, X, Y=None, eval_gradient=False):
        found = super().__call__(X, Y, eval_gradient)
        return tuple(3 * one for one in found) if eval_gradient else 3 * found

    def diag(self, X):
        return 3 * super().diag(X)


NOISE = sk.WhiteKernel(0.05)
FOREIGN = {
    "own": Warped() + NOISE,
    "subclass": sk.ConstantKernel(0.7) * Louder(0.9) + NOISE,
    "exponentiation": sk.Exponentiation(sk.RBF([0.8, 2.0]), 2) + NOISE,
    "exponentiation-of-sum": (sk.RBF(0.8) + sk.DotProduct(0.5)) ** 2 + NOISE,
    "pairwise": 2.0 * sk.PairwiseKernel(1.3, metric="rbf") + NOISE,
    "matern-any-nu": sk.Matern(0.9, nu=1.1) + NOISE,
    "periodic-of-distance": sk.ExpSineSquared(3.0, 9.0) + NOISE,
    "noise-first": NOISE + Warped(level_bounds="fixed") + sk.ConstantKernel(0.3),
    "fixed": Warped(1.0, 0.5, "fixed", "fixed") + sk.WhiteKernel(0.05, "fixed"),
    "noise-in-a-power": (sk.RBF(0.8) + sk.WhiteKernel(0.1)) ** 2,
}


def pair(kernel, **settings):
    given = {"normalize_y": False, **settings}
    return ManyGPRegressor(kernel, **given), GaussianProcessRegressor(kernel, alpha=0.0)


@pytest.mark.parametrize("name", FOREIGN)
def test_predictions_are_scikit_learns(name):
    ours, theirs = (one.set_params(optimizer=None).fit(X, y) for one in pair(FOREIGN[name]))
    for asked in ("return_std", "return_cov"):
        found, expected = (one.predict(QUERIES, **{asked: True}) for one in (ours, theirs))
        assert_allclose(found[0], expected[0], rtol=1e-8, atol=1e-8)
        assert_allclose(found[1], expected[1], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", FOREIGN)
def test_likelihood_and_gradient_are_scikit_learns(name):
    ours, theirs = (one.set_params(optimizer=None).fit(X, y) for one in pair(FOREIGN[name]))
    theta = FOREIGN[name].theta + np.linspace(-0.2, 0.3, len(FOREIGN[name].theta))
    value, gradient = ours.log_marginal_likelihood(theta, eval_gradient=True)
    their_value, their_gradient = theirs.log_marginal_likelihood(theta, eval_gradient=True)
    assert value == pytest.approx(their_value, rel=1e-8)
    assert_allclose(gradient, their_gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["own", "subclass", "exponentiation", "noise-first"])
def test_the_optimum_is_as_good_as_scikit_learns(name):
    ours, theirs = (one.fit(X, y) for one in pair(FOREIGN[name]))
    least = theirs.log_marginal_likelihood_value_ - 1e-3
    assert ours.log_marginal_likelihood_value_ >= least
    assert type(ours.kernel_) is type(FOREIGN[name])
    assert ours.log_marginal_likelihood(ours.kernel_.theta) == pytest.approx(
        ours.log_marginal_likelihood_value_
    )


def test_several_experts_can_have_a_foreign_kernel():
    fitted = ManyGPRegressor(FOREIGN["own"], points_per_expert=10, random_state=0).fit(X, y)
    assert len(fitted.experts_) == 3
    mean, std = fitted.predict(QUERIES, return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()
    again = pickle.loads(pickle.dumps(fitted)).predict(QUERIES, return_std=True)
    assert_allclose(again, (mean, std))


def test_a_foreign_kernel_has_names_bounds_and_one_line():
    kernel = as_kernel(FOREIGN["own"], 2)
    assert kernel.theta_names == ["Warped.level", "Warped.width", "White.variance"]
    assert_allclose(kernel.bounds, FOREIGN["own"].bounds)
    assert str(kernel) == f"{Warped()!r} + White(0.05)"
    assert "\n" not in str(as_kernel(FOREIGN["pairwise"], 2))


def test_keys_of_foreign_kernels_tell_all_digits():
    assert repr(SklearnKernel(Warped(1.0))) != repr(SklearnKernel(Warped(1.0 + 1e-12)))
    assert SklearnKernel(Warped(1.0)) == SklearnKernel(Warped(1.0))
    assert SklearnKernel(Warped(1.0)) != SklearnKernel(Warped(1.1))


def test_a_foreign_kernel_is_not_saved_and_says_so(tmp_path):
    fitted = ManyGPRegressor(FOREIGN["own"], optimizer=None).fit(X, y)
    with pytest.raises(ValueError, match="pickle keeps any model"):
        fitted.save(tmp_path / "model")


class Wrong(Warped):
    def __call__(self, X, Y=None, eval_gradient=False):
        return np.ones((len(X), len(X if Y is None else Y), 2))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Wrong(), r"Wrong\(.*shape \(1, 1, 2\) for one row"),
        (sk.RBF([1.0, 2.0, 3.0]) ** 2, r"RBF\(.*\*\* 2 cannot be evaluated on 2 columns"),
        (Warped(width_bounds=(0, np.inf)), r"Warped\(.*requires that all bounds are finite"),
        (sk.CompoundKernel([sk.RBF(), sk.RBF()]), "CompoundKernel.*no counterpart"),
        (sk.DotProduct() * sk.WhiteKernel(), r"Linear\(.*variance differs between rows.*alpha"),
        (sk.WhiteKernel(), "only noise"),
        (sk.RBF, "no counterpart"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_what_cannot_be_is_refused_in_the_users_words(kernel, message):
    with pytest.raises(ValueError, match=message):
        ManyGPRegressor(kernel).fit(X, y)


# Noise anywhere


MIXED = {
    "two": sk.WhiteKernel(0.1) + sk.RBF(0.9) + sk.WhiteKernel(0.2),
    "factor": 2.0 * (sk.RBF([0.9, 2.0]) + sk.WhiteKernel(0.1)) + sk.ConstantKernel(0.4),
    "product": sk.RBF(0.9) + sk.RBF(2.0) * sk.WhiteKernel(0.1),
    "both": (sk.RBF(0.9) + sk.WhiteKernel(0.1)) * (sk.ConstantKernel(2.0) + sk.WhiteKernel(0.3)),
    "with-a-slope": sk.DotProduct(0.5) + 3.0 * sk.WhiteKernel(0.1, "fixed"),
}


@pytest.mark.parametrize("name", MIXED)
def test_noise_may_stand_anywhere(name):
    ours, theirs = (one.set_params(optimizer=None).fit(X, y) for one in pair(MIXED[name]))
    theta = MIXED[name].theta + np.linspace(-0.2, 0.3, len(MIXED[name].theta))
    value, gradient = ours.log_marginal_likelihood(theta, eval_gradient=True)
    their_value, their_gradient = theirs.log_marginal_likelihood(theta, eval_gradient=True)
    assert value == pytest.approx(their_value, rel=1e-9)
    assert_allclose(gradient, their_gradient, rtol=1e-7, atol=1e-7)
    found, expected = (one.predict(QUERIES, return_cov=True) for one in (ours, theirs))
    assert_allclose(found[1], expected[1], rtol=1e-8, atol=1e-8)
    latent = ours.predict(QUERIES, return_std=True, latent=True)[1]
    noise = ours.experts_[0].noise_variance
    assert noise > 0
    assert_allclose(latent**2 + noise, np.diag(expected[1]), rtol=1e-8)


@pytest.mark.parametrize("name", ["two", "factor", "both"])
def test_noise_anywhere_is_fitted_saved_and_shown(name, tmp_path):
    from manygp import load

    fitted = ManyGPRegressor(MIXED[name]).fit(X, y)
    split = split_noise(as_kernel(fitted.kernel_, 2))
    assert fitted.experts_[0].kernel == split
    assert str(split) == str(as_kernel(fitted.kernel_, 2))
    fitted.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    expected = fitted.predict(QUERIES, return_std=True)
    assert_allclose(loaded.predict(QUERIES, return_std=True), expected, rtol=1e-12)


def test_noise_of_a_product_is_that_of_the_diagonal():
    kernel = split_noise(Constant(2.0) * (Constant(3.0) + White(0.1)) + White(0.5))
    assert kernel.noise_variance == pytest.approx(0.7)
    assert_allclose(kernel(X[:3]), np.full((3, 3), 6.0) + 0.7 * np.eye(3))
