"""A fitted model as a manifest and arrays, and back: plain data, checked before it is used.

Factors are not kept: they are many times larger than the rows, and computed again they are the
same, bit for bit.
"""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from manygp.arrays import AnyArray, Array, IndexArray
from manygp.committee.committee import Committee
from manygp.committee.layout import Layout
from manygp.gp.expert import SINGLE_ROWS
from manygp.gp.likelihood import TrainingData
from manygp.kernels.base import Kernel, Sum, split_noise
from manygp.kernels.text import parse_kernel, write_kernel
from manygp.rules.combine import Rules
from manygp.runtime.memory import physical_memory
from manygp.scaling import Scaling
from manygp.storage import container
from manygp.storage.codec import NAMED, decode, decode_all, encode, encode_all, is_number, is_rule
from manygp.storage.container import ModelFileError
from manygp.training.budget import Plan
from manygp.training.builder import assemble, twins
from manygp.training.pipeline import Trained
from manygp.training.search import Alternative, CalibrationReport, Choice
from manygp.validation import LARGEST

# What may go wrong when data of any kind is taken for a model.
MISTAKES = (
    LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError,
    MemoryError, Warning,
)  # fmt: skip
# The parameters of fit that predictions may depend on, and jobs that no machine has.
FITTED = ("calibration", "weighting", "temperature", "aggregation", "routing")
MOST_JOBS = 1024


class Saved(NamedTuple):
    """All that there is to know about a fitted model.

    Attributes
    ----------
    parameters, fitted : dict
        Those of the estimator, and those of fit that predictions may still depend on.
    columns : list of str, or int
        Names of the columns of X, or their number.
    x_scaling, y_scaling : Scaling
    trained : Trained
    plan : Plan
    table : dict or None
        How the columns of a table become those of X, for the command line.
    """

    parameters: dict[str, Any]
    fitted: dict[str, Any]
    columns: list[str] | int
    x_scaling: Scaling
    y_scaling: Scaling
    trained: Trained
    plan: Plan
    table: dict[str, Any] | None


class _Parts(NamedTuple):
    """What a file says of the committee, checked, before anything is computed."""

    data: TrainingData
    own: list[IndexArray]
    neighbours: list[IndexArray]
    fits: list[tuple[Sum, int]]
    metric: Array
    seats: IndexArray
    communication: IndexArray | None


def write(path: str | PathLike[str], saved: Saved) -> None:
    """Write a model file, whole or not at all."""
    committee, choice, report, kernel, alone = saved.trained
    data = committee.training_data()
    places = twins(committee.layout.parts)
    distinct = list(dict.fromkeys(places))
    experts = [committee.experts[m] for m in distinct]
    arrays: dict[str, AnyArray] = {
        "X": data.X,
        "y": data.Y,
        "alpha": data.alpha,
        "x_shift": saved.x_scaling.shift,
        "x_half_scale": saved.x_scaling.half_scale,
        "y_shift": saved.y_scaling.shift,
        "y_half_scale": saved.y_scaling.half_scale,
        "metric": committee.layout.metric,
        "hyperparameters": np.array([expert.kernel.values for expert in experts]),
        "evaluations": _integers([expert.n_evaluations for expert in experts]),
        "own": _integers(np.concatenate([expert.indices for expert in experts])),
        "own_sizes": _integers([len(expert.indices) for expert in experts]),
        "neighbours": _integers(np.concatenate([expert.neighbours for expert in experts])),
        "neighbours_sizes": _integers([len(expert.neighbours) for expert in experts]),
        "seats": _integers([distinct.index(m) for m in places]),
    }
    if committee.communication is not None:
        arrays["communication"] = _integers(committee.communication.indices)
    if choice.conformity is not None:
        arrays["conformity"] = choice.conformity
    parameters = dict(saved.parameters)
    if np.ndim(parameters["alpha"]):
        arrays["parameter_alpha"] = np.asarray(parameters["alpha"], dtype=float)
        parameters["alpha"] = None
    manifest = {
        "manygp": version("manygp"),
        "parameters": encode_all(parameters),
        "fitted": encode_all(saved.fitted),
        "columns": saved.columns,
        "kernel": write_kernel(kernel),
        "constant_mean": data.constant_mean,
        "alone": alone,
        "rules": encode_all(choice.rules._asdict()),
        "nearest": choice.nearest,
        "report": None if report is None else _encode_report(report),
        "plan": encode_all(saved.plan._asdict()),
        "table": saved.table,
    }
    try:  # what could not be read shall not be written
        _decoded(json.loads(json.dumps(manifest)), arrays)
    except ValueError as error:
        raise ValueError(f"the model cannot be saved: {error}") from error
    container.write(path, manifest, arrays)


def check(path: str | PathLike[str]) -> dict[str, Any]:
    """The manifest of a file in which everything is as it must be; nothing is computed."""
    manifest, arrays = container.read(path)
    _understood(path, manifest, arrays)
    return manifest


def read(path: str | PathLike[str]) -> Saved:
    """The model in a file.

    Raises
    ------
    ModelFileError
        If it is damaged, altered, written by a newer version, or no model file at all.
    """
    saved, parts = _understood(path, *container.read(path))
    try:
        with np.errstate(all="ignore"):
            committee = _assembled(saved, parts)
    except MISTAKES as error:
        raise ModelFileError(f"{os.fspath(path)} cannot be used: {_reason(error)}") from error
    return saved._replace(trained=saved.trained._replace(committee=committee))


def _assembled(saved: Saved, parts: _Parts) -> Committee:
    """The committee, with factors."""
    layout = Layout.of(
        parts.data.X * parts.metric, [parts.own[m] for m in parts.seats], parts.metric
    )
    common = parts.communication
    committee = assemble(
        parts.data,
        layout,
        [parts.fits[m] for m in parts.seats],
        lambda m: parts.neighbours[parts.seats[m]],
        None if common is None else (common, saved.trained.kernel),
        saved.trained.alone,
        saved.parameters["n_jobs"],
    )
    scaling = saved.y_scaling
    numbers = [layout.centres, parts.data.Y * scaling.half_scale + scaling.shift / 2]
    members = [*committee.experts, *([committee.communication] if committee.communication else [])]
    for expert in {id(one): one for one in members}.values():
        std = np.sqrt(expert.kernel.diag(expert.X))
        numbers += [expert.whitener, expert.coefficients, std.max() * scaling.scale]
    _require(all(np.isfinite(one).all() for one in numbers), "its numbers are beyond all bounds")
    return committee


def _understood(
    path: str | PathLike[str], manifest: dict[str, Any], arrays: dict[str, AnyArray]
) -> tuple[Saved, _Parts]:
    try:
        return _decoded(manifest, arrays)
    except MISTAKES as error:
        raise ModelFileError(
            f"{os.fspath(path)} is not a valid model: {_reason(error)}"
        ) from error


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"it lacks {error}"
    return str(error) or "it does not fit into memory"  # only that one says nothing


def _decoded(manifest: dict[str, Any], arrays: dict[str, AnyArray]) -> tuple[Saved, _Parts]:
    """What a manifest and arrays say, without a committee; anything amiss is a mistake."""
    _require(isinstance(manifest["kernel"], str), "its kernel is no text")
    kernel = parse_kernel(manifest["kernel"])
    _require(split_noise(kernel) == kernel, "its kernel does not end with its noise")
    assert isinstance(kernel, Sum)
    parts = _parts(manifest, arrays, kernel)
    n, d = parts.data.X.shape
    n_targets = parts.data.Y.shape[1]
    columns = manifest["columns"]
    names = isinstance(columns, list) and all(isinstance(name, str) for name in columns)
    _require(
        len(columns) == d if names else type(columns) is int and columns == d,
        "its columns are not those of its rows",
    )
    kernel.check_columns(d)
    parameters = _parameters(manifest["parameters"])
    if "parameter_alpha" in arrays:
        parameters["alpha"] = _floats(arrays, "parameter_alpha", (n,))
    fitted = _parameters(manifest["fitted"])
    _require({*FITTED, "n_jobs"} <= parameters.keys() and {*FITTED} == fitted.keys(),
             "its parameters are not those of a model")  # fmt: skip
    rules = Rules(**decode_all(manifest["rules"]))
    for kind, rule in rules._asdict().items():
        _require(is_rule(kind, rule), f"its {kind} is no such rule")
    nearest, alone = manifest["nearest"], manifest["alone"]
    _require(
        nearest is None or (type(nearest) is int and nearest >= 1), "it asks no expert about a row"
    )
    _require(alone is (len(parts.own) == 1), "its experts are not as many as it says")
    conformity = None
    if "conformity" in arrays:
        conformity = _floats(arrays, "conformity", (n_targets, _shape(arrays, "conformity")[1]))
        _require(bool(np.all(np.diff(conformity, prepend=0.0) >= 0)), "its errors are not sorted")
    _require(_is_table(manifest["table"]), "its table is none")
    x_scaling, y_scaling = _scaling(arrays, "x", d), _scaling(arrays, "y", n_targets)
    plan = _plan(decode_all(manifest["plan"]))
    report = None if manifest["report"] is None else _report(manifest["report"])
    trained = Trained(None, Choice(rules, nearest, conformity), report, kernel, alone)  # type: ignore[arg-type]
    saved = Saved(
        parameters, fitted, columns, x_scaling, y_scaling, trained, plan, manifest["table"]
    )
    return saved, parts


def _parameters(found: dict[str, Any]) -> dict[str, Any]:
    parameters = decode_all(found)
    for name, value in parameters.items():
        if name == "kernel":
            right = value is None or isinstance(value, Kernel)
        elif name in NAMED:
            right = isinstance(value, str) or is_rule(name, value)
        elif name == "n_jobs":
            right = value is None or (type(value) is int and 0 < abs(value) <= MOST_JOBS)
        else:
            right = not callable(value)
        _require(right, f"{name[:50]}={str(value)[:50]} is no such parameter")
    return parameters


def _scaling(arrays: dict[str, AnyArray], axis: str, n_columns: int) -> Scaling:
    shift, half_scale = (
        _floats(arrays, f"{axis}_{name}", (n_columns,)) for name in Scaling._fields
    )
    normal = (half_scale >= np.finfo(float).tiny) & (half_scale <= np.finfo(float).max / 2)
    _require(bool(np.all(normal)), "a scale of it is not positive")
    return Scaling(shift, half_scale)


def _parts(manifest: dict[str, Any], arrays: dict[str, AnyArray], kernel: Sum) -> _Parts:
    (n, d), (_, n_targets) = _shape(arrays, "X"), _shape(arrays, "y")
    _require(n > 0 and d > 0 and n_targets > 0, "it has no rows")
    metric = _floats(arrays, "metric", (d,))
    data = TrainingData(
        _floats(arrays, "X", (n, d)),
        _floats(arrays, "y", (n, n_targets)),
        _floats(arrays, "alpha", (n,)),
        manifest["constant_mean"],
    )
    _require(type(data.constant_mean) is bool, "constant_mean is not true or false")
    for name, one, most in (
        ("X", data.X, LARGEST), ("y", data.Y, LARGEST), ("metric", metric, LARGEST**0.5),
    ):  # fmt: skip
        _require(bool(np.all(np.abs(one) <= most)), f"squares of {name} overflow")
    _require(bool(np.all(data.alpha >= 0)), "a noise variance of it is negative")
    own, neighbours = (_split(arrays, name, n) for name in ("own", "neighbours"))
    _require(0 < len(own) == len(neighbours), "its experts differ in number")
    seen = np.zeros(n, dtype=bool)
    for rows, others in zip(own, neighbours, strict=True):
        _require(len(rows) > 0, "an expert of it has no rows")
        _require(len(np.unique(np.concatenate([rows, others]))) == len(rows) + len(others),
                 "an expert of it knows a row twice")  # fmt: skip
        seen[rows] = True
    _require(bool(seen.all()), "a row of it has no expert")
    values = _floats(arrays, "hyperparameters", (len(own), kernel.n_free))
    _require(bool(np.all(values > 0)), "a hyperparameter of it is not positive")
    kernels: dict[bytes, Sum] = {}  # those that are equal are one
    fits = []
    counts = _indices(arrays, "evaluations", 2**31)
    _require(len(counts) == len(own), "its evaluations are not those of its experts")
    for one, count in zip(values, counts, strict=True):
        shared = kernels.setdefault(one.tobytes(), kernel.with_values(one.tolist()))
        fits.append((shared, int(count)))
    seats = _indices(arrays, "seats", len(own))
    _require(set(seats.tolist()) == set(range(len(own))), "an expert of it has no seat")
    _require(len(seats) <= n, "it has more seats than rows")
    common = None
    if "communication" in arrays:
        common = _indices(arrays, "communication", n)
        _require(len(np.unique(common)) == len(common) > 0, "it communicates a row twice")
    known = [len(a) + len(b) for a, b in zip(own, neighbours, strict=True)]
    _require_memory([*known, 0 if common is None else len(common)], d + n_targets + 1)
    return _Parts(data, own, neighbours, fits, metric, seats, common)


def _is_table(table: Any) -> bool:
    """Whether it can be what the command line keeps; what it says is checked where it is used."""
    match table:
        case None | {"target": str(), "columns": list()}:
            return True
    return False


def _require(fact: bool, otherwise: str) -> None:
    if not fact:
        raise ValueError(otherwise)


def _require_memory(known: list[int], n_columns: int) -> None:
    """Refuse experts of so many rows each that are larger than the machine's memory."""
    memory = physical_memory()
    # Factors may be in single precision, but not while the largest is computed.
    sizes = (k * (k * (4 if k >= SINGLE_ROWS else 8) + 8 * n_columns) for k in known)
    needed = max(8 * max(known) ** 2, sum(sizes))
    _require(
        needed <= memory,
        f"its factors would need {needed / 1e9:.3g} GB, and there are {memory / 1e9:.3g} GB",
    )


def _integers(values: Any) -> AnyArray:
    found = np.asarray(values)
    if found.size and int(found.max()) >= 2**31:
        raise ValueError("a model of more than 2^31 rows cannot be saved")
    return found.astype(np.int32)


def _shape(arrays: dict[str, AnyArray], name: str) -> tuple[int, int]:
    rows, *columns = arrays[name].shape
    _require(len(columns) == 1, f"{name} has no columns")
    return rows, columns[0]


def _floats(arrays: dict[str, AnyArray], name: str, shape: tuple[int, ...]) -> Array:
    found = arrays[name]
    if found.dtype != np.float64 or found.shape != shape or not np.all(np.isfinite(found)):
        raise ValueError(f"{name} must hold finite numbers of shape {shape}")
    return found


def _indices(arrays: dict[str, AnyArray], name: str, end: int) -> IndexArray:
    found = arrays[name]
    if found.dtype != np.int32 or found.ndim != 1 or np.any((found < 0) | (found >= end)):
        raise ValueError(f"{name} must hold integers from 0 to {end - 1}")
    return found.astype(np.intp)


def _split(arrays: dict[str, AnyArray], name: str, n: int) -> list[IndexArray]:
    rows, sizes = _indices(arrays, name, n), _indices(arrays, f"{name}_sizes", n + 1)
    _require(int(sizes.sum()) == len(rows), f"{name} is longer or shorter than its sizes say")
    return np.split(rows, np.cumsum(sizes)[:-1])


def _plan(found: dict[str, Any]) -> Plan:
    plan = Plan(**found)
    numbers = [*plan.pulls, *plan.overlaps, *plan[3:], plan.points_per_expert]
    _require(bool(plan.overlaps) and all(map(is_number, numbers)), "its plan is none")
    return plan


def _encode_report(report: CalibrationReport) -> dict[str, Any]:
    rows = [encode("alternatives", list(one)) for one in report.alternatives]
    return {"chosen": encode_all(report.chosen), "alternatives": rows, "n_rows": report.n_rows}


def _report(found: dict[str, Any]) -> CalibrationReport:
    chosen, n_rows = decode_all(found["chosen"]), found["n_rows"]
    alternatives = tuple(Alternative(*decode(one)) for one in found["alternatives"])
    values = [*chosen.values(), *(one.value for one in alternatives)]
    plain = all(one is None or isinstance(one, str) or is_number(one) for one in values)
    numbers = all(map(is_number, [n_rows, *(one.nll for one in alternatives)]))
    marked = all(isinstance(a.parameter, str) and type(a.chosen) is bool for a in alternatives)
    _require(plain and numbers and marked, "its report is none")
    return CalibrationReport(chosen, alternatives, n_rows)
