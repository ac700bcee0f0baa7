"""Until when parked fetches may wait: one timer of the loop for all of them.

Next to no deadline is ever reached, for a fetch at the end of a log is answered when there is more;
to make and cancel a timer for each costs more than all that is done here.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

STALE_MAX: Final = 64
"""So many cancelled deadlines, and as many as are not, may lie in the heap before they leave it."""
CLOCK_STEP_S: Final = 0.0005
"""Loops tell the time in steps (uvloop by the millisecond): a timer may come so much early."""

_heappush: Final = heappush


class Expiring(Protocol):
    def expired(self) -> None:
        """The deadline is reached. Called once, and not after `cancel`."""


class Handle(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """An event loop, as far as it is needed here."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], object], /) -> Handle: ...


class Deadline:
    """What `cancel` takes; nobody waits for it once it is cancelled or reached."""

    __slots__ = ("waiter",)

    def __init__(self, waiter: Expiring) -> None:
        self.waiter: Expiring | None = waiter


class Deadlines:
    """The deadlines of a broker's fetches, the next one first."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._heap: list[tuple[float, int, Deadline]] = []
        self._added = 0  # in their order where two are due at one time
        self._waiting = 0
        self._timer: Handle | None = None
        self._timer_due_s = 0.0

    def __len__(self) -> int:
        return self._waiting

    def add(self, waiter: Expiring, wait_s: float) -> Deadline:
        deadline = Deadline(waiter)
        due_s = self._timers.time() + wait_s
        self._added += 1
        self._waiting += 1
        _heappush(self._heap, (due_s, self._added, deadline))
        self._set_by(due_s)
        return deadline

    def cancel(self, deadline: Deadline) -> None:
        """Does nothing if it is cancelled, or reached. The timer stays: more will wait."""
        if deadline.waiter is None:
            return
        deadline.waiter = None
        self._waiting -= 1
        if len(self._heap) > 2 * self._waiting + STALE_MAX:
            self._heap = [one for one in self._heap if one[2].waiter is not None]
            heapify(self._heap)

    def close(self) -> None:
        """Nothing more is told of its deadline."""
        for _, _, deadline in self._heap:
            deadline.waiter = None
        self._heap.clear()
        self._waiting = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # inside

    def _set_by(self, due_s: float) -> None:
        """Has the timer come at that time, or before it."""
        if self._timer is not None:
            if self._timer_due_s <= due_s:
                return
            self._timer.cancel()
        self._timer = self._timers.call_at(due_s, self._fire)
        self._timer_due_s = due_s

    def _fire(self) -> None:
        self._timer = None
        now_s = self._timers.time() + CLOCK_STEP_S
        try:
            while self._heap and (self._heap[0][0] <= now_s or self._heap[0][2].waiter is None):
                deadline = heappop(self._heap)[2]
                waiter, deadline.waiter = deadline.waiter, None
                if waiter is not None:
                    self._waiting -= 1
                    waiter.expired()
        finally:
            # One of them may have broken: those behind it are not to blame. Or it waits again, for
            # longer than they do.
            if self._heap:
                self._set_by(self._heap[0][0])
