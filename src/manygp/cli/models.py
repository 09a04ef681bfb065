"""`manygp fit`, `predict`, `evaluate`, `plot`, `info` and `verify`."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from math import nan
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn

import click
import numpy as np

from manygp.rules.labels import LABELS
from manygp.runtime.words import counted

if TYPE_CHECKING:  # else imported by the commands that need them: help should be quick
    from manygp import ManyGPRegressor
    from manygp.arrays import Array
    from manygp.kernels.base import Kernel
    from manygp.tables.encoding import Encoding

PICTURES = ("png", "svg", "pdf")
# What a write says that finds no room.
NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


class File(click.Path):
    """A path; if it will not do, the file is at fault and not the command."""

    def fail(self, message: str, *_: object) -> NoReturn:
        raise click.ClickException(message)


def _read_kernel(context: object, parameter: object, value: str | None) -> Kernel | None:
    from manygp.kernels.text import parse_kernel

    try:
        return None if value is None else parse_kernel(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


FILE = File(exists=True, dir_okay=False, path_type=Path)
NEW_FILE = File(dir_okay=False, path_type=Path)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for a machine.")
coverage_option = click.option(
    "--coverage",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.9,
    show_default=True,
    help="Share of targets that the intervals are to hold.",
)


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
    callback=_read_kernel,
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
    from manygp import ManyGPRegressor, metrics
    from manygp.tables.training_rows import read_training

    _require_place(output, data)
    _require_report(report, data, output)
    given: dict[str, Any] = {
        "points_per_expert": points_per_expert,
        "kernel": kernel,
        "time_budget": time_budget,
    }
    parameters = {name: value for name, value in given.items() if value is not None}
    model = ManyGPRegressor.from_label(label) if label else ManyGPRegressor()
    model.set_params(**parameters, n_jobs=jobs, random_state=random_state)
    table = read_training(data, target, columns or None, drop, encode)
    begin = perf_counter()
    try:
        model.set_params(verbose=sys.stderr.isatty()).fit(table.X, table.y, checkpoint=checkpoint)
    except KeyboardInterrupt:
        kept = "nothing is kept; --checkpoint FOLDER would keep finished experts"
        if checkpoint is not None:
            kept = f"what is finished is kept in {checkpoint}; the same command goes on there"
        raise KeyboardInterrupt(kept) from None
    seconds = perf_counter() - begin
    model.set_params(verbose=False)
    if time_budget is None:  # on a terminal the plan has estimates, which are never the same
        model.plan_ = model.plan_._replace(seconds=nan, bytes=nan, final_seconds=nan)
    model.feature_names_in_ = np.array(table.encoding.names, dtype=object)
    model._table = {"target": target, "columns": table.encoding.to_json()}
    with _naming(output):
        model.save(output)
    if report is not None:
        from manygp.display.report import write_report

        with _naming(report):
            write_report(model, report, name=output.name)
    judged = model._judged_rows()
    n_judged = len(judged[0])
    scores = {**_scores(*judged), "within_90": metrics.coverage(*judged)}  # of mean -+ 1.64 std
    facts = {
        "model": str(output),
        "rows": len(table.y),
        "columns": list(table.encoding.names),
        "experts": len(model.experts_),
        "seconds": round(seconds, 3),
        "left_out": {"rows": n_judged, **scores},
    }
    if as_json:
        click.echo(json.dumps(facts))
        return
    counts = {"row": len(table.y), "column": table.X.shape[1], "expert": len(model.experts_)}
    sizes = ", ".join(counted(number, what) for what, number in counts.items())
    click.echo(f"{output}: {sizes}, {seconds:.1f} s")
    _print_scores(scores, f"of {counted(n_judged, 'training row')}, each left out")


@click.command()
@click.argument("model", type=FILE)
@click.argument("data", type=FILE)
@click.option("-o", "--output", type=File(dir_okay=False, allow_dash=True), default="-",
    help="CSV (also .gz) or Parquet file to write [default: CSV to standard output].")  # fmt: skip
@coverage_option
def predict(model: Path, data: Path, output: str, coverage: float) -> None:
    """Predict every row of a table.

    \b
    manygp predict price.manygp new.csv -o answers.csv
    manygp predict price.manygp new.parquet -o answers.parquet --coverage 0.95

    It writes the columns mean, std, and lower and upper, the ends of the interval. Columns of
    DATA are matched by name, and others ignored. DATA may be larger than memory.
    """  # fmt: skip
    from manygp.tables.training_rows import read_features
    from manygp.tables.writing import open_writer

    if output != "-":
        _require_place(Path(output), model, data)
    fitted = _load(model)
    reach = _reach(fitted, coverage)
    pieces = read_features(data, _encoding(fitted, model))
    first = next(pieces)  # most mistakes are in it, and then nothing should be written
    # A bar would stand among the answers where these go to the terminal too.
    shown = output != "-" or not sys.stdout.isatty()
    names = ("mean", "std", "lower", "upper")
    place = "standard output" if output == "-" else output
    with _naming(place), open_writer(output, names) as write, _counting(shown) as count:
        for X in chain([first], pieces):
            write(_answers(fitted, X, reach))
            count(len(X))


@click.command()
@click.argument("model", type=FILE)
@click.argument("data", type=FILE)
@click.option(
    "--target", default=None, metavar="COLUMN", help="The true values [default: that of fit]."
)
@coverage_option
@click.option("--report", type=NEW_FILE, default=None, help="HTML page to write.")
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
    _require_report(report, model, data)
    fitted = _load(model)
    reach = _reach(fitted, coverage)
    y, (mean, std, lower, upper) = _tested(fitted, model, data, target, reach)
    scores = _scores(y, mean, std)
    scores["coverage"] = float(np.mean((lower <= y) & (y <= upper)))
    if report is not None:
        from manygp.display.report import Tested, write_report

        tested = Tested(y, mean, std, lower, upper, coverage, data.name)
        with _naming(report):
            write_report(fitted, report, name=model.name, tested=tested)
    if as_json:
        facts = {"model": str(model), "data": str(data), "rows": len(y), "level": coverage}
        click.echo(json.dumps({**facts, **scores}))
        return
    _print_scores(scores, f"of {counted(len(y), 'row')} of {data}", coverage)


@click.command()
@click.argument("model", type=FILE)
@click.argument("data", type=FILE, required=False)
@click.option("-o", "--output", type=NEW_FILE, required=True, help="PNG, SVG or PDF to write.")
@click.option(
    "--kind",
    type=click.Choice(["reliability", "calibration", "posterior"]),
    default="reliability",
    show_default=True,
    help="Errors against std; what leave-one-out compared; or the curve, of one column.",
)
@click.option(
    "--target", default=None, metavar="COLUMN", help="The true values [default: that of fit]."
)
def plot(model: Path, data: Path | None, output: Path, kind: str, target: str | None) -> None:
    """Draw how honest a model is, or what it is.

    \b
    manygp plot price.manygp test.csv -o reliability.png
    manygp plot price.manygp --kind calibration -o chosen.svg

    The reliability is that of the rows of DATA or, without it, of training rows left out.
    """  # fmt: skip
    require_matplotlib("a plot")
    import matplotlib

    matplotlib.use("Agg")
    from manygp.display.plots import CalibrationDisplay, PosteriorDisplay, ReliabilityDisplay
    from manygp.runtime.files import replacing

    if data is not None and kind != "reliability":
        raise click.UsageError(f"--kind {kind} is about the model alone; leave {data} out")
    _require_place(output, model, *([] if data is None else [data]))
    suffix = output.suffix.removeprefix(".").lower() or "png"
    if suffix not in PICTURES:
        raise click.UsageError(f"{output} must end with one of .{', .'.join(PICTURES)}")
    fitted = _load(model)
    display: Any
    if kind != "calibration":
        _require_one_target(fitted)
    if kind == "calibration":
        display = CalibrationDisplay.from_estimator(fitted)
    elif kind == "posterior":
        x, y = _training_rows(fitted)
        if x.shape[1] != 1:
            raise ValueError(f"a posterior is drawn for one column; {model} has {x.shape[1]}")
        line = np.linspace(x.min(), x.max(), 400)[:, None]
        many = len(fitted.experts_) > 5
        display = PosteriorDisplay.from_estimator(
            fitted, line, X_train=x, y_train=y, show_experts=not many
        )
        (name,) = getattr(fitted, "feature_names_in_", ["x"])
        display.ax_.set(xlabel=name.replace("$", r"\$"))  # else it would be mathematics
    elif data is not None:
        y, (mean, std, *_) = _tested(fitted, model, data, target, reach=0.0)
        display = ReliabilityDisplay.from_predictions(y, mean, std, name="tested rows")
    else:
        name = "training rows, left out"
        display = ReliabilityDisplay.from_predictions(*fitted._judged_rows(), name=name)
    picture = io.BytesIO()
    display.figure_.savefig(picture, format=suffix, dpi=150, bbox_inches="tight")
    with _naming(output), replacing(output) as file:
        file.write(picture.getvalue())


@click.command()
@click.argument("model", type=FILE)
@as_json
def info(model: Path, as_json: bool) -> None:
    """Tell what a model file holds.

    \b
    manygp info price.manygp
    manygp info price.manygp --json
    """  # fmt: skip
    from manygp import ManyGPRegressor
    from manygp.display.report import formula
    from manygp.kernels.text import parse_kernel
    from manygp.storage import codec, model_file
    from manygp.tables.base import listed

    manifest, default = model_file.check(model), ManyGPRegressor().get_params()
    arrays = manifest["arrays"]
    columns, table = manifest["columns"], manifest["table"]
    facts = {
        "model": str(model),
        "bytes": model.stat().st_size,
        "schema": manifest["schema"],
        "manygp": manifest["manygp"],
        "rows": arrays["X"]["shape"][0],
        "target": table and table.get("target"),
        "columns": columns,
        "experts": arrays["seats"]["shape"][0],
        "nearest": manifest["nearest"],
        "kernel": manifest["kernel"],
        "chosen": manifest["report"]
        and {
            name: value["float"] if isinstance(value, dict) else value
            for name, value in manifest["report"]["chosen"].items()
        },
        "parameters": {
            name: value
            for name, value in manifest["parameters"].items()
            if value != codec.encode(name, default.get(name))
        },
    }
    if as_json:
        click.echo(json.dumps(facts))
        return
    facts["kernel"] = formula(parse_kernel(manifest["kernel"]))
    for name, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {_plain(one)}" for key, one in value.items())
        elif isinstance(value, list):
            value = f"{len(value)}: {listed(value)}"
        elif isinstance(value, int):
            value = f"{value:,}"
        click.echo(f"{name:<12}{'-' if value is None else value}")


@click.command()
@click.argument("model", type=FILE)
@as_json
def verify(model: Path, as_json: bool) -> None:
    """Check that a model file is whole.

    \b
    manygp verify price.manygp

    Its checksums, its contents, and that its experts can be built again and answer.
    """  # fmt: skip
    fitted = _load(model)
    if fitted._table is not None:
        _encoding(fitted, model)
    x, _ = _training_rows(fitted)
    mean, std = fitted.predict(x[:100], return_std=True)
    if not (np.all(np.isfinite(mean)) and np.all(std > 0)):
        raise ValueError(f"{model} does not predict its own rows")
    if as_json:
        click.echo(json.dumps({"model": str(model), "ok": True}))
        return
    sizes = f"{counted(len(fitted.experts_), 'expert')}, {counted(len(x), 'row')}"
    click.echo(f"{model}: as it was written; {sizes}")


def _load(path: Path) -> ManyGPRegressor:
    from manygp import load

    # Columns are matched by name here, so that arrays without names will do.
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    return load(path)


def _encoding(model: ManyGPRegressor, path: Path) -> Encoding:
    """How the columns of a table become those of a model."""
    from manygp.tables.encoding import Column, Encoding

    names = getattr(model, "feature_names_in_", None)
    if model._table is not None:
        encoding = Encoding.from_json(model._table["columns"])
        if names is None or encoding.names != tuple(names):
            raise ValueError(f"{path}: the columns of its table are not those of its rows")
        return encoding
    if names is None:
        raise ValueError(
            f"{path} was fitted on arrays without column names, by which tables are matched; fit "
            "it on a table, or use it from Python"
        )
    return Encoding(tuple(Column(str(name), "number") for name in names))


def _require_one_target(model: ManyGPRegressor) -> None:
    if len(model._y_scaling.scale) > 1:
        raise ValueError("a model of several targets can be asked from Python only")


def _reach(model: ManyGPRegressor, coverage: float) -> float:
    """How many std an interval reaches to either side."""
    _require_one_target(model)
    return float(model._reach(coverage)[0])


def _answers(model: ManyGPRegressor, X: Array, reach: float) -> Array:
    """Mean, std, lower and upper: (4, N)."""
    mean, std = model.predict(X, return_std=True)
    return np.array([mean, std, mean - reach * std, mean + reach * std])


def _tested(
    model: ManyGPRegressor, path: Path, data: Path, target: str | None, reach: float
) -> tuple[Array, Array]:
    """Targets (N,) of a table, and the answers (4, N)."""
    from manygp.tables.training_rows import read_evaluation

    encoding = _encoding(model, path)
    target = target or (model._table or {}).get("target")
    if target is None:
        raise ValueError(f"{path} does not know the name of its target; pass --target")
    targets, answers = [], []
    with _counting() as count:
        for X, y in read_evaluation(data, encoding, target):
            targets.append(y)
            answers.append(_answers(model, X, reach))
            count(len(y))
    return np.concatenate(targets), np.concatenate(answers, axis=1)


@contextmanager
def _counting(shown: bool = True) -> Iterator[Callable[[int], None]]:
    """A function that adds to the number of predicted rows, which a terminal shows."""
    if not shown or not sys.stderr.isatty():
        yield lambda n_rows: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("Predicting: {task.completed:,} rows in"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda n_rows: bar.advance(task, n_rows)


def _training_rows(model: ManyGPRegressor) -> tuple[Array, Array]:
    """Inputs and targets of the training rows, in their units."""
    data = model._committee.training_data()
    return model._x_scaling.undo(data.X), model._y_scaling.undo(data.Y)[:, 0]


def _scores(y: Array, mean: Array, std: Array) -> dict[str, float | None]:
    """RMSE, NLL, ENCE and CRPS; None where there are too few rows."""
    from manygp import metrics

    enough = len(y) >= metrics.N_BINS
    return {
        "rmse": metrics.rmse(y, mean),
        "nll": metrics.nll(y, mean, std),
        "ence": metrics.ence(y, mean, std) if enough else None,
        "crps": metrics.crps(y, mean, std),
    }


def _print_scores(scores: dict[str, float | None], rows: str, level: float = 0.9) -> None:
    click.echo(f"Scores {rows}:")
    for name, value in scores.items():
        shown = "-" if value is None else f"{value:.4g}"
        if name == "coverage":
            click.echo(f"  {name:<12}{shown} (of {level:.4g})")
        else:
            label = "within 90%" if name == "within_90" else name.upper()
            click.echo(f"  {label:<12}{shown}")


def _plain(value: Any) -> str:
    """A value of a manifest in one word."""
    if isinstance(value, dict):
        return str(next(iter(value.values())))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def require_matplotlib(what: str) -> None:
    """Before the work, not after."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(f'{what} needs matplotlib: pip install "manygp[plot]"') from error


def _require_report(report: Path | None, *others: Path) -> None:
    """That a page can be written, if there is to be one."""
    if report is not None:
        require_matplotlib("a report")
        _require_place(report, *others)


def _require_place(output: Path, *others: Path) -> None:
    """That a file can be written, and is none of the others: before the work, not after."""
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
def _naming(path: str | Path) -> Iterator[None]:
    """Say which file there was no room for."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM and error.filename is None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
