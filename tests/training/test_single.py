"""Variants of a single expert: which are tried, which are chosen, and who pays for the choice."""

import numpy as np
import pytest

from manygp import ManyGPRegressor
from manygp.calibration import LeftOutErrors
from manygp.committee.committee import Layout
from manygp.gp.marginal_likelihood import KernelFit, TrainingData
from manygp.kernels import RBF, White
from manygp.kernels.base import default_kernel, split_noise
from manygp.training import single
from manygp.training.choose import Selection
from manygp.training.experts import Builder, ExecutionContext
from manygp.training.single import Evaluated, Variant, _chosen, _judge, _paid


def steps(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 5))
    y = (X[:, 0] > 0.3) + 2 * (X[:, 1] > 0.6) * (X[:, 2] > 0.5) + 0.1 * rng.normal(size=n)
    return X, y


def experts_of(model):
    return {
        one.value: one.nll
        for one in model.calibration_report_.alternatives
        if one.parameter == "expert"
    }


def chosen_expert(model):
    alternatives = model.calibration_report_.alternatives
    return next(one.value for one in alternatives if one.parameter == "expert" and one.chosen)


def test_a_single_expert_has_a_constant_unless_it_is_scikit_learns():
    X = np.random.default_rng(0).uniform(size=(60, 2))
    y = 3 * np.exp(-5 * ((X - 0.5) ** 2).sum(axis=1))
    assert ManyGPRegressor(random_state=0).fit(X, y).experts_[0].mean[0] != 0
    own = ManyGPRegressor(RBF() + White(), optimizer=None, random_state=0).fit(X, y)
    for model in (own, ManyGPRegressor(trend="none", random_state=0).fit(X, y)):
        assert model.experts_[0].mean[0] == 0


def test_steps_stand_on_a_forest_and_what_is_asked_for_does_not():
    X, y = steps(200)
    X_test, y_test = steps(500, seed=1)
    model = ManyGPRegressor(random_state=0).fit(X, y)
    plain = ManyGPRegressor(trend="constant", random_state=0).fit(X, y)
    assert model.calibration_report_.chosen["trend"] == "forest"
    assert {"half a forest", "forest"} <= set(experts_of(model))
    assert not {"half a forest", "forest"} & set(experts_of(plain))
    errors = [np.std(y_test - one.predict(X_test)) for one in (model, plain)]
    assert errors[0] < 0.9 * errors[1]


def spectra(n, seed=0):
    """Forty columns that nearly agree, and a target that is made of where they differ."""
    rng = np.random.default_rng(seed)
    common, own = rng.normal(size=(n, 1)), rng.normal(size=(n, 40))
    return common + 0.3 * own, own @ np.tile([1, -1], 20) / 6 + 0.1 * rng.normal(size=n)


def test_lines_of_many_columns_are_found_by_few_rows(tmp_path):
    X, y = spectra(70, seed=5)
    X_test, y_test = spectra(500, seed=1)
    model = ManyGPRegressor(random_state=0).fit(X, y)
    plain = ManyGPRegressor(trend="constant", random_state=0).fit(X, y)
    assert model.calibration_report_.chosen["trend"] == "linear"
    errors = [np.std(y_test - one.predict(X_test)) for one in (model, plain)]
    assert errors[0] < 0.85 * errors[1]
    mean, std = model.predict(X_test, return_std=True)
    assert 0.5 < np.mean(((y_test - mean) / std) ** 2) < 2
    model.save(tmp_path / "lines.manygp")
    loaded = ManyGPRegressor.load(tmp_path / "lines.manygp")
    np.testing.assert_array_equal(loaded.predict(X_test, return_std=True), (mean, std))
    np.testing.assert_allclose(loaded.loo_predict(), model.loo_predict(), rtol=1e-9)
    model.partial_fit(X_test[:50], y_test[:50])
    assert np.std(y_test[50:] - model.predict(X_test[50:])) < 0.25


def test_a_smooth_function_tries_no_forest():
    X = np.random.default_rng(0).uniform(size=(80, 2))
    model = ManyGPRegressor(random_state=0).fit(X, np.sin(4 * X[:, 0]) + X[:, 1] ** 2)
    assert experts_of(model)
    assert not {"half a forest", "forest"} & set(experts_of(model))


def test_a_handful_of_rows_has_no_choice():
    X = np.linspace(0, 1, 12)[:, None]
    assert experts_of(ManyGPRegressor(random_state=0).fit(X, X[:, 0] ** 2)) == {}


def evaluated(name, nll, place):
    """A variant whose folds have these NLL, and whose errors tell which variant it is."""
    n = len(nll)
    errors = LeftOutErrors(
        np.full((2, n), place), np.full(n, place), np.zeros(n), np.zeros(n),
        np.arange(n), np.full((2, n), place),
    )  # fmt: skip
    return Evaluated(Variant(name, None, None), None, None, errors, np.array(nll))


def test_the_errors_of_a_fold_are_those_of_the_variant_that_other_folds_choose():
    # The second variant is better on average for the sake of the last row alone.
    nll = np.zeros(10), np.array([0.1] * 9 + [-9.0])
    both = [evaluated("first", nll[0], 1.0), evaluated("second", nll[1], 2.0)]
    assert _chosen(both) == 1
    errors = _paid(both, [np.array([i]) for i in range(9, -1, -1)])
    np.testing.assert_array_equal(errors.variance, [2.0] * 9 + [1.0])
    np.testing.assert_array_equal(errors.means, [[2.0] * 9 + [1.0]] * 2)
    np.testing.assert_array_equal(errors.rows, np.arange(10))


def test_many_columns_may_share_a_length_or_have_long_ones():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(120, 40))
    all_count = X @ rng.choice([-1.0, 1.0], 40) + 0.1 * rng.normal(size=120)
    one_counts = np.sin(5 * X[:, 0]) + 0.1 * rng.normal(size=120)
    dense, sparse = (
        ManyGPRegressor(trend="constant", random_state=0).fit(X, y)
        for y in (all_count, one_counts)
    )
    assert chosen_expert(dense) == "one length"
    lengths = dense.experts_[0].kernel.signal.right.length_scale
    np.testing.assert_allclose(lengths, lengths[0])
    assert chosen_expert(sparse) == "long lengths"
    lengths = sparse.experts_[0].kernel.signal.right.length_scale
    assert lengths[0] < 0.5 * min(lengths[1:])


def test_a_structured_kernel_of_more_hyperparameters_than_rows_is_not_tried(monkeypatch):
    rng = np.random.default_rng(0)
    X, looked = rng.uniform(size=(260, 90)), []
    monkeypatch.setattr(single, "_look", lambda _, __, data, *___: looked.append(data.X.shape[1]))
    selection = Selection(None, None, errors="some", report="one")
    for columns in (90, 5):
        data = TrainingData(X[:, :columns], X[:, :1], np.zeros(260), True)
        single.try_structured_kernel(selection, data, White(), None, ExecutionContext(1))
    assert looked == [5]


def test_a_variant_without_hope_has_no_further_folds(monkeypatch):
    learned, rng = [], np.random.default_rng(0)
    X = rng.uniform(size=(120, 2))
    data = TrainingData(X, np.sin(4 * X[:, :1]), np.zeros(120), True)
    layout = Layout.of(X, [np.arange(120)], np.ones(2))
    kernel = split_noise(default_kernel(2))
    builder = Builder(data, layout, kernel, [kernel.theta[None]], None, ExecutionContext(1))

    def learn(_, rest, *__):
        learned.append(len(rest.X))
        return rest, KernelFit(kernel)

    monkeypatch.setattr(Variant, "learn", learn)
    variant, order = Variant("any", None, None), np.arange(120)
    judged = _judge(variant, data, KernelFit(kernel), builder, (order, None))
    assert len(learned) == 10
    assert _judge(variant, data, KernelFit(kernel), builder, (order, judged.nll - 1)) is None
    assert len(learned) == 14
    assert _judge(variant, data, KernelFit(kernel), builder, (order, judged.nll + 1)) is not None
    assert len(learned) == 24


@pytest.mark.parametrize("n", [40, 150])
def test_workers_have_no_say(n):
    X, y = steps(n)
    one, two = (ManyGPRegressor(random_state=0, n_jobs=jobs).fit(X, y) for jobs in (1, 2))
    for first, second in zip(
        one.predict(X, return_std=True), two.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(first, second)


def test_rows_far_from_all_data_have_the_distribution_of_y():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(80, 2))
    y = 50 + 5 * np.cos(3 * X[:, 0]) + X[:, 1]
    mean, std = ManyGPRegressor(random_state=0).fit(X, y).predict([[1e4, -1e4]], return_std=True)
    assert mean[0] == pytest.approx(y.mean())
    assert std[0] >= y.std()
