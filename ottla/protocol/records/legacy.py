"""Messages of magic 0 and 1, as log directories from before Kafka 0.11 hold them. Reading only.

    bytes   field
    0-7     offset
    8-11    size of what follows
    12-15   CRC-32 (IEEE) of bytes 16 to the end
    16      magic, 0 or 1
    17      attributes: codec (bits 0-2), timestamp type (bit 3, magic 1)
    18-25   timestamp (magic 1 only)
    then    key length int32 (-1: null), key; value length int32 (-1: null), value

A compressed message is a wrapper: its value is a set of messages, none of them compressed again.
The wrapper carries the last inner offset; inner offsets are absolute in magic 0 and count from the
first in magic 1. A wrapper stamped by the broker stamps its inner messages too.
The lz4 frames of magic 0 have a header checksum that was computed over the wrong bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import (
    CODEC_MASK,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE,
)
from ottla.protocol.records.codecs import Codec
from ottla.protocol.records.compression import decompress
from ottla.protocol.records.crc import Buffer, crc32_ieee
from ottla.protocol.records.record import RECORDS_SIZE_MAX, Record

_OVERHEAD = struct.Struct(">qiIbb")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_UINT32 = struct.Struct("<I")

# CRC, magic, attributes, two null lengths; magic 1 has a timestamp more.
_SIZE_MIN = (14, 22)

_LZ4_CONTENT_SIZE = 8
_LZ4_DICTIONARY = 1
_LZ4_DESCRIPTOR_POSITION = 4


class Message(NamedTuple):
    """One message as it stands in the log: a record, or the wrapper of compressed ones."""

    offset: int
    size: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK


def iterate_messages(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, Message]]:
    """The (position, message) of each whole message, wrappers unopened, CRC checked.

    `size` counts the whole message. Ends before a message that the buffer cuts off. Raises
    CORRUPT_MESSAGE on another magic, a size that no message has, or a wrong CRC.
    """
    view = memoryview(buffer)
    while len(view) - position > MAGIC_POSITION + 1:
        offset, size, crc, magic, attributes = _OVERHEAD.unpack_from(view, position)
        if magic not in (0, 1):
            raise _corrupt(f"Invalid magic found in record: {magic}")
        if size < _SIZE_MIN[magic]:
            raise _corrupt(f"A message claims a size of {size} bytes")
        end = position + LOG_OVERHEAD + size
        if end > len(view):
            return
        if crc32_ieee(view[position + MAGIC_POSITION : end]) != crc:
            raise _corrupt(f"The message at offset {offset} does not agree with its CRC")
        at = position + _OVERHEAD.size
        timestamp = NO_TIMESTAMP
        if magic == 1:
            (timestamp,) = _INT64.unpack_from(view, at)
            at += _INT64.size
        key, at = _read_field(view, at, end)
        value, at = _read_field(view, at, end)
        if at != end:
            raise _corrupt(f"The message at offset {offset} has bytes behind its value")
        yield (
            position,
            Message(offset, end - position, magic, attributes, timestamp, key, value),
        )
        position = end


def iterate_legacy_records(buffer: Buffer, *, limit: int = RECORDS_SIZE_MAX) -> Iterator[Record]:
    """The records of a buffer of messages, wrappers opened, each to at most `limit` bytes.

    Records of magic 0 have the timestamp -1. Raises as `iterate_messages` and `decompress`.
    """
    for _, message in iterate_messages(buffer):
        if message.codec == Codec.NONE:
            yield Record(message.offset, message.timestamp, message.key, message.value)
        else:
            yield from _open_wrapper(message, limit)


def _open_wrapper(wrapper: Message, limit: int) -> Iterator[Record]:
    if wrapper.value is None:
        raise _corrupt(f"The compressed message at offset {wrapper.offset} is null")
    payload: Buffer = wrapper.value
    if wrapper.magic == 0 and wrapper.codec == Codec.LZ4:
        payload = _mend_lz4_header(payload)
    plain = decompress(wrapper.codec, payload, limit=limit)
    inner = [message for _, message in iterate_messages(plain)]
    if sum(message.size for message in inner) != len(plain) or not inner:
        raise _corrupt(f"The compressed message at offset {wrapper.offset} is cut off")
    base = wrapper.offset - inner[-1].offset if wrapper.magic == 1 else 0
    append_time = wrapper.timestamp if wrapper.attributes & TIMESTAMP_TYPE else None
    for message in inner:
        if message.codec != Codec.NONE or message.magic != wrapper.magic:
            raise _corrupt(f"The compressed message at offset {wrapper.offset} is nested")
        yield Record(
            base + message.offset,
            message.timestamp if append_time is None else append_time,
            message.key,
            message.value,
        )


def _read_field(view: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    if end - position < _INT32.size:
        raise _corrupt("A message ends within a length")
    (length,) = _INT32.unpack_from(view, position)
    position += _INT32.size
    if length < -1 or length > end - position:
        raise _corrupt(f"A message's field claims {length} bytes")
    if length < 0:
        return None, position
    return bytes(view[position : position + length]), position + length


def _mend_lz4_header(frame: Buffer) -> bytearray:
    """The frame with the header checksum that the LZ4 format asks for.

    Kafka's writer before magic 1 hashed the frame's magic number with the descriptor.
    """
    mended = bytearray(frame)
    start = _LZ4_DESCRIPTOR_POSITION
    if len(mended) < start + 3:
        raise _corrupt("An lz4 frame ends within its header")
    flags = mended[start]
    end = start + 2
    if flags & _LZ4_CONTENT_SIZE:
        end += 8
    if flags & _LZ4_DICTIONARY:
        end += 4
    if len(mended) <= end:
        raise _corrupt("An lz4 frame ends within its header")
    mended[end] = _xxh32(mended[start:end]) >> 8 & 0xFF
    return mended


def _xxh32(data: bytearray) -> int:
    """XXH32, seed 0, of fewer than 16 bytes: all that a frame descriptor has."""
    assert len(data) < 16
    mask = 0xFFFFFFFF
    value = 374761393 + len(data)
    at = 0
    while at + 4 <= len(data):
        (word,) = _UINT32.unpack_from(data, at)
        value = value + word * 3266489917 & mask
        value = (value << 17 | value >> 15) * 668265263 & mask
        at += 4
    for byte in data[at:]:
        value = value + byte * 374761393 & mask
        value = (value << 11 | value >> 21) * 2654435761 & mask
    value = (value ^ value >> 15) * 2246822519 & mask
    value = (value ^ value >> 13) * 3266489917 & mask
    return value ^ value >> 16


def _corrupt(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, reason)
