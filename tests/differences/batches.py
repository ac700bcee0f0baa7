"""Record batches: as a request describes them, right or wrong in any field, and as they are told
apart when they are fetched.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import crc32c

from ottla.protocol.errors import KafkaError, ProtocolError
from ottla.protocol.records.compression import compress, decompress
from tests.differences.requests import Symbol

HEADER = struct.Struct(">qiibIhiqqqhii")
_FRAMED = 12
"""What stands before the bytes that a batch's length counts."""
_CRC_END = 21
_TAIL = struct.Struct(">hiqqqhii")
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
DECOMPRESSED_MAX = 1 << 26
SHOWN_MAX = 8
"""A longer value is shown by its size."""
CODEC_BITS, LOG_APPEND_TIME, CONTROL = 0x07, 0x08, 0x20

Headers: TypeAlias = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, repr=False)
class Record:
    key: str | None
    value: str | None
    later_ms: int = 0
    headers: Headers = ()

    def __repr__(self) -> str:
        long = self.value is not None and len(self.value) > SHOWN_MAX
        shown = f"{len(self.value or '')} bytes" if long else repr(self.value)
        more = [f"+{self.later_ms} ms"] if self.later_ms else []
        more += [repr(self.headers)] if self.headers else []
        return f"<{' '.join([repr(self.key), shown, *more])}>"


@dataclass(frozen=True, slots=True, repr=False)
class Batch(Symbol):
    """A batch; `odd` has the header's fields that are not what they should be, by name.

    Names are those of `_header`, and `flip` (bits of the CRC), `longer` (added to the length) and
    `cut` (how many bytes are sent; negative counts from the end). `transactional_id` makes it one
    of that producer, with its next sequence and its epoch, to which `later_epoch` is added.
    """

    records: tuple[Record, ...]
    timestamp: Any = None
    codec: int = 0
    attributes: int = 0
    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional_id: str = ""
    to: tuple[str, int] = ("", 0)
    odd: tuple[tuple[str, int], ...] = ()

    def __repr__(self) -> str:
        told = [
            f"{item.name}={getattr(self, item.name)!r}"
            for item in fields(self)[1:]
            if getattr(self, item.name) != item.default
        ]
        return f"Batch({', '.join([*map(repr, self.records), *told])})"


@dataclass(frozen=True, slots=True, repr=False)
class Joined(Symbol):
    """Several batches, or bytes that are none, one behind the other."""

    parts: tuple[Batch | bytes, ...]


def _varint(value: int) -> bytes:
    rest = ((value << 1) ^ (value >> 63)) & (1 << 64) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _field(text: str | None) -> bytes:
    return _varint(-1) if text is None else _varint(len(text)) + text.encode()


def _block(records: tuple[Record, ...]) -> bytes:
    out = bytearray()
    for number, record in enumerate(records):
        body = b"\0" + _varint(record.later_ms) + _varint(number)
        body += _field(record.key) + _field(record.value) + _varint(len(record.headers))
        for key, value in record.headers:
            body += _field(key) + _field(value)
        out += _varint(len(body)) + body
    return bytes(out)


def encoded(batch: Batch, timestamp: int, producer: tuple[int, int, int]) -> bytes:
    """The bytes of a batch with this base timestamp, producer id, epoch and first sequence."""
    odd = dict(batch.odd)
    block = _block(batch.records)
    if 0 < batch.codec <= 4:
        block = compress(batch.codec, block)
    count = len(batch.records)
    latest = max((timestamp + record.later_ms for record in batch.records), default=timestamp)
    producer_id, epoch, sequence = producer
    content = (
        _TAIL.pack(
            batch.codec | batch.attributes,
            odd.get("last_offset_delta", count - 1),
            timestamp,
            odd.get("max_timestamp", timestamp if timestamp < 0 else latest),
            producer_id,
            epoch,
            sequence,
            odd.get("count", count),
        )
        + block
    )
    length = odd.get("length", len(content) + _CRC_END - _FRAMED + odd.get("longer", 0))
    head = struct.pack(
        ">qiibI",
        odd.get("base_offset", 0),
        length,
        odd.get("leader_epoch", -1),
        odd.get("magic", 2),
        crc32c.crc32c(content) ^ odd.get("flip", 0),
    )
    whole = head + content
    return whole[: odd["cut"]] if "cut" in odd else whole


def compared(raw: bytes, later: Callable[[int], Any], producer: Callable[[int], Any]) -> list[Any]:
    """Fetched batches as what must be the same on both brokers.

    Compressors differ, so records are told apart and not their compressed bytes; where there are
    none to be read (a broker may keep what it is sent) the bytes count. `later` makes times that a
    broker gave alike, `producer` the ids of producers.
    """
    out: list[Any] = []
    position = 0
    while position < len(raw):
        left = len(raw) - position
        if left < HEADER.size:
            return [*out, ("part of a header", left)]
        header = HEADER.unpack_from(raw, position)
        size = _FRAMED + header[1]
        if size > left:
            return [*out, ("part of the batch at", header[0])]
        out.append(_compared(raw[position : position + size], later, producer))
        position += size
    return out


def _compared(
    batch: bytes, later: Callable[[int], Any], producer: Callable[[int], Any]
) -> dict[str, Any]:
    base, _, leader_epoch, magic, crc, attributes, delta, first, latest, pid, epoch, seq, count = (
        HEADER.unpack_from(batch)
    )
    out: dict[str, Any] = {
        "base_offset": base,
        "last_offset_delta": delta,
        "leader_epoch": leader_epoch,
        "magic": magic,
        "attributes": attributes,
        "producer": [producer(pid), epoch, seq],
        "count": count,
        "crc": "right" if crc32c.crc32c(batch[_CRC_END:]) == crc else "wrong",
    }
    body = batch[HEADER.size :]
    if attributes & CONTROL:
        # Key and value of the one record; its length and its timestamp delta are no news.
        return out | {"control": body[4:].hex()}
    own_times = not attributes & LOG_APPEND_TIME
    out["max_timestamp"] = latest if own_times else later(latest)
    try:
        plain = decompress(attributes & CODEC_BITS, body, limit=DECOMPRESSED_MAX)
        out["records"] = _records(plain, first if own_times else None)
    except (KafkaError, ProtocolError, IndexError) as error:
        out["records"] = [type(error).__name__, body.hex()]
    return out


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position


def _records(block: bytes, first_timestamp: int | None) -> list[Any]:
    """Attributes, timestamp (if it counts), offset delta, and the rest of each record."""
    out: list[Any] = []
    position = 0
    while position < len(block):
        size, start = _read_varint(block, position)
        position = start + size
        attributes = block[start]
        later, at = _read_varint(block, start + 1)
        delta, at = _read_varint(block, at)
        timestamp = None if first_timestamp is None else first_timestamp + later
        out.append([attributes, timestamp, delta, block[at:position].hex()])
    return out


def next_offset(raw: bytes) -> int | None:
    """The offset after the whole batches of an answer; None if there are none."""
    found = None
    position = 0
    while position + HEADER.size <= len(raw):
        header = HEADER.unpack_from(raw, position)
        if position + _FRAMED + header[1] > len(raw):
            break
        found = header[0] + header[6] + 1
        position += _FRAMED + header[1]
    return found
