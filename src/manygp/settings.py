"""The parameters of the user, validated once, and what they leave to choose."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from manygp.committee.committee import PARTITIONS
from manygp.fit_report import Shrinkage
from manygp.gp.marginal_likelihood import L_BFGS
from manygp.inputs import check_integer, check_number, is_number
from manygp.kernels.base import Kernel
from manygp.kernels.sklearn_kernel import as_kernel
from manygp.rules import (
    AGGREGATIONS,
    CALIBRATIONS,
    Aggregation,
    Calibration,
    Information,
    Needs,
    Partitioner,
    PredictionRules,
    Weighting,
    needs_of,
    none,
    rule_named,
    weightings_named,
)
from manygp.trend.registry import trend_names

# Shrinkages by name (see `fit_report.Shrinkage`), and those that "auto" compares, from the simpler
# to the more flexible.
SHRINKAGES: dict[str, float] = {"independent": 0.0, "hierarchical": 30.0, "shared": np.inf}
SHRINKAGE_LADDER = (np.inf, 30.0, 10.0, 3.0)
OVERLAP_LADDER = (0.0, 1.0, 2.0, 4.0)
# Fewer than two experts cannot fade into each other where they meet.
FEWEST_NEAREST = 2
NEAREST_LADDER = (2, 4, 8)
# Strengths of the information ratio that "auto" chooses from.
STRENGTHS = (0.0, 0.5, 1.0)
# What the former parameter prior_mean has called two of the trends.
PRIOR_MEANS: dict[Any, str] = {"zero": "none", "constant": "constant"}
# What columns of a table may hold: anything, or complete numbers only.
COLUMNS = ("auto", "numeric")
# Whether noise may depend on the row.
NOISES = ("auto", "constant", "local")
# How targets may be transformed.
TARGET_TRANSFORMS = (None, "auto", "log", "yeo-johnson")
# The parameters that `predict` reads: they may change after `fit`.
RULE_PARAMETERS = ("calibration", "weighting", "temperature", "aggregation", "routing")


class SearchSpace(NamedTuple):
    """Values that a fit may choose from; one entry where the user has chosen.

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
    def first_rules(self) -> PredictionRules:
        """The first entry of each choice: the rules, where the user has chosen all of them."""
        return PredictionRules(
            self.weightings[0], self.calibrations[0], self.aggregation, nearest=self.nearest[0]
        )


class TrendOf(NamedTuple):
    """Whether experts fit a constant prior mean, and the trend as it is to be fitted."""

    constant_mean: bool
    trend: Any


def _are_bounds(bounds: Any) -> bool:
    """Whether these are two numbers in their order, of which each may be None."""
    if not isinstance(bounds, list | tuple | np.ndarray) or len(bounds) != 2:
        return False
    low, high = (
        other if one is None else one for one, other in zip(bounds, (-np.inf, np.inf), strict=True)
    )
    return is_number(low) and is_number(high) and bool(low < high)


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
    trends : tuple of two TrendOf
        For a single expert and for several. By default several experts fit a constant each.
    rules : PredictionRules
        The first entry of each choice.
    has_whole_parts : bool
        Whether each part of the partition holds all rows.
    learns_noise : bool
        Whether noise that depends on the row is tried: not for a kernel of the user's own, nor
        for the paper's calibration.
    chooses_target : bool
        Whether it is to be found out how targets are transformed; where noise may be local.
    shapes_target : bool
        Whether edges, shared values and whole numbers among the targets are looked for.
    rule_parameters : dict
        The parameters that `predict` reads.
    """

    space: SearchSpace = field(init=False, repr=False)
    partitioner: Partitioner = field(init=False, repr=False)
    scales_X: bool = field(init=False, repr=False)
    shared_kernels: int = field(init=False, repr=False)
    chooses_trend: bool = field(init=False, repr=False)
    trends: tuple[TrendOf, TrendOf] = field(init=False, repr=False)
    rules: PredictionRules = field(init=False, repr=False)
    has_whole_parts: bool = field(init=False, repr=False)
    learns_noise: bool = field(init=False, repr=False)
    chooses_target: bool = field(init=False, repr=False)
    shapes_target: bool = field(init=False, repr=False)
    rule_parameters: dict[str, Any] = field(init=False, repr=False)
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
    noise: str = "auto"
    target_transform: str | None = "auto"
    bounds: Any = None
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
        self._check_as_in_scikit_learn()
        self._check_targets()
        self._check_trend()
        if isinstance(self.columns, str) and self.columns not in COLUMNS:
            raise ValueError(f"columns must be one of {COLUMNS}, not {self.columns!r}")
        if self.noise not in NOISES:
            raise ValueError(f"noise must be one of {', '.join(NOISES)}, not {self.noise!r}")
        check_integer("points_per_expert", self.points_per_expert, 1)
        check_integer("n_restarts_optimizer", self.n_restarts_optimizer, 0)
        if self.time_budget is not None:
            check_number("time_budget", self.time_budget, 0, "None or ")

    def _check_targets(self) -> None:
        name = self.target_transform
        if not (name is None or isinstance(name, str)) or name not in TARGET_TRANSFORMS:
            raise ValueError(
                f"target_transform must be one of {', '.join(map(str, TARGET_TRANSFORMS))}, not "
                f"{name!r}; scikit-learn's TransformedTargetRegressor takes other ones"
            )
        if self.bounds is not None and not _are_bounds(self.bounds):
            raise ValueError(f"bounds must be (low, high), or None for either, not {self.bounds}")

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

    def _resolve(self) -> None:
        """Set what the parameters mean, once, as plain attributes."""
        aggregation = rule_named("aggregation", self.aggregation, AGGREGATIONS)
        partitioner = rule_named("partition", self.partition, PARTITIONS)
        needs = needs_of(aggregation)
        weightings = weightings_named(self.weighting, self.temperature, needs)
        space = SearchSpace(
            shrinkages=self._shrinkages(needs),
            overlaps=self._overlaps(),
            weightings=weightings,
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
        free = all((space.standard, space.recalibrate, not needs.dependence))
        chooses = named == "auto" and free and shares
        resolved = {
            "space": space,
            "rules": space.first_rules,
            "partitioner": partitioner,
            "has_whole_parts": bool(getattr(partitioner, "all_rows", False)),
            "scales_X": self.kernel is None if self.normalize_X is None else self.normalize_X,
            "shared_kernels": 2 if _is_auto(self.hyperparameters) else int(shares),
            "chooses_trend": chooses,
            "trends": _trends_of(trend, named, needs, chooses=chooses),
            "learns_noise": self.noise != "constant" and space.recalibrate and space.standard,
            "chooses_target": self.target_transform == "auto" and free,
            "shapes_target": self.target_transform is not None and free,
            "rule_parameters": {name: getattr(self, name) for name in RULE_PARAMETERS},
        }
        for name, value in resolved.items():
            object.__setattr__(self, name, value)

    def own_kernel(self, n_features: int) -> Kernel | None:
        """The user's kernel as one of ours, or None for the default one.

        One that is for other columns is an error, before any work.
        """
        if self.kernel is None:
            return None
        kernel = as_kernel(self.kernel, n_features)
        kernel.check_columns(n_features)
        return kernel

    def _shrinkages(self, needs: Needs) -> tuple[Shrinkage, ...]:
        if _is_auto(self.hyperparameters):
            return (np.inf,) if needs.one_kernel else SHRINKAGE_LADDER
        return (rule_named("hyperparameters", self.hyperparameters, SHRINKAGES, "auto"),)

    def _overlaps(self) -> tuple[float, ...]:
        if _is_auto(self.overlap):
            return OVERLAP_LADDER
        check_number("overlap", self.overlap, 0, "'auto' or ")
        return (float(self.overlap),)

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
        return (max(FEWEST_NEAREST, int(self.routing)),)

    def _has_tolerance(self) -> bool:
        return isinstance(self.routing, float) and 0 < self.routing < 1


def _trends_of(trend: Any, named: str, needs: Needs, *, chooses: bool) -> tuple[TrendOf, TrendOf]:
    """The trend for a single expert and for several; `named` is empty for a regressor."""
    single = TrendOf(named == "constant" or chooses, trend if named != "auto" else "constant")
    constant_mean = {"none": False, "constant": True}.get(named, not needs.dependence)
    return single, TrendOf(constant_mean, trend if chooses else single.trend)


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"
