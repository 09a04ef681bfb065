"""Draws of functions: what a committee does not know, as functions that answer everywhere.

A draw of one expert's posterior is a draw of its prior, made of waves, moved by what its rows say
(Matheron's rule). Those of the experts are independent, and joined as `between_rows` joins their
covariances: sum_m sqrt(w_m) g_m / sd_m has mean 0 and variance 1, and the correlations of
`return_cov`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, gammaincinv, gammaln, ndtri

from manygp.arrays import Array, IndexArray
from manygp.committee.committee import Committee, Query
from manygp.committee.gradients import record_of
from manygp.dual import Dual, with_slopes
from manygp.gp.expert import Expert
from manygp.gp.marginal_likelihood import noise_of
from manygp.kernels.additive import ByColumn
from manygp.kernels.base import Constant, Kernel, Matern, Product, Stationary, Sum
from manygp.kernels.catalogue import RBF, RationalQuadratic
from manygp.rules import ExpertPredictions, PredictionRules
from manygp.runtime.parallel import single_threaded_blas


@dataclass(frozen=True)
class PathSizes:
    """Numbers of draws of functions, and why they are what they are."""

    # Waves that the prior of a draw is made of: a covariance of one set of waves is off by about
    # 1 / sqrt(this) of the variance.
    waves: int = 512
    # Draws that share a set of waves, whose values then cost one evaluation. Means and covariances
    # are right on average over sets.
    sharing: int = 16
    # Half of the waves of a Matern kernel are drawn as if its smoothness were this: between rows
    # that are known only high frequencies are left, of which there are few else.
    rough: float = 0.5
    # Rows of a block, over all sets of waves; their cosines and sines take 32 MB.
    block_rows: int = 4096
    # Blocks of rows with slopes have as many numbers in an array, at most.
    block_slopes: int = 2**20


SIZES = PathSizes()
# Variances are taken to be at least so large where something is divided by them.
SMALLEST = 1e-300


class Waves(NamedTuple):
    """sum_i sqrt(variance_i) (a_i cos(w_i x) + b_i sin(w_i x)) with normal a and b.

    Attributes
    ----------
    frequencies : ndarray of shape (F, d)
    variances : ndarray of shape (F,)
        Their sum is the prior variance, exactly.
    """

    frequencies: Array
    variances: Array

    def at(self, X: Array) -> Array:
        """Their values at rows X (N, d), cosines first: (N, 2F)."""
        phase, scale = X @ self.frequencies.T, np.sqrt(self.variances)
        return np.concatenate([np.cos(phase) * scale, np.sin(phase) * scale], axis=1)

    def slopes(self, waves: Array, weights: Array) -> Array:
        """Derivatives of the sums of values (N, 2F) times weights (N, 2F): (N, d)."""
        n = len(self.variances)
        turned = waves[:, :n] * weights[:, n:] - waves[:, n:] * weights[:, :n]
        slopes: Array = turned @ self.frequencies
        return slopes


@singledispatch
def waves_of(kernel: Kernel, n: int, d: int, rng: np.random.Generator) -> Waves:
    """n random waves of d columns whose covariance is, on average, the kernel's.

    Raises
    ------
    ValueError
        If there are none: the message names the kernel.
    """
    raise ValueError(
        f"paths are for sums and products of Matern, RBF, RationalQuadratic and Constant, and for "
        f"Additive and Pairwise kernels; the kernel {kernel} is none of these. sample_y draws "
        "values of any kernel"
    )


@waves_of.register
def _(kernel: Constant, n: int, d: int, rng: np.random.Generator) -> Waves:
    return Waves(np.zeros((n, d)), np.full(n, kernel.variance / n))


def _spread(n: int, columns: int, rng: np.random.Generator) -> Array:
    """Uniform numbers (n, columns), evenly spread in each column (Latin hypercube)."""
    place = rng.permuted(np.tile(np.arange(n), (columns, 1)), axis=1).T
    return (place + rng.uniform(size=(n, columns))) / n


def _student(nu: float, n: int, columns: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Frequencies (n, columns) of Matern kernels for length-scales of 1, and their shares (n,).

    They are normal over the root of a gamma variable g. Half of these are drawn from one of
    another shape, and the shares make up for that; none is more than twice as large as by chance.
    """
    half = n // 2
    g = gammaincinv(nu, _spread(n - half, 1, rng))
    g = np.concatenate([g, np.maximum(gammaincinv(SIZES.rough, _spread(half, 1, rng)), 1e-12)])
    log_ratio = (SIZES.rough - nu) * np.log(g[:, 0]) + gammaln(nu) - gammaln(SIZES.rough)
    shares = expit(-log_ratio)
    return ndtri(_spread(n, columns, rng)) * np.sqrt(nu / g), shares / shares.sum()


@waves_of.register
def _(kernel: Stationary, n: int, d: int, rng: np.random.Generator) -> Waves:
    shares = np.full(n, 1 / n)
    if isinstance(kernel, Matern):
        frequencies, shares = _student(kernel.nu, n, d, rng)
    elif isinstance(kernel, RationalQuadratic):
        rate = gammaincinv(kernel.alpha, _spread(n, 1, rng)) / kernel.alpha
        frequencies = ndtri(_spread(n, d, rng)) * np.sqrt(rate)
    elif isinstance(kernel, RBF):
        frequencies = ndtri(_spread(n, d, rng))
    else:
        return waves_of.dispatch(Kernel)(kernel, n, d, rng)
    return Waves(frequencies / np.asarray(kernel.length_scale), shares)


@waves_of.register
def _(kernel: ByColumn, n: int, d: int, rng: np.random.Generator) -> Waves:
    """Waves of one column each, or of two, drawn by their variances."""
    variance, row = kernel.variances(d), np.arange(n)
    g = gammaincinv(kernel.nu, _spread(n, d, rng))
    by_column = ndtri(_spread(n, d, rng)) * np.sqrt(kernel.nu / g)
    by_column = by_column / np.asarray(kernel.length_scale)
    if kernel.degree == 1:
        first = second = rng.choice(d, size=n, p=variance / variance.sum())
    else:
        pairs = np.triu(np.outer(variance, variance), 1).ravel()
        first, second = np.divmod(rng.choice(d * d, size=n, p=pairs / pairs.sum()), d)
    frequencies = np.zeros((n, d))
    for column in (first, second):
        frequencies[row, column] = by_column[row, column]
    return Waves(frequencies, np.full(n, kernel.diag(np.zeros((1, d)))[0] / n))


@waves_of.register
def _(kernel: Sum, n: int, d: int, rng: np.random.Generator) -> Waves:
    left, right = (waves_of(one, n // 2, d, rng) for one in kernel.operands)
    return Waves(*(np.concatenate(pair) for pair in zip(left, right, strict=True)))


@waves_of.register
def _(kernel: Product, n: int, d: int, rng: np.random.Generator) -> Waves:
    left, right = (waves_of(one, n, d, rng) for one in kernel.operands)
    mixed = rng.permutation(n)  # pairs of waves that have nothing to do with each other
    shares = left.variances * right.variances[mixed]
    total = left.variances.sum() * right.variances.sum()
    return Waves(left.frequencies + right.frequencies[mixed], shares * (total / shares.sum()))


class _ExpertDraws(NamedTuple):
    """Draws of the posterior of one expert, less its mean, one per column.

    Attributes
    ----------
    waves : ndarray of shape (2F, p)
        Weights of the waves.
    rows : ndarray of shape (n, p)
        Weights of the covariances with its rows.
    terms : ndarray of shape (r, p), or None
        Coefficients of what it leaves of the trend's terms.
    """

    waves: Array
    rows: Array
    terms: Array | None

    @classmethod
    def of(cls, expert: Expert, waves: Waves, p: int, rng: np.random.Generator) -> _ExpertDraws:
        n, factor = len(expert.X), expert.factor
        weights = rng.normal(size=(2 * len(waves.variances), p))
        noise = noise_of(expert.noise_variance, expert.alpha, expert.spread) + factor.jitter
        seen = waves.at(expert.X) @ weights
        seen += np.sqrt(noise)[:, None] * rng.normal(size=(n, p))
        W = factor.whitener[:n, :n]
        terms = None
        rows = -(W.T @ (W @ seen))
        if factor.terms is not None:
            terms = rng.normal(size=(factor.terms.coefficients.shape[1], p))
            rows -= factor.terms.coefficients[:n] @ terms
        return cls(weights, rows, terms)

    def at(self, expert: Expert, k: Array, waves: Array, basis: Array | None) -> Array:
        """Their values at rows with covariances k (N, n), waves (N, 2F) and terms: (N, p)."""
        values: Array = waves @ self.waves + k @ self.rows
        if self.terms is not None and basis is not None and expert.factor.terms is not None:
            values += (basis - expert.factor.terms.mean) @ self.terms
        return values

    def some(self, columns: IndexArray) -> _ExpertDraws:
        """Some of the draws."""
        return _ExpertDraws(*(None if one is None else one[:, columns] for one in self))  # type: ignore[arg-type]

    def slopes(self, expert: Expert, X: Array, waves: Waves, values: Array, basis: Any) -> Array:
        """Their derivatives: (N, p, d). `basis` has those of the terms."""
        columns = [
            self.some(np.full(len(X), j)).own_slopes(expert, X, waves, values, basis)
            for j in range(self.rows.shape[1])
        ]
        return np.stack(columns, axis=1)

    def own(self, expert: Expert, k: Array, waves: Array, basis: Array | None) -> Array:
        """Values of as many draws as there are rows, each at its own row: (N,)."""
        values: Array = (waves * self.waves.T).sum(axis=1) + (k * self.rows.T).sum(axis=1)
        if self.terms is not None and basis is not None and expert.factor.terms is not None:
            values += ((basis - expert.factor.terms.mean) * self.terms.T).sum(axis=1)
        return values

    def own_slopes(
        self, expert: Expert, X: Array, waves: Waves, values: Array, basis: Any
    ) -> Array:
        """Derivatives of as many draws as there are rows, each at its own row: (N, d)."""
        slope = waves.slopes(values, self.waves.T)
        slope += expert.kernel.signal.slopes(X, expert.X, self.rows.T)
        if self.terms is not None and basis is not None:
            slope += np.einsum("ard,ra->ad", basis.slope, self.terms)
        return slope


class CommitteePaths:
    """Draws of what a committee does not know, in units of its latent std.

    Each is determined by the seed and its number; experts are drawn when rows first need them.

    Parameters
    ----------
    committee : Committee
    rules : PredictionRules
    n_paths : int
    seed : int
    n_jobs : int or None
    """

    def __init__(
        self,
        committee: Committee,
        rules: PredictionRules,
        n_paths: int,
        seed: int,
        n_jobs: int | None,
    ) -> None:
        self.committee, self.rules, self.n_jobs = committee, rules, n_jobs
        self.n_paths, self.seed = n_paths, seed
        self._known: dict[tuple[int, int], tuple[Waves, _ExpertDraws]] = {}
        self._one_kernel = committee.has_one_kernel
        self._waves: dict[int, tuple[Kernel, Waves]] = {}
        self._waves_of(committee.experts[0], 0)  # kernels that have none are refused now

    def at(self, Z: Array, paths: IndexArray) -> Array:
        """Values of some of the paths at scaled rows Z (N, d): (N, p)."""
        committee, blocks = self.committee, []
        step = self._block_rows(paths)
        for start in range(0, len(Z), step):
            X = Z[start : start + step]
            query = Query(X, self.rules.nearest, tapered=self.rules.tapered)
            weights, own = committee.map_blocks(self._weights_and_variances, query, self.n_jobs)
            basis: Any = None
            if committee.trend is not None:
                trend = committee.trend.model.at(X)
                own, basis = own - trend.spread, trend.basis
            scale = np.sqrt(weights / np.maximum(own, SMALLEST))
            total = np.zeros((len(X), len(paths)))
            for expert, (seat, rows), parts in self._each(X, paths):
                terms = None if basis is None else basis[rows]
                k, size = expert.kernel.signal(X[rows], expert.X), scale[seat, rows][:, None]
                for columns, draws, _, waves in parts:
                    values = draws.at(expert, k, waves, terms)
                    total[np.ix_(rows, columns)] += size * values
            blocks.append(total)
        return np.concatenate(blocks)

    def slopes(self, Z: Array, paths: IndexArray) -> Dual:
        """Values of some of the paths (N, p), with their derivatives (N, p, d)."""
        step, blocks = max(1, SIZES.block_slopes // (Z.shape[1] * len(paths))), []
        step = min(step, self._block_rows(paths))
        for start in range(0, len(Z), step):
            X = Z[start : start + step]
            scale, basis = self._scales(X, record_of(self.committee, self.rules, X))
            total = np.zeros((len(X), len(paths)))
            slope = np.zeros((*total.shape, X.shape[1]))
            for expert, (seat, rows), parts in self._each(X, paths):
                terms: Any = None if basis is None else basis[rows]
                plain = None if basis is None else terms.value
                k, one = expert.kernel.signal(X[rows], expert.X), scale[seat, rows]
                for columns, draws, known, waves in parts:
                    place, values = np.ix_(rows, columns), draws.at(expert, k, waves, plain)
                    total[place] += one.value[:, None] * values
                    rise = draws.slopes(expert, X[rows], known, waves, terms)
                    slope[place] += one.value[:, None, None] * rise
                    slope[place] += one.slope[:, None] * values[:, :, None]
            blocks.append(Dual(total, slope))
        return Dual.joined(blocks)

    def each(self, Z: Array, paths: IndexArray, record: ExpertPredictions) -> Dual:
        """Values of one path for each row, paths (N,), with derivatives: (N, 1), (N, 1, d).

        `record` is what the experts predict for the rows, with derivatives.
        """
        value, slope = np.zeros((len(Z), 1)), np.zeros((len(Z), 1, Z.shape[1]))
        scale, basis = self._scales(Z, record)
        for group in np.unique(paths // SIZES.sharing).tolist():
            rows = np.flatnonzero(paths // SIZES.sharing == group)
            for expert, (seat, asking), parts in self._each(Z[rows], paths[rows]):
                places = rows[asking]
                terms: Any = None if basis is None else basis[places]
                plain = None if basis is None else terms.value
                X, one = Z[places], scale[seat, places]
                k = expert.kernel.signal(X, expert.X)
                for _, draws, known, waves in parts:
                    mine = draws.some(asking)
                    found = mine.own(expert, k, waves, plain)
                    rise = mine.own_slopes(expert, X, known, waves, terms)
                    value[places, 0] += one.value * found
                    slope[places, 0] += one.value[:, None] * rise + one.slope * found[:, None]
        return Dual(value, slope)

    def _scales(self, X: Array, record: ExpertPredictions) -> tuple[Dual, Any]:
        """Factors of the experts' draws at rows X, with derivatives, and the trend's terms."""
        weights, own = self._weights_and_variances([record])
        basis: Any = None
        if self.committee.trend is not None:
            trend = self.committee.trend.model.at(with_slopes(X))
            own, basis = own - trend.spread, trend.basis
        share = np.maximum(weights, SMALLEST) / np.maximum(own, SMALLEST)
        scale: Any = np.where(weights > 0, np.sqrt(share), 0.0)
        if not isinstance(scale, Dual):  # a single expert without variance to change
            scale = Dual(scale, np.zeros((*scale.shape, X.shape[1])))
        return scale, basis

    def _weights_and_variances(self, by_target: list[ExpertPredictions]) -> tuple[Any, Any]:
        """Weights of the experts, and their latent variances: (M, N) each."""
        local = by_target[0]
        if self.committee.is_single:
            return np.ones((1, local.mean.shape[1])), local.variance[:1]
        return self.rules.normalised_weights(by_target)[0], local.variance

    def _block_rows(self, paths: IndexArray) -> int:
        """Rows of a block, whose waves are in memory for all paths."""
        groups = len(np.unique(paths // SIZES.sharing))
        return max(1, SIZES.block_rows // max(1, groups))

    def _each(self, X: Array, paths: IndexArray) -> Iterator[tuple[Any, ...]]:
        """All that adds to the values of some paths at a block of rows X (N, d).

        An expert, seats and places of the rows that ask it, and for each set of waves: columns of
        the result, the draws, the waves, and their values at these rows.
        """
        experts, near = self.committee.experts, None
        if self.rules.nearest is not None and not self.committee.is_single:
            near = self.committee.layout.nearest(X, self.rules.nearest)[0].T
        groups = {
            group: np.flatnonzero(paths // SIZES.sharing == group)
            for group in np.unique(paths // SIZES.sharing).tolist()
        }
        whole: dict[
            int, Array
        ] = {}  # waves at all rows of the block, where all experts share them
        for m in (np.arange(len(experts)) if near is None else np.unique(near)).tolist():
            seat, rows = np.full(len(X), m), np.arange(len(X))
            if near is not None:
                seat, rows = np.nonzero(near == m)
            parts = []
            for group, columns in groups.items():
                waves, draws = self._draws_of(m, group)
                if self._one_kernel:
                    whole[group] = waves.at(X) if group not in whole else whole[group]
                values = whole[group][rows] if self._one_kernel else waves.at(X[rows])
                chosen = draws.some(paths[columns] % SIZES.sharing)
                parts.append((columns, chosen, waves, values))
            yield experts[m], (seat, rows), parts

    def _draws_of(self, m: int, group: int) -> tuple[Waves, _ExpertDraws]:
        """Waves and draws of an expert."""
        known = self._known.get((m, group))
        if known is None:
            expert, rng = self.committee.experts[m], np.random.default_rng([self.seed, group, m])
            waves = self._waves_of(expert, group)
            p = min(SIZES.sharing, self.n_paths - group * SIZES.sharing)
            with single_threaded_blas():
                known = waves, _ExpertDraws.of(expert, waves, p, rng)
            self._known[m, group] = known
        return known

    def _waves_of(self, expert: Expert, group: int) -> Waves:
        """Waves of the experts that have a kernel in common."""
        kernel = expert.kernel.signal
        other, waves = self._waves.get(group, (None, None))
        if waves is None or other != kernel:
            rng = np.random.default_rng([self.seed, group])
            waves = waves_of(kernel, SIZES.waves, expert.X.shape[1], rng)
            self._waves[group] = kernel, waves
        return waves
