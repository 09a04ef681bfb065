"""A value that many targets share: its chance, and the distribution of the rest."""

import copy
import dataclasses
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import manygp
from manygp import ManyGPRegressor, answers
from manygp.steps import Moments, Step, shared_value
from manygp.targets import are_whole, found_bounds, whole_ends

RNG = np.random.default_rng(0)


def rows(n, seed=0):
    """Rows of two columns, and a target that is zero where a line is low."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    hidden = X[:, 0] + 0.2 * rng.normal(size=n)
    return X, np.where(hidden < 0.6, 0.0, np.exp(1 + 2 * X[:, 1] + 0.3 * rng.normal(size=n)))


LEAN = {"trend": "constant", "random_state": 0, "hyperparameters": "shared"}
X, Y = rows(240)
NEW, TRUTH = rows(400, 1)


@pytest.fixture(scope="module")
def model():
    return ManyGPRegressor(target_transform="log", **LEAN).fit(X, Y)


@pytest.fixture(scope="module")
def dist(model):
    return model.predict_dist(NEW)


def step_at(value, low=-np.inf, high=np.inf, unit=1.0):
    """A step of targets of which half have a value, and its distribution of five rows."""
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=400), rng.uniform(0.5, 1.0, 400)
    y = np.clip(mean + std * rng.normal(size=400), low, high)
    y = np.where(rng.random(400) < 0.5, value, y)
    said = Moments(unit * mean, unit * std)
    step = Step.learned(unit * y, unit * value, said, (-np.inf, np.inf))
    return step, step.distribution(unit * np.linspace(-1, 1, 5), np.full(5, unit * 0.7))


STEPS = {"lowest": (0.0, 0.0, np.inf), "highest": (1.0, -np.inf, 1.0), "within": (0.5,)}


@pytest.fixture(scope="module", params=list(STEPS))
def stepped(request):
    return step_at(*STEPS[request.param])[1]


# Distributions.


@pytest.mark.parametrize("unit", [1e-8, 1e8])
@pytest.mark.parametrize("values", STEPS.values(), ids=STEPS)
def test_units_of_targets_have_no_say(values, unit):
    one, other = step_at(*values)[1], step_at(*values, unit=unit)[1]
    assert_allclose(other.mean, unit * one.mean, rtol=1e-6)
    assert_allclose(other.std, unit * one.std, rtol=1e-6)
    assert_allclose(other.chance, one.chance, rtol=1e-6)


def test_a_cdf_rises_from_0_to_1_and_has_the_step(stepped):
    y = np.linspace(-8, 12, 4001)[:, None]
    share = stepped.cdf(y)
    assert np.all(np.diff(share, axis=0) >= 0)
    assert_allclose(share[0], 0.0, atol=1e-3)
    assert_allclose(share[-1], 1.0, atol=1e-3)
    value, near = np.full(5, stepped.value), 1e-9
    jump = stepped.cdf(value) - stepped.cdf(value - near)
    assert_allclose(jump, stepped.chance, atol=1e-6)
    assert np.all((stepped.chance > 0.02) & (stepped.chance < 0.98))


def test_a_density_is_the_derivative_of_the_cdf_beside_the_step(stepped):
    y, near = np.linspace(-1.95, 3.05, 101)[:, None], 1e-5
    y = y[np.abs(y[:, 0] - stepped.value) > 1e-3]
    slope = (stepped.cdf(y + near) - stepped.cdf(y - near)) / (2 * near)
    assert_allclose(stepped.pdf(y), slope, rtol=1e-3, atol=1e-6)
    assert_allclose(stepped.pdf(np.full(5, stepped.value)), stepped.chance)


def test_quantiles_undo_the_cdf(stepped):
    for level in (0.01, 0.2, 0.5, 0.8, 0.99):
        y = stepped.ppf(level)
        assert np.all(stepped.cdf(y) >= level - 1e-9)
        assert np.all((stepped.cdf(y - 1e-6) <= level) | (stepped.cdf(y) < level + 1e-6))
    with pytest.raises(ValueError, match="levels must lie between 0 and 1"):
        stepped.ppf(1.0)


def test_the_crps_is_the_integral_of_squared_differences(stepped):
    levels = (np.arange(20000) + 0.5) / 20000
    quantiles = stepped.ppf(levels[:, None])
    for y in (-0.7, stepped.value, 1.6):
        below = (y < quantiles) - levels[:, None]
        expected = 2 * (below * (quantiles - y)).mean(axis=0)
        outside = y < stepped.rest.transform.floor or y > stepped.rest.transform.ceiling
        if not outside:
            assert_allclose(stepped.crps(np.full(5, y)), expected, rtol=0.01, atol=1e-3)


def test_draws_are_as_often_the_value_as_its_chance_says(stepped):
    draws = stepped.sample(4000, 0)
    assert_allclose((draws == stepped.value).mean(axis=0), stepped.chance, atol=0.04)
    assert_allclose(draws.mean(axis=0), stepped.mean, atol=0.06)
    assert_allclose(draws.std(axis=0), stepped.std, rtol=0.1, atol=0.06)
    lower, upper = stepped.interval(0.8)
    held = ((draws >= lower) & (draws <= upper)).mean(axis=0)
    assert np.all(held > 0.77)


def test_a_step_stays_the_same_in_a_file():
    step, dist = step_at(*STEPS["lowest"])
    other = Step.from_json(step.to_json())
    at = np.linspace(-1, 1, 5)
    again = other.distribution(at, np.full(5, 0.7))
    assert_array_equal(again.ppf(0.9), dist.ppf(0.9))


@pytest.mark.parametrize(
    "change",
    [
        {"value": np.inf},
        {"scale": 0.0},
        {"dof": 0.5},
        {"chance": [1.0]},
        {"of_all": [[1, 0], [0]]},
    ],
)
def test_a_wrong_step_in_a_file_is_refused(change):
    with pytest.raises(ValueError, match="its step"):
        Step.from_json(step_at(*STEPS["within"])[0].to_json() | change)


# What is a step, an edge, or whole.


def test_a_value_is_shared_by_many_rows_but_not_by_all():
    y = np.concatenate([np.zeros(30), RNG.normal(size=70)])
    assert shared_value(y[:, None]) == 0.0
    for few in (RNG.normal(size=100), np.zeros(100), y[15:], np.append(np.zeros(99), 1.0)):
        assert shared_value(few[:, None]) is None
    assert shared_value(np.column_stack([y, y])) is None


def test_the_least_value_is_taken_if_it_is_nearly_the_most_frequent():
    y = np.repeat([0.0, 1.0, 2.0], [30, 40, 30])
    assert shared_value(y[:, None]) == 0.0


def test_edges_that_many_targets_share_are_bounds():
    y = RNG.normal(size=400)
    for column, low, high in (
        (y, -np.inf, np.inf),
        (np.minimum(y, 1.0), -np.inf, 1.0),
        (np.clip(y, -1.0, 1.0), -1.0, 1.0),
        (np.exp(y), 0.0, np.inf),
        (np.exp(0.01 * y), -np.inf, np.inf),  # far from zero
        (0.0 * y, -np.inf, np.inf),  # all the same
        (np.round(y), -np.inf, np.inf),  # as many as the shape of the others says
    ):
        floor, ceiling = found_bounds(column[:, None])
        assert (floor[0], ceiling[0]) == (low, high)


def test_whole_ends_hold_the_same_whole_numbers():
    lower, upper = whole_ends(np.array([0.2, 1.0, 0.2]), np.array([3.7, 2.0, 0.7]))
    assert_array_equal(lower, [1, 1, 0])
    assert_array_equal(upper, [3, 2, 1])
    assert are_whole(np.array([[0.0], [3.0]]))
    for other in ([[0.0], [0.5]], [[0.0], [1.0]], [[0.0], [1e12]]):
        assert not are_whole(np.array(other))


# Models.


def test_left_out_rows_choose_two_parts(model, dist):
    assert model.calibration_report_.chosen["step"] == 0.0
    scores = {one.value: one.nll for one in model.calibration_report_.alternatives
              if one.parameter == "step"}  # fmt: skip
    assert scores["0"] < scores["none"]
    assert 0.8 < dist.chance.mean() / np.mean(TRUTH == 0) < 1.25
    plain = answers.distribution_of(
        dataclasses.replace(model.model_, step=None),
        *answers.predict_transformed(model.model_, NEW),
    )
    assert dist.crps(TRUTH).mean() < 0.97 * plain.crps(TRUTH).mean()


def test_chances_are_calibrated(dist):
    order = np.argsort(dist.chance)
    for part in np.array_split(order, 4):
        assert abs(dist.chance[part].mean() - np.mean(TRUTH[part] == 0)) < 0.12


def test_all_answers_have_the_step(model, dist):
    lower, upper = model.predict_interval(NEW, 0.8)
    assert_allclose(lower, dist.ppf(0.1))
    assert_allclose(upper, model.predict_quantiles(NEW, [0.9])[:, 0])
    assert lower.min() >= 0
    assert np.mean((lower <= TRUTH) & (upper >= TRUTH)) > 0.75
    mean, std = model.predict(NEW, return_std=True)
    assert_array_equal((dist.mean, dist.std), (mean, std))
    assert mean.min() >= 0
    draws = model.sample_y(NEW[:40], 2000)
    assert draws.shape == (40, 2000)
    assert_allclose((draws == 0).mean(axis=1), dist.chance[:40], atol=0.06)
    assert_allclose(draws.mean(axis=1), mean[:40], atol=0.15 * TRUTH.std())
    assert np.isfinite(model.loo_score()["nll"])


def test_latent_answers_and_covariances_are_of_the_same_mean_and_std(model, dist):
    few = NEW[:6]
    mean, cov = model.predict(few, return_cov=True)
    assert_allclose(mean, dist.mean[:6], rtol=1e-6)
    assert_allclose(np.sqrt(np.diag(cov)), dist.std[:6], rtol=1e-6)
    _, latent = model.predict(few, return_std=True, latent=True)
    assert_allclose(np.hypot(latent, model.noise_std(few)), dist.std[:6], rtol=1e-6)
    draws = model.sample_y(few, 4000, latent=True)
    assert draws.min() >= 0
    assert_allclose(draws.mean(axis=1), mean, atol=0.1 * TRUTH.std())
    paths = model.sample_paths(2000, random_state=0)
    assert_allclose(paths(few).std(axis=1), draws.std(axis=1), rtol=0.15)
    with pytest.raises(ValueError, match="share a value"):
        paths.slopes(few)


def test_slopes_are_differences_of_what_is_predicted(model):
    few, near = NEW[:20], 1e-5
    found = model.predict_slopes(few)
    for j in range(2):
        ends = [model.predict(few + sign * near * np.eye(2)[j], return_std=True)
                for sign in (-1, 1)]  # fmt: skip
        by_mean, by_std = (np.array(ends[1]) - ends[0]) / (2 * near)
        close = np.isclose(found.mean_slope[:, j], by_mean, rtol=1e-2, atol=1e-2)
        close &= np.isclose(found.std_slope[:, j], by_std, rtol=1e-2, atol=1e-2)
        assert close.mean() > 0.8  # functions have corners


def test_a_saved_model_has_the_same_step(model, dist, tmp_path):
    model.save(tmp_path / "model.manygp")
    loaded = manygp.load(tmp_path / "model.manygp")
    assert_array_equal(loaded.predict_dist(NEW).crps(TRUTH), dist.crps(TRUTH))
    assert_array_equal(loaded.predict_interval(NEW), model.predict_interval(NEW))


def test_new_rows_leave_the_step_as_it_is(model):
    more = copy.deepcopy(model)
    more.partial_fit(NEW[:20], TRUTH[:20])
    assert more.model_.step.value == 0.0
    assert more.predict_dist(NEW[:5]).value == 0.0


def test_targets_whose_squares_are_no_floats_have_no_step():
    model = ManyGPRegressor(**LEAN).fit(X[:90], 2.0**-700 * Y[:90])
    assert model.model_.step is None
    mean, std = model.predict(NEW[:9], return_std=True)
    assert np.all((std > 0) & (np.abs(mean) < 2.0**-690))


def test_a_normal_target_has_no_step_bound_or_whole_ends():
    y = np.sin(5 * X[:90, 0]) + 0.3 * np.random.default_rng(2).normal(size=90)
    model = ManyGPRegressor(**LEAN).fit(X[:90], y)
    record = model.model_
    assert (record.step, record.target_transform, record.whole) == (None, None, False)


def test_counts_have_whole_intervals(tmp_path):
    rng = np.random.default_rng(3)
    y = rng.poisson(5 + 10 * X[:90, 0]).astype(float)
    model = ManyGPRegressor(**LEAN).fit(X[:90], y)
    lower, upper = model.predict_interval(NEW)
    assert_array_equal(lower, np.round(lower))
    assert_array_equal(upper, np.round(upper))
    model.save(tmp_path / "model.manygp")
    assert_array_equal(manygp.load(tmp_path / "model.manygp").predict_interval(NEW)[0], lower)


def test_models_of_the_paper_know_no_step_bound_or_whole_numbers():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        record = ManyGPRegressor(calibration="none", random_state=0).fit(X, np.round(Y)).model_
    assert (record.step, record.target_transform, record.whole) == (None, None, False)
