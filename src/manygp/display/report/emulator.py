"""A page about an emulator: its components as pictures, and its worst curves."""

from __future__ import annotations

import struct
import zlib
from os import PathLike
from typing import Any

import numpy as np

from manygp.arrays import Array
from manygp.display import page
from manygp.display.charts import Chart, linear, number, percent
from manygp.display.page import TextTable
from manygp.emulator.answers import FittedEmulator
from manygp.emulator.basis import check_curves, flat_rows
from manygp.runtime.files import write_atomically
from manygp.runtime.words import counted

# Components and curves that are shown, points of a line, and pixels of a side of a field.
SHOWN, WORST, POINTS, PIXELS = 12, 6, 300, 192


def write_emulator_report(
    model: Any, path: str | PathLike[str], Y: Any = None, *, name: str = "The emulator"
) -> None:
    """Write one self-contained HTML page about an emulator.

    Parameters
    ----------
    model : ManyGPEmulator
    path : path
        Where to write the page; a file that is there is replaced.
    Y : array-like, optional
        The curves that the model has learned from, in their order: the page then shows those that
        are predicted worst where their runs are left out.
    name : str
        What the page is about.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from manygp import ManyGPEmulator
    >>> from manygp.display import write_emulator_report
    >>> X = np.linspace(0, 1, 30)[:, None]
    >>> curves = np.sin(X + np.linspace(0, 6, 50))
    >>> emulator = ManyGPEmulator(random_state=0).fit(X, curves)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_emulator_report(emulator, Path(folder) / "curves.html", curves)
    ...     [path.name for path in Path(folder).iterdir()]
    ['curves.html']
    """
    fitted: FittedEmulator = model.model_
    sections = {
        "In short": _in_short(fitted),
        "What are the curves made of?": _components(fitted),
        "How sure is it of each output?": _errors(model),
    }
    if Y is not None:
        sections["Which curves were predicted worst?"] = _worst(model, Y)
    text = (
        f"{name} has learned {counted(len(fitted.mean), 'output')} of "
        f"{counted(len(model.models_[0].row_ids_), 'run')}. Scores are of runs that were left out."
    )
    write_atomically(path, page.page(name, text, sections))


def _in_short(model: FittedEmulator) -> str:
    bands, points = model.spread.bands, model.spread.points
    return page.cards(
        [
            ("components", str(len(model.models)), "each with a model of its own"),
            ("left unexplained", percent(model.report.left), "of the variance of the curves"),
            ("single outputs", number(float(np.quantile(points, 0.9))), "std hold 90% of them"),
            ("whole curves", number(float(np.quantile(bands, 0.9))), "std hold 90% of them"),
        ]
    )


def _components(model: FittedEmulator) -> str:
    lines = [
        [str(i + 1), percent(share), percent(explained)]
        for i, (share, explained) in enumerate(model.report.components)
    ]
    header = ["component", "share of the variance", "explained of it"]
    shown = (model.scale[:, None] * model.basis).T[:SHOWN]
    pictures = [_picture(one, model, f"component {i + 1}") for i, one in enumerate(shown)]
    return page.as_html(TextTable("", header, lines)) + page.side_by_side(pictures, "14rem")


def _errors(model: Any) -> str:
    """The std of outputs, on average over the training runs, beside their spread."""
    _, std = model.loo_predict()
    root = np.sqrt((np.asarray(getattr(std, "values", std)) ** 2).mean(axis=0)).ravel()
    return page.side_by_side(
        [
            _picture(root, model.model_, "std of the prediction"),
            _picture(model.model_.scale, model.model_, "scale of the outputs"),
        ]
    )


def _worst(model: Any, Y: Any) -> str:
    fitted = model.model_
    truth = flat_rows(check_curves(Y, fitted.grid), slice(None), fitted.grid)
    n = len(model.models_[0].row_ids_)
    if len(truth) != n:
        raise ValueError(f"Y has {len(truth)} runs, and the model has learned from {n}")
    mean, std = (
        np.asarray(getattr(one, "values", one)).reshape(n, -1) for one in model.loo_predict()
    )
    live = fitted.scale > 0
    z = np.abs(truth - mean)[:, live] / std[:, live]
    order = np.argsort(-z.max(axis=1), kind="stable")[:WORST]
    pictures = [
        _picture(
            truth[i], fitted, f"run {i}: off by {number(float(z[i].max()))} std", other=mean[i]
        )
        for i in order
    ]
    words = page.paragraph("Lines are the curve, and what was predicted for it without its run.")
    return (words if len(fitted.grid.shape) == 1 else "") + page.side_by_side(pictures)


def _picture(values: Array, model: FittedEmulator, title: str, other: Array | None = None) -> str:
    """A line, with another one beside it, or a field in grey, of values (T,)."""
    shape = model.grid.shape
    if len(shape) == 1:
        lines = [values] if other is None else [values, other]
        axis = linear(min(map(np.min, lines)), max(map(np.max, lines)), pad=0.05)
        chart = Chart(linear(0, max(shape[0] - 1, 1)), axis, ("output", ""), height=180.0)
        x = np.unique(np.linspace(0, shape[0] - 1, POINTS).astype(int))
        for one, kind in zip(lines, ("line", "line other"), strict=False):
            chart.line(x, one[x], kind)
        return page.drawing(chart.svg(title), title)
    field = values.reshape(-1, shape[-1])
    low, high = float(field.min()), float(field.max())
    caption = f"{title}: {number(low)} (black) to {number(high)} (white)"
    return page.figure(_png(field), caption)


def _png(field: Array) -> bytes:
    """A field as a picture in grey."""
    times = [max(1, PIXELS // size) for size in field.shape]
    steps = [-(-size // PIXELS) for size in field.shape]
    some = field[:: steps[0], :: steps[1]]
    grey = (255 * (some - some.min()) / max(float(np.ptp(some)), 1e-300)).astype(np.uint8)
    grey = grey.repeat(times[0], axis=0).repeat(times[1], axis=1)
    rows = np.pad(grey, ((0, 0), (1, 0))).tobytes()  # each row begins with its filter, none
    size = struct.pack(">IIBBBBB", grey.shape[1], grey.shape[0], 8, 0, 0, 0, 0)
    parts = ((b"IHDR", size), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
