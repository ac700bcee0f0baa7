"""Whole batches of a file, checked: what a recovery sees of a segment.

A batch is valid here if its header is in order, its CRC is right, its offsets lie where they may,
and no neighbour shows that they are wrong (`numbering.py`).
"""

from __future__ import annotations

from ottla.broker.log import old_messages
from ottla.broker.log.numbering import Span, jumped_too_far
from ottla.broker.log.segment import BATCH_LENGTH_MIN
from ottla.broker.ports import File
from ottla.protocol.records.batch import (
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    read_header,
)
from ottla.protocol.records.crc import crc32c, crc32c_on

# Large enough that the calls do not count: a quarter of it is slower, four times as much no faster.
SCAN_READ_BYTES = 256 * 1024
# Of a batch that says it is longer, the length may be what is damaged: its CRC has to be right
# before memory is taken for it.
UNCHECKED_BYTES_MAX = 16 * 1024 * 1024


def may_be_read(file: File, position: int, header: BatchHeader) -> bool:
    """Whether a batch of the file is short enough to be in memory, or has its CRC."""
    if header.size <= UNCHECKED_BYTES_MAX:
        return True
    crc, end = 0, position + header.size
    for start in range(position + CRC_START, end, SCAN_READ_BYTES):
        crc = crc32c_on(file.pread(min(SCAN_READ_BYTES, end - start), start), crc)
    return crc == header.crc


class BatchReader:
    """Reads whole batches of a file and checks them.

    What lies below the offset `durable_end` is known to be durable.
    """

    def __init__(self, file: File, size: int, durable_end: int = 0) -> None:
        self.size = size
        self._file = file
        self._durable_end = durable_end
        self._chunk = memoryview(b"")
        self._start = 0

    def chunk_from(self, position: int, at_least: int) -> memoryview:
        """Bytes from a position on: SCAN_READ_BYTES, or more; fewer where the file ends."""
        self._fill(position, max(at_least, SCAN_READ_BYTES))
        return self._chunk

    def size_of_longer(self, position: int) -> int:
        """How long a batch says it is that begins at the chunk; 0 if it is no longer than that."""
        if len(self._chunk) < HEADER_SIZE or position != self._start:
            return 0
        header = read_header(self._chunk)
        is_longer = len(self._chunk) < header.size <= self.size - position
        return header.size if is_longer and may_be_read(self._file, position, header) else 0

    def read(
        self, position: int, expected: int, limit: int
    ) -> tuple[BatchHeader, memoryview] | None:
        """The batch at a position, if a valid one begins there.

        Its offsets must lie at or above `expected` and below `limit`.
        """
        header = self._header_at(position)
        if header is None or header.base_offset < expected or header.last_offset >= limit:
            return None
        view = self._sound(position, header)
        if view is None:
            return None
        if header.base_offset > expected and self.is_misnumbered(header, position, expected, limit):
            return None
        return header, view

    def is_misnumbered(
        self, header: tuple[int, ...], position: int, expected: int, limit: int
    ) -> bool:
        """Whether the offset of a sound batch, which is above `expected`, is wrong."""
        last_offset, end = header[0] + header[6], position + header[1] + LOG_OVERHEAD
        batch = Span(header[0], last_offset, end)
        return jumped_too_far(
            batch,
            before=expected,
            limit=limit,
            span_at=self._span_at,
            durable_end=self._durable_end,
        )

    def find_behind(self, position: int, expected: int, limit: int) -> int | None:
        """Where the next valid batch, or message, begins behind a position where none does.

        Most damage leaves the length as it was, and a record may hold a batch of its own. But it
        may be the length that is wrong: then batches lie one behind the other up to where it leads.
        """
        header = self._header_at(position)
        if header is None:
            message = self._find_message(position, expected, limit)
            return self.find(position + 1, expected, limit) if message is None else message
        claimed = position + header.size
        behind = self.read(claimed, expected, limit)
        if behind is None:
            return self.find(position + 1, expected, limit)
        if behind[0].base_offset == header.last_offset + 1:
            return claimed
        start = self.find(position + 1, expected, limit)
        while start is not None and start < claimed:
            end = self._end_of_run(start, claimed, expected, limit)
            if end == claimed:
                return start
            start = self.find(end, expected, limit)
        return claimed

    def is_whole(self, position: int) -> bool:
        """Whether a batch, or message, begins at a position that has its CRC, whatever offset."""
        header = self._header_at(position)
        if header is not None:
            return self._sound(position, header) is not None
        message = self._message_at(position)
        if message is None or message.size > min(UNCHECKED_BYTES_MAX, self.size - position):
            return False
        return self._is_sound(position, message)

    def _find_message(self, position: int, expected: int, limit: int) -> int | None:
        """The next valid message of magic 0 or 1, where nothing but contents is damaged."""
        while (header := self._message_at(position)) is not None:
            if header.size > min(UNCHECKED_BYTES_MAX, self.size - position):
                return None
            if expected <= header.base_offset < limit and self._is_sound(position, header):
                return position
            position += header.size
        return position if self.read(position, expected, limit) is not None else None

    def _is_sound(self, position: int, message: BatchHeader) -> bool:
        at = position - self._start
        if at + message.size > len(self._chunk):
            self._fill(position, max(message.size, SCAN_READ_BYTES))
            at = 0
        return old_messages.is_sound(self._chunk[at : at + message.size], message)

    def _message_at(self, position: int) -> BatchHeader | None:
        at = position - self._start
        if not 0 <= at <= len(self._chunk) - HEADER_SIZE:
            self._fill(position, SCAN_READ_BYTES)
            at = 0
        return old_messages.read_message(self._chunk, at)

    def _end_of_run(self, position: int, end: int, expected: int, limit: int) -> int:
        while position < end and (found := self.read(position, expected, limit)) is not None:
            position += found[0].size
            expected = found[0].last_offset + 1
        return position

    def first_offset_at(self, position: int) -> int | None:
        """That of the batch at a position, the last one of a message; None where none is."""
        header = self._header_at(position)
        if header is None:
            header = self._message_at(position)
        return None if header is None else header.base_offset

    def find(self, position: int, expected: int, limit: int) -> int | None:
        """Where the next valid batch begins, at or behind a position."""
        while position + HEADER_SIZE <= self.size:
            # Every batch has the magic at the same place: look for that byte first.
            chunk = self._file.pread(SCAN_READ_BYTES, position + MAGIC_POSITION)
            hit = chunk.find(MAGIC)
            while hit >= 0:
                candidate = position + hit
                if self._may_begin(candidate, expected) and self.read(candidate, expected, limit):
                    return candidate
                hit = chunk.find(MAGIC, hit + 1)
            if len(chunk) < SCAN_READ_BYTES:
                return None
            position += len(chunk)
        return None

    def _header_at(self, position: int) -> BatchHeader | None:
        """What stands at a position, if it may be the header of a batch that fits into the file."""
        at = position - self._start
        if not 0 <= at <= len(self._chunk) - HEADER_SIZE:
            self._fill(position, SCAN_READ_BYTES)
            at = 0
            if len(self._chunk) < HEADER_SIZE:
                return None
        header = read_header(self._chunk, at)
        may_be = (
            header.magic == MAGIC
            and header.batch_length >= BATCH_LENGTH_MIN
            and header.last_offset_delta >= 0
            and position + header.size <= self.size
        )
        return header if may_be else None

    def _sound(self, position: int, header: BatchHeader) -> memoryview | None:
        """All bytes of the batch whose header was just read, if they have its CRC."""
        at, size = position - self._start, header.size
        if at + size > len(self._chunk):
            if not may_be_read(self._file, position, header):
                return None
            self._fill(position, max(size, SCAN_READ_BYTES))
            at = 0
            if len(self._chunk) < size:
                return None
        view = self._chunk[at : at + size]
        return view if crc32c(view[CRC_START:]) == header.crc else None

    def _span_at(self, position: int, below: int) -> Span | None:
        header = self._header_at(position)
        if header is None or header.base_offset >= below or self._sound(position, header) is None:
            return None
        return Span(header.base_offset, header.last_offset, position + header.size)

    def _may_begin(self, position: int, expected: int) -> bool:
        """A cheap look at length and offset, for the byte is common."""
        prefix = self._file.pread(LOG_OVERHEAD, position)
        if len(prefix) < LOG_OVERHEAD:
            return False
        length = int.from_bytes(prefix[8:], "big", signed=True)
        base_offset = int.from_bytes(prefix[:8], "big", signed=True)
        return (
            BATCH_LENGTH_MIN <= length <= self.size - position - LOG_OVERHEAD
            and expected <= base_offset <= expected + 2**31
        )

    def _fill(self, position: int, size: int) -> None:
        self._chunk = memoryview(self._file.pread(min(size, self.size - position), position))
        self._start = position
