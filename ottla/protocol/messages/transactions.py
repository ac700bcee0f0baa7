"""Transactions: enlisting partitions and offsets, ending, markers, inspection."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import int8, int16, int32, int64


class AddPartitionsToTxnRequest(Message, key=24, versions="0-5", flexible="3+"):
    """Enlist partitions in a transaction. From 4 on brokers ask in batches, also only to verify."""

    class AddPartitionsToTxnTopic(Struct):
        name: str = ""
        partitions: list[int32] = []

    class AddPartitionsToTxnTransaction(Struct):
        transactional_id: str = ""
        producer_id: int64 = 0
        producer_epoch: int16 = 0
        verify_only: bool = False
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = []

    transactions: list[AddPartitionsToTxnTransaction] = field([], versions="4+")
    v3_and_below_transactional_id: str = field("", versions="0-3")
    v3_and_below_producer_id: int64 = field(0, versions="0-3")
    v3_and_below_producer_epoch: int16 = field(0, versions="0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field([], versions="0-3")


class AddPartitionsToTxnResponse(Message, key=24, versions="0-5", flexible="3+"):
    """The answer to AddPartitionsToTxn."""

    class AddPartitionsToTxnPartitionResult(Struct):
        partition_index: int32 = 0
        partition_error_code: int16 = 0

    class AddPartitionsToTxnTopicResult(Struct):
        name: str = ""
        results_by_partition: list[
            AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
        ] = []

    class AddPartitionsToTxnResult(Struct):
        transactional_id: str = ""
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = []

    throttle_time_ms: int32 = 0
    error_code: int16 = field(0, versions="4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field([], versions="4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field([], versions="0-3")


class AddOffsetsToTxnRequest(Message, key=25, versions="0-4", flexible="3+"):
    """Enlist the offsets of a group in a transaction."""

    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    group_id: str = ""


class AddOffsetsToTxnResponse(Message, key=25, versions="0-4", flexible="3+"):
    """The answer to AddOffsetsToTxn."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0


class EndTxnRequest(Message, key=26, versions="0-5", flexible="3+"):
    """Commit or abort."""

    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    committed: bool = False


class EndTxnResponse(Message, key=26, versions="0-5", flexible="3+"):
    """5 brings the producer id and the raised epoch for the next transaction (KIP-890)."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = field(-1, versions="5+", ignorable=True)
    producer_epoch: int16 = field(-1, versions="5+", ignorable=True)


class WriteTxnMarkersRequest(Message, key=27, versions="1-2", flexible="1+"):
    """The decision of a coordinator, for the leaders of the enlisted partitions. 2 adds the version
    of the transaction protocol.
    """

    class WritableTxnMarkerTopic(Struct):
        name: str = ""
        partition_indexes: list[int32] = []

    class WritableTxnMarker(Struct):
        producer_id: int64 = 0
        producer_epoch: int16 = 0
        transaction_result: bool = False
        topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic] = []
        coordinator_epoch: int32 = 0
        transaction_version: int8 = field(0, versions="2+", ignorable=True)

    markers: list[WritableTxnMarker] = []


class WriteTxnMarkersResponse(Message, key=27, versions="1-2", flexible="1+"):
    """The answer to WriteTxnMarkers."""

    class WritableTxnMarkerPartitionResult(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0

    class WritableTxnMarkerTopicResult(Struct):
        name: str = ""
        partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = []

    class WritableTxnMarkerResult(Struct):
        producer_id: int64 = 0
        topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = []

    markers: list[WritableTxnMarkerResult] = []


class TxnOffsetCommitRequest(Message, key=28, versions="0-5", flexible="3+"):
    """Commit offsets of a group as a part of a transaction. 3 checks member and generation, 5 also
    enlists the group.
    """

    class TxnOffsetCommitRequestPartition(Struct):
        partition_index: int32 = 0
        committed_offset: int64 = 0
        committed_leader_epoch: int32 = field(-1, versions="2+", ignorable=True)
        committed_metadata: str | None = ""

    class TxnOffsetCommitRequestTopic(Struct):
        name: str = ""
        partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = []

    transactional_id: str = ""
    group_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    generation_id: int32 = field(-1, versions="3+")
    member_id: str = field("", versions="3+")
    group_instance_id: str | None = field(None, versions="3+")
    topics: list[TxnOffsetCommitRequestTopic] = []


class TxnOffsetCommitResponse(Message, key=28, versions="0-5", flexible="3+"):
    """The answer to TxnOffsetCommit."""

    class TxnOffsetCommitResponsePartition(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0

    class TxnOffsetCommitResponseTopic(Struct):
        name: str = ""
        partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = []

    throttle_time_ms: int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = []


class DescribeTransactionsRequest(Message, key=65, versions="0", flexible="0+"):
    """State of transactions and the partitions enlisted."""

    transactional_ids: list[str] = []


class DescribeTransactionsResponse(Message, key=65, versions="0", flexible="0+"):
    """The answer to DescribeTransactions."""

    class TopicData(Struct):
        topic: str = ""
        partitions: list[int32] = []

    class TransactionState(Struct):
        error_code: int16 = 0
        transactional_id: str = ""
        transaction_state: str = ""
        transaction_timeout_ms: int32 = 0
        transaction_start_time_ms: int64 = 0
        producer_id: int64 = 0
        producer_epoch: int16 = 0
        topics: list[DescribeTransactionsResponse.TopicData] = []

    throttle_time_ms: int32 = 0
    transaction_states: list[TransactionState] = []


class ListTransactionsRequest(Message, key=66, versions="0-2", flexible="0+"):
    """Transactions of this coordinator. 1 filters by age, 2 by a pattern of transactional ids."""

    state_filters: list[str] = []
    producer_id_filters: list[int64] = []
    duration_filter: int64 = field(-1, versions="1+")
    transactional_id_pattern: str | None = field(None, versions="2+")


class ListTransactionsResponse(Message, key=66, versions="0-2", flexible="0+"):
    """The answer to ListTransactions."""

    class TransactionState(Struct):
        transactional_id: str = ""
        producer_id: int64 = 0
        transaction_state: str = ""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    unknown_state_filters: list[str] = []
    transaction_states: list[TransactionState] = []
