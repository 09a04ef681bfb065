"""What a model that is compared answers, and what the models of `peers` have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from benchmarks.studies.processes import CannotRunError
from manygp.arrays import Array
from manygp.calibration import SHARES, PredictiveDistribution, Shape
from manygp.metrics import coverage, crps, ence, log_score, nll, rmse

# Share of the targets that the intervals should cover.
INTERVAL_LEVEL = 0.9
# Training rows that a conformal interval of that level needs at least.
FEWEST_CONFORMAL = 9
# Share of the training rows that a split-conformal interval holds out.
HELD_OUT_SHARE = 0.2


class Answer(NamedTuple):
    """Means (m,) and standard deviations (m,) of the first m test rows, and seconds.

    `interval` holds the lower and upper ends (m,) of 90% intervals, if the model has them, and
    `distribution` its distributions of the m rows, if they are not normal.
    """

    mean: Array
    std: Array
    fit_seconds: float
    predict_seconds: float
    note: str = ""
    interval: tuple[Array, Array] | None = None
    distribution: PredictiveDistribution | None = None

    @property
    def predictive(self) -> PredictiveDistribution:
        """The distributions of the m rows."""
        return self.distribution or normal(self.mean, self.std)


class HeldOut(NamedTuple):
    """Rows to fit, and rows to measure errors with: X (n, d) and y (n,) of each."""

    X: Array
    y: Array
    X_held: Array
    y_held: Array


def normal(mean: Array, std: Array) -> PredictiveDistribution:
    """Normal distributions of some rows: mean (m,), std (m,)."""
    return PredictiveDistribution(mean, std, np.array(np.inf), np.array(1.0))


def hold_out(X: Array, y: Array, seed: int) -> HeldOut:
    """Hold a fifth of the rows out, drawn at random."""
    n_held = int(HELD_OUT_SHARE * len(y))
    if n_held < FEWEST_CONFORMAL:
        fewest = int(np.ceil(FEWEST_CONFORMAL / HELD_OUT_SHARE))
        raise CannotRunError(f"a split-conformal interval needs {fewest} rows; it has {len(y)}")
    order = np.random.default_rng(seed).permutation(len(y))
    held, kept = order[:n_held], order[n_held:]
    return HeldOut(X[kept], y[kept], X[held], y[held])


def conformal_reach(errors: Array) -> float:
    """Half the width of an interval of `INTERVAL_LEVEL`, from errors (m,) of held-out rows."""
    return conformal_shift(np.abs(errors))


def conformal_shift(excess: Array) -> float:
    """What intervals grow by to hold `INTERVAL_LEVEL` of the rows; below 0 they shrink.

    `excess` (m,) is how far targets of held-out rows lie outside, and below 0 inside.
    """
    rank = int(np.ceil((len(excess) + 1) * INTERVAL_LEVEL - 1e-9))
    return float(np.sort(excess)[rank - 1])


def joined(answers: Sequence[Answer]) -> Answer:
    """The answers of several fits as one, their rows one after the other."""
    mean, std = (np.concatenate([answer[i] for answer in answers]) for i in (0, 1))
    ends = [answer.interval for answer in answers if answer.interval is not None]
    interval = None
    if len(ends) == len(answers):
        interval = tuple(np.concatenate([pair[i] for pair in ends]) for i in (0, 1))
    return Answer(
        mean,
        std,
        sum(answer.fit_seconds for answer in answers),
        sum(answer.predict_seconds for answer in answers),
        answers[0].note if len(answers) == 1 else "",
        interval,  # type: ignore[arg-type]
        joined_distributions([answer.predictive for answer in answers]),
    )


def joined_distributions(found: Sequence[PredictiveDistribution]) -> PredictiveDistribution:
    """Distributions of the rows of several fits as one, their rows one after the other."""
    if len(found) == 1:
        return found[0]
    if not all(isinstance(one, PredictiveDistribution) for one in found):
        raise TypeError("distributions of transformed targets cannot be joined")
    columns = [
        np.concatenate([np.broadcast_to(getattr(one, name), one.mean.shape) for one in found])
        for name in ("mean", "std", "dof", "scale")
    ]
    if all(one.shape is None for one in found):
        return PredictiveDistribution(*columns)
    knots = [SHARES if one.shape is None else one.shape.knots for one in found]
    rows = [
        np.broadcast_to(own, (*one.mean.shape, len(SHARES)))
        for own, one in zip(knots, found, strict=True)
    ]
    return PredictiveDistribution(*columns, Shape(np.concatenate(rows)))


def share_inside(y: Array, interval: tuple[Array, Array]) -> float:
    """Share of targets y (m,) that lie in their intervals."""
    lower, upper = interval
    return float(np.mean((lower <= y) & (y <= upper)))


def scores_of(answer: Answer, y: Array, unit: float = 1.0) -> dict[str, Any]:
    """Scores and seconds of an answer to the first rows of y (N,).

    `unit` is what y was divided by, if scores are to be in its units.
    """
    y = y[: len(answer.mean)]
    inside = None if answer.interval is None else share_inside(y, answer.interval)
    return {
        "rmse": unit * rmse(y, answer.mean),
        "nll": nll(y, answer.mean, answer.std) + float(np.log(unit)),
        "log_score": log_score(y, answer.predictive) + float(np.log(unit)),
        "crps": unit * crps(y, answer.predictive),
        "ence": ence(y, answer.mean, answer.std),
        "coverage": coverage(y, answer.mean, answer.std),
        "interval_coverage": inside,
        "fit_seconds": round(answer.fit_seconds, 3),
        "predict_seconds": round(answer.predict_seconds, 3),
        "n_scored": len(y),
        "note": answer.note,
    }


def imported(name: str) -> Any:
    """The module of a library that may not be installed."""
    try:
        return __import__(name)
    except ImportError as error:
        raise CannotRunError(f"{name} is not installed") from error


def timed(task: Callable[[], Any]) -> tuple[Any, float]:
    """What a task returns, and its seconds."""
    start = perf_counter()
    result = task()
    return result, perf_counter() - start


def seconds_of(task: Callable[[], Any]) -> float:
    """The seconds of a task."""
    return timed(task)[1]
