"""A trend of one's own: registered once, and known everywhere."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from data import read_only
from manygp import ManyGPRegressor, load
from manygp.fit_report import Plan
from manygp.gp.trend import TrendAt, TrendModel
from manygp.settings import Settings
from manygp.training import budget
from manygp.trend import registry
from manygp.trend.custom import CustomTrend
from manygp.trend.linear import beyond, ranges

rng = np.random.default_rng(0)
X = read_only(rng.random((400, 2)))
y = read_only(3 * np.sin(50 * X.sum(axis=1)) + np.cos(4 * X[:, 1]) + 0.1 * rng.normal(size=400))
NEW = read_only(rng.random((100, 2)))


@dataclass(frozen=True, eq=False)
class Waves(TrendModel):
    """Waves of a known length across both columns."""

    coefficients: np.ndarray  # (2, t)
    low: np.ndarray
    width: np.ndarray
    explained: float = 0.9
    name: str = "waves"
    importance = np.array([0.5, 0.5])

    def at(self, X):
        z = 50 * X.sum(axis=1)
        a, b = (wave(z).reshape(-1, 1) * row for wave, row in
                zip((np.sin, np.cos), self.coefficients, strict=True))  # fmt: skip
        outside = beyond(X, self.low, self.width)
        return TrendAt(a + b, 0.0 * outside, outside)


def fit(X, Y):
    z = 50 * X.sum(axis=1)
    coefficients, *_ = np.linalg.lstsq(np.column_stack([np.sin(z), np.cos(z)]), Y, rcond=None)
    return Waves(coefficients, *ranges(X))


@pytest.fixture(autouse=True)
def waves(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    family = CustomTrend("waves", Waves, fit, row_seconds=1e-3)
    registry.register("waves", family)
    return family


@pytest.fixture(scope="module")
def chosen():
    """By the default, which knows the trend."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_registered", {"waves": CustomTrend("waves", Waves, fit)})
        return ManyGPRegressor(points_per_expert=100, time_budget=1e6, random_state=0).fit(X, y)


def test_auto_compares_it_with_the_others_and_the_report_names_it(chosen):
    report = chosen.calibration_report_
    compared = {one.value: one.nll for one in report.alternatives if one.parameter == "trend"}
    assert report.chosen["trend"] == "waves"
    assert compared["waves"] < compared["constant"] - 0.5
    truth = 3 * np.sin(50 * NEW.sum(axis=1)) + np.cos(4 * NEW[:, 1])
    assert np.sqrt(np.mean((chosen.predict(NEW) - truth) ** 2)) < 0.4  # of 2.2


def test_its_columns_count_where_relevance_is_told(chosen):
    relevance = chosen.relevance()
    assert relevance.trend[0] == relevance.trend[1] > 0.3
    assert relevance.local[1] > relevance.local[0]


def test_its_slopes_are_those_of_the_model(chosen):
    x, h = NEW[:1], 1e-5
    _, _, slope = chosen.predict(x, return_std=True, return_mean_grad=True)
    steps = h * np.eye(2)[:, None]
    expected = [(chosen.predict(x + s) - chosen.predict(x - s))[0] / (2 * h) for s in steps]
    assert_allclose(slope, expected, rtol=1e-3)


def test_a_row_that_is_left_out_has_not_taught_it(waves):
    noise = np.random.default_rng(1).normal(size=(60, 1))
    data = budget.TrainingData(X[:60], noise, np.zeros(60), constant_mean=True)
    found = waves._trend(data, 0, 1)
    changed = waves._trend(data._replace(residuals=noise + 100 * np.eye(60)[:, :1]), 0, 1)
    assert_array_equal(changed.fitted[0], found.fitted[0])
    assert np.abs(changed.fitted[1:] - found.fitted[1:]).max() > 1
    assert_allclose(found.model.at(X[:60]).mean + found.shift, found.fitted, atol=1e-12)


def test_the_budget_knows_what_it_costs():
    costs = budget.Costs(np.array([1.0, 1000.0]), np.array([1e-9, 1.0]))
    job = budget.Job((10_000, 2), True, 1, costs)
    plan = Plan(200, (np.inf,), (0.0,), 1000, 1)
    seconds = budget.phases(plan, job, Settings(trend="waves"))["waves trend"]
    assert seconds == pytest.approx(6 * 1e-3 * 10_000)


def test_without_a_form_for_files_it_is_not_saved_and_says_why(chosen, tmp_path):
    with pytest.raises(ValueError, match="trend=waves, whose model has no `to_file`"):
        chosen.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_file_of_a_trend_that_is_not_registered_says_what_to_do(tmp_path, monkeypatch):
    class Saved(Waves):
        def to_file(self):
            arrays = {
                "trend_b": self.coefficients,
                "trend_low": self.low,
                "trend_width": self.width,
            }
            return {"name": "waves"}, arrays

        @classmethod
        def from_file(cls, found, arrays, shape):
            return cls(*(arrays[f"trend_{name}"] for name in ("b", "low", "width")))

    saved = CustomTrend("waves", Saved, lambda X, Y: Saved(**vars(fit(X, Y))))
    monkeypatch.setattr(registry, "_registered", {"waves": saved})
    given = {"trend": "waves", "points_per_expert": 200, "hyperparameters": "shared"}
    ManyGPRegressor(**given, random_state=0).fit(X, y).save(tmp_path / "model")
    monkeypatch.setattr(registry, "_registered", {})
    with pytest.raises(ValueError, match=r"unknown trend type 'waves'.*must be registered"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda X, Y: object(), "has no name: give it one"),
        (lambda X, Y: replace(fit(X, Y), name="other"), "has the name 'other'"),
        (lambda X, Y: fit(X, np.hstack([Y, Y])), r"1 finite numbers .* its shape is \(80, 2\)"),
        (lambda X, Y: fit(X, Y * np.nan), "finite numbers"),
    ],
    ids=["no-name", "other-name", "shape", "nan"],
)
def test_a_model_that_is_none_is_refused(wrong, message, monkeypatch):
    if "finite" in message and "shape" not in message:
        monkeypatch.setattr(np.linalg, "lstsq", lambda A, Y, rcond: (np.full((2, 1), np.nan),))
    monkeypatch.setattr(registry, "_registered", {"waves": CustomTrend("waves", Waves, wrong)})
    with pytest.raises(ValueError, match=message):
        ManyGPRegressor(trend="waves", n_jobs=1).fit(X, y)


@pytest.mark.parametrize("name", ["auto", "linear", "other"])
def test_a_name_that_is_taken_or_not_its_own_is_not_registered(waves, name):
    with pytest.raises(ValueError, match=f"cannot be registered as '{name}'"):
        registry.register(name, waves)
