"""The records of __consumer_offsets: which types are known, and the versions that Apache Kafka 4.3
writes."""

from __future__ import annotations

from ottla.broker.coordinator.record_format import RecordFormat
from ottla.protocol.messages.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.schema import Message

NO_EXPIRY = -1
EXPIRY_VERSION = 1
"""The only version of a committed offset that says when it expires."""

_KINDS: dict[int, tuple[type[Message], type[Message]]] = {
    # Written by Kafka before 0.9; the values are of the same family.
    0: (LegacyOffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
}
_VALUE_VERSIONS: dict[type[Message], int] = {OffsetCommitValue: 4, GroupMetadataValue: 3}


def _version_of(value: Message) -> int:
    if isinstance(value, OffsetCommitValue) and value.expire_timestamp != NO_EXPIRY:
        return EXPIRY_VERSION
    return _VALUE_VERSIONS[type(value)]


GROUP_RECORDS = RecordFormat(_KINDS, _version_of)
