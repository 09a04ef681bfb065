"""Which inputs explain an observed curve: their posterior, by the emulator.

The inputs are as likely anywhere in the box of the training runs. The observed curve is normal
around what the emulator predicts, with the covariance of the emulator's errors and the variance of
the observation. Walkers begin anywhere, and the observation gets its weight by and by: at each
stage they are drawn anew by how well they explain it, so that none stays at a place that explains
little (sequential Monte Carlo), and move. Half of the moves are those of Goodman and Weare (2010)
along the line to another walker, by a factor z of density 1 / sqrt(z), which need no scale of
their own. The others leap to where the other half of the walkers may be, by a Student-t with their
mean and covariance: one leap forgets where a walker was, which takes 40 moves along lines where
six inputs depend on each other.

Errors of components are no normal variables: where one is large, others often are, and a region of
the inputs that takes them for normal is too small. Runs that were left out, observed with the same
noise, tell by how much: their true inputs are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtri

from manygp import answers
from manygp.arrays import Array
from manygp.emulator.answers import CURVES, FittedEmulator
from manygp.inputs import plain_floats


@dataclass(frozen=True)
class WalkNumbers:
    """Numbers of the ensemble, and why they are what they are."""

    # Walkers: at least so many, and for each input. Of 100 that began at the best of 4,000 places
    # and were not drawn anew, several stayed at places that explain nothing.
    walkers: int = 400
    per_input: int = 40
    # Moves at each stage, and between samples at the last one.
    moves: int = 6
    # Stages end where so large a share of the walkers is left that counts (effective sample size).
    share: float = 0.5
    # The last stage moves so many times before it is sampled.
    warm_up: int = 24
    # Factors lie between 1 / a and a, as Goodman and Weare advise.
    stretch: float = 2.0
    # Degrees of freedom of leaps: their tails are heavier than those of the walkers.
    dof: float = 5.0
    # The share of left-out runs that regions are to hold, but for half a standard error; draws of
    # the noise for each; and the largest factor of the variances of components that is believed.
    held: float = 0.9
    draws: int = 8
    most_wider: float = 100.0
    # Slopes are those over such a share of the range of an input.
    step: float = 1e-3


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
    std_factor : float
        By how much the std of components was made larger, so that regions hold left-out runs.
    """

    samples: Array
    log_density: Array
    accepted: float
    n_stages: int
    low: Array
    high: Array
    std_factor: float = 1.0

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
    wider : float
        Factor of the variances of components.
    best, information : ndarrays of shape (K,) and (K, K)
        The components that explain the observed curve best, and how well it tells them.
    """

    model: FittedEmulator
    seen: Any
    values: Array
    variance: Array
    wider: float = 1.0
    best: Array = np.empty(0)
    information: Array = np.empty((0, 0))

    def log_density(self, X: Array) -> Array:
        """Logarithm of the density of the observed curve at inputs X (N, d), but a constant: (N,).

        Components are as uncertain everywhere as on average over left-out runs: else walkers are
        drawn to where the emulator promises too much.
        """
        errors = np.stack([one.predict(X) for one in self.model.models], axis=1) - self.best
        density: Array = -0.5 * ((errors @ self.information) * errors).sum(axis=1)
        return density

    def calibrated(self) -> Target:
        """The same, which knows the best components, as uncertain as left-out runs want them.

        Each run is taken for an observation. To first order, regions of its inputs are those of
        the score s = J' C^-1 e, whose square in units of J' C^-1 J is chi-squared where the errors
        e are as C says. The factor is the smallest of at least 1 with which regions of 90% hold
        nine of ten; where none does, it is not the components that err.
        """
        known = self._left_out_runs(box_of(self.model))
        wider = known.factor()
        scale, factor = self.model.scale[self.seen], self.model.spread.factor[self.seen]
        outside = (scale * factor) ** 2 * self.model.spread.outside[self.seen]
        inverse = 1 / (outside + self.variance)
        own = scale[:, None] * self.model.basis[self.seen]
        V = np.c_[self.values - self.model.mean[self.seen], own]
        S = np.sqrt(wider) * known.root
        seen = S.T @ ((factor[:, None] * own).T * inverse) @ V
        inside = np.eye(len(S)) + S.T @ known.inner @ S
        form = (V.T * inverse) @ V - seen.T @ np.linalg.solve(inside, seen)
        best = np.linalg.lstsq(form[1:, 1:], form[1:, 0])[0]
        return self._replace(wider=wider, best=best, information=form[1:, 1:])

    def _left_out_runs(self, box: Array) -> LeftOutRuns:
        """Errors and slopes of observed outputs of left-out runs, with noise drawn for them."""
        model, rng = self.model, np.random.default_rng(0)
        told = [answers.left_out_answers(one.model_, CURVES.rows) for one in model.models]
        errors = np.stack([np.ravel(Y) - mean for _, Y, mean, _ in told], axis=1)
        roots = np.stack([np.ravel(std) for *_, std in told], 1)[:, :, None] * model.spread.root
        X, width = answers.training_rows(model.models[0].model_)[0][told[0][0]], box[1] - box[0]
        steps = np.diag(WALK.step * width)[width > 0]
        slopes = np.stack([_slopes(model, X, step) for step in steps], axis=2)
        scale, factor = model.scale[self.seen], model.spread.factor[self.seen]
        own = scale[:, None] * model.basis[self.seen]
        W = factor[:, None] * own
        variance = (scale * factor) ** 2 * model.spread.outside[self.seen] + self.variance
        pairs = []
        for error, slope in zip(errors, slopes, strict=True):
            noise = np.sqrt(variance)[:, None] * rng.normal(size=(len(variance), WALK.draws))
            V = np.column_stack([own @ error, noise, own @ slope])
            scaled = V / variance[:, None]
            pairs.append((W.T @ scaled, V.T @ scaled))
        seen, rest = (np.array(one) for one in zip(*pairs, strict=True))
        root = np.linalg.cholesky((roots @ roots.swapaxes(1, 2)).mean(axis=0))
        return LeftOutRuns(root, W.T @ (W / variance[:, None]), seen, rest)


class LeftOutRuns(NamedTuple):
    """What m left-out runs tell of how far their observations are from what was promised.

    With V (T', v) the error of a run, draws of the noise and slopes by the inputs, one beside the
    other, D the variances of what is independent from output to output, and W the components
    (T', K) in units of the outputs:

    Attributes
    ----------
    root : ndarray of shape (K, K)
        S, where S S' is the mean covariance of the components.
    inner : ndarray of shape (K, K)
        W' D^-1 W.
    seen : ndarray of shape (m, K, v)
        W' D^-1 V.
    rest : ndarray of shape (m, v, v)
        V' D^-1 V.
    """

    root: Array
    inner: Array
    seen: Array
    rest: Array

    def factor(self) -> float:
        """The least factor of S S', of at least 1, with which regions hold what they are to."""
        limit = chdtri(self.rest.shape[1] - 1 - WALK.draws, 1 - WALK.held)
        least = WALK.held - 0.5 * np.sqrt(WALK.held * (1 - WALK.held) / len(self.rest))

        def is_wide(log_factor: float) -> bool:
            return bool(np.mean(self.scores(np.exp(log_factor)) <= limit) >= least)

        low, high = 0.0, float(np.log(WALK.most_wider))
        if is_wide(low) or not is_wide(high):
            return 1.0
        for _ in range(20):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if is_wide(middle) else (middle, high)
        return float(np.exp(high))

    def scores(self, wider: float) -> Array:
        """Squared scores in units of what is expected, with a factor of S S': (m, draws)."""
        S, first = np.sqrt(wider) * self.root, 1 + WALK.draws
        known = S.T @ self.seen
        inside = np.eye(len(S)) + S.T @ self.inner @ S
        V = self.rest - known.swapaxes(1, 2) @ np.linalg.solve(inside, known)
        score, information = V[:, first:, :1] + V[:, first:, 1:first], V[:, first:, first:]
        size = np.einsum("idd->id", information).max(axis=1)[:, None, None]
        ridge = np.maximum(1e-12 * size, 1e-300) * np.eye(score.shape[1])
        squares: Array = (score * np.linalg.solve(information + ridge, score)).sum(axis=1)
        return squares


def _slopes(model: FittedEmulator, X: Array, step: Array) -> Array:
    """Derivatives (N, K) of the components along one input, by differences."""
    ends = [np.stack([one.predict(X + s * step) for one in model.models], 1) for s in (1, -1)]
    slopes: Array = (ends[0] - ends[1]) / (2 * step.sum())
    return slopes


def box_of(model: FittedEmulator) -> Array:
    """The least and the largest value of each input of the training runs: (2, d)."""
    known = model.models[0].model_
    if known.encoder is not None:
        raise ValueError("match is for inputs that are numbers, and the model encodes a table")
    rows, _ = answers.training_rows(known)
    return np.array([rows.min(axis=0), rows.max(axis=0)])


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
        for one, other in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
            move = _leap if rng.random() < 0.5 else _stretch
            proposed, gain = move(places[one], places[other], rng)
            inside = np.all((proposed >= box[0]) & (proposed <= box[1]), axis=1)
            height = np.full(half, -np.inf)
            if inside.any():
                height[inside] = target.log_density(proposed[inside])
            taken = np.log(rng.random(half)) < gain + power * (height - heights[one])
            places[one] = np.where(taken[:, None], proposed, places[one])
            heights[one] = np.where(taken, height, heights[one])
            taken_all += float(taken.mean()) / 2
        return Walkers(places, heights), taken_all


def _stretch(own: Array, other: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Places (m, d) on lines from own to other walkers, and what is added to log densities."""
    m, d = len(own), int((np.ptp(other, axis=0) > 0).sum())
    factor = ((WALK.stretch - 1) * rng.random(m) + 1) ** 2 / WALK.stretch
    centre = other[rng.integers(m, size=m)]
    return centre + factor[:, None] * (own - centre), (d - 1) * np.log(factor)


def _leap(own: Array, other: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Places (m, d) drawn of a Student-t with mean and covariance of the others, and the same."""
    centre, dof = other.mean(axis=0), WALK.dof
    sizes, axes = np.linalg.eigh(np.cov(other.T).reshape(own.shape[1], -1))
    free = sizes > 1e-12 * sizes[-1]
    root = axes[:, free] * np.sqrt(sizes[free])
    inverse = axes[:, free] / np.sqrt(sizes[free])
    normal = rng.normal(size=(len(own), int(free.sum())))
    drawn = normal / np.sqrt(rng.chisquare(dof, len(own)) / dof)[:, None]
    far, near = (np.log1p((u**2).sum(axis=1) / dof) for u in (drawn, (own - centre) @ inverse))
    return centre + drawn @ root.T, 0.5 * (dof + normal.shape[1]) * (far - near)


def match_curve(target: Target, n_samples: int, rng: np.random.Generator) -> Match:
    """Samples of the inputs, by walkers."""
    box = box_of(target.model)
    n = 2 * (max(WALK.walkers, WALK.per_input * box.shape[1]) // 2)
    places = box[0] + (box[1] - box[0]) * rng.random((n, box.shape[1]))
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
