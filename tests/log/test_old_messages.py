"""Segments with messages of magic 0 and 1, as kafka-clients 3.9.1 wrote them.

The sets come from tests/golden/java/legacy: four records each, at offsets 100 to 103. Behind them
lie batches, as a broker that was upgraded has appended them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from ottla.broker.log.directories import Kind, PartitionName
from ottla.broker.log.log import UPPER_LOG_END, Log
from ottla.broker.log.moving import FutureCopy, continues, first_base_offset, next_slice
from ottla.broker.log.old_messages import MESSAGE_SIZE_MIN, read_message
from ottla.broker.log.scrub import restore
from ottla.config.types import LogConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.legacy import iterate_legacy_records, iterate_messages
from ottla.testing.clock import SimClock
from ottla.testing.disk import SimDisk
from tests.log.events import RecordedEvents
from tests.log.logs import (
    DIRECTORY,
    append,
    batch,
    first_at_time,
    flush,
    new_disk,
    open_log,
    run_all,
)
from tests.records.test_legacy import SETS

FIRST = 100
COUNT = 4
TIME = 1_700_000_000_000
CONFIG = LogConfig(index_interval_bytes=50, segment_index_bytes=2400)
LOG_PATH = f"{DIRECTORY}/{FIRST:020d}.log"


def shifted(content: bytes, by: int) -> bytes:
    """Messages at higher offsets; only the outer ones are touched, which no CRC covers."""
    moved = bytearray(content)
    for position, message in iterate_messages(content):
        struct.pack_into(">q", moved, position, message.offset + by)
    return bytes(moved)


def stored(name: str, repeats: int) -> bytes:
    """A segment's file: the set some times over, and two batches."""
    content = b"".join(shifted(SETS[name], COUNT * step) for step in range(repeats))
    for index in range(2):
        one = batch(timestamp=TIME + 1_000_000)
        struct.pack_into(">qi", one, 0, FIRST + COUNT * repeats + index, len(one) - 12)
        struct.pack_into(">i", one, 12, 3)
        content += bytes(one)
    return content


def repeats_of(name: str) -> int:
    # The inner offsets of magic 0 are absolute, and cannot be shifted where they are compressed.
    return 6 if name.startswith("magic1") or name == "magic0 none" else 1


def disk_with(content: bytes) -> SimDisk:
    disk = new_disk()
    disk.open(LOG_PATH, create=True).pwrite(content, 0)
    return disk


def crashed(content: bytes, recovery_point: int = 0) -> Log:
    return open_log(
        disk_with(content),
        CONFIG,
        clean=False,
        recovery_point=recovery_point,
        log_start_offset=FIRST,
        high_watermark=1 << 40,
    )


def without_indexes(content: bytes) -> Log:
    return open_log(disk_with(content), CONFIG, log_start_offset=FIRST, high_watermark=1 << 40)


def stopped(content: bytes) -> Log:
    disk = disk_with(content)
    log = open_log(disk, CONFIG, clean=False, log_start_offset=FIRST)
    append(log)
    log.truncate_to(log.log_end_offset - 1)
    log.close()
    return open_log(disk, CONFIG, log_start_offset=FIRST, high_watermark=1 << 40)


STARTS: dict[str, Callable[[bytes], Log]] = {
    "after a crash": crashed,
    "without indexes": without_indexes,
    "after a clean stop": stopped,
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name", SETS)
def test_they_are_served_as_they_lie(name: str, start: str) -> None:
    repeats = repeats_of(name)
    content = stored(name, repeats)
    log = STARTS[start](content)
    end = FIRST + COUNT * repeats + 2

    assert (log.log_start_offset, log.log_end_offset) == (FIRST, end)
    whole = log.read(FIRST, max_bytes=1 << 20, upper=UPPER_LOG_END, at_least_one=True)
    assert whole is not None
    assert whole.read() == content
    outer = [message for _, message in iterate_messages(content[: -2 * len(batch())])]
    for offset in range(FIRST, end - 2):
        found = log.read(offset, max_bytes=1, upper=UPPER_LOG_END, at_least_one=True)
        assert found is not None
        ((_, message),) = iterate_messages(found.read())
        assert message.offset == min(one.offset for one in outer if one.offset >= offset)
    assert append(log) == end


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name", SETS)
def test_times_are_found(name: str, start: str) -> None:
    repeats = repeats_of(name)
    content = stored(name, repeats)
    log = STARTS[start](content)
    old = content[: -2 * len(batch())]
    records = [(one.offset, one.timestamp) for one in iterate_legacy_records(old)]
    records += [(FIRST + COUNT * repeats + index, TIME + 1_000_000) for index in range(2)]

    for wanted in sorted({time + delta for _, time in records for delta in (0, 1)}):
        if wanted >= 0:
            expected = next(((o, t) for o, t in records if t >= wanted), None)
            found = first_at_time(log, wanted)
            assert (found and found[:2]) == expected
    greatest = max(time for _, time in records)
    highest = run_all(log.steps_to_max_timestamp())
    assert highest is not None
    assert highest[:2] == next(one for one in records if one[1] == greatest)


@pytest.mark.parametrize("name", SETS)
def test_a_cut_leaves_whole_sets(name: str) -> None:
    repeats = repeats_of(name)
    log = crashed(stored(name, repeats))
    is_wrapper = not name.endswith("none")
    log.truncate_to(FIRST + COUNT * repeats - 2)

    assert log.log_end_offset == FIRST + COUNT * repeats - (COUNT if is_wrapper else 2)
    assert append(log) == log.log_end_offset - 1


@pytest.mark.parametrize("name", ["magic0 none", "magic1 none", "magic1 gzip"])
def test_a_torn_or_changed_one_is_cut(name: str) -> None:
    content = stored(name, 6)[: -2 * len(batch())]
    (*_, (last, _)) = iterate_messages(content)
    whole = crashed(content).log_end_offset
    for damaged in (content[:-1], content[:-3] + b"???", content[: last + 20]):
        log = crashed(damaged)
        size = log.size_bytes

        assert size == last
        assert log.log_end_offset < whole
        assert append(log) == log.log_end_offset - 1
        flush(log)


@pytest.mark.parametrize("name", SETS)
def test_they_move_to_another_log_dir(name: str) -> None:
    repeats = repeats_of(name)
    content = stored(name, repeats)
    disk = disk_with(content)
    disk.make_dir("/other")
    source = open_log(disk, CONFIG, clean=False, log_start_offset=FIRST)
    path = f"/other/orders-0.{'0' * 32}-future"
    place = PartitionName("orders", 0, Kind.FUTURE)
    copy = FutureCopy(disk, "/other", path, place, SimClock(), RecordedEvents())
    copy.make(source.topic_id)
    copy.open(source, clean=True)
    assert copy.log is not None
    copy.start_over(first_base_offset(source), source.producer_state.snapshot())
    while (found := next_slice(source, copy.log)) is not None:
        copy.append(found.read(), CONFIG)
    assert continues(source, copy.log)
    copy.prepare(source)
    copy.complete(source, source.producer_state.snapshot())
    moved = copy.take_name(source)

    assert (moved.log_start_offset, moved.log_end_offset) == (FIRST, source.log_end_offset)
    whole = moved.read(FIRST, max_bytes=1 << 20, upper=UPPER_LOG_END, at_least_one=True)
    assert whole is not None
    assert whole.read() == content


def test_a_changed_one_is_not_copied() -> None:
    content = bytearray(SETS["magic1 none"])
    content[-1] ^= 1
    log = open_log(new_disk(), CONFIG)
    with pytest.raises(KafkaError) as raised:
        log.append_as_follower(memoryview(content), now_ms=0)

    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 0


def test_a_damaged_one_is_not_walked_over() -> None:
    content = bytearray(stored("magic1 none", 6))
    (_, (second, _), *_) = iterate_messages(bytes(content[: -2 * len(batch())]))
    struct.pack_into(">i", content, second + 8, -5)
    disk = disk_with(bytes(content))
    config = replace(CONFIG, index_interval_bytes=1 << 20)
    log = open_log(disk, config, clean=False, recovery_point=126, log_start_offset=FIRST)

    assert log.recovery.damaged
    with pytest.raises(KafkaError) as raised:
        log.read(FIRST + 3, max_bytes=1, upper=UPPER_LOG_END, at_least_one=True)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def test_too_few_bytes_are_no_message() -> None:
    content = SETS["magic1 none"]
    for size in range(MESSAGE_SIZE_MIN):
        assert read_message(content[:size], 0) is None
    for magic, length in ((0, 13), (1, 21), (1, -1), (2, 100)):
        message = bytearray(content)
        struct.pack_into(">i", message, 8, length)
        message[16] = magic
        assert read_message(message, 0) is None


@pytest.mark.parametrize("name", ["magic0 none", "magic1 none", "magic1 gzip"])
@pytest.mark.parametrize("taken", [slice(0, 1), slice(3, 5), slice(-1, None)])
def test_damage_below_the_recovery_point_costs_the_messages_that_it_hits(
    name: str, taken: slice
) -> None:
    content = bytearray(stored(name, 6))
    batches = 2 * len(batch())
    messages = list(iterate_messages(bytes(content[:-batches])))
    ends = [position for position, _ in messages[1:]] + [len(content) - batches]
    for position, _ in messages[taken]:
        content[position + 12] ^= 0xFF
    end_offset = FIRST + 6 * COUNT + 2
    log = crashed(bytes(content), end_offset)
    restore(log, [])
    first = messages[taken][0][0]

    assert [(one.position, one.size) for one in log.recovery.damaged] == [
        (first, ends[taken][-1] - first)
    ]
    assert log.log_end_offset == end_offset
    for position, message in messages:
        if (position, message) not in messages[taken]:
            found = log.read(message.offset, max_bytes=1, upper=UPPER_LOG_END, at_least_one=True)
            assert found is not None
            assert found.position == position


@pytest.mark.parametrize("recovery_point", [0, FIRST + 6 * COUNT + 2])
def test_messages_behind_a_wrong_offset_are_kept_aside(recovery_point: int) -> None:
    content = bytearray(stored("magic1 none", 6))
    messages = list(iterate_messages(bytes(content[: -2 * len(batch())])))
    position, behind = messages[3][0], messages[4][0]
    content[position + 5] ^= 1
    disk = disk_with(bytes(content))
    log = open_log(disk, CONFIG, clean=False, recovery_point=recovery_point)

    (side,) = log.recovery.kept_aside
    assert disk.open(side).pread(1 << 20, 0) == content[behind:]
