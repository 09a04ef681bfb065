"""Tables on disk, CSV and Parquet, in pieces, and arrays on disk."""

import csv
import datetime
import decimal
import gzip
import os
import re
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from manygp import ManyGPRegressor
from manygp.tables import base, open_table, parquet_batches, read_parquet
from manygp.tables.base import BATCH_ROWS, is_missing

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

rng = np.random.default_rng(0)
X = rng.uniform(size=(500, 3))
y = np.sin(5 * X[:, 0]) + X[:, 1]
NAMES = ["a", "b", "c"]


def write(path, columns, group_rows=128):
    parquet.write_table(pyarrow.table(columns), path, row_group_size=group_rows)
    return path


@pytest.fixture
def path(tmp_path):
    columns = dict(zip(["a", "y", "b", "c"], [X[:, 0], y, X[:, 1], X[:, 2]], strict=True))
    return write(tmp_path / "rows.parquet", columns)


def test_all_columns_but_the_target_in_the_order_of_the_file(path):
    rows = read_parquet(path, "y")
    assert rows.names == ("a", "b", "c")
    assert_array_equal(rows.X, X)
    assert_array_equal(rows.y, y)


def test_columns_can_be_chosen_and_ordered(path):
    rows = read_parquet(path, target="b", columns=["c", "a"])
    assert_array_equal(rows.X, X[:, [2, 0]])
    assert_array_equal(rows.y, X[:, 1])


@pytest.mark.parametrize("size", [1, 64, 499, 10_000])
def test_pieces_are_the_whole(path, size):
    pieces = list(parquet_batches(path, NAMES, size))
    assert max(map(len, pieces)) <= size
    assert_array_equal(np.concatenate(pieces), X)


def test_a_folder_is_read_as_its_files_one_after_the_other(tmp_path):
    for i, part in enumerate(np.array_split(np.column_stack([X, y]), 3)):
        write(tmp_path / f"{i}.parquet", dict(zip([*NAMES, "y"], part.T, strict=True)))
    pieces = parquet_batches(tmp_path, np.array(NAMES, dtype=object), 64)
    assert_array_equal(np.concatenate(list(pieces)), X)
    rows = read_parquet(tmp_path, "y")
    assert_array_equal(rows.X, X)
    assert_array_equal(rows.y, y)


def test_all_kinds_of_numbers_become_floats(tmp_path):
    kinds = [np.int8, np.uint16, np.int64, np.float16, np.float32, np.bool_]
    columns = {str(np.dtype(kind)): np.array([0, 1, 1], dtype=kind) for kind in kinds}
    read = read_parquet(write(tmp_path / "kinds.parquet", columns), "int8")
    assert read.X.dtype == float
    assert_array_equal(read.X, np.tile([[0.0], [1.0], [1.0]], 5))


def test_a_missing_value_is_named(tmp_path):
    holes = pyarrow.array([None if i == 300 else float(i) for i in range(500)])
    path = write(tmp_path / "holes.parquet", {"a": X[:, 0], "b": holes, "y": y})
    with pytest.raises(ValueError, match="column 'b' has no value in row 301"):
        read_parquet(path, "y")


@pytest.mark.parametrize(
    "values", [["low", "high"], [datetime.date(2020, 1, 1)] * 2, [b"0", b"1"]]
)
def test_a_column_that_is_not_a_number_is_named_before_anything_is_read(tmp_path, values):
    path = write(tmp_path / "kinds.parquet", {"a": [0.0, 1.0], "kind": values})
    with pytest.raises(ValueError, match="column 'kind' is of type"):
        read_parquet(path, "a")
    with pytest.raises(ValueError, match="'kind'"):
        parquet_batches(path)


def test_an_unknown_column_lists_the_known_ones(path):
    with pytest.raises(ValueError, match="no column 'z'; there are a, y, b, c"):
        read_parquet(path, "z")
    with pytest.raises(ValueError, match="no column 'z'"):
        parquet_batches(path, ["a", "z"])


def test_an_empty_parquet_file_gives_no_pieces(tmp_path):
    path = write(tmp_path / "empty.parquet", {"a": pyarrow.array([], pyarrow.float64())})
    assert [len(piece) for piece in parquet_batches(path)] == []
    assert read_parquet(path, "a", []).X.shape == (0, 0)


def test_a_file_of_another_kind_is_named(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"rows\.csv is not a readable Parquet file"):
        read_parquet(path, "a")
    with pytest.raises(FileNotFoundError):
        read_parquet(tmp_path / "nothing.parquet", "a")


def test_a_model_is_the_same_from_memory_parquet_and_a_read_only_memmap(path, tmp_path):
    def fitted(X, y):
        parameters = {"overlap": 1, "hyperparameters": "shared", "trend": "linear", "n_jobs": 2}
        return ManyGPRegressor(points_per_expert=60, random_state=0, **parameters).fit(X, y)

    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    rows = read_parquet(path, "y")
    expected = fitted(X, y).predict(X[:50], return_std=True)
    for model in (fitted(mapped, y), fitted(rows.X, rows.y)):
        assert_array_equal(model.predict(mapped[:50], return_std=True), expected)
    pieces = [model.predict(piece) for piece in parquet_batches(path, rows.names, 64)]
    np.testing.assert_allclose(np.concatenate(pieces), model.predict(X), rtol=1e-12)


def test_reading_needs_little_more_than_the_arrays(tmp_path):
    n, d = 400_000, 6
    values = rng.normal(size=(n, d))
    names = [f"x{j}" for j in range(d)]
    path = write(tmp_path / "large.parquet", dict(zip(names, values.T, strict=True)), 20_000)
    tracemalloc.start()
    read_parquet(path, "x0")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < values.nbytes + 4 * BATCH_ROWS * d * 8


# Tables of both kinds


@pytest.fixture
def save(tmp_path):
    def save(text, name="rows.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return save


def columns_of(path, names=None, batch_rows=BATCH_ROWS):
    """All rows of a table, as lists."""
    table = open_table(path)
    names = table.names if names is None else names
    batches = list(table.batches(names, batch_rows))
    return {name: [v for b in batches for v in b.columns[name].tolist()] for name in names}


def lines_of(path):
    table = open_table(path)
    return np.concatenate([batch.lines for batch in table.batches(table.names)]).tolist()


def refused(path, message, names=None):
    """The message of the error when a table is opened and read, which names the file."""
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        columns_of(path, names)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_delimiters_and_line_ends_are_found(save, delimiter, end):
    lines = ["a,b , c", "1,2, x y ", " 3 ,4,z"]
    path = save(end.join(line.replace(",", delimiter) for line in lines))
    assert columns_of(path) == {"a": ["1", "3"], "b": ["2", "4"], "c": ["x y", "z"]}
    assert lines_of(path) == [2, 3]


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.txt", "rows.data", "rows"])
def test_any_name_that_is_not_parquet_is_csv(save, name):
    assert columns_of(save("a\tb\n1\t2\n", name)) == {"a": ["1"], "b": ["2"]}


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.tsv.gz", "rows.csv"])
def test_gzip_is_known_by_its_first_bytes(save, name):
    assert columns_of(save(gzip.compress(b"a,b\n1,2\n"), name)) == {"a": ["1"], "b": ["2"]}
    assert columns_of(save("a,b\n1,2\n", name)) == {"a": ["1"], "b": ["2"]}


@pytest.mark.parametrize("name", ["rows.parquet", "rows.pq", "rows.PARQUET", "rows.csv", "rows"])
def test_parquet_is_known_by_its_name_or_first_bytes(tmp_path, name):
    assert columns_of(write(tmp_path / name, {"a": [1, 2]})) == {"a": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ('"a,b";"c"', ("a,b", "c")),
        ("price, EUR;size, m2;x", ("price, EUR", "size, m2", "x")),
        ("x;y\tz", ("x;y", "z")),
        ('"a", "b"', ("a", "b")),
        ("alone", ("alone",)),
        ('"al""one"', ('al"one',)),
        ('"two\nlines",b', ("two\nlines", "b")),
        ("größe,温度,naïve 🙂", ("größe", "温度", "naïve 🙂")),
    ],
)
def test_names_of_columns_as_they_come(save, header, names):
    row = ["1"] * len(names)
    path = save(header + "\n" + (";" if ";" in header else ",").join(row) + "\n")
    assert open_table(path).names == names


def test_a_byte_order_mark_is_no_part_of_a_name(save):
    assert open_table(save(b"\xef\xbb\xbfa,b\n1,2\n")).names == ("a", "b")
    assert open_table(save(b'\xef\xbb\xbf"a",b\n1,2\n')).names == ("a", "b")


def test_quoted_fields_hold_delimiters_quotes_and_lines(save):
    path = save('a,b\n"1,5","say ""so"""\n"two\r\nlines",x\n\n"last\n\n",y\nz,z')
    assert columns_of(path) == {
        "a": ["1,5", "two\r\nlines", "last", "z"],
        "b": ['say "so"', "x", "y", "z"],
    }
    assert lines_of(path) == [2, 3, 6, 9]


def test_blank_lines_are_skipped_and_counted(save):
    path = save("\n  \na,b\n\n1,2\n   \n\n3,4\n\n\n")
    assert columns_of(path) == {"a": ["1", "3"], "b": ["2", "4"]}
    assert lines_of(path) == [5, 8]


def test_a_quoted_nothing_in_a_table_of_one_column_is_a_row(save):
    path = save('a\n1\n\n""\n2\n')
    assert columns_of(path) == {"a": ["1", "", "2"]}
    assert lines_of(path) == [2, 4, 5]


@pytest.mark.parametrize("batch_rows", [1, 3, 10, 1000])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_is_read_in_pieces_as_often_as_needed(save, tmp_path, kind, batch_rows):
    if kind == "csv":
        path = save("a,b\n" + "".join(f"{i},{-i}\n" for i in range(10)))
    else:
        path = write(tmp_path / "rows.parquet", {"a": range(10), "b": range(0, -10, -1)}, 4)
    table = open_table(path)
    for _ in range(2):
        batches = list(table.batches(["b", "a"], batch_rows))
        assert max(batch.n_rows for batch in batches) <= batch_rows
        assert [batch.start for batch in batches] == np.cumsum(
            [0] + [batch.n_rows for batch in batches[:-1]]
        ).tolist()
        assert all(list(batch.columns) == ["b", "a"] for batch in batches)
        values = np.concatenate([batch.columns["a"] for batch in batches])
        assert_array_equal(values.astype(float), np.arange(10))
    assert [batch.place(0) for batch in batches][:1] == [
        "row 1 (line 2)" if kind == "csv" else "row 1"
    ]


def test_two_readings_of_a_table_can_be_under_way_at_once(save):
    table = open_table(save("a\n1\n2\n3\n"))
    one, other = table.batches(["a"], 1), table.batches(["a"], 2)
    next(one)
    assert next(other).columns["a"].tolist() == ["1", "2"]
    assert next(one).columns["a"].tolist() == ["2"]


@pytest.mark.parametrize("seed", range(20))
def test_random_text_is_read_back_as_it_was_written(tmp_path, seed):
    rng = np.random.default_rng(seed)
    letters = [*"ab,;|\t\"' \n\r.e-_é温🙂\u2028\x85", "\r\n"]
    n_rows, n_columns = rng.integers(1, 30), rng.integers(2, 6)

    def text():
        return "".join(rng.choice(letters, size=rng.integers(0, 8)))

    names = [f"{text()}{j}" for j in range(n_columns)]
    rows = [[text() for _ in names] for _ in range(n_rows)]
    path = tmp_path / "rows.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(
            file, delimiter=str(rng.choice(list(",;|\t"))), quoting=csv.QUOTE_ALL
        ).writerows([names, *rows])
    names = [name.strip() for name in names]
    expected = {name: [row[j].strip() for row in rows] for j, name in enumerate(names)}
    assert columns_of(path, batch_rows=int(rng.integers(1, 10))) == expected


@pytest.mark.parametrize("seed", range(5))
def test_numbers_written_with_repr_are_read_back_bit_for_bit(save, seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2**64, size=(200, 3), dtype=np.uint64).view(np.float64)
    values = np.where(np.isfinite(values), values, 0.0)
    path = save("a,b,c\n" + "".join(",".join(map(repr, row)) + "\n" for row in values.tolist()))
    read = np.array(list(columns_of(path).values())).T.astype(float)
    assert read.tobytes() == values.tobytes()


def test_a_wide_table_comes_in_pieces_of_fewer_rows(save, tmp_path, monkeypatch):
    monkeypatch.setattr(base, "BATCH_CELLS", 5000)
    values = rng.normal(size=(20, 1000))
    names = [f"x{j}" for j in range(1000)]
    text = "\n".join(",".join(map(repr, row)) for row in values.tolist())
    wide = open_table(save(",".join(names) + "\n" + text))
    batches = list(wide.batches(["x999", "x0"]))
    assert [batch.n_rows for batch in batches] == [5, 5, 5, 5]  # all fields are parsed
    read = np.concatenate([batch.columns["x999"] for batch in batches]).astype(float)
    assert_array_equal(read, values[:, 999])
    parquet = open_table(write(tmp_path / "w.parquet", dict(zip(names, values.T, strict=True))))
    assert max(batch.n_rows for batch in parquet.batches(names)) <= 5
    with pytest.raises(ValueError, match=r"x29, \.\.\. \(1000 in all\)"):
        wide.check_column("z")


def test_reading_csv_holds_no_more_than_two_pieces(save):
    path = save("a,b,c\n" + "0.123456789,text,1\n" * 20_000)
    table = open_table(path)

    def peak(batch_rows):
        tracemalloc.start()
        for _ in table.batches(table.names, batch_rows):
            pass
        measured = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return measured

    assert peak(1000) < peak(20_000) / 8


# What is wrong with a table is named with its place


def test_a_row_with_too_few_or_too_many_fields_is_named(save):
    path = save('a,b,c\n1,2,3\n"x\ny",2,3\n\n1,2\n')
    refused(path, "rows.csv: row 3 (line 6) has 2 fields, the header 3: none for column 'c'")
    path = save("a,b\n1,2\n1,2,3\n")
    refused(path, "row 2 (line 3) has 3 fields, the header 2: too many")
    path = save("a,b\n1,2\nx\n")
    refused(path, "row 2 (line 3) has 1 fields, the header 2: none for column 'b'")


def test_bytes_that_are_not_utf8_are_named_exactly(save):
    rows = [b"%d,x" % i for i in range(5000)]
    rows[3210] = "1,größe".encode("latin-1")
    path = save(b"\n".join([b"a,b", *rows]))
    refused(path, "row 3211 (line 3212) is not UTF-8 text")
    refused(save("größe,b\n1,2\n".encode("latin-1")), "line 1 is not UTF-8 text")
    refused(save("a,b\n1,2\n".encode("utf-16")), "rows.csv is text in UTF-16")
    refused(save("a,b\n1,2\n".encode("utf-16-le")), "line 1 holds a NUL byte")


def test_nul_bytes_are_named(save):
    refused(save(b'a,b\n1,2\n"3\n",4\n5\x00,6\n'), "row 3 (line 5) holds a NUL byte")


def test_an_empty_file_and_a_header_alone_are_told_apart(save, tmp_path):
    refused(save(""), "is empty")
    refused(save("\n \n\n"), "is empty")
    refused(save(gzip.compress(b"")), "is empty")
    path = save("a,b\n\n")
    assert open_table(path).names == ("a", "b")
    refused(path, "has column names, but no rows")
    path = write(tmp_path / "empty.parquet", {"a": pyarrow.array([], pyarrow.float64())})
    refused(path, "has column names, but no rows")


def test_a_header_of_numbers_is_refused(save):
    refused(save("1,2.5,-3e4\n4,5,6\n"), "the first line holds numbers, not column names")
    assert open_table(save("1,2.5,x\n4,5,6\n")).names == ("1", "2.5", "x")


def test_columns_without_a_name_of_their_own_are_refused(save, tmp_path):
    refused(save("a,b, a ,c,b\n1,2,3,4,5\n"), "more than one column is called a, b")
    refused(save(",a\n0,1\n"), "column 1 of 2 has no name in the first line")
    refused(save("a,b,\n0,1,\n"), "column 3 of 3 has no name in the first line")
    table = pyarrow.table([[1.0], [2.0]], names=["a", "a"])
    parquet.write_table(table, tmp_path / "twice.parquet")
    refused(tmp_path / "twice.parquet", "more than one column is called a")


@pytest.mark.parametrize("cut", [1, 8, 9, 30])
def test_gzip_that_is_cut_off_is_refused(save, cut):
    lines = "".join(f"{i},{i * i}\n" for i in range(1000))
    path = save(gzip.compress(("a,b\n" + lines).encode())[:-cut], "rows.csv.gz")
    refused(path, "is a gzip file that is cut off or damaged")


def test_gzip_that_is_damaged_is_refused(save):
    packed = bytearray(gzip.compress(b"a,b\n" + b"1,2\n" * 1000))
    packed[-6] ^= 1
    refused(save(bytes(packed)), "is a gzip file that is cut off or damaged")
    packed[12] ^= 255
    refused(save(bytes(packed)), "is a gzip file that is cut off or damaged")


def test_a_quote_that_is_left_open_is_named(save):
    refused(save('a,b\n1,2\n3,"4\n5,6\n'), "row 2 (line 3) is not CSV: unexpected end of data")
    long = 'a,b\n1,2\n3,"4\n' + "5,6\n" * 50_000
    refused(save(long), "row 2 (line 3) is not CSV: field larger than field limit")
    refused(save('a,b\n1,"2"3\n'), "row 1 (line 2) is not CSV")
    refused(save('a,"b\n1,2\n'), "line 1 is not CSV")
    refused(save('a,"b"x\n1,2\n'), "line 1 is not CSV")


def test_what_is_not_a_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*nothing\.csv"):
        open_table(tmp_path / "nothing.csv")
    with pytest.raises(ValueError, match="is a folder, not a table"):
        open_table(str(tmp_path))
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ValueError, match="is not a file on disk"):
            open_table(tmp_path / "pipe")


def test_an_unknown_column_of_a_table_is_met_with_a_near_one(save):
    table = open_table(save('Price,"size, m2",rooms\n1,2,3\n'))
    with pytest.raises(ValueError, match=r"no column 'prise'; did you mean 'Price'\? There are"):
        table.batches(["rooms", "prise"])
    with pytest.raises(ValueError, match="no column 'z'; there are Price, 'size, m2', rooms"):
        table.check_column("z")


@pytest.mark.parametrize("batch_rows", [0, -1, 2.5, True])
def test_pieces_have_a_row_at_least(save, batch_rows):
    with pytest.raises(ValueError, match="batch_rows must be an integer of at least 1"):
        open_table(save("a\n1\n")).batches(["a"], batch_rows)


def test_parquet_that_is_cut_off_is_refused(path, save):
    whole = path.read_bytes()
    refused(save(whole[:-20], "cut.parquet"), "is not a readable Parquet file")
    refused(save(whole[:-20], "cut.csv"), "is not a readable Parquet file")
    refused(save(b"", "empty.parquet"), "is not a readable Parquet file")
    footer = whole[:-60] + bytes(40) + whole[-20:]
    refused(save(footer, "footer.parquet"), "is not a readable Parquet file")
    damaged = whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :]
    refused(save(damaged, "damaged.parquet"), "is not a readable Parquet file, after row 0")


def test_numbers_of_parquet_become_floats_and_their_holes_nan(tmp_path):
    kinds = {
        "int": pyarrow.array([1, None, 2**40 + 1]),
        "small": pyarrow.array([1, 2, None], pyarrow.uint8()),
        "float": pyarrow.array([0.1, None, np.nan]),
        "half": pyarrow.array(np.array([0.5, 1, 2], dtype=np.float16)),
        "decimal": pyarrow.array([decimal.Decimal("0.1"), None, decimal.Decimal("-12345.6")]),
        "nothing": pyarrow.nulls(3),
        "dictionary": pyarrow.array([7, 7, None]).dictionary_encode(),
    }
    table = open_table(write(tmp_path / "kinds.parquet", kinds))
    (batch,) = table.batches(table.names)
    assert {column.dtype for column in batch.columns.values()} == {np.dtype(float)}
    assert_array_equal(batch.columns["int"], [1, np.nan, float(2**40 + 1)])
    assert_array_equal(batch.columns["decimal"], [0.1, np.nan, -12345.6])
    assert_array_equal(batch.columns["dictionary"], [7, 7, np.nan])
    assert_array_equal(is_missing(batch.columns["nothing"]), [True, True, True])
    assert_array_equal(is_missing(batch.columns["float"]), [False, True, True])
    assert batch.lines is None


def test_text_bools_and_dates_of_parquet_and_their_holes(tmp_path):
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5, 6)
    berlin = datetime.timezone(datetime.timedelta(hours=2))
    kinds = {
        "text": pyarrow.array(["a ", None, "NA"]),
        "large": pyarrow.array(["a", None, "b"], pyarrow.large_string()),
        "dictionary": pyarrow.array(["a", None, " b"]).dictionary_encode(),
        "bool": pyarrow.array([True, False, True]),
        "holes": pyarrow.array([True, None, False]),
        "date": pyarrow.array([moment.date(), None, moment.date()]),
        "naive": pyarrow.array([moment, None, moment], pyarrow.timestamp("ns")),
        "aware": pyarrow.array(
            [moment.replace(tzinfo=berlin)] * 3, pyarrow.timestamp("us", "UTC")
        ),
    }
    table = open_table(write(tmp_path / "kinds.parquet", kinds))
    (batch,) = table.batches(table.names)
    columns = batch.columns
    assert columns["text"].tolist() == ["a", None, "NA"]
    assert columns["large"].tolist() == ["a", None, "b"]
    assert columns["dictionary"].tolist() == ["a", None, "b"]
    assert columns["bool"].dtype == bool
    assert columns["holes"].tolist() == ["True", None, "False"]
    assert columns["date"].dtype.kind == columns["naive"].dtype.kind == "M"
    assert columns["naive"][0] == np.datetime64(moment)
    assert columns["aware"][0] == np.datetime64(moment) - np.timedelta64(2, "h")
    holes = {name: is_missing(values).tolist() for name, values in columns.items()}
    whole = [False, False, False]
    assert holes == {name: [False, True, False] for name in kinds} | {
        "text": [False, True, True], "bool": whole, "aware": whole,
    }  # fmt: skip


def test_other_kinds_of_parquet_are_refused_when_asked_for(tmp_path):
    kinds = {"a": [1.0], "list": [[1.0]], "bytes": [b"x"], "time": [datetime.time(1)]}
    table = open_table(write(tmp_path / "kinds.parquet", kinds))
    assert next(table.batches(["a"])).columns["a"] == [1.0]
    for name in ("list", "bytes", "time"):
        refused(table.path, f"column {name!r} is of type", [name])


def test_the_index_that_pandas_stores_is_no_column(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0, 3.0], "y": [0.0, 1.0, 0.0]})
    frame[frame.a > 1].to_parquet(tmp_path / "filtered.parquet")
    assert open_table(tmp_path / "filtered.parquet").names == ("a", "y")
    assert read_parquet(tmp_path / "filtered.parquet", "y").names == ("a",)


def test_parquet_without_columns_is_refused(tmp_path):
    parquet.write_table(pyarrow.table({}), tmp_path / "nothing.parquet")
    refused(tmp_path / "nothing.parquet", "has no columns")


def test_names_with_dots_are_no_paths(tmp_path):
    path = write(tmp_path / "dots.parquet", {"a.b": [1.0], "a": [2.0], "y": [3.0]})
    assert columns_of(path, ["a", "a.b"]) == {"a": [2.0], "a.b": [1.0]}


@pytest.mark.parametrize("word", sorted(base.MISSING))
def test_words_for_a_missing_value(save, word):
    (batch,) = open_table(save(f"a,b\n1,{word}\n{word} ,x\n")).batches(["a", "b"])
    assert is_missing(batch.columns["a"]).tolist() == [False, True]
    assert is_missing(batch.columns["b"]).tolist() == [True, False]
