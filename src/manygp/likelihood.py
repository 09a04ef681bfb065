"""Log marginal likelihood of one expert and its gradient, on reused workspaces."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import blas, lapack

from manygp.kernel import Pullback, Sum, Workspace
from manygp.types import Array

# Tried in turn until the Cholesky factorisation succeeds, relative to the mean prior variance.
JITTERS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4)
SMALLEST_BLOCK = 64


class NotPositiveDefiniteError(ValueError):
    """No jitter of the ladder makes the covariance matrix positive definite."""


class Posterior(NamedTuple):
    """What is needed to predict from n rows with t targets.

    Attributes
    ----------
    log_likelihood : float
    mean : ndarray of shape (t,)
        Constant prior mean.
    factor : ndarray of shape (n, n)
        Lower Cholesky factor of the covariance of y, in Fortran order.
    coefficients : ndarray of shape (n, t)
        K^-1 (y - mean).
    jitter : float
        Variance that had to be added to the diagonal.
    """

    log_likelihood: float
    mean: Array
    factor: Array
    coefficients: Array
    jitter: float


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
        """Factorise at the kernel's hyperparameters; the factor is the caller's to keep."""
        found = self._condition(kernel)[0]
        return found._replace(factor=found.factor.copy(order="F"))

    def value_and_gradient(self, kernel: Sum) -> tuple[float, Array]:
        """log p(y | X, theta) and its derivative with respect to kernel.theta, shape (p,)."""
        found, pullback = self._condition(kernel)
        t = self.Y.shape[1]
        # dL/dK = (a a' - t K^-1) / 2 is symmetric: its lower triangle doubled, halved diagonal.
        inverse = invert_from_factor(found.factor)
        a = np.asfortranarray(found.coefficients)
        K_bar = blas.dsyrk(1.0, a, beta=-t, c=inverse, lower=1, overwrite_c=1)
        diagonal = np.einsum("ii->i", K_bar)
        diagonal *= 0.5
        gradient = pullback(K_bar.T)
        if kernel.right.free:
            noise = kernel.right.diag(self.X[:1])[0] * diagonal.sum()
            gradient = np.append(gradient, noise)
        return found.log_likelihood, gradient

    def _condition(self, kernel: Sum) -> tuple[Posterior, Pullback]:
        self._work.reset()
        signal, pullback = kernel.left.vjp(self.X, self._work)
        noise = self.alpha + kernel.right.diag(self.X)
        factor, jitter = self._factorise(signal, noise)
        n, t = self.Y.shape
        if self.constant_mean:
            # Generalised least squares: the constant that maximises the likelihood.
            right = np.column_stack([self.Y, np.ones(n)])
            solved = lapack.dpotrs(factor, right, lower=1)[0]
            mean = solved[:, -1] @ self.Y / solved[:, -1].sum()
            coefficients = solved[:, :-1] - np.outer(solved[:, -1], mean)
        else:
            mean = np.zeros(t)
            coefficients = lapack.dpotrs(factor, self.Y, lower=1)[0]
        log_determinant = 2 * np.log(np.einsum("ii->i", factor)).sum()
        fit = np.einsum("ij,ij->", self.Y - mean, coefficients)
        value = -0.5 * (fit + t * (log_determinant + n * np.log(2 * np.pi)))
        return Posterior(float(value), mean, factor, coefficients, jitter), pullback

    def _factorise(self, signal: Array, noise: Array) -> tuple[Array, float]:
        K = self._work.take()
        for relative in JITTERS:
            np.copyto(K, signal)
            diagonal = np.einsum("ii->i", K)
            jitter = relative * float(diagonal.mean())
            diagonal += noise + jitter
            # K is symmetric, so its transpose is K in LAPACK's order without a copy.
            factor, failed = lapack.dpotrf(K.T, lower=1, clean=1, overwrite_a=1)
            if failed == 0 and np.isfinite(factor[-1, -1]):
                return factor, jitter
        raise NotPositiveDefiniteError("the covariance matrix is not positive definite")


def invert_from_factor(L: Array) -> Array:
    """Lower triangle of (L L')^-1, with zeros above it, overwriting L."""
    return lapack.dlauum(_invert_triangle(L), lower=1, overwrite_c=1)[0]


def _invert_triangle(L: Array) -> Array:
    """L^-1 by halves: matrix products do the work, where LAPACK's trtri is slow."""
    n = len(L)
    if n <= SMALLEST_BLOCK:
        return lapack.dtrtri(L, lower=1)[0]
    h = n // 2
    top, bottom = _invert_triangle(L[:h, :h]), _invert_triangle(L[h:, h:])
    L[h:, :h] = -(bottom @ (L[h:, :h] @ top))
    L[:h, :h], L[h:, h:] = top, bottom
    return L
