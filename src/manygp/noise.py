"""Local noise: how much larger or smaller errors are in some places than the model says.

The model's variance is right on average. What is left of squared errors of rows that were left
out, z^2 = error^2 / variance, is described by a smooth function of the row, of its predicted std
and of its predicted mean: z^2 is about exp(g), where g is a sum of splines of each of these and of
random Fourier features of all of them, a Gaussian process on the logarithm of the noise. Its
coefficients maximise the likelihood of normal errors with a Gaussian prior that holds g at 0. How
wide the prior is of the spline of each column, and of the Fourier features, the errors tell.

The factor is bounded by a rule of succession, and left-out folds vote on whether, and how much of
it, is applied.

Several targets share the model's variance. Before local noise each of them has a correction of its
own, a factor or a curve of that variance, where its left-out errors want it, and each has local
noise or none for itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from manygp.arrays import AnyArray, Array, IndexArray
from manygp.calibration import (
    CORRECTION,
    LeftOutErrors,
    by_unit,
    dealt,
    gains,
    is_majority,
    log_level,
    normal_nll,
    recalibrate,
)
from manygp.checks import floats, indices, require
from manygp.fit_report import Alternative
from manygp.inputs import read_only
from manygp.rules import Correction, VarianceCurve
from manygp.runtime.parallel import single_threaded_blas
from manygp.trend.linear import (
    CUBIC,
    Axis,
    Basis,
    Term,
    joined_columns,
    multiply_rows,
    spline_axes,
)


@dataclass(frozen=True)
class NoiseChoice:
    """Numbers of the choice of local noise, and why they are what they are."""

    # Fewer rows that are left out tell nothing about places.
    fewest_rows: int = 100
    # Fourier features, and their length-scale in standard deviations of a feature times the root
    # of their number: half and twice as many, and .3 to 2, changed left-out scores by .02 at most.
    waves: int = 250
    length_scale: float = 0.6
    # Degrees of freedom of the Student-t that waves are drawn from: a Matern-5/2 spectrum.
    degrees: float = 5.0
    # Segments of the spline of each column.
    segments: int = 4
    # Precisions of the prior of the coefficients: that of the mean, which is free; and of the
    # others, from where on they are learned, how firmly they are held there, in coefficients, and
    # at most.
    mean_precision: float = 1e-6
    precision: float = 1.0
    precision_weight: float = 0.5
    most_precision: float = 1e4
    # Rounds in which they are learned, and the change of their logarithms at which these end. More
    # rounds, and rounds in each fold, changed the mean gain of 24 simulations by .0004.
    rounds: int = 8
    precision_tolerance: float = 0.05
    # Rows that are taken to have erred as expected, for each degree of freedom. With 1 instead,
    # simulations of 120 to 250 rows gain .012 more on average, and the worst of 24 small sets
    # drawn from real ones loses .39 instead of .10.
    expected_rows: float = 2.0
    # A mean that explains less of the targets than this tells more of a row's own error than of
    # its place, since what is left out of a mean is known once all others are.
    least_explained: float = 0.5
    # Exponents of the factor that folds choose from.
    strengths: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)
    # Standard errors of its gain that it must gain in all. Of 20 draws of 300 rows of pure noise
    # none took it; with half a standard error six did.
    min_gain: float = 2.0
    # Newton steps, and the change of g at which they end.
    most_steps: int = 30
    tolerance: float = 1e-2
    # The largest g.
    largest: float = 6.0
    # Where the predicted std is this many times larger than any that was seen, the factor has no
    # say.
    far_std: float = 2.0
    # The latent variance is at most this share of the total one.
    largest_latent: float = 1 - 1e-9
    # Knots of a spline of a file, at most.
    most_knots: int = 1000


NOISE = NoiseChoice()
# The largest logarithm of the correction of a target, and of that times local noise.
LARGEST_OWN = 2 * float(np.log(CORRECTION.scales[1]))
LARGEST_LOG = LARGEST_OWN + NOISE.largest


class Features(NamedTuple):
    """Features that the factor is a function of, and its terms.

    Attributes
    ----------
    low, high : ndarrays of shape (D,)
        Ranges of the features; they are held at their ends outside.
    centre, spread : ndarrays of shape (D,)
        Mean and standard deviation of the features.
    basis : Basis
        Splines of each feature.
    waves, phases : ndarrays of shape (D, p), (p,)
    with_mean : bool
        Whether the predicted mean is the last feature.
    """

    low: Array
    high: Array
    centre: Array
    spread: Array
    basis: Basis
    waves: Array
    phases: Array
    with_mean: bool

    @classmethod
    def of(cls, rows: Array, *, with_mean: bool) -> Features:
        """For features of rows that were left out: (n, D)."""
        rng, (_, d) = np.random.default_rng(0), rows.shape
        stretch = np.sqrt(rng.chisquare(NOISE.degrees, NOISE.waves) / NOISE.degrees)
        waves = rng.normal(size=(d, NOISE.waves)) / (NOISE.length_scale * np.sqrt(d) * stretch)
        low, high = rows.min(axis=0), rows.max(axis=0)
        axes = spline_axes(rows, NOISE.segments).values()
        width = np.where(high > low, high - low, 1.0)
        return cls(
            low,
            high,
            rows.mean(axis=0),
            np.maximum(rows.std(axis=0), 1e-12),
            Basis(low, width, tuple(Term((axis,)) for axis in axes)),
            waves,
            rng.uniform(0, 2 * np.pi, NOISE.waves),
            with_mean,
        )

    def columns(self, Z: Any, log_std: Any, mean: Any) -> Any:
        """Features (N, D) of rows Z (N, d) with this log std (N,) and mean (N,)."""
        parts = [Z, log_std[:, None], *([mean[:, None]] if self.with_mean else [])]
        return np.clip(joined_columns(parts), self.low, self.high)

    def near(self, Z: Any, log_std: Any) -> Any:
        """How much the factor has to say about rows: 1, falling to 0 far from all that was seen.

        That is one range outside of the range of the rows, or where the predicted std is
        `NOISE.far_std` times the largest that was seen.
        """
        d = Z.shape[1]
        low, high = self.low[:d], self.high[:d]
        width = np.where(high > low, high - low, 1.0)
        outside = (np.abs(Z - np.clip(Z, low, high)) / width).max(axis=1)
        above = np.maximum((log_std - self.high[d]) / np.log(NOISE.far_std), 0.0)
        return np.clip(1 - outside, 0.0, 1.0) * np.clip(1 - above, 0.0, 1.0)

    @property
    def parts(self) -> IndexArray:
        """The part that each term belongs to: the mean, the spline of a column, waves: (q,)."""
        sizes = [1, *(term.size for term in self.basis.terms), len(self.phases)]
        return np.repeat(np.arange(len(sizes)), sizes)

    def terms(self, columns: Any) -> Any:
        """Values (N, q) of the terms, the first of which is 1."""
        angles = multiply_rows((columns - self.centre) / self.spread, self.waves) + self.phases
        splines, _ = self.basis.functions(columns)
        return joined_columns([splines, np.sqrt(2 / len(self.phases)) * np.cos(angles)])


class OwnCurves(NamedTuple):
    """The correction that each of several targets has of the variance that they share.

    Attributes
    ----------
    curves : tuple of t VarianceCurve
    largest : float
        The largest variance that was left out. Beyond it, where all targets are as uncertain as
        they can be, factors go to 1.
    """

    curves: tuple[VarianceCurve, ...]
    largest: float

    def log_factor(self, target: int, total: Array) -> Array:
        """Logarithm of the factor of total variances (N,): (N,)."""
        beyond = np.maximum(0.5 * np.log(total / self.largest) / np.log(NOISE.far_std), 0.0)
        return np.clip(1 - beyond, 0.0, 1.0) * np.log(self.curves[target](total))

    def to_file(self) -> dict[str, AnyArray]:
        """Arrays that a model file holds."""
        points = [np.array([one.log_variances, one.log_factors]) for one in self.curves]
        own = {f"noise_own_{t}": one for t, one in enumerate(points)}
        return {"noise_largest": np.array([self.largest]), **own}

    @classmethod
    def from_file(cls, arrays: dict[str, AnyArray], n_targets: int) -> OwnCurves | None:
        """The corrections of a file, checked; None if it has none."""
        if "noise_largest" not in arrays:
            return None
        (largest,), curves = floats(arrays, "noise_largest", (1,)).tolist(), []
        for t in range(n_targets):
            name = f"noise_own_{t}"
            points = floats(arrays, name, (2, arrays[name].shape[-1]))
            require(np.all(np.diff(points[0]) > 0), "the correction of a target does not rise")
            require(
                np.all(np.abs(points[1]) <= LARGEST_OWN), "the correction of a target is too large"
            )
            curves.append(VarianceCurve(tuple(points[0].tolist()), tuple(points[1].tolist())))
        require(largest > 0, "its largest variance must be positive")
        return cls(tuple(curves), largest)


@dataclass(frozen=True, eq=False)
class LocalNoise:
    """Factors of the total variance that depend on the row, and on the target.

    Attributes
    ----------
    features : tuple of t Features or None
        Of each target; None where there are too few rows for local noise.
    coefficients : tuple of t ndarrays of shape (q,)
    seen : ndarray of shape (t,)
        Rows that were seen for each one that is taken to have erred as expected: what the rule of
        succession bounds the factor by.
    strength : ndarray of shape (t,)
        Exponent of the factor; 0 for a target without local noise.
    level : ndarray of shape (t,)
        Logarithm of a factor of all rows, at least 0. What few rows teach is too small in some
        places, and these cost more than others gain.
    rows : ndarray of shape (m,)
        Training rows that were left out,
    held_out : ndarray of shape (t, m)
        and the logarithm of the factor of each by folds that have not seen it.
    own : OwnCurves or None
        The correction of each of several targets, which is a part of the factor.
    """

    features: tuple[Features | None, ...]
    coefficients: tuple[Array, ...]
    seen: Array
    strength: Array
    level: Array
    rows: IndexArray
    held_out: Array
    own: OwnCurves | None = None

    def log_factor(self, target: int, Z: Any, total: Any, mean: Any) -> Any:
        """Logarithm of the factor of rows Z (N, d) with a total variance and mean (N,): (N,)."""
        if self.own is None:
            return self._of_place(target, Z, total, mean)
        own = self.own.log_factor(target, total)
        return own + self._of_place(target, Z, total * np.exp(own), mean)

    def _of_place(self, target: int, Z: Any, total: Any, mean: Any) -> Any:
        """The local part of it."""
        features, strength = self.features[target], self.strength[target]
        if features is None or strength == 0:
            return np.zeros(len(Z))
        log_std = 0.5 * np.log(total)
        columns = features.columns(Z, log_std, mean)
        g = multiply_rows(features.terms(columns), self.coefficients[target])
        bounded = _bounded(g, self.seen[target])
        return features.near(Z, log_std) * (strength * bounded + self.level[target])

    def latent(self, variance: Array, total: Array) -> Array:
        """Latent variances (N,), or (t, N) with corrections of their own, before local noise."""
        return variance if self.own is None else variance * np.exp(self.own_logs(total))

    def own_logs(self, total: Array) -> Array:
        """Logarithms of the corrections of each target, of total variances (N,): (t, N)."""
        if self.own is None:
            return np.zeros((len(self.features), len(total)))
        return np.array([self.own.log_factor(t, total) for t in range(len(self.features))])

    def learned_again(
        self, errors: LeftOutErrors, before: Correction, after: Correction
    ) -> LocalNoise:
        """The same with other corrections of targets, by errors and the correction before these.

        `errors` are those of `rows`.
        """
        if len(self.features) == 1:
            return self
        total = errors.variance * before(errors.variance)
        place = self.held_out - self.own_logs(total)
        own = own_curves(errors, after)[0]
        changed = replace(self, own=own)
        held_out = place + changed.own_logs(errors.variance * after(errors.variance))
        return replace(changed, held_out=read_only(np.clip(held_out, -LARGEST_LOG, LARGEST_LOG)))

    def of_left_out(self, rows: IndexArray, log_factors: Array) -> Array:
        """Logarithms (t, N) of training rows that are left out: those of folds where there are.

        `log_factors` (t, N) are those by all rows.
        """
        order = np.argsort(self.rows, kind="stable")
        place = order[np.searchsorted(self.rows, rows, sorter=order) % len(order)]
        known = self.rows[place] == rows
        return np.where(known, self.held_out[:, place], log_factors)

    def to_file(self) -> dict[str, AnyArray]:
        """Arrays that a model file holds."""
        arrays: dict[str, AnyArray] = {
            "noise_rows": self.rows.astype(np.int32),
            "noise_held_out": self.held_out,
            "noise_seen": self.seen,
            "noise_strength": self.strength,
            "noise_level": self.level,
            **({} if self.own is None else self.own.to_file()),
        }
        for t, (one, coefficients) in enumerate(
            zip(self.features, self.coefficients, strict=True)
        ):
            if one is None:
                continue
            arrays |= {
                f"noise_range_{t}": np.array([one.low, one.high, one.centre, one.spread]),
                f"noise_waves_{t}": np.vstack([one.waves, one.phases]),
                f"noise_with_mean_{t}": np.array([int(one.with_mean)], dtype=np.int32),
                f"noise_coefficients_{t}": coefficients,
                f"noise_columns_{t}": np.array(
                    [[a.column, a.degree, len(a.knots)] for ((a,),) in one.basis.terms],
                    dtype=np.int32,
                ).reshape(-1),
                f"noise_knots_{t}": np.array([k for ((a,),) in one.basis.terms for k in a.knots]),
            }
        return arrays

    @classmethod
    def from_file(cls, arrays: dict[str, AnyArray], n: int, shape: tuple[int, int]) -> LocalNoise:
        """The noise of a file of n rows with d columns and t targets, checked."""
        d, n_targets = shape
        rows = indices(arrays, "noise_rows", n)
        require(len(rows) > 0, "its noise was learned from no rows")
        strength = floats(arrays, "noise_strength", arrays["noise_strength"].shape)
        require(strength.shape in ((1,), (n_targets,)), "its noise has no strength")
        strength = np.broadcast_to(strength, n_targets)  # one, in files of version 0.4
        seen = floats(arrays, "noise_seen", (n_targets,))
        held_out = floats(arrays, "noise_held_out", (n_targets, len(rows)))
        level = np.zeros(n_targets)  # as in files of version 0.3
        if "noise_level" in arrays:
            level = floats(arrays, "noise_level", (n_targets,))
        within = np.all((strength >= 0) & (strength <= 1))
        require(within, "the strength of its noise must lie between 0 and 1")
        require(np.all(seen >= 0), "the rows of its noise must not be negative")
        require(
            np.all((level >= 0) & (level <= NOISE.largest)),
            f"the level of its noise must lie between 0 and {NOISE.largest:g}",
        )
        own = OwnCurves.from_file(arrays, n_targets)
        largest = NOISE.largest if own is None else LARGEST_LOG
        require(np.all(np.abs(held_out) <= largest), "a factor of its noise is too large")
        fits = [_read_features(arrays, t, d) for t in range(n_targets)]
        features, coefficients = zip(*fits, strict=True)
        return cls(features, coefficients, seen, strength, level, rows, held_out, own)


def _read_features(arrays: dict[str, AnyArray], t: int, d: int) -> tuple[Features | None, Array]:
    """Features and coefficients (q,) of one target, from a file."""
    if f"noise_range_{t}" not in arrays:
        return None, np.empty(0)
    (with_mean,) = indices(arrays, f"noise_with_mean_{t}", 2).tolist()
    width = d + 1 + with_mean
    low, high, centre, spread = floats(arrays, f"noise_range_{t}", (4, width))
    require(np.all(low <= high) and np.all(spread > 0), "a column of its noise has no width")
    waves = floats(arrays, f"noise_waves_{t}", (width + 1, NOISE.waves))
    terms = _read_splines(arrays, t, width)
    basis = Basis(low, np.where(high > low, high - low, 1.0), terms)
    size = basis.size + NOISE.waves
    coefficients = floats(arrays, f"noise_coefficients_{t}", (size,))
    features = Features(low, high, centre, spread, basis, waves[:-1], waves[-1], bool(with_mean))
    return features, coefficients


def _read_splines(arrays: dict[str, AnyArray], t: int, width: int) -> tuple[Term, ...]:
    """The spline of each column, from a file."""
    axes = indices(arrays, f"noise_columns_{t}", NOISE.most_knots + 1)
    require(len(axes) <= 3 * width and len(axes) % 3 == 0, "its noise has too many splines")
    columns, degrees, counts = axes.reshape(-1, 3).T
    knots = floats(arrays, f"noise_knots_{t}", (int(counts.sum()),))
    require(np.all(columns < width), "its noise needs a column that the rows do not have")
    require(
        np.all((degrees >= 1) & (degrees <= CUBIC)),
        "a spline of its noise must have a degree of 1 to 3",
    )
    require(np.all(counts >= 2), "a spline of its noise must have two knots or more")
    pieces = np.split(knots, np.cumsum(counts)[:-1])
    require(all(np.all(np.diff(one) > 0) for one in pieces), "the knots of its noise do not rise")
    return tuple(
        Term((Axis(int(column), tuple(piece.tolist()), int(degree)),))
        for column, degree, piece in zip(columns, degrees, pieces, strict=True)
    )


def _bounded(g: Any, seen: float) -> Any:
    """The logarithm of (seen exp(g) + 1) / (seen + 1): one more row might err as expected."""
    held = np.clip(g, -NOISE.largest, NOISE.largest)
    return np.log((seen * np.exp(held) + 1) / (seen + 1))


class _Sums(NamedTuple):
    """Terms H (n, q) of rows, their products H'H (q, q), and the part of each term (q,)."""

    terms: Array
    square: Array
    parts: IndexArray

    def without(self, rows: AnyArray) -> _Sums:
        """The same of all rows but some: a mask (n,)."""
        some = self.terms[rows]
        return self._replace(terms=self.terms[~rows], square=self.square - some.T @ some)


def _learn_all(sums: _Sums, squares: Array) -> tuple[Array, Array, float]:
    """Coefficients (q,), precisions (P,) of their prior, and the effective number of the former.

    Precisions, one for each part, are those under which the errors are likeliest (MacKay's rule):
    the prior of a part, such as the spline of a column, is as wide as its coefficients are found
    to be. What says nothing about the noise vanishes.
    """
    precisions = np.full(sums.parts[-1] + 1, NOISE.precision)
    precisions[0] = NOISE.mean_precision
    start = None
    for _ in range(NOISE.rounds):
        b, factor = _fit(sums, squares, precisions, start)
        used, start = precisions, b
        precisions = _precisions(sums.parts, used, factor, b)
        if np.abs(np.log(precisions / used)).max() < NOISE.precision_tolerance:
            break
    return b, used, float(np.trace(cho_solve(factor, sums.square / 2)))


def _precisions(parts: IndexArray, before: Array, factor: Any, b: Array) -> Array:
    """The precision of each part for which coefficients b (q,) and their factor speak: (P,)."""
    variance = np.diag(cho_solve(factor, np.eye(len(b))))
    known = np.maximum(np.bincount(parts) - before * np.bincount(parts, variance), 0.0)
    weight = NOISE.precision_weight
    after = (known + weight) / (np.bincount(parts, b**2) + weight / NOISE.precision)
    after[0] = NOISE.mean_precision
    return np.minimum(after, NOISE.most_precision)


def _fit(
    sums: _Sums, squares: Array, precisions: Array, start: Array | None = None
) -> tuple[Array, Any]:
    """Coefficients (q,) of highest posterior density, and the factor of its curvature.

    The likelihood of normal errors whose variance is exp(H b) has the curvature H'H / 2 on
    average: steps by that never leave what the prior allows.
    """
    H, precision = sums.terms, precisions[sums.parts]
    factor = cho_factor(sums.square / 2 + np.diag(precision))
    b = np.zeros(len(precision))
    b[0] = np.log(max(squares.mean(), 1e-12))
    b = b if start is None else start
    g = H @ b

    def excess(g: Array) -> Array:
        held = np.clip(g, -NOISE.largest, NOISE.largest)
        return np.minimum(squares * np.exp(-held), CORRECTION.largest_square) - 1

    for _ in range(NOISE.most_steps):
        step = cho_solve(factor, H.T @ excess(g) / 2 - precision * b)
        moved = H @ step
        change = np.abs(moved).max()
        share = min(1.0, 1.5 / max(change, 1e-300))
        # Where few rows tell more than is expected, a whole step leads to and fro.
        before, after = (
            moved @ excess(g + part * moved) / 2 - step @ (precision * (b + part * step))
            for part in (0.0, share)
        )
        share *= before / (before - after) if after < 0 < before else 1.0
        b, g = b + step * share, g + moved * share
        if change < NOISE.tolerance:
            break
    return b, factor


def learn_noise(
    errors: LeftOutErrors,
    curve: Correction,
    X: Array,
    *,
    forced: bool | None = False,
    together: IndexArray | None = None,
) -> tuple[LocalNoise | None, list[Alternative]]:
    """Local noise, and corrections of several targets, if rows that were left out want them.

    Returned with what was compared.

    Parameters
    ----------
    errors : LeftOutErrors
    curve : VarianceCurve or Recalibration
        The correction that comes before.
    X : ndarray of shape (n, d)
        All training rows, normalised.
    forced : bool or None
        Whether local noise is taken whatever folds say; None if it is not to be learned.
    together : ndarray of shape (N,), optional
        See `dealt`.
    """
    own, compared = own_curves(errors, curve, together)
    every = [_of_target(errors, curve, own, t) for t in range(len(errors.squares))]
    places = []
    for t, one in enumerate(every):
        name = "local noise" if len(every) == 1 else f"local noise of target {t}"
        place, more = _learn_place(one, X, forced, together)
        compared += [alternative._replace(parameter=name) for alternative in more]
        places.append(place or _Place.none(len(one.variance)))
    features, coefficients, seen, strength, level, held_out = zip(*places, strict=True)
    if own is None and not any(strength):
        return None, compared
    noise = LocalNoise(
        features,
        tuple(read_only(one) for one in coefficients),
        np.array(seen),
        np.array(strength),
        np.array(level),
        errors.rows,
        np.array(held_out),
        own,
    )
    logs = noise.held_out + noise.own_logs(errors.total(curve) - errors.alpha)
    return replace(noise, held_out=read_only(logs)), compared


def own_curves(
    errors: LeftOutErrors, curve: Correction, together: IndexArray | None = None
) -> tuple[OwnCurves | None, list[Alternative]]:
    """The corrections of several targets beside the one that they share, and what was compared.

    None if no target wants any. See `learn_noise`.
    """
    n_targets = len(errors.squares)
    if n_targets == 1:
        return None, []
    found = [recalibrate(_of_target(errors, curve, None, t), together) for t in range(n_targets)]
    compared = [
        one._replace(parameter=f"correction of target {t}")
        for t, (_, alternatives) in enumerate(found)
        for one in alternatives
    ]
    curves = tuple(one for one, _ in found)
    if not any(one.log_factors for one in curves):
        return None, compared
    return OwnCurves(curves, float((errors.total(curve) - errors.alpha).max())), compared


def _of_target(
    errors: LeftOutErrors, curve: Correction, own: OwnCurves | None, target: int
) -> LeftOutErrors:
    """The errors of one target, whose variances are corrected ones."""
    total, only = errors.total(curve) - errors.alpha, slice(target, target + 1)
    if own is not None:
        total = total * np.exp(own.log_factor(target, total))
    return errors._replace(squares=errors.squares[only], variance=total, means=errors.means[only])


class _Place(NamedTuple):
    """What one target has of `LocalNoise`, without its own correction."""

    features: Features | None
    coefficients: Array
    seen: float
    strength: float
    level: float
    held_out: Array

    @classmethod
    def none(cls, n: int) -> _Place:
        """That of a target without local noise, of n rows."""
        return cls(None, np.empty(0), 0.0, 0.0, 0.0, np.zeros(n))


def _learn_place(
    errors: LeftOutErrors, X: Array, forced: bool | None, together: IndexArray | None
) -> tuple[_Place | None, list[Alternative]]:
    """Local noise of one target, if its errors want it; the variances are corrected."""
    n = len(errors.variance)
    if n < NOISE.fewest_rows or forced is None:
        return None, []
    total, alpha = errors.variance, errors.alpha
    squares = np.maximum(errors.squares[0] - alpha, 0.0)
    folds = dealt(n, 1, together)
    with single_threaded_blas():
        features, coefficients, seen, logs = _learn_target(
            X[errors.rows], total, errors.means[0], squares, folds
        )
    before = normal_nll(errors.squares[0], total + alpha)

    def units(nll: Array) -> Array:
        return by_unit(nll, together)

    best, best_nll = 0.0, before
    for strength in NOISE.strengths:
        nll = normal_nll(errors.squares[0], total * np.exp(strength * logs) + alpha)
        if gains(units(best_nll), units(nll)):  # the weaker one, if that is as good
            best, best_nll = strength, nll
    votes = sum(best_nll[one].mean() < before[one].mean() for one in folds)
    clear = gains(units(before), units(best_nll), NOISE.min_gain)
    taken = forced or (clear and is_majority(votes, len(folds)))
    alternatives = [
        Alternative("local noise", "constant", float(before.mean()), not taken),
        Alternative("local noise", "local", float(best_nll.mean()), taken),
    ]
    if not taken:
        return None, alternatives
    strength = best or NOISE.strengths[0]
    level = float(log_level(squares / (total * np.exp(strength * logs))))
    held_out = np.minimum(strength * logs + level, NOISE.largest)
    return _Place(features, coefficients, seen, strength, level, held_out), alternatives


def _learn_target(
    Z: Array, total: Array, mean: Array, squares: Array, folds: list[AnyArray]
) -> tuple[Features, Array, float, Array]:
    """Features, coefficients, rows that speak for them, and factors by folds: (n,)."""
    spread = float(mean.var() + squares.mean())
    with_mean = squares.mean() < (1 - NOISE.least_explained) * spread
    columns = [Z, 0.5 * np.log(total)[:, None], *([mean[:, None]] if with_mean else [])]
    rows = np.hstack(columns)
    features = Features.of(rows, with_mean=bool(with_mean))
    H = features.terms(rows)
    sums, z = _Sums(H, H.T @ H, features.parts), squares / total
    coefficients, precisions, size = _learn_all(sums, z)
    seen = len(z) / size / NOISE.expected_rows
    held_out = np.empty(len(z))
    for inside in folds:
        b, _ = _fit(sums.without(inside), z[~inside], precisions)
        held_out[inside] = _bounded(H[inside] @ b, seen)
    return features, coefficients, seen, held_out


def split_variance(latent: Array, total: Array) -> tuple[Array, Array]:
    """Latent and noise variances of a total: the latent one stays, if it is not larger."""
    kept = np.minimum(latent, NOISE.largest_latent * total)
    return kept, total - kept
