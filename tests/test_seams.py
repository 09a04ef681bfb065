"""No seams: the answer is continuous where the set of queried experts changes."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import manygp
from benchmarks.seams import expert_borders, seams
from manygp import ManyGPRegressor, answers
from manygp.paths import predict_slopes
from manygp.rules import AGGREGATIONS, WEIGHTINGS

OLD_FOLDER = Path(__file__).parent / "storage" / "version_0_1"
# Steps that are none, in units of the std.
NO_STEP = 1e-6
LINES = 20
# Columns, targets, rows and trend of each random model.
SHAPES = {
    "1-d": (1, 1, 240, "constant"),
    "2-d, two targets": (2, 2, 300, "linear"),
    "3-d": (3, 1, 400, "additive"),
    "5-d": (5, 1, 400, "none"),
    "8-d, three targets": (8, 3, 400, "constant"),
}


def rows_of(shape):
    """Rows (n, d) and targets (n,) or (n, t) whose noise grows along the last column."""
    d, n_targets, n, _ = SHAPES[shape]
    rng = np.random.default_rng(d)
    X = rng.random((n, d))
    wave = np.sin(4 * X[:, :1] + np.arange(n_targets)) + X.mean(axis=1, keepdims=True)
    Y = wave + (0.02 + 0.3 * X[:, -1:]) * rng.normal(size=(n, n_targets))
    return X, Y[:, 0] if n_targets == 1 else Y


@pytest.fixture(scope="module")
def fitted():
    """A function of a shape: a model with a correction and local noise, fitted once."""
    found = {}

    def fitted(shape):
        if shape not in found:
            trend = SHAPES[shape][3]
            model = ManyGPRegressor(
                points_per_expert=25, trend=trend, noise="local", random_state=0
            )
            found[shape] = model.fit(*rows_of(shape))
        return copy.copy(found[shape])

    return fitted


def lines_of(shape):
    """Starts and ends (L, d) of lines between training rows."""
    X, _ = rows_of(shape)
    start, end = np.random.default_rng(7).integers(len(X), size=(2, LINES))
    return X[start], X[end]


def with_rules(model, **changes):
    """The FittedModel, as if `fit` had chosen other rules: correction and noise stay."""
    rules = model.model_.rules._replace(**changes)
    return replace(model.model_, rules=rules, chosen=rules)


def assert_no_seams(found):
    assert found.n_borders > 0
    assert found.mean_step < NO_STEP
    assert found.std_step < NO_STEP


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("shape", SHAPES)
def test_mean_and_std_have_no_steps_with_correction_and_local_noise(shape, weighting, fitted):
    model = fitted(shape)
    assert model.model_.noise is not None
    for k in range(2, 9):
        chosen = with_rules(model, weighting=WEIGHTINGS[weighting], nearest=k)
        assert_no_seams(seams(chosen, *lines_of(shape)))


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("shape", SHAPES)
def test_mean_and_std_have_no_steps_whatever_routing_is_set(shape, weighting, fitted):
    model = fitted(shape).set_params(calibration="information", temperature=4.0)
    for k in range(1, 9):
        model.set_params(weighting=weighting, routing=k)
        assert model.model_.rules.nearest == max(
            k, 2
        )  # one expert alone has no partner at its border
        assert_no_seams(seams(model.model_, *lines_of(shape)))


@pytest.mark.parametrize("routing", [1, 0.3])
def test_a_routing_that_fit_is_given_has_no_steps(routing):
    X, y = rows_of("1-d")
    model = ManyGPRegressor(
        points_per_expert=25, routing=routing, trend="constant", random_state=0
    ).fit(X, y)
    assert_no_seams(seams(model.model_, *lines_of("1-d")))


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_every_aggregation_lets_experts_fade_out(aggregation):
    X, y = rows_of("3-d")
    model = ManyGPRegressor(
        points_per_expert=25,
        aggregation=aggregation,
        hyperparameters="shared",
        overlap=1,
        routing=3,
        trend="constant",
        random_state=0,
    ).fit(X, y)
    assert_no_seams(seams(model.model_, *lines_of("3-d")))


@pytest.mark.parametrize("shape", SHAPES)
def test_without_tapers_there_are_steps(shape, fitted):
    hard = with_rules(fitted(shape), nearest=2, tapered=False)
    found = seams(hard, *lines_of(shape))
    assert found.mean_step > 1e3 * NO_STEP
    assert found.std_step > 1e3 * NO_STEP


@pytest.mark.parametrize("shape", ["1-d", "3-d", "8-d, three targets"])
def test_intervals_and_noise_have_no_steps(shape, fitted):
    model = with_rules(fitted(shape), nearest=3)
    near, far = expert_borders(model, *lines_of(shape))
    std = answers.predict(model, near)[1]
    for answer in (
        lambda X: answers.noise_std(model, X),
        lambda X: answers.predict(model, X, latent=True)[1],
        lambda X: answers.predict_interval(model, X, 0.9)[0],
        lambda X: answers.predict_dist(model, X).ppf(0.99),
    ):
        assert np.max(np.abs(answer(near) - answer(far)) / std) < NO_STEP


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("shape", ["1-d", "2-d, two targets", "5-d"])
def test_joint_covariances_have_the_same_weights(shape, k, fitted):
    model = with_rules(fitted(shape), nearest=k)
    near, far = (side[:20] for side in expert_borders(model, *lines_of(shape)))
    b = len(near)
    others = rows_of(shape)[0][:30]
    mean, cov = answers.predict_joint(model, np.concatenate([near, far, others]), latent=True)
    std = np.sqrt(np.einsum("ii...->i...", cov))
    correlation = cov / (std[:, None] * std[None])
    # Both sides of a border vary with any other row alike, and as one.
    assert_allclose(correlation[:b, 2 * b :], correlation[b : 2 * b, 2 * b :], atol=NO_STEP)
    across = correlation[np.arange(b), b + np.arange(b)]
    assert_allclose(across, 1, atol=NO_STEP)
    assert_allclose(mean[:b], mean[b : 2 * b], atol=NO_STEP * std.max())


@pytest.mark.parametrize("shape", ["1-d", "2-d, two targets"])
def test_a_drawn_path_has_no_step(shape, fitted):
    model = with_rules(fitted(shape), nearest=2)
    near, far = (side[:20] for side in expert_borders(model, *lines_of(shape)))
    rng = np.random.RandomState(0)
    draws = answers.sample(model, np.concatenate([near, far]), 5, rng, latent=True)
    one, other = np.split(draws, 2)
    # Draws have the roots of what the covariance has.
    assert np.max(np.abs(one - other)) < 1e-4 * np.std(draws)


@pytest.mark.parametrize("k", [2, 3, 8])
@pytest.mark.parametrize("shape", ["1-d", "3-d", "5-d"])
def test_slopes_agree_with_differences_across_borders(shape, k, fitted):
    model = with_rules(fitted(shape), nearest=k)
    near, far = expert_borders(model, *lines_of(shape))
    for one, other in zip(near[:8], far[:8], strict=True):
        step = 1e-8 * np.ones(len(one))
        sides = [answers.predict(model, (one + sign * step)[None]) for sign in (1, -1)]
        # Slopes may differ between both sides, and the difference has half of each.
        slopes = np.mean(predict_slopes(model, np.stack([one, other]))[2:], axis=1)
        size = np.abs(slopes).max() * np.linalg.norm(step)
        for slope, plus, minus in zip(slopes, *sides, strict=True):
            assert_allclose((plus[0] - minus[0]) / 2, slope @ step, atol=2e-2 * size)


def test_a_model_of_an_older_file_keeps_its_answers(tmp_path):
    old = manygp.load(OLD_FOLDER / "default.manygp")
    assert old.model_.rules.nearest is not None
    assert not old.model_.rules.tapered
    old.save(tmp_path / "again")
    again = manygp.load(tmp_path / "again")
    assert not again.model_.rules.tapered
    known = json.loads((OLD_FOLDER / "answers.json").read_text())
    found = again.predict(np.array(known["queries"]), return_std=True)
    for array, expected in zip(found, known["default"], strict=False):
        assert_allclose(array, expected, rtol=1e-6)
