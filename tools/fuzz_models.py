"""Hostile model files: their checksums are right, and their contents are not.

    python -m tools.fuzz_models --seconds 600 --seed 1

Manifests and arrays of small models of every kind are changed and written with right checksums.
Each file must be refused by `ModelFileError`, or load and answer its own rows with finite means
and positive std, within bounds of time and memory. Other rows may lie too far away in its units,
or have categories where it has numbers, and be refused as such. Everything else is a finding: its
file is kept in `--keep`, and the program ends with 1.
"""

import argparse
import copy
import json
import os
import resource
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

import manygp
from manygp import ManyGPRegressor, ModelFileError, answers
from manygp.storage import check_model, container

# Seconds to load a file and to predict four rows, and bytes by which the process may grow.
MOST_SECONDS = 5.0
MOST_BYTES = 200e6
NUMBERS = [
    0, 1, -1, 2, 3, 7, 24, 127, 2**31, 2**53, 2**62, 0.5, 1e-9, 1e100, -1e100, 1e150, 1e308,
    -1e308, 1e-308, 5e-324, -0.0,
]  # fmt: skip
ELEMENTS = [
    np.nan,
    np.inf,
    -np.inf,
    0.0,
    -1.0,
    1.0,
    1e16,
    1e99,
    -1e99,
    1e101,
    1e308,
    5e-324,
    1e-200,
]
WORDS = [None, True, False, "", "x", "auto", "linear", "boosted", "entropy", "\ud800", "x" * 1000]
# What is said of rows that a changed model cannot know.
STRANGE = ("is too large in column", "of X is of type")
STRANGERS = ", other rows are none of its kind"
KERNELS = [
    "RBF() + White()", "White()", "Linear() + White()", "1e300 * RBF() + White()",
    "Periodic(1e-200, 1e-200) + White()", "RBF(1e-300, 'fixed') + White(0, 'fixed')",
    "RBF() + " * 190 + "White()", "Additive() + White()", "Pairwise() + White()", "(" * 500,
]  # fmt: skip


def sources():
    """Manifests and arrays of small models of every kind, and rows to ask them about."""
    rng = np.random.default_rng(0)
    X = rng.random((60, 2))
    y = np.sin(6 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=60)
    table = pd.DataFrame(X, columns=["a", "b"])
    table["kind"] = pd.Series([*"uvw"] * 20, dtype="category")
    several = {"points_per_expert": 20, "random_state": 0, "hyperparameters": "shared"}
    models = [
        (ManyGPRegressor(**several), X, y),
        (ManyGPRegressor(**several, aggregation="grbcm", alpha=np.full(60, 0.1)), X, y),
        (ManyGPRegressor(), X, np.column_stack([y, -y])),
        (ManyGPRegressor(random_state=0), table, y),
        *(
            (ManyGPRegressor(**several, trend=one), X, y)
            for one in ("linear", "additive", "boosted")
        ),
    ]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one in models:
            one[0].fit(*one[1:])
        logs = ManyGPRegressor(**several, target_transform="log", bounds=(0, 99), noise="local")
        grouped = ManyGPRegressor(random_state=0, trend="forest")
        models += [
            (logs.fit(X, np.exp(y)).partial_fit(X[:9] + 0.05, np.exp(y[:9])).forget([3]), X, y),
            (grouped.fit(X, y, groups=np.arange(60) // 6), X, y),
        ]
        for i, (model, rows, _) in enumerate(models):
            path = Path(folder) / str(i)
            model.save(path)
            manifest, arrays = container.read(path)
            del manifest["arrays"]
            yield manifest, arrays, rows[:4]


def pick(rng, values):
    return values[rng.integers(len(values))]


def holders(value):
    """All objects and lists of a manifest that hold something."""
    if isinstance(value, dict | list) and value:
        yield value
        for one in value.values() if isinstance(value, dict) else value:
            yield from holders(one)


def any_value(rng, manifest):
    """A value of any kind, or a part of the manifest in a place that is not its own."""
    kind = rng.integers(6)
    if kind <= 1:
        return pick(
            rng, [*NUMBERS, float(10 ** rng.uniform(-320, 308)), int(rng.integers(-9, 99))]
        )
    if kind == 2:
        return pick(rng, WORDS)
    if kind == 3:
        return pick(rng, [{"kernel": pick(rng, KERNELS)}, pick(rng, KERNELS), {"float": "inf"}])
    if kind == 4:
        return [any_value(rng, manifest) for _ in range(rng.integers(4))]
    inner = pick(rng, list(holders(manifest)))
    return copy.deepcopy(pick(rng, list(inner.values()) if isinstance(inner, dict) else inner))


def changed_manifest(rng, manifest):
    """The manifest with one to three changes; the trend and the table are chosen more often."""
    changed = json.loads(json.dumps(manifest))
    for _ in range(rng.integers(1, 4)):
        roots = [changed, changed.get("trend"), changed.get("table"), changed.get("plan")]
        places = list(holders(pick(rng, [one for one in roots if one]))) if changed else []
        if not places:
            break
        inner = pick(rng, places)
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        key, action = pick(rng, keys), rng.integers(8)
        if action == 0:
            del inner[key]
        elif action == 1:
            other = pick(rng, keys)
            inner[key], inner[other] = inner[other], inner[key]
        elif action == 2 and isinstance(inner, list):
            inner.extend(copy.deepcopy(inner) * int(pick(rng, [1, 3, 30])))
        elif action <= 4 and type(inner[key]) in (int, float):
            inner[key] = type(inner[key])(min(pick(rng, NUMBERS), 2**63))
        else:
            inner[key] = any_value(rng, manifest)
    return changed


def changed_arrays(rng, arrays):
    """The arrays with one to three changes."""
    changed = dict(arrays)
    for _ in range(rng.integers(1, 4)):
        name = pick(rng, list(changed))
        one, action = changed[name].copy(), rng.integers(10)
        if action == 0:
            one = one[: rng.integers(len(one) + 1)]
        elif action == 1:
            one = np.concatenate([one] * int(pick(rng, [2, 3, 20])))
        elif action == 2:
            one = rng.permuted(one, axis=0)
        elif action == 3 and one.dtype == np.float64:
            with np.errstate(all="ignore"):
                one *= 10 ** rng.uniform(-160, 160)
        elif action == 4:
            one[...] = _element(rng, one)
        elif action == 5 and name in ("own", "neighbours", "trend_left", "trend_right"):
            one = np.arange(1, len(one) + 1, dtype=np.int32)
        elif one.size:
            for _ in range(rng.integers(1, 4)):
                one.reshape(-1)[rng.integers(one.size)] = _element(rng, one)
        changed[name] = one
    return changed


def _element(rng, array):
    if array.dtype == np.int32:
        return pick(rng, [-(2**31), -1, 0, 1, 2, 59, 60, 2**31 - 1, int(rng.integers(60))])
    return pick(rng, [*ELEMENTS, float(10 ** rng.uniform(-320, 308)), float(rng.normal())])


def verdict(path, rows):
    """What becomes of a file: "refused" or "answers"; all else is a finding."""
    started, before = time.perf_counter(), peak_bytes()
    outcome = _opened(path, rows)
    seconds, peak = time.perf_counter() - started, peak_bytes() - before
    if seconds > MOST_SECONDS or peak > MOST_BYTES:
        return f"{outcome} after {seconds:.1f} s and with {peak / 1e6:.0f} MB"
    return outcome


def peak_bytes():
    """The most memory that the process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _opened(path, rows):
    try:
        check_model(path)
        loaded = manygp.load(path)
    except ModelFileError:
        return "refused"
    except Exception as error:
        return f"load: {error!r}"
    far = ""
    try:
        with np.errstate(all="ignore"):
            str(loaded.plan_), str(loaded.calibration_report_), str(loaded.kernel_), loaded.drift_
            own, _ = answers.training_rows(loaded.model_)
            told = [answers.predict(loaded.model_, own[:: max(1, len(own) // 8)])]
            try:
                told.append(loaded.predict(rows, return_std=True))
            except ValueError as error:
                if not any(words in str(error) for words in STRANGE):
                    raise
                far = STRANGERS
    except Exception as error:
        return f"predict: {error!r}"
    for mean, std in told:
        if not (np.all(np.isfinite(mean)) and np.all(np.isfinite(std)) and np.all(std > 0)):
            return f"answers {mean} with std {std}"
    return "answers" + far


def is_finding(outcome):
    """Whether a file was neither refused nor answers its own rows."""
    return outcome not in ("refused", "answers", "answers" + STRANGERS)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("findings"))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    os.fsync = lambda descriptor: None  # these files need not outlive a crash
    rng, counts = np.random.default_rng(asked.seed), Counter()
    originals, end = list(sources()), time.monotonic() + asked.seconds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gp"
        while time.monotonic() < end:
            manifest, arrays, rows = pick(rng, originals)
            which = rng.integers(3)
            manifest = manifest if which == 0 else changed_manifest(rng, manifest)
            container.write(path, manifest, arrays if which == 1 else changed_arrays(rng, arrays))
            outcome = verdict(path, rows)
            if is_finding(outcome):
                asked.keep.mkdir(exist_ok=True)
                kept = asked.keep / f"{asked.seed}-{counts.total()}.gp"
                shutil.copy(path, kept)
                print(f"{kept}: {outcome[:300]}", flush=True)
                outcome = "finding"
            counts[outcome] += 1
    print(f"{counts.total()} files:", dict(counts))
    return 1 if counts["finding"] else 0


if __name__ == "__main__":
    sys.exit(main())
