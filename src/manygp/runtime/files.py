"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from os import PathLike
from typing import IO

# Part of the names of temporary files: this machine, and this run of this process.
_MACHINE = socket.gethostname().encode().hex()[-8:]
_RUN = secrets.token_hex(4)
_numbers = count()
# Seconds after which a temporary file of another machine is nobody's.
ABANDONED = 24 * 3600.0


@contextmanager
def replacing(path: str | PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of `path` once all of it is on the disk.

    If that fails, the disk being full for instance, what was there before stays as it was. Until
    it is there nobody can read it who cannot read it then, and what is left of earlier attempts
    whose process was killed is removed.
    """
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):  # a pipe, or /dev/null
        with open(target, "wb") as device:
            yield device
        return
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"there is no folder {folder}: {path} cannot be written")
    _remove_leftovers(target)
    part = f"{target}.{_MACHINE}-{os.getpid()}-{_RUN}-{next(_numbers)}.part"
    mode = stat.S_IMODE(os.stat(target).st_mode) if os.path.exists(target) else None
    try:
        with open(part, "xb", opener=_with_at_most(mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(part, mode)
        os.replace(part, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(part)
        raise
    with suppress(OSError):  # the new name, too, on the disk; not every system can
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _with_at_most(mode: int | None) -> Callable[[str, int], int]:
    """An opener of new files with no more permissions than `mode`, or those of any new file."""
    return lambda path, flags: os.open(path, flags, 0o666 if mode is None else mode & 0o666)


def _remove_leftovers(target: str) -> None:
    """Remove temporary files of a target whose process is gone."""
    with suppress(OSError), os.scandir(os.path.dirname(target)) as entries:
        for entry in entries:
            name = entry.name.removeprefix(os.path.basename(target) + ".")
            if name != entry.name and name.endswith(".part") and _is_nobodys(entry, name):
                with suppress(OSError):
                    os.unlink(entry)


def _is_nobodys(entry: os.DirEntry[str], name: str) -> bool:
    """Whether the process that wrote a temporary file is gone."""
    machine, *rest = name.removesuffix(".part").split("-")
    if len(rest) != 3 or machine != _MACHINE or os.name != "posix":
        return time.time() - entry.stat().st_mtime > ABANDONED
    pid, run, _ = rest
    if pid == str(os.getpid()):
        return run != _RUN  # an earlier process had the same number
    try:
        os.kill(int(pid), 0)  # asks whether it is there
    except (ProcessLookupError, ValueError, OverflowError):
        return True
    except PermissionError:
        return False
    return False


def write_atomically(path: str | PathLike[str], text: str) -> None:
    """Write a text, whole or not at all, also after a crash."""
    with replacing(path) as file:
        file.write(text.encode())
