"""The experts' hyperparameters: one kernel for all, and each expert's own around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from manygp.expert import TOLERANCE, fit_kernel, maximise
from manygp.kernel import Sum, metric
from manygp.likelihood import TrainingData
from manygp.parallel import thread_map
from manygp.partition import balltree
from manygp.types import Array, IndexArray, Pull

# The shared kernel is fitted on this many blocks of random rows, whatever n is.
SHARED_BLOCKS, SHARED_ROWS = 4, 1000
# From here on a single expert is faster with all of BLAS's threads than with one.
MANY_ROWS = 1000
# The shared kernel, and fits that are pulled towards it, may stop earlier than others: no score
# changes by more than 0.002. Nothing averages out the optimum of a single expert.
TOLERANCE_SHARED, TOLERANCE_ALONE = 1e-6, 2e-9

# Precision of the Gaussian that pulls each expert's log-hyperparameters to the shared ones.
PULLS: dict[str, float] = {"independent": 0.0, "hierarchical": 30.0, "shared": np.inf}

Progress = Callable[[Iterable[Any], int], Iterable[Any]]


def fit_shared(
    data: TrainingData,
    kernel: Sum,
    n_restarts: int,
    rng: np.random.Generator,
    n_jobs: int | None,
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
    n_jobs : int or None
    limit : bool
        Whether BLAS runs on one thread in each of the blocks.
    local : bool
        Whether blocks are of rows that are near each other in the metric of `kernel`, and show
        what varies over short distances, or of rows at random.
    """
    n = len(data.X)
    n_blocks = min(SHARED_BLOCKS, max(1, n // SHARED_ROWS))
    if local:
        parts = balltree(data.X * metric(kernel, data.X.shape[1]), n // SHARED_ROWS, rng)
        blocks = [parts[i] for i in rng.permutation(len(parts))[:n_blocks]]
    else:
        blocks = np.array_split(rng.permutation(n)[: n_blocks * SHARED_ROWS], n_blocks)
    starts = starts_of(kernel, n_restarts, rng)
    likelihoods = [data.likelihood(block) for block in blocks]
    free = np.zeros(kernel.n_free)
    with thread_map(n_jobs, limit) as parallel_map:
        return maximise(likelihoods, kernel, free, starts, TOLERANCE_SHARED, parallel_map)[0]


def fit_kernels(
    data: TrainingData,
    parts: list[IndexArray],
    kernel: Sum,
    pull: float | Pull,
    starts: list[Array],
    alone: bool,
    n_jobs: int | None,
    progress: Progress,
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
    n_jobs : int or None
    progress : callable
        Wraps the iterator of fits and their number.
    """
    precision = precision_of(pull, kernel)
    if np.isinf(precision).all():
        return [(kernel, 0)] * len(parts)
    if np.any(precision):
        starts = [rows[:1] for rows in starts]
    tolerance = TOLERANCE_ALONE if alone else TOLERANCE_SHARED if precision.any() else TOLERANCE

    def fit(task: tuple[IndexArray, Array]) -> tuple[Sum, int]:
        part, own_starts = task
        return fit_kernel(data, part, kernel, precision, own_starts, tolerance)

    limit = not (alone and len(parts[0]) > MANY_ROWS)
    with thread_map(n_jobs, limit) as parallel_map:
        fits = parallel_map(fit, zip(parts, starts, strict=True))
        return list(progress(fits, len(parts)))


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
