"""Producer ids: handing them out, and what a partition knows of its producers."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import int16, int32, int64


class InitProducerIdRequest(Message, key=22, versions="0-6", flexible="2+"):
    """A producer id, for idempotence alone or for a transactional id, whose earlier producers it
    fences. 3 lets a producer keep its id with a new epoch; 6, not yet stable, is for two-phase
    commit.
    """

    transactional_id: str | None = ""
    transaction_timeout_ms: int32 = 0
    producer_id: int64 = field(-1, versions="3+")
    producer_epoch: int16 = field(-1, versions="3+")
    enable2_pc: bool = field(False, versions="6+")
    keep_prepared_txn: bool = field(False, versions="6+")


class InitProducerIdResponse(Message, key=22, versions="0-6", flexible="2+"):
    """The answer to InitProducerId."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = -1
    producer_epoch: int16 = 0
    ongoing_txn_producer_id: int64 = field(-1, versions="6+")
    ongoing_txn_producer_epoch: int16 = field(-1, versions="6+")


class AllocateProducerIdsRequest(Message, key=67, versions="0", flexible="0+"):
    """A block of producer ids, asked of the controller by a broker."""

    broker_id: int32 = 0
    broker_epoch: int64 = -1


class AllocateProducerIdsResponse(Message, key=67, versions="0", flexible="0+"):
    """The answer to AllocateProducerIds."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id_start: int64 = 0
    producer_id_len: int32 = 0


class DescribeProducersRequest(Message, key=61, versions="0", flexible="0+"):
    """The producers that partitions know, with their last sequence and open transaction."""

    class TopicRequest(Struct):
        name: str = ""
        partition_indexes: list[int32] = []

    topics: list[TopicRequest] = []


class DescribeProducersResponse(Message, key=61, versions="0", flexible="0+"):
    """The answer to DescribeProducers."""

    class ProducerState(Struct):
        producer_id: int64 = 0
        producer_epoch: int32 = 0
        last_sequence: int32 = -1
        last_timestamp: int64 = -1
        coordinator_epoch: int32 = 0
        current_txn_start_offset: int64 = -1

    class PartitionResponse(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        error_message: str | None = None
        active_producers: list[DescribeProducersResponse.ProducerState] = []

    class TopicResponse(Struct):
        name: str = ""
        partitions: list[DescribeProducersResponse.PartitionResponse] = []

    throttle_time_ms: int32 = 0
    topics: list[TopicResponse] = []
