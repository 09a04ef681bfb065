"""What a fit will cost in seconds and bytes, and the best one that a budget affords."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import NamedTuple

import numpy as np

from manygp.arrays import Array
from manygp.findings import Plan, Shrinkage
from manygp.gp.likelihood import TrainingData
from manygp.kernels.base import NoisyKernel
from manygp.runtime.parallel import n_workers, single_threaded_blas
from manygp.settings import SearchSpace
from manygp.training.builder import affordable, memory_of
from manygp.training.fitting import SHARED_BLOCKS
from manygp.training.search import COMPARED_EXPERTS, COMPARED_ROWS

# Evaluations of the likelihood that a fit takes on average: of the shared kernel, of an expert
# that is held near to it, of one that is not, and of a single one.
SHARED_EVALUATIONS = 30
HELD_EVALUATIONS = 12
FREE_EVALUATIONS = 40
SINGLE_EVALUATIONS = 60
# Conditioning an expert takes this share of an evaluation, and a query of one row this share of an
# evaluation over n.
CONDITIONING = 0.65
QUERYING = 0.2
# Seconds more for each row that a committee is scored on.
SCORING = 1e-4
# Seconds to read the data, for each number; for each row and level of a tree; for each expert.
PASSES = 2e-7
TREE = 1.5e-7
EACH = 4e-4
# Sizes of the experts whose likelihood is timed.
MEASURED_ROWS = (50, 100, 200, 400, 1000)
# How much of a second worker's time is not spent waiting for the first.
GAIN = 0.4
# Part of the budget that may be planned for: the rest is for what the plan does not know.
PLANNED = 0.8
# Experts of fewer rows are not worth having.
LEAST_POINTS = 25


class Costs(NamedTuple):
    """Measured seconds of one evaluation of the likelihood, by the number of rows."""

    rows: Array
    seconds: Array

    def evaluation(self, n: float) -> float:
        """Seconds for n rows: a power of n between two measurements, n^3 beyond the last."""
        beyond = max(1.0, n / self.rows[-1]) ** 3
        log_seconds = np.interp(np.log(n), np.log(self.rows), np.log(self.seconds))
        return float(beyond * np.exp(log_seconds))


class Job(NamedTuple):
    """What the cost of a plan depends on.

    Attributes
    ----------
    shape : (int, int)
        Rows and columns of the data.
    compares : bool
        Whether committees are compared.
    n_jobs : int or None
    costs : Costs
    """

    shape: tuple[int, int]
    compares: bool
    n_jobs: int | None
    costs: Costs


def job_of(data: TrainingData, kernel: NoisyKernel, space: SearchSpace, n_jobs: int | None) -> Job:
    """The job of fitting data, after measuring how fast this machine is."""
    n, d = data.X.shape
    return Job((n, d), not space.is_fixed, n_jobs, measure(data, kernel))


def measure(data: TrainingData, kernel: NoisyKernel) -> Costs:
    """Evaluate the likelihood of some rows, a few times each."""
    n = len(data.X)
    sizes = np.unique(np.minimum(MEASURED_ROWS, n))
    seconds = []
    with single_threaded_blas():
        for size in sizes:
            likelihood = data.likelihood(np.linspace(0, n - 1, size).astype(int))
            rounds = []
            for _ in range(4):
                begin = perf_counter()
                likelihood.value_and_gradient(kernel)
                rounds.append(perf_counter() - begin)
            seconds.append(min(rounds))
    return Costs(sizes, np.array(seconds))


def estimate(plan: Plan, job: Job) -> Plan:
    """The plan with its cost."""
    n, d = job.shape
    n_experts = max(1, n // plan.points_per_expert)
    seconds = PASSES * n * (d + 5) + EACH * n_experts
    seconds += TREE * n * np.log2(n_experts + 1) * (1 + plan.kernels)
    if n_experts == 1:
        final, rest = SINGLE_EVALUATIONS * job.costs.evaluation(n), 0.0
    else:
        final, rest = _seconds_of_experts(plan, job, n_experts)
    return plan._replace(
        seconds=float(seconds + rest + final),
        bytes=memory_of(plan, job.shape),
        final_seconds=float(final),
    )


def _seconds_of_experts(plan: Plan, job: Job, n_experts: int) -> tuple[float, float]:
    """Seconds for the experts that are kept, and for what comes before them."""
    n, _ = job.shape
    evaluation = job.costs.evaluation
    points = n / n_experts
    overlaps = affordable(n, n_experts, plan.overlaps)
    speed = 1 + GAIN * (n_workers(job.n_jobs) - 1)
    shares = any(shrinkage != 0.0 for shrinkage in plan.shrinkages)
    fits = 0.0
    if any(shrinkage != np.inf for shrinkage in plan.shrinkages):
        fits = (HELD_EVALUATIONS if shares else FREE_EVALUATIONS) * evaluation(points)
    known = min(n, points * (1 + max(overlaps)))
    final = n_experts * (fits + CONDITIONING * evaluation(known)) / speed
    blocks = min(SHARED_BLOCKS, max(1, n // plan.shared_rows)) if shares else 0
    shared = SHARED_EVALUATIONS * blocks * evaluation(min(n, plan.shared_rows))
    rest = plan.kernels * shared / speed
    if job.compares:
        experts, rows = min(n_experts, COMPARED_EXPERTS), min(n, COMPARED_ROWS)
        for shrinkage, overlap in _compared(plan.shrinkages, overlaps):
            size = min(n, points * (1 + overlap))
            each = CONDITIONING * evaluation(size) + (shrinkage != np.inf) * fits
            querying = rows * min(n_experts, 8) * evaluation(size) / size * QUERYING
            rest += SCORING * rows + (experts * each + querying) / speed
    return final, rest


def _compared(
    shrinkages: tuple[Shrinkage, ...], overlaps: list[float]
) -> Iterator[tuple[Shrinkage, float]]:
    """Shrinkages at the first overlap, overlaps, and then near shrinkages: see `select`."""
    yield from ((shrinkage, overlaps[0]) for shrinkage in shrinkages)
    yield from ((shrinkages[-1], overlap) for overlap in overlaps[1:])
    if len(overlaps) > 1:
        yield from ((shrinkage, overlaps[-1]) for shrinkage in shrinkages[1:3])


def afford(whole: Plan, job: Job, seconds: float, least: int = LEAST_POINTS) -> Plan:
    """The first plan that leaves some of the seconds, or the cheapest; with its cost.

    `least` is the smallest size of experts to consider.
    """
    options = [estimate(plan, job) for plan in plans(whole, least)]
    fitting = (plan for plan in options if plan.seconds <= PLANNED * seconds)
    return next(fitting, min(options, key=lambda plan: plan.seconds))


def plans(whole: Plan, least: int = LEAST_POINTS) -> Iterator[Plan]:
    """Cheaper and cheaper plans, the whole one first."""
    points = whole.points_per_expert
    while True:
        for n_shrinkages, n_overlaps, rows, kernels in (
            (4, 4, 1000, 2),
            (4, 3, 1000, 2),
            (2, 2, 1000, 2),
            (1, 2, 1000, 1),
            (1, 1, 1000, 1),
            (1, 1, 500, 1),
        ):
            yield whole._replace(
                points_per_expert=points,
                shrinkages=whole.shrinkages[:n_shrinkages],
                overlaps=whole.overlaps[:n_overlaps],
                shared_rows=min(rows, whole.shared_rows),
                kernels=min(kernels, whole.kernels),
            )
        points //= 2
        if points < least:
            return
