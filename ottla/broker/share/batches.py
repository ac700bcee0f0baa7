"""The record batches of a piece of a log, by their headers alone: what can be acquired, and where
it lies."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing, suppress
from struct import Struct
from typing import NamedTuple

from ottla.broker.log.file_slice import FileSlice
from ottla.broker.log.walk import LOOKUP_READ_BYTES, Read
from ottla.broker.ports import Disk
from ottla.broker.share.window import Found
from ottla.config.types import LONG_MAX
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    read_header,
)

READ_BYTES = LOOKUP_READ_BYTES
"""What one read of headers takes: as much as a look-up of a batch, which finds it in memory then.
"""
READ_BYTES_OF_SMALL = 64 * 1024
"""Behind a batch that is smaller than that: small ones come many at a time."""
_OFFSET_AND_LENGTH = Struct(">qi")
_LAST_OFFSET_DELTA = Struct(">23xi")


class CutShort(OSError):
    """The file ends within the header of a batch that is known to be there."""


class Placed(NamedTuple):
    """One whole batch; `position` is in its file."""

    found: Found
    position: int
    size: int


class Headers(NamedTuple):
    """Those that `batches_in` reads of a piece, to be touched."""

    disk: Disk
    piece: FileSlice
    first: int
    span: int

    def touch(self) -> None:
        """By a descriptor of its own. The log may be cut meanwhile, in the middle of a header."""
        piece = self.piece
        with closing(self.disk.open(piece.file.path)) as file, suppress(CutShort, KafkaError):
            apart = FileSlice(file, piece.position, piece.size)
            batches_in(apart, first=self.first, span=self.span, below=LONG_MAX)


def batches_in(
    piece: FileSlice,
    *,
    first: int,
    span: int,
    below: int,
    aborted: Iterable[tuple[int, int]] = (),
    read: Read | None = None,
) -> list[Placed]:
    """The whole batches of a piece, until they reach over so many offsets from `first` on.

    `aborted` are the (producer id, first offset) of the transactions that came to nothing and have
    records there. The first batch may begin before `first`; none reaches `below`. What a header
    says of offsets decides what the group is done with, and nobody has looked at its CRC: one that
    cannot follow the one before ends the piece, and raises CORRUPT_MESSAGE where it is the first.
    Raises OSError, CutShort for one, and what `read` raises, by which its file is read if it is
    given.
    """
    read = read or piece.file.pread
    transactions = sorted(aborted, key=_by_offset)
    open_producers: set[int] = set()
    placed: list[Placed] = []
    position, end = piece.position, piece.position + piece.size
    chunk, chunk_at = piece.known, position
    previous_last = first - 1
    ahead = READ_BYTES
    while end - position > MAGIC_POSITION:
        if min(position + HEADER_SIZE, end) > chunk_at + len(chunk):
            chunk = read(min(ahead, end - position), position)
            chunk_at = position
            if len(chunk) < min(HEADER_SIZE, end - position):
                raise CutShort(f"{piece.file.path} ends within the batch at {position}")
        at = position - chunk_at
        base, length = _OFFSET_AND_LENGTH.unpack_from(chunk, at)
        size = length + LOG_OVERHEAD
        if length <= 0 or position + size > end:
            break
        is_aborted = False
        last = base
        if chunk[at + MAGIC_POSITION] != MAGIC:
            # An old message has the offset of the last record that is packed into it.
            base = min(previous_last + 1, last)
        elif not transactions and not open_producers:
            last += _LAST_OFFSET_DELTA.unpack_from(chunk, at)[0]
        else:
            header = read_header(chunk, at)
            last = header.last_offset
            while transactions and transactions[0][1] <= last:
                open_producers.add(transactions.pop(0)[0])
            is_aborted = _is_aborted(header, open_producers)
        if not max(previous_last + 1, base) <= last < below or (placed and base <= previous_last):
            if placed:
                break
            reason = f"{piece.file.path}: no batch of its offset at {position}"
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, reason)
        placed.append(Placed(Found(base, last, is_aborted), position, size))
        if last >= first + span - 1:
            break
        previous_last = last
        position += size
        ahead = READ_BYTES_OF_SMALL if size < READ_BYTES else READ_BYTES
    return placed


def _is_aborted(header: BatchHeader, open_producers: set[int]) -> bool:
    """Whether a batch belongs to one of the transactions; the marker at its end closes it."""
    if header.producer_id not in open_producers:
        return False
    if header.is_control:
        open_producers.discard(header.producer_id)
        return False
    return header.is_transactional


def narrowed(piece: FileSlice, placed: list[Placed], first: int, last: int) -> FileSlice:
    """The part of a piece that holds the offsets `first` to `last`, as whole batches."""
    wanted = [one for one in placed if one.found.last >= first and one.found.first <= last]
    start = wanted[0].position
    size = wanted[-1].position + wanted[-1].size - start
    if size == piece.size:
        return piece
    return FileSlice(piece.file, start, size)


def _by_offset(transaction: tuple[int, int]) -> int:
    return transaction[1]
