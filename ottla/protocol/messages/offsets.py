"""Offsets of a partition: by time, by leader epoch, and the new start after deletion."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import int8, int16, int32, int64


class ListOffsetsRequest(Message, key=2, versions="1-11", flexible="6+"):
    """The offset at a time, or at a special point: -1 the end, -2 the beginning, -3 the greatest
    timestamp (7), -4 the local beginning (8), -5 the last tiered (9), -6 the earliest not yet
    tiered (11). 2 adds the isolation level, 10 the timeout.
    """

    class ListOffsetsPartition(Struct):
        partition_index: int32 = 0
        current_leader_epoch: int32 = field(-1, versions="4+", ignorable=True)
        timestamp: int64 = 0

    class ListOffsetsTopic(Struct):
        name: str = ""
        partitions: list[ListOffsetsRequest.ListOffsetsPartition] = []

    replica_id: int32 = 0
    isolation_level: int8 = field(0, versions="2+")
    topics: list[ListOffsetsTopic] = []
    timeout_ms: int32 = field(0, versions="10+", ignorable=True)


class ListOffsetsResponse(Message, key=2, versions="1-11", flexible="6+"):
    """The offset and timestamp found, -1 for none. 4 adds the leader epoch."""

    class ListOffsetsPartitionResponse(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        timestamp: int64 = -1
        offset: int64 = -1
        leader_epoch: int32 = field(-1, versions="4+")

    class ListOffsetsTopicResponse(Struct):
        name: str = ""
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = []

    throttle_time_ms: int32 = field(0, versions="2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = []


class OffsetForLeaderEpochRequest(Message, key=23, versions="2-4", flexible="4+"):
    """Where did this leader epoch end? Asked by followers and consumers who look for the point of
    divergence (KIP-320).
    """

    class OffsetForLeaderPartition(Struct):
        partition: int32 = 0
        current_leader_epoch: int32 = -1
        leader_epoch: int32 = 0

    class OffsetForLeaderTopic(Struct):
        topic: str = ""
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = []

    replica_id: int32 = field(-2, versions="3+", ignorable=True)
    topics: list[OffsetForLeaderTopic] = []


class OffsetForLeaderEpochResponse(Message, key=23, versions="2-4", flexible="4+"):
    """The largest epoch known up to the one asked for, and its end; -1 for both when unknown."""

    class EpochEndOffset(Struct):
        error_code: int16 = 0
        partition: int32 = 0
        leader_epoch: int32 = -1
        end_offset: int64 = -1

    class OffsetForLeaderTopicResult(Struct):
        topic: str = ""
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset] = []

    throttle_time_ms: int32 = 0
    topics: list[OffsetForLeaderTopicResult] = []


class DeleteRecordsRequest(Message, key=21, versions="0-2", flexible="2+"):
    """Move the beginning of partitions up to an offset; -1 is the high watermark."""

    class DeleteRecordsPartition(Struct):
        partition_index: int32 = 0
        offset: int64 = 0

    class DeleteRecordsTopic(Struct):
        name: str = ""
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition] = []

    topics: list[DeleteRecordsTopic] = []
    timeout_ms: int32 = 0


class DeleteRecordsResponse(Message, key=21, versions="0-2", flexible="2+"):
    """The new beginning of each partition."""

    class DeleteRecordsPartitionResult(Struct):
        partition_index: int32 = 0
        low_watermark: int64 = 0
        error_code: int16 = 0

    class DeleteRecordsTopicResult(Struct):
        name: str = ""
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult] = []

    throttle_time_ms: int32 = 0
    topics: list[DeleteRecordsTopicResult] = []
