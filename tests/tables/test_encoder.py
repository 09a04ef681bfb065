"""Columns of any kind become numbers: learned once, kept as JSON, the same ever after."""

import datetime
import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import manygp
from manygp import ManyGPRegressor
from manygp.kernels import Matern, White
from manygp.tables import ColumnRoles, TableEncoder, read_training
from manygp.tables.columns import PARTS
from manygp.tables.encoder import ENCODING
from manygp.tables.frames import as_batch

pandas = pytest.importorskip("pandas")
RNG = np.random.default_rng(0)
N = 400
TOWNS = np.array([f"town {i:02}" for i in range(25)])
EFFECTS = RNG.normal(size=25)


def table(n=N, seed=1):
    """Columns of all kinds, and a target that depends on all but the last two."""
    rng = np.random.default_rng(seed)
    town = rng.integers(0, 25, n)
    frame = pandas.DataFrame({
        "a": rng.random(n),
        "b": rng.random(n),
        "town": TOWNS[town],
        "colour": rng.choice(["blue", "green", "red"], n),
        "day": pandas.Timestamp("2020-01-01") + pandas.to_timedelta(rng.integers(0, 1200, n), "D"),
        "lift": rng.random(n) < 0.5,
    })  # fmt: skip
    y = np.sin(6 * frame.a) + 2 * frame.b + EFFECTS[town] + 1.0 * (frame.colour == "red")
    return frame, (y + 0.1 * rng.normal(size=n)).to_numpy()


FRAME, Y = table()


def gaps(frame, column="b", share=0.3, seed=5):
    """The same table with missing values."""
    gone = np.random.default_rng(seed).random(len(frame)) < share
    return frame.assign(**{column: frame[column].mask(gone)}), gone


def small(**parameters):
    kernel = 1.0 * Matern(nu=2.5) + White(0.1)
    return ManyGPRegressor(kernel, normalize_X=True, random_state=0, **parameters)


@pytest.fixture(scope="module")
def model():
    return ManyGPRegressor(random_state=0, points_per_expert=200, trend="constant").fit(FRAME, Y)


# Features


def test_features_have_names_and_are_what_they_say():
    encoder = TableEncoder().fit(FRAME, Y)
    week = [f"day (weekday, {one})" for one in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")]
    assert list(encoder.get_feature_names_out()) == [
        "a", "b", "town (mean)", "colour=blue", "colour=green", "colour=red", "day",
        "day (year, sin)", "day (year, cos)", *week, "lift=True",
    ]  # fmt: skip
    assert encoder.feature_names_in_.tolist() == list(FRAME)
    X = encoder.transform(FRAME)
    assert_array_equal(X[:, :2], FRAME[["a", "b"]])
    assert_array_equal(X[:, 3:6], FRAME.colour.to_numpy()[:, None] == ["blue", "green", "red"])
    assert_array_equal(X[:, -1], FRAME.lift)
    days = (FRAME.day - pandas.Timestamp("1970-01-01")).dt.days
    assert_array_equal(X[:, 6], days)
    assert_array_equal(X[:, 9:16], FRAME.day.dt.day_of_week.to_numpy()[:, None] == np.arange(7))


def test_target_means_of_training_rows_are_out_of_fold():
    """A row's own target, changed, changes no feature of the row."""
    one = TableEncoder().fit_transform(FRAME, Y)
    changed = Y.copy()
    changed[7] += 1e6
    other = TableEncoder().fit_transform(FRAME, changed)
    assert_array_equal(one[7], other[7])
    assert np.any(one[:, 2] != other[:, 2])
    assert np.abs(TableEncoder().fit(FRAME, changed).transform(FRAME)[7, 2]) > 1e3


def test_target_means_are_close_to_the_effects_and_deterministic():
    encoder = TableEncoder(random_state=3)
    first = encoder.fit_transform(FRAME, Y)
    assert_array_equal(first, clone(encoder).fit_transform(FRAME, Y))
    codes = np.searchsorted(TOWNS, FRAME.town)
    assert np.corrcoef(first[:, 2], EFFECTS[codes])[0, 1] > 0.8


def test_several_targets_have_a_mean_each():
    encoder = TableEncoder().fit(FRAME, np.column_stack([Y, -Y]))
    assert encoder.names[2:4] == ("town (mean 0)", "town (mean 1)")
    X = encoder.transform(FRAME)
    assert_allclose(X[:, 2], -X[:, 3])


@pytest.mark.parametrize(
    ("start", "step", "n", "cycles"),
    [
        ("2000-01-01", "1D", 1000, ["year", "weekday"]),
        ("2000-01-01", "1D", 500, ["weekday"]),
        ("2000-01-01", "1D", 10, []),
        ("2000-01-01", "7D", 200, ["year"]),
        ("2000-01-01", "1h", 500, ["weekday", "day"]),
        ("2000-01-01", "1h", 30, []),
        ("2000-01-01", "365.2425D", 30, []),
        ("2000-01-01", "24h", 30, ["weekday"]),
    ],
)
def test_only_cycles_that_range_and_resolution_can_show(start, step, n, cycles):
    days = pandas.Timestamp(start) + pandas.to_timedelta(step) * np.arange(n)
    if step == "365.2425D":
        days = pandas.to_datetime([f"{2000 + i}-01-01" for i in range(n)])
    encoder = TableEncoder().fit(pandas.DataFrame({"d": days}), np.arange(float(n)))
    expected = [f"d ({cycle}, {part})" for cycle in cycles for part in PARTS[cycle]]
    assert list(encoder.names) == ["d", *expected]


def test_missing_numbers_are_filled_and_marked():
    frame, gone = gaps(FRAME)
    encoder = TableEncoder().fit(frame, Y)
    X = encoder.transform(frame)
    assert encoder.names[1:3] == ("b", "b (missing)")
    assert_array_equal(X[gone, 1], frame.b.median())
    assert_array_equal(X[:, 2], gone)


def test_a_missing_category_is_a_category():
    frame, gone = gaps(FRAME, "colour")
    encoder = TableEncoder().fit(frame, Y)
    assert "colour (missing)" in encoder.names
    where = encoder.names.index("colour (missing)")
    assert_array_equal(encoder.transform(frame)[:, where], gone)


@pytest.mark.parametrize("library", ["polars", "pyarrow", "csv", "parquet"])
def test_the_same_table_of_every_library_gives_the_same_features(library, tmp_path):
    frame, _ = gaps(FRAME)
    frame = gaps(frame, "colour", seed=6)[0].assign(lift=FRAME.lift.astype(str))
    expected = TableEncoder().fit_transform(frame, Y)
    module = pytest.importorskip("polars" if library == "polars" else "pyarrow")
    if library == "polars":
        other = module.DataFrame(
            {name: [None if pandas.isna(v) else v for v in frame[name]] for name in frame}
        )
    elif library == "pyarrow":
        other = module.Table.from_pandas(frame, preserve_index=False)
    else:
        path = tmp_path / f"t.{library}"
        whole = frame.assign(y=Y)
        whole.to_csv(path, index=False) if library == "csv" else whole.to_parquet(path)
        other = read_training(path, ColumnRoles("y")).rows
    assert_array_equal(TableEncoder().fit_transform(other, Y), expected)


def test_types_of_pandas_are_read_as_what_they_are():
    frame = pandas.DataFrame({
        "nullable": pandas.array([1, None] * 30, dtype="Int64"),
        "codes": pandas.Series([1, 2, 3] * 20, dtype="category"),
        "zoned": pandas.date_range("2020-01-01", periods=60, tz="Europe/Berlin"),
        "objects": [1, 2.5, None] * 20,
        "dates": [datetime.date(2020, 1, 1 + i % 28) for i in range(60)],
        "yes": pandas.array([True, None] * 30, dtype="boolean"),
    })  # fmt: skip
    encoder = TableEncoder().fit(frame, np.arange(60.0))
    kinds = ["number", "category", "date", "number", "date", "category"]
    assert [column.kind for column in encoder.columns_] == kinds
    assert encoder.columns_[1].categories == ("1", "2", "3")
    assert encoder.transform(frame)[0, encoder.names.index("zoned")] == 18262 - 1 / 24


def test_ids_that_lose_digits_as_floats_and_other_types_are_refused():
    ids = pandas.DataFrame({"id": 2**60 + np.arange(60), "a": np.arange(60.0)})
    with pytest.raises(ValueError, match=r"'id': .* more digits than a number .* drop the column"):
        TableEncoder().fit(ids, np.arange(60.0))
    spans = pandas.DataFrame({"s": pandas.to_timedelta(np.arange(60), "D")})
    for value in ([1], {"a": 1}, {"a"}, np.arange(3), 1j):
        odd = pandas.DataFrame({"s": pandas.Series([value, None] * 30, dtype=object)})
        with pytest.raises(ValueError, match=f"column 's' of X is of type {type(value).__name__}"):
            TableEncoder().fit(odd, np.arange(60.0))
    with pytest.raises(ValueError, match="column 's' of X is of type timedelta64"):
        TableEncoder().fit(spans, np.arange(60.0))
    with pytest.raises(ValueError, match=r"first inf in row 3; correct them"):
        TableEncoder().fit(pandas.DataFrame({"a": [1.0, 2, 3, np.inf]}), np.arange(4.0))


def test_problems_of_a_frame_are_told_with_the_remedies_of_python():
    frame = pandas.DataFrame({"a": ["1,5", "2,5"] * 30, "id": [f"n{i}" for i in range(60)]})
    with pytest.raises(ValueError, match="2 columns cannot be used as they are") as caught:
        ManyGPRegressor().fit(frame, np.arange(60.0))
    assert "--" not in str(caught.value)
    assert "read the file with a decimal comma" in str(caught.value)


@pytest.mark.parametrize("name", ["missing", "unknown"])
def test_policies_are_fill_or_error(name):
    with pytest.raises(ValueError, match=f"{name} is one of"):
        TableEncoder(**{name: "maybe"}).fit(FRAME, Y)
    frame = FRAME.copy()
    frame.loc[3, "colour"] = "pink" if name == "unknown" else None
    encoder = TableEncoder(**{name: "error"}).fit(FRAME, Y)
    with pytest.raises(ValueError, match="column 'colour', row 3: "):
        encoder.transform(frame)


# JSON


def test_an_encoder_survives_json_and_answers_the_same():
    frame, _ = gaps(FRAME)
    encoder = TableEncoder(unknown="error").fit(frame, Y)
    again = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert again.get_params() == encoder.get_params()
    assert again.columns_ == encoder.columns_
    assert_array_equal(again.transform(frame), encoder.transform(frame))
    assert_array_equal(again.donors_, encoder.donors_)
    assert encoder.donors_.shape == (ENCODING.donors, len(encoder.names))


NUMBER = {"name": "a", "kind": "number"}
CATEGORY = {"name": "a", "kind": "category", "categories": ["x", "y"]}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (None, "an encoding is a list of columns, not None"),
        ([], "an encoding is a list of columns"),
        ([None], "a column of an encoding is an object, not None"),
        ([{}], "the name of a column is text, not None"),
        ([NUMBER | {"name": 3}], "the name of a column is text, not 3"),
        ([NUMBER | {"kind": "text"}], "column 'a': the kind is one of"),
        ([NUMBER | {"kind": ["number"]}], "column 'a': the kind is one of"),
        ([NUMBER | {"categories": []}], "column 'a' has the entries"),
        ([NUMBER | {"kind": "category"}], "column 'a' has the entries"),
        ([NUMBER | {"fill": [1.0, 2.0]}], "not filled with the features"),
        ([NUMBER | {"fill": [None]}], "in the place of numbers"),
        ([NUMBER | {"noise": -1.0}], "a negative noise"),
        ([CATEGORY | {"categories": "xy"}], "the categories of column 'a' are a list of text"),
        ([CATEGORY | {"categories": ["x", 1]}], "the categories of column 'a' are a list of text"),
        ([CATEGORY | {"means": [[1.0]]}], "other means than categories"),
        ([CATEGORY | {"means": [[1.0, float("inf")]]}], "in the place of numbers"),
        ([CATEGORY | {"means": 3}], "in the place of a list"),
        ([{"name": "a", "kind": "date", "cycles": ["moon"]}], "the cycles of column 'a'"),
        ([CATEGORY | {"categories": ["x", "x"]}], "more than one category of column 'a'"),
        ([NUMBER, CATEGORY], "more than one column of the encoding is called a"),
    ],
)
def test_anything_else_than_an_encoder_is_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        TableEncoder.from_columns(columns)
    state = json.loads(json.dumps(TableEncoder().fit(FRAME, Y).to_json()))
    with pytest.raises(ValueError, match=r"an encoder is not|" + message):
        TableEncoder.from_json(state | {"columns": columns})


def test_a_state_with_wrong_entries_is_refused():
    state = json.loads(json.dumps(TableEncoder().fit(FRAME, Y).to_json()))
    for change in ({"donors": [[1.0]]}, {"missing": "maybe"}, {"more": 1}, {"random_state": "x"}):
        with pytest.raises(ValueError, match=r"donors of the encoder|an encoder is not"):
            TableEncoder.from_json(state | change)


# The model


def test_the_model_takes_the_table_as_it_comes_and_saves_its_encoder(model, tmp_path):
    assert model.feature_names_in_.tolist() == list(FRAME)
    assert model.n_features_in_ == 6
    test, y = table(200, seed=2)
    mean, std = model.predict(test, return_std=True)
    assert np.sqrt(np.mean((mean - y) ** 2)) < 0.5 * y.std()
    model.save(tmp_path / "m")
    loaded = manygp.load(tmp_path / "m")
    assert loaded.feature_names_in_.tolist() == list(FRAME)
    for found, expected in zip(loaded.predict(test, return_std=True), (mean, std), strict=True):
        assert_array_equal(found, expected)
    assert loaded.columns == "auto"


def test_numbers_without_gaps_need_no_encoder_and_change_nothing():
    frame = FRAME[["a", "b"]]
    fitted = small().fit(frame, Y)
    assert fitted.encoder_ is None
    assert_array_equal(
        fitted.predict(frame), small().fit(frame.to_numpy(), Y).predict(frame.to_numpy())
    )
    with pytest.raises(ValueError, match="X contains NaN"):
        fitted.set_params(columns="numeric").predict(gaps(frame)[0])


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_number_that_is_missing_at_predict_only_is_served(library):
    numbers = ["a", "b"]
    fitted = small().fit(FRAME[numbers], Y)
    table, gone = gaps(FRAME[numbers])
    if library != "pandas":
        arrow = pytest.importorskip("pyarrow").Table.from_pandas(table)
        table = arrow if library == "pyarrow" else pytest.importorskip("polars").from_arrow(arrow)
    mean, std = fitted.predict(table, return_std=True)
    encoded = small(columns=TableEncoder()).fit(FRAME[numbers], Y)
    expected_mean, expected_std = encoded.predict(gaps(FRAME[numbers])[0], return_std=True)
    assert_allclose(mean, expected_mean, rtol=1e-6)
    assert_allclose(std, expected_std, rtol=1e-6)
    assert np.median(std[gone]) > np.max(std[~gone])


def test_an_encoder_can_be_given_and_is_not_changed():
    encoder = TableEncoder(unknown="error")
    fitted = small(columns=encoder).fit(FRAME[["a", "b"]], Y)
    assert not hasattr(encoder, "columns_")
    assert fitted.encoder_.is_plain
    assert_array_equal(
        fitted.predict(FRAME[["a", "b"]]),
        small().fit(FRAME[["a", "b"]], Y).predict(FRAME[["a", "b"]]),
    )
    assert np.isfinite(fitted.predict(gaps(FRAME[["a", "b"]])[0])).all()
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        fitted.predict(FRAME[["a", "b"]].to_numpy())


def test_other_columns_and_arrays_are_refused(model):
    with pytest.raises(ValueError, match="fitted on a table"):
        model.predict(np.zeros((3, 6)))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(FRAME.rename(columns={"a": "aa"}))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(FRAME[list(FRAME)[::-1]])
    with pytest.raises(ValueError, match="columns must be one of"):
        ManyGPRegressor(columns="all").fit(FRAME, Y)
    with pytest.raises(ValueError, match="column 'town' of X is of type"):
        ManyGPRegressor(columns="numeric").fit(FRAME, Y)


@pytest.mark.parametrize(
    ("column", "value"), [("a", np.nan), ("town", "elsewhere"), ("town", None), ("colour", "pink")]
)
def test_a_value_that_matters_and_is_not_known_has_a_larger_and_honest_std(model, column, value):
    test, y = table(300, seed=3)
    _, known = model.predict(test, return_std=True)
    mean, std = model.predict(test.assign(**{column: value}), return_std=True)
    assert std.mean() > 1.3 * known.mean()
    z = (y - mean) / std
    assert 0.6 < np.sqrt(np.mean(z**2)) < 1.6


def test_a_value_that_does_not_matter_costs_little(model):
    test, _ = table(300, seed=3)
    _, known = model.predict(test, return_std=True)
    _, std = model.predict(test.assign(lift=None), return_std=True)
    assert std.mean() < 1.1 * known.mean()


def test_a_row_of_which_nothing_is_known_is_any_row(model):
    nothing = pandas.DataFrame({
        "a": [np.nan], "b": [np.nan], "town": [None], "colour": [None], "day": [pandas.NaT],
        "lift": [None],
    })  # fmt: skip
    (mean,), (std,) = model.predict(nothing, return_std=True)
    assert abs(mean - Y.mean()) < Y.std()
    assert 0.5 * Y.std() < std < 1.5 * Y.std()


def test_missing_training_values_are_noise_where_they_matter():
    """Rows that lack b are as uncertain as b matters, and others are not spoilt by them."""
    train, test = table(700, seed=7), table(400, seed=8)
    fitted = ManyGPRegressor(random_state=0).fit(gaps(train[0][["a", "b"]])[0], train[1])
    frame, gone = gaps(test[0][["a", "b"]], seed=9)
    mean, std = fitted.predict(frame, return_std=True)
    assert std[gone].mean() > std[~gone].mean()
    z = (test[1] - mean) / std
    for rows in (gone, ~gone):
        assert 0.7 < np.sqrt(np.mean(z[rows] ** 2)) < 1.4


def test_all_answers_agree_about_doubtful_rows(model):
    frame = table(30, seed=4)[0].assign(town=["new"] * 15 + ["town 01"] * 15)
    mean, std = model.predict(frame, return_std=True)
    assert_array_equal(model.predict(frame), mean)
    joint_mean, cov = model.predict(frame, return_cov=True)
    assert_allclose(joint_mean, mean)
    assert_allclose(np.sqrt(np.diag(cov)), std)
    assert np.linalg.eigvalsh(cov).min() > -1e-8
    lower, upper = model.predict_interval(frame)
    assert_allclose((lower + upper) / 2, mean)
    assert_allclose((upper - lower) / std, (upper - lower)[0] / std[0])
    assert_array_equal(model.predict_dist(frame).mean, mean)
    draws = model.sample_y(frame, 4000)
    assert_allclose(draws.std(axis=1), std, rtol=0.1)


def test_cross_validation_cuts_tables():
    scores = cross_val_score(small(), FRAME.drop(columns="day"), Y, cv=2)
    assert scores.min() > 0.3


def test_a_batch_counts_rows_as_python_does():
    assert as_batch(FRAME).place(0) == "row 0"
    assert as_batch(np.zeros((3, 2))) is None
    with pytest.raises(ValueError, match="more than one column is called a"):
        as_batch(pandas.DataFrame(np.zeros((2, 2)), columns=["a", "a"]))
    with pytest.raises(ValueError, match="no rows"):
        TableEncoder().fit(FRAME[:0], Y[:0])


def test_a_failed_fit_leaves_the_encoder_and_model_as_they_were(model):
    before = model.encoder_
    with pytest.raises(ValueError, match=r"column 'a': .* ids, or free text"):
        model.fit(FRAME.assign(a=[f"id {i}" for i in range(N)]), Y)
    assert model.encoder_ is before
    assert model.feature_names_in_.tolist() == list(FRAME)
