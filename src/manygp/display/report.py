"""One HTML page about a fitted model: what it is, how good, and how honest its std is.

Names that come from the user stand in the page's text only. In a figure they could be taken for
mathematics, or have no glyphs.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterable
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from manygp import metrics
from manygp.arrays import Array
from manygp.display import page
from manygp.display.page import TextTable
from manygp.display.plots import (
    BLUE,
    COLOURS,
    CalibrationDisplay,
    ReliabilityDisplay,
    lighten,
    short,
)
from manygp.findings import Alternative, CalibrationReport
from manygp.gp.expert import Expert
from manygp.kernels.base import Kernel
from manygp.kernels.text import formula
from manygp.model import LEFT_OUT_ROWS, FittedModel
from manygp.runtime.files import write_atomically
from manygp.runtime.words import counted
from manygp.settings import Settings
from manygp.training.repeats import find_repeats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from manygp.regressor import ManyGPRegressor

# A scatter plot has at most this number of dots,
MOST_DOTS = 3_000
# a table of bars at most this number of rows,
MOST_BARS = 30
# and the table of hyperparameters at most this one.
MOST_HYPERPARAMETERS = 60
# ENCE of a perfect model, times the root of the number of rows: E|N(0, 1)| / sqrt(2 / 10 bins).
CHANCE = 1.8
# Shares of rows that the curve of coverage is drawn for.
COVERAGE_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
# Width and height of a figure in inches,
SIZE = (4.5, 3.4)
# those of a small one,
SMALL = (2.6, 2.4)
# and dots per inch: twice those of a screen that shows an inch as 100 pixels.
FIGURE_DPI = 200
# What a figure calls the two sets of rows.
LEFT_OUT = "leave-one-out"
TESTED = "tested data"
COLOUR_OF = {LEFT_OUT: BLUE, TESTED: COLOURS[0]}
MEANINGS = {
    "trend": "What holds everywhere, under the experts.",
    "structure": "Whether local experts, or one on all rows with a structured kernel.",
    "kernel": "Whether the shared kernel was fitted to rows far from each other, or near.",
    "shrinkage": "How firmly the experts' hyperparameters are held at the shared ones; ∞: they "
    "are the shared ones.",
    "overlap": "Rows of others that an expert knows as well, as a multiple of its own.",
    "temperature": "The higher, the more say the surest expert has.",
    "strength": "Strength of the calibration by information gain: 0 is none, 1 is the paper's.",
    "nearest": "Experts that are queried about a row.",
    "correction": "How the predicted variance is corrected: not at all, by one factor, or by a "
    "curve.",
    "scale": "Factor of the predicted variance: above 1 where it was too small.",
    "power": "Above 1 where the predicted variances differed too little between rows, below 1 "
    "where too much.",
}

SCORES: dict[str, tuple[Callable[..., float], str]] = {
    "RMSE": (metrics.rmse, "Size of a typical error, in the units of y. Smaller is better."),
    "CRPS": (
        metrics.crps,
        "An absolute error that counts the std too, in the units of y. Smaller is better.",
    ),
    "NLL": (
        metrics.nll,
        "How surprising a target is, in nats: error and std in one number. Smaller is better.",
    ),
    "ENCE": (
        metrics.ence,
        "How far std and errors are apart, relative to the std, in ten bins of rows. 0 is ideal.",
    ),
}


class Tested(NamedTuple):
    """Predictions of rows whose targets are known.

    Attributes
    ----------
    y, mean, std, lower, upper : ndarrays of shape (N,)
        Targets, `predict` and `predict_interval`.
    coverage : float
        The share of rows that the intervals should hold.
    name : str
        Name of the data.
    """

    y: Array
    mean: Array
    std: Array
    lower: Array
    upper: Array
    coverage: float
    name: str


class _Scored(NamedTuple):
    """Rows of shape (N,) to be scored, and what a figure calls them."""

    label: str
    y: Array
    mean: Array
    std: Array

    @property
    def rows(self) -> tuple[Array, Array, Array]:
        return self.y, self.mean, self.std


def write_report(
    model: FittedModel | ManyGPRegressor,
    path: str | PathLike[str],
    *,
    name: str = "",
    tested: Tested | None = None,
) -> None:
    """Write one self-contained HTML page about a fitted model.

    Several targets are scored together, as by `loo_score`.

    Parameters
    ----------
    model : ManyGPRegressor or FittedModel
    path : path
        Where to write the page; a file that is there is replaced.
    name : str, default=""
        Name of the model, for the title.
    tested : Tested, default=None
        Predictions to be scored beside those of training rows that are left out.
    """
    fitted = model if isinstance(model, FittedModel) else model.model_
    _new_figure(*SIZE)  # a missing matplotlib is an error before the work, not after
    X, Y, *_ = fitted.committee.training_data()
    scored = [_Scored(LEFT_OUT, *fitted.left_out_rows(LEFT_OUT_ROWS))]
    if tested is not None:
        scored.append(_Scored(TESTED, *(np.ravel(column) for column in tested[:3])))
    columns = [f"x{i}" for i in range(fitted.n_columns)]
    columns = columns if fitted.names is None else [str(name) for name in fitted.names]
    experts = list(fitted.committee.experts)
    sections = {
        "What was fitted": _fitted(fitted, X, Y),
        "Scores": _scores(scored, tested, _baseline(fitted, Y)),
        "How honest is the std?": _honesty(scored, tested),
        "Experts": _sizes(experts),
        "Hyperparameters": _hyperparameters(experts, columns),
        "Relevance of columns": _relevance(experts, columns, np.ptp(X, axis=0)),
        "What was compared": _compared(fitted.report),
    }
    title = f"Model {name}" if name else "A model of manygp"
    write_atomically(path, page.page(title, _introduction(scored, tested, Y), sections))


def _baseline(model: FittedModel, Y: Array) -> float:
    """The RMSE of predicting the mean of every target."""
    return float(np.sqrt(np.mean((model.y_scaling.scale * Y.std(axis=0)) ** 2)))


def _introduction(scored: list[_Scored], tested: Tested | None, Y: Array) -> str:
    n, n_targets = Y.shape
    n_left_out = len(scored[0].y) // n_targets
    some = f"all {n:,}" if n_left_out == n else f"{n_left_out:,} random ones of the {n:,}"
    text = (
        f"Scores come from {some} training rows, each left out in turn: what the model would "
        "have predicted for a row that it has not seen."
    )
    if n == 1:
        text = "The model knows one row; its scores are of what it would predict without it."
    if tested is not None:
        there = f"{counted(len(scored[1].y), 'row')} of {tested.name or TESTED}"
        text += f" Beside them stand those of {there}."
    together = f" The {n_targets} targets are scored together, as if they were rows."
    return text + (together if n_targets > 1 else "")


def _fitted(model: FittedModel, X: Array, Y: Array) -> str:
    n_experts, queried = len(model.committee), model.rules.nearest
    experts = f"{n_experts:,}"
    if n_experts > 1:
        some = "all" if queried in (None, n_experts) else f"the nearest {queried:,}"
        experts += f", {some} of which are queried about a row"
    parameters = ", ".join(_changed(model.settings)) or "none"
    rows = [
        ["rows", f"{len(X):,}"],
        ["columns", f"{X.shape[1]:,}"],
        *([["targets", f"{Y.shape[1]:,}"]] if Y.shape[1] > 1 else []),
        *_repeated(model),
        ["experts", experts],
        *_trend(model),
        ["kernel", formula(model.kernel)],
        ["changed parameters", parameters],
        ["plan", str(model.plan)],
    ]
    html = page.as_html(TextTable("", [], rows), kind="facts")
    report = model.report
    if report is None:
        return html + page.paragraph(_nothing_chosen(n_experts))
    before = ("trend", "structure", "kernel")  # what was chosen before the rules
    first = [one for one in report.alternatives if one.parameter in before and one.chosen]
    chosen = {**{one.parameter: one.value for one in first}, **report.chosen}
    rows = [
        [parameter, _in_words(value), MEANINGS.get(parameter, "")]
        for parameter, value in chosen.items()
        if value is not None
    ]
    title = f"Chosen by leaving out {counted(report.n_rows, 'row')} in turn"
    return html + page.as_html(
        TextTable(title, ["", "value", "what it means"], rows), kind="words"
    )


def _repeated(model: FittedModel) -> list[list[str]]:
    """How many rows repeat others, if enough do to tell the noise."""
    repeats = find_repeats(model.committee.training_data())
    if not repeats.tell_noise:
        return []
    share = _percent(repeats.n_repeated / repeats.n_rows)
    return [["repeated rows", f"{repeats.n_repeated:,} ({share}); their targets tell the noise"]]


def _trend(model: FittedModel) -> list[list[str]]:
    """The trend under the experts, if there is one."""
    trend = model.committee.trend
    if trend is None:
        return []
    return [["trend", f"{trend.model.name}, {_percent(trend.model.explained)} of the variance"]]


def _nothing_chosen(n_experts: int) -> str:
    why = "there is one expert" if n_experts == 1 else "the parameters left nothing to choose"
    return f"Nothing was chosen by leave-one-out: {why}."


def _changed(settings: Settings) -> Iterable[str]:
    """Parameters that differ from their default, as they would be written."""
    defaults = Settings().parameters
    for name, value in sorted(settings.parameters.items()):
        if np.ndim(value) > 0:
            yield f"{name}: one per row"
        elif value is not defaults[name] and value != defaults[name]:
            yield f"{name}={value!r}" if isinstance(value, str) else f"{name}={_in_words(value)}"


def _in_words(value: Any) -> str:
    """A parameter in a few words."""
    if isinstance(value, Kernel):
        return formula(value)
    if callable(value) and hasattr(value, "__name__"):
        return str(value.__name__)
    return short(value)


def _scores(scored: list[_Scored], tested: Tested | None, baseline: float) -> str:
    """One column for each set of rows, and a sentence on what is good."""
    more = {
        "RMSE": f" To predict the mean of y everywhere gives {_number(baseline)}.",
        "ENCE": f" {_chance(scored)}",
    }
    rows = [["rows", *(f"{len(one.y):,}" for one in scored), ""]]
    for name, (_, sentence) in SCORES.items():
        cells = (_score(name, one) for one in scored)
        rows.append([name, *cells, sentence + more.get(name, "")])
    held = (_percent(metrics.coverage(*one.rows)) for one in scored)
    sentence = (
        "Rows within mean ± 1.64 std. It should be 90%: with more the std is too large, with "
        "less too small."
    )
    rows.append(["coverage of 90%", *held, sentence])
    if tested is not None:
        share = _percent(_share_held(tested))
        sentence = f"Rows within predict_interval. It should be {_percent(tested.coverage)}."
        rows.append(["coverage of intervals", "-", share, sentence])
    names = [LEFT_OUT] if tested is None else [LEFT_OUT, tested.name or TESTED]
    return page.as_html(TextTable("", ["", *names, "what is good"], rows), kind="words")


def _score(name: str, scored: _Scored) -> str:
    """One of `SCORES`, or a dash where there are too few rows for it."""
    if name == "ENCE" and len(scored.y) < metrics.N_BINS:
        return "-"
    return _number(SCORES[name][0](*scored.rows))


def _chance(scored: list[_Scored]) -> str:
    """A sentence on the ENCE that a perfect model would have."""
    counts = dict.fromkeys(len(one.y) for one in scored if len(one.y) >= metrics.N_BINS)
    if not counts:
        return _too_few(scored)
    chance = " and ".join(f"{CHANCE / np.sqrt(n):.2g} for {counted(n, 'row')}" for n in counts)
    return f"Chance alone gives about {chance}."


def _share_held(tested: Tested) -> float:
    return float(np.mean((tested.lower <= tested.y) & (tested.y <= tested.upper)))


def _too_few(scored: list[_Scored]) -> str:
    most = max(len(one.y) for one in scored)
    return f"It needs {metrics.N_BINS} rows, and there are {most}."


def _honesty(scored: list[_Scored], tested: Tested | None) -> str:
    """Reliability diagram, coverage of intervals, and errors against std."""
    enough = [one for one in scored if len(one.y) >= metrics.N_BINS]
    figures = [_reliability(enough), _coverage(enough, tested)] if enough else []
    html = page.side_by_side([*figures, _residuals(scored[-1])])
    if not enough:
        missing = "There is no reliability diagram, nor a curve of coverage."
        html += page.paragraph(f"{missing} {_too_few(scored)}")
    return html


def _reliability(scored: list[_Scored]) -> str:
    def draw(ax: Axes) -> None:
        for one in scored:
            colour = COLOUR_OF[one.label]
            ReliabilityDisplay.from_predictions(
                *one.rows, name=one.label, ax=ax, color=colour, markersize=4
            )
        ax.set(xlabel="predicted error", ylabel="observed error")

    caption = (
        "Reliability: rows in ten bins, from those of the smallest std to those of the largest. "
        "On the dashed line the std is right; above it errors are larger than predicted."
    )
    found = "; ".join(f"{one.label}: ENCE {_number(metrics.ence(*one.rows))}" for one in scored)
    return page.figure(_png(draw), caption, f"Observed against predicted error. {found}.")


def _coverage(scored: list[_Scored], tested: Tested | None) -> str:
    def draw(ax: Axes) -> None:
        lighten(ax)
        ax.plot([0, 1], [0, 1], color="0.4", ls="--", lw=1, label="ideal")
        for one, marker in zip(scored, "os", strict=False):
            shares = [metrics.coverage(*one.rows, level) for level in COVERAGE_LEVELS]
            (line,) = ax.plot(COVERAGE_LEVELS, shares, marker=marker, label=f"{one.label}, by std")
            line.set(color=COLOUR_OF[one.label], markersize=4)
        if tested is not None:
            (star,) = ax.plot(tested.coverage, _share_held(tested), "*", zorder=3)
            star.set(color=COLOURS[1], markersize=13, label=f"{TESTED}, predict_interval")
        ax.set(xlabel="intended share of rows", ylabel="share of rows held")
        ax.set(xlim=(0, 1), ylim=(0, 1.02))
        ax.legend(frameon=False, loc="upper left", fontsize="small")

    caption = (
        "Coverage: the share of rows that lie within central intervals, against the share that "
        "should. Below the dashed line intervals are too narrow, above it too wide."
    )
    found = "; ".join(
        f"{one.label}: intervals of 50%, 90% and 99% hold "
        + ", ".join(_percent(metrics.coverage(*one.rows, level)) for level in (0.5, 0.9, 0.99))
        for one in scored
    )
    return page.figure(_png(draw), caption, f"Share of rows held by intervals. {found}.")


def _residuals(scored: _Scored) -> str:
    error, std = scored.y - scored.mean, scored.std
    dots = np.random.default_rng(0).permutation(len(std))[:MOST_DOTS]

    def draw(ax: Axes) -> None:
        lighten(ax)
        colour = COLOUR_OF[scored.label]
        ax.scatter(std[dots], error[dots], s=9, color=colour, alpha=0.35, linewidths=0)
        low, high = ax.get_xlim()
        ends = np.array([max(low, 0.0), high])
        for sign, name in ((1, "± 1.64 std"), (-1, None)):
            ax.plot(ends, 1.64 * sign * ends, color="0.25", lw=1.2, label=name)
        ax.set(xlabel="predicted std", ylabel="target - predicted mean", xlim=ends)
        ax.legend(frameon=True, framealpha=0.8, edgecolor="none", loc="upper left")

    outside = _percent(float(np.mean(np.abs(error) > 1.64 * std)))
    caption = (
        f"Errors against std, {scored.label}: {outside} of the rows lie outside of the lines; "
        "it should be 10%, at the left as at the right."
    )
    if len(std) > MOST_DOTS:
        caption += f" {MOST_DOTS:,} random ones of {len(std):,} rows are drawn."
    alt = f"Errors against predicted std; {outside} of them are larger than 1.64 std."
    return page.figure(_png(draw), caption, alt)


def _sizes(experts: list[Expert]) -> str:
    """How many rows experts have, and know: histograms of what differs between them."""
    if len(experts) == 1:
        return page.paragraph("Every expert knows all rows.")
    counts = {
        "rows of its own": [len(expert.indices) for expert in experts],
        "rows of neighbours": [len(expert.neighbours) for expert in experts],
    }
    ranges = " and ".join(f"{_range(numbers)} {name}" for name, numbers in counts.items())
    figures = [
        page.figure(
            _png(_histogram(numbers, name)),
            f"Histogram of the experts: {name}.",
            f"Histogram: {_range(numbers)} {name}.",
        )
        for name, numbers in counts.items()
        if max(numbers) > min(numbers) + 1  # else there is nothing to see
    ]
    text = page.paragraph(f"Each of {len(experts):,} experts has {ranges}.")
    return text + (page.side_by_side(figures) if figures else "")


def _range(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _histogram(numbers: list[int], name: str) -> Callable[[Axes], None]:
    def draw(ax: Axes) -> None:
        lighten(ax)
        low, high = min(numbers), max(numbers)
        step = max(1, -(-(high + 1 - low) // 20))  # whole numbers of rows
        edges = [edge - 0.5 for edge in range(low, high + step + 1, step)]
        ax.hist(numbers, edges, color=BLUE, edgecolor="white", linewidth=0.5)
        ax.locator_params(integer=True)
        ax.set(xlabel=name, ylabel="experts")

    return draw


def _hyperparameters(experts: list[Expert], columns: list[str]) -> str:
    """The shared values, or how those of the experts are spread."""
    names = experts[0].kernel.theta_names
    if not names:
        return page.paragraph("The kernel has no hyperparameters that could be fitted.")
    values = np.array([expert.kernel.values for expert in experts])
    kinds = [re.sub(r"\[\d+\]", "", name) for name in names]
    several = Counter(kinds)
    median = np.median(values, axis=0)
    order = sorted(range(len(names)), key=lambda i: (several[kinds[i]] > 1, kinds[i], median[i]))
    kept = order[:MOST_HYPERPARAMETERS]
    text = "They are in the units of the data as the kernel sees them."
    if len(kept) < len(order):
        text += f" {len(order) - len(kept):,} more, of larger values, are not shown."
    if np.all(values == values[0]):
        who = "All experts share them. " if len(experts) > 1 else ""
        rows = [[_of_column(names[i], columns), _number(values[0, i])] for i in kept]
        return page.paragraph(who + text) + page.as_html(TextTable("", [], rows), kind="many")
    text += (
        f" Each of {len(experts):,} experts has its own: line from the smallest to the largest, "
        "bar over the middle half, mark at the median. The axes are logarithmic; values of the "
        "same kind share one."
    )
    logs = np.log(values)
    rows = []
    for i in kept:
        alike = logs[:, [kind == kinds[i] for kind in kinds]]
        low, width = alike.min(), np.ptp(alike) or 1.0
        spread = (np.quantile(logs[:, i], (0, 0.25, 0.5, 0.75, 1)) - low) / width
        least, first, middle, third, most = spread.tolist()
        bars = ((least, most, "thin"), (first, third, ""), (middle, middle, "mark"))
        numbers = (values[:, i].min(), median[i], values[:, i].max())
        rows.append(
            [
                page.label(_of_column(names[i], columns)),
                page.track(*bars),
                *(_number(number) for number in numbers),
            ]
        )
    header = ["hyperparameter", "across experts", "smallest", "median", "largest"]
    html = page.as_html(TextTable("", header, rows), markup=str, kind="bars")
    return page.paragraph(text) + html


def _of_column(name: str, columns: list[str]) -> str:
    """The name of a hyperparameter, with that of its column in place of the number."""
    found = re.fullmatch(r"(.*length_scale)\[(\d+)\](.*)", name)
    if found is None or int(found[2]) >= len(columns):
        return name
    return f"{found[1]}{found[3]}: {columns[int(found[2])]}"


def _relevance(experts: list[Expert], columns: list[str], spans: Array) -> str:
    """How many length-scales the values of each column span, which is 1 / length-scale in [0, 1].

    Parameters
    ----------
    experts : list of Expert
    columns : list of str
    spans : ndarray of shape (d,)
        Ranges of the columns as the kernel sees them.
    """
    inverse = [expert.kernel.inverse_lengths(len(columns)) for expert in experts]
    lengths = np.median(inverse, axis=0) * spans
    if not lengths.any():
        return page.paragraph(
            "Unknown: the kernel has no length-scales, or the columns are constant."
        )
    order = np.argsort(-lengths, kind="stable")
    rows = [
        [
            page.label(columns[i]),
            page.track((0.0, float(lengths[i] / lengths.max()), "")),
            _number(lengths[i]),
        ]
        for i in order[:MOST_BARS]
    ]
    text = (
        "The distance from the smallest to the largest value of a column, in length-scales"
        f"{' (median over the experts)' if len(experts) > 1 else ''}. Where it is long, y may "
        "change often along the column; a column of nearly 0 hardly matters."
    )
    left = len(order) - len(rows)
    if left:
        most = _number(lengths[order[MOST_BARS]])
        text += f" Not shown: {counted(left, 'column')} of at most {most}."
    header = ["column", "", "length-scales"]
    html = page.as_html(TextTable("", header, rows), markup=str, kind="bars")
    return page.paragraph(text) + html


def _compared(report: CalibrationReport | None) -> str:
    if report is None or not report.alternatives:
        return page.paragraph("Nothing was compared.")
    by_parameter: dict[str, list[Alternative]] = {}
    for one in report.alternatives:
        by_parameter.setdefault(one.parameter, []).append(one)
    figures = [
        _alternatives(report._replace(alternatives=tuple(alternatives)))
        for alternatives in by_parameter.values()
    ]
    text = (
        "Leave-one-out NLL of the values that were compared, smaller is better; the chosen one "
        "is filled. A smaller shrinkage or a larger overlap has to gain more than chance would."
    )
    return page.paragraph(text) + page.side_by_side(figures, "14rem")


def _alternatives(report: CalibrationReport) -> str:
    """The values of one parameter."""
    figure = _new_figure(*SMALL)
    (ax,) = CalibrationDisplay(report).plot(figure).axes_
    ax.ticklabel_format(axis="y", useOffset=False)
    ax.locator_params(axis="y", nbins=5)
    parameter = report.alternatives[0].parameter
    found = ", ".join(
        f"{_in_words(one.value)}{' (chosen)' if one.chosen else ''}: {_number(one.nll)}"
        for one in report.alternatives
    )
    caption = MEANINGS.get(parameter, parameter)
    return page.figure(_bytes(figure), caption, f"NLL by {parameter}. {found}.")


def _number(value: float) -> str:
    return f"{value:,.0f}" if 999.5 <= abs(value) < 1e6 else f"{value:.3g}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _png(draw: Callable[[Axes], None]) -> bytes:
    """The picture that `draw` makes on a new figure."""
    figure = _new_figure(*SIZE)
    draw(figure.subplots())
    return _bytes(figure)


def _bytes(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=FIGURE_DPI, metadata={"Software": None})
    return buffer.getvalue()


def _new_figure(width: float, height: float) -> Figure:
    """A figure that pyplot does not know of, so that threads may draw at the same time."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('a report needs matplotlib: pip install "manygp[plot]"') from error
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")
