"""The rows that the studies `quality` and `trust` compare models on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks import datasets
from benchmarks.datasets import Dataset, Split
from benchmarks.datasets.files import read_fold
from benchmarks.studies.names import FEW_ROWS, MIXED_ROWS
from benchmarks.studies.study import require_data
from manygp.arrays import Array

# Share of the training rows, where it is not a half.
TRAIN_SHARES = {"flights": 0.8, "diamonds": 0.8}
# The end of the name of a task that is split into official folds.
FOLDED = "-folds"
# The beginning of the name of a task with few training rows,
FEW = "rows-"
# the standard deviation of its noise, its test rows for each simulation, at least, and in all.
FEW_NOISE = 0.05
FEWEST_TEST_ROWS = 200
FEW_TEST_ROWS = 10_000
# Waves of the random function of such a task.
N_WAVES = 40
# The beginning of the name of a task with few training rows of all kinds, its test rows, and what
# the rows may have: columns, how many of them count, noise, and how fast waves vary.
MIXED = "mixed-"
MIXED_TEST_ROWS = 1000
COLUMNS, MOST_RELEVANT, NOISES, SPEEDS = (2, 3, 5, 8, 13, 20, 40), 6, (0.02, 0.1, 0.3, 0.7), (1, 3)
# The chance that a column has few values, how many, the chance that rows repeat the inputs of
# others, and different rows there are then for each training row: it has an equal one for half.
COARSE, LEVELS, REPEATED, DIFFERENT = 0.3, (2, 9), 0.2, 0.63
# Rows of the simulated tasks, half of which are for training.
N_SIMULATED = 12_000


def split_of(task: str, seed: int, data_dir: str | None) -> Split:
    """A random split of a task of `benchmarks.datasets`."""
    data = datasets.load(task, seed, data_dir=data_dir)
    return datasets.split(data, seed, TRAIN_SHARES.get(task, 0.5))


def cases_of(task: str, part: int, data_dir: str | None) -> list[Split]:
    """The training and test rows of a task of the study `trust`; several if few are simulated."""
    if task.startswith(FEW):
        n = int(task.removeprefix(FEW))
        return [few_rows(n, 1000 * part + draw) for draw in range(FEW_ROWS[n])]
    if task.startswith(MIXED):
        n = int(task.removeprefix(MIXED))
        return [mixed_rows(n, 1000 * part + draw) for draw in range(MIXED_ROWS[n])]
    if task.endswith(FOLDED):
        return [datasets.official_fold(task.removesuffix(FOLDED), part, data_dir)]
    if task in SIMULATED:
        return [datasets.split(SIMULATED[task](np.random.default_rng(part)), part)]
    return [split_of(task, part, data_dir)]


def require_cases(task: str, data_dir: str | None) -> None:
    """Raise the error of a task of the study `trust` or `folds` whose files are missing."""
    name = task.removesuffix(FOLDED)
    require_data(name, data_dir)
    if name != task:
        read_fold(name, 0, data_dir)


def few_rows(n: int, seed: int) -> Split:
    """A random smooth function of two columns, of variance about 1, with a little noise.

    Nothing is scaled: few rows tell no scale.
    """
    rng = np.random.default_rng(seed)
    waves = rng.choice([2.0, 4.0, 8.0]) * rng.normal(size=(N_WAVES, 2))
    shifts = rng.uniform(0, 2 * np.pi, N_WAVES)
    heights = rng.normal(size=N_WAVES) / np.sqrt(N_WAVES / 2)
    n_test = max(FEWEST_TEST_ROWS, FEW_TEST_ROWS // FEW_ROWS[n])
    X = rng.uniform(size=(n + n_test, 2))
    y = np.cos(X @ waves.T + shifts) @ heights + FEW_NOISE * rng.normal(size=len(X))
    return Split(X[:n], y[:n], X[n:], y[n:])


def mixed_rows(n: int, seed: int) -> Split:
    """A function of some of 2 to 40 columns, drawn with its columns, in units of its std.

    It is a sum of some of these: waves, functions of one column, steps, and effects of columns of
    few values. By chance rows repeat the inputs of others. There is next to no noise, or much.
    """
    rng = np.random.default_rng([n, seed])
    m, d = n + MIXED_TEST_ROWS, int(rng.choice(COLUMNS))
    X = rng.uniform(size=(m, d))
    is_coarse, levels = rng.uniform(size=d) < COARSE, rng.integers(*LEVELS, size=d)
    X = np.where(is_coarse, np.floor(X * levels) / levels, X)
    if rng.uniform() < REPEATED:
        X = X[rng.integers(int(DIFFERENT * n), size=m)]
    Z = X[:, rng.permutation(d)[: rng.integers(1, MOST_RELEVANT + 1)]]
    k, (joint, alone) = Z.shape[1], rng.uniform(*SPEEDS, size=2)
    shifts, effects = rng.uniform(0, 2 * np.pi, N_WAVES), rng.normal(size=LEVELS[1])
    parts = [
        np.cos(Z @ (joint * rng.normal(size=(k, N_WAVES))) + shifts) @ rng.normal(size=N_WAVES),
        np.cos(2 * alone * Z * rng.normal(size=k)) @ rng.normal(size=k),
        (rng.uniform(size=k) < Z) @ rng.normal(size=k),
        effects[(X[:, is_coarse][:, :2] * LEVELS[1]).astype(int)].sum(axis=1),
    ]
    f = 0.3 * Z[:, 0]
    for part in parts:
        f += rng.integers(2) * part / max(part.std(), 1e-9)
    y = (f - f.mean()) / f.std() + rng.choice(NOISES) * rng.normal(size=m)
    return Split(X[:n], y[:n], X[n:], y[n:])


def heteroscedastic(rng: np.random.Generator) -> Dataset:
    """Normal noise whose std grows from 0.05 to 0.55 along the last of four columns."""
    X = rng.uniform(size=(N_SIMULATED, 4))
    noise = (0.05 + 0.5 * X[:, 3]) * rng.normal(size=len(X))
    return Dataset("heteroscedastic", X, _wave(X) + noise)


def student_noise(rng: np.random.Generator) -> Dataset:
    """Student-t noise of three degrees of freedom and scale 0.2."""
    X = rng.uniform(size=(N_SIMULATED, 4))
    return Dataset("student-noise", X, _wave(X) + 0.2 * rng.standard_t(3, len(X)))


def repeated_rows(rng: np.random.Generator) -> Dataset:
    """Two thirds of the rows repeat the inputs of others, each with its own noise of std 0.1."""
    distinct = rng.uniform(size=(N_SIMULATED // 3, 4))
    copies = rng.integers(len(distinct), size=N_SIMULATED - len(distinct))
    X = distinct[np.r_[np.arange(len(distinct)), copies]]
    return Dataset("repeated-rows", X, _wave(X) + 0.1 * rng.normal(size=len(X)))


def deterministic(rng: np.random.Generator) -> Dataset:
    """No noise at all."""
    X = rng.uniform(size=(N_SIMULATED, 4))
    return Dataset("deterministic", X, _wave(X))


def _wave(X: Array) -> Array:
    """A smooth function of the first three columns, (n,)."""
    wave: Array = np.sin(6 * X[:, 0]) + X[:, 1] * np.cos(4 * X[:, 2])
    return wave


# The simulated tasks of the study `trust`.
SIMULATED: dict[str, Callable[[np.random.Generator], Dataset]] = {
    "heteroscedastic": heteroscedastic,
    "student-noise": student_noise,
    "repeated-rows": repeated_rows,
    "deterministic": deterministic,
}
