"""Section of a report on how good the predictions are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from manygp import metrics
from manygp.display import page
from manygp.display.charts import Chart, linear, nominal, number, percent, score
from manygp.display.page import TextTable
from manygp.display.report.baselines import Baselines
from manygp.display.report.rows import RowSet, Scored, spread
from manygp.learning_curve import HEADER, LearningCurve

# A scatter plot has at most this number of dots.
MOST_DOTS = 2_000
# Share of the errors that are drawn: a few may be far larger than all others.
DRAWN_SHARE = 0.98
# Fewer dots shine through less.
FEW_DOTS = 200
# ENCE of a perfect model, times the root of the number of rows: E|N(0, 1)| / sqrt(2 / 10 bins).
CHANCE = 1.8
# Rows of the table: name, metric, how it is written, and what it means.
METRICS = (
    ("RMSE", metrics.rmse, score, "Size of a typical error, in {units}. Smaller is better."),
    ("CRPS", metrics.crps, score,
     "Absolute error that counts the std too, in {units}. Smaller is better."),
    ("NLL", metrics.nll, score, "How surprising a true value is, in nats. Smaller is better."),
    ("90% by std", metrics.coverage, percent,
     ("Rows within 1.64 std of the mean. It should be 90%: with more the std is too large, "
      "with less too small.")),
)  # fmt: skip


def cards(rows: RowSet, scored: Scored, baselines: Baselines) -> str:
    """The numbers that are read first."""
    rmse = metrics.rmse(*scored.rows)
    constant = metrics.rmse(scored.y, baselines.constant.mean)
    explained = 1 - (rmse / max(constant, 1e-300)) ** 2
    within = float(np.median(np.abs(scored.error)))
    against = f"always the mean has {number(constant)}"
    if baselines.linear is not None:
        against = f"a linear fit has {number(metrics.rmse(scored.y, baselines.linear.mean))}"
    shown = [
        ("Typical error (RMSE)", scored.target.with_unit(number(rmse)), against),
        (
            "Half of the rows are within",
            scored.target.with_unit(f"± {number(within)}"),
            f"of the true {scored.target.name}",
        ),
        (
            "Variance explained",
            percent(explained),
            "no better than a constant" if explained <= 0 else "against always saying the mean",
        ),
        (
            f"Intervals of {nominal(rows.coverage)}",
            f"hold {percent(float(scored.held.mean()))}",
            f"a typical one is ± {number(float(np.median(scored.upper - scored.lower)) / 2)}",
        ),
    ]
    return page.cards(shown)


def scores_section(
    sets: list[RowSet], baselines: list[list[Baselines]], curve: LearningCurve | None
) -> str:
    """For each set of rows, the main one first, and each target a table; then a figure.

    The learning curve of the model stands between them, if there is one.
    """
    html = ""
    for rows, simple in zip(sets, baselines, strict=True):
        for scored, both in zip(rows.scored, simple, strict=True):
            title = f"{scored.target.name}: {rows.name}" if len(simple) > 1 else rows.name
            html += _table(title, scored, both)
    html += "" if curve is None else _curve(curve)
    return html + "".join(page.side_by_side(_predicted(one)) for one in sets[0].scored)


def _table(title: str, scored: Scored, baselines: Baselines) -> str:
    """Scores of the model and of the baselines, and a sentence on what is good."""
    target, rows = scored.target, []
    simple = [scored.rows]
    for one in baselines:
        if one is not None:
            simple.append((scored.y, one.mean, np.full(len(one.mean), one.std)))
    names = ["this model", *(["linear fit"] if baselines.linear else []), "constant"]
    for name, metric, word, meaning in METRICS:
        values = [word(metric(*each)) for each in simple]
        if name == "NLL":
            values[0] = word(float(scored.nll.mean()))
        values.append(word(_error_of(name, metric, scored)) if len(scored.y) > 1 else "-")
        rows.append([name, *values, meaning.format(units=target.units)])
    ence, sentence = "-", f"It needs {metrics.N_BINS} rows, and there are {len(scored.y)}."
    if len(scored.y) >= metrics.N_BINS:
        ence = score(metrics.ence(*scored.rows))
        chance = number(CHANCE / np.sqrt(len(scored.y)))
        sentence = (
            "How far std and errors are apart, relative to the std. 0 is ideal. Chance alone "
            f"gives about {chance}."
        )
    rows.append(["ENCE", ence, *("" for _ in names), sentence])
    header = ["", *names, "standard error", "what it means"]
    table = TextTable(title, header, rows)
    return page.as_html(table, kind="words scores")


def _curve(curve: LearningCurve) -> str:
    """Whether more rows would help."""
    table = TextTable("Would more rows help?", HEADER, curve.lines)
    text = (
        f"{curve.advice} These are training rows, each left out, where experts know some of the "
        "others only, with the hyperparameters of all rows. After ± stands the standard error."
    )
    return page.as_html(table) + page.paragraph(text)


def _error_of(name: str, metric: Callable[..., float], scored: Scored) -> float:
    """Standard error of one of the `METRICS`."""
    if name == "NLL":
        return metrics.standard_error(lambda nll: float(nll.mean()), scored.nll)
    return metrics.standard_error(metric, *scored.rows)


def _predicted(scored: Scored) -> tuple[str, str, str]:
    """Predicted against actual values, errors against predicted values, and sizes of errors."""
    target = scored.target
    dots = np.random.default_rng(0).permutation(len(scored.y))[:MOST_DOTS]
    y, mean, error = scored.y[dots], scored.mean[dots], scored.error[dots]
    low, high = float(min(y.min(), mean.min())), float(max(y.max(), mean.max()))
    axis = linear(low, high, pad=0.02)
    chart = Chart(axis, axis, (f"predicted {target.name}", f"actual {target.name}"))
    kind = "dots" if len(y) > FEW_DOTS else "dots few"
    chart.dots(mean, y, kind)
    chart.line([axis.low, axis.high], [axis.low, axis.high], "ideal")
    some = ""
    if len(scored.y) > MOST_DOTS:
        some = f" {MOST_DOTS:,} random ones of {len(scored.y):,} rows are drawn."
    share = 1 - (metrics.rmse(*scored.rows) / spread(scored.y)) ** 2
    alt = f"Actual against predicted {target.name}; R squared {number(share)}."
    first = page.drawing(
        chart.svg(alt),
        f"Predicted against actual {target.name}",
        "On the dashed line the prediction is right." + some,
    )
    most = float(np.abs(error).max()) or 1.0
    across = linear(float(mean.min()), float(mean.max()), pad=0.02)
    chart = Chart(
        across, linear(-most, most, pad=0.02), (f"predicted {target.name}", "actual − predicted")
    )
    chart.dots(mean, error, kind)
    chart.line([across.low, across.high], [0, 0], "ideal")
    alt = f"Errors against predicted {target.name}; the largest is {number(most)}."
    second = page.drawing(
        chart.svg(alt),
        "Errors against predictions",
        "Errors should scatter evenly around 0; a bend is something that the model has missed.",
    )
    return first, second, _sizes(scored)


def _sizes(scored: Scored) -> str:
    """How many rows have an error of at most a size."""
    sizes = np.abs(scored.error)
    shares = np.linspace(0, DRAWN_SHARE, 60)
    x = np.quantile(sizes, shares)
    axis = linear(0.0, float(x[-1]) or 1.0)
    chart = Chart(axis, linear(0, 100), ("error, of either sign", "rows, in %"))
    half, most = (float(np.quantile(sizes, share)) for share in (0.5, 0.9))
    for size, share in ((half, 50), (most, 90)):
        chart.line([axis.low, size, size], [share, share, 0], "ideal")
    chart.line(x, 100 * shares, "line")
    words = (
        f"Half of the rows have an error of at most {number(half)}, 90% of at most {number(most)}."
    )
    return page.drawing(chart.svg(words), "How large are the errors?", words)
