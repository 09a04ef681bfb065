"""The experts of a model as arrays of numbers, and back, checked before they are used.

A file may hold more rows than memory: what is large is looked at in blocks, and never copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from manygp.arrays import LARGEST, AnyArray, Array, IndexArray
from manygp.checks import (
    bounded,
    every,
    floats,
    indices,
    integers,
    integers_below,
    require,
    shape_of,
)
from manygp.committee.committee import QUERYING, Committee, Layout, assemble_later
from manygp.gp.expert import MEMORY, PRECISION, KernelFits, Slices, Spans, in_one
from manygp.gp.marginal_likelihood import KernelFit, TrainingData
from manygp.gp.trend import Trend
from manygp.inputs import Scaling
from manygp.kernels.base import NoisyKernel, scratch_arrays
from manygp.model import FittedModel
from manygp.runtime.parallel import physical_memory
from manygp.trend.registry import family_of

# Experts whose rows are compared with each other at a time.
BLOCK_EXPERTS = 4096
# Variances and length-scales beyond this, or below one over it, are those of no rows: targets of
# 1e30 have a variance of 1e60.
MOST_HYPERPARAMETER = 1e60


class Parts(NamedTuple):
    """The committee as a file describes it, checked, before anything is computed."""

    data: TrainingData
    own: Spans
    neighbours: Spans
    fits: KernelFits
    metric: Array
    seats: IndexArray
    communication: IndexArray | None

    @property
    def sizes(self) -> IndexArray:
        """How many rows each expert knows: (M,)."""
        sizes: IndexArray = np.diff(self.own.bounds) + np.diff(self.neighbours.bounds)
        return sizes

    def seated(self) -> tuple[Sequence[IndexArray], Sequence[IndexArray], KernelFits]:
        """The own rows, the neighbours and the kernel of the expert in each seat."""
        if np.array_equal(self.seats, np.arange(len(self.own))):
            return self.own, self.neighbours, self.fits
        own, neighbours = [*self.own], [*self.neighbours]  # seats share what they hold
        seats = self.seats.tolist()
        return [own[m] for m in seats], [neighbours[m] for m in seats], self.fits.at(self.seats)


def describe_experts(model: FittedModel) -> dict[str, AnyArray]:
    """The arrays of a model's rows and experts."""
    committee = model.committee
    data, experts = committee.training_data(), committee.experts
    fits, own, neighbours = experts.fits, in_one(experts.parts), in_one(experts.neighbours)
    arrays: dict[str, AnyArray] = {
        "X": data.X,
        "y": data.residuals,
        "alpha": data.alpha,
        "metric": committee.layout.metric,
        "hyperparameters": fits.values,
        "evaluations": integers(fits.counts),
        "own": integers(own.flat),
        "own_sizes": integers(np.diff(own.bounds)),
        "neighbours": integers(neighbours.flat),
        "neighbours_sizes": integers(np.diff(neighbours.bounds)),
        "seats": integers(np.tile(np.arange(len(experts)), committee.layout.copies)),
    }
    if data.spread is not None:
        arrays["spread"] = data.spread
    if committee.communication is not None:
        arrays["communication"] = integers(committee.communication.indices)
    if model.order is not None:
        arrays["order"] = integers(model.order)
    return arrays


def read_experts(
    manifest: dict[str, Any], arrays: dict[str, AnyArray], kernel: NoisyKernel
) -> Parts:
    """What a file says about rows and experts; experts that exceed the memory are refused."""
    data = _data(manifest, arrays)
    n, d = data.X.shape
    kernel.check_columns(d)
    metric = floats(arrays, "metric", (d,))
    require(np.all(np.abs(metric) <= LARGEST**0.5), "squares of metric overflow")
    own, neighbours = _known_rows(arrays, n)
    fits = _fits(arrays, kernel, len(own))
    seats = indices(arrays, "seats", len(own))
    require(len(np.unique(seats)) == len(own), "an expert has no seat")
    require(len(seats) <= n, "it has more seats than rows")
    common = None
    if "communication" in arrays:
        common = indices(arrays, "communication", n)
        require(len(np.unique(common)) == len(common) > 0, "it communicates a row twice")
    parts = Parts(data, own, neighbours, fits, metric, seats, common)
    _require_memory(parts, kernel)
    return parts


def _data(manifest: dict[str, Any], arrays: dict[str, AnyArray]) -> TrainingData:
    """The rows of a file, and the trend under them."""
    (n, d), (_, n_targets) = shape_of(arrays, "X"), shape_of(arrays, "y")
    require(n > 0 and d > 0 and n_targets > 0, "it has no rows")
    data = TrainingData(
        bounded(arrays, "X", (n, d)),
        bounded(arrays, "y", (n, n_targets)),
        floats(arrays, "alpha", (n,)),
        manifest["constant_mean"],
    )
    require(type(data.constant_mean) is bool, "constant_mean is not true or false")
    require(every(lambda x: x >= 0, data.alpha), "a noise variance is negative")
    if "spread" in arrays:
        spread = bounded(arrays, "spread", (n,))
        require(every(lambda x: x > 0, spread), "a weight is not positive")
        data = data._replace(spread=spread)
    trend = manifest.get("trend") if manifest.get("schema") == 1 else manifest["trend"]
    return data if trend is None else data._replace(trend=_trend(trend, arrays, data))


def describe_trend(trend: Trend) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """What the manifest says about a trend, and its arrays."""
    described, arrays = trend.model.to_file()
    fitted, shift, growth = trend.fitted, trend.shift, trend.growth
    rows = {"trend_fitted": fitted, "trend_shift": shift, "trend_growth": growth}
    return described, rows | arrays


def _trend(record: dict[str, Any], arrays: dict[str, AnyArray], data: TrainingData) -> Trend:
    """The trend of a file with rows; how its terms depend on them is left to be computed."""
    (n, d), n_targets = data.X.shape, data.residuals.shape[1]
    fitted, shift = (
        bounded(arrays, f"trend_{name}", (n, n_targets)) for name in ("fitted", "shift")
    )
    growth = bounded(arrays, "trend_growth", (n,))
    require(every(lambda x: x >= 0, growth), "a variance of its trend is negative")
    model = family_of(record["name"]).model.from_file(record, arrays, (d, n_targets))
    return Trend(model, fitted, shift, growth)


def read_order(arrays: dict[str, AnyArray], n: int) -> AnyArray | None:
    """Places (n,) of a file's rows in the data that they come from, if it tells."""
    if "order" not in arrays:
        return None
    order = integers_below(arrays, "order", 2**31)
    require(len(order) == n, "its order is not that of its rows")
    ordered = np.sort(order)
    require(np.all(ordered[1:] > ordered[:-1]), "a row is there twice")
    return order


def _known_rows(arrays: dict[str, AnyArray], n: int) -> tuple[Spans, Spans]:
    """The rows of each expert, and those of others that it knows as well."""
    own, neighbours = (_split(arrays, name, n) for name in ("own", "neighbours"))
    require(0 < len(own) == len(neighbours), "its experts differ in number")
    require(np.diff(own.bounds).min() > 0, "an expert has no rows")
    for first in range(0, len(own), BLOCK_EXPERTS):
        end = min(first + BLOCK_EXPERTS, len(own))
        known = [_numbered(one, first, end, n) for one in (own, neighbours)]
        repeated = np.diff(np.sort(np.concatenate(known))) == 0
        require(not repeated.any(), "an expert knows a row twice")
    if isinstance(own, Slices):
        seen = np.zeros(n, dtype=bool)
        seen[own.flat] = True
        require(seen.all(), "a row has no expert")
    return own, neighbours


def _numbered(parts: Spans, first: int, end: int, n: int) -> IndexArray:
    """One number for each row of each part from `first` to `end`, of n rows."""
    bounds = parts.bounds[first : end + 1]
    part = np.repeat(np.arange(first, end), np.diff(bounds))
    rows: IndexArray = part * n + parts.between(int(bounds[0]), int(bounds[-1]))
    return rows


def _split(arrays: dict[str, AnyArray], name: str, n: int) -> Spans:
    """Rows of experts, one after the other; all n of them in their order need no memory."""
    rows, sizes = integers_below(arrays, name, n), indices(arrays, f"{name}_sizes", n + 1)
    require(int(sizes.sum()) == len(rows), f"{name} is longer or shorter than its sizes say")
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    if np.array_equal(rows, np.arange(n, dtype=rows.dtype)):
        return Spans(bounds)
    return Slices(rows.astype(np.intp), bounds)


def _fits(arrays: dict[str, AnyArray], kernel: NoisyKernel, n_experts: int) -> KernelFits:
    """The kernel of each expert."""
    values = floats(arrays, "hyperparameters", (n_experts, kernel.n_free))
    sound = (values > 0) & (values >= 1 / MOST_HYPERPARAMETER) & (values <= MOST_HYPERPARAMETER)
    require(np.all(sound), "a hyperparameter is not positive, or of no size that rows can have")
    counts = indices(arrays, "evaluations", 2**31)
    require(len(counts) == n_experts, "its evaluations are not those of its experts")
    return KernelFits(kernel, values, counts)


def assembled(described: dict[str, Any], parts: Parts) -> Committee:
    """The committee; factors are built when they are needed."""
    own, neighbours, fits = parts.seated()
    layout = Layout.of(parts.data.X, own, parts.metric)
    common, data = parts.communication, parts.data
    if data.trend is not None:  # what depends on the experts, files do not hold
        known = data.trend.model.on_rows(data, layout.parts)
        data = data._replace(trend=known or data.trend)
    committee = assemble_later(
        data,
        layout,
        fits,
        neighbours,
        None if common is None else (common, KernelFit(described["kernel"])),
    )
    require_finite(committee, data, described["x_scaling"], described["y_scaling"])
    return committee


def require_finite(
    committee: Committee, data: TrainingData, x_scaling: Scaling, y_scaling: Scaling
) -> None:
    """Refuse a committee whose rows, targets, or their std, overflow in their units."""
    numbers = [committee.layout.centres]
    for rows, fit in zip(committee.layout.parts, committee.experts.fits, strict=False):
        X, targets = data.X[rows], data.targets_of(rows)
        numbers.append(x_scaling.undo(np.array([X.min(axis=0), X.max(axis=0)])))
        numbers.append(y_scaling.undo(np.array([targets.min(axis=0), targets.max(axis=0)])))
        numbers.append(np.sqrt(fit.kernel.diag(X).max()) * y_scaling.scale)
    # Factors that are built later are checked then.
    built = [] if committee.experts.are_made_later else [*committee.experts]
    for expert in [*built, *([committee.communication] if committee.communication else [])]:
        numbers += [expert.whitener, expert.coefficients]
    finite = all(np.isfinite(one).all() for one in numbers)
    require(finite, "its numbers overflow in their units; rescale y, and fit again")


def _require_memory(parts: Parts, kernel: NoisyKernel) -> None:
    """Refuse experts that exceed the machine's memory.

    Experts of several, and their factors, are made when they are needed, and forgotten again if
    they are too many: what counts is the largest one, and the scratch arrays of the kernel.
    """
    memory, data, sizes = physical_memory(), parts.data, parts.sizes
    common = 0 if parts.communication is None else len(parts.communication)
    most = max(int(sizes.max()), common)
    rows = max(most, min(int(sizes.sum()), MEMORY.expert_rows))
    numbers = 8 * rows * (data.X.shape[1] + data.residuals.shape[1] + 1)
    factor = 8 * most**2 + (4 * most**2 if most >= PRECISION.single_rows and len(sizes) > 1 else 0)
    with np.errstate(all="ignore"):
        scratch = 8 * QUERYING.chunk_rows * most * scratch_arrays(kernel.signal, data.X[:1])
        trend = 0.0 if data.trend is None else data.trend.model.bytes_on_rows(len(data.X), most)
    needed = numbers + factor + scratch + trend
    require(
        needed <= memory,
        f"its factors would need {needed / 1e9:.3g} GB, and there are {memory / 1e9:.3g} GB",
    )
