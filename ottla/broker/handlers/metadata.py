"""Metadata, DescribeCluster and DescribeTopicPartitions: the image, as clients are shown it.

Kafka's rules that clients depend on: brokers carry the address of the listener that was asked
(`endpoints.py`); a topic shows all its partitions even if some have no leader; version 0 asks for
all topics by an empty list, later versions by null; an unknown name is answered
UNKNOWN_TOPIC_OR_PARTITION while it is being created (`auto_create.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.controller.names import topic_name_fault
from ottla.broker.handlers.context import Session
from ottla.broker.handlers.endpoints import Reachable, reachable_brokers
from ottla.broker.handlers.topic_names import INTERNAL_TOPICS
from ottla.broker.metadata.image import MetadataImage, TopicImage
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from ottla.protocol.wire import ZERO_UUID

TopicAnswer = MetadataResponse.MetadataResponseTopic
PartitionAnswer = MetadataResponse.MetadataResponsePartition
DescribedTopic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
DescribedPartition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition

TOPIC_OPERATIONS = 3576
"""Every operation that a topic has, as bits: what everybody may do without an authorizer."""
CLUSTER_OPERATIONS = 8096
"""Create, alter, describe, cluster action, describe and alter configs, idempotent write."""

TOPIC_IDS_SINCE_VERSION = 12
LISTENER_ERRORS_SINCE_VERSION = 6
BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2
NO_LEADER = -1


class PartitionAnswers:
    """What Metadata says of partitions, kept as long as the image is the same: a client that asks
    again and again, or many that ask for thousands of partitions, hold the loop for less."""

    __slots__ = ("_image", "_kept")

    def __init__(self) -> None:
        self._image: MetadataImage | None = None
        self._kept: dict[tuple[str, bool], dict[bytes, list[PartitionAnswer]]] = {}

    def __repr__(self) -> str:
        return f"<PartitionAnswers topics={sum(map(len, self._kept.values()))}>"

    def of(
        self, image: MetadataImage, listener_name: str, *, listener_errors: bool
    ) -> dict[bytes, list[PartitionAnswer]]:
        """Topic id -> its partitions, of those that were asked for by clients of a listener."""
        if image is not self._image:
            self._image = image
            self._kept.clear()
        return self._kept.setdefault((listener_name, listener_errors), {})


def handle_metadata(session: Session, request: MetadataRequest, version: int) -> MetadataResponse:
    """The brokers and the asked topics; starts the creation of topics that may be auto-created."""
    asked = request.topics
    if asked is not None and not _is_well_formed(asked, version):
        return _refused(asked)
    reachable = reachable_brokers(session)
    image = session.rooms.image
    partitions_of = _partition_answers(session, image, reachable, version)
    if asked is None or (version == 0 and not asked):
        topics = [_topic_answer(topic, partitions_of) for topic in image.topics.by_name.values()]
    else:
        topics = _asked_topics(session, request, image, partitions_of)
    response = MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id, host, port, broker.rack)
            for node_id, (host, port, broker) in reachable.items()
        ],
        cluster_id=session.rooms.cluster_id,
        controller_id=_controller_id(session, reachable),
        topics=topics,
    )
    if request.include_topic_authorized_operations:
        for answer in topics:
            if answer.name is not None:
                answer.topic_authorized_operations = TOPIC_OPERATIONS
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def handle_describe_cluster(
    session: Session, request: DescribeClusterRequest, version: int
) -> DescribeClusterResponse:
    """The brokers. Controllers are described by the controller listener alone."""
    if request.endpoint_type != BROKER_ENDPOINTS:
        return _refused_endpoint_type(request.endpoint_type)
    reachable = reachable_brokers(session)
    response = DescribeClusterResponse(
        cluster_id=session.rooms.cluster_id,
        controller_id=_controller_id(session, reachable),
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(node_id, host, port, broker.rack)
            for node_id, (host, port, broker) in reachable.items()
        ],
    )
    if request.include_fenced_brokers:
        response.brokers += _fenced_brokers(session)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def handle_describe_topic_partitions(
    session: Session, request: DescribeTopicPartitionsRequest, version: int
) -> DescribeTopicPartitionsResponse:
    """Topics in the order of their names, up to a number of partitions; then a cursor."""
    cursor = request.cursor
    asked = {topic.name for topic in request.topics}
    first_name, first_index = "", 0
    if cursor is not None:
        first_name, first_index = cursor.topic_name, cursor.partition_index
        if first_index < 0 or (asked and first_name not in asked):
            return _refused_cursor(request)
    image = session.rooms.image
    names = asked or image.topics.by_name.keys()
    reachable = reachable_brokers(session)
    limit = session.rooms.config.max_request_partition_size_limit
    left = max(min(request.response_partition_limit, limit), 1)
    response = DescribeTopicPartitionsResponse()
    for name in sorted(name for name in names if name >= first_name):
        if not left:
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(name, 0)
            break
        topic = image.topics.by_name.get(name)
        if topic is None:
            response.topics.append(_described_unknown(name))
            continue
        start = first_index if name == first_name else 0
        indexes = sorted(index for index in topic.partitions if index >= start)
        response.topics.append(_described(topic, indexes[:left], image, reachable))
        if len(indexes) > left:
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(name, indexes[left])
            break
        left -= len(indexes)
    return response


def leader_error(leader: int, image: MetadataImage, *, listener_errors: bool = True) -> int:
    """Why a partition has no leader that this client can reach."""
    if listener_errors and leader in image.cluster.brokers:
        return int(ErrorCode.LISTENER_NOT_FOUND)
    return int(ErrorCode.LEADER_NOT_AVAILABLE)


# Metadata

PartitionsOf = Callable[[TopicImage], list[PartitionAnswer]]


def _is_well_formed(asked: list[MetadataRequest.MetadataRequestTopic], version: int) -> bool:
    """A topic is named, or from version 12 on it may be asked by its id instead."""
    by_id = version >= TOPIC_IDS_SINCE_VERSION
    return all(
        (by_id or topic.topic_id == ZERO_UUID)
        and (topic.name is not None or topic.topic_id != ZERO_UUID)
        for topic in asked
    )


def _refused(asked: list[MetadataRequest.MetadataRequestTopic]) -> MetadataResponse:
    invalid = int(ErrorCode.INVALID_REQUEST)
    return MetadataResponse(
        topics=[TopicAnswer(invalid, topic.name or "", topic.topic_id) for topic in asked],
        error_code=invalid,
    )


def _asked_topics(
    session: Session, request: MetadataRequest, image: MetadataImage, partitions_of: PartitionsOf
) -> list[TopicAnswer]:
    """One answer for each topic, however often it is asked."""
    by_name, by_id = image.topics.by_name, image.topics.by_id
    answers: dict[str | bytes, TopicAnswer] = {}
    missing: list[str] = []
    assert request.topics is not None
    for asked in request.topics:
        name = asked.name
        if asked.topic_id != ZERO_UUID:
            topic = by_id.get(asked.topic_id)
            if topic is None:
                unknown = int(ErrorCode.UNKNOWN_TOPIC_ID)
                answers[asked.topic_id] = TopicAnswer(unknown, None, asked.topic_id)
                continue
        else:
            assert name is not None
            topic = by_name.get(name)
            if topic is None:
                if name not in answers:
                    answers[name] = _unknown(name)
                    missing.append(name)
                continue
        if topic.name not in answers:
            answers[topic.name] = _topic_answer(topic, partitions_of)
    if missing and request.allow_auto_topic_creation:
        session.rooms.auto_creation.request(session.rooms, missing, session.client_id)
    return list(answers.values())


def _unknown(name: str) -> TopicAnswer:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic_name_fault(name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return TopicAnswer(int(code), name, is_internal=name in INTERNAL_TOPICS)


def _topic_answer(topic: TopicImage, partitions_of: PartitionsOf) -> TopicAnswer:
    return TopicAnswer(
        0, topic.name, topic.topic_id, topic.name in INTERNAL_TOPICS, partitions_of(topic)
    )


def _partition_answers(
    session: Session, image: MetadataImage, reachable: Reachable, version: int
) -> PartitionsOf:
    """A tight loop over the partitions of one topic: a cluster may have tens of thousands."""
    listener_errors = version >= LISTENER_ERRORS_SINCE_VERSION
    offline_replicas = reachable.offline_replicas
    kept = session.rooms.partition_answers.of(
        image, session.listener_name, listener_errors=listener_errors
    )

    def partitions_of(topic: TopicImage) -> list[PartitionAnswer]:
        if topic.topic_id in kept:
            return kept[topic.topic_id]
        answers = []
        for index, partition in topic.partitions.items():
            leader = partition.leader
            error = 0
            if leader not in reachable:
                error = leader_error(leader, image, listener_errors=listener_errors)
                leader = NO_LEADER
            answers.append(
                PartitionAnswer(
                    error,
                    index,
                    leader,
                    partition.leader_epoch,
                    partition.replicas,
                    partition.isr,
                    offline_replicas(partition),
                )
            )
        kept[topic.topic_id] = answers
        return answers

    return partitions_of


# DescribeCluster


def _controller_id(session: Session, reachable: Reachable) -> int:
    """Any broker serves what the controller decides, so clients are sent where they are."""
    own_id = session.rooms.config.node_id
    return own_id if own_id in reachable else next(iter(reachable), -1)


def _refused_endpoint_type(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLER_ENDPOINTS:
        return DescribeClusterResponse(
            error_code=int(ErrorCode.MISMATCHED_ENDPOINT_TYPE),
            error_message="The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER",
        )
    return DescribeClusterResponse(
        error_code=int(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        error_message=f"Unsupported endpoint type {endpoint_type}",
    )


def _fenced_brokers(session: Session) -> list[DescribeClusterResponse.DescribeClusterBroker]:
    shown = []
    for broker_id, broker in session.rooms.image.cluster.brokers.items():
        endpoint = broker.endpoints.get(session.listener_name)
        if broker.fenced and endpoint is not None:
            shown.append(
                DescribeClusterResponse.DescribeClusterBroker(
                    broker_id, endpoint.host, endpoint.port, broker.rack, is_fenced=True
                )
            )
    return shown


# DescribeTopicPartitions


def _refused_cursor(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    invalid = int(ErrorCode.INVALID_REQUEST)
    return DescribeTopicPartitionsResponse(
        topics=[DescribedTopic(invalid, topic.name) for topic in request.topics]
    )


def _described_unknown(name: str) -> DescribedTopic:
    unknown = _unknown(name)
    return DescribedTopic(
        unknown.error_code,
        name,
        is_internal=unknown.is_internal,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _described(
    topic: TopicImage, indexes: list[int], image: MetadataImage, reachable: Reachable
) -> DescribedTopic:
    partitions = []
    for index in indexes:
        partition = topic.partitions[index]
        has_leader = partition.leader in reachable
        partitions.append(
            DescribedPartition(
                error_code=0 if has_leader else leader_error(partition.leader, image),
                partition_index=index,
                leader_id=partition.leader if has_leader else NO_LEADER,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                eligible_leader_replicas=partition.elr,
                last_known_elr=partition.last_known_elr,
                offline_replicas=reachable.offline_replicas(partition),
            )
        )
    return DescribedTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
