"""The uniform assignor: as many partitions for one as for another, and few changes.

Where all members subscribe to the same topics nobody has more than one partition more than anybody
else, and as few partitions move as can. Where they do not, they move from who has most to who has
least and wants them, one at a time, as long as that is two fewer, in about linear time. Then they
go by way of others, until no such way is left: there is no better balance then, though with fewer
moves it may be had. Each way may take a look at every member and topic, and there may be as many
ways as partitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from itertools import pairwise

from ottla.broker.coordinator.group.assignors.holding import Hand, Peers, Place, Takers
from ottla.broker.coordinator.group.modern import Assignment
from ottla.broker.coordinator.group.targets import GroupSpec


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
        self._names = list(spec.members)
        self._wanted = {name: member.topic_ids for name, member in spec.members.items()}
        self._subscribers: dict[bytes, list[str]] = {}
        for name, topic_ids in self._wanted.items():
            for topic_id in topic_ids:
                self._subscribers.setdefault(topic_id, []).append(name)
        former = {place: name for name, places in held.items() for place in places}
        like = _like(self._subscribers)
        self._hands = {name: Hand(name, former, like) for name in spec.members}
        for name, places in held.items():
            for place in places:
                self._hands[name].put(place)
        self._deal_out(spec, taken)
        self._seats: dict[str, tuple[Peers, int]] = {}
        self._peers: dict[bytes, list[Peers]] = {}
        self._seat()
        self._level()
        while self._even_out():
            pass

    def assignments(self) -> Mapping[str, Assignment]:
        return {name: _assignment(hand) for name, hand in self._hands.items()}

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
                    self._hands[name].put((topic_id, index))
                    heapreplace(loads, (load + 1, place, name))

    def _seat(self) -> None:
        """Each member among those who want the same; of whom one is first comes first."""
        alike: dict[frozenset[bytes], list[int]] = {}
        for rank, name in enumerate(self._names):
            alike.setdefault(self._wanted[name], []).append(rank)
        for topic_ids, ranks in alike.items():
            names = [self._names[rank] for rank in ranks]
            peers = Peers(ranks, [self._load(name) for name in names])
            self._seats.update((name, (peers, index)) for index, name in enumerate(names))
            for topic_id in topic_ids:
                self._peers.setdefault(topic_id, []).append(peers)

    def _load(self, name: str) -> int:
        return len(self._hands[name])

    def _level(self) -> None:
        """Who has most gives a partition to who has least of those that want one of its own, as
        long as there is somebody with two fewer. So nearly all stay where they go; what is opened
        by who gives later is left."""
        order = [(-self._load(name), rank) for rank, name in enumerate(self._names)]
        heapify(order)
        takers: dict[bytes, Takers] = {}
        # How far each has come with its own, and the topics that nobody wants of it.
        sought: list[tuple[int, set[bytes]]] = [(0, set()) for _ in self._names]
        least = min(map(len, self._hands.values()))
        while order and -order[0][0] - 2 >= least:
            load, rank = heappop(order)
            giver = self._names[rank]
            hand = self._hands[giver]
            if len(hand) != -load:
                continue  # it has taken or given since
            number, spent = sought[rank]
            while (found := hand.seek(number, spent)) is not None:
                number, topic_id = found
                if topic_id not in takers:
                    takers[topic_id] = Takers(self._peers[topic_id])
                to = takers[topic_id].first(len(hand) - 2)
                if to is None:
                    spent.add(topic_id)
                    continue
                self._move(giver, self._names[to])
                sought[rank] = number, spent
                for one in (rank, to):
                    heappush(order, (-self._load(self._names[one]), one))
                break

    def _even_out(self) -> bool:
        """Moves partitions away from each member, by way of others, as long as it has two more than
        somebody whom they can reach, those who have most first; whether any moved."""
        moved = False
        done: set[str] = set()
        least = min(map(len, self._hands.values()))
        for name in sorted(self._hands, key=self._load, reverse=True):
            if name in done:
                continue
            before = self._load(name)
            # Topics that nobody wants who has two fewer: while this one gives nobody will.
            spent: set[bytes] = set()
            while self._load(name) - 2 >= least:
                way, reached = self._way_down(name, spent)
                for giver, taker in pairwise(way):
                    self._move(giver, taker)
                if not way:
                    # Who has no more than this one reaches nobody else, and so nobody with less.
                    done.update(reached)
                    break
            moved = moved or self._load(name) < before
        return moved

    def _first_with(self, topic_id: bytes, most: int) -> str | None:
        """The first who wants a topic and has no more than so much."""
        first = len(self._names)
        for peers in self._peers[topic_id]:
            if peers.lowest_rank > first:
                break
            rank = peers.first(most)
            if rank is not None and rank < first:
                first = rank
        return self._names[first] if first < len(self._names) else None

    def _way_down(self, name: str, spent: set[bytes]) -> tuple[list[str], Iterable[str]]:
        """The shortest way from a member to one with at least two partitions fewer, each of whom
        can give a partition to the next, or none; and whom the search has reached."""
        enough = self._load(name) - 2
        came_from: dict[str, str] = {name: name}
        seen_topics: set[bytes] = set()
        ways: list[tuple[str, bytes]] = []
        for giver in self._reached(name, ways, came_from):
            for topic_id in self._hands[giver].topics():
                if topic_id in seen_topics:
                    continue
                seen_topics.add(topic_id)
                ways.append((giver, topic_id))
                taker = None if topic_id in spent else self._first_with(topic_id, enough)
                if taker is not None:
                    came_from[taker] = giver
                    return _unwound(came_from, name, taker), came_from
                spent.add(topic_id)
        return [], came_from

    def _reached(
        self, name: str, ways: list[tuple[str, bytes]], came_from: dict[str, str]
    ) -> Iterator[str]:
        """A member, and whom it can reach, nearest first. A way is somebody who can give, and what
        topic; the caller adds those of each whom it is told."""
        yield name
        for giver, topic_id in ways:
            for taker in self._subscribers[topic_id]:
                if taker not in came_from:
                    came_from[taker] = giver
                    yield taker

    def _move(self, giver: str, taker: str) -> None:
        """One partition goes."""
        place = self._hands[giver].take(taker, self._wanted[taker])
        self._hands[taker].put(place)
        for name in (giver, taker):
            peers, index = self._seats[name]
            peers.set(index, self._load(name))


def _like(subscribers: Mapping[bytes, list[str]]) -> dict[bytes, bytes]:
    """One topic for all that the same members want."""
    first: dict[tuple[str, ...], bytes] = {}
    return {
        topic_id: first.setdefault(tuple(names), topic_id)
        for topic_id, names in subscribers.items()
    }


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


def _assignment(places: Iterable[Place]) -> Assignment:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, index in places:
        by_topic.setdefault(topic_id, []).append(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in by_topic.items()}
