"""What all studies share: cells that are computed once, kept on disk, and shown in tables."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from joblib import Parallel, delayed

from benchmarks import datasets
from benchmarks.datasets.files import DATA_FILES
from benchmarks.datasets.table_files import TABLE_FILES
from benchmarks.studies.processes import run_alone
from manygp.runtime.files import write_atomically

# Seconds after which the process of a cell is killed, where every cell has its own.
CELL_SECONDS = 600
# Characters of an error message that are kept as a note.
LONGEST_FAILURE = 200

# What is kept of a cell, a line of cells.jsonl: the fields of the cell and its scores. A cell that
# failed has a note and no scores.
Result = dict[str, Any]


class StudyCell(Protocol):
    """One piece of work of a study: a NamedTuple that has a task among its fields."""

    @property
    def task(self) -> str: ...

    def _asdict(self) -> dict[str, Any]: ...


CellType = TypeVar("CellType", bound=StudyCell)


class Configuration(NamedTuple):
    """Settings that all cells of a results folder must share."""

    version: int = 1
    n_rows: int | None = None  # rows of each synthetic task; None for the paper's number


# The configuration of a study on the paper's data.
DEFAULT_CONFIGURATION = Configuration()


class Store(Generic[CellType]):
    """A results folder: one line of `cells.jsonl` per finished cell, appended as it finishes."""

    def __init__(
        self, folder: Path, configuration: Configuration, cell_type: Callable[..., CellType]
    ) -> None:
        self._cell_type = cell_type
        self.path = folder / "cells.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "configuration.json"
        if path.exists():
            found = json.loads(path.read_text())
            if found != configuration._asdict():
                raise ValueError(
                    f"{folder} holds results of another configuration ({found}, not "
                    f"{configuration._asdict()}); name another results folder"
                )
        else:
            write_atomically(path, json.dumps(configuration._asdict()))
        self.results: dict[CellType, Result] = {}
        if self.path.exists():
            self._load()

    def _load(self) -> None:
        lines = self.path.read_text().splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):  # the run was killed as it wrote this line
            lines.pop()
            write_atomically(self.path, "".join(lines))
        fields = signature(self._cell_type).parameters
        for line in lines:
            result = json.loads(line)
            cell = self._cell_type(**{field: result[field] for field in fields})
            self.results[cell] = result

    def add(self, cell: CellType, result: Result) -> None:
        """Keep a result; it is on disk when this returns."""
        with self.path.open("a") as file:
            file.write(json.dumps(result) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.results[cell] = result

    def missing(self, cells: Iterable[CellType]) -> list[CellType]:
        """The cells without a result."""
        return [cell for cell in cells if cell not in self.results]

    def read(self, cells: Iterable[CellType]) -> list[Result]:
        """The results of the cells that are finished, in the order of `cells`."""
        return [self.results[cell] for cell in cells if cell in self.results]


# Computes cells of which the store has no result, and yields each with its result as it finishes,
# or with None if it has none: (store, cells, data_dir) -> (cell, result), ...
Compute = Callable[
    [Store[CellType], list[CellType], str | None], Iterator[tuple[CellType, Result | None]]
]


def same_cost(cell: object) -> float:
    """The cost where all cells count the same."""
    return 1.0


def require_data(task: str, data_dir: str | None) -> None:
    """Read the file of a real data set; a missing one is an error."""
    if task in DATA_FILES or task in TABLE_FILES:
        datasets.load(task, data_dir=data_dir)


@dataclass(frozen=True)
class Study(Generic[CellType]):
    """How the cells of one study are computed, and what is written about them."""

    name: str
    cell_type: Callable[..., CellType]
    compute: Compute[CellType]
    # Writes tables and figures of the results into a folder, and returns their paths.
    write: Callable[[Path, list[Result]], list[Path]]
    configuration: Configuration = DEFAULT_CONFIGURATION
    # The share of a cell in the progress bar, in any unit.
    cost: Callable[[CellType], float] = same_cost
    # Raises the error of a task whose data is missing, before any work: (task, data_dir).
    require: Callable[[str, str | None], None] = require_data

    def open_store(self, folder: Path) -> Store[CellType]:
        """The results folder, which is made if it does not exist."""
        return Store(folder, self.configuration, self.cell_type)

    def run(
        self,
        store: Store[CellType],
        cells: Iterable[CellType],
        data_dir: str | None,
        finished: Callable[[CellType], object],
    ) -> None:
        """Compute the cells that the store misses, and call `finished` after each.

        Whatever stops the run, finished cells are on disk.
        """
        missing = store.missing(cells)
        for task in sorted({cell.task for cell in missing}):
            self.require(task, data_dir)
        for cell, result in self.compute(store, missing, data_dir):
            if result is not None:
                store.add(cell, result)
            finished(cell)


@dataclass(frozen=True)
class InParallel(Generic[CellType]):
    """Computes `n_jobs` cells at a time, in workers of this process."""

    run_cell: Callable[[CellType, str | None], Result]
    n_jobs: int

    def __call__(
        self, store: Store[CellType], cells: list[CellType], data_dir: str | None
    ) -> Iterator[tuple[CellType, Result | None]]:
        parallel = Parallel(n_jobs=self.n_jobs, return_as="generator_unordered", batch_size=1)
        yield from parallel(delayed(_with_result)(self.run_cell, cell, data_dir) for cell in cells)


def _with_result(
    run_cell: Callable[[CellType, str | None], Result], cell: CellType, data_dir: str | None
) -> tuple[CellType, Result]:
    return cell, run_cell(cell, data_dir)


def failure_note(failure: str) -> str:
    """The note of a process that failed with this last line on standard error."""
    return f"failed: {failure[:LONGEST_FAILURE]}"


def never_skip(results: object, cell: object) -> None:
    """The skip rule of a study that runs all of its cells."""


@dataclass(frozen=True)
class InOwnProcesses(Generic[CellType]):
    """Computes cells one after the other, each in a process of its own with a time limit.

    The process runs `module`, which calls `print_result`. A cell that takes too long, or fails,
    has a note as its result. A cell that cannot run here has no result, and standard error says
    why: it runs once the library is installed.
    """

    module: str
    seconds: float
    # The note of a cell that takes longer.
    slow_note: str
    # The note of a cell that fails, from the last line of its error message.
    failure_note: Callable[[str], str] = failure_note
    # A note that replaces the run, or "" to leave the cell without a result, or None to run it.
    skip_note: Callable[[Mapping[CellType, Result], CellType], str | None] = never_skip

    def __call__(
        self, store: Store[CellType], cells: list[CellType], data_dir: str | None
    ) -> Iterator[tuple[CellType, Result | None]]:
        for cell in cells:
            yield cell, self._result(store.results, cell, data_dir)

    def _result(
        self, results: Mapping[CellType, Result], cell: CellType, data_dir: str | None
    ) -> Result | None:
        note = self.skip_note(results, cell)
        if note is None:
            outcome = run_alone(self.module, cell, data_dir, self.seconds)
            if outcome.timed_out:
                note = self.slow_note
            elif outcome.failure:
                note = self.failure_note(outcome.failure)
            elif outcome.obstacle:
                print(f"{_words(cell)} is left out: {outcome.obstacle}", file=sys.stderr)
            else:
                return outcome.result
        return {**cell._asdict(), "note": note} if note else None


def _words(cell: StudyCell) -> str:
    """A cell by its fields, as in "levy 0 ngboost 0"."""
    return " ".join(str(value) for value in cell._asdict().values())


def is_scored(result: Result) -> bool:
    """Whether the cell has scores; otherwise it has a note that says why not."""
    return "nll" in result


def csv_text(rows: list[Result]) -> str:
    """Rows as CSV; a field that a row lacks is empty."""
    text = io.StringIO()
    fields = list(dict.fromkeys(field for row in rows for field in row))
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_texts(folder: Path, texts: dict[str, str]) -> list[Path]:
    """Write texts by their file names into a folder, and return the paths."""
    for name, text in texts.items():
        write_atomically(folder / name, text)
    return [folder / name for name in texts]
