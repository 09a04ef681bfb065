"""The scripts that measure speed still run; what they measure is not judged here."""

from importlib import import_module

import pytest

from benchmarks import micro


def test_small_steps_are_measured_as_ratios(monkeypatch, capsys):
    monkeypatch.setattr(micro, "REPEATS", 1)
    micro.likelihood(30)
    micro.predict(400, 100)
    micro.one_row((60,), inner=2)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == ["likelihood", "predict", "one", "one"]


@pytest.mark.parametrize(
    "name", ["demo", "first", "large", "million", "routing", "seams", "sklearn_suite", "tables"]
)
def test_a_script_imports_what_there_is(name):
    assert import_module(f"benchmarks.{name}").__doc__
