"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
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
    part = tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False)  # noqa: SIM115
    try:
        with part:
            yield part.file
            part.flush()
            os.fsync(part.fileno())
        os.chmod(part.name, 0o644)  # a temporary file is private
        os.replace(part.name, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(part.name)
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
