"""Official folds: every model on each, beside published numbers."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("click")

from click.testing import CliRunner

from benchmarks import datasets
from benchmarks.__main__ import main
from benchmarks.studies import folds
from benchmarks.studies.answers import Answer
from benchmarks.studies.folds import FoldCell, fold_cells, fold_study
from benchmarks.studies.folds_tables import distribution_table, published_table, write_folds
from benchmarks.studies.names import FOLD_MODELS, FOLD_TASKS


def result(task="pol", fold=0, model="manygp", **changes):
    scores = {
        "rmse": 0.1, "nll": -1.0, "log_score": -1.1, "crps": 0.05, "ence": 0.1, "coverage": 0.95,
        "interval_coverage": 0.9, "fit_seconds": 3.0, "predict_seconds": 0.5, "n_scored": 1500,
        "note": "",
    }  # fmt: skip
    return {"task": task, "fold": fold, "model": model, **scores, **changes}


def failed(task="pol", fold=0, model="gpboost", note="not finished in 600 s"):
    return {"task": task, "fold": fold, "model": model, "note": note}


def test_all_models_have_a_fold_before_the_next():
    cells = fold_cells(FOLD_TASKS, FOLD_MODELS, 2)
    assert len(set(cells)) == len(cells) == 2 * len(FOLD_TASKS) * len(FOLD_MODELS)
    assert [cell.fold for cell in cells] == sorted(cell.fold for cell in cells)


def test_a_cell_is_scored_on_its_fold(monkeypatch):
    rng = np.random.default_rng(0)
    data = datasets.Split(np.zeros((30, 2)), np.zeros(30), np.zeros((20, 2)), rng.normal(size=20))
    asked = []

    def fold_of(*arguments):
        asked.append(arguments)
        return data

    def peer(X, y, X_test, seed):
        assert (len(X), len(X_test), seed) == (30, 20, 3)
        return Answer(np.zeros(20), np.ones(20), 1.0, 0.5)

    monkeypatch.setattr(datasets, "official_fold", fold_of)
    monkeypatch.setitem(folds.PEERS, "lightgbm", peer)
    found = folds.run_fold_cell(FoldCell("pol", 3, "lightgbm"), "data")
    assert asked == [("pol", 3, "data")]
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean(data.y_test**2)))
    assert (found["task"], found["fold"], found["model"]) == ("pol", 3, "lightgbm")


def test_means_of_folds_stand_beside_published_numbers():
    results = [
        result(fold=0, rmse=0.1),
        result(fold=1, rmse=0.2),
        result(model="catboost", interval_coverage=None),
        failed(model="catboost", fold=1),
        failed(),
        result("kin40k", model="ngboost"),
    ]
    table = published_table(results)
    assert table.title == "RMSE / NLL, mean of 2 official 90/10 folds"
    assert table.header == [
        "task", "published: exact GP on a GPU", "manygp", "CatBoost, uncertainty", "NGBoost",
        "GPBoost, Vecchia",
    ]  # fmt: skip
    assert table.rows == [
        ["kin40k", "0.065 / -1.319", "-", "-", "0.100 / -1.000", "-"],
        [
            "pol",
            "0.127 / -0.961 (64%: 0.076 / -1.220)",
            "0.150 / -1.000",
            "0.100 / -1.000, 1 not finished",
            "-",
            "not finished in 600 s",
        ],
    ]
    pol = distribution_table(results).rows[1]
    assert pol[1:3] == [
        "-1.100 / 0.050 / 0.100 (90.0%)",
        "-1.100 / 0.050 / 0.100 (95.0%), 1 not finished",
    ]


def test_results_and_tables_are_written(tmp_path):
    written = write_folds(tmp_path, [result(), failed()])
    assert [path.name for path in written] == ["results.csv", "tables.md"]
    assert len(list(csv.DictReader(written[0].read_text().splitlines()))) == 2
    assert "| pol | 3 + 0.5 | not finished in 600 s |" in written[1].read_text()


def test_missing_folds_are_an_error_of_the_command_and_not_a_result(tmp_path):
    command = ["folds", "--data-dir", str(tmp_path), "--results", str(tmp_path / "r")]
    shown = CliRunner().invoke(main, [*command, "--tasks", "pol", "--models", "manygp"])
    assert shown.exit_code == 1
    assert "pol.csv.gz is missing" in shown.output
    assert fold_study().open_store(tmp_path / "r").results == {}


def test_the_command_runs_the_folds_that_are_asked_for(tmp_path, monkeypatch):
    started = []

    def run(command, **options):
        assert command[:3] == [sys.executable, "-m", "benchmarks.studies.folds"]
        started.append(FoldCell(*json.loads(command[3])))
        line = json.dumps(result(*started[-1])) + "\n"
        return subprocess.CompletedProcess(command, 0, line, "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(folds, "require_cases", lambda task, data_dir: None)
    command = ["folds", "--results", str(tmp_path / "r"), "--folds", "3"]
    shown = CliRunner().invoke(main, [*command, "--tasks", "pol", "--models", "manygp"])
    assert shown.exit_code == 0, shown.output
    assert started == [FoldCell("pol", fold, "manygp") for fold in range(3)]
    assert CliRunner().invoke(main, [*command[:-1], "11"]).exit_code == 2
