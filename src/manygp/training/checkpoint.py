"""Checkpoints: a folder of finished fits, from which another run goes on after a crash."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import platform
from dataclasses import is_dataclass
from functools import partial
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from manygp.gp.marginal_likelihood import KernelFit
from manygp.kernels.base import Kernel, NoisyKernel, parts_of
from manygp.runtime.files import MAKE_ROOM, naming_full_disk, remove_dead, write_atomically
from manygp.settings import Settings

SCHEMA = 2
IDENTITY = "checkpoint.json"
FITS = "fits.jsonl"
# Parameters that may differ between the run that was interrupted and the one that goes on.
DISREGARDED = ("n_jobs", "verbose")


class Checkpoint:
    """Hyperparameters of the experts that are finished: a line of `fits.jsonl` for each.

    A digest of all that a fit depends on beside the data identifies it. A second run that needs
    the same fit gets the result of the first, digit by digit.

    Parameters
    ----------
    folder : path
        It is created if it is not there.
    identity : dict
        Identity of the data and parameters; a folder of others is refused.
    seed : int
        Seed of this run, if the folder is new.

    Attributes
    ----------
    seed : int
        Seed of the run that began the folder.
    """

    def __init__(self, folder: str | PathLike[str], identity: dict[str, Any], seed: int) -> None:
        self.folder = Path(folder)
        self._fits: dict[str, tuple[list[float], int]] = {}
        try:
            with naming_full_disk(folder, MAKE_ROOM):
                self.folder.mkdir(parents=True, exist_ok=True)
                self.seed = self._open({"schema": SCHEMA, **identity}, seed)
        except FileExistsError as error:
            raise ValueError(f"checkpoint: {folder} is a file, not a folder") from error
        lines = self._lines()
        for line in lines:
            self._read(line)
        if lines and not lines[-1].endswith("\n"):  # the next line begins on its own
            self._append("\n")

    def _open(self, identity: dict[str, Any], seed: int) -> int:
        path = self.folder / IDENTITY
        if not path.exists():
            remove_dead(self.folder, f"{IDENTITY}.", ".part")  # of a run killed at once
            own = (".", f"{IDENTITY}.manygp-")
            if any(not other.name.startswith(own) for other in self.folder.iterdir()):
                raise ValueError(
                    f"checkpoint: {self.folder} holds other files; name an empty or a new folder"
                )
            write_atomically(path, json.dumps({**identity, "seed": seed}, indent=1))
            return seed
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            first = int(stored.pop("seed"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"checkpoint: {path} is damaged; remove {self.folder}") from error
        if stored.get("schema") != SCHEMA:
            raise ValueError(
                f"checkpoint: {self.folder} was begun by another version of manygp "
                f"({stored.get('manygp')}, schema {stored.get('schema')}), whose fits this one "
                "cannot go on from; finish it there, or name another folder"
            )
        for name in dict.fromkeys([*identity, *stored]):
            if identity.get(name) != stored.get(name):
                raise ValueError(
                    f"checkpoint: {self.folder} belongs to another fit: its {name} is "
                    f"{stored.get(name)!r}, not {identity.get(name)!r}; name another folder, or "
                    "remove this one"
                )
        return first

    def _lines(self) -> list[str]:
        path = self.folder / FITS
        if not path.exists():
            return []
        return path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)

    def _read(self, line: str) -> None:
        """Take a line that is whole; one that was cut or altered is fitted again."""
        digest, _, text = line.strip().partition(" ")
        if digest != _digest(text.encode()):
            return
        try:
            match json.loads(text):
                case [str(key), list(values), int(n)] if all(map(_is_value, values)):
                    self._fits[key] = values, n
        except (ValueError, RecursionError):  # no JSON
            return

    def find(self, key: str, kernel: NoisyKernel) -> KernelFit | None:
        """The result of a fit of the kernel, if it is finished."""
        values, n_evaluations = self._fits.get(key, ([], 0))
        if key not in self._fits or len(values) != kernel.n_free:
            return None
        return KernelFit(kernel.with_values(values), n_evaluations)

    def add(self, key: str, fit: KernelFit) -> None:
        """Keep a fit that is finished."""
        self._fits[key] = fit.kernel.values.tolist(), fit.n_evaluations
        text = json.dumps([key, *self._fits[key]])
        self._append(f"{_digest(text.encode())} {text}\n")

    def _append(self, text: str) -> None:
        with (
            naming_full_disk(self.folder, MAKE_ROOM),
            open(self.folder / FITS, "a", encoding="utf-8") as file,
        ):
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


def identity_of(
    settings: Settings, n_rows: int, columns: tuple[str, ...] | int, data: str
) -> dict[str, Any]:
    """What a checkpoint must have in common with a fit; `data` is a digest of the rows."""
    parameters = settings.parameters
    d = columns if isinstance(columns, int) else len(columns)
    parameters["kernel"] = settings.own_kernel(d)
    return {
        **{name: version(name) for name in ("manygp", "numpy", "scipy")},
        "machine": platform.machine(),
        "rows": n_rows,
        "columns": columns if isinstance(columns, int) else list(columns),
        "data": data,
        **{
            name: described(value) for name, value in parameters.items() if name not in DISREGARDED
        },
    }


def key_of(*inputs: Any) -> str:
    """A digest of arrays and of objects whose `repr` is complete."""
    total = hashlib.sha256()
    for one in inputs:
        if isinstance(one, np.ndarray):
            total.update(f"{one.dtype.str}{one.shape}".encode())
            total.update(np.ascontiguousarray(one).reshape(-1).view(np.uint8).data)
        else:
            total.update(repr(one).encode())
        total.update(b"\0")
    return total.hexdigest()[:32]


def described(value: Any) -> Any:
    """A parameter as JSON that tells it from others; functions are known by their names."""
    match value:
        case np.generic():
            return value.item()
        case None | bool() | int() | float() | str():
            return value
        case tuple():
            return [described(one) for one in value]
        case np.ndarray() | list():
            return key_of(np.asarray(value))
        case np.random.RandomState():
            return f"RandomState {key_of(*value.get_state())}"
        case partial():
            parts = (value.func, list(value.args), *value.keywords.items())
            return [described(one) for one in parts]
        case Kernel():
            kinds = {type(getattr(part, "kernel", part)) for part in parts_of(value)}
            return [repr(value), *sorted(_source(kind) for kind in kinds)]
    if is_dataclass(value):
        return repr(value)
    if hasattr(value, "get_params"):  # an estimator of scikit-learn's kind
        return f"{type(value).__module__}.{type(value).__qualname__}{value.get_params()}"
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def _is_value(value: Any) -> bool:
    """Whether it can be a hyperparameter."""
    return isinstance(value, float) and 0 < value < float("inf")


def _source(kind: type) -> str:
    """What a kernel of one's own computes may change between two runs."""
    try:
        return f"{kind.__name__} {_digest(inspect.getsource(kind).encode())}"
    except (OSError, TypeError):  # typed into an interpreter
        return kind.__name__


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
