"""CreateTopics, DeleteTopics and CreatePartitions: the controller decides, here it is awaited.

What was created has its leaders and logs when the answer leaves. A timeout of 0 is over as soon as
it begins: such a change is made, and said to be late, as Kafka does. No other timeout can pass
while this node is the only voter: a change takes as long as its own disk does.
"""

from __future__ import annotations

from ottla.broker.controller import partitions as partition_commands
from ottla.broker.controller import topics as topic_commands
from ottla.broker.handlers.context import Rooms, Session
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ottla.protocol.wire import ZERO_UUID

CreatedTopic = CreateTopicsResponse.CreatableTopicResult
DeletedTopic = DeleteTopicsResponse.DeletableTopicResult
GrownTopic = CreatePartitionsResponse.CreatePartitionsTopicResult

DELETE_STATES_SINCE_VERSION = 6
TIMED_OUT = int(ErrorCode.REQUEST_TIMED_OUT)


async def handle_create_topics(
    session: Session, request: CreateTopicsRequest, version: int
) -> CreateTopicsResponse:
    """Each topic is created or refused on its own."""
    rooms = session.rooms
    response = await create_topics(rooms, request)
    if not request.validate_only:
        for topic in response.topics:
            if not topic.error_code:
                rooms.events.info(
                    "topic_created",
                    topic=topic.name,
                    partitions=topic.num_partitions,
                    client_id=session.client_id,
                )
    if request.timeout_ms <= 0:
        response.topics = [
            topic if topic.error_code else CreatedTopic(topic.name, ZERO_UUID, TIMED_OUT, None)
            for topic in response.topics
        ]
    return response


async def create_topics(rooms: Rooms, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Creates topics for whoever asks, a client or auto-creation."""
    return await rooms.quorum.submit(
        lambda image: topic_commands.create_topics(
            image, request, config=rooms.config, rng=rooms.rng
        )
    )


async def handle_delete_topics(
    session: Session, request: DeleteTopicsRequest, version: int
) -> DeleteTopicsResponse:
    """Each topic is deleted or refused on its own; its name is free when the answer leaves."""
    rooms = session.rooms
    try:
        response = await rooms.quorum.submit(
            lambda image: topic_commands.delete_topics(
                image, request, version=version, enabled=rooms.config.delete_topic_enable
            )
        )
    except KafkaError as error:
        return _deletion_refused(request, version, error)
    for topic in response.responses:
        if not topic.error_code:
            rooms.events.info("topic_deleted", topic=topic.name, client_id=session.client_id)
    if request.timeout_ms <= 0:
        response.responses = [
            topic if topic.error_code else DeletedTopic(topic.name, topic.topic_id, TIMED_OUT)
            for topic in response.responses
        ]
    return response


async def handle_create_partitions(
    session: Session, request: CreatePartitionsRequest, version: int
) -> CreatePartitionsResponse:
    """Each topic grows or is refused on its own."""
    rooms = session.rooms
    response = await rooms.quorum.submit(
        lambda image: partition_commands.create_partitions(image, request, rng=rooms.rng)
    )
    if request.timeout_ms <= 0:
        response.results = [
            topic if topic.error_code else GrownTopic(topic.name, TIMED_OUT)
            for topic in response.results
        ]
    return response


def _deletion_refused(
    request: DeleteTopicsRequest, version: int, error: KafkaError
) -> DeleteTopicsResponse:
    """The same error for every topic, since the answer has no place for one of its own."""
    code = int(error.code)
    if version >= DELETE_STATES_SINCE_VERSION:
        refused = [
            DeletedTopic(one.name, one.topic_id, code, error.message) for one in request.topics
        ]
    else:
        refused = [
            DeletedTopic(name, error_code=code, error_message=error.message)
            for name in request.topic_names
        ]
    return DeleteTopicsResponse(responses=refused)
