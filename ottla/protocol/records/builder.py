"""Record batches (magic 2) made from records: what producers, markers and rewrites send.

Timestamps are deltas to the first record's, offsets deltas to the base offset; the records are
one block, which is compressed as a whole. The CRC covers everything from the attributes on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from ottla.protocol.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
)
from ottla.protocol.records.crc import Buffer, crc32c, crc32c_on
from ottla.protocol.records.record import Headers, Record
from ottla.protocol.records.varint import encode_varint


class _Varints(dict[int, bytes]):
    """Lengths and deltas of ordinary records are small: those are known, any other is computed."""

    def __missing__(self, value: int) -> bytes:
        return encode_varint(value)


_VARINTS = _Varints((value, encode_varint(value)) for value in range(-1, 512))
_NULL = _VARINTS[-1]

# The fields in front of those that the CRC covers, and these.
_UNCOVERED = struct.Struct(">qiibI")
_COVERED = struct.Struct(">hiqqqhii")


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    *,
    key: Buffer | None,
    value: Buffer | None,
    headers: Headers = (),
) -> bytes:
    """One record of a batch, its length in front."""
    varints = _VARINTS
    parts: list[Buffer] = [
        b"\0",
        varints[timestamp_delta],
        varints[offset_delta],
        _NULL if key is None else varints[len(key)],
        key or b"",
        _NULL if value is None else varints[len(value)],
        value or b"",
        varints[len(headers)],
    ]
    for name, content in headers:
        _append_field(parts, name.encode())
        _append_field(parts, content)
    body = b"".join(parts)
    return varints[len(body)] + body


def _append_field(parts: list[Buffer], field: Buffer | None) -> None:
    if field is None:
        parts.append(_NULL)
        return
    parts.append(_VARINTS[len(field)])
    parts.append(field)


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    keep_offsets: bool = False,
    last_offset_delta: int | None = None,
    codec: int = 0,
    level: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """One whole batch of the records, in their order.

    Records are numbered from the base offset on, whatever their own offsets are; `keep_offsets`
    takes theirs, which may leave gaps, as a rewrite by the cleaner does. `last_offset_delta`
    claims offsets behind the last record, and is required of a batch without records.
    """
    block, count, base_timestamp, max_timestamp, last_delta = _encode_records(
        records, base_offset if keep_offsets else None, delete_horizon_ms
    )
    if last_offset_delta is not None:
        assert last_offset_delta >= last_delta
        last_delta = last_offset_delta
    assert last_delta >= 0, "a batch without records needs its last offset delta"
    attributes = codec
    if log_append_time_ms is not None:
        attributes |= TIMESTAMP_TYPE
        max_timestamp = log_append_time_ms
    if transactional:
        attributes |= TRANSACTIONAL
    if control:
        attributes |= CONTROL
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON
    return assemble(
        (
            base_offset,
            0,
            leader_epoch,
            MAGIC,
            0,
            attributes,
            last_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        ),
        _compress(codec, block, level),
    )


def assemble(header: tuple[int, ...], payload: Buffer) -> bytearray:
    """A whole batch of header fields and an encoded (and compressed) block of records.

    The batch length and the CRC of the fields are ignored and computed.
    """
    base_offset, _, leader_epoch, magic, _ = header[:5]
    fields = _COVERED.pack(*header[5:])
    length = HEADER_SIZE - LOG_OVERHEAD + len(payload)
    crc = crc32c_on(payload, crc32c(fields))
    batch = bytearray(_UNCOVERED.pack(base_offset, length, leader_epoch, magic, crc))
    batch += fields
    batch += payload
    return batch


def _encode_records(
    records: Iterable[Record], offsets_from: int | None, delete_horizon_ms: int | None
) -> tuple[bytes, int, int, int, int]:
    block: list[bytes] = []
    base_timestamp = NO_TIMESTAMP if delete_horizon_ms is None else delete_horizon_ms
    max_timestamp = NO_TIMESTAMP
    delta = -1
    for offset, timestamp, key, value, headers in records:
        if not block:
            max_timestamp = timestamp
            if delete_horizon_ms is None:
                base_timestamp = timestamp
        elif timestamp > max_timestamp:
            max_timestamp = timestamp
        if offsets_from is None:
            delta += 1
        else:
            assert offset - offsets_from > delta, "offsets ascend from the base offset"
            delta = offset - offsets_from
        block.append(
            encode_record(delta, timestamp - base_timestamp, key=key, value=value, headers=headers)
        )
    return b"".join(block), len(block), base_timestamp, max_timestamp, delta


def _compress(codec: int, block: bytes, level: int | None) -> Buffer:
    if codec == 0:
        return block
    # The codecs' library is loaded only by who compresses.
    from ottla.protocol.records.compression import compress

    return compress(codec, block, level)
