"""Words that messages and pages have in common."""

from __future__ import annotations

import unicodedata


def counted(n: int, what: str) -> str:
    """A number and its noun: 1 row, 2,000 rows."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def safe(text: str) -> str:
    """A text that a terminal shows and does not obey: what controls it is written as an escape.

    These are control characters but the end of a line, and those that turn the direction of
    writing or show nothing.
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(
        one if one == "\n" or unicodedata.category(one) not in UNSAFE else _escaped(one)
        for one in text
    )


# Controls, formats, surrogates, and separators of lines and paragraphs.
UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escaped(character: str) -> str:
    return repr(character)[1:-1] if not character.isprintable() else f"\\u{ord(character):04x}"
