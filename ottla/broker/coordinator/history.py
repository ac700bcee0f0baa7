"""What coordinators did to their groups, and why: the newest events, kept in memory."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any, NamedTuple

from ottla.broker.coordinator.outcome import Told
from ottla.broker.ports import Clock, Events

KEPT_MAX = 2000
"""Some hundred bytes each. A broker that rebalances every second keeps half an hour."""
EXPECTED = frozenset({"group_generation", "group_stable", "group_assigned"})
"""What follows every group_rebalances that ends well. A line of the log costs as much as the rules
of a rebalance, so these are written at debug; the ring has them all."""


class Happened(NamedTuple):
    """One event; `wall_ms` is when."""

    wall_ms: int
    event: str
    group_id: str
    reason: str
    fields: dict[str, Any]


class History:
    """A bounded ring of events, which go to the broker's log, too; one per broker. `counts` says
    how many of each there were since the broker started."""

    __slots__ = ("_clock", "_events", "_ring", "counts")

    def __init__(self, clock: Clock, events: Events) -> None:
        self._clock = clock
        self._events = events
        self._ring: deque[Happened] = deque(maxlen=KEPT_MAX)
        self.counts: Counter[str] = Counter()

    def add(self, told: Told) -> None:
        event, group_id, reason, fields = told
        self.counts[event] += 1
        self._ring.append(Happened(self._clock.wall_ms(), event, group_id, reason, fields))
        write = self._events.debug if event in EXPECTED else self._events.info
        write(event, group=group_id, reason=reason, **fields)

    def of_group(self, group_id: str | None) -> list[Happened]:
        """The events of one group, of all if it is None, the oldest first."""
        return [one for one in self._ring if group_id is None or one.group_id == group_id]

    def told_of(self, group_id: str | None) -> list[dict[str, Any]]:
        """The same for JSON; times are wall milliseconds."""
        return [
            {
                "wall_ms": one.wall_ms,
                "event": one.event,
                "group": one.group_id,
                "reason": one.reason,
                **one.fields,
            }
            for one in self.of_group(group_id)
        ]
