"""The cells of the paper's evaluation: which experts are fitted, for which tasks and seeds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from benchmarks import datasets
from benchmarks.datasets.files import DATA_FILES
from benchmarks.studies.names import PAPER_TASKS, REPRODUCED_TASKS
from manygp.paper import LABELS

# Points per expert, as in the paper.
POINTS = 200
# The paper's 1-d illustration has two experts for its 250 training rows.
POINTS_OF_TASK = {"ackley1d": 125}
# Points per expert of the study that varies them.
EXPERT_SIZES = (100, 200, 300, 400, 500, 600)
# The size study leaves out the two tasks with the fewest rows.
SIZE_STUDY_TASKS = tuple(task for task in PAPER_TASKS if task not in ("concrete", "airfoil"))
# Seeds of the size study.
SIZE_STUDY_SEEDS = 3
# Training rows up to which a global GP (gp-full) is fitted, as in the paper.
LARGEST_GLOBAL = 5_000
# How the experts' hyperparameters are fitted.
REGIMES = ("independent", "hierarchical")
# How the rows are assigned to experts: ball tree, k-means, at random, all rows to one expert.
PLANNED_ASSIGNMENTS = ("bt", "kx", "rd", "full")
# Rows and features of each task.
TASK_SHAPES: dict[str, tuple[int, int]] = {
    **{name: (task.n_rows, task.n_features) for name, task in datasets.SYNTHETIC_TASKS.items()},
    **{name: (file.n_rows, file.n_features) for name, file in DATA_FILES.items()},
}


class Scope(NamedTuple):
    """What the study `paper` computes, and where it is kept, unless its options say otherwise."""

    folder: str
    tasks: tuple[str, ...]
    n_seeds: int
    with_sizes: bool
    n_rows: int | None = None  # rows of each synthetic task; None for the paper's number
    remark: str = ""  # the first sentence of the page


FULL_SCOPE = Scope("paper-results", REPRODUCED_TASKS, n_seeds=10, with_sizes=True)
QUICK_SCOPE = Scope(
    "paper-quick",
    ("ackley1d", "ackley"),
    n_seeds=2,
    with_sizes=False,
    n_rows=1_000,
    remark="A quick look at 1,000 rows of each task, not the paper's data.",
)


class PaperCell(NamedTuple):
    """One fit, and all models that reuse its experts."""

    task: str
    assignment: str
    regime: str
    points: int
    seed: int

    @property
    def name(self) -> str:
        """All fields in one word."""
        return "-".join(str(part) for part in self)

    @property
    def cost(self) -> float:
        """A rough number of seconds on one core, to plan and to show the time left."""
        n_rows, n_features = TASK_SHAPES[self.task]
        n = n_rows / 2
        points = n if self.assignment == "full" else min(n, self.points)
        experts = n / points
        evaluations = 12 if self.regime == "hierarchical" else 40 + 2 * n_features
        if self.assignment == "full":
            evaluations = 30
        fit = evaluations * experts * (2e-11 * points**3 + 2e-8 * points**2)
        predict = n * experts * (2.5e-11 * points**2 + 4e-9 * points + 1e-6)
        return float(fit + predict)


def points_of(task: str) -> int:
    """Points per expert of a task in the paper's tables."""
    return POINTS_OF_TASK.get(task, POINTS)


def labels_of(assignment: str) -> list[str]:
    """The models that share the experts of an assignment."""
    if assignment == "full":
        return ["gp-full", "gp-pro-full"]
    extra = ["gp-pro-sm"] if assignment == "bt" else []
    return [label for label in LABELS if label.startswith(f"{assignment}-")] + extra


def paper_cells(
    tasks: Iterable[str], models: Iterable[str], n_seeds: int, *, with_sizes: bool
) -> list[PaperCell]:
    """The cells that these tasks and models need: seed by seed, the most costly first."""
    wanted = set(models)
    cells: set[PaperCell] = set()
    for task in tasks:
        for assignment in PLANNED_ASSIGNMENTS:
            if wanted & set(labels_of(assignment)):
                cells |= _table_cells(task, assignment, n_seeds)
            if with_sizes and f"{assignment}-ent-c" in wanted:
                cells |= _size_study_cells(task, assignment, n_seeds)
    return sorted(cells, key=lambda cell: (cell.seed, -cell.cost, cell.name))


def _table_cells(task: str, assignment: str, n_seeds: int) -> set[PaperCell]:
    """The cells of the paper's tables; a global GP has one regime, and not too many rows."""
    regimes: tuple[str, ...] = REGIMES
    if assignment == "full":
        regimes = ("independent",) if TASK_SHAPES[task][0] // 2 <= LARGEST_GLOBAL else ()
    return {
        PaperCell(task, assignment, regime, points_of(task), seed)
        for regime in regimes
        for seed in range(n_seeds)
    }


def _size_study_cells(task: str, assignment: str, n_seeds: int) -> set[PaperCell]:
    """The cells with more or fewer points per expert than the tables have."""
    if task not in SIZE_STUDY_TASKS:
        return set()
    return {
        PaperCell(task, assignment, "independent", size, seed)
        for size in EXPERT_SIZES
        if size != points_of(task)
        for seed in range(min(n_seeds, SIZE_STUDY_SEEDS))
    }
