"""All rules together, on fitted experts."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

import reference
from data import read_only
from manygp.committee.committee import Committee, Layout, Query
from manygp.gp.expert import Experts, condition
from manygp.gp.marginal_likelihood import KernelFit, TrainingData
from manygp.kernels import Linear, Matern, White
from manygp.kernels.base import split_noise
from manygp.rules import (
    AGGREGATIONS,
    CALIBRATIONS,
    WEIGHTINGS,
    PredictionRules,
    Recalibration,
    needs_of,
    only_means,
)
from models import NOBODY, fit_expert

RULES = list(itertools.product(WEIGHTINGS, CALIBRATIONS, AGGREGATIONS))
EVERY_RULE = pytest.mark.parametrize("names", RULES, ids="-".join)
ROWS = read_only(np.random.default_rng(3).uniform(size=(5, 2)))
COMMON = np.arange(24, 30)
rng = np.random.default_rng(0)
X = read_only(rng.uniform(size=(30, 2)))
SIGNALS = np.column_stack([np.sin(5 * X[:, 0]), X[:, 1] ** 2])
Y = read_only(4 + SIGNALS + 0.1 * rng.normal(size=(30, 2)))


def seated(experts, communication=None):
    """A committee of them, whose own rows are the first ones."""
    parts = [expert.indices for expert in experts]
    layout = Layout.of(X[: 1 + max(part.max() for part in parts)], parts, np.ones(2))
    data = TrainingData(X, Y, np.zeros(len(X)), constant_mean=False)
    return Committee(Experts.made(data, experts), layout, communication)


@pytest.fixture(scope="module")
def different():
    """Three experts with two targets, their own hyperparameters and prior means around 4."""
    experts = []
    for m, part in enumerate(np.array_split(np.arange(30), 3)):
        kernel = split_noise((1.0 + m) * Matern((0.4, 0.9 + m)) + White(0.05 + 0.1 * m))
        infinite = np.full(4, np.inf)
        alpha = np.zeros(30)
        experts.append(fit_expert(X, Y, alpha, part, kernel, infinite, True))
    return seated(experts)


def shared(x, z):
    return 2.0 * reference.matern(x, z, 2.5, (0.4, 0.9))


@pytest.fixture(scope="module")
def related():
    """Three experts of one kernel and no prior mean, who all know six common rows as well."""
    data = TrainingData(X, Y, np.zeros(30), False)
    kernel = split_noise(2.0 * Matern((0.4, 0.9)) + White(0.05))
    parts = np.array_split(np.arange(24), 3)
    experts = [condition(data, part, COMMON, KernelFit(kernel)) for part in parts]
    return seated(experts, condition(data, COMMON, NOBODY, KernelFit(kernel)))


@pytest.fixture
def committee_for(different, related):
    """From an aggregation to experts that it is for."""
    return lambda name: related if needs_of(AGGREGATIONS[name]).dependence else different


def distribution(rules, committee, rows=ROWS):
    query = Query(rows, covariances=rules.needs.covariances)
    return committee.map_blocks(rules.combine, query, None)


def first(committee, M):
    return seated(committee.experts[:M], committee.communication)


def test_entropy_information_and_gpoe_are_the_papers_model(different):
    means, variance, noise = distribution(
        PredictionRules.named("entropy", "information", "gpoe"), different
    )
    for i, x in enumerate(ROWS):
        for t in range(2):
            local = []
            for m, expert in enumerate(different.experts):

                def k(a, b, m=m):
                    return (1.0 + m) * reference.matern(a, b, 2.5, (0.4, 0.9 + m))

                arguments = (k, expert.X, expert.Y[:, t], np.full(10, 0.05 + 0.1 * m))
                c = reference.constant_mean(*arguments)
                local.append((*reference.posterior(*arguments, c, x), k(x, x), 0.05 + 0.1 * m))
            mean, v, p, noises = zip(*local, strict=True)
            w = reference.entropy_weights(v, p)
            calibrated = [
                vm * reference.information_ratio(vm, s) for vm, s in zip(v, noises, strict=True)
            ]
            expected = reference.gpoe(mean, calibrated, w)
            assert (means[t, i], variance[i]) == pytest.approx(expected, rel=1e-8)
        average = sum(wm * s for wm, s in zip(w, noises, strict=True)) / sum(w)
        assert noise[i] == pytest.approx(average, rel=1e-8)


@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("aggregation", ["grbcm", "nested"])
def test_what_models_dependence_is_the_published_model_and_is_not_calibrated_twice(
    related, aggregation, calibration
):
    means, variance, noise = distribution(
        PredictionRules.named("tempered", calibration, aggregation), related
    )
    noises = np.full(30, 0.05)
    parts = [expert.rows for expert in related.experts]

    def posterior(rows, x):
        return reference.posterior(shared, X[rows], Y[rows, t], noises[rows], 0.0, x)

    for (i, x), t in itertools.product(enumerate(ROWS), range(2)):
        if aggregation == "grbcm":
            mean, v = zip(*(posterior(rows, x) for rows in parts), strict=True)
            expected = reference.grbcm(mean, v, *posterior(COMMON, x))
        else:
            expected = reference.nested(shared, X, Y[:, t], noises, parts, 0.0, x)
        assert (means[t, i], variance[i]) == pytest.approx(expected, rel=1e-8)
        assert noise[i] == pytest.approx(0.05, rel=1e-12)


@EVERY_RULE
def test_the_mean_of_a_single_expert_needs_no_variance(committee_for, names):
    rules, committee = PredictionRules.named(*names), first(committee_for(names[2]), 1)
    (means,) = committee.map_blocks(only_means, Query(ROWS, variances=False), None)
    assert_allclose(means, distribution(rules, committee)[0], rtol=1e-10)


def test_a_single_expert_calls_no_rule(different):
    def refuse(*_):
        raise AssertionError("a rule was called")

    rules = PredictionRules(refuse, refuse, refuse)
    means, variance, noise = distribution(rules, first(different, 1))
    assert np.all(np.isfinite(means))
    assert np.all(variance > 0)
    assert_allclose(noise, different.experts[0].noise_variance)


@EVERY_RULE
def test_an_answer_does_not_depend_on_its_batch(committee_for, names):
    rules, committee = PredictionRules.named(*names), committee_for(names[2])
    alone = [distribution(rules, committee, x[None]) for x in ROWS]
    for together, parts in zip(
        distribution(rules, committee), zip(*alone, strict=True), strict=True
    ):
        assert_allclose(together, np.concatenate(parts, axis=-1), rtol=1e-10)


@EVERY_RULE
def test_a_recalibration_multiplies_variance_and_noise_and_leaves_the_means(committee_for, names):
    rules, committee = PredictionRules.named(*names), committee_for(names[2])
    factor = Recalibration(1.7, 0.6, 0.4, 0.1, 2.0)
    means, variance, noise = distribution(rules, committee)
    got = distribution(rules._replace(recalibration=factor), committee)
    total = variance + noise
    expected = means, factor(total) * variance, factor(total) * noise
    for one, other in zip(got, expected, strict=True):
        assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_far_from_all_data_the_mean_lies_between_the_experts_prior_means(
    committee_for, aggregation
):
    committee = committee_for(aggregation)
    rules = PredictionRules.named("entropy", "none", aggregation)
    means, _, _ = distribution(rules, committee, ROWS + 1e3)
    prior = np.array([expert.mean for expert in committee.experts]).T[:, :, None]
    assert np.all(means >= prior.min(axis=1) - 1e-9)
    assert np.all(means <= prior.max(axis=1) + 1e-9)


@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("aggregation", [a for a in AGGREGATIONS if a != "poe"])
def test_far_from_all_data_more_experts_are_not_surer(committee_for, calibration, aggregation):
    rules, one = (
        PredictionRules.named("entropy", calibration, aggregation),
        committee_for(aggregation),
    )
    few, many = (
        distribution(rules, seated([one.experts[0]] * n, one.communication), ROWS + 1e3)[1]
        for n in (2, 20)
    )
    assert_allclose(many, few, rtol=1e-8)


def test_a_row_of_zero_prior_variance_has_a_finite_answer():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(20, 2)), rng.normal(size=(20, 1))
    kernel = split_noise(Linear(0.0, "fixed") + White(0.1, "fixed"))  # certain of 0 at x = 0
    experts = [
        fit_expert(X, Y, np.zeros(20), part, kernel, np.empty(0), False)
        for part in (np.arange(10), np.arange(10, 20))
    ]
    rules = PredictionRules.named("entropy", "information", "gpoe")
    means, variance, noise = distribution(rules, seated(experts), np.zeros((1, 2)))
    assert_allclose([means[0], variance, noise], [[0.0], [0.0], [0.1]], atol=1e-10)


@pytest.mark.parametrize("rule", [0, 1, 2])
def test_an_unknown_rule_is_refused_with_the_known_ones(rule):
    names = ["entropy", "information", "gpoe"]
    known, names[rule] = names[rule], "unheard-of"
    with pytest.raises(ValueError, match=f"{known}.*unheard-of"):
        PredictionRules.named(*names)
