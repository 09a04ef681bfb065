"""Real data sets are found, checked, downloaded once, or missed with a clear word."""

import gzip
import hashlib
import http.server
import threading
import tracemalloc

import numpy as np
import pytest

from benchmarks import datasets
from benchmarks.datasets import files
from benchmarks.datasets.files import DATA_FILES, FOLD_FILES, DataFile
from benchmarks.datasets.table_files import TABLE_FILES, TableData
from benchmarks.tests.data_folder import HOME

TEXT = "\n".join(f"{i},{i % 3},{0.5 * i}" for i in range(10)).encode() + b"\n"
STD = float(np.std(0.5 * np.arange(10)))


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """A registered data set "toy" whose file is not there yet, and an empty cache."""
    digest = hashlib.sha256(TEXT).hexdigest()
    file = DataFile(10, 2, STD, digest, "the toy shop", None, len(TEXT))
    monkeypatch.setitem(DATA_FILES, "toy", file)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("MANYGP_DATA", raising=False)
    return file


def put(folder, text=TEXT):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "toy.csv.gz").write_bytes(gzip.compress(text))


def test_a_folder_may_be_named_by_argument_or_environment(toy, tmp_path, monkeypatch):
    put(tmp_path)
    by_argument = datasets.load("toy", data_dir=tmp_path)
    assert by_argument.X.shape == (10, 2)
    np.testing.assert_array_equal(by_argument.y, 0.5 * np.arange(10))
    monkeypatch.setenv("MANYGP_DATA", str(tmp_path))
    np.testing.assert_array_equal(datasets.load("toy").X, by_argument.X)


def test_a_missing_file_is_named_with_its_source(toy, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"toy\.csv\.gz is missing.*the toy shop"):
        datasets.load("toy", data_dir=tmp_path)


def test_what_cannot_be_downloaded_says_where_to_put_it(toy):
    with pytest.raises(FileNotFoundError, match=r"toy\.csv\.gz.*MANYGP_DATA.*the toy shop"):
        datasets.load("toy")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: gzip.compress(TEXT.replace(b"4.5", b"4.6")), "checksum differs"),
        (lambda data: data[:-9], "not a readable gzip"),
        (lambda data: b"plain text", "not a readable gzip"),
    ],
)
def test_an_altered_file_is_named(toy, tmp_path, damage, message):
    put(tmp_path)
    path = tmp_path / "toy.csv.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=rf"toy\.csv\.gz.*{message}"):
        datasets.load("toy", data_dir=tmp_path)


def test_rows_columns_and_target_are_checked(toy, tmp_path, monkeypatch):
    put(tmp_path)
    for wrong in (toy._replace(n_rows=11), toy._replace(n_features=3), toy._replace(target_std=9)):
        monkeypatch.setitem(DATA_FILES, "toy", wrong)
        with pytest.raises(ValueError, match="has shape"):
            datasets.load("toy", data_dir=tmp_path)


@pytest.fixture
def shop(tmp_path):
    """A server on this machine: its address, its folder, and what it was asked for."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(tmp_path / "shop"))

        def log_message(self, *args):
            asked.append(self.path)

    (tmp_path / "shop").mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/toy.csv.gz", tmp_path / "shop", asked
        server.shutdown()
        thread.join()


def test_a_file_is_downloaded_once_into_the_cache(toy, shop, monkeypatch):
    url, folder, asked = shop
    put(folder)
    monkeypatch.setitem(DATA_FILES, "toy", toy._replace(url=url))
    first, second = datasets.load("toy"), datasets.load("toy")
    np.testing.assert_array_equal(first.X, second.X)
    assert len(asked) == 1
    assert [path.name for path in files.cache_folder().iterdir()] == ["toy.csv.gz"]


@pytest.mark.parametrize("text", [None, b"something else\n"])
def test_a_failed_download_leaves_nothing_behind(toy, shop, monkeypatch, text):
    url, folder, _ = shop
    if text is not None:
        put(folder, text)
    monkeypatch.setitem(DATA_FILES, "toy", toy._replace(url=url))
    with pytest.raises(FileNotFoundError, match=r"could not be downloaded.*the toy shop"):
        datasets.load("toy")
    assert not any(files.cache_folder().iterdir())


# Official folds.


@pytest.fixture
def folded(toy, tmp_path, monkeypatch):
    """Ten folds of the toy data set: row i is a test row of fold i."""
    text = "\n".join(",".join(str(int(i == j)) for j in range(10)) for i in range(10)).encode()
    monkeypatch.setitem(FOLD_FILES, "toy", hashlib.sha256(text).hexdigest())
    put(tmp_path)
    (tmp_path / "toy.folds.csv.gz").write_bytes(gzip.compress(text))
    return tmp_path


def test_a_fold_tests_its_rows_and_scales_with_the_others(folded):
    parts = datasets.official_fold("toy", 9, folded)
    y = 0.5 * np.arange(10)
    assert parts.X_train.shape == (9, 2)
    assert parts.y_test == pytest.approx((y[9:] - y[:9].mean()) / y[:9].std())
    assert parts.y_scale == pytest.approx(y[:9].std())


def test_folds_that_are_missing_or_unknown_are_named(folded, monkeypatch):
    with pytest.raises(ValueError, match="from 0 to 9, not 10"):
        datasets.official_fold("toy", 10, folded)
    with pytest.raises(ValueError, match="'levy' has no official folds; kin40k, protein, pol"):
        datasets.official_fold("levy", 0, folded)
    with pytest.raises(
        FileNotFoundError, match=r"toy\.folds\.csv\.gz has no download.*--data-dir"
    ):
        datasets.official_fold("toy", 0)
    (folded / "toy.folds.csv.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"toy\.folds\.csv\.gz is missing; get it from"):
        datasets.official_fold("toy", 0, folded)


# Tables with categories.


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A table "shelf" of five rows, one of which has no target."""
    text = b"size,kind,left,price\n1,b,x,10\n2,a,x,\n3,c,x,30\n4,b,x,40\n5,d,x,50\n"
    (tmp_path / "shelf.csv.gz").write_bytes(gzip.compress(text))
    sha = hashlib.sha256(text).hexdigest()
    columns = {"size": "number", "kind": "category"}
    monkeypatch.setitem(
        TABLE_FILES, "shelf", TableData("shelf.csv.gz", "price", columns, sha, "the toy shop")
    )
    monkeypatch.delenv("MANYGP_DATA", raising=False)
    return tmp_path


def test_a_table_has_its_rows_with_a_target_and_a_column_for_each_category(shelf):
    data = datasets.load("shelf", data_dir=shelf)
    np.testing.assert_array_equal(data.y, [10, 30, 40, 50])
    np.testing.assert_array_equal(data.X, [[1, 1, 0, 0], [3, 0, 1, 0], [4, 1, 0, 0], [5, 0, 0, 1]])


def test_a_table_that_is_missing_or_altered_is_named(shelf):
    with pytest.raises(FileNotFoundError, match=r"shelf\.csv\.gz has no download.*the toy shop"):
        datasets.load("shelf")
    (shelf / "shelf.csv.gz").write_bytes(gzip.compress(b"size,kind,price\n1,b,2\n"))
    with pytest.raises(ValueError, match=r"shelf\.csv\.gz.*checksum differs.*the toy shop"):
        datasets.load("shelf", data_dir=shelf)


@pytest.mark.skipif(HOME is None, reason="needs the real data sets: set MANYGP_DATA")
def test_diamonds_have_their_columns_and_categories():
    data = datasets.load("diamonds", data_dir=HOME)
    assert data.X.shape == (53_940, 6 + 5 + 7 + 8)
    assert data.y.min() == 326


@pytest.mark.skipif(HOME is None, reason="needs the real data sets: set MANYGP_DATA")
def test_flights_have_the_rows_with_a_delay():
    pytest.importorskip("pyarrow")
    data = datasets.load("flights", data_dir=HOME)
    assert data.X.shape == (327_346, 8 + 16 + 3)
    assert np.isfinite(data.X).all()


@pytest.mark.skipif(HOME is None, reason="needs the real data sets: set MANYGP_DATA")
@pytest.mark.parametrize("name", FOLD_FILES)
def test_official_folds_are_a_tenth_each(name):
    parts = datasets.official_fold(name, 0, HOME)
    assert len(parts.y_test) * 9 == len(parts.y_train)


@pytest.mark.parametrize("body", [b"x" * 10**6, gzip.compress(bytes(10**8))])
def test_no_more_is_read_than_the_file_can_have(toy, shop, monkeypatch, body):
    url, folder, _ = shop
    (folder / "toy.csv.gz").write_bytes(body)
    monkeypatch.setitem(DATA_FILES, "toy", toy._replace(url=url))
    tracemalloc.start()
    with pytest.raises(FileNotFoundError, match=r"could not be downloaded.*more than 1,"):
        datasets.load("toy")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e5
    assert not any(files.cache_folder().iterdir())


def test_a_small_file_of_a_long_text_is_not_unpacked(toy, tmp_path):
    put(tmp_path, bytes(10**8))
    tracemalloc.start()
    with pytest.raises(ValueError, match="checksum differs"):
        datasets.load("toy", data_dir=tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6


@pytest.mark.skipif(HOME is None, reason="needs the real data sets: set MANYGP_DATA")
@pytest.mark.parametrize("name", DATA_FILES)
def test_the_real_data_sets_are_as_described(name):
    data = datasets.load(name, data_dir=HOME)
    assert data.X.shape == (DATA_FILES[name].n_rows, DATA_FILES[name].n_features)
    assert np.isfinite(data.X).all()
    assert data.y.std() == pytest.approx(DATA_FILES[name].target_std, abs=1e-3)
