"""Topics are made and unmade: what CreateTopics and DeleteTopics write and answer.

Pure: (image, request) -> (records, response). Checks, their order and their sentences are those of
Apache Kafka 4.3's controller. One request is one change: its records stand in one batch, per topic
the topic, its settings, then its partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ottla.broker.controller.mutation_quotas import Charge, nobody_pays
from ottla.broker.controller.names import TakenNames, new_id, topic_name_fault
from ottla.broker.controller.placement import directories_of, place
from ottla.broker.metadata.image import TOPIC_RESOURCE, MetadataImage, TopicImage
from ottla.broker.ports import Rng
from ottla.config.broker import BrokerConfig
from ottla.config.describe import TopicDescriber
from ottla.config.topic import check_topic_overrides
from ottla.config.types import ConfigError
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata_records import (
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ottla.protocol.schema import Message
from ottla.protocol.wire import ZERO_UUID

METADATA_TOPIC = "__cluster_metadata"
USE_DEFAULT = -1
PARTITIONS_PER_REQUEST_MAX = 10_000
"""Kafka's MAX_PARTITIONS_PER_BATCH: one change of the metadata stays one readable batch."""

DELETION_DISABLED_SINCE_VERSION = 3
STATES_SINCE_VERSION = 6

UNKNOWN_TOPIC = "This server does not host this topic-partition."
UNKNOWN_TOPIC_ID = "This server does not host this topic ID."
NAMED_BY_BOTH = "The provided topic name maps to an ID that was already supplied."
INVALID_REQUEST = int(ErrorCode.INVALID_REQUEST)

LOST_WITH = {
    "__consumer_offsets": "all groups and their committed offsets",
    "__transaction_state": "all transactional ids and what they had open",
    "__share_group_state": "what share groups have acknowledged",
}
"""What coordinators keep in topics, which anybody may delete, as in Kafka, and nobody may grow."""

Topic = CreateTopicsRequest.CreatableTopic
Result = CreateTopicsResponse.CreatableTopicResult
Described = list[CreateTopicsResponse.CreatableTopicConfigs]
Deleted = DeleteTopicsResponse.DeletableTopicResult


def create_topics(
    image: MetadataImage,
    request: CreateTopicsRequest,
    *,
    config: BrokerConfig,
    rng: Rng,
    charge: Charge = nobody_pays,
) -> tuple[list[Message], CreateTopicsResponse]:
    """Makes the topics that can be made; the others are answered why not.

    `config` gives the defaults of partitions and replicas and what settings fall back to. `charge`
    is asked for each topic that could be made, even if it is only to be validated, as in Kafka.
    """
    response = CreateTopicsResponse()
    if _partition_count(request, config) > PARTITIONS_PER_REQUEST_MAX:
        reason = "Excessively large number of partitions per request."
        response.topics = [
            _refused(topic.name, KafkaError(ErrorCode.POLICY_VIOLATION, reason))
            for topic in request.topics
        ]
        return [], response
    records: list[Message] = []
    settings = _Settings(config)
    taken = TakenNames(image)
    counts = Counter(topic.name for topic in request.topics)
    for topic in request.topics:
        if counts[topic.name] > 1 or topic.name == METADATA_TOPIC:
            continue
        try:
            _check_name(image, taken, topic.name)
            created, result = _create(image, topic, config, settings, rng)
            charge(result.num_partitions)
        except KafkaError as error:
            result = _refused(topic.name, error)
        else:
            records += created
        response.topics.append(result)
    response.topics += [_refused(name, error) for name, error in _refused_names(counts)]
    return ([] if request.validate_only else records), response


def delete_topics(
    image: MetadataImage,
    request: DeleteTopicsRequest,
    *,
    version: int,
    enabled: bool = True,
    charge: Charge = nobody_pays,
) -> tuple[list[Message], DeleteTopicsResponse]:
    """Removes topics by name, or from version 6 on by name or id.

    `enabled` is delete.topic.enable. Brokers delete the logs when they see the record. `charge` is
    asked for each topic that could be removed.
    """
    if not enabled:
        disabled = version >= DELETION_DISABLED_SINCE_VERSION
        raise KafkaError(
            ErrorCode.TOPIC_DELETION_DISABLED if disabled else ErrorCode.INVALID_REQUEST,
            "Topic deletion is disabled.",
        )
    if version >= STATES_SINCE_VERSION:
        asked = [(state.name, state.topic_id) for state in request.topics]
    else:
        asked = [(name, ZERO_UUID) for name in request.topic_names]
    response = DeleteTopicsResponse()
    deleted: dict[bytes, Deleted] = {}
    counts = Counter(asked)
    for (name, topic_id), count in counts.items():
        try:
            topic = _topic_to_delete(image, name, topic_id, count)
        except KafkaError as error:
            response.responses.append(Deleted(name, topic_id, int(error.code), error.message))
            continue
        result = deleted.get(topic.topic_id)
        # An id that is refused as a duplicate was supplied all the same.
        is_known = result is not None or counts[None, topic.topic_id] > 1
        if result is None:
            result = deleted[topic.topic_id] = Deleted(topic.name, topic.topic_id)
            response.responses.append(result)
        if is_known:
            result.error_code, result.error_message = INVALID_REQUEST, NAMED_BY_BOTH
    records: list[Message] = []
    for topic_id, result in deleted.items():
        if result.error_code:
            continue
        try:
            charge(len(image.topics.by_id[topic_id].partitions))
        except KafkaError as error:
            result.error_code, result.error_message = int(error.code), error.message
        else:
            records += _removal(image, topic_id)
    return records, response


def _removal(image: MetadataImage, topic_id: bytes) -> Iterator[Message]:
    """With its settings, which the topic's own record removes for us, but not always for Kafka: it
    gives those back, when it reads all this at a start, to one of the same name that came later."""
    name = image.topics.by_id[topic_id].name
    for key in image.configs.by_resource.get((TOPIC_RESOURCE, name), ()):
        yield ConfigRecord(TOPIC_RESOURCE, name, key, None)
    yield RemoveTopicRecord(topic_id)


def _partition_count(request: CreateTopicsRequest, config: BrokerConfig) -> int:
    """All partitions asked for. A negative count, refused later, makes no room for others."""
    return sum(
        len(topic.assignments)
        or (
            config.num_partitions
            if topic.num_partitions == USE_DEFAULT
            else max(topic.num_partitions, 0)
        )
        for topic in request.topics
    )


def _refused_names(counts: Counter[str]) -> list[tuple[str, KafkaError]]:
    """Names that are refused whatever is asked of them, each once."""
    refused: list[tuple[str, KafkaError]] = []
    for name, count in counts.items():
        if count > 1:
            refused.append((name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")))
        elif name == METADATA_TOPIC:
            reason = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
            refused.append((name, KafkaError(ErrorCode.INVALID_REQUEST, reason)))
    return refused


def _refused(name: str, error: KafkaError) -> Result:
    return Result(name=name, error_code=int(error.code), error_message=error.message)


def _create(
    image: MetadataImage, topic: Topic, config: BrokerConfig, settings: _Settings, rng: Rng
) -> tuple[list[Message], Result]:
    overrides = settings.checked(topic)
    assignments = _assignments(image, topic, config, rng)
    topic_id = new_id(rng)
    while topic_id in image.topics.by_id:
        topic_id = new_id(rng)
    records: list[Message] = [TopicRecord(topic.name, topic_id)]
    records += [
        ConfigRecord(TOPIC_RESOURCE, topic.name, key, value) for key, value in overrides.items()
    ]
    records += [
        new_partition(image, topic_id, index, replicas)
        for index, replicas in enumerate(assignments)
    ]
    return records, Result(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(assignments),
        replication_factor=len(assignments[0]),
        configs=settings.described(overrides),
    )


def _check_name(image: MetadataImage, taken: TakenNames, name: str) -> None:
    if name in image.topics.by_name:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    fault = topic_name_fault(name)
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    other = taken.colliding_with(name)
    if other is not None:
        reason = f"Topic '{name}' collides with existing topic: {other}"
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


class _Settings:
    """What the topics of one request are set to, checked and described once for all that are set
    alike: for one topic it takes longer than all else that is done for it here."""

    def __init__(self, config: BrokerConfig) -> None:
        self._describer = TopicDescriber(config)
        self._checked: dict[tuple[tuple[str, str | None], ...], dict[str, str]] = {}
        self._described: dict[tuple[tuple[str, str], ...], Described] = {}

    def checked(self, topic: Topic) -> dict[str, str]:
        """The settings of the topic's own; KafkaError if it cannot have them."""
        asked = tuple((setting.name, setting.value) for setting in topic.configs)
        known = self._checked.get(asked)
        if known is None:
            # Of a setting that is named twice the last counts, but none is to be null.
            values = dict(asked) | {name: None for name, value in asked if value is None}
            try:
                check_topic_overrides(values, self._describer.defaults)
            except ConfigError as error:
                raise KafkaError(ErrorCode.INVALID_CONFIG, error.message) from error
            known = {name: value for name, value in values.items() if value is not None}
            self._checked[asked] = known
        return known

    def described(self, overrides: dict[str, str]) -> Described:
        """All settings as the answer has them, not to be changed."""
        key = tuple(overrides.items())
        known = self._described.get(key)
        if known is None:
            known = self._described[key] = [
                CreateTopicsResponse.CreatableTopicConfigs(
                    entry.name,
                    None if entry.sensitive else entry.value,
                    entry.read_only,
                    int(entry.source),
                    entry.sensitive,
                )
                for entry in self._describer.describe(overrides)
            ]
        return known


def _assignments(
    image: MetadataImage, topic: Topic, config: BrokerConfig, rng: Rng
) -> Sequence[list[int]]:
    if topic.assignments:
        return _manual_assignments(image, topic)
    if topic.replication_factor < USE_DEFAULT or topic.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < USE_DEFAULT or topic.num_partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    count, factor = topic.num_partitions, topic.replication_factor
    if count == USE_DEFAULT:
        count = config.num_partitions
    if factor == USE_DEFAULT:
        factor = config.default_replication_factor
    try:
        return place(image, partition_count=count, replication_factor=factor, rng=rng)
    except KafkaError as error:
        reason = f"Unable to replicate the partition {factor} time(s): {error.message}"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason) from error


def _manual_assignments(image: MetadataImage, topic: Topic) -> list[list[int]]:
    said = "A manual partition assignment was specified, but"
    if topic.replication_factor != USE_DEFAULT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{said} replication factor was not set to -1.")
    if topic.num_partitions != USE_DEFAULT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{said} numPartitions was not set to -1.")
    assigned: dict[int, list[int]] = {}
    factor: int | None = None
    for assignment in topic.assignments:
        index, replicas = assignment.partition_index, assignment.broker_ids
        if index in assigned:
            raise _bad_assignment(
                f"Found multiple manual partition assignments for partition {index}"
            )
        check_manual_assignment(image, index, replicas, replication_factor=factor)
        assigned[index] = replicas
        factor = len(replicas)
    if any(index not in assigned for index in range(len(assigned))):
        raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
    return [assigned[index] for index in range(len(assigned))]


def check_manual_assignment(
    image: MetadataImage, index: int, replicas: list[int], *, replication_factor: int | None
) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT if these brokers cannot carry a partition.

    `replication_factor` is that of the topic's other partitions.
    """
    said = "The manual partition assignment includes"
    if not replicas:
        raise _bad_assignment(f"{said} an empty replica list.")
    previous: int | None = None
    for broker_id in sorted(replicas):
        if broker_id not in image.cluster.brokers:
            raise _bad_assignment(f"{said} broker {broker_id}, but no such broker is registered.")
        if broker_id == previous:
            raise _bad_assignment(f"{said} the broker {broker_id} more than once.")
        previous = broker_id
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _bad_assignment(
            f"{said} a partition with {len(replicas)} replica(s), but this is not consistent with"
            f" previous partitions, which have {replication_factor} replica(s)."
        )
    if not any(image.is_active(broker_id) for broker_id in replicas):
        raise _bad_assignment(
            f"All brokers specified in the manual partition assignment for partition {index}"
            " are fenced or in controlled shutdown."
        )


def new_partition(
    image: MetadataImage, topic_id: bytes, index: int, replicas: list[int]
) -> PartitionRecord:
    """A partition as it begins: in sync is who is active, and the first of them leads."""
    isr = [broker_id for broker_id in replicas if image.is_active(broker_id)]
    if not isr:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {len(replicas)} time(s):"
            " All brokers are currently fenced or in controlled shutdown.",
        )
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=directories_of(image, replicas) if image.has_directories else [],
    )


def _bad_assignment(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _topic_to_delete(
    image: MetadataImage, name: str | None, topic_id: bytes, count: int
) -> TopicImage:
    if name is not None and topic_id != ZERO_UUID:
        reason = "You may not specify both topic name and topic id."
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    if name is None and topic_id == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if count > 1:
        what = "name" if name is not None else "id"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")
    if name is not None:
        topic = image.topics.by_name.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC)
    else:
        topic = image.topics.by_id.get(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_ID)
    return topic
