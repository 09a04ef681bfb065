"""Predictive distributions: a Student-t for each row, or a normal one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import betaln, gammaln, ndtr, ndtri, stdtr, stdtrit

from manygp.arrays import Array

# Degrees of freedom that are compared; infinity is the normal distribution.
DEGREES = (np.inf, 100.0, 30.0, 15.0, 10.0, 7.0, 5.0, 4.0, 3.0, 2.5)
# Nats per row that fewer degrees of freedom must gain.
LEAST_GAIN = 1e-4
# Logarithms of the scales among which the best is sought.
LOG_SCALES = (-7.0, 7.0)
# How firmly the scale is held at what is expected, in errors.
SCALE_PRECISION = 8.0
# A scale of n errors that is expected has the square (n + 1) / (n - FEWEST_KNOWN). In simulations
# of 2 to 30 rows (`rows-2` to `rows-30` of `bench trust`), 90% intervals hold 84 to 92%.
FEWEST_KNOWN = 1.8
# Errors that are enough for any degrees of freedom.
MANY_ERRORS = 100
# Errors that are told apart, in units of the std.
SMALLEST_ERROR = 1e-12


class Tail(NamedTuple):
    """How errors are spread, in units of the std: degrees of freedom, and a scale."""

    dof: float = np.inf
    scale: float = 1.0


def student_nll(z: Array, dof: float, scale: float) -> Array:
    """Negative log density of errors z, in units of the std, with respect to z: (N,)."""
    return -_log_density(z / scale, dof) + np.log(scale)


def fit_tail(z: Array) -> Tail:
    """The tail of highest log score for errors |z|, in units of the std: (N,).

    A few errors do not tell how they are spread: the fewer they are, the heavier the tail and the
    larger the scale that is expected.
    """
    n = len(z)
    z = np.maximum(np.abs(z), SMALLEST_ERROR)
    expected = 0.5 * np.log((n + 1) / max(n - FEWEST_KNOWN, 0.1))
    best, best_nll = Tail(), np.inf
    for dof in [one for one in DEGREES if one <= n / 2 or n > MANY_ERRORS] or DEGREES[-1:]:

        def loss(log_scale: float, dof: float = dof) -> float:
            shrinkage = SCALE_PRECISION * (log_scale - expected) ** 2 / (2 * n)
            return float(student_nll(z, dof, np.exp(log_scale)).mean() + shrinkage)

        found = minimize_scalar(
            loss,
            bounds=LOG_SCALES,
            method="bounded",
            options={"xatol": 1e-3},
        )
        if found.fun < best_nll - LEAST_GAIN:
            best, best_nll = Tail(dof, float(np.exp(found.x))), found.fun
    return best


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
        z = np.where(np.isinf(self.dof), ndtri(level), stdtrit(_finite(self.dof), level))
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
        return width * np.where(np.isinf(self.dof), _normal_crps(z), _student_crps(z, self.dof))


def _finite(dof: Array) -> Array:
    """Degrees of freedom, with a number where they are infinite and not used."""
    return np.where(np.isinf(dof), 1.0, dof)


def _log_density(z: Array, dof: Array | float) -> Array:
    """Of the standard Student-t, or normal, distribution."""
    nu = _finite(np.asarray(dof))
    constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(nu * np.pi)
    student = constant - (nu + 1) / 2 * np.log1p(z**2 / nu)
    return np.where(np.isinf(dof), -0.5 * np.log(2 * np.pi) - 0.5 * z**2, student)


def _normal_crps(z: Array) -> Array:
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
