"""Can the std be trusted: which rows are asked, how they are scored, and which aims hold."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("click")

from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.datasets import Split
from benchmarks.studies import cases, trust
from benchmarks.studies.answers import Answer, normal
from benchmarks.studies.conditional import (
    MEASURES,
    AskedRows,
    conditional_scores,
    relevant_columns,
)
from benchmarks.studies.names import (
    FEW_ROWS,
    MIXED_ROWS,
    PAPER_TASKS,
    TRUST_MODELS,
    TRUST_TASKS,
)
from benchmarks.studies.trust import Outcome, TrustCell, standard_error, trust_cells, trust_scores
from benchmarks.studies.trust_aims import NLL_BEFORE, aims
from benchmarks.studies.trust_tables import (
    CONDITIONAL,
    LEVELS,
    conditional_table,
    own_table,
    peer_table,
    write_trust,
)
from benchmarks.tests.data_folder import HOME
from manygp import __version__, metrics
from manygp.calibration import PredictiveDistribution

STUDY = trust.trust_study()


def result(task="levy", part=0, model="manygp", seed=0, **changes):
    """A result that reaches every aim that a single task can reach."""
    scores = {
        "n_train": 2500, "rmse": 0.5, "nll": NLL_BEFORE.get(task, 0.5), "log_score": 0.5,
        "crps": 0.25, "ence": 0.05, "coverage": 0.9, "interval_coverage": 0.9, "n_scored": 2500,
        "fit_seconds": 1.0, "predict_seconds": 0.1, "note": "", "log_score_error": 0.01,
        "largest_std": 1.5, "loo_nll": 0.5, "loo_log_score": 0.5, "loo_crps": 0.25,
        "loo_ence": 0.05,
    }  # fmt: skip
    for name in (*(f"coverage_{level}" for level in LEVELS), "interval"):
        scores[name], scores[f"{name}_error"] = 0.9, 0.006
        scores |= {f"{name}_decile_{k}": 0.88 for k in range(1, 11)}
    for name in CONDITIONAL:
        scores[f"{name}_score"] = 1.5
        for measure in MEASURES:
            field = f"{name}_{measure}"
            scores |= {field: 0.88, f"{field}_low": 0.85, f"{field}_high": 0.95}
    return {"task": task, "part": part, "model": model, "seed": seed, **scores, **changes}


def of_before(row):
    """A result as it was kept before coverage was measured in parts of the data."""
    new = {f"{name}_{end}" for name in CONDITIONAL for end in ("score", *MEASURES)}
    return {
        name: value
        for name, value in row.items()
        if name not in new and not name.endswith(("_low", "_high"))
    }


def without_interval(row):
    return {name: value for name, value in row.items() if not name.startswith("interval")}


def failed(task="levy", part=0, model="manygp", seed=0, note="failed: MemoryError"):
    return {"task": task, "part": part, "model": model, "seed": seed, "note": note}


# The rows.


def test_every_model_meets_every_part_and_trees_meet_no_handful_of_rows():
    cells = trust_cells(TRUST_TASKS, TRUST_MODELS)
    assert len(set(cells)) == len(cells)
    assert TrustCell("pol-folds", 9, "mapie", 0) in cells
    assert TrustCell("rows-2", 0, "scikit-learn", 0) in cells
    assert TrustCell("rows-30", 0, "catboost", 0) not in cells
    assert TrustCell("rows-100", 0, "catboost", 0) in cells
    seeds = [c.seed for c in cells if c[:3] == ("protein", 0, "manygp")]
    assert seeds == [0, 1, 2, 3]
    assert {c.seed for c in trust_cells(["levy"], ["manygp"])} == {0}


def test_new_rows_of_simulations_of_all_kinds_are_like_the_training_rows():
    found, again = (cases.cases_of("mixed-120", 0, None) for _ in range(2))
    repeated = []
    for case, same in zip(found, again, strict=True):
        np.testing.assert_array_equal(case.X_test, same.X_test)
        known = [row.tobytes() for row in case.X_train]
        share = np.mean([known.count(row) > 1 for row in known])
        assert np.mean([row.tobytes() in known for row in case.X_test]) == pytest.approx(
            share, abs=0.25
        )
        repeated.append(share)
    assert len({case.X_train.shape[1] for case in found}) > 3
    assert len(found) == MIXED_ROWS[120]
    assert min(repeated) == 0
    assert max(repeated) > 0.6


def test_few_rows_are_simulated_as_often_as_named_and_differ():
    found = cases.cases_of("rows-8", 0, None)
    assert len(found) == FEW_ROWS[8]
    assert all(case.X_train.shape == (8, 2) for case in found)
    assert not np.array_equal(found[0].y_train, found[1].y_train)
    again = cases.cases_of("rows-8", 0, None)
    np.testing.assert_array_equal(found[3].y_test, again[3].y_test)
    values = np.concatenate([case.y_test for case in found])
    assert values.std() == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize("task", cases.SIMULATED)
def test_simulated_tasks_are_halved_and_the_same_each_time(task):
    (case,) = cases.cases_of(task, 0, None)
    assert len(case.y_train) == len(case.y_test) == cases.N_SIMULATED // 2
    np.testing.assert_array_equal(cases.cases_of(task, 0, None)[0].y_test, case.y_test)


def test_simulated_noise_is_as_described(monkeypatch):
    monkeypatch.setattr(cases, "N_SIMULATED", 30_000)
    made = {name: make(np.random.default_rng(0)) for name, make in cases.SIMULATED.items()}
    noise = {name: data.y - cases._wave(data.X) for name, data in made.items()}
    last = made["heteroscedastic"].X[:, 3]
    for low, high, std in [(0, 0.1, 0.075), (0.9, 1, 0.525)]:
        inside = (last >= low) & (last < high)
        assert noise["heteroscedastic"][inside].std() == pytest.approx(std, rel=0.1)
    assert np.median(np.abs(noise["student-noise"])) == pytest.approx(0.2 * 0.765, rel=0.05)
    assert noise["repeated-rows"].std() == pytest.approx(0.1, rel=0.05)
    assert len(np.unique(made["repeated-rows"].X, axis=0)) == 10_000
    np.testing.assert_array_equal(noise["deterministic"], 0)


@pytest.mark.skipif(HOME is None, reason="needs the real data sets: set MANYGP_DATA")
def test_folds_and_shares_of_real_data():
    (fold,) = cases.cases_of("pol-folds", 1, str(HOME))
    assert (len(fold.y_train), len(fold.y_test)) == (13_500, 1_500)
    (diamonds,) = cases.cases_of("diamonds", 0, str(HOME))
    assert len(diamonds.y_train) == 4 * len(diamonds.y_test)


def test_missing_files_of_folds_are_an_error_before_any_work(tmp_path):
    study, cell = trust.trust_study(), TrustCell("pol-folds", 0, "manygp", 0)
    with pytest.raises(FileNotFoundError, match=r"pol\.csv\.gz is missing"):
        study.run(study.open_store(tmp_path / "r"), [cell], str(tmp_path), pytest.fail)


# The scores.


def outcome(rng, n=200, dof=np.inf):
    """Targets of known distributions, answered rightly."""
    std = rng.uniform(0.5, 1.5, n)
    mean = rng.normal(size=n)
    y = mean + std * rng.normal(size=n)
    distribution = PredictiveDistribution(mean, std, np.array(dof), np.array(1.0))
    answer = Answer(mean, std, 1.0, 0.5, "", (mean - std, mean + std), distribution)
    X, left_out = rng.uniform(size=(n, 3)), (y[:50], normal(mean[:50], std[:50]))
    return Outcome(X, y, X[:, [1, 0]], answer, left_out)


def test_scores_and_coverage_of_one_fit():
    given = outcome(np.random.default_rng(0), 1000)
    found, answer, y = trust_scores([given]), given.answer, given.y
    assert found["nll"] == pytest.approx(metrics.nll(y, answer.mean, answer.std))
    assert found["loo_nll"] == pytest.approx(
        metrics.nll(y[:50], answer.mean[:50], answer.std[:50])
    )
    assert found["loo_log_score"] == pytest.approx(found["loo_nll"])
    for level in LEVELS:
        assert found[f"coverage_{level}"] == pytest.approx(level / 100, abs=0.05)
    # The interval of one std to either side holds 68%.
    assert found["interval"] == found["interval_coverage"] == pytest.approx(0.68, abs=0.05)
    first = np.argsort(answer.std)[:100]
    inside = np.abs(y - answer.mean) <= answer.std
    assert found["interval_decile_1"] == inside[first].mean()
    assert found["interval_worst_decile"] == min(
        found[f"interval_decile_{k}"] for k in range(1, 11)
    )
    fifths = np.array_split(np.argsort(answer.mean), 5)
    assert found["interval_lowest_fifth"] == inside[fifths[0]].mean()
    assert found["interval_highest_fifth"] == inside[fifths[4]].mean()
    quarters = [
        inside[rows].mean()
        for column in given.relevant.T
        for rows in np.array_split(np.argsort(column), 4)
    ]
    assert found["interval_worst_quarter"] == min(quarters)
    for field, (lower, upper) in {
        "interval": answer.interval,
        "coverage_90": answer.predictive.interval(0.9),
    }.items():
        assert found[f"{field}_score"] == metrics.interval_score(y, lower, upper)
    assert found["largest_std"] == answer.std.max() / y.std()
    assert json.loads(json.dumps(found)) == found


def test_rows_of_several_fits_are_scored_together():
    rng = np.random.default_rng(1)
    given = [outcome(rng), outcome(rng, dof=3.0)]
    found = trust_scores(given)
    alone = [trust_scores([one]) for one in given]
    for score in ("nll", "log_score", "crps", "coverage_90", "loo_log_score"):
        assert found[score] == pytest.approx(np.mean([one[score] for one in alone]))
    assert found["n_scored"] == 400
    assert found["fit_seconds"] == 2.0


def test_a_peer_without_intervals_or_promises_has_none():
    given = outcome(np.random.default_rng(2))
    plain = given._replace(answer=given.answer._replace(interval=None), left_out=None)
    found = trust_scores([plain])
    assert not [name for name in found if "loo" in name]
    assert [name for name in found if name.startswith("interval")] == ["interval_coverage"]
    assert {f"coverage_90_{measure}" for measure in MEASURES} <= set(found)


def test_rows_that_agree_within_a_fit_count_as_one():
    values = np.repeat([0.0, 1.0], 50)
    assert standard_error(values, [100]) == pytest.approx(0.05)
    assert standard_error(values, [50, 50]) == pytest.approx(0.5)


def held_rows(rng, n, is_bad=None):
    """Rows of which right intervals hold 90%, but half where `is_bad` (X -> bool)."""
    X = rng.uniform(size=(n, 4))
    bad = np.zeros(n, dtype=bool) if is_bad is None else is_bad(X)
    held = rng.uniform(size=n) < np.where(bad, 0.5, 0.9)
    return held, AskedRows(X, X[:, :3], X[:, 0], rng.uniform(size=n))


def test_right_intervals_are_within_chance_everywhere():
    found = conditional_scores(*held_rows(np.random.default_rng(0), 4000))
    for measure in MEASURES:
        assert found[f"{measure}_low"] <= found[measure] <= found[f"{measure}_high"]
    # The bounds are those of the size of a group: 400 rows by std, 1,000 by a column.
    assert 0.85 < found["worst_decile_low"] < found["worst_quarter_low"] < 0.9


@pytest.mark.parametrize(
    ("measure", "is_bad"),
    [
        ("worst_quarter", lambda X: X[:, 2] > 0.75),
        ("lowest_fifth", lambda X: X[:, 0] < 0.2),
        ("highest_fifth", lambda X: X[:, 0] > 0.8),
        ("worst_slab", lambda X: X[:, 3] > 0.6),  # not among the relevant columns
    ],
)
def test_intervals_that_fail_in_a_place_are_found_there(measure, is_bad):
    found = conditional_scores(*held_rows(np.random.default_rng(1), 4000, is_bad))
    assert found[measure] == pytest.approx(0.5, abs=0.06)
    assert found[measure] < found[f"{measure}_low"]


def test_intervals_that_fail_where_the_std_is_large_are_found_by_std():
    held, rows = held_rows(np.random.default_rng(2), 4000, lambda X: X[:, 3] > 0.9)
    found = conditional_scores(held, rows._replace(std=rows.X[:, 3]))
    assert found["worst_decile"] == pytest.approx(0.5, abs=0.06)


def test_few_rows_have_no_slab_but_groups():
    found = conditional_scores(*held_rows(np.random.default_rng(0), 60))
    assert found["worst_slab"] is found["worst_slab_low"] is found["worst_slab_high"] is None
    assert 0 <= found["worst_decile"] <= 1


def test_the_relevant_columns_are_those_of_the_shortest_length_scales():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 4)) * [1, 1000, 1, 1]
    y = np.sin(12 * X[:, 1] / 1000) + np.sin(4 * X[:, 3]) + 0.01 * rng.normal(size=300)
    assert relevant_columns(X, y)[:2].tolist() == [1, 3]
    assert len(relevant_columns(X, y)) == 3
    assert sorted(relevant_columns(X[:2, :2], y[:2])) == [0, 1]  # two rows are enough


def test_a_cell_of_this_library_is_scored_with_what_it_promised(monkeypatch):
    monkeypatch.setitem(FEW_ROWS, 8, 2)
    monkeypatch.setattr(cases, "FEW_TEST_ROWS", 400)
    found = trust.run_trust_cell(TrustCell("rows-8", 0, "manygp", 0), None)
    assert (found["n_train"], found["n_scored"]) == (8, 400)
    assert "interval" not in found  # eight rows promise no 90%
    assert np.isfinite(found["loo_log_score"])
    assert 0 <= found["coverage_90_worst_quarter"] <= 1
    assert found["version"] == __version__


def test_a_cell_of_a_peer_scores_the_rows_that_it_answered(monkeypatch):
    rng = np.random.default_rng(0)
    case = Split(rng.uniform(size=(60, 2)), rng.normal(size=60), rng.uniform(size=(50, 2)),
                 rng.normal(size=50))  # fmt: skip
    monkeypatch.setattr(trust, "cases_of", lambda *asked: [case])
    short = Answer(np.zeros(30), np.ones(30), 1.0, 1.0)
    monkeypatch.setitem(trust.PEERS, "ngboost", lambda *given: short)
    found = trust.run_trust_cell(TrustCell("levy", 0, "ngboost", 0), None)
    assert found["n_scored"] == 30
    assert found["nll"] == pytest.approx(metrics.nll(case.y_test[:30], short.mean, short.std))
    lower, upper = short.predictive.interval(0.9)
    score = metrics.interval_score(case.y_test[:30], lower, upper)
    assert found["coverage_90_score"] == pytest.approx(score)
    assert 0 <= found["coverage_90_worst_quarter"] <= found["coverage_90"]


# The aims.


def complete():
    """Results that reach all aims."""
    own = [
        *(result(task) for task in PAPER_TASKS),
        *(result("pol-folds", part, nll=-2.5, log_score=-2.6, loo_log_score=-2.6)
          for part in (0, 1)),
        without_interval(result("rows-5", n_train=5, n_scored=20_000, coverage_90=0.81)),
    ]  # fmt: skip
    plain = [{**row, "model": "manygp-uncalibrated"} for row in own]
    seeds = [result("protein", seed=seed) for seed in (1, 2, 3)]
    return [*own, *plain, *seeds]


def judged(results, start):
    (found,) = [aim for aim in aims(results) if aim.text.startswith(start)]
    return found


def changed(task, **changes):
    """Complete results, but for those of this library on a task."""
    return [
        {**row, **changes} if (row["task"], row["model"]) == (task, "manygp") else row
        for row in complete()
    ]


def test_all_aims_hold_for_results_that_reach_them_and_two_are_not_measured():
    found = aims(complete())
    assert [aim.text for aim in found if aim.holds is False] == []
    assert [aim.text for aim in found if aim.holds is None] == [
        "fit takes at most 15% longer",
        "the paper's 21 models keep their digits",
    ]


def test_nothing_is_claimed_without_results():
    assert {aim.holds for aim in aims([])} == {None}
    assert {aim.holds for aim in aims([failed()])} == {None}


@pytest.mark.parametrize(
    ("start", "task", "changes", "found"),
    [
        ("pol, mean of folds 0 and 1: NLL", "pol-folds", {"nll": -2.1}, "-2.100"),
        ("pol, mean of folds 0 and 1: log", "pol-folds", {"log_score": -2.3}, "-2.300"),
        ("pol, mean of folds 0 and 1: ENCE", "pol-folds", {"ence": 0.4}, "0.400"),
        ("pol, all folds", "pol-folds", {"largest_std": 3.5}, "pol-folds 1 3.50"),
        ("protein, 50/50: ENCE", "protein", {"ence": 0.07}, "0.070"),
        ("protein, 50/50: log score", "protein", {"log_score": 0.61}, "0.610"),
        ("average ENCE", "levy", {"ence": 0.5}, "0.095"),
        ("no NLL", "levy", {"nll": 0.96}, "levy 0.960 after 0.954"),
        ("the log score that", "levy", {"loo_log_score": 0.44}, "levy +0.060 (allowed 0.050)"),
        ("90% intervals, conformal: within", "levy", {"interval": 0.885}, "levy 88.5%"),
        ("90% intervals, of the distribution: within", "levy", {"coverage_90": 0.92}, "92.0%"),
        (
            "90% intervals, conformal: at least 85% in the worst decile",
            "levy",
            {"interval_decile_3": 0.7},
            "levy 70.0%",
        ),
        (
            "90% intervals, of the distribution: at least 85% in the worst decile",
            "levy",
            {"coverage_90_decile_10": 0.84},
            "levy 84.0% (within two standard errors)",
        ),
        (
            "90% intervals, conformal: at least 85% in the worst slab",
            "levy",
            {"interval_worst_slab": 0.8},
            "levy 80.0%",
        ),
        ("up to 12 training rows", "rows-5", {"coverage_90": 0.79}, "rows-5 79.0%"),
        ("calibration worsens", "levy", {"crps": 0.27}, "levy crps +0.020"),
    ],
)
def test_a_miss_is_named_with_its_number(start, task, changes, found):
    aim = judged(changed(task, **changes), start)
    assert aim.holds is False
    assert found in aim.found
    assert aim.markdown().startswith(f"- **not met**: {aim.text} (")


@pytest.mark.parametrize(
    ("start", "task", "changes"),
    [
        ("the log score that", "levy", {"loo_log_score": 0.36, "n_train": 500}),
        ("the log score that", "levy", {"loo_log_score": 0.36, "log_score_error": 0.08}),
        ("90% intervals, conformal: within", "levy", {"interval": 0.889}),
        ("90% intervals, conformal: within", "levy", {"interval": 0.909, "n_scored": 20_000}),
        (
            "90% intervals, conformal: at least 85% in the worst slab",
            "levy",
            {"interval_worst_slab": 0.8, "interval_worst_slab_low": 0.79},
        ),
        (
            "90% intervals, conformal: at least 85% in the worst slab",
            "levy",
            {"interval_worst_slab": None},
        ),
    ],
)
def test_what_is_allowed_depends_on_the_number_of_rows(start, task, changes):
    assert judged(changed(task, **changes), start).holds


def test_four_seeds_that_differ_are_a_miss():
    results = [{**r, "nll": 0.8} if r["seed"] == 2 else r for r in complete()]
    aim = judged(results, "four seeds")
    assert (aim.holds, aim.found) == (False, "0.046")


# The tables.


def test_folds_are_averaged_and_what_is_worst_is_not():
    results = [
        result("pol-folds", 0, nll=-2.0, largest_std=1.0),
        result("pol-folds", 1, nll=-3.0, largest_std=2.0, coverage_90_decile_4=0.5),
        result("pol-folds", 0, "manygp-uncalibrated", nll=-1.0),
        failed("levy"),
        without_interval(result("rows-5")),
    ]
    table = own_table(results)
    rows = {row[0]: dict(zip(table.header, row, strict=True)) for row in table.rows}
    assert list(rows) == ["levy", "pol-folds", "rows-5"]
    pol = rows["pol-folds"]
    assert (pol["NLL"], pol["largest std"]) == ("-2.500", "2.00")
    assert pol["worst decile"] == "50.0% / 88.0%"
    assert (pol["worst quarter"], pol["interval score"]) == ("88.0% / 88.0%", "1.500 / 1.500")
    assert rows["rows-5"]["worst slab"] == "88.0%"
    assert pol["not calibrated"] == "-1.000 / 0.250 / 0.050"
    assert rows["levy"]["training rows"] == "failed: MemoryError"
    assert rows["rows-5"]["90% conformal"] == "-"


def test_others_stand_beside_us():
    results = [
        result(),
        without_interval(result(model="ngboost", nll=0.75)),
        failed(model="catboost", note="not finished in 600 s"),
    ]
    table = peer_table(results)
    assert table.header == ["task", "manygp", "CatBoost, uncertainty", "NGBoost"]
    assert table.rows == [
        [
            "levy",
            "0.954 / 0.500 / 0.250 / 0.050 (90.0%)",
            "not finished in 600 s",
            "0.750 / 0.500 / 0.250 / 0.050 (90.0%)",
        ]
    ]


def test_every_model_has_a_row_of_where_its_intervals_hold():
    results = [
        result("pol-folds", 0, interval_worst_slab=0.8, interval_worst_slab_low=0.75),
        result("pol-folds", 1, interval_worst_slab=0.82, interval_worst_slab_low=0.83),
        without_interval(result("pol-folds", model="ngboost", coverage_90_lowest_fifth=0.5)),
        of_before(result("pol-folds", model="catboost")),
        failed("pol-folds", model="mapie"),
        of_before(result("levy")),
    ]
    table = conditional_table(results)
    rows = {(row[0], row[1]): dict(zip(table.header, row, strict=True)) for row in table.rows}
    # Of levy nothing was measured yet.
    models = ["manygp", "CatBoost, uncertainty", "NGBoost"]
    assert list(rows) == [("pol-folds", model) for model in models]
    own, catboost, ngboost = rows.values()
    assert own["worst slab"] == "80.0% (75.0 to 95.0)"  # the worst fold, which chance allows
    assert ngboost["lowest fifth of predictions"] == "**50.0%** (85.0 to 95.0)"
    assert (ngboost["CRPS"], ngboost["interval score"]) == ("0.2500", "1.500")
    assert catboost["coverage"] == "90.0%"
    assert set(list(catboost.values())[5:]) == {catboost["interval score"]} == {"-"}


def test_results_of_before_are_read_and_have_dashes(tmp_path):
    old = [of_before(result(task)) for task in PAPER_TASKS]
    table = own_table(old)
    for row in table.rows:
        shown = dict(zip(table.header, row, strict=True))
        assert shown["worst decile"] == "88.0% / 88.0%"
        assert {shown[name] for name in ("interval score", "worst quarter", "worst slab")} == {"-"}
    text = write_trust(tmp_path, old)[1].read_text()
    assert text.startswith("Results of manygp 0.2.0.\n")
    assert "None of these results has it" in text
    assert judged(old, "90% intervals, conformal: at least 85% in the worst slab").holds is None


def test_tables_name_all_versions_of_their_results(tmp_path):
    results = [result(version="9.1"), of_before(result("ackley"))]
    text = write_trust(tmp_path, results)[1].read_text()
    assert text.startswith("Results of manygp 0.2.0 and 9.1.\n")


def test_all_is_written_and_the_aims_come_last(tmp_path):
    written = write_trust(tmp_path, complete())
    assert [path.name for path in written] == ["results.csv", "tables.md"]
    rows = list(csv.DictReader(written[0].read_text().splitlines()))
    assert len(rows) == len(complete())
    assert {"coverage_99_decile_10", "interval_worst_slab_low", "loo_crps"} <= set(rows[0])
    table, last = written[1].read_text().split("### Criteria, and which are met\n")
    assert own_table(complete()).markdown() in table
    assert last.strip().splitlines() == [aim.markdown() for aim in aims(complete())]
    write_trust(tmp_path, [])
    assert "nan" not in written[1].read_text()


def test_the_command_computes_what_is_missing(tmp_path, monkeypatch):
    folder, started = tmp_path / "r", []
    STUDY.open_store(folder).add(TrustCell("levy", 0, "manygp", 0), result())

    def run(command, **options):
        assert command[:3] == [sys.executable, "-m", "benchmarks.studies.trust"]
        started.append(TrustCell(*json.loads(command[3])))
        line = json.dumps(result(*started[-1])) + "\n"
        return subprocess.CompletedProcess(command, 0, line, "")

    monkeypatch.setattr(subprocess, "run", run)
    command = ["trust", "--results", str(folder), "--tasks", "levy,rows-2"]
    shown = CliRunner().invoke(main, [*command, "--models", "manygp,ngboost"])
    assert shown.exit_code == 0, shown.output
    assert started == [TrustCell("rows-2", 0, "manygp", 0), TrustCell("levy", 0, "ngboost", 0)]
    assert shown.stdout.split() == [str(folder / "results.csv"), str(folder / "tables.md")]
