"""Is it better to ask more experts? NLL by the number asked, on test rows.

python benchmarks/routing.py [folder of the real data sets]
"""

from __future__ import annotations

import sys

import numpy as np

from manygp import ManyGPRegressor
from manygp.datasets import load, split
from manygp.metrics import nll

TASKS = {"kin40k": 30.0, "rosenbrock": np.inf, "protein": 3.0}  # and the pull that suits them
ASKED = (1, 2, 4, 8, 16, None)
TOLERANCE = 0.01
ROWS = 2_000


def main(data_dir: str | None) -> None:
    for task, pull in TASKS.items():
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
            y, answer = data.y_test[:ROWS], model.predict(data.X_test[:ROWS], return_std=True)
            found.append(f"{'all' if k is None else k}: {nll(y, *answer):.3f}")
        print(f"{task}, {len(model.experts_)} experts: {', '.join(found)}")
        print(f"  to leave {TOLERANCE:.0%} of the weight to others: {enough} experts")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
