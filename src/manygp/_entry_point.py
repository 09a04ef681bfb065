"""The front door of the command `manygp`: signals have their exit codes before all else."""

from __future__ import annotations

import signal

from manygp.runtime.signals import leave


def main() -> None:
    """Run the command line; what it needs takes a moment to import."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, leave)
    from manygp.cli import main as command

    command(prog_name="manygp")
