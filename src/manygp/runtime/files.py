"""Files that are there whole or not at all, and what runs that were killed have left behind."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from os import PathLike
from pathlib import Path
from typing import IO

# Errors of a write that finds no room, and what helps if the work can be resumed.
NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
MAKE_ROOM = "; make room in it, and the same call goes on"
_numbers = count()
# See `own_name`; more may follow.
OWN_NAME = re.compile(r"manygp-([0-9a-f]{16})-(\d+)-(\d+)-\d+(?:-\w+)?")


def own_name() -> str:
    """A new name that tells who gave it: this host since its boot, and this process.

    The parts after `manygp-` are a digest of the host, its boot and the container, the number of
    the process, when that began, and a number of the name.
    """
    pid = os.getpid()
    return f"manygp-{_host() or '0' * 16}-{pid}-{_beginning(pid) or 0}-{next(_numbers)}"


def is_dead(name: str) -> bool:
    """Whether a name is one of `own_name`, and the process that gave it is certainly gone.

    That cannot be known of another host, boot or container, nor where the system has no `/proc`.
    """
    match = OWN_NAME.fullmatch(name)
    if match is None or match[1] != _host():
        return False
    return _beginning(int(match[2])) != int(match[3])


@cache
def _host() -> str | None:
    """A digest of this host, its boot and the container, if the system tells them."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        container = os.readlink("/proc/self/ns/pid")
    except (OSError, ValueError):
        return None
    return hashlib.sha256(f"{socket.gethostname()} {boot} {container}".encode()).hexdigest()[:16]


def _beginning(pid: int) -> int | None:
    """When a process began, in ticks since the boot; None if it is not there any more."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        state, *rest = fields.rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else int(rest[18])


def remove_dead(folder: str | PathLike[str], prefix: str = "", suffix: str = "") -> None:
    """Remove what runs of this user that were killed have left in a folder.

    Parameters
    ----------
    folder : path
    prefix, suffix : str
        What stands before and behind the name of `own_name`.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name.removeprefix(prefix).removesuffix(suffix)
            if f"{prefix}{name}{suffix}" != entry.name or not is_dead(name):
                continue
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid != os.getuid():
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    os.unlink(entry)


def new_temporary_folder() -> Path:
    """A new folder for temporary files; those of runs that were killed are removed."""
    remove_dead(tempfile.gettempdir())
    return Path(tempfile.mkdtemp(prefix=f"{own_name()}-"))


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is removed at the end; what is mapped of it stays."""
    folder = new_temporary_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def naming_full_disk(path: str | PathLike[str], remedy: str = "") -> Iterator[None]:
    """Say what there was no room for, and what to do about it, unless the error does."""
    try:
        yield
    except OSError as error:
        is_clear = error.filename is not None and remedy in (error.strerror or "")
        if error.errno in NO_ROOM and not is_clear:
            raise OSError(error.errno, f"{error.strerror}{remedy}", str(path)) from error
        raise


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
    remove_dead(folder, f"{os.path.basename(target)}.", ".part")
    part = f"{target}.{own_name()}.part"
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


def write_atomically(path: str | PathLike[str], text: str) -> None:
    """Write a text, whole or not at all, also after a crash."""
    with replacing(path) as file:
        file.write(text.encode())
