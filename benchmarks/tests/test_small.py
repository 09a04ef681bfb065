"""The study of few rows: its grid, its rows, its tables and its command."""

import numpy as np
import pytest

pytest.importorskip("click")

from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.studies import small
from benchmarks.studies.names import SMALL_MODELS, SMALL_ROWS
from benchmarks.studies.peers import PEERS
from benchmarks.studies.processes import CannotRunError
from benchmarks.studies.small import SmallCell, small_cells, split_of
from benchmarks.studies.small_tables import (
    common_cases,
    promise_table,
    rank_table,
    score_table,
)


def result(model="manygp", task="wine", rows=50, draw=0, **changes):
    scores = {
        "log_score": 1.0, "crps": 0.5, "rmse": 0.7, "nll": 1.0, "coverage": 0.8,
        "interval_coverage": 0.9, "cpu_seconds": 2.0, "promised_nll": 0.9,
    }  # fmt: skip
    cell = {"task": task, "rows": rows, "draw": draw, "model": model}
    return {**cell, **scores, **changes}


def test_every_model_is_asked_about_every_number_of_rows():
    cells = small_cells(["wine", "housing"], ["manygp", "catboost"], 3)
    assert len(cells) == len(set(cells)) == 3 * 2 * (len(SMALL_ROWS["wine"]) + 3)
    assert set(SMALL_MODELS) <= set(PEERS)


def test_a_draw_is_the_same_again_and_its_rows_are_never_scored():
    one, again = (split_of("diabetes", 50, 1, None) for _ in range(2))
    other = split_of("diabetes", 50, 2, None)
    np.testing.assert_array_equal(one.X_train, again.X_train)
    assert not np.array_equal(one.X_train, other.X_train)
    assert len(one.y_train) == 50
    assert len(one.y_test) == 442 - 50
    both = np.vstack([one.X_train, one.X_test])
    assert len(np.unique(both, axis=0)) == 442
    assert one.y_train.std() == pytest.approx(1)
    with pytest.raises(ValueError, match="too few rows"):
        split_of("diabetes", 400, 0, None)


def test_ranks_are_of_cases_that_all_models_have():
    results = [
        result(log_score=1.0, crps=0.4),
        result("extra-trees", log_score=2.0, crps=0.3, promised_nll=None),
        result(rows=100),  # the other is missing
    ]
    assert list(common_cases(results)) == [("wine", 50, 0)]
    rows = rank_table(results).rows
    assert rows[0] == ["50", "manygp", "1.00 (1)", "2.00 (0)", "1.00 (1)", "1"]
    assert rows[-1][:2] == ["all", "extra trees, conformal"]


def test_seconds_are_compared_with_scikit_learns():
    results = [result(cpu_seconds=1.0), result("scikit-learn", interval_coverage=None)]
    own, other = score_table(results).rows
    assert own[-3:] == ["90.0%", "1.00", "0.5"]
    assert other[-3:] == ["80.0%", "2.00", "1"]  # the interval of its std, then


def test_promises_are_compared_by_data_set():
    results = [
        result(nll=1.1, promised_nll=1.0), result(nll=1.2, promised_nll=1.3, draw=1),
        result(nll=1.0, promised_nll=0.8, task="airfoil"),
    ]  # fmt: skip
    assert promise_table(results).rows == [
        ["50", "1.033", "1.100", "+0.100", "0.100", "90.0%", "3"]
    ]


def test_a_library_that_is_missing_is_left_out_and_runs_later(monkeypatch, tmp_path):
    started = []

    def run(cell, data_dir):
        started.append(cell.model)
        if cell.model == "catboost":
            raise CannotRunError("catboost is not installed")
        return result(*[cell.model, cell.task, cell.rows, cell.draw])

    monkeypatch.setattr(small, "run_small_cell", run)
    options = ["--tasks", "diabetes", "--models", "manygp,catboost", "--draws", "1"]
    command = ["small", *options, "--results", str(tmp_path)]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    assert "catboost is left out: catboost is not installed" in done.output
    assert started == ["manygp", "catboost", "manygp", "manygp"]
    assert "Mean rank" in (tmp_path / "tables.md").read_text()
    started.clear()
    CliRunner().invoke(main, command)
    assert started == ["catboost"]


def test_a_cell_has_scores_and_what_was_promised():
    found = small.run_small_cell(SmallCell("diabetes", 50, 0, "extra-trees"), None)
    assert found["promised_nll"] is None
    own = small.run_small_cell(SmallCell("diabetes", 50, 0, "manygp"), None)
    assert np.isfinite([own["promised_nll"], own["log_score"], own["cpu_seconds"]]).all()
    assert 0 < own["rmse"] < 1.5
