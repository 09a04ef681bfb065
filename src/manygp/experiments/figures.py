"""The paper's figures from the results of the grid."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from manygp.datasets import load, split
from manygp.display.plots import PosteriorDisplay, ReliabilityDisplay
from manygp.experiments.grid import (
    POINTS,
    POINTS_OF_TASK,
    SIZE_STUDY_SEEDS,
    SIZE_STUDY_TASKS,
    SIZES,
)
from manygp.experiments.tables import summarise
from manygp.metrics import ReliabilityCurve
from manygp.regressor import ManyGPRegressor

RELIABILITY = {
    "analyse": ["bt-ent", "gp-pro-full", "gp-full"],
    "assignments": ["bt-ent-c", "bt-ent", "kx-ent-c", "kx-ent", "rd-ent-c", "rd-ent"],
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
ASSIGNMENT_STYLES = {"bt-": ("#0072B2", "o"), "kx-": ("#D55E00", "s"), "rd-": ("#009E73", "D")}
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
    one_assignment = len({model[:2] for model in models} - {"gp"}) == 1
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
            ReliabilityDisplay(ReliabilityCurve(*mean), model).plot(
                ax, **_style(model, one_assignment)
            )
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


def _style(model: str, by_weighting: bool) -> dict[str, Any]:
    """Colour by kind; calibrated models solid, the others dashed and hollow."""
    names = MODEL_STYLES if by_weighting else {**ASSIGNMENT_STYLES, **MODEL_STYLES}
    colour, marker = next(style for name, style in names.items() if name in model)
    solid = model.endswith("-c") or model.startswith("gp-")
    return {
        "color": colour,
        "marker": marker,
        "markersize": 7 if model == "gp-pro-full" else 4,
        "linestyle": "-" if solid else "--",
        "markerfacecolor": colour if solid else "white",
    }


def draw_sizes(rows: list[dict[str, Any]], path: Path) -> bool:
    """RMSE, NLL, ENCE and fit time against points per expert; False without such results.

    All sizes are averaged over the same seeds and the same tasks.
    """
    import matplotlib.pyplot as plt

    own = [row for row in rows if row["regime"] == "independent"]
    there = {(r["task"], r["model"], r["points_per_expert"], r["seed"]) for r in own}

    def complete(task: str, assignments: list[str], seed: int) -> bool:
        models = [f"{assignment}ent-c" for assignment in assignments]
        return all((task, model, size, seed) in there for model in models for size in SIZES)

    assignments = [
        a for a in ASSIGNMENT_STYLES if any(complete(t, [a], 0) for t in SIZE_STUDY_TASKS)
    ]
    tasks = [task for task in SIZE_STUDY_TASKS if complete(task, assignments, 0)]
    if not assignments or not tasks:
        return False
    seeds = [s for s in range(SIZE_STUDY_SEEDS) if all(complete(t, assignments, s) for t in tasks)]
    summary = summarise([row for row in own if row["seed"] in seeds])
    panels = {"RMSE": "rmse", "NLL": "nll", "ENCE": "ence", "fit time, s": "fit_seconds"}
    figure, axes = plt.subplots(2, 2, figsize=(8, 6.4), sharex=True, layout="constrained")
    for ax, (title, metric) in zip(axes.flat, panels.items(), strict=True):
        for assignment in assignments:
            colour, marker = ASSIGNMENT_STYLES[assignment]
            model = f"{assignment}ent-c"
            by_task = [
                [summary["independent", task, model, size, metric].mean for size in SIZES]
                for task in tasks
            ]
            name = NAMES[assignment[:2]]
            ax.plot(SIZES, np.mean(by_task, axis=0), color=colour, marker=marker, label=name)
        ax.set(title=title, xticks=SIZES)
        ax.grid(color="0.92")
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[1]:
        ax.set_xlabel("points per expert")
    axes[0, 0].legend(frameon=False)
    figure.suptitle(f"Entropy weights, calibrated; {len(tasks)} tasks, {len(seeds)} seeds")
    figure.savefig(path, dpi=DPI)
    plt.close(figure)
    return True


def draw_posteriors(path: Path, seed: int = 0) -> None:
    """The paper's two illustrations on 1-d Ackley: two experts, before and after calibration."""
    import matplotlib.pyplot as plt

    data = split(load("ackley1d", seed, n_rows=40), seed)
    figure, panels = plt.subplots(
        2, 2, figsize=(11, 6.4), sharex=True, sharey=True, layout="constrained"
    )
    grid = np.linspace(0, 1, 400)[:, None]
    for ax, (title, label) in zip(
        panels.flat,
        {
            "one global GP": "gp-full",
            "two experts, ball tree, not calibrated": "bt-ent",
            "two experts, random parts, calibrated": "rd-ent-c",
            "two experts, ball tree, calibrated": "bt-ent-c",
        }.items(),
        strict=True,
    ):
        model = ManyGPRegressor.from_label(label, points_per_expert=10, random_state=seed)
        model.fit(data.X_train, data.y_train)
        training = {"X_train": data.X_train, "y_train": data.y_train}
        shown = len(model.experts_) > 1
        PosteriorDisplay.from_estimator(model, grid, **training, ax=ax, show_experts=shown)
        ax.set_title(title)
        ax.label_outer()
        if ax is not panels[1, 1]:
            ax.get_legend().remove()
    figure.savefig(path, dpi=110)
    plt.close(figure)
