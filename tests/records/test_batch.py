"""The batch header: the bytes Apache Kafka 4.3.1 wrote, stamps in place, the walk over headers."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import (
    CRC_START,
    HEADER_SIZE,
    TIMESTAMP_TYPE,
    BatchHeader,
    check_crc,
    iterate_headers,
    read_header,
    set_create_time,
    set_log_append_time,
    stamp,
)
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record, iterate_records

# The first batch of a log of Apache Kafka 4.3.1, made by librdkafka: two records, one header.
GOLDEN = bytes.fromhex(
    "0000000000000000 00000049 00000000 02 cbf41399 0000 00000001"
    "0000018bcfe56800 0000018bcfe56805 ffffffffffffffff ffff ffffffff 00000002"
    "1c00000004 6b30 04 7630 02 02 68 02 78"
    "10000a020104 7631 00"
)
RECORDS = [
    Record(0, 1_700_000_000_000, b"k0", b"v0", (("h", b"x"),)),
    Record(1, 1_700_000_000_005, None, b"v1", ()),
]


def test_the_golden_batch_is_read() -> None:
    header = read_header(GOLDEN)

    assert header == BatchHeader(
        0, 0x49, 0, 2, 0xCBF41399, 0, 1, 1_700_000_000_000, 1_700_000_000_005, -1, -1, -1, 2
    )
    assert header.size == len(GOLDEN)
    assert check_crc(memoryview(GOLDEN))
    assert list(iterate_records(GOLDEN)) == RECORDS


def test_the_golden_batch_is_built() -> None:
    assert build_batch(RECORDS, leader_epoch=0) == GOLDEN


def test_properties_follow_the_attributes() -> None:
    header = read_header(GOLDEN)._replace(
        base_offset=40, attributes=4 | 8 | 16 | 32, base_sequence=2**31 - 1
    )

    assert header.last_offset == 41
    assert header.last_sequence == 0
    assert header.codec == 4
    assert header.is_log_append_time
    assert header.is_transactional
    assert header.is_control
    assert header.delete_horizon is None
    assert header._replace(attributes=64).delete_horizon == header.base_timestamp
    assert header._replace(base_sequence=-1).last_sequence == -1


def test_a_stamp_touches_neither_crc_nor_payload() -> None:
    batch = bytearray(b"before" + GOLDEN + b"after")
    view = memoryview(batch)[6 : 6 + len(GOLDEN)]

    stamp(view, 2**40, 17)

    header = read_header(batch, 6)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 17)
    assert check_crc(view)
    assert view[16:] == GOLDEN[16:]
    assert batch[:6] == b"before"
    assert batch[-5:] == b"after"


def test_timestamp_types_are_header_work() -> None:
    batch = bytearray(GOLDEN)
    view = memoryview(batch)

    set_log_append_time(view, 1_800_000_000_000)

    assert check_crc(view)
    assert read_header(view).is_log_append_time
    assert {r.timestamp for r in iterate_records(view)} == {1_800_000_000_000}
    assert view[HEADER_SIZE:] == GOLDEN[HEADER_SIZE:]

    set_create_time(view, 1_700_000_000_005)

    assert view == GOLDEN


def test_attributes_that_mean_nothing_are_not_written_anew() -> None:
    """Kafka keeps them where it keeps the header, and knows nothing of them where it writes one."""
    for write in (set_log_append_time, set_create_time):
        batch = build_batch([Record(0, 5, None, b"v")])
        batch[CRC_START : CRC_START + 2] = (0x7F80).to_bytes(2, "big")

        write(memoryview(batch), 9)

        assert read_header(batch).attributes == TIMESTAMP_TYPE * (write is set_log_append_time)


def test_headers_are_walked_without_their_payload() -> None:
    two = GOLDEN + GOLDEN

    assert [position for position, _ in iterate_headers(two)] == [0, len(GOLDEN)]
    assert [p for p, _ in iterate_headers(two[:-1])] == [0]
    assert list(iterate_headers(two, len(two))) == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param((16, b"\x01"), id="magic 1"),
        pytest.param((16, b"\x03"), id="magic 3"),
        pytest.param((8, b"\x00\x00\x00\x30"), id="length 48"),
        pytest.param((8, b"\xff\xff\xff\xff"), id="length -1"),
        pytest.param((8, b"\x80\x00\x00\x00"), id="least length"),
    ],
)
def test_a_broken_chain_is_an_error(change: tuple[int, bytes]) -> None:
    at, content = change
    batch = bytearray(GOLDEN)
    batch[at : at + len(content)] = content

    with pytest.raises(KafkaError) as caught:
        list(iterate_headers(batch))

    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_header_needs_its_61_bytes() -> None:
    for size in range(HEADER_SIZE):
        with pytest.raises(KafkaError) as caught:
            read_header(memoryview(GOLDEN)[:size])

        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_every_flipped_bit_under_the_crc_is_noticed() -> None:
    for position in range(17, len(GOLDEN)):
        batch = bytearray(GOLDEN)
        batch[position] ^= 1 << position % 8

        assert not check_crc(memoryview(batch))
