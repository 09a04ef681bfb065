"""Converts scikit-learn's kernels to ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from sklearn.gaussian_process import kernels as sk

from manygp.kernels.catalogue import (
    RBF,
    Constant,
    Kernel,
    Linear,
    Matern,
    Periodic,
    Product,
    RationalQuadratic,
    Sum,
    White,
)


def as_kernel(kernel: Any, n_features: int = 1) -> Kernel:
    """`kernel` itself if it is one of ours, else its conversion from scikit-learn.

    Raises
    ------
    ValueError
        If the kernel, or a part of it, has no counterpart; the message names it.
    """
    if isinstance(kernel, Kernel):
        return kernel
    convert = CONVERTERS.get(type(kernel), _refuse)
    return convert(kernel, n_features)


def _matern(kernel: Any, n_features: int) -> Kernel:
    length_scale, bounds = _given(kernel, "length_scale")
    if kernel.nu == np.inf:
        return RBF(length_scale, bounds)
    if kernel.nu not in (0.5, 1.5, 2.5):
        _refuse(kernel, n_features)
    return Matern(length_scale, bounds, nu=kernel.nu)


def _periodic(kernel: Any, n_features: int) -> Kernel:
    if n_features > 1:
        raise ValueError(
            f"the kernel {kernel!r} is not a covariance function on {n_features} columns; use "
            "manygp.kernels.Periodic, which multiplies over the columns"
        )
    return Periodic(*_given(kernel, "length_scale", "periodicity"))


def _refuse(kernel: Any, n_features: int) -> NoReturn:
    raise ValueError(
        f"the kernel {kernel!r} has no counterpart in manygp; use sums and products of Matern "
        "(nu 0.5, 1.5, 2.5), RBF, RationalQuadratic, Linear, Periodic, Additive, Pairwise, "
        "Constant and White from manygp.kernels, or of the counterparts that most of them have "
        "in sklearn.gaussian_process.kernels"
    )


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
    """One pair, or "fixed"; scikit-learn may have a pair for each element."""
    bounds = getattr(kernel, f"{parameter}_bounds")
    if isinstance(bounds, str):
        return bounds
    pairs = np.unique(np.atleast_2d(bounds), axis=0)
    if len(pairs) > 1:
        raise ValueError(
            f"the kernel {kernel!r} has different bounds for each {parameter}; "
            "manygp takes one pair for all"
        )
    return tuple(pairs[0])
