"""Aggregations that model what experts have in common: nested and grbcm."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sklearn_kernels

from data import read_only
from manygp import ManyGPRegressor
from manygp.committee.committee import PARTITIONS
from manygp.kernels import RBF, Matern, White
from manygp.paper import full_parts
from manygp.rules import WEIGHTINGS, ExpertPredictions, Gaussian, grbcm, nested
from models import choosing

rng = np.random.default_rng(0)
X = read_only(rng.uniform(-2, 2, (60, 2)))
y = read_only(np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=60))
QUERIES = read_only(rng.uniform(-3, 3, (80, 2)))  # also outside the data
AT_DATA = read_only([*QUERIES[:30], *X[:10], *X[:2], [9.0, -7.0]])
NOISES = read_only(rng.uniform(0.0, 0.3, 60))

NOISE = 0.02
FIXED = Matern(0.9, "fixed", nu=1.5) + White(NOISE, "fixed")
SIGNAL = sklearn_kernels.Matern(0.9, "fixed", nu=1.5)
SMOOTH = RBF(0.7, "fixed") + White(NOISE, "fixed")
SMOOTH_SIGNAL = sklearn_kernels.RBF(0.7, "fixed")
SETTINGS = {
    "kernel": FIXED,
    "points_per_expert": 10,
    "overlap": 0,
    "temperature": 3.0,
    "calibration": "none",
    "hyperparameters": "shared",
    "routing": None,
    "trend": "none",
    "normalize_y": False,
}
model = partial(choosing, **SETTINGS)
BOTH = pytest.mark.parametrize("aggregation", ["nested", "grbcm"])


def latent(fitted, rows=AT_DATA):
    """Mean and latent std."""
    return np.array(fitted.predict(rows, return_std=True, latent=True))


def global_gp(signal=SIGNAL, rows=AT_DATA, known=slice(None), alpha=NOISE):
    """Mean and latent std of scikit-learn's GP on all rows, or on those that are known."""
    alpha = np.broadcast_to(alpha, 60)[known]
    exact = GaussianProcessRegressor(signal, alpha=alpha, optimizer=None)
    return np.array(exact.fit(X[known], y[known]).predict(rows, return_std=True))


# Nested


@pytest.mark.parametrize(
    ("kernel", "signal"), [(FIXED, SIGNAL), (SMOOTH, SMOOTH_SIGNAL)], ids=["matern", "rbf"]
)
@pytest.mark.parametrize("points_per_expert", [1, 36])
def test_nested_equals_the_global_gp_for_one_expert_or_one_row_each(
    points_per_expert, kernel, signal
):
    settings = {"kernel": kernel, "aggregation": "nested", "points_per_expert": points_per_expert}
    fitted = model(**settings).fit(X[:36], y[:36])
    assert len(fitted.experts_) == 36 // points_per_expert
    assert_allclose(latent(fitted), global_gp(signal, known=slice(36)), rtol=1e-8, atol=1e-8)


def test_nested_of_one_row_each_equals_the_global_gp_that_knows_its_noise():
    settings = {"aggregation": "nested", "points_per_expert": 1, "alpha": NOISES[:36]}
    mean, std = latent(model(**settings).fit(X[:36], y[:36]), X)
    expected = global_gp(rows=X, known=slice(36), alpha=NOISE + NOISES)
    assert_allclose((mean, std), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("routing", [None, 1, 3])
@pytest.mark.parametrize("points_per_expert", [5, 20])
def test_nested_experts_that_know_all_rows_are_the_global_gp(points_per_expert, routing):
    settings = {"points_per_expert": points_per_expert, "routing": routing, "overlap": 12}
    fitted = model(aggregation="nested", **settings).fit(X, y)
    assert all(len(expert.rows) == 60 for expert in fitted.experts_)
    assert_allclose(latent(fitted), global_gp(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("overlap", [0, 1])
def test_nested_is_the_best_linear_prediction_from_the_experts_means(overlap):
    fitted = model(aggregation="nested", overlap=overlap, alpha=NOISES).fit(X, y)
    K = SIGNAL(X) + np.diag(NOISE + NOISES)
    mean, std = latent(fitted, QUERIES)
    for i, query in enumerate(QUERIES[:20]):
        k = SIGNAL(X, query[None])[:, 0]
        C = np.zeros((len(fitted.experts_), 60))  # the experts' means are C y
        for m, expert in enumerate(fitted.experts_):
            rows = expert.rows
            C[m, rows] = np.linalg.solve(K[np.ix_(rows, rows)], k[rows])
        combination = np.linalg.solve(C @ K @ C.T, C @ k)
        assert mean[i] == pytest.approx(combination @ C @ y, rel=1e-8, abs=1e-8)
        assert std[i] ** 2 == pytest.approx(1 - combination @ C @ k, rel=1e-8)


@pytest.mark.parametrize("routing", [None, 1, 3])
@pytest.mark.parametrize("overlap", [0, 1.5])
def test_nested_is_never_less_sure_than_an_expert_that_it_asks(overlap, routing):
    fitted = model(aggregation="nested", overlap=overlap, routing=routing).fit(X, y)
    variance = fitted.predict_experts(AT_DATA).variance
    if routing is not None:
        near = fitted._model.committee.layout.nearest(AT_DATA, routing).T
        variance = np.take_along_axis(variance, near, axis=0)
    std = latent(fitted)[1]
    assert np.all(std**2 <= variance.min(axis=0) * (1 + 1e-9))
    if overlap == 0 and routing != 1:  # and between experts it is surer than all of them
        assert np.mean(std**2 < 0.99 * variance.min(axis=0)) > 0.2


def test_nested_is_never_surer_than_the_global_gp():
    expected = global_gp(rows=QUERIES)[1]
    for overlap in (0, 1.5):
        std = latent(model(aggregation="nested", overlap=overlap).fit(X, y), QUERIES)[1]
        assert np.all(std >= expected * (1 - 1e-9))


@pytest.mark.parametrize("partition", PARTITIONS)
def test_nested_is_nearer_to_the_global_gp_than_gpoe(partition):
    expected_mean, expected_std = global_gp(rows=QUERIES)
    errors = {}
    for aggregation in ("nested", "gpoe"):
        mean, std = latent(model(aggregation=aggregation, partition=partition).fit(X, y), QUERIES)
        deviation = np.mean((mean - expected_mean) ** 2)
        errors[aggregation] = [np.mean(np.abs(std**2 - expected_std**2)), deviation]
    assert np.all(np.array(errors["nested"]) < 0.8 * np.array(errors["gpoe"]))


@pytest.mark.parametrize("copied", [False, True])
def test_two_nested_experts_that_say_the_same_count_once(copied):
    first, second = np.arange(0, 35), np.arange(25, 60)
    copy = first.copy() if copied else first

    def parted(*parts):
        return model(aggregation="nested", partition=lambda X, n, rng: list(parts)).fit(X, y)

    expected = latent(parted(first, second))
    assert_allclose(latent(parted(first, copy, second)), expected, rtol=1e-8, atol=1e-8)
    assert_allclose(latent(parted(first, second, copy, copy)), expected, rtol=1e-8, atol=1e-8)


def test_nested_experts_that_all_have_the_same_part_are_the_global_gp():
    fitted = model(aggregation="nested", partition=full_parts).fit(X, y)
    assert len(fitted.experts_) == 6
    assert_allclose(latent(fitted), global_gp(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("aggregation", ["gpoe", "nested"])
def test_the_same_part_for_all_leaves_nothing_to_choose(aggregation):
    fitted = ManyGPRegressor(
        FIXED, points_per_expert=10, partition=full_parts, aggregation=aggregation
    ).fit(X, y)
    mean, std = fitted.predict(QUERIES, return_std=True)
    assert np.all(np.isfinite(mean))
    assert np.all((std > 0) & np.isfinite(std))


def test_nested_may_be_set_after_a_fit_with_one_kernel():
    after = model(aggregation="gpoe").fit(X, y).set_params(aggregation="nested")
    assert_array_equal(latent(after), latent(model(aggregation="nested").fit(X, y)))


def test_nested_needs_the_covariances_of_the_means():
    one = np.full((2, 3), 0.5)
    record = ExpertPredictions(one, one, np.ones((2, 3)), np.ones((2, 1)), np.zeros((2, 1)))
    with pytest.raises(ValueError, match="covariances between the experts"):
        nested(record, one)


# Generalised robust Bayesian committee machine


@pytest.mark.parametrize("trend", ["none", "auto"])
def test_grbcm_of_one_expert_is_that_expert(trend):
    fitted = model(aggregation="grbcm", points_per_expert=60, trend=trend).fit(X, y)
    assert len(fitted.experts_) == 1
    assert_allclose(latent(fitted), global_gp(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("overlap", [0, 1])
def test_experts_of_grbcm_all_know_the_communication_rows(overlap):
    fitted = model(aggregation="grbcm", overlap=overlap).fit(X, y)
    common = fitted._model.committee.communication
    assert len(common.rows) == 10
    assert len(common.neighbours) == 0
    own = np.sort(np.concatenate([expert.indices for expert in fitted.experts_]))
    assert_array_equal(own, np.arange(60))
    for expert in fitted.experts_:
        assert np.all(np.isin(common.rows, expert.rows))
        assert len(np.unique(expert.rows)) == len(expert.rows)
        assert len(expert.rows) <= 20 + 10 * overlap
        assert_array_equal(expert.X, X[expert.rows])
        assert_array_equal(expert.Y[:, 0], y[expert.rows])


@pytest.mark.parametrize("aggregation", ["gpoe", "rbcm", "nested"])
def test_other_aggregations_have_no_communication_expert(aggregation):
    fitted = model(aggregation=aggregation).fit(X, y)
    assert fitted._model.committee.communication is None
    assert all(len(expert.neighbours) == 0 for expert in fitted.experts_)


@pytest.mark.parametrize("routing", [None, 1, 3])
def test_grbcm_is_never_less_sure_than_its_communication_expert(routing):
    fitted = model(aggregation="grbcm", routing=routing).fit(X, y)
    common = global_gp(known=fitted._model.committee.communication.rows)[1]
    std = latent(fitted)[1]
    assert np.all(std <= common * (1 + 1e-9))
    assert np.mean(std < 0.9 * common) > 0.5


def test_grbcm_adds_what_each_expert_knows_more():
    fitted = model(aggregation="grbcm").fit(X, y)
    common_mean, common_std = global_gp(known=fitted._model.committee.communication.rows)
    mean, std = latent(fitted)
    experts = [global_gp(known=expert.rows) for expert in fitted.experts_]
    for i in range(len(AT_DATA)):
        base = common_std[i] ** -2
        gains = [np.log(common_std[i] / one[1, i]) for one in experts]
        precision, total = base, base * common_mean[i]
        for gain, one in zip(gains, experts, strict=True):
            count = 1.0 if gain == max(gains) else gain
            precision += count * (one[1, i] ** -2 - base)
            total += count * (one[0, i] * one[1, i] ** -2 - base * common_mean[i])
        assert mean[i] == pytest.approx(total / precision, rel=1e-6, abs=1e-8)
        assert std[i] == pytest.approx(precision**-0.5, rel=1e-6)


def test_grbcm_of_an_expert_that_seems_to_know_less_ignores_it():
    variance = np.array([[0.2], [0.9]])
    record = ExpertPredictions(
        np.array([[1.0], [50.0]]), variance, np.ones((2, 1)), np.ones((2, 1)), np.zeros((2, 1)),
        communication=Gaussian(np.array([0.3]), np.array([0.5])),
    )  # fmt: skip
    found = grbcm(record, np.ones((2, 1)))
    assert_allclose((found.mean, found.variance), ([1.0], [0.2]), rtol=1e-12)


# Both


@BOTH
@pytest.mark.parametrize("hyperparameters", ["hierarchical", "independent"])
def test_kernels_of_their_own_are_refused_at_fit(aggregation, hyperparameters):
    settings = {"aggregation": aggregation, "hyperparameters": hyperparameters, "kernel": None}
    with pytest.raises(ValueError, match=f"{aggregation}.*set hyperparameters='shared'"):
        model(**settings).fit(X, y)


@BOTH
@pytest.mark.parametrize("hyperparameters", ["hierarchical", "independent"])
@pytest.mark.parametrize("routing", [None, 1])
def test_kernels_of_their_own_are_refused_after_fit(aggregation, hyperparameters, routing):
    fitted = model(kernel=None, hyperparameters=hyperparameters, routing=routing).fit(X, y)
    fitted.set_params(aggregation=aggregation)
    message = f"{aggregation}.*set hyperparameters='shared' and fit again"
    for ask in (fitted.predict, fitted.predict_interval, fitted.sample_y):
        with pytest.raises(ValueError, match=message):
            ask(QUERIES)
    with pytest.raises(ValueError, match=message):
        fitted.loo_predict()


@pytest.mark.parametrize("routing", [None, 3, 1])
def test_grbcm_is_refused_after_a_fit_without_communication_expert(routing):
    fitted = model(routing=routing).fit(X, y).set_params(aggregation="grbcm")
    with pytest.raises(ValueError, match="communication expert: set it before fit"):
        fitted.predict(QUERIES)


@BOTH
def test_one_expert_may_have_any_kernel_of_its_own(aggregation):
    settings = {"points_per_expert": 60, "kernel": None, "hyperparameters": "independent"}
    fitted = model(aggregation=aggregation, **settings).fit(X, y)
    expected = latent(model(aggregation="gpoe", **settings).fit(X, y))
    assert_allclose(latent(fitted), expected, rtol=1e-9)


@BOTH
@pytest.mark.parametrize("routing", [None, 3])
def test_calibration_and_weighting_have_no_part_in_it(aggregation, routing):
    settings = {"aggregation": aggregation, "overlap": 1, "routing": routing}
    none = model(**settings).fit(X, y)
    information = model(**settings, calibration="information").fit(X, y)
    expected = np.array(none.predict(AT_DATA, return_std=True))
    assert_array_equal(information.predict(AT_DATA, return_std=True), expected)
    for weighting in WEIGHTINGS:
        none.set_params(weighting=weighting)
        assert_allclose(none.predict(AT_DATA, return_std=True), expected, rtol=1e-12)
    gpoe = model(aggregation="gpoe").fit(X, y)
    calibrated = model(aggregation="gpoe", calibration="information").fit(X, y)
    assert np.all(latent(calibrated)[1] < latent(gpoe)[1])  # whereas gpoe knows it


@BOTH
def test_the_prior_mean_is_zero_unless_it_is_asked_for(aggregation):
    plain = model(aggregation=aggregation, trend="auto").fit(X, y)
    assert all(expert.mean == 0 for expert in plain.experts_)
    assert_array_equal(latent(plain), latent(model(aggregation=aggregation).fit(X, y)))
    constant = model(aggregation=aggregation, trend="constant").fit(X, y)
    assert all(expert.mean != 0 for expert in constant.experts_)


@BOTH
def test_far_from_all_data_there_is_only_the_prior(aggregation):
    far = [[1e3, 1e3], [-40.0, 60.0]]
    for kernel in (FIXED, SMOOTH):
        mean, std = latent(model(aggregation=aggregation, kernel=kernel).fit(X, y), far)
        assert_allclose(mean, 0, atol=1e-9)
        assert_allclose(std, 1, rtol=1e-9)


@BOTH
@pytest.mark.parametrize("white", [1e-12, 1e-6])
def test_next_to_no_noise_and_duplicate_rows_leave_answers_finite(aggregation, white):
    kernel = Matern(2.0, "fixed", nu=2.5) + White(white, "fixed")
    inputs, targets = np.concatenate([X, X[:8]]), np.concatenate([y, y[:8]])
    for overlap in (0, 2):
        fitted = model(kernel=kernel, aggregation=aggregation, overlap=overlap)
        mean, std = latent(fitted.fit(inputs, targets))
        assert np.all(np.isfinite(mean))
        assert np.all((std > 0) & np.isfinite(std))
