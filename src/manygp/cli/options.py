"""Options of several commands, checks before the work, and the printing of scores."""

from __future__ import annotations

import csv
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from manygp.runtime.files import temporary_folder
from manygp.runtime.progress import aside
from manygp.runtime.words import safe

if TYPE_CHECKING:  # else imported where they are needed: help should be quick
    from manygp.arrays import Array
    from manygp.kernels.base import Kernel


class File(click.Path):
    """A path; if it will not do, the file is at fault and not the command."""

    def fail(self, message: str, *_: object) -> NoReturn:
        raise click.ClickException(safe(message))


def say(text: str, *, err: bool = False) -> None:
    """Print a text, of which nothing controls the terminal."""
    with aside():
        click.echo(safe(text), err=err)


def read_kernel(context: object, parameter: object, value: str | None) -> Kernel | None:
    """The kernel that an option describes."""
    from manygp.kernels.text import parse_kernel

    try:
        return None if value is None else parse_kernel(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def read_levels(context: object, parameter: object, value: str | None) -> tuple[float, ...]:
    """Levels of quantiles: numbers between 0 and 1, separated by commas."""
    try:
        levels = tuple(float(level) for level in value.split(",")) if value else ()
    except ValueError:
        levels = (-1.0,)
    if not all(0 < level < 1 for level in levels):
        raise click.BadParameter(f"levels lie between 0 and 1, such as 0.05,0.5,0.95; not {value}")
    return levels


def read_names(context: object, parameter: object, values: tuple[str, ...]) -> tuple[str, ...]:
    """Names of columns, separated by commas; a name with a comma stands in quotes."""
    lists = (next(csv.reader([value], skipinitialspace=True)) for value in values if value)
    return tuple(chain.from_iterable(lists))


def names_option(option: str, *others: str, help: str) -> Callable[[Any], Any]:
    """An option that takes names of columns, once or several times."""
    return click.option(
        option, *others, multiple=True, callback=read_names, metavar="COLUMNS", help=help
    )


FILE = File(exists=True, dir_okay=False, path_type=Path)
DATA = File(exists=True, allow_dash=True, path_type=Path)
DATA.name = "file"  # in messages; a folder of Parquet files is one table
columns_option = names_option(
    "--column", "columns", help="Learn from these columns, such as a,b [default: all others]."
)
drop_option = names_option("--drop", help="Do not learn from these columns, such as id,name.")
category_option = names_option(
    "--category", help="These columns hold categories, also where they look like numbers."
)
number_option = names_option(
    "--number", help="These columns hold numbers, also where they look like codes, as 007."
)
groups_option = click.option(
    "--groups",
    metavar="COLUMN",
    help="Person, school or site of each row: what is promised holds for new ones. It is not "
    "learned from.",
)
time_option = click.option(
    "--time",
    metavar="COLUMN",
    help="When each row was seen, a number or a date: what is promised holds for the future.",
)
decimal_option = click.option(
    "--decimal",
    type=click.Choice([".", ","]),
    default=".",
    show_default=True,
    help="What stands before the decimals of a number in CSV.",
)
policy_option = partial(
    click.option, type=click.Choice(["fill", "error"]), default="fill", show_default=True
)
missing_option = policy_option(
    "--missing", help="Fill missing values in, with a std that knows it, or refuse them."
)
unknown_option = policy_option(
    "--unknown",
    help="Answer for categories that fit has not seen, with a larger std, or refuse them.",
)
NEW_FILE = File(dir_okay=False, path_type=Path)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for a machine.")
target_option = click.option(
    "--target", metavar="COLUMN", help="The true values [default: that of fit]."
)
report_option = click.option("--report", type=NEW_FILE, help="HTML page to write.")
coverage_option = click.option(
    "--coverage",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.9,
    show_default=True,
    help="Share of targets that the intervals are to hold.",
)


def scores_of(y: Array, mean: Array, std: Array) -> dict[str, float | None]:
    """RMSE, NLL, ENCE and CRPS; None where there are too few rows."""
    from manygp import metrics

    enough = len(y) >= metrics.N_BINS
    return {
        "rmse": metrics.rmse(y, mean),
        "nll": metrics.nll(y, mean, std),
        "ence": metrics.ence(y, mean, std) if enough else None,
        "crps": metrics.crps(y, mean, std),
    }


def interval_scores(y: Array, lower: Array, upper: Array, level: float) -> dict[str, float]:
    """Share of targets within intervals, their mean width, and their interval score.

    The score is the width, and what lies outside times 2 / (1 - level).
    """
    outside = (lower - y).clip(0) + (y - upper).clip(0)
    width = float((upper - lower).mean())
    return {
        "coverage": float((outside == 0).mean()),
        "width": width,
        "interval_score": width + 2 / (1 - level) * float(outside.mean()),
    }


def print_scores(scores: dict[str, float | None], rows: str, level: float = 0.9) -> None:
    """One line for each score of some rows."""
    say(f"Scores {rows}:")
    price = 2 / (1 - level)
    notes = {
        "nll": ("NLL", " of a normal distribution"),
        "crps": ("CRPS", " of a normal distribution"),
        "log_score": ("log score", " of the predicted distribution"),
        "crps_of_distribution": ("CRPS", " of the predicted distribution"),
        "width": ("width", " of the intervals, mean"),
        "interval_score": ("score", f" of the intervals: width, and misses times {price:.4g}"),
        "within_90": ("90% by std", " within mean -+ 1.64 std (0.9 if errors were normal)"),
        "coverage": ("interval", f" within lower and upper (of {level:.4g})"),
        "r2": ("R^2", "" if (scores.get("r2") or 1.0) > 0 else ": no better than a constant"),
    }
    for name, value in scores.items():
        label, note = notes.get(name, (name.upper(), ""))
        say(f"  {label:<12}{'-' if value is None else f'{value:.4g}'}{note}")


def require_matplotlib(what: str) -> None:
    """Refuse what needs matplotlib before the work, not after."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(f'{what} needs matplotlib: pip install "manygp[plot]"') from error


def require_place(output: Path, *others: Path) -> None:
    """Make sure that a file can be written, and is none of the others, before the work."""
    if output.exists() and not output.is_file():  # a pipe, or /dev/null
        return
    folder = output.resolve().parent
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder} to write {output} into")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"there is no permission to write {output} into the folder {folder}")
    if output.resolve() in [other.resolve() for other in others]:
        raise ValueError(f"{output} would take the place of a file that this command needs")


@contextmanager
def data_file(data: Path) -> Iterator[Path]:
    """The file of a table; standard input, for "-", is kept in one, since it is read again."""
    if str(data) != "-":
        yield data
        return
    with temporary_folder() as folder:
        path = folder / "standard input"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        try:
            yield path
        except ValueError as error:
            raise ValueError(str(error).replace(str(path), path.name)) from error
