"""Whether more rows would help: left-out scores by how many rows experts know."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from manygp import answers
from manygp.arrays import AnyArray, Array
from manygp.committee.committee import Committee
from manygp.gp.expert import Experts, condition
from manygp.gp.marginal_likelihood import KernelFit
from manygp.model import FittedModel
from manygp.runtime.words import plus_minus


@dataclass(frozen=True)
class CurveChoice:
    """Numbers of the learning curve, and why they are what they are."""

    # Shares of the rows: halves, so that the last step is a doubling, as the next one would be.
    shares: tuple[float, ...] = (0.25, 0.5, 1.0)
    # Rows that are scored at most: .03 nats of standard error for a std of one nat.
    rows: int = 1000
    # Fewer rows have no quarter that tells anything.
    fewest_rows: int = 20
    # Standard errors by which the last doubling must have lowered the NLL to count.
    sure: float = 2.0


CURVE = CurveChoice()
HEADER = ["rows known", "RMSE", "NLL"]


class LearningCurve(NamedTuple):
    """Scores of training rows that were left out, by how many of the others are known.

    Attributes
    ----------
    rows : ndarray of shape (s,)
        How many rows are known: a quarter, half and all of them.
    rmse, nll : ndarrays of shape (s,)
        With all rows, they are those of `loo_score`, of at most 1,000 rows.
    rmse_error, nll_error : ndarrays of shape (s,)
        Their standard errors: what another sample of as many rows would move them by.
    gain, gain_error : float
        By how much the last doubling of the rows lowered the NLL, and the standard error of that.
    """

    rows: AnyArray
    rmse: Array
    rmse_error: Array
    nll: Array
    nll_error: Array
    gain: float
    gain_error: float

    @property
    def helps(self) -> bool:
        """Whether the last doubling of the rows helped, by more than chance."""
        return self.gain > CURVE.sure * self.gain_error

    @property
    def lines(self) -> list[list[str]]:
        """Rows, RMSE and NLL in words, to be shown under the `HEADER`."""
        rmse = map(plus_minus, self.rmse.tolist(), self.rmse_error.tolist())
        nll = map(plus_minus, self.nll.tolist(), self.nll_error.tolist())
        return [[f"{n:,}", *told] for n, *told in zip(self.rows, rmse, nll, strict=True)]

    @property
    def advice(self) -> str:
        """What the last doubling of the rows says of the next one."""
        lowered = plus_minus(self.gain, self.gain_error)
        if self.helps:
            return f"The last doubling of the rows lowered the NLL by {lowered}: more rows help."
        return (
            f"The last doubling of the rows lowered the NLL by {lowered}, which may be chance: "
            "more rows of this kind hardly help; other columns or less noise might."
        )

    def __str__(self) -> str:
        lines = ["{:>10} {:>20} {:>20}".format(*one) for one in [HEADER, *self.lines]]
        return "\n".join([*lines, "", self.advice])


def learning_curve(model: FittedModel) -> LearningCurve:
    """Left-out scores where experts know a quarter, half and all of their rows.

    Hyperparameters, trend and correction are those of all rows: nothing is fitted. They know more
    than those of fewer rows would, so that more rows help at least as much as this says.
    """
    n = len(model.committee.training_data().X)
    if model.left_out_by != "row":
        raise ValueError("a model fitted with groups or time has no learning curve by row")
    if n < CURVE.fewest_rows:
        raise ValueError(f"a learning curve needs {CURVE.fewest_rows} rows, and there are {n}")
    squares, nll = _scores(model)
    rank = np.random.default_rng(0).permutation(n)
    plain = replace(model, cross_validated=None)
    committees = [_thinned(model.committee, rank < share * n) for share in CURVE.shares]
    less = [_scores(replace(plain, committee=one)) for one in committees]
    # Where folds have told the scores, the curve only says by how much they change.
    of_squares = [squares * (one.mean() / max(less[-1][0].mean(), 1e-300)) for one, _ in less]
    of_nll = [nll + (one - less[-1][1]) for _, one in less]
    unit = model.y_scaling.scale.max()
    rmse = np.sqrt([one.mean() for one in of_squares])
    errors = np.array([_error(one) for one in of_squares]) / np.maximum(2 * rmse, 1e-300)
    doubled = less[-2][1] - less[-1][1]
    return LearningCurve(
        np.array([round(share * n) for share in CURVE.shares]),
        unit * rmse,
        unit * errors,
        np.array([one.mean() for one in of_nll]),
        np.array([_error(one) for one in of_nll]),
        float(doubled.mean()),
        _error(doubled),
    )


def _scores(model: FittedModel) -> tuple[Array, Array]:
    """Squared error and NLL of rows that are left out, averaged over targets: (N,) each.

    Squared errors are in units of the largest scale of a target.
    """
    _, Y, mean, std = answers.left_out_transformed(model, CURVE.rows)
    error = Y - answers.in_units_of_y(model, mean, std)[0].reshape(Y.shape)
    squares = (error / model.y_scaling.scale.max()) ** 2
    nll = answers.nll_of(model, Y.reshape(mean.shape), mean, std)
    return squares.mean(axis=1), nll.reshape(len(Y), -1).mean(axis=1)


def _error(values: Array) -> float:
    """Standard error of the mean."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def _thinned(committee: Committee, stays: AnyArray) -> Committee:
    """The committee whose experts know only the rows (n,) that stay, and at least one each."""
    experts, data, common = committee.experts, committee.training_data(), committee.communication
    parts = [_some(part, stays) for part in experts.parts]
    neighbours = [near[stays[near]] for near in experts.neighbours]
    sizes = np.array([len(a) + len(b) for a, b in zip(parts, neighbours, strict=True)])
    if common is not None:
        rows = _some(common.rows, stays)
        common = condition(data, rows, rows[:0], KernelFit(common.kernel))
    return replace(
        committee,
        experts=Experts(data, parts, neighbours, experts.fits, sizes),
        layout=replace(committee.layout, parts=tuple(parts)),
        communication=common,
    )


def _some(rows: AnyArray, stays: AnyArray) -> AnyArray:
    """Those of some rows that stay, or the first if none does."""
    kept: AnyArray = rows[stays[rows]]
    return kept if len(kept) else rows[:1]
