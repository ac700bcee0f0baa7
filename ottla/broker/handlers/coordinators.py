"""FindCoordinator: which broker a group, a transactional id or a share partition belongs to.

The topic of the coordinators comes to be with the first question for one of its keys. Kafka answers
that one COORDINATOR_NOT_AVAILABLE and is asked again; here it waits for the topic.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ottla.broker.controller.topics import create_topics
from ottla.broker.coordinator.group.coordinator import CONSUMER_OFFSETS
from ottla.broker.coordinator.placement import partition_for
from ottla.broker.coordinator.share.coordinator import SHARE_GROUP_STATE
from ottla.broker.coordinator.transaction.coordinator import TRANSACTION_STATE
from ottla.broker.handlers.context import Rooms, Session
from ottla.broker.handlers.endpoints import reachable_brokers
from ottla.broker.metadata.image import TopicImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.topics import CreateTopicsRequest
from ottla.protocol.wire import parse_uuid

GROUP_KEY = 0
TRANSACTION_KEY = 1
SHARE_KEY = 2
SHARE_SINCE_VERSION = 6
SEVERAL_SINCE_VERSION = 4
SHARE_KEY_PARTS = 3
_PARTITION = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
TOPIC_OF = {
    GROUP_KEY: CONSUMER_OFFSETS,
    TRANSACTION_KEY: TRANSACTION_STATE,
    SHARE_KEY: SHARE_GROUP_STATE,
}
COMPRESSION_TYPES = ("producer", "gzip", "snappy", "lz4", "zstd")
"""By the numbers of offsets.topic.compression.codec; 0 means what Kafka calls so, too."""


class Found(NamedTuple):
    """Where a coordinator is, or why it is not known."""

    code: ErrorCode
    node_id: int = -1
    host: str = ""
    port: int = -1
    message: str = ""


class CoordinatorTopics:
    """Makes the topics of the coordinators, each once; one per broker."""

    __slots__ = ("_making",)

    def __init__(self) -> None:
        self._making = asyncio.Lock()

    async def make(self, rooms: Rooms, name: str) -> None:
        """Makes one of the topics unless it is there. Raises KafkaError."""
        async with self._making:
            if name in rooms.image.topics.by_name:
                return
            request = CreateTopicsRequest([_TOPICS[name](rooms)])
            response = await rooms.quorum.submit(
                lambda image: create_topics(image, request, config=rooms.config, rng=rooms.rng)
            )
            (result,) = response.topics
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise KafkaError(ErrorCode(result.error_code), result.error_message)


def handle_find_coordinator(
    session: Session, request: FindCoordinatorRequest, version: int
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    """One key, or from version 4 on several of one type."""
    name = TOPIC_OF.get(request.key_type)
    if name is None or name in session.rooms.image.topics.by_name:
        return _answer(session, request, version)
    return _answer_with_topic(session, request, version, name)


async def _answer_with_topic(
    session: Session, request: FindCoordinatorRequest, version: int, name: str
) -> FindCoordinatorResponse:
    rooms = session.rooms
    try:
        await rooms.coordinator_topics.make(rooms, name)
    except KafkaError as error:
        # Whoever asks is answered COORDINATOR_NOT_AVAILABLE, and asks again.
        rooms.events.warning("coordinator_topic_not_created", topic=name, error=str(error))
    return _answer(session, request, version)


def _answer(
    session: Session, request: FindCoordinatorRequest, version: int
) -> FindCoordinatorResponse:
    if version >= SEVERAL_SINCE_VERSION:
        coordinators = []
        for key in request.coordinator_keys:
            found = _find(session, request.key_type, key, version)
            coordinators.append(
                FindCoordinatorResponse.Coordinator(
                    key, found.node_id, found.host, found.port, int(found.code), found.message
                )
            )
        return FindCoordinatorResponse(coordinators=coordinators)
    found = _find(session, request.key_type, request.key, version)
    return FindCoordinatorResponse(
        error_code=int(found.code),
        # As Kafka's own name of "no error", which it shows in these versions alone.
        error_message=found.message if found.code else "NONE",
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(session: Session, key_type: int, key: str, version: int) -> Found:
    if key_type == SHARE_KEY and (version < SHARE_SINCE_VERSION or not _names_share(key)):
        return Found(ErrorCode.INVALID_REQUEST)
    if key_type not in TOPIC_OF:
        message = f"No coordinator has keys of type {key_type}."
        return Found(ErrorCode.INVALID_REQUEST, message=message)
    topic = session.rooms.image.topics.by_name.get(TOPIC_OF[key_type])
    if topic is None:
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _leader_of(session, topic, key)


def _names_share(key: str) -> bool:
    """Whether it is group:topic id:partition; a group's name may have colons."""
    parts = key.rsplit(":", SHARE_KEY_PARTS - 1)
    if len(parts) < SHARE_KEY_PARTS or not parts[0].strip():
        return False
    try:
        parse_uuid(parts[1])
    except ValueError:
        return False
    return _PARTITION.fullmatch(parts[2]) is not None


def _leader_of(session: Session, topic: TopicImage, key: str) -> Found:
    partition = topic.partitions[partition_for(key, len(topic.partitions))]
    endpoint = reachable_brokers(session).get(partition.leader)
    if endpoint is None:
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Found(ErrorCode.NONE, partition.leader, endpoint.host, endpoint.port)


def _offsets_topic(rooms: Rooms) -> CreateTopicsRequest.CreatableTopic:
    """As Kafka makes it, but with no more replicas than there are brokers."""
    config = rooms.config
    settings = {
        "cleanup.policy": "compact",
        "compression.type": COMPRESSION_TYPES[config.offsets_topic_compression_codec],
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }
    replicas = _replicas(rooms, config.offsets_topic_replication_factor)
    return _topic(CONSUMER_OFFSETS, config.offsets_topic_num_partitions, replicas, settings)


def _share_state_topic(rooms: Rooms) -> CreateTopicsRequest.CreatableTopic:
    """As Kafka makes it, but with no more replicas than there are brokers. Nothing is deleted by
    time: what is out of date is, by the coordinator."""
    config = rooms.config
    replicas = _replicas(rooms, config.share_coordinator_state_topic_replication_factor)
    codec = config.share_coordinator_state_topic_compression_codec
    settings = {
        "cleanup.policy": "delete",
        "compression.type": COMPRESSION_TYPES[codec],
        "min.insync.replicas": str(min(config.share_coordinator_state_topic_min_isr, replicas)),
        "retention.ms": "-1",
        "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
    }
    partitions = config.share_coordinator_state_topic_num_partitions
    return _topic(SHARE_GROUP_STATE, partitions, replicas, settings)


def _transaction_topic(rooms: Rooms) -> CreateTopicsRequest.CreatableTopic:
    """As Kafka makes it, but with no more replicas than there are brokers."""
    config = rooms.config
    replicas = _replicas(rooms, config.transaction_state_log_replication_factor)
    settings = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(min(config.transaction_state_log_min_isr, replicas)),
        "segment.bytes": str(config.transaction_state_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    }
    partitions = config.transaction_state_log_num_partitions
    return _topic(TRANSACTION_STATE, partitions, replicas, settings)


def _replicas(rooms: Rooms, wanted: int) -> int:
    active = sum(broker.active for broker in rooms.image.cluster.brokers.values())
    return min(wanted, max(active, 1))


def _topic(
    name: str, partitions: int, replicas: int, settings: dict[str, str]
) -> CreateTopicsRequest.CreatableTopic:
    configs = [
        CreateTopicsRequest.CreatableTopicConfig(key, value) for key, value in settings.items()
    ]
    return CreateTopicsRequest.CreatableTopic(name, partitions, replicas, [], configs)


_TOPICS: dict[str, Callable[[Rooms], CreateTopicsRequest.CreatableTopic]] = {
    CONSUMER_OFFSETS: _offsets_topic,
    TRANSACTION_STATE: _transaction_topic,
    SHARE_GROUP_STATE: _share_state_topic,
}
