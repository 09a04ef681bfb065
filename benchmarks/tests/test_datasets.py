"""Test functions against naive loops, and the promises of load and split."""

from math import cos, e, exp, pi, sin, sqrt

import numpy as np
import pytest

from benchmarks import datasets
from benchmarks.datasets import SYNTHETIC_TASKS, Dataset, ackley, levy, load, rastrigin, split

FUNCTIONS = sorted({task.function for task in SYNTHETIC_TASKS.values()}, key=lambda f: f.__name__)


def naive_ackley(x):
    d = len(x)
    root = sqrt(sum(v**2 for v in x) / d)
    return -20 * exp(-0.2 * root) - exp(sum(cos(2 * pi * v) for v in x) / d) + 20 + e


def naive_levy(x):
    w = [1 + (v - 1) / 4 for v in x]
    total = sin(pi * w[0]) ** 2 + (w[-1] - 1) ** 2 * (1 + sin(2 * pi * w[-1]) ** 2)
    for v in w[:-1]:
        total += (v - 1) ** 2 * (1 + 10 * sin(pi * v + 1) ** 2)
    return total


def naive_rastrigin(x):
    return 10 * len(x) + sum(v**2 - 10 * cos(2 * pi * v) for v in x)


def naive_rosenbrock(x):
    return sum(100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2 for i in range(len(x) - 1))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("d", [1, 2, 10])
def test_functions_match_naive_loops(function, d):
    X = np.random.default_rng(0).uniform(-5, 5, (20, d))
    naive = globals()[f"naive_{function.__name__}"]
    np.testing.assert_allclose(function(X), [naive(x) for x in X])


@pytest.mark.parametrize(
    ("function", "minimum"),
    [(ackley, 0.0), (levy, 1.0), (rastrigin, 0.0), (datasets.rosenbrock, 1.0)],
)
def test_known_minima_are_zero_and_lowest(function, minimum):
    best = np.full((1, 6), minimum)
    np.testing.assert_allclose(function(best), [0.0], atol=1e-14)
    around = best + np.random.default_rng(1).normal(0, 0.5, (200, 6))
    assert np.all(function(around) > 0)


def test_known_values_away_from_the_minimum():
    # By hand: cos(2 pi x) = 1 at integers, so only the parabola or the bowl remains.
    assert rastrigin(np.array([[1.0, 2.0]]))[0] == pytest.approx(5.0)
    assert ackley(np.array([[5.0, -5.0]]))[0] == pytest.approx(20 * (1 - exp(-1)))
    assert datasets.rosenbrock(np.array([[0.0, 0.0, 2.0]]))[0] == pytest.approx(402.0)
    assert levy(np.array([[5.0]]))[0] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("name", "shape", "low", "high"),
    [
        ("ackley", (5_000, 10), -10, 10),
        ("ackley1d", (500, 1), -10, 10),
        ("levy", (5_000, 10), -10, 10),
        ("rastrigin", (5_000, 10), -5.12, 5.12),
        ("rosenbrock", (50_000, 50), -5, 10),
    ],
)
def test_tasks_have_their_shapes_and_fill_their_boxes(name, shape, low, high):
    _, X, y = load(name)
    assert X.shape == shape
    assert y.shape == shape[:1]
    assert X.min() >= low
    assert X.max() <= high
    # Uniform inputs: the mean and spread of each feature to within five standard errors.
    width = high - low
    tolerance = 5 * width / np.sqrt(12 * len(y))
    np.testing.assert_allclose(X.mean(axis=0), (low + high) / 2, atol=tolerance)
    np.testing.assert_allclose(X.std(axis=0), width / np.sqrt(12), atol=tolerance)


@pytest.mark.parametrize("name", SYNTHETIC_TASKS)
def test_noise_has_variance_one_quarter(name):
    _, X, y = load(name, random_state=2, n_rows=5_000)
    noise = y - SYNTHETIC_TASKS[name].function(X)
    # Five standard errors: 0.5 / sqrt(5000) for the mean, 0.25 sqrt(2 / 5000) for the variance.
    assert noise.mean() == pytest.approx(0, abs=0.036)
    assert noise.var() == pytest.approx(0.25, abs=0.025)


def test_load_is_deterministic_and_depends_on_the_seed():
    first, again, other = load("levy", 3, 50), load("levy", 3, 50), load("levy", 4, 50)
    np.testing.assert_array_equal(first.X, again.X)
    np.testing.assert_array_equal(first.y, again.y)
    assert not np.any(first.X == other.X)


def test_load_draws_from_a_generator_that_it_is_given():
    rng = np.random.default_rng(3)
    first, second = load("levy", rng, 50), load("levy", rng, 50)
    np.testing.assert_array_equal(first.y, load("levy", 3, 50).y)
    assert not np.any(first.y == second.y)


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown data set 'ackly'") as error:
        load("ackly")
    assert all(name in str(error.value) for name in SYNTHETIC_TASKS)


@pytest.mark.parametrize("n", [2, 100, 101])
def test_split_halves_are_disjoint_and_cover_the_data(n):
    row = np.arange(n, dtype=float)
    parts = split(Dataset("rows", row[:, None], row), seed=0)
    assert len(parts.y_train) == len(parts.X_train) == n // 2
    assert len(parts.y_test) == len(parts.X_test) == n - n // 2
    # Scaling is increasing, so the rows' ranks must still be all there, once each.
    assert len(np.unique(np.concatenate([parts.y_train, parts.y_test]))) == n


def test_split_scales_with_the_training_half_only():
    data = load("rastrigin", random_state=5, n_rows=200)
    parts = split(data, seed=1)
    np.testing.assert_allclose(parts.X_train.min(axis=0), 0, atol=1e-15)
    np.testing.assert_allclose(parts.X_train.max(axis=0), 1)
    assert parts.y_train.mean() == pytest.approx(0, abs=1e-12)
    assert parts.y_train.std() == pytest.approx(1)
    # Some test rows fall outside the training box, and their mean is not exactly zero.
    assert parts.X_test.min() < 0 or parts.X_test.max() > 1
    assert abs(parts.y_test.mean()) > 1e-6


def test_split_keeps_inputs_and_targets_together():
    x = np.random.default_rng(6).normal(size=51)
    parts = split(Dataset("line", x[:, None], 3 * x + 1), seed=2)
    for X, y in [(parts.X_train, parts.y_train), (parts.X_test, parts.y_test)]:
        # A line stays one line under both scalings, in either half.
        slope = np.ptp(parts.y_train)
        np.testing.assert_allclose(y, parts.y_train.min() + slope * X[:, 0])


def test_split_is_deterministic_and_depends_on_the_seed():
    data = load("ackley1d", n_rows=100)
    first, again, other = split(data, 7), split(data, 7), split(data, 8)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first.y_train, other.y_train)


def test_split_leaves_its_input_alone():
    data = load("ackley1d", n_rows=20)
    X, y = data.X.copy(), data.y.copy()
    split(data, 0)
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_array_equal(data.y, y)


@pytest.mark.filterwarnings("ignore:y is constant")
def test_split_of_a_constant_feature_and_target_stays_finite():
    parts = split(Dataset("constant", np.full((10, 2), 3.0), np.full(10, 7.0)), seed=0)
    for array in parts[:4]:
        np.testing.assert_array_equal(array, 0.0)
    assert parts.y_scale == 1.0


def test_split_has_the_share_of_training_rows_that_is_asked_for():
    data = load("ackley1d", n_rows=50)
    parts = split(data, 0, train_share=0.8)
    assert (len(parts.y_train), len(parts.y_test)) == (40, 10)
    order = np.random.default_rng(0).permutation(50)
    assert parts.y_scale == pytest.approx(data.y[order[:40]].std())


def test_split_needs_two_rows():
    with pytest.raises(ValueError, match="at least 2 rows; 'ackley1d' has 1"):
        split(load("ackley1d", n_rows=1), seed=0)
