"""Deadlines by key, in virtual time: whoever owns them is told what is due and when to look again.

A session is prolonged by each heartbeat and hardly ever ends, so to set a deadline later than
before costs no more than a dictionary entry; the queue finds out when the earlier one comes.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

STALE_MAX = 64
"""So many entries that mean nothing, and as many as there are deadlines, may lie in the heap before
they leave it: a deadline may be a month away, and its group gone in a second."""


class Timers(Generic[K]):
    """At most one deadline for each key. Times are milliseconds of any one clock."""

    __slots__ = ("_count", "_deadlines", "_heap", "_queued")

    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        # The earliest entry of the heap for a key; later ones are left over and mean nothing.
        self._queued: dict[K, tuple[int, int, K]] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __repr__(self) -> str:
        queued = len(self._heap)
        return f"<Timers set={len(self._deadlines)} queued={queued} next={self.next_ms()}>"

    def set(self, key: K, deadline_ms: int) -> None:
        """Sets the deadline of a key, in place of what it had."""
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued[0]:
            self._queue(key, deadline_ms)

    def cancel(self, key: K) -> None:
        self._deadlines.pop(key, None)
        self._drop_stale()

    def deadline_ms(self, key: K) -> int | None:
        return self._deadlines.get(key)

    def next_ms(self) -> int | None:
        """When to look next; nothing is due before, though nothing need be due then."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> Iterator[K]:
        """The keys whose deadlines have come, in their order; each has none from when it is given.

        What is done about one counts for those behind it: who is set to a later deadline, or
        cancelled, is not given. Nobody is given twice: who is set once more after that is for the
        next time. So may be who is set meanwhile to one that has come, and those behind either.
        """
        last = self._count
        while self._heap and self._heap[0][0] <= now_ms and self._heap[0][1] <= last:
            entry = heapq.heappop(self._heap)
            key = entry[2]
            if self._queued.get(key) is not entry:
                continue
            del self._queued[key]
            deadline_ms = self._deadlines.get(key)
            if deadline_ms is None:
                continue
            if deadline_ms > now_ms:
                self._queue(key, deadline_ms)
            else:
                del self._deadlines[key]
                yield key

    def _queue(self, key: K, deadline_ms: int) -> None:
        self._count += 1
        entry = self._queued[key] = (deadline_ms, self._count, key)
        heapq.heappush(self._heap, entry)
        self._drop_stale()

    def _drop_stale(self) -> None:
        if len(self._heap) > 2 * len(self._deadlines) + STALE_MAX:
            self._queued = {key: self._queued[key] for key in self._deadlines}
            self._heap = list(self._queued.values())
            heapq.heapify(self._heap)
