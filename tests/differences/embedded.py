"""What consumers of the classic protocol put into its opaque bytes, which each begin with their
version."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.protocol.codec import decoder, encoder
from ottla.protocol.messages.groups import ConsumerProtocolAssignment, ConsumerProtocolSubscription

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
    asking = ConsumerProtocolAssignment
    parts = [asking.TopicPartition(name, list(of_it)) for name, of_it in partitions]
    out = bytearray(VERSION_SIZE)
    encoder(asking, 0)(asking(parts), out, [])
    return bytes(out)


def partitions_of(data: bytes) -> Partitions:
    """What an assignment gives; nothing where it is empty. Raises ProtocolError."""
    if not data:
        return ()
    version = int.from_bytes(data[:VERSION_SIZE], "big")
    found, _ = decoder(ConsumerProtocolAssignment, version)(memoryview(data), VERSION_SIZE)
    assert isinstance(found, ConsumerProtocolAssignment)
    return tuple((one.topic, tuple(one.partitions)) for one in found.assigned_partitions)
