"""What has become of the records that share groups were given, in numbers of records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.broker.coordinator.share.batches import ARCHIVED, StateBatch
from ottla.broker.share.window import ACCEPT, GAP, REJECT, RELEASE, RENEW, Transition

ACKNOWLEDGEMENTS = {
    ACCEPT: "accept",
    RELEASE: "release",
    REJECT: "reject",
    RENEW: "renew",
    GAP: "gap",
}


@dataclass(slots=True)
class ShareCounts:
    """Of all share groups since the broker started; one per broker."""

    acknowledged: dict[int, int] = field(default_factory=lambda: dict.fromkeys(ACKNOWLEDGEMENTS, 0))
    """By what members said of them, once that counts."""
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

    def add_timeouts(self, batches: Iterable[StateBatch]) -> None:
        """The locks of these have ended."""
        batches = list(batches)
        self.lock_timeouts += sum(batch.last - batch.first + 1 for batch in batches)
        self.given_up += _archived(batches)


def _archived(batches: Iterable[StateBatch]) -> int:
    return sum(batch.last - batch.first + 1 for batch in batches if batch.state == ARCHIVED)
