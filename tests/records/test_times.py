"""The search by time within a batch says what decoding all of its records says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import HEADER_SIZE, read_header, set_log_append_time
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record, iterate_records
from ottla.protocol.records.times import PIECE_BYTES, first_with_time

TIMES = st.one_of(st.integers(0, 200), st.integers(0, 1 << 40))


def _batch(times: list[int], *, value: bytes = b"v", codec: int = 0) -> bytearray:
    records = [Record(0, time, b"k", value, [("h", b"x")]) for time in times]
    return build_batch(records, base_offset=100, codec=codec)


def _first(batch: bytearray, wanted: int, least: int) -> tuple[int, int] | None:
    def read(position: int, size: int) -> bytes:
        return bytes(batch[position : position + size])

    return first_with_time(read_header(batch), read, wanted, least)


@settings(max_examples=150, deadline=None)
@given(
    times=st.lists(TIMES, min_size=1, max_size=20),
    wanted=TIMES,
    least=st.integers(95, 125),
    size=st.sampled_from([0, 1, 60, 200, 20_000]),
    codec=st.sampled_from([0, 1, 4]),
    append_time=st.booleans(),
)
def test_it_finds_what_a_look_at_every_record_finds(
    times: list[int], wanted: int, least: int, size: int, codec: int, append_time: bool
) -> None:
    batch = _batch(times, value=b"v" * size, codec=codec)
    if append_time:
        set_log_append_time(memoryview(batch), 1 << 20)
    expected = next(
        (
            (record.offset, record.timestamp)
            for record in iterate_records(batch)
            if record.timestamp >= wanted and record.offset >= least
        ),
        None,
    )

    assert _first(batch, wanted, least) == expected


def test_a_record_that_claims_too_much_is_refused() -> None:
    batch = _batch([1, 2, 3])
    batch[61] = 0xFE
    with pytest.raises(KafkaError, match="claims a length"):
        _first(batch, 3, 0)


def test_no_more_is_read_than_it_takes() -> None:
    batch = _batch(list(range(200)), value=b"v" * 1000)
    asked: list[tuple[int, int]] = []

    def read(position: int, size: int) -> bytes:
        asked.append((position, size))
        return bytes(batch[position : position + size])

    assert first_with_time(read_header(batch), read, 100, 0) == (200, 100)
    assert len(batch) // 2 < sum(size for _, size in asked) < len(batch) // 2 + 2 * PIECE_BYTES


@pytest.mark.parametrize("count", [1, 3])
def test_records_that_are_not_there_are_no_records(count: int) -> None:
    batch = _batch([1, 2, 3])
    header = read_header(batch)
    short = batch[: HEADER_SIZE + 5 * count]
    with pytest.raises(KafkaError):
        first_with_time(header, lambda at, size: bytes(short[at : at + size]), 3, 0)
