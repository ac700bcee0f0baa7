"""Records of the metadata log as bytes, and which version of each a cluster may be sent.

A record's value is `uvarint 1 (frame) | uvarint type | uvarint version | body`; the key is null.
All records of one change stand in one batch, so that a crash keeps all of them or none.
A byte behind the body, another frame or an unknown type is an error: whoever cannot read a record
must stop, because its picture of the cluster would be wrong from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ottla.broker.quorum.raft import QuorumError
from ottla.protocol.codec import decoder, encoder
from ottla.protocol.errors import KafkaError, ProtocolError
from ottla.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record, iterate_records
from ottla.protocol.schema import Message
from ottla.protocol.wire import read_uvarint, write_uvarint

FRAME_VERSION = 1
METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
TRANSACTION_VERSION = "transaction.version"

LATEST_METADATA_VERSION = 30
"""4.3-IV0, the level that this code writes and reads in full."""
LOWEST_METADATA_VERSION = 7
"""3.3-IV3: older logs are not read, as Apache Kafka 4 does not read them."""
DIRECTORIES_SINCE = 17
"""3.7-IV2: from it on records say in which log directories brokers and replicas are."""
CONTROLLERS_SINCE = 15
"""3.7-IV0: from it on controllers register."""
TRANSACTIONS_SINCE = 13
"""3.6-IV1: from it on several batches may be one change."""

_CLASSES: tuple[type[Message], ...] = (
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    TopicRecord,
    PartitionRecord,
    ConfigRecord,
    PartitionChangeRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
    RemoveTopicRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
    FeatureLevelRecord,
    ClientQuotaRecord,
    ProducerIdsRecord,
    BrokerRegistrationChangeRecord,
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    NoOpRecord,
    ZkMigrationStateRecord,
    RemoveUserScramCredentialRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    AbortTransactionRecord,
    RemoveDelegationTokenRecord,
    RegisterControllerRecord,
    ClearElrRecord,
)
_BY_TYPE: dict[int, type[Message]] = {
    cls.__schema__.key: cls for cls in _CLASSES if cls.__schema__.key is not None
}

# (metadata.version, record version), highest first; a class that is not here has version 0 only.
_VERSIONS_BY_LEVEL: dict[type[Message], tuple[tuple[int, int], ...]] = {
    RegisterBrokerRecord: ((30, 4), (17, 3), (8, 2), (0, 1)),
    PartitionRecord: ((23, 2), (17, 1), (0, 0)),
    PartitionChangeRecord: ((23, 2), (17, 1), (0, 0)),
}

# A batch is bounded by what one command may write (10,000 records); Kafka's raft batches are
# 8 MiB at most, and a compressed one may come from another writer.
_BATCH_SIZE_MAX = 64 * 1024 * 1024

HEAD_SIZE = 3

Decode = Callable[[memoryview, int], tuple[Message, int]]

_decoders: dict[bytes, Decode] = {}


class MetadataError(QuorumError):
    """The metadata log or a snapshot holds what no metadata log may hold; nothing can go on."""


def record_version(record: Message, metadata_version: int) -> int:
    """The version in which a record is written while `metadata.version` stands at this level."""
    cls = type(record)
    for level, version in _VERSIONS_BY_LEVEL.get(cls, ()):
        if metadata_version >= level:
            return version
    if isinstance(record, BrokerRegistrationChangeRecord):
        return _registration_change_version(record)
    return 0


def _registration_change_version(record: BrokerRegistrationChangeRecord) -> int:
    """The lowest that can say it, as Kafka's controller chooses."""
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0


def encode_record(record: Message, metadata_version: int) -> bytes:
    """A record's value."""
    version = record_version(record, metadata_version)
    type_id = type(record).__schema__.key
    assert type_id is not None, "only metadata records are written to the metadata log"
    out = bytearray((FRAME_VERSION,))
    write_uvarint(out, type_id)
    write_uvarint(out, version)
    encoder(type(record), version)(record, out, [])
    return bytes(out)


def decode_record(value: bytes) -> Message:
    """The record that a value holds; MetadataError if it holds none that we know."""
    # Every frame and type that Kafka has assigned fits in one byte, so that its first three bytes
    # are frame, type and version, and say how to go on.
    decode = _decoders.get(value[:HEAD_SIZE])
    try:
        if decode is None:
            decode, position = _find_decoder(value)
        else:
            position = HEAD_SIZE
        record, end = decode(memoryview(value), position)
    except (ProtocolError, IndexError) as error:
        raise MetadataError(f"a metadata record cannot be read: {error}") from error
    if end != len(value):
        raise MetadataError(f"{type(record).__name__} has {len(value) - end} bytes too many")
    return record


def _find_decoder(value: bytes) -> tuple[Decode, int]:
    view = memoryview(value)
    frame, position = read_uvarint(view, 0)
    type_id, position = read_uvarint(view, position)
    version, position = read_uvarint(view, position)
    if frame != FRAME_VERSION:
        raise MetadataError(f"a metadata record has frame version {frame}")
    cls = _BY_TYPE.get(type_id)
    if cls is None or version not in cls.__schema__.versions:
        raise MetadataError(
            f"a metadata record has type {type_id}, version {version}: unknown here"
        )
    decode = decoder(cls, version)
    if position == HEAD_SIZE:
        _decoders[value[:HEAD_SIZE]] = decode
    return decode, position


def encode_batch(
    values: Iterable[bytes], *, base_offset: int, leader_epoch: int, timestamp: int
) -> bytearray:
    """One batch of encoded records, uncompressed, as it stands in the log or in a snapshot."""
    return build_batch(
        (Record(0, timestamp, None, value) for value in values),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def decode_batch(view: memoryview) -> Iterator[Message]:
    """The records of one whole data batch, in order; its CRC is not checked here."""
    try:
        for record in iterate_records(view, limit=_BATCH_SIZE_MAX):
            if record.value is None:
                raise MetadataError(f"the metadata record at offset {record.offset} is null")
            yield decode_record(record.value)
    except KafkaError as error:
        raise MetadataError(f"a batch of metadata cannot be read: {error}") from error
