"""A table format is one record in one registry; what is kept is copied as it is."""

import gzip
import json
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pytest

import manygp
from manygp.tables import base, formats, open_table, open_writer, read_training
from manygp.tables.base import Batch, TableFile, TableFormat
from manygp.tables.training_rows import ColumnRoles

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def read_lines(path, decimal):
    """A table of JSON lines, all in one piece."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]

    def pieces(columns, kept, batch_rows):
        values = {name: np.array([line[name] for line in lines]) for name in columns}
        yield Batch(0, values, kept=tuple([line[name] for line in lines] for name in kept))

    return TableFile(path, tuple(lines[0]), pieces)


@contextmanager
def write_lines(file, names, kept_names):
    def write(columns, kept=()):
        for row in zip(*kept, *columns.tolist(), strict=True):
            line = dict(zip((*kept_names, *names), row, strict=True))
            file.write(f"{json.dumps(line)}\n".encode())

    yield write


JSON_LINES = TableFormat("JSON lines", (".jsonl",), b"", True, read_lines, write_lines)


def test_a_new_format_is_one_record_and_one_line_of_the_registry(tmp_path, monkeypatch):
    pytest.importorskip("click")
    from click.testing import CliRunner

    from manygp.cli import main

    monkeypatch.setattr(formats, "FORMATS", [JSON_LINES, *formats.FORMATS])
    rng = np.random.default_rng(0)
    a = rng.random(60)
    rows = [{"id": f"r{i}", "a": x, "y": np.sin(6 * x)} for i, x in enumerate(a)]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    fit = ["fit", data, "--target", "y", "--drop", "id", "-o", tmp_path / "m", "--jobs", 1]
    predict = ["predict", tmp_path / "m", data, "--keep", "id", "-o", tmp_path / "out.jsonl.gz"]
    for command in (fit, predict):
        result = CliRunner().invoke(main, [str(one) for one in command])
        assert result.exit_code == 0, result.output
    lines = gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()).splitlines()
    answers = [json.loads(line) for line in lines]
    assert [one["id"] for one in answers] == [row["id"] for row in rows]
    loaded = manygp.load(tmp_path / "m")
    expected = loaded.predict(read_training(data, ColumnRoles("y", ["a"])).rows)
    np.testing.assert_array_equal([one["mean"] for one in answers], expected)
    with pytest.raises(ValueError, match=r"must end with .csv, .csv.gz, .* or .jsonl.gz"):
        formats.check_output("out.xlsx")


def test_the_old_names_of_tables_keep_working_with_a_warning():
    import manygp.tables

    with pytest.warns(FutureWarning, match="Chosen is now ColumnRoles"):
        assert manygp.tables.Chosen is ColumnRoles


def copied(table, folder, names, out="out.parquet"):
    """The columns of a table after they were read in pieces, and kept."""
    parquet.write_table(table, folder / "in.parquet", row_group_size=2)
    source = open_table(folder / "in.parquet")
    with open_writer(folder / out, ["mean"], names) as write:
        for batch in source.batches([], 2, names):
            write(np.zeros((1, len(batch.kept[0]))), batch.kept)
    return folder / out


MOMENT = datetime(2024, 6, 1, 12, tzinfo=UTC)
KEPT = {
    "late fraction": pyarrow.array([1.0, 2.0, 3.5, None]),
    "id": pyarrow.array([2**53 + 1, 2**53, None, 7]),
    "decimal": pyarrow.array([Decimal("12345678901234567890.5"), None, Decimal(1), Decimal(2)]),
    "moment": pyarrow.array([MOMENT, None, MOMENT, MOMENT], pyarrow.timestamp("ns", "UTC")),
    "late bool": pyarrow.array([True, False, None, True]),
    "late text": pyarrow.array([None, None, "x", " y "]),
    "small": pyarrow.array([1, 2, 3, 4], pyarrow.int8()),
    "list": pyarrow.array([[1], [], None, [2, 3]]),
    "category": pyarrow.array(["a", "b", "a", None]).dictionary_encode(),
}


def test_kept_columns_of_parquet_have_their_own_types_bit_for_bit(tmp_path):
    table = pyarrow.table(KEPT)
    kept = parquet.read_table(copied(table, tmp_path, list(KEPT))).select(list(KEPT))
    assert kept.schema.types == table.schema.types
    assert kept.to_pylist() == table.to_pylist()


def test_kept_columns_of_parquet_are_the_same_text_in_every_piece_of_csv(tmp_path):
    names = ["late fraction", "id", "moment", "late bool", "late text", "category"]
    path = copied(pyarrow.table(KEPT), tmp_path, names, "out.csv")
    assert path.read_text().splitlines()[1:] == [
        "1.0,9007199254740993,2024-06-01 12:00:00.000000000Z,True,,a,0.0",
        "2.0,9007199254740992,,False,,b,0.0",
        "3.5,,2024-06-01 12:00:00.000000000Z,,x,a,0.0",
        ",7,2024-06-01 12:00:00.000000000Z,True, y ,,0.0",
    ]


def test_kept_columns_of_csv_are_text_in_parquet_whatever_they_begin_with(tmp_path):
    data = tmp_path / "in.csv"
    data.write_text("id,a\n,1\n,2\n007,3\nx,4\n")
    with open_writer(tmp_path / "out.parquet", ["mean"], ["id"]) as write:
        for batch in open_table(data).batches(["a"], 2, ["id"]):
            write(np.zeros((1, 2)), batch.kept)
    assert parquet.read_table(tmp_path / "out.parquet")["id"].to_pylist() == ["", "", "007", "x"]


def test_files_of_a_folder_whose_kept_types_differ_are_refused_by_name(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    parquet.write_table(pyarrow.table({"id": [1, 2]}), folder / "1.parquet")
    parquet.write_table(pyarrow.table({"id": ["x", "y"]}), folder / "2.parquet")
    with open_writer(tmp_path / "out.parquet", ["mean"], ["id"]) as write:
        first, second = open_table(folder).batches([], base.BATCH_ROWS, ["id"])
        write(np.zeros((1, 2)), first.kept)
        with pytest.raises(ValueError, match="column 'id' is of type int64 in one file and str"):
            write(np.zeros((1, 2)), second.kept)


def test_gzipped_output_is_the_same_in_every_run_and_knows_its_own_name(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        with open_writer(tmp_path / folder / "out.csv.gz", ["mean"]) as write:
            write(np.ones((1, 3)))
    one, two = ((tmp_path / folder / "out.csv.gz").read_bytes() for folder in ("one", "two"))
    assert one == two
    assert b"out.csv\0" in one
