"""From rows to a fitted model: scale, plan, and the list of choices."""

from __future__ import annotations

from time import perf_counter
from typing import NamedTuple

import numpy as np

from manygp import inputs
from manygp.arrays import Array, IndexArray, read_only
from manygp.committee.committee import MANY_ROWS, Layout, has_all_rows
from manygp.fit_report import Alternative, Plan
from manygp.gp.marginal_likelihood import TrainingData
from manygp.gp.trend import TrendCandidate
from manygp.inputs import Scaling, identity, to_standard, to_unit_cube
from manygp.kernels.base import NoisyKernel, White, default_kernel, metric, split_noise
from manygp.model import FittedModel
from manygp.runtime.parallel import physical_memory
from manygp.runtime.progress import say, warn
from manygp.runtime.words import duration
from manygp.settings import SearchSpace, Settings
from manygp.training import budget
from manygp.training.choose import (
    Candidate,
    Choice,
    Selection,
    choose_committee,
    choose_trend,
    draw_left_out,
    evaluate,
    start_kernel,
    trend_factories,
)
from manygp.training.experts import (
    SHARED_ROWS,
    Builder,
    ExecutionContext,
    fit_shared,
    memory_of,
    near_blocks,
    random_blocks,
    starts_of,
    within_memory,
)
from manygp.training.single import fit_single, may_be_structured, try_structured_kernel

# Fewer repeated rows, or a smaller share of all rows, tell too little: where they agree, the rule
# of succession would claim noise that is not there.
FEWEST_REPEATS = 30
SMALLEST_SHARE = 0.05


class Repeats(NamedTuple):
    """Rows that are equal to an earlier one, and how their targets differ.

    Attributes
    ----------
    n_repeated : int
        Rows that repeat another one: the degrees of freedom of their differences.
    squares : float
        Sum of squared differences of normalised targets from the mean of their equals, averaged
        over the targets, less what is known noise.
    n_rows : int
        All rows.
    """

    n_repeated: int
    squares: float
    n_rows: int

    @property
    def tell_noise(self) -> bool:
        """Whether there are enough of them."""
        return self.n_repeated >= max(FEWEST_REPEATS, SMALLEST_SHARE * self.n_rows)

    @property
    def noise_floor(self) -> float:
        """Noise variance that the repeated rows speak of.

        Where they agree, a rule of succession holds: one more row might have differed as much as
        targets do. Without it the likelihood could choose no noise at all.
        """
        return (self.squares + 1.0) / (self.n_repeated + 1.0)


def find_repeats(data: TrainingData) -> Repeats:
    """Compare the targets of equal rows."""
    groups = _groups(data.X)
    n, n_groups = len(groups), int(groups.max()) + 1
    if n_groups == n:
        return Repeats(0, 0.0, n)
    sizes = np.bincount(groups)
    within = 0.0
    for y in data.residuals.T:
        mean = np.bincount(groups, y) / sizes
        within += float(((y - mean[groups]) ** 2).sum()) / data.residuals.shape[1]
    known = float((data.alpha * (1 - 1 / sizes[groups])).sum())
    return Repeats(n - n_groups, max(0.0, within - known), n)


def _groups(X: Array) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """A number for each distinct row: (n,).

    Equal rows have equal projections, which are quick to sort.
    """
    projection = X @ np.random.default_rng(0).normal(size=X.shape[1])
    order = np.argsort(projection, kind="stable")
    near = np.diff(projection[order]) == 0
    new = np.ones(len(X), dtype=bool)
    candidates = 1 + np.flatnonzero(near)
    new[candidates] = np.any(X[order[candidates]] != X[order[candidates - 1]], axis=1)
    groups = np.empty(len(X), dtype=np.intp)
    groups[order] = np.cumsum(new) - 1
    return groups


def with_noise_floor(kernel: NoisyKernel, repeats: Repeats) -> NoisyKernel:
    """The kernel whose noise is at least what repeated rows speak of."""
    return with_noise_of(kernel, repeats.noise_floor) if repeats.tell_noise else kernel


def with_noise_of(kernel: NoisyKernel, least: float) -> NoisyKernel:
    """The kernel whose noise variance is at least a number, if it is free."""
    noise = kernel.noise
    if isinstance(noise.variance_bounds, str):
        return kernel
    low, high = (max(float(one), least) for one in noise.variance_bounds)  # type: ignore[arg-type]
    variance = float(np.clip(noise.variance, low, high))
    return NoisyKernel(kernel.signal, White(variance, (low, high)))


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

    def kernel_under(self, trend: TrendCandidate, settings: Settings) -> NoisyKernel:
        """The kernel to start from where a trend leaves some of the targets only.

        A kernel of the user's own stays what it is.
        """
        if trend.is_constant or settings.kernel is not None:
            return self.kernel
        kernel = start_kernel(self.data, trend.mean_square)
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
    inputs.check_magnitude(Z, "X", None if isinstance(columns, int) else columns)
    kernel = split_noise(default_kernel(d, Z.std(axis=0)) if own is None else own)
    if not settings.normalize_y and np.ptp(Y, axis=0).all():
        inputs.check_raw_targets(Y, *_reach_of_bounds(kernel, Z))
    if not (kernel.noise_variance or alpha.any()):
        inputs.check_repeated_rows(X, Y)
    data = TrainingData(Z, y_scaling.apply(Y), alpha, constant_mean=True)
    space, repeats = settings.space, None
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
        inputs.check_magnitude(Y, "y", None)
    if len(Y) == 1:
        warn("one row tells nothing about errors; the std is a guess, and there is no interval")
    if len(Y) > 1 and np.any(Y.max(axis=0) == Y.min(axis=0)):
        warn("y is constant; predictions will be that constant")
    x_scaling = to_unit_cube(X) if settings.scales_X else identity(X.shape[1])
    y_scaling = to_standard(Y) if settings.normalize_y else identity(Y.shape[1])
    return Scaling(*map(read_only, x_scaling)), Scaling(*map(read_only, y_scaling))


def _scaled_alpha(settings: Settings, n: int, y_scaling: Scaling) -> Array:
    """Noise variances of the rows, (n,), in the units of the normalised target."""
    return inputs.normalised_alpha(inputs.check_alpha(settings.alpha, n), y_scaling.scale)


def _reach_of_bounds(kernel: NoisyKernel, Z: Array) -> tuple[float, float]:
    """The smallest noise variance and the largest prior variance within the kernel's bounds."""
    with np.errstate(over="ignore", under="ignore"):
        smallest, largest = (kernel.with_theta(theta) for theta in kernel.bounds.T)
        return smallest.noise_variance, float(largest.diag(Z).mean())


def train(
    settings: Settings, prepared: Prepared, seed: int, run: ExecutionContext, begin: float
) -> FittedModel:
    """Fit the committee that the settings describe: a list of choices, from top to bottom.

    Parameters
    ----------
    settings : Settings
    prepared : Prepared
    seed : int
    run : ExecutionContext
    begin : float
        When the fit began, in the time of `perf_counter`; a time budget counts from there.
    """
    plan, deadline = _plan(settings, prepared, run, begin)
    foundation = choose_trend_and_kernel(settings, prepared, plan, seed, run, deadline)
    builder, space, rng = foundation.builder, foundation.space, foundation.rng
    if builder.layout.is_single:
        found = fit_single(builder, space, rng)
    else:
        found = choose_committee(builder, space, rng, deadline)
    found = found.after(foundation.compared, trend=foundation.trend)
    if settings.chooses_trend and deadline == np.inf and may_be_structured(prepared.data):
        found = try_structured_kernel(found, prepared.data, prepared.kernel.noise, space, run)
    return fitted_model(settings, prepared, plan, builder.kernel, found)


class Foundation(NamedTuple):
    """What experts are built on.

    Attributes
    ----------
    builder : Builder
        With the shared kernel, and rows with the trend under them.
    space : SearchSpace
        What the plan leaves to choose.
    trend : str
        Name of the trend.
    compared : tuple of Alternative
        The trends and the shared kernels that were compared.
    rng : Generator
    """

    builder: Builder
    space: SearchSpace
    trend: str
    compared: tuple[Alternative, ...]
    rng: np.random.Generator


def choose_trend_and_kernel(
    settings: Settings,
    prepared: Prepared,
    plan: Plan,
    seed: int,
    run: ExecutionContext,
    deadline: float,
) -> Foundation:
    """The trend under all experts, and the kernel that they share."""
    space = settings.space._replace(shrinkages=plan.shrinkages, overlaps=plan.overlaps)
    several = len(prepared.data.X) >= 2 * plan.points_per_expert
    if several and _lacks_one_kernel(space):
        raise ValueError(
            f"aggregation={settings.aggregation!r} needs one kernel for all experts: set "
            "hyperparameters='shared'"
        )
    constant_mean, trend = settings.trend_of(several=several)
    data = prepared.data._replace(constant_mean=constant_mean)
    factories = trend_factories(trend, data, seed, run)
    best, trends = choose_trend(
        factories, data, space, run, _trend_deadline(deadline, plan, settings)
    )
    kernels = _SharedKernels(data, best, settings, space, plan, np.random.default_rng(seed), run)
    builder, compared = kernels.choose(prepared.kernel_under(best, settings), deadline)
    return Foundation(builder, space, best.name, (*trends, *compared), kernels.rng)


def fitted_model(
    settings: Settings, prepared: Prepared, plan: Plan, kernel: NoisyKernel, found: Selection
) -> FittedModel:
    """All that was found, as a model."""
    single = found.committee.is_single
    cross_validated = found.cross_validated
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
        conformal_scores=found.conformal_scores,
        cross_validated=None if cross_validated is None else read_only(cross_validated),
        report=found.report,
        plan=plan,
    ).queried_by(settings)


def _trend_deadline(deadline: float, plan: Plan, settings: Settings) -> float:
    """When to stop looking for a trend: a part of the time, if a budget leaves some at all."""
    now = perf_counter()
    affords_all = plan.kernels == settings.shared_kernels
    return now + TREND_SHARE * (deadline - now) if affords_all else now


def _lacks_one_kernel(space: SearchSpace) -> bool:
    """Whether the aggregation needs one kernel for all experts, which they are not to have."""
    return space.needs.one_kernel and space.shrinkages[0] != np.inf


def _plan(
    settings: Settings, prepared: Prepared, run: ExecutionContext, begin: float
) -> tuple[Plan, float]:
    """What is to be done, and when to stop looking for something better."""
    space, n = settings.space, len(prepared.data.X)
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


class _SharedKernels(NamedTuple):
    """The choice of the kernel that experts share, and of the parts of the rows in its metric."""

    data: TrainingData
    trend: TrendCandidate
    settings: Settings
    space: SearchSpace
    plan: Plan
    rng: np.random.Generator
    run: ExecutionContext

    @property
    def n_parts(self) -> int:
        return max(1, len(self.data.X) // self.plan.points_per_expert)

    def choose(self, start: NoisyKernel, deadline: float) -> tuple[Builder, list[Alternative]]:
        """The builder with the best shared kernel, and how kernels were compared.

        The first is of random rows, the second of rows near each other. Parts are made in the
        metric of the shared kernel, if there is one. Where the likelihood chooses no noise at all,
        which near rows with different targets can bring about, a kernel with some noise is tried
        as well.
        """
        (n, d), rows, rng = self.data.X.shape, self.plan.shared_rows, self.rng
        shared = self.n_parts > 1 and self.space.shrinkages[0] != 0.0
        shared = shared or self.trend.depends_on_experts
        kernel = start
        self.run.progress.begin("kernel")
        if shared:
            kernel = self._fitted(start, random_blocks(n, rows, rng))
        layout = self._layout(metric(kernel, d) if shared else np.ones(d))
        if layout.is_single and not shared and n > MANY_ROWS:  # as a warm start
            kernel = self._fitted(start, random_blocks(n, rows, rng), limit=False)
        builder = self._builder(kernel, layout)
        compares = self.plan.kernels == 2 and not layout.is_single and n >= 2 * rows
        if not compares or perf_counter() >= deadline:
            return builder, []
        self.run.progress.begin("near kernel")
        near = self._fitted(kernel, near_blocks(self.data.X, kernel, rows, rng))
        choice = self._compared(
            "kernel", {"far": builder, "near": self._builder(near, layout)}, rng
        )
        best, compared = choice.best, choice.alternatives
        in_time = perf_counter() < deadline
        if in_time and self.space.standard and has_no_noise(best.kernel):
            choice = self._with_some_noise(start, best)
            best, compared = choice.best, [*compared, *choice.alternatives]
        if best is not builder:
            best = self._builder(best.kernel, self._layout(metric(best.kernel, d)))
        return best, compared

    def _with_some_noise(self, start: NoisyKernel, best: Builder) -> Choice[Builder]:
        """The best builder, which has no noise, beside one that has some."""
        (rng,) = self.rng.spawn(1)  # what is not taken changes nothing
        blocks = near_blocks(self.data.X, best.kernel, self.plan.shared_rows, rng)
        floor = NOISE_FLOOR * self.trend.mean_square
        noisy = self._builder(self._fitted(with_noise_of(start, floor), blocks), best.layout)
        return self._compared("noise", {"free": best, "floor": noisy}, rng)

    def _compared(
        self, parameter: str, builders: dict[str, Builder], rng: np.random.Generator
    ) -> Choice[Builder]:
        """Builders of the same parts, compared by committees that share their kernel."""
        left_out = draw_left_out(next(iter(builders.values())), rng)
        candidate = Candidate(np.inf, self.space.overlaps[0])
        choice: Choice[Builder] = Choice(
            parameter, lambda one: evaluate(one, self.space, left_out, candidate).best_nll
        )
        for name, builder in builders.items():
            choice.consider(name, builder)
        return choice

    def _starts(self, kernel: NoisyKernel) -> Array:
        return starts_of(kernel, self.settings.n_restarts_optimizer, self.rng)

    def _fitted(
        self, kernel: NoisyKernel, blocks: list[IndexArray], *, limit: bool = True
    ) -> NoisyKernel:
        learned = self.data._replace(residuals=self.trend.residuals)
        return fit_shared(learned, blocks, kernel, self._starts(kernel), self.run, limit=limit)

    def _layout(self, columns: Array) -> Layout:
        """The parts of the rows in a metric."""
        U = self.data.X * columns
        parts = self.settings.partitioner(U, self.n_parts, self.rng)
        check_parts(parts, len(U))
        return Layout.of(self.data.X, parts, columns)

    def _builder(self, kernel: NoisyKernel, layout: Layout) -> Builder:
        starts = [self._starts(kernel) for _ in layout.parts]
        communication = None
        if self.space.needs.communication:
            n = len(self.data.X)
            communication = self.rng.permutation(n)[: n // self.n_parts]
        trend = self.trend.on(self.data, layout.parts, kernel, self.run.n_jobs)
        return Builder(self.data.on(trend), layout, kernel, starts, communication, self.run)


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
