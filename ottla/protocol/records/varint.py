"""Zig-zag varints as record fields use them: at most 5 bytes for an int32, 10 for an int64.

A read checks the bytes that are left and the width of the value, so a hostile length can neither
run past the buffer nor grow beyond its type. (The unsigned varints of flexible messages are
`wire.py`'s; they have no zig-zag.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.crc import Buffer

if TYPE_CHECKING:
    from mmap import mmap

VARLONG_SIZE_MAX = 10


def encode_varint(value: int) -> bytes:
    """The zig-zag varint of an int32 or an int64."""
    assert -(2**63) <= value < 2**63
    rest = (value << 1) ^ (value >> 63)
    if rest < 0x80:
        return bytes((rest,))
    out = bytearray()
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def read_varint(buffer: Buffer | mmap, position: int) -> tuple[int, int]:
    """Reads an int32; returns it and the position behind it, or raises INVALID_RECORD."""
    try:
        byte = buffer[position]
        position += 1
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position
        value = byte & 0x7F
        # Two bytes are common enough to be spared the loop.
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        for shift in (14, 21, 28):
            byte = buffer[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > 0xFFFFFFFF:
                    break
                return (value >> 1) ^ -(value & 1), position
    except IndexError:
        raise KafkaError(ErrorCode.INVALID_RECORD, "A varint runs past its end") from None
    raise KafkaError(ErrorCode.INVALID_RECORD, "A varint does not fit 32 bits")


def read_varlong(buffer: Buffer | mmap, position: int) -> tuple[int, int]:
    """Reads an int64; returns it and the position behind it, or raises INVALID_RECORD."""
    try:
        byte = buffer[position]
        position += 1
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position
        value = byte & 0x7F
        for shift in range(7, 7 * VARLONG_SIZE_MAX, 7):
            byte = buffer[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > 0xFFFFFFFFFFFFFFFF:
                    break
                return (value >> 1) ^ -(value & 1), position
    except IndexError:
        raise KafkaError(ErrorCode.INVALID_RECORD, "A varint runs past its end") from None
    raise KafkaError(ErrorCode.INVALID_RECORD, "A varint does not fit 64 bits")
