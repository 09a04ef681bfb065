"""`manygp fit`, `predict` and `evaluate`."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from manygp.cli.options import (
    DATA,
    FILE,
    NEW_FILE,
    File,
    as_json,
    category_option,
    columns_option,
    coverage_option,
    data_file,
    decimal_option,
    drop_option,
    groups_option,
    interval_scores,
    missing_option,
    names_option,
    number_option,
    print_scores,
    read_kernel,
    read_levels,
    report_option,
    require_place,
    say,
    scores_of,
    target_option,
    time_option,
    unknown_option,
)
from manygp.cli.report import training_rows_among, write_page
from manygp.paper import LABELS
from manygp.runtime.files import naming_full_disk
from manygp.runtime.progress import shown
from manygp.runtime.words import LEFT_OUT_WORDS, counted, duration, safe
from manygp.trend.registry import trend_names

if TYPE_CHECKING:  # else imported by the commands that need them: help should be quick
    from manygp.arrays import Array
    from manygp.cli.table_model import TableModel
    from manygp.kernels.base import Kernel
    from manygp.model import FittedModel
    from manygp.outofcore.files import TableSource
    from manygp.regressor import ManyGPRegressor
    from manygp.tables.encoder import Encoded
    from manygp.tables.training_rows import TrainingTable


@click.command()
@click.argument("data", type=DATA)
@click.option("--target", required=True, metavar="COLUMN", help="The column to predict.")
@click.option(
    "-o",
    "--output",
    type=NEW_FILE,
    help="Model file to write [default: the name of DATA, ending in .manygp, in this folder].",
)
@columns_option
@drop_option
@category_option
@number_option
@click.option("--encode", is_flag=True, hidden=True, expose_value=False, help="Always so now.")
@decimal_option
@missing_option
@click.option(
    "--noise-column",
    metavar="COLUMN",
    help="Known noise variance of each target, in the square of its units.",
)
@groups_option
@time_option
@click.option(
    "--scale/--no-scale",
    "scale",
    default=None,
    help="Whether to scale columns to [0, 1] [default: unless --kernel is given].",
)
@click.option(
    "--points-per-expert",
    type=click.IntRange(1),
    help="Rows of an expert; more take longer [default: 200].",
)
@click.option(
    "--label",
    type=click.Choice(list(LABELS)),
    metavar="LABEL",
    help="A model of the paper instead of the default one, such as bt-ent-c.",
)
@click.option(
    "--kernel", metavar="TEXT", callback=read_kernel, help="Such as 'Matern(nu=1.5) + White()'."
)
@click.option(
    "--trend",
    type=click.Choice(trend_names()),
    help="What holds everywhere, under the experts [default: auto].",
)
@click.option(
    "--target-transform",
    type=click.Choice(["auto", "none", "log", "yeo-johnson"]),
    help="Model skewed targets by a logarithm or a power; answers stay in their units "
    "[default: auto].",
)
@click.option("--lowest", type=float, help="The least value that the target can have.")
@click.option("--highest", type=float, help="The largest value that the target can have.")
@click.option(
    "--time-budget",
    type=click.FloatRange(0),
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
    help="Folder in which finished experts are kept: after a crash the same command goes on.",
)
@click.option(
    "--work-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder in which the rows of a large DATA are sorted, with room for them twice; after a "
    "crash the same command goes on [default: that of --checkpoint, or a temporary one].",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Dask scheduler whose workers fit a large DATA, such as tcp://host:8786; all of them see "
    "DATA and --work-dir.",
)
@click.option("--report", type=NEW_FILE, help="HTML page about the model to write.")
@as_json
def fit(
    data: Path,
    target: str,
    output: Path | None,
    columns: tuple[str, ...],
    drop: tuple[str, ...],
    category: tuple[str, ...],
    number: tuple[str, ...],
    decimal: str,
    missing: str,
    noise_column: str | None,
    groups: str | None,
    time: str | None,
    scale: bool | None,
    points_per_expert: int | None,
    label: str | None,
    kernel: Kernel | None,
    trend: str | None,
    target_transform: str | None,
    lowest: float | None,
    highest: float | None,
    time_budget: float | None,
    jobs: int,
    random_state: int,
    checkpoint: Path | None,
    work_dir: Path | None,
    scheduler: str | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Learn a column of a table from the others.

    \b
    manygp fit train.csv --target price
    manygp fit train.parquet --target price --drop id,name -o price.manygp
    manygp fit train.csv --target price -o price.manygp --checkpoint night
    manygp fit folder --target price -o price.manygp --work-dir night

    DATA is CSV, also gzipped, or Parquet, also a folder of it; - is standard input. Categories,
    dates and missing values become numbers; `manygp check` tells how. Rows without a target are
    left out. The scores that it prints are those of training rows that were left out. Parquet of
    more than a million rows of numbers is not read into memory as a whole.
    """  # fmt: skip
    output = _new_model(data) if output is None else output
    require_place(output, data)
    if report is not None:
        require_place(report, data, output)
    given: dict[str, Any] = {
        "points_per_expert": points_per_expert,
        "kernel": kernel,
        "trend": trend,
        "time_budget": time_budget,
        "normalize_X": scale,
    }
    parameters = {name: value for name, value in given.items() if value is not None}
    parameters |= _about_target(target_transform, lowest, highest)
    with shown(verbose=sys.stderr.isatty()) as told:
        told.begin("starting")  # these take a second, or more on a busy machine
        from manygp import ManyGPRegressor
        from manygp.outofcore.files import TableSource
        from manygp.storage import write_model
        from manygp.tables.encoder import TableEncoder
        from manygp.tables.training_rows import ColumnRoles, read_training

        estimator = ManyGPRegressor.from_label(label) if label else ManyGPRegressor()
        encoder = TableEncoder(missing=missing, random_state=random_state % 2**32)
        estimator.set_params(**parameters, n_jobs=jobs, random_state=random_state, columns=encoder)
        kinds: dict[str, Any] = {
            "categories": category,
            "numbers": number,
            "groups": groups,
            "time": time,
        }
        roles = ColumnRoles(target, columns or None, drop, noise_column, **kinds)
        folder = work_dir or checkpoint
        source = TableSource(data, roles, folder)
        told.begin("reading")
        begin, numbers = perf_counter(), None
        if str(data) != "-" and source.is_large and source.has_numbers:
            with interruptible(folder, "--work-dir"):
                model = _fitted_file(estimator, source, scheduler)
        else:
            with data_file(data) as path:
                table = read_training(path, roles, decimal=decimal, missing=missing)
            if table.n_dropped:
                say(f"manygp: {_left_out_rows(table.n_dropped, target)}", err=True)
            begin, numbers = perf_counter(), table.numbers
            with interruptible(folder, "--checkpoint"):
                model = _fitted(estimator, table, folder)
        seconds = perf_counter() - begin
        told.begin("writing")
        with naming_full_disk(output):
            write_model(output, model)
        if report is not None:
            _write_report(model, report, output.name, numbers)
        left_out = _left_out_scores(model)
    facts = _fit_facts(output, model, seconds, left_out)
    if as_json:
        click.echo(json.dumps(facts))
    else:
        _tell(facts)


def _new_model(data: Path) -> Path:
    """Where the model of a table goes that no option names: to no place that is taken."""
    if str(data) == "-":
        raise click.UsageError("a model of standard input has no name; pass -o MODEL")
    name = data.resolve().name.removesuffix(".gz")
    output = Path(name).with_suffix(".manygp")
    if output.exists():
        raise ValueError(f"{output} is there already; pass -o {output} to replace it")
    return output


def _left_out_rows(n: int, target: str) -> str:
    verb = "is" if n == 1 else "are"
    return f"{counted(n, 'row')} without a value of {target!r} {verb} left out"


def _known_rows(n_known: int, n: int) -> str:
    """A warning that rows are scored which the model has learned from."""
    which = f"all {n:,} rows" if n_known == n else f"{n_known:,} of {n:,} rows"
    return (
        f"{which} are training rows, which tell nothing about others; score rows that the model "
        "has not seen (fit prints the scores of training rows, each left out)"
    )


def _write_report(model: FittedModel, report: Path, name: str, numbers: Any) -> None:
    from manygp.display.report import write_report

    with naming_full_disk(report):
        write_report(model, report, name=name, numbers=numbers)


# What trends are called, where their own names say too little.
TREND_WORDS = {"pairs": "additive and pairwise"}


def _tell(facts: dict[str, Any]) -> None:
    """Say what was fitted, and how good it is."""
    counts = {"row": facts["rows"], "column": len(facts["columns"]), "expert": facts["experts"]}
    sizes = ", ".join(counted(number, what) for what, number in counts.items())
    trend = (
        ""
        if facts["trend"] is None
        else f", {TREND_WORDS.get(facts['trend'], facts['trend'])} trend"
    )
    say(f"{facts['model']}: {sizes}{trend}, {duration(facts['seconds'])}")
    scores = dict(facts["left_out"])
    n_left_out = counted(scores.pop("rows"), "training row")
    print_scores(scores, f"of {n_left_out}, {facts['left_out_by']}")


def _fitted(
    estimator: ManyGPRegressor, table: TrainingTable, checkpoint: Path | None
) -> FittedModel:
    """The model of a table, with what is needed to read other tables like it."""
    from manygp.answers import ready_for_intervals

    estimator.set_params(verbose=sys.stderr.isatty())
    given: dict[str, Any] = {"alpha": table.noise, "groups": table.groups, "time": table.time}
    estimator.fit(table.rows, table.y, **given, checkpoint=checkpoint)
    model = ready_for_intervals(estimator.model_)
    # Noise of training rows is kept with these; an encoder, as it was fitted.
    settings = replace(model.settings, verbose=False, alpha=0.0, columns="auto")
    return replace(
        model,
        settings=settings,
        # On a terminal the plan has estimates, which are never the same.
        plan=model.plan.without_estimates() if settings.time_budget is None else model.plan,
        target=table.target,
    )


@contextmanager
def interruptible(folder: Path | None, option: str) -> Iterator[None]:
    """Tell who interrupts a fit what is kept of it."""
    try:
        yield
    except KeyboardInterrupt:
        kept = f"nothing is kept; {option} FOLDER would keep what is finished"
        if folder is not None:
            kept = f"what is finished is kept in {folder}; the same command goes on there"
        raise KeyboardInterrupt(kept) from None


def _fitted_file(
    estimator: ManyGPRegressor, source: TableSource, scheduler: str | None
) -> FittedModel:
    """The model of a large table, by the cores of this machine or by those of a cluster."""
    estimator.set_params(verbose=sys.stderr.isatty(), columns="auto")
    if scheduler is None:
        return estimator.fit_source(source).model_
    from manygp.dask import connected

    with connected(scheduler) as engine:
        return estimator.fit_source(source, engine).model_


def _about_target(
    transform: str | None, lowest: float | None, highest: float | None
) -> dict[str, Any]:
    """The parameters of the estimator that these options are."""
    given: dict[str, Any] = {}
    if transform is not None:
        given["target_transform"] = None if transform == "none" else transform
    if lowest is not None or highest is not None:
        given["bounds"] = (lowest, highest)
    return given


def _left_out_scores(model: FittedModel) -> dict[str, Any]:
    """How many training rows were left out, and their scores in the units of the target."""
    from manygp import answers, metrics

    _, Y, mean, std = answers.left_out_transformed(model, answers.LEFT_OUT_ROWS)
    rows = (Y[:, 0], *answers.in_units_of_y(model, mean, std))
    scores = {**scores_of(*rows), "within_90": metrics.coverage(*rows)}
    scores["nll"] = float(answers.nll_of(model, Y[:, 0], mean, std).mean())
    # Without its only row a model knows nothing, and is not scored.
    return {"rows": len(Y), **(scores if len(Y) > 1 else dict.fromkeys(scores))}


def trend_name(model: FittedModel) -> str | None:
    """The trend under the experts, if there is one."""
    trend = model.committee.trend
    return None if trend is None else trend.model.name


def _fit_facts(
    output: Path, model: FittedModel, seconds: float, left_out: dict[str, Any]
) -> dict[str, Any]:
    """What a machine is told about a fit."""
    return {
        "model": str(output),
        "rows": len(model.committee.training_data().X),
        "columns": list(model.encoder.column_names if model.encoder else model.names or ()),
        "experts": len(model.committee),
        "trend": trend_name(model),
        "seconds": round(seconds, 3),
        "left_out": left_out,
        "left_out_by": LEFT_OUT_WORDS[model.left_out_by],
    }


@click.command()
@click.argument("model", type=FILE)
@click.argument("data", type=DATA)
@click.option(
    "-o",
    "--output",
    type=File(dir_okay=False, allow_dash=True),
    default="-",
    help="CSV (also .gz) or Parquet file to write [default: CSV to standard output].",
)
@coverage_option
@click.option(
    "--quantiles",
    callback=read_levels,
    metavar="LEVELS",
    help="Quantiles to add, such as 0.05,0.5,0.95.",
)
@names_option("--keep", help="Columns of DATA to copy to the answers, such as id,name.")
@click.option(
    "--digits", type=click.IntRange(1, 17), help="Significant digits to write [default: all]."
)
@decimal_option
@missing_option
@unknown_option
def predict(
    model: Path,
    data: Path,
    output: str,
    coverage: float,
    quantiles: tuple[float, ...],
    keep: tuple[str, ...],
    digits: int | None,
    decimal: str,
    missing: str,
    unknown: str,
) -> None:
    """Predict every row of a table.

    \b
    manygp predict price.manygp new.csv -o answers.csv
    manygp predict price.manygp new.parquet -o answers.parquet --coverage 0.95
    manygp predict price.manygp new.csv -o answers.csv --keep id --digits 6
    manygp predict price.manygp - --quantiles 0.05,0.5,0.95 < new.csv

    It writes the columns mean, std, lower and upper, which are the ends of the interval, and one
    column for each quantile: q0.05 and q0.95 are the ends of the interval of 90%. Columns of DATA
    are matched by name, and others ignored. DATA may be larger than memory; - is standard input.
    """  # fmt: skip
    from manygp.answers import require_coverage
    from manygp.cli.table_model import TableModel
    from manygp.tables.formats import check_output

    names = ("mean", "std", "lower", "upper", *(f"q{level!r}" for level in quantiles))
    twice = [name for name, times in Counter([*keep, *names]).items() if times > 1]
    if twice:
        raise click.UsageError(f"the answers would have two columns called {', '.join(twice)}")
    if output != "-":
        require_place(Path(output), model, data)
        _require_format(check_output, output)
    fitted = TableModel.load(model, missing=missing, unknown=unknown)
    for share in (coverage, *(abs(2 * level - 1) for level in quantiles if level != 0.5)):
        require_coverage(fitted.model, share)
    options = AnswerOptions(names, quantiles, coverage, keep, digits)
    with data_file(data) as path:
        counts = _write_answers(fitted, path, output, options, decimal)
    if output != "-" or counts.n_missing or counts.n_unknown:
        say(f"{_place(output)}: {counts}", err=output == "-")


class AnswerOptions(NamedTuple):
    """What the answers are to have: names, levels of quantiles, coverage, kept columns, digits."""

    names: tuple[str, ...]
    levels: tuple[float, ...]
    coverage: float
    keep: tuple[str, ...]
    digits: int | None


class AnswerCounts(NamedTuple):
    """Rows that were predicted, their mean std, and rows with missing or unknown values."""

    n_rows: int = 0
    sum_std: float = 0.0
    n_missing: int = 0
    n_unknown: int = 0

    def plus(self, rows: Encoded, std: Array) -> AnswerCounts:
        """These and further rows, with their std (N,)."""
        return AnswerCounts(
            self.n_rows + len(std),
            self.sum_std + float(std.sum()),
            self.n_missing + int(rows.missing.any(axis=1).sum()),
            self.n_unknown + int(rows.unknown.any(axis=1).sum()),
        )

    def __str__(self) -> str:
        told = [counted(self.n_rows, "row"), f"mean std {self.sum_std / self.n_rows:.4g}"]
        if self.n_missing:
            told.append(f"{counted(self.n_missing, 'row')} with missing values")
        if self.n_unknown:
            told.append(f"{counted(self.n_unknown, 'row')} with unknown categories")
        return ", ".join(told)


def _place(output: str) -> str:
    return "standard output" if output == "-" else output


def _require_format(check: Callable[[str], None], output: str) -> None:
    """A name with a wrong ending is a mistake in the command."""
    try:
        check(output)
    except ValueError as error:
        raise click.UsageError(safe(str(error))) from None


def _write_answers(
    fitted: TableModel, data: Path, output: str, options: AnswerOptions, decimal: str
) -> AnswerCounts:
    """Predict a table piece by piece."""
    from manygp.cli.table_model import counting
    from manygp.tables.formats import open_table, open_writer
    from manygp.tables.training_rows import naming_file

    table = open_table(data, decimal)
    batches = table.batches(fitted.encoder.column_names, kept=options.keep)
    # A bar would stand among the answers where these go to the terminal too.
    apart = output != "-" or not sys.stdout.isatty()
    counts = AnswerCounts()
    with naming_file(table):
        first = next(batches)  # most mistakes are in it, and then nothing should be written
        rows = fitted.encoder.encode(first)
        opened = open_writer(output, options.names, options.keep)
        with naming_full_disk(_place(output)), opened as write, counting(shown=apart) as count:
            for batch in chain([first], batches):
                rows = fitted.encoder.encode(batch) if counts.n_rows else rows
                answers = fitted.answers(rows, options.coverage, options.levels)
                if options.digits is not None:
                    answers = _rounded(answers, options.digits)
                write(answers, batch.kept)
                counts = counts.plus(rows, answers[1])
                count(len(rows.X))
    return counts


def _rounded(numbers: Array, digits: int) -> Array:
    """Numbers with so many significant digits."""
    import numpy as np

    flat = [float(f"{number:.{digits}g}") for number in numbers.ravel().tolist()]
    return np.array(flat).reshape(numbers.shape)


@click.command()
@click.argument("model", type=FILE)
@click.argument("data", type=DATA)
@target_option
@coverage_option
@decimal_option
@missing_option
@unknown_option
@report_option
@as_json
def evaluate(
    model: Path,
    data: Path,
    target: str | None,
    coverage: float,
    decimal: str,
    missing: str,
    unknown: str,
    report: Path | None,
    as_json: bool,
) -> None:
    """Score a model on rows whose targets are known.

    \b
    manygp evaluate price.manygp test.csv --target price
    manygp evaluate price.manygp test.csv --json --report page.html

    RMSE; NLL, ENCE and CRPS of normal distributions with mean and std; log score and CRPS of the
    predicted distribution; the shares of rows whose target lies within 1.64 std of the mean, and
    within the interval; the intervals' mean width and score; R^2 against the mean of the training
    targets. All are in the units of the target. Rows without a target are left out.
    Rows that the model has learned from are counted, and scored too: they tell nothing about
    other rows.
    """  # fmt: skip
    from manygp import answers, metrics
    from manygp.cli.table_model import TableModel

    if report is not None:
        require_place(report, model, data)
    fitted = TableModel.load(model, missing=missing, unknown=unknown)
    answers.require_coverage(fitted.model, coverage)
    with data_file(data) as path:
        scored = fitted.tested(path, target, coverage, decimal=decimal, with_rows=True)
    y, (mean, std, lower, upper) = scored.y, scored.answers
    if scored.n_without:
        told = _left_out_rows(scored.n_without, fitted.named_target(target))
        say(f"manygp: {told}", err=True)
    tested = scored.for_report(coverage, data.name)
    n_known = int(training_rows_among(fitted, tested).sum())
    if n_known:
        say(f"manygp: {_known_rows(n_known, len(y))}", err=True)
    scores = scores_of(y, mean, std)
    scores["nll"] = float(answers.nll_of(fitted.model, y, *scored.transformed).mean())
    _, known = answers.training_rows(fitted.model)
    scores["r2"] = metrics.r2(y, mean, float(known.mean()))
    distribution = answers.distribution_of(fitted.model, *scored.transformed)
    scores["log_score"] = metrics.log_score(y, distribution)
    scores["crps_of_distribution"] = metrics.crps(y, distribution)
    scores["within_90"] = metrics.coverage(y, mean, std)
    scores |= interval_scores(y, lower, upper, coverage)
    if report is not None:
        write_page(fitted, report, tested)
    if as_json:
        facts = {"model": str(model), "data": str(data), "rows": len(y), "level": coverage}
        click.echo(json.dumps({**facts, "training_rows": n_known, **scores}))
        return
    print_scores(scores, f"of {counted(len(y), 'row')} of {data}", coverage)
