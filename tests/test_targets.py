"""Targets as they are: whatever is modelled, every answer is in the units of y."""

import dataclasses
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

import manygp
from large import COLUMNS, lower_limits, make_rows, write
from large import model as large_model
from manygp import ManyGPRegressor, answers, metrics
from manygp.calibration import SHARES, PredictiveDistribution, Shape
from manygp.display.report import rows as report_rows
from manygp.fit_report import NothingLearnedWarning
from manygp.targets import TargetTransform, TransformedDistribution

RNG = np.random.default_rng(0)
LOGNORMAL = np.exp(RNG.normal(size=(200, 1)))
SAMPLES = {
    "log": ("log", LOGNORMAL),
    "log of counts": ("log", RNG.poisson(2.0, (200, 1)).astype(float)),
    "power": ("yeo-johnson", RNG.gamma(2.0, size=(200, 1)) - 3),
    "power of a left tail": ("yeo-johnson", -RNG.gamma(2.0, size=(200, 1))),
    "none": ("none", RNG.normal(size=(200, 1))),
}
LEAN = {"trend": "constant", "random_state": 0, "hyperparameters": "shared"}


def rows(n, seed=0):
    """Rows of two columns, and a positive target with multiplicative noise."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    return X, np.exp(2 * np.sin(4 * X[:, 0]) + X[:, 1] + 0.4 * rng.normal(size=n))


X, Y = rows(120)
NEW, TRUTH = rows(40, 1)


@pytest.fixture(scope="module", params=list(SAMPLES))
def transform(request):
    return TargetTransform.learned(*SAMPLES[request.param])


@pytest.fixture(scope="module")
def logged():
    return ManyGPRegressor(target_transform="log", **LEAN).fit(X, Y)


@pytest.fixture(scope="module")
def by_hand():
    """The same model of logarithms that the user has taken."""
    return ManyGPRegressor(target_transform=None, **LEAN).fit(X, np.log(Y))


def distribution(transform, dof=np.inf):
    centre = float(np.median(transform.forward(SAMPLES["log"][1])))
    mean, std = centre + np.array([-0.5, 0.0, 0.7]), np.array([0.2, 0.5, 0.8])
    base = PredictiveDistribution(mean, std, np.array(dof), np.array(0.9))
    return TransformedDistribution(base, transform, *transform.moments(mean, std))


# Transforms.


def test_a_transform_is_undone(transform):
    y = np.linspace(0.01, 60, 300) if transform.floor[0] == 0 else np.linspace(-60, 60, 300)
    z = transform.forward(y)
    assert np.all(np.diff(z) > 0)
    assert_allclose(transform.inverse(z), y, rtol=1e-9, atol=1e-9)


def test_the_slope_of_a_transform_is_that_of_differences(transform):
    y, step = np.linspace(0.5, 60, 200), 1e-6
    slope = (transform.forward(y + step) - transform.forward(y - step)) / (2 * step)
    assert_allclose(np.exp(transform.log_slope(y)), slope, rtol=1e-4)
    inverse = transform.inverse_slope(transform.forward(y))
    assert_allclose(inverse * slope, 1.0, rtol=1e-4)


def test_mean_and_std_are_integrals_over_the_distribution_of_z(transform):
    mean, std = np.array([0.1, 0.8]), np.array([0.3, 0.6])
    x = np.linspace(-9, 9, 20001)[:, None]
    y, density = transform.inverse(mean + std * x), norm.pdf(x)
    average = np.trapezoid(y * density, x, axis=0)
    spread = np.sqrt(np.trapezoid((y - average) ** 2 * density, x, axis=0))
    found = transform.moments(mean, std)
    assert_allclose(found[0], average, rtol=0.01)
    assert_allclose(found[1], spread, rtol=0.03)


def test_units_do_not_matter():
    y = rows(60)[1]
    for name in ("log", "yeo-johnson"):
        one = TargetTransform.learned(name, y[:, None])
        other = TargetTransform.learned(name, 1000 * y[:, None])
        z, scaled = one.forward(y), other.forward(1000 * y)
        assert_allclose((z - z.mean()) / z.std(), (scaled - scaled.mean()) / scaled.std(), 1e-6)


@pytest.mark.parametrize("factor", [2.0**-700, 2.0**700])
def test_moments_are_the_same_in_any_units(transform, factor):
    Y = transform.inverse(np.linspace(-1, 1, 20)[:, None])
    one, other = (TargetTransform.learned(transform.name, y) for y in (Y, factor * Y))
    mean, std = one.forward(Y), np.full_like(Y, 0.5)
    moved = other.forward(factor * Y)
    for name, more in (("moments", ()), ("std_of_mean", (std / 2,))):
        said = getattr(one, name)(mean, std, *more)
        scale = factor if transform.name == "none" else 1.0
        found = getattr(other, name)(moved, scale * std, *(scale * a for a in more))
        assert_allclose(np.array(found) / factor, said, rtol=1e-9)


def test_a_logarithm_of_negative_targets_is_refused():
    with pytest.raises(ValueError, match="not negative; the least is -2"):
        TargetTransform.learned("log", np.array([[1.0], [-2.0]]))


def test_a_transform_stays_the_same_in_a_file(transform):
    other = TargetTransform.from_json(transform.to_json(), 1)
    y = np.linspace(0.5, 60, 20)
    assert_array_equal(other.forward(y), transform.forward(y))


@pytest.mark.parametrize(
    "change",
    [
        {"name": "exp"}, {"unit": [0.0]}, {"unit": [1.0, 1.0]}, {"low": [np.nan]},
        {"high": [-np.inf]}, {"high": [-1.0]}, {"numbers": [[np.inf], [1.0]]},
        {"floor": [9e99], "ceiling": [0.0]},
    ],
)  # fmt: skip
def test_a_wrong_transform_in_a_file_is_refused(change):
    plain = TargetTransform.learned("log", LOGNORMAL).to_json()
    with pytest.raises(ValueError, match="transform"):
        TargetTransform.from_json(plain | change, 1)


# Distributions.


@pytest.mark.parametrize("dof", [np.inf, 4.0])
def test_a_density_is_the_derivative_of_its_cdf(transform, dof):
    dist = distribution(transform, dof)
    y = np.linspace(0.3, 50, 200)[:, None]
    step = 1e-5
    slope = (dist.cdf(y + step) - dist.cdf(y - step)) / (2 * step)
    assert_allclose(dist.pdf(y), slope, rtol=1e-3, atol=1e-6)


@given(st.floats(0.001, 0.999), st.sampled_from(list(SAMPLES)), st.sampled_from([np.inf, 3.0]))
@settings(max_examples=50, deadline=None)
def test_a_quantile_has_its_level_and_intervals_are_nested(level, name, dof):
    dist = distribution(TargetTransform.learned(*SAMPLES[name]), dof)
    y = dist.ppf(level)
    inside = y > dist.transform.floor
    assert_allclose(dist.cdf(y)[inside], level, atol=1e-9)
    (low, high), (lower, upper) = dist.interval(0.9 * level), dist.interval(level)
    assert np.all((lower <= low) & (low <= high) & (high <= upper))
    assert np.all(lower >= dist.transform.floor)


@pytest.mark.parametrize("dof", [np.inf, 4.0])
@pytest.mark.parametrize("power", [None, 2.0])
def test_the_crps_is_the_integral_of_squared_differences(transform, dof, power):
    dist = distribution(transform, dof)
    if power is not None:  # errors of another shape
        dist = dataclasses.replace(
            dist, base=dataclasses.replace(dist.base, shape=Shape(SHARES**power))
        )
    y = np.array([0.7, 1.5, 6.0])
    levels = (np.arange(20000) + 0.5) / 20000
    quantiles = dist.ppf(levels[:, None])
    below = (y < quantiles) - levels[:, None]
    expected = 2 * (below * (quantiles - y)).mean(axis=0)
    assert_allclose(dist.crps(y), expected, rtol=0.01, atol=2e-4)


def test_bounds_cut_and_leave_a_step():
    free = TargetTransform.learned("none", SAMPLES["none"][1])
    dist = distribution(free.within((0.0, 1.5), np.array([[0.0], [1.5]])))
    assert np.all((dist.mean >= 0) & (dist.mean <= 1.5))
    lower, upper = dist.interval(0.99)
    assert lower.min() == 0.0
    assert upper.max() == 1.5
    assert np.all(dist.cdf(np.zeros(3)) > 0)
    assert_array_equal(dist.cdf(np.full(3, -1e-9)), 0.0)
    assert_array_equal(dist.cdf(np.full(3, 1.5)), 1.0)
    draws = dist.sample(1000, 0)
    assert draws.min() == 0.0
    assert draws.max() == 1.5
    assert np.all(np.isfinite(dist.logpdf(np.full(3, 2.0))))  # bounds that were only found
    assert_array_equal(replace(dist, support=(0.0, 1.5)).logpdf(np.full(3, 2.0)), -np.inf)


def test_a_target_of_zero_is_unlikely_and_not_impossible_after_positive_ones():
    y = rows(60)[1]
    transform = TargetTransform.learned("log", y[:, None])
    dist = distribution(transform)
    assert np.all(np.isfinite(dist.logpdf(np.array([0.0, -1.0, y.min() / 100]))))
    assert np.all(dist.logpdf(np.zeros(3)) < dist.logpdf(dist.ppf(0.5)))


# Models.


def test_answers_are_those_of_logarithms_taken_by_hand(logged, by_hand):
    for own, other in zip(
        logged.predict_interval(NEW), by_hand.predict_interval(NEW), strict=True
    ):
        assert_allclose(own, np.exp(other), rtol=1e-9)
    dist, logs = logged.predict_dist(NEW), by_hand.predict_dist(NEW)
    assert_allclose(dist.cdf(TRUTH), logs.cdf(np.log(TRUTH)), rtol=1e-9)
    assert_allclose(dist.logpdf(TRUTH), logs.logpdf(np.log(TRUTH)) - np.log(TRUTH), rtol=1e-9)
    mean, std = by_hand.predict(NEW, return_std=True)
    assert_allclose(logged.predict(NEW), np.exp(mean + std**2 / 2), rtol=1e-3)
    own = logged.predict(NEW, return_std=True)
    assert_array_equal(own, (dist.mean, dist.std))
    assert_array_equal(own[0], logged.predict(NEW))
    assert_allclose(own[1], own[0] * np.sqrt(np.expm1(std**2)), rtol=0.02)


def test_left_out_rows_are_in_the_units_of_y(logged, by_hand):
    mean, std = by_hand.loo_predict()
    x = np.linspace(-8, 8, 4001)
    y, density = logged.model_.target_transform.inverse(mean + std * x[:, None]), norm.pdf(x)
    expected = np.trapezoid(y * density[:, None], x, axis=0)
    assert_allclose(logged.loo_predict()[0], expected, rtol=1e-3)
    scores = by_hand.loo_score()
    assert_allclose(logged.loo_score()["nll"], scores["nll"] + np.log(Y).mean(), rtol=1e-9)
    targets, means, stds = answers.left_out_rows(logged.model_)
    assert_allclose(targets, Y, rtol=1e-12)
    assert_allclose(logged.loo_score()["rmse"], metrics.rmse(Y, means))
    assert np.all(stds > 0)
    assert_allclose(answers.training_rows(logged.model_)[1][:, 0], Y, rtol=1e-12)


def test_a_positive_target_is_never_predicted_to_be_negative(logged):
    wide = np.random.default_rng(2).uniform(-2, 3, (200, 2))
    assert logged.predict(wide).min() > 0
    assert logged.predict_interval(wide, 0.95)[0].min() > 0
    assert logged.predict_quantiles(wide, [0.001]).min() >= 0
    assert logged.sample_y(wide[:20], 50).min() >= 0


def test_covariance_std_noise_and_draws_agree(logged):
    mean, cov = logged.predict(NEW[:15], return_cov=True)
    std = logged.predict(NEW[:15], return_std=True)[1]
    assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-9)
    assert np.linalg.eigvalsh(cov).min() > 0
    again, latent = logged.predict(NEW[:15], return_std=True, latent=True)
    assert_array_equal(again, mean)
    smooth = logged.predict(NEW[:15], return_cov=True, latent=True)[1]
    assert_allclose(np.sqrt(np.diag(smooth)), latent, rtol=1e-9)
    assert_allclose(latent**2 + logged.noise_std(NEW[:15]) ** 2, std**2, rtol=1e-9)
    draws = logged.sample_y(NEW[:15], 20_000)
    assert_allclose(draws.mean(axis=1), mean, rtol=0.05)
    assert_allclose(np.corrcoef(draws)[0], cov[0] / (std[0] * std), atol=0.05)
    functions = logged.sample_y(NEW[:15], 20_000, latent=True)
    assert_allclose(functions.std(axis=1), latent, rtol=0.05)


def test_derivatives_are_those_of_differences(logged):
    step = 1e-5
    for latent in (False, True):
        mean, std, *slopes = logged.predict_slopes(NEW[:5], latent=latent)
        said = logged.predict(NEW[:5], return_std=True, latent=latent)
        assert_allclose([mean, std], said, rtol=1e-9)
        for j in range(2):
            sides = [
                logged.predict(NEW[:5] + s * step * np.eye(2)[j], True, latent=latent)
                for s in (1, -1)
            ]
            for slope, high, low in zip(slopes, *sides, strict=True):
                assert_allclose(slope[:, j], (high - low) / (2 * step), rtol=1e-3)


def test_known_noise_is_in_the_units_of_y(logged):
    small = 1e-4
    std = logged.predict(NEW, return_std=True)[1]
    wider = logged.predict(NEW, return_std=True, alpha=small)[1]
    assert_allclose(wider**2 - std**2, small, rtol=0.9)
    noisy = ManyGPRegressor(target_transform="log", **LEAN).fit(X, Y, alpha=0.01 * Y**2)
    assert_allclose(noisy.model_.committee.training_data().alpha, 0.01 / np.log(Y).var())


def test_a_saved_model_has_the_same_answers(logged, tmp_path):
    logged.save(tmp_path / "model.manygp")
    loaded = manygp.load(tmp_path / "model.manygp")
    for one, other in ((logged, loaded),):
        assert_array_equal(one.predict(NEW, True), other.predict(NEW, True))
        assert_array_equal(one.predict_interval(NEW), other.predict_interval(NEW))
        assert_array_equal(one.predict_dist(NEW).crps(TRUTH), other.predict_dist(NEW).crps(TRUTH))
        assert one.loo_score() == other.loo_score()
    assert loaded.target_transform == "log"


def test_several_targets_have_a_transform_each():
    both = np.column_stack([Y, 1000 * Y[::-1]])
    model = ManyGPRegressor(target_transform="log", **LEAN).fit(X, both)
    mean, std = model.predict(NEW, return_std=True)
    lower, _ = model.predict_interval(NEW)
    assert mean.shape == std.shape == lower.shape == (40, 2)
    assert lower.min() > 0
    assert model.predict_dist(NEW).crps(np.column_stack([TRUTH, TRUTH])).shape == (40, 2)
    assert model.predict(NEW[:5], return_cov=True)[1].shape == (5, 5, 2)
    assert model.sample_y(NEW[:5], 3, latent=True).shape == (5, 2, 3)
    assert_allclose(answers.training_rows(model.model_)[1], both, rtol=1e-12)
    with pytest.raises(ValueError, match="fit each target by itself"):
        ManyGPRegressor(target_transform="log", **LEAN).fit(X, both, alpha=0.1)


def test_missing_values_are_answered_in_the_units_of_y():
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame.loc[::7, "a"] = np.nan
    model = ManyGPRegressor(target_transform="log", **LEAN).fit(frame, Y)
    new = pd.DataFrame({"a": [np.nan, 0.4], "b": [0.5, 0.5]})
    mean, std = model.predict(new, return_std=True)
    assert std[0] > std[1]
    assert model.predict_interval(new)[0].min() > 0
    assert_allclose(np.sqrt(np.diag(model.predict(new, return_cov=True)[1])), std)
    assert_allclose(model.sample_y(new, 5000).mean(axis=1), mean, rtol=0.1)
    assert np.all(model.predict(new, return_std=True, latent=True)[1] < std)


def test_bounds_move_no_mean_away_from_what_targets_may_be():
    y = np.where(X[:, 0] > 0.5, 5.0, 0.0) + X[:, 1]  # a step, beside which means overshoot
    cut, free = (
        ManyGPRegressor(bounds=bounds, target_transform=None, **LEAN).fit(X, y)
        for bounds in ((0, None), None)
    )
    wide = np.random.default_rng(2).uniform(-1, 2, (200, 2))
    mean, std = free.predict(wide, return_std=True)
    assert mean.min() < 0
    own = cut.predict(wide, return_std=True)
    assert_allclose(own[0], np.maximum(mean, 0.0), atol=1e-12)
    assert_allclose(own[1], std, rtol=1e-12)


def test_bounds_hold_for_every_answer(tmp_path):
    y = np.clip(np.sin(6 * X[:, 0]) + 0.3 * X[:, 1], 0.0, 1.0)
    model = ManyGPRegressor(bounds=(0, 1), **LEAN).fit(X, y)
    wide = np.random.default_rng(2).uniform(-1, 2, (100, 2))
    ends = (model.predict(wide), *model.predict_interval(wide), model.sample_y(wide, 3))
    for answer in (*ends, model.predict_quantiles(wide, [0.01, 0.99])):
        assert answer.min() >= 0
        assert answer.max() <= 1
    model.save(tmp_path / "model.manygp")
    assert manygp.load(tmp_path / "model.manygp").bounds == (0, 1)
    with pytest.raises(ValueError, match=r"within bounds=\(0, None\); it reaches from -1 "):
        ManyGPRegressor(bounds=(0, None)).fit(X[:5], [1.0, 2.0, 3.0, -1.0, 2.0])


@pytest.mark.parametrize(
    "bounds",
    [
        (1, 0), 5, (0, 1, 2), ("a", None), (1.0, 1.0), ("0", "9"), {0, 9}, (np.nan, 9), (False, 9),
    ],
)  # fmt: skip
def test_wrong_bounds_are_refused(bounds):
    with pytest.raises(ValueError, match="bounds must be"):
        ManyGPRegressor(bounds=bounds).fit(X, Y)


def test_an_unknown_transform_is_refused():
    with pytest.raises(ValueError, match="target_transform must be one of None, auto, log"):
        ManyGPRegressor(target_transform="exp").fit(X, Y)


# The choice.


def test_left_out_rows_choose_the_logarithm_of_multiplicative_noise():
    model = ManyGPRegressor(random_state=0).fit(X, Y)
    assert model.model_.target_transform.name == "log"
    assert model.calibration_report_.chosen["target"] == "log"
    compared = {one.value: one.nll for one in model.calibration_report_.alternatives
                if one.parameter == "target"}  # fmt: skip
    assert set(compared) == {"none", "log", "yeo-johnson"}
    assert compared["log"] < compared["none"]


def test_targets_that_are_not_skewed_are_not_transformed():
    model = ManyGPRegressor(random_state=0).fit(X, np.log(Y))
    assert model.model_.target_transform is None
    assert "target" not in model.calibration_report_.chosen


def test_a_skewed_function_with_even_noise_is_modelled_as_it_is():
    X = np.random.default_rng(3).random((150, 1))
    y = np.exp(4 * X[:, 0]) + 2 * np.random.default_rng(4).normal(size=150)
    model = ManyGPRegressor(random_state=0).fit(X, y)
    assert model.model_.target_transform is None
    assert model.calibration_report_.chosen["target"] == "none"


def test_targets_that_are_mostly_one_value_do_not_make_intervals_explode():
    rng = np.random.default_rng(1)
    X = rng.random((150, 2))
    y = np.where(X[:, 1] < 0.75, 0.0, np.exp(2 * X[:, 0] + rng.normal(size=150)))
    auto, plain = (
        ManyGPRegressor(target_transform=one, **LEAN).fit(X, y) for one in ("auto", None)
    )
    ends = [metrics.interval_score(y, *one.predict_interval(X)) for one in (auto, plain)]
    assert ends[0] < 1.1 * ends[1]


def test_models_of_the_paper_and_own_kernels_have_no_transform():
    for parameters in ({"calibration": "none"}, {"kernel": manygp.kernels.RBF(0.3)}):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("manygp.sklearn_compat.warn", lambda *_: None)
            model = ManyGPRegressor(random_state=0, **parameters).fit(X, Y)
        assert model.model_.target_transform is None


def test_nothing_learned_is_said():
    rng = np.random.default_rng(6)
    noise = rng.normal(size=200)
    with pytest.warns(NothingLearnedWarning, match="no better than by a constant"):
        ManyGPRegressor(**LEAN).fit(rng.random((200, 1)), noise)


# The command line and the report.


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Tables, and what the commands say of a model of logarithms."""
    click = pytest.importorskip("click.testing")
    pytest.importorskip("rich")
    from manygp.cli import main

    folder = tmp_path_factory.mktemp("targets")
    for name, X, y in (("train", *rows(120)), ("test", *rows(40, 1))):
        table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y})
        table.to_csv(folder / f"{name}.csv", index=False)

    def run(*arguments):
        result = click.CliRunner().invoke(main, [str(one) for one in arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    model, test = folder / "model.manygp", folder / "test.csv"
    fit = run(
        "fit", folder / "train.csv", "--target", "y", "-o", model, "--target-transform", "log",
        "--trend", "constant", "--jobs", 1, "--json",
    )  # fmt: skip
    run("predict", model, test, "-o", folder / "out.csv", "--quantiles", "0.05,0.5,0.95")
    page = run("evaluate", model, test, "--json", "--report", folder / "page.html")
    return folder, json.loads(fit), json.loads(page)


def test_the_command_line_speaks_in_the_units_of_y(made):
    folder, fit, scores = made
    model, table = manygp.load(folder / "model.manygp"), pd.read_csv(folder / "test.csv")
    new, y = table[["a", "b"]], table["y"].to_numpy()
    mean, std = model.predict(new, return_std=True)
    lower, upper = model.predict_interval(new)
    dist = model.predict_dist(new)
    expected = {
        "rmse": metrics.rmse(y, mean),
        "log_score": metrics.log_score(y, dist),
        "crps_of_distribution": metrics.crps(y, dist),
        "interval_score": metrics.interval_score(y, lower, upper),
        "ence": metrics.ence(y, mean, std),
        "within_90": metrics.coverage(y, mean, std),
    }
    for name, value in expected.items():
        assert_allclose(scores[name], value, rtol=1e-9, err_msg=name)
    assert abs(scores["nll"] - scores["log_score"]) < 0.3
    assert 0 < scores["r2"] < 1
    assert_allclose(fit["left_out"]["nll"], model.loo_score()["nll"], rtol=1e-9)
    assert_allclose(fit["left_out"]["rmse"], model.loo_score()["rmse"], rtol=1e-9)
    out = pd.read_csv(folder / "out.csv")
    for name, column in (("mean", mean), ("std", std), ("lower", lower), ("upper", upper)):
        assert_allclose(out[name], column, rtol=1e-9)
    quantiles = out.iloc[:, 4:].to_numpy()
    assert np.all(np.diff(quantiles, axis=1) > 0)
    assert_allclose(quantiles[:, [0, 2]], np.column_stack([lower, upper]), rtol=1e-9)
    assert np.all(quantiles[:, 1] < mean)


def test_the_report_speaks_in_the_units_of_y(made, logged):
    folder, _, scores = made
    assert f"{scores['rmse']:.3g}" in (folder / "page.html").read_text()
    model = logged.model_
    targets = report_rows.target_names(model, ("y",))
    (scored,) = report_rows.left_out_set(model, targets).scored
    assert_allclose(scored.y, Y, rtol=1e-12)
    assert_allclose(scored.nll.mean(), logged.loo_score()["nll"])
    assert np.all(scored.lower > 0)
    assert 0.8 < scored.held.mean() < 0.97
    assert abs(scored.pit.mean() - 0.5) < 0.1
    answer = (*logged.predict(NEW, return_std=True), *logged.predict_interval(NEW))
    tested = report_rows.Tested(TRUTH, *answer, 0.9, "new", NEW)
    (new,) = report_rows.tested_set(model, targets, tested).scored
    assert_allclose(new.pit, logged.predict_dist(NEW).cdf(TRUTH))
    assert_array_equal(new.lower, answer[2])
    with pytest.raises(ValueError, match="needs the rows X"):
        report_rows.tested_set(
            model, report_rows.target_names(model, ("y",)), tested._replace(X=None)
        )


def test_rows_on_a_disk_are_transformed_too(tmp_path, monkeypatch):
    lower_limits(monkeypatch)
    rows, y = make_rows()
    queries, truth = make_rows(200, 1)
    path = write(tmp_path / "data.parquet", rows, np.exp(y))
    model = large_model().set_params(target_transform="log").fit(path, target="y")
    frame = pd.DataFrame(queries, columns=list(COLUMNS))
    lower, upper = model.predict_interval(frame)
    assert lower.min() > 0
    assert 0.8 < np.mean((lower <= np.exp(truth)) & (np.exp(truth) <= upper)) < 0.98
    assert metrics.rmse(np.exp(truth), model.predict(frame)) < np.exp(truth).std() / 2
