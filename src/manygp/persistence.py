"""A fitted model as a manifest and arrays, and back: plain data, checked before it is used.

Factors are not kept: they are many times larger than the rows, and computed again they are the
same, bit for bit.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from manygp import container
from manygp.budget import Plan
from manygp.committee import Layout
from manygp.container import ModelFileError
from manygp.grammar import parse_kernel, write_kernel
from manygp.kernel import Sum, White
from manygp.likelihood import TrainingData
from manygp.plain import decode, decode_all, encode, encode_all, is_number
from manygp.rules import Rules
from manygp.scaling import Scaling
from manygp.selection import Alternative, CalibrationReport, Choice
from manygp.training import Trained
from manygp.types import AnyArray, Array, IndexArray
from manygp.workshop import assemble, twins

# What may go wrong when data of any kind is taken for a model.
MISTAKES = (
    KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError,
)  # fmt: skip


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
    layout = Layout.of(
        parts.data.X * parts.metric, [parts.own[m] for m in parts.seats], parts.metric
    )
    common = parts.communication
    try:
        committee = assemble(
            parts.data,
            layout,
            [parts.fits[m] for m in parts.seats],
            lambda m: parts.neighbours[parts.seats[m]],
            None if common is None else (common, saved.trained.kernel),
            saved.trained.alone,
            saved.parameters["n_jobs"],
        )
    except ValueError as error:
        raise ModelFileError(f"{os.fspath(path)} cannot be used: {error}") from error
    return saved._replace(trained=saved.trained._replace(committee=committee))


def _understood(
    path: str | PathLike[str], manifest: dict[str, Any], arrays: dict[str, AnyArray]
) -> tuple[Saved, _Parts]:
    try:
        return _decoded(manifest, arrays)
    except MISTAKES as error:
        what = f"{type(error).__name__}: {error}" if not str(error).count(" ") else error
        raise ModelFileError(f"{os.fspath(path)} is not a valid model: {what}") from error


def _decoded(manifest: dict[str, Any], arrays: dict[str, AnyArray]) -> tuple[Saved, _Parts]:
    """What a manifest and arrays say, without a committee; anything amiss is a mistake."""
    kernel = parse_kernel(manifest["kernel"])
    _require(
        isinstance(kernel, Sum) and isinstance(kernel.right, White), "its kernel has no noise"
    )
    assert isinstance(kernel, Sum)
    parts = _parts(manifest, arrays, kernel)
    n, d = parts.data.X.shape
    n_targets = parts.data.Y.shape[1]
    columns = manifest["columns"]
    names = [columns] if isinstance(columns, int) else columns
    _require(
        columns == d or (len(set(names)) == d == len(names) and set(map(type, names)) == {str}),
        "its columns are not those of its rows",
    )
    kernel.check_columns(d)
    parameters = decode_all(manifest["parameters"])
    if "parameter_alpha" in arrays:
        parameters["alpha"] = _floats(arrays, "parameter_alpha", (n,))
    fitted = decode_all(manifest["fitted"])
    rules = Rules(**decode_all(manifest["rules"]))
    _require(all(map(callable, rules)), "its rules are none")
    nearest, alone = manifest["nearest"], manifest["alone"]
    _require(
        nearest is None or (type(nearest) is int and nearest >= 1), "it asks no expert about a row"
    )
    _require(alone is (len(parts.own) == 1), "its experts are not as many as it says")
    conformity = None
    if "conformity" in arrays:
        conformity = _floats(arrays, "conformity", (n_targets, arrays["conformity"].shape[1]))
        _require(bool(np.all(conformity >= 0)), "an error of it is negative")
    _require(manifest["table"] is None or isinstance(manifest["table"], dict), "its table is none")
    x_scaling, y_scaling = _scaling(arrays, "x", d), _scaling(arrays, "y", n_targets)
    plan = _plan(decode_all(manifest["plan"]))
    report = None if manifest["report"] is None else _report(manifest["report"])
    trained = Trained(None, Choice(rules, nearest, conformity), report, kernel, alone)  # type: ignore[arg-type]
    saved = Saved(
        parameters, fitted, columns, x_scaling, y_scaling, trained, plan, manifest["table"]
    )
    return saved, parts


def _scaling(arrays: dict[str, AnyArray], axis: str, n_columns: int) -> Scaling:
    shift, half_scale = (
        _floats(arrays, f"{axis}_{name}", (n_columns,)) for name in Scaling._fields
    )
    _require(bool(np.all(half_scale > 0)), "a scale of it is not positive")
    return Scaling(shift, half_scale)


def _parts(manifest: dict[str, Any], arrays: dict[str, AnyArray], kernel: Sum) -> _Parts:
    n, d = arrays["X"].shape
    n_targets = arrays["y"].shape[1]
    _require(n > 0 and d > 0 and n_targets > 0, "it has no rows")
    data = TrainingData(
        _floats(arrays, "X", (n, d)),
        _floats(arrays, "y", (n, n_targets)),
        _floats(arrays, "alpha", (n,)),
        manifest["constant_mean"],
    )
    _require(type(data.constant_mean) is bool, "constant_mean is not true or false")
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
    _require_memory(sum((len(a) + len(b)) ** 2 * 8 for a, b in zip(own, neighbours, strict=True)))
    values = _floats(arrays, "hyperparameters", (len(own), kernel.n_free))
    _require(bool(np.all(values > 0)), "a hyperparameter of it is not positive")
    kernels: dict[bytes, Sum] = {}  # those that are equal are one
    fits = []
    counts = _indices(arrays, "evaluations", 2**31)
    for one, count in zip(values, counts, strict=True):
        shared = kernels.setdefault(one.tobytes(), kernel.with_values(one.tolist()))
        fits.append((shared, int(count)))
    metric = _floats(arrays, "metric", (d,))
    seats = _indices(arrays, "seats", len(own))
    _require(set(seats.tolist()) == set(range(len(own))), "an expert of it has no seat")
    common = None
    if "communication" in arrays:
        common = _indices(arrays, "communication", n)
        _require(len(np.unique(common)) == len(common) > 0, "it communicates a row twice")
    return _Parts(data, own, neighbours, fits, metric, seats, common)


def _require(fact: bool, otherwise: str) -> None:
    if not fact:
        raise ValueError(otherwise)


def _require_memory(needed: int) -> None:
    """Refuse factors that are larger than the machine's memory."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return
    _require(
        needed <= memory,
        f"its factors would need {needed / 1e9:.3g} GB, and there are {memory / 1e9:.3g} GB",
    )


def _integers(values: Any) -> AnyArray:
    found = np.asarray(values)
    if found.size and int(found.max()) >= 2**31:
        raise ValueError("a model of more than 2^31 rows cannot be saved")
    return found.astype(np.int32)


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
    _require(plain and numbers, "its report is none")
    return CalibrationReport(chosen, alternatives, n_rows)
