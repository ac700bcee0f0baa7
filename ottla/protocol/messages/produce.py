"""Produce: records from a producer to the leaders of their partitions."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import ZERO_UUID, int16, int32, int64, uuid


class ProduceRequest(Message, key=0, versions="3-13", flexible="9+"):
    """Records for partitions that this broker leads; with acks=0 there is no answer. 9 is flexible,
    12 also enlists the partitions in the transaction (KIP-890), 13 has topic ids for names.
    """

    class PartitionProduceData(Struct):
        index: int32 = 0
        records: memoryview | None = None

    class TopicProduceData(Struct):
        name: str = field("", versions="3-12", ignorable=True)
        topic_id: uuid = field(ZERO_UUID, versions="13+", ignorable=True)
        partition_data: list[ProduceRequest.PartitionProduceData] = []

    transactional_id: str | None = None
    acks: int16 = 0
    timeout_ms: int32 = 0
    topic_data: list[TopicProduceData] = []


class ProduceResponse(Message, key=0, versions="3-13", flexible="9+"):
    """One result for each partition sent. 8 adds the reasons of refused records, 10 names the new
    leader (KIP-951).
    """

    class BatchIndexAndErrorMessage(Struct):
        batch_index: int32 = 0
        batch_index_error_message: str | None = None

    class LeaderIdAndEpoch(Struct):
        leader_id: int32 = -1
        leader_epoch: int32 = -1

    class PartitionProduceResponse(Struct):
        index: int32 = 0
        error_code: int16 = 0
        base_offset: int64 = 0
        log_append_time_ms: int64 = -1
        log_start_offset: int64 = field(-1, versions="5+", ignorable=True)
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = field(
            [], versions="8+", ignorable=True
        )
        error_message: str | None = field(None, versions="8+", ignorable=True)
        current_leader: ProduceResponse.LeaderIdAndEpoch = field(versions="10+", tag=0)

    class TopicProduceResponse(Struct):
        name: str = field("", versions="3-12", ignorable=True)
        topic_id: uuid = field(ZERO_UUID, versions="13+", ignorable=True)
        partition_responses: list[ProduceResponse.PartitionProduceResponse] = []

    class NodeEndpoint(Struct):
        node_id: int32 = 0
        host: str = ""
        port: int32 = 0
        rack: str | None = None

    responses: list[TopicProduceResponse] = []
    throttle_time_ms: int32 = 0
    node_endpoints: list[NodeEndpoint] = field([], versions="10+", tag=0)
