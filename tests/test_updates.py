"""Rows that come after a fit, and rows that go."""

import copy
import pickle

import numpy as np
import pytest

import manygp
from manygp import ManyGPRegressor
from manygp.committee.committee import Layout, assemble
from manygp.model import Room
from manygp.training import updates
from manygp.training.updates import ids_of


def rows(n, seed=0, d=2, noise=0.3):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, d))
    return X, np.sin(X[:, 0]) * X[:, -1] + noise * rng.normal(size=n)


LEAN = {"trend": "constant", "hyperparameters": "shared", "overlap": 1.0, "random_state": 0}
KINDS = {
    "lean": {**LEAN, "points_per_expert": 40},
    "without overlap": {**LEAN, "overlap": 0.0, "points_per_expert": 40},
    "linear trend": {**LEAN, "trend": "linear", "points_per_expert": 40},
    "boosted trend": {**LEAN, "trend": "boosted", "points_per_expert": 40},
    "single": {"random_state": 0, "points_per_expert": 400, "trend": "constant"},
    "paper": {"label": "kx-ent-c", "points_per_expert": 40, "random_state": 0},
    "communication": {**LEAN, "aggregation": "grbcm", "points_per_expert": 40},
    "local noise": {**LEAN, "noise": "local", "points_per_expert": 40},
}


def fitted(kind, n=240, seed=0):
    given = dict(KINDS[kind])
    label = given.pop("label", None)
    new = ManyGPRegressor.from_label(label, **given) if label else ManyGPRegressor(**given)
    return new.fit(*rows(n, seed))


@pytest.fixture(scope="module")
def models():
    """One fitted model of each kind, made once."""
    made = {}

    def get(kind):
        if kind not in made:
            made[kind] = fitted(kind)
        return copy.deepcopy(made[kind])

    return get


def from_scratch(estimator):
    """The same experts, conditioned on the same rows anew."""
    model = estimator._model
    committee = model.committee
    data, experts = committee.training_data(), committee.experts
    layout = Layout.of(data.X, [np.asarray(one) for one in experts.parts], committee.layout.metric)
    common = committee.communication
    new = assemble(
        data,
        layout,
        [experts.fits[m] for m in range(len(experts))],
        experts.neighbours.__getitem__,
        None if common is None else (common.indices, manygp.gp.expert.KernelFit(common.kernel)),
        n_jobs=1,
    )
    found = copy.copy(estimator)
    found._model = updates.replace(model, committee=new)
    return found


def assert_as_from_scratch(estimator, X):
    other = from_scratch(estimator)
    for own, same in zip(
        estimator.predict(X, return_std=True), other.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_allclose(own, same, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1])
def test_any_sequence_is_as_conditioning_from_scratch(models, kind, seed):
    rng, estimator = np.random.default_rng(seed), models(kind)
    X_new, _ = rows(30, seed=99)
    held = dict(enumerate(zip(*rows(240), strict=True)))
    for step in range(8):
        action = rng.choice(["add", "add", "forget", "merge"])
        if action == "add":
            X, y = rows(int(rng.integers(1, 60)), seed=100 * seed + step + 1)
            start = max(estimator._model.updates.next_id if estimator._model.updates else 240, 0)
            held |= {start + i: one for i, one in enumerate(zip(X, y, strict=True))}
            estimator.partial_fit(X, y, refresh="never")
        elif action == "forget":
            gone = rng.permutation(list(held))[: rng.integers(1, 40)]
            estimator.forget(gone)
            held = {i: one for i, one in held.items() if i not in set(gone.tolist())}
        else:
            other, (X, y) = copy.deepcopy(estimator), rows(7, seed=1000 + step)
            other.partial_fit(X, y, refresh="never")
            start = estimator._model.updates.next_id if estimator._model.updates else 240
            held |= {start + i: one for i, one in enumerate(zip(X, y, strict=True))}
            estimator.merge(other, refresh="never")
        assert_as_from_scratch(estimator, X_new)
    # The rows are those that came and did not go, each once, by their numbers.
    assert estimator.row_ids_.tolist() == sorted(held)
    X, Y = manygp.answers.training_rows(estimator._model)
    expected = [held[i] for i in sorted(held)]
    np.testing.assert_allclose(X, [x for x, _ in expected], atol=1e-9)
    np.testing.assert_allclose(Y[:, 0], [y for _, y in expected], atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_an_updated_model_is_saved_and_goes_on(models, tmp_path, kind):
    estimator, (X, y) = models(kind), rows(50, seed=1)
    estimator.partial_fit(X, y, refresh="never").forget([3, 200, 241])
    estimator.save(tmp_path / "m.manygp")
    loaded = manygp.load(tmp_path / "m.manygp")
    X_new, y_new = rows(40, seed=2)
    for one in (estimator, loaded):
        assert one.row_ids_.tolist() == [i for i in range(290) if i not in (3, 200, 241)]
        assert one.drift_ == estimator.drift_ or np.isnan(one.drift_.coverage)
    before = estimator.predict(X_new, return_std=True)
    np.testing.assert_array_equal(before, loaded.predict(X_new, return_std=True))
    for one in (estimator, loaded):
        one.partial_fit(X_new, y_new, refresh="never").forget([240, 290])
    np.testing.assert_allclose(
        estimator.predict(X, return_std=True), loaded.predict(X, return_std=True), rtol=1e-7
    )
    assert loaded.row_ids_.tolist() == estimator.row_ids_.tolist()
    loaded.save(tmp_path / "again.manygp")


def test_pickles_and_copies_go_on(models):
    estimator, (X, y) = models("lean"), rows(20, seed=1)
    estimator.partial_fit(X, y)
    other = pickle.loads(pickle.dumps(estimator))
    for one in (estimator, other):
        one.partial_fit(*rows(5, seed=2))
    np.testing.assert_array_equal(estimator.predict(X), other.predict(X))


def test_the_first_call_is_a_fit():
    X, y = rows(60)
    first = ManyGPRegressor(random_state=0).partial_fit(X, y, 0.01)
    fit = ManyGPRegressor(random_state=0).fit(X, y, alpha=0.01)
    np.testing.assert_array_equal(first.predict(X), fit.predict(X))
    assert first.drift_ is None


def test_models_of_before_keep_their_rows(models):
    """Two models that go on from one do not write into each other's rows."""
    estimator = models("lean").partial_fit(*rows(5, seed=1), refresh="never")
    X_new, _ = rows(20, seed=9)
    before, model = estimator.predict(X_new, return_std=True), estimator._model
    branches = []
    for seed in (2, 3, 4):
        estimator._model = model
        estimator.partial_fit(*rows(9, seed=seed), refresh="never")
        branches.append(copy.copy(estimator))
    estimator._model = model
    np.testing.assert_array_equal(before, estimator.predict(X_new, return_std=True))
    for seed, branch in zip((2, 3, 4), branches, strict=True):
        assert_as_from_scratch(branch, X_new)
        X, _ = manygp.answers.training_rows(branch._model)
        np.testing.assert_allclose(X[-9:], rows(9, seed=seed)[0], atol=1e-9)


def test_room_is_not_shared_by_other_rows():
    room = Room()
    (first,) = room.joined([np.arange(3.0)], [np.arange(2.0)])
    (other,) = room.joined([np.zeros(4)], [np.ones(1)])  # takes the room, with as many rows
    (third,) = room.joined([first], [np.full(1, 7.0)])
    assert third.tolist() == [0, 1, 2, 0, 1, 7]
    assert other.tolist() == [0, 0, 0, 0, 1]
    (more,) = room.joined([third], [np.ones(1)])
    assert np.shares_memory(more, third)
    assert not more.flags.writeable


def test_rows_are_not_copied_for_each_update(models):
    estimator = models("lean").partial_fit(*rows(3, seed=1))
    before = estimator._model.committee.training_data()
    estimator.partial_fit(*rows(3, seed=2))
    after = estimator._model.committee.training_data()
    assert np.shares_memory(before.X, after.X)


def test_an_expert_above_twice_its_size_is_split(models):
    estimator = models("lean")
    sizes = [len(one.indices) for one in estimator.experts_]
    rng = np.random.default_rng(0)
    X = rng.uniform(0.5, 0.6, (3 * max(sizes), 2))
    estimator.partial_fit(X, X[:, 0], refresh="never")
    new = [len(one.indices) for one in estimator.experts_]
    assert len(new) > len(sizes)
    assert max(new) <= 2 * max(sizes)
    assert sorted(np.concatenate([one.indices for one in estimator.experts_])) == list(
        range(len(estimator.row_ids_))
    )


def test_neighbours_learn_of_new_rows(models):
    with_overlap, without = models("lean"), models("without overlap")
    X, y = rows(60, seed=1)
    for one, expected in ((with_overlap, True), (without, False)):
        one.partial_fit(X, y, refresh="never")
        known = np.concatenate([expert.neighbours for expert in one.experts_])
        assert (known >= 240).any() == expected


def test_experts_that_are_not_touched_stay(models):
    estimator = models("lean")
    before = {id(one) for one in estimator.experts_}
    estimator.partial_fit([[2.9, 2.9]], [0.4], refresh="never")
    assert 0 < len([one for one in estimator.experts_ if id(one) not in before]) < len(before) / 2


def test_errors_are_those_before_rows_were_added(models):
    estimator, (X, y) = models("lean"), rows(30, seed=1)
    mean, std = estimator.predict(X, return_std=True)
    lower, upper = estimator.predict_interval(X)
    estimator.partial_fit(X, y, refresh="never")
    drift = estimator.drift_
    assert drift.n_scored == drift.n_recent == 30
    np.testing.assert_allclose(drift.mean_square, np.mean(((y - mean) / std) ** 2))
    np.testing.assert_allclose(drift.coverage, np.mean((y >= lower) & (y <= upper)))


def test_forgotten_rows_leave_no_errors(models):
    estimator = models("local noise")
    estimator.partial_fit(*rows(10, seed=1), refresh="never").forget(np.arange(0, 240, 2))
    model = estimator._model
    ids = ids_of(model)[model.errors.rows]
    assert len(ids) == 130
    assert not (ids[ids < 240] % 2 == 0).any()
    assert model.noise.rows.tolist() == model.errors.rows.tolist()
    np.testing.assert_allclose(
        model.errors.squares,
        (model.committee.training_data().targets_of(model.errors.rows).T - model.errors.means)
        ** 2,
    )
