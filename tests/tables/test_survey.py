"""What the columns of a table hold, and what is wrong with them: all of it at once."""

import re

import numpy as np
import pytest

from manygp.tables import ColumnRoles, open_table, read_training, survey_table
from manygp.tables.survey import MOST_ONE_HOT
from manygp.tables.values import as_days, kind_of

N = 60


@pytest.fixture
def save(tmp_path):
    def save(columns, name="rows.csv", delimiter=","):
        rows = zip(*columns.values(), strict=True)
        lines = [delimiter.join(columns), *(delimiter.join(map(str, row)) for row in rows)]
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return save


def repeated(*values, n=N):
    return [values[i % len(values)] for i in range(n)]


def findings_of(path, target="y", **options):
    found, n_rows = survey_table(path, ColumnRoles(target), **options)
    assert n_rows == N
    return {one.name: one for one in found}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1", "number"), ("-1.5e3", "number"), (".5", "number"), ("9007199254740992", "number"),
        ("9007199254740993", "long"), ("123456789012345678901234567890", "long"),
        ("3,14", "decimal comma"), ("-0,5", "decimal comma"), ("1,234", "comma"),
        ("0,234", "decimal comma"), ("1,234,567", "grouped"), ("1.234,5", "grouped"),
        ("1 000", "grouped"), ("1'000.5", "grouped"), ("1_000", "grouped"), ("12%", "percent"),
        ("12,5 %", "percent"), ("$5", "currency"), ("1,200.50 EUR", "currency"),
        ("€ 3", "currency"), ("2024-01-31", "date"), ("2024-01-31T10:00Z", "date"),
        ("31.12.2020", "other date"), ("12/31/20", "other date"), ("2020/1/31", "other date"),
        ("12:30", "time of day"), ("9:05:01 PM", "time of day"), ("inf", "infinite"),
        ("1e999", "infinite"), ("red", "text"), ("a,b", "text"), ("3A", "text"),
        ("2020-02-30", "text"), ("%", "text"), ("EUR", "text"),
    ],
)  # fmt: skip
def test_a_value_is_recognised_for_what_it_is(text, kind):
    assert kind_of(text) == kind


def test_kinds_are_found(save):
    path = save({
        "number": repeated("1", "2.5", ""),
        "colour": repeated("red", "blue", "NA"),
        "day": repeated("2024-01-01", "2024-02-01T12:00"),
        "zone": repeated("3", "3A", "3B"),
        "yes": repeated("True", "False"),
        "y": repeated("1", "2"),
    })  # fmt: skip
    found = findings_of(path)
    assert [one.kind for one in found.values()] == [
        "number", "category", "date", "category", "category", "number",
    ]  # fmt: skip
    assert [one.n_missing for one in found.values()] == [20, 20, 0, 0, 0, 0]
    assert found["colour"].n_categories == 2
    assert not any(one.problem for one in found.values())


BAD_COLUMNS = {
    "comma": (repeated("3,5", "4,25"), "60 of 60 values have a decimal comma", "--decimal ,"),
    "either": (repeated("3,500", "4,250"), "a comma that may be", "--decimal ,"),
    "mixed": (repeated("3", "3,5"), "30 of 60 values have a decimal comma", "--decimal ,"),
    "thousands": (repeated("1,234,567", "5"), "30 of 60 values have separators", "remove them"),
    "percent": (repeated("5%", "7.5 %"), "60 of 60 values have a percent sign", "remove it"),
    "money": (repeated("$5", "$7.50"), "60 of 60 values have a currency sign", "remove it"),
    "long": ([f"{10**29 + i}" for i in range(N)], "more digits than a number can", "--drop long"),
    "name": ([f"person {i}" for i in range(N)], "60 different values in 60 rows", "--drop name"),
    "stray": (repeated("1", "2", "3", "x"), "15 of 60 values are not a number", "correct them"),
    "one": ([*repeated("1", n=59), "?!"], "1 of 60 values is not a number, first '?!' in row 60",
            "correct it"),
    "empty": (repeated("", "NA"), "none of 60 values is there", "--drop empty"),
    "inf": (repeated("1", "inf"), "30 of 60 values have no finite size", "correct them"),
    "german": (repeated("31.12.2020", "01.01.2021"), "not written as 2024-12-31", "write dates"),
    "clock": (repeated("12:30", "13:30"), "a time of day without a date", "hours"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_COLUMNS)
def test_a_bad_column_is_named_with_a_count_and_the_remedy(save, name):
    values, what, remedy = BAD_COLUMNS[name]
    path = save({name: values, "y": repeated(1, 2)}, delimiter=";")
    problem = findings_of(path)[name].problem
    assert what in problem.what
    assert remedy in problem.command
    with pytest.raises(ValueError, match=re.escape(f"column {name!r}: ")):
        read_training(path, ColumnRoles("y"))
    if name != "empty":
        assert "first " in problem.what


def test_all_problems_of_all_columns_are_in_one_message(save):
    columns = {name: values for name, (values, *_) in BAD_COLUMNS.items()}
    path = save({**columns, "y": repeated("1", "2", "high")}, delimiter=";")
    with pytest.raises(ValueError, match="15 columns cannot be used as they are") as caught:
        read_training(path, ColumnRoles("y"))
    lines = str(caught.value).splitlines()[1:]
    assert len(lines) == 15
    for (name, (_, what, remedy)), line in zip(BAD_COLUMNS.items(), lines, strict=False):
        assert line.startswith(f"  column {name!r}: ")
        assert what in line
        assert remedy in line
    assert "column 'y': the target: 20 of 60 values are not a number" in lines[-1]


def test_decimal_commas_are_read_if_told_to(save):
    path = save({"a": repeated("3,5", "-,25", "4"), "y": repeated("1,5", "2")}, delimiter=";")
    table = read_training(path, ColumnRoles("y"), decimal=",")
    assert table.rows.columns["a"][:3].tolist() == [3.5, -0.25, 4]
    assert table.y[:2].tolist() == [1.5, 2]
    path = save({"a": repeated("3,5", "1.500"), "y": repeated(1, 2)}, delimiter=";")
    with pytest.raises(ValueError, match=r"column 'a': '1.500' has a point where decimals"):
        read_training(path, ColumnRoles("y"), decimal=",")


def test_few_rows_may_have_as_many_categories(save):
    words = [f"w{i}" for i in range(MOST_ONE_HOT)]
    path = save({"a": repeated(*words), "y": repeated(1, 2)})
    assert findings_of(path)["a"].problem is None
    half = [f"w{i // 2}" for i in range(N)]  # half as many as rows: not nearly unique
    assert findings_of(save({"a": half, "y": repeated(1, 2)}))["a"].problem is None


def test_the_target_must_hold_numbers_and_rows_without_one_are_left_out(save):
    path = save({"a": range(N), "b": repeated("x", "y"), "t": repeated("1", "", "3")})
    table = read_training(path, ColumnRoles("t"))
    assert (len(table.y), table.n_dropped) == (40, 20)
    assert table.rows.columns["a"].tolist() == [i for i in range(N) if i % 3 != 1]
    with pytest.raises(ValueError, match="'b': the target must be a number, and this holds text"):
        read_training(path, ColumnRoles("b"))


def test_missing_values_are_problems_if_told_so(save):
    path = save({"a": repeated("1", ""), "y": repeated(1, 2)})
    assert read_training(path, ColumnRoles("y")).n_dropped == 0
    with pytest.raises(ValueError, match="column 'a': 30 values are missing; fill them"):
        read_training(path, ColumnRoles("y"), missing="error")


def test_known_noise_is_a_complete_column_of_numbers(save):
    path = save({"a": range(N), "v": repeated("0.1", "0.2"), "y": range(N)})
    table = read_training(path, ColumnRoles("y", noise="v"))
    assert table.noise[:2].tolist() == [0.1, 0.2]
    assert list(table.rows.columns) == ["a"]
    path = save({"a": range(N), "v": repeated("0.1", ""), "w": repeated("x", "z"), "y": range(N)})
    with pytest.raises(ValueError, match=r"'v': 30 of 60 rows .* no value, first row 2;"):
        read_training(path, ColumnRoles("y", noise="v"))
    with pytest.raises(ValueError, match="'w': noise variances are numbers, and this holds text"):
        read_training(path, ColumnRoles("y", noise="w"))
    with pytest.raises(ValueError, match="the noise 'v' is also one of the columns"):
        read_training(path, ColumnRoles("y", ["a", "v"], noise="v"))


@pytest.mark.parametrize(
    ("role", "other", "what"),
    [
        ("groups", "", "no value"), ("time", "", "no value"), ("noise", "", "no value"),
        ("noise", "-1", "a negative noise variance"),
    ],
)  # fmt: skip
def test_what_stands_beside_the_rows_is_complete_where_they_have_a_target(role, other, what, save):
    values = {"a": range(N), "s": [other, other, *range(1, N - 1)]}
    path = save({**values, "y": ["", "", *range(N - 2)]})
    assert read_training(path, ColumnRoles("y", **{role: "s"})).n_dropped == 2
    path = save({**values, "y": ["", *range(N - 1)]})
    with pytest.raises(ValueError, match=f"column 's': 1 of 59 rows .* {what}, first row 2;"):
        read_training(path, ColumnRoles("y", **{role: "s"}))


def test_a_column_that_turns_into_text_late_is_read_again_as_text(save, monkeypatch):
    monkeypatch.setattr("manygp.tables.training_rows.TRAINING_PIECE_ROWS", 7)
    zones = [*("007" for _ in range(20)), *repeated("3A", "3B", n=40)]
    table = read_training(save({"zone": zones, "y": range(N)}), ColumnRoles("y"))
    assert table.rows.columns["zone"].tolist() == zones


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("prise",), "no column 'prise'; did you mean 'price'?"),
        (("price", ["size", "Color"]), "no column 'Color'; did you mean 'colour'?"),
        (("price", None, ["xyz"]), "no column 'xyz'; there are size, colour, price"),
        (("price", ["size", "price"]), "the target 'price' is also one of the columns"),
        (("price", ["size", "size"]), "more than one of the chosen columns is called size"),
        (("price", ["size"], ["size"]), "no column is left to learn 'price' from"),
    ],
)
def test_names_are_checked_before_anything_is_read(save, arguments, message):
    path = save({"size": range(N), "colour": repeated("a"), "price": range(N)})
    with pytest.raises(ValueError, match=re.escape(message)):
        read_training(path, ColumnRoles(*arguments))


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (b"PK\x03\x04rest", "an Excel workbook"), (b"\xd0\xcf\x11\xe0rest", "an old Excel"),
        (b"SQLite format 3\0", "a SQLite database"), (b'[{"a": 1}]', "JSON"),
        (b"<html>", "HTML or XML"), (b"BZh9", "a bzip2 file"), (b"\xff\xfea\0", "UTF-16"),
    ],
)  # fmt: skip
def test_another_format_is_named_for_what_it_is(tmp_path, start, what):
    path = tmp_path / "table.xlsx"
    path.write_bytes(start)
    with pytest.raises(ValueError, match=f"is .*{what}.*, not CSV or Parquet; "):
        open_table(path)


def test_a_table_that_changes_between_two_readings_is_refused(save, monkeypatch):
    monkeypatch.setattr("manygp.tables.training_rows.TRAINING_PIECE_ROWS", 7)
    columns = {"zone": [*("1" for _ in range(20)), *repeated("3A", n=40)], "y": range(N)}
    path, table_class = save(columns), type(open_table(save(columns)))
    batches, times = table_class.batches, []

    def shorter(self, *arguments):
        times.append(1)
        if len(times) == 2:
            save({name: list(values)[:50] for name, values in columns.items()})
        return batches(self, *arguments)

    monkeypatch.setattr(table_class, "batches", shorter)
    with pytest.raises(ValueError, match="was changed while it was read"):
        read_training(path, ColumnRoles("y"))


@pytest.mark.parametrize("seed", range(3))
def test_numbers_written_with_repr_arrive_bit_for_bit(save, seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2**64, size=(2, 150), dtype=np.uint64).view(np.float64)
    values = np.where(np.isfinite(values), values, -0.0)
    path = save({"a": map(repr, values[0].tolist()), "y": map(repr, values[1].tolist())})
    table = read_training(path, ColumnRoles("y"))
    assert table.rows.columns["a"].tobytes() == values[0].tobytes()
    assert table.y.tobytes() == values[1].tobytes()


CODES = "zip,n,y\n" + "".join(f"{i % 7 * 500:05},{i % 9},{i}\n" for i in range(60))


def test_digits_with_leading_zeros_are_categories(tmp_path, monkeypatch):
    monkeypatch.setattr("manygp.tables.training_rows.TRAINING_PIECE_ROWS", 7)
    data = tmp_path / "codes.csv"
    late = CODES.replace("00000", "7").replace("00500", "8")  # numbers, in the first pieces
    for text, first in ((CODES, "00000"), (late, "7")):
        data.write_text(text)
        table = read_training(data, ColumnRoles("y"))
        assert table.rows.categorical == {"zip"}
        assert table.rows.columns["zip"][0] == first
        assert table.rows.columns["n"].dtype == float


def test_what_columns_hold_can_be_said(tmp_path):
    data = tmp_path / "codes.csv"
    data.write_text(CODES)
    table = read_training(data, ColumnRoles("y", categories=["n"], numbers=["zip"]))
    assert table.rows.categorical == {"n"}
    assert table.rows.columns["zip"][:2].tolist() == [0.0, 500.0]
    with pytest.raises(ValueError, match="no column 'zap'; did you mean 'zip'"):
        read_training(data, ColumnRoles("y", categories=["zap"]))
    with pytest.raises(ValueError, match="more than one of the columns of a known kind"):
        read_training(data, ColumnRoles("y", categories=["n"], numbers=["n"]))
    data.write_text(CODES.replace("00500", "x"))
    with pytest.raises(ValueError, match="'zip': 9 of 60 values are not a number, first 'x'"):
        read_training(data, ColumnRoles("y", numbers=["zip"]))


def test_a_target_with_leading_zeros_is_a_number(tmp_path):
    data = tmp_path / "codes.csv"
    data.write_text(CODES)
    assert read_training(data, ColumnRoles("zip")).y[:2].tolist() == [0.0, 500.0]


def test_digits_of_a_text_type_are_categories(tmp_path):
    pandas = pytest.importorskip("pandas")
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    polars = pytest.importorskip("polars")
    from manygp.tables import TableEncoder

    words = ["501", "502", "9007199254740993"] * 5
    for table in (
        pandas.DataFrame({"zip": words}),
        pandas.DataFrame({"zip": pandas.Series(words, dtype=object)}),
        pandas.DataFrame({"zip": pandas.Series(words, dtype="string")}),
        polars.DataFrame({"zip": words}),
        pyarrow.table({"zip": words}),
    ):
        encoder = TableEncoder().fit(table, np.arange(15.0))
        assert encoder.columns_[0].categories == tuple(sorted(set(words)))
    parquet.write_table(pyarrow.table({"zip": words, "y": range(15)}), tmp_path / "t.pq")
    assert read_training(tmp_path / "t.pq", ColumnRoles("y")).rows.categorical == {"zip"}


@pytest.mark.parametrize(
    "text",
    ["Nov 20 2009", "November 20, 2009", "20 nov 2009", "20-Nov-2009", "Nov. 20 2009 00:00",
     "20 November 2009 00:00:00"],
)  # fmt: skip
def test_a_month_may_be_a_word(text):
    assert kind_of(text) == "date"
    values = np.array([text, "2009-11-20", ""], dtype=object)
    np.testing.assert_array_equal(np.diff(as_days(values)), [0.0, np.nan])


@pytest.mark.parametrize("text", ["Nov 31 2009", "Nov 2009", "May", "20 Nox 2009", "Nov 20 09"])
def test_other_words_are_no_months(text):
    assert kind_of(text) == "text"
