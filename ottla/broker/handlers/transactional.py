"""What Produce asks of a batch that is written in a transaction."""

from __future__ import annotations

from ottla.broker.coordinator.transaction.shard import Asker
from ottla.broker.handlers.context import Rooms
from ottla.broker.handlers.enlisting import ASK_AGAIN, Then
from ottla.broker.log.validation import RefusedBatch
from ottla.broker.replication.replicas import Partition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.records.batch import HEADER_SIZE, TRANSACTIONAL, read_header

ABORTABLE_SINCE_VERSION = 11
ADDS_SINCE_VERSION = 12
"""A partition that is not in the transaction comes to be in it (KIP-890)."""

Admission = tuple[Asker, Partition, Then]
"""Who wants to write where, and what hears of it."""

MIXED = "Transactional records contained more than one producer ID"
NOT_ADDED = "Partition was not added to the transaction"
NOT_VERIFIED = "Unable to verify the partition has been added to the transaction."


def asker(transactional_id: str, records: memoryview | None) -> Asker | None:
    """Who writes a transactional batch; None of what is none."""
    if records is None or len(records) < HEADER_SIZE:
        return None
    header = read_header(records)
    if not header.attributes & TRANSACTIONAL or header.producer_id < 0:
        return None
    return Asker(transactional_id, header.producer_id, header.producer_epoch)


def refusal(request: ProduceRequest) -> KafkaError | None:
    """A request is one producer's."""
    if request.transactional_id is None:
        return None
    known = {
        asker(request.transactional_id, data.records)
        for topic in request.topic_data
        for data in topic.partition_data
    }
    if len(known - {None}) > 1:
        return KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, MIXED)
    return None


def must_ask(rooms: Rooms, partition: Partition, asker: Asker, version: int) -> bool:
    """Whether the coordinator is to be asked before the batch is written; of one whose epoch is
    over the log knows enough."""
    if _is_over(partition, asker) or rooms.enlisting.is_open(partition, asker):
        return False
    return version >= ADDS_SINCE_VERSION or rooms.config.transaction_partition_verification_enable


def admit(rooms: Rooms, admissions: list[Admission], version: int) -> None:
    """Asks for all partitions of a request together: all batches are of one producer."""
    wanted = [(partition, then) for _, partition, then in admissions]
    rooms.enlisting.admit(admissions[0][0], wanted, adds=version >= ADDS_SINCE_VERSION)


def check(
    rooms: Rooms, partition: Partition, asker: Asker, records: memoryview, version: int
) -> None:
    """Whether a batch may be written here and now: raises KafkaError if its transaction has been
    ended while it waited, for a conversion perhaps.

    With the newer protocol the first batch in a partition begins at 0: each transaction has an
    epoch of its own.
    """
    adds = version >= ADDS_SINCE_VERSION
    is_known = asker.producer_id in partition.log.producer_state.producers
    if adds and not is_known and read_header(records).base_sequence:
        gap = RefusedBatch(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        gap.log_start_offset = partition.log.log_start_offset
        raise gap
    verifies = adds or rooms.config.transaction_partition_verification_enable
    # Of an epoch that is over the log says so itself.
    if (
        verifies
        and not _is_over(partition, asker)
        and not rooms.enlisting.may_write(partition, asker)
    ):
        raise refused(ErrorCode.CONCURRENT_TRANSACTIONS, version)


def _is_over(partition: Partition, asker: Asker) -> bool:
    """Whether the log knows a later epoch of the producer."""
    producer = partition.log.producer_state.producers.get(asker.producer_id)
    return producer is not None and asker.producer_epoch < producer.epoch


def refused(code: ErrorCode, version: int) -> KafkaError:
    """What the coordinator has answered, by a name at which every client does the right thing: at
    NOT_ENOUGH_REPLICAS all of them send the batch again, and nothing else."""
    if code is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE_VERSION:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, NOT_ADDED)
    if code in ASK_AGAIN:
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"{NOT_VERIFIED} Underlying error: {code.name}"
        )
    return KafkaError(code)
