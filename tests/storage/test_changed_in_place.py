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
def mapped(monkeypatch):
    """Every array of a file is mapped, as are those of large models."""
    monkeypatch.setattr(container, "MAPPED_BYTES", 1)


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
    path, fitted, tmp_path, change, mapped
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


def test_a_file_replaced_by_a_new_one_leaves_the_loaded_model(path, fitted, mapped):
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
container.MAPPED_BYTES = 1
loaded = manygp.load(sys.argv[1])
os.truncate(sys.argv[1], 0)
try:
    loaded.predict(np.zeros((1, 2)))
except manygp.ModelFileError as error:
    print("refused")
"""


def test_a_file_that_is_cut_does_not_kill_the_process(path, tmp_path):
    copy = tmp_path / "copy.gp"
    shutil.copy(path, copy)
    done = subprocess.run([sys.executable, "-c", CUT, str(copy)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr


def test_what_is_taken_from_a_mapped_array_is_plain_and_in_memory(path, mapped):
    _, arrays = container.read(path)
    rows = arrays["X"]
    for taken in (rows[:3], rows[[1, 2]], rows * 2.0, rows.min(axis=0)):
        assert type(taken) is np.ndarray
    assert isinstance(rows.sum(), float)
    assert rows[0, 0] == np.asarray(rows)[0, 0]
    copied = pickle.loads(pickle.dumps(rows))
    assert type(copied) is np.ndarray
    assert_array_equal(copied, np.asarray(rows))
