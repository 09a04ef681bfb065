"""From rows to a fitted model: scale, plan, and the list of choices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from manygp import answers, inputs
from manygp.answers import queried_by
from manygp.arrays import AnyArray, Array, IndexArray
from manygp.calibration import LeftOutErrors
from manygp.fit_report import Alternative, NothingLearnedWarning, Plan
from manygp.gp.marginal_likelihood import TrainingData
from manygp.gp.trend import TrendCandidate
from manygp.inputs import KnownRows, Scaling, read_only
from manygp.kernels.base import NoisyKernel, default_kernel, split_noise
from manygp.metrics import interval_score
from manygp.model import FittedModel
from manygp.noise import learn_noise
from manygp.runtime.parallel import physical_memory
from manygp.runtime.progress import say, warn
from manygp.runtime.words import duration
from manygp.settings import SearchSpace, Settings
from manygp.steps import STEP, Moments, Step, choose_step, shared_value, snapped
from manygp.targets import TargetTransform, are_whole, found_bounds
from manygp.training import budget
from manygp.training.choose import (
    Choice,
    KernelChoice,
    Selection,
    choose_committee,
)
from manygp.training.experts import (
    FITTING,
    Builder,
    ExecutionContext,
    memory_of,
    start_kernel,
    with_noise_of,
    within_memory,
)
from manygp.training.single import SINGLE, fit_single, try_structured_kernel
from manygp.training.trends import choose_trend, trend_factories


@dataclass(frozen=True)
class RepeatChoice:
    """Numbers of the choice of a noise floor by repeated rows, and why they are what they are."""

    # Fewer repeated rows, or a smaller share of all rows, tell too little: where they agree, the
    # rule of succession would claim noise that is not there.
    fewest: int = 30
    smallest_share: float = 0.05


REPEATS = RepeatChoice()


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
    mean_weight : float
        That of all rows. Squared differences are times the weights of rows.
    """

    n_repeated: int
    squares: float
    n_rows: int
    mean_weight: float = 1.0

    @property
    def tell_noise(self) -> bool:
        """Whether there are enough of them."""
        return self.n_repeated >= max(REPEATS.fewest, REPEATS.smallest_share * self.n_rows)

    @property
    def noise_floor(self) -> float:
        """Noise variance that the repeated rows speak of.

        Where they agree, a rule of succession holds: one more row might have differed as much as
        targets do. Without it the likelihood could choose no noise at all.
        """
        return (self.squares + self.mean_weight) / (self.n_repeated + 1.0)

    def tell(self, *, verbose: bool) -> None:
        """Say so on standard error if there are enough of them."""
        if verbose and self.tell_noise:
            say(
                f"{self.n_repeated:,} of {self.n_rows:,} rows repeat others; the noise variance "
                f"is at least {self.noise_floor:.2g} of that of y"
            )


def find_repeats(data: TrainingData) -> Repeats:
    """Compare the targets of equal rows."""
    groups = groups_of(data.X)
    n, n_groups = len(groups), int(groups.max()) + 1
    if n_groups == n:
        return Repeats(0, 0.0, n)
    weights = np.ones(n) if data.spread is None else 1 / data.spread
    sizes = np.bincount(groups, weights)
    within = 0.0
    for y in data.residuals.T:
        mean = np.bincount(groups, weights * y) / sizes
        within += float((weights * (y - mean[groups]) ** 2).sum()) / data.residuals.shape[1]
    known = float((data.alpha * weights * (1 - weights / sizes[groups])).sum())
    return Repeats(n - n_groups, max(0.0, within - known), n, float(weights.mean()))


def groups_of(X: Array) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """A number for each distinct row: (n,).

    Equal rows have equal projections, which are quick to sort.
    """
    unit = np.maximum(np.abs(X).max(axis=0), 1e-300)
    directions = np.random.default_rng(0).normal(size=X.shape[1]) / unit
    projection = np.zeros(len(X))
    for column, direction in zip(X.T, directions, strict=True):
        projection += column * direction  # BLAS would round equal rows by their places
    order = np.argsort(projection, kind="stable")
    near = np.diff(projection[order]) == 0
    new = np.ones(len(X), dtype=bool)
    candidates = 1 + np.flatnonzero(near)
    new[candidates] = np.any(X[order[candidates]] != X[order[candidates - 1]], axis=1)
    groups = np.empty(len(X), dtype=np.intp)
    groups[order] = np.cumsum(new) - 1
    return groups


@dataclass(frozen=True)
class CopyChoice:
    """Numbers of what counts as copies of rows, and why they are what they are."""

    # Where more pairs of rows have equal targets, rows that are equal may be measurements that
    # agree: targets are counts, classes or coarsely rounded.
    equal_targets: float = 0.01
    # Where rows come more often on average, equal ones are what the data are about: a table of
    # prices by product, a simulation without noise.
    most_often: float = 4.0


COPIES = CopyChoice()


def without_copies(settings: Settings, rows: KnownRows, encoder: Any) -> IndexArray | None:
    """Places (m,) of rows that are no copies of a later one; None if there are no copies.

    Two measurements of a continuous target never agree to the last digit: rows that are equal in
    everything are one row that came twice. Taken for two, they say that there is no noise, and
    that what is left out is known. `encoder` is that of a table: means of categories differ
    between folds of the rows, and in their place stand the categories themselves.
    """
    n = len(rows.X)
    X = rows.X if encoder is None else without_means(encoder, rows.X, encoder.codes_)
    weights = np.ones(n) if rows.weights is None else rows.weights
    groups = groups_of(np.column_stack([X, rows.Y, rows.alpha, weights]))
    last = np.empty(groups.max() + 1, dtype=np.intp)
    last[groups] = np.arange(n)
    m = len(last)
    kept = np.sort(last)
    is_paper = not (settings.space.standard and settings.space.recalibrate)  # it stays as it is
    if is_paper or m == n or n > COPIES.most_often * m or targets_agree(rows.Y[kept]):
        return None
    copies = "1 row is a copy of another" if n == m + 1 else f"{n - m:,} rows are copies of others"
    warn(
        f"{copies}, equal in all columns and in y, and left out: exact copies are rarely separate "
        "measurements. If these are, fit one row for all that agree, with their number as its "
        "sample_weight. Scores and loo_predict() are of the rows that stay: row_ids_ has their "
        "numbers"
    )
    return kept


def targets_agree(Y: Array) -> bool:
    """Whether so many targets (n, t) are equal that measurements may agree."""
    n = len(Y)
    _, counts = np.unique(groups_of(Y), return_counts=True)
    return bool((counts * (counts - 1.0)).sum() > COPIES.equal_targets * n * (n - 1.0))


def without_means(encoder: Any, X: Array, codes: AnyArray) -> Array:
    """Rows with categories in the place of columns that are means of them."""
    means = [bool(column.means) for column in encoder.columns_ for _ in column.features]
    return np.hstack([X[:, ~np.array(means, dtype=bool)], codes])


def learned_rows(
    estimator: Any, data: Any, settings: Settings, encoder: Any, weights: Any, splits: Any
) -> tuple[KnownRows, IndexArray | None]:
    """Rows of the data X, y to learn from, and their numbers if there are others.

    Others have no weight or are copies. Where rows are left out by `splits`, copies are, too.
    """
    known_weights = inputs.check_weights(weights, data[1])
    numbers = None
    if known_weights is not None and not known_weights.all():
        numbers = np.flatnonzero(known_weights)
    if splits is not None:
        known = weights, settings.alpha, splits.groups
        return inputs.known_rows(estimator, data, encoder, *known), numbers
    rows = inputs.known_rows(estimator, data, encoder, weights, settings.alpha)
    kept = without_copies(settings, rows, encoder)
    if kept is not None and encoder is None:
        rows = rows.some(kept)
    elif kept is not None:  # the encoder shall not have learned from copies
        own = weights, settings.alpha
        rows = inputs.known_rows_at(estimator, data, encoder, own, kept)
    if kept is None or numbers is None:
        return rows, numbers if kept is None else kept
    return rows, numbers[kept]


def with_noise_floor(kernel: NoisyKernel, repeats: Repeats) -> NoisyKernel:
    """The kernel whose noise is at least what repeated rows speak of."""
    return with_noise_of(kernel, repeats.noise_floor) if repeats.tell_noise else kernel


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
    transform : TargetTransform or None
        The map of targets that was scaled; None if they were scaled as they are.
    compared : tuple of Alternative
        The transforms that were compared.
    is_trial : bool
        Whether this is for a comparison only.
    warm : NoisyKernel or None
        The kernel of a fit before, from which this one goes on.
    order : ndarray of shape (n,), or None
        The place of each row among those that were given, if they are in an order of their own.
    shared : float or None
        A value that many targets share, if it may be a step of their distribution.
    whole : bool
        Whether all targets are whole numbers.
    """

    data: TrainingData
    kernel: NoisyKernel
    x_scaling: Scaling
    y_scaling: Scaling
    columns: tuple[str, ...] | int
    repeats: Repeats | None = None
    transform: TargetTransform | None = None
    compared: tuple[Alternative, ...] = ()
    is_trial: bool = False
    warm: NoisyKernel | None = None
    order: IndexArray | None = None
    shared: float | None = None
    whole: bool = False

    @property
    def chosen(self) -> dict[str, str]:
        """What the report says of the transform, if there is anything to say."""
        name = "none" if self.transform is None else self.transform.name
        return {"target": name} if name != "none" or self.compared else {}

    def kernel_under(self, trend: TrendCandidate, settings: Settings) -> NoisyKernel:
        """The kernel to start from where a trend leaves some of the targets only.

        A kernel of the user's own stays what it is.
        """
        kernel = self.kernel
        if not (trend.is_constant or settings.kernel is not None):
            kernel = start_kernel(self.data, trend.mean_square)
            kernel = kernel if self.repeats is None else with_noise_floor(kernel, self.repeats)
        if self.warm is None or self.warm.theta_names != kernel.theta_names:
            return kernel
        return kernel.with_theta(np.clip(self.warm.theta, *kernel.bounds.T))


@dataclass(frozen=True)
class TargetChoice:
    """Numbers of the choice of a transform of targets, and why they are what they are."""

    # The least skewness, of either sign, of targets for which a transform is tried: none of the
    # ten tasks of the paper has more than .6, prices, counts and delays have 1.1 to 6.
    skewness: float = 1.0
    # Targets with room for their squares.
    squares: tuple[float, float] = (1e-100, 1e100)
    # Fewer rows do not choose, and more than these are not needed.
    fewest_rows: int = 50
    rows: int = 1500
    # Their experts: rows of each at most, overlap, and how many are queried.
    points: int = 200
    overlap: float = 1.0
    nearest: int = 4
    # A time budget of fewer seconds has no time for it.
    least_budget: float = 60.0
    # Standard errors of its gain in log score that a transform must gain: the small models lack
    # trends and structured kernels, which may gain the same.
    min_gain: float = 3.0
    # Coverage of the intervals whose score must not be worse, and by how much the squared error
    # may be: densities pile up at a value that most targets have, while other intervals explode.
    coverage: float = 0.9
    most_error: float = 1.02**2
    # Fewer rows that were left out do not tell whether anything was learned.
    fewest_judged: int = 200


TARGET = TargetChoice()


def choose_transform(
    settings: Settings,
    rows: KnownRows,
    columns: tuple[str, ...] | int,
    others: Array | None = None,
) -> tuple[TargetTransform | None, tuple[Alternative, ...]]:
    """The map of targets that is modelled, and what was compared.

    None if they are modelled as they are. Small models of some rows, with a constant trend and a
    shared kernel, are compared by the log score of rows that were left out, in the units of y.

    Parameters
    ----------
    settings : Settings
    rows : KnownRows
    columns : tuple of str, or int
    others : ndarray of shape (m, t), optional
        Further targets that the map is for, whose rows are not known.
    """
    Y = rows.Y
    every = Y if others is None else np.concatenate([Y, others])
    name, compared = settings.target_transform or "none", tuple[Alternative, ...]()
    if name == "auto":
        name = "none"
        if settings.chooses_target and _may_be_transformed(settings, Y):
            names = ["none", *(["log"] if every.min() >= 0 else []), "yeo-johnson"]
            name, compared = _compared_transforms(names, settings, rows, columns)
    transform = TargetTransform.learned(name, every)
    if settings.bounds is not None:
        transform = transform.within(settings.bounds, every)
    elif settings.shapes_target and len(Y) >= TARGET.fewest_rows:
        transform = transform.cut(*found_bounds(every))
    return (None if transform.is_identity else transform), compared


def _may_be_transformed(settings: Settings, Y: Array) -> bool:
    """Whether one target is so skewed that a transform is worth trying."""
    budget_left = settings.time_budget is None or settings.time_budget >= TARGET.least_budget
    if Y.shape[1] > 1 or len(Y) < TARGET.fewest_rows or not budget_left:
        return False
    if not _have_squares(Y):
        return False
    error = (Y - Y.mean()) / np.ptp(Y)
    return bool(abs((error**3).mean()) > TARGET.skewness * (error**2).mean() ** 1.5)


def _have_squares(Y: Array) -> bool:
    """Whether targets and their differences have room for their squares."""
    low, high = float(Y.min()), float(Y.max())
    return TARGET.squares[0] < high / 2 - low / 2 < max(-low, high) < TARGET.squares[1]


def _compared_transforms(
    names: list[str], settings: Settings, rows: KnownRows, columns: tuple[str, ...] | int
) -> tuple[str, tuple[Alternative, ...]]:
    """The name of the best transform, and how each was scored, in units of the std of y."""
    some = np.sort(np.random.default_rng(0).permutation(len(rows.Y))[: TARGET.rows])
    rows = rows.some(some)
    Y = rows.Y
    lean = replace(
        settings,
        trend="constant" if settings.chooses_trend else settings.trend,
        points_per_expert=min(int(settings.points_per_expert), TARGET.points),
        hyperparameters="shared",
        overlap=TARGET.overlap,
        routing=TARGET.nearest,
        time_budget=None,
        verbose=False,
    )
    scores = {}
    for name in names:
        transform = TargetTransform.learned(name, Y)
        prepared = prepare(lean, rows, columns, transform=transform)
        prepared = prepared._replace(is_trial=True, whole=False)  # ends as they are tell more
        run = ExecutionContext(settings.n_jobs, optimizer=settings.optimizer)
        scores[name] = _scores_of(_small_model(lean, prepared, run))
    choice: Choice[str] = Choice("target", lambda name: scores[name][0], TARGET.min_gain)
    _, interval, error = scores["none"]
    for name in names:
        if scores[name][1] <= interval and scores[name][2] <= TARGET.most_error * error:
            choice.consider(name, name)
    unit = float(np.log(Y.std()))
    compared = (
        Alternative("target", name, float(nll.mean()) - unit, name == choice.value)
        for name, (nll, _, _) in scores.items()
    )
    return choice.best, tuple(compared)


def _small_model(settings: Settings, prepared: Prepared, run: ExecutionContext) -> FittedModel:
    """A model that is only compared: of many rows its kernel is not learned again without some."""
    space, points = settings.space, int(settings.points_per_expert)
    plan = Plan(points, space.shrinkages, space.overlaps, FITTING.shared_rows, kernels=1)
    foundation = choose_trend_and_kernel(settings, prepared, plan, 0, run, np.inf)
    builder, space, rng = foundation.builder, foundation.space, foundation.rng
    if builder.layout.is_single:
        selection = fit_single(builder, space, rng, tries_trends=False, compares=False)
    else:
        all_teach = len(prepared.data.X) <= FITTING.shared_rows  # the kernel, which knows them
        selection = choose_committee(builder, space, rng, holds_out=all_teach)
    selection = choose_noise(settings, prepared.data.X, selection)
    return fitted_model(settings, prepared, plan, builder.kernel, selection)


def _scores_of(model: FittedModel) -> tuple[Array, float, float]:
    """Log scores (N,) of left-out rows, their interval score, and mean squared error."""
    _, Y, mean, std = answers.left_out_transformed(model)
    y = Y[:, 0]
    lower, upper = answers.interval_of(model, mean, std, TARGET.coverage)
    error = y - answers.in_units_of_y(model, mean, std)[0]
    interval = interval_score(y, lower, upper, TARGET.coverage)
    return -answers.distribution_of(model, mean, std).logpdf(y), interval, float((error**2).mean())


def prepare(
    settings: Settings,
    rows: KnownRows,
    columns: tuple[str, ...] | int,
    scalings: tuple[Scaling, Scaling] | None = None,
    transform: TargetTransform | None = None,
) -> Prepared:
    """Scale rows and targets, and choose the kernel to start from.

    Scalings of inputs and targets that are not given are those of these rows. Targets are
    transformed before they are scaled. The default model of few rows depends on what they hold,
    and not on their order.
    """
    order, is_default = None, all((settings.space.standard, settings.space.recalibrate))
    if scalings is None and is_default and _are_sorted(settings, rows):
        rows, order = rows.in_own_order()
    X, Y, known_noise, weights = rows
    d = X.shape[1]
    own = None if settings.kernel is None else settings.own_kernel(d)
    described = _described(settings, Y)
    if transform is not None:
        known_noise, Y = transform.of_rows(known_noise, Y)
    x_scaling, y_scaling = scalings or inputs.scalings(
        X, Y, weights, scale_X=settings.scales_X, scale_y=settings.normalize_y
    )
    alpha = inputs.normalised_alpha(known_noise, y_scaling.scale)
    Z = inputs.scaled_rows(X, x_scaling, columns)
    spread, weight = None, 1.0
    if weights is not None:
        spread, weight = read_only(1 / weights), float(weights.mean())
    data = TrainingData(Z, y_scaling.apply(Y), alpha, constant_mean=True, spread=spread)
    kernel = split_noise(default_kernel(d, Z.std(axis=0), 1.0, weight) if own is None else own)
    if not settings.normalize_y:
        _check_raw_targets(kernel, Z, Y)
    if not (kernel.noise_variance or alpha.any()):
        inputs.check_repeated_rows(X, Y)
    repeats = None
    if is_default:  # the paper's models stay as they are
        repeats = find_repeats(data)
        kernel = with_noise_floor(kernel, repeats)
        repeats.tell(verbose=settings.verbose)
    prepared = Prepared(data, kernel, x_scaling, y_scaling, columns, repeats, transform)
    return prepared._replace(order=order, **described)


def _described(settings: Settings, Y: Array) -> dict[str, Any]:
    """What targets (n, t) as they are tell of the shape of their distribution."""
    if not settings.shapes_target:
        return {}
    return {"shared": shared_value(Y) if _have_squares(Y) else None, "whole": are_whole(Y)}


def _are_sorted(settings: Settings, rows: KnownRows) -> bool:
    """Whether rows are put into an order of their own: few, of which no message names one."""
    return settings.scales_X and len(rows.X) <= SINGLE.sorted_rows


def _check_raw_targets(kernel: NoisyKernel, Z: Array, Y: Array) -> None:
    """Warn if the kernel's bounds hold no variance as small or as large as that of raw targets."""
    if not np.ptp(Y, axis=0).all():
        return
    with np.errstate(over="ignore", under="ignore"):
        smallest, largest = (kernel.with_theta(theta) for theta in kernel.bounds.T)
        inputs.check_raw_targets(Y, smallest.noise_variance, float(largest.diag(Z).mean()))


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
        tries_trends = settings.chooses_trend and perf_counter() < deadline
        selection = fit_single(builder, space, rng, tries_trends=tries_trends)
    else:
        selection = choose_committee(builder, space, rng, deadline)
    selection = selection.after(foundation.compared, trend=foundation.trend)
    selection = selection.after(prepared.compared, **prepared.chosen)
    if settings.chooses_trend and deadline == np.inf and _may_be_structured(prepared.data):
        selection = try_structured_kernel(
            selection, prepared.data, prepared.kernel.noise, space, run
        )
    selection = choose_noise(settings, prepared.data.X, selection)
    if selection.errors is not None and not prepared.is_trial:
        warn_if_useless(selection.errors, prepared.data.residuals)
    return fitted_model(settings, prepared, plan, builder.kernel, selection)


def choose_noise(settings: Settings, X: Array, selection: Selection) -> Selection:
    """The selection, with noise that depends on the row, X of (n, d), if that is better."""
    if selection.errors is None or selection.report is None or not settings.space.recalibrate:
        return selection
    forced = settings.noise == "local" if settings.learns_noise else None
    noise, compared = learn_noise(
        selection.errors, selection.rules.recalibration, X, forced=forced
    )
    report = selection.report
    chosen = {**report.chosen, **{one.parameter: one.value for one in compared if one.chosen}}
    if settings.learns_noise:
        is_local = noise is not None and bool(np.any(noise.strength))
        chosen["local noise"] = "local" if is_local else "constant"
    report = report._replace(chosen=chosen, alternatives=(*report.alternatives, *compared))
    return selection._replace(noise=noise, report=report)


def warn_if_useless(errors: LeftOutErrors, targets: Array) -> None:
    """Warn if rows that were left out are predicted no better than by the mean of the others.

    `targets` (n, t) are those of all training rows, normalised.
    """
    n = len(errors.rows)
    if n < TARGET.fewest_judged:
        return
    y = targets[errors.rows]
    explained = 1 - errors.squares.mean() / max(float(y.var(axis=0).mean()), 1e-300)
    if explained <= 0:
        warn(
            f"nothing was learned that helps to predict new rows: {n:,} training rows, each left "
            f"out, are predicted no better than by a constant (R^2 {explained:.2g})",
            NothingLearnedWarning,
        )


def _may_be_structured(data: TrainingData) -> bool:
    """Whether there are so many rows and columns that a structured kernel is worth trying."""
    (n, d), (fewest, most) = data.X.shape, SINGLE.structured_rows
    return fewest <= n <= most and d > 1


class Foundation(NamedTuple):
    """Trend, kernel and rows that experts are built on.

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
    constant_mean, trend = settings.trends[several]
    data = prepared.data._replace(constant_mean=constant_mean)
    factories = trend_factories(trend, data, seed, run)
    best, trends = choose_trend(
        factories, data, space, run, _trend_deadline(deadline, plan, settings)
    )
    kernels = KernelChoice(data, best, settings, space, plan, np.random.default_rng(seed), run)
    builder, compared = kernels.choose(prepared.kernel_under(best, settings), deadline)
    return Foundation(builder, space, best.name, (*trends, *compared), kernels.rng)


def fitted_model(
    settings: Settings, prepared: Prepared, plan: Plan, kernel: NoisyKernel, selection: Selection
) -> FittedModel:
    """The fitted model of a selection."""
    single = selection.committee.is_single
    cross_validated, scores = selection.cross_validated, None
    if selection.errors is not None:
        known = None if selection.noise is None else selection.noise.held_out
        scores = selection.errors.conformal_scores(selection.rules.recalibration, known)
    model = FittedModel(
        settings=settings,
        fitted_with=settings.rule_parameters,
        columns=prepared.columns,
        x_scaling=prepared.x_scaling,
        y_scaling=prepared.y_scaling,
        committee=selection.committee,
        kernel=selection.committee.experts[0].kernel if single else kernel,
        chosen=selection.rules,
        rules=selection.rules,
        conformal_scores=scores,
        noise=selection.noise,
        errors=selection.errors,
        cross_validated=None if cross_validated is None else read_only(cross_validated),
        report=selection.report,
        plan=plan,
        target_transform=prepared.transform,
        whole=prepared.whole,
    )
    if not prepared.is_trial:
        model = with_step(model, prepared.shared)
    if prepared.order is not None:
        model = _in_order_of_data(model, prepared.order)
    return queried_by(model, settings)


def with_step(
    model: FittedModel, shared: float | None, together: IndexArray | None = None
) -> FittedModel:
    """The same, with a distribution of two parts if that is better for rows that were left out.

    Parameters
    ----------
    model : FittedModel
    shared : float or None
        The value that many targets share.
    together : ndarray of shape (n,), optional
        Which of the rows that were left out err together: numbers from 0 on.
    """
    if shared is None or model.errors is None or model.report is None:
        return model
    step, compared = learned_step(model, shared, together)
    chosen = {"step": None if step is None else step.value} if compared else {}
    report = model.report._replace(
        chosen={**model.report.chosen, **chosen},
        alternatives=(*model.report.alternatives, *compared),
    )
    return replace(model, step=step, report=report)


def learned_step(
    model: FittedModel, shared: float, together: IndexArray | None = None
) -> tuple[Step | None, list[Alternative]]:
    """The two parts of which a model without them is to have its distributions, or None."""
    errors: Any = model.errors
    total = errors.total(model.rules.recalibration)
    if model.noise is not None:
        total = (total - errors.alpha) * np.exp(model.noise.held_out[0]) + errors.alpha
    (scale,), mean = model.y_scaling.scale, model.y_scaling.undo(errors.means.T)[:, 0]
    said = Moments(mean, scale * np.sqrt(total))
    y = snapped(answers.targets_of(model, errors.rows)[:, 0], shared)
    plain = answers.distribution_of(model, *said), answers.interval_of(model, *said, STEP.coverage)
    return choose_step(y, shared, said, plain, together)


def _in_order_of_data(model: FittedModel, order: IndexArray) -> FittedModel:
    """The same model, whose row i has the number order[i], (n,)."""
    known, noise, errors = model.cross_validated, model.noise, model.errors
    return replace(
        model,
        committee=model.committee.renumbered(order),
        cross_validated=None if known is None else read_only(known[:, np.argsort(order)]),
        noise=None if noise is None else replace(noise, rows=order[noise.rows]),
        errors=None if errors is None else errors._replace(rows=order[errors.rows]),
    )


def _trend_deadline(deadline: float, plan: Plan, settings: Settings) -> float:
    """When to stop looking for a trend: a part of the time, if a budget leaves some at all."""
    now = perf_counter()
    affords_all = plan.kernels == settings.shared_kernels
    return now + budget.COST.trend_share * (deadline - now) if affords_all else now


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
    plan = Plan(points, space.shrinkages, space.overlaps, FITTING.shared_rows, shared)
    least, deadline = budget.COST.fewest_points, np.inf
    if settings.has_whole_parts:
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
