"""Threads that compute side by side, each with BLAS on one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, TypeVar

import threadpoolctl
from joblib import effective_n_jobs

T = TypeVar("T")
R = TypeVar("R")


@contextmanager
def thread_map(
    n_jobs: int | None, limit: bool = True
) -> Iterator[Callable[[Callable[[T], R], Iterable[T]], Iterator[R]]]:
    """A `map` over n_jobs threads that keeps the order; `limit` keeps BLAS on one thread each."""
    n_threads = effective_n_jobs(n_jobs)
    with single_threaded_blas() if limit else nullcontext():
        if n_threads == 1:
            yield map
            return
        pool = ThreadPoolExecutor(n_threads, initializer=limit_thread if limit else None)
        try:
            yield pool.map
        finally:  # after an interrupt, what has not begun is not begun
            pool.shutdown(cancel_futures=True)


def limit_thread() -> None:
    """BLAS on one thread in a new thread, which the limit of its creator may not reach.

    It does not where BLAS runs on OpenMP.
    """
    _controller().limit(limits=1, user_api="blas")


_lock = threading.Lock()
_depth = 0
_limiter: Any = None


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
        if _depth == 0:
            _take_control()
            _limiter = _controller().limit(limits=1, user_api="blas")
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _take_control()
                _limiter.restore_original_limits()
                _take_control()


def _take_control() -> None:
    """From 3.8 on, threadpoolctl obeys one thread at a time; the last one out may be another."""
    release = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)
