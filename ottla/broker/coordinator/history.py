"""What coordinators did to their groups, and why: the newest events, kept in memory."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from ottla.broker.coordinator.outcome import Moment, Told
from ottla.broker.ports import DEBUG, Events
from ottla.broker.telemetry.shown import shown

KEPT_MAX = 2000
"""Some hundred bytes each, and a rebalance is three or four of them: a broker that has one every
second keeps ten minutes."""
EXPECTED = frozenset({"group_generation", "group_stable", "group_assigned", "group_member_joined"})
"""What comes with every group_rebalances that ends well. A line of the log costs as much as the
rules of a rebalance, so these are written at debug; the ring has them all."""
LINES_MAX, INTERVAL_MS = 50, 10_000
"""So many lines of the log for one group in so long: members that join and leave in a loop are
told, and neither fill the disk nor hide what happens to others. What is left out is counted."""


class Happened(NamedTuple):
    """One event; `wall_ms` is when."""

    wall_ms: int
    event: str
    group_id: str
    reason: str
    fields: dict[str, Any]


class History:
    """A bounded ring of events, which go to the broker's log, too; one per kind of coordinator,
    whose keys are called `of`. `counts` says how many of each there were since the broker
    started. What clients made long is cut; groups that differ only behind the cut are one here."""

    __slots__ = (
        "_events",
        "_lines",
        "_of",
        "_ring",
        "_tells_expected",
        "_until_ms",
        "counts",
    )

    def __init__(self, events: Events, *, of: str = "group") -> None:
        self._events = events
        self._tells_expected = events.is_enabled_for(DEBUG)
        self._of = of
        self._lines: dict[str, int] = {}  # by group, in this interval
        self._until_ms = 0
        # What was told, and when in wall milliseconds.
        self._ring: deque[tuple[int, Told]] = deque(maxlen=KEPT_MAX)
        self.counts: Counter[str] = Counter()

    def add(self, told: Iterable[Told], now: Moment) -> None:
        """What happened together, in its order."""
        monotonic_ms, wall_ms = now
        for one in map(_shown, told):
            event, group_id, reason, fields = one
            self.counts[event] += 1
            self._ring.append((wall_ms, one))
            if event in EXPECTED:
                if self._tells_expected:
                    self._events.debug(event, reason=reason, **{self._of: group_id}, **fields)
            elif self._may_write(group_id, monotonic_ms):
                self._events.info(event, reason=reason, **{self._of: group_id}, **fields)

    def _may_write(self, group_id: str, now_ms: int) -> bool:
        """Whether the log takes one more line about the group in this interval."""
        if now_ms >= self._until_ms:
            left_out = [count - LINES_MAX for count in self._lines.values() if count > LINES_MAX]
            if left_out:
                self._events.info(
                    "group_events_left_out", count=sum(left_out), groups=len(left_out)
                )
            self._lines.clear()
            self._until_ms = now_ms + INTERVAL_MS
        count = self._lines[group_id] = self._lines.get(group_id, 0) + 1
        if count == LINES_MAX + 1:
            self._events.warning(
                "group_events_too_many",
                **{self._of: group_id},
                reason=f"{LINES_MAX} lines in less than {INTERVAL_MS // 1000} s: the rest of them"
                f" is counted only; `ottla group why` has the newest of all groups' {KEPT_MAX}",
            )
        return count <= LINES_MAX

    def of_group(self, group_id: str | None) -> list[Happened]:
        """The events of one group, of all if it is None, the oldest first."""
        asked = shown(group_id)
        return [
            Happened(wall_ms, *one)
            for wall_ms, one in self._ring
            if asked is None or one.group_id == asked
        ]

    def told_of(self, group_id: str | None) -> list[dict[str, Any]]:
        """The same for JSON; times are wall milliseconds."""
        return [
            {
                "wall_ms": one.wall_ms,
                "event": one.event,
                self._of: one.group_id,
                "reason": one.reason,
                **one.fields,
            }
            for one in self.of_group(group_id)
        ]


def _shown(told: Told) -> Told:
    event, group_id, reason, fields = told
    fields = {name: shown(value) for name, value in fields.items()}
    return Told(event, shown(group_id), shown(reason), fields)
