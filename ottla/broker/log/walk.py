"""From an entry of the offset index along the chain of batch headers to a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from struct import Struct
from typing import Final

from ottla.broker.log import old_messages
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
)

# What one read takes: an index interval, and the header behind it.
LOOKUP_READ_BYTES: Final = 4096 + HEADER_SIZE

# Base offset, batch length, last offset delta.
_CHAIN: Final = Struct(">qi11xi")
_unpack_chain: Final = _CHAIN.unpack_from

Read = Callable[[int, int], bytes]
"""So many bytes, from a position on."""


class UntrueEntry(Exception):
    """No batch begins where an entry of an index says, or another one."""


class BrokenChain(Exception):
    """No batch where one begins."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


def walk_to(
    read: Read, offset: int, entry: tuple[int, int], *, base_offset: int, end: int
) -> tuple[int, int]:
    """Position and size of the first batch that ends at or above an offset; `end`, 0 if none.

    `base_offset` and `end` are those of the segment. The entry of its first batch is always true.
    Raises UntrueEntry and BrokenChain, and what `read` raises.
    """
    entry_offset, position = entry
    first = position
    expected = base_offset
    size = delta = 0
    chunk, start = b"", position
    if position >= end and first:
        raise UntrueEntry
    while position < end:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            chunk = read(min(LOOKUP_READ_BYTES, end - position), position)
            start, at = position, 0
        if len(chunk) - at >= HEADER_SIZE and chunk[at + MAGIC_POSITION] == MAGIC:
            base_offset, length, delta = _unpack_chain(chunk, at)
            size = length + LOG_OVERHEAD
            is_batch = size >= HEADER_SIZE and delta >= 0
        else:
            message = old_messages.read_message(chunk, at)
            is_batch = message is not None
            if message is not None:
                base_offset, size, delta = message.base_offset, message.size, 0
        is_batch = is_batch and position + size <= end and base_offset >= expected
        if position == first and first and not (is_batch and base_offset <= entry_offset):
            raise UntrueEntry
        if not is_batch:
            raise BrokenChain(position)
        expected = base_offset + delta + 1
        if expected > offset:
            return position, size
        position += size
    return end, 0


def steps_over(headers: Iterator[tuple[int, BatchHeader]], position: int) -> bool:
    """Whether a chain of headers that begins before a position has no batch that begins there.
    Where it breaks before that nothing is said against it."""
    with suppress(KafkaError):
        for at, _ in headers:
            if at >= position:
                return at > position
    return False
