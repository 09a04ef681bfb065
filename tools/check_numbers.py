"""Check that tables in README and docs say what the committed results say; `--write` writes them.

    python -m tools.check_numbers

A table stands between `<!-- numbers: NAME -->` and `<!-- end of numbers -->`. NAME is a key of
`BLOCKS`, whose function makes the text from a `results.csv` under benchmarks/.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import re
import sys
from collections.abc import Callable
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.studies.names import PAPER_SCORES, PAPER_TASKS, SPEED_MODELS
from benchmarks.studies.published import published
from benchmarks.studies.regimes import (
    ALL_MODELS,
    CONVERGED,
    MODELS,
    STOPPED,
    best_steps,
    distance,
    distances,
    n_seeds,
    regimes,
    scanned,
)
from benchmarks.studies.speed_tables import medians
from benchmarks.studies.study import is_scored

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"(<!-- numbers: (\S+) -->\n)(.*?)(<!-- end of numbers -->)", re.DOTALL)

# Half of the rows of each of the paper's tasks, and what is added to its name.
TRAINING_ROWS = {
    "ackley": 2500, "levy": 2500, "rastrigin": 2500, "rosenbrock": 25000, "concrete": 515,
    "airfoil": 751, "parkinsons": 2937, "power": 4784, "kin40k": 20000, "protein": 22865,
}  # fmt: skip
DIMENSIONS = {"ackley": " (10-d)", "rosenbrock": " (50-d)"}
# The heads of the rows of the speed tables.
SPEED_ROWS = {
    "synthetic-10k": "synthetic, 10,000",
    "synthetic-100k": "synthetic, 100,000",
    "synthetic-1m": "synthetic, 1,000,000",
    "kin40k": "Kin40K, 20,000",
    "protein": "Protein, 22,865",
    "rosenbrock": "50-d Rosenbrock, 25,000",
}
SHORT_SPEED_ROWS = ("synthetic-10k", "synthetic-1m", "kin40k", "protein")
MODELS_TIMED = ("gp-full", "bt-ent-c")
COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
TIMES = ("never", "once", "twice")

Rows = list[dict[str, Any]]


def read(name: str) -> Rows:
    """The rows of `benchmarks/<name>/results.csv`, without empty fields, numbers as numbers."""
    with (ROOT / "benchmarks" / name / "results.csv").open(newline="") as file:
        return [
            {key: _number(value) for key, value in row.items() if value}
            for row in csv.DictReader(file)
        ]


def _number(text: str) -> Any:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        return text


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines).replace("|  |", "| |")


def score(value: float) -> str:
    """A score with three decimals, without the zero before the point."""
    text = f"{value:.3f}"
    text = "0.000" if text == "-0.000" else text
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def scores(values: list[float] | None) -> str:
    return "-" if values is None else " / ".join(score(value) for value in values)


def count(n: int) -> str:
    return COUNTS[n] if n < len(COUNTS) else str(n)


def average(rows: list[list[float] | None]) -> list[float] | None:
    """Means by column, unless a row is missing."""
    if any(row is None for row in rows):
        return None
    return [fmean(column) for column in zip(*rows, strict=True)]


class Quality:
    """Means over the splits of the study `quality`, and over the seeds of `paper`."""

    def __init__(self) -> None:
        own = [row for row in read("quality") if row["model"] == "manygp" and is_scored(row)]
        self.own = {task: [row for row in own if row["task"] == task] for task in PAPER_TASKS}
        self.paper: dict[tuple[str, str], list[float]] = {}
        for row in read("paper"):
            if _is_same_model(row):
                self.paper.setdefault((row["task"], row["metric"]), []).append(row["value"])

    def mean(self, task: str, field: str) -> float | None:
        found = [row[field] for row in self.own[task] if field in row]
        return fmean(found) if found else None

    def default(self, task: str) -> list[float] | None:
        return [self.mean(task, one) for one in PAPER_SCORES] if self.own[task] else None

    def here(self, task: str) -> list[float] | None:
        cells = [self.paper.get((task, one)) for one in PAPER_SCORES]
        return [fmean(cell) for cell in cells] if all(cells) else None

    def splits(self) -> str:
        """How many splits the means are of."""
        found = [len(own) for own in self.own.values()]
        least, most = min(found), max(found)
        if most == 1:
            return "one 50/50 split"
        number = count(most) if least == most else f"{count(least)} to {count(most)}"
        return f"means of {number} 50/50 splits"

    def table(self, columns: dict[str, Callable[[str], Any]], head: str) -> str:
        """Rows of the tasks and their average; a column makes scores, or text."""
        values = {name: [of(task) for task in PAPER_TASKS] for name, of in columns.items()}
        rows = []
        for at, task in enumerate(PAPER_TASKS):
            cells = [_cell(values[name][at]) for name in columns]
            rows.append([task + DIMENSIONS.get(task, ""), f"{TRAINING_ROWS[task]:,}", *cells])
        last = [_cell(_column_average(cells)) for cells in values.values()]
        return table(["", head, *columns], [*rows, ["**average**", "", *last]])


def _is_same_model(row: dict[str, Any]) -> bool:
    """Whether it is the paper's GP-pro-c, with experts of 200 rows that have converged."""
    key = (row["model"], row["regime"], row["points_per_expert"])
    return key == ("bt-ent-c", "independent", 200)


def _column_average(cells: list[Any]) -> Any:
    if any(isinstance(cell, Seconds) for cell in cells):
        return ""
    if any(cell is None for cell in cells):
        return None
    if isinstance(cells[0], float):
        return fmean(cells)
    return average(cells)


class Seconds(float):
    """A duration, which is not averaged over tasks."""


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Seconds):
        return f"{value:.0f}"
    if isinstance(value, float):
        return f"{100 * value:.1f}%"
    return scores(value)


def paper_scores(task: str) -> list[float]:
    return [published()[task, "bt-ent-c", one] for one in PAPER_SCORES]


def quality() -> str:
    """The default beside the paper and its model here."""
    found = Quality()
    columns = {
        "paper, GP-pro-c": paper_scores,
        "here, GP-pro-c": found.here,
        "manygp, the default": found.default,
        "90% interval": lambda task: found.mean(task, "interval_coverage"),
    }
    return f"*The default: {found.splits()} (`python -m benchmarks quality`).*\n\n" + found.table(
        columns, "training rows"
    )


def quality_times() -> str:
    """The default beside the paper, and the seconds of its fits."""
    found = Quality()
    seconds = {task: found.mean(task, "fit_seconds") for task in PAPER_TASKS}
    columns = {
        "paper, GP-pro-c": paper_scores,
        "manygp": found.default,
        "90% interval": lambda task: found.mean(task, "interval_coverage"),
        "fit, s": lambda task: None if seconds[task] is None else Seconds(seconds[task]),
    }
    return f"*manygp: {found.splits()}.*\n\n" + found.table(columns, "rows")


def speed_table(tasks: tuple[str, ...]) -> str:
    """Seconds to fit and NLL: medians over the repeats, and how many there were."""
    found = medians(read("speed"))
    cells = {
        (task, model): found[task, model]
        for task in tasks
        for model in SPEED_MODELS
        if (task, model) in found
    }
    repeats = {key: one["repeats"] for key, one in cells.items() if is_scored(one)}
    most = max(repeats.values())
    fewer = [
        sentence
        for model in SPEED_MODELS
        for sentence in _fewer_runs(
            model, {t: n for (t, m), n in repeats.items() if m == model}, most
        )
    ]
    said = f"Medians of {count(most)} runs" if most > 1 else "One run each"
    caption = "*" + "; ".join([said, *fewer]) + " (`make bench`).*"
    rows = [
        [SPEED_ROWS[task], *(_speed_cell(cells.get((task, model))) for model in SPEED_MODELS)]
        for task in tasks
    ]
    text = f"{caption}\n\n" + table(["rows", *SPEED_MODELS.values()], rows)
    own = found.get(("synthetic-1m", "manygp"))
    if own is None or not is_scored(own):
        return text
    return text + (
        f"\nWith a million training rows all processes together need "
        f"{own['peak_megabytes'] / 1000:.2g} GB, and a query takes "
        f"{1e6 * own['predict_seconds'] / own['n_queries']:.2g} microseconds,\nthe average of a "
        f"batch of {own['n_queries']:,} queries.\n"
    )


def _fewer_runs(model: str, repeats: dict[str, int], most: int) -> list[str]:
    """How often a model ran where that is less often than others, by task."""
    name, counts = SPEED_MODELS[model], set(repeats.values())
    if len(repeats) > 1 and len(counts) == 1 and max(counts) < most:
        return [f"{name} ran {times(max(counts))}"]
    return [
        f"{name} ran {times(n)} on {SPEED_ROWS[task]} rows"
        for task, n in repeats.items()
        if n < most
    ]


def times(n: int) -> str:
    return TIMES[n] if n < len(TIMES) else f"{count(n)} times"


def _speed_cell(one: dict[str, Any] | None) -> str:
    if one is None:
        return "-"
    if is_scored(one):
        return f"{one['fit_seconds']:.3g} s, {one['nll'] + 0.0:.2f}"
    return str(one["note"]).split(" with ")[0].replace("|", "/")


def first() -> str:
    """The result under the first picture."""
    found = read("first")
    rows = [
        [
            str(row["model"]),
            f"{row['rmse']:,.0f}",
            f"{100 * row['coverage']:.1f}%",
            f"{row['width']:,.0f}",
            f"{row['interval_score']:,.0f}",
            f"{row['fit_seconds']:.0f} s",
        ]
        for row in found
    ]
    head = ["", "RMSE", "coverage of 90% intervals", "mean width", "interval score", "fit"]
    return (
        f"*Prices of diamonds in dollars, one random 80/20 split; {found[0]['n_rows']:,} training "
        "rows with nine columns, three of\nthem categories. Both models with their defaults; "
        "scikit-learn's trees are three models: one for the mean, two for the\nquantiles. The "
        "interval score is the width plus 20 times the distance of targets outside; smaller is "
        "better.\nSeconds of one core (`python -m benchmarks.first`).*\n\n" + table(head, rows)
    )


def regime_table(model: str, tasks: list[str]) -> str:
    """A model as published, converged and stopped early, by task."""
    kinds = {"published": published(), **regimes()}
    columns = [
        [[means[task, model, one] for one in PAPER_SCORES] for task in tasks]
        for means in kinds.values()
    ]
    rows = [
        [task, *(scores(column[at]) for column in columns), str(n_seeds(task, model))]
        for at, task in enumerate(tasks)
    ]
    last = ["**average**", *(scores(average(column)) for column in columns), ""]
    return table(["", *kinds, "seeds of the last"], [*rows, last])


def three_regimes() -> str:
    """GP-pro-c in three regimes."""
    return (
        "*GP-pro-c (bt-ent-c), RMSE / NLL / ENCE. Converged: ten seeds, `python -m benchmarks "
        "paper`;\nstopped early: `python -m benchmarks.early`.*\n\n"
        + regime_table("bt-ent-c", list(PAPER_TASKS))
    )


def regime_global() -> str:
    """GP-full in three regimes, where it was run."""
    tasks = [task for task in PAPER_TASKS if n_seeds(task, "gp-full")]
    return regime_table("gp-full", tasks)


def regime_steps() -> str:
    """The distance of each number of steps to the published cells."""
    without = [task for task in PAPER_TASKS if task != "parkinsons"]
    kinds = {f"{steps} steps": means for steps, means in scanned().items()}
    rows = []
    for name, means in {**kinds, CONVERGED: regimes()[CONVERGED]}.items():
        both = [distances(means, tasks, MODELS["bt"]) for tasks in (PAPER_TASKS, without)]
        cells = [cell for some in both for cell in (scores(some), score(sum(some)))]
        rows.append([f"**{name}**" if name == f"{best_steps()} steps" else name, *cells])
    head = ["", "all tasks", "sum", "without Parkinsons", "sum"]
    return (
        "*Mean absolute difference to the published RMSE / NLL / ENCE of the seven models with a "
        "ball tree.*\n\n" + table(head, rows)
    )


def regime_distances() -> str:
    """The distance of both regimes to the published cells of all models, by task."""
    rows = [
        [
            task,
            *(
                scores([distance(means, task, one, ALL_MODELS) for one in PAPER_SCORES])
                for means in regimes().values()
            ),
        ]
        for task in PAPER_TASKS
    ]
    last = [scores(distances(means, PAPER_TASKS, ALL_MODELS)) for means in regimes().values()]
    return table(["", *regimes()], [*rows, ["**average**", *last]])


def regime_calibration() -> str:
    """What the ratio changes in each regime, with entropy weights, by assignment."""
    names = {"bt": "ball tree", "kx": "k-means", "rd": "random parts"}
    rows = []
    for assignment in MODELS:
        for regime, means in {"published": published(), **regimes()}.items():
            cells = [names[assignment], regime]
            for one in ("nll", "ence"):
                pairs = [
                    [means[task, f"{assignment}-{kind}", one] for kind in ("ent", "ent-c")]
                    for task in PAPER_TASKS
                ]
                before, after = (fmean(column) for column in zip(*pairs, strict=True))
                lower = sum(b < a for a, b in pairs)
                change = f"{100 * (after - before) / abs(before):+.1f}%"
                cells += [f"{score(before)} to {score(after)} ({change})", f"{lower} of 10"]
            rows.append(cells)
    return table(["", "", "NLL", "lower on", "ENCE", "lower on"], rows)


def regime_readings() -> str:
    """Other readings of the paper, in the early stopped regime, beside the published cells."""
    readings = {
        ("gp-pro-sm", "NLL"): ("gp-pro-sm", "gp-pro-sm, entropy"),
        ("bt-ent-c", "ENCE"): ("bt-ent-c", "bt-ent-c, noise inside"),
    }
    names = {
        "gp-pro-sm": "psi the variance",
        "gp-pro-sm, entropy": "psi the entropy",
        "bt-ent-c": "noise added after",
        "bt-ent-c, noise inside": "noise inside",
    }
    rows = []
    for (label, what), models in readings.items():
        for name, means, model in (
            ("published", published(), label),
            (CONVERGED, regimes()[CONVERGED], label),
            *((names[model], regimes()[STOPPED], model) for model in models),
        ):
            cells = [score(means[task, model, what.lower()]) for task in PAPER_TASKS]
            rows.append([f"{label}, {what}" if name == "published" else "", name, *cells])
    return table(["", "reading", *PAPER_TASKS], rows)


def saving() -> str:
    """Seconds of GP-full and of GP-pro-c, and what is saved, by task."""
    theirs, ours = published(), {}
    for row in read("paper"):
        if row["regime"] == "independent" and row["points_per_expert"] == 200:
            both = row["fit_seconds"] + row["predict_seconds"]
            ours.setdefault((row["task"], row["model"]), []).append(both)
    rows, shares = [], []
    for task in PAPER_TASKS:
        if (task, "gp-full", "train_seconds") not in theirs:
            continue
        pairs = [
            tuple(
                sum(theirs[task, m, f"{w}_seconds"] for w in ("train", "test"))
                for m in MODELS_TIMED
            ),
            tuple(fmean(ours[task, model]) for model in MODELS_TIMED),
        ]
        shares.append([1 - local / whole for whole, local in pairs])
        cells = [f"{whole:.2f}, {local:.2f} ({1 - local / whole:.1%})" for whole, local in pairs]
        rows.append([task, *cells])
    last = [f"**{fmean(column):.1%}**" for column in zip(*shares, strict=True)]
    head = ["seconds of GP-full, GP-pro-c (saved)", "published", "here, converged"]
    return table(head, [*rows, ["mean of the savings", *last]])


def complexity() -> str:
    """Exponents of seconds in rows and in points per expert."""
    orders = {
        "gp-full, rows": ("GP-full, in n", "3", "2"),
        "bt-ent, rows": ("GP-pro, in n, with n_m = 200", "1", "1"),
        "bt-ent-c, rows": ("GP-pro-c, in n, with n_m = 200", "1", "1"),
        "bt-ent-c, points": ("GP-pro-c, in n_m, with n = 6,400", "2", "1"),
    }
    rows = []
    for case, (name, *expected) in orders.items():
        found = [row for row in read("complexity") if row["case"] == case]
        first, last = found[0], found[-1]
        by = "points" if case.endswith("points") else "n"
        cells = [
            f"{log(last[what] / first[what]) / log(last[by] / first[by]):.2f} ({order})"
            for what, order in zip(("fit", "predict"), expected, strict=True)
        ]
        rows.append([name, f"{first[by]:,} to {last[by]:,}", *cells])
    return table(["", "from, to", "training", "mean and variance"], rows)


def points() -> str:
    """Scores and seconds by the points of an expert."""
    sizes = (100, 200, 300, 400, 500, 600)
    kinds = {"bt-ent-c": "ball tree", "kx-ent-c": "k-means", "rd-ent-c": "random"}
    cells: dict[tuple[Any, ...], list[float]] = {}
    for row in read("paper"):
        wanted = row["regime"] == "independent" and row["seed"] < 3 and row["model"] in kinds
        if wanted and row["task"] not in ("concrete", "airfoil", "ackley1d"):
            key = (row["model"], row["points_per_expert"])
            cells.setdefault((*key, row["metric"]), []).append(row["value"])
            cells.setdefault((*key, "fit"), []).append(row["fit_seconds"])
    rows = [
        [
            f"{'fit, s' if one == 'fit' else one.upper()}, {kind}",
            *(f"{fmean(cells[label, size, one]):.{1 if one == 'fit' else 3}f}" for size in sizes),
        ]
        for one in (*PAPER_SCORES, "fit")
        for label, kind in kinds.items()
    ]
    return table(["", *map(str, sizes)], rows)


BLOCKS: dict[str, Callable[[], str]] = {
    "quality": quality,
    "quality-times": quality_times,
    "speed": lambda: speed_table(SHORT_SPEED_ROWS),
    "speed-all": lambda: speed_table(tuple(SPEED_ROWS)),
    "first": first,
    "three-regimes": three_regimes,
    "regime-global": regime_global,
    "regime-steps": regime_steps,
    "regime-distances": regime_distances,
    "regime-calibration": regime_calibration,
    "regime-readings": regime_readings,
    "points": points,
    "saving": saving,
    "complexity": complexity,
}


def renewed(text: str) -> str:
    """A page with the text of every block made again."""

    def block(match: re.Match[str]) -> str:
        begin, name, _, end = match.groups()
        if name not in BLOCKS:
            raise SystemExit(f"there is no block {name!r}; the known ones are {', '.join(BLOCKS)}")
        return begin + BLOCKS[name]() + end

    return BLOCK.sub(block, text)


def main() -> int:
    """Compare the pages with the results, or write them again; 1 if they differ."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="rewrite the tables that differ")
    write = parser.parse_args().write
    stale = n_blocks = 0
    for page in PAGES:
        old = page.read_text()
        found = [match.group(2) for match in BLOCK.finditer(old)]
        n_blocks += len(found)
        if old.count("<!-- numbers:") != len(found):
            raise SystemExit(f"{page.name}: a block of numbers has no end")
        new = renewed(old)
        if new == old:
            continue
        name = str(page.relative_to(ROOT))
        if write:
            page.write_text(new)
            print(f"{name}: written")
        else:
            stale += 1
            lines = (old.splitlines(), new.splitlines())
            print("\n".join(difflib.unified_diff(*lines, name, "the results", lineterm="", n=0)))
    if stale:
        print("\nThese pages differ from the results: python -m tools.check_numbers --write")
    elif not write:
        print(f"{n_blocks} blocks of numbers say what the results say")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
