"""How much share fetches pass over in one turn of the loop, all of them together.

Batches of aborted transactions are passed over by whoever fetches, and many may wait for the same
partition, so what one fetch may pass over in a turn would not bound the turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

PASSED_OVER_MAX = 500
"""Batches that nobody is to see, those of aborted transactions, passed over in one turn: some
milliseconds. The next turn goes on."""
READ_COST = 16
"""One read of a log costs as much as so many batches."""


class PassingWaiter(Protocol):
    """`advanced`: there is something left again."""

    def advanced(self) -> None: ...


class Passing:
    """What is `left` in this turn; it may be overdrawn by the read that ends it. Who finds nothing
    waits, and those who wait come in the order in which they began to. `call_soon` calls in the
    next turn."""

    __slots__ = ("_call_soon", "_is_refilled_soon", "_waiting", "left")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._waiting: dict[PassingWaiter, None] = {}
        self._is_refilled_soon = False
        self.left = PASSED_OVER_MAX

    def __repr__(self) -> str:
        return f"<Passing left={self.left} waiting={len(self._waiting)}>"

    def take(self, batches: int) -> None:
        """One read passed over so many."""
        self.left -= batches + READ_COST
        self._refill_soon()

    def wait(self, waiter: PassingWaiter) -> None:
        self._waiting[waiter] = None
        self._refill_soon()

    def forget(self, waiter: PassingWaiter) -> None:
        self._waiting.pop(waiter, None)

    def _refill_soon(self) -> None:
        if not self._is_refilled_soon:
            self._is_refilled_soon = True
            self._call_soon(self._refill)

    def _refill(self) -> None:
        self._is_refilled_soon = False
        self.left = PASSED_OVER_MAX
        try:
            while self._waiting and self.left > 0:
                waiter = next(iter(self._waiting))
                del self._waiting[waiter]
                waiter.advanced()
        finally:
            if self._waiting:
                self._refill_soon()
