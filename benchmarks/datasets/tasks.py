"""Regression tasks with known answers, and the split that every experiment uses."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks.datasets.files import DATA_FILES, read_data_file, read_fold
from benchmarks.datasets.table_files import TABLE_FILES, read_table_file
from manygp.arrays import Array, IndexArray
from manygp.inputs import Moments

# Standard deviation of the noise of a synthetic task.
NOISE_STD = 0.5


class Dataset(NamedTuple):
    """A named regression task in its original units: X of shape (n, d), y of shape (n,)."""

    name: str
    X: Array
    y: Array


class Split(NamedTuple):
    """Scaled training and test rows of a data set: X of shape (n, d), y of shape (n,).

    `y_scale` is what y was divided by.
    """

    X_train: Array
    y_train: Array
    X_test: Array
    y_test: Array
    y_scale: float = 1.0


class SyntheticTask(NamedTuple):
    """A test function, and the box [low, high]^n_features that its inputs are drawn from."""

    function: Callable[[Array], Array]
    n_features: int
    n_rows: int
    low: float
    high: float


def ackley(X: Array) -> Array:
    """Ackley's function: a bowl covered in ripples; minimum 0 at the origin.

    ``20 + e - 20 exp(-0.2 sqrt(mean x^2)) - exp(mean cos(2 pi x))``, means over the d features.

    Parameters
    ----------
    X : ndarray of shape (n, d)

    Returns
    -------
    ndarray of shape (n,)
    """
    bowl: Array = 20 * np.exp(-0.2 * np.sqrt(np.mean(X**2, axis=1)))
    ripples: Array = np.exp(np.mean(np.cos(2 * np.pi * X), axis=1))
    return 20 + np.e - bowl - ripples


def levy(X: Array) -> Array:
    """Levy's function: waves along each feature; minimum 0 at (1, ..., 1).

    With ``w = 1 + (x - 1) / 4``: ``sin^2(pi w_1)
    + sum_{i<d} (w_i - 1)^2 (1 + 10 sin^2(pi w_i + 1)) + (w_d - 1)^2 (1 + sin^2(2 pi w_d))``.

    Parameters
    ----------
    X : ndarray of shape (n, d)

    Returns
    -------
    ndarray of shape (n,)
    """
    w = 1 + (X - 1) / 4
    inner, last = w[:, :-1], w[:, -1]
    waves: Array = np.sum((inner - 1) ** 2 * (1 + 10 * np.sin(np.pi * inner + 1) ** 2), axis=1)
    ends: Array = np.sin(np.pi * w[:, 0]) ** 2
    ends += (last - 1) ** 2 * (1 + np.sin(2 * np.pi * last) ** 2)
    return waves + ends


def rastrigin(X: Array) -> Array:
    """Rastrigin's function: a parabola with a regular grid of minima; 0 at the origin.

    ``10 d + sum (x^2 - 10 cos(2 pi x))``, the sum over the d features.

    Parameters
    ----------
    X : ndarray of shape (n, d)

    Returns
    -------
    ndarray of shape (n,)
    """
    value: Array = np.sum(10 + X**2 - 10 * np.cos(2 * np.pi * X), axis=1)
    return value


def rosenbrock(X: Array) -> Array:
    """Rosenbrock's function: a narrow curved valley; minimum 0 at (1, ..., 1).

    ``sum_{i<d} 100 (x_{i+1} - x_i^2)^2 + (1 - x_i)^2``.

    Parameters
    ----------
    X : ndarray of shape (n, d)

    Returns
    -------
    ndarray of shape (n,)
    """
    here, following = X[:, :-1], X[:, 1:]
    value: Array = np.sum(100 * (following - here**2) ** 2 + (1 - here) ** 2, axis=1)
    return value


SYNTHETIC_TASKS: dict[str, SyntheticTask] = {
    "ackley": SyntheticTask(ackley, n_features=10, n_rows=5_000, low=-10, high=10),
    "ackley1d": SyntheticTask(ackley, n_features=1, n_rows=500, low=-10, high=10),
    "levy": SyntheticTask(levy, n_features=10, n_rows=5_000, low=-10, high=10),
    "rastrigin": SyntheticTask(rastrigin, n_features=10, n_rows=5_000, low=-5.12, high=5.12),
    "rosenbrock": SyntheticTask(rosenbrock, n_features=50, n_rows=50_000, low=-5, high=10),
}


TASKS = (*SYNTHETIC_TASKS, *DATA_FILES, *TABLE_FILES)


def load(
    name: str,
    random_state: int | np.random.Generator = 0,
    n_rows: int | None = None,
    data_dir: str | os.PathLike[str] | None = None,
) -> Dataset:
    """The data set of that name.

    Parameters
    ----------
    name : str
        One of `TASKS`.
    random_state : int or Generator
        For a synthetic task: draws the inputs, uniform on the task's box, and the noise, with
        variance 0.25.
    n_rows : int, optional
        For a synthetic task: the number of rows to draw; by default that of the task.
    data_dir : path, optional
        For a real data set: the folder of its file. By default the folder that the environment
        variable MANYGP_DATA names, else a cache into which the file is downloaded once.
        "diamonds" and "flights", which have categories, are not downloaded.

    Returns
    -------
    Dataset
    """
    if name in DATA_FILES:
        table = read_data_file(name, data_dir)
        return Dataset(name, table[:, :-1], table[:, -1])
    if name in TABLE_FILES:
        return Dataset(name, *read_table_file(name, data_dir))
    if name not in SYNTHETIC_TASKS:
        raise ValueError(f"unknown data set {name!r}; known are {', '.join(TASKS)}")
    task = SYNTHETIC_TASKS[name]
    rng = np.random.default_rng(random_state)
    n = task.n_rows if n_rows is None else n_rows
    X = rng.uniform(task.low, task.high, (n, task.n_features))
    return Dataset(name, X, task.function(X) + rng.normal(0, NOISE_STD, n))


def split(dataset: Dataset, seed: int, train_share: float = 0.5) -> Split:
    """Random rows for training and testing, scaled with what the training rows know.

    Inputs go to [0, 1]^d by the training rows' minimum and maximum (test rows may fall
    outside), targets are standardised by their mean and standard deviation. A feature or target
    that is constant in the training rows is only shifted.

    Parameters
    ----------
    dataset : Dataset
        It has at least 2 rows. If halves are not equal, the test half gets one row more.
    seed : int
        Chooses the rows.
    train_share : float
        The share of training rows; by default a half.

    Returns
    -------
    Split
    """
    n = len(dataset.y)
    if n < 2:
        raise ValueError(f"a split needs at least 2 rows; {dataset.name!r} has {n}")
    order = np.random.default_rng(seed).permutation(n)
    n_train = int(train_share * n)
    return _scaled(dataset, order[:n_train], order[n_train:])


def official_fold(name: str, fold: int, data_dir: str | os.PathLike[str] | None = None) -> Split:
    """An official 90/10 fold of kin40k, protein or pol, scaled as by `split`.

    Parameters
    ----------
    name : str
    fold : int
        From 0 to 9.
    data_dir : path, optional
        The folder of the data set and of `<name>.folds.csv.gz`; by default the folder that the
        environment variable MANYGP_DATA names. Folds are not downloaded.

    Returns
    -------
    Split
    """
    is_test = read_fold(name, fold, data_dir)
    return _scaled(
        load(name, data_dir=data_dir), np.flatnonzero(~is_test), np.flatnonzero(is_test)
    )


def _scaled(dataset: Dataset, train: IndexArray, test: IndexArray) -> Split:
    """Rows for training and testing, scaled with what the training rows know."""
    known = Moments.of(dataset.X[train], dataset.y[train, None])
    x_scaling, scaling = known.scalings(scale_X=True, scale_y=True)
    X = x_scaling.apply(dataset.X)
    y = scaling.apply(dataset.y[:, None])[:, 0]
    return Split(X[train], y[train], X[test], y[test], float(scaling.scale[0]))
