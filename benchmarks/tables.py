"""Tables as they come, by two commands, beside boosted trees: RMSE, CRPS, coverage and seconds.

    python -m benchmarks.tables              # both tables
    python -m benchmarks.tables diamonds     # or flights

It needs diamonds.csv.gz and flights.parquet in the folder that MANYGP_DATA names (see
benchmarks.datasets), and pandas. LightGBM is left out where it is not installed.

A fifth of the rows, drawn with a fixed seed, is the test. `manygp fit` and `manygp predict` run as
somebody would type them. The first CRPS is that of a normal distribution with the predicted mean
and std, as `manygp evaluate` prints it; the second, of manygp alone, is that of the predicted
distribution, which quantiles follow.

The trees get the same columns: text as categories, and times as numbers. Their std is the root
mean square error of a fifth of the training rows that was left out, and their intervals are
conformal on that fifth; they are then fitted to all training rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pandas
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold
from sklearn.preprocessing import TargetEncoder

import manygp
from benchmarks.datasets.files import file_without_download
from benchmarks.datasets.table_files import TABLE_FILES
from manygp import metrics

SEED = 0
LEVEL = 0.9
# Columns that are known only when the flight has arrived.
LEAKS = {"diamonds": (), "flights": ("dep_time", "arr_time", "air_time")}
# The most categories of a column of scikit-learn's trees; of others they get target means.
MOST_CATEGORIES = 255


class Score(NamedTuple):
    """What a model reaches on the test rows."""

    rmse: float
    crps: float
    coverage: float
    seconds: float
    crps_of_distribution: float | None = None

    def __str__(self) -> str:
        second = self.crps_of_distribution
        return (
            f"RMSE {self.rmse:.2f}, CRPS {self.crps:.2f}"
            f"{'' if second is None else f' ({second:.2f})'}, {LEVEL:.0%} intervals hold "
            f"{self.coverage:.1%}, {self.seconds:.0f} s to fit"
        )


def split(name: str) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Training and test rows of a table that have a target."""
    data = TABLE_FILES[name]
    path = file_without_download(data.file_name, None, data.source)
    table = pandas.read_parquet(path) if path.suffix == ".parquet" else pandas.read_csv(path)
    table = table[table[data.target].notna()]
    test = np.random.default_rng(SEED).permutation(len(table)) < len(table) // 5
    return table[~test], table[test]


def committee(name: str, train: pandas.DataFrame, test: pandas.DataFrame) -> Score:
    """Two commands of manygp; seconds are those of the whole first one."""
    target = TABLE_FILES[name].target
    with tempfile.TemporaryDirectory() as folder:
        ending = Path(TABLE_FILES[name].file_name).suffixes[0]
        for rows, stem in ((train, "train"), (test, "test")):
            path = Path(folder) / f"{stem}{ending}"
            write = rows.to_csv if ending == ".csv" else rows.to_parquet
            write(path, index=False)
        drop = ["--drop", ",".join(LEAKS[name])] if LEAKS[name] else []
        start = perf_counter()
        fitted = run(folder, "fit", f"train{ending}", "--target", target, *drop, "--json")
        seconds = perf_counter() - start
        run(folder, "predict", "train.manygp", f"test{ending}", "-o", "answers.csv")
        found = pandas.read_csv(Path(folder) / "answers.csv")
        model = manygp.load(Path(folder) / "train.manygp")
        dist = model.predict_dist(test[list(model.feature_names_in_)])
    print(f"  manygp took the trend {json.loads(fitted)['trend']!r}")
    y = test[target].to_numpy(float)
    return Score(
        metrics.rmse(y, found["mean"]),
        metrics.crps(y, found["mean"], found["std"]),
        float(np.mean((found["lower"] <= y) & (y <= found["upper"]))),
        seconds,
        metrics.crps(y, dist),
    )


def run(folder: str, *arguments: str) -> str:
    """What a command of manygp prints."""
    command = [sys.executable, "-m", "manygp", *arguments]
    done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def trees(model: Any, rows: list[pandas.DataFrame], y: np.ndarray, y_test: np.ndarray) -> Score:
    """A model of the mean, with one std for all rows; `rows` are those to train and to test."""
    X, X_test = rows
    held = np.random.default_rng(SEED + 1).permutation(len(X)) < len(X) // 5
    errors = np.abs(y[held] - clone(model).fit(X[~held], y[~held]).predict(X[held]))
    reach = np.quantile(errors, LEVEL)
    start = perf_counter()
    mean = model.fit(X, y).predict(X_test)
    seconds = perf_counter() - start
    return Score(
        metrics.rmse(y_test, mean),
        metrics.crps(y_test, mean, np.full(len(mean), np.sqrt(np.mean(errors**2)))),
        float(np.mean(np.abs(y_test - mean) <= reach)),
        seconds,
    )


def for_trees(
    name: str, train: pandas.DataFrame, test: pandas.DataFrame
) -> tuple[list[pandas.DataFrame], list[str]]:
    """Both tables with times as numbers and text as categories, and the names of the latter."""
    both = pandas.concat([train, test]).drop(columns=[TABLE_FILES[name].target, *LEAKS[name]])
    words = []
    for column in both.columns:
        if pandas.api.types.is_numeric_dtype(both[column]):
            continue
        if column.startswith("time"):
            both[column] = pandas.to_datetime(both[column]).astype("int64")
        else:
            both[column] = both[column].astype("category")
            words.append(column)
    return [both[: len(train)], both[len(train) :]], words


def with_means(rows: list[pandas.DataFrame], words: list[str], y: np.ndarray) -> None:
    """Target means, in place, of the columns that scikit-learn's trees cannot take."""
    many = [word for word in words if len(rows[0][word].cat.categories) > MOST_CATEGORIES]
    if not many:
        return
    folds = KFold(5, shuffle=True, random_state=SEED)
    encoder = TargetEncoder(target_type="continuous", cv=folds)
    texts = [one[many].astype(str) for one in rows]
    found = encoder.fit_transform(texts[0], y), encoder.transform(texts[1])
    rows[:] = [
        one.assign(**dict(zip(many, F.T, strict=True))) for one, F in zip(rows, found, strict=True)
    ]


def compare(name: str) -> None:
    """Print the scores of one table."""
    train, test = split(name)
    target = TABLE_FILES[name].target
    y, y_test = train[target].to_numpy(float), test[target].to_numpy(float)
    print(f"{name}: {len(train):,} rows, tested on {len(test):,}", flush=True)
    rows, words = for_trees(name, train, test)
    try:
        from lightgbm import LGBMRegressor

        model = LGBMRegressor(random_state=SEED, verbose=-1)
        print(f"  LightGBM: {trees(model, rows, y, y_test)}", flush=True)
    except ImportError:
        print("  LightGBM is not installed")
    with_means(rows, words, y)
    for more in ({}, {"max_iter": 300, "max_leaf_nodes": 127}):
        model = HistGradientBoostingRegressor(
            categorical_features="from_dtype", random_state=SEED, **more
        )
        said = ", ".join(f"{key}={value}" for key, value in more.items()) or "defaults"
        score = trees(model, rows, y, y_test)
        print(f"  scikit-learn's boosting ({said}): {score}", flush=True)
    print(f"  manygp: {committee(name, train, test)}", flush=True)


if __name__ == "__main__":
    for name in sys.argv[1:] or LEAKS:
        compare(name)
