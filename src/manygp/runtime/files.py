"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from os import PathLike
from typing import IO

try:
    import fcntl
except ImportError:  # Windows, which does not remove a file that somebody writes to
    fcntl = None  # type: ignore[assignment]


def _text(path: str) -> str:
    """What a file of the system says; nothing if there is none."""
    with suppress(OSError), open(path) as file:
        return file.read()
    return ""


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


# Parts of the names of temporary files, which no other program gives: this machine, its start,
# and this run of this process.
_HOST = _short(socket.gethostname() + _text("/etc/machine-id"))
_BOOT = _short(_text("/proc/sys/kernel/random/boot_id"))
_RUN = secrets.token_hex(4)
_NAME = re.compile(r"\.manygp-([0-9a-f]{8})-([0-9a-f]{8})-(\d{1,10})-([0-9a-f]{8})-\d+\.part")
_numbers = count()


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
    remove_leftovers(target)
    part = f"{target}.manygp-{_HOST}-{_BOOT}-{os.getpid()}-{_RUN}-{next(_numbers)}.part"
    mode = stat.S_IMODE(os.stat(target).st_mode) if os.path.exists(target) else None
    try:
        with open(part, "xb", opener=_with_at_most(mode)) as file:
            _lock(file)
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


def remove_leftovers(target: str | PathLike[str]) -> None:
    """Remove temporary files of a target whose writer, of this machine, is certainly gone."""
    folder, name = os.path.split(os.path.realpath(target))
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            marks = _NAME.fullmatch(entry.name.removeprefix(name))
            if marks and entry.name.startswith(name) and _is_gone(*marks.groups()):
                with suppress(OSError), open(entry, "rb") as file:
                    _lock(file)  # that a writer holds as long as it lives, in any container
                    os.unlink(entry)


def _is_gone(host: str, boot: str, pid: str, run: str) -> bool:
    """Whether a process of this machine is certainly gone; of others nobody here knows."""
    if host != _HOST or os.name != "posix":
        return host == _HOST
    if boot != _BOOT:
        return True
    if pid == str(os.getpid()):
        return run != _RUN  # an earlier process had the same number
    try:
        os.kill(int(pid), 0)  # asks whether it is there
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False
    return False


def _lock(file: IO[bytes]) -> None:
    """Lock a file, where the system can; an OSError if another process has."""
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise


def write_atomically(path: str | PathLike[str], text: str) -> None:
    """Write a text, whole or not at all, also after a crash."""
    with replacing(path) as file:
        file.write(text.encode())
