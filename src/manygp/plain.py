"""Parameters and rules as plain JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from manygp.aggregation import AGGREGATIONS
from manygp.calibration import CALIBRATIONS, Information, Recalibration
from manygp.grammar import parse_kernel, write_kernel
from manygp.kernel import Kernel
from manygp.partition import PARTITIONS, full_parts, one_part
from manygp.weighting import WEIGHTINGS, Softmax, Tempered

# Rules are known by name; those with parameters by their class and fields.
NAMED: dict[str, Mapping[str, Any]] = {
    "weighting": WEIGHTINGS,
    "calibration": CALIBRATIONS,
    "aggregation": AGGREGATIONS,
    "partition": {**PARTITIONS, "one_part": one_part, "full_parts": full_parts},
}
RECORDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Information, Softmax, Tempered, Recalibration)
}


def is_number(value: Any) -> bool:
    return type(value) in (int, float)


def encode_all(values: dict[str, Any]) -> dict[str, Any]:
    return {name: encode(name, value) for name, value in values.items()}


def decode_all(values: dict[str, Any]) -> dict[str, Any]:
    return {name: decode(value) for name, value in values.items()}


def encode(name: str, value: Any) -> Any:
    """Plain JSON: numbers, text, lists, and `{"what": ...}` for anything else."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [encode(name, one) for one in value]
    if isinstance(value, Kernel):
        return {"kernel": write_kernel(value)}
    if RECORDS.get(type(value).__name__) is type(value):
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
    if isinstance(value, list):
        return tuple(decode(one) for one in value)
    if not isinstance(value, dict):
        return value
    match value:
        case {"float": str(text)} if text in ("inf", "-inf", "nan"):
            return float(text)
        case {"kernel": str(text)}:
            return parse_kernel(text)
        case {"record": str(name), "fields": dict(fields)}:
            numbers = decode_all(fields)
            if not all(map(is_number, numbers.values())):
                raise ValueError(f"{name} has numbers only")
            return RECORDS[name](**numbers)
        case {"rule": [str(kind), str(key)]}:
            return NAMED[kind][key]
    raise ValueError(f"{str(value)[:50]} has no meaning")
