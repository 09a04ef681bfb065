"""The paper's comparison on 10-d Ackley: a table beside the published cells, and figures."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

import matplotlib

from benchmarks.datasets import Split, load, split
from benchmarks.studies.paper_figures import ILLUSTRATION_DPI, draw_posteriors
from benchmarks.studies.published import published
from manygp import ManyGPRegressor
from manygp.arrays import Array
from manygp.display.plots import CalibrationDisplay, ReliabilityDisplay
from manygp.metrics import ence, nll, rmse

# The models of the table, and their labels in the paper.
DEMO_MODELS = {
    "manygp": None,  # the default of this library, which is not in the paper
    "GP-pro": "bt-ent",
    "GP-pro-c": "bt-ent-c",
    "GP-pro-sm": "gp-pro-sm",
    "GP-full": "gp-full",
}
# The columns of the table, and the paper's names of them.
DEMO_COLUMNS = {
    "RMSE": "rmse",
    "NLL": "nll",
    "ENCE": "ence",
    "fit s": "train_seconds",
    "predict s": "test_seconds",
}
# What to do after the demo.
NEXT = """
What next:
  in Python            from manygp import ManyGPRegressor; model = ManyGPRegressor().fit(X, y)
  a table of your own  pip install ".[cli]" and manygp check YOUR.csv --target COLUMN
  examples and guide   make docs, then open docs/_build/html/index.html"""
# The split, and the random state of the models.
DEMO_SEED = 0


def fit_and_score(
    label: str | None, data: Split
) -> tuple[ManyGPRegressor, Array, Array, list[float]]:
    """The fitted model, means (N,), standard deviations (N,), and the numbers of the table."""
    model = ManyGPRegressor.from_label(label) if label else ManyGPRegressor()
    model.set_params(n_jobs=-1, random_state=DEMO_SEED)
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
    data = split(load("ackley", DEMO_SEED), DEMO_SEED)
    n, d = data.X_train.shape
    print(f"10-d Ackley, {n} training and {len(data.X_test)} test rows, seed {DEMO_SEED}.")
    print("In brackets: the paper's cell (mean of ten seeds, its own machine).\n")
    print(f"{'':10}" + "".join(f"{head:>18}" for head in DEMO_COLUMNS))
    figure, ax = plt.subplots(figsize=(5.4, 5.2), layout="constrained")
    for name, label in DEMO_MODELS.items():
        model, mean, std, cells = fit_and_score(label, data)
        if label is None:
            choices = plt.figure(figsize=(9.5, 5.6), layout="constrained")
            CalibrationDisplay.from_estimator(model, figure=choices)
            choices.savefig(folder / "calibration.png", dpi=ILLUSTRATION_DPI)
            plt.close(choices)
        row = f"{name:10}"
        for value, metric in zip(cells, DEMO_COLUMNS.values(), strict=True):
            cell = f"{published()['ackley', label, metric]:.3f}" if label else "  -  "
            row += f"{value:>10.3f} ({cell})".rjust(18)
        print(row, flush=True)
        ReliabilityDisplay.from_predictions(data.y_test, mean, std, name=name, ax=ax)
    ax.set_title(f"{d}-d Ackley, {n} training rows")
    figure.savefig(folder / "reliability.png", dpi=ILLUSTRATION_DPI)
    plt.close(figure)
    draw_posteriors(folder / "posterior.png")
    names = ("reliability", "calibration", "posterior")
    print("\nFigures: " + ", ".join(str(folder / f"{name}.png") for name in names))
    print(NEXT)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
