"""A single expert of few rows: variants of it, chosen and corrected by folds that learn all anew.

Variants differ in the prior of hyperparameters, the kernel, and the trend. In each fold a variant
learns everything from the other rows, trees and hyperparameters too: the expert knows every row
through these, so that leave-one-out alone would promise too much. The choice is paid for: the
errors of a fold, which correct the variance and are what is promised, are those of the variant
that the other folds choose. Folds are dealt by what rows hold, so that the order in which rows
come has no say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from manygp.arrays import AnyArray, Array, IndexArray
from manygp.calibration import LeftOutErrors, farthest_known, fit_scale, gains, recalibrate
from manygp.committee.committee import Committee, Layout, assemble
from manygp.fit_report import Alternative, CalibrationReport
from manygp.gp.expert import condition, predict_expert
from manygp.gp.marginal_likelihood import KernelFit, Objective, TrainingData, maximise
from manygp.gp.trend import FittedCandidate, Trend, TrendCandidate
from manygp.kernels.additive import structured_kernel
from manygp.kernels.base import (
    Kernel,
    NoisyKernel,
    White,
    Workspace,
    default_kernel,
    split_noise,
)
from manygp.rules import PredictionRules, none
from manygp.runtime.parallel import single_threaded_blas, thread_map
from manygp.settings import SearchSpace
from manygp.training.choose import (
    Choice,
    Selection,
    left_out_errors,
)
from manygp.training.experts import Builder, ExecutionContext, start_kernel, with_noise_of
from manygp.trend.forest import FOREST, forest_trend, part_of
from manygp.trend.linear import TERMS, LinearCandidate, fit_lines


@dataclass(frozen=True)
class SingleChoice:
    """Numbers of the choice of a single expert, and why they are what they are."""

    # Up to so many rows the default model is that of rows in an order of their own: another order
    # moved means of 6 of 500 random sets of 5 to 500 rows by more than .1 std. More rows keep the
    # order they come in: sorted, splits of 650 to 750 rows differ as they do between seeds.
    sorted_rows: int = 500
    # A single expert of fewer rows is corrected by folds that learn their own hyperparameters, and
    # one of next to no rows not at all.
    few_rows: int = 2000
    fewest_rows: int = 2
    # Folds, and those of variants with a forest, which takes longer than the expert.
    folds: int = 10
    forest_folds: int = 5
    # From so many rows on a variant that has lost by so many standard errors in so much of its
    # folds has no others. (By 2.9 lost one that was as good in all folds: one of two was bad.)
    stopped_rows: int = 100
    hopeless: float = 4.0
    first_share: float = 0.4
    # Precisions of a prior that holds the logarithms of hyperparameters near where they start:
    # length-scales there grow with the root of the number of columns. A weak one is for all of
    # them; a firm one for length-scales, which few rows cannot tell apart.
    weak: float = 1 / 3
    firm: float = 3.0
    # From so many columns on most say little, or all say as little: they have one length-scale,
    # or long ones, so many times, held this firmly. (Simulations of 50 to 300 rows of 25 to 130
    # columns, where the firm prior loses to the weak one.)
    many_columns: int = 20
    long: float = 3.0
    held: float = 1.0
    # So few rows have no choice.
    handful: int = 12
    # Relative improvements of the likelihood at which fits stop: of all rows, and of folds, which
    # start where that of all rows has ended.
    tolerances: tuple[float, float] = (1e-6, 1e-4)
    # Up to so many rows, or rows for each column, folds do not start there, but anew.
    cold_rows: int = 100
    cold_share: float = 5.0
    # Variants that are planned for: without lines and forests, which take as long as some of them.
    planned_variants: int = 4
    # From and to this many rows a kernel with a function of each column and pair of columns is
    # tried, if it promises something where so many of the rows are known.
    structured_rows: tuple[int, int] = (250, 1000)
    look_rows: int = 250
    look_share: float = 2 / 3
    look_tolerance: float = 1e-3
    # How much more than by chance its likelihood gains where the other rows are not asked.
    clear_gain: float = 2.0
    # More rows start from what half of them have learned.
    halved_rows: int = 600
    # Its folds, and its tolerances, of all rows and of folds: an evaluation of its likelihood
    # takes five times as long. With 1e-4 for all rows other rows are predicted no better.
    structured_folds: int = 5
    structured_tolerances: tuple[float, float] = (1e-3, 3e-3)
    # Standard errors of its gain that a committee must gain which was chosen among many: where its
    # hyperparameters know the rows that are left out, and where they do not.
    min_gains_of_local: tuple[float, float] = (2.0, 1.0)
    # Up to this many rows there is a second start, which expects noise: of all of the variance of
    # y, which is 1, under length-scales that are so much longer.
    noise_rows: int = 100
    noise_variance: float = 1.0
    longer: float = 10.0
    # Standard errors that a variant must gain on what is simpler, and that one must gain without a
    # prior of length-scales or with a trend. (Without any prior the noise may vanish, and rows
    # that are left out do not always tell.)
    min_gain: float = 0.5
    min_gain_of_free: float = 1.0
    min_gain_of_trend: float = 1.0
    # The least share of lines or a forest in their best mean with the expert at which these are
    # tried.
    least_share: float = 0.3


SINGLE = SingleChoice()


class Variant(NamedTuple):
    """A way to make a single expert.

    Attributes
    ----------
    name : str
    kernel : callable
        From rows, and what a trend leaves of their mean square, to the kernel to start from.
    precision : callable
        From that kernel to the precision (p,) of the prior of its theta.
    trend : callable
        From rows to what may lie under the expert, or None.
    min_gain : float
        Standard errors that it must gain on what is simpler.
    n_folds : int
    tolerances : (float, float)
        Relative improvements of the likelihood at which fits stop: of all rows, and of folds.
    """

    name: str
    kernel: Callable[[TrainingData, float | None], NoisyKernel]
    precision: Callable[[NoisyKernel], Array]
    trend: Callable[[TrainingData], TrendCandidate | None] = lambda _: None
    min_gain: float = SINGLE.min_gain
    n_folds: int = SINGLE.folds
    tolerances: tuple[float, float] = SINGLE.tolerances

    def learn(
        self,
        data: TrainingData,
        run: ExecutionContext,
        tolerance: float,
        theta: Array | None = None,
        restarts: Iterable[Array] = (),
    ) -> tuple[TrainingData, KernelFit]:
        """Rows under its trend, and its kernel, learned from theta (p,) on, or its own start."""
        trend, rows, rest = self.trend(data), np.arange(len(data.X)), data
        if trend is not None:
            rest = data._replace(residuals=trend.residuals)
        start = self.kernel(rest, None if trend is None else trend.mean_square)
        objective = Objective(start, self.precision(start), tolerance, run.optimizer)
        starts = np.vstack([start.theta if theta is None else theta, *restarts])
        fit = maximise(rest.likelihoods(rows), objective, starts)
        return (data if trend is None else trend.under(data, [rows], fit.kernel, 1)), fit


class Evaluated(NamedTuple):
    """A variant that has learned from all rows, and what its folds say of the rows they lack.

    Attributes
    ----------
    variant : Variant
    data : TrainingData
    fit : KernelFit
    errors : LeftOutErrors
    nll : ndarray of shape (n,)
        Of each row, after the correction that all of them teach.
    """

    variant: Variant
    data: TrainingData
    fit: KernelFit
    errors: LeftOutErrors
    nll: Array

    def committee(self, builder: Builder) -> Committee:
        """The single expert that has learned from all rows."""
        common = None if builder.communication is None else (builder.communication, self.fit)
        nobody = np.arange(0)
        return assemble(self.data, builder.layout, [self.fit], lambda _: nobody, common, 1)


def fit_single(
    builder: Builder,
    space: SearchSpace,
    rng: np.random.Generator,
    *,
    tries_trends: bool,
    compares: bool = True,
) -> Selection:
    """A single expert: it has no rules to choose, but its variance can be corrected.

    A kernel of the user's own is believed: the model then is scikit-learn's. `tries_trends` says
    whether trees may lie under it, `compares` whether a weak prior has other variants beside it.
    """
    rules = space.first_rules._replace(nearest=None)
    n = len(builder.data.X)
    is_one = n >= SINGLE.fewest_rows and len(builder.layout) == 1
    is_corrected = is_one and space.recalibrate and space.standard
    if is_corrected and n < SINGLE.few_rows and builder.data.trend is None:
        order = _order_of_folds(builder.data, rng)
        rules = rules._replace(calibration=none)
        variants = (one for one in _variants(builder) if compares or one.name == "weak prior")
        return _select_by_folds(builder, rules, order, variants, tries_trends=tries_trends)
    committee = builder.final(0.0, 0.0)
    if not space.recalibrate:
        return Selection(committee, rules)
    rules = rules._replace(calibration=none)
    if not is_corrected:
        return Selection(committee, rules)
    builder.run.progress.begin("calibration")
    return _corrected(committee, rules, left_out_errors(committee, builder, rules, rng), None)


def _select_by_folds(
    builder: Builder,
    rules: PredictionRules,
    order: IndexArray,
    variants: Iterable[Variant],
    *,
    tries_trends: bool,
) -> Selection:
    """The variant that rows choose which its folds have not seen, from the simplest on."""
    run = builder.run
    run.progress.begin("calibration")
    evaluated: list[Evaluated] = []
    for variant in run.progress.track("calibration", variants, SINGLE.planned_variants):
        evaluated += _evaluate(variant, builder, order, evaluated)
    if tries_trends:
        for variant in _with_trends(evaluated[_chosen(evaluated)], builder):
            evaluated += _evaluate(variant, builder, order, evaluated)
    best = evaluated[_chosen(evaluated)]
    errors = _paid(evaluated, _folds(order, SINGLE.folds, builder.data.groups))
    selection = _corrected(best.committee(builder), rules, errors, errors.means)
    compared = [
        Alternative("expert", one.variant.name, float(one.nll.mean()), one is best)
        for one in evaluated
    ]
    trend = {} if best.data.trend is None else {"trend": best.data.trend.model.name}
    return selection.after(compared if len(order) > SINGLE.handful else [], **trend)


def _variants(builder: Builder, *, expects_noise: bool = False) -> Iterator[Variant]:
    """Variants without a trend, the simplest first.

    Rows that are left out say little about the std at rows that are known: an expert that takes
    noise for signal errs at the others no more than one that does not. So the one that expects
    noise is kept unless another is better.
    """
    kernel, n = builder.kernel, len(builder.data.X)

    def start(data: TrainingData, mean_square: float | None) -> NoisyKernel:
        if mean_square is None:
            return kernel
        scaled = start_kernel(data, mean_square)
        return with_noise_of(scaled, float(np.exp(kernel.noise.bounds[0, 0])))

    def expecting_noise(data: TrainingData, mean_square: float | None) -> NoisyKernel:
        return _expecting_noise(start(data, mean_square), data.mean_weight)

    def long(data: TrainingData, mean_square: float | None) -> NoisyKernel:
        return _lengthened(start(data, mean_square), SINGLE.long)

    def tied(data: TrainingData, mean_square: float | None) -> NoisyKernel:
        return _with_one_length(long(data, mean_square), data, builder.run)

    def fixed(start: NoisyKernel) -> Array:
        return np.full(start.n_free, np.inf)

    def held(start: NoisyKernel) -> Array:
        return np.where(_is_length(start), SINGLE.held, SINGLE.weak)

    def firm(start: NoisyKernel) -> Array:
        return np.where(_is_length(start), SINGLE.firm, SINGLE.weak)

    def weak(start: NoisyKernel) -> Array:
        return np.full(start.n_free, SINGLE.weak)

    def free(start: NoisyKernel) -> Array:
        return np.where(_is_length(start), 0.0, SINGLE.weak)

    if n <= SINGLE.handful:
        yield Variant("weak prior", start, weak)
        return
    if n <= SINGLE.noise_rows or expects_noise:
        yield Variant("expects noise", expecting_noise, firm)
    if builder.data.X.shape[1] >= SINGLE.many_columns:
        yield Variant("one length", tied, fixed)
        yield Variant("long lengths", long, held)
    else:
        yield Variant("firm prior", start, firm)
    yield Variant("weak prior", start, weak)
    yield Variant("free lengths", start, free, min_gain=SINGLE.min_gain_of_free)


def _with_trends(best: Evaluated, builder: Builder) -> Iterator[Variant]:
    """The best variant on lines, on a half of a forest and on a whole one, if these have a share.

    The share is that of the best mean of the expert, by folds that have not seen the row, and the
    lines or the forest, by lines or trees that have not.
    """
    data, said = builder.data, best.errors.means.T
    (n, d), grown = data.X.shape, dict[bytes, Trend]()

    def has_share(trend: TrendCandidate) -> bool:
        more = data.residuals - trend.residuals - said
        share = float(np.sum((data.residuals - said) * more) / max(np.sum(more**2), 1e-300))
        return share >= SINGLE.least_share

    def lines(data: TrainingData) -> TrendCandidate:
        ridge = fit_lines(data.X, data.residuals)
        return LinearCandidate("linear", ridge.errors, ridge)

    def forest(data: TrainingData, share: float = 1.0) -> TrendCandidate:
        key = data.residuals.tobytes()
        if key not in grown:
            grown[key] = forest_trend(data.X, data.residuals, 0)
        trend = part_of(grown[key], share)
        return FittedCandidate("forest", data.residuals - trend.fitted, trend)

    on = best.variant._replace(min_gain=SINGLE.min_gain_of_trend)
    if FOREST.rows[0] <= n and d <= TERMS.most_functions and has_share(lines(data)):
        noisy = next(_variants(builder, expects_noise=True))
        if noisy.name != best.variant.name:
            yield on._replace(
                name="lines and noise", kernel=noisy.kernel, precision=noisy.precision, trend=lines
            )
        yield on._replace(name="lines", trend=lines)
    if FOREST.rows[0] <= n <= FOREST.rows[1] and has_share(forest(data)):
        on = on._replace(n_folds=SINGLE.forest_folds)
        yield on._replace(name="half a forest", trend=partial(forest, share=0.5))
        yield on._replace(name="forest", trend=forest)


def _is_length(kernel: NoisyKernel) -> AnyArray:
    """Which elements of theta are length-scales: (p,)."""
    return np.array(["length_scale" in name for name in kernel.theta_names])


def _expecting_noise(kernel: NoisyKernel, weight: float) -> NoisyKernel:
    """The same kernel, with long length-scales and noise of all of y, of rows of this weight."""
    longer = _lengthened(kernel, SINGLE.longer)
    theta = longer.theta
    theta[-1] = np.log(SINGLE.noise_variance * weight)
    return longer.with_theta(np.clip(theta, *kernel.bounds.T))


def _lengthened(kernel: NoisyKernel, times: float) -> NoisyKernel:
    """The same kernel with length-scales so many times as long."""
    theta = kernel.theta + np.log(times) * _is_length(kernel)
    return kernel.with_theta(np.clip(theta, *kernel.bounds.T))


def _with_one_length(start: NoisyKernel, data: TrainingData, run: ExecutionContext) -> NoisyKernel:
    """The default kernel with equal length-scales, which are learned as one."""
    signal: Any = start.signal
    length = float(np.median(signal.right.length_scale))
    matern = replace(signal.right, length_scale=length)
    one = NoisyKernel(signal.left * matern, start.noise)
    precision = np.full(one.n_free, SINGLE.weak)
    objective = Objective(one, precision, SINGLE.tolerances[1], run.optimizer)
    learned = maximise(data.likelihoods(np.arange(len(data.X))), objective, one.theta[None])
    variance, length, *noise = learned.kernel.theta
    return start.with_theta(np.r_[variance, np.full(data.X.shape[1], length), noise])


def _order_of_folds(data: TrainingData, rng: np.random.Generator) -> IndexArray:
    """Rows (n,) as they are dealt into folds: at random, whatever the order they come in."""
    weights = [] if data.spread is None else [data.spread]
    columns = np.vstack([*weights, data.alpha, data.residuals.T, data.X.T])
    return np.lexsort(columns)[rng.permutation(len(data.X))]


def _folds(order: IndexArray, most: int, groups: IndexArray | None) -> list[IndexArray]:
    """At most so many folds of rows in an order (n,); those of a group are in the same one."""
    if groups is None:
        return np.array_split(order, min(len(order), most))
    numbers, first = np.unique(groups[order], return_index=True)
    mixed = numbers[np.argsort(first)]
    parts = np.array_split(mixed, min(len(mixed), most))
    return [order[np.isin(groups[order], part)] for part in parts]


def _evaluate(
    variant: Variant, builder: Builder, order: IndexArray, rivals: list[Evaluated]
) -> list[Evaluated]:
    """Let a variant learn from all rows, and from all but each fold: nothing if it is hopeless.

    `order` (n,) is that in which rows are dealt into folds.
    """
    rival = rivals[_chosen(rivals)].nll if rivals else None
    judged = _judge(variant, *_learn(variant, builder), builder, (order, rival))
    return [] if judged is None else [judged]


def _learn(variant: Variant, builder: Builder) -> tuple[TrainingData, KernelFit]:
    """All rows under the trend of a variant, and what it has learned from them."""
    restarts = builder.starts[0][1:]
    with single_threaded_blas():
        return variant.learn(builder.data, builder.run, variant.tolerances[0], None, restarts)


def _judge(
    variant: Variant,
    known: TrainingData,
    fit: KernelFit,
    builder: Builder,
    against: tuple[IndexArray, Array | None],
) -> Evaluated | None:
    """Let a variant that has learned from all rows learn from all but each fold.

    `against` are the order (n,) in which rows are dealt into folds, and the NLL (n,) of the best
    so far: None is returned where the first folds leave no hope to be better.
    """
    (order, rival), data, run, n = against, builder.data, builder.run, len(builder.data.X)
    theta = None if _are_few(data) else fit.kernel.theta

    def left_out(fold: IndexArray) -> LeftOutErrors:
        rest = data.some(np.setdiff1d(np.arange(n), fold))
        learned = variant.learn(rest, run, variant.tolerances[1], theta)
        return _errors_of(*learned, data, fold)

    folds = _folds(order, variant.n_folds, data.groups)
    first = len(folds) if rival is None else round(SINGLE.first_share * len(folds))
    with thread_map(run.n_jobs) as parallel_map:
        pieces = list(parallel_map(left_out, folds[:first]))
        if rival is not None and n >= SINGLE.stopped_rows:
            some = _joined(pieces)
            if gains(some.row_nll(recalibrate(some)[0]), rival[some.rows], SINGLE.hopeless):
                return None
        pieces += parallel_map(left_out, folds[first:])
    errors = _joined(pieces)
    return Evaluated(variant, known, fit, errors, errors.row_nll(recalibrate(errors)[0]))


def _joined(pieces: list[LeftOutErrors]) -> LeftOutErrors:
    """The errors of several folds, in the order of their rows."""
    errors = LeftOutErrors(*(np.concatenate(one, axis=-1) for one in zip(*pieces, strict=True)))
    return errors.some(np.argsort(errors.rows))


def _are_few(data: TrainingData) -> bool:
    """Whether folds start anew: where all rows have ended tells a fold which columns matter."""
    n, d = data.X.shape
    return n <= SINGLE.cold_rows or n < SINGLE.cold_share * d


def _errors_of(
    known: TrainingData, fit: KernelFit, data: TrainingData, rows: IndexArray
) -> LeftOutErrors:
    """Errors of some rows of the data by an expert that knows others."""
    own, X = np.arange(len(known.X)), data.X[rows]
    expert, trend, at = condition(known, own, own[:0], fit, exact=True), known.trend, None
    at = None if trend is None else trend.model.at(X)
    terms = None if at is None else at.basis
    said = predict_expert(expert, X, Workspace(), with_variance=True, terms=terms)
    explained = 0.0
    if trend is not None and at is not None:
        said, explained = said.on(trend, at, None), trend.model.explained
    unknown = said.variance / (said.prior_variance + explained)
    squares = (data.residuals[rows] - said.mean).T ** 2
    spread = 1.0 if data.spread is None else data.spread[rows]
    total = said.variance + expert.noise_variance * spread
    return LeftOutErrors(squares, total, data.alpha[rows], unknown, rows, said.mean.T)


def _chosen(evaluated: list[Evaluated], rows: AnyArray | slice = slice(None)) -> int:
    """The place of the variant that some of the rows choose."""
    best = 0
    for place, one in enumerate(evaluated):
        if gains(evaluated[best].nll[rows], one.nll[rows], one.variant.min_gain):
            best = place
    return best


def _paid(evaluated: list[Evaluated], folds: list[IndexArray]) -> LeftOutErrors:
    """Errors of all rows, those of a fold by the variant that the other folds choose."""
    n = sum(map(len, folds))
    chosen = np.empty(n, dtype=np.intp)
    for fold in folds:
        others = np.ones(n, dtype=bool)
        others[fold] = False
        chosen[fold] = _chosen(evaluated, others)
    rows = np.arange(n)
    every = zip(*(one.errors for one in evaluated), strict=True)
    return LeftOutErrors(*(np.stack(one)[chosen, ..., rows].T for one in every))


def _corrected(
    committee: Committee, rules: PredictionRules, errors: LeftOutErrors, means: Array | None
) -> Selection:
    """The single expert with the correction that rows teach which were left out."""
    curve, compared = recalibrate(errors)
    curve = replace(curve, known=farthest_known(errors))
    correction = next(one.value for one in compared if one.chosen)
    report = CalibrationReport({"correction": correction}, tuple(compared), len(errors.variance))
    said = None if means is None else np.vstack([means, np.sqrt(errors.total(curve))])
    return Selection(committee, rules._replace(recalibration=curve), errors, report, said)


def try_structured_kernel(
    selection: Selection,
    data: TrainingData,
    noise: White,
    space: SearchSpace,
    run: ExecutionContext,
) -> Selection:
    """What was selected, or one expert on all rows with a structured kernel if that is better.

    The folds of that expert have learned nothing from their rows. What was selected is the best of
    many, and may know the rows by its hyperparameters: it promises more, and must gain more to be
    kept.
    Some of the rows are asked first: where they are fewer than its hyperparameters, or an expert
    of these does not predict the others better with the structured kernel, it is not tried. Nor
    are folds where it loses without them.

    Parameters
    ----------
    selection : Selection
        Of the same rows, all of which were left out in turn.
    data : TrainingData
        Without a trend.
    noise : White
        Where the noise starts from, and its bounds.
    space : SearchSpace
    run : ExecutionContext
    """
    if selection.errors is None or selection.report is None:
        return selection
    run.progress.begin("structure")
    n, d = data.X.shape
    spread = data.X.std(axis=0)
    order = _order_of_folds(data, np.random.default_rng(0))

    def variant(kernel: Kernel) -> Variant:
        start = NoisyKernel(split_noise(kernel).signal, noise)
        return Variant(
            "structured",
            lambda *_: start,
            lambda one: np.zeros(one.n_free),
            n_folds=SINGLE.structured_folds,
            tolerances=SINGLE.structured_tolerances,
        )

    kernels = [make(d, spread) for make in (default_kernel, structured_kernel)]
    if kernels[1].n_free > _rows_of_look(n):
        return selection
    plain, structured = map(variant, kernels)
    with single_threaded_blas():
        look = _look(plain, structured, data, order, run)
    if look is None:
        return selection
    if n > SINGLE.halved_rows:  # half of the rows lead most of the way for a quarter of the cost
        half = data.some(np.sort(order[: n // 2]))
        with single_threaded_blas():
            theta = look.kernel.theta
            look = structured.learn(half, run, structured.tolerances[0], theta)[1]
    layout = Layout.of(data.X, [np.arange(n)], np.ones(d))
    builder = Builder(data, layout, look.kernel, [look.kernel.theta[None]], None, run)
    structured = structured._replace(kernel=lambda *_: look.kernel)
    known, fit = _learn(structured, builder)
    rules = space.first_rules._replace(nearest=None, calibration=none)
    least = SINGLE.min_gains_of_local[selection.cross_validated is not None]
    if gains(_known_nll(builder, fit, rules), selection.row_nll(), least):
        return selection
    other = _judge(structured, known, fit, builder, (order, selection.row_nll()))
    if other is None:
        return selection
    single = _corrected(other.committee(builder), rules, other.errors, other.errors.means)
    choice: Choice[Selection] = Choice("structure", Selection.row_nll, least)
    choice.consider("global", single)
    choice.consider("local", selection)
    if choice.best is selection:
        return selection.after(choice.alternatives)
    trends = [one for one in selection.report.alternatives if one.parameter == "trend"]
    left = [one._replace(chosen=False) for one in trends]
    return single.after([*choice.alternatives, *left], trend="none")


def _known_nll(builder: Builder, fit: KernelFit, rules: PredictionRules) -> Array:
    """The NLL of each row, left out of an expert that has learned its hyperparameters from it.

    Folds, whose hyperparameters have not, say worse of it.
    """
    committee = assemble(builder.data, builder.layout, [fit], lambda _: np.arange(0), None, 1)
    errors = left_out_errors(committee, builder, rules, np.random.default_rng(0))
    return errors.row_nll(recalibrate(errors)[0])


def _rows_of_look(n: int) -> int:
    """How many of n rows are known where a structured kernel is looked at."""
    return min(SINGLE.look_rows, int(SINGLE.look_share * n))


def _look(
    plain: Variant,
    structured: Variant,
    data: TrainingData,
    order: IndexArray,
    run: ExecutionContext,
) -> KernelFit | None:
    """The structured kernel of some of the rows, if it predicts the others better."""
    n_known = _rows_of_look(len(order))
    known, others = data.some(np.sort(order[:n_known])), np.sort(order[n_known:])
    learned = [one.learn(known, run, SINGLE.look_tolerance)[1] for one in (plain, structured)]
    likelihood = known.likelihood(np.arange(n_known))
    before, after = (likelihood.posterior(one.kernel).log_likelihood for one in learned)
    by_chance = (learned[1].kernel.n_free - learned[0].kernel.n_free) / 2
    errors = [_errors_of(known, one, data, others) for one in learned]
    nll = [one.row_nll(fit_scale(one)) for one in errors]
    gain = after - before
    is_better = gain > by_chance and gains(nll[0], nll[1], SINGLE.min_gain)
    return learned[1] if is_better or gain > SINGLE.clear_gain * by_chance else None
