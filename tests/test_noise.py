"""Noise that depends on the row: learned where it pays, and nowhere else."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from manygp import ManyGPRegressor, ModelFileError, load
from manygp.answers import left_out_rows
from manygp.calibration import LeftOutErrors
from manygp.kernels import RBF, White
from manygp.noise import NOISE, _bounded, learn_noise, split_variance
from manygp.rules import VarianceCurve
from manygp.storage import container


def noise_of(X):
    """The std of the noise grows along the second column."""
    return 0.05 + 0.6 * X[:, 1]


def rows_of(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 3))
    return X, np.sin(5 * X[:, 0]) + noise_of(X) * rng.normal(size=n)


X, y = rows_of(600, 0)
X_NEW, Y_NEW = rows_of(2000, 1)


@pytest.fixture(scope="module")
def local():
    return ManyGPRegressor(random_state=0).fit(X, y)


@pytest.fixture(scope="module")
def constant():
    return ManyGPRegressor(random_state=0, noise="constant").fit(X, y)


def nll(model, X, y):
    mean, std = model.predict(X, return_std=True)
    return float(np.mean(0.5 * np.log(2 * np.pi) + np.log(std) + 0.5 * ((y - mean) / std) ** 2))


def test_noise_that_differs_between_places_is_found(local, constant):
    assert local.calibration_report_.chosen["local noise"] == "local"
    assert nll(local, X_NEW, Y_NEW) < nll(constant, X_NEW, Y_NEW) - 0.15
    assert np.corrcoef(local.noise_std(X_NEW), noise_of(X_NEW))[0, 1] > 0.9
    assert_array_equal(local.predict(X_NEW), constant.predict(X_NEW))


def test_intervals_hold_in_quiet_places_and_in_loud_ones(local, constant):
    def coverage(model, rows):
        lower, upper = model.predict_interval(X_NEW[rows], 0.9)
        return np.mean((Y_NEW[rows] >= lower) & (Y_NEW[rows] <= upper))

    quiet, loud = X_NEW[:, 1] < 0.25, X_NEW[:, 1] > 0.75
    assert 0.84 < coverage(local, quiet) < 0.98
    assert 0.84 < coverage(local, loud) < 0.96
    assert coverage(constant, loud) < 0.82


def test_what_is_promised_of_left_out_rows_is_kept(local):
    assert local.loo_score()["nll"] == pytest.approx(nll(local, X_NEW, Y_NEW), abs=0.1)
    noise = local.model_.noise
    assert_allclose(np.sort(noise.rows), np.arange(len(X)))


@pytest.mark.filterwarnings("ignore:nothing was learned")
@pytest.mark.parametrize("seed", range(4))
def test_pure_noise_stays_as_it_is(seed):
    rng = np.random.default_rng(seed)
    Z, noise = rng.uniform(size=(300, 3)), rng.normal(size=300)
    auto = ManyGPRegressor(random_state=0).fit(Z, noise)
    same = ManyGPRegressor(random_state=0, noise="constant").fit(Z, noise)
    Z_new, new = rng.uniform(size=(2000, 3)), rng.normal(size=2000)
    assert nll(auto, Z_new, new) == pytest.approx(nll(same, Z_new, new), abs=5e-4)


def left_out(Z, log_variance, rng):
    """Left-out rows whose squared errors are so much larger than promised, and their mean."""
    n, errors = len(Z), np.exp(log_variance / 2) * rng.normal(size=len(Z))
    ones = np.ones(n)
    return LeftOutErrors(errors[None] ** 2, ones, 0 * ones, ones, np.arange(n), Z[:, 1:2].T)


def test_columns_that_say_nothing_about_the_noise_have_no_say():
    rng = np.random.default_rng(0)
    Z, new = rng.normal(size=(200, 12)), rng.normal(size=(1000, 12))
    noise, _ = learn_noise(left_out(Z, 1.2 * Z[:, 0], rng), VarianceCurve(), Z)
    factor = noise.log_factor(0, new, np.ones(1000), new[:, 1])
    assert np.corrcoef(factor, new[:, 0])[0, 1] > 0.9  # .77 if all columns have the same prior


@pytest.mark.parametrize("seed", range(3))
def test_a_region_of_few_rows_without_errors_promises_no_tiny_std(seed):
    rng = np.random.default_rng(seed)
    Z, new = rng.uniform(size=(120, 3)), rng.uniform(size=(500, 3)) * [0.3, 1, 1]
    quiet = np.where(Z[:, 0] < 0.3, -14.0, np.log(1 / 0.7))  # some 40 rows hit exactly
    noise, _ = learn_noise(left_out(Z, quiet, rng), VarianceCurve(), Z, forced=True)
    factor = noise.log_factor(0, new, np.ones(500), new[:, 1])
    assert 0.4 < np.exp(factor / 2).mean() < 0.95


def test_errors_are_not_larger_than_promised_on_average():
    few, targets = rows_of(150, 0)
    model = ManyGPRegressor(random_state=0, noise="local").fit(few, targets)
    assert model.model_.noise.level[0] > 0.05  # without it, so much larger
    _, mean, std = left_out_rows(model.model_)
    assert np.mean(((targets - mean) / std) ** 2) == pytest.approx(1.0, abs=0.03)


def test_a_file_without_a_level_keeps_its_answers(local, tmp_path):
    path = tmp_path / "model"
    local.save(path)
    manifest, arrays = container.read(path)
    manifest = {key: value for key, value in manifest.items() if key != "arrays"}
    level = arrays.pop("noise_level")
    container.write(path, manifest, arrays)
    near = X_NEW[:50]
    std = local.predict(near, return_std=True)[1]
    assert_allclose(load(path).predict(near, return_std=True)[1], std * np.exp(-level[0] / 2))


def test_the_factor_is_bounded_by_the_rows_that_speak_for_it():
    least = (9 * np.exp(-NOISE.largest) + 1) / 10
    assert _bounded(np.array([-50.0]), 9.0)[0] == pytest.approx(np.log(least))
    assert _bounded(np.array([0.0]), 9.0)[0] == 0.0
    assert _bounded(np.array([50.0]), 9.0)[0] < NOISE.largest


def test_the_latent_std_and_places_far_away_know_nothing_of_it(local, constant):
    ours, theirs = (m.predict(X_NEW, return_std=True, latent=True)[1] for m in (local, constant))
    _, total = local.predict(X_NEW, return_std=True)
    kept = ours < np.sqrt(NOISE.largest_latent) * total * (1 - 1e-9)
    assert kept.mean() > 0.9
    assert_allclose(ours[kept], theirs[kept], rtol=1e-12)
    far = X_NEW[:5] + 40.0
    assert_allclose(
        local.predict(far, return_std=True)[1], constant.predict(far, return_std=True)[1]
    )


def test_the_latent_variance_is_at_most_the_total():
    latent, noise = split_variance(np.array([1.0, 3.0]), np.array([2.0, 2.0]))
    assert_allclose(latent + noise, 2.0)
    assert latent[0] == 1.0
    assert 0 < noise[1] < 1e-6


def test_covariance_draws_and_slopes_agree_with_the_std(local):
    _, std = local.predict(X_NEW[:40], return_std=True)
    _, cov = local.predict(X_NEW[:40], return_cov=True)
    assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-9)
    draws = local.sample_y(X_NEW[:40], 4000, random_state=0)
    assert_allclose(draws.std(axis=1), std, rtol=0.08)
    for latent in (False, True):
        slopes = local.predict_slopes(X_NEW[:3], latent=latent).std_slope
        for x, slope in zip(X_NEW, slopes, strict=False):
            steps = 1e-4 * np.eye(3)
            ends = [local.predict(x + s * steps, True, latent=latent)[1] for s in (1, -1)]
            assert_allclose(slope, (ends[0] - ends[1]) / 2e-4, rtol=1e-2, atol=2e-3)


def test_a_file_keeps_it_bit_for_bit(local, tmp_path):
    path = tmp_path / "model"
    local.save(path)
    again = load(path)
    assert_array_equal(
        again.predict(X_NEW, return_std=True), local.predict(X_NEW, return_std=True)
    )
    assert again.loo_score() == local.loo_score()
    manifest, arrays = container.read(path)
    manifest = {key: value for key, value in manifest.items() if key != "arrays"}
    for name in [name for name in arrays if name.startswith("noise_")]:
        container.write(path, manifest, {**arrays, name: arrays[name][..., :-1]})
        with pytest.raises(ModelFileError):
            load(path)


def test_targets_have_noise_of_their_own():
    rng = np.random.default_rng(3)
    flat = X[:, 0] + 0.1 * rng.normal(size=len(X))
    both = ManyGPRegressor(random_state=0, noise="local").fit(X, np.column_stack([y, flat]))
    ratio = both.noise_std(X_NEW) / both.noise_std(X_NEW).mean(axis=0)
    assert ratio[:, 0].std() > 2 * ratio[:, 1].std()
    assert both.predict(X_NEW[:5], return_cov=True)[1].shape == (5, 5, 2)


STD = np.array([0.05, 0.8, 40.0])


def targets_of(n, seed):
    """A target with little noise, one with much, and one in other units with heavy tails."""
    rng = np.random.default_rng(seed)
    Z = rng.uniform(size=(n, 3))
    mean = np.stack([np.sin(5 * Z[:, 0]) * Z[:, 1], np.cos(4 * Z[:, 1]), 300 * Z[:, 2]], axis=1)
    noise = [rng.normal(size=(n, 2)), rng.standard_t(4, size=(n, 1)) / np.sqrt(2)]
    return Z, mean + STD * np.hstack(noise)


@pytest.fixture(scope="module", params=["constant", "auto"])
def three(request):
    return ManyGPRegressor(trend="constant", noise=request.param, random_state=0).fit(
        *targets_of(250, 0)
    )


def held(model, Z, Y):
    """Mean squared errors in units of the variance, and coverage of 90% intervals: (t,) each."""
    (mean, std), (lower, upper) = model.predict(Z, return_std=True), model.predict_interval(Z)
    return np.mean(((Y - mean) / std) ** 2, axis=0), np.mean((lower < Y) & (upper > Y), axis=0)


def test_each_target_has_a_std_intervals_and_noise_of_its_own(three):
    Z, Y = targets_of(2000, 1)
    squares, coverage = held(three, Z, Y)
    assert np.all(np.abs(np.log(squares)) < np.log(1.4))  # .04, 2.2 and .3 with one for all
    assert np.abs(coverage - 0.9).max() < 0.04
    assert_allclose(three.noise_std(Z).mean(axis=0), STD, rtol=0.25)
    density = three.predict_dist(Z).logpdf(Y).mean(axis=0)
    ideal = -0.5 * np.log(2 * np.pi * np.e) - np.log(STD)
    assert np.all(density > ideal - [0.3, 0.15, 0.15])
    _, std = three.predict(Z[:40], return_std=True)
    draws = three.sample_y(Z[:40], 4000, random_state=0)
    assert_allclose(draws.std(axis=-1), std, rtol=0.08)
    assert_allclose(
        np.sqrt(np.einsum("iit->it", three.predict(Z[:9], return_cov=True)[1])), std[:9]
    )


def test_left_out_rows_know_the_std_of_each_target(three):
    _, Y = targets_of(250, 0)
    mean, std = three.loo_predict()
    assert np.all(np.abs(np.log(np.mean(((Y - mean) / std) ** 2, axis=0))) < 0.15)
    by_targets = ((Y - mean) / std).ravel()
    nll = np.mean(0.5 * (np.log(2 * np.pi) + by_targets**2) + np.log(std).ravel())
    assert three.loo_score()["nll"] == pytest.approx(nll, abs=0.1)


def test_files_and_updates_keep_the_std_of_each_target(three, tmp_path):
    Z, _ = targets_of(2000, 1)
    three.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert_array_equal(again.predict(Z, return_std=True), three.predict(Z, return_std=True))
    assert_array_equal(again.predict_interval(Z), three.predict_interval(Z))
    new, more = targets_of(100, 2)
    more[:, 1] += 3 * STD[1] * np.random.default_rng(0).normal(size=100)  # one is worse now
    again.partial_fit(new, more, refresh="never")
    before, after = three.model_, again.model_

    def of_place(model):  # what is kept of left-out rows, but for the corrections in force
        variance = model.errors.variance
        total = variance * model.chosen.recalibration(variance)
        return model.noise.held_out - model.noise.own_logs(total)

    assert after.noise.own != before.noise.own
    assert_allclose(of_place(after)[:, :250], of_place(before), atol=1e-9)
    ratio = again.predict(Z, return_std=True)[1] / three.predict(Z, return_std=True)[1]
    assert np.median(ratio[:, 1]) > 1.5 * np.median(ratio[:, 0])


def test_far_away_each_target_is_as_uncertain_as_its_prior(three):
    _, Y = targets_of(250, 0)
    _, std = three.predict(np.full((1, 3), 40.0), return_std=True)
    assert np.all(std[0] > 0.8 * Y.std(axis=0))


@pytest.mark.parametrize(
    "parameters", [{"kernel": RBF(1.0) + White(0.1)}, {"calibration": "none"}]
)
def test_a_kernel_of_the_user_and_a_fixed_calibration_have_none(parameters):
    fitted = ManyGPRegressor(random_state=0, **parameters).fit(X, y)
    assert fitted.model_.noise is None


def test_another_word_is_refused():
    with pytest.raises(ValueError, match="noise must be one of auto, constant, local"):
        ManyGPRegressor(noise="loud").fit(X, y)
