"""The scripts that measure speed still run; what they measure is not judged here."""

from importlib import import_module

import pytest

from benchmarks import micro, updates


def test_small_steps_are_measured_as_ratios(monkeypatch, capsys):
    monkeypatch.setattr(micro, "REPEATS", 1)
    micro.likelihood(30)
    micro.predict(400, 100)
    micro.one_row((60,), inner=2)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == ["likelihood", "predict", "one", "one"]


@pytest.mark.parametrize(
    "name",
    [
        "curves",
        "demo",
        "first",
        "large",
        "million",
        "noise",
        "routing",
        "seams",
        "sklearn_suite",
        "tables",
        "targets",
        "updates",
    ],
)
def test_a_script_imports_what_there_is(name):
    assert import_module(f"benchmarks.{name}").__doc__


def test_updates_are_timed_and_streams_scored(monkeypatch, capsys):
    sizes = {"FIRST": 300, "DAYS": 2, "DAY_ROWS": 40, "WINDOW": 40, "KEPT": 320}
    for name, value in {**sizes, "REPEATS": (1, 1, 1)}.items():
        monkeypatch.setattr(updates, name, value)
    updates.main(["cost", "500"])
    updates.main(["shift", "window", "sgd", "hgb"])
    printed = capsys.readouterr().out.splitlines()
    assert printed[1].startswith("1 row, 500 rows: ")
    kinds = [line.split(":")[0].strip() for line in printed if ": RMSE" in line]
    assert kinds == ["window", "sgd", "hgb"]
