"""How much the model of the local noise gains on few rows, beside boosted trees and forests.

    python -m benchmarks.noise 120 250 500

Models with constant noise are fitted to simulated rows of twelve kinds. Their errors of left-out
rows teach a factor of the variance: that of `manygp.noise`, and those of trees with a gamma loss
and of a forest's means, both in ten folds that choose an exponent. All are compared by the NLL of
2,000 new rows.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor

from manygp import ManyGPRegressor
from manygp.arrays import Array
from manygp.calibration import gains, normal_nll
from manygp.noise import learn_noise

DRAWS, NEW_ROWS, FOLDS = 1, 2000, 10
COLUMNS = (2, 4, 8, 15)
STRENGTHS = (0.25, 0.5, 0.75, 1.0)
# Standard errors that trees must gain, as local noise must, and the least of their squared errors.
MIN_GAIN, LEAST = 2.0, 1e-3
# Kinds without any local noise.
EVEN = ("even", "quiet", "heavy tails", "only noise")


class Errors(NamedTuple):
    """What trees know of rows (n, p), their squared errors (n,) and variances (n,)."""

    rows: Array
    squares: Array
    variance: Array

    def nll(self, log_factor: Array | float) -> Array:
        """Of each row, with variances times a factor."""
        return normal_nll(self.squares, self.variance * np.exp(log_factor))


def simulated(kind: str, n: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows (n, d) of a smooth function of at most four columns, and noise of a kind: (n,)."""
    X, e = rng.uniform(size=(n, d)), rng.normal(size=n)
    used = X[:, :4]
    waves = rng.normal(size=(used.shape[1], 30)) * rng.choice([1.5, 3.0])
    f = np.cos(used @ waves + rng.uniform(0, 2 * np.pi, 30)) @ rng.normal(size=30) / 4
    last = X[:, -1]
    if kind == "category":
        code = rng.integers(4, size=n)
        X, f = np.hstack([X, np.eye(4)[code]]), f + rng.normal(size=4)[code] / 2
        return X, f + np.array([0.05, 0.2, 0.4, 0.8])[code] * e
    if kind == "rough half":  # the function, not the noise, differs
        f = f + np.where(X[:, 0] > 0.5, 0.8 * np.sin(25 * X[:, 0]) * np.cos(20 * X[:, 1]), 0)
    if kind == "heavy tails":
        e = rng.standard_t(3, size=n)
    if kind == "rare errors":  # in a region that is quiet otherwise
        e = np.where((last < 0.4) & (rng.uniform(size=n) < 0.02), 25 * e, e)
    std: dict[str, Any] = {
        "slope": 0.05 + 0.6 * last,
        "step": np.where(last > 0.6, 0.6, 0.15),
        "corner": np.where((X[:, 0] > 0.5) & (last > 0.5), 0.8, 0.15),
        "product": 0.05 + 0.6 * X[:, 0] * last,
        "level": 0.05 + 0.6 * (f - f.min()) / np.ptp(f),
        "rough half": 0.05,
        "rare errors": np.where(last < 0.4, 0.02, 0.3),
        "even": 0.3,
        "quiet": 0.03,
        "heavy tails": 0.2,
        "only noise": 1.0,
    }
    return X, (0.0 if kind == "only noise" else f) + std[kind] * e


KINDS = (
    "slope", "step", "corner", "product", "category", "level", "rough half", "rare errors", *EVEN,
)  # fmt: skip


def boosted_trees() -> Any:
    """Trees of eight leaves with a gamma loss."""
    return HistGradientBoostingRegressor(
        loss="gamma", max_leaf_nodes=8, max_iter=50, learning_rate=0.1, random_state=0
    )


def forest() -> Any:
    """Means of squared errors in leaves of at least twenty rows."""
    return ExtraTreesRegressor(50, min_samples_leaf=20, random_state=0)


def by_trees(make: Callable[[], Any], known: Errors, new: Errors) -> Array:
    """Logarithms (N,) of the factor of new rows, or zeros if folds want none."""
    z = np.maximum(known.squares / known.variance, LEAST)
    folds = np.random.default_rng(1).permutation(len(z)) % FOLDS
    logs = np.empty(len(z))
    for one in range(FOLDS):
        inside = folds == one
        fitted = make().fit(known.rows[~inside], z[~inside])
        logs[inside] = np.log(np.maximum(fitted.predict(known.rows[inside]), LEAST))
    best = 0.0
    for strength in STRENGTHS:
        if gains(known.nll(best * logs), known.nll(strength * logs)):
            best = strength
    if not gains(known.nll(0.0), known.nll(best * logs), MIN_GAIN):
        return np.zeros(len(new.rows))
    told = np.maximum(make().fit(known.rows, z).predict(new.rows), LEAST)
    return best * np.log(told)


def changes(X: Array, y: Array, X_new: Array, y_new: Array) -> list[float]:
    """The change of the NLL of new rows by local noise, by boosted trees, and by a forest."""
    settings: dict[str, Any] = {"target_transform": None, "random_state": 0, "n_jobs": 1}
    fitted = ManyGPRegressor(noise="constant", **settings).fit(X, y)
    model, (mean, std) = fitted.model_, fitted.predict(X_new, return_std=True)
    errors, curve, unit = model.errors, model.rules.recalibration, model.y_scaling.scale[0]
    assert errors is not None
    Z, Z_new = model.x_scaling.apply(X), model.x_scaling.apply(X_new)
    total, total_new = errors.total(curve), (std / unit) ** 2
    mean = model.y_scaling.apply(mean[:, None])[:, 0]
    known = Errors(np.column_stack([Z[errors.rows], np.log(total)]), errors.squares[0], total)
    new = Errors(
        np.column_stack([Z_new, np.log(total_new)]),
        ((y_new - fitted.predict(X_new)) / unit) ** 2,
        total_new,
    )
    noise, _ = learn_noise(errors, curve, Z)
    factors = (
        [np.zeros(len(Z_new))] if noise is None else [noise.log_factor(0, Z_new, total_new, mean)]
    )
    factors += [by_trees(make, known, new) for make in (boosted_trees, forest)]
    return [float((new.nll(one) - new.nll(0.0)).mean()) for one in factors]


def main(sizes: list[int]) -> Iterator[str]:
    """Lines of the table."""
    yield "Change of NLL: mean, worst, and how often taken"
    yield " rows  noise  sets  | local noise       | boosted trees     | forest"
    for n in sizes:
        found: dict[bool, list[list[float]]] = {False: [], True: []}
        for place, kind in enumerate(KINDS):
            for draw in range(DRAWS):
                rng = np.random.default_rng([n, place, draw])
                X, y = simulated(kind, n + NEW_ROWS, COLUMNS[(place + 2 * draw) % 4], rng)
                found[kind in EVEN].append(changes(X[:n], y[:n], X[n:], y[n:]))
        for even, rows in found.items():
            table = np.array(rows).T
            cells = [f"{one.mean():+.4f} {one.max():+.3f} {np.sum(one != 0):2d}" for one in table]
            yield f"{n:5d}  {'even ' if even else 'local'} {len(rows):5d}  | " + " | ".join(cells)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for line in main([int(one) for one in sys.argv[1:]] or [120, 250, 500]):
        print(line, flush=True)
