"""How far groups are behind: the high watermark less what they have committed, by partition.

Everybody who runs consumers watches this, so there is a line for each committed offset, though
anybody may name a group: a group's offsets end with it (offsets.retention.minutes). Shown are the
groups that this broker coordinates, and of their partitions those that it leads, for of others it
knows no end. All is looked up when the page is asked for, in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.broker.coordinator.group.offsets import CommittedOffset
from ottla.broker.handlers.context import Rooms
from ottla.broker.telemetry.metrics import Registry, Sample

OFFSETS_PER_TURN = 100
"""Looked at before others get the loop: 0.6 ms with their lines, of which each takes 6 us."""


class _Committed(NamedTuple):
    group_id: str
    topic: str
    partition: int
    offset: CommittedOffset


def watch_lag(registry: Registry, rooms: Rooms) -> None:
    """Registers the lag of groups that commit offsets, whatever their protocol."""
    registry.watch(
        "ottla_group_lag",
        "High watermark less the offset that a group has committed, by partition. Below 0 the log"
        " has lost its end.",
        lambda: _lags(rooms),
    )


def _lags(rooms: Rooms) -> Iterator[Sample | None]:
    left = OFFSETS_PER_TURN
    for group_id, topic, index, committed in _all_committed(rooms):
        left -= 1
        if left == 0:
            left = OFFSETS_PER_TURN
            yield None
        led = rooms.replicas.get(topic, index)
        if led is not None and not committed.is_of_former_topic(led.topic_id):
            labels = {"group": group_id, "topic": topic, "partition": str(index)}
            yield labels, led.log.high_watermark - committed.offset


def _all_committed(rooms: Rooms) -> Iterator[_Committed]:
    """Copies what it goes through, for groups and offsets come and go in a pause."""
    for _, shard in rooms.groups.loaded():
        offsets = shard.offsets
        for group_id in list(offsets.groups()):
            for topic, partitions in list(offsets.of_group(group_id).items()):
                for index, committed in list(partitions.items()):
                    yield _Committed(group_id, topic, index, committed)
