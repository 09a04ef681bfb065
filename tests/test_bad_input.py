"""Bad input beyond the table in docs/reliability.md, whose rows have their tests in test_faults.

The rule is the same: an error that names the column or row and the remedy, or a finite answer with
std > 0.
"""

import datetime

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal

from data import spoilt
from manygp.committee.committee import PARTITIONS
from manygp.kernels import (
    RBF,
    Additive,
    Linear,
    Matern,
    Pairwise,
    Periodic,
    RationalQuadratic,
    White,
)
from models import (
    ONE_AND_THREE_EXPERTS,
    OWN,
    QUERIES,
    X,
    answers,
    assert_sound,
    choosing,
    model,
    y,
)

# Fits of bad input may end at a bound.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

AGGREGATIONS = pytest.mark.parametrize("aggregation", ["gpoe", "grbcm", "nested"])


# Missing values


@pytest.mark.parametrize(("value", "kind"), [(np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "inf")])
def test_missing_values_of_arrays_to_predict_are_named_by_column_and_row(value, kind):
    bad = spoilt(X, ((7, 1), value))
    with pytest.raises(ValueError, match=f"X contains {kind}.*column 1, row 7.*SimpleImputer"):
        model(kernel=OWN).fit(X, y).predict(bad)


def test_the_named_column_row_and_kind_belong_to_one_value():
    bad = spoilt(X, ((0, 1), np.inf), ((5, 0), np.nan))
    with pytest.raises(
        ValueError, match=r"infinity, first in column 1, row 0|NaN, first in column 0, row 5"
    ):
        model().fit(bad, y)


def test_infinity_in_y_is_named_by_row():
    with pytest.raises(ValueError, match=r"y contains inf.*row 7"):
        model().fit(X, spoilt(y, (7, np.inf)))


# Types


WORDS, DAYS = ["u", "v"] * 30, [datetime.date(2000, 1, 1 + i % 28) for i in range(60)]
TIMES = [datetime.datetime(2000, 1, 1 + i % 28) for i in range(60)]
SPANS = [datetime.timedelta(days=i) for i in range(60)]
COLUMNS = [
    *(("pandas", WORDS, kind) for kind in ("object", "string")),
    *(("pandas", TIMES, kind) for kind in ("datetime64[ns, UTC]", "period[D]")),
    ("pandas", [1, 2] * 30, "category"),
    ("pandas", SPANS, "timedelta64[ns]"),
    ("polars", WORDS, "String"),
    *(("polars", *c) for c in ((DAYS, "Date"), (SPANS, "Duration"))),
    *(("pyarrow", WORDS, kind) for kind in ("string", "dictionary")),
    *(("pyarrow", *c) for c in ((DAYS, "date"), (TIMES, "timestamp"), (SPANS, "duration"))),
]


def table_with(library, values, kind):
    """A table of the columns a, a number, and b."""
    module = pytest.importorskip(library)
    if library == "pyarrow":
        column = module.array(values)
        column = column.dictionary_encode() if kind == "dictionary" else column
        return module.table({"a": X[:, 0], "b": column})
    dtype = kind if library == "pandas" else getattr(module, kind)
    return module.DataFrame({"a": X[:, 0], "b": module.Series(values, dtype=dtype)})


@pytest.mark.parametrize(
    ("library", "values", "kind"), COLUMNS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_a_column_that_is_no_number_is_named(library, values, kind):
    with pytest.raises(ValueError, match=r"column 'b'.*encode"):
        model(columns="numeric").fit(table_with(library, values, kind), y)


NO_NUMBERS = r"(?i)number|convert|complex|string|datetime"


@pytest.mark.parametrize(
    "bad",
    [
        (1e9 * X).astype("datetime64[s]"),
        (1e9 * X).astype("timedelta64[s]"),
        X + 1j,
    ],
    ids=["datetime64", "timedelta64", "complex"],
)
def test_arrays_that_are_no_real_numbers_are_refused(bad):
    with pytest.raises(ValueError, match=NO_NUMBERS):
        model().fit(bad, y)
    with pytest.raises(ValueError, match=NO_NUMBERS):
        model(kernel=OWN).fit(X, y).predict(bad)


@pytest.mark.parametrize(
    "bad",
    [np.array(WORDS), y.astype(str), (1e9 * y).astype("datetime64[s]")],
    ids=["strings", "numbers as strings", "datetime64"],
)
def test_targets_that_are_no_real_numbers_are_refused(bad):
    with pytest.raises(ValueError, match=NO_NUMBERS):
        model().fit(X, bad)


@pytest.mark.parametrize("container", [scipy.sparse.csr_matrix, scipy.sparse.coo_array])
def test_sparse_rows_to_predict_and_sparse_targets_are_refused(container):
    with pytest.raises(TypeError, match="dense"):
        model(kernel=OWN).fit(X, y).predict(container(X))
    with pytest.raises((TypeError, ValueError), match=r"dense|sparse"):
        model().fit(X, container(y[:, None]))


def test_masks_of_nothing_are_no_hindrance():
    fitted = model(kernel=OWN).fit(np.ma.array(X), np.ma.array(y))
    assert_array_equal(answers(fitted), answers(model(kernel=OWN).fit(X, y)))


@ONE_AND_THREE_EXPERTS
@pytest.mark.parametrize(
    "layout",
    [lambda a: a[::-1].copy()[::-1], lambda a: a.astype(object), lambda a: a.tolist(),
     lambda a: a.astype(">f8")],
    ids=["reversed", "object", "list", "big-endian"],
)  # fmt: skip
def test_layout_and_type_leave_no_trace(layout, points_per_expert):
    size = {"points_per_expert": points_per_expert}
    fitted = model(**size).fit(layout(X), layout(y))
    assert_array_equal(answers(fitted, layout(QUERIES)), answers(model(**size).fit(X, y)))


@pytest.mark.parametrize("dtype", [np.float16, np.int8, bool])
def test_other_numbers_are_fitted_as_float64(dtype):
    coarse, targets, rows = ((10 * np.abs(a)).astype(dtype) for a in (X, y, QUERIES))
    if dtype is bool:
        coarse, targets, rows = X > 0, X[:, 0] > 0, QUERIES > 0
    got = answers(model().fit(coarse, targets), rows)
    assert got.dtype == np.float64
    as_float = [np.asarray(a, dtype=float) for a in (coarse, targets, rows)]
    assert_array_equal(got, answers(model().fit(*as_float[:2]), as_float[2]))


# Shapes


@pytest.mark.parametrize(
    ("bad", "targets", "message"),
    [
        (X[:, 0], y, "2D array"),
        (X[:, :, None], y, "dim 3"),
        (X, y[:, None, None], "dim 3"),
        (X, y[:-1], "inconsistent"),
        (X[:, :0], y, "0 feature"),
        (3.0, y, "2D array"),
        (X, None, "requires y"),
    ],
    ids=["1-d", "3-d", "3-d y", "lengths", "no columns", "scalar", "no y"],
)
def test_wrong_shapes_are_refused(bad, targets, message):
    with pytest.raises(ValueError, match=message):
        model().fit(bad, targets)


def test_rows_of_the_wrong_shape_are_refused_by_predict():
    fitted = model(kernel=OWN).fit(X, y)
    for bad, message in ((X[0], "2D array"), (X[:, :1], "1 feature")):
        with pytest.raises(ValueError, match=message):
            fitted.predict(bad)


@pytest.mark.parametrize("n", [2, 3, 19, 20, 21, 39, 40, 41])
def test_few_rows_are_enough(n):
    fitted = choosing().fit(X[:n], y[:n])
    assert len(fitted.experts_) == max(1, n // 20)
    assert_sound(fitted)
    assert_sound(fitted, X)


@pytest.mark.parametrize("partition", PARTITIONS)
@AGGREGATIONS
@pytest.mark.parametrize("points_per_expert", [1, 2])
def test_tiny_experts_are_sound(points_per_expert, partition, aggregation):
    settings = {"partition": partition, "aggregation": aggregation}
    assert_sound(choosing(points_per_expert=points_per_expert, **settings).fit(X[:24], y[:24]))


@pytest.mark.parametrize("partition", PARTITIONS)
@AGGREGATIONS
def test_rows_that_are_all_equal_or_clumped_are_sound(partition, aggregation):
    settings = {"partition": partition, "aggregation": aggregation}
    assert_sound(choosing(**settings).fit(np.ones((60, 2)), y))
    clumped = np.concatenate([X[:3] + 1e3, np.full((37, 2), 0.5), X[:20]])
    assert_sound(choosing(**settings).fit(clumped, y))


# Degenerate targets and duplicates


@ONE_AND_THREE_EXPERTS
@pytest.mark.parametrize("value", [0.0, 1e300, -1e-300])
def test_constants_of_any_size_give_one_warning_and_that_constant(value, points_per_expert):
    with pytest.warns(UserWarning, match="y is constant") as record:
        fitted = choosing(points_per_expert=points_per_expert).fit(X, np.full(60, value))
    assert len(record) == 1
    assert_allclose(fitted.predict(QUERIES), value, rtol=1e-12)
    assert_sound(fitted)


@AGGREGATIONS
@ONE_AND_THREE_EXPERTS
def test_duplicate_rows_without_noise_are_sound_in_every_aggregation(
    points_per_expert, aggregation
):
    twice = np.repeat(X[:30], 2, axis=0)
    settings = {"aggregation": aggregation, "points_per_expert": points_per_expert}
    settings["kernel"] = 1.0 * RBF(1.0)
    with pytest.warns(UserWarning, match="their targets are not"):
        fitted = choosing(**settings).fit(twice, np.tile([1.0, 2.0], 30))
    assert any(expert.jitter > 0 for expert in fitted.experts_)
    assert_sound(fitted)
    assert_sound(choosing(**settings).fit(twice, np.repeat(y[:30], 2)), X)


def test_a_covariance_of_low_rank_is_sound():
    fitted = choosing(kernel=Linear(1.0)).fit(X, y)
    assert all(expert.jitter > 0 for expert in fitted.experts_)
    assert_sound(fitted)


def test_a_row_of_no_prior_variance_is_sound():
    kernel = Linear(0.0, "fixed") + White(0.1)
    for points_per_expert in (100, 20):
        fitted = choosing(kernel=kernel, points_per_expert=points_per_expert).fit(X, y)
        assert_sound(fitted, np.zeros((2, 2)))


# Magnitudes


@pytest.fixture(scope="module")
def ordinary():
    """The default model in ordinary units."""
    return choosing().fit(X, y)


@pytest.mark.parametrize("scale", [8e307, 1e-160])
def test_the_default_model_does_not_depend_on_the_units_of_x(scale, ordinary):
    found = answers(choosing().fit(X * scale, y), QUERIES * scale)
    assert_allclose(found, answers(ordinary), rtol=1e-3)


@pytest.mark.parametrize("scale", [1e160, 1e-160])
def test_the_default_model_does_not_depend_on_the_units_of_y(scale, ordinary):
    found = answers(choosing().fit(X, y * scale)) / scale
    assert_allclose(found, answers(ordinary), rtol=1e-3)


@pytest.fixture(scope="module", params=[1e200, 1e-200])
def scaled(request):
    """A scale whose square no float holds, and the default model of targets of that scale."""
    return request.param, choosing().fit(X, y * request.param)


def test_samples_do_not_depend_on_the_units(scaled, ordinary):
    scale, fitted = scaled
    samples = fitted.sample_y(QUERIES, 3) / scale
    assert_allclose(samples, ordinary.sample_y(QUERIES, 3), rtol=1e-3)


def test_variances_that_no_float_holds_are_refused(scaled):
    _, fitted = scaled
    with pytest.raises(ValueError, match="scale"):
        fitted.predict(QUERIES, return_cov=True)
    with pytest.raises(ValueError, match="scale"):
        fitted.predict_experts(QUERIES)


@pytest.mark.parametrize("kernel", [OWN, Linear() + White(0.1)], ids=["rbf", "linear"])
def test_magnitudes_beyond_a_kernel_of_your_own_are_refused_by_column(kernel):
    for scale in (1e160, 1e300):
        with pytest.raises(ValueError, match=r"column 1.*normalize_X=True"):
            model(kernel=kernel).fit(X * [1.0, scale], y)
        assert_sound(model(kernel=kernel, normalize_X=True).fit(X * scale, y), QUERIES * scale)
        assert_sound(model(kernel=kernel).fit(X / scale, y), QUERIES / scale)
    assert_sound(model(kernel=kernel).fit(X * 4e99, y), QUERIES * 4e99)


@pytest.mark.parametrize("scale", [1e160, 1e-160])
def test_raw_targets_that_no_kernel_can_fit_are_not_silent(scale):
    with pytest.raises((ValueError, UserWarning), match="normalize_y"):
        choosing(normalize_y=False).fit(X, y * scale)


STATIONARY = {f"matern-{nu}": Matern(nu=nu) for nu in (0.5, 1.5, 2.5)}
STATIONARY |= {"rbf": RBF(), "rational-quadratic": RationalQuadratic(), "periodic": Periodic()}
STATIONARY |= {"additive": Additive(), "pairwise": Pairwise(nu=1.5)}


@pytest.fixture(scope="module", params=STATIONARY)
def of_two_kinds(request):
    kernel = STATIONARY[request.param] + White(0.1)
    return [choosing(kernel=kernel, points_per_expert=n).fit(X, y) for n in (100, 20)]


@pytest.mark.parametrize("distance", [1e8, 1e160, 1e300, -1.7e308])
def test_queries_however_far_are_sound_or_refused_by_column(of_two_kinds, distance):
    for fitted in of_two_kinds:
        try:
            assert_sound(fitted, np.array([[distance, 0.0], [distance, -distance]]))
        except ValueError as error:
            assert "column 0" in str(error)  # noqa: PT017
            assert abs(distance) > 1e150
