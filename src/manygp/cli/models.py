"""`manygp fit`, `predict`, `evaluate`, `plot`, `info` and `verify`."""

from __future__ import annotations

import io
import json
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from manygp.labels import LABELS

if TYPE_CHECKING:  # else imported by the commands that need them: help should be quick
    from manygp import ManyGPRegressor
    from manygp.encoding import Encoding
    from manygp.types import Array

# Training rows that are left out for the scores of a fit.
LEFT_OUT_ROWS = 20_000

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)
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
@click.option("--points-per-expert", type=click.IntRange(1), default=None)
@click.option(
    "--label",
    type=click.Choice(list(LABELS)),
    default=None,
    metavar="LABEL",
    help="A model of the paper instead of the default one, such as bt-ent-c.",
)
@click.option("--kernel", metavar="TEXT", default=None, help="Such as 'Matern(nu=1.5) + White()'.")
@click.option("--time-budget", type=click.FloatRange(0), default=None, metavar="SECONDS")
@click.option("--jobs", type=int, default=-1, show_default=True, help="Cores; -1 for all.")
@click.option("--random-state", type=click.IntRange(0), default=0, show_default=True)
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
    kernel: str | None,
    time_budget: float | None,
    jobs: int,
    random_state: int,
    checkpoint: Path | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Learn a column of DATA (CSV, also gzipped, or Parquet) from the others.

    \b
    manygp fit train.csv --target price -o price.manygp
    manygp fit train.parquet --target price --drop id --encode -o price.manygp
    manygp fit train.csv --target price -o price.manygp --checkpoint night

    The scores that it prints are those of training rows that were left out.
    """  # fmt: skip
    from manygp import ManyGPRegressor
    from manygp.encoding import read_training
    from manygp.grammar import parse_kernel

    _require_folder(output, report)
    given: dict[str, Any] = {"points_per_expert": points_per_expert, "time_budget": time_budget}
    parameters = {name: value for name, value in given.items() if value is not None}
    if kernel is not None:
        parameters["kernel"] = parse_kernel(kernel)
    model = ManyGPRegressor.from_label(label) if label else ManyGPRegressor()
    model.set_params(**parameters, n_jobs=jobs, random_state=random_state)
    table = read_training(data, target, columns or None, drop, encode)
    begin = perf_counter()
    try:
        model.set_params(verbose=sys.stderr.isatty()).fit(table.X, table.y, checkpoint=checkpoint)
    except KeyboardInterrupt:
        kept = "" if checkpoint is None else f"what is finished is kept in {checkpoint}"
        raise KeyboardInterrupt(kept) from None
    seconds = perf_counter() - begin
    model.set_params(verbose=False)
    model.feature_names_in_ = np.array(table.encoding.names, dtype=object)
    model._table = {"target": target, "columns": table.encoding.to_json()}
    model.save(output)
    if report is not None:
        from manygp.report import write_report

        write_report(model, report, name=output.name)
    rows = np.sort(np.random.default_rng(0).permutation(len(table.y))[:LEFT_OUT_ROWS])
    scores = _scores(table.y[rows], *model.loo_predict(rows))
    facts = {
        "model": str(output),
        "rows": len(table.y),
        "columns": list(table.encoding.names),
        "experts": len(model.experts_),
        "seconds": round(seconds, 3),
        "left_out": {"rows": len(rows), **scores},
    }
    if as_json:
        click.echo(json.dumps(facts))
        return
    click.echo(
        f"{output}: {len(table.y):,} rows, {table.X.shape[1]} columns, "
        f"{len(model.experts_):,} experts, {seconds:.1f} s"
    )
    _print_scores(scores, f"of {len(rows):,} training rows, each left out")


@click.command()
@click.argument("model", type=FILE)
@click.argument("data", type=FILE)
@click.option("-o", "--output", type=click.Path(dir_okay=False, allow_dash=True), default="-",
    help="CSV (also .gz) or Parquet file to write [default: CSV to standard output].")  # fmt: skip
@coverage_option
def predict(model: Path, data: Path, output: str, coverage: float) -> None:
    """Predict every row of DATA: mean, std, and the interval from lower to upper.

    \b
    manygp predict price.manygp new.csv -o answers.csv
    manygp predict price.manygp new.parquet -o answers.parquet --coverage 0.95

    Columns are matched by name, and others ignored. DATA may be larger than memory.
    """  # fmt: skip
    from manygp.encoding import read_features
    from manygp.writing import open_writer

    fitted, encoding = _load(model)
    reach = _reach(fitted, coverage)
    with open_writer(output, ("mean", "std", "lower", "upper")) as write:
        for X in _counted(read_features(data, encoding), "Predicting rows"):
            write(_answers(fitted, X, reach))


@click.command()
@click.argument("model", type=FILE)
@click.argument("data", type=FILE)
@click.option("--target", default=None, metavar="COLUMN", help="[default: that of fit]")
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
    """Score a model on DATA, whose targets are known.

    \b
    manygp evaluate price.manygp test.csv --target price
    manygp evaluate price.manygp test.csv --json --report page.html
    """  # fmt: skip
    _require_folder(report)
    fitted, encoding = _load(model)
    y, answers = _tested(fitted, encoding, model, data, target, coverage)
    mean, std, lower, upper = answers
    scores = _scores(y, mean, std)
    scores["coverage"] = float(np.mean((lower <= y) & (y <= upper)))
    if report is not None:
        from manygp.report import Tested, write_report

        tested = Tested(y, mean, std, lower, upper, coverage, data.name)
        write_report(fitted, report, name=model.name, tested=tested)
    if as_json:
        facts = {"model": str(model), "data": str(data), "rows": len(y), "level": coverage}
        click.echo(json.dumps({**facts, **scores}))
        return
    _print_scores(scores, f"of {len(y):,} rows of {data}", coverage)


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
@click.option("--target", default=None, metavar="COLUMN", help="[default: that of fit]")
def plot(model: Path, data: Path | None, output: Path, kind: str, target: str | None) -> None:
    """Draw a model: how honest its std is, about DATA or about training rows left out.

    \b
    manygp plot price.manygp test.csv -o reliability.png
    manygp plot price.manygp --kind calibration -o chosen.svg
    """  # fmt: skip
    import matplotlib

    matplotlib.use("Agg")
    from manygp.files import replacing
    from manygp.plotting import CalibrationDisplay, PosteriorDisplay, ReliabilityDisplay

    _require_folder(output)
    fitted, encoding = _load(model)
    display: Any
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
        display.ax_.set(xlabel=encoding.names[0])
    elif data is not None:
        y, (mean, std, *_) = _tested(fitted, encoding, model, data, target, 0.9)
        display = ReliabilityDisplay.from_predictions(y, mean, std, name=data.name)
    else:
        _, y = _training_rows(fitted)
        rows = np.sort(np.random.default_rng(0).permutation(len(y))[:LEFT_OUT_ROWS])
        mean, std = fitted.loo_predict(rows)
        name = "training rows, left out"
        display = ReliabilityDisplay.from_predictions(y[rows], mean, std, name=name)
    picture = io.BytesIO()
    suffix = output.suffix.removeprefix(".") or "png"
    display.figure_.savefig(picture, format=suffix, dpi=150, bbox_inches="tight")
    with replacing(output) as file:
        file.write(picture.getvalue())


@click.command()
@click.argument("model", type=FILE)
@as_json
def info(model: Path, as_json: bool) -> None:
    """What a model file holds."""
    from manygp import ManyGPRegressor, persistence, plain

    manifest, default = persistence.check(model), ManyGPRegressor().get_params()
    arrays = manifest["arrays"]
    columns, table = manifest["columns"], manifest["table"]
    facts = {
        "model": str(model),
        "bytes": model.stat().st_size,
        "schema": manifest["schema"],
        "manygp": manifest["manygp"],
        "rows": arrays["X"]["shape"][0],
        "target": table and table["target"],
        "columns": columns,
        "experts": arrays["own_sizes"]["shape"][0],
        "nearest": manifest["nearest"],
        "kernel": manifest["kernel"],
        "chosen": manifest["report"] and manifest["report"]["chosen"],
        "parameters": {
            name: value
            for name, value in manifest["parameters"].items()
            if value != plain.encode(name, default[name])
        },
    }
    if as_json:
        click.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {_plain(one)}" for key, one in value.items())
        elif isinstance(value, list):
            value = f"{len(value)}: {', '.join(value)}"
        elif isinstance(value, int):
            value = f"{value:,}"
        click.echo(f"{name:<12}{'-' if value is None else value}")


@click.command()
@click.argument("model", type=FILE)
@as_json
def verify(model: Path, as_json: bool) -> None:
    """Check a model file: checksums, contents, and that its experts can be built again."""
    fitted, _ = _load(model)
    x, _ = _training_rows(fitted)
    mean, std = fitted.predict(x[:100], return_std=True)
    if not (np.all(np.isfinite(mean)) and np.all(std > 0)):
        raise ValueError(f"{model} does not predict its own rows")
    if as_json:
        click.echo(json.dumps({"model": str(model), "ok": True}))
        return
    click.echo(f"{model}: as it was written; {len(fitted.experts_):,} experts, {len(x):,} rows")


def _load(path: Path) -> tuple[ManyGPRegressor, Encoding]:
    """A model, and how the columns of a table become its own."""
    from manygp import load
    from manygp.encoding import Column, Encoding

    model = load(path)
    names = getattr(model, "feature_names_in_", None)
    if model._table is not None:
        encoding = Encoding.from_json(model._table["columns"])
    elif names is not None:
        encoding = Encoding(tuple(Column(str(name), "number") for name in names))
    else:
        raise ValueError(
            f"{path} was fitted on arrays without column names, by which tables are matched; fit "
            "it on a table, or use it from Python"
        )
    # Columns are matched by name here, so that arrays without names will do.
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    return model, encoding


def _reach(model: ManyGPRegressor, coverage: float) -> float:
    """How many std an interval reaches to either side."""
    reach = model._reach(coverage)
    if len(reach) > 1:
        raise ValueError("a model of several targets can be asked from Python only")
    return float(reach[0])


def _answers(model: ManyGPRegressor, X: Array, reach: float) -> Array:
    """Mean, std, lower and upper: (4, N)."""
    mean, std = model.predict(X, return_std=True)
    return np.array([mean, std, mean - reach * std, mean + reach * std])


def _tested(
    model: ManyGPRegressor,
    encoding: Encoding,
    path: Path,
    data: Path,
    target: str | None,
    coverage: float,
) -> tuple[Array, Array]:
    """Targets (N,) of a table, and the answers (4, N)."""
    from manygp.encoding import read_evaluation

    target = target or (model._table or {}).get("target")
    if target is None:
        raise ValueError(f"{path} does not know the name of its target; pass --target")
    reach = _reach(model, coverage)
    rows = _counted(read_evaluation(data, encoding, target), "Predicting rows")
    y, answers = zip(*((y, _answers(model, X, reach)) for X, y in rows), strict=True)
    return np.concatenate(y), np.concatenate(answers, axis=1)


def _counted(pieces: Iterable[Any], what: str) -> Iterable[Any]:
    """The same, and on a terminal how many there were."""
    if not sys.stderr.isatty():
        return pieces
    from rich.console import Console
    from rich.progress import track

    return track(pieces, what, total=None, console=Console(stderr=True), transient=True)


def _training_rows(model: ManyGPRegressor) -> tuple[Array, Array]:
    """Inputs and targets of the training rows, in their units."""
    data = model._committee.training_data()
    return model._x_scaling.undo(data.X), model._y_scaling.undo(data.Y)[:, 0]


def _scores(y: Array, mean: Array, std: Array) -> dict[str, float | None]:
    """RMSE, NLL, ENCE, CRPS, and how many lie within 90%; None where there are too few rows."""
    from manygp import metrics

    enough = len(y) >= 10
    return {
        "rmse": metrics.rmse(y, mean),
        "nll": metrics.nll(y, mean, std),
        "ence": metrics.ence(y, mean, std) if enough else None,
        "crps": metrics.crps(y, mean, std),
        "coverage": metrics.coverage(y, mean, std),
    }


def _print_scores(scores: dict[str, float | None], rows: str, level: float = 0.9) -> None:
    click.echo(f"Scores {rows}:")
    names = {name: name.upper() for name in scores} | {"coverage": f"within {level:.3g}"}
    for name, value in scores.items():
        click.echo(f"  {names[name]:<12}{'-' if value is None else f'{value:.4g}'}")


def _plain(value: Any) -> str:
    """A value of a manifest in one word."""
    if isinstance(value, dict):
        return str(next(iter(value.values())))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _require_folder(*files: Path | None) -> None:
    """Before the work, not after."""
    for file in files:
        if file is not None and not file.absolute().parent.is_dir():
            raise ValueError(f"there is no folder {file.absolute().parent} to write {file} into")
