"""Rows that come after a fit, and rows that go."""

import copy
import pickle
import threading

import numpy as np
import pytest

import manygp
from manygp import ManyGPRegressor, updating
from manygp.committee.committee import Layout, assemble
from manygp.model import Room, ids_of
from manygp.training import draft, updates
from manygp.training.experts import ExecutionContext
from manygp.training.updates import UPDATE


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
    "two targets": {**LEAN, "noise": "local", "points_per_expert": 40},
    "logarithm": {**LEAN, "target_transform": "log", "points_per_expert": 40},
    "steps": {**LEAN, "points_per_expert": 40},
    "weights": {**LEAN, "points_per_expert": 40},
}
# What the targets of a kind are, where they are not those of `rows`.
TARGETS = {
    "two targets": lambda y: np.stack([y, np.cos(9 * y)], axis=1),
    "logarithm": np.exp,
    "steps": lambda y: np.maximum(y, 0.0),
}


def rows_of(kind, n, seed=0):
    X, y = rows(n, seed)
    return X, TARGETS.get(kind, np.array)(y)


def fitted(kind, n=240, seed=0):
    given = dict(KINDS[kind])
    label = given.pop("label", None)
    new = ManyGPRegressor.from_label(label, **given) if label else ManyGPRegressor(**given)
    known = {"sample_weight": 1.0 + np.arange(n) % 3} if kind == "weights" else {}
    return new.fit(*rows_of(kind, n, seed), **known)


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
    held = dict(enumerate(zip(*rows_of(kind, 240), strict=True)))
    for step in range(8):
        # Rows of weights cannot be merged.
        action = rng.choice(["add", "add", "forget", "add" if kind == "weights" else "merge"])
        if action == "add":
            X, y = rows_of(kind, int(rng.integers(1, 60)), seed=100 * seed + step + 1)
            start = max(estimator._model.updates.next_id if estimator._model.updates else 240, 0)
            held |= {start + i: one for i, one in enumerate(zip(X, y, strict=True))}
            estimator.partial_fit(X, y, refresh="never")
        elif action == "forget":
            gone = rng.permutation(list(held))[: rng.integers(1, 40)]
            estimator.forget(gone)
            held = {i: one for i, one in held.items() if i not in set(gone.tolist())}
        else:
            other, (X, y) = copy.deepcopy(estimator), rows_of(kind, 7, seed=1000 + step)
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
    np.testing.assert_allclose(np.squeeze(Y), [y for _, y in expected], atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_an_updated_model_is_saved_and_goes_on(models, tmp_path, kind):
    estimator, (X, y) = models(kind), rows_of(kind, 50, seed=1)
    estimator.partial_fit(X, y, refresh="never").forget([3, 200, 241])
    estimator.save(tmp_path / "m.manygp")
    loaded = manygp.load(tmp_path / "m.manygp")
    X_new, y_new = rows_of(kind, 40, seed=2)
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
    assert estimator.forget(older_than=-300)._model is model  # a window that is not full yet
    ids = ids_of(model)[model.errors.rows]
    assert len(ids) == 130
    assert not (ids[ids < 240] % 2 == 0).any()
    assert model.noise.rows.tolist() == model.errors.rows.tolist()
    np.testing.assert_allclose(
        model.errors.squares,
        (model.committee.training_data().targets_of(model.errors.rows).T - model.errors.means)
        ** 2,
    )


# Learning again.


def test_growth_is_a_reason_to_learn_again(models):
    estimator = models("lean")
    for seed in range(3):
        estimator.partial_fit(*rows(60, seed=seed + 1))
    drift = estimator.drift_
    assert (drift.n_refreshes, drift.reason) == (1, "growth")
    state = estimator._model.updates
    assert state.n_learned >= UPDATE.growth * 240
    assert estimator.get_params() == models("lean").get_params()
    assert estimator.row_ids_.tolist() == list(range(420))
    fresh = fitted("lean")
    X, y = (np.concatenate(some) for some in zip(*(rows(n, s) for n, s in
            ((240, 0), (60, 1), (60, 2), (60, 3))), strict=True))  # fmt: skip
    fresh.fit(X, y)
    X_new, y_new = rows(500, seed=9)
    errors = [np.mean((one.predict(X_new) - y_new) ** 2) for one in (estimator, fresh)]
    assert errors[0] < 1.05 * errors[1]


def test_always_and_never(models):
    X, y = rows(200, seed=1)
    assert models("lean").partial_fit(X, y, refresh="never").drift_.n_refreshes == 0
    drift = models("lean").partial_fit(X[:1], y[:1], refresh="always").drift_
    assert (drift.n_refreshes, drift.reason) == (1, "asked")


def test_refresh_keeps_numbers_and_known_noise(models):
    estimator, (X, y) = models("lean"), rows(30, seed=1)
    estimator.partial_fit(X, y, np.full(30, 4.0), refresh="never").forget([0, 250]).refresh()
    assert estimator.row_ids_.tolist() == [i for i in range(1, 270) if i != 250]
    model = estimator._model
    unit = model.y_scaling.scale[0] ** 2
    alpha = model.committee.training_data().alpha * unit
    np.testing.assert_allclose(alpha, [0.0] * 239 + [4.0] * 29)


def coverage(estimator, X, y):
    lower, upper = estimator.predict_interval(X)
    return np.mean((y >= lower) & (y <= upper))


def test_intervals_follow_when_noise_grows():
    """The noise is four times what it was: appending alone leaves intervals that hold too few."""
    X, y = rows(600, noise=0.2)
    estimator = ManyGPRegressor(**LEAN).fit(X, y)
    for seed in range(10):
        estimator.partial_fit(*rows(30, seed=seed + 1, noise=0.8))
    X_new, y_new = rows(1000, seed=99, noise=0.8)
    assert coverage(estimator, X_new, y_new) > 0.8
    never = ManyGPRegressor(**LEAN).fit(X, y)
    assert coverage(never, X_new, y_new) < 0.6


def test_evidence_is_page_s_test():
    """False alarms are rare, and a change is noticed soon."""
    rng, limit = np.random.default_rng(0), UPDATE.evidence
    alarms = 0
    for _ in range(20):
        evidence = np.zeros((2, 2))
        for _ in range(20):
            evidence = updates._watched(evidence, rng.uniform(size=100) < UPDATE.coverage)
            if evidence[0].max() >= limit:
                alarms, evidence = alarms + 1, np.zeros((2, 2))
    assert alarms <= 12  # 40,000 rows: four times two tests would be as promised
    fewer = updates._watched(np.zeros((2, 2)), rng.uniform(size=100) < 0.6)
    assert fewer[0, 0] >= limit
    more = updates._watched(np.zeros((2, 2)), np.ones(200))
    assert more[0, 1] >= limit
    assert more[1, 1] == 200


def test_one_row_at_a_time_is_watched_as_all_at_once():
    held = np.random.default_rng(0).uniform(size=50) < 0.8
    at_once = updates._watched(np.zeros((2, 2)), held)
    one_by_one = np.zeros((2, 2))
    for one in held:
        one_by_one = updates._watched(one_by_one, np.array([one]))
    np.testing.assert_allclose(at_once, one_by_one)


# Merging.


def test_models_that_were_one_become_one_again(models):
    one, other, all_rows = models("lean"), models("lean"), models("lean")
    first, second = rows(20, seed=1), rows(25, seed=2)
    one.partial_fit(*first, refresh="never")
    other.partial_fit(*second, refresh="never")
    one.merge(other, refresh="never")
    all_rows.partial_fit(*first, refresh="never").partial_fit(*second, refresh="never")
    assert one.row_ids_.tolist() == list(range(285))
    X_new, _ = rows(50, seed=9)
    np.testing.assert_allclose(one.predict(X_new), all_rows.predict(X_new), atol=1e-6)
    assert len(other.row_ids_) == 265


def test_models_of_other_rows_are_merged_in_their_units(models):
    one, other = models("lean"), fitted("lean", seed=5)
    other_data = manygp.answers.training_rows(other._model)
    one.merge(other, refresh="never")
    X, Y = manygp.answers.training_rows(one._model)
    np.testing.assert_allclose(X[240:], other_data[0], atol=1e-9)
    np.testing.assert_allclose(Y[240:], other_data[1], atol=1e-9)
    errors = one._model.errors
    np.testing.assert_allclose(
        errors.squares,
        (one._model.committee.training_data().targets_of(errors.rows).T - errors.means) ** 2,
        atol=1e-9,
    )
    X_new, y_new = rows(500, seed=9)
    assert 0.85 < coverage(one, X_new, y_new) < 0.95
    alone = models("lean")
    assert np.mean((one.predict(X_new) - y_new) ** 2) < np.mean(
        (alone.predict(X_new) - y_new) ** 2
    )


# Tables.


def table(n, seed=0, towns=("Ulm", "Bonn", "Bern"), missing=False):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(seed)
    town = rng.choice(towns, n)
    size = rng.uniform(20, 120, n)
    y = size / 10 + np.array([len(one) for one in town]) + 0.3 * rng.normal(size=n)
    if missing:
        size[::7] = np.nan
    return pandas.DataFrame({"size": size, "town": town}), y


@pytest.mark.parametrize("n_towns", [3, 14])
def test_tables_with_categories_are_updated(tmp_path, n_towns):
    towns = [f"town {i}" * (1 + i % 3) for i in range(n_towns)]
    estimator = ManyGPRegressor(**LEAN, points_per_expert=60).fit(*table(300, 0, towns))
    X, y = table(40, 1, [*towns, "unknown"], missing=True)
    estimator.partial_fit(X, y, refresh="never").forget([5, 310])
    assert estimator.drift_.n_scored < 40  # nothing is learned from errors of guessed values
    estimator.save(tmp_path / "m.manygp")
    loaded = manygp.load(tmp_path / "m.manygp")
    np.testing.assert_array_equal(estimator.predict(X), loaded.predict(X))
    assert len(estimator.encoder_.codes_) == 338
    more, told = table(40, 2, [*towns, "unknown"], missing=True)
    loaded.partial_fit(more, told, refresh="always")
    assert loaded.predict(X).shape == (40,)
    other = copy.deepcopy(estimator).partial_fit(more, told, refresh="never")
    assert len(estimator.merge(other, refresh="never").row_ids_) == 378


# What cannot be.


def bad_updates(X, y):
    nan = X.copy()
    nan[3, 1] = np.nan
    return {
        "other columns": (lambda m: m.partial_fit(X[:, :1], y), "features"),
        "missing value": (lambda m: m.partial_fit(nan, y), "NaN"),
        "missing target": (lambda m: m.partial_fit(X, np.where(y > 0, np.nan, y)), "NaN"),
        "no targets": (lambda m: m.partial_fit(X, None), "requires y"),
        "fewer targets": (lambda m: m.partial_fit(X, y[1:]), "rows"),
        "two targets": (lambda m: m.partial_fit(X, np.c_[y, y]), "2 targets"),
        "no rows": (lambda m: m.partial_fit(X[:0], y[:0]), "0 sample"),
        "negative alpha": (lambda m: m.partial_fit(X, y, -1.0), "not negative"),
        "far away": (lambda m: m.partial_fit(X * 1e300, y), "too large"),
        "no refresh": (lambda m: m.partial_fit(X, y, refresh="now"), "refresh must be"),
        "unknown row": (lambda m: m.forget([1, 700]), "no row 700"),
        "forgotten twice": (lambda m: m.forget([1]).forget([1]), "no row 1"),
        "all rows": (lambda m: m.forget(np.arange(240)), "all of its rows"),
        "all old rows": (lambda m: m.forget(older_than=240), "all of its rows"),
        "no rows named": (lambda m: m.forget(), "one of the two"),
        "both named": (lambda m: m.forget([1], older_than=3), "one of the two"),
        "half a row": (lambda m: m.forget([1.5]), "whole numbers"),
        "wide number": (lambda m: m.forget(2**63 + 5), "whole numbers"),
        "ragged rows": (lambda m: m.forget([[1], [1, 2]]), "whole numbers"),
        "masked rows": (lambda m: m.forget(np.ma.masked_array([1, 2], [1, 0])), "masked"),
        "no age": (lambda m: m.forget(older_than=np.nan), "older_than must be an integer"),
        "one number": (lambda m: m.partial_fit(X[:1], 1.0), "one value for each row"),
        "masked noise": (
            lambda m: m.partial_fit(X, y, np.ma.masked_array(0 * y, y > 0)), "alpha is a masked"),
        "complex noise": (lambda m: m.partial_fit(X, y, 1j), "alpha must be"),
        "many refreshes": (
            lambda m: m.partial_fit(X, y, refresh=np.array(["auto", "never"])), "refresh must be"),
        "no model": (lambda m: m.merge("m.manygp"), "not a str"),
        "other units": (lambda m: m.merge(
            ManyGPRegressor(**LEAN, normalize_y=False).fit(X, y)), "same normalize_y"),
        "other width": (lambda m: m.merge(
            ManyGPRegressor(**LEAN).fit(X[:, :1], y)), "same columns"),
        "no fit": (lambda m: m.merge(ManyGPRegressor()), "not fitted"),
    }  # fmt: skip


@pytest.mark.parametrize("case", bad_updates(*rows(20)))
def test_bad_updates_leave_the_model_as_it_was(models, case):
    X, y = rows(20, seed=1)
    estimator, (act, message) = models("lean"), bad_updates(X, y)[case]
    if case == "forgotten twice":
        estimator.forget([1])
        act = lambda m: m.forget([1])  # noqa: E731
    model, before = estimator._model, estimator.predict(X, return_std=True)
    with pytest.raises(ValueError, match=message):
        act(estimator)
    assert estimator._model is model
    np.testing.assert_array_equal(before, estimator.predict(X, return_std=True))


def test_noise_of_the_rows_of_fit_is_not_that_of_others(tmp_path):
    X, y = rows(60)
    estimator = ManyGPRegressor(random_state=0, alpha=np.full(60, 0.1), trend="constant").fit(X, y)
    with pytest.raises(ValueError, match="pass that of these rows"):
        estimator.partial_fit(X[:2], y[:2])
    estimator.partial_fit(X[:2] + 0.01, y[:2], 0.1)
    estimator.save(tmp_path / "m.manygp")
    np.testing.assert_array_equal(
        manygp.load(tmp_path / "m.manygp").predict(X), estimator.predict(X)
    )


@pytest.mark.parametrize("where", ["condition", "recalibrated", "train", "score"])
def test_an_interrupted_update_leaves_the_model_as_it_was(models, monkeypatch, where):
    estimator, (X, y) = models("lean"), rows(30, seed=1)
    estimator.partial_fit(X, y, refresh="never")
    X = X + 0.01
    model, before = estimator._model, estimator.predict(X, return_std=True)
    with monkeypatch.context() as patched:

        def interrupted(*_, **__):
            raise KeyboardInterrupt

        patched.setattr(draft if where == "condition" else updates, where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            estimator.partial_fit(X, y, refresh="always" if where == "train" else "never")
    assert estimator._model is model
    np.testing.assert_array_equal(before, estimator.predict(X, return_std=True))
    estimator.partial_fit(X, y, refresh="never")
    assert_as_from_scratch(estimator, X)


def test_an_update_that_is_interrupted_at_its_very_end_is_no_update(models, monkeypatch):
    """While the bar is taken down, for instance: the same call may then be repeated."""
    estimator, (X, y) = models("lean"), rows(3, seed=1)

    class Ends:
        def __init__(self, **_):
            pass

        def __enter__(self):
            return ExecutionContext().progress

        def __exit__(self, *_):
            raise KeyboardInterrupt

    monkeypatch.setattr(updating, "shown", Ends)
    for act in (lambda: estimator.partial_fit(X, y), estimator.refresh):
        model = estimator._model
        with pytest.raises(KeyboardInterrupt):
            act()
        assert estimator._model is model


def test_rows_of_another_thread_are_not_lost_silently(models, monkeypatch):
    estimator = models("lean")

    def late(model, *_):
        estimator._model = "that of another thread"
        return model

    monkeypatch.setattr(updating, "updated", late)
    with pytest.raises(RuntimeError, match="another thread has changed the model"):
        estimator.partial_fit(*rows(3, seed=1))
    assert estimator._model == "that of another thread"


def test_threads_that_update_one_model_do_not_mix_rows(models):
    """Each thread goes on from the same model: none sees another's rows."""
    model = models("lean").partial_fit(*rows(2, seed=50), refresh="never")._model
    results = {}

    def work(seed):
        own = ManyGPRegressor(**KINDS["lean"])._become(model)
        results[seed] = own.partial_fit(*rows(6, seed=seed), refresh="never")._model

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(60, 66)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for seed, found in results.items():
        X, _ = manygp.answers.training_rows(found)
        np.testing.assert_allclose(X[-6:], rows(6, seed=seed)[0], atol=1e-9)


def test_rows_that_were_sorted_on_a_disk_keep_their_numbers(models, tmp_path):
    """Models of files, and those of Dask's `to_local`, have their rows in another order."""
    estimator = models("lean")
    order = 2 * np.random.default_rng(0).permutation(240).astype(np.int32)
    estimator._model = updates.replace(estimator._model, order=order)
    X, y = rows(30, seed=1)
    estimator.partial_fit(X, y, refresh="never").forget([0, 12, 480])
    old = [i for i in range(0, 480, 2) if i not in (0, 12)]
    assert estimator.row_ids_.tolist() == [*old, 479, *range(481, 509)]
    assert_as_from_scratch(estimator, X)
    estimator.save(tmp_path / "m.manygp")
    again = manygp.load(tmp_path / "m.manygp")
    np.testing.assert_array_equal(again.predict(X), estimator.predict(X))
    first, _ = manygp.answers.training_rows(again._model)
    np.testing.assert_allclose(first[-29:], np.delete(X, 1, axis=0), atol=1e-9)


def test_new_rows_of_transformed_targets_are_in_the_units_of_y():
    X, z = rows(160)
    y = np.exp(z)
    # Scaled as the first rows are, so that both have the same units.
    given = {**LEAN, "target_transform": "log", "points_per_expert": 400, "noise": "constant"}
    model = ManyGPRegressor(**given).fit(X[:120], y[:120])
    logs = ManyGPRegressor(**{**given, "target_transform": None}).fit(X[:120], z[:120])
    for one, targets in ((model, y), (logs, z)):
        one.partial_fit(X[120:], targets[120:], refresh="never")
    median = model.predict_dist(X[:9]).ppf(0.5)
    np.testing.assert_allclose(np.log(median), logs.predict(X[:9]), rtol=1e-6)
    with pytest.raises(ValueError, match=r"knows targets by 'log'.*one is -2:"):
        model.partial_fit(X[:2], [1.0, -2.0])
    model.refresh()
    assert model.model_.target_transform.name == "log"


def test_rows_that_the_model_has_teach_nothing_and_are_told(models):
    estimator, (X, y) = models("lean"), rows(240)
    before = estimator.predict(X, return_std=True)
    new, more = rows(3, seed=5)
    with pytest.warns(UserWarning, match="242 rows left out that equal others"):
        estimator.partial_fit(np.r_[X, new, new[:2]], np.r_[y, more, more[:2]], refresh="never")
    assert estimator.row_ids_.tolist() == list(range(243))
    with pytest.warns(UserWarning, match="1 row left out"):
        estimator.partial_fit(new[:1], more[:1])
    estimator.partial_fit(new[:1], more[:1] + 0.1)  # a second measurement
    estimator.forget([240, 241, 242, 243])
    for one, same in zip(estimator.predict(X, return_std=True), before, strict=True):
        np.testing.assert_allclose(one, same, rtol=1e-6)


def test_a_bound_that_was_found_ends_where_a_new_target_is_beyond(tmp_path):
    X, y = rows(200)
    y = np.clip(y, *np.quantile(y, [0.2, 0.8]))
    model = ManyGPRegressor(random_state=0, trend="constant", hyperparameters="shared").fit(X, y)
    model.partial_fit(X[:9] + 0.01, y[:9], refresh="never")
    assert model.predict(X).max() <= y.max()
    top = X[[int(np.argmax(model.predict(X)))]]
    above = np.full(30, y.max() + np.ptp(y)) + np.arange(30) / 100
    model.partial_fit(top + np.linspace(0, 0.001, 30)[:, None], above, refresh="never")
    assert model.predict(top)[0] > y.max() + 0.3 * np.ptp(y)
    assert model.predict(X).min() >= y.min()
    model.save(tmp_path / "m.manygp")
    np.testing.assert_array_equal(manygp.load(tmp_path / "m.manygp").predict(X), model.predict(X))
