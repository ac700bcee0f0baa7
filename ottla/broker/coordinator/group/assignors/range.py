"""The range assignor: each topic's partitions in one row, cut into a piece for each subscriber.

Topics with as many partitions and the same subscribers are cut alike, so that one member has the
same partitions of all of them (co-partitioning). Static members stand first, by their instance ids,
so that they have after a restart what they had before.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.coordinator.group.modern import Assignment
from ottla.broker.coordinator.group.targets import GroupSpec


def assign_ranges(spec: GroupSpec) -> Mapping[str, Assignment]:
    """Each topic by itself; its first members get the partitions that are left over."""
    members = spec.members
    order = sorted(members, key=lambda name: _place(name, members[name].instance_id))
    subscribers: dict[bytes, list[str]] = {}
    for name in order:
        for topic_id in members[name].topic_ids:
            subscribers.setdefault(topic_id, []).append(name)
    assigned: dict[str, dict[bytes, frozenset[int]]] = {name: {} for name in order}
    for topic_id, names in subscribers.items():
        partitions = spec.partitions[topic_id]
        size, left_over = divmod(len(partitions), len(names))
        start = 0
        for position, name in enumerate(names):
            end = start + size + (position < left_over)
            if end > start:
                assigned[name][topic_id] = frozenset(partitions[start:end])
            start = end
    return assigned


def _place(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    return (True, member_id) if instance_id is None else (False, instance_id)
