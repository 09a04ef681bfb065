"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from typing import IO


@contextmanager
def replacing(path: str | PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of `path` once all of it is on the disk.

    If that fails, the disk being full for instance, what was there before stays as it was.
    """
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):  # a pipe, or /dev/null
        with open(target, "wb") as device:
            yield device
        return
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"there is no folder {folder}: {path} cannot be written")
    part = f"{target}.{secrets.token_hex(4)}.part"
    try:
        with open(part, "xb") as file:  # with the permissions that a new file has
            yield file
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(target):
            os.chmod(part, stat.S_IMODE(os.stat(target).st_mode))
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


def write_atomically(path: str | PathLike[str], text: str) -> None:
    """Write a text, whole or not at all, also after a crash."""
    with replacing(path) as file:
        file.write(text.encode())
