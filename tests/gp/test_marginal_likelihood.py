"""The likelihood of one expert and its posterior, against the reference."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import reference
from data import read_only
from kernel_cases import CASES, FIXED, rows
from manygp.gp import marginal_likelihood as linalg
from manygp.gp.expert import posterior_covariance, predict_expert
from manygp.gp.marginal_likelihood import Likelihood, Objective, maximise
from manygp.kernels import RBF, Constant, Linear, Matern, White
from manygp.kernels.base import Workspace, split_noise
from models import fit_expert

SIGNALS = [name for name in CASES if name != "white"]
MEANS = pytest.mark.parametrize("constant_mean", [False, True])
TARGETS = pytest.mark.parametrize("n_targets", [1, 2])


def data(n, n_columns=3, n_targets=1, seed=0):
    """X (n, d) with equal rows, Y (n, t) of mean 3 and known noise variances (n,)."""
    X = rows(n, n_columns, seed)
    rng = np.random.default_rng(seed + 10)
    Y = 3 + np.sin(2 * X[:, :1]) * np.arange(1, n_targets + 1) + rng.normal(size=(n, n_targets))
    return X, read_only(Y), read_only(rng.uniform(0.1, 0.5, n))


def fitted(name, n=12, n_targets=1, constant_mean=True):
    """An expert with the hyperparameters of a case, and the reference's arguments per target."""
    case = CASES[name]
    X, Y, alpha = data(n, case.n_columns, n_targets)
    kernel = split_noise(case.kernel)
    infinite = np.full(len(kernel.theta), np.inf)
    indices = np.arange(n)
    expert = fit_expert(X, Y, alpha, indices, kernel, infinite, constant_mean)
    models = []
    for y in Y.T:
        arguments = (case.k, X, y, alpha + case.noise)
        models.append((*arguments, reference.constant_mean(*arguments) if constant_mean else 0.0))
    return expert, models


def predict(expert, X):
    work = Workspace((len(X), len(expert.whitener)))
    return predict_expert(expert, X, work, with_variance=True)[:3]


@MEANS
@TARGETS
@pytest.mark.parametrize("name", SIGNALS)
def test_likelihood_and_mean_equal_the_reference(name, n_targets, constant_mean):
    expert, models = fitted(name, n_targets=n_targets, constant_mean=constant_mean)
    assert_allclose(expert.mean, [c for *_, c in models], rtol=1e-9)
    expected = sum(reference.log_likelihood(*model) for model in models)
    assert expert.log_marginal_likelihood == pytest.approx(expected, rel=1e-10)
    assert expert.jitter == 0


@MEANS
@TARGETS
@pytest.mark.parametrize("name", SIGNALS)
def test_likelihood_gradient_equals_finite_differences(name, n_targets, constant_mean):
    X, Y, alpha = data(12, CASES[name].n_columns, n_targets)
    likelihood = Likelihood(X, Y, alpha, constant_mean)
    kernel, h = split_noise(CASES[name].kernel), 1e-5

    def value(theta):
        return likelihood.value_and_gradient(kernel.with_theta(theta))[0]

    steps = h * np.eye(len(kernel.theta))
    expected = [(value(kernel.theta + e) - value(kernel.theta - e)) / (2 * h) for e in steps]
    found, gradient = likelihood.value_and_gradient(kernel)
    assert found == pytest.approx(likelihood.posterior(kernel).log_likelihood, rel=1e-14)
    assert_allclose(gradient, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 64, 65, 2 * linalg.SMALLEST_TRIANGLE + 3])
def test_linear_algebra_in_place_equals_numpys_on_a_block_of_a_larger_matrix(n):
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(n, n)), rng.normal(size=(n, 2))
    K = A @ A.T / n + np.eye(n)
    L = np.linalg.cholesky(K)
    whole = np.full((n + 3, n + 2), 7.0, order="F")
    block = whole[1 : n + 1, 2:]
    block[:] = K
    assert linalg.cholesky(block)
    linalg.clear_upper(block)
    close = partial(assert_allclose, rtol=0, atol=1e-11)
    close(block, L)
    solved = B.copy(order="F")
    linalg.solve_cholesky(block, solved)
    close(solved, np.linalg.solve(K, B))
    linalg.invert_triangle(block)
    close(block, np.linalg.inv(L))
    product = B.copy(order="F")
    linalg.multiply_triangle(block, product)
    close(product, np.linalg.solve(L, B))
    single = B.astype(np.float32, order="F")
    linalg.multiply_triangle(block.astype(np.float32, order="F"), single)
    assert_allclose(single, product, rtol=1e-4, atol=1e-4)
    linalg.multiply_transposed(block)
    close(block, np.tril(np.linalg.inv(K)))
    linalg.add_outer(B.copy(order="F"), block, scale=-2.0)
    close(block, np.tril(B @ B.T - 2 * np.linalg.inv(K)))
    block[:] = 7.0
    assert np.all(whole == 7), "nothing outside the block was written to"


def test_cholesky_says_that_there_is_none():
    assert not linalg.cholesky(np.array([[1.0, 2.0], [2.0, 1.0]], order="F"))


def test_likelihood_gradient_is_right_for_a_triangle_inverted_by_halves():
    X, Y, alpha = data(2 * linalg.SMALLEST_TRIANGLE + 3, n_targets=2)
    likelihood = Likelihood(X, Y, alpha, constant_mean=True)
    kernel, h = split_noise(CASES["signal-and-noise"].kernel), 1e-5
    gradient = likelihood.value_and_gradient(kernel)[1]
    for i, step in enumerate(h * np.eye(len(gradient))):
        high, low = (kernel.with_theta(kernel.theta + s) for s in (step, -step))
        slope = likelihood.value_and_gradient(high)[0] - likelihood.value_and_gradient(low)[0]
        assert gradient[i] == pytest.approx(slope / (2 * h), rel=1e-6)


def test_constant_mean_maximises_the_likelihood():
    expert, [(*arguments, c)] = fitted("signal-and-noise")
    assert c == pytest.approx(float(expert.mean[0]))
    best = reference.log_likelihood(*arguments, c)
    assert best > max(reference.log_likelihood(*arguments, c + e) for e in (-0.01, 0.01))


def test_posterior_survives_further_evaluations():
    X, Y, alpha = data(10)
    likelihood = Likelihood(X, Y, alpha, constant_mean=True)
    kernel = split_noise(CASES["signal-and-noise"].kernel)
    posterior = likelihood.posterior(kernel)
    before = [np.array(part) for part in posterior]
    likelihood.value_and_gradient(kernel.with_theta(kernel.theta + 1))
    for part, old in zip(posterior, before, strict=True):
        assert_array_equal(part, old)
    for part, old in zip(likelihood.posterior(kernel), before, strict=True):
        assert_array_equal(part, old)


@MEANS
@TARGETS
@pytest.mark.parametrize("name", SIGNALS)
def test_posterior_of_an_expert_equals_the_reference(name, n_targets, constant_mean):
    expert, models = fitted(name, n_targets=n_targets, constant_mean=constant_mean)
    new = np.concatenate([rows(6, CASES[name].n_columns, seed=1), expert.X[:2]])
    mean, variance, prior = predict(expert, read_only(new))
    for i, x in enumerate(new):
        for t, model in enumerate(models):
            expected_mean, expected_variance = reference.posterior(*model, x)
            assert mean[i, t] == pytest.approx(expected_mean, abs=1e-8)
            assert variance[i] == pytest.approx(expected_variance, abs=1e-8)
        assert prior[i] == pytest.approx(CASES[name].k(x, x), abs=1e-12)


@pytest.mark.parametrize("name", SIGNALS)
def test_posterior_variance_is_positive_and_at_most_the_prior(name):
    expert, _ = fitted(name, n=30)
    new = np.concatenate([rows(20, CASES[name].n_columns, seed=1), expert.X, 50 + expert.X])
    _, variance, prior = predict(expert, new)
    assert np.all(variance > 0)
    assert np.all(variance <= prior * (1 + 1e-12))


@pytest.mark.parametrize("name", SIGNALS)
def test_mean_without_variance_is_the_same_mean(name):
    expert, _ = fitted(name, n_targets=2)
    X = rows(6, CASES[name].n_columns, seed=1)
    work = Workspace((6, len(expert.whitener)))
    mean, variance, prior, *_ = predict_expert(expert, X, work, with_variance=False)
    assert_array_equal(mean, predict(expert, X)[0])
    assert len(variance) == len(prior) == 0


@pytest.mark.parametrize("name", SIGNALS)
def test_prediction_of_an_expert_does_not_depend_on_its_batch(name):
    expert, _ = fitted(name)
    X = rows(6, CASES[name].n_columns, seed=1)
    for together, alone in zip(
        predict(expert, X), zip(*(predict(expert, x[None]) for x in X), strict=True), strict=True
    ):
        assert_allclose(together, np.concatenate(alone), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SIGNALS)
def test_posterior_covariance_agrees_with_the_posterior_variances(name):
    expert, _ = fitted(name)
    X = rows(6, CASES[name].n_columns, seed=1)
    covariance = posterior_covariance(expert, X)
    assert_allclose(np.diag(covariance), predict(expert, X)[1], rtol=0, atol=1e-10)
    assert np.linalg.eigvalsh(covariance).min() > -1e-10


def test_equal_rows_without_noise_get_a_jitter_that_is_recorded():
    X, Y, _ = data(10)  # the first and the last two rows of X are equal
    likelihood = Likelihood(X, Y, np.zeros(10), constant_mean=True)
    kernel = split_noise(3.0 * RBF(0.8))
    posterior = likelihood.posterior(kernel)
    assert 0 < posterior.jitter < 1e-3
    assert np.all(np.isfinite(posterior.coefficients))
    noise = np.full(10, posterior.jitter)
    arguments = (lambda x, z: 3 * reference.rbf(x, z, (0.8,) * 3), X, Y[:, 0], noise)
    expected = reference.log_likelihood(*arguments, reference.constant_mean(*arguments))
    assert posterior.log_likelihood == pytest.approx(expected, rel=1e-3)


@MEANS
@TARGETS
def test_one_row_is_enough(n_targets, constant_mean):
    X, Y, alpha = data(3, n_targets=n_targets)
    kernel = split_noise(CASES["signal-and-noise"].kernel)
    no_pull, row = np.zeros(len(kernel.theta)), np.array([1])
    expert = fit_expert(X, Y, alpha, row, kernel, no_pull, constant_mean)
    assert_allclose(expert.mean, Y[1] if constant_mean else 0)
    mean, variance, _ = predict(expert, X)
    assert mean.shape == (3, n_targets)
    assert np.all(np.isfinite(mean))
    assert np.all(variance > 0)


def test_zero_prior_variance_gives_next_to_no_variance_and_the_prior_mean():
    X, Y, alpha = data(8)
    kernel = split_noise(Linear(0.0, FIXED) + White(0.1, FIXED))
    expert = fit_expert(X, Y, alpha, np.arange(8), kernel, np.empty(0), True)
    mean, variance, prior = predict(expert, np.zeros((1, 3)))
    assert mean[0] == pytest.approx(expert.mean)
    assert 0 < variance[0] <= prior[0] < 1e-150


START = split_noise(Constant(1.0) * Matern(1.0) + White(1.0))


@pytest.fixture(scope="module")
def likelihood():
    """Of 60 rows of a smooth function with noise of variance 0.01."""
    rng = np.random.default_rng(0)
    X = read_only(rng.uniform(size=(60, 2)))
    Y = read_only(np.sin(6 * X[:, :1]) + 0.1 * rng.normal(size=(60, 1)))
    return Likelihood(X, Y, np.zeros(60), constant_mean=True)


def maximised(likelihood, kernel, precision, more_starts=None):
    starts = np.vstack([kernel.theta] if more_starts is None else [kernel.theta, more_starts])
    return maximise([likelihood], Objective(kernel, np.array(precision), 2e-9), starts).kernel


def test_the_gradient_vanishes_at_the_optimum(likelihood):
    best = maximised(likelihood, START, [0.0] * 3)
    assert np.abs(likelihood.value_and_gradient(best)[1]).max() < 0.05
    assert 0.003 < best.noise_variance < 0.03


def test_bounds_hold_and_a_start_outside_them_is_moved_inside(likelihood):
    kernel = split_noise(Constant(50.0, (0.1, 2.0)) * Matern(1.0, (0.8, 3.0)) + White(1.0))
    best = maximised(likelihood, kernel, [0.0] * 3)
    assert np.all(best.theta >= kernel.bounds[:, 0] - 1e-12)
    assert np.all(best.theta <= kernel.bounds[:, 1] + 1e-12)


def test_fixed_hyperparameters_stay(likelihood):
    kernel = split_noise(Constant(1.3, FIXED) * Matern(1.0) + White(1.0))
    best = maximised(likelihood, kernel, [0.0] * 2)
    assert best.signal.left == kernel.signal.left
    assert np.all(best.theta != kernel.theta)


def test_further_starts_never_make_it_worse(likelihood):
    starts = np.random.default_rng(1).uniform(-3, 3, size=(3, 3))
    once = maximised(likelihood, START, [0.0] * 3)
    best = maximised(likelihood, START, [0.0] * 3, starts)
    values = [likelihood.value_and_gradient(kernel)[0] for kernel in (once, best)]
    assert values[1] >= values[0]


def test_shrinkage_balances_the_likelihood(likelihood):
    best = maximised(likelihood, START, [30.0] * 3)
    gradient = likelihood.value_and_gradient(best)[1]
    assert_allclose(gradient, 30.0 * (best.theta - START.theta), atol=0.05)


@pytest.mark.parametrize("infinite", [1e9, np.inf])
def test_infinite_shrinkage_of_one_hyperparameter_holds_it_and_frees_the_rest(
    likelihood, infinite
):
    best = maximised(likelihood, START, [infinite, 0.0, 0.0])
    assert_allclose(best.theta[0], START.theta[0], atol=1e-6)
    assert np.all(np.abs(best.theta[1:] - START.theta[1:]) > 0.1)
