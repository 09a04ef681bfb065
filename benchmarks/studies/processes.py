"""A cell in a process of its own with a time limit: both ends of `python -m module cell data_dir`.

The cell and the folder are passed as JSON. The process prints its result as JSON, or nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple


class CannotRunError(Exception):
    """The cell cannot run here: a library is not installed, or the task is too large for it."""


class Outcome(NamedTuple):
    """The result of a process, or how it failed, or why the cell cannot run here."""

    result: dict[str, Any] | None = None
    failure: str = ""
    obstacle: str = ""
    timed_out: bool = False


def run_alone(module: str, cell: Any, data_dir: str | None, seconds: float) -> Outcome:
    """Start the process of a cell and wait for it; it is killed after `seconds`."""
    command = [sys.executable, "-m", module, json.dumps(cell), json.dumps(data_dir)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return Outcome(timed_out=True)
    message = (done.stderr.strip().splitlines() or ["no message"])[-1]
    if done.returncode != 0:
        return Outcome(failure=message)
    lines = done.stdout.strip().splitlines()
    return Outcome(json.loads(lines[-1])) if lines else Outcome(obstacle=message)


def print_result(
    cell_type: Callable[..., Any], run_cell: Callable[[Any, str | None], dict[str, Any]]
) -> None:
    """Run the cell that the command line names and print its result: the body of the process."""
    fields, data_dir = (json.loads(argument) for argument in sys.argv[1:])
    try:
        print(json.dumps(run_cell(cell_type(*fields), data_dir)))
    except CannotRunError as error:
        print(error, file=sys.stderr)
