"""`manygp update`: new rows into a model file, without a new fit."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from manygp.cli.options import (
    DATA,
    FILE,
    NEW_FILE,
    as_json,
    data_file,
    decimal_option,
    missing_option,
    require_place,
    say,
    target_option,
    unknown_option,
)
from manygp.runtime.files import naming_full_disk
from manygp.runtime.progress import shown
from manygp.runtime.words import counted, duration

if TYPE_CHECKING:  # else imported by the command: help should be quick
    from manygp.cli.table_model import TableModel
    from manygp.training.updates import NewRows


@click.command()
@click.argument("model", type=FILE)
@click.argument("data", type=DATA)
@click.option("-o", "--output", type=NEW_FILE, help="Model file to write [default: MODEL].")
@target_option
@click.option(
    "--noise-column",
    metavar="COLUMN",
    help="Known noise variance of each target, in the square of its units.",
)
@click.option(
    "--keep-last",
    type=click.IntRange(1),
    metavar="ROWS",
    help="Forget older rows, so that at most this many are left.",
)
@click.option(
    "--refresh",
    type=click.Choice(["auto", "never", "always"]),
    default="auto",
    show_default=True,
    help="When to learn kernel, trend and parts again: where enough has changed, or as you say.",
)
@click.option(
    "--jobs", type=click.IntRange(-1, 1024), default=-1, show_default=True,
    help="Cores; -1 for all.",
)  # fmt: skip
@decimal_option
@missing_option
@unknown_option
@as_json
def update(
    model: Path,
    data: Path,
    output: Path | None,
    target: str | None,
    noise_column: str | None,
    keep_last: int | None,
    refresh: str,
    jobs: int,
    decimal: str,
    missing: str,
    unknown: str,
    as_json: bool,
) -> None:
    """Add the rows of a table to a model, without a new fit.

    \b
    manygp update price.manygp today.csv
    manygp update price.manygp today.csv -o new.manygp --keep-last 100000

    Each row is predicted before it is added, and what was seen is printed: how large errors were
    in units of the std, and how many 90% intervals held. Rows without a target are left out. The
    file is replaced as a whole, or stays as it was.
    """  # fmt: skip
    output = model if output is None else output
    require_place(output, data)
    with shown(verbose=sys.stderr.isatty()) as told:
        told.begin("starting")
        from manygp.cli.table_model import TableModel
        from manygp.model import ids_of
        from manygp.storage import write_model
        from manygp.training.experts import ExecutionContext
        from manygp.training.updates import forgotten, require_row_by_row, updated

        fitted = TableModel.load(model, missing=missing, unknown=unknown)
        require_row_by_row(fitted.model)
        told.begin("reading")
        with data_file(data) as path:
            new, n_without = _read(fitted, path, (target, noise_column), decimal)
        begin, run = perf_counter(), ExecutionContext(jobs, told)
        changed = updated(fitted.model, new, run, refresh)
        ids = ids_of(changed)
        if keep_last is not None and len(ids) > keep_last:
            first = sorted(ids.tolist())[-keep_last]
            changed = forgotten(changed, (ids < first).nonzero()[0], run)
        seconds = perf_counter() - begin
        told.begin("writing")
        with naming_full_disk(output):
            write_model(output, changed)
    assert changed.updates is not None
    drift = changed.updates.drift
    facts = {
        "model": str(output),
        "added": len(new.X),
        "without_target": n_without,
        "rows": len(ids_of(changed)),
        "seconds": seconds,
        **drift._asdict(),
    }
    if as_json:
        click.echo(json.dumps({name: _plain(one) for name, one in facts.items()}))
        return
    if n_without:
        say(f"manygp: {counted(n_without, 'row')} without a target left out", err=True)
    learned = f", learned again ({drift.reason})" if drift.n_refreshes else ""
    rows = f"{counted(facts['added'], 'row')} added, {facts['rows']:,} in all"
    say(f"{output}: {rows}{learned}, {duration(seconds)}")
    if drift.n_recent:
        say(
            f"of the last {counted(drift.n_recent, 'row')}, before they were added: mean squared "
            f"error {drift.mean_square:.2f} in units of the variance, "
            f"{100 * drift.coverage:.0f}% in their 90% intervals"
        )


def _plain(value: Any) -> Any:
    """A number as JSON knows it."""
    return None if isinstance(value, float) and value != value else value


def _read(
    fitted: TableModel, path: Path, named: tuple[str | None, str | None], decimal: str
) -> tuple[NewRows, int]:
    """The rows of a table that have a target, in the units of a model, and how many have none.

    `named` are the columns of the targets and of their noise, if they are named.
    """
    import numpy as np

    from manygp.tables.formats import open_table
    from manygp.tables.training_rows import naming_file, targets_of
    from manygp.training.updates import scaled, without_copies

    target, noise, encoder = fitted.named_target(named[0]), named[1], fitted.encoder
    table, pieces = open_table(path, decimal), []
    columns = [*encoder.column_names, target, *([] if noise is None else [noise])]
    n_without = 0
    with naming_file(table):
        for batch in table.batches(list(dict.fromkeys(columns))):
            y, rows = targets_of(batch, target), encoder.encode(batch)
            alpha = np.zeros(len(y)) if noise is None else targets_of(batch, noise)
            known = ~np.isnan(y)
            n_without += int((~known).sum())
            usual = ~rows.doubtful.any(axis=1)
            piece: Any = (rows.X, y[:, None], alpha + rows.noise, usual, encoder.codes(batch))
            pieces.append([one[known] for one in piece])
    X, Y, alpha, are_known, codes = map(np.concatenate, zip(*pieces, strict=True))
    if not len(X):
        raise ValueError(f"{table.path}: no row has a value of {target!r}")
    if not np.all(np.isfinite(alpha) & (alpha >= 0)):
        raise ValueError(f"{table.path}: {noise!r} must hold noise variances, which are positive")
    has_codes = fitted.model.encoder is not None and fitted.model.encoder.codes_ is not None
    new = scaled(fitted.model, X, Y, alpha, are_known, codes if has_codes else None)
    return without_copies(fitted.model, new), n_without
