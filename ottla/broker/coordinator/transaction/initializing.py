"""Which producer id and epoch an initialized transactional id gets (KIP-360, KIP-890)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.coordinator.transaction.transaction import NO_EPOCH, Transaction, is_exhausted
from ottla.protocol.errors import ErrorCode, KafkaError


class Expected(NamedTuple):
    """Who a producer says it has been, when it asks for another epoch."""

    producer_id: int
    epoch: int


class NextProducer(NamedTuple):
    """`last_epoch` may ask for this one again, for its answer may have been lost."""

    producer_id: int
    epoch: int
    last_epoch: int


def check_epoch(transaction: Transaction, expected: Expected | None) -> None:
    """PRODUCER_FENCED unless it is its producer that asks, or nobody says who asks."""
    if expected is None or expected == (transaction.producer_id, transaction.producer_epoch):
        return
    is_former = expected.producer_id == transaction.previous_producer_id and is_exhausted(
        expected.epoch
    )
    is_same = expected.producer_id == transaction.producer_id
    if expected.epoch != transaction.last_epoch or not (is_same or is_former):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


def next_producer(
    transaction: Transaction, expected: Expected | None, take_producer_id: Callable[[], int]
) -> NextProducer:
    """The next epoch, the first one of another id if there is none left, or what was given before
    if that is asked for again. `check_epoch` has passed."""
    epoch = transaction.producer_epoch
    if expected is not None and expected.epoch != epoch:
        return NextProducer(transaction.producer_id, epoch, transaction.last_epoch)
    last_epoch = NO_EPOCH if expected is None else epoch
    if transaction.is_exhausted:
        return NextProducer(take_producer_id(), 0, last_epoch)
    return NextProducer(transaction.producer_id, epoch + 1, last_epoch)
