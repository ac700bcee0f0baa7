"""What members have while partitions are moved between them, and who of them has little.

An assignment is made on the loop: of a member that has thousands of partitions nothing is asked
that would be a look at each. So places are numbered as they come, and stay in every queue when they
go: a number is passed over there once its place has gone, or has come again by another.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heapreplace

Place = tuple[bytes, int]
"""A partition: topic id, index."""
NOBODY = sys.maxsize
"""What a place without a member has: more than any."""


class Hand:
    """What one member has, in the order in which it came.

    `former` says who had what before any of it moved. `like` has one topic for all those that the
    same members want, which are one and the same to who seeks somebody to give to.
    """

    __slots__ = (
        "_by_topic",
        "_came",
        "_firsts",
        "_foreign",
        "_former",
        "_held",
        "_like",
        "_name",
        "_of_others",
        "_own",
        "_sorted_count",
    )

    def __init__(self, name: str, former: Mapping[Place, str], like: Mapping[bytes, bytes]) -> None:
        self._name = name
        self._former = former
        self._like = like
        self._came: list[Place] = []
        self._held: dict[Place, int] = {}
        # Of so many of the places, and not before one is to go: the numbers of all that are of like
        # topics, and of the first of these, in order.
        self._sorted_count = 0
        self._by_topic: dict[bytes, deque[int]] = {}
        self._firsts: list[int] = []
        self._own, self._foreign = _Line(), _Line()
        self._of_others: dict[str, _Line] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Place]:
        return iter(self._held)

    def put(self, place: Place) -> None:
        self._held[place] = len(self._came)
        self._came.append(place)

    def take(self, taker: str, wanted: frozenset[bytes]) -> Place:
        """Gives up a place that the taker wants: rather one that it had before, or else one that
        this member had not. There must be one."""
        self._sort()
        line = self._of_others.get(taker)
        place = None if line is None else line.first(self, wanted)
        if place is None:
            place = self._foreign.first(self, wanted)
        if place is None:
            place = self._own.first(self, wanted)
        assert place is not None
        self._remove(place)
        return place

    def topics(self) -> Iterator[bytes]:
        """Each topic like those of which it has places, in the order of the first of them."""
        self._sort()
        return (self._like[self._came[number][0]] for number in self._firsts)

    def seek(self, number: int, passed: set[bytes]) -> tuple[int, bytes] | None:
        """From a number on, that of the first place that it has of none like the topics passed."""
        for at in range(number, len(self._came)):
            topic_id = self._like[self._came[at][0]]
            if topic_id not in passed and self.place(at) is not None:
                return at, topic_id
        return None

    def place(self, number: int) -> Place | None:
        """What came with the number, unless it has gone."""
        place = self._came[number]
        return place if self._held.get(place) == number else None

    def _sort(self) -> None:
        for number in range(self._sorted_count, len(self._came)):
            place = self._came[number]
            numbers = self._by_topic.setdefault(self._like[place[0]], deque())
            if not numbers:
                self._firsts.append(number)
            numbers.append(number)
            former = self._former.get(place)
            if former == self._name:
                self._own.append(number)
                continue
            self._foreign.append(number)
            if former is not None:
                self._of_others.setdefault(former, _Line()).append(number)
        self._sorted_count = len(self._came)

    def _remove(self, place: Place) -> None:
        number = self._held.pop(place)
        numbers = self._by_topic[self._like[place[0]]]
        if numbers[0] != number:
            return
        del self._firsts[bisect_left(self._firsts, number)]
        while numbers and self.place(numbers[0]) is None:
            numbers.popleft()
        if numbers:
            insort(self._firsts, numbers[0])


class _Line:
    """Some of a member's places. Who wants others than the first goes on from where those who want
    the same have been, and so nobody looks at one twice."""

    __slots__ = ("_looked", "_numbers", "_start")

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._start = 0
        self._looked: dict[frozenset[bytes], int] = {}

    def append(self, number: int) -> None:
        self._numbers.append(number)

    def first(self, hand: Hand, wanted: frozenset[bytes]) -> Place | None:
        """The first that is of a wanted topic and that the member still has."""
        place_of, numbers = hand.place, self._numbers
        while self._start < len(numbers) and place_of(numbers[self._start]) is None:
            self._start += 1
        start = max(self._looked.get(wanted, 0), self._start)
        for at in range(start, len(numbers)):
            place = place_of(numbers[at])
            if place is not None and place[0] in wanted:
                self._looked[wanted] = at
                return place
        self._looked[wanted] = len(numbers)
        return None


class Peers:
    """Members with the same subscription, by their ranks in the group, which rise, and how much
    each has: a tree of the least of each two."""

    __slots__ = ("_least", "_ranks", "_size", "lowest_rank")

    def __init__(self, ranks: list[int], loads: list[int]) -> None:
        self.lowest_rank = ranks[0]
        self._ranks = ranks
        self._size = size = 1 << (len(ranks) - 1).bit_length()
        self._least = least = [NOBODY] * size + loads + [NOBODY] * (size - len(loads))
        for at in range(size - 1, 0, -1):
            least[at] = min(least[2 * at], least[2 * at + 1])

    def set(self, index: int, load: int) -> None:
        """Says how much the member has that is at `index` of the ranks."""
        least, at = self._least, self._size + index
        least[at] = load
        while at > 1:
            at //= 2
            lower = min(least[2 * at], least[2 * at + 1])
            if least[at] == lower:
                return
            least[at] = lower

    @property
    def least(self) -> int:
        """What the one has who has least."""
        return self._least[1]

    def first(self, most: int) -> int | None:
        """The lowest rank of one who has no more than so much."""
        least, at = self._least, 1
        if least[at] > most:
            return None
        while at < self._size:
            at *= 2
            at += least[at] > most
        return self._ranks[at - self._size]


class Takers:
    """Who wants a topic, those who have least first. It is for a time in which they are given more:
    who has less than before is not found for that."""

    __slots__ = ("_heap",)

    def __init__(self, all_peers: Iterable[Peers]) -> None:
        self._heap = [(peers.least, peers.lowest_rank, peers) for peers in all_peers]
        heapify(self._heap)

    def first(self, most: int) -> int | None:
        """The rank of who has least, if it is no more than so much."""
        heap = self._heap
        least, rank, peers = heap[0]
        while peers.least != least:
            heapreplace(heap, (peers.least, rank, peers))
            least, rank, peers = heap[0]
        return peers.first(least) if least <= most else None
