"""The folder in which the stages of a fit meet: nothing in it is half written."""

from __future__ import annotations

import hashlib
import os
import pickle
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from manygp.arrays import AnyArray
from manygp.runtime.files import replacing

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


def write_arrays(path: Path, **arrays: AnyArray) -> None:
    """Write small arrays, whole or not at all."""
    with replacing(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def read_arrays(path: Path) -> dict[str, AnyArray] | None:
    """What `write_arrays` has written, or None if there is no whole file."""
    try:
        with np.load(path) as found:
            return dict(found)
    except (OSError, ValueError, EOFError, KeyError):
        return None


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
