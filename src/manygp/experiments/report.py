"""CSV, tables, figures and the page of a results folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

from manygp.display.page import Table, as_html, figure, page
from manygp.experiments.figures import RELIABILITY, draw_posteriors, draw_reliability, draw_sizes
from manygp.experiments.grid import REGIMES, TASKS
from manygp.experiments.names import PAPER_TASKS
from manygp.experiments.tables import (
    as_csv,
    calibration_table,
    markup,
    paper_tables,
    summarise,
    tidy,
)
from manygp.runtime.files import write_atomically

REGIME_TITLES = {
    "independent": "Independent hyperparameters (the paper's)",
    "hierarchical": "Hierarchical hyperparameters",
}
CAPTIONS = {
    "analyse": "Reliability of GP-pro, GP-pro-full and GP-full: mean over the seeds, bin by bin.",
    "assignments": "Reliability of ball tree, k-means and random parts with entropy weights.",
    "variants": "Reliability of the ball-tree variants, with (-c) and without calibration.",
    "baseline": "Reliability of GP-pro-c, GP-pro, GP-pro-sm and GP-full.",
}
NOTE = (
    "Mean over the seeds ± its standard error; in brackets the paper's cell. Smaller is better. "
    "Seconds depend on the machine and on what ran beside; the paper's are of its own. "
    "GP-pro-full fits its identical experts once."
)


def write_report(folder: Path, results: list[dict[str, Any]], remark: str = "") -> list[Path]:
    """Write everything that the results allow into `folder`, and return the paths."""
    matplotlib.use("Agg")
    rows = tidy(results)
    summary = summarise(rows)
    done = {cell["task"] for cell in results}
    tasks = [task for task in TASKS if task in done]
    paper = [task for task in PAPER_TASKS if task in done]
    seeds = 1 + max(cell["seed"] for cell in results)

    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    written = [folder / "results.csv", folder / "tables.md", folder / "index.html"]
    sections: dict[str, str] = {}
    text = [f"# The paper's tables\n\n{remark} {NOTE}\n"]
    for regime in REGIMES:
        tables: list[Table] = [calibration_table(summary, regime, paper)] if paper else []
        tables += paper_tables(summary, regime)
        text += [f"## {REGIME_TITLES[regime]}\n", *(table.markdown() for table in tables)]
        cells = [c for c in results if c["regime"] == regime or c["assignment"] == "full"]
        html = ""
        for name, models in RELIABILITY.items():
            path = figures / f"reliability-{name}-{regime}.png"
            if draw_reliability(cells, tasks if name == "analyse" else paper, models, path):
                html += figure(path.read_bytes(), CAPTIONS[name])
                written.append(path)
        sections[REGIME_TITLES[regime]] = html + "".join(
            as_html(table, markup) for table in tables
        )
    posterior = figures / "posterior.png"
    draw_posteriors(posterior)
    caption = "1-d Ackley: one global GP, and two experts before (light) and after calibration."
    sections["Illustrations"] = figure(posterior.read_bytes(), caption)
    written.append(posterior)
    sizes = figures / "points-per-expert.png"
    if draw_sizes(rows, sizes):
        caption = "Scores and time against points per expert."
        sections["Points per expert"] = figure(sizes.read_bytes(), caption)
        written.append(sizes)
    intro = f"{len(tasks)} tasks, {seeds} seeds. {remark} {NOTE}"
    write_atomically(folder / "results.csv", as_csv(rows))
    write_atomically(folder / "tables.md", "\n".join(text))
    write_atomically(folder / "index.html", page("GP-pro-c, reproduced", intro, sections))
    return written
