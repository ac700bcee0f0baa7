"""A batch in another codec, for topics whose compression.type is not the producer's."""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import CONTROL, TIMESTAMP_TYPE, TRANSACTIONAL, read_header
from ottla.protocol.records.builder import assemble
from ottla.protocol.records.crc import Buffer
from ottla.protocol.records.record import (
    PIECE_RECORDS,
    RECORDS_SIZE_MAX,
    GiveWay,
    payload_of,
)
from ottla.protocol.records.varint import encode_varint, read_varint, read_varlong


def recompress(
    view: Buffer,
    codec: int,
    level: int | None = None,
    *,
    block: Buffer | None = None,
    limit: int = RECORDS_SIZE_MAX,
) -> bytearray:
    """The whole batch with its records in `codec`, at Kafka's `level` or that codec's default.

    Everything else of the header stays that means something to a log: offsets, timestamps, producer
    id, epoch and sequence.
    `block` is the decompressed payload where the caller has it already. CPU-heavy: not for the
    event loop. Raises as `payload_of`.
    """
    # The codecs' library is loaded only by who recompresses.
    from ottla.protocol.records.compression import compress

    header = read_header(view)
    if block is None:
        block = payload_of(view, header, limit=limit)
    attributes = header.attributes & (TIMESTAMP_TYPE | TRANSACTIONAL | CONTROL) | codec
    return assemble(header._replace(attributes=attributes), compress(codec, block, level))


def renumbered(
    block: Buffer, *, limit: int = RECORDS_SIZE_MAX, give_way: GiveWay | None = None
) -> bytearray:
    """The records of a block with the offset deltas 0, 1, 2 and so on, as Kafka writes them anew.

    They are known to agree with their own lengths. CPU-heavy: not for the event loop; `give_way` is
    called every few records. Raises MESSAGE_TOO_LARGE above the limit: larger deltas may take more
    bytes.
    """
    view = memoryview(block)
    numbered = bytearray()
    position = index = 0
    while position < len(view):
        if give_way is not None and not index % PIECE_RECORDS:
            give_way()
        length, start = read_varint(view, position)
        end = start + length
        _, delta_start = read_varlong(view, start + 1)
        _, delta_end = read_varint(view, delta_start)
        delta = encode_varint(index)
        numbered += encode_varint(length - (delta_end - delta_start) + len(delta))
        numbered += view[start:delta_start]
        numbered += delta
        numbered += view[delta_end:end]
        if len(numbered) > limit:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        position = end
        index += 1
    return numbered
