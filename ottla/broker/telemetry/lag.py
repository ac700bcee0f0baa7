"""How late the event loop is: the time between when a timer was due and when it ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.broker.telemetry.metrics import SECONDS, Histogram

INTERVAL_SECONDS = 0.1
"""Ten probes a second cost nothing and see every stall that a client would feel."""


class Handle(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """What the probe needs of an event loop."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], object], /) -> Handle: ...


class LoopLag:
    """Measures one loop from `start` to `stop`, into `histogram` (seconds)."""

    __slots__ = ("_due", "_handle", "_timers", "histogram", "worst")

    def __init__(self, timers: Timers, histogram: Histogram | None = None) -> None:
        self._timers = timers
        self._due = 0.0
        self._handle: Handle | None = None
        self.histogram = Histogram(SECONDS) if histogram is None else histogram
        self.worst = 0.0

    def start(self) -> None:
        self._due = self._timers.time() + INTERVAL_SECONDS
        self._handle = self._timers.call_at(self._due, self._tick)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def take_worst(self) -> float:
        """The longest lag since this was last asked."""
        worst, self.worst = self.worst, 0.0
        return worst

    def _tick(self) -> None:
        lag = max(self._timers.time() - self._due, 0.0)
        self.histogram.observe(lag)
        self.worst = max(self.worst, lag)
        self.start()
