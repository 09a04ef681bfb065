"""How the trend is chosen: by rows that are left out, the simplest first."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from manygp import ManyGPRegressor
from manygp.gp.trend import TrendCandidate, TrendFactory
from manygp.training import trends


def levy(X):
    """Levy's function: waves along each column."""
    w = 1 + (X - 1) / 4
    inner, last = w[:, :-1], w[:, -1]
    waves = np.sum((inner - 1) ** 2 * (1 + 10 * np.sin(np.pi * inner + 1) ** 2), axis=1)
    end = (last - 1) ** 2 * (1 + np.sin(2 * np.pi * last) ** 2)
    return waves + np.sin(np.pi * w[:, 0]) ** 2 + end


def chosen_trend(fitted):
    trend = fitted.model_.committee.trend
    return "constant" if trend is None else trend.model.name


def report_of(fitted, parameter):
    report = fitted.calibration_report_
    return {one.value: one.nll for one in report.alternatives if one.parameter == parameter}


def test_an_additive_function_gets_an_additive_trend():
    rng = np.random.default_rng(0)
    X = rng.uniform(-10, 10, (520, 3))
    y = levy(X) + 0.5 * rng.normal(size=520)
    train, test = slice(420), slice(420, None)
    fitted = ManyGPRegressor(time_budget=1e6, random_state=0).fit(X[train], y[train])
    assert chosen_trend(fitted) == "additive"
    scores = report_of(fitted, "trend")
    assert scores["additive"] < scores["constant"] - 0.3
    error = np.sqrt(np.mean((fitted.predict(X[test]) - y[test]) ** 2))
    plain = ManyGPRegressor(trend="constant", random_state=0).fit(X[train], y[train])
    assert error < 0.5 * np.sqrt(np.mean((plain.predict(X[test]) - y[test]) ** 2))


@pytest.mark.filterwarnings("ignore:nothing was learned")
def test_noise_gets_no_trend():
    rng = np.random.default_rng(1)
    fitted = ManyGPRegressor(random_state=0).fit(rng.random((450, 3)), rng.normal(size=450))
    assert chosen_trend(fitted) == "constant"


@pytest.mark.parametrize(
    ("pairs_alone", "chosen"), [(0.6, "pairs"), (0.7, "constant")], ids=["half", "more than half"]
)
def test_where_lines_lose_a_richer_trend_is_tried_if_it_leaves_half_their_squared_error(
    monkeypatch, pairs_alone, chosen
):
    with_experts = {"constant": 0.0, "linear": 0.01, "additive": -1.0, "pairs": -0.2}

    class Comparison:
        is_whole = True

        def nll(self, candidate, best):
            return with_experts[candidate.name] + 1e-3 * np.arange(8)

    monkeypatch.setattr(trends._TrendComparison, "of", lambda *_: Comparison())
    alone = {"constant": 0.0, "linear": 1.0, "additive": 0.9, "pairs": pairs_alone}
    factories = (
        TrendFactory(
            lambda _, name=name: TrendCandidate(name, np.zeros((1, 1))),
            np.exp(2 * nll - 1) / (2 * np.pi),  # normal errors of this variance have this NLL
            is_nested=True,
        )
        for name, nll in alone.items()
    )
    best, compared = trends.choose_trend(factories, None, None, None, np.inf)
    assert best.name == chosen
    assert [one.value for one in compared] == ["constant", "linear", "pairs"][: len(compared)]


def test_few_rows_that_hang_on_all_columns_get_one_expert():
    rng = np.random.default_rng(2)
    X = rng.random((420, 5))
    parts = [np.sin(4 * column) for column in X.T]
    y = sum(parts) + 2 * parts[0] * parts[1] + 0.05 * rng.normal(size=420)
    fitted = ManyGPRegressor(random_state=0).fit(X, y)
    assert set(report_of(fitted, "structure")) == {"global", "local"}
    assert "constant" in report_of(fitted, "trend")  # what was compared before is still told
    assert len(fitted.experts_) == 1
    assert "Additive" in repr(fitted.kernel_)


@pytest.mark.parametrize("parameters", [{"trend": "none"}, {"trend": "constant"}])
def test_what_is_asked_for_is_not_questioned(parameters):
    rng = np.random.default_rng(3)
    X = rng.random((260, 2))
    model = ManyGPRegressor(points_per_expert=100, random_state=0, **parameters)
    fitted = model.fit(X, 10 * X[:, 0])
    assert chosen_trend(fitted) == "constant"
    assert report_of(fitted, "trend") == {}
    means = {float(expert.mean[0]) == 0.0 for expert in fitted.experts_}
    assert means == {parameters["trend"] == "none"}


def test_prior_mean_still_works_and_says_what_to_set():
    rng = np.random.default_rng(4)
    X, y = rng.random((60, 2)), rng.normal(size=60)
    settings = {"points_per_expert": 30, "hyperparameters": "shared", "random_state": 0}
    with pytest.warns(FutureWarning, match="set trend='none'"):
        old = ManyGPRegressor(prior_mean="zero", **settings).fit(X, y)
    new = ManyGPRegressor(trend="none", **settings).fit(X, y)
    assert_array_equal(old.predict(X), new.predict(X))
    with pytest.raises(ValueError, match="set trend alone"):
        ManyGPRegressor(prior_mean="zero", trend="linear").fit(X, y)
