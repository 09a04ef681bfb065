"""What is no model file, or lies, is refused with its path, and with little memory."""

import copy
import hashlib
import json
import os
import pickle
import re
import subprocess
import sys
import warnings
import zipfile

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import manygp
from manygp import ManyGPRegressor, ModelFileError, answers
from manygp.kernels.text import parse_kernel
from manygp.storage import check_model, container
from memory import MEASURABLE, PEAK_BYTES
from model_files import (
    FIXED,
    QUERIES,
    SHARED,
    X,
    Y,
    assert_same,
    error_of,
    model,
    named,
)

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
    assert "has more rows than a model can have" in outcomes[6]
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


def test_the_scratch_arrays_of_a_kernel_count(tmp_path, monkeypatch):
    path, needed = tmp_path / "model.gp", []
    for terms in (1, 190):
        kernel = parse_kernel("RBF(1, 'fixed') + " * terms + "White(1, 'fixed')")
        model(kernel=kernel, points_per_expert=100).fit(X, Y).save(path)
        with monkeypatch.context() as patch:
            patch.setattr("manygp.storage.experts.physical_memory", lambda: 1.0)
            message = refused(path, r"its factors would need .* GB, and there are")
        needed.append(float(re.search(r"need (\S+) GB", message)[1]))
    # 512 rows that are predicted at a time, and 90 that the expert knows.
    assert needed[1] - needed[0] == pytest.approx(189 * 8 * 512 * 90 / 1e9, rel=0.02)


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
            width = answers.conformal_scores(loaded.model_).errors
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
        "linear": ManyGPRegressor(**small, trend="linear").fit(X[:40], Y[:40]),
        "boosted": ManyGPRegressor(**small, trend="boosted").fit(X[:40], Y[:40]),
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


@pytest.mark.parametrize("source", ["linear", "boosted"])
def test_every_key_of_a_trend_may_be_anything(tmp_path, sources, source, unsynced):
    manifest, arrays = sources[source]
    manifest = {key: value for key, value in manifest.items() if key != "arrays"}
    path, verdicts = tmp_path / "model.gp", {}
    for i, where in enumerate(one for one in paths_in(manifest) if one[0] == "trend"):
        step = [1, 3, 12, 40][min(len(where), 4) - 1]
        for value in VALUES[i % step :: step]:
            container.write(path, replaced(manifest, where, value), arrays)
            verdicts[where, str(value)[:50]] = verdict(path)
    container.write(path, replaced(manifest, ("trend", "name"), "x"), arrays)
    assert "unknown trend type 'x'" in verdict(path)
    assert len(set(verdicts.values())) > 5


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
    assert verdicts[("kernel",), "None"].endswith("its kernel must be a text")
    assert verdicts[("columns",), "2.0"].endswith("its columns are not those of its rows")
    assert verdicts[("manygp",), "None"] == " answers"  # by whom it was written has no part in it
    assert len(set(verdicts.values())) > 30


OPTIONAL_ARRAYS = (
    "communication", "conformity", "conformity_by_mean", "conformity_places", "conformity_shaped",
    "errors_rows", "honest", "noise_level", "parameter_alpha",
)  # fmt: skip


@pytest.mark.parametrize("source", ["default", "common", "alone", "noise", "linear", "boosted"])
def test_no_key_or_array_may_be_missing(tmp_path, sources, source, unsynced):
    manifest, arrays = sources[source]
    manifest = {key: value for key, value in manifest.items() if key != "arrays"}
    path = tmp_path / "model.gp"
    for where in paths_in(manifest):
        if isinstance(where[-1], str) and len(where) < 4:
            container.write(path, removed(manifest, where), arrays)
            found = verdict(path)
            added = ("target_transform", "left_out_by", "step", "whole")
            newer = ("schema", "manygp", "tapered", *added)
            if len(where) == 1 and where[0] not in newer:
                assert found.endswith(f"is not a valid model: it lacks {where[0]!r}")
    for name in arrays:
        container.write(path, manifest, {key: arrays[key] for key in arrays if key != name})
        found = verdict(path)
        if name not in OPTIONAL_ARRAYS:
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
        ("linear", ["trend_root", "trend_coefficients", "trend_width", "trend_growth"]),
        ("boosted", ["trend_roots", "trend_left", "trend_column", "trend_trees", "trend_nodes"]),
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
        assert "a noise variance is negative" in verdicts["alpha", "all -1.0"]
        assert "a hyperparameter is not pos" in verdicts["hyperparameters", "all -1.0"]
        assert "squares of X overflow" in verdicts["X", "all 1e+308"]
        assert "squares of metric overflow" in verdicts["metric", "all 1e+150"]
        assert "a scale is not positive" in verdicts["x_half_scale", "all 0.0"]
        assert "own must hold integers from 0 to 39" in verdicts["own", "all -1"]
        assert "an expert knows a row twice" in verdicts["own", "all 0"]
        assert "an expert has no seat" in verdicts["seats", "all 0"]
        assert "seats must hold integers from 0 to 3" in verdicts["seats", "all 40"]
        assert "own is longer or shorter than its sizes say" in verdicts["own_sizes", "all 1"]


def lists(rows):
    return np.array(rows, dtype=np.int32)


@pytest.mark.parametrize("block", [None, 1], ids=["whole", "in blocks"])
def test_experts_that_cannot_be_are_refused(tmp_path, sources, unsynced, monkeypatch, block):
    if block is not None:
        monkeypatch.setattr("manygp.checks.CHECKED_NUMBERS", block)
        monkeypatch.setattr("manygp.storage.experts.BLOCK_EXPERTS", block)
    manifest, arrays = sources["default"]
    path = tmp_path / "model.gp"
    n, m = 40, len(arrays["own_sizes"])
    fewer = arrays["own"].copy()
    known = {*arrays["own"][: n // m], *arrays["neighbours"][: arrays["neighbours_sizes"][0]]}
    fewer[0] = min({*range(n)} - known)
    cases = {
        "knows a row twice": {"neighbours": np.zeros_like(arrays["neighbours"])},
        "a row has no expert": {"own": fewer},
        "an expert has no rows": {
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
        "its order is not that of its rows": {"order": lists(range(n - 1))},
        "a row is there twice": {"order": lists([0, *range(n - 1)])},
        "order must hold integers": {"order": lists(range(-1, n - 1))},
        "conformity must hold": {"conformity": np.zeros((2, 5))},
        "its errors are not sorted": {"conformity": np.array([[3.0, 2.0, 1.0]])},
        "its errors have no groups": {"conformity_places": np.empty(0)},
        "the groups of its errors are not": {"conformity_places": np.array([2.0, 1.0])},
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
     "Linear() * White() + White()", "RBF((1, 2, 3)) + White()", "Constant((1, 2)) + White()",
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
        is_refused = "of no size that rows can have" in verdict(tmp_path / "model.gp")
        assert is_refused is not (1e-60 <= value <= 1e60)


@pytest.mark.parametrize("n_jobs", [2, 3, -1, 1024, 1025, -1025, 10**9, 0, 1.5, "2", True])
def test_the_number_of_jobs_is_one_that_a_machine_may_have(tmp_path, sources, n_jobs):
    manifest, arrays = sources["default"]
    parameters = {**manifest["parameters"], "n_jobs": n_jobs}
    container.write(tmp_path / "model.gp", {**manifest, "parameters": parameters}, arrays)
    found = verdict(tmp_path / "model.gp")
    if type(n_jobs) is int and 0 < abs(n_jobs) <= 1024:
        assert found == " answers"
    else:
        assert "is not a value of that parameter" in found


def test_numbers_that_overflow_in_a_worker_are_refused_too(tmp_path, sources):
    """Warnings, which are errors here, do not heed the settings of another thread."""
    manifest, arrays = sources["default"]
    parameters = {**manifest["parameters"], "n_jobs": 2}
    path = tmp_path / "model.gp"
    more = {"hyperparameters": np.full_like(arrays["hyperparameters"], 1e50)}
    more["y_half_scale"] = np.full_like(arrays["y_half_scale"], 1e290)
    container.write(path, {**manifest, "parameters": parameters}, {**arrays, **more})
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
        {"record": "Tempered", "fields": {"temperature": 1.7e308}},
        {"record": "Softmax", "fields": {"temperature": 1.7e308}},
    ]
    for one in strange:
        for group in ("parameters", "fitted"):
            container.write(path, replaced(manifest, (group, "weighting"), one), arrays)
            assert "is not a value of that parameter" in verdict(path)
        container.write(path, replaced(manifest, ("rules", "weighting"), one), arrays)
        assert "its weighting is not a known rule" in verdict(path)


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
