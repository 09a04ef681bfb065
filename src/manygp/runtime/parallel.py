"""Threads and processes that compute side by side, each with BLAS on one thread."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, Self, TypeVar

import threadpoolctl
from joblib import Parallel, delayed, effective_n_jobs
from joblib._parallel_backends import LokyBackend
from joblib.parallel import get_active_backend

CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def physical_memory() -> float:
    """Bytes that a process may have at most; infinity where the system sets no limit."""
    memory = math.inf
    try:
        memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        memory = min(memory, float(CONTAINER_LIMIT.read_text()))  # "max" is no number
    except (AttributeError, ValueError, OSError):
        pass
    return memory


T = TypeVar("T")
R = TypeVar("R")

ATTEMPTS = 2


def n_workers(n_jobs: int | None) -> int:
    """The number of threads or processes that n_jobs stands for; 1 inside another's worker.

    Its cores are in use already, by the jobs of a grid search for instance. It is 1, too, while
    the interpreter ends, which starts none any more.
    """
    is_alone = get_active_backend()[0].nesting_level or _interpreter_ends()
    return 1 if is_alone else int(effective_n_jobs(n_jobs))


def _interpreter_ends() -> bool:
    return getattr(threading, "_SHUTTING_DOWN", not threading.main_thread().is_alive())


def process_map(function: Callable[[T], R], items: Sequence[T], n_jobs: int) -> Iterator[R]:
    """A `map` over processes that keeps the order, and repeats the tasks of a killed one.

    Where Python's lock keeps threads waiting for each other, processes are faster once they
    have started, which takes about a second.
    """
    done = 0
    if not _can_start_threads():  # joblib needs some, and is not whole again without
        yield from map(partial(_in_worker, function, parent=None), items)
        return
    # Workers of other kinds, such as Dask's, are not ours to end.
    parent = os.getpid() if isinstance(get_active_backend()[0], LokyBackend) else None
    for _ in range(ATTEMPTS):
        tasks = (delayed(_in_worker)(function, item, parent) for item in items[done:])
        results = _workers(n_jobs, parent)(tasks)
        try:
            for result in results:
                done += 1
                yield result
            return
        except BrokenProcessPool:
            continue
        finally:
            with warnings.catch_warnings():  # of tasks that an interrupt has left undone
                warnings.filterwarnings("ignore", message=".*tasks which were still being")
                results.close()
    raise WorkerKilledError(done)


def _can_start_threads() -> bool:
    """Whether the system and the interpreter start threads."""
    if _interpreter_ends():
        return False
    probe = threading.Thread(target=int)
    try:
        probe.start()
    except RuntimeError:
        return False
    probe.join()
    return True


class WorkerKilledError(RuntimeError):
    """Workers were killed during the task at place `first` of the list, or a later one."""

    def __init__(self, first: int, what: str = "") -> None:
        super().__init__(f"a worker process was killed {ATTEMPTS} times{what}")
        self.first = first

    def while_doing(self, what: str) -> Self:
        """The same, saying what was being done."""
        return type(self)(self.first, f" while {what}")


def _workers(n_jobs: int, parent: int | None) -> Parallel:
    """Processes that end with their parent from the moment on that they start."""
    # All tasks are handed over at once: none is taken any more when the interpreter ends.
    settings = {
        "n_jobs": n_jobs, "batch_size": 1, "return_as": "generator", "pre_dispatch": "all"
    }  # fmt: skip
    if parent is not None:
        with suppress(TypeError):  # before joblib 1.5 only those that have a task do
            return Parallel(**settings, initializer=_end_with, initargs=(parent,))
    return Parallel(**settings)


def _in_worker(function: Callable[[T], R], item: T, parent: int | None) -> R:
    if parent is not None:
        _end_with(parent)
    with single_threaded_blas():
        return function(item)


@cache
def _end_with(parent: int) -> None:
    """Let this worker end when its parent does, and not before; joblib's waits for minutes.

    A parent that was killed while the worker started is not the parent any more: it ends at once.
    """

    def end_if_alone() -> None:
        if os.getppid() != parent:
            os._exit(1)

    def watch() -> None:
        while True:
            end_if_alone()
            time.sleep(1)

    end_if_alone()
    threading.Thread(target=watch, daemon=True).start()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and says so


@contextmanager
def thread_map(
    n_jobs: int | None, *, limit: bool = True
) -> Iterator[Callable[[Callable[[T], R], Iterable[T]], Iterator[R]]]:
    """A `map` over n_jobs threads that keeps the order; `limit` keeps BLAS on one thread each."""
    n_threads = n_workers(n_jobs)
    with single_threaded_blas() if limit else nullcontext():
        if n_threads == 1:
            yield map
            return
        pool = _Threads(n_threads, initializer=limit_thread if limit else None)
        try:
            yield pool.map_or_do
        finally:  # after an interrupt, what has not begun is not begun
            pool.shutdown(cancel_futures=True)


class _Threads(ThreadPoolExecutor):
    """Threads, as many as the system starts."""

    def map_or_do(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """The results for all items, in their order; what no thread takes is done here."""
        left, futures = deque(items), deque[Future[R]]()
        with suppress(RuntimeError):  # no thread can be started, or the interpreter ends
            while left:
                futures.append(self.submit(function, left[0]))
                left.popleft()
        return chain(
            (futures.popleft().result() for _ in range(len(futures))), map(function, left)
        )

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:  # those that are there do the work
            if not self._threads:
                raise


def limit_thread() -> None:
    """BLAS on one thread in a new thread, which the limit of its creator may not reach.

    It does not where BLAS runs on OpenMP.
    """
    with _lock:
        _controller().limit(limits=1, user_api="blas")


_lock = threading.Lock()
_depth = 0
_limiter: Any = None
_own = threading.local()


def _after_fork() -> None:
    """Forget the threads that a child of `fork` does not have.

    What they have limited is given back by the next caller to leave.
    """
    global _depth
    _depth = getattr(_own, "depth", 0)
    _lock.release()


if hasattr(os, "register_at_fork"):  # nobody shall hold the lock while a child is made
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork
    )


@cache
def _controller() -> Any:
    return threadpoolctl.ThreadpoolController()


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """BLAS on one thread until the last caller in this process has left.

    The limit is the process's, not the thread's: with a plain limiter the first of two
    concurrent callers to leave would lift it for the other, and change its digits.
    """
    global _depth, _limiter
    with _lock:
        if _limiter is None:
            _take_control()
            _limiter = _controller().limit(limits=1, user_api="blas")
        _depth += 1
        _own.depth = getattr(_own, "depth", 0) + 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            _own.depth = getattr(_own, "depth", 1) - 1
            if _depth == 0:
                _take_control()
                _limiter.restore_original_limits()
                _limiter = None
                _take_control()


def _take_control() -> None:
    """From 3.8 on, threadpoolctl obeys one thread at a time; the last one out may be another."""
    release = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)
