"""`manygp.river` with the real river: `make test-clients`."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from manygp import ManyGPRegressor

# Environments without river collect this file, too.
checks = pytest.importorskip("river.checks")
RiverManyGP = pytest.importorskip("manygp.river").RiverManyGP

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("default")]


def lean(**settings):
    estimator = ManyGPRegressor(trend="constant", random_state=0, n_jobs=1)
    return RiverManyGP(estimator, **settings)


def stream(n, seed=0):
    rng = np.random.default_rng(seed)
    for a, b in rng.uniform(size=(n, 2)):
        yield {"a": a, "b": b}, np.sin(6 * a) + b + 0.1 * rng.normal()


def test_it_passes_the_checks_of_river():
    checks.check_estimator(lean(window=300))


def test_batches_are_fit_and_then_added():
    model, rows = lean(batch=40), list(stream(100))
    for x, y in rows:
        model.learn_one(x, y)
    X, y = np.array([[x["a"], x["b"]] for x, _ in rows]), np.array([y for _, y in rows])
    expected = model.estimator.fit(X[:40], y[:40]).partial_fit(X[40:80], y[40:80])
    assert [model.predict_one(x) for x, _ in rows[80:83]] == [
        expected.predict(row[None])[0] for row in X[80:83]
    ]


def test_before_the_first_batch_it_predicts_the_mean():
    model = lean()
    assert model.predict_one({"a": 1.0}) == 0.0
    for y in (1.0, 3.0):
        model.learn_one({"a": 1.0}, y)
    assert model.predict_one({"b": 2.0}) == 2.0
    assert 1e300 in model.predict_interval_one({"a": 1.0})


def test_it_learns_in_a_pipeline_and_its_intervals_hold():
    from river import evaluate, metrics, preprocessing

    model = preprocessing.StandardScaler() | lean(window=300)
    error = evaluate.progressive_val_score(stream(600), model, metrics.RMSE())
    assert error.get() < 0.35  # with the 50 first rows, of which it knows the mean only
    known = model["RiverManyGP"]
    assert len(known._model.row_ids_) == len(known._rows) == 300
    scaler = model["StandardScaler"]
    held = [
        y in known.predict_interval_one(scaler.transform_one(x), coverage=0.8)
        for x, y in stream(300, seed=1)
    ]
    assert 0.7 < np.mean(held) < 0.9


def test_rows_of_a_world_that_is_gone_are_forgotten():
    model = lean(window=100)
    for shift in (0.0, 5.0):
        for x, y in stream(150):
            model.learn_one(x, y + shift)
    errors = [model.predict_one(x) - y - 5 for x, y in stream(50, seed=1)]
    assert np.sqrt(np.mean(np.square(errors))) < 0.3


def test_a_feature_that_emerges_is_learned_and_one_that_is_missing_is_its_mean():
    model = lean()
    for i, (x, y) in enumerate(stream(200)):
        model.learn_one({"a": x["a"]} if i < 100 else x, y)
    low, high = (model.predict_one({"a": 0.5, "b": b}) for b in (0.1, 0.9))
    assert high - low > 0.3
    missing = [model.predict_one(x) for x in ({"a": 0.5}, {"a": 0.5, "b": np.nan, "c": 1.0})]
    assert missing == [model.predict_one({"a": 0.5, "b": model._means["b"]})] * 2


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ({"a": "red", "b": 1.0}, 1.0, "'a' must be a number, not 'red': OneHotEncoder makes"),
        ({"a": 1.0, "b": 1.0}, np.nan, "y must be a finite number"),
        ({"a": np.inf, "b": 1.0}, 1.0, "'a' must be finite"),
    ],
)
def test_bad_rows_are_refused_and_change_nothing(x, y, message):
    model = lean(batch=20)
    for row, target in stream(39):
        model.learn_one(row, target)
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=message):
        model.learn_one(x, y)
    assert pickle.dumps(model) == before


def test_a_failed_update_leaves_the_rows_that_wait(monkeypatch):
    model, rows = lean(batch=20), list(stream(40))
    for row, target in rows[:39]:
        model.learn_one(row, target)
    before = pickle.dumps(model)
    with monkeypatch.context() as patch:
        patch.setattr(ManyGPRegressor, "partial_fit", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.learn_one(*rows[39])
    assert pickle.dumps(model) == before
    model.learn_one(*rows[39])
    assert_array_equal(model._model.row_ids_, np.arange(40))


@pytest.mark.parametrize("settings", [{"batch": 0}, {"batch": 50, "window": 49}])
def test_a_window_holds_a_batch(settings):
    with pytest.raises(ValueError, match="1 <= batch <= window"):
        lean(**settings)
