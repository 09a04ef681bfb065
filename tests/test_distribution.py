"""Predictive distributions against SciPy's, and that errors choose their tails."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, stats

from data import noisy_rows, two_waves
from manygp import ManyGPRegressor, metrics
from manygp.calibration import DEGREES, PredictiveDistribution, fit_tail

MEAN, STD = np.array([-1.0, 0.0, 4.0]), np.array([0.5, 1.0, 3.0])
Y = np.array([-2.0, 0.3, 9.0])
DOFS = [2.5, 4.0, 30.0, np.inf]


def distribution(dof, scale=0.7):
    return PredictiveDistribution(MEAN, STD, np.asarray(dof), np.asarray(scale))


def theirs(dof, scale=0.7):
    width = STD * scale
    return stats.norm(MEAN, width) if np.isinf(dof) else stats.t(dof, MEAN, width)


@pytest.mark.parametrize("dof", DOFS)
def test_densities_probabilities_and_quantiles_are_those_of_scipy(dof):
    ours, expected = distribution(dof), theirs(dof)
    assert_allclose(ours.logpdf(Y), expected.logpdf(Y), rtol=1e-10)
    assert_allclose(ours.pdf(Y), expected.pdf(Y), rtol=1e-10)
    assert_allclose(ours.cdf(Y), expected.cdf(Y), rtol=1e-8)
    for level in (0.01, 0.5, 0.9):
        assert_allclose(ours.ppf(level), expected.ppf(level), rtol=1e-8, atol=1e-12)
    assert_allclose(ours.interval(0.8), expected.interval(0.8), rtol=1e-8)


@pytest.mark.parametrize("dof", DOFS)
def test_crps_in_closed_form_is_the_integral(dof):
    ours, expected = distribution(dof), theirs(dof)
    found = ours.crps(Y)
    for i, (mean, std, y) in enumerate(zip(MEAN, STD, Y, strict=True)):
        one = stats.norm(mean, 0.7 * std) if np.isinf(dof) else stats.t(dof, mean, 0.7 * std)
        below = integrate.quad(lambda t, one=one: one.cdf(t) ** 2, -np.inf, y, limit=200)[0]
        above = integrate.quad(lambda t, one=one: one.sf(t) ** 2, y, np.inf, limit=200)[0]
        assert found[i] == pytest.approx(below + above, rel=1e-5)
    assert metrics.crps(Y, ours) == pytest.approx(found.mean())
    assert metrics.log_score(Y, ours) == pytest.approx(-expected.logpdf(Y).mean())
    assert_allclose(metrics.pit(Y, ours), expected.cdf(Y), rtol=1e-8)


def test_a_normal_distribution_has_the_scores_of_its_mean_and_std():
    normal = distribution(np.inf, 1.0)
    assert metrics.log_score(Y, normal) == pytest.approx(metrics.nll(Y, MEAN, STD))
    assert metrics.crps(Y, normal) == pytest.approx(metrics.crps(Y, MEAN, STD))
    with pytest.raises(ValueError, match="needs mean and std"):
        metrics.crps(Y, MEAN)


@pytest.mark.parametrize("dof", [3.0, np.inf])
def test_samples_follow_the_distribution_and_the_seed(dof):
    ours = distribution(dof)
    samples = ours.sample(4000, random_state=0)
    assert samples.shape == (4000, 3)
    assert_array_equal(samples, ours.sample(4000, random_state=0))
    for i in range(3):
        uniform = ours.cdf(samples)[:, i]
        assert stats.kstest(uniform, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, np.nan, [0.5, 2.0]])
def test_levels_that_are_none_are_refused(level):
    with pytest.raises(ValueError, match="between 0 and 1"):
        distribution(4.0).ppf(level)


@pytest.mark.parametrize("dof", [2.5, 5.0, 15.0, np.inf])
def test_errors_choose_their_tails(dof):
    rng = np.random.default_rng(0)
    z = 0.6 * (rng.normal(size=20_000) if np.isinf(dof) else rng.standard_t(dof, size=20_000))
    found = fit_tail(z)
    place = DEGREES.index(dof)
    assert found.dof in DEGREES[max(0, place - 1) : place + 2]
    assert found.scale == pytest.approx(0.6, rel=0.08)


def test_few_errors_have_heavy_tails_and_a_larger_scale():
    z = np.array([0.1, -0.1])
    found = fit_tail(z)
    assert found.dof == min(DEGREES)
    assert found.scale > 0.5


X, y, QUERIES = noisy_rows(two_waves, 150, 60, reach=3.0)


@pytest.fixture(scope="module")
def fitted():
    return ManyGPRegressor(points_per_expert=25, random_state=0).fit(X, y)


def test_the_distribution_of_a_model_has_its_mean_and_std(fitted):
    found = fitted.predict_dist(QUERIES)
    mean, std = fitted.predict(QUERIES, return_std=True)
    assert_array_equal(found.mean, mean)
    assert_array_equal(found.std, std)
    quantiles = fitted.predict_quantiles(QUERIES, [0.05, 0.5, 0.95])
    assert quantiles.shape == (60, 3)
    assert_allclose(quantiles[:, 1], mean)
    assert_allclose((quantiles[:, 0], quantiles[:, 2]), found.interval(0.9))


def test_several_targets_have_tails_of_their_own():
    model = ManyGPRegressor(points_per_expert=50, random_state=0)
    model.fit(X, np.column_stack([y, X[:, 0] ** 3]))
    found = model.predict_dist(QUERIES)
    assert found.dof.shape == (2,)
    assert found.ppf(0.9).shape == found.logpdf(found.mean).shape == (60, 2)
    assert model.predict_quantiles(QUERIES, [0.1, 0.9]).shape == (60, 2, 2)
    assert found.sample(3, random_state=0).shape == (3, 60, 2)


def test_the_distribution_survives_a_file(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    again = ManyGPRegressor.load(tmp_path / "model").predict_dist(QUERIES)
    assert_array_equal(again.ppf(0.9), fitted.predict_dist(QUERIES).ppf(0.9))


@pytest.mark.parametrize("dof", [2.0, 3.0, 5.0, 10.0, 100.0, np.inf])
def test_quantiles_of_tiny_levels_are_those_of_the_lower_tail(dof):
    levels = 10.0 ** np.array([-320.0, -310, -305, -300, -290, -250, -200, -100, -30, -10])
    quantiles = np.array([distribution(dof).ppf(level) for level in levels]).reshape(
        len(levels), -1
    )
    assert np.all(np.isfinite(quantiles))
    assert np.all(np.diff(quantiles, axis=0) > 0)
    assert np.all(quantiles < distribution(dof).mean)
    if dof == 3.0:  # c nu^((nu + 1) / 2) z^-nu / nu with c = 2 / (pi sqrt(3))
        z = -((6 * np.sqrt(3) / np.pi / 3 / 1e-300) ** (1 / 3))
        expected = distribution(dof).mean + distribution(dof).std * distribution(dof).scale * z
        assert_allclose(distribution(dof).ppf(1e-300), expected, rtol=1e-9)
