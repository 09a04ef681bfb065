"""Old names of modules and methods, which keep working until version 0.5, with a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED = {
    "manygp.conformity": "manygp.calibration",
    "manygp.display.trend": "manygp.display.plots",
    "manygp.distribution": "manygp.calibration",
    "manygp.findings": "manygp.fit_report",
    "manygp.gp.factors": "manygp.gp.expert",
    "manygp.gp.likelihood": "manygp.gp.marginal_likelihood",
    "manygp.kernels.conversion": "manygp.kernels.sklearn_kernel",
    "manygp.kernels.foreign": "manygp.kernels.sklearn_kernel",
    "manygp.kernels.written": "manygp.kernels.user_kernel",
    "manygp.likeness": "manygp.sklearn_compat",
    "manygp.rules.aggregation": "manygp.rules",
    "manygp.rules.calibration": "manygp.rules",
    "manygp.rules.combine": "manygp.rules",
    "manygp.rules.labels": "manygp.paper",
    "manygp.rules.partition": "manygp.committee.committee",
    "manygp.rules.records": "manygp.rules",
    "manygp.rules.weighting": "manygp.rules",
    "manygp.scaling": "manygp.inputs",
    "manygp.tables.reading": "manygp.tables.formats",
    "manygp.tables.writing": "manygp.tables.formats",
    "manygp.validation": "manygp.inputs",
}

# Answers that were methods of FittedModel, and those that were properties of it.
METHODS = (
    "calibration_ratio", "distribution_of", "interval_of", "left_out_answers",
    "left_out_rows", "left_out_scores", "log_marginal_likelihood", "log_marginal_likelihood_at",
    "loo_predict", "mean", "noise_std", "predict", "predict_dist", "predict_experts",
    "predict_interval", "predict_joint", "queried_by", "ready_for_intervals", "relevance",
    "require_coverage", "sample", "training_rows",
)  # fmt: skip
PROPERTIES = ("tails", "written_kernel")


def answer_as_method(model: Any, name: str) -> Any:
    """`model.predict`, which is now `manygp.answers.predict` of the model; so for all METHODS."""
    if name not in METHODS + PROPERTIES:
        raise AttributeError(f"{type(model).__name__!r} object has no attribute {name!r}")
    warnings.warn(
        f"{type(model).__name__}.{name} is now the function manygp.answers.{name}; the old name "
        "goes in version 0.5",
        FutureWarning,
        stacklevel=2,
    )
    answer = getattr(import_module("manygp.answers"), name)
    return answer(model) if name in PROPERTIES else partial(answer, model)


def renamed(module: str, name: str, names: dict[str, Any]) -> Any:
    """What a module has under a new name: `names` has it by its old one."""
    if name not in names:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warnings.warn(
        f"{module}.{name} is now {names[name].__name__}; the old name goes in version 0.5",
        FutureWarning,
        stacklevel=3,
    )
    return names[name]


class _Finder(MetaPathFinder, Loader):
    """Finds a module by its old name."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = MOVED[spec.name]
        warnings.warn(
            f"{spec.name} is now {new}; the old name goes in version 0.5",
            FutureWarning,
            stacklevel=2,
        )
        module = ModuleType(spec.name)
        module.__dict__.update(vars(import_module(new)))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do."""


sys.meta_path.append(_Finder())
