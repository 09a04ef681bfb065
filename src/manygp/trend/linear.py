"""Linear and additive trends: lines and splines of columns, and products of pairs of them.

Terms. A spline is cubic between quantiles of its column. A column of few distinct values has a
spline of degree 1 between these: a step for each. Outside of the range a spline fades to zero
within the distance of two knots, and a straight line goes on for one range.

Which terms, and how firmly they are held: by leave-one-out of ridge. With the rows' functions H,
targets y and penalty c the error of row i, left out, is (y - H b)_i / (1 - h_i), where
b = (H'H + c I)^-1 H'y and h_i is the row's own leverage.

Coefficients: by generalised least squares. The coefficients b have the prior N(0, I / precision).
The rows of a part covary as its expert says, those of different parts not at all: K is
block-diagonal. Then b has the posterior covariance A^-1 = (H' K^-1 H + precision I)^-1 and mean
A^-1 H' K^-1 y: universal kriging by a committee. Sums over parts are all that it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import BSpline
from scipy.linalg import cho_solve, cholesky, eigh, solve_triangular

from manygp.arrays import AnyArray, Array, IndexArray
from manygp.checks import bounded, require
from manygp.dual import Dual, value_and_slope
from manygp.gp.marginal_likelihood import FILLED_ROWS, TrainingData, multiply_tiles
from manygp.gp.trend import (
    Kriging,
    Trend,
    TrendAt,
    TrendCandidate,
    TrendFactory,
    TrendModel,
)
from manygp.inputs import read_only
from manygp.kernels.base import NoisyKernel, scratch_arrays, split_noise
from manygp.kernels.text import parse_kernel, write_kernel
from manygp.runtime.parallel import single_threaded_blas, thread_map

CUBIC, HATS = 3, 1
# Share of a coefficient's own square in its cost, beside those of second differences.
ROUGHNESS = 0.1
# How many ranges beyond its range a straight line goes on.
LINE_REACH = 1.0


class Axis(NamedTuple):
    """Functions of one column.

    Attributes
    ----------
    column : int
    knots : tuple of float
        Increasing; a spline's segments lie between them. Without knots, a straight line.
    degree : int
    """

    column: int
    knots: tuple[float, ...] = ()
    degree: int = HATS

    @property
    def size(self) -> int:
        """The number of functions."""
        return len(self.knots) - 1 + self.degree if self.knots else 1


class Term(NamedTuple):
    """All products of the functions of one or two columns."""

    axes: tuple[Axis, ...]

    @property
    def columns(self) -> tuple[int, ...]:
        return tuple(axis.column for axis in self.axes)

    @property
    def size(self) -> int:
        return int(np.prod([axis.size for axis in self.axes]))


class Basis(NamedTuple):
    """The functions of a trend: a constant, and those of its terms.

    Attributes
    ----------
    low, width : ndarrays of shape (d,)
        Ranges of the columns of the training rows.
    terms : tuple of Term
    """

    low: Array
    width: Array
    terms: tuple[Term, ...]

    @property
    def size(self) -> int:
        """The number of functions."""
        return 1 + sum(term.size for term in self.terms)

    def functions(self, X: Any) -> tuple[Any, Any]:
        """Values of the functions (N, p) at rows, and how much of each term holds there (N, T).

        What holds is 1 inside of the range of the training rows, and falls to 0 outside. Rows that
        carry derivatives pass them on.
        """
        unit = (X - self.low) / self.width
        evaluated: dict[Axis, tuple[Any, Any]] = {}
        values, holds = [np.ones((len(X), 1))], [np.ones((len(X), 0))]
        for term in self.terms:
            for axis in term.axes:
                if axis not in evaluated:
                    evaluated[axis] = _evaluate(axis, unit[:, axis.column])
            first, *others = (evaluated[axis] for axis in term.axes)
            product, held = first
            for functions, share in others:
                product = (product[:, :, None] * functions[:, None]).reshape(len(X), -1)
                held = held * share
            values.append(product)
            holds.append(held[:, None])
        return joined_columns(values), joined_columns(holds)

    def slices(self) -> list[slice]:
        """Where the functions of each term are."""
        ends = np.cumsum([1, *(term.size for term in self.terms)]).tolist()
        return [slice(start, end) for start, end in pairwise(ends)]

    def beyond(self, X: Any) -> Any:
        """How many ranges a row lies outside of the range of the training rows: (N,)."""
        return beyond(X, self.low, self.width)


def multiply_rows(x: Any, A: Array, multiply: Callable[..., Any] = np.matmul) -> Any:
    """x (N, p) times A (p,) or (p, q), where x may carry derivatives."""
    if not isinstance(x, Dual):
        return multiply(x, A)
    slope = x.slope.swapaxes(1, 2) @ A
    return Dual(x.value @ A, slope if A.ndim == 1 else slope.swapaxes(1, 2))


def joined_columns(arrays: list[Any]) -> Any:
    """Arrays of N rows side by side, where some may carry derivatives."""
    with_slope = next((one for one in arrays if isinstance(one, Dual)), None)
    if with_slope is None:
        return np.concatenate(arrays, axis=1)
    d = with_slope.slope.shape[-1]
    pairs = [value_and_slope(one) for one in arrays]
    slopes = [np.broadcast_to(slope, (*value.shape, d)) for value, slope in pairs]
    return Dual(np.concatenate([v for v, _ in pairs], axis=1), np.concatenate(slopes, axis=1))


def _evaluate(axis: Axis, unit: Any) -> tuple[Any, Any]:
    """Functions of a column (N,) in units of its range: (N, size); and how far they hold."""
    if not axis.knots:
        line = np.clip(unit, -LINE_REACH, 1 + LINE_REACH) - 0.5
        return line[:, None], np.ones(len(unit))
    extended, spacing = extended_knots(axis)
    inside = np.clip(unit, axis.knots[0], axis.knots[-1])
    values = _spline(axis, extended, inside)
    share = np.exp(-(((unit - inside) / spacing) ** 2))
    return values * share[:, None], share


def _spline(axis: Axis, knots: Array, inside: Any) -> Any:
    """Values (N, size) of a spline's functions inside of its range, with their derivatives."""
    if isinstance(inside, Dual):
        weights = smooth(axis.size) if axis.degree > HATS else np.eye(axis.size)
        rise = BSpline(knots, weights, axis.degree).derivative()(inside.value)
        values = _spline(axis, knots, inside.value)
        return Dual(values, rise[:, :, None] * inside.slope[:, None])
    hats = BSpline.design_matrix(inside, knots, axis.degree).toarray()
    return hats @ smooth(axis.size) if axis.degree > HATS else hats  # steps need not be alike


def extended_knots(axis: Axis) -> tuple[Array, float]:
    """The knots of a spline's functions, those outside of its range too, and their spacing."""
    knots = np.array(axis.knots)
    spacing = (knots[-1] - knots[0]) / (len(knots) - 1)
    outer = spacing * np.arange(1, axis.degree + 1)
    return np.concatenate([knots[0] - outer[::-1], knots, knots[-1] + outer]), spacing


@cache
def smooth(size: int) -> Array:
    """What makes the coefficients of neighbouring functions alike: (size, size).

    Independent coefficients times this have the precision D'D + ROUGHNESS I, where D takes second
    differences: straight lines cost little, and waves much.
    """
    second = np.diff(np.eye(size), n=2, axis=0) if size > 2 else np.zeros((0, size))
    precision = second.T @ second + ROUGHNESS * np.eye(size)
    values, vectors = np.linalg.eigh(precision)
    root: Array = vectors / np.sqrt(values)
    return root / np.sqrt((root**2).sum() / size)


def ranges(X: Array) -> tuple[Array, Array]:
    """Lowest values and widths (d,) of the columns; 1 for the width of a constant one."""
    low, high = X.min(axis=0), X.max(axis=0)
    return low, np.where(high > low, high - low, 1.0)


def beyond(X: Any, low: Array, width: Array) -> Any:
    """How many ranges a row lies outside of the ranges from `low` on: (N,)."""
    unit = (X - low) / width
    return np.maximum(np.abs(unit - 0.5).max(axis=1) - 0.5, 0.0)


def line_terms(X: Array) -> tuple[Term, ...]:
    """A straight line for each column that varies."""
    varies = X.max(axis=0) > X.min(axis=0)
    return tuple(Term((Axis(j),)) for j in np.flatnonzero(varies).tolist())


def spline_axes(X: Array, segments: int, degree: int = CUBIC) -> dict[int, Axis]:
    """A spline of some segments for each column that varies, in units of its range.

    A column of no more distinct values than the spline has functions gets a step for each.
    """
    low, width = ranges(X)
    axes = {}
    for j, column in enumerate(((X - low) / width).T):
        if column.max() == 0.0:
            continue
        values = np.unique(column)
        if len(values) <= segments + degree:
            axes[j] = Axis(j, tuple(values.tolist()), HATS)
            continue
        knots = np.unique(np.quantile(column, np.linspace(0, 1, segments + 1)))
        even = np.linspace(0, 1, segments + 1)
        # Quantiles of a column in which one value is frequent would leave wide gaps.
        knots = knots if len(knots) == segments + 1 else even
        axes[j] = Axis(j, tuple((0.5 * (knots + even)).tolist()), degree)
    return axes


@dataclass(frozen=True)
class TermChoice:
    """Numbers of the choice of terms, and why they are what they are."""

    # Rows that choose the terms, at most.
    rows: int = 4000
    # Penalties that are compared, relative to the mean square of a function summed over the rows.
    penalties: tuple[float, ...] = tuple((10.0 ** np.arange(-7.0, 2.0)).tolist())
    # Segments of the splines of all columns, from the simplest.
    segments: tuple[int, ...] = (2, 4, 8, 16, 32, 64)
    # Numbers of pairs of columns, and segments of the quadratic splines of their products.
    pairs: tuple[int, ...] = (6, 12, 25, 50, 100)
    pair_segments: tuple[int, ...] = (1, 2, 4)
    # Functions of a trend, at most, and rows for each of them, at least.
    most_functions: int = 1200
    rows_per_function: int = 3
    # What is more flexible must lower the mean squared error by this share.
    worthwhile: float = 0.01
    # Seconds of the terms for each row.
    row_seconds: float = 2e-5
    # The least share of its error that a row keeps while it is part of the fit.
    smallest_own: float = 1e-6


TERMS = TermChoice()

# Rows whose functions are computed at a time.
FUNCTION_ROWS = 4096
QUADRATIC = 2
# Functions that a file's trend may have, and knots of one of its splines.
MOST_READ_FUNCTIONS = 4 * TERMS.most_functions
MOST_KNOTS = 4 * max(TERMS.segments)


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
    with single_threaded_blas():  # digits depend on the number of threads
        values, vectors = eigh(H.T @ H, check_finite=False)
        values = np.maximum(values, 0.0)
        rotated = H @ vectors  # (n, p)
        penalties = np.array(TERMS.penalties) * max(float(values.mean()), 1e-12)
        shrunk = 1 / (values + penalties[:, None])  # of all penalties at once: few passes
        moments = shrunk[:, :, None] * (rotated.T @ Y)
        fitted = np.einsum("npt->pnt", np.tensordot(rotated, moments, axes=(1, 1)))
        leverages = np.square(rotated, out=rotated) @ shrunk.T
    fits = [
        Ridge(basis, float(penalty), (Y - rest) / _own(leverage))
        for penalty, rest, leverage in zip(penalties, fitted, leverages.T, strict=True)
    ]
    return min(fits, key=lambda one: one.mean_square)


def fit_lines(X: Array, Y: Array) -> Ridge:
    """Straight lines of all columns; X (n, d), Y (n, t)."""
    return fit_ridge(Basis(*ranges(X), line_terms(X)), X, Y)


def fit_splines(X: Array, Y: Array) -> Ridge:
    """Splines of all columns, with the fewest segments that will do."""
    bases = [Basis(*ranges(X), tuple(_splines(X, n))) for n in TERMS.segments]
    small = [one for one in bases if one.size <= _most_functions(len(X))] or bases[:1]
    return _simplest([fit_ridge(one, X, Y) for one in small])


def fit_pairs(splines: Ridge, X: Array, Y: Array) -> Ridge:
    """Splines of all columns, and products of the pairs of columns that pay, if any do.

    Rows that have chosen the best of many pairs promise too much, although each is left out of
    the fit: pairs must also pay for the other half of the rows when one half has chosen them.
    """
    paired = _with_pairs(splines, X, Y, X)
    return paired if paired is splines or _pay_for_others(splines.basis, X, Y) else splines


def _pay_for_others(basis: Basis, X: Array, Y: Array) -> bool:
    """Whether pairs that half of the rows has chosen lower the error of the other half."""
    halves = np.array_split(np.random.default_rng(0).permutation(len(X)), 2)
    plain = paired = 0.0
    for rows, others in (halves, halves[::-1]):
        splines = fit_ridge(basis, X[rows], Y[rows])
        with_pairs = _with_pairs(splines, X[rows], Y[rows], X)
        plain += _square_of_others(splines, X[rows], Y[rows], (X[others], Y[others]))
        paired += _square_of_others(with_pairs, X[rows], Y[rows], (X[others], Y[others]))
    return paired < (1 - TERMS.worthwhile) * plain


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

    def fitted(bases: Iterable[Basis]) -> Iterator[Ridge]:
        return (fit_ridge(one, X, Y) for one in bases if one.size <= most)

    counts = [count for count in TERMS.pairs if count < len(ranked)] + [len(ranked)]
    best = _simplest([splines, *fitted(bases(TERMS.pair_segments[0], counts))])
    count = len(best.basis.terms) - len(basis.terms)
    if count == 0:
        return splines
    finer = (one for n in TERMS.pair_segments[1:] for one in fitted(bases(n, [count])))
    best = _simplest([best, *finer])
    pairs = best.basis.terms[len(basis.terms) :]
    refined = [basis._replace(terms=(*_splines(every, n), *pairs)) for n in TERMS.segments]
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
    return next(one for one in fits if one.mean_square <= (1 + TERMS.worthwhile) * least)


def _most_functions(n: int) -> int:
    return min(TERMS.most_functions, n // TERMS.rows_per_function)


def choosing_rows(n: int, rng: np.random.Generator) -> IndexArray:
    """The rows that choose the terms."""
    return np.sort(rng.permutation(n)[: TERMS.rows])


def _own(leverage: Array) -> Array:
    """1 - h for leverages (n,), which rounding keeps above zero: (n, 1)."""
    return np.maximum(1 - leverage, TERMS.smallest_own)[:, None]


def left_out_errors(ridge: Ridge, X: Array, Y: Array) -> Array:
    """Errors (n, t) of all rows, each left out, with the terms and the penalty of a few rows."""
    blocks = np.array_split(np.arange(len(X)), -(-len(X) // FUNCTION_ROWS))
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


# Numbers of the functions of all rows, at most, that are kept for the experts: 80 MB.
MOST_KEPT_NUMBERS = 1e7
# Training rows that tell how much a term varies, at most.
SIZE_ROWS = 4000


class Form(NamedTuple):
    """A linear trend's name, its basis, and the precision of the coefficients' prior."""

    name: str
    basis: Basis
    precision: float


@dataclass(frozen=True, eq=False)
class LinearTrend(TrendModel):
    """A trend with known coefficients, and what is not known about them.

    Attributes
    ----------
    form : Form
    coefficients : ndarray of shape (p, t)
    root : ndarray of shape (p, p) or (0, p)
        L^-1, where L L' = A is the Cholesky factorisation of the coefficients' precision. It has
        no rows where so many have taught them that nothing is in doubt.
    sizes : ndarray of shape (T,)
        Variance of each term over the training rows.
    kriged : bool
        Whether the experts explain a part of the trend's terms.
    kernel : NoisyKernel
        That of the experts under which it was fitted.
    """

    form: Form
    coefficients: Array
    root: Array
    sizes: Array
    kriged: bool
    kernel: NoisyKernel
    explained: float = field(init=False)

    @property
    def name(self) -> str:
        return self.form.name

    def __post_init__(self) -> None:
        object.__setattr__(self, "explained", float(self.sizes.sum()))

    def component(self, column: int, unit: Array) -> tuple[Array, Array, Array] | None:
        basis = self.form.basis
        terms = zip(basis.terms, basis.slices(), strict=True)
        own = [place for term, place in terms if term.columns == (column,)]
        if not own:
            return None
        X = np.tile(basis.low, (len(unit), 1))
        X[:, column] += unit * basis.width[column]
        functions, _ = basis.functions(X)
        kept = np.zeros_like(functions)
        for place in own:
            kept[:, place] = functions[:, place]
        kept -= kept.mean(axis=0)
        half = kept @ self.root.T  # without columns where nothing is in doubt
        std = np.sqrt(np.einsum("ij,ij->i", half, half))
        return X[:, column], kept @ self.coefficients, std

    @property
    def importance(self) -> Array:  # columns that go together have terms that nearly cancel
        """The variances of the terms, dealt out to their columns: (d,), which sum to one."""
        importance = np.zeros(len(self.form.basis.low))
        for term, size in zip(self.form.basis.terms, self.sizes, strict=True):
            for column in term.columns:
                importance[column] += size / len(term.columns)
        return importance / max(float(importance.sum()), 1e-300)

    def at(self, X: Any) -> TrendAt:
        """What it says about rows X (N, d)."""
        functions, holds = self.form.basis.functions(X)
        mean = multiply_rows(functions, self.coefficients, multiply_tiles)
        spread = multiply_rows(1 - holds**2, self.sizes)
        beyond = self.form.basis.beyond(X)
        if not len(self.root):
            return TrendAt(mean, spread, beyond)
        basis = multiply_rows(functions, self.root.T, multiply_tiles)
        said = TrendAt(mean, spread, beyond, basis)
        return said if self.kriged else said._replace(spread=said.whole_variance(), basis=None)

    def without_doubt(self) -> LinearTrend:
        return replace(self, kriged=False, root=self.root[:0])

    def on_rows(self, data: TrainingData, parts: Sequence[IndexArray]) -> Trend | None:
        return rows_under(self, data, parts) if self.kriged else None

    def bytes_on_rows(self, n: int, largest: int) -> float:
        if not self.kriged:
            return 0.0
        p = self.form.basis.size
        row = np.zeros((1, len(self.form.basis.low)))
        scratch = FILLED_ROWS * scratch_arrays(self.kernel.signal, row)
        return 8.0 * (2 * n * p + largest * (2 * largest + 6 * p + scratch))

    def to_file(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        basis = self.form.basis
        terms = [[[a.column, list(a.knots), a.degree] for a in t.axes] for t in basis.terms]
        described = {
            "name": self.name,
            "precision": self.form.precision,
            "terms": terms,
            "kriged": self.kriged,
            "kernel": write_kernel(self.kernel),
        }
        return described, {
            "trend_low": basis.low,
            "trend_width": basis.width,
            "trend_coefficients": self.coefficients,
            "trend_root": self.root,
            "trend_sizes": self.sizes,
        }

    @classmethod
    def from_file(
        cls, record: dict[str, Any], arrays: dict[str, AnyArray], shape: tuple[int, int]
    ) -> LinearTrend:
        d, n_targets = shape
        terms = tuple(Term(tuple(_axis(one, d) for one in term)) for term in record["terms"])
        require(
            all(1 <= len(term.axes) <= 2 for term in terms),
            "a term of its trend must be one or two columns with knots and a degree",
        )
        basis = Basis(*read_ranges(arrays, d), terms)
        p = basis.size
        require(p <= MOST_READ_FUNCTIONS, "its trend has too many functions")
        precision = record["precision"]
        require(
            type(precision) is float and 0 < precision < np.inf,
            "the precision of its trend must be positive",
        )
        require(type(record["kriged"]) is bool, "kriged is not true or false")
        require(isinstance(record["kernel"], str), "the kernel of its trend must be a text")
        kernel = split_noise(parse_kernel(record["kernel"]))
        kernel.check_columns(d)
        sizes = bounded(arrays, "trend_sizes", (len(terms),))
        require(np.all(sizes >= 0), "the variance of a term is negative")
        return cls(
            Form(record["name"], basis, precision),
            read_only(bounded(arrays, "trend_coefficients", (p, n_targets))),
            read_only(bounded(arrays, "trend_root", (len(arrays["trend_root"]) and p, p))),
            read_only(sizes),
            record["kriged"],
            kernel,
        )


def read_ranges(arrays: dict[str, AnyArray], d: int) -> tuple[Array, Array]:
    """Lowest values and widths (d,) of the columns, from a file."""
    low, width = bounded(arrays, "trend_low", (d,)), bounded(arrays, "trend_width", (d,))
    require(np.all(width > 0), "a column of its trend has no width")
    return low, width


def _axis(record: Any, d: int) -> Axis:
    """The functions of a column, from a file."""
    column, knots, degree = record
    require(
        type(column) is int
        and 0 <= column < d
        and type(degree) is int
        and 1 <= degree <= CUBIC
        and all(type(one) is float for one in knots)
        and len(knots) != 1
        and len(knots) <= MOST_KNOTS,
        "a term of its trend must be one or two columns with knots and a degree",
    )
    rising = np.all(np.diff(knots) > 0) and np.all(np.isfinite(knots))
    require(rising, "the knots of its trend do not rise")
    require(
        knots == [] or _spans(*knots[:: len(knots) - 1]), "the knots of its trend span no range"
    )
    return Axis(column, tuple(knots), degree)


def _spans(first: float, last: float) -> bool:
    """Whether knots are in units of the range of their column."""
    return abs(first) < 1e-3 and abs(last - 1) < 1e-3


class _Part(NamedTuple):
    """Rows whose covariance is K = L L'; `whitener` (n, n) is L^-1."""

    rows: IndexArray
    whitener: Array

    def solve(self, values: Array) -> Array:
        """K^-1 times values (n, q)."""
        return self.whitener.T @ (self.whitener @ values)


def _part(data: TrainingData, rows: IndexArray, kernel: NoisyKernel) -> _Part:
    whitener = data.likelihood(rows).posterior(kernel).whitener
    return _Part(rows, np.ascontiguousarray(whitener[: len(rows), : len(rows)]))


def fit_linear(
    form: Form,
    data: TrainingData,
    parts: Sequence[IndexArray],
    kernel: NoisyKernel,
    n_jobs: int | None = None,
) -> LinearTrend:
    """The trend under a committee of these parts, whose experts have a kernel.

    The residuals of `data` are the whole targets.
    """
    basis = form.basis
    precision = form.precision * np.eye(basis.size)
    right = np.zeros((basis.size, data.residuals.shape[1]))

    def sums(rows: IndexArray) -> tuple[Array, Array]:
        part = _part(data, rows, kernel)
        whitened = part.whitener @ basis.functions(data.X[rows])[0]
        return whitened.T @ whitened, whitened.T @ (part.whitener @ data.residuals[rows])

    with thread_map(n_jobs) as parallel_map:
        for square, product in parallel_map(sums, parts):
            precision += square
            right += product
        L = cholesky(precision, lower=True, check_finite=False)
        root = solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False)
        root = np.ascontiguousarray(root)  # as a file has it: products have the same digits
        coefficients = root.T @ (root @ right)
    some = np.linspace(0, len(data.X) - 1, min(len(data.X), SIZE_ROWS)).astype(int)
    functions, _ = basis.functions(data.X[some])
    terms = [functions[:, one] @ coefficients[one] for one in basis.slices()]
    sizes = np.array([float(np.mean((term - term.mean(axis=0)) ** 2)) for term in terms])
    kriged = len(data.X) * basis.size <= MOST_KEPT_NUMBERS
    arrays = read_only(coefficients), read_only(root), read_only(sizes)
    return LinearTrend(form, *arrays, kriged, kernel)


def rows_under(
    trend: LinearTrend,
    data: TrainingData,
    parts: Sequence[IndexArray],
    n_jobs: int | None = None,
) -> Trend:
    """What a trend that was fitted under this committee says about the training rows.

    Without row i the coefficients are b - A^-1 H' K^-1 e_i s_i with s_i = r_i / q_i, where
    r = K^-1 (y - H b) and q is the diagonal of K^-1 - K^-1 H A^-1 H' K^-1. Rows that already
    have a trend hold y - H b.
    """
    n, n_targets = data.residuals.shape
    fitted, step = np.empty((2, n, n_targets))
    curvature, along = np.empty((2, n))
    basis, pull = np.empty((2, n, trend.form.basis.size if trend.kriged else 0))

    def fill(rows: IndexArray) -> None:
        part = _part(data, rows, trend.kernel)
        functions, _ = trend.form.basis.functions(data.X[rows])
        fitted[rows] = functions @ trend.coefficients
        whole = functions @ trend.root.T
        solved = part.solve(whole)
        diagonal = np.einsum("ij,ij->j", part.whitener, part.whitener)
        curvature[rows] = diagonal - np.einsum("ij,ij->i", solved, solved)
        rest = (
            data.residuals[rows] if data.trend is not None else data.residuals[rows] - fitted[rows]
        )
        step[rows] = part.solve(rest) / curvature[rows, None]
        along[rows] = np.einsum("ij,ij->i", whole, solved)
        if trend.kriged:
            basis[rows], pull[rows] = whole, solved

    with thread_map(n_jobs) as parallel_map:
        for _ in parallel_map(fill, parts):
            pass
    kriging = Kriging(basis, pull, step, curvature) if trend.kriged else None
    return Trend(trend, fitted, -along[:, None] * step, along**2 / curvature, kriging)


@dataclass(frozen=True, eq=False)
class LinearCandidate(TrendCandidate):
    """Terms whose coefficients depend on the experts."""

    ridge: Ridge
    is_constant = False
    depends_on_experts = True

    def on(self, data: Any, parts: Sequence[IndexArray], kernel: Any, n_jobs: Any) -> Trend:
        form = Form(self.name, self.ridge.basis, self.ridge.penalty / self.mean_square)
        return rows_under(fit_linear(form, data, parts, kernel, n_jobs), data, parts, n_jobs)


class LinearFamily:
    """Lines, splines, and splines with pairs: which of them, the parameter `trend` says."""

    model = LinearTrend
    names = ("linear", "additive", "pairs")

    def factories(self, trend: str, data: Any, seed: int, run: Any) -> Iterator[TrendFactory]:
        """The simplest first; for "auto" one that is hardly better than a simpler one is none."""
        rows = choosing_rows(len(data.X), np.random.default_rng(seed))
        X, Y = data.X[rows], data.residuals[rows]
        least = float(np.mean(Y**2)) if trend == "auto" else np.inf

        def offer(name: str, ridge: Ridge) -> Iterator[TrendFactory]:
            nonlocal least
            if ridge.mean_square < (1 - TERMS.worthwhile) * least:
                least = ridge.mean_square
                yield TrendFactory(
                    lambda _: LinearCandidate(
                        name, left_out_errors(ridge, data.X, data.residuals), ridge
                    ),
                    ridge.mean_square,
                    is_nested=True,
                )

        if trend != "additive":
            run.progress.begin("linear trend")
            yield from offer("linear", fit_lines(X, Y))
        if trend != "linear":
            run.progress.begin("additive trend")
            splines = fit_splines(X, Y)
            yield from offer("additive", splines)
            run.progress.begin("pairs trend")
            yield from offer("pairs", fit_pairs(splines, X, Y))

    def seconds(self, trend: str, shape: tuple[int, int], speed: Any) -> dict[str, float]:
        n, d = shape
        rows = min(n, TERMS.rows)
        most = min(TERMS.most_functions, rows / TERMS.rows_per_function)
        sizes = d * (np.array(TERMS.segments) + 3.0)
        sizes = sizes[sizes <= max(most, sizes[0])]
        work = float((4 * rows * sizes**2 + 20 * sizes**3).sum())
        splines = work * speed.evaluation(1000) / 1000**3 + TERMS.row_seconds * n
        every = {"linear": TERMS.row_seconds * n, "additive": splines, "pairs": 2 * splines}
        if trend == "auto":
            return every
        own = ("linear",) if trend == "linear" else ("additive", "pairs")
        return {name: every[name] for name in own}


FAMILY = LinearFamily()
