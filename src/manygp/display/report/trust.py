"""Whether the uncertainty can be trusted: reliability, PIT, and coverage by slices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manygp import metrics
from manygp.arrays import Array
from manygp.display import page
from manygp.display.charts import (
    SIZES,
    Chart,
    linear,
    logarithmic,
    nominal,
    number,
    percent,
    score,
    size_of,
)
from manygp.display.page import TextTable
from manygp.display.report.columns import Inputs, SourceColumn, category_word
from manygp.display.report.rows import RowSet, Scored


@dataclass(frozen=True)
class TrustSection:
    """Numbers of the section about trust, and why they are what they are."""

    # Bars of the histogram of PIT values, which lie within so many standard errors 95 times of
    # 100.
    pit_bars: int = 10
    bar_errors: float = 1.96
    # Slices by std, by prediction and by a number: so many from a number of rows on, else fewer.
    slices: tuple[tuple[int, int, int, int], ...] = ((10, 5, 4, 200), (4, 4, 4, 40))
    # Columns of numbers and of categories whose slices are shown, and categories of one of them.
    number_columns: int = 3
    category_columns: int = 2
    categories: int = 10
    # Fewest rows of a slice.
    slice_rows: int = 10
    # Columns among which the worst region is sought.
    slab_columns: int = 6
    # Axes that span more than this factor are logarithmic.
    wide: float = 10.0


TRUST = TrustSection()

# Units of large numbers.
UNITS = [name for _, name in SIZES]


class Slice(NamedTuple):
    """Some rows, by a name."""

    name: str
    rows: npt.NDArray[np.bool_]


def trust_section(sets: list[RowSet], sources: list[SourceColumn]) -> str:
    """Figures of both sets of rows, the main one first, and slices of that one.

    The most relevant of the sources stand first.
    """
    html = page.paragraph(
        "The model says how sure it is of each prediction: a std, and an interval. These should "
        "be as wide as the errors are large, not only on average but for every kind of row."
    )
    main = sets[0]
    for j, scored in enumerate(main.scored):
        if len(main.scored) > 1:
            html += page.heading(scored.target.name)
        if len(main) < metrics.N_BINS:
            html += page.paragraph(
                f"There are no figures: these need {metrics.N_BINS} rows, and there are "
                f"{len(main)}."
            )
            continue
        html += page.side_by_side([_reliability(sets, j), _pit(scored), _spread(main, j)])
        html += _slices_table(main, scored, slices_of(main, scored, sources))
    return html


def _reliability(sets: list[RowSet], j: int) -> str:
    """Observed against predicted error, bin by bin."""
    enough = [one for one in sets if len(one) >= metrics.N_BINS]
    curves = [metrics.reliability_curve(*one.scored[j].rows) for one in enough]
    every = np.concatenate([np.concatenate(curve) for curve in curves])
    low, high = float(every.min()), float(every.max())
    wide = low > 0 and high > TRUST.wide * low
    axis = logarithmic(low / 1.2, high * 1.2) if wide else linear(0.0, high, pad=0.03)
    target = sets[0].scored[j].target
    chart = Chart(axis, axis, ("predicted error (std)", f"observed error, in {target.units}"))
    chart.line([axis.low, axis.high], [axis.low, axis.high], "ideal")
    for kind, curve in list(zip(("", " other"), curves, strict=False))[::-1]:
        chart.line(curve.rmv, curve.rmse, "line" + kind)
        chart.dots(curve.rmv, curve.rmse, "points" + kind)
    ences = [f"{one.name}: ENCE {number(metrics.ence(*one.scored[j].rows))}" for one in enough]
    caption = (
        "Rows in ten groups, from the smallest std to the largest. On the dashed line the std is "
        "right; above it errors are larger than predicted."
    )
    if len(enough) > 1:
        caption += f" Blue: {enough[0].name}. Orange: {enough[1].name}."
    alt = f"Observed against predicted error. {'; '.join(ences)}."
    return page.drawing(chart.svg(alt), "Is the std as large as the errors?", caption)


def _pit(scored: Scored) -> str:
    """How often a true value falls into each tenth of its predicted distribution."""
    n = len(scored.pit)
    edges = np.linspace(0, 1, TRUST.pit_bars + 1)
    shares = np.histogram(scored.pit, edges)[0] / n
    ideal = 1 / TRUST.pit_bars
    chance = TRUST.bar_errors * np.sqrt(ideal * (1 - ideal) / n)
    top = max(float(shares.max()), ideal + chance)
    percents = linear(0, 100 * top, pad=0.05)._replace(low=0.0)
    labels = ("predicted probability of a smaller value", "rows, in %")
    chart = Chart(linear(0, 1), percents, labels)
    chart.bars(edges, 100 * shares)
    ends = np.array([0.0, 1.0])
    chart.band(ends, np.full(2, 100 * (ideal - chance)), np.full(2, 100 * (ideal + chance)))
    chart.line(ends, [100 * ideal] * 2, "ideal")
    outside = int((np.abs(shares - ideal) > chance).sum())
    caption = (
        "PIT: bars of one height say that the distributions are right. High ends: too narrow; a "
        "high middle: too wide; a slope: too low or too high. Chance keeps bars within the band."
    )
    words = ", ".join(percent(share) for share in shares)
    alt = f"Histogram of PIT values: {words}. {outside} of {TRUST.pit_bars} bars beyond chance."
    return page.drawing(chart.svg(alt), "Where do true values fall?", caption)


def _spread(rows: RowSet, j: int) -> str:
    """Share of rows held by intervals of every level."""
    scored = rows.scored[j]

    def held(levels: Array) -> Array:
        return np.array([np.mean(np.abs(scored.pit - 0.5) <= level / 2) for level in levels])

    levels = np.linspace(0.02, 0.98, 25)
    axis = linear(0, 100)
    chart = Chart(axis, axis, ("intended share of rows, in %", "rows held, in %"))
    chart.line([0, 100], [0, 100], "ideal")
    chart.line(100 * levels, 100 * held(levels), "line")
    words = ", ".join(map(percent, held(np.array([0.5, 0.9, 0.99]))))
    alt = f"Share of rows held by intervals. Those of 50%, 90% and 99% hold {words}."
    caption = (
        "Central intervals of every level. Below the dashed line they are too narrow, above it "
        "too wide."
    )
    return page.drawing(chart.svg(alt), "Do intervals hold what they promise?", caption)


def slices_of(rows: RowSet, scored: Scored, sources: list[SourceColumn]) -> dict[str, list[Slice]]:
    """Rows by std, by prediction, by the most relevant numbers and categories, and the worst slab.

    The most relevant of the sources stand first.
    """
    enough = (n for *n, least in TRUST.slices if len(rows) >= least)
    tenths, fifths, quarters = next(enough, (0, 0, 0))
    slices = {
        "By std": _by_quantiles(scored.std, tenths, number),
        "By prediction": _by_quantiles(scored.mean, fifths, number),
    }
    if rows.inputs is None:
        return slices
    numbers = [one for one in sources if one.is_number]
    for source in numbers[: TRUST.number_columns]:
        values = source.values(rows.inputs)
        slices[f"By {source.name}"] = _by_quantiles(values, quarters, source.short_word)
    categories = [one for one in sources if one.has_categories(rows.inputs)]
    for source in categories[: TRUST.category_columns]:
        slices[f"By {source.name}"] = _by_category(source, rows.inputs)
    slices["In the region where intervals hold least"] = _worst(rows.inputs, rows, scored, numbers)
    return slices


def _by_category(source: SourceColumn, inputs: Inputs) -> list[Slice]:
    """Rows of each category, those of the most frequent ones if there are many."""
    codes, names = source.codes(inputs), source.column.categories
    counts = np.bincount(codes[codes >= 0], minlength=len(names))
    kept = np.sort(np.argsort(-counts, kind="stable")[: TRUST.categories])
    return [Slice(category_word(names[k]), codes == k) for k in kept.tolist()]


def _worst(
    inputs: Inputs, rows: RowSet, scored: Scored, numbers: list[SourceColumn]
) -> list[Slice]:
    """The region that a tree finds in half of the rows, as the other half has it."""
    numbers = numbers[: TRUST.slab_columns]
    names = ["std", f"predicted {scored.target.name}", *(one.name for one in numbers)]
    words = [number, number, *(one.short_word for one in numbers)]
    columns = [scored.std, scored.mean, *(_filled(one.values(inputs)) for one in numbers)]
    slab = metrics.worst_slab(np.column_stack(columns), scored.held, rows.coverage)
    if slab is None:
        return []
    inside = np.zeros(len(rows), dtype=bool)
    inside[slab.rows] = True
    each = [
        _between(names[j], *(words[j](end) if np.isfinite(end) else "" for end in ends))
        for j, ends in sorted(slab.bounds.items())
    ]
    return [Slice(" and ".join(each), inside)]


def _filled(values: Array) -> Array:
    """Values with the median in the place of those that are missing."""
    missing = np.isnan(values)
    return np.where(missing, np.median(values[~missing]) if not missing.all() else 0.0, values)


def _between(name: str, low: str, high: str) -> str:
    """A range in words; ends that are not there are empty."""
    if low and high:
        return f"{name} from {_from_to(low, high)}"
    return f"{name} above {low}" if low else f"{name} up to {high}"


def _by_quantiles(values: Array, n: int, word: Callable[[float], str]) -> list[Slice]:
    """Rows between quantiles of a column; those without a value come last."""
    known = values[~np.isnan(values)]
    places = np.quantile(known, np.linspace(0, 1, n + 1)).tolist() if n and len(known) else []
    edges = list({word(place): place for place in places}.values())  # that can be told apart
    slices: list[Slice] = []
    for low, high in pairwise(edges):
        above = values > low if slices else values >= places[0]
        slices.append(Slice(_from_to(word(low), word(high)), above & (values <= high)))
    missing = np.isnan(values)
    return [*slices, Slice("missing", missing)] if missing.any() else slices


def _from_to(low: str, high: str) -> str:
    """A range in words; a unit that both ends have is said once."""
    _, *unit = high.split(" ", 1)
    shared = bool(unit) and unit[0] in UNITS and low.endswith(f" {unit[0]}")
    return f"{low.removesuffix(f' {unit[0]}') if shared else low} to {high}"


def _slices_table(rows: RowSet, scored: Scored, groups: dict[str, list[Slice]]) -> str:
    """Coverage of each slice, beside what chance allows."""
    kept = {
        name: [one for one in slices if one.rows.sum() >= TRUST.slice_rows]
        for name, slices in groups.items()
    }
    shares = [scored.held[one.rows].mean() for slices in kept.values() for one in slices]
    if not shares:
        return ""
    floor = max(0.0, float(np.floor(10 * min(*shares, rows.coverage - 0.1)) / 10))
    text = (
        f"The share of rows whose {nominal(rows.coverage)} interval holds the true value, for "
        f"several kinds of {'training rows, left out,' if rows.left_out else 'rows'}. The "
        "pale band holds the share 99 times of 100 if the intervals are right; outside of it a "
        "share is called low or high. The region where intervals hold least was found in one "
        "half of the rows, and the other half, which is shown, judges it."
    )
    _, unit = size_of(float(np.median(scored.std)))
    errors = [f"{word}{unit and ', '}{unit}" for word in ("RMSE", "std")]
    tables = []
    for name, slices in kept.items():
        header = [name, f"held, {nominal(floor)} to 100%", "", "rows", *errors]
        lines = [_slice_row(scored, one, rows.coverage, floor) for one in slices]
        if slices:
            tables.append(page.as_html(TextTable("", header, lines), markup=str, kind="bars"))
    html = page.heading("Coverage, slice by slice") + page.paragraph(text)
    return html + page.in_columns(tables)


def _slice_row(scored: Scored, one: Slice, level: float, floor: float) -> list[str]:
    n = int(one.rows.sum())
    coverage = metrics.conditional_coverage(scored.held[one.rows], np.zeros(n, dtype=int), level)
    _, share, low, high = (float(each[0]) for each in coverage)

    def place(value: float) -> float:
        return float(np.clip((value - floor) / (1 - floor), 0, 1))

    band = place(low), place(high), "pale"
    bar = page.track(
        band, (place(level), place(level), "mark"), (place(share), place(share), "dot")
    )
    far = " low" if share < low else " high" if share > high else ""
    rmse = metrics.rmse(scored.y[one.rows], scored.mean[one.rows])
    unit, _ = size_of(float(np.median(scored.std)))
    errors = (score(rmse / unit), score(scored.std[one.rows].mean() / unit))
    return [page.label(one.name), bar, f"{percent(share)}{far}", f"{n:,}", *errors]
