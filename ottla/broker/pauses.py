"""Pauses of a worker that goes through records, so that the loop has the interpreter soon.

A thread that waits for it has it after sys.getswitchinterval(), 5 ms, and the loop waits for it
again and again. Whoever pauses gives it at once. Not for work on the loop itself.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, sleep

AT_A_STRETCH_S = 0.0005
PAUSE_S = 0.00005
"""A worker that has gone through records for so long pauses at the end of a piece of its batch: at
most two milliseconds later in a look-up, a few records later in a conversion."""


class Pauses:
    """Of one job in a worker; it calls `give_way` as often as it can."""

    __slots__ = ("_clock", "_since_s", "_sleep")

    def __init__(
        self,
        clock: Callable[[], float] = perf_counter,
        pause: Callable[[float], None] = sleep,
    ) -> None:
        self._clock = clock
        self._sleep = pause
        self._since_s = clock()

    def give_way(self) -> None:
        if self._clock() - self._since_s >= AT_A_STRETCH_S:
            self._sleep(PAUSE_S)
            self._since_s = self._clock()
