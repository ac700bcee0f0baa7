"""The life of topics: create, delete, add partitions, move replicas, elect leaders."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import ZERO_UUID, int8, int16, int32, uuid


class CreateTopicsRequest(Message, key=19, versions="2-7", flexible="5+"):
    """Create topics with a count of partitions or a replica assignment. 4 takes the defaults of the
    broker for counts of -1.
    """

    class CreatableReplicaAssignment(Struct):
        partition_index: int32 = 0
        broker_ids: list[int32] = []

    class CreatableTopicConfig(Struct):
        name: str = ""
        value: str | None = ""

    class CreatableTopic(Struct):
        name: str = ""
        num_partitions: int32 = 0
        replication_factor: int16 = 0
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] = []
        configs: list[CreateTopicsRequest.CreatableTopicConfig] = []

    topics: list[CreatableTopic] = []
    timeout_ms: int32 = 60000
    validate_only: bool = False


class CreateTopicsResponse(Message, key=19, versions="2-7", flexible="5+"):
    """5 adds the settings in force, 7 the topic ids."""

    class CreatableTopicConfigs(Struct):
        name: str = ""
        value: str | None = ""
        read_only: bool = False
        config_source: int8 = -1
        is_sensitive: bool = False

    class CreatableTopicResult(Struct):
        name: str = ""
        topic_id: uuid = field(ZERO_UUID, versions="7+", ignorable=True)
        error_code: int16 = 0
        error_message: str | None = ""
        topic_config_error_code: int16 = field(0, versions="5+", tag=0, ignorable=True)
        num_partitions: int32 = field(-1, versions="5+", ignorable=True)
        replication_factor: int16 = field(-1, versions="5+", ignorable=True)
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = field(
            [], versions="5+", ignorable=True
        )

    throttle_time_ms: int32 = 0
    topics: list[CreatableTopicResult] = []


class DeleteTopicsRequest(Message, key=20, versions="1-6", flexible="4+"):
    """Delete topics by name; from 6 on by name or id, each with the other left out."""

    class DeleteTopicState(Struct):
        name: str | None = None
        topic_id: uuid = ZERO_UUID

    topics: list[DeleteTopicState] = field([], versions="6+")
    topic_names: list[str] = field([], versions="1-5", ignorable=True)
    timeout_ms: int32 = 0


class DeleteTopicsResponse(Message, key=20, versions="1-6", flexible="4+"):
    """The answer to DeleteTopics."""

    class DeletableTopicResult(Struct):
        name: str | None = field("", nullable="6+")
        topic_id: uuid = field(ZERO_UUID, versions="6+", ignorable=True)
        error_code: int16 = 0
        error_message: str | None = field(None, versions="5+", ignorable=True)

    throttle_time_ms: int32 = 0
    responses: list[DeletableTopicResult] = []


class CreatePartitionsRequest(Message, key=37, versions="0-3", flexible="2+"):
    """Raise the count of partitions of topics to a total."""

    class CreatePartitionsAssignment(Struct):
        broker_ids: list[int32] = []

    class CreatePartitionsTopic(Struct):
        name: str = ""
        count: int32 = 0
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = []

    topics: list[CreatePartitionsTopic] = []
    timeout_ms: int32 = 0
    validate_only: bool = False


class CreatePartitionsResponse(Message, key=37, versions="0-3", flexible="2+"):
    """The answer to CreatePartitions."""

    class CreatePartitionsTopicResult(Struct):
        name: str = ""
        error_code: int16 = 0
        error_message: str | None = None

    throttle_time_ms: int32 = 0
    results: list[CreatePartitionsTopicResult] = []


class AlterPartitionReassignmentsRequest(Message, key=45, versions="0-1", flexible="0+"):
    """Give partitions new replicas, or with null replicas cancel that. 1 can forbid a change of the
    replication factor.
    """

    class ReassignablePartition(Struct):
        partition_index: int32 = 0
        replicas: list[int32] | None = None

    class ReassignableTopic(Struct):
        name: str = ""
        partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition] = []

    timeout_ms: int32 = 60000
    allow_replication_factor_change: bool = field(True, versions="1+")
    topics: list[ReassignableTopic] = []


class AlterPartitionReassignmentsResponse(Message, key=45, versions="0-1", flexible="0+"):
    """The answer to AlterPartitionReassignments."""

    class ReassignablePartitionResponse(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        error_message: str | None = ""

    class ReassignableTopicResponse(Struct):
        name: str = ""
        partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse] = []

    throttle_time_ms: int32 = 0
    allow_replication_factor_change: bool = field(True, versions="1+", ignorable=True)
    error_code: int16 = 0
    error_message: str | None = ""
    responses: list[ReassignableTopicResponse] = []


class ListPartitionReassignmentsRequest(Message, key=46, versions="0", flexible="0+"):
    """The reassignments under way; null topics are all."""

    class ListPartitionReassignmentsTopics(Struct):
        name: str = ""
        partition_indexes: list[int32] = []

    timeout_ms: int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class ListPartitionReassignmentsResponse(Message, key=46, versions="0", flexible="0+"):
    """The answer to ListPartitionReassignments."""

    class OngoingPartitionReassignment(Struct):
        partition_index: int32 = 0
        replicas: list[int32] = []
        adding_replicas: list[int32] = []
        removing_replicas: list[int32] = []

    class OngoingTopicReassignment(Struct):
        name: str = ""
        partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = []

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    topics: list[OngoingTopicReassignment] = []


class ElectLeadersRequest(Message, key=43, versions="0-2", flexible="2+"):
    """Elect the preferred leaders, or from 1 on by type 1 any replica, even one out of sync. Null
    partitions are all.
    """

    class TopicPartitions(Struct):
        topic: str = ""
        partitions: list[int32] = []

    election_type: int8 = field(0, versions="1+")
    topic_partitions: list[TopicPartitions] | None = []
    timeout_ms: int32 = 60000


class ElectLeadersResponse(Message, key=43, versions="0-2", flexible="2+"):
    """The answer to ElectLeaders."""

    class PartitionResult(Struct):
        partition_id: int32 = 0
        error_code: int16 = 0
        error_message: str | None = ""

    class ReplicaElectionResult(Struct):
        topic: str = ""
        partition_result: list[ElectLeadersResponse.PartitionResult] = []

    throttle_time_ms: int32 = 0
    error_code: int16 = field(0, versions="1+")
    replica_election_results: list[ReplicaElectionResult] = []
