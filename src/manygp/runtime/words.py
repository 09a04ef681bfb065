"""Words that messages and pages have in common."""

from __future__ import annotations

import unicodedata
from math import floor, log10


def counted(n: int, what: str) -> str:
    """A number and its noun: 1 row, 2,000 rows."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def duration(seconds: float) -> str:
    """A time as people say it: 0.8 s, 45 s, 2 min 20 s, 25 min, 1 h 5 min, 2 d 3 h."""
    if seconds < 0.1:
        return f"{max(seconds, 0.001):.1g} s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    if seconds < 597.5:  # in steps of five seconds
        return _two_units(5 * round(seconds / 5), 60, "min", "s")
    if seconds < 3570:
        return f"{seconds / 60:.0f} min"
    if seconds < 86_370:
        return _two_units(round(seconds / 60), 60, "h", "min")
    return _two_units(round(seconds / 3600), 24, "d", "h")


def _two_units(small: int, per_large: int, large_name: str, small_name: str) -> str:
    large, rest = divmod(small, per_large)
    return f"{large} {large_name}" + (f" {rest} {small_name}" if rest else "")


def plus_minus(value: float, error: float) -> str:
    """A number and its standard error, of two digits: 0.291 ± 0.012."""
    if not 1e-6 < error < 1e6:
        return f"{value:.4g} ± {error:.2g}"
    digits = max(0, 1 - floor(log10(error)))
    return f"{value:,.{digits}f} ± {error:.{digits}f}"


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


# How training rows were left out, by `FittedModel.left_out_by`.
LEFT_OUT_WORDS = {
    "row": "each left out",
    "group": "left out with their group",
    "time": "predicted from earlier ones",
}
