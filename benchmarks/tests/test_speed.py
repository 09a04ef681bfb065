"""Speed beside other libraries: what is run, what is given up, and what is written."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("click")

from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.studies import peers, speed
from benchmarks.studies.names import SPEED_MODELS, SPEED_TASKS, SYNTHETIC_ROWS
from benchmarks.studies.speed import SpeedCell, speed_cells, speed_study
from benchmarks.studies.speed_tables import exponent, medians, write_speed

STUDY = speed_study()
FIRST = SpeedCell("synthetic-10k", "manygp", 0)


def result(task="kin40k", model="manygp", repeat=0, **changes):
    numbers = {
        "n_rows": 20_000, "n_queries": 20_000, "fit_seconds": 10.0, "predict_seconds": 2.0,
        "peak_megabytes": 500, "rmse": 0.1, "nll": -1.0, "note": "",
    }  # fmt: skip
    return {"task": task, "model": model, "repeat": repeat, **numbers, **changes}


def failed(task, model, repeat=0, note="> 10 min"):
    return {"task": task, "model": model, "repeat": repeat, "note": note}


@pytest.fixture
def store(tmp_path):
    return STUDY.open_store(tmp_path)


def processes(monkeypatch, answer):
    """Let `answer(cell)` stand for the process of a cell; the list of cells that were started."""
    started = []

    def run(command, **options):
        assert command[:3] == [sys.executable, "-m", "benchmarks.studies.speed"]
        assert options["timeout"] == 600
        cell = SpeedCell(*json.loads(command[3]))
        started.append(cell)
        return answer(cell, command)

    monkeypatch.setattr(subprocess, "run", run)
    return started


def finishes(cell, command):
    return subprocess.CompletedProcess(command, 0, json.dumps(result(*cell)) + "\n", "")


def test_models_take_turns_and_every_task_has_a_first_run_before_any_has_a_second():
    cells = speed_cells(["kin40k", "protein"], ["manygp", "svgp"], 2)
    assert cells[:4] == [
        SpeedCell("kin40k", "manygp", 0),
        SpeedCell("kin40k", "svgp", 0),
        SpeedCell("protein", "manygp", 0),
        SpeedCell("protein", "svgp", 0),
    ]
    assert {cell.repeat for cell in cells[4:]} == {1}


def test_finished_runs_are_kept_and_others_are_run(store, monkeypatch):
    cells = speed_cells(["synthetic-10k"], ["manygp", "svgp"], 2)
    store.add(cells[0], result(*cells[0], fit_seconds=1.25))
    started, seen = processes(monkeypatch, finishes), []
    STUDY.run(store, cells, None, seen.append)
    assert started == seen == cells[1:]
    assert STUDY.open_store(store.path.parent).results[cells[0]]["fit_seconds"] == 1.25


def test_a_run_that_takes_too_long_is_a_result(store, monkeypatch):
    def times_out(cell, command):
        raise subprocess.TimeoutExpired(command, 600)

    processes(monkeypatch, times_out)
    STUDY.run(store, [FIRST], None, lambda cell: None)
    assert store.results[FIRST]["note"] == "> 10 min"


@pytest.mark.parametrize(
    ("message", "note"),
    [
        ("numpy: Unable to allocate 7.45 GiB for an array", "> 16 GiB"),
        ("MemoryError", "> 16 GiB"),
        ("ValueError: no", "failed: ValueError: no"),
        ("", "failed: no message"),
    ],
)
def test_a_run_that_fails_is_a_result(store, monkeypatch, message, note):
    processes(monkeypatch, lambda c, command: subprocess.CompletedProcess(command, 1, "", message))
    STUDY.run(store, [FIRST], None, lambda cell: None)
    assert store.results[FIRST]["note"] == note


def test_what_is_not_installed_is_left_out(store, monkeypatch):
    processes(monkeypatch, lambda c, command: subprocess.CompletedProcess(command, 0, "", "no"))
    STUDY.run(store, [FIRST], None, lambda cell: None)
    assert store.results == {}


def test_what_is_too_much_for_a_model_is_so_from_there_on(store, monkeypatch):
    cells = speed_cells(["synthetic-10k", "synthetic-100k", "rosenbrock"], ["svgp", "gpboost"], 1)
    store.add(cells[0], failed(*cells[0], note="> 16 GiB"))
    started = processes(monkeypatch, finishes)
    STUDY.run(store, cells, None, lambda cell: None)
    assert {cell.model for cell in started} == {"gpboost"}
    notes = [store.results[cell]["note"] for cell in cells if cell.model == "svgp"]
    assert notes == ["> 16 GiB", *["> 16 GiB with 10,000 rows"] * 2]


@pytest.mark.parametrize(("seconds", "repeated"), [(199, True), (250, False)])
def test_a_long_run_is_not_repeated(store, monkeypatch, seconds, repeated):
    cells = speed_cells(["synthetic-10k"], ["svgp"], 2)
    store.add(cells[0], result(*cells[0], fit_seconds=seconds, predict_seconds=0.5))
    started = processes(monkeypatch, finishes)
    STUDY.run(store, cells, None, lambda cell: None)
    assert started == cells[1:] * repeated


def test_a_run_that_failed_is_not_repeated(store, monkeypatch):
    cells = speed_cells(["synthetic-10k"], ["svgp"], 3)
    store.add(cells[0], failed(*cells[0]))
    assert processes(monkeypatch, finishes) == []
    STUDY.run(store, cells, None, lambda cell: None)
    assert list(store.results) == cells[:1]


def test_medians_of_the_repeats():
    runs = [result(repeat=i, fit_seconds=s) for i, s in enumerate([3.0, 100.0, 4.0])]
    found = medians([*runs, failed("protein", "svgp")])
    assert found["kin40k", "manygp"]["fit_seconds"] == 4.0
    assert found["kin40k", "manygp"]["repeats"] == 3
    assert found["protein", "svgp"] == {"note": "> 10 min"}


@pytest.mark.parametrize("power", [1.0, 1.5])
def test_the_exponent_of_growth(power):
    runs = [
        result(task, n_rows=n, fit_seconds=0.01 * n**power) for task, n in SYNTHETIC_ROWS.items()
    ]
    assert exponent(medians(runs), "manygp") == pytest.approx(power)
    assert exponent(medians(runs[:1]), "manygp") is None


def test_tables_csv_and_figures(tmp_path):
    runs = [
        *(result(t, n_rows=n, fit_seconds=n / 1e4) for t, n in SYNTHETIC_ROWS.items()),
        *(result(t, "svgp", n_rows=n, fit_seconds=n / 1e3) for t, n in SYNTHETIC_ROWS.items()),
        failed("synthetic-100k", "gpboost"),
        result("kin40k"),
    ]
    written = write_speed(tmp_path, runs)
    assert [path.name for path in written] == [
        "results.csv",
        "tables.md",
        "scaling.png",
        "trade.png",
    ]
    rows = list(csv.DictReader(written[0].read_text().splitlines()))
    assert [row["task"] for row in rows] == [one["task"] for one in runs]
    text = written[1].read_text()
    assert "### kin40k: 20,000 rows, 20,000 queries" in text
    assert "| GPyTorch SVGP | 10 s | 10 | 100 us | 0.5 GB | 0.100 | -1.000 | 1 |" in text
    assert "| GPBoost, Vecchia | > 10 min |" in text
    assert "- manygp: fit time grows as n^1.00" in text
    for path in written[2:]:
        assert path.read_bytes().startswith(b"\x89PNG")


def test_nothing_finished_draws_nothing(tmp_path):
    written = write_speed(tmp_path, [failed("kin40k", "svgp")])
    assert [path.name for path in written] == ["results.csv", "tables.md"]


def test_the_synthetic_task_is_the_same_each_time_and_has_its_noise():
    X, y = speed.synthetic(2000, 0)
    assert X.shape == (2000, 8)
    again = speed.synthetic(2000, 0)
    np.testing.assert_array_equal(y, again[1])
    quiet = np.var(y) - speed.SYNTHETIC_NOISE**2
    assert quiet > 0.5
    X, y, X_test, y_test = speed.rows_of("synthetic-10k", None)
    assert len(X) == len(X_test) == 10_000
    assert abs(y.mean()) < 1e-12
    assert 0 < abs(y_test.mean()) < 0.1


def test_a_run_measures_itself(monkeypatch):
    monkeypatch.setattr("resource.setrlimit", lambda *limits: None)
    monkeypatch.setitem(SYNTHETIC_ROWS, "synthetic-10k", 120)

    def mean_only(X, y, X_test, seed):
        return peers.Answer(np.zeros(len(X_test)), np.ones(len(X_test)), 1.5, 0.25, "plain")

    monkeypatch.setitem(speed.TIMED_PEERS, "manygp", mean_only)
    found = speed.run_speed_cell(FIRST, None)
    assert (found["n_rows"], found["n_queries"]) == (120, 120)
    assert (found["fit_seconds"], found["predict_seconds"]) == (1.5, 0.25)
    assert found["peak_megabytes"] > 10
    assert 0.5 < found["rmse"] < 2
    assert json.loads(json.dumps(found)) == found


def test_the_command(tmp_path, monkeypatch):
    started = processes(monkeypatch, finishes)
    arguments = ["speed", "--results", str(tmp_path), "--repeats", "1"]
    arguments += ["--tasks", "synthetic-10k", "--models", "manygp,svgp"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert started == [FIRST, FIRST._replace(model="svgp")]
    assert "tables.md" in done.output
    assert set(SPEED_MODELS) <= set(speed.TIMED_PEERS)
    wrong = CliRunner().invoke(main, ["speed", "--tasks", "kin"])
    assert wrong.exit_code == 2
    assert f"unknown name 'kin'; the known ones are {', '.join(SPEED_TASKS)}" in wrong.output
