"""Requests come together while many tasks wait for the processors.

Many clients on few processors: each request wakes us, at once, for we have slept; we take the
processor from a client in the midst of its work, answer one or two requests, and sleep again. The
machine is busy all the time, and much of that is changing between us and them. So where far more
tasks want to run than can, the loop rests for a moment after a turn that answered somebody, and
what they send meanwhile is served together: what network cards call interrupt moderation. It
ends before its time when most of them have sent: soon nobody but us could run.

And now and then it goes on on another processor. Linux divides processors among sessions and
control groups first, and only then among tasks: on ours all others together have what we leave,
elsewhere they have all. The clients that happen to be beside us are the slow ones until the kernel
moves them, which it does seldom, and they make the p99.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

REST_S_PER_TASK: Final = 0.00006
"""Of those that are for each processor, and at most: 2.4 ms where there are 40, each of which waits
for its turn several times as long."""
REST_S_MAX: Final = 0.003
"""Of 50 tasks for each processor; more were not measured."""
CLIENTS_BACK: Final = 0.6
"""Of the clients that take part, so many have sent when a rest ends before its time. With 64 on two
processors nobody ran for 7 to 16 % of the time without that; with it, and rests of up to twice the
length, the rate is 1.10 of what it was, and the p99 1.03. With 0.8 the rate is lower again."""
WINDOWS_COUNTED: Final = 8
"""In which every client that waits for answers alone has had one."""
RESTS_PER_PROCESSOR: Final = 16
"""Before the next processor: 25 ms or so. With 64 the p99 was 1.08 of this, and the rate 0.98."""
TASKS_PER_PROCESSOR_MIN: Final = 8
"""More than that run or wait: measured on two processors, 64 clients that wait for answers keep 10
to 45 for each; 16 that wait for the disk, or 8 that read what is in memory, 1 to 8."""
CONNECTIONS_MIN: Final = 8
"""Answered in one window. Fewer than these gain nothing from being served together."""
WINDOW_S: Final = 0.0015
"""How often the tasks are counted at most, while there is something to do: each second or third
millisecond by a clock of whole ones, as uvloop's is."""
STALE_S: Final = 0.01
"""A window that has lasted so long was mostly quiet."""


class Processors(Protocol):
    """What moderation asks of the machine."""

    count: int

    def runnable(self) -> int:
        """Tasks of the machine that run or wait for a processor, we among them; 0 if nobody knows.
        Both figures are of the whole machine, whatever part of it is ours."""

    def leave(self, seconds: float, enough: int) -> None:
        """Lets others run for so long, or until so many connections have something to be read;
        nothing else happens on the loop."""

    def move(self) -> None:
        """Goes on on the next processor, if we are free to choose."""


class Moderation:
    """Judges each turn of the loop. Times are the loop's, in seconds."""

    __slots__ = (
        "_answered",
        "_clients",
        "_processors",
        "_seen",
        "_since_s",
        "_was_held_up",
        "_windows",
        "rest_s",
        "rests",
    )

    def __init__(self, processors: Processors) -> None:
        self._processors = processors
        self._answered: set[int] = set()  # by id: they may end meanwhile
        self._since_s = 0.0
        self._was_held_up = False
        self._seen: set[int] = set()
        self._windows = 0
        self._clients = 0
        self.rest_s = 0.0
        """How long the loop rests after a turn; 0 where few wait for the processors."""
        self.rests = 0
        """How often it did."""

    def turn(self, answered: Iterable[object], now_s: float, *, is_held_up: bool) -> bool:
        """The connections that a turn has answered, and whether somebody loses by a rest: who
        reads much, waits for the disk, or waits for us. Returns whether to rest now."""
        lasted_s = now_s - self._since_s
        if lasted_s >= WINDOW_S:
            self.rest_s = self._judge(lasted_s)
            self._since_s = now_s
        self._answered.update(map(id, answered))
        self._was_held_up = self._was_held_up or is_held_up
        return self.rest_s > 0 and not is_held_up

    def rest(self) -> None:
        """Leaves the processors to others for a moment."""
        self.rests += 1
        if self.rests % RESTS_PER_PROCESSOR == 0:
            self._processors.move()
        self._processors.leave(self.rest_s, int(self._clients * CLIENTS_BACK))

    def _judge(self, lasted_s: float) -> float:
        """How long to rest from now on, at the end of a window."""
        may_rest = not self._was_held_up and lasted_s < STALE_S
        is_busy = len(self._answered) >= CONNECTIONS_MIN
        self._count_clients(is_stale=lasted_s >= STALE_S)
        self._answered.clear()
        self._was_held_up = False
        if not (may_rest and is_busy):
            return 0.0
        tasks_each = self._processors.runnable() / self._processors.count
        if tasks_each <= TASKS_PER_PROCESSOR_MIN:
            return 0.0
        return min(tasks_each * REST_S_PER_TASK, REST_S_MAX)

    def _count_clients(self, *, is_stale: bool) -> None:
        """Who takes part: more at once when they come, fewer some windows after they went."""
        if is_stale:
            self._seen.clear()
            self._windows = self._clients = 0
            return
        self._seen |= self._answered
        self._windows += 1
        self._clients = max(self._clients, len(self._seen))
        if self._windows == WINDOWS_COUNTED:
            self._clients = len(self._seen)
            self._seen.clear()
            self._windows = 0
