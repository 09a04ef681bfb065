"""The paper's CSV, tables, figures and page of a results folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

from benchmarks.studies.names import PAPER_TASKS, REPRODUCED_TASKS
from benchmarks.studies.paper_figures import (
    RELIABILITY_MODELS,
    draw_posteriors,
    draw_reliability,
    draw_sizes,
)
from benchmarks.studies.paper_tables import (
    TableScores,
    calibration_table,
    cell_markup,
    paper_tables,
    summarise,
    table_scores,
    tidy,
    tidy_csv,
)
from benchmarks.studies.study import Result, write_texts
from manygp.display.page import TextTable, as_html, figure, page

# The regimes, and their sections of the page.
REGIME_TITLES = {
    "independent": "Independent hyperparameters (the paper's)",
    "hierarchical": "Hierarchical hyperparameters",
}
# The captions of the reliability diagrams.
RELIABILITY_CAPTIONS = {
    "analyse": "Reliability of GP-pro, GP-pro-full and GP-full: mean over the seeds, bin by bin.",
    "assignments": "Reliability of ball tree, k-means and random parts with entropy weights.",
    "variants": "Reliability of the ball-tree variants, with (-c) and without calibration.",
    "baseline": "Reliability of GP-pro-c, GP-pro, GP-pro-sm and GP-full.",
}
POSTERIOR_CAPTION = (
    "1-d Ackley: one global GP, and two experts before (light) and after calibration."
)
SIZES_CAPTION = "Scores and time against points per expert."
# How to read the tables.
TABLES_NOTE = (
    "Mean over the seeds ± its standard error; in brackets the paper's cell. Smaller is better. "
    "Seconds depend on the machine and on what ran beside; the paper's are of its own. "
    "GP-pro-full fits its identical experts once."
)


def write_paper(folder: Path, results: list[Result], remark: str = "") -> list[Path]:
    """Write everything that the results allow into `folder`, and return the paths."""
    matplotlib.use("Agg")
    rows = tidy(results)
    summary = summarise(rows)
    pictures = folder / "figures"
    pictures.mkdir(parents=True, exist_ok=True)
    finished = {result["task"] for result in results}
    tasks = [task for task in REPRODUCED_TASKS if task in finished]

    tables = {
        title: _regime_tables(table_scores(summary, regime), tasks)
        for regime, title in REGIME_TITLES.items()
    }
    figures = {
        title: _draw_regime(results, regime, tasks, pictures)
        for regime, title in REGIME_TITLES.items()
    } | _draw_others(rows, pictures)
    markdown = [f"# The paper's tables\n\n{remark} {TABLES_NOTE}\n"]
    for title, own in tables.items():
        markdown += [f"## {title}\n", *(table.markdown() for table in own)]
    sections = {
        title: _as_html(captions, tables.get(title, [])) for title, captions in figures.items()
    }
    n_seeds = 1 + max(result["seed"] for result in results)
    introduction = f"{len(tasks)} tasks, {n_seeds} seeds. {remark} {TABLES_NOTE}"
    texts = {
        "results.csv": tidy_csv(rows),
        "tables.md": "\n".join(markdown),
        "index.html": page("GP-pro-c, reproduced", introduction, sections),
    }
    paths = [path for captions in figures.values() for path in captions]
    return write_texts(folder, texts) + paths


def _regime_tables(scores: TableScores, tasks: list[str]) -> list[TextTable]:
    """The effect of calibration, if a task of the paper's tables is finished, and its tables."""
    own = [task for task in tasks if task in PAPER_TASKS]
    return [*([calibration_table(scores, own)] if own else []), *paper_tables(scores)]


def _draw_regime(
    results: list[Result], regime: str, tasks: list[str], folder: Path
) -> dict[Path, str]:
    """The reliability diagrams of a regime: their paths and captions."""
    own = [r for r in results if r["regime"] == regime or r["assignment"] == "full"]
    captions = {}
    for name, models in RELIABILITY_MODELS.items():
        path = folder / f"reliability-{name}-{regime}.png"
        shown = tasks if name == "analyse" else [task for task in tasks if task in PAPER_TASKS]
        if draw_reliability(own, shown, models, path):
            captions[path] = RELIABILITY_CAPTIONS[name]
    return captions


def _draw_others(rows: list[dict[str, Any]], folder: Path) -> dict[str, dict[Path, str]]:
    """The figures of no regime, by section: their paths and captions."""
    posterior = folder / "posterior.png"
    draw_posteriors(posterior)
    sections = {"Illustrations": {posterior: POSTERIOR_CAPTION}}
    sizes = folder / "points-per-expert.png"
    if draw_sizes(rows, sizes):
        sections["Points per expert"] = {sizes: SIZES_CAPTION}
    return sections


def _as_html(captions: dict[Path, str], tables: list[TextTable]) -> str:
    """Figures by their paths and captions, then tables."""
    figures = [figure(path.read_bytes(), caption) for path, caption in captions.items()]
    return "".join([*figures, *(as_html(table, cell_markup) for table in tables)])
