"""Cost of a fit in seconds and bytes, and the best plan that a budget affords."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import Any, NamedTuple

import numpy as np

from manygp.arrays import Array
from manygp.fit_report import Plan
from manygp.gp.marginal_likelihood import TrainingData
from manygp.kernels.base import NoisyKernel
from manygp.runtime.parallel import n_workers, single_threaded_blas
from manygp.settings import SearchSpace, Settings
from manygp.training.choose import COMMITTEE, is_fixed
from manygp.training.experts import (
    FITTING,
    affordable,
    compared_committees,
    memory_of,
    shared_evaluations,
)
from manygp.training.single import SINGLE
from manygp.training.trends import TREND
from manygp.trend.boosted import FAMILY as BOOSTED
from manygp.trend.forest import FAMILY as FOREST
from manygp.trend.registry import families


@dataclass(frozen=True)
class CostModel:
    """Numbers of the estimate of a fit's cost, as measured, and of what a budget may plan.

    Sizes of stages are those of their own records.
    """

    # Evaluations of the likelihood that a fit takes on average: of an expert that is held near to
    # the shared kernel, of one that is not, of a fold of few rows, and of a single one.
    held_evaluations: int = 8
    free_evaluations: int = 40
    fold_evaluations: int = 15
    single_evaluations: int = 60
    # Conditioning an expert takes this share of an evaluation, and a query of one row this share
    # of an evaluation over n.
    conditioning: float = 0.65
    querying: float = 0.2
    # Seconds more for each row that a committee is scored on.
    row_score_seconds: float = 1e-4
    # Evaluations that a kernel takes with which trends are compared, and what else it takes to
    # compare them, as a multiple of asking.
    trend_evaluations: int = 30
    trend_queries: int = 2
    # Evaluations of the default kernel that take as long as one of a structured one, and how many
    # more for each column; those of the structured one of a look, and after some of the looks.
    structured_factor: float = 3.5
    structured_column: float = 0.4
    look_evaluations: int = 30
    structured_evaluations: int = 30
    # Seconds to read the data, for each number; for each row and level of a tree; for each expert.
    number_seconds: float = 2e-7
    tree_seconds: float = 1.5e-7
    expert_seconds: float = 4e-4
    # Sizes of the experts whose likelihood is timed.
    measured_rows: tuple[int, ...] = (50, 100, 200, 400, 1000)
    # Seconds of work that tell how long one waits for others, at least.
    least_work: float = 0.01
    # How much of a second worker's time is not spent waiting for the first.
    worker_gain: float = 0.4
    # Part of the budget that may be planned for: the rest is for what the plan does not know.
    planned_share: float = 0.8
    # Part of the time that is left which may be spent on the choice of a trend.
    trend_share: float = 0.25
    # Experts of fewer rows are not worth having.
    fewest_points: int = 25


COST = CostModel()


class Costs(NamedTuple):
    """Measured seconds of one evaluation of the likelihood, by the number of rows.

    Attributes
    ----------
    rows, seconds : ndarrays of shape (m,)
    wait : float
        Seconds that pass for each second of work: more than one on a machine with other work.
    """

    rows: Array
    seconds: Array
    wait: float = 1.0

    def evaluation(self, n: float) -> float:
        """Seconds for n rows: a power of n between two measurements, n^3 beyond the last."""
        beyond = max(1.0, n / self.rows[-1]) ** 3
        log_seconds = np.interp(np.log(n), np.log(self.rows), np.log(self.seconds))
        return float(beyond * np.exp(log_seconds))


class Job(NamedTuple):
    """Data and machine that the cost of a plan depends on.

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

    @property
    def gain(self) -> float:
        """How much faster the workers are than one."""
        return 1 + COST.worker_gain * (n_workers(self.n_jobs) - 1)

    def evaluation(self, n: float) -> float:
        """Seconds of a likelihood of n rows."""
        return self.costs.evaluation(n)


def job_of(data: TrainingData, kernel: NoisyKernel, space: SearchSpace, n_jobs: int | None) -> Job:
    """The job of fitting data, after measuring how fast this machine is."""
    n, d = data.X.shape
    return Job((n, d), not is_fixed(space), n_jobs, measure(data, kernel))


def measure(data: TrainingData, kernel: NoisyKernel) -> Costs:
    """Evaluate the likelihood of some rows, a few times each."""
    n = len(data.X)
    sizes = np.unique(np.minimum(COST.measured_rows, n))
    seconds = []
    start, worked = perf_counter(), thread_time()
    with single_threaded_blas():
        for size in sizes:
            likelihood = data.likelihood(np.linspace(0, n - 1, size).astype(int))
            rounds = []
            for _ in range(4):
                begin = perf_counter()
                likelihood.value_and_gradient(kernel)
                rounds.append(perf_counter() - begin)
            seconds.append(min(rounds))
    passed, worked = perf_counter() - start, thread_time() - worked
    return Costs(sizes, np.array(seconds), max(1.0, passed / max(worked, COST.least_work)))


def estimate(plan: Plan, job: Job) -> Plan:
    """The plan with its cost."""
    n, d = job.shape
    n_experts = max(1, n // plan.points_per_expert)
    seconds = COST.number_seconds * n * (d + 5) + COST.expert_seconds * n_experts
    seconds += COST.tree_seconds * n * np.log2(n_experts + 1) * (1 + plan.kernels)
    steps = steps_of(plan, job)
    return plan._replace(
        seconds=float(seconds + sum(steps.values())),
        bytes=memory_of(plan, job.shape),
        final_seconds=float(steps["experts"] + steps["conditioning"]),
    )


def steps_of(plan: Plan, job: Job) -> dict[str, float]:
    """Seconds for each of the phases in which experts are learned, in their order."""
    n, _ = job.shape
    n_experts = max(1, n // plan.points_per_expert)
    evaluation = job.evaluation
    if n_experts == 1:
        return {"experts": COST.single_evaluations * evaluation(n), "conditioning": 0.0}
    points = n / n_experts
    overlaps = affordable(n, n_experts, plan.overlaps)
    shares = any(shrinkage != 0.0 for shrinkage in plan.shrinkages)
    fits = 0.0
    if any(shrinkage != np.inf for shrinkage in plan.shrinkages):
        fits = (COST.held_evaluations if shares else COST.free_evaluations) * evaluation(points)
    known = min(n, points * (1 + max(overlaps)))
    blocks = min(FITTING.shared_blocks, max(1, n // plan.shared_rows)) if shares else 0
    shared = FITTING.shared_evaluations * blocks * evaluation(min(n, plan.shared_rows))
    choice = 0.0
    if job.compares:
        experts, rows = min(n_experts, COMMITTEE.experts), min(n, COMMITTEE.rows)
        for shrinkage, overlap in compared_committees(plan.shrinkages, overlaps):
            size = min(n, points * (1 + overlap))
            each = COST.conditioning * evaluation(size) + (shrinkage != np.inf) * fits
            choice += experts * each / job.gain + _asking(job, rows, n_experts, size)
    return {
        "kernel": min(plan.kernels, 1) * shared / job.gain,
        "near kernel": max(plan.kernels - 1, 0) * shared / job.gain,
        "choice": choice,
        "experts": n_experts * fits / job.gain,
        "conditioning": n_experts * COST.conditioning * evaluation(known) / job.gain,
    }


def _asking(job: Job, rows: int, n_experts: float, size: float) -> float:
    """Seconds to score a committee, whose experts know so many rows, on some rows."""
    queries = rows * min(n_experts, 8)
    seconds = queries * job.evaluation(size) / size * COST.querying / job.gain
    return COST.row_score_seconds * rows + seconds


def phases(plan: Plan, job: Job, settings: Settings) -> dict[str, float]:
    """Seconds for each phase of a whole fit, in their order: what progress is measured by.

    What a time budget does not plan for counts too: what is left out where time is short, and
    other work on the machine, which may end soon.
    """
    n, d = job.shape
    n_experts = max(1, n // plan.points_per_expert)
    seconds_of = _trends_of(job, settings.trends[n_experts > 1].trend) | steps_of(plan, job)
    # A budget takes wide tables for others.
    more = shared_evaluations(d + 2) / FITTING.shared_evaluations
    seconds_of |= {
        name: more * seconds_of[name] for name in ("kernel", "near kernel") if name in seconds_of
    }
    if n < 2 * plan.shared_rows:  # too few for a second kernel
        seconds_of.pop("near kernel", None)
    if settings.space.recalibrate:
        seconds_of["calibration"] = _seconds_of_calibration(plan, job, n_experts)
    few, many = SINGLE.structured_rows
    if settings.chooses_trend and few <= n <= many and d > 1:
        look = COST.look_evaluations * job.evaluation(min(n, SINGLE.look_rows))
        whole = COST.structured_evaluations * job.evaluation(n)
        factor = COST.structured_factor + COST.structured_column * d
        seconds_of["structure"] = factor * (look + whole)
    return {name: job.costs.wait * seconds for name, seconds in seconds_of.items()}


def _seconds_of_calibration(plan: Plan, job: Job, n_experts: int) -> float:
    n, _ = job.shape
    if n_experts == 1 and n < SINGLE.few_rows:
        rest = (1 - 1 / SINGLE.folds) * n
        folds = SINGLE.folds * COST.fold_evaluations * job.evaluation(rest) / job.gain
        variants = 4 if n <= SINGLE.noise_rows else 3
        forest = FOREST.seconds("forest", job.shape, job)["forest"]
        forests = (1 + SINGLE.forest_folds / job.gain) * forest
        return variants * (COST.free_evaluations * job.evaluation(n) + folds) + forests
    overlap = max(affordable(n, n_experts, plan.overlaps)) if n_experts > 1 else 0.0
    return _asking(
        job, min(n, COMMITTEE.learned_rows), n_experts, min(n, n / n_experts * (1 + overlap))
    )


def _trends_of(job: Job, trend: Any) -> dict[str, float]:
    """Seconds for each of the trends that a parameter names, compared where it leaves a choice."""
    if not isinstance(trend, str):
        return {f"{type(trend).__name__} trend": BOOSTED.fold_seconds(job.shape, job)}
    if trend == "auto" and job.shape[0] < TREND.fewest_rows:
        return {}
    seconds_of: dict[str, float] = {}
    for family in families(trend):
        seconds_of |= family.seconds(trend, job.shape, job)
    each = _seconds_to_compare(job) if trend == "auto" else 0.0
    seconds_of = {f"{name} trend": seconds + each for name, seconds in seconds_of.items()}
    first = next(iter(seconds_of), None)
    if first is not None:
        seconds_of[first] += each  # the constant is compared too
    return seconds_of


def _seconds_to_compare(job: Job) -> float:
    """Seconds to score committees under a trend, with two kernels, or one of few rows."""
    n, _ = job.shape
    kernels = 1 if n <= TREND.one_kernel_rows else 2
    evaluation = job.evaluation
    whole = n <= TREND.rows
    n_experts = min(n, TREND.rows if whole else TREND.regions * TREND.region_rows) / TREND.points
    rows = min(n, TREND.clusters * TREND.cluster_rows)
    fits = TREND.kernel_blocks * COST.trend_evaluations * evaluation(rows)
    known = min(n, 2 * TREND.points)
    experts = n_experts * COST.conditioning * evaluation(known)
    asking = _asking(job, min(n, COMMITTEE.rows), n_experts, known)
    return kernels * ((fits + experts) / job.gain + COST.trend_queries * asking)


def afford(whole: Plan, job: Job, seconds: float, least: int = COST.fewest_points) -> Plan:
    """The first plan that leaves some of the seconds, or the cheapest; with its cost.

    `least` is the smallest size of experts to consider.
    """
    options = [estimate(plan, job) for plan in plans(whole, least)]
    fitting = (plan for plan in options if plan.seconds <= COST.planned_share * seconds)
    return next(fitting, min(options, key=lambda plan: plan.seconds))


def plans(whole: Plan, least: int = COST.fewest_points) -> Iterator[Plan]:
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
