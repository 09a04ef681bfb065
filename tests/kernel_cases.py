"""Every kernel beside the reference's and scikit-learn's, for the tests that go through all."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.gaussian_process import kernels as sk

import reference
from manygp.kernels import (
    RBF,
    Additive,
    Constant,
    Linear,
    Matern,
    Pairwise,
    Periodic,
    RationalQuadratic,
    White,
    default_kernel,
    structured_kernel,
)
from manygp.kernels.base import Kernel

ARD = (0.4, 0.9, 2.1)
NARROW = (0.01, 0.9, 0.001)
VARIANCES = (0.5, 2.0, 0.02)
FIXED = "fixed"


class Case(NamedTuple):
    """A kernel, the reference's k(x, z) without noise, and scikit-learn's, if it has it."""

    kernel: Kernel
    k: Callable[[Any, Any], float]
    sklearn: Any = None
    noise: float = 0.0
    n_columns: int = 3


def iso(scale):
    return (scale,) * 3


CASES = {
    "constant": Case(Constant(1.7), lambda x, z: 1.7, sk.ConstantKernel(1.7)),
    "white": Case(White(0.3), lambda x, z: 0.0, sk.WhiteKernel(0.3), noise=0.3),
    "linear": Case(Linear(0.7), lambda x, z: reference.linear(x, z, 0.7), sk.DotProduct(0.7)),
    "rbf": Case(RBF(0.8), lambda x, z: reference.rbf(x, z, iso(0.8)), sk.RBF(0.8)),
    "rbf-ard": Case(RBF(ARD), lambda x, z: reference.rbf(x, z, ARD), sk.RBF(ARD)),
    **{
        f"matern-{nu}{'-ard' if scale == ARD else ''}": Case(
            Matern(scale if scale == ARD else 0.8, nu=nu),
            lambda x, z, nu=nu, scale=scale: reference.matern(x, z, nu, scale),
            sk.Matern(scale if scale == ARD else 0.8, nu=nu),
        )
        for nu in (0.5, 1.5, 2.5)
        for scale in (iso(0.8), ARD)
    },
    "rational-quadratic": Case(
        RationalQuadratic(0.8, 1.6),
        lambda x, z: reference.rational_quadratic(x, z, iso(0.8), 1.6),
        sk.RationalQuadratic(0.8, 1.6),
    ),
    "rational-quadratic-ard": Case(
        RationalQuadratic(ARD, 0.6), lambda x, z: reference.rational_quadratic(x, z, ARD, 0.6)
    ),
    "periodic": Case(
        Periodic(0.9, 1.3), lambda x, z: reference.periodic(x, z, 0.9, 1.3), n_columns=3
    ),
    "periodic-per-column": Case(
        Periodic(ARD, (1.3, 0.7, 2.0)),
        lambda x, z: np.prod(
            [
                reference.periodic([a], [b], length, period)
                for a, b, length, period in zip(x, z, ARD, (1.3, 0.7, 2.0), strict=True)
            ]
        ),
    ),
    "periodic-period-per-column": Case(
        Periodic(0.9, (1.3, 0.7, 2.0), period_bounds=FIXED),
        lambda x, z: np.prod(
            [
                reference.periodic([a], [b], 0.9, period)
                for a, b, period in zip(x, z, (1.3, 0.7, 2.0), strict=True)
            ]
        ),
    ),
    "bounds-per-column": Case(
        Matern(ARD, ((0.1, 1.0), (0.2, 2.0), (0.3, 9.0)), nu=1.5),
        lambda x, z: reference.matern(x, z, 1.5, ARD),
    ),
    "periodic-one-column": Case(
        Periodic(0.9, 1.3),
        lambda x, z: reference.periodic(x, z, 0.9, 1.3),
        sk.ExpSineSquared(0.9, 1.3),
        n_columns=1,
    ),
    **{
        f"additive-{nu}": Case(
            Additive(ARD, VARIANCES, nu=nu),
            lambda x, z, nu=nu: sum(reference.by_column(x, z, nu, ARD, VARIANCES)),
        )
        for nu in (0.5, 1.5, 2.5)
    },
    **{
        f"pairwise-{nu}": Case(
            Pairwise(ARD, VARIANCES, nu=nu),
            lambda x, z, nu=nu: reference.pairs(reference.by_column(x, z, nu, ARD, VARIANCES)),
        )
        for nu in (0.5, 1.5, 2.5)
    },
    "additive-iso": Case(
        Additive(0.8, 0.3), lambda x, z: sum(reference.by_column(x, z, 2.5, iso(0.8), iso(0.3)))
    ),
    "pairwise-iso": Case(
        Pairwise(0.8, 0.3),
        lambda x, z: reference.pairs(reference.by_column(x, z, 2.5, iso(0.8), iso(0.3))),
    ),
    "additive-one-column": Case(
        Additive(0.8, 0.3), lambda x, z: 0.3 * reference.matern(x, z, 2.5, (0.8,)), n_columns=1
    ),
    "columns-and-pairs": Case(
        Matern(ARD) * 0.5 + Additive(0.8, VARIANCES) + Pairwise(ARD, 0.3) + White(0.3),
        lambda x, z: (
            0.5 * reference.matern(x, z, 2.5, ARD)
            + sum(reference.by_column(x, z, 2.5, iso(0.8), VARIANCES))
            + reference.pairs(reference.by_column(x, z, 2.5, ARD, iso(0.3)))
        ),
        noise=0.3,
    ),
    "fixed-variances": Case(
        Additive(ARD, VARIANCES, variance_bounds=FIXED) * Pairwise(0.8, 0.3, FIXED),
        lambda x, z: (
            sum(reference.by_column(x, z, 2.5, ARD, VARIANCES))
            * reference.pairs(reference.by_column(x, z, 2.5, iso(0.8), iso(0.3)))
        ),
    ),
    "fixed-columns": Case(
        Pairwise(ARD, VARIANCES, FIXED, FIXED),
        lambda x, z: reference.pairs(reference.by_column(x, z, 2.5, ARD, VARIANCES)),
    ),
    # Too many length-scales for matrix products: in two columns.
    **{
        f"columns-many-length-scales-wide-{nu}": Case(
            Additive(NARROW, VARIANCES, nu=nu) + Pairwise(NARROW, nu=nu),
            lambda x, z, nu=nu: (
                sum(reference.by_column(x, z, nu, NARROW, VARIANCES))
                + reference.pairs(reference.by_column(x, z, nu, NARROW, iso(1.0)))
            ),
        )
        for nu in (0.5, 1.5, 2.5)
    },
    "sum": Case(
        RBF(ARD) + Linear(0.7),
        lambda x, z: reference.rbf(x, z, ARD) + reference.linear(x, z, 0.7),
        sk.RBF(ARD) + sk.DotProduct(0.7),
    ),
    "product": Case(
        Matern(ARD, nu=1.5) * Linear(0.7),
        lambda x, z: reference.matern(x, z, 1.5, ARD) * reference.linear(x, z, 0.7),
        sk.Matern(ARD, nu=1.5) * sk.DotProduct(0.7),
    ),
    "same-kernel-twice": Case(
        RBF(0.8) * RBF(0.8), lambda x, z: reference.rbf(x, z, iso(0.8)) ** 2
    ),
    "sum-of-constants": Case(Constant(0.2) + Constant(1.1), lambda x, z: 1.3),
    "product-of-sums": Case(
        (Constant(0.5) + Periodic(0.9, 1.3)) * (Matern(ARD) + RationalQuadratic(0.8, 1.6)),
        lambda x, z: (
            (0.5 + reference.periodic(x, z, 0.9, 1.3))
            * (
                reference.matern(x, z, 2.5, ARD)
                + reference.rational_quadratic(x, z, iso(0.8), 1.6)
            )
        ),
    ),
    "signal-and-noise": Case(
        Constant(2.0) * Matern(ARD) + White(0.3),
        lambda x, z: 2 * reference.matern(x, z, 2.5, ARD),
        sk.ConstantKernel(2.0) * sk.Matern(ARD, nu=2.5) + sk.WhiteKernel(0.3),
        noise=0.3,
    ),
    "noise-first": Case(
        White(0.3) + RBF(ARD) + Constant(0.4),
        lambda x, z: reference.rbf(x, z, ARD) + 0.4,
        noise=0.3,
    ),
    "default": Case(
        default_kernel(3), lambda x, z: reference.matern(x, z, 2.5, iso(0.5)), noise=0.1
    ),
    "structured": Case(
        structured_kernel(3),
        lambda x, z: (
            0.5 * reference.matern(x, z, 2.5, iso(0.5))
            + sum(reference.by_column(x, z, 2.5, iso(0.75**0.5), iso(1 / 3)))
            + reference.pairs(reference.by_column(x, z, 2.5, iso(0.75**0.5), iso(6**-0.5)))
        ),
        noise=0.1,
    ),
    "fixed-signal": Case(
        Constant(2.0, FIXED) * RBF(ARD) + White(0.3),
        lambda x, z: 2 * reference.rbf(x, z, ARD),
        sk.ConstantKernel(2.0, FIXED) * sk.RBF(ARD) + sk.WhiteKernel(0.3),
        noise=0.3,
    ),
    "fixed-noise": Case(
        RBF(0.8) + White(0.3, FIXED),
        lambda x, z: reference.rbf(x, z, iso(0.8)),
        sk.RBF(0.8) + sk.WhiteKernel(0.3, FIXED),
        noise=0.3,
    ),
    "fixed-scale": Case(
        RationalQuadratic(ARD, 0.6, FIXED) + Linear(0.7, FIXED),
        lambda x, z: reference.rational_quadratic(x, z, ARD, 0.6) + reference.linear(x, z, 0.7),
    ),
    "fixed-shape": Case(
        RationalQuadratic(0.8, 1.6, alpha_bounds=FIXED) * Periodic(0.9, 1.3, FIXED),
        lambda x, z: (
            reference.rational_quadratic(x, z, iso(0.8), 1.6) * reference.periodic(x, z, 0.9, 1.3)
        ),
    ),
    "fixed-period": Case(
        Periodic(0.9, 1.3, period_bounds=FIXED), lambda x, z: reference.periodic(x, z, 0.9, 1.3)
    ),
    "all-fixed": Case(
        Constant(2.0, FIXED) * Matern(ARD, FIXED, nu=0.5),
        lambda x, z: 2 * reference.matern(x, z, 0.5, ARD),
    ),
}


def rows(n, n_columns, seed=0):
    """Read-only inputs, some rows of which are equal."""
    X = np.random.default_rng(seed).normal(size=(n, n_columns))
    X[-2:] = X[0]
    X.flags.writeable = False
    return X
