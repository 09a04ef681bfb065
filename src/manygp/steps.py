"""A value that many targets share: a distribution of two parts, its chance and the rest.

What a row's chance is, where the other targets lie and how far they spread are smooth functions
of the mean and the std that the model predicts for the row. Rows that were left out teach them,
and say whether two parts are better than one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, ndtr

from manygp.arrays import AnyArray, Array, IndexArray
from manygp.calibration import (
    PredictiveDistribution,
    by_unit,
    dealt,
    fit_tail,
    gains,
    normal_nll,
)
from manygp.fit_report import Alternative
from manygp.inputs import read_only
from manygp.metrics import interval_score
from manygp.targets import TargetTransform, TransformedDistribution


@dataclass(frozen=True)
class StepChoice:
    """Numbers of distributions of two parts, and why they are what they are."""

    # A value that a smaller share of the targets has is no step, nor one of fewer rows; and as
    # many rows must have other values.
    least_share: float = 0.05
    fewest_rows: int = 20
    # The least or largest value is taken if it has this share of the most frequent one's rows.
    share_of_end: float = 0.5
    # Knots of the functions of mean and std: straight lines between quantiles.
    knots: int = 7
    # Precision of the prior of their slopes, in rows.
    precision: float = 1.0
    # A mean that explains less of the targets tells more of a row's own error than of its place.
    least_explained: float = 0.05
    # Newton steps.
    steps: int = 25
    # The largest log-odds, and log variance in units of that of all of the rest.
    largest: float = 12.0
    # Standard errors of its gain in CRPS that two parts must gain, whose folds lack the row; and
    # of what their squared error may lose, which depends on few large targets.
    min_gain: float = 1.0
    most_loss: float = 2.0
    coverage: float = 0.9
    # Targets that are scaled and back differ by less, in units of their std.
    rounding: float = 1e-9
    # The largest share of the rest that may lie where its bound cuts it off, and the least level
    # of a quantile.
    largest_cut: float = 1 - 1e-6
    least_level: float = 1e-12
    # Numbers in a file that are believed.
    largest_number: float = 1e300


STEP = StepChoice()


def shared_value(Y: Array) -> float | None:
    """The most frequent of targets Y (n, t), if there is one target, and it is frequent.

    Or the least or largest of all, if it is nearly as frequent.
    """
    if Y.shape[1] > 1:
        return None
    values, counts = np.unique(Y[:, 0], return_counts=True)
    ends = [end for end in (0, -1) if counts[end] >= STEP.share_of_end * counts.max()]
    place = max(ends, key=lambda end: counts[end]) if ends else int(np.argmax(counts))
    most, n = int(counts[place]), len(Y)
    if most < STEP.least_share * n or not STEP.fewest_rows <= most <= n - STEP.fewest_rows:
        return None
    return float(values[place])


def snapped(y: Array, value: float) -> Array:
    """Targets y (n,), of which those that scaling has moved off the value have it again."""
    near = STEP.rounding * max(float(y.std()), abs(value))
    return np.where(np.abs(y - value) <= near, value, y)


@dataclass(frozen=True, eq=False)
class Functions:
    """Functions of mean and std of z = T(y): lines between knots, held at their ends.

    Attributes
    ----------
    mean_knots, std_knots : ndarrays of shape (K,)
        Of the mean, and of the log of the std; none if the mean has no say.
    """

    mean_knots: Array
    std_knots: Array

    @classmethod
    def of(cls, mean: Array, std: Array, *, with_mean: bool) -> Functions:
        """With knots at quantiles of rows with this mean and std: (n,)."""
        levels = np.linspace(0, 1, STEP.knots)
        knots = [np.unique(np.quantile(one, levels)) for one in (mean, np.log(std))]
        return cls(read_only(knots[0] if with_mean else knots[0][:0]), read_only(knots[1]))

    @property
    def size(self) -> int:
        """Their number, with the constant."""
        return 1 + sum(max(len(one) - 1, 0) for one in (self.mean_knots, self.std_knots))

    def __call__(self, mean: Array, std: Array) -> Array:
        """Their values at rows (N,): (N, size). The first is 1; others rise between two knots."""
        values = [np.ones_like(mean)]
        for x, knots in ((mean, self.mean_knots), (np.log(std), self.std_knots)):
            values += [
                np.clip((x - low) / (high - low), 0, 1) for low, high in pairwise(knots.tolist())
            ]
        return np.column_stack(values)


def _newton(terms: Array, start: float, slopes: Callable[[Array], tuple[Array, Array]]) -> Array:
    """Coefficients (q,) of least loss; `slopes` has its derivative and curvature for each row.

    Changes of slope between neighbouring knots cost the same as slopes.
    """
    q = terms.shape[1]
    penalty = STEP.precision * np.eye(q)
    penalty[0, 0] = 0.0
    b = np.zeros(q)
    b[0] = start
    for _ in range(STEP.steps):
        first, second = slopes(np.clip(terms @ b, -STEP.largest, STEP.largest))
        curvature = terms.T @ (terms * second[:, None]) + penalty + 1e-9 * np.eye(q)
        move = np.linalg.solve(curvature, terms.T @ first + penalty @ b)
        b -= move
        if np.abs(move).max() < 1e-6:
            break
    return b


def _log_odds(terms: Array, has: AnyArray) -> Array:
    """Coefficients of the log-odds that a row has the value."""
    p = (has.sum() + 0.5) / (len(has) + 1.0)

    def slopes(g: Array) -> tuple[Array, Array]:
        chance = expit(g)
        return chance - has, chance * (1 - chance) + 1e-6

    return _newton(terms, float(np.log(p / (1 - p))), slopes)


def _log_variance(terms: Array, squares: Array) -> Array:
    """Coefficients of the log of the variance of errors with these squares, of about 1."""

    def slopes(g: Array) -> tuple[Array, Array]:
        ratio = squares * np.exp(-g)
        return 0.5 * (1 - ratio), 0.5 * np.maximum(ratio, 1.0)  # no step is longer than 1

    return _newton(terms, float(np.log(squares.mean())), slopes)


@dataclass(frozen=True, eq=False)
class Step:
    """What mean and std of z = T(y) tell of the value that many targets share, and of the rest.

    Attributes
    ----------
    value : float
    of_all, of_rest : Functions
        For the chance, and for the rest.
    chance : ndarray of shape (q,)
        Coefficients of its log-odds.
    place, width : ndarrays of shape (r,)
        Those of the mean of the rest, mapped by `rest`, and of the log of its variance.
    rest : TargetTransform
        What maps the rest; its bound is the value if that is the least or the largest of all.
    dof, scale : float
        Of the Student-t of the rest.
    """

    value: float
    of_all: Functions
    of_rest: Functions
    chance: Array
    place: Array
    width: Array
    rest: TargetTransform
    dof: float
    scale: float

    @classmethod
    def learned(cls, y: Array, value: float, said: Moments, ends: tuple[float, float]) -> Step:
        """From targets y (n,) of rows that were left out, within `ends`.

        `said` is the mean and std of z that was predicted for them; without a say of the mean,
        the mean is NaN.
        """
        (mean, std), with_mean = said, not np.isnan(said.mean).any()
        has = y == value
        of_all = Functions.of(mean, std, with_mean=with_mean)
        of_rest = Functions.of(mean[~has], std[~has], with_mean=with_mean)
        chance = _log_odds(of_all(mean, std), has)
        terms = of_rest(mean[~has], std[~has])
        scored = [
            _part(transform, y[~has], terms) for transform in _transforms(y[~has], value, ends)
        ]
        transform, place, width, z, _ = min(scored, key=lambda one: one[-1])
        tail = fit_tail(z)
        coefficients = read_only(chance), read_only(place), read_only(width)
        return cls(value, of_all, of_rest, *coefficients, transform, tail.dof, tail.scale)

    def distribution(self, mean: Array, std: Array) -> SteppedDistribution:
        """Of y at rows where z has this mean and std: (N,)."""
        g = self.of_all(mean, std) @ self.chance
        chance = expit(np.clip(g, -STEP.largest, STEP.largest))
        terms = self.of_rest(mean, std)
        place, width = terms @ self.place, np.exp(0.5 * (terms @ self.width))
        base = PredictiveDistribution(place, width, np.array(self.dof), np.array(self.scale))
        said = self.rest.moments_within(place, width)
        ends = float(self.rest.floor[0]), float(self.rest.ceiling[0])
        rest = TransformedDistribution(base, self.rest, *said, ends)
        # What the rest has at its bound is a part of the step.
        below = rest.cdf(np.full_like(mean, self.value)) if self.is_lowest else 0.0
        above = 1 - base.cdf(self.rest.forward(np.full_like(mean, self.value)))
        own = np.minimum(below + (above if self.is_highest else 0.0), STEP.largest_cut)
        return SteppedDistribution(rest, self.value, chance, (chance - own) / (1 - own))

    def moments(self, mean: Array, std: Array) -> Moments:
        """Mean and std of y at rows where z has this mean and std."""
        y = self.distribution(mean, std)
        return Moments(y.mean, y.std)

    @property
    def is_lowest(self) -> bool:
        """Whether no target is smaller."""
        return bool(self.rest.floor[0] == self.value)

    @property
    def is_highest(self) -> bool:
        """Whether no target is larger."""
        return bool(self.rest.ceiling[0] == self.value)

    def to_json(self) -> dict[str, Any]:
        """Plain names, numbers and lists."""
        knots = {name: getattr(self, name) for name in ("of_all", "of_rest")}
        plain = {
            name: [one.mean_knots.tolist(), one.std_knots.tolist()] for name, one in knots.items()
        }
        coefficients = {name: getattr(self, name).tolist() for name in COEFFICIENTS}
        numbers = {"value": self.value, "dof": self.dof, "scale": self.scale}
        rest = {f"rest_{name}": one for name, one in self.rest.to_json().items()}
        return {**plain, **coefficients, **numbers, **rest}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Step:
        """The same from plain data, which is checked."""
        given = dict(plain)
        for name in ("of_all", "of_rest"):
            given[name] = Functions(*(_checked(one, None) for one in given[name]))
        for name in COEFFICIENTS:
            functions = given["of_all" if name == "chance" else "of_rest"]
            given[name] = _checked(given[name], functions.size)
        names = [name for name in given if name.startswith("rest_")]
        rest = {name.removeprefix("rest_"): given.pop(name) for name in names}
        given["rest"] = TargetTransform.from_json(rest, 1)
        value, dof, scale = (float(given[name]) for name in ("value", "dof", "scale"))
        if not (abs(value) < STEP.largest_number and dof > 1 and 0 < scale < STEP.largest_number):
            raise ValueError("its step is no number, or its rest has no spread")
        return cls(**given)


COEFFICIENTS = ("chance", "place", "width")


def _checked(plain: Any, size: int | None) -> Array:
    """Coefficients of a file, or increasing knots if no size is given."""
    one = np.array(plain, dtype=np.float64)
    right = one.ndim == 1 and np.all(np.abs(one) < STEP.largest_number)
    if not right or (np.any(np.diff(one) <= 0) if size is None else len(one) != size):
        raise ValueError("knots or coefficients of its step are wrong")
    return read_only(one)


def levels_of(z: Array, mean: Array, std: Array) -> Array:
    """Levels of values z (..., N) among normal ones with this mean and std (N,)."""
    return np.clip(ndtr((z - mean) / std), STEP.least_level, 1 - STEP.least_level)


class Moments(NamedTuple):
    """Mean and std of y: (N,) each."""

    mean: Array
    std: Array


def _transforms(rest: Array, value: float, ends: tuple[float, float]) -> list[TargetTransform]:
    """How the rest (m,) may be mapped: not at all, or by the log of its distance from a bound."""
    low = value if rest.min() > value else ends[0]
    high = value if rest.max() < value else ends[1]
    limits = np.array([low]), np.array([high])
    kinds = [TargetTransform.learned("none", rest[:, None])]
    if rest.min() > value:
        kinds.append(TargetTransform.learned("log", rest[:, None] - value).moved(value))
    return [one.cut(*limits) for one in kinds]


def _part(
    transform: TargetTransform, y: Array, terms: Array
) -> tuple[TargetTransform, Array, Array, Array, float]:
    """Place and width of the rest y (m,), errors in units of the width, and their loss."""
    z = transform.forward(y[:, None])[:, 0]
    penalty = STEP.precision * np.eye(terms.shape[1])
    penalty[0, 0] = 0.0
    place = np.asarray(np.linalg.solve(terms.T @ terms + penalty, terms.T @ z), dtype=np.float64)
    unit = max(float(z.var()), (STEP.rounding * float(np.abs(z).max())) ** 2, 1e-300)
    squares = np.maximum((z - terms @ place) ** 2, 1e-12 * unit)
    width = _log_variance(terms, squares / unit)
    width[0] += np.log(unit)
    variance = np.exp(terms @ width)
    loss = normal_nll(squares, variance).mean() - transform.log_slope(y[:, None]).mean()
    return transform, place, width, (z - terms @ place) / np.sqrt(variance), float(loss)


@dataclass(frozen=True, eq=False)
class SteppedDistribution:
    """Independent distributions of N rows: a value with a chance of its own, and the rest.

    F = weight [y >= value] + (1 - weight) G. Where G has a bound at the value it has a step there
    too, so that a weight may be negative; the chance of the value is never.

    Attributes
    ----------
    rest : TransformedDistribution
        G.
    value : float
    chance, weight : ndarrays of shape (N,)
    mean, std : ndarrays of shape (N,)
        Of y, as `predict` returns them.
    """

    rest: TransformedDistribution
    value: float
    chance: Array
    weight: Array
    mean: Array = field(init=False)
    std: Array = field(init=False)

    def __post_init__(self) -> None:
        w, rest = self.weight, self.rest
        mean = w * self.value + (1 - w) * rest.mean
        squares = w * (self.value - mean) ** 2 + (1 - w) * (rest.std**2 + (rest.mean - mean) ** 2)
        object.__setattr__(self, "mean", mean)
        # Rounding, and tails that are not normal, leave something of what is sure.
        least = STEP.least_level * rest.std**2
        object.__setattr__(self, "std", np.sqrt(np.maximum(squares, least)))

    def pdf(self, y: Array) -> Array:
        """Density at y; at the value, its chance."""
        return np.exp(self.logpdf(y))

    def logpdf(self, y: Array) -> Array:
        """Logarithm of the density at y; at the value, that of its chance."""
        with np.errstate(divide="ignore"):
            others = np.log1p(-self.weight) + self.rest.logpdf(y)
        return np.where(np.asarray(y) == self.value, np.log(self.chance), others)

    def cdf(self, y: Array) -> Array:
        """Probability of a value of at most y."""
        step = np.where(np.asarray(y) >= self.value, self.weight, 0.0)
        return np.clip(step + (1 - self.weight) * self.rest.cdf(y), 0.0, 1.0)

    @property
    def below(self) -> Array:
        """Probability of less than the value: (N,)."""
        return np.maximum(self.cdf(np.full_like(self.mean, self.value)) - self.chance, 0.0)

    def ppf(self, level: Array | float) -> Array:
        """The value that is not exceeded with a probability of `level`."""
        level = np.asarray(level, dtype=np.float64)
        if not np.all((level > 0) & (level < 1)):
            raise ValueError(f"levels must lie between 0 and 1, not be {level!r}")
        below, tiny = self.below, STEP.least_level
        beyond = level > below + self.chance
        share = (level - np.where(beyond, self.weight, 0.0)) / (1 - self.weight)
        y = self.rest.ppf(np.clip(share, tiny, 1 - tiny))
        y = np.where(beyond, np.maximum(y, self.value), np.minimum(y, self.value))
        return np.where((level > below) & ~beyond, self.value, y)

    def interval(self, coverage: float) -> tuple[Array, Array]:
        """Ends of the central interval, which holds y with at least this probability."""
        return self.ppf(0.5 - coverage / 2), self.ppf(0.5 + coverage / 2)

    def sample(self, n: int, random_state: int | np.random.Generator | None = None) -> Array:
        """Draw n values for each row: (n, N)."""
        rng = np.random.default_rng(random_state)
        levels = rng.random((n, *self.mean.shape))
        return self.ppf(np.clip(levels, STEP.least_level, 1 - STEP.least_level))

    def crps(self, y: Array) -> Array:
        """Continuous ranked probability score at y."""
        value = np.full_like(self.mean, self.value)
        alone, w = np.abs(value - np.asarray(y)), self.weight
        return w * alone + (1 - w) * (self.rest.crps(y) - w * self.rest.crps(value))


def choose_step(
    y: Array,
    value: float,
    said: Moments,
    one_part: tuple[Any, tuple[Array, Array]],
    together: IndexArray | None = None,
) -> tuple[Step | None, list[Alternative]]:
    """Two parts, if they predict better what has not taught them, and what was compared.

    Parameters
    ----------
    y : ndarray of shape (n,)
        Targets of rows that were left out.
    value : float
        What many of them share.
    said : Moments
        Mean and std of z that was predicted for them.
    one_part : distribution, and two ndarrays of shape (n,)
        Of one part, and ends of its intervals.
    together : ndarray of shape (n,), optional
        Which of the rows err together, and are in one fold: numbers from 0 on.
    """
    plain, interval = one_part
    transform = getattr(plain, "transform", None)
    ends, z = (-np.inf, np.inf), y
    if transform is not None:
        ends = float(transform.floor[0]), float(transform.ceiling[0])
        z = transform.forward(y[:, None])[:, 0]
    if 1 - np.mean((z - said.mean) ** 2) / z.var() < STEP.least_explained:
        said = said._replace(mean=np.full_like(y, np.nan))
    crps, error, (lower, upper) = np.empty_like(y), np.empty_like(y), np.empty((2, len(y)))
    for own in dealt(len(y), 0, together):
        others = Moments(said.mean[~own], said.std[~own])
        if min(np.sum(y[~own] == value), np.sum(y[~own] != value)) < STEP.fewest_rows / 2:
            return None, []
        stepped = Step.learned(y[~own], value, others, ends).distribution(
            said.mean[own], said.std[own]
        )
        crps[own], error[own] = stepped.crps(y[own]), y[own] - stepped.mean
        lower[own], upper[own] = stepped.interval(STEP.coverage)
    if not (np.isfinite(crps).all() and np.isfinite(lower + upper).all()):
        return None, []  # as on Pol, whose stds differ a million times: no fit shall end there
    alone = plain.crps(y)
    scores = [interval_score(y, *one, STEP.coverage) for one in (interval, (lower, upper))]
    before, after = (by_unit(one, together) for one in ((y - plain.mean) ** 2, error**2))
    fewer = gains(by_unit(alone, together), by_unit(crps, together), STEP.min_gain)
    taken = fewer and scores[1] <= scores[0] and not gains(after, before, STEP.most_loss)
    unit = float(y.std())
    compared = [
        Alternative("step", name, float(one.mean()) / unit, taken == (name != "none"))
        for name, one in (("none", alone), (f"{value:g}", crps))
    ]
    return (Step.learned(y, value, said, ends) if taken else None), compared
