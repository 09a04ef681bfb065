"""New rows in a fitted model, and old ones out of it: the experts that they touch are conditioned
anew, all else stays, until enough has changed for it to be learned again.

All are functions from a model to another one. Rows have numbers that stay theirs: those of `fit`
are their places in the data, and those that come later go on from there.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from manygp import inputs
from manygp.answers import queried_by
from manygp.arrays import AnyArray, Array, IndexArray
from manygp.calibration import LeftOutErrors, farthest_known, recalibrate
from manygp.committee.committee import Query
from manygp.gp.expert import condition
from manygp.gp.marginal_likelihood import KernelFit, TrainingData
from manygp.gp.trend import Kriging, Trend
from manygp.inputs import read_only
from manygp.model import FittedModel, Room, Updates, ids_of
from manygp.noise import LocalNoise
from manygp.rules import ExpertPredictions, VarianceCurve
from manygp.runtime.progress import warn
from manygp.runtime.words import counted
from manygp.settings import Settings
from manygp.training.choose import COMMITTEE
from manygp.training.draft import Draft, overlapping
from manygp.training.experts import ExecutionContext
from manygp.training.pipeline import (
    groups_of,
    learned_step,
    prepare,
    targets_agree,
    train,
    without_means,
)
from manygp.training.single import SINGLE

REFRESHES = ("auto", "never", "always")


@dataclass(frozen=True)
class UpdateChoice:
    """Numbers of updates, and why they are what they are."""

    # Kernel, trend and parts are learned again from this multiple of the rows they were learned
    # from: all refreshes of a growing model together then cost three times the last one.
    growth: float = 1.5
    # An expert of more than this multiple of the size it may have is split.
    most_size: float = 2.0
    # The coverage that is watched, and those that are told from it: a lasting .88 to .93 is no
    # drift.
    coverage: float = 0.9
    drifted: tuple[float, float] = (0.85, 0.95)
    # Nats of evidence: rows that come as promised raise a false alarm once in 10,000 at most.
    evidence: float = float(np.log(10_000))
    # Rows that `drift_` is about; and after drift the fewest from whose errors the model goes on.
    recent: int = 100
    # Rows, as a share of all, that must have come since the last refresh before drift is a reason
    # for the next.
    least_growth: float = 0.1
    # Share of the errors that must be new before correction and intervals are learned again, and
    # the fewest that teach one.
    new_errors: float = 0.05
    fewest_errors: int = 20
    # Decimals of normalised targets that agree where rows are copies of known ones, and how many
    # experts are asked for these.
    digits: int = 9
    near: int = 8


UPDATE = UpdateChoice()


class NewRows(NamedTuple):
    """Rows in the units of a model.

    Attributes
    ----------
    X, Y, alpha : ndarrays of shape (k, d), (k, t), (k,)
        Scaled inputs, normalised targets and known noise variances.
    are_known : ndarray of shape (k,)
        Whether no value had to be guessed; others tell nothing about errors.
    codes : ndarray of shape (k, w), or None
        Categories in columns that became means: see `TableEncoder.codes`.
    """

    X: Array
    Y: Array
    alpha: Array
    are_known: AnyArray
    codes: AnyArray | None = None

    def some(self, rows: IndexArray) -> NewRows:
        """Some of the rows."""
        codes = None if self.codes is None else self.codes[rows]
        return NewRows(self.X[rows], self.Y[rows], self.alpha[rows], self.are_known[rows], codes)


def scaled(
    model: FittedModel, X: Array, Y: Array, alpha: Array, are_known: AnyArray, codes: Any
) -> NewRows:
    """Rows X (k, d), targets Y (k, t) and noise variances (k,) in the units of a model.

    The others are as in `NewRows`.
    """
    if model.target_transform is not None:
        if model.target_transform.name != "none" or model.settings.bounds is not None:
            model.target_transform.require_within(Y)
        alpha, Y = model.target_transform.of_rows(alpha, Y)
    targets = model.y_scaling.apply(Y)
    inputs.check_magnitude(targets, "y", None)
    return NewRows(
        inputs.scaled_rows(X, model.x_scaling, model.columns),
        targets,
        inputs.normalised_alpha(alpha, model.y_scaling.scale),
        are_known,
        codes,
    )


def without_copies(model: FittedModel, new: NewRows) -> NewRows:
    """The rows that are no copies of others or of known ones, with a warning."""
    kept = np.flatnonzero(~_are_copies(model, new))
    if len(kept) == len(new.X):
        return new
    copies = counted(len(new.X) - len(kept), "row")
    warn(
        f"{copies} left out that equal others, or known ones, in all columns and in y: copies are "
        "no measurements. They get no number in row_ids_"
    )
    return new.some(kept)


def _are_copies(model: FittedModel, new: NewRows) -> AnyArray:
    """Which rows are copies of others, or of rows of experts that are near, as in `fit`: (k,)."""
    space, layout, encoder = model.settings.space, model.committee.layout, model.encoder
    if not (space.standard and space.recalibrate):
        return np.zeros(len(new.X), dtype=bool)
    near = np.unique(layout.nearest(new.X, min(len(layout.parts), UPDATE.near))[0])
    data, known = model.committee.training_data(), np.concatenate([layout.parts[m] for m in near])
    X, Y = new.X, new.Y
    if new.codes is None:
        same = known[np.isin(data.X[known, 0], X[:, 0])]
        X = np.vstack([data.X[same], X])
    else:
        same, codes = known, np.vstack([encoder.codes_[known], new.codes])
        X = without_means(encoder, np.vstack([data.X[known], X]), codes)
    Y = np.vstack([data.targets_of(same), Y]).round(UPDATE.digits)
    first = np.unique(groups_of(np.hstack([X, Y])), return_index=True)[1]
    copies = ~np.isin(len(same) + np.arange(len(new.X)), first)
    if copies.any() and targets_agree(data.targets_of(known).round(UPDATE.digits)):
        copies[:] = False
    return copies


class Scored(NamedTuple):
    """What a model said about rows that it did not know.

    Attributes
    ----------
    means : ndarray of shape (t, k)
        As they were served, normalised; so are the other two.
    total : ndarray of shape (k,)
        Variances with noise, as the rules give them.
    logs : ndarray of shape (t, k)
        Logarithms of the factors of local noise.
    errors : LeftOutErrors
        Those of an uncorrected committee; `rows` are numbered from 0.
    """

    means: Array
    total: Array
    logs: Array
    errors: LeftOutErrors

    def std(self) -> Array:
        """Standard deviations as they were served: (t, k)."""
        return np.sqrt(self.total * np.exp(self.logs) + self.errors.alpha)


def _state(model: FittedModel) -> Updates:
    """What has happened to a model so far."""
    if model.updates is not None:
        return model.updates
    parts, n = model.committee.layout.parts, len(model.committee.training_data().X)
    following = n if model.order is None else int(np.max(model.order)) + 1
    return Updates(following, following, n, max(len(part) for part in parts), room=Room())


def require_row_by_row(model: FittedModel) -> None:
    """Refuse to change a model whose errors are those of models without groups or time."""
    if model.left_out_by != "row":
        by = "groups" if model.left_out_by == "group" else model.left_out_by
        raise ValueError(
            f"the model was fitted with {by}: what it promises comes from models that were fitted "
            "without some rows; fit all rows again"
        )


# Rows that come.


def updated(
    model: FittedModel, new: NewRows, run: ExecutionContext, refresh: str = "auto"
) -> FittedModel:
    """The model with further rows, each of which it has predicted before it knew them."""
    if not len(new.X):
        return replace(model, updates=_state(model))
    scored = score(model, new)
    model = _without_broken_bounds(model, new)
    changed = _learned(added(model, new), new, scored)
    return _as_due(changed, run, refresh)


def _without_broken_bounds(model: FittedModel, new: NewRows) -> FittedModel:
    """The model without the bounds that its data showed, and that new targets are beyond."""
    transform = model.target_transform
    if transform is None or transform.name != "none" or model.settings.bounds is not None:
        return model
    Y, rounding = model.y_scaling.undo(new.Y), 10.0**-UPDATE.digits * model.y_scaling.scale
    low, high = Y.min(axis=0) + rounding, Y.max(axis=0) - rounding
    floor = read_only(np.where(low < transform.floor, -np.inf, transform.floor))
    ceiling = read_only(np.where(high > transform.ceiling, np.inf, transform.ceiling))
    kept = replace(transform, floor=floor, ceiling=ceiling)
    return replace(model, target_transform=None if kept.is_identity else kept)


def _as_due(model: FittedModel, run: ExecutionContext, refresh: str) -> FittedModel:
    """The model, learned again as far as that is due."""
    state = model.updates
    assert state is not None
    drifted, _ = _drift(state.evidence)
    reason = "asked" if refresh == "always" else ""
    if refresh == "auto":
        grown = 1 + (state.next_id - state.first_new) / state.n_learned
        if grown >= UPDATE.growth:
            reason = "growth"
        elif drifted and grown >= 1 + UPDATE.least_growth:
            reason = "drift"
    if reason:
        return refreshed(model, run, reason)
    if drifted:
        model = _with_recent_errors(model, state)
    errors = model.errors
    if errors is not None and (drifted or state.n_errors > UPDATE.new_errors * len(errors.rows)):
        model = recalibrated(model)
    return queried_by(model, model.settings)


def score(model: FittedModel, new: NewRows) -> Scored:
    """What the model says about rows, by the rules that `fit` has chosen."""
    rules = model.chosen
    plain = rules._replace(recalibration=VarianceCurve())

    def answers(records: list[ExpertPredictions]) -> tuple[Array, ...]:
        means, variance, noise = rules.combine(records)
        raw, raw_variance, raw_noise = plain.combine(records)
        return means, variance + noise, raw, raw_variance + raw_noise, plain.unknown(records)

    nearest = rules.nearest and min(rules.nearest, len(model.committee))
    query = Query(new.X, nearest, covariances=rules.needs.covariances, tapered=rules.tapered)
    means, total, raw, variance, unknown = model.committee.map_blocks(
        answers, query, model.settings.n_jobs
    )
    logs = np.zeros_like(means)
    if model.noise is not None:
        logs = np.array(
            [model.noise.log_factor(t, new.X, total, one) for t, one in enumerate(means)]
        )
    squares = (new.Y.T - raw) ** 2
    rows = np.arange(len(new.X))
    errors = LeftOutErrors(squares, variance, new.alpha, unknown, rows, raw)
    return Scored(means, total, logs, errors)


def added(model: FittedModel, new: NewRows) -> FittedModel:
    """The model whose experts know further rows; all else is as it was.

    A row becomes one of the expert with the nearest centre, and others know it that know rows as
    far from their own as it is. An expert that has become too large is split.
    """
    committee, state = model.committee, _state(model)
    before, k = committee.training_data(), len(new.X)
    data, order, codes = _joined(model, state, before, new)
    seats = committee.layout.nearest(new.X, 1)[0][:, 0]
    draft = Draft.of(committee)
    draft.add(seats, overlapping(committee, before.X, new.X, seats), len(before.X))
    if not model.settings.has_whole_parts:
        size = max(state.largest_part, model.plan.points_per_expert)
        draft.split(data.X, size, UPDATE.most_size)
    return replace(
        model,
        committee=draft.committee(data, model.settings),
        order=order,
        encoder=_with_codes(model.encoder, codes),
        updates=state._replace(next_id=state.next_id + k),
    )


def _joined(
    model: FittedModel, state: Updates, before: TrainingData, new: NewRows
) -> tuple[TrainingData, IndexArray | None, AnyArray | None]:
    """All rows, their numbers, and the categories of those of a table.

    The trend has learned nothing from the new ones, and says about them what it says about any.
    """
    k, trend = len(new.X), before.trend
    pairs: list[tuple[AnyArray, AnyArray]] = [(before.X, new.X), (before.alpha, new.alpha)]
    residuals, trend_pairs = _under(trend, new)
    pairs += [(before.residuals, residuals), *trend_pairs]
    n_data = len(pairs)
    if before.spread is not None:  # new rows have a weight of 1
        pairs.append((before.spread, np.ones(k)))
    if model.order is not None or state.next_id != len(before.X):
        pairs.append((ids_of(model), np.arange(state.next_id, state.next_id + k)))
    if new.codes is not None:
        pairs.append((model.encoder.codes_, new.codes))
    joined = state.room.joined(*([pair[side] for pair in pairs] for side in (0, 1)))
    data = before._replace(X=joined[0], alpha=joined[1], residuals=joined[2])
    if trend is not None:
        fitted, shift, growth, *kriging = joined[3:n_data]
        known = Kriging(*kriging) if kriging else None
        data = data._replace(trend=Trend(trend.model, fitted, shift, growth, known))
    behind = joined[n_data:]
    codes = None if new.codes is None else behind.pop()
    spread = None if before.spread is None else behind.pop(0)
    return data._replace(spread=spread), behind[0] if behind else None, codes


def _under(trend: Trend | None, new: NewRows) -> tuple[Array, list[tuple[AnyArray, AnyArray]]]:
    """Residuals of new rows under a trend, and its own arrays, each with that of the new rows."""
    if trend is None:
        return new.Y, []
    k, at = len(new.X), trend.model.at(new.X)
    pairs: list[tuple[AnyArray, AnyArray]] = [
        (trend.fitted, at.mean),
        (trend.shift, np.zeros_like(at.mean)),
        (trend.growth, np.zeros(k)),
    ]
    if trend.kriging is not None and at.basis is not None:
        still = np.zeros_like(at.basis), np.zeros_like(new.Y), np.ones(k)
        pairs += zip(trend.kriging, (at.basis, *still), strict=True)
    return new.Y - at.mean, pairs


def _with_codes(encoder: Any, codes: AnyArray | None) -> Any:
    """The encoder with the categories of other rows."""
    if codes is None:
        return encoder
    changed = copy(encoder)
    changed.codes_ = codes
    return changed


# What the model knows about its errors.


def _learned(model: FittedModel, new: NewRows, scored: Scored) -> FittedModel:
    """The model that knows how it has erred in the last rows, which it had not seen."""
    state = model.updates
    assert state is not None
    rows = np.flatnonzero(new.are_known)
    n, k = len(model.committee.training_data().X), len(new.X)
    z = (new.Y.T - scored.means) / scored.std()
    squares, held = (z[:, rows] ** 2).mean(axis=0), np.full(len(rows), np.nan)
    scores = model.conformal_scores
    evidence = state.evidence
    if scores is not None and scores.errors.shape[1] >= 1 / (1 - UPDATE.coverage):
        reach = scores.reach(UPDATE.coverage, scored.std().T, scored.means.T).T
        held = (np.abs(z) <= reach)[:, rows].mean(axis=0)
        evidence = _watched(evidence, held)
    recent = np.hstack([state.recent, [squares, held]])[:, -UPDATE.recent :]
    state = state._replace(
        n_scored=state.n_scored + len(rows), recent=recent, evidence=read_only(evidence)
    )
    cross_validated = model.cross_validated
    if cross_validated is not None:
        total = np.sqrt(scored.total + new.alpha)
        more = np.vstack([scored.means, total])
        cross_validated = read_only(np.hstack([cross_validated, more]))
    model = replace(model, updates=state, cross_validated=cross_validated)
    if model.errors is None or not len(rows):
        return model
    own = scored.errors.some(rows)
    return _with_errors(model, own._replace(rows=own.rows + n - k), scored.logs[:, rows])


def _watched(evidence: Array, held: Array) -> Array:
    """Page's CUSUM tests of whether intervals hold fewer or more than they promise.

    `held` (k,) are the shares of targets that were in their intervals, one row after the other.
    """
    promised, others = UPDATE.coverage, np.array(UPDATE.drifted)
    inside, outside = np.log(others / promised), np.log((1 - others) / (1 - promised))
    nats, since = evidence[0].copy(), evidence[1].copy()
    for one in held:
        nats += one * inside + (1 - one) * outside
        since = np.where(nats > 0, since + 1, 0)
        nats = np.maximum(nats, 0.0)
    return np.array([nats, since])


def _with_errors(model: FittedModel, more: LeftOutErrors, logs: Array) -> FittedModel:
    """The model with errors of further rows, and the local noise of these: (t, k).

    The oldest make room for them.
    """
    assert model.errors is not None
    assert model.updates is not None
    pairs: Any = zip(model.errors, more, strict=True)
    every = LeftOutErrors(*(np.concatenate(pair, axis=-1) for pair in pairs))
    last = np.arange(len(every.rows))[-COMMITTEE.learned_rows :]
    noise = model.noise
    if noise is not None:
        held_out = np.hstack([noise.held_out, logs])
        noise = _noise_of(noise, every.rows, held_out, last)
    state = model.updates._replace(n_errors=model.updates.n_errors + len(more.rows))
    return replace(model, errors=every.some(last), noise=noise, updates=state)


def _noise_of(noise: LocalNoise, rows: IndexArray, logs: Array, kept: IndexArray) -> LocalNoise:
    """Local noise that knows the factors (t, m) of some left-out rows (m,)."""
    return replace(noise, rows=rows[kept], held_out=read_only(logs[:, kept]))


def _with_recent_errors(model: FittedModel, state: Updates) -> FittedModel:
    """The model that knows the errors since they are other ones; the test begins again."""
    calm = state._replace(evidence=np.zeros((2, 2)))
    if model.errors is None:
        return replace(model, updates=calm)
    _, since = _drift(state.evidence)
    last = np.arange(len(model.errors.rows))[-max(UPDATE.recent, since) :]
    return _with_some_errors(replace(model, updates=calm), last)


def _with_some_errors(model: FittedModel, kept: IndexArray) -> FittedModel:
    """The model that knows some of its errors only."""
    assert model.errors is not None
    noise = model.noise
    if noise is not None:
        noise = _noise_of(noise, model.errors.rows, noise.held_out, kept)
    return replace(model, errors=model.errors.some(kept), noise=noise)


def _drift(evidence: Array) -> tuple[bool, int]:
    """Whether intervals hold other shares than they promise, and for how many rows."""
    nats, since = evidence
    return bool(nats.max() >= UPDATE.evidence), int(since[np.argmax(nats)])


def recalibrated(model: FittedModel) -> FittedModel:
    """The model whose correction and intervals are those of the errors that it knows."""
    errors, state, space = model.errors, model.updates, model.settings.space
    assert errors is not None
    assert state is not None
    model = replace(model, updates=state._replace(n_errors=0))
    if len(errors.rows) < UPDATE.fewest_errors:
        return model
    chosen, noise = model.chosen, model.noise
    if space.recalibrate:
        curve, _ = recalibrate(errors)
        if chosen.recalibration.known < np.inf:
            curve = replace(curve, known=farthest_known(errors))
        if noise is not None:
            noise = noise.learned_again(errors, chosen.recalibration, curve)
        chosen = chosen._replace(recalibration=curve)
    logs = None if noise is None else noise.held_out
    scores = errors.conformal_scores(chosen.recalibration, logs)
    rules = chosen if model.rules == model.chosen else model.rules
    step = model.step
    model = replace(
        model, chosen=chosen, rules=rules, conformal_scores=scores, noise=noise, step=None
    )
    return model if step is None else replace(model, step=learned_step(model, step.value)[0])


# Rows that go, and models that become one.


def places_of(model: FittedModel, ids: IndexArray) -> IndexArray:
    """Places in the committee of rows with these numbers; a ValueError names one that is not."""
    places, are_there = _looked_up(model, ids)
    if not are_there.all():
        known = ids_of(model)
        raise ValueError(
            f"the model has no row {int(ids[np.argmin(are_there)])}: rows are named by their "
            f"numbers, `row_ids_`, which go from {int(known.min())} to {int(known.max())}"
        )
    return np.unique(places)


def _looked_up(model: FittedModel, ids: IndexArray) -> tuple[IndexArray, AnyArray]:
    """Places (k,) of rows with these numbers, and whether there is such a row: (k,)."""
    known = ids_of(model)
    order = np.argsort(known, kind="stable")
    places = order[np.searchsorted(known, ids, sorter=order) % len(known)]
    return places, known[places] == ids


def forgotten(model: FittedModel, gone: IndexArray, run: ExecutionContext) -> FittedModel:
    """The model without the rows at some places in the committee.

    Experts that knew them are conditioned anew; those that have no rows left are no more.
    """
    committee, state = model.committee, _state(model)
    before, ids = committee.training_data(), ids_of(model)
    stays = np.ones(len(before.X), dtype=bool)
    stays[gone] = False
    if not stays.any():
        raise ValueError("a model cannot forget all of its rows; at least one must stay")
    rows, numbers = np.flatnonzero(stays), np.cumsum(stays) - 1
    data, common = before.some(rows), committee.communication
    if common is not None and not stays[common.rows].all():
        kept = numbers[common.rows[stays[common.rows]]]
        if not len(kept):
            raise ValueError("these are all rows that the experts have in common; fit again")
        common = condition(data, kept, kept[:0], KernelFit(common.kernel))
    elif common is not None:
        common = common.renumbered(numbers)
    draft = Draft.of(replace(committee, communication=common))
    draft.forget(stays, numbers)
    codes = None if model.encoder is None else model.encoder.codes_
    without = replace(
        model,
        committee=draft.committee(data, model.settings),
        order=read_only(ids[rows]),
        encoder=_with_codes(model.encoder, None if codes is None else codes[rows]),
        cross_validated=None if model.cross_validated is None else model.cross_validated[:, rows],
        updates=state._replace(room=Room()),
    )
    return _as_due(_without_errors(without, stays, numbers), run, "never")


def _without_errors(model: FittedModel, stays: AnyArray, numbers: IndexArray) -> FittedModel:
    """The model that knows nothing any more of errors of rows that are gone."""
    errors, noise, state = model.errors, model.noise, model.updates
    if noise is not None:
        kept = np.flatnonzero(stays[noise.rows])
        noise = _noise_of(noise, numbers[noise.rows], noise.held_out, kept)
    if errors is not None and state is not None:
        kept = np.flatnonzero(stays[errors.rows])
        gone = len(errors.rows) - len(kept)
        state = state._replace(n_errors=state.n_errors + gone)
        errors = errors.some(kept)
        errors = errors._replace(rows=numbers[errors.rows])
    return replace(model, errors=errors, noise=noise, updates=state)


def merged(
    model: FittedModel, other: FittedModel, run: ExecutionContext, refresh: str = "auto"
) -> FittedModel:
    """The model with the rows of another one, and what that knows about its errors in them.

    Rows that both have are taken once.
    """
    _require_alike(model, other)
    theirs = other.committee.training_data()
    X = other.x_scaling.undo(theirs.X)
    Y = other.y_scaling.undo(theirs.targets)
    if other.target_transform is not None:
        Y = other.target_transform.inverse(Y)
    unit = float(np.mean((other.y_scaling.scale / model.y_scaling.scale) ** 2))
    codes = None if other.encoder is None else other.encoder.codes_
    new = scaled(model, X, Y, np.zeros(len(X)), np.ones(len(X), dtype=bool), codes)
    new = new._replace(alpha=theirs.alpha * unit)
    kept = np.flatnonzero(~_in_both(model, ids_of(other), new) & ~_are_copies(model, new))
    if not len(kept):
        return model
    n = len(model.committee.training_data().X)
    both = added(model, new.some(kept))
    if model.errors is not None and other.errors is not None:
        places = np.full(len(X), -1)
        places[kept] = n + np.arange(len(kept))
        known = np.flatnonzero(places[other.errors.rows] >= 0)
        errors = other.errors.some(known)
        own = other.y_scaling.undo(errors.means.T)
        logs = np.zeros_like(own.T) if other.noise is None else other.noise.held_out[:, known]
        errors = errors._replace(
            squares=errors.squares * unit,
            variance=errors.variance * unit,
            alpha=errors.alpha * unit,
            rows=places[errors.rows],
            means=model.y_scaling.apply(own).T,
        )
        both = _with_errors(both, errors, logs)
    return _as_due(replace(both, cross_validated=None), run, refresh)


def _in_both(model: FittedModel, ids: IndexArray, new: NewRows) -> AnyArray:
    """Which rows with these numbers (k,) a model has already: (k,)."""
    data, (places, same) = model.committee.training_data(), _looked_up(model, ids)
    same &= np.isclose(data.X[places], new.X, rtol=1e-9, atol=1e-9).all(axis=1)
    same &= np.isclose(data.targets_of(places), new.Y, rtol=1e-9, atol=1e-9).all(axis=1)
    return same


def _require_alike(model: FittedModel, other: FittedModel) -> None:
    """Refuse to merge models of other columns, targets or units."""

    def shown(one: FittedModel) -> dict[str, Any]:
        return {
            "columns": one.columns,
            "number of targets": one.n_targets,
            "target": one.target,
            "target_transform": None
            if one.target_transform is None
            else one.target_transform.to_json(),
            "normalize_y": bool(one.settings.normalize_y),
            "normalize_X": bool(one.settings.scales_X),
        }

    if any(one.committee.training_data().spread is not None for one in (model, other)):
        raise ValueError("models of rows with weights cannot be merged: fit all rows together")
    theirs = shown(other)
    for what, own in shown(model).items():
        if own != theirs[what]:
            raise ValueError(
                f"only models of the same {what} can be merged: {own!r} is not {theirs[what]!r}"
            )
    encoders = [None if one.encoder is None else one.encoder.to_json() for one in (model, other)]
    if encoders[0] != encoders[1]:
        raise ValueError(
            "the models encode their tables differently: merge models that were one, or that were "
            "fitted with the same encoder (columns=...)"
        )


# All again.


def refreshed(model: FittedModel, run: ExecutionContext, reason: str = "asked") -> FittedModel:
    """The model of the same rows whose kernel, trend, parts and errors are learned again.

    It goes on from where it is: fits begin at the kernel as it is, targets are transformed as they
    were, and from about a thousand rows on the kind of trend and the overlap stay what they are.
    """
    state, begin, data = _state(model), perf_counter(), model.committee.training_data()
    unit = model.y_scaling.scale
    squared = unit[0] ** 2 if np.all(unit == unit[0]) else 1.0
    alpha = np.asarray(data.alpha) * squared
    settings = replace(_narrowed(model), alpha=alpha if alpha.any() else 0.0, verbose=False)
    X, Y = model.x_scaling.undo(data.X), model.y_scaling.undo(data.targets)
    weights = None if data.spread is None else 1 / data.spread
    rows = inputs.KnownRows(X, Y, alpha, weights)
    prepared = prepare(settings, rows, model.columns)
    prepared = prepared._replace(
        warm=model.kernel,
        transform=model.target_transform,
        whole=model.whole,
        shared=None if model.step is None else model.step.value,
    )
    seed = settings.random_state if isinstance(settings.random_state, int) else 0
    learned = train(settings, prepared, seed, run, begin)
    parts = learned.committee.layout.parts
    state = Updates(
        state.next_id,
        state.next_id,
        len(X),
        max(len(part) for part in parts),
        n_scored=state.n_scored,
        recent=state.recent,
        n_refreshes=state.n_refreshes + 1,
        reason=reason,
        room=Room(),
    )
    own = replace(model.settings, alpha=0.0) if np.ndim(model.settings.alpha) else model.settings
    learned = replace(
        learned,
        fitted_with=own.rule_parameters,
        encoder=model.encoder,
        target=model.target,
        order=model.order,
        updates=state,
    )
    return queried_by(_judged(learned, model), own)


def _judged(learned: FittedModel, model: FittedModel) -> FittedModel:
    """A model that was learned again, tested by errors of the last rows before they were known.

    Left out one by one these rows know each other, and say too little about the next where the
    data drift. Where there is drift, or intervals would not have held them, the model knows these
    errors only.
    """
    if model.errors is None or learned.errors is None or learned.conformal_scores is None:
        return learned
    latest = np.flatnonzero(ids_of(model)[model.errors.rows] >= _state(model).first_new)
    rows, kept, places = np.intersect1d(
        learned.errors.rows, model.errors.rows[latest], return_indices=True
    )
    if len(rows) < UPDATE.recent:
        return learned
    means = model.y_scaling.undo(model.errors.means[:, latest[places]].T)
    means = learned.y_scaling.apply(means).T
    squares = (learned.committee.training_data().targets_of(rows).T - means) ** 2
    errors = learned.errors.some(kept)._replace(means=means, squares=squares)
    total = np.broadcast_to(errors.total(learned.chosen.recalibration), squares.shape)
    if learned.noise is not None:
        total = total - errors.alpha
        total = total * np.exp(learned.noise.held_out[:, kept]) + errors.alpha
    reach = learned.conformal_scores.reach(UPDATE.coverage, np.sqrt(total).T, means.T).T
    held = (squares <= reach**2 * total).mean(axis=0)
    tests = [_drift(_watched(np.zeros((2, 2)), held)), _drift(_state(model).evidence)]
    if not any(drifted for drifted, _ in tests):
        return learned
    last = np.arange(len(rows))[-max(UPDATE.recent, *(drifted * n for drifted, n in tests)) :]
    learned = _with_some_errors(learned, kept[last])
    return recalibrated(replace(learned, errors=errors.some(last)))


def _narrowed(model: FittedModel) -> Settings:
    """The settings by which a model is learned again, which leave less to choose."""
    settings, committee = model.settings, model.committee
    if len(committee.training_data().X) <= SINGLE.structured_rows[1]:
        return settings
    changed: dict[str, Any] = {}
    if settings.chooses_trend:
        trend = committee.trend
        name = "constant" if trend is None else trend.model.name
        changed["trend"] = "additive" if name == "pairs" else name
    if model.report is not None and isinstance(model.report.chosen.get("overlap"), float):
        changed["overlap"] = model.report.chosen["overlap"]
    return replace(settings, **changed)
