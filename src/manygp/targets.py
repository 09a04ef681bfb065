"""Targets as they are: skewed ones are modelled as T(y), and every answer is in the units of y.

Experts, trend, local noise and tails live in the space of z = T(y), where z is as normal as it
can be. T is smooth and increasing, so that quantiles and ends of intervals are mapped back one by
one. Means, standard deviations and covariances are integrals over the normal distribution of z.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.polynomial.legendre import leggauss
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

from manygp.arrays import Array
from manygp.calibration import PredictiveDistribution
from manygp.inputs import read_only


@dataclass(frozen=True)
class TransformNumbers:
    """Numbers of transforms and of integrals over them, and why they are what they are."""

    # Powers of Yeo-Johnson's transform among which the most likely one is sought: beyond them
    # nothing but a few outliers would be seen. One that is nearer to 0 is a logarithm.
    powers: tuple[float, float] = (-2.0, 4.0)
    logarithm: float = 1e-8
    # Nodes of integrals over a normal distribution: exact for exp(z) to 1e-9 up to a std of 3.
    nodes: int = 32
    # Nodes of each half of the integral of a CRPS, and how many scales it reaches to either side,
    # for normal distributions and for others.
    crps_nodes: int = 32
    reach: tuple[float, float] = (9.0, 200.0)
    # Rows that are integrated at a time.
    rows: int = 2**14
    # A std of 0, of a row beyond the bounds, becomes this share of that of z.
    least_std: float = 1e-12
    # A logarithm is straight below this share of the least positive target: what is smaller, and
    # zero, is unlikely then, and not impossible.
    least_share: float = 0.1
    # Rows, and share of rows, that the least value has where it is a hard edge; and how many times
    # those of the next value.
    edge_rows: int = 10
    edge_share: float = 0.01
    edge_pile: float = 3.0
    # Targets beyond are whole by rounding.
    largest_whole: float = 1e9
    # Numbers in a file that are believed.
    largest: float = 1e300


NUMBERS = TransformNumbers()


class Family(NamedTuple):
    """A kind of transform: functions of values and of two numbers for each target, (2, t).

    `learn` takes targets (n,) and returns these numbers; `log_slope` is log dT/dy.
    """

    learn: Callable[[Array], tuple[float, float]]
    forward: Callable[[Array, Array], Array]
    inverse: Callable[[Array, Array], Array]
    log_slope: Callable[[Array, Array], Array]


def _learn_shift(y: Array) -> tuple[float, float]:
    """What is added before the logarithm: half of the smallest positive target if one is 0."""
    if np.any(y < 0):
        raise ValueError(
            "target_transform='log' is for targets that are not negative; the least is "
            f"{y.min():g}: use 'yeo-johnson', or None"
        )
    positive = y[y > 0]
    if len(positive) == len(y) or not len(positive):
        return float(not len(positive)), 1.0
    return float(positive.min()) / 2, 1.0


def _learn_power(y: Array) -> tuple[float, float]:
    """The power of highest likelihood, of targets that have median 0 and std 1."""
    x = (y - np.median(y)) / _spread(y)
    if np.ptp(x) == 0:
        return 1.0, 1.0
    logs = float((np.sign(x) * np.log1p(np.abs(x))).mean())

    def loss(power: float) -> float:
        with np.errstate(all="ignore"):
            spread = float(_yeo_johnson(x, np.array([power])).std())
        return float(np.log(max(spread, 1e-300))) - (power - 1) * logs

    return float(minimize_scalar(loss, bounds=NUMBERS.powers, method="bounded").x), 1.0


def _bent(log: Array, power: Array) -> Array:
    """(exp(power log) - 1) / power, which is log for a power of 0."""
    straight = np.abs(power) < NUMBERS.logarithm
    bent = np.expm1(power * log) / np.where(straight, 1.0, power)
    return np.where(straight, log, bent)


def _unbent(value: Array, power: Array) -> Array:
    """What `_bent` has made of: its inverse."""
    straight = np.abs(power) < NUMBERS.logarithm
    log = np.log1p(np.maximum(power * value, -1.0)) / np.where(straight, 1.0, power)
    return np.where(straight, value, log)


def _yeo_johnson(x: Array, numbers: Array) -> Array:
    log = np.log1p(np.abs(x))
    return np.where(x >= 0, _bent(log, numbers[0]), -_bent(log, 2 - numbers[0]))


def _yeo_johnson_inverse(z: Array, numbers: Array) -> Array:
    up, down = _unbent(np.abs(z), numbers[0]), _unbent(np.abs(z), 2 - numbers[0])
    return np.where(z >= 0, np.expm1(up), -np.expm1(down))


FAMILIES = {
    "none": Family(
        lambda y: (0.0, 1.0),
        lambda x, _: x,
        lambda z, _: z,
        lambda x, _: np.zeros_like(x),
    ),
    "log": Family(
        _learn_shift,
        lambda x, numbers: np.log(np.maximum(x + numbers[0], 0.0)),
        lambda z, numbers: np.exp(z) - numbers[0],
        lambda x, numbers: -np.log(np.maximum(x + numbers[0], 0.0)),
    ),
    "yeo-johnson": Family(
        _learn_power,
        _yeo_johnson,
        _yeo_johnson_inverse,
        lambda x, numbers: (numbers[0] - 1) * np.sign(x) * np.log1p(np.abs(x)),
    ),
}


@dataclass(frozen=True, eq=False)
class TargetTransform:
    """An increasing map T of targets. Arrays have the targets on their last axis.

    Beyond `low` and `high` T is a straight line, its tangent: a heavy tail of z then has a mean
    in the units of y, and extrapolation does not explode. What T maps back is cut at the bounds.

    Attributes
    ----------
    name : str
        One of `FAMILIES`.
    numbers : ndarray of shape (2, t)
        What the family has learned.
    shift, unit : ndarrays of shape (t,)
        The family sees (y - shift) / unit.
    low, high : ndarrays of shape (t,)
    floor, ceiling : ndarrays of shape (t,)
        The bounds of y.
    """

    name: str
    numbers: Array
    shift: Array
    unit: Array
    low: Array
    high: Array
    floor: Array
    ceiling: Array

    @classmethod
    def learned(cls, name: str, Y: Array) -> TargetTransform:
        """That of targets Y (n, t).

        It is straight from half of their range beyond the targets on, and a logarithm also below
        all of them. Where no target is negative, none is predicted to be.
        """
        family, t = FAMILIES[name], Y.shape[1]
        smallest, largest = Y.min(axis=0), Y.max(axis=0)
        shift, unit = np.zeros(t), np.ones(t)
        if name == "yeo-johnson":
            shift, unit = np.median(Y, axis=0), np.array([_spread(y) for y in Y.T])
        numbers = np.array([family.learn(y) for y in Y.T]).T
        endless = np.full(t, np.inf)
        low, high, floor = -endless, endless, -endless
        if name != "none":
            reach = np.where(largest > smallest, (largest - smallest) / 2, np.abs(largest) + 1.0)
            high, floor = largest + reach, np.where(smallest >= 0, 0.0, -np.inf)
            low = smallest - reach if name == "yeo-johnson" else NUMBERS.least_share * smallest
        return cls(name, *map(read_only, (numbers, shift, unit, low, high, floor, endless)))

    def within(self, bounds: tuple[float | None, float | None], Y: Array) -> TargetTransform:
        """The same, cut at bounds (low, high) of y, None being no bound; Y (n, t) are within."""
        low, high = (np.nan if one is None else float(one) for one in bounds)
        floor, ceiling = np.fmax(self.floor, low), np.fmin(self.ceiling, high)
        if np.any(np.clip(Y, floor, ceiling) != Y):
            raise ValueError(
                f"y must lie within bounds={bounds}; it reaches from {Y.min():g} to {Y.max():g}"
            )
        return self.cut(floor, ceiling)

    def cut(self, floor: Array, ceiling: Array) -> TargetTransform:
        """The same, cut at bounds (t,), (t,) of y, which may be infinite, as well."""
        floor, ceiling = np.maximum(self.floor, floor), np.minimum(self.ceiling, ceiling)
        return replace(self, floor=read_only(floor), ceiling=read_only(ceiling))

    def moved(self, by: float) -> TargetTransform:
        """The same of targets that are larger by a number."""
        names = ("shift", "low", "high", "floor", "ceiling")
        shift, *ends = (read_only(getattr(self, name) + by) for name in names)
        return TargetTransform(self.name, self.numbers, shift, self.unit, *ends)

    @property
    def is_identity(self) -> bool:
        """Whether it changes nothing."""
        endless = np.isinf(self.floor).all() and np.isinf(self.ceiling).all()
        return self.name == "none" and bool(endless)

    def require_within(self, Y: Array) -> None:
        """Refuse further targets (k, t) that have no T(y), or lie beyond the bounds."""
        inside = (np.clip(Y, self.floor, self.ceiling) == Y) & np.isfinite(self.forward(Y))
        if not inside.all():
            row, target = np.argwhere(~inside)[0]
            raise ValueError(
                f"the model knows targets by {self.name!r}, from {self.floor[target]:g} to "
                f"{self.ceiling[target]:g}; one is {Y[row, target]:g}: leave such rows out, or "
                "fit again with target_transform='yeo-johnson' or None"
            )

    def forward(self, y: Array) -> Array:
        """T(y); -inf below where T is defined."""
        inner = np.clip(y, self.low, self.high)
        outside = y != inner
        if not outside.any():
            return self._curve(inner)
        slope = np.exp(np.where(outside, self._log_slope(inner), 0.0))
        return self._curve(inner) + np.where(outside, y - inner, 0.0) * slope

    def inverse(self, z: Array) -> Array:
        """The y within the bounds for which T(y) = z."""
        return np.clip(self._inverse(z), self.floor, self.ceiling)

    def log_slope(self, y: Array) -> Array:
        """log dT/dy: what a log density of z gains in the units of y."""
        return self._log_slope(np.clip(y, self.low, self.high))

    def inverse_slope(self, z: Array) -> Array:
        """dy/dz, which is 0 beyond the bounds."""
        y = self._inverse(z)
        held = (y < self.floor) | (y > self.ceiling)
        return np.where(held, 0.0, np.exp(-self.log_slope(y)))

    def _curve(self, y: Array) -> Array:
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            return FAMILIES[self.name].forward((y - self.shift) / self.unit, self.numbers)

    def _log_slope(self, y: Array) -> Array:
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            log = FAMILIES[self.name].log_slope((y - self.shift) / self.unit, self.numbers)
        return log - np.log(self.unit)

    def _inverse(self, z: Array) -> Array:
        with np.errstate(over="ignore", divide="ignore"):
            inner = np.clip(z, self._end(self.low), self._end(self.high))
            y = FAMILIES[self.name].inverse(inner, self.numbers) * self.unit + self.shift
        beyond = z - inner
        if not beyond.any():
            return y
        return y + beyond * np.exp(-np.where(beyond == 0, 0.0, self.log_slope(y)))

    def _end(self, y: Array) -> Array:
        """T of where it becomes straight, or infinity."""
        endless = np.isinf(y)
        return np.where(endless, y, self._curve(np.where(endless, self.shift + self.unit, y)))

    def of_rows(self, alpha: Array, Y: Array) -> tuple[Array, Array]:
        """Known noise variances (n,) and targets Y (n, t), both as those of T(y)."""
        return self.noise(Y, alpha), self.forward(Y)

    def noise(self, y: Array, alpha: Array) -> Array:
        """Known noise variances alpha (N,) of y, as those of T(y) at y (N,) or (N, 1): (N,).

        A small error of y becomes one of T(y) by the slope of T.
        """
        if not alpha.any() or self.name == "none":
            return alpha
        if len(self.unit) > 1:
            raise ValueError(
                "known noise (alpha) of several targets is in no units that could be transformed; "
                "set target_transform=None, or fit each target by itself"
            )
        return alpha * np.exp(2 * self.log_slope(y)).reshape(len(alpha))

    def moments(self, mean: Array, std: Array) -> tuple[Array, Array]:
        """Mean and std of y where z has these.

        Where targets are only cut at bounds, z is y: its mean is that of y however errors are
        spread, and one beyond a bound moves to it, which brings it nearer to whatever y is. The
        std, which left-out rows have corrected, stays. Else z is taken for normal.
        """
        if self.name == "none":
            return np.clip(mean, self.floor, self.ceiling), std
        _, weights, _ = _hermite()
        average, spread = np.empty_like(mean), np.empty_like(mean)
        for rows in _blocks(len(mean)):
            values = self._at_nodes(mean[rows], std[rows])
            with np.errstate(over="ignore", invalid="ignore"):
                average[rows] = np.tensordot(weights, values, 1)
                spread[rows] = _root_of_squares((values - average[rows]).T * np.sqrt(weights))
        average = np.clip(average, self.floor, self.ceiling)
        return average, self._at_least(spread, average, std)

    def moments_within(self, mean: Array, std: Array) -> tuple[Array, Array]:
        """Mean and std of y where z is normal with these, and cut at the bounds."""
        if self.name != "none":
            return self.moments(mean, std)
        # Beyond 40 standard deviations there is nothing left.
        low, high = (
            np.clip((end - mean) / std, -40.0, 40.0) for end in (self.floor, self.ceiling)
        )
        below, above, inside = ndtr(low), ndtr(-high), np.maximum(ndtr(high) - ndtr(low), 0.0)
        a, b = (np.exp(-0.5 * one**2) / np.sqrt(2 * np.pi) for one in (low, high))
        first = low * below + high * above + a - b
        second = low**2 * below + high**2 * above + inside + low * a - high * b
        spread = np.sqrt(np.maximum(second - first**2, NUMBERS.least_std**2))
        return np.clip(mean + std * first, self.floor, self.ceiling), std * spread

    def std_of_mean(self, mean: Array, std: Array, latent: Array) -> Array:
        """Std of what y is on average given the latent function, whose std is `latent`.

        Powers of the correlation are what Hermite's polynomials keep of each other (Mehler).
        """
        if self.name == "none":
            return latent
        spread, orders = np.empty_like(mean), np.arange(1, NUMBERS.nodes)
        for rows in _blocks(len(mean)):
            parts = self._coefficients(mean[rows], std[rows])[1:].T
            powers = np.minimum(latent[rows] / std[rows], 1.0).T[..., None] ** orders
            spread[rows] = _root_of_squares(parts * powers)
        return self._at_least(spread, self.inverse(mean), std)

    def _at_least(self, spread: Array, y: Array, std: Array) -> Array:
        """Stds of y, of which one of 0 becomes a small share of that of z, by the slope at y."""
        with np.errstate(over="ignore", under="ignore"):
            least = NUMBERS.least_std * std * np.exp(-self.log_slope(y))
        return np.where(spread == 0, np.maximum(least, np.finfo(float).tiny), spread)

    def covariance(self, mean: Array, std: Array, cov: Array) -> Array:
        """Joint covariance of y where z is jointly normal: (N, N), or (N, N, t).

        `std` is that of z with all noise; `cov` may lack the noise: then the covariance is that of
        what y is on average given the latent function.
        """
        if self.name == "none":
            return cov
        share = np.clip(cov / (std[:, None] * std[None]), -1.0, 1.0)
        total = np.zeros_like(share)
        for one in self._coefficients(mean, std)[:0:-1]:
            total = (total + one[:, None] * one[None]) * share
        return total

    def expected(self, z: Array, noise: Array) -> Array:
        """What y is on average where z has normal noise of this std."""
        if self.name == "none":
            return self.inverse(z)
        nodes, weights, _ = _hermite()
        total = np.zeros_like(z)
        for node, weight in zip(nodes, weights, strict=True):
            total += weight * self.inverse(z + noise * node)
        return total

    def expected_slopes(
        self, z: Array, z_slope: Array, noise: Array, noise_slope: Array
    ) -> tuple[Array, Array]:
        """`expected` of paths z (N, p) with noise (N,), and its derivatives (N, p, d).

        Those of z are (N, p, d), and of the noise (N, d).
        """
        if self.name == "none":
            return self.inverse(z), self.inverse_slope(z)[..., None] * z_slope
        nodes, weights, _ = _hermite()
        slope = np.zeros_like(z_slope)
        for node, weight in zip(nodes, weights, strict=True):
            rise = weight * self.inverse_slope(z + noise[:, None] * node)
            slope += rise[..., None] * (z_slope + node * noise_slope[:, None])
        return self.expected(z, noise[:, None]), slope

    def _at_nodes(self, mean: Array, std: Array) -> Array:
        """y at the nodes of the integral over z: (K, N) or (K, N, t)."""
        nodes, _, _ = _hermite()
        return self.inverse(mean + std * nodes.reshape(-1, *(1 for _ in mean.shape)))

    def _coefficients(self, mean: Array, std: Array) -> Array:
        """Of y as a sum of Hermite's polynomials of the normalised z: (K, N) or (K, N, t)."""
        _, weights, polynomials = _hermite()
        coefficients: Array = np.tensordot(polynomials * weights, self._at_nodes(mean, std), 1)
        return coefficients

    def to_json(self) -> dict[str, Any]:
        """Plain names, numbers and lists."""
        arrays = {name: one for name, one in vars(self).items() if name != "name"}
        return {"name": self.name, **{name: one.tolist() for name, one in arrays.items()}}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any], n_targets: int) -> TargetTransform:
        """The same from plain data, which is checked."""
        given = dict(fields)
        name = given.pop("name")
        if name not in FAMILIES:
            raise ValueError(f"{str(name)[:50]} is not a transform of targets")
        arrays = {key: np.array(one, dtype=np.float64) for key, one in given.items()}
        transform = cls(name, **{key: read_only(one) for key, one in arrays.items()})
        for key, one in arrays.items():
            shape = (2, n_targets) if key == "numbers" else (n_targets,)
            right = one.shape == shape and not np.isnan(one).any()
            if not (right and np.all(np.isinf(one) | (np.abs(one) < NUMBERS.largest))):
                raise ValueError(f"{key} of its transform of targets is not {shape} numbers")
        finite = np.isfinite([*transform.numbers, transform.shift, transform.unit]).all()
        ordered = (transform.low < transform.high) & (transform.floor < transform.ceiling)
        if not (finite and ordered.all() and (transform.unit > 0).all()):
            raise ValueError("its transform of targets is not increasing")
        return transform._checked_ends()

    def _checked_ends(self) -> TargetTransform:
        """The same, if it has a value and a slope where it becomes straight."""
        for end in (self.low, self.high):
            inner = np.where(np.isinf(end), self.shift + self.unit, end)
            if not np.isfinite([self._curve(inner), self._log_slope(inner)]).all():
                raise ValueError("its transform of targets ends where it has no value")
        return self


def found_bounds(Y: Array) -> tuple[Array, Array]:
    """Bounds (t,), (t,) of targets Y (n, t) that the data shows; infinite where it shows none.

    A hard edge is a least or largest value that many targets share, and few the next one. Zero is
    one for targets that are not negative, and come near it.
    """
    edges = np.array([[_edge(y), -_edge(-y)] for y in Y.T]).T
    spread = np.array([_spread(y) for y in Y.T])
    low = Y.min(axis=0)
    near_zero = (low >= 0) & (low <= spread) & (low < Y.max(axis=0))
    return np.where(near_zero, np.maximum(edges[0], 0.0), edges[0]), edges[1]


def _edge(y: Array) -> float:
    """The least of targets (n,), if it is a hard edge; else minus infinity."""
    values, counts = np.unique(y, return_counts=True)
    often = counts[0] >= max(NUMBERS.edge_rows, NUMBERS.edge_share * len(y))
    if often and len(values) > 2 and counts[0] >= NUMBERS.edge_pile * counts[1]:
        return float(values[0])
    return -np.inf


def are_whole(Y: Array) -> bool:
    """Whether all targets (n, t) are whole numbers, of which there are more than two."""
    few = np.any(Y.max(axis=0) <= Y.min(axis=0) + 1) or np.any(np.abs(Y) >= NUMBERS.largest_whole)
    return bool(not few and np.array_equal(Y, np.round(Y)))


def whole_ends(lower: Array, upper: Array) -> tuple[Array, Array]:
    """Ends of the intervals with the same whole numbers, or the two around if there is none."""
    low, high = np.ceil(lower), np.floor(upper)
    return np.where(low <= high, low, high), np.where(low <= high, high, low)


@cache
def _hermite() -> tuple[Array, Array, Array]:
    """Nodes and weights (K,) of a normal distribution, and normalised polynomials (K, K)."""
    nodes, weights = hermegauss(NUMBERS.nodes)
    polynomials = [np.ones_like(nodes), nodes]
    for k in range(1, len(nodes) - 1):
        following = nodes * polynomials[-1] - np.sqrt(k) * polynomials[-2]
        polynomials.append(following / np.sqrt(k + 1))
    return nodes, weights / weights.sum(), np.array(polynomials)


def _root_of_squares(parts: Array) -> Array:
    """Roots of the sums of squares along the last axis of parts (..., N, K): (N, ...).

    No square overflows, or becomes 0.
    """
    size = np.abs(parts).max(axis=-1)
    shares = parts / np.where(size > 0, size, 1.0)[..., None]
    return np.asarray((size * np.sqrt((shares**2).sum(axis=-1))).T, dtype=np.float64)


def _blocks(n: int) -> list[slice]:
    """Rows that are integrated at a time."""
    return [slice(i, i + NUMBERS.rows) for i in range(0, n, NUMBERS.rows)]


def _spread(y: Array) -> float:
    """The std of targets (n,), whose squares may overflow; 1 if they are constant."""
    size = float(np.abs(y).max()) or 1.0
    return size * float((y / size).std()) or 1.0


@dataclass(frozen=True, eq=False)
class TransformedDistribution:
    """Independent distributions of N rows in the units of y, where T(y) is a Student-t variable.

    Methods take and return arrays whose last axes are those of `mean`: (N,), or (N, t) for
    several targets. At a bound the cdf has a step; the density there is that of the rest.

    Attributes
    ----------
    base : PredictiveDistribution
        Of z = T(y).
    transform : TargetTransform
    mean, std : ndarrays of shape (N,) or (N, t)
        Of y, as `predict` returns them.
    support : tuple of float
        The bounds that the user has set: no value beyond is possible. One beyond bounds that were
        only found is as likely as if nothing were cut.
    """

    base: PredictiveDistribution
    transform: TargetTransform
    mean: Array
    std: Array
    support: tuple[float, float] = (-np.inf, np.inf)

    @property
    def dof(self) -> Array:
        """Degrees of freedom of T(y)."""
        return self.base.dof

    @property
    def scale(self) -> Array:
        """Scale of the Student-t of T(y), in units of its std."""
        return self.base.scale

    def pdf(self, y: Array) -> Array:
        """Density at y."""
        return np.exp(self.logpdf(y))

    def logpdf(self, y: Array) -> Array:
        """Logarithm of the density at y."""
        z = self.transform.forward(np.asarray(y, dtype=np.float64))
        known = np.isfinite(z) & (y >= self.support[0]) & (y <= self.support[1])
        density = self.base.logpdf(np.where(known, z, self.base.mean))
        slope = np.where(known, self.transform.log_slope(np.asarray(y)), 0.0)
        return np.where(known, density + slope, -np.inf)

    def cdf(self, y: Array) -> Array:
        """Probability of a value of at most y."""
        y = np.asarray(y, dtype=np.float64)
        share = self.base.cdf(self.transform.forward(y))
        share = np.where(y < self.transform.floor, 0.0, share)
        return np.where(y >= self.transform.ceiling, 1.0, share)

    def ppf(self, level: Array | float) -> Array:
        """The value that is not exceeded with a probability of `level`."""
        return self.transform.inverse(self.base.ppf(level))

    def interval(self, coverage: float) -> tuple[Array, Array]:
        """Ends of the central interval that holds y with a probability of `coverage`."""
        return self.ppf(0.5 - coverage / 2), self.ppf(0.5 + coverage / 2)

    def sample(self, n: int, random_state: int | np.random.Generator | None = None) -> Array:
        """Draw n values for each row: (n, N) or (n, N, t)."""
        return self.transform.inverse(self.base.sample(n, random_state))

    def crps(self, y: Array) -> Array:
        """Continuous ranked probability score at y: the integral of (F(x) - [x >= y])^2."""
        y = np.broadcast_to(np.asarray(y, dtype=np.float64), self.mean.shape)
        cut = np.clip(y, self.transform.floor, self.transform.ceiling)
        outside, score = np.abs(y - cut), np.empty_like(self.mean)
        for rows in _blocks(len(y)):
            score[rows] = self._crps(rows, cut[rows])
        return score + outside

    def _crps(self, rows: slice, y: Array) -> Array:
        """That of some rows, y within the bounds: an integral over z on either side of T(y)."""
        base = self.base
        shape = base.mean.shape
        mean, width = base.mean[rows], (np.broadcast_to(base.scale, shape) * base.std)[rows]
        dof = np.broadcast_to(base.dof, shape)[rows]
        some = PredictiveDistribution(mean, width, dof, np.ones_like(mean), base.shape_of(rows))
        reach = np.where(np.isinf(dof), *NUMBERS.reach)
        place = (self.transform.forward(y) - mean) / width
        ends = self.transform.floor, self.transform.ceiling
        low, high = (
            (self.transform.forward(np.broadcast_to(one, y.shape)) - mean) / width for one in ends
        )
        place = np.clip(place, np.maximum(low, -1e9), np.minimum(high, 1e9))
        low = np.minimum(np.maximum(low, -reach), place)
        high = np.maximum(np.minimum(high, reach), place)
        nodes, weights = leggauss(NUMBERS.crps_nodes)
        nodes = nodes.reshape(-1, *(1 for _ in y.shape))
        total = np.zeros_like(mean)
        for start, end, upper in ((low, place, False), (place, high, True)):
            a, b = np.arcsinh(start), np.arcsinh(end)
            u = (a + b) / 2 + (b - a) / 2 * nodes  # dense near the centre, far at the ends
            z = mean + width * np.sinh(u)
            share = 1 - some.cdf(z) if upper else some.cdf(z)
            height = share**2 * self.transform.inverse_slope(z) * width * np.cosh(u)
            total += (b - a) / 2 * np.tensordot(weights, height, 1)
        return total
