"""TxnOffsetCommit: offsets that are committed with the records that were made of the input.

Who sends it need not be a member, and says so with generation -1, no member id and no instance:
the first versions had no place for them (KIP-447). That the group's partition is in the producer's
transaction has been seen to by the caller.
"""

from __future__ import annotations

from ottla.broker.coordinator.group.classic import ClassicGroup
from ottla.broker.coordinator.group.commits import may_commit
from ottla.broker.coordinator.group.consumer import ConsumerGroup
from ottla.broker.coordinator.group.states import State
from ottla.broker.coordinator.group.turn import Turn
from ottla.broker.coordinator.outcome import Stamp
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.coordinator_records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.messages.transactions import TxnOffsetCommitRequest, TxnOffsetCommitResponse

NO_GENERATION = -1
NO_EXPIRY = -1
TOO_LARGE = int(ErrorCode.OFFSET_METADATA_TOO_LARGE)
UNKNOWN_TOPIC = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
Partition = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


def commit_offsets(turn: Turn, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Writes what can be written; for who is not a member any more nothing."""
    code = _check(turn, request)
    if code:
        return refused(request, code)
    stamp = Stamp(request.producer_id, request.producer_epoch)
    limit = turn.settings.offset_metadata_max_bytes
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        parts: list[Partition] = []
        response.topics.append(Topic(topic.name, parts))
        # It may have gone since the request was looked at.
        topic_id = turn.shard.topic_id_of(topic.name)
        for asked in topic.partitions:
            if topic_id is None:
                parts.append(Partition(asked.partition_index, UNKNOWN_TOPIC))
                continue
            metadata = asked.committed_metadata or ""
            if len(metadata) > limit:
                parts.append(Partition(asked.partition_index, TOO_LARGE))
                continue
            parts.append(Partition(asked.partition_index))
            value = OffsetCommitValue(
                asked.committed_offset,
                asked.committed_leader_epoch,
                metadata,
                turn.now.wall_ms,
                NO_EXPIRY,
                # Which Kafka leaves out, and takes: of a topic of that name that comes later the
                # offset is none.
                topic_id,
            )
            key = OffsetCommitKey(request.group_id, topic.name, asked.partition_index)
            turn.write_pending(key, value, stamp)
    return response


def refused(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """The same error for every partition."""
    return TxnOffsetCommitResponse(
        topics=[
            Topic(
                topic.name, [Partition(one.partition_index, int(code)) for one in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _check(turn: Turn, request: TxnOffsetCommitRequest) -> ErrorCode:
    generation = request.generation_id
    group = turn.shard.groups.get(request.group_id)
    names_nobody = not request.member_id and request.group_instance_id is None
    match group:
        case None:
            is_known = generation < 0
            return ErrorCode.NONE if is_known else ErrorCode.ILLEGAL_GENERATION
        case ClassicGroup():
            if generation < 0 and (group.state is State.EMPTY or names_nobody):
                return ErrorCode.NONE
            return _check_classic(turn, group, request)
        case ConsumerGroup():
            if generation < 0 and group.is_empty:
                return ErrorCode.NONE
            if generation == NO_GENERATION and names_nobody:
                return ErrorCode.NONE
            member = group.members.get(request.member_id)
            if member is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if may_commit(turn, member, generation, request.topics):
                return ErrorCode.NONE
            return ErrorCode.ILLEGAL_GENERATION
        case _:  # of a kind whose members commit no offsets
            return ErrorCode.GROUP_ID_NOT_FOUND


def _check_classic(turn: Turn, group: ClassicGroup, request: TxnOffsetCommitRequest) -> ErrorCode:
    try:
        group.check_member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        if error.code is ErrorCode.FENCED_INSTANCE_ID:
            instance_id = request.group_instance_id
            turn.shard.tell_fenced(turn, group, request.member_id, instance_id, "TxnOffsetCommit")
        return error.code
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.NONE
