"""The share coordinator of one broker (KIP-932): the shards of __share_group_state, which remember
for each group and partition what was acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from ottla.broker.coordinator.history import History
from ottla.broker.coordinator.runtime import Coordinator, Spawn
from ottla.broker.coordinator.share.records import SHARE_RECORDS
from ottla.broker.coordinator.share.shard import ShareShard
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.ports import Clock, Events
from ottla.broker.replication.replicas import Replicas
from ottla.config.broker import BrokerConfig
from ottla.protocol.errors import ErrorCode

SHARE_GROUP_STATE = "__share_group_state"

ShareCoordinator = Coordinator[ShareShard]


def make_share_coordinator(
    *,
    config: Callable[[], BrokerConfig],
    image: Callable[[], MetadataImage],
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    events: Events,
    history: History,
    replicas: Replicas,
    workers: Executor,
    spawn: Spawn,
) -> ShareCoordinator:
    """`config` and `image` are asked whenever they matter, for both change."""

    def partition_count_of(topic_id: bytes) -> int | None:
        topic = image().topics.by_id.get(topic_id)
        return None if topic is None else len(topic.partitions)

    def updates_per_snapshot() -> int:
        return config().share_coordinator_snapshot_update_records_per_snapshot

    return Coordinator(
        SHARE_GROUP_STATE,
        SHARE_RECORDS,
        loop=loop,
        clock=clock,
        events=events,
        history=history,
        replicas=replicas,
        workers=workers,
        spawn=spawn,
        make_shard=lambda: ShareShard(
            updates_per_snapshot=updates_per_snapshot, partition_count_of=partition_count_of
        ),
        refuse=_refused,
        commit_timeout_ms=lambda: config().share_coordinator_write_timeout_ms,
    )


def snapshot_cold(coordinator: ShareCoordinator, interval_ms: int) -> None:
    """A periodic job: what had no snapshot for so long gets one."""
    for runner, shard in coordinator.loaded():
        runner.perform(shard.snapshot_cold(interval_ms, runner.now()))


def _refused(response: Any, code: ErrorCode) -> Any:
    refused = type(response)(response.partition)
    refused.error_code = int(code)
    return refused
