"""What `python -m benchmarks --help` shows, and what it does not import."""

import re
import shlex
import subprocess
import sys

import pytest

pytest.importorskip("click")

from click.testing import CliRunner

from benchmarks.__main__ import main

START = ["python", "-m", "benchmarks"]


def test_the_commands_are_all_there():
    assert set(main.commands) == {
        "paper",
        "quality",
        "trust",
        "folds",
        "small",
        "messy",
        "speed",
        "emulator",
    }


@pytest.mark.parametrize("name", ["", *main.commands])
def test_help_has_examples_of_options_that_exist_and_tells_of_every_option(name):
    shown = CliRunner().invoke(main, [*name.split(), "--help"], prog_name=" ".join(START)).stdout
    assert "..." not in re.sub(r"\[ARGS\]\.\.\.", "", shown)  # no sentence is cut
    start = [*START, *name.split()]
    words = [shlex.split(line) for line in shown.splitlines() if line.startswith("  python")]
    assert words
    for example in words:
        assert example[: len(start)] == start
        known = {
            spelling for option in main.commands[example[3]].params for spelling in option.opts
        }
        assert {word for word in example[4:] if word.startswith("-")} <= known
    command = main.commands.get(name, main)
    assert all(option.help for option in command.params)


def test_help_imports_no_study():
    show = """
import sys
from click.testing import CliRunner
from benchmarks.__main__ import main
for study in ([], ["paper"], ["quality"], ["speed"]):
    assert CliRunner().invoke(main, [*study, "--help"]).exit_code == 0
print(*(name for name in sys.modules if name.startswith("benchmarks.studies.")))
"""
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["benchmarks.studies.names"]
