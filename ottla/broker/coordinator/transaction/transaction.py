"""What is known of one transactional id: its producer, and its transaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.broker.coordinator.transaction.states import EMPTY, TransactionState
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.coordinator_records import TransactionLogValue

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 2**15 - 1
NO_START = -1

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(slots=True)
class Transaction:
    """Times are wall milliseconds. `next_producer_id` is what the producer goes on with when this
    transaction is ended, if its epochs are used up; `client_version` is 2 if the client that wrote
    it last takes a new epoch with each transaction (KIP-890)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: dict[Place, None] = field(default_factory=dict)
    started_ms: int = NO_START
    updated_ms: int = 0
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    last_epoch: int = NO_EPOCH
    """The epoch before this one, if who has it may ask for this one again. Not written, as in
    Kafka: after a restart such a producer is fenced."""

    @property
    def is_exhausted(self) -> bool:
        """Whether no producer may have a higher epoch: the last one is kept for fencing."""
        return is_exhausted(self.producer_epoch)

    @classmethod
    def from_value(cls, transactional_id: str, value: TransactionLogValue) -> Transaction:
        """Raises CORRUPT_MESSAGE for a state that is none."""
        try:
            state = TransactionState(value.transaction_status)
        except ValueError:
            reason = f"{transactional_id!r} is in state {value.transaction_status}, which is none."
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, reason) from None
        places = {
            (topic.topic, index): None
            for topic in value.transaction_partitions or ()
            for index in topic.partition_ids
        }
        return cls(
            transactional_id,
            value.producer_id,
            value.producer_epoch,
            value.transaction_timeout_ms,
            state,
            places,
            value.transaction_start_timestamp_ms,
            value.transaction_last_update_timestamp_ms,
            value.previous_producer_id,
            value.next_producer_id,
            value.client_transaction_version,
        )

    def to_value(self, *, is_flexible: bool) -> TransactionLogValue:
        """Null partitions say that nothing was ever added, as in Kafka. A value that is not
        flexible, of before transaction.version 1, has no place for what only the newer protocol
        needs."""
        by_topic = grouped(self.partitions)
        schema = TransactionLogValue.PartitionsSchema
        value = TransactionLogValue(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=int(self.state),
            transaction_partitions=None
            if self.state is EMPTY
            else [schema(topic, indexes) for topic, indexes in by_topic.items()],
            transaction_last_update_timestamp_ms=self.updated_ms,
            transaction_start_timestamp_ms=self.started_ms,
        )
        if is_flexible:
            value.previous_producer_id = self.previous_producer_id
            value.next_producer_id = self.next_producer_id
            value.client_transaction_version = self.client_version
        return value


def is_exhausted(epoch: int) -> bool:
    return epoch >= EPOCH_MAX - 1


def grouped(places: Iterable[Place]) -> dict[str, list[int]]:
    """Topic -> partitions, in the order in which they came."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in places:
        by_topic.setdefault(topic, []).append(index)
    return by_topic
