"""A model whose file is overwritten or cut in place after it was loaded."""

import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import manygp
from manygp import ModelFileError
from manygp.storage import container
from model_files import QUERIES, X, Y, model


@pytest.fixture
def in_file(monkeypatch):
    """Every array stays in the file, as do those of large models."""
    monkeypatch.setattr(container, "LEFT_BYTES", 1)


def overwrite(path, other):
    with open(path, "r+b") as file:
        file.write(other.read_bytes())
        file.truncate()


def cut(path, other):
    os.truncate(path, 100)


def flip(path, other):
    with open(path, "r+b") as file:
        file.seek(-100, os.SEEK_END)
        file.write(bytes(100))


@pytest.mark.parametrize("change", [overwrite, cut, flip])
def test_a_file_changed_in_place_is_an_error_and_no_other_answer(
    path, fitted, tmp_path, change, in_file
):
    expected = fitted.predict(QUERIES)
    other = tmp_path / "other.gp"
    model().fit(X, -Y).save(other)
    assert_array_equal(manygp.load(path).predict(QUERIES), expected)
    os.utime(path, ns=(0, 0))  # as if it had been written long ago
    loaded = manygp.load(path)
    change(path, other)
    with pytest.raises(ModelFileError, match=r"overwritten or cut in place.*load it again"):
        loaded.predict(QUERIES)
    with pytest.raises(ModelFileError, match="in place"):
        pickle.dumps(loaded)


def test_a_file_replaced_by_a_new_one_leaves_the_loaded_model(path, fitted, in_file):
    expected = fitted.predict(QUERIES)
    loaded = manygp.load(path)
    model().fit(X, -Y).save(path)
    assert_array_equal(loaded.predict(QUERIES), expected)
    again = manygp.load(path)
    path.unlink()
    assert not np.array_equal(again.predict(QUERIES), expected)


def test_a_small_file_is_in_memory(path, fitted):
    loaded = manygp.load(path)
    cut(path, None)
    assert_array_equal(loaded.predict(QUERIES), fitted.predict(QUERIES))


CUT = """
import os, sys
import numpy as np
import manygp
from manygp.storage import container
container.LEFT_BYTES = 1
loaded = manygp.load(sys.argv[1])
os.truncate(sys.argv[1], 0)
try:
    loaded.predict(np.zeros((1, 2)))
except manygp.ModelFileError as error:
    print("refused")
"""


@pytest.mark.parametrize("unseen", ["", "container.ArrayInFile._state = lambda self: (0, 0)"])
def test_a_file_that_is_cut_does_not_kill_the_process(path, tmp_path, unseen):
    """Not even if it is cut after it was looked at."""
    copy = tmp_path / "copy.gp"
    shutil.copy(path, copy)
    code = CUT.replace("loaded =", f"{unseen}\nloaded =")
    done = subprocess.run([sys.executable, "-c", code, str(copy)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr


def test_a_file_that_is_cut_while_it_is_read_is_refused(path, in_file, monkeypatch):
    def cut_first(self):
        os.truncate(path, path.stat().st_size - 1)
        return checksum(self)

    checksum = container.ArrayInFile.checksum
    monkeypatch.setattr(container.ArrayInFile, "checksum", cut_first)
    with pytest.raises(ModelFileError, match="in place while it was read"):
        manygp.load(path)


def test_what_is_taken_from_an_array_in_a_file_is_plain_and_in_memory(path, in_file, monkeypatch):
    _, arrays = container.read(path)
    rows = arrays["X"]
    whole = np.asarray(rows)
    mask = np.arange(len(whole)) % 3 == 0
    for gap in (1, 2**13):
        monkeypatch.setattr(container, "GAP_BYTES", gap)
        for key in (
            0, -1, 3, slice(None), slice(2, 9), slice(None, None, -2), slice(5, 2), [4, 1, 1, 9],
            np.array([[3, 0], [7, 7]]), np.array([], dtype=int), mask, (slice(1, 4), 1),
            ([2, 0], 0), (1, slice(None)),
        ):  # fmt: skip
            assert_array_equal(rows[key], whole[key])
            assert rows[key].shape == whole[key].shape
    with pytest.raises(IndexError):
        rows[len(whole)]
    assert_array_equal(rows + rows, 2 * whole)
    assert_array_equal(rows.T, whole.T)
    assert len([*rows]) == len(whole)
    for taken in (rows[:3], rows[[1, 2]], rows * 2.0, rows.min(axis=0)):
        assert type(taken) is np.ndarray
    assert isinstance(rows.sum(), float)
    assert rows[0, 0] == np.asarray(rows)[0, 0]
    copied = pickle.loads(pickle.dumps(rows))
    assert type(copied) is np.ndarray
    assert_array_equal(copied, np.asarray(rows))
