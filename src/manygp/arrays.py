"""Names of array types, and the largest number that is computed with."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
IndexArray: TypeAlias = npt.NDArray[np.intp]
AnyArray: TypeAlias = npt.NDArray[Any]

# Squares of larger numbers, over a small length-scale, overflow.
LARGEST = 1e100
