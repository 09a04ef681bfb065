"""How far the answer jumps where the set of queried experts changes.

    python -m benchmarks.seams power kin40k protein      # those with a name need MANYGP_DATA

Lines between random training rows are followed, each place where the experts change is bisected
down to rounding, and mean and std on both sides are compared: steps of the mean in units of the
std, and relative steps of the std.
"""

import sys
import warnings
from typing import NamedTuple

import numpy as np

from benchmarks.datasets import load, split
from manygp import ManyGPRegressor

# Lines that are followed, places along each, and halvings that find a border.
LINES, PLACES, HALVINGS = 60, 200, 48


class Seams(NamedTuple):
    """Borders that were crossed, and the largest steps there."""

    n_borders: int
    mean_step: float
    std_step: float


def seams(model, starts, ends):
    """The largest steps along lines between rows (L, d) and (L, d)."""
    fitted = model.model_

    def queried(X):
        layout, k = fitted.committee.layout, fitted.rules.nearest
        return np.sort(layout.nearest(fitted.x_scaling.apply(X), k)[0], axis=1)

    along = np.linspace(0, 1, PLACES + 1)
    low, high, begin, step = [], [], [], []
    for start, end in zip(starts, ends, strict=True):
        sets = queried(start + along[:, None] * (end - start))
        borders = np.flatnonzero(np.any(sets[1:] != sets[:-1], axis=1))
        low += along[borders].tolist()
        high += along[borders + 1].tolist()
        begin += [start] * len(borders)
        step += [end - start] * len(borders)
    if not low:
        return Seams(0, 0.0, 0.0)
    low, high, begin, step = map(np.array, (low, high, begin, step))
    first = queried(begin + low[:, None] * step)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        same = np.all(queried(begin + middle[:, None] * step) == first, axis=1)
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    sides = [model.predict(begin + one[:, None] * step, return_std=True) for one in (low, high)]
    (mean, std), (other_mean, other_std) = sides
    return Seams(
        len(low),
        float(np.max(np.abs(mean - other_mean) / std)),
        float(np.max(np.abs(other_std / std - 1))),
    )


def main(tasks):
    warnings.simplefilter("ignore")
    print(f"{'task':<12}{'experts':>8}{'queried':>8}{'borders':>8}{'mean step':>12}{'std step':>12}")
    for task in tasks:
        data = split(load(task, 0), 0)
        model = ManyGPRegressor(random_state=0, n_jobs=-1).fit(data.X_train, data.y_train)
        rng = np.random.default_rng(0)
        rows = rng.integers(len(data.X_train), size=(2, LINES))
        found = seams(model, data.X_train[rows[0]], data.X_train[rows[1]])
        sizes = f"{len(model.experts_):>8}{model.nearest_:>8}{found.n_borders:>8}"
        print(f"{task:<12}{sizes}{found.mean_step:>12.1e}{found.std_step:>12.1e}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or ["ackley"])
