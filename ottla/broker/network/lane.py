"""Where requests that are neither produce nor fetch take turns, so that a crowd of them holds up
nobody else.

A rebalance of a thousand members, or a thousand clients that connect at once, brings as many
requests into one turn of the loop, of 100 us and more each. Served as they come they would stop
every producer for a tenth of a second. Here as many pass in each turn as its share of time allows,
and the frames of the others wait, in the order of their connections. Alone, a request passes at
once. While nobody produces or fetches nobody needs that much care, and turns are longer: a frame
that waits is copied.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

TURN_SECONDS: Final = 0.0003
"""One more request may begin so long after the first one of its turn. A producer that waits for
each answer gets one per turn: in a storm of 1,000 members, turns of 2 ms (eight requests) left one
of 400 requests/s behind by 40 ms."""

QUIET_TURN_SECONDS: Final = 0.002
"""The same while no records move."""
QUIET_AFTER_SECONDS: Final = 1.0
"""No records have moved for so long: longer than a consumer waits at the end of a log."""
LOOK_SECONDS: Final = 0.02
"""So often somebody looks whether records move; who begins to produce waits longer until then."""


class Waiting(Protocol):
    """A connection whose next request waits here."""

    def go_on(self, now_s: float) -> None: ...


class Lane:
    """One for all connections of a broker; `clock` gives seconds, and those who ask to pass read
    the same one. `count_data` says how many requests with records have been answered."""

    __slots__ = (
        "_clock",
        "_count_data",
        "_data_count",
        "_is_turning",
        "_look_s",
        "_loop",
        "_quiet_since_s",
        "_turn_s",
        "_until_s",
        "_waiting",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Callable[[], float],
        count_data: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._count_data = count_data
        self._data_count = -1
        self._quiet_since_s = 0.0
        self._look_s = 0.0
        self._turn_s = TURN_SECONDS
        self._until_s = 0.0
        self._is_turning = False
        self._waiting: deque[Waiting] = deque()

    def __repr__(self) -> str:
        return f"<Lane waiting={len(self._waiting)}>"

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def take(self, now_s: float) -> bool:
        """Whether one more request may pass in this turn; the first always may."""
        if self._is_turning:
            return now_s < self._until_s
        self._is_turning = True
        self._loop.call_soon(self._turn)
        if now_s >= self._look_s:
            self._look(now_s)
        self._until_s = now_s + self._turn_s
        return True

    def add(self, waiting: Waiting) -> None:
        """`go_on` is called when it is its turn."""
        self._waiting.append(waiting)
        if not self._is_turning:  # it has waited for an answer until now
            self._is_turning = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turning = False
        waiting = self._waiting
        if not waiting:
            return
        now_s = self._clock()
        self.take(now_s)
        while waiting and now_s < self._until_s:
            waiting.popleft().go_on(now_s)
            now_s = self._clock()

    def _look(self, now_s: float) -> None:
        count = self._count_data()
        if count != self._data_count:
            self._data_count = count
            self._quiet_since_s = now_s
        is_quiet = now_s - self._quiet_since_s >= QUIET_AFTER_SECONDS
        self._turn_s = QUIET_TURN_SECONDS if is_quiet else TURN_SECONDS
        self._look_s = now_s + LOOK_SECONDS
