"""The parameters of the user, validated once, and what they leave to choose."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from manygp.committee.committee import PARTITIONS
from manygp.fit_report import Shrinkage
from manygp.gp.marginal_likelihood import L_BFGS
from manygp.inputs import check_integer, check_number
from manygp.kernels.base import Kernel
from manygp.kernels.written import converted
from manygp.rules import (
    AGGREGATIONS,
    CALIBRATIONS,
    TEMPERED,
    Aggregation,
    Calibration,
    Information,
    Needs,
    Partitioner,
    PredictionRules,
    Weighting,
    has_temperature,
    needs_of,
    none,
    rule_named,
    weighting_named,
)
from manygp.trend.registry import trend_names

# Shrinkages by name (see `findings.Shrinkage`), and those that "auto" compares, from the simpler
# to the more flexible.
SHRINKAGES: dict[str, float] = {"independent": 0.0, "hierarchical": 30.0, "shared": np.inf}
SHRINKAGE_LADDER = (np.inf, 30.0, 10.0, 3.0)
OVERLAP_LADDER = (0.0, 1.0, 2.0, 4.0)
NEAREST_LADDER = (1, 2, 4, 8)
# Strengths of the information ratio that "auto" chooses from.
STRENGTHS = (0.0, 0.5, 1.0)
# What the former parameter prior_mean has called two of the trends.
PRIOR_MEANS: dict[Any, str] = {"zero": "none", "constant": "constant"}
# What columns of a table may hold: anything, or complete numbers only.
COLUMNS = ("auto", "numeric")
# The parameters that `predict` reads: they may change after `fit`.
RULE_PARAMETERS = ("calibration", "weighting", "temperature", "aggregation", "routing")


class SearchSpace(NamedTuple):
    """What there is to choose from; one entry where the user has chosen.

    Attributes
    ----------
    shrinkages, overlaps, weightings, calibrations, nearest : tuples
    aggregation : callable
    needs : Needs
        What it needs.
    tolerance : float or None
        Neglected weight that chooses `nearest`.
    recalibrate : bool
        Whether a correction of the aggregated variance is learned.
    standard : bool
        Whether the default kernel sees standardised targets: then their variance is 1, and a
        single expert need not be scikit-learn's.
    """

    shrinkages: tuple[Shrinkage, ...]
    overlaps: tuple[float, ...]
    weightings: tuple[Weighting, ...]
    calibrations: tuple[Calibration, ...]
    aggregation: Aggregation
    needs: Needs
    nearest: tuple[int | None, ...]
    tolerance: float | None
    recalibrate: bool
    standard: bool = True

    @property
    def is_fixed(self) -> bool:
        """Whether nothing is left to choose."""
        choices = (
            self.shrinkages,
            self.overlaps,
            self.weightings,
            self.calibrations,
            self.nearest,
        )
        chosen = all(len(choice) == 1 for choice in choices)
        return chosen and not self.recalibrate and self.tolerance is None

    @property
    def first_rules(self) -> PredictionRules:
        """The first entry of each choice: the rules, where the user has chosen all of them."""
        return PredictionRules(
            self.weightings[0], self.calibrations[0], self.aggregation, nearest=self.nearest[0]
        )

    def all_rules(self, n_experts: int) -> list[PredictionRules]:
        """All combinations, for a committee of some experts."""
        counts = dict.fromkeys(None if k is None else min(k, n_experts) for k in self.nearest)
        return [
            PredictionRules(weighting, calibration, self.aggregation, nearest=k)
            for weighting, calibration, k in product(self.weightings, self.calibrations, counts)
        ]


@dataclass(frozen=True, eq=False)
class Settings:
    """The parameters of `ManyGPRegressor`, which describes them; wrong ones are a ValueError.

    Attributes
    ----------
    space : SearchSpace
        What they leave to choose.
    partitioner : callable
        Partitions the rows.
    scales_X : bool
        Whether inputs are scaled: by default for the default kernel only.
    shared_kernels : int
        How many shared kernels are fitted: none, one, or a second one to choose from.
    chooses_trend : bool
        Whether the trend is to be found out. It is where experts share a kernel, the default one:
        a kernel of the user's own is believed, and so is one for each expert. What experts have
        in common an aggregation may model itself.
    named_trend : str
        The trend by its name, and nothing for a regressor.
    """

    space: SearchSpace = field(init=False, repr=False)
    partitioner: Partitioner = field(init=False, repr=False)
    scales_X: bool = field(init=False, repr=False)
    shared_kernels: int = field(init=False, repr=False)
    chooses_trend: bool = field(init=False, repr=False)
    named_trend: str = field(init=False, repr=False)
    kernel: Any = None
    points_per_expert: int = 200
    overlap: Any = "auto"
    partition: Any = "balltree"
    weighting: Any = "tempered"
    temperature: Any = "auto"
    calibration: Any = "auto"
    aggregation: Any = "gpoe"
    hyperparameters: Any = "auto"
    routing: Any = "auto"
    trend: Any = "auto"
    prior_mean: str | None = None
    alpha: Any = 0.0
    optimizer: Any = L_BFGS
    normalize_X: bool | None = None
    normalize_y: bool = True
    columns: Any = "auto"
    n_restarts_optimizer: int = 0
    time_budget: float | None = None
    n_jobs: int | None = None
    random_state: Any = None
    verbose: bool = False
    n_targets: int | None = None
    copy_X_train: bool = True

    def __post_init__(self) -> None:
        self._resolve()  # names that are wrong are refused
        if self.prior_mean not in (None, *PRIOR_MEANS):
            known = ", ".join(PRIOR_MEANS)
            raise ValueError(f"prior_mean must be one of None, {known}, not {self.prior_mean!r}")
        if self.prior_mean is not None and self.trend != "auto":
            raise ValueError("prior_mean is what trend was called before: set trend alone")
        self._check_trend()
        if isinstance(self.columns, str) and self.columns not in COLUMNS:
            raise ValueError(f"columns must be one of {COLUMNS}, not {self.columns!r}")
        check_integer("points_per_expert", self.points_per_expert, 1)
        check_integer("n_restarts_optimizer", self.n_restarts_optimizer, 0)
        if self.time_budget is not None:
            check_number("time_budget", self.time_budget, 0, "None or ")
        self._check_as_in_scikit_learn()

    def _check_trend(self) -> None:
        names = trend_names()
        known_name = isinstance(self.trend, str) and self.trend in names
        regressor = not isinstance(self.trend, type) and hasattr(self.trend, "predict")
        if not (known_name or (regressor and hasattr(self.trend, "fit"))):
            raise ValueError(
                f"trend must be one of {', '.join(names)} or a regressor, not {self.trend!r}"
            )

    def _check_as_in_scikit_learn(self) -> None:
        if self.n_targets is not None:
            check_integer("n_targets", self.n_targets, 1, "None or ")
        if not (self.optimizer in (None, L_BFGS) or callable(self.optimizer)):
            raise ValueError(
                f"optimizer must be None, {L_BFGS!r} or a callable, not {self.optimizer!r}"
            )

    @property
    def parameters(self) -> dict[str, Any]:
        """All parameters by name."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.init}

    @property
    def rule_parameters(self) -> dict[str, Any]:
        """The parameters that `predict` reads."""
        return {name: getattr(self, name) for name in RULE_PARAMETERS}

    def _resolve(self) -> None:
        """Set what the parameters mean, once, as plain attributes."""
        aggregation = rule_named("aggregation", self.aggregation, AGGREGATIONS)
        needs = needs_of(aggregation)
        space = SearchSpace(
            shrinkages=self._shrinkages(needs),
            overlaps=self._overlaps(),
            weightings=self._weightings(needs),
            calibrations=self._calibrations(needs),
            aggregation=aggregation,
            needs=needs,
            nearest=self._nearest(),
            tolerance=self.routing if self._has_tolerance() else None,
            recalibrate=_is_auto(self.calibration),
            standard=self.kernel is None and bool(self.normalize_y),
        )
        trend = PRIOR_MEANS.get(self.prior_mean, self.trend)
        named = trend if isinstance(trend, str) else ""
        shares = space.shrinkages[0] != 0.0
        free = space.standard and space.recalibrate and not needs.dependence
        scales_X = self.kernel is None if self.normalize_X is None else bool(self.normalize_X)
        found = {
            "space": space,
            "partitioner": rule_named("partition", self.partition, PARTITIONS),
            "scales_X": scales_X,
            "shared_kernels": 2 if _is_auto(self.hyperparameters) else int(shares),
            "chooses_trend": named == "auto" and free and shares,
            "named_trend": named,
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def own_kernel(self, n_features: int) -> Kernel | None:
        """The user's kernel as one of ours, or None for the default one."""
        return None if self.kernel is None else converted(self.kernel, n_features)

    def trend_of(self, *, several: bool) -> tuple[bool, Any]:
        """Whether experts fit a constant prior mean, and the trend as it is to be fitted.

        By default experts fit one where there are several, and the trend is then a constant: they
        see to it.
        """
        constant = several and not self.space.needs.dependence
        constant = {"none": False, "constant": True}.get(self.named_trend, constant)
        if self.named_trend != "auto":
            return constant, self.named_trend or self.trend
        return constant, "auto" if several and self.chooses_trend else "constant"

    def _shrinkages(self, needs: Needs) -> tuple[Shrinkage, ...]:
        if _is_auto(self.hyperparameters):
            return (np.inf,) if needs.one_kernel else SHRINKAGE_LADDER
        return (rule_named("hyperparameters", self.hyperparameters, SHRINKAGES, "auto"),)

    def _overlaps(self) -> tuple[float, ...]:
        if _is_auto(self.overlap):
            return OVERLAP_LADDER
        check_number("overlap", self.overlap, 0, "'auto' or ")
        return (float(self.overlap),)

    def _weightings(self, needs: Needs) -> tuple[Weighting, ...]:
        if not _is_auto(self.temperature):
            check_number("temperature", self.temperature, 0, "'auto' or ")
            return (weighting_named(self.weighting, float(self.temperature)),)
        if has_temperature(self.weighting) and not needs.dependence:
            temperatures = TEMPERED[self.weighting][1]
            return tuple(weighting_named(self.weighting, one) for one in temperatures)
        return (weighting_named(self.weighting, None),)

    def _calibrations(self, needs: Needs) -> tuple[Calibration, ...]:
        if not _is_auto(self.calibration):
            return (rule_named("calibration", self.calibration, CALIBRATIONS, "auto"),)
        if needs.dependence:
            return (none,)
        return tuple(Information(strength=strength) for strength in STRENGTHS)

    def _nearest(self) -> tuple[int | None, ...]:
        if self.routing is None:
            return (None,)
        if self._has_tolerance() or _is_auto(self.routing):
            return NEAREST_LADDER
        other = "'auto', None, a neglected weight between 0 and 1, or "
        check_integer("routing", self.routing, 1, other)
        return (int(self.routing),)

    def _has_tolerance(self) -> bool:
        return isinstance(self.routing, float) and 0 < self.routing < 1


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"
