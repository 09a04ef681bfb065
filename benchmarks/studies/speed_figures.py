"""The figures of the study `speed`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.studies.names import SPEED_MODELS, SPEED_TASKS, SYNTHETIC_ROWS
from benchmarks.studies.study import CELL_SECONDS, is_scored

# Colour and marker of each model.
SPEED_STYLES = {
    "manygp": ("#0072B2", "o"),
    "manygp-5s": ("#56B4E9", "o"),
    "muygps": ("#009E73", "s"),
    "gpboost": ("#D55E00", "D"),
    "svgp": ("#CC79A7", "^"),
    "scikit-learn": ("#E69F00", "P"),
}
# Panels side by side.
N_COLUMNS = 3
# Dots per inch.
SPEED_DPI = 90
# The panels of the scaling figure: a title, and the number to show of a model's medians.
SCALING_PANELS: dict[str, Callable[[dict[str, Any]], float]] = {
    "seconds to fit": lambda one: one["fit_seconds"],
    "microseconds a query": lambda one: 1e6 * one["predict_seconds"] / one["n_queries"],
    "peak memory, GB": lambda one: one["peak_megabytes"] / 1000,
}

# Medians over the repeats by task and model; see `speed_tables.medians`.
Medians = dict[tuple[str, str], dict[str, Any]]


def draw_scaling(found: Medians, path: Path) -> bool:
    """Fit time, time of a query and memory against the number of rows; False if none finished."""
    import matplotlib.pyplot as plt

    tasks = _finished_tasks(found, SYNTHETIC_ROWS)
    if not tasks:
        return False
    figure, axes = plt.subplots(1, N_COLUMNS, figsize=(12, 3.8), layout="constrained")
    for axis, (title, value) in zip(axes, SCALING_PANELS.items(), strict=True):
        for model, name in SPEED_MODELS.items():
            ones = [found[t, model] for t in tasks if is_scored(found.get((t, model), {}))]
            colour, marker = SPEED_STYLES[model]
            if ones:
                sizes, values = [one["n_rows"] for one in ones], [value(one) for one in ones]
                axis.plot(sizes, values, color=colour, marker=marker, label=name)
        axis.set(xscale="log", yscale="log", xlabel="training rows", title=title)
        axis.grid(alpha=0.3)
    axes[0].axhline(CELL_SECONDS, color="grey", linestyle=":", label="ten minutes")
    axes[2].set(yscale="linear", ylim=(0, None))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    figure.savefig(path, dpi=SPEED_DPI)
    plt.close(figure)
    return True


def draw_trade(found: Medians, path: Path) -> bool:
    """NLL against seconds to fit, one panel per task; False if none finished."""
    import matplotlib.pyplot as plt

    tasks = _finished_tasks(found, SPEED_TASKS)
    if not tasks:
        return False
    n_rows = -(-len(tasks) // N_COLUMNS)
    figure, axes = plt.subplots(
        n_rows, N_COLUMNS, figsize=(12, 3.6 * n_rows), layout="constrained", squeeze=False
    )
    handles: dict[str, Any] = {}
    for axis, task in zip(axes.ravel(), tasks, strict=False):
        for model, name in SPEED_MODELS.items():
            one = found.get((task, model), {})
            if is_scored(one):
                colour, marker = SPEED_STYLES[model]
                (handles[name],) = axis.plot(
                    one["fit_seconds"], one["nll"], marker, color=colour, markersize=9
                )
        axis.axvline(CELL_SECONDS, color="grey", linestyle=":")
        axis.set(xscale="log", xlabel="seconds to fit", ylabel="NLL", title=task)
        axis.set_xlim(0.5, 2 * CELL_SECONDS)
        axis.grid(alpha=0.3)
    for axis in axes.ravel()[len(tasks) :]:
        axis.set_visible(False)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=6)
    figure.savefig(path, dpi=SPEED_DPI)
    plt.close(figure)
    return True


def _finished_tasks(found: Medians, tasks: Iterable[str]) -> list[str]:
    """The tasks that a model has finished."""
    return [t for t in tasks if any(is_scored(found.get((t, m), {})) for m in SPEED_MODELS)]
