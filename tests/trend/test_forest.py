"""Forests as a trend: plain arrays that say what scikit-learn's trees say, and honest rows."""

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesRegressor

import manygp
from manygp import ManyGPRegressor
from manygp.trend.forest import FOREST, _rounded, forest_trend, grow, part_of, trees_of


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 8, size=(120, 3)) / 8  # single precision holds them, as trees do
    return X, np.column_stack([np.sin(5 * X[:, 0]) + X[:, 1], rng.normal(size=120)])


def test_arrays_say_what_the_trees_say(rows):
    X, Y = rows
    forest = ExtraTreesRegressor(20, bootstrap=True, random_state=0).fit(X, Y[:, 0])
    np.testing.assert_allclose(trees_of(forest).predict(X), forest.predict(X), atol=1e-12)


def test_a_row_is_predicted_by_trees_that_have_not_seen_it(rows):
    X, Y = rows
    _, unseen, importance = grow(X, Y, 3)
    order = np.lexsort([*Y.T, *X.T])
    settings = {"min_samples_leaf": FOREST.leaf_rows, "bootstrap": True, "oob_score": True}
    known = ExtraTreesRegressor(FOREST.trees, random_state=3, **settings)
    known.fit(X[order], _rounded(Y[order])[:, 0])
    np.testing.assert_allclose(unseen[order, 0], known.oob_prediction_, atol=1e-12)
    assert importance.shape == (3,)
    assert importance.sum() == pytest.approx(1)


def test_the_order_of_rows_has_no_say(rows):
    X, Y = rows
    order = np.random.default_rng(1).permutation(len(X))
    one, other = forest_trend(X, Y, 0), forest_trend(X[order], Y[order], 0)
    np.testing.assert_array_equal(one.fitted[order], other.fitted)
    np.testing.assert_array_equal(one.model.at(X).mean, other.model.at(X).mean)


def test_half_of_a_forest_is_half_of_all_it_says(rows):
    X, Y = rows
    whole = forest_trend(X, Y, 0)
    half = part_of(whole, 0.5)
    np.testing.assert_allclose(half.model.at(X).mean, whole.model.at(X).mean / 2)
    np.testing.assert_array_equal(half.fitted, whole.fitted / 2)
    assert half.model.explained == whole.model.explained / 4


@pytest.mark.parametrize("points", [200, 60])
def test_a_file_keeps_a_forest(rows, tmp_path, points):
    X, Y = rows
    model = ManyGPRegressor(trend="forest", points_per_expert=points, random_state=0).fit(X, Y)
    model.save(tmp_path / "forest.manygp")
    loaded = manygp.load(tmp_path / "forest.manygp")
    new = np.random.default_rng(2).uniform(size=(30, 3))
    for one, other in zip(
        model.predict(new, return_std=True), loaded.predict(new, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert loaded.calibration_report_.chosen["trend"] == "forest"


def test_a_forest_has_no_gradients(rows):
    X, Y = rows
    model = ManyGPRegressor(trend="forest", random_state=0).fit(X, Y[:, 0])
    with pytest.raises(ValueError, match="'forest' have no gradients"):
        model.predict(X[:1], return_std=True, return_mean_grad=True)
