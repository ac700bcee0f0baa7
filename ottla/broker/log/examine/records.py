"""Records as plain values, for people and for JSON: what the broker's own topics hold is decoded.

A key or value is text where it is UTF-8, else hex under the name with `_hex`. Records of
__cluster_metadata, __consumer_offsets, __transaction_state and __share_group_state are shown by
the messages that declare them; what cannot be read as such is shown as bytes, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

from ottla.broker.log.directories import METADATA_TOPIC
from ottla.broker.log.examine.scan import Entry
from ottla.protocol.codec import decoder
from ottla.protocol.errors import ProtocolError
from ottla.protocol.records.control import ControlType, read_control_batch, read_marker
from ottla.protocol.records.legacy import iterate_legacy_records
from ottla.protocol.records.record import Record, iterate_records
from ottla.protocol.schema import Message, Struct, fields_of
from ottla.protocol.wire import read_uvarint, uuid_text

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_TOPIC = "__share_group_state"

_FRAME_VERSION = 1
_SEQUENCE_MASK = 0x7FFFFFFF

Plain = dict[str, Any]
Declared = dict[int, type[Message]]


def describe_records(entry: Entry, topic: str) -> Iterator[Plain]:
    """Each record of a batch; raises KafkaError where they cannot be read."""
    header = entry.header
    if header is None:
        for record in iterate_legacy_records(entry.data):
            yield _described(record, topic)
        return
    if header.is_control:
        yield from _control_records(entry)
        return
    for index, record in enumerate(iterate_records(entry.data)):
        plain = _described(record, topic)
        if header.base_sequence >= 0:
            plain["sequence"] = (header.base_sequence + index) & _SEQUENCE_MASK
        yield plain


def plain_value(value: object, type_name: str = "") -> Any:
    """A message, or a field of one, as JSON has it."""
    if isinstance(value, Struct):
        return {
            item.name: plain_value(getattr(value, item.name), item.type_name)
            for item in fields_of(type(value))
        }
    if isinstance(value, list):
        return [plain_value(one, type_name) for one in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return uuid_text(bytes(value)) if type_name == "uuid" else bytes(value).hex()
    return value


def _described(record: Record, topic: str) -> Plain:
    plain: Plain = {"offset": record.offset, "timestamp": record.timestamp}
    try:
        decoded = _decoded(record, topic)
    except (ProtocolError, IndexError, ValueError) as error:
        decoded = {"not_decoded": str(error)}
    if decoded and "not_decoded" not in decoded:
        return plain | decoded
    plain |= _bytes("key", record.key) | _bytes("value", record.value)
    if record.headers:
        plain["headers"] = [
            {"name": name} | _bytes("value", value) for name, value in record.headers
        ]
    return plain | decoded


def _bytes(name: str, data: bytes | None) -> Plain:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_hex": data.hex()}


def _control_records(entry: Entry) -> Iterator[Plain]:
    marker = read_marker(entry.data)
    for record in read_control_batch(entry.data):
        known = record.type_id in list(ControlType)
        plain: Plain = {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "control_type": ControlType(record.type_id).name if known else record.type_id,
        }
        if record.body is not None:
            plain["data"] = plain_value(record.body)
        elif marker is not None and marker.offset == record.offset:
            plain["coordinator_epoch"] = marker.coordinator_epoch
        yield plain


def _decoded(record: Record, topic: str) -> Plain:
    """What a record of one of the broker's own topics says; empty for all others."""
    if topic == METADATA_TOPIC:
        return {} if record.value is None else _metadata_record(record.value)
    if topic not in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_TOPIC) or record.key is None:
        return {}
    type_id = int.from_bytes(record.key[:2], "big", signed=True)
    keys, values = _coordinator_classes(topic)
    if type_id not in keys:
        raise ValueError(f"a key of type {type_id} is unknown")
    plain: Plain = {
        "type": keys[type_id].__name__.removesuffix("Key"),
        "key": _body(keys[type_id], 0, record.key[2:]),
        "value": None,
    }
    if record.value is not None:
        version = int.from_bytes(record.value[:2], "big", signed=True)
        plain["version"] = version
        plain["value"] = _body(values[type_id], version, record.value[2:])
    return plain


def _metadata_record(value: bytes) -> Plain:
    view = memoryview(value)
    frame, position = read_uvarint(view, 0)
    type_id, position = read_uvarint(view, position)
    version, position = read_uvarint(view, position)
    cls = _metadata_classes().get(type_id)
    if frame != _FRAME_VERSION or cls is None:
        raise ValueError(f"a record of frame {frame} and type {type_id} is unknown")
    return {
        "type": cls.__name__,
        "version": version,
        "data": _body(cls, version, value[position:]),
    }


def _body(cls: type[Message], version: int, data: bytes) -> Any:
    if version not in cls.__schema__.versions:
        raise ValueError(f"version {version} of {cls.__name__} is unknown")
    body, end = decoder(cls, version)(memoryview(data), 0)
    if end != len(data):
        raise ValueError(f"{cls.__name__} has {len(data) - end} bytes too many")
    return plain_value(body)


@cache
def _metadata_classes() -> Declared:
    from ottla.protocol.messages import metadata_records

    return _by_type(metadata_records, "Record")


@cache
def _coordinator_classes(topic: str) -> tuple[Declared, Declared]:
    from ottla.protocol.messages import coordinator_records

    def of_topic(suffix: str) -> Declared:
        return _by_type(coordinator_records, suffix, topic=topic)

    keys, values = of_topic("Key"), of_topic("Value")
    if topic == OFFSETS_TOPIC:
        # Key types 0 and 1 are one record, whose value has had its versions since before type 1.
        values[0] = values[1]
    return keys, values


def _by_type(module: ModuleType, suffix: str, *, topic: str = "") -> Declared:
    """The declared messages of a name's suffix; of the coordinators' those of one topic."""
    found: Declared = {}
    for name, value in vars(module).items():
        if isinstance(value, type) and issubclass(value, Message) and name.endswith(suffix):
            type_id = value.__schema__.key
            if type_id is not None and (not topic or _topic_of(name) == topic):
                found[type_id] = value
    return found


def _topic_of(name: str) -> str:
    if name.startswith("TransactionLog"):
        return TRANSACTIONS_TOPIC
    if name.startswith(("ShareSnapshot", "ShareUpdate")):
        return SHARE_TOPIC
    return OFFSETS_TOPIC
