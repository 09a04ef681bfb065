"""Kinds of values: numbers, dates, text, and numbers with units or separators."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, time
from typing import Any

import numpy as np
import numpy.typing as npt

from manygp.arrays import Array
from manygp.tables.base import is_missing

# Dates are days since then.
EPOCH = np.datetime64("1970-01-01")
# Text of at most this number of characters is a number without loss.
EXACT_CHARACTERS = 15

_GROUPED = r"[+-]?[1-9]\d{0,2}(?:[.,' _\u00a0\u202f]\d{3})+(?:[.,]\d+)?"
_COMMA = r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?"
_PLAIN = rf"(?:{_GROUPED}|{_COMMA}|[+-]?\d+\.?\d*|[+-]?\.\d+)"
_MONEY = r"(?:[$€£¥₹]|USD|EUR|GBP|CHF|JPY)"
# Numbers that `float` does not read, from the particular to the general.
DRESSED: dict[str, re.Pattern[str]] = {
    kind: re.compile(pattern, re.ASCII)
    for kind, pattern in {
        "percent": rf"{_PLAIN}\s?%",
        "currency": rf"[+-]?{_MONEY}\s?{_PLAIN}|{_PLAIN}\s?{_MONEY}",
        "comma": r"[+-]?[1-9]\d{0,2},\d{3}",  # 1,234: nobody knows
        "grouped": _GROUPED,
        "decimal comma": _COMMA,
    }.items()
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"
)
# Nov 20 2009, November 20, 2009, 20 Nov 2009, 20-Nov-2009 10:30.
NAMED_MONTH = re.compile(
    rf"(?:(?P<month>{_MONTH})\.? (?P<day>\d{{1,2}}),? |"
    rf"(?P<first>\d{{1,2}})[ -](?P<second>{_MONTH})\.?,?[ -])"
    r"(?P<year>\d{4})(?:[ T](?P<time>\d{2}:\d{2}(?::\d{2})?))?",
    re.ASCII | re.IGNORECASE,
)
# Dates and times that are read by nobody here.
OTHER_TIMES: dict[str, re.Pattern[str]] = {
    kind: re.compile(pattern, re.ASCII)
    for kind, pattern in {
        "other date": r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}(?:[ T].*)?|\d{4}[/.]\d{1,2}[/.]\d{1,2}.*",
        "time of day": r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:\s?[AaPp][Mm])?",
    }.items()
}


def as_floats(values: npt.NDArray[Any]) -> Array | None:
    """All values as floats, NaN where they are missing; None if one is no finite number."""
    if values.dtype.kind == "O":
        try:
            floats = _floats_of(values)
        except (TypeError, ValueError):
            present = ~is_missing(values)
            floats = np.full(len(values), np.nan)
            try:
                floats[present] = _floats_of(values[present])
            except (TypeError, ValueError):
                return None
        return None if np.isinf(floats).any() else floats
    return values if values.dtype.kind == "f" and not np.isinf(values).any() else None


def _floats_of(values: npt.NDArray[Any]) -> Array:
    if "_" in "".join(values):  # float() would read 1_000
        raise ValueError
    return values.astype(np.float64)


def as_number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, str) and "_" not in value:
        try:
            value = float(value)
        except ValueError:
            return None
    return value if isinstance(value, float) and math.isfinite(value) else None


def as_days(values: npt.NDArray[Any]) -> Array | None:
    """All values as days since 1970 (UTC), NaN where missing; None if one is no ISO date."""
    if values.dtype.kind == "O":
        try:
            values = as_moments(values)
        except (TypeError, ValueError, OverflowError):
            return None
    if values.dtype.kind != "M":
        return None
    days: Array = (values - EPOCH) / np.timedelta64(1, "D")
    return days


def as_moments(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Text as moments in UTC, NaT where it is missing; an error if one is no ISO date."""
    missing = is_missing(values)
    moments: dict[Any, Any] = {None: np.datetime64("NaT")}
    for text in set(values[~missing].tolist()):  # each different text is read once
        moments[text] = _as_utc(text)
    in_order = [moments[None if gone else v] for v, gone in zip(values, missing, strict=True)]
    return np.array(in_order, dtype="datetime64[us]")


def _as_utc(text: str) -> datetime:
    if len(text) > 8 and text.isdecimal():  # which Python takes for a date and its fractions
        raise ValueError
    moment: datetime = without_zone(_with_month(text) or datetime.fromisoformat(text))
    return moment


def without_zone(moment: Any) -> Any:
    """A moment in UTC, if it has a time zone; anything else is as it was."""
    zone = getattr(moment, "tzinfo", None)
    return moment if zone is None else moment.astimezone(UTC).replace(tzinfo=None)


def _with_month(text: str) -> datetime | None:
    """The moment of a date whose month is a word, if it is one."""
    parts = NAMED_MONTH.fullmatch(text)
    if parts is None:
        return None
    month = MONTHS.index((parts["month"] or parts["second"])[:3].lower()) + 1
    day = datetime(int(parts["year"]), month, int(parts["day"] or parts["first"]))
    return datetime.combine(day, time.fromisoformat(parts["time"] or "00:00"))


def is_date(value: Any) -> bool:
    """Whether a value is a date or time in ISO format."""
    if isinstance(value, np.datetime64):
        return not np.isnat(value)
    try:
        _as_utc(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def as_words(values: npt.NDArray[Any]) -> list[str]:
    """The values of a column as names of categories; "" where they are missing.

    Whole numbers have no decimal point, whatever type a table keeps them in.
    """
    if values.dtype.kind == "f":
        whole = values == np.floor(values)
        words = [str(int(v)) if w else str(v) for v, w in zip(values.tolist(), whole, strict=True)]
    else:
        words = [str(value) for value in values.tolist()]
    missing = is_missing(values)
    return ["" if gone else word for word, gone in zip(words, missing, strict=True)]


def kind_of(text: str) -> str:
    """What a text that is not missing is.

    "number", "date", "infinite", "long" (an integer of more digits than a number holds), one of
    `DRESSED` or `OTHER_TIMES`, or "text".
    """
    if as_number(text) is not None:
        return "long" if loses_digits(text) else "number"
    if is_date(text):
        return "date"
    if is_infinite(text):
        return "infinite"
    for kind, pattern in (*DRESSED.items(), *OTHER_TIMES.items()):
        if pattern.fullmatch(text):
            return kind
    return "text"


def any_code(values: npt.NDArray[Any]) -> bool:
    """Whether some text is digits that begin with a zero, as codes do: 00501, not 0 or 0.5."""
    return any(v and v[0] == "0" and len(v) > 1 and v.isdecimal() for v in values)


def loses_digits(text: str) -> bool:
    """Whether a text is an integer that is another one as a float."""
    if len(text) <= EXACT_CHARACTERS or not text.lstrip("+-").isdecimal():
        return False
    return len(text) > 300 or int(text) != int(float(text))


def is_infinite(text: str) -> bool:
    """Whether a text is infinity, or a number beyond floats."""
    try:
        return "_" not in text and math.isinf(float(text))
    except ValueError:
        return False


def with_point(text: str) -> str:
    """A number with a decimal comma as one with a decimal point; other text as it is."""
    if "," in text and DRESSED["decimal comma"].fullmatch(text):
        return text.replace(",", ".")
    return text
