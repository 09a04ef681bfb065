"""Section of a report that tells in plain words what the data are like and what was chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from manygp import answers
from manygp.arrays import Array
from manygp.display import page
from manygp.display.charts import minus, number, percent, span
from manygp.display.report.appendix import why_chosen
from manygp.display.report.columns import Inputs, SourceColumn, comparable, training_inputs
from manygp.display.report.rows import Target, spread
from manygp.fit_report import Alternative
from manygp.model import FittedModel
from manygp.runtime.words import counted
from manygp.training.pipeline import find_repeats

KINDS = {"number": "number", "category": "column of categories", "date": "date"}
KINDS_MANY = {"number": "numbers", "category": "columns of categories", "date": "dates"}
TRENDS = {
    "constant": "a constant",
    "linear": "a straight line in each column",
    "additive": "a smooth curve in each column",
    "pairs": "smooth curves in the columns and in pairs of them",
    "boosted": "boosted trees",
    "forest": "a forest of trees",
}
TRANSFORMS = {"log": "the logarithm", "yeo-johnson": "a power (Yeo-Johnson)"}
# Noise that is this share of the std of the target, or more, is most of it.
MOSTLY_NOISE = 0.7
# Rows whose noise is looked at where it depends on the row.
NOISE_ROWS = 500
# Degrees of freedom from which a Student-t is called normal.
NEARLY_NORMAL = 30.0


def story_section(model: FittedModel, sources: list[SourceColumn], targets: list[Target]) -> str:
    """Sentences on the data, on the model, and on what was compared."""
    html = page.heading("The data") + page.bullets(_about_data(model, sources, targets))
    return html + page.heading("The model") + page.bullets(_about_model(model))


def _about_data(
    model: FittedModel, sources: list[SourceColumn], targets: list[Target]
) -> Iterator[str]:
    X, Y = answers.training_rows(model)
    kinds = Counter(one.column.kind for one in sources)
    each = ", ".join(
        f"{n:,} {(KINDS if n == 1 else KINDS_MANY)[kind]}" for kind, n in kinds.items()
    )
    text = f"{counted(len(X), 'row')} and {counted(len(sources), 'column')}: {each}."
    if model.n_columns > len(sources):
        text += f" The model sees them as {model.n_columns:,} numbers."
    yield text
    inputs = training_inputs(model)
    yield from _missing(sources, inputs)
    data = model.committee.training_data()
    if model.encoder is not None:
        data = data._replace(X=comparable(model, inputs))
    repeats = find_repeats(data)
    if repeats.n_repeated:
        share = percent(repeats.n_repeated / repeats.n_rows)
        verb = "repeats" if repeats.n_repeated == 1 else "repeat"
        text = f"{counted(repeats.n_repeated, 'row')} ({share}) {verb} the columns of another row."
        if repeats.tell_noise:
            text += " How their targets differ tells the least noise that there is."
        yield text
    else:
        yield "No row repeats another."
    for target, noise, y in zip(targets, _typical_noise(model, X), Y.T, strict=True):
        share = noise / spread(y)
        text = f"Noise that no column explains: about ± {number(noise)} "
        text += f"in {target.units}, {percent(share)} of the std of {target.name}."
        if share > MOSTLY_NOISE:
            text += " Most of the target is noise to these columns."
        yield text


def _typical_noise(model: FittedModel, X: Array) -> Array:
    """Std of the noise of each target, (t,), at a typical row of X (n, d)."""
    if model.target_transform is not None:
        some = X[answers.sample_rows(len(X), NOISE_ROWS)]
        return np.median(answers.noise_std(model, some).reshape(len(some), -1), axis=0)
    noise = float(np.median([expert.noise_variance for expert in model.committee.experts]))
    return np.sqrt(noise) * model.y_scaling.scale


def _missing(sources: list[SourceColumn], rows: Inputs) -> Iterator[str]:
    """Sentences on missing values."""
    lacking = {one.name: int(one.is_missing(rows).sum()) for one in sources}
    if any(lacking.values()):
        each = ", ".join(f"{name} in {counted(n, 'row')}" for name, n in lacking.items() if n)
        yield f"Values are missing: {each}. The model knows where, and its std takes it in."


def _about_model(model: FittedModel) -> Iterator[str]:
    n, queried = len(model.committee), model.rules.nearest
    if n == 1:
        yield "One Gaussian process knows all rows."
    else:
        some = "all of them" if queried in (None, n) else f"the {queried:,} nearest ones"
        rows = span([len(expert.indices) for expert in model.committee.experts])
        yield (
            f"A committee of {n:,} experts, Gaussian processes with {rows} rows each of one "
            f"region of the data. About a row {some} {'is' if queried == 1 else 'are'} asked."
        )
    trend = model.committee.trend
    if trend is not None:
        name = trend.model.name
        data = model.committee.training_data()
        rest = data.residuals.var(axis=0).sum() / max(data.targets.var(axis=0).sum(), 1e-300)
        yield (
            f"Under it lies a trend that holds everywhere: {TRENDS.get(name, name)} ({name}). It "
            f"explains {percent(max(0.0, 1 - rest))} of the variance by itself."
        )
    if model.target_transform is not None and model.target_transform.name in TRANSFORMS:
        yield (
            f"The experts learn {TRANSFORMS[model.target_transform.name]} of the target, which is "
            "skewed; all numbers of this page are in its own units."
        )
    if model.step is not None:
        yield (
            f"Many targets are {model.step.value:g}: distributions, quantiles and intervals give "
            "that value a chance of its own, which left-out rows have taught."
        )
    tails = answers.tails(model)[0]
    heaviest = float(tails.max())  # one over the degrees of freedom
    if answers.conformal_scores(model).shaped:
        yield (
            "Errors are spread as no normal or Student-t distribution is, as where most targets "
            "are one value: quantiles follow the errors of rows that were left out."
        )
    elif heaviest <= 1 / NEARLY_NORMAL:
        yield "Errors are spread about as a normal distribution says."
    else:
        yield (
            "Large errors are more frequent than a normal distribution says: intervals and "
            f"quantiles follow a Student-t distribution of {number(1 / heaviest)} degrees of "
            f"freedom{' or more, by the std of a row' if len(tails) > 1 else ''}."
        )
    yield from _about_choice(model)


def _about_choice(model: FittedModel) -> Iterator[str]:
    report = model.report
    if report is None or not report.alternatives:
        alone = len(model.committee) == 1
        why = "there is one expert" if alone else "the parameters left nothing to choose"
        yield f"Nothing was chosen by leave-one-out: {why}."
        return
    by_parameter: dict[str, list[Alternative]] = {}
    for one in report.alternatives:
        by_parameter.setdefault(one.parameter, []).append(one)
    compared = [name for name, several in by_parameter.items() if len(several) > 1]
    yield (
        f"{counted(len(report.alternatives), 'alternative')} were compared by leaving out "
        f"{counted(report.n_rows, 'row')} in turn, a smaller NLL being better; all stand in the "
        "appendix."
    )
    for name in ("target", "trend", "structure"):
        if name in compared:
            yield _told(name, by_parameter[name])


def _told(name: str, several: list[Alternative]) -> str:
    """Which of several values of a parameter was taken, if one was."""
    others = ", ".join(_scored(one) for one in several if not one.chosen)
    for chosen in several:
        if chosen.chosen:
            rest = "the other was" if len(several) == 2 else "the others were"
            why = why_chosen(chosen, several).removeprefix("chosen").removeprefix(": ")
            return f"The {name} is {_scored(chosen)}{why and ', '}{why}; {rest} {others}."
    return f"No {name} was taken, since one expert for all rows is better; compared were {others}."


def _scored(one: Alternative) -> str:
    """A value and its score."""
    return f"{one.value} (NLL {minus(f'{one.nll:.3f}')})"
