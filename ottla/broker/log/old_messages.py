"""Messages of magic 0 and 1 in the chain of a segment, as directories from before Kafka 0.11 have.

They lie between batches like batches and are served as they lie. A compressed set is one message
(a wrapper) whose offset is that of its last record, so the chain knows last offsets only; what the
first one is, the set itself says. Their headers are shorter than a batch's, and so is the shortest
of them: 26 bytes.

`read_message` gives such a message the header of a batch of one record. No producer, no leader
epoch; the timestamp of a wrapper is the greatest of its records, and magic 0 has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from ottla.broker.ports import Buffer
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import (
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    iterate_headers,
)
from ottla.protocol.records.crc import crc32_ieee

MESSAGE_SIZE_MIN = 26

# Offset, size, CRC-32, magic, attributes; then, in magic 1, a timestamp.
_MESSAGE = Struct(">qiIbb")
_TIMESTAMP = Struct(">q")
# CRC, magic, attributes and two null lengths; magic 1 has a timestamp more.
_LENGTH_MIN = (14, 22)


def is_message(buffer: Buffer, position: int) -> bool:
    """Whether a message of magic 0 or 1 may begin at a position."""
    return len(buffer) - position >= MESSAGE_SIZE_MIN and buffer[position + MAGIC_POSITION] < MAGIC


def read_message(buffer: Buffer, position: int) -> BatchHeader | None:
    """The header of a message, as far as it can be one; CRC and end are not looked at."""
    if not is_message(buffer, position):
        return None
    offset, length, crc, magic, attributes = _MESSAGE.unpack_from(buffer, position)
    at = position + _MESSAGE.size
    if length < _LENGTH_MIN[magic] or len(buffer) - at < _TIMESTAMP.size:
        return None
    timestamp = _TIMESTAMP.unpack_from(buffer, at)[0] if magic == 1 else NO_TIMESTAMP
    return BatchHeader(
        offset,
        length,
        NO_LEADER_EPOCH,
        magic,
        crc,
        attributes,
        0,
        timestamp,
        timestamp,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        1,
    )


def is_sound(message: memoryview, header: BatchHeader) -> bool:
    """Whether a whole message agrees with its CRC."""
    return crc32_ieee(message[MAGIC_POSITION:]) == header.crc


def iterate_chain(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """The (position, header) of each whole batch or message of a buffer, in order.

    As `iterate_headers` does for batches alone, and with its errors.
    """
    position, end = 0, len(buffer)
    while position < end:
        if is_message(buffer, position):
            header = read_message(buffer, position)
            if header is None:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a message is too short")
        else:
            header = next((one for _, one in iterate_headers(buffer, position)), None)
        if header is None or position + header.size > end:
            return
        yield position, header
        position += header.size


def first_offset(message: memoryview, header: BatchHeader) -> int:
    """The offset of its first record; for a set that does not open, that of its last."""
    # Directories that old are rare: the reader and its codecs are loaded for them only.
    from ottla.protocol.records.legacy import iterate_legacy_records

    assert len(message) == header.batch_length + LOG_OVERHEAD
    try:
        return next(iterate_legacy_records(message)).offset
    except (KafkaError, StopIteration):
        return header.base_offset
