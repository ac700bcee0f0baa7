"""Share groups: records acknowledged one by one, as from a queue (KIP-932)."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import ZERO_UUID, Records, int8, int16, int32, int64, uuid


class ShareGroupHeartbeatRequest(Message, key=76, versions="1", flexible="1+"):
    """Join, stay in, or leave a share group; fields that did not change are null."""

    group_id: str = ""
    member_id: str = ""
    member_epoch: int32 = 0
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None


class ShareGroupHeartbeatResponse(Message, key=76, versions="1", flexible="1+"):
    """The answer to ShareGroupHeartbeat."""

    class TopicPartitions(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[int32] = []

    class Assignment(Struct):
        topic_partitions: list[ShareGroupHeartbeatResponse.TopicPartitions] = []

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: Assignment | None = None


class ShareGroupDescribeRequest(Message, key=77, versions="1", flexible="1+"):
    """State, members and assignments of share groups."""

    group_ids: list[str] = []
    include_authorized_operations: bool = False


class ShareGroupDescribeResponse(Message, key=77, versions="1", flexible="1+"):
    """The answer to ShareGroupDescribe."""

    class TopicPartitions(Struct):
        topic_id: uuid = ZERO_UUID
        topic_name: str = ""
        partitions: list[int32] = []

    class Assignment(Struct):
        topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions] = []

    class Member(Struct):
        member_id: str = ""
        rack_id: str | None = None
        member_epoch: int32 = 0
        client_id: str = ""
        client_host: str = ""
        subscribed_topic_names: list[str] = []
        assignment: ShareGroupDescribeResponse.Assignment = field()

    class DescribedGroup(Struct):
        error_code: int16 = 0
        error_message: str | None = None
        group_id: str = ""
        group_state: str = ""
        group_epoch: int32 = 0
        assignment_epoch: int32 = 0
        assignor_name: str = ""
        members: list[ShareGroupDescribeResponse.Member] = []
        authorized_operations: int32 = -2147483648

    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup] = []


class ShareFetchRequest(Message, key=78, versions="1-2", flexible="1+"):
    """Acquire records for a member of a share group, and acknowledge earlier ones. 2 adds the mode
    of acquiring and the renewal of locks.
    """

    class AcknowledgementBatch(Struct):
        first_offset: int64 = 0
        last_offset: int64 = 0
        acknowledge_types: list[int8] = []

    class FetchPartition(Struct):
        partition_index: int32 = 0
        partition_max_bytes: int32 = field(0, versions="1-0")
        acknowledgement_batches: list[ShareFetchRequest.AcknowledgementBatch] = []

    class FetchTopic(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[ShareFetchRequest.FetchPartition] = []

    class ForgottenTopic(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[int32] = []

    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int32 = 0
    max_wait_ms: int32 = 0
    min_bytes: int32 = 0
    max_bytes: int32 = 2147483647
    max_records: int32 = 0
    batch_size: int32 = 0
    share_acquire_mode: int8 = field(0, versions="2+", ignorable=True)
    is_renew_ack: bool = field(False, versions="2+")
    topics: list[FetchTopic] = []
    forgotten_topics_data: list[ForgottenTopic] = []


class ShareFetchResponse(Message, key=78, versions="1-2", flexible="1+"):
    """Batches, the ranges of them that were acquired, and how often each was delivered."""

    class LeaderIdAndEpoch(Struct):
        leader_id: int32 = 0
        leader_epoch: int32 = 0

    class AcquiredRecords(Struct):
        first_offset: int64 = 0
        last_offset: int64 = 0
        delivery_count: int16 = 0

    class PartitionData(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        error_message: str | None = None
        acknowledge_error_code: int16 = 0
        acknowledge_error_message: str | None = None
        current_leader: ShareFetchResponse.LeaderIdAndEpoch = field()
        records: Records = b""
        acquired_records: list[ShareFetchResponse.AcquiredRecords] = []

    class ShareFetchableTopicResponse(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[ShareFetchResponse.PartitionData] = []

    class NodeEndpoint(Struct):
        node_id: int32 = 0
        host: str = ""
        port: int32 = 0
        rack: str | None = None

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int32 = 0
    responses: list[ShareFetchableTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []


class ShareAcknowledgeRequest(Message, key=79, versions="1-2", flexible="1+"):
    """Acknowledge, release, reject or, from 2 on, renew records that were acquired."""

    class AcknowledgementBatch(Struct):
        first_offset: int64 = 0
        last_offset: int64 = 0
        acknowledge_types: list[int8] = []

    class AcknowledgePartition(Struct):
        partition_index: int32 = 0
        acknowledgement_batches: list[ShareAcknowledgeRequest.AcknowledgementBatch] = []

    class AcknowledgeTopic(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[ShareAcknowledgeRequest.AcknowledgePartition] = []

    group_id: str | None = None
    member_id: str | None = ""
    share_session_epoch: int32 = 0
    is_renew_ack: bool = field(False, versions="2+")
    topics: list[AcknowledgeTopic] = []


class ShareAcknowledgeResponse(Message, key=79, versions="1-2", flexible="1+"):
    """The answer to ShareAcknowledge."""

    class LeaderIdAndEpoch(Struct):
        leader_id: int32 = 0
        leader_epoch: int32 = 0

    class PartitionData(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        error_message: str | None = None
        current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch = field()

    class ShareAcknowledgeTopicResponse(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[ShareAcknowledgeResponse.PartitionData] = []

    class NodeEndpoint(Struct):
        node_id: int32 = 0
        host: str = ""
        port: int32 = 0
        rack: str | None = None

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    acquisition_lock_timeout_ms: int32 = field(0, versions="2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []


class DescribeShareGroupOffsetsRequest(Message, key=90, versions="0-1", flexible="0+"):
    """Where share groups begin to deliver. 1 adds the lag."""

    class DescribeShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = ""
        partitions: list[int32] = []

    class DescribeShareGroupOffsetsRequestGroup(Struct):
        group_id: str = ""
        topics: (
            list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None
        ) = []

    groups: list[DescribeShareGroupOffsetsRequestGroup] = []


class DescribeShareGroupOffsetsResponse(Message, key=90, versions="0-1", flexible="0+"):
    """The answer to DescribeShareGroupOffsets."""

    class DescribeShareGroupOffsetsResponsePartition(Struct):
        partition_index: int32 = 0
        start_offset: int64 = 0
        leader_epoch: int32 = 0
        lag: int64 = field(-1, versions="1+", ignorable=True)
        error_code: int16 = 0
        error_message: str | None = None

    class DescribeShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = ""
        topic_id: uuid = ZERO_UUID
        partitions: list[
            DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition
        ] = []

    class DescribeShareGroupOffsetsResponseGroup(Struct):
        group_id: str = ""
        topics: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic] = []
        error_code: int16 = 0
        error_message: str | None = None

    throttle_time_ms: int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = []


class AlterShareGroupOffsetsRequest(Message, key=91, versions="0", flexible="0+"):
    """Set where an empty share group begins."""

    class AlterShareGroupOffsetsRequestPartition(Struct):
        partition_index: int32 = 0
        start_offset: int64 = 0

    class AlterShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = ""
        partitions: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition] = []

    group_id: str = ""
    topics: list[AlterShareGroupOffsetsRequestTopic] = []


class AlterShareGroupOffsetsResponse(Message, key=91, versions="0", flexible="0+"):
    """The answer to AlterShareGroupOffsets."""

    class AlterShareGroupOffsetsResponsePartition(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        error_message: str | None = None

    class AlterShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = ""
        topic_id: uuid = ZERO_UUID
        partitions: list[
            AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition
        ] = []

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic] = []


class DeleteShareGroupOffsetsRequest(Message, key=92, versions="0", flexible="0+"):
    """Forget topics of an empty share group."""

    class DeleteShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = ""

    group_id: str = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = []


class DeleteShareGroupOffsetsResponse(Message, key=92, versions="0", flexible="0+"):
    """The answer to DeleteShareGroupOffsets."""

    class DeleteShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = ""
        topic_id: uuid = ZERO_UUID
        error_code: int16 = 0
        error_message: str | None = None

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = []
