"""Converts scikit-learn's kernels to ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.gaussian_process import kernels as sk

from manygp.kernels.base import Constant, Kernel, Matern, Product, Sum, White
from manygp.kernels.catalogue import RBF, Linear, Periodic, RationalQuadratic
from manygp.kernels.sklearn_kernel import SklearnKernel


def as_kernel(kernel: Any, n_features: int = 1) -> Kernel:
    """`kernel` itself if it is one of ours, else its conversion from scikit-learn.

    A kernel of scikit-learn's kind that has no counterpart is used as it is.

    Raises
    ------
    ValueError
        If it is no kernel; the message names it.
    """
    if isinstance(kernel, Kernel):
        return kernel
    if type(kernel) in CONVERTERS:
        return CONVERTERS[type(kernel)](kernel, n_features)
    if isinstance(kernel, sk.Kernel) and not isinstance(kernel, sk.CompoundKernel):
        return SklearnKernel(kernel)
    raise ValueError(
        f"the kernel {kernel!r} has no counterpart in manygp; pass a kernel of manygp.kernels or "
        "of sklearn.gaussian_process.kernels, or sums and products of these"
    )


def _matern(kernel: Any, n_features: int) -> Kernel:
    length_scale, bounds = _given(kernel, "length_scale")
    if kernel.nu == np.inf:
        return RBF(length_scale, bounds)
    if kernel.nu not in (0.5, 1.5, 2.5):
        return SklearnKernel(kernel)
    return Matern(length_scale, bounds, nu=kernel.nu)


def _periodic(kernel: Any, n_features: int) -> Kernel:
    if n_features > 1:  # a function of the Euclidean distance, as it is
        return SklearnKernel(kernel)
    return Periodic(*_given(kernel, "length_scale", "periodicity"))


# What makes ours from an object of exactly that class, for inputs of n columns.
CONVERTERS: dict[type, Callable[[Any, int], Kernel]] = {
    sk.Sum: lambda kernel, n: Sum(as_kernel(kernel.k1, n), as_kernel(kernel.k2, n)),
    sk.Product: lambda kernel, n: Product(as_kernel(kernel.k1, n), as_kernel(kernel.k2, n)),
    sk.ConstantKernel: lambda kernel, n: Constant(*_given(kernel, "constant_value")),
    sk.WhiteKernel: lambda kernel, n: White(*_given(kernel, "noise_level")),
    sk.DotProduct: lambda kernel, n: Linear(*_given(kernel, "sigma_0")),
    sk.RBF: lambda kernel, n: RBF(*_given(kernel, "length_scale")),
    sk.Matern: _matern,
    sk.RationalQuadratic: lambda kernel, n: RationalQuadratic(
        *_given(kernel, "length_scale", "alpha")
    ),
    sk.ExpSineSquared: _periodic,
}


def _given(kernel: Any, *parameters: str) -> list[Any]:
    """The values of hyperparameters, and then their bounds."""
    values = [getattr(kernel, parameter) for parameter in parameters]
    return [*values, *(_bounds(kernel, parameter) for parameter in parameters)]


def _bounds(kernel: Any, parameter: str) -> Any:
    """One pair, one per element where they differ, or "fixed"."""
    bounds = getattr(kernel, f"{parameter}_bounds")
    if isinstance(bounds, str):
        return bounds
    pairs = np.atleast_2d(bounds)
    same = np.all(pairs == pairs[0])
    return tuple(pairs[0]) if same else tuple(map(tuple, pairs))
