"""The default model beside other libraries: its grid, its tables, its command and the peers."""

import csv
import json
import re
import runpy
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("click")

from click.testing import CliRunner

from benchmarks import datasets
from benchmarks.__main__ import main
from benchmarks.studies import peers, quality
from benchmarks.studies.answers import Answer
from benchmarks.studies.names import PAPER_TASKS, QUALITY_MODELS, QUALITY_TASKS
from benchmarks.studies.paper_plan import PaperCell
from benchmarks.studies.published import published
from benchmarks.studies.quality import QualityCell, quality_cells, quality_study
from benchmarks.studies.quality_tables import (
    distribution_table,
    peer_table,
    quality_table,
    write_quality,
)
from benchmarks.studies.study import Configuration, Store
from manygp.metrics import coverage, crps, ence, nll, rmse

STUDY = quality_study()
CELLS = [QualityCell("levy", model, 0) for model in ("exact", "manygp", "svgp", "neighbours")]


def result(task="levy", model="manygp", seed=0, **changes):
    scores = {
        "rmse": 0.5, "nll": 0.7, "ence": 0.1, "coverage": 0.8, "interval_coverage": 0.9,
        "fit_seconds": 2.0, "predict_seconds": 0.25, "n_scored": 10, "note": "",
    }  # fmt: skip
    return {"task": task, "model": model, "seed": seed, **scores, **changes}


def failed(task="levy", model="exact", seed=0, note="failed: MemoryError"):
    return {"task": task, "model": model, "seed": seed, "note": note}


def fake_processes(monkeypatch, answer, seconds=600):
    """Let `answer(cell)` stand for the process of a cell; the list of cells that were started."""
    started = []

    def run(command, **options):
        assert command[:3] == [sys.executable, "-m", "benchmarks.studies.quality"]
        assert options["timeout"] == seconds
        cell = QualityCell(*json.loads(command[3]))
        started.append(cell)
        returncode, stdout, stderr = answer(cell)
        return subprocess.CompletedProcess(command, returncode, stdout, stderr)

    monkeypatch.setattr(subprocess, "run", run)
    return started


def finishes(cell):
    return 0, json.dumps(result(*cell)) + "\n", ""


# The grid.


def test_this_library_runs_on_all_seeds_and_the_others_on_the_first():
    tasks, models = ["levy", "kin40k"], ["exact", "manygp", "svgp"]
    cells = quality_cells(tasks, models, 3)
    assert len(cells) == len(set(cells)) == 2 * (3 + 2)
    for task in tasks:
        for model in models:
            seeds = [cell.seed for cell in cells if cell[:2] == (task, model)]
            assert seeds == ([0, 1, 2] if model == "manygp" else [0])
    assert [cell.seed for cell in cells] == sorted(cell.seed for cell in cells)


def test_finished_cells_are_not_computed_again_and_others_are(tmp_path, monkeypatch):
    kept = result(*CELLS[1], rmse=0.123)
    STUDY.open_store(tmp_path).add(CELLS[1], kept)
    started = fake_processes(monkeypatch, finishes)
    seen = []
    STUDY.run(STUDY.open_store(tmp_path), CELLS, None, seen.append)
    assert started == seen == [CELLS[0], *CELLS[2:]]
    again = STUDY.open_store(tmp_path)
    assert again.read(CELLS) == [kept if cell == CELLS[1] else result(*cell) for cell in CELLS]
    STUDY.run(again, CELLS, None, pytest.fail)


def test_a_cell_that_is_killed_or_fails_is_noted_and_the_run_goes_on(tmp_path, monkeypatch):
    def answer(cell):
        if cell.model == "exact":
            raise subprocess.TimeoutExpired("python", 7)
        if cell.model == "manygp":
            return 1, "", "Traceback ...\n  File ...\nMemoryError: 7 GB\n"
        if cell.model == "svgp":
            return -9, "", ""
        return finishes(cell)

    study = quality_study(seconds=7)
    fake_processes(monkeypatch, answer, seconds=7)
    store, seen = study.open_store(tmp_path), []
    study.run(store, CELLS, None, seen.append)
    assert seen == CELLS
    assert store.read(CELLS) == [
        failed(*CELLS[0], "not finished in 7 s"),
        failed(*CELLS[1], "failed: MemoryError: 7 GB"),
        failed(*CELLS[2], "failed: no message"),
        result(*CELLS[3]),
    ]
    assert not STUDY.open_store(tmp_path).missing(CELLS)


def test_a_process_that_takes_too_long_is_ended(tmp_path):
    study = quality_study(seconds=0.01)
    store = study.open_store(tmp_path)
    study.run(store, CELLS[:1], None, lambda cell: None)
    assert store.read(CELLS) == [failed(*CELLS[0], "not finished in 0.01 s")]


def test_a_peer_that_cannot_run_here_is_left_out_and_asked_again(tmp_path, monkeypatch, capsys):
    absent = fake_processes(
        monkeypatch, lambda c: (0, "", "no") if c.model == "svgp" else finishes(c)
    )
    store, seen = STUDY.open_store(tmp_path), []
    STUDY.run(store, CELLS, None, seen.append)
    assert seen == absent == CELLS
    assert "svgp" not in {one["model"] for one in store.read(CELLS)}
    assert STUDY.open_store(tmp_path).missing(CELLS) == [CELLS[2]]
    task, model, seed = CELLS[2]
    assert capsys.readouterr().err == f"{task} {model} {seed} is left out: no\n"


def test_a_cell_runs_in_a_process_of_its_own(tmp_path):
    cell, store = QualityCell("ackley1d", "scikit-learn", 1), STUDY.open_store(tmp_path)
    STUDY.run(store, [cell], None, lambda cell: None)
    (found,) = store.read([cell])
    data = datasets.split(datasets.load("ackley1d", 1), 1)
    answer = peers.PEERS["scikit-learn"](data.X_train, data.y_train, data.X_test, 1)
    assert [found[name] for name in cell._fields] == list(cell)
    assert found["rmse"] == pytest.approx(rmse(data.y_test, answer.mean), rel=1e-6)
    assert found["nll"] == pytest.approx(nll(data.y_test, answer.mean, answer.std), rel=1e-6)


def test_the_process_of_a_peer_that_is_missing_ends_well_and_prints_no_result(monkeypatch, capsys):
    cell = QualityCell("rosenbrock", "scikit-learn", 0)  # has too many rows for it
    monkeypatch.setattr(sys, "argv", ["quality", json.dumps(cell), "null"])
    monkeypatch.delitem(sys.modules, quality.__name__)  # it runs anew, as a program
    runpy.run_module(quality.__name__, run_name="__main__")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "at most 5,000 rows" in printed.err


@pytest.mark.parametrize("with_interval", [True, False])
def test_a_cell_scores_the_rows_that_were_answered(with_interval, monkeypatch):
    data = datasets.split(datasets.load("ackley1d", 3), 3)

    def peer(X, y, X_test, seed):
        np.testing.assert_array_equal(X, data.X_train)
        np.testing.assert_array_equal(y, data.y_train)
        np.testing.assert_array_equal(X_test, data.X_test)
        assert seed == 3
        # Of 100 rows the last 20 are above their intervals.
        ends = (np.full(100, -9.0), np.r_[np.full(80, 9.0), np.full(20, -8.0)])
        said = (np.full(100, 0.1), np.linspace(0.5, 1.5, 100), 1.23456, 0.5, "a note")
        return Answer(*said, ends if with_interval else None)

    monkeypatch.setitem(peers.PEERS, "exact", peer)
    found = quality.run_quality_cell(QualityCell("ackley1d", "exact", 3), None)
    asked = (data.y_test[:100], np.full(100, 0.1), np.linspace(0.5, 1.5, 100))
    assert found == {
        "task": "ackley1d",
        "model": "exact",
        "seed": 3,
        **{score.__name__: pytest.approx(score(*asked)) for score in (rmse, nll, ence, coverage)},
        "log_score": pytest.approx(nll(*asked)),
        "crps": pytest.approx(crps(*asked)),
        "interval_coverage": pytest.approx(0.8) if with_interval else None,
        "fit_seconds": 1.235,
        "predict_seconds": 0.5,
        "n_scored": 100,
        "note": "a note",
    }


# The tables.


def by_first(table):
    return {row[0]: dict(zip(table.header, row, strict=True)) for row in table.rows}


def test_the_quality_table_averages_splits_then_tasks_beside_the_papers_best():
    results = [
        result(seed=0, rmse=0.4, nll=0.9, ence=0.1, interval_coverage=0.88),
        result(seed=1, rmse=0.6, nll=1.1, ence=0.2, interval_coverage=0.94),
        result("kin40k", rmse=0.1, nll=-0.5, ence=0.05, interval_coverage=0.9),
        failed("kin40k", "manygp", seed=1),
        result("kin40k", "exact", rmse=9.0),
    ]
    table = quality_table(results)
    assert table.title == "RMSE / NLL / ENCE of `ManyGPRegressor()`, mean of 2 splits"
    rows = by_first(table)
    assert list(rows) == ["levy", "kin40k", "average"]
    levy, kin40k, average = rows.values()
    assert levy["paper: best NLL"] == "0.979 (rd-var)"
    assert re.fullmatch(r"0\.653 \(gp-(pro-)?full\)", levy["paper: best RMSE"])
    assert kin40k["paper: best RMSE"] == "0.229 (gp-pro-sm)"
    assert kin40k["paper: best NLL"] == "-0.154 (gp-pro-sm)"
    assert levy["manygp"] == "**0.500** / **1.000** / **0.150**"
    assert kin40k["manygp"] == "**0.100** / **-0.500** / **0.050**"
    assert (levy["90% interval"], kin40k["90% interval"]) == ("91.0%", "90.0%")
    assert average["manygp"] == "0.300 / 0.250 / 0.100"
    for row in (levy, kin40k):
        own = [published()[row["task"], "bt-ent-c", m] for m in ("rmse", "nll", "ence")]
        assert row["paper: GP-pro-c"] == " / ".join(f"{value:.3f}" for value in own)


def test_the_papers_best_are_the_lowest_of_its_columns_on_every_task():
    rows = by_first(quality_table([result(task) for task in PAPER_TASKS]))
    for task in PAPER_TASKS:
        for metric in ("rmse", "nll"):
            value, model = rows[task][f"paper: best {metric.upper()}"].split()
            columns = {k[1]: v for k, v in published().items() if k[0::2] == (task, metric)}
            assert float(value) == min(columns.values()) == columns[model.strip("()")]


def test_the_peer_table_shows_the_first_split_with_notes_and_gaps():
    results = [
        result("levy", "exact", rmse=0.45678, fit_seconds=12.345, predict_seconds=0.01234),
        result("levy", "manygp"),
        result("levy", "manygp", seed=1, rmse=99.0),
        result("kin40k", "manygp", nll=-1.0),
        failed("kin40k", "exact", note="not finished in 600 s"),
        result("kin40k", "gpboost", interval_coverage=None),
    ]
    table = peer_table(results)
    names = ["manygp", "exact GP, shared kernel", "GPBoost, Vecchia"]
    assert table.header == ["task", *names]
    assert table.rows == [
        ["levy", "0.500 / 0.700 / 0.100 (2 + 0.25)", "0.457 / 0.700 / 0.100 (12.3 + 0.0123)", "-"],
        [
            "kin40k",
            "0.500 / -1.000 / 0.100 (2 + 0.25)",
            "not finished in 600 s",
            "0.500 / 0.700 / 0.100 (2 + 0.25)",
        ],
    ]


def test_the_distribution_table_shows_log_score_and_crps_where_they_were_scored():
    scored = result("levy", "ngboost", log_score=0.61234, crps=0.123456)
    table = distribution_table([scored, result("levy", "manygp"), failed("levy", "exact")])
    assert table.header == ["task", "manygp", "exact GP, shared kernel", "NGBoost"]
    assert table.rows == [["levy", "-", "-", "0.612 / 0.1235"]]


def test_flights_are_in_minutes_beside_no_paper_and_outside_of_the_average(monkeypatch):
    results = [result("levy", rmse=0.4), result("flights", rmse=15.0)]
    rows = by_first(quality_table(results))
    assert list(rows) == ["levy", "average", "flights (minutes)"]
    assert rows["flights (minutes)"]["paper: best NLL"] == "-"
    assert rows["average"]["manygp"].startswith("0.400")
    data = datasets.Split(np.zeros((5, 1)), np.zeros(5), np.zeros((20, 1)), np.ones(20), 50.0)
    monkeypatch.setattr(quality, "split_of", lambda task, seed, data_dir: data)
    zeros = Answer(np.zeros(20), np.ones(20), 0.1, 0.1)
    monkeypatch.setitem(peers.PEERS, "manygp", lambda *rows: zeros)
    found, plain = (
        quality.run_quality_cell(QualityCell(task, "manygp", 0), None)
        for task in ("flights", "levy")
    )
    assert found["rmse"] == pytest.approx(50 * plain["rmse"])
    assert found["crps"] == pytest.approx(50 * plain["crps"])
    for score in ("nll", "log_score"):
        assert found[score] == pytest.approx(plain[score] + np.log(50))
    assert found["ence"] == plain["ence"]


def test_every_column_is_a_peer():
    assert set(QUALITY_MODELS) <= set(peers.PEERS)


def test_results_and_tables_are_written(tmp_path):
    results = [result(), failed(model="svgp"), result(model="exact", interval_coverage=None)]
    assert write_quality(tmp_path, results) == [tmp_path / "results.csv", tmp_path / "tables.md"]
    with (tmp_path / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == ["manygp", "svgp", "exact"]
    assert float(rows[0]["rmse"]) == 0.5
    assert (rows[1]["rmse"], rows[1]["note"]) == ("", "failed: MemoryError")
    text = (tmp_path / "tables.md").read_text()
    for table in (quality_table(results), peer_table(results)):
        assert table.markdown() in text


@pytest.mark.parametrize(
    "results",
    [
        pytest.param([result(model="exact")], id="another library alone"),
        pytest.param([failed(model="manygp")], id="failed"),
        pytest.param([], id="nothing could run"),
    ],
)
def test_tables_without_a_score_of_this_library_average_nothing(results, tmp_path):
    write_quality(tmp_path, results)
    assert "nan" not in (tmp_path / "tables.md").read_text()


# The command.


@pytest.mark.parametrize(
    ("options", "known"),
    [(["--tasks", "levy,nix"], QUALITY_TASKS), (["--models", "nix"], QUALITY_MODELS)],
)
def test_the_command_lists_what_it_knows(options, known, tmp_path):
    folder = tmp_path / "r"
    shown = CliRunner().invoke(main, ["quality", "--results", str(folder), *options])
    assert shown.exit_code == 2
    assert f"unknown name 'nix'; the known ones are {', '.join(known)}" in shown.output
    assert not folder.exists()


def test_the_command_computes_what_is_missing_and_writes_all_that_was_asked(tmp_path, monkeypatch):
    folder = tmp_path / "r"
    kept = QualityCell("levy", "manygp", 0)
    STUDY.open_store(folder).add(kept, result(*kept, rmse=0.123))
    command = ["quality", "--results", str(folder), "--tasks", "levy"]
    command += ["--models", "manygp, svgp", "--seeds", "2"]
    started = fake_processes(monkeypatch, finishes)
    shown = CliRunner().invoke(main, command)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.split() == [str(folder / "results.csv"), str(folder / "tables.md")]
    assert started == [QualityCell("levy", "svgp", 0), QualityCell("levy", "manygp", 1)]
    assert len((folder / "results.csv").read_text().splitlines()) == 1 + 3
    assert "0.123" in (folder / "tables.md").read_text()
    assert CliRunner().invoke(main, command).exit_code == 0
    assert len(started) == 2


def test_the_command_refuses_a_folder_of_another_configuration(tmp_path):
    Store(tmp_path, Configuration(n_rows=300), PaperCell)
    shown = CliRunner().invoke(main, ["quality", "--results", str(tmp_path)])
    assert shown.exit_code == 1
    assert "another configuration" in shown.output


def test_a_missing_data_file_is_an_error_of_the_command_and_not_a_result(tmp_path, monkeypatch):
    folder, cell = tmp_path / "r", QualityCell("kin40k", "manygp", 0)
    problem = "FileNotFoundError: kin40k.csv.gz is missing; get it from ..."
    fake_processes(monkeypatch, lambda cell: (1, "", problem))
    command = ["quality", "--results", str(folder), "--data-dir", str(tmp_path)]
    command += ["--tasks", "kin40k", "--models", "manygp", "--seeds", "1"]
    shown = CliRunner().invoke(main, command)
    # With the file in place the same command is to compute the cell.
    assert STUDY.open_store(folder).missing([cell]) == [cell]
    assert "kin40k.csv.gz is missing" in shown.output
