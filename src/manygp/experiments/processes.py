"""A cell of a study in a process of its own, with a limit of time."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """The result of a cell, if there is one; else why it failed, empty if it cannot run here."""

    result: dict[str, Any] | None = None
    failure: str = ""
    timed_out: bool = False


def run_alone(module: str, cell: Any, data_dir: str | None, seconds: int) -> Outcome:
    """Run `python -m module cell data_dir`, which prints its result as JSON, or nothing."""
    command = [sys.executable, "-m", module, json.dumps(cell), json.dumps(data_dir)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return Outcome(timed_out=True)
    if done.returncode != 0:
        return Outcome(failure=(done.stderr.strip().splitlines() or ["no message"])[-1])
    lines = done.stdout.strip().splitlines()
    return Outcome(json.loads(lines[-1]) if lines else None)
