"""More rows than memory holds, from Parquet: what each stage costs, peak memory and scores.

Seconds are those of a clock, and those of processors, which other work does not change as much.

    python benchmarks/large.py [rows] [folder] [trend]

The rows are written to the folder first, if they are not there (extra `parquet`). With fewer rows
than are read into memory as a rule, the stages are run all the same, to learn what they cost.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import mkdtemp
from time import perf_counter, process_time
from typing import Any, NamedTuple

from manygp import ManyGPRegressor
from manygp.experiments.speed import peak_megabytes, synthetic
from manygp.metrics import nll, rmse
from manygp.outofcore import training
from manygp.outofcore.engine import LocalEngine
from manygp.runtime import progress

# Rows that are made at a time, and test rows.
CHUNK = 1_000_000
N_QUERIES = 1_000_000
BEGIN = process_time()


class Phases(progress.Progress):
    """Says when the driver begins a phase, in seconds of its own processors."""

    def begin(self, phase: str) -> None:
        """Begin a phase."""
        print(f"{phase}: begins after {process_time() - BEGIN:.1f} s of the driver", flush=True)


class TimedEngine(LocalEngine):
    """The cores of this machine, and what their time was spent on."""

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


def fit_and_predict(path: Path, n: int, trend: str) -> None:
    """Fit the rows of a file, and predict others."""
    training.MEMORY_ROWS = min(training.MEMORY_ROWS, n // 2)
    progress.SILENT = Phases()
    begin = perf_counter()
    model = Timed(n_jobs=-1, random_state=0, trend=trend).fit(path, target="y")
    fitted = perf_counter()
    used = process_time()
    print(f"{n} rows: fit {fitted - begin:.0f} s, {used - BEGIN:.1f} s of the driver", flush=True)
    print(model.calibration_report_)
    import pyarrow

    X, y = synthetic(N_QUERIES, 1)

    table = pyarrow.table({f"x{j}": column for j, column in enumerate(X.T)})
    asked = perf_counter()
    mean, std = model.predict(table, return_std=True)
    answered = perf_counter()
    print(f"predict: {process_time() - used:.1f} s of processors")
    print(
        f"{n} rows: fit {fitted - begin:.0f} s, predict {N_QUERIES} rows "
        f"{answered - asked:.1f} s, peak {peak_megabytes() / 1000:.2f} GB with its workers, "
        f"RMSE {rmse(y, mean):.4f}, NLL {nll(y, mean, std):.4f}",
        flush=True,
    )


if __name__ == "__main__":
    if len(sys.argv) == 5:
        fit_and_predict(Path(sys.argv[2]), int(sys.argv[1]), sys.argv[3])
    else:
        n_rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
        folder = Path(sys.argv[2] if len(sys.argv) > 2 else mkdtemp())
        data = folder / f"rows-{n_rows}.parquet"
        if not data.exists():
            write_rows(data, n_rows)
        trend_name = sys.argv[3] if len(sys.argv) > 3 else "auto"
        command = [sys.executable, __file__, str(n_rows), str(data), trend_name, "fit"]
        subprocess.run(command, check=True)
