"""What the estimator's parameters mean: checked, and as the records that all else works with."""

from __future__ import annotations

import platform
import warnings
from importlib.metadata import version
from time import perf_counter
from typing import Any

import numpy as np

from manygp import scaling, validation
from manygp.arrays import Array
from manygp.gp.likelihood import TrainingData
from manygp.kernels.base import Sum
from manygp.kernels.conversion import as_kernel
from manygp.rules.aggregation import AGGREGATIONS, DEPENDENT, NO_COMMUNICATION, grbcm
from manygp.rules.calibration import CALIBRATIONS, Information, none
from manygp.rules.combine import Rules, choose, weighting_of
from manygp.rules.partition import full_parts, one_part
from manygp.rules.records import Calibration, Partitioner
from manygp.rules.weighting import TEMPERED
from manygp.runtime import progress
from manygp.runtime.memory import physical_memory
from manygp.training import budget, fitting
from manygp.training.checkpoint import described, key_of
from manygp.training.scores import Space
from manygp.training.search import NEAREST_LADDER, OVERLAP_LADDER, PULL_LADDER, STRENGTHS


def space_of(
    model: Any,
) -> Space:
    """What the parameters leave to choose."""
    aggregation = choose("aggregation", model.aggregation, AGGREGATIONS)
    weighting_of(model.weighting, None)
    pulls: tuple[Any, ...] = (np.inf,) if aggregation in DEPENDENT else PULL_LADDER
    if model.hyperparameters != "auto":
        pulls = (choose("hyperparameters", model.hyperparameters, fitting.PULLS, "auto"),)
    overlaps: tuple[float, ...] = OVERLAP_LADDER
    if model.overlap != "auto":
        validation.check_number("overlap", model.overlap, 0, "'auto' or ")
        overlaps = (float(model.overlap),)
    tempered = isinstance(model.weighting, str) and model.weighting in TEMPERED
    temperatures: tuple[float | None, ...] = (None,)
    if model.temperature != "auto":
        validation.check_number("temperature", model.temperature, 0, "'auto' or ")
        temperatures = (float(model.temperature),) if tempered else (None,)
    elif tempered and aggregation not in DEPENDENT:
        temperatures = TEMPERED[model.weighting][1]
    calibrations: tuple[Calibration, ...] = tuple(
        Information(strength=strength) for strength in STRENGTHS
    )
    if model.calibration != "auto":
        calibrations = (choose("calibration", model.calibration, CALIBRATIONS, "auto"),)
    elif aggregation in DEPENDENT:
        calibrations = (none,)
    nearest: tuple[int | None, ...] = NEAREST_LADDER
    tolerance = None
    if model.routing is None:
        nearest = (None,)
    elif isinstance(model.routing, float) and 0 < model.routing < 1:
        tolerance = model.routing
    elif model.routing != "auto":
        other = "'auto', None, a neglected weight between 0 and 1, or "
        validation.check_integer("routing", model.routing, 1, other)
        nearest = (int(model.routing),)
    return Space(
        pulls,
        overlaps,
        model.weighting,
        temperatures,
        calibrations,
        aggregation,
        nearest,
        tolerance,
        isinstance(model.calibration, str) and model.calibration == "auto",
    )


def rules_of(
    model: Any,
) -> tuple[Rules, int | None]:
    """The parameters' rules where they say, else those that fit has chosen."""
    space, choice = space_of(model), model._choice
    weighting = weighting_of(model.weighting, space.temperatures[0])
    rules = Rules(weighting, space.calibrations[0], space.aggregation)
    k = space.nearest[0]
    if model._alone:
        return rules._replace(calibration=none) if space.recalibrate else rules, None
    if len(space.temperatures) > 1:
        _as_fitted(model, "temperature", "a number", "temperature", "weighting")
        rules = rules._replace(weighting=choice.rules.weighting)
    if len(space.nearest) > 1 or space.tolerance is not None:
        _as_fitted(model, "routing", "None, or a number of experts", "routing")
        k = choice.nearest
    if space.recalibrate:
        _as_fitted(model, "calibration", "'information' or 'none'", *model._fitted)
        rules = choice.rules
    if space.aggregation in DEPENDENT and model._many_kernels:
        raise ValueError(
            f"aggregation={model.aggregation!r} needs one kernel for all experts: set "
            "hyperparameters='shared' and fit again"
        )
    if space.aggregation is grbcm and model._committee.communication is None:
        raise ValueError(NO_COMMUNICATION)
    return rules, None if k is None else min(k, len(model.experts_))


def _as_fitted(model: Any, chosen: str, values: str, *names: str) -> None:
    """Refuse what fit has chosen for other settings of some parameters."""
    for name in names:
        if model._fitted[name] != getattr(model, name):
            raise ValueError(
                f"{chosen}={getattr(model, chosen)!r} is chosen by fit, which had {name}="
                f"{model._fitted[name]!r}, not {getattr(model, name)!r}: fit again, or set "
                f"{chosen} to {values}"
            )


def plan_of(
    model: Any,
    space: Space,
    partition: Partitioner,
    data: TrainingData,
    kernel: Sum,
    begin: float,
) -> tuple[budget.Plan, float]:
    """What is to be done, and when to stop looking for something better."""
    plan = budget.Plan(
        int(model.points_per_expert),
        space.pulls,
        space.overlaps,
        fitting.SHARED_ROWS,
        2 if model.hyperparameters == "auto" else int(space.pulls[0] != 0.0),
    )
    n, points, least, deadline = len(data.X), plan.points_per_expert, budget.LEAST_POINTS, np.inf
    if partition in (one_part, full_parts):  # experts of all rows, whatever is planned
        plan, least = plan._replace(points_per_expert=n), n
    elif space.aggregation in DEPENDENT and space.pulls[0] != np.inf:
        least = points  # several experts would need one kernel
    if model.time_budget is not None or model.verbose:
        seconds = np.inf if model.time_budget is None else float(model.time_budget)
        left = seconds - (perf_counter() - begin)
        plan = budget.afford(plan, space, data, kernel, model.n_jobs, left, least)
        deadline = begin + seconds - plan.final_seconds
        if plan.seconds > left:
            warnings.warn(
                f"the least that can be done takes about {plan.seconds:.2g} s, more than the "
                f"{seconds:g} s of time_budget",
                stacklevel=4,
            )
    plan = plan.within_memory(n)
    needed, memory = budget.memory_of(plan, data.X.shape), physical_memory()
    if needed > memory:
        raise MemoryError(
            f"experts of {plan.points_per_expert:,} rows would take {needed / 1e9:.3g} GB, and "
            f"there are {memory / 1e9:.3g} GB: lower points_per_expert or overlap"
        )
    if model.verbose:
        progress.say(f"{n:,} rows; {plan}")
    return plan._replace(points_per_expert=points) if least == n else plan, deadline


def scalings_of(model: Any, X: Array, Y: Array) -> tuple[scaling.Scaling, scaling.Scaling]:
    """How inputs and targets are scaled, as the parameters say."""
    normalize_X = model.kernel is None if model.normalize_X is None else model.normalize_X
    if not model.normalize_y:
        validation.check_magnitude(Y, "y", None)
    if len(Y) > 1 and np.any(Y.max(axis=0) == Y.min(axis=0)):
        warnings.warn("y is constant; predictions will be that constant", stacklevel=4)
    return (
        scaling.to_unit_cube(X) if normalize_X else scaling.identity(X.shape[1]),
        scaling.to_standard(Y) if model.normalize_y else scaling.identity(Y.shape[1]),
    )


def check_raw_targets(Y: Array, kernel: Sum, Z: Array) -> None:
    """Whether targets that are not normalised are within reach of the kernel's bounds."""
    with np.errstate(over="ignore", under="ignore"):
        smallest, largest = (kernel.with_theta(theta) for theta in kernel.bounds.T)
        least, most = smallest.right.diag(Z[:1])[0], largest.diag(Z).mean()
    validation.check_raw_targets(Y, least, most)


def alpha_of(model: Any, n: int, y_scaling: scaling.Scaling) -> Array:
    """Noise variances of the rows, (n,), in the units of the normalised target."""
    alpha = validation.check_alpha(model.alpha, n)
    if alpha.any() and np.any(y_scaling.scale != y_scaling.scale[0]):
        raise ValueError("alpha with several targets needs normalize_y=False")
    with np.errstate(over="ignore"):
        normalised = np.asarray((np.sqrt(alpha) / y_scaling.scale[0]) ** 2)
    if normalised.max() > validation.LARGEST:
        raise ValueError(
            f"alpha is too large for targets of scale {y_scaling.scale[0]:.3g}; it is a variance, "
            "in the square of their units"
        )
    return normalised


def identity_of(model: Any, X: Array, Y: Array, alpha: Array) -> dict[str, Any]:
    """What a checkpoint must have in common with a fit."""
    parameters = model.get_params(deep=False)
    if model.kernel is not None:
        parameters["kernel"] = as_kernel(model.kernel, X.shape[1])
    names = getattr(model, "feature_names_in_", None)
    return {
        **{name: version(name) for name in ("manygp", "numpy", "scipy")},
        "machine": platform.machine(),
        "rows": len(X),
        "columns": X.shape[1] if names is None else list(names),
        "data": key_of(X, Y, alpha),
        **{
            name: described(value)
            for name, value in parameters.items()
            if name not in ("n_jobs", "verbose")
        },
    }
