"""Log marginal likelihood of one expert and its gradient, on reused workspaces."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manygp import linalg
from manygp.kernel import Pullback, Sum, Workspace
from manygp.types import Array, IndexArray

PADDING = 8
# Tried in turn until the Cholesky factorisation succeeds, relative to the mean prior variance.
JITTERS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4)


class NotPositiveDefiniteError(ValueError):
    """No jitter of the ladder makes the covariance matrix positive definite."""


def psd_root(A: Array) -> Array:
    """Lower Cholesky factor of a positive semi-definite matrix, with the least jitter it needs."""
    for relative in JITTERS:
        try:
            return np.linalg.cholesky(A + relative * np.einsum("ii->i", A).mean() * np.eye(len(A)))
        except np.linalg.LinAlgError:
            continue
    raise NotPositiveDefiniteError("the covariance matrix is not positive semi-definite")


class Posterior(NamedTuple):
    """What is needed to predict from n rows with t targets.

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
    """

    log_likelihood: float
    mean: Array
    whitener: Array
    coefficients: Array
    jitter: float


class _Conditioned(NamedTuple):
    """`Posterior` before its factor is inverted, and the pullback of the signal kernel."""

    log_likelihood: float
    mean: Array
    factor: Array
    coefficients: Array
    jitter: float
    pullback: Pullback


class Likelihood:
    """log p(y | X, theta) of a kernel Sum(signal, White) on fixed rows.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    Y : ndarray of shape (n, t)
        Targets, independent given the kernel, which they share.
    alpha : ndarray of shape (n,)
        Known noise variance of each row, added to the kernel's White.
    constant_mean : bool
        Whether the prior mean is the constant of highest likelihood instead of 0.
    """

    def __init__(self, X: Array, Y: Array, alpha: Array, constant_mean: bool) -> None:
        self.X, self.Y, self.alpha = X, Y, alpha
        self.constant_mean = constant_mean
        self._work = Workspace((len(X), len(X)))

    def posterior(self, kernel: Sum) -> Posterior:
        """Condition on the rows at the kernel's hyperparameters."""
        value, mean, factor, coefficients, jitter, _ = self._condition(kernel)
        n, t = coefficients.shape
        n_padded = -(-n // PADDING) * PADDING
        whitener = np.zeros((n_padded, n_padded), order="F")
        whitener[:n, :n] = factor
        linalg.invert_triangle(whitener[:n, :n])
        linalg.clear_upper(whitener)
        padded = np.zeros((n_padded, t))
        padded[:n] = coefficients
        return Posterior(value, mean, whitener, padded, jitter)

    def value_and_gradient(self, kernel: Sum) -> tuple[float, Array]:
        """log p(y | X, theta) and its derivative with respect to kernel.theta, shape (p,)."""
        found = self._condition(kernel)
        t = self.Y.shape[1]
        # dL/dK = (a a' - t K^-1) / 2 is symmetric: its lower triangle doubled, halved diagonal.
        K_bar = found.factor
        linalg.invert_triangle(K_bar)
        linalg.multiply_transposed(K_bar)
        linalg.add_outer(found.coefficients, K_bar, scale=-float(t))
        linalg.clear_upper(K_bar)
        diagonal = np.einsum("ii->i", K_bar)
        diagonal *= 0.5
        gradient = found.pullback(K_bar.T)
        if kernel.right.free:
            noise = kernel.right.diag(self.X[:1])[0] * diagonal.sum()
            gradient = np.append(gradient, noise)
        return found.log_likelihood, gradient

    def _condition(self, kernel: Sum) -> _Conditioned:
        self._work.reset()
        signal, pullback = kernel.left.vjp(self.X, self._work)
        noise = self.alpha + kernel.right.diag(self.X)
        factor, jitter = self._factorise(signal, noise)
        n, t = self.Y.shape
        if self.constant_mean:
            # Generalised least squares: the constant that maximises the likelihood.
            solved = np.ones((n, t + 1), order="F")
            solved[:, :t] = self.Y
            linalg.solve_cholesky(factor, solved)
            coefficients, ones = solved[:, :t], solved[:, t]
            mean = ones @ self.Y / ones.sum()
            coefficients -= np.outer(ones, mean)
        else:
            mean = np.zeros(t)
            coefficients = self.Y.copy(order="F")
            linalg.solve_cholesky(factor, coefficients)
        log_determinant = 2 * np.log(np.einsum("ii->i", factor)).sum()
        fit = np.einsum("ij,ij->", self.Y - mean, coefficients)
        value = -0.5 * (fit + t * (log_determinant + n * np.log(2 * np.pi)))
        return _Conditioned(float(value), mean, factor, coefficients, jitter, pullback)

    def _factorise(self, signal: Array, noise: Array) -> tuple[Array, float]:
        K = self._work.take()
        for relative in JITTERS:
            np.copyto(K, signal)
            diagonal = np.einsum("ii->i", K)
            jitter = relative * float(diagonal.mean())
            diagonal += noise + jitter
            # K is symmetric, so its transpose is K in LAPACK's order without a copy.
            if linalg.cholesky(K.T) and np.isfinite(K[-1, -1]):
                return K.T, jitter
        raise NotPositiveDefiniteError("the covariance matrix is not positive definite")


class TrainingData(NamedTuple):
    """Normalised rows, and what is known about them before any fit.

    Attributes
    ----------
    X, Y, alpha : ndarrays of shape (n, d), (n, t), (n,)
        Inputs, targets and known noise variances.
    constant_mean : bool
        See `Likelihood`.
    """

    X: Array
    Y: Array
    alpha: Array
    constant_mean: bool

    def likelihood(self, rows: IndexArray) -> Likelihood:
        """Of some of the rows."""
        return Likelihood(self.X[rows], self.Y[rows], self.alpha[rows], self.constant_mean)
