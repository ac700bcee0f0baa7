"""Cutting a log at either end: truncation, DeleteRecords, retention."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from ottla.broker.log.log import UPPER_HIGH_WATERMARK, Log
from ottla.broker.log.retention import Reason
from ottla.config.types import LogConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.testing.clock import SimClock
from ottla.testing.disk import SimDisk
from tests.log.logs import (
    DIRECTORY,
    NOW,
    SMALL,
    append,
    batch,
    first_at_time,
    flush,
    new_disk,
    offsets,
    open_log,
    timed_batch,
)

SIZE = len(batch())


def filled(disk: SimDisk, count: int = 40, config: LogConfig = SMALL) -> Log:
    log = open_log(disk, config)
    for step in range(count):
        append(log, timestamp=NOW + step, epoch=step // 10)
    flush(log)
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


@pytest.mark.parametrize("end", [39, 25, 20, 11, 10, 1, 0])
def test_truncation(end: int) -> None:
    disk = new_disk()
    log = filled(disk)
    log.truncate_to(end)

    assert log.log_end_offset == log.durable_end == log.visible_end == log.high_watermark == end
    assert offsets(log) == list(range(end))
    assert log.latest_epoch == (end - 1) // 10
    assert append(log, timestamp=NOW + 5, epoch=9) == end
    flush(log)
    assert offsets(log) == list(range(end + 1))
    log.close()
    again = open_log(disk, SMALL, high_watermark=10**6)
    assert offsets(again) == list(range(end + 1))
    assert first_at_time(again, NOW + max(end, 6)) is None


def test_a_batch_that_reaches_over_the_end_goes_as_a_whole() -> None:
    log = open_log(new_disk())
    append(log, 2)
    append(log, 3)
    log.truncate_to(4)

    assert log.log_end_offset == 2


def test_truncation_at_or_above_the_end_does_nothing() -> None:
    disk = new_disk()
    log = filled(disk)
    calls = disk.calls
    log.truncate_to(40)

    assert disk.calls == calls


@pytest.mark.parametrize("start", [5, 100])
def test_truncation_of_everything(start: int) -> None:
    disk = new_disk()
    log = filled(disk)
    log.truncate_fully_and_start_at(start)

    assert (log.log_start_offset, log.log_end_offset, log.durable_end) == (start, start, start)
    assert (log.high_watermark, log.visible_end, log.latest_epoch) == (start, start, -1)
    assert append(log) == start
    flush(log)
    assert offsets(log) == [start]


@pytest.mark.parametrize("start", [5, 100])
def test_what_was_hidden_is_never_shown_behind_a_truncation_of_everything(start: int) -> None:
    log = open_log(new_disk(), LogConfig(flush_messages=4))
    for _ in range(10):
        append(log)
    log.truncate_fully_and_start_at(start)
    append(log)
    flush(log)

    assert (log.durable_end, log.visible_end, log.high_watermark) == (start + 1,) * 3
    assert offsets(log) == [start]


def test_what_a_flush_covers_ends_where_the_log_was_cut() -> None:
    log = open_log(new_disk())
    append(log, 5)
    append(log, 5)
    ticket = log.begin_flush()
    log.truncate_to(5)
    append(log, 5)
    assert ticket is not None
    ticket.sync()
    log.finish_flush(ticket)

    assert (log.durable_end, log.log_end_offset) == (5, 10)


def test_deleted_records_are_out_of_reach() -> None:
    log = filled(new_disk())
    assert log.delete_records(15) == 15
    assert log.delete_records(3) == 15

    assert log.log_start_offset == 15
    assert offsets(log)[0] == 15
    assert log.end_offset_for_epoch(0) == (0, 15)
    with pytest.raises(KafkaError) as raised:
        log.delete_records(41)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_segments_below_the_log_start_go() -> None:
    disk = new_disk()
    log = filled(disk)
    found = bases(log)
    log.delete_records(found[2])
    doomed = log.delete_old_segments(NOW)

    assert [one.reason for one in doomed] == [Reason.LOG_START, Reason.LOG_START]
    assert bases(log) == found[2:]
    assert log.size_bytes == sum(segment.size for segment in log.segments)


def test_files_of_a_deleted_segment_wait_for_their_delay() -> None:
    disk = new_disk()
    log = filled(disk, config=replace(SMALL, retention_bytes=900, file_delete_delay_ms=100))
    log.delete_old_segments(NOW)
    deleted = [name for name in disk.list(DIRECTORY) if name.endswith(".deleted")]
    assert log.segments.take_deleted(NOW + 99) == []
    assert deleted
    assert [name for name in disk.list(DIRECTORY) if name.endswith(".deleted")] == deleted
    list(log.segments.remove_deleted(log.segments.take_deleted(NOW + 100)))

    assert not [name for name in disk.list(DIRECTORY) if name.endswith(".deleted")]
    assert {int(name[:20]) for name in disk.list(DIRECTORY) if name[0] == "0"} == set(bases(log))


def test_segments_go_a_few_at_a_time_and_only_below_an_offset() -> None:
    log = filled(new_disk(), config=replace(SMALL, retention_bytes=0))
    found = bases(log)
    assert log.delete_old_segments(NOW, below=found[3] - 1, at_most=1) != []
    assert bases(log) == found[1:]
    assert len(log.delete_old_segments(NOW, below=found[3] - 1)) == 1
    assert bases(log) == found[2:]
    assert log.delete_old_segments(NOW, below=found[3] - 1) == []


def test_old_records_go_by_their_own_time() -> None:
    log = filled(new_disk(), config=replace(SMALL, retention_ms=1000))
    last = log.segments[0].max_timestamp
    assert log.delete_old_segments(last + 1000) == []
    doomed = log.delete_old_segments(last + 1001)

    assert [one.reason for one in doomed] == [Reason.TIME]
    assert log.log_start_offset == bases(log)[0] > 0


def test_records_without_a_time_are_aged_by_their_files_over_restarts() -> None:
    disk = new_disk()
    config = replace(SMALL, retention_ms=1000)
    log = open_log(disk, config)
    for step in range(40):
        now_ms = NOW + 10 * step
        disk.wall_ms = SimClock(wall_ms=now_ms).wall_ms
        log.append_as_leader(timed_batch([-1]), leader_epoch=0, now_ms=now_ms)
    flush(log)
    last_of_first = log.segments[0].last_modified
    log.close()
    for now_ms in (NOW + 900, last_of_first + 1000, last_of_first + 1001):
        log = open_log(disk, config, recovery_point=40, high_watermark=40, now_ms=now_ms)
        doomed = log.delete_old_segments(now_ms)
        assert (doomed != []) is (now_ms > last_of_first + 1000)
        log.close()

    assert [one.reason for one in doomed] == [Reason.TIME]
    assert log.log_start_offset == bases(log)[0] > 0


def test_when_all_is_old_an_empty_segment_stays() -> None:
    """The last of the old ones goes when the new one, and the producers there, are synced."""
    log = filled(new_disk(), config=replace(SMALL, retention_ms=1000))
    last = bases(log)[-1]
    log.delete_old_segments(NOW + 10**6)
    assert bases(log) == [last, 40]
    assert log.segments.awaits_sync
    ticket = log.begin_flush()
    assert ticket is not None
    assert log.delete_old_segments(NOW + 10**6) == []
    ticket.sync()
    log.finish_flush(ticket)
    log.delete_old_segments(NOW + 10**6)

    assert bases(log) == [40]
    assert (log.log_start_offset, log.high_watermark, log.last_stable_offset) == (40, 40, 40)
    assert append(log) == 40
    flush(log)
    assert offsets(log) == [40]


def test_on_a_full_disk_all_but_the_last_segment_go() -> None:
    disk = new_disk()
    log = filled(disk, config=replace(SMALL, retention_ms=1000))
    last = bases(log)[-1]
    disk.free = 0
    assert log.delete_old_segments(NOW + 10**6) != []
    assert bases(log) == [last]
    assert log.delete_old_segments(NOW + 10**6) == []
    disk.free = 1 << 20
    log.delete_old_segments(NOW + 10**6)
    flush(log)
    log.delete_old_segments(NOW + 10**6)

    assert bases(log) == [40]


def test_a_segment_whose_times_cannot_be_read_is_no_failed_write() -> None:
    disk = new_disk()
    config = replace(SMALL, retention_ms=1000)
    filled(disk, config=config).close()
    log = open_log(disk, config, recovery_point=40, high_watermark=40)
    found = bases(log)
    disk.inject("pread", errno.EIO, path=".index")
    with pytest.raises(KafkaError) as raised:
        log.delete_old_segments(NOW + 10**6)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert bases(log) == found
    log.delete_old_segments(NOW + 10**6)
    flush(log)
    log.delete_old_segments(NOW + 10**6)

    assert bases(log) == [40]


def test_what_was_deleted_goes_where_the_high_watermark_cannot_be_read() -> None:
    """It stays where it is, so nobody has to look it up."""
    disk = new_disk()
    log = filled(disk)
    for _ in range(40):
        append(log)
    assert log.segments[-2].base_offset > log.high_watermark == 40
    found = bases(log)
    log.delete_records(35)
    for call, path in (("pread", ".log"), ("open", ".index"), ("open", ".log")):
        disk.inject(call, errno.EIO, path=path)
    _, retired, _ = log.retire_old_segments(NOW)

    assert [one.base_offset for one in retired] == [one for one in found if one < 35][:-1]
    assert (log.high_watermark, log.last_stable_offset) == (40, 40)


def test_a_high_watermark_between_what_goes_and_what_stays() -> None:
    log = open_log(new_disk(), replace(SMALL, segment_bytes=100, retention_bytes=0))
    append(log)
    flush(log)
    append(log)
    append(log)
    ticket = log.begin_flush()
    assert ticket is not None
    ticket.sync()
    log.finish_flush(ticket)
    log.delete_old_segments(NOW)
    assert (log.log_start_offset, log.high_watermark) == (1, 1)
    assert offsets(log) == []
    assert log.read(1, max_bytes=1000, upper=UPPER_HIGH_WATERMARK, at_least_one=True) is None
    log.set_high_watermark(3)

    assert offsets(log) == [1, 2]


def test_nothing_above_the_high_watermark_goes() -> None:
    log = open_log(new_disk(), replace(SMALL, retention_bytes=0))
    for _ in range(40):
        append(log)

    assert log.delete_old_segments(NOW) == []
