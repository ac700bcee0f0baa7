"""Producer ids: blocks of numbers that are given once and never again."""

from __future__ import annotations

from ottla.broker.metadata.image import MetadataImage
from ottla.protocol.messages.metadata_records import ProducerIdsRecord
from ottla.protocol.schema import Message

BLOCK_SIZE = 1000
"""Kafka's own."""


def allocate_block(
    image: MetadataImage, *, broker_id: int
) -> tuple[list[Message], tuple[int, int]]:
    """Gives a broker the next block: (first id, how many)."""
    broker = image.cluster.brokers.get(broker_id)
    first = image.next_producer_id
    record = ProducerIdsRecord(
        broker_id=broker_id,
        broker_epoch=-1 if broker is None else broker.epoch,
        next_producer_id=first + BLOCK_SIZE,
    )
    return [record], (first, BLOCK_SIZE)
