"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: the ends of a partition's log.

A timestamp of ListOffsets that is negative is a question of its own; each has the version that
brought it. What a time look-up finds at or above the fetchable end (high watermark, or last stable
offset for read_committed) is not there yet for this client. Such a look-up may wait for a worker,
and others have their turn meanwhile (`replication/time_steps.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.handlers.context import Rooms, Session
from ottla.broker.handlers.partitions import led_partition
from ottla.broker.handlers.topic_names import INTERNAL_TOPICS
from ottla.broker.log.log import Log
from ottla.broker.log.time_search import Steps, TimedOffset
from ottla.broker.replication.replicas import Partition
from ottla.broker.replication.time_steps import steps_in
from ottla.broker.telemetry.shown import shown
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.offsets import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

AskedPartition = ListOffsetsRequest.ListOffsetsPartition
PartitionAnswer = ListOffsetsResponse.ListOffsetsPartitionResponse
EpochAnswer = OffsetForLeaderEpochResponse.EpochEndOffset
DeleteAnswer = DeleteRecordsResponse.DeleteRecordsPartitionResult

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

SINCE_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

EPOCHS_SINCE_VERSION = 4
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
CONSUMER_REPLICA_ID = -1
NO_TIMESTAMP = -1
NO_EPOCH = -1
TO_HIGH_WATERMARK = -1

BY_TIME: TimedOffset = (-1, NO_TIMESTAMP, NO_EPOCH)
"""In place of an answer: the records have to be asked."""

Timed = tuple[str, AskedPartition, PartitionAnswer]


def handle_list_offsets(
    session: Session, request: ListOffsetsRequest, version: int
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    """The offset for each asked timestamp; what is not found is -1 without an error. A partition
    that is asked more than once is answered once, with an error: which answer would count?"""
    response = ListOffsetsResponse()
    repeated = _repeated(request)
    told: set[tuple[str, int]] = set()
    timed: list[Timed] | None = None
    for topic in request.topics:
        answers: list[PartitionAnswer] = []
        for asked in topic.partitions:
            key = topic.name, asked.partition_index
            if key in told:
                continue
            answer = PartitionAnswer(asked.partition_index)
            answers.append(answer)
            try:
                if key in repeated:
                    told.add(key)
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                found = _list_offset(session.rooms, request, topic.name, asked, version)
            except KafkaError as error:
                answer.error_code = int(error.code)
                continue
            if found is BY_TIME:
                timed = [] if timed is None else timed
                timed.append((topic.name, asked, answer))
            elif found is not None:
                _fill(answer, found, version)
        if answers:
            named = ListOffsetsResponse.ListOffsetsTopicResponse(topic.name, answers)
            response.topics.append(named)
    if timed is not None:
        steps = _look_up(session.rooms, request, version, timed)
        following = session.rooms.lookups.follow(steps)
        if following is not None:
            return _when_done(following, response)
    return response


async def _when_done(
    following: Awaitable[None], response: ListOffsetsResponse
) -> ListOffsetsResponse:
    await following
    return response


def handle_offset_for_leader_epoch(
    session: Session, request: OffsetForLeaderEpochRequest, version: int
) -> OffsetForLeaderEpochResponse:
    """Where the asked epoch, or the largest before it, ends; by it consumers notice a lost tail."""
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        answers: list[EpochAnswer] = []
        response.topics.append(
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic.topic, answers)
        )
        for asked in topic.partitions:
            answer = EpochAnswer(partition=asked.partition)
            answers.append(answer)
            try:
                partition = led_partition(
                    session.rooms,
                    topic.topic,
                    asked.partition,
                    current_leader_epoch=asked.current_leader_epoch,
                )
            except KafkaError as error:
                answer.error_code = int(error.code)
                continue
            answer.leader_epoch, answer.end_offset = partition.log.end_offset_for_epoch(
                asked.leader_epoch
            )
    return response


def handle_delete_records(
    session: Session, request: DeleteRecordsRequest, version: int
) -> DeleteRecordsResponse:
    """Moves the log start of each partition up; the low watermark is where it stands then."""
    response = DeleteRecordsResponse()
    for topic in request.topics:
        answers: list[DeleteAnswer] = []
        moved: list[str] = []
        response.topics.append(DeleteRecordsResponse.DeleteRecordsTopicResult(topic.name, answers))
        for asked in topic.partitions:
            answer = DeleteAnswer(asked.partition_index, low_watermark=-1)
            answers.append(answer)
            try:
                before, answer.low_watermark = _delete_records(
                    session.rooms, topic.name, asked.partition_index, asked.offset
                )
            except KafkaError as error:
                answer.error_code = int(error.code)
                continue
            if answer.low_watermark > before:
                moved.append(f"{asked.partition_index}: {before} to {answer.low_watermark}")
        if moved:
            session.rooms.events.info(
                "records_deleted", topic=topic.name, starts=shown(moved), **session.asker
            )
    return response


def _repeated(request: ListOffsetsRequest) -> set[tuple[str, int]]:
    """The partitions that are asked more than once."""
    if len(request.topics) == 1 and len(request.topics[0].partitions) == 1:
        return set()
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    for topic in request.topics:
        for asked in topic.partitions:
            key = (topic.name, asked.partition_index)
            (repeated if key in seen else seen).add(key)
    return repeated


def _list_offset(
    rooms: Rooms, request: ListOffsetsRequest, topic: str, asked: AskedPartition, version: int
) -> TimedOffset | None:
    timestamp = asked.timestamp
    if timestamp < 0 and version < SINCE_VERSION.get(timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    partition = led_partition(
        rooms, topic, asked.partition_index, current_leader_epoch=asked.current_leader_epoch
    )
    log = partition.log
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.log_start_offset, NO_TIMESTAMP, log.epochs.epoch_of(log.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return None
    fetchable_end = _fetchable_end(log, request)
    if timestamp == LATEST:
        return fetchable_end, NO_TIMESTAMP, partition.leader_epoch
    return BY_TIME


def _fill(answer: PartitionAnswer, found: TimedOffset, version: int) -> None:
    answer.offset, answer.timestamp, epoch = found
    answer.leader_epoch = epoch if version >= EPOCHS_SINCE_VERSION else NO_EPOCH


def _look_up(rooms: Rooms, request: ListOffsetsRequest, version: int, timed: list[Timed]) -> Steps:
    """Fills the answers in, one after another; finds nothing itself."""
    for topic, asked, answer in timed:
        try:
            found = yield from _find(rooms, request, topic, asked)
        except KafkaError as error:
            answer.error_code = int(error.code)
        except OSError as error:
            answer.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)
            index, reason = asked.partition_index, str(error)
            rooms.events.error("times_not_read", topic=topic, partition=index, reason=reason)
        else:
            if found is not None:
                _fill(answer, found, version)
        yield None
    return None


def _find(rooms: Rooms, request: ListOffsetsRequest, topic: str, asked: AskedPartition) -> Steps:
    def led() -> Partition:
        return led_partition(
            rooms, topic, asked.partition_index, current_leader_epoch=asked.current_leader_epoch
        )

    def begin(log: Log) -> Steps:
        if asked.timestamp == MAX_TIMESTAMP:
            return log.steps_to_max_timestamp()
        return log.steps_to_timestamp(asked.timestamp)

    found = yield from steps_in(led, begin)
    is_fetchable = found is not None and found[0] < _fetchable_end(led().log, request)
    return found if is_fetchable else None


def _fetchable_end(log: Log, request: ListOffsetsRequest) -> int:
    if request.replica_id != CONSUMER_REPLICA_ID:
        return log.log_end_offset
    if request.isolation_level == READ_COMMITTED:
        return log.last_stable_offset
    return log.high_watermark


def _delete_records(rooms: Rooms, topic: str, index: int, offset: int) -> tuple[int, int]:
    """The log start before and behind it."""
    log = led_partition(rooms, topic, index).log
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if log.config.cleanup_policy == {"compact"}:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    if offset == TO_HIGH_WATERMARK:
        offset = log.high_watermark
    if not 0 <= offset <= log.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return log.log_start_offset, log.delete_records(offset)
