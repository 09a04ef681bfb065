"""The prior: what an estimator that has seen no data says about rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from manygp import inputs
from manygp.arrays import Array
from manygp.gp.marginal_likelihood import psd_root
from manygp.kernels.base import NoisyKernel, default_kernel, split_noise
from manygp.settings import Settings


class Prior(NamedTuple):
    """The distribution of targets before any data, at rows X (N, d) as they are.

    Answers have the shape (N,) for one target, and (N, t) for several.
    """

    kernel: NoisyKernel
    n_targets: int
    X: Array

    @classmethod
    def of(cls, settings: Settings, X: Array) -> Prior:
        """The prior of a model; the default kernel is that of columns in [0, 1]."""
        n_features = X.shape[1]
        own = settings.own_kernel(n_features)
        kernel = split_noise(default_kernel(n_features) if own is None else own)
        return cls(kernel, settings.n_targets or 1, X)

    def answer(self, std: Any, cov: Any, *, latent: bool, alpha: Any) -> Any:
        """What `ManyGPRegressor.predict` returns: the mean, and with it std or covariance."""
        if cov:
            return self.predict_joint(latent=latent, alpha=alpha)
        mean, deviation = self.predict(latent=latent, alpha=alpha)
        return (mean, deviation) if std else mean

    def predict(self, *, latent: bool, alpha: Any) -> tuple[Array, Array]:
        """Mean and standard deviation."""
        variance = self.kernel.signal.diag(self.X) + self._noise(latent=latent, alpha=alpha)
        return self._of_targets(np.zeros(len(self.X))), self._of_targets(np.sqrt(variance))

    def predict_joint(self, *, latent: bool, alpha: Any) -> tuple[Array, Array]:
        """Mean, and covariance (N, N) or (N, N, t)."""
        covariance = self.kernel.signal(self.X)
        np.einsum("ii->i", covariance)[:] += self._noise(latent=latent, alpha=alpha)
        return self._of_targets(np.zeros(len(self.X))), self._of_targets(covariance)

    def sample(self, n_samples: int, rng: np.random.RandomState, *, latent: bool) -> Array:
        """Draws: (N, n_samples) or (N, t, n_samples)."""
        covariance = self.kernel.signal(self.X)
        np.einsum("ii->i", covariance)[:] += self._noise(latent=latent, alpha=0.0)
        normal = rng.normal(size=(self.n_targets, len(self.X), n_samples))
        draws = np.einsum("ij,tjs->its", psd_root(covariance), normal)
        return draws[:, 0] if self.n_targets == 1 else draws

    def _noise(self, *, latent: bool, alpha: Any) -> Array:
        """Noise variances of the rows: (N,)."""
        n = len(self.X)
        known = inputs.check_alpha(alpha, n)
        return np.zeros(n) if latent else known + self.kernel.noise_variance

    def _of_targets(self, answer: Array) -> Array:
        """The same answer for each target."""
        if self.n_targets == 1:
            return answer
        return np.repeat(answer[..., None], self.n_targets, axis=-1)
