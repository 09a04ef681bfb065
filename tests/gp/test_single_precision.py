"""Factors in single precision: where they are, and that they do not show."""

import pickle
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from data import read_only
from manygp.committee.committee import QUERYING
from manygp.gp import expert
from manygp.gp import marginal_likelihood as linalg
from manygp.gp.expert import PRECISION
from manygp.kernels import Constant, Linear, Matern, White
from manygp.paper import full_parts, one_part
from manygp.rules import AGGREGATIONS, WEIGHTINGS
from models import answers_at, choosing
from patching import with_numbers

rng = np.random.default_rng(0)
X = read_only(rng.uniform(-2, 2, (420, 2)))
SMOOTH = read_only(np.sin(2 * X[:, 0]) * np.cos(X[:, 1]))
y = read_only(SMOOTH + 0.3 * rng.normal(size=420))
QUERIES = read_only([*rng.uniform(-3, 3, (60, 2)), *X[:4], *X[:2], [50.0, -50.0]])
NEAR = read_only(rng.uniform(-0.5, 0.5, (150, 2)))

SIGNAL = Constant(1.0, "fixed") * Matern(0.5, "fixed")
NOISY = SIGNAL + White(0.1, "fixed")
# Nothing is left to choose by leave-one-out: three experts of 140 rows.
CHOSEN = {
    "kernel": NOISY,
    "points_per_expert": 140,
    "overlap": 0,
    "weighting": "entropy",
    "calibration": "information",
    "hyperparameters": "shared",
    "routing": None,
    "normalize_y": False,
}
model = partial(choosing, **CHOSEN)
answers = answers_at(QUERIES)


def types(fitted):
    """The types of the experts' whiteners."""
    return {one.whitener.dtype for one in fitted.experts_}


def in_both(inputs=X, targets=y, **parameters):
    """The same model with factors in single and in double precision."""
    single = model(**parameters).fit(inputs, targets)
    with pytest.MonkeyPatch.context() as patch:
        with_numbers(patch, expert, "PRECISION", single_rows=10**9)
        double = model(**parameters).fit(inputs, targets)
    assert types(single) == {np.dtype(np.float32)}
    assert types(double) == {np.dtype(np.float64)}
    return single, double


def assert_same(found, expected):
    """Two pairs of mean and std: neither differs by more than 1e-4 of the std."""
    assert_allclose(found[1], expected[1], rtol=1e-4)
    assert np.max(np.abs(found[0] - expected[0]) / expected[1]) < 1e-4


@pytest.fixture(scope="module")
def pair():
    return in_both()


# Where


def test_noisy_experts_of_many_rows_are_single(pair):
    for one in pair[0].experts_:
        assert one.whitener.dtype == np.float32
        assert one.whitener.flags.f_contiguous
        assert one.coefficients.dtype == one.X.dtype == one.Y.dtype == np.float64
    assert_array_equal(pair[0].experts_[0].coefficients, pair[1].experts_[0].coefficients)


@pytest.mark.parametrize(
    ("points", "dtype"),
    [(PRECISION.single_rows - 1, np.float64), (PRECISION.single_rows, np.float32)],
)
def test_few_rows_are_double(points, dtype):
    n = 3 * points
    assert types(model(points_per_expert=points).fit(X[:n], y[:n])) == {np.dtype(dtype)}


@pytest.mark.parametrize(("overlap", "dtype"), [(0, np.float64), (1, np.float32)])
def test_the_rows_of_others_count(overlap, dtype):
    assert types(model(points_per_expert=70, overlap=overlap).fit(X, y)) == {np.dtype(dtype)}


@pytest.mark.parametrize(
    "kernel",
    [
        SIGNAL + White(1e-6, "fixed"),
        SIGNAL,
        SIGNAL + White(0.5 * PRECISION.single_variance, "fixed"),
    ],
    ids=["little-noise", "no-noise", "too-little-noise"],
)
def test_experts_without_noise_are_double(kernel):
    fitted = model(kernel=kernel).fit(X, SMOOTH)
    assert types(fitted) == {np.dtype(np.float64)}
    assert np.all(answers(fitted)[1:3] > 0)


def test_experts_that_know_more_than_their_noise_says_are_double():
    kernel = Constant(1.0, "fixed") * Matern(20.0, "fixed") + White(0.1, "fixed")
    fitted = model(kernel=kernel).fit(X, y)
    latent = fitted.predict_experts(X).variance.min()
    assert latent < PRECISION.single_variance
    assert types(fitted) == {np.dtype(np.float64)}


def test_a_default_model_of_noise_free_data_is_double():
    settings = {"kernel": None, "normalize_y": True}
    assert types(model(**settings).fit(X, SMOOTH)) == {np.dtype(np.float64)}
    assert types(model(**settings).fit(X, y)) == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    "parameters",
    [
        {"points_per_expert": 420},
        {"points_per_expert": 211},
        {"partition": one_part},
        {"partition": full_parts},
    ],
    ids=["all-rows", "more-than-half", "one-part", "the-same-part"],
)
def test_a_single_expert_is_double(parameters):
    fitted = model(**parameters).fit(X, y)
    assert len({id(one) for one in fitted.experts_}) == 1
    assert types(fitted) == {np.dtype(np.float64)}


def test_known_noise_counts():
    alpha = np.full(420, 0.1)
    assert types(model(kernel=SIGNAL, alpha=alpha).fit(X, y)) == {np.dtype(np.float32)}
    alpha[7] = 1e-6  # of a row that its expert then knows all but exactly
    fitted = model(kernel=SIGNAL, alpha=alpha).fit(X, y)
    for one in fitted.experts_:
        assert one.whitener.dtype == (np.float64 if 7 in one.rows else np.float32)


# That it does not show


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("overlap", [0, 0.5])
def test_answers_are_those_of_double_precision(aggregation, overlap):
    single, double = in_both(aggregation=aggregation, overlap=overlap)
    for latent in (False, True):
        assert_same(
            single.predict(QUERIES, return_std=True, latent=latent),
            double.predict(QUERIES, return_std=True, latent=latent),
        )
        assert_same(single.loo_predict(latent=latent), double.loo_predict(latent=latent))


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("routing", [None, 1, 2])
def test_answers_by_any_weights_are_those_of_double_precision(pair, weighting, routing):
    rules = {"weighting": weighting, "routing": routing, "temperature": 16.0}
    single, double = (fitted.set_params(**rules) for fitted in pair)
    try:
        for latent in (False, True):
            assert_same(
                single.predict(QUERIES, return_std=True, latent=latent),
                double.predict(QUERIES, return_std=True, latent=latent),
            )
            assert_same(single.loo_predict(latent=latent), double.loo_predict(latent=latent))
    finally:
        for fitted in pair:
            fitted.set_params(**{name: CHOSEN[name] for name in ("weighting", "routing")})


@pytest.mark.parametrize("kernel", [
    SIGNAL + White(0.05, "fixed"),
    SIGNAL + White(1.0, "fixed"),
    SIGNAL + Constant(0.2, "fixed") * Linear(1.0, "fixed") + White(0.5, "fixed"),
    Constant(100.0, "fixed") * Matern(0.5, "fixed") + White(20.0, "fixed"),
], ids=["little-noise", "much-noise", "linear", "large"])  # fmt: skip
def test_answers_with_other_kernels_are_those_of_double_precision(kernel):
    single, double = in_both(kernel=kernel)
    for latent in (False, True):
        assert_same(
            single.predict(QUERIES, return_std=True, latent=latent),
            double.predict(QUERIES, return_std=True, latent=latent),
        )
        assert_same(single.loo_predict(latent=latent), double.loo_predict(latent=latent))


@pytest.mark.parametrize("noise", [10.0, 1e3, 1e4, 1e5])
def test_noise_however_loud_does_not_hide_the_latent_std(noise):
    kernel = SIGNAL + White(noise, "fixed")
    targets = y + np.sqrt(noise) * np.random.default_rng(1).normal(size=420)
    fitted = model(kernel=kernel).fit(X, targets)
    with pytest.MonkeyPatch.context() as patch:
        with_numbers(patch, expert, "PRECISION", single_rows=10**9)
        double = model(kernel=kernel).fit(X, targets)
    for latent in (False, True):
        assert_same(
            fitted.predict(QUERIES, return_std=True, latent=latent),
            double.predict(QUERIES, return_std=True, latent=latent),
        )
        assert_same(fitted.loo_predict(latent=latent), double.loo_predict(latent=latent))


def test_two_targets_are_those_of_double_precision():
    single, double = in_both(targets=np.column_stack([y, X[:, 1]]))
    assert_same(
        single.predict(QUERIES, return_std=True, latent=True),
        double.predict(QUERIES, return_std=True, latent=True),
    )
    assert_same(single.loo_predict(latent=True), double.loo_predict(latent=True))


def test_the_model_that_chooses_for_itself_chooses_the_same():
    auto = ("overlap", "calibration", "hyperparameters", "routing")
    settings = {
        **dict.fromkeys(auto, "auto"),
        "kernel": None,
        "normalize_y": True,
        "points_per_expert": 210,
        "weighting": "tempered",
    }
    single, double = in_both(**settings)
    one, two = single.calibration_report_, double.calibration_report_
    assert [a[:2] for a in one.alternatives[:-4]] == [a[:2] for a in two.alternatives[:-4]]
    nll = [[alternative.nll for alternative in report.alternatives] for report in (one, two)]
    assert_allclose(nll[0], nll[1], rtol=0, atol=1e-4)
    assert_same(
        single.predict(QUERIES, return_std=True, latent=True),
        double.predict(QUERIES, return_std=True, latent=True),
    )
    assert_allclose(
        single.predict_interval(QUERIES), double.predict_interval(QUERIES), rtol=0, atol=1e-3
    )


def test_the_likelihood_is_that_of_double_precision(pair):
    single, double = pair
    for one, two in zip(single.experts_, double.experts_, strict=True):
        expected = two.log_marginal_likelihood
        assert one.log_marginal_likelihood == pytest.approx(expected, rel=1e-6)
    own = in_both(overlap=1, trend="none", alpha=np.linspace(0.1, 0.2, 420))
    for one, two in zip(own[0].experts_, own[1].experts_, strict=True):
        expected = two.log_marginal_likelihood
        assert one.log_marginal_likelihood == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("latent", [True, False])
@pytest.mark.parametrize("rows", [QUERIES, NEAR], ids=["apart", "near"])
def test_the_joint_covariance_is_that_of_double_precision(pair, rows, latent):
    single, double = (fitted.predict(rows, return_cov=True, latent=latent)[1] for fitted in pair)
    std = np.sqrt(np.diag(double))
    assert_allclose(np.sqrt(np.diag(single)), std, rtol=1e-4)
    assert np.max(np.abs(single - double) / np.outer(std, std)) < 1e-4
    expected = pair[0].predict(rows, return_std=True, latent=latent)[1]
    assert_allclose(np.diag(single), expected**2, rtol=1e-12)


@pytest.mark.parametrize("aggregation", ["gpoe", "rbcm", "barycentre"])
@pytest.mark.parametrize("latent", [True, False])
@pytest.mark.parametrize("rows", [QUERIES, NEAR, X[:120]], ids=["apart", "near", "training-rows"])
def test_the_joint_covariance_is_positive_semidefinite(pair, rows, latent, aggregation):
    fitted = pair[0].set_params(aggregation=aggregation)
    try:
        cov = fitted.predict(rows, return_cov=True, latent=latent)[1]
    finally:
        fitted.set_params(aggregation="gpoe")
    assert_allclose(cov, cov.T, rtol=1e-12, atol=1e-14)
    eigenvalues = np.linalg.eigvalsh(cov)
    assert eigenvalues[0] > -1e-6 * eigenvalues[-1]
    if not latent:
        np.linalg.cholesky(cov)


def test_samples_can_be_drawn_of_rows_that_are_all_but_the_same(pair):
    rows = 1e-6 * NEAR[:40]
    draws = pair[0].sample_y(rows, 5, random_state=0)
    assert draws.shape == (40, 5)
    assert np.all(np.isfinite(draws))


# The same digits


@pytest.mark.parametrize("size", [1, 7, 33])
@pytest.mark.parametrize("rules", [
    {}, {"routing": 2}, {"aggregation": "barycentre"}, {"aggregation": "rbcm", "routing": 2},
], ids=str)  # fmt: skip
def test_answers_do_not_depend_on_the_batch(rules, size):
    fitted = model(**rules).fit(X, y)
    assert types(fitted) == {np.dtype(np.float32)}
    batches = [answers(fitted, QUERIES[i : i + size]) for i in range(0, len(QUERIES), size)]
    assert_array_equal(np.concatenate(batches, axis=1), answers(fitted))


def test_answers_do_not_depend_on_the_batch_where_it_has_many_rows(pair):
    fitted = pair[0]
    many = np.random.default_rng(2).uniform(-3, 3, (2 * QUERYING.chunk_rows + 77, 2))
    found = answers(fitted, many)
    for rows in (
        slice(0, 1),
        slice(QUERYING.chunk_rows - 1, QUERYING.chunk_rows + 2),
        slice(300, 900),
    ):
        assert_array_equal(answers(fitted, many[rows]), found[:, rows])
    assert_array_equal(answers(fitted, many[::-1])[:, ::-1], found)


@pytest.mark.parametrize("points", [128, 129, 135, 137])
def test_answers_do_not_depend_on_the_batch_whatever_the_number_of_rows(points):
    n = 3 * points
    fitted = model(points_per_expert=points).fit(X[:n], y[:n])
    assert types(fitted) == {np.dtype(np.float32)}
    single = [answers(fitted, row[None]) for row in QUERIES[:20]]
    assert_array_equal(np.concatenate(single, axis=1), answers(fitted)[:, :20])


def test_answers_do_not_depend_on_n_jobs():
    one, two = (model(n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 2))
    assert_array_equal(answers(two), answers(one))
    assert_array_equal(two.loo_predict(latent=True), one.loo_predict(latent=True))


def test_pickle_keeps_the_precision_and_the_digits(pair):
    thawed = pickle.loads(pickle.dumps(pair[0]))
    assert types(thawed) == {np.dtype(np.float32)}
    assert_array_equal(answers(thawed), answers(pair[0]))
    assert len(pickle.dumps(pair[0])) < 0.6 * len(pickle.dumps(pair[1]))


@pytest.mark.parametrize(("first", "second"), [(np.float32, np.float64), (np.float64, np.float32)])
def test_products_of_two_precisions_are_refused(first, second):
    L, B = np.eye(4, dtype=first, order="F"), np.ones((4, 2), dtype=second, order="F")
    with pytest.raises(ValueError, match="Fortran order"):
        linalg.multiply_triangle(L, B)
    assert_array_equal(B, 1.0)
