"""Look-ups by time, in steps: whoever must not be held up gives way between them.

A look-up goes through headers on the loop, from where the indexes say, to the first batch that may
have what is asked; the records of that batch are a `BatchSearch`, which reads one file and nothing
else, so that it may run on a worker thread; then it goes on behind that batch. A header that claims
a time that no record has costs one such search, and there may be any number of them. What of all
this is not in memory a worker reads first (`touched_reads.py`).

    steps = first_at(segments, timestamp, log_start_offset)
    yields   a BatchSearch   to be run, and what it found to be sent back
             FirstTouches    to be run by a worker; None to be sent back
             None            others may have a turn; None to be sent back
    returns  (offset, timestamp, leader epoch) of the record, or None

Between two steps the log may be appended to, trimmed, and its files closed. It must not be
truncated or exchanged; whoever allows that begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from ottla.broker.log.first_touch import TOUCHES_AT_ONCE, FirstTouches, Place
from ottla.broker.log.segment import Segment
from ottla.broker.log.segments import Segments
from ottla.broker.log.time_index import NO_TIMESTAMP
from ottla.broker.log.touched_reads import Cold, TouchedReads
from ottla.broker.ports import File
from ottla.protocol.records.batch import MAGIC, BatchHeader

if TYPE_CHECKING:
    from ottla.protocol.records.record import Record

HEADERS_PER_STEP = 128
"""Headers that one step looks at: of small batches a tenth of a millisecond, of large
ones, with a read for each, half of one."""
SHORT_BYTES = 32 * 1024
"""Records that are searched sooner than a worker is woken: twice a producer's default batch. Of
the smallest ones these are a millisecond."""

NO_OFFSET = -1

TimedOffset = tuple[int, int, int]
"""Offset, timestamp, leader epoch."""


class BatchSearch:
    """The first record of one batch with at least a timestamp, or with the greatest one if that is
    None, that is not below an offset."""

    __slots__ = ("_least_offset", "_position", "_segment", "_timestamp", "header")

    def __init__(
        self,
        segment: Segment,
        position: int,
        header: BatchHeader,
        *,
        timestamp: int | None,
        least_offset: int,
    ) -> None:
        self._segment = segment
        self.header = header
        self._position = position
        self._timestamp = timestamp
        self._least_offset = least_offset

    def __repr__(self) -> str:
        return f"<BatchSearch {self._segment.log_path} {self._position}+{self.header.size}>"

    @property
    def is_short(self) -> bool:
        """Whether it takes less than to wake somebody. Of what is compressed nobody knows."""
        header = self.header
        return header.size <= SHORT_BYTES and header.magic == MAGIC and header.codec == 0

    def is_in_memory(self) -> bool:
        """Whether `run` waits for no disk, as far as the system tells."""
        file = self._segment.open_cached()
        return file is not None and file.read_cached(self.header.size, self._position) is not None

    def touch(self) -> None:
        """In a worker: reads the batch. See `first_touch.py`."""
        with closing(self._segment.open_apart()) as file:
            file.pread(self.header.size, self._position)

    def run(self) -> TimedOffset | None:
        """What it finds, before anybody else has a turn.

        Raises OSError, and KafkaError where the batch cannot be read.
        """
        return self._run(self._segment.open())

    def run_apart(self, give_way: Callable[[], None]) -> TimedOffset | None:
        """The same in a worker, whoever closes the log meanwhile; `give_way` is called between
        pieces of the batch. FileNotFoundError if the segment has been deleted."""
        with closing(self._segment.open_apart()) as file:
            return self._run(file, give_way)

    def _run(self, file: File, give_way: Callable[[], None] | None = None) -> TimedOffset | None:
        def read(position: int, size: int) -> bytes:
            return file.pread(size, self._position + position)

        epoch = self.header.partition_leader_epoch
        if self._timestamp is not None and self.header.magic == MAGIC:
            # Only who asks for a time reads records: their readers are loaded then.
            from ottla.protocol.records.times import first_with_time

            first = first_with_time(
                self.header, read, self._timestamp, self._least_offset, give_way=give_way
            )
            return None if first is None else (*first, epoch)
        found: TimedOffset | None = None
        for record in self._records(read(0, self.header.size)):
            if record.offset < self._least_offset:
                continue
            if self._timestamp is None:
                if found is None or record.timestamp > found[1]:
                    found = record.offset, record.timestamp, epoch
            elif record.timestamp >= self._timestamp:
                return record.offset, record.timestamp, epoch
        return found

    def _records(self, batch: bytes) -> Iterator[Record]:
        if self.header.magic == MAGIC:
            from ottla.protocol.records.record import iterate_records

            return iterate_records(batch)
        from ottla.protocol.records.legacy import iterate_legacy_records

        return iterate_legacy_records(batch)


Steps = Generator[BatchSearch | FirstTouches | None, TimedOffset | None, TimedOffset | None]


def first_at(segments: Segments, timestamp: int, log_start_offset: int) -> Steps:
    """The first record of the log with at least that timestamp."""
    yield from _load(segments)
    reads = TouchedReads()
    reached = NO_OFFSET  # the batches that end below it are done with
    while True:
        segment = _segment_by_time(segments, timestamp, reached)
        if segment is None:
            return None
        segments.read_from(segment)
        try:
            if reached > segment.base_offset:
                position = reads.locate(segment, reached)
            else:
                position = reads.position_by_time(segment, timestamp)
            file, end = reads.open(segment, position), segment.size
            left = HEADERS_PER_STEP
            for at, header in reads.headers(segment, position):
                reached = header.last_offset + 1
                if header.max_timestamp >= timestamp and reached > log_start_offset:
                    search = BatchSearch(
                        segment, at, header, timestamp=timestamp, least_offset=log_start_offset
                    )
                    found = yield from _searched(segments, segment, search)
                    if found is not None:
                        return found
                elif left > 1:
                    left -= 1
                    continue
                else:
                    yield None
                left = HEADERS_PER_STEP
                if segment.file is not file:  # closed meanwhile
                    break
            else:
                if segment.size > end:
                    continue
                following = _following(segments, segment)
                if following is None:
                    return None
                reached = following.base_offset
                yield None
        except Cold as cold:
            yield reads.as_work(cold.touch)


def first_with_greatest(segments: Segments, log_start_offset: int) -> Steps:
    """The first record of the log with the greatest timestamp, be that none (-1).

    If the log is trimmed between two steps it may be told that there is none.
    """
    yield from _load(segments)
    greatest = max(one.max_timestamp for one in segments[segments.floor_index(log_start_offset) :])
    found = yield from first_at(segments, greatest, log_start_offset)
    if found is None:
        # It lies below the log start, in the segment that holds that.
        greatest = yield from _greatest_in_first(segments, log_start_offset)
        behind = segments[segments.floor_index(log_start_offset) + 1 :]
        greatest = max([greatest, *(segment.max_timestamp for segment in behind)])
        found = yield from first_at(segments, greatest, log_start_offset)
    return found


def _load(
    segments: Segments,
) -> Generator[BatchSearch | FirstTouches | None, TimedOffset | None, None]:
    """Opens the indexes that nobody has opened yet, as most are after a start: one a step, when a
    worker has read some of them from the disk."""
    if segments.knows_times:
        return
    unknown = [segment for segment in segments if not segment.is_loaded]
    for start in range(0, len(unknown), TOUCHES_AT_ONCE):
        some = unknown[start : start + TOUCHES_AT_ONCE]
        yield FirstTouches([Place(one, None, None, has_transactions=False) for one in some])
        for segment in some:
            is_there = segments[segments.floor_index(segment.base_offset)] is segment
            if is_there and not segment.is_loaded:
                segment.load()
                yield None


def _segment_by_time(segments: Segments, timestamp: int, reached: int) -> Segment | None:
    """The first one behind an offset that may have a record of at least that time."""
    first = max(segments.index_by_time(timestamp), segments.floor_index(reached))
    for index in range(first, len(segments)):
        if segments[index].max_timestamp >= timestamp:
            return segments[index]
    return None


def _following(segments: Segments, segment: Segment) -> Segment | None:
    """The one behind a segment, which may have been deleted."""
    index = segments.floor_index(segment.base_offset)
    index += segments[index] is segment
    return segments[index] if index < len(segments) else None


def _greatest_in_first(
    segments: Segments, offset: int
) -> Generator[BatchSearch | FirstTouches | None, TimedOffset | None, int]:
    """The greatest timestamp of the records that are not below an offset, of the segment that
    holds that."""
    greatest = NO_TIMESTAMP
    segment = segments[segments.floor_index(offset)]
    reads = TouchedReads()
    reached = offset
    while segments[segments.floor_index(reached)] is segment:
        segments.read_from(segment)
        search: BatchSearch | None = None
        left = HEADERS_PER_STEP
        try:
            for at, header in reads.headers(segment, reads.locate(segment, reached)):
                reached = header.last_offset + 1
                if header.max_timestamp > greatest:
                    if header.base_offset < offset or header.magic != MAGIC:
                        search = BatchSearch(
                            segment, at, header, timestamp=None, least_offset=offset
                        )
                        break
                    greatest = header.max_timestamp
                left -= 1
                if not left:
                    break
            else:
                break
        except Cold as cold:
            yield reads.as_work(cold.touch)
            continue
        if search is None:
            yield None
            continue
        found = yield from _searched(segments, segment, search)
        if found is not None:
            greatest = max(greatest, found[1])
    return greatest


def _searched(
    segments: Segments, segment: Segment, search: BatchSearch
) -> Generator[BatchSearch | FirstTouches | None, TimedOffset | None, TimedOffset | None]:
    """What a batch of a segment has."""
    if search.is_short and not search.is_in_memory():
        yield FirstTouches([search])
        if segments[segments.floor_index(segment.base_offset)] is segment:
            segments.read_from(segment)
    return (yield search)
