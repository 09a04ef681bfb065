"""Which inputs explain an observed curve: their posterior, by the emulator.

The inputs are as likely anywhere in the box of the training runs. The observed curve is normal
around what the emulator predicts, with the covariance of the emulator's errors and the variance of
the observation. Walkers begin anywhere, and the observation gets its weight by and by: at each
stage they are drawn anew by how well they explain it, so that none stays at a place that explains
little (sequential Monte Carlo), and move. A move of Goodman and Weare (2010) is along the line to
another walker, by a factor z of density 1 / sqrt(z): it needs no scale of its own.
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
from manygp.inputs import plain_floats


@dataclass(frozen=True)
class WalkNumbers:
    """Numbers of the ensemble, and why they are what they are."""

    # Walkers: at least so many, and for each input. Of 100 that began at the best of 4,000 places
    # and were not drawn anew, several stayed at places that explain nothing.
    walkers: int = 400
    per_input: int = 40
    # Moves at each stage, and between samples at the last one.
    moves: int = 8
    # Stages end where so large a share of the walkers is left that counts (effective sample size).
    share: float = 0.5
    # The last stage moves so many times before it is sampled.
    warm_up: int = 40
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
        Share of the moves of the last stage that were taken: from .2 to .6 the walkers got about.
    n_stages : int
        By how many stages the observation got its weight.
    low, high : ndarrays of shape (d,)
        The box of the training runs.
    """

    samples: Array
    log_density: Array
    accepted: float
    n_stages: int
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
    curve = plain_floats(getattr(observed, "values", observed), "observed")
    if curve.shape != model.grid.shape:
        raise ValueError(
            f"observed must be one curve of shape {model.grid.shape}, not {curve.shape}"
        )
    try:
        std = np.broadcast_to(plain_floats(noise, "noise"), curve.shape).ravel()
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


class Walkers(NamedTuple):
    """Places (N, d) of walkers, and the log density (N,) of the observed curve there."""

    places: Array
    heights: Array

    def drawn(self, gain: float, rng: np.random.Generator) -> Walkers:
        """Drawn anew in proportion to exp(gain * heights): systematic resampling."""
        weights = np.exp(gain * (self.heights - self.heights.max()))
        n = len(weights)
        marks = (np.arange(n) + rng.random()) / n
        chosen = np.searchsorted(np.cumsum(weights) / weights.sum(), marks)
        chosen = rng.permutation(np.minimum(chosen, n - 1))
        return Walkers(self.places[chosen], self.heights[chosen])

    def next_gain(self, most: float) -> float:
        """How much more weight the observation gets, so that enough walkers count."""

        def enough(gain: float) -> bool:
            weights = np.exp(gain * (self.heights - self.heights.max()))
            return bool(weights.sum() ** 2 >= WALK.share * len(weights) * (weights**2).sum())

        if enough(most):
            return most
        low, high = 1e-12 * most, most
        for _ in range(60):
            middle = np.sqrt(low * high)
            low, high = (middle, high) if enough(middle) else (low, middle)
        return float(low)

    def moved(
        self, target: Target, box: Array, power: float, rng: np.random.Generator
    ) -> tuple[Walkers, float]:
        """Each half moved along lines to the other one; and the share that did.

        The density is that of the observed curve to a `power`, within the box (2, d).
        """
        places, heights = self.places.copy(), self.heights.copy()
        half, taken_all = len(places) // 2, 0.0
        d = int((box[1] > box[0]).sum())
        for one, other in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
            factor = ((WALK.stretch - 1) * rng.random(half) + 1) ** 2 / WALK.stretch
            centre = places[other][rng.integers(half, size=half)]
            proposed = centre + factor[:, None] * (places[one] - centre)
            inside = np.all((proposed >= box[0]) & (proposed <= box[1]), axis=1)
            height = np.full(half, -np.inf)
            if inside.any():
                height[inside] = target.log_density(proposed[inside])
            gain = (d - 1) * np.log(factor) + power * (height - heights[one])
            taken = np.log(rng.random(half)) < gain
            places[one] = np.where(taken[:, None], proposed, places[one])
            heights[one] = np.where(taken, height, heights[one])
            taken_all += float(taken.mean()) / 2
        return Walkers(places, heights), taken_all


def match_curve(target: Target, n_samples: int, rng: np.random.Generator) -> Match:
    """Samples of the inputs, by walkers."""
    model = target.model.models[0].model_
    if model.encoder is not None:
        raise ValueError("match is for inputs that are numbers, and the model encodes a table")
    rows, _ = answers.training_rows(model)
    box = np.array([rows.min(axis=0), rows.max(axis=0)])
    n = 2 * (max(WALK.walkers, WALK.per_input * rows.shape[1]) // 2)
    places = box[0] + (box[1] - box[0]) * rng.random((n, rows.shape[1]))
    walkers, power, n_stages = Walkers(places, target.log_density(places)), 0.0, 0
    while power < 1:
        gain = walkers.next_gain(1 - power)
        walkers, n_stages = walkers.drawn(gain, rng), n_stages + 1
        power = 1.0 if gain == 1 - power else power + gain
        for _ in range(WALK.moves):
            walkers, _ = walkers.moved(target, box, power, rng)
    kept, shares = list[Walkers](), list[float]()
    steps = WALK.warm_up + WALK.moves * (-(-n_samples // n) - 1)
    for step in range(steps + 1):
        if step >= WALK.warm_up and (step - WALK.warm_up) % WALK.moves == 0:
            kept.append(walkers)
        walkers, share = walkers.moved(target, box, 1.0, rng)
        shares.append(share)
    samples = np.concatenate([one.places for one in kept])[:n_samples]
    heights = np.concatenate([one.heights for one in kept])[:n_samples]
    return Match(samples, heights, float(np.mean(shares)), n_stages, box[0], box[1])
