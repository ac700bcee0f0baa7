"""Framing and versions of metadata records, against bytes written by Apache Kafka."""

from __future__ import annotations

import pytest

from ottla.broker.metadata.records import (
    MetadataError,
    decode_batch,
    decode_record,
    encode_batch,
    encode_record,
    record_version,
)
from ottla.protocol.messages.metadata_records import (
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from ottla.protocol.schema import Message

MV = 30

KAFKA_BATCH = (
    "0000000000000001 0000004f 00000001 02 b069457c 0000 00000000 00000191e05af818"
    " 00000191e05af818 ffffffffffffffff ffff ffffffff 00000001 3a 00 00 00 01 2e 010c0011"
    f" {b'metadata.version'.hex()} 0014 00 00"
)

VALUES = [
    (NoOpRecord(), "01140000"),
    (BeginTransactionRecord("Bootstrap records"), f"01170001001212{b'Bootstrap records'.hex()}"),
    (EndTransactionRecord(), "01180000"),
    (
        BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=77, fenced=1),
        "01 11 00 00000003 000000000000004d 01 00 01 01",
    ),
]


@pytest.mark.parametrize(("record", "text"), VALUES, ids=lambda value: type(value).__name__)
def test_values_are_kafkas_bytes(record: Message, text: str) -> None:
    value = bytes.fromhex(text)

    assert encode_record(record, MV) == value
    assert decode_record(value) == record


def test_a_batch_is_kafkas_to_the_byte() -> None:
    record = FeatureLevelRecord("metadata.version", 20)
    kafka = bytes.fromhex(KAFKA_BATCH)

    ours = encode_batch(
        [encode_record(record, 20)], base_offset=1, leader_epoch=1, timestamp=0x191E05AF818
    )

    assert bytes(ours) == kafka
    assert list(decode_batch(memoryview(kafka))) == [record]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("02140000", "frame version 2"),
        ("01060000", "type 6"),
        ("01140100", "version 1: unknown"),
        ("0114000000", "1 bytes too many"),
        ("0114", "cannot be read"),
        ("", "cannot be read"),
        ("010c0011", "cannot be read"),
    ],
)
def test_what_cannot_be_read_stops_the_reader(text: str, reason: str) -> None:
    with pytest.raises(MetadataError, match=reason):
        decode_record(bytes.fromhex(text))


@pytest.mark.parametrize(
    ("record", "versions"),
    [
        (RegisterBrokerRecord(), {7: 1, 8: 2, 16: 2, 17: 3, 29: 3, 30: 4}),
        (PartitionRecord(), {7: 0, 16: 0, 17: 1, 22: 1, 23: 2, 30: 2}),
        (PartitionChangeRecord(), {7: 0, 17: 1, 23: 2, 30: 2}),
        (BrokerRegistrationChangeRecord(fenced=-1), {7: 0, 30: 0}),
        (BrokerRegistrationChangeRecord(in_controlled_shutdown=1), {30: 1}),
        (BrokerRegistrationChangeRecord(log_dirs=[bytes(16)]), {30: 2}),
        (BrokerRegistrationChangeRecord(cordoned_log_dirs=[]), {30: 3}),
        (NoOpRecord(), {7: 0, 30: 0}),
    ],
)
def test_versions_follow_the_metadata_version(record: Message, versions: dict[int, int]) -> None:
    assert {level: record_version(record, level) for level in versions} == versions
