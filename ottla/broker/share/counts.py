"""What has become of the records that share groups were given, in numbers of records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ottla.broker.coordinator.share.batches import ARCHIVED, StateBatch
from ottla.broker.share.overdue import Lapsed
from ottla.broker.share.window import ACCEPT, GAP, REJECT, RELEASE, RENEW, Transition

ACKNOWLEDGEMENTS = {
    ACCEPT: "accept",
    RELEASE: "release",
    REJECT: "reject",
    RENEW: "renew",
    GAP: "gap",
}
IDLE_GROUPS_MAX = 200
"""Groups that are remembered though nothing is delivered to them any more. Anybody may name a
group, and each takes seven lines of the metrics page."""


@dataclass(slots=True)
class GroupCounts:
    """Of one share group. All of it is counted once it is written."""

    acknowledged: dict[int, int] = field(default_factory=lambda: dict.fromkeys(ACKNOWLEDGEMENTS, 0))
    """By what members said of them."""
    lock_timeouts: int = 0
    """Records whose lock ended before what was said of them was durable, if anything was; to renew
    a lock says nothing of its records."""
    given_up: int = 0
    """Records that come to nobody any more, for they were delivered as often as is allowed."""

    def add_transition(self, transition: Transition) -> None:
        """It has taken place."""
        for kind, count in transition.said.items():
            self.acknowledged[kind] += count
        self.given_up += _archived(transition.given_up)

    def add_timeouts(self, lapsed: Lapsed) -> None:
        """The locks of these have ended."""
        self.lock_timeouts += sum(lapsed.records.values())
        self.given_up += lapsed.given_up.records


class ShareCounts:
    """Of all share groups since the broker started, by group; one per broker. `is_delivering` says
    whether a group is delivered to just now; should there be too many others, those are forgotten
    for which nothing was counted the longest."""

    __slots__ = ("_groups", "_is_delivering")

    def __init__(self, is_delivering: Callable[[str], bool]) -> None:
        self._is_delivering = is_delivering
        self._groups: dict[str, GroupCounts] = {}

    def of(self, group_id: str) -> GroupCounts:
        """To be added to now, and not to be kept."""
        counts = self._groups.pop(group_id, None)
        if counts is None:
            self._forget_idle()
            counts = GroupCounts()
        self._groups[group_id] = counts
        return counts

    def by_group(self) -> Iterable[tuple[str, GroupCounts]]:
        return self._groups.items()

    def _forget_idle(self) -> None:
        if len(self._groups) >= IDLE_GROUPS_MAX:
            idle = [one for one in self._groups if not self._is_delivering(one)]
            for group_id in idle[: max(len(idle) - IDLE_GROUPS_MAX + 1, 0)]:
                del self._groups[group_id]


def _archived(batches: Iterable[StateBatch]) -> int:
    return sum(batch.last - batch.first + 1 for batch in batches if batch.state == ARCHIVED)
