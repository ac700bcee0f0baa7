"""The state of share partitions, read and written through the share coordinator.

The coordinator of every share partition is this broker, for there is no other: requests go straight
to its shards. Errors are what the partition's leader makes of them, in Kafka's translation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ottla.broker.coordinator.runtime import Runner
from ottla.broker.coordinator.share.batches import StateBatch
from ottla.broker.coordinator.share.coordinator import ShareCoordinator
from ottla.broker.coordinator.share.shard import ShareShard
from ottla.broker.coordinator.share.state import SharePartitionKey
from ottla.broker.replication.replicas import Partition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.share_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    WriteShareGroupStateRequest,
)
from ottla.protocol.wire import INT32_MAX

RETRY_AFTER_S = 0.1
RETRIES_MAX = 50
"""While a coordinator is not there or loads: five seconds, after which whoever fetches is told."""
_PASSING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)

_SHOWN: dict[ErrorCode, ErrorCode] = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
FENCING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors after which what is known of a share partition is not true any more."""

State = ReadShareGroupStateResponse.PartitionResult
Done = Callable[[KafkaError | None], None]
Loaded = Callable[[State | KafkaError], None]


class _Reply:
    """Translates one answer, and hands it on."""

    __slots__ = ("_then",)

    def __init__(self, then: Callable[[Any, KafkaError | None], None]) -> None:
        self._then = then

    def complete(self, response: Any) -> None:
        error = None
        if response.error_code:
            error = shown(KafkaError(ErrorCode(response.error_code), response.error_message))
        self._then(response, error)


class ShareStore:
    """Reads and writes one share partition at a time; everything runs on the loop."""

    __slots__ = ("_coordinator", "_loop")

    def __init__(self, coordinator: ShareCoordinator, loop: asyncio.AbstractEventLoop) -> None:
        self._coordinator = coordinator
        self._loop = loop

    def read(
        self, key: SharePartitionKey, partition: Partition, then: Loaded, tries: int = 0
    ) -> None:
        """The state, for who leads the partition now; earlier leaders are fenced from now on."""
        try:
            runner, shard = self._find(key)
        except KafkaError as error:
            if error.code in _PASSING and tries < RETRIES_MAX:
                self._loop.call_later(RETRY_AFTER_S, self.read, key, partition, then, tries + 1)
            else:
                then(shown(error))
            return
        request = ReadShareGroupStateRequest.PartitionData(key.partition, partition.leader_epoch)
        reply = _Reply(lambda response, error: then(response if error is None else error))
        runner.perform(shard.read(key, request, reply, runner.now(), partition.log))

    def write(
        self,
        key: SharePartitionKey,
        batches: Sequence[StateBatch],
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        settled_count: int,
        then: Done,
    ) -> None:
        """Calls `then` when it is durable, or with the reason why it may not be."""
        try:
            runner, shard = self._coordinator.runner_with_room(key.placed_by)
        except KafkaError as error:
            then(shown(error))
            return
        request = WriteShareGroupStateRequest.PartitionData(
            key.partition,
            state_epoch,
            leader_epoch,
            start_offset,
            min(settled_count, INT32_MAX),
            [WriteShareGroupStateRequest.StateBatch(*batch) for batch in batches],
        )
        reply = _Reply(lambda _, error: then(error))
        runner.perform(shard.write(key, request, reply, runner.now()))

    def _find(self, key: SharePartitionKey) -> tuple[Runner[ShareShard], ShareShard]:
        return self._coordinator.runner(key.placed_by)


def shown(error: KafkaError) -> KafkaError:
    """What a member is told of it."""
    return KafkaError(_SHOWN.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR), error.message)
