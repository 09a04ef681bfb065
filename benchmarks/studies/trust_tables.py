"""The tables of the study `trust`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.studies.conditional import MEASURES
from benchmarks.studies.names import TRUST_MODELS, TRUST_TASKS
from benchmarks.studies.study import Result, csv_text, is_scored, write_texts
from benchmarks.studies.trust_aims import aims
from manygp.display.page import TextTable
from manygp.metrics import N_BINS

OWN_HEADER = [
    "task", "training rows", "test rows", "NLL", "log score", "promised", "CRPS", "ENCE",
    "50 / 80 / 90 / 95 / 99% intervals", "90% conformal", "interval score", "worst decile",
    "worst quarter", "worst slab", "largest std", "not calibrated",
]  # fmt: skip
EXPLANATION = """\
Targets are standardised, but for those of `rows-...`, whose variance is about 1. A task with folds
has the mean of its folds, and of "worst" and "largest" the extreme. NLL is that of the normal
distribution with mean and std; log score, CRPS and the first intervals are those of
`predict_dist`; "promised" is the log score of training rows, each left out. Of the 90% interval by
distribution / conformal there are: interval score (the width, and 20 times the distance of a
target outside); worst decile, the least coverage among tenths of the test rows by std; worst
quarter, the same among quarters by each of the three most relevant columns; worst slab, the
coverage in the region that a shallow tree on columns, std and prediction finds in half of the test
rows, judged on the other half. Largest std: in units of the std of y. Not calibrated: NLL / CRPS /
ENCE with `calibration="none"` and normal distributions. A dash stands for what was not measured.
"""
CONDITIONAL_EXPLANATION = """\
The 90% interval is the conformal one, where a model has it, else that of its distribution. Behind
each coverage are bounds: if intervals hold 90% of the rows of every kind, chance keeps a group of
that size within them 99 times of 100. A coverage beyond its bounds is bold. The worst of ten
groups is below its bound by chance in up to 5 runs of 100, the worst of twelve in up to 6. Of
several folds the table shows the one of the least coverage. The rows of several simulations
(`rows-2` to `rows-500`) are not independent, so that their bounds are too narrow. All models have
the same relevant columns: those of the shortest length-scales, in units of their std, of the
kernel that manygp would share among its experts.
"""
NOT_MEASURED = "None of these results has it: they are of before it was measured.\n"
# Results that do not tell the version are of this one, the last that did not record it.
UNRECORDED_VERSION = "0.2.0"
# The two 90% intervals whose coverage is measured in parts of the data: names of results.
CONDITIONAL = ("coverage_90", "interval")
# Coverages of the intervals of the predictive distribution, in percent.
LEVELS = (50, 80, 90, 95, 99)


def write_trust(folder: Path, results: list[Result]) -> list[Path]:
    """Write results.csv and tables.md, and return their paths."""
    tables = [
        version_text(results),
        own_table(results).markdown(),
        EXPLANATION,
        peer_table(results).markdown(),
        *_conditional_texts(results),
    ]
    lines = [aim.markdown() for aim in aims(results)]
    title = "### Criteria, and which are met\n"
    markdown = "\n".join([*tables, title, *lines]) + "\n"
    return write_texts(folder, {"results.csv": csv_text(results), "tables.md": markdown})


def version_text(results: list[Result]) -> str:
    """Which versions of this library the results are of."""
    versions = sorted({str(result.get("version", UNRECORDED_VERSION)) for result in results})
    return f"Results of manygp {' and '.join(versions)}.\n" if versions else ""


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


def conditional_table(results: list[Result]) -> TextTable:
    """All models on the tasks where it is measured: 90% intervals in parts of the data."""
    rows = []
    for task in TRUST_TASKS:
        scored = {m: [r for r in _parts(results, task, m) if is_scored(r)] for m in TRUST_MODELS}
        if any(_is_conditional(parts) for parts in scored.values()):
            rows += [_conditional_row(task, m, parts) for m, parts in scored.items() if parts]
    header = ["task", "model", "CRPS", "interval score", "coverage", *MEASURES.values()]
    return TextTable("Do 90% intervals hold 90% everywhere?", header, rows)


def _conditional_texts(results: list[Result]) -> list[str]:
    """The table of parts of the data, and what it shows."""
    table = conditional_table(results)
    if not table.rows:
        return [f"### {table.title}\n", NOT_MEASURED]
    return [table.markdown(), CONDITIONAL_EXPLANATION]


def _is_conditional(parts: list[Result]) -> bool:
    """Whether coverage in parts of the data is among the results."""
    return any(f"{CONDITIONAL[0]}_worst_decile" in result for result in parts)


def _conditional_row(task: str, model: str, parts: list[Result]) -> list[str]:
    field = _interval_field(parts)
    return [
        task,
        TRUST_MODELS[model],
        f"{_mean(parts, 'crps'):.4f}",
        _mean_text(parts, f"{field}_score"),
        f"{100 * _mean(parts, field):.1f}%",
        *(_share_text(parts, f"{field}_{measure}") for measure in MEASURES),
    ]


def _share_text(parts: list[Result], field: str) -> str:
    """The least coverage of the parts with its bounds of chance, bold if it is beyond them."""
    known = [r for r in parts if r.get(field) is not None]
    if not known:
        return "-"
    worst = min(known, key=lambda result: float(result[field]))
    share, low, high = (worst[f"{field}{end}"] for end in ("", "_low", "_high"))
    text = f"{100 * share:.1f}%"
    return (
        f"{text if low <= share <= high else f'**{text}**'} ({100 * low:.1f} to {100 * high:.1f})"
    )


def _own_row(task: str, own: list[Result], plain: list[Result]) -> list[str]:
    fields = [field for field in CONDITIONAL if field in own[0]]
    return [
        task,
        f"{own[0]['n_train']:,}",
        f"{own[0]['n_scored']:,}",
        *(f"{_mean(own, field):.3f}" for field in ("nll", "log_score", "loo_log_score")),
        f"{_mean(own, 'crps'):.4f}",
        f"{_mean(own, 'ence'):.3f}",
        " / ".join(f"{100 * _mean(own, f'coverage_{level}'):.1f}" for level in LEVELS),
        f"{100 * _mean(own, 'interval'):.1f}%" if "interval" in fields else "-",
        _joined([_mean_text(own, f"{field}_score") for field in fields]),
        _joined([f"{100 * _worst_decile(own, field):.1f}%" for field in fields]),
        _joined([_least_text(own, f"{field}_worst_quarter") for field in fields]),
        _joined([_least_text(own, f"{field}_worst_slab") for field in fields]),
        f"{max(result['largest_std'] for result in own):.2f}",
        _scores_text(plain, ("nll", "crps", "ence")),
    ]


def _peer_text(parts: list[Result]) -> str:
    """Scores and coverage of a model on the parts of a task, or why there are none."""
    text = _scores_text(parts, ("nll", "log_score", "crps", "ence"))
    scored = [result for result in parts if is_scored(result)]
    if not scored:
        return text
    return f"{text} ({100 * _mean(scored, _interval_field(scored)):.1f}%)"


def _interval_field(scored: list[Result]) -> str:
    """The name of the 90% interval of a model: the conformal one, where it has it."""
    return "interval" if "interval" in scored[0] else "coverage_90"


def _scores_text(parts: list[Result], fields: Sequence[str]) -> str:
    scored = [result for result in parts if is_scored(result)]
    if not scored:
        return _note(parts[0]) if parts else "-"
    return " / ".join(f"{_mean(scored, field):.3f}" for field in fields)


def _parts(results: list[Result], task: str, model: str) -> list[Result]:
    """The results of a model on a task, with its first seed."""
    return [r for r in results if (r["task"], r["model"], r["seed"]) == (task, model, 0)]


def _worst_decile(results: list[Result], field: str) -> float:
    """The least coverage among tenths by std."""
    return min(float(r[f"{field}_decile_{k}"]) for r in results for k in range(1, N_BINS + 1))


def _least_text(results: list[Result], field: str) -> str:
    """The least coverage of the results, a dash if none has it."""
    known = [result[field] for result in results if result.get(field) is not None]
    return f"{100 * min(known):.1f}%" if known else "-"


def _mean_text(results: list[Result], field: str) -> str:
    """The mean of a score, a dash if a result does not have it."""
    return f"{_mean(results, field):.3f}" if all(field in r for r in results) else "-"


def _mean(results: list[Result], field: str) -> float:
    return float(np.mean([result[field] for result in results]))


def _joined(texts: Sequence[str]) -> str:
    """Texts of one thing, by distribution / conformal; one dash if there is none of either."""
    return " / ".join(texts) if set(texts) != {"-"} else "-"


def _note(result: Result) -> str:
    return str(result["note"]).replace("|", "/")
