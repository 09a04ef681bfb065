"""Which inputs explain an observed curve: their posterior, by the emulator.

The inputs are as likely anywhere in the box of the training runs. The observed curve is normal
around what the emulator predicts, with the covariance of the emulator's errors and the variance of
the observation. Samples come from an ensemble of walkers (Goodman and Weare 2010), which needs no
scale of its own: each moves along the line to another one, by a factor z of density 1 / sqrt(z).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from manygp import answers
from manygp.arrays import Array
from manygp.emulator import answers as curves
from manygp.emulator.answers import FittedEmulator


@dataclass(frozen=True)
class WalkNumbers:
    """Numbers of the ensemble, and why they are what they are."""

    # Walkers: at least so many, and for each input; the more, the fewer steps one has to wait.
    walkers: int = 100
    per_input: int = 6
    # They start at the best of so many places at random.
    starts: int = 4000
    # Steps before samples are taken, and from one to the next: a walk forgets where it was within
    # some ten steps for each input.
    warm_up: int = 300
    thinning: int = 5
    # Factors lie between 1 / a and a, as Goodman and Weare advise.
    stretch: float = 2.0


WALK = WalkNumbers()


class Match(NamedTuple):
    """Samples of inputs that explain an observed curve.

    Attributes
    ----------
    samples : ndarray of shape (n_samples, d)
    log_density : ndarray of shape (n_samples,)
        Of the observed curve at each sample, up to a constant.
    accepted : float
        Share of the steps that were taken: from .2 to .6 the walkers got about.
    low, high : ndarrays of shape (d,)
        The box of the training runs.
    """

    samples: Array
    log_density: Array
    accepted: float
    low: Array
    high: Array

    @property
    def mean(self) -> Array:
        """Posterior mean of each input: (d,)."""
        return self.samples.mean(axis=0)

    def interval(self, coverage: float = 0.9) -> tuple[Array, Array]:
        """Lower and upper ends of central intervals of each input: (d,) each."""
        lower, upper = np.quantile(self.samples, [0.5 - coverage / 2, 0.5 + coverage / 2], axis=0)
        return lower, upper


class Target(NamedTuple):
    """The observed outputs (T',), and where they stand in a curve.

    Attributes
    ----------
    model : FittedEmulator
    seen : ndarray of int (T',)
    values, variance : ndarrays of shape (T',)
        The variance is that of the observation.
    """

    model: FittedEmulator
    seen: Any
    values: Array
    variance: Array

    def log_density(self, X: Array) -> Array:
        """Logarithm of the density of the observed curve at inputs X (N, d): (N,).

        With C = diag(e) + W S S' W', the inverse and the determinant are those of K x K matrices.
        """
        model, state = self.model, curves.states(self.model, X)
        scale, factor = model.scale[self.seen], model.spread.factor[self.seen]
        basis, outside = model.basis[self.seen], model.spread.outside[self.seen]
        rest = state.rest[:, None] if model.local is not None else np.ones((1, 1))
        inverse = 1 / (rest * (scale * factor) ** 2 * outside + self.variance)
        W = (scale * factor)[:, None] * basis
        errors = self.values - model.mean[self.seen] - scale * (state.mean @ basis.T)
        inner = (inverse[:, :, None] * W).swapaxes(1, 2) @ W
        S = state.std[:, :, None] * model.spread.root
        roots = np.linalg.cholesky(np.eye(W.shape[1]) + S.swapaxes(1, 2) @ inner @ S)
        known = np.einsum("nkj,nk->nj", S, (errors * inverse) @ W)
        explained = np.array(
            [solve_triangular(a, b, lower=True) for a, b in zip(roots, known, strict=True)]
        )
        square = (errors**2 * inverse).sum(axis=1) - (explained**2).sum(axis=1)
        diagonals = np.log(np.einsum("nkk->nk", roots)).sum(axis=1)
        return -0.5 * square - diagonals + 0.5 * np.log(inverse).sum(axis=1)


def target_of(model: FittedEmulator, observed: Any, noise: Any) -> Target:
    """What is to be matched, from a curve, of which parts may be missing, and its std."""
    curve = np.asarray(getattr(observed, "values", observed), dtype=float)
    if curve.shape != model.grid.shape:
        raise ValueError(
            f"observed must be one curve of shape {model.grid.shape}, not {curve.shape}"
        )
    try:
        std = np.broadcast_to(np.asarray(noise, dtype=float), curve.shape).ravel()
    except ValueError:
        raise ValueError(
            f"noise must be one std, or one for each of {model.grid.shape} outputs; its shape is "
            f"{np.shape(noise)}"
        ) from None
    values = curve.ravel()
    if not (np.isfinite(std).all() and np.all(std >= 0)):
        raise ValueError("noise is a std: it must be finite and not negative")
    seen = np.flatnonzero(~np.isnan(values) & ((model.scale > 0) | (std > 0)))
    if not len(seen) or not np.isfinite(values[seen]).all():
        raise ValueError("observed must hold finite numbers; outputs that are not known are NaN")
    own = std[seen] ** 2
    if not np.all(own + model.spread.outside[seen] * model.scale[seen] ** 2 > 0):
        raise ValueError(
            "noise is 0 where the basis explains all of an output: the match would have to be "
            "exact; give the std of the observation"
        )
    return Target(model, seen, values[seen], own)


def match_curve(target: Target, n_samples: int, rng: np.random.Generator) -> Match:
    """Samples of the inputs, by an ensemble of walkers."""
    model = target.model.models[0].model_
    if model.encoder is not None:
        raise ValueError("match is for inputs that are numbers, and the model encodes a table")
    rows, _ = answers.training_rows(model)
    low, high = rows.min(axis=0), rows.max(axis=0)
    free = high > low
    d = int(free.sum())
    half = max(WALK.walkers, WALK.per_input * d) // 2
    starts = low + (high - low) * rng.random((WALK.starts, len(low)))
    heights = target.log_density(starts)
    order = rng.permutation(np.argsort(-heights, kind="stable")[: 2 * half])
    places, heights = starts[order], heights[order]
    kept, densities, moved = list[Array](), list[Array](), 0.0
    n_kept = -(-n_samples // (2 * half))
    steps = WALK.warm_up + n_kept * WALK.thinning
    for step in range(1, steps + 1):
        for one, other in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
            factor = ((WALK.stretch - 1) * rng.random(half) + 1) ** 2 / WALK.stretch
            centre = places[other][rng.integers(half, size=half)]
            proposed = centre + factor[:, None] * (places[one] - centre)
            inside = np.all((proposed >= low) & (proposed <= high), axis=1)
            height = np.full(half, -np.inf)
            if inside.any():
                height[inside] = target.log_density(proposed[inside])
            gain = (d - 1) * np.log(factor) + height - heights[one]
            taken = np.log(rng.random(half)) < gain
            places[one] = np.where(taken[:, None], proposed, places[one])
            heights[one] = np.where(taken, height, heights[one])
            moved += taken.mean() / 2
        if step > WALK.warm_up and (step - WALK.warm_up) % WALK.thinning == 0:
            kept.append(places.copy())
            densities.append(heights.copy())
    samples = np.concatenate(kept)[:n_samples]
    return Match(samples, np.concatenate(densities)[:n_samples], moved / steps, low, high)
