"""Section of a report on the effect of columns: relevance and partial dependence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from manygp import answers
from manygp.arrays import Array
from manygp.display import page
from manygp.display.charts import Chart, ChartAxis, cut, dates, linear, number, percent
from manygp.display.page import TextTable
from manygp.display.report.columns import Inputs, SourceColumn, category_word, day_word
from manygp.display.report.rows import NORMAL_REACH, Target
from manygp.model import FittedModel
from manygp.relevance import Relevance
from manygp.runtime.words import counted
from manygp.tables.columns import MONDAY, PARTS, PERIODS, WEEKDAYS, Column, cycles_of


@dataclass(frozen=True)
class EffectsSection:
    """Numbers of the section about effects, and why they are what they are."""

    # A table of bars has at most this number of rows.
    bars: int = 30
    # Columns whose effect is drawn, for one target and for each of several.
    columns: tuple[int, int] = (9, 3)
    # Places along a column, and training rows that are moved to each of them.
    places: int = 24
    moved_rows: int = 40
    # Categories that are drawn, at most.
    categories: int = 12
    # Shares of rows at which a curve begins and ends: beyond them are few rows.
    ends: tuple[float, float] = (0.01, 0.99)
    # Bars that show where rows are.
    rug_bars: int = 30


EFFECTS = EffectsSection()

WEEKS = ("week", "weekday")
# Ticks of one turn of a cycle: days, and words.
CYCLE_TICKS = {
    "year": ((0.0, "Jan"), (90.0, "Apr"), (181.0, "Jul"), (273.0, "Oct"), (365.0, "Jan")),
    "day": ((0.0, "0:00"), (0.25, "6:00"), (0.5, "12:00"), (0.75, "18:00"), (1.0, "24:00")),
}


class Change(NamedTuple):
    """Values that a column is given in turn.

    Attributes
    ----------
    source : SourceColumn
    cycle : str
        "year", "weekday", "week" or "day" if only the place in that cycle changes; "" otherwise.
    x : ndarray of shape (g,)
        Places along the column, days for a cycle; categories have 0, 1, ...
    words : list of str
        Names of the categories; nothing for numbers.
    places : list of int
        The features that change.
    features : ndarray of shape (g, f)
        What they become.
    """

    source: SourceColumn
    cycle: str
    x: Array
    words: list[str]
    places: list[int]
    features: Array

    @property
    def title(self) -> str:
        """The column, and which part of a time changes."""
        if self.cycle:
            return f"{self.source.name}: within a {self.cycle.removesuffix('day') or 'day'}"
        return f"{self.source.name}: over time" if self.source.column.cycles else self.source.name


class Effect(NamedTuple):
    """What the model predicts on average as one column changes.

    `mean` and `std` have the shape (g, t): averages over rows of the predicted mean, and of the
    std of the function.
    """

    change: Change
    mean: Array
    std: Array


def effects_of(
    model: FittedModel, sources: list[SourceColumn], relevance: Relevance, rows: Inputs
) -> list[Effect]:
    """The effects of the most relevant of the columns on training rows."""
    order = np.argsort(-relevance.total, kind="stable").tolist()
    most = EFFECTS.columns[min(model.n_targets, 2) - 1]
    changes = [
        one for j in order[:most] if relevance.total[j] > 0 for one in changes_of(sources[j], rows)
    ]
    X = rows.X[np.random.default_rng(0).permutation(len(rows.X))[: EFFECTS.moved_rows]]
    effects = []
    for change in changes[:most]:
        moved = np.repeat(X[None], len(change.x), axis=0)
        moved[:, :, change.places] = change.features[:, None]
        mean, std = answers.predict(model, moved.reshape(-1, X.shape[1]), latent=True)
        shape = (len(change.x), len(X), model.n_targets)
        effects.append(Effect(change, *(a.reshape(shape).mean(axis=1) for a in (mean, std))))
    return effects


def changes_of(source: SourceColumn, rows: Inputs) -> list[Change]:
    """How a column changes: one way, or for a time its course and each of its cycles apart."""
    column, first = source.column, source.place.start
    every = list(range(first, source.place.stop))
    if not source.is_number:
        shown, table = _shown_categories(column)
        words = [category_word(column.categories[k]) for k in shown]
        return [Change(source, "", np.arange(len(shown), dtype=np.float64), words, every, table)]
    values = source.values(rows)
    known = np.unique(values[~np.isnan(values)])
    if len(known) > EFFECTS.places:
        low, high = np.nanquantile(values, EFFECTS.ends)
        known = np.linspace(low, high, EFFECTS.places)
    own = [first, every[-1]] if column.has_missing else [first]  # cycles stay those of the rows
    course = np.column_stack([known, np.zeros_like(known)])[:, : len(own)]
    changes = [Change(source, "", known, [], own, course)]
    behind = first + 1
    for cycle in column.cycles:
        days = days_of(cycle, whole="day" not in column.cycles)
        places = list(range(behind, behind + len(PARTS[cycle])))
        behind += len(PARTS[cycle])
        turn = np.column_stack(cycles_of(days, (cycle,)))
        changes.append(Change(source, cycle, days, [], places, turn))
    return changes


def days_of(cycle: str, *, whole: bool) -> Array:
    """Days since 1970 through one turn of a cycle: a year, a week from Monday, or a day."""
    if cycle == "weekday":
        return MONDAY + np.arange(7.0)
    if cycle == "week":
        return MONDAY + (np.arange(7.0) if whole else np.linspace(0, 7, EFFECTS.places))
    return np.linspace(0, PERIODS[cycle], EFFECTS.places)


def _shown_categories(column: Column) -> tuple[list[int], Array]:
    """The categories that are drawn, and their features (g, f)."""
    if not column.means:
        return list(range(len(column.categories))), np.eye(len(column.categories))[
            :, -len(column.features) :
        ]
    table = np.array(column.means).T  # from the lowest mean to the highest
    order = np.argsort(table[:, 0], kind="stable")
    places = np.linspace(0, len(order) - 1, min(EFFECTS.categories, len(order)))
    shown = order[np.rint(places).astype(int)]
    return shown.tolist(), table[shown]


def effects_section(
    relevance: Relevance, effects: list[Effect], targets: list[Target], rows: Inputs
) -> str:
    """Bars of relevance, and a small chart for each effect and target."""
    if not relevance.total.any():
        names = " and ".join(one.name for one in targets)
        return page.paragraph(
            f"None: the columns explain nothing of {names}, or the kernel has no length-scales."
        )
    html = _bars(relevance)
    moved = counted(min(len(rows.X), EFFECTS.moved_rows), "training row")
    text = (
        f"What the model predicts on average for {moved} "
        "as one of their values changes and all others stay. The band holds the average curve "
        "with about 90%, as the model sees it; it widens where rows are few. Each chart has an "
        "axis of its own. Grey bars show where rows are. Where columns go together, such as "
        "length and width, a curve also asks about rows that do not exist."
    )
    if any(one.change.cycle for one in effects):
        text += " Of a time the course and the cycles of year, week and day are drawn apart."
    html += page.heading("What the prediction does along a column") + page.paragraph(text)
    for j, target in enumerate(targets):
        if len(targets) > 1:
            html += page.heading(target.name)
        html += page.side_by_side(_draw(one, j, target, rows) for one in effects)
    return html


def _bars(relevance: Relevance) -> str:
    """A bar for each column: what the trend explains, and what the experts add."""
    order = np.argsort(-relevance.total, kind="stable").tolist()
    most = max(float(relevance.total.max()), 1e-300)
    has_trend = bool(relevance.trend.any())
    rows = []
    for j in order[: EFFECTS.bars]:
        trend, total = float(relevance.trend[j]) / most, float(relevance.total[j]) / most
        bars = [(0.0, trend, ""), (trend, total, "other")] if has_trend else [(0.0, total, "")]
        cells = [page.label(relevance.column[j]), page.track(*bars)]
        rows.append([*cells, page.escape(_share(float(relevance.total[j])))])
    text = "How much of the variance of the target the model explains by each column."
    left = len(order) - len(rows)
    if left:
        highest = _share(float(relevance.total[order[EFFECTS.bars]]))
        text += f" Not shown: {counted(left, 'column')} of at most {highest}."
    html = page.paragraph(text)
    if has_trend:
        html += (
            '<p class="keys"><span><i></i>by the trend</span>'
            '<span><i class="other"></i>by the experts</span></p>\n'
        )
    table = TextTable("", ["column", "", "share"], rows)
    return html + page.as_html(table, markup=str, kind="bars")


def _share(value: float) -> str:
    return "< 0.1%" if value < 0.001 else percent(value)


def _draw(effect: Effect, j: int, target: Target, rows: Inputs) -> str:
    """The effect of a column on a target."""
    change, mean, reach = effect.change, effect.mean[:, j], NORMAL_REACH * effect.std[:, j]
    limits = linear(float((mean - reach).min()), float((mean + reach).max()), pad=0.08)
    low, high = int(mean.argmin()), int(mean.argmax())
    span = number(float(np.ptp(mean)))
    caption = f"From the lowest to the highest: {target.with_unit(span)}."
    if change.words:
        chart = _categories(change, mean, reach, (target, limits))
        ends = change.words[low], change.words[high]
        every = len(change.source.column.categories)
        caption += "" if every == len(mean) else f" {len(mean)} of {every:,} categories."
    else:
        axis = _axis(change)
        chart = _curve(change, (mean, reach), (target, limits), axis, rows)
        ends = _word(change, low), _word(change, high)
    alt = (
        f"Average prediction of {target.name} along {change.title}: least "
        f"{number(float(mean.min()))} at {ends[0]}, most {number(float(mean.max()))} at {ends[1]}."
    )
    return page.drawing(chart.svg(alt), change.title, caption)


def _word(change: Change, k: int) -> str:
    """A place along a column in words."""
    x = float(change.x[k])
    if change.cycle == "year":
        return day_word(x, "D")[5:]
    if change.cycle in WEEKS:
        return WEEKDAYS[int(x - MONDAY) % 7]
    return day_word(x, "m")[11:] if change.cycle == "day" else change.source.word(x)


def _axis(change: Change) -> ChartAxis:
    """The axis of a number, a time, or one turn of a cycle."""
    low, high = float(change.x.min()), float(change.x.max())
    if not change.cycle:
        return (dates if change.source.column.kind == "date" else linear)(low, high)
    ticks: tuple[tuple[float, str], ...] = CYCLE_TICKS.get(change.cycle, ())
    if change.cycle in WEEKS:
        half = 0.0 if len(change.x) == 7 else 0.5
        ticks = tuple((MONDAY + k + half, name) for k, name in enumerate(WEEKDAYS))
    return ChartAxis(low, high, ticks)


def _curve(
    change: Change,
    curve: tuple[Array, Array],
    drawn: tuple[Target, ChartAxis],
    axis: ChartAxis,
    rows: Inputs,
) -> Chart:
    """A curve along a number or date, and where rows are."""
    (mean, reach), (target, limits), x = curve, drawn, change.x
    chart = Chart(axis, limits, ("", f"predicted {target.name}"), height=210)
    values = change.source.values(rows)
    values = values[~np.isnan(values)]
    if change.cycle:
        values = x[0] + np.mod(values - x[0], PERIODS[change.cycle])
    counts, edges = np.histogram(values, EFFECTS.rug_bars, range=(axis.low, axis.high))
    if len(x) > 7 or not change.cycle:
        chart.rug(edges, counts.astype(np.float64))
    chart.band(x, mean - reach, mean + reach)
    chart.line(x, mean, "line")
    if len(x) <= EFFECTS.places // 2:
        chart.dots(x, mean, "points")
    return chart


def _categories(
    change: Change, mean: Array, reach: Array, drawn: tuple[Target, ChartAxis]
) -> Chart:
    """A point with a line for each category, from the top."""
    target, limits = drawn
    n = len(mean)
    ticks = tuple((float(n - 1 - k), cut(word, 16)) for k, word in enumerate(change.words))
    height = 210.0 if n <= 8 else 66.0 + 18 * n
    chart = Chart(
        limits, ChartAxis(-0.6, n - 0.4, ticks), (f"predicted {target.name}", ""), height
    )
    for k in range(n):
        ends = [mean[k] - reach[k], mean[k] + reach[k]]
        chart.line(ends, [n - 1 - k] * 2, "line")
    chart.dots(mean, n - 1 - np.arange(n, dtype=np.float64), "points")
    return chart
