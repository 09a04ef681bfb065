"""What a fit is expected to cost, and what it does with the time that it has."""

import pickle
import warnings
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sk

from data import noisy_rows, read_only, two_waves
from manygp import ManyGPRegressor
from manygp.committee.committee import PARTITIONS, Layout
from manygp.fit_report import Plan
from manygp.gp.marginal_likelihood import TrainingData
from manygp.kernels.base import split_noise
from manygp.paper import LABELS
from manygp.settings import OVERLAP_LADDER, SHRINKAGE_LADDER, SHRINKAGES, Settings
from manygp.training import budget, choose, pipeline, trends
from manygp.training import experts as builder
from manygp.training.budget import (
    COST,
    Costs,
    Job,
    afford,
    estimate,
    measure,
    plans,
)
from manygp.training.choose import choose_committee
from manygp.training.experts import Builder, ExecutionContext
from models import FIXED, FREE, answers_at, assert_sound, choosing
from patching import with_numbers

X, y, QUERIES = noisy_rows(two_waves, 150, 40, reach=3.0)
TWO = read_only(np.column_stack([y, 100 * X[:, 1]]))
model = partial(choosing, points_per_expert=25)
answers = answers_at(QUERIES)
DATA = TrainingData(X, ((y - y.mean()) / y.std())[:, None], np.zeros(150), True)
SPACE = Settings().space
WHOLE = Plan(200, SHRINKAGE_LADDER, OVERLAP_LADDER, 1000, 2)
# A machine on which an evaluation takes 8 s for 1,000 rows, and n^3 of that for others.
CUBIC = Costs(np.array([1.0, 1000.0]), np.array([8e-9, 8.0]))
FOREVER, NO_TIME = 1e9, 1e-6


def six_slices(X, n_parts, rng):
    """A partition that has its own idea of how many experts there are."""
    return np.array_split(np.argsort(X[:, 0]), 6)


def cost(plan=WHOLE, shape=(20_000, 4), n_jobs=1, costs=CUBIC):
    return estimate(plan, Job(shape, True, n_jobs, costs))


def hurried(fitted, targets=y):
    """Fitted in no time, which it says."""
    with pytest.warns(UserWarning, match="time_budget") as caught:
        fitted.fit(X, targets)
    assert len(caught) == 1
    return fitted


@pytest.fixture
def slow(monkeypatch):
    """A machine whose speed is known, so that nothing depends on the clock."""
    monkeypatch.setattr(budget, "measure", lambda data, kernel: CUBIC)


# Costs


def test_an_evaluation_costs_what_was_measured():
    rows = np.array([50, 100, 200, 400, 1000])
    seconds = np.array([1e-4, 3e-4, 9e-4, 5e-3, 4e-2])
    found = [Costs(rows, seconds).evaluation(n) for n in rows]
    assert_allclose(found, seconds, rtol=1e-12)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.5])
def test_between_measurements_the_cost_is_a_power_of_the_rows(power):
    rows = np.array([50, 200, 1000])
    costs = Costs(rows, 1e-6 * rows**power)
    for n in (50, 61.5, 199, 500, 999):
        assert costs.evaluation(n) == pytest.approx(1e-6 * n**power, rel=1e-12)


def test_beyond_the_last_measurement_the_cost_grows_with_the_cube():
    costs = Costs(np.array([50, 200]), np.array([0.1, 0.2]))
    for n in (200, 400, 12_345):
        assert costs.evaluation(n) == pytest.approx(0.2 * (n / 200) ** 3, rel=1e-12)


def test_below_the_first_measurement_the_cost_is_the_first():
    assert Costs(np.array([50, 200]), np.array([0.1, 0.2])).evaluation(3) == pytest.approx(0.1)


def test_a_single_measurement_is_enough():
    costs = Costs(np.array([7]), np.array([0.1]))
    found = [costs.evaluation(n) for n in (1, 7, 14)]
    assert_allclose(found, [0.1, 0.1, 0.8], rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 49, 50, 51, 60, 150])
@pytest.mark.parametrize("targets", [y[:, None], TWO], ids=["one-target", "two-targets"])
def test_measured_costs_are_positive(n, targets):
    data = TrainingData(X[:n], targets[:n], np.zeros(n), True)
    costs = measure(data, FREE)
    assert np.all(np.diff(costs.rows) > 0)
    assert costs.rows[-1] == min(n, budget.COST.measured_rows[-1])
    assert np.all((costs.seconds > 0) & np.isfinite(costs.seconds))
    assert len(costs.seconds) == len(costs.rows)
    assert all(0 < costs.evaluation(size) < np.inf for size in (1, n, 10 * n))


def test_all_sizes_up_to_sixty_rows_can_be_measured(monkeypatch):
    with_numbers(monkeypatch, budget, "COST", measured_rows=(5, 50))
    for n in range(1, 61):
        costs = measure(DATA.some(np.arange(n)), FREE)
        assert_array_equal(costs.rows, np.unique(np.minimum([5, 50], n)))
        assert np.all(costs.seconds > 0)


# Estimates


def test_a_plan_with_its_cost_is_otherwise_the_same():
    assert cost()._replace(seconds=0, bytes=0, final_seconds=0) == WHOLE._replace(
        seconds=0, bytes=0, final_seconds=0
    )


@pytest.mark.parametrize("points", [10, 200, 1000])
def test_cost_grows_with_the_rows(points):
    found = [cost(WHOLE._replace(points_per_expert=points), (n, 4)) for n in (4000, 9000, 10**6)]
    assert found[0].seconds < found[1].seconds < found[2].seconds
    assert found[0].bytes < found[1].bytes < found[2].bytes
    assert found[0].final_seconds < found[1].final_seconds < found[2].final_seconds


def test_cost_of_a_single_expert_grows_with_the_rows():
    found = [cost(shape=(n, 4)) for n in (1, 2, 60, 150, 399)]
    assert np.all(np.diff([one.seconds for one in found]) > 0)
    assert np.all(np.diff([one.bytes for one in found]) > 0)


def test_cost_grows_with_the_columns():
    narrow, wide = cost(shape=(20_000, 1)), cost(shape=(20_000, 100))
    assert narrow.seconds < wide.seconds
    assert narrow.bytes < wide.bytes


def test_cost_grows_with_the_overlaps():
    found = [cost(WHOLE._replace(overlaps=OVERLAP_LADDER[:k])) for k in (1, 2, 3)]
    assert found[0].seconds < found[1].seconds < found[2].seconds
    assert found[0].bytes < found[1].bytes < found[2].bytes
    given = [cost(WHOLE._replace(overlaps=(o,))) for o in (0.0, 0.5, 2.0)]
    assert given[0].final_seconds < given[1].final_seconds < given[2].final_seconds


def test_cost_grows_with_the_shrinkages_and_the_kernels():
    seconds = [cost(WHOLE._replace(shrinkages=SHRINKAGE_LADDER[:k])).seconds for k in (1, 2, 3, 4)]
    assert np.all(np.diff(seconds) > 0)
    assert cost(WHOLE._replace(kernels=1)).seconds < cost().seconds


def test_cost_grows_with_the_rows_of_the_shared_kernel():
    assert cost(WHOLE._replace(shared_rows=500)).seconds < cost().seconds


def test_cost_falls_with_the_workers():
    found = [cost(n_jobs=n_jobs) for n_jobs in (1, 2, 4)]
    assert found[0].seconds > found[1].seconds > found[2].seconds
    assert found[0].final_seconds > found[1].final_seconds > found[2].final_seconds
    assert found[0].seconds < 4 * found[2].seconds
    assert cost(n_jobs=None).seconds == found[0].seconds


def test_the_final_seconds_are_part_of_all():
    for plan in plans(WHOLE):
        for shape in ((1, 1), (150, 2), (10_000, 8)):
            found = cost(plan, shape)
            assert 0 < found.final_seconds < found.seconds < np.inf


@pytest.mark.parametrize("shrinkages", [(0.0,), (30.0,), (np.inf,), (lambda kernel: 10.0,)])
def test_shrinkages_that_are_given_have_a_cost(shrinkages):
    found = cost(WHOLE._replace(shrinkages=shrinkages, kernels=1))
    assert 0 < found.seconds < cost().seconds
    assert found.shrinkages == shrinkages


@pytest.mark.parametrize("overlap", [0.0, 1.0, 2.0])
def test_memory_holds_the_factors(overlap):
    found = cost(WHOLE._replace(overlaps=(overlap,)))
    factors = 8 * 100 * (200 * (1 + overlap)) ** 2
    assert factors < found.bytes < 2 * factors + 1e9
    alone = estimate(WHOLE._replace(points_per_expert=9000), Job((9000, 2), True, 1, CUBIC))
    assert 8 * 9000**2 < alone.bytes < 16 * 9000**2 + 1e9


@pytest.mark.parametrize("n_kept", [1, 2, 3])
def test_overlaps_that_do_not_fit_into_memory_cost_nothing(monkeypatch, n_kept):
    expected = cost(WHOLE._replace(overlaps=OVERLAP_LADDER[:n_kept]))
    largest = 8 * 100 * (200 * (1 + OVERLAP_LADDER[n_kept - 1])) ** 2
    with_numbers(monkeypatch, builder, "FITTING", largest_factors=largest)
    assert (cost().seconds, cost().bytes) == (expected.seconds, expected.bytes)


def test_a_plan_reads_well():
    text = str(WHOLE)
    assert text == (
        "experts of 200 rows, overlap up to 4, 4 shrinkages, 2 shared kernels from blocks of "
        "1000 rows"
    )
    small = WHOLE._replace(
        shrinkages=(30.0,), overlaps=(1.5,), kernels=1, seconds=12.34, bytes=2.5e9
    )
    assert str(small) == (
        "experts of 200 rows, overlap up to 1.5, 1 shrinkage, 1 shared kernel from blocks of 1000 "
        "rows: about 12 s and 2.5 GB"
    )


# Plans

WHOLES = [
    WHOLE,
    WHOLE._replace(shrinkages=(30.0,), kernels=1),
    WHOLE._replace(overlaps=(1.5,), shared_rows=75),
    *(WHOLE._replace(points_per_expert=points) for points in (1, 10, 24, 25, 49, 50, 10**6)),
]


@pytest.mark.parametrize("whole", WHOLES, ids=str)
def test_the_whole_plan_comes_first_and_none_exceeds_it(whole):
    options = list(plans(whole))
    assert str(options[0]) == str(whole)
    for plan in options:
        assert 1 <= plan.points_per_expert <= whole.points_per_expert
        assert plan.shrinkages == whole.shrinkages[: len(plan.shrinkages)] != ()
        assert plan.overlaps == whole.overlaps[: len(plan.overlaps)] != ()
        assert 1 <= plan.shared_rows <= whole.shared_rows
        assert 1 <= plan.kernels <= whole.kernels


@pytest.mark.parametrize("whole", WHOLES, ids=str)
def test_experts_shrink_to_the_least_but_not_below_it(whole):
    points = [plan.points_per_expert for plan in plans(whole)]
    assert sorted(points, reverse=True) == points
    assert min(points) >= min(COST.fewest_points, whole.points_per_expert)
    assert min(points) < 2 * COST.fewest_points


def test_of_one_size_of_experts_later_plans_are_cheaper():
    options = [plan for plan in plans(WHOLE) if plan.points_per_expert == 200]
    seconds = [cost(plan).seconds for plan in options]
    assert len(options) > 2
    assert np.all(np.diff(seconds) < 0)


# The best that fits


def options_of(whole, n_jobs=None):
    return [estimate(plan, Job(X.shape, True, n_jobs, CUBIC)) for plan in plans(whole)]


@pytest.mark.parametrize("points", [10, 60, 200])
def test_the_first_plan_that_fits_is_taken(slow, points):
    whole = WHOLE._replace(points_per_expert=points)
    options = options_of(whole)
    for wanted in options:
        seconds = wanted.seconds / COST.planned_share * (1 + 1e-9)
        found = afford(whole, Job(X.shape, True, None, CUBIC), seconds)
        assert found == next(one for one in options if one.seconds <= wanted.seconds * (1 + 1e-9))


def test_a_part_of_the_time_is_not_planned_for(slow):
    first, *_ = options_of(WHOLE)
    assert afford(WHOLE, Job(X.shape, True, None, CUBIC), first.seconds) != first
    assert afford(WHOLE, Job(X.shape, True, None, CUBIC), np.inf) == first


@pytest.mark.parametrize("seconds", [1e-9, 0.0, -5.0])
@pytest.mark.parametrize("points", [10, 200])
def test_the_cheapest_plan_is_taken_if_none_fits(slow, points, seconds):
    whole = WHOLE._replace(points_per_expert=points)
    cheapest = min(one.seconds for one in options_of(whole))
    assert afford(whole, Job(X.shape, True, None, CUBIC), seconds).seconds == cheapest


# The model

SETTINGS = {
    "auto": {"routing": 2, "temperature": 3.0},
    "given": {"overlap": 1.5, "hyperparameters": "hierarchical", "routing": 2},
    "independent": {"hyperparameters": "independent", "overlap": 0},
    "callable-shrinkage": {"hyperparameters": lambda kernel: 10.0, "overlap": 1},
    "paper": LABELS["bt-ent-c"],
    "paper-kmeans": LABELS["kx-var"],
    "softmax": LABELS["gp-pro-sm"],
    "gp-full": LABELS["gp-full"],
    "gp-pro-full": LABELS["gp-pro-full"],
    "nested": {"aggregation": "nested"},
    "grbcm": {"aggregation": "grbcm"},
    "scikit-learn": {"kernel": sk.RBF() + sk.WhiteKernel(0.1), "overlap": 1},
    "fixed": {"kernel": FIXED},
    "tiny-experts": {"points_per_expert": 10, "kernel": FIXED},
    "one-expert": {"points_per_expert": 200},
    "noise": {"alpha": np.linspace(0.01, 0.1, 150), "kernel": FIXED},
}
EVERY_SETTING = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


@EVERY_SETTING
def test_enough_time_changes_nothing(settings):
    plain, rich = (model(**settings, time_budget=seconds) for seconds in (None, FOREVER))
    assert_array_equal(answers(rich.fit(X, y)), answers(plain.fit(X, y)))
    assert rich.calibration_report_ == plain.calibration_report_
    assert rich.nearest_ == plain.nearest_
    assert rich.plan_.points_per_expert == plain.plan_.points_per_expert


@pytest.mark.parametrize("parameters", [{"time_budget": FOREVER}, {"verbose": True}], ids=str)
@pytest.mark.parametrize("points_per_expert", [60, 200])
def test_enough_time_changes_nothing_where_the_partition_counts_for_itself(
    parameters, points_per_expert
):
    settings = {"partition": six_slices, "points_per_expert": points_per_expert, "kernel": FIXED}
    plain, other = (model(**settings, **more).fit(X, y) for more in ({}, parameters))
    assert other.calibration_report_ == plain.calibration_report_
    assert_array_equal(answers(other), answers(plain))


@EVERY_SETTING
def test_no_time_is_warned_of_and_still_gives_a_model(settings):
    fitted = hurried(model(**settings, time_budget=NO_TIME))
    assert_sound(fitted, QUERIES)
    assert np.all(np.isfinite(fitted.loo_predict()))
    assert fitted.plan_.seconds > NO_TIME


def test_the_warning_names_both_times_and_the_place():
    with pytest.warns(UserWarning, match=r"takes about .* s, more than the 1e-06 s of ") as caught:
        model(kernel=FIXED, time_budget=NO_TIME).fit(X, y)
    assert caught[0].filename == __file__


def test_two_targets_fit_into_a_budget():
    fitted = hurried(model(time_budget=NO_TIME), TWO)
    assert fitted.predict(QUERIES).shape == (40, 2)
    plain, rich = (
        model(kernel=FIXED, time_budget=seconds).fit(X, TWO) for seconds in (None, FOREVER)
    )
    assert_array_equal(answers(rich), answers(plain))


@pytest.mark.filterwarnings("ignore:one row tells nothing")
@pytest.mark.parametrize("n", [1, 2, 7, 150])
def test_fewer_rows_than_one_expert_has_fit_into_a_budget(n):
    plain, rich = (
        model(points_per_expert=200, time_budget=seconds).fit(X[:n], y[:n])
        for seconds in (None, FOREVER)
    )
    assert len(rich.experts_) == 1
    assert_array_equal(answers(rich), answers(plain))
    with pytest.warns(UserWarning, match="time_budget"):
        model(points_per_expert=200, time_budget=NO_TIME).fit(X[:n], y[:n])


@pytest.mark.filterwarnings("ignore:the least that can be done:UserWarning")
@pytest.mark.parametrize("points", [10, 60, 100, 200])
@pytest.mark.parametrize("partition", ["balltree", "random"])
def test_the_experts_are_those_of_the_plan(slow, points, partition):
    whole = WHOLE._replace(points_per_expert=points)
    sizes = set()
    for seconds in (
        NO_TIME,
        *(one.seconds / COST.planned_share * 1.001 for one in options_of(whole)[::3]),
    ):
        settings = {"partition": partition, "kernel": FIXED, "routing": 2, "time_budget": seconds}
        fitted = model(points_per_expert=points, **settings)
        plan = fitted.fit(X, y).plan_
        sizes.add(plan.points_per_expert)
        assert len(fitted.experts_) == max(1, 150 // plan.points_per_expert)
        own = [len(expert.indices) for expert in fitted.experts_]
        assert max(own) - min(own) <= 1
        assert min(COST.fewest_points, points) <= plan.points_per_expert <= points
        if fitted.calibration_report_ is not None:
            chosen = fitted.calibration_report_.chosen
            assert chosen["shrinkage"] in plan.shrinkages
            assert chosen["overlap"] in plan.overlaps
    assert (len(sizes) > 1) == (points >= 2 * COST.fewest_points)


def test_less_time_means_smaller_experts_and_fewer_choices(slow):
    begin = model(points_per_expert=100, time_budget=FOREVER).fit(X, y).plan_
    with pytest.warns(UserWarning, match="time_budget"):
        end = model(points_per_expert=100, time_budget=NO_TIME).fit(X, y).plan_
    assert (begin.points_per_expert, begin.shrinkages) == (100, SHRINKAGE_LADDER)
    assert end.points_per_expert < 100
    assert len(end.shrinkages) == len(end.overlaps) == end.kernels == 1
    assert end.seconds < begin.seconds


def test_without_a_budget_the_plan_has_no_cost():
    plan = model(kernel=FIXED).fit(X, y).plan_
    assert (plan.points_per_expert, plan.shrinkages, plan.overlaps) == (
        25,
        SHRINKAGE_LADDER,
        OVERLAP_LADDER,
    )
    assert np.isnan([plan.seconds, plan.bytes, plan.final_seconds]).all()
    assert "GB" not in str(plan)


def test_a_budget_does_not_change_what_the_user_has_chosen():
    given = {"overlap": 1.5, "hyperparameters": "hierarchical", "routing": 2, "temperature": 3.0}
    fitted = hurried(model(**given, time_budget=NO_TIME))
    assert (fitted.plan_.overlaps, fitted.plan_.shrinkages) == ((1.5,), (30.0,))
    assert fitted.calibration_report_.chosen["overlap"] == 1.5
    assert fitted.calibration_report_.chosen["shrinkage"] == 30.0
    assert fitted.nearest_ == 2
    assert {len(expert.neighbours) for expert in fitted.experts_} == {round(1.5 * 25)}
    assert len({tuple(expert.kernel.theta) for expert in fitted.experts_}) == 6
    assert fitted.get_params(deep=False)["points_per_expert"] == 25


@pytest.mark.parametrize(("name", "shrinkage"), SHRINKAGES.items())
def test_a_budget_does_not_change_the_hyperparameters_that_were_asked_for(name, shrinkage):
    fitted = hurried(model(hyperparameters=name, time_budget=NO_TIME))
    assert fitted.plan_.shrinkages == (shrinkage,)
    assert fitted.calibration_report_.chosen["shrinkage"] == shrinkage


def test_a_kernel_of_your_own_stays_as_it_is():
    fitted = hurried(model(kernel=FIXED, time_budget=NO_TIME))
    assert all(expert.kernel == split_noise(FIXED) for expert in fitted.experts_)


@pytest.mark.parametrize("aggregation", ["nested", "grbcm"])
def test_smaller_experts_are_no_reason_to_refuse_what_one_expert_may_do(slow, aggregation):
    settings = {
        "points_per_expert": 150,
        "aggregation": aggregation,
        "hyperparameters": "independent",
    }
    assert len(model(**settings).fit(X, y).experts_) == 1
    fitted = hurried(model(**settings, time_budget=NO_TIME))
    assert np.all(np.isfinite(answers(fitted)))


@pytest.mark.parametrize("label", ["gp-full", "gp-pro-full"])
def test_the_plan_knows_that_an_expert_has_all_rows(label, slow):
    fitted = ManyGPRegressor.from_label(label, points_per_expert=25, time_budget=FOREVER)
    assert len(fitted.fit(X, y).experts_[0].indices) == 150
    alone = estimate(Plan(150, (0.0,), (0.0,), 1000, 1), Job(X.shape, False, None, CUBIC))
    assert fitted.plan_.seconds > 0.5 * alone.seconds


@pytest.mark.parametrize(
    "value", [-1, -1e-9, np.nan, np.inf, "5", "auto", True, np.True_, [1.0], 1j]
)
def test_what_is_no_time_is_refused_before_any_work(value):
    with pytest.raises(ValueError, match=r"time_budget must be None or a number of at least 0"):
        model(time_budget=value).fit(None, None)


@pytest.mark.parametrize("value", [0, 0.0, np.float32(1e-6)])
def test_very_little_time_is_allowed(value):
    assert np.all(np.isfinite(answers(hurried(model(kernel=FIXED, time_budget=value)))))


@pytest.mark.parametrize("value", [10**9, np.int64(10**9), np.float32(1e9)])
def test_whole_seconds_are_seconds(value):
    settings = {"kernel": FIXED, "overlap": 0, "routing": 2, "temperature": 3.0}
    expected = answers(model(**settings).fit(X, y))
    assert_array_equal(answers(model(**settings, time_budget=value).fit(X, y)), expected)


def test_clone_and_pickle_keep_the_budget():
    fitted = model(kernel=FIXED, time_budget=FOREVER).fit(X, y)
    copy = clone(fitted)
    assert copy.get_params(deep=False) == fitted.get_params(deep=False)
    assert copy.time_budget == FOREVER
    assert not hasattr(copy, "plan_")
    assert_array_equal(answers(copy.fit(X, y)), answers(fitted))
    thawed = pickle.loads(pickle.dumps(fitted))
    assert thawed.plan_ == fitted.plan_
    assert thawed.time_budget == FOREVER
    assert_array_equal(answers(thawed), answers(fitted))


def test_a_failed_fit_leaves_the_plan_as_it_was():
    fitted = model(kernel=FIXED, time_budget=FOREVER).fit(X, y)
    before = fitted.plan_
    with pytest.raises(ValueError, match="NaN"):
        fitted.fit(X, np.where(np.arange(150) == 3, np.nan, y))
    assert fitted.plan_ is before


# Deadlines


def make_builder():
    parts = PARTITIONS["balltree"](X, 6, np.random.default_rng(0))
    layout = Layout.of(X, parts, np.ones(2))
    starts = [FREE.theta[None]] * 6
    return Builder(DATA, layout, FREE, starts, None, ExecutionContext())


def test_after_the_deadline_the_simplest_committee_is_kept():
    found = choose_committee(make_builder(), SPACE, np.random.default_rng(0), deadline=-np.inf)
    simplest = SPACE._replace(shrinkages=SHRINKAGE_LADDER[:1], overlaps=OVERLAP_LADDER[:1])
    expected = choose_committee(make_builder(), simplest, np.random.default_rng(0))
    assert found.report == expected.report
    assert found.rules == expected.rules
    report, committee = found.report, found.committee
    assert (report.chosen["shrinkage"], report.chosen["overlap"]) == (np.inf, 0.0)
    assert all(len(expert.neighbours) == 0 for expert in committee.experts)
    assert all(expert.kernel is FREE for expert in committee.experts)


@pytest.mark.parametrize("n_in_time", [0, 1, 3, 7])
def test_the_best_committee_by_the_deadline_is_kept(monkeypatch, n_in_time):
    clock = iter([*np.zeros(n_in_time), *np.full(99, 2.0)])
    monkeypatch.setattr(choose, "perf_counter", lambda: next(clock))
    tried, evaluate = [], choose.evaluate

    def spy(builder, space, left_out, candidate):
        tried.append(candidate)
        return evaluate(builder, space, left_out, candidate)

    monkeypatch.setattr(choose, "evaluate", spy)
    report = choose_committee(make_builder(), SPACE, np.random.default_rng(0), deadline=1.0).report
    assert len(tried) <= 1 + n_in_time
    assert (report.chosen["shrinkage"], report.chosen["overlap"]) in tried
    for parameter in ("shrinkage", "overlap"):
        several = [one for one in report.alternatives if one.parameter == parameter]
        assert sum(one.chosen for one in several) == bool(several)


def test_after_the_deadline_there_is_no_second_kernel(monkeypatch):
    with_numbers(monkeypatch, pipeline, "FITTING", shared_rows=75)
    settings = {"overlap": 0, "calibration": "none", "routing": 2}
    compared = [
        one.parameter for one in model(**settings).fit(X, y).calibration_report_.alternatives
    ]
    assert compared.count("kernel") == 2
    monkeypatch.setattr(choose, "perf_counter", lambda: np.inf)
    late = model(**settings).fit(X, y).calibration_report_
    assert "kernel" not in [one.parameter for one in late.alternatives]


def test_without_time_no_trend_is_looked_for(monkeypatch):
    looked = []
    monkeypatch.setattr(trends, "families", lambda trend: looked.append(trend) or [])
    rng = np.random.default_rng(0)
    X = rng.random((600, 2))
    for budget_, tries in ((0.0, 0), (1e6, 1)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ManyGPRegressor(time_budget=budget_, random_state=0).fit(X, X[:, 0])
        assert len(looked) == tries
