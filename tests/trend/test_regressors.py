"""Any regressor as a trend, boosted trees as arrays, and what is refused."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from manygp import ManyGPRegressor
from manygp.gp.marginal_likelihood import TrainingData
from manygp.trend.boosted import PLACES, Folds, Trees, choose_boosting, fit_folds, split_gains

RNG = np.random.default_rng(0)
X = RNG.random((160, 2))
Y = 3 * X[:, 0] ** 2 + X[:, 1] + 0.1 * RNG.normal(size=160)
QUERIES = RNG.random((30, 2))


def model(trend, **parameters):
    settings = {"points_per_expert": 40, "hyperparameters": "shared", "random_state": 0}
    return ManyGPRegressor(trend=trend, **{**settings, **parameters})


class Odd(RegressorMixin, BaseEstimator):
    """Predicts what it is told to."""

    def __init__(self, answer="nan"):
        self.answer = answer

    def fit(self, X, y):
        if self.answer == "error":
            raise RuntimeError("no way")
        return self

    def predict(self, X):
        return {"nan": np.full(len(X), np.nan), "short": np.zeros(1)}[self.answer]


def test_trees_predict_what_scikit_learn_predicts():
    grown = HistGradientBoostingRegressor(max_iter=20, random_state=0).fit(X, Y)
    trees = Trees.of(grown)
    assert_allclose(trees.predict(X), grown.predict(X), rtol=1e-12)
    assert_array_equal(trees.predict(QUERIES)[3:4], trees.predict(QUERIES[3:4]))
    assert split_gains(grown, 2)[0] > split_gains(grown, 2)[1] > 0


def test_the_number_of_rows_asked_at_a_time_changes_no_digit():
    trees = Trees.of(HistGradientBoostingRegressor(max_iter=5, random_state=0).fit(X, Y))
    many = np.random.default_rng(1).random((PLACES + 3, 2))
    found = trees.predict(many)
    assert_array_equal(found[:7], trees.predict(many[:7]))
    assert_array_equal(found[-3:], trees.predict(many[-3:]))


def scaled(X, y):
    return TrainingData(X, y[:, None], np.zeros(len(X)), constant_mean=True)


def test_noise_gets_few_trees_and_a_rough_function_many():
    rng = np.random.default_rng(0)
    rows = rng.random((1500, 2))
    noise = choose_boosting(scaled(rows, rng.normal(size=1500)), 0, 1)
    rough = choose_boosting(scaled(rows, np.sign(np.sin(9 * rows.sum(axis=1)))), 0, 1)
    assert noise.regressors[0].max_iter < 20 < rough.regressors[0].max_iter
    assert rough.mean_square < 0.3 < 0.8 < noise.mean_square


def test_rows_that_stand_for_all_are_left_out_and_no_others():
    data, rows = scaled(X, Y), np.arange(40)
    trend = fit_folds("line", (LinearRegression(),), data, Folds.of(len(X), 0, rows), 1)
    assert len(trend.model.models) == 2
    assert np.all(trend.fitted[40:] == 0)
    for (one,) in trend.model.models:
        seen = ~np.isclose(one.predict(X), trend.fitted[:, 0], rtol=0, atol=1e-12)
        assert seen[40:].all()
        assert_allclose(LinearRegression().fit(X[seen], Y[seen]).coef_, one.coef_)


def test_fold_models_add_variance_outside_of_the_range_only():
    trend = model("boosted").fit(X, Y).model_.committee.trend.model
    inside, outside = trend.at(np.array([[0.5, 0.5]])), trend.at(np.array([[3.0, 0.5]]))
    assert inside.spread == 0 < outside.spread


def test_the_rows_of_a_fold_are_predicted_by_a_model_that_has_not_seen_them():
    fitted = model(LinearRegression()).fit(X, Y)
    trend = fitted.model_.committee.trend
    data = fitted.model_.committee.training_data()
    said = np.array([one.predict(data.X) for (one,) in trend.model.models])
    matches = np.isclose(said, trend.fitted[:, 0], rtol=0, atol=1e-12)
    assert np.all(matches.any(axis=0))
    for (one,), rows in zip(trend.model.models, matches, strict=True):
        again = LinearRegression().fit(data.X[~rows], data.targets[~rows, 0])
        assert_allclose(again.coef_, one.coef_)


def test_a_pipeline_is_a_trend_and_pickle_keeps_it():
    pipeline = make_pipeline(PolynomialFeatures(2), LinearRegression())
    fitted = model(pipeline).fit(X, Y)
    mean, std = fitted.predict(QUERIES, return_std=True)
    assert_allclose(mean, 3 * QUERIES[:, 0] ** 2 + QUERIES[:, 1], atol=0.15)
    assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(QUERIES), mean)
    assert std.min() > 0


def test_a_model_file_cannot_hold_a_regressor_and_says_what_can(tmp_path):
    fitted = model(LinearRegression()).fit(X, Y)
    with pytest.raises(ValueError, match=r"trend=LinearRegression.*pickle or joblib keep"):
        fitted.save(tmp_path / "one.manygp")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("trend", "message"),
    [
        (Odd("nan"), "must predict a finite number"),
        (Odd("short"), r"must predict a finite number.*shape \(1,\)"),
        (Odd("error"), "cannot be fitted to 128 rows, which are scaled: no way"),
        ("nonsense", "trend must be one of auto, none"),
        (LinearRegression, "trend must be one of"),
        (7, "trend must be one of"),
    ],
)
def test_what_cannot_be_a_trend_is_refused(trend, message):
    estimator = model(trend)
    with pytest.raises(ValueError, match=message):
        estimator.fit(X, Y)
    assert not hasattr(estimator, "_model")


def test_a_regressor_that_cannot_be_cloned_is_refused():
    class Uncloneable:
        def fit(self, X, y):
            return self

        def predict(self, X):
            return np.zeros(len(X))

    with pytest.raises(ValueError, match="trend=Uncloneable cannot be cloned"):
        model(Uncloneable()).fit(X, Y)


def test_several_targets_have_a_model_each():
    fitted = model("boosted").fit(X, np.column_stack([Y, -Y]))
    mean = fitted.predict(QUERIES)
    assert mean.shape == (30, 2)
    assert_allclose(mean[:, 1], -mean[:, 0], atol=0.1)


@pytest.mark.parametrize("trend", ["additive", "boosted"])
def test_n_jobs_changes_nothing(trend):
    one, two = (model(trend, n_jobs=n).fit(X, Y).predict(QUERIES) for n in (1, 2))
    assert_array_equal(one, two)
