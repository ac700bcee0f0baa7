"""Is a partition in the transaction in which somebody writes to it (KIP-890)?

The coordinator knows: the newer protocol has a partition added by writing to it, the older one has
had it added before. A log where the producer's transaction is open need not ask again; offsets
always do, for they wait with others before they are in their log. The answer waits until the
coordinator's records are durable, and with it what is to be written: a transaction that nobody
knows of would never end. What comes meanwhile for the same partition of the same producer waits
behind it, in its order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.coordinator.transaction.shard import NEWER, Asker, Enlisted
from ottla.broker.replication.replicas import Partition
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.coordinator.transaction.coordinator import TransactionCoordinator

Then = Callable[[ErrorCode], None]
_Key = tuple[Partition, int]
_Waiting = tuple[Asker, bool, Then]

ASK_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""What the coordinator may say that will pass."""


class Enlisting:
    """Whoever waits for the coordinator's word; one per broker."""

    __slots__ = ("_coordinator", "_waiting")

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator
        self._waiting: dict[_Key, list[_Waiting]] = {}

    def __repr__(self) -> str:
        return f"<Enlisting waiting={len(self._waiting)}>"

    def is_open(self, partition: Partition, asker: Asker) -> bool:
        """Whether a batch may be written to the partition's log at once."""
        return (partition, asker.producer_id) not in self._waiting and _is_open(partition, asker)

    def may_write(self, partition: Partition, asker: Asker) -> bool:
        """The same of a batch that has waited elsewhere since it was admitted."""
        return _is_open(partition, asker) or self._is_held(partition, asker)

    def admit(self, asker: Asker, wanted: list[tuple[Partition, Then]], *, adds: bool) -> None:
        """Asks the coordinator, once for all of them. Calls each with NONE when its partition is in
        the transaction, at once or later but in the order of the calls for this partition, or with
        the coordinator's error."""
        asked: list[Partition] = []
        for partition, then in wanted:
            waiting = self._waiting.get((partition, asker.producer_id))
            if waiting is None:
                waiting = self._waiting[partition, asker.producer_id] = []
                asked.append(partition)
            waiting.append((asker, adds, then))
        if not asked:
            return
        told = _Told(self, asked, asker, adds=adds)
        try:
            runner, shard = self._coordinator.runner(asker.transactional_id)
        except KafkaError as error:
            told.complete(Enlisted([error.code] * len(asked)))
            return
        places = [(partition.topic, partition.index) for partition in asked]
        if adds:
            outcome = shard.enlist(asker, places, told, runner.now(), version=NEWER)
        else:
            outcome = shard.verify(asker, places, told, runner.now())
        runner.perform(outcome)

    def told(self, partition: Partition, asker: Asker, code: ErrorCode, *, adds: bool) -> None:
        """The coordinator has answered: lets go whoever waits."""
        for other, other_adds, then in self._waiting.pop((partition, asker.producer_id)):
            if (other, other_adds) != (asker, adds):
                self.admit(other, [(partition, then)], adds=other_adds)
            elif code or self._is_held(partition, asker):
                then(code)
            else:
                then(ErrorCode.CONCURRENT_TRANSACTIONS)  # it was ended before this could be told

    def _is_held(self, partition: Partition, asker: Asker) -> bool:
        try:
            _, shard = self._coordinator.runner(asker.transactional_id)
        except KafkaError:
            return False
        return shard.holds(asker, (partition.topic, partition.index))


class _Told:
    """Hears the coordinator's answer."""

    __slots__ = ("_adds", "_asked", "_asker", "_enlisting")

    def __init__(
        self, enlisting: Enlisting, asked: list[Partition], asker: Asker, *, adds: bool
    ) -> None:
        self._enlisting = enlisting
        self._asked = asked
        self._asker = asker
        self._adds = adds

    def complete(self, enlisted: Enlisted) -> None:
        for partition, code in zip(self._asked, enlisted.codes, strict=True):
            self._enlisting.told(partition, self._asker, code, adds=self._adds)


def _is_open(partition: Partition, asker: Asker) -> bool:
    producer = partition.log.producer_state.producers.get(asker.producer_id)
    return (
        producer is not None
        and producer.transaction_start is not None
        and producer.epoch == asker.producer_epoch
    )
