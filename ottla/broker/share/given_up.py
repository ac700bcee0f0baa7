"""Records that come to nobody any more, gathered until somebody is told of them.

A record is delivered for the last time alone, so a stretch of records that nobody can digest is
given up one by one; told one by one they would drive all else out of the broker's history.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.broker.coordinator.share.batches import ARCHIVED, StateBatch


@dataclass(slots=True)
class Lot:
    """`records` of the offsets from `first` to `last`, both included, were given up."""

    first: int
    last: int
    records: int = 0


class GivenUp:
    """Of one share partition, by the reason, which says how often they were delivered."""

    __slots__ = ("_lots",)

    def __init__(self) -> None:
        self._lots: dict[str, Lot] = {}

    def __repr__(self) -> str:
        return f"<GivenUp {self._lots}>"

    def add(self, batches: Iterable[StateBatch], reason: str) -> bool:
        """Those of the batches that are archived. Whether there are any."""
        found = False
        for batch in batches:
            if batch.state != ARCHIVED:
                continue
            found = True
            whole = f"delivered {batch.delivery_count} times, and {reason}"
            self._add(whole, Lot(batch.first, batch.last, batch.last - batch.first + 1))
        return found

    def add_all(self, other: GivenUp) -> bool:
        """The same for what was gathered elsewhere."""
        for reason, lot in other._lots.items():
            self._add(reason, lot)
        return bool(other._lots)

    @property
    def records(self) -> int:
        return sum(lot.records for lot in self._lots.values())

    def take(self) -> dict[str, Lot]:
        """What there is, which is not there any more then."""
        lots, self._lots = self._lots, {}
        return lots

    def _add(self, reason: str, new: Lot) -> None:
        lot = self._lots.setdefault(reason, Lot(new.first, new.last))
        lot.first = min(lot.first, new.first)
        lot.last = max(lot.last, new.last)
        lot.records += new.records
