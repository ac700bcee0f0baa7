"""The metadata quorum: elections, snapshots, voters."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import ZERO_UUID, Records, int16, int32, int64, uint16, uuid


class VoteRequest(Message, key=52, versions="0-2", flexible="0+"):
    """A candidate asks for a vote. 1 adds the directory ids of voters, 2 the question beforehand
    whether an election could be won (PreVote).
    """

    class PartitionData(Struct):
        partition_index: int32 = 0
        replica_epoch: int32 = 0
        replica_id: int32 = 0
        replica_directory_id: uuid = field(ZERO_UUID, versions="1+", ignorable=True)
        voter_directory_id: uuid = field(ZERO_UUID, versions="1+", ignorable=True)
        last_offset_epoch: int32 = 0
        last_offset: int64 = 0
        pre_vote: bool = field(False, versions="2+")

    class TopicData(Struct):
        topic_name: str = ""
        partitions: list[VoteRequest.PartitionData] = []

    cluster_id: str | None = None
    voter_id: int32 = field(-1, versions="1+", ignorable=True)
    topics: list[TopicData] = []


class VoteResponse(Message, key=52, versions="0-2", flexible="0+"):
    """The answer to Vote."""

    class PartitionData(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        leader_id: int32 = 0
        leader_epoch: int32 = 0
        vote_granted: bool = False

    class TopicData(Struct):
        topic_name: str = ""
        partitions: list[VoteResponse.PartitionData] = []

    class NodeEndpoint(Struct):
        node_id: int32 = 0
        host: str = ""
        port: uint16 = 0

    error_code: int16 = 0
    topics: list[TopicData] = []
    node_endpoints: list[NodeEndpoint] = field([], versions="1+", tag=0)


class BeginQuorumEpochRequest(Message, key=53, versions="0-1", flexible="1+"):
    """The new leader makes itself known to the voters. 1 adds its endpoints."""

    class PartitionData(Struct):
        partition_index: int32 = 0
        voter_directory_id: uuid = field(ZERO_UUID, versions="1+", ignorable=True)
        leader_id: int32 = 0
        leader_epoch: int32 = 0

    class TopicData(Struct):
        topic_name: str = ""
        partitions: list[BeginQuorumEpochRequest.PartitionData] = []

    class LeaderEndpoint(Struct):
        name: str = ""
        host: str = ""
        port: uint16 = 0

    cluster_id: str | None = None
    voter_id: int32 = field(-1, versions="1+", ignorable=True)
    topics: list[TopicData] = []
    leader_endpoints: list[LeaderEndpoint] = field([], versions="1+", ignorable=True)


class BeginQuorumEpochResponse(Message, key=53, versions="0-1", flexible="1+"):
    """The answer to BeginQuorumEpoch."""

    class PartitionData(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        leader_id: int32 = 0
        leader_epoch: int32 = 0

    class TopicData(Struct):
        topic_name: str = ""
        partitions: list[BeginQuorumEpochResponse.PartitionData] = []

    class NodeEndpoint(Struct):
        node_id: int32 = 0
        host: str = ""
        port: uint16 = 0

    error_code: int16 = 0
    topics: list[TopicData] = []
    node_endpoints: list[NodeEndpoint] = field([], versions="1+", tag=0)


class EndQuorumEpochRequest(Message, key=54, versions="0-1", flexible="1+"):
    """The leader resigns and names who should follow. 1 adds directory ids and endpoints."""

    class ReplicaInfo(Struct):
        candidate_id: int32 = 0
        candidate_directory_id: uuid = ZERO_UUID

    class PartitionData(Struct):
        partition_index: int32 = 0
        leader_id: int32 = 0
        leader_epoch: int32 = 0
        preferred_successors: list[int32] = field([], versions="0", ignorable=True)
        preferred_candidates: list[EndQuorumEpochRequest.ReplicaInfo] = field(
            [], versions="1+", ignorable=True
        )

    class TopicData(Struct):
        topic_name: str = ""
        partitions: list[EndQuorumEpochRequest.PartitionData] = []

    class LeaderEndpoint(Struct):
        name: str = ""
        host: str = ""
        port: uint16 = 0

    cluster_id: str | None = None
    topics: list[TopicData] = []
    leader_endpoints: list[LeaderEndpoint] = field([], versions="1+", ignorable=True)


class EndQuorumEpochResponse(Message, key=54, versions="0-1", flexible="1+"):
    """The answer to EndQuorumEpoch."""

    class PartitionData(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        leader_id: int32 = 0
        leader_epoch: int32 = 0

    class TopicData(Struct):
        topic_name: str = ""
        partitions: list[EndQuorumEpochResponse.PartitionData] = []

    class NodeEndpoint(Struct):
        node_id: int32 = 0
        host: str = ""
        port: uint16 = 0

    error_code: int16 = 0
    topics: list[TopicData] = []
    node_endpoints: list[NodeEndpoint] = field([], versions="1+", tag=0)


class DescribeQuorumRequest(Message, key=55, versions="0-2", flexible="0+"):
    """Leader, voters and observers of the metadata log, as the leader sees them."""

    class PartitionData(Struct):
        partition_index: int32 = 0

    class TopicData(Struct):
        topic_name: str = ""
        partitions: list[DescribeQuorumRequest.PartitionData] = []

    topics: list[TopicData] = []


class DescribeQuorumResponse(Message, key=55, versions="0-2", flexible="0+"):
    """1 adds when each replica last fetched and was caught up, 2 directory ids, messages and the
    endpoints of the nodes.
    """

    class ReplicaState(Struct):
        replica_id: int32 = 0
        replica_directory_id: uuid = field(ZERO_UUID, versions="2+")
        log_end_offset: int64 = 0
        last_fetch_timestamp: int64 = field(-1, versions="1+", ignorable=True)
        last_caught_up_timestamp: int64 = field(-1, versions="1+", ignorable=True)

    class PartitionData(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        error_message: str | None = field("", versions="2+", ignorable=True)
        leader_id: int32 = 0
        leader_epoch: int32 = 0
        high_watermark: int64 = 0
        current_voters: list[DescribeQuorumResponse.ReplicaState] = []
        observers: list[DescribeQuorumResponse.ReplicaState] = []

    class TopicData(Struct):
        topic_name: str = ""
        partitions: list[DescribeQuorumResponse.PartitionData] = []

    class Listener(Struct):
        name: str = ""
        host: str = ""
        port: uint16 = 0

    class Node(Struct):
        node_id: int32 = 0
        listeners: list[DescribeQuorumResponse.Listener] = []

    error_code: int16 = 0
    error_message: str | None = field("", versions="2+", ignorable=True)
    topics: list[TopicData] = []
    nodes: list[Node] = field([], versions="2+")


class FetchSnapshotRequest(Message, key=59, versions="0-1", flexible="0+"):
    """A part of a snapshot, from a byte position on."""

    class SnapshotId(Struct):
        end_offset: int64 = 0
        epoch: int32 = 0

    class PartitionSnapshot(Struct):
        partition: int32 = 0
        current_leader_epoch: int32 = 0
        snapshot_id: FetchSnapshotRequest.SnapshotId = field()
        position: int64 = 0
        replica_directory_id: uuid = field(ZERO_UUID, versions="1+", tag=0, ignorable=True)

    class TopicSnapshot(Struct):
        name: str = ""
        partitions: list[FetchSnapshotRequest.PartitionSnapshot] = []

    cluster_id: str | None = field(None, tag=0)
    replica_id: int32 = -1
    max_bytes: int32 = 2147483647
    topics: list[TopicSnapshot] = []


class FetchSnapshotResponse(Message, key=59, versions="0-1", flexible="0+"):
    """Bytes of the snapshot, at whatever record boundary they end."""

    class SnapshotId(Struct):
        end_offset: int64 = 0
        epoch: int32 = 0

    class LeaderIdAndEpoch(Struct):
        leader_id: int32 = 0
        leader_epoch: int32 = 0

    class PartitionSnapshot(Struct):
        index: int32 = 0
        error_code: int16 = 0
        snapshot_id: FetchSnapshotResponse.SnapshotId = field()
        current_leader: FetchSnapshotResponse.LeaderIdAndEpoch = field(tag=0)
        size: int64 = 0
        position: int64 = 0
        unaligned_records: Records = b""

    class TopicSnapshot(Struct):
        name: str = ""
        partitions: list[FetchSnapshotResponse.PartitionSnapshot] = []

    class NodeEndpoint(Struct):
        node_id: int32 = 0
        host: str = ""
        port: uint16 = 0

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    topics: list[TopicSnapshot] = []
    node_endpoints: list[NodeEndpoint] = field([], versions="1+", tag=0)


class AddRaftVoterRequest(Message, key=80, versions="0-1", flexible="0+"):
    """Add a voter to the quorum. 1 may be answered before the change is committed."""

    class Listener(Struct):
        name: str = ""
        host: str = ""
        port: uint16 = 0

    cluster_id: str | None = ""
    timeout_ms: int32 = 0
    voter_id: int32 = 0
    voter_directory_id: uuid = ZERO_UUID
    listeners: list[Listener] = []
    ack_when_committed: bool = field(True, versions="1+")


class AddRaftVoterResponse(Message, key=80, versions="0-1", flexible="0+"):
    """The answer to AddRaftVoter."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""


class RemoveRaftVoterRequest(Message, key=81, versions="0", flexible="0+"):
    """Remove a voter from the quorum."""

    cluster_id: str | None = ""
    voter_id: int32 = 0
    voter_directory_id: uuid = ZERO_UUID


class RemoveRaftVoterResponse(Message, key=81, versions="0", flexible="0+"):
    """The answer to RemoveRaftVoter."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""


class UpdateRaftVoterRequest(Message, key=82, versions="0", flexible="0+"):
    """A voter tells its endpoints and the versions of the protocol that it knows."""

    class Listener(Struct):
        name: str = ""
        host: str = ""
        port: uint16 = 0

    class KRaftVersionFeature(Struct):
        min_supported_version: int16 = 0
        max_supported_version: int16 = 0

    cluster_id: str | None = ""
    current_leader_epoch: int32 = 0
    voter_id: int32 = 0
    voter_directory_id: uuid = ZERO_UUID
    listeners: list[Listener] = []
    kraft_version_feature: KRaftVersionFeature = field()


class UpdateRaftVoterResponse(Message, key=82, versions="0", flexible="0+"):
    """The answer to UpdateRaftVoter."""

    class CurrentLeader(Struct):
        leader_id: int32 = -1
        leader_epoch: int32 = -1
        host: str = ""
        port: int32 = 0

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    current_leader: CurrentLeader = field(tag=0)
