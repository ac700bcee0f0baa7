"""The uniform assignor: as many partitions for one as for another, and as few changes as possible.

Where all members subscribe to the same topics nobody has more than one partition more than anybody
else. Where they do not, partitions move from one who has more to one who has at least two fewer, if
need be by way of others, until no such way is left: there is no better balance then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from heapq import heapify, heapreplace
from itertools import pairwise

from ottla.broker.coordinator.group.modern import Assignment
from ottla.broker.coordinator.group.targets import GroupSpec

Place = tuple[bytes, int]
"""A partition: topic id, index."""


def assign_uniformly(spec: GroupSpec) -> Mapping[str, Assignment]:
    """Sticky and balanced."""
    if not spec.members:
        return {}
    first = next(iter(spec.members.values())).topic_ids
    if all(
        member.topic_ids is first or member.topic_ids == first for member in spec.members.values()
    ):
        return _assign_alike(spec, first)
    return _Balance(spec).assignments()


def _assign_alike(spec: GroupSpec, topic_ids: frozenset[bytes]) -> Mapping[str, Assignment]:
    """Everybody may have every partition: keep what fits, then deal out what is left."""
    partitions = {one: spec.partitions[one] for one in sorted(topic_ids)}
    total = sum(map(len, partitions.values()))
    quota, extra_count = divmod(total, len(spec.members))
    held, taken = _held(spec)
    # Who has more than the quota keeps one of it, as far as that goes: one move less each.
    order = sorted(spec.members, key=lambda name: -len(held[name]))
    limits = {name: quota + (place < extra_count) for place, name in enumerate(order)}
    for name, places in held.items():
        taken.difference_update(places[limits[name] :])
        del places[limits[name] :]
    free = deque(
        (topic_id, index)
        for topic_id, indexes in partitions.items()
        for index in indexes
        if (topic_id, index) not in taken
    )
    hungry = deque(name for name in spec.members if len(held[name]) < limits[name])
    while free:
        name = hungry.popleft()
        held[name].append(free.popleft())
        if len(held[name]) < limits[name]:
            hungry.append(name)
    return {name: _assignment(places) for name, places in held.items()}


class _Balance:
    """Members that want different topics."""

    def __init__(self, spec: GroupSpec) -> None:
        held, taken = _held(spec)
        self._held = {name: dict.fromkeys(places) for name, places in held.items()}
        self._former = {name: frozenset(places) for name, places in held.items()}
        self._subscribers: dict[bytes, dict[str, None]] = {}
        for name, member in spec.members.items():
            for topic_id in member.topic_ids:
                self._subscribers.setdefault(topic_id, {})[name] = None
        self._deal_out(spec, taken)
        while self._even_out():
            pass

    def assignments(self) -> Mapping[str, Assignment]:
        return {name: _assignment(list(places)) for name, places in self._held.items()}

    def _deal_out(self, spec: GroupSpec, taken: set[Place]) -> None:
        """What nobody has goes to those who have least; topics that few want come first."""
        order = sorted(self._subscribers, key=lambda one: (len(self._subscribers[one]), one))
        for topic_id in order:
            loads = [
                (self._load(name), place, name)
                for place, name in enumerate(self._subscribers[topic_id])
            ]
            heapify(loads)
            for index in spec.partitions[topic_id]:
                if (topic_id, index) not in taken:
                    load, place, name = loads[0]
                    self._held[name][topic_id, index] = None
                    heapreplace(loads, (load + 1, place, name))

    def _load(self, name: str) -> int:
        return len(self._held[name])

    def _even_out(self) -> bool:
        """Moves partitions away from each member, as long as it has two more than somebody whom
        they can reach, those who have most first; whether any moved."""
        moved = False
        done: set[str] = set()
        least = min(map(len, self._held.values()))
        for name in sorted(self._held, key=self._load, reverse=True):
            while name not in done and self._load(name) - 2 >= least:
                way, reached = self._way_down(name)
                for giver, taker in pairwise(way):
                    self._move(giver, taker)
                moved = moved or bool(way)
                if not way:
                    # Who has no more than this one reaches nobody else, and so nobody with less.
                    done.update(reached)
        return moved

    def _way_down(self, name: str) -> tuple[list[str], Iterable[str]]:
        """The shortest way from a member to one with at least two partitions fewer, each of whom
        can give a partition to the next, or none; and whom the search has reached."""
        enough = self._load(name) - 2
        came_from: dict[str, str] = {name: name}
        seen_topics: set[bytes] = set()
        waiting = deque([name])
        while waiting:
            giver = waiting.popleft()
            for topic_id in dict.fromkeys(topic_id for topic_id, _ in self._held[giver]):
                if topic_id in seen_topics:
                    continue
                seen_topics.add(topic_id)
                for taker in self._subscribers[topic_id]:
                    if taker in came_from:
                        continue
                    came_from[taker] = giver
                    if self._load(taker) <= enough:
                        return _unwound(came_from, name, taker), came_from
                    waiting.append(taker)
        return [], came_from

    def _move(self, giver: str, taker: str) -> None:
        """One partition goes; rather one that the giver has not had before, or the taker has."""
        wanted = [place for place in self._held[giver] if taker in self._subscribers[place[0]]]
        former, takers = self._former[giver], self._former[taker]
        place = min(wanted, key=lambda one: (one not in takers, one in former))
        del self._held[giver][place]
        self._held[taker][place] = None


def _held(spec: GroupSpec) -> tuple[dict[str, list[Place]], set[Place]]:
    """What each member has and may keep, and all of it together."""
    taken: set[Place] = set()
    there = {topic_id: frozenset(indexes) for topic_id, indexes in spec.partitions.items()}
    held: dict[str, list[Place]] = {}
    for name, member in spec.members.items():
        places = held[name] = []
        for topic_id, indexes in member.assigned.items():
            if topic_id not in member.topic_ids:
                continue
            for index in sorted(indexes & there[topic_id]):
                place = (topic_id, index)
                if place not in taken:
                    taken.add(place)
                    places.append(place)
    return held, taken


def _unwound(came_from: dict[str, str], start: str, end: str) -> list[str]:
    way = [end]
    while way[-1] != start:
        way.append(came_from[way[-1]])
    way.reverse()
    return way


def _assignment(places: list[Place]) -> Assignment:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, index in places:
        by_topic.setdefault(topic_id, []).append(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in by_topic.items()}
