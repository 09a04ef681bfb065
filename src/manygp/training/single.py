"""A single expert: which kernel it has, and by how much its variance is to be corrected.

With few rows the folds that are left out learn their own hyperparameters: the expert knows every
row through these, so that leave-one-out alone would promise too much. Folds are dealt by what rows
hold, so that the order in which rows come has no say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.calibration import LeftOutErrors, farthest_known, recalibrate
from manygp.committee.committee import Committee, Layout
from manygp.fit_report import CalibrationReport
from manygp.gp.expert import condition, predict_expert
from manygp.gp.marginal_likelihood import Objective, TrainingData
from manygp.kernels.additive import structured_kernel
from manygp.kernels.base import NoisyKernel, White, Workspace, default_kernel, split_noise
from manygp.rules import PredictionRules, none
from manygp.settings import SearchSpace
from manygp.training.choose import Choice, Selection, left_out_errors
from manygp.training.experts import Builder, ExecutionContext, Task, fit_tasks


@dataclass(frozen=True)
class SingleChoice:
    """Numbers of the choice of a single expert, and why they are what they are."""

    # Up to so many rows the default model is that of rows in an order of their own: another order
    # moved means of 6 of 500 random sets of 5 to 500 rows by more than .1 std. More rows keep the
    # order they come in: of ten orders of the 515 rows of Concrete one was a bad draw, and their
    # own might be that one.
    sorted_rows: int = 500
    # A single expert of fewer rows is corrected by folds that learn their own hyperparameters, and
    # one of next to no rows not at all.
    few_rows: int = 2000
    fewest_rows: int = 2
    folds: int = 10
    # Precision of a weak prior that holds the logarithms of its hyperparameters near where they
    # start: length-scales there grow with the root of the number of columns. Rows that are left
    # out decide whether to do without it, if there are more than a handful.
    prior_precision: float = 1 / 3
    handful: int = 12
    # From and to this many rows a kernel with a function of each column and pair of columns is
    # tried.
    structured_rows: tuple[int, int] = (250, 1000)
    # Relative improvements of its likelihood at which fits stop: of all rows, and of folds.
    structured_tolerance: float = 1e-5
    fold_tolerance: float = 1e-4
    # Standard errors of its gain that a committee must gain, whose leave-one-out knows the rows.
    min_gain_of_local: float = 2.0
    # Up to this many rows there is a second start, which expects noise: of all of the variance of
    # y, which is 1, under length-scales that are so much longer.
    noise_rows: int = 100
    noise_variance: float = 1.0
    longer: float = 10.0
    # Standard errors of its gain that an expert from the first start must gain over that: with the
    # prior, and without, where nothing keeps the noise from vanishing.
    min_gain_of_signal: tuple[float, float] = (0.5, 2.0)


SINGLE = SingleChoice()


def fit_single(builder: Builder, space: SearchSpace, rng: np.random.Generator) -> Selection:
    """A single expert: it has no rules to choose, but its variance can be corrected.

    A kernel of the user's own is believed: the model then is scikit-learn's.
    """
    rules = space.first_rules._replace(nearest=None)
    n = len(builder.data.X)
    is_one = n >= SINGLE.fewest_rows and len(builder.layout) == 1
    is_corrected = is_one and space.recalibrate and space.standard
    if is_corrected and n < SINGLE.few_rows and builder.data.trend is None:
        order = _order_of_folds(builder.data, rng)
        return _select_by_folds(builder, rules._replace(calibration=none), order)
    committee = builder.final(0.0, 0.0)
    if not space.recalibrate:
        return Selection(committee, rules)
    rules = rules._replace(calibration=none)
    if not is_corrected:
        return Selection(committee, rules)
    builder.run.progress.begin("calibration")
    return _corrected(committee, rules, left_out_errors(committee, builder, rules, rng), None)


def _select_by_folds(builder: Builder, rules: PredictionRules, order: IndexArray) -> Selection:
    """An expert of few rows, whose hyperparameters have a weak prior unless rows gain by none.

    Rows that are left out say little about the std at rows that are known: an expert that takes
    noise for signal errs at the others no more than one that does not. So the one that expects
    noise is kept unless the other is clearly better.
    """

    def selection(builder: Builder, precision: float) -> Selection:
        means, errors = _fold_errors(builder, precision, SINGLE.fold_tolerance, order)
        return _corrected(_climbed_twice(builder, precision), rules, errors, means)

    builder.run.progress.begin("calibration")
    prior: Choice[Selection] = Choice("prior", Selection.row_nll)
    prior.consider("weak", selection(builder, SINGLE.prior_precision))
    if len(order) > SINGLE.handful:
        prior.consider("none", selection(builder, 0.0))
    if len(order) > SINGLE.noise_rows:
        return prior.best.after(prior.alternatives)
    gain = SINGLE.min_gain_of_signal[prior.value == "none"]
    start: Choice[Selection] = Choice("start", Selection.row_nll, gain)
    start.consider("noise", selection(_expecting_noise(builder), SINGLE.prior_precision))
    start.consider("signal", prior.best)
    left = [
        one._replace(chosen=one.chosen and start.value == "signal") for one in prior.alternatives
    ]
    return start.best.after([*left, *start.alternatives])


def _climbed_twice(builder: Builder, precision: float) -> Committee:
    """The expert of all rows; its search begins again where it has ended.

    Without noise the likelihood may be so flat that the first search ends halfway, by rounding.
    """
    (expert,) = builder.committee(precision, 0.0).experts
    data, layout, kernel = builder.data, builder.layout, builder.kernel
    starts = [expert.kernel.theta[None]]
    again = Builder(data, layout, kernel, starts, builder.communication, builder.run)
    return again.committee(precision, 0.0)


def _expecting_noise(builder: Builder) -> Builder:
    """The same builder; its kernel starts from long length-scales, and noise of all of y."""
    kernel = builder.kernel
    is_scale = np.array(["length_scale" in name for name in kernel.theta_names])
    theta = kernel.theta + np.log(SINGLE.longer) * is_scale
    theta[-1] = np.log(SINGLE.noise_variance * builder.data.mean_weight)
    start = kernel.with_theta(np.clip(theta, *kernel.bounds.T))
    starts = [start.theta[None]]
    return Builder(builder.data, builder.layout, start, starts, builder.communication, builder.run)


def _order_of_folds(data: TrainingData, rng: np.random.Generator) -> IndexArray:
    """Rows (n,) as they are dealt into folds: at random, whatever the order they come in."""
    weights = [] if data.spread is None else [data.spread]
    columns = np.vstack([*weights, data.alpha, data.residuals.T, data.X.T])
    return np.lexsort(columns)[rng.permutation(len(data.X))]


def _corrected(
    committee: Committee, rules: PredictionRules, errors: LeftOutErrors, means: Array | None
) -> Selection:
    """The single expert with the correction that rows teach which were left out."""
    curve, compared = recalibrate(errors)
    curve = replace(curve, known=farthest_known(errors))
    correction = next(one.value for one in compared if one.chosen)
    report = CalibrationReport({"correction": correction}, tuple(compared), len(errors.variance))
    answers = None if means is None else np.vstack([means, np.sqrt(errors.total(curve))])
    return Selection(committee, rules._replace(recalibration=curve), errors, report, answers)


def try_structured_kernel(
    selection: Selection,
    data: TrainingData,
    noise: White,
    space: SearchSpace,
    run: ExecutionContext,
) -> Selection:
    """The selection, or one expert on all rows with a structured kernel if that is better.

    The folds of that expert have learned nothing from their rows. The committee has, by
    hyperparameters and the terms of a trend: it promises more, and must gain more to be kept.

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
    (n, d), data = data.X.shape, data._replace(constant_mean=False)
    likelihood, spread = data.likelihood(np.arange(n)), data.X.std(axis=0)
    best = {}
    for name, kernel in (
        ("default", default_kernel(d, spread)), ("structured", structured_kernel(d, spread)),
    ):  # fmt: skip
        start = NoisyKernel(split_noise(kernel).signal, noise)
        free = np.zeros(start.n_free)
        task = Task(np.arange(n), start.theta[None])
        objective = Objective(start, free, SINGLE.structured_tolerance)
        (fit,) = fit_tasks(data, [task], objective, run, single=True)
        best[name] = fit.kernel, likelihood.posterior(fit.kernel).log_likelihood
    (plain, before), (kernel, after) = best.values()
    if after - before < kernel.n_free - plain.n_free:  # what chance would gain, and more
        return selection
    layout = Layout.of(data.X, [np.arange(n)], np.ones(d))
    builder = Builder(data, layout, kernel, [kernel.theta[None]], None, run)
    order = _order_of_folds(data, np.random.default_rng(0))
    means, errors = _fold_errors(builder, 0.0, SINGLE.fold_tolerance, order)
    rules = space.first_rules._replace(nearest=None, calibration=none)
    other = _corrected(builder.committee(np.inf, 0.0), rules, errors, means)
    choice: Choice[Selection] = Choice("structure", Selection.row_nll, SINGLE.min_gain_of_local)
    choice.consider("global", other)
    choice.consider("local", selection)
    if choice.best is selection:
        return selection.after(choice.alternatives)
    trends = [one for one in selection.report.alternatives if one.parameter == "trend"]
    left = [one._replace(chosen=False) for one in trends]
    return other.after([*choice.alternatives, *left], trend="none")


def _fold_errors(
    builder: Builder, precision: float, tolerance: float, order: IndexArray
) -> tuple[Array, LeftOutErrors]:
    """Means (t, n) and errors of experts that have learned nothing at all from the row.

    `order` (n,) is that in which rows are dealt into folds.
    """
    data, run = builder.data, builder.run
    n = len(data.X)
    folds = np.array_split(order, min(n, SINGLE.folds))
    rest = [np.setdiff1d(np.arange(n), fold) for fold in folds]
    tasks = [Task(rows, builder.starts[0][:1]) for rows in rest]
    held = np.full(builder.kernel.n_free, precision)
    objective = Objective(builder.kernel, held, tolerance)
    fits = fit_tasks(data, tasks, objective, run)
    answers = []
    for fold, rows, fit in zip(folds, rest, fits, strict=True):
        expert = condition(data, rows, rows[:0], fit, exact=True)
        said = predict_expert(expert, data.X[fold], Workspace(), with_variance=True)
        squares = (data.residuals[fold] - said.mean).T ** 2
        spread = 1.0 if data.spread is None else data.spread[fold]
        total, alpha = said.variance + expert.noise_variance * spread, data.alpha[fold]
        unknown = said.variance / said.prior_variance
        answers.append((said.mean.T, squares, total, alpha, unknown))
    in_order = np.argsort(np.concatenate(folds))
    means, squares, total, alpha, unknown = (
        np.concatenate(one, axis=-1)[..., in_order] for one in zip(*answers, strict=True)
    )
    return means, LeftOutErrors(squares, total, alpha, unknown, np.arange(n), means)
