"""What a long piece of work tells its user: a progress bar, messages and warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def say(message: str) -> None:
    print(f"manygp: {message}", file=sys.stderr)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn whoever called the library, from wherever in it this is called."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("manygp"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def bar(items: Iterable[T], total: int) -> Iterable[T]:
    """Show the experts as they finish, if standard error is a terminal and rich is installed."""
    if not sys.stderr.isatty():
        return items
    try:
        from rich.console import Console
        from rich.progress import track
    except ImportError:
        return items
    return track(items, "Fitting experts", total, console=Console(stderr=True), transient=True)
