"""Records of __consumer_offsets as Apache Kafka 4.3.1 writes them, and as others did before."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from ottla.broker.coordinator.group.consumer import (
    ClassicProtocols,
    ConsumerGroup,
    ConsumerMember,
)
from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.coordinator.record_format import unknown_types
from ottla.broker.coordinator.records import GROUP_RECORDS
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)

KEY = OffsetCommitKey("g1", "t1", 3)
TOPIC_ID = bytes(range(16))


def test_an_offset_commit_is_version_4_with_the_topic_id_as_a_tag() -> None:
    value = OffsetCommitValue(48, 2, "", 1_700_000_000_000, -1, TOPIC_ID)

    assert GROUP_RECORDS.encode_key(KEY) == b"\0\1" + b"\0\2g1" + b"\0\2t1" + b"\0\0\0\3"
    assert GROUP_RECORDS.encode_value(value) == (
        b"\0\4"
        + struct.pack(">qi", 48, 2)
        + b"\1"
        + struct.pack(">q", 1_700_000_000_000)
        + b"\1\0\x10"
        + TOPIC_ID
    )


def test_one_with_an_expiry_is_version_1() -> None:
    value = OffsetCommitValue(48, 2, "m", 1, 99, TOPIC_ID)
    encoded = GROUP_RECORDS.encode_value(value)

    assert encoded == b"\0\1" + struct.pack(">q", 48) + b"\0\1m" + struct.pack(">qq", 1, 99)
    record = GROUP_RECORDS.decode(GROUP_RECORDS.encode_key(KEY), encoded)
    assert record == CoordinatorRecord(KEY, OffsetCommitValue(48, -1, "m", 1, 99))


def test_a_group_is_version_3() -> None:
    value = GroupMetadataValue("", 0, None, None, 5, [])

    assert GROUP_RECORDS.encode_key(GroupMetadataKey("g1")) == b"\0\2\0\2g1"
    assert GROUP_RECORDS.encode_value(value) == (
        b"\0\3"
        + b"\0\0"
        + b"\0\0\0\0"
        + b"\xff\xff"
        + b"\xff\xff"
        + struct.pack(">q", 5)
        + b"\0\0\0\0"
    )
    assert GROUP_RECORDS.decode(b"\0\2\0\2g1", GROUP_RECORDS.encode_value(value)) == (
        GroupMetadataKey("g1"),
        value,
    )


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_older_versions_are_read(version: int) -> None:
    body = struct.pack(">q", 7)
    body += struct.pack(">i", 5) if version >= 3 else b""
    body += b"\2m" if version == 4 else b"\0\1m"
    body += struct.pack(">q", 11)
    body += struct.pack(">q", 12) if version == 1 else b""
    body += b"\0" if version == 4 else b""
    record = GROUP_RECORDS.decode(GROUP_RECORDS.encode_key(KEY), struct.pack(">h", version) + body)

    assert record is not None
    assert isinstance(record.value, OffsetCommitValue)
    assert (record.value.offset, record.value.metadata, record.value.commit_timestamp) == (
        7,
        "m",
        11,
    )
    assert record.value.expire_timestamp == (12 if version == 1 else -1)


def test_a_member_of_a_consumer_group_is_written_as_kafka_does() -> None:
    """Of the member that uses the consumer protocol Kafka 4.3.1 says so: a tag with a null."""
    group = ConsumerGroup("g")
    member = ConsumerMember(
        member_id="A",
        client_id="A",
        client_host="/127.0.0.1",
        subscribed_names=frozenset({"timeouts"}),
        rebalance_timeout_ms=3_000,
    )
    key, value = group.member_record(member)

    assert GROUP_RECORDS.encode_key(key) == b"\0\5" + b"\0\1g" + b"\0\1A"
    encoded = bytes.fromhex(
        "0000000002410b2f3132372e302e302e31020974696d656f7574730100000bb80001000100"
    )
    assert GROUP_RECORDS.encode_value(value) == encoded
    assert GROUP_RECORDS.decode(GROUP_RECORDS.encode_key(key), encoded) == (key, value)

    classic = ClassicProtocols(6_000, (("range", b"r"), ("sticky", b"")))
    record = group.member_record(replace(member, classic=classic))
    again = GROUP_RECORDS.encode_value(record.value)

    assert again is not None
    assert again.hex() == encoded.hex()[: -len("01000100")] + (
        "0100190100001770030672616e676502720007737469636b79010000"
    )
    assert GROUP_RECORDS.decode(GROUP_RECORDS.encode_key(key), again) == record


def test_a_key_of_before_0_9_is_read() -> None:
    record = GROUP_RECORDS.decode(b"\0\0" + b"\0\1g\0\1t\0\0\0\1", None)

    assert record == CoordinatorRecord(LegacyOffsetCommitKey("g", "t", 1), None)


def test_types_of_other_groups_are_left_alone() -> None:
    assert GROUP_RECORDS.decode(b"\0\x11\0\2g1", b"\0\0\0\0\0\1\0") is None
    assert unknown_types([b"\0\x13", b"\0\x11"]) == [17, 19]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"\0", None),
        (b"\0\1\0\2g1", None),
        (b"\0\2\0\2g1\0", None),
        (b"\0\2\0\2g1", b""),
        (b"\0\2\0\2g1", b"\0\x63"),
        (b"\0\2\0\2g1", b"\0\3\0"),
    ],
)
def test_what_cannot_be_read_is_an_error(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(KafkaError):
        GROUP_RECORDS.decode(key, value)
