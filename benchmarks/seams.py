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
from manygp.answers import predict

# Lines that are followed, places along each, and halvings that find a border.
LINES, PLACES, HALVINGS = 60, 200, 48


class Seams(NamedTuple):
    """Borders that were crossed, and the largest steps there."""

    n_borders: int
    mean_step: float
    std_step: float


def borders(queried, starts, ends):
    """Rows (B, d) on both sides of each border along lines between rows (L, d) and (L, d).

    `queried` is a function of rows (N, d) that returns sorted sets (N, k): the line has a border
    where the set changes. Both rows of a border are as near to each other as halving can bring
    them.
    """
    along = np.linspace(0, 1, PLACES + 1)
    places = starts[:, None] + along[:, None] * (ends - starts)[:, None]
    sets = queried(places.reshape(-1, starts.shape[1])).reshape(len(starts), PLACES + 1, -1)
    lines, steps = np.nonzero(np.any(sets[:, 1:] != sets[:, :-1], axis=2))
    low, high = along[steps], along[steps + 1]
    first, begin, direction = sets[lines, steps], starts[lines], (ends - starts)[lines]
    for _ in range(HALVINGS if len(low) else 0):
        middle = (low + high) / 2
        same = np.all(queried(begin + middle[:, None] * direction) == first, axis=1)
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return begin + low[:, None] * direction, begin + high[:, None] * direction


def expert_borders(fitted, starts, ends):
    """Rows (B, d) on both sides of each place where a FittedModel queries other experts."""
    layout, k = fitted.committee.layout, fitted.rules.nearest

    def queried(X):
        return np.sort(layout.nearest(fitted.x_scaling.apply(X), k)[0], axis=1)

    return borders(queried, starts, ends)


def seams(fitted, starts, ends):
    """The largest steps of a FittedModel along lines between rows (L, d) and (L, d)."""
    near, far = expert_borders(fitted, starts, ends)
    if not len(near):
        return Seams(0, 0.0, 0.0)
    (mean, std), (other_mean, other_std) = (predict(fitted, X) for X in (near, far))
    return Seams(
        len(near),
        float(np.max(np.abs(mean - other_mean) / std)),
        float(np.max(np.abs(other_std / std - 1))),
    )


def main(tasks):
    warnings.simplefilter("ignore")
    print(
        f"{'task':<12}{'experts':>8}{'queried':>8}{'borders':>8}{'mean step':>12}{'std step':>12}"
    )
    for task in tasks:
        data = split(load(task, 0), 0)
        model = ManyGPRegressor(random_state=0, n_jobs=-1).fit(data.X_train, data.y_train)
        rng = np.random.default_rng(0)
        rows = rng.integers(len(data.X_train), size=(2, LINES))
        found = seams(model.model_, data.X_train[rows[0]], data.X_train[rows[1]])
        sizes = f"{len(model.experts_):>8}{model.nearest_:>8}{found.n_borders:>8}"
        print(f"{task:<12}{sizes}{found.mean_step:>12.1e}{found.std_step:>12.1e}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or ["ackley"])
