"""The records of __transaction_state: one per transactional id; a null value forgets it."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.coordinator.record_format import RecordFormat
from ottla.broker.coordinator.transaction.shard import FLEXIBLE
from ottla.protocol.messages.coordinator_records import TransactionLogKey, TransactionLogValue
from ottla.protocol.records.batch import NO_SEQUENCE


def transaction_records(level: Callable[[], int]) -> RecordFormat:
    """`level` is the finalized transaction.version; below 1 a value has no tagged fields."""
    return RecordFormat(
        {0: (TransactionLogKey, TransactionLogValue)},
        lambda value: 1 if level() >= FLEXIBLE else 0,
        base_sequence=NO_SEQUENCE,
    )
