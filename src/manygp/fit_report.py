"""Records of a fit: its plan, the alternatives that it compared, and its choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from manygp.kernels.base import NoisyKernel
from manygp.runtime.words import counted, duration

# Shrinkage: how firmly the experts' log-hyperparameters are held at those of the shared kernel. It
# is the precision of a Gaussian prior around these, or a function from the shared kernel to one
# precision or one per element of theta. 0 holds nothing, infinity everything.
Shrinkage: TypeAlias = float | Callable[[NoisyKernel], Any]


class NothingLearnedWarning(UserWarning):
    """Left-out rows are predicted no better than by a constant."""


class Plan(NamedTuple):
    """Plan of a fit: the choices that it may make, and their cost.

    Attributes
    ----------
    points_per_expert : int
    shrinkages : tuple
        Shrinkages of the experts' hyperparameters that may be compared.
    overlaps : tuple of float
        Overlaps that may be compared.
    shared_rows : int
        Rows of each block that the shared kernel is fitted on.
    kernels : int
        How many shared kernels are fitted: none, one, or a second one of near rows too.
    seconds : float
        How long the fit will take, as estimated.
    bytes : float
        Memory that it needs, as estimated.
    final_seconds : float
        The last of these seconds, for the experts that are kept.
    """

    points_per_expert: int
    shrinkages: tuple[Shrinkage, ...]
    overlaps: tuple[float, ...]
    shared_rows: int
    kernels: int
    seconds: float = np.nan
    bytes: float = np.nan
    final_seconds: float = np.nan

    def without_estimates(self) -> Plan:
        """The same plan without its cost, which is never the same twice."""
        return self._replace(seconds=np.nan, bytes=np.nan, final_seconds=np.nan)

    def __str__(self) -> str:
        steps = [
            f"experts of {self.points_per_expert} rows",
            f"overlap up to {max(self.overlaps):g}",
            counted(len(self.shrinkages), "shrinkage"),
        ]
        if self.kernels:
            kernels = counted(self.kernels, "shared kernel")
            steps.append(f"{kernels} from blocks of {self.shared_rows} rows")
        told = ", ".join(steps)
        if np.isnan(self.seconds):
            return told
        return f"{told}: about {duration(self.seconds)} and {self.bytes / 1e9:.2g} GB"


class Alternative(NamedTuple):
    """One value of a parameter, and the leave-one-out NLL with it, in normalised units.

    Other parameters have the values that were best at the time.
    """

    parameter: str
    value: Any
    nll: float
    chosen: bool


class CalibrationReport(NamedTuple):
    """Choices by leave-one-out, and the alternatives.

    Attributes
    ----------
    chosen : dict
        Values by parameter: shrinkage, overlap, temperature, strength, nearest, scale, power.
        (Which kernel was taken, of rows far from each other or near, only `alternatives` show.)
    alternatives : tuple of Alternative
        Those that were compared, and their scores.
    n_rows : int
        Rows that were left out in turn to choose the rules.
    """

    chosen: dict[str, Any]
    alternatives: tuple[Alternative, ...]
    n_rows: int

    def __str__(self) -> str:
        lines = [f"Chosen by leaving out {self.n_rows} rows in turn", ""]
        lines.append(f"{'parameter':<12} {'value':>10} {'NLL':>9}")
        for one in self.alternatives:
            value = f"{one.value:g}" if isinstance(one.value, float) else str(one.value)
            mark = "  <- chosen" if one.chosen else ""
            lines.append(f"{one.parameter:<12} {value:>10} {one.nll:>9.4f}{mark}")
        return "\n".join(lines)
