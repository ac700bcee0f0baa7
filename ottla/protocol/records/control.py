"""Control batches: records that speak to the log itself and are never given to a consumer.

The key of a control record is int16 version 0, int16 type. The value of a transaction marker is
int16 version 0, int32 coordinator epoch; the values of the other types are the messages of
`messages/control_records.py`, whose own first field is the version.

A marker ends a transaction in one partition: a batch of one record with the attributes
transactional and control, the producer's id and epoch, and no sequence.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.protocol.codec import decoder, encoder
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ottla.protocol.records.batch import NO_LEADER_EPOCH, read_header
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.crc import Buffer
from ottla.protocol.records.record import Record, iterate_records

ControlBody = (
    LeaderChangeMessage
    | SnapshotHeaderRecord
    | SnapshotFooterRecord
    | KRaftVersionRecord
    | VotersRecord
)


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_BODIES: dict[int, type[ControlBody]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
_TYPES = {body: type_id for type_id, body in _BODIES.items()}

# Apache Kafka writes every body at version 0, LeaderChangeMessage too, which has a version 1.
_BODY_VERSION = 0

_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
# A control batch is one of the log's own: some records, never compressed.
_BATCH_SIZE_MAX = 8 * 1024 * 1024


class Marker(NamedTuple):
    """The end of a producer's transaction."""

    offset: int
    timestamp: int
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int


class ControlRecord(NamedTuple):
    """`body` is None for transaction markers and for types that we do not know."""

    offset: int
    timestamp: int
    type_id: int
    body: ControlBody | None


def build_marker(
    *,
    producer_id: int,
    producer_epoch: int,
    committed: bool,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The batch that ends a transaction: 78 bytes."""
    type_id = ControlType.COMMIT if committed else ControlType.ABORT
    record = Record(0, timestamp, _KEY.pack(0, type_id), _MARKER_VALUE.pack(0, coordinator_epoch))
    return build_batch(
        [record],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(view: Buffer) -> Marker | None:
    """The marker of a whole control batch, or None where it holds another type.

    A version above 0 may have added to the value, never taken away. Raises INVALID_RECORD on
    a batch that is no control batch.
    """
    header = read_header(view)
    for record, type_id in _typed_records(view):
        if type_id not in (ControlType.ABORT, ControlType.COMMIT):
            continue
        if record.value is None or len(record.value) < _MARKER_VALUE.size:
            raise _invalid("A transaction marker is shorter than its value")
        _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
        return Marker(
            record.offset,
            record.timestamp,
            header.producer_id,
            header.producer_epoch,
            type_id == ControlType.COMMIT,
            coordinator_epoch,
        )
    return None


def build_control_batch(
    bodies: Sequence[ControlBody],
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """One batch with a record for each body, all with one timestamp; no marker among them."""
    records = []
    for body in bodies:
        value = bytearray()
        encoder(type(body), _BODY_VERSION)(body, value, [])
        key = _KEY.pack(0, _TYPES[type(body)])
        records.append(Record(0, timestamp, key, bytes(value)))
    return build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch, control=True)


def read_control_batch(view: Buffer) -> list[ControlRecord]:
    """The records of a whole control batch; raises INVALID_RECORD on one that is none."""
    records = []
    for record, type_id in _typed_records(view):
        body_class = _BODIES.get(type_id)
        body = None if body_class is None else _read_body(body_class, record.value)
        records.append(ControlRecord(record.offset, record.timestamp, type_id, body))
    return records


def _read_body(body_class: type[ControlBody], value: bytes | None) -> ControlBody:
    if value is None:
        raise _invalid(f"A control record of type {body_class.__name__} is null")
    try:
        body, _ = decoder(body_class, _BODY_VERSION)(memoryview(value), 0)
    except ProtocolError as error:
        raise _invalid(f"A control record is no {body_class.__name__}: {error}") from None
    return body


def _typed_records(view: Buffer) -> list[tuple[Record, int]]:
    if not read_header(view).is_control:
        raise _invalid("The batch is no control batch")
    records = []
    for record in iterate_records(view, limit=_BATCH_SIZE_MAX):
        if record.key is None or len(record.key) < _KEY.size:
            raise _invalid("A control record has no type")
        _, type_id = _KEY.unpack_from(record.key)
        records.append((record, type_id))
    return records


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, reason)
