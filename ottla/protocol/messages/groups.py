"""Classic groups: membership, offsets, and the formats that members exchange in them."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import ZERO_UUID, int8, int16, int32, int64, uuid


class FindCoordinatorRequest(Message, key=10, versions="0-6", flexible="3+"):
    """Which broker coordinates a group (0), a transactional id (1) or, from 6 on, a share partition
    (2). 4 asks for several keys at once.
    """

    key: str = field("", versions="0-3")
    key_type: int8 = field(0, versions="1+")
    coordinator_keys: list[str] = field([], versions="4+")


class FindCoordinatorResponse(Message, key=10, versions="0-6", flexible="3+"):
    """The answer to FindCoordinator."""

    class Coordinator(Struct):
        key: str = ""
        node_id: int32 = 0
        host: str = ""
        port: int32 = 0
        error_code: int16 = 0
        error_message: str | None = ""

    throttle_time_ms: int32 = field(0, versions="1+", ignorable=True)
    error_code: int16 = field(0, versions="0-3")
    error_message: str | None = field("", versions="1-3", ignorable=True)
    node_id: int32 = field(0, versions="0-3")
    host: str = field("", versions="0-3")
    port: int32 = field(0, versions="0-3")
    coordinators: list[Coordinator] = field([], versions="4+")


class JoinGroupRequest(Message, key=11, versions="0-9", flexible="6+"):
    """Join a classic group, or join it again. From 4 on a new member is first given an id and sent
    back; 5 adds static members; 9 is as 8, its answer may tell the leader not to assign.
    """

    class JoinGroupRequestProtocol(Struct):
        name: str = ""
        metadata: bytes = b""

    group_id: str = ""
    session_timeout_ms: int32 = 0
    rebalance_timeout_ms: int32 = field(-1, versions="1+", ignorable=True)
    member_id: str = ""
    group_instance_id: str | None = field(None, versions="5+")
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: str | None = field(None, versions="8+", ignorable=True)


class JoinGroupResponse(Message, key=11, versions="0-9", flexible="6+"):
    """The generation, and for the leader the members with their metadata."""

    class JoinGroupResponseMember(Struct):
        member_id: str = ""
        group_instance_id: str | None = field(None, versions="5+", ignorable=True)
        metadata: bytes = b""

    throttle_time_ms: int32 = field(0, versions="2+", ignorable=True)
    error_code: int16 = 0
    generation_id: int32 = -1
    protocol_type: str | None = field(None, versions="7+", ignorable=True)
    protocol_name: str | None = field("", nullable="7+")
    leader: str = ""
    skip_assignment: bool = field(False, versions="9+")
    member_id: str = ""
    members: list[JoinGroupResponseMember] = []


class SyncGroupRequest(Message, key=14, versions="0-5", flexible="4+"):
    """Wait for the assignment; the leader brings it for all. 5 repeats the protocol for a check."""

    class SyncGroupRequestAssignment(Struct):
        member_id: str = ""
        assignment: bytes = b""

    group_id: str = ""
    generation_id: int32 = 0
    member_id: str = ""
    group_instance_id: str | None = field(None, versions="3+")
    protocol_type: str | None = field(None, versions="5+", ignorable=True)
    protocol_name: str | None = field(None, versions="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupResponse(Message, key=14, versions="0-5", flexible="4+"):
    """The answer to SyncGroup."""

    throttle_time_ms: int32 = field(0, versions="1+", ignorable=True)
    error_code: int16 = 0
    protocol_type: str | None = field(None, versions="5+", ignorable=True)
    protocol_name: str | None = field(None, versions="5+", ignorable=True)
    assignment: bytes = b""


class HeartbeatRequest(Message, key=12, versions="0-4", flexible="4+"):
    """A member of a classic group is alive. 3 adds static members."""

    group_id: str = ""
    generation_id: int32 = 0
    member_id: str = ""
    group_instance_id: str | None = field(None, versions="3+")


class HeartbeatResponse(Message, key=12, versions="0-4", flexible="4+"):
    """The answer to Heartbeat."""

    throttle_time_ms: int32 = field(0, versions="1+", ignorable=True)
    error_code: int16 = 0


class LeaveGroupRequest(Message, key=13, versions="0-5", flexible="4+"):
    """Leave a classic group. From 3 on several members may be taken out at once."""

    class MemberIdentity(Struct):
        member_id: str = ""
        group_instance_id: str | None = None
        reason: str | None = field(None, versions="5+", ignorable=True)

    group_id: str = ""
    member_id: str = field("", versions="0-2")
    members: list[MemberIdentity] = field([], versions="3+")


class LeaveGroupResponse(Message, key=13, versions="0-5", flexible="4+"):
    """The answer to LeaveGroup."""

    class MemberResponse(Struct):
        member_id: str = ""
        group_instance_id: str | None = ""
        error_code: int16 = 0

    throttle_time_ms: int32 = field(0, versions="1+", ignorable=True)
    error_code: int16 = 0
    members: list[MemberResponse] = field([], versions="3+")


class OffsetCommitRequest(Message, key=8, versions="2-10", flexible="8+"):
    """Commit offsets of a group. 6 adds the leader epoch, 9 members of consumer groups, 10 topic
    ids for names.
    """

    class OffsetCommitRequestPartition(Struct):
        partition_index: int32 = 0
        committed_offset: int64 = 0
        committed_leader_epoch: int32 = field(-1, versions="6+", ignorable=True)
        committed_metadata: str | None = ""

    class OffsetCommitRequestTopic(Struct):
        name: str = field("", versions="2-9", ignorable=True)
        topic_id: uuid = field(ZERO_UUID, versions="10+", ignorable=True)
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition] = []

    group_id: str = ""
    generation_id_or_member_epoch: int32 = -1
    member_id: str = ""
    group_instance_id: str | None = field(None, versions="7+")
    retention_time_ms: int64 = field(-1, versions="2-4", ignorable=True)
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitResponse(Message, key=8, versions="2-10", flexible="8+"):
    """The answer to OffsetCommit."""

    class OffsetCommitResponsePartition(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0

    class OffsetCommitResponseTopic(Struct):
        name: str = field("", versions="2-9", ignorable=True)
        topic_id: uuid = field(ZERO_UUID, versions="10+", ignorable=True)
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition] = []

    throttle_time_ms: int32 = field(0, versions="3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = []


class OffsetFetchRequest(Message, key=9, versions="1-10", flexible="6+"):
    """The committed offsets of a group; from 2 on null topics are all. 7 waits for pending
    transactions if asked, 8 asks for several groups, 10 has topic ids for names.
    """

    class OffsetFetchRequestTopic(Struct):
        name: str = ""
        partition_indexes: list[int32] = []

    class OffsetFetchRequestTopics(Struct):
        name: str = field("", versions="8-9", ignorable=True)
        topic_id: uuid = field(ZERO_UUID, versions="10+", ignorable=True)
        partition_indexes: list[int32] = []

    class OffsetFetchRequestGroup(Struct):
        group_id: str = ""
        member_id: str | None = field(None, versions="9+", ignorable=True)
        member_epoch: int32 = field(-1, versions="9+", ignorable=True)
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None = []

    group_id: str = field("", versions="1-7")
    topics: list[OffsetFetchRequestTopic] | None = field([], versions="1-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field([], versions="8+")
    require_stable: bool = field(False, versions="7+")


class OffsetFetchResponse(Message, key=9, versions="1-10", flexible="6+"):
    """The answer to OffsetFetch."""

    class OffsetFetchResponsePartition(Struct):
        partition_index: int32 = 0
        committed_offset: int64 = 0
        committed_leader_epoch: int32 = field(-1, versions="5-7", ignorable=True)
        metadata: str | None = ""
        error_code: int16 = 0

    class OffsetFetchResponseTopic(Struct):
        name: str = ""
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = []

    class OffsetFetchResponsePartitions(Struct):
        partition_index: int32 = 0
        committed_offset: int64 = 0
        committed_leader_epoch: int32 = -1
        metadata: str | None = ""
        error_code: int16 = 0

    class OffsetFetchResponseTopics(Struct):
        name: str = field("", versions="8-9", ignorable=True)
        topic_id: uuid = field(ZERO_UUID, versions="10+", ignorable=True)
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = []

    class OffsetFetchResponseGroup(Struct):
        group_id: str = ""
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics] = []
        error_code: int16 = 0

    throttle_time_ms: int32 = field(0, versions="3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field([], versions="1-7")
    error_code: int16 = field(0, versions="2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field([], versions="8+")


class OffsetDeleteRequest(Message, key=47, versions="0"):
    """Forget the committed offsets of partitions that no member is subscribed to."""

    class OffsetDeleteRequestPartition(Struct):
        partition_index: int32 = 0

    class OffsetDeleteRequestTopic(Struct):
        name: str = ""
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = []

    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = []


class OffsetDeleteResponse(Message, key=47, versions="0"):
    """The answer to OffsetDelete."""

    class OffsetDeleteResponsePartition(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0

    class OffsetDeleteResponseTopic(Struct):
        name: str = ""
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = []

    error_code: int16 = 0
    throttle_time_ms: int32 = 0
    topics: list[OffsetDeleteResponseTopic] = []


class DescribeGroupsRequest(Message, key=15, versions="0-6", flexible="5+"):
    """State and members of classic groups. 6 answers an unknown group by an error."""

    groups: list[str] = []
    include_authorized_operations: bool = field(False, versions="3+")


class DescribeGroupsResponse(Message, key=15, versions="0-6", flexible="5+"):
    """The answer to DescribeGroups."""

    class DescribedGroupMember(Struct):
        member_id: str = ""
        group_instance_id: str | None = field(None, versions="4+", ignorable=True)
        client_id: str = ""
        client_host: str = ""
        member_metadata: bytes = b""
        member_assignment: bytes = b""

    class DescribedGroup(Struct):
        error_code: int16 = 0
        error_message: str | None = field(None, versions="6+")
        group_id: str = ""
        group_state: str = ""
        protocol_type: str = ""
        protocol_data: str = ""
        members: list[DescribeGroupsResponse.DescribedGroupMember] = []
        authorized_operations: int32 = field(-2147483648, versions="3+")

    throttle_time_ms: int32 = field(0, versions="1+", ignorable=True)
    groups: list[DescribedGroup] = []


class ListGroupsRequest(Message, key=16, versions="0-5", flexible="3+"):
    """All groups of this coordinator. 4 filters by state, 5 by type."""

    states_filter: list[str] = field([], versions="4+")
    types_filter: list[str] = field([], versions="5+")


class ListGroupsResponse(Message, key=16, versions="0-5", flexible="3+"):
    """The answer to ListGroups."""

    class ListedGroup(Struct):
        group_id: str = ""
        protocol_type: str = ""
        group_state: str = field("", versions="4+", ignorable=True)
        group_type: str = field("", versions="5+", ignorable=True)

    throttle_time_ms: int32 = field(0, versions="1+", ignorable=True)
    error_code: int16 = 0
    groups: list[ListedGroup] = []


class DeleteGroupsRequest(Message, key=42, versions="0-2", flexible="2+"):
    """Delete empty groups with their offsets."""

    groups_names: list[str] = []


class DeleteGroupsResponse(Message, key=42, versions="0-2", flexible="2+"):
    """The answer to DeleteGroups."""

    class DeletableGroupResult(Struct):
        group_id: str = ""
        error_code: int16 = 0

    throttle_time_ms: int32 = 0
    results: list[DeletableGroupResult] = []


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """What a consumer sends as metadata in JoinGroup; the version stands before it as an int16. 1
    adds the partitions owned, 2 the generation they are of, 3 the rack.
    """

    class TopicPartition(Struct):
        topic: str = ""
        partitions: list[int32] = []

    topics: list[str] = []
    user_data: bytes | None = None
    owned_partitions: list[TopicPartition] = field([], versions="1+", ignorable=True)
    generation_id: int32 = field(-1, versions="2+", ignorable=True)
    rack_id: str | None = field(None, versions="3+", ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """What the leader of a classic group gives a consumer; the version stands
    before it as an int16.
    """

    class TopicPartition(Struct):
        topic: str = ""
        partitions: list[int32] = []

    assigned_partitions: list[TopicPartition] = []
    user_data: bytes | None = None
