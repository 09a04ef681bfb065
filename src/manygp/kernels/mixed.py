"""Expressions in which noise stands elsewhere than at the end of a sum: c * (k + White())."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from manygp.arrays import Array
from manygp.kernels.base import (
    Combination,
    Kernel,
    NoisyKernel,
    Product,
    Pullback,
    Sum,
    White,
    Workspace,
    parts_of,
)

# A row for kernels whose variance is the same at all rows.
ANYWHERE = np.zeros((1, 1))


@dataclass(frozen=True)
class NoiselessPart(Combination):
    """The signal of an expression with noise in it. Its derivative is that of the expression."""

    whole: Kernel

    def cross(self, X1: Array, X2: Array, work: Workspace) -> Array:
        return self.whole.cross(X1, X2, work)

    def vjp(self, X: Array, work: Workspace) -> tuple[Array, Pullback]:
        K, pullback = self.whole.vjp(X, work)
        np.einsum("ii->i", K)[:] -= noise_variance(self.whole)
        return K, pullback

    def diag(self, X: Array) -> Array:
        return self.whole.diag(X) - noise_variance(self.whole)

    def slopes(self, X1: Array, X2: Array, K_bar: Array) -> Array:
        return self.whole.slopes(X1, X2, K_bar)

    def diag_slope(self, X: Array) -> Array:
        return self.whole.diag_slope(X)


class MixedKernel(NoisyKernel):
    """k = signal + noise, whose hyperparameters are those of one expression."""

    left: NoiselessPart

    @classmethod
    def of(cls, whole: Kernel) -> Self:
        """Signal and noise of an expression; noise that differs between rows is refused."""
        for part in parts_of(whole):
            if isinstance(part, Product):
                for one, other in ((part.left, part.right), (part.right, part.left)):
                    if has_noise(one) and not other.is_stationary:
                        raise ValueError(
                            f"the kernel {whole} multiplies noise (White) by {other}, whose "
                            "variance differs between rows; pass the noise of rows as alpha"
                        )
        return cls(NoiselessPart(whole), White(noise_variance(whole), "fixed"))

    @property
    def whole(self) -> Kernel:
        """The expression."""
        return self.left.whole

    def with_values(self, values: list[float]) -> Self:
        return self.of(self.whole.with_values(values))


def has_noise(kernel: Kernel) -> bool:
    """Whether there is a White in it."""
    return any(isinstance(part, White) for part in parts_of(kernel))


def noise_variance(kernel: Kernel) -> float:
    """What an expression adds to the variance of a row and to no covariance."""
    return _variances(kernel)[1]


def _variances(kernel: Kernel) -> tuple[float, float]:
    """Variances of signal and noise. That of a signal matters where noise is multiplied by it."""
    if isinstance(kernel, White):
        return 0.0, kernel.variance
    if isinstance(kernel, Sum):
        (left, left_noise), (right, right_noise) = map(_variances, (kernel.left, kernel.right))
        return left + right, left_noise + right_noise
    if isinstance(kernel, Product) and has_noise(kernel):
        (left, left_noise), (right, right_noise) = map(_variances, (kernel.left, kernel.right))
        return left * right, (left + left_noise) * (right + right_noise) - left * right
    return float(kernel.diag(ANYWHERE)[0]) if kernel.is_stationary else 0.0, 0.0
