"""The paper's grid, its tables and its page."""

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("click")
pytest.importorskip("matplotlib")

from click.testing import CliRunner

from benchmarks import datasets
from benchmarks.__main__ import main
from benchmarks.studies import paper, paper_figures, paper_plan, paper_tables
from benchmarks.studies.names import PAPER_SCORES
from benchmarks.studies.paper_plan import FULL_SCOPE, PaperCell, paper_cells
from benchmarks.studies.published import published, published_cells
from benchmarks.studies.study import Configuration
from manygp import ManyGPRegressor
from manygp.display import page
from manygp.metrics import ence, nll, rmse
from manygp.paper import LABELS

SMALL = paper.paper_study(1, FULL_SCOPE._replace(n_rows=300))


def test_the_plan_covers_every_published_score_and_is_no_larger_than_asked():
    cells = paper_cells(paper_plan.REPRODUCED_TASKS, LABELS, 10, with_sizes=True)
    covered = {
        (cell.task, model)
        for cell in cells
        if cell.regime == "independent"
        for model in paper_plan.labels_of(cell.assignment)
    }
    scores = {(c.task, c.model) for c in published_cells() if c.task != "average"}
    assert scores <= covered
    assert len(cells) == len(set(cells))
    assert [cell.seed for cell in cells] == sorted(cell.seed for cell in cells)
    first = [cell.cost for cell in cells if cell.seed == 0]
    assert first == sorted(first, reverse=True)
    few = paper_cells(["ackley"], ["rd-ent"], 3, with_sizes=True)
    assert {(cell.assignment, cell.points) for cell in few} == {("rd", 200)}
    assert len(few) == 3 * len(paper_plan.REGIMES)
    assert not any(
        c.assignment == "full" for c in paper_cells(["kin40k"], LABELS, 1, with_sizes=False)
    )


def test_the_size_study_varies_the_points_for_three_seeds():
    cells = paper_cells(["kin40k"], ["bt-ent-c"], 10, with_sizes=True)
    points = {cell.points for cell in cells}
    assert points == set(paper_plan.EXPERT_SIZES)
    assert {cell.seed for cell in cells if cell.points != 200} == {0, 1, 2}


@pytest.mark.parametrize(
    ("assignment", "labels"), [("bt", ["bt-var-c", "gp-pro-sm"]), ("full", ["gp-full"])]
)
def test_models_that_share_experts_score_as_if_fitted_alone(assignment, labels):
    cell = PaperCell("ackley", assignment, "independent", 50, 1)
    found = paper.run_paper_cell(cell, None, n_rows=300)
    data = datasets.split(datasets.load("ackley", 1, 300), 1)
    for label in labels:
        model = ManyGPRegressor.from_label(label, points_per_expert=50, random_state=1)
        answer = model.fit(data.X_train, data.y_train).predict(data.X_test, return_std=True)
        for metric in (rmse, nll, ence):
            expected = metric(data.y_test, *answer)
            assert found["models"][label][metric.__name__] == pytest.approx(expected, rel=1e-9)


def test_gp_pro_full_scores_as_gp_full():
    cell = PaperCell("ackley", "full", "independent", 50, 0)
    models = paper.run_paper_cell(cell, None, n_rows=300)["models"]
    for metric in PAPER_SCORES:
        assert models["gp-pro-full"][metric] == pytest.approx(models["gp-full"][metric], rel=1e-9)


def test_a_folder_of_another_configuration_is_refused(tmp_path):
    SMALL.open_store(tmp_path)
    SMALL.open_store(tmp_path)
    assert SMALL.configuration == Configuration(n_rows=300)
    with pytest.raises(ValueError, match="another configuration"):
        paper.paper_study(1).open_store(tmp_path)


def test_finished_cells_are_not_computed_again_and_others_are(tmp_path):
    store = SMALL.open_store(tmp_path)
    cells = [PaperCell("ackley1d", a, "independent", 50, 0) for a in ("bt", "rd")]
    kept = {**cells[0]._asdict(), "kept": True}
    store.add(cells[0], kept)
    with store.path.open("a") as file:
        file.write('{"task": "ack')  # of a writer that was killed
    seen = []
    SMALL.run(SMALL.open_store(tmp_path), cells, None, seen.append)
    assert seen == [cells[1]]
    again = SMALL.open_store(tmp_path)
    assert again.read(cells)[0] == kept
    assert not again.missing(cells)


def rows(values, **changes):
    base = {
        "task": "ackley", "model": "bt-ent", "regime": "independent", "points_per_expert": 200,
        "metric": "rmse", "fit_seconds": 1.0, "predict_seconds": 0.5,
    }  # fmt: skip
    return [{**base, **changes, "seed": s, "value": v} for s, v in enumerate(values)]


def scores(some):
    return paper_tables.table_scores(paper_tables.summarise(some), "independent")


def test_a_cell_shows_mean_standard_error_and_the_papers_number():
    summary = paper_tables.summarise(rows([0.4, 0.5, 0.6]))
    found = summary["independent", "ackley", "bt-ent", 200, "rmse"]
    assert found.mean == pytest.approx(0.5)
    assert found.error == pytest.approx(0.1 / np.sqrt(3))
    (table,) = [
        t
        for t in paper_tables.paper_tables(paper_tables.table_scores(summary, "independent"))
        if t.title.startswith("GP-pro, GP-pro-full") and t.title.endswith("rmse")
    ]
    by_task = {row[0]: row[1] for row in table.rows}
    assert by_task["ackley"] == f"0.500 ±0.058 ({published()['ackley', 'bt-ent', 'rmse']:.3f})"
    assert by_task["levy"] == "(0.681)"


def test_averages_wait_for_all_tasks():
    tasks = ["ackley", "levy"]
    one = scores(rows([0.4]))
    assert paper_tables.average(one, tasks, "bt-ent", "rmse") is None
    two = scores(rows([0.4]) + rows([0.6], task="levy"))
    assert paper_tables.average(two, tasks, "bt-ent", "rmse") == pytest.approx(0.5)


def test_the_change_by_calibration_is_relative_to_the_size_of_the_score():
    pairs = rows([-2.0], metric="nll") + rows([-2.2], metric="nll", model="bt-ent-c")
    table = paper_tables.calibration_table(scores(pairs), ["ackley"])
    row = next(row for row in table.rows if row[0] == "bt-ent")
    assert row[3].startswith("-2.000 → -2.200")
    assert row[4].startswith("-10.0%")


def test_sizes_are_compared_on_the_same_seeds_and_tasks(tmp_path, monkeypatch):
    many = []
    for model in ("bt-ent-c", "rd-ent-c"):
        for size in paper_plan.EXPERT_SIZES:
            values = [1.0, 2.0, 3.0] + [100.0] * (7 if size == 200 else 0)
            for metric in PAPER_SCORES:
                many += rows(values, model=model, points_per_expert=size, metric=metric)
        many += rows([9.0], model=model, task="levy", points_per_expert=200)  # not finished
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    monkeypatch.setattr(plt, "close", lambda figure: None)
    assert paper_figures.draw_sizes(many, tmp_path / "sizes.png")
    axes = plt.gcf().axes
    monkeypatch.undo()
    assert [line.get_label() for line in axes[0].lines] == ["ball tree", "random"]
    for line in axes[0].lines:
        np.testing.assert_allclose(line.get_ydata(), 2.0)
    plt.close("all")
    assert not paper_figures.draw_sizes(rows([1.0]), tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_the_page_needs_nothing_from_outside_and_escapes_what_it_shows():
    table = page.TextTable("<b>", ["", "a&b"], [["<script>", "**1.0** (2.0)"]])
    html = page.page("t", "i", {"s": page.as_html(table, paper_tables.cell_markup)})
    assert "<script" not in html
    assert "a&amp;b" in html
    assert "<b>1.0</b>" in html
    assert 'name="viewport"' in html
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", html)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tasks", "nix"], "unknown name 'nix'; the known ones are ackley"),
        (["--models", "bt-ent,nix"], "unknown name 'nix'.*gp-pro-full"),
        (["--tasks", "kin40k", "--seeds", "1"], r"kin40k\.csv\.gz is missing"),
    ],
)
def test_the_command_names_what_it_does_not_know(options, message, tmp_path):
    arguments = ["paper", "--results", str(tmp_path / "r"), "--data-dir", str(tmp_path)]
    result = CliRunner().invoke(main, [*arguments, *options])
    assert result.exit_code != 0
    assert re.search(message, result.output)


def test_after_a_kill_the_same_command_goes_on_and_writes_everything(tmp_path):
    results = tmp_path / "results"
    cells = results / "cells.jsonl"
    command = [sys.executable, "-m", "benchmarks", "paper", "--quick", "--jobs", "1"]
    command += ["--tasks", "ackley1d", "--models", "bt-ent,bt-ent-c,rd-ent-c,gp-full"]
    command += ["--results", str(results)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and not cells.exists():
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    before = cells.read_text().rpartition("\n")[0]
    assert before
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert cells.read_text().startswith(before)
    assert len(cells.read_text()) > len(before)
    written = done.stdout.split()
    assert str(results / "index.html") in written
    assert all(os.path.getsize(path) > 0 for path in written)
    header = (results / "results.csv").read_text().splitlines()[0]
    assert header.startswith("task,model,regime,points_per_expert,seed,metric,value,fit_seconds")
