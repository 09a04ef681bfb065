"""Derivatives of predictions by the inputs: of an expert in closed form, then by the rules."""

from __future__ import annotations

import numpy as np

from manygp.arrays import Array
from manygp.committee.committee import Committee
from manygp.dual import Dual, with_slopes
from manygp.gp.expert import predict_slopes
from manygp.rules import ExpertPredictions, Gaussian, Outside, PredictionRules


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
    places, distance = np.arange(len(committee.experts)), None
    if rules.nearest is not None and not committee.is_single:
        places = committee.layout.nearest(x[None], rules.nearest)[0][0]
        distance = _distance(committee, x, rules.nearest) if rules.tapered else None
    experts = [committee.experts[m] for m in places.tolist()]
    if committee.layout.copies > 1:
        experts *= len(committee) if rules.nearest is None else rules.nearest
    at = outside = None
    if committee.trend is not None:
        at = committee.trend.model.at(with_slopes(x[None]))
        outside = Outside(committee.trend.model.explained, at.beyond)
    answers = [predict_slopes(expert, x, at) for expert in experts]
    mean, variance, prior, prior_mean = (_column(column) for column in zip(*answers, strict=True))
    common = None
    if committee.communication is not None:
        one = predict_slopes(committee.communication, x, at)
        common = Gaussian(_column([one.mean])[0], _column([one.variance])[0])  # type: ignore[arg-type]
    return ExpertPredictions(
        mean,  # type: ignore[arg-type]
        variance,  # type: ignore[arg-type]
        prior,  # type: ignore[arg-type]
        np.array([[expert.noise_variance] for expert in experts]),
        prior_mean,  # type: ignore[arg-type]
        communication=common,
        outside=outside,
        distance=distance,  # type: ignore[arg-type]
    )


def _distance(committee: Committee, x: Array, k: int) -> Dual:
    """Distances of a row from the nearest centres, and the next one: see `Layout.nearest`."""
    layout = committee.layout
    more = min(k + 1, len(layout.parts))
    nearest, length = layout.nearest(x[None], more)
    away = x * layout.metric - layout.centres[nearest[0]]  # (more, d)
    slope = away * layout.metric / length[:more]
    if more == k:
        return Dual(length, np.vstack([slope, np.zeros_like(x)])[:, None])
    return Dual(length[:more], slope[:, None])


def _column(numbers: list[Dual] | tuple[Dual, ...]) -> Dual:
    """Numbers of M experts for one row: (M, 1)."""
    value = np.array([[one.value] for one in numbers])
    return Dual(value, np.array([[one.slope] for one in numbers]))
