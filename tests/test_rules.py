"""All rules together, on fitted experts."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

import reference
from manygp.aggregation import AGGREGATIONS
from manygp.calibration import CALIBRATIONS
from manygp.expert import fit_expert
from manygp.kernel import split_noise
from manygp.kernels import Linear, Matern, White
from manygp.rules import Rules
from manygp.weighting import WEIGHTINGS

EVERY_RULE = pytest.mark.parametrize(
    "names", list(itertools.product(WEIGHTINGS, CALIBRATIONS, AGGREGATIONS)), ids="-".join
)
ROWS = np.random.default_rng(3).uniform(size=(5, 2))
ROWS.flags.writeable = False


@pytest.fixture(scope="module")
def committee():
    """Three experts with two targets, their own hyperparameters and prior means around 4."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(30, 2))
    Y = 4 + np.column_stack([np.sin(5 * X[:, 0]), X[:, 1] ** 2]) + 0.1 * rng.normal(size=(30, 2))
    for array in (X, Y):
        array.flags.writeable = False
    experts = []
    for m, part in enumerate(np.array_split(np.arange(30), 3)):
        kernel = split_noise((1.0 + m) * Matern((0.4, 0.9 + m)) + White(0.05 + 0.1 * m))
        infinite = np.full(4, np.inf)
        alpha = np.zeros(30)
        experts.append(fit_expert(X, Y, alpha, part, kernel, infinite, True, np.empty((0, 4))))
    return experts


def test_entropy_information_and_gpoe_are_the_papers_model(committee):
    means, variance, noise = Rules.named("entropy", "information", "gpoe").distribution(
        committee, ROWS
    )
    for i, x in enumerate(ROWS):
        for t in range(2):
            local = []
            for m, expert in enumerate(committee):

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


@EVERY_RULE
@pytest.mark.parametrize("M", [1, 3])
def test_means_alone_are_the_means_of_the_distribution(committee, names, M):
    rules = Rules.named(*names)
    (means,) = rules.means(committee[:M], ROWS)
    assert_allclose(means, rules.distribution(committee[:M], ROWS)[0], rtol=1e-10)


@EVERY_RULE
def test_an_answer_does_not_depend_on_its_batch(committee, names):
    rules = Rules.named(*names)
    alone = [rules.distribution(committee, x[None]) for x in ROWS]
    for together, parts in zip(
        rules.distribution(committee, ROWS), zip(*alone, strict=True), strict=True
    ):
        assert_allclose(together, np.concatenate(parts, axis=-1), rtol=1e-10)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_far_from_all_data_the_mean_lies_between_the_experts_prior_means(committee, aggregation):
    means, _, _ = Rules.named("entropy", "none", aggregation).distribution(committee, ROWS + 1e3)
    prior = np.array([expert.mean for expert in committee]).T[:, :, None]
    assert np.all(means >= prior.min(axis=1) - 1e-9)
    assert np.all(means <= prior.max(axis=1) + 1e-9)


@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("aggregation", [a for a in AGGREGATIONS if a != "poe"])
def test_far_from_all_data_more_experts_are_not_surer(committee, calibration, aggregation):
    rules = Rules.named("entropy", calibration, aggregation)
    few, many = (rules.distribution([committee[0]] * n, ROWS + 1e3)[1] for n in (2, 20))
    assert_allclose(many, few, rtol=1e-8)


def test_a_row_of_zero_prior_variance_has_a_finite_answer():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(20, 2)), rng.normal(size=(20, 1))
    kernel = split_noise(Linear(0.0, "fixed") + White(0.1, "fixed"))  # certain of 0 at x = 0
    experts = [
        fit_expert(X, Y, np.zeros(20), part, kernel, np.empty(0), False, np.empty((0, 0)))
        for part in (np.arange(10), np.arange(10, 20))
    ]
    means, variance, noise = Rules.named("entropy", "information", "gpoe").distribution(
        experts, np.zeros((1, 2))
    )
    assert_allclose([means[0], variance, noise], [[0.0], [0.0], [0.1]], atol=1e-10)


@pytest.mark.parametrize("rule", [0, 1, 2])
def test_an_unknown_rule_is_refused_with_the_known_ones(rule):
    names = ["entropy", "information", "gpoe"]
    known, names[rule] = names[rule], "unheard-of"
    with pytest.raises(ValueError, match=f"{known}.*unheard-of"):
        Rules.named(*names)
