"""What consumers of the classic protocol put into its opaque bytes, by topics and partitions."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.coordinator.group.embedded import (
    AssignedTopic,
    read_assignment,
    write_assignment,
)
from ottla.protocol.codec import encoder
from ottla.protocol.messages.groups import ConsumerProtocolSubscription

Partitions = tuple[tuple[str, tuple[int, ...]], ...]
"""By topic."""
VERSION_SIZE = 2


def subscription(topics: Iterable[str], owned: Partitions, generation: int, version: int) -> bytes:
    """Of JoinGroup; older versions leave out what they do not have."""
    asking = ConsumerProtocolSubscription
    parts = [asking.TopicPartition(name, list(partitions)) for name, partitions in owned]
    message = asking(list(topics), None, parts, generation)
    out = bytearray(version.to_bytes(VERSION_SIZE, "big"))
    encoder(asking, version)(message, out, [])
    return bytes(out)


def assignment(partitions: Partitions) -> bytes:
    """Of SyncGroup, in the first version."""
    return write_assignment((AssignedTopic(name, list(of_it)) for name, of_it in partitions), 0)


def partitions_of(data: bytes) -> Partitions:
    """What an assignment gives; nothing where it is empty. Raises ProtocolError."""
    if not data:
        return ()
    found = read_assignment(data).assigned_partitions
    return tuple((one.topic, tuple(one.partitions)) for one in found)
