"""The command line `manygp`."""

from __future__ import annotations

import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

try:
    import click
    import rich  # noqa: F401
except ImportError as error:
    sys.exit(f'the command line needs an extra: pip install "manygp[cli]" ({error})')

from manygp.cli.check import check
from manygp.cli.inspect import info, plot, verify
from manygp.cli.models import evaluate, fit, predict
from manygp.cli.options import say
from manygp.cli.report import report
from manygp.cli.suggest import suggest
from manygp.cli.update import update
from manygp.runtime.parallel import WorkerKilledError
from manygp.runtime.signals import leave
from manygp.runtime.words import safe

INTERRUPTED = 130
# Commands that have left the package, and what is run instead; for one version.
MOVED = {"bench": "python -m benchmarks", "demo": "python -m benchmarks.demo"}


class Commands(click.Group):
    """Errors of data and files as one line, without a traceback, and exit codes to rely on."""

    def list_commands(self, context: click.Context) -> list[str]:
        """In the order of use, not of the alphabet."""
        return list(self.commands)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in MOVED:
            context.fail(f"{name} is `{MOVED[name]}` now, in a clone of the repository")
        return super().get_command(context, name)

    def invoke(self, context: click.Context) -> Any:
        with _orderly_end(), warnings.catch_warnings():
            warnings.showwarning = _say
            try:
                return super().invoke(context)
            except KeyboardInterrupt as interrupt:
                why = f"interrupted; {interrupt}" if str(interrupt) else "interrupted"
                say(why, err=True)
                context.exit(INTERRUPTED)
            except BrokenPipeError:
                raise
            except OSError as error:
                name = f"{error.filename}: " if error.filename else ""
                raise _failure(name + (error.strerror or str(error))) from error
            except MemoryError as error:
                raise _failure(f"not enough memory: {error}".removesuffix(": ")) from error
            except (ValueError, ImportError, WorkerKilledError) as error:
                raise _failure(error) from error


@contextmanager
def _orderly_end() -> Iterator[None]:
    """Let what is being written be removed after other signals too, as after an interrupt."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores them
                before[number] = signal.signal(number, leave)
        if signal.getsignal(signal.SIGINT) is leave:  # what is kept can be told from here on
            before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(message: Warning | str, *_: object, **__: object) -> None:
    """Show a warning as a line of its own, without the source that it comes from."""
    say(f"manygp: {_one_line(str(message))}", err=True)


def _failure(error: Exception | str) -> click.ClickException:
    """An error as one line; problems of several columns have a line each."""
    lines = str(error).splitlines() if ":\n  column " in str(error) else [_one_line(str(error))]
    return click.ClickException(safe("\n".join(lines)))


def _one_line(message: str) -> str:
    return " ".join(line.strip() for line in message.splitlines() if line.strip())


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 the data or a file is at fault (a message on standard error "
    "says how), 2 the command is, 129 hung up on, 130 interrupted, 143 terminated.",
)
@click.version_option(package_name="manygp")
def main() -> None:
    """Gaussian process regression whose error bars can be trusted.

    \b
    manygp check train.csv --target price
    manygp fit train.csv --target price -o price.manygp
    manygp predict price.manygp new.csv -o answers.csv
    manygp evaluate price.manygp test.csv --target price
    manygp update price.manygp today.csv
    manygp report price.manygp test.csv -o page.html
    manygp suggest runs.csv --target loss --range rate=1e-5:0.1:log -n 4
    """  # fmt: skip


for command in (check, fit, predict, evaluate, update, report, plot, info, verify, suggest):
    main.add_command(command)
