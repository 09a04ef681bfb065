"""Whatever the data and the parameters: a clear error, or a finite answer with std > 0.

Each example is a `Problem`, a recipe of a few words and numbers. A failing one is printed as it
was written and can be pasted into an `@example`.
"""

import pickle
import re
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from zlib import crc32

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import kernels as sk

from data import read_only
from manygp import ManyGPRegressor
from manygp.committee.committee import PARTITIONS
from manygp.inputs import features, scaled_rows
from manygp.kernels import (
    RBF,
    Additive,
    Constant,
    Linear,
    Matern,
    Pairwise,
    Periodic,
    RationalQuadratic,
    Sum,
    White,
)
from manygp.rules import AGGREGATIONS, CALIBRATIONS, WEIGHTINGS
from manygp.settings import SHRINKAGES

# Errors that name what is wrong. Any other is a leak from within.
CLEAR = re.compile(
    r"(X|y) is too large in (column|row)"
    r"|Input (X|y) contains (NaN|infinity), first in (column|row)"
    r"|aggregation='(grbcm|nested)' needs one kernel for all experts"
    r"|training rows can promise a coverage of at most"
    r"|variances in the squared units of y|beyond floating point"
    r"|the covariance of the expert with the rows .* add White"
    r"|the kernel .* multiplies noise|the kernel is only noise"
    r"|alpha is too large for|cannot be learned from one row"
    r"|must have at least \d+ rows|ENCE needs \d+ rows|a single training row"
    r"|std, in the units of y"
)
# The warnings that are promised.
DOCUMENTED = (
    r"y is constant|one row tells nothing|y has a standard deviation of|rows \d+ and \d+ are equal"
    r"|The optimal value found for|1 row is a copy|[0-9,]+ rows are copies"
)


# Columns: (rng, n) -> (n,)


def clustered(rng, n):
    return rng.integers(0, 3, n) + 1e-3 * rng.normal(size=n)


def with_outlier(values):
    values = np.array(values, dtype=float)
    values[len(values) // 2] += 1e6
    return values


COLUMNS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "uniform": lambda rng, n: rng.uniform(size=n),
    "constant": lambda rng, n: np.full(n, 3.7),
    "zero": lambda rng, n: np.where(rng.uniform(size=n) < 0.5, 0.0, -0.0),
    "integers": lambda rng, n: rng.integers(-5, 100, n).astype(float),
    "few": lambda rng, n: rng.choice([0.1, 0.2, 7.0], n),
    "one-hot": lambda rng, n: (np.arange(n) % 5 == rng.integers(5)).astype(float),
    "sorted": lambda rng, n: np.sort(rng.normal(size=n)),
    "grid": lambda rng, n: np.arange(n, dtype=float),
    "clustered": clustered,
    "offset": lambda rng, n: 1e9 + rng.normal(size=n),
    "last digits": lambda rng, n: 1 + 2.0**-52 * rng.integers(0, 4, n),
    "outlier": lambda rng, n: with_outlier(rng.normal(size=n)),
    "heavy": lambda rng, n: rng.standard_cauchy(n) ** 3,
}
ARRANGEMENTS = {
    "drawn": lambda rng, X: X,
    "repeated": lambda rng, X: X[rng.integers(0, 1 + len(X) // 4, len(X))],
    "equal": lambda rng, X: X[np.zeros(len(X), dtype=int)],
    "in pairs": lambda rng, X: X.repeat(2, axis=0)[: len(X)],
    "clones": lambda rng, X: X[:, :1].repeat(X.shape[1], axis=1),
    "sorted": lambda rng, X: X[np.lexsort(X.T)],
}
# Targets: (rng, X in the unit cube) -> (n,)
TARGETS = {
    "smooth": lambda rng, U: np.sin(5 * U.sum(axis=1)) + 0.1 * rng.normal(size=len(U)),
    "exact": lambda rng, U: np.sin(5 * U.sum(axis=1)),
    "linear": lambda rng, U: U @ np.arange(1.0, 1 + U.shape[1]) + 2,
    "noise": lambda rng, U: rng.normal(size=len(U)),
    "constant": lambda rng, U: np.full(len(U), 0.1),
    "zero": lambda rng, U: np.zeros(len(U)),
    "step": lambda rng, U: (U[:, 0] > 0.5).astype(float),
    "by cluster": lambda rng, U: np.floor(3 * U[:, 0]),
    "integers": lambda rng, U: rng.integers(0, 50, len(U)).astype(float),
    "outlier": lambda rng, U: with_outlier(rng.normal(size=len(U))),
    "all but one": lambda rng, U: with_outlier(np.ones(len(U))),
    "offset": lambda rng, U: 1e9 + rng.normal(size=len(U)),
    "last digits": lambda rng, U: 1 + 2.0**-52 * rng.integers(0, 4, len(U)),
}
# Queries: (rng, X) -> rows
QUERIES = {
    "training": lambda rng, X: X[:12],
    "between": lambda rng, X: (X[:8] + X[::-1][:8]) / 2,
    "one": lambda rng, X: X[-1:],
    "beyond": lambda rng, X: X[:5] + 3 * np.ptp(X, axis=0) + 1,
    "far": lambda rng, X: X[:5] + 1e6 * (np.ptp(X, axis=0) + np.abs(X[:5]) + 1),
    "millions": lambda rng, X: 1e6 * rng.normal(size=(5, X.shape[1])),
    "zero": lambda rng, X: np.zeros((2, X.shape[1])),
    "mixed": lambda rng, X: np.concatenate([X[:3], X[:3], X[:2] * 1e6, 1e3 + X[:1]]),
}


def table(library, values):
    module = pytest.importorskip(library)
    if values.ndim == 1:
        return module.Series("y", values) if library == "polars" else module.Series(values)
    names = [f"c{i}" for i in range(values.shape[1])]
    return module.DataFrame(dict(zip(names, values.T, strict=True)))


CONTAINERS = {
    "array": np.ascontiguousarray,
    "fortran": np.asfortranarray,
    "strided": lambda values: values.repeat(2, axis=0)[::2],
    "reversed": lambda values: values[::-1].copy()[::-1],
    "read-only": read_only,
    "list": lambda values: values.tolist(),
    "pandas": lambda values: table("pandas", values),
    "polars": lambda values: table("polars", values),
}
DTYPES = ("float64", "float32", "float16", "int64", "int8", "bool", "object", "longdouble")


def cast(values, dtype):
    with np.errstate(over="ignore", invalid="ignore"):  # infinities are for fit to refuse
        return values > np.median(values) if dtype == "bool" else values.astype(dtype)


@dataclass(frozen=True)
class Problem:
    """Data and a model. Columns and targets are pairs of a kind and a power of ten."""

    columns: tuple = (("normal", 0), ("uniform", 0))
    targets: tuple = (("smooth", 0),)
    n_rows: int = 30
    arrangement: str = "drawn"
    dtype: str = "float64"
    target_dtype: str = "float64"
    container: str = "array"
    queries: str = "between"
    alpha: float | str = 0.0
    parameters: dict = field(default_factory=dict)
    seed: int = 0

    @cached_property
    def _drawn(self):
        rng, n = np.random.default_rng(self.seed), self.n_rows
        X = np.column_stack([COLUMNS[kind](rng, n) for kind, _ in self.columns])
        X = ARRANGEMENTS[self.arrangement](rng, X)
        span = np.ptp(X, axis=0)
        U = (X - X.min(axis=0)) / np.where(span > 0, span, 1.0)
        Y = np.column_stack([TARGETS[kind](rng, U) for kind, _ in self.targets])
        with np.errstate(over="ignore"):
            return X * _powers(self.columns), Y * _powers(self.targets)

    @cached_property
    def X(self):
        return CONTAINERS[self.container](cast(self._drawn[0], self.dtype))

    @cached_property
    def y(self):
        Y = cast(self._drawn[1], self.target_dtype)
        return CONTAINERS[self.container](Y[:, 0] if Y.shape[1] == 1 else Y)

    @cached_property
    def plain_rows(self):
        """The rows to predict."""
        rng = np.random.default_rng(self.seed + 1)
        X = cast(self._drawn[0], self.dtype).astype(float)
        with np.errstate(over="ignore", invalid="ignore"):
            return QUERIES[self.queries](rng, X)

    @cached_property
    def rows(self):
        return CONTAINERS[self.container](self.plain_rows)

    @cached_property
    def plain_y(self):
        return np.asarray(self.y, dtype=float)

    @cached_property
    def n_distinct(self):
        """Of the targets, that with the fewest values."""
        return min(len(np.unique(column)) for column in self.plain_y.reshape(self.n_rows, -1).T)

    def model(self, **changes):
        alpha = self.alpha
        if alpha == "per row":
            alpha = np.random.default_rng(self.seed).choice([0.0, 1e-6, 0.5], self.n_rows)
        return ManyGPRegressor(**{"random_state": 0, **self.parameters, "alpha": alpha, **changes})


def _powers(pairs):
    return np.array([10.0**power for _, power in pairs])


# Mostly none, or few problems would get past the refusals.
POWERS = st.one_of(*[st.just(0)] * 4, st.integers(-9, 9), st.integers(-300, 300))
# Mostly few, or few problems would have several experts.
POINTS = st.sampled_from([3, 4, 5, 6, 8, 10, 4, 7, 9, 12, 20, 30])
SCALES = st.sampled_from([1.0, 0.1, 30.0, 1e-3, 1e-5, 1e5])
BOUNDS = st.sampled_from([(1e-5, 1e5), "fixed", (0.5, 2.0), (1e-10, 1e10)])


@st.composite
def kernels(draw, d):
    """A kernel of the library for d columns, or None for the default."""
    lengths = st.one_of(SCALES, st.tuples(*[SCALES] * d))
    smoothness = st.sampled_from([0.5, 1.5, 2.5])
    leaves = st.one_of(
        st.builds(RBF, lengths, BOUNDS),
        st.builds(Matern, lengths, BOUNDS, nu=smoothness),
        *(
            st.builds(kind, lengths, lengths, BOUNDS, BOUNDS, smoothness)
            for kind in ([Additive, Pairwise] if d > 1 else [Additive])
        ),
        st.builds(RationalQuadratic, lengths, SCALES, BOUNDS, BOUNDS),
        st.builds(Linear, SCALES, BOUNDS),
        st.builds(Periodic, SCALES, SCALES, BOUNDS, BOUNDS),
        st.builds(Constant, SCALES, BOUNDS),
    )
    signals = st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda a, b: a + b, inner, inner),
            st.builds(lambda a, b: a * b, inner, inner),
        ),
        max_leaves=3,
    )
    signal = draw(signals)
    noise = draw(st.one_of(st.none(), st.builds(White, SCALES, BOUNDS)))
    return signal if noise is None else Sum(signal, noise)


def parameters(d):
    """Parameters of a small model for d columns; what is left out is the library's default."""
    some = st.sampled_from
    return st.fixed_dictionaries(
        {"points_per_expert": POINTS},
        optional={
            "kernel": kernels(d),
            "overlap": some(["auto", 0, 0.4, 1, 3.0, 100]),
            "partition": some(list(PARTITIONS)),
            "weighting": some(list(WEIGHTINGS)),
            "temperature": some(["auto", 0, 1.0, 1e3]),
            "calibration": some(["auto", *CALIBRATIONS]),
            "aggregation": some(list(AGGREGATIONS)),
            "hyperparameters": some(["auto", *SHRINKAGES]),
            "routing": some(["auto", None, 1, 2, 50, 0.1, 0.999]),
            "trend": some(["auto", "none", "constant", "linear"]),
            "normalize_X": some([None, True, False]),
            "normalize_y": st.booleans(),
            "n_restarts_optimizer": some([0, 1]),
        },
    )


@st.composite
def problems(draw, max_targets=2):
    some = st.sampled_from
    kinds = st.tuples(some(list(COLUMNS)), POWERS)
    columns = draw(st.lists(kinds, min_size=1, max_size=6).map(tuple))
    targets = st.tuples(some(list(TARGETS)), POWERS)
    return Problem(
        columns,
        draw(st.lists(targets, min_size=1, max_size=max_targets).map(tuple)),
        draw(st.one_of(st.integers(1, 19), st.integers(20, 60), st.integers(20, 60))),
        draw(some(list(ARRANGEMENTS))),
        draw(st.one_of(st.just("float64"), some(DTYPES))),
        draw(st.one_of(st.just("float64"), some(DTYPES))),
        draw(some(list(CONTAINERS))),
        draw(some(list(QUERIES))),
        draw(st.one_of(st.just(0.0), some([1e-10, 0.01, 1.0, 1e10, "per row"]))),
        draw(parameters(len(columns))),
        draw(st.integers(0, 2**16)),
    )


# What is checked


def attempt(function, *args, **options):
    """What it returns, or None where it refuses with a clear error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", DOCUMENTED, UserWarning)
        try:
            return function(*args, **options)
        except (ValueError, TypeError) as error:
            # NumPy's LinAlgError is a ValueError too.
            if isinstance(error, np.linalg.LinAlgError) or not CLEAR.search(str(error)):
                raise
            return None


def fit(problem, **changes):
    """The fitted model, or None where fit refuses, which it does without a trace."""
    model = problem.model(**changes)
    before = dict(vars(model))
    if attempt(model.fit, problem.X, problem.y) is None:
        assert vars(model) == before
        return None
    return model


def answers(model, rows):
    """Mean and std, or None where the rows are refused."""
    predicted = attempt(model.predict, rows, return_std=True)
    return None if predicted is None else np.stack(predicted)


def assert_sound(mean, std):
    assert np.all(np.isfinite(mean))
    assert np.all(np.isfinite(std))
    assert np.all(std > 0)


def contents(data):
    """Type and values of a container, to the last bit."""
    return type(data), getattr(data, "dtype", None), repr(np.asarray(data).tolist())


def spread(problem, *answers):
    """The scale of y that rounding is measured by: (), or (t,)."""
    sizes = np.abs(np.concatenate([problem.plain_y, *answers]))
    return sizes.max(axis=0) + np.finfo(float).tiny


def prior_std(model, rows):
    """The largest std that an expert has before it sees data, in the units of y: (N, t)."""
    Z = scaled_rows(features(model, rows), model._model.x_scaling, model._model.columns)
    variances = [expert.kernel.diag(Z) for expert in model.experts_]
    return np.sqrt(np.max(variances, axis=0))[:, None] * model._model.y_scaling.scale


def few(n_examples):
    """The same examples each time, so that a test does not fail by chance.

    They follow from its name: others would be tried whenever a word of it changes.
    """
    limits = settings(
        max_examples=n_examples,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: seed(crc32(f"{test.__name__} 1".encode()))(limits(test))


# Answers


@few(80)
@given(problems())
def test_answers_are_finite_with_positive_std_or_errors_are_clear(problem):
    model = fit(problem)
    if model is None:
        return
    for latent in (False, True):
        for rows in (problem.X, problem.rows):
            predicted = attempt(model.predict, rows, return_std=True, latent=latent)
            if predicted is not None:
                assert_sound(*predicted)
                assert_array_equal(model.predict(rows), predicted[0])
        left_out = attempt(model.loo_predict, latent=latent)
        if left_out is not None:
            assert_sound(*left_out)
    scores = attempt(model.loo_score)
    assert scores is None or np.all(np.isfinite(list(scores.values())))


@few(20)
@given(problems())
def test_nothing_that_is_passed_in_is_changed(problem):
    data = (problem.X, problem.y, problem.rows)
    before = [contents(one) for one in data]
    model = problem.model()
    parameters = repr(model.get_params())
    if attempt(model.fit, problem.X, problem.y) is not None:
        fitted = dict(vars(model))
        answers(model, problem.rows)
        attempt(model.predict_interval, problem.rows, 0.5)
        attempt(model.sample_y, problem.rows)
        attempt(model.loo_predict)
        assert vars(model) == fitted
    assert repr(model.get_params()) == parameters
    assert [contents(one) for one in data] == before


@few(40)
@given(problems())
def test_a_joint_covariance_is_one_and_has_the_variances_on_its_diagonal(problem):
    model = fit(problem)
    predicted = None if model is None else answers(model, problem.rows)
    if predicted is None:
        return
    mean, std = predicted.reshape(2, len(predicted[0]), -1)
    samples = attempt(model.sample_y, problem.rows, 3)
    assert np.all(np.isfinite(samples))
    joint = attempt(model.predict, problem.rows, return_cov=True)
    if joint is None:
        return
    assert_array_equal(joint[0], predicted[0])
    # Rounding is that of the prior's covariance, of which the data leave less.
    prior = prior_std(model, problem.rows)
    covariances = joint[1].reshape(len(mean), len(mean), -1)
    for t in range(mean.shape[1]):
        assert_allclose(np.sqrt(np.diag(covariances[..., t])), std[:, t], rtol=1e-9)
        relative = covariances[..., t] / prior[:, t] / prior[:, t, None]
        assert_allclose(relative, relative.T, atol=1e-9)
        assert np.linalg.eigvalsh(relative).min() > -1e-9


@few(40)
@given(problems(), st.sampled_from([0.1, 0.5, 0.9]))
def test_intervals_hold_the_mean_or_the_promise_is_refused(problem, coverage):
    model = fit(problem)
    predicted = None if model is None else answers(model, problem.rows)
    if predicted is None:
        return
    interval = attempt(model.predict_interval, problem.rows, coverage)
    if interval is None:
        return
    lower, upper = interval
    mean, std = predicted
    assert np.all(np.isfinite(lower) & np.isfinite(upper))
    apart = 1.0 if model.model_.whole else 0.0  # ends are whole numbers where all targets are
    assert np.all((lower <= mean + apart) & (mean - apart <= upper))
    # Errors of equal targets may be 0, and no float lies between two neighbours.
    if problem.n_distinct == problem.n_rows > 1 and model.kernel is None and model.normalize_y:
        wide = std > 1e-6 * (np.abs(mean) + np.abs(problem.plain_y).max(axis=0))
        assert np.all((lower < mean + apart) & (mean - apart < upper) | ~wide)


# The same again


@few(30)
@given(problems())
def test_the_same_seed_gives_the_same_bits_whatever_n_jobs(problem):
    model = fit(problem)
    predicted = None if model is None else answers(model, problem.rows)
    other = fit(problem, n_jobs=2)
    assert (other is None) == (model is None)
    if predicted is not None:
        assert_array_equal(answers(other, problem.rows), predicted)
        assert_array_equal(attempt(other.loo_predict), attempt(model.loo_predict))


@few(40)
@given(problems())
def test_answers_do_not_depend_on_the_other_rows_or_their_order(problem):
    model = fit(problem)
    predicted = None if model is None else answers(model, problem.rows)
    if predicted is None:
        return
    n = len(problem.plain_rows)
    tolerance = 1e-10 * spread(problem, *predicted)
    last, pair = [n - 1], [0, n // 2]
    shuffled = np.random.default_rng(0).permutation(n)
    for order in (last, pair, shuffled, np.tile(shuffled, 40)):
        some = answers(model, CONTAINERS[problem.container](problem.plain_rows[order]))
        assert np.all(np.abs(some - predicted[:, order]) <= tolerance)


@few(30)
@given(problems())
def test_a_pickled_model_gives_the_same_bits(problem):
    model = fit(problem)
    predicted = None if model is None else answers(model, problem.rows)
    if predicted is None:
        return
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(answers(again, problem.rows), predicted)
    assert_array_equal(attempt(again.loo_predict), attempt(model.loo_predict))
    samples = [attempt(one.sample_y, problem.rows, random_state=1) for one in (again, model)]
    assert_array_equal(*samples)


@few(100)
@given(problems())
def test_a_clone_is_equal_and_not_fitted(problem):
    model = problem.model()
    other = clone(model)
    assert repr(other.get_params()) == repr(model.get_params())
    assert other.kernel == model.kernel
    with pytest.raises(NotFittedError):
        other.predict_interval([[0.0] * len(problem.columns)])


# Failed fits


def _raise(*_):
    raise RuntimeError("interrupted")


FAULTS = {
    "NaN in X": lambda X, y: (np.where(np.arange(len(X))[:, None] == 0, np.nan, X), y, {}),
    "infinite y": lambda X, y: (X, np.where(np.isfinite(y), np.inf, y), {}),
    "another number of rows": lambda X, y: (X, y[:-1], {}),
    "no rows": lambda X, y: (X[:0], y[:0], {}),
    "misspelt partition": lambda X, y: (X, y, {"partition": "ball tree"}),
    "misspelt aggregation": lambda X, y: (X, y, {"aggregation": "gpo"}),
    "negative overlap": lambda X, y: (X, y, {"overlap": -1}),
    "no points": lambda X, y: (X, y, {"points_per_expert": 0}),
    "alpha of another length": lambda X, y: (X, y, {"alpha": np.ones(len(X) + 1)}),
    "wrong length-scales": lambda X, y: (X, y, {"kernel": RBF((1.0,) * 9)}),
    "only noise": lambda X, y: (X, y, {"kernel": White()}),
    "foreign kernel": lambda X, y: (X, y, {"kernel": sk.Matern(nu=3.5)}),
    "a partition that fails": lambda X, y: (X, y, {"partition": _raise}),
    "a partition that loses rows": lambda X, y: (
        X,
        y,
        {"partition": lambda X, *_: [np.arange(1, len(X))]},
    ),
    "more columns, interrupted": lambda X, y: (np.hstack([X, X]), y, {"partition": _raise}),
}


@few(40)
@given(problems(), st.sampled_from(list(FAULTS)))
def test_a_failed_fit_leaves_the_model_as_it_was(problem, fault):
    X, y, changes = FAULTS[fault](np.asarray(problem.X, dtype=float), problem.plain_y)
    model = fit(problem)
    predicted = None if model is None else answers(model, problem.rows)
    for one in (problem.model(), problem.model() if model is None else model):
        original = {name: getattr(one, name) for name in changes}
        one.set_params(**changes)
        before = dict(vars(one))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", DOCUMENTED, UserWarning)
            with pytest.raises((ValueError, RuntimeError)):
                one.fit(X, y)
        assert vars(one) == before
        one.set_params(**original)
    if predicted is not None:
        assert_array_equal(answers(model, problem.rows), predicted)


# Units of y


@few(20)
@given(problems(), st.integers(-9, 9))
def test_a_power_of_two_changes_the_units_and_no_bit_else(problem, power):
    factor = 2.0**power
    y = problem.plain_y
    if not 1e-250 < np.abs(y).max() < 1e250:  # or digits are lost
        return
    # A logarithm of other units is rounded otherwise.
    units = {"normalize_y": True, "alpha": 0.0, "target_transform": None}
    model, other = problem.model(**units), problem.model(**units)
    if attempt(model.fit, problem.X, y) is None:
        assert attempt(other.fit, problem.X, factor * y) is None
        return
    attempt(other.fit, problem.X, factor * y)
    predicted = answers(model, problem.rows)
    if predicted is not None and np.all(np.ptp(y, axis=0) > 0):
        mean, std = answers(other, problem.rows)
        assert_array_equal(mean, factor * predicted[0])
        assert_array_equal(std, factor * predicted[1])


# The form of the default kernel, and nothing left to choose: rounding has nothing to tip over.
SETTLED = {
    "kernel": Constant(1.0, "fixed") * Matern(0.5, "fixed") + White(0.1, "fixed"),
    "normalize_X": True,
    "normalize_y": True,
    "alpha": 0.0,
    "overlap": 1,
    "temperature": 4.0,
    "calibration": "information",
    "hyperparameters": "shared",
    "routing": 2,
}


@few(60)
@given(problems(), st.floats(0.01, 100), st.floats(-100, 100))
def test_answers_follow_any_change_of_units(problem, factor, shift):
    y = problem.plain_y
    with np.errstate(over="ignore", invalid="ignore"):
        span = np.ptp(y, axis=0)
    if not np.all((span > 1e-250) & (span < 1e300)):
        return
    model, other = problem.model(**SETTLED), problem.model(**SETTLED)
    if attempt(model.fit, problem.X, y) is None:
        return
    other.fit(problem.X, factor * y + shift * span)
    predicted = answers(model, problem.rows)
    if predicted is None:
        return
    mean, std = answers(other, problem.rows)
    # y is known to its last digit only, however little it varies.
    tolerance = 1e-9 * factor * span + 1e-13 * np.abs(factor * y + shift * span).max(axis=0)
    assert np.all(np.abs(mean - (factor * predicted[0] + shift * span)) <= tolerance)
    assert np.all(np.abs(std - factor * predicted[1]) <= tolerance)


# What has failed before


HUGE = Linear() + White()
FOUND = {
    "alpha that overflows in units of y": Problem(targets=(("smooth", -200),), alpha=1.0),
    "scores of huge targets": Problem(targets=(("smooth", 200),)),
    "scores of tiny targets": Problem(targets=(("smooth", -200),)),
    "variances below the smallest float": Problem(targets=(("smooth", -160),)),
    "std above the largest float": Problem(
        (("normal", 71),), (("smooth", 280),), parameters={"kernel": HUGE}
    ),
    "raw targets that are huge and constant": Problem(
        targets=(("constant", 171),), parameters={"normalize_y": False}
    ),
    "raw targets, one huge, one constant": Problem(
        targets=(("zero", 0), ("smooth", 171)), parameters={"normalize_y": False}
    ),
    "covariances of rows near and far": Problem((("last digits", 0),), queries="mixed", n_rows=13),
    "draws of equal rows": Problem(
        (("constant", -6),),
        (("linear", 0),),
        28,
        "equal",
        queries="training",
        alpha="per row",
        parameters={"kernel": RBF(), "points_per_expert": 16},
        seed=1,
    ),
    "leaving out rows of a huge covariance": Problem(
        (("few", 99), ("few", 99), ("grid", 0)),
        arrangement="repeated",
        n_rows=59,
        parameters={"kernel": RationalQuadratic() + Linear(), "points_per_expert": 3},
    ),
    "variances of many magnitudes": Problem(
        (("one-hot", 56), ("one-hot", 56)),
        (("zero", 0),),
        9,
        "clones",
        parameters={
            "kernel": Linear(1.0, "fixed") * Linear(0.1) + White(1e5, (1e-10, 1e10)),
            "partition": "random",
            "aggregation": "nested",
            "points_per_expert": 3,
        },
        seed=2034,
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_problems_that_were_found_stay_solved(name):
    for test in (
        test_answers_are_finite_with_positive_std_or_errors_are_clear,
        test_a_joint_covariance_is_one_and_has_the_variances_on_its_diagonal,
    ):
        test.hypothesis.inner_test(FOUND[name])


UNSOLVED = {
    # Of rows whose variances are at their floor, covariances are far larger: not one of any rows.
    "covariances of an expert that is sure of everything": Problem(
        (("offset", 0), ("integers", 0), ("normal", 0)),
        (("zero", 0),),
        37,
        dtype="int64",
        queries="training",
        parameters={
            "points_per_expert": 6,
            "overlap": 100,
            "weighting": "entropy",
            "calibration": "none",
            "hyperparameters": "independent",
            "normalize_y": False,
            "kernel": RationalQuadratic((0.001, 0.1, 0.1), 0.1, (1e-10, 1e10), (1e-10, 1e10)),
        },
        seed=687,
    ),
}


@pytest.mark.xfail(
    raises=(AssertionError, RuntimeWarning),
    reason="found, and not solved yet; rounding decides whether it shows",
    strict=False,
)
@pytest.mark.parametrize("name", UNSOLVED)
def test_problems_that_were_found_are_not_solved_yet(name):
    test_answers_are_finite_with_positive_std_or_errors_are_clear.hypothesis.inner_test(
        UNSOLVED[name]
    )
    test_a_joint_covariance_is_one_and_has_the_variances_on_its_diagonal.hypothesis.inner_test(
        UNSOLVED[name]
    )


@pytest.mark.filterwarnings("ignore:one row tells nothing")
def test_one_row_promises_no_interval_that_is_a_point():
    model = ManyGPRegressor().fit([[0.0]], [3.0])
    interval = attempt(model.predict_interval, [[0.5]], 0.5)
    assert interval is None or interval[0] < 3 < interval[1]


# The same of many more problems, and of others each time


THOROUGH = settings(
    max_examples=1000,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("test", "more"),
    [
        (test_answers_are_finite_with_positive_std_or_errors_are_clear, ()),
        (test_nothing_that_is_passed_in_is_changed, ()),
        (test_a_joint_covariance_is_one_and_has_the_variances_on_its_diagonal, ()),
        (test_intervals_hold_the_mean_or_the_promise_is_refused, (st.floats(0.05, 0.95),)),
        (test_the_same_seed_gives_the_same_bits_whatever_n_jobs, ()),
        (test_answers_do_not_depend_on_the_other_rows_or_their_order, ()),
        (test_a_pickled_model_gives_the_same_bits, ()),
        (test_a_failed_fit_leaves_the_model_as_it_was, (st.sampled_from(list(FAULTS)),)),
    ],
    ids=lambda value: getattr(value, "__name__", "")[5:40],
)
def test_many_more_problems(test, more):
    THOROUGH(given(problems(), *more)(test.hypothesis.inner_test))()
