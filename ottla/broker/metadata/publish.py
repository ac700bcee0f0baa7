"""What a change of the metadata means for one broker.

Listeners of the quorum get (delta, image). `local_changes` tells a broker which of its replicas
are to go, which it leads and which follow, by comparing epochs: every change of a partition moves
its partition epoch, every election its leader epoch. A broker acts in this order: deletions first
(a topic may be created again under its name in the same change), then leaders, then followers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.broker.metadata.contents import records_of
from ottla.broker.metadata.delta import Delta
from ottla.broker.metadata.image import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    EMPTY_IMAGE,
    TOPIC_RESOURCE,
    MetadataImage,
    PartitionImage,
)
from ottla.broker.metadata.records import (
    LATEST_METADATA_VERSION,
    LOWEST_METADATA_VERSION,
    MetadataError,
    decode_batch,
    encode_batch,
    encode_record,
)
from ottla.broker.metadata.replay import Replay
from ottla.protocol.schema import Message


class LocalPartition(NamedTuple):
    """A replica of this broker, with the partition as it is now (or was, when it is to go)."""

    topic: str
    topic_id: bytes
    partition_id: int
    partition: PartitionImage


class LocalChanges:
    """What one broker has to do, in the order of the attributes."""

    __slots__ = (
        "broker_configs_changed",
        "deleted",
        "following",
        "leading",
        "topics_with_new_configs",
    )

    def __init__(self) -> None:
        self.deleted: list[LocalPartition] = []
        self.leading: list[LocalPartition] = []
        self.following: list[LocalPartition] = []
        self.topics_with_new_configs: list[str] = []
        self.broker_configs_changed = False


def local_changes(delta: Delta, image: MetadataImage, node_id: int) -> LocalChanges:
    """What the change means for a broker; the image is the one that the delta ended in."""
    changes = LocalChanges()
    for topic_id, topic in delta.deleted_topics.items():
        for index, partition in topic.partitions.items():
            if node_id in partition.replicas:
                changes.deleted.append(LocalPartition(topic.name, topic_id, index, partition))
    for topic_id, partitions in delta.changed_partitions.items():
        name = image.topics.by_id[topic_id].name
        before = delta.base.topics.by_id.get(topic_id)
        for index, partition in partitions.items():
            old = None if before is None else before.partitions.get(index)
            local = LocalPartition(name, topic_id, index, partition)
            if node_id not in partition.replicas:
                if old is not None and node_id in old.replicas:
                    changes.deleted.append(local)
            elif partition.leader == node_id:
                changes.leading.append(local)
            else:
                changes.following.append(local)
    for resource_type, name in delta.changed_configs:
        if resource_type == TOPIC_RESOURCE and name in image.topics.by_name:
            changes.topics_with_new_configs.append(name)
        elif resource_type == BROKER_RESOURCE and name in (ALL_BROKERS, str(node_id)):
            changes.broker_configs_changed = True
    return changes


class MetadataMachine:
    """The state machine that the quorum runs: how its log's bytes become an image, and back."""

    __slots__ = ()

    empty: MetadataImage = EMPTY_IMAGE

    def replay(self, base: MetadataImage, *, in_transaction: bool = False) -> Replay:
        return Replay(base, in_transaction=in_transaction)

    def decode(self, view: memoryview) -> Iterator[Message]:
        return decode_batch(view)

    def encode(self, records: Iterable[Message], image: MetadataImage) -> list[bytes]:
        """Each record's value, in the record versions of the image's metadata.version."""
        level = image.metadata_version or LATEST_METADATA_VERSION
        return [encode_record(record, level) for record in records]

    def batch(
        self, values: Iterable[bytes], *, base_offset: int, leader_epoch: int, timestamp: int
    ) -> bytearray:
        """One batch of encoded records."""
        return encode_batch(
            values, base_offset=base_offset, leader_epoch=leader_epoch, timestamp=timestamp
        )

    def contents(self, image: MetadataImage) -> Iterator[Message]:
        return records_of(image)

    def check(self, image: MetadataImage) -> None:
        """Raises MetadataError for a cluster whose records this code does not know in full."""
        level = image.metadata_version
        if level and not LOWEST_METADATA_VERSION <= level <= LATEST_METADATA_VERSION:
            raise MetadataError(
                f"metadata.version {level} is finalized; this version reads"
                f" {LOWEST_METADATA_VERSION} to {LATEST_METADATA_VERSION}"
            )
