"""Model files: read back they answer bit for bit."""

import copy
import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import kernels as sk

import manygp
from manygp import ManyGPRegressor
from manygp.committee.committee import kmeans
from manygp.kernels import (
    RBF,
    Additive,
    Constant,
    Linear,
    Matern,
    Pairwise,
    Periodic,
    RationalQuadratic,
    White,
)
from manygp.paper import LABELS, full_parts
from manygp.rules import AGGREGATIONS, Information, Softmax, entropy, rbcm
from manygp.storage import container
from model_files import (
    FIXED,
    QUERIES,
    SHARED,
    X,
    Y,
    answers,
    assert_same,
    error_of,
    model,
    named,
    there_and_back,
)


@pytest.fixture(scope="module")
def fitted_shared():
    return model(**SHARED).fit(X, Y)


# Round trips


def test_the_default_model_answers_the_same_bit_for_bit(tmp_path, fitted):
    loaded = there_and_back(fitted, tmp_path)
    assert type(loaded) is ManyGPRegressor
    assert fitted.calibration_report_ is not None
    assert_same(fitted, loaded)


@pytest.mark.parametrize("label", LABELS)
def test_every_model_of_the_paper_answers_the_same(tmp_path, label):
    paper = ManyGPRegressor.from_label(label, points_per_expert=30, random_state=0).fit(X, Y)
    loaded = there_and_back(paper, tmp_path)
    assert_same(paper, loaded)
    assert len(set(map(id, loaded.experts_))) == len(set(map(id, paper.experts_)))


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_every_aggregation_answers_the_same(tmp_path, aggregation):
    some = model(aggregation=aggregation, **SHARED).fit(X, Y)
    loaded = there_and_back(some, tmp_path)
    assert (loaded._model.committee.communication is None) == (aggregation != "grbcm")
    assert_same(some, loaded)


KERNELS = {
    "RBF": RBF((0.3, 0.5)) + White(0.1),
    "Matern-1/2": Matern(0.5, nu=0.5) + White(0.1),
    "Matern-3/2": 2 * Matern(0.5, nu=np.float64(1.5)) + White(0.1),
    "RationalQuadratic": RationalQuadratic(0.5, 2.0) + White(0.1),
    "Linear": Linear(0.5) + White(0.1),
    "Periodic": Periodic(1.0, 3.0) + White(0.1),
    "Additive": Additive((0.5, 0.4), (0.3, 0.2)) + White(0.1),
    "Pairwise": Matern(0.5) + Additive(0.5, 0.1, nu=1.5) + Pairwise(0.5) + White(0.1),
    "Constant": Constant(0.5) + White(0.3),
    "many": White(0.1) + Linear(1.0, "fixed") * (RBF(0.5) + 0.5) + Matern((0.4, 0.4)),
    "fixed": FIXED,
    "no noise": Matern(0.5),
    "scikit-learn": 2.0 * sk.Matern([0.5, 0.4], nu=1.5) + sk.WhiteKernel(0.1),
    "scikit-learn fixed": sk.RBF(0.4, "fixed") + sk.WhiteKernel(0.1, "fixed"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_answers_the_same(tmp_path, name):
    own = model(kernel=KERNELS[name], points_per_expert=30, **SHARED).fit(X, Y)
    assert_same(own, there_and_back(own, tmp_path))


SETTINGS = {
    "hierarchical": {"hyperparameters": "hierarchical", "overlap": 0.5},
    "independent": {"hyperparameters": "independent", "n_restarts_optimizer": 1},
    "two jobs": {"n_jobs": 2},
    "all jobs": {"n_jobs": -1, **SHARED},
    "softmax": {"weighting": "softmax", **SHARED},
    "rules of its classes": {"weighting": Softmax(3.0), "calibration": Information(strength=0.5)},
    "rules of its functions": {
        "weighting": entropy, "aggregation": rbcm, "calibration": "information", **SHARED,
    },
    "no clipping": {"calibration": Information(max_gain=np.inf), **SHARED},
    "partition of its functions": {"partition": kmeans, **SHARED},
    "every part has all rows": {"partition": full_parts, "hyperparameters": "independent"},
    "temperature": {"temperature": 2, "weighting": "tempered", **SHARED},
    "two experts a row": {"routing": 2, **SHARED},
    "a tolerance": {"routing": 0.05, **SHARED},
    "everyone": {"routing": None, **SHARED},
    "noise": {"alpha": 0.01, **SHARED},
    "a number of NumPy": {"alpha": np.float32(0.01), "overlap": np.int64(1), **SHARED},
    "noise in an array of no axes": {"alpha": np.array(0.01), **SHARED},
    "noise of each row": {"alpha": np.linspace(0.001, 0.02, 90), **SHARED},
    "noise in a list": {"alpha": [0.01] * 50 + [0.02] * 40, **SHARED},
    "no scaling": {"normalize_X": False, "normalize_y": False, **SHARED},
    "zero mean": {"trend": "none", **SHARED},
    "a budget": {"time_budget": 60.0, **SHARED},
    "a single expert": {"points_per_expert": 100},
    "a seed of NumPy": {"random_state": np.int64(3), **SHARED},
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_other_parameters_answer_the_same(tmp_path, name):
    some = model(**SETTINGS[name]).fit(X, Y)
    assert_same(some, there_and_back(some, tmp_path))


@pytest.mark.parametrize("settings", [{}, {"aggregation": "grbcm", **SHARED}, {"kernel": FIXED}])
def test_several_targets_answer_the_same(tmp_path, settings):
    several = model(**settings).fit(X, np.column_stack([Y, -Y, Y**2]))
    assert several.predict(QUERIES).shape == (70, 3)
    assert_same(several, there_and_back(several, tmp_path))


def test_a_single_expert_of_many_rows_answers_the_same(tmp_path):
    """Its factor is computed by all of BLAS's threads."""
    rows = np.random.default_rng(1).random((1100, 2))
    exact = model(kernel=FIXED, points_per_expert=2000).fit(rows, np.sin(5 * rows[:, 0]))
    loaded = there_and_back(exact, tmp_path)
    for one, other in zip(
        exact.predict(QUERIES, True), loaded.predict(QUERIES, True), strict=True
    ):
        assert_array_equal(one, other, strict=True)
    whitener = loaded.experts_[0].whitener
    assert_array_equal(whitener, exact.experts_[0].whitener, strict=True)
    assert whitener.dtype == np.float64


def test_factors_in_single_precision_answer_the_same(tmp_path):
    rng = np.random.default_rng(1)
    rows = rng.random((300, 2))
    targets = np.sin(6 * rows[:, 0]) + 0.5 * rng.normal(size=300)
    noisy = model(points_per_expert=140, **SHARED).fit(rows, targets)
    assert {one.whitener.dtype for one in noisy.experts_} == {np.dtype(np.float32)}
    assert_same(noisy, there_and_back(noisy, tmp_path))


@pytest.mark.parametrize(
    "names",
    [("a", "b"), ("größe", "温度 🌡"), ("", " "), ("../../etc/passwd", "a\x00b"), ('"', "\\"),
     ("__metadata__", "X")],
)  # fmt: skip
def test_columns_keep_their_names(tmp_path, names):
    table = named(X, *names)
    some = model(kernel=FIXED).fit(table, Y)
    loaded = there_and_back(some, tmp_path)
    assert loaded.feature_names_in_.tolist() == list(names)
    assert_same(some, loaded, named(QUERIES, *names))
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(named(QUERIES, "a", "c"))
    assert sorted(os.listdir(tmp_path)) == ["again.gp", "model.gp"]


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(3)])
def test_a_generator_that_has_gone_by_is_not_kept(tmp_path, random_state):
    some = model(random_state=random_state, kernel=FIXED).fit(X, Y)
    loaded = there_and_back(some, tmp_path)
    assert loaded.random_state is None
    assert_same(some.set_params(random_state=None), loaded)


CHANGES = [
    {"weighting": "entropy"},
    {"weighting": "softmax", "temperature": 30.0, "calibration": "none"},
    {"calibration": "information"},
    {"calibration": "none", "aggregation": "barycentre", "weighting": "uniform"},
    {"calibration": "none", "aggregation": "rbcm"},
    {"calibration": "none", "routing": 1},
    {"calibration": "none", "routing": None, "temperature": 3.0},
    {"aggregation": "nested", "calibration": "none"},
    {"aggregation": "grbcm", "calibration": "none"},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
@pytest.mark.parametrize("hyperparameters", ["auto", "shared"])
def test_parameters_change_after_loading_as_on_the_fitted_one(
    tmp_path, fitted, fitted_shared, changes, hyperparameters
):
    some = copy.deepcopy(fitted if hyperparameters == "auto" else fitted_shared)
    loaded = there_and_back(some, tmp_path)
    some.set_params(**changes)
    loaded.set_params(**changes)
    refusal = error_of(lambda: some.predict(QUERIES))
    assert error_of(lambda: loaded.predict(QUERIES)) == refusal
    if refusal:  # what was chosen for other rules
        assert "fit again" in refusal or "before fit" in refusal
    else:
        assert_same(some, loaded)
        assert_same(some, there_and_back(loaded, tmp_path))


def test_a_loaded_model_is_pickled_cloned_copied_and_fitted_like_any(path, fitted):
    loaded = manygp.load(path)
    buffer = io.BytesIO()
    joblib.dump(loaded, buffer)
    buffer.seek(0)
    for other in (pickle.loads(pickle.dumps(loaded)), copy.deepcopy(loaded), joblib.load(buffer)):
        assert_same(fitted, other)
    fresh = clone(loaded)
    assert not hasattr(fresh, "experts_")
    assert_same(fitted, fresh.fit(X, Y))
    assert repr(loaded) == repr(fitted)


def test_a_pickled_model_can_be_saved(tmp_path, path, fitted):
    pickle.loads(pickle.dumps(fitted)).save(tmp_path / "pickled.gp")
    assert (tmp_path / "pickled.gp").read_bytes() == path.read_bytes()


def test_another_process_reads_the_same_bits(path, fitted, tmp_path):
    np.save(tmp_path / "rows.npy", QUERIES)
    program = (
        "import sys, numpy as np, manygp\n"
        "model = manygp.load(sys.argv[1])\n"
        "np.savez(sys.argv[3], *model.predict(np.load(sys.argv[2]), return_std=True))\n"
    )
    files = [str(path), str(tmp_path / "rows.npy"), str(tmp_path / "answers.npz")]
    subprocess.run([sys.executable, "-c", program, *files], check=True)
    with np.load(tmp_path / "answers.npz") as kept:
        for one, other in zip(kept.values(), fitted.predict(QUERIES, True), strict=True):
            assert_array_equal(one, other)


def test_the_class_loads_too_and_a_path_may_be_a_text(path, fitted):
    for loaded in (ManyGPRegressor.load(str(path)), manygp.load(path)):
        assert_same(fitted, loaded)


# What cannot be saved


def test_a_model_that_is_not_fitted_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError):
        model().save(tmp_path / "model.gp")
    assert os.listdir(tmp_path) == []


class Wobble(RBF):
    """A kernel of one's own."""


class Wobbling(Softmax):
    """A rule of one's own."""


class Committee(ManyGPRegressor):
    """An estimator of one's own."""


def by_chance(rows, n_parts, rng):
    return np.array_split(rng.permutation(len(rows)), n_parts)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"weighting": lambda record: entropy(record), "calibration": "none"},
            "weighting=<function",
        ),
        ({"calibration": lambda record: np.ones(record.mean.shape)}, "calibration=<function"),
        (
            {"aggregation": lambda record, weights: rbcm(record, weights)},
            "aggregation=<function",
        ),
        ({"partition": by_chance}, "partition=<function by_chance"),
        ({"hyperparameters": lambda kernel: 3.0}, "hyperparameters=<function"),
        ({"weighting": Wobbling(3.0), "calibration": "none"}, "weighting=Wobbling"),
        ({"kernel": Wobble() + White()}, "the kernel Wobble is not one of Additive, Constant"),
    ],
)
def test_code_of_your_own_is_not_saved(tmp_path, settings, message):
    some = model(**{**SHARED, **settings}).fit(X, Y)
    with pytest.raises(ValueError, match=r"pickle|other kernels have no text") as caught:
        some.save(tmp_path / "model.gp")
    assert message in str(caught.value)
    assert os.listdir(tmp_path) == []
    if "lambda" not in str(caught.value):
        assert_same(some, pickle.loads(pickle.dumps(some)))


def test_an_estimator_of_your_own_is_not_saved(tmp_path):
    some = Committee(kernel=FIXED).fit(X, Y)
    with pytest.raises(ValueError, match="a Committee cannot be saved; pickle keeps any model"):
        some.save(tmp_path / "model.gp")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("changes", [{"n_jobs": 10**6}, {"calibration": Information(1.0, 1e308)}])
def test_what_could_not_be_loaded_is_not_saved(tmp_path, changes):
    some = model(kernel=FIXED).fit(X, Y).set_params(**changes)
    with pytest.raises(ValueError, match="the model cannot be saved: "):
        some.save(tmp_path / "model.gp")
    assert os.listdir(tmp_path) == []


def test_a_header_too_long_to_be_read_is_not_written(tmp_path):
    names = ["x" * 10**7, "y" * 10**7]
    some = model(kernel=FIXED).fit(named(X, *names), Y)
    with pytest.raises(ValueError, match="names of its columns are too long"):
        some.save(tmp_path / "model.gp")
    assert os.listdir(tmp_path) == []


# The file


def test_a_file_is_a_header_of_json_and_plain_arrays(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__")
    assert metadata.keys() == {"format", "sha256", "manifest"}
    assert metadata["sha256"] == hashlib.sha256(metadata["manifest"].encode()).hexdigest()
    manifest = json.loads(metadata["manifest"])
    assert manifest["schema"] == 2
    assert manifest["columns"] == 2
    assert "Matern(length_scale=" in manifest["kernel"]
    assert manifest["parameters"].keys() == ManyGPRegressor().get_params(deep=False).keys()
    end = 0
    for name, place in header.items():
        start, stop = place["data_offsets"]
        assert start == end
        end = stop
        described = manifest["arrays"][name]
        assert {"F64": 8, "I32": 4}[place["dtype"]] * np.prod(place["shape"]) == stop - start
        own = data[8 + length :][start:stop]
        assert described["sha256"] == hashlib.sha256(own).hexdigest()
    assert len(data) == 8 + length + end
    assert header.keys() == manifest["arrays"].keys()


def test_safetensors_opens_it(path, fitted):
    safetensors = pytest.importorskip("safetensors.numpy")
    arrays = safetensors.load_file(path)
    _, ours = container.read(path)
    assert arrays.keys() == ours.keys()
    for name, one in arrays.items():
        assert_array_equal(one, ours[name], strict=True)
    with safetensors.safe_open(path, framework="np") as file:
        assert file.metadata()["format"] == "manygp"
    assert_array_equal(arrays["hyperparameters"][0], fitted.experts_[0].kernel.values)


def test_a_file_is_hardly_longer_than_the_rows(tmp_path):
    rows = np.random.default_rng(0).random((20_000, 8))
    some = model(kernel=FIXED, points_per_expert=50, overlap=1, routing=2, calibration="none",
                 temperature=2.0, partition="random", **SHARED).fit(rows, rows[:, 0])  # fmt: skip
    some.save(tmp_path / "model.gp")
    numbers = rows.nbytes + 2 * 8 * 20_000  # targets and their noise
    indices = 4 * 20_000 * 2  # its own rows and as many neighbours
    size = (tmp_path / "model.gp").stat().st_size
    assert numbers + indices < size < 1.02 * (numbers + indices)
    assert size < 0.2 * sum(one.whitener.nbytes for one in some.experts_)


# Many callers


def reachable_arrays(value, seen):
    """All arrays that an object leads to."""
    if id(value) in seen:
        return []
    seen[id(value)] = value
    if isinstance(value, np.ndarray):
        return [value]
    inner = []
    if isinstance(value, dict):
        inner = list(value.values())
    elif isinstance(value, list | tuple):
        inner = list(value)
    elif hasattr(value, "__dict__"):
        inner = list(vars(value).values())
    return [array for one in inner for array in reachable_arrays(one, seen)]


@pytest.mark.parametrize("settings", [{}, {"aggregation": "grbcm", **SHARED}, {"kernel": FIXED}])
def test_the_arrays_of_experts_are_read_only(tmp_path, settings):
    some = model(**settings).fit(X, Y)
    for one in (some, there_and_back(some, tmp_path)):
        arrays = reachable_arrays([*one.experts_, *(expert.factor for expert in one.experts_)], {})
        assert len(arrays) >= 8 * len(set(map(id, one.experts_)))
        for array in arrays:
            assert not array.flags.writeable
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
        with pytest.raises(AttributeError):
            one.experts_[0].jitter = 1.0
        with pytest.raises(AttributeError):
            one.model_.kernel.signal = White()


def test_the_arrays_of_a_file_are_read_only(path):
    for array in container.read(path)[1].values():
        assert not array.flags.writeable


def asked(some, rows):
    return [
        *some.predict(rows, return_std=True),
        some.predict(rows),
        *some.predict_interval(rows, 0.9),
        *some.loo_predict(np.arange(len(rows))),
    ]


def from_eight_threads(some, pieces):
    """What eight threads are told that ask at the same time."""
    barrier = threading.Barrier(8)

    def ask(rows):
        barrier.wait(30)
        return asked(some, rows)

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(ask, pieces))


@pytest.mark.parametrize(
    "settings",
    [{}, {"n_jobs": 2}, {"aggregation": "nested", **SHARED}, {"aggregation": "grbcm", **SHARED},
     {"kernel": FIXED, "points_per_expert": 100}],
    ids=str,
)  # fmt: skip
def test_eight_threads_are_told_what_one_is(tmp_path, settings):
    some = model(**settings).fit(X, Y)
    some.save(tmp_path / "model.gp")
    pieces = [QUERIES, QUERIES[:1], QUERIES[::-1], QUERIES[::2], *[QUERIES[i:] for i in range(4)]]
    pieces = [np.ascontiguousarray(rows) for rows in pieces]
    alone = [asked(some, rows) for rows in pieces]
    fresh = manygp.load(tmp_path / "model.gp")  # the first question ever comes from all of them
    for one in (fresh, some):
        for _ in range(3):
            for told, expected in zip(from_eight_threads(one, pieces), alone, strict=True):
                for array, same in zip(told, expected, strict=True):
                    assert_array_equal(array, same, strict=True)


def test_eight_threads_load_the_same_model(path, fitted):
    with ThreadPoolExecutor(8) as pool:
        for loaded in pool.map(manygp.load, [path] * 8):
            assert_same(fitted, loaded)


@pytest.mark.parametrize("settings", [{}, {"aggregation": "grbcm", **SHARED}, {"kernel": FIXED}])
def test_answers_leave_the_model_as_it_was(tmp_path, settings):
    some = model(**settings).fit(X, Y)
    loaded = there_and_back(some, tmp_path)
    before = pickle.dumps(loaded)
    answers(loaded, QUERIES)
    # The one thing that is kept for the next question: the tree of the experts' centres.
    vars(loaded._model.committee.layout).pop("tree", None)
    assert pickle.dumps(loaded) == before
    loaded.save(tmp_path / "later.gp")
    assert (tmp_path / "later.gp").read_bytes() == (tmp_path / "model.gp").read_bytes()


@pytest.mark.parametrize("settings", [{}, {"points_per_expert": 30}], ids=["one", "several"])
def test_a_model_that_load_would_refuse_is_not_saved(tmp_path, settings):
    """Targets near the largest float: means and std of the model overflow in their units."""
    targets = Y / np.abs(Y).max() * 1.6e308
    huge = model(**settings).fit(X, targets)
    with pytest.raises(ValueError, match=r"cannot be saved: its numbers overflow.*rescale y"):
        huge.save(tmp_path / "model.gp")
    assert os.listdir(tmp_path) == []
    large = model(**settings).fit(X, targets / 1e3)
    large.save(tmp_path / "model.gp")
    assert_array_equal(manygp.load(tmp_path / "model.gp").predict(X), large.predict(X))
