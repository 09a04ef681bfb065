"""`manygp fit`, `predict` and `evaluate`."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from manygp.cli.options import (
    FILE,
    NEW_FILE,
    File,
    as_json,
    coverage_option,
    naming,
    print_scores,
    read_kernel,
    read_levels,
    report_option,
    require_place,
    require_report,
    scores_of,
    target_option,
)
from manygp.rules.labels import LABELS
from manygp.runtime.words import counted

if TYPE_CHECKING:  # else imported by the commands that need them: help should be quick
    from manygp.arrays import Array
    from manygp.kernels.base import Kernel
    from manygp.model import FittedModel
    from manygp.regressor import ManyGPRegressor
    from manygp.tables.training_rows import TrainingTable


@click.command()
@click.argument("data", type=FILE)
@click.option("--target", required=True, metavar="COLUMN", help="The column to predict.")
@click.option("-o", "--output", type=NEW_FILE, required=True, help="Model file to write.")
@click.option(
    "--column", "columns", multiple=True, help="Learn from this column; repeat it for others "
    "[default: all but the target].",
)  # fmt: skip
@click.option("--drop", multiple=True, help="Do not learn from this column; may be repeated.")
@click.option("--encode", is_flag=True, help="Turn categories into columns of 0 and 1 (one-hot), "
    "and dates into numbers.")  # fmt: skip
@click.option(
    "--points-per-expert",
    type=click.IntRange(1),
    default=None,
    help="Rows of an expert; more take longer [default: 200].",
)
@click.option(
    "--label",
    type=click.Choice(list(LABELS)),
    default=None,
    metavar="LABEL",
    help="A model of the paper instead of the default one, such as bt-ent-c.",
)
@click.option(
    "--kernel",
    metavar="TEXT",
    default=None,
    callback=read_kernel,
    help="Such as 'Matern(nu=1.5) + White()'.",
)
@click.option(
    "--time-budget",
    type=click.FloatRange(0),
    default=None,
    metavar="SECONDS",
    help="How long the fit may take; it then tries what it has time for.",
)
@click.option(
    "--jobs",
    type=click.IntRange(-1, 1024),
    default=-1,
    show_default=True,
    help="Cores; -1 for all.",
)
@click.option(
    "--random-state",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Seed: the same one gives the same model.",
)
@click.option(
    "--checkpoint",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Folder in which finished experts are kept: after a crash the same command goes on.",
)
@click.option("--report", type=NEW_FILE, default=None, help="HTML page about the model to write.")
@as_json
def fit(
    data: Path,
    target: str,
    output: Path,
    columns: tuple[str, ...],
    drop: tuple[str, ...],
    encode: bool,
    points_per_expert: int | None,
    label: str | None,
    kernel: Kernel | None,
    time_budget: float | None,
    jobs: int,
    random_state: int,
    checkpoint: Path | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Learn a column of a table from the others.

    \b
    manygp fit train.csv --target price -o price.manygp
    manygp fit train.parquet --target price --drop id --encode -o price.manygp
    manygp fit train.csv --target price -o price.manygp --checkpoint night

    DATA is CSV, also gzipped, or Parquet. The scores that it prints are those of training rows
    that were left out.
    """  # fmt: skip
    from manygp import ManyGPRegressor
    from manygp.model import LEFT_OUT_ROWS
    from manygp.storage import write_model
    from manygp.tables.training_rows import read_training

    require_place(output, data)
    require_report(report, data, output)
    given: dict[str, Any] = {
        "points_per_expert": points_per_expert,
        "kernel": kernel,
        "time_budget": time_budget,
    }
    parameters = {name: value for name, value in given.items() if value is not None}
    estimator = ManyGPRegressor.from_label(label) if label else ManyGPRegressor()
    estimator.set_params(**parameters, n_jobs=jobs, random_state=random_state)
    table = read_training(data, target, columns or None, drop, encode=encode)
    begin = perf_counter()
    model = _fitted(estimator, table, checkpoint)
    seconds = perf_counter() - begin
    with naming(output):
        write_model(output, model)
    if report is not None:
        from manygp.display.report import write_report

        with naming(report):
            write_report(model, report, name=output.name)
    left_out = model.left_out_rows(LEFT_OUT_ROWS)
    if as_json:
        click.echo(json.dumps(_facts(output, model, seconds, left_out)))
        return
    counts = {"row": len(table.y), "column": table.X.shape[1], "expert": len(model.committee)}
    sizes = ", ".join(counted(number, what) for what, number in counts.items())
    click.echo(f"{output}: {sizes}, {seconds:.1f} s")
    n_left_out = counted(len(left_out[0]), "training row")
    print_scores(_left_out_scores(left_out), f"of {n_left_out}, each left out")


def _fitted(
    estimator: ManyGPRegressor, table: TrainingTable, checkpoint: Path | None
) -> FittedModel:
    """The model of a table, with what is needed to read other tables like it."""
    estimator.set_params(verbose=sys.stderr.isatty())
    try:
        model = estimator.fit(table.X, table.y, checkpoint=checkpoint).model_
    except KeyboardInterrupt:
        kept = "nothing is kept; --checkpoint FOLDER would keep finished experts"
        if checkpoint is not None:
            kept = f"what is finished is kept in {checkpoint}; the same command goes on there"
        raise KeyboardInterrupt(kept) from None
    settings = replace(model.settings, verbose=False)
    return replace(
        model,
        settings=settings,
        # On a terminal the plan has estimates, which are never the same.
        plan=model.plan.without_estimates() if settings.time_budget is None else model.plan,
        columns=tuple(table.encoding.names),
        table={"target": table.target, "columns": table.encoding.to_json()},
    )


def _left_out_scores(left_out: tuple[Array, Array, Array]) -> dict[str, float | None]:
    from manygp import metrics

    return {**scores_of(*left_out), "within_90": metrics.coverage(*left_out)}  # mean -+ 1.64 std


def _facts(
    output: Path, model: FittedModel, seconds: float, left_out: tuple[Array, Array, Array]
) -> dict[str, Any]:
    """What a machine is told about a fit."""
    return {
        "model": str(output),
        "rows": len(model.training_rows()[1]),
        "columns": list(model.names or ()),
        "experts": len(model.committee),
        "seconds": round(seconds, 3),
        "left_out": {"rows": len(left_out[0]), **_left_out_scores(left_out)},
    }


@click.command()
@click.argument("model", type=FILE)
@click.argument("data", type=FILE)
@click.option("-o", "--output", type=File(dir_okay=False, allow_dash=True), default="-",
    help="CSV (also .gz) or Parquet file to write [default: CSV to standard output].")  # fmt: skip
@coverage_option
@click.option(
    "--quantiles",
    callback=read_levels,
    default=None,
    metavar="LEVELS",
    help="Quantiles to add, such as 0.05,0.5,0.95.",
)
def predict(
    model: Path, data: Path, output: str, coverage: float, quantiles: tuple[float, ...]
) -> None:
    """Predict every row of a table.

    \b
    manygp predict price.manygp new.csv -o answers.csv
    manygp predict price.manygp new.parquet -o answers.parquet --coverage 0.95
    manygp predict price.manygp new.csv -o answers.csv --quantiles 0.05,0.5,0.95

    It writes the columns mean, std, lower and upper, which are the ends of the interval, and one
    column for each quantile. Columns of DATA are matched by name, and others ignored. DATA may be
    larger than memory.
    """  # fmt: skip
    from manygp.cli.table_model import TableModel, counting
    from manygp.tables.training_rows import read_features
    from manygp.tables.writing import open_writer

    if output != "-":
        require_place(Path(output), model, data)
    fitted = TableModel.load(model)
    reach = fitted.reach(coverage)
    pieces = read_features(data, fitted.encoding)
    first = next(pieces)  # most mistakes are in it, and then nothing should be written
    # A bar would stand among the answers where these go to the terminal too.
    shown = output != "-" or not sys.stdout.isatty()
    names = ("mean", "std", "lower", "upper", *(f"q{level:g}" for level in quantiles))
    place = "standard output" if output == "-" else output
    with naming(place), open_writer(output, names) as write, counting(shown=shown) as count:
        for X in chain([first], pieces):
            write(fitted.answers(X, reach, quantiles))
            count(len(X))


@click.command()
@click.argument("model", type=FILE)
@click.argument("data", type=FILE)
@target_option
@coverage_option
@report_option
@as_json
def evaluate(
    model: Path,
    data: Path,
    target: str | None,
    coverage: float,
    report: Path | None,
    as_json: bool,
) -> None:
    """Score a model on rows whose targets are known.

    \b
    manygp evaluate price.manygp test.csv --target price
    manygp evaluate price.manygp test.csv --json --report page.html

    RMSE, NLL, ENCE, CRPS, and the share of rows whose interval holds the target.
    """  # fmt: skip
    from manygp.cli.table_model import TableModel

    require_report(report, model, data)
    fitted = TableModel.load(model)
    y, (mean, std, lower, upper) = fitted.tested(data, target, fitted.reach(coverage))
    scores = scores_of(y, mean, std)
    scores["coverage"] = float(((lower <= y) & (y <= upper)).mean())
    if report is not None:
        from manygp.display.report import Tested, write_report

        tested = Tested(y, mean, std, lower, upper, coverage, data.name)
        with naming(report):
            write_report(fitted.model, report, name=model.name, tested=tested)
    if as_json:
        facts = {"model": str(model), "data": str(data), "rows": len(y), "level": coverage}
        click.echo(json.dumps({**facts, **scores}))
        return
    print_scores(scores, f"of {counted(len(y), 'row')} of {data}", coverage)
