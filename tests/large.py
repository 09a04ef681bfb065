"""Parquet files that count as large, and models that are quickly fitted to them."""

import numpy as np
import pyarrow
import pyarrow.parquet

from manygp import ManyGPRegressor
from manygp.outofcore import training
from patching import with_numbers

COLUMNS = ("a", "b", "c")


def make_rows(n=3000, seed=0):
    """Inputs (n, 3) and targets (n,)."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, len(COLUMNS)))
    return X, np.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=n)


def write(path, X, y, row_group_size=700, **more):
    """A Parquet file of rows; `more` are further columns."""
    columns = {name: X[:, j] for j, name in enumerate(COLUMNS)} | {"y": y} | more
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=row_group_size)
    return path


def lower_limits(patch):
    """Let a thousand rows be many."""
    with_numbers(patch, training, "OUT_OF_CORE", memory_rows=1000, sample_rows=800, group_rows=600)


def model(**parameters):
    """A model that is fitted in a second or two."""
    given = {
        "points_per_expert": 50,
        "hyperparameters": "hierarchical",
        "overlap": 0.0,
        "trend": "constant",
        "random_state": 0,
    }
    return ManyGPRegressor(**{**given, **parameters})


def bytes_of(folder):
    """The bytes of the model in a work_dir."""
    return (folder / training.MODEL).read_bytes()
