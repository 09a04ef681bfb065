"""`fit` of files: the model of rows in memory while they are few, and of all rows beyond."""

import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import manygp
from large import COLUMNS, bytes_of, lower_limits, make_rows, model, write
from manygp import ManyGPRegressor, answers
from manygp.gp.expert import Spans
from manygp.metrics import nll, rmse
from manygp.outofcore import stages, training
from manygp.outofcore.files import TableSource
from manygp.storage import container
from manygp.tables.training_rows import ColumnRoles

X, Y = make_rows()
QUERIES, TRUTH = make_rows(500, 1)
FRAME = pd.DataFrame(QUERIES, columns=list(COLUMNS))


@pytest.fixture(autouse=True)
def _limits(monkeypatch):
    lower_limits(monkeypatch)


@pytest.fixture
def data(tmp_path):
    return write(tmp_path / "data.parquet", X, Y)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """A model of all rows, and its bytes."""
    folder = tmp_path_factory.mktemp("reference")
    with pytest.MonkeyPatch.context() as patch:
        lower_limits(patch)
        path = write(folder / "data.parquet", X, Y)
        fitted = model().fit(path, target="y", work_dir=folder / "work")
    return fitted, bytes_of(folder / "work")


def test_few_rows_of_a_file_give_the_model_of_rows_in_memory(tmp_path):
    path = write(tmp_path / "few.parquet", X[:900], Y[:900])
    one = model().fit(str(path), target="y")
    other = model().fit(pd.DataFrame(X[:900], columns=list(COLUMNS)), Y[:900])
    for a, b in zip(one.predict(FRAME, True), other.predict(FRAME, True), strict=True):
        assert_array_equal(a, b)
    assert list(one.feature_names_in_) == list(COLUMNS)


def test_a_model_of_many_rows_is_as_good_as_one_of_rows_in_memory(reference):
    mean, std = reference[0].predict(FRAME, return_std=True)
    other = model().fit(X, Y)
    here, there = other.predict(QUERIES, return_std=True)
    assert rmse(TRUTH, mean) < 1.1 * rmse(TRUTH, here)
    assert nll(TRUTH, mean, std) < nll(TRUTH, here, there) + 0.1


def test_a_model_of_many_rows_learns_where_they_are_noisy(tmp_path):
    quiet = X[:, 0] < 0.5
    noise = np.where(quiet, 0.02, 0.4) * np.random.default_rng(2).normal(size=len(X))
    path = write(tmp_path / "data.parquet", X, np.sin(6 * X[:, 1]) + noise)
    fitted = model(hyperparameters="shared").fit(path, target="y", work_dir=tmp_path / "work")
    std = fitted.noise_std(FRAME)
    quiet = QUERIES[:, 0] < 0.5
    assert 5 * np.median(std[quiet]) < np.median(std[~quiet])


def test_every_row_has_one_expert_and_keeps_its_place(reference):
    found, targets = answers.training_rows(reference[0].model_)
    assert_allclose(found, X, atol=1e-12)
    assert_allclose(targets[:, 0], Y, atol=1e-12)
    sizes = [len(expert.indices) for expert in reference[0].experts_]
    assert sum(sizes) == len(X)
    assert min(sizes) >= 50
    assert max(sizes) <= 60
    # They lie one after the other, so that the model holds no list of them.
    assert type(reference[0].model_.committee.layout.parts) is Spans


def test_left_out_rows_are_those_of_the_data(reference):
    mean, std = reference[0].loo_predict()
    assert rmse(Y, mean) < 0.15
    rows = [5, 2999, 17]
    some = reference[0].loo_predict(rows)
    assert_allclose(some[0], mean[rows], rtol=1e-9)
    assert_allclose(some[1], std[rows], rtol=1e-9)
    assert reference[0].loo_score()["nll"] < 0


@pytest.mark.parametrize("row_group_size", [250, 3000])
def test_the_bytes_do_not_depend_on_how_rows_are_cut(tmp_path, reference, row_group_size):
    path = write(tmp_path / "cut.parquet", X, Y, row_group_size)
    model().fit(path, target="y", work_dir=tmp_path / "work")
    assert bytes_of(tmp_path / "work") == reference[1]


def test_the_bytes_do_not_depend_on_files_and_segments(tmp_path, reference, monkeypatch):
    monkeypatch.setattr(stages, "SEGMENT_ROWS", 100)
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder / "1.parquet", X[:1234], Y[:1234])
    write(folder / "2.pq", X[1234:], Y[1234:])
    (folder / "_SUCCESS").touch()
    model().fit(folder, target="y", work_dir=tmp_path / "work")
    assert bytes_of(tmp_path / "work") == reference[1]


def test_two_workers_give_the_same_model(data, reference):
    other = model(n_jobs=2).fit(data, target="y")
    pairs = zip(other.predict(FRAME, True), reference[0].predict(FRAME, True), strict=True)
    for a, b in pairs:
        assert_array_equal(a, b)


def test_a_second_call_finds_the_model_and_another_one_is_refused(data, tmp_path, monkeypatch):
    work = tmp_path / "work"
    model().fit(data, target="y", work_dir=work)
    monkeypatch.setattr(training, "_trained", None)
    model(n_jobs=2).fit(data, target="y", work_dir=work)
    with pytest.raises(ValueError, match="belongs to another fit: its points_per_expert"):
        model(points_per_expert=60).fit(data, target="y", work_dir=work)
    changed = Y.copy()
    changed[1700] += 1e-9
    write(data, X, changed)
    with pytest.raises(ValueError, match="belongs to another fit: its data"):
        model().fit(data, target="y", work_dir=work)


@pytest.mark.parametrize("stage", ["sort", "arrange", "fit"])
@pytest.mark.parametrize("n_done", [0, 2])
def test_an_interrupted_fit_goes_on(tmp_path, data, reference, monkeypatch, stage, n_done):
    work, whole = tmp_path / "work", getattr(stages, stage)
    calls = []

    def interrupted(task):
        calls.append(task)
        if len(calls) > n_done:
            raise KeyboardInterrupt
        return whole(task)

    interrupted.__name__ = stage
    with monkeypatch.context() as patch:
        patch.setattr(stages, stage, interrupted)
        stopped = model()
        with pytest.raises(KeyboardInterrupt):
            stopped.fit(data, target="y", work_dir=work)
    assert not hasattr(stopped, "experts_")
    model().fit(data, target="y", work_dir=work)
    assert bytes_of(work) == reference[1]


def test_work_that_is_done_is_not_done_again(tmp_path, data, monkeypatch):
    work = tmp_path / "work"

    def stop(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training, "write_model", stop)
        with pytest.raises(KeyboardInterrupt):
            model().fit(data, target="y", work_dir=work)
    monkeypatch.setattr(stages, "fit_kernels", stop)
    monkeypatch.setattr(stages, "check_parts", stop)
    monkeypatch.setattr(stages.Sorting, "scaled", stop)
    model().fit(data, target="y", work_dir=work)


def test_a_finished_fit_leaves_only_the_model(tmp_path, data):
    model().fit(data, target="y", work_dir=tmp_path / "work")
    assert sorted(os.listdir(tmp_path / "work")) == ["checkpoint", training.MODEL]


def test_a_temporary_folder_is_gone_and_the_model_lives_on(data, tmp_path, monkeypatch):
    monkeypatch.setattr(container, "LEFT_BYTES", 1)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    fitted = model().fit(data, target="y")
    assert os.listdir(tmp_path / "temporary") == []
    before = fitted.predict(FRAME)
    fitted.save(tmp_path / "saved.manygp")
    for other in (manygp.load(tmp_path / "saved.manygp"), pickle.loads(pickle.dumps(fitted))):
        assert_array_equal(other.predict(FRAME), before)


@pytest.mark.parametrize("trend", ["linear", "additive", "boosted"])
def test_a_trend_lies_under_all_rows(data, tmp_path, trend):
    fitted = model(trend=trend, hyperparameters="shared").fit(data, target="y")
    mean, std = fitted.predict(FRAME, return_std=True)
    assert rmse(TRUTH, mean) < 0.13
    assert nll(TRUTH, mean, std) < -0.6
    assert rmse(Y, fitted.loo_predict()[0]) < 0.13
    assert fitted.model_.committee.trend.model.name in (trend, "pairs")
    fitted.save(tmp_path / "model")
    assert_array_equal(manygp.load(tmp_path / "model").predict(FRAME), mean)


def test_experts_know_their_neighbours_if_they_overlap(data):
    fitted = model(overlap=1.0).fit(data, target="y")
    layout, rows = fitted.model_.committee.layout, fitted.model_.committee.training_data().X
    for m in (0, 17):
        assert_array_equal(fitted.experts_[m].neighbours, layout.neighbours(rows, m, 52))
    assert rmse(TRUTH, fitted.predict(FRAME)) < 0.12


def test_what_is_auto_is_chosen(data):
    fitted = ManyGPRegressor(points_per_expert=50, random_state=0).fit(data, target="y")
    assert {"trend", "shrinkage", "overlap"} <= {
        one.parameter for one in fitted.calibration_report_.alternatives
    }
    mean, std = fitted.predict(FRAME, return_std=True)
    assert nll(TRUTH, mean, std) < -0.7


@pytest.mark.parametrize("aggregation", ["grbcm", "nested"])
def test_aggregations_that_need_more_have_it(data, aggregation):
    fitted = model(aggregation=aggregation, hyperparameters="shared", routing=4, trend="none")
    fitted.fit(data, target="y")
    assert rmse(TRUTH, fitted.predict(FRAME)) < 0.15


def test_rows_without_a_target_are_left_out(tmp_path):
    holes = Y.copy()
    holes[::7] = np.nan
    path = write(tmp_path / "holes.parquet", X, holes)
    fitted = model().fit(path, target="y")
    found, _ = answers.training_rows(fitted.model_)
    assert_allclose(found, X[~np.isnan(holes)], atol=1e-12)


def test_known_noise_may_be_a_column(tmp_path):
    variance = np.full(len(X), 0.04)
    path = write(tmp_path / "noise.parquet", X, Y, variance=variance)
    one = model().fit(path, target="y", alpha="variance")
    other = model(alpha=0.04).fit(write(tmp_path / "plain.parquet", X, Y), target="y")
    assert_array_equal(one.predict(FRAME), other.predict(FRAME))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": np.where(np.arange(3000) == 1500, np.nan, X[:, 0])}, "'a' has no .* row 1501"),
        ({"a": np.array(["x"] * 3000)}, "column 'a' is of type .*string"),
        ({"y": 1e200 * Y}, "square of a target overflows"),
        ({"y": np.full(3000, np.nan)}, "no row has a target"),
    ],
)  # fmt: skip
def test_bad_columns_are_named(tmp_path, change, message):
    given = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": Y} | change
    path = tmp_path / "bad.parquet"
    pd.DataFrame(given).to_parquet(path, row_group_size=700)
    with pytest.raises(ValueError, match=message):
        model().fit(path, target="y")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"partition": "random"}, "set partition='balltree'"),
        ({"time_budget": 10.0}, "time_budget is for rows in memory"),
        ({"alpha": np.ones(3000)}, "one number, or the name of a column"),
        ({"weighting": lambda record: record.mean}, "could not be saved"),
    ],
)
def test_what_rows_on_a_disk_cannot_have_is_refused_before_any_work(
    data, monkeypatch, parameters, message
):
    monkeypatch.setattr(training, "_scan", None)
    with pytest.raises(ValueError, match=message):
        model(**parameters).fit(data, target="y")


def test_a_file_needs_a_target_and_arrays_need_none(data):
    with pytest.raises(ValueError, match="name its targets by target="):
        model().fit(data)
    with pytest.raises(ValueError, match="name its targets by target="):
        model().fit(data, Y, target="y")
    with pytest.raises(ValueError, match="target and work_dir are for a file"):
        model().fit(X, Y, target="y")
    with pytest.raises(ValueError, match="did you mean 'y'"):
        model().fit(data, target="Y")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        model().fit("nowhere.parquet", target="y")


def test_an_altered_task_is_not_unpickled(tmp_path):
    from manygp.outofcore.work import put

    token = put(tmp_path, "thing", {"a": 1})
    assert token.get() == {"a": 1}
    other = put(tmp_path, "thing", {"a": 2})
    with open(other.path, "ab") as file:
        file.write(b"x")
    with pytest.raises(ValueError, match="was altered"):
        other.get()


FULL_DISK = """
import resource, sys
sys.path.insert(0, sys.argv[3])
import pytest
from large import lower_limits, model
lower_limits(pytest.MonkeyPatch())
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    model().fit(sys.argv[1], target="y", work_dir=sys.argv[2])
except OSError as error:
    print(error)
"""


def test_a_full_disk_is_named_and_the_same_call_goes_on(data, tmp_path, reference):
    work, tests = tmp_path / "work", os.path.dirname(os.path.dirname(__file__))
    command = [sys.executable, "-c", FULL_DISK, str(data), str(work), tests]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    assert f"make room in it, and the same call goes on: '{work}'" in said
    model().fit(data, target="y", work_dir=work)
    assert bytes_of(work) == reference[1]


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
import pytest
from large import lower_limits, model
from manygp.outofcore import stages
lower_limits(pytest.MonkeyPatch())
whole, calls = getattr(stages, sys.argv[4]), []

def killed(task):
    calls.append(task)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(task)

killed.__name__ = sys.argv[4]
setattr(stages, sys.argv[4], killed)
model().fit(sys.argv[1], target="y", work_dir=sys.argv[2])
"""


@pytest.mark.parametrize("stage", ["scan", "arrange"])
def test_after_a_kill_the_same_call_goes_on(data, tmp_path, reference, stage):
    work, tests = tmp_path / "work", os.path.dirname(os.path.dirname(__file__))
    command = [sys.executable, "-c", KILLED, str(data), str(work), tests, stage]
    assert subprocess.run(command, timeout=300).returncode == -signal.SIGKILL
    model().fit(data, target="y", work_dir=work)
    assert bytes_of(work) == reference[1]


class Threads:
    """An engine of one's own."""

    def map(self, function, tasks, stage):
        with ThreadPoolExecutor(2) as pool:
            yield from pool.map(function, tasks)


def test_any_engine_runs_the_stages(data, tmp_path, reference):
    source = TableSource(data, ColumnRoles("y"), tmp_path / "work")
    assert source.is_large
    model().fit_source(source, Threads())
    assert bytes_of(tmp_path / "work") == reference[1]
