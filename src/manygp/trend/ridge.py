"""Which terms an additive trend has, and how firmly they are held: by leave-one-out of ridge.

With the rows' functions H, targets y and penalty c the error of row i, left out, is
(y - H b)_i / (1 - h_i), where b = (H'H + c I)^-1 H'y and h_i is the row's own leverage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, eigh, solve_triangular

from manygp.arrays import Array, IndexArray
from manygp.runtime.parallel import single_threaded_blas
from manygp.trend.terms import Basis, Term, line_terms, ranges, spline_axes

# Rows that choose the terms, at most.
CHOOSING_ROWS = 4000
# Rows whose functions are computed at a time.
BLOCK_ROWS = 4096
# Penalties that are compared, relative to the mean square of a function summed over the rows.
PENALTIES = 10.0 ** np.arange(-7.0, 2.0)
# Segments of the splines of all columns, from the simplest.
SEGMENTS = (2, 4, 8, 16, 32, 64)
# Numbers of pairs of columns, and segments of the quadratic splines of their products.
PAIRS = (6, 12, 25, 50, 100)
PAIR_SEGMENTS = (1, 2, 4)
QUADRATIC = 2
# Functions of a trend, at most, and rows for each of them, at least.
MOST_FUNCTIONS = 1200
ROWS_PER_FUNCTION = 3
# What is more flexible must lower the mean squared error by this share.
WORTHWHILE = 0.01
# The least share of its error that a row keeps while it is part of the fit.
SMALLEST_OWN = 1e-6


class Ridge(NamedTuple):
    """A basis, its penalty, and the errors of the rows, each left out.

    Attributes
    ----------
    basis : Basis
    penalty : float
        Squared error that a squared coefficient costs.
    errors : ndarray of shape (n, t)
    """

    basis: Basis
    penalty: float
    errors: Array

    @property
    def mean_square(self) -> float:
        return float(np.mean(self.errors**2))


def fit_ridge(basis: Basis, X: Array, Y: Array) -> Ridge:
    """The penalty with the least error of rows that are left out; X (n, d), Y (n, t)."""
    H, _ = basis.functions(X)
    found = []
    with single_threaded_blas():  # digits depend on the number of threads
        values, vectors = eigh(H.T @ H, check_finite=False)
        values = np.maximum(values, 0.0)
        rotated = H @ vectors  # (n, p)
        moments, squares = rotated.T @ Y, rotated**2
        for penalty in PENALTIES * max(float(values.mean()), 1e-12):
            shrunk = 1 / (values + penalty)
            rest = Y - rotated @ (shrunk[:, None] * moments)
            found.append(Ridge(basis, float(penalty), rest / _own(squares @ shrunk)))
    return min(found, key=lambda one: one.mean_square)


def fit_lines(X: Array, Y: Array) -> Ridge:
    """Straight lines of all columns; X (n, d), Y (n, t)."""
    return fit_ridge(Basis(*ranges(X), line_terms(X)), X, Y)


def fit_splines(X: Array, Y: Array) -> Ridge:
    """Splines of all columns, with the fewest segments that will do."""
    bases = [Basis(*ranges(X), tuple(_splines(X, n))) for n in SEGMENTS]
    small = [one for one in bases if one.size <= _most_functions(len(X))] or bases[:1]
    return _simplest([fit_ridge(one, X, Y) for one in small])


def fit_pairs(splines: Ridge, X: Array, Y: Array) -> Ridge:
    """Splines of all columns, and products of the pairs of columns that pay, if any do.

    Rows that have chosen the best of many pairs promise too much, although each is left out of
    the fit: pairs must also pay for the other half of the rows when one half has chosen them.
    """
    found = _with_pairs(splines, X, Y, X)
    return found if found is splines or _pay_for_others(splines.basis, X, Y) else splines


def _pay_for_others(basis: Basis, X: Array, Y: Array) -> bool:
    """Whether pairs that half of the rows has chosen lower the error of the other half."""
    halves = np.array_split(np.random.default_rng(0).permutation(len(X)), 2)
    plain = paired = 0.0
    for rows, others in (halves, halves[::-1]):
        splines = fit_ridge(basis, X[rows], Y[rows])
        found = _with_pairs(splines, X[rows], Y[rows], X)
        plain += _square_of_others(splines, X[rows], Y[rows], (X[others], Y[others]))
        paired += _square_of_others(found, X[rows], Y[rows], (X[others], Y[others]))
    return paired < (1 - WORTHWHILE) * plain


def _square_of_others(ridge: Ridge, X: Array, Y: Array, others: tuple[Array, Array]) -> float:
    """The squared error of other rows by a ridge regression on rows X (n, d), Y (n, t)."""
    X_others, Y_others = others
    H, _ = ridge.basis.functions(X)
    with single_threaded_blas():
        square = H.T @ H + ridge.penalty * np.eye(ridge.basis.size)
        L = cholesky(square, lower=True, check_finite=False)
        coefficients = cho_solve((L, True), H.T @ Y, check_finite=False)
        rest = Y_others - ridge.basis.functions(X_others)[0] @ coefficients
    return float(np.sum(rest**2))


def _with_pairs(splines: Ridge, X: Array, Y: Array, every: Array) -> Ridge:
    """Splines of all columns, and the pairs by which the error of rows falls, each left out.

    The rows `every` say what functions there can be, of which rows X are some.
    """
    basis, most = splines.basis, _most_functions(len(every))
    ranked = rank_pairs(basis, X, splines.errors)

    def bases(segments: int, counts: Iterable[int]) -> Iterator[Basis]:
        axes = spline_axes(every, segments, QUADRATIC)
        for count in counts:
            pairs = tuple(Term((axes[i], axes[j])) for i, j in ranked[:count])
            yield basis._replace(terms=basis.terms + pairs)

    def fitted(found: Iterable[Basis]) -> Iterator[Ridge]:
        return (fit_ridge(one, X, Y) for one in found if one.size <= most)

    counts = [count for count in PAIRS if count < len(ranked)] + [len(ranked)]
    best = _simplest([splines, *fitted(bases(PAIR_SEGMENTS[0], counts))])
    count = len(best.basis.terms) - len(basis.terms)
    if count == 0:
        return splines
    finer = (one for n in PAIR_SEGMENTS[1:] for one in fitted(bases(n, [count])))
    best = _simplest([best, *finer])
    pairs = best.basis.terms[len(basis.terms) :]
    refined = [basis._replace(terms=(*_splines(every, n), *pairs)) for n in SEGMENTS]
    larger = [one for one in refined if one.size > best.basis.size][:2]
    return _simplest([best, *fitted(larger)])  # what the pairs have hidden


def _splines(X: Array, segments: int) -> Iterator[Term]:
    """A term for each column."""
    return (Term((axis,)) for axis in spline_axes(X, segments).values())


def rank_pairs(basis: Basis, X: Array, errors: Array) -> list[tuple[int, int]]:
    """Pairs of columns, those first whose products explain most of the errors (n, t).

    The products are those of the columns and their squares, all centred.
    """
    unit = (X - basis.low) / basis.width
    columns = sorted({column for term in basis.terms for column in term.columns})
    line = unit[:, columns] - unit[:, columns].mean(axis=0)
    square = line**2 - (line**2).mean(axis=0)
    powers = [one / np.sqrt((one**2).mean(axis=0) + 1e-12) for one in (line, square)]
    score = np.zeros((len(columns), len(columns)))
    for error in errors.T:
        for left in powers:
            for right in powers:
                moment = (left * error[:, None]).T @ right / len(X)
                size = (left**2).T @ right**2 / len(X)
                score += moment**2 / np.maximum(size, 1e-12)
    score = score + score.T
    order = sorted(combinations(range(len(columns)), 2), key=lambda pair: -score[pair])
    return [(columns[i], columns[j]) for i, j in order]


def _simplest(fits: Sequence[Ridge]) -> Ridge:
    """The first whose error is next to the least."""
    least = min(one.mean_square for one in fits)
    return next(one for one in fits if one.mean_square <= (1 + WORTHWHILE) * least)


def _most_functions(n: int) -> int:
    return min(MOST_FUNCTIONS, n // ROWS_PER_FUNCTION)


def choosing_rows(n: int, rng: np.random.Generator) -> IndexArray:
    """The rows that choose the terms."""
    return np.sort(rng.permutation(n)[:CHOOSING_ROWS])


def _own(leverage: Array) -> Array:
    """1 - h for leverages (n,), which rounding keeps above zero: (n, 1)."""
    return np.maximum(1 - leverage, SMALLEST_OWN)[:, None]


def left_out_errors(ridge: Ridge, X: Array, Y: Array) -> Array:
    """Errors (n, t) of all rows, each left out, with the terms and the penalty of a few rows."""
    blocks = np.array_split(np.arange(len(X)), -(-len(X) // BLOCK_ROWS))
    p = ridge.basis.size
    square, right = ridge.penalty * np.eye(p), np.zeros((p, Y.shape[1]))
    errors = np.empty_like(Y)
    with single_threaded_blas():
        for rows in blocks:
            H, _ = ridge.basis.functions(X[rows])
            square += H.T @ H
            right += H.T @ Y[rows]
        L = cholesky(square, lower=True, check_finite=False)
        coefficients = cho_solve((L, True), right, check_finite=False)
        for rows in blocks:
            H, _ = ridge.basis.functions(X[rows])
            half = solve_triangular(L, H.T, lower=True, check_finite=False)
            leverage = np.einsum("ij,ij->j", half, half)
            errors[rows] = (Y[rows] - H @ coefficients) / _own(leverage)
    return errors
