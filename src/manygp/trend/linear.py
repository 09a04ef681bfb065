"""A trend that is linear in its coefficients, by generalised least squares.

The coefficients b have the prior N(0, I / precision). The rows of a part covary as its expert
says, those of different parts not at all: K is block-diagonal. Then, with the functions H of the
rows, b has the posterior covariance A^-1 = (H' K^-1 H + precision I)^-1 and mean A^-1 H' K^-1 y:
universal kriging by a committee. Sums over parts are all that it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from manygp.arrays import Array, IndexArray, read_only
from manygp.gp.likelihood import TrainingData
from manygp.gp.linalg import multiply_tiles
from manygp.gp.trend import Kriging, Trend, TrendAt
from manygp.kernels.base import NoisyKernel
from manygp.runtime.parallel import thread_map
from manygp.trend.terms import Basis

# Numbers of the functions of all rows, at most, that are kept for the experts: 80 MB.
MOST_NUMBERS = 1e7
# Training rows that tell how much a term varies, at most.
SIZE_ROWS = 4000


class Form(NamedTuple):
    """What a linear trend is made of.

    Attributes
    ----------
    name : str
    basis : Basis
    precision : float
        That of the coefficients' prior.
    """

    name: str
    basis: Basis
    precision: float


@dataclass(frozen=True, eq=False)
class LinearTrend:
    """A trend with known coefficients, and what is not known about them.

    Attributes
    ----------
    form : Form
    coefficients : ndarray of shape (p, t)
    root : ndarray of shape (p, p) or (0, p)
        L^-1, where L L' = A is the Cholesky factorisation of the coefficients' precision. It has
        no rows where so many have taught them that nothing is in doubt.
    sizes : ndarray of shape (T,)
        Variance of each term over the training rows.
    kriged : bool
        Whether the experts explain a part of the trend's terms.
    kernel : NoisyKernel
        That of the experts under which it was fitted.
    """

    form: Form
    coefficients: Array
    root: Array
    sizes: Array
    kriged: bool
    kernel: NoisyKernel

    @property
    def name(self) -> str:
        return self.form.name

    @property
    def explained(self) -> float:
        """The variance of the targets that is the trend's."""
        return float(self.sizes.sum())

    def component(self, column: int, unit: Array) -> tuple[Array, Array]:
        """What the trend says about one column alone, and its std: (g, t) and (g,).

        Parameters
        ----------
        column : int
        unit : ndarray of shape (g,)
            Values of the column, from 0 to 1 over the range of the training rows.
        """
        basis = self.form.basis
        X = np.tile(basis.low, (len(unit), 1))
        X[:, column] += unit * basis.width[column]
        functions, _ = basis.functions(X)
        own = [
            place
            for term, place in zip(basis.terms, basis.slices(), strict=True)
            if term.columns == (column,)
        ]
        kept = np.zeros_like(functions)
        for place in own:
            kept[:, place] = functions[:, place]
        kept -= kept.mean(axis=0)
        half = kept @ self.root.T  # without columns where nothing is in doubt
        return kept @ self.coefficients, np.sqrt(np.einsum("ij,ij->i", half, half))

    def at(self, X: Array) -> TrendAt:
        """What it says about rows X (N, d)."""
        functions, holds = self.form.basis.functions(X)
        mean = multiply_tiles(functions, self.coefficients)
        spread = (1 - holds**2) @ self.sizes
        beyond = self.form.basis.beyond(X)
        if not len(self.root):
            return TrendAt(mean, spread, beyond)
        basis = multiply_tiles(functions, self.root.T)
        said = TrendAt(mean, spread, beyond, basis)
        return said if self.kriged else said._replace(spread=said.whole_variance(), basis=None)


class _Part(NamedTuple):
    """Rows whose covariance is K = L L'; `whitener` (n, n) is L^-1."""

    rows: IndexArray
    whitener: Array

    def solve(self, values: Array) -> Array:
        """K^-1 times values (n, q)."""
        return self.whitener.T @ (self.whitener @ values)


def _part(data: TrainingData, rows: IndexArray, kernel: NoisyKernel) -> _Part:
    whitener = data.likelihood(rows).posterior(kernel).whitener
    return _Part(rows, np.ascontiguousarray(whitener[: len(rows), : len(rows)]))


def fit_linear(
    form: Form,
    data: TrainingData,
    parts: Sequence[IndexArray],
    kernel: NoisyKernel,
    n_jobs: int | None = None,
) -> LinearTrend:
    """The trend under a committee whose experts have a kernel.

    Parameters
    ----------
    form : Form
    data : TrainingData
        Whose Y are the whole targets.
    parts : sequence of index arrays
    kernel : NoisyKernel
    n_jobs : int or None
    """
    basis = form.basis
    precision = form.precision * np.eye(basis.size)
    right = np.zeros((basis.size, data.Y.shape[1]))

    def sums(rows: IndexArray) -> tuple[Array, Array]:
        part = _part(data, rows, kernel)
        whitened = part.whitener @ basis.functions(data.X[rows])[0]
        return whitened.T @ whitened, whitened.T @ (part.whitener @ data.Y[rows])

    with thread_map(n_jobs) as parallel_map:
        for square, product in parallel_map(sums, parts):
            precision += square
            right += product
        L = cholesky(precision, lower=True, check_finite=False)
        root = solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False)
        coefficients = root.T @ (root @ right)
    some = np.linspace(0, len(data.X) - 1, min(len(data.X), SIZE_ROWS)).astype(int)
    functions, _ = basis.functions(data.X[some])
    terms = [functions[:, one] @ coefficients[one] for one in basis.slices()]
    sizes = np.array([float(np.mean((term - term.mean(axis=0)) ** 2)) for term in terms])
    kriged = len(data.X) * basis.size <= MOST_NUMBERS
    return LinearTrend(
        form, read_only(coefficients), read_only(root), read_only(sizes), kriged, kernel
    )


def rows_under(
    trend: LinearTrend,
    data: TrainingData,
    parts: Sequence[IndexArray],
    n_jobs: int | None = None,
) -> Trend:
    """What a trend that was fitted under this committee says about the training rows.

    Without row i the coefficients are b - A^-1 H' K^-1 e_i s_i with s_i = r_i / q_i, where
    r = K^-1 (y - H b) and q is the diagonal of K^-1 - K^-1 H A^-1 H' K^-1. Rows that already
    have a trend hold y - H b.
    """
    n, n_targets = data.Y.shape
    fitted, step = np.empty((2, n, n_targets))
    curvature, along = np.empty((2, n))
    basis, pull = np.empty((2, n, trend.form.basis.size if trend.kriged else 0))

    def fill(rows: IndexArray) -> None:
        part = _part(data, rows, trend.kernel)
        functions, _ = trend.form.basis.functions(data.X[rows])
        fitted[rows] = functions @ trend.coefficients
        whole = functions @ trend.root.T
        solved = part.solve(whole)
        diagonal = np.einsum("ij,ij->j", part.whitener, part.whitener)
        curvature[rows] = diagonal - np.einsum("ij,ij->i", solved, solved)
        rest = data.Y[rows] if data.trend is not None else data.Y[rows] - fitted[rows]
        step[rows] = part.solve(rest) / curvature[rows, None]
        along[rows] = np.einsum("ij,ij->i", whole, solved)
        if trend.kriged:
            basis[rows], pull[rows] = whole, solved

    with thread_map(n_jobs) as parallel_map:
        for _ in parallel_map(fill, parts):
            pass
    kriging = Kriging(basis, pull, step, curvature) if trend.kriged else None
    return Trend(trend, fitted, -along[:, None] * step, along**2 / curvature, kriging)
