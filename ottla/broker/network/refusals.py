"""Connections that a limit turns away, or that end by their own fault: not a line for each.

The first of an address is told at once. What follows of it for the same reason in the next
INTERVAL_MS is counted, and told in one line when they are over; and so on until an interval passes
without any. Beyond ADDRESSES_MAX at one time addresses are told together, so a flood that comes
from everywhere is a few lines a minute, too.

Pure: time is passed in, in milliseconds of a monotonic clock.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from ottla.broker.network.accept_rates import MAX_CREATION_RATE
from ottla.broker.network.connection_rates import CREATION_RATE

INTERVAL_MS = 60_000
ADDRESSES_MAX = 100
OTHERS = "other addresses"
OTHER_REASONS = "other reasons"
REASONS_MAX = 5
"""Sentences told of one address at one time; what else it does wrong is told together."""

MAX_CONNECTIONS = "max.connections"
MAX_CONNECTIONS_PER_IP = "max.connections.per.ip"
DESCRIPTORS: Final = "open files"
REASONS = (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CREATION_RATE,
    CREATION_RATE,
    DESCRIPTORS,
)
"""The names of what limits: Kafka's settings, Kafka's quota, the operating system."""


class Refused(NamedTuple):
    """So many connections of an address that were turned away or ended, and told of now."""

    reason: str
    address: str
    connections: int


class _Interval:
    __slots__ = ("count", "until_ms")

    def __init__(self, now_ms: int) -> None:
        self.count = 0
        self.until_ms = now_ms + INTERVAL_MS


class Endings:
    """Connections that were ended for what they sent. The reasons are sentences, with whatever a
    stranger puts into them: they are bounded for each address, so that none silences the others."""

    __slots__ = ("_intervals",)

    def __init__(self) -> None:
        self._intervals: dict[tuple[str, str], _Interval] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} addresses={len(self._intervals)}>"

    def add(self, reason: str, address: str, now_ms: int) -> Refused | None:
        """One more; returns what is to be told of it now, if anything."""
        interval = self._intervals.get((reason, address))
        if interval is None:
            reason, address = self._within_bounds(reason, address)
            interval = self._intervals.get((reason, address))
        if interval is not None:
            interval.count += 1
            return None
        self._intervals[reason, address] = _Interval(now_ms)
        return Refused(reason, address, 1)

    def due(self, now_ms: int) -> list[Refused]:
        """A periodic job: what was counted in intervals that are over."""
        told = []
        for key, interval in list(self._intervals.items()):
            if now_ms < interval.until_ms:
                continue
            if interval.count == 0:
                del self._intervals[key]
                continue
            told.append(Refused(*key, interval.count))
            self._intervals[key] = _Interval(now_ms)
        return told

    def _within_bounds(self, reason: str, address: str) -> tuple[str, str]:
        if sum(one == address for _, one in self._intervals) >= REASONS_MAX:
            reason = OTHER_REASONS
        if len(self._intervals) >= ADDRESSES_MAX * REASONS_MAX:
            return OTHER_REASONS, OTHERS
        return reason, address


class Refusals(Endings):
    """What was turned away by one broker; `counts` is by reason, since its start."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<Refusals {dict(self.counts)} addresses={len(self._intervals)}>"

    def add(self, reason: str, address: str, now_ms: int) -> Refused | None:
        self.counts[reason] += 1
        return super().add(reason, address, now_ms)

    def _within_bounds(self, reason: str, address: str) -> tuple[str, str]:
        return reason, OTHERS if len(self._intervals) >= ADDRESSES_MAX else address
