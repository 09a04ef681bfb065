"""The tables of the study `trust`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.studies.names import TRUST_MODELS, TRUST_TASKS
from benchmarks.studies.study import Result, csv_text, is_scored, write_texts
from benchmarks.studies.trust_aims import aims
from manygp.display.page import TextTable

OWN_HEADER = [
    "task", "training rows", "test rows", "NLL", "log score", "promised", "CRPS", "ENCE",
    "50 / 80 / 90 / 95 / 99% intervals", "90% conformal", "worst decile", "worst quartile",
    "largest std", "not calibrated",
]  # fmt: skip
EXPLANATION = """\
Targets are standardised, but for those of `rows-...`, whose variance is about 1. A task with folds
has the mean of its folds, and of "worst" and "largest" the extreme. NLL is that of the normal
distribution with mean and std; log score, CRPS and the first intervals are those of
`predict_dist`; "promised" is the log score of training rows, each left out. Worst decile: the
least coverage among tenths of the test rows by std, of the 90% interval by distribution /
conformal. Worst quartile: the same among quarters by the most relevant column, which has the
shortest length-scale in units of its std. Largest std: in units of the std of y. Not calibrated:
NLL / CRPS / ENCE with `calibration="none"` and normal distributions.
"""
# Coverages of the intervals of the predictive distribution, in percent.
LEVELS = (50, 80, 90, 95, 99)


def write_trust(folder: Path, results: list[Result]) -> list[Path]:
    """Write results.csv and tables.md, and return their paths."""
    tables = [own_table(results).markdown(), EXPLANATION, peer_table(results).markdown()]
    lines = [aim.markdown() for aim in aims(results)]
    title = "### Aims, and whether they hold\n"
    markdown = "\n".join([*tables, title, *lines]) + "\n"
    return write_texts(folder, {"results.csv": csv_text(results), "tables.md": markdown})


def own_table(results: list[Result]) -> TextTable:
    """This library on all tasks: scores, promises, and coverage."""
    rows = []
    for task in TRUST_TASKS:
        own = _parts(results, task, "manygp")
        if any(is_scored(result) for result in own):
            plain = _parts(results, task, "manygp-uncalibrated")
            rows.append(_own_row(task, [r for r in own if is_scored(r)], plain))
        elif own:
            rows.append([task, _note(own[0]), *[""] * (len(OWN_HEADER) - 2)])
    return TextTable("Can the std of `ManyGPRegressor()` be trusted?", OWN_HEADER, rows)


def peer_table(results: list[Result]) -> TextTable:
    """All models: NLL / log score / CRPS / ENCE, and coverage of their 90% intervals."""
    models = [m for m in TRUST_MODELS if any(result["model"] == m for result in results)]
    rows = [
        [task, *(_peer_text(_parts(results, task, model)) for model in models)]
        for task in TRUST_TASKS
        if any(result["task"] == task for result in results)
    ]
    title = "Beside others: NLL / log score / CRPS / ENCE (coverage of 90% intervals)"
    return TextTable(title, ["task", *(TRUST_MODELS[model] for model in models)], rows)


def _own_row(task: str, own: list[Result], plain: list[Result]) -> list[str]:
    conformal = "interval" in own[0]
    deciles = [_worst(own, "coverage_90", "decile")]
    quartiles = [_worst(own, "coverage_90", "quartile")]
    if conformal:
        deciles.append(_worst(own, "interval", "decile"))
        quartiles.append(_worst(own, "interval", "quartile"))
    return [
        task,
        f"{own[0]['n_train']:,}",
        f"{own[0]['n_scored']:,}",
        *(f"{_mean(own, field):.3f}" for field in ("nll", "log_score", "loo_log_score")),
        f"{_mean(own, 'crps'):.4f}",
        f"{_mean(own, 'ence'):.3f}",
        " / ".join(f"{100 * _mean(own, f'coverage_{level}'):.1f}" for level in LEVELS),
        f"{100 * _mean(own, 'interval'):.1f}%" if conformal else "-",
        _percents(deciles),
        _percents(quartiles),
        f"{max(result['largest_std'] for result in own):.2f}",
        _scores_text(plain, ("nll", "crps", "ence")),
    ]


def _peer_text(parts: list[Result]) -> str:
    """Scores and coverage of a model on the parts of a task, or why there are none."""
    text = _scores_text(parts, ("nll", "log_score", "crps", "ence"))
    scored = [result for result in parts if is_scored(result)]
    if not scored:
        return text
    field = "interval" if "interval" in scored[0] else "coverage_90"
    return f"{text} ({100 * _mean(scored, field):.1f}%)"


def _scores_text(parts: list[Result], fields: Sequence[str]) -> str:
    scored = [result for result in parts if is_scored(result)]
    if not scored:
        return _note(parts[0]) if parts else "-"
    return " / ".join(f"{_mean(scored, field):.3f}" for field in fields)


def _parts(results: list[Result], task: str, model: str) -> list[Result]:
    """The results of a model on a task, with its first seed."""
    return [r for r in results if (r["task"], r["model"], r["seed"]) == (task, model, 0)]


def _worst(results: list[Result], field: str, group: str) -> float:
    """The least coverage among deciles or quartiles."""
    start = f"{field}_{group}_"
    return min(value for r in results for name, value in r.items() if name.startswith(start))


def _mean(results: list[Result], field: str) -> float:
    return float(np.mean([result[field] for result in results]))


def _percents(shares: Sequence[float]) -> str:
    return " / ".join(f"{100 * share:.1f}%" for share in shares)


def _note(result: Result) -> str:
    return str(result["note"]).replace("|", "/")
