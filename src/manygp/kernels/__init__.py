"""Covariance functions: the catalogue, what they have in common, and kernels as text."""

from manygp.kernels.additive import Additive, Pairwise, structured_kernel
from manygp.kernels.base import (
    Constant,
    Kernel,
    Matern,
    NoisyKernel,
    Product,
    Stationary,
    Sum,
    White,
    default_kernel,
    register_kernel,
)
from manygp.kernels.catalogue import RBF, Linear, Periodic, RationalQuadratic
from manygp.kernels.text import describe, formula, parse_kernel, write_kernel

__all__ = [
    "RBF",
    "Additive",
    "Constant",
    "Kernel",
    "Linear",
    "Matern",
    "NoisyKernel",
    "Pairwise",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "Stationary",
    "Sum",
    "White",
    "default_kernel",
    "describe",
    "formula",
    "parse_kernel",
    "register_kernel",
    "structured_kernel",
    "write_kernel",
]
