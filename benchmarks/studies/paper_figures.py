"""The paper's figures from the results of its evaluation."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import load, split
from benchmarks.studies.paper_plan import (
    EXPERT_SIZES,
    SIZE_STUDY_SEEDS,
    SIZE_STUDY_TASKS,
    points_of,
)
from benchmarks.studies.paper_tables import Key, Summary, summarise
from benchmarks.studies.study import Result
from manygp.arrays import Array
from manygp.display.plots import PosteriorDisplay, ReliabilityDisplay
from manygp.metrics import ReliabilityCurve
from manygp.regressor import ManyGPRegressor

# The models of each reliability diagram.
RELIABILITY_MODELS = {
    "analyse": ["bt-ent", "gp-pro-full", "gp-full"],
    "assignments": ["bt-ent-c", "bt-ent", "kx-ent-c", "kx-ent", "rd-ent-c", "rd-ent"],
    "variants": ["bt-ent-c", "bt-ent", "bt-var-c", "bt-var", "bt-uni-c", "bt-uni"],
    "baseline": ["bt-ent-c", "bt-ent", "gp-pro-sm", "gp-full"],
}
# Colour and marker of a model by what its label contains.
MODEL_STYLES = {
    "gp-full": ("#D55E00", "D"),
    "gp-pro-full": ("#E69F00", "s"),
    "gp-pro-sm": ("#CC79A7", "^"),
    "-ent": ("#0072B2", "o"),
    "-var": ("#009E73", "v"),
    "-uni": ("#D55E00", "P"),
}
# Colour and marker of an assignment by the beginning of its labels.
ASSIGNMENT_STYLES = {"bt-": ("#0072B2", "o"), "kx-": ("#D55E00", "s"), "rd-": ("#009E73", "D")}
# The names of the assignments in legends.
ASSIGNMENT_NAMES = {"bt-": "ball tree", "kx-": "k-means", "rd-": "random"}
# The panels of the size study, and what they show.
SIZE_PANELS = {"RMSE": "rmse", "NLL": "nll", "ENCE": "ence", "fit time, s": "fit_seconds"}
# The panels of the illustration, and their models.
POSTERIOR_PANELS = {
    "one global GP": "gp-full",
    "two experts, ball tree, not calibrated": "bt-ent",
    "two experts, random parts, calibrated": "rd-ent-c",
    "two experts, ball tree, calibrated": "bt-ent-c",
}
# Panels of a reliability diagram side by side.
MOST_PANELS = 4
# Dots per inch of diagrams with many panels.
DIAGRAM_DPI = 90
# Dots per inch of the illustration.
ILLUSTRATION_DPI = 110

Curves = dict[tuple[str, str], Array]  # by task and model: (2, bins), of RMV and RMSE


def draw_reliability(
    results: list[Result], tasks: list[str], models: list[str], path: Path
) -> bool:
    """One panel per task; curves are means over the seeds. False if there are none."""
    import matplotlib.pyplot as plt

    curves = _mean_curves(results)
    tasks = [task for task in tasks if any((task, model) in curves for model in models)]
    if not tasks:
        return False
    n_columns = min(MOST_PANELS, len(tasks))
    n_rows = -(-len(tasks) // n_columns)
    figure, axes = plt.subplots(
        n_rows,
        n_columns,
        figsize=(3.3 * n_columns, 3.3 * n_rows + 0.5),
        squeeze=False,
        layout="constrained",
    )
    handles: dict[str, Any] = {}
    for panel, ax in enumerate(axes.flat):
        if panel >= len(tasks):
            ax.set_visible(False)
            continue
        _draw_curves(ax, tasks[panel], models, curves)
        if panel % n_columns:
            ax.set_ylabel("")
        if panel + n_columns < len(tasks):
            ax.set_xlabel("")
        handles.update(dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True)))
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside upper center",
        ncols=2 * n_columns,
        frameon=False,
    )
    figure.savefig(path, dpi=DIAGRAM_DPI)
    plt.close(figure)
    return True


def _mean_curves(results: list[Result]) -> Curves:
    """Means over the seeds at the paper's points per expert."""
    curves: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for result in results:
        if result["points"] == points_of(result["task"]):
            for model, scores in result["models"].items():
                curve = [scores["curve"]["rmv"], scores["curve"]["rmse"]]
                curves[result["task"], model].append(curve)
    return {key: np.mean(by_seed, axis=0) for key, by_seed in curves.items()}


def _draw_curves(ax: Any, task: str, models: list[str], curves: Curves) -> None:
    """The curves of one task on Matplotlib axes, for the models that have one."""
    one_assignment = len({model[:2] for model in models} - {"gp"}) == 1
    for model in models:
        if (task, model) in curves:
            curve = ReliabilityCurve(*curves[task, model])
            style = _style(model, by_weighting=one_assignment)
            ReliabilityDisplay(curve, model).plot(ax, **style)
    ax.get_legend().remove()
    ax.set_title(task)


def _style(model: str, *, by_weighting: bool) -> dict[str, Any]:
    """Colour by kind; calibrated models are solid, the others dashed and hollow."""
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
    assignments, tasks, seeds = _with_all_sizes(own)
    if not assignments or not tasks:
        return False
    summary = summarise([row for row in own if row["seed"] in seeds])
    figure, axes = plt.subplots(2, 2, figsize=(8, 6.4), sharex=True, layout="constrained")
    for ax, (title, metric) in zip(axes.flat, SIZE_PANELS.items(), strict=True):
        for assignment in assignments:
            colour, marker = ASSIGNMENT_STYLES[assignment]
            means = _means_by_size(summary, tasks, f"{assignment}ent-c", metric)
            name = ASSIGNMENT_NAMES[assignment]
            ax.plot(EXPERT_SIZES, means, color=colour, marker=marker, label=name)
        ax.set(title=title, xticks=EXPERT_SIZES)
        ax.grid(color="0.92")
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[1]:
        ax.set_xlabel("points per expert")
    axes[0, 0].legend(frameon=False)
    figure.suptitle(f"Entropy weights, calibrated; {len(tasks)} tasks, {len(seeds)} seeds")
    figure.savefig(path, dpi=DIAGRAM_DPI)
    plt.close(figure)
    return True


def _with_all_sizes(rows: list[dict[str, Any]]) -> tuple[list[str], list[str], list[int]]:
    """Assignments that have all sizes of a task; tasks and seeds that have all sizes of them."""
    done = {(r["task"], r["model"], r["points_per_expert"], r["seed"]) for r in rows}
    assignments = [
        assignment
        for assignment in ASSIGNMENT_STYLES
        if any(_has_all_sizes(done, task, [assignment], 0) for task in SIZE_STUDY_TASKS)
    ]
    tasks = [task for task in SIZE_STUDY_TASKS if _has_all_sizes(done, task, assignments, 0)]
    seeds = [
        seed
        for seed in range(SIZE_STUDY_SEEDS)
        if all(_has_all_sizes(done, task, assignments, seed) for task in tasks)
    ]
    return assignments, tasks, seeds


def _has_all_sizes(
    done: set[tuple[str, str, int, int]], task: str, assignments: list[str], seed: int
) -> bool:
    """Whether all sizes are done, as (task, model, size, seed)."""
    models = [f"{assignment}ent-c" for assignment in assignments]
    return all((task, model, size, seed) in done for model in models for size in EXPERT_SIZES)


def _means_by_size(
    summary: dict[Key, Summary], tasks: list[str], model: str, metric: str
) -> Array:
    """Means over the tasks: (sizes,)."""
    by_task = [
        [summary["independent", task, model, size, metric].mean for size in EXPERT_SIZES]
        for task in tasks
    ]
    means: Array = np.mean(by_task, axis=0)
    return means


def draw_posteriors(path: Path, seed: int = 0) -> None:
    """The paper's two illustrations on 1-d Ackley: two experts, before and after calibration."""
    import matplotlib.pyplot as plt

    data = split(load("ackley1d", seed, n_rows=40), seed)
    figure, panels = plt.subplots(
        2, 2, figsize=(11, 6.4), sharex=True, sharey=True, layout="constrained"
    )
    grid = np.linspace(0, 1, 400)[:, None]
    for ax, (title, label) in zip(panels.flat, POSTERIOR_PANELS.items(), strict=True):
        model = ManyGPRegressor.from_label(label, points_per_expert=10, random_state=seed)
        model.fit(data.X_train, data.y_train)
        PosteriorDisplay.from_estimator(
            model,
            grid,
            X_train=data.X_train,
            y_train=data.y_train,
            ax=ax,
            show_experts=len(model.experts_) > 1,
        )
        ax.set_title(title)
        ax.label_outer()
        if ax is not panels[1, 1]:
            ax.get_legend().remove()
    figure.savefig(path, dpi=ILLUSTRATION_DPI)
    plt.close(figure)
