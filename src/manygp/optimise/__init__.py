"""An optimiser of functions that take long: ask for rows to evaluate, tell what came out."""

from manygp.optimise.optimiser import Best, Optimiser, lean, minimise
from manygp.optimise.space import Space

__all__ = ["Best", "Optimiser", "Space", "lean", "minimise"]
