"""Records of the metadata log; `key` is the record's type number.

A record's value is a frame version, the type, the record's version (three varints), the message.
"""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import ZERO_UUID, float64, int8, int16, int32, int64, uint16, uuid


class RegisterBrokerRecord(Message, key=0, versions="0-4", flexible="0+"):
    """A broker started. 1 adds controlled shutdown, 2 the flag of migrating brokers, 3 log
    directories, 4 cordoned ones.
    """

    class BrokerEndpoint(Struct):
        name: str = ""
        host: str = ""
        port: uint16 = 0
        security_protocol: int16 = 0

    class BrokerFeature(Struct):
        name: str = ""
        min_supported_version: int16 = 0
        max_supported_version: int16 = 0

    broker_id: int32 = 0
    is_migrating_zk_broker: bool = field(False, versions="2+")
    incarnation_id: uuid = ZERO_UUID
    broker_epoch: int64 = 0
    end_points: list[BrokerEndpoint] = []
    features: list[BrokerFeature] = []
    rack: str | None = ""
    fenced: bool = True
    in_controlled_shutdown: bool = field(False, versions="1+")
    log_dirs: list[uuid] = field([], versions="3+", tag=0)
    cordoned_log_dirs: list[uuid] | None = field(None, versions="4+", tag=1)


class UnregisterBrokerRecord(Message, key=1, versions="0", flexible="0+"):
    """A broker is gone for good."""

    broker_id: int32 = 0
    broker_epoch: int64 = 0


class TopicRecord(Message, key=2, versions="0", flexible="0+"):
    """A topic with its id; its partitions follow."""

    name: str = ""
    topic_id: uuid = ZERO_UUID


class PartitionRecord(Message, key=3, versions="0-2", flexible="0+"):
    """A partition in full. 1 adds the directories of its replicas, 2 the eligible
    leader replicas.
    """

    partition_id: int32 = -1
    topic_id: uuid = ZERO_UUID
    replicas: list[int32] = []
    isr: list[int32] = []
    removing_replicas: list[int32] = []
    adding_replicas: list[int32] = []
    leader: int32 = -1
    leader_recovery_state: int8 = field(0, tag=0)
    leader_epoch: int32 = -1
    partition_epoch: int32 = -1
    directories: list[uuid] = field([], versions="1+")
    eligible_leader_replicas: list[int32] | None = field(None, versions="2+", tag=1)
    last_known_elr: list[int32] | None = field(None, versions="2+", tag=2)


class ConfigRecord(Message, key=4, versions="0", flexible="0+"):
    """A setting of a resource; a null value removes it."""

    resource_type: int8 = 0
    resource_name: str = ""
    name: str = ""
    value: str | None = ""


class PartitionChangeRecord(Message, key=5, versions="0-2", flexible="0+"):
    """What changed of a partition; what is absent stays. A leader of -2 stays too. 1 adds
    directories, 2 the eligible leader replicas.
    """

    partition_id: int32 = -1
    topic_id: uuid = ZERO_UUID
    isr: list[int32] | None = field(None, tag=0)
    leader: int32 = field(-2, tag=1)
    replicas: list[int32] | None = field(None, tag=2)
    removing_replicas: list[int32] | None = field(None, tag=3)
    adding_replicas: list[int32] | None = field(None, tag=4)
    leader_recovery_state: int8 = field(-1, tag=5)
    directories: list[uuid] | None = field(None, versions="1+", tag=8)
    eligible_leader_replicas: list[int32] | None = field(None, versions="2+", tag=6)
    last_known_elr: list[int32] | None = field(None, versions="2+", tag=7)


class FenceBrokerRecord(Message, key=7, versions="0", flexible="0+"):
    """A broker is fenced. Read in old logs; BrokerRegistrationChangeRecord stands for it now."""

    id: int32 = 0
    epoch: int64 = 0


class UnfenceBrokerRecord(Message, key=8, versions="0", flexible="0+"):
    """A broker is no longer fenced. Read in old logs; BrokerRegistrationChangeRecord stands for it
    now.
    """

    id: int32 = 0
    epoch: int64 = 0


class RemoveTopicRecord(Message, key=9, versions="0", flexible="0+"):
    """A topic is gone, and its partitions with it."""

    topic_id: uuid = ZERO_UUID


class DelegationTokenRecord(Message, key=10, versions="0", flexible="0+"):
    """A delegation token."""

    owner: str = ""
    requester: str = ""
    renewers: list[str] = []
    issue_timestamp: int64 = 0
    max_timestamp: int64 = 0
    expiration_timestamp: int64 = 0
    token_id: str = ""


class UserScramCredentialRecord(Message, key=11, versions="0", flexible="0+"):
    """A SCRAM credential of a user."""

    name: str = ""
    mechanism: int8 = 0
    salt: bytes = b""
    stored_key: bytes = b""
    server_key: bytes = b""
    iterations: int32 = 0


class FeatureLevelRecord(Message, key=12, versions="0", flexible="0+"):
    """A feature is finalized at a level; 0 removes it."""

    name: str = ""
    feature_level: int16 = 0


class ClientQuotaRecord(Message, key=14, versions="0", flexible="0+"):
    """A quota of an entity, set or removed."""

    class EntityData(Struct):
        entity_type: str = ""
        entity_name: str | None = ""

    entity: list[EntityData] = []
    key: str = ""
    value: float64 = 0.0
    remove: bool = False


class ProducerIdsRecord(Message, key=15, versions="0", flexible="0+"):
    """All producer ids below the next one are handed out."""

    broker_id: int32 = 0
    broker_epoch: int64 = -1
    next_producer_id: int64 = 0


class BrokerRegistrationChangeRecord(Message, key=17, versions="0-3", flexible="0+"):
    """What changed of a broker; 1 is yes and -1 is no longer for `fenced`. 1 adds controlled
    shutdown, 2 log directories, 3 cordoned ones.
    """

    broker_id: int32 = 0
    broker_epoch: int64 = 0
    fenced: int8 = field(0, tag=0)
    in_controlled_shutdown: int8 = field(0, versions="1+", tag=1)
    log_dirs: list[uuid] = field([], versions="2+", tag=2)
    cordoned_log_dirs: list[uuid] | None = field(None, versions="3+", tag=3)


class AccessControlEntryRecord(Message, key=18, versions="0", flexible="0+"):
    """An access control entry."""

    id: uuid = ZERO_UUID
    resource_type: int8 = 0
    resource_name: str = ""
    pattern_type: int8 = 0
    principal: str = ""
    host: str = ""
    operation: int8 = 0
    permission_type: int8 = 0


class RemoveAccessControlEntryRecord(Message, key=19, versions="0", flexible="0+"):
    """An access control entry is gone."""

    id: uuid = ZERO_UUID


class NoOpRecord(Message, key=20, versions="0", flexible="0+"):
    """Nothing; it moves the end of the log."""


class ZkMigrationStateRecord(Message, key=21, versions="0", flexible="0+"):
    """How far the migration from ZooKeeper is; read in old logs."""

    zk_migration_state: int8 = 0


class RemoveUserScramCredentialRecord(Message, key=22, versions="0", flexible="0+"):
    """A SCRAM credential is gone."""

    name: str = ""
    mechanism: int8 = 0


class BeginTransactionRecord(Message, key=23, versions="0", flexible="0+"):
    """What follows counts only when the transaction ends."""

    name: str | None = field(None, tag=0)


class EndTransactionRecord(Message, key=24, versions="0", flexible="0+"):
    """What came since the beginning of the transaction counts."""


class AbortTransactionRecord(Message, key=25, versions="0", flexible="0+"):
    """What came since the beginning of the transaction is dropped."""

    reason: str | None = field(None, tag=0)


class RemoveDelegationTokenRecord(Message, key=26, versions="0", flexible="0+"):
    """A delegation token is gone."""

    token_id: str = ""


class RegisterControllerRecord(Message, key=27, versions="0", flexible="0+"):
    """A controller started."""

    class ControllerEndpoint(Struct):
        name: str = ""
        host: str = ""
        port: uint16 = 0
        security_protocol: int16 = 0

    class ControllerFeature(Struct):
        name: str = ""
        min_supported_version: int16 = 0
        max_supported_version: int16 = 0

    controller_id: int32 = 0
    incarnation_id: uuid = ZERO_UUID
    zk_migration_ready: bool = False
    end_points: list[ControllerEndpoint] = []
    features: list[ControllerFeature] = []


class ClearElrRecord(Message, key=28, versions="0", flexible="0+"):
    """The eligible leader replicas of a topic, or of all, are forgotten."""

    topic_name: str = ""
