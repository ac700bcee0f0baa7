"""Look-ups by time: as a walk over all records would answer."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.log.log import UPPER_LOG_END, Log
from ottla.config.types import LogConfig
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record, iterate_records
from tests.log.events import RecordedEvents
from tests.log.logs import (
    DIRECTORY,
    NOW,
    SMALL,
    append,
    first_at_time,
    flush,
    headers_of,
    new_disk,
    open_log,
    read_all,
    run_all,
    timed_batch,
)


def fill(log: Log, batches: list[list[int]], **fields: int) -> None:
    for timestamps in batches:
        records = timed_batch([NOW + one for one in timestamps], **fields)
        log.append_as_leader(records, leader_epoch=2, now_ms=NOW)
    flush(log)


def all_records(log: Log) -> list[Record]:
    found: list[Record] = []
    data, position = read_all(log), 0
    for header in headers_of(data):
        found += iterate_records(data[position : position + header.size])
        position += header.size
    return [record for record in found if record.offset >= log.log_start_offset]


@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=4), max_size=40),
    codec=st.sampled_from([0, 1, 2, 3, 4]),
    probes=st.lists(st.integers(-5, 310), max_size=8),
    start=st.integers(0, 20),
    reopen=st.booleans(),
)
def test_times_are_found_as_by_a_walk(
    batches: list[list[int]], codec: int, probes: list[int], start: int, reopen: bool
) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    fill(log, batches, codec=codec)
    start = min(start, log.high_watermark)
    if reopen:
        log.close()
        log = open_log(disk, SMALL, high_watermark=10**6)
    log.delete_records(start)
    records = all_records(log)

    for probe in probes:
        expected = next((one for one in records if one.timestamp >= NOW + probe), None)
        found = first_at_time(log, NOW + probe)
        assert found == (expected and (expected.offset, expected.timestamp, 2))
    if records and start == 0:
        greatest = max(record.timestamp for record in records)
        first = next(record for record in records if record.timestamp == greatest)
        assert run_all(log.steps_to_max_timestamp()) == (first.offset, greatest, 2)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_an_index_that_could_not_be_read_once_is_not_taken_for_empty(number: int) -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    fill(log, [[step] for step in range(40)])
    log.close()
    log = open_log(disk, SMALL, recovery_point=40, high_watermark=40)
    wanted = log.segments[1].base_offset + 1
    disk.inject("open", number, path=log.segments[1].index.entries.path)
    with pytest.raises(OSError, match=r"Too many|Input"):
        first_at_time(log, NOW + wanted)

    assert first_at_time(log, NOW + wanted) == (wanted, NOW + wanted, 2)


def test_an_empty_log_has_no_time() -> None:
    log = open_log(new_disk())

    assert first_at_time(log, 0) is None
    assert run_all(log.steps_to_max_timestamp()) is None


def test_records_without_a_time_are_not_found_by_it() -> None:
    log = open_log(new_disk())
    log.append_as_leader(timed_batch([-1, -1]), leader_epoch=0, now_ms=NOW)

    assert first_at_time(log, 0) is None


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("batches", [[[-1, -1]] * 40, [[NOW, -1], *([[-1, -1]] * 39)]])
def test_the_greatest_time_of_records_without_one_is_the_first_ones(
    batches: list[list[int]], codec: int
) -> None:
    """As in Kafka; of those that are not deleted, where the one with a time is."""
    log = open_log(new_disk(), SMALL)
    for times in batches:
        log.append_as_leader(timed_batch(times, codec=codec), leader_epoch=0, now_ms=NOW)
    flush(log)
    assert run_all(log.steps_to_max_timestamp()) == (0, batches[0][0], 0)
    for start in (1, log.segments[2].base_offset + 1, log.log_end_offset - 1):
        log.delete_records(start)
        assert run_all(log.steps_to_max_timestamp()) == (start, -1, 0)

    log.delete_records(log.log_end_offset)
    assert run_all(log.steps_to_max_timestamp()) is None


def test_the_brokers_time_counts_where_it_sets_it() -> None:
    log = open_log(new_disk(), LogConfig(message_timestamp_type="LogAppendTime"))
    for step in range(3):
        log.append_as_leader(timed_batch([5, 6]), leader_epoch=0, now_ms=NOW + step)

    assert first_at_time(log, NOW + 1) == (2, NOW + 1, 0)
    assert run_all(log.steps_to_max_timestamp()) == (4, NOW + 2, 0)


def test_an_entry_that_points_into_a_record_is_found_out() -> None:
    """Where the record has bytes like the header of a message of magic 0, as zeros and a small
    number are."""
    disk = new_disk()
    config = LogConfig(index_interval_bytes=200)
    log = open_log(disk, config)
    value = bytes(8) + (300).to_bytes(4, "big") + bytes(100)
    for offset in range(100):
        records = build_batch([Record(0, NOW + offset, b"k", value)])
        log.append_as_leader(memoryview(records), leader_epoch=0, now_ms=NOW)
    flush(log)
    log.close()
    path = f"{DIRECTORY}/{0:020d}.index"
    at = 8 * 20
    entry = disk.open(path).pread(8, at)
    offset, position = int.from_bytes(entry[:4], "big"), int.from_bytes(entry[4:], "big")
    inside = position + disk.open(f"{DIRECTORY}/{0:020d}.log").pread(300, position).index(value)
    disk.corrupt(path, at + 4, inside.to_bytes(4, "big"))
    events = RecordedEvents()
    log = open_log(disk, config, recovery_point=100, high_watermark=100, events=events)
    found = log.read(offset, max_bytes=200, upper=UPPER_LOG_END, at_least_one=True)

    assert found is not None
    assert found.position == position
    assert events.names == ["index_rebuilt"]


def test_a_true_entry_before_damage_does_not_have_the_index_made_anew() -> None:
    disk = new_disk()
    log = open_log(disk, LogConfig(index_interval_bytes=200))
    for _ in range(100):
        append(log)
    flush(log)
    log.close()
    entry = disk.open(f"{DIRECTORY}/{0:020d}.index").pread(8, 8 * 20)
    offset, position = int.from_bytes(entry[:4], "big"), int.from_bytes(entry[4:], "big")
    size = log.size_bytes // 100
    disk.corrupt(f"{DIRECTORY}/{0:020d}.log", position + size, bytes(size))
    events = RecordedEvents()
    log = open_log(disk, recovery_point=100, high_watermark=100, events=events)
    for _ in range(2):
        with pytest.raises(KafkaError, match="no batch where one begins"):
            log.read(offset + 1, max_bytes=200, upper=UPPER_LOG_END, at_least_one=True)

    assert events.names == []
