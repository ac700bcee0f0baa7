"""Requests gathered while many tasks wait for the processors.

Many clients on few processors: each request wakes us, at once, for we have slept; we take the
processor from a client in the midst of its work, answer one or two requests, and sleep again. The
machine is busy all the time, and much of that is changing between us and them. So where far more
tasks want to run than can, the loop leaves the processors to them for a moment after a turn that
answered somebody, and what they send meanwhile is served together, as network cards do with
interrupts.

And then it goes on on another processor, now and then. Linux divides processors among sessions and
control groups first, and only then among tasks: on ours all others together have what we leave,
elsewhere they have all. The clients that happen to be beside us are the slow ones until the kernel
moves them, which it does seldom, and they make the p99.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

GATHER_S_PER_TASK = 0.00001
"""Of those that are for each processor: 0.4 ms where there are 40, each of which waits for its turn
several times as long. With half of it 64 clients on two processors had 0.80 of the p99 that they
have without, with this 0.63 to 0.70; with more the rate falls."""
GATHER_S_MAX = 0.0005
TURNS_PER_PROCESSOR = 32
"""Turns that were followed by gathering, before the next processor: 20 ms or so. With 8 the clients
lost a tenth of their rate."""
TASKS_PER_PROCESSOR = 8
"""More than that run or wait: measured on two processors, 64 clients that wait for answers keep 10
to 45 for each; 16 that wait for the disk, or 8 that read what is in memory, 1 to 8."""
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

    def move(self) -> None:
        """Goes on on the next of our processors."""


class Gathering:
    """Judges each turn of the loop. Times are the loop's, in seconds."""

    __slots__ = ("_answered", "_processors", "_since_s", "gather_s", "turns")

    def __init__(self, processors: Processors) -> None:
        self._processors = processors
        self._answered: set[int] = set()
        self._since_s = 0.0
        self.gather_s = 0.0
        """How long the processors are left to others after a turn; 0 where few wait for them."""
        self.turns = 0
        """How often they were."""

    def turn(self, answered: Iterable[object], now_s: float) -> bool:
        """The connections that a turn has answered. Returns whether to gather now."""
        lasted_s = now_s - self._since_s
        if lasted_s >= WINDOW_S:
            self.gather_s = self._judge(lasted_s)
            self._since_s = now_s
        self._answered.update(map(id, answered))  # and keeps none of them alive
        return self.gather_s > 0

    def gather(self) -> None:
        """Leaves the processors to others for a moment."""
        self.turns += 1
        if self.turns % TURNS_PER_PROCESSOR == 0:
            self._processors.move()
        self._processors.leave(self.gather_s)

    def _judge(self, lasted_s: float) -> float:
        """How long to gather from now on, at the end of a window."""
        is_busy = len(self._answered) >= CONNECTIONS_MIN and lasted_s < STALE_S
        self._answered.clear()
        if not is_busy:
            return 0.0
        tasks = self._processors.runnable() / self._processors.count
        if tasks <= TASKS_PER_PROCESSOR:
            return 0.0
        return min(tasks * GATHER_S_PER_TASK, GATHER_S_MAX)
