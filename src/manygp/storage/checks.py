"""What the arrays of a file must be: a ValueError says what is not."""

from __future__ import annotations

import numpy as np

from manygp.arrays import AnyArray, Array, IndexArray


def require(fact: object, otherwise: str) -> None:
    """Refuse a file of which something is not a fact."""
    if not fact:
        raise ValueError(otherwise)


def shape_of(arrays: dict[str, AnyArray], name: str) -> tuple[int, int]:
    rows, *columns = arrays[name].shape
    require(len(columns) == 1, f"{name} has no columns")
    return rows, columns[0]


def floats(arrays: dict[str, AnyArray], name: str, shape: tuple[int, ...]) -> Array:
    found = arrays[name]
    if found.dtype != np.float64 or found.shape != shape or not np.all(np.isfinite(found)):
        raise ValueError(f"{name} must hold finite numbers of shape {shape}")
    return found


def indices(arrays: dict[str, AnyArray], name: str, end: int) -> IndexArray:
    found = arrays[name]
    if found.dtype != np.int32 or found.ndim != 1 or np.any((found < 0) | (found >= end)):
        raise ValueError(f"{name} must hold integers from 0 to {end - 1}")
    return found.astype(np.intp)
