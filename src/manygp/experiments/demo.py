"""The paper's comparison on 10-d Ackley: a table beside the published cells, and figures."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

import matplotlib

from manygp import ManyGPRegressor
from manygp.arrays import Array
from manygp.datasets import Split, load, split
from manygp.display.plots import CalibrationDisplay, ReliabilityDisplay
from manygp.experiments.figures import draw_posteriors
from manygp.experiments.published import published
from manygp.metrics import ence, nll, rmse

MODELS = {
    "manygp": None,  # the default of this library, which the paper does not have
    "GP-pro": "bt-ent",
    "GP-pro-c": "bt-ent-c",
    "GP-pro-sm": "gp-pro-sm",
    "GP-full": "gp-full",
}
COLUMNS = {"RMSE": "rmse", "NLL": "nll", "ENCE": "ence"}
TIMES = {"fit s": "train_seconds", "predict s": "test_seconds"}
SEED = 0


def run(label: str | None, data: Split) -> tuple[ManyGPRegressor, Array, Array, list[float]]:
    """Fitted model, means, standard deviations, and what the table shows of them."""
    model = ManyGPRegressor.from_label(label) if label else ManyGPRegressor()
    model.set_params(n_jobs=-1, random_state=SEED)
    start = perf_counter()
    model.fit(data.X_train, data.y_train)
    fitted = perf_counter()
    mean, std = model.predict(data.X_test, return_std=True)
    predicted = perf_counter()
    scores = [metric(data.y_test, mean, std) for metric in (rmse, nll, ence)]
    return model, mean, std, [*scores, fitted - start, predicted - fitted]


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
        model, mean, std, cells = run(label, data)
        if label is None:
            choices = plt.figure(figsize=(13.3, 2.8), layout="constrained")
            CalibrationDisplay.from_estimator(model, figure=choices)
            choices.savefig(folder / "calibration.png", dpi=110)
            plt.close(choices)
        row = f"{name:10}"
        for value, metric in zip(cells, [*COLUMNS.values(), *TIMES.values()], strict=True):
            cell = f"{published()['ackley', label, metric]:.3f}" if label else "  -  "
            row += f"{value:>10.3f} ({cell})".rjust(18)
        print(row, flush=True)
        ReliabilityDisplay.from_predictions(data.y_test, mean, std, name=name, ax=ax)
    ax.set_title(f"{d}-d Ackley, {n} training rows")
    figure.savefig(folder / "reliability.png", dpi=110)
    plt.close(figure)
    draw_posteriors(folder / "posterior.png")
    names = ("reliability", "calibration", "posterior")
    print("\nFigures: " + ", ".join(str(folder / f"{name}.png") for name in names))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
