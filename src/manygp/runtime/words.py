"""Words that messages and pages have in common."""

from __future__ import annotations


def counted(n: int, what: str) -> str:
    """A number and its noun: 1 row, 2,000 rows."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"
