"""The assignor of share groups, `simple`: whoever subscribes to a topic gets an even part of it.

With at least as many partitions as members each partition has one member. With more members every
partition has as many as it takes to give each member one, so that no partition hangs on a single
member that may be gone without having said so. What a member has had it keeps, as far as that is
even. Topics with the same subscribers are dealt out together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.broker.coordinator.group.modern import Assignment
from ottla.broker.coordinator.group.targets import GroupSpec

SIMPLE = "simple"

Place = tuple[bytes, int]


def assign_simply(spec: GroupSpec) -> Mapping[str, Assignment]:
    dealt: dict[str, dict[bytes, set[int]]] = {}
    for members, topic_ids in _by_subscribers(spec):
        places = [
            (topic_id, index) for topic_id in topic_ids for index in spec.partitions[topic_id]
        ]
        had = {
            member: [
                (topic_id, index)
                for topic_id in topic_ids
                for index in sorted(spec.members[member].assigned.get(topic_id, ()))
            ]
            for member in members
        }
        for member, held in _deal(members, places, had).items():
            for topic_id, index in held:
                dealt.setdefault(member, {}).setdefault(topic_id, set()).add(index)
    return {
        member: {topic_id: frozenset(parts) for topic_id, parts in sorted(topics.items())}
        for member, topics in dealt.items()
    }


def _by_subscribers(spec: GroupSpec) -> list[tuple[list[str], list[bytes]]]:
    """(members, topics) of the topics that have the same subscribers, in a settled order."""
    subscribers: dict[bytes, list[str]] = {}
    for member_id in sorted(spec.members):
        for topic_id in spec.members[member_id].topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    together: dict[tuple[str, ...], list[bytes]] = {}
    for topic_id in sorted(subscribers):
        if spec.partitions.get(topic_id):
            together.setdefault(tuple(subscribers[topic_id]), []).append(topic_id)
    return [(list(members), topic_ids) for members, topic_ids in together.items()]


def _deal(
    members: Sequence[str], places: Sequence[Place], had: Mapping[str, Sequence[Place]]
) -> dict[str, dict[Place, None]]:
    """Every partition to as many members as its share, every member its part or one more."""
    sharing = -(-len(members) // len(places))
    open_slots = dict.fromkeys(places, sharing)
    least, larger = divmod(len(places) * sharing, len(members))
    held: dict[str, dict[Place, None]] = {member: {} for member in members}
    for room in (least, least + 1):
        for member in members:
            for place in had[member]:
                if place in held[member] or not open_slots.get(place):
                    continue
                if len(held[member]) >= room or (room > least and not larger):
                    break
                larger -= room > least
                held[member][place] = None
                open_slots[place] -= 1
    for place in sorted(places, key=lambda one: -open_slots[one]):
        for _ in range(open_slots[place]):
            free = [member for member in members if place not in held[member]]
            held[min(free, key=lambda member: len(held[member]))][place] = None
    return held
