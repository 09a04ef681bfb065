"""The paper's figures from the results of the grid."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from manygp.experiments.grid import POINTS, POINTS_OF_TASK, SIZE_STUDY_TASKS, SIZES
from manygp.experiments.tables import Key, Summary
from manygp.metrics import ReliabilityCurve
from manygp.plotting import ReliabilityDisplay

RELIABILITY = {
    "analyse": ["bt-ent", "gp-pro-full", "gp-full"],
    "variants": ["bt-ent-c", "bt-ent", "bt-var-c", "bt-var", "bt-uni-c", "bt-uni"],
    "baseline": ["bt-ent-c", "bt-ent", "gp-pro-sm", "gp-full"],
}
MODEL_STYLES = {
    "gp-full": ("#D55E00", "D"),
    "gp-pro-full": ("#E69F00", "s"),
    "gp-pro-sm": ("#CC79A7", "^"),
    "-ent": ("#0072B2", "o"),
    "-var": ("#009E73", "v"),
    "-uni": ("#D55E00", "P"),
}
STYLES = {"bt": ("#0072B2", "o"), "kx": ("#D55E00", "s"), "rd": ("#009E73", "D")}
NAMES = {"bt": "ball tree", "kx": "k-means", "rd": "random"}
DPI = 90


def draw_reliability(
    results: list[dict[str, Any]], tasks: list[str], models: list[str], path: Path
) -> bool:
    """One panel per task; curves are means over the seeds. False if there are none."""
    import matplotlib.pyplot as plt

    curves: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for cell in results:
        if cell["points"] == POINTS_OF_TASK.get(cell["task"], POINTS):
            for model, scores in cell["models"].items():
                curves[cell["task"], model].append(
                    [scores["curve"]["rmv"], scores["curve"]["rmse"]]
                )
    tasks = [task for task in tasks if any((task, model) in curves for model in models)]
    if not tasks:
        return False
    n_columns = min(4, len(tasks))
    n_rows = -(-len(tasks) // n_columns)
    figure, axes = plt.subplots(
        n_rows,
        n_columns,
        figsize=(3.3 * n_columns, 3.3 * n_rows + 0.5),
        squeeze=False,
        layout="constrained",
    )
    for ax in axes.flat[len(tasks) :]:
        ax.set_visible(False)
    for panel, (ax, task) in enumerate(zip(axes.flat, tasks, strict=False)):
        for model in models:
            if (task, model) not in curves:
                continue
            mean = np.mean(curves[task, model], axis=0)
            ReliabilityDisplay(ReliabilityCurve(*mean), model).plot(ax, **_style(model))
        ax.get_legend().remove()
        ax.set_title(task)
        if panel % n_columns:
            ax.set_ylabel("")
        if panel + n_columns < len(tasks):
            ax.set_xlabel("")
    handles = {}
    for ax in axes.flat[: len(tasks)]:
        handles.update(dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True)))
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside upper center",
        ncols=2 * n_columns,
        frameon=False,
    )
    figure.savefig(path, dpi=DPI)
    plt.close(figure)
    return True


def _style(model: str) -> dict[str, Any]:
    """Colour by weighting or baseline; calibrated models solid, the others dashed and hollow."""
    colour, marker = next(style for name, style in MODEL_STYLES.items() if name in model)
    solid = model.endswith("-c") or model.startswith("gp-")
    return {
        "color": colour,
        "marker": marker,
        "markersize": 7 if model == "gp-pro-full" else 4,
        "linestyle": "-" if solid else "--",
        "markerfacecolor": colour if solid else "white",
    }


def draw_sizes(summary: dict[Key, Summary], path: Path) -> bool:
    """RMSE, NLL, ENCE and fit time against points per expert; False without such results."""
    import matplotlib.pyplot as plt

    panels = {"RMSE": "rmse", "NLL": "nll", "ENCE": "ence", "fit time, s": "fit_seconds"}
    tasks = [
        task
        for task in SIZE_STUDY_TASKS
        if all(
            ("independent", task, f"{a}-ent-c", size, "nll") in summary
            for a in STYLES
            for size in SIZES
        )
    ]
    if not tasks:
        return False
    figure, axes = plt.subplots(2, 2, figsize=(8, 6.4), sharex=True, layout="constrained")
    for ax, (title, metric) in zip(axes.flat, panels.items(), strict=True):
        for assignment, (colour, marker) in STYLES.items():
            values = [
                np.mean(
                    [
                        summary["independent", task, f"{assignment}-ent-c", size, metric].mean
                        for task in tasks
                    ]
                )
                for size in SIZES
            ]
            ax.plot(SIZES, values, color=colour, marker=marker, label=NAMES[assignment])
        ax.set(title=title, xticks=SIZES)
        ax.grid(color="0.92")
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[1]:
        ax.set_xlabel("points per expert")
    axes[0, 0].legend(frameon=False)
    figure.suptitle(f"Entropy weights, calibrated; mean of {len(tasks)} tasks")
    figure.savefig(path, dpi=DPI)
    plt.close(figure)
    return True
