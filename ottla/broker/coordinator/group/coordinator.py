"""The group coordinator of one broker: the shards of __consumer_offsets, and what they go by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from ottla.broker.coordinator.group.refusals import refused, shown
from ottla.broker.coordinator.group.settings import LiveSettings
from ottla.broker.coordinator.group.shard import GroupShard
from ottla.broker.coordinator.history import History
from ottla.broker.coordinator.records import GROUP_RECORDS
from ottla.broker.coordinator.runtime import Coordinator, Spawn
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.ports import Clock, Events, Rng
from ottla.broker.replication.replicas import Replicas
from ottla.config.broker import BrokerConfig

CONSUMER_OFFSETS = "__consumer_offsets"

GroupCoordinator = Coordinator[GroupShard]


def make_group_coordinator(
    *,
    config: Callable[[], BrokerConfig],
    image: Callable[[], MetadataImage],
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    events: Events,
    rng: Rng,
    replicas: Replicas,
    workers: Executor,
    spawn: Spawn,
) -> GroupCoordinator:
    """`config` and `image` are asked whenever they matter, for both change."""
    settings = LiveSettings(config)

    def topic_id_of(name: str) -> bytes | None:
        topic = image().topics.by_name.get(name)
        return None if topic is None else topic.topic_id

    return Coordinator(
        CONSUMER_OFFSETS,
        GROUP_RECORDS,
        loop=loop,
        clock=clock,
        events=events,
        history=History(clock, events),
        replicas=replicas,
        workers=workers,
        spawn=spawn,
        make_shard=lambda: GroupShard(settings=settings, topic_id_of=topic_id_of, rng=rng),
        refuse=lambda response, code: refused(response, shown(code)),
        commit_timeout_ms=lambda: config().offsets_commit_timeout_ms,
    )
