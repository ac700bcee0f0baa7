"""The search by time within a batch says what decoding all of its records says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import set_log_append_time
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import Record, iterate_records
from ottla.protocol.records.times import first_with_time

TIMES = st.one_of(st.integers(0, 200), st.integers(0, 1 << 40))


def _batch(times: list[int], *, value: bytes = b"v", codec: int = 0) -> bytearray:
    records = [Record(0, time, b"k", value, [("h", b"x")]) for time in times]
    return build_batch(records, base_offset=100, codec=codec)


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

    assert first_with_time(bytes(batch), wanted, least) == expected
    assert first_with_time(memoryview(batch), wanted, least) == expected


def test_a_record_that_claims_too_much_is_refused() -> None:
    batch = _batch([1, 2, 3])
    batch[61] = 0xFE
    with pytest.raises(KafkaError, match="claims a length"):
        first_with_time(bytes(batch), 3, 0)
