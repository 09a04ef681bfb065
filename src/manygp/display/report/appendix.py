"""Technical details: parameters, what was compared, experts and hyperparameters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from manygp import answers
from manygp.arrays import Array
from manygp.display import page
from manygp.display.charts import minus, number, span
from manygp.display.page import TextTable
from manygp.display.plots import short
from manygp.fit_report import Alternative, CalibrationReport
from manygp.gp.expert import Expert
from manygp.kernels.base import Kernel
from manygp.kernels.text import formula
from manygp.model import FittedModel
from manygp.runtime.words import counted
from manygp.settings import Settings

# Parameters whose values are compared from the simplest to the most flexible.
SIMPLEST_FIRST = (
    "trend", "structure", "kernel", "expert", "prior", "start", "shrinkage", "overlap",
    "correction",
)  # fmt: skip
# Length-scales of one kind that are shown: those that matter most.
MOST_ALIKE = 10
LENGTH_SCALE = re.compile(r"(.*length_scale)\[(\d+)\](.*)")
MEANINGS = {
    "trend": "What holds everywhere, under the experts.",
    "structure": "Whether local experts, or one on all rows with a structured kernel.",
    "kernel": "Whether the shared kernel was fitted to rows far from each other, or near.",
    "expert": "How few rows make one expert: priors, and trees under it.",
    "prior": "Whether a weak prior holds the hyperparameters of few rows near where they start.",
    "start": "Whether the hyperparameters of few rows start from y being noise, or mostly signal.",
    "shrinkage": "How firmly the experts' hyperparameters are held at the shared ones; ∞: they "
    "are the shared ones.",
    "overlap": "Rows of others that an expert knows as well, as a multiple of its own.",
    "temperature": "The higher, the more say the surest expert has.",
    "strength": "Strength of the calibration by information gain: 0 is none, 1 is the paper's.",
    "nearest": "Experts that are queried about a row.",
    "correction": "How the predicted variance is corrected: not at all, by a level that raises "
    "it, by one factor, or by a curve.",
    "local noise": "Whether the noise is larger in some places than in others.",
    "target": "Whether the target itself is modelled, its logarithm, or a power of it.",
    "step": "Whether a value that many targets share has a chance of its own; CRPS in std of y.",
    "scale": "Factor of the predicted variance: above 1 where it was too small.",
    "power": "Above 1 where the predicted variances differed too little between rows, below 1 "
    "where too much.",
}


def appendix_section(model: FittedModel) -> str:
    """All tables."""
    names = model.names or tuple(f"x{i}" for i in range(model.n_columns))
    experts = list(model.committee.experts)
    html = _facts(model, experts) + _chosen(model.report) + _compared(model.report)
    return html + _hyperparameters(model, experts, [str(name) for name in names])


def _facts(model: FittedModel, experts: list[Expert]) -> str:
    X, Y = answers.training_rows(model)
    rows = [
        ["rows", f"{len(X):,}"],
        ["features", f"{X.shape[1]:,}"],
        *([["targets", f"{Y.shape[1]:,}"]] if Y.shape[1] > 1 else []),
        ["experts", _sizes(experts)],
        ["kernel", formula(model.kernel)],
        ["changed parameters", ", ".join(_changed(model.settings)) or "none"],
        ["plan", str(model.plan)],
    ]
    return page.as_html(TextTable("What was fitted", [], rows), kind="facts")


def _sizes(experts: list[Expert]) -> str:
    """How many rows experts have, and know."""
    if len(experts) == 1:
        return "1, which knows all rows"
    own = span([len(expert.indices) for expert in experts])
    others = span([len(expert.neighbours) for expert in experts])
    return f"{len(experts):,}, each with {own} rows of its own and {others} rows of neighbours"


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


def _chosen(report: CalibrationReport | None) -> str:
    """What leave-one-out chose, and what that means."""
    if report is None:
        return ""
    before = ("trend", "structure", "kernel", "expert", "prior", "start")  # before the rules
    first = [one for one in report.alternatives if one.parameter in before and one.chosen]
    chosen = {**{one.parameter: one.value for one in first}, **report.chosen}
    rows = [
        [parameter, _in_words(value), MEANINGS.get(parameter, "")]
        for parameter, value in chosen.items()
        if value is not None
    ]
    title = f"Chosen by leaving out {counted(report.n_rows, 'row')} in turn"
    return page.as_html(TextTable(title, ["", "value", "what it means"], rows), kind="words")


def _compared(report: CalibrationReport | None) -> str:
    """The leave-one-out NLL of every alternative, a bar from the best to the worst."""
    if report is None or not report.alternatives:
        return ""
    rows = []
    for parameter in dict.fromkeys(one.parameter for one in report.alternatives):
        several = [one for one in report.alternatives if one.parameter == parameter]
        scores = [one.nll for one in several]
        least, width = min(scores), (max(scores) - min(scores)) or 1.0
        for one in several:
            place = (one.nll - least) / width
            bar = page.track((0.0, 1.0, "thin pale"), (place, place, "dot"))
            name = page.label(f"{parameter}: {_in_words(one.value)}")
            nll = minus(f"{one.nll:.4f}")
            rows.append([name, bar, nll, page.escape(why_chosen(one, several))])
    header = ["parameter", "best to worst", "NLL", ""]
    text = (
        "Leave-one-out NLL in normalised units, smaller is better. What is more flexible has to "
        "gain more than chance would."
    )
    html = page.heading("What was compared") + page.paragraph(text)
    return html + page.as_html(TextTable("", header, rows), markup=str, kind="bars told")


def why_chosen(one: Alternative, several: list[Alternative]) -> str:
    """ "chosen", and why if another of several values of a parameter has a better score."""
    best = min(several, key=lambda other: other.nll)
    if not one.chosen or one.nll <= best.nll:
        return "chosen" if one.chosen else ""
    gain = f"the gain of {_in_words(best.value)}, {number(one.nll - best.nll)}, may be chance"
    is_simpler = one.parameter in SIMPLEST_FIRST and several.index(one) < several.index(best)
    return f"chosen: it is simpler, and {gain}" if is_simpler else f"chosen: {gain}"


def _hyperparameters(model: FittedModel, experts: list[Expert], columns: list[str]) -> str:
    """The shared values, or how those of the experts are spread."""
    html, names = page.heading("Hyperparameters"), experts[0].kernel.theta_names
    if not names:
        return html + page.paragraph("The kernel has no hyperparameters that could be fitted.")
    values = np.array([expert.kernel.values for expert in experts])
    kinds = [re.sub(r"\[\d+\]", "", name) for name in names]
    kept = _shown(kinds, np.median(values, axis=0) / _spreads(model, names))
    text = "They are in the units of the data as the kernel sees them."
    if len(kept) < len(names):
        text += (
            f" Of length-scales the {MOST_ALIKE} that matter most are shown, which are short "
            f"beside the std of their column, and {len(names) - len(kept):,} others are not."
        )
    shown = [_of_column(names[i], columns) for i in kept]
    if np.all(values == values[0]):
        who = "All experts share them. " if len(experts) > 1 else ""
        rows = [[name, number(values[0, i])] for name, i in zip(shown, kept, strict=True)]
        html += page.paragraph(who + text)
        return html + page.as_html(TextTable("", [], rows), kind="many")
    text += (
        f" Each of {len(experts):,} experts has its own: line from the smallest to the largest, "
        "bar over the middle half, mark at the median. The axes are logarithmic; values of the "
        "same kind share one."
    )
    rows = []
    for name, i in zip(shown, kept, strict=True):
        alike = values[:, [kind == kinds[i] for kind in kinds]]
        rows.append([page.label(name), *_across_experts(values[:, i], alike)])
    header = ["hyperparameter", "across experts", "smallest", "median", "largest"]
    table = page.as_html(TextTable("", header, rows), markup=str, kind="bars")
    return html + page.paragraph(text) + table


def _shown(kinds: list[str], reach: Array) -> list[int]:
    """Places of the hyperparameters that are shown, those of smallest reach of each kind."""
    several = Counter(kinds)
    order = sorted(range(len(kinds)), key=lambda i: (several[kinds[i]] > 1, kinds[i], reach[i]))
    before: Counter[str] = Counter()
    kept = []
    for i in order:
        before[kinds[i]] += 1
        kept += [i] if before[kinds[i]] <= MOST_ALIKE else []
    return kept


def _across_experts(values: Array, alike: Array) -> list[str]:
    """Bars over the values of the experts, on the axis of those like them, and three of them."""
    logs, low, width = np.log(values), np.log(alike.min()), np.ptp(np.log(alike)) or 1.0
    places = (np.quantile(logs, (0, 0.25, 0.5, 0.75, 1)) - low) / width
    least, first, middle, third, most = places.tolist()
    bars = ((least, most, "thin"), (first, third, ""), (middle, middle, "mark"))
    return [page.track(*bars), *map(number, (values.min(), np.median(values), values.max()))]


def _spreads(model: FittedModel, names: list[str]) -> Array:
    """The std of the column of each length-scale, as the kernel sees it; 1 for all else."""
    std = model.committee.training_data().X.std(axis=0)
    matches = [LENGTH_SCALE.fullmatch(name) for name in names]
    return np.array(
        [max(std[int(m[2])], 1e-300) if m and int(m[2]) < len(std) else 1.0 for m in matches]
    )


def _of_column(name: str, columns: list[str]) -> str:
    """The name of a hyperparameter, with that of its column in place of the number."""
    parts = LENGTH_SCALE.fullmatch(name)
    if parts is None or int(parts[2]) >= len(columns):
        return name
    return f"{parts[1]}{parts[3]}: {columns[int(parts[2])]}"
