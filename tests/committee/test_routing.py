"""Routing: only the experts nearest to a row are asked about it."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from data import noisy_rows, read_only, slope_and_wave
from manygp.committee import committee
from manygp.committee.committee import Query
from manygp.kernels import Matern, White
from manygp.rules import AGGREGATIONS, Tempered, normalise
from models import answers_at, choosing

X, y, QUERIES = noisy_rows(slope_and_wave, 200, 530, reach=2.5)  # more than a chunk of rows
FEW = read_only([*QUERIES[:20], *X[:4], *X[:2], [50.0, -50.0]])
answers = answers_at(QUERIES)

FIXED = Matern((0.5, 1.5), "fixed", nu=1.5) + White(0.02, "fixed")
SETTINGS = {
    "kernel": FIXED,
    "points_per_expert": 20,
    "overlap": 0,
    "temperature": 3.0,
    "calibration": "information",
    "hyperparameters": "shared",
}
EVERY_AGGREGATION = pytest.mark.parametrize("aggregation", AGGREGATIONS)


def model(routing, **parameters):
    return choosing(**{**SETTINGS, "routing": routing, **parameters})


class Asked:
    """The pairs of expert and row that predictions have computed, whatever the padding."""

    def __init__(self, monkeypatch):
        self.pairs, self.rows = set(), {}
        original = committee.predict_expert

        def spy(expert, rows, *arguments, **options):
            for row in rows:
                self.pairs.add((id(expert), row.tobytes()))
                self.rows[id(expert)] = len(expert.X)
            return original(expert, rows, *arguments, **options)

        monkeypatch.setattr(committee, "predict_expert", spy)

    def experts_of(self, row):
        """Ids of the experts that were asked about the row, which the kernel sees as it is."""
        return {expert for expert, one in self.pairs if one == row.tobytes()}

    @property
    def expert_rows(self):
        """Training rows that were compared with a query, summed over the queries."""
        return sum(self.rows[expert] for expert, _ in self.pairs)


def distances(fitted, rows):
    """Of rows from the centres of experts: (N, M), from their own rows and the length-scales."""
    scale = np.array([0.5, 1.5])
    centres = np.array([(X[expert.indices] / scale).mean(axis=0) for expert in fitted.experts_])
    return np.linalg.norm(rows[:, None] / scale - centres, axis=2)


def by_distance(fitted, rows):
    """Experts from near to far: (N, M)."""
    return np.argsort(distances(fitted, rows), axis=1)


# How many


@pytest.mark.parametrize(
    ("routing", "nearest"),
    [(None, None), (1, 2), (2, 2), (3, 3), (np.int64(3), 3), (10, 10)],
    ids=str,
)
def test_the_number_of_experts_is_visible(routing, nearest):
    assert model(routing).fit(X, y).nearest_ == nearest


@pytest.mark.parametrize("calibration", ["auto", "information"])
def test_no_more_experts_are_visible_than_there_are(calibration):
    fitted = model(1000, calibration=calibration).fit(X, y)
    assert len(fitted.experts_) == 10
    assert fitted.nearest_ == 10


def test_a_chosen_number_of_experts_is_visible():
    fitted = model("auto").fit(X, y)
    assert fitted.nearest_ in (2, 4, 8)
    assert fitted.nearest_ == fitted.calibration_report_.chosen["nearest"]


@pytest.mark.parametrize("routing", [None, "auto", 0.1, 3])
def test_a_single_expert_is_always_asked(routing):
    fitted = model(routing, points_per_expert=200).fit(X, y)
    assert fitted.nearest_ is None or routing == 3
    assert_array_equal(answers(fitted), answers(model(None, points_per_expert=200).fit(X, y)))


@pytest.mark.parametrize("aggregation", ["gpoe", "rbcm", "nested", "grbcm"])
@pytest.mark.parametrize("routing", [2, 4])
def test_exactly_so_many_experts_are_asked_about_each_row(routing, aggregation, monkeypatch):
    fitted = model(routing, aggregation=aggregation).fit(X, y)
    asked = Asked(monkeypatch)
    fitted.predict(QUERIES, return_std=True)
    members = {id(expert) for expert in fitted.experts_}
    for row in QUERIES[::7]:
        assert len(asked.experts_of(row) & members) == routing


def test_all_experts_are_asked_without_routing(monkeypatch):
    fitted = model(None).fit(X, y)
    asked = Asked(monkeypatch)
    fitted.predict(FEW)
    for row in FEW:
        assert len(asked.experts_of(row)) == 10


def test_the_number_may_be_changed_after_fit(monkeypatch):
    fitted = model("auto").fit(X, y).set_params(routing=3)
    asked = Asked(monkeypatch)
    fitted.predict(FEW)
    assert all(len(asked.experts_of(row)) == 3 for row in FEW)
    expected = model(3, calibration=fitted.model_.rules.calibration).fit(X, y)
    assert_array_equal(fitted.predict(FEW), expected.predict(FEW))


# Which


@pytest.mark.parametrize("routing", [2, 5])
def test_the_nearest_by_centre_in_the_kernels_metric_are_asked(routing, monkeypatch):
    fitted = model(routing).fit(X, y)
    expected = by_distance(fitted, QUERIES)[:, :routing]
    asked = Asked(monkeypatch)
    fitted.predict(QUERIES, return_std=True)
    for row, near in zip(QUERIES, expected, strict=True):
        assert asked.experts_of(row) == {id(fitted.experts_[m]) for m in near}


def test_the_nearest_come_first():
    fitted = model(4).fit(X, y)
    near, distance = fitted._model.committee.layout.nearest(QUERIES, 4)
    assert_array_equal(near, by_distance(fitted, QUERIES)[:, :4])
    assert np.all(np.diff(distance, axis=0) >= 0)


def test_without_the_metric_others_would_be_nearest():
    fitted = model(1).fit(X, y)
    centres = np.array([X[expert.indices].mean(axis=0) for expert in fitted.experts_])
    plain = np.argmin(np.linalg.norm(QUERIES[:, None] - centres, axis=2), axis=1)
    assert np.mean(plain != by_distance(fitted, QUERIES)[:, 0]) > 0.1


def test_the_answer_is_the_rule_applied_to_the_nearest_experts():
    fitted = model(3).fit(X, y)
    record, near = fitted.predict_experts(QUERIES), by_distance(fitted, QUERIES)[:, :3].T
    mean, variance, prior = (np.take_along_axis(a, near, axis=0) for a in record[:3])
    local = record._replace(mean=mean, variance=variance, prior_variance=prior)
    rules = fitted.model_.rules
    assert rules.weighting == Tempered(3.0)
    near_and_next = np.sort(distances(fitted, QUERIES), axis=1)[:, :4].T
    s = 1 - (near_and_next[:3] / near_and_next[3]) ** 2
    weights = rules.weighting(local) * 1.05 * s**2 / (s + 0.05)  # they fall to zero at the edge
    noise = record.noise_variance[0]
    ratio = rules.calibration(local._replace(noise_variance=np.full((3, 1), noise)))
    precision = normalise(weights) / (ratio * variance)
    expected_variance = 1 / precision.sum(axis=0)
    expected_mean = expected_variance * (precision * mean).sum(axis=0)
    found_mean, found_std = fitted.predict(QUERIES, return_std=True)
    assert_allclose(found_mean, expected_mean, rtol=1e-10)
    assert_allclose(found_std**2, expected_variance + noise, rtol=1e-10)


@EVERY_AGGREGATION
def test_routing_to_all_experts_is_no_routing(aggregation):
    rules = {"aggregation": aggregation, "overlap": 0.5}
    fitted = model(None, **rules).fit(X, y)
    expected = answers(fitted, FEW)
    routed = answers(model(10, **rules).fit(X, y), FEW)
    assert_allclose(routed, expected, rtol=1e-12, atol=1e-12)
    more = answers(fitted.set_params(routing=1000), FEW)
    assert_allclose(more, expected, rtol=1e-12, atol=1e-12)
    assert not np.allclose(answers(fitted.set_params(routing=2), FEW), expected, rtol=1e-6)


# Tolerance


@pytest.mark.parametrize("tolerance", [0.5, 0.2, 0.05, 0.01])
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_a_tolerance_is_the_weight_that_may_be_neglected(temperature, tolerance):
    fitted = model(tolerance, temperature=temperature).fit(X, y)
    # Weights of training rows, each left out, from the nearest expert to the farthest.
    (weights,) = fitted._model.committee.map_blocks(
        fitted.model_.rules.normalised_weights, Query(X, 10, np.arange(200)), None
    )
    neglected = 1 - np.cumsum(weights.mean(axis=1))
    assert neglected[fitted.nearest_ - 1] <= tolerance + 1e-9
    assert np.all(neglected[1 : fitted.nearest_ - 1] > tolerance)  # two are asked at least


def test_a_smaller_tolerance_asks_more_experts():
    counts = [
        model(t, temperature=2.0).fit(X, y).nearest_ for t in (0.6, 0.3, 0.1, 0.03, 0.01, 1e-9)
    ]
    assert counts == sorted(counts)
    assert counts[0] < counts[2] < counts[-1]


def test_a_tolerance_of_next_to_nothing_is_no_routing():
    fitted, every = (model(r, temperature=1.0).fit(X, y) for r in (1e-13, None))
    assert fitted.nearest_ == 10
    assert_allclose(answers(fitted, FEW), answers(every, FEW), rtol=1e-12)


# Rows by themselves


@pytest.mark.parametrize("routing", [1, 3])
@EVERY_AGGREGATION
def test_predictions_do_not_depend_on_the_batch(aggregation, routing):
    fitted = model(routing, aggregation=aggregation, overlap=0.5).fit(X, y)
    expected = answers(fitted, FEW)
    alone = np.concatenate([answers(fitted, FEW[[i]]) for i in range(-1, 24, 5)], axis=1)
    order = np.random.default_rng(1).permutation(len(FEW))
    others = np.concatenate([1e6 + QUERIES[:50], FEW, X])
    assert_allclose(alone, expected[:, range(-1, 24, 5)], rtol=1e-12, atol=1e-12)
    assert_allclose(answers(fitted, FEW[order]), expected[:, order], rtol=1e-12, atol=1e-12)
    assert_allclose(
        answers(fitted, others)[:, 50 : 50 + len(FEW)], expected, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("size", [1, 7, 512, 600])
def test_digits_do_not_depend_on_the_batch_size(size):
    fitted = model(3).fit(X, y)
    rows = QUERIES if size > 7 else QUERIES[:40]
    batches = [answers(fitted, rows[i : i + size]) for i in range(0, len(rows), size)]
    assert_allclose(np.concatenate(batches, axis=1), answers(fitted, rows), rtol=1e-12)


@pytest.mark.parametrize("routing", [1, 3])
@pytest.mark.parametrize("aggregation", ["gpoe", "nested", "grbcm"])
def test_predictions_do_not_depend_on_n_jobs(aggregation, routing):
    fitted = model(routing, aggregation=aggregation).fit(X, y)
    expected = answers(fitted)
    for n_jobs in (2, 4):
        assert_array_equal(answers(fitted.set_params(n_jobs=n_jobs)), expected)


@pytest.mark.parametrize("aggregation", ["gpoe", "nested", "grbcm"])
def test_eight_threads_predicting_at_once_agree(aggregation):
    fitted = model(3, aggregation=aggregation).fit(X, y)
    expected = answers(fitted, QUERIES[:100])
    fresh = model(3, aggregation=aggregation).fit(X, y)  # has never been asked
    with ThreadPoolExecutor(8) as pool:
        for got in pool.map(partial(answers, fresh), [QUERIES[:100]] * 8):
            assert_array_equal(got, expected)


# Joint predictions


@pytest.mark.parametrize("latent", [True, False])
@pytest.mark.parametrize("routing", [1, 3])
@EVERY_AGGREGATION
def test_covariance_is_symmetric_psd_with_the_variances_on_its_diagonal(
    aggregation, routing, latent
):
    fitted = model(routing, aggregation=aggregation, overlap=0.5).fit(X, y)
    mean, cov = fitted.predict(FEW, return_cov=True, latent=latent)
    expected_mean, std = fitted.predict(FEW, return_std=True, latent=latent)
    assert_array_equal(mean, expected_mean)
    assert_allclose(cov, cov.T, rtol=1e-12, atol=1e-13)
    assert_allclose(np.diag(cov), std**2, rtol=1e-12)
    eigenvalues = np.linalg.eigvalsh(cov)
    assert eigenvalues[0] >= -1e-10 * eigenvalues[-1]
    assert np.any(np.abs(cov - np.diag(np.diag(cov))) > 1e-3)


def test_rows_of_different_experts_are_independent_and_those_of_one_are_not():
    fitted = model(2).fit(X, y)
    asked = by_distance(fitted, QUERIES[:60])[:, :2]
    _, cov = fitted.predict(QUERIES[:60], return_cov=True, latent=True)
    same = (asked[:, None, :, None] == asked[None, :, None, :]).any(axis=(2, 3))
    assert_array_equal(cov[~same], 0)
    assert np.mean(np.abs(cov[same]) > 0) > 0.99


@pytest.mark.parametrize("routing", [2, 4])
def test_the_covariance_mixes_the_correlations_of_the_experts_that_both_rows_ask(routing):
    fitted = model(routing, normalize_y=False).fit(X, y)
    rows, signal = QUERIES[:25], FIXED.left
    near = by_distance(fitted, rows)[:, :routing]
    record = fitted.predict_experts(rows)
    (weights,) = fitted._model.committee.map_blocks(
        fitted.model_.rules.normalised_weights, Query(rows, routing), None
    )
    mixture = np.zeros((25, 25))
    for m, expert in enumerate(fitted.experts_):
        K = signal(expert.X) + 0.02 * np.eye(len(expert.X))
        k = signal(rows, expert.X)
        root = np.sqrt(record.variance[m])
        correlation = (signal(rows) - k @ np.linalg.solve(K, k.T)) / np.outer(root, root)
        share = np.where(near == m, weights.T, 0.0).sum(axis=1)
        mixture += np.sqrt(np.outer(share, share)) * correlation
    std = fitted.predict(rows, return_std=True, latent=True)[1]
    _, cov = fitted.predict(rows, return_cov=True, latent=True)
    assert_allclose(cov, mixture * np.outer(std, std), rtol=1e-8, atol=1e-10)


def test_the_covariance_of_all_experts_does_not_depend_on_routing():
    expected = model(None).fit(X, y).predict(FEW, return_cov=True)[1]
    assert_allclose(
        model(10).fit(X, y).predict(FEW, return_cov=True)[1], expected, rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("aggregation", ["gpoe", "nested"])
def test_samples_have_the_predicted_mean_and_covariance(aggregation):
    fitted = model(3, aggregation=aggregation).fit(X, y)
    mean, cov = fitted.predict(FEW, return_cov=True)
    samples = fitted.sample_y(FEW, 20_000, random_state=0)
    assert samples.shape == (len(FEW), 20_000)
    std = np.sqrt(np.diag(cov))
    # Five standard errors of a mean, and of a covariance.
    assert np.all(np.abs(samples.mean(axis=1) - mean) < 5 * std / np.sqrt(20_000))
    assert np.all(np.abs(np.cov(samples) - cov) < 5 * np.sqrt(2 / 20_000) * np.outer(std, std))


# Cost


@pytest.mark.parametrize("aggregation", ["gpoe", "nested"])
def test_the_work_for_a_row_does_not_grow_with_the_training_rows(aggregation, monkeypatch):
    def work(n, routing):
        draw = np.random.default_rng(2)
        inputs = draw.uniform(-2, 2, (n, 2))
        fitted = model(routing, aggregation=aggregation).fit(inputs, np.sin(inputs[:, 0]))
        with monkeypatch.context() as patch:
            asked = Asked(patch)
            fitted.predict(QUERIES[:50], return_std=True)
        return asked.expert_rows / 50

    assert work(150, 3) == pytest.approx(work(600, 3), rel=0.1)
    assert work(600, None) == 600
