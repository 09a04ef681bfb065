"""All experts together: who sits where, and what those nearest to a row say about it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from manygp.arrays import Array, IndexArray
from manygp.committee.covariance import between_experts
from manygp.committee.layout import Layout
from manygp.gp.expert import Expert, leave_one_out, places, predict_expert
from manygp.gp.likelihood import TrainingData
from manygp.kernels.base import Workspace
from manygp.kernels.catalogue import TILE
from manygp.rules.records import ExpertPredictions, Gaussian
from manygp.runtime.parallel import thread_map

# Rows that one expert is asked about at a time, and numbers in the arrays of one block of rows.
CHUNK_ROWS, BLOCK_NUMBERS, BLOCK_ROWS = 512, 2**21, 2**18


@dataclass(frozen=True, eq=False)
class Committee:
    """Experts and their layout.

    Attributes
    ----------
    experts : list of Expert
        One per part; the same object may sit in several places.
    layout : Layout
    communication : Expert or None
        An expert on rows that all others know too.
    """

    experts: list[Expert]
    layout: Layout
    communication: Expert | None = None

    def __len__(self) -> int:
        return len(self.experts)

    def training_data(self) -> TrainingData:
        """All rows, normalised, in their order."""
        first = self.experts[0]
        n = 1 + max(int(expert.indices.max()) for expert in self.experts)
        X, Y, alpha = np.empty((n, first.X.shape[1])), np.empty((n, first.Y.shape[1])), np.empty(n)
        for expert in self.experts:
            own = slice(len(expert.indices))
            X[expert.indices] = expert.X[own]
            Y[expert.indices] = expert.Y[own]
            alpha[expert.indices] = expert.alpha[own]
        return TrainingData(X, Y, alpha, first.constant_mean)

    def map_blocks(
        self,
        function: Callable[[list[ExpertPredictions]], tuple[Array, ...]],
        X: Array,
        k: int | None,
        n_jobs: int | None,
        left_out: IndexArray | None = None,
        with_variance: bool = True,
        with_covariance: bool = False,
    ) -> tuple[Array, ...]:
        """Ask about blocks of rows, apply `function` to what is said, and join its results.

        Blocks bound the memory whatever the number of rows, and do not depend on n_jobs.

        Parameters
        ----------
        function : callable
            From one record per target, which differ in their means only, to arrays whose last
            axis is that of the rows.
        X : ndarray of shape (N, d)
        k : int or None
            Ask the k nearest experts about each row, nearest first, or all in their order.
        n_jobs : int or None
        left_out : ndarray of shape (N,), optional
            Rows of the training data that X are, and that no expert shall know.
        with_variance, with_covariance : bool
            Whether records hold variances, and covariances between the experts.
        """
        width = (len(self) if k is None else k) * (len(self) if with_covariance else 1)
        size = int(np.clip(BLOCK_NUMBERS // width // TILE * TILE, TILE, BLOCK_ROWS))
        results: list[tuple[Array, ...]] = []
        with thread_map(n_jobs) as parallel_map:
            for start in range(0, len(X), size):
                block = slice(start, start + size)
                near = None if k is None else self.layout.nearest(X[block], k)
                said = self._ask(
                    X[block],
                    near,
                    None if left_out is None else left_out[block],
                    with_variance,
                    with_covariance,
                    parallel_map,
                )
                pieces = range(0, len(X[block]), CHUNK_ROWS)
                chunks = ([_columns(one, i, i + CHUNK_ROWS) for one in said] for i in pieces)
                results += parallel_map(function, chunks)
        columns = zip(*results, strict=True)
        return tuple(np.concatenate(column, axis=-1) for column in columns)

    def _ask(
        self,
        X: Array,
        near: IndexArray | None,
        left_out: IndexArray | None,
        with_variance: bool,
        with_covariance: bool,
        parallel_map: Callable[..., Iterable[Any]],
    ) -> list[ExpertPredictions]:
        """What the experts `near` (N, K) the rows of X, or all, say: one record per target."""
        n, n_targets = len(X), self.experts[0].Y.shape[1]
        seats = np.arange(len(self))[:, None] if near is None else near.T
        mean = np.empty((n_targets, len(seats), n))
        variance, prior = np.empty((2, len(seats), n if with_variance else 0))
        prior_mean = np.array([expert.mean for expert in self.experts])[seats]
        if left_out is not None:  # an expert's mean changes with its rows
            prior_mean = np.array(np.broadcast_to(prior_mean, (len(seats), n, n_targets)))

        scratch = _Scratch()

        def ask(task: tuple[Expert, list[Any], IndexArray]) -> None:
            expert, where, rows = task
            left = None if left_out is None else left_out[rows]
            said = _opinion(expert, X[rows], left, with_variance, scratch.work)
            for seat in where:
                mean[:, seat, rows] = said[0].T
                if with_variance:
                    variance[seat, rows], prior[seat, rows] = said[1], said[2]
                if left_out is not None:
                    prior_mean[seat, rows] = said[3]

        for _ in parallel_map(ask, self._questions(near, n)):
            pass
        noise = np.array([expert.noise_variance for expert in self.experts])[seats]
        covariance = None
        if with_covariance:
            everyone = np.broadcast_to(seats, (len(seats), n))
            covariance = between_experts(self.experts, X, everyone, left_out, parallel_map)
        central: list[Gaussian | None] = [None] * n_targets
        if self.communication is not None and with_variance:
            m, v, _, _ = _opinion(self.communication, X, left_out, True, Workspace())
            central = [Gaussian(one, v) for one in m.T]
        return [
            ExpertPredictions(
                mean[t], variance, prior, noise, prior_mean[..., t], covariance, central[t]
            )
            for t in range(n_targets)
        ]

    def _questions(
        self, near: IndexArray | None, n: int
    ) -> Iterator[tuple[Expert, list[Any], IndexArray]]:
        """Expert, its seats in the record, and rows, so that each expert is visited once.

        Large experts come first, so that threads finish together.
        """
        if near is None:
            by_id: dict[int, list[int]] = {}
            for m, expert in enumerate(self.experts):
                by_id.setdefault(id(expert), []).append(m)
            for seats in sorted(by_id.values(), key=lambda seats: -len(self.experts[seats[0]].X)):
                for start in range(0, n, CHUNK_ROWS):
                    rows = np.arange(start, min(n, start + CHUNK_ROWS))
                    yield self.experts[seats[0]], seats, rows
            return
        order = np.argsort(near, axis=None, kind="stable")
        bounds = np.searchsorted(near.ravel()[order], np.arange(len(self) + 1))
        for m in sorted(range(len(self)), key=lambda m: -len(self.experts[m].X)):
            for start in range(bounds[m], bounds[m + 1], CHUNK_ROWS):
                pairs = order[start : min(start + CHUNK_ROWS, bounds[m + 1])]
                yield self.experts[m], [pairs % near.shape[1]], pairs // near.shape[1]


class _Scratch(threading.local):
    """A workspace for each thread."""

    def __init__(self) -> None:
        self.work = Workspace()


def _opinion(
    expert: Expert, X: Array, left_out: IndexArray | None, with_variance: bool, work: Workspace
) -> tuple[Array, ...]:
    """Mean (N, t), variance, prior variance (N,), prior mean (N, t) of one expert.

    Rows of the training data that are to be left out it does not know. The others are filled up
    to whole tiles, so that the digits of one do not depend on others.
    """
    if left_out is not None:
        known = places(expert, left_out)
        inside, outside = np.flatnonzero(known >= 0), np.flatnonzero(known < 0)
        own = leave_one_out(expert, known[inside])
        if len(outside) == 0:
            return own
        others = _opinion(expert, X[outside], None, True, work)
        order = np.argsort(np.concatenate([inside, outside]))
        return tuple(np.concatenate(pair)[order] for pair in zip(own, others, strict=True))
    n = len(X)
    filled = X[np.minimum(np.arange(n + -n % TILE), n - 1)]
    chunks = [
        predict_expert(expert, filled[i : i + CHUNK_ROWS], work, with_variance)
        for i in range(0, len(filled), CHUNK_ROWS)
    ]
    said = tuple(np.concatenate(column)[:n] for column in zip(*chunks, strict=True))
    return *said, np.broadcast_to(expert.mean, said[0].shape)


def _columns(said: ExpertPredictions, start: int, end: int) -> ExpertPredictions:
    """The record of some of the rows."""
    cut = slice(start, end)

    def some(array: Array) -> Array:  # one column may stand for all rows
        return array if array.shape[1] == 1 else array[:, cut]

    return said._replace(
        mean=said.mean[:, cut],
        variance=said.variance[:, cut],
        prior_variance=said.prior_variance[:, cut],
        noise_variance=some(said.noise_variance),
        prior_mean=some(said.prior_mean),
        covariance=None if said.covariance is None else said.covariance[..., cut],
        communication=None
        if said.communication is None
        else Gaussian(said.communication.mean[cut], said.communication.variance[cut]),
    )
