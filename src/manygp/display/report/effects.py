"""Which columns matter, and how: relevance and partial dependence."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manygp.arrays import Array
from manygp.display import page
from manygp.display.charts import Axis, Chart, cut, dates, linear, number, percent
from manygp.display.page import TextTable
from manygp.display.report.columns import Source, category_word
from manygp.display.report.rows import NORMAL_REACH, Target
from manygp.model import FittedModel
from manygp.relevance import Relevance
from manygp.runtime.words import counted
from manygp.tables.columns import cycles_of

# A table of bars has at most this number of rows.
MOST_BARS = 30
# Columns whose effect is drawn, for one target and for each of several.
MOST_EFFECTS = (6, 3)
# Places along a column, and training rows that are moved to each of them.
PLACES = 24
MOVED_ROWS = 40
# Categories that are drawn, at most.
MOST_CATEGORIES = 12
# Shares of rows at which a curve begins and ends: beyond them are few rows.
ENDS = (0.01, 0.99)
# Bars that show where rows are.
RUG_BARS = 30


class Effect(NamedTuple):
    """What the model predicts on average as one column changes.

    Attributes
    ----------
    source : Source
    x : ndarray of shape (g,)
        Places along the column; categories have 0, 1, ...
    words : list of str
        Names of the categories; nothing for numbers.
    mean, std : ndarrays of shape (g, t)
        Averages over rows of the predicted mean, and of the std of the function.
    """

    source: Source
    x: Array
    words: list[str]
    mean: Array
    std: Array


def effects_of(
    model: FittedModel, sources: list[Source], relevance: Relevance, X: Array
) -> list[Effect]:
    """The effects of the most relevant of the columns on training rows X (n, d)."""
    order = np.argsort(-relevance.total, kind="stable").tolist()
    most = MOST_EFFECTS[min(model.n_targets, 2) - 1]
    chosen = [sources[j] for j in order[:most] if relevance.total[j] > 0]
    rows = X[np.random.default_rng(0).permutation(len(X))[:MOVED_ROWS]]
    effects = []
    for source in chosen:
        x, words, features = _places(source, X)
        moved = np.repeat(rows[None], len(x), axis=0)
        moved[:, :, source.place] = features[:, None]
        mean, std = model.predict(moved.reshape(-1, X.shape[1]), latent=True)
        shape = (len(x), len(rows), model.n_targets)
        effects.append(
            Effect(source, x, words, *(one.reshape(shape).mean(axis=1) for one in (mean, std)))
        )
    return effects


def _places(source: Source, X: Array) -> tuple[Array, list[str], Array]:
    """Places along a column (g,), their names if they are categories, and features (g, f)."""
    column = source.column
    if source.is_number:
        values = source.values(X)
        known = np.unique(values[~np.isnan(values)])
        if len(known) > PLACES:
            low, high = np.nanquantile(values, ENDS)
            known = np.linspace(low, high, PLACES)
        cycles = cycles_of(known, column.cycles)
        present = [np.zeros_like(known)] if column.has_missing else []
        return known, [], np.column_stack([known, *cycles, *present])
    if source.is_one_hot:
        table = np.eye(len(column.categories))[:, -len(column.features) :]
        shown = np.arange(len(table))
    else:  # from the lowest mean to the highest
        table = np.array(column.means).T
        order = np.argsort(table[:, 0], kind="stable")
        places = np.linspace(0, len(order) - 1, min(MOST_CATEGORIES, len(order)))
        shown = order[np.rint(places).astype(int)]
    words = [category_word(column.categories[k]) for k in shown.tolist()]
    return np.arange(len(shown), dtype=np.float64), words, table[shown]


def effects_section(
    relevance: Relevance, effects: list[Effect], targets: list[Target], X: Array
) -> str:
    """Bars of relevance, and a small chart for each effect and target."""
    if not relevance.total.any():
        names = " and ".join(one.name for one in targets)
        return page.paragraph(
            f"None: the columns explain nothing of {names}, or the kernel has no length-scales."
        )
    html = _bars(relevance)
    moved = counted(min(len(X), MOVED_ROWS), "training row")
    text = (
        f"What the model predicts on average for {moved} "
        "as one of their values changes and all others stay. The band holds the average curve "
        "with about 90%, as the model sees it; it widens where rows are few. Each chart has an "
        "axis of its own. Grey bars show where rows are. Where columns go together, such as "
        "length and width, a curve also asks about rows that do not exist."
    )
    html += page.heading("What the prediction does along a column") + page.paragraph(text)
    for j, target in enumerate(targets):
        if len(targets) > 1:
            html += page.heading(target.name)
        html += page.side_by_side(_draw(one, j, target, X) for one in effects)
    return html


def _bars(relevance: Relevance) -> str:
    """A bar for each column: what the trend explains, and what the experts add."""
    order = np.argsort(-relevance.total, kind="stable").tolist()
    most = max(float(relevance.total.max()), 1e-300)
    has_trend = bool(relevance.trend.any())
    rows = []
    for j in order[:MOST_BARS]:
        trend, total = float(relevance.trend[j]) / most, float(relevance.total[j]) / most
        bars = [(0.0, trend, ""), (trend, total, "other")] if has_trend else [(0.0, total, "")]
        cells = [page.label(relevance.column[j]), page.track(*bars)]
        rows.append([*cells, page.escape(_share(float(relevance.total[j])))])
    text = "How much of the variance of the target the model explains by each column."
    left = len(order) - len(rows)
    if left:
        highest = _share(float(relevance.total[order[MOST_BARS]]))
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


def _draw(effect: Effect, j: int, target: Target, X: Array) -> str:
    """The effect of a column on a target."""
    mean, reach = effect.mean[:, j], NORMAL_REACH * effect.std[:, j]
    limits = linear(float((mean - reach).min()), float((mean + reach).max()), pad=0.08)
    name, low, high = effect.source.name, mean.argmin(), mean.argmax()
    span = number(float(np.ptp(mean)))
    caption = f"From the lowest to the highest: {target.with_unit(span)}."
    if effect.words:
        chart = _categories(effect, mean, reach, (target, limits))
        ends = effect.words[low], effect.words[high]
        every = len(effect.source.column.categories)
        caption += "" if every == len(mean) else f" {len(mean)} of {every:,} categories."
    else:
        chart = _curve(effect, mean, reach, (target, limits), X)
        ends = effect.source.word(float(effect.x[low])), effect.source.word(float(effect.x[high]))
    alt = (
        f"Average prediction of {target.name} along {name}: least {number(float(mean.min()))} at "
        f"{ends[0]}, most {number(float(mean.max()))} at {ends[1]}."
    )
    return page.drawing(chart.svg(alt), name, caption)


def _curve(
    effect: Effect, mean: Array, reach: Array, drawn: tuple[Target, Axis], X: Array
) -> Chart:
    """A curve along a number or date, and where rows are."""
    target, limits = drawn
    x, is_date = effect.x, effect.source.column.kind == "date"
    axis = (dates if is_date else linear)(float(x.min()), float(x.max()))
    chart = Chart(axis, limits, ("", f"predicted {target.name}"), height=210)
    values = effect.source.values(X)
    counts, edges = np.histogram(values[~np.isnan(values)], RUG_BARS, range=(axis.low, axis.high))
    chart.rug(edges, counts.astype(np.float64))
    chart.band(x, mean - reach, mean + reach)
    chart.line(x, mean, "line")
    if len(x) <= PLACES // 2:
        chart.dots(x, mean, "points")
    return chart


def _categories(effect: Effect, mean: Array, reach: Array, drawn: tuple[Target, Axis]) -> Chart:
    """A point with a line for each category, from the top."""
    target, limits = drawn
    n = len(mean)
    ticks = tuple((float(n - 1 - k), cut(word, 16)) for k, word in enumerate(effect.words))
    height = 210.0 if n <= 8 else 66.0 + 18 * n
    chart = Chart(limits, Axis(-0.6, n - 0.4, ticks), (f"predicted {target.name}", ""), height)
    for k in range(n):
        ends = [mean[k] - reach[k], mean[k] + reach[k]]
        chart.line(ends, [n - 1 - k] * 2, "line")
    chart.dots(mean, n - 1 - np.arange(n, dtype=np.float64), "points")
    return chart
