"""A trend as plain data, and back, checked before it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from manygp.arrays import AnyArray, Array, read_only
from manygp.gp.likelihood import TrainingData
from manygp.gp.trend import Trend
from manygp.kernels.base import split_noise
from manygp.kernels.text import parse_kernel, write_kernel
from manygp.storage.checks import floats, indices, require
from manygp.trend.linear import Form, LinearTrend
from manygp.trend.regressors import FoldTrend
from manygp.trend.ridge import MOST_FUNCTIONS
from manygp.trend.terms import CUBIC, Axis, Basis, Term
from manygp.trend.trees import Trees

# Names of the linear trends.
LINEAR = ("linear", "additive", "pairs")
# Functions of a file's trend, folds of its trees, and nodes, at most.
MOST_TERMS = 4 * MOST_FUNCTIONS
MOST_FOLDS = 100
MOST_NODES = 10**8


def describe_trend(trend: Trend) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """What the manifest says about a trend, and its arrays."""
    rows: dict[str, AnyArray] = {
        "trend_fitted": trend.fitted,
        "trend_shift": trend.shift,
        "trend_growth": trend.growth,
    }
    model = trend.model
    if isinstance(model, LinearTrend):
        described, arrays = _describe_linear(model)
    elif isinstance(model, FoldTrend) and model.name == "boosted":
        described, arrays = _describe_boosted(model)
    else:
        raise ValueError(
            f"trend={model.name} is a regressor, which a model file cannot hold; pickle keeps any "
            "model"
        )
    return described, rows | arrays


def _describe_linear(model: LinearTrend) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    basis = model.form.basis
    terms = [[[a.column, list(a.knots), a.degree] for a in t.axes] for t in basis.terms]
    described = {
        "name": model.name,
        "precision": model.form.precision,
        "terms": terms,
        "kriged": model.kriged,
        "kernel": write_kernel(model.kernel),
    }
    return described, {
        "trend_low": basis.low,
        "trend_width": basis.width,
        "trend_coefficients": model.coefficients,
        "trend_root": model.root,
        "trend_sizes": model.sizes,
    }


def _describe_boosted(model: FoldTrend) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    trees: list[Trees] = [one for fold in model.models for one in fold]
    described = {
        "name": "boosted",
        "folds": len(model.models),
        "baselines": [one.baseline for one in trees],
        "explained": model.explained,
    }
    return described, {
        "trend_low": model.low,
        "trend_width": model.width,
        "trend_importance": model.importance,
        "trend_trees": np.array([len(one.roots) for one in trees], dtype=np.int32),
        "trend_nodes": np.array([len(one.value) for one in trees], dtype=np.int32),
        **{
            f"trend_{name}": np.concatenate([array_of(one) for one in trees]).astype(kind)
            for name, (array_of, kind) in TREE_ARRAYS.items()
        },
    }


# Arrays of all nodes of all trees: places, which are integers, and numbers.
NODES = ("column", "left", "right")
VALUES = ("threshold", "value")
TREE_ARRAYS: dict[str, tuple[Callable[[Trees], AnyArray], type]] = {
    "roots": (lambda trees: trees.roots, np.int32),
    "column": (lambda trees: trees.column, np.int32),
    "left": (lambda trees: trees.children[:, 0], np.int32),
    "right": (lambda trees: trees.children[:, 1], np.int32),
    "threshold": (lambda trees: trees.threshold, np.float64),
    "value": (lambda trees: trees.value, np.float64),
}


def read_trend(found: dict[str, Any], arrays: dict[str, AnyArray], data: TrainingData) -> Trend:
    """The trend of a file with rows; how its terms depend on them is left to be computed."""
    (n, d), n_targets = data.X.shape, data.Y.shape[1]
    low, width = floats(arrays, "trend_low", (d,)), floats(arrays, "trend_width", (d,))
    require(np.all(width > 0), "a column of its trend has no width")
    fitted, shift = (
        floats(arrays, f"trend_{name}", (n, n_targets)) for name in ("fitted", "shift")
    )
    growth = floats(arrays, "trend_growth", (n,))
    require(np.all(growth >= 0), "a variance of its trend is negative")
    name = found["name"]
    model: LinearTrend | FoldTrend
    if name in LINEAR:
        model = _linear(found, arrays, (low, width), n_targets)
    else:
        require(name == "boosted", "its trend is none")
        model = _boosted(found, arrays, (low, width), n_targets)
    return Trend(model, fitted, shift, growth)


def _linear(
    found: dict[str, Any], arrays: dict[str, AnyArray], ranges: tuple[Array, Array], n_targets: int
) -> LinearTrend:
    d = len(ranges[0])
    terms = tuple(Term(tuple(_axis(one, d) for one in term)) for term in found["terms"])
    require(all(1 <= len(term.axes) <= 2 for term in terms), "a term of its trend is none")
    basis = Basis(*ranges, terms)
    p = basis.size
    require(p <= MOST_TERMS, "its trend has too many functions")
    precision = found["precision"]
    require(type(precision) is float and 0 < precision < np.inf, "its trend has no precision")
    require(type(found["kriged"]) is bool, "kriged is not true or false")
    require(isinstance(found["kernel"], str), "the kernel of its trend is no text")
    kernel = split_noise(parse_kernel(found["kernel"]))
    kernel.check_columns(d)
    sizes = floats(arrays, "trend_sizes", (len(terms),))
    require(np.all(sizes >= 0), "the variance of a term is negative")
    return LinearTrend(
        Form(found["name"], basis, precision),
        read_only(floats(arrays, "trend_coefficients", (p, n_targets))),
        read_only(floats(arrays, "trend_root", (len(arrays["trend_root"]) and p, p))),
        read_only(sizes),
        found["kriged"],
        kernel,
    )


def _axis(found: Any, d: int) -> Axis:
    column, knots, degree = found
    numbers = all(type(one) is float for one in knots)
    require(
        type(column) is int
        and 0 <= column < d
        and type(degree) is int
        and 1 <= degree <= CUBIC
        and numbers
        and len(knots) != 1
        and len(knots) <= MOST_TERMS,
        "a term of its trend is none",
    )
    rising = np.all(np.diff(knots) > 0) and np.all(np.isfinite(knots))
    require(rising, "the knots of its trend do not rise")
    return Axis(column, tuple(knots), degree)


def _boosted(
    found: dict[str, Any], arrays: dict[str, AnyArray], ranges: tuple[Array, Array], n_targets: int
) -> FoldTrend:
    folds, baselines, explained = found["folds"], found["baselines"], found["explained"]
    require(type(folds) is int and 1 <= folds <= MOST_FOLDS, "its trend has no folds")
    numbers = [*baselines, explained]
    require(
        all(type(one) is float and np.isfinite(one) for one in numbers), "its trend is no number"
    )
    trees, nodes = (indices(arrays, f"trend_{name}", MOST_NODES) for name in ("trees", "nodes"))
    counts = {folds * n_targets, len(trees), len(nodes), len(baselines)}
    require(len(counts) == 1, "its trees are not as many as it says")
    require(explained >= 0, "its trend explains a negative variance")
    roots = np.split(indices(arrays, "trend_roots", MOST_NODES), np.cumsum(trees)[:-1])
    columns = [
        np.split(indices(arrays, f"trend_{name}", MOST_NODES), np.cumsum(nodes)[:-1])
        for name in NODES
    ]
    total = int(nodes.sum())
    values = [
        np.split(floats(arrays, f"trend_{name}", (total,)), np.cumsum(nodes)[:-1])
        for name in VALUES
    ]
    built = [
        _trees(roots[i], [one[i] for one in columns], [one[i] for one in values], baselines[i])
        for i in range(len(trees))
    ]
    d = len(ranges[0])
    require(all(np.all(one.column < d) for one in built), "its trees ask for columns it lacks")
    models = tuple(tuple(built[i * n_targets : (i + 1) * n_targets]) for i in range(folds))
    importance = floats(arrays, "trend_importance", (d,))
    require(np.all(importance >= 0), "a column of its trend matters less than nothing")
    return FoldTrend("boosted", models, *ranges, explained, importance)


def _trees(
    roots: AnyArray, places: list[AnyArray], numbers: list[AnyArray], baseline: float
) -> Trees:
    """Trees whose nodes lead to later nodes, or to themselves: they have an end."""
    m = len(numbers[0])
    for one in places:
        require(len(one) == m, "its trees are none")
    column, left, right = places
    require(m > 0 and len(roots) > 0 and np.all(roots < m), "its trees have no roots")
    own = np.arange(m)
    leaf = (left == own) & (right == own)
    later = (left > own) & (right > own) & (left < m) & (right < m)
    require(np.all(leaf | later), "its trees do not end")
    threshold, value = numbers
    children = np.column_stack([left, right])
    return Trees(roots, column, threshold, value, children, baseline)
