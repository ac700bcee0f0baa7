"""When a new segment begins."""

from __future__ import annotations

import errno
import random
from contextlib import suppress
from dataclasses import replace

import pytest

from ottla.broker.log.log import Log
from ottla.config.types import LogConfig
from ottla.protocol.errors import KafkaError
from ottla.testing.disk import SimDisk
from ottla.testing.platter import CrashMode
from tests.log.logs import NOW, append, batch, flush, new_disk, open_log, timed_batch
from tests.log.test_first_touch import paged_disk, reopened

SIZE = len(batch())
HOUR_MS = 3_600_000


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_by_size() -> None:
    log = open_log(new_disk(), LogConfig(segment_bytes=2 * SIZE))
    for _ in range(5):
        append(log)

    assert bases(log) == [0, 2, 4]


def test_by_record_time_from_the_first_batch() -> None:
    log = open_log(new_disk(), LogConfig(segment_ms=HOUR_MS))
    for minutes in (0, 60, 10, 61, 62):
        append(log, timestamp=NOW - 3 * HOUR_MS + minutes * 60_000)

    assert bases(log) == [0, 3]


def test_wall_time_does_not_roll_old_records() -> None:
    log = open_log(new_disk(), LogConfig(segment_ms=HOUR_MS))
    append(log, timestamp=NOW, now_ms=NOW)
    append(log, timestamp=NOW, now_ms=NOW + 5 * HOUR_MS)

    assert bases(log) == [0]


def test_by_wall_time_where_records_have_none() -> None:
    log = open_log(new_disk(), LogConfig(segment_ms=HOUR_MS))
    for hours in (0, 1, 2):
        append(log, timestamp=-1, now_ms=NOW + hours * HOUR_MS)

    assert bases(log) == [0, 2]


def test_jitter_rolls_earlier_and_always_at_the_same_time() -> None:
    config = LogConfig(segment_ms=HOUR_MS, segment_jitter_ms=HOUR_MS // 2)

    def rolled_after() -> int:
        log = open_log(new_disk(), config)
        append(log, timestamp=NOW)
        minutes = 0
        while len(log.segments) == 1:
            minutes += 1
            append(log, timestamp=NOW + minutes * 1000)
        return minutes

    assert 1800 < rolled_after() <= 3600
    assert rolled_after() == rolled_after()


def test_when_an_index_is_full() -> None:
    config = LogConfig(index_interval_bytes=1, segment_index_bytes=40)
    log = open_log(new_disk(), config)
    for step in range(12):
        append(log, timestamp=NOW + step)  # the time index holds two, and the closing entry
    assert bases(log) == [0, 3, 6, 9]

    log = open_log(new_disk(), config)
    for _ in range(14):
        append(log)  # one time entry only; the offset index holds five
    assert bases(log) == [0, 6, 12]


def test_when_the_offset_does_not_fit() -> None:
    leader, log = open_log(new_disk()), open_log(new_disk())
    append(leader)
    records = batch(timestamp=NOW)
    for base_offset in (0, 2**31 - 1, 2**31):
        records[:8] = base_offset.to_bytes(8, "big")
        log.append_as_follower(records, now_ms=NOW)

    assert bases(log) == [0, 2**31]
    assert log.log_end_offset == 2**31 + 1


def test_age_survives_a_restart() -> None:
    disk = new_disk()
    config = LogConfig(segment_ms=HOUR_MS)
    log = open_log(disk, config)
    append(log, timestamp=NOW - HOUR_MS)
    log.close()
    log = open_log(disk, config)
    append(log, timestamp=NOW)
    append(log, timestamp=NOW + 1)

    assert bases(log) == [0, 2]


def test_a_smaller_segment_size_holds_at_once() -> None:
    log = open_log(new_disk())
    append(log)
    append(log)
    log.config = replace(log.config, segment_bytes=SIZE)
    append(log)

    assert bases(log) == [0, 2]


def test_the_closing_entry_names_the_greatest_timestamp() -> None:
    log = open_log(new_disk(), LogConfig(segment_bytes=200))
    for timestamps in ([NOW], [NOW + 9, NOW + 3], [NOW + 1]):
        log.append_as_leader(timed_batch(timestamps), leader_epoch=0, now_ms=NOW)
    first = log.segments[0]

    assert (first.time_index.last_timestamp, first.time_index.last_offset) == (NOW + 9, 2)
    assert first.max_timestamp == NOW + 9


def test_a_segment_that_was_sealed_full_and_cut_is_still_full() -> None:
    config = LogConfig(index_interval_bytes=1, segment_index_bytes=40)
    log = open_log(new_disk(), config)
    for step in range(6):
        append(log, timestamp=NOW + step)
    log.truncate_to(3)
    for step in range(3, 6):
        append(log, timestamp=NOW + step)

    assert bases(log) == [0, 3]


def test_no_append_reads_the_first_batch() -> None:
    """Its time is read at the start, and known then."""
    disk = paged_disk()
    config = LogConfig(segment_bytes=4 * SIZE, segment_ms=HOUR_MS)
    log = open_log(disk, config)
    for minutes in (0, 10):
        append(log, timestamp=NOW - 3 * HOUR_MS + minutes * 60_000)
    flush(log)
    log = reopened(disk, config, log)
    disk.waited.clear()
    for minutes in (20, 61, 70, 80, 90, 100):
        if minutes != 70:  # what is second in a segment reads the first
            disk.evict_file(log.segments.active.log_path)
        append(log, timestamp=NOW - 3 * HOUR_MS + minutes * 60_000)

    assert bases(log) == [0, 3, 7]
    assert disk.waited == []


def test_a_first_batch_that_cannot_be_read_is_told_to_who_appends() -> None:
    """And not to the start, which may do without."""
    config = LogConfig(segment_bytes=1 << 20)
    survived = 0
    for passing in range(20):
        disk = new_disk()
        log = open_log(disk, config)
        for _ in range(100):
            append(log, size=100)
        flush(log)
        log.close()
        fault = disk.inject("pread", errno.EIO, path=log.segments.active.log_path, passing=passing)
        with suppress(OSError):
            log = open_log(disk, config, recovery_point=100)
            assert append(log) == 100
            survived += fault.times == 0
    assert survived == 1


def with_refused_roll(disk: SimDisk) -> Log:
    """A log of three batches, and no room for the index of its second segment."""
    log = open_log(disk, LogConfig(segment_bytes=1000))
    for _ in range(3):
        append(log)
    flush(log)
    disk.inject("create", errno.ENOSPC, path="index")
    with pytest.raises(KafkaError):
        append(log, size=800)
    return log


def end_after_crash(disk: SimDisk, seed: int, mode: CrashMode) -> int:
    return open_log(disk.crash(random.Random(seed), mode), clean=False).log_end_offset


@pytest.mark.parametrize("mode", [CrashMode.SUBSET, CrashMode.PREFIX])
def test_behind_a_refused_roll_smaller_batches_go_on_and_survive(mode: CrashMode) -> None:
    disk = new_disk()
    log = with_refused_roll(disk)
    for _ in range(3):
        append(log)
        flush(log)

    assert bases(log) == [0]
    assert {end_after_crash(disk, seed, mode) for seed in range(20)} == {6}


def test_a_begun_segment_that_cannot_be_removed_is_the_next_one() -> None:
    """Nothing may come to lie behind its offset in the segment before."""
    disk = new_disk()
    removal = disk.inject("remove", errno.ENOSPC, path=".log", times=2)
    log = with_refused_roll(disk)
    disk.inject("create", errno.ENOSPC, path="index")
    with pytest.raises(KafkaError):
        append(log)
    assert removal.times == 0
    append(log)
    flush(log)

    assert bases(log) == [0, 3]
    assert {end_after_crash(disk, seed, CrashMode.SUBSET) for seed in range(20)} == {4}


def test_nor_one_whose_removal_may_be_undone() -> None:
    disk = new_disk()
    disk.inject("sync_dir", errno.EMFILE, passing=2)  # those of the first flush
    log = with_refused_roll(disk)
    append(log)

    assert bases(log) == [0, 3]


def test_a_removal_that_cannot_be_synced_fails_the_log() -> None:
    disk = new_disk()
    log = open_log(disk, LogConfig(segment_bytes=1000))
    append(log)
    disk.inject("create", errno.ENOSPC, path="index")
    disk.inject("sync_dir", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        append(log, size=900)

    assert log.failed is not None
