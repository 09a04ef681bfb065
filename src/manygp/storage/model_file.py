"""A fitted model as a manifest and arrays, and back: plain data, checked before it is used.

Factors are not kept: they are many times larger than the rows, and computed again, when they are
first needed, they are the same, bit for bit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib.metadata import version
from numbers import Integral
from os import PathLike
from typing import Any, TypeVar

import numpy as np

from manygp import answers
from manygp.arrays import AnyArray
from manygp.calibration import ConformalScores, LeftOutErrors
from manygp.checks import bounded, floats, indices, integers, require, shape_of
from manygp.fit_report import Alternative, CalibrationReport, Plan
from manygp.gp.marginal_likelihood import L_BFGS, TrainingData
from manygp.inputs import Scaling
from manygp.kernels.base import Kernel, Sum, split_noise
from manygp.kernels.mixed import MixedKernel
from manygp.kernels.text import parse_kernel, write_kernel
from manygp.model import LEFT_OUT_BY, REASONS, FittedModel, Room, Updates
from manygp.noise import LocalNoise
from manygp.rules import PredictionRules
from manygp.settings import PRIOR_MEANS, RULE_PARAMETERS, Settings
from manygp.steps import Step
from manygp.storage import container
from manygp.storage.codec import (
    NAMED,
    decode,
    decode_all,
    encode,
    encode_all,
    is_number,
    is_rule,
)
from manygp.storage.container import ModelFileError
from manygp.storage.experts import (
    Parts,
    assembled,
    describe_experts,
    describe_trend,
    read_experts,
    read_order,
    require_finite,
)
from manygp.targets import TargetTransform

# What may go wrong when data of any kind is taken for a model.
MISTAKES = (
    LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError,
    MemoryError, Warning,
)  # fmt: skip
# Jobs that no machine has.
MOST_JOBS = 1024
# Seconds or bytes that no fit needs.
LARGEST_COST = 1e18
# Groups of errors that no model has.
MOST_GROUPS = 64
# Names of schema 1 that have changed.
RENAMED = {"pull": "shrinkage", "pulls": "shrinkages"}
# What is kept of errors, and counts of what has happened since a fit.
ERRORS = ("variance", "unknown", "means")
COUNTS = (
    "next_id", "first_new", "n_learned", "largest_part", "n_errors", "n_scored", "n_refreshes",
)  # fmt: skip
# Rows that the last of these are about, at most.
MOST_RECENT = 10_000
# Parameters that older files lack.
ADDED = {
    "columns": "auto", "trend": "auto", "optimizer": L_BFGS, "n_targets": None,
    "copy_X_train": True, "noise": "auto", "target_transform": "auto", "bounds": None,
}  # fmt: skip

T = TypeVar("T")


def write_model(path: str | PathLike[str], model: FittedModel) -> None:
    """Write a model file, whole or not at all."""
    container.write(path, *describe(model))


def describe(model: FittedModel) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """The manifest and the arrays of a model."""
    arrays, parameters = _arrays(model), _plain_parameters(model)
    if np.ndim(parameters["alpha"]):
        arrays["parameter_alpha"] = np.asarray(parameters["alpha"], dtype=float)
        parameters["alpha"] = None
    rules = model.chosen._asdict()
    nearest, tapered = rules.pop("nearest"), rules.pop("tapered")
    manifest = {
        "manygp": version("manygp"),
        "parameters": encode_all(parameters),
        "fitted": encode_all(dict(model.fitted_with)),
        "columns": model.columns if isinstance(model.columns, int) else list(model.columns),
        "kernel": write_kernel(model.kernel),
        "constant_mean": model.committee.experts[0].constant_mean,
        "alone": model.committee.is_single,
        "rules": encode_all(rules),
        "nearest": nearest,
        "tapered": tapered,
        "report": None if model.report is None else _encode_report(model.report),
        "plan": encode_all(model.plan._asdict()),
        "table": _encode_table(model),
        "trend": None,
        "target_transform": None,
        "step": None if model.step is None else encode_all(model.step.to_json()),
        "whole": model.whole,
        "left_out_by": model.left_out_by,
    }
    if model.target_transform is not None:
        manifest["target_transform"] = encode_all(model.target_transform.to_json())
    if model.updates is not None:
        counts = {name: getattr(model.updates, name) for name in COUNTS}
        manifest["updates"] = {**counts, "reason": model.updates.reason}
    if model.committee.trend is not None:
        manifest["trend"], more = describe_trend(model.committee.trend)
        arrays |= more
    try:  # what could not be read shall not be written
        _decoded(json.loads(json.dumps(manifest)), arrays)
        with np.errstate(over="ignore"):
            data = model.committee.training_data()
            require_finite(model.committee, data, model.x_scaling, model.y_scaling)
    except ValueError as error:
        raise ValueError(f"the model cannot be saved: {error}") from error
    return manifest, arrays


def _arrays(model: FittedModel) -> dict[str, AnyArray]:
    arrays = describe_experts(model)
    for axis, scaling in (("x", model.x_scaling), ("y", model.y_scaling)):
        arrays |= {f"{axis}_{name}": one for name, one in scaling._asdict().items()}
    if model.conformal_scores is not None:
        scores = model.conformal_scores
        arrays["conformity"], arrays["conformity_places"] = scores.errors, scores.places
        arrays["conformity_shaped"] = np.array([int(scores.shaped)], dtype=np.int32)
        arrays["conformity_by_mean"] = np.array([int(scores.by_mean)], dtype=np.int32)
    if model.cross_validated is not None:
        arrays["honest"] = model.cross_validated
    if model.noise is not None:
        arrays |= model.noise.to_file()
    if model.errors is not None:  # their squares and known noise are those of their rows
        arrays["errors_rows"] = integers(model.errors.rows)
        arrays |= {f"errors_{name}": getattr(model.errors, name) for name in ERRORS}
        if model.left_out_by != "row":  # unknown categories are part of it
            arrays["errors_alpha"] = model.errors.alpha
    if model.updates is not None:
        arrays["updates_recent"] = np.nan_to_num(model.updates.recent, nan=-1.0)
        arrays["updates_evidence"] = model.updates.evidence
    if (
        model.encoder is not None
        and model.encoder.codes_ is not None
        and model.encoder.codes_.size
    ):
        arrays["codes"] = model.encoder.codes_
    return arrays


def _plain_parameters(model: FittedModel) -> dict[str, Any]:
    """The parameters, without what has gone by or is not ours."""
    parameters = model.settings.parameters
    parameters["kernel"] = model.settings.own_kernel(model.n_columns)
    if not isinstance(parameters["random_state"], Integral):
        parameters["random_state"] = None  # that of a generator has gone by
    if not isinstance(parameters["columns"], str):
        parameters["columns"] = "auto"  # the encoder is kept as it was fitted
    if np.ndim(parameters["alpha"]) and model.updates is not None:
        parameters["alpha"] = 0.0  # it was that of the rows of fit; the rows have theirs
    return parameters


def check_savable(settings: Settings) -> None:
    """Refuse settings that a file cannot hold, before a long fit."""
    parameters = settings.parameters
    for name in ("kernel", "random_state", "alpha", "columns"):  # kept in other ways
        parameters.pop(name)
    try:
        encode_all(parameters)
    except ValueError as error:
        raise ValueError(f"the model could not be saved: {error}") from error


def check_model(path: str | PathLike[str]) -> dict[str, Any]:
    """The manifest of a file in which everything is as it must be; nothing is computed."""
    manifest, arrays = container.read(path)
    read_checked(path, "is not a valid model", lambda: _decoded(manifest, arrays))
    return manifest


def read_model(path: str | PathLike[str]) -> FittedModel:
    """The model in a file.

    Raises
    ------
    ModelFileError
        If it is damaged, altered, written by a newer version, or no model file at all.
    """
    return model_of(path, *container.read(path))


def model_of(
    path: str | PathLike[str], manifest: dict[str, Any], arrays: dict[str, AnyArray]
) -> FittedModel:
    """The model of a manifest and arrays; a ModelFileError names the path."""
    described, parts = read_checked(
        path, "is not a valid model", lambda: _decoded(manifest, arrays)
    )

    def build() -> FittedModel:
        with np.errstate(all="ignore"):
            model = FittedModel(committee=assembled(described, parts), **described)
            return answers.queried_by(model, model.settings)

    return read_checked(path, "cannot be used", build)


def read_checked(path: str | PathLike[str], what: str, step: Callable[[], T]) -> T:
    """The result of a step, whose mistakes are those of the file."""
    try:
        return step()
    except MISTAKES as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        reason = reason or "it does not fit into memory"  # only that one has no message
        raise ModelFileError(f"{os.fspath(path)} {what}: {reason}") from error


def _decoded(
    manifest: dict[str, Any], arrays: dict[str, AnyArray]
) -> tuple[dict[str, Any], Parts]:
    """The fields of a model but its committee, and the parts of which that is built."""
    require("emulator" not in manifest, "it is an emulator, which ManyGPEmulator.load reads")
    require(isinstance(manifest["kernel"], str), "its kernel must be a text")
    parsed = parse_kernel(manifest["kernel"])
    kernel = split_noise(parsed)
    mixed = isinstance(kernel, MixedKernel)
    plain = mixed or _sides(parsed) == (kernel.signal, kernel.noise)
    require(plain, "its kernel does not end with its noise")
    parts = read_experts(manifest, arrays, kernel)
    n_targets = parts.data.residuals.shape[1]
    require(manifest["alone"] is (len(parts.own) == 1), "its experts are not as many as it says")
    cross_validated = noise = None
    if "noise_rows" in arrays:
        n, d = parts.data.X.shape
        noise = LocalNoise.from_file(arrays, n, (d, n_targets))
    if "honest" in arrays:
        cross_validated = floats(arrays, "honest", (n_targets + 1, len(parts.data.X)))
        require(np.all(cross_validated[-1] > 0), "a std is not positive")
    columns = _columns(manifest["columns"], parts.data.X.shape[1])
    target, encoder = _table(manifest["table"])
    if encoder is not None:
        require(encoder.names == columns, "the columns of its table are not those of its rows")
        encoder.codes_ = _codes(arrays, len(parts.data.X), encoder)
    transform = manifest.get("target_transform")  # files of before have none
    if transform is not None:
        transform = TargetTransform.from_json(decode_all(transform), n_targets)
    step, whole = manifest.get("step"), manifest.get("whole", False)
    if step is not None:
        require(n_targets == 1, "a step is for one target")
        step = Step.from_json(decode_all(step))
    require(isinstance(whole, bool), "whole is no truth value")
    settings, fitted_with = _settings(manifest, arrays, len(parts.data.X))
    errors = _errors(arrays, parts.data)
    if errors is not None and noise is not None:
        require(np.array_equal(errors.rows, noise.rows), "its noise is not that of its errors")
    rules = _rules(manifest)
    described = {
        "settings": settings,
        "fitted_with": fitted_with,
        "columns": columns,
        "x_scaling": _scaling(arrays, "x", parts.data.X.shape[1]),
        "y_scaling": _scaling(arrays, "y", n_targets),
        "kernel": kernel,
        "chosen": rules,
        "rules": rules,
        "conformal_scores": _conformal_scores(arrays, n_targets),
        "cross_validated": cross_validated,
        "noise": noise,
        "order": read_order(arrays, len(parts.data.X)),
        "report": None if manifest["report"] is None else _report(manifest["report"]),
        "plan": _plan(decode_all(manifest["plan"])),
        "encoder": encoder,
        "target": target,
        "target_transform": transform,
        "step": step,
        "whole": whole,
        "errors": errors,
        "updates": _updates(manifest.get("updates"), arrays),
        "left_out_by": _left_out_by(manifest.get("left_out_by", "row"), errors),
    }
    return described, parts


def _left_out_by(stored: Any, errors: LeftOutErrors | None) -> str:
    """How rows were left out; older files have left out each by itself."""
    require(stored in LEFT_OUT_BY, "it does not say how rows were left out")
    if stored != "row":
        is_sorted = errors is not None and bool(np.all(np.diff(errors.rows) > 0))
        require(is_sorted, "its errors are not in the order of rows")
    return str(stored)


def _errors(arrays: dict[str, AnyArray], data: TrainingData) -> LeftOutErrors | None:
    """What was predicted for rows that were left out; older files lack it."""
    if "errors_rows" not in arrays:
        return None
    rows = indices(arrays, "errors_rows", len(data.X))
    variance, unknown = (floats(arrays, f"errors_{name}", rows.shape) for name in ERRORS[:2])
    means = bounded(arrays, "errors_means", (data.residuals.shape[1], len(rows)))
    require(np.all(variance > 0) and np.all(unknown >= 0), "a variance is not positive")
    squares, alpha = (data.targets_of(rows).T - means) ** 2, data.alpha[rows]
    if "errors_alpha" in arrays:
        alpha = floats(arrays, "errors_alpha", rows.shape)
        require(np.all(alpha >= 0), "a known noise is negative")
    return LeftOutErrors(squares, variance, alpha, unknown, rows, means)


def _updates(stored: Any, arrays: dict[str, AnyArray]) -> Updates | None:
    """What has happened since the fit; older files, and most others, have nothing of it."""
    if stored is None:
        return None
    require(isinstance(stored, dict) and stored.keys() == {*COUNTS, "reason"}, "it lacks updates")
    counts = {name: stored[name] for name in COUNTS}
    whole = all(type(one) is int and 0 <= one < 2**53 for one in counts.values())
    require(whole and counts["n_learned"] > 0, "its updates are not counted")
    require(stored["reason"] in REASONS, "the reason of its last refresh is none")
    recent = floats(arrays, "updates_recent", (2, shape_of(arrays, "updates_recent")[1]))
    require(recent.shape[1] <= MOST_RECENT, "its last rows are too many")
    evidence = floats(arrays, "updates_evidence", (2, 2))
    require(np.all(evidence >= 0) and np.all(evidence < 2**53), "its evidence is none")
    held = np.where(recent[1] < 0, np.nan, recent[1])
    return Updates(
        **counts,
        recent=np.array([recent[0], held]),
        evidence=evidence,
        reason=stored["reason"],
        room=Room(),
    )


def _codes(arrays: dict[str, AnyArray], n: int, encoder: Any) -> AnyArray | None:
    """Categories of the training rows in columns that became means; older files lack them."""
    columns = encoder.mean_columns
    codes = arrays.get("codes", None if columns else np.empty((n, 0), dtype=np.int32))
    if codes is None:
        return None
    require(
        codes.dtype.kind == "i" and codes.shape == (n, len(columns)),
        "the categories of its rows are not those of its table",
    )
    for own, column in zip(codes.T, columns, strict=True):
        known = np.all((own >= -1) & (own < len(column.categories)))
        require(known, "a category of its rows is not one of its table")
    return codes


def _conformal_scores(arrays: dict[str, AnyArray], n_targets: int) -> ConformalScores | None:
    """The errors of rows that were left out; older files have one group of them."""
    if "conformity" not in arrays:
        return None
    m = shape_of(arrays, "conformity")[1]
    places = arrays.get("conformity_places", np.zeros(1))
    most = min(m, MOST_GROUPS)
    require(places.ndim == 1 and 1 <= len(places) <= most, "its errors have no groups")
    if "conformity_places" in arrays:
        floats(arrays, "conformity_places", places.shape)
    require(np.all(places[1:] >= places[:-1]), "the groups of its errors are not sorted")
    shaped, by_mean = (
        name in arrays and bool(indices(arrays, name, 2).any())
        for name in ("conformity_shaped", "conformity_by_mean")
    )
    errors = floats(arrays, "conformity", (n_targets, m))
    scores = ConformalScores(errors, places, shaped, by_mean)
    for group in scores.groups:
        require(np.all(np.diff(group, prepend=0.0) >= 0), "its errors are not sorted")
    return scores


def _sides(kernel: Kernel) -> tuple[Kernel, Kernel] | None:
    """The two sides of a sum."""
    return (kernel.left, kernel.right) if isinstance(kernel, Sum) else None


def _columns(columns: Any, d: int) -> tuple[str, ...] | int:
    names = isinstance(columns, list) and all(isinstance(name, str) for name in columns)
    require(
        len(columns) == d if names else type(columns) is int and columns == d,
        "its columns are not those of its rows",
    )
    return tuple(columns) if names else d


def _settings(
    manifest: dict[str, Any], arrays: dict[str, AnyArray], n: int
) -> tuple[Settings, dict[str, Any]]:
    """The parameters in force, and those that predictions depend on as they were in fit."""
    parameters, fitted = _parameters(manifest["parameters"]), _parameters(manifest["fitted"])
    if "trend" not in parameters:  # files of before have prior_mean
        parameters["trend"] = PRIOR_MEANS.get(parameters.get("prior_mean"), "auto")
        parameters["prior_mean"] = None
    if "parameter_alpha" in arrays:
        parameters["alpha"] = floats(arrays, "parameter_alpha", (n,))
    require(set(RULE_PARAMETERS) == fitted.keys(), "its parameters are not those of a model")
    parameters = {**ADDED, **parameters}
    settings = Settings(**parameters)
    require(settings.parameters.keys() == parameters.keys(), "parameters are missing")
    if settings.kernel is not None:
        split_noise(settings.kernel).check_columns(shape_of(arrays, "X")[1])
    return settings, fitted


def _rules(manifest: dict[str, Any]) -> PredictionRules:
    rules = decode_all(manifest["rules"])
    for kind, rule in rules.items():
        require(is_rule(kind, rule), f"its {kind} is not a known rule")
    nearest = manifest["nearest"]
    asked = nearest is None or (type(nearest) is int and nearest >= 1)
    require(asked, "it must ask one expert or more about a row")
    tapered = manifest.get("tapered", False)  # files of before have none
    require(type(tapered) is bool, "tapered is not true or false")
    return PredictionRules(**rules, nearest=nearest, tapered=tapered)


def _parameters(encoded: dict[str, Any]) -> dict[str, Any]:
    parameters = decode_all(encoded)
    for name, value in parameters.items():
        if name == "kernel":
            right = value is None or isinstance(value, Kernel)
        elif name in NAMED:
            right = isinstance(value, str) or is_rule(name, value)
        elif name == "n_jobs":
            right = value is None or (type(value) is int and 0 < abs(value) <= MOST_JOBS)
        else:
            right = not callable(value)
        require(right, f"{name[:50]}={str(value)[:50]} is not a value of that parameter")
    return parameters


def _scaling(arrays: dict[str, AnyArray], axis: str, n_columns: int) -> Scaling:
    shift, half_scale = (
        floats(arrays, f"{axis}_{name}", (n_columns,)) for name in Scaling._fields
    )
    normal = (half_scale >= np.finfo(float).tiny) & (half_scale <= np.finfo(float).max / 2)
    require(np.all(normal), "a scale is not positive")
    return Scaling(shift, half_scale)


def _encode_table(model: FittedModel) -> dict[str, Any] | None:
    """The target's name and the encoder, if there is one of them."""
    if model.target is None and model.encoder is None:
        return None
    encoder = None if model.encoder is None else model.encoder.to_json()
    return {"target": model.target, "encoder": encoder}


def _table(record: Any) -> tuple[str | None, Any]:
    """The target's name, and the encoder or None."""
    match record:
        case None:
            return None, None
        case {"target": None | str() as target, "encoder": None, **rest} if not rest:
            return target, None
        case {"target": None | str() as target, "encoder": dict() as encoder, **rest} if not rest:
            from manygp.tables.encoder import TableEncoder  # which imports scikit-learn

            return target, TableEncoder.from_json(encoder)
        case {"target": str() as target, "columns": list() as columns, **rest} if not rest:
            from manygp.tables.encoder import TableEncoder

            return target, TableEncoder.from_columns(columns)  # of manygp 0.1
    raise ValueError("its table must have a target and an encoder")


def _plan(record: dict[str, Any]) -> Plan:
    plan = Plan(**_renamed(record))
    counts = (plan.points_per_expert, plan.shared_rows, plan.kernels)
    costs = (plan.seconds, plan.bytes, plan.final_seconds)
    numbers = [*plan.shrinkages, *plan.overlaps, *costs]
    require(bool(plan.overlaps) and all(map(is_number, numbers)), "its plan must hold numbers")
    whole = all(type(one) is int and one >= 0 for one in counts)
    require(whole, "the rows and kernels of its plan must be counts")
    require(all(0 <= one < np.inf for one in plan.overlaps), "an overlap of its plan is negative")
    shrinkages: tuple[Any, ...] = plan.shrinkages
    require(all(one >= 0 for one in shrinkages), "a shrinkage of its plan is negative")
    known = all(np.isnan(one) or 0 <= one <= LARGEST_COST for one in costs)
    require(known, "the seconds and bytes of its plan must be positive, and not too many")
    return plan


def _renamed(record: dict[str, Any]) -> dict[str, Any]:
    """The same entries, by the names that they have now."""
    return {RENAMED.get(name, name): value for name, value in record.items()}


def _encode_report(report: CalibrationReport) -> dict[str, Any]:
    rows = [encode("alternatives", list(one)) for one in report.alternatives]
    return {"chosen": encode_all(report.chosen), "alternatives": rows, "n_rows": report.n_rows}


def _report(record: dict[str, Any]) -> CalibrationReport:
    chosen, n_rows = _renamed(decode_all(record["chosen"])), record["n_rows"]
    rows = [Alternative(*decode(one)) for one in record["alternatives"]]
    alternatives = tuple(
        one._replace(parameter=RENAMED.get(one.parameter, one.parameter)) for one in rows
    )
    values = [*chosen.values(), *(one.value for one in alternatives)]
    plain = all(one is None or isinstance(one, str) or is_number(one) for one in values)
    numbers = all(map(is_number, [n_rows, *(one.nll for one in alternatives)]))
    marked = all(isinstance(a.parameter, str) and type(a.chosen) is bool for a in alternatives)
    require(plain and numbers and marked, "its report must hold names, numbers and marks")
    return CalibrationReport(chosen, alternatives, n_rows)
