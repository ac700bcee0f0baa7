"""Consumer groups whose coordinator assigns the partitions (KIP-848)."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import ZERO_UUID, int8, int16, int32, uuid


class ConsumerGroupHeartbeatRequest(Message, key=68, versions="0-1", flexible="0+"):
    """Join, stay in, or leave (epoch -1, static -2) a consumer group; fields that did not change
    are null. 1 adds subscription by regular expression, and the member makes its own id.
    """

    class TopicPartitions(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[int32] = []

    group_id: str = ""
    member_id: str = ""
    member_epoch: int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = field(None, versions="1+")
    server_assignor: str | None = None
    topic_partitions: list[TopicPartitions] | None = None


class ConsumerGroupHeartbeatResponse(Message, key=68, versions="0-1", flexible="0+"):
    """The epoch of the member, and its assignment if that changed."""

    class TopicPartitions(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[int32] = []

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions] = []

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: Assignment | None = None


class ConsumerGroupDescribeRequest(Message, key=69, versions="0-1", flexible="0+"):
    """State, members and assignments of consumer groups."""

    group_ids: list[str] = []
    include_authorized_operations: bool = False


class ConsumerGroupDescribeResponse(Message, key=69, versions="0-1", flexible="0+"):
    """The answer to ConsumerGroupDescribe."""

    class TopicPartitions(Struct):
        topic_id: uuid = ZERO_UUID
        topic_name: str = ""
        partitions: list[int32] = []

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions] = []

    class Member(Struct):
        member_id: str = ""
        instance_id: str | None = None
        rack_id: str | None = None
        member_epoch: int32 = 0
        client_id: str = ""
        client_host: str = ""
        subscribed_topic_names: list[str] = []
        subscribed_topic_regex: str | None = None
        assignment: ConsumerGroupDescribeResponse.Assignment = field()
        target_assignment: ConsumerGroupDescribeResponse.Assignment = field()
        member_type: int8 = field(-1, versions="1+", ignorable=True)

    class DescribedGroup(Struct):
        error_code: int16 = 0
        error_message: str | None = None
        group_id: str = ""
        group_state: str = ""
        group_epoch: int32 = 0
        assignment_epoch: int32 = 0
        assignor_name: str = ""
        members: list[ConsumerGroupDescribeResponse.Member] = []
        authorized_operations: int32 = -2147483648

    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup] = []
