"""`manygp plot`, `info` and `verify`: look at a model file."""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from manygp.cli.options import (
    FILE,
    NEW_FILE,
    as_json,
    require_matplotlib,
    require_place,
    say,
    target_option,
)
from manygp.runtime.files import naming_full_disk
from manygp.runtime.words import counted

if TYPE_CHECKING:
    from manygp.display.plots import PosteriorDisplay, ReliabilityDisplay

PICTURES = ("png", "svg", "pdf")
# Experts that a posterior can show without confusion.
MOST_EXPERTS_DRAWN = 5
# Rows of its largest expert that a model has to predict when it is verified.
VERIFIED_ROWS = 5


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
@target_option
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
    from manygp.runtime.files import replacing

    if data is not None and kind != "reliability":
        raise click.UsageError(f"--kind {kind} is about the model alone; leave {data} out")
    require_place(output, model, *([] if data is None else [data]))
    suffix = output.suffix.removeprefix(".").lower() or "png"
    if suffix not in PICTURES:
        raise click.UsageError(f"{output} must end with one of .{', .'.join(PICTURES)}")
    _require_drawable(model, data, kind, target)
    display: Any
    if kind == "calibration":
        from manygp import load
        from manygp.display.plots import CalibrationDisplay

        display = CalibrationDisplay.from_estimator(load(model))
    elif kind == "posterior":
        display = _posterior(model)
    else:
        display = _reliability(model, data, target)
    picture = io.BytesIO()
    display.figure_.savefig(picture, format=suffix, dpi=150, bbox_inches="tight")
    with naming_full_disk(output), replacing(output) as file:
        file.write(picture.getvalue())


def _require_drawable(path: Path, data: Path | None, kind: str, target: str | None) -> None:
    """Refuse what cannot be drawn before experts are built, and rows read."""
    from manygp.storage import check_model

    manifest = check_model(path)
    arrays, table = manifest["arrays"], manifest["table"] or {}
    n_columns = arrays["X"]["shape"][1]
    if kind != "calibration" and arrays["y"]["shape"][1] > 1:
        raise ValueError("a model of several targets can be asked from Python only")
    if kind == "posterior" and n_columns != 1:
        raise ValueError(f"a posterior is drawn for one column; {path} has {n_columns}")
    if kind == "calibration" and manifest["report"] is None:
        raise ValueError(f"{path} has chosen nothing that could be drawn")
    if data is not None:
        from manygp.tables.formats import open_table

        target = target or table.get("target")
        if target is not None:
            open_table(data).check_column(target)


def _posterior(path: Path) -> PosteriorDisplay:
    """The curve of a model of one column."""
    import numpy as np

    from manygp import answers, load
    from manygp.display.plots import PosteriorDisplay

    estimator = load(path)
    model = estimator.model_
    x, y = answers.training_rows(model)
    line = np.linspace(x.min(), x.max(), 400)[:, None]
    few = len(model.committee) <= MOST_EXPERTS_DRAWN
    # The line has no names, and needs none.
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    display = PosteriorDisplay.from_estimator(
        estimator, line, X_train=x, y_train=y[:, 0], show_experts=few
    )
    (name,) = model.names or ("x",)
    display.ax_.set(xlabel=name.replace("$", r"\$"))  # else it would be mathematics
    return display


def _reliability(path: Path, data: Path | None, target: str | None) -> ReliabilityDisplay:
    """Errors against std, of the rows of a table or of training rows left out."""
    from manygp import answers
    from manygp.cli.table_model import TableModel
    from manygp.display.plots import ReliabilityDisplay
    from manygp.storage import read_model

    if data is None:
        model = read_model(path)
        rows = answers.left_out_rows(model, answers.LEFT_OUT_ROWS)
        return ReliabilityDisplay.from_predictions(*rows, name="training rows, left out")
    tested = TableModel.load(path).tested(data, target, None)
    return ReliabilityDisplay.from_predictions(tested.y, *tested.answers[:2], name="tested rows")


@click.command()
@click.argument("model", type=FILE)
@as_json
def info(model: Path, as_json: bool) -> None:
    """Tell what a model file holds.

    \b
    manygp info price.manygp
    manygp info price.manygp --json
    """  # fmt: skip
    from manygp.kernels.text import formula, parse_kernel
    from manygp.storage import check_model
    from manygp.tables.base import listed

    manifest = check_model(model)
    facts = {"model": str(model), "bytes": model.stat().st_size, **_model_facts(manifest)}
    if as_json:
        click.echo(json.dumps(facts))
        return
    facts["kernel"] = formula(parse_kernel(manifest["kernel"]))
    for name, value in facts.items():
        match value:
            case dict():
                value = ", ".join(f"{key} {_in_a_word(one)}" for key, one in value.items())
            case list():
                value = f"{len(value)}: {listed(value)}"
            case int():
                value = f"{value:,}"
        say(f"{name:<12}{'-' if value is None else value}".replace("\n", "\\n"))


def _model_facts(manifest: dict[str, Any]) -> dict[str, Any]:
    """The facts of a manifest, without parameters that have their default."""
    from manygp.settings import Settings
    from manygp.storage.codec import encode

    arrays, table, report = manifest["arrays"], manifest["table"], manifest["report"]
    default, trend = Settings().parameters, manifest.get("trend")
    features = manifest["columns"]
    encoded = table and (table.get("encoder") or table).get("columns")  # 0.1 had no encoder
    return {
        "schema": manifest["schema"],
        "manygp": manifest["manygp"],
        "rows": arrays["X"]["shape"][0],
        "target": table and table.get("target"),
        "columns": [one["name"] for one in encoded] if encoded else features,
        "features": features,
        "experts": arrays["seats"]["shape"][0],
        "trend": trend and trend["name"],
        "nearest": manifest["nearest"],
        "kernel": manifest["kernel"],
        "chosen": report
        and {
            name: value["float"] if isinstance(value, dict) else value
            for name, value in report["chosen"].items()
        },
        "parameters": {
            name: value
            for name, value in manifest["parameters"].items()
            if value != encode(name, default.get(name))
        },
    }


def _in_a_word(value: Any) -> str:
    """A value of a manifest in one word."""
    if isinstance(value, dict):
        return str(next(iter(value.values())))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@click.command()
@click.argument("model", type=FILE)
@as_json
def verify(model: Path, as_json: bool) -> None:
    """Check that a model file is whole.

    \b
    manygp verify price.manygp

    Its checksums, its contents, and that the largest expert and those near to it can be built
    again and answer.
    """  # fmt: skip
    import numpy as np

    from manygp import answers
    from manygp.storage import read_model

    fitted = read_model(model)
    x, _ = answers.training_rows(fitted)
    largest = max(fitted.committee.experts, key=lambda expert: len(expert.X))
    mean, std = answers.predict(fitted, x[largest.indices[:VERIFIED_ROWS]])
    if not (np.all(np.isfinite(mean)) and np.all(std > 0)):
        raise ValueError(f"{model} does not predict its own rows")
    if as_json:
        click.echo(json.dumps({"model": str(model), "ok": True}))
        return
    sizes = f"{counted(len(fitted.committee), 'expert')}, {counted(len(x), 'row')}"
    say(f"{model}: as it was written; {sizes}")
