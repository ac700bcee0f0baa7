"""The state of share partitions, as the brokers of a cluster ask for it: InitializeShareGroupState,
ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState, ReadShareGroupStateSummary.

The rules are those of `broker.coordinator.share`. A request may name partitions that belong to
several shards; each answers for its own. What names nothing is answered with nothing, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ottla.broker.coordinator.outcome import Moment, Outcome, Reply
from ottla.broker.coordinator.share.shard import ShareShard
from ottla.broker.coordinator.share.state import FIRST_EPOCH, NO_EPOCH, SharePartitionKey
from ottla.broker.handlers.answers import Pending
from ottla.broker.handlers.context import Rooms, Session
from ottla.broker.handlers.groups import Gathering
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.share_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)

R = TypeVar("R")
Command = Callable[[ShareShard, SharePartitionKey, Any, Reply, Moment], Outcome]
"""What is asked of the shard of one partition; the third is the request's part for it."""


def handle_initialize_share_group_state(
    session: Session, request: InitializeShareGroupStateRequest, version: int
) -> InitializeShareGroupStateResponse | Pending:
    def initialize(
        shard: ShareShard, key: SharePartitionKey, asked: Any, reply: Reply, now: Moment
    ) -> Outcome:
        leader_epoch = epoch_of_start(session.rooms, key, asked.start_offset)
        return shard.initialize(key, asked, reply, now, leader_epoch)

    response = InitializeShareGroupStateResponse
    return _serve(session, request, response, response.InitializeStateResult, initialize)


def handle_read_share_group_state(
    session: Session, request: ReadShareGroupStateRequest, version: int
) -> ReadShareGroupStateResponse | Pending:
    response = ReadShareGroupStateResponse
    return _serve(session, request, response, response.ReadStateResult, ShareShard.read)


def handle_write_share_group_state(
    session: Session, request: WriteShareGroupStateRequest, version: int
) -> WriteShareGroupStateResponse | Pending:
    response = WriteShareGroupStateResponse
    return _serve(session, request, response, response.WriteStateResult, ShareShard.write)


def handle_delete_share_group_state(
    session: Session, request: DeleteShareGroupStateRequest, version: int
) -> DeleteShareGroupStateResponse | Pending:
    def delete(
        shard: ShareShard, key: SharePartitionKey, asked: Any, reply: Reply, now: Moment
    ) -> Outcome:
        return shard.delete(key, reply, now)

    response = DeleteShareGroupStateResponse
    return _serve(session, request, response, response.DeleteStateResult, delete)


def handle_read_share_group_state_summary(
    session: Session, request: ReadShareGroupStateSummaryRequest, version: int
) -> ReadShareGroupStateSummaryResponse | Pending:
    def summarize(
        shard: ShareShard, key: SharePartitionKey, asked: Any, reply: Reply, now: Moment
    ) -> Outcome:
        return shard.summarize(key, reply, now)

    response = ReadShareGroupStateSummaryResponse
    return _serve(session, request, response, response.ReadStateSummaryResult, summarize)


def epoch_of_start(rooms: Rooms, key: SharePartitionKey, start_offset: int) -> int:
    """The leader epoch that a state which begins there is of; NO_EPOCH if the log has yet to reach
    it. The log may be led elsewhere just now: then its end is not known."""
    led = rooms.replicas.by_id(key.topic_id, key.partition)
    if led is not None:
        return NO_EPOCH if start_offset > led.log.log_end_offset else led.leader_epoch
    topic = rooms.image.topics.by_id.get(key.topic_id)
    known = None if topic is None else topic.partitions.get(key.partition)
    return FIRST_EPOCH if known is None else known.leader_epoch


def _serve(
    session: Session,
    request: Any,
    response_class: Callable[..., R],
    topic_class: Any,
    command: Command,
) -> R | Pending:
    """Asks each partition's shard, and gathers the answers by topic in the order asked."""
    asked = [(topic.topic_id, part) for topic in request.topics for part in topic.partitions]
    if not request.group_id or not all(topic.partitions for topic in request.topics) or not asked:
        return response_class()

    def make(results: list[Any]) -> R:
        coming = iter(results)
        topics = [
            topic_class(topic.topic_id, [next(coming) for _ in topic.partitions])
            for topic in request.topics
        ]
        return response_class(topics)

    gathering = Gathering(len(asked), make)
    for index, (topic_id, partition) in enumerate(asked):
        key = SharePartitionKey(request.group_id, topic_id, partition.partition)
        part = gathering.part(index)
        try:
            runner, shard = session.rooms.share_state.runner(key.placed_by)
        except KafkaError as error:
            part.complete(_refused(response_class, key.partition, error))
            continue
        runner.perform(command(shard, key, partition, part, runner.now()))
    return gathering


def _refused(response_class: Any, partition: int, error: KafkaError) -> Any:
    result = response_class.PartitionResult(partition)
    result.error_code = int(error.code)
    result.error_message = error.message
    return result
