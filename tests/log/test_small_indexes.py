"""`segment.index.bytes` may be as small as 4: an index that has no room for an entry is no error.

Its segment takes what it takes in one go, as Kafka's does, and the next append begins another.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.broker.log.log import UPPER_LOG_END, Log
from ottla.config.types import LogConfig
from ottla.testing.disk import SimDisk
from tests.log.events import RecordedEvents
from tests.log.logs import (
    NOW,
    append,
    batch,
    first_at_time,
    flush,
    new_disk,
    offsets,
    open_log,
    read_all,
)

# Room for no offset entry, for no time entry, for the closing entry alone, for one besides.
SIZES = [4, 7, 8, 11, 12, 16, 23, 24]
CONFIG = LogConfig(index_interval_bytes=1, flush_messages=2**63 - 1)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def assert_finds_all(log: Log, count: int) -> None:
    """All that was appended is found, by offset and by time; there is one millisecond between."""
    assert log.log_end_offset == count
    assert offsets(log, UPPER_LOG_END) == list(range(count))
    for offset in range(count):
        found = log.read(offset, max_bytes=1, upper=UPPER_LOG_END, at_least_one=True)
        assert found is not None
        by_time = first_at_time(log, NOW + offset)
        assert by_time is not None
        assert by_time[:2] == (offset, NOW + offset)


def follower_of(leader: Log, disk: SimDisk, config: LogConfig) -> Log:
    """Has all that the leader has, taken in one fetch."""
    follower = open_log(disk, config)
    records = memoryview(bytearray(read_all(leader)))
    follower.append_as_follower(records, now_ms=NOW)
    return follower


def filled(disk: SimDisk, config: LogConfig, count: int, *, size: int = 20) -> Log:
    log = open_log(disk, config)
    for step in range(count):
        append(log, timestamp=NOW + step, size=size)
    flush(log)
    return log


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_a_leader_begins_a_segment_with_each_append(size: int, clean: bool) -> None:
    config, disk = replace(CONFIG, segment_index_bytes=size), new_disk()
    log = filled(disk, config, 5)
    assert bases(log) == (list(range(5)) if size < 24 else [0, 2, 4])
    assert_finds_all(log, 5)
    for count in (5, 6):
        if clean:
            log.close()
        log = open_log(disk, config, clean=clean, recovery_point=log.durable_end)
        assert_finds_all(log, count)
        append(log, timestamp=NOW + count)
        flush(log)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_a_follower_keeps_what_came_at_once_in_one_segment(size: int, clean: bool) -> None:
    config, disk = replace(CONFIG, segment_index_bytes=size), new_disk()
    log = follower_of(filled(new_disk(), CONFIG, 9), disk, config)
    assert_finds_all(log, 9)
    log.append_as_follower(numbered(9), now_ms=NOW)
    assert bases(log) == [0, 9]
    flush(log)
    if clean:
        log.close()
    log = open_log(disk, config, clean=clean, recovery_point=10)

    assert_finds_all(log, 10)
    log.truncate_to(4)
    assert_finds_all(log, 4)


def numbered(offset: int) -> memoryview:
    records = batch(timestamp=NOW + offset)
    records[:8] = offset.to_bytes(8, "big")
    return records


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_the_size_is_lowered_under_a_log_that_has_entries(size: int, clean: bool) -> None:
    disk = new_disk()
    log = filled(disk, CONFIG, 9)
    assert bases(log) == [0]
    log.config = replace(CONFIG, segment_index_bytes=size)
    append(log, timestamp=NOW + 9)
    flush(log)
    assert bases(log) == [0]
    if clean:
        log.close()
    log = open_log(disk, log.config, clean=clean, recovery_point=10)
    assert_finds_all(log, 10)
    append(log, timestamp=NOW + 10)

    assert bases(log) == [0, 10]
    assert_finds_all(log, 11)
    log.close()
    for suffix in (".index", ".timeindex"):
        disk.remove(log.segments[0].log_path.removesuffix(".log") + suffix)
    assert_finds_all(open_log(disk, log.config), 11)


@pytest.mark.parametrize("size", SIZES)
def test_an_index_that_is_full_is_not_made_anew_at_each_start(size: int) -> None:
    """Only one that could have more entries is short of them."""
    config, disk = replace(CONFIG, segment_index_bytes=size), new_disk()
    log = follower_of(filled(new_disk(), CONFIG, 50, size=4000), disk, config)
    log.close()
    events = RecordedEvents()
    log = open_log(disk, config, events=events)
    log.truncate_to(40)
    log.close()

    assert_finds_all(open_log(disk, config, events=events), 40)
    assert "index_rebuilt" not in events.names
    larger = open_log(disk, CONFIG, events=events)
    assert "index_rebuilt" in events.names
    assert_finds_all(larger, 40)
    assert bases(larger) == [0]


def test_a_segment_of_many_batches_and_no_entry_is_read_from_anywhere() -> None:
    config, disk = replace(CONFIG, segment_index_bytes=4), new_disk()
    log = follower_of(filled(new_disk(), CONFIG, 5000, size=1), disk, config)
    log.close()
    log = open_log(disk, config)

    assert log.log_end_offset == 5000
    for offset in (0, 2500, 4999):
        found = log.read(offset, max_bytes=1, upper=UPPER_LOG_END, at_least_one=True)
        assert found is not None
        assert found.read()[:8] == offset.to_bytes(8, "big")
