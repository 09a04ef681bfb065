"""Bad input: an error that names the column or row and the remedy, or a finite answer, std > 0."""

import datetime

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal

from manygp.kernels import RBF, Linear, Matern, Periodic, RationalQuadratic, White
from manygp.rules.partition import PARTITIONS
from small import OWN, QUERIES, X, answers, assert_sound, choosing, model, spoilt, y

AGGREGATIONS = pytest.mark.parametrize("aggregation", ["gpoe", "grbcm", "nested"])
KINDS = {"one-expert": {"points_per_expert": 100}, "three-experts": {"points_per_expert": 20}}


# Missing values


@pytest.mark.parametrize(("value", "kind"), [(np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "inf")])
def test_missing_values_of_x_are_named_by_column_and_row(value, kind):
    bad = spoilt(X, ((7, 1), value))
    with pytest.raises(ValueError, match=f"X contains {kind}.*column 1, row 7.*SimpleImputer"):
        model().fit(bad, y)
    with pytest.raises(ValueError, match=f"X contains {kind}.*column 1, row 7.*SimpleImputer"):
        model(kernel=OWN).fit(X, y).predict(bad)


def test_the_named_column_row_and_kind_belong_to_one_value():
    bad = spoilt(X, ((0, 1), np.inf), ((5, 0), np.nan))
    with pytest.raises(
        ValueError, match=r"infinity, first in column 1, row 0|NaN, first in column 0, row 5"
    ):
        model().fit(bad, y)


@pytest.mark.parametrize(("value", "kind"), [(np.nan, "NaN"), (np.inf, "inf")])
def test_missing_values_of_y_are_named_by_row(value, kind):
    with pytest.raises(ValueError, match=f"y contains {kind}.*row 7"):
        model().fit(X, spoilt(y, (7, value)))


def test_missing_values_of_tables_are_named_by_column():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": X[:, 0], "b": pandas.array([1, None] * 30, dtype="Int64")})
    with pytest.raises(ValueError, match=r"NaN.*column 'b', row 1"):
        model().fit(table, y)


# Types


WORDS, DAYS = ["u", "v"] * 30, [datetime.date(2000, 1, 1 + i % 28) for i in range(60)]
TIMES = [datetime.datetime(2000, 1, 1 + i % 28) for i in range(60)]
SPANS = [datetime.timedelta(days=i) for i in range(60)]
COLUMNS = [
    *(("pandas", WORDS, kind) for kind in ("object", "string", "category")),
    *(("pandas", TIMES, kind) for kind in ("datetime64[ns]", "datetime64[ns, UTC]", "period[D]")),
    ("pandas", [1, 2] * 30, "category"),
    ("pandas", SPANS, "timedelta64[ns]"),
    *(("polars", WORDS, kind) for kind in ("String", "Categorical")),
    *(("polars", *c) for c in ((DAYS, "Date"), (TIMES, "Datetime"), (SPANS, "Duration"))),
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
        model().fit(table_with(library, values, kind), y)


NO_NUMBERS = r"(?i)number|convert|complex|string|datetime"


@pytest.mark.parametrize(
    "bad",
    [
        np.array([["u", "v"]] * 60),
        np.array([["u", 1.0]] * 60, dtype=object),
        X.astype(str),
        (1e9 * X).astype("datetime64[s]"),
        (1e9 * X).astype("timedelta64[s]"),
        X + 1j,
    ],
    ids=["strings", "mixed", "numbers as strings", "datetime64", "timedelta64", "complex"],
)
def test_arrays_that_are_no_real_numbers_are_refused(bad):
    with pytest.raises(ValueError, match=NO_NUMBERS):
        model().fit(bad, y)
    with pytest.raises(ValueError, match=NO_NUMBERS):
        model(kernel=OWN).fit(X, y).predict(bad)


@pytest.mark.parametrize(
    "bad",
    [np.array(WORDS), y.astype(str), (1e9 * y).astype("datetime64[s]"), y + 1j],
    ids=["strings", "numbers as strings", "datetime64", "complex"],
)
def test_targets_that_are_no_real_numbers_are_refused(bad):
    with pytest.raises(ValueError, match=NO_NUMBERS):
        model().fit(X, bad)


@pytest.mark.parametrize("container", [scipy.sparse.csr_matrix, scipy.sparse.coo_array])
def test_sparse_data_is_refused(container):
    with pytest.raises(TypeError, match="dense"):
        model().fit(container(X), y)
    with pytest.raises(TypeError, match="dense"):
        model(kernel=OWN).fit(X, y).predict(container(X))
    with pytest.raises((TypeError, ValueError), match=r"dense|sparse"):
        model().fit(X, container(y[:, None]))


def test_masked_values_are_refused_and_masks_of_nothing_are_not():
    hidden = np.ma.masked_greater(X, 1.0)
    with pytest.raises(ValueError, match=r"X is a masked array.*fill"):
        model().fit(hidden, y)
    with pytest.raises(ValueError, match=r"y is a masked array.*fill"):
        model().fit(X, np.ma.masked_greater(y, 3.0))
    fitted = model(kernel=OWN).fit(np.ma.array(X), np.ma.array(y))
    with pytest.raises(ValueError, match=r"X is a masked array.*fill"):
        fitted.predict(hidden)
    assert_array_equal(answers(fitted), answers(model(kernel=OWN).fit(X, y)))


def strided(values):
    wide = np.full((2 * len(values), *values.shape[1:]), np.nan)
    wide[::2] = values
    return wide[::2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "layout",
    [np.asfortranarray, strided, lambda a: a[::-1].copy()[::-1], np.longdouble,
     lambda a: a.astype(object), lambda a: a.tolist(), lambda a: a.astype(">f8")],
    ids=["fortran", "strided", "reversed", "longdouble", "object", "list", "big-endian"],
)  # fmt: skip
def test_layout_and_type_leave_no_trace(layout, kind):
    expected = answers(model(**KINDS[kind]).fit(X, y))
    assert_array_equal(
        answers(model(**KINDS[kind]).fit(layout(X), layout(y)), layout(QUERIES)), expected
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.int8, np.uint8, bool])
def test_other_numbers_are_fitted_as_float64(dtype):
    coarse, targets, rows = ((10 * np.abs(a)).astype(dtype) for a in (X, y, QUERIES))
    if dtype is bool:
        targets = X[:, 0] > 0
        coarse, rows = X > 0, QUERIES > 0
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
        (X[:0], y[:0], "0 sample"),
        (X[:, :0], y, "0 feature"),
        (3.0, y, "2D array"),
        (X, None, "requires y"),
    ],
    ids=["1-d", "3-d", "3-d y", "lengths", "no rows", "no columns", "scalar", "no y"],
)
def test_wrong_shapes_are_refused(bad, targets, message):
    with pytest.raises(ValueError, match=message):
        model().fit(bad, targets)


def test_rows_of_the_wrong_shape_are_refused_by_predict():
    fitted = model(kernel=OWN).fit(X, y)
    for bad, message in ((X[0], "2D array"), (X[:, :1], "1 feature"), (X[:0], "0 sample")):
        with pytest.raises(ValueError, match=message):
            fitted.predict(bad)


def test_missing_columns_of_tables_are_named():
    pandas = pytest.importorskip("pandas")
    fitted = model(kernel=OWN).fit(pandas.DataFrame(X, columns=["a", "b"]), y)
    with pytest.raises(ValueError, match="missing:\n- b"):
        fitted.predict(pandas.DataFrame(X[:, :1], columns=["a"]))
    with pytest.raises(ValueError, match="unseen at fit time:\n- c"):
        fitted.predict(pandas.DataFrame(X, columns=["a", "c"]))


@pytest.mark.parametrize("width", [1, 2])
def test_targets_in_columns_give_columns_as_scikit_learn_does(width):
    Y = np.column_stack([y, -2 * y])[:, :width]
    mean, std = model(kernel=OWN).fit(X, Y).predict(QUERIES, return_std=True)
    assert mean.shape == std.shape == ((10,) if width == 1 else (10, 2))


@pytest.mark.parametrize("n", [1, 2, 3, 19, 20, 21, 39, 40, 41])
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
    assert_sound(choosing(points_per_expert=points_per_expert, **settings).fit(X, y))


@pytest.mark.parametrize("kind", KINDS)
def test_more_columns_than_rows_are_sound(kind):
    wide = np.random.default_rng(1).normal(size=(60, 80))
    assert_sound(choosing(**KINDS[kind]).fit(wide, y), wide[:5] + 0.1)


def test_a_constant_column_changes_nothing():
    kernel = RBF(1.0, "fixed") + White(0.1, "fixed")
    fitted = model(kernel=kernel, partition="random").fit(
        np.column_stack([X, np.full(60, 5.0)]), y
    )
    got = answers(fitted, np.column_stack([QUERIES, np.full(10, 5.0)]))
    assert_allclose(got, answers(model(kernel=kernel, partition="random").fit(X, y)), rtol=1e-10)


@pytest.mark.parametrize("partition", PARTITIONS)
@AGGREGATIONS
def test_rows_that_are_all_equal_or_clumped_are_sound(partition, aggregation):
    settings = {"partition": partition, "aggregation": aggregation}
    assert_sound(choosing(**settings).fit(np.ones((60, 2)), y))
    clumped = np.concatenate([X[:3] + 1e3, np.full((37, 2), 0.5), X[:20]])
    assert_sound(choosing(**settings).fit(clumped, y))


# Degenerate targets and duplicates


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [3.7, 0.0, 1e300, -1e-300])
def test_constant_targets_give_one_warning_and_that_constant(value, kind):
    with pytest.warns(UserWarning, match="y is constant") as record:
        fitted = choosing(**KINDS[kind]).fit(X, np.full(60, value))
    assert len(record) == 1
    assert_allclose(fitted.predict(QUERIES), value, rtol=1e-12)
    assert_sound(fitted)


def test_targets_constant_within_one_expert_are_sound():
    halves = [np.flatnonzero(X[:, 0] < 0), np.flatnonzero(X[:, 0] >= 0)]
    fitted = choosing(partition=lambda *_: halves).fit(X, np.where(X[:, 0] < 0, 3.0, y))
    assert_sound(fitted)


@pytest.mark.parametrize("kind", KINDS)
def test_duplicate_rows_with_different_targets_are_noise(kind):
    fitted = choosing(**KINDS[kind]).fit(np.repeat(X[:30], 2, axis=0), np.tile([1.0, 2.0], 30))
    mean, std = fitted.predict(X[:30], return_std=True)
    assert np.all(std > 0.3)  # theirs is 0.5
    assert np.all(np.abs(mean - 1.5) < 0.5)


@AGGREGATIONS
@pytest.mark.parametrize("kind", KINDS)
def test_duplicate_rows_without_noise_need_jitter_which_is_recorded(kind, aggregation):
    twice = np.repeat(X[:30], 2, axis=0)
    settings = {"kernel": 1.0 * RBF(1.0), "aggregation": aggregation, **KINDS[kind]}
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
    for kind in KINDS.values():
        fitted = choosing(kernel=Linear(0.0, "fixed") + White(0.1), **kind).fit(X, y)
        assert_sound(fitted, np.zeros((2, 2)))


# Magnitudes


@pytest.mark.parametrize("scale", [1e160, 1e300, 8e307, 1e-160, 1e-300])
def test_the_default_model_does_not_depend_on_the_units(scale):
    expected = answers(choosing().fit(X, y))
    assert_allclose(answers(choosing().fit(X * scale, y), QUERIES * scale), expected, rtol=1e-3)
    if scale < 1e307:
        assert_allclose(answers(choosing().fit(X, y * scale)) / scale, expected, rtol=1e-3)


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_samples_do_not_depend_on_the_units(scale):
    samples = choosing().fit(X, y * scale).sample_y(QUERIES, 3) / scale
    assert_allclose(samples, choosing().fit(X, y).sample_y(QUERIES, 3), rtol=1e-3)


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_variances_that_no_float_holds_are_refused(scale):
    fitted = choosing().fit(X, y * scale)
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


@pytest.mark.parametrize("scale", [1e300, 1e160, 1e-160, 1e-300])
def test_raw_targets_that_no_kernel_can_fit_are_not_silent(scale):
    with pytest.raises((ValueError, UserWarning), match="normalize_y"):
        choosing(normalize_y=False).fit(X, y * scale)


STATIONARY = {f"matern-{nu}": Matern(nu=nu) for nu in (0.5, 1.5, 2.5)}
STATIONARY |= {"rbf": RBF(), "rational-quadratic": RationalQuadratic(), "periodic": Periodic()}


@pytest.fixture(scope="module", params=STATIONARY)
def of_two_kinds(request):
    kernel = STATIONARY[request.param] + White(0.1)
    return [choosing(kernel=kernel, **kind).fit(X, y) for kind in KINDS.values()]


@pytest.mark.parametrize("distance", [1e8, 1e160, 1e300, -1.7e308])
def test_queries_however_far_are_sound_or_refused_by_column(of_two_kinds, distance):
    for fitted in of_two_kinds:
        try:
            assert_sound(fitted, np.array([[distance, 0.0], [distance, -distance]]))
        except ValueError as error:
            assert "column 0" in str(error)  # noqa: PT017
            assert abs(distance) > 1e150


def test_far_from_all_data_the_prior_remains():
    kernel = Matern(0.9, "fixed", nu=1.5) + White(0.02, "fixed")
    fitted = model(kernel=kernel, normalize_y=False, prior_mean="zero", calibration="none")
    mean, std = fitted.fit(X, y).predict([[1e6, -1e6]], return_std=True, latent=True)
    assert mean[0] == pytest.approx(0.0, abs=1e-12)
    assert std[0] == pytest.approx(1.0, rel=1e-12)
