"""Where requests that are neither produce nor fetch take turns, so that a crowd of them holds up
nobody else.

A rebalance of a thousand members, or a thousand clients that connect at once, brings as many
requests into one turn of the loop, of 100 us and more each. Served as they come they would stop
every producer for a tenth of a second. Here a few of them pass in each turn, and the frames of the
others wait, in the order of their connections. Alone, a request passes at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

REQUESTS_PER_TURN = 8
"""About a millisecond of them."""


class Waiting(Protocol):
    """A connection whose next request waits here."""

    def go_on(self) -> None: ...


class Lane:
    """One for all connections of a broker."""

    __slots__ = ("_is_turning", "_left", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left = REQUESTS_PER_TURN
        self._is_turning = False
        self._waiting: deque[Waiting] = deque()

    def __repr__(self) -> str:
        return f"<Lane waiting={len(self._waiting)}>"

    def take(self) -> bool:
        """Whether one more request may pass in this turn."""
        if not self._is_turning:
            self._is_turning = True
            self._loop.call_soon(self._turn)
        if not self._left:
            return False
        self._left -= 1
        return True

    def add(self, waiting: Waiting) -> None:
        """`go_on` is called when it is its turn."""
        self._waiting.append(waiting)

    def _turn(self) -> None:
        self._left = REQUESTS_PER_TURN
        self._is_turning = False
        while self._waiting and self.take():
            self._waiting.popleft().go_on()
