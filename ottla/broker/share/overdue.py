"""Locks of records that have ended, gathered until that is written, and until somebody is told.

A member that is stuck holds records of many partitions, and their locks end at about the same time:
told one by one they would drive all else out of the broker's history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ottla.broker.share.given_up import GivenUp
from ottla.broker.share.window import Freed

REASON = "its lock ended"
"""Why a record that was delivered too often came back for the last time."""


class Lapsed:
    """Of one share partition: records by who held them, and those of them that were given up."""

    __slots__ = ("given_up", "records")

    def __init__(self) -> None:
        self.records: dict[str, int] = {}
        self.given_up = GivenUp()

    def __repr__(self) -> str:
        return f"<Lapsed {self.records} {self.given_up!r}>"

    def add(self, freed: Iterable[Freed]) -> None:
        for batch, member_id in freed:
            count = batch.last - batch.first + 1
            self.records[member_id] = self.records.get(member_id, 0) + count
            self.given_up.add((batch,), REASON)

    def add_all(self, other: Lapsed) -> None:
        for member_id, count in other.records.items():
            self.records[member_id] = self.records.get(member_id, 0) + count
        self.given_up.add_all(other.given_up)


@dataclass(slots=True)
class Lapse:
    """What one member of a group did not acknowledge in time: so many records, of these partitions
    by their topics' names."""

    records: int = 0
    places: dict[tuple[str, int], None] = field(default_factory=dict)


class Overdue:
    """Of all groups, by group and member."""

    __slots__ = ("_lapses",)

    def __init__(self) -> None:
        self._lapses: dict[tuple[str, str], Lapse] = {}

    def __repr__(self) -> str:
        return f"<Overdue {self._lapses}>"

    def add(self, group_id: str, topic: str, partition: int, records: Mapping[str, int]) -> None:
        """`records` by member."""
        for member_id, count in records.items():
            lapse = self._lapses.setdefault((group_id, member_id), Lapse())
            lapse.records += count
            lapse.places[topic, partition] = None

    def take(self) -> dict[tuple[str, str], Lapse]:
        """What there is, which is not there any more then."""
        lapses, self._lapses = self._lapses, {}
        return lapses
