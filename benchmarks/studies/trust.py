"""Whether the std, the distributions and the intervals can be trusted, beside other libraries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

import manygp
from benchmarks.datasets import Split
from benchmarks.studies.answers import (
    INTERVAL_LEVEL,
    Answer,
    joined,
    joined_distributions,
    scores_of,
)
from benchmarks.studies.cases import FEW, MIXED, cases_of, require_cases
from benchmarks.studies.conditional import AskedRows, conditional_scores, relevant_columns
from benchmarks.studies.names import TRUST_TASKS
from benchmarks.studies.peers import PEERS, answer_of, fitted
from benchmarks.studies.processes import print_result
from benchmarks.studies.study import CELL_SECONDS, InOwnProcesses, Result, Study
from benchmarks.studies.trust_tables import CONDITIONAL, LEVELS, write_trust
from manygp.answers import distribution_of, left_out_transformed
from manygp.arrays import Array
from manygp.calibration import PredictiveDistribution
from manygp.metrics import N_BINS, crps, ence, interval_score, log_score, nll

# Training rows up to which other libraries but scikit-learn's GP do not take part.
FEWEST_ROWS_OF_OTHERS = 30
# Seeds of the default on one split of this task, which show how much depends on chance.
SEEDED_TASK = "protein"
N_MODEL_SEEDS = 4


class TrustCell(NamedTuple):
    """One model on one part of a task: a split or a fold; `seed` is that of the model."""

    task: str
    part: int
    model: str
    seed: int


class Outcome(NamedTuple):
    """What a model answered about the test rows X (m, d) of one case, whose targets are y (m,).

    `relevant` (m, r) has the values of the most relevant columns. This library also tells targets
    (n,) and distributions of the training rows, each left out.
    """

    X: Array
    y: Array
    relevant: Array
    answer: Answer
    left_out: tuple[Array, PredictiveDistribution] | None = None


def trust_study(seconds: float = CELL_SECONDS) -> Study[TrustCell]:
    """The study whose cells may take `seconds` each."""
    compute = InOwnProcesses[TrustCell](
        __name__, seconds, slow_note=f"not finished in {seconds} s"
    )
    return Study("trust", TrustCell, compute, write_trust, require=require_cases)


def trust_cells(tasks: Iterable[str], models: Iterable[str]) -> list[TrustCell]:
    """Every model on every part of every task, and this library with more seeds on one."""
    models, tasks = list(models), list(tasks)
    cells = [
        TrustCell(task, part, model, 0)
        for model in models
        for task in tasks
        for part in TRUST_TASKS[task]
        if _takes_part(model, task)
    ]
    if "manygp" in models and SEEDED_TASK in tasks:
        cells += [TrustCell(SEEDED_TASK, 0, "manygp", seed) for seed in range(1, N_MODEL_SEEDS)]
    return cells


def _takes_part(model: str, task: str) -> bool:
    """Whether a model is asked about a task: boosted trees need more than a handful of rows.

    Simulations of all kinds show what this library promises, beside a plain Gaussian process.
    """
    few = task.startswith(FEW) and int(task.removeprefix(FEW)) <= FEWEST_ROWS_OF_OTHERS
    if not (few or task.startswith(MIXED)):
        return True
    return model in ("manygp", "manygp-uncalibrated", "scikit-learn")


def run_trust_cell(cell: TrustCell, data_dir: str | None) -> Result:
    """Fit, predict and score; the rows of several simulations are scored as one."""
    cases = cases_of(cell.task, cell.part, data_dir)
    outcomes = [_outcome(case, cell.model, cell.seed) for case in cases]
    return {
        **cell._asdict(),
        "version": manygp.__version__,
        "n_train": len(cases[0].y_train),
        **trust_scores(outcomes),
    }


def _outcome(case: Split, model: str, seed: int) -> Outcome:
    """The answer of a model to the test rows, and what this library says beyond that."""
    left_out = None
    if model == "manygp":
        own, seconds = fitted(case.X_train, case.y_train, seed)
        _, Y, mean, std = left_out_transformed(own.model_)
        left_out = (Y[:, 0], distribution_of(own.model_, mean, std))
        answer = answer_of(own, seconds, case.X_test)
    else:
        answer = PEERS[model](case.X_train, case.y_train, case.X_test, seed)
    X = case.X_test[: len(answer.mean)]
    relevant = X[:, relevant_columns(case.X_train, case.y_train)]
    return Outcome(X, case.y_test[: len(X)], relevant, answer, left_out)


def trust_scores(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """All scores of one or several fits, whose rows are put together."""
    X, y, relevant = (np.concatenate([outcome[i] for outcome in outcomes]) for i in range(3))
    answer = joined([outcome.answer for outcome in outcomes])
    sizes = [len(outcome.y) for outcome in outcomes]
    deciles = np.array_split(np.argsort(answer.std, kind="stable"), N_BINS)
    rows = AskedRows(X, relevant, answer.mean, answer.std)
    found: dict[str, Any] = {
        **scores_of(answer, y),
        "log_score_error": standard_error(-answer.predictive.logpdf(y), sizes),
        "largest_std": float(answer.std.max() / y.std()),
        **_left_out_scores(outcomes),
    }
    intervals = {f"coverage_{level}": answer.predictive.interval(level / 100) for level in LEVELS}
    if answer.interval is not None:
        intervals["interval"] = answer.interval
    for name, (lower, upper) in intervals.items():
        inside = (lower <= y) & (y <= upper)
        found[name] = float(inside.mean())
        found[f"{name}_error"] = standard_error(inside.astype(float), sizes)
        found |= {f"{name}_decile_{k}": inside[own].mean() for k, own in enumerate(deciles, 1)}
        if name in CONDITIONAL:
            found[f"{name}_score"] = interval_score(y, lower, upper, INTERVAL_LEVEL)
            scores = conditional_scores(inside, rows)
            found |= {f"{name}_{measure}": value for measure, value in scores.items()}
    return found


def standard_error(values: Array, sizes: Sequence[int]) -> float:
    """The standard error of the mean of values (N,), which come in groups of some sizes.

    Rows of one group may agree: of several groups it is the larger of the error if all rows are
    independent and that of the groups' means.
    """
    error = values.std() / np.sqrt(len(values))
    if len(sizes) > 1:
        means = [group.mean() for group in np.split(values, np.cumsum(sizes)[:-1])]
        error = max(error, np.std(means, ddof=1) / np.sqrt(len(means)))
    return float(error)


def _left_out_scores(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The scores that leave-one-out had promised, if the model tells them."""
    pairs = [outcome.left_out for outcome in outcomes if outcome.left_out is not None]
    if not pairs:
        return {}
    y = np.concatenate([targets for targets, _ in pairs])
    found = joined_distributions([distribution for _, distribution in pairs])
    return {
        "loo_nll": nll(y, found.mean, found.std),
        "loo_log_score": log_score(y, found),
        "loo_crps": crps(y, found),
        "loo_ence": ence(y, found.mean, found.std) if len(y) >= N_BINS else None,
    }


if __name__ == "__main__":
    print_result(TrustCell, run_trust_cell)
