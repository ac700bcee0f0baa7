"""Fetch: records from a leader to consumers, and to the replicas that follow it."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import ZERO_UUID, Records, int8, int16, int32, int64, uuid


class FetchRequest(Message, key=1, versions="4-18", flexible="12+"):
    """Records from an offset on, by a consumer or a follower. 7 adds sessions, 9 the leader epoch
    that the client knows, 12 divergence by epoch, 13 topic ids for names; from 15 on a follower
    stands in the tag replica_state.
    """

    class ReplicaState(Struct):
        replica_id: int32 = -1
        replica_epoch: int64 = -1

    class FetchPartition(Struct):
        partition: int32 = 0
        current_leader_epoch: int32 = field(-1, versions="9+", ignorable=True)
        fetch_offset: int64 = 0
        last_fetched_epoch: int32 = field(-1, versions="12+")
        log_start_offset: int64 = field(-1, versions="5+", ignorable=True)
        partition_max_bytes: int32 = 0
        replica_directory_id: uuid = field(ZERO_UUID, versions="17+", tag=0, ignorable=True)
        high_watermark: int64 = field(9223372036854775807, versions="18+", tag=1, ignorable=True)

    class FetchTopic(Struct):
        topic: str = field("", versions="4-12", ignorable=True)
        topic_id: uuid = field(ZERO_UUID, versions="13+", ignorable=True)
        partitions: list[FetchRequest.FetchPartition] = []

    class ForgottenTopic(Struct):
        topic: str = field("", versions="7-12", ignorable=True)
        topic_id: uuid = field(ZERO_UUID, versions="13+", ignorable=True)
        partitions: list[int32] = []

    cluster_id: str | None = field(None, versions="12+", tag=0, ignorable=True)
    replica_id: int32 = field(-1, versions="4-14")
    replica_state: ReplicaState = field(versions="15+", tag=1)
    max_wait_ms: int32 = 0
    min_bytes: int32 = 0
    max_bytes: int32 = 2147483647
    isolation_level: int8 = 0
    session_id: int32 = field(0, versions="7+", ignorable=True)
    session_epoch: int32 = field(-1, versions="7+", ignorable=True)
    topics: list[FetchTopic] = []
    forgotten_topics_data: list[ForgottenTopic] = field([], versions="7+")
    rack_id: str = field("", versions="11+", ignorable=True)


class FetchResponse(Message, key=1, versions="4-18", flexible="12+"):
    """The batches of each partition as they stand in the log. 4 adds the last stable offset and
    aborted transactions, 11 the preferred replica, 12 the tags for divergence, leader and snapshot,
    16 the endpoints of new leaders.
    """

    class EpochEndOffset(Struct):
        epoch: int32 = -1
        end_offset: int64 = -1

    class LeaderIdAndEpoch(Struct):
        leader_id: int32 = -1
        leader_epoch: int32 = -1

    class SnapshotId(Struct):
        end_offset: int64 = -1
        epoch: int32 = -1

    class AbortedTransaction(Struct):
        producer_id: int64 = 0
        first_offset: int64 = 0

    class PartitionData(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        high_watermark: int64 = 0
        last_stable_offset: int64 = -1
        log_start_offset: int64 = field(-1, versions="5+", ignorable=True)
        diverging_epoch: FetchResponse.EpochEndOffset = field(versions="12+", tag=0)
        current_leader: FetchResponse.LeaderIdAndEpoch = field(versions="12+", tag=1)
        snapshot_id: FetchResponse.SnapshotId = field(versions="12+", tag=2)
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None = []
        preferred_read_replica: int32 = field(-1, versions="11+")
        records: Records | None = None

    class FetchableTopicResponse(Struct):
        topic: str = field("", versions="4-12", ignorable=True)
        topic_id: uuid = field(ZERO_UUID, versions="13+", ignorable=True)
        partitions: list[FetchResponse.PartitionData] = []

    class NodeEndpoint(Struct):
        node_id: int32 = 0
        host: str = ""
        port: int32 = 0
        rack: str | None = None

    throttle_time_ms: int32 = 0
    error_code: int16 = field(0, versions="7+", ignorable=True)
    session_id: int32 = field(0, versions="7+")
    responses: list[FetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = field([], versions="16+", tag=0)
