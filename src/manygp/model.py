"""FittedModel, the record that `fit` makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from manygp._moved import answer_as_method
from manygp.arrays import Array, IndexArray
from manygp.calibration import ConformalScores
from manygp.committee.committee import Committee
from manygp.fit_report import CalibrationReport, Plan
from manygp.inputs import Scaling
from manygp.kernels.base import NoisyKernel
from manygp.noise import LocalNoise
from manygp.rules import PredictionRules
from manygp.settings import Settings


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
        The place in the data of each row of the committee, where they were sorted out on a disk;
        None if they are in the order of the data.
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
