"""The committee that calibrates itself: what it chooses, from what, and that it pays."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from data import noisy_rows, two_waves
from manygp import ManyGPRegressor, metrics
from manygp.answers import left_out_transformed
from manygp.calibration import gains, normal_nll
from manygp.committee.committee import PARTITIONS, Committee, Layout
from manygp.gp.marginal_likelihood import TrainingData
from manygp.kernels import Constant, Matern, White
from manygp.kernels.base import metric, split_noise
from manygp.paper import LABELS
from manygp.rules import TEMPERED, Information, Recalibration, VarianceCurve
from manygp.settings import OVERLAP_LADDER, SHRINKAGE_LADDER, STRENGTHS, Settings
from manygp.training import choose, pipeline
from manygp.training import experts as builder
from manygp.training.choose import (
    COMMITTEE,
    KernelChoice,
    LeftOut,
    has_no_noise,
    held_out_errors,
)
from manygp.training.experts import Builder, Candidate, ExecutionContext, affordable
from models import FIXED, answers_at, assert_sound, choosing
from patching import with_numbers

X, y, QUERIES = noisy_rows(two_waves, 150, 60, reach=3.0)
model = partial(choosing, points_per_expert=25)
answers = answers_at(QUERIES)
# Everything that could be chosen is given.
GIVEN = {
    "overlap": 1,
    "temperature": 3.0,
    "calibration": "information",
    "hyperparameters": "shared",
    "routing": 3,
}
PARAMETERS = ["shrinkage", "overlap", "temperature", "strength", "nearest", "correction"]


def alternatives(report, parameter):
    return [one for one in report.alternatives if one.parameter == parameter]


@pytest.fixture(scope="module")
def chosen():
    """The model that chooses everything for itself."""
    return model().fit(X, y)


# The report


def test_the_report_has_one_choice_per_parameter(chosen):
    report = chosen.calibration_report_
    assert list(report.chosen) == ["trend", *PARAMETERS, "local noise"]
    assert {one.parameter for one in report.alternatives} == {*PARAMETERS, "local noise"}
    assert report.n_rows == 150
    for parameter in (*PARAMETERS, "local noise"):
        several = alternatives(report, parameter)
        assert sum(one.chosen for one in several) == 1
        assert len({one.value for one in several}) == len(several)
        assert all(np.isfinite(one.nll) for one in several)


def test_alternatives_are_those_of_the_ladders(chosen):
    report = chosen.calibration_report_

    def values(parameter):
        return [one.value for one in alternatives(report, parameter)]

    assert set(values("shrinkage")) <= set(SHRINKAGE_LADDER)
    assert set(values("overlap")) <= set(OVERLAP_LADDER)
    assert tuple(values("temperature")) == TEMPERED["tempered"][1]
    assert tuple(values("strength")) == STRENGTHS
    assert values("nearest") == [2, 4, 6]  # eight, but there are six experts
    assert values("correction") == ["none", "level", "scale", "curve"]


@pytest.mark.parametrize(
    "parameter", ["shrinkage", "overlap", "temperature", "strength", "nearest"]
)
def test_the_chosen_alternative_is_the_chosen_value(chosen, parameter):
    report = chosen.calibration_report_
    (one,) = [one for one in alternatives(report, parameter) if one.chosen]
    assert one.value == report.chosen[parameter]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("weighting", ["tempered", "softmax"])
def test_the_chosen_rule_has_the_lowest_nll(weighting, seed):
    fitted = model(weighting=weighting, kernel=FIXED, overlap=0, random_state=seed).fit(X, y)
    for parameter in ("temperature", "strength", "nearest"):
        several = alternatives(fitted.calibration_report_, parameter)
        assert len(several) > 2
        (best,) = [one.nll for one in several if one.chosen]
        assert best == min(one.nll for one in several)


def test_intervals_come_from_the_rows_that_were_left_out(chosen):
    _, Y, mean, std = left_out_transformed(chosen.model_)
    scores = np.sort(np.abs(Y - mean.reshape(Y.shape)).ravel() / std.ravel())
    assert_allclose(chosen.model_.conformal_scores.errors[0], scores, rtol=1e-9)


@pytest.mark.parametrize(
    "parameters",
    [{"temperature": 1.0}, {"temperature": 16.0}, {"routing": 1}, {"routing": 4}],
    ids=str,
)
def test_other_rules_have_no_lower_nll(parameters):
    settings = {"kernel": FIXED, "overlap": 0, "calibration": "none"}
    fitted = model(**settings).fit(X, y)
    best = fitted.loo_score()["nll"]
    assert fitted.set_params(**parameters).loo_score()["nll"] >= best - 1e-12


def test_the_report_reads_well(chosen):
    report = chosen.calibration_report_
    text = str(report)
    assert "leaving out 150 rows" in text
    assert text.count("<- chosen") == len(PARAMETERS) + 1
    assert all(parameter in text for parameter in (*PARAMETERS, "local noise"))
    lines = text.splitlines()
    assert len(lines) == 3 + len(report.alternatives)
    assert max(map(len, lines)) < 60
    for line, one in zip(lines[3:], report.alternatives, strict=True):
        assert line.startswith(one.parameter)
        assert f"{one.nll:.4f}" in line
        assert ("<- chosen" in line) == one.chosen


def test_the_rules_that_answer_are_those_of_the_report(chosen):
    report = chosen.calibration_report_.chosen
    rules = chosen.model_.rules
    nearest = rules.nearest
    assert chosen.nearest_ == nearest == report["nearest"]
    assert rules.weighting.temperature == report["temperature"]
    assert rules.calibration == Information(strength=report["strength"])
    n_points = len(rules.recalibration.log_variances)
    assert {"none": n_points == 0, "scale": n_points == 1, "curve": True}[report["correction"]]
    known = [len(expert.rows) - len(expert.indices) for expert in chosen.experts_]
    assert known == [round(25 * report["overlap"])] * 6
    assert (len({id(e.kernel) for e in chosen.experts_}) == 1) == np.isinf(report["shrinkage"])


def test_the_same_seed_chooses_the_same_whatever_n_jobs(chosen):
    again = model(n_jobs=3).fit(X, y)
    assert again.calibration_report_ == chosen.calibration_report_
    assert_array_equal(answers(again), answers(chosen))


def test_another_seed_compares_on_other_folds():
    one, again, other = (
        model(random_state=seed, kernel=FIXED, calibration="none", routing=3).fit(X, y)
        for seed in (0, 0, 1)
    )
    assert again.calibration_report_ == one.calibration_report_
    assert other.calibration_report_ != one.calibration_report_


@pytest.mark.parametrize("parameters", [GIVEN, {"points_per_expert": 150}], ids=["given", "one"])
def test_where_nothing_is_left_to_choose_there_is_no_report(parameters):
    assert model(**parameters, kernel=FIXED).fit(X, y).calibration_report_ is None


@pytest.mark.parametrize(
    ("given", "parameters", "values"),
    [
        ({"overlap": 1}, ["overlap"], [1.0]),
        ({"temperature": 3}, ["temperature"], [3.0]),
        ({"hyperparameters": "shared"}, ["shrinkage"], [np.inf]),
        ({"hyperparameters": "hierarchical"}, ["shrinkage"], [30.0]),
        ({"routing": 2}, ["nearest"], [2]),
        ({"routing": None}, ["nearest"], [None]),
        ({"calibration": "none"}, ["strength", "correction"], [None, None]),
        ({"calibration": "information"}, ["strength", "correction"], [1.0, None]),
        ({"weighting": "entropy"}, ["temperature"], [None]),
    ],
    ids=str,
)
def test_what_is_given_is_respected_and_no_alternative(given, parameters, values):
    fitted = model(**given, kernel=FIXED).fit(X, y)
    report = fitted.calibration_report_
    assert [report.chosen[parameter] for parameter in parameters] == values
    listed = {one.parameter for one in report.alternatives}
    assert listed == set(PARAMETERS) - set(parameters)


def test_given_rules_are_those_that_answer():
    fitted = model(**GIVEN, kernel=FIXED).fit(X, y)
    rules = fitted.model_.rules
    nearest = rules.nearest
    assert (rules.weighting.temperature, nearest) == (3.0, 3)
    assert (rules.calibration, rules.recalibration) == (Information(), VarianceCurve())
    assert [len(expert.neighbours) for expert in fitted.experts_] == [25] * 6
    assert len({id(expert.kernel) for expert in fitted.experts_}) == 1


@pytest.mark.parametrize("label", LABELS)
def test_the_papers_models_choose_nothing(label):
    fitted = ManyGPRegressor.from_label(label, points_per_expert=25, kernel=FIXED).fit(X, y)
    assert fitted.calibration_report_ is None
    assert fitted.nearest_ is None
    assert all(len(expert.neighbours) == 0 for expert in fitted.experts_)
    assert fitted.model_.rules.recalibration == VarianceCurve()


# Near ties


def test_a_more_flexible_choice_must_gain_more_than_chance():
    nll = np.random.default_rng(0).normal(size=400)
    noise = np.random.default_rng(1).normal(size=400)
    noise -= noise.mean()
    error = noise.std() / np.sqrt(400)
    assert not gains(nll, nll)
    assert not gains(nll, nll + 0.1)
    assert not gains(nll, nll + noise)
    assert not gains(nll, nll + noise - 0.4 * error)
    assert gains(nll, nll + noise - 0.6 * error)
    assert gains(nll, nll - 1e-6)  # every row gains


def test_rules_are_compared_after_the_curve_that_they_will_have():
    rng = np.random.default_rng(0)
    variance = np.exp(rng.normal(size=2000))
    squares = variance * rng.normal(size=2000) ** 2
    # The variances of the second are wrong, but a curve makes them right.
    corrected = choose._corrected(np.array([squares, squares]), np.array([variance, variance**2]))
    first, second = normal_nll(squares, corrected).mean(axis=1)
    assert first == pytest.approx(second, abs=0.02)
    scaled = variance**2 * (squares / variance**2).mean()
    assert normal_nll(squares, scaled).mean() > first + 0.1


def test_a_gain_of_one_row_only_is_chance():
    nll = np.zeros(100)
    one = nll.copy()
    one[0] = -5.0
    one[1:] += 0.03
    assert one.mean() < 0
    assert not gains(nll, one)


# Recalibration

LEARNED = Recalibration(2.0, 1.7, 0.1, 0.02, 0.5)


@pytest.mark.parametrize("power", [0.0, 0.3, 1.0, 1.7, 4.0])
def test_a_recalibrated_variance_never_falls_with_the_variance(power):
    rule = Recalibration(2.0, power, 0.1, 0.02, 0.5)
    variance = np.geomspace(1e-6, 1e3, 400)
    recalibrated = rule(variance) * variance
    assert np.all(recalibrated > 0)
    assert np.all(np.diff(recalibrated) >= -1e-12 * recalibrated[1:])
    assert recalibrated[-1] > recalibrated[0]


def test_the_factor_is_constant_below_the_learned_range_and_fades_above_it():
    factor = LEARNED(np.array([1e-9, 0.01, 0.02, 0.1, 0.5, 0.7, 1e9]))
    assert_array_equal(factor[:3], factor[2])
    assert factor[5] == pytest.approx((0.5 * factor[4] + 0.2) / 0.7)
    assert factor[6] == pytest.approx(1.0)  # far from all data there is nothing to correct
    assert factor[3] == pytest.approx(2.0)  # the scale, at the centre
    assert factor[2] < factor[3] < factor[4]
    assert factor[4] == pytest.approx(2 * 5**0.7)


def test_no_recalibration_changes_nothing():
    assert_array_equal(Recalibration()(np.array([1e-9, 1.0, 1e9])), 1.0)
    assert_array_equal(Recalibration(3.0)(np.array([1e-9, 1.0, 1e9])), 3.0)


@pytest.mark.parametrize("aggregation", ["gpoe", "nested"])
def test_latent_and_noise_variance_share_the_factor(aggregation):
    fitted = model(kernel=FIXED, overlap=0, aggregation=aggregation).fit(X, y)

    def recalibrated(rule):
        rules = fitted._model.rules._replace(recalibration=rule)
        fitted._model = replace(fitted._model, rules=rules)
        mean, cov = fitted.predict(QUERIES, return_cov=True)
        _, latent_cov = fitted.predict(QUERIES, return_cov=True, latent=True)
        return answers(fitted), mean, cov, latent_cov

    (mean, std, latent, _), _, cov, latent_cov = recalibrated(Recalibration())
    (new_mean, new_std, new_latent, _), joint_mean, new_cov, new_latent_cov = recalibrated(LEARNED)
    assert_array_equal(new_mean, mean)
    assert_array_equal(joint_mean, mean)
    factor = LEARNED(std**2 / y.var())
    assert np.ptp(factor) > 0.5
    assert_allclose(new_std**2, factor * std**2, rtol=1e-9)
    assert_allclose(new_latent**2, factor * latent**2, rtol=1e-9)
    assert_allclose(np.diag(new_cov), new_std**2, rtol=1e-9)
    assert_allclose(np.diag(new_latent_cov), new_latent**2, rtol=1e-9)
    # Correlations of the latent function stay as they are.
    root = np.sqrt(factor)
    assert_allclose(new_latent_cov, latent_cov * np.outer(root, root), rtol=1e-9, atol=1e-14)
    assert_allclose(new_cov, cov * np.outer(root, root), rtol=1e-9, atol=1e-14)


def test_a_model_that_is_wrong_about_its_noise_is_recalibrated():
    kernel = Matern(0.9, "fixed", nu=1.5) + White(2.0, "fixed")  # of y's variance
    fitted = model(kernel=kernel, overlap=0).fit(X, y)
    mean, std = fitted.loo_predict()
    assert fitted.calibration_report_.chosen["correction"] in ("scale", "curve")
    assert np.mean(((y - mean) / std) ** 2) == pytest.approx(1, abs=0.15)
    given = model(kernel=kernel, overlap=0, calibration="none").fit(X, y)
    assert given.loo_score()["nll"] > fitted.loo_score()["nll"] + 0.1


# The builder

FREE = split_noise(Constant(1.0) * Matern(0.8, (0.05, 20.0), nu=1.5) + White(0.05))


def make_builder(targets=y, n_parts=5, kernel=FREE, partition="balltree", seed=0):
    standard = (targets - y.mean()) / y.std()
    data = TrainingData(X, standard[:, None], np.zeros(150), True)
    columns = metric(kernel, 2)
    parts = PARTITIONS[partition](X * columns, n_parts, np.random.default_rng(seed))
    starts = [kernel.theta[None]] * n_parts
    layout = Layout.of(X, parts, columns)
    return Builder(data, layout, kernel, starts, None, ExecutionContext())


@pytest.mark.parametrize("shrinkage", [30.0, 0.0])
def test_hyperparameters_are_learned_without_the_rows_that_are_left_out(shrinkage):
    left_out = np.arange(0, 150, 4)
    changed = y.copy()
    changed[left_out] += 10.0
    plain, other = (
        make_builder(targets).committee(shrinkage, 1.0, None, left_out) for targets in (y, changed)
    )
    for one, two in zip(plain.experts, other.experts, strict=True):
        assert_array_equal(two.kernel.theta, one.kernel.theta)
        assert np.any(one.kernel.theta != FREE.theta)
        assert np.any(np.isin(one.indices, left_out))  # but the expert itself knows them
        assert not np.allclose(two.coefficients, one.coefficients)
    everyone = make_builder(changed).committee(shrinkage, 1.0)
    for one, two in zip(plain.experts, everyone.experts, strict=True):
        assert np.any(np.abs(two.kernel.theta - one.kernel.theta) > 0.01)


@pytest.mark.parametrize("shrinkage", [np.inf, 30.0, 0.0])
def test_what_corrects_a_committee_has_learned_no_kernel_from_the_rows(shrinkage):
    folds = [np.arange(first, 150, 4) for first in range(4)]
    changed = y.copy()
    changed[folds[0]] += 10.0
    rules = Settings().space.first_rules._replace(nearest=2)
    left_out, best = LeftOut(None, folds, held_out=True), Candidate(shrinkage, 1.0)
    plain, other = (
        held_out_errors(make_builder(targets), rules, left_out, best).variance
        for targets in (y, changed)
    )
    assert_array_equal(other[folds[0]], plain[folds[0]])
    assert not np.allclose(other[folds[1]], plain[folds[1]])


def test_committees_are_compared_on_rows_that_did_not_teach_them(monkeypatch):
    learned, scored = [], []
    fit_kernels, map_blocks = builder.fit_kernels, Committee.map_blocks

    def spy_fit(data, tasks, kernel, shrinkage, *others, **more):
        learned.append((shrinkage, np.concatenate([task.rows for task in tasks])))
        return fit_kernels(data, tasks, kernel, shrinkage, *others, **more)

    def spy_query(self, function, query, n_jobs):
        scored.append((learned[-1], query.left_out))
        return map_blocks(self, function, query, n_jobs)

    monkeypatch.setattr(builder, "fit_kernels", spy_fit)
    monkeypatch.setattr(Committee, "map_blocks", spy_query)
    model(overlap=0, temperature=3.0, calibration="none", routing=3, hyperparameters="auto").fit(
        X, y
    )
    n_climbed = 1 + 3 * COMMITTEE.folds  # the shared kernel needs no folds, three shrinkages do
    finite = [
        (rows, left_out)
        for (shrinkage, rows), left_out in scored[:n_climbed]
        if np.isfinite(shrinkage)
    ]
    assert len(finite) >= COMMITTEE.folds
    for rows, left_out in finite:
        assert len(np.intersect1d(rows, left_out)) == 0
        assert_array_equal(np.sort(np.concatenate([rows, left_out])), np.arange(150))
    together = np.concatenate([left_out for _, left_out in finite[: COMMITTEE.folds]])
    assert_array_equal(np.sort(together), np.arange(150))


def test_equal_parts_are_one_part_that_counts_several_times():
    everything = np.arange(150)
    layout = Layout.of(X, [everything, everything.copy(), everything], np.ones(2))
    assert (len(layout), len(layout.parts), layout.copies) == (3, 1, 3)
    layout = Layout.of(X, [everything[:75], everything[:75], everything], np.ones(2))
    assert (len(layout), len(layout.parts), layout.copies) == (3, 3, 1)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_an_expert_does_not_depend_on_the_overlaps_that_were_compared_before(partition):
    fresh = make_builder(n_parts=15, partition=partition).committee(np.inf, 1.0)
    used = make_builder(n_parts=15, partition=partition)
    used.committee(np.inf, 4.0)
    for one, two in zip(fresh.experts, used.committee(np.inf, 1.0).experts, strict=True):
        assert_array_equal(two.neighbours, one.neighbours)


def test_a_committee_of_some_parts_has_the_experts_of_the_whole_one():
    members = np.array([3, 1])
    whole = make_builder().committee(np.inf, 1.0)
    some = make_builder().committee(np.inf, 1.0, members)
    for expert, m in zip(some.experts, members, strict=True):
        assert_array_equal(expert.rows, whole.experts[m].rows)
        assert_array_equal(expert.coefficients, whole.experts[m].coefficients)
    assert_array_equal(some.layout.centres, whole.layout.centres[members])


def test_an_expert_fitted_by_itself_is_held_as_firmly():
    whole = make_builder().committee(30.0, 0.0)
    alone = make_builder().committee(30.0, 0.0, np.array([2]))
    assert_allclose(alone.experts[0].kernel.theta, whole.experts[2].kernel.theta, rtol=1e-6)


# Overlap


@pytest.mark.parametrize("overlap", [0, 0.5, 1, 2.5])
def test_experts_know_overlap_times_their_rows_more(overlap):
    fitted = model(**{**GIVEN, "overlap": overlap}, kernel=FIXED).fit(X, y)
    scaled = (y - y.mean()) / y.std()
    for expert in fitted.experts_:
        assert len(expert.neighbours) == round(overlap * 25)
        assert len(np.unique(expert.rows)) == len(expert.rows)  # distinct, and not its own
        assert_array_equal(expert.X, X[expert.rows])
        assert_allclose(expert.Y[:, 0], scaled[expert.rows], rtol=1e-12)


def test_an_overlap_beyond_all_rows_is_all_rows():
    fitted = model(**{**GIVEN, "overlap": 100}, kernel=FIXED).fit(X, y)
    assert all(len(np.unique(expert.rows)) == 150 for expert in fitted.experts_)


@pytest.mark.parametrize("n_kept", [1, 2, 3, 4])
def test_overlaps_whose_factors_exceed_the_memory_are_dropped(monkeypatch, n_kept):
    factors = [8 * 100 * (200 * (1 + overlap)) ** 2 for overlap in OVERLAP_LADDER]
    with_numbers(monkeypatch, builder, "FITTING", largest_factors=factors[n_kept - 1])
    assert affordable(20_000, 100, OVERLAP_LADDER) == list(OVERLAP_LADDER[:n_kept])


def test_the_first_overlap_is_kept_whatever_it_takes(monkeypatch):
    with_numbers(monkeypatch, builder, "FITTING", largest_factors=1.0)
    assert affordable(20_000, 100, OVERLAP_LADDER) == [0.0]
    assert affordable(20_000, 100, (3.0,)) == [3.0]
    assert affordable(20_000, 100, (3.0, 4.0, 5.0)) == [3.0]


def test_the_memory_of_factors_is_bounded_for_millions_of_rows():
    for n in (10**4, 10**5, 10**6, 10**7):
        kept = affordable(n, n // 200, OVERLAP_LADDER)
        assert kept == list(OVERLAP_LADDER[: len(kept)])
        for overlap in kept[1:]:
            assert 8 * (n // 200) * (200 * (1 + overlap)) ** 2 <= builder.FITTING.largest_factors


@pytest.mark.parametrize(
    ("n", "n_parts", "overlaps", "kept"),
    [
        (150, 6, OVERLAP_LADDER, [0.0, 1.0, 2.0, 4.0]),
        (150, 3, OVERLAP_LADDER, [0.0, 1.0, 2.0]),  # twice its rows more is all there are
        (150, 2, OVERLAP_LADDER, [0.0, 1.0]),
        (150, 1, OVERLAP_LADDER, [0.0]),
        (1, 1, OVERLAP_LADDER, [0.0]),
        (150, 6, (1.0, 1.0), [1.0]),
        (150, 6, (1.0, 1.001), [1.0]),  # the same number of rows
        (150, 6, (7.0, 100.0), [7.0]),
        (150, 150, (0.0, 0.4, 1.0), [0.0, 1.0]),
    ],
)
def test_overlaps_that_mean_the_same_rows_are_compared_once(n, n_parts, overlaps, kept):
    assert affordable(n, n_parts, overlaps) == kept


def test_overlaps_that_do_not_fit_into_memory_are_not_compared(monkeypatch):
    with_numbers(monkeypatch, builder, "FITTING", largest_factors=8 * 6 * 50.0**2)
    fitted = model(kernel=FIXED, temperature=3.0, routing=3).fit(X, y)
    compared = [one.value for one in alternatives(fitted.calibration_report_, "overlap")]
    assert compared == [0.0, 1.0]
    given = model(kernel=FIXED, temperature=3.0, routing=3, overlap=4).fit(X, y)
    assert given.calibration_report_.chosen["overlap"] == 4.0


@pytest.mark.parametrize("overlap", [1, 2])
def test_neighbours_are_the_rows_nearest_to_own_rows_in_the_metric(overlap):
    scale = np.array([0.4, 2.0])
    kernel = Matern(tuple(scale), "fixed", nu=1.5) + White(0.02, "fixed")
    fitted = model(**{**GIVEN, "overlap": overlap}, kernel=kernel).fit(X, y)
    for expert in fitted.experts_:
        own = X[expert.indices] / scale
        distance = np.linalg.norm((X / scale)[:, None] - own, axis=2).min(axis=1)
        others = np.setdiff1d(np.arange(150), expert.rows)
        assert len(others) == 150 - 25 * (1 + overlap)
        assert distance[expert.neighbours].max() <= distance[others].min() * (1 + 1e-9)
        assert np.all(np.diff(distance[expert.neighbours]) >= -1e-9)  # nearest first


def test_overlapping_experts_are_better_on_a_smooth_function():
    draw = np.random.default_rng(3)
    inputs = draw.uniform(-2, 2, (900, 2))
    targets = np.sin(2 * inputs[:, 0]) * np.cos(inputs[:, 1])
    kernel = Constant(1.0, "fixed") * Matern(2.0, "fixed") + White(1e-6, "fixed")
    errors = []
    for overlap in (0, 1, 2):
        fitted = model(**{**GIVEN, "overlap": overlap}, kernel=kernel)
        mean = fitted.fit(inputs[:300], targets[:300]).predict(inputs[300:])
        errors.append(metrics.rmse(targets[300:], mean))
    assert errors[2] < errors[1] < 0.7 * errors[0]


# The metric


def test_parts_ignore_a_column_that_says_nothing():
    draw = np.random.default_rng(0)
    inputs = draw.uniform(-2, 2, (400, 2))
    targets = np.sin(2 * inputs[:, 0]) + 0.1 * draw.normal(size=400)

    def spread(fitted):
        """Mean spread of a part along each column, relative to that of all rows."""
        parts = [inputs[expert.indices] for expert in fitted.fit(inputs, targets).experts_]
        return np.mean([part.std(axis=0) for part in parts], axis=0) / inputs.std(axis=0)

    relevant, irrelevant = spread(model(points_per_expert=50, temperature=3.0, overlap=0))
    assert relevant < 0.2
    assert irrelevant > 0.9
    paper = ManyGPRegressor.from_label("bt-ent-c", points_per_expert=50, random_state=0)
    relevant, irrelevant = spread(paper)
    assert relevant > 0.3
    assert irrelevant < 0.6


# Quality


def test_the_default_is_better_than_the_papers_best():
    draw = np.random.default_rng(0)
    inputs = draw.uniform(-2, 2, (1600, 3))
    targets = np.sin(2 * inputs[:, 0]) * np.cos(inputs[:, 1]) + 0.5 * inputs[:, -1]
    targets += 0.1 * draw.normal(size=1600)
    scores = []
    for fitted in (
        ManyGPRegressor(points_per_expert=50, random_state=0),
        ManyGPRegressor.from_label("bt-ent-c", points_per_expert=50, random_state=0),
    ):
        fitted.fit(inputs[:600], targets[:600])
        mean, std = fitted.predict(inputs[600:], return_std=True)
        scores.append(metrics.nll(targets[600:], mean, std))
    assert scores[0] < scores[1] - 0.05


# Unusual data


@pytest.mark.parametrize("aggregation", ["gpoe", "rbcm", "nested", "grbcm"])
@pytest.mark.parametrize("points_per_expert", [1, 3])
def test_experts_of_next_to_no_rows(points_per_expert, aggregation):
    fitted = model(points_per_expert=points_per_expert, aggregation=aggregation)
    fitted.fit(X[:30], y[:30])
    assert len(fitted.experts_) == 30 // points_per_expert
    assert_sound(fitted, QUERIES)
    assert np.all(fitted.loo_predict()[1] > 0)


@pytest.mark.parametrize("points_per_expert", [1, 200])
def test_two_rows(points_per_expert):
    fitted = model(points_per_expert=points_per_expert).fit(X[:2], y[:2])
    assert len(fitted.experts_) == (2 if points_per_expert == 1 else 1)
    assert_sound(fitted, QUERIES)


@pytest.mark.parametrize("aggregation", ["gpoe", "nested"])
def test_a_constant_target(aggregation):
    with pytest.warns(UserWarning, match="y is constant"):
        fitted = model(aggregation=aggregation).fit(X[:75], np.full(75, 7.0))
    assert_sound(fitted, QUERIES)
    assert_allclose(fitted.predict(QUERIES), 7.0)


@pytest.mark.parametrize("aggregation", ["gpoe", "nested"])
def test_duplicate_rows(aggregation):
    thrice = np.tile(X[:25], (3, 1))
    assert_sound(model(aggregation=aggregation).fit(thrice, y[:75]), QUERIES)
    assert_sound(model(aggregation=aggregation).fit(np.ones((75, 2)), y[:75]), QUERIES)


@pytest.mark.parametrize("aggregation", ["gpoe", "nested"])
def test_a_target_without_noise(aggregation):
    targets = np.sin(2 * X[:, 0]) * np.cos(X[:, 1])
    fitted = model(aggregation=aggregation).fit(X, targets)
    assert_sound(fitted, QUERIES)
    inside = QUERIES[np.all(np.abs(QUERIES) < 1.5, axis=1)]
    truth = np.sin(2 * inside[:, 0]) * np.cos(inside[:, 1])
    assert metrics.rmse(truth, fitted.predict(inside)) < 0.05


def test_two_targets_choose_together():
    Y = np.column_stack([y, 100 * np.cos(X[:, 1])])
    fitted = model(kernel=FIXED, overlap=0).fit(X, Y)
    mean, std = fitted.predict(QUERIES, return_std=True)
    assert mean.shape == std.shape == (60, 2)
    assert len(alternatives(fitted.calibration_report_, "temperature")) == 5


# Parameters


@pytest.mark.parametrize(
    ("given", "later"),
    [
        ({"calibration": "none"}, {"calibration": "auto"}),
        ({"calibration": "information"}, {"calibration": "auto"}),
        ({"weighting": "entropy"}, {"weighting": "tempered", "temperature": "auto"}),
        ({"weighting": "softmax"}, {"weighting": "tempered", "temperature": "auto"}),
        ({"temperature": 3.0}, {"temperature": "auto"}),
        ({"routing": None}, {"routing": "auto"}),
        ({"routing": None}, {"routing": 0.1}),
        ({"routing": 2}, {"routing": "auto"}),
    ],
    ids=str,
)
def test_what_fit_did_not_choose_cannot_be_chosen_later(given, later):
    (parameter,) = set(later) - {"weighting"}
    fitted = model(**{**GIVEN, **given}, kernel=FIXED).fit(X, y)
    fitted.set_params(**later)
    with pytest.raises(ValueError, match=f"{parameter}=.*is chosen by fit.*fit again"):
        fitted.predict(QUERIES)
    assert_sound(fitted.fit(X, y), QUERIES)


@pytest.mark.parametrize(
    "later",
    [{"weighting": "entropy"}, {"temperature": 3.0}, {"aggregation": "rbcm"}, {"routing": None}],
    ids=str,
)
def test_a_calibration_that_was_learned_for_other_rules_is_refused(later):
    settings = {**GIVEN, "calibration": "auto", "temperature": "auto", "routing": "auto"}
    fitted = model(**settings, kernel=FIXED).fit(X, y).set_params(**later)
    with pytest.raises(ValueError, match=r"calibration='auto' is chosen by fit.*fit again"):
        fitted.predict(QUERIES)
    assert_sound(fitted.set_params(calibration="none"), QUERIES)


@pytest.mark.parametrize("later", [
    {"calibration": "auto"}, {"temperature": "auto"}, {"routing": "auto"}, {"routing": 0.1},
], ids=str)  # fmt: skip
def test_a_single_expert_answers_whatever_is_set_later(later):
    settings = {**GIVEN, "kernel": FIXED, "points_per_expert": 150}
    fitted = model(**settings).fit(X, y)
    expected = answers(fitted)
    assert_array_equal(answers(fitted.set_params(**later)), expected)


def test_what_fit_chose_may_be_replaced_and_restored(chosen):
    expected = answers(chosen)
    try:
        chosen.set_params(calibration="none", temperature=0.1, routing=None)
        assert not np.allclose(answers(chosen), expected)
    finally:
        chosen.set_params(calibration="auto", temperature="auto", routing="auto")
    assert_array_equal(answers(chosen), expected)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("overlap", -1), ("overlap", "x"), ("overlap", np.nan), ("overlap", np.inf),
        ("overlap", True), ("overlap", None),
        ("temperature", -1), ("temperature", "hot"), ("temperature", np.nan),
        ("temperature", None),
        ("routing", 0), ("routing", 1.5), ("routing", -2), ("routing", "x"), ("routing", True),
        ("routing", False), ("routing", 0.0), ("routing", 1.0), ("routing", -0.1),
        ("calibration", "x"), ("hyperparameters", "x"), ("weighting", "x"),
        ("aggregation", "x"),
    ],
)  # fmt: skip
def test_a_wrong_parameter_is_refused_before_any_work(parameter, value):
    with pytest.raises(ValueError, match=rf"{parameter} must be .*not {value!r}"):
        model(**{parameter: value}).fit(None, None)  # not even the data are looked at


@pytest.mark.parametrize("parameter", ["overlap", "temperature", "routing"])
def test_the_refusal_says_what_would_be_right(parameter):
    with pytest.raises(ValueError, match="'auto'"):
        model(**{parameter: "x"}).fit(X, y)


# The shared kernel


def test_of_two_kernels_the_one_that_predicts_better_is_preferred():
    far, near = make_builder(), make_builder()
    far.kernel = split_noise(Constant(1.0) * Matern((50.0, 50.0)) + White(0.9))
    near.kernel = split_noise(Constant(1.0) * Matern((1.0, 1.0)) + White(0.1))
    space = Settings(overlap=0).space
    for first, second, expected in ((far, near, True), (near, far, False), (near, near, False)):
        kernels = KernelChoice(None, None, None, space, None, None, None)
        builders = {"far": first, "near": second}
        choice = kernels._compared("kernel", builders, np.random.default_rng(0))
        assert choice.best is (second if expected else first)
        assert [one.chosen for one in choice.alternatives] == [not expected, expected]


@pytest.mark.parametrize("seed", [0, 1])
def test_from_two_blocks_of_rows_on_there_is_a_second_kernel(monkeypatch, seed):
    with_numbers(monkeypatch, pipeline, "FITTING", shared_rows=75)
    fitted = model(overlap=0, random_state=seed).fit(X, y)
    kernels = alternatives(fitted.calibration_report_, "kernel")
    assert [one.value for one in kernels] == ["far", "near"]
    assert sum(one.chosen for one in kernels) == 1
    shared = model(overlap=0, random_state=seed, hyperparameters="shared").fit(X, y)
    assert (shared.kernel_ == fitted.kernel_) == kernels[0].chosen
    with_numbers(monkeypatch, pipeline, "FITTING", shared_rows=76)
    assert alternatives(model(overlap=0).fit(X, y).calibration_report_, "kernel") == []


@pytest.mark.parametrize("shared_rows", [75, 1000])
def test_where_the_likelihood_chooses_no_noise_some_is_tried(monkeypatch, shared_rows):
    with_numbers(monkeypatch, pipeline, "FITTING", shared_rows=shared_rows)
    monkeypatch.setattr(choose, "has_no_noise", lambda kernel: True)
    fitted = model(overlap=0).fit(X, y)
    free, floor = alternatives(fitted.calibration_report_, "noise")
    assert (free.value, floor.value) == ("free", "floor")
    assert free.chosen != floor.chosen
    assert floor.chosen == (
        fitted.model_.kernel.noise.variance_bounds[0] == builder.FITTING.noise_floor
    )


def test_a_kernel_without_noise_is_told_from_one_with_some():
    bounds = (1e-6, 10.0)
    for variance, expected in ((1e-6, True), (5e-6, True), (1e-3, False)):
        assert has_no_noise(split_noise(Matern((1.0,)) + White(variance, bounds))) is expected
    assert not has_no_noise(split_noise(Matern((1.0,)) + White(1e-9, "fixed")))


def test_what_is_given_as_hyperparameters_has_no_second_kernel(monkeypatch):
    with_numbers(monkeypatch, pipeline, "FITTING", shared_rows=20)
    for hyperparameters in ("shared", "hierarchical"):
        fitted = model(hyperparameters=hyperparameters, overlap=0).fit(X, y)
        assert alternatives(fitted.calibration_report_, "kernel") == []


def test_rounding_does_not_decide_between_equal_scores():
    scores = {"first": np.ones(100), "same": np.full(100, 1 - 1e-9), "better": np.full(100, 0.9)}
    choice = choose.Choice("kernel", scores.__getitem__)
    for name in ("first", "same"):
        choice.consider(name, name)
    assert choice.value == "first"
    choice.consider("better", "better")
    assert choice.value == "better"
