"""The assignor of share groups, `simple`: whoever subscribes to a topic gets an even part of it.

Partitions are shared, so with more members than partitions several members have the same one, and
with more partitions than members each member has several. What a member has had it keeps, as far as
that is even. Topics with the same subscribers are dealt out together.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from ottla.broker.coordinator.group.modern import Assignment
from ottla.broker.coordinator.group.targets import GroupSpec

SIMPLE = "simple"

Item = TypeVar("Item", bound=Hashable)
B = TypeVar("B", bound=Hashable)
Place = tuple[bytes, int]


def assign_simply(spec: GroupSpec) -> Mapping[str, Assignment]:
    dealt: dict[str, dict[bytes, set[int]]] = {}
    for members, topic_ids in _by_subscribers(spec):
        places = [
            (topic_id, index) for topic_id in topic_ids for index in spec.partitions[topic_id]
        ]
        had = {
            member: {
                (topic_id, index)
                for topic_id in topic_ids
                for index in spec.members[member].assigned.get(topic_id, ())
            }
            for member in members
        }
        for member, (topic_id, index) in _deal(members, places, had):
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
    members: Sequence[str], places: Sequence[Place], had: Mapping[str, set[Place]]
) -> list[tuple[str, Place]]:
    if len(places) >= len(members):
        kept = {place: member for member in members for place in sorted(had[member])}
        return [(member, place) for place, member in _spread(places, members, kept).items()]
    before = {member: place for member in members for place in sorted(had[member])[:1]}
    return list(_spread(members, places, before).items())


def _spread(items: Sequence[Item], bins: Sequence[B], kept: Mapping[Item, B]) -> dict[Item, B]:
    """Each item in one bin, so that no bin has two more than another; an item stays where it was
    if it can. There are at least as many items as bins."""
    least, larger = divmod(len(items), len(bins))
    counts = dict.fromkeys(bins, 0)
    placed: dict[Item, B] = {}
    for room in (least, least + 1):
        for item in items:
            where = kept.get(item)
            if item in placed or where is None or counts.get(where, room) >= room:
                continue
            if room > least:
                if not larger:
                    break
                larger -= 1
            counts[where] += 1
            placed[item] = where
    free = [item for item in items if item not in placed]
    open_bins = _open(bins, counts, least)
    for item in free:
        placed[item] = next(open_bins)
    return placed


def _open(bins: Sequence[B], counts: dict[B, int], least: int) -> Iterator[B]:
    """The bins in which an item more can go, those with the fewest first."""
    for room in (least, least + 1):
        for one in bins:
            while counts[one] < room:
                counts[one] += 1
                yield one
