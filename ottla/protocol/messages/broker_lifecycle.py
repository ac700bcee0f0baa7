"""What brokers and controllers say to the active controller."""

from __future__ import annotations

from ottla.protocol.schema import Message, Struct, field
from ottla.protocol.wire import ZERO_UUID, int8, int16, int32, int64, uint16, uuid


class BrokerRegistrationRequest(Message, key=62, versions="0-4", flexible="0+"):
    """A broker starts: its incarnation, listeners, features and log directories. 3 adds the epoch
    of its clean stop.
    """

    class Listener(Struct):
        name: str = ""
        host: str = ""
        port: uint16 = 0
        security_protocol: int16 = 0

    class Feature(Struct):
        name: str = ""
        min_supported_version: int16 = 0
        max_supported_version: int16 = 0

    broker_id: int32 = 0
    cluster_id: str = ""
    incarnation_id: uuid = ZERO_UUID
    listeners: list[Listener] = []
    features: list[Feature] = []
    rack: str | None = ""
    is_migrating_zk_broker: bool = field(False, versions="1+")
    log_dirs: list[uuid] = field([], versions="2+", ignorable=True)
    previous_broker_epoch: int64 = field(-1, versions="3+", ignorable=True)


class BrokerRegistrationResponse(Message, key=62, versions="0-4", flexible="0+"):
    """The epoch of the broker, for its heartbeats."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    broker_epoch: int64 = -1


class BrokerHeartbeatRequest(Message, key=63, versions="0-2", flexible="0+"):
    """A broker is alive: what it has applied of the metadata log, and whether it wants to be fenced
    or to stop. 1 adds offline, 2 cordoned log directories.
    """

    broker_id: int32 = 0
    broker_epoch: int64 = -1
    current_metadata_offset: int64 = 0
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: list[uuid] = field([], versions="1+", tag=0)
    cordoned_log_dirs: list[uuid] | None = field(None, versions="2+", tag=1)


class BrokerHeartbeatResponse(Message, key=63, versions="0-2", flexible="0+"):
    """The answer to BrokerHeartbeat."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False


class ControllerRegistrationRequest(Message, key=70, versions="0", flexible="0+"):
    """A controller starts: its incarnation, listeners and features."""

    class Listener(Struct):
        name: str = ""
        host: str = ""
        port: uint16 = 0
        security_protocol: int16 = 0

    class Feature(Struct):
        name: str = ""
        min_supported_version: int16 = 0
        max_supported_version: int16 = 0

    controller_id: int32 = 0
    incarnation_id: uuid = ZERO_UUID
    zk_migration_ready: bool = False
    listeners: list[Listener] = []
    features: list[Feature] = []


class ControllerRegistrationResponse(Message, key=70, versions="0", flexible="0+"):
    """The answer to ControllerRegistration."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""


class UnregisterBrokerRequest(Message, key=64, versions="0", flexible="0+"):
    """Forget a broker that is gone for good."""

    broker_id: int32 = 0


class UnregisterBrokerResponse(Message, key=64, versions="0", flexible="0+"):
    """The answer to UnregisterBroker."""

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""


class AlterPartitionRequest(Message, key=56, versions="2-3", flexible="2+"):
    """A leader proposes in-sync replicas to the controller. From 3 on with the
    broker epochs of them.
    """

    class BrokerState(Struct):
        broker_id: int32 = 0
        broker_epoch: int64 = -1

    class PartitionData(Struct):
        partition_index: int32 = 0
        leader_epoch: int32 = 0
        new_isr: list[int32] = field([], versions="2")
        new_isr_with_epochs: list[AlterPartitionRequest.BrokerState] = field([], versions="3+")
        leader_recovery_state: int8 = 0
        partition_epoch: int32 = 0

    class TopicData(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[AlterPartitionRequest.PartitionData] = []

    broker_id: int32 = 0
    broker_epoch: int64 = -1
    topics: list[TopicData] = []


class AlterPartitionResponse(Message, key=56, versions="2-3", flexible="2+"):
    """The answer to AlterPartition."""

    class PartitionData(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0
        leader_id: int32 = 0
        leader_epoch: int32 = 0
        isr: list[int32] = []
        leader_recovery_state: int8 = 0
        partition_epoch: int32 = 0

    class TopicData(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[AlterPartitionResponse.PartitionData] = []

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    topics: list[TopicData] = []


class AssignReplicasToDirsRequest(Message, key=73, versions="0", flexible="0+"):
    """A broker tells which replica lies in which log directory."""

    class PartitionData(Struct):
        partition_index: int32 = 0

    class TopicData(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[AssignReplicasToDirsRequest.PartitionData] = []

    class DirectoryData(Struct):
        id: uuid = ZERO_UUID
        topics: list[AssignReplicasToDirsRequest.TopicData] = []

    broker_id: int32 = 0
    broker_epoch: int64 = -1
    directories: list[DirectoryData] = []


class AssignReplicasToDirsResponse(Message, key=73, versions="0", flexible="0+"):
    """The answer to AssignReplicasToDirs."""

    class PartitionData(Struct):
        partition_index: int32 = 0
        error_code: int16 = 0

    class TopicData(Struct):
        topic_id: uuid = ZERO_UUID
        partitions: list[AssignReplicasToDirsResponse.PartitionData] = []

    class DirectoryData(Struct):
        id: uuid = ZERO_UUID
        topics: list[AssignReplicasToDirsResponse.TopicData] = []

    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    directories: list[DirectoryData] = []


class EnvelopeRequest(Message, key=58, versions="0", flexible="0+"):
    """A request of a client, forwarded to the controller with its principal and address."""

    request_data: bytes = b""
    request_principal: bytes | None = b""
    client_host_address: bytes = b""


class EnvelopeResponse(Message, key=58, versions="0", flexible="0+"):
    """The answer to Envelope."""

    response_data: bytes | None = None
    error_code: int16 = 0


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    """A principal, as an Envelope carries it; the version stands before it as an int16."""

    type: str = ""
    name: str = ""
    token_authenticated: bool = False
