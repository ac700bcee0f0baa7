"""Records of a coordinator's topic as bytes: a key is `int16 type | fields`, a value `int16 version
| fields`. Versions are those that Apache Kafka 4.3 writes.

A record of a type that this code does not know is left alone: it belongs to a kind of group that is
not served, and a tombstone or a newer record will say what became of it. A known one that cannot be
read is an error, for the state built without it would be another than its writer's.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.protocol.codec import decoder, encoder
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.messages.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.records.record import Record
from ottla.protocol.schema import Message

KEY_VERSION = 0
NO_EXPIRY = -1
EXPIRY_VERSION = 1
"""The only version of a committed offset that says when it expires."""

_HEAD = Struct(">h")
_KINDS: dict[int, tuple[type[Message], type[Message]]] = {
    # Written by Kafka before 0.9; the values are of the same family.
    0: (LegacyOffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
}
_TYPES: dict[type[Message], int] = {key: number for number, (key, _) in _KINDS.items()}
_VALUE_VERSIONS: dict[type[Message], int] = {OffsetCommitValue: 4, GroupMetadataValue: 3}


def encode(record: CoordinatorRecord, timestamp_ms: int) -> Record:
    """The record as it goes into a batch; its offset is given by the log."""
    return Record(0, timestamp_ms, encode_key(record.key), encode_value(record.value))


def encode_key(key: Message) -> bytes:
    return _encode(_TYPES[type(key)], KEY_VERSION, key)


def encode_value(value: Message | None) -> bytes | None:
    if value is None:
        return None
    version = _VALUE_VERSIONS[type(value)]
    if isinstance(value, OffsetCommitValue) and value.expire_timestamp != NO_EXPIRY:
        version = EXPIRY_VERSION
    return _encode(version, version, value)


def decode(key: bytes | None, value: bytes | None) -> CoordinatorRecord | None:
    """The record of a key and a value, None if its type is not known here.

    Raises KafkaError with CORRUPT_MESSAGE if it cannot be read.
    """
    if key is None or len(key) < _HEAD.size:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "A coordinator record has no key.")
    number = _HEAD.unpack_from(key)[0]
    kind = _KINDS.get(number)
    if kind is None:
        return None
    key_class, value_class = kind
    try:
        return CoordinatorRecord(
            _decode(key_class, KEY_VERSION, key),
            None if value is None else _decode_value(value_class, value),
        )
    except (ProtocolError, IndexError) as error:
        reason = f"A coordinator record of type {number} cannot be read: {error}"
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, reason) from error


def unknown_types(keys: Iterable[bytes]) -> list[int]:
    """The types, ascending, of keys that `decode` leaves alone."""
    return sorted({_HEAD.unpack_from(key)[0] for key in keys})


def _encode(head: int, version: int, message: Message) -> bytes:
    out = bytearray(_HEAD.pack(head))
    encoder(type(message), version)(message, out, [])
    return bytes(out)


def _decode(cls: type[Message], version: int, data: bytes) -> Message:
    message, end = decoder(cls, version)(memoryview(data), _HEAD.size)
    if end != len(data):
        raise ProtocolError(f"{len(data) - end} bytes too many")
    return message


def _decode_value(cls: type[Message], value: bytes) -> Message:
    if len(value) < _HEAD.size:
        raise ProtocolError("a value without a version")
    version = _HEAD.unpack_from(value)[0]
    if version not in cls.__schema__.versions:
        raise ProtocolError(f"version {version} of {cls.__name__} is unknown")
    return _decode(cls, version, value)
