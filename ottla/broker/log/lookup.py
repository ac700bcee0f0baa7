"""Look-ups of a log that no request of a quiet consumer needs: by aborted transaction, backwards.

They read indexes and batch headers. Those by time stand in `time_search.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from ottla.broker.log.file_slice import FileSlice
from ottla.broker.log.segment import Segment
from ottla.broker.log.segments import Segments
from ottla.broker.log.transaction_index import AbortedTransaction
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import BatchHeader

# What lies so far before a producer snapshot is looked through for batches that it left out.
HISTORY_BYTES: Final = 4 * 1024 * 1024


def aborted_transactions(segments: Segments, offset: int, upper: int) -> list[tuple[int, int]]:
    """(producer id, first offset) of the aborted transactions with records in [offset, upper)."""
    return _aborted(segments, offset, upper, None)


def aborted_in(
    segments: Segments, offset: int, found: FileSlice, stable: int
) -> list[tuple[int, int]]:
    """The same of a slice that a read from `offset` on gave, as closely as the index knows where it
    ends. Where nothing was aborted, nobody asks for that."""
    return _aborted(segments, offset, stable, found)


def knows_aborted_in(segments: Segments, offset: int, found: FileSlice, stable: int) -> bool:
    """Whether `aborted_in` reads no file for that."""
    upper: int | None = None
    for index in range(segments.floor_index(offset), len(segments)):
        transactions = segments[index].transactions
        if not transactions.is_known:
            return False
        entries = transactions.entries()
        if not entries or entries[-1].last_offset < offset:
            continue
        if upper is None:
            upper = _end_of(segments, offset, found, stable)
        if entries[-1].last_stable_offset >= upper:
            return True
    return True


def _aborted(
    segments: Segments, offset: int, bound: int, slice_: FileSlice | None
) -> list[tuple[int, int]]:
    """Those with records in [offset, bound), or in the slice, which ends there at the latest."""
    found: list[tuple[int, int]] = []
    upper = bound if slice_ is None else None
    for index in range(segments.floor_index(offset), len(segments)):
        segment = segments[index]
        if segment.transactions.has_file:
            segments.recall_aborted(segment)
        entries = segment.transactions.entries()
        if not entries or entries[-1].last_offset < offset:
            continue
        if upper is None:
            assert slice_ is not None
            upper = _end_of(segments, offset, slice_, bound)
        for at in range(bisect_left(entries, offset, key=_last_offset), len(entries)):
            entry = entries[at]
            if entry.first_offset < upper:
                found.append((entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= upper:
                return found
    return found


def end_before_damage(segment: Segment, offset: int) -> int:
    """A position before an offset that cannot be looked up: that of the break before it, or of an
    index entry where the segment has that."""
    _, end = segment.index.lookup(offset)
    with suppress(KafkaError):
        for position, header in segment.headers(end):
            if header.last_offset >= offset:
                break
            end = position + header.size
    return end


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
    """The batches of the last HISTORY_BYTES before an offset, in order.

    What is behind damage in a segment is left out, and whoever reads there is told. A crash may
    leave some below the log start, and a producer's retry is not to be refused for it.
    """
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
        for header in _as_far_as_whole(segment, start):
            if header.base_offset >= end_offset:
                return
            yield header
        start = 0


def _as_far_as_whole(segment: Segment, start: int) -> Iterator[BatchHeader]:
    try:
        for _, header in segment.headers(start):
            yield header
    except KafkaError:
        return
