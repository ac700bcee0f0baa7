"""The transaction coordinator of one broker: the shards of __transaction_state, and what they go
by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from ottla.broker.coordinator.group.coordinator import GroupCoordinator
from ottla.broker.coordinator.group.refusals import shown
from ottla.broker.coordinator.history import History
from ottla.broker.coordinator.runtime import Coordinator, Spawn
from ottla.broker.coordinator.transaction.markers import Markers
from ottla.broker.coordinator.transaction.records import transaction_records
from ottla.broker.coordinator.transaction.shard import (
    Described,
    Enlisted,
    MarkersDue,
    TransactionSettings,
    TransactionShard,
    init_refused,
)
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.metadata.records import TRANSACTION_VERSION
from ottla.broker.ports import Clock, Events
from ottla.broker.replication.replicas import Replicas
from ottla.config.broker import BrokerConfig
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.producer_ids import InitProducerIdResponse
from ottla.protocol.messages.transactions import EndTxnResponse

TRANSACTION_STATE = "__transaction_state"
COMMIT_TIMEOUT_MS = 30_000
"""A write that takes longer is answered COORDINATOR_NOT_AVAILABLE, and may still come to be. Kafka
waits for the timeout of the transaction that it is for."""


class TransactionCoordinator(Coordinator[TransactionShard]):
    """The shards of __transaction_state that this broker leads."""

    markers: Markers

    def send_markers(self, shard: TransactionShard, due: MarkersDue) -> None:
        """A decision is durable. If another shard is in the place of the one that has taken it, it
        has read the decision, and has the markers written itself. The id alone does not say where
        it is: the topic may have got more partitions since."""
        runner = next((runner for runner, one in self.loaded() if one is shard), None)
        if runner is None:
            return

        def is_wanted() -> bool:
            return runner.shard is shard

        def done() -> None:
            if is_wanted():
                runner.perform(shard.markers_written(due, runner.now()))

        self.markers.send(due, runner.leader_epoch, is_wanted, done)

    def close(self) -> None:
        self.markers.close()
        super().close()


def make_transaction_coordinator(
    *,
    config: Callable[[], BrokerConfig],
    image: Callable[[], MetadataImage],
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    events: Events,
    replicas: Replicas,
    workers: Executor,
    spawn: Spawn,
    groups: GroupCoordinator,
    take_producer_id: Callable[[], int],
) -> TransactionCoordinator:
    """`config` and `image` are asked whenever they matter, for both change."""

    def version() -> int:
        return image().features.get(TRANSACTION_VERSION, 0)

    def settings() -> TransactionSettings:
        now = config()
        return TransactionSettings(
            now.transactional_id_expiration_ms,
            now.add_partitions_to_txn_retry_backoff_max_ms,
            version(),
        )

    def make_shard() -> TransactionShard:
        return TransactionShard(
            settings=settings,
            take_producer_id=take_producer_id,
            send_markers=lambda shard, due: coordinator.send_markers(shard, due),
        )

    coordinator = TransactionCoordinator(
        TRANSACTION_STATE,
        transaction_records(version),
        loop=loop,
        clock=clock,
        events=events,
        history=History(events, of="transactional_id"),
        replicas=replicas,
        workers=workers,
        spawn=spawn,
        make_shard=make_shard,
        refuse=_refused,
        commit_timeout_ms=lambda: COMMIT_TIMEOUT_MS,
    )
    coordinator.markers = Markers(
        loop=loop, clock=clock, events=events, replicas=replicas, groups=groups, image=image
    )
    return coordinator


def _refused(response: Any, code: ErrorCode) -> Any:
    code = shown(code)
    match response:
        case Enlisted():
            return Enlisted([code] * len(response.codes))
        case InitProducerIdResponse():
            return init_refused(code)
        case Described():
            return Described(error_code=int(code), transactional_id=response.transactional_id)
        case _:
            return EndTxnResponse(error_code=int(code))
