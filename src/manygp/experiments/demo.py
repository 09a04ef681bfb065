"""The paper's comparison on 10-d Ackley: a table beside the published cells, and two figures."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

import matplotlib
import numpy as np

from manygp import ManyGPRegressor
from manygp.datasets import Split, load, split
from manygp.experiments.published import published
from manygp.metrics import ence, nll, rmse
from manygp.plotting import PosteriorDisplay, ReliabilityDisplay
from manygp.types import Array

MODELS = {
    "GP-pro": "bt-ent",
    "GP-pro-c": "bt-ent-c",
    "GP-pro-sm": "gp-pro-sm",
    "GP-full": "gp-full",
}
COLUMNS = {"RMSE": "rmse", "NLL": "nll", "ENCE": "ence"}
TIMES = {"fit s": "train_seconds", "predict s": "test_seconds"}
SEED = 0


def run(label: str, data: Split) -> tuple[Array, Array, list[float]]:
    """Means, standard deviations, and what the table shows of them."""
    model = ManyGPRegressor.from_label(label, n_jobs=-1, random_state=SEED)
    start = perf_counter()
    model.fit(data.X_train, data.y_train)
    fitted = perf_counter()
    mean, std = model.predict(data.X_test, return_std=True)
    predicted = perf_counter()
    scores = [metric(data.y_test, mean, std) for metric in (rmse, nll, ence)]
    return mean, std, [*scores, fitted - start, predicted - fitted]


def draw_posteriors(path: Path) -> None:
    """The paper's two illustrations on 1-d Ackley: two experts, before and after calibration."""
    import matplotlib.pyplot as plt

    data = split(load("ackley1d", SEED, n_rows=40), SEED)
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
        model = ManyGPRegressor.from_label(label, points_per_expert=10, random_state=SEED)
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


def main(folder: Path) -> None:
    """Print the table and write the figures into `folder`."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    data = split(load("ackley", SEED), SEED)
    n, d = data.X_train.shape
    print(f"10-d Ackley, {n} training and {len(data.X_test)} test rows, seed {SEED}.")
    print("In brackets: the paper's cell (mean of ten seeds, its own machine).\n")
    heads = [*COLUMNS, *TIMES]
    print(f"{'':10}" + "".join(f"{head:>18}" for head in heads))
    figure, ax = plt.subplots(figsize=(5.4, 5.2), layout="constrained")
    for name, label in MODELS.items():
        mean, std, cells = run(label, data)
        row = f"{name:10}"
        for value, metric in zip(cells, [*COLUMNS.values(), *TIMES.values()], strict=True):
            row += f"{value:>10.3f} ({published()['ackley', label, metric]:.3f})".rjust(18)
        print(row, flush=True)
        ReliabilityDisplay.from_predictions(data.y_test, mean, std, name=name, ax=ax)
    ax.set_title(f"{d}-d Ackley, {n} training rows")
    figure.savefig(folder / "reliability.png", dpi=110)
    plt.close(figure)
    draw_posteriors(folder / "posterior.png")
    print(f"\nFigures: {folder / 'reliability.png'}, {folder / 'posterior.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
