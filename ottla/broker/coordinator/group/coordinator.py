"""The group coordinator of one broker: the shards of __consumer_offsets, and what they go by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor

from ottla.broker.coordinator.group.refusals import refused, shown
from ottla.broker.coordinator.group.settings import LiveSettings
from ottla.broker.coordinator.group.shard import GroupShard
from ottla.broker.coordinator.group.topics import ImageTopics
from ottla.broker.coordinator.history import History
from ottla.broker.coordinator.records import GROUP_RECORDS
from ottla.broker.coordinator.runtime import Coordinator, Spawn
from ottla.broker.metadata.delta import Delta
from ottla.broker.metadata.image import GROUP_RESOURCE, MetadataImage
from ottla.broker.ports import Clock, Events, Rng
from ottla.broker.replication.replicas import Replicas
from ottla.config.broker import BrokerConfig

CONSUMER_OFFSETS = "__consumer_offsets"


class GroupCoordinator(Coordinator[GroupShard]):
    """The shards of __consumer_offsets that this broker leads; they have the `topics` in common."""

    topics: ImageTopics

    def published(self, delta: Delta, image: MetadataImage) -> None:
        super().published(delta, image)
        names = {topic.name for topic in delta.deleted_topics.values()}
        known = image.topics.by_id
        names.update(known[one].name for one in delta.changed_partitions if one in known)
        if names:
            self.topics.forget(names)
            any_new = any(one not in delta.base.topics.by_id for one in delta.changed_partitions)
            for _, shard in self.loaded():
                shard.topics_changed(names, any_new=any_new)


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
    topics = ImageTopics(image)

    def group_config(group_id: str) -> Mapping[str, str]:
        return image().configs.get(GROUP_RESOURCE, group_id)

    coordinator = GroupCoordinator(
        CONSUMER_OFFSETS,
        GROUP_RECORDS,
        loop=loop,
        clock=clock,
        events=events,
        history=History(events),
        replicas=replicas,
        workers=workers,
        spawn=spawn,
        make_shard=lambda: GroupShard(
            settings=settings,
            topics=topics,
            group_config=group_config,
            rng=rng,
        ),
        refuse=lambda response, code: refused(response, shown(code)),
        commit_timeout_ms=lambda: config().offsets_commit_timeout_ms,
    )
    coordinator.topics = topics
    return coordinator
