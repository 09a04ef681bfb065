"""Rows to look at: the worst predictions, and where the model extrapolates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from manygp import answers, metrics
from manygp.arrays import Array, IndexArray
from manygp.display import page
from manygp.display.charts import cut, minus, nominal, number, percent, size_of
from manygp.display.page import TextTable
from manygp.display.report.columns import Inputs, SourceColumn, training_inputs
from manygp.display.report.rows import RowSet, Scored, spread
from manygp.model import FittedModel
from manygp.runtime.words import counted


@dataclass(frozen=True)
class AttentionSection:
    """Numbers of the section about rows to look at, and why they are what they are."""

    # Rows of a table of the worst ones, columns whose values are shown beside them, and characters
    # of a value.
    rows: int = 10
    columns: int = 6
    characters: int = 30
    # A std of this share of the target's own says that the columns tell next to nothing.
    near_prior: float = 0.9
    # Columns of the table of ranges.
    range_columns: int = 20


ATTENTION = AttentionSection()


def worst_section(rows: RowSet, sources: list[SourceColumn]) -> str:
    """The most surprising rows, and those of the largest errors."""
    html = page.paragraph(
        "Rows have the numbers of the table: 1 is the first one below the header. z is the error "
        "in units of the std; beyond −3 and 3 a row is rare, or something is wrong with it."
    )
    for scored in rows.scored:
        name = f"{scored.target.name}: " if len(rows.scored) > 1 else ""
        for title, size in (("Most surprising", scored.z), ("Largest errors", scored.error)):
            order = np.argsort(-np.abs(size), kind="stable")[: ATTENTION.rows]
            html += _table(name + title, rows, scored, order, sources)
    return html


def _table(
    title: str, rows: RowSet, scored: Scored, order: IndexArray, sources: list[SourceColumn]
) -> str:
    shown = sources[: ATTENTION.columns] if rows.inputs is not None else []
    values = [] if rows.inputs is None else [one.words(rows.inputs.some(order)) for one in shown]
    write = writer(scored.std)
    lines = [
        [
            f"{rows.numbers[i]:,}",
            *(write(one[i]) for one in (scored.y, scored.mean, scored.std)),
            minus(f"{scored.z[i]:+.1f}"),
            *(cut(column[place], ATTENTION.characters) for column in values),
        ]
        for place, i in enumerate(order.tolist())
    ]
    names = (cut(one.name, ATTENTION.characters) for one in shown)
    header = ["row", "actual", "predicted", "std", "z", *names]
    return page.as_html(TextTable(title, header, lines))


def writer(std: Array) -> Callable[[float], str]:
    """How to write values whose std is this: to two digits of it."""
    size = float(np.median(std))
    unit, name = size_of(10 * size)
    decimals = int(np.clip(1 - np.floor(np.log10(size / unit)), 0, 12))
    if name:
        return lambda value: minus(f"{value / unit:,.{decimals}f} {name}")
    if not 1e-4 < size < 1e7:
        return number
    return lambda value: minus(f"{round(float(value), decimals) + 0.0:,.{decimals}f}")


def extrapolation_section(model: FittedModel, rows: RowSet, sources: list[SourceColumn]) -> str:
    """Rows outside of the range of the training rows, and rows the columns tell nothing about."""
    if rows.inputs is None:
        return page.paragraph("Unknown: the page was made without the values of the rows.")
    training, Y = training_inputs(model), answers.training_rows(model)[1]
    outside = np.zeros(len(rows), dtype=bool)
    lines = []
    for source in sources:
        if source.is_number:
            line, out = _beyond(source, training, rows.inputs, left_out=rows.left_out)
            outside |= out
            lines += [line] if out.any() else []
    every = counted(len(rows), "row")
    other = "of the other training rows" if rows.left_out else "of the training rows"
    n = int(outside.sum())
    text = f"No row of {every} has a number or date outside of the range {other}."
    if n:
        share = percent(n / len(rows))
        verb = "has" if n == 1 else "have"
        text = f"{n:,} of {every} ({share}) {verb} a value outside of the range {other}."
    html = page.paragraph(text)
    if n:
        html += "".join(page.paragraph(_compared(one, outside)) for one in rows.scored)
        header = ["column", "smallest", "largest", "rows below", "rows above", "furthest"]
        html += page.as_html(TextTable("", header, lines[: ATTENTION.range_columns]))
    html += "".join(page.paragraph(text) for text in _unknown(rows.inputs, sources))
    for j, scored in enumerate(rows.scored):
        html += page.paragraph(_near_prior(scored, spread(Y[:, j]), len(rows)))
    return html


def _beyond(
    source: SourceColumn, training: Inputs, rows: Inputs, *, left_out: bool
) -> tuple[list[str], npt.NDArray[np.bool_]]:
    """A line of the table, and which rows are outside of the range of a column."""
    known = np.sort(source.values(training))
    known = known[~np.isnan(known)]
    values = source.values(rows)
    low, high = known[0], known[-1]
    below, above = values < low, values > high
    if left_out and len(known) > 1:  # the range of the others
        below, above = (values == low) & (known[1] > low), (values == high) & (known[-2] < high)
    out = below | above
    far = values[out]
    furthest = (
        source.word(float(far[np.argmax(np.abs(far - (low + high) / 2))])) if len(far) else ""
    )
    ends = (source.word(float(low)), source.word(float(high)))
    return [source.name, *ends, f"{int(below.sum()):,}", f"{int(above.sum()):,}", furthest], out


def _unknown(rows: Inputs, sources: list[SourceColumn]) -> Iterator[str]:
    """Sentences on categories that no training row has."""
    for source in sources:
        n = int((source.codes(rows) < 0).sum()) if source.has_categories(rows) else 0
        if n:
            yield f"{counted(n, 'row')} of another {source.name} than any training row."


def _compared(scored: Scored, outside: npt.NDArray[np.bool_]) -> str:
    """A sentence on how good the model is outside and inside."""
    if outside.all():
        return ""
    sizes, held = [], []
    for rows in (outside, ~outside):
        sizes.append(number(metrics.rmse(scored.y[rows], scored.mean[rows])))
        held.append(percent(float(scored.held[rows].mean())))
    return (
        f"There the RMSE of {scored.target.name} is {sizes[0]}, elsewhere {sizes[1]}; intervals "
        f"hold {held[0]} there and {held[1]} elsewhere."
    )


def _near_prior(scored: Scored, prior: float, n: int) -> str:
    """A sentence on rows about which the columns tell nothing."""
    near = scored.std >= ATTENTION.near_prior * prior
    name, k = scored.target.name, int(near.sum())
    whole = f"the std of {name} itself ({number(prior)})"
    if not k:
        return f"The std of every row is well below {whole}: the columns tell something about it."
    verb = "has" if k == 1 else "have"
    return (
        f"{k:,} of {counted(n, 'row')} ({percent(k / n)}) {verb} a std of at least "
        f"{nominal(ATTENTION.near_prior)} of {whole}: no training row is near, or the columns "
        "tell hardly more than the mean does."
    )
