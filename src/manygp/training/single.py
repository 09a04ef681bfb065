"""A single expert: which kernel it has, and by how much its variance is to be corrected.

With few rows the folds that are left out learn their own hyperparameters: the expert knows every
row through these, so that leave-one-out alone would promise too much.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.committee.committee import Committee, Query
from manygp.committee.layout import Layout
from manygp.conformity import Conformity
from manygp.findings import Alternative, CalibrationReport
from manygp.gp.expert import condition, predict_expert
from manygp.gp.likelihood import Objective, TrainingData
from manygp.kernels.additive import structured_kernel
from manygp.kernels.base import NoisyKernel, White, Workspace, split_noise
from manygp.kernels.catalogue import default_kernel
from manygp.rules.calibration import none
from manygp.rules.combine import PredictionRules
from manygp.rules.records import ExpertPredictions
from manygp.settings import SearchSpace
from manygp.training.builder import Builder
from manygp.training.fitting import Run, Task, fit_tasks
from manygp.training.recalibration import LeftOutErrors, farthest_known, gains, recalibrate

# Rows that are left out to correct the variance, at most.
LEARNED_ROWS = 20_000
# A single expert of fewer rows is corrected by folds that learn their own hyperparameters, and one
# of next to no rows not at all.
FEW_ROWS = 2000
FEWEST_ROWS = 2
FOLDS = 10
# Precision of a weak prior that holds the logarithms of its hyperparameters near where they start:
# length-scales there grow with the root of the number of columns. Rows that are left out decide
# whether to do without it, if there are more than a handful.
PRIOR = 1 / 3
HANDFUL = 12
# From and to this many rows a kernel with a function of each column and pair of columns is tried.
STRUCTURED_ROWS = (250, 1000)
# Relative improvements of its likelihood at which fits stop: of all rows, and of folds.
TOLERANCE_STRUCTURED = 1e-5
TOLERANCE_FOLDS = 1e-4
# Standard errors of its gain that a committee must gain, whose leave-one-out knows the rows.
PROMISES = 2.0


class Selection(NamedTuple):
    """The committee, how it is queried, and how that was chosen.

    Attributes
    ----------
    committee : Committee
    rules : PredictionRules
    errors : LeftOutErrors or None
        What the committee, uncorrected, predicted for rows that were left out.
    report : CalibrationReport or None
    honest : ndarray of shape (t + 1, n), or None
        Mean and std of all rows by experts that have learned nothing from them.
    """

    committee: Committee
    rules: PredictionRules
    errors: LeftOutErrors | None = None
    report: CalibrationReport | None = None
    honest: Array | None = None

    @property
    def conformity(self) -> Conformity | None:
        """How the errors of the rows that were left out are spread, in units of the std."""
        if self.errors is None:
            return None
        return self.errors.conformity(self.rules.recalibration)

    def after(self, compared: Iterable[Alternative]) -> Selection:
        """The same; its report begins with what was compared before."""
        assert self.report is not None
        alternatives = (*compared, *self.report.alternatives)
        return self._replace(report=self.report._replace(alternatives=alternatives))

    def row_nll(self) -> Array:
        """Negative log-likelihood of each row that was left out: (N,)."""
        assert self.errors is not None
        return self.errors.row_nll(self.rules.recalibration)


def left_out_errors(
    committee: Committee, builder: Builder, rules: PredictionRules, rng: np.random.Generator
) -> LeftOutErrors:
    """What the final committee predicts for rows of all experts, each left out."""
    data = builder.data
    rows = builder.some_rows(LEARNED_ROWS, rng)

    def answers(records: list[ExpertPredictions]) -> tuple[Array, Array, Array]:
        means, variance, noise = rules.combine(records)
        return means, variance + noise, rules.unknown(records)

    query = Query(data.X[rows], rules.nearest, rows, covariances=rules.needs.covariances)
    means, variance, unknown = committee.map_blocks(answers, query, builder.run.n_jobs)
    squares = (data.targets_of(rows).T - means) ** 2
    return LeftOutErrors(squares, variance, data.alpha[rows], unknown)


def select_single(builder: Builder, space: SearchSpace, rng: np.random.Generator) -> Selection:
    """A single expert: it has no rules to choose, but its variance can be corrected.

    A kernel of the user's own is believed: the model then is scikit-learn's.
    """
    rules = space.first_rules._replace(nearest=None)
    n = len(builder.data.X)
    is_one = n >= FEWEST_ROWS and len(builder.layout) == 1
    is_corrected = is_one and space.recalibrate and space.standard
    if is_corrected and n < FEW_ROWS and builder.data.trend is None:
        return _select_by_folds(builder, rules._replace(calibration=none), rng.permutation(n))
    committee = builder.final(0.0, 0.0)
    if not space.recalibrate:
        return Selection(committee, rules)
    rules = rules._replace(calibration=none)
    if not is_corrected:
        return Selection(committee, rules)
    builder.run.progress.begin("calibration")
    return _corrected(committee, rules, left_out_errors(committee, builder, rules, rng), None)


def _select_by_folds(builder: Builder, rules: PredictionRules, order: IndexArray) -> Selection:
    """An expert of few rows, whose hyperparameters have a weak prior unless rows gain by none."""

    def selection(precision: float) -> Selection:
        means, errors = _fold_errors(builder, precision, TOLERANCE_FOLDS, order)
        return _corrected(builder.committee(precision, 0.0), rules, errors, means)

    builder.run.progress.begin("calibration")
    held = selection(PRIOR)
    if len(order) <= HANDFUL:
        return held
    free = selection(0.0)
    before, after = held.row_nll(), free.row_nll()
    is_free = gains(before, after)
    compared = (
        Alternative("prior", "weak", float(before.mean()), not is_free),
        Alternative("prior", "none", float(after.mean()), is_free),
    )
    return (free if is_free else held).after(compared)


def _corrected(
    committee: Committee, rules: PredictionRules, errors: LeftOutErrors, means: Array | None
) -> Selection:
    """The single expert with the correction that rows teach which were left out."""
    alternatives: list[Alternative] = []
    curve = replace(recalibrate(errors, alternatives), known=farthest_known(errors))
    correction = next(one.value for one in alternatives if one.chosen)
    n = len(errors.variance)
    report = CalibrationReport({"correction": correction}, tuple(alternatives), n)
    honest = None if means is None else np.vstack([means, np.sqrt(errors.total(curve))])
    return Selection(committee, rules._replace(recalibration=curve), errors, report, honest)


def or_structured(
    found: Selection, data: TrainingData, noise: White, space: SearchSpace, run: Run
) -> Selection:
    """What was found, or one expert on all rows with a structured kernel if that is better.

    Parameters
    ----------
    found : Selection
        Of the same rows, all of which were left out in turn.
    data : TrainingData
        Without a trend.
    noise : White
        Where the noise starts from, and its bounds.
    space : SearchSpace
    run : Run
    """
    n, d = data.X.shape
    fewest, most = STRUCTURED_ROWS
    if found.errors is None or found.report is None or not fewest <= n <= most or d == 1:
        return found
    run.progress.begin("structure")
    data = data._replace(constant_mean=False)
    likelihood, spread = data.likelihood(np.arange(n)), data.X.std(axis=0)
    best = {}
    for name, kernel in (
        ("default", default_kernel(d, spread)), ("structured", structured_kernel(d, spread)),
    ):  # fmt: skip
        start = NoisyKernel(split_noise(kernel).signal, noise)
        free = np.zeros(start.n_free)
        task = Task(np.arange(n), start.theta[None])
        objective = Objective(start, free, TOLERANCE_STRUCTURED)
        (fit,) = fit_tasks(data, [task], objective, run, single=True)
        best[name] = fit.kernel, likelihood.posterior(fit.kernel).log_likelihood
    (plain, before), (kernel, after) = best.values()
    if after - before < kernel.n_free - plain.n_free:  # what chance would gain, and more
        return found
    layout = Layout.of(data.X, [np.arange(n)], np.ones(d))
    builder = Builder(data, layout, kernel, [kernel.theta[None]], None, run)
    order = np.random.default_rng(0).permutation(n)
    means, errors = _fold_errors(builder, 0.0, TOLERANCE_FOLDS, order)
    rules = space.first_rules._replace(nearest=None, calibration=none)
    other = _corrected(builder.committee(np.inf, 0.0), rules, errors, means)
    return _better(found, other)


def _better(found: Selection, other: Selection) -> Selection:
    """The one that predicts the rows better that were left out, and how they were compared.

    The folds of `other` have learned nothing from their rows. Those of what was found have, by
    hyperparameters and the terms of a trend: it promises more, and must gain more to be kept.
    """
    before, after = found.row_nll(), other.row_nll()
    is_better = not gains(after, before, PROMISES)
    compared = (
        Alternative("structure", "local", float(before.mean()), not is_better),
        Alternative("structure", "global", float(after.mean()), is_better),
    )
    best = other if is_better else found
    assert found.report is not None
    trends = [
        one._replace(chosen=False) for one in found.report.alternatives if one.parameter == "trend"
    ]
    return best.after((*compared, *(trends if is_better else ())))


def _fold_errors(
    builder: Builder, precision: float, tolerance: float, order: IndexArray
) -> tuple[Array, LeftOutErrors]:
    """Means (t, n) and errors of experts that have learned nothing at all from the row.

    `order` (n,) is that in which rows are dealt into folds.
    """
    data, run = builder.data, builder.run
    n = len(data.X)
    folds = np.array_split(order, min(n, FOLDS))
    rest = [np.setdiff1d(np.arange(n), fold) for fold in folds]
    tasks = [Task(rows, builder.starts[0][:1]) for rows in rest]
    held = np.full(builder.kernel.n_free, precision)
    objective = Objective(builder.kernel, held, tolerance)
    fits = fit_tasks(data, tasks, objective, run)
    found = []
    for fold, rows, fit in zip(folds, rest, fits, strict=True):
        expert = condition(data, rows, rows[:0], fit, exact=True)
        said = predict_expert(expert, data.X[fold], Workspace(), with_variance=True)
        squares = (data.Y[fold] - said.mean).T ** 2
        total, alpha = said.variance + expert.noise_variance, data.alpha[fold]
        unknown = said.variance / said.prior_variance
        found.append((said.mean.T, squares, total, alpha, unknown))
    in_order = np.argsort(np.concatenate(folds))
    means, *errors = (
        np.concatenate(one, axis=-1)[..., in_order] for one in zip(*found, strict=True)
    )
    return means, LeftOutErrors(*errors)
