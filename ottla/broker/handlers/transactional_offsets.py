"""TxnOffsetCommit: the offsets of a group, as a part of a producer's transaction."""

from __future__ import annotations

from functools import partial

from ottla.broker.coordinator.group.transactional import refused
from ottla.broker.coordinator.transaction.shard import Asker
from ottla.broker.handlers.answers import Pending
from ottla.broker.handlers.committed_offsets import UNKNOWN_PARTITION, CommitPending
from ottla.broker.handlers.context import Rooms, Session
from ottla.broker.handlers.enlisting import ASK_AGAIN
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.transactions import TxnOffsetCommitRequest, TxnOffsetCommitResponse

ADDS_SINCE_VERSION = 5
ABORTABLE_SINCE_VERSION = 4

Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
Partition = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


def handle_txn_offset_commit(
    session: Session, request: TxnOffsetCommitRequest, version: int
) -> TxnOffsetCommitResponse | Pending:
    """Answered when the offsets are on disk; they count when the transaction is committed."""
    rooms = session.rooms
    unknown = _take_out_unknown(rooms, request)
    if not request.topics:
        return TxnOffsetCommitResponse(topics=unknown)
    pending = CommitPending(unknown)
    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        runner, _ = rooms.groups.runner(request.group_id)
    except KafkaError as error:
        pending.complete(refused(request, error.code))
        return pending
    asker = Asker(request.transactional_id, request.producer_id, request.producer_epoch)
    then = partial(_commit, rooms, request, version, pending)
    adds = version >= ADDS_SINCE_VERSION
    rooms.enlisting.admit(asker, [(runner.partition, then)], adds=adds)
    return pending


def _commit(
    rooms: Rooms,
    request: TxnOffsetCommitRequest,
    version: int,
    pending: Pending,
    code: ErrorCode,
) -> None:
    """The group's partition is in the transaction, or it is said why it cannot be."""
    if code:
        pending.complete(refused(request, _shown(code, version)))
        return
    try:
        runner, shard = rooms.groups.runner_with_room(request.group_id)
        if request.producer_epoch < runner.fence(request.producer_id).producer_epoch:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
    except KafkaError as error:
        pending.complete(refused(request, error.code))
        return
    runner.perform(shard.commit_in_transaction(request, pending, runner.now()))


def _shown(code: ErrorCode, version: int) -> ErrorCode:
    """By a name at which every client does the right thing."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code in ASK_AGAIN else code


def _take_out_unknown(rooms: Rooms, request: TxnOffsetCommitRequest) -> list[Topic]:
    """Leaves in the request what exists; returns the answer for what does not."""
    unknown: list[Topic] = []
    for topic in request.topics:
        known = rooms.image.topics.by_name.get(topic.name)
        exists = () if known is None else known.partitions
        gone = [one for one in topic.partitions if one.partition_index not in exists]
        if gone:
            parts = [Partition(one.partition_index, UNKNOWN_PARTITION) for one in gone]
            unknown.append(Topic(topic.name, parts))
            topic.partitions = [one for one in topic.partitions if one.partition_index in exists]
    request.topics = [topic for topic in request.topics if topic.partitions]
    return unknown
