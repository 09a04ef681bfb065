"""Old names of modules, which keep working until version 0.5, with a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

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
    "manygp.prior": "manygp.model",
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
        found = ModuleType(spec.name)
        found.__dict__.update(vars(import_module(new)))
        return found

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do."""


sys.meta_path.append(_Finder())
