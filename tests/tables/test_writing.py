"""Columns of numbers to CSV or Parquet: exact, piece by piece, whole or not at all."""

import gzip
import io
import os
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from manygp.tables import open_writer

NAMES = ("mean", "std")
# Numbers whose shortest text is easily got wrong.
HARD = np.array([[0.1, 1 / 3, 1e-310, 5e-324, -0.0, 1.7976931348623157e308, 2.0**53, np.pi]] * 2)


def write(path, *pieces, names=NAMES):
    with open_writer(path, names) as add:
        for piece in pieces:
            add(piece)


def from_csv(text):
    header, *lines = text.splitlines()
    assert header == ",".join(NAMES)
    return np.array([[float(field) for field in line.split(",")] for line in lines]).T


def same_bits(found, expected):
    assert_array_equal(found.view(np.int64), np.asarray(expected).view(np.int64))


@pytest.mark.parametrize("name", ["out.csv", "out.CSV", "out.txt", "out"])
def test_csv_gives_back_every_bit(tmp_path, name):
    write(tmp_path / name, HARD[:, :3], HARD[:, 3:])
    same_bits(np.ascontiguousarray(from_csv((tmp_path / name).read_text())), HARD)


@pytest.mark.parametrize("name", ["out.csv.gz", "out.GZ"])
def test_gzipped_csv_has_the_same_text_and_no_time(tmp_path, name):
    write(str(tmp_path / name), HARD)
    write(tmp_path / "plain.csv", HARD)
    assert gzip.decompress((tmp_path / name).read_bytes()) == (tmp_path / "plain.csv").read_bytes()
    assert (tmp_path / name).read_bytes()[4:8] == bytes(4)  # where gzip keeps it


@pytest.mark.parametrize("name", ["out.parquet", "out.PQ"])
def test_parquet_holds_the_numbers_themselves(tmp_path, name):
    parquet = pytest.importorskip("pyarrow.parquet")
    write(tmp_path / name, HARD[:, :3], HARD[:, 3:])
    table = parquet.read_table(tmp_path / name)
    assert table.column_names == list(NAMES)
    assert {str(kind) for kind in table.schema.types} == {"double"}
    same_bits(np.array([column.to_numpy() for column in table.columns]), HARD)


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet"])
def test_without_rows_there_are_names(tmp_path, name):
    reading = pytest.importorskip("pandas")
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    write(tmp_path / name)
    read = reading.read_parquet if name.endswith("parquet") else reading.read_csv
    assert list(read(tmp_path / name).columns) == list(NAMES)


def test_a_dash_is_standard_output(monkeypatch):
    stdout = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", stdout)
    write("-", HARD)
    assert_array_equal(from_csv(stdout.buffer.getvalue().decode()), HARD)
    assert not os.path.exists("-")


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_after_a_failure_what_was_there_is_still_there_and_nothing_else(tmp_path, name, error):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")

    def stop():
        with open_writer(tmp_path / name, NAMES) as add:
            add(HARD)
            raise error

    with pytest.raises(error):
        stop()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / name).write_text("old")
    with pytest.raises(error):
        stop()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "old"


def test_rows_are_on_the_disk_as_they_come_and_the_file_when_all_have(tmp_path):
    rows = np.ones((2, 10_000))
    with open_writer(tmp_path / "out.csv", NAMES) as add:
        sizes = []
        for _ in range(3):
            add(rows)
            (part,) = tmp_path.iterdir()
            sizes.append(part.stat().st_size)
        assert part.suffix == ".part"
        assert sizes[0] < sizes[1] < sizes[2]
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def test_without_pyarrow_the_message_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install \"manygp\[parquet\]\""):
        write(tmp_path / "out.parquet", HARD)
    assert list(tmp_path.iterdir()) == []
