"""Control batches, byte for byte as Apache Kafka 4.3.1 wrote them."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ottla.protocol.records.batch import HEADER_SIZE, check_crc, read_header
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.control import (
    ControlBody,
    ControlRecord,
    ControlType,
    Marker,
    build_control_batch,
    build_marker,
    read_control_batch,
    read_marker,
)
from ottla.protocol.records.record import Record

VOTERS = VotersRecord(
    voters=[
        VotersRecord.Voter(
            voter_id=1,
            voter_directory_id=bytes.fromhex("1d1a9d88dec14163b9d6b83170ce1870"),
            endpoints=[VotersRecord.Endpoint("CONTROLLER", "127.0.0.1", 19393)],
            kraft_version_feature=VotersRecord.KRaftVersionFeature(0, 1),
        )
    ]
)
VOTERS_BODY = (
    "0000021d1a9d88dec14163b9d6b83170ce1870020b434f4e54524f4c4c45520a3132372e302e302e31"
    "4bc1000000000100000000"
)

# name: base offset, leader epoch, timestamp, bodies, the batch
GOLDEN: dict[str, tuple[int, int, int, list[ControlBody], str]] = {
    "first batch of a metadata log": (
        0,
        1,
        1795253818737,
        [
            LeaderChangeMessage(
                leader_id=1,
                voters=[LeaderChangeMessage.Voter(1)],
                granting_voters=[LeaderChangeMessage.Voter(1)],
            ),
            KRaftVersionRecord(kraft_version=1),
            VOTERS,
        ],
        "0000000000000000000000a20000000102a97a14b2002000000002000001a1fd775571000001a1fd775571"
        "ffffffffffffffffffffffffffff000000033a00000008000000022600000000000102000000010002000000"
        "010000001e00000208000000050a000000010000820100000408000000066e000002000000011d1a9d88dec1"
        "4163b9d6b83170ce1870020b434f4e54524f4c4c45520a3132372e302e302e314bc1000000000100000000",
    ),
    "header of a snapshot": (
        0,
        1,
        1795253932160,
        [
            SnapshotHeaderRecord(last_contained_log_timestamp=1795253932128),
            KRaftVersionRecord(kraft_version=1),
            VOTERS,
        ],
        "00000000000000000000009a00000001023a9d3491002000000002000001a1fd791080000001a1fd791080"
        "ffffffffffffffffffffffffffff000000032a0000000800000003160000000001a1fd79106000001e000002"
        "08000000050a000000010000820100000408000000066e000002000000011d1a9d88dec14163b9d6b83170ce"
        "1870020b434f4e54524f4c4c45520a3132372e302e302e314bc1000000000100000000",
    ),
    "footer of a snapshot": (
        45,
        1,
        1795253932161,
        [SnapshotFooterRecord()],
        "000000000000002d0000003f000000010202a68cd3002000000000000001a1fd791081000001a1fd791081"
        "ffffffffffffffffffffffffffff000000011a00000008000000040600000000",
    ),
}
MARKER_RECORD = "20000000080000{type}0c00000000000000"


@pytest.mark.parametrize("name", GOLDEN)
def test_kafka_batches_are_built_and_read(name: str) -> None:
    base_offset, epoch, timestamp, bodies, content = GOLDEN[name]
    batch = bytes.fromhex(content)

    assert batch == build_control_batch(
        bodies, timestamp=timestamp, base_offset=base_offset, leader_epoch=epoch
    )
    assert [record.body for record in read_control_batch(batch)] == bodies
    assert [record.offset for record in read_control_batch(batch)] == [
        base_offset + index for index in range(len(bodies))
    ]
    assert read_marker(batch) is None


@pytest.mark.parametrize("committed", [True, False])
def test_markers_are_78_bytes(committed: bool) -> None:
    batch = build_marker(
        producer_id=5,
        producer_epoch=2,
        committed=committed,
        coordinator_epoch=0,
        timestamp=1_700_000_000_000,
        base_offset=50,
        leader_epoch=3,
    )
    header = read_header(batch)

    assert len(batch) == 78
    assert batch[HEADER_SIZE:] == bytes.fromhex(MARKER_RECORD.format(type=f"{int(committed):04x}"))
    assert (header.attributes, header.base_sequence) == (0x30, -1)
    assert check_crc(memoryview(batch))
    assert read_marker(batch) == Marker(50, 1_700_000_000_000, 5, 2, committed, 0)
    assert read_control_batch(batch) == [ControlRecord(50, 1_700_000_000_000, int(committed), None)]


def test_a_later_version_of_a_marker_is_read() -> None:
    record = Record(0, 0, b"\0\x01\0\x01\0\0", b"\0\x01\0\0\0\x09more")
    marker = read_marker(build_batch([record], control=True, transactional=True))

    assert marker is not None
    assert marker.committed
    assert marker.coordinator_epoch == 9


def test_unknown_types_have_no_body() -> None:
    batch = build_batch([Record(0, 7, b"\0\0\0\x63", b"future")], control=True)

    assert read_control_batch(batch) == [ControlRecord(0, 7, 99, None)]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\0\0\0", b""),
        (bytes((0, 0, 0, ControlType.COMMIT)), b"\0\0\0\0\0"),
        (bytes((0, 0, 0, ControlType.COMMIT)), None),
    ],
)
def test_broken_markers_are_refused(key: bytes | None, value: bytes | None) -> None:
    batch = build_batch([Record(0, 0, key, value)], control=True, transactional=True)

    with pytest.raises(KafkaError) as caught:
        read_marker(batch)

    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_every_prefix_of_a_body_is_refused() -> None:
    body = bytes.fromhex(VOTERS_BODY)
    for size in range(len(body)):
        record = Record(0, 0, bytes((0, 0, 0, ControlType.KRAFT_VOTERS)), body[:size])

        with pytest.raises(KafkaError) as caught:
            read_control_batch(build_batch([record], control=True))

        assert caught.value.code is ErrorCode.INVALID_RECORD


def test_a_data_batch_is_no_control_batch() -> None:
    for read in (read_marker, read_control_batch):
        with pytest.raises(KafkaError, match="no control batch"):
            read(build_batch([Record(0, 0, b"\0\0\0\x01", b"\0\0\0\0\0\0")]))
