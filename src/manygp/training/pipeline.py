"""From rows to a fitted model: scale, plan, shared kernel, parts, experts, choice."""

from __future__ import annotations

from time import perf_counter
from typing import NamedTuple

import numpy as np

from manygp import validation
from manygp.arrays import Array, IndexArray, read_only
from manygp.committee.committee import MANY_ROWS
from manygp.committee.layout import Layout
from manygp.findings import Alternative, Plan
from manygp.gp.likelihood import TrainingData
from manygp.kernels.base import NoisyKernel, metric, split_noise
from manygp.kernels.catalogue import default_kernel
from manygp.model import FittedModel
from manygp.rules.partition import has_all_rows
from manygp.runtime.memory import physical_memory
from manygp.runtime.progress import say, warn
from manygp.runtime.words import duration
from manygp.scaling import Scaling, identity, to_standard, to_unit_cube
from manygp.settings import SearchSpace, Settings
from manygp.training import budget
from manygp.training.builder import Builder, memory_of, within_memory
from manygp.training.fitting import (
    SHARED_ROWS,
    Run,
    fit_shared,
    near_blocks,
    random_blocks,
    starts_of,
)
from manygp.training.repeats import Repeats, find_repeats, with_noise_floor, with_noise_of
from manygp.training.search import prefers, select
from manygp.training.single import Selection, or_structured
from manygp.training.trends import Prospect, choose, offers, start_kernel

# Part of the time that is left which may be spent on the choice of a trend.
TREND_SHARE = 0.25
# A kernel whose noise is at most this multiple of the least that its bounds allow has none; one
# that has at least this share of the variance is then tried.
NO_NOISE = 10.0
NOISE_FLOOR = 0.01


class Prepared(NamedTuple):
    """Rows in the units of the kernel, the kernel to start from, and how the rows were scaled.

    Attributes
    ----------
    data : TrainingData
    kernel : NoisyKernel
    x_scaling, y_scaling : Scaling
    columns : tuple of str, or int
        Names of the columns of X, or their number.
    repeats : Repeats or None
        What equal rows tell about the noise, if they are heard.
    """

    data: TrainingData
    kernel: NoisyKernel
    x_scaling: Scaling
    y_scaling: Scaling
    columns: tuple[str, ...] | int
    repeats: Repeats | None = None

    def kernel_of(self, prospect: Prospect, settings: Settings) -> NoisyKernel:
        """The kernel to start from where a trend leaves some of the targets only.

        A kernel of the user's own stays what it is.
        """
        if prospect.is_constant or settings.kernel is not None:
            return self.kernel
        kernel = start_kernel(self.data, prospect.mean_square)
        return kernel if self.repeats is None else with_noise_floor(kernel, self.repeats)


def prepare(settings: Settings, X: Array, Y: Array, columns: tuple[str, ...] | int) -> Prepared:
    """Scale rows X (n, d) and targets Y (n, t), and choose the kernel to start from."""
    return prepare_scaled(settings, X, Y, columns, _scalings(settings, X, Y))


def prepare_scaled(
    settings: Settings,
    X: Array,
    Y: Array,
    columns: tuple[str, ...] | int,
    scalings: tuple[Scaling, Scaling],
) -> Prepared:
    """The same with scalings of inputs and targets that are known."""
    n, d = X.shape
    own = settings.own_kernel(d)
    if own is not None:  # a wrong kernel is an error before any work
        own.check_columns(d)
    x_scaling, y_scaling = scalings
    alpha = _scaled_alpha(settings, n, y_scaling)
    Z = np.ascontiguousarray(x_scaling.apply(X))
    validation.check_magnitude(Z, "X", None if isinstance(columns, int) else columns)
    kernel = split_noise(default_kernel(d, Z.std(axis=0)) if own is None else own)
    if not settings.normalize_y and np.ptp(Y, axis=0).all():
        validation.check_raw_targets(Y, *_reach_of_bounds(kernel, Z))
    if not (kernel.noise_variance or alpha.any()):
        validation.check_repeated_rows(X, Y)
    data = TrainingData(Z, y_scaling.apply(Y), alpha, constant_mean=True)
    space, repeats = settings.search_space, None
    if space.standard and space.recalibrate:  # the paper's models stay as they are
        repeats = find_repeats(data)
        kernel = with_noise_floor(kernel, repeats)
        if settings.verbose and repeats.tell_noise:
            say(
                f"{repeats.n_repeated:,} of {n:,} rows repeat others; the noise variance is at "
                f"least {repeats.noise_floor:.2g} of that of y"
            )
    return Prepared(data, kernel, x_scaling, y_scaling, columns, repeats)


def _scalings(settings: Settings, X: Array, Y: Array) -> tuple[Scaling, Scaling]:
    """How inputs and targets are scaled."""
    if not settings.normalize_y:
        validation.check_magnitude(Y, "y", None)
    if len(Y) == 1:
        warn("one row tells nothing about errors; the std is a guess, and there is no interval")
    if len(Y) > 1 and np.any(Y.max(axis=0) == Y.min(axis=0)):
        warn("y is constant; predictions will be that constant")
    x_scaling = to_unit_cube(X) if settings.scales_X else identity(X.shape[1])
    y_scaling = to_standard(Y) if settings.normalize_y else identity(Y.shape[1])
    return Scaling(*map(read_only, x_scaling)), Scaling(*map(read_only, y_scaling))


def _scaled_alpha(settings: Settings, n: int, y_scaling: Scaling) -> Array:
    """Noise variances of the rows, (n,), in the units of the normalised target."""
    return validation.normalised_alpha(validation.check_alpha(settings.alpha, n), y_scaling.scale)


def _reach_of_bounds(kernel: NoisyKernel, Z: Array) -> tuple[float, float]:
    """The smallest noise variance and the largest prior variance within the kernel's bounds."""
    with np.errstate(over="ignore", under="ignore"):
        smallest, largest = (kernel.with_theta(theta) for theta in kernel.bounds.T)
        return smallest.noise_variance, float(largest.diag(Z).mean())


def train(
    settings: Settings, prepared: Prepared, seed: int, run: Run, begin: float
) -> FittedModel:
    """Fit the committee that the settings describe.

    Parameters
    ----------
    settings : Settings
    prepared : Prepared
    seed : int
    run : Run
    begin : float
        When the fit began, in the time of `perf_counter`; a time budget counts from there.
    """
    plan, deadline = _plan(settings, prepared, run, begin)
    foundation = lay_foundation(settings, prepared, plan, seed, run, deadline)
    found = select(
        foundation.builder, foundation.space, foundation.rng, foundation.compared, deadline
    )
    if settings.chooses_trend and deadline == np.inf:
        noise = prepared.kernel.noise
        found = or_structured(found, prepared.data, noise, foundation.space, run)
    return fitted_model(settings, prepared, plan, foundation.builder.kernel, found)


class Foundation(NamedTuple):
    """What experts are built on.

    Attributes
    ----------
    builder : Builder
        With the shared kernel, and rows with the trend under them.
    space : SearchSpace
        What the plan leaves to choose.
    compared : tuple of Alternative
        The trends and the shared kernels that were compared.
    rng : Generator
    """

    builder: Builder
    space: SearchSpace
    compared: tuple[Alternative, ...]
    rng: np.random.Generator


def lay_foundation(
    settings: Settings, prepared: Prepared, plan: Plan, seed: int, run: Run, deadline: float
) -> Foundation:
    """Choose the trend and the shared kernel."""
    space = settings.search_space
    space = space._replace(shrinkages=plan.shrinkages, overlaps=plan.overlaps)
    several = len(prepared.data.X) >= 2 * plan.points_per_expert
    if several and _lacks_one_kernel(space):
        raise ValueError(
            f"aggregation={settings.aggregation!r} needs one kernel for all experts: set "
            "hyperparameters='shared'"
        )
    data = prepared.data._replace(constant_mean=settings.constant_mean(several=several))
    trends = offers(settings.trend_to_find(several=several), data, seed, run)
    until = _until(deadline, plan, settings)
    prospect, compared = choose(trends, data, space, run, until)
    rng = np.random.default_rng(seed)
    context = _Context(data, prospect, settings, space, plan, rng, run)
    builder, kernels = _best_builder(context, prepared.kernel_of(prospect, settings), deadline)
    return Foundation(builder, space, (*compared, *kernels), rng)


def fitted_model(
    settings: Settings, prepared: Prepared, plan: Plan, kernel: NoisyKernel, found: Selection
) -> FittedModel:
    """All that was found, as a model."""
    single = found.committee.is_single
    return FittedModel(
        settings=settings,
        fitted_with=settings.rule_parameters,
        columns=prepared.columns,
        x_scaling=prepared.x_scaling,
        y_scaling=prepared.y_scaling,
        committee=found.committee,
        kernel=found.committee.experts[0].kernel if single else kernel,
        chosen=found.rules,
        rules=found.rules,
        conformity=found.conformity,
        honest=None if found.honest is None else read_only(found.honest),
        report=found.report,
        plan=plan,
    ).queried_by(settings)


def _until(deadline: float, plan: Plan, settings: Settings) -> float:
    """When to stop looking for a trend: a part of the time, if a budget leaves some at all."""
    now = perf_counter()
    affords_all = plan.kernels == settings.shared_kernels
    return now + TREND_SHARE * (deadline - now) if affords_all else now


def _lacks_one_kernel(space: SearchSpace) -> bool:
    """Whether the aggregation needs one kernel for all experts, which they are not to have."""
    return space.needs.one_kernel and space.shrinkages[0] != np.inf


def _plan(settings: Settings, prepared: Prepared, run: Run, begin: float) -> tuple[Plan, float]:
    """What is to be done, and when to stop looking for something better."""
    space, n = settings.search_space, len(prepared.data.X)
    points = int(settings.points_per_expert)
    shared = settings.shared_kernels
    plan = Plan(points, space.shrinkages, space.overlaps, SHARED_ROWS, shared)
    least, deadline = budget.LEAST_POINTS, np.inf
    if has_all_rows(settings.partitioner):
        plan, least = plan._replace(points_per_expert=n), n
    elif _lacks_one_kernel(space):
        least = points  # it has to stay a single expert
    if settings.time_budget is not None or settings.verbose:
        seconds = np.inf if settings.time_budget is None else float(settings.time_budget)
        left = seconds - (perf_counter() - begin)
        job = budget.job_of(prepared.data, prepared.kernel, space, settings.n_jobs)
        plan = budget.afford(plan, job, left, least)
        deadline = begin + seconds - plan.final_seconds
        if plan.seconds > left:
            warn(
                f"the least that can be done takes about {duration(plan.seconds)}, more than the "
                f"{seconds:g} s of time_budget"
            )
        phases = budget.phases(plan, job, settings)
        run.progress.expect(phases, left)
        if settings.time_budget is None:  # nothing will be left out
            plan = plan._replace(seconds=sum(phases.values()))
    plan = within_memory(plan, n)
    needed, memory = memory_of(plan, prepared.data.X.shape), physical_memory()
    if needed > memory:
        raise MemoryError(
            f"experts of {plan.points_per_expert:,} rows would take {needed / 1e9:.3g} GB, and "
            f"there are {memory / 1e9:.3g} GB: lower points_per_expert or overlap"
        )
    if settings.verbose:
        say(f"{n:,} rows; {plan}")
    return plan._replace(points_per_expert=points) if least == n else plan, deadline


class _Context(NamedTuple):
    """What all steps of a fit have in common."""

    data: TrainingData
    prospect: Prospect
    settings: Settings
    space: SearchSpace
    plan: Plan
    rng: np.random.Generator
    run: Run

    @property
    def n_parts(self) -> int:
        return max(1, len(self.data.X) // self.plan.points_per_expert)

    def starts(self, kernel: NoisyKernel) -> Array:
        return starts_of(kernel, self.settings.n_restarts_optimizer, self.rng)

    def shared_kernel(
        self, kernel: NoisyKernel, blocks: list[IndexArray], *, limit: bool = True
    ) -> NoisyKernel:
        starts, learned = self.starts(kernel), self.prospect.learned_from(self.data)
        return fit_shared(learned, blocks, kernel, starts, self.run, limit=limit)

    def layout(self, columns: Array) -> Layout:
        """The parts of the rows in a metric."""
        U = self.data.X * columns
        parts = self.settings.partitioner(U, self.n_parts, self.rng)
        check_parts(parts, len(U))
        return Layout.of(self.data.X, parts, columns)

    def builder(self, kernel: NoisyKernel, layout: Layout) -> Builder:
        starts = [self.starts(kernel) for _ in layout.parts]
        communication = None
        if self.space.needs.communication:
            n = len(self.data.X)
            communication = self.rng.permutation(n)[: n // self.n_parts]
        data = self.prospect.under(self.data, layout.parts, kernel, self.run.n_jobs)
        return Builder(data, layout, kernel, starts, communication, self.run)


def _best_builder(
    context: _Context, start: NoisyKernel, deadline: float
) -> tuple[Builder, list[Alternative]]:
    """The builder with the best shared kernel, and how kernels were compared.

    The first is of random rows, the second of rows near each other. Parts are made in the metric
    of the shared kernel, if there is one. Where the likelihood chooses no noise at all, which near
    rows with different targets can bring about, a kernel with some noise is tried as well.
    """
    (n, d), rows, rng = context.data.X.shape, context.plan.shared_rows, context.rng
    shared = context.n_parts > 1 and context.space.shrinkages[0] != 0.0
    shared = (
        shared or context.prospect.ridge is not None
    )  # it depends on what experts have learned
    kernel = start
    context.run.progress.begin("kernel")
    if shared:
        kernel = context.shared_kernel(start, random_blocks(n, rows, rng))
    layout = context.layout(metric(kernel, d) if shared else np.ones(d))
    if layout.is_single and not shared and n > MANY_ROWS:  # as a warm start
        kernel = context.shared_kernel(start, random_blocks(n, rows, rng), limit=False)
    builder = context.builder(kernel, layout)
    compares = context.plan.kernels == 2 and not layout.is_single and n >= 2 * rows
    if not compares or perf_counter() >= deadline:
        return builder, []
    context.run.progress.begin("near kernel")
    near = context.shared_kernel(kernel, near_blocks(context.data.X, kernel, rows, rng))
    other = context.builder(near, layout)
    better, compared = prefers(builder, other, context.space, rng, ("kernel", "far", "near"))
    best = other if better else builder
    best, more = _with_some_noise(context, start, best, deadline)
    if best is not builder:
        best = context.builder(best.kernel, context.layout(metric(best.kernel, d)))
    return best, [*compared, *more]


def _with_some_noise(
    context: _Context, start: NoisyKernel, best: Builder, deadline: float
) -> tuple[Builder, list[Alternative]]:
    """The best builder, or if it has no noise, one that has some if left-out rows prefer it."""
    in_time = perf_counter() < deadline
    if not (in_time and context.space.standard and has_no_noise(best.kernel)):
        return best, []
    (rng,) = context.rng.spawn(1)  # what is not taken changes nothing
    blocks = near_blocks(context.data.X, best.kernel, context.plan.shared_rows, rng)
    floor = NOISE_FLOOR * context.prospect.mean_square
    noisy = context.shared_kernel(with_noise_of(start, floor), blocks)
    other = context.builder(noisy, best.layout)
    better, compared = prefers(best, other, context.space, rng, ("noise", "free", "floor"))
    return other if better else best, compared


def has_no_noise(kernel: NoisyKernel) -> bool:
    """Whether its noise is next to the least that its bounds allow."""
    bounds = kernel.noise.bounds
    return len(bounds) == 1 and bool(np.log(kernel.noise_variance / NO_NOISE) <= bounds[0, 0])


def check_parts(parts: list[IndexArray], n: int) -> None:
    """Refuse a partition with an empty part, or without one of n rows."""
    if not parts or any(len(part) == 0 for part in parts):
        raise ValueError("the partition has an empty part; every expert needs rows")
    seen = np.zeros(n, dtype=bool)
    for part in parts:
        seen[part] = True
    if not seen.all():
        raise ValueError(f"the partition loses row {int(np.argmin(seen))}; every row needs a part")
