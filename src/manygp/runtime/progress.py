"""Progress of long work as its user sees it: phases, the time left, messages, warnings."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter
from typing import TextIO, TypeVar

from manygp.runtime.words import duration

T = TypeVar("T")


@dataclass(frozen=True)
class Pace:
    """Numbers of what progress tells, and why they are what they are."""

    # Seconds after which the line on a terminal is drawn again.
    redraw_seconds: float = 0.5
    # The plan's own speed counts as much as this share of all its seconds that were done.
    plan_share: float = 0.01
    # What a phase still takes, as shares of its time if that is more than planned, and of its work
    # if that is.
    overdue: float = 0.1
    overworked: float = 0.3
    # A phase that takes less of its planned time had nothing to do, which says nothing of the
    # others.
    idle: float = 0.05
    # Seconds that are not worth telling.
    short_seconds: float = 0.1


PACE = Pace()

# Characters of the bar, and of a terminal that does not tell its width.
BAR_WIDTH, LINE_WIDTH = 24, 80


class Progress:
    """Receiver of progress. This one, for work that is not watched, does nothing."""

    def expect(self, seconds: Mapping[str, float], limit: float = float("inf")) -> None:
        """Name the phases that are ahead, in their order, with planned seconds.

        The work may take `limit` seconds from now on.
        """

    def begin(self, phase: str) -> None:
        """Begin a phase, which ends the one before; if it has begun already it goes on."""

    def advance(self, share: float, phase: str | None = None) -> None:
        """Say how much of the planned work of a phase is done, which may be more than all of it.

        While there is another one than that which is named, it means nothing.
        """

    def track(self, phase: str, items: Iterable[T], total: int) -> Iterator[T]:
        """The items of a phase, which advances with each of them."""
        for done, item in enumerate(items, 1):
            self.advance(done / total, phase)
            yield item

    def counting(self, function: Callable[..., T], total: int) -> Callable[..., T]:
        """A function of which `total` calls are planned for a phase, which advances with each."""
        done = 0

        def counted(*arguments: object) -> T:
            nonlocal done
            done += 1
            self.advance((done - 1) / total)
            return function(*arguments)

        return counted


SILENT = Progress()


class Schedule(Progress):
    """Phases that are planned and done, and the time that is left.

    The plan says how phases compare; how fast they are is learned from the time that was taken.

    Parameters
    ----------
    clock : callable
        The time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._start = self._since = self._told = clock()
        self._limit = float("inf")
        self._planned: dict[str, float] = {}
        self._ahead: dict[str, float] = {}
        self._shown = self._done = self._spent = 0.0
        self.phase, self.share = "", 0.0

    @property
    def is_planned(self) -> bool:
        """Whether there are planned phases."""
        return bool(self._planned)

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._start

    def expect(self, seconds: Mapping[str, float], limit: float = float("inf")) -> None:
        self._planned, self._ahead = dict(seconds), dict(seconds)
        self._limit = self._clock() + limit

    def begin(self, phase: str) -> None:
        if phase == self.phase:
            return
        now, planned = self._clock(), self._planned.get(self.phase, 0.0)
        taken = now - self._since
        if planned and (self.share or taken > PACE.idle * planned):
            self._done += (self.share or 1.0) * planned
            self._spent += taken
        if phase in self._ahead:  # those before it were left out
            names = list(self._ahead)
            later = names[names.index(phase) + 1 :]
            self._ahead = {name: self._ahead[name] for name in later}
        self.phase, self.share, self._since, self._told = phase, 0.0, now, now

    def advance(self, share: float, phase: str | None = None) -> None:
        if phase in (None, self.phase):
            self.share, self._told = share, self._clock()

    @property
    def left(self) -> float | None:
        """Seconds that the rest will take; None before there is a plan, and after its end."""
        if not (self._ahead or self.phase in self._planned):
            return None
        now, planned = self._clock(), self._planned.get(self.phase, 0.0)
        taken, told = now - self._since, self._told - self._since
        if not planned:
            return min(self._pace(0.0, 0.0) * sum(self._ahead.values()), self._limit - now)
        # Were all of the phase done by now, it would still have been this slow.
        whole = planned * max(self.share, 1.0)
        pace = max(self._pace(told, self.share * planned), self._pace(taken, whole))
        prior = PACE.plan_share * sum(self._planned.values())
        own = (told + pace * prior) / (self.share * planned + prior)
        undone = planned * max(1 - self.share, PACE.overworked * self.share)
        rest = max(own * undone - (taken - told), PACE.overdue * (taken - told))
        return max(0.0, min(rest + pace * sum(self._ahead.values()), self._limit - now))

    def _pace(self, seconds: float, planned: float) -> float:
        """Seconds for each planned one, with those of the phase at hand."""
        prior = PACE.plan_share * sum(self._planned.values())
        return (self._spent + seconds + prior) / (self._done + planned + prior)

    @property
    def part(self) -> float:
        """The part of all the time that is over, which never falls."""
        elapsed, left = self.elapsed, self.left
        if left is not None and elapsed + left > 0:
            self._shown = max(self._shown, elapsed / (elapsed + left))
        return self._shown


class Bar(Schedule):
    """A schedule that is shown: a line that moves on a terminal, else a line for each phase.

    Parameters
    ----------
    stream : text stream
    clock : callable
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = perf_counter) -> None:
        super().__init__(clock)
        self._stream, self._is_terminal = stream, stream.isatty()
        self._drawn = 0
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="manygp-progress", daemon=True)
        if self._is_terminal:
            with suppress(RuntimeError):  # without a thread more it is drawn at each phase only
                self._heart.start()

    def begin(self, phase: str) -> None:
        with self._lock:
            has_begun = phase == self.phase
            super().begin(phase)
            if self._is_terminal:
                self._draw()
            elif not has_begun:
                print(f"manygp: {self.text()}", file=self._stream)

    def expect(self, seconds: Mapping[str, float], limit: float = float("inf")) -> None:
        with self._lock:
            super().expect(seconds, limit)

    def advance(self, share: float, phase: str | None = None) -> None:
        with self._lock:
            super().advance(share, phase)

    def text(self) -> str:
        """The phase, the time that is over and the time that is left."""
        elapsed, left = self.elapsed, self.left
        told = self.phase
        if elapsed >= PACE.short_seconds:
            told = f"{told} after {duration(elapsed)}"
        return told if left is None else f"{told}, about {duration(left)} left"

    def line(self) -> str:
        """What a terminal shows."""
        full, empty = self._marks()
        n_full = round(self.part * BAR_WIDTH)
        bar = full * n_full + empty * (BAR_WIDTH - n_full)
        return f"{bar} {self.part:4.0%}  {self.text()}"

    def _marks(self) -> tuple[str, str]:
        """The characters of what is done and not; plain ones where the stream has no others."""
        try:
            "━─".encode(self._stream.encoding or "ascii")
        except (LookupError, UnicodeEncodeError):
            return "#", "-"
        return "━", "─"

    @contextmanager
    def aside(self) -> Iterator[None]:
        """While something else is printed, there is no line."""
        with self._lock:
            self._clear()
            yield

    def close(self) -> None:
        """Stop drawing, and leave an empty line."""
        self._closed.set()
        if self._heart.is_alive():
            self._heart.join(timeout=2 * PACE.redraw_seconds)
        with self._lock:
            self._clear()

    def _beat(self) -> None:
        while not self._closed.wait(PACE.redraw_seconds):
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        if not self._closed.is_set() and self.phase:
            line = self.line()[: _width(self._stream) - 1]
            self._write(f"\r{line}{' ' * (self._drawn - len(line))}\r")
            self._drawn = len(line)

    def _clear(self) -> None:
        if self._drawn:
            self._write(f"\r{' ' * self._drawn}\r")
            self._drawn = 0

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a terminal that is gone stops no work
            self._stream.write(text)
            self._stream.flush()


def _width(stream: TextIO) -> int:
    """Characters in a line of a terminal."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or LINE_WIDTH
    except (OSError, ValueError):
        return LINE_WIDTH


_open: ContextVar[Bar | None] = ContextVar("manygp_progress", default=None)


@contextmanager
def shown(*, verbose: bool) -> Iterator[Progress]:
    """Where work says how far it is, on standard error if it is to be shown.

    Work within other work that is shown, and has not planned its phases, shares its bar; within
    one that has it is a part of a phase.
    """
    bar = _open.get()
    if not verbose or (bar is not None and bar.is_planned):
        yield SILENT
        return
    if bar is not None:
        yield bar
        return
    bar = Bar(sys.stderr)
    token = _open.set(bar)
    try:
        yield bar
    finally:
        _open.reset(token)
        bar.close()


@contextmanager
def aside() -> Iterator[None]:
    """Make room on the terminal for what is printed meanwhile."""
    bar = _open.get()
    if bar is None:
        yield
        return
    with bar.aside():
        yield


def say(message: str) -> None:
    with aside():
        print(f"manygp: {message}", file=sys.stderr)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn whoever called the library, from wherever in it this is called."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("manygp"):
        level, frame = level + 1, frame.f_back
    with aside():
        warnings.warn(message, category, stacklevel=level)
