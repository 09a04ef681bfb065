"""A progress bar on a terminal, silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def silent(items: Iterable[T], total: int) -> Iterable[T]:
    return items


def say(message: str) -> None:
    print(f"manygp: {message}", file=sys.stderr)


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
