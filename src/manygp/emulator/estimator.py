"""The emulator: from the inputs of runs to their curves, fields or spectra."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from os import PathLike
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.metrics import r2_score
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import _num_samples, check_is_fitted

from manygp import answers
from manygp.arrays import Array
from manygp.calibration import check_coverage, gains
from manygp.emulator import answers as curves
from manygp.emulator.answers import CURVES, FittedEmulator, Judge, LeftOut, Report
from manygp.emulator.basis import (
    BASIS,
    Components,
    Grid,
    Reduced,
    check_curves,
    components_of,
    each_output,
    flat_rows,
    leading,
    reduce_curves,
    scaled_curves,
    turned,
)
from manygp.emulator.files import read_emulator, write_emulator
from manygp.emulator.match import Match, match_curve, target_of
from manygp.fit_report import NothingLearnedWarning
from manygp.inputs import check_integer, plain_floats
from manygp.regressor import ManyGPRegressor
from manygp.runtime.parallel import n_workers, process_map, single_threaded_blas
from manygp.runtime.progress import say, warn
from manygp.runtime.words import counted
from manygp.storage.model_file import read_checked
from manygp.updating import require_same

SCALINGS = ("each", "all", "none")


@dataclass(frozen=True)
class ComponentChoice:
    """Numbers of the choice of how many components, and why they are what they are."""

    # Lean models look for the number of components: at most so many runs, with the overlap and
    # routing where these are to be chosen. So many are fitted side by side before more
    # are thought of.
    runs: int = 1000
    overlap: float = 1.0
    routing: int = 4
    batch: int = 4
    # The most that "auto" tries.
    most: int = 48
    # What further components could explain may be this share of the squared error of lean models,
    # which is larger than that of others: without it the error would be 1% smaller or so.
    enough: float = 0.01
    # So many components in a row, each of which gains less than this share of the squared error,
    # are the last ones.
    useless: int = 3
    least_gain: float = 0.002
    # The fewest components that are this near to the smallest squared error are taken.
    near: float = 1.005
    # Fewer runs tell nothing.
    fewest_runs: int = 5


COMPONENTS = ComponentChoice()


class Fitted(NamedTuple):
    """A fitted component: its model, and left-out runs (m,), their means, errors and std."""

    model: ManyGPRegressor
    rows: Any
    means: Array
    errors: Array
    std: Array


class ManyGPEmulator(RegressorMixin, BaseEstimator):
    """Many outputs at once: curves, fields and spectra by their principal components.

    Each run of a simulator gives a curve of T numbers, or a field. They are sums of a few
    components (Higdon et al. 2008); what runs have of each is learned by a `ManyGPRegressor` of
    its own. Runs that were left out tell how many components there are, whether they are
    better turned so that each is large in few places, how large the errors of each output are,
    and how wide a band is that holds whole curves.

    Parameters
    ----------
    regressor : ManyGPRegressor, default=None
        Model of each component, with all of its parameters; by default `ManyGPRegressor()`. Its
        parameters are `regressor__...` in grid searches.
    n_components : "auto", int, float or None, default="auto"
        How many components, or the share of the variance that they explain. "auto" adds one
        after another until further ones could not lower the error of left-out runs. None for a
        few outputs that have little in common: each has a model of its own, with its own kernel,
        noise, correction, tails, trend and transform, of the output as it is.
    scaling : {"each", "all", "none"}, default="each"
        Outputs are centred, and divided by their own std, or all by the same number: outputs
        of one unit, of which small ones matter less. "none" leaves them as they are.
    n_jobs : int, default=None
        Components that are fitted at the same time; -1 for all cores. The result does not depend
        on it.
    random_state : int or RandomState, default=None
    verbose : bool, default=False
        Say what each component explains.

    Attributes
    ----------
    n_components_ : int
        K, the number of components.
    mean_ : ndarray of the shape of a curve
    components_ : ndarray of shape (K, ...)
        Each of the shape of a curve, in the units of Y.
    explained_ : ndarray of shape (K,)
        R^2 of what runs have of each component, where runs are left out.
    models_ : tuple of ManyGPRegressor
    model_ : FittedEmulator
        The record of the fit.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from manygp.emulator import ManyGPEmulator
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(100, 2))
    >>> t = np.linspace(0, 1, 200)
    >>> Y = np.sin(6 * t + 3 * X[:, :1]) * (1 + X[:, 1:])  # 100 curves of 200 numbers
    >>> model = ManyGPEmulator(random_state=0).fit(X, Y)
    >>> mean, std = model.predict(X[:3], return_std=True)
    >>> mean.shape, model.n_components_
    ((3, 200), 2)
    >>> lower, upper = model.predict_interval(X[:3], simultaneous=True)
    """

    def __init__(
        self,
        regressor: Any = None,
        *,
        n_components: Any = "auto",
        scaling: str = "each",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.regressor = regressor
        self.n_components = n_components
        self.scaling = scaling
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, Y: Any) -> Self:
        """Fit a model of each component.

        Parameters
        ----------
        X : array-like or table of shape (n, d)
            The inputs of the runs, as `ManyGPRegressor` takes them.
        Y : array-like of shape (n, T) or (n, height, width), or xarray.DataArray
            Their curves or fields; runs are the first axis. It is read in blocks of runs, and may
            be a `numpy.memmap`.
        """
        self._check_parameters()
        X, Y = _without_copies(X, _as_many(X, check_curves(Y)))
        grid, n = Grid.of(Y), len(Y)
        if n < COMPONENTS.fewest_runs:
            least = COMPONENTS.fewest_runs
            raise ValueError(f"Y has {n} runs; {least} are the fewest to learn from")
        random = check_random_state(self.random_state)
        seeds = random.randint(2**31, size=BASIS.most + 2)
        rng = np.random.default_rng(seeds[-1])
        each = self.n_components is None
        if each:
            reduced, parts = each_output(Y, grid)
        else:
            reduced = reduce_curves(Y, grid, scaling=self.scaling, rng=rng)
            parts = components_of(reduced, rng)
        if not parts.explained.any():
            raise ValueError(
                "all outputs are constant, or too small to be squared: there is nothing to emulate"
            )
        searched, parts = self._chosen(X, reduced, parts, seeds)
        fitted = list(self._fits(X, parts.scores, seeds, self._base()))
        left = (
            float(sum((one.errors**2).mean() for one in fitted)) + parts.unexplained[len(fitted)]
        )
        if left >= parts.unexplained[0]:
            warn(
                f"nothing was learned that helps to predict new curves: {n:,} runs, each left "
                "out, are predicted no better than by the mean curve",
                NothingLearnedWarning,
            )
        columns = (np.stack([one[i] for one in fitted], axis=1) for i in (2, 3, 4))
        judge = Judge(Y, grid, reduced, parts, LeftOut(fitted[0].rows, *columns))
        if each:
            local, spread = None, curves.spread_of_each(judge.left)
        else:
            local, spread = self._spread(X, judge, int(seeds[-2]))
        report = tuple(
            (float(size / parts.unexplained[0]), 1 - float((one.errors**2).mean() / size))
            for one, size in zip(fitted, np.maximum(parts.explained, 1e-300), strict=True)
        )
        models = tuple(one.model for one in fitted)
        self._become(
            FittedEmulator(
                grid,
                reduced.mean,
                reduced.scale,
                judge.basis,
                models,
                local,
                spread,
                Report(report, searched, float(left / parts.unexplained[0])),
                each,
            )
        )
        return self

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Predict curves.

        Parameters
        ----------
        X : array-like or table of shape (N, d)
        return_std : bool, default=False
            Also return the std of each output.
        return_cov : bool, default=False
            Also return the covariances between the outputs of each run, low rank and a diagonal,
            over the T outputs in the order of `ravel`.

        Returns
        -------
        mean : ndarray or DataArray of shape (N, ...)
        std : the same
        cov : CurveCovariance
            With `basis` (T, K), `inner` (N, K, K), `rest` (N, T) and `dense(i)`.
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be requested.")
        model = self.model_
        state = curves.states(model, X)
        mean = model.grid.shaped(curves.mean_of(model, state.mean))
        if return_cov:
            return mean, curves.covariance_of(model, state)
        return (mean, model.grid.shaped(curves.std_of(model, state))) if return_std else mean

    def predict_interval(
        self, X: Any, coverage: float = 0.9, *, simultaneous: bool = False
    ) -> tuple[Any, Any]:
        """Intervals that hold each output, or bands that hold whole curves.

        mean -+ q std, where q is the quantile of what curves that were left out have shown: of
        ``|y - mean| / std`` over all outputs, or of its maximum over each curve.

        Parameters
        ----------
        X : array-like or table of shape (N, d)
        coverage : float, default=0.9
            Of single outputs, on average over outputs and runs; with `simultaneous` the share of
            curves that stay inside everywhere.
        simultaneous : bool, default=False

        Returns
        -------
        lower, upper : ndarrays or DataArrays of shape (N, ...)
        """
        check_coverage(coverage)
        model = self.model_
        lower, upper = curves.interval(model, X, coverage, simultaneous=simultaneous)
        return model.grid.shaped(lower), model.grid.shaped(upper)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Draw curves, joint over runs and outputs: (N, ..., n_samples)."""
        check_integer("n_samples", n_samples, 0)
        model, rng = self.model_, check_random_state(random_state)
        draws = curves.sample(model, X, n_samples, rng)
        return draws.reshape(len(draws), *model.grid.shape, n_samples)

    def predict_gradient(self, x: Any, output: Any) -> tuple[Array, Array]:
        """Derivatives of mean and std of one output by the inputs of one run: (d,) each.

        Parameters
        ----------
        x : array-like of shape (d,)
        output : int or tuple of int
            Its place in the curve or field.
        """
        model = self.model_
        try:
            place = int(np.ravel_multi_index(np.atleast_1d(output).tolist(), model.grid.shape))
        except (TypeError, ValueError):
            raise ValueError(
                f"output is a place in a curve of shape {model.grid.shape}, from 0, not {output!r}"
            ) from None
        return curves.gradients(model, plain_floats(x, "x").ravel(), place)

    def loo_predict(self, rows: Any = None) -> tuple[Any, Any]:
        """Mean and std of training curves, all by default, as if each run had been left out.

        The basis stays that of all runs.
        """
        model = self.model_
        state = curves.left_out_states(model, rows)
        mean = curves.mean_of(model, state.mean)
        return model.grid.shaped(mean), model.grid.shaped(curves.std_of(model, state))

    def score(self, X: Any, Y: Any, sample_weight: Any = None) -> float:
        """R^2 of the mean, on average over outputs."""
        Y = check_curves(Y, self.model_.grid)
        truth = flat_rows(Y, slice(None), self.model_.grid)
        mean = np.asarray(self.predict(X)).reshape(truth.shape)
        return float(r2_score(truth, mean, sample_weight=sample_weight))

    def match(
        self, observed: Any, noise: Any, n_samples: int = 2000, random_state: Any = 0
    ) -> Match:
        """Which inputs explain an observed curve: samples of their posterior.

        The inputs are as likely anywhere in the box of the training runs; the curve is normal
        around the prediction, with the emulator's errors and the noise of the observation. The
        sampler is the ensemble of walkers of Goodman and Weare.

        Parameters
        ----------
        observed : array-like of the shape of a curve
            Outputs that were not observed are NaN.
        noise : float or array-like of the shape of a curve
            The std of the observation, independent from output to output.
        n_samples : int, default=2000
        random_state : int or RandomState, default=0

        Returns
        -------
        Match
            With `samples` (n_samples, d), `mean` and `interval(coverage)`.
        """
        check_integer("n_samples", n_samples, 1)
        target = target_of(self.model_, observed, noise)
        seed = check_random_state(random_state).randint(2**31)
        with single_threaded_blas():
            target = target.calibrated()
            found = match_curve(target, int(n_samples), np.random.default_rng(seed))
        return found._replace(std_factor=float(np.sqrt(target.wider)))

    def partial_fit(self, X: Any, Y: Any) -> Self:
        """Add runs without a new fit: before the first `fit` this is `fit`.

        What the new curves have of each component goes to the `partial_fit` of its model; the
        basis stays. Each curve is predicted before it is added, and what is seen of errors
        becomes part of the std of each output, of intervals and of bands.
        """
        if not hasattr(self, "_model"):
            return self.fit(X, Y)
        model = self._model
        Y = _as_many(X, check_curves(Y, model.grid))
        values = flat_rows(Y, slice(None), model.grid)
        moved = np.abs(values - model.mean) > 10 * BASIS.rounding * np.abs(model.mean)
        differ = (model.scale == 0) & moved.any(axis=0)
        if differ.any():
            raise ValueError(
                f"{model.grid.place(int(np.argmax(differ)))} of Y was the same in all runs of "
                "fit, and is another in these: fit all runs again"
            )
        spread = curves.spread_with(model, curves.states(model, X), values)
        scores = scaled_curves(values, model.mean, model.scale) @ model.basis
        models = deepcopy(model.models)
        for one, column in zip(models, scores.T, strict=True):
            one.partial_fit(X, column)
        require_same(self._model, model)
        return self._become(replace(model, models=models, spread=spread))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the emulator to a file without pickle, whole or not at all.

        Parameters
        ----------
        path : path
        """
        parameters = {"n_components": self.n_components, "scaling": self.scaling}
        write_emulator(path, self.model_, {**parameters, "n_jobs": self.n_jobs})

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """The emulator that `save` has written; its `regressor` is the model of a component.

        Parameters
        ----------
        path : path

        Raises
        ------
        ModelFileError
            If the file is damaged, altered, written by a newer version, or no emulator at all.
        """
        model, parameters = read_emulator(path)
        emulator = cls(clone(model.models[0]), **parameters)
        read_checked(path, "has wrong parameters", emulator._check_parameters)
        return emulator._become(model)

    @property
    def model_(self) -> FittedEmulator:
        check_is_fitted(self, "_model")
        return self._model

    @property
    def models_(self) -> tuple[ManyGPRegressor, ...]:
        return self.model_.models

    @property
    def n_components_(self) -> int:
        return len(self.model_.models)

    @property
    def mean_(self) -> Array:
        return self.model_.mean.reshape(self.model_.grid.shape)

    @property
    def components_(self) -> Array:
        own = (self.model_.scale[:, None] * self.model_.basis).T
        return own.reshape(-1, *self.model_.grid.shape)

    @property
    def explained_(self) -> Array:
        return np.array([explained for _, explained in self.model_.report.components])

    @property
    def n_features_in_(self) -> int:
        return int(self.models_[0].n_features_in_)

    def _become(self, model: FittedEmulator) -> Self:
        self._model = model
        return self

    def _check_parameters(self) -> None:
        if not (self.regressor is None or isinstance(self.regressor, ManyGPRegressor)):
            raise ValueError(f"regressor must be a ManyGPRegressor, not {self.regressor!r}")
        has_bounds = self.regressor is not None and self.regressor.bounds is not None
        if has_bounds and self.n_components is not None:
            raise ValueError("bounds are those of one target: components of curves have none")
        if self.scaling not in SCALINGS:
            raise ValueError(f"scaling must be one of {', '.join(SCALINGS)}, not {self.scaling!r}")
        k: Any = self.n_components
        whole = isinstance(k, int | np.integer) and not isinstance(k, bool) and k >= 1
        share = isinstance(k, float | np.floating) and 0 < k < 1
        if not (k is None or whole or share or (isinstance(k, str) and k == "auto")):
            raise ValueError(
                f"n_components must be 'auto', a number from 1 on, a share between 0 and 1, or "
                f"None, not {k!r}"
            )

    def _most(self, parts: Components) -> int:
        """How many components are fitted at most."""
        n, m = parts.scores.shape
        most = m if m < n * (1 - 1 / BASIS.folds) else n - -(-n // BASIS.folds) - 1
        k: Any = self.n_components
        if k is None:
            if m > COMPONENTS.most:
                raise ValueError(
                    f"n_components=None fits a model for each output, and there are {m}: set it "
                    "to 'auto'"
                )
            return m
        if isinstance(k, str):
            return min(most, COMPONENTS.most)
        if isinstance(k, int | np.integer):
            if k > most:
                raise ValueError(
                    f"n_components={k}, and {n} runs with these outputs allow {most} at most: "
                    "lower it, or add runs"
                )
            return int(k)
        total = np.cumsum(parts.explained) / parts.unexplained[0]
        return min(most, 1 + int(np.searchsorted(total, k)))

    def _chosen(
        self, X: Any, reduced: Reduced, parts: Components, seeds: Any
    ) -> tuple[tuple[float, ...], Components]:
        """Shares of the variance that 0, 1, ... components leave, and the components taken.

        Lean models predict the principal components one after another, and then the turned ones:
        these are taken where the squared errors of left-out curves are clearly smaller.
        """
        if self.n_components is None:
            return (), leading(parts, self._most(parts))
        rows = answers.sample_rows(len(parts.scores), COMPONENTS.runs)
        lean = partial(self._fits, _safe_indexing(X, rows), seeds=seeds, base=_lean(self._base()))
        shares, squares = self._search(lean(parts.scores[rows, : self._most(parts)]), parts)
        principal = leading(parts, len(squares))
        if len(squares) == 1:
            return shares, principal
        other = turned(reduced, principal)
        turned_squares = [one.errors**2 for one in lean(other.scores[rows])]
        better = gains(np.sum(squares, axis=0), np.sum(turned_squares, axis=0))
        if self.verbose:
            say(f"the {'turned' if better else 'principal'} components are taken")
        return shares, other if better else principal

    def _search(
        self, fitted: Iterator[Fitted], parts: Components
    ) -> tuple[tuple[float, ...], list[Array]]:
        """Shares that are left, and squared errors (m,) of each component that is taken."""
        if not isinstance(self.n_components, str):
            return (), [one.errors**2 for one in fitted]
        squares: list[Array] = []
        steps: list[float] = []
        shares, inside = [1.0], 0.0
        for one in fitted:
            squares.append(one.errors**2)
            inside += float(squares[-1].mean())
            outside = float(parts.unexplained[len(shares)])
            shares.append((inside + outside) / parts.unexplained[0])
            if self.verbose:
                share = f"{shares[-1]:.3g} of the variance is left"
                say(f"{counted(len(squares), 'component')}: {share}")
            steps.append((shares[-2] - shares[-1]) / min(shares))
            last = steps[-COMPONENTS.useless :]
            if outside <= COMPONENTS.enough * (inside + outside):
                break
            if len(last) == COMPONENTS.useless and max(last) < COMPONENTS.least_gain:
                break
        near = np.array(shares) <= COMPONENTS.near * min(shares)
        return tuple(shares), squares[: max(1, int(np.argmax(near)))]

    def _base(self) -> ManyGPRegressor:
        return ManyGPRegressor() if self.regressor is None else self.regressor

    def _fits(self, X: Any, scores: Array, seeds: Any, base: ManyGPRegressor) -> Iterator[Fitted]:
        """Models of columns of scores, one after another; a batch is fitted side by side."""
        workers, work = n_workers(self.n_jobs), partial(_fit_one, X)
        for first in range(0, scores.shape[1], COMPONENTS.batch):
            places = range(first, min(first + COMPONENTS.batch, scores.shape[1]))
            models = [clone(base).set_params(random_state=int(seeds[i])) for i in places]
            tasks = [(one, scores[:, i]) for one, i in zip(models, places, strict=True)]
            yield from process_map(work, tasks, workers) if workers > 1 else map(work, tasks)

    def _spread(self, X: Any, judge: Judge, seed: int) -> tuple[Any, Any]:
        """A model of what the basis leaves, if it pays, and what left-out curves teach."""
        rows = judge.left.rows
        even = np.ones(len(rows))
        outside = judge.outside(even).sum(axis=0) / len(rows)
        inside = (judge.left.errors**2).mean(axis=0).sum()
        if outside.sum() >= CURVES.local_share * (outside.sum() + inside):
            logs = np.log(np.maximum(judge.sizes(outside), 1e-12))
            one = _fit_one(X, (clone(self._base()).set_params(random_state=seed), logs))
            sizes, local = np.exp(logs[one.rows]), curves.log_normal(one.means, one.std)
            level = float((sizes / local).mean())
            local = level * local
            gain = 0.5 * (sizes - sizes / local - np.log(local))
            if gain.mean() > CURVES.local_gain * gain.std() / np.sqrt(len(gain)):
                return one.model, judge.spread(local, level)
        return None, judge.spread(even)


def _as_many(X: Any, Y: Any) -> Any:
    """Curves Y, as many as runs X."""
    n = _num_samples(X)
    if n != len(Y):
        raise ValueError(f"X has {n} runs, and Y {len(Y)}")
    return Y


def _without_copies(X: Any, Y: Any) -> tuple[Any, Any]:
    """Runs and their curves without those that equal an earlier one in all inputs and outputs.

    Models of components would not agree on which of them are copies.
    """
    curve = [blake2b(np.asarray(one).tobytes()).digest() for one in Y]
    often, seen, kept = Counter(curve), set(), []
    for i, key in enumerate(curve):
        run = repr(np.asarray(_safe_indexing(X, [i])).tolist()) if often[key] > 1 else ""
        if (key, run) not in seen:
            seen.add((key, run))
            kept.append(i)
    if len(kept) == len(curve):
        return X, Y
    copies = counted(len(curve) - len(kept), "run")
    warn(
        f"{copies} that equal others in all inputs and outputs left out: copies tell nothing new. "
        "loo_predict() is of the runs that stay"
    )
    return _safe_indexing(X, kept), Y[kept]


def _lean(base: ManyGPRegressor) -> ManyGPRegressor:
    """The same, but it chooses as little as can be."""
    quick = {
        "trend": "constant",
        "hyperparameters": "shared",
        "overlap": COMPONENTS.overlap,
        "routing": COMPONENTS.routing,
        "noise": "constant",
        "target_transform": None,
    }
    given = base.get_params(deep=False)
    is_auto = {name: isinstance(given[name], str) and given[name] == "auto" for name in quick}
    return clone(base).set_params(**{name: quick[name] for name in quick if is_auto[name]})


def _fit_one(X: Any, task: tuple[ManyGPRegressor, Array]) -> Fitted:
    """A model fitted, and what it says about runs that are left out."""
    model, y = task
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NothingLearnedWarning)
        model.fit(X, y)
    rows, Y, mean, std = answers.left_out_answers(model.model_, CURVES.rows)
    mean = np.ravel(mean)
    return Fitted(model, rows, mean, np.ravel(Y) - mean, np.ravel(std))
