"""Reads: where a slice begins and ends, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.broker.log.file_slice import FileSlice
from ottla.broker.log.log import UPPER_HIGH_WATERMARK, UPPER_LAST_STABLE, UPPER_LOG_END, Log
from ottla.broker.log.segment import TAIL_BYTES_MAX
from ottla.broker.log.segments import OPEN_SEALED_MAX
from ottla.config.types import LogConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.testing.disk import SimDisk, SimFile
from tests.log.logs import (
    NOW,
    RELAXED,
    SMALL,
    append,
    batch,
    flush,
    headers_of,
    new_disk,
    offsets,
    open_log,
    read_all,
)

SIZE = len(batch())


class CountingDisk(SimDisk):
    """Counts what is read from files."""

    reads = 0

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.reads += 1
        return super().open(path, create=create)

    def _before_read(self, call: str, path: str) -> None:
        self.reads += call in ("pread", "map")
        super()._before_read(call, path)


def filled(count: int = 5, config: LogConfig | None = None) -> Log:
    log = open_log(new_disk(), config)
    for _ in range(count):
        append(log)
    flush(log)
    return log


def span(log: Log, offset: int, max_bytes: int, at_least_one: bool = False) -> tuple[int, int]:
    found = log.read(
        offset, max_bytes=max_bytes, upper=UPPER_HIGH_WATERMARK, at_least_one=at_least_one
    )
    return (0, 0) if found is None else (found.position, found.size)


def test_a_slice_is_cut_at_max_bytes() -> None:
    log = filled(5)

    assert span(log, 0, 10 * SIZE) == (0, 5 * SIZE)
    assert span(log, 2, 10 * SIZE) == (2 * SIZE, 3 * SIZE)
    assert span(log, 1, SIZE + 7) == (SIZE, SIZE + 7)
    assert span(log, 1, 2 * SIZE - 1) == (SIZE, 2 * SIZE - 1)


@pytest.mark.parametrize("offset", [0, 28, 29])
def test_a_first_batch_that_has_no_room_is_not_begun(offset: int) -> None:
    """A consumer that finds no whole batch in what it is sent takes the broker for broken."""
    log = filled(30, SMALL)

    for max_bytes in (0, 1, SIZE - 1):
        assert span(log, offset, max_bytes) == (0, 0)


def test_the_first_batch_is_whole_if_one_is_wanted() -> None:
    log = filled(5)

    assert span(log, 1, 0, at_least_one=True) == (SIZE, SIZE)
    assert span(log, 1, SIZE - 1, at_least_one=True) == (SIZE, SIZE)
    assert span(log, 1, SIZE + 1, at_least_one=True) == (SIZE, SIZE + 1)


def test_a_read_begins_at_the_batch_that_holds_the_offset() -> None:
    log = open_log(new_disk())
    append(log, 3)
    first = log.size_bytes
    append(log, 3)
    flush(log)

    assert [span(log, offset, 10**6)[0] for offset in range(6)] == [0, 0, 0, first, first, first]


@pytest.mark.parametrize("offset", [-1, 1, 6])
def test_outside_of_the_log_is_out_of_range(offset: int) -> None:
    log = filled(5)
    log.delete_records(2)

    with pytest.raises(KafkaError) as raised:
        log.read(offset, max_bytes=1, upper=UPPER_LOG_END, at_least_one=True)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_between_the_high_watermark_and_the_end_there_is_nothing() -> None:
    log = filled(3)
    append(log)

    for upper in (UPPER_HIGH_WATERMARK, UPPER_LAST_STABLE):
        assert log.read(3, max_bytes=100, upper=upper, at_least_one=True) is None
        assert log.read(4, max_bytes=100, upper=upper, at_least_one=True) is None
    found = log.read(3, max_bytes=10**6, upper=UPPER_LOG_END, at_least_one=True)
    assert found is not None
    assert found.size == SIZE
    assert span(log, 0, 10**6) == (0, 3 * SIZE)


def test_a_slice_lies_in_one_segment() -> None:
    log = filled(30, SMALL)
    per_segment = [segment.size for segment in log.segments]

    assert len(per_segment) > 2
    assert span(log, 0, 10**6) == (0, per_segment[0])
    assert offsets(log) == list(range(30))
    assert log.size_bytes == sum(per_segment)


def test_a_tailing_reader_needs_no_disk() -> None:
    disk = CountingDisk()
    for path in ("/data", "/data/orders-0"):
        disk.make_dir(path)
    log = open_log(disk, SMALL)
    for _ in range(40):
        append(log)
        flush(log)
        before = disk.reads
        found = log.read(
            log.high_watermark - 1, max_bytes=1000, upper=UPPER_HIGH_WATERMARK, at_least_one=True
        )
        assert found is not None
        assert disk.reads == before
        assert log.bytes_available(log.high_watermark - 1, UPPER_HIGH_WATERMARK, 10**6) == SIZE


def test_bytes_available_stop_at_the_limit() -> None:
    log = filled(4)
    append(log)

    assert log.bytes_available(1, UPPER_HIGH_WATERMARK, 10**6) == 3 * SIZE
    assert log.bytes_available(1, UPPER_HIGH_WATERMARK, 50) == 50
    assert log.bytes_available(4, UPPER_HIGH_WATERMARK, 50) == 0
    assert log.bytes_available(99, UPPER_HIGH_WATERMARK, 50) == 50


def test_few_sealed_segments_stay_open() -> None:
    log = filled(300, SMALL)
    assert offsets(log) == list(range(300))
    opened = [segment for segment in log.segments if segment.file is not None]

    assert len(log.segments) > 3 * OPEN_SEALED_MAX
    assert len(opened) <= OPEN_SEALED_MAX + 1


def test_a_pinned_slice_outlives_its_segment() -> None:
    log = filled(30, replace(SMALL, retention_bytes=0))
    found = log.read(0, max_bytes=10**6, upper=UPPER_HIGH_WATERMARK, at_least_one=True)
    assert found is not None
    found.file.pin()
    for _ in range(2):
        log.delete_old_segments(0)
        flush(log)
    list(log.segments.remove_deleted(log.segments.take_deleted(10**9)))

    assert headers_of(found.read())[0].base_offset == 0
    found.file.unpin()
    assert offsets(log) == []


@pytest.mark.parametrize("clean", [True, False])
def test_what_was_written_is_read_after_a_restart(clean: bool) -> None:
    disk = new_disk()
    log = open_log(disk, RELAXED)
    for count in range(1, 30):
        append(log, count % 4 + 1)
    written = read_all(log)
    log.close(clean)
    again = open_log(disk, RELAXED, clean=clean)

    assert read_all(again) == written
    assert again.durable_end == again.visible_end == again.log_end_offset == log.log_end_offset
    append(again)
    assert read_all(again)[: len(written)] == written


def test_a_broken_chain_is_answered_as_corrupt() -> None:
    disk = new_disk()
    log = open_log(disk, SMALL)
    for _ in range(30):
        append(log)
    log.close()
    path = log.segments[0].log_path
    disk.corrupt(path, 3 * SIZE + 16, b"\7")
    log = open_log(disk, SMALL)

    with pytest.raises(KafkaError) as raised:
        log.read(3, max_bytes=1, upper=UPPER_LOG_END, at_least_one=True)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    for offset in (0, 1, 2, log.segments[1].base_offset, 29):
        assert log.read(offset, max_bytes=1, upper=UPPER_LOG_END, at_least_one=True) is not None


def test_the_repr_is_for_the_operator() -> None:
    log = filled(3)
    append(log)

    assert repr(log) == "<Log orders-0 0<=3<=3<=3<=4 durable=3 epoch=0>"


def _last(log: Log, offset: int) -> FileSlice:
    found = log.read(offset, max_bytes=10**6, upper=UPPER_LOG_END, at_least_one=True)
    assert found is not None
    return found


def test_who_waits_for_a_batch_need_not_read_it() -> None:
    disk = CountingDisk()
    for path in ("/data", "/data/orders-0"):
        disk.make_dir(path)
    log = open_log(disk, RELAXED)
    append(log)
    offset = append(log, is_awaited=True)
    before = disk.reads
    known = _last(log, offset).known

    assert disk.reads == before
    assert known == _last(log, offset).read()
    assert _last(log, 0).known == b""
    assert _last(log, append(log)).known == b""


def test_a_batch_of_any_size_is_not_kept() -> None:
    log = open_log(new_disk())
    least = len(batch(size=0))
    fits = append(log, size=TAIL_BYTES_MAX - least - 10, is_awaited=True)
    assert _last(log, fits).known
    larger = append(log, size=TAIL_BYTES_MAX, is_awaited=True)

    assert _last(log, larger).known == b""


def test_what_was_kept_is_not_told_of_what_came_in_its_place() -> None:
    log = open_log(new_disk(), RELAXED)
    append(log)
    offset = append(log, timestamp=NOW + 5, is_awaited=True)
    kept = _last(log, offset).known
    log.truncate_to(offset)
    other = open_log(new_disk(), RELAXED)
    append(other)
    append(other, timestamp=NOW + 7)
    log.append_as_follower(memoryview(bytearray(_last(other, offset).read())), now_ms=NOW)
    found = _last(log, offset)

    assert found.size == len(kept)
    assert found.known in (b"", found.read())
    assert found.read() != kept
