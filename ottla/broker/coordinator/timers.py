"""Deadlines by key, in virtual time: whoever owns them is told what is due and when to look again.

A session is prolonged by each heartbeat and hardly ever ends, so to set a deadline later than
before costs no more than a dictionary entry; the queue finds out when the earlier one comes.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """At most one deadline for each key. Times are milliseconds of any one clock."""

    __slots__ = ("_count", "_deadlines", "_heap", "_queued")

    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        # The earliest entry of the heap for a key; later ones are left over and mean nothing.
        self._queued: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __repr__(self) -> str:
        return f"<Timers set={len(self._deadlines)} next={self.next_ms()}>"

    def set(self, key: K, deadline_ms: int) -> None:
        """Sets the deadline of a key, in place of what it had."""
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._queue(key, deadline_ms)

    def cancel(self, key: K) -> None:
        self._deadlines.pop(key, None)

    def deadline_ms(self, key: K) -> int | None:
        return self._deadlines.get(key)

    def next_ms(self) -> int | None:
        """When to look next; nothing is due before, though nothing need be due then."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> list[K]:
        """The keys whose deadlines have come, in their order; they have none afterwards."""
        due: list[K] = []
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != queued_ms:
                continue
            del self._queued[key]
            deadline_ms = self._deadlines.get(key)
            if deadline_ms is None:
                continue
            if deadline_ms > now_ms:
                self._queue(key, deadline_ms)
            else:
                del self._deadlines[key]
                due.append(key)
        return due

    def _queue(self, key: K, deadline_ms: int) -> None:
        self._queued[key] = deadline_ms
        self._count += 1
        heapq.heappush(self._heap, (deadline_ms, self._count, key))
