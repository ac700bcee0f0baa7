"""How the records of a coordinator's topic are written: a key is `int16 type | fields`, a value
`int16 version | fields`. Each topic has its own types.

A record of a type that is not known is left alone: it belongs to a kind of group that is not
served, and a tombstone or a newer record will say what became of it. A known one that cannot be
read is an error, for the state built without it would be another than its writer's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from struct import Struct

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.protocol.codec import decoder, encoder
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.records.record import Record
from ottla.protocol.schema import Message

KEY_VERSION = 0
_HEAD = Struct(">h")


class RecordFormat:
    """`kinds` are the classes of keys and values by type; `version_of` says in which version a
    value is written; `base_sequence` stands in the batches, which have no producer, as in Kafka."""

    __slots__ = ("_kinds", "_types", "_version_of", "base_sequence")

    def __init__(
        self,
        kinds: Mapping[int, tuple[type[Message], type[Message]]],
        version_of: Callable[[Message], int],
        *,
        base_sequence: int = 0,
    ) -> None:
        self.base_sequence = base_sequence
        self._kinds = kinds
        self._types = {key: number for number, (key, _) in kinds.items()}
        self._version_of = version_of

    def encode(self, record: CoordinatorRecord, timestamp_ms: int) -> Record:
        """The record as it goes into a batch; its offset is given by the log."""
        key, value = record
        fields = (0, timestamp_ms, self.encode_key(key), self.encode_value(value), ())
        return tuple.__new__(Record, fields)

    def encode_key(self, key: Message) -> bytes:
        return _encode(self._types[type(key)], KEY_VERSION, key)

    def encode_value(self, value: Message | None) -> bytes | None:
        if value is None:
            return None
        version = self._version_of(value)
        return _encode(version, version, value)

    def decode(self, key: bytes | None, value: bytes | None) -> CoordinatorRecord | None:
        """The record of a key and a value, None if its type is not known here.

        Raises KafkaError with CORRUPT_MESSAGE if it cannot be read.
        """
        if key is None or len(key) < _HEAD.size:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "A coordinator record has no key.")
        number = _HEAD.unpack_from(key)[0]
        kind = self._kinds.get(number)
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
