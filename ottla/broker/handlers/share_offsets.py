"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets (KIP-932).

A share group commits no offsets: where it begins to deliver is part of what the share coordinator
keeps. Whatever changes it asks that the group have no members, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from ottla.broker.coordinator.group import share_offsets
from ottla.broker.coordinator.group.share import Partitions
from ottla.broker.coordinator.runtime import Runner
from ottla.broker.coordinator.share.batches import NO_OFFSET
from ottla.broker.coordinator.share.coordinator import SHARE_GROUP_STATE
from ottla.broker.coordinator.share.shard import ShareShard
from ottla.broker.coordinator.share.state import NO_COUNT, SharePartitionKey
from ottla.broker.handlers.context import Rooms, Session
from ottla.broker.handlers.share_acknowledge import check_share_groups_served
from ottla.broker.handlers.share_groups import (
    asked,
    delete_states,
    initialize_states,
    state_results,
    succeeded,
)
from ottla.broker.metadata.image import TopicImage
from ottla.broker.share.sessions import Place
from ottla.config.types import LONG_MAX
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.share_group import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from ottla.protocol.wire import ZERO_UUID

NO_LAG = -1

DescribedGroup = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
DescribedTopic = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic
DescribedPartition = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition
AlteredTopic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
AlteredPartition = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition
DeletedTopic = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic
UNKNOWN = KafkaError(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)


async def handle_describe_share_group_offsets(
    session: Session, request: DescribeShareGroupOffsetsRequest, version: int
) -> DescribeShareGroupOffsetsResponse:
    """Where each group begins and what it has yet to deliver; of all its partitions if no topics
    are named."""
    groups: list[DescribedGroup] = []
    whole = {one.group_id: one for one in reversed(request.groups) if one.topics is None}
    for one in request.groups:
        if one.topics is None and whole[one.group_id] is not one:
            continue  # all of a group is told once
        try:
            check_share_groups_served(session.rooms)
            groups.append(await _described(session.rooms, one))
        except KafkaError as error:
            code = int(error.code)
            groups.append(
                DescribedGroup(one.group_id, error_code=code, error_message=error.message)
            )
    return DescribeShareGroupOffsetsResponse(groups=groups)


async def handle_alter_share_group_offsets(
    session: Session, request: AlterShareGroupOffsetsRequest, version: int
) -> AlterShareGroupOffsetsResponse:
    """The group begins anew there: what was acknowledged behind that is forgotten."""
    rooms, group_id = session.rooms, request.group_id
    wanted: dict[str, dict[int, KafkaError | None]] = {}
    ids: dict[str, bytes] = {}
    starts: dict[Place, int] = {}
    for topic in request.topics:
        image = rooms.image.topics.by_name.get(topic.topic_name)
        ids[topic.topic_name] = ZERO_UUID if image is None else image.topic_id
        parts = wanted.setdefault(topic.topic_name, {})
        for part in topic.partitions:
            known = image is not None and part.partition_index in image.partitions
            parts[part.partition_index] = None if known else UNKNOWN
            if image is not None and known:
                starts[image.topic_id, part.partition_index] = part.start_offset
    try:
        _check_asked(rooms, group_id)
        results = await _altered(rooms, group_id, starts)
    except KafkaError as error:
        return AlterShareGroupOffsetsResponse(
            error_code=int(error.code), error_message=error.message
        )
    response = AlterShareGroupOffsetsResponse()
    for name, refusals in wanted.items():
        altered: list[AlteredPartition] = []
        response.responses.append(AlteredTopic(name, ids[name], altered))
        for index, refusal in refusals.items():
            result = refusal or results.get((ids[name], index))
            altered.append(_with_error(AlteredPartition(index), result))
    return response


async def handle_delete_share_group_offsets(
    session: Session, request: DeleteShareGroupOffsetsRequest, version: int
) -> DeleteShareGroupOffsetsResponse:
    """The group forgets these topics: it begins with them as if it had never known them."""
    rooms, group_id = session.rooms, request.group_id
    ids = {one.topic_name: _topic_id(rooms, one.topic_name) for one in request.topics}
    known = frozenset(topic_id for topic_id in ids.values() if topic_id != ZERO_UUID)
    try:
        _check_asked(rooms, group_id)
        begin = partial(share_offsets.begin_delete_offsets, group_id=group_id, topic_ids=known)
        begun = await asked(rooms, group_id, begin)
        if begun.error_code:
            raise KafkaError(ErrorCode(begun.error_code), begun.error_message)
        results = await delete_states(rooms, group_id, begun.places)
        failed = {place[0]: one for place, one in results.items() if isinstance(one, KafkaError)}
        done = frozenset(begun.places) - failed.keys()
        finish = partial(share_offsets.finish_delete_offsets, group_id=group_id, topic_ids=done)
        await asked(rooms, group_id, finish)
    except KafkaError as error:
        return DeleteShareGroupOffsetsResponse(
            error_code=int(error.code), error_message=error.message
        )
    nothing = KafkaError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete."
    )
    response = DeleteShareGroupOffsetsResponse()
    for name, topic_id in ids.items():
        result = failed.get(topic_id)
        if topic_id == ZERO_UUID:
            result = UNKNOWN
        elif topic_id not in begun.places:
            topic_id, result = ZERO_UUID, nothing
        response.responses.append(_with_error(DeletedTopic(name, topic_id), result))
    return response


def _check_asked(rooms: Rooms, group_id: str) -> None:
    """Whether offsets of this group can be changed at all; else KafkaError."""
    check_share_groups_served(rooms)
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "A group's id is not empty.")


async def _altered(rooms: Rooms, group_id: str, starts: dict[Place, int]) -> dict[Place, Any]:
    """What the share coordinator says of each. Raises KafkaError if none of them is altered."""
    command = partial(share_offsets.begin_alter, group_id=group_id, wanted=_places(starts))
    begun = await asked(rooms, group_id, command)
    if begun.error_code:
        raise KafkaError(ErrorCode(begun.error_code), begun.error_message)
    finish = partial(share_offsets.finish_alter, group_id=group_id, begun=begun)
    try:
        results = await initialize_states(
            rooms, group_id, starts, state_epoch=begun.state_epoch, anew=frozenset(begun.places)
        )
    except KafkaError:
        await asked(rooms, group_id, partial(finish, done={}))
        raise
    rooms.shares.drop_group(group_id, "its offsets were altered")
    done, _ = succeeded(results)
    await asked(rooms, group_id, partial(finish, done=done))
    return results


async def _described(
    rooms: Rooms,
    asked_group: DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup,
) -> DescribedGroup:
    group_id = asked_group.group_id
    wanted: list[tuple[str, bytes, list[int]]] = []
    if asked_group.topics is None:
        command = partial(share_offsets.initialized_places, group_id=group_id)
        begun = await asked(rooms, group_id, command)
        if begun.error_code not in (0, ErrorCode.GROUP_ID_NOT_FOUND):
            raise KafkaError(ErrorCode(begun.error_code), begun.error_message)
        for topic_id, indexes in begun.places.items():
            topic = rooms.image.topics.by_id.get(topic_id)
            if topic is not None:
                wanted.append((topic.name, topic_id, sorted(indexes)))
    else:
        for one in asked_group.topics:
            wanted.append((one.topic_name, _topic_id(rooms, one.topic_name), one.partitions))
    places = _places(
        (topic_id, index)
        for _, topic_id, indexes in wanted
        if topic_id != ZERO_UUID
        for index in indexes
    )

    def summarize(
        runner: Runner[ShareShard], shard: ShareShard, key: SharePartitionKey, reply: Any
    ) -> None:
        runner.perform(shard.summarize(key, reply, runner.now()))

    results: dict[Place, Any] = {}
    if SHARE_GROUP_STATE in rooms.image.topics.by_name:  # else nothing was ever kept there
        results = await state_results(rooms, group_id, places, summarize)
    described = DescribedGroup(group_id)
    for name, topic_id, indexes in wanted:
        parts: list[DescribedPartition] = []
        described.topics.append(DescribedTopic(name, topic_id, parts))
        for index in indexes:
            result = results.get((topic_id, index))
            # Where nothing is there is no offset, and that is no error.
            if result is None or _is_unknown(result):
                parts.append(DescribedPartition(index, NO_OFFSET, 0))
            elif isinstance(result, KafkaError):
                part = DescribedPartition(index, NO_OFFSET, 0)
                parts.append(_with_error(part, result))
            else:
                lag = _lag(rooms, (topic_id, index), result)
                parts.append(
                    DescribedPartition(index, result.start_offset, result.leader_epoch, lag)
                )
    return described


def _is_unknown(result: Any) -> bool:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return isinstance(result, KafkaError) and result.code is unknown


def _lag(rooms: Rooms, place: Place, summary: Any) -> int:
    """Records from the start on that are not settled; -1 if that is not known, and less than 0, as
    in Kafka, if the log has yet to reach the start."""
    partition = rooms.replicas.by_id(*place)
    is_known = summary.start_offset != NO_OFFSET and summary.delivery_complete_count != NO_COUNT
    if partition is None or not is_known:
        return NO_LAG
    start: int = summary.start_offset
    settled: int = summary.delivery_complete_count
    # Any start is taken, as in Kafka: also one that is further from the end than a lag can be.
    lag: int = partition.log.high_watermark - start - settled
    return max(min(lag, LONG_MAX), -LONG_MAX)


def _topic_id(rooms: Rooms, name: str) -> bytes:
    topic: TopicImage | None = rooms.image.topics.by_name.get(name)
    return ZERO_UUID if topic is None else topic.topic_id


def _places(each: Iterable[Place]) -> Partitions:
    places: dict[bytes, set[int]] = {}
    for topic_id, index in each:
        places.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in places.items()}


def _with_error(result: Any, error: Any) -> Any:
    if isinstance(error, KafkaError):
        result.error_code = int(error.code)
        result.error_message = error.message
    return result
