"""The scripts that measure speed still run; what they measure is not judged here."""

import importlib.util
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


def script(name):
    """A script of the benchmarks as a module."""
    path = FOLDER / f"{name}.py"
    if not path.exists():
        pytest.skip(f"{path} is not part of a source archive")
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_small_steps_are_measured_as_ratios(monkeypatch, capsys):
    micro = script("micro")
    monkeypatch.setattr(micro, "REPEATS", 1)
    micro.likelihood(30)
    micro.predict(400, 100)
    micro.one_row((60,), inner=2)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == ["likelihood", "predict", "one", "one"]


@pytest.mark.parametrize("name", ["first", "large", "million", "routing", "tables"])
def test_a_script_imports_what_there_is(name):
    assert script(name).__doc__
