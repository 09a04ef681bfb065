"""The learning curve: whether more rows would help, and how sure scores are."""

import numpy as np
import pytest

from manygp import ManyGPRegressor, load, metrics
from manygp.runtime.words import plus_minus


def wave(n, noise=0.05, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    return X, np.sin(9 * X[:, 0]) * np.cos(7 * X[:, 1]) + noise * rng.normal(size=n)


@pytest.mark.parametrize(("n", "parameters"), [(60, {}), (450, {"points_per_expert": 150})])
def test_it_ends_with_what_left_out_rows_say_and_more_rows_help_a_wave(n, parameters, tmp_path):
    model = ManyGPRegressor(random_state=0, **parameters).fit(*wave(n))
    curve, said = model.learning_curve(), model.loo_score()
    assert curve.rows.tolist() == [n // 4, n // 2, n]
    assert curve.rmse[-1] == pytest.approx(said["rmse"])
    assert curve.nll[-1] == pytest.approx(said["nll"])
    assert curve.helps
    assert np.all(np.diff(curve.rmse) < 0)
    assert "more rows help" in str(curve)
    model.save(tmp_path / "m.manygp")
    np.testing.assert_allclose(load(tmp_path / "m.manygp").learning_curve().nll, curve.nll)


def test_fewer_rows_are_as_good_as_the_curve_says_where_hyperparameters_are_known():
    X, y = wave(300)
    X_test, y_test = wave(2000, seed=1)
    plain = {"trend": "constant", "random_state": 0}
    model = ManyGPRegressor(**plain).fit(X, y)
    same = ManyGPRegressor(model.kernel_, optimizer=None, **plain)
    halves = [same.fit(X[i::2], y[i::2]).predict(X_test) for i in range(2)]
    errors = [metrics.rmse(y_test, mean) for mean in halves]
    curve = model.learning_curve()
    assert curve.rmse[1] == pytest.approx(np.mean(errors), abs=3 * curve.rmse_error[1])


def test_more_rows_do_not_help_where_a_constant_is_all_there_is():
    rng = np.random.default_rng(0)
    curve = ManyGPRegressor(random_state=0).fit(rng.uniform(size=(150, 3)), rng.normal(size=150))
    curve = curve.learning_curve()
    assert curve.gain < 0.05
    assert not curve.helps
    assert "hardly help" in curve.advice


def test_what_has_no_curve_is_refused():
    X, y = wave(40)
    with pytest.raises(ValueError, match="needs 20 rows, and there are 19"):
        ManyGPRegressor(random_state=0).fit(X[:19], y[:19]).learning_curve()
    by_group = ManyGPRegressor(random_state=0).fit(X, y, groups=np.arange(40) // 4)
    with pytest.raises(ValueError, match="groups or time"):
        by_group.learning_curve()


def test_the_standard_error_is_the_spread_of_scores_of_other_rows():
    rng = np.random.default_rng(0)
    y = rng.standard_t(5, size=(400, 300))
    scores = [metrics.rmse(row, np.zeros(300)) for row in y]
    said = [metrics.standard_error(metrics.rmse, row, np.zeros(300)) for row in y]
    assert np.mean(said) == pytest.approx(np.std(scores), rel=0.15)
    with pytest.raises(ValueError, match="at least 2 rows"):
        metrics.standard_error(metrics.rmse, [1.0], [2.0])


def test_a_number_has_as_many_digits_as_its_error_tells():
    assert plus_minus(0.29142, 0.01234) == "0.291 ± 0.012"
    assert plus_minus(12345.6, 234.5) == "12,346 ± 234"
    assert plus_minus(1e-9, 2e-10) == "1e-09 ± 2e-10"
    assert plus_minus(1.0, 0.0) == "1 ± 0"
