"""Digests of what the models answer, to compare two versions of the code bit for bit.

    python -m tools.digits before.json      # with one version
    python -m tools.digits after.json       # with another, on the same machine
    python -m tools.digits --compare before.json after.json

All 21 labelled models and the default on six tasks (the real ones need MANYGP_DATA), the answers
of every method on a small task, and the aggregations. Where `--files FOLDER` is given, models are
saved there too, and those that are there already are loaded and asked.
"""

import argparse
import hashlib
import json
import os
import sys
import warnings
from pathlib import Path

import numpy as np

import manygp
from benchmarks.datasets import load, split
from manygp import ManyGPRegressor

SMALL = {"ackley": 1_600, "levy": 1_600, "rastrigin": 1_600}
TASKS = ("ackley", "levy", "rastrigin", "concrete", "airfoil", "power")
LARGE = ("kin40k", "protein")
ASSIGNMENTS = ("bt", "kx", "rd")
LABELS = [
    *(f"{a}-{w}{c}" for a in ASSIGNMENTS for w in ("ent", "var", "uni") for c in ("", "-c")),
    "gp-pro-sm",
    "gp-full",
    "gp-pro-full",
]
AGGREGATIONS = ("gpoe", "poe", "bcm", "rbcm", "barycentre", "grbcm", "nested")


def digest(*arrays):
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array, dtype=float).tobytes())
    return total.hexdigest()[:16]


def rows(task, small):
    data = load(task, 0, n_rows=SMALL.get(task) if small else None)
    halves = split(data, 0)
    return (
        halves
        if not small
        else halves._replace(
            X_train=halves.X_train[:800], y_train=halves.y_train[:800], X_test=halves.X_test[:800]
        )
    )


def answers_of_all_methods(model, X):
    mean, std = model.predict(X, return_std=True)
    yield "predict", digest(mean, std)
    yield "mean", digest(model.predict(X))
    yield "latent", digest(*model.predict(X, return_std=True, latent=True))
    yield "cov", digest(*model.predict(X[:50], return_cov=True))
    yield "samples", digest(model.sample_y(X[:50], 3, random_state=1))
    yield "left out", digest(*model.loo_predict())
    yield "interval", digest(*model.predict_interval(X, 0.8))
    yield "likelihood", digest([model.log_marginal_likelihood()])
    if np.ndim(mean) == 1:
        yield "experts", digest(*(one for one in model.predict_experts(X) if one is not None))
        yield "ratio", digest(model.calibration_ratio(X))


def small_models():
    """Names and small models that between them use everything."""
    yield "default", {}, 1
    yield "two targets", {}, 2
    yield "alpha", {"alpha": 0.01, "calibration": "information"}, 1
    yield "tolerance", {"routing": 0.1}, 1
    yield "softmax", {"weighting": "softmax"}, 1
    yield "restarts", {"n_restarts_optimizer": 2, "hyperparameters": "independent"}, 1
    for aggregation in AGGREGATIONS:
        yield aggregation, {"aggregation": aggregation}, 1


def compute(folder):
    found = {}
    have_data = bool(os.environ.get("MANYGP_DATA"))
    tasks = [task for task in TASKS if task in SMALL or have_data]
    data = rows("ackley", small=True)
    both = np.column_stack([data.y_train, data.X_train[:, 0]])
    for name, parameters, n_targets in small_models():
        y = data.y_train if n_targets == 1 else both
        model = ManyGPRegressor(points_per_expert=100, random_state=0, **parameters)
        model.fit(data.X_train, y)
        for method, answer in answers_of_all_methods(model, data.X_test):
            found[f"small, {name}, {method}"] = answer
        keep(model, folder, name, data.X_test, found)
    for task in tasks:
        data = rows(task, small=True)
        for label in LABELS:
            model = ManyGPRegressor.from_label(label, random_state=0)
            model.fit(data.X_train, data.y_train)
            answer = model.predict(data.X_test, return_std=True)
            found[f"{task}, {label}"] = digest(*answer, *model.loo_predict())
            if task == "ackley":
                keep(model, folder, label, data.X_test, found)
    for task in [*tasks, *(LARGE if have_data else ())]:
        data = rows(task, small=False)
        model = ManyGPRegressor(random_state=0, n_jobs=-1).fit(data.X_train, data.y_train)
        answer = model.predict(data.X_test, return_std=True)
        found[f"{task}, default"] = digest(*answer)
        found[f"{task}, default, interval"] = digest(*model.predict_interval(data.X_test))
        print(task, file=sys.stderr, flush=True)
    return found


def keep(model, folder, name, X, found):
    """Save a model, or load the one that is there, and ask it."""
    if folder is None:
        return
    path = folder / f"{name.replace(' ', '-')}.manygp"
    if not path.exists():
        model.save(path)
    found[f"file, {name}"] = digest(*manygp.load(path).predict(X, return_std=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--files", type=Path)
    given = parser.parse_args()
    if given.compare:
        before, after = (json.loads(path.read_text()) for path in given.paths)
        differ = [name for name in before if before[name] != after.get(name)]
        print(f"{len(before)} digests, {len(differ)} differ")
        print("\n".join(differ))
        sys.exit(bool(differ))
    warnings.simplefilter("ignore")
    if given.files is not None:
        given.files.mkdir(parents=True, exist_ok=True)
    given.paths[0].write_text(json.dumps(compute(given.files), indent=0))


if __name__ == "__main__":
    main()
