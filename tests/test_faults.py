"""One test or a few for every row of the table in docs/reliability.md, which they are named after.

The rule: an error that names the column, row or expert and says what to do, or a finite answer
with std > 0. Never a silent NaN, never a half-fitted model, never a lost file.
"""

import datetime
import errno
import hashlib
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from threadpoolctl import threadpool_info, threadpool_limits

from data import slope_and_wave, spoilt, strided
from manygp import ManyGPRegressor, load
from manygp.committee.committee import (
    PARTITION,
    QUERYING,
    kmeans,
)
from manygp.gp import marginal_likelihood as likelihood
from manygp.gp.expert import PRECISION
from manygp.gp.marginal_likelihood import Likelihood, NotPositiveDefiniteError
from manygp.kernels import RBF, Constant, Linear, White
from manygp.rules import WEIGHTINGS, normalise
from manygp.runtime import files
from manygp.runtime.parallel import n_workers
from manygp.storage import container
from manygp.storage.container import ModelFileError
from manygp.training import experts as builder
from manygp.training import experts as fitting
from manygp.training import pipeline
from manygp.training.checkpoint import FITS
from memory import MEASURABLE, PEAK_BYTES
from models import (
    FIXED,
    ONE_AND_THREE_EXPERTS,
    OWN,
    QUERIES,
    X,
    answers,
    assert_sound,
    choosing,
    model,
    no_work,
    y,
)
from patching import with_numbers
from waiting import wait_until

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
NUMBERS = [number for number in range(1, 61) if number != 45]  # 45 is about clusters

pytestmark = pytest.mark.usefixtures("interruptible")


def assert_honest(fitted, rows, targets):
    """Errors are of the order of the std."""
    mean, std = fitted.predict(rows, return_std=True)
    assert 0.2 < np.sqrt(np.mean(((targets - mean) / std) ** 2)) < 5


# Missing values


def test_01_nan_in_x_is_named_by_column_and_row():
    with pytest.raises(ValueError, match=r"X contains NaN.*column 1, row 7.*SimpleImputer"):
        model(partition=no_work).fit(spoilt(X, ((7, 1), np.nan)), y)


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_02_infinity_in_x_is_named_by_column_and_row(value):
    with pytest.raises(ValueError, match=r"X contains infinity.*column 0, row 3.*SimpleImputer"):
        model(partition=no_work).fit(spoilt(X, ((3, 0), value)), y)


def test_03_nan_in_y_is_named_by_row():
    with pytest.raises(ValueError, match=r"y contains NaN, first in row 7; rows without a target"):
        model(partition=no_work).fit(X, spoilt(y, (7, np.nan)))


def test_04_nan_at_predict_is_named_by_column_and_row():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b"])
    fitted = model(kernel=FIXED, columns="numeric").fit(frame, y)
    bad = pandas.DataFrame(spoilt(QUERIES, ((3, 1), np.nan)), columns=["a", "b"])
    with pytest.raises(ValueError, match=r"X contains NaN.*column 'b', row 3.*SimpleImputer"):
        fitted.predict(bad)
    served = model(kernel=FIXED).fit(frame, y).predict(bad)
    assert np.isfinite(served).all()


# Degenerate data


@ONE_AND_THREE_EXPERTS
def test_05_constant_targets_give_one_warning_and_that_constant(points_per_expert):
    with pytest.warns(UserWarning, match="y is constant") as record:
        fitted = choosing(points_per_expert=points_per_expert).fit(X, np.full(60, 3.7))
    assert len(record) == 1
    assert_allclose(fitted.predict(QUERIES), 3.7, rtol=1e-12)
    assert_sound(fitted)


def test_06_targets_constant_within_one_expert_are_sound():
    left = X[:, 0] < 0
    parts = [np.flatnonzero(left), np.flatnonzero(~left)]
    fitted = choosing(partition=lambda *_: parts).fit(X, np.where(left, 3.0, y))
    assert len(fitted.experts_) == 2
    assert_sound(fitted)
    # All targets have one scale: the expert that saw no variation is not a world of its own.
    assert fitted.predict([[-1.5, 0.0]])[0] == pytest.approx(3.0, abs=0.3)


def test_07_a_constant_column_changes_nothing():
    wide, rows = (np.column_stack([a, np.full(len(a), 5.0)]) for a in (X, QUERIES))
    settings = {"kernel": FIXED, "partition": "random"}
    expected = answers(model(**settings).fit(X, y))
    assert_allclose(answers(model(**settings).fit(wide, y), rows), expected, rtol=1e-10)
    assert_sound(choosing().fit(wide, y), rows)


TWICE, CONTRADICTING = np.repeat(X[:30], 2, axis=0), np.tile([1.0, 2.0], 30)


@ONE_AND_THREE_EXPERTS
def test_08_duplicate_rows_with_different_targets_have_a_std_that_says_so(points_per_expert):
    fitted = choosing(points_per_expert=points_per_expert).fit(TWICE, CONTRADICTING)
    mean, std = fitted.predict(X[:30], return_std=True)
    assert_allclose(mean, 1.5, atol=0.1)
    assert_allclose(std, 0.5, rtol=0.1)


def test_08_a_kernel_without_noise_is_believed_with_a_warning():
    with pytest.warns(UserWarning, match=r"rows \d+ and \d+ are equal.*add White\(\)") as record:
        choosing(kernel=1.0 * RBF(1.0)).fit(TWICE, CONTRADICTING)
    assert len(record) == 1
    choosing(kernel=1.0 * RBF(1.0)).fit(TWICE, TWICE[:, 0])  # equal rows, equal targets


@ONE_AND_THREE_EXPERTS
def test_09_duplicate_rows_without_noise_need_a_jitter_that_the_expert_records(points_per_expert):
    kernel = Constant(4.0, "fixed") * RBF(1.0, "fixed")
    settings = {"kernel": kernel, "alpha": 0.0, "points_per_expert": points_per_expert}
    with pytest.warns(UserWarning, match="are equal, their targets are not"):
        fitted = choosing(**settings).fit(TWICE, CONTRADICTING)
    jitters = np.array([expert.jitter for expert in fitted.experts_])
    assert np.all(jitters > 0)
    # Rungs of the ladder, in units of the prior variance: the smallest that will do.
    assert np.all(np.isin((jitters / 4).round(14), likelihood.JITTERS))
    assert jitters.max() <= 4e-6
    assert_sound(fitted)


@pytest.fixture
def evaluations(monkeypatch):
    """Values of the likelihood that fits have found, NaN where there was none.

    A function in `refused` makes it fail for some kernels.
    """
    value_and_gradient = Likelihood.value_and_gradient

    def spy(self, kernel):
        found.append(np.nan)
        if any(refuse(kernel) for refuse in refused):
            raise NotPositiveDefiniteError("refused")
        found[-1], gradient = value_and_gradient(self, kernel)
        return found[-1], gradient

    found, refused = [], []
    monkeypatch.setattr(Likelihood, "value_and_gradient", spy)
    return found, refused


def test_10_a_step_to_no_covariance_matrix_leaves_the_best_hyperparameters(
    evaluations, monkeypatch
):
    monkeypatch.setattr(likelihood, "JITTERS", (0.0,))  # so that steps do fail
    kernel = Constant(1.0) * RBF(0.3, (1e-3, 1e6))
    fitted = choosing(kernel=kernel, points_per_expert=100).fit(X, np.sin(X[:, 0]))
    found, _ = evaluations
    assert np.isnan(found).any()
    assert fitted.log_marginal_likelihood() == pytest.approx(np.nanmax(found), rel=1e-6)
    assert_sound(fitted)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_10_a_step_to_no_covariance_matrix_does_not_end_the_search(evaluations):
    def kernel(longest):
        return Constant(1.0) * RBF(1.0, (1e-5, longest)) + White(0.1)

    bounded = choosing(kernel=kernel(1.2), points_per_expert=100).fit(X, y)
    evaluations[1].append(lambda kernel: kernel.signal.right.length_scale > 1.2)
    walled = choosing(kernel=kernel(1e5), points_per_expert=100).fit(X, y)
    assert walled.log_marginal_likelihood() > bounded.log_marginal_likelihood() - 0.5


def test_11_fewer_rows_than_an_expert_takes_are_exact_gp_regression():
    fitted = choosing(kernel=FIXED, points_per_expert=61).fit(X, y)
    assert len(fitted.experts_) == 1
    kernel = sk.Matern(0.9, "fixed", nu=1.5) + sk.WhiteKernel(0.02, "fixed")
    exact = GaussianProcessRegressor(kernel, alpha=0.0, normalize_y=True).fit(X, y)
    assert_allclose(answers(fitted)[:2], exact.predict(QUERIES, return_std=True), rtol=1e-9)


def test_12_one_row_is_enough():
    with pytest.warns(UserWarning, match="one row tells nothing about errors"):
        fitted = choosing().fit(X[:1], y[:1])
    assert len(fitted.experts_) == 1
    assert fitted.predict(X[:1])[0] == pytest.approx(y[0])
    assert_sound(fitted)
    assert_sound(fitted, X)


@pytest.mark.filterwarnings("ignore:one row tells nothing")
@pytest.mark.parametrize("trend", ["linear", "additive", "boosted", LinearRegression()])
def test_12_one_row_teaches_no_trend(trend):
    with pytest.raises(ValueError, match="cannot be learned from one row; set trend='none'"):
        ManyGPRegressor(trend=trend).fit([[1.0]], [2.0])


def test_13_no_training_rows_are_refused():
    with pytest.raises(ValueError, match="0 sample"):
        model(partition=no_work).fit(X[:0], y[:0])


def test_14_no_test_rows_are_refused():
    fitted = model(kernel=FIXED).fit(X, y)
    with pytest.raises(ValueError, match="0 sample"):
        fitted.predict(X[:0])


@ONE_AND_THREE_EXPERTS
def test_15_more_columns_than_rows_are_sound(points_per_expert):
    wide = np.random.default_rng(1).normal(size=(60, 80))
    assert_sound(choosing(points_per_expert=points_per_expert).fit(wide, y), wide[:5] + 0.1)


# Magnitudes


@pytest.fixture(scope="module")
def ordinary():
    """The answers of the default model in ordinary units."""
    return answers(choosing().fit(X, y))


@pytest.mark.parametrize("scale", [1e160, 1e300])
def test_16_inputs_of_order_1e160_are_scaled_or_refused_by_column(scale, ordinary):
    assert_allclose(answers(choosing().fit(X * scale, y), QUERIES * scale), ordinary, rtol=1e-3)
    with pytest.raises(ValueError, match=r"X is too large in column 1, row 0.*normalize_X=True"):
        model(kernel=FIXED).fit(X * [1.0, scale], y)


def test_17_inputs_of_order_1e_minus_300_are_scaled(ordinary):
    fitted = choosing().fit(X * 1e-300, y)
    assert_allclose(answers(fitted, QUERIES * 1e-300), ordinary, rtol=1e-3)
    # To a kernel of one's own they are all the same row; its std knows nothing of them.
    assert_sound(model(kernel=OWN).fit(X * 1e-300, y), QUERIES * 1e-300)


def test_18_targets_of_order_1e300_are_scaled_and_their_variances_refused(ordinary):
    fitted = choosing().fit(X, y * 1e300)
    assert_allclose(answers(fitted) / 1e300, ordinary, rtol=1e-3)
    with pytest.raises(ValueError, match=r"beyond floating point; rescale y, or ask for return_s"):
        fitted.predict(QUERIES, return_cov=True)


def test_19_targets_of_order_1e_minus_300_are_scaled(ordinary):
    assert_allclose(answers(choosing().fit(X, y * 1e-300)) * 1e300, ordinary, rtol=1e-3)


def test_20_raw_targets_whose_squares_overflow_are_refused_by_row():
    with pytest.raises(ValueError, match=r"y is too large in row 0.*normalize_y=True"):
        choosing(normalize_y=False, partition=no_work).fit(X, y * 1e300)


@pytest.mark.parametrize("scale", [1e-300, 1e-60, 1e60])
def test_20_raw_targets_of_extreme_units_give_one_warning(scale):
    with pytest.warns(UserWarning, match=r"standard deviation of .*normalize_y=True") as record:
        fitted = choosing(normalize_y=False).fit(X, y * scale)
    assert len(record) == 1
    assert_sound(fitted)


@pytest.mark.parametrize("scale", [1e-6, 1e5, 1e12])
def test_20_raw_targets_beyond_the_bounds_of_the_kernel_are_not_silent(scale):
    """Prices, counts and lengths in metres are of such units."""
    try:
        fitted = choosing(normalize_y=False).fit(X, y * scale)
    except UserWarning as warning:
        assert "normalize_y=True" in str(warning)  # noqa: PT017
    else:
        assert_honest(fitted, X, y * scale)


# Types


def test_21_float32_is_fitted_in_float64():
    single = [a.astype(np.float32) for a in (X, y, QUERIES)]
    found = answers(model().fit(*single[:2]), single[2])
    assert found.dtype == np.float64
    double = [a.astype(np.float64) for a in single]
    assert_array_equal(found, answers(model().fit(*double[:2]), double[2]))


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, object])
def test_22_integers_and_objects_that_are_numbers_are_accepted(dtype):
    rows, targets, queries = (np.abs(10 * a).round() for a in (X, y, QUERIES))
    fitted = model().fit(rows.astype(dtype), targets.astype(dtype))
    expected = answers(model().fit(rows, targets), queries)
    assert_array_equal(answers(fitted, queries.astype(dtype)), expected)


def test_23_booleans_are_numbers():
    fitted = model().fit(X > 0, y)
    expected = answers(model().fit((X > 0).astype(float), y), (QUERIES > 0).astype(float))
    assert_array_equal(answers(fitted, QUERIES > 0), expected)
    assert_sound(fitted, QUERIES > 0)


@pytest.mark.parametrize(
    "bad",
    [np.array([["u", "v"]] * 60), X.astype(str), np.array([["u", 1.0]] * 60, dtype=object)],
    ids=["strings", "numbers-as-strings", "mixed"],
)
def test_24_strings_are_refused(bad):
    mixed = bad.dtype == object
    expected = "the text 'u' in column 0, row 0.* encode it first" if mixed else "encode it first"
    with pytest.raises(ValueError, match=expected):
        model(partition=no_work).fit(bad, y)
    with pytest.raises(ValueError, match=expected):
        model(kernel=FIXED).fit(X, y).predict(bad)


def table(library, column):
    """A table of the columns a, a number, and b."""
    return pytest.importorskip(library).DataFrame({"a": X[:, 0], "b": column})


WORDS = ["u", "v"] * 30
TIMES = [datetime.datetime(2000, 1, 1 + i % 28) for i in range(60)]


@pytest.mark.parametrize("kind", ["category", "datetime"])
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_25_a_column_of_categories_or_dates_is_named_and_the_remedy_too(library, kind):
    series = pytest.importorskip(library).Series
    if kind == "datetime":
        remedy, column = "days since a start for dates", series(TIMES)
    else:
        remedy = "OneHotEncoder for categories"
        category = "category" if library == "pandas" else sys.modules["polars"].Categorical
        column = series(WORDS, dtype=category)
    with pytest.raises(ValueError, match=rf"column 'b' of X is of type .*{remedy}"):
        model(partition=no_work, columns="numeric").fit(table(library, column), y)
    fitted = model(kernel=FIXED).fit(table(library, X[:, 1]), y)
    with pytest.raises(ValueError, match=rf"column 'b' of X is of type .*{remedy}"):
        fitted.predict(table(library, column))


@pytest.mark.parametrize("kind", ["Int64", "Float64", "boolean"])
def test_26_a_missing_value_of_a_nullable_column_is_named(kind):
    pandas = pytest.importorskip("pandas")
    column = pandas.array([1, None] * 30, dtype=kind)
    with pytest.raises(ValueError, match=r"X contains NaN.*column 'b', row 1"):
        model(partition=no_work, columns="numeric").fit(table("pandas", column), y)
    with pytest.raises(ValueError, match=r"y contains NaN, first in row 1"):
        model(partition=no_work).fit(X, pandas.Series(column))


def test_26_a_null_of_polars_is_named():
    with pytest.raises(ValueError, match=r"X contains NaN.*column 'b', row 1"):
        model(partition=no_work, columns="numeric").fit(table("polars", [1, None] * 30), y)


def test_27_complex_numbers_are_refused():
    for rows, targets in ((X + 1j, y), (X, y + 1j)):
        with pytest.raises(ValueError, match="Complex data not supported"):
            model(partition=no_work).fit(rows, targets)


@pytest.mark.parametrize("container", [scipy.sparse.csr_matrix, scipy.sparse.coo_array])
def test_28_sparse_matrices_are_refused(container):
    with pytest.raises(TypeError, match=r"dense data is required. Use '.toarray\(\)'"):
        model(partition=no_work).fit(container(X), y)


def test_29_masked_values_are_refused():
    with pytest.raises(ValueError, match=r"X is a masked array.*fill them, or drop their rows"):
        model(partition=no_work).fit(np.ma.masked_greater(X, 1.0), y)
    with pytest.raises(ValueError, match=r"y is a masked array.*fill them, or drop their rows"):
        model(partition=no_work).fit(X, np.ma.masked_greater(y, 3.0))
    fitted = model(kernel=FIXED).fit(X, y)
    with pytest.raises(ValueError, match=r"X is a masked array"):
        fitted.predict(np.ma.masked_greater(QUERIES, 1.0))


@ONE_AND_THREE_EXPERTS
def test_30_long_doubles_are_cast(points_per_expert):
    size = {"points_per_expert": points_per_expert}
    fitted = model(**size).fit(X.astype(np.longdouble), y.astype(np.longdouble))
    found = answers(fitted, QUERIES.astype(np.longdouble))
    assert found.dtype == np.float64
    assert_array_equal(found, answers(model(**size).fit(X, y)))


@ONE_AND_THREE_EXPERTS
@pytest.mark.parametrize("layout", [np.asfortranarray, strided])
def test_31_the_layout_in_memory_leaves_no_trace(layout, points_per_expert):
    settings = {"points_per_expert": points_per_expert}
    fitted = choosing(**settings).fit(layout(X), layout(y))
    expected = answers(choosing(**settings).fit(X, y))
    assert_array_equal(answers(fitted, layout(QUERIES)), expected)
    both = np.column_stack([y, y**2])
    first, second = (choosing(**settings).fit(X, rows) for rows in (both, np.asfortranarray(both)))
    assert_array_equal(answers(first), answers(second))


@pytest.fixture
def in_processes(in_processes, monkeypatch):
    """All experts but the first two are fitted in processes, two at a time."""
    with_numbers(monkeypatch, fitting, "FITTING", batch_experts=2)
    return in_processes


def test_32_files_mapped_for_reading_are_never_written_to(in_processes, tmp_path):
    for name, values in {"X": X, "y": y, "Q": QUERIES}.items():
        np.save(tmp_path / f"{name}.npy", values)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    mapped = {name[0]: np.load(tmp_path / name, mmap_mode="r") for name in before}
    fitted = model(points_per_expert=10, n_jobs=2).fit(mapped["X"], mapped["y"])
    expected = answers(model(points_per_expert=10).fit(X, y))
    assert_array_equal(answers(fitted, mapped["Q"]), expected)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


# Shapes


def test_33_wrong_missing_and_reordered_columns_are_refused_by_predict():
    with pytest.raises(ValueError, match=r"X has 3 features, but .* is expecting 2"):
        model(kernel=FIXED).fit(X, y).predict(np.ones((5, 3)))
    named = table("pandas", X[:, 1])
    fitted = model(kernel=FIXED).fit(named, y)
    with pytest.raises(ValueError, match="missing:\n- b"):
        fitted.predict(named[["a"]])
    with pytest.raises(ValueError, match="unseen at fit time:\n- c"):
        fitted.predict(named.rename(columns={"b": "c"}))
    with pytest.raises(ValueError, match="same order"):
        fitted.predict(named[["b", "a"]])


@pytest.mark.parametrize(("width", "shape"), [(1, (10,)), (2, (10, 2))])
def test_34_targets_in_columns_give_the_shapes_of_scikit_learn(width, shape):
    Y = np.column_stack([y, -2 * y])[:, :width]
    mean, std = model(kernel=FIXED).fit(X, Y).predict(QUERIES, return_std=True)
    theirs = GaussianProcessRegressor(optimizer=None).fit(X, Y).predict(QUERIES, return_std=True)
    assert mean.shape == std.shape == theirs[0].shape == theirs[1].shape == shape


@pytest.mark.parametrize("library", [RBF, sk.RBF])
def test_35_length_scales_for_other_columns_are_refused_before_any_work(library, monkeypatch):
    for name in ("choose.fit_shared", "experts.fit_kernel", "experts.process_map"):
        monkeypatch.setattr(f"manygp.training.{name}", no_work)
    noise = White(0.1) if library is RBF else sk.WhiteKernel(0.1)
    bad = model(kernel=library((1.0, 1.0, 1.0)) + noise, partition=no_work, n_jobs=2)
    with pytest.raises(ValueError, match=r"(?s)3.*2"):
        bad.fit(X, y)


# Predictions and parts


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_36_far_from_all_data_weights_are_uniform_and_the_prior_remains(weighting):
    rules = {"weighting": weighting, "calibration": "none", "trend": "none"}
    fitted = model(kernel=FIXED, normalize_y=False, **rules).fit(X, y)
    far = np.array([[1e6, -1e6], [1e90, 0.0]])
    weights = normalise(WEIGHTINGS[weighting](fitted.predict_experts(far)))
    assert_allclose(weights, 1 / 3, rtol=1e-12)
    mean, std = fitted.predict(far, return_std=True, latent=True)
    assert_allclose(mean, 0.0, atol=1e-12)
    assert_allclose(std, 1.0, rtol=1e-12)
    with pytest.raises(ValueError, match=r"column 0, row 1.*too far from the training data"):
        fitted.predict([[0.0, 0.0], [1e300, 0.0]])


def test_36_far_from_all_data_the_default_is_sound():
    assert_sound(choosing().fit(X, y), np.array([[1e6, -1e6], [1e90, 0.0]]))


def test_37_a_variance_that_rounding_leaves_at_zero_has_a_floor():
    line = np.linspace(0, 1, 20)[:, None]
    settings = {"kernel": RBF(0.1, "fixed"), "alpha": 1e-16, "normalize_y": False}
    fitted = choosing(points_per_expert=100, **settings).fit(line, np.sin(6 * line[:, 0]))
    std = fitted.predict(line, return_std=True)[1]
    assert np.any(std == np.sqrt(PRECISION.smallest_variance))  # the floor was needed
    assert_sound(fitted, line)


def sizes(parts):
    return np.array([len(part) for part in parts])


def test_38_empty_and_tiny_clusters_join_others():
    draw = np.random.default_rng(0)
    blobs = draw.normal(size=(200, 2)) + np.repeat([[0.0, 0.0], [50.0, 0.0]], 100, axis=0)
    lonely = np.concatenate([blobs, 1e3 * draw.normal(size=(6, 2))])
    repeated = np.repeat(draw.normal(size=(12, 2)), [1] * 11 + [195], axis=0)
    for rows, n_parts in ((lonely, 8), (repeated, 12)):
        parts = kmeans(rows, n_parts, np.random.default_rng(0))
        assert_array_equal(np.sort(np.concatenate(parts)), np.arange(206))
        assert sizes(parts).min() >= max(1, PARTITION.smallest_cluster * 206 / n_parts)
    fitted = model(partition="kmeans", kernel=FIXED).fit(lonely, np.sin(lonely[:, 0]))
    assert_sound(fitted, lonely)


def test_39_oversized_clusters_are_split():
    draw = np.random.default_rng(0)
    far = np.repeat(1e3 * draw.normal(size=(9, 2)), 3, axis=0) + draw.normal(size=(27, 2))
    rows = np.concatenate([1e-3 * draw.normal(size=(273, 2)), far])
    parts = kmeans(rows, 10, np.random.default_rng(0))
    assert_array_equal(np.sort(np.concatenate(parts)), np.arange(300))
    assert sizes(parts).max() <= PARTITION.largest_cluster * 30
    fitted = model(partition="kmeans", points_per_expert=30, kernel=FIXED)
    assert_sound(fitted.fit(rows, np.sin(rows[:, 0])), rows)


# Interrupts, kills and memory


def press_ctrl_c(monkeypatch, after):
    """Send this process what Ctrl-C sends, in the fit of an expert once some are finished."""
    fit_kernel, count, once = fitting.fit_kernel, iter(range(after)), iter([True])
    heard = threading.Event()

    def handler(number, frame):
        heard.set()
        raise KeyboardInterrupt

    def interrupted(*arguments):
        if next(count, None) is None and next(once, False):
            os.kill(os.getpid(), signal.SIGINT)
            assert heard.wait(60)  # in a thread, until the main one has heard of it
        return fit_kernel(*arguments)

    signal.signal(signal.SIGINT, handler)
    monkeypatch.setattr(fitting, "fit_kernel", interrupted)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_40_ctrl_c_in_the_first_fit_leaves_no_model_and_keeps_the_checkpoint(
    n_jobs, monkeypatch, tmp_path
):
    stopped = model(points_per_expert=10, n_jobs=n_jobs)
    with monkeypatch.context() as patch:
        press_ctrl_c(patch, after=3)
        with pytest.raises(KeyboardInterrupt):
            stopped.fit(X, y, checkpoint=tmp_path)
    with pytest.raises(NotFittedError):
        stopped.predict_interval(QUERIES)
    kept = (tmp_path / FITS).read_text()
    # The shared kernel, and experts, as far as the main thread has been told of them.
    assert len(kept.splitlines()) >= (4 if n_jobs == 1 else 1)
    stopped.fit(X, y, checkpoint=tmp_path)
    assert (tmp_path / FITS).read_text().startswith(kept)
    assert_array_equal(answers(stopped), answers(model(points_per_expert=10).fit(X, y)))


@pytest.mark.parametrize(
    ("n", "d"), [(60, 2), (50, 2), (60, 3)], ids=["same-shape", "fewer-rows", "more-columns"]
)
def test_41_ctrl_c_in_a_refit_leaves_the_old_model(n, d, monkeypatch):
    fitted = model().fit(X, y)
    before, state = answers(fitted), dict(vars(fitted))
    press_ctrl_c(monkeypatch, after=1)
    other = np.random.default_rng(1).uniform(0, 9, (n, d))
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(other, -5 * other[:, 0])
    assert vars(fitted) == state
    assert_array_equal(answers(fitted), before)


@pytest.mark.parametrize("times", ["once", "always"])
def test_42_a_killed_worker_is_replaced_and_then_its_experts_are_named(
    times, in_processes, monkeypatch, tmp_path
):
    settings = {"points_per_expert": 10, "hyperparameters": "independent"}
    expected = model(**settings).fit(X, y)
    fit_batch, killed = fitting._fit_batch, tmp_path / "killed"

    def deadly(batch):
        if times == "always" or not killed.exists():
            killed.touch()
            os.kill(os.getpid(), 9)
        return fit_batch(batch)

    monkeypatch.setattr(fitting, "_fit_batch", deadly)
    asked = model(n_jobs=2, **settings)
    if times == "once":
        assert_array_equal(answers(asked.fit(X, y)), answers(expected))
        assert killed.exists()
        return
    with pytest.raises(RuntimeError, match="killed 2 times while it fitted the experts") as caught:
        asked.fit(X, y)
    third = expected.experts_[2].indices  # the first that no thread has fitted
    assert f"{third[:3]}..." in str(caught.value)
    assert "if memory ran out, lower n_jobs or points_per_expert" in str(caught.value)
    with pytest.raises(NotFittedError):
        asked.predict_interval(QUERIES)


def test_43_memory_is_estimated_before_the_work(capsys):
    def partition(rows, n_parts, rng):
        printed.append(capsys.readouterr().err)
        return np.array_split(np.arange(len(rows)), n_parts)

    printed = []
    fitted = model(kernel=FIXED, partition=partition, verbose=True).fit(X, y)
    assert re.search(r"60 rows; experts of 20 rows.* about \S+ s and \S+ GB", printed[0])
    factors = sum(expert.whitener.nbytes for expert in fitted.experts_)
    assert factors < fitted.plan_.bytes - builder.FITTING.interpreter_bytes < 100 * factors


def test_43_what_is_larger_than_memory_is_refused_before_the_work(monkeypatch):
    least = builder.FITTING.interpreter_bytes + 1e4
    monkeypatch.setattr(pipeline, "physical_memory", lambda: least)
    with pytest.raises(MemoryError, match=r"experts of 60 rows would take .* points_per_expert"):
        model(kernel=FIXED, points_per_expert=60, partition=no_work).fit(X, y)


def test_43_overlaps_whose_factors_are_too_large_are_not_tried(monkeypatch):
    with_numbers(monkeypatch, builder, "FITTING", largest_factors=8 * 3 * (2 * 20) ** 2)
    fitted = choosing().fit(X, y)
    assert max(fitted.plan_.overlaps) == 1
    assert max(len(expert.rows) for expert in fitted.experts_) <= 40


# Room for a few experts, but not for a single one of all rows.
LITTLE_MEMORY = """
import resource
import numpy as np
from manygp import ManyGPRegressor
from manygp.kernels import Matern, White
X = np.random.default_rng(0).random((6000, 2))
y = np.sin(6 * X[:, 0])
rules = {"overlap": 0, "temperature": 4.0, "calibration": "none", "routing": 2}
kernel = Matern(0.3, "fixed") + White(0.1, "fixed")
model = ManyGPRegressor(kernel, points_per_expert=20, random_state=0, **rules)
before = model.fit(X[:200], y[:200]).predict(X)
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 200 * 2**20,) * 2)
try:
    model.set_params(points_per_expert=6000).fit(X, y)
except MemoryError as error:
    print(error)
print(np.array_equal(model.predict(X), before))
print(len(model.set_params(points_per_expert=200).fit(X, y).experts_))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's limits")
def test_43_where_memory_runs_out_the_old_model_remains_and_smaller_experts_fit():
    done = subprocess.run([sys.executable, "-c", LITTLE_MEMORY], capture_output=True, text=True)
    assert done.stdout.splitlines()[1:] == ["True", "30"], done.stderr
    assert "Unable to allocate 275. MiB" in done.stdout


# A fit whose workers say that they run, and then wait to be killed.
KILLED = """
import os, sys, time
import numpy as np
from manygp import ManyGPRegressor
from manygp.training import pipeline
from manygp.training import experts as builder
from manygp.training import experts as fitting
data, folder, workers = sys.argv[1:]
from dataclasses import replace
numbers = {"process_seconds": -1.0, "first_experts": 1, "batch_experts": 2}
fitting.FITTING = replace(fitting.FITTING, **numbers)
fit_batch = fitting._fit_batch
def waiting(batch):
    if workers:
        open(os.path.join(workers, str(os.getpid())), "w").close()
        time.sleep(600)
    return fit_batch(batch)
fitting._fit_batch = waiting
with np.load(data) as file:
    X, y, queries = (file[name] for name in "Xyq")
rules = {"overlap": 0, "weighting": "entropy", "calibration": "information", "routing": None}
settings = {"points_per_expert": 5, "hyperparameters": "independent", "random_state": 0}
model = ManyGPRegressor(n_jobs=2 if workers else 1, **settings, **rules)
model.fit(X, y, checkpoint=folder)
np.save(data + ".npy", model.predict(queries, return_std=True))
"""


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")  # one that nobody has asked after is not running
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The folder of a fit that was killed, the command, and workers that do not end with it."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "workers").mkdir()
    np.savez(folder / "data.npz", X=X, y=y, q=QUERIES)
    command = [sys.executable, "-c", KILLED, str(folder / "data.npz"), str(folder / "checkpoint")]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*command, str(folder / "workers")], **quiet) as first:

        def both_run():
            assert first.poll() is None, "the fit has failed"
            return len(list((folder / "workers").iterdir())) == 2

        wait_until(both_run)
        os.kill(first.pid, signal.SIGKILL)
    workers = [int(path.name) for path in (folder / "workers").iterdir()]
    with suppress(TimeoutError):  # long before the batches of those that go on would end
        wait_until(lambda: not any(map(is_running, workers)))
    orphans = [pid for pid in workers if is_running(pid)]
    for pid in orphans:
        os.kill(pid, signal.SIGKILL)
    return folder, command, orphans


def test_44_a_killed_fit_goes_on_from_its_checkpoint(killed):
    folder, command, _ = killed
    kept = (folder / "checkpoint" / FITS).read_text()
    assert 2 <= len(kept.splitlines()) < 12
    subprocess.run([*command, ""], check=True, capture_output=True)
    assert (folder / "checkpoint" / FITS).read_text().startswith(kept)
    whole = model(points_per_expert=5, hyperparameters="independent").fit(X, y)
    assert_array_equal(np.load(folder / "data.npz.npy"), answers(whole)[:2])


def test_44_workers_of_a_killed_fit_do_not_outlive_it(killed):
    assert killed[2] == []


# Files


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A fitted model, and its file; tests copy it."""
    fitted = model(kernel=FIXED).fit(X, y)
    path = tmp_path_factory.mktemp("kept") / "model.gp"
    fitted.save(path)
    return fitted, path


def test_46_a_disk_that_is_full_while_saving_leaves_the_old_file(kept, tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "model.gp"
    path.write_bytes(kept[1].read_bytes())
    other = model(kernel=FIXED).fit(X, -y)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size // 2, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            other.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [one.name for one in tmp_path.iterdir()] == ["model.gp"]
    assert_array_equal(answers(load(path)), answers(kept[0]))


def test_46_a_disk_that_is_full_at_the_very_end_leaves_the_old_file(kept, tmp_path, monkeypatch):
    path = tmp_path / "model.gp"
    path.write_bytes(kept[1].read_bytes())

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            model(kernel=FIXED).fit(X, -y).save(path)
    assert [one.name for one in tmp_path.iterdir()] == ["model.gp"]
    assert_array_equal(answers(load(path)), answers(kept[0]))


def test_46_a_disk_that_is_full_of_checkpoints_loses_no_finished_expert(tmp_path):
    resource = pytest.importorskip("resource")
    whole = model(points_per_expert=10).fit(X, y, checkpoint=tmp_path / "whole")
    size = (tmp_path / "whole" / FITS).stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, hard))
    unlucky = model(points_per_expert=10)
    try:
        with pytest.raises(OSError, match="too large"):
            unlucky.fit(X, y, checkpoint=tmp_path / "part")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(NotFittedError):
        unlucky.predict_interval(QUERIES)
    unlucky.fit(X, y, checkpoint=tmp_path / "part")
    assert_array_equal(answers(unlucky), answers(whole))


def test_47_a_truncated_file_is_refused(kept, tmp_path):
    data, path = kept[1].read_bytes(), tmp_path / "model.gp"
    for length in [*range(0, len(data), 97), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(ModelFileError, match=r"only the beginning|truncated"):
            load(path)


def test_47_a_file_with_one_bit_flipped_is_refused(kept, tmp_path):
    data, path = kept[1].read_bytes(), tmp_path / "model.gp"
    draw = np.random.default_rng(0)
    places = [*range(8), 8, *draw.integers(8, len(data), 300).tolist(), len(data) - 1]
    for place in places:
        flipped = bytearray(data)
        flipped[place] ^= 1 << int(draw.integers(8))
        path.write_bytes(flipped)
        with pytest.raises(ModelFileError, match=rf"{path} (is|has|was)"):
            load(path)


class Evil:
    """Unpickled, it writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def forged(path, **changes):
    """A file with valid checksums whose manifest says something else."""
    manifest, arrays = container.read(path)
    container.write(path, manifest | changes, arrays)
    return path.read_bytes()


def claiming(path, shape):
    """The same with another shape of an array than it has."""
    manifest, _ = container.read(path)
    manifest["arrays"]["X"]["shape"] = shape
    header = container._header(json.dumps(manifest), manifest["arrays"])
    return len(header).to_bytes(8, "little") + header + bytes(10**4)


MALICE = {
    "pickle": lambda path, trap: pickle.dumps(Evil(trap)),
    "long-header": lambda path, trap: (2**62).to_bytes(8, "little") + b"{}",
    "deep-json": lambda path, trap: (2 * 10**5).to_bytes(8, "little") + b"[" * 2 * 10**5,
    "huge-array": lambda path, trap: claiming(path, [2**40, 2]),
    "overflowing-array": lambda path, trap: claiming(path, [2**47, 2**47]),
    "code-as-kernel": lambda path, trap: forged(path, kernel=f"open({str(trap)!r}, 'w')"),
    "code-as-rule": lambda path, trap: forged(
        path, rules={"weighting": {"rule": ["os", "system"]}}
    ),
}


@pytest.mark.parametrize("malice", MALICE)
def test_48_a_malicious_file_is_refused_and_nothing_is_executed_or_allocated(
    malice, kept, tmp_path
):
    path, trap = tmp_path / "model.gp", tmp_path / "trap"
    path.write_bytes(kept[1].read_bytes())
    path.write_bytes(MALICE[malice](path, trap))
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=str(path)):
            load(path)
        assert tracemalloc.get_traced_memory()[1] < 2e7
    finally:
        tracemalloc.stop()
    assert [one.name for one in tmp_path.iterdir()] == ["model.gp"]


def test_48_a_zip_bomb_is_not_unpacked(tmp_path):
    path = tmp_path / "model.gp"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("../escaped", bytes(10**7))
    with pytest.raises(ModelFileError, match="is not a model file"):
        load(path)
    assert not (tmp_path.parent / "escaped").exists()


def test_48_the_name_of_an_array_is_no_path(kept, tmp_path):
    path = tmp_path / "in" / "model.gp"
    path.parent.mkdir()
    manifest, arrays = container.read(kept[1])
    container.write(path, manifest, {"../../escaped": np.zeros(3), **arrays})
    with suppress(ModelFileError):
        assert_array_equal(answers(load(path)), answers(kept[0]))
    assert not (tmp_path / "escaped").exists()
    assert not (tmp_path.parent / "escaped").exists()


def test_48_factors_larger_than_the_machines_memory_are_refused(kept, tmp_path):
    n = 400_000
    manifest, arrays = container.read(kept[1])
    first = {name: arrays[name][:1] for name in ("hyperparameters", "evaluations", "seats")}
    arrays |= first | {
        "X": np.zeros((n, 2)),
        "y": np.zeros((n, 1)),
        "alpha": np.zeros(n),
        "own": np.arange(n, dtype=np.int32),
        "own_sizes": np.array([n], dtype=np.int32),
        "neighbours": np.zeros(0, dtype=np.int32),
        "neighbours_sizes": np.zeros(1, dtype=np.int32),
    }
    container.write(tmp_path / "model.gp", manifest, arrays)
    with pytest.raises(ModelFileError, match=r"its factors would need 1.28e\+03 GB"):
        load(tmp_path / "model.gp")


def test_49_a_file_of_a_newer_schema_is_refused_with_the_remedy(kept, tmp_path):
    path = tmp_path / "model.gp"
    path.write_bytes(kept[1].read_bytes())
    forged(path, schema=container.SCHEMA + 1)
    with pytest.raises(ModelFileError, match=r"written by a newer manygp .*pip install -U"):
        load(path)


# Many callers, many rows


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_50_eight_threads_predicting_at_once_get_the_same_bits(n_jobs):
    fitted = choosing(n_jobs=n_jobs).fit(X, y)
    rows = np.random.default_rng(1).uniform(-2, 2, (600, 2))
    expected, before = answers(fitted, rows), threadpool_info()
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: answers(fitted, rows), range(16)):
            assert_array_equal(found, expected)
    assert threadpool_info() == before  # no limit on BLAS is left behind


def test_51_one_job_and_four_give_the_same_bits():
    one, four = (answers(choosing(n_jobs=n).fit(X, y)) for n in (1, 4))
    assert_array_equal(four, one)


def test_51_four_processes_and_any_number_of_blas_threads_give_the_same_bits(in_processes):
    settings = {"points_per_expert": 10, "hyperparameters": "independent"}
    expected = answers(model(**settings).fit(X, y))
    assert_array_equal(answers(model(n_jobs=4, **settings).fit(X, y)), expected)
    for n_threads in (1, 2):
        with threadpool_limits(n_threads):
            assert_array_equal(answers(model(**settings).fit(X, y)), expected)


@ONE_AND_THREE_EXPERTS
def test_52_rows_in_one_batch_or_in_chunks_are_equal(points_per_expert):
    fitted = choosing(points_per_expert=points_per_expert).fit(X, y)
    rows = np.random.default_rng(1).uniform(-2.5, 2.5, (1100, 2))
    expected = answers(fitted, rows)
    for size in (1, 7, 600):
        few = rows if size > 1 else rows[:50]
        chunks = [answers(fitted, few[i : i + size]) for i in range(0, len(few), size)]
        joined = np.concatenate(chunks, axis=1)
        assert_allclose(joined, expected[:, : len(few)], rtol=1e-10, atol=1e-10)


MILLION = f"""{PEAK_BYTES}
import numpy as np
from manygp import ManyGPRegressor
from manygp.kernels import Matern, White
rng = np.random.default_rng(0)
X = rng.random((600, 2))
rules = dict(overlap=0, temperature=4.0, calibration="none", routing=2)
kernel = Matern(0.3, "fixed", nu=1.5) + White(0.01, "fixed")
model = ManyGPRegressor(kernel, points_per_expert=15, random_state=0, **rules)
model.fit(X, np.sin(6 * X[:, 0])).predict(X, return_std=True)
rows = rng.random((10**6, 2))
before = peak_bytes()
mean, std = model.predict(rows, return_std=True)
print(peak_bytes() - before, np.isfinite(mean).all() and (std > 0).all())
"""


@MEASURABLE
def test_53_a_million_rows_take_bounded_memory():
    done = subprocess.run([sys.executable, "-c", MILLION], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    grown, sound = done.stdout.split()
    assert sound == "True"
    # A few copies of rows and answers, and some arrays of a block; all at once would be 4.8 GB.
    assert int(grown) < 10**6 * 8 * 20 + 8 * (
        4 * QUERYING.block_numbers + 20 * QUERYING.block_rows
    )


def test_54_a_grid_search_with_jobs_leaves_each_model_one_thread(tmp_path):
    uniform = WEIGHTINGS["uniform"]

    def recording(experts):  # what a model finds in the worker that it runs in
        blas = {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}
        record = tmp_path / f"{os.getpid()}-{uuid4()}"
        record.write_text(f"{n_workers(4)} {blas}")
        return uniform(experts)

    estimator = model(kernel=FIXED, weighting=recording, n_jobs=4)
    grid = {"points_per_expert": [10, 15]}
    search = GridSearchCV(estimator, grid, cv=2, n_jobs=2, refit=False, error_score="raise")
    scores = search.fit(X, y).cv_results_["mean_test_score"]
    assert {path.read_text() for path in tmp_path.iterdir()} == {"1 {1}"}
    assert str(os.getpid()) not in {path.name.partition("-")[0] for path in tmp_path.iterdir()}
    search.set_params(n_jobs=None)
    assert_array_equal(scores, search.fit(X, y).cv_results_["mean_test_score"])


# Gradients overflow at their start; a kernel that fits lies within their bounds.
BAD_STARTS = {
    "variance": Constant(1e-160, (1e-200, 1e5)) * RBF(1.0) + White(1e-160, (1e-200, 1e3)),
    "length-scale": Constant(1.0) * RBF(1e-200, (1e-250, 1e5)) + White(0.1),
}


@ONE_AND_THREE_EXPERTS
@pytest.mark.parametrize("start", BAD_STARTS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_55_a_start_whose_likelihood_is_not_finite_is_left_or_refused(start, points_per_expert):
    bad = choosing(kernel=BAD_STARTS[start], points_per_expert=points_per_expert)
    try:
        fitted = bad.fit(X, y)
    except (ValueError, UserWarning) as error:
        assert "kernel" in str(error)  # noqa: PT017
    else:
        truth = slope_and_wave(QUERIES)
        assert fitted.score(QUERIES, truth) > 0.9
        assert_honest(fitted, QUERIES, truth)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_55_a_likelihood_that_is_finite_nowhere_is_an_error_that_names_the_expert():
    bad = model(kernel=Linear() * Linear() + White(0.1))
    with pytest.raises(ValueError, match=r"the expert with the rows \[.*not positive definite"):
        bad.fit(X * 1e90, y)


# The page


def test_every_row_of_the_page_names_its_tests_and_every_test_has_a_row():
    rows = re.findall(r"^\| (\d+) \|.*\|(.*?)\|$", PAGE.read_text(), re.MULTILINE)
    assert [int(number) for number, _ in rows] == NUMBERS
    named = {}
    for number, cell in rows:
        named[int(number)] = set(re.findall(r"`(test_\w+)`", cell))
    tests = [name for name in globals() if re.match(r"test_\d\d_", name)]
    for number in NUMBERS:
        assert named[number] == {name for name in tests if name.startswith(f"test_{number:02}_")}
        assert named[number], f"row {number} has no test"
    assert len(tests) == sum(map(len, named.values()))


# Processes


# A thread predicts without end. First it is stopped where it holds the lock on BLAS's limits.
FORKING = """
import os, sys, threading, time
import numpy as np
from manygp import load
from manygp.runtime import parallel

def child():
    pid = os.fork()
    if pid == 0:
        signal = np.array_equal(model.predict(rows, return_std=True), expected)
        os._exit(3 if signal else 4)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return "hangs"

model = load(sys.argv[1])
rows = np.random.default_rng(0).uniform(-2, 2, (60, 2))
expected = model.predict(rows, return_std=True)
take_control, inside = parallel._take_control, threading.Event()

def slow():
    inside.set()
    time.sleep(0.3)
    take_control()

over = False
def predict():
    while not over:
        model.predict(rows, return_std=True)

parallel._take_control = slow
thread = threading.Thread(target=predict)
thread.start()
inside.wait()
parallel._take_control = take_control
codes = [child() for _ in range(15)]
over = True
thread.join()
print(*codes)
print(parallel._depth)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_56_a_child_forked_while_another_thread_predicts_answers(kept):
    command = [sys.executable, "-W", "ignore", "-c", FORKING, str(kept[1])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=500)
    assert done.stdout.splitlines() == [" ".join(["3"] * 15), "0"]


# Workers are killed with the main process before they have anything to do.
STARTING = """
import os, sys, time
from manygp.runtime.parallel import process_map

class Item:
    def __reduce__(self):
        here = f"os.path.join({sys.argv[1]!r}, str(os.getpid()))"
        return exec, (f"import os, time; open({here}, 'w').close(); time.sleep(5)",)

list(process_map(lambda _: time.sleep(600), [Item(), Item()], 2))
"""


def test_57_workers_that_start_while_the_main_process_is_killed_end_too(tmp_path):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", STARTING, str(tmp_path)], **quiet) as main:

        def started():
            assert main.poll() is None, "it has failed"
            return len(list(tmp_path.iterdir())) == 2

        wait_until(started)
        os.kill(main.pid, signal.SIGKILL)
    workers = [int(path.name) for path in tmp_path.iterdir()]
    try:
        wait_until(lambda: not any(map(is_running, workers)), 30)
    finally:
        for pid in filter(is_running, workers):
            os.kill(pid, signal.SIGKILL)


def test_58_a_checkpoint_of_another_generator_is_refused(tmp_path):
    first = model(random_state=np.random.RandomState(1)).fit(X, y, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"its random_state is 'RandomState .*another folder"):
        model(random_state=np.random.RandomState(2)).fit(X, y, checkpoint=tmp_path)
    again = model(random_state=np.random.RandomState(1)).fit(X, y, checkpoint=tmp_path)
    assert_array_equal(answers(again), answers(first))


def test_59_a_line_of_a_checkpoint_with_a_right_digest_and_a_wrong_content_is_fitted_again(
    tmp_path,
):
    first = model().fit(X, y, checkpoint=tmp_path)
    lines = (tmp_path / FITS).read_text().splitlines()
    key = json.loads(lines[0].partition(" ")[2])[0]
    text = json.dumps([key, [1.0], 1])  # the kernel has more
    lines[0] = f"{hashlib.sha256(text.encode()).hexdigest()[:32]} {text}"
    (tmp_path / FITS).write_text("\n".join(lines) + "\n")
    assert_array_equal(answers(model().fit(X, y, checkpoint=tmp_path)), answers(first))


def test_60_what_a_killed_save_leaves_is_private_and_removed_by_the_next(kept, tmp_path):
    path = tmp_path / "model.gp"
    path.write_bytes(kept[1].read_bytes())
    path.chmod(0o600)
    program = (
        "import os, sys\nfrom manygp import load\nfrom manygp.runtime import files\n"
        "model = load(sys.argv[1])\n"
        "files.os.fsync = lambda descriptor: os.kill(os.getpid(), 9)\n"
        "model.save(sys.argv[1])\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)]).returncode == -9
    (left,) = [one for one in tmp_path.iterdir() if one != path]
    assert left.stat().st_mode & 0o077 == 0
    assert_array_equal(answers(load(path)), answers(kept[0]))
    kept[0].save(path)
    assert [one.name for one in tmp_path.iterdir()] == ["model.gp"]
