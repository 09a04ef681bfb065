"""Checks of the arrays of a file: a ValueError says which one is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from manygp.arrays import LARGEST, AnyArray, Array, IndexArray

# Numbers of a large array that are looked at together.
CHECKED_NUMBERS = 2**22


def require(fact: object, otherwise: str) -> None:
    """Refuse a file of which something is not a fact."""
    if not fact:
        raise ValueError(otherwise)


def shape_of(arrays: dict[str, AnyArray], name: str) -> tuple[int, int]:
    rows, *columns = arrays[name].shape
    require(len(columns) == 1, f"{name} has no columns")
    return rows, columns[0]


def every(fact: Callable[[Any], Any], array: AnyArray) -> bool:
    """Whether a fact holds for all numbers of an array, which may be larger than memory."""
    step = max(1, CHECKED_NUMBERS * len(array) // max(1, array.size))
    return all(np.all(fact(array[i : i + step])) for i in range(0, len(array), step))


def floats(arrays: dict[str, AnyArray], name: str, shape: tuple[int, ...]) -> Array:
    array = arrays[name]
    if array.dtype != np.float64 or array.shape != shape or not every(np.isfinite, array):
        raise ValueError(f"{name} must hold finite numbers of shape {shape}")
    return array


def bounded(arrays: dict[str, AnyArray], name: str, shape: tuple[int, ...]) -> Array:
    """Numbers whose squares do not overflow."""
    numbers = floats(arrays, name, shape)
    require(every(lambda x: np.abs(x) <= LARGEST, numbers), f"squares of {name} overflow")
    return numbers


def integers_below(arrays: dict[str, AnyArray], name: str, end: int) -> AnyArray:
    """Integers (n,) as they are in the file."""
    array = arrays[name]
    whole = array.dtype == np.int32 and array.ndim == 1
    if not (whole and every(lambda x: (x >= 0) & (x < end), array)):
        raise ValueError(f"{name} must hold integers from 0 to {end - 1}")
    return array


def indices(arrays: dict[str, AnyArray], name: str, end: int) -> IndexArray:
    return integers_below(arrays, name, end).astype(np.intp)


def integers(values: AnyArray) -> AnyArray:
    """Integers as a file holds them."""
    if values.size and int(values.max()) >= 2**31:
        raise ValueError("a model of more than 2^31 rows cannot be saved")
    return values.astype(np.int32)
