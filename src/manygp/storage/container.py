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
from collections.abc import Callable
from os import PathLike
from typing import IO, Any

import numpy as np

from manygp.arrays import AnyArray
from manygp.runtime.files import replacing
from manygp.runtime.parallel import physical_memory

# Files of schema 1 are read too.
SCHEMA = 2
TYPES: dict[str, np.dtype[Any]] = {"F64": np.dtype("<f8"), "I32": np.dtype("<i4")}
LONGEST_HEADER = 2**24
# Arrays of the training rows from this size on are mapped, not read: the model may be larger than
# memory. Whoever uses them takes some of the rows.
MAPPED_BYTES = 2**26
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
    mapped = {name for name in ROW_ARRAYS if sizes.get(name, 0) >= MAPPED_BYTES}
    if sum(size for name, size in sizes.items() if name not in mapped) > physical_memory():
        raise ModelFileError("does not fit into memory")
    arrays = {}
    for name, one in described.items():
        read = _mapped_array if name in mapped else _array
        array, checksum = read(file, shapes[name], TYPES[one["dtype"]])
        if checksum != one.get("sha256"):
            raise ModelFileError(f"is damaged: the checksum of {name[:50]!r} does not match")
        arrays[name] = _native(array)
    return manifest, arrays


def _check_length(missing: int) -> None:
    """Refuse a file that is shorter, or longer, than its header says."""
    if missing > 0:
        raise ModelFileError(f"is truncated: its last {missing:,} bytes are missing")
    if missing < 0:
        raise ModelFileError(f"has {-missing:,} bytes too many at its end")


def _native(array: AnyArray) -> AnyArray:
    """The array in the byte order of the machine, read-only."""
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    array.flags.writeable = False
    return array


def _array(file: IO[bytes], shape: Shape, dtype: np.dtype[Any]) -> tuple[AnyArray, str]:
    """The array at the place that a file is read at, and its checksum."""
    one = np.empty(shape, dtype)
    if file.readinto(_bytes(one)) != one.nbytes:  # type: ignore[attr-defined]
        raise ModelFileError("was shortened while it was read")
    return one, hashlib.sha256(_bytes(one)).hexdigest()


def _mapped_array(file: IO[bytes], shape: Shape, dtype: np.dtype[Any]) -> tuple[AnyArray, str]:
    """The same for an array that stays in the file."""
    start, unchanged, checksum = file.tell(), Unchanged(file), hashlib.sha256()
    try:
        mapped = np.memmap(file, dtype, "r", start, shape).view(MappedArray)
    except OSError:  # there is no room in the address space
        raise MemoryError from None
    file.seek(start)
    end = start + mapped.nbytes
    for place in range(start, end, BLOCK_BYTES):
        checksum.update(file.read(min(BLOCK_BYTES, end - place)))
    mapped.unchanged = unchanged
    return mapped, checksum.hexdigest()


class Unchanged:
    """Raises when called after somebody has written to a file, or cut it, in place."""

    def __init__(self, file: IO[bytes]) -> None:
        self.path = os.fspath(file.name)
        self.descriptor = os.dup(file.fileno())  # the file may get another name, or lose it
        self.state = self._state()

    def __del__(self) -> None:
        os.close(self.descriptor)

    def _state(self) -> tuple[int, int]:
        status = os.fstat(self.descriptor)
        return status.st_size, status.st_mtime_ns

    def __call__(self) -> None:
        if self._state() != self.state:
            raise ModelFileError(
                f"{self.path} was overwritten or cut in place after it was loaded: load it again, "
                "and replace model files by renaming, as save does"
            )


class MappedArray(np.memmap[Any, Any]):
    """An array in a file. What is taken from it is a copy, of the file as it was loaded."""

    unchanged: Callable[[], None]

    def __array_finalize__(self, source: Any) -> None:
        super().__array_finalize__(source)
        self.unchanged = getattr(source, "unchanged", lambda: None)

    def __getitem__(self, key: Any) -> Any:
        self.unchanged()  # reading from a file that was cut would kill the process
        taken = np.asarray(self)[key].copy()
        self.unchanged()
        return taken

    def __reduce__(self) -> Any:
        return self[:].__reduce__()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        mapped = [one for one in inputs if isinstance(one, MappedArray)]
        for one in mapped:
            one.unchanged()
        plain = [np.asarray(one) if isinstance(one, MappedArray) else one for one in inputs]
        answer = getattr(ufunc, method)(*plain, **options)
        for one in mapped:
            one.unchanged()
        return answer


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
