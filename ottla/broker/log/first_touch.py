"""What a read of a log needs of the disk, read by a worker before the loop reads.

A read finds its batch by an index and by headers. The last batches' are known, and for who follows
a log the page cache has the rest. For who comes back after a day it has neither: each is a seek or
several, and while the loop waits for them everybody waits. So the loop asks first (`place_of`), and
what is not in memory is touched: the same bytes are read by descriptors of the worker's own and
thrown away. The loop then reads as ever, what it finds and what it makes of damage included; what
has been evicted again by then it waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from typing import Final, NamedTuple, Protocol

from ottla.broker.log.index import IndexCorrupt
from ottla.broker.log.offset_index import ENTRY
from ottla.broker.log.segment import Segment
from ottla.broker.log.time_index import ENTRY as TIME_ENTRY
from ottla.broker.log.walk import BrokenChain, Read, UntrueEntry, walk_to
from ottla.broker.ports import File

PIECE_BYTES: Final = 64 * 1024
TOUCHES_AT_ONCE: Final = 16
"""Partitions or segments that a worker reads from for one request, before the loop does and looks
for more."""
OPENED_AT_ONCE: Final = 4
"""Files that a request opens in a turn. Others have one before it opens more."""

_END: Final = 2**63 - 1
"""An offset that every segment ends below."""


class Openings:
    """How many files may still be opened in this turn of the loop."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class Touch(Protocol):
    """What is about to be read."""

    def touch(self) -> None:
        """In a worker: reads it, and throws it away. Raises OSError."""


class Place(NamedTuple):
    """What of a segment is to be read. What the loop may change meanwhile is decided there."""

    segment: Segment
    offset: int | None
    """What leads to its batch, by the index; None if that is known."""
    entry: tuple[int, int] | None
    """The entry of the index for it, where that is not in the file yet."""
    has_transactions: bool
    """Then its transaction index is, and nothing else."""

    def touch(self) -> None:
        if self.has_transactions:
            _touch_transactions(self.segment)
        else:
            _touch_batches(self)


class NotInMemory(Exception):
    """The disk would have to be read."""


def cached_reads(file: File) -> Read:
    """Reads that raise NotInMemory where one would wait for the disk."""

    def read(size: int, position: int) -> bytes:
        data = file.read_cached(size, position)
        if data is None:
            raise NotInMemory
        return data

    return read


def place_of(segment: Segment, offset: int, openings: Openings) -> Place | None:
    """None if a read from an offset on waits for no disk, as far as the system tells. Opens what
    that needs, if it may."""
    file = segment.file
    if file is None and openings.left > 0:
        openings.left -= 1
        file = segment.open_cached()
    if segment.remembers(offset):
        return Place(segment, None, None, has_transactions=False) if file is None else None
    entry = segment.index.lookup_unwritten(offset)
    place = Place(segment, offset, entry, has_transactions=False)
    if file is None or not segment.is_loaded:
        return place
    try:
        if entry is None:
            if not segment.index.map_cached(offset):
                return place
            entry = segment.index.lookup(offset)
        found = _walk(segment, cached_reads(file), offset, entry)
    except NotInMemory:
        return place
    except (IndexCorrupt, UntrueEntry):
        return None  # it is made anew by who reads
    if found is not None:
        segment.note_found(offset, *found)
    return None


def _walk(
    segment: Segment, read: Read, offset: int, entry: tuple[int, int]
) -> tuple[int, int] | None:
    """Position and size of the batch, if there is one."""
    try:
        position, size = walk_to(
            read, offset, entry, base_offset=segment.base_offset, end=segment.size
        )
    except BrokenChain:
        return None  # to be told by who reads
    return (position, size) if size else None


class FirstTouches:
    """A worker's work, which finds nothing."""

    __slots__ = ("_is_wanted", "_touches")

    def __init__(self, touches: Sequence[Touch]) -> None:
        self._touches = touches
        self._is_wanted = True

    def __repr__(self) -> str:
        return f"<FirstTouches of {len(self._touches)}>"

    def stop(self) -> None:
        """Nobody waits for it any more."""
        self._is_wanted = False

    def run_apart(self, give_way: Callable[[], None]) -> None:
        """In a worker. What cannot be read is the reader's to tell."""
        for one in self._touches:
            if not self._is_wanted:
                break
            with suppress(OSError):
                one.touch()
            give_way()


FirstReads = Generator[FirstTouches | None, object, None]
"""Steps of which some are a worker's; at None others may have a turn."""


def _touch_transactions(segment: Segment) -> None:
    with closing(segment.transactions.open_apart()) as file:
        for start in range(0, file.size(), PIECE_BYTES):
            file.pread(PIECE_BYTES, start)


def _touch_batches(place: Place) -> None:
    segment = place.segment
    walks: list[tuple[int, tuple[int, int]]] = []
    if not segment.is_loaded:
        for offset in (_last_of_times(segment), _END):
            walks.append((offset, _entry_of(segment, offset)))
    if place.offset is not None:
        walks.append((place.offset, place.entry or _entry_of(segment, place.offset)))
    with closing(segment.open_apart()) as file:
        for offset, entry in walks:
            with suppress(UntrueEntry):
                _walk(segment, file.pread, offset, entry)


def _last_of_times(segment: Segment) -> int:
    """The last offset that the time index names: who opens the segment looks where that is."""
    with closing(segment.time_index.entries.open_apart()) as file:
        size = 2 * TIME_ENTRY.size
        last = file.pread(size, max(file.size() - size, 0))
    if len(last) < TIME_ENTRY.size:
        return segment.base_offset
    relative: int = TIME_ENTRY.unpack_from(last, len(last) - TIME_ENTRY.size)[1]
    return segment.base_offset + relative


def _entry_of(segment: Segment, offset: int) -> tuple[int, int]:
    """As `OffsetIndex.lookup`, without the map: a thread that has to wait for a page of one keeps
    the interpreter. All of the file is read, for others look elsewhere in it."""
    entry = segment.base_offset, 0
    with closing(segment.index.entries.open_apart()) as file:
        size = segment.index.entries.written_bytes if segment.is_loaded else file.size()
        for start in range(0, size, PIECE_BYTES):
            piece = file.pread(min(PIECE_BYTES, size - start), start)
            if len(piece) < ENTRY.size or len(piece) % ENTRY.size:
                break  # it has been cut since, or is no index
            entry = segment.index.entry_in(piece, offset) or entry
    return entry
