"""OffsetCommit, OffsetDelete and DeleteGroups, and what expires: all that writes offset records."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.coordinator.group.classic import ClassicGroup
from ottla.broker.coordinator.group.consumer import ConsumerGroup, ConsumerMember
from ottla.broker.coordinator.group.joining import Caller
from ottla.broker.coordinator.group.kinds import Group
from ottla.broker.coordinator.group.offsets import CommittedOffset, Topics
from ottla.broker.coordinator.group.states import ON_COMMIT, State
from ottla.broker.coordinator.group.turn import Turn
from ottla.broker.coordinator.outcome import Counted
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.coordinator_records import (
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.messages.groups import (
    DeleteGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)
from ottla.protocol.messages.transactions import TxnOffsetCommitRequest
from ottla.protocol.wire import ZERO_UUID

DEFAULT_RETENTION_MS = -1
NO_EXPIRY = -1
EXPIRY_MS_MAX = 2**63 - 1
UNKNOWN_GROUP_SINCE_VERSION = 9
MEMBER_EPOCH_SINCE_VERSION = 9
TOO_LARGE = int(ErrorCode.OFFSET_METADATA_TOO_LARGE)

CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
TransactionTopic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
CommittedTopic = OffsetCommitResponse.OffsetCommitResponseTopic
CommittedPartition = OffsetCommitResponse.OffsetCommitResponsePartition


def commit_offsets(
    turn: Turn, caller: Caller, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    """Commits what can be committed; a member that is not one any more commits nothing."""
    group = turn.shard.groups.get(request.group_id)
    code = _check_commit(turn, group, request, caller.version)
    if code:
        return commit_refused(request, code)
    now_ms = turn.now.wall_ms
    expire_ms = NO_EXPIRY
    if request.retention_time_ms != DEFAULT_RETENTION_MS:
        expire_ms = min(now_ms + request.retention_time_ms, EXPIRY_MS_MAX)
    limit = turn.settings.offset_metadata_max_bytes
    is_simple = isinstance(group, ClassicGroup) and group.is_simple
    # A static member that is away has a negative epoch, too.
    is_from_outside = request.generation_id_or_member_epoch < 0 and (
        group is None or group.is_empty
    )
    had_members = group is not None and not is_simple and request.member_id == ""
    response = OffsetCommitResponse()
    committed = 0
    for topic in request.topics:
        topic_id = topic.topic_id
        if topic_id == ZERO_UUID:
            topic_id = turn.shard.topic_id_of(topic.name) or ZERO_UUID
        parts: list[CommittedPartition] = []
        response.topics.append(CommittedTopic(topic.name, topic.topic_id, parts))
        for asked in topic.partitions:
            index = asked.partition_index
            metadata = asked.committed_metadata or ""
            if len(metadata) > limit:
                parts.append(CommittedPartition(index, TOO_LARGE))
                continue
            parts.append(CommittedPartition(index))
            if is_from_outside:
                place = (request.group_id, topic.name, index)
                _tell_reset(turn, place, asked.committed_offset, had_members=had_members)
            turn.write(
                OffsetCommitKey(request.group_id, topic.name, index),
                OffsetCommitValue(
                    asked.committed_offset,
                    asked.committed_leader_epoch,
                    metadata,
                    now_ms,
                    expire_ms,
                    topic_id,
                ),
            )
            committed += 1
    turn.count(Counted.OFFSET_COMMIT, committed)
    return response


def commit_refused(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """The same error for every partition, since the answer has no place for one of its own."""
    return OffsetCommitResponse(
        topics=[
            CommittedTopic(
                topic.name,
                topic.topic_id,
                [CommittedPartition(one.partition_index, int(code)) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def delete_offsets(turn: Turn, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Forgets offsets of topics that no member wants."""
    group = turn.shard.groups.get(request.group_id)
    if group is None:
        return OffsetDeleteResponse(error_code=int(ErrorCode.GROUP_ID_NOT_FOUND))
    refusal = group.refuse_offset_delete()
    if refusal:
        return OffsetDeleteResponse(error_code=int(refusal))
    response = OffsetDeleteResponse()
    offsets = turn.shard.offsets
    for topic in request.topics:
        code = ErrorCode.NONE
        if group.is_subscribed(topic.name):
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        parts: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = []
        response.topics.append(OffsetDeleteResponse.OffsetDeleteResponseTopic(topic.name, parts))
        for asked in topic.partitions:
            index = asked.partition_index
            parts.append(OffsetDeleteResponse.OffsetDeleteResponsePartition(index, int(code)))
            if code:
                continue
            key = (request.group_id, topic.name, index)
            if offsets.get(*key) is not None or offsets.is_pending(key):
                turn.write(OffsetCommitKey(*key), None)
                turn.count(Counted.OFFSET_DELETION, 1)
                turn.tell(
                    "group_offset_deleted",
                    request.group_id,
                    "OffsetDelete was asked for",
                    topic=topic.name,
                    partition=index,
                )
    return response


def delete_group(turn: Turn, group_id: str) -> DeleteGroupsResponse.DeletableGroupResult:
    """Forgets a group without members, and its offsets."""
    result = DeleteGroupsResponse.DeletableGroupResult(group_id)
    group = turn.shard.groups.get(group_id)
    if group is None:
        result.error_code = int(ErrorCode.GROUP_ID_NOT_FOUND)
    elif not group.is_empty:
        result.error_code = int(ErrorCode.NON_EMPTY_GROUP)
    else:
        offsets = turn.shard.offsets
        keys = dict.fromkeys(offsets.pending_keys(group_id))
        for topic, partitions in offsets.of_group(group_id).items():
            keys.update(dict.fromkeys((group_id, topic, index) for index in partitions))
        for key in keys:
            turn.write(OffsetCommitKey(*key), None)
        turn.count(Counted.OFFSET_DELETION, len(keys))
        _bury(turn, group, "DeleteGroups was asked for")
    return result


def expire_offsets(turn: Turn) -> None:
    """Forgets offsets past their time, and empty groups that have none left."""
    for group in list(turn.shard.groups.values()):
        topics = turn.shard.offsets.of_group(group.group_id)
        expired = _expired(turn, group, topics)
        for topic, index in expired:
            turn.write(OffsetCommitKey(group.group_id, topic, index), None)
        if expired:
            reason = "nobody used them for offsets.retention.minutes"
            shown = [f"{topic}-{index}" for topic, index in expired]
            turn.count(Counted.OFFSET_EXPIRATION, len(expired))
            turn.tell("group_offsets_expired", group.group_id, reason, partitions=shown)
        is_left = turn.shard.offsets.of_group(group.group_id)
        is_open = turn.shard.offsets.has_open_transaction(group.group_id)
        is_joined = isinstance(group, ClassicGroup) and group.pending_join
        if group.is_empty and group.expires and not is_joined and not is_left and not is_open:
            _bury(turn, group, "it has neither members nor offsets")


def topics_deleted(turn: Turn, names: list[str]) -> None:
    """Forgets what was committed for these topics, in whatever group, and what a transaction that
    is not decided would commit: of a new topic of the same name that would not be true."""
    for (group_id, name), partitions in turn.shard.offsets.of_topics(names).items():
        for index in partitions:
            turn.write(OffsetCommitKey(group_id, name, index), None)
        turn.count(Counted.OFFSET_DELETION, len(partitions))
        turn.tell("group_offsets_deleted", group_id, "the topic was deleted", topic=name)


def _check_commit(
    turn: Turn, group: Group | None, request: OffsetCommitRequest, version: int
) -> ErrorCode:
    if isinstance(group, ClassicGroup):
        return _check_classic_commit(turn, group, request)
    if isinstance(group, ConsumerGroup):
        return _check_consumer_commit(turn, group, request, version)
    if group is not None:  # of a kind whose members commit no offsets
        return ErrorCode.GROUP_ID_NOT_FOUND
    if request.generation_id_or_member_epoch < 0:
        return ErrorCode.NONE
    if version >= UNKNOWN_GROUP_SINCE_VERSION:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.ILLEGAL_GENERATION


def _check_classic_commit(
    turn: Turn, group: ClassicGroup, request: OffsetCommitRequest
) -> ErrorCode:
    generation = request.generation_id_or_member_epoch
    if generation < 0 and group.state is State.EMPTY:
        return ErrorCode.NONE
    is_member = generation >= 0 or request.member_id or request.group_instance_id is not None
    if not is_member:
        return ErrorCode.UNKNOWN_MEMBER_ID
    try:
        member = group.check_member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        if error.code is ErrorCode.FENCED_INSTANCE_ID:
            instance_id = request.group_instance_id
            turn.shard.tell_fenced(turn, group, request.member_id, instance_id, "OffsetCommit")
        return error.code
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    code = ON_COMMIT[group.state]
    if not code:
        turn.restart_session(group, member)
    return code


def _check_consumer_commit(
    turn: Turn, group: ConsumerGroup, request: OffsetCommitRequest, version: int
) -> ErrorCode:
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and group.is_empty:
        return ErrorCode.NONE
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.classic is None and version < MEMBER_EPOCH_SINCE_VERSION:
        return ErrorCode.UNSUPPORTED_VERSION
    if may_commit(turn, member, epoch, request.topics):
        return ErrorCode.NONE
    is_modern = member.classic is None
    return ErrorCode.STALE_MEMBER_EPOCH if is_modern else ErrorCode.ILLEGAL_GENERATION


def may_commit(
    turn: Turn,
    member: ConsumerMember,
    epoch: int,
    topics: Iterable[CommitTopic | TransactionTopic],
) -> bool:
    """A member that has missed its newest epoch may commit what it has had since before
    (KIP-1251): all of the asked partitions, or it commits none."""
    if epoch >= member.epoch:
        return epoch == member.epoch
    for topic in topics:
        topic_id = topic.topic_id if isinstance(topic, CommitTopic) else ZERO_UUID
        if topic_id == ZERO_UUID:
            topic_id = turn.shard.topic_id_of(topic.name) or ZERO_UUID
        epochs = {**member.revoking.get(topic_id, {}), **member.assigned.get(topic_id, {})}
        if any(epoch < epochs.get(one.partition_index, epoch + 1) for one in topic.partitions):
            return False
    return True


def _tell_reset(turn: Turn, place: tuple[str, str, int], offset: int, *, had_members: bool) -> None:
    """Somebody who is no member moves the offset of a group that has had members; or moves it back,
    which a consumer that is alone with its offsets does not do by consuming."""
    group_id, topic, index = place
    before = turn.shard.offsets.get(group_id, topic, index)
    if had_members and (before is None or before.offset != offset):
        reason = "an offset was committed from outside while the group was empty"
    elif before is not None and offset < before.offset:
        reason = "an offset was moved back by a commit without a generation"
    else:
        return
    turn.tell(
        "group_offset_reset",
        group_id,
        reason,
        topic=topic,
        partition=index,
        offset=offset,
        former_offset=None if before is None else before.offset,
    )


def _expired(turn: Turn, group: Group, topics: Topics) -> list[tuple[str, int]]:
    """(topic, partition) of the offsets whose time is over, or whose topic is another now."""
    shard = turn.shard
    base_ms: int | None = None
    can_expire = True
    if isinstance(group, ClassicGroup) and group.protocol_type is not None:
        if group.state is State.EMPTY:
            base_ms = group.state_timestamp_ms
        else:
            can_expire = (
                group.uses_consumer_protocol
                and group.subscribed_topics is not None
                and group.state is State.STABLE
            )
    found: list[tuple[str, int]] = []
    for topic, partitions in topics.items():
        topic_id = shard.topic_id_of(topic)
        is_wanted = not can_expire or group.is_subscribed(topic)
        for index, committed in partitions.items():
            if committed.is_of_former_topic(topic_id) or (
                not is_wanted
                and _is_over(committed, base_ms, turn)
                and not shard.offsets.is_pending((group.group_id, topic, index))
            ):
                found.append((topic, index))
    return found


def _is_over(committed: CommittedOffset, base_ms: int | None, turn: Turn) -> bool:
    now_ms = turn.now.wall_ms
    if committed.expire_timestamp_ms != NO_EXPIRY:
        return now_ms >= committed.expire_timestamp_ms
    if base_ms is None or base_ms < 0:
        base_ms = committed.commit_timestamp_ms
    return now_ms - base_ms >= turn.settings.offsets_retention_ms


def _bury(turn: Turn, group: Group, reason: str) -> None:
    for key in list(group.tombstone_keys()):
        turn.write(key, None)
    turn.tell("group_deleted", group.group_id, reason)
