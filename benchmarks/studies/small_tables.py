"""The tables of the study `small`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks.studies.names import SMALL_MODELS
from benchmarks.studies.study import Result, csv_text, write_texts
from manygp.arrays import IndexArray
from manygp.display.page import TextTable

# The scores of which models are ranked; lower is better.
RANKED = ("log_score", "crps", "rmse")
REFERENCE = "scikit-learn"
Case = tuple[str, int, int]


def write_small(folder: Path, results: list[Result]) -> list[Path]:
    """Write all results and the tables of them."""
    tables = [rank_table(results), score_table(results), promise_table(results)]
    markdown = "\n".join(table.markdown() for table in tables)
    return write_texts(folder, {"results.csv": csv_text(results), "tables.md": markdown})


def common_cases(results: list[Result]) -> dict[Case, dict[str, Result]]:
    """By task, rows and draw, the results of all models that took part: only where all did."""
    by_case: dict[Case, dict[str, Result]] = defaultdict(dict)
    for result in results:
        by_case[result["task"], result["rows"], result["draw"]][result["model"]] = result
    models = _models(results)
    return {case: own for case, own in by_case.items() if len(own) == len(models)}


def rank_table(results: list[Result]) -> TextTable:
    """Mean ranks and wins by the number of rows."""
    cases, models = common_cases(results), _models(results)
    rows = []
    for size in [*sorted({case[1] for case in cases}), None]:
        own = [one for case, one in cases.items() if size in (None, case[1])]
        ranks = {score: _ranks(own, models, score) for score in RANKED}
        for place, model in enumerate(models):
            columns = [
                f"{ranks[score][:, place].mean():.2f} ({int((ranks[score][:, place] == 1).sum())})"
                for score in RANKED
            ]
            label = "all" if size is None else f"{size:,}"
            rows.append([label, SMALL_MODELS[model], *columns, str(len(own))])
    title = "Mean rank (wins) by the number of training rows; 1 is best"
    return TextTable(title, ["rows", "model", "log score", "CRPS", "RMSE", "cases"], rows)


def score_table(results: list[Result]) -> TextTable:
    """Means of the scores, of coverage and of seconds by the number of rows."""
    cases, models = common_cases(results), _models(results)
    rows = []
    for size in sorted({case[1] for case in cases}):
        own = [one for case, one in cases.items() if case[1] == size]
        for model in models:
            mean = {
                name: _mean(one[model][name] for one in own)
                for name in (*RANKED, "nll", "interval_coverage", "coverage", "cpu_seconds")
            }
            held = mean["interval_coverage"]
            held = mean["coverage"] if np.isnan(held) else held
            reference = [one[REFERENCE]["cpu_seconds"] for one in own if REFERENCE in one]
            ratio = f"{mean['cpu_seconds'] / _mean(reference):.2g}" if reference else "-"
            rows.append([
                f"{size:,}", SMALL_MODELS[model], *(f"{mean[name]:.3f}" for name in RANKED),
                f"{mean['nll']:.3f}", f"{100 * held:.1f}%", f"{mean['cpu_seconds']:.2f}", ratio,
            ])  # fmt: skip
    heads = [
        "rows", "model", "log score", "CRPS", "RMSE", "NLL", "90% held", "CPU s",
        "of scikit-learn's",
    ]  # fmt: skip
    return TextTable("Means over data sets and draws, in units of the std of y", heads, rows)


def promise_table(results: list[Result]) -> TextTable:
    """What left-out rows had promised of this library's NLL, and what test rows gave."""
    own = [one for one in results if one["model"] == "manygp" and one["promised_nll"] is not None]
    rows = []
    for size in sorted({one["rows"] for one in own}):
        some = [one for one in own if one["rows"] == size]
        by_task: dict[str, list[float]] = defaultdict(list)
        for one in some:
            by_task[one["task"]].append(one["nll"] - one["promised_nll"])
        gaps = [_mean(values) for values in by_task.values()]
        rows.append([
            f"{size:,}", f"{_mean(one['promised_nll'] for one in some):.3f}",
            f"{_mean(one['nll'] for one in some):.3f}", f"{_mean(gaps):+.3f}",
            f"{_mean(abs(gap) for gap in gaps):.3f}",
            f"{100 * _mean(one['interval_coverage'] for one in some):.1f}%", str(len(some)),
        ])  # fmt: skip
    heads = [
        "rows", "promised", "got", "got - promised", "its size, by data set", "90% held", "fits",
    ]  # fmt: skip
    return TextTable("NLL of manygp: promised by rows left out, and got", heads, rows)


def _models(results: list[Result]) -> list[str]:
    """The models that took part, in their order."""
    return [one for one in SMALL_MODELS if any(result["model"] == one for result in results)]


def _ranks(cases: list[dict[str, Result]], models: list[str], score: str) -> IndexArray:
    """Ranks (cases, models) of a score, from 1 on."""
    values = np.array([[one[model][score] for model in models] for one in cases])
    return 1 + np.argsort(np.argsort(values, axis=1, kind="stable"), axis=1, kind="stable")


def _mean(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")
