"""Records of the coordinators' topics; `key` is the record's type number.

A record's key begins with its type number as an int16, a value with its version.
"""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import ZERO_UUID, int8, int16, int32, int64, uint16, uuid


class LegacyOffsetCommitKey(Message, key=0, versions="0"):
    """A committed offset, as written before OffsetCommitKey."""

    group: str = ""
    topic: str = ""
    partition: int32 = 0


class LegacyOffsetCommitValue(Message, key=0, versions="0"):
    """A committed offset, as written before OffsetCommitValue."""

    offset: int64 = 0
    metadata: str = ""
    commit_timestamp: int64 = 0


class OffsetCommitKey(Message, key=1, versions="0"):
    """A committed offset: group, topic, partition."""

    group: str = ""
    topic: str = ""
    partition: int32 = 0


class OffsetCommitValue(Message, key=1, versions="0-4", flexible="4+"):
    """1 alone has an expiry, 3 adds the leader epoch, 4 the topic id as a tag."""

    offset: int64 = 0
    leader_epoch: int32 = field(-1, versions="3+", ignorable=True)
    metadata: str = ""
    commit_timestamp: int64 = 0
    expire_timestamp: int64 = field(-1, versions="1", ignorable=True)
    topic_id: uuid = field(ZERO_UUID, versions="4+", tag=0, ignorable=True)


class GroupMetadataKey(Message, key=2, versions="0"):
    """A classic group."""

    group: str = ""


class GroupMetadataValue(Message, key=2, versions="0-4", flexible="4+"):
    """A classic group with its members. 3 adds static members, 4 is flexible."""

    class MemberMetadata(Struct):
        member_id: str = ""
        group_instance_id: str | None = field(None, versions="3+", ignorable=True)
        client_id: str = ""
        client_host: str = ""
        rebalance_timeout: int32 = field(-1, versions="1+", ignorable=True)
        session_timeout: int32 = 0
        subscription: bytes = b""
        assignment: bytes = b""

    protocol_type: str = ""
    generation: int32 = 0
    protocol: str | None = ""
    leader: str | None = ""
    current_state_timestamp: int64 = field(-1, versions="2+", ignorable=True)
    members: list[MemberMetadata] = []


class ConsumerGroupMetadataKey(Message, key=3, versions="0"):
    """A consumer group."""

    group_id: str = ""


class ConsumerGroupMetadataValue(Message, key=3, versions="0", flexible="0+"):
    """The epoch of the group."""

    epoch: int32 = 0
    metadata_hash: int64 = field(0, tag=0)


class ConsumerGroupPartitionMetadataKey(Message, key=4, versions="0"):
    """The partitions that a consumer group saw."""

    group_id: str = ""


class ConsumerGroupPartitionMetadataValue(Message, key=4, versions="0", flexible="0+"):
    """Topics and their counts of partitions."""

    class PartitionMetadata(Struct):
        partition: int32 = 0
        racks: list[str] = []

    class TopicMetadata(Struct):
        topic_id: uuid = ZERO_UUID
        topic_name: str = ""
        num_partitions: int32 = 0
        partition_metadata: list[ConsumerGroupPartitionMetadataValue.PartitionMetadata] = []

    topics: list[TopicMetadata] = []


class ConsumerGroupMemberMetadataKey(Message, key=5, versions="0"):
    """A member of a consumer group."""

    group_id: str = ""
    member_id: str = ""


class ConsumerGroupMemberMetadataValue(Message, key=5, versions="0", flexible="0+"):
    """What the member told of itself."""

    class ClassicProtocol(Struct):
        name: str = ""
        metadata: bytes = b""

    class ClassicMemberMetadata(Struct):
        session_timeout_ms: int32 = 0
        supported_protocols: list[ConsumerGroupMemberMetadataValue.ClassicProtocol] = []

    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []
    subscribed_topic_regex: str | None = ""
    rebalance_timeout_ms: int32 = -1
    server_assignor: str | None = ""
    classic_member_metadata: ClassicMemberMetadata | None = field(tag=0)


class ConsumerGroupTargetAssignmentMetadataKey(Message, key=6, versions="0"):
    """The target assignment of a consumer group."""

    group_id: str = ""


class ConsumerGroupTargetAssignmentMetadataValue(Message, key=6, versions="0", flexible="0+"):
    """The epoch of the assignment."""

    assignment_epoch: int32 = 0
    assignment_timestamp: int64 = field(0, tag=0)


class ConsumerGroupTargetAssignmentMemberKey(Message, key=7, versions="0"):
    """A member in the target assignment of a consumer group."""

    group_id: str = ""
    member_id: str = ""


class ConsumerGroupTargetAssignmentMemberValue(Message, key=7, versions="0", flexible="0+"):
    """What the member is to have."""

    class TopicPartition(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[int32] = []

    topic_partitions: list[TopicPartition] = []


class ConsumerGroupCurrentMemberAssignmentKey(Message, key=8, versions="0"):
    """A member in the current assignment of a consumer group."""

    group_id: str = ""
    member_id: str = ""


class ConsumerGroupCurrentMemberAssignmentValue(Message, key=8, versions="0", flexible="0+"):
    """What the member has, and its epoch."""

    class TopicPartitions(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[int32] = []
        assignment_epochs: list[int32] | None = field([], tag=0)

    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    assigned_partitions: list[TopicPartitions] = []
    partitions_pending_revocation: list[TopicPartitions] = []


class ShareGroupMemberMetadataKey(Message, key=10, versions="0"):
    """A member of a share group."""

    group_id: str = ""
    member_id: str = ""


class ShareGroupMemberMetadataValue(Message, key=10, versions="0", flexible="0+"):
    """What the member told of itself."""

    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = []


class ShareGroupMetadataKey(Message, key=11, versions="0"):
    """A share group."""

    group_id: str = ""


class ShareGroupMetadataValue(Message, key=11, versions="0", flexible="0+"):
    """The epoch of the group."""

    epoch: int32 = 0
    metadata_hash: int64 = 0


class ShareGroupTargetAssignmentMetadataKey(Message, key=12, versions="0"):
    """The target assignment of a share group."""

    group_id: str = ""


class ShareGroupTargetAssignmentMetadataValue(Message, key=12, versions="0", flexible="0+"):
    """The epoch of the assignment."""

    assignment_epoch: int32 = 0
    assignment_timestamp: int64 = field(0, tag=0)


class ShareGroupTargetAssignmentMemberKey(Message, key=13, versions="0"):
    """A member in the target assignment of a share group."""

    group_id: str = ""
    member_id: str = ""


class ShareGroupTargetAssignmentMemberValue(Message, key=13, versions="0", flexible="0+"):
    """What the member is to have."""

    class TopicPartition(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[int32] = []

    topic_partitions: list[TopicPartition] = []


class ShareGroupCurrentMemberAssignmentKey(Message, key=14, versions="0"):
    """A member in the current assignment of a share group."""

    group_id: str = ""
    member_id: str = ""


class ShareGroupCurrentMemberAssignmentValue(Message, key=14, versions="0", flexible="0+"):
    """What the member has, and its epoch."""

    class TopicPartitions(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[int32] = []

    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    assigned_partitions: list[TopicPartitions] = []


class ShareGroupStatePartitionMetadataKey(Message, key=15, versions="0"):
    """The partitions of a share group."""

    group_id: str = ""


class ShareGroupStatePartitionMetadataValue(Message, key=15, versions="0", flexible="0+"):
    """Which are being set up, are there, or are being deleted."""

    class TopicPartitionsInfo(Struct):
        topic_id: uuid = ZERO_UUID
        topic_name: str = ""
        partitions: list[int32] = []

    class TopicInfo(Struct):
        topic_id: uuid = ZERO_UUID
        topic_name: str = ""

    initializing_topics: list[TopicPartitionsInfo] = []
    initialized_topics: list[TopicPartitionsInfo] = []
    deleting_topics: list[TopicInfo] = []


class ConsumerGroupRegularExpressionKey(Message, key=16, versions="0"):
    """A regular expression of a consumer group."""

    group_id: str = ""
    regular_expression: str = ""


class ConsumerGroupRegularExpressionValue(Message, key=16, versions="0", flexible="0+"):
    """The topics it stands for."""

    topics: list[str] = []
    version: int64 = 0
    timestamp: int64 = 0


class StreamsGroupMetadataKey(Message, key=17, versions="0"):
    """A Streams group."""

    group_id: str = ""


class StreamsGroupMetadataValue(Message, key=17, versions="0", flexible="0+"):
    """The epoch of the group."""

    class LastAssignmentConfig(Struct):
        key: str = ""
        value: str = ""

    epoch: int32 = 0
    metadata_hash: int64 = 0
    validated_topology_epoch: int32 = field(-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = field([], tag=1)


class StreamsGroupMemberMetadataKey(Message, key=19, versions="0"):
    """A member of a Streams group."""

    group_id: str = ""
    member_id: str = ""


class StreamsGroupMemberMetadataValue(Message, key=19, versions="0", flexible="0+"):
    """What the member told of itself."""

    class Endpoint(Struct):
        host: str = ""
        port: uint16 = 0

    class KeyValue(Struct):
        key: str = ""
        value: str = ""

    instance_id: str | None = ""
    rack_id: str | None = ""
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int32 = -1
    topology_epoch: int32 = 0
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] = []


class StreamsGroupTargetAssignmentMetadataKey(Message, key=20, versions="0"):
    """The target assignment of a Streams group."""

    group_id: str = ""


class StreamsGroupTargetAssignmentMetadataValue(Message, key=20, versions="0", flexible="0+"):
    """The epoch of the assignment."""

    assignment_epoch: int32 = 0
    assignment_timestamp: int64 = field(0, tag=0)


class StreamsGroupTargetAssignmentMemberKey(Message, key=21, versions="0"):
    """A member in the target assignment of a Streams group."""

    group_id: str = ""
    member_id: str = ""


class StreamsGroupTargetAssignmentMemberValue(Message, key=21, versions="0", flexible="0+"):
    """What the member is to have."""

    class TaskIds(Struct):
        subtopology_id: str = ""
        partitions: list[int32] = []

    active_tasks: list[TaskIds] = []
    standby_tasks: list[TaskIds] = []
    warmup_tasks: list[TaskIds] = []


class StreamsGroupCurrentMemberAssignmentKey(Message, key=22, versions="0"):
    """A member in the current assignment of a Streams group."""

    group_id: str = ""
    member_id: str = ""


class StreamsGroupCurrentMemberAssignmentValue(Message, key=22, versions="0", flexible="0+"):
    """What the member has, and its epoch."""

    class TaskIds(Struct):
        subtopology_id: str = ""
        partitions: list[int32] = []
        assignment_epochs: list[int32] | None = field([], tag=0)

    member_epoch: int32 = 0
    previous_member_epoch: int32 = 0
    state: int8 = 0
    active_tasks: list[TaskIds] = []
    standby_tasks: list[TaskIds] = []
    warmup_tasks: list[TaskIds] = []
    active_tasks_pending_revocation: list[TaskIds] = []
    standby_tasks_pending_revocation: list[TaskIds] = []
    warmup_tasks_pending_revocation: list[TaskIds] = []


class StreamsGroupTopologyKey(Message, key=23, versions="0"):
    """The topology of a Streams group."""

    group_id: str = ""


class StreamsGroupTopologyValue(Message, key=23, versions="0", flexible="0+"):
    """The subtopologies with their topics."""

    class TopicConfig(Struct):
        key: str = ""
        value: str = ""

    class TopicInfo(Struct):
        name: str = ""
        partitions: int32 = 0
        replication_factor: int16 = 0
        topic_configs: list[StreamsGroupTopologyValue.TopicConfig] = []

    class CopartitionGroup(Struct):
        source_topics: list[int16] = []
        source_topic_regex: list[int16] = []
        repartition_source_topics: list[int16] = []

    class Subtopology(Struct):
        subtopology_id: str = ""
        source_topics: list[str] = []
        source_topic_regex: list[str] = []
        state_changelog_topics: list[StreamsGroupTopologyValue.TopicInfo] = []
        repartition_sink_topics: list[str] = []
        repartition_source_topics: list[StreamsGroupTopologyValue.TopicInfo] = []
        copartition_groups: list[StreamsGroupTopologyValue.CopartitionGroup] = []

    epoch: int32 = 0
    subtopologies: list[Subtopology] = []


class TransactionLogKey(Message, key=0, versions="0"):
    """A transactional id."""

    transactional_id: str = ""


class TransactionLogValue(Message, key=0, versions="0-1", flexible="1+"):
    """The state of a transaction. 1 is flexible and adds the ids that KIP-890 needs."""

    class PartitionsSchema(Struct):
        topic: str = ""
        partition_ids: list[int32] = []

    producer_id: int64 = 0
    previous_producer_id: int64 = field(-1, versions="1+", tag=0)
    next_producer_id: int64 = field(-1, versions="1+", tag=1)
    producer_epoch: int16 = 0
    next_producer_epoch: int16 = field(-1, versions="1+", tag=3)
    transaction_timeout_ms: int32 = 0
    transaction_status: int8 = 0
    transaction_partitions: list[PartitionsSchema] | None = []
    transaction_last_update_timestamp_ms: int64 = 0
    transaction_start_timestamp_ms: int64 = 0
    client_transaction_version: int16 = field(0, versions="1+", tag=2)


class ShareSnapshotKey(Message, key=0, versions="0"):
    """The state of a share partition."""

    group_id: str = ""
    topic_id: uuid = ZERO_UUID
    partition: int32 = 0


class ShareSnapshotValue(Message, key=0, versions="0", flexible="0+"):
    """The whole state of a share partition."""

    class StateBatch(Struct):
        first_offset: int64 = 0
        last_offset: int64 = 0
        delivery_state: int8 = 0
        delivery_count: int16 = 0

    snapshot_epoch: int32 = 0
    state_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    delivery_complete_count: int32 = field(-1, tag=0)
    create_timestamp: int64 = 0
    write_timestamp: int64 = 0
    state_batches: list[StateBatch] = []


class ShareUpdateKey(Message, key=1, versions="0"):
    """A change to the state of a share partition since its snapshot."""

    group_id: str = ""
    topic_id: uuid = ZERO_UUID
    partition: int32 = 0


class ShareUpdateValue(Message, key=1, versions="0", flexible="0+"):
    """What changed since the snapshot of the same epoch."""

    class StateBatch(Struct):
        first_offset: int64 = 0
        last_offset: int64 = 0
        delivery_state: int8 = 0
        delivery_count: int16 = 0

    snapshot_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    delivery_complete_count: int32 = field(-1, tag=0)
    state_batches: list[StateBatch] = []
