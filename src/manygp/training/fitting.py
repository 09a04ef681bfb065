"""The experts' hyperparameters: one kernel for all, and each expert's own around it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from itertools import chain
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.gp.expert import TOLERANCE, fit_kernel, maximise
from manygp.gp.likelihood import TrainingData
from manygp.kernels.base import Sum, metric
from manygp.rules.partition import balltree
from manygp.rules.records import Pull
from manygp.runtime.parallel import WorkerKilledError, n_workers, process_map, thread_map
from manygp.runtime.progress import silent
from manygp.training.checkpoint import Checkpoint, key_of

# The shared kernel is fitted on this many blocks of random rows, whatever n is.
SHARED_BLOCKS, SHARED_ROWS = 4, 1000
# From here on a single expert is faster with all of BLAS's threads than with one.
MANY_ROWS = 1000
# The shared kernel, and fits that are pulled towards it, may stop earlier than others: no score
# changes by more than 0.002. Nothing averages out the optimum of a single expert.
TOLERANCE_SHARED, TOLERANCE_ALONE = 1e-6, 2e-9

# Precision of the Gaussian that pulls each expert's log-hyperparameters to the shared ones.
PULLS: dict[str, float] = {"independent": 0.0, "hierarchical": 30.0, "shared": np.inf}

# Experts are fitted in threads until it is known how long they take, and in processes, so many at
# a time, if the rest takes more seconds than it takes to start them.
FIRST_EXPERTS, BATCH_EXPERTS, WORTH_PROCESSES = 8, 8, 4.0

Progress: TypeAlias = Callable[[Iterable[Any], int], Iterable[Any]]
Task: TypeAlias = tuple[IndexArray, Array]
Fits: TypeAlias = Generator[tuple[Sum, int], None, None]


class Run(NamedTuple):
    """How a fit is done, which has no say in what comes out.

    Attributes
    ----------
    n_jobs : int or None
    progress : callable
        Wraps the iterator of fits and their number.
    checkpoint : Checkpoint, optional
        Where finished fits are kept, and taken from.
    """

    n_jobs: int | None = None
    progress: Progress = silent
    checkpoint: Checkpoint | None = None


def fit_shared(
    data: TrainingData,
    kernel: Sum,
    n_restarts: int,
    rng: np.random.Generator,
    run: Run,
    n_rows: int = SHARED_ROWS,
    limit: bool = True,
    local: bool = False,
) -> Sum:
    """One kernel for all rows, of highest likelihood summed over a few blocks of them.

    Parameters
    ----------
    data : TrainingData
    kernel : Sum
        Signal plus White: the start.
    n_restarts : int
        Further random starts.
    rng : Generator
    run : Run
    n_rows : int
        Rows of each block.
    limit : bool
        Whether BLAS runs on one thread in each of the blocks.
    local : bool
        Whether blocks are of rows that are near each other in the metric of `kernel`, and show
        what varies over short distances, or of rows at random.
    """
    n = len(data.X)
    n_blocks = min(SHARED_BLOCKS, max(1, n // n_rows))
    if local:
        parts = balltree(data.X * metric(kernel, data.X.shape[1]), n // n_rows, rng)
        blocks = [parts[i] for i in rng.permutation(len(parts))[:n_blocks]]
    else:
        blocks = np.array_split(rng.permutation(n)[: n_blocks * n_rows], n_blocks)
    starts = starts_of(kernel, n_restarts, rng)
    free = np.zeros(kernel.n_free)

    def fit(missing: list[Array]) -> Fits:
        likelihoods = [data.likelihood(block) for block in blocks]
        with thread_map(run.n_jobs, limit) as parallel_map:
            for starts in missing:
                yield maximise(likelihoods, kernel, free, starts, TOLERANCE_SHARED, parallel_map)

    key = key_of("shared", kernel, TOLERANCE_SHARED, limit, starts, *blocks)
    ((fitted, _),) = _resumed(fit, [starts], [key], kernel, run.checkpoint)
    return fitted


def fit_kernels(
    data: TrainingData,
    parts: list[IndexArray],
    kernel: Sum,
    pull: float | Pull,
    starts: list[Array],
    alone: bool,
    run: Run,
) -> list[tuple[Sum, int]]:
    """The kernel of each part, and the evaluations that it took.

    Parameters
    ----------
    data : TrainingData
    parts : list of index arrays
    kernel : Sum
        The shared kernel: start, and centre of the pull.
    pull : float or callable
        Precision of the pull: 0 fits every expert for itself, infinity takes the shared
        hyperparameters. A callable maps the shared kernel to one precision per element of its
        theta.
    starts : list of ndarray of shape (r, p)
        Where each part starts from. A fit that is pulled on starts from the first only.
    alone : bool
        Whether the part is the only one there is, and deserves a more exact optimum.
    run : Run
    """
    precision = precision_of(pull, kernel)
    if np.isinf(precision).all():
        return [(kernel, 0)] * len(parts)
    if np.any(precision):
        starts = [rows[:1] for rows in starts]
    tolerance = TOLERANCE_ALONE if alone else TOLERANCE_SHARED if precision.any() else TOLERANCE

    workers = 1 if alone else n_workers(run.n_jobs)
    settings = _Settings(kernel, precision, tolerance)

    def fits(tasks: list[Task]) -> Fits:
        limit = not (alone and len(parts[0]) > MANY_ROWS)
        with thread_map(workers, limit) as parallel_map:

            def some(tasks: list[Task]) -> Iterator[tuple[Sum, int]]:
                return parallel_map(lambda task: _fit(data, settings, *task), tasks)

            begin, n_first = perf_counter(), workers * FIRST_EXPERTS
            yield from some(tasks[:n_first])
            left = (perf_counter() - begin) / n_first * (len(tasks) - n_first)
            if workers > 1 and left > WORTH_PROCESSES:
                yield from _in_processes(data, settings, tasks[n_first:], workers)
            else:
                yield from some(tasks[n_first:])

    tasks = list(zip(parts, starts, strict=True))
    keys = []
    if run.checkpoint is not None:
        common = key_of(*settings)
        keys = [key_of(common, *task) for task in tasks]
    return list(run.progress(_resumed(fits, tasks, keys, kernel, run.checkpoint), len(parts)))


def _resumed(
    fit: Callable[[list[Any]], Fits],
    tasks: list[Any],
    keys: list[str],
    kernel: Sum,
    checkpoint: Checkpoint | None,
) -> Iterator[tuple[Sum, int]]:
    """The fits of all tasks in their order; those that the checkpoint does not know are done."""
    if checkpoint is None:
        yield from fit(tasks)
        return
    known = [checkpoint.find(key, kernel) for key in keys]
    missing = [task for task, one in zip(tasks, known, strict=True) if one is None]
    with closing(fit(missing)) as fits:
        for key, one in zip(keys, known, strict=True):
            if one is None:
                one = next(fits)
                checkpoint.add(key, *one)
            yield one


class _Settings(NamedTuple):
    """What all fits have in common; see `maximise`."""

    kernel: Sum
    precision: Array
    tolerance: float


def _fit(
    data: TrainingData, settings: _Settings, part: IndexArray, starts: Array
) -> tuple[Sum, int]:
    return fit_kernel(data, part, settings.kernel, settings.precision, starts, settings.tolerance)


def _in_processes(
    data: TrainingData, settings: _Settings, tasks: list[Task], workers: int
) -> Iterator[tuple[Sum, int]]:
    """The same fits, by workers that are sent the rows that they need."""
    batches = []
    for start in range(0, len(tasks), BATCH_EXPERTS):
        parts, starts = zip(*tasks[start : start + BATCH_EXPERTS], strict=True)
        ends = np.cumsum([len(part) for part in parts])
        batches.append((data.some(np.concatenate(parts)), settings, ends, starts))
    try:
        yield from chain.from_iterable(process_map(_fit_batch, batches, workers))
    except WorkerKilledError as error:
        first = error.first * BATCH_EXPERTS
        lost = ", ".join(f"{part[:3]}..." for part, _ in tasks[first : first + BATCH_EXPERTS])
        raise error.while_doing(
            f"it fitted the experts of the rows {lost}; if memory ran out, lower n_jobs or "
            "points_per_expert"
        ) from None


def _fit_batch(
    batch: tuple[TrainingData, _Settings, IndexArray, tuple[Array, ...]],
) -> list[tuple[Sum, int]]:
    data, settings, ends, starts = batch
    parts = np.split(np.arange(ends[-1]), ends[:-1])
    return [_fit(data, settings, part, own) for part, own in zip(parts, starts, strict=True)]


def starts_of(kernel: Sum, n_restarts: int, rng: np.random.Generator) -> Array:
    """Log-hyperparameters: the kernel's own, then random ones within the bounds. (1 + r, p)"""
    low, high = kernel.bounds.T
    return np.vstack([kernel.theta, rng.uniform(low, high, size=(n_restarts, len(low)))])


def precision_of(pull: float | Pull, kernel: Sum) -> Array:
    """Precision of the pull on each element of theta: (p,)."""
    values = np.asarray(pull(kernel) if callable(pull) else pull, dtype=float)
    if values.shape not in ((), (kernel.n_free,)) or not np.all(values >= 0):
        raise ValueError(
            "hyperparameters must give a pull that is not negative: one number, or one for each "
            f"of {', '.join(kernel.theta_names)}; it gave {values}"
        )
    return np.broadcast_to(values, kernel.n_free)
