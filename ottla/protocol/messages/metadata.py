"""Where things are: brokers, topics, partitions and their leaders."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import ZERO_UUID, int8, int16, int32, uuid


class MetadataRequest(Message, key=3, versions="0-13", flexible="9+"):
    """Which topics are where. Null topics are all of them; in version 0 an empty list is. 4 adds
    the choice to create topics by asking, 10 carries topic ids, and 12 allows to ask by them.
    """

    class MetadataRequestTopic(Struct):
        topic_id: uuid = field(ZERO_UUID, versions="10+", ignorable=True)
        name: str | None = field("", nullable="10+")

    topics: list[MetadataRequestTopic] | None = field([], nullable="1+")
    allow_auto_topic_creation: bool = field(True, versions="4+")
    include_cluster_authorized_operations: bool = field(False, versions="8-10")
    include_topic_authorized_operations: bool = field(False, versions="8+")


class MetadataResponse(Message, key=3, versions="0-13", flexible="9+"):
    """Brokers with their advertised addresses, and the partitions of the topics asked for. 7 adds
    leader epochs, 10 topic ids, 13 an error code for the whole answer.
    """

    class MetadataResponseBroker(Struct):
        node_id: int32 = 0
        host: str = ""
        port: int32 = 0
        rack: str | None = field(None, versions="1+", ignorable=True)

    class MetadataResponsePartition(Struct):
        error_code: int16 = 0
        partition_index: int32 = 0
        leader_id: int32 = 0
        leader_epoch: int32 = field(-1, versions="7+", ignorable=True)
        replica_nodes: list[int32] = []
        isr_nodes: list[int32] = []
        offline_replicas: list[int32] = field([], versions="5+", ignorable=True)

    class MetadataResponseTopic(Struct):
        error_code: int16 = 0
        name: str | None = field("", nullable="12+")
        topic_id: uuid = field(ZERO_UUID, versions="10+", ignorable=True)
        is_internal: bool = field(False, versions="1+", ignorable=True)
        partitions: list[MetadataResponse.MetadataResponsePartition] = []
        topic_authorized_operations: int32 = field(-2147483648, versions="8+")

    throttle_time_ms: int32 = field(0, versions="3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = []
    cluster_id: str | None = field(None, versions="2+", ignorable=True)
    controller_id: int32 = field(-1, versions="1+", ignorable=True)
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: int32 = field(-2147483648, versions="8-10")
    error_code: int16 = field(0, versions="13+", ignorable=True)


class DescribeClusterRequest(Message, key=60, versions="0-2", flexible="0+"):
    """The nodes and the id of the cluster. 1 chooses between brokers and controllers, 2 can include
    fenced brokers.
    """

    include_cluster_authorized_operations: bool = False
    endpoint_type: int8 = field(1, versions="1+")
    include_fenced_brokers: bool = field(False, versions="2+")


class DescribeClusterResponse(Message, key=60, versions="0-2", flexible="0+"):
    """The answer to DescribeCluster."""

    class DescribeClusterBroker(Struct):
        broker_id: int32 = 0
        host: str = ""
        port: int32 = 0
        rack: str | None = None
        is_fenced: bool = field(False, versions="2+")

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    endpoint_type: int8 = field(1, versions="1+")
    cluster_id: str = ""
    controller_id: int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: int32 = -2147483648


class DescribeTopicPartitionsRequest(Message, key=75, versions="0", flexible="0+"):
    """The partitions of topics, page by page; an empty list of topics means all of
    them (KIP-966).
    """

    class TopicRequest(Struct):
        name: str = ""

    class Cursor(Struct):
        topic_name: str = ""
        partition_index: int32 = 0

    topics: list[TopicRequest] = []
    response_partition_limit: int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponse(Message, key=75, versions="0", flexible="0+"):
    """A page with the eligible leader replicas, and the cursor where the next one begins, if there
    is more.
    """

    class DescribeTopicPartitionsResponsePartition(Struct):
        error_code: int16 = 0
        partition_index: int32 = 0
        leader_id: int32 = 0
        leader_epoch: int32 = -1
        replica_nodes: list[int32] = []
        isr_nodes: list[int32] = []
        eligible_leader_replicas: list[int32] | None = None
        last_known_elr: list[int32] | None = None
        offline_replicas: list[int32] = []

    class DescribeTopicPartitionsResponseTopic(Struct):
        error_code: int16 = 0
        name: str | None = ""
        topic_id: uuid = ZERO_UUID
        is_internal: bool = False
        partitions: list[
            DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
        ] = []
        topic_authorized_operations: int32 = -2147483648

    class Cursor(Struct):
        topic_name: str = ""
        partition_index: int32 = 0

    throttle_time_ms: int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: Cursor | None = None
