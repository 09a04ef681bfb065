"""What is promised for new groups and for the future, and what is got, in simulations.

    python -m benchmarks.splits people schools walk [--draws 10]

`people` are 60 groups of five rows, `schools` 65 of 40, each with an effect of its own and two
columns that can tell groups apart; `walk` is a random walk whose last fifth is to be predicted.
"""

from __future__ import annotations

import argparse
import warnings
from time import process_time
from typing import Any

import numpy as np

from manygp import ManyGPRegressor, metrics

SIZES = {"people": (60, 5), "schools": (65, 40), "walk": (300, 1)}
NEW_GROUPS = 200
NOISE, EFFECT, WALK = 0.3, 0.7, 2.0


def grouped(name: str, rng: np.random.Generator) -> tuple[Any, Any, Any, Any]:
    """Rows, targets, groups, and which of the rows are to be learned from."""
    known, each = SIZES[name]
    groups = np.repeat(np.arange(known + NEW_GROUPS), each)
    own = rng.uniform(size=(known + NEW_GROUPS, 2))
    X = np.column_stack([rng.uniform(size=(len(groups), 3)), own[groups]])
    effect = rng.normal(0, EFFECT, known + NEW_GROUPS)
    y = np.sin(4 * X[:, 0]) + X[:, 1] ** 2 + own[groups, 0] + effect[groups]
    return X, y + NOISE * rng.normal(size=len(y)), groups, groups < known


def walking(rng: np.random.Generator) -> tuple[Any, Any, Any, Any]:
    """The same of a random walk, whose first column is the time."""
    n, _ = SIZES["walk"]
    time = np.arange(n) / n
    X = np.column_stack([time, rng.uniform(size=(n, 2))])
    walk = np.cumsum(rng.normal(size=n)) * WALK / np.sqrt(n)
    y = np.sin(4 * X[:, 1]) + X[:, 2] ** 2 + walk + NOISE * rng.normal(size=n)
    return X, y, time, time < 0.8


def scored(model: ManyGPRegressor, X: Any, y: Any) -> list[float]:
    """NLL as promised and as it is, RMSE, and the share of 90% intervals that hold y."""
    mean, std = model.predict(X, return_std=True)
    lower, upper = model.predict_interval(X)
    held = float(np.mean((lower <= y) & (y <= upper)))
    rmse = metrics.rmse(y, mean)
    return [model.loo_score()["nll"], metrics.nll(y, mean, std), rmse, held]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=list(SIZES))
    parser.add_argument("--draws", type=int, default=10)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("simulation | rows left out by | promised NLL | NLL | RMSE | held | worst | CPU s")
    for name in given.names:
        for by in ("row", "time" if name == "walk" else "group"):
            rows, begin = [], process_time()
            for seed in range(given.draws):
                rng = np.random.default_rng(seed)
                X, y, unit, known = walking(rng) if name == "walk" else grouped(name, rng)
                keyword = {"group": "groups", "time": "time"}.get(by)
                more = {} if keyword is None else {keyword: unit[known]}
                model = ManyGPRegressor(random_state=0, n_jobs=1).fit(X[known], y[known], **more)
                rows.append(scored(model, X[~known], y[~known]))
            seconds = (process_time() - begin) / given.draws
            promised, nll, rmse, held = np.mean(rows, axis=0)
            worst = min(row[3] for row in rows)
            numbers = f"{promised:.2f} | {nll:.2f} | {rmse:.2f} | {held:.0%} | {worst:.0%}"
            print(f"{name} | {by} | {numbers} | {seconds:.1f}", flush=True)


if __name__ == "__main__":
    main()
