"""Fits the experts: one kernel for all, each expert's own around it, and committees of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.committee.committee import QUERYING, Committee, Layout, assemble, balltree
from manygp.fit_report import Plan, Shrinkage
from manygp.gp.marginal_likelihood import L_BFGS, KernelFit, Objective, TrainingData, maximise
from manygp.kernels.base import NoisyKernel, White, default_kernel, metric, split_noise
from manygp.runtime.parallel import WorkerKilledError, n_workers, process_map, thread_map
from manygp.runtime.progress import SILENT, Progress
from manygp.training.checkpoint import Checkpoint, key_of


@dataclass(frozen=True)
class ExpertFitting:
    """Numbers of the fits of kernels and experts, and why they are what they are."""

    # The shared kernel is fitted on this many blocks of this many rows, whatever n is.
    shared_blocks: int = 4
    shared_rows: int = 1000
    # Evaluations of the likelihood that it takes on average, at least; and for each
    # hyperparameter.
    shared_evaluations: int = 30
    evaluations_each: int = 3
    # A kernel whose noise is at most this multiple of the least that its bounds allow has none;
    # one that has at least this share of the variance is then tried.
    no_noise: float = 10.0
    noise_floor: float = 0.01
    # Relative improvements of the likelihood at which fits stop: that of one of many experts, of
    # the shared kernel (with 1e-4 all of flights ended on a plateau, .06 nats a row worse), and of
    # a single expert, whose optimum nothing averages out. Warm fits of experts that are held near
    # to the shared kernel stop where every two rows gain this number of nats.
    tolerance: float = 1e-7
    shared_tolerance: float = 1e-6
    single_tolerance: float = 2e-9
    warm_tolerance: float = 1e-4
    # Experts are fitted in threads until it is known how long they take (one for each thread tells
    # where each takes long), and in processes if the rest takes more seconds than it takes to
    # start these.
    first_experts: int = 8
    process_seconds: float = 4.0
    # Experts that a process is sent at a time, at most.
    batch_experts: int = 8
    # Bytes of the experts' factors above which an overlap is too large.
    largest_factors: float = 2e9
    # Bytes of the interpreter and its libraries, and of an expert without its arrays.
    interpreter_bytes: float = 1.5e8
    expert_bytes: float = 2e4
    # How the work of scoring grows with what experts know, and what fitting adds: as measured.
    size_power: float = 1.5
    fitting_work: float = 4.0


FITTING = ExpertFitting()


Fits: TypeAlias = Generator[KernelFit, None, None]


class ExecutionContext(NamedTuple):
    """Settings of how fits are run. All but the optimizer has no influence on the result.

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
    n_blocks = min(FITTING.shared_blocks, max(1, n // n_rows))
    return np.array_split(rng.permutation(n)[: n_blocks * n_rows], n_blocks)


def near_blocks(
    X: Array, kernel: NoisyKernel, n_rows: int, rng: np.random.Generator
) -> list[IndexArray]:
    """Blocks of rows near each other in the metric of a kernel.

    They show what varies over short distances.
    """
    parts = balltree(X * metric(kernel, X.shape[1]), len(X) // n_rows, rng)
    n_blocks = min(FITTING.shared_blocks, max(1, len(X) // n_rows))
    return [parts[i] for i in rng.permutation(len(parts))[:n_blocks]]


def cluster_blocks(
    X: Array, n_rows: int, n_together: int, rng: np.random.Generator
) -> list[IndexArray]:
    """Blocks of rows, each of some clusters of rows near each other, in random order."""
    parts = balltree(X, max(1, len(X) // n_rows), rng)
    order = rng.permutation(len(parts))
    return [
        np.sort(np.concatenate([parts[i] for i in order[start : start + n_together]]))
        for start in range(0, len(order), n_together)
    ]


def fit_shared(
    data: TrainingData,
    blocks: list[IndexArray],
    objective: Objective,
    starts: Array,
    run: ExecutionContext,
    *,
    limit: bool = True,
) -> NoisyKernel:
    """One kernel for all rows, of highest likelihood summed over a few blocks of them.

    Parameters
    ----------
    data : TrainingData
    blocks : list of index arrays
    objective : Objective
        The bounds of its kernel hold.
    starts : ndarray of shape (r, p)
        Values of theta to start from.
    run : ExecutionContext
    limit : bool
        Whether BLAS runs on one thread in each of the blocks.
    """
    kernel, _, tolerance, _, is_warm = objective

    def fit(missing: list[Array]) -> Fits:
        likelihoods = [one for block in blocks for one in data.likelihoods(block)]
        with thread_map(run.n_jobs, limit=limit) as parallel_map:
            for starts in missing:
                planned = len(starts) * shared_evaluations(kernel.n_free)
                evaluate = run.progress.counting(parallel_map, planned)
                yield maximise(likelihoods, objective, starts, evaluate)

    if run.checkpoint is None:
        (fitted,) = fit([starts])
    else:
        known = (data.residuals, kernel, tolerance, is_warm, limit, starts, *blocks)
        key = key_of("shared", *known)
        (fitted,) = _resumed(fit, [starts], [key], kernel, run.checkpoint)
    return fitted.kernel


def shared_objective(
    kernel: NoisyKernel, run: ExecutionContext, *, is_warm: bool = False
) -> Objective:
    """What the shared kernel is to maximise; `is_warm` if its starts are near to the optimum."""
    free = np.zeros(kernel.n_free)
    return Objective(kernel, free, FITTING.shared_tolerance, run.optimizer, is_warm)


def shared_evaluations(n_free: int) -> int:
    """Evaluations of the likelihood that a shared kernel of so many hyperparameters may take."""
    return max(FITTING.shared_evaluations, FITTING.evaluations_each * n_free)


def fit_kernels(
    data: TrainingData,
    tasks: list[Task],
    kernel: NoisyKernel,
    shrinkage: Shrinkage,
    run: ExecutionContext,
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
    run : ExecutionContext
    single : bool
        Whether there is one expert, which deserves a more exact optimum.
    """
    precision = precision_of(shrinkage, kernel)
    if np.isinf(precision).all():
        return [KernelFit(kernel)] * len(tasks)
    held = bool(np.any(precision))
    tolerance = FITTING.warm_tolerance if held else FITTING.tolerance
    tolerance = FITTING.single_tolerance if single else tolerance
    if held:
        tasks = [Task(rows, starts[:1]) for rows, starts in tasks]
    objective = Objective(kernel, precision, tolerance, is_warm=held and not single)
    return fit_tasks(data, tasks, objective, run, single=single)


def fit_tasks(
    data: TrainingData,
    tasks: list[Task],
    objective: Objective,
    run: ExecutionContext,
    *,
    single: bool = False,
) -> list[KernelFit]:
    """The kernel of each expert by an objective; `single` if it has all threads to itself."""
    objective = objective._replace(optimizer=run.optimizer)
    workers = 1 if single else n_workers(run.n_jobs)
    limit = not (single and len(tasks[0].rows) > QUERYING.many_rows)

    def fit(missing: list[Task]) -> Fits:
        return _fit_in_parallel(data, objective, missing, workers, limit=limit)

    fits: Iterator[KernelFit] = fit(tasks)
    if run.checkpoint is not None:
        common = key_of(data.residuals, *objective[:3])  # the checkpoint knows the optimizer
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
        for n_first in (workers, workers * FITTING.first_experts):
            yield from in_threads(tasks[done:n_first])
            done = min(n_first, len(tasks))
            left = (perf_counter() - begin) / n_first * (len(tasks) - n_first)
            if workers > 1 and left > max(0.0, FITTING.process_seconds):
                yield from _in_processes(data, objective, tasks[n_first:], workers)
                return
        yield from in_threads(tasks[done:])


def fit_kernel(data: TrainingData, objective: Objective, task: Task) -> KernelFit:
    """The hyperparameters of one expert, from its own rows."""
    return maximise(data.likelihoods(task.rows), objective, task.starts)


def _in_processes(
    data: TrainingData, objective: Objective, tasks: list[Task], workers: int
) -> Iterator[KernelFit]:
    """The same fits, by workers that are sent the rows that they need."""
    own = data._replace(trend=None)  # hyperparameters are learned from what it has left
    batches, size = [], min(FITTING.batch_experts, -(-len(tasks) // workers))
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


def start_kernel(data: TrainingData, variance: float) -> NoisyKernel:
    """The default kernel for what is left of the targets."""
    columns = data.X.shape[1], data.X.std(axis=0)
    weight = 1.0 if data.spread is None else data.mean_weight
    return split_noise(default_kernel(*columns, variance, weight))


def has_no_noise(kernel: NoisyKernel) -> bool:
    """Whether its noise is next to the least that its bounds allow."""
    bounds, variance = kernel.noise.bounds, kernel.noise_variance
    return len(bounds) == 1 and bool(np.log(variance / FITTING.no_noise) <= bounds[0, 0])


def with_noise_of(kernel: NoisyKernel, least: float) -> NoisyKernel:
    """The kernel whose noise variance is at least a number, if it is free."""
    noise = kernel.noise
    if isinstance(noise.variance_bounds, str):
        return kernel
    low, high = (max(float(one), least) for one in noise.variance_bounds)  # type: ignore[arg-type]
    variance = float(np.clip(noise.variance, low, high))
    return NoisyKernel(kernel.signal, White(variance, (low, high)))


def precision_of(shrinkage: Shrinkage, kernel: NoisyKernel) -> Array:
    """Precision with which each element of theta is held at the shared one: (p,)."""
    values = np.asarray(shrinkage(kernel) if callable(shrinkage) else shrinkage, dtype=float)
    if values.shape not in ((), (kernel.n_free,)) or not np.all(values >= 0):
        raise ValueError(
            "hyperparameters must give a precision that is not negative: one number, or one for "
            f"each of {', '.join(kernel.theta_names)}; it gave {values}"
        )
    return np.broadcast_to(values, kernel.n_free)


class Candidate(NamedTuple):
    """A committee that may be chosen."""

    shrinkage: Shrinkage
    overlap: float


def compared_committees(
    shrinkages: tuple[Shrinkage, ...], overlaps: Sequence[float]
) -> Iterator[Candidate]:
    """What `choose_committee` compares, as far as that is known before.

    These are shrinkages at a small overlap, and then overlaps.
    """
    some = some_overlap(overlaps)
    yield from (Candidate(shrinkage, some) for shrinkage in shrinkages)
    yield from (Candidate(shrinkages[-1], overlap) for overlap in overlaps if overlap != some)


def some_overlap(overlaps: Sequence[float]) -> float:
    """The overlap at which shrinkages are compared; at larger ones each costs much more."""
    return overlaps[min(1, len(overlaps) - 1)]


def work_of(candidate: Candidate, known: Iterable[Candidate]) -> float:
    """What it takes to score a committee, in the work of one without overlap that fits nothing."""
    fits = candidate.shrinkage != np.inf
    fits = fits and all(one.shrinkage != candidate.shrinkage for one in known)
    size = (1 + candidate.overlap) ** FITTING.size_power
    return float(size + fits * FITTING.fitting_work)


def affordable(n: int, n_parts: int, overlaps: tuple[float, ...]) -> list[float]:
    """Overlaps that differ in what experts know, and whose factors fit into memory."""
    kept: dict[int, float] = {}
    for overlap in overlaps:
        known = min(n, round((1 + overlap) * n / n_parts))
        if not kept or 8 * n_parts * known**2 <= FITTING.largest_factors:
            kept.setdefault(known, overlap)
    return list(kept.values())


def memory_of(plan: Plan, shape: tuple[int, ...]) -> float:
    """Bytes that a fit of rows of a shape needs: data, what experts know, and their factors."""
    n, d = shape
    n_experts = max(1, n // plan.points_per_expert)
    overlap = max(affordable(n, n_experts, plan.overlaps)) if n_experts > 1 else 0.0
    known = min(n, n / n_experts * (1 + overlap))
    numbers = 4 * n * (d + 2) + 2 * n_experts * known * (d + 2) + n_experts * known**2
    return float(FITTING.interpreter_bytes + 8 * numbers + FITTING.expert_bytes * n_experts)


def within_memory(plan: Plan, n: int) -> Plan:
    """The same plan for n rows, without overlaps whose factors are too large."""
    n_experts = max(1, n // plan.points_per_expert)
    return plan._replace(overlaps=tuple(affordable(n, n_experts, plan.overlaps)))


class Builder:
    """Builds the committees of one layout.

    Parameters
    ----------
    data : TrainingData
    layout : Layout
    kernel : NoisyKernel
        The shared kernel, or the start of independent fits.
    starts : sequence of ndarrays of shape (r, p)
        Where the fit of each part starts from.
    communication : ndarray of indices, optional
        Rows that all experts are to know.
    run : ExecutionContext
    """

    def __init__(
        self,
        data: TrainingData,
        layout: Layout,
        kernel: NoisyKernel,
        starts: Sequence[Array],
        communication: IndexArray | None,
        run: ExecutionContext,
    ) -> None:
        self.data, self.layout, self.kernel, self.starts = data, layout, kernel, starts
        self.communication, self.run = communication, run
        # By shrinkage and the rows that hyperparameters were learned without, then by part.
        self._fits: dict[tuple[Shrinkage, bytes], dict[int, KernelFit]] = {}
        self._neighbours: dict[tuple[int, int], IndexArray] = {}

    def n_neighbours(self, overlap: float) -> int:
        """Rows that an expert learns from others: `overlap` times the mean size of a part."""
        return round(overlap * len(self.data.X) / len(self.layout.parts))

    def some_rows(self, most: int, rng: np.random.Generator) -> IndexArray:
        """At most this number of rows, drawn at random, in their order."""
        return np.sort(rng.permutation(len(self.data.X))[:most])

    def committee(
        self,
        shrinkage: Shrinkage,
        overlap: float,
        members: IndexArray | None = None,
        held_out: IndexArray | None = None,
    ) -> Committee:
        """The committee of all parts, or of some.

        Parameters
        ----------
        shrinkage : float or callable
        overlap : float
        members : ndarray of int, optional
            The parts that have an expert.
        held_out : ndarray of int, optional
            Rows that hyperparameters are to be learned without, so that these rows can tell how
            good they are.
        """
        seats = range(len(self.layout.parts)) if members is None else members.tolist()
        fits = self.fits(shrinkage, list(seats), held_out)
        count = self.n_neighbours(overlap)

        def neighbours_of(seat: int) -> IndexArray:
            m = seats[seat]
            return self._with_communication(m, self._nearest_rows(m, count))

        common = None
        if self.communication is not None:
            single = self.layout.is_single
            common = self.communication, fits[0] if single else KernelFit(self.kernel)
        return assemble(
            self.data,
            self.layout if members is None else self.layout.subset(members),
            [fits[m] for m in seats],
            neighbours_of,
            common,
            self.run.n_jobs,
        )

    def final(self, shrinkage: Shrinkage, overlap: float) -> Committee:
        """The committee of all parts, which is kept."""
        self.run.progress.begin("experts")
        self.fits(shrinkage, list(range(len(self.layout.parts))))
        self.run.progress.begin("conditioning")
        return self.committee(shrinkage, overlap)

    def _with_communication(self, m: int, neighbours: IndexArray) -> IndexArray:
        """Rows of others that the expert of part m knows, with those that all know."""
        if self.communication is None:
            return neighbours
        known = np.concatenate([self.layout.parts[m], neighbours])
        more = self.communication[~np.isin(self.communication, known)]
        return np.concatenate([neighbours, more])

    def fits(
        self, shrinkage: Shrinkage, members: list[int], held_out: IndexArray | None = None
    ) -> dict[int, KernelFit]:
        """The fit of each member, from the last time or made now."""
        without = b"" if held_out is None else held_out.tobytes()
        fits = self._fits.setdefault((shrinkage, without), {})
        missing = [m for m in members if m not in fits]
        if missing:
            parts = [self.layout.parts[m] for m in missing]
            if held_out is not None:
                parts = [part[~np.isin(part, held_out)] for part in parts]
            tasks = [Task(*task) for task in zip(parts, self._starts(missing), strict=True)]
            single = len(self.layout.parts) == 1
            fitted = fit_kernels(self.data, tasks, self.kernel, shrinkage, self.run, single=single)
            fits.update(zip(missing, fitted, strict=True))
        return fits

    def _starts(self, members: list[int]) -> list[Array]:
        """Where fits start: where the last one of the part has ended, whatever its shrinkage."""
        earlier: dict[int, Array] = {}
        for fits in self._fits.values():
            earlier |= {m: fit.kernel.theta[None] for m, fit in fits.items() if fit.n_evaluations}
        return [earlier.get(m, self.starts[m]) for m in members]

    def _nearest_rows(self, m: int, count: int) -> IndexArray:
        if (m, count) not in self._neighbours:
            self._neighbours[m, count] = self.layout.neighbours(self.data.X, m, count)
        return self._neighbours[m, count]
