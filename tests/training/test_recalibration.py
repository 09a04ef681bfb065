"""The correction of the variance: what rows that are left out teach, and when it is believed."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from manygp import ManyGPRegressor, metrics
from manygp.calibration import (
    LeftOutErrors,
    farthest_known,
    fit_curve,
    fit_scale,
    recalibrate,
)
from manygp.rules import FARTHEST_VARIANCE, VarianceCurve


def errors(true_variance, variance, seed=0, alpha=None, n_targets=1):
    """Normal errors of a true variance, for rows whose predicted variance is another."""
    draws = np.random.default_rng(seed).normal(size=(n_targets, len(variance)))
    alpha = np.zeros(len(variance)) if alpha is None else alpha
    unknown = np.linspace(0.1, 0.5, len(variance))
    return LeftOutErrors(true_variance * draws**2, variance, alpha, unknown)


def spread(n=4000, seed=1):
    return np.exp(np.random.default_rng(seed).normal(size=n))


def chosen_name(found):
    (one,) = [one for one in found if one.chosen]
    return one.value


def test_variances_that_are_right_stay_nearly_as_they_are():
    variance = spread()
    names = []
    for seed in range(10):
        found = []
        curve = recalibrate(errors(variance, variance, 100 + seed), found)
        names.append(chosen_name(found))
        assert_allclose(curve(variance), 1.0, rtol=0.35)
    assert names.count("none") >= 5


def test_a_variance_that_is_four_times_too_small_gets_a_factor_of_four():
    variance = spread()
    found = []
    curve = recalibrate(errors(4 * variance, variance), found)
    assert chosen_name(found) in ("scale", "curve")
    assert_allclose(np.median(curve(variance)), 4.0, rtol=0.1)


@pytest.mark.parametrize("power", [0.5, 2.0])
def test_a_power_of_the_variance_is_learned(power):
    variance = spread()
    found = []
    curve = recalibrate(errors(0.3 * variance**power, variance), found)
    assert chosen_name(found) == "curve"
    middle = (variance > np.quantile(variance, 0.1)) & (variance < np.quantile(variance, 0.9))
    ratio = curve(variance) * variance / (0.3 * variance**power)
    assert_allclose(ratio[middle], 1.0, rtol=0.35)


def test_the_curve_never_falls_and_its_factor_stays_outside_of_what_was_seen():
    variance = spread()
    curve = fit_curve(errors(np.sqrt(variance), variance))
    line = np.geomspace(1e-6, 1e6, 500)
    corrected = curve(line) * line
    assert np.all(np.diff(corrected) >= -1e-9 * corrected[1:])
    low, high = np.exp(curve.log_variances[0]), np.exp(curve.log_variances[-1])
    assert_allclose(curve(np.array([low / 1e3, low])), np.exp(curve.log_factors[0]))
    assert_allclose(curve(np.array([high, high * 1e3])), np.exp(curve.log_factors[-1]))


def test_few_rows_have_a_scale_only():
    variance = spread(60)
    one = errors(3 * variance, variance)
    assert fit_curve(one) == fit_scale(one)


def test_a_few_huge_errors_do_not_decide():
    variance = spread()
    one = errors(variance, variance)
    squares = one.squares.copy()
    squares[0, :3] = 1e6
    names = []
    recalibrate(one._replace(squares=squares), names)
    assert chosen_name(names) != "scale"  # which would make all other rows far too unsure


def test_a_std_that_heavy_tails_make_far_too_small_is_corrected():
    variance, rng = spread(), np.random.default_rng(0)
    one = errors(variance, variance)
    tails = 0.5 * variance * rng.standard_t(2.2, len(variance)) ** 2  # most are small
    found = []
    curve = recalibrate(one._replace(squares=tails[None]), found)
    assert chosen_name(found) != "none"
    total = curve(variance) * variance
    assert_allclose((tails / total).mean(), 1.0, rtol=0.5)


def test_one_huge_error_does_not_keep_a_better_curve_away():
    variance = spread()
    one = errors(0.1 * variance**2, variance)
    squares = one.squares.copy()
    squares[0, np.argmin(variance)] = 1e3
    found = []
    recalibrate(one._replace(squares=squares), found)
    scores = {alternative.value: alternative.nll for alternative in found}
    assert scores["curve"] > scores["scale"]  # on average, because of that error
    assert chosen_name(found) == "curve"


def test_a_correction_that_makes_all_rows_less_likely_is_not_applied(monkeypatch):
    worse = VarianceCurve((0.0,), (5.0,))
    monkeypatch.setitem(recalibrate.__globals__["FITS"], "scale", lambda one: worse)
    variance = spread()
    found = []
    recalibrate(errors(variance, variance), found)
    assert chosen_name(found) != "scale"


def test_known_noise_is_no_error_of_the_model():
    variance = spread()
    alpha = np.full(len(variance), 3.0)
    curve = fit_scale(errors(variance + alpha, variance, alpha=alpha))
    plain = fit_scale(errors(variance + alpha, variance))
    assert curve.log_factors[0] < plain.log_factors[0] - 0.3


def test_targets_are_corrected_together():
    variance = spread()
    both = errors(np.array([[1.0], [7.0]]) * variance, variance, n_targets=2)
    assert_allclose(np.exp(fit_scale(both).log_factors[0]), 4.0, rtol=0.1)
    assert both.conformal_scores(VarianceCurve()).errors.shape == (2, len(variance))


def test_far_is_beyond_all_rows_that_were_left_out():
    one = errors(spread(), spread())
    known = farthest_known(one)
    assert known == 0.5
    far = VarianceCurve(known=known).far(np.array([0.0, 0.5, 0.75, 1.0]))
    assert_array_equal(far, [0.0, 0.0, 0.25, 1.0])
    assert farthest_known(one._replace(unknown=np.ones(5))) < 1


@pytest.mark.parametrize("points_per_expert", [60, 500])
def test_far_from_all_data_the_answer_is_the_distribution_of_the_targets(points_per_expert):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(240, 2))
    y = 50 + 7 * np.sin(6 * X[:, 0]) + X[:, 1]
    model = ManyGPRegressor(points_per_expert=points_per_expert, random_state=0).fit(X, y)
    for distance in (100.0, 1e6):
        mean, std = model.predict(np.full((1, 2), distance), return_std=True)
        assert abs(mean[0] - y.mean()) < y.std()
        assert 0.9 * y.std() <= std[0] <= np.sqrt(FARTHEST_VARIANCE) * y.std() * (1 + 1e-9)


def test_the_calibrated_model_is_no_worse_than_the_uncalibrated_one():
    rng = np.random.default_rng(3)
    X = rng.uniform(size=(1200, 2))
    noise = np.where(X[:, 0] > 0.5, 0.5, 0.05)  # which no expert's kernel knows
    y = np.sin(5 * X[:, 1]) + noise * rng.standard_t(3, size=1200)
    given = {"points_per_expert": 100, "trend": "constant", "random_state": 0}
    train, test = slice(0, 800), slice(800, None)
    auto, plain = (
        ManyGPRegressor(**given, **more).fit(X[train], y[train])
        for more in ({}, {"calibration": "none"})
    )
    scores = [
        metrics.nll(y[test], *one.predict(X[test], return_std=True)) for one in (auto, plain)
    ]
    assert scores[0] <= scores[1] + 0.01


# Few rows


def test_a_small_model_of_one_expert_tells_scores_that_a_test_set_would_give():
    rng = np.random.default_rng(0)
    gaps = []
    for seed in range(3):
        X = rng.uniform(size=(1060, 6))
        y = np.sin(5 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=1060)
        model = ManyGPRegressor(random_state=seed).fit(X[:60], y[:60])
        test = metrics.nll(y[60:], *model.predict(X[60:], return_std=True))
        gaps.append(test - model.loo_score()["nll"])
    assert abs(np.mean(gaps)) < 0.25


@pytest.mark.parametrize("n", [2, 5, 12])
def test_intervals_of_a_handful_of_rows_hold_four_in_five(n):
    held = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        waves, shifts = 4 * rng.normal(size=(20, 2)), rng.uniform(0, 6.28, size=20)
        X = rng.uniform(size=(n + 100, 2))
        y = np.cos(X @ waves.T + shifts).sum(axis=1)
        model = ManyGPRegressor(random_state=0).fit(X[:n], y[:n])
        lower, upper = model.predict_dist(X[n:]).interval(0.9)
        held.append(np.mean((lower <= y[n:]) & (y[n:] <= upper)))
    assert np.mean(held) >= 0.77  # 0.8, less the standard error of the simulation


# Known noise


def test_the_latent_std_of_several_experts_with_known_noise_is_that_of_one():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(500, 1))
    y = np.sin(X[:, 0]) + 0.5 * rng.normal(size=500)
    line = np.linspace(-3, 3, 50)[:, None]
    one, five = (
        ManyGPRegressor(points_per_expert=points, trend="constant", alpha=0.25, random_state=0)
        .fit(X, y)
        .predict(line, return_std=True, latent=True)[1]
        for points in (500, 100)
    )
    assert five.mean() == pytest.approx(one.mean(), rel=0.2)


def test_alpha_may_be_given_to_fit_and_to_predict():
    rng = np.random.default_rng(0)
    X, alpha = rng.uniform(size=(120, 1)), rng.uniform(0.01, 0.5, size=120)
    y = np.sin(6 * X[:, 0]) + np.sqrt(alpha) * rng.normal(size=120)
    given = ManyGPRegressor(points_per_expert=40, random_state=0).fit(X, y, alpha=alpha)
    parameter = ManyGPRegressor(points_per_expert=40, random_state=0, alpha=alpha).fit(X, y)
    assert_array_equal(given.predict(X), parameter.predict(X))
    assert given.get_params()["alpha"] == 0.0
    plain, noisy = (given.predict(X[:5], return_std=True, alpha=a)[1] for a in (0.0, alpha[:5]))
    assert_allclose(noisy**2, plain**2 + alpha[:5])
    latent = given.predict(X[:5], return_std=True, latent=True, alpha=alpha[:5])[1]
    assert_array_equal(latent, given.predict(X[:5], return_std=True, latent=True)[1])
    cov = given.predict(X[:5], return_cov=True, alpha=alpha[:5])[1]
    assert_allclose(np.diag(cov), noisy**2)
    with pytest.raises(ValueError, match=r"alpha must be a scalar or an array .* one per row: 5"):
        given.predict(X[:5], return_std=True, alpha=alpha)
