"""A walk over a file of record batches that does not stop at damage.

Every byte of the file belongs to one entry or to one damage. An entry is a batch of magic 2, or
one message of magic 0 or 1 with what it wraps, whose length, offsets and CRC are in order; damage
reaches from the first byte that begins none to the next one that does, or to the end. This is the
reader of `ottla log` and of the scrub job; recovery has its own, with its own rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from ottla.broker.log.batch_reader import may_be_read
from ottla.broker.log.numbering import Span, jumped_too_far
from ottla.broker.ports import File
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import (
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    read_header,
)
from ottla.protocol.records.crc import crc32c

# As recovery's: larger is not faster.
READ_BYTES = 256 * 1024
# The smallest message of magic 0, without offset and size.
MESSAGE_SIZE_MIN = 14
# A segment's offsets lie within 31 bits of its base, so nothing valid is farther away.
OFFSET_RANGE = 2**31

_PREFIX = Struct(">qi4xb")
_LENGTH_MIN = {0: MESSAGE_SIZE_MIN, 1: MESSAGE_SIZE_MIN + 8, MAGIC: HEADER_SIZE - LOG_OVERHEAD}


@dataclass(slots=True, frozen=True)
class Entry:
    """A batch, or a message of magic 0 or 1 (then `header` is None), with all its bytes."""

    position: int
    magic: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    data: memoryview
    header: BatchHeader | None

    @property
    def size(self) -> int:
        return len(self.data)


@dataclass(slots=True, frozen=True)
class Damage:
    """Bytes in which nothing valid begins. `zeros`: all of them are, as in space set aside."""

    position: int
    size: int
    reason: str
    zeros: bool = False
    # The offsets that may have been there: from the one expected, up to what follows (-1: the end).
    first_offset: int = 0
    end_offset: int = -1
    # Of the batch that its first bytes say they begin, where that can be.
    claim: Span | None = None


class LogScan:
    """Reads a file from `start` up to `size`; `base_offset` is the segment's.

    Offsets do not reach `limit`, the base offset of the next segment: the CRC does not cover them.
    """

    def __init__(
        self,
        file: File,
        size: int,
        base_offset: int = 0,
        limit: int | None = None,
        *,
        start: int = 0,
    ) -> None:
        self._limit = limit
        self._file = file
        self._size = size
        self._expected = base_offset
        self._end = base_offset + OFFSET_RANGE
        self._chunk = memoryview(b"")
        self._start = 0
        self._magic = MAGIC
        # How far the walk has come, for whoever shows progress.
        self.position = start

    def __iter__(self) -> Iterator[Entry | Damage]:
        position = self.position
        while position < self._size:
            found = self._read(position)
            if isinstance(found, Entry):
                yield found
                self._magic = found.magic
                self._expected = found.last_offset + 1
                position += found.size
            else:
                behind = self._find_behind(position)
                end = self._size if behind is None else behind.position
                yield Damage(
                    position,
                    end - position,
                    found,
                    zeros=self._is_zero(position, end),
                    first_offset=self._expected,
                    end_offset=-1 if behind is None else behind.base_offset,
                    claim=self._claim(position),
                )
                position = end
            self.position = position

    def _read(self, position: int) -> Entry | str:
        """The entry that begins at a position, or why none does."""
        left = self._size - position
        prefix = self._bytes(position, min(left, HEADER_SIZE))
        if len(prefix) <= MAGIC_POSITION:
            return f"{left} bytes are no whole batch"
        offset, length, magic = _PREFIX.unpack_from(prefix)
        if magic not in _LENGTH_MIN:
            return f"a batch begins here that has magic {magic}"
        if length < _LENGTH_MIN[magic]:
            return f"a batch claims a length of {length} bytes"
        if length + LOG_OVERHEAD > left:
            return f"a batch claims {length + LOG_OVERHEAD} bytes, and {left} are left"
        if offset < self._expected:
            return f"a batch has offset {offset} where {self._expected} or more belongs"
        if offset >= self._end:
            return f"a batch has offset {offset}, too far from the segment's base"
        if length > READ_BYTES and magic == MAGIC and not self._may_be_read(position, prefix):
            return f"a batch claims {length + LOG_OVERHEAD} bytes, and has not the CRC that it says"
        data = self._bytes(position, length + LOG_OVERHEAD)
        if len(data) < length + LOG_OVERHEAD:
            return "the file ended while it was read"
        found = _batch(position, data) if magic == MAGIC else _message(position, magic, data)
        if isinstance(found, str):
            return found
        last_offset, limit = found.last_offset, self._limit
        if limit is not None and last_offset >= limit:
            return (
                f"a batch ends with offset {last_offset}, and the next segment begins with {limit}"
            )
        if last_offset >= self._end:
            return f"a batch ends with offset {last_offset}, too far from the segment's base"
        if offset > self._expected and magic == MAGIC and self._is_misnumbered(found):
            return f"a batch has offset {offset}, and those behind it go on from a lower one"
        return found

    def _may_be_read(self, position: int, prefix: memoryview) -> bool:
        if len(prefix) < HEADER_SIZE:
            return False  # the file ended while it was read
        return may_be_read(self._file, position, read_header(prefix))

    def _find_behind(self, position: int) -> Entry | None:
        """The next entry behind a position where none begins."""
        prefix = self._bytes(position, min(self._size - position, LOG_OVERHEAD))
        if len(prefix) == LOG_OVERHEAD:
            # Most damage leaves the length as it was: look behind that batch first.
            claimed = position + LOG_OVERHEAD + int.from_bytes(prefix[8:], "big", signed=True)
            if position < claimed < self._size:
                found = self._read(claimed)
                if isinstance(found, Entry):
                    return self._find_before(position, found) or found
        return self._search(position + 1)

    def _find_before(self, position: int, claimed: Entry) -> Entry | None:
        """The next entry, if the length that leads to `claimed` is what is wrong: then entries lie
        one behind the other up to there, as those within a record do not."""
        header = self._header_at(position)
        if header is None or claimed.base_offset == header.last_offset + 1:
            return None
        found = self._search(position + 1)
        while found is not None and found.position < claimed.position:
            last: Entry | str = found
            end = found.position
            while isinstance(last, Entry) and end < claimed.position:
                end += last.size
                last = self._read(end)
            if end == claimed.position:
                return found
            found = self._search(end)
        return None

    def _search(self, position: int) -> Entry | None:
        """Looks for the magic that the segment has; a batch of magic 2 may follow older ones."""
        for magic in {MAGIC: None, self._magic: None}:
            start = position
            while start + MAGIC_POSITION < self._size:
                first = start + MAGIC_POSITION
                # Not beyond the size: the file may go on where the scan does not.
                chunk = self._file.pread(min(READ_BYTES, self._size - first), first)
                hit = chunk.find(magic)
                while hit >= 0:
                    if self._may_begin(start + hit, magic):
                        found = self._read(start + hit)
                        if isinstance(found, Entry):
                            return found
                    hit = chunk.find(magic, hit + 1)
                if len(chunk) < READ_BYTES:
                    break
                start += len(chunk)
        return None

    def _may_begin(self, position: int, magic: int) -> bool:
        prefix = self._bytes(position, LOG_OVERHEAD)
        if len(prefix) < LOG_OVERHEAD:
            return False
        offset = int.from_bytes(prefix[:8], "big", signed=True)
        length = int.from_bytes(prefix[8:], "big", signed=True)
        return (
            _LENGTH_MIN[magic] <= length <= self._size - position - LOG_OVERHEAD
            and self._expected <= offset <= self._expected + OFFSET_RANGE
        )

    def _claim(self, position: int) -> Span | None:
        header = self._header_at(position)
        if header is None:
            return None
        first, end = header.base_offset, position + header.size
        if self._is_whole(position, header):
            first = self._expected  # nothing but its number is wrong
        elif first < self._expected or header.last_offset >= self._end:
            return None
        return Span(first, first + header.last_offset_delta, end)

    def _is_misnumbered(self, entry: Entry) -> bool:
        limit = self._end if self._limit is None else min(self._limit, self._end)
        batch = Span(entry.base_offset, entry.last_offset, entry.position + entry.size)
        return jumped_too_far(batch, before=self._expected, limit=limit, span_at=self._span_at)

    def _span_at(self, position: int, below: int) -> Span | None:
        header = self._header_at(position)
        if header is None or header.base_offset >= below or not self._is_whole(position, header):
            return None
        return Span(header.base_offset, header.last_offset, position + header.size)

    def _header_at(self, position: int) -> BatchHeader | None:
        """What stands at a position, if it may be the header of a batch."""
        prefix = self._bytes(position, min(self._size - position, HEADER_SIZE))
        if len(prefix) < HEADER_SIZE or prefix[MAGIC_POSITION] != MAGIC:
            return None
        header = read_header(prefix)
        may_be = header.batch_length >= _LENGTH_MIN[MAGIC] and header.last_offset_delta >= 0
        return header if may_be else None

    def _is_whole(self, position: int, header: BatchHeader) -> bool:
        if position + header.size > self._size:
            return False
        if not may_be_read(self._file, position, header):
            return False
        return isinstance(_batch(position, self._bytes(position, header.size)), Entry)

    def _is_zero(self, position: int, end: int) -> bool:
        while position < end:
            chunk = self._file.pread(min(READ_BYTES, end - position), position)
            if not chunk or chunk.strip(b"\0"):
                return False
            position += len(chunk)
        return True

    def _bytes(self, position: int, size: int) -> memoryview:
        at = position - self._start
        if not 0 <= at <= len(self._chunk) - size:
            wanted = min(max(size, READ_BYTES), self._size - position)
            self._chunk = memoryview(self._file.pread(wanted, position))
            self._start = position
            at = 0
        return self._chunk[at : at + size]


def _batch(position: int, data: memoryview) -> Entry | str:
    header = read_header(data)
    if header.last_offset_delta < 0:
        return f"a batch has a last offset delta of {header.last_offset_delta}"
    crc = crc32c(data[CRC_START:])
    if crc != header.crc:
        return f"a batch has CRC {crc} and says {header.crc}"
    return Entry(
        position,
        MAGIC,
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        data,
        header,
    )


def _message(position: int, magic: int, data: memoryview) -> Entry | str:
    # Only who meets the old formats loads their reader and the codecs.
    from ottla.protocol.records.legacy import iterate_legacy_records, iterate_messages

    try:
        (_, message), *_ = iterate_messages(data)
        base_offset = next(iterate_legacy_records(data)).offset
    except KafkaError as error:
        return str(error.message)
    timestamp = message.timestamp
    return Entry(position, magic, base_offset, message.offset, timestamp, data, None)
