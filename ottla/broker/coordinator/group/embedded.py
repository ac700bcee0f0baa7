"""What consumers of the classic protocol put into its opaque fields: subscription and assignment.

Each begins with its version, an int16; what a later version adds at the end is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from ottla.broker.coordinator.group.reconciling import Reported
from ottla.broker.coordinator.group.topics import Topics
from ottla.protocol.codec import decoder, encoder
from ottla.protocol.errors import ProtocolError
from ottla.protocol.messages.consumer_group import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.groups import ConsumerProtocolAssignment, ConsumerProtocolSubscription

_VERSION = Struct(">h")

AssignedTopic = ConsumerProtocolAssignment.TopicPartition


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Raises ProtocolError."""
    version = min(read_version(metadata), ConsumerProtocolSubscription.__schema__.versions.last)
    found, _ = decoder(ConsumerProtocolSubscription, version)(memoryview(metadata), _VERSION.size)
    assert isinstance(found, ConsumerProtocolSubscription)
    return found


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Raises ProtocolError."""
    version = min(read_version(data), ConsumerProtocolAssignment.__schema__.versions.last)
    found, _ = decoder(ConsumerProtocolAssignment, version)(memoryview(data), _VERSION.size)
    assert isinstance(found, ConsumerProtocolAssignment)
    return found


def read_version(data: bytes) -> int:
    """Raises ProtocolError."""
    if len(data) < _VERSION.size:
        raise ProtocolError("the version is missing")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"there is no version {version}")
    return version


def write_assignment(topics: Iterable[AssignedTopic], version: int) -> bytes:
    version = min(version, ConsumerProtocolAssignment.__schema__.versions.last)
    out = bytearray(_VERSION.pack(version))
    encoder(ConsumerProtocolAssignment, version)(ConsumerProtocolAssignment(list(topics)), out, [])
    return bytes(out)


def reported_by(subscription: ConsumerProtocolSubscription, topics: Topics) -> Reported:
    """What a member says that it has, by topic ids; topics that are gone it has no more."""
    reported: list[ConsumerGroupHeartbeatRequest.TopicPartitions] = []
    for one in subscription.owned_partitions:
        topic = topics.named(one.topic)
        if topic is not None:
            known = ConsumerGroupHeartbeatRequest.TopicPartitions(topic.topic_id, one.partitions)
            reported.append(known)
    return reported
