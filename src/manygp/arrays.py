"""Names of array types."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
IndexArray: TypeAlias = npt.NDArray[np.intp]
AnyArray: TypeAlias = npt.NDArray[Any]


def read_only(array: AnyArray) -> AnyArray:
    """The same numbers, in an array that refuses to be written to."""
    view = array.view()
    view.flags.writeable = False
    return view
