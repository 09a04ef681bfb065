"""Every weighting, calibration and aggregation against the reference and every invariant."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import reference
from manygp.aggregation import AGGREGATIONS, normalise
from manygp.calibration import CALIBRATIONS, Information
from manygp.metrics import ence
from manygp.types import ExpertPredictions
from manygp.weighting import WEIGHTINGS, Softmax

# The reference's rules by name: a new entry of a registry needs one.
REFERENCE_WEIGHTS = {
    "entropy": reference.entropy_weights,
    "variance": reference.variance_weights,
    "uniform": reference.uniform_weights,
    "softmax": reference.softmax_weights,
}
REFERENCE_RATIO = {"information": reference.information_ratio, "none": lambda v, noise: 1.0}
REFERENCE_AGGREGATION = {
    "gpoe": lambda mean, v, p, w, c: reference.gpoe(mean, v, w),
    "poe": lambda mean, v, p, w, c: reference.poe(mean, v, [1.0] * len(v)),
    "bcm": lambda mean, v, p, w, c: reference.rbcm_own_priors(mean, v, p, [1.0] * len(v), c),
    "rbcm": reference.rbcm_own_priors,
    "barycentre": lambda mean, v, p, w, c: reference.barycentre(mean, v, w),
}
EVERY_WEIGHTING = pytest.mark.parametrize("weighting", WEIGHTINGS)
EVERY_CALIBRATION = pytest.mark.parametrize("calibration", CALIBRATIONS)
EVERY_AGGREGATION = pytest.mark.parametrize("aggregation", AGGREGATIONS)
# A product that counts the prior M times is surer than the prior: the flaw that the others mend.
RETURNS_TO_PRIOR = pytest.mark.parametrize("aggregation", [a for a in AGGREGATIONS if a != "poe"])
COUNTS_PRIOR_ONCE = pytest.mark.parametrize("aggregation", ["bcm", "rbcm"])
AVERAGES = pytest.mark.parametrize("aggregation", ["gpoe", "barycentre"])
N_EXPERTS = pytest.mark.parametrize("M", [1, 2, 7])


def record(mean, variance, prior, noise, prior_mean=None):
    """ExpertPredictions whose arrays cannot be written to; without prior_mean it is 0."""
    prior_mean = np.zeros((len(mean), 1)) if prior_mean is None else prior_mean
    arrays = [np.array(array, dtype=float) for array in (mean, variance, prior, noise, prior_mean)]
    for array in arrays:
        array.flags.writeable = False
    return ExpertPredictions(*arrays)


def some_experts(M=4, N=9, seed=0, equal_priors=False):
    rng = np.random.default_rng(seed)
    prior = np.ones((M, N)) * (1.3 if equal_priors else rng.uniform(0.5, 2.0, size=(M, 1)))
    known = rng.uniform(0.001, 0.999, size=(M, N))
    noise = rng.uniform(0.01, 0.5, size=(M, 1))
    prior_mean = np.zeros((M, 1)) if equal_priors else rng.normal(size=(M, 1))
    return record(rng.normal(size=(M, N)), known * prior, prior, noise, prior_mean)


def far_from_all_data(M=4, N=3, mean=0.0):
    return record(np.full((M, N), mean), np.full((M, N), 1.3), np.full((M, N), 1.3), [[0.1]] * M)


def some_weights(M=4, N=9, seed=1):
    weights = np.random.default_rng(seed).uniform(0.1, 2.0, size=(M, N))
    weights.flags.writeable = False
    return weights


def take(experts, rows=slice(None), columns=slice(None)):
    """The record of some of the experts and of some of the rows that they were asked about."""
    wide = (array[rows][:, columns] for array in experts[:3])
    return record(*wide, *(array[rows] for array in experts[3:]))


# Weights


@EVERY_WEIGHTING
@N_EXPERTS
def test_weights_equal_the_reference(weighting, M):
    experts = some_experts(M)
    columns = zip(experts.variance.T, experts.prior_variance.T, strict=True)
    expected = [REFERENCE_WEIGHTS[weighting](v, p) for v, p in columns]
    assert_allclose(WEIGHTINGS[weighting](experts).T, expected, rtol=1e-10)


@EVERY_WEIGHTING
@N_EXPERTS
def test_weights_are_not_negative_even_where_rounding_exceeds_the_prior(weighting, M):
    experts = some_experts(M)
    exceeding = experts._replace(variance=experts.prior_variance * (1 + 1e-12))
    for case in (experts, exceeding, far_from_all_data(M)):
        weights = WEIGHTINGS[weighting](case)
        assert weights.shape == case.mean.shape
        assert np.all(np.isfinite(weights))
        assert np.all(weights >= 0)


@EVERY_WEIGHTING
def test_a_surer_expert_of_the_same_prior_never_weighs_less(weighting):
    experts = some_experts(equal_priors=True)
    weights = WEIGHTINGS[weighting](experts)
    by_variance = np.take_along_axis(weights, np.argsort(experts.variance, axis=0), axis=0)
    assert np.all(np.diff(by_variance, axis=0) <= 0)


@EVERY_WEIGHTING
def test_weights_follow_their_experts_and_do_not_depend_on_other_rows(weighting):
    experts, rule = some_experts(), WEIGHTINGS[weighting]
    order, columns = [2, 0, 3, 1], [5, 1]
    assert_allclose(rule(take(experts, order)), rule(experts)[order], rtol=1e-12)
    assert_allclose(rule(take(experts, columns=columns)), rule(experts)[:, columns], rtol=1e-12)


def test_softmax_of_large_variances_is_finite():
    experts = some_experts()
    weights = Softmax(1e6)(experts)
    assert_allclose(weights.sum(axis=0), 1)
    assert_allclose(weights.max(axis=0), 1)


def test_normalised_weights_sum_to_one_and_are_uniform_where_all_are_zero():
    weights = np.array([[1.0, 0.0, 5e-324], [3.0, 0.0, 0.0]])
    assert_array_equal(normalise(weights), [[0.25, 0.5, 1.0], [0.75, 0.5, 0.0]])


# Calibration


@EVERY_CALIBRATION
@pytest.mark.parametrize("M", [2, 7])
def test_ratio_equals_the_reference(calibration, M):
    experts = some_experts(M)
    ratio = CALIBRATIONS[calibration](experts)
    for m, i in np.ndindex(experts.mean.shape):
        noise = experts.noise_variance[m, 0]
        expected = REFERENCE_RATIO[calibration](experts.variance[m, i], noise)
        assert ratio[m, i] == pytest.approx(expected, rel=1e-12)


@EVERY_CALIBRATION
@pytest.mark.parametrize("noise", [0.0, 1e-300, 0.1, 1e9])
def test_ratio_lies_above_zero_and_at_most_at_one(calibration, noise):
    experts = some_experts()._replace(noise_variance=np.full((4, 1), noise))
    ratio = CALIBRATIONS[calibration](experts)
    assert ratio.shape == experts.mean.shape
    assert np.all((ratio > 0) & (ratio <= 1))


@EVERY_CALIBRATION
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_information_ratio_is_one_at_zero_variance(calibration, noise):
    experts = record(np.zeros((3, 2)), np.zeros((3, 2)), np.ones((3, 2)), np.full((3, 1), noise))
    assert_array_equal(CALIBRATIONS[calibration](experts), np.ones((3, 2)))


@EVERY_CALIBRATION
def test_ratio_never_increases_with_the_variance(calibration):
    variance = np.tile(np.geomspace(1e-6, 1e3, 50), (2, 1))
    experts = record(np.zeros((2, 50)), variance, np.full((2, 50), 1e3), [[0.1], [0.2]])
    assert np.all(np.diff(CALIBRATIONS[calibration](experts), axis=1) <= 0)


def test_information_ratio_decreases_up_to_the_largest_gain_and_stays_there():
    gain = np.array([[0.1, 0.5, 0.99, 1.0, 1.5, 30.0]] * 2)
    experts = record(np.zeros((2, 6)), 0.2 * np.expm1(2 * gain), np.ones((2, 6)), [[0.2]] * 2)
    ratio = Information()(experts)
    assert np.all(np.diff(ratio[:, :4]) < 0)
    assert_allclose(ratio[:, 3:], math.exp(-(math.e - 1) / math.e), rtol=1e-12)


@EVERY_CALIBRATION
def test_ratio_is_one_for_a_single_expert(calibration):
    assert_array_equal(CALIBRATIONS[calibration](some_experts(1)), np.ones((1, 9)))


@EVERY_CALIBRATION
def test_ratio_follows_its_expert_and_does_not_depend_on_other_rows(calibration):
    experts, rule = some_experts(), CALIBRATIONS[calibration]
    order, columns = [2, 0, 3, 1], [5, 1]
    assert_array_equal(rule(take(experts, order)), rule(experts)[order])
    assert_array_equal(rule(take(experts, columns=columns)), rule(experts)[:, columns])


def test_strength_is_the_exponent_of_the_information_ratio():
    experts = some_experts()
    assert_allclose(Information(strength=2)(experts), Information()(experts) ** 2, rtol=1e-12)
    assert_array_equal(Information(strength=0)(experts), np.ones((4, 9)))


# Aggregation


@EVERY_AGGREGATION
@N_EXPERTS
def test_aggregation_equals_the_reference(aggregation, M):
    experts, weights = some_experts(M), some_weights(M)
    found = AGGREGATIONS[aggregation](experts, weights)
    centres = experts.prior_mean[:, 0]
    columns = zip(*(a.T for a in (*experts[:3], weights)), strict=True)
    expected = [REFERENCE_AGGREGATION[aggregation](*column, centres) for column in columns]
    assert_allclose(np.transpose(found), expected, rtol=1e-10)


@COUNTS_PRIOR_ONCE
@N_EXPERTS
def test_committee_machines_of_one_prior_are_the_published_ones(aggregation, M):
    experts, weights = some_experts(M, equal_priors=True), some_weights(M)
    found = AGGREGATIONS[aggregation](experts, weights)
    for i in range(9):
        w = weights[:, i] if aggregation == "rbcm" else [1.0] * M
        mean, variance = reference.rbcm(experts.mean[:, i], experts.variance[:, i], 1.3, w)
        assert found.mean[i] == pytest.approx(mean, rel=1e-10)
        assert found.variance[i] == pytest.approx(variance, rel=1e-10)


@EVERY_AGGREGATION
@EVERY_WEIGHTING
@N_EXPERTS
def test_aggregated_variance_is_positive_and_all_is_finite(aggregation, weighting, M):
    for experts in (some_experts(M), far_from_all_data(M, mean=2.0)):
        tiny = experts._replace(variance=1e-14 * experts.prior_variance)
        for case in (experts, tiny):
            found = AGGREGATIONS[aggregation](case, WEIGHTINGS[weighting](case))
            assert found.mean.shape == found.variance.shape == case.mean.shape[1:]
            assert np.all(np.isfinite(found.mean))
            assert np.all((found.variance > 0) & np.isfinite(found.variance))


@EVERY_AGGREGATION
def test_the_order_of_experts_and_the_other_rows_do_not_matter(aggregation):
    experts, weights, rule = some_experts(), some_weights(), AGGREGATIONS[aggregation]
    expected, order, columns = np.array(rule(experts, weights)), [2, 0, 3, 1], [5, 1]
    assert_allclose(rule(take(experts, order), weights[order]), expected, rtol=1e-12)
    found = rule(take(experts, columns=columns), weights[:, columns])
    assert_allclose(found, expected[:, columns], rtol=1e-12)


@EVERY_AGGREGATION
def test_one_expert_of_weight_one_is_the_answer(aggregation):
    experts = some_experts(1)
    found = AGGREGATIONS[aggregation](experts, np.ones((1, 9)))
    assert_allclose(found, (experts.mean[0], experts.variance[0]), rtol=1e-12)


@AVERAGES
def test_identical_experts_equal_that_expert(aggregation):
    experts = take(some_experts(), [1] * 4)
    found = AGGREGATIONS[aggregation](experts, some_weights())
    assert_allclose(found, (experts.mean[0], experts.variance[0]), rtol=1e-12)


@COUNTS_PRIOR_ONCE
@pytest.mark.parametrize("equal_priors", [True, False])
def test_committee_machines_are_never_less_sure_than_the_prior(aggregation, equal_priors):
    experts = some_experts(equal_priors=equal_priors)
    found = AGGREGATIONS[aggregation](experts, some_weights())
    assert np.all(found.variance <= experts.prior_variance.mean(axis=0))


@RETURNS_TO_PRIOR
@EVERY_WEIGHTING
@N_EXPERTS
def test_far_from_all_data_weights_are_uniform_and_the_variance_is_the_priors(
    aggregation, weighting, M
):
    experts = far_from_all_data(M)
    weights = WEIGHTINGS[weighting](experts)
    assert_allclose(normalise(weights), 1 / M, rtol=1e-12)
    found = AGGREGATIONS[aggregation](experts, weights)
    assert_allclose(found.variance, 1.3, rtol=1e-12)


# Metrics


def test_ence_equals_the_reference():
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=200), rng.uniform(0.2, 2.0, 200)
    y = rng.normal(mean, 1.5 * std)
    assert ence(y, mean, std, 10) == pytest.approx(reference.ence(y, mean, std, 10), rel=1e-12)
