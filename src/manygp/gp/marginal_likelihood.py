"""Log marginal likelihood of one expert, its gradient and its maximum, on reused workspaces."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cython_blas, cython_lapack
from scipy.optimize import minimize

from manygp.arrays import Array, IndexArray
from manygp.gp.trend import Trend
from manygp.kernels.base import TILE, Kernel, NoisyKernel, Workspace

# Triangles are inverted by halves down to this size: products are faster than LAPACK's trtri.
SMALLEST_TRIANGLE = 64

_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _routine(module: Any, name: str) -> Callable[..., None]:
    capsule = module.__pyx_capi__[name]
    signature = _name(capsule)
    arguments = [ctypes.c_void_p] * (signature.count(b",") + 1)
    return ctypes.CFUNCTYPE(None, *arguments)(_pointer(capsule, signature))


_dpotrf = _routine(cython_lapack, "dpotrf")
_dpotrs = _routine(cython_lapack, "dpotrs")
_dtrtri = _routine(cython_lapack, "dtrtri")
_dlauum = _routine(cython_lapack, "dlauum")
_dlaset = _routine(cython_lapack, "dlaset")
_dtrmm = _routine(cython_blas, "dtrmm")
_strmm = _routine(cython_blas, "strmm")
_dtrmv = _routine(cython_blas, "dtrmv")
_dsyrk = _routine(cython_blas, "dsyrk")
_wide = b"int64" in _name(cython_lapack.__pyx_capi__["dpotrf"])
_single_one = ctypes.byref(ctypes.c_float(1.0))
_integer: Any = ctypes.c_int64 if _wide else ctypes.c_int


@lru_cache(maxsize=None, typed=True)
def _number(value: int | float) -> Any:
    """Numbers are passed by reference; they are never written to, so threads may share them."""
    return _integer(value) if isinstance(value, int) else ctypes.c_double(value)


def _by_reference(*values: int | float) -> list[Any]:
    return [ctypes.byref(_number(value)) for value in values]


def _matrix(A: Array, dtype: Any = np.float64) -> tuple[int, Any]:
    """Address and leading dimension."""
    if A.strides[0] != A.itemsize or A.dtype != dtype:
        raise ValueError(f"a {np.dtype(dtype)} matrix in Fortran order is needed")
    return A.ctypes.data, ctypes.byref(_number(max(1, A.strides[1] // A.itemsize)))


def cholesky(A: Array) -> bool:
    """Overwrite the lower triangle with the Cholesky factor; False if there is none."""
    info = _integer(0)
    (n,) = _by_reference(len(A))
    _dpotrf(b"L", n, *_matrix(A), ctypes.byref(info))
    return info.value == 0


def solve_cholesky(L: Array, B: Array) -> None:
    """Overwrite B with (L L')^-1 B."""
    n, k = _by_reference(*B.shape)
    _dpotrs(b"L", n, k, *_matrix(L), *_matrix(B), ctypes.byref(_integer(0)))


def invert_triangle(L: Array) -> None:
    """Overwrite the lower triangle with its inverse."""
    address, _ = _matrix(L)
    _invert(address, max(1, L.strides[1] // L.itemsize), len(L))


def _invert(address: int, leading: int, n: int) -> None:
    """The same of n rows at an address: slices of arrays cost as much as small products."""
    info, size, stride = ctypes.byref(_integer(0)), *_by_reference(n, leading)
    if n <= SMALLEST_TRIANGLE:
        _dtrtri(b"L", b"N", size, address, stride, info)
        return
    h = n // 2
    corner, bottom = address + 8 * h, address + 8 * h * (leading + 1)
    _invert(address, leading, h)
    _invert(bottom, leading, n - h)
    rows, columns, one, minus = _by_reference(n - h, h, 1.0, -1.0)
    triangle = b"L", b"N", b"N", rows, columns
    _dtrmm(b"R", *triangle, one, address, stride, corner, stride)
    _dtrmm(b"L", *triangle, minus, bottom, stride, corner, stride)


def multiply_triangle(L: Array, B: Array) -> None:
    """Overwrite B with L B; L is lower triangular, and both are float64 or both float32."""
    m, k, one = _by_reference(*B.shape, 1.0)
    if L.dtype == np.float32:
        single = _matrix(L, np.float32), _matrix(B, np.float32)
        _strmm(b"L", b"L", b"N", b"N", m, k, _single_one, *single[0], *single[1])
    else:
        _dtrmm(b"L", b"L", b"N", b"N", m, k, one, *_matrix(L), *_matrix(B))


def multiply_vector(L: Array, b: Array) -> None:
    """Overwrite the vector b with L b: `multiply_triangle` of one column, but twice as fast."""
    if not b.flags.c_contiguous or b.dtype != np.float64:
        raise ValueError("a contiguous float64 vector is needed")
    n, step = _by_reference(len(b), 1)
    _dtrmv(b"L", b"N", b"N", n, *_matrix(L), b.ctypes.data, step)


def multiply_transposed(L: Array) -> None:
    """Overwrite the lower triangle with that of L' L."""
    _dlauum(b"L", *_by_reference(len(L)), *_matrix(L), ctypes.byref(_integer(0)))


def add_outer(A: Array, C: Array, scale: float) -> None:
    """Overwrite the lower triangle of C with that of A A' + scale C."""
    n, k, one, beta = _by_reference(*A.shape, 1.0, scale)
    _dsyrk(b"L", b"N", n, k, one, *_matrix(A), beta, *_matrix(C))


def clear_upper(A: Array) -> None:
    """Set everything above the diagonal to zero."""
    if len(A) > 1:
        m, k, zero = _by_reference(len(A) - 1, len(A) - 1, 0.0)
        _dlaset(b"U", m, k, zero, zero, *_matrix(A[:-1, 1:]))


def multiply_tiles(A: Array, B: Array) -> Array:
    """A @ B, by a fixed number of rows at a time: the digits of a row do not depend on others."""
    n = len(A)
    filled = A if n % TILE == 0 else A[np.minimum(np.arange(n + -n % TILE), n - 1)]
    tiles = filled.reshape(-1, TILE, A.shape[1])
    return np.matmul(tiles, B).reshape(-1, B.shape[1])[:n]


PADDING = 8
# Rows of a covariance matrix that are computed at a time, without those left of its diagonal.
FILLED_ROWS = 128
# Tried in turn until the Cholesky factorisation succeeds, relative to the mean prior variance.
JITTERS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4)
# Rows of a likelihood in which each group has one row, at least: fewer tell nothing of a kernel.
FEWEST_OF_GROUPS = 10
# scikit-learn's name of the optimiser.
L_BFGS = "fmin_l_bfgs_b"


class NotPositiveDefiniteError(np.linalg.LinAlgError):
    """No jitter of the ladder makes the covariance matrix positive definite."""


def psd_root(A: Array) -> Array:
    """R with R R' = A, positive semi-definite but for rounding, with the least jitter it needs."""
    for relative in JITTERS:
        try:
            return np.linalg.cholesky(A + relative * np.einsum("ii->i", A).mean() * np.eye(len(A)))
        except np.linalg.LinAlgError:
            continue
    values, vectors = np.linalg.eigh(A)
    root: Array = vectors * np.sqrt(np.maximum(values, 0.0))
    return root


class Posterior(NamedTuple):
    """Arrays that predictions from n rows with t targets need.

    Attributes
    ----------
    log_likelihood : float
    mean : ndarray of shape (t,)
        Constant prior mean.
    whitener : ndarray of shape (n', n')
        Inverse of the lower Cholesky factor of the covariance of y, in Fortran order: a
        triangular product is twice as fast as a triangular solve. Zeros fill it up to a
        multiple of PADDING rows: BLAS then treats all columns of a product alike.
    coefficients : ndarray of shape (n', t)
        K^-1 (y - mean), filled up in the same way.
    jitter : float
        Variance that had to be added to the diagonal.
    terms : Terms or None
        How the expert explains the terms of a trend, if there is one.
    """

    log_likelihood: float
    mean: Array
    whitener: Array
    coefficients: Array
    jitter: float
    terms: Terms | None = None


class Terms(NamedTuple):
    """The same for r terms of a trend, as if they were targets.

    Attributes
    ----------
    mean : ndarray of shape (r,)
    coefficients : ndarray of shape (n', r)
    """

    mean: Array
    coefficients: Array


class Likelihood:
    """log p(y | X, theta) of a kernel on fixed rows.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    Y : ndarray of shape (n, t)
        Targets, independent given the kernel, which they share.
    alpha : ndarray of shape (n,)
        Known noise variance of each row, added to the kernel's White.
    constant_mean : bool
        Whether the prior mean is the constant of highest likelihood instead of 0.
    terms : ndarray of shape (n, r), optional
        Terms of a trend.
    spread : ndarray of shape (n,), optional
        See `TrainingData`.
    """

    def __init__(
        self,
        X: Array,
        Y: Array,
        alpha: Array,
        constant_mean: bool,
        terms: Array | None = None,
        spread: Array | None = None,
    ) -> None:
        self.X, self.Y, self.alpha, self.spread = X, Y, alpha, spread
        self.constant_mean, self.terms = constant_mean, terms
        self._work = Workspace()

    def posterior(self, kernel: NoisyKernel) -> Posterior:
        """Condition on the rows at the kernel's hyperparameters."""
        n = len(self.X)
        n_padded = -(-n // PADDING) * PADDING
        whitener = np.zeros((n_padded, n_padded), order="F")
        factor = whitener[:n, :n]
        jitter = self._factorise(lambda: self._fill(factor, kernel.signal), factor, kernel)
        mean, coefficients = self._solve(factor, self.Y)
        value = self._value(factor, mean, coefficients)
        terms = None
        if self.terms is not None:
            term_mean, solved = self._solve(factor, self.terms)
            terms = Terms(term_mean, _filled_up(solved, n_padded))
        invert_triangle(factor)
        clear_upper(whitener)
        return Posterior(value, mean, whitener, _filled_up(coefficients, n_padded), jitter, terms)

    def value_and_gradient(self, kernel: NoisyKernel) -> tuple[float, Array]:
        """log p(y | X, theta) and its derivative with respect to kernel.theta, shape (p,)."""
        self._work.reset((len(self.X), len(self.X)))
        signal, pullback = kernel.signal.vjp(self.X, self._work)
        K = self._work.take()
        # K is symmetric, so its transpose is K in LAPACK's order without a copy.
        self._factorise(lambda: np.copyto(K, signal), K.T, kernel)
        mean, coefficients = self._solve(K.T, self.Y)
        value = self._value(K.T, mean, coefficients)
        # dL/dK = (a a' - t K^-1) / 2 is symmetric: its lower triangle doubled, halved diagonal.
        K_bar = K.T
        invert_triangle(K_bar)
        multiply_transposed(K_bar)
        add_outer(coefficients, K_bar, scale=-float(self.Y.shape[1]))
        clear_upper(K_bar)
        diagonal = np.einsum("ii->i", K_bar)
        diagonal *= 0.5
        gradient = pullback(K_bar.T)
        if kernel.noise.free:
            noise = diagonal if self.spread is None else diagonal * self.spread
            gradient = np.append(gradient, kernel.noise_variance * noise.sum())
        return value, gradient

    def _fill(self, K: Array, signal: Kernel) -> None:
        """Overwrite the lower triangle of K, in Fortran order, with the signal's covariance."""
        n = len(self.X)
        for start in range(0, n, FILLED_ROWS):
            end = min(n, start + FILLED_ROWS)
            self._work.reset((end - start, n - start))
            K.T[start:end, start:] = signal.cross(self.X[start:end], self.X[start:], self._work)
        np.einsum("ii->i", K)[:] = signal.diag(self.X)

    def _factorise(self, fill: Callable[[], None], K: Array, kernel: NoisyKernel) -> float:
        """Overwrite K, after `fill` and with noise added, with its factor; returns the jitter."""
        noise = noise_of(kernel.noise_variance, self.alpha, self.spread)
        for relative in JITTERS:
            fill()
            diagonal = np.einsum("ii->i", K)
            jitter = relative * float(diagonal.mean())
            diagonal += noise + jitter
            if cholesky(K) and np.isfinite(K[-1, -1]):
                return jitter
        raise NotPositiveDefiniteError("the covariance matrix is not positive definite")

    def _solve(self, factor: Array, Y: Array) -> tuple[Array, Array]:
        """Prior mean (t,) of targets Y (n, t), and K^-1 (y - mean) of shape (n, t)."""
        n, t = Y.shape
        if self.constant_mean:
            # Generalised least squares: the constant that maximises the likelihood.
            solved = np.ones((n, t + 1), order="F")
            solved[:, :t] = Y
            solve_cholesky(factor, solved)
            coefficients, ones = solved[:, :t], solved[:, t]
            mean = ones @ Y / ones.sum()
            coefficients -= np.outer(ones, mean)
        else:
            mean = np.zeros(t)
            coefficients = Y.copy(order="F")
            solve_cholesky(factor, coefficients)
        return mean, coefficients

    def _value(self, factor: Array, mean: Array, coefficients: Array) -> float:
        """log p(y)."""
        n, t = self.Y.shape
        log_determinant = 2 * np.log(np.einsum("ii->i", factor)).sum()
        fit = np.einsum("ij,ij->", self.Y - mean, coefficients)
        return float(-0.5 * (fit + t * (log_determinant + n * np.log(2 * np.pi))))


def _filled_up(array: Array, n_rows: int) -> Array:
    """The same rows, and zeros up to a number of rows."""
    filled = np.zeros((n_rows, array.shape[1]))
    filled[: len(array)] = array
    return filled


def noise_of(learned: float, alpha: Array, spread: Array | None) -> Array:
    """Noise variances (n,) of rows: the learned one times the row's own `spread`, and `alpha`."""
    return alpha + (learned if spread is None else learned * spread)


def some_of(array: Array | None, rows: IndexArray) -> Array | None:
    """Some rows of an array, if there is one."""
    return None if array is None else array[rows]


class TrainingData(NamedTuple):
    """Normalised rows, and what is known about them before any fit.

    Attributes
    ----------
    X, residuals, alpha : ndarrays of shape (n, d), (n, t), (n,)
        Inputs, what the trend leaves of the targets, which experts learn, and known noise
        variances.
    constant_mean : bool
        See `Likelihood`.
    trend : Trend or None
        What a trend says about the rows.
    spread : ndarray of shape (n,), or None
        What the learned noise variance is multiplied with: one over the weight of the row. None
        if all weigh the same. Rows that are predicted have a weight of 1.
    groups : ndarray of shape (n,), or None
        Rows of the same number are alike in ways that a new group's are not: kernels take that
        for noise. See `likelihoods`.
    """

    X: Array
    residuals: Array
    alpha: Array
    constant_mean: bool
    trend: Trend | None = None
    spread: Array | None = None
    groups: IndexArray | None = None

    @property
    def mean_weight(self) -> float:
        """The mean of the weights of the rows."""
        return 1.0 if self.spread is None else float(np.mean(1 / self.spread))

    @property
    def targets(self) -> Array:
        """The whole targets: (n, t)."""
        return self.residuals if self.trend is None else self.residuals + self.trend.fitted

    def targets_of(self, rows: IndexArray) -> Array:
        """The whole targets of some rows: (N, t)."""
        residuals = self.residuals[rows]
        return residuals if self.trend is None else residuals + self.trend.fitted[rows]

    def some(self, rows: IndexArray) -> TrainingData:
        """Some of the rows."""
        trend = None if self.trend is None else self.trend.some(rows)
        known = self.X[rows], self.residuals[rows], self.alpha[rows], self.constant_mean
        groups = None if self.groups is None else self.groups[rows]
        return TrainingData(*known, trend, some_of(self.spread, rows), groups)

    def likelihood(self, rows: IndexArray) -> Likelihood:
        """The likelihood of some of the rows."""
        terms = None
        if self.trend is not None and self.trend.kriging is not None:
            terms = self.trend.kriging.basis[rows]
        known = self.X[rows], self.residuals[rows], self.alpha[rows], self.constant_mean
        return Likelihood(*known, terms, some_of(self.spread, rows))

    def likelihoods(self, rows: IndexArray) -> list[Likelihood]:
        """Likelihoods of some of the rows whose sum teaches a kernel.

        It is one, or several in each of which a group has one row: what the rows of a group have
        in common then looks like noise, as it does where the next group is met.
        """
        if self.groups is None:
            return [self.likelihood(rows)]
        numbers = self.groups[rows]
        order = np.argsort(numbers, kind="stable")
        first = np.searchsorted(numbers[order], numbers[order])
        turn = np.empty(len(rows), dtype=np.intp)
        turn[order] = np.arange(len(rows)) - first
        sizes = np.bincount(turn)
        kept = np.flatnonzero(sizes >= min(FEWEST_OF_GROUPS, sizes[0]))
        return [self.likelihood(rows[turn == one]) for one in kept]


class KernelFit(NamedTuple):
    """A kernel with fitted hyperparameters, and the evaluations of the likelihood that it took."""

    kernel: NoisyKernel
    n_evaluations: int = 0


class Objective(NamedTuple):
    """Objective that fits of hyperparameters share.

    Attributes
    ----------
    kernel : NoisyKernel
        Centre of the prior: the shared kernel.
    precision : ndarray of shape (p,)
        Precision of the prior of each element of theta; 0 for none, infinity to hold it.
    tolerance : float
        Relative improvement at which to stop.
    optimizer : None, "fmin_l_bfgs_b" or callable
        None leaves hyperparameters as they are. A callable is one of scikit-learn's kind.
    is_warm : bool
        Whether starts are near to the optimum. L-BFGS then begins with a short step, and the
        tolerance is that of the improvement for every two rows.
    """

    kernel: NoisyKernel
    precision: Array
    tolerance: float
    optimizer: Any = L_BFGS
    is_warm: bool = False


def maximise(
    likelihoods: list[Likelihood],
    objective: Objective,
    starts: Array,
    evaluate: Callable[..., Iterable[tuple[float, Array]]] = map,
) -> KernelFit:
    """The kernel of highest summed likelihood, or posterior where theta has a Gaussian prior.

    Parameters
    ----------
    likelihoods : list of Likelihood
        Blocks of rows that share the hyperparameters.
    objective : Objective
    starts : ndarray of shape (r, p)
        Values of theta to start from.
    evaluate : callable
        `map`, or a parallel one that keeps the order.
    """
    if objective.optimizer is None or np.isinf(objective.precision).all():
        return KernelFit(objective.kernel, 0)
    search = _Search(likelihoods, objective, evaluate)
    climb = search.climb_by_own if callable(objective.optimizer) else search.climb
    for start in np.clip(starts, *search.bounds.T):
        climb(start)
    if search.best == -np.inf:  # no start has a likelihood: all ones, in the normalised units
        climb(np.clip(np.zeros(len(search.centre)), *search.bounds.T))
    return KernelFit(objective.kernel.with_theta(search.best_theta), search.n_evaluations)


class _Search:
    """The log posterior as a function of theta, and the best theta so far."""

    def __init__(
        self,
        likelihoods: list[Likelihood],
        objective: Objective,
        evaluate: Callable[..., Iterable[tuple[float, Array]]],
    ) -> None:
        self.likelihoods, self.objective, self.evaluate = likelihoods, objective, evaluate
        held = np.isinf(objective.precision)
        self.bounds = objective.kernel.bounds
        self.centre = np.clip(objective.kernel.theta, *self.bounds.T)
        self.bounds[held] = self.centre[held, None]
        self.precision = np.where(held, 0.0, objective.precision)
        self.best, self.best_theta, self.n_evaluations = -np.inf, self.centre, 0

    def __call__(self, theta: Array) -> tuple[float, Array]:
        """Minus the log posterior, and its derivative."""
        self.n_evaluations += 1
        force = self.precision * (theta - self.centre)
        value, gradient = -0.5 * float(force @ (theta - self.centre)), -force
        candidate = self.objective.kernel.with_theta(theta)
        try:
            for v, g in self.evaluate(
                lambda one: one.value_and_gradient(candidate), self.likelihoods
            ):
                value, gradient = value + v, gradient + g
        except NotPositiveDefiniteError:
            value = -np.inf
        if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
            # Worse than the best, but not so much that the line search would step back to it.
            worse = 1e100 if self.best == -np.inf else 1 + abs(self.best) - self.best
            return worse, np.zeros_like(theta)
        if value > self.best:
            self.best, self.best_theta = value, theta.copy()
        return -value, -gradient

    def climb(self, start: Array) -> None:
        """By L-BFGS, whose first step is as long as the slope.

        A log variance that all targets tell of has a curvature of half their number. In this unit
        the first step from a warm start is about Newton's; else it leads to the bounds.
        """
        scale = 1.0
        if self.objective.is_warm:
            scale = max(1.0, 0.5 * sum(one.Y.size for one in self.likelihoods))

        def loss(theta: Array) -> tuple[float, Array]:
            value, gradient = self(theta)
            return value / scale, gradient / scale

        options = {"ftol": self.objective.tolerance}
        minimize(loss, start, jac=True, method="L-BFGS-B", bounds=self.bounds, options=options)

    def climb_by_own(self, start: Array) -> None:
        """By an optimizer of the user's: what it returns counts, not what it has tried."""
        best = self.best, self.best_theta

        def minus(theta: Any, eval_gradient: Any = True) -> Any:  # scikit-learn's signature
            loss = self(np.asarray(theta, dtype=float))
            return loss if eval_gradient else loss[0]

        theta, value = self.objective.optimizer(minus, start, bounds=self.bounds)
        self.best, self.best_theta = best
        if -float(value) > self.best:
            self.best, self.best_theta = -float(value), np.asarray(theta, dtype=float)
