"""Calibration by left-out rows: the correction of the variance, tails and intervals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression, minimize_scalar
from scipy.special import betaln, gammaln, ndtr, ndtri, stdtr, stdtrit

from manygp.arrays import AnyArray, Array, IndexArray
from manygp.fit_report import Alternative
from manygp.inputs import read_only
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
    z = np.maximum(np.abs(z), TAIL.smallest_error)
    expected = 0.5 * np.log((n + 1) / max(n - TAIL.lost_errors, 0.1))
    best, best_nll = Tail(), np.inf
    degrees = [one for one in TAIL.degrees if one <= n / 2 or n > TAIL.many_errors]
    for dof in degrees or TAIL.degrees[-1:]:

        def loss(log_scale: float, dof: float = dof) -> float:
            shrinkage = TAIL.scale_precision * (log_scale - expected) ** 2 / (2 * n)
            return float(student_nll(z, dof, np.exp(log_scale)).mean() + shrinkage)

        optimum = minimize_scalar(
            loss,
            bounds=TAIL.log_scales,
            method="bounded",
            options={"xatol": 1e-3},
        )
        if optimum.fun < best_nll - TAIL.min_gain:
            best, best_nll = Tail(dof, float(np.exp(optimum.x))), optimum.fun
    return best


# Levels below which a quantile of the Student-t may be that of its tail alone.
TINY_LEVEL = 1e-30


@dataclass(frozen=True, eq=False)
class PredictiveDistribution:
    """Independent distributions of N rows: mean + scale * std * t, with t a Student-t variable.

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
    """

    mean: Array
    std: Array
    dof: Array
    scale: Array

    def pdf(self, y: Array) -> Array:
        """Density at y."""
        return np.exp(self.logpdf(y))

    def logpdf(self, y: Array) -> Array:
        """Logarithm of the density at y."""
        width = self.std * self.scale
        return _log_density((np.asarray(y) - self.mean) / width, self.dof) - np.log(width)

    def cdf(self, y: Array) -> Array:
        """Probability of a value of at most y."""
        z = (np.asarray(y) - self.mean) / (self.std * self.scale)
        return np.where(np.isinf(self.dof), ndtr(z), stdtr(_finite(self.dof), z))

    def ppf(self, level: Array | float) -> Array:
        """The value that is not exceeded with a probability of `level`."""
        if not np.all((np.asarray(level) > 0) & (np.asarray(level) < 1)):
            raise ValueError(f"levels must lie between 0 and 1, not be {level!r}")
        z = np.where(np.isinf(self.dof), ndtri(level), _student_quantile(self.dof, level))
        return self.mean + self.std * self.scale * z

    def interval(self, coverage: float) -> tuple[Array, Array]:
        """Ends of the central interval that holds y with a probability of `coverage`."""
        return self.ppf(0.5 - coverage / 2), self.ppf(0.5 + coverage / 2)

    def sample(self, n: int, random_state: int | np.random.Generator | None = None) -> Array:
        """Draw n values for each row: (n, N) or (n, N, t)."""
        rng = np.random.default_rng(random_state)
        shape = (n, *self.mean.shape)
        t = np.where(
            np.isinf(self.dof),
            rng.standard_normal(shape),
            rng.standard_t(np.broadcast_to(_finite(self.dof), shape)),
        )
        return self.mean + self.std * self.scale * t

    def crps(self, y: Array) -> Array:
        """Continuous ranked probability score at y, in closed form."""
        width = self.std * self.scale
        z = (np.asarray(y) - self.mean) / width
        return width * np.where(np.isinf(self.dof), normal_crps(z), _student_crps(z, self.dof))


def _finite(dof: Array) -> Array:
    """Degrees of freedom, with a number where they are infinite and not used."""
    return np.where(np.isinf(dof), 1.0, dof)


def _student_quantile(dof: Array, level: Array | float) -> Array:
    """Quantiles of the standard Student-t; of the lowest levels SciPy says that they are +inf.

    There the density is c (z^2 / nu)^(-(nu + 1) / 2), where c is that at 0.
    """
    nu = _finite(dof)
    z = stdtrit(nu, level)
    log_density = _log_density(np.zeros(()), nu) + np.log(nu) * (nu - 1) / 2
    with np.errstate(over="ignore"):  # -inf, then
        tail = np.exp((log_density - np.log(level)) / nu)
    return np.where((np.asarray(level) < TINY_LEVEL) & ~(z < 0), -tail, z)


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


def _student_crps(z: Array, dof: Array) -> Array:
    """z (2 F(z) - 1) + 2 f(z) (nu + z^2) / (nu - 1) - 2 sqrt(nu) B(1/2, nu - 1/2) /
    ((nu - 1) B(1/2, nu / 2)^2), for more than one degree of freedom."""
    nu = np.maximum(_finite(dof), 1.01)
    density = np.exp(_log_density(z, nu))
    log_constant = betaln(0.5, nu - 0.5) - 2 * betaln(0.5, nu / 2)
    constant = 2 * np.sqrt(nu) / (nu - 1) * np.exp(log_constant)
    return z * (2 * stdtr(nu, z) - 1) + 2 * density * (nu + z**2) / (nu - 1) - constant


@dataclass(frozen=True, eq=False)
class ConformalScores:
    """Errors of m rows that were left out, in G groups of rows by their std.

    Attributes
    ----------
    errors : ndarray of shape (t, m)
        ``|y - mean| / std`` of each target. Groups stand one after the other, the smallest std
        first, and are sorted in themselves. They have m / G rows each, the first ones one more.
    places : ndarray of shape (G,)
        Logarithm of the median std of each group, in units of the normalised targets.
    """

    errors: Array
    places: Array

    @classmethod
    def of(cls, errors: Array, std: Array, n_groups: int = 1) -> ConformalScores:
        """The errors (t, m), of either sign, of rows with the std (m,)."""
        groups = np.array_split(np.argsort(std, kind="stable"), n_groups)
        places = np.array([np.median(np.log(std[group])) for group in groups])
        ordered = [np.sort(np.abs(errors[:, group]), axis=1) for group in groups]
        return cls(read_only(np.concatenate(ordered, axis=1)), read_only(places))

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

    def reach(self, coverage: float, std: Array) -> Array:
        """How many std an interval extends to either side of rows with the std (N, t): (N, t).

        Where a group has too few rows to promise the coverage, it is that of all rows, or the
        largest error of the group if that is larger.
        """
        self.require(coverage)
        groups = self.groups
        ranks = [min(_rank(group.shape[1], coverage), group.shape[1]) for group in groups]
        quantiles = [group[:, rank - 1] for group, rank in zip(groups, ranks, strict=True)]
        reaches = self._between(np.array(quantiles), std)
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

    def distribution(self, mean: Array, std: Array, units: Array) -> PredictiveDistribution:
        """Distribution of rows with this mean and std, (N,) or (N, t), in units (t,) of y."""
        if len(self.places) == 1:
            inverse, scale = self.tails[:, 0] if std.ndim == 2 else self.tails[:, 0, 0]
        else:
            normalised = (std if std.ndim == 2 else std[:, None]) / units
            parameters = (self._between(one, normalised) for one in self.tails)
            inverse, scale = (one.reshape(std.shape) for one in parameters)
        normal = inverse < 1 / TAIL.nearly_infinite
        dof = np.where(normal, np.inf, 1 / np.where(normal, 1.0, inverse))
        return PredictiveDistribution(mean, std, dof, np.asarray(scale))

    def _between(self, values: Array, std: Array) -> Array:
        """What rows with the std (N, t) get of the values (G, t) of groups: (N, t)."""
        columns = zip(np.log(std).T, values.T, strict=True)
        return np.column_stack([np.interp(x, self.places, value) for x, value in columns])


def check_coverage(coverage: float) -> None:
    """Refuse what is no coverage."""
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must lie between 0 and 1, not be {coverage!r}")


def _rank(m: int, coverage: float) -> int:
    """Which of m sorted errors, from 1 on, a new one exceeds with a chance of 1 - coverage."""
    return int(np.ceil((m + 1) * coverage - 1e-9))


@dataclass(frozen=True)
class CorrectionChoice:
    """Numbers of the choice of a correction, and why they are what they are."""

    # The smallest and largest scale of variances that is believed.
    scales: tuple[float, float] = (1e-6, 1e6)
    # Rows are sorted by their variance into at most this many blocks of at least this many rows.
    most_blocks: int = 16
    least_rows: int = 50
    # Each block is shrunk towards the scaled variance, as if this many rows had agreed with it.
    pseudo_rows: float = 5.0
    # A block's variance is at least this share of the scaled one.
    smallest_share: float = 1e-6
    # Numbers of groups of rows, by their std, whose errors may be spread differently; rows of a
    # group.
    groups: tuple[int, ...] = (2, 4, 8)
    group_rows: int = 500
    # The least difference of log std between them: less is rounding.
    group_step: float = 0.01
    folds: int = 10
    # Folds that the more flexible of two corrections must predict better.
    most_folds: int = 7
    # Standard errors of its gain that the more flexible of two choices must gain.
    near_tie: float = 0.5
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

    def conformal_scores(self, curve: Correction, log_factors: Array | None) -> ConformalScores:
        """Errors in units of the std, with a correction, in groups if these predict better.

        `log_factors` (t, N) are those of local noise, if there is any.
        """
        total = np.broadcast_to(self.total(curve), self.squares.shape)
        if log_factors is not None:
            total = (total - self.alpha) * np.exp(log_factors) + self.alpha
        std = np.exp(0.5 * np.log(total).mean(axis=0)) if len(total) > 1 else np.sqrt(total[0])
        return fit_conformal_scores(np.sqrt(self.squares / total), std)

    def nll(self, curve: VarianceCurve) -> float:
        """Mean negative log-likelihood of the normal distribution with a correction."""
        return float(np.mean(normal_nll(self.squares, self.total(curve))))

    def row_nll(self, curve: Correction) -> Array:
        """NLL of each row, on average over targets: (N,)."""
        return normal_nll(self.squares.mean(axis=0), self.total(curve))

    def total(self, curve: Correction) -> Array:
        """Corrected variances, known noise included: (N,)."""
        return curve(self.variance) * self.variance + self.alpha


def fit_scale(errors: LeftOutErrors) -> VarianceCurve:
    """The same factor for all variances."""
    squares = np.maximum(errors.squares - errors.alpha, 0.0).mean(axis=0)
    scale = float(np.clip((squares / errors.variance).mean(), *CORRECTION.scales))
    return VarianceCurve((0.0,), (float(np.log(scale)),))


def fit_curve(errors: LeftOutErrors) -> VarianceCurve:
    """A monotone curve from predicted variances to squared errors, in blocks of rows."""
    scale = fit_scale(errors)
    n_blocks = min(CORRECTION.most_blocks, len(errors.variance) // CORRECTION.least_rows)
    if n_blocks < 2:
        return scale
    order = np.argsort(errors.variance, kind="stable")
    squares = np.maximum(errors.squares - errors.alpha, 0.0).mean(axis=0)
    blocks = np.array_split(order, n_blocks)
    rows = np.array([len(block) for block in blocks], dtype=float)
    predicted = np.array([errors.variance[block].mean() for block in blocks])
    observed = np.array([squares[block].mean() for block in blocks])
    scaled = predicted * np.exp(scale.log_factors[0])
    shrunk = (rows * observed + CORRECTION.pseudo_rows * scaled) / (rows + CORRECTION.pseudo_rows)
    monotone = isotonic_regression(shrunk, weights=rows + CORRECTION.pseudo_rows).x
    monotone = np.maximum(monotone, CORRECTION.smallest_share * scaled)
    # Between two points the corrected variance is a power of the predicted one: it never falls.
    places, kept = np.unique(np.log(predicted), return_index=True)
    factors = np.log(monotone / predicted)[kept]
    return VarianceCurve(tuple(places.tolist()), tuple(factors.tolist()))


CORRECTIONS = {"none": lambda errors: VarianceCurve(), "scale": fit_scale, "curve": fit_curve}


def recalibrate(errors: LeftOutErrors) -> tuple[VarianceCurve, list[Alternative]]:
    """The correction that predicts rows best that have not taught it, simplest first.

    A correction under which all rows together are less likely than without is not applied.
    Returned with it: what was compared.
    """
    n = len(errors.variance)
    folds = np.random.default_rng(0).permutation(n) % CORRECTION.folds
    scores = {name: _cross_fitted(errors, folds, name) for name in CORRECTIONS}
    final = {name: fit(errors) for name, fit in CORRECTIONS.items()}
    chosen = "none"
    for name in ("scale", "curve"):
        is_better = np.sum(scores[name] < scores[chosen]) >= CORRECTION.most_folds
        if is_better and errors.nll(final[name]) <= errors.nll(final["none"]):
            chosen = name
    return final[chosen], [
        Alternative("correction", name, float(score.mean()), name == chosen)
        for name, score in scores.items()
    ]


def fit_conformal_scores(errors: Array, std: Array) -> ConformalScores:
    """Conformal scores of errors (t, N) of rows with the std (N,).

    Folds that have not taught it vote on the number of groups: the log score of Student-t
    distributions decides.
    """
    folds = np.random.default_rng(0).permutation(len(std)) % CORRECTION.folds
    inside = [folds == fold for fold in range(CORRECTION.folds)]

    def scores(n_groups: int) -> Array:
        return np.array([_log_score(errors, std, rows, n_groups) for rows in inside])

    chosen, best = 1, None
    for n_groups in [one for one in CORRECTION.groups if len(std) >= one * CORRECTION.group_rows]:
        best = scores(chosen) if best is None else best
        losses = scores(n_groups)
        differ = np.diff(ConformalScores.of(errors, std, n_groups).places) > CORRECTION.group_step
        if np.sum(losses < best) >= CORRECTION.most_folds and differ.all():
            chosen, best = n_groups, losses
    return ConformalScores.of(errors, std, chosen)


def _log_score(errors: Array, std: Array, rows: AnyArray, n_groups: int) -> float:
    """Mean negative log density of some rows by what the others teach, in units of their std."""
    learned = ConformalScores.of(errors[:, ~rows], std[~rows], n_groups)
    widths = np.repeat(std[rows, None], len(errors), axis=1)
    distribution = learned.distribution(np.zeros_like(widths), widths, np.ones(len(errors)))
    return -float(np.mean(distribution.logpdf(errors[:, rows].T * widths)))


def gains(incumbent: Array, challenger: Array, near_tie: float = CORRECTION.near_tie) -> bool:
    """Whether the mean NLL of rows falls by more than some standard errors of that gain."""
    gain = incumbent - challenger
    with np.errstate(over="ignore"):
        return bool(gain.mean() > near_tie * gain.std() / np.sqrt(len(gain)))


def _cross_fitted(errors: LeftOutErrors, folds: IndexArray, name: str) -> Array:
    """The NLL of each fold, corrected by the others: (CORRECTION.folds,), or all rows if few."""
    if len(folds) < 2 * CORRECTION.folds:
        return np.array([errors.nll(VarianceCurve())])
    inside = [folds == fold for fold in range(CORRECTION.folds)]
    return np.array(
        [errors.some(rows).nll(CORRECTIONS[name](errors.some(~rows))) for rows in inside]
    )


def farthest_known(errors: LeftOutErrors) -> float:
    """The largest share of the prior variance that was left of any row."""
    return float(min(errors.unknown.max(), CORRECTION.most_unknown))
