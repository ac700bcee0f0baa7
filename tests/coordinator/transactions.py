"""A shard of transactions alone: virtual time, answers by name, and what it would have written."""

from __future__ import annotations

from typing import Any

from ottla.broker.coordinator.outcome import CoordinatorRecord, Moment, Outcome, Told
from ottla.broker.coordinator.transaction.initializing import Expected
from ottla.broker.coordinator.transaction.shard import (
    Asker,
    MarkersDue,
    TransactionSettings,
    TransactionShard,
)
from ottla.broker.coordinator.transaction.transaction import Place
from ottla.protocol.errors import ErrorCode, KafkaError

START_WALL_MS = 1_704_067_200_000
TIMEOUT_MS = 60_000
ID = "x"


class Named:
    def __init__(self, name: str, into: list[tuple[str, Any]]) -> None:
        self._name = name
        self._into = into

    def complete(self, response: Any) -> None:
        self._into.append((self._name, response))


class Lone:
    """One shard, whose records are durable at once. Markers that are due are in `due`, until
    `write_markers`."""

    def __init__(self, settings: TransactionSettings | None = None) -> None:
        self.settings = TransactionSettings() if settings is None else settings
        self.monotonic_ms = 0
        self.records: list[CoordinatorRecord] = []
        self.told: list[Told] = []
        self.due: list[MarkersDue] = []
        self.answers: list[tuple[str, Any]] = []
        self.next_producer_id = 1000
        self.are_ids_used_up = False
        self.shard = self._new_shard()

    @property
    def now(self) -> Moment:
        return Moment(self.monotonic_ms, START_WALL_MS + self.monotonic_ms)

    def init(self, who: str = "init", *, expected: Expected | None = None, name: str = ID) -> None:
        reply = Named(who, self.answers)
        self._perform(self.shard.init_producer_id(name, TIMEOUT_MS, expected, reply, self.now))

    def add(self, asker: Asker, *places: Place, who: str = "add", version: int = 2) -> None:
        reply = Named(who, self.answers)
        self._perform(self.shard.enlist(asker, list(places), reply, self.now, version=version))

    def verify(self, asker: Asker, *places: Place, who: str = "verify") -> None:
        self._perform(self.shard.verify(asker, list(places), Named(who, self.answers), self.now))

    def end(
        self, asker: Asker, *, committed: bool = True, is_newer: bool = True, who: str = "end"
    ) -> None:
        reply = Named(who, self.answers)
        self._perform(
            self.shard.end(asker, reply, self.now, committed=committed, is_newer=is_newer)
        )

    def write_markers(self) -> None:
        """All that are due become durable."""
        due, self.due = self.due, []
        for one in due:
            self._perform(self.shard.markers_written(one, self.now))

    def abort_timed_out(self) -> None:
        self._perform(self.shard.abort_timed_out(self.now))

    def remove_expired(self) -> None:
        self._perform(self.shard.remove_expired(self.now))

    def pass_ms(self, ms: int) -> None:
        """Time goes by, and who waits too long hears of it."""
        self.monotonic_ms += ms
        self._perform(self.shard.expire(self.now))

    def crash(self) -> None:
        """What is not in the records is gone, and nobody is answered."""
        self.due.clear()
        self.shard = self._new_shard()
        for record in self.records:
            self.shard.apply(record, self.now.wall_ms)
        self._perform(self.shard.loaded(self.now))

    def unload(self) -> None:
        self._perform(self.shard.unloaded(self.now))

    def answer(self) -> Any:
        """The only answer since the last call."""
        ((_, response),) = self.answers
        self.answers.clear()
        return response

    def producer(self, name: str = ID) -> Asker:
        """Who owns the id now."""
        known = self.shard.transactions[name]
        return Asker(name, known.producer_id, known.producer_epoch)

    def begun(self, *places: Place, version: int = 2, name: str = ID) -> Asker:
        """A producer that has begun a transaction in these partitions."""
        self.init(name=name)
        asker = self.producer(name)
        self.add(asker, *places, version=version)
        self.answers.clear()
        return asker

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(
            settings=lambda: self.settings,
            take_producer_id=self._take,
            send_markers=lambda _, due: self.due.append(due),
        )

    def _take(self) -> int:
        if self.are_ids_used_up:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self.next_producer_id += 1
        return self.next_producer_id

    def _perform(self, outcome: Outcome) -> None:
        self.records += outcome.records
        self.told += outcome.told
        for answer in outcome.answers:
            answer.leave()
        for what in outcome.due:
            what()
