"""scikit-learn's kernel objects as ours."""

from __future__ import annotations

from typing import Any

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
        Naming the kernel, or the part of it, that has no counterpart.
    """
    if isinstance(kernel, Kernel):
        return kernel
    if type(kernel) in (sk.Sum, sk.Product):
        combine = Sum if type(kernel) is sk.Sum else Product
        return combine(as_kernel(kernel.k1, n_features), as_kernel(kernel.k2, n_features))
    if type(kernel) is sk.ConstantKernel:
        return Constant(kernel.constant_value, _bounds(kernel, "constant_value"))
    if type(kernel) is sk.WhiteKernel:
        return White(kernel.noise_level, _bounds(kernel, "noise_level"))
    if type(kernel) is sk.DotProduct:
        return Linear(kernel.sigma_0, _bounds(kernel, "sigma_0"))
    if type(kernel) is sk.RBF or (type(kernel) is sk.Matern and kernel.nu == np.inf):
        return RBF(kernel.length_scale, _bounds(kernel, "length_scale"))
    if type(kernel) is sk.Matern and kernel.nu in (0.5, 1.5, 2.5):
        return Matern(kernel.length_scale, _bounds(kernel, "length_scale"), nu=kernel.nu)
    if type(kernel) is sk.RationalQuadratic:
        return RationalQuadratic(
            kernel.length_scale,
            kernel.alpha,
            _bounds(kernel, "length_scale"),
            _bounds(kernel, "alpha"),
        )
    if type(kernel) is sk.ExpSineSquared and n_features > 1:
        raise ValueError(
            f"the kernel {kernel!r} is not a covariance function on {n_features} columns; use "
            "manygp.kernels.Periodic, which multiplies over the columns"
        )
    if type(kernel) is sk.ExpSineSquared:
        return Periodic(
            kernel.length_scale,
            kernel.periodicity,
            _bounds(kernel, "length_scale"),
            _bounds(kernel, "periodicity"),
        )
    raise ValueError(
        f"the kernel {kernel!r} has no counterpart in manygp; use sums and products of Matern "
        "(nu 0.5, 1.5, 2.5), RBF, RationalQuadratic, Linear, Periodic, Constant and White from "
        "manygp.kernels, or of their counterparts in sklearn.gaussian_process.kernels"
    )


def _bounds(kernel: Any, parameter: str) -> Any:
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
