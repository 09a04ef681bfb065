"""Engines, which run the tasks of a stage: this process, its workers, or a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from manygp.runtime.parallel import (
    WorkerKilledError,
    n_workers,
    process_map,
    single_threaded_blas,
)

T = TypeVar("T")
R = TypeVar("R")


class Engine(Protocol):
    """Runs pure tasks; that a task is done twice changes nothing."""

    def map(self, function: Callable[[T], R], tasks: Sequence[T], stage: str) -> Iterator[R]:
        """The results of all tasks, in their order; `stage` says what they are, for messages."""


class LocalEngine:
    """The cores of this machine.

    Parameters
    ----------
    n_jobs : int or None
    """

    def __init__(self, n_jobs: int | None) -> None:
        self.n_jobs = n_jobs

    def map(self, function: Callable[[Any], Any], tasks: Sequence[Any], stage: str) -> Any:
        """The results of all tasks, in their order."""
        workers = min(n_workers(self.n_jobs), len(tasks))
        if workers <= 1:
            for task in tasks:
                with single_threaded_blas():
                    result = function(task)
                yield result
            return
        try:
            yield from process_map(function, tasks, workers)
        except WorkerKilledError as error:
            raise error.while_doing(
                f"{stage} (task {error.first + 1} of {len(tasks)}); if memory ran out, lower "
                "n_jobs; with a work_dir the same call goes on from there"
            ) from None
