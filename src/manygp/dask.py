"""Fits and predictions on a Dask cluster (extra `dask`), whatever happens to its workers.

A fit is stages of pure tasks that meet in a folder which all workers see. No task holds on to a
worker: what a lost one had begun, another does again, and the model is the same, bit for bit.
"""

from __future__ import annotations

import atexit
import hashlib
import inspect
import pickle
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import clone

try:
    import dask
    import dask.array
    import distributed
except ImportError as error:
    raise ImportError('manygp.dask needs an extra: pip install "manygp[dask]"') from error

from manygp import answers
from manygp.arrays import Array
from manygp.inputs import check_alpha, training_rows
from manygp.outofcore import training
from manygp.outofcore.blocks import Columns, StoredBlock, store
from manygp.outofcore.engine import Engine
from manygp.outofcore.files import working
from manygp.outofcore.work import WorkFolder
from manygp.regressor import ManyGPRegressor
from manygp.runtime.files import new_temporary_folder, own_name, remove_dead
from manygp.runtime.parallel import single_threaded_blas
from manygp.runtime.progress import shown
from manygp.settings import Settings
from manygp.storage import write_model


@dataclass(frozen=True)
class Patience:
    """Numbers of how long a fit waits for its cluster, and why they are what they are."""

    # Seconds between two looks at the cluster; to connect to it; without any worker; and with
    # workers, but without any task that ends: then the fit stops, and says so.
    look: float = 2.0
    connect: float = 20.0
    without_workers: float = 120.0
    without_progress: float = 3600.0
    # How often a task that was on its way in several workers that died is tried again.
    tries: int = 20


PATIENCE = Patience()

# Models that a worker keeps.
KEPT_MODELS = 2
# The states of a client that has no scheduler any more.
CLOSED = ("closed", "closing")
GOES_ON = "with a work_dir the same call goes on from there"


class DaskEngine:
    """The workers of a cluster.

    Parameters
    ----------
    client : distributed.Client
    """

    def __init__(self, client: distributed.Client) -> None:
        self.client = client

    def map(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], stage: str
    ) -> Iterator[Any]:
        """The results of all tasks, in their order."""
        name = function.__name__
        keys = [f"manygp-{name}-{_digest((function, task))}" for task in tasks]
        functions = [function] * len(tasks)
        return self.results(
            lambda: self.client.map(_run, functions, tasks, key=keys, pure=False), stage
        )

    def results(self, submit: Callable[[], list[Any]], stage: str) -> Iterator[Any]:
        """The results of the tasks that are submitted, in order; every wait has an end."""
        try:
            futures = submit()
        except Exception as error:
            if self.client.status in CLOSED:
                raise _lost(stage) from error
            raise
        watch = _Watch(self.client, futures, stage)
        try:
            for future in futures:
                yield watch.result(future)
        finally:
            if self.client.status == "running":
                with suppress(OSError, TimeoutError):
                    self.client.cancel(futures)


@contextmanager
def connected(address: str) -> Iterator[DaskEngine]:
    """The workers of the scheduler at an address."""
    try:
        client = distributed.Client(address, timeout=PATIENCE.connect, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"there is no Dask scheduler at {address}: {error}") from error
    with client:
        yield DaskEngine(client)


def _run(function: Callable[[Any], Any], task: Any) -> Any:
    with single_threaded_blas():  # digits depend on the number of threads
        return function(task)


def _digest(value: Any) -> str:
    return hashlib.sha256(pickle.dumps(value)).hexdigest()[:32]


class _Watch:
    """Waits for tasks, and looks whether anybody is still there."""

    def __init__(self, client: distributed.Client, futures: list[Any], stage: str) -> None:
        self.client, self.futures, self.stage = client, futures, stage
        self.n_done, self.n_tries = 0, 0
        self.since = self.seen = monotonic()  # the last progress, and the last worker

    def result(self, future: Any) -> Any:
        """The result of a task, when it is there."""
        while True:
            try:
                return future.result(timeout=PATIENCE.look)
            except TimeoutError:
                own = future.exception(timeout=PATIENCE.look) if future.status == "error" else None
                if isinstance(own, TimeoutError):
                    raise
                self._look()
            except distributed.KilledWorker as error:
                self.n_tries += 1
                if self.n_tries > PATIENCE.tries:
                    raise RuntimeError(
                        f"workers died again and again while {self.stage}: {error}; if memory "
                        f"ran out, give them more; {GOES_ON}"
                    ) from error
                future.retry()
            except (CancelledError, OSError) as error:
                if isinstance(error, OSError) and future.status == "error":
                    raise  # the task's own
                raise _lost(self.stage) from error  # which the client may not have noticed yet

    def _look(self) -> None:
        """Stop if the scheduler is gone, or nobody does anything any more."""
        now = monotonic()
        n_done = sum(one.done() for one in self.futures)
        if n_done != self.n_done:
            self.n_done, self.since = n_done, now
        if self.client.status in CLOSED:
            raise _lost(self.stage)
        if self._has_workers():
            self.seen = now
        if now - self.seen > PATIENCE.without_workers:
            raise RuntimeError(
                f"there has been no worker for {PATIENCE.without_workers:g} s while "
                f"{self.stage}; {GOES_ON}"
            )
        if now - self.since > PATIENCE.without_progress:
            raise RuntimeError(
                f"no task has ended in {PATIENCE.without_progress:g} s while "
                f"{self.stage}; {GOES_ON}"
            )

    def _has_workers(self) -> bool:
        with suppress(OSError, TimeoutError, CancelledError):
            return bool(self.client.scheduler_info().get("workers"))  # a lost one has none
        return False


def _lost(stage: str) -> RuntimeError:
    return RuntimeError(f"the scheduler was lost while {stage}; {GOES_ON}")


class Partitions(NamedTuple):
    """A Dask collection as blocks of rows.

    Attributes
    ----------
    pairs : list of (Delayed, Delayed or None)
        Inputs, and targets if they are not columns of the inputs.
    columns : Columns
    target : str or None
    y_names : tuple of str, optional
        Names of several targets.
    """

    pairs: list[tuple[Any, Any]]
    columns: Columns
    target: str | None = None
    y_names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, X: Any, y: Any, target: str | None) -> Partitions:
        """The partitions of inputs and targets, which belong together."""
        if isinstance(X, dask.array.Array):
            return cls._of_arrays(X, y)
        names = tuple(map(str, X.columns))
        if y is not None:
            return cls._of_frames(X, y, names)
        if target not in names:
            raise ValueError(f"target={target!r} is no column; there are {', '.join(names)}")
        inputs = tuple(name for name in names if name != target)
        return cls([(one, None) for one in X.to_delayed()], Columns(inputs), target)

    @classmethod
    def _of_arrays(cls, X: Any, y: Any) -> Partitions:
        if not isinstance(y, dask.array.Array):
            raise ValueError("X is a Dask array: y must be one too")
        if X.ndim != 2:
            raise ValueError(f"Expected 2D array, got {X.ndim}D array instead: reshape X")
        X = X.rechunk({1: X.shape[1]})
        if X.chunks[0] != y.chunks[0]:
            y = y.rechunk({0: X.chunks[0]})
        y = y if y.ndim == 1 else y.rechunk({1: y.shape[1]})
        pairs = list(zip(X.to_delayed().ravel(), y.to_delayed().ravel(), strict=True))
        n_targets = 1 if y.ndim == 1 else int(y.shape[1])
        return cls(pairs, Columns.of(int(X.shape[1]), n_targets))

    @classmethod
    def _of_frames(cls, X: Any, y: Any, names: tuple[str, ...]) -> Partitions:
        if not hasattr(y, "to_delayed"):
            raise ValueError("X is a Dask DataFrame: y must be a Dask Series, DataFrame or array")
        parts, targets = X.to_delayed(), np.ravel(y.to_delayed())
        if len(parts) != len(targets):
            raise ValueError(
                f"X has {len(parts)} partitions and y has {len(targets)}; repartition one of them"
            )
        n_targets = int(y.shape[1]) if y.ndim == 2 else 1
        is_frame = y.ndim == 2 and hasattr(y, "columns")
        y_names = tuple(map(str, y.columns)) if is_frame else None
        name = getattr(y, "name", None) if n_targets == 1 else None
        target = name if isinstance(name, str) else None
        pairs = list(zip(parts, targets, strict=True))
        return cls(pairs, Columns(names, n_targets), target, y_names)

    def numbers(self, X: Any, y: Any) -> Array:
        """The rows of a partition as numbers (N, d + t), by the checks of `ManyGPRegressor`."""
        if y is None:
            frame = _ordered(X, (*self.columns.names, str(self.target)))
            X, y = frame.iloc[:, :-1], frame.iloc[:, -1]
        elif self.columns.named:
            X = _ordered(X, self.columns.names)
        y = y if self.y_names is None else _ordered(y, self.y_names)
        if len(X) == len(y) == 0:
            return np.empty((0, self.columns.width))
        return np.column_stack(training_rows(ManyGPRegressor(), X, y, None))


def _ordered(frame: Any, names: tuple[str, ...]) -> Any:
    """A partition with its columns in this order."""
    own = list(map(str, frame.columns))
    if sorted(own) != sorted(names):
        raise ValueError(f"its columns are {', '.join(own)}; others have {', '.join(names)}")
    if own == list(names):
        return frame
    return frame.iloc[:, [own.index(name) for name in names]]


def _stored(path: str, place: int, partitions: Partitions, X: Any, y: Any) -> int:
    """Write a partition as an array: inputs, then targets."""
    try:
        return store(path, partitions.numbers(X, y))
    except (ValueError, TypeError) as error:
        what = str(error).splitlines()[0]  # not all of its numbers
        raise ValueError(f"partition {place}: {what}") from error


class DaskManyGPRegressor(ManyGPRegressor):
    """`ManyGPRegressor` on a Dask cluster.

    `fit` takes Dask arrays, Dask DataFrames, or the path of Parquet files that all workers see.
    The model does not depend on the number of workers, on what happens to them, or on how the
    rows are cut into chunks; up to a million rows it is that of `ManyGPRegressor`.

    Parameters
    ----------
    kernel : Kernel, default=None
    client : distributed.Client, default=None
        By default the current one. It is never pickled.
    **parameters
        Those of `ManyGPRegressor`.

    Examples
    --------
    >>> from dask.distributed import Client
    >>> from manygp.dask import DaskManyGPRegressor
    >>> client = Client("tcp://scheduler:8786")  # doctest: +SKIP
    >>> model = DaskManyGPRegressor()  # doctest: +SKIP
    >>> model.fit("rows/", target="y", work_dir="/shared/night")  # doctest: +SKIP
    >>> mean, std = model.predict(X, return_std=True)  # lazy  # doctest: +SKIP
    """

    def __init__(self, kernel: Any = None, *, client: Any = None, **parameters: Any) -> None:
        super().__init__(kernel, **parameters)
        self.client = client

    _work_dir: str | PathLike[str] | None = None

    def __sklearn_clone__(self) -> Self:
        own = self._own_parameters().items()
        copies = {name: clone(value, safe=False) for name, value in own}
        return type(self)(**copies, client=self.client)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {**state, "client": None, "_saved": None}  # others may not see the file

    def _own_parameters(self) -> dict[str, Any]:
        """Those of `ManyGPRegressor`."""
        parameters = self.get_params(deep=False)
        del parameters["client"]
        return parameters

    def _settings(self) -> Settings:
        return Settings(**self._own_parameters())

    def _client(self) -> distributed.Client:
        if self.client is not None:
            return self.client
        try:
            return distributed.get_client()
        except ValueError as error:
            raise ValueError(
                "there is no Dask client: create one, dask.distributed.Client(address), or pass it"
            ) from error

    def _engine(self) -> Engine:
        return DaskEngine(self._client())

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        alpha: Any = None,
        groups: Any = None,
        time: Any = None,
        checkpoint: str | PathLike[str] | None = None,
        target: str | None = None,
        work_dir: str | PathLike[str] | None = None,
    ) -> Self:
        """Fit the experts.

        Parameters
        ----------
        X : Dask array or DataFrame of shape (n, d), or path of Parquet files
            Numbers. What is in memory is fitted in memory.
        y : Dask array, Series or DataFrame of shape (n,) or (n, t)
            Cut like X. A DataFrame or a file may have it as a column.
        sample_weight : array-like of shape (n,), optional
            For rows in memory, as in `ManyGPRegressor`; collections and files have none.
        alpha : float, optional
            Known noise variance of these targets; of a file also the name of a column.
        groups, time : array-like of shape (n,), optional
            For rows in memory, as in `ManyGPRegressor`.
        checkpoint : path, optional
            Another name of `work_dir`.
        target : str, optional
            The column of targets of a DataFrame or a file.
        work_dir : path, optional
            A folder that this process and all workers see, with room for the data three times.
            What is finished is kept in it: after a loss the same call goes on from there. By
            default a temporary one, which will do if all workers are on this machine.
        """
        if not dask.is_dask_collection(X):
            given = {"sample_weight": sample_weight, "alpha": alpha, "checkpoint": checkpoint}
            given |= {"groups": groups, "time": time, "target": target, "work_dir": work_dir}
            super().fit(X, y, **given)
            self._work_dir = work_dir or checkpoint
            return self
        if sample_weight is not None:
            raise ValueError(
                "sample_weight is for rows in memory, and X is a Dask collection: write its known "
                "noise into a column of a file (alpha=...), or fit X.compute()"
            )
        if groups is not None or time is not None:
            raise ValueError(
                "groups and time are for rows in memory, and X is a Dask collection: fit "
                "X.compute(), or a sample of it"
            )
        before = self.__dict__.copy()
        try:
            partitions = Partitions.of(X, y, target)
            self._fit_partitions(partitions, alpha, work_dir or checkpoint)
            self._work_dir = work_dir or checkpoint
            return self
        except BaseException:  # an interrupted or failed refit leaves the old model whole
            self.__dict__ = before
            raise

    def _fit_partitions(
        self, partitions: Partitions, alpha: Any, work_dir: str | PathLike[str] | None
    ) -> Self:
        settings, engine = self._settings(), DaskEngine(self._client())
        settings = settings if alpha is None else replace(settings, alpha=alpha)
        with working(work_dir) as folder:
            blocks, sizes = _store_all(partitions, engine, folder)
            if sum(sizes) <= training.OUT_OF_CORE.memory_rows:
                pieces = [piece for block in blocks for piece in block.pieces()]
                rows = np.concatenate([np.empty((0, partitions.columns.width)), *pieces])
                shutil.rmtree(folder / "data", ignore_errors=True)
                kept = None if work_dir is None else folder / "checkpoint"
                return self._fit_few(rows, partitions, alpha, kept)
            job = training.FitJob(
                settings,
                blocks,
                sizes,
                partitions.columns,
                WorkFolder(folder, engine),
                partitions.target,
            )
            model = training.train_blocks(job, self._seed())
            shutil.rmtree(folder / "data", ignore_errors=True)
        return self._become(model)

    def _fit_few(
        self, rows: Array, partitions: Partitions, alpha: Any, folder: Path | None
    ) -> Self:
        """Fit rows that memory holds, as `ManyGPRegressor` does."""
        t, names = partitions.columns.n_targets, partitions.columns.described
        X, Y = np.ascontiguousarray(rows[:, :-t]), np.ascontiguousarray(rows[:, -t:])
        with shown(verbose=self.verbose) as progress:
            self._fit(X, Y[:, 0] if t == 1 else Y, (None, alpha, None, None), folder, progress)
        if isinstance(names, tuple):
            self.feature_names_in_ = np.array(names, dtype=object)
            self._model = replace(self._model, columns=names, target=partitions.target)
        return self

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        *,
        latent: bool = False,
        alpha: Any = 0.0,
        return_mean_grad: bool = False,
        return_std_grad: bool = False,
    ) -> Any:
        """Predict; of a Dask collection lazily, partition by partition.

        Parameters are those of `ManyGPRegressor.predict`; a collection has no joint covariance
        and no gradients, and `alpha` is one number for all of its rows.

        Returns
        -------
        mean, std : Dask arrays, or Series of a DataFrame
            Arrays if X is in memory.
        """
        if not dask.is_dask_collection(X):
            slopes = {"return_mean_grad": return_mean_grad, "return_std_grad": return_std_grad}
            return super().predict(X, return_std, return_cov, latent=latent, alpha=alpha, **slopes)
        if return_cov or return_mean_grad or return_std_grad:
            raise ValueError("a Dask collection has a mean and a std only; ask for return_std")
        given = {"latent": latent, "alpha": _one_alpha(alpha)}
        if return_std:
            return self._lazily(X, "predict", {"return_std": True, **given}, 2)
        return self._lazily(X, "predict", given, 1)[0]

    def predict_interval(self, X: Any, coverage: float = 0.9, *, alpha: Any = 0.0) -> Any:
        """Intervals that hold y with a probability of `coverage`; see `ManyGPRegressor`.

        Returns
        -------
        lower, upper : Dask arrays, or Series of a DataFrame
            Arrays if X is in memory.
        """
        if not dask.is_dask_collection(X):
            return super().predict_interval(X, coverage, alpha=alpha)
        answers.require_coverage(self.model_, coverage)
        given = {"coverage": coverage, "alpha": _one_alpha(alpha)}
        return self._lazily(X, "predict_interval", given, 2)

    def to_local(self) -> ManyGPRegressor:
        """The same model as a plain estimator, which knows no cluster."""
        return ManyGPRegressor(**self._own_parameters())._become(self.model_)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to a file; `manygp.load` gives a plain estimator."""
        self.to_local().save(path)

    def _lazily(self, X: Any, method: str, given: dict[str, Any], n_answers: int) -> Any:
        """Answers of a method for each partition: collections of the kind of X."""
        asked = _Asked(*self._file(), method, given)
        t = self.model_.n_targets
        if isinstance(X, dask.array.Array):
            X = X.rechunk({1: X.shape[1]})
            chunks = (X.chunks[0], (n_answers * t,))
            both = X.map_blocks(asked, dtype=float, chunks=chunks, meta=np.empty((0, 0)))
            parts = [both[:, i * t : (i + 1) * t] for i in range(n_answers)]
            return tuple(one[:, 0] if t == 1 else one for one in parts)
        import pandas

        names = [str(i) for i in range(n_answers * t)]
        meta = pandas.DataFrame(np.empty((0, len(names))), columns=names)
        both = X.map_partitions(_table, asked, names, meta=meta)
        if t == 1:
            return tuple(both[name] for name in names)
        return tuple(both[names[i * t : (i + 1) * t]] for i in range(n_answers))

    def _file(self) -> tuple[str, str]:
        """A file of the model as it is queried now, and the digest of its bytes."""
        model = self.model_
        known = getattr(self, "_saved", None)
        if known is not None and known[0] is model and Path(known[1]).exists():
            return known[1], known[2]
        # Collections that ask it may outlive this estimator.
        if self._work_dir is None:
            folder = new_temporary_folder()
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
        else:
            folder = Path(self._work_dir)
            remove_dead(folder, "asked-", ".manygp")
        path = folder / f"asked-{own_name()}.manygp"
        atexit.register(path.unlink, missing_ok=True)
        write_model(path, replace(model, settings=self._settings()))
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self._saved = model, str(path), digest
        return str(path), digest


def _one_alpha(alpha: Any) -> float:
    """The noise variance of all rows of a collection."""
    if np.ndim(alpha):
        raise ValueError(f"alpha of a Dask collection must be one number; it is {alpha!r}")
    return float(check_alpha(alpha, 1)[0])


def _signature() -> inspect.Signature:
    """The parameters of `ManyGPRegressor`, and the client: what scikit-learn looks at."""
    known = inspect.signature(ManyGPRegressor.__init__)
    client = inspect.Parameter("client", inspect.Parameter.KEYWORD_ONLY, default=None)
    return known.replace(parameters=[*known.parameters.values(), client])


DaskManyGPRegressor.__init__.__signature__ = _signature()  # type: ignore[attr-defined]


def _store_all(
    partitions: Partitions, engine: DaskEngine, folder: Path
) -> tuple[list[StoredBlock], list[int]]:
    """Write all partitions to a folder that workers see: the blocks, and their sizes."""
    place = folder / "data"
    place.mkdir(parents=True, exist_ok=True)
    paths = [str(place / f"{i}.npy") for i in range(len(partitions.pairs))]
    one, described = dask.delayed(_stored, pure=False), partitions._replace(pairs=[])
    tasks = [
        one(path, i, described, X, y)
        for i, (path, (X, y)) in enumerate(zip(paths, partitions.pairs, strict=True))
    ]
    stored = engine.results(lambda: engine.client.compute(tasks), "it stored the partitions")
    sizes = list(stored)
    if not all(Path(path).exists() for path in paths):
        raise FileNotFoundError(f"workers do not see {folder}: name a work_dir that all share")
    firsts = [0, *np.cumsum(sizes).tolist()][:-1]
    return [StoredBlock(*pair) for pair in zip(paths, firsts, strict=True)], sizes


class _Asked(NamedTuple):
    """A question to a model in a file, which a worker loads once."""

    path: str
    digest: str
    method: str
    given: dict[str, Any]

    def __call__(self, X: Any) -> Array:
        """The answers for some rows, side by side: (N, k)."""
        estimator = _loaded(self.path, self.digest)
        if len(X) == 0:
            twice = self.method == "predict_interval" or "return_std" in self.given
            return np.empty((0, (1 + twice) * estimator.model_.n_targets))
        answer = getattr(estimator, self.method)(X, **self.given)
        answers = answer if isinstance(answer, tuple) else (answer,)
        return np.column_stack(answers)


@lru_cache(KEPT_MODELS)
def _loaded(path: str, digest: str) -> ManyGPRegressor:
    """The model in a file; the digest tells it from others of the same name."""
    if not Path(path).exists():
        raise FileNotFoundError(
            f"a worker does not see the model {path}: fit with a work_dir that all workers share"
        )
    return ManyGPRegressor.load(path)


def _table(X: Any, asked: _Asked, names: list[str]) -> Any:
    """The answers for a partition of a DataFrame, with its index."""
    import pandas

    return pandas.DataFrame(asked(X), columns=names, index=X.index)
