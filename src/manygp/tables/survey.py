"""Survey of the columns of a table, batch by batch, and the problems with them.

A column holds numbers; or dates, if every value is one; or else categories. Numbers that are
written in a way of their own, some text among numbers, and nearly unique text are problems. All
problems of all columns are told at once.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manygp.arrays import Array
from manygp.tables.base import Batch, is_missing, shortened
from manygp.tables.columns import Refusal
from manygp.tables.values import (
    DRESSED,
    EXACT_CHARACTERS,
    OTHER_TIMES,
    any_code,
    as_floats,
    as_words,
    kind_of,
    loses_digits,
)

# A column of at most this number of categories becomes a feature of 0 and 1 for each of them.
MOST_ONE_HOT = 10
# No column has more categories than that.
MOST_CATEGORIES = 20_000
# Numbers, in whatever way they are written.
NUMERIC = ("number", "long", *DRESSED)
DATED = ("date", *OTHER_TIMES)

_COMMAS = "a comma that may be a decimal comma or separate thousands"
# What is odd about values, and what to do: on the command line, and from Python. The last place
# is for the name of the column.
ODDITIES: dict[str, tuple[str, str, str]] = {
    "percent": ("a percent sign", "remove it from the file", "strip it, and divide by 100"),
    "currency": ("a currency sign", "remove it from the file", "strip it"),
    "comma": (_COMMAS, "pass --decimal , or remove the commas", "convert them first"),
    "grouped": (
        "separators of thousands", "remove them from the file", "convert them first",
    ),
    "decimal comma": (
        "a decimal comma", "pass --decimal ,", "read the file with a decimal comma",
    ),
    "long": (
        "more digits than a number can hold, as ids have", "leave the column out (--drop {})",
        "drop the column, or make it text if it is a category",
    ),
    "infinite": ("no finite size", "correct them, or --drop {}", "correct them"),
    "other date": (
        "a date that is not written as 2024-12-31", "write dates so, or --drop {}",
        "convert the column to dates first",
    ),
    "time of day": (
        "a time of day without a date", "write hours as a number, or --drop {}",
        "convert the column to hours first",
    ),
}  # fmt: skip


class Problem(NamedTuple):
    """Problem with a column, and its remedies: on the command line, and from Python."""

    column: str
    what: str
    command: str
    python: str

    def say(self, *, command: bool) -> str:
        return f"column {self.column!r}: {self.what}; {self.command if command else self.python}"


class Finding(NamedTuple):
    """Contents of a column: its kind, how many values are missing or differ, and a problem."""

    name: str
    kind: str
    n_missing: int
    n_categories: int
    problem: Problem | None


class Problems(Refusal):
    """Columns that cannot be used as they are, all in one message."""

    def __init__(self, problems: Sequence[Problem], *, command: bool = True) -> None:
        self.problems = tuple(problems)
        lines = [problem.say(command=command) for problem in problems]
        several = f"{len(lines)} columns cannot be used as they are:\n  " if lines[1:] else ""
        super().__init__(several + "\n  ".join(lines))


class Survey:
    """Survey of the rows of a table so far.

    Parameters
    ----------
    columns : sequence of str
        Names of the columns.
    kinds : mapping of str to str, optional
        Columns that hold a "number" or a "category" whatever they look like, or a "target", which
        no leading zero makes a category.
    """

    def __init__(self, columns: Sequence[str], kinds: Mapping[str, str] | None = None) -> None:
        self.columns = tuple(columns)
        self._seen = [_Seen(name, (kinds or {}).get(name)) for name in columns]

    def add(self, batch: Batch) -> dict[str, Array]:
        """Take note of a batch; the columns that hold numbers only, as floats."""
        numbers_of = {column.name: column.add(batch) for column in self._seen}
        return {name: numbers for name, numbers in numbers_of.items() if numbers is not None}

    def findings(self) -> list[Finding]:
        """What the columns hold, after all rows."""
        return [column.conclude() for column in self._seen]


class _Seen:
    """Survey of the rows of one column so far."""

    def __init__(self, name: str, known: str | None = None) -> None:
        self.name = name
        self.n_rows = self.n_missing = 0
        self.categorical = known == "category"
        self.known = known
        # How many values of each kind there were, and the first of them.
        self.counts: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        # Different values that are neither missing nor, in a whole batch, numbers.
        self.words: set[Any] = set()

    def add(self, batch: Batch) -> Array | None:
        """Take note of a batch; its values as floats if all of them are numbers."""
        values = batch.columns[self.name]
        self.n_rows += len(values)
        numbers = self._numbers(batch, values)
        missing = is_missing(values if numbers is None else numbers)
        self.n_missing += int(missing.sum())
        if numbers is not None:
            self._note(batch, ~missing, "number")
        elif values.dtype.kind in "fM":
            finite = ~missing & (~np.isinf(values) if values.dtype.kind == "f" else True)
            self._note(batch, finite, "number" if values.dtype.kind == "f" else "date")
            self._note(batch, ~missing & ~finite, "infinite")
            self.words.update(as_words(values) if self.categorical else ())
        elif values.dtype.kind == "b":
            self._note(batch, ~missing, "text")
            self.words.update(map(str, values.tolist()))
        else:
            self._add_text(batch, values, missing)
        return numbers

    def _numbers(self, batch: Batch, values: npt.NDArray[Any]) -> Array | None:
        """The values of a batch as floats, if they are numbers and not codes."""
        is_text = self.name in batch.text and self.known is None
        has_codes = values.dtype.kind == "O" and self.known is None and any_code(values)
        self.categorical |= has_codes or self.name in batch.categorical
        return None if self.categorical or is_text else _plain_numbers(values)

    def _add_text(
        self, batch: Batch, values: npt.NDArray[Any], missing: npt.NDArray[np.bool_]
    ) -> None:
        times = Counter(values[~missing].tolist())  # each different value is looked at once
        if len(self.words) <= MOST_CATEGORIES:
            self.words.update(times)
            kinds = {text: kind_of(text) for text in times}
        else:
            kinds = dict.fromkeys(times, "text")
        if self.name in batch.text and self.known is None:  # digits are codes there
            kinds = {text: "text" if k in ("number", "long") else k for text, k in kinds.items()}
        for text, kind in kinds.items():
            self.counts[kind] += times[text]
            if kind not in self.first:
                index = next(i for i, value in enumerate(values) if value == text)
                self.first[kind] = f"{shortened(text)} in {batch.place(index)}"

    def _note(self, batch: Batch, rows: npt.NDArray[np.bool_], kind: str) -> None:
        if rows.any():
            self.counts[kind] += int(rows.sum())
            index = int(rows.argmax())
            shown = shortened(batch.columns[self.name][index])
            self.first.setdefault(kind, f"{shown} in {batch.place(index)}")

    @property
    def n_present(self) -> int:
        return self.n_rows - self.n_missing

    def conclude(self) -> Finding:
        """What the column holds, after all rows."""
        kind, problem = self._kind()
        n_categories = len(self.words) if kind == "category" else 0
        return Finding(self.name, kind, self.n_missing, n_categories, problem)

    def _kind(self) -> tuple[str, Problem | None]:
        if self.n_present == 0:
            return "number", self._leave_out(f"none of {self.n_rows:,} values is there")
        if self.categorical:
            return "category", self._too_many()
        if self.counts["infinite"]:
            return "number", self._odd("infinite")
        if self.known == "number" and not set(self.counts) <= set(NUMERIC):
            return "number", self._stray("number")
        return self._number_or_date() or ("category", self._too_many())

    def _number_or_date(self) -> tuple[str, Problem | None] | None:
        """The kind of a column at least half of whose values are numbers, or dates."""
        counts, n = self.counts, self.n_present
        for kind, known in (("number", NUMERIC), ("date", DATED)):
            if counts[kind] == n:
                return kind, None
            if 2 * sum(counts[one] for one in known) >= n:
                odd = [one for one in known[1:] if counts[one]]
                if odd:
                    return kind, self._odd(max(odd, key=counts.__getitem__))
                if kind == "number" or counts["date"] > MOST_ONE_HOT:
                    return kind, self._stray(kind)
        return None

    def _odd(self, kind: str) -> Problem:
        what, command, python = ODDITIES[kind]
        if kind == "comma" and self.counts["decimal comma"]:
            return self._odd("decimal comma")
        verb = "has" if self.counts[kind] == 1 else "have"
        return self._problem(
            f"{self.counts[kind]:,} of {self.n_present:,} values {verb} {what}, first "
            f"{self.first[kind]}", command.format(in_option(self.name)), python,
        )  # fmt: skip

    def _stray(self, kind: str) -> Problem:
        """Text where at least half of the values are numbers or dates."""
        n = self.n_present - self.counts[kind]
        first = next(place for one, place in self.first.items() if one != kind)
        verb = "is" if n == 1 else "are"
        what = f"{n:,} of {self.n_present:,} values {verb} not a {kind}, first {first}"
        fix = "correct it" if n == 1 else "correct them"
        return self._problem(what, f"{fix}, or {self._drop()}", f"{fix}, or drop the column")

    def _too_many(self) -> Problem | None:
        """Nearly unique text, and more categories than can be."""
        n = len(self.words)
        if n > MOST_CATEGORIES:
            what = f"has more than {MOST_CATEGORIES:,} different values"
        elif n > MOST_ONE_HOT and 2 * n > self.n_present:
            what = f"{n:,} different values in {self.n_present:,} rows: ids, or free text"
        else:
            return None
        first = next(iter(self.first.values()))
        problem = self._leave_out(f"{what}, first {first}")
        if self.categorical and self.counts["number"]:
            number = f"leave it out ({self._drop()}), or pass --number {in_option(self.name)}"
            return problem._replace(command=number, python="drop the column, or make it a number")
        return problem

    def _leave_out(self, what: str) -> Problem:
        return self._problem(what, f"leave it out ({self._drop()})", "drop the column")

    def _drop(self) -> str:
        return f"--drop {in_option(self.name)}"

    def _problem(self, what: str, command: str, python: str) -> Problem:
        return Problem(self.name, what, command, python)


def in_option(name: str) -> str:
    """The name of a column as an option of the command line takes it.

    Options split names at commas, so one that has a comma stands in quotes of its own.
    """
    if "," in name or '"' in name or name != name.strip():
        name = '"{}"'.format(name.replace('"', '""'))
    return shlex.quote(name)


def _plain_numbers(values: npt.NDArray[Any]) -> Array | None:
    """Values as floats, if all that are there are numbers that a float holds."""
    numbers = as_floats(values)
    if numbers is None or values.dtype.kind != "O":
        return numbers
    present = [value for value in values if value]
    long = max(map(len, present), default=0) > EXACT_CHARACTERS
    return None if long and any(map(loses_digits, present)) else numbers


def problems_of(
    findings: Sequence[Finding], missing: str = "fill", target: str | None = None
) -> list[Problem]:
    """The problems of all columns.

    Parameters
    ----------
    findings : sequence of Finding
    missing : {"fill", "error"}
        With "error" missing values are problems too, but those of the target.
    target : str, optional
        The column that must hold numbers.
    """
    problems = []
    for one in findings:
        if one.name == target:
            problems += _problem_of_target(one)
        elif one.problem is not None:
            problems.append(one.problem)
        elif missing == "error" and one.n_missing:
            what = f"{one.n_missing:,} values are missing"
            drop = f"fill them, or --drop {in_option(one.name)}"
            problems.append(Problem(one.name, what, drop, "fill them, or drop their rows"))
    return problems


def _problem_of_target(one: Finding) -> list[Problem]:
    if one.problem is not None:
        problem = one.problem._replace(what=f"the target: {one.problem.what}")
        return [problem._replace(command="correct it") if "--drop" in problem.command else problem]
    if one.kind == "number":
        return []
    what = f"the target must be a number, and this holds {KIND_WORDS[one.kind]}"
    return [Problem(one.name, what, "name another --target", "pass numbers")]


KIND_WORDS = {"number": "numbers", "date": "dates", "category": "text"}
