"""Topics grow: what CreatePartitions writes and answers. Pure, with Kafka's checks and words.

One check is our own: the coordinators' topics do not grow. Kafka lets them, and when its brokers
restart they look for each group and transactional id in another partition than it was written to.
"""

from __future__ import annotations

from collections import Counter

from ottla.broker.controller.mutation_quotas import Charge, nobody_pays
from ottla.broker.controller.placement import place
from ottla.broker.controller.topics import (
    LOST_WITH,
    PARTITIONS_PER_REQUEST_MAX,
    check_manual_assignment,
    new_partition,
)
from ottla.broker.metadata.image import MetadataImage, TopicImage
from ottla.broker.ports import Rng
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsResponse
from ottla.protocol.schema import Message

Wanted = CreatePartitionsRequest.CreatePartitionsTopic
Result = CreatePartitionsResponse.CreatePartitionsTopicResult


def create_partitions(
    image: MetadataImage,
    request: CreatePartitionsRequest,
    *,
    rng: Rng,
    charge: Charge = nobody_pays,
) -> tuple[list[Message], CreatePartitionsResponse]:
    """Adds partitions where the count asked for is an increase; `count` is the new total.

    The limit counts for all topics of a request together: they become one change. `charge` is asked
    before it is looked at where the partitions could be placed, as in Kafka.
    """
    response = CreatePartitionsResponse()
    records: list[Message] = []
    counts = Counter(topic.name for topic in request.topics)
    for topic in request.topics:
        if counts[topic.name] > 1:
            continue
        try:
            room = PARTITIONS_PER_REQUEST_MAX - len(records)
            added = _add(image, topic, rng, charge, room=room)
        except KafkaError as error:
            response.results.append(Result(topic.name, int(error.code), error.message))
            continue
        records += added
        response.results.append(Result(topic.name))
    response.results += [
        Result(name, int(ErrorCode.INVALID_REQUEST), "Duplicate topic name.")
        for name, count in counts.items()
        if count > 1
    ]
    return ([] if request.validate_only else records), response


def _add(
    image: MetadataImage, wanted: Wanted, rng: Rng, charge: Charge, *, room: int
) -> list[Message]:
    topic = image.topics.by_name.get(wanted.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    current = len(topic.partitions)
    _check_count(wanted, current, room)
    added = wanted.count - current
    if wanted.assignments is not None and len(wanted.assignments) != added:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but only"
            f" {len(wanted.assignments)} assignment(s) were specified.",
        )
    charge(added)
    factor = len(topic.partitions[0].replicas)
    if wanted.assignments is not None:
        replicas = _manual(image, wanted, topic, factor)
    else:
        replicas = place(image, partition_count=added, replication_factor=factor, rng=rng)
    return [
        new_partition(image, topic.topic_id, current + step, brokers)
        for step, brokers in enumerate(replicas)
    ]


def _check_count(wanted: Wanted, current: int, room: int) -> None:
    if wanted.count == current:
        reason = f"Topic already has {current} partition(s)."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, reason)
    if wanted.count < current:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {current} partition(s);"
            f" {wanted.count} would not be an increase.",
        )
    lost = LOST_WITH.get(wanted.name)
    if lost is not None:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The number of partitions of {wanted.name} cannot be changed: {lost} would be looked"
            " for in other partitions, and be lost.",
        )
    if wanted.count - current > room:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )


def _manual(
    image: MetadataImage, wanted: Wanted, topic: TopicImage, factor: int
) -> list[list[int]]:
    assert wanted.assignments is not None
    replicas = [assignment.broker_ids for assignment in wanted.assignments]
    for index, brokers in enumerate(replicas, start=len(topic.partitions)):
        check_manual_assignment(image, index, brokers, replication_factor=factor)
    return replicas
