"""Parameters and rules as plain JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from manygp.committee.committee import PARTITIONS
from manygp.kernels.base import Kernel
from manygp.kernels.text import parse_kernel, write_kernel
from manygp.paper import full_parts, one_part
from manygp.rules import (
    AGGREGATIONS,
    CALIBRATIONS,
    WEIGHTINGS,
    ExpertPredictions,
    Information,
    Recalibration,
    Softmax,
    Tempered,
    VarianceCurve,
)

# Rules are known by name; those with parameters by their class and fields.
NAMED: dict[str, Mapping[str, Any]] = {
    "weighting": WEIGHTINGS,
    "calibration": CALIBRATIONS,
    "aggregation": AGGREGATIONS,
    "partition": {**PARTITIONS, "one_part": one_part, "full_parts": full_parts},
}
RECORDS: dict[str, tuple[Any, ...]] = {
    "weighting": (Softmax, Tempered),
    "calibration": (Information,),
    "recalibration": (Recalibration, VarianceCurve),
}
CLASSES: dict[str, Any] = {one.__name__: one for kinds in RECORDS.values() for one in kinds}
# The largest power of a variance, and the largest logarithm of one or of its factor.
LARGEST_POWER = 100
LARGEST_LOG = 700.0
# Variances of two experts, small and large, that a rule must leave positive and finite.
TRIAL = ExpertPredictions(
    mean=np.zeros((2, 3)),
    variance=np.tile([1e-100, 1.0, 1e100], (2, 1)),
    prior_variance=np.ones((2, 3)),
    noise_variance=np.ones((2, 1)),
    prior_mean=np.zeros((2, 1)),
)


def is_number(value: Any) -> bool:
    """Whether a value is an int or a float, and no bool."""
    return type(value) in (int, float)


def is_rule(kind: str, value: Any) -> bool:
    """Whether a value is a rule of that kind, and its numbers make sense."""
    if type(value) not in RECORDS.get(kind, ()):
        return any(value is one for one in NAMED.get(kind, {}).values())
    if isinstance(value, VarianceCurve):
        return _is_curve(value)
    if not all(map(is_number, vars(value).values())):
        return False
    if kind == "weighting":
        with np.errstate(all="ignore"):
            weights = value(TRIAL)
        return bool(value.temperature >= 0 and np.all((weights >= 0) & (weights < np.inf)))
    if isinstance(value, Recalibration):
        positive = 0 < value.scale < np.inf and 0 < value.centre < np.inf
        return bool(
            positive and abs(value.power) <= LARGEST_POWER and 0 <= value.low <= value.high
        )
    with np.errstate(all="ignore"):
        ratios = value(TRIAL)
    return bool(np.all((ratios > 0) & (ratios < np.inf)))


def _is_curve(curve: Any) -> bool:
    """Whether the points of a curve are numbers that a variance can be multiplied with."""
    points = (curve.log_variances, curve.log_factors)
    if not all(isinstance(one, tuple) and all(map(is_number, one)) for one in points):
        return False
    if len(points[0]) != len(points[1]) or not is_number(curve.known):
        return False
    increasing = np.all(np.diff(points[0]) > 0)
    bounded = np.all(np.abs([*points[0], *points[1], 0.0]) < LARGEST_LOG)
    return bool(increasing and bounded and (0 <= curve.known < 1 or curve.known == np.inf))


def encode_all(values: dict[str, Any]) -> dict[str, Any]:
    """Each value as `encode` has it."""
    return {name: encode(name, value) for name, value in values.items()}


def decode_all(values: dict[str, Any]) -> dict[str, Any]:
    """Each value as `decode` has it."""
    return {name: decode(value) for name, value in values.items()}


def encode(name: str, value: Any) -> Any:
    """Plain JSON: numbers, text, lists, and `{"what": ...}` for anything else."""
    if isinstance(value, np.generic | np.ndarray) and value.ndim == 0:
        value = value.item()
    match value:
        case float() if not np.isfinite(value):
            return {"float": str(value)}
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [encode(name, one) for one in value]
        case Kernel():
            return {"kernel": write_kernel(value)}
    if CLASSES.get(type(value).__name__) is type(value):
        return {"record": type(value).__name__, "fields": encode_all(vars(value))}
    for kind, known in NAMED.items():
        for key, rule in known.items():
            if rule is value:
                return {"rule": [kind, key]}
    raise ValueError(
        f"{name}={value!r} cannot be saved: model files hold no code, so rules must be named "
        "ones or those of manygp; pickle or joblib keep any model"
    )


def decode(value: Any) -> Any:
    """What `encode` has made plain; anything else is an error."""
    if isinstance(value, list):
        return tuple(decode(one) for one in value)
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError("an integer is too large")
    if not isinstance(value, dict):
        return value
    match value:
        case {"float": str(text)} if text in ("inf", "-inf", "nan"):
            return float(text)
        case {"kernel": str(text)}:
            return parse_kernel(text)
        case {"record": str(name), "fields": dict(fields)}:
            return CLASSES[name](**decode_all(fields))
        case {"rule": [str(kind), str(key)]}:
            return NAMED[kind][key]
    raise ValueError(f"{str(value)[:50]} has no meaning")
