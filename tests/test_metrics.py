"""Metrics against naive loops and against what their definitions promise."""

import pickle
from math import erf, exp, log, pi, sqrt

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from manygp import ManyGPRegressor, metrics

ALL = [metrics.rmse, metrics.nll, metrics.crps, metrics.coverage, metrics.ence]
PROPER_SCORES = [metrics.nll, metrics.crps]


def calibrated(n=20_000, seed=0):
    """Targets drawn from the predicted normal distributions: (y_true, mean, std)."""
    rng = np.random.default_rng(seed)
    mean, std = rng.normal(size=n), rng.uniform(0.2, 2.0, n)
    return rng.normal(mean, std), mean, std


def naive_bins(y_true, mean, std, n_bins):
    """(RMV, RMSE) of each bin by explicit loops; the first n % n_bins bins are one longer."""
    rows = sorted(zip(std, y_true, mean, strict=True))
    size, longer = divmod(len(rows), n_bins)
    start, result = 0, []
    for j in range(n_bins):
        stop = start + size + (j < longer)
        part = rows[start:stop]
        rmv = sqrt(sum(s**2 for s, _, _ in part) / len(part))
        error = sqrt(sum((y - m) ** 2 for _, y, m in part) / len(part))
        result.append((rmv, error))
        start = stop
    return result


def test_rmse_and_nll_match_naive_loops():
    y_true, mean, std = calibrated(n=57, seed=1)
    squares = densities = 0.0
    for y, m, s in zip(y_true, mean, std, strict=True):
        squares += (y - m) ** 2
        densities += log(exp(-((y - m) ** 2) / (2 * s**2)) / sqrt(2 * pi * s**2))
    assert metrics.rmse(y_true, mean) == pytest.approx(sqrt(squares / 57))
    assert metrics.nll(y_true, mean, std) == pytest.approx(-densities / 57)


def test_rmse_ignores_std():
    y_true, mean, std = calibrated(n=20)
    assert metrics.rmse(y_true, mean, std) == metrics.rmse(y_true, mean)


def test_nll_stays_finite_where_the_density_underflows():
    assert metrics.nll([1e3], [0.0], [1.0]) == pytest.approx(0.5e6 + 0.5 * log(2 * pi))


def test_crps_matches_numerical_integration():
    y_true, mean, std = calibrated(n=8, seed=2)
    total = 0.0
    for y, m, s in zip(y_true, mean, std, strict=True):
        total += quad(lambda t, m=m, s=s: norm.cdf(t, m, s) ** 2, m - 12 * s, y)[0]
        total += quad(lambda t, m=m, s=s: norm.sf(t, m, s) ** 2, y, m + 12 * s)[0]
    assert metrics.crps(y_true, mean, std) == pytest.approx(total / 8, rel=1e-6)


def test_crps_tends_to_absolute_error_for_certain_predictions():
    y_true, mean, _ = calibrated(n=50)
    certain = metrics.crps(y_true, mean, np.full(50, 1e-9))
    assert certain == pytest.approx(np.mean(np.abs(y_true - mean)), rel=1e-6)


@pytest.mark.parametrize("level", [0.5, 0.6827, 0.9, 0.99])
def test_coverage_matches_a_naive_count(level):
    y_true, mean, std = calibrated(n=300, seed=3)
    # y is inside when the central interval that just reaches it has less than that probability.
    inside = [
        erf(abs(y - m) / (s * sqrt(2))) <= level for y, m, s in zip(y_true, mean, std, strict=True)
    ]
    assert metrics.coverage(y_true, mean, std, level) == sum(inside) / 300


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_coverage_of_the_true_distribution_is_the_level(level):
    # Four standard errors of a proportion of 20,000 rows are below 0.015.
    assert metrics.coverage(*calibrated(), level=level) == pytest.approx(level, abs=0.015)


@pytest.mark.parametrize("metric", PROPER_SCORES)
@pytest.mark.parametrize(("shift", "stretch"), [(0.3, 1.0), (-0.3, 1.0), (0.0, 0.8), (0.0, 1.25)])
def test_true_distribution_wins_proper_scores(metric, shift, stretch):
    y_true, mean, std = calibrated()
    assert metric(y_true, mean, std) < metric(y_true, mean + shift, stretch * std)


@pytest.mark.parametrize(("n", "n_bins"), [(60, 10), (67, 10), (10, 10), (23, 1)])
def test_reliability_curve_and_ence_match_naive_loops(n, n_bins):
    y_true, mean, std = calibrated(n, seed=4)
    expected = naive_bins(y_true, mean, std, n_bins)
    curve = metrics.reliability_curve(y_true, mean, std, n_bins)
    np.testing.assert_allclose(np.column_stack(curve), expected)
    ence = sum(abs(rmv - rmse) / rmv for rmv, rmse in expected) / n_bins
    assert metrics.ence(y_true, mean, std, n_bins) == pytest.approx(ence)


def test_reliability_curve_is_ordered_by_predicted_error():
    assert np.all(np.diff(metrics.reliability_curve(*calibrated()).rmv) > 0)


def test_equal_stds_are_binned_in_row_order():
    # Enough rows that an unstable sort does shuffle them.
    error = np.arange(1.0, 201.0)
    std = np.tile([1.0, 2.0], 100)
    curve = metrics.reliability_curve(error, np.zeros(200), std, n_bins=200)
    np.testing.assert_allclose(curve.rmse, np.concatenate([error[::2], error[1::2]]))


def test_row_order_does_not_matter_without_ties():
    y_true, mean, std = calibrated(n=101)
    order = np.random.default_rng(5).permutation(101)
    shuffled = metrics.ence(y_true[order], mean[order], std[order])
    assert shuffled == pytest.approx(metrics.ence(y_true, mean, std))


def test_ence_is_scale_invariant():
    y_true, mean, std = calibrated(n=500)
    scaled = metrics.ence(1e4 * y_true, 1e4 * mean, 1e4 * std)
    assert scaled == pytest.approx(metrics.ence(y_true, mean, std))


def test_ence_is_near_zero_for_the_true_distribution():
    # The RMSE of 2,000 rows has a relative standard error of 1 / sqrt(2 * 2000) = 0.016.
    assert metrics.ence(*calibrated()) < 0.04


def test_ence_of_doubled_stds_is_one_half():
    y_true, mean, std = calibrated()
    assert metrics.ence(y_true, mean, 2 * std) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("metric", ALL)
def test_column_vectors_lists_and_arrays_agree(metric):
    arrays = calibrated(n=30)
    expected = metric(*arrays)
    assert isinstance(expected, float)
    assert metric(*(a[:, None] for a in arrays)) == expected
    assert metric(*(a.tolist() for a in arrays)) == expected


@pytest.mark.parametrize("metric", ALL[1:])
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("y_true", np.nan, "y_true must be finite; row 7 is nan"),
        ("mean", np.inf, "mean must be finite; row 7 is inf"),
        ("std", np.nan, "std must be finite; row 7 is nan"),
        ("std", 0.0, "std must be positive; row 7 is 0.0"),
        ("std", -1.0, "std must be positive; row 7 is -1.0"),
    ],
)
def test_errors_name_the_argument_and_the_first_bad_row(metric, name, value, message):
    arguments = dict(zip(("y_true", "mean", "std"), calibrated(n=12), strict=True))
    arguments[name][[7, 9]] = value
    with pytest.raises(ValueError, match=message):
        metric(**arguments)


@pytest.mark.parametrize("metric", ALL)
def test_lengths_must_agree(metric):
    y_true, mean, std = calibrated(n=12)
    with pytest.raises(ValueError, match="mean has 11 rows, but y_true has 12"):
        metric(y_true, mean[:-1], std)


@pytest.mark.parametrize("metric", ALL)
@pytest.mark.parametrize("shape", [(), (6, 2), (1, 12)])
def test_tables_and_scalars_are_refused(metric, shape):
    _, mean, std = calibrated(n=12)
    with pytest.raises(ValueError, match=r"y_true must have shape \(n,\) or \(n, 1\)"):
        metric(np.ones(shape), mean, std)


@pytest.mark.parametrize("metric", ALL)
def test_empty_input_is_refused(metric):
    with pytest.raises(ValueError, match="y_true must have at least"):
        metric([], [], [])


def test_binned_metrics_need_a_row_per_bin():
    with pytest.raises(ValueError, match="y_true must have at least 10 rows; it has 9"):
        metrics.ence(*calibrated(n=9))


@pytest.mark.parametrize("n_bins", [0, -1])
def test_n_bins_must_be_positive(n_bins):
    with pytest.raises(ValueError, match="n_bins must be at least 1"):
        metrics.reliability_curve(*calibrated(n=12), n_bins=n_bins)


@pytest.mark.parametrize("level", [0.0, 1.0, 90, np.nan])
def test_level_must_be_a_probability(level):
    with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
        metrics.coverage(*calibrated(n=12), level=level)


def test_the_interval_score_is_the_width_and_a_price_for_what_is_outside():
    lower, upper = np.zeros(4), np.full(4, 2.0)
    assert metrics.interval_score([1.0, 2.0, 0.0, 1.5], lower, upper) == 2.0
    found = metrics.interval_score([1.0, 2.5, -1.0, 1.0], lower, upper, level=0.8)
    assert found == pytest.approx(2 + 10 * (0.5 + 1.0) / 4)
    with pytest.raises(ValueError, match="upper must not be below lower; row 1"):
        metrics.interval_score([1.0, 1.0], [0.0, 2.0], [1.0, 1.0])


def test_the_interval_score_is_least_for_the_true_quantiles():
    y = np.random.default_rng(0).normal(size=20_000)
    scores = [
        metrics.interval_score(y, np.full(len(y), -reach), np.full(len(y), reach))
        for reach in (1.2, 1.645, 2.2)
    ]
    assert scores[1] == min(scores)


def test_coverage_of_groups_stands_beside_the_bounds_of_chance():
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1, 3, -1], [1000, 1000, 20, 7])
    held = rng.random(len(groups)) < np.where(groups == 1, 0.8, 0.9)
    found = metrics.conditional_coverage(held, groups)
    np.testing.assert_array_equal(found.n_rows, [1000, 1000, 0, 20])
    assert found.share[1] == held[groups == 1].mean()
    assert found.is_by_chance.tolist() == [True, False, False, True]
    low, high = (stats.binom.ppf(q, 1000, 0.9) / 1000 for q in (0.005, 0.995))
    assert (found.low[0], found.high[0]) == pytest.approx((low, high))
    assert found.high[3] == 1.0  # 20 of 20 rows are no surprise
    with pytest.raises(ValueError, match="one shape"):
        metrics.conditional_coverage(held, groups[1:])


def test_chance_leaves_its_bounds_as_rarely_as_it_should():
    held = np.random.default_rng(0).random(200 * 50) < 0.9
    found = metrics.conditional_coverage(held, np.repeat(np.arange(200), 50))
    assert (~found.is_by_chance).sum() <= 6  # one of a hundred, or fewer, are expected


def test_the_worst_slab_is_found_in_one_half_and_judged_on_the_other():
    rng = np.random.default_rng(0)
    X = rng.random((2000, 3))
    bad = (X[:, 1] > 0.6) & (X[:, 2] < 0.5)
    held = rng.random(2000) < np.where(bad, 0.6, 0.93)
    slab = metrics.worst_slab(X, held)
    assert slab.bounds[1] == pytest.approx((0.6, np.inf), abs=0.05)
    assert slab.bounds[2] == pytest.approx((-np.inf, 0.5), abs=0.05)
    assert bad[slab.rows].mean() > 0.9
    assert slab.coverage.share[0] == held[slab.rows].mean()
    assert not slab.coverage.is_by_chance[0]


def test_right_intervals_have_no_slab_beyond_chance():
    rng = np.random.default_rng(0)
    beyond = 0
    for seed in range(20):
        X, held = rng.random((400, 3)), rng.random(400) < 0.9
        slab = metrics.worst_slab(X, held, random_state=seed)
        beyond += slab is not None and not slab.coverage.is_by_chance[0]
    assert beyond <= 2
    assert metrics.worst_slab(X[:50], held[:50]) is None


def small_model():
    return ManyGPRegressor(random_state=0)


def sine(n=80):
    rng = np.random.default_rng(0)
    X = rng.random((n, 1))
    return X, np.sin(6 * X[:, 0]) + rng.normal(0, 0.1, n)


@pytest.mark.parametrize("name", metrics.SCORES)
def test_scorers_are_minus_the_score_of_the_estimator(name):
    X, y = sine()
    model = small_model().fit(X[:60], y[:60])
    found = metrics.make_scorer(name, level=0.8)(model, X[60:], y[60:])
    ends = model.predict_interval(X[60:], 0.8)
    dist = model.predict_dist(X[60:])
    expected = {
        "log_score": metrics.log_score(y[60:], dist),
        "crps": metrics.crps(y[60:], dist),
        "interval_score": metrics.interval_score(y[60:], *ends, level=0.8),
    }
    assert found == -expected[name]
    pipe = make_pipeline(StandardScaler(), small_model()).fit(X[:60], y[:60])
    assert np.isfinite(metrics.make_scorer(name)(pipe, X[60:], y[60:]))


def test_scorers_work_where_scikit_learn_takes_one():
    X, y = sine(40)
    scorer = metrics.make_scorer("crps")
    assert pickle.loads(pickle.dumps(scorer)) == scorer
    search = GridSearchCV(small_model(), {"trend": ["none", "linear"]}, scoring=scorer, cv=2)
    assert search.fit(X, y).best_score_ < 0
    with pytest.raises(ValueError, match="log_score, crps, interval_score"):
        metrics.make_scorer("accuracy")
    with pytest.raises(TypeError, match="asks for predict_dist, which LinearRegression"):
        scorer(LinearRegression().fit(X, y), X, y)
