"""Rows left out by group, or by time: the whole model is fitted without them.

Rows of one person or one day err together. A model that knows the others of a group says too
little about its doubts where it meets a new group, and one that knows the days after a day says
too little about tomorrow. So the rows are split: in five folds of whole groups, each left out in
turn; or in the past and the future, at three moments one after the other. At each split all is
learned anew from the rows that are known, the encoder of a table too, and the others are
predicted. What these predictions miss chooses the trend, corrects the variance, and makes tails,
intervals, local noise and scores, as rows that are left out alone do where nothing is said of
groups or time.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from manygp import inputs
from manygp.answers import queried_by
from manygp.arrays import AnyArray, Array, IndexArray
from manygp.calibration import LeftOutErrors, by_unit, farthest_known, gains, recalibrate
from manygp.fit_report import Alternative, CalibrationReport
from manygp.inputs import KnownRows
from manygp.model import FittedModel
from manygp.noise import learn_noise
from manygp.settings import Settings
from manygp.training.experts import ExecutionContext
from manygp.training.pipeline import Prepared, prepare, train, warn_if_useless, with_step
from manygp.training.updates import NewRows, score


@dataclass(frozen=True)
class SplitChoice:
    """Numbers of the splits, and why they are what they are."""

    # Folds of groups: as many as boosted trees have; more take longer and know little more.
    folds: int = 5
    # Of the rows in their order of time these shares are known at each split, and the rows up to
    # the next share are asked: what is promised is for a future of a fourth to a half of the past.
    known: tuple[float, ...] = (0.4, 0.6, 0.8)
    # Rows in time that follow each other err together: pieces of all that were asked.
    pieces: int = 10
    # Trends that are tried beside that which rows chose: it may tell groups, or days, apart.
    simpler: tuple[str, ...] = ("constant", "linear")
    # So many groups, at least, can teach a kernel by one row of each at a time.
    fewest_groups: int = 30
    # Standard errors that a richer one must gain: pieces of time know each other.
    min_gain: tuple[tuple[str, float], ...] = (("group", 0.5), ("time", 2.0))
    # Share of a time budget for the first fit; the splits have the rest.
    first_budget: float = 0.4
    # Rows whose unknown values are replaced at once.
    doubtful_rows: int = 4096


SPLIT = SplitChoice()
# What the report calls the choice of a trend by splits, by what they are made of.
ASKED = {"group": "new groups", "time": "future"}


class Splits(NamedTuple):
    """How rows are left out.

    Attributes
    ----------
    by : str
        "group" or "time".
    pairs : list of pairs of index arrays
        Rows that are known, and those that are asked.
    together : ndarray of shape (n,)
        Which of the rows err together: numbers from 0 on.
    kept : ndarray of shape (N,), or None
        Which of the rows that were given they are.
    groups : ndarray of shape (N,), or None
        Group of each row that was given, if they are left out by group.
    """

    by: str
    pairs: list[tuple[IndexArray, IndexArray]]
    together: IndexArray
    kept: AnyArray | None = None
    groups: IndexArray | None = None


def splits_of(groups: Any, time: Any, y: Any, weights: Any) -> Splits | None:
    """The splits of the rows with targets y that have a weight; None if nothing is known."""
    if groups is None and time is None:
        return None
    if groups is not None and time is not None:
        raise ValueError("pass groups or time, not both: rows are left out in one way")
    from sklearn.utils.validation import _num_samples

    n, weights = _num_samples(y), inputs.check_weights(weights, y)
    kept = np.ones(n, dtype=bool) if weights is None else weights > 0
    if groups is None:
        return by_time(moments_of(time, n)[kept])._replace(kept=kept)
    numbers = group_numbers(groups, n)
    return by_group(_renumbered(numbers[kept]))._replace(kept=kept, groups=numbers)


def group_numbers(groups: Any, n: int) -> IndexArray:
    """Numbers from 0 on of the groups of n rows."""
    if isinstance(groups, list | tuple):  # as they are: 1 is not "1"
        groups, given = np.empty(len(groups), dtype=object), groups
        groups[:] = given
    numbers: dict[Any, int] = {}
    found = np.empty(n, dtype=np.intp)
    for row, one in enumerate(_one_each("groups", groups, n)):
        try:
            if one is None or bool(one != one):
                raise TypeError  # as pandas' NA does
            found[row] = numbers.setdefault(one, len(numbers))
        except (TypeError, ValueError):
            raise ValueError(
                f"groups has no value in row {row} ({one!r} names none): give rows without a "
                "group one of their own"
            ) from None
    return found


def moments_of(time: Any, n: int) -> Array:
    """Numbers in the order of the times of n rows: dates, ISO text, or numbers in any unit."""
    values = _one_each("time", time, n)
    if values.dtype.kind in "iu":  # floats would round those of 19 digits
        return np.unique(values, return_inverse=True)[1].astype(np.float64)
    if values.dtype.kind not in "fbM":
        values = _read_moments(values)
    if values.dtype.kind == "M":
        values = values.astype("datetime64[us]")
        numbers = np.where(np.isnat(values), np.nan, values.astype(np.int64))
    else:
        numbers = values.astype(np.float64)
    if not np.isfinite(numbers).all():
        row = int(np.argmin(np.isfinite(numbers)))
        raise ValueError(f"time has no value in row {row}: leave rows without a time out")
    return numbers


def _read_moments(values: AnyArray) -> AnyArray:
    from manygp.tables.values import as_moments, without_zone

    numbers = inputs.plain_floats(values, "time")
    if numbers.shape == values.shape:
        return numbers
    try:
        moments = map(without_zone, values.tolist())
        text = [one if isinstance(one, str) else np.datetime64(one) for one in moments]
        if all(isinstance(one, str) for one in text):
            return as_moments(np.array(text, dtype=object))
        return np.array(text, dtype="datetime64[us]")
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"time must hold numbers, or dates such as 2024-12-31: {error}"
        ) from error


def _one_each(name: str, given: Any, n: int) -> AnyArray:
    inputs.refuse_masked(given, name)
    values = np.asarray(given)
    if values.shape != (n,):
        raise ValueError(
            f"{name} must have one value for each of the {n:,} rows; its shape is {values.shape}"
        )
    return values


def _renumbered(numbers: IndexArray) -> IndexArray:
    """The same groups, numbered from 0 on without gaps."""
    return np.unique(numbers, return_inverse=True)[1]


def by_group(numbers: IndexArray) -> Splits:
    """Folds of whole groups, of about as many rows each."""
    sizes = np.bincount(numbers)
    if len(sizes) < 2:
        raise ValueError(
            "groups names one group only, so that nothing is learned about others: leave it out"
        )
    mixed = np.random.default_rng(0).permutation(len(sizes))
    fold_of, rows = np.empty(len(sizes), dtype=np.intp), np.zeros(min(SPLIT.folds, len(sizes)))
    for group in mixed[np.argsort(-sizes[mixed], kind="stable")]:
        fold_of[group] = np.argmin(rows)
        rows[fold_of[group]] += sizes[group]
    folds = fold_of[numbers]
    pairs = [(np.flatnonzero(folds != one), np.flatnonzero(folds == one)) for one in set(fold_of)]
    return Splits("group", pairs, numbers)


def by_time(moments: Array) -> Splits:
    """What was known at a few moments, and the rows up to the next; equal times stay together."""
    n = len(moments)
    order = np.argsort(moments, kind="stable")
    ends = np.append(moments[order[[int(share * n) for share in SPLIT.known]]], np.inf)
    pairs = [
        (np.flatnonzero(moments < start), np.flatnonzero((moments >= start) & (moments < end)))
        for start, end in pairwise(ends)
    ]
    pairs = [(known, asked) for known, asked in pairs if len(known) and len(asked)]
    if not pairs:
        raise ValueError(
            "time must tell early rows from late ones: too many rows have the first of all times"
        )
    place = np.empty(n, dtype=np.intp)
    place[order] = np.arange(n)
    asked = np.concatenate([one for _, one in pairs])
    first = place[asked].min()
    piece = (place - first) * SPLIT.pieces // (n - first)
    return Splits("time", pairs, np.maximum(piece, 0))


class Table(NamedTuple):
    """Rows in memory, and how a table is encoded anew.

    Attributes
    ----------
    rows : KnownRows
        As all of them have taught the encoder.
    columns : tuple of str, or int
    encoder, batch : TableEncoder and Batch, or None
        What the table holds, if it was encoded.
    """

    rows: KnownRows
    columns: tuple[str, ...] | int
    encoder: Any = None
    batch: Any = None

    @classmethod
    def of(cls, rows: KnownRows, columns: Any, X: Any, encoder: Any, kept: Any) -> Table:
        """The `kept` rows of a table X, if an encoder has read it, or rows that are numbers."""
        if encoder is None:
            return cls(rows, columns)
        from manygp.tables.frames import as_batch

        batch = as_batch(X)
        assert batch is not None
        return cls(rows, columns, encoder, batch.some(kept))

    def learned(self, known: IndexArray, together: IndexArray | None) -> Table:
        """Some of the rows, as they alone teach the encoder."""
        rows = self.rows.some(known)
        if self.encoder is None:
            return Table(rows, self.columns)
        from sklearn.base import clone

        encoder = clone(self.encoder)
        groups = None if together is None else _renumbered(together[known])
        X = encoder.fit_transform(self.batch.some(known), rows.Y, groups=groups)
        return Table(rows._replace(X=np.ascontiguousarray(X)), encoder.names, encoder)


class Candidate(NamedTuple):
    """A model that may be chosen.

    Attributes
    ----------
    name : str
    settings : Settings
    apart : bool
        Whether kernels are learned from rows of different groups: see `TrainingData.likelihoods`.
    """

    name: str
    settings: Settings
    apart: bool = False

    def prepared(self, prepared: Prepared, together: IndexArray) -> Prepared:
        """The rows, with their groups `together` (n,) if these are apart."""
        if not self.apart:
            return prepared
        groups = together if prepared.order is None else together[prepared.order]
        return prepared._replace(data=prepared.data._replace(groups=groups))


class Rehearsal(NamedTuple):
    """What models that were fitted at each split say about the rows that are asked.

    Attributes
    ----------
    table : Table
    splits : Splits
    model : FittedModel
        That of all rows, in whose units errors are.
    seed : int
    run : ExecutionContext
    """

    table: Table
    splits: Splits
    model: FittedModel
    seed: int
    run: ExecutionContext

    def errors(self, candidate: Candidate) -> LeftOutErrors:
        """Errors of all rows that are asked, without a correction, in the order of the rows."""
        with warnings.catch_warnings():  # what they say is said of all rows
            warnings.simplefilter("ignore", UserWarning)
            pieces = [self._errors_at(candidate, *pair) for pair in self.splits.pairs]
        columns = zip(*pieces, strict=True)
        errors = LeftOutErrors(*(np.concatenate(one, axis=-1) for one in columns))
        return errors.some(np.argsort(errors.rows))

    def _errors_at(
        self, candidate: Candidate, known: IndexArray, asked: IndexArray
    ) -> LeftOutErrors:
        """Errors of rows (N,) by a model of those that are known."""
        together, settings = self.splits.together, candidate.settings
        table = self.table.learned(known, together if self.splits.by == "group" else None)
        transform = self.model.target_transform
        prepared = prepare(settings, table.rows, table.columns, transform=transform)
        prepared = candidate.prepared(prepared._replace(is_trial=True), together[known])
        part = train(settings, prepared, self.seed, self.run, perf_counter())
        means, variance, unknown, spread = _asked(part, self.table, table.encoder, asked)
        data, ours = self.model.committee.training_data(), self.model.y_scaling
        means = ours.apply(part.y_scaling.undo(means.T)).T
        unit = float(np.exp(2 * np.mean(np.log(part.y_scaling.scale / ours.scale))))
        squares = (data.targets_of(asked).T - means) ** 2
        alpha = data.alpha[asked] + unit * spread
        return LeftOutErrors(squares, unit * variance, alpha, unknown, asked, means)


def _asked(
    part: FittedModel, table: Table, encoder: Any, asked: IndexArray
) -> tuple[Array, Array, Array, Array]:
    """What a model says of rows that it does not know, normalised as it does.

    Means (t, N), variances (N,), the share of the prior variance that is left (N,), and by how
    much means differ where a value is unknown (N,): see `TableEncoder.predicted`.
    """

    def said(X: Array) -> tuple[Array, Array, Array]:
        Z = inputs.scaled_rows(X, part.x_scaling, part.columns)
        n, t = len(Z), part.n_targets
        new = NewRows(Z, np.zeros((n, t)), np.zeros(n), np.ones(n, dtype=bool))
        errors = score(part, new).errors
        return errors.means, errors.variance, errors.unknown

    if encoder is None:
        return *said(table.rows.X[asked]), np.zeros(len(asked))
    rows = encoder.encode(table.batch.some(asked))
    means, variance, unknown = map(np.array, said(rows.X))
    spread, doubtful = np.zeros(len(asked)), np.flatnonzero(rows.doubtful.any(axis=1))
    for start in range(0, len(doubtful), SPLIT.doubtful_rows):
        own = doubtful[start : start + SPLIT.doubtful_rows]
        copies = encoder.alternatives(rows.X[own], rows.doubtful[own])
        answers = said(copies.reshape(-1, copies.shape[2]))
        shape = (len(copies), len(own))
        several = answers[0].reshape(-1, *shape)
        means[:, own], spread[own] = several.mean(axis=1), several.var(axis=1).mean(axis=0)
        variance[own], unknown[own] = (one.reshape(shape).mean(axis=0) for one in answers[1:])
    return means, variance, unknown, spread


class Rehearsed(NamedTuple):
    """A candidate, its errors in all rows that were asked, and their NLL."""

    candidate: Candidate
    errors: LeftOutErrors
    nll: Array


def train_by_splits(
    settings: Settings,
    prepared: Prepared,
    table: Table,
    splits: Splits,
    seed: int,
    run: ExecutionContext,
) -> FittedModel:
    """The model of all rows, which promises what models without the rows that are asked have held.

    Parameters
    ----------
    settings : Settings
    prepared : Prepared
        All rows.
    table : Table
        The same, as they can be prepared anew.
    splits : Splits
    seed : int
    run : ExecutionContext
    """
    first, others = _budgeted(settings, len(splits.pairs))
    prepared = prepared._replace(is_trial=True)
    model = train(first, prepared, seed, run, perf_counter())
    quiet = run._replace(progress=ExecutionContext().progress)
    rehearsal = Rehearsal(table, splits, model, seed, quiet)
    run.progress.begin(ASKED[splits.by])
    candidates = _candidates(first, others, model, splits)
    tried = [_rehearsed(rehearsal, one) for one in candidates]
    best = _chosen(tried, splits)
    errors = _paid(tried, splits)
    if best is not tried[-1]:
        chosen = best.candidate.prepared(prepared, splits.together)
        model = train(best.candidate.settings, chosen, seed, run, perf_counter())
    compared = [
        Alternative(ASKED[splits.by], one.candidate.name, float(one.nll.mean()), one is best)
        for one in tried
    ]
    model = _promising(replace(model, settings=settings), errors, splits, compared)
    return with_step(model, prepared.shared, _renumbered(splits.together[errors.rows]))


def _budgeted(settings: Settings, n_splits: int) -> tuple[Settings, Settings]:
    """The settings of the first fit, and of those of the splits."""
    quiet = replace(settings, verbose=False, noise="constant")
    if settings.time_budget is None:
        return settings, quiet
    first = SPLIT.first_budget * settings.time_budget
    each = (settings.time_budget - first) / (2 * n_splits)  # two candidates at most
    return replace(settings, time_budget=first), replace(quiet, time_budget=each)


def _candidates(
    first: Settings, others: Settings, model: FittedModel, splits: Splits
) -> list[Candidate]:
    """What is rehearsed: simpler models, and then that which rows have chosen, each by itself.

    Of a committee only rules are chosen anew; a single expert chooses all of it again.
    """
    last = _as_chosen(first, others, model)
    plain = []
    if first.chooses_trend and first.time_budget is None:
        names = [one for one in SPLIT.simpler if one != last.name]
        plain = [Candidate(one, replace(last.settings, trend=one)) for one in names]
    if splits.by == "time" or splits.together.max() + 1 < SPLIT.fewest_groups:
        return [*plain, last]
    apart = [(f"{one.name}, groups apart", one.settings) for one in [*plain, last]]
    return [*(Candidate(*one, apart=True) for one in apart), last]


def _as_chosen(first: Settings, others: Settings, model: FittedModel) -> Candidate:
    """The model that rows have chosen. Of a committee, what it took long to choose is kept."""
    if model.committee.is_single:
        return Candidate("auto", others)
    trend, chosen = model.committee.trend, {} if model.report is None else model.report.chosen
    name, given = "constant" if trend is None else trend.model.name, dict[str, Any]()
    if first.chooses_trend:
        given["trend"] = {"pairs": "additive"}.get(name, name)
    if "overlap" in chosen:
        given["overlap"] = float(chosen["overlap"])
    shrinkage = chosen.get("shrinkage")
    if shrinkage is not None and not callable(shrinkage):
        known = {0.0: "independent", np.inf: "shared"}
        given["hyperparameters"] = known.get(shrinkage, lambda _: shrinkage)
    return Candidate(name, replace(others, **given))


def _rehearsed(rehearsal: Rehearsal, candidate: Candidate) -> Rehearsed:
    errors = rehearsal.errors(candidate)
    together = rehearsal.splits.together[errors.rows]
    curve = recalibrate(errors, _renumbered(together))[0]
    return Rehearsed(candidate, errors, errors.row_nll(curve))


def _chosen(
    tried: list[Rehearsed], splits: Splits, rows: AnyArray | slice = slice(None)
) -> Rehearsed:
    """The best for some of the rows that were asked, from the simplest on."""
    together = _renumbered(splits.together[tried[0].errors.rows[rows]])
    best = tried[0]
    for one in tried[1:]:
        before, after = (by_unit(it.nll[rows], together) for it in (best, one))
        if gains(before, after, dict(SPLIT.min_gain)[splits.by]):
            best = one
    return best


def _paid(tried: list[Rehearsed], splits: Splits) -> LeftOutErrors:
    """Errors of all rows, those of a split by what the other splits choose."""
    rows = tried[0].errors.rows
    pieces = []
    for _, asked in splits.pairs:
        own = np.isin(rows, asked)
        one = _chosen(tried, splits, ~own) if len(splits.pairs) > 1 else tried[-1]
        pieces.append(one.errors.some(own))
    errors = LeftOutErrors(*(np.concatenate(one, axis=-1) for one in zip(*pieces, strict=True)))
    return errors.some(np.argsort(errors.rows))


def _promising(
    model: FittedModel, errors: LeftOutErrors, splits: Splits, compared: list[Alternative]
) -> FittedModel:
    """The model whose correction, noise, tails and scores are those of these errors."""
    settings, together = model.settings, _renumbered(splits.together[errors.rows])
    rules, X = model.chosen, model.committee.training_data().X
    if settings.space.recalibrate:
        curve, corrections = recalibrate(errors, together)
        if settings.space.standard:
            curve = replace(curve, known=farthest_known(errors))
        rules, compared = rules._replace(recalibration=curve), [*compared, *corrections]
    noise, forced = None, settings.noise == "local"
    # Where errors were large in the past says little of where they will be: of ten random walks
    # three took local noise, and held fewer of their last rows by it.
    is_local = settings.learns_noise and (forced or splits.by == "group")
    if settings.space.recalibrate:
        given: dict[str, Any] = {"forced": forced if is_local else None, "together": together}
        noise, more = learn_noise(errors, rules.recalibration, X, **given)
        compared = [*compared, *more]
    judged = replace(
        model,
        chosen=rules,
        rules=rules,
        conformal_scores=errors.conformal_scores(
            rules.recalibration, None if noise is None else noise.held_out, together
        ),
        noise=noise,
        errors=errors,
        cross_validated=None,
        report=_reported(model.report, compared, len(errors.rows)),
        left_out_by=splits.by,
    )
    warn_if_useless(errors, model.committee.training_data().targets)
    return queried_by(judged, settings)


def _reported(
    report: CalibrationReport | None, compared: list[Alternative], n_rows: int
) -> CalibrationReport:
    """The report of a fit, in which the last word is that of these comparisons."""
    known = report or CalibrationReport({}, (), n_rows)
    names = {one.parameter for one in compared}
    kept = tuple(one for one in known.alternatives if one.parameter not in names)
    chosen = {**known.chosen, "local noise": "constant"}
    chosen |= {one.parameter: one.value for one in compared if one.chosen}
    return CalibrationReport(chosen, (*kept, *compared), n_rows)
