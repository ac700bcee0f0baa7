"""Batches with a fault: a good one, changed, with its CRC made right again where it can be."""

from __future__ import annotations

import struct
import zlib

from ottla.protocol.records.batch import HEADER_SIZE, read_header
from ottla.protocol.records.builder import assemble, build_batch
from ottla.protocol.records.compression import compress
from ottla.protocol.records.record import Record


def batch(timestamp: int, **fields: int) -> bytes:
    """Two records with keys; `fields` are header fields put in place of the right ones."""
    good = build_batch(
        [Record(0, timestamp, b"k0", b"v0"), Record(0, timestamp, b"k1", b"v1")],
    )
    return bytes(assemble(read_header(good)._replace(**fields), good[HEADER_SIZE:]))


def with_block(timestamp: int, block: bytes, count: int, codec: int = 0) -> bytes:
    """A batch whose header counts `count` records, whatever the block holds."""
    header = read_header(batch(timestamp))._replace(
        record_count=count, last_offset_delta=count - 1, attributes=codec
    )
    return bytes(assemble(header, compress(codec, block)))


def relabelled(content: bytes, position: int, change: bytes) -> bytes:
    """The bytes with a change that no CRC follows."""
    return content[:position] + change + content[position + len(change) :]


def corrupted(content: bytes) -> bytes:
    """The last bit flipped."""
    return content[:-1] + bytes((content[-1] ^ 1,))


def legacy(magic: int) -> bytes:
    """A whole and right message of magic 0 or 1."""
    body = bytes((magic, 0))
    if magic == 1:
        body += struct.pack(">q", 1_700_000_000_000)
    body += struct.pack(">i", 1) + b"k" + struct.pack(">i", 1) + b"v"
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message
