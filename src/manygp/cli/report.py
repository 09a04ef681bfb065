"""`manygp report`: the page about a model, made again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from manygp.cli.options import (
    DATA,
    FILE,
    NEW_FILE,
    coverage_option,
    data_file,
    decimal_option,
    missing_option,
    require_place,
    say,
    target_option,
    unknown_option,
)
from manygp.runtime import progress
from manygp.runtime.files import naming_full_disk
from manygp.runtime.words import LEFT_OUT_WORDS, counted

if TYPE_CHECKING:  # else imported by the command: help should be quick
    import numpy as np
    import numpy.typing as npt

    from manygp.cli.table_model import TableModel
    from manygp.display.report import Tested


@click.command()
@click.argument("model", type=FILE)
@click.argument("data", type=DATA)
@click.option(
    "-o",
    "--output",
    type=NEW_FILE,
    help="HTML page to write [default: MODEL with .html at its end].",
)
@target_option
@coverage_option
@decimal_option
@missing_option
@unknown_option
def report(
    model: Path,
    data: Path,
    output: Path | None,
    target: str | None,
    coverage: float,
    decimal: str,
    missing: str,
    unknown: str,
) -> None:
    """Write an HTML page about a model and rows whose targets are known.

    \b
    manygp report price.manygp test.csv
    manygp report price.manygp test.csv -o page.html --coverage 0.95

    Scores beside those of simpler models, whether the std can be trusted, which columns matter
    and how, the worst rows, and more. Rows of DATA that the model has learned from are not
    scored as new ones; of the training table it is the page that fit writes.
    """  # fmt: skip
    from manygp.cli.table_model import TableModel
    from manygp.tables.formats import open_table

    page = model.with_suffix(".html") if output is None else output
    require_place(page, model, data)
    fitted = TableModel.load(model, missing=missing, unknown=unknown)
    with data_file(data) as path:
        name = fitted.named_target(target)
        if name not in open_table(path, decimal).names:
            raise ValueError(
                f"{data} has no column {name!r}, the target of {model}: a report needs the true "
                "values; give a table that has them, or name their column by --target"
            )
        scored = fitted.tested(path, target, coverage, decimal=decimal, with_rows=True)
    tested = scored.for_report(coverage, data.name)
    shown = write_page(fitted, page, tested)
    say(f"{page}: {shown}")


def training_rows_among(fitted: TableModel, tested: Tested) -> npt.NDArray[np.bool_]:
    """Which of some rows the model has learned from: (N,)."""
    from manygp.display.report import are_training_rows

    assert tested.X is not None
    return are_training_rows(fitted.model, tested.X, tested.y, tested.codes)


def write_page(fitted: TableModel, page: Path, tested: Tested) -> str:
    """Write the page about a model and tested rows, and tell which rows it scores.

    Those that the model has learned from are not tested ones.
    """
    import numpy as np

    from manygp import answers
    from manygp.display.report import write_report
    from manygp.model import ids_of

    known = training_rows_among(fitted, tested)
    n_known, n = int(known.sum()), len(known)
    new: Tested | None = tested
    shown, numbers = counted(n, "row"), None
    if n_known == n:
        # Of the whole training table the k-th row is training row k, unless that was left out.
        _, own = answers.training_rows(fitted.model)
        ids = np.sort(ids_of(fitted.model))
        is_whole = ids[-1] < n and np.allclose(tested.y[ids], own[:, 0], rtol=1e-9, atol=0)
        numbers = tested.numbers if is_whole else None
        how = LEFT_OUT_WORDS[fitted.model.left_out_by]
        new, shown = None, f"{shown}, all of them training rows, {how}"
    elif n_known:
        without = f"without {counted(n_known, 'training row')}"
        new = tested.some(~known)._replace(name=f"{tested.name} ({without})")
        shown = f"{counted(n - n_known, 'row')}, {without}"
    with naming_full_disk(page), progress.shown(verbose=sys.stderr.isatty()) as told:
        told.begin("drawing")
        write_report(fitted.model, page, name=fitted.path.name, tested=new, numbers=numbers)
    return shown
