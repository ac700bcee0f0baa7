"""The cluster's metadata at one offset of its log: what every other room reads.

An image is never changed. A change makes a new one that shares with the old all that did not
change (`delta.py`), so whoever holds an image may read it at leisure, on any thread. Look-ups are
plain dictionaries; the lists inside are those of the decoded records and are not to be touched.

    image.topics.by_name["orders"].partitions[0].leader
    image.configs.get(TOPIC_RESOURCE, "orders")["retention.ms"]
    image.cluster.brokers[1].endpoints["PLAINTEXT"].port
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.broker.metadata.records import DIRECTORIES_SINCE, KRAFT_VERSION, METADATA_VERSION
from ottla.protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
)

NO_LEADER = -1
NO_OFFSET = -1

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
BROKER_LOGGER_RESOURCE = 8
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32
ALL_BROKERS = ""
"""The broker resource whose settings are defaults for all brokers."""

RECOVERED = 0
RECOVERING = 1
"""Leader recovery state: the leader was elected uncleanly and is not yet settled."""

ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"

DIRECTORY_MIGRATING = bytes(16)
DIRECTORY_UNASSIGNED = bytes(15) + b"\x01"
DIRECTORY_LOST = bytes(15) + b"\x02"
RESERVED_DIRECTORY_COUNT = 100
"""Ids below this number are Kafka's own and never given to a directory or a topic."""


def is_reserved_id(value: bytes) -> bool:
    """Whether an id is one of those that Kafka keeps for itself."""
    return int.from_bytes(value, "big") < RESERVED_DIRECTORY_COUNT


class PartitionImage(NamedTuple):
    """One partition. `directories` stands parallel to `replicas`."""

    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: list[bytes]
    elr: list[int]
    last_known_elr: list[int]
    removing_replicas: list[int]
    adding_replicas: list[int]
    leader_recovery_state: int = RECOVERED

    def directory_of(self, broker_id: int) -> bytes:
        """The log directory of a replica; the broker is one of the replicas."""
        return self.directories[self.replicas.index(broker_id)]


class TopicImage(NamedTuple):
    name: str
    topic_id: bytes
    partitions: dict[int, PartitionImage]


class TopicsImage(NamedTuple):
    """The same topics, found by name and by id."""

    by_name: dict[str, TopicImage]
    by_id: dict[bytes, TopicImage]


class EndpointImage(NamedTuple):
    name: str
    host: str
    port: int
    security_protocol: int


class BrokerImage(NamedTuple):
    """One registration of a broker. `epoch` is the offset of the record that made it."""

    broker_id: int
    epoch: int
    incarnation_id: bytes
    endpoints: dict[str, EndpointImage]
    features: dict[str, tuple[int, int]]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: list[bytes]
    cordoned_directories: list[bytes] | None = None

    @property
    def active(self) -> bool:
        """Whether it may lead."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_online_directory(self, directory: bytes) -> bool:
        """Whether a replica that is said to lie in `directory` is reachable on this broker."""
        if directory == DIRECTORY_LOST:
            return False
        if not self.directories or is_reserved_id(directory):
            return True
        return directory in self.directories


class ControllerImage(NamedTuple):
    controller_id: int
    incarnation_id: bytes
    endpoints: dict[str, EndpointImage]
    features: dict[str, tuple[int, int]]
    zk_migration_ready: bool = False


class ClusterImage(NamedTuple):
    brokers: dict[int, BrokerImage]
    controllers: dict[int, ControllerImage]


_NO_CONFIGS: dict[str, str] = {}


class ConfigsImage(NamedTuple):
    """What was set at run time, by (resource type, resource name)."""

    by_resource: dict[tuple[int, str], dict[str, str]]

    def get(self, resource_type: int, name: str) -> dict[str, str]:
        """The settings of a resource, empty if it has none; not to be changed."""
        return self.by_resource.get((resource_type, name), _NO_CONFIGS)


QuotaEntity = tuple[tuple[str, str | None], ...]


class MetadataImage(NamedTuple):
    """All of it. `offset` and `epoch` are those of the last record in it, -1 for none.

    `features` are the finalized levels, kraft.version among them. ACLs, SCRAM credentials and
    tokens are kept as their records.
    """

    topics: TopicsImage
    cluster: ClusterImage
    configs: ConfigsImage
    features: dict[str, int]
    next_producer_id: int = 0
    client_quotas: dict[QuotaEntity, dict[str, float]] = {}
    acls: dict[bytes, AccessControlEntryRecord] = {}
    scram: dict[tuple[int, str], UserScramCredentialRecord] = {}
    tokens: dict[str, DelegationTokenRecord] = {}
    offset: int = NO_OFFSET
    epoch: int = -1
    timestamp: int = -1

    @property
    def metadata_version(self) -> int:
        """The finalized level, 0 before the bootstrap records."""
        return self.features.get(METADATA_VERSION, 0)

    @property
    def kraft_version(self) -> int:
        return self.features.get(KRAFT_VERSION, 0)

    @property
    def elr_enabled(self) -> bool:
        return self.features.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0

    @property
    def has_directories(self) -> bool:
        """Whether records say in which log directories brokers and replicas are; those before the
        bootstrap records are of the latest level."""
        return not 0 < self.metadata_version < DIRECTORIES_SINCE

    def is_active(self, broker_id: int) -> bool:
        broker = self.cluster.brokers.get(broker_id)
        return broker is not None and broker.active

    def leaders(self, broker_id: int) -> Iterable[tuple[TopicImage, int, PartitionImage]]:
        """The partitions that a broker leads."""
        for topic in self.topics.by_id.values():
            for index, partition in topic.partitions.items():
                if partition.leader == broker_id:
                    yield topic, index, partition


EMPTY_IMAGE = MetadataImage(
    topics=TopicsImage({}, {}),
    cluster=ClusterImage({}, {}),
    configs=ConfigsImage({}),
    features={},
)
