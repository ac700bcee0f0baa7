"""CreateTopics, DeleteTopics and CreatePartitions: the controller decides, here it is awaited.

What was created has its leaders and logs when the answer leaves. A timeout of 0 is over as soon as
it begins: such a change is made, and said to be late, as Kafka does. No other timeout can pass
while this node is the only voter: a change takes as long as its own disk does.

What a client creates and deletes is charged to its quota (KIP-599). The connection of a client that
is told to wait is not read from meanwhile, which `network/server.py` sees to.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ottla.broker.controller import partitions as partition_commands
from ottla.broker.controller import topics as topic_commands
from ottla.broker.controller.mutation_quotas import Charge, Mutations, nobody_pays
from ottla.broker.controller.quota_accounts import ANONYMOUS
from ottla.broker.controller.setting_changes import SHOWN_CHARS_MAX
from ottla.broker.handlers.context import Rooms, Session
from ottla.broker.handlers.telling import in_turns
from ottla.broker.telemetry.shown import shown
from ottla.config.cautions import caution_of_topic
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
CREATE_REFUSED_SINCE_VERSION = 6
DELETE_REFUSED_SINCE_VERSION = 5
GROW_REFUSED_SINCE_VERSION = 3
"""From these on a client that has used up its quota is told so; before, it gets what it asks for
and is told to wait."""

Answer = TypeVar("Answer", CreateTopicsResponse, DeleteTopicsResponse, CreatePartitionsResponse)


async def handle_create_topics(
    session: Session, request: CreateTopicsRequest, version: int
) -> CreateTopicsResponse:
    """Each topic is created or refused on its own."""
    rooms = session.rooms
    taken = mutations(rooms, session.client_id, is_strict=version >= CREATE_REFUSED_SINCE_VERSION)
    response = await create_topics(rooms, request, charge_of(taken))
    if not request.validate_only:
        await _tell_created(session, request, response)
    if request.timeout_ms <= 0:
        response.topics = [
            topic if topic.error_code else CreatedTopic(topic.name, ZERO_UUID, TIMED_OUT, None)
            for topic in response.topics
        ]
    return _throttled(rooms, response, taken)


async def create_topics(
    rooms: Rooms, request: CreateTopicsRequest, charge: Charge
) -> CreateTopicsResponse:
    """Creates topics for whoever asks, a client or auto-creation."""
    return await rooms.quorum.submit(
        lambda image: topic_commands.create_topics(
            image, request, config=rooms.config, rng=rooms.rng, charge=charge
        )
    )


def mutations(rooms: Rooms, client_id: str | None, *, is_strict: bool) -> Mutations | None:
    """What one request of a client may change of topics; None if nothing limits it."""
    now_ms = rooms.clock.monotonic_ms()
    return rooms.mutation_quotas.of(ANONYMOUS, client_id or "", is_strict=is_strict, now_ms=now_ms)


def charge_of(taken: Mutations | None) -> Charge:
    return nobody_pays if taken is None else taken.charge


async def handle_delete_topics(
    session: Session, request: DeleteTopicsRequest, version: int
) -> DeleteTopicsResponse:
    """Each topic is deleted or refused on its own; its name is free when the answer leaves."""
    rooms = session.rooms
    taken = mutations(rooms, session.client_id, is_strict=version >= DELETE_REFUSED_SINCE_VERSION)
    response = await rooms.quorum.submit(
        lambda image: topic_commands.delete_topics(
            image,
            request,
            version=version,
            enabled=rooms.config.delete_topic_enable,
            charge=charge_of(taken),
        )
    )
    async for topic in in_turns(response.responses):
        if not topic.error_code:
            lost = topic_commands.LOST_WITH.get(topic.name or "")
            if lost is None:
                rooms.events.info("topic_deleted", topic=topic.name, **session.asker)
            else:
                rooms.events.warning("topic_deleted", topic=topic.name, lost=lost, **session.asker)
    if request.timeout_ms <= 0:
        response.responses = [
            topic if topic.error_code else DeletedTopic(topic.name, topic.topic_id, TIMED_OUT)
            for topic in response.responses
        ]
    return _throttled(rooms, response, taken)


def refused_deletion(
    request: DeleteTopicsRequest, version: int, error: KafkaError
) -> DeleteTopicsResponse:
    """The same error for every topic, by name or by id as the request has it."""
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


async def handle_create_partitions(
    session: Session, request: CreatePartitionsRequest, version: int
) -> CreatePartitionsResponse:
    """Each topic grows or is refused on its own."""
    rooms = session.rooms
    taken = mutations(rooms, session.client_id, is_strict=version >= GROW_REFUSED_SINCE_VERSION)
    response = await rooms.quorum.submit(
        lambda image: partition_commands.create_partitions(
            image, request, rng=rooms.rng, charge=charge_of(taken)
        )
    )
    if not request.validate_only:
        counts = {topic.name: topic.count for topic in request.topics}
        async for grown in in_turns(response.results):
            if not grown.error_code:
                rooms.events.info(
                    "topic_grown",
                    topic=grown.name,
                    partitions=counts[grown.name],
                    **session.asker,
                )
    if request.timeout_ms <= 0:
        response.results = [
            topic if topic.error_code else GrownTopic(topic.name, TIMED_OUT)
            for topic in response.results
        ]
    return _throttled(rooms, response, taken)


async def _tell_created(
    session: Session, request: CreateTopicsRequest, response: CreateTopicsResponse
) -> None:
    """Each with what was set for it; a setting of little use makes a warning of it."""
    asked = {topic.name: topic for topic in request.topics}
    async for topic in in_turns(response.topics):
        if topic.error_code:
            continue
        fields: dict[str, Any] = {"topic": topic.name, "partitions": topic.num_partitions}
        settings = {one.name: one.value or "" for one in asked[topic.name].configs}
        if settings:
            fields["settings"] = {
                name: shown(value, SHOWN_CHARS_MAX) for name, value in settings.items()
            }
        found = ((name, caution_of_topic(name, value)) for name, value in settings.items())
        cautions = {name: caution for name, caution in found if caution is not None}
        if cautions:
            fields["cautions"] = cautions
        events = session.rooms.events
        write = events.warning if cautions else events.info
        write("topic_created", **fields, **session.asker)


def _throttled(rooms: Rooms, response: Answer, taken: Mutations | None) -> Answer:
    if taken is not None:
        response.throttle_time_ms = taken.wait_ms(rooms.clock.monotonic_ms())
    return response
