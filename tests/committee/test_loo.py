"""Leave-one-out in closed form equals leaving out, and intervals hold what they promise."""

import copy
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sklearn_kernels

from data import noisy_rows, read_only, slope_and_wave
from manygp import ManyGPRegressor, metrics
from manygp.committee.committee import Committee, Query
from manygp.gp.expert import Experts, condition, leave_one_out
from manygp.gp.marginal_likelihood import KernelFit, TrainingData
from manygp.kernels import Matern, White
from manygp.rules import Tempered
from models import FIXED, choosing

X, y, _ = noisy_rows(slope_and_wave, 48)
TWO = read_only(np.column_stack([y, np.cos(X[:, 1]) - 0.3 * X[:, 0]]))
# Known noise variance of each row.
NOISES = read_only(np.random.default_rng(1).uniform(0.0, 0.3, 48))
# Nothing is left to choose: the experts and their rules are those that are asked for.
SETTINGS = {
    "kernel": FIXED,
    "points_per_expert": 8,
    "overlap": 0,
    "temperature": 3.0,
    "calibration": "information",
    "hyperparameters": "shared",
    "routing": None,
    "trend": "none",
}
model = partial(choosing, **SETTINGS)
AGGREGATIONS = ["gpoe", "rbcm", "nested", "grbcm"]


def state(fitted):
    """All arrays that predictions are made of."""
    experts = [*fitted.experts_, fitted._model.committee.communication]
    fields = ("indices", "neighbours", "mean", "X", "Y", "alpha", "whitener", "coefficients")
    return [getattr(expert, field) for expert in experts if expert for field in fields]


def training_data(fitted):
    inputs, targets, *_ = fitted._model.committee.training_data()
    alpha = np.empty(len(inputs))
    for expert in fitted.experts_:
        alpha[expert.rows] = expert.alpha
    return TrainingData(inputs, targets, alpha, fitted.experts_[0].constant_mean)


def without(expert, row, data):
    """The expert that never knew the row, or the same one if it did not."""
    if expert is None or row not in expert.rows:
        return expert
    own, others = expert.indices != row, expert.neighbours != row
    return condition(
        data, expert.indices[own], expert.neighbours[others], KernelFit(expert.kernel)
    )


def brute_force(fitted, rows):
    """Mean, std and latent std in the units of y, of a committee built anew for every row."""
    data, committee = training_data(fitted), fitted._model.committee
    rules = fitted.model_.rules
    answers = []
    for row in rows:
        experts = [without(expert, row, data) for expert in committee.experts]
        common = without(committee.communication, row, data)
        anew = Committee(Experts.made(data, experts), committee.layout, common)
        query = Query(data.X[[row]], rules.nearest, covariances=rules.needs.covariances)
        mean, variance, noise = anew.map_blocks(rules.combine, query, None)
        total = variance + noise + data.alpha[row]
        answers.append((mean[:, 0], np.sqrt(total), np.sqrt(variance)))
    mean, std, latent = (np.array(column) for column in zip(*answers, strict=True))
    scaling = fitted._model.y_scaling
    found = np.array([scaling.undo(mean), std * scaling.scale, latent * scaling.scale])
    return found if found.shape[-1] > 1 else found[..., 0]


def some_rows(fitted):
    """Rows of all kinds: every seventh, and two that all experts know if there are any."""
    common = fitted._model.committee.communication
    more = np.empty(0, dtype=int) if common is None else common.indices[:2]
    return np.unique(np.concatenate([np.arange(0, len(X), 7), more]))


def assert_leaves_out(fitted):
    rows = some_rows(fitted)
    mean, std = fitted.loo_predict()
    latent_mean, latent = fitted.loo_predict(latent=True)
    expected_mean, expected_std, expected_latent = brute_force(fitted, rows)
    assert_allclose(mean[rows], expected_mean, rtol=1e-8, atol=1e-8)
    assert_allclose(std[rows], expected_std, rtol=1e-8)
    assert_allclose(latent[rows], expected_latent, rtol=1e-8)
    assert_array_equal(latent_mean, mean)


# Leave-one-out


@pytest.mark.parametrize("overlap", [0, 1.5])
@pytest.mark.parametrize("trend", ["none", "constant"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_leave_one_out_equals_experts_built_without_the_row(aggregation, trend, overlap):
    fitted = model(aggregation=aggregation, trend=trend, overlap=overlap).fit(X, y)
    knows = np.mean([len(expert.rows) for expert in fitted.experts_])
    assert (knows > 8) == (overlap > 0 or aggregation == "grbcm")
    assert_leaves_out(fitted)


@pytest.mark.parametrize("routing", [None, 1, 3])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_leave_one_out_of_routed_experts_that_know_their_noise(aggregation, routing):
    settings = {"aggregation": aggregation, "routing": routing, "normalize_y": False}
    fitted = model(**settings, overlap=1, alpha=NOISES).fit(X, y - 3)
    assert_leaves_out(fitted)


@pytest.mark.parametrize("trend", ["none", "constant"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_leave_one_out_of_two_targets(aggregation, trend):
    settings = {"aggregation": aggregation, "trend": trend, "overlap": 1, "routing": 3}
    fitted = model(**settings).fit(X, TWO)
    mean, std = fitted.loo_predict()
    assert mean.shape == std.shape == (48, 2)
    assert_leaves_out(fitted)
    for t in range(2):
        expected = model(**settings).fit(X, TWO[:, t]).loo_predict()
        assert_allclose((mean[:, t], std[:, t]), expected, rtol=1e-9)


@pytest.mark.parametrize("trend", ["none", "constant"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_leave_one_out_of_a_single_expert(aggregation, trend):
    settings = {"aggregation": aggregation, "trend": trend, "points_per_expert": 48}
    fitted = model(**settings, alpha=NOISES).fit(X, y)
    assert len(fitted.experts_) == 1
    assert_leaves_out(fitted)


@pytest.mark.parametrize("kernel", [FIXED, None], ids=["fixed", "fitted"])
def test_leave_one_out_of_the_model_that_chooses_for_itself(kernel):
    settings = {"points_per_expert": 12, "trend": "constant", "random_state": 0}
    fitted = ManyGPRegressor(kernel=kernel, **settings).fit(X, y)
    assert fitted.calibration_report_ is not None
    assert_leaves_out(fitted)


@pytest.mark.parametrize("hyperparameters", ["independent", "hierarchical"])
def test_leave_one_out_of_experts_with_kernels_of_their_own(hyperparameters):
    settings = {"kernel": None, "hyperparameters": hyperparameters, "points_per_expert": 16}
    fitted = model(**settings, overlap=0.5, trend="constant").fit(X, y)
    assert len({expert.kernel for expert in fitted.experts_}) == 3
    assert_leaves_out(fitted)


@pytest.mark.parametrize("alpha", [0.0, NOISES], ids=["one-noise", "alpha"])
def test_one_expert_equals_scikit_learn_refitted_without_the_row(alpha):
    fitted = model(points_per_expert=48, normalize_y=False, alpha=alpha).fit(X, y)
    signal = sklearn_kernels.Matern(0.9, "fixed", nu=1.5)
    noise = np.broadcast_to(alpha, 48) + 0.02
    mean, std = fitted.loo_predict(latent=True)
    for row in range(0, 48, 3):
        rest = np.arange(48) != row
        other = GaussianProcessRegressor(signal, alpha=noise[rest], optimizer=None)
        expected = other.fit(X[rest], y[rest]).predict(X[[row]], return_std=True)
        assert_allclose([mean[row], std[row]], np.ravel(expected), rtol=1e-8)
    assert_allclose(fitted.loo_predict()[1] ** 2, std**2 + noise, rtol=1e-10)


def test_nested_experts_of_one_row_leave_out_as_the_global_gp_does():
    one = model(points_per_expert=48).fit(X, y).loo_predict()
    many = model(points_per_expert=1, aggregation="nested").fit(X, y)
    assert len(many.experts_) == 48
    assert_allclose(many.loo_predict(), one, rtol=1e-8)


@pytest.mark.parametrize("points_per_expert", [8, 50])
def test_an_equal_row_still_informs(points_per_expert):
    inputs, targets = np.concatenate([X, X[:2]]), np.append(y, [y[0] + 0.5, y[1] - 0.5])
    settings = {"points_per_expert": points_per_expert, "overlap": 1, "routing": 1}
    fitted = model(**settings).fit(inputs, targets)
    plain = model(**settings).fit(X, y)
    for row, equal in ((0, 48), (1, 49)):
        knows = [equal in expert.rows for expert in fitted.experts_ if row in expert.rows]
        assert any(knows)
    mean, std = fitted.loo_predict(latent=True)
    _, alone = plain.loo_predict(latent=True)
    # The equal row was seen with the noise of one row, so the latent std is at most that noise's.
    noise = np.sqrt(0.02) * targets.std()
    assert np.all(std[[0, 1, 48, 49]] < noise)
    assert np.all(alone[[0, 1]] > noise)
    # And the equal row, not the row itself, decides the mean.
    assert np.all(np.abs(mean[[0, 1]] - targets[[48, 49]]) < 0.2)
    assert np.all(np.abs(mean[[48, 49]] - targets[[0, 1]]) < 0.2)


@pytest.mark.parametrize("trend", ["none", "constant"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_row_does_not_know_its_own_target(aggregation, trend):
    settings = {"aggregation": aggregation, "trend": trend, "normalize_y": False}
    targets = y[:20] - 3
    changed = targets + 5.0 * (np.arange(20) == 7)
    for points_per_expert in (1, 5, 20):
        case = {**settings, "points_per_expert": points_per_expert}
        before, after = (model(**case).fit(X[:20], t).loo_predict() for t in (targets, changed))
        assert_allclose(np.array(after)[:, 7], np.array(before)[:, 7], rtol=1e-8, atol=1e-9)
        assert not np.allclose(after[0], before[0])  # but others know it


@pytest.mark.parametrize("trend", ["none", "constant"])
def test_an_expert_of_one_row_falls_back_to_its_prior(trend):
    fitted = model(points_per_expert=1, trend=trend).fit(X, y)
    assert len(fitted.experts_) == len(X)
    for expert in fitted.experts_:
        found = leave_one_out(expert, np.array([0]))
        assert_allclose(found.mean, 0.0, atol=1e-12)
        assert_allclose(found.variance, 1.0, rtol=1e-12)  # that of the signal


@pytest.mark.filterwarnings("ignore:one row tells nothing")
def test_a_single_training_row_falls_back_to_its_prior():
    fitted = model().fit([[0.5]], [2.0])  # normalised to mean 0
    assert_allclose(fitted.loo_predict(latent=True), ([2.0], [1.0]), rtol=1e-12)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_leave_one_out_changes_nothing_of_the_model(aggregation):
    fitted = model(aggregation=aggregation, overlap=1).fit(X, y)
    names, before = set(vars(fitted)), copy.deepcopy(state(fitted))
    first = fitted.loo_predict()
    fitted.loo_score(), fitted.predict_interval(X)
    assert set(vars(fitted)) == names
    for now, then in zip(state(fitted), before, strict=True):
        assert_array_equal(now, then)
    assert_array_equal(fitted.loo_predict(), first)


@pytest.mark.parametrize("routing", [None, 2])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_leave_one_out_does_not_depend_on_n_jobs(aggregation, routing):
    fitted = model(aggregation=aggregation, overlap=1, routing=routing).fit(X, y)
    expected = fitted.loo_predict()
    for n_jobs in (1, 2, 4):
        assert_array_equal(fitted.set_params(n_jobs=n_jobs).loo_predict(), expected)


@pytest.mark.parametrize("white", [1e-12, 0.02, 10.0])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_std_is_positive_even_without_noise_and_with_duplicate_rows(aggregation, white):
    inputs, targets = np.concatenate([X, X[:5]]), np.concatenate([y, y[:5]])
    kernel = Matern(3.0, "fixed", nu=2.5) + White(white, "fixed")
    fitted = model(kernel=kernel, aggregation=aggregation, overlap=2).fit(inputs, targets)
    for latent in (True, False):
        mean, std = fitted.loo_predict(latent=latent)
        assert np.all(np.isfinite(mean))
        assert np.all((std > 0) & np.isfinite(std))


def test_an_unfitted_model_says_so():
    for ask in ("loo_predict", "loo_score"):
        with pytest.raises(NotFittedError):
            getattr(ManyGPRegressor(), ask)()
    with pytest.raises(NotFittedError):
        ManyGPRegressor().predict_interval(X)


# Scores


@pytest.mark.parametrize("scale", [1.0, 1000.0])
@pytest.mark.parametrize("points_per_expert", [12, 48])
def test_scores_are_the_metrics_of_rows_left_out_in_the_units_of_y(points_per_expert, scale):
    targets = scale * y - 5 * scale
    fitted = model(points_per_expert=points_per_expert).fit(X, targets)
    mean, std = fitted.loo_predict()
    score = fitted.loo_score()
    assert list(score) == ["rmse", "nll", "ence"]
    assert score["rmse"] == pytest.approx(metrics.rmse(targets, mean), rel=1e-9)
    assert score["nll"] == pytest.approx(metrics.nll(targets, mean, std), rel=1e-9)
    assert score["ence"] == pytest.approx(metrics.ence(targets, mean, std), rel=1e-9)
    assert 0.05 * scale < score["rmse"] < 0.5 * scale


def test_scores_follow_the_units_of_y():
    one, large = (model().fit(X, scale * y).loo_score() for scale in (1.0, 1000.0))
    assert large["rmse"] == pytest.approx(1000 * one["rmse"], rel=1e-9)
    assert large["nll"] == pytest.approx(one["nll"] + np.log(1000), rel=1e-9)
    assert large["ence"] == pytest.approx(one["ence"], rel=1e-9)


def test_scores_of_two_targets_are_those_of_both_together():
    fitted = model().fit(X, TWO)
    mean, std = fitted.loo_predict()
    expected = metrics.nll(TWO.ravel(), mean.ravel(), std.ravel())
    assert fitted.loo_score()["nll"] == pytest.approx(expected, rel=1e-9)


def test_scores_without_test_data_are_near_those_with_it():
    inputs, targets = noisy("gaussian", 900, seed=3)
    fitted = model(points_per_expert=50, overlap=1).fit(inputs[:400], targets[:400])
    mean, std = fitted.predict(inputs[400:], return_std=True)
    score = fitted.loo_score()
    # Three standard errors of a root mean square, and of a mean of half chi-squares.
    assert score["rmse"] == pytest.approx(metrics.rmse(targets[400:], mean), rel=0.15)
    assert score["nll"] == pytest.approx(metrics.nll(targets[400:], mean, std), abs=0.15)


# Intervals

NOISE = {
    "gaussian": lambda draw, n: draw.normal(size=n),
    "heavy-tailed": lambda draw, n: draw.standard_t(3, size=n) / np.sqrt(3),
    "skewed": lambda draw, n: (draw.standard_exponential(n) ** 2 - 2) / np.sqrt(20),
}


def noisy(kind, n, seed):
    draw = np.random.default_rng(seed)
    inputs = draw.uniform(-3, 3, (n, 1))
    return inputs, np.sin(2 * inputs[:, 0]) + 0.4 * NOISE[kind](draw, n)


def covered(interval, targets):
    lower, upper = interval
    return np.mean((lower <= targets) & (targets <= upper), axis=0)


N_FRESH, N_TRAIN = 2000, 500


def bound(coverage):
    """Four standard errors: of the fresh rows' binomial, and of the training rows' quantile."""
    return 4 * np.sqrt(coverage * (1 - coverage) * (1 / N_FRESH + 1 / N_TRAIN))


@pytest.mark.parametrize("kind", NOISE)
@pytest.mark.parametrize("chosen", ["rules-given", "rules-chosen"])
def test_intervals_hold_their_share_of_fresh_rows_whatever_the_noise(kind, chosen):
    inputs, targets = noisy(kind, N_TRAIN + N_FRESH, seed=0)
    kernel = Matern(1.0, "fixed") + White(0.3, "fixed")
    fitted = model(kernel=kernel, points_per_expert=50)
    if chosen == "rules-chosen":
        fitted = ManyGPRegressor(kernel, points_per_expert=50, overlap=1, random_state=0)
    fitted.fit(inputs[:N_TRAIN], targets[:N_TRAIN])
    fresh, truth = inputs[N_TRAIN:], targets[N_TRAIN:]
    for coverage in (0.5, 0.7, 0.9, 0.95):
        share = covered(fitted.predict_interval(fresh, coverage), truth)
        assert abs(share - coverage) < bound(coverage)
    if kind != "gaussian":  # where the normal quantiles are wrong somewhere
        mean, std = fitted.predict(fresh, return_std=True)
        shares = [(c, metrics.coverage(truth, mean, std, c)) for c in (0.5, 0.7, 0.9, 0.95)]
        assert any(abs(share - coverage) > bound(coverage) for coverage, share in shares)


def test_the_interval_of_a_model_that_is_wrong_about_its_noise_is_right():
    inputs, targets = noisy("gaussian", N_TRAIN + N_FRESH, seed=1)
    for white in (0.01, 4.0):
        kernel = Matern(1.0, "fixed") + White(white, "fixed")
        fitted = model(kernel=kernel, points_per_expert=50).fit(
            inputs[:N_TRAIN], targets[:N_TRAIN]
        )
        fresh, truth = inputs[N_TRAIN:], targets[N_TRAIN:]
        share = covered(fitted.predict_interval(fresh, 0.9), truth)
        assert abs(share - 0.9) < bound(0.9)
        mean, std = fitted.predict(fresh, return_std=True)
        assert abs(metrics.coverage(truth, mean, std, 0.9) - 0.9) > 1.5 * bound(0.9)


def test_the_width_is_the_conformal_quantile_of_the_rows_left_out():
    fitted = model().fit(X, y)
    loo_mean, loo_std = fitted.loo_predict()
    conformity = np.sort(np.abs(y - loo_mean) / loo_std)
    queries = X[:5] + 0.1
    mean, std = fitted.predict(queries, return_std=True)
    for coverage in (0.01, 0.5, 0.9, 48 / 49):
        q = conformity[int(np.ceil(49 * coverage - 1e-9)) - 1]
        lower, upper = fitted.predict_interval(queries, coverage)
        assert_allclose(lower, mean - q * std, rtol=1e-9)
        assert_allclose(upper, mean + q * std, rtol=1e-9)


def test_nine_in_ten_is_what_it_holds_without_being_told():
    fitted = model().fit(X, y)
    assert_array_equal(fitted.predict_interval(X), fitted.predict_interval(X, 0.9))


def test_intervals_grow_with_the_coverage():
    fitted = model().fit(X, y)
    intervals = [fitted.predict_interval(X, c) for c in (0.1, 0.3, 0.6, 0.8, 0.95)]
    lower, upper = np.array(intervals).swapaxes(0, 1)
    assert np.all(np.diff(lower, axis=0) < 0)
    assert np.all(np.diff(upper, axis=0) > 0)
    assert np.all(lower < upper)


@pytest.mark.parametrize("coverage", [0, 1, 0.0, 1.0, -0.1, 1.5, 90, np.nan])
def test_a_coverage_that_is_no_probability_is_refused(coverage):
    with pytest.raises(ValueError, match="coverage must lie between 0 and 1"):
        model().fit(X, y).predict_interval(X, coverage)


def test_a_coverage_beyond_the_number_of_rows_is_refused_with_the_largest():
    fitted = model().fit(X, y)
    for coverage in (0.98, 0.999):
        with pytest.raises(ValueError, match=rf"48 training rows.*at most 0\.9796.*{coverage}"):
            fitted.predict_interval(X, coverage)
    fitted.predict_interval(X, 0.9795)


@pytest.mark.parametrize("points_per_expert", [50, 500])
def test_intervals_of_two_targets_hold_each_their_share(points_per_expert):
    inputs, first = noisy("gaussian", N_TRAIN + N_FRESH, seed=4)
    draw = np.random.default_rng(5)
    second = 1000 * (np.sin(2 * inputs[:, 0]) + 0.4 * NOISE["heavy-tailed"](draw, len(first)))
    targets = np.column_stack([first, second])
    kernel = Matern(1.0, "fixed") + White(0.3, "fixed")
    fitted = model(kernel=kernel, points_per_expert=points_per_expert)
    fitted.fit(inputs[:N_TRAIN], targets[:N_TRAIN])
    fresh, truth = inputs[N_TRAIN:], targets[N_TRAIN:]
    lower, upper = fitted.predict_interval(fresh, 0.8)
    assert lower.shape == upper.shape == (N_FRESH, 2)
    assert np.all(np.abs(covered((lower, upper), truth) - 0.8) < bound(0.8))
    # Each target has its own quantile: the heavy-tailed one is nearer its centre in its units.
    _, std = fitted.predict(fresh, return_std=True)
    q = ((upper - lower) / 2 / std)[0]
    assert q[1] < 0.95 * q[0]


def test_intervals_of_the_papers_models_hold_their_share():
    inputs, targets = noisy("heavy-tailed", N_TRAIN + N_FRESH, seed=6)
    fitted = ManyGPRegressor.from_label("bt-ent-c", points_per_expert=50, random_state=0)
    fitted.fit(inputs[:N_TRAIN], targets[:N_TRAIN])
    share = covered(fitted.predict_interval(inputs[N_TRAIN:], 0.9), targets[N_TRAIN:])
    assert abs(share - 0.9) < bound(0.9)


@pytest.mark.parametrize("rules", [
    {"calibration": "none"}, {"weighting": "uniform"}, {"aggregation": "rbcm"}, {"routing": 1},
    {"weighting": "tempered", "temperature": 1.0}, {"weighting": Tempered(1.0)},
], ids=str)  # fmt: skip
def test_after_other_rules_are_set_the_quantiles_are_theirs(rules):
    settings = {**SETTINGS, "temperature": "auto", "calibration": "auto", "routing": "auto"}
    fitted = ManyGPRegressor(**settings).fit(X, y)
    queries = X + 0.1
    fitted.predict_interval(queries)  # which must not be remembered
    fitted.set_params(**{"calibration": "none", **rules})
    mean, std = fitted.predict(queries, return_std=True)
    loo_mean, loo_std = fitted.loo_predict()
    q = np.sort(np.abs(y - loo_mean) / loo_std)[int(np.ceil(49 * 0.9)) - 1]
    lower, upper = fitted.predict_interval(queries, 0.9)
    assert_allclose((upper - lower) / 2, q * std, rtol=1e-9)
    assert_allclose((upper + lower) / 2, mean, rtol=1e-9)


def test_intervals_of_the_chosen_rules_are_those_of_their_leave_one_out():
    settings = {**SETTINGS, "temperature": "auto", "calibration": "auto", "routing": "auto"}
    fitted = ManyGPRegressor(**settings).fit(X, TWO)
    loo_mean, loo_std = fitted.loo_predict()
    q = np.sort(np.abs(TWO - loo_mean) / loo_std, axis=0)[int(np.ceil(49 * 0.9)) - 1]
    _, std = fitted.predict(X + 0.1, return_std=True)
    lower, upper = fitted.predict_interval(X + 0.1, 0.9)
    assert_allclose((upper - lower) / 2, q * std, rtol=1e-9)


def test_some_rows_are_those_of_all_however_they_are_named():
    fitted = ManyGPRegressor(points_per_expert=20, hyperparameters="shared", random_state=0)
    rows = np.random.default_rng(0).random((80, 2))
    fitted.fit(rows, np.sin(5 * rows[:, 0]))
    mean, std = fitted.loo_predict()
    mask = rows[:, 1] > 0.5
    for some in ([3, 70, 0], [-1, 5], mask, slice(10, 20)):
        found = fitted.loo_predict(some)
        assert_allclose(found[0], mean[some], rtol=1e-12)
        assert_allclose(found[1], std[some], rtol=1e-12)
    assert fitted.loo_predict(7)[0] == pytest.approx(mean[7])
    with pytest.raises(ValueError, match="has no row 80"):
        fitted.loo_predict([80])
    with pytest.raises(ValueError, match="names no row"):
        fitted.loo_predict([])
    for bad in (mask[:50], [0.5], [[1, 2]], ["a"]):
        with pytest.raises(ValueError, match="all 80 rows"):
            fitted.loo_predict(bad)
