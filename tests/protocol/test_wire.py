"""Varints and the text of ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.errors import ProtocolError
from ottla.protocol.wire import (
    ZERO_UUID,
    parse_uuid,
    read_uvarint,
    skip_tags,
    uuid_text,
    write_uvarint,
)


@given(st.integers(0, 2**31 - 1))
def test_a_varint_is_read_as_it_was_written(value: int) -> None:
    out = bytearray()
    write_uvarint(out, value)

    assert read_uvarint(memoryview(out), 0) == (value, len(out))
    assert len(out) == max(1, -(-value.bit_length() // 7))


def test_a_padded_varint_is_read_as_kafka_does() -> None:
    assert read_uvarint(memoryview(b"\x85\x80\x80\x80\x00"), 0) == (5, 5)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff\xff\x01",
        b"\x80\x80\x80\x80\x80\x00",
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\x7f",
    ],
)
def test_a_varint_above_an_int32_or_five_bytes_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_uvarint(memoryview(data), 0)


@pytest.mark.parametrize("data", [b"", b"\x05", b"\x05\x04abc", b"\x05\xff\xff\xff\xff\x07"])
def test_tags_beyond_the_end_are_refused(data: bytes) -> None:
    with pytest.raises((ProtocolError, IndexError)):
        skip_tags(1, memoryview(data), 0, len(data))


@given(st.binary(min_size=16, max_size=16))
def test_an_id_is_22_characters(value: bytes) -> None:
    text = uuid_text(value)

    assert len(text) == 22
    assert parse_uuid(text) == value


def test_the_zero_id_is_kafkas() -> None:
    assert uuid_text(ZERO_UUID) == "A" * 22


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 21 + "!", "A" * 24, "\u00e9" * 22])
def test_a_text_that_is_no_id(text: str) -> None:
    with pytest.raises(ValueError, match="is no id"):
        parse_uuid(text)
