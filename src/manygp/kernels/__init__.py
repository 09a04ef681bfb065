"""Covariance functions: the catalogue, what they have in common, and kernels as text."""

from manygp.kernels.base import Constant, Kernel, NoisyKernel, Product, Sum, White
from manygp.kernels.catalogue import (
    RBF,
    Linear,
    Matern,
    Periodic,
    RationalQuadratic,
    Stationary,
    default_kernel,
)
from manygp.kernels.text import describe, formula, parse_kernel, write_kernel

__all__ = [
    "RBF",
    "Constant",
    "Kernel",
    "Linear",
    "Matern",
    "NoisyKernel",
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
    "write_kernel",
]
