"""The experts' hyperparameters: one kernel for all, and each expert's own around it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import chain
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.committee.committee import MANY_ROWS
from manygp.findings import Shrinkage
from manygp.gp.likelihood import L_BFGS, KernelFit, Objective, TrainingData, maximise
from manygp.kernels.base import NoisyKernel, metric
from manygp.rules.partition import balltree
from manygp.runtime.parallel import WorkerKilledError, n_workers, process_map, thread_map
from manygp.runtime.progress import SILENT, Progress
from manygp.training.checkpoint import Checkpoint, key_of

# The shared kernel is fitted on this many blocks of this many rows, whatever n is.
SHARED_BLOCKS = 4
SHARED_ROWS = 1000
# Evaluations of the likelihood that it takes on average, at least; and for each hyperparameter.
SHARED_EVALUATIONS = 30
EVALUATIONS_EACH = 3
# Relative improvements of the likelihood at which fits stop: that of one of many experts, of the
# shared kernel and of experts that are held near to it (no score changes by more than 0.002), and
# of a single expert, whose optimum nothing averages out.
TOLERANCE = 1e-7
TOLERANCE_SHARED = 1e-6
TOLERANCE_SINGLE = 2e-9
# Experts are fitted in threads until it is known how long they take (one for each thread tells
# where each takes long), and in processes if the rest takes more seconds than it takes to start
# these.
FIRST_EXPERTS = 8
WORTH_PROCESSES = 4.0
# Experts that a process is sent at a time, at most.
BATCH_EXPERTS = 8

Fits: TypeAlias = Generator[KernelFit, None, None]


class Run(NamedTuple):
    """How fits are done. All but the optimizer has no influence on the result.

    Attributes
    ----------
    n_jobs : int or None
    progress : Progress
        Where a fit says how far it is.
    checkpoint : Checkpoint, optional
        Where finished fits are kept, and taken from.
    optimizer : None, str or callable
        See `Objective`.
    """

    n_jobs: int | None = None
    progress: Progress = SILENT
    checkpoint: Checkpoint | None = None
    optimizer: Any = L_BFGS


class Task(NamedTuple):
    """The rows of an expert, and the values of theta that its fit starts from: (r, p)."""

    rows: IndexArray
    starts: Array


def random_blocks(n: int, n_rows: int, rng: np.random.Generator) -> list[IndexArray]:
    """Blocks of random rows to fit the shared kernel on."""
    n_blocks = min(SHARED_BLOCKS, max(1, n // n_rows))
    return np.array_split(rng.permutation(n)[: n_blocks * n_rows], n_blocks)


def near_blocks(
    X: Array, kernel: NoisyKernel, n_rows: int, rng: np.random.Generator
) -> list[IndexArray]:
    """Blocks of rows near each other in the metric of a kernel.

    They show what varies over short distances.
    """
    parts = balltree(X * metric(kernel, X.shape[1]), len(X) // n_rows, rng)
    n_blocks = min(SHARED_BLOCKS, max(1, len(X) // n_rows))
    return [parts[i] for i in rng.permutation(len(parts))[:n_blocks]]


def fit_shared(
    data: TrainingData,
    blocks: list[IndexArray],
    kernel: NoisyKernel,
    starts: Array,
    run: Run,
    *,
    limit: bool = True,
) -> NoisyKernel:
    """One kernel for all rows, of highest likelihood summed over a few blocks of them.

    Parameters
    ----------
    data : TrainingData
    blocks : list of index arrays
    kernel : NoisyKernel
        Its bounds hold.
    starts : ndarray of shape (r, p)
        Values of theta to start from.
    run : Run
    limit : bool
        Whether BLAS runs on one thread in each of the blocks.
    """
    free = np.zeros(kernel.n_free)
    objective = Objective(kernel, free, TOLERANCE_SHARED, run.optimizer)

    def fit(missing: list[Array]) -> Fits:
        likelihoods = [data.likelihood(block) for block in blocks]
        with thread_map(run.n_jobs, limit=limit) as parallel_map:
            for starts in missing:
                planned = len(starts) * shared_evaluations(kernel.n_free)
                evaluate = run.progress.counting(parallel_map, planned)
                yield maximise(likelihoods, objective, starts, evaluate)

    if run.checkpoint is None:
        (found,) = fit([starts])
    else:
        key = key_of("shared", data.Y, kernel, TOLERANCE_SHARED, limit, starts, *blocks)
        (found,) = _resumed(fit, [starts], [key], kernel, run.checkpoint)
    return found.kernel


def shared_evaluations(n_free: int) -> int:
    """Evaluations of the likelihood that a shared kernel of so many hyperparameters may take."""
    return max(SHARED_EVALUATIONS, EVALUATIONS_EACH * n_free)


def fit_kernels(
    data: TrainingData,
    tasks: list[Task],
    kernel: NoisyKernel,
    shrinkage: Shrinkage,
    run: Run,
    *,
    single: bool = False,
) -> list[KernelFit]:
    """The kernel of each expert.

    Parameters
    ----------
    data : TrainingData
    tasks : list of Task
        An expert that is held near to the shared kernel starts from the first start only.
    kernel : NoisyKernel
        The shared kernel: start, and what experts are held near to.
    shrinkage : float or callable
        0 fits every expert for itself, infinity takes the shared hyperparameters. A callable
        maps the shared kernel to one precision per element of its theta.
    run : Run
    single : bool
        Whether there is one expert, which deserves a more exact optimum.
    """
    precision = precision_of(shrinkage, kernel)
    if np.isinf(precision).all():
        return [KernelFit(kernel)] * len(tasks)
    held = bool(np.any(precision))
    tolerance = TOLERANCE_SINGLE if single else TOLERANCE_SHARED if held else TOLERANCE
    if held:
        tasks = [Task(rows, starts[:1]) for rows, starts in tasks]
    return fit_tasks(data, tasks, Objective(kernel, precision, tolerance), run, single=single)


def fit_tasks(
    data: TrainingData, tasks: list[Task], objective: Objective, run: Run, *, single: bool = False
) -> list[KernelFit]:
    """The kernel of each expert by an objective; `single` if it has all threads to itself."""
    objective = objective._replace(optimizer=run.optimizer)
    workers = 1 if single else n_workers(run.n_jobs)
    limit = not (single and len(tasks[0].rows) > MANY_ROWS)

    def fit(missing: list[Task]) -> Fits:
        return _fit_in_parallel(data, objective, missing, workers, limit=limit)

    fits: Iterator[KernelFit] = fit(tasks)
    if run.checkpoint is not None:
        common = key_of(data.Y, *objective[:3])  # the checkpoint knows the optimizer
        keys = [key_of(common, *task) for task in tasks]
        fits = _resumed(fit, tasks, keys, objective.kernel, run.checkpoint)
    return list(run.progress.track("experts", fits, len(tasks)))


def _resumed(
    fit: Callable[[list[Any]], Fits],
    tasks: list[Any],
    keys: list[str],
    kernel: NoisyKernel,
    checkpoint: Checkpoint,
) -> Iterator[KernelFit]:
    """The fits of all tasks in their order; those that the checkpoint does not know are done."""
    known = [checkpoint.find(key, kernel) for key in keys]
    missing = [task for task, one in zip(tasks, known, strict=True) if one is None]
    with closing(fit(missing)) as fits:
        for key, one in zip(keys, known, strict=True):
            if one is None:
                one = next(fits)
                checkpoint.add(key, one)
            yield one


def _fit_in_parallel(
    data: TrainingData, objective: Objective, tasks: list[Task], workers: int, *, limit: bool
) -> Fits:
    """In threads first, then in processes if enough is left to do."""
    with thread_map(workers, limit=limit) as parallel_map:

        def in_threads(tasks: list[Task]) -> Iterator[KernelFit]:
            return parallel_map(lambda task: fit_kernel(data, objective, task), tasks)

        begin, done = perf_counter(), 0
        for n_first in (workers, workers * FIRST_EXPERTS):
            yield from in_threads(tasks[done:n_first])
            done = min(n_first, len(tasks))
            left = (perf_counter() - begin) / n_first * (len(tasks) - n_first)
            if workers > 1 and left > max(0.0, WORTH_PROCESSES):
                yield from _in_processes(data, objective, tasks[n_first:], workers)
                return
        yield from in_threads(tasks[done:])


def fit_kernel(data: TrainingData, objective: Objective, task: Task) -> KernelFit:
    """The hyperparameters of one expert, from its own rows."""
    return maximise([data.likelihood(task.rows)], objective, task.starts)


def _in_processes(
    data: TrainingData, objective: Objective, tasks: list[Task], workers: int
) -> Iterator[KernelFit]:
    """The same fits, by workers that are sent the rows that they need."""
    own = data._replace(trend=None)  # hyperparameters are learned from what it has left
    batches, size = [], min(BATCH_EXPERTS, -(-len(tasks) // workers))
    for start in range(0, len(tasks), size):
        parts, starts = zip(*tasks[start : start + size], strict=True)
        ends = np.cumsum([len(part) for part in parts])
        batches.append((own.some(np.concatenate(parts)), objective, ends, starts))
    try:
        yield from chain.from_iterable(process_map(_fit_batch, batches, workers))
    except WorkerKilledError as error:
        first = error.first * size
        lost = ", ".join(f"{part[:3]}..." for part, _ in tasks[first : first + size])
        raise error.while_doing(
            f"it fitted the experts of the rows {lost}; if memory ran out, lower n_jobs or "
            "points_per_expert"
        ) from None


def _fit_batch(
    batch: tuple[TrainingData, Objective, IndexArray, tuple[Array, ...]],
) -> list[KernelFit]:
    data, objective, ends, starts = batch
    parts = np.split(np.arange(ends[-1]), ends[:-1])
    tasks = (Task(*task) for task in zip(parts, starts, strict=True))
    return [fit_kernel(data, objective, task) for task in tasks]


def starts_of(kernel: NoisyKernel, n_restarts: int, rng: np.random.Generator) -> Array:
    """Log-hyperparameters: the kernel's own, then random ones within the bounds. (1 + r, p)"""
    low, high = kernel.bounds.T
    return np.vstack([kernel.theta, rng.uniform(low, high, size=(n_restarts, len(low)))])


def precision_of(shrinkage: Shrinkage, kernel: NoisyKernel) -> Array:
    """Precision with which each element of theta is held at the shared one: (p,)."""
    values = np.asarray(shrinkage(kernel) if callable(shrinkage) else shrinkage, dtype=float)
    if values.shape not in ((), (kernel.n_free,)) or not np.all(values >= 0):
        raise ValueError(
            "hyperparameters must give a precision that is not negative: one number, or one for "
            f"each of {', '.join(kernel.theta_names)}; it gave {values}"
        )
    return np.broadcast_to(values, kernel.n_free)
