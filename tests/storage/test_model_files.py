"""Model files: read back they answer bit for bit; whatever else is in one is refused."""

import copy
import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
import threading
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import kernels as sk

import manygp
from manygp import ManyGPRegressor, ModelFileError
from manygp.kernels import RBF, Constant, Linear, Matern, Periodic, RationalQuadratic, White
from manygp.kernels.conversion import as_kernel
from manygp.kernels.text import parse_kernel
from manygp.rules.aggregation import AGGREGATIONS, rbcm
from manygp.rules.calibration import Information
from manygp.rules.labels import LABELS
from manygp.rules.partition import full_parts, kmeans
from manygp.rules.weighting import Softmax, entropy
from manygp.storage import check_model, container
from memory import MEASURABLE, PEAK_BYTES
from models import choosing

RNG = np.random.default_rng(0)
X = RNG.random((90, 2))
Y = np.sin(6 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=90)
QUERIES = RNG.uniform(-0.2, 1.2, size=(70, 2))
FIXED = Matern(0.3, "fixed") + White(0.1, "fixed")  # nothing to fit
SHARED = {"hyperparameters": "shared"}
model = partial(choosing, points_per_expert=22)


def named(rows, *names):
    return pd.DataFrame(rows, columns=list(names))


def answers(fitted, rows):
    """All numbers that a model gives for some rows."""
    found = [
        fitted.predict(rows),
        *fitted.predict(rows, return_std=True),
        *fitted.predict(rows, return_std=True, latent=True),
        *fitted.predict(rows[:20], return_cov=True),
        *fitted.predict_interval(rows, 0.8),
        *fitted.loo_predict(),
        fitted.sample_y(rows[:9], 3, random_state=1),
        fitted.log_marginal_likelihood(),
        fitted.calibration_ratio(rows),
        *fitted.loo_score().values(),
    ]
    if len(fitted._model.y_scaling.scale) == 1:
        found += fitted.predict_experts(rows)[:5]
    return found


def parameters(fitted):
    """As they are after a file: kernels are manygp's, one noise per row is an array."""
    found = fitted.get_params(deep=False)
    if isinstance(found["kernel"], sk.Kernel):
        found["kernel"] = as_kernel(found["kernel"], fitted.n_features_in_)
    if np.ndim(found["alpha"]):
        found["alpha"] = np.asarray(found["alpha"], dtype=float).tolist()
    return found


def assert_same(first, second, rows=QUERIES):
    for one, other in zip(answers(first, rows), answers(second, rows), strict=True):
        assert_array_equal(one, other, strict=True)
    assert parameters(first) == parameters(second)
    assert first.kernel_ == second.kernel_
    assert first.nearest_ == second.nearest_
    assert repr(first.plan_) == repr(second.plan_)
    assert str(first.plan_) == str(second.plan_)
    assert str(first.calibration_report_) == str(second.calibration_report_)
    assert first.calibration_report_ == second.calibration_report_
    assert first.n_features_in_ == second.n_features_in_
    assert hasattr(first, "feature_names_in_") == hasattr(second, "feature_names_in_")
    if hasattr(first, "feature_names_in_"):
        assert_array_equal(first.feature_names_in_, second.feature_names_in_, strict=True)
    for one, other in zip(first.experts_, second.experts_, strict=True):
        for name, value in vars(one).items():
            if isinstance(value, np.ndarray):
                assert_array_equal(value, getattr(other, name), strict=True)
            else:
                assert value == getattr(other, name)
        assert one.hyperparameters == other.hyperparameters
        assert one.log_marginal_likelihood == other.log_marginal_likelihood


def there_and_back(fitted, folder):
    """The model after a file; written again, that is the same file."""
    fitted.save(folder / "model.gp")
    loaded = manygp.load(folder / "model.gp")
    loaded.save(folder / "again.gp")
    assert (folder / "again.gp").read_bytes() == (folder / "model.gp").read_bytes()
    check_model(folder / "model.gp")
    return loaded


@pytest.fixture(scope="module")
def fitted():
    return model().fit(X, Y)


@pytest.fixture(scope="module")
def fitted_shared():
    return model(**SHARED).fit(X, Y)


@pytest.fixture
def path(tmp_path, fitted):
    fitted.save(tmp_path / "model.gp")
    return tmp_path / "model.gp"


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
    "zero mean": {"prior_mean": "zero", **SHARED},
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


def error_of(function):
    try:
        function()
    except ValueError as error:
        return str(error)
    return ""


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
        ({"kernel": Wobble() + White()}, "the kernel Wobble is not one of RBF, Constant"),
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


# Files that are none


def refused(path, message="."):
    """The error of a file that neither loads nor passes the check."""
    with pytest.raises(ModelFileError, match=message) as caught:
        manygp.load(path)
    with pytest.raises(ModelFileError) as again:
        check_model(path)
    assert str(again.value) == str(caught.value)
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


class Bomb:
    """Whoever unpickles it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def pickled_arrays(path):
    np.savez(path, X=np.array([Bomb(path.with_name("bang"))], dtype=object))


def pickled_array(path):
    with open(path, "wb") as file:
        np.save(file, np.array([Bomb(path.with_name("bang"))], dtype=object), allow_pickle=True)


def zipped(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("../../etc/passwd", "root")


STRANGE = {
    "nothing": lambda path: path.write_bytes(b""),
    "one byte": lambda path: path.write_bytes(b"x"),
    "a text": lambda path: path.write_text("x,y\n1,2\n" * 100),
    "JSON": lambda path: path.write_text(json.dumps({"schema": 1, "arrays": {}})),
    "zeros": lambda path: path.write_bytes(bytes(1000)),
    "ones": lambda path: path.write_bytes(b"\xff" * 1000),
    "random bytes": lambda path: path.write_bytes(np.random.default_rng(0).bytes(10_000)),
    "a pickle": lambda path: path.write_bytes(pickle.dumps(Bomb(path.with_name("bang")))),
    "a large pickle": lambda path: path.write_bytes(pickle.dumps(list(range(10**5)))),
    "pickled arrays": pickled_arrays,
    "a pickled array": pickled_array,
    "an archive": zipped,
    "joblib's": lambda path: joblib.dump({"X": X}, path),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_another_kind_of_file_is_refused(tmp_path, kind):
    path = tmp_path / "model.npz"
    STRANGE[kind](path)
    refused(path, "is not a model file of manygp")
    assert os.listdir(tmp_path) == ["model.npz"]


def test_a_folder_a_device_and_a_pipe_are_refused_without_waiting(tmp_path):
    refused(tmp_path, "is a folder, not a model file")
    refused("/dev/null", "is not a file")
    refused("/dev/zero", "is not a file")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "is not a file")


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        manygp.load(tmp_path / "model.gp")


def test_a_link_to_a_file_is_read(path, tmp_path, fitted):
    (tmp_path / "link").symlink_to(path)
    assert_same(fitted, manygp.load(tmp_path / "link"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The bytes of a small file: six rows, one expert, nothing chosen."""
    path = tmp_path_factory.mktemp("tiny") / "model.gp"
    model(kernel=FIXED).fit(X[:6], Y[:6]).save(path)
    return path.read_bytes()


def test_every_shorter_file_is_refused(tmp_path, tiny):
    header = 8 + int.from_bytes(tiny[:8], "little")
    lengths = [*range(9), *range(9, header, 101), *range(header - 9, len(tiny))]
    for length in lengths:
        (tmp_path / "model.gp").write_bytes(tiny[:length])
        message = refused(tmp_path / "model.gp")
        missing = f"its last {len(tiny) - length:,} bytes are missing"
        assert (missing if length >= header else "only the beginning of one") in message


@pytest.mark.parametrize("more", [b"\0", b" ", b"PK\5\6" + bytes(18), bytes(10**6)])
def test_a_longer_file_is_refused(tmp_path, tiny, more):
    (tmp_path / "model.gp").write_bytes(tiny + more)
    refused(tmp_path / "model.gp", f"has {len(more):,} bytes too many at its end")


def test_every_flipped_bit_is_noticed(tmp_path, tiny):
    path = tmp_path / "model.gp"
    path.write_bytes(tiny)
    before = container.read(path)
    n_refused = 0
    with open(path, "r+b", buffering=0) as file:
        for place, byte in enumerate(tiny):
            for bit in range(8):
                os.pwrite(file.fileno(), bytes([byte ^ 1 << bit]), place)
                try:
                    container.read(path)
                except ModelFileError:
                    n_refused += 1
            os.pwrite(file.fileno(), bytes([byte]), place)
    assert n_refused == 8 * len(tiny)
    assert container.read(path)[0] == before[0]


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "model.gp"
    container.write(path, {}, {"X": np.arange(1e5)})
    manifest_of = container._manifest

    def shorten(header):
        os.truncate(path, path.stat().st_size - 8)
        return manifest_of(header)

    monkeypatch.setattr(container, "_manifest", shorten)
    with pytest.raises(ModelFileError, match="was shortened while it was read"):
        container.read(path)


# Headers that lie


def packed(text, header, data=b"", **metadata):
    """A file of any header, with a right checksum of any manifest."""
    checksum = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    first = {"format": "manygp", "sha256": checksum, "manifest": text, **metadata}
    if isinstance(header, dict):
        header = json.dumps({"__metadata__": first, **header}).encode()
        header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + data


def placed(described):
    """The header of arrays that are described as in a manifest, whatever that says."""
    header, start = {}, 0
    for name, one in described.items():
        end = start + int(np.prod([int(n) for n in one["shape"]], dtype=object)) * 8
        header[name] = {
            "dtype": one["dtype"], "shape": one["shape"], "data_offsets": [start, end],
        }  # fmt: skip
        start = end
    return header


def lying(tmp_path, described, data=b"", **manifest):
    path = tmp_path / "model.gp"
    text = json.dumps({"schema": 1, **manifest, "arrays": described})
    path.write_bytes(packed(text, placed(described), data))
    return path


def test_a_newer_file_is_refused_with_advice(tmp_path):
    path = lying(tmp_path, {})
    path.write_bytes(packed('{"schema": 3, "of": "later"}', {}))
    message = refused(path, "newer manygp")
    assert "schema 3; this one reads up to 2" in message
    assert "pip install -U" in message


@pytest.mark.parametrize("schema", [0, -1, 1.0, True, None, "1", [], {}])
def test_a_schema_that_never_was_is_refused(tmp_path, schema):
    path = tmp_path / "model.gp"
    container.write(path, {"schema": schema}, {"X": X})
    refused(path, "its header is not that of a model")


HUGE = [
    [2**40],
    [2**40, 2**40],
    [2**47, 2**47],
    [1, 2**40],
    [2**40, 1],
    [2**62],
    [2**64],
    [10**300],
    [-1],
    [-(2**40)],
    [-1, -1],
    [2**31, 2**31],
]


@pytest.mark.parametrize("shape", HUGE, ids=str)
def test_a_shape_that_is_not_in_the_file_is_refused(tmp_path, shape):
    described = {"X": {"dtype": "F64", "shape": shape, "sha256": "0" * 64}}
    path = lying(tmp_path, described, bytes(64))
    refused(path, "bytes are missing|cannot have the shape")


@pytest.mark.parametrize(
    "shape",
    [None, "x", 3, 1.0, {}, [], [1, 1, 1], [True], ["1"], [None], [1.0], [[1]], [2, [2]], 10**400],
    ids=lambda shape: str(shape)[:20],
)
def test_a_shape_that_is_none_is_refused(tmp_path, shape):
    described = {"X": {"dtype": "F64", "shape": shape, "sha256": "0" * 64}}
    text = json.dumps({"schema": 1, "arrays": described})
    header = {"X": {"dtype": "F64", "shape": shape, "data_offsets": [0, 8]}}
    (tmp_path / "model.gp").write_bytes(packed(text, header, bytes(8)))
    refused(tmp_path / "model.gp", "an array cannot have the shape")


def test_arrays_without_numbers_may_not_be_long_either(tmp_path):
    described = {
        "X": {"dtype": "F64", "shape": [0, 2**47], "sha256": hashlib.sha256().hexdigest()}
    }
    refused(lying(tmp_path, described), "is not a valid model")


@pytest.mark.parametrize(
    "dtype", ["O", "|O", "object", "U10", "<U1", "V8", "f8", "F32", "BF16", "M8[ns]", 8, None, []]
)
def test_other_types_of_numbers_are_refused(tmp_path, dtype):
    described = {
        "X": {"dtype": dtype, "shape": [1], "sha256": hashlib.sha256(bytes(8)).hexdigest()}
    }
    refused(lying(tmp_path, described, bytes(8)), "is damaged")


@pytest.mark.parametrize(
    "described",
    [
        {"X": {"dtype": "F64", "shape": [1]}},
        {"X": {"dtype": "F64", "shape": [1], "sha256": None}},
        {"X": {"dtype": "F64", "shape": [1], "sha256": []}},
        {"X": {"dtype": "F64", "shape": [1], "sha256": "0" * 64}},
    ],
)
def test_an_array_without_its_checksum_is_refused(tmp_path, described):
    refused(lying(tmp_path, described, bytes(8)), "the checksum of 'X' does not match")


@pytest.mark.parametrize("described", [None, [], "x", 1, {"X": None}, {"X": []}, {"X": "dtype"}])
def test_arrays_that_are_described_as_none_are_refused(tmp_path, described):
    text = json.dumps({"schema": 1, "arrays": described})
    (tmp_path / "model.gp").write_bytes(packed(text, {}))
    refused(tmp_path / "model.gp", "its header is not that of a model")


@pytest.mark.parametrize(
    "header",
    [b"{}", b"[]", b"null", b"1", b'""', b'{"__metadata__": null}', b'{"__metadata__": []}',
     b'{"__metadata__": {"format": "pt"}}', b'{"__metadata__": {"manifest": 1}}',
     b'{"__metadata__": {"format": "manygp", "manifest": "\\ud800", "sha256": ""}}',
     b"[" * 10**6, b'{"a":' * 10**5, b"\xff" * 100, "{}".encode("utf-16"), b"9" * 10**5,
     b"-Infinity", b"NaN"],
    ids=lambda header: str(header[:30]),
)  # fmt: skip
def test_headers_of_other_kinds_are_refused(tmp_path, header):
    path = tmp_path / "model.gp"
    path.write_bytes(packed("{}", header))
    refused(path, "is not a model file of manygp")


MANIFESTS = {
    "nothing": "",
    "a list": "[]",
    "null": "null",
    "no schema": '{"arrays": {}}',
    "no arrays": '{"schema": 1}',
    "a key twice": '{"schema": 1, "schema": 1, "arrays": {}}',
    "arrays twice": '{"schema": 1, "arrays": {"X": 1}, "arrays": {}}',
    "NaN": '{"schema": 1, "a": NaN, "arrays": {}}',
    "Infinity": '{"schema": 1, "a": Infinity, "arrays": {}}',
    "-Infinity": '{"schema": 1, "a": -Infinity, "arrays": {}}',
    "a number that overflows": '{"schema": 1, "a": 1e999, "arrays": {}}',
    "an integer of many digits": '{"schema": 1, "a": ' + "9" * 5000 + ', "arrays": {}}',
    "spaces": '{ "schema": 1, "arrays": {} }',
    "depth": '{"schema": 1, "a": ' + "[" * 10**5 + "]" * 10**5 + ', "arrays": {}}',
    "depth of objects": '{"schema": 1, "a": ' + '{"a":' * 10**5 + "0" + "}" * 10**5 + "}",
    "a byte order mark": '\ufeff{"schema": 1, "arrays": {}}',
    "half a character": '{"schema": 1, "a": "\ud800", "arrays": {}}',
}


@pytest.mark.parametrize("kind", MANIFESTS)
def test_a_manifest_that_no_one_writes_is_refused(tmp_path, kind):
    path = tmp_path / "model.gp"
    path.write_bytes(packed(MANIFESTS[kind], {}))
    refused(path, "its header is")


def test_a_second_header_entry_of_the_same_name_is_refused(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + length].rstrip()
    entry = b', "X": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}'
    doubled = header[:-1] + entry
    path.write_bytes(len(doubled).to_bytes(8, "little") + doubled + data[8 + length :])
    refused(path, "its header is not that of a model")


def test_names_of_arrays_are_no_paths(tmp_path, fitted):
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "model.gp"
    fitted.save(path)
    manifest, arrays = container.read(path)
    for name in ("../outside", "../../etc/passwd", "/etc/passwd", "a/b", "", "\0", "x" * 10**5):
        container.write(path, manifest, {**arrays, name: np.arange(3.0)})
        assert_array_equal(container.read(path)[1][name], np.arange(3.0))
        assert_same(fitted, manygp.load(path))  # what it does not know it does not read
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(folder) == ["model.gp"]
    container.write(path, manifest, {**arrays, "__metadata__": np.arange(3.0)})
    refused(path, "is not a model file")


# Each file is opened with little memory to spare: what it claims is never asked for.
BOUNDED = f"""{PEAK_BYTES}
import json, resource, sys
from manygp import ModelFileError, load
from manygp.storage import check_model
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
limit = used + 200 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for path in sys.argv[1:]:
    before = peak_bytes()
    for function in (check_model, load):
        try:
            function(path)
            outcome = "loaded"
        except ModelFileError as error:
            outcome = str(error).replace(path, "").strip()[:60]
    print(json.dumps([outcome, peak_bytes() - before]))
"""


def with_arrays(path, source, **changes):
    manifest, arrays = container.read(source)
    container.write(path, manifest, {**arrays, **changes})
    return path


@MEASURABLE
def test_what_a_file_claims_is_not_allocated(tmp_path, path):
    files = []
    for i, shape in enumerate([[2**40], [2**40, 2**20], [2**62], [2**34], [0, 2**47], [2**27]]):
        described = {"X": {"dtype": "F64", "shape": shape, "sha256": "0" * 64}}
        (tmp_path / str(i)).mkdir()
        files.append(lying(tmp_path / str(i), described, bytes(64)))
    long = tmp_path / "long"  # a hole of a TB, which takes no space on the disk
    text = json.dumps({"schema": 1, "arrays": {"X": {"dtype": "F64", "shape": [2**37]}}})
    header = {"X": {"dtype": "F64", "shape": [2**37], "data_offsets": [0, 2**40]}}
    long.write_bytes(packed(text, header))
    os.truncate(long, long.stat().st_size + 2**40)
    header = tmp_path / "header"  # one that says that all of the file is header
    header.write_bytes((2**40).to_bytes(8, "little"))
    os.truncate(header, 2**41)
    n = 40_000  # one expert of all rows: a factor of 13 GB in a file of 2 MB
    wide = with_arrays(
        tmp_path / "wide",
        single(tmp_path),
        X=np.random.default_rng(0).random((n, 2)),
        y=np.zeros((n, 1)),
        alpha=np.zeros(n),
        own=np.arange(n, dtype=np.int32),
        own_sizes=np.array([n], dtype=np.int32),
    )
    files += [long, header, wide, path]
    command = [sys.executable, "-c", BOUNDED, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    outcomes, grown = zip(*map(json.loads, done.stdout.splitlines()), strict=True)
    assert outcomes[-1] == "loaded"
    assert "loaded" not in outcomes[:-1]
    assert "does not fit into memory" in outcomes[6]
    assert "is not a model file" in outcomes[7]
    assert max(grown[:8]) < 20e6
    assert max(grown) < 100e6


def single(folder):
    """A file of one expert."""
    model(kernel=FIXED, points_per_expert=100).fit(X, Y).save(folder / "single.gp")
    return folder / "single.gp"


def test_an_expert_larger_than_memory_is_refused_before_it_is_computed(tmp_path):
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    n = int((memory / 4) ** 0.5)  # a factor of twice the memory
    rows = np.zeros((n, 2))
    path = with_arrays(
        tmp_path / "wide",
        single(tmp_path),
        X=rows,
        y=rows[:, :1],
        alpha=rows[:, 0],
        own=np.arange(n, dtype=np.int32),
        own_sizes=np.array([n], dtype=np.int32),
    )
    refused(path, r"its factors would need .* GB, and there are")


# Contents that lie, with right checksums


def verdict(path):
    """What becomes of a file: an error of its own, or a model that answers."""
    objection = error_of(lambda: check_model(path))
    try:
        loaded = manygp.load(path)
    except ModelFileError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert str(path) in refusal
        assert objection in ("", refusal)
        return refusal.replace(str(path), "")
    assert not objection
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert all(map(str, (loaded.plan_, loaded.calibration_report_)))
        rows = QUERIES[:5, : loaded.n_features_in_]
        try:
            mean, std = loaded.predict(rows, return_std=True)
            width = loaded.model_._conformity()
        except ValueError as error:
            return f" answers nothing: {error}"
    assert np.all(np.isfinite(mean))
    assert np.all(np.isfinite(std) & (std > 0))
    assert np.all(np.isfinite(width) & (width >= 0))
    return " answers"


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Manifests and arrays of some small files."""
    folder = tmp_path_factory.mktemp("sources")
    small = {"points_per_expert": 10, "random_state": 0, "overlap": 1, **SHARED}
    models = {
        "default": ManyGPRegressor(**small).fit(X[:40], Y[:40]),
        "common": ManyGPRegressor(**small, aggregation="grbcm").fit(X[:40], Y[:40]),
        "alone": model(kernel=FIXED).fit(named(X[:20], "a", "b"), Y[:20]),
        "noise": ManyGPRegressor(**small, alpha=np.full(40, 0.1)).fit(X[:40], Y[:40]),
    }
    found = {}
    for name, one in models.items():
        one.save(folder / name)
        found[name] = container.read(folder / name)
    return found


def deep(n):
    nested = []
    for _ in range(n):
        nested = [nested]
    return nested


VALUES = [
    None, [], {}, "", 0, -1, 1e308, True, False, "x", deep(50), 10**400, 0.5, "auto", 2.0, 10**6,
    [1, 2], ["a", "b"], ["a", "a"], "ab", {"a": 1, "b": 2}, {"float": "nan"}, {"float": "inf"},
    {"float": "1"}, {"kernel": "White()"}, {"kernel": "__import__('os')"}, {"kernel": 1},
    {"record": "Softmax", "fields": {"temperature": 1.0}}, {"record": "Softmax", "fields": {}},
    {"record": "Information", "fields": {"strength": 1e308}},
    {"record": "Recalibration", "fields": {"scale": -1.0}},
    {"record": "ManyGPRegressor", "fields": {}}, {"record": "Softmax", "fields": {"x": 1}},
    {"rule": ["weighting", "entropy"]}, {"rule": ["partition", "full_parts"]},
    {"rule": ["aggregation", "nested"]}, {"rule": ["calibration", "none"]},
    {"rule": ["os", "system"]}, {"rule": ["weighting", "__class__"]}, {"rule": []},
]  # fmt: skip


def paths_in(value, prefix=()):
    """Where anything is in a manifest, down to the leaves."""
    found = []
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            found += [(*prefix, key), *paths_in(value[key], (*prefix, key))]
    return found


def replaced(manifest, where, value):
    changed = copy.deepcopy(manifest)
    inner = changed
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    return changed


def removed(manifest, where):
    changed = copy.deepcopy(manifest)
    inner = changed
    for key in where[:-1]:
        inner = inner[key]
    del inner[where[-1]]
    return changed


def test_every_key_of_a_manifest_may_be_anything(tmp_path, sources, unsynced):
    manifest, arrays = sources["default"]
    manifest = {key: value for key, value in manifest.items() if key != "arrays"}
    path, verdicts = tmp_path / "model.gp", {}
    for i, where in enumerate(paths_in(manifest)):
        step = [1, 5, 40][min(len(where), 3) - 1]  # the deeper, the more there are
        for value in VALUES[i % step :: step]:
            container.write(path, replaced(manifest, where, value), arrays)
            verdicts[where, str(value)[:50]] = verdict(path)
    assert len(verdicts) > 800
    assert verdicts[("kernel",), "None"].endswith("its kernel is no text")
    assert verdicts[("columns",), "2.0"].endswith("its columns are not those of its rows")
    assert verdicts[("manygp",), "None"] == " answers"  # by whom it was written has no part in it
    assert len(set(verdicts.values())) > 30


@pytest.mark.parametrize("source", ["default", "common", "alone", "noise"])
def test_no_key_or_array_may_be_missing(tmp_path, sources, source, unsynced):
    manifest, arrays = sources[source]
    manifest = {key: value for key, value in manifest.items() if key != "arrays"}
    path = tmp_path / "model.gp"
    for where in paths_in(manifest):
        if isinstance(where[-1], str) and len(where) < 4:
            container.write(path, removed(manifest, where), arrays)
            found = verdict(path)
            if len(where) == 1 and where[0] not in ("schema", "manygp"):
                assert found.endswith(f"is not a valid model: it lacks {where[0]!r}")
    for name in arrays:
        container.write(path, manifest, {key: arrays[key] for key in arrays if key != name})
        found = verdict(path)
        if name not in ("communication", "conformity", "parameter_alpha"):
            assert found.endswith(f"is not a valid model: it lacks {name!r}")


def altered_arrays(array):
    """What may be wrong with an array."""
    flat = array.reshape(-1)
    yield "empty", array[:0]
    yield "short", array[:-1]
    yield "long", np.concatenate([array, array[-1:]])
    yield "flat", flat.copy()
    yield "deep", flat[:, None].copy()
    yield "transposed", np.ascontiguousarray(array.T)
    yield "other type", array.astype(np.int32 if array.dtype == np.float64 else np.float64)
    yield "reversed", array[::-1].copy()
    if array.dtype == np.float64:
        values = [np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0, 1.0, 1e308, -1e308, 5e-324, 1e150]
        values += [1e-150, 1e200, 1e100, 1e-30]
    else:
        values = [-1, 0, 1, 2, 3, 39, 40, 41, 2**31 - 1, -(2**31)]
    for value in values:
        yield f"all {value}", np.full_like(array, value)
        if array.size:
            one = array.copy()
            one.reshape(-1)[-1] = value
            yield f"{value} at the end", one


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("default", None),
        ("common", ["communication", "seats", "neighbours"]),
        ("alone", ["X", "y", "own", "own_sizes", "y_half_scale", "hyperparameters"]),
        ("noise", ["alpha", "parameter_alpha"]),
    ],
)
def test_every_array_may_hold_anything(tmp_path, sources, unsynced, source, names):
    manifest, arrays = sources[source]
    path, verdicts = tmp_path / "model.gp", {}
    for name in names or arrays:
        for what, changed in altered_arrays(arrays[name]):
            container.write(path, manifest, {**arrays, name: changed})
            verdicts[name, what] = verdict(path)
            if what in ("all nan", "all inf", "other type") and arrays[name].size:
                assert "must hold finite numbers" in verdicts[name, what] or (
                    "must hold integers" in verdicts[name, what]
                )
    assert " answers" in verdicts.values()
    if source == "default":
        assert "a noise variance of it is negative" in verdicts["alpha", "all -1.0"]
        assert "a hyperparameter of it is not pos" in verdicts["hyperparameters", "all -1.0"]
        assert "squares of X overflow" in verdicts["X", "all 1e+308"]
        assert "squares of metric overflow" in verdicts["metric", "all 1e+150"]
        assert "a scale of it is not positive" in verdicts["x_half_scale", "all 0.0"]
        assert "own must hold integers from 0 to 39" in verdicts["own", "all -1"]
        assert "an expert of it knows a row twice" in verdicts["own", "all 0"]
        assert "an expert of it has no seat" in verdicts["seats", "all 0"]
        assert "seats must hold integers from 0 to 3" in verdicts["seats", "all 40"]
        assert "own is longer or shorter than its sizes say" in verdicts["own_sizes", "all 1"]


def lists(rows):
    return np.array(rows, dtype=np.int32)


def test_experts_that_cannot_be_are_refused(tmp_path, sources, unsynced):
    manifest, arrays = sources["default"]
    path = tmp_path / "model.gp"
    n, m = 40, len(arrays["own_sizes"])
    fewer = arrays["own"].copy()
    known = {*arrays["own"][: n // m], *arrays["neighbours"][: arrays["neighbours_sizes"][0]]}
    fewer[0] = min({*range(n)} - known)
    cases = {
        "knows a row twice": {"neighbours": np.zeros_like(arrays["neighbours"])},
        "a row of it has no expert": {"own": fewer},
        "an expert of it has no rows": {
            "own_sizes": lists([n] + [0] * (m - 1)),
            "neighbours": lists([]),
            "neighbours_sizes": lists([0] * m),
        },
        "its experts differ in number": {"neighbours_sizes": lists([len(arrays["neighbours"])])},
        "it has more seats than rows": {"seats": lists([*range(m)] * 11)},
        "neighbours is longer or shorter": {"neighbours": arrays["neighbours"][1:]},
        "own must hold integers from 0 to 39": {"own": arrays["own"] + 1},
        "hyperparameters must hold finite": {"hyperparameters": arrays["hyperparameters"][:, 1:]},
        "its evaluations are not those of its experts": {"evaluations": arrays["evaluations"][1:]},
        "it communicates a row twice": {"communication": lists([1, 1])},
        "conformity must hold": {"conformity": np.zeros((2, 5))},
        "its errors are not sorted": {"conformity": np.array([[3.0, 2.0, 1.0]])},
    }
    for message, changes in cases.items():
        container.write(path, manifest, {**arrays, **changes})
        assert message in refused(path)
    container.write(path, {**manifest, "alone": True}, arrays)
    refused(path, "its experts are not as many as it says")


def with_kernels(manifest, kernel):
    """The manifest with another fitted kernel, and the one with another parameter `kernel`."""
    parameters = {**manifest["parameters"], "kernel": {"kernel": kernel}}
    return {**manifest, "kernel": kernel}, {**manifest, "parameters": parameters}


@pytest.mark.parametrize(
    "kernel",
    ["__import__('os').system('touch bang')", "open('bang', 'w')", "White()", "2", "",
     "RBF() * White() + White()", "RBF((1, 2, 3)) + White()", "Constant((1, 2)) + White()",
     "RBF(1e999)", "RBF() + " * 300 + "White()", "(" * 10**4,
     "RBF(0, 'fixed') + White(1, 'fixed')"],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_kernels_that_cannot_be_are_refused(tmp_path, sources, kernel, monkeypatch, unsynced):
    monkeypatch.chdir(tmp_path)
    for manifest, arrays in sources.values():
        for changed in with_kernels(manifest, kernel):
            container.write("model.gp", changed, arrays)
            refused("model.gp")
    assert os.listdir(tmp_path) == ["model.gp"]


@pytest.mark.parametrize(
    "kernel", ["RBF()", "RBF() + RBF()", "White() + RBF()", "RBF() + (Linear() + White())"]
)
def test_a_fitted_kernel_is_a_signal_and_its_noise(tmp_path, sources, kernel, unsynced):
    path = tmp_path / "model.gp"
    for manifest, arrays in sources.values():
        fitted, parameter = with_kernels(manifest, kernel)
        container.write(path, fitted, arrays)
        refused(path, "its kernel does not end with its noise")
        container.write(path, parameter, arrays)
        assert manygp.load(path).kernel == parse_kernel(kernel)


@pytest.mark.parametrize(
    "kernel",
    ["RBF(1e-300, 'fixed') + White(0, 'fixed')", "RBF(1e300, 'fixed') + White(0, 'fixed')",
     "1e308 * RBF() + White(1e308, 'fixed')", "Linear(1e200, 'fixed') + White(1, 'fixed')",
     "Periodic(1e-200, 1e-200) + White()", "Periodic(1e200, 1e200, 'fixed', 'fixed') + White()",
     "RationalQuadratic(1e-200, 1e200, 'fixed', 'fixed') + White(1e-300, 'fixed')",
     "Constant(0, 'fixed') * RBF(1, 'fixed') + White(0, 'fixed')"],
)  # fmt: skip
def test_kernels_of_any_size_are_refused_or_answer(tmp_path, sources, kernel, unsynced):
    path = tmp_path / "model.gp"
    for manifest, arrays in sources.values():
        fitted, parameter = with_kernels(manifest, kernel)
        container.write(path, fitted, arrays)
        verdict(path)
        container.write(path, parameter, arrays)
        assert manygp.load(path).kernel == parse_kernel(kernel)  # fit would say what is wrong


@pytest.mark.parametrize(
    "value", [1e-320, 1e-300, 1e-100, 1e-20, 1e20, 1e100, 1e160, 1e300, 1e308]
)
def test_hyperparameters_of_any_size_are_refused_or_answer(tmp_path, sources, value, unsynced):
    manifest, arrays = sources["default"]
    values = arrays["hyperparameters"]
    for columns in ([0], [1], [2], [3], [0, 3], [1, 2], [0, 1, 2, 3]):
        changed = values.copy()
        changed[:, columns] = value
        container.write(tmp_path / "model.gp", manifest, {**arrays, "hyperparameters": changed})
        verdict(tmp_path / "model.gp")


@pytest.mark.parametrize("n_jobs", [2, 3, -1, 1024, 1025, -1025, 10**9, 0, 1.5, "2", True])
def test_the_number_of_jobs_is_one_that_a_machine_may_have(tmp_path, sources, n_jobs):
    manifest, arrays = sources["default"]
    parameters = {**manifest["parameters"], "n_jobs": n_jobs}
    container.write(tmp_path / "model.gp", {**manifest, "parameters": parameters}, arrays)
    found = verdict(tmp_path / "model.gp")
    if type(n_jobs) is int and 0 < abs(n_jobs) <= 1024:
        assert found == " answers"
    else:
        assert "is no such parameter" in found


def test_numbers_that_overflow_in_a_worker_are_refused_too(tmp_path, sources):
    """Warnings, which are errors here, do not heed the settings of another thread."""
    manifest, arrays = sources["default"]
    parameters = {**manifest["parameters"], "n_jobs": 2}
    changed = np.full_like(arrays["hyperparameters"], 1e308)
    path = tmp_path / "model.gp"
    container.write(
        path, {**manifest, "parameters": parameters}, {**arrays, "hyperparameters": changed}
    )
    with pytest.raises(ModelFileError, match="cannot be used"):
        manygp.load(path)


def test_rules_must_be_of_their_kind(tmp_path, sources):
    manifest, arrays = sources["default"]
    path = tmp_path / "model.gp"
    strange = [
        {"rule": ["partition", "balltree"]},
        {"rule": ["aggregation", "gpoe"]},
        {"kernel": "White()"},
        {"record": "Recalibration", "fields": {}},
        {"record": "Tempered", "fields": {"temperature": {"float": "nan"}}},
        {"record": "Tempered", "fields": {"temperature": "1"}},
        {"record": "Tempered", "fields": {"temperature": -1}},
    ]
    for one in strange:
        for group in ("parameters", "fitted"):
            container.write(path, replaced(manifest, (group, "weighting"), one), arrays)
            assert "is no such parameter" in verdict(path)
        container.write(path, replaced(manifest, ("rules", "weighting"), one), arrays)
        assert "its weighting is no such rule" in verdict(path)


@pytest.mark.parametrize(
    "fields",
    [{"scale": 0}, {"scale": -1.0}, {"scale": {"float": "nan"}}, {"scale": {"float": "inf"}},
     {"centre": 0, "power": 2}, {"centre": -1.0, "power": 2.5}, {"power": 1e308},
     {"power": {"float": "nan"}},
     {"high": -1.0, "scale": 2}, {"high": {"float": "nan"}},
     {"scale": "1"}, {"scale": None}, {"scale": [1.0]}, {"scale": True}, {"what": 1.0}],
    ids=str,
)  # fmt: skip
def test_a_recalibration_keeps_variances_positive(tmp_path, sources, fields):
    manifest, arrays = sources["default"]
    where = ("rules", "recalibration")
    changed = replaced(manifest, where, {"record": "Recalibration", "fields": fields})
    container.write(tmp_path / "model.gp", changed, arrays)
    assert "is not a valid model" in verdict(tmp_path / "model.gp")


@pytest.mark.parametrize(
    "report",
    [
        {"chosen": {}, "alternatives": [], "n_rows": "many"},
        {"chosen": {}, "alternatives": [[1, 1.0, 1.0, True]], "n_rows": 1},
        {"chosen": {}, "alternatives": [["scale", 1.0, "x", True]], "n_rows": 1},
        {"chosen": {}, "alternatives": [["scale", 1.0, 10**400, True]], "n_rows": 1},
        {"chosen": {}, "alternatives": [["scale", [1.0], 1.0, True]], "n_rows": 1},
        {"chosen": {}, "alternatives": [["scale", 1.0, 1.0, 1]], "n_rows": 1},
        {"chosen": {}, "alternatives": [["scale", 1.0, 1.0]], "n_rows": 1},
        {"chosen": [], "alternatives": [], "n_rows": 1},
        {
            "chosen": {"shrinkage": {"rule": ["weighting", "entropy"]}},
            "alternatives": [],
            "n_rows": 1,
        },
        {},
    ],
    ids=str,
)
def test_a_report_that_cannot_be_printed_is_refused(tmp_path, sources, report):
    manifest, arrays = sources["default"]
    container.write(tmp_path / "model.gp", {**manifest, "report": report}, arrays)
    refused(tmp_path / "model.gp", "is not a valid model")


def test_more_targets_or_rows_than_the_other_arrays_have_are_refused(tmp_path, sources):
    manifest, arrays = sources["default"]
    path = tmp_path / "model.gp"
    for changes in (
        {"y": np.zeros((40, 2))},
        {"X": np.zeros((41, 2))},
        {"X": np.zeros((40, 3))},
        {"X": np.zeros((40, 0))},
        {"y": np.zeros((40, 0))},
        {"y": np.zeros(40)},
        {"X": np.zeros((0, 2)), "y": np.zeros((0, 1)), "alpha": np.zeros(0)},
    ):
        container.write(path, manifest, {**arrays, **changes})
        refused(path, "is not a valid model")


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
        arrays = reachable_arrays(one.experts_, {})
        assert len(arrays) >= 8 * len(set(map(id, one.experts_)))
        for array in arrays:
            assert not array.flags.writeable
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
        with pytest.raises(AttributeError):
            one.experts_[0].jitter = 1.0
        with pytest.raises(AttributeError):
            one.kernel_.signal = White()


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
