"""From the partition that a request names to the one that this broker leads."""

from __future__ import annotations

from ottla.broker.handlers.context import Rooms
from ottla.broker.replication.replicas import Partition
from ottla.protocol.errors import ErrorCode, KafkaError

NOT_CHECKED = -1


def led_partition(
    rooms: Rooms, topic: str, index: int, *, current_leader_epoch: int = NOT_CHECKED
) -> Partition:
    """The partition, fenced by the epoch that the client believes in; -1 is none, and what is less
    is an old one, as in Kafka.

    Raises KafkaError: unknown (3), known but not led here (6), its log directory offline (56),
    a leader epoch before ours (74) or beyond it (75).
    """
    partition = rooms.replicas.get(topic, index)
    if partition is None:
        raise KafkaError(absence(rooms, topic, index))
    if current_leader_epoch != NOT_CHECKED:
        if current_leader_epoch < partition.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if current_leader_epoch > partition.leader_epoch:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
    return partition


def absence(rooms: Rooms, topic: str, index: int) -> ErrorCode:
    """Why a partition that is not led here is not."""
    topic_image = rooms.image.topics.by_name.get(topic)
    partition = None if topic_image is None else topic_image.partitions.get(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.leader == rooms.config.node_id:
        # What the image gives us is led at once, unless its log cannot be opened or has failed.
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NOT_LEADER_OR_FOLLOWER
