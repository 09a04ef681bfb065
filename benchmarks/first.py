"""The result on the first page: prices of diamonds, by manygp and by boosted trees.

Usage: MANYGP_DATA=<folder with diamonds.csv.gz> python -m benchmarks.first

Four fifths of the rows are learned from, the others are scored. The trees (scikit-learn's
HistGradientBoostingRegressor with its defaults) are three models: of the mean, and of the
quantiles at both ends of the 90% interval. Seconds to fit are those of one core. Writes
benchmarks/first/results.csv, which `make numbers` compares with the pages.
"""

import csv
from pathlib import Path
from time import process_time

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from benchmarks.datasets.files import file_without_download
from benchmarks.datasets.table_files import TABLE_FILES
from manygp import ManyGPRegressor

FOLDER = Path(__file__).parent / "first"
LEVELS = (0.05, 0.95)
TREES = "scikit-learn: 3 `HistGradientBoostingRegressor`"


def scores(y, mean, lower, upper):
    """RMSE, coverage, mean width, and the interval score: width + 20 times what lies outside."""
    outside = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    width = upper - lower
    return {
        "rmse": np.sqrt(np.mean((y - mean) ** 2)),
        "coverage": np.mean((lower <= y) & (y <= upper)),
        "width": width.mean(),
        "interval_score": np.mean(width + 2 / (1 - (LEVELS[1] - LEVELS[0])) * outside),
    }


def main():
    data = TABLE_FILES["diamonds"]
    table = pd.read_csv(file_without_download(data.file_name, None, data.source))
    kinds = {name: kind for name, kind in data.columns.items() if kind == "category"}
    table = table.astype(kinds)
    X, y = table[list(data.columns)], table[data.target].to_numpy(float)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.2, random_state=0)

    with threadpool_limits(1):
        begin = process_time()
        trees = {"categorical_features": "from_dtype", "random_state": 0}
        middle = HistGradientBoostingRegressor(**trees).fit(X, y)
        ends = [
            HistGradientBoostingRegressor(loss="quantile", quantile=level, **trees).fit(X, y)
            for level in LEVELS
        ]
        seconds = {TREES: process_time() - begin}
        found = {TREES: [one.predict(X_test) for one in (middle, *ends)]}
        begin = process_time()
        model = ManyGPRegressor(n_jobs=1, random_state=0).fit(X, y)
        seconds["manygp"] = process_time() - begin
        interval = model.predict_interval(X_test, coverage=0.9)
        found["manygp"] = [model.predict(X_test), *interval]

    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "results.csv").open("w", newline="") as file:
        fields = ("model", "n_rows", "rmse", "coverage", "width", "interval_score", "fit_seconds")
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        writer.writeheader()
        for name in ("manygp", TREES):
            row = {**scores(y_test, *found[name]), "fit_seconds": seconds[name]}
            rounded = {key: round(float(value), 4) for key, value in row.items()}
            print(name, rounded)
            writer.writerow({"model": name, "n_rows": len(y), **rounded})


if __name__ == "__main__":
    main()
