"""What is durable and visible: promise 2 of ARCHITECTURE.md, and a sync that fails."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from ottla.broker.log.flush import LARGE_BYTES
from ottla.broker.log.log import Log
from ottla.config.types import LogConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.log.logs import RELAXED, SMALL, append, batch, flush, new_disk, open_log, read_all


def ends(log: Log) -> tuple[int, int, int]:
    return log.durable_end, log.visible_end, log.log_end_offset


def test_with_one_nothing_is_visible_before_its_sync() -> None:
    log = open_log(new_disk())
    append(log, 3)
    assert ends(log) == (0, 0, 3)
    assert log.must_flush
    ticket = log.begin_flush()
    append(log, 2)
    assert ticket is not None
    ticket.sync()
    assert ends(log) == (0, 0, 5)
    log.finish_flush(ticket)

    assert ends(log) == (3, 3, 5)
    assert log.must_flush
    flush(log)
    assert ends(log) == (5, 5, 5)
    assert not log.must_flush
    assert log.begin_flush() is None


def test_with_more_the_loss_is_bounded_to_whole_batches() -> None:
    log = open_log(new_disk(), LogConfig(flush_messages=5))
    append(log, 2)
    append(log, 2)
    assert ends(log) == (0, 4, 4)
    assert not log.must_flush
    append(log, 2)  # the fifth record asks for a sync, and its batch waits for it
    append(log, 1)
    append(log, 1)
    assert ends(log) == (0, 4, 8)
    assert log.must_flush
    ticket = log.begin_flush()
    assert ticket is not None
    ticket.end_offset = 4  # as if it had begun before the last three
    ticket.sync()
    log.finish_flush(ticket)

    assert ends(log) == (4, 8, 8)
    assert not log.must_flush


def test_after_a_flush_the_visible_end_is_the_last_batch_end_in_reach() -> None:
    log = open_log(new_disk(), LogConfig(flush_messages=4))
    append(log, 3)
    ticket = log.begin_flush()
    for count in (2, 1, 1, 5):
        append(log, count)
    assert ends(log) == (0, 3, 12)
    assert ticket is not None
    ticket.sync()
    log.finish_flush(ticket)

    assert ends(log) == (3, 6, 12)


def test_with_kafkas_value_everything_is_visible_at_once() -> None:
    log = open_log(new_disk(), RELAXED)
    for _ in range(5):
        append(log)

    assert ends(log) == (0, 5, 5)
    assert not log.must_flush


def test_a_new_value_shows_what_it_allows_and_hides_nothing() -> None:
    log = open_log(new_disk())
    for _ in range(3):
        append(log, 2)
    assert ends(log) == (0, 0, 6)
    log.config = replace(log.config, flush_messages=5)
    assert ends(log) == (0, 4, 6)
    log.config = replace(log.config, flush_messages=1)

    assert ends(log) == (0, 4, 6)


def test_one_ticket_at_a_time() -> None:
    log = open_log(new_disk())
    append(log)
    log.begin_flush()

    with pytest.raises(AssertionError):
        log.begin_flush()


def test_a_flush_is_large_by_what_was_written_since_the_last_one() -> None:
    log = open_log(new_disk(), LogConfig(segment_bytes=4 * LARGE_BYTES))
    seen = []
    for sizes in ([20], [LARGE_BYTES], [20, 20], [LARGE_BYTES // 2] * 2, [20], [LARGE_BYTES], [20]):
        for size in sizes:
            append(log, size=size)
        ticket = log.begin_flush()
        assert ticket is not None
        append(log, size=LARGE_BYTES // 4)  # while it is under way: the next one has that to do
        ticket.sync()
        log.finish_flush(ticket)
        seen.append(ticket.is_large)
    assert seen == [False, True, False, True, False, True, False]
    assert len(log.segments) > 1


def test_a_roll_asks_for_a_flush_that_covers_the_old_files() -> None:
    disk = new_disk()
    log = open_log(disk, RELAXED)
    while len(log.segments) < 3:
        append(log)
    assert log.must_flush
    written = read_all(log)
    flush(log)
    assert not log.must_flush

    again = open_log(
        disk.crash(_no_choice(), CrashMode.PREFIX), RELAXED, clean=False, recovery_point=9
    )
    assert read_all(again) == written


def _no_choice() -> _First:
    return _First()


class _First:
    """An Rng that takes the least: of what is not synced nothing survives."""

    def randrange(self, stop: int, /) -> int:
        return 0

    def getrandbits(self, k: int, /) -> int:
        return 0


def test_a_failed_sync_is_final() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log)
    flush(log)
    append(log)
    disk.inject("sync", errno.EIO, path=".log")
    ticket = log.begin_flush()
    assert ticket is not None
    with pytest.raises(OSError, match="Input/output error"):
        ticket.sync()

    assert log.failed is not None
    assert ends(log) == (1, 1, 2)
    with pytest.raises(AssertionError):
        log.finish_flush(ticket)
    with pytest.raises(KafkaError) as raised:
        append(log)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    log.close(clean=False)


@pytest.mark.parametrize(("call", "path"), [("sync", ".index"), ("sync_dir", "/"), ("sync", ".sn")])
def test_every_part_of_a_flush_counts(call: str, path: str) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    while len(log.segments) < 2:
        append(log)
    disk.inject(call, errno.EIO, path=path)
    ticket = log.begin_flush()
    assert ticket is not None
    with pytest.raises(OSError, match="Input/output error"):
        ticket.sync()

    assert log.durable_end == 0


def put_off(log: Log) -> None:
    """A flush that cannot open the directory."""
    ticket = log.begin_flush()
    assert ticket is not None
    with pytest.raises(OSError, match="Too many open files"):
        ticket.sync()
    assert ticket.is_put_off
    log.put_off_flush(ticket)


@pytest.mark.parametrize("segments", [1, 3])
def test_a_flush_that_cannot_open_the_directory_is_put_off(segments: int) -> None:
    """Nothing is durable by it, and nothing has failed: the next flush has it all to do."""
    disk = new_disk()
    log = open_log(disk, SMALL)
    append(log)
    while len(log.segments) < segments:
        append(log)
    disk.inject("sync_dir", errno.EMFILE, times=2)  # of the leader epochs, and of all names
    put_off(log)
    assert (log.failed, log.durable_end, log.visible_end) == (None, 0, 0)
    assert log.must_flush
    flush(log)
    written = read_all(log)

    again = open_log(disk.crash(_no_choice(), CrashMode.PREFIX), SMALL, clean=False)
    assert log.durable_end == log.log_end_offset == again.log_end_offset
    assert read_all(again) == written


def test_what_was_put_off_is_done_by_the_next_flush_though_nothing_else_asks_for_it() -> None:
    """Names and snapshots; the leader epochs, whose writing syncs the directory, are written."""
    disk = new_disk()
    log = open_log(disk, SMALL)
    append(log)
    flush(log)
    while len(log.segments) < 3:
        append(log)
    disk.inject("sync_dir", errno.EMFILE)
    put_off(log)
    assert log.segments.awaits_sync
    flush(log)
    assert not log.segments.awaits_sync
    written = read_all(log)

    again = open_log(disk.crash(_no_choice(), CrashMode.PREFIX), SMALL, clean=False)
    assert again.log_end_offset == log.log_end_offset
    assert read_all(again) == written


def test_a_full_disk_puts_off_the_leader_epochs_only() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, epoch=3)
    disk.inject("pwrite", errno.ENOSPC, path="leader-epoch")
    flush(log)
    assert log.durable_end == 1
    assert _epochs_on(disk) is None
    append(log, epoch=3)
    flush(log)

    assert _epochs_on(disk) == b"0\n1\n3 0\n"


def test_a_process_short_of_descriptors_puts_off_the_leader_epochs_only() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, epoch=3)
    disk.inject("create", errno.EMFILE, path="leader-epoch")
    flush(log)
    assert log.failed is None
    assert log.durable_end == 1
    assert _epochs_on(disk) is None
    append(log, epoch=3)
    flush(log)

    assert _epochs_on(disk) == b"0\n1\n3 0\n"


def _epochs_on(disk: SimDisk) -> bytes | None:
    path = "/data/orders-0/leader-epoch-checkpoint"
    if not disk.exists(path):
        return None
    file = disk.open(path)
    return file.pread(file.size(), 0)


def test_a_clean_stop_leaves_kafkas_files() -> None:
    disk = new_disk()
    log = open_log(disk, LogConfig(index_interval_bytes=1))
    for _ in range(3):
        append(log, epoch=1)
    running = {path: size for path, (size, _) in disk.tree().items()}
    log.close()
    files = {path.rpartition("/")[2]: size for path, (size, _) in disk.tree().items()}

    base = "00000000000000000000"
    assert running[f"/data/orders-0/{base}.index"] == 10_485_760
    assert running[f"/data/orders-0/{base}.timeindex"] == 10_485_756
    assert files == {
        f"{base}.log": 3 * len(batch()),
        f"{base}.index": 16,
        f"{base}.timeindex": 12,
        "00000000000000000003.snapshot": 10,
        "leader-epoch-checkpoint": 8,
    }


def test_an_untouched_log_is_closed_without_a_write() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log)
    log.close()
    log = open_log(disk)
    log.assign_epoch(1)
    calls = disk.calls
    log.close()

    assert disk.calls == calls
