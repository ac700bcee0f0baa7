"""May a transaction be ended? The two protocols, which differ in what a repeated EndTxn looks like.

The older one keeps the producer's epoch, so a repeated request is known by the state alone, and
one that was delayed may end the transaction after its own. With the newer one (KIP-890) each end
raises the epoch: a repeated request has the epoch before, and a delayed one is fenced.

| state | older, its epoch | newer, its epoch: commit, abort | newer, the epoch before |
|---|---|---|---|
| EMPTY | INVALID_TXN_STATE | INVALID_TXN_STATE, begins | PRODUCER_FENCED |
| ONGOING | begins | begins | PRODUCER_FENCED |
| PREPARE_*, the same decision | CONCURRENT_TRANSACTIONS | CONCURRENT_TRANSACTIONS | the same |
| PREPARE_*, the other | INVALID_TXN_STATE | CONCURRENT_TRANSACTIONS | the same |
| COMPLETE_*, the same decision | is done | INVALID_TXN_STATE, begins | is done |
| COMPLETE_*, the other | INVALID_TXN_STATE | INVALID_TXN_STATE, begins | INVALID_TXN_STATE |
"""

from __future__ import annotations

from ottla.broker.coordinator.transaction.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ENDING,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
)
from ottla.broker.coordinator.transaction.transaction import EPOCH_MAX, Transaction
from ottla.protocol.errors import ErrorCode, KafkaError

_COMPLETE = (COMPLETE_COMMIT, COMPLETE_ABORT)
_DECIDED = {True: (PREPARE_COMMIT, COMPLETE_COMMIT), False: (PREPARE_ABORT, COMPLETE_ABORT)}


def begins_older(
    transaction: Transaction, producer_id: int, producer_epoch: int, *, committed: bool
) -> bool:
    """Whether this ends the transaction; False if it is ended so. Raises KafkaError."""
    if transaction.producer_id != producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if transaction.state is ONGOING:
        return True
    return _is_repeated(transaction, committed=committed)


def begins_newer(
    transaction: Transaction, producer_id: int, producer_epoch: int, *, committed: bool
) -> bool:
    """The same for a producer whose epoch each end raises."""
    if transaction.state in ENDING:
        # Its producer id and epoch may be about to change.
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if producer_epoch >= EPOCH_MAX:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)  # the last epoch fences and belongs to nobody
    is_former = (
        transaction.previous_producer_id == producer_id
        and producer_epoch == EPOCH_MAX - 1
        and transaction.producer_epoch == 0
    )
    if transaction.producer_id != producer_id and not is_former:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_repeated = is_former or transaction.producer_epoch == producer_epoch + 1
    if is_repeated and transaction.state in _COMPLETE:
        return _is_repeated(transaction, committed=committed)
    if is_former or transaction.producer_epoch != producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if committed and transaction.state is not ONGOING:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    return True


def _is_repeated(transaction: Transaction, *, committed: bool) -> bool:
    prepared, completed = _DECIDED[committed]
    if transaction.state is completed:
        return False
    if transaction.state is prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    raise KafkaError(ErrorCode.INVALID_TXN_STATE)
