"""Look-ups of a log that no request of a quiet consumer needs: by time, by aborted transaction.

They read indexes, batch headers, and the records of at most one batch a segment.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ottla.broker.log.segment import FileSlice, Segment
from ottla.broker.log.segments import Segments
from ottla.broker.log.time_index import NO_TIMESTAMP
from ottla.broker.log.transaction_index import AbortedTransaction
from ottla.protocol.records.batch import MAGIC, BatchHeader

if TYPE_CHECKING:
    from ottla.protocol.records.record import Record

# What lies so far before a producer snapshot is looked through for batches that it left out.
HISTORY_BYTES = 4 * 1024 * 1024

TimedOffset = tuple[int, int, int]


def offset_for_timestamp(
    segments: Segments, timestamp: int, log_start_offset: int
) -> TimedOffset | None:
    """(offset, timestamp, leader epoch) of the first record with at least that timestamp."""
    for index in range(segments.index_by_time(timestamp), len(segments)):
        segment = segments[index]
        if segment.max_timestamp < timestamp:
            continue
        segments.read_from(segment)
        for position, header in segment.headers(segment.position_by_time(timestamp)):
            if header.max_timestamp < timestamp or header.last_offset < log_start_offset:
                continue
            found = _first_record(segment, position, header, timestamp, log_start_offset)
            if found is not None:
                return found
    return None


def max_timestamp_offset(segments: Segments, log_start_offset: int) -> TimedOffset | None:
    """(offset, timestamp, leader epoch) of the first record with the greatest timestamp."""
    first = segments.floor_index(log_start_offset)
    kept = segments[first:]
    greatest = max(segment.max_timestamp for segment in kept)
    if greatest == NO_TIMESTAMP:
        return None
    found = offset_for_timestamp(segments, greatest, log_start_offset)
    if found is None:
        # It lies below the log start, in the segment that holds that.
        greatest = max(
            _greatest_from(segments, kept[0], log_start_offset),
            max((segment.max_timestamp for segment in kept[1:]), default=NO_TIMESTAMP),
        )
        if greatest > NO_TIMESTAMP:
            found = offset_for_timestamp(segments, greatest, log_start_offset)
    return found


def aborted_transactions(segments: Segments, offset: int, upper: int) -> list[tuple[int, int]]:
    """(producer id, first offset) of the aborted transactions with records in [offset, upper)."""
    return _aborted(segments, offset, lambda: upper)


def aborted_in(
    segments: Segments, offset: int, found: FileSlice, stable: int
) -> list[tuple[int, int]]:
    """The same of a slice that a read from `offset` on gave, as closely as the index knows where it
    ends. Where nothing was aborted, nobody asks for that."""
    return _aborted(segments, offset, lambda: _end_of(segments, offset, found, stable))


def _aborted(
    segments: Segments, offset: int, find_upper: Callable[[], int]
) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    upper: int | None = None
    for segment in segments[segments.floor_index(offset) :]:
        entries = segment.transactions.entries()
        if not entries or entries[-1].last_offset < offset:
            continue
        if upper is None:
            upper = find_upper()
        for index in range(bisect_left(entries, offset, key=_last_offset), len(entries)):
            entry = entries[index]
            if entry.first_offset < upper:
                found.append((entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= upper:
                return found
    return found


def _end_of(segments: Segments, offset: int, found: FileSlice, stable: int) -> int:
    """An offset that no batch of a slice reaches."""
    first = segments.floor_index(offset)
    for index in range(first, len(segments)):
        if segments[index].file is found.file:
            end = segments[index].offset_behind(found.position + found.size)
            if end is None and index + 1 < len(segments):
                end = segments[index + 1].base_offset
            return stable if end is None else min(end, stable)
    return stable


def _last_offset(entry: AbortedTransaction) -> int:
    return entry.last_offset


def headers_before(segments: Segments, end_offset: int) -> Iterator[BatchHeader]:
    """The batches of the last HISTORY_BYTES before an offset, in order."""
    index = segments.floor_index(end_offset - 1)
    position, _ = segments[index].locate(end_offset)
    left = HISTORY_BYTES
    start = segments[index].position_before(max(position - left, 0))
    while start == 0 and index > 0 and (left := left - position) > 0:
        index -= 1
        position = segments[index].size
        start = segments[index].position_before(max(position - left, 0))
    for segment in segments[index:]:
        segments.read_from(segment)
        for _, header in segment.headers(start):
            if header.base_offset >= end_offset:
                return
            yield header
        start = 0


def _greatest_from(segments: Segments, segment: Segment, offset: int) -> int:
    """The greatest timestamp of the records of a segment that are not below an offset."""
    segments.read_from(segment)
    greatest = NO_TIMESTAMP
    for position, header in segment.headers(segment.locate(offset)[0]):
        if header.max_timestamp > greatest:
            times = [header.max_timestamp]
            if header.base_offset < offset or header.magic != MAGIC:
                records = _records(segment, position, header)
                times = [record.timestamp for record in records if record.offset >= offset]
            greatest = max([greatest, *times])
    return greatest


def _first_record(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, log_start_offset: int
) -> TimedOffset | None:
    if header.magic == MAGIC:
        # Only who asks for a time reads records: their readers are loaded then.
        from ottla.protocol.records.times import first_with_time

        file = segment.open()

        def read(at: int, size: int) -> bytes:
            return file.pread(size, position + at)

        first = first_with_time(header, read, timestamp, log_start_offset)
        return None if first is None else (*first, header.partition_leader_epoch)
    for record in _records(segment, position, header):
        if record.timestamp >= timestamp and record.offset >= log_start_offset:
            return record.offset, record.timestamp, header.partition_leader_epoch
    return None


def _records(segment: Segment, position: int, header: BatchHeader) -> Iterator[Record]:
    # Only who asks for a time reads records: the readers and their codecs are loaded then.
    if header.magic == MAGIC:
        from ottla.protocol.records.record import iterate_records

        return iterate_records(segment.batch_at(position, header.size))
    from ottla.protocol.records.legacy import iterate_legacy_records

    return iterate_legacy_records(segment.batch_at(position, header.size))
