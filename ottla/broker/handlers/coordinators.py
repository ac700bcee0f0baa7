"""FindCoordinator: which broker a group, a transactional id or a share partition belongs to.

The topic of the coordinators comes to be with the first question for one of its keys. Kafka answers
that one COORDINATOR_NOT_AVAILABLE and is asked again; here it waits for the topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import NamedTuple

from ottla.broker.controller.topics import create_topics
from ottla.broker.coordinator.group.coordinator import CONSUMER_OFFSETS
from ottla.broker.coordinator.placement import partition_for
from ottla.broker.handlers.context import Rooms, Session
from ottla.broker.handlers.endpoints import reachable_brokers
from ottla.broker.metadata.image import TopicImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.topics import CreateTopicsRequest

GROUP_KEY = 0
TRANSACTION_KEY = 1
SHARE_KEY = 2
SHARE_SINCE_VERSION = 6
SEVERAL_SINCE_VERSION = 4
SHARE_KEY_PARTS = 3

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

    async def make(self, rooms: Rooms) -> None:
        """Makes __consumer_offsets unless it is there. Raises KafkaError."""
        async with self._making:
            if CONSUMER_OFFSETS in rooms.image.topics.by_name:
                return
            request = CreateTopicsRequest([_offsets_topic(rooms)])
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
    rooms = session.rooms
    is_there = CONSUMER_OFFSETS in rooms.image.topics.by_name
    if request.key_type != GROUP_KEY or is_there:
        return _answer(session, request, version)
    return _answer_with_topic(session, request, version)


async def _answer_with_topic(
    session: Session, request: FindCoordinatorRequest, version: int
) -> FindCoordinatorResponse:
    rooms = session.rooms
    try:
        await rooms.coordinator_topics.make(rooms)
    except KafkaError as error:
        # Whoever asks is answered COORDINATOR_NOT_AVAILABLE, and asks again.
        rooms.events.warning("coordinator_topic_not_created", error=str(error))
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
    if key_type == SHARE_KEY and (
        version < SHARE_SINCE_VERSION or len(key.split(":")) != SHARE_KEY_PARTS
    ):
        return Found(ErrorCode.INVALID_REQUEST)
    if key_type not in (GROUP_KEY, TRANSACTION_KEY, SHARE_KEY):
        message = f"No coordinator has keys of type {key_type}."
        return Found(ErrorCode.INVALID_REQUEST, message=message)
    topic = session.rooms.image.topics.by_name.get(CONSUMER_OFFSETS)
    if key_type != GROUP_KEY or topic is None:
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _leader_of(session, topic, key)


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
    active = sum(broker.active for broker in rooms.image.cluster.brokers.values())
    return CreateTopicsRequest.CreatableTopic(
        CONSUMER_OFFSETS,
        config.offsets_topic_num_partitions,
        min(config.offsets_topic_replication_factor, max(active, 1)),
        [],
        [CreateTopicsRequest.CreatableTopicConfig(key, value) for key, value in settings.items()],
    )
