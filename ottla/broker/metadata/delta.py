"""Records applied to an image, and what they changed.

A delta collects records over a base image and ends as a new image. It copies a dictionary when it
first changes it and a topic when it first changes one of its partitions; all else is shared. The
same `apply` serves what a command of ours appends, what is replayed at start, and a snapshot.

The rules are those of Apache Kafka's own replay. A record that contradicts the image (a partition
of an unknown topic, a wrong broker epoch) is a MetadataError: no log that a controller wrote holds
one, and guessing would make this node see another cluster than the others do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ottla.broker.metadata.image import (
    DIRECTORY_MIGRATING,
    NO_LEADER,
    TOPIC_RESOURCE,
    BrokerImage,
    ClusterImage,
    ConfigsImage,
    ControllerImage,
    EndpointImage,
    MetadataImage,
    PartitionImage,
    QuotaEntity,
    TopicImage,
    TopicsImage,
)
from ottla.broker.metadata.records import KRAFT_VERSION, MetadataError
from ottla.protocol.messages import metadata_records as types
from ottla.protocol.schema import Message

LEADER_UNCHANGED = -2
RECOVERY_STATE_UNCHANGED = -1

K = TypeVar("K")
V = TypeVar("V")


class Delta:
    """What changed since `base`. Listeners read the public attributes after `finish`.

    `deleted_topics` are those of the base that are gone, `changed_partitions` the partitions made
    or changed, by topic id; `changed_configs` and `changed_brokers` are keys to look up.
    """

    __slots__ = (
        "_acls",
        "_brokers",
        "_configs",
        "_controllers",
        "_features",
        "_next_producer_id",
        "_own_configs",
        "_own_topics",
        "_quotas",
        "_scram",
        "_tokens",
        "_topics_by_id",
        "_topics_by_name",
        "base",
        "changed_brokers",
        "changed_configs",
        "changed_features",
        "changed_partitions",
        "deleted_topics",
    )

    def __init__(self, base: MetadataImage) -> None:
        self.base = base
        self.deleted_topics: dict[bytes, TopicImage] = {}
        self.changed_partitions: dict[bytes, dict[int, PartitionImage]] = {}
        self.changed_configs: dict[tuple[int, str], None] = {}
        self.changed_brokers: dict[int, None] = {}
        self.changed_features: dict[str, None] = {}
        self._topics_by_id = base.topics.by_id
        self._topics_by_name = base.topics.by_name
        self._own_topics: dict[bytes, TopicImage] = {}
        self._brokers = base.cluster.brokers
        self._controllers = base.cluster.controllers
        self._configs = base.configs.by_resource
        self._own_configs: dict[tuple[int, str], dict[str, str]] = {}
        self._features = base.features
        self._next_producer_id = base.next_producer_id
        self._quotas = base.client_quotas
        self._acls = base.acls
        self._scram = base.scram
        self._tokens = base.tokens

    def __repr__(self) -> str:
        return (
            f"<Delta from={self.base.offset} deleted={len(self.deleted_topics)}"
            f" topics={len(self.changed_partitions)} configs={len(self.changed_configs)}"
            f" brokers={list(self.changed_brokers)}>"
        )

    def apply(self, record: Message) -> None:
        """Applies one record; transaction records are the caller's and no-ops change nothing."""
        _APPLIERS[type(record)](self, record)

    def set_kraft_version(self, level: int) -> None:
        """The one feature that is finalized by a control record."""
        self._set_feature(KRAFT_VERSION, level)

    def finish(self, *, offset: int, epoch: int, timestamp: int) -> MetadataImage:
        """The image after all records, of which the last has this offset."""
        base = self.base
        if self._topics_by_id is base.topics.by_id:
            topics = base.topics
        else:
            topics = TopicsImage(self._topics_by_name, self._topics_by_id)
        cluster = base.cluster
        if self._brokers is not cluster.brokers or self._controllers is not cluster.controllers:
            cluster = ClusterImage(self._brokers, self._controllers)
        configs = base.configs
        if self._configs is not configs.by_resource:
            configs = ConfigsImage(self._configs)
        return MetadataImage(
            topics=topics,
            cluster=cluster,
            configs=configs,
            features=self._features,
            next_producer_id=self._next_producer_id,
            client_quotas=self._quotas,
            acls=self._acls,
            scram=self._scram,
            tokens=self._tokens,
            offset=offset,
            epoch=epoch,
            timestamp=timestamp,
        )

    # topics and partitions

    def _apply_topic(self, record: types.TopicRecord) -> None:
        if record.name in self._topics_by_name or record.topic_id in self._topics_by_id:
            raise MetadataError(f"topic {record.name} is created twice")
        self._copy_topics()
        topic = TopicImage(record.name, record.topic_id, {})
        self._topics_by_id[record.topic_id] = topic
        self._topics_by_name[record.name] = topic
        self._own_topics[record.topic_id] = topic
        self.changed_partitions[record.topic_id] = {}

    def _apply_remove_topic(self, record: types.RemoveTopicRecord) -> None:
        topic = self._topics_by_id.get(record.topic_id)
        if topic is None:
            raise MetadataError(f"a topic is removed that is unknown: {record.topic_id.hex()}")
        self._copy_topics()
        del self._topics_by_id[record.topic_id]
        del self._topics_by_name[topic.name]
        self._own_topics.pop(record.topic_id, None)
        self.changed_partitions.pop(record.topic_id, None)
        if record.topic_id in self.base.topics.by_id:
            self.deleted_topics[record.topic_id] = self.base.topics.by_id[record.topic_id]
        if (TOPIC_RESOURCE, topic.name) in self._configs:
            self._copy_configs()
            del self._configs[TOPIC_RESOURCE, topic.name]
            self._own_configs.pop((TOPIC_RESOURCE, topic.name), None)
            self.changed_configs[TOPIC_RESOURCE, topic.name] = None

    def _apply_partition(self, record: types.PartitionRecord) -> None:
        partition = PartitionImage(
            record.replicas,
            record.isr,
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            record.directories or [DIRECTORY_MIGRATING] * len(record.replicas),
            record.eligible_leader_replicas or [],
            record.last_known_elr or [],
            record.removing_replicas,
            record.adding_replicas,
            record.leader_recovery_state,
        )
        self._set_partition(record.topic_id, record.partition_id, partition)

    def _apply_partition_change(self, record: types.PartitionChangeRecord) -> None:
        topic = self._topics_by_id.get(record.topic_id)
        old = topic.partitions.get(record.partition_id) if topic is not None else None
        if old is None:
            raise MetadataError(
                f"partition {record.partition_id} of {record.topic_id.hex()} changes, being unknown"
            )
        self._set_partition(record.topic_id, record.partition_id, merge_change(old, record))

    def _set_partition(self, topic_id: bytes, index: int, partition: PartitionImage) -> None:
        topic = self._own_topics.get(topic_id)
        if topic is None:
            topic = self._own_topic(topic_id)
        topic.partitions[index] = partition
        changed = self.changed_partitions.get(topic_id)
        if changed is None:
            changed = self.changed_partitions[topic_id] = {}
        changed[index] = partition

    def _own_topic(self, topic_id: bytes) -> TopicImage:
        shared = self._topics_by_id.get(topic_id)
        if shared is None:
            raise MetadataError(f"a partition belongs to an unknown topic: {topic_id.hex()}")
        self._copy_topics()
        topic = TopicImage(shared.name, topic_id, dict(shared.partitions))
        self._topics_by_id[topic_id] = topic
        self._topics_by_name[topic.name] = topic
        self._own_topics[topic_id] = topic
        return topic

    def _copy_topics(self) -> None:
        if self._topics_by_id is self.base.topics.by_id:
            self._topics_by_id = dict(self._topics_by_id)
            self._topics_by_name = dict(self._topics_by_name)

    def _apply_clear_elr(self, record: types.ClearElrRecord) -> None:
        if record.topic_name:
            topic = self._topics_by_name.get(record.topic_name)
            if topic is None:
                raise MetadataError(f"ELR is cleared of an unknown topic: {record.topic_name}")
            topics = [topic]
        else:
            topics = list(self._topics_by_id.values())
        for topic in topics:
            for index, partition in list(topic.partitions.items()):
                if partition.elr or partition.last_known_elr:
                    cleared = partition._replace(elr=[], last_known_elr=[])
                    self._set_partition(topic.topic_id, index, cleared)

    # brokers and controllers

    def _apply_register_broker(self, record: types.RegisterBrokerRecord) -> None:
        self._set_broker(
            BrokerImage(
                broker_id=record.broker_id,
                epoch=record.broker_epoch,
                incarnation_id=record.incarnation_id,
                endpoints=_endpoints(record.end_points),
                features=_feature_ranges(record.features),
                rack=record.rack,
                fenced=record.fenced,
                in_controlled_shutdown=record.in_controlled_shutdown,
                directories=record.log_dirs,
                cordoned_directories=record.cordoned_log_dirs,
            )
        )

    def _apply_unregister_broker(self, record: types.UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        self._copy_brokers()
        del self._brokers[record.broker_id]
        self.changed_brokers[record.broker_id] = None

    def _apply_fence(self, record: types.FenceBrokerRecord) -> None:
        self._set_broker(self._broker(record.id, record.epoch)._replace(fenced=True))

    def _apply_unfence(self, record: types.UnfenceBrokerRecord) -> None:
        self._set_broker(self._broker(record.id, record.epoch)._replace(fenced=False))

    def _apply_registration_change(self, record: types.BrokerRegistrationChangeRecord) -> None:
        old = self._broker(record.broker_id, record.broker_epoch)
        cordoned = record.cordoned_log_dirs
        self._set_broker(
            old._replace(
                fenced=record.fenced > 0 if record.fenced else old.fenced,
                in_controlled_shutdown=old.in_controlled_shutdown
                or record.in_controlled_shutdown > 0,
                directories=record.log_dirs or old.directories,
                cordoned_directories=old.cordoned_directories if cordoned is None else cordoned,
            )
        )

    def _broker(self, broker_id: int, epoch: int) -> BrokerImage:
        broker = self._brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            known = "unknown" if broker is None else f"at epoch {broker.epoch}"
            raise MetadataError(f"broker {broker_id} changes at epoch {epoch}, but is {known}")
        return broker

    def _set_broker(self, broker: BrokerImage) -> None:
        self._copy_brokers()
        self._brokers[broker.broker_id] = broker
        self.changed_brokers[broker.broker_id] = None

    def _copy_brokers(self) -> None:
        if self._brokers is self.base.cluster.brokers:
            self._brokers = dict(self._brokers)

    def _apply_register_controller(self, record: types.RegisterControllerRecord) -> None:
        if self._controllers is self.base.cluster.controllers:
            self._controllers = dict(self._controllers)
        self._controllers[record.controller_id] = ControllerImage(
            controller_id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints=_endpoints(record.end_points),
            features=_feature_ranges(record.features),
            zk_migration_ready=record.zk_migration_ready,
        )

    # settings, features, producer ids

    def _apply_config(self, record: types.ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        self._copy_configs()
        values = self._own_configs.get(key)
        if values is None:
            values = dict(self._configs.get(key, {}))
            self._own_configs[key] = self._configs[key] = values
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if not values:
            del self._configs[key]
            del self._own_configs[key]
        self.changed_configs[key] = None

    def _copy_configs(self) -> None:
        if self._configs is self.base.configs.by_resource:
            self._configs = dict(self._configs)

    def _apply_feature_level(self, record: types.FeatureLevelRecord) -> None:
        if record.name != KRAFT_VERSION:  # Kafka ignores it too: control records say it
            self._set_feature(record.name, record.feature_level)

    def _set_feature(self, name: str, level: int) -> None:
        if self._features is self.base.features:
            self._features = dict(self._features)
        if level:
            self._features[name] = level
        else:
            self._features.pop(name, None)
        self.changed_features[name] = None

    def _apply_producer_ids(self, record: types.ProducerIdsRecord) -> None:
        if record.next_producer_id < self._next_producer_id:
            raise MetadataError(
                f"producer ids go back to {record.next_producer_id} from {self._next_producer_id}"
            )
        self._next_producer_id = record.next_producer_id

    # quotas and security, kept for who serves them

    def _apply_client_quota(self, record: types.ClientQuotaRecord) -> None:
        entity: QuotaEntity = tuple(
            sorted(
                ((part.entity_type, part.entity_name) for part in record.entity),
                key=lambda part: part[0],
            )
        )
        values = dict(self._quotas.get(entity, {}))
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        self._quotas = _put(self._quotas, entity, values or None, base=self.base.client_quotas)

    def _apply_acl(self, record: types.AccessControlEntryRecord) -> None:
        self._acls = _put(self._acls, record.id, record, base=self.base.acls)

    def _apply_remove_acl(self, record: types.RemoveAccessControlEntryRecord) -> None:
        if record.id not in self._acls:
            raise MetadataError(f"an ACL is removed that is unknown: {record.id.hex()}")
        self._acls = _put(self._acls, record.id, None, base=self.base.acls)

    def _apply_scram(self, record: types.UserScramCredentialRecord) -> None:
        self._scram = _put(
            self._scram, (record.mechanism, record.name), record, base=self.base.scram
        )

    def _apply_remove_scram(self, record: types.RemoveUserScramCredentialRecord) -> None:
        self._scram = _put(self._scram, (record.mechanism, record.name), None, base=self.base.scram)

    def _apply_token(self, record: types.DelegationTokenRecord) -> None:
        self._tokens = _put(self._tokens, record.token_id, record, base=self.base.tokens)

    def _apply_remove_token(self, record: types.RemoveDelegationTokenRecord) -> None:
        self._tokens = _put(self._tokens, record.token_id, None, base=self.base.tokens)

    def _apply_nothing(self, record: Message) -> None:
        """A record that changes no picture of the cluster."""


def merge_change(old: PartitionImage, change: types.PartitionChangeRecord) -> PartitionImage:
    """A partition after a change; the partition epoch always moves, the leader's with a leader."""
    replicas = old.replicas if change.replicas is None else change.replicas
    directories = old.directories if change.directories is None else change.directories
    if len(directories) != len(replicas):
        directories = [DIRECTORY_MIGRATING] * len(replicas)
    elr = change.eligible_leader_replicas
    last_known_elr = change.last_known_elr
    recovery = change.leader_recovery_state
    has_leader = change.leader != LEADER_UNCHANGED
    assert change.leader >= NO_LEADER or not has_leader
    return PartitionImage(
        replicas,
        old.isr if change.isr is None else change.isr,
        change.leader if has_leader else old.leader,
        old.leader_epoch + 1 if has_leader else old.leader_epoch,
        old.partition_epoch + 1,
        directories,
        old.elr if elr is None else elr,
        old.last_known_elr if last_known_elr is None else last_known_elr,
        old.removing_replicas if change.removing_replicas is None else change.removing_replicas,
        old.adding_replicas if change.adding_replicas is None else change.adding_replicas,
        old.leader_recovery_state if recovery == RECOVERY_STATE_UNCHANGED else recovery,
    )


def _put(values: dict[K, V], key: K, value: V | None, *, base: dict[K, V]) -> dict[K, V]:
    """The values with `key` set, or gone for None; copied first if they are still the base's."""
    changed = dict(values) if values is base else values
    if value is None:
        changed.pop(key, None)
    else:
        changed[key] = value
    return changed


def _endpoints(points: list[Any]) -> dict[str, EndpointImage]:
    return {
        point.name: EndpointImage(point.name, point.host, point.port, point.security_protocol)
        for point in points
    }


def _feature_ranges(features: list[Any]) -> dict[str, tuple[int, int]]:
    return {
        feature.name: (feature.min_supported_version, feature.max_supported_version)
        for feature in features
    }


_APPLIERS: dict[type[Message], Callable[[Delta, Any], None]] = {
    types.RegisterBrokerRecord: Delta._apply_register_broker,
    types.UnregisterBrokerRecord: Delta._apply_unregister_broker,
    types.TopicRecord: Delta._apply_topic,
    types.PartitionRecord: Delta._apply_partition,
    types.ConfigRecord: Delta._apply_config,
    types.PartitionChangeRecord: Delta._apply_partition_change,
    types.FenceBrokerRecord: Delta._apply_fence,
    types.UnfenceBrokerRecord: Delta._apply_unfence,
    types.RemoveTopicRecord: Delta._apply_remove_topic,
    types.DelegationTokenRecord: Delta._apply_token,
    types.UserScramCredentialRecord: Delta._apply_scram,
    types.FeatureLevelRecord: Delta._apply_feature_level,
    types.ClientQuotaRecord: Delta._apply_client_quota,
    types.ProducerIdsRecord: Delta._apply_producer_ids,
    types.BrokerRegistrationChangeRecord: Delta._apply_registration_change,
    types.AccessControlEntryRecord: Delta._apply_acl,
    types.RemoveAccessControlEntryRecord: Delta._apply_remove_acl,
    types.NoOpRecord: Delta._apply_nothing,
    types.ZkMigrationStateRecord: Delta._apply_nothing,
    types.RemoveUserScramCredentialRecord: Delta._apply_remove_scram,
    types.RemoveDelegationTokenRecord: Delta._apply_remove_token,
    types.RegisterControllerRecord: Delta._apply_register_controller,
    types.ClearElrRecord: Delta._apply_clear_elr,
}
