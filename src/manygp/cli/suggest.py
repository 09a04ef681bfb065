"""`manygp suggest`: rows to evaluate next, from a table of those that were evaluated."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import click

from manygp.cli.options import DATA, data_file


@click.command()
@click.argument("data", type=DATA, required=False)
@click.option("--target", metavar="COLUMN", required=True, help="What is to be small.")
@click.option(
    "--range",
    "ranges",
    multiple=True,
    required=True,
    metavar="COLUMN=RANGE",
    help="What to search, once for each column: rate=1e-5:0.1:log, layers=1:6 (whole numbers), "
    "width=0.0:1.0, or kind=tree,line,net. Other columns are not used.",
)
@click.option(
    "-n", "--rows", "n_rows", type=click.IntRange(1), default=1, show_default=True,
    help="Rows to suggest, and how many were evaluated at a time.",
)  # fmt: skip
@click.option("--maximise", is_flag=True, help="Look for the largest value, not the least.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
def suggest(
    data: Path | None,
    target: str,
    ranges: tuple[str, ...],
    n_rows: int,
    maximise: bool,
    seed: int,
) -> None:
    """Suggest the next rows to evaluate, as CSV on standard output.

    DATA is a table of the rows that were evaluated, oldest first, with their targets; where that
    is missing, the evaluation has failed. Run it again as the table grows, and without DATA for
    the first rows.

    \b
    manygp suggest runs.csv --target loss --range rate=1e-5:0.1:log --range layers=1:6 -n 8
    """
    from manygp.optimise import Optimiser

    space = dict(map(_range, ranges))
    optimiser = Optimiser(space, random_state=seed)
    if data is not None:
        with data_file(data) as path:
            columns = _columns(path, (*space, target))
        y = [_number(one) * (-1 if maximise else 1) for one in columns.pop(target)]
        kinds = {one.name: one for one in optimiser.space.dimensions}
        rows = [
            {name: _value(kinds[name], one) for name, one in zip(columns, row, strict=True)}
            for row in zip(*columns.values(), strict=True)
        ]
        for start in range(0, len(rows), n_rows):  # as they were suggested
            optimiser.tell(rows[start : start + n_rows], y[start : start + n_rows])
    writer = csv.DictWriter(sys.stdout, list(space), lineterminator="\n")
    writer.writeheader()
    writer.writerows(optimiser.ask(n_rows))


def _columns(path: Path, names: tuple[str, ...]) -> dict[str, list[Any]]:
    """Values of some columns of a table."""
    from manygp.tables.formats import open_table

    columns: dict[str, list[Any]] = {name: [] for name in names}
    for batch in open_table(path).batches(names):
        for name, values in columns.items():
            values += list(batch.columns[name])
    return columns


def _range(text: str) -> tuple[str, Any]:
    """A column and its range, as `Space` takes it."""
    name, equals, spec = text.partition("=")
    parts = spec.split(":")
    if not (name and equals and spec):
        raise click.BadParameter(f"{text!r} is not COLUMN=RANGE", param_hint="--range")
    if "," in spec:
        return name, spec.split(",")
    if len(parts) not in (2, 3) or parts[2:] not in ([], ["log"]):
        words = "LOW:HIGH, LOW:HIGH:log or A,B,C"
        raise click.BadParameter(
            f"the range of {name} is {words}, not {spec!r}", param_hint="--range"
        )
    try:
        ends = [int(one) if one.lstrip("+-").isdigit() else float(one) for one in parts[:2]]
    except ValueError:
        raise click.BadParameter(
            f"{spec!r} is no range of numbers", param_hint="--range"
        ) from None
    return name, (*ends, *parts[2:])


def _number(value: Any) -> float:
    """A target; NaN where it is missing."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _value(dimension: Any, value: Any) -> Any:
    """A value of the table as the space has it; what it does not know is refused by `tell`."""
    if dimension.kind == "category":
        text = str(value)
        known = {text: text, text.removesuffix(".0"): text.removesuffix(".0")}
        return next((one for one in dimension.values if one in known), text)
    number = _number(value)
    return int(number) if dimension.kind == "integer" and number.is_integer() else number
