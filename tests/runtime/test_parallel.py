"""Threads and processes: how many there are, and that nobody can tell from the answers."""

import gc
import os
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from uuid import uuid4

import numpy as np
import pytest
from joblib import Parallel, delayed, parallel_config
from numpy.testing import assert_array_equal
from sklearn.model_selection import GridSearchCV
from threadpoolctl import threadpool_info

from data import noisy_rows, two_waves
from manygp.gp import marginal_likelihood
from manygp.gp.marginal_likelihood import TrainingData
from manygp.rules import WEIGHTINGS
from manygp.runtime.parallel import WorkerKilledError, n_workers, process_map, thread_map
from manygp.runtime.progress import Progress
from manygp.training import experts as fitting
from manygp.training.experts import ExecutionContext, Task, fit_kernels
from models import FIXED, FREE, answers_at, choosing
from patching import with_numbers
from waiting import wait_until

X, y, QUERIES = noisy_rows(two_waves, 150, 40, reach=3.0)
RULES = {"overlap": 0, "temperature": 3.0, "calibration": "none", "routing": 3}
model = partial(choosing, points_per_expert=10, **RULES)
answers = answers_at(QUERIES)
DATA = TrainingData(X, ((y - y.mean()) / y.std())[:, None], np.linspace(0, 0.1, 150), True)
PARTS = np.array_split(np.random.default_rng(1).permutation(150), 20)
SIGKILL = 9


def tasks(parts, starts):
    return [Task(*task) for task in zip(parts, starts, strict=True)]


def fits(n_jobs, data=DATA, parts=PARTS, shrinkage=30.0):
    starts = [fitting.starts_of(FREE, 1, np.random.default_rng(m)) for m in range(len(parts))]
    found = fit_kernels(data, tasks(parts, starts), FREE, shrinkage, ExecutionContext(n_jobs))
    return [(kernel.theta.tolist(), n) for kernel, n in found]


# How many workers


@pytest.mark.parametrize(("n_jobs", "expected"), [(None, 1), (1, 1), (2, 2), (5, 5)])
def test_workers_are_those_that_were_asked_for(n_jobs, expected):
    assert n_workers(n_jobs) == expected


def test_all_cores_are_at_least_one_worker():
    assert n_workers(-1) >= 1


def test_a_joblib_context_sets_the_default():
    with parallel_config(n_jobs=3):
        assert n_workers(None) == 3
        assert n_workers(2) == 2


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_there_is_one_worker_inside_another(backend):
    found = Parallel(2, backend=backend)(delayed(n_workers)(n) for n in (None, 1, 2, 5))
    assert found == [1, 1, 1, 1]


def test_a_loop_without_workers_leaves_the_workers_to_the_model():
    assert Parallel(1)(delayed(n_workers)(n) for n in (None, 2)) == [1, 2]


def recording(folder):
    """A weighting that writes down its thread and how many workers there would be."""
    uniform = WEIGHTINGS["uniform"]

    def weighting(experts):
        place = f"{os.getpid()}-{uuid4()}"
        (folder / place).write_text(f"{n_workers(2)} {threading.current_thread().name}")
        return uniform(experts)

    return weighting


def test_a_model_in_the_worker_of_a_grid_search_keeps_to_one_thread(tmp_path):
    grid = {"points_per_expert": [30, 50]}
    estimator = model(weighting=recording(tmp_path), kernel=FIXED, n_jobs=2)
    search = GridSearchCV(estimator, grid, cv=2, n_jobs=2, refit=False, error_score="raise")
    search.fit(X, y)
    records = {path.read_text() for path in tmp_path.iterdir()}
    assert records == {"1 MainThread"}
    pids = {path.name.partition("-")[0] for path in tmp_path.iterdir()}
    assert str(os.getpid()) not in pids


@pytest.mark.parametrize("n_jobs", [None, 1])
def test_a_model_in_a_grid_search_without_workers_has_its_own(tmp_path, n_jobs):
    grid = {"points_per_expert": [30, 50]}
    estimator = model(weighting=recording(tmp_path), kernel=FIXED, n_jobs=2)
    search = GridSearchCV(estimator, grid, cv=2, n_jobs=n_jobs, refit=False, error_score="raise")
    search.fit(X, y)
    records = [path.read_text() for path in tmp_path.iterdir()]
    assert records
    assert all(record.startswith("2 ThreadPoolExecutor") for record in records)


def test_the_scores_of_a_grid_search_do_not_depend_on_who_has_the_workers():
    grid = {"points_per_expert": [30, 50]}
    scores = [
        GridSearchCV(model(kernel=FIXED, n_jobs=inner), grid, cv=2, n_jobs=outer, refit=False)
        .fit(X, y)
        .cv_results_["mean_test_score"]
        for inner, outer in ((1, None), (2, None), (2, 2))
    ]
    assert_array_equal(scores[1], scores[0])
    assert_array_equal(scores[2], scores[0])


@pytest.mark.parametrize("n_jobs", [None, 1, 2, 4])
def test_threads_keep_the_order_and_pass_exceptions_through(n_jobs):
    with thread_map(n_jobs) as parallel_map:
        assert list(parallel_map(lambda i: i**2, range(50))) == [i**2 for i in range(50)]
    with pytest.raises(ZeroDivisionError), thread_map(n_jobs) as parallel_map:
        list(parallel_map(lambda i: 1 // i, [1, 0]))


# Processes


def test_processes_keep_the_order(tmp_path):
    def late_first(i):
        if i == 0:
            wait_until((tmp_path / "2").exists)
        (tmp_path / str(i)).touch()
        return i, os.getpid()

    found = list(process_map(late_first, range(6), 2))
    assert [i for i, _ in found] == list(range(6))
    assert os.getpid() not in {pid for _, pid in found}


def test_processes_have_nothing_to_do_for_no_items():
    assert list(process_map(abs, [], 2)) == []


def test_processes_run_blas_on_one_thread():
    def blas_threads(_):
        infos = threadpool_info()
        return [info["num_threads"] for info in infos if info["user_api"] == "blas"]

    before = threadpool_info()
    for threads in process_map(blas_threads, range(3), 2):
        assert threads
        assert set(threads) == {1}
    assert threadpool_info() == before


def test_all_kernels_are_learned_with_blas_on_one_thread(monkeypatch):
    """Two threads wait for each other: beside other work one call took sixty times as long."""
    limits = set()

    def factorise(A, original=marginal_likelihood.cholesky):
        limits.update(one["num_threads"] for one in threadpool_info() if "blas" in one["user_api"])
        return original(A)

    monkeypatch.setattr(marginal_likelihood, "cholesky", factorise)
    choosing(points_per_expert=40).fit(X, y)
    assert limits == {1}


# Fits in processes


@pytest.mark.parametrize("shrinkage", [0.0, 30.0, lambda kernel: [1.0, np.inf, 5.0]])
def test_kernels_are_the_same_in_processes_in_threads_and_in_neither(
    in_processes, monkeypatch, shrinkage
):
    parted = fits(2, shrinkage=shrinkage)
    assert in_processes == [3]  # batches of eight, eight and two
    assert len(parted) == 20
    assert len({tuple(theta) for theta, _ in parted}) == 20
    assert fits(1, shrinkage=shrinkage) == parted
    assert in_processes == [3]
    with_numbers(monkeypatch, fitting, "FITTING", process_seconds=np.inf)
    assert fits(2, shrinkage=shrinkage) == parted
    assert in_processes == [3]


def test_fewer_experts_than_begin_in_threads_need_no_processes(in_processes):
    for count in (1, 2):
        assert fits(2, parts=PARTS[:count]) == fits(1, parts=PARTS[:count])
    assert sum(in_processes) == 0


def test_parts_of_different_sizes_and_common_rows_are_the_same_in_processes(in_processes):
    parts = [np.arange(3), np.arange(40), np.arange(1), np.arange(20, 90), np.array([149, 0, 7])]
    assert fits(2, parts=parts) == fits(1, parts=parts)
    assert in_processes == [2]


def test_two_targets_are_the_same_in_processes(in_processes):
    Y = np.asfortranarray(np.column_stack([DATA.residuals[:, 0], X[:, 1]]))
    data = DATA._replace(residuals=Y, constant_mean=False)
    assert fits(2, data) == fits(1, data)
    assert in_processes == [3]


def test_rows_that_are_sent_as_files_are_the_same_in_processes(in_processes):
    wide = np.random.default_rng(0).normal(size=(150, 3000)) / 50  # more than joblib pickles
    data = DATA._replace(X=wide)
    assert fits(2, data, PARTS[:12]) == fits(1, data, PARTS[:12])
    assert in_processes == [2]


@pytest.mark.parametrize("hyperparameters", ["hierarchical", "independent"])
def test_a_model_fitted_in_processes_is_the_same(in_processes, hyperparameters):
    settings = {"hyperparameters": hyperparameters}
    one, two = (model(n_jobs=n, **settings).fit(X, y) for n in (1, 2))
    assert sum(in_processes) > 0
    assert_array_equal(answers(two), answers(one))
    for a, b in zip(one.experts_, two.experts_, strict=True):
        assert a.kernel == b.kernel
        assert a.n_evaluations == b.n_evaluations


def test_two_models_fitted_in_processes_at_once_are_the_same(in_processes):
    expected = answers(model(hyperparameters="hierarchical").fit(X, y))

    def fit(n_jobs):
        return answers(model(hyperparameters="hierarchical", n_jobs=n_jobs).fit(X, y))

    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(fit, [2, 2]):
            assert_array_equal(found, expected)


def test_progress_sees_every_fit_in_processes(in_processes):
    seen = []

    class Told(Progress):
        def advance(self, share, phase=None):
            seen.append((phase, round(20 * share)))

    starts = [FREE.theta[None]] * 20
    fit_kernels(DATA, tasks(PARTS, starts), FREE, 30.0, ExecutionContext(2, Told()))
    assert seen == [("experts", done) for done in range(1, 21)]


# Elsewhere


@pytest.mark.parametrize("processes", [True, False])
def test_a_fit_in_a_worker_of_dask_is_the_same(in_processes, processes):
    distributed = pytest.importorskip("distributed")
    expected = answers(model(hyperparameters="hierarchical").fit(X, y))

    def fit():
        numbers = {"process_seconds": -1.0, "first_experts": 1}
        fitting.FITTING = replace(fitting.FITTING, **numbers)  # in another process too
        return answers(model(hyperparameters="hierarchical", n_jobs=2).fit(X, y))

    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.Client(processes=processes, **options) as client:
        assert_array_equal(client.submit(fit).result(timeout=60), expected)


# Workers that are killed, as the system does where memory runs out, or that nobody waits for.
# New ones take time to start: these tests are few, and last.


def test_a_worker_killed_once_is_asked_again(tmp_path):
    def killed_once(i):
        marker = tmp_path / "killed"
        if i == 2 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), SIGKILL)
        return 10 * i

    assert list(process_map(killed_once, range(5), 2)) == [0, 10, 20, 30, 40]
    assert (tmp_path / "killed").exists()


def test_exceptions_pass_through_from_processes_and_are_not_tried_again(tmp_path):
    def fail(i):
        if i == 1:
            (tmp_path / str(uuid4())).touch()
            raise KeyError("this one")
        return i

    results = process_map(fail, range(3), 2)
    with pytest.raises(KeyError, match="this one"):
        list(results)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_fit_whose_worker_is_killed_names_rows_and_leaves_the_model_as_it_was(
    in_processes, monkeypatch, tmp_path
):
    fitted = model(hyperparameters="hierarchical", n_jobs=2).fit(X, y)
    assert in_processes == [2]  # batches of seven and six, after two in threads
    expected, before, limits = answers(fitted), dict(vars(fitted)), threadpool_info()
    parts = [expert.indices for expert in fitted.experts_]
    fit_batch, arrived = fitting._fit_batch, tmp_path / "arrived"

    def arriving(*arguments):
        for result in process_map(*arguments):
            arrived.touch()
            yield result

    def killed_at_the_last(batch):
        if len(batch[2]) == 7:
            return fit_batch(batch)
        wait_until(arrived.exists)  # the first batch, or it would be lost too
        return os.kill(os.getpid(), SIGKILL)

    monkeypatch.setattr(fitting, "process_map", arriving)
    monkeypatch.setattr(fitting, "_fit_batch", killed_at_the_last)
    with pytest.raises(RuntimeError, match="killed 2 times while it fitted the expert") as caught:
        fitted.fit(X, y)
    message = str(caught.value)
    assert isinstance(caught.value, WorkerKilledError)
    assert caught.value.first == 1
    assert all(f"{part[:3]}..." in message for part in parts[9:])
    assert not any(f"{part[:3]}..." in message for part in parts[:9])
    assert "n_jobs" in message
    assert "points_per_expert" in message
    assert vars(fitted) == before
    assert_array_equal(answers(fitted), expected)
    assert threadpool_info() == limits


def test_an_interrupted_fit_says_no_more_than_that(in_processes, monkeypatch, tmp_path):
    fit_batch, over = fitting._fit_batch, tmp_path / "over"

    def unfinished_from_the_second(batch):
        if len(batch[2]) == 2:
            wait_until(over.exists)  # or until it is ended
        return fit_batch(batch)

    class Interrupted(Progress):
        def advance(self, share, phase=None):
            if round(12 * share) == 3:  # the first that a process has fitted
                raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "_fit_batch", unfinished_from_the_second)
    starts = [FREE.theta[None]] * 12
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(KeyboardInterrupt):
            fit_kernels(
                DATA, tasks(PARTS[:12], starts), FREE, 30.0, ExecutionContext(2, Interrupted())
            )
        gc.collect()
    over.touch()
    assert [str(one.message) for one in caught] == []


NO_THREADS = """
import sys, threading
from manygp.runtime.parallel import process_map, thread_map

start, left = threading.Thread.start, int(sys.argv[1])

def refuse(thread):
    global left
    left -= 1
    if left < 0:
        raise RuntimeError("can't start new thread")
    start(thread)

threading.Thread.start = refuse
with thread_map(3) as parallel_map:
    print(*parallel_map(abs, [-1, -2, -3]), *parallel_map(abs, [-4]))
left = 0
print(*process_map(abs, [-1, -2, -3], 2))
"""


@pytest.mark.parametrize("n_threads", [0, 1, 2])
def test_without_threads_the_work_is_done_all_the_same(n_threads):
    command = [sys.executable, "-c", NO_THREADS, str(n_threads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == ("1 2 3 4\n1 2 3\n", "")


AT_THE_END = """
import sys, threading, time
from manygp.runtime.parallel import process_map, thread_map

def work():
    if sys.argv[1] == "after":
        threading.main_thread().join()
    with thread_map(2) as parallel_map:
        for _ in range(2):
            print(*parallel_map(time.sleep, [0.2] * 4))
    for _ in range(2):
        print(*process_map(time.sleep, [0.2] * 8, 2))

threading.Thread(target=work).start()
time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize("when", [("after", "0"), ("threads", "0.2"), ("processes", "1.5")])
def test_a_thread_finishes_its_work_while_the_interpreter_ends(when):
    command = [sys.executable, "-c", AT_THE_END, *when]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    lines = [" ".join(["None"] * n) + "\n" for n in (4, 4, 8, 8)]
    assert (done.stdout, done.stderr) == ("".join(lines), "")
