"""What a crash leaves on the simulated disk: the rules that every recovery test stands on."""

import errno
import random

import pytest

from ottla.broker.ports import Disk
from ottla.testing.disk import SimCrash, SimDisk
from ottla.testing.platter import CrashMode

POWER_LOSS = [mode for mode in CrashMode if mode is not CrashMode.PROCESS]


def outcomes(disk: SimDisk, mode: CrashMode, count: int = 200) -> list[SimDisk]:
    return [disk.crash(random.Random(seed), mode) for seed in range(count)]


def content(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    return file.pread(file.size(), 0)


def durable_file(path: str = "/f", data: bytes = b"") -> SimDisk:
    disk = SimDisk()
    file = disk.open(path, create=True)
    if data:
        file.pwrite(data, 0)
    file.sync()
    disk.sync_dir("/")
    return disk


@pytest.mark.parametrize("mode", list(CrashMode))
def test_what_was_synced_survives_every_crash(mode: CrashMode) -> None:
    disk = durable_file(data=b"x" * 5000)

    for after in outcomes(disk, mode, 20):
        assert content(after, "/f") == b"x" * 5000


def test_a_synced_file_without_a_synced_name_may_vanish() -> None:
    disk = SimDisk()
    file = disk.open("/f", create=True)
    file.pwrite(b"x", 0)
    file.sync()

    assert {after.exists("/f") for after in outcomes(disk, CrashMode.SUBSET)} == {True, False}


def test_a_lost_directory_takes_its_synced_content_with_it() -> None:
    disk = SimDisk()
    disk.make_dir("/d")
    file = disk.open("/d/f", create=True)
    file.sync()
    disk.sync_dir("/d")

    assert {after.exists("/d/f") for after in outcomes(disk, CrashMode.SUBSET)} == {True, False}


def test_a_rename_leaves_the_old_name_the_new_one_or_both_but_never_neither() -> None:
    disk = durable_file("/old", b"data")
    disk.rename("/old", "/new")

    left = {tuple(after.list("/")) for after in outcomes(disk, CrashMode.SUBSET)}

    assert left == {("old",), ("new",), ("new", "old")}


def test_a_rename_over_a_file_leaves_the_old_content_or_the_new() -> None:
    disk = durable_file("/f", b"old")
    temporary = disk.open("/f.tmp", create=True)
    temporary.pwrite(b"new", 0)
    temporary.sync()
    disk.rename("/f.tmp", "/f")

    for mode in POWER_LOSS:
        assert {content(after, "/f") for after in outcomes(disk, mode)} <= {b"old", b"new"}


def test_a_rename_may_be_durable_before_the_data() -> None:
    disk = durable_file("/f", b"old")
    temporary = disk.open("/f.tmp", create=True)
    temporary.pwrite(b"new", 0)
    disk.rename("/f.tmp", "/f")
    disk.sync_dir("/")

    assert {content(after, "/f") for after in outcomes(disk, CrashMode.SUBSET)} == {b"", b"new"}


def test_a_rename_between_directories_survives_the_sync_of_either() -> None:
    for synced in ("/a", "/b"):
        disk = SimDisk()
        disk.make_dir("/a")
        disk.make_dir("/b")
        disk.open("/a/f", create=True).sync()
        disk.sync_dir("/a")
        disk.sync_dir("/")
        disk.rename("/a/f", "/b/f")
        disk.sync_dir(synced)

        for after in outcomes(disk, CrashMode.SUBSET):
            assert after.exists("/a/f") or after.exists("/b/f")


def test_a_directory_is_moved_as_one() -> None:
    disk = SimDisk()
    disk.make_dir("/t-0")
    disk.open("/t-0/f", create=True).sync()
    disk.sync_dir("/t-0")
    disk.sync_dir("/")
    disk.rename("/t-0", "/t-0.gone-delete")

    left = {tuple(after.tree()) for after in outcomes(disk, CrashMode.SUBSET)}

    assert left == {("/t-0/f",), ("/t-0.gone-delete/f",)}


def test_an_unsynced_removal_may_come_back() -> None:
    disk = durable_file()
    disk.remove("/f")

    assert {after.exists("/f") for after in outcomes(disk, CrashMode.SUBSET)} == {True, False}


def test_writes_survive_in_any_combination() -> None:
    disk = durable_file(data=b"....")
    file = disk.open("/f")
    for position in range(4):
        file.pwrite(b"x", position)

    left = {content(after, "/f") for after in outcomes(disk, CrashMode.SUBSET)}

    assert len(left) == 16


def test_a_prefix_is_a_moment_in_time() -> None:
    disk = durable_file(data=b"....")
    file = disk.open("/f")
    for position in range(4):
        file.pwrite(b"x", position)

    left = {content(after, "/f") for after in outcomes(disk, CrashMode.PREFIX)}

    assert left == {b"....", b"x...", b"xx..", b"xxx.", b"xxxx"}


def test_a_write_tears_at_sector_edges_of_the_file() -> None:
    disk = durable_file(data=b"." * 2048)
    disk.open("/f").pwrite(b"x" * 1000, 100)  # sectors 0 (from 100), 1, and 2 (up to 1100)

    sectors = (slice(100, 512), slice(512, 1024), slice(1024, 1100))
    left = set()
    for after in outcomes(disk, CrashMode.TORN):
        data = content(after, "/f")
        assert data[:100] == b"." * 100
        assert data[1100:] == b"." * 948
        assert all(len(set(data[sector])) == 1 for sector in sectors)
        left.add("".join(chr(data[sector.start]) for sector in sectors))

    assert left == {a + b + c for a in ".x" for b in ".x" for c in ".x"}


def test_a_size_survives_without_its_data() -> None:
    disk = durable_file(data=b"ab")
    file = disk.open("/f")
    file.pwrite(b"cd", 2)
    file.pwrite(b"X", 0)

    assert [content(after, "/f") for after in outcomes(disk, CrashMode.SIZES, 1)] == [b"ab\0\0"]


def test_a_truncation_may_be_lost() -> None:
    disk = durable_file(data=b"abcd")
    disk.open("/f").truncate(2)

    assert {content(after, "/f") for after in outcomes(disk, CrashMode.SUBSET)} == {b"ab", b"abcd"}


def test_what_a_dead_process_left_is_seen_but_not_yet_durable() -> None:
    disk = durable_file(data=b"ab")
    disk.open("/f").pwrite(b"cd", 2)

    after = disk.crash(random.Random(1), CrashMode.PROCESS)

    assert content(after, "/f") == b"abcd"
    assert {content(later, "/f") for later in outcomes(after, CrashMode.PREFIX)} == {b"ab", b"abcd"}


def test_a_second_crash_never_splits_a_rename() -> None:
    disk = durable_file("/old", b"data")
    disk.rename("/old", "/new")
    after = disk.crash(random.Random(1), CrashMode.PROCESS)

    assert after.list("/") == ["new"]
    left = {tuple(later.list("/")) for later in outcomes(after, CrashMode.SUBSET)}
    assert left == {("old",), ("new",), ("new", "old")}


def test_a_crash_leaves_the_disk_itself_as_it_was() -> None:
    disk = durable_file(data=b"ab")
    disk.open("/f").pwrite(b"cd", 2)
    before = disk.tree()

    after = disk.crash(random.Random(1), CrashMode.ALL_KEPT)
    after.open("/f").pwrite(b"zz", 0)

    assert disk.tree() == before


def test_crash_at_stops_the_machine_before_the_call_and_for_good() -> None:
    disk = SimDisk()
    file = disk.open("/f", create=True)
    disk.crash_at = 1
    with pytest.raises(SimCrash):
        file.pwrite(b"x", 0)
    with pytest.raises(SimCrash):
        file.pread(1, 0)

    assert disk.calls == 1
    assert disk.crash(random.Random(1), CrashMode.ALL_KEPT).tree() == {"/f": (0, b"")}


def test_before_call_sees_every_change_once() -> None:
    seen: list[tuple[int, str]] = []
    disk = SimDisk()
    disk.before_call = lambda count, call, path: seen.append((count, call))
    disk.make_dir("/d")
    file = disk.open("/d/f", create=True)
    file.pwrite(b"x", 0)
    file.pread(1, 0)
    file.sync()
    disk.rename("/d/f", "/d/g")
    disk.sync_dir("/d")

    calls = ["make_dir", "create", "pwrite", "sync", "rename", "sync_dir"]
    assert seen == list(enumerate(calls))


def test_a_failed_sync_loses_what_it_should_have_written() -> None:
    disk = durable_file(data=b"ab")
    file = disk.open("/f")
    file.pwrite(b"cd", 2)
    disk.inject("sync", errno.EIO, path="/f")
    with pytest.raises(OSError) as caught:
        file.sync()
    file.sync()

    assert caught.value.errno == errno.EIO
    assert content(disk, "/f") == b"abcd"
    assert content(disk.crash(random.Random(1), CrashMode.ALL_KEPT), "/f") == b"ab"


def test_a_failed_sync_of_a_directory_loses_the_names_it_should_have_written() -> None:
    disk = SimDisk()
    disk.make_dir("/d")
    disk.sync_dir("/")
    disk.open("/d/f", create=True)
    disk.inject("sync_dir", errno.EIO, path="/d")
    with pytest.raises(OSError):
        disk.sync_dir("/d")
    disk.sync_dir("/d")

    assert disk.list("/d") == ["f"]
    assert disk.crash(random.Random(1), CrashMode.ALL_KEPT).list("/d") == []


def test_a_directory_that_could_not_be_opened_loses_no_names() -> None:
    disk = SimDisk()
    disk.open("/f", create=True)
    disk.inject("sync_dir", errno.EMFILE)
    with pytest.raises(OSError):
        disk.sync_dir("/")
    disk.sync_dir("/")

    assert disk.crash(random.Random(1), CrashMode.SIZES).list("/") == ["f"]


def test_a_failed_sync_of_a_directory_takes_both_names_of_nothing() -> None:
    """The new name is lost, so the old one stays, whatever is synced later."""
    disk = SimDisk()
    disk.make_dir("/a")
    disk.make_dir("/b")
    disk.open("/a/f", create=True)
    for path in ("/", "/a", "/b"):
        disk.sync_dir(path)
    disk.rename("/a/f", "/b/f")
    disk.inject("sync_dir", errno.EIO, path="/b")
    with pytest.raises(OSError):
        disk.sync_dir("/b")
    disk.sync_dir("/a")

    assert disk.crash(random.Random(1), CrashMode.ALL_KEPT).list("/a") == ["f"]
