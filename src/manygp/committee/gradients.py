"""Derivatives of predictions by the inputs: of an expert in closed form, then by the rules."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manygp.arrays import Array
from manygp.committee.committee import Committee
from manygp.gp.expert import SMALLEST_PRIOR, SMALLEST_VARIANCE, Expert
from manygp.kernels.slopes import diag_slope, slopes
from manygp.rules.combine import PredictionRules
from manygp.rules.dual import Dual
from manygp.rules.records import ExpertPredictions, Gaussian, Outside
from manygp.trend.slopes import TrendSlopes, trend_slopes


class Slopes(NamedTuple):
    """What one expert predicts for a row, each () with derivatives by its inputs (d,)."""

    mean: Dual
    variance: Dual
    prior_variance: Dual
    prior_mean: Dual


def gradients(committee: Committee, rules: PredictionRules, x: Array) -> tuple[Dual, Dual]:
    """Mean and variance, noise included, of one row x (d,), with their derivatives.

    Raises
    ------
    ValueError
        If the trend, a kernel or a rule has no derivative.
    """
    if committee.experts[0].Y.shape[1] > 1:
        raise ValueError("gradients are for models of one target")
    if rules.needs.covariances:
        raise ValueError("predictions with aggregation='nested' have no gradients")
    try:
        means, variance, noise = rules.combine([_record(committee, rules, x)])
    except TypeError as error:
        raise ValueError(
            "predictions have no gradients by these rules; a weighting, calibration or "
            f"aggregation of yours must keep to NumPy's elementary functions: {error}"
        ) from error
    total = variance + noise
    return means[0, 0], total[0]


def _record(committee: Committee, rules: PredictionRules, x: Array) -> ExpertPredictions:
    """What the experts near to one row predict for it, with derivatives."""
    places = np.arange(len(committee.experts))
    if rules.nearest is not None and not committee.is_single:
        places = committee.layout.nearest(x[None], rules.nearest)[0]
    experts = [committee.experts[m] for m in places.tolist()]
    if committee.layout.copies > 1:
        experts *= len(committee) if rules.nearest is None else rules.nearest
    at = outside = None
    if committee.trend is not None:
        at = trend_slopes(committee.trend.model, x)
        outside = Outside(committee.trend.model.explained, at.beyond)  # type: ignore[arg-type]
    found = [_slopes(expert, x, at) for expert in experts]
    mean, variance, prior, prior_mean = (_column(column) for column in zip(*found, strict=True))
    common = None
    if committee.communication is not None:
        one = _slopes(committee.communication, x, at)
        common = Gaussian(_column([one.mean])[0], _column([one.variance])[0])  # type: ignore[arg-type]
    return ExpertPredictions(
        mean,  # type: ignore[arg-type]
        variance,  # type: ignore[arg-type]
        prior,  # type: ignore[arg-type]
        np.array([[expert.noise_variance] for expert in experts]),
        prior_mean,  # type: ignore[arg-type]
        communication=common,
        outside=outside,
    )


def _slopes(expert: Expert, x: Array, at: TrendSlopes | None) -> Slopes:
    """What one expert predicts for a row, with derivatives in closed form.

    `at` is what the trend under it says about the row.
    """
    n, signal, factor = len(expert.X), expert.kernel.signal, expert.factor
    k, by_x = signal(x[None], expert.X)[0], slopes(signal, x, expert.X)
    coefficients, W = factor.coefficients[:n, 0], factor.whitener[:n, :n]
    mean = Dual(k @ coefficients + factor.mean[0], by_x.T @ coefficients)
    prior_mean = Dual(factor.mean[0], np.zeros_like(x))
    prior = Dual(np.maximum(signal.diag(x[None])[0], SMALLEST_PRIOR), diag_slope(signal, x))
    v, by_v = W @ k, W @ by_x
    explained = Dual(v @ v, 2 * (by_v.T @ v))
    variance = np.maximum(prior - explained, SMALLEST_VARIANCE * prior)
    if at is None:
        return Slopes(mean, variance, prior, prior_mean)
    unexplained = at.basis
    if at.basis is not None and factor.terms is not None:
        terms = factor.terms.coefficients[:n]
        unexplained = at.basis - Dual(k @ terms + factor.terms.mean, terms.T @ by_x)
    return Slopes(
        mean + at.mean,
        variance + at.variance(unexplained),
        prior + at.variance(at.basis),
        prior_mean + at.mean,
    )


def _column(numbers: list[Dual] | tuple[Dual, ...]) -> Dual:
    """Numbers of M experts for one row: (M, 1)."""
    value = np.array([[one.value] for one in numbers])
    return Dual(value, np.array([[one.slope] for one in numbers]))
