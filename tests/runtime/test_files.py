"""Files are there whole or not at all, whatever goes wrong on the way."""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest

from manygp.runtime import files
from manygp.runtime.files import is_dead, own_name, replacing, write_atomically
from manygp.storage import container
from waiting import wait_until

OLD = b"what was there before"


def save(path):
    """A model file of more bytes than any buffer holds."""
    container.write(path, {"what": "a test"}, {"numbers": np.arange(30_000.0)})


@pytest.fixture
def target(tmp_path):
    """The path of a file in a folder of its own."""
    path = tmp_path / "folder" / "model.gp"
    path.parent.mkdir()
    path.write_bytes(OLD)
    return path


def untouched(path):
    """The old file is there bit for bit, and no other."""
    return path.read_bytes() == OLD and os.listdir(path.parent) == [path.name]


def test_a_file_takes_the_place_of_the_old_one(target):
    write_atomically(target, "grüße\n")
    assert target.read_bytes() == "grüße\n".encode()
    assert os.listdir(target.parent) == ["model.gp"]
    with replacing(str(target)) as file:
        file.write(b"1")
        assert target.read_bytes() == "grüße\n".encode()  # not before all of it is there
    assert target.read_bytes() == b"1"


def test_a_relative_path_will_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_atomically("model.gp", "here")
    assert (tmp_path / "model.gp").read_text() == "here"


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_permissions_are_those_of_the_old_file_or_of_any_new_one(target, umask):
    target.chmod(0o640)
    before = os.umask(umask)
    try:
        save(target)
        save(target.with_name("new.gp"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert stat.S_IMODE(target.with_name("new.gp").stat().st_mode) == 0o666 & ~umask


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("name", ["fsync", "replace", "chmod"])
def test_a_full_disk_leaves_the_old_file(target, monkeypatch, name):
    monkeypatch.setattr(os, name, full)
    with pytest.raises(OSError, match="No space left"):
        save(target)
    assert untouched(target)


def test_a_full_disk_leaves_nothing_where_nothing_was(target, monkeypatch):
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(target.with_name("new.gp"))
    assert untouched(target)


LIMITED = """
import resource, sys
import numpy as np
from manygp.storage import container
for limit in sys.argv[2:]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
    try:
        container.write(sys.argv[1], {"what": "a test"}, {"numbers": np.arange(30_000.0)})
    except OSError as error:
        print(error.strerror)
"""


def test_a_disk_that_fills_up_on_the_way_leaves_the_old_file(target, tmp_path):
    save(tmp_path / "whole")
    size = (tmp_path / "whole").stat().st_size
    limits = [0, 1, 100_000, size - 1]  # at once, within a buffer, in the midst, at the end
    command = [sys.executable, "-c", LIMITED, str(target), *map(str, limits)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "File too large\n" * 4
    assert untouched(target)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, MemoryError])
def test_an_interrupt_on_the_way_leaves_the_old_file(target, monkeypatch, interrupt):
    calls = iter(range(10))

    def bytes_of(array):
        if next(calls):  # the first is for the checksum, the second in the midst of the file
            raise interrupt
        return container_bytes(array)

    container_bytes = container._bytes
    monkeypatch.setattr(container, "_bytes", bytes_of)
    with pytest.raises(interrupt):
        save(target)
    assert untouched(target)


def test_an_interrupt_of_the_last_step_leaves_the_old_file(target, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(target)
    assert untouched(target)


def test_bytes_are_on_the_disk_before_the_name_is(target, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace

    def spy_fsync(descriptor):
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        size = 0 if folder else os.fstat(descriptor).st_size
        calls.append("folder" if folder else f"{size} bytes")
        return fsync(descriptor)

    def spy_replace(*paths):
        calls.append("rename")
        return replace(*paths)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "replace", spy_replace)
    save(target)
    assert calls == [f"{target.stat().st_size} bytes", "rename", "folder"]


def test_a_system_that_cannot_sync_folders_is_forgiven(target, monkeypatch):
    fsync = os.fsync

    def files_only(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "folders cannot be synced")
        return fsync(descriptor)

    monkeypatch.setattr(os, "fsync", files_only)
    save(target)
    assert container.read(target)[0]["what"] == "a test"


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere: .*model\.gp"):
        save(tmp_path / "nowhere" / "model.gp")
    assert os.listdir(tmp_path) == []


def test_a_file_where_the_folder_should_be_is_named(target):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*model\.gp"):
        save(target / "model.gp")
    assert untouched(target)


def test_a_folder_is_not_replaced(target):
    with pytest.raises(IsADirectoryError):
        save(target.parent)
    assert untouched(target)


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_a_link(target, tmp_path, exists):
    link = tmp_path / "link.gp"
    link.symlink_to("folder/model.gp")
    if not exists:
        target.unlink()
    save(link)
    assert link.is_symlink()
    assert not target.is_symlink()
    assert container.read(link)[0] == container.read(target)[0]
    assert sorted(os.listdir(tmp_path)) == ["folder", "link.gp"]
    assert os.listdir(target.parent) == ["model.gp"]


def test_a_device_is_written_to_and_not_replaced():
    save("/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()), daemon=True)
    reader.start()
    save(pipe)
    reader.join(10)
    save(tmp_path / "file")
    assert received == [(tmp_path / "file").read_bytes()]
    assert pipe.is_fifo()


def test_of_many_writers_one_wins_whole(target):
    texts = [str(i) * 100_000 for i in range(8)]
    barrier = threading.Barrier(8)

    def write(text):
        barrier.wait(10)
        for _ in range(5):
            write_atomically(target, text)

    threads = [threading.Thread(target=write, args=[text]) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert target.read_text() in texts
    assert os.listdir(target.parent) == ["model.gp"]


# While it is written


@pytest.mark.parametrize(("mode", "umask"), [(0o600, 0o022), (0o640, 0o000), (0o444, 0o022)])
def test_nobody_can_read_a_file_being_written_who_cannot_read_it_then(target, mode, umask):
    target.chmod(mode)
    before = os.umask(umask)
    try:
        with replacing(target) as file:
            now = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            file.write(b"secret")
    finally:
        os.umask(before)
    assert now & ~mode == 0
    assert stat.S_IMODE(target.stat().st_mode) == mode
    assert target.read_bytes() == b"secret"


KILLED = """
import os, sys
from manygp.runtime.files import replacing
with replacing(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), 9)
"""


def test_what_a_killed_save_has_left_is_removed_by_the_next(target):
    assert subprocess.run([sys.executable, "-c", KILLED, str(target)]).returncode == -9
    assert len(os.listdir(target.parent)) == 2
    save(target.with_name("other.gp"))  # not its business
    target.with_name("other.gp").unlink()
    assert len(os.listdir(target.parent)) == 2
    save(target)
    assert os.listdir(target.parent) == ["model.gp"]


ANOTHER = """
import sys
from manygp.runtime.files import write_atomically
write_atomically(sys.argv[1], "x")
"""


def test_what_is_being_written_is_not_removed(target):
    with replacing(target) as file:
        file.write(b"first")
        save(target)  # this process
        subprocess.run(
            [sys.executable, "-c", ANOTHER, str(target)], check=True
        )  # another one, while this one lives
        assert target.read_bytes() == b"x"
    assert target.read_bytes() == b"first"
    assert os.listdir(target.parent) == ["model.gp"]


@pytest.fixture
def dead():
    """The name that a process has given which is gone."""
    command = [sys.executable, "-c", "from manygp.runtime.files import *; print(own_name())"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_only_names_of_ours_whose_process_is_gone_are_dead(dead):
    assert is_dead(dead)
    assert is_dead(f"{dead}-random0")
    assert not is_dead(own_name())
    first, host, pid, begun, number = own_name().split("-")
    assert is_dead("-".join([first, host, pid, str(int(begun) - 1), number]))  # its number again
    elsewhere = "-".join([first, "0" * 16, *dead.split("-")[2:]])  # another host, boot, container
    for name in (elsewhere, dead[:-2], f"{dead}.txt", f"x{dead}", "manygp-abc", ""):
        assert not is_dead(name)


def test_a_process_that_was_killed_and_not_yet_waited_for_is_gone():
    code = "from manygp.runtime.files import *; print(own_name(), flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        name = process.stdout.readline().strip()
        assert not is_dead(name)
        process.kill()
        wait_until(lambda: is_dead(name))


def test_where_the_system_does_not_tell_nothing_is_dead(dead, monkeypatch):
    monkeypatch.setattr(files, "_host", lambda: None)
    assert not is_dead(dead)
    assert not is_dead(own_name())


def test_files_of_others_beside_a_target_stay(target, dead):
    others = ["model.gp.1234abcd.part", "model.gp.elsewhere-1-aa-0.part", "model.gp.part", dead]
    for name in (*others, f"model.gp.{dead}.part"):
        target.with_name(name).touch()
        os.utime(target.with_name(name), (0, 0))
    save(target)
    assert sorted(os.listdir(target.parent)) == sorted([*others, "model.gp"])


def test_temporary_folders_of_killed_runs_are_removed_by_the_next(tmp_path, monkeypatch, dead):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = "from manygp.runtime.files import *\nwith temporary_folder(): os.kill(os.getpid(), {})"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    for number in (signal.SIGKILL, signal.SIGTERM):
        command = [sys.executable, "-c", code.format(int(number))]
        assert subprocess.run(command, env=environment).returncode == -number
    others = tmp_path / "manygp-others"
    others.mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (tmp_path / dead).symlink_to(outside)
    assert len(os.listdir(tmp_path)) == 4
    with files.temporary_folder() as folder:
        assert sorted(os.listdir(tmp_path)) == sorted([folder.name, "manygp-others", "outside"])
        with files.temporary_folder():
            assert folder.exists()
    assert sorted(os.listdir(tmp_path)) == ["manygp-others", "outside"]
    assert os.listdir(outside) == ["kept"]


def test_a_full_disk_is_named_once(tmp_path):
    def fill(remedy=""):
        with files.naming_full_disk(tmp_path, remedy):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left on device: ") as found:
        fill()
    assert found.value.filename == str(tmp_path)
    with (
        pytest.raises(OSError, match="device; make room in it, and the same call goes on: "),
        files.naming_full_disk(tmp_path, files.MAKE_ROOM),
    ):
        fill(files.MAKE_ROOM)
