"""What a fit will cost in seconds and bytes, and the best one that a budget affords."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import NamedTuple, Self

import numpy as np

from manygp.arrays import Array
from manygp.gp.likelihood import TrainingData
from manygp.kernels.base import Sum
from manygp.rules.records import Pull
from manygp.runtime.parallel import n_workers, single_threaded_blas
from manygp.runtime.words import counted
from manygp.training.fitting import SHARED_BLOCKS
from manygp.training.scores import JUDGED_EXPERTS, JUDGED_ROWS, Space
from manygp.training.search import affordable

# Evaluations of the likelihood that fits took on average: of the shared kernel, of an expert
# that is pulled to it, of one that is not, and of a single one.
SHARED_EVALUATIONS, PULLED_EVALUATIONS, FREE_EVALUATIONS, ALONE_EVALUATIONS = 30, 12, 40, 60
# Conditioning takes this share of an evaluation, and asking about one row this share of an
# evaluation over n; judging a committee so many seconds more per row. The data take so many per
# number, per row and level of a tree, and per expert.
CONDITIONING, ASKING, JUDGING = 0.65, 0.2, 1e-4
PASSES, TREE, EACH = 2e-7, 1.5e-7, 4e-4
MEASURED_ROWS = (50, 100, 200, 400, 1000)
# How much of a second worker's time is not spent waiting for the first.
GAIN = 0.4
# Part of the budget that may be planned for: the rest is for what the plan does not know.
PLANNED = 0.8
LEAST_POINTS = 25
# Bytes of the interpreter and its libraries, and of an expert without its arrays.
INTERPRETER, RECORD = 1.5e8, 2e4


class Costs(NamedTuple):
    """Seconds of one evaluation of the likelihood of so many rows, measured."""

    rows: Array
    seconds: Array

    def evaluation(self, n: float) -> float:
        """Of n rows: a power of n between two measurements, and n^3 beyond the last."""
        beyond = max(1.0, n / self.rows[-1]) ** 3
        log_seconds = np.interp(np.log(n), np.log(self.rows), np.log(self.seconds))
        return float(beyond * np.exp(log_seconds))


class Plan(NamedTuple):
    """What a fit may choose from, and what that costs.

    Attributes
    ----------
    points_per_expert : int
    pulls : tuple
        Precisions of the pull on the experts' hyperparameters that may be compared.
    overlaps : tuple of float
        Overlaps that may be compared.
    shared_rows : int
        Rows of each block that the shared kernel is fitted on.
    kernels : int
        Whether a shared kernel is fitted, and a second one of near rows too.
    seconds : float
        How long the fit will take, as estimated.
    bytes : float
        Memory that it needs, as estimated.
    final_seconds : float
        The last of these seconds, for the experts that are kept.
    """

    points_per_expert: int
    pulls: tuple[float | Pull, ...]
    overlaps: tuple[float, ...]
    shared_rows: int
    kernels: int
    seconds: float = np.nan
    bytes: float = np.nan
    final_seconds: float = np.nan

    def within_memory(self, n: int) -> Self:
        """The same for n rows, without overlaps whose factors are too large."""
        n_experts = max(1, n // self.points_per_expert)
        return self._replace(overlaps=tuple(affordable(n, n_experts, self.overlaps)))

    def __str__(self) -> str:
        steps = [
            f"experts of {self.points_per_expert} rows",
            f"overlap up to {max(self.overlaps):g}",
            counted(len(self.pulls), "pull"),
        ]
        if self.kernels:
            kernels = counted(self.kernels, "shared kernel")
            steps.append(f"{kernels} from blocks of {self.shared_rows} rows")
        cost = f": about {self.seconds:.2g} s and {self.bytes / 1e9:.2g} GB"
        return ", ".join(steps) + ("" if np.isnan(self.seconds) else cost)


def measure(data: TrainingData, kernel: Sum) -> Costs:
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


def estimate(
    plan: Plan, space: Space, shape: tuple[int, ...], n_jobs: int | None, costs: Costs
) -> Plan:
    """The plan with its cost on rows of a shape."""
    n, d = shape
    n_experts = max(1, n // plan.points_per_expert)
    overlaps = affordable(n, n_experts, plan.overlaps)
    points = n / n_experts
    speed = 1 + GAIN * (n_workers(n_jobs) - 1)
    passes = PASSES * n * (d + 5) + TREE * n * np.log2(n_experts + 1) * (1 + plan.kernels)
    passes += EACH * n_experts
    if n_experts == 1:
        final, rest = ALONE_EVALUATIONS * costs.evaluation(n), 0.0
        known = float(n)
    else:
        known = min(n, points * (1 + max(overlaps)))
        shares = any(pull != 0.0 for pull in plan.pulls)
        fits = 0.0
        if any(pull != np.inf for pull in plan.pulls):
            fits = (PULLED_EVALUATIONS if shares else FREE_EVALUATIONS) * costs.evaluation(points)
        final = n_experts * (fits + CONDITIONING * costs.evaluation(known)) / speed
        blocks = min(SHARED_BLOCKS, max(1, n // plan.shared_rows)) if shares else 0
        fitted = min(n, plan.shared_rows)
        rest = plan.kernels * SHARED_EVALUATIONS * blocks * costs.evaluation(fitted) / speed
        if not space.fixed:
            judged = min(n_experts, JUDGED_EXPERTS)
            asked = min(n, JUDGED_ROWS) * min(n_experts, 8)
            for pull, overlap in _compared(plan.pulls, overlaps):
                size = min(n, points * (1 + overlap))
                each = CONDITIONING * costs.evaluation(size) + (pull != np.inf) * fits
                asking = asked * costs.evaluation(size) / size * ASKING
                rest += JUDGING * min(n, JUDGED_ROWS) + (judged * each + asking) / speed
    return plan._replace(
        seconds=float(passes + rest + final),
        bytes=memory_of(plan, shape),
        final_seconds=float(final),
    )


def memory_of(plan: Plan, shape: tuple[int, ...]) -> float:
    """Bytes that a fit of rows of a shape needs: data, what experts know, and their factors."""
    n, d = shape
    n_experts = max(1, n // plan.points_per_expert)
    overlap = max(affordable(n, n_experts, plan.overlaps)) if n_experts > 1 else 0.0
    known = min(n, n / n_experts * (1 + overlap))
    numbers = 4 * n * (d + 2) + 2 * n_experts * known * (d + 2) + n_experts * known**2
    return float(INTERPRETER + 8 * numbers + RECORD * n_experts)


def _compared(
    pulls: tuple[float | Pull, ...], overlaps: list[float]
) -> Iterator[tuple[float | Pull, float]]:
    """Pulls at the first overlap, overlaps, and the neighbouring pulls again: see `select`."""
    yield from ((pull, overlaps[0]) for pull in pulls)
    yield from ((pulls[-1], overlap) for overlap in overlaps[1:])
    if len(overlaps) > 1:
        yield from ((pull, overlaps[-1]) for pull in pulls[1:3])


def afford(
    whole: Plan,
    space: Space,
    data: TrainingData,
    kernel: Sum,
    n_jobs: int | None,
    seconds: float,
    least: int = LEAST_POINTS,
) -> Plan:
    """The first plan that leaves some of the seconds, or the cheapest; with its cost.

    `least` is the smallest size of experts to consider.
    """
    costs = measure(data, kernel)
    options = [estimate(plan, space, data.X.shape, n_jobs, costs) for plan in plans(whole, least)]
    fitting = (plan for plan in options if plan.seconds <= PLANNED * seconds)
    return next(fitting, min(options, key=lambda plan: plan.seconds))


def plans(whole: Plan, least: int = LEAST_POINTS) -> Iterator[Plan]:
    """Cheaper and cheaper plans, the whole one first."""
    points = whole.points_per_expert
    while True:
        for n_pulls, n_overlaps, rows, kernels in (
            (4, 4, 1000, 2),
            (4, 3, 1000, 2),
            (2, 2, 1000, 2),
            (1, 2, 1000, 1),
            (1, 1, 1000, 1),
            (1, 1, 500, 1),
        ):
            yield whole._replace(
                points_per_expert=points,
                pulls=whole.pulls[:n_pulls],
                overlaps=whole.overlaps[:n_overlaps],
                shared_rows=min(rows, whole.shared_rows),
                kernels=min(kernels, whole.kernels),
            )
        points //= 2
        if points < least:
            return
