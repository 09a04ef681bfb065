"""NLL on test rows by the number of experts that are asked.

python -m benchmarks.routing [folder of the real data sets]
"""

from __future__ import annotations

import sys

import numpy as np

from benchmarks.datasets import load, split
from manygp import ManyGPRegressor
from manygp.metrics import nll

# Tasks, and the pull of the experts' hyperparameters that suits them.
PULLS = {"kin40k": 30.0, "rosenbrock": np.inf, "protein": 3.0}
# Numbers of experts to ask; None asks all of them.
ASKED = (1, 2, 4, 8, 16, None)
# Share of the weight that may be left to experts that are not asked.
TOLERANCE = 0.01
# Test rows that are scored.
SCORED_ROWS = 2_000


def main(data_dir: str | None) -> None:
    """Print the NLL of each task by the number of experts."""
    for task, pull in PULLS.items():
        data = split(load(task, 0, data_dir=data_dir), 0)
        model = ManyGPRegressor(
            overlap=2,
            temperature=4,
            calibration="none",
            hyperparameters=lambda kernel, pull=pull: pull,
            routing=TOLERANCE,
            n_jobs=-1,
            random_state=0,
        ).fit(data.X_train, data.y_train)
        enough = model.nearest_
        found = []
        for k in ASKED:
            model.set_params(routing=k)
            mean, std = model.predict(data.X_test[:SCORED_ROWS], return_std=True)
            score = nll(data.y_test[:SCORED_ROWS], mean, std)
            found.append(f"{'all' if k is None else k}: {score:.3f}")
        print(f"{task}, {len(model.experts_)} experts: {', '.join(found)}")
        print(f"  to leave {TOLERANCE:.0%} of the weight to others: {enough} experts")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
