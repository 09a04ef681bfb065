"""What an emulator answers about curves: means, variances, bands and draws, by its components.

With V (T, K) the basis, D the std of the components at a run, R the correlation of their errors
and r the std of what the basis does not explain, the covariance of the scaled curve is
``V D R D V' + g diag(r^2)``: low rank and a diagonal, of which no T x T matrix is ever made. Each
output then has a factor of its own, learned from curves that were left out, as R, r and g are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.emulator.basis import (
    Components,
    Grid,
    Reduced,
    blocks,
    flat_rows,
    scaled_curves,
    without_fold,
)
from manygp.paths import predict_slopes


@dataclass(frozen=True)
class CurveNumbers:
    """Numbers of what left-out curves teach, and why they are what they are."""

    # Curves that are left out, at most: for bands of 99% a tenth of them would do.
    rows: int = 2000
    # Errors of components beyond this many std do not decide how they belong together.
    largest: float = 5.0
    # As if this many more curves had errors of the size that is expected.
    pseudo_rows: float = 10.0
    # Errors of single outputs that are kept for pointwise intervals.
    kept: int = 20_000
    # The share of squared errors from which on a model of what the basis leaves may pay, and the
    # standard errors that it must gain.
    local_share: float = 0.1
    local_gain: float = 2.0


CURVES = CurveNumbers()
# A variance of a scaled output below this is none.
SMALLEST = 1e-24


class Spread(NamedTuple):
    """What left-out curves have taught about errors.

    Attributes
    ----------
    root : ndarray of shape (K, K)
        R = root root', how errors of components belong together.
    outside : ndarray of shape (T,)
        Mean squares of what the basis leaves of each scaled output.
    factor : ndarray of shape (T,)
        Of the std of each output.
    points, bands : ndarrays of shape (p,) and (m,)
        Sorted errors in units of the std: of single outputs, and the largest of each curve.
    level : float
        Mean of the squares that `local` predicts the logarithm of, in units of its exponential.
    """

    root: Array
    outside: Array
    factor: Array
    points: Array
    bands: Array
    level: float = 1.0


class CurveCovariance(NamedTuple):
    """Covariances of N curves of T outputs each: ``basis @ inner[i] @ basis.T + diag(rest[i])``.

    Attributes
    ----------
    basis : ndarray of shape (T, K)
    inner : ndarray of shape (N, K, K)
    rest : ndarray of shape (N, T)
    """

    basis: Array
    inner: Array
    rest: Array

    def dense(self, i: int) -> Array:
        """The matrix of one curve: (T, T)."""
        return self.basis @ self.inner[i] @ self.basis.T + np.diag(self.rest[i])


class Report(NamedTuple):
    """How components were chosen, and how good they are, where runs are left out.

    Attributes
    ----------
    components : tuple of (float, float)
        Of each, its share of the variance of the curves, and what is explained of it.
    searched : tuple of float
        Shares of the variance that lean models of 0, 1, ... principal components leave; empty if
        the number was given.
    left : float
        The share that the models leave.
    """

    components: tuple[tuple[float, float], ...]
    searched: tuple[float, ...]
    left: float


@dataclass(frozen=True, eq=False)
class FittedEmulator:
    """Record of an emulator.

    Attributes
    ----------
    grid : Grid
    mean, scale : ndarrays of shape (T,)
    basis : ndarray of shape (T, K)
        Orthonormal components of the scaled curves.
    models : tuple of ManyGPRegressor
        One for each component.
    local : ManyGPRegressor or None
        Of the logarithm of how much more than usual the basis leaves of a curve.
    spread : Spread
    report : Report
    each : bool
        Whether outputs are their own components: intervals are then those of their models.
    """

    grid: Grid
    mean: Array
    scale: Array
    basis: Array
    models: tuple[Any, ...]
    local: Any
    spread: Spread
    report: Report
    each: bool = False


class States(NamedTuple):
    """Components of runs: means and std (N, K), and factors (N,) of what the basis leaves."""

    mean: Array
    std: Array
    rest: Array


def states(model: FittedEmulator, X: Any) -> States:
    """What the components are at rows X."""
    both = [one.predict(X, return_std=True) for one in model.models]
    mean, std = (np.stack(one, axis=1) for one in zip(*both, strict=True))
    rest = np.ones(len(mean))
    if model.local is not None:
        rest = model.spread.level * log_normal(*model.local.predict(X, return_std=True))
    return States(mean, std, rest)


def left_out_states(model: FittedEmulator, rows: Any) -> States:
    """What they are at training runs, as if each had been left out."""
    both = [one.loo_predict(rows) for one in model.models]
    mean, std = (np.stack(one, axis=1) for one in zip(*both, strict=True))
    rest = np.ones(len(mean))
    if model.local is not None:
        rest = model.spread.level * log_normal(*model.local.loo_predict(rows))
    return States(mean, std, rest)


def log_normal(mean: Array, std: Array) -> Array:
    """Means of log-normal variables."""
    return np.exp(mean + std**2 / 2)


def mean_of(model: FittedEmulator, means: Array) -> Array:
    """Curves (N, T) of components with means (N, K)."""
    return model.mean + model.scale * (means @ model.basis.T)


def std_of(model: FittedEmulator, state: States) -> Array:
    """Std of all outputs: (N, T)."""
    spread = model.spread
    inside = variances(model.basis, spread.root, state.std)
    scaled = np.sqrt(inside + state.rest[:, None] * spread.outside)
    return model.scale * spread.factor * scaled


def variances(basis: Array, root: Array, std: Array) -> Array:
    """Variances of scaled outputs by components with std (N, K): (N, T).

    Quadratic forms of all runs and outputs are one product of matrices.
    """
    k = basis.shape[1]
    a, b = np.triu_indices(k)
    inner = (std[:, a] * std[:, b]) * ((root @ root.T)[a, b] * np.where(a == b, 1.0, 2.0))
    answer = np.empty((len(std), len(basis)))
    for columns in blocks(len(basis), len(a)):
        answer[:, columns] = inner @ (basis[columns][:, a] * basis[columns][:, b]).T
    return np.maximum(answer, 0.0)


def covariance_of(model: FittedEmulator, state: States) -> CurveCovariance:
    """Covariances between the outputs of each run."""
    unit = model.scale * model.spread.factor
    roots = state.std[:, :, None] * model.spread.root
    rest = state.rest[:, None] * (unit**2 * model.spread.outside)
    return CurveCovariance(unit[:, None] * model.basis, roots @ roots.swapaxes(1, 2), rest)


def sample(model: FittedEmulator, X: Any, n_samples: int, rng: np.random.RandomState) -> Array:
    """Draws of curves, joint over runs and outputs: (N, T, n_samples)."""
    state = states(model, X)
    draws = np.stack([one.sample_y(X, n_samples, rng) for one in model.models])  # (K, N, s)
    normal = (draws - state.mean.T[:, :, None]) / state.std.T[:, :, None]
    mixed = np.einsum("kj,jns->kns", model.spread.root, normal) * state.std.T[:, :, None]
    unit = model.scale * model.spread.factor
    rest = np.sqrt(state.rest[:, None] * model.spread.outside)[:, :, None]
    noise = rest * rng.normal(size=(len(state.mean), len(model.mean), n_samples))
    curves = np.einsum("tk,kns->nts", model.basis, mixed) + noise
    return mean_of(model, state.mean)[:, :, None] + unit[:, None] * curves


def interval(
    model: FittedEmulator, X: Any, coverage: float, *, simultaneous: bool
) -> tuple[Array, Array]:
    """Lower and upper ends (N, T) of intervals of single outputs, or of bands of whole curves."""
    if model.each and not simultaneous:
        ends = zip(*(one.predict_interval(X, coverage) for one in model.models), strict=True)
        lower, upper = (np.stack(one, axis=1) for one in ends)
        return lower, upper
    width = reach(model, coverage, simultaneous=simultaneous)
    state = states(model, X)
    mean, std = mean_of(model, state.mean), width * std_of(model, state)
    return mean - std, mean + std


def reach(model: FittedEmulator, coverage: float, *, simultaneous: bool) -> float:
    """How many std an interval of one output, or a band of whole curves, reaches."""
    scores = model.spread.bands if simultaneous else model.spread.points
    n = len(model.spread.bands)
    place = int(np.ceil((n + 1) * coverage * len(scores) / n))
    if coverage * (n + 1) > n:
        raise ValueError(
            f"{n} left-out curves cannot promise a coverage of {coverage:g}: at most "
            f"{n / (n + 1):.3g}"
        )
    return float(scores[min(place, len(scores)) - 1])


def gradients(model: FittedEmulator, x: Array, output: int) -> tuple[Array, Array]:
    """Derivatives of mean and std of one output by one run x (d,): (d,) each."""
    row = x[None]
    state = states(model, row)
    slopes = [predict_slopes(one.model_, row) for one in model.models]
    of_mean = np.array([one.mean_slope[0] for one in slopes])  # (K, d) each
    of_std = np.array([one.std_slope[0] for one in slopes])
    weights, spread = model.basis[output], model.spread
    unit = model.scale[output] * spread.factor[output]
    shared = spread.root @ (spread.root.T @ (weights * state.std[0]))
    growth = 2 * (weights * shared) @ of_std
    if model.local is not None:
        at = predict_slopes(model.local.model_, row)
        up, wider = at.mean_slope[0], at.std_slope[0]
        growth = growth + spread.outside[output] * state.rest[0] * (up + at.std[0] * wider)
    inside = variances(weights[None], spread.root, state.std)[0, 0]
    variance = inside + state.rest[0] * spread.outside[output]
    of_variance = unit * growth / (2 * np.sqrt(variance)) if variance > 0 else 0 * growth
    return model.scale[output] * (weights @ of_mean), of_variance


def spread_with(model: FittedEmulator, state: States, values: Array) -> Spread:
    """What was taught, and what new curves (N, T), predicted before they are added, say."""
    spread, n, k = model.spread, len(model.spread.bands), len(values)
    live = model.scale > 0
    Z = scaled_curves(values, model.mean, model.scale)
    rest = (Z - Z @ model.basis @ model.basis.T) ** 2 / state.rest[:, None]
    outside = (n * spread.outside + rest.sum(axis=0)) / (n + k)
    z = np.abs(values - mean_of(model, state.mean))[:, live] / std_of(model, state)[:, live]
    factor = spread.factor.copy()
    if not model.each:
        known = n + CURVES.pseudo_rows
        factor[live] *= np.sqrt((known + (z**2).sum(axis=0)) / (known + k))
    kept = min(z.size, -(-len(spread.points) * k // n))
    picked = np.random.default_rng(n).choice(z.ravel(), kept, replace=False)
    points = np.sort(np.concatenate([spread.points, picked]))
    bands = np.sort(np.concatenate([spread.bands, z.max(axis=1)]))
    return spread._replace(outside=outside, factor=factor, points=points, bands=bands)


class LeftOut(NamedTuple):
    """Components of left-out runs (m,): what they are predicted to be, errors and std (m, K)."""

    rows: IndexArray
    means: Array
    errors: Array
    std: Array


def together(left: LeftOut) -> Array:
    """The root of the correlation of errors of components, shrunk to none: (K, K)."""
    u = np.clip(left.errors / left.std, -CURVES.largest, CURVES.largest)
    m, k = u.shape
    moments = u.T @ u + 1e-12 * np.eye(k)
    size = np.sqrt(np.diag(moments))
    share = min(1.0, k / m)
    correlation = (1 - share) * moments / np.outer(size, size) + share * np.eye(k)
    return np.linalg.cholesky(correlation)


def spread_of_each(left: LeftOut) -> Spread:
    """What is taught where outputs are their own components: how they belong together."""
    z, k = np.abs(left.errors / left.std), left.std.shape[1]
    bands = np.sort(z.max(axis=1))
    return Spread(together(left), np.zeros(k), np.ones(k), np.sort(z, axis=None), bands)


class Judge(NamedTuple):
    """Reads curves that were left out, and tells how large their errors are.

    Nothing is judged by what it has taught: a curve is compared with the basis of other folds, in
    units of what these have for errors. The whole is then made of all folds.

    Attributes
    ----------
    Y, grid, reduced, components
        What was fitted.
    left : LeftOut
    """

    Y: Any
    grid: Grid
    reduced: Reduced
    components: Components
    left: LeftOut

    @property
    def basis(self) -> Array:
        """The components of all curves: (T, K)."""
        return self.reduced.directions @ self.components.turn[:, : self.left.means.shape[1]]

    def outside(self, factors: Array) -> Array:
        """Sums over each fold of squares of what the basis leaves, in units of factors (m,).

        Of shape (folds, T).
        """
        total = np.zeros((len(self.components.fold_turns), len(self.reduced.mean)))
        for rows, folds, _, rest in self._blocks(self.left.rows):
            np.add.at(total, folds, rest**2 / factors[rows, None])
        return total

    def sizes(self, outside: Array) -> Array:
        """Squares of what the basis leaves of each of all curves, in units of `outside`: (n,)."""
        live = outside > 0
        sizes = np.empty(len(self.Y))
        for rows, _, _, rest in self._blocks(np.arange(len(self.Y))):
            sizes[rows] = (rest[:, live] ** 2 / outside[live]).mean(axis=1)
        return sizes

    def spread(self, factors: Array, level: float = 1.0) -> Spread:
        """What the errors teach, with factors (m,) of what the basis leaves."""
        root, live, m = together(self.left), self.reduced.scale > 0, len(self.left.rows)
        counts = np.bincount(self.components.fold_of[self.left.rows])
        outside = self.outside(factors)
        others = _of_others(outside, counts, 0.0)
        total = np.zeros((len(counts), int(live.sum())))
        for _, folds, z in self._standardised(root, factors, others):
            np.add.at(total, folds, z**2)
        units = np.sqrt(_of_others(total, counts, CURVES.pseudo_rows))
        bands, points = np.empty(m), []
        rng, share = np.random.default_rng(0), CURVES.kept / (m * len(total[0]))
        for rows, folds, z in self._standardised(root, factors, others):
            z = np.abs(z) / units[folds]
            bands[rows] = z.max(axis=1)
            points.append(z[rng.random(z.shape) < share])
        factor = np.ones(len(live))
        factor[live] = np.sqrt((total.sum(axis=0) + CURVES.pseudo_rows) / (m + CURVES.pseudo_rows))
        sorted_points = np.sort(np.concatenate(points))
        return Spread(root, outside.sum(axis=0) / m, factor, sorted_points, np.sort(bands), level)

    def _blocks(self, every: IndexArray) -> Any:
        """Places among some runs (m,), their folds, curves (N, T), and what the basis leaves."""
        for rows in blocks(len(every), len(self.reduced.mean)):
            own = every[rows]
            Z = scaled_curves(
                flat_rows(self.Y, own, self.grid), self.reduced.mean, self.reduced.scale
            )
            k = self.left.means.shape[1]
            known = without_fold(self.components, own, self.reduced.places[own], k)
            yield rows, self.components.fold_of[own], Z, Z - known @ self.reduced.directions.T

    def _standardised(self, root: Array, factors: Array, outside: Array) -> Any:
        """Places among left-out runs, folds, and errors of outputs that vary in units of the std.

        `outside` (folds, T) is for each fold what the others have taught.
        """
        live, turn = self.reduced.scale > 0, self.components.turn
        basis, k = self.basis, self.left.means.shape[1]
        for rows, folds, Z, _ in self._blocks(self.left.rows):
            places = self.left.means[rows] @ turn[:, :k].T
            known = without_fold(self.components, self.left.rows[rows], places, k)
            errors = Z - known @ self.reduced.directions.T
            variance = variances(basis, root, self.left.std[rows])
            variance += factors[rows, None] * outside[folds]
            yield rows, folds, errors[:, live] / np.sqrt(np.maximum(variance[:, live], SMALLEST))


def _of_others(sums: Array, counts: IndexArray, pseudo_rows: float) -> Array:
    """For each fold the mean square of all others: (folds, T)."""
    return (sums.sum(axis=0) - sums + pseudo_rows) / (
        (counts.sum() - counts)[:, None] + pseudo_rows
    )
