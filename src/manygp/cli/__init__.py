"""The command line `manygp`."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

try:
    import click
    import rich  # noqa: F401
except ImportError as error:
    sys.exit(f'the command line needs an extra: pip install "manygp[cli]" ({error})')

from manygp.cli.bench import bench
from manygp.cli.models import evaluate, fit, info, plot, predict, verify

INTERRUPTED, TERMINATED = 130, 143


class Commands(click.Group):
    """Errors of data and files as one line, without a traceback, and exit codes to rely on."""

    def invoke(self, context: click.Context) -> Any:
        if threading.current_thread() is threading.main_thread():
            # What is being written is removed, as after an interrupt.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
        try:
            return super().invoke(context)
        except KeyboardInterrupt as interrupt:
            click.echo(f"interrupted; {interrupt}" if str(interrupt) else "interrupted", err=True)
            context.exit(INTERRUPTED)
        except BrokenPipeError:
            raise
        except OSError as error:
            name = f"{error.filename}: " if error.filename else ""
            raise click.ClickException(name + (error.strerror or str(error))) from error
        except MemoryError as error:
            raise click.ClickException(f"not enough memory: {error}") from error
        except (ValueError, ImportError) as error:
            raise click.ClickException(str(error)) from error


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 the data or a file is at fault (one line on standard error says "
    "how), 2 the command is, 130 interrupted.",
)
@click.version_option(package_name="manygp")
def main() -> None:
    """Gaussian process regression whose error bars can be trusted.

    \b
    manygp fit train.csv --target price -o price.manygp
    manygp predict price.manygp new.csv -o answers.csv
    manygp evaluate price.manygp test.csv --target price --report page.html
    """  # fmt: skip


@main.command()
@click.argument("folder", type=click.Path(file_okay=False), default="demo")
def demo(folder: str) -> None:
    """Compare models on the paper's 10-d Ackley task: a table, and figures in FOLDER."""
    from pathlib import Path

    from manygp.experiments import demo as study

    study.main(Path(folder))


for command in (fit, predict, evaluate, plot, info, verify, bench):
    main.add_command(command)
