"""One expert: a Gaussian process on its own rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from manygp.arrays import Array, IndexArray, read_only
from manygp.gp import linalg
from manygp.gp.likelihood import Likelihood, NotPositiveDefiniteError, TrainingData
from manygp.kernels.base import Sum, Workspace

# Rounding may leave a posterior variance at or below zero; relative to the prior variance.
SMALLEST_VARIANCE = 1e-14
SMALLEST_PRIOR = 1e-200
# Relative improvement of the likelihood at which the fit of one of many experts stops.
TOLERANCE = 1e-7
# Factors of so many rows are stored in single precision if no row that the expert knows has a
# smaller latent variance, nor a larger noise, relative to the prior's variance: a std then changes
# by less than about 1e-4 of it.
SINGLE_ROWS, SINGLE_VARIANCE, SINGLE_NOISE = 128, 5e-3, 100.0
SINGLE_PRIOR = 1e-30  # below, a factor may be too large for single precision


@dataclass(frozen=True, eq=False)
class Expert:
    """A fitted Gaussian process, in the units of the normalised data.

    Attributes
    ----------
    indices : ndarray of shape (c,)
        Its own rows of the training data, from which its hyperparameters were learned.
    neighbours : ndarray of shape (n - c,)
        Rows of other experts that it knows as well.
    kernel : Kernel
        Signal plus White, with the fitted hyperparameters.
    mean : ndarray of shape (t,)
        Constant prior mean of each target.
    jitter : float
        Variance added to the diagonal because the factorisation failed without; 0 as a rule.
    n_evaluations : int
        Evaluations of the likelihood that the fit took.
    X, Y, alpha : ndarrays of shape (n, d), (n, t), (n,)
        Inputs, targets and known noise variances of its own rows and then the neighbours.
    constant_mean : bool
        Whether `mean` was estimated; else it is 0.
    whitener, coefficients : ndarrays of shape (n', n'), (n', t)
        See `Posterior`. The whitener is in single precision where that is enough.
    """

    indices: IndexArray
    neighbours: IndexArray
    kernel: Sum
    mean: Array
    jitter: float
    n_evaluations: int
    X: Array
    Y: Array
    alpha: Array
    constant_mean: bool
    whitener: Array
    coefficients: Array

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():  # pickle forgets that arrays are read-only
            frozen = read_only(value) if isinstance(value, np.ndarray) else value
            object.__setattr__(self, name, frozen)

    @property
    def rows(self) -> IndexArray:
        """All rows of the training data that it knows: (n,)."""
        return np.concatenate([self.indices, self.neighbours])

    @property
    def log_marginal_likelihood(self) -> float:
        """Of its own rows, whose factor is the leading block of the whole one."""
        n, t = len(self.indices), self.Y.shape[1]
        W = self.whitener[:n, :n]
        z, one = W @ self.Y[:n], W.sum(axis=1, dtype=float)
        if self.constant_mean:
            z -= np.outer(one, one @ z / (one @ one))
        log_determinant = -2 * np.log(np.einsum("ii->i", W), dtype=float).sum()
        fit = np.einsum("ij,ij->", z, z)
        return float(-0.5 * (fit + t * (log_determinant + n * np.log(2 * np.pi))))

    @property
    def noise_variance(self) -> float:
        """Variance of the noise, sigma_m^2 with two dots in the paper."""
        return float(self.kernel.right.diag(self.X[:1])[0])

    @property
    def hyperparameters(self) -> dict[str, float]:
        """The fitted values by name."""
        return dict(zip(self.kernel.theta_names, np.exp(self.kernel.theta).tolist(), strict=True))


def maximise(
    likelihoods: list[Likelihood],
    kernel: Sum,
    precision: Array,
    starts: Array,
    tolerance: float,
    evaluate: Callable[..., Iterable[tuple[float, Array]]] = map,
) -> tuple[Sum, int]:
    """The kernel of highest summed likelihood, or posterior where a Gaussian pulls on theta.

    Parameters
    ----------
    likelihoods : list of Likelihood
        Blocks of rows that share the hyperparameters.
    kernel : Sum
        Centre of the pull.
    precision : ndarray of shape (p,)
        Precision of the pull on each element of theta; 0 for none, infinity to hold it.
    starts : ndarray of shape (r, p)
        Values of theta to start from.
    tolerance : float
        Relative improvement at which to stop.
    evaluate : callable
        `map`, or a parallel one that keeps the order.

    Returns
    -------
    kernel : Sum
    n_evaluations : int
    """
    bounds = kernel.bounds
    held = np.isinf(precision)
    if held.all():
        return kernel, 0
    centre = np.clip(kernel.theta, *bounds.T)
    bounds[held] = centre[held, None]
    precision = np.where(held, 0.0, precision)
    best, best_theta, n_evaluations = -np.inf, centre, 0

    def objective(theta: Array) -> tuple[float, Array]:
        nonlocal best, best_theta, n_evaluations
        n_evaluations += 1
        pull = precision * (theta - centre)
        value, gradient = -0.5 * float(pull @ (theta - centre)), -pull
        candidate = kernel.with_theta(theta)
        try:
            for v, g in evaluate(lambda one: one.value_and_gradient(candidate), likelihoods):
                value, gradient = value + v, gradient + g
        except NotPositiveDefiniteError:
            value = -np.inf
        if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
            # Worse than the best, but not so much that the line search would step back to it.
            worse = 1e100 if best == -np.inf else 1 + abs(best) - best
            return worse, np.zeros_like(theta)
        if value > best:
            best, best_theta = value, theta.copy()
        return -value, -gradient

    def climb(start: Array) -> None:
        options = {"ftol": tolerance}
        minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)

    for start in np.clip(starts, *bounds.T):
        climb(start)
    if best == -np.inf:  # no start has a likelihood: all ones, in the units of normalised data
        climb(np.clip(np.zeros(len(centre)), *bounds.T))
    return kernel.with_theta(best_theta), n_evaluations


def fit_kernel(
    data: TrainingData,
    indices: IndexArray,
    kernel: Sum,
    precision: Array,
    starts: Array,
    tolerance: float = TOLERANCE,
) -> tuple[Sum, int]:
    """The hyperparameters of an expert, from the rows that are its own; see `maximise`."""
    return maximise([data.likelihood(indices)], kernel, precision, starts, tolerance)


def condition(
    data: TrainingData,
    indices: IndexArray,
    neighbours: IndexArray,
    kernel: Sum,
    n_evaluations: int = 0,
    exact: bool = False,
) -> Expert:
    """The expert that knows its own rows and their neighbours, at a kernel.

    `exact` keeps its factor in double precision, come what may.
    """
    likelihood = data.likelihood(np.concatenate([indices, neighbours]))
    try:
        posterior = likelihood.posterior(kernel)
    except NotPositiveDefiniteError as error:
        raise NotPositiveDefiniteError(
            f"the covariance of the expert with the rows {indices[:3]}... is not positive "
            f"definite with the kernel {kernel!r}; scale X, add White(), or raise its "
            "lower bound or alpha"
        ) from error
    whitener = posterior.whitener
    if not exact and _single_will_do(whitener, likelihood, kernel, posterior.jitter):
        whitener = whitener.astype(np.float32)
    return Expert(
        read_only(indices),
        read_only(neighbours),
        kernel,
        read_only(posterior.mean),
        posterior.jitter,
        n_evaluations,
        read_only(likelihood.X),
        read_only(likelihood.Y),
        read_only(likelihood.alpha),
        data.constant_mean,
        read_only(whitener),
        read_only(posterior.coefficients),
    )


def _single_will_do(whitener: Array, known: Likelihood, kernel: Sum, jitter: float) -> bool:
    """Whether all latent variances are so large that single precision does not show."""
    n = len(known.X)
    if n < SINGLE_ROWS:
        return False
    noise = known.alpha + kernel.right.diag(known.X) + jitter
    prior = kernel.left.diag(known.X)
    if prior.min() < SINGLE_PRIOR:
        return False
    least = SINGLE_VARIANCE * prior  # a row's own latent variance is smaller than its noise
    if np.any(noise < least) or np.any(noise > SINGLE_NOISE * prior):
        return False
    W = whitener[:n, :n]
    precision = np.einsum("ij,ij->j", W, W)
    return bool(np.all(noise - noise**2 * precision >= least))


def predict_expert(
    expert: Expert, X: Array, work: Workspace, with_variance: bool
) -> tuple[Array, Array, Array]:
    """Posterior mean (N, t), latent variance (N,) and prior variance (N,) at the rows of X.

    Without variance the last two are empty, and nothing of order n^2 is computed.
    """
    work.reset((len(X), len(expert.whitener)))
    signal = expert.kernel.left
    k = signal.cross(X, _padded_rows(expert), work)
    if k.shape != work.shape:  # a constant kernel
        k = np.array(np.broadcast_to(k, work.shape))
    # Not k @ coefficients, whose digits depend on the number of rows.
    mean = np.einsum("ij,jt->it", k, expert.coefficients) + expert.mean
    if not with_variance:
        return mean, np.empty(0), np.empty(0)
    prior = np.maximum(signal.diag(X), SMALLEST_PRIOR)
    v = _whiten(expert, k).T
    variance = prior - np.einsum("ij,ij->i", v, v, dtype=float)
    return mean, np.maximum(variance, SMALLEST_VARIANCE * prior), prior


def leave_one_out(expert: Expert, positions: IndexArray) -> tuple[Array, Array, Array, Array]:
    """Mean (N, t), latent variance, prior variance (N,), prior mean (N, t): its rows left out.

    What the expert without that row would say, with the same hyperparameters:
    y_i - (K^-1 (y - mean))_i / (K^-1)_ii and 1 / (K^-1)_ii less the noise. Where the prior mean
    was estimated it is estimated again: K^-1 less its projection on the constant takes the
    place of K^-1 in the mean.

    Parameters
    ----------
    expert : Expert
    positions : ndarray of shape (N,)
        Places in `expert.rows`.
    """
    n = len(expert.X)
    W = expert.whitener[:n, :n]
    columns = W[:, positions].astype(float)
    precision = np.einsum("ij,ij->j", columns, columns)
    coefficients = expert.coefficients[positions]
    curvature, prior_mean = precision, np.broadcast_to(expert.mean, coefficients.shape)
    known = np.ones(len(positions), dtype=bool)
    if expert.constant_mean:
        one = W.sum(axis=1, dtype=float)
        share = one @ columns / precision
        rest = one @ one - share**2 * precision
        # Without its only row an expert knows the mean of the normalised target, 0.
        known = rest > SMALLEST_VARIANCE * (one @ one)
        rest = np.where(known, rest, 1.0)
        curvature = np.where(known, precision * (rest / (one @ one)), 1.0)
        without = expert.mean - (share / rest)[:, None] * coefficients
        prior_mean = np.where(known[:, None], without, 0.0)
    mean = expert.Y[positions] - coefficients / curvature[:, None]
    mean = np.where(known[:, None], mean, 0.0)
    signal, noise = expert.kernel.left, expert.noise_variance + expert.alpha[positions]
    prior = np.maximum(signal.diag(expert.X[positions]), SMALLEST_PRIOR)
    variance = 1 / precision - noise - expert.jitter
    return mean, np.clip(variance, SMALLEST_VARIANCE * prior, prior), prior, prior_mean


def smoothing_weights(expert: Expert, X: Array, left_out: IndexArray | None) -> Array:
    """c = K^-1 k(x): the mean at x is that of the prior plus c'(y - mean). (N, n)

    Of a row that is to be left out, c_j = -(K^-1)_ji / (K^-1)_ii and 0 for the row itself.
    """
    n = len(expert.X)
    W = expert.whitener[:n, :n]
    weights = (expert.kernel.left(X, expert.X) @ W.T) @ W
    if left_out is not None:
        place = places(expert, left_out)
        known = np.flatnonzero(place >= 0)
        columns = W[:, place[known]].astype(float)
        own = -(columns.T @ W) / np.einsum("ij,ij->j", columns, columns)[:, None]
        own[np.arange(len(known)), place[known]] = 0.0
        weights[known] = own
    return weights


def places(expert: Expert, rows: IndexArray) -> IndexArray:
    """Where rows of the training data are among those that an expert knows; -1 if not."""
    known = expert.rows
    order = np.argsort(known, kind="stable")
    place = order[np.searchsorted(known, rows, sorter=order) % len(known)]
    return np.where(known[place] == rows, place, -1)


def posterior_covariance(expert: Expert, X: Array) -> Array:
    """Latent posterior covariance of the rows of X: (N, N)."""
    signal = expert.kernel.left
    v = _whiten(expert, signal(X, _padded_rows(expert))).astype(float)
    covariance = signal(X) - v.T @ v
    diagonal = np.einsum("ii->i", covariance)
    prior = np.maximum(signal.diag(X), SMALLEST_PRIOR)
    np.maximum(diagonal, SMALLEST_VARIANCE * prior, out=diagonal)
    return covariance


def _padded_rows(expert: Expert) -> Array:
    """The expert's rows, and copies of the first for those that pad its whitener."""
    missing = len(expert.whitener) - len(expert.X)
    return np.concatenate([expert.X, expert.X[:1].repeat(missing, axis=0)])


def _whiten(expert: Expert, k: Array) -> Array:
    """L^-1 k' for the covariances k of shape (N, n), which it may overwrite: (n, N)."""
    k = k.astype(expert.whitener.dtype, copy=False)
    linalg.multiply_triangle(expert.whitener, k.T)
    return k.T
