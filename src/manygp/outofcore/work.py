"""The folder in which the stages of a fit meet: nothing in it is half written or done twice."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Iterable
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manygp.arrays import AnyArray
from manygp.outofcore.engine import Engine
from manygp.runtime.files import replacing

Arrays = dict[str, AnyArray]

# Objects of other tasks that a process keeps.
KEPT_OBJECTS = 4


class Token(NamedTuple):
    """An object in a file that all tasks of a stage need: its path, and the digest of its bytes.

    Tasks know the digest from the driver, so that no other file is unpickled.
    """

    path: str
    digest: str

    def get(self) -> Any:
        """The object; a process reads it once."""
        return _read(self)


def put(folder: Path, name: str, value: Any) -> Token:
    """Write an object for the tasks of a stage."""
    data = pickle.dumps(value, protocol=5)
    digest = hashlib.sha256(data).hexdigest()
    path = folder / f"{name}-{digest[:16]}"
    if not path.exists():
        with replacing(path) as file:
            file.write(data)
    return Token(str(path), digest)


@lru_cache(KEPT_OBJECTS)
def _read(token: Token) -> Any:
    try:
        data = Path(token.path).read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"a worker does not see {token.path}: name a work_dir that all workers share"
        ) from None
    if hashlib.sha256(data).hexdigest() != token.digest:
        raise ValueError(f"{token.path} was altered; remove its folder and fit again")
    return pickle.loads(data)


class StageTask(NamedTuple):
    """A task of a stage: its own arguments, what all tasks share, and the file of its result."""

    arguments: tuple[Any, ...]
    shared: Token
    output: str


StageFunction = Callable[[StageTask], Arrays]


def stage(compute: Callable[[Any, StageTask], Arrays]) -> StageFunction:
    """A function of a task whose result is kept in its file, and read from there next time."""

    @wraps(compute)
    def run(task: StageTask) -> Arrays:
        done = Path(task.output)
        try:
            with np.load(done) as known:
                return dict(known)
        except (OSError, ValueError, EOFError, KeyError):  # no file, or one that was altered
            result = compute(task.shared.get(), task)
        with replacing(done) as file:
            np.savez(file, **result)  # type: ignore[arg-type]
        return result

    return run


class WorkFolder(NamedTuple):
    """A folder that all workers see, and what runs the tasks."""

    path: Path
    engine: Engine

    def subfolder(self, name: str) -> Path:
        """A folder within it, which is made if it is not there."""
        folder = self.path / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def tasks(
        self, function: StageFunction, shared: Any, arguments: Iterable[tuple[Any, ...]]
    ) -> list[StageTask]:
        """The tasks of a stage, one for each tuple of arguments; `shared` is for all of them."""
        name = function.__name__
        token = put(self.subfolder("tasks"), name, shared)
        done = self.subfolder(f"tasks/{name}-{token.digest[:16]}.done")
        return [StageTask(own, token, str(done / str(i))) for i, own in enumerate(arguments)]

    def run(self, function: StageFunction, tasks: list[StageTask], what: str) -> list[Arrays]:
        """The results of tasks, in their order; `what` says for messages what they do."""
        return list(self.engine.map(function, tasks, what))


def joined(results: list[Arrays], name: str) -> AnyArray:
    """An array of all results, one behind the other."""
    return np.concatenate([one[name] for one in results])


def bounds_of(sizes: npt.ArrayLike) -> AnyArray:
    """Where pieces of these sizes (k,) begin that lie one behind the other, and end: (k + 1,)."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


class RowFile(NamedTuple):
    """A file of n rows of one array, of which tasks write pieces.

    Attributes
    ----------
    path : str
    shape : tuple of int
    dtype : str
    """

    path: str
    shape: tuple[int, ...]
    dtype: str = "<f8"

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape[1:], dtype=np.int64)) * np.dtype(self.dtype).itemsize

    def create(self) -> None:
        """Take the room on the disk: if there is none, that is an error now and not later."""
        size = max(1, self.shape[0] * self.row_bytes)
        with open(self.path, "ab") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)

    def write(self, start: int, rows: AnyArray) -> None:
        """Write rows from a place on; to write them again changes nothing."""
        data = np.ascontiguousarray(rows, dtype=self.dtype)
        with open(self.path, "r+b") as file:
            file.seek(start * self.row_bytes)
            file.write(data.tobytes())
            file.flush()
            os.fsync(file.fileno())

    def mapped(self) -> AnyArray:
        """The whole array, mapped into memory."""
        return np.asarray(np.memmap(self.path, self.dtype, "r", shape=self.shape))
