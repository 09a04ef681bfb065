"""Every registered rule, kernel and trend against every invariant of its kind.

A new entry of a registry is tested here without another line, except for its reference. What holds
for parts is in `committee/test_partition.py`, and for values of kernels in `kernels`.
"""

import math
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import reference
from data import read_only
from kernel_cases import CASES, rows
from manygp import ManyGPRegressor
from manygp.committee.committee import PARTITIONS
from manygp.committee.gradients import predict_slopes
from manygp.dual import SLOPES, value_and_slope, with_slopes
from manygp.gp import expert
from manygp.gp.expert import condition, predict_expert
from manygp.gp.marginal_likelihood import KernelFit, TrainingData
from manygp.gp.trend import TrendAt
from manygp.kernels import Linear, Matern, White, default_kernel
from manygp.kernels.base import Workspace, split_noise
from manygp.metrics import ence
from manygp.rules import (
    AGGREGATIONS,
    CALIBRATIONS,
    TEMPERED,
    WEIGHTINGS,
    ExpertPredictions,
    Gaussian,
    Information,
    Recalibration,
    VarianceCurve,
    needs_of,
    normalise,
)
from manygp.training.experts import ExecutionContext
from manygp.trend import registry
from models import NOBODY
from patching import with_numbers

# The reference's rules by name: a new entry of a registry needs one.
REFERENCE_WEIGHTS = {
    "entropy": reference.entropy_weights,
    "variance": reference.variance_weights,
    "uniform": reference.uniform_weights,
    "softmax": reference.softmax_weights,
    "tempered": reference.tempered_weights,
}
REFERENCE_RATIO = {"information": reference.information_ratio, "none": lambda v, noise: 1.0}
REFERENCE_AGGREGATION = {
    "gpoe": lambda mean, v, p, w, c, x: reference.gpoe(mean, v, w),
    "poe": lambda mean, v, p, w, c, x: reference.poe(mean, v, [1.0] * len(v)),
    "bcm": lambda mean, v, p, w, c, x: reference.rbcm_own_priors(mean, v, p, [1.0] * len(v), c),
    "rbcm": lambda mean, v, p, w, c, x: reference.rbcm_own_priors(mean, v, p, w, c),
    "barycentre": lambda mean, v, p, w, c, x: reference.barycentre(mean, v, w),
    "grbcm": lambda mean, v, p, w, c, x: reference.grbcm(mean, v, *posterior(COMMON, x)),
    "nested": lambda mean, v, p, w, c, x: reference.nested(
        signal, X, y, NOISE, PARTS[: len(v)], CENTRE, x
    ),
}
EVERY_WEIGHTING = pytest.mark.parametrize("weighting", WEIGHTINGS)
EVERY_CALIBRATION = pytest.mark.parametrize("calibration", CALIBRATIONS)
EVERY_AGGREGATION = pytest.mark.parametrize("aggregation", AGGREGATIONS)
# A product that counts the prior M times is surer than the prior: the flaw that the others mend.
RETURNS_TO_PRIOR = pytest.mark.parametrize("aggregation", [a for a in AGGREGATIONS if a != "poe"])
COUNTS_PRIOR_ONCE = pytest.mark.parametrize("aggregation", ["bcm", "rbcm"])
# The answer of many who say the same is what they say.
AVERAGES = pytest.mark.parametrize("aggregation", ["gpoe", "barycentre", "nested"])
MODELS_DEPENDENCE = pytest.mark.parametrize(
    "aggregation", [name for name, rule in AGGREGATIONS.items() if needs_of(rule).dependence]
)
N_EXPERTS = pytest.mark.parametrize("M", [1, 2, 7])


def record(mean, variance, prior, noise, prior_mean=None, covariance=None, communication=None):
    """ExpertPredictions whose arrays cannot be written to; without prior_mean it is 0."""
    prior_mean = np.zeros((len(mean), 1)) if prior_mean is None else prior_mean
    return ExpertPredictions(
        *map(read_only, (mean, variance, prior, noise, prior_mean)),
        None if covariance is None else read_only(covariance),
        None if communication is None else Gaussian(*map(read_only, communication)),
    )


def some_experts(M=4, N=9, seed=0, equal_priors=False):
    rng = np.random.default_rng(seed)
    prior = np.ones((M, N)) * (1.3 if equal_priors else rng.uniform(0.5, 2.0, size=(M, 1)))
    known = rng.uniform(0.001, 0.999, size=(M, N))
    noise = rng.uniform(0.01, 0.5, size=(M, 1))
    prior_mean = np.zeros((M, 1)) if equal_priors else rng.normal(size=(M, 1))
    return record(rng.normal(size=(M, N)), known * prior, prior, noise, prior_mean)


# Seven Gaussian processes of one kernel, each on five rows of its own and on four common ones:
# what they have in common cannot be made up.
_rng = np.random.default_rng(2)
X, ROWS = read_only(_rng.uniform(size=(39, 2))), read_only(_rng.uniform(size=(9, 2)))
y = read_only(np.sin(5 * X[:, 0]) + X[:, 1] + 0.1 * _rng.normal(size=39))
NOISE, CENTRE = read_only(np.full(39, 0.05)), 0.7
COMMON = np.arange(4)
PARTS = [np.append(COMMON, np.arange(4 + 5 * m, 9 + 5 * m)) for m in range(7)]


def signal(x, z):
    return 1.3 * reference.matern(x, z, 2.5, (0.4, 0.7))


def posterior(rows, x):
    return reference.posterior(signal, X[rows], y[rows], NOISE[rows], CENTRE, x)


@cache
def related_experts(M=4):
    """What the first M of them say about ROWS, with their covariances and the common expert."""
    K = reference.covariance(signal, X, NOISE)
    known = np.array([[posterior(part, x) for x in ROWS] for part in PARTS[:M]])
    C = np.array([[reference.smoother(signal, X, NOISE, p, x) for x in ROWS] for p in PARTS[:M]])
    covariance = np.einsum("anj,jk,bnk->abn", C, K, C)
    common = np.transpose([posterior(COMMON, x) for x in ROWS])
    prior, noise, centre = np.full((M, 9), 1.3), [[0.05]] * M, np.full((M, 1), CENTRE)
    return record(known[..., 0], known[..., 1], prior, noise, centre, covariance, common)


def experts_for(aggregation, M=4):
    """A record that holds what the aggregation needs, and otherwise whatever can be."""
    dependence = needs_of(AGGREGATIONS[aggregation]).dependence
    return related_experts(M) if dependence else some_experts(M)


def far_from_all_data(M=4, N=3, mean=0.0):
    means, prior = np.full((M, N), mean), np.full((M, N), 1.3)
    centre, nothing = np.full((M, 1), mean), np.zeros((M, M, N))
    return record(means, prior, prior, [[0.1]] * M, centre, nothing, (means[0], prior[0]))


def all_but_certain(experts):
    """The same experts with next to no variance; their means then covary as f does."""
    prior = experts.prior_variance
    return experts._replace(
        variance=1e-14 * prior, covariance=np.sqrt(prior * prior[:, None]) * (1 - 1e-14)
    )


def some_weights(M=4, N=9, seed=1):
    weights = np.random.default_rng(seed).uniform(0.1, 2.0, size=(M, N))
    weights.flags.writeable = False
    return weights


def take(experts, rows=slice(None), columns=slice(None)):
    """The record of some of the experts and of some of the rows that they were asked about."""
    wide = (array[rows][:, columns] for array in experts[:3])
    narrow = (array[rows] for array in experts[3:5])
    covariance, common = experts.covariance, experts.communication
    return record(
        *wide,
        *narrow,
        None if covariance is None else covariance[rows][:, rows][..., columns],
        None if common is None else [array[columns] for array in common],
    )


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


@pytest.mark.parametrize("weighting", TEMPERED)
def test_weights_of_a_high_temperature_are_finite_and_those_of_the_surest(weighting):
    experts = some_experts(equal_priors=True)
    weights = normalise(TEMPERED[weighting][0](1e6)(experts))
    assert_allclose(weights.sum(axis=0), 1)
    assert_allclose(weights.max(axis=0), 1)
    assert_array_equal(weights.argmax(axis=0), experts.variance.argmin(axis=0))


@pytest.mark.parametrize("weighting", TEMPERED)
def test_weights_of_temperature_zero_are_uniform(weighting):
    assert_allclose(normalise(TEMPERED[weighting][0](0.0)(some_experts())), 1 / 4, rtol=1e-12)


@pytest.mark.parametrize("weighting", TEMPERED)
def test_temperatures_to_choose_from_rise_and_hold_the_default(weighting):
    rule, temperatures = TEMPERED[weighting]
    assert list(temperatures) == sorted(set(temperatures))
    assert rule().temperature in temperatures
    assert WEIGHTINGS[weighting] == rule()


def test_tempered_weights_have_no_unit():
    experts = some_experts()
    other = experts._replace(
        variance=1e6 * experts.variance, prior_variance=1e6 * experts.prior_variance
    )
    rule = WEIGHTINGS["tempered"]
    assert_allclose(rule(other), rule(experts), rtol=1e-12)


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


def test_recalibration_scales_variances_and_spreads_them_within_what_it_has_learned():
    variance = read_only(np.geomspace(1e-3, 1e3, 13))
    assert_array_equal(Recalibration()(variance), np.ones(13))
    assert_array_equal(VarianceCurve()(variance), np.ones(13))
    assert_array_equal(Recalibration(scale=2.5)(variance), np.full(13, 2.5))
    factor = Recalibration(2.5, 1.5, centre=0.3, low=0.01, high=10.0)(variance)
    top = 10.0 * 2.5 * math.sqrt(10.0 / 0.3)  # what the largest variance seen became
    expected = [
        2.5 * math.sqrt(max(v, 0.01) / 0.3) if v <= 10.0 else (top + v - 10.0) / v
        for v in variance
    ]
    assert_allclose(factor, expected, rtol=1e-12)


# Aggregation


@EVERY_AGGREGATION
@N_EXPERTS
def test_aggregation_equals_the_reference(aggregation, M):
    experts, weights = experts_for(aggregation, M), some_weights(M)
    found = AGGREGATIONS[aggregation](experts, weights)
    centres = experts.prior_mean[:, 0]
    columns = zip(*(a.T for a in (*experts[:3], weights)), ROWS, strict=True)
    expected = [REFERENCE_AGGREGATION[aggregation](*c, centres, x) for *c, x in columns]
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
    for experts in (experts_for(aggregation, M), far_from_all_data(M, mean=2.0)):
        for case in (experts, all_but_certain(experts)):
            found = AGGREGATIONS[aggregation](case, WEIGHTINGS[weighting](case))
            assert found.mean.shape == found.variance.shape == case.mean.shape[1:]
            assert np.all(np.isfinite(found.mean))
            assert np.all((found.variance > 0) & np.isfinite(found.variance))


@EVERY_AGGREGATION
def test_the_order_of_experts_and_the_other_rows_do_not_matter(aggregation):
    experts, weights, rule = experts_for(aggregation), some_weights(), AGGREGATIONS[aggregation]
    expected, order, columns = np.array(rule(experts, weights)), [2, 0, 3, 1], [5, 1]
    assert_allclose(rule(take(experts, order), weights[order]), expected, rtol=1e-12)
    found = rule(take(experts, columns=columns), weights[:, columns])
    assert_allclose(found, expected[:, columns], rtol=1e-12)


@EVERY_AGGREGATION
def test_one_expert_of_weight_one_is_the_answer(aggregation):
    experts = experts_for(aggregation, 1)
    found = AGGREGATIONS[aggregation](experts, np.ones((1, 9)))
    assert_allclose(found, (experts.mean[0], experts.variance[0]), rtol=1e-12)


@AVERAGES
def test_identical_experts_equal_that_expert(aggregation):
    experts = take(experts_for(aggregation), [1] * 4)
    found = AGGREGATIONS[aggregation](experts, some_weights())
    assert_allclose(found, (experts.mean[0], experts.variance[0]), rtol=1e-12)


@COUNTS_PRIOR_ONCE
@pytest.mark.parametrize("equal_priors", [True, False])
def test_committee_machines_are_never_less_sure_than_the_prior(aggregation, equal_priors):
    experts = some_experts(equal_priors=equal_priors)
    found = AGGREGATIONS[aggregation](experts, some_weights())
    assert np.all(found.variance <= experts.prior_variance.mean(axis=0))


def test_grbcm_is_never_less_sure_than_the_expert_whose_rows_all_know():
    experts = related_experts(7)
    found = AGGREGATIONS["grbcm"](experts, some_weights(7))
    assert np.all(found.variance < experts.communication.variance)
    only_common = experts._replace(
        mean=np.tile(experts.communication.mean, (7, 1)),
        variance=np.tile(experts.communication.variance, (7, 1)),
    )
    found = AGGREGATIONS["grbcm"](only_common, some_weights(7))  # counted once, not eight times
    assert_allclose(found, experts.communication, rtol=1e-12)


def test_grbcm_of_experts_that_know_the_same_does_not_depend_on_rounding():
    experts = take(related_experts(7), [1, 1, 2])
    expected = np.array(AGGREGATIONS["grbcm"](experts, some_weights(3)))
    for nudged in range(3):
        factor = np.ones((3, 1))
        factor[nudged] += 1e-13
        other = experts._replace(variance=factor * experts.variance)
        assert_allclose(AGGREGATIONS["grbcm"](other, some_weights(3)), expected, rtol=1e-6)


def test_nested_is_never_less_sure_than_any_expert_and_never_surer_than_all_rows_together():
    experts = related_experts(7)
    found = AGGREGATIONS["nested"](experts, some_weights(7))
    together = [posterior(np.arange(len(X)), x)[1] for x in ROWS]
    assert np.all(found.variance <= experts.variance.min(axis=0))
    assert np.all(found.variance >= together)


@MODELS_DEPENDENCE
def test_weights_have_no_part_where_dependence_is_modelled(aggregation):
    experts, rule = related_experts(), AGGREGATIONS[aggregation]
    assert_array_equal(rule(experts, some_weights()), rule(experts, some_weights(seed=2)))


@MODELS_DEPENDENCE
def test_a_record_without_what_the_experts_have_in_common_is_refused(aggregation):
    with pytest.raises(ValueError, match=f"aggregation='{aggregation}' needs"):
        AGGREGATIONS[aggregation](some_experts(), some_weights())


@RETURNS_TO_PRIOR
@EVERY_WEIGHTING
@N_EXPERTS
def test_far_from_all_data_weights_are_uniform_and_the_answer_is_the_prior(
    aggregation, weighting, M
):
    experts = far_from_all_data(M, mean=2.0)
    weights = WEIGHTINGS[weighting](experts)
    assert_allclose(normalise(weights), 1 / M, rtol=1e-12)
    found = AGGREGATIONS[aggregation](experts, weights)
    assert_allclose(found.variance, 1.3, rtol=1e-12)
    assert_allclose(found.mean, 2.0, rtol=1e-12)


# Partitions


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("n_parts", [1, 2, 8])
def test_a_part_holds_rows_that_no_other_has_and_together_they_hold_all(partition, n_parts):
    parts = PARTITIONS[partition](X, n_parts, np.random.default_rng(0))
    assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(X)))
    assert min(map(len, parts)) > 0


# Values beside their slopes


def by_differences(function, x, h=1e-5):
    """Derivatives of a function of x (d,), by symmetric differences: (..., d)."""
    scale = h * np.maximum(np.abs(x), 1.0)
    pairs = [(function(x + step), function(x - step)) for step in np.diag(scale)]
    slopes = [(after - before) / (2 * s) for (after, before), s in zip(pairs, scale, strict=True)]
    return np.stack(slopes, axis=-1)


@pytest.mark.parametrize("function", SLOPES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("x", [[0.3, 0.8], [0.9, 0.2]])
def test_slopes_of_elementary_functions_equal_differences(function, x):
    found = function(*with_slopes(np.array([x]))[0][: function.nin])
    expected = by_differences(lambda z: function(*z[: function.nin]), np.array(x))
    assert_allclose(found.slope, expected, rtol=1e-8, atol=1e-10)


SIGNALS = [name for name, case in CASES.items() if not isinstance(case.kernel, White)]
EVERY_SIGNAL = pytest.mark.parametrize("name", SIGNALS)


@EVERY_SIGNAL
def test_slopes_of_kernels_equal_differences(name):
    kernel, d = CASES[name].kernel, CASES[name].n_columns
    rng = np.random.default_rng(7)
    Z, X, K_bar = rows(9, d), rng.normal(size=(3, d)), rng.normal(size=(2, 3, 9))
    found, of_diagonal = kernel.slopes(X, Z, K_bar), kernel.diag_slope(X)
    assert_allclose(kernel.slopes(X, Z, K_bar[0]), found[0], rtol=1e-12)  # one sum, or several
    for a, x in enumerate(X):
        expected = by_differences(lambda z: kernel(z[None], Z)[0], x)
        assert_allclose(found[:, a], K_bar[:, a] @ expected, rtol=1e-6, atol=1e-7)
        expected = by_differences(lambda z: kernel.diag(z[None])[0], x)
        assert_allclose(of_diagonal[a], expected, rtol=1e-6, atol=1e-8)


@EVERY_SIGNAL
@pytest.mark.parametrize("constant_mean", [True, False])
def test_an_expert_has_the_slopes_of_what_it_predicts(name, constant_mean):
    case = CASES[name]
    kernel, d = split_noise(case.kernel + White(0.3)), case.n_columns
    Z = rows(9, d)
    data = TrainingData(Z, np.sin(3 * Z[:, :1]) + 0.4, np.zeros(9), constant_mean)
    one = condition(data, np.arange(9), NOBODY, KernelFit(kernel), exact=True)

    def said(x):
        found = predict_expert(one, x[None], Workspace(), with_variance=True)
        return np.array([found.mean[0, 0], found.variance[0], found.prior_variance[0]])

    X = np.random.default_rng(7).normal(size=(2, d))
    mean, variance, prior, *_ = found = predict_slopes(one, X, None)
    for a, x in enumerate(X):
        assert_allclose([mean.value[a], variance.value[a], prior.value[a]], said(x), rtol=1e-10)
        slopes = [mean.slope[a], variance.slope[a], prior.slope[a]]
        assert_allclose(slopes, by_differences(said, x), rtol=1e-5, atol=1e-6)
    assert_array_equal(found.prior_mean.slope, np.zeros((2, d)))


# Trends: those of every family, fitted to a line, a wave and a product of two columns.
_rng = np.random.default_rng(3)
INPUTS = read_only(_rng.uniform(0, 10, (300, 2)) * [1.0, 30.0])
WAVES = 60 * np.sin(INPUTS[:, 0]) * np.cos(INPUTS[:, 1] / 40) + 0.3 * INPUTS[:, 1]
TARGETS = read_only(WAVES + 12 * _rng.normal(size=300))
# Inside, near the edge, outside and far from all data.
QUERIES = read_only([[4.3, 120.0], [0.4, 7.0], [11.0, 310.0], [16.0, 500.0]])
TRENDS = [name for name in registry.trend_names() if name not in registry.BUILT_IN]
EVERY_TREND = pytest.mark.parametrize("trend", TRENDS)


def trend_data():
    scaled = (TARGETS - TARGETS.mean()) / TARGETS.std()
    return TrainingData(INPUTS / INPUTS.max(axis=0), scaled[:, None], np.zeros(300), True)


@cache
def fitted_trends(name):
    """All trends that a name stands for, under three experts: a list of `Trend`."""
    data, (family,) = trend_data(), registry.families(name)
    kernel = split_noise(default_kernel(2))
    parts = np.array_split(np.arange(300), 3)
    factories = family.factories(name, data, 0, ExecutionContext(1))
    return [factory.fit(None).on(data, parts, kernel, 1) for factory in factories]


@EVERY_TREND
def test_a_trend_says_what_it_must_about_rows(trend):
    Z = QUERIES / INPUTS.max(axis=0)
    for one in fitted_trends(trend):
        at = one.model.at(Z)
        assert at.mean.shape == (4, 1)
        assert at.spread.shape == at.beyond.shape == (4,)
        assert np.all(at.spread >= 0)
        assert np.all(at.whole_variance() >= at.spread)
        assert np.all(at.beyond[:2] == 0)
        assert 0 < at.beyond[2] < at.beyond[3]
        alone = TrendAt.joined([one.model.at(z[None]) for z in Z])
        for together, single in zip(at, alone, strict=True):
            if together is not None:
                assert_allclose(single, together, rtol=1e-12, atol=1e-12)


@EVERY_TREND
def test_a_trend_takes_a_part_of_the_variance_and_says_by_which_columns(trend):
    data = trend_data()
    for one in fitted_trends(trend):
        assert np.mean((data.residuals - one.fitted) ** 2) < 0.9
        assert one.model.explained > 0.1
        assert one.model.importance.shape == (2,)
        assert np.all(one.model.importance >= 0)
        assert one.model.importance.sum() == pytest.approx(1)


@EVERY_TREND
def test_a_trend_and_its_family_know_each_other_and_the_cost(trend):
    (family,) = registry.families(trend)

    class Speed:
        gain = 1.0

        @staticmethod
        def evaluation(n):
            return 1e-9 * n**3

    seconds = [family.seconds(trend, (n, 2), Speed) for n in (1000, 100_000)]
    for one in fitted_trends(trend):
        name = one.model.name
        assert registry.family_of(name) is family
        assert isinstance(one.model, family.model)
        assert 0 < seconds[0][name] < seconds[1][name] < np.inf


@EVERY_TREND
def test_a_trend_of_a_file_says_the_same(trend):
    Z = QUERIES / INPUTS.max(axis=0)
    for one in fitted_trends(trend):
        described, arrays = one.model.to_file()
        assert all(name.startswith("trend_") for name in arrays)
        family = registry.family_of(described["name"])
        again = family.model.from_file(described, arrays, (2, 1))
        for found, expected in zip(again.at(Z), one.model.at(Z), strict=True):
            assert_array_equal(found, expected)
        assert again.explained == one.model.explained
        assert_array_equal(again.importance, one.model.importance)


def numbers_of(at):
    """All that a trend says about one row: (3 + r,)."""
    parts = [at.mean[0], at.spread, at.beyond, *([] if at.basis is None else [at.basis[0]])]
    return np.concatenate([np.atleast_1d(one) for one in parts])


def slopes_of(at):
    """The derivatives of the same; what does not depend on the row is a plain array."""
    values = [at.mean[0], at.spread, at.beyond, *([] if at.basis is None else [at.basis[0]])]
    pairs = [value_and_slope(one) for one in values]
    return np.concatenate([np.broadcast_to(slope, (*value.shape, 2)) for value, slope in pairs])


# Trends that have steps.
TREES = ("boosted", "forest")


@EVERY_TREND
def test_a_trend_has_the_slopes_of_what_it_says_or_says_that_it_has_none(trend):
    for one in fitted_trends(trend):
        for variant in (one.model, one.model.without_doubt()):
            for x in QUERIES / INPUTS.max(axis=0):
                if trend in TREES:  # trees have steps
                    with pytest.raises(ValueError, match=f"'{trend}' have no gradients"):
                        variant.at(with_slopes(x[None]))
                    continue
                at = variant.at(with_slopes(x[None]))
                expected = by_differences(lambda z, v=variant: numbers_of(v.at(z[None])), x)
                size = np.abs(expected).max() + 1
                assert_allclose(slopes_of(at), expected, rtol=1e-5, atol=1e-6 * size)


# Gradients of whole models: each rule and trend in turn.
PLAIN = {"trend": "none", "calibration": "none", "weighting": "entropy"}
LONG = (2.0, 60.0)
MODELS = {
    "default": {},
    "one expert": {"points_per_expert": 1000},
    "own kernel": {"points_per_expert": 1000, "kernel": 50.0 * Matern(LONG) + White()},
    "slope": {
        "points_per_expert": 1000,
        "kernel": Linear(3.0) * Matern(LONG, nu=1.5) * 0.01 + 2.0 * (Matern(LONG) + White()),
    },
    "all experts": {**PLAIN, "routing": None},
    "independent": {**PLAIN, "hyperparameters": "independent"},
    "splines under one expert": {"trend": "additive", "points_per_expert": 1000},
    "splines and rbcm": {
        "trend": "additive", "calibration": "information", "aggregation": "rbcm",
    },
    **{f"trend {name}": {"trend": name} for name in registry.trend_names() if name not in TREES},
    **{f"weighting {name}": {**PLAIN, "weighting": name} for name in WEIGHTINGS},
    **{f"calibration {name}": {**PLAIN, "calibration": name} for name in CALIBRATIONS},
    **{
        f"aggregation {name}": {**PLAIN, "aggregation": name}
        for name, rule in AGGREGATIONS.items()
        if not needs_of(rule).covariances
    },
}  # fmt: skip


@cache
def fitted_model(name):
    """In double precision: differences would show the rounding."""
    settings = {"points_per_expert": 40, "random_state": 0, **MODELS[name]}
    with pytest.MonkeyPatch.context() as patch:
        with_numbers(patch, expert, "PRECISION", single_rows=10**9)
        return ManyGPRegressor(**settings).fit(INPUTS[:150], TARGETS[:150])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("latent", [False, True], ids=["with noise", "latent"])
@pytest.mark.parametrize("name", MODELS)
def test_slopes_of_models_equal_differences(name, latent):
    fitted = fitted_model(name)
    said = fitted.predict(QUERIES, return_std=True, latent=latent)
    mean, std, *slopes = fitted.predict_slopes(QUERIES, latent=latent)
    assert_allclose([mean, std], said, rtol=1e-8)
    for place, x in enumerate(QUERIES):  # inside, at the edge, outside, far

        def answers(z):
            return np.ravel(fitted.predict(z[None], return_std=True, latent=latent))

        for found, expected in zip(slopes, by_differences(answers, x, h=3e-4), strict=True):
            atol = 5e-5 * np.abs(expected).max() + 1e-8
            assert_allclose(found[place], expected, rtol=5e-4, atol=atol)


# Metrics


def test_ence_equals_the_reference():
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=200), rng.uniform(0.2, 2.0, 200)
    y = rng.normal(mean, 1.5 * std)
    assert ence(y, mean, std, 10) == pytest.approx(reference.ence(y, mean, std, 10), rel=1e-12)
