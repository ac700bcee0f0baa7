"""DescribeQuorum: who votes on the metadata log, who leads it, and how far everybody is."""

from __future__ import annotations

from ottla.broker.handlers.context import Session
from ottla.broker.quorum.driver import QuorumDescription, ReplicaState
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.quorum import DescribeQuorumRequest, DescribeQuorumResponse
from ottla.protocol.wire import ZERO_UUID

METADATA_TOPIC = "__cluster_metadata"
METADATA_PARTITION = 0
DIRECTORIES_SINCE_VERSION = 2
UNKNOWN_PARTITION = "This server does not host this topic-partition."

TopicAnswer = DescribeQuorumResponse.TopicData
PartitionAnswer = DescribeQuorumResponse.PartitionData


def handle_describe_quorum(
    session: Session, request: DescribeQuorumRequest, version: int
) -> DescribeQuorumResponse:
    """The state of the metadata partition, asked for alone; no other partition has a quorum."""
    asked = [
        (topic.topic_name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    if asked != [(METADATA_TOPIC, METADATA_PARTITION)]:
        return _unknown(request)
    description = session.rooms.quorum.describe()
    response = DescribeQuorumResponse(
        topics=[TopicAnswer(METADATA_TOPIC, [_partition(description, version)])]
    )
    if version >= DIRECTORIES_SINCE_VERSION:
        response.nodes = _nodes(description)
    return response


def _partition(description: QuorumDescription, version: int) -> PartitionAnswer:
    return PartitionAnswer(
        partition_index=METADATA_PARTITION,
        leader_id=description.leader_id,
        leader_epoch=description.leader_epoch,
        high_watermark=description.high_watermark,
        current_voters=[_replica(one, version) for one in description.voters],
        observers=[_replica(one, version) for one in description.observers],
    )


def _replica(state: ReplicaState, version: int) -> DescribeQuorumResponse.ReplicaState:
    return DescribeQuorumResponse.ReplicaState(
        state.replica_id,
        state.directory_id if version >= DIRECTORIES_SINCE_VERSION else ZERO_UUID,
        state.log_end_offset,
        state.last_fetch_ms,
        state.last_caught_up_ms,
    )


def _nodes(description: QuorumDescription) -> list[DescribeQuorumResponse.Node]:
    """The voters, without listeners: a sole voter opens none for controllers, and whoever went to
    the one that its voters record names would find nobody. Brokers' listeners are no answer either:
    they refuse who asks for a controller."""
    return [DescribeQuorumResponse.Node(one.replica_id) for one in description.voters]


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return DescribeQuorumResponse(
        topics=[
            TopicAnswer(
                topic.topic_name,
                [
                    PartitionAnswer(one.partition_index, code, UNKNOWN_PARTITION)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
