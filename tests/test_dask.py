"""`manygp.dask`: the same model on a cluster, for any number of workers and any chunks."""

import inspect
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

pytest.importorskip("distributed")

import dask
import dask.array as da
import dask.dataframe as dd
from dask.distributed import Client, LocalCluster

from large import COLUMNS, bytes_of, lower_limits, make_rows, model, write
from manygp import ManyGPRegressor
from manygp import dask as on_dask
from manygp.dask import DaskManyGPRegressor, connected
from manygp.runtime.files import is_dead
from patching import with_numbers

X, Y = make_rows()
QUERIES, _ = make_rows(300, 1)
FRAME = pd.DataFrame(QUERIES, columns=list(COLUMNS))
# Warnings of Dask about itself are not ours.
pytestmark = pytest.mark.filterwarnings("default:::distributed", "default:::dask")


def cluster_model(client=None, **parameters):
    return DaskManyGPRegressor(client=client, **model(**parameters).get_params())


@pytest.fixture(scope="module", autouse=True)
def _limits():
    with pytest.MonkeyPatch.context() as patch:
        lower_limits(patch)
        yield


@pytest.fixture(scope="module")
def client():
    settings = {"threads_per_worker": 1, "dashboard_address": None, "processes": True}
    with LocalCluster(n_workers=2, **settings) as cluster, Client(cluster) as found:
        yield found


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The model without a cluster, and its bytes."""
    folder = tmp_path_factory.mktemp("reference")
    path = write(folder / "data.parquet", X, Y)
    fitted = model().fit(path, target="y", work_dir=folder / "work")
    return path, fitted, bytes_of(folder / "work")


def test_the_parameters_are_those_of_the_plain_estimator():
    ours = DaskManyGPRegressor().get_params()
    assert ours.pop("client", "missing") is None
    assert ours == ManyGPRegressor().get_params()
    known = list(inspect.signature(ManyGPRegressor).parameters)
    assert list(inspect.signature(DaskManyGPRegressor).parameters) == [*known, "client"]
    for name in ("fit", "predict", "predict_interval"):
        here, there = (getattr(one, name) for one in (DaskManyGPRegressor, ManyGPRegressor))
        assert list(inspect.signature(here).parameters) == list(
            inspect.signature(there).parameters
        )


def test_a_file_gives_the_same_bytes_as_without_a_cluster(client, reference, tmp_path):
    fitted = cluster_model(client).fit(reference[0], target="y", work_dir=tmp_path / "work")
    assert bytes_of(tmp_path / "work") == reference[2]
    assert_array_equal(fitted.to_local().predict(FRAME), reference[1].predict(FRAME))


@pytest.mark.parametrize("n_workers", [1, 4])
def test_the_bytes_do_not_depend_on_the_workers(reference, tmp_path, n_workers):
    settings = {"threads_per_worker": 1, "dashboard_address": None, "processes": False}
    with LocalCluster(n_workers=n_workers, **settings) as cluster, Client(cluster) as other:
        cluster_model(other).fit(reference[0], target="y", work_dir=tmp_path / "work")
    assert bytes_of(tmp_path / "work") == reference[2]


@pytest.mark.parametrize("rows", [400, 1100])
def test_arrays_give_the_same_model_for_any_chunks(client, reference, rows):
    lazy = da.from_array(X, chunks=(rows, 2)), da.from_array(Y, chunks=rows)
    fitted = cluster_model().fit(*lazy)
    for one, other in zip(
        fitted.to_local().predict(QUERIES, True), reference[1].predict(FRAME, True), strict=True
    ):
        assert_array_equal(one, other)
    assert not hasattr(fitted, "feature_names_in_")


def test_frames_give_the_same_model(client, reference, tmp_path):
    frame = dd.from_pandas(pd.DataFrame(X, columns=list(COLUMNS)).assign(y=Y), npartitions=3)
    cluster_model().fit(frame, target="y", work_dir=tmp_path / "one")
    cluster_model().fit(frame[list(COLUMNS)], frame["y"], work_dir=tmp_path / "other")
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "other") == reference[2]


def test_few_rows_give_the_model_of_rows_in_memory(client):
    lazy = da.from_array(X[:500], chunks=(90, 3)), da.from_array(Y[:500], chunks=90)
    fitted = cluster_model().fit(*lazy)
    other = model().fit(X[:500], Y[:500])
    for one, two in zip(
        fitted.to_local().predict(QUERIES, True), other.predict(QUERIES, True), strict=True
    ):
        assert_array_equal(one, two)


@pytest.fixture(scope="module")
def fitted(client, tmp_path_factory):
    path = write(tmp_path_factory.mktemp("some") / "few.parquet", X[:600], Y[:600])
    return cluster_model().fit(path, target="y", work_dir=path.parent / "work")


def test_answers_are_lazy_and_the_same(client, fitted):
    local = fitted.to_local()
    frame = dd.from_pandas(FRAME, npartitions=4)
    mean, std = fitted.predict(frame, return_std=True)
    lower, upper = fitted.predict_interval(frame, 0.8)
    found = [mean, std, lower, upper, fitted.predict(frame)]
    assert all(isinstance(one, dd.Series) for one in found)
    expected = [
        *local.predict(FRAME, return_std=True),
        *local.predict_interval(FRAME, 0.8),
        local.predict(FRAME),
    ]
    for one, other in zip(found, expected, strict=True):
        assert_array_equal(one.compute(), other)


def test_answers_for_arrays_are_arrays_also_of_empty_chunks(client):
    local = model().fit(X[:500], Y[:500])
    fitted = cluster_model().fit(X[:500], Y[:500])
    rows = da.from_array(QUERIES, chunks=(120, 2))
    rows = da.concatenate([rows, da.from_array(QUERIES[:0], chunks=(1, 3))])
    mean, std = fitted.predict(rows, return_std=True)
    assert isinstance(mean, da.Array)
    assert mean.shape == (300,)
    for one, other in zip((mean, std), local.predict(QUERIES, return_std=True), strict=True):
        assert_array_equal(one.compute(), other)


def test_several_targets(client):
    both = np.column_stack([Y, -Y])[:600]
    lazy = da.from_array(X[:600], chunks=(250, 3)), da.from_array(both, chunks=(200, 1))
    fitted = cluster_model(normalize_y=False).fit(*lazy)
    mean, std = fitted.predict(da.from_array(QUERIES, chunks=(100, 3)), return_std=True)
    expected = fitted.to_local().predict(QUERIES, return_std=True)
    assert_array_equal(mean.compute(), expected[0])
    assert_array_equal(std.compute(), expected[1])


def test_rules_that_change_after_fit_are_asked(client, fitted):
    frame = dd.from_pandas(FRAME, npartitions=2)
    other = pickle.loads(pickle.dumps(fitted)).set_params(routing=1, calibration="none")
    other.set_params(temperature=1.0)
    found = other.predict(frame, return_std=True)[1].compute()
    assert_array_equal(found, other.to_local().predict(FRAME, return_std=True)[1])
    assert not np.array_equal(found, fitted.to_local().predict(FRAME, return_std=True)[1])


def test_the_client_is_kept_by_a_clone_and_never_pickled(client, fitted):
    with_client = cluster_model(client)
    assert clone(with_client).client is client
    assert pickle.loads(pickle.dumps(with_client)).client is None
    other = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(other.to_local().predict(FRAME), fitted.to_local().predict(FRAME))


def test_saved_models_are_plain(fitted, tmp_path):
    import manygp

    fitted.save(tmp_path / "model")
    loaded = manygp.load(tmp_path / "model")
    assert type(loaded) is ManyGPRegressor is type(fitted.to_local())
    assert_array_equal(loaded.predict(FRAME), fitted.to_local().predict(FRAME))


def test_mistakes_are_named(client, tmp_path):
    lazy = da.from_array(X, chunks=(1000, 3))
    with pytest.raises(ValueError, match="y must be one too"):
        cluster_model().fit(lazy, Y)
    frame = dd.from_pandas(FRAME, npartitions=2)
    with pytest.raises(ValueError, match="is no column; there are a, b, c"):
        cluster_model().fit(frame, target="z")
    with pytest.raises(ValueError, match="2 partitions and y has 3"):
        cluster_model().fit(frame, dd.from_pandas(FRAME["a"], npartitions=3))
    holes = X.copy()
    holes[1500, 1] = np.nan
    with pytest.raises(ValueError, match=r"partition 3: .* NaN, first in column 1, row 300"):
        cluster_model().fit(da.from_array(holes, chunks=(400, 3)), da.from_array(Y, chunks=400))


def frames_of(pieces):
    """A Dask DataFrame whose partitions may differ from what it says of them."""
    return dd.from_delayed([dask.delayed(one) for one in pieces], pieces[0][:0], verify_meta=False)


def test_columns_of_a_partition_are_ordered_by_name_or_refused(client):
    frame = pd.DataFrame(X[:500], columns=list(COLUMNS))
    both = pd.DataFrame({"u": Y[:500], "v": X[:500, 0]})
    first, second = frame[:200], frame[200:]
    mixed = frames_of([first, second[["c", "a", "b"]]])
    targets = frames_of([both[:200], both[200:][["v", "u"]]])
    expected = model(columns="numeric").fit(frame, both).predict(FRAME)
    found = cluster_model().fit(mixed, targets).to_local()
    assert_array_equal(found.predict(FRAME), expected)
    alone = frames_of([first.assign(y=Y[:200]), second.assign(y=Y[200:500])[["y", "b", "c", "a"]]])
    expected = model(columns="numeric").fit(frame, Y[:500]).predict(FRAME)
    assert_array_equal(cluster_model().fit(alone, target="y").to_local().predict(FRAME), expected)
    y = frames_of([both[:200], both[200:]])["u"]
    for other in (second.rename(columns={"a": "z"}), second.assign(z=1.0), second[["a", "b"]]):
        with pytest.raises(ValueError, match=r"partition 1: its columns are .*; others have a, b"):
            cluster_model().fit(frames_of([first, other]), y)


def said(call):
    """The first line of what is wrong."""
    try:
        call()
    except ValueError as error:
        return str(error).splitlines()[0].replace("DaskManyGP", "ManyGP")
    raise AssertionError("it was not refused")


FEW = X[:300]
HOLE = np.where(np.arange(300) == 7, np.nan, Y[:300])
ODD_ARRAYS = {
    "complex": (FEW + 1j, Y[:300]),
    "masked": (np.ma.masked_array(FEW, FEW > 0.99), Y[:300]),
    "text": (FEW.astype(str), Y[:300]),
    "dates": (FEW.astype("datetime64[s]"), Y[:300]),
    "durations": (FEW.astype("timedelta64[s]"), Y[:300]),
    "complex targets": (FEW, Y[:300] + 1j),
    "masked targets": (FEW, np.ma.masked_array(Y[:300], Y[:300] > 1)),
    "targets of text": (FEW, Y[:300].astype(str)),
    "missing targets": (FEW, HOLE),
    "no rows": (FEW[:0], Y[:0]),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD_ARRAYS)
def test_odd_arrays_are_refused_as_in_memory(client, name):
    odd = ODD_ARRAYS[name]
    local = said(lambda: model().fit(*odd))
    lazy = [da.from_array(one, chunks=-1, asarray=False) for one in odd]
    place = "" if name == "no rows" else "partition 0: "
    assert said(lambda: cluster_model().fit(*lazy)) == place + local


ODD_COLUMNS = {
    "NA": pd.array([pd.NA, *X[1:300, 0]], dtype="Float64"),
    "NA of objects": np.array([pd.NA, *X[1:300, 0]], dtype=object),
    "durations": pd.to_timedelta(X[:300, 0], unit="s"),
    "dates": pd.to_datetime(X[:300, 0], unit="s"),
    "text": X[:300, 0].astype(str),
}


@pytest.mark.parametrize("name", ODD_COLUMNS)
@pytest.mark.parametrize("place", ["a", "y"])
def test_odd_columns_are_refused_as_in_memory(client, name, place):
    frame = pd.DataFrame(FEW, columns=list(COLUMNS)).assign(y=Y[:300])
    frame[place] = ODD_COLUMNS[name]
    lazy = frames_of([frame])
    known = lazy.compute()  # text has another type then
    local = said(lambda: model(columns="numeric").fit(known[list(COLUMNS)], known["y"]))
    for given in ({"X": lazy, "target": "y"}, {"X": lazy[list(COLUMNS)], "y": lazy["y"]}):
        assert said(lambda given=given: cluster_model().fit(**given)) == f"partition 0: {local}"


def test_missing_targets_are_refused_whatever_the_number_of_rows(client):
    holes = Y.copy()
    holes[1500] = np.nan
    lazy = da.from_array(X, chunks=(400, 3)), da.from_array(holes, chunks=400)
    with pytest.raises(ValueError, match="partition 3: Input y contains NaN, first in row 300"):
        cluster_model().fit(*lazy)


def test_partitions_without_rows_are_no_harm(client):
    frame = pd.DataFrame(X[:500], columns=list(COLUMNS)).assign(y=Y[:500])
    found = cluster_model().fit(frames_of([frame, frame[:0]]), target="y").to_local()
    expected = model(columns="numeric").fit(frame[list(COLUMNS)], Y[:500])
    assert_array_equal(found.predict(FRAME), expected.predict(FRAME))


def test_alpha_of_a_collection_is_one_number(client, fitted):
    frame = dd.from_pandas(FRAME, npartitions=2)
    with pytest.raises(ValueError, match="alpha of a Dask collection must be one number"):
        fitted.predict(frame, alpha=np.ones(300))
    with pytest.raises(ValueError, match="alpha must be a scalar"):
        fitted.predict_interval(frame, alpha="variance")
    lazy = da.from_array(X, chunks=(1000, 3)), da.from_array(Y, chunks=1000)
    with pytest.raises(ValueError, match="one number, or the name of a column"):
        cluster_model().fit(*lazy, alpha=np.ones(len(Y)))
    with pytest.raises(ValueError, match="alpha must be a scalar"):
        cluster_model().fit(*lazy, alpha="variance")


def test_models_that_killed_runs_have_left_in_a_work_dir_are_removed(client, tmp_path):
    code = "from manygp.runtime.files import *; print(own_name())"
    name = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    path = write(tmp_path / "few.parquet", X[:300], Y[:300])
    work = tmp_path / "work"
    asked = cluster_model().fit(path, target="y", work_dir=work)
    (work / f"asked-{name.stdout.strip()}.manygp").touch()
    (work / "asked-1234abcd.manygp").touch()  # not ours
    asked.predict(dd.from_pandas(FRAME, npartitions=2)).compute()
    (own,) = {one.name for one in work.glob("asked-*")} - {"asked-1234abcd.manygp"}
    assert not is_dead(own.removeprefix("asked-").removesuffix(".manygp"))


def test_an_address_without_a_scheduler_is_refused_in_time(monkeypatch):
    with_numbers(monkeypatch, on_dask, "PATIENCE", connect=1.0)
    missing = pytest.raises(ValueError, match="no Dask scheduler at")
    with missing, connected("tcp://127.0.0.1:1"):
        pass
