"""More rows than memory holds, from Parquet: what each stage costs, peak memory and scores.

Seconds are those of a clock, and those of processors, which other work does not change as much.

    python -m benchmarks.large ROWS FOLDER [--trend TREND] [--hyperparameters HOW] [--until STAGE]
        [--queries N]

The rows are written to the folder first, if they are not there (extra `parquet`). With fewer rows
than are read into memory as a rule, the stages are run all the same, to learn what they cost.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, NamedTuple

from benchmarks.studies.speed import peak_megabytes, synthetic
from manygp import ManyGPRegressor
from manygp.metrics import nll, rmse
from manygp.outofcore import training
from manygp.outofcore.engine import LocalEngine
from manygp.runtime import progress

# Rows that are made at a time.
CHUNK = 1_000_000
BEGIN = process_time()


class Phases(progress.Progress):
    """Says when the driver begins a phase, in seconds of its own processors."""

    def begin(self, phase: str) -> None:
        """Begin a phase."""
        print(f"{phase}: begins after {process_time() - BEGIN:.1f} s of the driver", flush=True)


class EnoughError(Exception):
    """The last stage that was asked for is done."""


class TimedEngine(LocalEngine):
    """The cores of this machine, and what their time was spent on."""

    until: str | None = None

    def map(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], stage: str
    ) -> Iterator[Any]:
        """The results of all tasks."""
        begin, used = perf_counter(), 0.0
        for seconds, result in super().map(Measured(function), tasks, stage):
            used += seconds
            yield result
        print(
            f"  {function.__name__}: {len(tasks)} tasks, {perf_counter() - begin:.1f} s, of "
            f"processors {used:.1f} s",
            flush=True,
        )
        if function.__name__ == self.until:
            raise EnoughError


class Measured(NamedTuple):
    """A function that says how many seconds of a processor it took."""

    function: Callable[[Any], Any]

    def __call__(self, task: Any) -> tuple[float, Any]:
        """Seconds, and the result."""
        begin = process_time()
        result = self.function(task)
        return process_time() - begin, result


class Timed(ManyGPRegressor):
    """The default model on a timed engine."""

    def _engine(self) -> Any:
        return TimedEngine(self.n_jobs)


def write_rows(path: Path, n: int) -> None:
    """Write n rows in row groups of a million at most."""
    import pyarrow
    import pyarrow.parquet

    writer = None
    for i, start in enumerate(range(0, n, CHUNK)):
        X, y = synthetic(min(CHUNK, n - start), 1000 + i)
        columns = {f"x{j}": column for j, column in enumerate(X.T)}
        table = pyarrow.table({**columns, "y": y})
        writer = writer or pyarrow.parquet.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=250_000)
    if writer is not None:
        writer.close()


def fit_and_predict(given: argparse.Namespace) -> None:
    """Fit the rows of a file, up to some stage or all, and predict others."""
    path, n, n_queries = given.file, given.rows, given.queries
    sizes = training.OUT_OF_CORE
    training.OUT_OF_CORE = replace(sizes, memory_rows=min(sizes.memory_rows, n // 2))
    progress.SILENT, TimedEngine.until = Phases(), given.until
    begin = perf_counter()
    chosen = {"trend": given.trend, "hyperparameters": given.hyperparameters}
    model = Timed(n_jobs=-1, random_state=0, **chosen)
    try:
        with TemporaryDirectory(dir=path.parent) as work:
            model.fit(path, target="y", work_dir=work)
    except EnoughError:
        print(f"{perf_counter() - begin:.0f} s, peak {peak_megabytes() / 1000:.2f} GB")
        return
    fitted = perf_counter()
    used = process_time()
    print(f"{n} rows: fit {fitted - begin:.0f} s, {used - BEGIN:.1f} s of the driver", flush=True)
    print(model.calibration_report_)
    import pyarrow

    X, y = synthetic(n_queries, 1)
    table = pyarrow.table({f"x{j}": column for j, column in enumerate(X.T)})
    asked, used = perf_counter(), process_time()
    mean, std = model.predict(table, return_std=True)
    answered = perf_counter()
    print(f"predict: {process_time() - used:.1f} s of processors")
    print(
        f"{n} rows: fit {fitted - begin:.0f} s, predict {n_queries} rows "
        f"{answered - asked:.1f} s, peak {peak_megabytes() / 1000:.2f} GB with its workers, "
        f"RMSE {rmse(y, mean):.4f}, NLL {nll(y, mean, std):.4f}",
        flush=True,
    )


def main() -> None:
    """Write the rows, and measure in another process, so that memory is that of the fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trend", default="auto")
    parser.add_argument("--hyperparameters", default="auto")
    parser.add_argument("--until", help="the last stage: scan, sort or arrange")
    parser.add_argument("--queries", type=int, default=1_000_000)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.file is not None:
        fit_and_predict(given)
        return
    data = given.folder / f"rows-{given.rows}.parquet"
    if not data.exists():
        write_rows(data, given.rows)
    again = [sys.executable, "-m", "benchmarks.large", *sys.argv[1:], "--file", str(data)]
    subprocess.run(again, check=True)


if __name__ == "__main__":
    main()
