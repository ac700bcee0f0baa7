"""An image as the records that make it: what a snapshot holds.

Replaying them over an empty image gives the image again. The order is Apache Kafka's: features
first, for metadata.version says how to read the rest, then brokers before what refers to them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.metadata.image import BrokerImage, ControllerImage, MetadataImage, PartitionImage
from ottla.broker.metadata.records import KRAFT_VERSION, METADATA_VERSION
from ottla.protocol.messages.metadata_records import (
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from ottla.protocol.schema import Message

BrokerEndpoint = RegisterBrokerRecord.BrokerEndpoint
BrokerFeature = RegisterBrokerRecord.BrokerFeature
ControllerEndpoint = RegisterControllerRecord.ControllerEndpoint
ControllerFeature = RegisterControllerRecord.ControllerFeature


def records_of(image: MetadataImage) -> Iterator[Message]:
    """All records of an image; kraft.version is not among them (a control record says it)."""
    yield from _features(image)
    for broker in image.cluster.brokers.values():
        yield broker_record(broker, has_directories=image.has_directories)
    for controller in image.cluster.controllers.values():
        yield _controller_record(controller)
    for topic in image.topics.by_id.values():
        yield TopicRecord(topic.name, topic.topic_id)
        for index, partition in topic.partitions.items():
            yield partition_record(
                topic.topic_id, index, partition, has_directories=image.has_directories
            )
    for (resource_type, name), values in image.configs.by_resource.items():
        for key, value in values.items():
            yield ConfigRecord(resource_type, name, key, value)
    for entity, quotas in image.client_quotas.items():
        parts = [ClientQuotaRecord.EntityData(kind, name) for kind, name in entity]
        for key, quota in quotas.items():
            yield ClientQuotaRecord(parts, key, quota, False)
    if image.next_producer_id > 0:
        yield ProducerIdsRecord(-1, -1, image.next_producer_id)
    yield from image.acls.values()
    yield from image.scram.values()
    yield from image.tokens.values()


def partition_record(
    topic_id: bytes, index: int, partition: PartitionImage, *, has_directories: bool
) -> PartitionRecord:
    """A partition, whole."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories if has_directories else [],
        eligible_leader_replicas=partition.elr or None,
        last_known_elr=partition.last_known_elr or None,
    )


def broker_record(broker: BrokerImage, *, has_directories: bool) -> RegisterBrokerRecord:
    """A registration, whole."""
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[BrokerEndpoint(*point) for point in broker.endpoints.values()],
        features=[BrokerFeature(name, *range_) for name, range_ in broker.features.items()],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.directories if has_directories else [],
        cordoned_log_dirs=broker.cordoned_directories,
    )


def _controller_record(controller: ControllerImage) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[ControllerEndpoint(*point) for point in controller.endpoints.values()],
        features=[ControllerFeature(name, *range_) for name, range_ in controller.features.items()],
    )


def _features(image: MetadataImage) -> Iterator[FeatureLevelRecord]:
    levels = dict(image.features)
    levels.pop(KRAFT_VERSION, None)
    if METADATA_VERSION in levels:
        yield FeatureLevelRecord(METADATA_VERSION, levels.pop(METADATA_VERSION))
    for name in sorted(levels):
        yield FeatureLevelRecord(name, levels[name])
