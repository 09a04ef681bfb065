"""`manygp check`: what a table holds, and what `fit` would say about it."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from manygp.cli.options import (
    DATA,
    as_json,
    category_option,
    columns_option,
    data_file,
    decimal_option,
    drop_option,
    groups_option,
    missing_option,
    number_option,
    say,
    time_option,
)
from manygp.runtime.progress import shown
from manygp.runtime.words import counted, safe

if TYPE_CHECKING:  # else imported by the command: help should be quick
    from manygp.tables.training_rows import ColumnRoles


@click.command()
@click.argument("data", type=DATA)
@click.option("--target", required=True, metavar="COLUMN", help="The column to predict.")
@columns_option
@drop_option
@category_option
@number_option
@groups_option
@time_option
@decimal_option
@missing_option
@as_json
def check(
    data: Path,
    target: str,
    columns: tuple[str, ...],
    drop: tuple[str, ...],
    category: tuple[str, ...],
    number: tuple[str, ...],
    groups: str | None,
    time: str | None,
    decimal: str,
    missing: str,
    as_json: bool,
) -> None:
    """Tell what the columns of a table hold.

    \b
    manygp check train.csv --target price
    manygp check train.csv --target price --drop id --json

    And what is wrong with them: all that fit would refuse, before any work. Constant columns,
    columns that say the same and columns that tell the target are noticed. The exit code is 0 if
    nothing is wrong.
    """  # fmt: skip
    from manygp.tables.survey import problems_of
    from manygp.tables.training_rows import ColumnRoles, survey_table

    kinds: dict[str, Any] = {
        "categories": category,
        "numbers": number,
        "groups": groups,
        "time": time,
    }
    roles = ColumnRoles(target, columns or None, drop, **kinds)
    with data_file(data) as path, shown(verbose=sys.stderr.isatty()) as progress:
        progress.begin("reading")
        findings, n_rows = survey_table(path, roles, decimal=decimal)
        own = [one for one in findings if one.name != groups]
        problems = {one.column: one for one in problems_of(own, missing, target)}
        notices = [] if problems else _check_as_fit_does(path, roles, decimal, missing)
    if as_json:
        described = [
            {
                "name": one.name,
                "kind": one.kind,
                "missing": one.n_missing,
                "categories": one.n_categories or None,
                "problem": problems[one.name].say(command=True) if one.name in problems else None,
            }
            for one in findings
        ]
        facts = {"data": str(data), "rows": n_rows, "columns": described, "notices": notices}
        click.echo(json.dumps(facts))
    else:
        _print_findings(f"{data}: {counted(n_rows, 'row')}", findings, problems)
        for notice in notices:
            say(f"Note: {notice}.")
    if problems:
        click.get_current_context().exit(1)


def _check_as_fit_does(path: Path, roles: ColumnRoles, decimal: str, missing: str) -> list[str]:
    """Read, encode and scale the rows of a table, without a fit; tell what is odd about them."""
    import numpy as np

    from manygp.inputs import KnownRows
    from manygp.outofcore.files import TableSource
    from manygp.settings import Settings
    from manygp.tables.encoder import TableEncoder
    from manygp.tables.notices import drift_notices, notices_of
    from manygp.tables.training_rows import read_training
    from manygp.training.pipeline import prepare

    if TableSource(path, roles).is_large:  # it would be fitted in pieces
        return []
    table = read_training(path, roles, decimal=decimal, missing=missing)
    with warnings.catch_warnings():  # what they say is among the notices
        warnings.simplefilter("ignore", UserWarning)
        encoder = TableEncoder(missing=missing)
        X = encoder.fit_transform(table.rows, table.y)
        rows = KnownRows(X, table.y[:, None], np.zeros(len(X)))
        prepared = prepare(Settings(), rows, encoder.names)
    scales = np.append(prepared.x_scaling.half_scale, prepared.y_scaling.half_scale)
    for name, scale in zip((*encoder.names, roles.target), scales, strict=True):
        if not np.finfo(float).tiny <= scale <= np.finfo(float).max / 2:
            raise ValueError(
                f"{path}: column {name!r} varies by {2 * scale:.3g}, too little or too much to be "
                "scaled; write it in other units"
            )
    return [*notices_of(table), *([] if roles.time else drift_notices(table, X))]


def _print_findings(title: str, findings: list[Any], problems: dict[str, Any]) -> None:
    """A line for each column, and then the problems."""
    width = min(30, max(len("column"), *(len(safe(one.name)) for one in findings)))
    say(title)
    say(f"  {'column':<{width}}  {'holds':<18}{'missing':>9}")
    for one in findings:
        holds = one.kind
        if one.kind == "category":
            holds = f"{one.n_categories:,} categories"
        mark = "  <- see below" if one.name in problems else ""
        say(f"  {safe(one.name):<{width}}  {holds:<18}{one.n_missing:>9,}{mark}")
    if not problems:
        say("Nothing is wrong.")
        return
    n = len(problems)
    say(f"{counted(n, 'column')} cannot be used as {'it is' if n == 1 else 'they are'}:")
    for problem in problems.values():
        say(f"  {problem.say(command=True)}")
