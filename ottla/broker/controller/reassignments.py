"""Partitions get other replicas: AlterPartitionReassignments and ListPartitionReassignments.

A reassignment has two steps. The first names the new replicas beside the old, who is to come and
who is to go; the second, once all of the new are in sync, drops the old. A target that is in sync
already needs only the second, so that a change of the order is made at once. Null replicas call a
reassignment back. Pure: (image, request) -> (records, response); rules, their order and their
sentences are those of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.broker.controller.elections import (
    Election,
    acceptable_in,
    change_partition,
    rules_of,
)
from ottla.broker.controller.placement import directories_of
from ottla.broker.controller.topics import check_manual_assignment
from ottla.broker.metadata.delta import LEADER_UNCHANGED
from ottla.broker.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata_records import PartitionChangeRecord
from ottla.protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.protocol.schema import Message

Asked = AlterPartitionReassignmentsRequest.ReassignablePartition
TopicAnswer = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
PartitionAnswer = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
OngoingTopic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
OngoingPartition = ListPartitionReassignmentsResponse.OngoingPartitionReassignment


class _Target(NamedTuple):
    """What a partition is to be; `replicas` are those to come, to stay and to go."""

    replicas: list[int]
    isr: list[int]
    adding: list[int]
    removing: list[int]


def alter_partition_reassignments(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest
) -> tuple[list[Message], AlterPartitionReassignmentsResponse]:
    """Each partition is reassigned, called back or refused on its own. The answer repeats whether
    the factor may change; where no topic is named it may, whatever was asked, as in Kafka's."""
    records: list[Message] = []
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change
        or not request.topics,
        error_message=None if request.topics else "",
    )
    for topic in request.topics:
        answers: list[PartitionAnswer] = []
        response.responses.append(TopicAnswer(topic.name, answers))
        for asked in topic.partitions:
            answer = PartitionAnswer(asked.partition_index, error_message=None)
            answers.append(answer)
            try:
                record = _altered(
                    image,
                    topic.name,
                    asked,
                    any_factor=request.allow_replication_factor_change,
                )
            except KafkaError as error:
                answer.error_code, answer.error_message = int(error.code), error.message
                continue
            if record is not None:
                records.append(record)
    return records, response


def list_partition_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """The reassignments under way, of all topics for null, else of the partitions asked for."""
    response = ListPartitionReassignmentsResponse(error_message=None)
    for topic, indexes in _listed(image, request):
        ongoing = [
            OngoingPartition(
                index, partition.replicas, partition.adding_replicas, partition.removing_replicas
            )
            for index in indexes
            if (partition := topic.partitions.get(index)) is not None and _under_way(partition)
        ]
        if ongoing:
            response.topics.append(OngoingTopic(topic.name, ongoing))
    return response


def _listed(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> Iterator[tuple[TopicImage, Sequence[int]]]:
    if request.topics is None:
        for topic in image.topics.by_name.values():
            yield topic, list(topic.partitions)
        return
    for asked in request.topics:
        known = image.topics.by_name.get(asked.name)
        if known is not None:
            yield known, asked.partition_indexes


def _under_way(partition: PartitionImage) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def _altered(
    image: MetadataImage, name: str, asked: Asked, *, any_factor: bool
) -> PartitionChangeRecord | None:
    topic = image.topics.by_name.get(name)
    if topic is None:
        reason = f"Unable to find a topic named {name}."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
    index = asked.partition_index
    partition = topic.partitions.get(index)
    if partition is None:
        reason = f"Unable to find partition {name}:{index}."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
    if asked.replicas is None:
        return _record(image, topic, index, _called_back(image, topic, index), cancels=True)
    check_manual_assignment(image, index, asked.replicas, replication_factor=None)
    if not any_factor:
        _check_factor(partition, asked.replicas)
    return _record(image, topic, index, _reassigned(partition, asked.replicas), cancels=False)


def _check_factor(partition: PartitionImage, replicas: list[int]) -> None:
    """KIP-860: the factor that counts is that of before a reassignment that is under way."""
    before = sum(one not in partition.adding_replicas for one in partition.replicas)
    if before != len(replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {before} to {len(replicas)}",
        )


def _reassigned(partition: PartitionImage, replicas: list[int]) -> _Target:
    removing = sorted(one for one in partition.replicas if one not in replicas)
    adding = sorted(one for one in replicas if one not in partition.replicas)
    in_sync = [one for one in partition.isr if one in replicas]
    if (removing or adding) and set(in_sync) == set(replicas):
        return _Target(replicas, in_sync, [], [])
    return _Target([*replicas, *removing], partition.isr, adding, removing)


def _called_back(image: MetadataImage, topic: TopicImage, index: int) -> _Target:
    partition = topic.partitions[index]
    if not _under_way(partition):
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = [one for one in partition.replicas if one not in partition.adding_replicas]
    isr = [one for one in partition.isr if one not in partition.adding_replicas]
    if not replicas:
        reason = "Invalid replica assignment: addingReplicas contains all replicas."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    if not isr:
        if not rules_of(image, topic).unclean_election:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{index} because it would"
                " require an unclean leader election.",
            )
        isr = [replicas[0]]
    return _Target(replicas, isr, [], [])


def _record(
    image: MetadataImage, topic: TopicImage, index: int, target: _Target, *, cancels: bool
) -> PartitionChangeRecord | None:
    """What makes the partition the target and elects a leader of it; None if it is that."""
    old = topic.partitions[index]
    known = dict(zip(old.replicas, old.directories, strict=True))
    new = dict(zip(target.replicas, directories_of(image, target.replicas), strict=True))
    directories = [known.get(one, new[one]) for one in target.replicas]
    partition = old._replace(replicas=target.replicas, directories=directories)
    rules = rules_of(image, topic)
    change = change_partition(
        topic.topic_id,
        index,
        partition,
        isr=target.isr,
        rules=rules,
        election=Election.UNCLEAN if cancels and rules.unclean_election else Election.ONLINE,
        acceptable=acceptable_in(image, partition, starting=-1),
    )
    record = change or PartitionChangeRecord(index, topic.topic_id)
    if record.leader == LEADER_UNCHANGED and not set(old.replicas) <= set(target.replicas):
        record.leader = old.leader  # a new epoch, so that who is gone is fenced
    if directories != old.directories and image.has_directories:
        record.directories = directories
    if target.replicas != old.replicas:
        record.replicas = target.replicas
    if target.removing != old.removing_replicas:
        record.removing_replicas = target.removing
    if target.adding != old.adding_replicas:
        record.adding_replicas = target.adding
    return None if record == PartitionChangeRecord(index, topic.topic_id) else record
