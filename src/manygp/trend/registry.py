"""The registry of trends. It imports none of them: the command line lists them at once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from manygp.gp.trend import TrendFamily

# The modules of trends that have a name, whose `FAMILY` makes them; "auto" tries them in this
# order. A new trend is a module, and a line here.
MODULES: dict[str, str] = {
    "linear": "manygp.trend.linear",
    "additive": "manygp.trend.linear",
    "boosted": "manygp.trend.boosted",
    "forest": "manygp.trend.forest",
}
# Names of the parameter `trend` that are no module's.
BUILT_IN = ("auto", "none", "constant")
_registered: dict[str, TrendFamily] = {}


def trend_names() -> tuple[str, ...]:
    """All names that the parameter `trend` may have."""
    return (*BUILT_IN, *MODULES, *_registered)


def register(name: str, family: TrendFamily) -> None:
    """Make a trend of yours known by a name; "auto" tries it after all others.

    A model file with such a trend is read where it is registered.
    """
    if name in (*BUILT_IN, *MODULES) or name not in family.names:
        raise ValueError(
            f"a trend cannot be registered as {name!r}: choose a name that is not one of "
            f"{', '.join((*BUILT_IN, *MODULES))}, and that `family.names` holds"
        )
    _registered[name] = family


def families(trend: str) -> list[TrendFamily]:
    """The families that a name means; all of them for "auto"."""
    modules = dict.fromkeys(m for name, m in MODULES.items() if trend in ("auto", name))
    own = [family for name, family in _registered.items() if trend in ("auto", name)]
    return [*(import_module(module).FAMILY for module in modules), *own]


def family_of(model: str) -> TrendFamily:
    """The family of a model's name, as files and reports have it."""
    for family in families("auto"):
        if model in family.names:
            return family
    raise ValueError(
        f"unknown trend type {model!r}; a trend of your own must be registered before its file is "
        "read: see manygp.trend.registry.register"
    )
