"""One HTML page about a fitted model, for whoever is to rely on it."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from manygp import answers, metrics
from manygp.display import page
from manygp.display.report.appendix import appendix_section
from manygp.display.report.attention import extrapolation_section, worst_section
from manygp.display.report.baselines import Baselines, baselines_of
from manygp.display.report.columns import sources_of, training_inputs
from manygp.display.report.effects import effects_of, effects_section
from manygp.display.report.rows import (
    RowSet,
    Tested,
    left_out_set,
    spread,
    target_names,
    tested_set,
)
from manygp.display.report.scores import cards, scores_section
from manygp.display.report.story import story_section
from manygp.display.report.trust import trust_section
from manygp.learning_curve import CURVE, LearningCurve, learning_curve
from manygp.model import FittedModel
from manygp.runtime.files import write_atomically

if TYPE_CHECKING:
    from manygp.regressor import ManyGPRegressor


def write_report(
    model: FittedModel | ManyGPRegressor,
    path: str | PathLike[str],
    *,
    name: str = "",
    target: str | Sequence[str] = (),
    tested: Tested | None = None,
    numbers: ArrayLike | None = None,
) -> None:
    """Write one self-contained HTML page about a fitted model.

    Parameters
    ----------
    model : ManyGPRegressor or FittedModel
    path : path
        Where to write the page; a file that is there is replaced.
    name : str, default=""
        Name of the model, for the first lines.
    target : str or sequence of str, default=()
        Names of the targets; units in brackets at the end, as in "speed [m/s]", are written
        beside numbers. By default that of the training table, if the model knows it.
    tested : Tested, default=None
        Predictions to be scored before those of training rows that are left out.
    numbers : array-like of shape (n,), default=None
        What the page calls the rows that `fit` was given: their places in a file. By default
        1, 2, ...

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from manygp import ManyGPRegressor
    >>> from manygp.display import write_report
    >>> X = np.linspace(0, 1, 40)[:, None]
    >>> model = ManyGPRegressor(random_state=0).fit(X, np.sin(6 * X[:, 0]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(model, Path(folder) / "model.html")
    ...     [path.name for path in Path(folder).iterdir()]
    ['model.html']
    """
    fitted: FittedModel = model if isinstance(model, FittedModel) else model.model_
    targets = target_names(fitted, (target,) if isinstance(target, str) else tuple(target))
    called = None if numbers is None else np.asarray(numbers)
    sets = [left_out_set(fitted, targets, tested, called)]
    explained = _explained(sets[0])
    if tested is not None:
        sets.insert(0, tested_set(fitted, targets, tested))
    simple = [baselines_of(fitted, rows) for rows in sets]
    training, sources = training_inputs(fitted), sources_of(fitted)
    relevance = answers.relevance(fitted, explained)
    order = np.argsort(-relevance.total, kind="stable").tolist()
    ranked = [sources[j] for j in order]
    effects = effects_of(fitted, sources, relevance, training)
    sections = {
        "In short": _in_short(sets[0], simple[0]),
        "How good are the predictions?": scores_section(sets, simple, _curve(fitted)),
        "Can the uncertainty be trusted?": trust_section(sets, ranked),
        "Which columns matter?": effects_section(relevance, effects, targets, training),
        "Which rows were predicted worst?": worst_section(sets[0], ranked),
        "Where does the model extrapolate?": extrapolation_section(fitted, sets[0], ranked),
        "What was found, and chosen": story_section(fitted, sources, targets),
        "Appendix: technical details": appendix_section(fitted),
    }
    title = "A model of " + " and ".join(one.name for one in targets)
    write_atomically(path, page.page(title, _introduction(fitted, sets, name), sections))


def _curve(model: FittedModel) -> LearningCurve | None:
    """The learning curve of a model that has one."""
    n = len(answers.training_rows(model)[1])
    has_one = n >= CURVE.fewest_rows and model.left_out_by == "row"
    return learning_curve(model) if has_one else None


def _explained(left_out: RowSet) -> float:
    """Share of the variance that is explained, averaged over the targets."""
    shares = [1 - (metrics.rmse(*one.rows) / spread(one.y)) ** 2 for one in left_out.scored]
    return max(0.0, float(np.mean(shares)))


def _introduction(model: FittedModel, sets: list[RowSet], name: str) -> str:
    """What the page is about, and which rows it scores."""
    n = len(answers.training_rows(model)[1])
    file = f"{name}, a" if name else "A"
    text = f"{file} model of manygp that has learned from {n:,} rows. " if n != 1 else (
        f"{file} model of manygp that knows one row. "
    )  # fmt: skip
    if sets[0].left_out:
        return text + (
            f"All scores are of {sets[0].name} in turn: what the model would have predicted for "
            "a row that it has not seen."
        )
    return text + f"Scores are of {sets[0].name}; beside them stand those of {sets[1].name}."


def _in_short(rows: RowSet, simple: list[Baselines]) -> str:
    """The numbers that are read first, for each target, and a sentence on them."""
    html = ""
    for scored, baselines in zip(rows.scored, simple, strict=True):
        if len(simple) > 1:
            html += page.heading(scored.target.name)
        html += cards(rows, scored, baselines)
    return html
