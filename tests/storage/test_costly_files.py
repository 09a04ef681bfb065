"""Small files that would cost much, or cannot be computed with: refused by load and by verify."""

import time

import numpy as np
import pandas as pd
import pytest

import manygp
from manygp import ManyGPRegressor, ModelFileError
from manygp.kernels import write_kernel
from manygp.kernels.text import parse_kernel
from manygp.storage import check_model, container
from model_files import SHARED, X, Y

SMALL = {"points_per_expert": 30, "random_state": 0, **SHARED}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Manifests and arrays of models with trends, and of a table."""
    path = tmp_path_factory.mktemp("sources") / "model.gp"
    table = pd.DataFrame({"a": X[:, 0], "kind": pd.Series([*"uvw"] * 30, dtype="category")})
    models = {
        "linear": ManyGPRegressor(**SMALL, trend="linear").fit(X, Y),
        "additive": ManyGPRegressor(**SMALL, trend="additive").fit(X, Y),
        "boosted": ManyGPRegressor(**SMALL, trend="boosted").fit(X, Y),
        "table": ManyGPRegressor(**SMALL).fit(table, Y),
    }
    files = {}
    for name, one in models.items():
        one.save(path)
        manifest, arrays = container.read(path)
        del manifest["arrays"]
        files[name] = manifest, arrays
    return files


def refused(path, message):
    """Both refuse the file, within seconds."""
    started = time.perf_counter()
    for opened in (manygp.load, check_model):
        with pytest.raises(ModelFileError, match=message):
            opened(path)
    assert time.perf_counter() - started < 5


def ints(values):
    return np.asarray(values, dtype=np.int32)


def test_a_kriged_trend_counts_its_terms_at_all_rows(tmp_path, sources, monkeypatch):
    manifest, arrays = sources["additive"]
    assert manifest["trend"]["kriged"]
    container.write(tmp_path / "model.gp", manifest, arrays)
    p = len(arrays["trend_coefficients"])
    monkeypatch.setattr("manygp.storage.experts.physical_memory", lambda: 10**7)
    check_model(tmp_path / "model.gp")
    n = 10**7 // (2 * 8 * p)
    rows = {
        "X": np.random.default_rng(0).random((n, 2)),
        "y": np.zeros((n, 1)),
        "alpha": np.zeros(n),
        "trend_fitted": np.zeros((n, 1)),
        "trend_shift": np.zeros((n, 1)),
        "trend_growth": np.zeros(n),
        "own": ints(np.arange(n)),
        "own_sizes": ints([10] * (n // 10 - 1) + [n - 10 * (n // 10 - 1)]),
        "neighbours": ints([]),
        "neighbours_sizes": ints([0] * (n // 10)),
        "hyperparameters": np.repeat(arrays["hyperparameters"][:1], n // 10, axis=0),
        "evaluations": ints([1] * (n // 10)),
        "seats": ints(np.arange(n // 10)),
    }
    arrays = {name: one for name, one in arrays.items() if name != "order"}
    container.write(tmp_path / "model.gp", manifest, {**arrays, **rows})
    refused(tmp_path / "model.gp", "would need .* GB")


def test_the_kernel_of_a_trend_counts(tmp_path, sources, monkeypatch):
    manifest, arrays = sources["linear"]
    long = write_kernel(parse_kernel("RBF(1, 'fixed') + " * 190 + "White(1, 'fixed')"))
    monkeypatch.setattr("manygp.storage.experts.physical_memory", lambda: 3 * 10**6)
    container.write(tmp_path / "model.gp", manifest, arrays)
    check_model(tmp_path / "model.gp")
    trend = {**manifest["trend"], "kernel": long}
    container.write(tmp_path / "model.gp", {**manifest, "trend": trend}, arrays)
    refused(tmp_path / "model.gp", "would need .* GB")


def chain(m):
    """A tree of m nodes, each of which leads to the next but one and to a leaf."""
    own = np.arange(m)
    inner = (own % 2 == 0) & (own < m - 2)
    return np.where(inner, own + 1, own), np.where(inner, own + 2, own)


@pytest.mark.parametrize(
    ("roots", "message"), [([0], "too many steps"), ([0, 0], "share a node")], ids=["one", "twice"]
)
def test_chains_of_trees_are_refused(tmp_path, sources, roots, message):
    manifest, arrays = sources["boosted"]
    m, folds = 300_001, manifest["trend"]["folds"]
    left, right = chain(m)
    trees = {
        "trend_roots": ints(roots * folds),
        "trend_trees": ints([len(roots)] * folds),
        "trend_nodes": ints([m] + [1] * (folds - 1)),
        "trend_left": ints([*left, *[0] * (folds - 1)]),
        "trend_right": ints([*right, *[0] * (folds - 1)]),
        "trend_column": ints(np.zeros(m + folds - 1)),
        "trend_threshold": np.full(m + folds - 1, -1.0),
        "trend_value": np.zeros(m + folds - 1),
    }
    container.write(tmp_path / "model.gp", manifest, {**arrays, **trees})
    refused(tmp_path / "model.gp", message)


def test_wide_splines_are_refused(tmp_path, sources):
    manifest, arrays = sources["additive"]
    knots = np.linspace(0, 1, 4000).tolist()
    trend = {**manifest["trend"], "terms": [[[0, knots, 3]]]}
    container.write(tmp_path / "model.gp", {**manifest, "trend": trend}, arrays)
    refused(tmp_path / "model.gp", "a term of its trend must be one or two columns")


@pytest.mark.parametrize("knots", [[0.0, 5e-324], [0.0, 1e300], [-5.0, 1.0]], ids=str)
def test_knots_span_the_range_of_their_column(tmp_path, sources, knots):
    manifest, arrays = sources["additive"]
    trend = {**manifest["trend"], "terms": [[[0, knots, 3]]]}
    container.write(tmp_path / "model.gp", {**manifest, "trend": trend}, arrays)
    refused(tmp_path / "model.gp", "the knots of its trend span no range")


def test_seventy_thousand_categories_are_not_as_many_features(tmp_path, sources):
    manifest, arrays = sources["table"]
    table = manifest["table"]["encoder"]
    columns = [dict(one) for one in table["columns"]]
    column = next(one for one in columns if one["kind"] == "category")
    column["categories"] = [f"{i:05}" for i in range(70_000)]
    column.pop("fill", None)
    changed = {**manifest, "table": {"target": None, "encoder": {**table, "columns": columns}}}
    container.write(tmp_path / "model.gp", changed, arrays)
    refused(tmp_path / "model.gp", "more than 1000 categories without means")


@pytest.mark.parametrize(
    "name",
    ["trend_coefficients", "trend_root", "trend_sizes", "trend_fitted", "trend_shift",
     "trend_growth", "trend_low", "trend_width"],
)  # fmt: skip
def test_values_of_a_trend_whose_squares_overflow_are_refused(tmp_path, sources, name):
    manifest, arrays = sources["additive"]
    changed = arrays[name].copy()
    changed.reshape(-1)[-1] = 1e160
    container.write(tmp_path / "model.gp", manifest, {**arrays, name: changed})
    refused(tmp_path / "model.gp", f"squares of {name} overflow")


@pytest.mark.parametrize("name", ["x", "y"])
def test_shifts_that_overflow_are_refused(tmp_path, sources, name):
    manifest, arrays = sources["linear"]
    changes = {
        f"{name}_shift": np.full_like(arrays[f"{name}_shift"], 1.7e308),
        f"{name}_half_scale": np.full_like(arrays[f"{name}_half_scale"], 8e307),
    }
    container.write(tmp_path / "model.gp", manifest, {**arrays, **changes})
    with pytest.raises(ModelFileError, match="overflow"):
        manygp.load(tmp_path / "model.gp")


@pytest.mark.parametrize(
    ("entry", "value"),
    [("seconds", {"float": "inf"}), ("seconds", 1e300), ("bytes", -1.0), ("kernels", 1e300),
     ("points_per_expert", 0.5), ("shared_rows", -1), ("overlaps", [{"float": "inf"}]),
     ("overlaps", [-1.0]), ("shrinkages", [-1.0])],
)  # fmt: skip
def test_plans_that_cannot_be_are_refused(tmp_path, sources, entry, value):
    manifest, arrays = sources["linear"]
    plan = {**manifest["plan"], entry: value}
    container.write(tmp_path / "model.gp", {**manifest, "plan": plan}, arrays)
    refused(tmp_path / "model.gp", "its plan")
