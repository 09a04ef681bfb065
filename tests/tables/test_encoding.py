"""Columns of tables become numbers: learned once, stored as JSON, applied again."""

import datetime
import json
import re
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from manygp.tables import (
    Column,
    Encoding,
    base,
    open_table,
    read_evaluation,
    read_features,
    read_training,
)
from manygp.tables.base import TableFile
from manygp.tables.survey import MOST_CATEGORIES, Survey
from manygp.tables.training_rows import naming

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

HOUSES = """size,colour,lift,built,price
50,red,no,2000-01-01,1.5
60,blue,yes,2001-01-01T12:00,2.5
70,green,no,1970-01-02,-3
80,red,yes,1969-12-31,4e0
"""
HOUSES_X = [
    [50, 0, 0, 1, 0, 10957],
    [60, 1, 0, 0, 1, 11323.5],
    [70, 0, 1, 0, 0, 1],
    [80, 0, 0, 1, 1, -1],
]
HOUSES_ENCODING = Encoding(
    (
        Column("size", "number"),
        Column("colour", "category", ("blue", "green", "red")),
        Column("lift", "category", ("no", "yes")),
        Column("built", "date"),
    )
)


@pytest.fixture
def save(tmp_path):
    def save(text, name="rows.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8", newline="")
        return path

    return save


@pytest.fixture
def save_parquet(tmp_path):
    def save(columns, name="rows.parquet"):
        parquet.write_table(pyarrow.table(columns), tmp_path / name)
        return tmp_path / name

    return save


def csv_of(values, names):
    return "\n".join([",".join(names), *(",".join(map(str, row)) for row in values)]) + "\n"


def refused(message, function, *arguments, **named):
    """The whole message of an error, part of which is as expected."""
    with pytest.raises(ValueError, match=re.escape(message) or ".") as caught:
        function(*arguments, **named)
    return str(caught.value)


def learned(path, columns=None, *, encode=False):
    table = open_table(path)
    survey = Survey(table.names if columns is None else columns, encode=encode)
    with naming(table):
        for batch in table.batches(survey.columns):
            survey.add(batch)
        return survey.conclude()


# Training tables


def test_a_table_of_numbers(save):
    path = save("a,y,b\n1,2,3\n-4.5,5e-1,6\n.5,1.,+7\n")
    table = read_training(path, "y", None, [])
    assert_array_equal(table.X, [[1, 3], [-4.5, 6], [0.5, 7]])
    assert_array_equal(table.y, [2, 0.5, 1])
    assert table.X.dtype == table.y.dtype == float
    assert table.X.flags.c_contiguous
    assert table.encoding == Encoding((Column("a", "number"), Column("b", "number")))
    assert table.encoding.names == ("a", "b")
    assert table.target == "y"


def test_columns_can_be_chosen_ordered_and_dropped(save):
    path = save("a,y,b,note\n1,2,3,x\n4,5,6,\n")
    assert_array_equal(read_training(path, "y", ["b", "a"]).X, [[3, 1], [6, 4]])
    assert_array_equal(read_training(path, "y", drop=["note"]).X, [[1, 3], [4, 6]])
    assert_array_equal(read_training(path, "y", ["b", "a"], ["b", "note"]).X, [[1], [4]])


def test_categories_and_dates_are_encoded(save):
    table = read_training(save(HOUSES), "price", encode=True)
    assert table.encoding == HOUSES_ENCODING
    assert table.encoding.names == (
        "size", "colour=blue", "colour=green", "colour=red", "lift=yes", "built",
    )  # fmt: skip
    assert_array_equal(table.X, HOUSES_X)
    assert_array_equal(table.y, [1.5, 2.5, -3, 4])


def test_parquet_and_csv_give_the_same_arrays(save, save_parquet):
    expected = read_training(save(HOUSES), "price", encode=True)
    columns = {
        "size": pyarrow.array([50, 60, 70, 80], pyarrow.int16()),
        "colour": pyarrow.array(["red", "blue", " green", "red"]).dictionary_encode(),
        "lift": ["no", "yes", "no", "yes"],
        "built": pyarrow.array(
            [datetime.datetime(2000, 1, 1), datetime.datetime(2001, 1, 1, 12),
             datetime.datetime(1970, 1, 2), datetime.datetime(1969, 12, 31)],
            pyarrow.timestamp("ms"),
        ),
        "price": [1.5, 2.5, -3.0, 4.0],
    }  # fmt: skip
    table = read_training(save_parquet(columns), "price", encode=True)
    assert table.encoding == expected.encoding
    assert_array_equal(table.X, expected.X)
    assert_array_equal(table.y, expected.y)


@pytest.mark.parametrize("seed", range(5))
def test_numbers_written_with_repr_arrive_bit_for_bit(save, seed, monkeypatch):
    monkeypatch.setattr(base, "BATCH_CELLS", 200)
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 150)), int(rng.integers(2, 8)))
    values = rng.integers(0, 2**64, size=shape, dtype=np.uint64).view(np.float64)
    values = np.where(np.isfinite(values), values, -0.0)
    names = [f"x{j}" for j in range(shape[1])]
    path = save(csv_of([map(repr, row) for row in values.tolist()], names))
    table = read_training(path, "x0")
    assert table.X.tobytes() == np.ascontiguousarray(values[:, 1:]).tobytes()
    assert table.y.tobytes() == values[:, 0].tobytes()
    pieces = list(read_evaluation(path, table.encoding, "x0", int(rng.integers(1, 50))))
    assert np.concatenate([X for X, _ in pieces]).tobytes() == table.X.tobytes()
    assert np.concatenate([y for _, y in pieces]).tobytes() == table.y.tobytes()


@pytest.mark.parametrize("seed", range(5))
def test_random_tables_of_all_kinds_are_the_same_in_pieces_and_from_json(save, seed, monkeypatch):
    monkeypatch.setattr(base, "BATCH_CELLS", 100)
    rng = np.random.default_rng(seed)
    n = int(rng.integers(50, 300))
    names = ["y", "number", "word", "day", "moment"]
    numbers = rng.normal(size=(n, 2)).tolist()
    words = rng.choice(["low", "middle", "high", "no idea"], n)
    days = (np.datetime64("1900-01-01") + rng.integers(0, 10**5, n)).astype(str)
    seconds = np.datetime64("2000-01-01T00:00:00") + rng.integers(0, 10**9, n)
    rows = zip(*np.transpose(numbers), words, days, seconds.astype(str), strict=True)
    path = save(csv_of(rows, names))
    table = read_training(path, "y", encode=True)
    assert_array_equal(table.X[:, 0], [row[1] for row in numbers])
    categories = sorted(set(words))
    assert_array_equal(table.X[:, 1:5], words[:, None] == categories)
    assert_array_equal(table.X[:, 5], days.astype("datetime64[D]").astype(int))
    assert_array_equal(table.X[:, 6], seconds.astype(int) / 86400)
    encoding = Encoding.from_json(json.loads(json.dumps(table.encoding.to_json())))
    pieces = list(read_features(path, encoding, 7))
    assert max(map(len, pieces)) <= 7
    assert_array_equal(np.concatenate(pieces), table.X)


def test_a_table_of_a_thousand_columns(save):
    values = np.random.default_rng(0).normal(size=(30, 1000))
    path = save(csv_of(values.tolist(), [f"x{j}" for j in range(1000)]))
    table = read_training(path, "x999")
    assert_array_equal(table.X, values[:, :-1])


def test_odd_names_of_columns(save):
    path = save('"a ""b""","two\nlines",größe 🙂,y\n1,2,3,4\n')
    table = read_training(path, "y")
    assert table.encoding.names == ('a "b"', "two\nlines", "größe 🙂")
    message = refused("", read_training, save('"it\'s\nred",y\nx,1\n'), "y")
    assert "column \"it's\\nred\", row 1 (line 3): 'x' is not a number" in message
    assert "--drop 'it'\"'\"'s\nred'" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("prise",), "no column 'prise'; did you mean 'price'? There are size, colour, lift"),
        (("price", ["size", "Color"]), "no column 'Color'; did you mean 'colour'?"),
        (("price", None, ["xyz"]), "no column 'xyz'; there are size, colour, lift, built, price"),
        (("price", ["size", "price"]), "the target 'price' is also one of the columns"),
        (("price", ["size", "size"]), "more than one of the chosen columns is called size"),
        (("price", ["size"], ["size"]), "no column is left to learn 'price' from"),
        (("price", []), "no column is left to learn 'price' from"),
    ],
)
def test_names_are_checked_before_anything_is_read(save, arguments, message):
    refused(message, read_training, save(HOUSES), *arguments)


@pytest.mark.parametrize("value", ["high", "True", "2020-01-01", "", "inf"])
@pytest.mark.parametrize("encode", [False, True])
def test_the_target_is_a_number_and_never_encoded(save, value, encode):
    path = save(f"a,y\n1,2\n3,{value}\n")
    message = refused("the target must be a number: ", read_training, path, "y", encode=encode)
    assert "rows.csv" in message
    assert "column 'y', row 2 (line 3)" in message


@pytest.mark.parametrize("changed", [HOUSES[:-26], HOUSES + HOUSES[-26:]])
def test_a_table_that_changes_between_two_readings_is_refused(save, monkeypatch, changed):
    monkeypatch.setattr(base, "BATCH_CELLS", 8)
    batches, texts = TableFile.batches, iter([HOUSES, changed])

    def saved_before(*arguments):
        save(next(texts))
        return batches(*arguments)

    monkeypatch.setattr(TableFile, "batches", saved_before)
    path = save(HOUSES)
    refused("was changed while it was read", read_training, path, "price", encode=True)


# What columns hold


def test_rows_are_counted_and_kinds_found_over_pieces(save, monkeypatch):
    monkeypatch.setattr(base, "BATCH_CELLS", 4)
    rows = [
        (i, "ab"[i // 50], f"2020-01-{1 + i % 31:02}", "1" if i < 40 else "A") for i in range(99)
    ]
    encoding, n_rows = learned(save(csv_of(rows, ["n", "letter", "day", "code"])), encode=True)
    assert n_rows == 99
    assert encoding.columns == (
        Column("n", "number"),
        Column("letter", "category", ("a", "b")),
        Column("day", "date"),
        Column("code", "category", ("1", "A")),
    )


def test_text_is_refused_with_an_example_and_a_way_out(save):
    message = refused("", learned, save(HOUSES))
    assert message.endswith(
        "rows.csv: column 'colour', row 1 (line 2): 'red' is not a number; leave the column out "
        "(--drop colour), or encode it (--encode). Not all numbers either: 'lift', 'built'"
    )
    many = csv_of([["x"] * 20], [f"c{j}" for j in range(20)])
    assert refused("either: 'c1', 'c2'", learned, save(many)).endswith("'c10', ...")


@pytest.mark.parametrize("encode", [False, True])
def test_a_stray_text_among_numbers_is_found(save, encode, monkeypatch):
    monkeypatch.setattr(base, "BATCH_CELLS", 64)
    values = [[i / 7] for i in range(1000)]
    values[616] = ["n/a?"]
    message = refused("", learned, save(csv_of(values, ["a"])), encode=encode)
    assert "rows.csv: column 'a', row 617 (line 618): 'n/a?' is not a number" in message
    assert "correct it" in message
    assert "--drop a" in message
    assert ("--encode" in message) is not encode


def test_numbers_among_categories_are_categories(save):
    encoding, _ = learned(save("zone\n3\n3A\n3B\n"), encode=True)
    assert encoding.columns == (Column("zone", "category", ("3", "3A", "3B")),)
    refused("in a column of numbers", learned, save("zone\n3\n3A\n3\n3B\n"), encode=True)


def test_too_many_categories_are_refused_early(save, monkeypatch):
    most = [[f"name {i}"] for i in range(MOST_CATEGORIES)]
    encoding, _ = learned(save(csv_of(most, ["who"])), encode=True)
    assert len(encoding.names) == MOST_CATEGORIES
    monkeypatch.setattr(base, "BATCH_CELLS", 150)
    message = refused(
        "", learned, save(csv_of([[f"n{i}"] for i in range(999)], ["who"])), encode=True
    )
    assert "column 'who' has 150 different values so far, in 150 rows, and at most 100" in message
    assert "--drop who" in message


@pytest.mark.parametrize("word", sorted(base.MISSING - {""}))
@pytest.mark.parametrize("encode", [False, True])
def test_a_missing_value_is_refused_with_its_place(save, word, encode):
    for values in (["1", "2", word], ["x", "y", word], ["2020-01-01", "2020-01-02", word]):
        path = save(csv_of([["0", value] for value in values], ["a", "b"]))
        if encode or values[0] == "1":
            message = refused("", learned, path, encode=encode)
            assert "rows.csv: column 'b', row 3 (line 4): the value is missing" in message
            assert "fill or drop them, or leave the column out (--drop b)" in message
        else:
            refused("column 'b', row 1 (line 2)", learned, path)
    refused("column 'a', row 1 (line 2): the value is missing", learned, save("a,b\n,x\n"))


def test_what_is_not_finite_is_refused_in_parquet_too(save_parquet):
    place = "column 'a', row 2: "
    for values, why in [
        ([1.0, None], "the value is missing"),
        ([1.0, np.nan], "the value is missing"),
        ([1.0, -np.inf], "-inf is infinite; correct it"),
        ([True, None], "the value is missing"),
        (["x", None], "the value is missing"),
        ([datetime.date(2020, 1, 1), None], "the value is missing"),
    ]:
        refused(place + why, learned, save_parquet({"a": values}), encode=True)
    refused("row 1: inf is infinite", learned, save_parquet({"a": [np.inf] * 3}), encode=True)


def test_bools_are_categories_or_refused(save, save_parquet):
    paths = [save("a\nTrue\nFalse\n"), save_parquet({"a": [True, False]})]
    for path in paths:
        refused("True", learned, path)
        encoding, _ = learned(path, encode=True)
        assert encoding.columns == (Column("a", "category", ("False", "True")),)
        assert encoding.names == ("a=True",)
        for other in paths:
            assert_array_equal(next(read_features(other, encoding)), [[1], [0]])
    refused("'true' is not a number", learned, save("a\ntrue\nfalse\n"))


def test_dates_are_refused_unless_they_are_encoded(save, save_parquet):
    path = save_parquet({"a": [datetime.date(2020, 1, 1)]})
    refused("column 'a', row 1: 2020-01-01 is not a number", learned, path)
    refused("'2020-01-01' is not a number", learned, save("a\n2020-01-01\n"))


def test_a_column_with_anything_but_dates_holds_categories(save):
    encoding, _ = learned(save("a\n2020-01-01\nsoon\n"), encode=True)
    assert encoding.columns[0].kind == "category"


def test_a_stray_text_among_dates_is_found(save):
    days = [[str(np.datetime64("2000-01-01") + i)] for i in range(500)]
    days[321] = ["soon"]
    message = refused("", learned, save(csv_of(days, ["day"])), encode=True)
    assert "column 'day' has 500 different values" in message
    assert "if they are dates, look at row 322 (line 323): 'soon' is not a date such" in message


def test_a_single_category_is_a_column_of_ones(save):
    path = save("a\nx\nx\n")
    encoding, _ = learned(path, encode=True)
    assert encoding.names == ("a=x",)
    assert_array_equal(next(read_features(path, encoding)), [[1], [1]])


def test_a_category_may_not_be_called_like_a_column(save):
    path = save("a,a=x\nx,1\ny,2\nz,3\n")
    refused("more than one encoded column is called a=x", learned, path, encode=True)


# Rows to be predicted


def test_columns_are_matched_by_name_and_others_ignored(save):
    path = save("note,built,lift,colour,size\n,1970-01-02,no,green,70\n?,2000-01-01,no,red,50\n")
    (X,) = read_features(path, HOUSES_ENCODING)
    assert_array_equal(X, [HOUSES_X[2], HOUSES_X[0]])


def test_a_column_that_is_not_there_is_named_before_anything_is_read(save):
    path = save(HOUSES.replace("built", "year"))
    refused("rows.csv: no column 'built'; there are size,", read_features, path, HOUSES_ENCODING)
    refused("no column 'built'", read_evaluation, path, HOUSES_ENCODING, "price")
    refused("no column 'cost'", read_evaluation, save(HOUSES), HOUSES_ENCODING, "cost")


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("1970-01-01", 0),
        ("1969-12-31T06:00", -0.75),
        ("2000-01-01 00:00:00", 10957),
        ("2000-01-01T00:00:00Z", 10957),
        ("2000-01-01T00:00:00+06:00", 10956.75),
        ("2000-01-01T00:00:00.5-12:00", 10957.5 + 0.5 / 86400),
        ("20000101", 10957),
        ("0001-01-01", -719162),
        ("9999-12-31", 2932896),
    ],
)
def test_dates_are_days_since_1970_in_utc(save, text, days):
    (X,) = read_features(save(f"d\n{text}\n"), Encoding((Column("d", "date"),)))
    assert_array_equal(X, [[days]])


def test_dates_of_parquet_in_all_units(save_parquet):
    moment = datetime.datetime(2000, 1, 1, 6)
    kinds = {
        unit: pyarrow.array([moment], pyarrow.timestamp(unit)) for unit in ("s", "ms", "us", "ns")
    }
    kinds["UTC"] = pyarrow.array([moment], pyarrow.timestamp("us", "Europe/Berlin"))
    kinds["date32"] = pyarrow.array([moment.date()], pyarrow.date32())
    kinds["date64"] = pyarrow.array([moment.date()], pyarrow.date64())
    kinds["far"] = pyarrow.array([2**31 - 1], pyarrow.int32()).cast(pyarrow.date32())
    encoding, _ = learned(save_parquet(kinds), encode=True)
    assert {column.kind for column in encoding.columns} == {"date"}
    (X,) = read_features(save_parquet(kinds), encoding)
    assert_array_equal(X, [[10957.25] * 5 + [10957] * 2 + [2**31 - 1]])


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("number", "", "the value is missing"),
        ("number", "nan", "the value is missing"),
        ("number", "three", "'three' is not a number"),
        ("number", "1_000", "'1_000' is not a number"),
        ("number", "0x10", "'0x10' is not a number"),
        ("number", "1 000", "'1 000' is not a number"),
        ("number", "true", "'true' is not a number"),
        ("number", "NAN", "'NAN' is not a number"),
        ("number", "3,14", "'3,14' is not a number (write a decimal point, and no commas)"),
        ("number", "1.234,5", "'1.234,5' is not a number (write a decimal point, and no commas)"),
        ("number", "1,234.5", "'1,234.5' is not a number (write a decimal point, and no commas)"),
        ("number", "a,b", "'a,b' is not a number"),
        ("number", "inf", "'inf' is infinite"),
        ("number", "-Infinity", "'-Infinity' is infinite"),
        ("number", "1e400", "'1e400' is too large for a float"),
        ("number", "x" * 1000, "'" + "x" * 36 + "... is not a number"),
        ("category", "", "the value is missing"),
        ("category", "None", "the value is missing"),
        ("category", "Red", "'Red' is not one of the 2 known categories: 'blue', 'red'"),
        ("date", "", "the value is missing"),
        ("date", "NaT", "'NaT' is not a date such as 2024-12-31"),
        ("date", "today", "'today' is not a date"),
        ("date", "2020-02-30", "'2020-02-30' is not a date"),
        ("date", "12/31/2020", "'12/31/2020' is not a date"),
        ("date", "0001-01-01T00:00+12:00", "'0001-01-01T00:00+12:00' is not a date"),
    ],
)
def test_what_cannot_be_encoded_is_refused_with_its_place(save, kind, value, why):
    column = Column("c", kind, ("blue", "red") if kind == "category" else ())
    good = {"number": "1", "category": "red", "date": "2020-01-01"}[kind]
    rows = [[0, f'"{good}"']] * 5 + [[0, f'"{value}"']] + [[0, '"bad too"']]
    path = save(csv_of(rows, ["a", "c"]))
    pieces = read_features(path, Encoding((column,)), 4)
    assert len(next(pieces)) == 4
    message = refused("", next, pieces)
    assert f"rows.csv: column 'c', row 6 (line 7): {why}" in message
    evaluated = read_evaluation(path, Encoding((column,)), "a")
    assert refused("", next, evaluated).endswith(message.split("rows.csv")[1])


def test_apply_names_the_row_of_the_table_and_not_of_the_batch(save):
    table = open_table(save('a\n"1"\n\n2\n"x\n"\n'))
    *_, last = table.batches(["a"], 1)
    encoding = Encoding((Column("a", "number"),))
    refused("column 'a', row 3 (line 5): 'x' is not a number", encoding.apply, last)


def test_at_most_ten_known_categories_are_listed(save):
    column = Column("c", "category", tuple(f"k{j:02}" for j in range(50)))
    message = refused("", next, read_features(save("c\nz\n"), Encoding((column,))))
    assert message.endswith("one of the 50 known categories: " + ", ".join(
        f"'k{j:02}'" for j in range(10)
    ) + ", ...")  # fmt: skip


@pytest.mark.parametrize(
    ("values", "kind", "why"),
    [
        ([True], "number", "True is not a number"),
        ([datetime.date(2020, 1, 1)], "number", "2020-01-01 is not a number"),
        (["5", "five"], "number", "'five' is not a number"),
        ([1.0, np.inf], "number", "inf is infinite"),
        ([1, None], "number", "the value is missing"),
        ([1.5], "date", "1.5 is not a date"),
        ([None, "2020-01-01"], "date", "the value is missing"),
        (["red", "", None], "category", "the value is missing"),
        ([1.0], "category", "1.0 is not one of the 2 known categories: 'blue', 'red'"),
    ],
)
def test_columns_of_parquet_of_another_kind_than_learned_are_refused(
    save_parquet, values, kind, why
):
    column = Column("c", kind, ("blue", "red") if kind == "category" else ())
    refused(why, next, read_features(save_parquet({"c": values}), Encoding((column,))))


def test_text_of_parquet_that_holds_numbers_is_read_as_numbers(save_parquet):
    path = save_parquet({"a": ["1", " 2.5"], "y": ["3", "4"]})
    table = read_training(path, "y")
    assert_array_equal(table.X, [[1], [2.5]])
    assert_array_equal(table.y, [3, 4])


def test_an_empty_table_is_refused_at_every_door(save):
    path = save("size,colour,lift,built,price\n")
    for function, arguments in [
        (read_training, (path, "price")),
        (lambda *a: next(read_features(*a)), (path, HOUSES_ENCODING)),
        (lambda *a: next(read_evaluation(*a)), (path, HOUSES_ENCODING, "price")),
        (learned, (path,)),
    ]:
        refused("rows.csv has column names, but no rows", function, *arguments)


def test_pieces_of_many_categories_have_fewer_rows(save, monkeypatch):
    path = save(csv_of([[f"k{i % 40}"] for i in range(200)], ["c"]))
    encoding, _ = learned(path, encode=True)
    monkeypatch.setattr(base, "BATCH_CELLS", 400)
    assert {X.shape for X in read_features(path, encoding)} == {(10, 40)}


def test_training_holds_little_more_than_the_arrays(save, monkeypatch):
    monkeypatch.setattr(base, "BATCH_CELLS", 4000)
    values = np.random.default_rng(0).integers(0, 99, size=(40_000, 4))
    path = save(csv_of(values.tolist(), "abcd"))
    tracemalloc.start()
    read_training(path, "d")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * values.nbytes + 2**20  # NumPy's empty array counts before it is filled


@pytest.mark.parametrize("batch_rows", [0, -3, 1.5])
def test_pieces_have_a_row_at_least(save, batch_rows):
    refused("batch_rows must be", read_features, save(HOUSES), HOUSES_ENCODING, batch_rows)


# JSON


def test_an_encoding_survives_json():
    odd = Encoding((*HOUSES_ENCODING.columns, Column('"größe"\n', "category", ("ä,b", "温"))))
    for encoding in (HOUSES_ENCODING, odd):
        assert Encoding.from_json(json.loads(json.dumps(encoding.to_json()))) == encoding
    assert HOUSES_ENCODING.to_json()[:2] == [
        {"name": "size", "kind": "number"},
        {"name": "colour", "kind": "category", "categories": ["blue", "green", "red"]},
    ]


NUMBER = {"name": "a", "kind": "number"}
CATEGORY = {"name": "a", "kind": "category", "categories": ["x", "y"]}


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (None, "an encoding is a list of columns, not None"),
        ({}, "an encoding is a list of columns"),
        ("a", "an encoding is a list of columns"),
        ([], "an encoding is a list of columns"),
        ([None], "a column of an encoding is an object, not None"),
        ([["a", "number"]], "a column of an encoding is an object"),
        ([{}], "the name of a column is text, not None"),
        ([NUMBER | {"name": 3}], "the name of a column is text, not 3"),
        ([NUMBER | {"name": ""}], "the name of a column is text"),
        ([{"name": "a"}], "the kind is one of number, category, date, not None"),
        ([NUMBER | {"kind": "text"}], "column 'a': the kind is one of"),
        ([NUMBER | {"kind": ["number"]}], "column 'a': the kind is one of"),
        (
            [NUMBER | {"categories": []}],
            "column 'a' has the entries ['categories', 'kind', 'name']",
        ),
        ([NUMBER | {"more": 1}], "column 'a' has the entries"),
        ([NUMBER | {1: 1}], "column 'a' has the entries"),
        ([NUMBER | {"kind": "category"}], "column 'a' has the entries"),
        ([CATEGORY | {"categories": []}], "the categories of column 'a' are a list of text"),
        ([CATEGORY | {"categories": "xy"}], "the categories of column 'a' are a list of text"),
        ([CATEGORY | {"categories": ["x", 1]}], "the categories of column 'a' are a list of text"),
        ([CATEGORY | {"categories": ["x", "NA"]}], "the categories of column 'a' are a list"),
        (
            [CATEGORY | {"categories": ["x", "x"]}],
            "more than one category of column 'a' is called x",
        ),
        ([NUMBER, CATEGORY], "more than one column of the encoding is called a"),
    ],
)
def test_anything_else_than_an_encoding_is_refused(stored, message):
    refused(message, Encoding.from_json, stored)
