"""All experts: fitted in parallel, asked in blocks of rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from typing import Any

import numpy as np
import threadpoolctl
from joblib import Parallel, delayed, effective_n_jobs

from manygp.expert import (
    TOLERANCE,
    Expert,
    fit_expert,
    maximise,
    posterior_covariance,
    predict_expert,
)
from manygp.kernel import Sum, Workspace
from manygp.kernels import TILE
from manygp.likelihood import Likelihood
from manygp.types import Array, ExpertPredictions, IndexArray, Pull

# The shared kernel is fitted on this many blocks of random rows, whatever n is.
SHARED_BLOCKS, SHARED_ROWS = 4, 500
# From here on a single expert is faster with all of BLAS's threads than with one.
MANY_ROWS = 1000
# Nothing averages out the optimum of a single expert.
TOLERANCE_ALONE = 2e-9
# Rows of one block of predict, and the numbers that one scratch array of it may hold.
BLOCK_ROWS, BLOCK_NUMBERS = 512, 2**21

# Precision of the Gaussian that pulls each expert's log-hyperparameters to the shared ones.
PULLS: dict[str, float] = {"independent": 0.0, "hierarchical": 30.0, "shared": np.inf}


def fit_committee(
    X: Array,
    Y: Array,
    alpha: Array,
    parts: list[IndexArray],
    kernel: Sum,
    pull: float | Pull,
    constant_mean: bool,
    n_restarts: int,
    rng: np.random.Generator,
    n_jobs: int | None,
    progress: Callable[[Iterable[Expert], int], Iterable[Expert]],
) -> tuple[Sum, list[Expert]]:
    """Fit one expert per part.

    Parameters
    ----------
    X, Y, alpha : ndarrays of shape (n, d), (n, t), (n,)
        Normalised data, and the known noise variance of each row.
    parts : list of index arrays
        The same array object given twice is fitted once.
    kernel : Sum
        Signal plus White: the start.
    pull : float or callable
        Precision of the pull towards the shared hyperparameters: 0 fits every expert for
        itself, infinity takes the shared ones. A callable maps the shared kernel to one
        precision per element of its theta.
    constant_mean : bool
        See `Likelihood`.
    n_restarts : int
        Further random starts of every fit that nothing pulls on.
    rng : Generator
    n_jobs : int or None
    progress : callable
        Wraps the iterator of fitted experts and their number.

    Returns
    -------
    kernel : Sum
        The shared kernel, or that of a single expert, or what independent ones started from.
    experts : list of Expert
    """
    distinct = list({id(part): part for part in parts}.values())
    low, high = kernel.bounds.T
    shape = (len(distinct) + 1, n_restarts, len(low))
    *starts, shared_starts = rng.uniform(low, high, size=shape)  # drawn before any work
    alone = len(distinct) == 1
    shared = pull != 0.0 if not alone else len(X) > 2 * SHARED_ROWS  # alone: as a warm start
    limit = not (alone and len(X) > MANY_ROWS)
    with single_threaded_blas() if limit else nullcontext():
        if shared:
            kernel = fit_shared(
                X, Y, alpha, kernel, constant_mean, shared_starts, rng, n_jobs, limit
            )
        precision = _precision(0.0 if alone else pull, kernel)
        if np.any(precision):
            starts = [rows[:0] for rows in starts]
        tasks = (
            delayed(_limited)(
                limit,
                fit_expert,
                X,
                Y,
                alpha,
                part,
                kernel,
                precision,
                constant_mean,
                rows,
                TOLERANCE_ALONE if alone else TOLERANCE,
            )
            for part, rows in zip(distinct, starts, strict=True)
        )
        results = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(tasks)
        fitted = list(progress(results, len(distinct)))
    if alone:
        kernel = fitted[0].kernel
    by_part = {id(part): expert for part, expert in zip(distinct, fitted, strict=True)}
    return kernel, [by_part[id(part)] for part in parts]


def fit_shared(
    X: Array,
    Y: Array,
    alpha: Array,
    kernel: Sum,
    constant_mean: bool,
    starts: Array,
    rng: np.random.Generator,
    n_jobs: int | None,
    limit: bool,
) -> Sum:
    """One kernel for all rows, of highest likelihood summed over a few random blocks of them."""
    n_blocks = min(SHARED_BLOCKS, max(1, len(X) // SHARED_ROWS))
    rows = rng.permutation(len(X))[: n_blocks * SHARED_ROWS]
    likelihoods = [
        Likelihood(X[block], Y[block], alpha[block], constant_mean)
        for block in np.array_split(rows, n_blocks)
    ]
    with ThreadPoolExecutor(effective_n_jobs(n_jobs)) as pool:

        def evaluate(function: Callable[..., Any], items: list[Likelihood]) -> Iterator[Any]:
            return pool.map(partial(_limited, limit, function), items)

        free = np.zeros(kernel.n_free)
        return maximise(likelihoods, kernel, free, starts, TOLERANCE, evaluate)[0]


def _precision(pull: float | Pull, kernel: Sum) -> Array:
    """Precision of the pull on each element of theta: (p,)."""
    values = np.asarray(pull(kernel) if callable(pull) else pull, dtype=float)
    if values.shape not in ((), (kernel.n_free,)) or not np.all(values >= 0):
        raise ValueError(
            "hyperparameters must give a pull that is not negative: one number, or one for each "
            f"of {', '.join(kernel.theta_names)}; it gave {values}"
        )
    return np.broadcast_to(values, kernel.n_free)


def predict_experts(
    experts: list[Expert], X: Array, with_variance: bool = True
) -> list[ExpertPredictions]:
    """What every expert says about the rows of X: one record per target.

    Only the means differ between targets. Without variance the variances are empty.
    """
    found = {}
    work = Workspace((0, 0))
    for expert in sorted(experts, key=lambda expert: len(expert.whitener)):
        if id(expert) not in found:
            shape = (len(X), len(expert.whitener))
            work = work if work.shape == shape else Workspace(shape)
            found[id(expert)] = predict_expert(expert, X, work, with_variance)
    columns = [found[id(expert)] for expert in experts]
    means = np.array([mean.T for mean, _, _ in columns]).swapaxes(0, 1)
    prior_means = np.array([expert.mean for expert in experts]).T[:, :, None]
    noise = np.array([[expert.noise_variance] for expert in experts])
    variance, prior = (np.array([c[i] for c in columns]) for i in (1, 2))
    return [
        ExpertPredictions(mean, variance, prior, noise, prior_mean)
        for mean, prior_mean in zip(means, prior_means, strict=True)
    ]


def joint_covariance(experts: list[Expert], X: Array, weights: Array, variance: Array) -> Array:
    """Latent covariance of the rows of X, with the aggregated variances on its diagonal: (N, N).

    D^(1/2) [sum_m sqrt(w_m(x) w_m(x')) R_m(x, x')] D^(1/2), where R_m is expert m's posterior
    correlation and D holds `variance` (N,). It is positive semi-definite, as sums and Schur
    products of such matrices are; the weights (M, N) sum to one over the experts.
    """
    total = np.zeros((len(X), len(X)))
    merged: dict[int, Array] = {}  # one expert may sit on the committee many times
    for expert, weight in zip(experts, weights, strict=True):
        merged[id(expert)] = merged.get(id(expert), np.zeros(len(X))) + weight
    with single_threaded_blas():
        for expert in {id(expert): expert for expert in experts}.values():
            covariance = posterior_covariance(expert, X)
            factor = np.sqrt(merged[id(expert)] / np.einsum("ii->i", covariance))
            covariance *= factor
            covariance *= factor[:, None]
            total += covariance
    std = np.sqrt(variance)
    total *= std
    total *= std[:, None]
    np.fill_diagonal(total, variance)
    return total


def map_row_blocks(
    function: Callable[[list[Expert], Array], tuple[Array, ...]],
    experts: list[Expert],
    X: Array,
    n_jobs: int | None,
) -> tuple[Array, ...]:
    """Apply `function` to blocks of rows in parallel and join its results along the last axis.

    Blocks do not depend on n_jobs, and bound the memory whatever the number of rows. Each is
    filled up to whole tiles, so that a row's digits do not depend on the rows beside it.
    """
    n_rows = len(X)
    X = np.concatenate([X, X[-1:].repeat(-n_rows % TILE, axis=0)])
    widest = max(len(experts), *(len(expert.X) for expert in experts))
    size = int(np.clip(BLOCK_NUMBERS // widest // TILE * TILE, TILE, BLOCK_ROWS))
    blocks = (X[start : start + size] for start in range(0, len(X), size))
    with single_threaded_blas():
        tasks = (delayed(_limited)(True, function, experts, block) for block in blocks)
        results = Parallel(n_jobs=n_jobs, prefer="threads")(tasks)
    columns = zip(*results, strict=True)
    return tuple(np.concatenate(column, axis=-1)[..., :n_rows] for column in columns)


def _limited(limit: bool, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call with BLAS on one thread, in a worker that the caller's limit may not reach.

    It does not reach other processes, nor other threads where BLAS runs on OpenMP.
    """
    with _controller().limit(limits=1, user_api="blas") if limit else nullcontext():
        return function(*arguments)


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
