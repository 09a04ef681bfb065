"""Parquet files in pieces, and arrays on disk."""

import datetime
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from manygp import ManyGPRegressor
from manygp.reading import BATCH_ROWS, parquet_batches, read_parquet

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


def test_all_kinds_of_numbers_become_floats(tmp_path):
    kinds = [np.int8, np.uint16, np.int64, np.float16, np.float32, np.bool_]
    columns = {str(np.dtype(kind)): np.array([0, 1, 1], dtype=kind) for kind in kinds}
    read = read_parquet(write(tmp_path / "kinds.parquet", columns), "int8")
    assert read.X.dtype == float
    assert_array_equal(read.X, np.tile([[0.0], [1.0], [1.0]], 5))


def test_a_missing_value_is_named(tmp_path):
    holes = pyarrow.array([None if i == 300 else float(i) for i in range(500)])
    path = write(tmp_path / "holes.parquet", {"a": X[:, 0], "b": holes, "y": y})
    with pytest.raises(ValueError, match="column 'b' has no value in row 300"):
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


def test_a_file_of_another_kind_is_named(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"rows\.csv is not a readable Parquet file"):
        read_parquet(path, "a")
    with pytest.raises(FileNotFoundError):
        read_parquet(tmp_path / "nothing.parquet", "a")


def test_a_model_is_the_same_from_memory_parquet_and_a_read_only_memmap(path, tmp_path):
    def fitted(X, y):
        parameters = {"overlap": 1, "hyperparameters": "shared", "n_jobs": 2}
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
