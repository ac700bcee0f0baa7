"""The state of share partitions, as the brokers of a cluster ask for it: InitializeShareGroupState,
ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState, ReadShareGroupStateSummary.

The rules are those of `broker.coordinator.share`. A request may name partitions that belong to
several shards; each answers for its own. What names nothing is answered with nothing, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ottla.broker.coordinator.runtime import Runner
from ottla.broker.coordinator.share.shard import ShareShard
from ottla.broker.coordinator.share.state import SharePartitionKey
from ottla.broker.handlers.answers import Pending
from ottla.broker.handlers.context import Session
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
Ask = Callable[[Runner[ShareShard], ShareShard, SharePartitionKey, Any, Any], None]


def handle_initialize_share_group_state(
    session: Session, request: InitializeShareGroupStateRequest, version: int
) -> InitializeShareGroupStateResponse | Pending:
    def ask(
        runner: Runner[ShareShard],
        shard: ShareShard,
        key: SharePartitionKey,
        asked: InitializeShareGroupStateRequest.PartitionData,
        part: Any,
    ) -> None:
        runner.perform(shard.initialize(key, asked, part, runner.now()))

    response = InitializeShareGroupStateResponse
    return _serve(session, request, response, response.InitializeStateResult, ask)


def handle_read_share_group_state(
    session: Session, request: ReadShareGroupStateRequest, version: int
) -> ReadShareGroupStateResponse | Pending:
    def ask(
        runner: Runner[ShareShard],
        shard: ShareShard,
        key: SharePartitionKey,
        asked: ReadShareGroupStateRequest.PartitionData,
        part: Any,
    ) -> None:
        runner.perform(shard.read(key, asked, part, runner.now()))

    response = ReadShareGroupStateResponse
    return _serve(session, request, response, response.ReadStateResult, ask)


def handle_write_share_group_state(
    session: Session, request: WriteShareGroupStateRequest, version: int
) -> WriteShareGroupStateResponse | Pending:
    def ask(
        runner: Runner[ShareShard],
        shard: ShareShard,
        key: SharePartitionKey,
        asked: WriteShareGroupStateRequest.PartitionData,
        part: Any,
    ) -> None:
        runner.perform(shard.write(key, asked, part, runner.now()))

    response = WriteShareGroupStateResponse
    return _serve(session, request, response, response.WriteStateResult, ask)


def handle_delete_share_group_state(
    session: Session, request: DeleteShareGroupStateRequest, version: int
) -> DeleteShareGroupStateResponse | Pending:
    def ask(
        runner: Runner[ShareShard],
        shard: ShareShard,
        key: SharePartitionKey,
        asked: DeleteShareGroupStateRequest.PartitionData,
        part: Any,
    ) -> None:
        runner.perform(shard.delete(key, part, runner.now()))

    response = DeleteShareGroupStateResponse
    return _serve(session, request, response, response.DeleteStateResult, ask)


def handle_read_share_group_state_summary(
    session: Session, request: ReadShareGroupStateSummaryRequest, version: int
) -> ReadShareGroupStateSummaryResponse | Pending:
    def ask(
        runner: Runner[ShareShard],
        shard: ShareShard,
        key: SharePartitionKey,
        asked: ReadShareGroupStateSummaryRequest.PartitionData,
        part: Any,
    ) -> None:
        runner.perform(shard.summarize(key, part, runner.now()))

    response = ReadShareGroupStateSummaryResponse
    return _serve(session, request, response, response.ReadStateSummaryResult, ask)


def _serve(
    session: Session,
    request: Any,
    response_class: Callable[..., R],
    topic_class: Any,
    ask: Ask,
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
        ask(runner, shard, key, partition, part)
    return gathering


def _refused(response_class: Any, partition: int, error: KafkaError) -> Any:
    result = response_class.PartitionResult(partition)
    result.error_code = int(error.code)
    result.error_message = error.message
    return result
