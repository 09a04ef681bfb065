"""Values that were once read as others, without a word."""

import datetime

import numpy as np
import pytest

from manygp import ManyGPRegressor
from manygp.kernels import Matern, White
from manygp.tables import TableEncoder
from manygp.tables.frames import as_batch
from manygp.tables.values import as_days

pandas = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")
polars = pytest.importorskip("polars")

DAYS = [datetime.datetime(1500, 1, 1), datetime.datetime(3000, 1, 1)]
EXPECTED_DAYS = [(day - datetime.datetime(1970, 1, 1)).days for day in DAYS]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_dates_of_pandas_before_1677_and_after_2262_are_what_they_say(unit):
    column = pandas.Series(np.array(DAYS, dtype=f"datetime64[{unit}]"))
    for days in (column, column.dt.tz_localize("UTC")):
        batch = as_batch(pandas.DataFrame({"t": days}))
        assert as_days(batch.columns["t"]).tolist() == EXPECTED_DAYS


LARGE = [2**53 + 1, None, 3]


@pytest.mark.parametrize(
    "table",
    [
        pandas.DataFrame({"id": pandas.array(LARGE, dtype="Int64")}),
        pandas.DataFrame({"id": pandas.array(LARGE, dtype="UInt64")}),
        pandas.DataFrame({"id": pandas.Series(LARGE, dtype=object)}),
        pandas.DataFrame({"id": pandas.Series([10**400, None, 3], dtype=object)}),
        pyarrow.table({"id": LARGE}),
        polars.DataFrame({"id": LARGE}),
    ],
    ids=["Int64", "UInt64", "objects", "400 digits", "pyarrow", "polars"],
)
def test_integers_that_lose_digits_are_refused_beside_a_missing_value_too(table):
    with pytest.raises(ValueError, match=r"column 'id': .*(more digits than|no finite size)"):
        TableEncoder().fit(table, [1.0, 2.0, 3.0])


@pytest.mark.parametrize("library", [pandas.DataFrame, pyarrow.table, polars.DataFrame])
def test_integers_beside_a_missing_value_are_numbers(library):
    values = as_batch(library({"n": [1, None, 2**53 - 1]})).columns["n"]
    np.testing.assert_array_equal(values, [1.0, np.nan, 2.0**53 - 1])


@pytest.mark.parametrize("n_categories", [3, 15])
def test_an_unknown_category_has_a_finite_answer_where_targets_nearly_overflow(n_categories):
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({
        "a": rng.random(90), "town": [f"t{i % n_categories}" for i in range(90)],
    })  # fmt: skip
    y = (frame.a.to_numpy() + 1) * 8e307 / 2
    kernel = Matern(nu=2.5) + White(0.1)
    model = ManyGPRegressor(kernel, normalize_X=True, optimizer=None).fit(frame, y)
    mean, std = model.predict(frame.head(3).assign(town="elsewhere"), return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std > 0).all()
