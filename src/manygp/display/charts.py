"""Small charts as SVG, in the colours of the page that holds them.

All that stands in a chart is text or numbers; names of the data are escaped, and cut if long.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from manygp.arrays import Array
from manygp.display.page import escape

# Units of a chart; a screen shows about one pixel for each.
WIDTH, HEIGHT = 360.0, 250.0
# Room on the left, at most, and above, on the right and below the axes.
MOST_LEFT, TOP, RIGHT, BOTTOM = 150.0, 22.0, 12.0, 40.0
# Widths of small letters and digits, of capitals, and of the letters of China, Japan and Korea.
SMALL, CAPITAL, WIDE = 6.4, 8.2, 11.5
# Dots are drawn in so many layers, so that the densest places are the darkest.
LAYERS = 12
# An axis has about so many ticks.
TICKS = 5
# Large numbers are said in these.
SIZES = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))


class ChartAxis(NamedTuple):
    """Axis of a chart, from low to high, with labelled ticks."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def place(self, values: Array) -> Array:
        """Shares of the axis, from 0 to 1; what lies outside is at its end."""
        if self.log:
            low, high, values = np.log(self.low), np.log(self.high), np.log(values)
        else:
            low, high = self.low, self.high
        return np.clip((np.asarray(values) / 2 - low / 2) / (high / 2 - low / 2), 0.0, 1.0)


def number(value: float) -> str:
    """A number with three significant digits, as people say it: 0.25, 1,234 or 7.19 million."""
    size, name = size_of(value)
    if name:
        return minus(f"{round(value / size, 2 - _power(value / size)):g} {name}")
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        return minus(f"{value:.3g}".replace("e+", "e").replace("e0", "e").replace("e-0", "e-"))
    return minus(f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}")


def size_of(value: float) -> tuple[float, str]:
    """The unit in which a large number is said, and its name: (1e6, "million"), or (1, "")."""
    names = [one for one in SIZES if 0.9995 * one[0] <= abs(value) < 0.9995e15]
    return names[0] if names else (1.0, "")


def _power(value: float) -> int:
    """The power of ten of a number."""
    return int(np.floor(np.log10(abs(value))))


def score(value: float) -> str:
    """The same, with zeros at the end, so that numbers of a table have the same digits."""
    size, name = size_of(value)
    if not name and not 1e-4 <= abs(value) < 99.95:
        return number(value)
    return minus(f"{value / size:#.3g}".rstrip(".") + f" {name}".rstrip())


def minus(text: str) -> str:
    """A number with a minus sign in the place of a hyphen."""
    return "−" + text[1:] if text.startswith("-") else text


def percent(share: float) -> str:
    """A share as a percentage with one decimal."""
    return minus(f"{100 * share:.1f}%")


def nominal(share: float) -> str:
    """A share that somebody has chosen, such as 90%."""
    return f"{100 * share:.6g}%"


def span(numbers: list[int]) -> str:
    """The range of whole numbers: 50, or 50 to 70."""
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def cut(text: str, width: int) -> str:
    """A text that takes at most so many places; wide letters take two."""
    taken = 0
    for index, letter in enumerate(text):
        taken += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if taken > width:
            return text[: index - 1] + "…"
    return text


def linear(low: float, high: float, *, pad: float = 0.0) -> ChartAxis:
    """An axis of round ticks."""
    if not high > low:
        room = abs(low) / 10 or 1.0
        low, high = low - room, high + room
    span = high / 2 - low / 2
    low, high = low - pad * 2 * span, high + pad * 2 * span
    raw = 2 * (span / TICKS)
    power = 10.0 ** np.floor(np.log10(raw))
    step = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= raw * 0.999)
    first, last = np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9)
    ticks = tuple((k * step, minus(_tick(k * step, step))) for k in np.arange(first, last + 1))
    return ChartAxis(low, high, ticks)


def _tick(value: float, step: float) -> str:
    """A round number with the digits of its step."""
    if abs(value) < step / 2:
        return "0"
    size, name = size_of(value)
    if name and step >= 1e-3 * size:
        return f"{value / size:.{max(0, -_power(1.001 * step / size))}f} {name}"
    if not 1e-4 <= step < 1e6 or abs(value) >= 1e7:
        digits = max(0, _power(value) - _power(step) + 1)
        return f"{value:.{min(digits, 6)}g}".replace("e+", "e").replace("e0", "e")
    decimals = next(n for n in range(9) if abs(round(step, n) - step) < 1e-6 * step)
    return f"{value:,.{decimals}f}"


def logarithmic(low: float, high: float) -> ChartAxis:
    """An axis of powers of ten, and of 2 and 5 times these if it is short."""
    powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    steps = (1.0, 2.0, 5.0) if high < 200 * low else (1.0,)
    each = sorted(step * power for power in powers for step in steps)
    inside = [one for one in each if low <= one <= high]
    inside = inside[:: -(-len(inside) // (TICKS + 1)) or 1]
    return ChartAxis(low, high, tuple((one, number(one)) for one in inside), log=True)


def dates(low: float, high: float) -> ChartAxis:
    """An axis of days since 1970."""
    if not high > low:
        low, high = low - 1, high + 1
    unit = "D" if high - low < 400 else "M"
    unit = unit if high - low > 3 else "m"
    places = np.linspace(low, high, 4)[1:-1] if unit != "M" else np.linspace(low, high, 5)[1:-1]
    moments = (places * 86_400).astype("datetime64[s]").astype(f"datetime64[{unit}]")
    words = [str(moment).replace("T", " ") for moment in moments]
    return ChartAxis(low, high, tuple(zip(places.tolist(), words, strict=True)))


class Chart:
    """An SVG to which lines, dots and bars are added, from the back to the front.

    `labels` tell what the axes x and y show.
    """

    def __init__(
        self, x: ChartAxis, y: ChartAxis, labels: tuple[str, str], height: float = HEIGHT
    ) -> None:
        self._x, self._y, self._labels, self._height = x, y, labels, height
        longest = max((_width(word) for _, word in y.ticks), default=0.0)
        self._left = min(MOST_LEFT, 10 + longest)
        self._parts: list[str] = []

    def _across(self, values: Array | Sequence[float]) -> Array:
        width = WIDTH - self._left - RIGHT
        return self._left + width * self._x.place(np.asarray(values, dtype=np.float64))

    def _down(self, values: Array | Sequence[float]) -> Array:
        room = self._height - TOP - BOTTOM
        return TOP + room * (1 - self._y.place(np.asarray(values, dtype=np.float64)))

    def line(self, x: Array | Sequence[float], y: Array | Sequence[float], kind: str) -> None:
        """A line through points; "line", "ideal" or "grid", and "other" for a second colour."""
        self._path("M" + "L".join(_pairs(self._across(x), self._down(y))), kind)

    def dots(self, x: Array, y: Array, kind: str = "dots") -> None:
        """Many dots that shine through; "points" are few and do not."""
        places = [f"M{pair}h0" for pair in _pairs(self._across(x), self._down(y))]
        layers = LAYERS if kind.startswith("dots") else 1
        for layer in range(layers):
            if places[layer::layers]:
                self._path("".join(places[layer::layers]), kind)

    def band(self, x: Array, low: Array, high: Array) -> None:
        """Fill the band between two lines."""
        across = self._across(x)
        there, back = _pairs(across, self._down(low)), _pairs(across, self._down(high))
        self._path("M" + "L".join([*there, *reversed(list(back))]) + "Z", "band")

    def bars(self, edges: Array, heights: Array, kind: str = "bars") -> None:
        """Bars between edges (k + 1,) that stand on the lower end of the axis."""
        x, y = self._across(edges), self._down(heights)
        floor = self._height - BOTTOM
        bars = (
            f"M{a:.1f} {floor:.1f}V{top:.1f}H{b:.1f}V{floor:.1f}Z"
            for a, b, top in zip(x[:-1], x[1:], y, strict=True)
        )
        self._path("".join(bars), kind)

    def rug(self, edges: Array, shares: Array) -> None:
        """Where rows are: low bars at the foot, of at most a tenth of the height."""
        y = self._y
        tenth = y.low + 0.1 * (y.high - y.low) * shares / max(float(shares.max()), 1e-300)
        self.bars(edges, tenth, "rug")

    def _ticks_with_room(self) -> Sequence[tuple[float, str]]:
        """The ticks of x: every second, third, ... if the words of all have no room."""
        ticks, room = self._x.ticks, WIDTH - self._left - RIGHT
        widest = max((_width(word) for _, word in ticks), default=0.0) + SMALL
        shares = self._x.place(np.array([tick for tick, _ in ticks]))
        apart = room * float(np.diff(shares).min()) if len(ticks) > 1 else room
        return ticks[:: max(1, int(np.ceil(widest / max(apart, 1.0))))]

    def _path(self, d: str, kind: str) -> None:
        self._parts.append(f'<path class="{kind}" d="{d}"/>')

    def svg(self, alt: str) -> str:
        """The drawing; `alt` tells what it shows."""
        floor, right = self._height - BOTTOM, WIDTH - RIGHT
        frame = []
        for tick, word in self._y.ticks:
            (y,) = self._down([tick])
            frame.append(f'<path class="grid" d="M{self._left:.1f} {y:.1f}H{right:.1f}"/>')
            frame.append(_text(self._left - 6, y + 4, word, "end"))
        for tick, word in self._ticks_with_room():
            (x,) = self._across([tick])
            frame.append(f'<path class="grid" d="M{x:.1f} {floor:.1f}v4"/>')
            half = _width(word) / 2
            frame.append(_text(min(max(x, half), WIDTH - half), floor + 16, word, "middle"))
        frame.append(f'<path class="grid" d="M{self._left:.1f} {floor:.1f}H{right:.1f}"/>')
        middle = (self._left + right) / 2
        frame.append(_text(middle, self._height - 8, cut(self._labels[0], 46), "middle"))
        frame.append(_text(0, 11, cut(self._labels[1], 52), "start"))
        return (
            f'<svg class="chart" viewBox="0 0 {WIDTH:g} {self._height:g}" role="img" '
            f'aria-label="{escape(alt)}">{"".join(frame)}{"".join(self._parts)}</svg>'
        )


def _width(text: str) -> float:
    """About the width of a text."""
    return sum(
        WIDE if unicodedata.east_asian_width(one) in "WF" else CAPITAL if one.isupper() else SMALL
        for one in text
    )


def _pairs(x: Array, y: Array) -> Iterable[str]:
    return [f"{a:.1f} {b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True)]


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
