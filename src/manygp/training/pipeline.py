"""From rows to a committee: shared kernel, parts in its metric, experts, and the choice."""

from __future__ import annotations

from time import perf_counter
from typing import NamedTuple

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.committee.committee import Committee
from manygp.committee.layout import Layout
from manygp.gp.likelihood import TrainingData
from manygp.kernels.base import Sum, metric
from manygp.rules.aggregation import grbcm
from manygp.rules.records import Partitioner
from manygp.training.budget import Plan
from manygp.training.builder import Workshop
from manygp.training.fitting import MANY_ROWS, Run, fit_shared, starts_of
from manygp.training.scores import Space
from manygp.training.search import Alternative, CalibrationReport, Choice, prefers, select


class Trained(NamedTuple):
    """The committee, how it is asked, and how that was chosen.

    `kernel` is the one that the experts share or started from, or that of a single expert.
    """

    committee: Committee
    choice: Choice
    report: CalibrationReport | None
    kernel: Sum
    alone: bool


def train(
    data: TrainingData,
    kernel: Sum,
    partition: Partitioner,
    space: Space,
    plan: Plan,
    deadline: float,
    n_restarts: int,
    rng: np.random.Generator,
    run: Run,
) -> Trained:
    """Fit the committee.

    Parameters
    ----------
    data : TrainingData
    kernel : Sum
        Signal plus White: the start.
    partition : callable
    space : Space
        What there is to choose from.
    plan : Plan
        The size of experts, and how much effort to make.
    deadline : float
        When to stop looking for a better committee, in the time of `perf_counter`.
    n_restarts : int
        Further random starts of fits that nothing pulls on.
    rng : Generator
    run : Run
    """
    n, d = data.X.shape
    n_parts = max(1, n // plan.points_per_expert)

    def shared_kernel(limit: bool = True, local: bool = False) -> Sum:
        rows = plan.shared_rows
        return fit_shared(data, kernel, n_restarts, rng, run, rows, limit, local)

    def parted(columns: Array) -> list[IndexArray]:
        parts = partition(data.X * columns, n_parts, rng)
        _check_parts(parts, n)
        return parts

    def workshop_of(kernel: Sum, parts: list[IndexArray], columns: Array) -> Workshop:
        return Workshop(
            data,
            Layout.of(data.X * columns, parts, columns),
            kernel,
            [starts_of(kernel, n_restarts, rng) for _ in parts],
            rng.permutation(n)[: n // n_parts] if space.aggregation is grbcm else None,
            run,
        )

    shared = n_parts > 1 and space.pulls[0] != 0.0
    if shared:  # one kernel first, and the parts in its metric
        kernel = shared_kernel()
    columns = metric(kernel, d) if shared else np.ones(d)
    parts = parted(columns)
    alone = len(set(map(id, parts))) == 1
    if alone and not shared and n > MANY_ROWS:  # as a warm start
        kernel = shared_kernel(limit=False)
    workshop = workshop_of(kernel, parts, columns)
    kernels: list[Alternative] = []
    in_time = perf_counter() < deadline
    if plan.kernels == 2 and not alone and n >= 2 * plan.shared_rows and in_time:
        near = shared_kernel(local=True)
        better, kernels = prefers(workshop, workshop_of(near, parts, columns), space, rng)
        if better:
            kernel, columns = near, metric(near, d)
            workshop = workshop_of(kernel, parted(columns), columns)
    committee, choice, report = select(workshop, space, rng, kernels, deadline)
    kernel = committee.experts[0].kernel if alone else kernel
    return Trained(committee, choice, report, kernel, alone)


def _check_parts(parts: list[IndexArray], n: int) -> None:
    if not parts or any(len(part) == 0 for part in parts):
        raise ValueError("the partition has an empty part; every expert needs rows")
    seen = np.zeros(n, dtype=bool)
    for part in parts:
        seen[part] = True
    if not seen.all():
        raise ValueError(f"the partition loses row {int(np.argmin(seen))}; every row needs a part")
