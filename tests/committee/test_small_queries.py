"""Few rows are answered without threads and with little padding, as in a batch."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from data import noisy_rows, slope_and_wave
from manygp.committee import committee
from manygp.committee.committee import QUERYING
from manygp.gp import expert as expert_module
from manygp.gp import marginal_likelihood as linalg
from manygp.gp.expert import PRECISION
from manygp.kernels import Linear, Matern, White, structured_kernel
from models import answers_at, choosing

X, y, QUERIES = noisy_rows(slope_and_wave, 300, 60, reach=2.5)
answers = answers_at(QUERIES)
RULES = {"overlap": 1, "temperature": 3.0, "calibration": "none", "routing": 3}


def model(noise=0.02, **parameters):
    kernel = Matern((0.5, 1.5), "fixed") + White(noise, "fixed")
    return choosing(**{"kernel": kernel, "points_per_expert": 30, **RULES, **parameters})


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"routing": None},
        {"noise": PRECISION.vector_noise},
        {"noise": 1e-6},
        {"points_per_expert": 300},
        {"points_per_expert": 150, "noise": 0.5},  # in single precision
        {"kernel": Linear(1.0, "fixed") + White(0.1, "fixed")},
        {"kernel": structured_kernel(2).with_theta(structured_kernel(2).theta - 1)},
        {"trend": "additive"},
        {"hyperparameters": "shared", "aggregation": "nested"},
        {"hyperparameters": "shared", "aggregation": "grbcm"},
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [1, 2, QUERYING.small_rows, QUERYING.small_rows + 1])
def test_few_rows_have_the_digits_of_a_batch(settings, size):
    fitted = model(**settings).fit(X, y)
    mean, std = fitted.predict(QUERIES, return_std=True)
    for i in range(0, len(QUERIES) - size, 7):
        few = fitted.predict(QUERIES[i : i + size], return_std=True)
        assert_allclose(few[0], mean[i : i + size], rtol=1e-10, atol=1e-10)
        assert_allclose(few[1], std[i : i + size], rtol=1e-10)


def test_only_one_row_of_enough_noise_is_whitened_as_a_vector(monkeypatch):
    done, multiply = [], linalg.multiply_vector
    monkeypatch.setattr(
        "manygp.gp.expert.multiply_vector", lambda *a: done.append(1) or multiply(*a)
    )
    fitted = model().fit(X, y)
    fitted.predict(QUERIES[:2], return_std=True)
    fitted.predict(QUERIES[:40], return_std=True)
    assert done == []
    fitted.predict(QUERIES[:1], return_std=True)
    assert len(done) == 3
    model(noise=PRECISION.vector_noise / 2).fit(X, y).predict(QUERIES[:1], return_std=True)
    assert len(done) == 3


def test_few_rows_need_no_threads(monkeypatch):
    asked, thread_map = [], committee.thread_map
    fitted = model(n_jobs=2).fit(X, y)
    monkeypatch.setattr(committee, "thread_map", lambda n: asked.append(n) or thread_map(n))
    for size in (1, QUERYING.small_rows, QUERYING.small_rows + 1):
        fitted.predict(QUERIES[:size])
    assert asked == [1, 1, 2]


def test_only_experts_that_are_asked_are_looked_at(monkeypatch):
    fitted = model().fit(X, y)
    seen = []

    def spy(self):
        seen.append(int(self.indices[0]))
        return self.kernel.noise_variance

    monkeypatch.setattr(expert_module.Expert, "noise_variance", property(spy))
    fitted.predict(QUERIES[:1])
    assert len(fitted.experts_) == 10
    assert len(set(seen)) == 3


@pytest.mark.parametrize("n", [1, 8, 200])
def test_a_vector_is_multiplied_as_a_matrix_is(n):
    rng = np.random.default_rng(0)
    L, b = np.asfortranarray(rng.normal(size=(n, n))), rng.normal(size=n)
    found = b.copy()
    linalg.multiply_vector(L, found)
    assert_allclose(found, np.tril(L) @ b, rtol=1e-11, atol=1e-12)


def test_only_contiguous_vectors_of_floats_are_multiplied():
    L = np.asfortranarray(np.eye(4))
    for wrong in (np.ones(8)[::2], np.ones(4, dtype=np.float32)):
        with pytest.raises(ValueError, match="a contiguous float64 vector is needed"):
            linalg.multiply_vector(L, wrong)


def test_arrays_that_need_no_conversion_are_answered_like_others():
    fitted = model().fit(X, y)
    expected = answers(fitted)
    for same in (QUERIES.tolist(), np.asfortranarray(QUERIES), QUERIES.astype(object)):
        assert_array_equal(fitted.predict(same, return_std=True), expected[:2])
    for wrong in (QUERIES[:, :1], QUERIES[:0], QUERIES[0]):
        with pytest.raises(ValueError, match=r"features|minimum of 1|2D array"):
            fitted.predict(wrong)
