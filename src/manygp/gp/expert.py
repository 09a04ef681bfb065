"""One expert, a Gaussian process on its own rows; and the store of all experts."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, overload

import numpy as np

from manygp.arrays import AnyArray, Array, IndexArray
from manygp.gp.marginal_likelihood import (
    PADDING,
    KernelFit,
    Likelihood,
    NotPositiveDefiniteError,
    Terms,
    TrainingData,
    multiply_tiles,
    multiply_triangle,
    multiply_vector,
    noise_of,
    some_of,
)
from manygp.gp.trend import Trend, TrendAt
from manygp.inputs import read_only
from manygp.kernels.base import NoisyKernel, Workspace
from manygp.runtime.parallel import physical_memory, single_threaded_blas


@dataclass(frozen=True)
class Memory:
    """Numbers of what is kept once it was needed, and why they are what they are."""

    # Bytes of factors that a model from a file keeps, at most, and as a share of the memory.
    factor_bytes: float = 2e9
    factor_share: float = 0.25
    # Rows of the experts that it keeps, at most.
    expert_rows: int = 2**23


@dataclass(frozen=True)
class Precision:
    """Numbers of the digits of an expert, and why they are what they are."""

    # Rounding may leave a posterior variance at or below zero; relative to the prior variance.
    smallest_variance: float = 1e-14
    smallest_prior: float = 1e-200
    # A factor is stored in single precision if it has at least this number of rows, and no row
    # that the expert knows has a smaller latent variance, a larger noise (both relative to the
    # prior's variance) or a smaller prior variance: a std then changes by less than about 1e-4 of
    # it.
    single_rows: int = 128
    single_variance: float = 5e-3
    single_noise: float = 100.0
    single_prior: float = 1e-30
    # The covariances of one row are a vector, whose products round otherwise than those of a
    # matrix. In single precision, or where the noise is a smaller share of the prior's variance,
    # that shows.
    vector_noise: float = 1e-4


MEMORY = Memory()
PRECISION = Precision()


class Factor(NamedTuple):
    """Arrays that an expert has computed from its rows, in order to predict.

    Attributes
    ----------
    mean : ndarray of shape (t,)
        Constant prior mean of each target.
    jitter : float
        Variance added to the diagonal because the factorisation failed without; 0 as a rule.
    whitener, coefficients : ndarrays of shape (n', n'), (n', t)
        See `Posterior`. The whitener is in single precision where that is enough.
    terms : Terms or None
        How the expert explains the terms of a trend, if there is one.
    """

    mean: Array
    jitter: float
    whitener: Array
    coefficients: Array
    terms: Terms | None = None

    @property
    def arrays(self) -> list[Array]:
        """The arrays that grow with the rows."""
        return [self.whitener, self.coefficients, *(self.terms or ())]

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in self.arrays)


# One lock for all: nothing is computed while it is held. A child of `fork` gets a new one, since
# a thread that it does not have may have held the old one.
_changed = threading.Condition()


def _after_fork() -> None:
    global _changed
    _changed = threading.Condition()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Factors:
    """Factors that are built when they are first needed.

    The least recently used are forgotten when all together exceed a bound, except the last one.
    Each is built by one thread while others wait for it. A copy or a pickle begins empty.

    Attributes
    ----------
    nbytes : int
        Bytes of the factors that are kept.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[weakref.ref[Any], Factor]] = OrderedDict()
        self._being_built: set[tuple[int, int]] = set()  # with the process: see `_after_fork`
        self.nbytes = 0  # of those that are kept

    def __reduce__(self) -> tuple[type[Factors], tuple[()]]:
        return Factors, ()

    def of(self, owner: Any, build: Callable[[], Factor]) -> Factor:
        """The factor of an expert, kept or built."""
        this, mine = (os.getpid(), id(owner)), False
        try:
            with _changed:
                while this in self._being_built:
                    _changed.wait()
                known = self._find(owner)
                if known is not None:
                    return known
                mine = True
                self._being_built.add(this)
            factor = build()
            with _changed:
                self._keep(owner, factor)
            return factor
        finally:
            if mine:  # also after an error or an interrupt, so that nobody waits for ever
                with _changed:
                    self._being_built.discard(this)
                    _changed.notify_all()

    def _find(self, owner: Any) -> Factor | None:
        known, factor = self._kept.get(id(owner), (None, None))
        if known is None or known() is not owner:  # another object may have had the same address
            return None
        self._kept.move_to_end(id(owner))
        return factor

    def _keep(self, owner: Any, factor: Factor) -> None:
        _, old = self._kept.pop(id(owner), (None, None))  # of an object that is gone
        self._kept[id(owner)] = weakref.ref(owner), factor
        self.nbytes += factor.nbytes - (0 if old is None else old.nbytes)
        most = min(MEMORY.factor_bytes, MEMORY.factor_share * physical_memory())
        while len(self._kept) > 1 and self.nbytes > most:
            _, (_, forgotten) = self._kept.popitem(last=False)
            self.nbytes -= forgotten.nbytes


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
        With the fitted hyperparameters.
    n_evaluations : int
        Evaluations of the likelihood that the fit took.
    X, Y, alpha : ndarrays of shape (n, d), (n, t), (n,)
        Inputs, targets and known noise variances of its own rows and then the neighbours.
    constant_mean : bool
        Whether `mean` was estimated; else it is 0.
    source : Factor or Factors
        Its factor, or where that is kept once it was needed.
    basis : ndarray of shape (n, r), or None
        Terms of a trend at its rows, while its factor is not computed.
    spread : ndarray of shape (n,), or None
        One over the weights of these rows: see `TrainingData`.
    """

    indices: IndexArray
    neighbours: IndexArray
    kernel: NoisyKernel
    n_evaluations: int
    X: Array
    Y: Array
    alpha: Array
    constant_mean: bool
    source: Factor | Factors
    basis: Array | None = None
    spread: Array | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():  # pickle forgets that arrays are read-only
            frozen = read_only(value) if isinstance(value, np.ndarray) else value
            frozen = _frozen(value) if isinstance(value, Factor) else frozen
            object.__setattr__(self, name, frozen)

    @property
    def factor(self) -> Factor:
        """What it has computed from its rows; computed now if it has not been needed yet."""
        if isinstance(self.source, Factor):
            return self.source
        return self.source.of(self, self._build)

    def _build(self) -> Factor:
        """The factor as `fit` has computed it, bit for bit."""
        rows = self.X, self.Y, self.alpha, self.constant_mean
        known = Likelihood(*rows, self.basis, self.spread)
        with np.errstate(all="ignore"), single_threaded_blas():
            factor = _factor(known, self.kernel, self.indices, exact=False)
        if not all(np.isfinite(one).all() for one in factor.arrays):
            raise ValueError(
                f"the numbers of the expert with the rows {self.indices[:3]}... are beyond all "
                "bounds; scale the data and fit again"
            )
        return factor

    @property
    def mean(self) -> Array:
        """Constant prior mean of each target: (t,)."""
        return self.factor.mean

    @property
    def jitter(self) -> float:
        """Variance added to the diagonal because the factorisation failed without; mostly 0."""
        return self.factor.jitter

    @property
    def whitener(self) -> Array:
        """Inverse of the Cholesky factor, (n', n'): see `Factor`."""
        return self.factor.whitener

    @property
    def coefficients(self) -> Array:
        """K^-1 (y - mean), (n', t): see `Factor`."""
        return self.factor.coefficients

    @property
    def rows(self) -> IndexArray:
        """All rows of the training data that it knows: (n,)."""
        return np.concatenate([self.indices, self.neighbours])

    def renumbered(self, numbers: IndexArray) -> Expert:
        """The same expert where row i of the training data is row numbers[i]: (n,)."""
        own, others = (read_only(numbers[one]) for one in (self.indices, self.neighbours))
        return replace(self, indices=own, neighbours=others)

    @property
    def log_marginal_likelihood(self) -> float:
        """Log marginal likelihood of its own rows, whose factor leads that of all its rows."""
        n, t = len(self.indices), self.Y.shape[1]
        W = self.factor.whitener[:n, :n]
        z, one = W @ self.Y[:n], W.sum(axis=1, dtype=float)
        if self.constant_mean:
            z -= np.outer(one, one @ z / (one @ one))
        log_determinant = -2 * np.log(np.einsum("ii->i", W), dtype=float).sum()
        fit = np.einsum("ij,ij->", z, z)
        return float(-0.5 * (fit + t * (log_determinant + n * np.log(2 * np.pi))))

    @property
    def noise_variance(self) -> float:
        """Variance of the noise, sigma_m^2 with two dots in the paper."""
        return self.kernel.noise_variance

    @property
    def hyperparameters(self) -> dict[str, float]:
        """The fitted values by name."""
        return dict(zip(self.kernel.theta_names, np.exp(self.kernel.theta).tolist(), strict=True))


def condition(
    data: TrainingData,
    indices: IndexArray,
    neighbours: IndexArray,
    fit: KernelFit,
    *,
    exact: bool = False,
) -> Expert:
    """The expert that knows its own rows and their neighbours, with a kernel that was fitted.

    `exact` keeps its factor in double precision in every case.
    """
    known = data.likelihood(np.concatenate([indices, neighbours]))
    factor = _factor(known, fit.kernel, indices, exact=exact)
    return _expert(known, indices, neighbours, fit, factor)


def condition_later(
    data: TrainingData,
    indices: IndexArray,
    neighbours: IndexArray,
    fit: KernelFit,
    factors: Factors,
) -> Expert:
    """The same expert, whose factor is computed when it is first needed."""
    known = data.likelihood(np.concatenate([indices, neighbours]))
    return _expert(known, indices, neighbours, fit, factors)


def _expert(
    known: Likelihood,
    indices: IndexArray,
    neighbours: IndexArray,
    fit: KernelFit,
    source: Factor | Factors,
) -> Expert:
    return Expert(
        read_only(indices),
        read_only(neighbours),
        fit.kernel,
        fit.n_evaluations,
        read_only(known.X),
        read_only(known.Y),
        read_only(known.alpha),
        known.constant_mean,
        source,
        known.terms if isinstance(source, Factors) else None,
        None if known.spread is None else read_only(known.spread),
    )


def _factor(known: Likelihood, kernel: NoisyKernel, indices: IndexArray, *, exact: bool) -> Factor:
    """What an expert computes from the rows that it knows."""
    try:
        posterior = known.posterior(kernel)
    except NotPositiveDefiniteError as error:
        raise NotPositiveDefiniteError(
            f"the covariance of the expert with the rows {indices[:3]}... is not positive "
            f"definite with the kernel {kernel!r}; scale X, add White(), or raise its "
            "lower bound or alpha"
        ) from error
    whitener = posterior.whitener
    if not exact and _single_will_do(whitener, known, kernel, posterior.jitter):
        whitener = whitener.astype(np.float32)
    mean, coefficients = posterior.mean, posterior.coefficients
    return _frozen(Factor(mean, posterior.jitter, whitener, coefficients, posterior.terms))


def _frozen(factor: Factor) -> Factor:
    """The same factor, whose arrays refuse to be written to."""
    mean, jitter, whitener, coefficients, terms = factor
    frozen = None if terms is None else Terms(*map(read_only, terms))
    return Factor(read_only(mean), jitter, read_only(whitener), read_only(coefficients), frozen)


def _single_will_do(
    whitener: Array, known: Likelihood, kernel: NoisyKernel, jitter: float
) -> bool:
    """Whether all latent variances are so large that single precision does not show."""
    n = len(known.X)
    if n < PRECISION.single_rows:
        return False
    noise = noise_of(kernel.noise_variance, known.alpha, known.spread) + jitter
    prior = kernel.signal.diag(known.X)
    if prior.min() < PRECISION.single_prior:
        return False
    # A row's own latent variance is smaller than its noise.
    least = PRECISION.single_variance * prior
    if np.any(noise < least) or np.any(noise > PRECISION.single_noise * prior):
        return False
    W = whitener[:n, :n]
    precision = np.einsum("ij,ij->j", W, W)
    return bool(np.all(noise - noise**2 * precision >= least))


class Prediction(NamedTuple):
    """Predictions of an expert for N rows, without the trend.

    Attributes
    ----------
    mean : ndarray of shape (N, t)
    variance, prior_variance : ndarrays of shape (N,)
        Of the latent function; empty if they are not needed.
    prior_mean : ndarray of shape (N, t)
    unexplained : ndarray of shape (N, r), or None
        What it leaves of the trend's terms.
    """

    mean: Array
    variance: Array
    prior_variance: Array
    prior_mean: Array
    unexplained: Array | None = None

    @classmethod
    def joined(cls, pieces: Sequence[Prediction]) -> Prediction:
        """The predictions of several sets of rows as one."""
        columns = zip(*pieces, strict=True)
        joined: Any = [None if one[0] is None else np.concatenate(one) for one in columns]
        return cls(*joined)

    def some(self, rows: Any) -> Prediction:
        """The prediction of some of the rows."""
        columns: Any = self
        return Prediction(*(one if one is None or not len(one) else one[rows] for one in columns))

    def on(self, trend: Trend, at: TrendAt, left_out: IndexArray | None) -> Prediction:
        """The same with the trend, which says `at` about these rows, under it.

        `left_out` (N,) are these rows among the training rows, if the trend shall not know them.
        """
        mean, whole = at.mean, at.whole_variance()
        own = whole
        if self.unexplained is not None:
            own = at.variance_with(self.unexplained)
        if left_out is not None:
            shift, growth = trend.left_out(left_out, self.unexplained)
            mean, own = mean + shift, own + growth
            whole = whole + trend.left_out(left_out, at.basis)[1]
        return Prediction(
            self.mean + mean,
            self.variance + own if len(self.variance) else self.variance,
            self.prior_variance + whole if len(self.variance) else self.prior_variance,
            self.prior_mean + mean,
        )


def predict_expert(
    expert: Expert,
    X: Array,
    work: Workspace,
    *,
    with_variance: bool,
    terms: Array | None = None,
) -> Prediction:
    """The posterior at the rows of X (N, d), where the trend has the terms (N, r).

    Without variance nothing of order n^2 is computed. A single row is a vector: see `is_vector`.
    """
    factor, signal = expert.factor, expert.kernel.signal
    work.reset((len(X), len(factor.whitener)))
    k = signal.cross(X, _padded_rows(expert), work)
    if k.shape != work.shape:  # a constant kernel
        k = np.array(np.broadcast_to(k, work.shape))
    # Not k @ coefficients, whose digits depend on the number of rows.
    mean = np.einsum("ij,jt->it", k, factor.coefficients) + factor.mean
    prior_mean = np.broadcast_to(factor.mean, mean.shape)
    if not with_variance:
        return Prediction(mean, np.empty(0), np.empty(0), prior_mean)
    unexplained = None
    if factor.terms is not None and terms is not None:
        product = np.matmul if len(X) == 1 else multiply_tiles
        unexplained = terms - product(k, factor.terms.coefficients) - factor.terms.mean
    prior = np.maximum(signal.diag(X), PRECISION.smallest_prior)
    if len(X) == 1:
        v = k
        multiply_vector(factor.whitener, v[0])
    else:
        v = _whiten(factor, k).T
    variance = prior - np.einsum("ij,ij->i", v, v, dtype=float)
    variance = np.maximum(variance, PRECISION.smallest_variance * prior)
    return Prediction(mean, variance, prior, prior_mean, unexplained)


def is_vector(expert: Expert, X: Array) -> bool:
    """Whether it does not show how products with the covariances of one row X (1, d) round.

    Other rows are filled up to a tile, whose products have the digits of any other.
    """
    if expert.factor.whitener.dtype != np.float64:
        return False
    return bool(expert.noise_variance >= PRECISION.vector_noise * expert.kernel.signal.diag(X)[0])


def leave_one_out(expert: Expert, positions: IndexArray) -> Prediction:
    """The posterior at rows that the expert knows, each left out.

    The prediction of the expert without that row, with the same hyperparameters, is
    y_i - (K^-1 (y - mean))_i / (K^-1)_ii and 1 / (K^-1)_ii less the noise. Where the prior mean
    was estimated, it is estimated again without the row: K^-1 less its projection on the
    constant takes the place of K^-1 in the mean. The terms of a trend are treated as targets.

    Parameters
    ----------
    expert : Expert
    positions : ndarray of shape (N,)
        Places in `expert.rows`.
    """
    n, factor = len(expert.X), expert.factor
    W = factor.whitener[:n, :n]
    columns = W[:, positions].astype(float)
    precision = np.einsum("ij,ij->j", columns, columns)
    coefficients = factor.coefficients[positions]
    curvature, prior_mean = precision, np.broadcast_to(factor.mean, coefficients.shape)
    known = np.ones(len(positions), dtype=bool)
    if expert.constant_mean:
        one = W.sum(axis=1, dtype=float)
        share = one @ columns / precision
        rest = one @ one - share**2 * precision
        # Without its only row an expert knows the mean of the normalised target, 0.
        known = rest > PRECISION.smallest_variance * (one @ one)
        rest = np.where(known, rest, 1.0)
        curvature = np.where(known, precision * (rest / (one @ one)), 1.0)
        without = factor.mean - (share / rest)[:, None] * coefficients
        prior_mean = np.where(known[:, None], without, 0.0)
    mean = expert.Y[positions] - coefficients / curvature[:, None]
    mean = np.where(known[:, None], mean, 0.0)
    signal, spread = expert.kernel.signal, some_of(expert.spread, positions)
    noise = noise_of(expert.noise_variance, expert.alpha[positions], spread)
    prior = np.maximum(signal.diag(expert.X[positions]), PRECISION.smallest_prior)
    variance = 1 / precision - noise - factor.jitter
    variance = np.clip(variance, PRECISION.smallest_variance * prior, prior)
    unexplained = None
    if factor.terms is not None:
        unexplained = factor.terms.coefficients[positions] / curvature[:, None]
    return Prediction(mean, variance, prior, prior_mean, unexplained)


def smoothing_weights(expert: Expert, X: Array, left_out: IndexArray | None) -> Array:
    """c = K^-1 k(x): the mean at x is that of the prior plus c'(y - mean). (N, n)

    For a row that is to be left out, c_j = -(K^-1)_ji / (K^-1)_ii, and 0 for the row itself.
    """
    n = len(expert.X)
    W = expert.whitener[:n, :n]
    weights = (expert.kernel.signal(X, expert.X) @ W.T) @ W
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


def posterior_covariance(expert: Expert, X: Array, terms: Array | None = None) -> Array:
    """Latent posterior covariance of the rows of X: (N, N), where the trend has terms (N, r)."""
    factor, signal = expert.factor, expert.kernel.signal
    k = signal(X, _padded_rows(expert))
    unexplained = None
    if factor.terms is not None and terms is not None:
        unexplained = terms - k @ factor.terms.coefficients - factor.terms.mean
    v = _whiten(factor, k).astype(float)
    covariance = signal(X) - v.T @ v
    if unexplained is not None:
        covariance += unexplained @ unexplained.T
    diagonal = np.einsum("ii->i", covariance)
    prior = np.maximum(signal.diag(X), PRECISION.smallest_prior)
    np.maximum(diagonal, PRECISION.smallest_variance * prior, out=diagonal)
    return covariance


def _padded_rows(expert: Expert) -> Array:
    """The expert's rows, and copies of the first for those that pad its whitener."""
    missing = -len(expert.X) % PADDING
    return np.concatenate([expert.X, expert.X[:1].repeat(missing, axis=0)])


def _whiten(factor: Factor, k: Array) -> Array:
    """L^-1 k' for the covariances k of shape (N, n), which it may overwrite: (n, N)."""
    k = k.astype(factor.whitener.dtype, copy=False)
    multiply_triangle(factor.whitener, k.T)
    return k.T


class Spans(Sequence[IndexArray]):
    """Parts of rows that lie one after the other; `bounds` (M + 1,) says where each begins."""

    def __init__(self, bounds: IndexArray) -> None:
        self.bounds = bounds

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, m: Any) -> Any:
        if not 0 <= m < len(self):
            raise IndexError(m)
        return self.between(self.bounds[m], self.bounds[m + 1])

    def between(self, start: int, end: int) -> IndexArray:
        """Rows of all parts, one after the other, from one place to another."""
        return np.arange(start, end)

    @property
    def flat(self) -> IndexArray:
        """Rows of all parts."""
        return self.between(0, self.bounds[-1])


class Slices(Spans):
    """Parts whose rows lie one after the other in an array of row numbers."""

    def __init__(self, rows: IndexArray, bounds: IndexArray) -> None:
        super().__init__(bounds)
        self.rows = rows

    def between(self, start: int, end: int) -> IndexArray:
        return self.rows[start:end]


def in_one(parts: Sequence[IndexArray]) -> Spans:
    """The parts as pieces of one array, if they are not yet."""
    if isinstance(parts, Spans):
        return parts
    bounds = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return Slices(np.concatenate(parts), bounds)


class KernelFits(Sequence[KernelFit]):
    """Kernels of the experts, kept as numbers.

    Parameters
    ----------
    kernel : NoisyKernel
        Whose form all of them have.
    values : ndarray of shape (M, p)
        Hyperparameters.
    counts : ndarray of shape (M,)
        Evaluations of the likelihood that each fit took.
    """

    def __init__(self, kernel: NoisyKernel, values: Array, counts: AnyArray) -> None:
        self.kernel, self.values, self.counts = kernel, values, counts
        same = len(values) > 0 and bool(np.all(values == values[0]))
        self._shared = kernel.with_values(values[0].tolist()) if same else None

    @classmethod
    def of(cls, fits: Sequence[KernelFit]) -> KernelFits:
        """The numbers of fits, whose kernels have one form."""
        values = np.array([one.kernel.values for one in fits])
        return cls(fits[0].kernel, values, np.array([one.n_evaluations for one in fits]))

    def at(self, places: IndexArray) -> KernelFits:
        """The kernels at some places."""
        return KernelFits(self.kernel, self.values[places], self.counts[places])

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, m: Any) -> Any:
        kernel = self._shared or self.kernel.with_values(self.values[m].tolist())
        return KernelFit(kernel, int(self.counts[m]))


class Experts(Sequence[Expert]):
    """All experts of a committee: rows and numbers, from which each is made when first needed.

    Those that were made while they were fitted stay; of others a bounded number of rows is kept.

    Parameters
    ----------
    data : TrainingData
        All rows; they may be memory-mapped.
    parts : sequence of index arrays
    neighbours : sequence of index arrays
        Rows of others that the expert of each part knows as well.
    fits : KernelFits
    sizes : ndarray of shape (M,)
        How many rows each expert knows.
    """

    def __init__(
        self,
        data: TrainingData,
        parts: Sequence[IndexArray],
        neighbours: Sequence[IndexArray],
        fits: KernelFits,
        sizes: AnyArray,
    ) -> None:
        self.data, self.parts, self.neighbours = data, parts, neighbours
        self.fits, self.sizes = fits, sizes
        self.are_made_later = True
        self._factors = Factors()
        self._known: dict[int, Expert] = {}
        self._most = max(1, int(MEMORY.expert_rows * len(parts) / max(1, int(sizes.sum()))))

    @classmethod
    def made(cls, data: TrainingData, experts: Sequence[Expert]) -> Experts:
        """Experts that there are already."""
        store = cls(
            data,
            [one.indices for one in experts],
            [one.neighbours for one in experts],
            KernelFits.of([KernelFit(one.kernel, one.n_evaluations) for one in experts]),
            np.array([len(one.X) for one in experts]),
        )
        store.are_made_later, store._known = False, dict(enumerate(experts))
        return store

    @property
    def known(self) -> dict[int, Expert]:
        """Those that are made, by their place."""
        return dict(self._known)

    def changed(self, known: dict[int, Expert], *rows: Any) -> Experts:
        """The experts of other rows or parts, as `Experts` takes them; some are known."""
        experts = Experts(*rows)
        experts.are_made_later, experts._known = self.are_made_later, known
        experts._factors = self._factors
        return experts

    def renumbered(self, numbers: IndexArray) -> Experts:
        """The same experts, which there are already, with these new numbers (n,) of the rows."""
        experts = [one.renumbered(numbers) for one in self]
        return Experts.made(self.data.some(np.argsort(numbers)), experts)

    def __len__(self) -> int:
        return len(self.parts)

    @overload
    def __getitem__(self, m: int) -> Expert: ...
    @overload
    def __getitem__(self, m: slice) -> tuple[Expert, ...]: ...
    def __getitem__(self, m: Any) -> Any:
        if isinstance(m, slice):
            return tuple(self[i] for i in range(*m.indices(len(self))))
        place = m + len(self) if m < 0 else m
        kept = self._known
        known = kept.get(place)
        if known is not None:
            return known
        if not 0 <= place < len(self):
            raise IndexError(m)
        expert = condition_later(
            self.data,
            self.parts[place],
            self.neighbours[place],
            self.fits[place],
            self._factors,
        )
        if len(kept) >= self._most:  # others, which are in use, live on where they are used
            kept = self._known = {}
        return kept.setdefault(place, expert)  # of two threads one wins

    def __iter__(self) -> Iterator[Expert]:
        return (self[m] for m in range(len(self)))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": {}} if self.are_made_later else self.__dict__
