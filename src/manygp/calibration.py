"""Calibration by left-out rows: the correction of the variance, tails and intervals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression, minimize_scalar
from scipy.special import gammaln, ndtr, ndtri, stdtr, stdtrit

from manygp.arrays import AnyArray, Array, IndexArray
from manygp.fit_report import Alternative
from manygp.inputs import is_number, read_only
from manygp.rules import Correction, VarianceCurve


@dataclass(frozen=True)
class TailChoice:
    """Numbers of the choice of how errors are spread, and why they are what they are."""

    # Degrees of freedom that are compared; infinity is the normal distribution.
    degrees: tuple[float, ...] = (np.inf, 100.0, 30.0, 15.0, 10.0, 7.0, 5.0, 4.0, 3.0, 2.5)
    # Nats per row that fewer degrees of freedom must gain.
    min_gain: float = 1e-4
    # Logarithms of the scales among which the best is sought.
    log_scales: tuple[float, float] = (-7.0, 7.0)
    # How firmly the scale is held at what is expected, in errors.
    scale_precision: float = 8.0
    # A scale of n errors that is expected has the square (n + 1) / (n - lost_errors). In
    # simulations of 2 to 30 rows (`rows-2` to `rows-30` of `bench trust`), 90% intervals hold 84
    # to 92%.
    lost_errors: float = 1.8
    # Errors that are enough for any degrees of freedom.
    many_errors: int = 100
    # Errors that are told apart, in units of the std.
    smallest_error: float = 1e-12
    # Degrees of freedom from which on a Student-t is taken for normal.
    nearly_infinite: float = 1e4


TAIL = TailChoice()


class Tail(NamedTuple):
    """Spread of errors in units of the std: degrees of freedom, and a scale."""

    dof: float = np.inf
    scale: float = 1.0


def student_nll(z: Array, dof: float, scale: Array | float) -> Array:
    """Negative log density of errors z (N,) of this scale; normal if dof is infinite: (N,)."""
    return -_log_density(z / scale, dof) + np.log(scale)


def normal_nll(squares: Array, variance: Array) -> Array:
    """Negative log-likelihood of normal errors with these squares: of the same shape."""
    nll: Array = 0.5 * (np.log(2 * np.pi * variance) + squares / variance)
    return nll


def fit_tail(z: Array) -> Tail:
    """The tail of highest log score for errors |z|, in units of the std: (N,).

    A few errors do not tell how they are spread: the fewer they are, the heavier the tail and the
    larger the scale that is expected.
    """
    n = len(z)
    squares = np.maximum(np.abs(z), TAIL.smallest_error) ** 2
    expected = 0.5 * np.log((n + 1) / max(n - TAIL.lost_errors, 0.1))
    best, best_nll = Tail(), np.inf
    degrees = [one for one in TAIL.degrees if one <= n / 2 or n > TAIL.many_errors]
    for dof in degrees or TAIL.degrees[-1:]:
        at_zero = float(student_nll(np.zeros(()), dof, 1.0))

        def loss(log_scale: float, dof: float = dof, at_zero: float = at_zero) -> float:
            shrinkage = TAIL.scale_precision * (log_scale - expected) ** 2 / (2 * n)
            unlikely = _mean_loss(squares, dof, np.exp(-2 * log_scale))
            return at_zero + log_scale + unlikely + shrinkage

        within = {"bounds": TAIL.log_scales, "options": {"xatol": 1e-3}}
        optimum = minimize_scalar(loss, method="bounded", **within)
        if optimum.fun < best_nll - TAIL.min_gain:
            best, best_nll = Tail(dof, float(np.exp(optimum.x))), optimum.fun
        elif optimum.fun > best_nll:
            break  # even fewer degrees of freedom are worse still
    return best


def _mean_loss(squares: Array, dof: float, unit: float) -> float:
    """Mean of the nats that squared errors, times a unit, are less likely than none."""
    if np.isinf(dof):
        return float(0.5 * unit * squares.mean())
    return float((dof + 1) / 2 * np.log1p(squares * (unit / dof)).mean())


@dataclass(frozen=True)
class ShapeChoice:
    """Numbers of the shape of errors, and why they are what they are."""

    # Shares of errors, from the largest on, whose sizes are learned. A tenth is among them: 90%
    # intervals are those of the errors. The largest 2% keep the tail of the Student-t.
    shares: tuple[float, ...] = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 0.9, 1.0)
    # As if this many more errors had been spread as the Student-t says.
    pseudo_rows: float = 10.0
    # Fewer errors, about twenty between two sizes, tell no shape.
    fewest_rows: int = 200
    # What is farther than this many widths from the mean has no chance.
    farthest: float = 1e10
    # Pieces that each one between two sizes is cut into where it is taken for a line, for CRPS.
    pieces: int = 8


SHAPE = ShapeChoice()
SHARES = read_only(np.array(SHAPE.shares))


class Shape(NamedTuple):
    """How much more or less often than a Student-t variable errors are large.

    It maps the chance that a Student-t variable is larger than some size, of either sign, to that
    of an error. Monotone rational quadratic splines (Gregory and Delbourgo) join the points, so
    that densities have no steps. For the largest errors it is a factor: they have the tail of the
    Student-t.

    Attributes
    ----------
    knots : ndarray of shape (..., K)
        Chances that a Student-t variable is larger than what the `SHARES` (K,) of errors exceed.
    """

    knots: Array

    @classmethod
    def of(cls, chances: Array) -> Shape:
        """Of errors that a Student-t variable exceeds with these chances: (m,)."""
        n, inner = len(chances), SHARES[1:-1]
        learned = np.quantile(chances, inner, method="weibull")
        shrunk = (n * learned + SHAPE.pseudo_rows * inner) / (n + SHAPE.pseudo_rows)
        return cls(np.concatenate([[0.0], shrunk, [1.0]]))

    def chance(self, student: Array) -> tuple[Array, Array]:
        """The chance of an error for that of a Student-t variable, and the log of its slope."""
        place = sum((student >= self.knots[..., k] for k in range(1, len(SHARES) - 1)), 0)
        left, width, low, rise, begin, end = self._piece(place)
        beyond, bend = student - low, begin + end - 2 * rise
        a = width * rise * (rise - begin) + beyond * bend
        b = width * rise * begin - beyond * bend
        root = np.sqrt(np.maximum(b**2 + 4 * a * rise * beyond, 0.0))
        share = np.clip(2 * rise * beyond / (b + root), 0.0, 1.0)
        rest = 1 - share
        slope = begin * rest**2 + 2 * rise * share * rest + end * share**2
        log_slope = 2 * np.log((rise + bend * share * rest) / rise) - np.log(slope)
        return left + width * share, log_slope

    def student(self, chance: Array) -> Array:
        """The chance of a Student-t variable for that of an error."""
        left, width, low, rise, begin, end = self._piece(
            np.searchsorted(SHARES[1:-1], chance, side="right")
        )
        share = (chance - left) / width
        both = share * (1 - share)
        height = width * rise * (rise * share**2 + begin * both)
        return np.asarray(low + height / (rise + (begin + end - 2 * rise) * both))

    def _piece(self, place: Any) -> tuple[Array, ...]:
        """Of pieces k: begin and width, value there, mean slope, and slopes at both ends."""
        width = np.diff(SHARES)
        rise = np.diff(self.knots) / width
        # Weighted harmonic means of the slopes of both sides, but the first piece is a line.
        near, far = 2 * width[1:] + width[:-1], width[1:] + 2 * width[:-1]
        slopes = (near + far) / (near / rise[..., :-1] + far / rise[..., 1:])
        slopes[..., 0] = rise[..., 0]
        slopes = np.concatenate([rise[..., :1], slopes, rise[..., -1:]], axis=-1)
        place = np.broadcast_to(place, np.broadcast_shapes(np.shape(place), rise.shape[:-1]))

        def at(values: Array, shift: int = 0) -> Array:
            every = np.broadcast_to(values, (*place.shape, values.shape[-1]))
            return np.take_along_axis(every, place[..., None] + shift, axis=-1)[..., 0]

        return SHARES[place], width[place], at(self.knots), at(rise), at(slopes), at(slopes, 1)


# Where a quantile of the Student-t is that of its tail alone: level, and size by sqrt(nu).
TINY_LEVEL, FAR_QUANTILE = 1e-30, 1e8


@dataclass(frozen=True, eq=False)
class PredictiveDistribution:
    """Independent distributions of N rows: mean + scale * std * t, with t a Student-t variable.

    Where errors that were left out have another shape, it is the distribution of these.

    Methods take and return arrays whose last axes are those of `mean`: (N,), or (N, t) for
    several targets.

    Attributes
    ----------
    mean : ndarray of shape (N,) or (N, t)
    std : ndarray of the same shape
        The root mean square error that is expected, as `predict` returns it.
    dof, scale : ndarrays of shape () or (t,), or that of `mean`
        Degrees of freedom, infinite for a normal distribution, and the scale of the Student-t in
        units of std: the same for all rows, or of each row.
    shape : Shape or None
        Of errors beside the Student-t, with knots of the shape of `dof` and one axis more.
    """

    mean: Array
    std: Array
    dof: Array
    scale: Array
    shape: Shape | None = None

    def shape_of(self, rows: slice) -> Shape | None:
        """The shape of some rows."""
        if self.shape is None:
            return None
        return Shape(np.broadcast_to(self.shape.knots, (*self.mean.shape, len(SHARES)))[rows])

    def pdf(self, y: Array) -> Array:
        """Density at y."""
        return np.exp(self.logpdf(y))

    def logpdf(self, y: Array) -> Array:
        """Logarithm of the density at y."""
        width = self.std * self.scale
        z = (np.asarray(y) - self.mean) / width
        density = _log_density(z, self.dof) - np.log(width)
        if self.shape is None:
            return density
        return density + self.shape.chance(2 * _student_cdf(-np.abs(z), self.dof))[1]

    def cdf(self, y: Array) -> Array:
        """Probability of a value of at most y."""
        z = (np.asarray(y) - self.mean) / (self.std * self.scale)
        if self.shape is None:
            return _student_cdf(z, self.dof)
        beyond = 0.5 * self.shape.chance(2 * _student_cdf(-np.abs(z), self.dof))[0]
        return np.where(z < 0, beyond, 1 - beyond)

    def ppf(self, level: Array | float) -> Array:
        """The value that is not exceeded with a probability of `level`."""
        if not np.all((np.asarray(level) > 0) & (np.asarray(level) < 1)):
            raise ValueError(f"levels must lie between 0 and 1, not be {level!r}")
        return self.mean + self.std * self.scale * self._quantile(np.asarray(level))

    def interval(self, coverage: float) -> tuple[Array, Array]:
        """Ends of the central interval that holds y with a probability of `coverage`."""
        return self.ppf(0.5 - coverage / 2), self.ppf(0.5 + coverage / 2)

    def sample(self, n: int, random_state: int | np.random.Generator | None = None) -> Array:
        """Draw n values for each row: (n, N) or (n, N, t)."""
        rng = np.random.default_rng(random_state)
        shape = (n, *self.mean.shape)
        if self.shape is not None:
            levels = np.clip(rng.random(shape), TINY_LEVEL, None)
            return self.mean + self.std * self.scale * self._quantile(levels)
        t = np.where(
            np.isinf(self.dof),
            rng.standard_normal(shape),
            rng.standard_t(np.broadcast_to(_finite(self.dof), shape)),
        )
        return self.mean + self.std * self.scale * t

    def crps(self, y: Array) -> Array:
        """Continuous ranked probability score at y, in closed form."""
        width = self.std * self.scale
        z = np.abs(np.asarray(y) - self.mean) / width
        shares, knots = np.array([0.0, 1.0]), np.array([0.0, 1.0])
        if self.shape is not None:
            steps = np.arange(SHAPE.pieces * (len(SHARES) - 1) + 1) / SHAPE.pieces
            shares = np.interp(steps, np.arange(len(SHARES)), SHARES)
            knots = Shape(self.shape.knots[..., None, :]).student(shares)
        return width * _crps(z, self.dof, shares, knots)

    def _quantile(self, level: Array) -> Array:
        """Quantiles in units of the scale."""
        if self.shape is None:
            return _student_quantile(self.dof, level)
        beyond = 2 * np.minimum(level, 1 - level)
        lower = _student_quantile(self.dof, 0.5 * self.shape.student(beyond))
        return np.where(level < 0.5, lower, -lower)


def _finite(dof: Array) -> Array:
    """Degrees of freedom, with a number where they are infinite and not used."""
    return np.where(np.isinf(dof), 1.0, dof)


def _student_cdf(z: Array, dof: Array) -> Array:
    """Of the standard Student-t, or normal, distribution."""
    return np.where(np.isinf(dof), ndtr(z), stdtr(_finite(dof), z))


def _student_quantile(dof: Array, level: Array) -> Array:
    """Quantiles of the same; of the lowest levels of the Student-t SciPy's are wrong, or +inf.

    Far out the density is c (z^2 / nu)^(-(nu + 1) / 2), where c is that at 0.
    """
    nu = _finite(dof)
    z = stdtrit(nu, level)
    log_density = _log_density(np.zeros(()), nu) + np.log(nu) * (nu - 1) / 2
    with np.errstate(over="ignore"):  # -inf, then
        tail = np.exp((log_density - np.log(level)) / nu)
    is_far = (tail > FAR_QUANTILE * np.sqrt(nu)) | ((level < TINY_LEVEL) & ~(z < 0))
    return np.where(np.isinf(dof), ndtri(level), np.where(is_far, -tail, z))


def _log_density(z: Array, dof: Array | float) -> Array:
    """Log density of the standard Student-t, or normal, distribution."""
    nu = _finite(np.asarray(dof))
    constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(nu * np.pi)
    student = constant - (nu + 1) / 2 * np.log1p(z**2 / nu)
    return np.where(np.isinf(dof), -0.5 * np.log(2 * np.pi) - 0.5 * z**2, student)


def normal_crps(z: Array) -> Array:
    """Continuous ranked probability score of standard normal distributions at z."""
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi)


def _crps(z: Array, dof: Array, shares: Array, knots: Array) -> Array:
    """At z >= 0 of symmetric variables that exceed in size what a Student-t does by lines.

    These lead from knots (..., J), chances of a Student-t variable, to shares (J,), chances of the
    variable. With S(x) the chance of more than x it is z - int_0^z S + int_0^inf S^2 / 2, and S is
    a + b v(x) between two knots, where v(x) is the chance of the Student-t variable.
    """
    slope = np.diff(shares) / np.diff(knots)
    constant = shares[:-1] - slope * knots[..., :-1]
    constant[..., 0] = 0.0
    nu = np.asarray(dof)[..., None]
    with np.errstate(divide="ignore"):
        x = np.minimum(-_student_quantile(nu, 0.5 * knots), SHAPE.farthest)
    ones, squares = _chance_integrals(x, nu)
    lengths, ones, squares = (-np.diff(one) for one in (x, ones, squares))
    half = constant**2 * lengths + 2 * constant * slope * ones + slope**2 * squares
    below = np.minimum(x, np.asarray(z)[..., None])
    lengths, ones = -np.diff(below), -np.diff(_chance_integrals(below, nu)[0])
    return z - (constant * lengths + slope * ones).sum(axis=-1) + 0.5 * half.sum(axis=-1)


def _chance_integrals(x: Array, dof: Array) -> tuple[Array, Array]:
    """Integrals from 0 to x of v and v^2, v(t) the chance that a Student-t variable is beyond t.

    With h(t) = f(t) (nu + t^2) / (nu - 1), minus the integral of t f(t), they are x v + 2 h(0) -
    2 h(x) and x v^2 + 4 h(0) - 4 h(x) v - 8 int h f; h f is a Student-t density of 2 nu - 1.
    """
    normal, nu = np.isinf(dof), np.maximum(_finite(dof), 1.01)
    v = 2 * _student_cdf(-x, dof)

    def h(t: Array) -> Array:
        factor = np.where(normal, 1.0, (nu + t**2) / (nu - 1))
        return factor * np.exp(_log_density(t, dof))

    zero, more = np.zeros(()), 2 * nu - 1
    log_ratio = 2 * _log_density(zero, nu) - _log_density(zero, more)
    area = np.exp(log_ratio) * nu / (nu - 1) * np.sqrt(nu / more)
    student = area * (stdtr(more, x * np.sqrt(more / nu)) - 0.5)
    products = np.where(normal, (ndtr(x * np.sqrt(2)) - 0.5) / (2 * np.sqrt(np.pi)), student)
    first = x * v + 2 * (h(zero) - h(x))
    return first, x * v**2 + 4 * (h(zero) - h(x) * v) - 8 * products


@dataclass(frozen=True, eq=False)
class ConformalScores:
    """Errors of m rows that were left out, in G groups of rows by their std or their mean.

    Attributes
    ----------
    errors : ndarray of shape (t, m)
        ``|y - mean| / std`` of each target. Groups stand one after the other, the smallest std
        or mean first, and are sorted in themselves. They have m / G rows each, the first ones
        one more.
    places : ndarray of shape (G,)
        Logarithm of the median std of each group, or its median mean, in units of the normalised
        targets.
    shaped : bool
        Whether their distribution has a shape of its own beside that of the Student-t.
    by_mean : bool
        Whether groups are by the mean.
    """

    errors: Array
    places: Array
    shaped: bool = False
    by_mean: bool = False

    @classmethod
    def of(
        cls, errors: Array, std: Array, n_groups: int = 1, means: Array | None = None
    ) -> ConformalScores:
        """The errors (t, m), of either sign, of rows with the std (m,), by it or by `means`."""
        key = np.log(std) if means is None else means
        groups = np.array_split(np.argsort(key, kind="stable"), n_groups)
        places = np.array([np.median(key[group]) for group in groups])
        ordered = [np.sort(np.abs(errors[:, group]), axis=1) for group in groups]
        in_order = read_only(np.concatenate(ordered, axis=1))
        return cls(in_order, read_only(places), by_mean=means is not None)

    @property
    def groups(self) -> list[Array]:
        """The errors of each group: (t, m / G)."""
        return np.array_split(self.errors, len(self.places), axis=1)

    def require(self, coverage: float) -> None:
        """Refuse a coverage that so many rows cannot promise."""
        check_coverage(coverage)
        m = self.errors.shape[1]
        if m == 1:
            raise ValueError("a single training row tells nothing about errors; fit more")
        if _rank(m, coverage) > m:
            raise ValueError(
                f"{m} training rows can promise a coverage of at most {m / (m + 1):.4g}, not "
                f"{coverage!r}; ask for less, or fit at least "
                f"{int(np.ceil(coverage / (1 - coverage) - 1e-6)):,} rows"
            )

    def reach(self, coverage: float, std: Array, mean: Array | None = None) -> Array:
        """How many std an interval extends to either side of rows with the std (N, t): (N, t).

        `mean` (N, t), normalised as well, is needed where groups are by the mean. Where a group
        has too few rows to promise the coverage, it is that of all rows, or the largest error of
        the group if that is larger.
        """
        self.require(coverage)
        groups = self.groups
        ranks = [min(_rank(group.shape[1], coverage), group.shape[1]) for group in groups]
        quantiles = [group[:, rank - 1] for group, rank in zip(groups, ranks, strict=True)]
        reaches = self._between(np.array(quantiles), std, mean)
        if all(_rank(group.shape[1], coverage) <= group.shape[1] for group in groups):
            return reaches
        every = np.sort(self.errors, axis=1)
        return np.maximum(reaches, every[:, _rank(every.shape[1], coverage) - 1])

    @cached_property
    def tails(self) -> Array:
        """One over the degrees of freedom, and the scale, of each group and target: (2, G, t)."""
        tails = [[fit_tail(errors) for errors in group] for group in self.groups]
        dof, scale = np.moveaxis(np.array(tails), -1, 0)
        return np.array([1 / dof, scale])

    @cached_property
    def shapes(self) -> Array:
        """Knots of the shape of each group and target: (K, G, t)."""
        knots = [
            [
                Shape.of(2 * _student_cdf(-errors / scale, _degrees(inverse))).knots
                for errors, inverse, scale in zip(group, *tail, strict=True)
            ]
            for group, tail in zip(self.groups, np.moveaxis(self.tails, 1, 0), strict=True)
        ]
        return np.moveaxis(np.array(knots), -1, 0)

    def distribution(
        self, mean: Array, std: Array, normalised: tuple[Array, Array]
    ) -> PredictiveDistribution:
        """Distribution of rows with this mean and std, (N,) or (N, t).

        `normalised` has their std and mean, (N, t) each, in units of the normalised targets.
        """
        values = np.concatenate([self.tails, self.shapes]) if self.shaped else self.tails
        if len(self.places) == 1:
            by_row = values[:, 0] if std.ndim == 2 else values[:, 0, 0]
        else:
            by_row = np.reshape([self._between(v, *normalised) for v in values], (-1, *std.shape))
        shape = Shape(np.moveaxis(by_row[2:], 0, -1)) if self.shaped else None
        return PredictiveDistribution(mean, std, _degrees(by_row[0]), np.asarray(by_row[1]), shape)

    def _between(self, values: Array, std: Array, mean: Array | None) -> Array:
        """What rows with the std and mean (N, t) get of the values (G, t) of groups: (N, t)."""
        key = mean if self.by_mean and mean is not None else np.log(std)
        columns = zip(key.T, values.T, strict=True)
        return np.column_stack([np.interp(x, self.places, value) for x, value in columns])


def _degrees(inverse: Array) -> Array:
    """Degrees of freedom of one over them."""
    normal = inverse < 1 / TAIL.nearly_infinite
    return np.where(normal, np.inf, 1 / np.where(normal, 1.0, inverse))


def check_coverage(coverage: float) -> None:
    """Refuse what is no coverage."""
    if not (is_number(coverage) and 0 < coverage < 1):
        raise ValueError(f"coverage must lie between 0 and 1, not be {coverage!r}")


def _rank(m: int, coverage: float) -> int:
    """Which of m sorted errors, from 1 on, a new one exceeds with a chance of 1 - coverage."""
    return int(np.ceil((m + 1) * coverage - 1e-9))


@dataclass(frozen=True)
class CorrectionChoice:
    """Numbers of the choice of a correction, and why they are what they are."""

    # The smallest and largest scale of variances that is believed.
    scales: tuple[float, float] = (1e-6, 1e6)
    # For the level: the largest squared error in units of its variance that counts as such, and as
    # if this many more rows had erred as expected.
    largest_square: float = 50.0
    level_rows: float = 10.0
    # Rows are sorted by their variance into at most this many blocks of at least this many rows.
    most_blocks: int = 16
    least_rows: int = 50
    # Each block is shrunk towards the scaled variance, as if this many rows had agreed with it.
    pseudo_rows: float = 5.0
    # A block's variance is at least this share of the scaled one.
    smallest_share: float = 1e-6
    # The corrected variance grows at least as this power of the predicted one: its slope is
    # nowhere zero. Left-out NLL of twelve splits: .0016 worse at most than with 0.
    least_power: float = 0.1
    # Numbers of groups of rows, by their std, whose errors may be spread differently; rows of a
    # group.
    groups: tuple[int, ...] = (2, 4, 8)
    group_rows: int = 500
    # The least difference of log std, or of means, between them: less is rounding.
    group_step: float = 0.01
    # Groups may be by the mean where it explains this share of a target: a mean that says little
    # about the target says something about the row's own error, which it has not seen.
    least_explained: float = 0.25
    folds: int = 10
    # Folds that the more flexible of two corrections must predict better.
    most_folds: int = 7
    # Standard errors of its gain that the more flexible of two choices must gain.
    near_tie: float = 0.5
    # Nats a row that rounding may gain where two choices are the same.
    rounding: float = 1e-6
    # Where everything is unknown about some row that was left out, nowhere is farther.
    most_unknown: float = 1 - 1e-6


CORRECTION = CorrectionChoice()


class LeftOutErrors(NamedTuple):
    """Rows that were left out, and what an uncorrected committee predicted for them.

    Attributes
    ----------
    squares : ndarray of shape (t, N)
        Squared errors of each target.
    variance : ndarray of shape (N,)
        Predicted variances, noise included.
    alpha : ndarray of shape (N,)
        Known noise of the rows, which comes on top.
    unknown : ndarray of shape (N,)
        Share of the prior variance that the experts had left.
    rows : ndarray of shape (N,)
        Which of the training rows they are.
    means : ndarray of shape (t, N)
        Predicted means.
    """

    squares: Array
    variance: Array
    alpha: Array
    unknown: Array
    rows: IndexArray
    means: Array

    def some(self, rows: AnyArray) -> LeftOutErrors:
        """Some of the rows."""
        arrays: Any = self
        return LeftOutErrors(*(array[..., rows] for array in arrays))

    def of_rows(self, rows: IndexArray) -> LeftOutErrors:
        """Errors of some training rows; the errors are in the order of the rows."""
        found = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        if np.any(self.rows[found] != rows):
            raise ValueError(
                "the first rows in time, two fifths of them, have no earlier ones to be predicted "
                "from; name others"
            )
        return self.some(found)

    def conformal_scores(
        self, curve: Correction, log_factors: Array | None, together: IndexArray | None = None
    ) -> ConformalScores:
        """Errors in units of the std, with a correction, in groups if these predict better.

        `log_factors` (t, N) are those of local noise, if there is any; `together` is that of
        `dealt`.
        """
        total = np.broadcast_to(self.total(curve), self.squares.shape)
        if log_factors is not None:
            total = (total - self.alpha) * np.exp(log_factors) + self.alpha
        std = np.exp(0.5 * np.log(total).mean(axis=0)) if len(total) > 1 else np.sqrt(total[0])
        explained = CORRECTION.least_explained * (self.squares.mean() + self.means.var())
        tells = len(total) == 1 and self.means.var() > explained
        means = self.means[0] if tells else None
        return fit_conformal_scores(np.sqrt(self.squares / total), std, together, means)

    def nll(self, curve: VarianceCurve) -> float:
        """Mean negative log-likelihood of the normal distribution with a correction."""
        return float(np.mean(normal_nll(self.squares, self.total(curve))))

    def row_nll(self, curve: Correction) -> Array:
        """NLL of each row, on average over targets: (N,)."""
        return normal_nll(self.squares.mean(axis=0), self.total(curve))

    @property
    def unexplained(self) -> Array:
        """Squared errors beyond known noise, on average over targets: (N,)."""
        return np.maximum(self.squares - self.alpha, 0.0).mean(axis=0)

    def total(self, curve: Correction) -> Array:
        """Corrected variances, known noise included: (N,)."""
        return curve(self.variance) * self.variance + self.alpha


def fit_scale(errors: LeftOutErrors) -> VarianceCurve:
    """The same factor for all variances."""
    return VarianceCurve((0.0,), (_log_scale(errors.unexplained, errors.variance),))


def _log_scale(squares: Array, variance: Array) -> float:
    """Logarithm of squared errors (N,) in units of their variance, on average."""
    return float(np.log(np.clip((squares / variance).mean(), *CORRECTION.scales)))


def log_level(z: Array) -> Array:
    """Logarithm of squared errors (..., N) in units of their variance, on average, at least 0.

    No single one decides, and a few rows say little.
    """
    counted = np.minimum(z, CORRECTION.largest_square).sum(axis=-1) + CORRECTION.level_rows
    return np.maximum(np.log(counted / (z.shape[-1] + CORRECTION.level_rows)), 0.0)


def fit_level(errors: LeftOutErrors) -> VarianceCurve:
    """The same factor for all variances if these are too small, by what is sure of it."""
    return VarianceCurve((0.0,), (float(log_level(errors.unexplained / errors.variance)),))


def fit_curve(errors: LeftOutErrors) -> VarianceCurve:
    """A monotone curve from predicted variances to squared errors, in blocks of rows."""
    return curve_of(errors.unexplained, errors.variance)


def curve_of(squares: Array, variance: Array) -> VarianceCurve:
    """The same from predicted variances (N,) to squared errors (N,)."""
    log_scale = _log_scale(squares, variance)
    n_blocks = min(CORRECTION.most_blocks, len(variance) // CORRECTION.least_rows)
    if n_blocks < 2:
        return VarianceCurve((0.0,), (log_scale,))
    blocks = np.array_split(np.argsort(variance, kind="stable"), n_blocks)
    rows = np.array([len(block) for block in blocks], dtype=float)
    predicted = np.array([variance[block].mean() for block in blocks])
    observed = np.array([squares[block].mean() for block in blocks])
    scaled = predicted * np.exp(log_scale)
    shrunk = (rows * observed + CORRECTION.pseudo_rows * scaled) / (rows + CORRECTION.pseudo_rows)
    growth = (predicted / predicted[-1]) ** CORRECTION.least_power
    weights = (rows + CORRECTION.pseudo_rows) * growth**2
    monotone = growth * isotonic_regression(shrunk / growth, weights=weights).x
    monotone = np.maximum(monotone, CORRECTION.smallest_share * scaled)
    # Between two points the corrected variance is a power of the predicted one: it never falls.
    places, kept = np.unique(np.log(predicted), return_index=True)
    factors = np.log(monotone / predicted)[kept]
    return VarianceCurve(tuple(places.tolist()), tuple(factors.tolist()))


CORRECTIONS = {
    "none": lambda errors: VarianceCurve(),
    "level": fit_level,
    "scale": fit_scale,
    "curve": fit_curve,
}


def dealt(n: int, seed: int, together: IndexArray | None = None) -> list[AnyArray]:
    """Masks (n,) of the folds that n rows are dealt into at random.

    Rows of the same number in `together` (n,), from 0 on, are in the same fold: they err together.
    """
    n_units = n if together is None else int(together.max()) + 1
    folds = np.random.default_rng(seed).permutation(n_units) % CORRECTION.folds
    folds = folds if together is None else folds[together]
    return [folds == fold for fold in range(min(n_units, CORRECTION.folds))]


def is_majority(votes: Any, n_folds: int) -> bool:
    """Whether so many folds want the more flexible of two corrections."""
    return bool(votes * CORRECTION.folds >= CORRECTION.most_folds * n_folds)


def by_unit(nll: Array, together: IndexArray | None) -> Array:
    """NLL of rows (N,), or what those that err together add to its mean: (units,)."""
    if together is None:
        return nll
    sums = np.bincount(together, nll).astype(float)
    return sums * (len(sums) / len(nll))


def recalibrate(
    errors: LeftOutErrors, together: IndexArray | None = None
) -> tuple[VarianceCurve, list[Alternative]]:
    """The correction that predicts rows best that have not taught it, simplest first.

    Folds vote. Where they want none, the level, which few folds with large errors may ask for,
    need only be better on average. A correction under which all rows together are less likely
    than without is not applied.
    Returned with it: what was compared.
    """
    folds = dealt(len(errors.variance), 0, together)
    scores = {name: _cross_fitted(errors, folds, name) for name in CORRECTIONS}
    final = {name: fit(errors) for name, fit in CORRECTIONS.items()}
    chosen = "none"
    for name in ("scale", "curve"):
        is_better = is_majority(np.sum(scores[name] < scores[chosen]), len(folds))
        if is_better and errors.nll(final[name]) <= errors.nll(final["none"]):
            chosen = name
    if chosen == "none" and scores["level"].mean() < scores["none"].mean():
        chosen = "level"
    return final[chosen], [
        Alternative("correction", name, float(score.mean()), name == chosen)
        for name, score in scores.items()
    ]


def fit_conformal_scores(
    errors: Array, std: Array, together: IndexArray | None = None, means: Array | None = None
) -> ConformalScores:
    """Conformal scores of errors (t, N) of rows with the std (N,).

    Folds that have not taught it vote on the number of groups, by std or, if they are given, by
    means (N,), and on a shape of their own: the log score decides. `together` is that of `dealt`.
    """
    if len(std) < SHAPE.fewest_rows:
        return ConformalScores.of(errors, std)
    inside = dealt(len(std), 0, together)
    plain, of_plain = ConformalScores.of(errors, std), _losses(errors, std, inside, 1, None)

    def learned(key: Array | None) -> tuple[Array, ConformalScores]:
        """The losses of folds, and scores, with as many groups by std or means as they want."""
        chosen, best = plain, of_plain
        for n_groups in CORRECTION.groups:
            if len(std) < n_groups * CORRECTION.group_rows:
                break
            grouped = ConformalScores.of(errors, std, n_groups, key)
            losses = _losses(errors, std, inside, n_groups, key)
            differ = np.diff(grouped.places) > CORRECTION.group_step
            if is_majority(np.sum(losses[0] < best[0]), len(inside)) and differ.all():
                chosen, best = grouped, losses
        return best, chosen

    keys = [None] if means is None else [None, means]
    best, chosen = min((learned(key) for key in keys), key=lambda one: float(one[0][0].mean()))
    return replace(chosen, shaped=is_majority(np.sum(best[1] < best[0]), len(inside)))


def _losses(
    errors: Array, std: Array, folds: list[AnyArray], n_groups: int, means: Array | None
) -> Array:
    """Those of folds by what the others teach: with Student-t, and with shapes, (2, folds)."""
    losses = [_log_scores(errors, std, rows, n_groups, means) for rows in folds]
    return np.array(losses).T


def _log_scores(
    errors: Array, std: Array, rows: AnyArray, n_groups: int, means: Array | None
) -> tuple[float, float]:
    """Mean negative log density of some rows by what the others teach, in units of their std.

    Of Student-t distributions, and of those with a shape of their own.
    """
    known = None if means is None else means[~rows]
    learned = ConformalScores.of(errors[:, ~rows], std[~rows], n_groups, known)
    widths = np.repeat(std[rows, None], len(errors), axis=1)
    centre = np.zeros_like(widths) if means is None else means[rows, None]
    shaped = replace(learned, shaped=True).distribution(centre, widths, (widths, centre))
    student, y = replace(shaped, shape=None), centre + errors[:, rows].T * widths
    return -float(np.mean(student.logpdf(y))), -float(np.mean(shaped.logpdf(y)))


def gains(incumbent: Array, challenger: Array, near_tie: float = CORRECTION.near_tie) -> bool:
    """Whether the mean NLL of rows falls by more than some standard errors of that gain."""
    gain = incumbent - challenger
    with np.errstate(over="ignore"):
        return bool(gain.mean() > near_tie * gain.std() / np.sqrt(len(gain)))


def _cross_fitted(errors: LeftOutErrors, folds: list[AnyArray], name: str) -> Array:
    """The NLL of each fold, corrected by the others: (folds,), or of all rows if they are few."""
    if len(errors.variance) < 2 * CORRECTION.folds or len(folds) < 2:
        return np.array([errors.nll(VarianceCurve())])
    return np.array(
        [errors.some(rows).nll(CORRECTIONS[name](errors.some(~rows))) for rows in folds]
    )


def farthest_known(errors: LeftOutErrors) -> float:
    """The largest share of the prior variance that was left of any row."""
    return float(min(errors.unknown.max(), CORRECTION.most_unknown))
