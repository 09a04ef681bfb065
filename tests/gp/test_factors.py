"""Factors of a model from a file: built when needed, once, and forgotten if they are too many."""

import gc
import pickle
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import manygp
from manygp.gp import expert as expert_module
from manygp.gp import expert as factors_module
from manygp.gp.expert import Factor, Factors
from manygp.kernels import Constant, Matern, White
from models import answers_at, choosing
from patching import with_numbers
from waiting import wait_until

RNG = np.random.default_rng(0)
X = RNG.random((120, 2))
Y = np.sin(6 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=120)
QUERIES = RNG.random((30, 2))
SETTINGS = {
    "kernel": Constant(1.0, "fixed") * Matern(0.3, "fixed") + White(0.1, "fixed"),
    "points_per_expert": 12,
    "overlap": 1,
    "routing": 3,
    "temperature": 3.0,
    "calibration": "none",
}
answers = answers_at(QUERIES)


class Owner:
    """What has a factor."""


def factor(n=4):
    return Factor(np.zeros(1), 0.0, np.eye(n), np.ones((n, 1)))


@pytest.fixture(scope="module")
def fitted():
    return choosing(**SETTINGS).fit(X, Y)


@pytest.fixture
def loaded(fitted, tmp_path):
    fitted.save(tmp_path / "model.gp")
    return manygp.load(tmp_path / "model.gp")


@pytest.fixture
def built(monkeypatch):
    """The first rows of the experts whose factors were computed, in order."""
    done, build = [], expert_module._factor

    def spy(known, kernel, indices, *, exact):
        done.append(int(indices[0]))
        return build(known, kernel, indices, exact=exact)

    monkeypatch.setattr(expert_module, "_factor", spy)
    return done


def store_of(model):
    (store,) = {id(one.source): one.source for one in model.experts_}.values()
    return store


# When they are built


def test_a_file_is_loaded_without_building_anything(fitted, tmp_path, built):
    fitted.save(tmp_path / "model.gp")
    loaded = manygp.load(tmp_path / "model.gp")
    loaded.save(tmp_path / "again.gp")
    assert built == []
    assert store_of(loaded).nbytes == 0


def test_one_row_builds_the_experts_that_are_asked_about_it(loaded, built):
    loaded.predict(QUERIES[:1])
    scaled = loaded._model.x_scaling.apply(QUERIES[:1])
    near, _ = loaded._model.committee.layout.nearest(scaled, 3)
    assert sorted(built) == sorted(int(loaded.experts_[m].indices[0]) for m in near[0])
    loaded.predict(QUERIES[:1], return_std=True)
    assert len(built) == 3


def test_a_model_that_was_fitted_here_builds_nothing_again(fitted, built):
    answers(fitted)
    answers(pickle.loads(pickle.dumps(fitted)))
    assert built == []


def test_the_digits_are_those_of_fit(fitted, loaded):
    assert_array_equal(answers(loaded), answers(fitted))
    for one, other in zip(fitted.experts_, loaded.experts_, strict=True):
        for ours, theirs in zip(one.factor, other.factor, strict=True):
            assert_array_equal(ours, theirs, strict=True)


def test_a_factor_built_under_many_threads_of_blas_has_the_same_digits(loaded, fitted):
    values = [one.log_marginal_likelihood for one in loaded.experts_]  # asked outside of predict
    assert values == [one.log_marginal_likelihood for one in fitted.experts_]


# The bound


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_answers_are_the_same_whatever_the_bound(loaded, fitted, monkeypatch, built, n_jobs):
    with_numbers(monkeypatch, factors_module, "MEMORY", factor_bytes=1.0)
    loaded.set_params(n_jobs=n_jobs)
    assert_array_equal(answers(loaded), answers(fitted))
    assert_array_equal(loaded.loo_predict(), fitted.loo_predict())
    assert len(built) > len(loaded.experts_)  # they were forgotten
    assert store_of(loaded).nbytes == max(one.factor.nbytes for one in fitted.experts_[:1])


def test_the_least_recently_used_is_forgotten_first(monkeypatch):
    with_numbers(monkeypatch, factors_module, "MEMORY", factor_bytes=2.5 * factor().nbytes)
    store, owners, made = Factors(), [Owner() for _ in range(3)], []

    def ask(i):
        store.of(owners[i], lambda: made.append(i) or factor())

    for i in (0, 1, 0, 2, 0, 1):  # 1 makes room for 2, and 2 for 1
        ask(i)
    assert made == [0, 1, 2, 1]
    assert store.nbytes == 2 * factor().nbytes


def test_the_bound_is_a_share_of_a_small_memory(monkeypatch):
    monkeypatch.setattr(factors_module, "physical_memory", lambda: 4.0 * factor().nbytes)
    store, owners = Factors(), [Owner() for _ in range(3)]
    for owner in owners:
        store.of(owner, factor)
    assert store.nbytes == factor().nbytes


def test_the_factors_of_a_model_that_is_gone_are_gone_at_once(fitted, tmp_path):
    fitted.save(tmp_path / "model.gp")
    loaded = manygp.load(tmp_path / "model.gp")
    alive = [weakref.ref(one.factor.whitener) for one in loaded.experts_]
    assert all(one() is not None for one in alive)
    gc.disable()
    try:
        del loaded
        assert all(one() is None for one in alive)
    finally:
        gc.enable()


# Many callers


def test_one_thread_builds_and_the_others_wait():
    store, owner, made, waiting = Factors(), Owner(), [], []

    def slow():
        made.append(1)
        wait_until(lambda: len(waiting) == 8)
        return factor()

    def ask(_):
        waiting.append(1)
        return store.of(owner, slow)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(8)))
    assert len(made) == 1
    assert all(one is found[0] for one in found)


def test_an_error_reaches_the_caller_and_the_next_one_tries_again():
    store, owner = Factors(), Owner()
    with pytest.raises(ZeroDivisionError):
        store.of(owner, lambda: 1 // 0)
    assert store.of(owner, factor).whitener.shape == (4, 4)


def test_a_copy_and_a_pickle_begin_empty(loaded, fitted):
    before = pickle.dumps(loaded)
    expected = answers(loaded)
    assert pickle.dumps(loaded._model.committee.experts) == pickle.dumps(
        pickle.loads(before)._model.committee.experts
    )
    for other in (pickle.loads(pickle.dumps(loaded)), deepcopy(loaded)):
        assert store_of(other).nbytes == 0
        assert_array_equal(answers(other), expected)
    assert len(before) < len(pickle.dumps(fitted))


FORKED = """
import os, sys, threading
import numpy as np
from manygp.gp import expert as factors
from manygp.gp.expert import Factor, Factors

class Owner:
    pass

def factor():
    return Factor(np.zeros(1), 0.0, np.eye(4), np.ones((4, 1)))

def slow():
    begun.set()
    over.wait()
    return factor()

store, owner, begun, over = Factors(), Owner(), threading.Event(), threading.Event()
builder = threading.Thread(target=store.of, args=(owner, slow))
builder.start()
begun.wait()
with factors._changed:  # as another thread may have it
    child = os.fork()
    if child == 0:
        store.of(owner, factor)
        os._exit(7)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
over.set()
builder.join()
sys.exit(code)
"""


def test_a_child_forked_while_a_factor_is_built_builds_its_own():
    command = [sys.executable, "-W", "ignore", "-c", FORKED]
    assert subprocess.run(command, timeout=60, check=False).returncode == 7


def test_the_bytes_that_are_counted_are_those_that_are_kept(monkeypatch):
    with_numbers(monkeypatch, factors_module, "MEMORY", factor_bytes=4.5 * factor().nbytes)
    store, owners = Factors(), [Owner() for _ in range(9)]
    for i in (0, 1, 2, 0, 3, 4, 5, 1, 6, 7, 8):
        store.of(owners[i], factor)
        assert store.nbytes == sum(one.nbytes for _, one in store._kept.values())
    assert store.nbytes == 4 * factor().nbytes
