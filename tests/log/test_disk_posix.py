"""What only the real disk has: descriptors, locks against other processes, limits."""

import errno
import fcntl
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.broker import page_probe
from ottla.broker.clock import SystemClock
from ottla.broker.ports import THIS_PROCESS
from ottla.broker.posix import PosixDisk, raise_descriptor_limit

HOLD_RECORD_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
HOLD_AS_WE_DO = """
import sys
from ottla.broker.posix import PosixDisk
lock = PosixDisk().lock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("program", [HOLD_RECORD_LOCK, HOLD_AS_WE_DO])
def test_a_lock_of_another_process_is_respected_and_its_holder_named(
    tmp_path: Path, program: str
) -> None:
    """Goal: neither a second Ottla nor Apache Kafka (a record lock) shares a dir with us."""
    path = tmp_path / ".lock"
    path.touch()
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError) as caught:
            PosixDisk().lock(str(path))
        holder.communicate("")

    if sys.platform == "linux":
        assert str(caught.value.strerror).startswith(f"process {holder.pid} (")
    PosixDisk().lock(str(path)).close()


def test_a_lock_ends_though_a_process_that_was_forked_has_the_file(tmp_path: Path) -> None:
    ours = PosixDisk().lock(f"{tmp_path}/.lock")
    forked = os.dup(ours.fileno())  # it shares the open file as well
    ours.close()
    PosixDisk().lock(f"{tmp_path}/.lock").close()
    os.close(forked)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere flock is a record lock, too")
def test_our_lock_keeps_a_record_lock_out(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    ours = PosixDisk().lock(str(path))
    with pytest.raises(BlockingIOError) as caught:
        PosixDisk().lock(str(path))  # closes its descriptor; ours must outlive that
    assert caught.value.strerror == THIS_PROCESS
    probe = (
        "import fcntl, sys\n"
        "try:\n    fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except BlockingIOError:\n    sys.exit(3)\n"
    )
    refused = subprocess.run([sys.executable, "-c", probe, str(path)], check=False)
    ours.close()

    assert refused.returncode == 3


def test_descriptors_are_closed_on_exec(tmp_path: Path) -> None:
    file = PosixDisk().open(str(tmp_path / "f"), create=True)

    assert fcntl.fcntl(file.fileno(), fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    file.close()


def test_a_short_write_goes_on_until_the_kernel_says_why(tmp_path: Path) -> None:
    """Method: the limit on file sizes makes the kernel stop a write in its middle."""
    file = PosixDisk().open(str(tmp_path / "f"), create=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError) as caught:
            file.pwrite(b"x" * 150, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert caught.value.errno == errno.EFBIG
    assert file.pread(200, 0) == b"x" * 100
    file.close()


def test_the_descriptor_limit_is_lifted_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        assert raise_descriptor_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= soft
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_syncing_a_directory_that_is_none_fails(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(OSError) as caught:
        PosixDisk().sync_dir(str(tmp_path / "f"))

    assert caught.value.errno == errno.ENOTDIR


def test_the_clock_counts_milliseconds() -> None:
    clock = SystemClock()

    assert clock.wall_ms() > 1_700_000_000_000
    assert clock.monotonic_ms() <= clock.monotonic_ms()


def test_a_map_outlives_its_file(tmp_path: Path) -> None:
    disk = PosixDisk()
    file = disk.open(str(tmp_path / "f"), create=True)
    file.pwrite(b"abc", 0)
    view = disk.map(file)
    file.close()
    os.unlink(tmp_path / "f")

    assert bytes(view) == b"abc"


@pytest.mark.skipif(not hasattr(os, "SEEK_DATA"), reason="the system tells of no holes")
def test_the_hole_at_the_end_of_a_file_is_told(tmp_path: Path) -> None:
    file = PosixDisk().open(f"{tmp_path}/index", create=True)
    try:
        assert file.written_end() == 0
        file.truncate(10 << 20)
        hole = file.written_end()
        file.pwrite(b"entry", 5 << 20)
        assert (5 << 20) + 5 <= file.written_end() <= file.size()
        # A file system that knows no holes calls all of it written.
        assert hole in (0, 10 << 20)
        file.pwrite(b"last", (10 << 20) - 4)
        assert file.written_end() == 10 << 20
    finally:
        file.close()


def test_room_is_taken_for_all_of_a_file_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "room"
    disk = PosixDisk()
    for _ in range(2):  # of one that is there, for the rest
        disk.allocate(str(path), 1 << 20)
        assert path.stat().st_size == 1 << 20
        assert path.stat().st_blocks * 512 >= 1 << 20
        disk.open(str(path)).truncate(4096)
    assert path.stat().st_blocks * 512 <= 1 << 16


def test_what_was_just_written_is_in_memory(tmp_path: Path) -> None:
    disk = PosixDisk()
    path = str(tmp_path / "file")
    file = disk.open(path, create=True)
    file.pwrite(b"0123456789", 0)

    assert file.read_cached(4, 3) == b"3456"
    file.close()


@pytest.mark.skipif(
    sys.platform != "linux" or tuple(map(int, os.uname().release.split(".")[:2])) < (5, 12),
    reason="only Linux tells what is in memory, since 5.12",
)
def test_a_file_that_was_just_made_is_opened_without_the_disk(tmp_path: Path) -> None:
    disk = PosixDisk()
    path = str(tmp_path / "file")
    written = disk.open(path, create=True)
    written.pwrite(b"0123456789", 0)
    written.close()
    file = disk.open_cached(path)

    assert file is not None
    assert file.pread(10, 0) == b"0123456789"
    file.pwrite(b"x", 0)
    assert fcntl.fcntl(file.fileno(), fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    file.close()
    assert disk.open_cached(str(tmp_path / "another")) is None


def test_where_the_system_cannot_tell_nothing_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(page_probe, "_openat2", lambda: None)

    assert PosixDisk().open_cached(str(tmp_path / "file")) is None


def test_a_file_system_that_cannot_tell_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def preadv(descriptor: int, buffers: list[bytearray], position: int, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, "operation not supported")
        return read(descriptor, buffers, position)

    (tmp_path / "file").write_bytes(b"0123456789")
    file = PosixDisk().open(str(tmp_path / "file"))
    read = os.preadv
    monkeypatch.setattr(os, "preadv", preadv)

    assert file.read_cached(4, 3) == b"3456"
    probe = page_probe.PageProbe()
    assert bytes(probe.read_cached(file.fileno(), 3, 4) or b"") == b"3456"
    assert not probe.can_probe
    assert probe.holds(file.fileno(), 3)
    file.close()


def test_a_system_that_cannot_tell_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    file = PosixDisk().open(str(tmp_path / "file"))
    monkeypatch.setattr(page_probe, "_CAN_PROBE", False)

    assert file.read_cached(4, 3) == b"3456"
    assert bytes(page_probe.PageProbe().read_cached(file.fileno(), 3, 4) or b"") == b"3456"
    file.close()


def test_a_file_is_as_old_as_its_last_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    os.utime(tmp_path / "file", ns=(0, 1_700_000_000_123_456_789))
    file = PosixDisk().open(str(tmp_path / "file"))

    assert file.modified_ms() == 1_700_000_000_123
    file.close()
