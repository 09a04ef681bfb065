"""Covariances between experts, for aggregations that need them, and between rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.gp.expert import Expert, places, posterior_covariance, smoothing_weights
from manygp.gp.marginal_likelihood import noise_of
from manygp.runtime.parallel import single_threaded_blas


def between_experts(
    experts: Sequence[Expert],
    X: Array,
    seats: IndexArray,
    left_out: IndexArray | None,
    parallel_map: Callable[..., Iterable[Any]],
) -> Array:
    """Prior covariances of the means that experts predict at each row: (K, K, N).

    Expert m's mean is c_m' y_m with c_m = K_m^-1 k_m, so those of m and l covary by
    c_m' K(X_m, X_l) c_l; y_m and y_l share the noise of the rows that both know.

    Parameters
    ----------
    experts : sequence of Expert
        All with the same kernel.
    X : ndarray of shape (N, d)
    seats : ndarray of shape (K, N)
        The experts that are queried about each row.
    left_out : ndarray of shape (N,), optional
        Rows of the training data that X are, and that no expert shall know.
    parallel_map : callable
    """
    n_seats, n = seats.shape
    result = np.empty((n_seats, n_seats, n))
    weights: dict[int, tuple[IndexArray, Array]] = {}

    def smooth(m: int) -> None:
        rows = np.flatnonzero((seats == m).any(axis=0))
        left = None if left_out is None else left_out[rows]
        weights[m] = rows, smoothing_weights(experts[m], X[rows], left)

    def covary(pair: tuple[int, int]) -> None:
        a, b = pair
        first, second = experts[a], experts[b]
        K = first.kernel.signal(first.X, second.X)
        place = places(second, first.rows)
        shared = np.flatnonzero(place >= 0)
        noise = noise_of(first.noise_variance, first.alpha, first.spread)
        K[shared, place[shared]] += noise[shared] + first.jitter
        seat_a, row_a = np.nonzero(seats == a)
        seat_b, row_b = np.nonzero(seats == b)
        for s in np.unique(seat_a):
            for t in np.unique(seat_b):
                rows = np.intersect1d(row_a[seat_a == s], row_b[seat_b == t])
                if len(rows):
                    left = weights[a][1][np.searchsorted(weights[a][0], rows)]
                    right = weights[b][1][np.searchsorted(weights[b][0], rows)]
                    values = np.einsum("ij,ij->i", left @ K, right)
                    result[s, t, rows] = result[t, s, rows] = values

    present = np.unique(seats)
    for _ in parallel_map(smooth, present.tolist()):
        pass
    asked = np.zeros((len(experts), n), dtype=bool)
    asked[seats, np.arange(n)] = True
    together = asked[present].astype(float) @ asked[present].T.astype(float) > 0
    pairs = [(int(present[i]), int(present[j])) for i, j in np.argwhere(np.triu(together))]
    for _ in parallel_map(covary, pairs):
        pass
    return result


def between_rows(
    experts: Sequence[Expert],
    X: Array,
    seats: IndexArray,
    weights: Array,
    variance: Array,
    terms: Array | None = None,
) -> Array:
    """Latent covariance of the rows of X, with the aggregated variances on its diagonal: (N, N).

    D^(1/2) [sum_m sqrt(w_m(x) w_m(x')) R_m(x, x')] D^(1/2), where R_m is expert m's posterior
    correlation and D holds `variance` (N,). It is positive semi-definite, as sums and Schur
    products of such matrices are.

    Parameters
    ----------
    experts : sequence of Expert
    X : ndarray of shape (N, d)
    seats : ndarray of shape (K, N) or (M, 1)
        The experts that are queried about each row.
    weights : ndarray of shape (K, N)
        Their weights, which sum to one over the experts.
    variance : ndarray of shape (N,)
    terms : ndarray of shape (N, r), optional
        Those of a trend under the experts.
    """
    n = len(X)
    total = np.zeros((n, n))
    shares: dict[int, Array] = {}  # of the experts that are queried about any row
    for seat, weight in zip(np.broadcast_to(seats, weights.shape), weights, strict=True):
        for m in np.unique(seat).tolist():
            share = shares.setdefault(m, np.zeros(n))
            share += np.where(seat == m, weight, 0.0)
    with single_threaded_blas():
        for m, share in shares.items():
            rows = np.flatnonzero(share)
            if len(rows) == 0:
                continue
            own = None if terms is None else terms[rows]
            covariance = posterior_covariance(experts[m], X[rows], own)
            factor = np.sqrt(share[rows] / np.einsum("ii->i", covariance))
            covariance *= factor
            covariance *= factor[:, None]
            total[np.ix_(rows, rows)] += covariance
    std = np.sqrt(variance)
    total *= std
    total *= std[:, None]
    np.fill_diagonal(total, variance)
    return total
