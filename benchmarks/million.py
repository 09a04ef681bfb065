"""A million rows from disk: seconds and peak memory of the whole process, data included.

    python -m benchmarks.million [rows]

The rows come once from a NumPy memmap and once from a Parquet file that is read in pieces (extra
`parquet`). The ball tree and k-means are timed as well.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from benchmarks.studies.speed import peak_megabytes, synthetic
from manygp import ManyGPRegressor
from manygp.committee.committee import balltree, kmeans
from manygp.metrics import nll, rmse
from manygp.tables.parquet_files import read_parquet

# Test rows.
N_QUERIES = 100_000


def write_rows(folder: Path, n: int) -> None:
    """Write n rows as NumPy files and as a Parquet file."""
    import pyarrow
    import pyarrow.parquet

    X, y = synthetic(n, 0)
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    columns = {f"x{j}": column for j, column in enumerate(X.T)}
    pyarrow.parquet.write_table(pyarrow.table({**columns, "y": y}), folder / "rows.parquet")


def fit_and_predict(folder: Path, source: str) -> None:
    """Print seconds, memory and scores with rows from "memmap" or "parquet"."""
    if source == "memmap":
        X, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("X", "y"))
    else:
        X, y, _ = read_parquet(folder / "rows.parquet", "y")
    begin = perf_counter()
    model = ManyGPRegressor(n_jobs=-1, random_state=0).fit(X, y)
    fitted = perf_counter()
    X_test, y_test = synthetic(N_QUERIES, 1)
    asked = perf_counter()
    mean, std = model.predict(X_test, return_std=True)
    answered = perf_counter()
    print(
        f"{len(X)} rows from {source}: fit {fitted - begin:.0f} s, predict {N_QUERIES} rows "
        f"{answered - asked:.1f} s, peak {peak_megabytes() / 1000:.2f} GB with its workers, "
        f"RMSE {rmse(y_test, mean):.3f}, NLL {nll(y_test, mean, std):.3f}",
        flush=True,
    )


def partitions(n: int) -> None:
    """Print the seconds of both partitions that look at the rows."""
    X, _ = synthetic(n, 0)
    for method in (balltree, kmeans):
        begin = perf_counter()
        method(X, n // 200, np.random.default_rng(0))
        print(f"{method.__name__} of {n} rows: {perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        fit_and_predict(Path(sys.argv[1]), sys.argv[2])
    else:
        n_rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
        partitions(n_rows)
        with TemporaryDirectory() as folder:
            write_rows(Path(folder), n_rows)
            for kind in ("memmap", "parquet"):
                subprocess.run(
                    [sys.executable, "-m", "benchmarks.million", folder, kind], check=True
                )
