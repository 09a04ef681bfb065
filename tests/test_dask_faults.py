"""A cluster of real processes that are killed, stopped, late, or without room on the disk."""

import os
import resource
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from time import perf_counter
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("distributed")

import dask.array as da
from dask.distributed import Client

from large import bytes_of, lower_limits, make_rows, model, write
from manygp import dask as on_dask
from manygp.dask import DaskManyGPRegressor
from manygp.outofcore import training
from patching import with_numbers
from waiting import wait_until

X, Y = make_rows()
# What Dask says about lost processes is not ours.
pytestmark = pytest.mark.filterwarnings("default")

# Kills of one fit, at most.
MOST_KILLS = 4


class Cluster:
    """A scheduler and workers, each a process of its own."""

    def __init__(self, folder):
        self.folder, self.file = folder, folder / "scheduler.json"
        self.logs = open(folder / "log", "ab")  # noqa: SIM115
        self.scheduler = self._start(
            "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard",
            "--scheduler-file", str(self.file), "--host", "127.0.0.1",
        )  # fmt: skip
        self.workers = []
        wait_until(self.file.exists)

    def _start(self, module, *arguments, before=None):
        command = [sys.executable, "-m", module, *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            command, stdout=self.logs, stderr=self.logs, cwd=self.folder, env=environment,
            preexec_fn=before,
        )  # fmt: skip

    def add_worker(self, before=None):
        arguments = ("--scheduler-file", str(self.file), "--nthreads", "1", "--no-nanny",
                     "--no-dashboard", "--local-directory", str(self.folder))  # fmt: skip
        worker = self._start("distributed.cli.dask_worker", *arguments, before=before)
        self.workers.append(worker)
        return worker

    def kill_worker(self, rng):
        """kill -9 of one that is there."""
        alive = [one for one in self.workers if one.poll() is None]
        if alive:
            victim = alive[rng.integers(len(alive))]
            victim.kill()
            victim.wait(10)

    def end(self):
        for process in (*self.workers, self.scheduler):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(10)
        self.logs.close()


@pytest.fixture
def cluster(tmp_path):
    (tmp_path / "cluster").mkdir()
    found = Cluster(tmp_path / "cluster")
    yield found
    found.end()


@pytest.fixture(scope="module", autouse=True)
def _limits():
    with pytest.MonkeyPatch.context() as patch:
        lower_limits(patch)
        yield


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Data, and the bytes of a model that nothing has happened to."""
    folder = tmp_path_factory.mktemp("reference")
    path = write(folder / "data.parquet", X, Y, 250)
    model().fit(path, target="y", work_dir=folder / "work")
    return path, bytes_of(folder / "work")


def fit(cluster, path, work):
    with Client(scheduler_file=str(cluster.file), timeout=30) as client:
        parameters = model().get_params()
        return DaskManyGPRegressor(client=client, **parameters).fit(
            path, target="y", work_dir=work
        )


@contextmanager
def meanwhile(function):
    """Call a function again and again in a thread, until the block ends: how often it was."""
    stop, calls, errors = threading.Event(), [], []

    def loop():
        try:
            while not stop.is_set():
                if function(stop):
                    calls.append(1)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield calls
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()
        assert not errors


def killing(cluster, rng, longest):
    """Kill some workers at random moments, at most `longest` seconds apart; others join."""
    left = [None] * MOST_KILLS

    def kill(stop):
        if stop.wait(rng.uniform(0, longest)) or not left:
            return False
        left.pop()
        cluster.kill_worker(rng)
        cluster.add_worker()
        return True

    return kill


@pytest.mark.parametrize("enough", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_kills_at_random_moments_change_nothing(cluster, reference, tmp_path, enough):
    n_kills, rng = 0, np.random.default_rng(enough)
    for _ in range(2):
        cluster.add_worker()
    begin = perf_counter()
    fit(cluster, reference[0], tmp_path / "work")
    seconds = perf_counter() - begin  # a slow machine has more time between kills
    for attempt in range(2 * enough):
        work = tmp_path / f"work-{attempt}"
        with meanwhile(killing(cluster, rng, seconds / 2)) as kills:
            fit(cluster, reference[0], work)
        n_kills += len(kills)
        assert bytes_of(work) == reference[1]
        if n_kills >= enough:
            return
    raise AssertionError(f"only {n_kills} kills")


def test_a_worker_that_joins_late_does_the_work(cluster, reference, tmp_path):
    later = threading.Timer(3.0, cluster.add_worker)
    later.start()
    fit(cluster, reference[0], tmp_path / "work")
    later.join()
    assert bytes_of(tmp_path / "work") == reference[1]


def test_a_worker_that_pauses_is_waited_for(cluster, reference, tmp_path):
    worker = cluster.add_worker()

    def pause(stop):
        worker.send_signal(signal.SIGSTOP)
        stop.wait(1.0)
        worker.send_signal(signal.SIGCONT)
        stop.wait(1.0)
        return True

    with meanwhile(pause) as pauses:
        fit(cluster, reference[0], tmp_path / "work")
    assert pauses
    assert bytes_of(tmp_path / "work") == reference[1]


def test_no_worker_at_all_ends_with_one_line(cluster, reference, tmp_path, monkeypatch):
    with_numbers(monkeypatch, on_dask, "PATIENCE", without_workers=3.0)
    with pytest.raises(RuntimeError, match="there has been no worker for 3 s while it read"):
        fit(cluster, reference[0], tmp_path / "work")


def test_no_progress_ends_with_one_line(cluster, reference, tmp_path, monkeypatch):
    with_numbers(monkeypatch, on_dask, "PATIENCE", without_progress=3.0)
    worker = cluster.add_worker()
    with Client(scheduler_file=str(cluster.file), timeout=30) as client:
        client.wait_for_workers(1, timeout=60)
        worker.send_signal(signal.SIGSTOP)
        estimator = DaskManyGPRegressor(client=client, **model().get_params())
        with pytest.raises(RuntimeError, match="no task has ended in 3 s"):
            estimator.fit(reference[0], target="y", work_dir=tmp_path / "work")


def test_after_the_loss_of_the_scheduler_the_same_call_goes_on(cluster, reference, tmp_path):
    cluster.add_worker()
    work = tmp_path / "work"

    def kill():
        wait_until(lambda: any(work.glob("tasks/sort-*.done/*")), 600)
        cluster.scheduler.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(RuntimeError, match="the scheduler was lost while it"):
        fit(cluster, reference[0], work)
    killer.join(600)
    other = Cluster(cluster.folder.parent)
    try:
        other.add_worker()
        fit(other, reference[0], work)
    finally:
        other.end()
    assert bytes_of(work) == reference[1]


def test_a_scheduler_lost_while_the_driver_works_ends_with_one_line(
    cluster, reference, tmp_path, monkeypatch
):
    cluster.add_worker()
    choose = training.choose_trend_and_kernel

    def killing(*given):
        cluster.scheduler.kill()
        cluster.scheduler.wait(10)
        return choose(*given)

    with monkeypatch.context() as patch:
        patch.setattr(training, "choose_trend_and_kernel", killing)
        with pytest.raises(RuntimeError, match="the scheduler was lost while it sorted") as found:
            fit(cluster, reference[0], tmp_path / "work")
    assert "\n" not in str(found.value)
    other = Cluster(cluster.folder.parent)
    try:
        other.add_worker()
        fit(other, reference[0], tmp_path / "work")
    finally:
        other.end()
    assert bytes_of(tmp_path / "work") == reference[1]


def test_a_client_that_has_given_up_its_scheduler_ends_with_one_line(cluster):
    client = Client(scheduler_file=str(cluster.file), timeout=30)
    client.close()
    with pytest.raises(RuntimeError, match="the scheduler was lost while it stored"):
        DaskManyGPRegressor(client=client).fit(da.ones((10, 2)), da.ones(10))


def test_a_full_disk_is_named_and_the_same_call_goes_on(cluster, reference, tmp_path):
    def little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    small = cluster.add_worker(before=little_room)
    work = tmp_path / "work"
    with pytest.raises(OSError, match="make room in it, and the same call goes on") as found:
        fit(cluster, reference[0], work)
    assert found.value.filename == str(work)
    small.kill()
    cluster.add_worker()
    fit(cluster, reference[0], work)
    assert bytes_of(work) == reference[1]


@pytest.mark.slow
def test_spilling_at_a_small_memory_limit_changes_nothing(reference, tmp_path):
    from dask.distributed import LocalCluster

    settings = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "350MB"}
    with LocalCluster(**settings) as small, Client(small) as client:
        estimator = DaskManyGPRegressor(client=client, **model().get_params())
        estimator.fit(reference[0], target="y", work_dir=tmp_path / "work")
    assert bytes_of(tmp_path / "work") == reference[1]


class Gone:
    """A future whose result cannot be had, of a client that has not noticed why."""

    def __init__(self, status):
        self.status = status

    def result(self, timeout):
        raise OSError("Stream is closed")


def test_a_result_on_its_way_when_the_scheduler_is_lost_ends_with_one_line():
    watch = on_dask._Watch(SimpleNamespace(status="running"), [], "it sorted rows")
    with pytest.raises(RuntimeError, match="the scheduler was lost while it sorted rows"):
        watch.result(Gone("finished"))
    with pytest.raises(OSError, match="Stream is closed"):
        watch.result(Gone("error"))  # the task's own
