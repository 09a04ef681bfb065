"""Several targets: one committee for all, or a model of each.

    python -m benchmarks.targets            # 80, 300 and 1,500 rows
    python -m benchmarks.targets 300

Simulated targets of three columns, 2,000 test rows, one seed. RMSE in units of the std of each
target, squared errors in units of the variance, NLL of targets in these units, and the share that
90% intervals hold. Seconds are those of one processor.
"""

from __future__ import annotations

import sys
from time import process_time
from typing import Any

import numpy as np

from manygp import ManyGPEmulator, ManyGPRegressor
from manygp.calibration import normal_nll

NEW_ROWS = 2000


def simulated(kind: str, n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Rows, and targets with little and much noise, with light and heavy tails, or alike."""
    X = rng.uniform(size=(n, 3))
    waves, bend = np.sin(5 * X[:, 0]) * X[:, 1] + X[:, 2], np.cos(4 * X[:, 1])
    if kind == "noise":
        columns = [waves + 0.05 * rng.normal(size=n), bend + 0.8 * rng.normal(size=n)]
    elif kind == "tails":
        skewed = np.exp(2 * X[:, 0] + 0.4 * rng.normal(size=n))
        heavy = bend + 0.1 * rng.standard_t(2.5, size=n)
        columns = [waves + 0.1 * rng.normal(size=n), heavy, skewed]
    else:
        columns = [waves + 0.2 * rng.normal(size=n), 100 * (bend + 0.25 * rng.normal(size=n))]
    return X, np.column_stack(columns)


def shown(values: Any, digits: int = 2) -> str:
    """Numbers of targets."""
    return " ".join(f"{one:.{digits}f}" for one in values)


def main(sizes: list[int]) -> None:
    """Both kinds of models at these sizes."""
    for kind in ("noise", "tails", "alike"):
        for n in sizes:
            X, Y = simulated(kind, n, np.random.default_rng(0))
            X_new, new = simulated(kind, NEW_ROWS, np.random.default_rng(1))
            unit = Y.std(axis=0)
            models = {
                "one committee": ManyGPRegressor(random_state=0),
                "a model of each": ManyGPEmulator(n_components=None, random_state=0),
            }
            for name, model in models.items():
                begin = process_time()
                model.fit(X, Y)
                seconds = process_time() - begin
                mean, std = model.predict(X_new, return_std=True)
                lower, upper = model.predict_interval(X_new)
                error = (new - mean) / unit
                nll = normal_nll(error**2, (std / unit) ** 2).mean(axis=0)
                held = np.mean((lower <= new) & (new <= upper), axis=0)
                print(
                    f"{kind}, {n:,} rows, {name}: RMSE {shown(np.sqrt(np.mean(error**2, axis=0)))}"
                    f", squares {shown(np.mean(((new - mean) / std) ** 2, axis=0))}"
                    f", NLL {shown(nll)}, held {shown(100 * held, 1)}, {seconds:.1f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main([int(float(one)) for one in sys.argv[1:]] or [80, 300, 1500])
