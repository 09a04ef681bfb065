"""Rows that are equal in everything are one row that came twice, and no measurements."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from data import read_only
from manygp import ManyGPRegressor, answers, load
from manygp.training.pipeline import groups_of

RNG = np.random.default_rng(0)
X = read_only(RNG.uniform(size=(60, 2)))
y = read_only(np.sin(4 * X[:, 0]) + X[:, 1] + 0.3 * RNG.normal(size=60))
NEW = read_only(RNG.uniform(size=(200, 2)))
TWICE = read_only(np.r_[np.arange(60), np.arange(20)])


def fitted(X, y, **known):
    return ManyGPRegressor(random_state=0).fit(X, y, **known)


def test_copies_change_nothing_and_are_told(tmp_path):
    with pytest.warns(UserWarning, match="20 rows are copies of others"):
        model = fitted(X[TWICE], y[TWICE])
    plain = fitted(X, y)
    assert_array_equal(model.predict(NEW, return_std=True), plain.predict(NEW, return_std=True))
    assert_array_equal(model.row_ids_, np.arange(20, 80))  # of copies the last one stays
    assert_allclose(model.loo_predict()[0][-20:], plain.loo_predict()[0][:20], rtol=1e-9)
    model.save(tmp_path / "model.manygp")
    assert_array_equal(load(tmp_path / "model.manygp").row_ids_, model.row_ids_)
    model.partial_fit(NEW[:1], [1.0])
    assert model.row_ids_[-1] == 80


def test_a_table_that_was_read_twice_promises_no_more_than_once():
    rng = np.random.default_rng(1)
    with pytest.warns(UserWarning, match="copies"):
        model = fitted(np.r_[X, X], np.r_[y, y])
    lower, upper = model.predict_interval(NEW, 0.9)
    truth = np.sin(4 * NEW[:, 0]) + NEW[:, 1] + 0.3 * rng.normal(size=200)
    assert np.mean((lower <= truth) & (truth <= upper)) > 0.8  # taken for measurements, .69


def test_categories_of_copies_go_with_them():
    names = [f"k{i % 15}" for i in range(60)]
    table = pd.DataFrame({"x": X[:, 0], "name": names})
    with pytest.warns(UserWarning, match="20 rows are copies"):
        model = fitted(table.iloc[TWICE], y[TWICE])
    codes = model.model_.encoder.codes_
    assert len(codes) == 60
    assert_array_equal(codes[-20:], fitted(table, y).model_.encoder.codes_[:20])


def test_measurements_are_no_copies():
    """Other targets, noise or weights; counts that agree; places that are measured often."""
    kept = {
        "counts": (X[TWICE], np.round(y[TWICE]), {}),
        "noise": (X[TWICE], y[TWICE], {"alpha": np.r_[np.zeros(60), np.ones(20)]}),
        "weights": (X[TWICE], y[TWICE], {"sample_weight": np.r_[np.ones(60), np.full(20, 2.0)]}),
        "often": (np.tile(X[:12], (5, 1)), np.tile(y[:12], 5), {}),
    }
    for rows, targets, known in kept.values():
        assert len(fitted(rows, targets, **known).row_ids_) == len(rows)


def test_rows_that_touch_floats_ends_are_compared():
    wide = X * [1e300, 1e-300]
    with pytest.warns(UserWarning, match="20 rows are copies"):
        assert len(fitted(wide[TWICE], y[TWICE]).row_ids_) == 60


def copies_left_out():
    with pytest.warns(UserWarning, match="copies of others.*loo_predict"):
        return fitted(X[TWICE], y[TWICE]), y[TWICE]


def copies_and_weights_of_zero():
    weights = np.ones(80)
    weights[[3, 40, 63, 79]] = 0.0
    with pytest.warns(UserWarning, match="18 rows are copies of others"):
        return fitted(X[TWICE], y[TWICE], sample_weight=weights), y[TWICE]


def weights_of_zero():
    return fitted(X, y, sample_weight=np.arange(60) % 7 > 0), y


def weights_of_zero_in_groups():
    known = {"sample_weight": np.arange(60) % 7 > 0, "groups": np.arange(60) // 6}
    model = ManyGPRegressor(trend="constant", random_state=0)
    return model.fit(X, y, **known), y


def forgotten_and_new():
    return fitted(X, y).forget([0, 1, 30]).partial_fit(NEW[:2], [0.5, 1.0]), np.r_[y, 0.5, 1.0]


MODELS = copies_left_out, copies_and_weights_of_zero, weights_of_zero, weights_of_zero_in_groups
MODELS = *MODELS, forgotten_and_new


@pytest.mark.parametrize("make", MODELS)
def test_left_out_answers_are_asked_for_by_the_numbers_of_rows(make, tmp_path):
    model, given = make()
    held, numbers = model.row_ids_, np.arange(len(given))
    mean, std = model.loo_predict()  # one for each of row_ids_, in their order
    assert_allclose(answers.training_rows(model.model_)[1][:, 0], given[held], atol=1e-12)
    assert len(mean) == len(held) < len(given)
    model.save(tmp_path / "model.manygp")
    for one in (model, load(tmp_path / "model.manygp")):
        some = held[[-1, 7, 0]]
        assert_allclose(one.loo_predict(some), np.array((mean, std))[:, [-1, 7, 0]], rtol=1e-9)
        assert_allclose(one.loo_predict(np.isin(numbers, held)), (mean, std), rtol=1e-9)
        for gone in np.setdiff1d(numbers, held)[::4]:
            with pytest.raises(ValueError, match=f"the model has no row {gone}: "):
                one.loo_predict([held[0], gone])


def test_a_copy_is_found_wherever_it_stands():
    """Products of BLAS round equal rows by their places, so that copies were missed."""
    rng = np.random.default_rng(0)
    for n in range(10, 60):
        X = rng.normal(size=(n, 8 + n % 6))
        X[: n // 3] = X[-(n // 3) :]
        assert len(set(groups_of(X[rng.permutation(n)]))) == n - n // 3
