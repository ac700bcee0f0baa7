"""OffsetCommit, OffsetFetch and OffsetDelete: how far a group has come.

Topics have names in the shards; from version 10 on they are asked for by id, which is looked up
here. A commit for a partition that does not exist is refused here, for no shard knows the topics.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.coordinator.group.commits import commit_refused
from ottla.broker.coordinator.group.inspection import fetch_offsets, fetch_offsets_of_one
from ottla.broker.handlers.answers import Pending
from ottla.broker.handlers.context import Rooms, Session
from ottla.broker.handlers.groups import Gathering, caller_of
from ottla.broker.metadata.image import TopicImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from ottla.protocol.messages.transactions import TxnOffsetCommitResponse

TOPIC_IDS_SINCE_VERSION = 10
SEVERAL_GROUPS_SINCE_VERSION = 8
UNKNOWN_PARTITION = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
UNKNOWN_TOPIC_ID = int(ErrorCode.UNKNOWN_TOPIC_ID)
NO_OFFSET = -1

CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
CommittedTopic = OffsetCommitResponse.OffsetCommitResponseTopic
CommittedPartition = OffsetCommitResponse.OffsetCommitResponsePartition
FetchGroup = OffsetFetchRequest.OffsetFetchRequestGroup
FetchTopic = OffsetFetchRequest.OffsetFetchRequestTopics
FetchedGroup = OffsetFetchResponse.OffsetFetchResponseGroup
FetchedTopic = OffsetFetchResponse.OffsetFetchResponseTopics
FetchedPartition = OffsetFetchResponse.OffsetFetchResponsePartitions
DeletedTopic = OffsetDeleteResponse.OffsetDeleteResponseTopic
DeletedPartition = OffsetDeleteResponse.OffsetDeleteResponsePartition


class CommitPending(Pending):
    """A commit's answer to come, in a transaction or not, to which what was refused here is added,
    topic by topic."""

    __slots__ = ("_refused",)

    def __init__(self, refused: list[Any]) -> None:
        super().__init__()
        self._refused = refused

    def complete(self, response: OffsetCommitResponse | TxnOffsetCommitResponse) -> None:
        response.topics = _merged(self._refused, response.topics)
        super().complete(response)


class DeletePending(Pending):
    """The same for OffsetDelete."""

    __slots__ = ("_refused",)

    def __init__(self, refused: list[DeletedTopic]) -> None:
        super().__init__()
        self._refused = refused

    def complete(self, response: OffsetDeleteResponse) -> None:
        if not response.error_code:
            response.topics = _merged(self._refused, response.topics)
        super().complete(response)


def handle_offset_commit(
    session: Session, request: OffsetCommitRequest, version: int
) -> OffsetCommitResponse | Pending:
    """Answered when the offsets are on disk."""
    rooms = session.rooms
    refused = _take_out_unknown(rooms, request, version)
    if not request.topics:
        return OffsetCommitResponse(topics=_merged(refused, []))
    try:
        runner, shard = rooms.groups.runner_with_room(request.group_id)
    except KafkaError as error:
        response = commit_refused(request, error.code)
        response.topics = _merged(refused, response.topics)
        return response
    pending = CommitPending(refused)
    runner.perform(
        shard.commit_offsets(caller_of(session, version), request, pending, runner.now())
    )
    return pending


def handle_offset_fetch(
    session: Session, request: OffsetFetchRequest, version: int
) -> OffsetFetchResponse | Pending:
    """What nobody has committed is -1, without an error. All offsets of a group are answered once,
    however often they are asked for."""
    if version < SEVERAL_GROUPS_SINCE_VERSION:
        return _fetch_one(session.rooms, request)
    whole = {one.group_id: one for one in reversed(request.groups) if one.topics is None}
    groups = [one for one in request.groups if one.topics is not None or whole[one.group_id] is one]
    if not groups:
        return OffsetFetchResponse()
    gathering = Gathering(len(groups), lambda parts: OffsetFetchResponse(groups=parts))
    for index, group in enumerate(groups):
        unknown: list[FetchedTopic] = []
        if version >= TOPIC_IDS_SINCE_VERSION and group.topics is not None:
            unknown = _name_topics(session.rooms, group)
        part = FetchPart(gathering, index, unknown, by_id=version >= TOPIC_IDS_SINCE_VERSION)
        _fetch(session.rooms, group, part, require_stable=request.require_stable)
    return gathering


def handle_offset_delete(
    session: Session, request: OffsetDeleteRequest, version: int
) -> OffsetDeleteResponse | Pending:
    """Each partition on its own; answered when they are forgotten on disk."""
    if not request.group_id:
        return OffsetDeleteResponse(error_code=int(ErrorCode.INVALID_GROUP_ID))
    rooms = session.rooms
    try:
        runner, shard = rooms.groups.runner(request.group_id)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=int(error.code))
    refused: list[DeletedTopic] = []
    for topic in request.topics:
        known = rooms.image.topics.by_name.get(topic.name)
        unknown = [
            DeletedPartition(one.partition_index, UNKNOWN_PARTITION)
            for one in topic.partitions
            if known is None or one.partition_index not in known.partitions
        ]
        if unknown:
            refused.append(DeletedTopic(topic.name, unknown))
            gone = {one.partition_index for one in unknown}
            topic.partitions = [one for one in topic.partitions if one.partition_index not in gone]
    request.topics = [topic for topic in request.topics if topic.partitions]
    pending = DeletePending(refused)
    runner.perform(shard.delete_offsets(request, pending, runner.now()))
    return pending


class FetchPart:
    """Where the answer for one group of several goes, completed by the topics of unknown ids."""

    __slots__ = ("_by_id", "_gathering", "_index", "_unknown")

    def __init__(
        self, gathering: Gathering, index: int, unknown: list[FetchedTopic], *, by_id: bool
    ) -> None:
        self._gathering = gathering
        self._index = index
        self._unknown = unknown
        self._by_id = by_id

    def complete(self, response: FetchedGroup) -> None:
        if self._by_id:
            # A topic that is gone has no id to be told by.
            response.topics = [one for one in response.topics if any(one.topic_id)]
        if not response.error_code:
            response.topics += self._unknown
        self._gathering.put(self._index, response)


def _fetch_one(rooms: Rooms, request: OffsetFetchRequest) -> OffsetFetchResponse | Pending:
    try:
        runner, shard = rooms.groups.runner(request.group_id)
    except KafkaError as error:
        return OffsetFetchResponse(error_code=int(error.code))
    response = fetch_offsets_of_one(shard, request)
    if runner.is_settled:
        return response
    pending = Pending()
    runner.answer(pending, response)
    return pending


def _fetch(rooms: Rooms, group: FetchGroup, part: FetchPart, *, require_stable: bool) -> None:
    try:
        runner, shard = rooms.groups.runner(group.group_id)
    except KafkaError as error:
        part.complete(FetchedGroup(group.group_id, error_code=int(error.code)))
        return
    runner.answer(part, fetch_offsets(shard, group, require_stable=require_stable))


def _name_topics(rooms: Rooms, group: FetchGroup) -> list[FetchedTopic]:
    """Gives the asked topics the names of their ids; returns the answer for those without."""
    known: list[FetchTopic] = []
    unknown: list[FetchedTopic] = []
    for topic in group.topics or ():
        image = rooms.image.topics.by_id.get(topic.topic_id)
        if image is not None:
            topic.name = image.name
            known.append(topic)
            continue
        parts = [
            FetchedPartition(index, NO_OFFSET, -1, "", UNKNOWN_TOPIC_ID)
            for index in topic.partition_indexes
        ]
        unknown.append(FetchedTopic("", topic.topic_id, parts))
    group.topics = known
    return unknown


def _take_out_unknown(
    rooms: Rooms, request: OffsetCommitRequest, version: int
) -> list[CommittedTopic]:
    """Leaves in the request what exists, by name; returns the answer for what does not."""
    by_id = version >= TOPIC_IDS_SINCE_VERSION
    topics = rooms.image.topics
    refused: list[CommittedTopic] = []
    kept: list[CommitTopic] = []
    for topic in request.topics:
        known: TopicImage | None
        code = UNKNOWN_PARTITION
        if by_id:
            known = topics.by_id.get(topic.topic_id)
            if known is None:
                code = UNKNOWN_TOPIC_ID
            else:
                topic.name = known.name
        else:
            known = topics.by_name.get(topic.name)
        partitions = {} if known is None else known.partitions
        unknown = [
            CommittedPartition(one.partition_index, code)
            for one in topic.partitions
            if one.partition_index not in partitions
        ]
        if unknown:
            refused.append(CommittedTopic(topic.name, topic.topic_id, unknown))
            topic.partitions = [
                one for one in topic.partitions if one.partition_index in partitions
            ]
        if topic.partitions:
            kept.append(topic)
    request.topics = kept
    return refused


def _merged(refused: list[Any], answered: list[Any]) -> list[Any]:
    """One entry for each topic: the partitions that were refused, then the answered ones."""
    merged: dict[tuple[str, bytes], Any] = {}
    for topic in (*refused, *answered):
        key = (topic.name, getattr(topic, "topic_id", b""))
        known = merged.setdefault(key, topic)
        if known is not topic:
            known.partitions += topic.partitions
    return list(merged.values())
