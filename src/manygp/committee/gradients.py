"""Derivatives of predictions by the inputs: of an expert in closed form, then by the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.committee.committee import QUERYING, Committee
from manygp.dual import Dual, with_slopes
from manygp.gp.expert import PRECISION, Expert
from manygp.gp.trend import TrendAt
from manygp.rules import ExpertPredictions, Gaussian, Outside, PredictionRules
from manygp.runtime.parallel import thread_map

# Derivatives in the record of one block of rows: some copies of them fit into a cache.
BLOCK_NUMBERS = 2**18


class ExpertSlopes(NamedTuple):
    """Prediction of one expert for N rows, each (N,) with derivatives by its inputs (N, d).

    The last two are K^-1/2 k and K^-1 k of each row, (N, n): k are its covariances with the rows
    that the expert knows.
    """

    mean: Dual
    variance: Dual
    prior_variance: Dual
    prior_mean: Dual
    whitened: Array
    solved: Array


class Asked(NamedTuple):
    """What the expert of number m has said about some rows: places (N,)."""

    m: int
    rows: IndexArray
    answer: ExpertSlopes


def predict_slopes(expert: Expert, X: Array, at: TrendAt | None) -> ExpertSlopes:
    """The posterior of one target at rows X (N, d), and its derivatives in closed form.

    `at` is what the trend says about the rows, with derivatives.
    """
    n, signal, factor = len(expert.X), expert.kernel.signal, expert.factor
    rows, coefficients, W = expert.X, factor.coefficients[:n, 0], factor.whitener[:n, :n]
    k = signal(X, rows)

    def slope(by_k: Array) -> Array:
        return signal.slopes(X, rows, by_k)

    prior_mean = Dual(np.full(len(X), factor.mean[0]), np.zeros_like(X))
    prior = Dual(np.maximum(signal.diag(X), PRECISION.smallest_prior), signal.diag_slope(X))
    v = k @ W.T
    solved = v @ W
    of_mean, of_explained = slope(np.stack([np.broadcast_to(coefficients, k.shape), 2 * solved]))
    mean = Dual(k @ coefficients + factor.mean[0], of_mean)
    explained = Dual(np.einsum("ai,ai->a", v, v), of_explained)
    variance = np.maximum(prior - explained, PRECISION.smallest_variance * prior)
    if at is None:
        return ExpertSlopes(mean, variance, prior, prior_mean, v, solved)
    trend: Any = at
    left = whole = trend.variance_with(at.basis)
    if at.basis is not None and factor.terms is not None:
        unexplained = trend.basis.value - k @ factor.terms.coefficients[:n] - factor.terms.mean
        by_k = unexplained @ factor.terms.coefficients[:n].T
        by_x = np.einsum("ar,ard->ad", unexplained, trend.basis.slope) - slope(by_k)
        left = at.spread + Dual(np.einsum("ar,ar->a", unexplained, unexplained), 2 * by_x)
    shift = trend.mean[:, 0]
    mean, prior_mean, variance = mean + shift, prior_mean + shift, variance + left
    return ExpertSlopes(mean, variance, prior + whole, prior_mean, v, solved)


def gradients(
    committee: Committee, rules: PredictionRules, X: Array, n_jobs: int | None = 1
) -> tuple[Dual, Dual, Dual]:
    """Mean, latent variance and noise variance (N,) of rows X (N, d), with their derivatives.

    Raises
    ------
    ValueError
        If the trend, a kernel or a rule has no derivative.
    """
    if committee.experts[0].Y.shape[1] > 1:
        raise ValueError("gradients are for models of one target")
    if rules.needs.covariances:
        raise ValueError(
            "predictions with aggregation='nested' have no gradients; set aggregation='gpoe'"
        )
    seats = len(committee) if rules.nearest is None else rules.nearest
    step = int(np.clip(BLOCK_NUMBERS // (seats * X.shape[1]), 1, QUERYING.block_rows))
    answers: list[tuple[Dual, ...]] = []
    with thread_map(1 if len(X) <= QUERYING.small_rows else n_jobs) as parallel_map:
        for start in range(0, len(X), step):
            record = record_of(committee, rules, X[start : start + step], parallel_map)
            answers.append(combined(rules, record))
    mean, variance, noise = (Dual.joined(column) for column in zip(*answers, strict=True))
    return mean, variance, noise


def combined(rules: PredictionRules, record: ExpertPredictions) -> tuple[Dual, ...]:
    """Mean, latent variance and noise variance (N,) by the rules."""
    try:
        means, *variances = rules.combine([record])
    except TypeError as error:
        raise ValueError(
            "predictions have no gradients by these rules; a weighting, calibration or "
            f"aggregation of yours must keep to NumPy's elementary functions: {error}"
        ) from error
    plain: list[Any] = [means[0], *variances]
    slope = plain[0].slope
    return tuple(
        one if isinstance(one, Dual) else Dual(one, np.zeros_like(slope)) for one in plain
    )


def record_of(
    committee: Committee,
    rules: PredictionRules,
    X: Array,
    parallel_map: Callable[..., Iterable[Any]] = map,
    kept: list[Asked] | None = None,
) -> ExpertPredictions:
    """What the experts near to some rows predict for them, with derivatives.

    What each has said is appended to `kept`, for those who need more than that.
    """
    distance = at = outside = common = None
    if rules.nearest is not None and not committee.is_single and rules.tapered:
        distance = _distance(committee, X, rules.nearest)
    if committee.trend is not None:
        at = committee.trend.model.at(with_slopes(X))
        outside = Outside(committee.trend.model.explained, at.beyond)
    values, slopes, noise = _of_experts(committee, rules, X, at, (parallel_map, kept))
    copies = 1 if committee.layout.copies == 1 else rules.nearest or len(committee)
    found: list[Any] = [
        Dual(values[i].repeat(copies, axis=0), slopes[i].repeat(copies, axis=0)) for i in range(4)
    ]
    if committee.communication is not None:
        one: Any = predict_slopes(committee.communication, X, at)
        common = Gaussian(one.mean, one.variance)
    mean, variance, prior, prior_mean = found
    return ExpertPredictions(
        mean,
        variance,
        prior,
        noise.repeat(copies, axis=0),
        prior_mean,
        communication=common,
        outside=outside,
        distance=distance,  # type: ignore[arg-type]
    )


def _of_experts(
    committee: Committee,
    rules: PredictionRules,
    X: Array,
    at: TrendAt | None,
    how: tuple[Callable[..., Iterable[Any]], list[Asked] | None],
) -> tuple[Array, Array, Array]:
    """Answers of the experts near to rows X (N, d), with slopes: (4, M, N), (4, M, N, d), (M, N).

    The four are the first of `ExpertSlopes`; the last array is the noise variance.
    """
    parallel_map, kept = how
    near = None
    if rules.nearest is not None and not committee.is_single:
        near = committee.layout.nearest(X, rules.nearest)[0].T
    n_seats = len(committee.experts) if near is None else len(near)
    values, slopes = np.empty((4, n_seats, len(X))), np.empty((4, n_seats, *X.shape))
    noise = np.empty((n_seats, len(X)))

    def predict(m: int) -> None:
        expert: Expert = committee.experts[m]
        seat, rows = np.full(len(X), m), np.arange(len(X))
        if near is not None:
            seat, rows = np.nonzero(near == m)
        noise[seat, rows] = expert.noise_variance
        for start in range(0, len(rows), QUERYING.chunk_rows):
            some = slice(start, start + QUERYING.chunk_rows)
            place = seat[some], rows[some]
            answer = predict_slopes(expert, X[place[1]], None if at is None else at.some(place[1]))
            if kept is not None:
                kept.append(Asked(m, place[1], answer))
            for i, one in enumerate(answer[:4]):
                values[i][place], slopes[i][place] = one.value, one.slope

    for _ in parallel_map(predict, range(n_seats) if near is None else np.unique(near).tolist()):
        pass
    return values, slopes, noise


def _distance(committee: Committee, X: Array, k: int) -> Dual:
    """Distances of rows from the nearest centres, and the next one: see `Layout.nearest`."""
    layout = committee.layout
    more = min(k + 1, len(layout.parts))
    nearest, length = layout.nearest(X, more)
    away = (X * layout.metric)[:, None] - layout.centres[nearest]  # (N, more, d)
    slope = np.swapaxes(away * layout.metric, 0, 1) / length[:more, :, None]
    if more == k:
        return Dual(length, np.concatenate([slope, np.zeros((1, *X.shape))]))
    return Dual(length[:more], slope)
