"""The header of a record batch (magic 2), read and stamped in place.

    bytes   field                  note
    0-7     base offset            not under the CRC: the leader assigns it
    8-11    batch length           of what follows byte 12, so the whole batch is length + 12
    12-15   partition leader epoch not under the CRC: the leader assigns it
    16      magic                  2
    17-20   CRC-32C                of bytes 21 to the end
    21-22   attributes             codec (bits 0-2), timestamp type (3), transactional (4),
                                   control (5), base timestamp is a delete horizon (6)
    23-26   last offset delta
    27-34   base timestamp         record timestamps are relative to it
    35-42   max timestamp          every record's timestamp when bit 3 is set
    43-50   producer id            -1: none
    51-52   producer epoch
    53-56   base sequence
    57-60   record count           may be less than last offset delta + 1 after compaction
    61-     records                one block, compressed as a whole

Produce and fetch pass through here with every batch: nothing below looks at a record, and no
payload is copied. A view is one whole batch, as long as its header says, unless it says otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.crc import Buffer, crc32c

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12
MAGIC: Final = 2
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
CRC_START: Final = 21

CODEC_MASK: Final = 7
TIMESTAMP_TYPE: Final = 8
TRANSACTIONAL: Final = 16
CONTROL: Final = 32
DELETE_HORIZON: Final = 64
ATTRIBUTES_MASK: Final = 127
"""The bits that mean something. What else a producer sets is kept with its batch, and is not
written anew, as in Kafka."""

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1

_BATCH_LENGTH_MIN: Final = HEADER_SIZE - LOG_OVERHEAD
_ATTRIBUTES_POSITION: Final = 21
_LEADER_EPOCH_POSITION: Final = 12
_MAX_TIMESTAMP_POSITION: Final = 35

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT64: Final = struct.Struct(">q")
_PREFIX: Final = struct.Struct(">qiib")

_unpack_header: Final = HEADER.unpack_from
_pack_int32: Final = _INT32.pack_into
_pack_int64: Final = _INT64.pack_into


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & TIMESTAMP_TYPE != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def delete_horizon(self) -> int | None:
        """When tombstones and markers of this batch may go, or None while that is not settled."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap from 2147483647 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Reads the header at a position (not negative); checks only that 61 bytes are there.

    Raises CORRUPT_MESSAGE on fewer bytes. Magic, length and counts are the caller's to judge:
    each caller answers them differently.
    """
    try:
        return tuple.__new__(BatchHeader, _unpack_header(buffer, position))
    except struct.error:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, "Record batch is shorter than its header of 61 bytes"
        ) from None


def check_crc(view: memoryview) -> bool:
    """Whether a whole batch agrees with its CRC; the view is exactly that batch."""
    crc: int = _UINT32.unpack_from(view, CRC_POSITION)[0]
    return crc32c(view[CRC_START:]) == crc


def write_crc(view: memoryview) -> None:
    """Computes the CRC of a whole batch and stores it; the view is writable."""
    _UINT32.pack_into(view, CRC_POSITION, crc32c(view[CRC_START:]))


def stamp(view: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Assigns offset and leader epoch in place; both lie outside the CRC."""
    _pack_int64(view, 0, base_offset)
    _pack_int32(view, _LEADER_EPOCH_POSITION, leader_epoch)


def set_log_append_time(view: memoryview, now_ms: int) -> None:
    """Marks a whole batch as stamped by the broker at `now_ms`; records stay, the CRC is new."""
    _set_timestamps(view, _attributes(view) | TIMESTAMP_TYPE, now_ms)


def set_create_time(view: memoryview, max_timestamp: int) -> None:
    """Marks a whole batch as stamped by its producer, with the greatest of its timestamps."""
    _set_timestamps(view, _attributes(view) & ~TIMESTAMP_TYPE, max_timestamp)


def _attributes(view: memoryview) -> int:
    attributes: int = _INT16.unpack_from(view, _ATTRIBUTES_POSITION)[0]
    return attributes


def _set_timestamps(view: memoryview, attributes: int, max_timestamp: int) -> None:
    _INT16.pack_into(view, _ATTRIBUTES_POSITION, attributes & ATTRIBUTES_MASK)
    _pack_int64(view, _MAX_TIMESTAMP_POSITION, max_timestamp)
    write_crc(view)


def iterate_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """The (position, header) of each whole batch of a buffer, in order; no payload is read.

    Ends before a batch that the buffer cuts off, as the last one of a fetch may be; the caller
    sees what was left by the last position and size. Raises CORRUPT_MESSAGE on another magic or
    on a length that no batch has.
    """
    end = len(buffer)
    while end - position >= MAGIC_POSITION + 1:
        _, batch_length, _, magic = _PREFIX.unpack_from(buffer, position)
        if magic != MAGIC:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
        if batch_length < _BATCH_LENGTH_MIN:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"Record batch claims a length of {batch_length} bytes"
            )
        if end - position < batch_length + LOG_OVERHEAD:
            return
        yield position, read_header(buffer, position)
        position += batch_length + LOG_OVERHEAD
