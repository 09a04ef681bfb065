"""What left-out rows teach: the correction of the variance, distributions, and intervals."""

import dataclasses
import functools
import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import integrate, stats

from data import noisy_rows, two_waves
from manygp import ManyGPRegressor, load, metrics
from manygp.calibration import (
    CORRECTION,
    TAIL,
    ConformalScores,
    LeftOutErrors,
    PredictiveDistribution,
    farthest_known,
    fit_conformal_scores,
    fit_curve,
    fit_level,
    fit_scale,
    fit_tail,
    recalibrate,
)
from manygp.rules import FARTHEST_VARIANCE, VarianceCurve

# The correction of the variance


def errors(true_variance, variance, seed=0, alpha=None, n_targets=1):
    """Normal errors of a true variance, for rows whose predicted variance is another."""
    draws = np.random.default_rng(seed).normal(size=(n_targets, len(variance)))
    alpha = np.zeros(len(variance)) if alpha is None else alpha
    unknown = np.linspace(0.1, 0.5, len(variance))
    squares, rows = true_variance * draws**2, np.arange(len(variance))
    return LeftOutErrors(squares, variance, alpha, unknown, rows, np.zeros_like(squares))


def spread(n=4000, seed=1):
    return np.exp(np.random.default_rng(seed).normal(size=n))


def chosen_name(found):
    (one,) = [one for one in found if one.chosen]
    return one.value


def test_variances_that_are_right_stay_nearly_as_they_are():
    variance = spread()
    names = []
    for seed in range(10):
        curve, found = recalibrate(errors(variance, variance, 100 + seed))
        names.append(chosen_name(found))
        assert_allclose(curve(variance), 1.0, rtol=0.35)
    assert names.count("none") >= 5


def test_a_variance_that_is_four_times_too_small_gets_a_factor_of_four():
    variance = spread()
    curve, found = recalibrate(errors(4 * variance, variance))
    assert chosen_name(found) in ("scale", "curve")
    assert_allclose(np.median(curve(variance)), 4.0, rtol=0.1)


@pytest.mark.parametrize("power", [0.5, 2.0])
def test_a_power_of_the_variance_is_learned(power):
    variance = spread()
    curve, found = recalibrate(errors(0.3 * variance**power, variance))
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
    flat = fit_curve(errors(np.ones_like(variance), variance))  # the variance tells nothing
    slopes = np.diff(np.log(flat(line) * line)) / np.diff(np.log(line))
    assert slopes.min() == pytest.approx(CORRECTION.least_power, abs=1e-6)
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
    _, found = recalibrate(one._replace(squares=squares))
    assert chosen_name(found) != "scale"  # which would make all other rows far too unsure


def test_rare_large_errors_raise_the_level_by_what_is_sure_of_them():
    variance = spread()
    one = errors(variance, variance)
    squares = one.squares.copy()
    squares[0, :120] = 12 * variance[:120]  # in few folds they would decide nothing
    curve, found = recalibrate(one._replace(squares=squares))
    assert chosen_name(found) != "none"
    assert np.median(curve(variance)) == pytest.approx(1.33, abs=0.1)
    squares[0, :120], squares[0, 0] = one.squares[0, :120], 1e9
    assert 1 <= np.exp(fit_level(one._replace(squares=squares)).log_factors[0]) < 1.1
    assert fit_level(errors(0.5 * variance, variance)).log_factors == (0.0,)
    few = errors(np.full(20, 9.0), np.ones(20))
    assert 0 < fit_level(few).log_factors[0] < fit_scale(few).log_factors[0]


def test_a_std_that_heavy_tails_make_far_too_small_is_corrected():
    variance, rng = spread(), np.random.default_rng(0)
    one = errors(variance, variance)
    tails = 0.5 * variance * rng.standard_t(2.2, len(variance)) ** 2  # most are small
    curve, found = recalibrate(one._replace(squares=tails[None]))
    assert chosen_name(found) != "none"
    total = curve(variance) * variance
    assert_allclose((tails / total).mean(), 1.0, rtol=0.5)


def test_one_huge_error_does_not_keep_a_better_curve_away():
    variance = spread()
    one = errors(0.1 * variance**2, variance)
    squares = one.squares.copy()
    squares[0, np.argmin(variance)] = 1e3
    _, found = recalibrate(one._replace(squares=squares))
    scores = {alternative.value: alternative.nll for alternative in found}
    assert scores["curve"] > scores["scale"]  # on average, because of that error
    assert chosen_name(found) == "curve"


def test_a_correction_that_makes_all_rows_less_likely_is_not_applied(monkeypatch):
    worse = VarianceCurve((0.0,), (5.0,))
    monkeypatch.setitem(recalibrate.__globals__["CORRECTIONS"], "scale", lambda one: worse)
    variance = spread()
    _, found = recalibrate(errors(variance, variance))
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
    assert both.conformal_scores(VarianceCurve(), np.zeros(len(variance))).errors.shape == (
        2,
        len(variance),
    )


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


# Distributions against SciPy's, and their tails

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
    place = TAIL.degrees.index(dof)
    assert found.dof in TAIL.degrees[max(0, place - 1) : place + 2]
    assert found.scale == pytest.approx(0.6, rel=0.08)


def test_few_errors_have_heavy_tails_and_a_larger_scale():
    z = np.array([0.1, -0.1])
    found = fit_tail(z)
    assert found.dof == min(TAIL.degrees)
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


# Errors in units of the std, which may be spread differently where it is small and large

N = 6000
WIDTHS = np.exp(np.random.default_rng(0).normal(size=N))


def standardised(seed, heavy):
    """Normal errors, but Student-t ones where the std is large, if these are heavy."""
    rng = np.random.default_rng(seed)
    normal, student = rng.normal(size=N), rng.standard_t(2.5, size=N)
    return np.where((np.median(WIDTHS) < WIDTHS) & heavy, student, normal)


def test_one_group_is_one_quantile_and_one_tail_for_all_rows():
    z = standardised(1, heavy=True)
    found = ConformalScores.of(z[None], WIDTHS)
    assert_array_equal(found.errors[0], np.sort(np.abs(z)))
    widths = np.array([[0.1], [1.0], [10.0]])
    assert_array_equal(
        found.reach(0.9, widths), np.sort(np.abs(z))[int(np.ceil(0.9 * (N + 1))) - 1]
    )
    tail, spread = fit_tail(z), found.distribution(np.zeros(3), widths[:, 0], (widths, widths))
    assert_allclose((spread.dof, spread.scale), tail)


def test_groups_are_learned_only_where_errors_differ():
    assert len(fit_conformal_scores(standardised(2, heavy=False)[None], WIDTHS).places) == 1
    found = fit_conformal_scores(standardised(2, heavy=True)[None], WIDTHS)
    assert len(found.places) >= 2
    std = np.quantile(WIDTHS, [0.05, 0.95])
    dof = found.distribution(np.zeros(2), std, (std[:, None], np.zeros((2, 1)))).dof
    assert dof[0] > 15
    assert dof[1] < 5


def test_std_that_differ_by_rounding_are_one_group():
    std = 1 + 1e-15 * np.random.default_rng(9).integers(0, 4, N)
    heavy = np.where(
        std > 1 + 1.5e-15, standardised(10, heavy=False), 3 * standardised(11, heavy=False)
    )
    assert len(fit_conformal_scores(heavy[None], std).places) == 1
    assert len(fit_conformal_scores(heavy[None], 1 + 1e14 * (std - 1)).places) > 1


def test_few_rows_are_one_group():
    few = slice(900)
    assert (
        len(fit_conformal_scores(standardised(2, heavy=True)[None, few], WIDTHS[few]).places) == 1
    )


def test_intervals_of_groups_hold_the_promise_for_small_and_for_large_std():
    found = fit_conformal_scores(standardised(3, heavy=True)[None], WIDTHS)
    new = np.abs(standardised(4, heavy=True))
    inside = new <= found.reach(0.95, WIDTHS[:, None])[:, 0]
    for part in np.array_split(np.argsort(WIDTHS), 4):
        assert abs(inside[part].mean() - 0.95) < 0.02  # two and a half standard errors, or more
    one = ConformalScores.of(standardised(3, heavy=True)[None], WIDTHS)
    pooled = new <= one.reach(0.95, WIDTHS[:, None])[:, 0]
    assert pooled[np.argsort(WIDTHS)[: N // 4]].mean() > 0.98  # what groups are for


def test_intervals_grow_with_their_coverage_also_where_a_group_has_too_few_rows():
    found = ConformalScores.of(standardised(5, heavy=True)[None], WIDTHS, 8)
    levels = [0.9, 0.99, 1 - 9 / N, 1 - 7 / N, 1 - 2 / N]  # a group promises up to 1 - 8 / N
    widths = [found.reach(level, np.array([[0.1], [1.0], [10.0]])) for level in levels]
    assert np.all(np.diff(widths, axis=0) >= 0)
    assert np.all(widths[-1] >= np.sort(np.abs(standardised(5, heavy=True)))[N - 2])
    with pytest.raises(ValueError, match="can promise a coverage of at most"):
        found.require(1 - 0.5 / N)


def test_what_rows_get_does_not_jump_between_groups():
    found = ConformalScores.of(standardised(6, heavy=True)[None], WIDTHS, 4)
    line = np.exp(np.linspace(-4, 4, 4000))[:, None]
    steps = np.abs(np.diff(found.reach(0.9, line)[:, 0]))
    assert steps.max() < 0.01


def test_several_targets_have_groups_of_their_own_errors():
    both = np.array([standardised(7, heavy=True), standardised(7, heavy=False)])
    found = ConformalScores.of(both, WIDTHS, 2)
    std = np.array([[0.1, 1.0], [10.0, 100.0]])
    spread = found.distribution(np.zeros((2, 2)), std, (std / [1.0, 10.0], np.zeros((2, 2))))
    assert spread.dof[1, 0] < 5 < 15 < min(spread.dof[0, 0], *spread.dof[:, 1])


def test_a_model_with_groups_is_saved_and_answers_the_same(tmp_path):
    rng = np.random.default_rng(8)
    X = rng.random((2400, 1))
    noise = np.where(X[:, 0] > 0.5, 0.3 * rng.standard_t(2.5, 2400), 0.05 * rng.normal(size=2400))
    settings = {"trend": "constant", "overlap": 0, "hyperparameters": "independent"}
    model = ManyGPRegressor(random_state=0, **settings).fit(X, np.sin(6 * X[:, 0]) + noise)
    assert len(model.model_.conformal_scores.places) > 1
    queries = np.linspace(0, 1, 7)[:, None]
    expected = [*model.predict_interval(queries, 0.8), model.predict_dist(queries).ppf(0.95)]
    model.save(tmp_path / "model.gp")
    same = load(tmp_path / "model.gp")
    found = [*same.predict_interval(queries, 0.8), same.predict_dist(queries).ppf(0.95)]
    assert_array_equal(found, expected)
    assert model.predict_dist(queries).dof.shape == (7,)


def errors_of_means(means, y):
    """Errors of rows y (n,) that were predicted by means (n,), with the std 1."""
    squares, ones = (y - means)[None] ** 2, np.ones(len(y))
    return LeftOutErrors(squares, ones, 0 * ones, ones / 2, np.arange(len(y)), means[None])


def test_errors_that_are_spread_by_the_mean_are_grouped_by_it():
    rng = np.random.default_rng(0)
    means = np.linspace(-4, 4, N)
    wide = rng.normal(size=N) * np.sqrt(rng.exponential(size=N))
    y = means + np.where(means > 2, wide, rng.normal(size=N))
    found = errors_of_means(means, y).conformal_scores(VarianceCurve(), None)
    assert found.by_mean
    at, ones = np.array([[-3.5], [3.5]]), np.ones((2, 1))
    dof = found.distribution(at[:, 0], ones[:, 0], (ones, at)).dof
    assert dof[1] < 10 < 50 < dof[0]
    # Means that say nothing but what the row itself is not.
    noise = rng.normal(size=N) ** 3
    blind = -1e-3 * noise
    assert not errors_of_means(blind, noise).conformal_scores(VarianceCurve(), None).by_mean


def test_a_model_with_groups_by_mean_is_saved_and_answers_the_same(tmp_path):
    rng = np.random.default_rng(8)
    X = rng.random((1200, 1))
    noise = np.where(X[:, 0] > 0.5, 0.3 * rng.standard_t(2.1, 1200), 0.3 * rng.normal(size=1200))
    settings = {"trend": "constant", "overlap": 0, "hyperparameters": "shared"}
    model = ManyGPRegressor(noise="constant", target_transform=None, random_state=0, **settings)
    model.fit(X, 4 * X[:, 0] + noise)
    assert model.model_.conformal_scores.by_mean
    queries = np.linspace(0, 1, 7)[:, None]
    expected = [*model.predict_interval(queries, 0.8), model.predict_dist(queries).ppf(0.95)]
    assert np.ptp(model.predict_dist(queries).scale) > 0
    model.save(tmp_path / "model.gp")
    same = load(tmp_path / "model.gp")
    found = [*same.predict_interval(queries, 0.8), same.predict_dist(queries).ppf(0.95)]
    assert_array_equal(found, expected)


# Errors that are spread as no Student-t is


def mostly_exact(seed):
    """Errors three fifths of which are tiny, and none of which is far."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(N) < 0.6, 0.1 * rng.normal(size=N), rng.uniform(-2, 2, N))


@functools.cache
def shaped_scores():
    return fit_conformal_scores(mostly_exact(0)[None], np.ones(N))


def shaped_distribution():
    return shaped_scores().distribution(MEAN, STD, (STD[:, None], MEAN[:, None]))


def test_a_shape_is_learned_only_where_a_student_t_does_not_hold_errors():
    rng = np.random.default_rng(0)
    for z in (rng.normal(size=2000), rng.standard_t(4, 2000)):
        assert not fit_conformal_scores(z[None], np.ones(2000)).shaped
    assert shaped_scores().shaped
    few = mostly_exact(0)[:150]
    assert not fit_conformal_scores(few[None], np.ones(150)).shaped


def test_intervals_of_a_shape_are_those_of_the_errors():
    scores = shaped_scores()
    shaped = scores.distribution(np.zeros(N), np.ones(N), (np.ones((N, 1)), np.zeros((N, 1))))
    student = dataclasses.replace(shaped, shape=None)
    new = mostly_exact(1)
    for coverage in (0.5, 0.8, 0.9, 0.95):
        lower, upper = shaped.interval(coverage)
        assert abs(np.mean((lower <= new) & (new <= upper)) - coverage) < 0.02
        assert_allclose(lower, -upper)
    reach = scores.reach(0.9, np.ones((1, 1)))[0, 0]
    assert shaped.interval(0.9)[1][0] == pytest.approx(reach, rel=0.01)
    lower, upper = student.interval(0.9)
    assert abs(np.mean((lower <= new) & (new <= upper)) - 0.9) > 0.02  # what the shape is for
    assert metrics.log_score(new, shaped) < metrics.log_score(new, student) - 0.2


def test_quantiles_and_probabilities_of_a_shape_are_inverse_far_out_and_near_the_mean():
    found = shaped_distribution()
    for level in (1e-300, 1e-20, 1e-4, 0.01, 0.05, 0.3, 0.4999, 0.5, 0.6, 0.95, 1 - 1e-9):
        assert_allclose(found.cdf(found.ppf(level)), level, rtol=1e-9)
    levels = np.linspace(1e-4, 1 - 1e-4, 999)
    assert np.all(np.diff([found.ppf(level) for level in levels], axis=0) > 0)


def test_the_density_of_a_shape_has_no_steps_and_is_that_of_its_probabilities():
    found = shaped_distribution()
    near = MEAN + STD * np.linspace(-3, 3, 40_001)[:, None]
    density, slope = found.pdf(near), np.diff(found.cdf(near), axis=0) / np.diff(near, axis=0)
    middle = found.pdf(near[:-1] + np.diff(near, axis=0) / 2)
    assert_allclose(middle, slope, rtol=1e-3)
    assert np.abs(np.diff(np.log(density), axis=0)).max() < 0.03


def test_crps_of_a_shape_is_the_integral():
    found = shaped_distribution()
    for y in (MEAN, Y, MEAN + 0.02 * STD):
        scores = found.crps(y)
        for i in range(3):
            one = PredictiveDistribution(MEAN[i], STD[i], found.dof, found.scale, found.shape)
            ends = [-np.inf, *one.ppf(np.array([0.01, 0.2, 0.4, 0.6, 0.8, 0.99])), np.inf]
            expected = 0.0
            for low, high in itertools.pairwise(sorted([*ends, y[i]])):
                above = low >= y[i]

                def square(t, one=one, above=above):
                    return float((one.cdf(t) - above) ** 2)

                expected += integrate.quad(square, low, high, limit=200)[0]
            assert scores[i] == pytest.approx(expected, rel=2e-3)


def test_samples_follow_a_shape():
    found = shaped_distribution()
    samples = found.sample(4000, random_state=0)
    assert samples.shape == (4000, 3)
    for i in range(3):
        assert stats.kstest(found.cdf(samples)[:, i], "uniform").pvalue > 1e-3


def test_errors_that_are_all_zero_have_a_density():
    scores = dataclasses.replace(ConformalScores.of(np.zeros((1, 500)), np.ones(500)), shaped=True)
    found = scores.distribution(np.zeros(3), np.ones(3), (np.ones((3, 1)), np.zeros((3, 1))))
    assert np.all(np.isfinite(found.logpdf(np.array([0.0, 1e-9, 5.0]))))


def test_a_model_whose_errors_have_a_shape_is_saved_and_answers_the_same(tmp_path):
    rng = np.random.default_rng(8)
    X = rng.random((1500, 1))
    y = np.sin(6 * X[:, 0]) + np.where(rng.random(1500) < 0.7, 0.0, rng.uniform(-0.5, 0.5, 1500))
    settings = {"trend": "constant", "overlap": 0, "hyperparameters": "independent"}
    several = np.column_stack([y, y**2])
    queries = np.linspace(0, 1, 7)[:, None]
    for targets in (y, several):
        model = ManyGPRegressor(random_state=0, **settings).fit(X, targets)
        assert model.model_.conformal_scores.shaped
        model.save(tmp_path / "model.gp")
        same = load(tmp_path / "model.gp")
        ours, theirs = model.predict_dist(queries), same.predict_dist(queries)
        assert_array_equal(ours.ppf(0.95), theirs.ppf(0.95))
        assert ours.ppf(0.95).shape == ours.crps(ours.mean).shape == targets[:7].shape
        assert_array_equal(ours.logpdf(ours.mean), theirs.logpdf(ours.mean))
        assert ours.sample(2, random_state=0).shape == (2, *targets[:7].shape)


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
