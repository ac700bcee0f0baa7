"""The life of a broker in the cluster: registered, in service, out of service.

`register` makes a new incarnation, which is fenced; `unfence` puts it in service once its logs are
loaded; `shutdown` fences it when it stops; `unregister` forgets one that is gone for good. Pure:
(image, ...) -> (records, result).

A node alone writes little at a clean stop: one record that fences it. Its partitions keep leader
and epoch, for nothing was lost and nobody else can lead. Apache Kafka, when it opens such a
directory, registers at once and elects anew itself; left unfenced, the broker would have a session
that it first waits for to expire.
After an unclean stop a recovered log may have lost its tail, so each partition gets a new leader
epoch, by which consumers find out (KIP-320).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.broker.controller.elections import (
    Election,
    acceptable_in,
    change_partition,
    rules_of,
)
from ottla.broker.controller.features import SUPPORTED_FEATURES
from ottla.broker.metadata.image import (
    NO_LEADER,
    EndpointImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
    is_reserved_id,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from ottla.protocol.schema import Message

FENCE = 1
UNFENCE = -1
NO_BROKER_EPOCH = -1
CORDONED_SINCE = 30
"""The level of metadata.version whose records name cordoned directories."""

Place = tuple[TopicImage, int, PartitionImage]


class Registration(NamedTuple):
    """What a broker says of itself when it starts. `incarnation_id` is new in each process.

    `previous_epoch` is the broker epoch that its clean-shutdown marker names, -1 without one.
    """

    broker_id: int
    incarnation_id: bytes
    listeners: Sequence[EndpointImage]
    directories: Sequence[bytes]
    rack: str | None = None
    previous_epoch: int = NO_BROKER_EPOCH
    features: Mapping[str, tuple[int, int]] = SUPPORTED_FEATURES


class Registered(NamedTuple):
    """`epoch` is the new broker epoch; `clean` says that the last stop lost nothing."""

    epoch: int
    clean: bool


def register(
    image: MetadataImage, registration: Registration, *, position: int = 0
) -> tuple[list[Message], Registered]:
    """A new incarnation of a broker, fenced. Its epoch is the offset of the record.

    `position` counts the records that go before it in the same change.
    """
    _check_directories(image, registration)
    old = image.cluster.brokers.get(registration.broker_id)
    epoch = image.offset + 1 + position
    endpoint, feature = RegisterBrokerRecord.BrokerEndpoint, RegisterBrokerRecord.BrokerFeature
    record = RegisterBrokerRecord(
        broker_id=registration.broker_id,
        incarnation_id=registration.incarnation_id,
        broker_epoch=epoch,
        end_points=[endpoint(*listener) for listener in registration.listeners],
        features=[feature(name, *levels) for name, levels in registration.features.items()],
        rack=registration.rack,
        fenced=True,
        log_dirs=sorted(registration.directories) if image.has_directories else [],
    )
    clean = old is None or old.epoch == registration.previous_epoch
    return [record], Registered(epoch, clean)


def register_controller(
    controller_id: int, incarnation_id: bytes, listeners: Iterable[EndpointImage]
) -> Message:
    """The record by which a controller says where it is and what it supports."""
    endpoint = RegisterControllerRecord.ControllerEndpoint
    feature = RegisterControllerRecord.ControllerFeature
    return RegisterControllerRecord(
        controller_id=controller_id,
        incarnation_id=incarnation_id,
        end_points=[endpoint(*listener) for listener in listeners],
        features=[feature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
    )


def unfence(
    image: MetadataImage, broker_id: int, *, cordoned: Sequence[bytes], clean: bool
) -> tuple[list[Message], None]:
    """Puts a registered broker in service and gives it what it alone can lead.

    Without `clean` every partition that it leads gets a new leader epoch.
    """
    broker = image.cluster.brokers[broker_id]
    records: list[Message] = []
    if broker.fenced:
        records.append(BrokerRegistrationChangeRecord(broker_id, broker.epoch, fenced=UNFENCE))
    records += cordon(image, broker_id, cordoned)[0]
    for topic, index, partition in _replicas_of(image, broker_id):
        is_leader = partition.leader == broker_id
        if partition.leader == NO_LEADER or (is_leader and not clean):
            change = _change(image, (topic, index, partition), partition.isr, starting=broker_id)
            if change is not None:
                records.append(change)
    return records, None


def cordon(
    image: MetadataImage, broker_id: int, cordoned: Sequence[bytes]
) -> tuple[list[Message], None]:
    """Records which log directories of a broker get no new partitions (KIP-1066), at a level of
    metadata.version that can say so. One that is not registered yet tells it by `unfence`."""
    broker = image.cluster.brokers.get(broker_id)
    if broker is None or broker.cordoned_directories == cordoned:
        return [], None
    if image.metadata_version < CORDONED_SINCE:
        return [], None
    record = BrokerRegistrationChangeRecord(
        broker_id, broker.epoch, cordoned_log_dirs=list(cordoned)
    )
    return [record], None


def shutdown(image: MetadataImage, broker_id: int) -> tuple[list[Message], None]:
    """Takes a broker out of service; partitions go to other in-sync replicas where there are any.

    What nobody else can lead is left to it, leader and epoch: see the module.
    """
    broker = image.cluster.brokers[broker_id]
    if broker.fenced:
        return [], None
    records: list[Message] = [BrokerRegistrationChangeRecord(broker_id, broker.epoch, fenced=FENCE)]
    for topic, index, partition in _replicas_of(image, broker_id):
        rest = [one for one in partition.isr if one != broker_id]
        if any(image.is_active(one) for one in rest):
            change = _change(image, (topic, index, partition), rest, leaving=broker_id)
            if change is not None:
                records.append(change)
    return records, None


def unregister(image: MetadataImage, broker_id: int, *, node_id: int) -> tuple[list[Message], None]:
    """Forgets a broker, which leads nothing from then on and is in sync with nothing.

    Raises BROKER_ID_NOT_REGISTERED, and INVALID_REQUEST for the one that serves the request: it
    would answer on, and lead nothing until somebody starts it again.
    """
    broker = image.cluster.brokers.get(broker_id)
    if broker is None:
        reason = f"Broker ID {broker_id} is not currently registered"
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, reason)
    if broker_id == node_id:
        reason = f"Broker ID {broker_id} is in service and is the one that is asked."
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    records: list[Message] = []
    for topic, index, partition in _replicas_of(image, broker_id):
        rest = [one for one in partition.isr if one != broker_id]
        if partition.leader == broker_id or rest != partition.isr:
            change = _change(image, (topic, index, partition), rest, leaving=broker_id)
            if change is not None:
                records.append(change)
    return [*records, UnregisterBrokerRecord(broker_id, broker.epoch)], None


def assign_directories(
    image: MetadataImage, broker_id: int, directories: Mapping[tuple[bytes, int], bytes]
) -> tuple[list[Message], None]:
    """Records in which log directory a broker has put its replicas, by (topic id, partition), at a
    level of metadata.version that can say so."""
    records: list[Message] = []
    if not image.has_directories:
        return records, None
    for (topic_id, index), directory in directories.items():
        topic = image.topics.by_id.get(topic_id)
        partition = None if topic is None else topic.partitions.get(index)
        if partition is None or broker_id not in partition.replicas:
            continue
        if partition.directory_of(broker_id) != directory:
            changed = list(partition.directories)
            changed[partition.replicas.index(broker_id)] = directory
            records.append(PartitionChangeRecord(index, topic_id, directories=changed))
    return records, None


def _replicas_of(image: MetadataImage, broker_id: int) -> Iterable[Place]:
    for topic in image.topics.by_id.values():
        for index, partition in topic.partitions.items():
            if broker_id in partition.replicas:
                yield topic, index, partition


def _change(
    image: MetadataImage, place: Place, isr: list[int], *, starting: int = -1, leaving: int = -1
) -> PartitionChangeRecord | None:
    topic, index, partition = place
    rules = rules_of(image, topic)
    acceptable = acceptable_in(image, partition, starting=starting)
    return change_partition(
        topic.topic_id,
        index,
        partition,
        isr=isr,
        rules=rules,
        election=Election.UNCLEAN if rules.unclean_election else Election.ONLINE,
        acceptable=lambda broker_id: broker_id != leaving and acceptable(broker_id),
        new_epoch=starting >= 0,
    )


def _check_directories(image: MetadataImage, registration: Registration) -> None:
    directories = registration.directories
    if not directories or len(set(directories)) != len(directories):
        raise _bad_registration("The log directories of a broker need an id each, all different.")
    if any(is_reserved_id(directory) for directory in directories):
        raise _bad_registration("A log directory has an id that is reserved.")
    for other in image.cluster.brokers.values():
        shared = not set(directories).isdisjoint(other.directories)
        if shared and other.broker_id != registration.broker_id:
            raise _bad_registration(
                f"A log directory is already registered by broker {other.broker_id}."
            )


def _bad_registration(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGISTRATION, reason)
