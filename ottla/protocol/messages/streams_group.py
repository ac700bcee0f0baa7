"""Groups of Kafka Streams whose coordinator assigns the tasks (KIP-1071)."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import int8, int16, int32, int64, uint16


class StreamsGroupHeartbeatRequest(Message, key=88, versions="0", flexible="0+"):
    """Join, stay in, or leave a Streams group; brings the topology first, later only changes."""

    class KeyValue(Struct):
        key: str = ""
        value: str = ""

    class TopicInfo(Struct):
        name: str = ""
        partitions: int32 = 0
        replication_factor: int16 = 0
        topic_configs: list[StreamsGroupHeartbeatRequest.KeyValue] = []

    class CopartitionGroup(Struct):
        source_topics: list[int16] = []
        source_topic_regex: list[int16] = []
        repartition_source_topics: list[int16] = []

    class Subtopology(Struct):
        subtopology_id: str = ""
        source_topics: list[str] = []
        source_topic_regex: list[str] = []
        state_changelog_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = []
        repartition_sink_topics: list[str] = []
        repartition_source_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = []
        copartition_groups: list[StreamsGroupHeartbeatRequest.CopartitionGroup] = []

    class Topology(Struct):
        epoch: int32 = 0
        subtopologies: list[StreamsGroupHeartbeatRequest.Subtopology] = []

    class TaskIds(Struct):
        subtopology_id: str = ""
        partitions: list[int32] = []

    class Endpoint(Struct):
        host: str = ""
        port: uint16 = 0

    class TaskOffset(Struct):
        subtopology_id: str = ""
        partition: int32 = 0
        offset: int64 = 0

    group_id: str = ""
    member_id: str = ""
    member_epoch: int32 = 0
    endpoint_information_epoch: int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int32 = -1
    topology: Topology | None = None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: bool = False


class StreamsGroupHeartbeatResponse(Message, key=88, versions="0", flexible="0+"):
    """The answer to StreamsGroupHeartbeat."""

    class Status(Struct):
        status_code: int8 = 0
        status_detail: str = ""

    class TaskIds(Struct):
        subtopology_id: str = ""
        partitions: list[int32] = []

    class Endpoint(Struct):
        host: str = ""
        port: uint16 = 0

    class TopicPartition(Struct):
        topic: str = ""
        partitions: list[int32] = []

    class EndpointToPartitions(Struct):
        user_endpoint: StreamsGroupHeartbeatResponse.Endpoint = field()
        active_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = []
        standby_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = []

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    acceptable_recovery_lag: int32 = 0
    task_offset_interval_ms: int32 = 0
    status: list[Status] | None = []
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    endpoint_information_epoch: int32 = 0
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None


class StreamsGroupDescribeRequest(Message, key=89, versions="0", flexible="0+"):
    """State, topology, members and tasks of Streams groups."""

    group_ids: list[str] = []
    include_authorized_operations: bool = False


class StreamsGroupDescribeResponse(Message, key=89, versions="0", flexible="0+"):
    """The answer to StreamsGroupDescribe."""

    class KeyValue(Struct):
        key: str = ""
        value: str = ""

    class TopicInfo(Struct):
        name: str = ""
        partitions: int32 = 0
        replication_factor: int16 = 0
        topic_configs: list[StreamsGroupDescribeResponse.KeyValue] = []

    class Subtopology(Struct):
        subtopology_id: str = ""
        source_topics: list[str] = []
        repartition_sink_topics: list[str] = []
        state_changelog_topics: list[StreamsGroupDescribeResponse.TopicInfo] = []
        repartition_source_topics: list[StreamsGroupDescribeResponse.TopicInfo] = []

    class Topology(Struct):
        epoch: int32 = 0
        subtopologies: list[StreamsGroupDescribeResponse.Subtopology] | None = None

    class Endpoint(Struct):
        host: str = ""
        port: uint16 = 0

    class TaskOffset(Struct):
        subtopology_id: str = ""
        partition: int32 = 0
        offset: int64 = 0

    class TaskIds(Struct):
        subtopology_id: str = ""
        partitions: list[int32] = []

    class Assignment(Struct):
        active_tasks: list[StreamsGroupDescribeResponse.TaskIds] = []
        standby_tasks: list[StreamsGroupDescribeResponse.TaskIds] = []
        warmup_tasks: list[StreamsGroupDescribeResponse.TaskIds] = []

    class Member(Struct):
        member_id: str = ""
        member_epoch: int32 = 0
        instance_id: str | None = None
        rack_id: str | None = None
        client_id: str = ""
        client_host: str = ""
        topology_epoch: int32 = 0
        process_id: str = ""
        user_endpoint: StreamsGroupDescribeResponse.Endpoint | None = None
        client_tags: list[StreamsGroupDescribeResponse.KeyValue] = []
        task_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = []
        task_end_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = []
        assignment: StreamsGroupDescribeResponse.Assignment = field()
        target_assignment: StreamsGroupDescribeResponse.Assignment = field()
        is_classic: bool = False

    class DescribedGroup(Struct):
        error_code: int16 = 0
        error_message: str | None = None
        group_id: str = ""
        group_state: str = ""
        group_epoch: int32 = 0
        assignment_epoch: int32 = 0
        topology: StreamsGroupDescribeResponse.Topology | None = None
        members: list[StreamsGroupDescribeResponse.Member] = []
        authorized_operations: int32 = -2147483648

    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup] = []
