"""What a look-up by time reads of a segment, in steps: what would wait for the disk is a worker's
to read first, see `first_touch.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import NamedTuple

from ottla.broker.log.first_touch import PIECE_BYTES, FirstTouches, Openings, Touch, place_of
from ottla.broker.log.index import EntryFile, IndexCorrupt
from ottla.broker.log.segment import Segment
from ottla.broker.log.time_index import NO_TIMESTAMP
from ottla.broker.log.walk import LOOKUP_READ_BYTES
from ottla.broker.ports import File
from ottla.protocol.records.batch import BatchHeader

READ_BYTES_OF_SMALL = 16 * 1024
"""What one read of headers takes where the last one was behind a small batch: they come many at a
time. Else it takes what a look-up does."""
TOUCHED_MAX = 32
"""What a look-up remembers to have touched: it gets on after a few, and may go through any log."""


class Cold(Exception):
    """`touch` has to be made first, and then the same again: the log may be another meanwhile."""

    def __init__(self, touch: Touch) -> None:
        super().__init__(touch)
        self.touch = touch


class Piece(NamedTuple):
    """What of a segment's .log file begins at a position: as much as is walked over at a time."""

    segment: Segment
    position: int

    def touch(self) -> None:
        with closing(self.segment.open_apart()) as file:
            file.pread(PIECE_BYTES, self.position)


class Entries(NamedTuple):
    """All that an index has in its file: others look elsewhere in it."""

    entries: EntryFile

    def touch(self) -> None:
        with closing(self.entries.open_apart()) as file:
            for start in range(0, self.entries.written_bytes, PIECE_BYTES):
                file.pread(PIECE_BYTES, start)


class TouchedReads:
    """Those of one look-up. Each raises Cold but for what has been touched: of that it is waited
    for what is evicted again, so that there is an end to it."""

    __slots__ = ("_touched",)

    def __init__(self) -> None:
        self._touched: set[Touch] = set()

    def as_work(self, touch: Touch) -> FirstTouches:
        """For a worker; from now on it counts as made."""
        if len(self._touched) == TOUCHED_MAX:
            self._touched.clear()
        self._touched.add(touch)
        return FirstTouches([touch])

    def locate(self, segment: Segment, offset: int) -> int:
        """The position of the first batch that ends at or above an offset."""
        self._touch_first(place_of(segment, offset, Openings(1)))
        return segment.locate(offset)[0]

    def position_by_time(self, segment: Segment, timestamp: int) -> int:
        """Where a batch begins before which no batch has a timestamp of `timestamp` or more."""
        segment.load()
        try:
            return self._position_by_time(segment, timestamp)
        except IndexCorrupt:
            segment.rebuild_indexes()
            return self._position_by_time(segment, timestamp)

    def open(self, segment: Segment, position: int) -> File:
        """Its .log file, of which the headers from a position on are about to be read."""
        if segment.open_cached() is None:
            self._touch_first(Piece(segment, position))
        return segment.open()

    def headers(self, segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """See `Segment`. After Cold the caller begins again behind the last header that it got."""
        known_end = -1

        def read(size: int, position: int) -> bytes:
            nonlocal known_end
            enough = LOOKUP_READ_BYTES if position > known_end else READ_BYTES_OF_SMALL
            data = self._read(segment, min(size, enough), position)
            known_end = position + len(data)
            return data

        return segment.headers(position, read=read)

    def _position_by_time(self, segment: Segment, timestamp: int) -> int:
        index = segment.time_index
        if not index.entries.map_cached(timestamp - 1):
            self._touch_first(Entries(index.entries))
        known, offset = index.lookup(timestamp - 1)
        if known == NO_TIMESTAMP:
            return 0
        self._touch_first(place_of(segment, offset, Openings(1)))
        return segment.position_of_time(known, offset, partial(self._read, segment))

    def _read(self, segment: Segment, size: int, position: int) -> bytes:
        file = segment.file
        data = None if file is None else file.read_cached(size, position)
        if data is None:
            self._touch_first(Piece(segment, position))
            data = segment.open().pread(size, position)
        return data

    def _touch_first(self, touch: Touch | None) -> None:
        if touch is not None and touch not in self._touched:
            raise Cold(touch)
