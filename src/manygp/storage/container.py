"""One file of a JSON manifest and plain arrays, in which every changed bit is noticed.

The layout is that of the safetensors format, so that its readers open the file too: the length
of the header in 8 bytes, a header in JSON (type, shape and place of each array, and as metadata
the manifest and its checksum), and the arrays one after the other. Nothing in it can be executed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from os import PathLike
from typing import IO, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from manygp.arrays import AnyArray
from manygp.runtime.files import replacing
from manygp.runtime.parallel import physical_memory

# Files of schema 1 are read too.
SCHEMA = 2
TYPES: dict[str, np.dtype[Any]] = {"F64": np.dtype("<f8"), "I32": np.dtype("<i4")}
LONGEST_HEADER = 2**24
# Arrays of the training rows from this size on are left in the file: the model may be larger than
# memory. Whoever uses them takes some of the rows.
LEFT_BYTES = 2**26
# Rows are counted in 32 bits: no model has more, and none is read in search of them.
MOST_ROWS = 2**31
# Bytes between two rows of an array in a file up to which one read for both is quicker than two.
GAP_BYTES = 2**13
ROW_ARRAYS = (
    "X", "y", "alpha", "spread", "order", "trend_fitted", "trend_shift", "trend_growth",
)  # fmt: skip
BLOCK_BYTES = 2**22


Shape = tuple[int, ...]


class ModelFileError(ValueError):
    """A model file that is damaged, altered, too new, or none at all."""


def write(
    path: str | PathLike[str], manifest: dict[str, Any], arrays: dict[str, AnyArray]
) -> None:
    """Write a file that is there whole or not at all.

    Parameters
    ----------
    path : path
    manifest : dict
        Plain JSON. The schema, and checksums of the arrays, are added to it.
    arrays : dict of ndarray
        Of float64 or int32, with at most two axes.
    """
    codes = {dtype: code for code, dtype in TYPES.items()}
    stored = {
        name: np.ascontiguousarray(one, dtype=one.dtype.newbyteorder("<"))
        for name, one in arrays.items()
    }
    described = {
        name: {
            "dtype": codes[one.dtype],
            "shape": list(one.shape),
            "sha256": hashlib.sha256(_bytes(one)).hexdigest(),
        }
        for name, one in stored.items()
    }
    text = json.dumps({"schema": SCHEMA, **manifest, "arrays": described}, allow_nan=False)
    header = _header(text, described)
    if len(header) > LONGEST_HEADER:
        raise ValueError("the names of its columns are too long for a model file")
    with replacing(path) as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for one in stored.values():
            file.write(_bytes(one))


def read(path: str | PathLike[str]) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """The manifest, and the arrays, read-only.

    It allocates no more memory than the file is long, whatever the file claims.

    Raises
    ------
    ModelFileError
        Saying what is wrong with the file.
    """
    try:
        with open(path, "rb", opener=_open) as file:
            return _read(file)
    except IsADirectoryError:
        raise ModelFileError(f"{os.fspath(path)} is a folder, not a model file") from None
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)} {error}") from None
    except MemoryError:
        raise ModelFileError(f"{os.fspath(path)} does not fit into memory") from None


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe would wait for a writer


def _read(file: IO[bytes]) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError("is not a file")
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= min(LONGEST_HEADER, status.st_size - 8):
        raise ModelFileError("is not a model file of manygp, or only the beginning of one")
    header = file.read(length)
    manifest = _manifest(header)
    described = manifest["arrays"]
    shapes = {name: _shape(one) for name, one in described.items()}
    items = {name: TYPES[one["dtype"]].itemsize for name, one in described.items()}
    sizes = {name: math.prod(shape) * items[name] for name, shape in shapes.items()}
    _check_length(8 + length + sum(sizes.values()) - status.st_size)
    _check_rows(shapes)
    left = {name for name in ROW_ARRAYS if sizes.get(name, 0) >= LEFT_BYTES}
    if sum(size for name, size in sizes.items() if name not in left) > physical_memory():
        raise ModelFileError("does not fit into memory")
    arrays = {}
    for name, one in described.items():
        array, checksum = _array(file, shapes[name], TYPES[one["dtype"]], stays=name in left)
        if checksum != one.get("sha256"):
            raise ModelFileError(f"is damaged: the checksum of {name[:50]!r} does not match")
        arrays[name] = array
    return manifest, arrays


def _check_rows(shapes: dict[str, Shape]) -> None:
    """Refuse arrays of more rows than there can be."""
    if any(shapes[name][0] >= MOST_ROWS for name in ROW_ARRAYS if name in shapes):
        raise ModelFileError("has more rows than a model can have")


def _check_length(missing: int) -> None:
    """Refuse a file that is shorter, or longer, than its header says."""
    if missing > 0:
        raise ModelFileError(f"is truncated: its last {missing:,} bytes are missing")
    if missing < 0:
        raise ModelFileError(f"has {-missing:,} bytes too many at its end")


def _array(file: IO[bytes], shape: Shape, dtype: np.dtype[Any], *, stays: bool) -> tuple[Any, str]:
    """The array at the place that a file is read at, read-only, and its checksum.

    One that `stays` is left in the file.
    """
    if stays:
        left = ArrayInFile(file, shape, dtype)
        file.seek(left.start + left.row_bytes * len(left))
        return left, left.checksum()
    one = np.empty(shape, dtype)
    if file.readinto(_bytes(one)) != one.nbytes:  # type: ignore[attr-defined]
        raise ModelFileError("was shortened while it was read")
    native = one.astype(one.dtype.newbyteorder("="), copy=False)
    native.flags.writeable = False
    return native, hashlib.sha256(_bytes(one)).hexdigest()


class ArrayInFile(NDArrayOperatorsMixin):
    """An array that stays in its file. What is taken from it is read then, and is in memory.

    It is read, not mapped: a file that is cut would kill a process that has mapped it. Somebody
    who writes to the file, or cuts it, in place makes all further answers an error.

    Parameters
    ----------
    file : binary file
        Open, at the place where the array begins.
    shape : tuple of int
    dtype : dtype
        As in the file.
    """

    def __init__(self, file: IO[bytes], shape: Shape, dtype: np.dtype[Any]) -> None:
        self.path, self.start = os.fspath(file.name), file.tell()
        self.descriptor = os.dup(file.fileno())  # the file may get another name, or lose it
        self.state = self._state()
        self.shape, self.ndim, self.size = shape, len(shape), math.prod(shape)
        self.stored, self.dtype = dtype, dtype.newbyteorder("=")
        self.row_bytes = math.prod(shape[1:]) * dtype.itemsize

    def __del__(self) -> None:
        os.close(self.descriptor)

    def _state(self) -> tuple[int, int]:
        status = os.fstat(self.descriptor)
        return status.st_size, status.st_mtime_ns

    def checksum(self) -> str:
        """That of all of its bytes, a block at a time."""
        total, step = hashlib.sha256(), max(1, BLOCK_BYTES // max(1, self.row_bytes))
        for first in range(0, len(self), step):
            total.update(self._read(first, min(first + step, len(self)), "while it was read"))
        return total.hexdigest()

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        rows, *columns = key if isinstance(key, tuple) else (key,)
        if isinstance(rows, slice):
            first, end, step = rows.indices(len(self))
            if step == 1:
                return self._between(first, max(first, end))[(slice(None), *columns)]
            rows = np.arange(first, end, step)
        wanted = np.asarray(rows)
        if wanted.dtype == bool:
            wanted = np.flatnonzero(wanted)
        wanted = np.where(wanted < 0, wanted + len(self), wanted).astype(np.intp)
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < len(self):
            raise IndexError(f"there are {len(self)} rows")
        taken = self._some(wanted.ravel()).reshape(wanted.shape + self.shape[1:])
        return taken[(*(slice(None) for _ in wanted.shape), *columns)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        return self[:].astype(dtype or self.dtype, copy=False)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [one[:] if isinstance(one, ArrayInFile) else one for one in inputs]
        return getattr(ufunc, method)(*plain, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("descriptor", "stored"):
            raise AttributeError(name)
        return getattr(self[:], name)  # sums and the like are those of a copy

    def __reduce__(self) -> Any:
        return self[:].__reduce__()

    def _some(self, rows: AnyArray) -> AnyArray:
        """Copies of some rows (N,), of which those that are near each other are read at once."""
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        near = max(1, GAP_BYTES // max(1, self.row_bytes))
        taken = np.empty((len(rows), *self.shape[1:]), self.dtype)
        for run in np.split(np.arange(len(rows)), 1 + np.flatnonzero(np.diff(ordered) > near)):
            if len(run):
                first = ordered[run[0]]
                whole = self._between(int(first), int(ordered[run[-1]]) + 1)
                taken[order[run]] = whole[ordered[run] - first]
        return taken

    def _between(self, first: int, end: int) -> AnyArray:
        """Rows from one to before another."""
        values = np.frombuffer(self._read(first, end), self.stored)
        return values.reshape(end - first, *self.shape[1:]).astype(self.dtype)

    def _read(self, first: int, end: int, when: str = "after it was loaded") -> bytearray:
        """The bytes of rows."""
        taken = bytearray((end - first) * self.row_bytes)
        view, place = memoryview(taken), self.start + first * self.row_bytes
        while view:
            count = os.preadv(self.descriptor, [view], place)
            if count == 0:
                break
            view, place = view[count:], place + count
        if len(view) or self._state() != self.state:
            raise ModelFileError(
                f"{self.path} was overwritten or cut in place {when}: load it again, and replace "
                "model files by renaming, as save does"
            )
        return taken


def _bytes(array: AnyArray) -> Any:
    """The bytes of an array, in place."""
    return array.reshape(-1).view(np.uint8).data


def _manifest(header: bytes) -> dict[str, Any]:
    """The manifest in a header, if that is what `write` would have written for it."""
    try:
        metadata = json.loads(header)["__metadata__"]
        text = metadata["manifest"]
        known, whole = metadata["format"] == "manygp", metadata["sha256"] == _checksum(text)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        known = False
    if not known:
        raise ModelFileError("is not a model file of manygp, or its header is damaged")
    if not whole:
        raise ModelFileError("is damaged: the checksum of its manifest does not match")
    try:
        manifest = json.loads(text)
        schema = manifest["schema"]
        if type(schema) is int and schema > SCHEMA:
            raise ModelFileError(
                f"was written by a newer manygp (schema {schema}; this one reads up to {SCHEMA}):"
                ' upgrade with pip install -U "manygp"'
            )
        plain = text == json.dumps(manifest, allow_nan=False)  # no key is there twice, no NaN
        known = type(schema) is int and schema > 0 and plain
        whole = header == _header(text, manifest["arrays"])
    except ModelFileError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        known = False
    if not (known and whole):
        raise ModelFileError("is damaged: its header is not that of a model")
    return dict(manifest)


def _shape(described: Any) -> tuple[int, ...]:
    shape = described["shape"]
    plain = isinstance(shape, list) and all(type(n) is int and 0 <= n < 2**48 for n in shape)
    if not plain or not 1 <= len(shape) <= 2:
        raise ModelFileError(f"is damaged: an array cannot have the shape {str(shape)[:50]}")
    return tuple(shape)


def _header(text: str, described: dict[str, Any]) -> bytes:
    """The header of a manifest and the arrays that it describes, a multiple of 8 bytes long."""
    metadata = {"format": "manygp", "sha256": _checksum(text), "manifest": text}
    header: dict[str, Any] = {"__metadata__": metadata}
    start = 0
    for name, one in described.items():
        end = start + math.prod(_shape(one)) * TYPES[one["dtype"]].itemsize
        place = [start, end]
        header[name] = {"dtype": one["dtype"], "shape": one["shape"], "data_offsets": place}
        start = end
    encoded = json.dumps(header).encode()
    return encoded + b" " * (-len(encoded) % 8)


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
