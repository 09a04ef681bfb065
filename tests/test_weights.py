"""Weights of rows: the learned noise of a row is divided by its weight."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from data import read_only
from manygp import ManyGPRegressor, load
from manygp.gp.marginal_likelihood import Likelihood, TrainingData
from manygp.kernels import RBF, White
from manygp.kernels.base import split_noise
from manygp.training.pipeline import find_repeats

RNG = np.random.default_rng(0)
X = read_only(RNG.uniform(size=(120, 2)))
y = read_only(np.sin(6 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=120))
W = read_only(RNG.uniform(0.3, 3.0, size=120))
QUERIES = read_only(RNG.uniform(size=(9, 2)))
KERNEL = 1.0 * RBF(0.4, "fixed") + White(0.05, "fixed")
SEVERAL = {"points_per_expert": 30, "random_state": 0}
KINDS = {
    "one expert": {"random_state": 0},
    "several": SEVERAL,
    "one kernel": {**SEVERAL, "hyperparameters": "shared", "aggregation": "nested"},
    "common rows": {**SEVERAL, "hyperparameters": "shared", "aggregation": "grbcm"},
    **{name: {**SEVERAL, "trend": name} for name in ("linear", "additive", "boosted")},
    "forest": {**SEVERAL, "trend": RandomForestRegressor(5, random_state=0)},
    "paper": {"points_per_expert": 30, "random_state": 0, "calibration": "information"},
}


def fitted(weights=None, rows=X, targets=y, **parameters):
    return ManyGPRegressor(**parameters).fit(rows, targets, sample_weight=weights)


def answers(model, queries=QUERIES):
    return np.array(model.predict(queries, return_std=True))


def test_the_noise_of_a_row_is_divided_by_its_weight():
    """The same as that noise, known, on top of a kernel without any."""
    weighted = fitted(W, kernel=KERNEL, normalize_y=False)
    noise = 0.05 / W
    known = ManyGPRegressor(1.0 * RBF(0.4, "fixed"), normalize_y=False, alpha=noise).fit(X, y)
    mean, std = weighted.predict(QUERIES, return_std=True, latent=True)
    assert_allclose(mean, known.predict(QUERIES), rtol=1e-9)
    assert_allclose(std, known.predict(QUERIES, return_std=True, latent=True)[1], rtol=1e-7)
    new = weighted.predict(QUERIES, return_std=True)[1]  # of weight 1
    assert_allclose(new**2, std**2 + 0.05)
    assert_allclose(weighted.loo_predict(), known.loo_predict(), rtol=1e-8)


def test_a_weight_is_as_good_as_that_many_equal_measurements():
    """Where the noise is known; equal measurements would tell that there is little of it."""
    counts = RNG.integers(1, 5, size=120)
    parameters = {"kernel": KERNEL, "optimizer": None, "normalize_y": False}
    repeated = fitted(None, X.repeat(counts, axis=0), y.repeat(counts), **parameters)
    assert_allclose(answers(fitted(counts, **parameters)), answers(repeated), rtol=1e-7)


@pytest.mark.parametrize("name", KINDS)
def test_left_out_rows_have_their_own_noise(name):
    model = fitted(W, **KINDS[name])
    _, std = model.loo_predict()
    _, latent = model.loo_predict(latent=True)
    extra, order = std**2 - latent**2, np.argsort(W)
    assert np.all(np.isfinite(answers(model)))
    assert extra[order[:40]].mean() > 1.5 * extra[order[-40:]].mean()


@pytest.mark.parametrize("name", ["one expert", "forest"])
def test_weights_of_one_change_no_digit(name):
    plain = answers(fitted(**KINDS[name]))
    assert_array_equal(answers(fitted(np.ones(120), **KINDS[name])), plain)


def test_weights_that_are_next_to_one_change_next_to_nothing():
    parameters = {"kernel": KERNEL, "optimizer": None}
    plain = answers(fitted(**parameters))
    assert_allclose(answers(fitted(np.full(120, 1 + 1e-9), **parameters)), plain, rtol=1e-7)
    assert_array_equal(answers(fitted(1, **parameters)), plain)


@pytest.mark.parametrize("name", ["one expert", "several", "linear"])
def test_rows_of_weight_zero_are_left_out(name):
    weights = W.copy()
    weights[::5] = 0.0
    targets, kept = y.copy(), weights > 0
    targets[::5] = 1e9
    model = fitted(weights, X, targets, **KINDS[name])
    without = fitted(weights[kept], X[kept], y[kept], **KINDS[name])
    assert_array_equal(answers(model), answers(without))
    assert model.loo_predict()[0].shape == (96,)


def test_rows_of_weight_zero_teach_the_encoder_nothing():
    table = pd.DataFrame({"a": X[:, 0], "kind": pd.Series([*"uvw"] * 40, dtype="str")})
    weights = np.where(table["kind"] == "w", 0.0, 1.0)
    model = fitted(weights, table, y, random_state=0)
    kept = table["kind"] != "w"
    queries = table[:9]
    assert_array_equal(
        answers(model, queries),
        answers(fitted(weights[kept], table[kept], y[kept], random_state=0), queries),
    )
    alpha = np.where(kept, 0.01, 1e3)
    other = ManyGPRegressor(random_state=0).fit(table, y, sample_weight=weights, alpha=alpha)
    alike = ManyGPRegressor(random_state=0).fit(table[kept], y[kept], alpha=0.01)
    assert_array_equal(answers(other, queries), answers(alike, queries))


def test_heavy_rows_are_believed():
    """Half of the rows have noise of ten times the std, and weights that say so."""
    rng = np.random.default_rng(1)
    noisy = np.arange(120) % 2 == 0
    targets = np.sin(6 * X[:, 0]) + X[:, 1] + np.where(noisy, 1.0, 0.1) * rng.normal(size=120)
    truth = np.sin(6 * QUERIES[:, 0]) + QUERIES[:, 1]
    plain, weighted = fitted(None, X, targets), fitted(np.where(noisy, 0.01, 1.0), X, targets)
    errors = [np.sqrt(np.mean((one.predict(QUERIES) - truth) ** 2)) for one in (plain, weighted)]
    assert errors[1] < 0.6 * errors[0]
    assert 0.05 < weighted.noise_std(QUERIES).mean() < 0.2


@pytest.mark.parametrize("name", ["one expert", "several"])
def test_a_common_factor_of_the_weights_is_one_of_the_noise(name):
    plain, heavy = (fitted(factor * W, **KINDS[name]) for factor in (1.0, 1e4))
    mean, std = plain.predict(QUERIES, return_std=True, latent=True)
    other, _ = heavy.predict(QUERIES, return_std=True, latent=True)
    assert np.all(np.abs(other - mean) < 0.1 * std)
    assert_allclose(heavy.noise_std(QUERIES), 100 * plain.noise_std(QUERIES), rtol=0.1)


def test_the_gradient_of_the_likelihood_knows_weights():
    kernel = split_noise(1.0 * RBF(0.4) + White(0.05))
    rows = TrainingData(X, y[:, None], np.zeros(120), True, spread=1 / W)
    likelihood = rows.likelihood(np.arange(120))
    _, gradient = likelihood.value_and_gradient(kernel)
    step = 1e-6
    for i, slope in enumerate(gradient):
        theta = kernel.theta + step * (np.arange(len(gradient)) == i)
        up = likelihood.value_and_gradient(kernel.with_theta(theta))[0]
        theta = kernel.theta - step * (np.arange(len(gradient)) == i)
        down = likelihood.value_and_gradient(kernel.with_theta(theta))[0]
        assert_allclose(slope, (up - down) / (2 * step), rtol=1e-5)
    same = Likelihood(X, y[:, None], 0.05 / W, True)
    alone = split_noise(1.0 * RBF(0.4))
    assert_allclose(
        likelihood.posterior(kernel).log_likelihood, same.posterior(alone).log_likelihood
    )


def test_repeated_rows_speak_of_a_row_of_weight_one():
    rng = np.random.default_rng(2)
    rows, weights = np.repeat(rng.random((200, 1)), 2, axis=0), np.tile([4.0, 1.0], 200)
    targets = rng.normal(size=400) / np.sqrt(weights)
    data = TrainingData(rows, targets[:, None], np.zeros(400), True, spread=1 / weights)
    assert_allclose(find_repeats(data).noise_floor, 1.0, atol=0.2)


@pytest.mark.parametrize("name", ["one expert", "several", "linear"])
def test_models_with_weights_are_saved(name, tmp_path):
    model = fitted(W, **KINDS[name])
    model.save(tmp_path / "model.manygp")
    loaded = load(tmp_path / "model.manygp")
    assert_array_equal(answers(loaded), answers(model))
    assert_array_equal(loaded.loo_predict(), model.loo_predict())


def test_the_number_of_jobs_and_a_checkpoint_change_nothing(tmp_path):
    first = fitted(W, **SEVERAL)
    assert_array_equal(answers(fitted(W, **SEVERAL, n_jobs=2)), answers(first))
    model = ManyGPRegressor(**SEVERAL)
    for _ in range(2):
        model.fit(X, y, sample_weight=W, checkpoint=tmp_path)
        assert_array_equal(answers(model), answers(first))
    with pytest.raises(ValueError, match="data"):
        model.fit(X, y, sample_weight=2 * W, checkpoint=tmp_path)


WRONG = {
    "negative": (np.where(np.arange(120) == 7, -1.0, 1.0), "-1.0 in row 7"),
    "missing": (np.where(np.arange(120) == 7, np.nan, 1.0), "nan in row 7"),
    "infinite": (np.where(np.arange(120) == 7, np.inf, 1.0), "inf in row 7"),
    "next to nothing": (np.where(np.arange(120) == 7, 1e-200, 1.0), "1e-200 in row 7"),
    "none left": (np.zeros(120), "in all rows"),
    "too few": (np.ones(119), "each of the 120 rows"),
    "a table": (np.ones((120, 1)), "each of the 120 rows"),
    "text": (["a"] * 120, "each of the 120 rows"),
}


@pytest.mark.parametrize("case", WRONG)
def test_weights_that_cannot_be_are_refused(case):
    weights, message = WRONG[case]
    model = ManyGPRegressor()
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, sample_weight=weights)
    assert not hasattr(model, "n_features_in_")


def test_a_file_has_no_weights(tmp_path):
    with pytest.raises(ValueError, match="without y or sample_weight"):
        ManyGPRegressor().fit(tmp_path / "rows.csv", target="y", sample_weight=W)


def test_weights_pass_through_pipelines_and_searches():
    weights = np.where(np.arange(120) % 2 == 0, 0.01, 1.0)
    direct = fitted(weights, MinMaxScaler().fit_transform(X), random_state=0)
    line = make_pipeline(MinMaxScaler(), ManyGPRegressor(random_state=0))
    line.fit(X, y, manygpregressor__sample_weight=weights)
    queries = MinMaxScaler().fit(X).transform(QUERIES)
    assert_array_equal(line.predict(QUERIES), direct.predict(queries))
    search = GridSearchCV(
        ManyGPRegressor(KERNEL, optimizer=None), {"normalize_y": [True, False]}, cv=2
    )
    search.fit(X, y, sample_weight=weights)
    best = ManyGPRegressor(KERNEL, optimizer=None, **search.best_params_)
    best.fit(X, y, sample_weight=weights)
    assert_array_equal(search.predict(QUERIES), best.predict(QUERIES))
    given = {"sample_weight": weights}
    scores = cross_validate(ManyGPRegressor(KERNEL, optimizer=None), X, y, cv=2, params=given)
    plain = cross_validate(ManyGPRegressor(KERNEL, optimizer=None), X, y, cv=2)
    assert np.all(scores["test_score"] != plain["test_score"])
