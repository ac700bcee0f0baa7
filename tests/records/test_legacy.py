"""Magic 0 and 1: what kafka-clients 3.9.1 wrote is read; what is damaged is refused.

The sets come from tests/golden/java/legacy, whose program says what they hold.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.legacy import iterate_legacy_records, iterate_messages
from ottla.protocol.records.record import Record

GOLDEN = Path(__file__).parent.parent / "golden" / "java" / "legacy" / "expected.hex"
SETS = {
    name: bytes.fromhex(content)
    for name, content in (
        line.rsplit(" ", 1) for line in GOLDEN.read_text(encoding="ascii").splitlines()
    )
}
BASE_TIMESTAMP = 1_700_000_000_000
APPEND_TIME = 1_700_000_999_000


def expected(name: str) -> list[Record]:
    if name.startswith("magic0"):
        timestamps = [-1] * 4
    elif "append" in name:
        timestamps = [APPEND_TIME] * 4
    else:
        timestamps = [BASE_TIMESTAMP + delta for delta in (0, 7, 3, 5)]
    pairs = [(b"k0", b"v0"), (None, b"v1"), (b"k2", None), (b"", b"x" * 200)]
    return [
        Record(100 + index, timestamps[index], key, value)
        for index, (key, value) in enumerate(pairs)
    ]


def test_every_codec_of_both_magics_is_there() -> None:
    assert sorted(SETS) == [
        *(f"magic0 {codec}" for codec in ("gzip", "lz4", "none", "snappy")),
        "magic1 append-gzip",
        "magic1 append-none",
        *(f"magic1 {codec}" for codec in ("gzip", "lz4", "none", "snappy")),
    ]


@pytest.mark.parametrize("name", SETS)
def test_java_sets_are_read(name: str) -> None:
    assert list(iterate_legacy_records(SETS[name])) == expected(name)


def test_a_wrapper_carries_the_last_offset() -> None:
    ((position, wrapper),) = iterate_messages(SETS["magic1 gzip"])

    assert position == 0
    assert (wrapper.offset, wrapper.codec, wrapper.size) == (103, 1, len(SETS["magic1 gzip"]))


@pytest.mark.parametrize("name", SETS)
def test_a_cut_set_gives_its_whole_messages_or_a_typed_error(name: str) -> None:
    content = SETS[name]
    whole = expected(name)
    for size in range(len(content)):
        read = list(iterate_legacy_records(content[:size]))

        assert read == whole[: len(read)]
        assert len(read) < len(whole)


def read_or_code(content: bytearray) -> list[Record] | ErrorCode:
    try:
        return list(iterate_legacy_records(content, limit=4096))
    except KafkaError as error:
        return error.code


@pytest.mark.parametrize("name", SETS)
def test_a_flipped_bit_is_a_typed_error_or_a_cut(name: str) -> None:
    for position in range(8, len(SETS[name])):
        damaged = bytearray(SETS[name])
        damaged[position] ^= 1 << position % 8

        match read_or_code(damaged):
            case ErrorCode() as code:
                assert code is ErrorCode.CORRUPT_MESSAGE
            case read:
                # Offsets stand before the CRC; a size that grew cuts the set.
                assert [record[1:] for record in read] == [
                    record[1:] for record in expected(name)[: len(read)]
                ]


@pytest.mark.parametrize("name", SETS)
def test_a_bit_flipped_under_a_right_crc_is_read_or_refused(name: str) -> None:
    """What the CRC does not catch: a hostile writer computes it."""
    refusals = (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    )
    for position in range(16, len(SETS[name])):
        damaged = bytearray(SETS[name])
        damaged[position] ^= 1 << position % 8
        size = int.from_bytes(damaged[8:12], "big")
        damaged[12:16] = zlib.crc32(damaged[16 : 12 + size]).to_bytes(4, "big")

        match read_or_code(damaged):
            case ErrorCode() as code:
                assert code in refusals
            case read:
                assert len(read) <= 5


def test_a_nested_wrapper_is_refused() -> None:
    inner = SETS["magic1 gzip"]
    value = zlib.compress(inner, wbits=31)
    body = (
        b"\x01\x01" + (0).to_bytes(8, "big") + b"\xff" * 4 + len(value).to_bytes(4, "big") + value
    )
    outer = (
        (103).to_bytes(8, "big")
        + (len(body) + 4).to_bytes(4, "big")
        + zlib.crc32(body).to_bytes(4, "big")
        + body
    )

    with pytest.raises(KafkaError, match="nested"):
        list(iterate_legacy_records(outer))
