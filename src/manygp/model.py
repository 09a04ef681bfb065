"""FittedModel, the record that `fit` makes."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from manygp._moved import answer_as_method
from manygp.arrays import AnyArray, Array, IndexArray
from manygp.calibration import ConformalScores, LeftOutErrors
from manygp.committee.committee import Committee
from manygp.fit_report import CalibrationReport, Plan
from manygp.inputs import Scaling, read_only
from manygp.kernels.base import NoisyKernel
from manygp.noise import LocalNoise
from manygp.rules import PredictionRules
from manygp.settings import Settings
from manygp.steps import Step
from manygp.targets import TargetTransform

# Room that is made for new rows, as a share of those that there are, and at least: each row is
# then copied three times on average, however many come.
SPARE_SHARE = 0.5
LEAST_SPARE = 1000


class Room:
    """Room behind the rows of a model, in which new ones are written.

    Models of before see their own rows only. A copy or a pickle begins without room.
    """

    def __init__(self) -> None:
        self.used, self.buffers = -1, list[AnyArray]()
        self.lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Room], tuple[()]]:
        return Room, ()

    def joined(self, rows: Sequence[AnyArray], more: Sequence[AnyArray]) -> list[AnyArray]:
        """Arrays (n, ...) with further rows (k, ...) behind each.

        Where `rows` are all that was written so far, they are not copied.
        """
        n, k = len(rows[0]), len(more[0])
        with self.lock:
            own = len(self.buffers) == len(rows) and all(
                one.base is buffer for one, buffer in zip(rows, self.buffers, strict=True)
            )
            if not own or self.used != n or n + k > len(self.buffers[0]):
                size = n + k + max(LEAST_SPARE, int(SPARE_SHARE * n))
                self.buffers = [np.empty((size, *one.shape[1:]), one.dtype) for one in rows]
                for buffer, one in zip(self.buffers, rows, strict=True):
                    buffer[:n] = one
            self.used = n + k
            for buffer, one in zip(self.buffers, more, strict=True):
                buffer[n : n + k] = one
            return [read_only(buffer[: n + k]) for buffer in self.buffers]


# How training rows are left out.
LEFT_OUT_BY = ("row", "group", "time")
# Why all is learned again.
REASONS = ("", "growth", "drift", "asked")


class Updates(NamedTuple):
    """What has happened to a model since its kernel, trend and parts were learned.

    Attributes
    ----------
    next_id : int
        Number of the next row.
    first_new : int
        Number of the first row that kernel, trend and parts were not learned from.
    n_learned : int
        Rows that kernel, trend and parts were learned from.
    largest_part : int
        Rows of the largest part then.
    n_errors : int
        Errors that have come or gone since corrections and intervals were learned.
    n_scored : int
        New rows that were predicted before they were added.
    recent : ndarray of shape (2, k)
        Of the last of these: squared error in units of the std, and whether the interval held y.
    evidence : ndarray of shape (2, 2)
        That intervals hold fewer, and more, than they promise, in nats; and since how many rows.
    n_refreshes : int
    reason : str
        That of the last refresh, one of `REASONS`; empty if there was none.
    room : Room
    """

    next_id: int
    first_new: int
    n_learned: int
    largest_part: int
    n_errors: int = 0
    n_scored: int = 0
    recent: Array = np.empty((2, 0))
    evidence: Array = np.zeros((2, 2))
    n_refreshes: int = 0
    reason: str = ""
    room: Room = Room()  # a model that is updated gets its own

    @property
    def drift(self) -> Drift:
        """What new rows have said about the model."""
        square, coverage = self.recent.mean(axis=1) if self.recent.size else (np.nan, np.nan)
        worse, better = self.evidence[0].tolist()
        return Drift(
            self.n_scored,
            self.recent.shape[1],
            float(square),
            float(coverage),
            worse,
            better,
            self.n_refreshes,
            self.reason,
        )


class Drift(NamedTuple):
    """What new rows, each predicted before it was added, have said about a model.

    Attributes
    ----------
    n_scored : int
        How many there were.
    n_recent : int
        How many of them, the last ones, the next two numbers are about.
    mean_square : float
        Mean squared error in units of the std: 1 where the std is right.
    coverage : float
        Share of 90% intervals that held y; NaN for a model without calibration.
    evidence_worse, evidence_better : float
        Evidence that intervals hold 85%, or 95%, instead of 90%, in nats: CUSUM statistics. From
        9.2 on it is drift.
    n_refreshes : int
        How often all was learned again.
    reason : str
        Why it was the last time: "growth", "drift" or "asked".
    """

    n_scored: int
    n_recent: int
    mean_square: float
    coverage: float
    evidence_worse: float
    evidence_better: float
    n_refreshes: int
    reason: str


@dataclass(frozen=True, eq=False)
class FittedModel:
    """Record of a fit. Its answers are functions of `manygp.answers`.

    Attributes
    ----------
    settings : Settings
        The parameters in force; those that predictions depend on may have changed since `fit`.
    fitted_with : mapping
        What these were in `fit`.
    columns : tuple of str, or int
        Names of the columns of X, or their number.
    x_scaling, y_scaling : Scaling
    committee : Committee
    kernel : NoisyKernel
        The kernel that the experts share or started from, or that of a single expert.
    chosen, rules : PredictionRules
        The rules that `fit` chose, and those in force.
    conformal_scores : ConformalScores or None
        Errors of rows that were left out, by the chosen rules.
    report : CalibrationReport or None
        How the rules were chosen.
    plan : Plan
    cross_validated : ndarray of shape (t + 1, n), or None
        Means and std, normalised, of the training rows by experts that have learned nothing from
        them, not even hyperparameters, and by the chosen rules: of a small model of one expert.
    noise : LocalNoise or None
        How the total variance depends on the row, beyond what experts know.
    encoder : TableEncoder or None
        How the columns of a table become those of X (see `manygp.tables`), if X was a table
        that needs one.
    target : str or None
        Name of the target in its table, if it was read from one.
    order : ndarray of shape (n,), or None
        The number of each row of the committee: its place in the data, and those of rows that were
        added go on from there. None if row i has the number i.
    errors : LeftOutErrors or None
        What the committee, uncorrected, predicted for rows that were left out.
    updates : Updates or None
        What has happened since `fit`, if rows were added or forgotten.
    target_transform : TargetTransform or None
        The map T of targets that experts know, and `y_scaling` scales; None if they know y.
    step : Step or None
        The chance of a value that many targets share, and where the rest lies.
    whole : bool
        Whether all targets are whole numbers, and ends of intervals are.
    left_out_by : str
        How rows were left out, one of `LEFT_OUT_BY`: each by itself, with its group, or with all
        that came later. If it is not "row", `errors` are those of models without them.
    """

    settings: Settings
    fitted_with: Mapping[str, Any]
    columns: tuple[str, ...] | int
    x_scaling: Scaling
    y_scaling: Scaling
    committee: Committee
    kernel: NoisyKernel
    chosen: PredictionRules
    rules: PredictionRules
    conformal_scores: ConformalScores | None
    report: CalibrationReport | None
    plan: Plan
    cross_validated: Array | None = None
    noise: LocalNoise | None = None
    encoder: Any = None
    target: str | None = None
    order: IndexArray | None = None
    errors: LeftOutErrors | None = None
    updates: Updates | None = None
    target_transform: TargetTransform | None = None
    step: Step | None = None
    whole: bool = False
    left_out_by: str = "row"

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns of X, if they have names."""
        return None if isinstance(self.columns, int) else self.columns

    @property
    def n_columns(self) -> int:
        return len(self.x_scaling.shift)

    @property
    def n_targets(self) -> int:
        return len(self.y_scaling.shift)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns of X; x0, x1, ... if they have none."""
        return self.names or tuple(f"x{j}" for j in range(self.n_columns))

    if not TYPE_CHECKING:  # old names, until version 0.5
        __getattr__ = answer_as_method


def ids_of(model: FittedModel) -> IndexArray:
    """The numbers of the rows, in the order of the committee: (n,)."""
    n = len(model.committee.training_data().X)
    return np.arange(n) if model.order is None else np.asarray(model.order)


def where_numbered(model: FittedModel, rows: Any) -> IndexArray:
    """Where rows with these numbers are among those of the model, oldest first: (k,).

    `rows` are numbers, of which negative ones count from the last row, a mask or a slice of all.
    """
    known = np.sort(ids_of(model))
    end = int(known[-1]) + 1
    if isinstance(rows, slice):
        rows = np.arange(*rows.indices(end))
    wanted = np.atleast_1d(np.asarray(rows))
    if wanted.dtype == bool and wanted.ndim == 1 and len(wanted) >= end:
        wanted = np.flatnonzero(wanted)
    if wanted.size == 0:
        raise ValueError("rows names no row: give at least one number")
    if wanted.ndim != 1 or wanted.dtype.kind not in "iu":
        raise ValueError(f"rows must be numbers of rows, or a mask or slice of all {end:,} rows")
    ids = np.where(wanted < 0, wanted + end, wanted)
    places = np.searchsorted(known, ids) % len(known)
    gone = known[places] != ids
    if gone.any():
        raise ValueError(
            f"the model has no row {int(wanted[np.argmax(gone)])}: it has {len(known):,} rows, "
            f"with numbers from {int(known[0])} to {end - 1}, which `row_ids_` lists. Copies of "
            "other rows, rows of weight 0 and forgotten rows are none of them"
        )
    return places
