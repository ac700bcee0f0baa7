"""Workers and renamed directories; files after an error of the disk."""

from __future__ import annotations

import errno
import random
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from ottla.broker.log.checkpoints import LEADER_EPOCH_FILE, TEMPORARY_SUFFIX
from ottla.broker.log.log import Log
from ottla.broker.log.partition_dir import DOUBTFUL_TAIL_FILE, PartitionDir
from ottla.testing.disk import SimDisk, SimFile
from ottla.testing.platter import CrashMode
from tests.log.events import RecordedEvents
from tests.log.logs import DIRECTORY, NOW, SMALL, append, flush, new_disk, open_log, read_all

ASIDE = "/data/orders-0.0123-delete"
MARKER = f"{DIRECTORY}/{DOUBTFUL_TAIL_FILE}"


class _Interrupting(SimDisk):
    """Runs `interruption` once, before the first sync of a temporary file or a directory."""

    interruption: Callable[[], None] | None = None
    where = ""

    def interrupt(self, path: str) -> None:
        if self.interruption is not None and self.where in path:
            interruption, self.interruption = self.interruption, None
            interruption()

    def open(self, path: str, *, create: bool = False) -> SimFile:
        file = super().open(path, create=create)
        return _InterruptingFile(self, path, file._node)

    def sync_dir(self, path: str) -> None:
        self.interrupt(path + "/.")
        super().sync_dir(path)


class _InterruptingFile(SimFile):
    __slots__ = ()

    def sync(self) -> None:
        assert isinstance(self._disk, _Interrupting)
        self._disk.interrupt(self.path)
        super().sync()


def delete_and_make_again(disk: SimDisk, log: Log) -> None:
    log.home.move_to(ASIDE)
    disk.make_dir(DIRECTORY)
    second = open_log(disk)
    append(second, epoch=9)
    flush(second)


def interrupting() -> _Interrupting:
    disk = _Interrupting()
    for path in ("/data", DIRECTORY):
        disk.make_dir(path)
    disk.sync_dir("/data")
    return disk


@pytest.mark.parametrize("where", [".log", TEMPORARY_SUFFIX, "orders-0/."])
def test_a_worker_leaves_a_partition_of_the_same_name_alone(where: str) -> None:
    disk = interrupting()
    log = open_log(disk)
    append(log, epoch=4)
    ticket = log.begin_flush()
    assert ticket is not None
    disk.where, disk.interruption = where, lambda: delete_and_make_again(disk, log)
    ticket.sync()

    assert disk.interruption is None
    epochs = disk.open(f"{DIRECTORY}/{LEADER_EPOCH_FILE}")
    assert epochs.pread(100, 0) == b"0\n1\n9 0\n"
    assert not disk.exists(f"{DIRECTORY}/{LEADER_EPOCH_FILE}{TEMPORARY_SUFFIX}")


def test_a_deleted_log_whose_name_nobody_took_is_no_bad_disk() -> None:
    disk = interrupting()
    log = open_log(disk)
    append(log)
    ticket = log.begin_flush()
    assert ticket is not None
    disk.where, disk.interruption = "orders-0/.", lambda: log.home.move_to(ASIDE)
    ticket.sync()

    assert ticket.error is None
    assert not disk.exists(DIRECTORY)


class _SlowToFail(SimDisk):
    """Its first sync of a directory fails, after a while; all others succeed, as the kernel's do
    that marks a directory as synced when it has told one of those who asked."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.synced = 0

    def sync_dir(self, path: str) -> None:
        if self.begun.is_set():
            self.synced += 1
            return super().sync_dir(path)
        self.begun.set()
        assert self.go_on.wait(10)
        raise OSError(errno.EIO, "Input/output error", path)


def test_a_sync_of_names_beside_one_that_fails_does_not_say_that_all_is_well() -> None:
    """A removal, say, beside the flush of a new segment, whose records would be acknowledged."""
    disk = _SlowToFail()
    disk.make_dir("/data")
    home = PartitionDir(disk, "/data", RecordedEvents())
    with ThreadPoolExecutor(2) as workers:
        removal = workers.submit(home.sync)
        assert disk.begun.wait(10)
        flush = workers.submit(home.sync)
        with pytest.raises(TimeoutError):
            flush.result(0.05)
        disk.go_on.set()
        for one in (removal, flush):
            with pytest.raises(OSError, match="Input/output"):
                one.result(10)
    with pytest.raises(OSError, match="Input/output"):
        home.sync()

    assert disk.synced == 0


def test_a_directory_that_could_not_be_opened_is_synced_by_the_next() -> None:
    disk = new_disk()
    home = PartitionDir(disk, DIRECTORY, RecordedEvents())
    disk.inject("sync_dir", errno.EMFILE, path=DIRECTORY)
    with pytest.raises(OSError, match="Too many"):
        home.sync()
    home.sync()


class _Counting(SimDisk):
    """Notes the files that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[SimFile] = []

    def open(self, path: str, *, create: bool = False) -> SimFile:
        file = super().open(path, create=create)
        self.opened.append(file)
        return file

    @property
    def still_open(self) -> list[str]:
        return [file.path for file in self.opened if not file._closed]


def counting() -> _Counting:
    disk = _Counting()
    for path in ("/data", DIRECTORY):
        disk.make_dir(path)
    return disk


def test_a_log_that_cannot_be_made_leaves_no_file_open_and_none_behind() -> None:
    disk = counting()
    disk.inject("create", errno.ENOSPC, path=".index", times=3)
    for _ in range(3):
        with pytest.raises(OSError, match="No space left"):
            open_log(disk)

    assert disk.still_open == []
    assert disk.list(DIRECTORY) == []


def test_a_log_that_cannot_be_begun_anew_leaves_no_file_open() -> None:
    disk = counting()
    log = open_log(disk)
    append(log)
    disk.inject("create", errno.ENOSPC, path=".index")
    with pytest.raises(OSError, match="No space left"):
        log.truncate_fully_and_start_at(5)
    log.close(clean=False)

    assert disk.still_open == []
    assert disk.list(DIRECTORY) == []


class _MovedBeforeRemoval(SimDisk):
    """Sets a log aside before the first file is removed."""

    log: Log | None = None

    def remove(self, path: str) -> None:
        if self.log is not None:
            log, self.log = self.log, None
            log.home.move_to(ASIDE)
        super().remove(path)


def test_segments_removed_while_their_topic_is_deleted_are_no_bad_disk() -> None:
    disk = _MovedBeforeRemoval()
    for path in ("/data", DIRECTORY):
        disk.make_dir(path)
    log = open_log(disk, replace(SMALL, retention_bytes=0, file_delete_delay_ms=0))
    for _ in range(40):
        append(log)
    flush(log)
    log.delete_old_segments(NOW)
    deleted = log.segments.take_deleted(NOW)
    disk.log = log
    list(log.segments.remove_deleted(deleted))

    assert [name for name in disk.list(ASIDE) if name.endswith(".deleted")]
    assert not disk.exists(DIRECTORY)


@pytest.mark.parametrize("passing", range(6))
def test_a_flush_that_cannot_open_its_files_keeps_none(passing: int) -> None:
    disk = _Counting()
    disk.make_dir("/data")
    disk.make_dir(DIRECTORY)
    log = open_log(disk, SMALL)
    while len(log.segments) < 3:
        append(log, timestamp=random.Random(passing).randrange(1 << 40))
    before = disk.still_open
    disk.inject("open", errno.EMFILE, passing=passing)
    with pytest.raises(OSError, match="Too many"):
        log.begin_flush()
    assert [path for path in disk.still_open if not path.endswith(".log")] == [
        path for path in before if not path.endswith(".log")
    ]
    flush(log)

    assert log.durable_end == log.log_end_offset


@pytest.mark.parametrize("call", ["sync", "pwrite"])
def test_what_a_failed_disk_call_left_in_the_cache_is_written_again(call: str) -> None:
    """The next process reads from the cache what is not on disk, and must not serve it as such."""
    disk = new_disk()
    log = open_log(disk)
    append(log)
    flush(log)
    append(log)
    if call == "sync":
        disk.inject("sync", errno.EIO, path=".log")
        ticket = log.begin_flush()
        assert ticket is not None
        with pytest.raises(OSError, match="Input/output"):
            ticket.sync()
    else:
        disk.inject("pwrite", errno.EIO, path=".log", written=10)
        with pytest.raises(OSError, match="Input/output"):
            append(log)
    assert disk.exists(MARKER)
    restarted = disk.crash(random.Random(1), CrashMode.PROCESS)
    events = RecordedEvents()
    served = read_all(open_log(restarted, clean=False, recovery_point=1, events=events))
    assert "doubtful_tail_rewritten" in events.names
    assert not restarted.exists(MARKER)
    restarted = restarted.crash(random.Random(1), CrashMode.SUBSET)
    kept = open_log(restarted, clean=False, recovery_point=1)

    assert kept.log_end_offset == 2
    assert read_all(kept) == served


def test_a_name_that_a_failed_sync_of_the_directory_left_out_is_made_again() -> None:
    """The kernel takes the directory for synced then, as it takes pages for clean."""
    disk = new_disk()
    log = open_log(disk, replace(SMALL, segment_bytes=200))
    while len(log.segments) < 2:
        append(log)
    disk.inject("sync_dir", errno.EIO, path=DIRECTORY)
    ticket = log.begin_flush()
    assert ticket is not None
    with pytest.raises(OSError, match="Input/output"):
        ticket.sync()
    restarted = disk.crash(random.Random(1), CrashMode.PROCESS)
    served = read_all(open_log(restarted, clean=False))
    restarted = restarted.crash(random.Random(1), CrashMode.SUBSET)

    assert read_all(open_log(restarted, clean=False)) == served


def flushed_below(disk: SimDisk, *, segments: int) -> Log:
    """A log of so many segments of which the first batch alone is synced."""
    log = open_log(disk, replace(SMALL, segment_bytes=200))
    append(log)
    flush(log)
    while len(log.segments) < segments:
        append(log)
    return log


@pytest.mark.parametrize("call", ["sync", "sync_dir"])
def test_what_a_start_could_not_sync_is_written_again_by_the_next(call: str) -> None:
    """What the second start serves, and what it says is durable, is on the disk."""
    disk = new_disk()
    flushed_below(disk, segments=2)
    disk = disk.crash(random.Random(1), CrashMode.PROCESS)
    disk.inject(call, errno.EIO, path=DIRECTORY if call == "sync_dir" else ".log")
    with pytest.raises(OSError, match="Input/output"):
        open_log(disk, clean=False, recovery_point=1)
    assert disk.exists(MARKER)
    disk = disk.crash(random.Random(1), CrashMode.PROCESS)
    log = open_log(disk, clean=False, recovery_point=1)
    assert not disk.exists(MARKER)
    append(log)
    flush(log)
    served = read_all(log)
    for seed in range(10):
        after = open_log(disk.crash(random.Random(seed), CrashMode.SUBSET), clean=False)

        assert read_all(after) == served, seed


def test_a_segment_that_a_start_could_not_drop_for_good_is_dropped_by_the_next() -> None:
    """It would come back with a loss of power, among what was acknowledged since."""
    disk = new_disk()
    log = flushed_below(disk, segments=3)
    dropped = log.segments[1].log_path
    disk.sync_dir(DIRECTORY)
    disk = disk.crash(random.Random(1), CrashMode.PREFIX)
    disk.open(log.segments[0].log_path).truncate(log.segments[0].size - 1)
    disk.inject("sync_dir", errno.EIO, path=DIRECTORY, passing=1)
    with pytest.raises(OSError, match="Input/output"):
        open_log(disk, clean=False, recovery_point=1)
    assert not disk.exists(dropped)
    assert_nothing_comes_back(disk, recovery_point=1)


def test_a_segment_that_could_not_be_cut_off_for_good_is_cut_off_by_the_next_start() -> None:
    disk = new_disk()
    log = open_log(disk, replace(SMALL, segment_bytes=200))
    while len(log.segments) < 3:
        append(log)
    flush(log)
    disk.inject("sync_dir", errno.EIO, path=DIRECTORY)
    with pytest.raises(OSError, match="Input/output"):
        log.truncate_to(1)
    assert_nothing_comes_back(disk, recovery_point=0)


def test_what_was_kept_aside_by_a_start_that_failed_stays_behind_a_loss_of_power() -> None:
    disk = new_disk()
    log = open_log(disk)
    for _ in range(3):
        append(log)
    disk = disk.crash(random.Random(1), CrashMode.ALL_KEPT)
    at = log.segments.active.size // 3
    disk.corrupt(log.segments.active.log_path, at + 30, b"X")  # the second of three
    disk.inject("sync_dir", errno.EIO, path=DIRECTORY)
    with pytest.raises(OSError, match="Input/output"):
        open_log(disk, clean=False)
    disk = disk.crash(random.Random(1), CrashMode.PROCESS)
    assert open_log(disk, clean=False).log_end_offset == 1
    for seed in range(10):
        after = disk.crash(random.Random(seed), CrashMode.SUBSET)

        aside = after.open(f"{DIRECTORY}/{0:020d}.{at}.cut")
        assert aside.size() == 2 * at


def assert_nothing_comes_back(disk: SimDisk, *, recovery_point: int) -> None:
    """What the next start acknowledges is there after a loss of power, and the mark is gone."""
    disk = disk.crash(random.Random(1), CrashMode.PROCESS)
    log = open_log(disk, clean=False, recovery_point=recovery_point)
    for _ in range(5):
        append(log, epoch=1)
    flush(log)
    assert not [one for one in disk.list(DIRECTORY) if one.endswith((".removed", "synced"))]
    served = read_all(log)
    for seed in range(20):
        after = disk.crash(random.Random(seed), CrashMode.SUBSET)
        again = open_log(after, clean=False, recovery_point=recovery_point)

        assert read_all(again) == served, seed


def test_the_mark_stays_until_the_names_of_what_was_rewritten_are_durable() -> None:
    disk = new_disk()
    append(open_log(disk))
    disk.open(MARKER, create=True).close()
    disk.inject("sync_dir", errno.EIO, path=DIRECTORY)
    with pytest.raises(OSError, match="Input/output"):
        open_log(disk, clean=False)

    assert disk.exists(MARKER)


def test_a_start_that_cannot_open_the_directory_has_not_failed_to_sync_it() -> None:
    disk = new_disk()
    append(open_log(disk))
    disk.inject("sync_dir", errno.EMFILE, path=DIRECTORY)
    with pytest.raises(OSError, match="Too many"):
        open_log(disk, clean=False)

    assert not disk.exists(MARKER)


def test_a_log_begun_anew_whose_name_could_not_be_synced_is_doubtful() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log)
    disk.inject("sync_dir", errno.EIO, path=DIRECTORY)
    with pytest.raises(OSError, match="Input/output"):
        log.truncate_fully_and_start_at(9)
    assert log.failed is not None
    disk = disk.crash(random.Random(1), CrashMode.PROCESS)
    log = open_log(disk, clean=False, log_start_offset=9, recovery_point=9)
    append(log)
    flush(log)
    disk = disk.crash(random.Random(1), CrashMode.SUBSET)

    assert open_log(disk, clean=False, log_start_offset=9, recovery_point=9).log_end_offset == 10


@pytest.mark.parametrize("refused", [errno.EMFILE, errno.ENOSPC])
def test_the_mark_is_made_where_no_file_can_be_opened_or_made(refused: int) -> None:
    """A full disk makes no directory either, but it renames."""
    disk = new_disk()
    log = open_log(disk)
    append(log)
    disk.inject("create", refused, path=DIRECTORY, times=sys.maxsize)
    if refused == errno.ENOSPC:
        disk.inject("make_dir", refused, path=DIRECTORY, times=sys.maxsize)
    disk.inject("sync", errno.EIO, path=".log")
    with pytest.raises(OSError, match="Input/output"):
        flush(log)
    disk = disk.crash(random.Random(1), CrashMode.PROCESS)
    log = open_log(disk, clean=False)
    assert not disk.exists(MARKER)
    append(log)
    flush(log)
    served = read_all(log)
    disk = disk.crash(random.Random(1), CrashMode.SUBSET)

    assert read_all(open_log(disk, clean=False)) == served


def test_without_the_mark_it_would_be_lost() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log)
    disk.inject("sync", errno.EIO, path=".log")
    ticket = log.begin_flush()
    assert ticket is not None
    with pytest.raises(OSError, match="Input/output"):
        ticket.sync()
    disk.remove(MARKER)
    restarted = disk.crash(random.Random(1), CrashMode.PROCESS)
    assert open_log(restarted, clean=False).log_end_offset == 1
    restarted = restarted.crash(random.Random(1), CrashMode.ALL_KEPT)

    assert open_log(restarted, clean=False).log_end_offset == 0


def test_a_disk_that_takes_no_mark_is_told() -> None:
    disk = new_disk()
    events = RecordedEvents()
    log = open_log(disk, events=events)
    append(log)
    for call in ("create", "make_dir", "rename"):
        disk.inject(call, errno.EROFS, path=DIRECTORY)
    disk.inject("sync", errno.EIO, path=".log")
    ticket = log.begin_flush()
    assert ticket is not None
    with pytest.raises(OSError, match="Input/output"):
        ticket.sync()

    assert "tail_not_marked" in events.names
