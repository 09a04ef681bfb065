"""The paper's table of complexity, measured: how seconds grow with rows and points per expert.

python -m benchmarks.complexity

Seconds of the processor, one thread, three steps of Adam, 8 columns; the least of three runs.
It writes benchmarks/complexity/results.csv.
"""

from __future__ import annotations

from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.studies.study import csv_text
from manygp import ManyGPRegressor
from manygp.paper import Adam

RESULTS = Path(__file__).parent / "complexity" / "results.csv"
QUERIES, COLUMNS, REPEATS = 1_000, 8, 3
# Rows and points per expert by what is varied.
CASES = {
    "gp-full, rows": [("gp-full", n, 200) for n in (1_000, 2_000, 4_000)],
    "bt-ent, rows": [("bt-ent", n, 200) for n in (4_000, 8_000, 16_000)],
    "bt-ent-c, rows": [("bt-ent-c", n, 200) for n in (4_000, 8_000, 16_000)],
    "bt-ent-c, points": [("bt-ent-c", 6_400, points) for points in (400, 800, 1_600)],
}


def measure(label: str, n: int, points: int) -> tuple[float, float]:
    """Seconds to fit, and to predict mean and std of 1,000 rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, COLUMNS))
    y = np.sin(6 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)
    queries = rng.uniform(size=(QUERIES, COLUMNS))
    found = []
    for _ in range(REPEATS):
        model = ManyGPRegressor.from_label(
            label, optimizer=Adam(3), points_per_expert=points, n_jobs=1, random_state=0
        )
        begin = process_time()
        model.fit(X, y)
        middle = process_time()
        model.predict(queries, return_std=True)
        found.append((middle - begin, process_time() - middle))
    fits, predictions = zip(*found, strict=True)
    return min(fits), min(predictions)


def main() -> None:
    """Measure all cases and write them."""
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for case, settings in CASES.items():
            for label, n, points in settings:
                fit, predict = (f"{seconds:.4f}" for seconds in measure(label, n, points))
                rows.append(
                    {"case": case, "n": n, "points": points, "fit": fit, "predict": predict}
                )
                print(case, n, points, fit, predict, flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(csv_text(rows))


if __name__ == "__main__":
    main()
