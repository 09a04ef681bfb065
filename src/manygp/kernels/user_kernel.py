"""A fitted kernel as the user wrote it: fits work with signal and noise, in that order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.kernels.base import NoisyKernel, split_noise
from manygp.kernels.sklearn_kernel import as_kernel


class UserKernel(NamedTuple):
    """The user's expression, ours or scikit-learn's, and how its theta belongs to that of fits.

    Attributes
    ----------
    kernel : Kernel
    order : ndarray of shape (p,)
        Where each element of a fit's theta is in the expression's.
    shift : ndarray of shape (p,)
        By how much the expression's theta is larger, in other units of the columns.
    """

    kernel: Any
    order: IndexArray
    shift: Array

    @classmethod
    def of(cls, kernel: Any, n_features: int) -> UserKernel:
        """The expression's elements of theta, numbered, and found again among signal and noise."""
        numbers = np.arange(len(kernel.theta)) + 1.0
        marked = split_noise(as_kernel(kernel.clone_with_theta(np.log(numbers)), n_features))
        return cls(kernel, np.rint(marked.values).astype(np.intp) - 1, np.zeros(len(numbers)))

    @classmethod
    def in_units(cls, kernel: NoisyKernel, scale: Array) -> UserKernel:
        """A kernel of ours for columns that are multiplied by `scale` (d,)."""
        expression = kernel.in_units(scale)
        return cls(expression, np.arange(kernel.n_free), expression.theta - kernel.theta)

    def with_values_of(self, fitted: NoisyKernel) -> Any:
        """The expression with the hyperparameters of a fit."""
        return self.kernel.clone_with_theta(self.from_fit(fitted.theta) + self.shift)

    def from_fit(self, numbers: Array) -> Array:
        """One number per element of a fit's theta, in the order of the expression: (p,)."""
        ordered = np.empty(len(numbers))
        ordered[self.order] = numbers
        return ordered

    def to_fit(self, theta: Array) -> Array:
        """The theta of a fit that belongs to one of the expression."""
        if len(theta) != len(self.order):
            raise ValueError(
                f"{self.kernel!r} needs {len(self.order)} elements of theta, not {len(theta)}"
            )
        return (theta - self.shift)[self.order]
