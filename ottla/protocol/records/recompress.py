"""A batch in another codec, for topics whose compression.type is not the producer's."""

from __future__ import annotations

from ottla.protocol.records.batch import CODEC_MASK, read_header
from ottla.protocol.records.builder import assemble
from ottla.protocol.records.crc import Buffer
from ottla.protocol.records.record import RECORDS_SIZE_MAX, payload_of


def recompress(
    view: Buffer,
    codec: int,
    level: int | None = None,
    *,
    block: Buffer | None = None,
    limit: int = RECORDS_SIZE_MAX,
) -> bytearray:
    """The whole batch with its records in `codec`, at Kafka's `level` or that codec's default.

    Everything else of the header stays: offsets, timestamps, producer id, epoch and sequence.
    `block` is the decompressed payload where the caller has it already. CPU-heavy: not for the
    event loop. Raises as `payload_of`.
    """
    # The codecs' library is loaded only by who recompresses.
    from ottla.protocol.records.compression import compress

    header = read_header(view)
    if block is None:
        block = payload_of(view, header, limit=limit)
    attributes = header.attributes & ~CODEC_MASK | codec
    return assemble(header._replace(attributes=attributes), compress(codec, block, level))
