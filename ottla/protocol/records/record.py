"""Records read out of a batch (magic 2), one by one.

    length varint | attributes int8 (0) | timestamp delta varlong | offset delta varint
    | key length varint (-1: null), key | value length varint (-1: null), value
    | header count varint | per header: name length varint, UTF-8 name,
                            value length varint (-1: null), value

This is the reader of consumers, tools and replays. Produce and fetch never come here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import HEADER_SIZE, TIMESTAMP_TYPE, BatchHeader, read_header
from ottla.protocol.records.crc import Buffer
from ottla.protocol.records.varint import read_varint, read_varlong

if TYPE_CHECKING:
    from mmap import mmap

Headers = Sequence[tuple[str, bytes | None]]

# Records of one batch after decompression. Batches are at most max.message.bytes (1 MiB) on the
# wire; 64 times that is a compression ratio which data meets rarely and a bomb exceeds.
RECORDS_SIZE_MAX: Final = 64 * 1024 * 1024

# Who goes through records in a worker lets others have the interpreter each time that so many are
# done: some 60 us, if they are small.
PIECE_RECORDS: Final = 64
GiveWay = Callable[[], None]

# length, attributes, two deltas, two null lengths and a header count, one byte each
RECORD_SIZE_MIN = 7


class Record(NamedTuple):
    """One record. To a builder that numbers records itself the offset means nothing."""

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()


def payload_of(view: Buffer, header: BatchHeader, *, limit: int = RECORDS_SIZE_MAX) -> bytes:
    """The block of records of a whole batch, decompressed; at most `limit` bytes then.

    Raises CORRUPT_MESSAGE on a payload its codec cannot read, MESSAGE_TOO_LARGE above the limit,
    UNSUPPORTED_COMPRESSION_TYPE on a codec that Kafka has not assigned.
    """
    payload = memoryview(view)[HEADER_SIZE:]
    codec = header.codec
    if codec == 0:
        return bytes(payload)
    # The codecs' library is loaded only by who decompresses.
    from ottla.protocol.records.compression import decompress

    return decompress(codec, payload, limit=limit)


def iterate_records(view: Buffer, *, limit: int = RECORDS_SIZE_MAX) -> Iterator[Record]:
    """The records of one whole batch, in order; decompressed to at most `limit` bytes.

    The CRC is not checked here. Raises as `payload_of`, and INVALID_RECORD where the records do
    not agree with the header's count or with their own lengths. Header names that are not UTF-8
    come with replacement characters, as in Kafka's own client.
    """
    header = read_header(view)
    block = payload_of(view, header, limit=limit)
    return iterate_block(header, block, len(block))


def iterate_block(header: BatchHeader, data: bytes | mmap, size: int) -> Iterator[Record]:
    """The same of the block that `payload_of` gives: the first `size` bytes of `data`."""
    if header.record_count < 0:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"A batch counts {header.record_count} records")
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE else None
    new = tuple.__new__
    position = 0
    for _ in range(header.record_count):
        length, position = read_varint(data, position)
        end = position + length
        if length < RECORD_SIZE_MIN - 1 or end > size:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, f"A record claims a length of {length} bytes"
            )
        timestamp_delta, position = read_varlong(data, position + 1)
        offset_delta, position = read_varint(data, position)
        key, position = _read_field(data, position, end)
        value, position = _read_field(data, position, end)
        if position < end and data[position] == 0:
            position += 1
            headers: Headers = ()
        else:
            headers, position = read_headers(data, position, end)
        if position != end:
            raise KafkaError(ErrorCode.INVALID_RECORD, "A record has bytes behind its headers")
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        yield new(Record, (base_offset + offset_delta, timestamp, key, value, headers))
    if position != size:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, "A batch has bytes behind the records that it counts"
        )


def _read_field(data: bytes | mmap, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        if length == -1:
            return None, position
    elif length <= end - position:
        return data[position : position + length], position + length
    raise KafkaError(ErrorCode.INVALID_RECORD, f"A record's field claims {length} bytes")


def read_headers(data: bytes | mmap, position: int, end: int) -> tuple[Headers, int]:
    """The headers from their count on, and the position behind the last; `end` is the record's."""
    count, position = read_varint(data, position)
    # A header is at least two bytes, so what is left bounds the count before anything is made.
    if count < 0 or count > (end - position) // 2:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"A record claims {count} headers")
    headers = []
    for _ in range(count):
        name, position = _read_field(data, position, end)
        if name is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "A record's header has no name")
        value, position = _read_field(data, position, end)
        headers.append((name.decode(errors="replace"), value))
    return tuple(headers), position
