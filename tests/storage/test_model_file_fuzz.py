"""Thousands of mutated model files: each is refused by the one error, with little memory."""

import copy
import json
import os
import tracemalloc
import warnings
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import manygp
from manygp import ManyGPRegressor, ModelFileError
from manygp.kernels import Matern, White
from manygp.storage import check_model, container
from memory import resident_bytes

RNG = np.random.default_rng(0)
X = RNG.random((24, 2))
Y = np.column_stack([np.sin(6 * X[:, 0]) + X[:, 1], X[:, 0]]) + 0.1 * RNG.normal(size=(24, 2))
SMALL = {"points_per_expert": 8, "random_state": 0, "hyperparameters": "shared", "overlap": 1}
# Bytes that one file may take, and all of them together may leave behind.
PEAK, GROWTH = 16 * 2**20, 100 * 2**20


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Files of some small models: bytes, manifest and arrays."""
    path = tmp_path_factory.mktemp("originals") / "model.gp"
    table = pd.DataFrame(X, columns=["größe", "b"])
    fixed = Matern(0.3, "fixed") + White(0.1, "fixed")
    found = []
    for one in (
        ManyGPRegressor(**SMALL).fit(X, Y[:, 0]),
        ManyGPRegressor(**SMALL, aggregation="grbcm", alpha=np.full(24, 0.1)).fit(X, Y[:, 0]),
        ManyGPRegressor(kernel=fixed).fit(table, Y),
    ):
        one.save(path)
        manifest, arrays = container.read(path)
        del manifest["arrays"]
        found.append((path.read_bytes(), manifest, arrays))
    return found


# Mutations of bytes: no checksum is right any more


def flip(data, rng, other):
    changed = bytearray(data)
    for _ in range(rng.integers(1, 9)):
        changed[rng.integers(len(data))] ^= 1 << rng.integers(8)
    return bytes(changed)


def overwrite(data, rng, other):
    start = rng.integers(len(data))
    new = rng.choice(
        [b"\0" * 8, b"\xff" * 8, b'"', b"}", b"9" * 30, b"NaN", b"null", b"[" * 2000, b"\\ud800"]
    )
    return data[:start] + new + data[start + len(new) :]


def truncate(data, rng, other):
    return data[: rng.integers(len(data))]


def extend(data, rng, other):
    return data + rng.bytes(rng.integers(1, 5000))


def block(data, rng):
    start, stop = np.sort(rng.integers(0, len(data) + 1, size=2))
    return start, min(stop, start + 2000)


def remove(data, rng, other):
    start, stop = block(data, rng)
    return data[:start] + data[stop:]


def duplicate(data, rng, other):
    start, stop = block(data, rng)
    return data[:stop] + data[start:]


def move(data, rng, other):
    start, stop = block(data, rng)
    rest = data[:start] + data[stop:]
    place = rng.integers(len(rest) + 1)
    return rest[:place] + data[start:stop] + rest[place:]


def splice(data, rng, other):
    start, stop = block(other, rng)
    place = rng.integers(len(data))
    return data[:place] + other[start:stop] + data[place + stop - start :]


def join(data, rng, other):
    return data[: rng.integers(len(data))] + other[rng.integers(len(other)) :]


def resize_header(data, rng, other):
    length = int.from_bytes(data[:8], "little")
    lengths = [length + rng.integers(-9, 10), rng.integers(2**62), rng.integers(len(data)), 0]
    return int(max(0, rng.choice(lengths))).to_bytes(8, "little") + data[8:]


def digits(data, rng, other):
    """Other numbers in the header: shapes, places, anything."""
    places = [i for i, byte in enumerate(data[: len(data) // 2], 0) if 48 <= byte < 58]
    changed = bytearray(data)
    for place in rng.choice(places, rng.integers(1, 4)):
        changed[place] = 48 + rng.integers(10)
    return bytes(changed)


def noise(data, rng, other):
    return rng.bytes(rng.integers(0, 500))


BYTES = (
    flip, overwrite, truncate, extend, remove, duplicate, move, splice, join, resize_header,
    digits, noise,
)  # fmt: skip

# Mutations of contents: all checksums are right


def any_number(rng):
    numbers = [
        0, 1, -1, 2, 3, 7, 24, 2**31, 2**63, 10**400, 0.5, 1e308, -1e308, 1e-308, 1e150, -0.0,
        float(rng.normal()), float(10 ** rng.uniform(-320, 308)), int(rng.integers(-50, 50)),
    ]  # fmt: skip
    return numbers[rng.integers(len(numbers))]


def any_value(rng, manifest, depth=2):
    """Plain JSON of any kind, and parts of the manifest in a place that is not theirs."""
    kind = rng.integers(7 if depth else 4)
    if kind == 0:
        return any_number(rng)
    if kind == 1:
        return [None, True, False, "", "x", "auto", "entropy", "\ud800", "x" * 1000][
            rng.integers(9)
        ]
    if kind == 2:
        texts = [
            "RBF() + White()",
            "White()",
            "(" * 500,
            "__import__('os')",
            "2 * RBF() + White()",
        ]
        return {"kernel": texts[rng.integers(len(texts))]}
    if kind == 3:
        names = ["Softmax", "Tempered", "Information", "Recalibration", "White", "x"]
        fields = ["temperature", "strength", "max_gain", "scale", "power", "centre", "low", "high"]
        chosen = rng.choice(fields, rng.integers(0, 3), replace=False)
        return {
            "record": names[rng.integers(len(names))],
            "fields": {str(name): any_number(rng) for name in chosen},
        }
    if kind == 4:
        return [any_value(rng, manifest, depth - 1) for _ in range(rng.integers(4))]
    if kind == 5:
        return {str(i): any_value(rng, manifest, depth - 1) for i in range(rng.integers(3))}
    places = list(containers(manifest))
    inner = places[rng.integers(len(places))]
    return copy.deepcopy(inner[rng.choice(list(inner)) if isinstance(inner, dict) else 0])


def containers(value):
    """All objects and lists of a manifest that hold something."""
    if isinstance(value, dict | list) and value:
        yield value
        for one in value.values() if isinstance(value, dict) else value:
            yield from containers(one)


def mutated_manifest(manifest, rng):
    changed = json.loads(json.dumps(manifest))
    for _ in range(rng.integers(1, 4)):
        places = list(containers(changed))
        if not places:
            break
        inner = places[rng.integers(len(places))]
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        key = keys[rng.integers(len(keys))]
        action = rng.integers(8)
        if action == 0:
            del inner[key]
        elif action == 1 and isinstance(inner, dict):
            inner[str(rng.choice(["x", "", "schema", "kernel", "n_jobs"]))] = inner.pop(key)
        elif action == 2:
            other = keys[rng.integers(len(keys))]
            inner[key], inner[other] = inner[other], inner[key]
        elif action == 3 and isinstance(inner[key], float | int):
            inner[key] = any_number(rng)
        elif action == 4 and isinstance(inner[key], str):
            text = inner[key]
            i = rng.integers(len(text) + 1)
            inner[key] = text[:i] + str(rng.choice([*"()+*,='\"19.e-", "x", "é"])) + text[i + 1 :]
        else:
            inner[key] = any_value(rng, manifest)
    return changed


def any_element(rng, dtype):
    if dtype == np.int32:
        values = [-(2**31), -1, 0, 1, 2, 23, 24, 2**31 - 1, int(rng.integers(24))]
    else:
        values = [np.nan, np.inf, -np.inf, 0.0, -1.0, 1e100, -1e100, 5e-324, 1e308]
        values += [float(10 ** rng.uniform(-320, 308)) for _ in range(3)]
    return values[rng.integers(len(values))]


def mutated_arrays(arrays, rng):
    changed = dict(arrays)
    for _ in range(rng.integers(1, 4)):
        name = str(rng.choice(list(changed)))
        one = changed[name].copy()
        action = rng.integers(12)
        if action == 0:
            del changed[name]
            continue
        if action == 1:
            one = one[: rng.integers(len(one) + 1)]
        elif action == 2:
            one = np.concatenate([one, one])
        elif action == 3:
            one = one.reshape(-1)
        elif action == 4:
            one = np.ones(one.shape, np.int32 if one.dtype == np.float64 else np.float64)
        elif action == 5:
            name = str(rng.choice([*changed, "x", "../x", "communication", "conformity"]))
        elif action == 6:
            one = rng.permuted(one, axis=0)
        elif action < 10 and one.dtype == np.float64:
            with np.errstate(all="ignore"):
                one *= 10 ** rng.uniform(-160, 160)
        elif one.size:
            one.reshape(-1)[rng.integers(one.size)] = any_element(rng, one.dtype)
        changed[name] = one
    return changed


def mutated_contents(path, manifest, arrays, rng):
    which = rng.integers(3)
    container.write(
        path,
        manifest if which == 0 else mutated_manifest(manifest, rng),
        arrays if which == 1 else mutated_arrays(arrays, rng),
    )


def opened(path):
    """What becomes of a file: refused, answers, or answers nothing; all else is a crash."""
    try:
        check_model(path)
    except ModelFileError:
        checked = False
    else:
        checked = True
    try:
        loaded = manygp.load(path)
    except ModelFileError as error:
        return "refused", str(error)
    assert checked
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert all(map(str, (loaded.plan_, loaded.calibration_report_)))
        try:
            mean, std = loaded.predict(X[:3, : loaded.n_features_in_], return_std=True)
        except ValueError as error:
            return "answers nothing", str(error)
    assert np.all(np.isfinite(mean))
    assert np.all(np.isfinite(std) & (std > 0))
    return "answers", mean


def fuzz(originals, folder, n_files, seed):
    """Open so many mutated files; counts of what became of them, and the largest peak of some."""
    rng = np.random.default_rng(seed)
    path = folder / "model.gp"
    expected = []
    for data, _, _ in originals:
        path.write_bytes(data)
        expected.append(opened(path)[1])
    counts, peak = Counter(), 0
    before = resident_bytes()
    for i in range(n_files):
        chosen = rng.integers(len(originals))
        data, manifest, arrays = originals[chosen]
        mutation = None
        if rng.random() < 0.6:
            mutation = BYTES[rng.integers(len(BYTES))]
            other = originals[rng.integers(len(originals))][0]
            path.write_bytes(mutation(data, rng, other))
        else:
            mutated_contents(path, manifest, arrays, rng)
        measured = i % 25 == 0
        if measured:
            tracemalloc.start()
        try:
            verdict, outcome = opened(path)
        except Exception as error:
            kept = folder / f"crash-{seed}-{i}.gp"
            os.replace(path, kept)
            name = mutation.__name__ if mutation else "contents"
            raise AssertionError(f"{kept} ({name}) is not refused: {error!r}") from error
        finally:
            if measured:
                peak = max(peak, tracemalloc.get_traced_memory()[1])
                tracemalloc.stop()
        if verdict == "refused":
            assert outcome.startswith(str(path))
            assert len(outcome) < 10_000
        elif path.read_bytes() == data:  # the mutation changed nothing
            verdict = "unchanged"
            assert_array_equal(outcome, expected[chosen])
        else:
            assert mutation is None, f"{mutation.__name__} went unnoticed"
        counts[f"{'bytes' if mutation else 'contents'} {verdict}"] += 1
    assert os.listdir(folder) == ["model.gp"]
    return counts, peak, resident_bytes() - before


def test_mutated_files_are_refused_or_answer(originals, tmp_path, unsynced):
    counts, peak, grown = fuzz(originals, tmp_path, 1500, seed=0)
    assert counts.total() == 1500
    assert counts["bytes refused"] > 800
    assert counts["contents refused"] > 300
    assert counts["contents answers"] > 20
    assert peak < PEAK
    assert grown < GROWTH


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_many_mutated_files_are_refused_or_answer(originals, tmp_path, unsynced, seed):
    counts, peak, grown = fuzz(originals, tmp_path, 5000, seed)
    print(dict(counts), f"peak {peak:,} bytes, growth {grown:,} bytes")
    assert counts.total() == 5000
    assert peak < PEAK
    assert grown < GROWTH
