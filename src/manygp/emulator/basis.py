"""A few components of many outputs: curves, fields and spectra as sums of them.

Curves are read in blocks of runs, so that they may lie on a disk. A randomised range finder
(Halko, Martinsson and Tropp) takes them to at most `BASIS.most` directions; little is left beside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from manygp.arrays import LARGEST, Array, IndexArray
from manygp.inputs import refuse_masked, refuse_unnumeric


@dataclass(frozen=True)
class BasisNumbers:
    """Numbers of the basis, and why they are what they are."""

    # Directions that curves are taken to, and so the most components: each one is a committee.
    most: int = 256
    # Power iterations: the leading directions are then exact to rounding.
    iterations: int = 3
    # Numbers of a block of curves: 32 MB.
    block: int = 2**22
    # Curves are left out in so many folds to see what a basis without them does not explain.
    folds: int = 5
    # Varimax: outputs that it looks at, steps, and the growth of its criterion at which it ends.
    turned_outputs: int = 5000
    turns: int = 200
    turned: float = 1e-6
    # A std below this share of the largest value of an output is rounding: it is constant.
    rounding: float = 1e-12


BASIS = BasisNumbers()


class Grid(NamedTuple):
    """Shape of one curve or field, and with xarray its axes.

    Attributes
    ----------
    shape : tuple of int
    dims : tuple of str
        Names of the axes, that of the runs first; empty for plain arrays.
    coords : mapping of str to (dims, ndarray)
        Coordinates of the axes but that of the runs.
    kind : type or None
        What makes curves of values, dims and coords.
    """

    shape: tuple[int, ...]
    dims: tuple[str, ...] = ()
    coords: Mapping[str, tuple[tuple[str, ...], Any]] = {}
    kind: Any = None

    @classmethod
    def of(cls, Y: Any) -> Grid:
        """That of Y (n, ...), an array or what has `dims` and `coords` as in xarray."""
        if not (hasattr(Y, "dims") and hasattr(Y, "coords")):
            return cls(tuple(Y.shape[1:]))
        dims = tuple(map(str, Y.dims))
        own = {
            str(name): (tuple(map(str, one.dims)), np.asarray(one.values))
            for name, one in Y.coords.items()
            if dims[0] not in one.dims
        }
        return cls(tuple(Y.shape[1:]), dims, own, type(Y))

    def shaped(self, values: Array) -> Any:
        """Values (N, T) in the shape of curves, as xarray if the curves of `fit` were."""
        curves = values.reshape(len(values), *self.shape)
        if self.kind is None:
            return curves
        return self.kind(curves, dims=self.dims, coords=dict(self.coords))

    def place(self, output: int) -> str:
        """Words for an output: its number, or its place in a field."""
        where = np.unravel_index(output, self.shape)
        return f"output {', '.join(str(int(i)) for i in where)}"


def check_curves(Y: Any, grid: Grid | None = None) -> Any:
    """Curves (n, T) or fields (n, height, width) as they are, if their shape is right.

    With a grid, their shape must be that of `fit`.
    """
    if Y is None:
        raise ValueError("ManyGPEmulator requires Y to be passed, but the target Y is None")
    if issparse(Y):
        raise ValueError("Y is a sparse matrix; pass an array")
    refuse_masked(Y, "Y")
    if hasattr(Y, "iloc"):
        refuse_unnumeric(Y, "Y")
        Y = np.asarray(Y)
    Y = Y if hasattr(Y, "shape") and hasattr(Y, "dtype") else np.asarray(Y)
    if len(Y.shape) < 2 or 0 in Y.shape:
        raise ValueError(
            f"Y must have one row for each run, (n, outputs) or (n, height, width), not the shape "
            f"{tuple(Y.shape)}; ManyGPRegressor takes one output"
        )
    if np.dtype(Y.dtype).kind not in "fiub":
        raise ValueError(f"Y must hold real numbers, not {Y.dtype}")
    if grid is not None and tuple(Y.shape[1:]) != grid.shape:
        raise ValueError(
            f"each run of Y has the shape {tuple(Y.shape[1:])}, and those of fit {grid.shape}"
        )
    return Y


def flat_rows(Y: Any, rows: Any, grid: Grid) -> Array:
    """Some curves as finite floats: (N, T)."""
    part = Y[rows]
    values = np.asarray(getattr(part, "values", part), dtype=np.float64).reshape(len(part), -1)
    wrong = ~(np.abs(values) <= LARGEST)
    if wrong.any():
        row, output = np.argwhere(wrong)[0]
        number = int(np.arange(len(Y))[rows][row])
        count = int(wrong[:, output].sum())
        lack, remedy = "lack that output", "leave the output out, or the runs, or fill it in"
        if np.isfinite(values[row, output]):
            lack, remedy = "are as large there", "its square overflows: take other units"
        raise ValueError(
            f"Y is {values[row, output]} in {grid.place(int(output))} of run {number} ({count} of "
            f"{len(part)} runs read here {lack}): {remedy}"
        )
    return values


def blocks(n: int, width: int) -> Iterator[slice]:
    """Slices of n rows, or columns, of which each has `width` numbers."""
    step = max(1, BASIS.block // max(1, width))
    return (slice(i, min(i + step, n)) for i in range(0, n, step))


class Reduced(NamedTuple):
    """Curves in the directions in which they differ.

    Attributes
    ----------
    mean, scale : ndarrays of shape (T,)
        Curves are (Y - mean) / scale from here on; a constant output has the scale 0.
    directions : ndarray of shape (T, M)
        Orthonormal.
    places : ndarray of shape (n, M)
        The curves in them.
    squares : ndarray of shape (n,)
        Squared norms of the curves.
    """

    mean: Array
    scale: Array
    directions: Array
    places: Array
    squares: Array


def reduce_curves(Y: Any, grid: Grid, *, scaling: str, rng: np.random.Generator) -> Reduced:
    """Centre curves, scale them, each output by its std, all by the same or none, and reduce."""
    n, T = len(Y), int(np.prod(grid.shape))
    mean, scale = _moments(Y, grid)
    if scaling != "each":
        scale = (scale > 0) * (np.sqrt((scale**2).mean()) if scaling == "all" else 1.0)
    m = min(n, T, BASIS.most)
    directions = np.linalg.qr(rng.normal(size=(T, m)))[0]
    for _ in range(BASIS.iterations):
        image = np.zeros((T, m))
        for rows in blocks(n, T):
            Z = scaled_curves(flat_rows(Y, rows, grid), mean, scale)
            image += Z.T @ (Z @ directions)
        directions = np.linalg.qr(image)[0]
    places, squares = np.empty((n, m)), np.empty(n)
    for rows in blocks(n, T):
        Z = scaled_curves(flat_rows(Y, rows, grid), mean, scale)
        places[rows], squares[rows] = Z @ directions, (Z**2).sum(axis=1)
    return Reduced(mean, scale, directions, places, squares)


def scaled_curves(values: Array, mean: Array, scale: Array) -> Array:
    """Curves (N, T), centred and scaled; a constant output is 0."""
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    return (values - mean) * inverse


def _moments(Y: Any, grid: Grid) -> tuple[Array, Array]:
    """Mean and std of each output, 0 if it is constant: (T,) each."""
    T = int(np.prod(grid.shape))
    count, mean, square, largest = 0, np.zeros(T), np.zeros(T), np.zeros(T)
    for rows in blocks(len(Y), T):
        values = flat_rows(Y, rows, grid)
        k, centre = len(values), values.mean(axis=0)
        step = centre - mean
        square += ((values - centre) ** 2).sum(axis=0) + step**2 * count * k / (count + k)
        mean += step * (k / (count + k))
        count += k
        largest = np.maximum(largest, np.abs(values).max(axis=0))
    std = np.sqrt(square / count)
    return mean, np.where(std > BASIS.rounding * largest, std, 0.0)


class Components(NamedTuple):
    """Components of curves, sorted by how much they explain, and what folds say about them.

    Attributes
    ----------
    turn : ndarray of shape (M, M), or (M, K) once K are taken
        Component k is `directions @ turn[:, k]`.
    scores : ndarray of shape (n, M), or (n, K)
        What the curves have of each.
    explained : ndarray of shape (M,), or (K,)
        Mean squares of the scores.
    fold_of : ndarray of shape (n,)
    fold_turns : ndarray of shape (folds, M, M)
        The components of all other folds.
    unexplained : ndarray of shape (M + 1,)
        Mean squared norm of what the first 0, 1, ... components of the other folds leave of a
        curve that was left out.
    """

    turn: Array
    scores: Array
    explained: Array
    fold_of: IndexArray
    fold_turns: Array
    unexplained: Array


def components_of(reduced: Reduced, rng: np.random.Generator) -> Components:
    """The principal components of reduced curves, of all and of all but a fold."""
    B = reduced.places
    n, m = B.shape
    turn = _principal(B)
    fold_of = rng.permutation(n) % min(BASIS.folds, n)
    turns = np.array([_principal(B[fold_of != fold]) for fold in range(fold_of.max() + 1)])
    held = np.empty((n, m))
    for fold, one in enumerate(turns):
        held[fold_of == fold] = B[fold_of == fold] @ one
    left = reduced.squares[:, None] - np.cumsum(np.c_[np.zeros(n), held**2], axis=1)
    scores = B @ turn
    explained = (scores**2).mean(axis=0)
    return Components(turn, scores, explained, fold_of, turns, np.maximum(left, 0.0).mean(axis=0))


def each_output(Y: Any, grid: Grid) -> tuple[Reduced, Components]:
    """Outputs as they are, each a component of its own."""
    values = flat_rows(Y, slice(None), grid)
    n, T = values.shape
    one, folds = np.eye(T), min(BASIS.folds, n)
    reduced = Reduced(np.zeros(T), np.ones(T), one, values, (values**2).sum(axis=1))
    explained = values.var(axis=0)
    left = np.maximum(explained.sum() - np.cumsum(np.r_[0.0, explained]), 0.0)
    left[-1] = 0.0
    turns = np.broadcast_to(one, (folds, T, T))
    return reduced, Components(one, values, explained, np.arange(n) % folds, turns, left)


def leading(components: Components, k: int) -> Components:
    """The first k components."""
    return components._replace(
        turn=components.turn[:, :k],
        scores=components.scores[:, :k],
        explained=components.explained[:k],
    )


def turned(reduced: Reduced, components: Components) -> Components:
    """Components, turned among themselves so that each is large in few places.

    That is Kaiser's varimax. What runs have of them is then often as smooth a function of the
    inputs as outputs are, and so are its errors: large in few places.
    """
    step = -(-len(reduced.directions) // BASIS.turned_outputs)
    basis = reduced.directions[::step] @ components.turn
    k = basis.shape[1]
    rotation, before = np.eye(k), 0.0
    for _ in range(BASIS.turns if k > 1 else 0):
        L = basis @ rotation
        u, sizes, vt = np.linalg.svd(basis.T @ (L**3 - L * (L**2).mean(axis=0)))
        rotation = u @ vt
        if sizes.sum() < before * (1 + BASIS.turned):
            break
        before = sizes.sum()
    rotation *= np.where(((basis @ rotation) ** 3).sum(axis=0) < 0, -1.0, 1.0)  # peaks, not dips
    scores = components.scores @ rotation
    explained = (scores**2).mean(axis=0)
    order = np.argsort(-explained, kind="stable")
    turn = components.turn @ rotation[:, order]
    return components._replace(turn=turn, scores=scores[:, order], explained=explained[order])


def _principal(B: Array) -> Array:
    """Principal directions of rows (n, m), the first first, with a sign of their own: (m, m)."""
    _, vectors = np.linalg.eigh(B.T @ B)
    vectors = vectors[:, ::-1]
    largest = np.abs(vectors).argmax(axis=0)
    return vectors * np.sign(vectors[largest, np.arange(len(vectors))])


def without_fold(components: Components, rows: IndexArray, places: Array, k: int) -> Array:
    """What k components of the other folds know of the places (N, M) of runs: (N, M)."""
    known = np.empty_like(places)
    for fold, turn in enumerate(components.fold_turns):
        own = components.fold_of[rows] == fold
        known[own] = places[own] @ turn[:, :k] @ turn[:, :k].T
    return known
