"""The simulated disk's other faults, and what it shares with the real one."""

import errno
import gc
from pathlib import Path

import pytest

from ottla.broker.ports import Disk
from ottla.broker.posix import PosixDisk
from ottla.testing.disk import SimDisk


@pytest.fixture(params=["simulated", "real"])
def disk_and_root(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    if request.param == "real":
        return PosixDisk(), str(tmp_path)
    return SimDisk(), ""


def test_both_disks_behave_alike(disk_and_root: tuple[Disk, str]) -> None:
    """Goal: a test that passes on the simulated disk means something for the real one."""
    disk, root = disk_and_root
    disk.make_dir(f"{root}/b")
    disk.make_dir(f"{root}/b")
    file = disk.open(f"{root}/b/f", create=True)
    file.pwrite(memoryview(b"hello"), 3)
    file.sync()
    disk.open(f"{root}/a", create=True).close()
    disk.sync_dir(root or "/")

    assert disk.list(root or "/") == ["a", "b"]
    assert file.size() == 8
    assert file.pread(100, 0) == b"\0\0\0hello"
    assert file.pread(4, 6) == b"lo"
    assert file.pread(4, 8) == b""
    file.truncate(4)
    file.truncate(6)
    assert file.pread(100, 0) == b"\0\0\0h\0\0"
    disk.rename(f"{root}/b/f", f"{root}/a")
    assert disk.list(f"{root}/b") == []
    again = disk.open(f"{root}/a")
    assert again.size() == 6
    disk.remove(f"{root}/a")
    disk.remove(f"{root}/b")
    assert not disk.exists(f"{root}/a")
    assert again.pread(4, 3) == b"h\0\0"  # a reader finishes what it has open
    total, free = disk.space(root or "/")
    assert total >= free > 0
    file.close()
    file.close()
    again.close()


@pytest.mark.parametrize(
    ("make", "use", "number"),
    [
        ("", "open", errno.ENOENT),
        ("", "list", errno.ENOENT),
        ("", "remove", errno.ENOENT),
        ("dir", "open", errno.EISDIR),
        ("file", "list", errno.ENOTDIR),
        ("file", "make_dir", errno.EEXIST),
        ("full dir", "remove", errno.ENOTEMPTY),
    ],
)
def test_both_disks_refuse_alike(
    disk_and_root: tuple[Disk, str], make: str, use: str, number: int
) -> None:
    disk, root = disk_and_root
    path = f"{root}/x"
    if "dir" in make:
        disk.make_dir(path)
    if make == "full dir":
        disk.open(f"{path}/f", create=True).close()
    if make == "file":
        disk.open(path, create=True).close()
    with pytest.raises(OSError) as caught:
        getattr(disk, use)(path)

    assert caught.value.errno == number


def test_a_map_shows_later_writes(disk_and_root: tuple[Disk, str]) -> None:
    disk, root = disk_and_root
    file = disk.open(f"{root}/f", create=True)
    assert len(disk.map(file)) == 0
    file.truncate(8192)
    view = disk.map(file)
    file.pwrite(b"entry", 4096)

    assert view.readonly
    assert len(view) == 8192
    assert bytes(view[4090:4102]) == b"\0" * 6 + b"entry\0"
    del view
    gc.collect()
    file.close()


def test_a_lock_is_held_until_close_and_nothing_is_written(
    disk_and_root: tuple[Disk, str],
) -> None:
    disk, root = disk_and_root
    held = disk.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError) as caught:
        disk.lock(f"{root}/.lock")
    assert "process" in str(caught.value)
    assert held.size() == 0
    held.close()

    disk.lock(f"{root}/.lock").close()


def test_a_map_cut_below_its_size_shows_no_old_entry() -> None:
    disk = SimDisk()
    file = disk.open("/f", create=True)
    file.pwrite(b"x" * 9000, 0)
    view = disk.map(file)
    file.truncate(100)

    assert bytes(view[:100]) == b"x" * 100
    assert set(view[100:4096]) == {0}
    assert set(view[4096:]) == {0xDD}


def test_a_full_disk_takes_what_fits_and_recovers() -> None:
    disk = SimDisk()
    disk.free = 10
    file = disk.open("/f", create=True)
    file.pwrite(b"x" * 8, 0)
    with pytest.raises(OSError) as caught:
        file.pwrite(b"y" * 8, 8)

    assert caught.value.errno == errno.ENOSPC
    assert file.pread(100, 0) == b"x" * 8 + b"yy"
    file.truncate(8)
    file.pwrite(b"z" * 2, 8)
    assert disk.free == 0
    disk.remove("/f")
    assert disk.space("/")[1] == 10


def test_the_nth_call_fails_and_a_write_stops_short() -> None:
    disk = SimDisk()
    file = disk.open("/f", create=True)
    disk.inject("pwrite", errno.ENOSPC, passing=1, written=2)
    file.pwrite(b"aa", 0)
    with pytest.raises(OSError, match="No space left"):
        file.pwrite(b"bbbb", 2)
    file.pwrite(b"cc", 4)

    assert file.pread(100, 0) == b"aabbcc"


def test_reads_fail_only_where_told() -> None:
    disk = SimDisk()
    bad = disk.open("/bad", create=True)
    good = disk.open("/good", create=True)
    disk.inject("pread", errno.EIO, path="/bad", times=2)
    for _ in range(2):
        with pytest.raises(OSError):
            bad.pread(1, 0)

    assert good.pread(1, 0) == bad.pread(1, 0) == b""


def test_rotten_bits_are_silent() -> None:
    disk = SimDisk()
    file = disk.open("/f", create=True)
    file.pwrite(b"abc", 0)
    file.sync()
    disk.corrupt("/f", 1, b"?")

    assert file.pread(3, 0) == b"a?c"


def test_use_after_close_is_an_error_of_ours() -> None:
    file = SimDisk().open("/f", create=True)
    file.close()
    with pytest.raises(AssertionError):
        file.pread(1, 0)


def test_a_pinned_file_closes_when_the_last_pin_is_gone(
    disk_and_root: tuple[Disk, str],
) -> None:
    """Goal: an answer that still sends from a file finishes, whoever closes it meanwhile."""
    disk, root = disk_and_root
    file = disk.open(f"{root}/f", create=True)
    file.pwrite(b"abc", 0)
    file.pin()
    file.pin()
    file.close()
    file.unpin()
    assert file.pread(3, 0) == b"abc"
    file.unpin()

    with pytest.raises((OSError, AssertionError)):
        file.pread(3, 0)
