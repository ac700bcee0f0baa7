"""Requests gathered while many wait for the processors.

Many clients on few processors: each request wakes us, at once, for we have slept; we take the
processor from a client in the midst of its work, answer one or two requests, and sleep again. The
machine is busy all the time, and much of that is changing between us and them. So where far more
tasks want to run than can, the loop leaves the processors to them for a moment after a turn that
answered somebody, and does not push to the front when it wakes; what they send meanwhile is
served together. That is what network cards do with interrupts.

Nobody waits for it who would not wait for a processor anyway, and longer: the moment is a small
part of what each task waits for its turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

GATHER_S = 0.00025
"""64 clients on two processors: with 0.12 ms p99 fell less, with 0.45 ms the rate fell."""
TASKS_PER_PROCESSOR = 8
"""More than that run or wait: measured with 64 clients, 20 to 40; with 16 that wait for the disk,
or 8 that read what is in memory, 1 to 5, and they lose by every pause."""
CONNECTIONS_MIN = 8
"""Answered in one window. Fewer than these gain nothing from being served together."""
WINDOW_S = 0.002
"""How often the tasks are counted at most, while there is something to do."""
STALE_S = 0.01
"""A window that has lasted so long was mostly quiet."""


class Processors(Protocol):
    """What gathering asks of the machine."""

    count: int
    """Those that we may run on."""

    def runnable(self) -> int:
        """Tasks of the machine that run or wait for a processor, we among them."""

    def leave(self, seconds: float) -> None:
        """Lets others run for so long; nothing else happens on the loop."""

    def defer(self, *, defers: bool) -> None:
        """Whether we take a processor from others when something comes, or wait for it."""


class Gathering:
    """Judges each turn of the loop. Times are the loop's, in seconds."""

    __slots__ = ("_answered", "_processors", "_since_s", "is_crowded", "turns")

    def __init__(self, processors: Processors) -> None:
        self._processors = processors
        self._answered: set[int] = set()
        self._since_s = 0.0
        self.is_crowded = False
        self.turns = 0
        """How often the processors were left to others."""

    def turn(self, answered: Iterable[object], now_s: float) -> bool:
        """The connections that a turn has answered. Returns whether to gather now."""
        lasted_s = now_s - self._since_s
        if lasted_s >= WINDOW_S:
            self._judge(lasted_s)
            self._since_s = now_s
        self._answered.update(map(id, answered))  # and keeps none of them alive
        return self.is_crowded

    def gather(self) -> None:
        """Leaves the processors to others for a moment."""
        self.turns += 1
        self._processors.leave(GATHER_S)

    def _judge(self, lasted_s: float) -> None:
        """At the end of a window."""
        is_crowded = (
            len(self._answered) >= CONNECTIONS_MIN
            and lasted_s < STALE_S
            and self._processors.runnable() > TASKS_PER_PROCESSOR * self._processors.count
        )
        self._answered.clear()
        if is_crowded != self.is_crowded:
            self.is_crowded = is_crowded
            self._processors.defer(defers=is_crowded)
