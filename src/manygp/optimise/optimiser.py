"""The optimiser: ask for rows to evaluate, tell what came out; its state is a JSON file."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from manygp.arrays import Array
from manygp.inputs import check_integer, plain_floats
from manygp.kernels.base import default_kernel
from manygp.kernels.text import parse_kernel, write_kernel
from manygp.optimise.space import Space
from manygp.optimise.trust import (
    REGION,
    TrustRegion,
    box,
    candidates,
    chosen,
    descended,
    initial_rows,
    levelled,
    score,
)
from manygp.paths import SamplePaths
from manygp.regressor import ManyGPRegressor
from manygp.runtime.files import write_atomically
from manygp.runtime.progress import say

FORMAT = "manygp optimiser 1"
# Rows that one expert knows alone, and rows of each expert of more.
SINGLE_ROWS, EXPERT_ROWS = 500, 250
# Hyperparameters are learned again when there are this many times as many rows; between, experts
# are conditioned on all rows with the kernel that there is, which takes a fifth of the time. They
# are learned from the start: few rows of many columns leave them at their bounds (no noise, some
# length-scales endless), and from there the next search ends where all is noise.
GROWTH = 1.3
# What a fit takes if nothing is to be chosen: one kernel for all, no trend, no correction.
LEAN: dict[str, Any] = {
    "trend": "constant",
    "hyperparameters": "shared",
    "overlap": 1,
    "routing": 4,
    "temperature": 4.0,
    "calibration": "none",
    "noise": "constant",
    "target_transform": None,
}


def lean(n_rows: int) -> dict[str, Any]:
    """Parameters of `ManyGPRegressor` of n_rows whose fit takes seconds, as between two steps.

    Parameters
    ----------
    n_rows : int

    Returns
    -------
    dict

    Examples
    --------
    >>> from manygp import ManyGPRegressor
    >>> from manygp.optimise import lean
    >>> ManyGPRegressor(**lean(3000)).points_per_expert
    250
    """
    size = n_rows if n_rows <= SINGLE_ROWS else EXPERT_ROWS
    return {**LEAN, "points_per_expert": size}


# What reading a state can end with where the file holds something else.
STATE_ERRORS = (
    ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError,
)  # fmt: skip


class Best(NamedTuple):
    """The best row that was evaluated, its value, and whether it keeps to the constraints."""

    x: Any
    value: float
    is_feasible: bool


@dataclass(frozen=True)
class Learned:
    """A kernel as text, and how many rows it was learned from."""

    kernel: str = ""
    n_rows: int = 0

    def holds(self, n: int) -> bool:
        """May it be used for n rows?"""
        return n < GROWTH * self.n_rows

    def checked(self, space: Space) -> Learned:
        """The same, of a file that is not to be trusted."""
        check_integer("n_rows", self.n_rows, 0)
        if self.kernel:
            parse_kernel(self.kernel).check_columns(sum(space.widths()))
        return self


class Optimiser:
    """Find the row of a space where a function that takes long is least.

    `ask` says which rows to evaluate, `tell` takes what came out. Rows are drawn by Thompson
    sampling: each is the best one, of many around the best that is known, of a function drawn
    from a model of all that was told. Where that finds nothing better, the region shrinks, and in
    the end the search begins anew elsewhere.

    Parameters
    ----------
    space : mapping or sequence
        Ranges of the columns: see `Space`.
    n_constraints : int, default=0
        Further outputs of the function, which must be at most 0.
    n_initial : int, optional
        Rows that are spread over the space before there is a model; by default twice the columns.
    random_state : int, default=0
    path : path, optional
        A file that keeps the state after every step, whole whatever happens. `Optimiser.load`
        resumes from there.
    model : mapping, optional
        Parameters of `ManyGPRegressor` instead of the lean ones, or `n_jobs`.

    Attributes
    ----------
    y_, constraints_ : ndarrays of shape (n,), (n, c)
        What was told; NaN where an evaluation has failed.

    Examples
    --------
    >>> from manygp.optimise import Optimiser
    >>> optimiser = Optimiser({"x": (0.0, 1.0), "kind": ["a", "b"]})
    >>> rows = optimiser.ask(4)
    >>> best = optimiser.tell(rows, [row["x"] + (row["kind"] == "b") for row in rows]).best
    >>> best.x in rows
    True
    """

    def __init__(
        self,
        space: Any,
        *,
        n_constraints: int = 0,
        n_initial: int | None = None,
        random_state: int = 0,
        path: str | PathLike[str] | None = None,
        model: Mapping[str, Any] | None = None,
    ) -> None:
        self.space = space if isinstance(space, Space) else Space(space)
        check_integer("n_constraints", n_constraints, 0)
        check_integer("random_state", random_state, 0)
        if n_initial is not None:
            check_integer("n_initial", n_initial, 2)
        self.n_constraints, self.random_state = int(n_constraints), int(random_state)
        self.n_initial = int(n_initial or max(4, 2 * len(self.space)))
        self.path, self.model = path, dict(model or {})
        self._units = np.empty((0, len(self.space)))
        self.y_, self.constraints_ = np.empty(0), np.empty((0, n_constraints))
        self._region, self._n_asked = TrustRegion(), 0
        self._learned = [Learned()] * (1 + n_constraints)

    def ask(self, n: int = 1) -> list[Any]:
        """Rows to evaluate next: dictionaries, or lists if the space is one."""
        check_integer("n", n, 1)
        rng = np.random.default_rng([self.random_state, len(self.y_), self._n_asked])
        with self._unless_it_fails():
            values = self.space.values(self._asked(n, rng))
            self._n_asked += 1
            self.save()
            return values

    def tell(self, X: Any, y: Any, constraints: Any = None) -> Self:
        """Take the values y (k,) of rows X, and of constraints (k, c); as failed where not finite.

        Rows need not be those that were asked for. Nothing is taken if anything is wrong.
        """
        units = self.space.units(_rows_of(X, self.space))
        values = _floats(y, (len(units),), "y has one value for each row")
        shape = (len(units), self.n_constraints)
        if constraints is None and self.n_constraints:
            raise ValueError(f"each row has {self.n_constraints} constraints; tell them too")
        limits = np.empty(shape) if constraints is None else constraints
        limits = _floats(limits, shape, "constraints are one row of numbers for each row")
        begin, known = self._region.begin, len(self.y_)
        with self._unless_it_fails():
            self._units = np.concatenate([self._units, units])
            self.y_ = np.concatenate([self.y_, values])
            self.constraints_ = np.concatenate([self.constraints_, limits])
            scores, d = score(self.y_[begin:], self.constraints_[begin:]), len(self.space)
            self._region = self._region.after(scores, known - begin, self.n_initial, d)
            if self._region.begin != begin:
                self._learned = [Learned()] * (1 + self.n_constraints)
            self._n_asked = 0
            self.save()
            return self

    @contextmanager
    def _unless_it_fails(self) -> Iterator[None]:
        """What is changed inside stays changed only if all goes well, on the disk too."""
        before = {**self.__dict__, "_learned": list(self._learned)}
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    @property
    def best(self) -> Best:
        """The best of all rows that were told."""
        scores = score(self.y_, self.constraints_)
        if not np.isfinite(scores).all(axis=1).any():
            raise ValueError("no evaluation has succeeded yet: there is no best one")
        place = int(np.lexsort(scores.T[::-1])[0])
        feasible = bool(scores[place, 0] == 0)
        return Best(self.X_[place], float(self.y_[place]), feasible)

    @property
    def X_(self) -> list[Any]:
        """The rows that were told."""
        return self.space.values(self._units)

    def fitted_model(self) -> tuple[ManyGPRegressor, Array]:
        """A model of the values since the last restart, and its rows (n, d)."""
        begin = self._region.begin
        units = self._units[begin:]
        if np.isfinite(self.y_[begin:]).sum() < 2:
            raise ValueError("a model needs two evaluations or more since the last restart")
        return self._fitted(self.space.features(units), self.y_[begin:], Learned()), units

    def _asked(self, n: int, rng: np.random.Generator) -> Array:
        """Units (n, d) of the rows to evaluate."""
        begin = self._region.begin
        y, limits = self.y_[begin:], self.constraints_[begin:]
        succeeded = np.isfinite(y) & np.isfinite(limits).all(axis=1)
        if len(y) < self.n_initial or succeeded.sum() < 2:
            return self.space.snapped(initial_rows(n, len(self.space), rng))
        units = self._units[begin:]
        features = self.space.features(units)
        outputs = [levelled(y), *limits.T]
        models = [self._learned_model(i, features, one) for i, one in enumerate(outputs)]
        expected = np.column_stack([one.predict(features) for one in models])
        scores = score(np.where(succeeded, expected[:, 0], np.nan), limits)
        centre = units[np.lexsort(scores.T[::-1])[0]]
        inverse = models[0].kernel_.inverse_lengths(features.shape[1])
        ends = box(centre, self._by_column(inverse), self._region.length)
        around = self._around(centre, ends, n, rng)
        rows = self.space.features(around)
        seeds = rng.integers(2**31, size=len(models)).tolist()
        paths = [one.sample_paths(n, seed) for one, seed in zip(models, seeds, strict=True)]
        drawn = [one(rows) for one in paths]
        picked = around[chosen(drawn[0], np.array(drawn[1:]))]
        if self.n_constraints == 0:
            picked = self._descended(picked, ends, paths[0])
        if len(picked) < n:
            more = self.space.snapped(initial_rows(n - len(picked), len(self.space), rng))
            picked = np.concatenate([picked, more])
        return picked

    def _by_column(self, inverse: Array) -> Array:
        """One number for each column of the space, the largest of those of the model's columns."""
        return np.maximum.reduceat(inverse, np.cumsum([0, *self.space.widths()])[:-1])

    def _descended(self, units: Array, ends: Array, paths: SamplePaths) -> Array:
        """Candidates, moved downhill along the columns that are numbers; all stay different."""
        kinds = np.array([one.kind for one in self.space.dimensions])
        columns = np.flatnonzero((kinds == "real") | (kinds == "log"))
        places = np.cumsum([0, *self.space.widths()])[columns]
        features, own = self.space.features(units), np.arange(len(units))

        def slopes(rows: Array) -> tuple[Array, Array]:
            features[:, places] = rows
            found = paths.slopes(features, own)
            return found.value[:, 0], found.slope[:, 0, places]

        moved = units.copy()
        try:
            moved[:, columns] = descended(units[:, columns], ends[:, columns], slopes)
        except ValueError:  # a model of the user's that has no slopes
            return units
        met = {row.tobytes() for row in self._units}
        for i, row in enumerate(moved):
            if row.tobytes() in met:  # many end in one corner
                moved[i] = units[i]
            met.add(moved[i].tobytes())
        return moved

    def _around(self, centre: Array, ends: Array, n: int, rng: np.random.Generator) -> Array:
        """Candidates (N, d) around the best row that are not known yet."""
        space, known = self.space, self._units[self._region.begin :]
        size = min(REGION.by_column * max(len(space), 5), REGION.candidates)
        around = candidates(centre, ends, size, rng)
        categories = [i for i, one in enumerate(space.dimensions) if one.kind == "category"]
        moved = around[:, categories] != centre[categories]  # any other category is as near
        around[:, categories] = np.where(moved, rng.random(moved.shape), around[:, categories])
        around = _unknown(space.snapped(around), known)
        if len(around) < n:  # all around is known, in a space of few rows
            anywhere = space.snapped(initial_rows(n + 1000, len(space), rng))
            anywhere = _unknown(anywhere, np.concatenate([known, around]))
            around = np.concatenate([around, anywhere])
        return around if len(around) else np.unique(self._units, axis=0)

    def _fitted(self, features: Array, values: Array, known: Learned) -> ManyGPRegressor:
        """A model of one output; failed evaluations count as the worst that was seen."""
        finite = values[np.isfinite(values)]
        low, high = np.quantile(finite, [0.25, 0.75])
        cap = min(finite.max(), high + REGION.outlier * (high - low))  # how bad does not matter
        cap = max(cap, finite.min())
        values = np.minimum(np.where(np.isfinite(values), values, cap), cap)
        parameters = {**lean(len(values)), **self.model}
        kernel: Any = default_kernel(features.shape[1])
        if known.holds(len(values)):
            kernel, parameters["optimizer"] = parse_kernel(known.kernel), None
        model = ManyGPRegressor(kernel, random_state=self.random_state, **parameters)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # hyperparameters at their bounds, constant columns
            return model.fit(features, values)

    def _learned_model(self, output: int, features: Array, values: Array) -> ManyGPRegressor:
        """A model of one output, whose hyperparameters are learned again now and then."""
        known = self._learned[output]
        model = self._fitted(features, values, known)
        if not known.holds(len(values)):
            self._learned[output] = Learned(write_kernel(model.kernel_), len(values))
        return model

    def save(self, path: str | PathLike[str] | None = None) -> None:
        """Write the state to a JSON file, by default to the `path` of the optimiser, if any."""
        place = self.path if path is None else path
        if place is None:
            return
        state = {
            "format": FORMAT,
            "space": self.space.to_json(),
            "n_constraints": self.n_constraints,
            "n_initial": self.n_initial,
            "random_state": self.random_state,
            "model": self.model,
            "units": self._units.tolist(),
            "y": _with_null(self.y_),
            "constraints": [_with_null(row) for row in self.constraints_],
            "region": asdict(self._region),
            "n_asked": self._n_asked,
            "learned": [asdict(one) for one in self._learned],
        }
        try:
            text = json.dumps(state, allow_nan=False)
        except TypeError as error:
            raise ValueError(
                f"the state cannot be written, since model={self.model!r} is not plain: {error}"
            ) from error
        write_atomically(place, text)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """The optimiser that a file holds; it goes on as if it had not been interrupted."""
        try:
            state = json.loads(Path(path).read_text(encoding="utf-8"))
            if state["format"] != FORMAT:
                raise ValueError(f"its format is {state['format']!r}, not {FORMAT!r}")
            names = ("n_constraints", "n_initial", "random_state", "model")
            found = cls(
                Space.from_json(state["space"]),
                path=path,
                **{name: state[name] for name in names},
            )
            n, d = len(state["y"]), len(found.space)
            found._units = _floats(state["units"] or np.empty((0, d)), (n, d), "units")
            if not np.all((found._units >= 0) & (found._units <= 1)):
                raise ValueError("units lie from 0 to 1")
            found.y_ = _floats(state["y"], (n,), "y")
            limits = state["constraints"] or np.empty((0, found.n_constraints))
            found.constraints_ = _floats(limits, (n, found.n_constraints), "constraints")
            found._region = TrustRegion(**state["region"]).checked(n)
            check_integer("n_asked", state["n_asked"], 0)
            found._n_asked = state["n_asked"]
            found._learned = [Learned(**one).checked(found.space) for one in state["learned"]]
            if len(found._learned) != 1 + found.n_constraints:
                raise ValueError("there is one kernel for each output")
            ManyGPRegressor(**found.model)
        except STATE_ERRORS as error:
            raise ValueError(f"{path} holds no state of an optimiser: {error}") from error
        return found


def minimise(
    function: Callable[[Any], Any],
    space: Any,
    n_evaluations: int,
    batch: int = 1,
    *,
    verbose: bool = False,
    **parameters: Any,
) -> Optimiser:
    """Evaluate a function `n_evaluations` times where it may be least.

    Parameters
    ----------
    function : callable
        From a row, a dictionary or a list as the space is, to a number, NaN if it has failed, or
        with constraints to a pair of a number and a list of numbers.
    space : mapping or sequence
    n_evaluations : int
        All of them, those that `path` holds already included.
    batch : int, default=1
        How many rows are asked for at a time.
    verbose : bool, default=False
        Say on standard error how far it is.
    **parameters
        Those of `Optimiser`. If there is a file at `path`, the search resumes from its state. When
        the function raises, what came out before is kept there.

    Returns
    -------
    Optimiser
        Whose `best` is the answer.

    Examples
    --------
    >>> from manygp.optimise import minimise
    >>> found = minimise(lambda row: (row["x"] - 0.3) ** 2, {"x": (0.0, 1.0)}, 12, batch=4)
    >>> abs(found.best.x["x"] - 0.3) < 0.05
    True
    """
    check_integer("n_evaluations", n_evaluations, 1)
    check_integer("batch", batch, 1)
    optimiser = Optimiser(space, **parameters)
    if optimiser.path is not None and Path(optimiser.path).exists():
        known = Optimiser.load(optimiser.path)
        if known.space.to_json() != optimiser.space.to_json():
            raise ValueError(
                f"{optimiser.path} is of another space; give this search its own file"
            )
        optimiser = known
    while len(optimiser.y_) < n_evaluations:
        rows = optimiser.ask(min(batch, n_evaluations - len(optimiser.y_)))
        values: list[Any] = []
        try:
            for row in rows:
                values.append(function(row))
        finally:
            _tell(optimiser, rows[: len(values)], values)
        if verbose and np.isfinite(optimiser.y_).any():
            done = f"{len(optimiser.y_):,} of {n_evaluations:,} evaluations"
            say(f"{done}; best {optimiser.best.value:.6g}")
    return optimiser


def _tell(optimiser: Optimiser, rows: Sequence[Any], values: Sequence[Any]) -> None:
    if not values:
        return
    if optimiser.n_constraints:
        optimiser.tell(rows, [one for one, _ in values], [list(limits) for _, limits in values])
    else:
        optimiser.tell(rows, values)


def _unknown(rows: Array, known: Array) -> Array:
    """Different rows (N, d) that are not among those that are known."""
    seen = {row.tobytes() for row in known}
    rows = np.unique(rows, axis=0)
    return rows[np.array([row.tobytes() not in seen for row in rows], dtype=bool)]


def _rows_of(X: Any, space: Space) -> list[Any]:
    """Rows of an array, a table or a list; one row alone is refused by name."""
    if hasattr(X, "columns") and hasattr(X, "to_dict"):
        columns = {name: list(X[name]) for name in X.columns}
        return [
            dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
        ]
    is_list = isinstance(X, Sequence | np.ndarray) and not isinstance(X, str)
    if (
        not is_list
        or not getattr(X, "ndim", 1)
        or (len(X) and np.ndim(X[0]) == 0 and not isinstance(X[0], Mapping))
    ):
        raise ValueError(f"tell takes a list of rows, such as those of ask; {X!r} is one row")
    return list(X)


def _floats(values: Any, shape: tuple[int, ...], words: str) -> Array:
    """Numbers of a shape; None and infinities are NaN."""
    array = plain_floats(values, words)
    if array.shape != shape:
        raise ValueError(f"{words}: numbers of shape {shape}; got {values!r}")
    return np.where(np.isfinite(array), array, np.nan)


def _with_null(values: Array) -> list[float | None]:
    return [float(one) if np.isfinite(one) else None for one in values]
