"""Batches are those that the package reads, wrong exactly where they are meant to be, and fetched
ones are the same whatever codec and clock a broker has.
"""

from __future__ import annotations

import struct

import pytest

from ottla.protocol.records.batch import check_crc, read_header
from ottla.protocol.records.recompress import recompress
from ottla.protocol.records.record import iterate_records
from tests.differences.batches import HEADER, Batch, Record, compared, encoded, next_offset

RECORDS = (Record("k", "v", 3, (("h", None),)), Record(None, None, -2), Record("", "x" * 40, 7))
BATCH = Batch(RECORDS)
PRODUCER = (77, 2, 9)


def _same(value: int) -> int:
    return value


def _told(raw: bytes) -> list[object]:
    return compared(raw, _same, _same)


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_is_what_it_says(codec: int) -> None:
    raw = encoded(Batch(RECORDS, codec=codec), 1_000, PRODUCER)
    header = read_header(raw)

    assert check_crc(memoryview(raw))
    assert header.size == len(raw)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == PRODUCER
    assert (header.codec, header.max_timestamp) == (codec, 1_007)
    assert [(one.key, one.value, one.timestamp) for one in iterate_records(raw)] == [
        (b"k", b"v", 1_003),
        (None, None, 998),
        (b"", b"x" * 40, 1_007),
    ]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("base_offset", 0),
        ("length", 1),
        ("leader_epoch", 2),
        ("magic", 3),
        ("last_offset_delta", 6),
        ("max_timestamp", 8),
        ("count", 12),
    ],
)
def test_one_field_is_wrong_and_no_other(name: str, place: int) -> None:
    right = HEADER.unpack_from(encoded(BATCH, 1_000, PRODUCER))
    wrong = HEADER.unpack_from(encoded(Batch(RECORDS, odd=((name, 5),)), 1_000, PRODUCER))
    crc = 4

    assert wrong[place] == 5
    assert [
        at for at in range(len(right)) if at not in (crc, place) and right[at] != wrong[at]
    ] == []


def test_a_batch_may_be_longer_than_it_is_or_shorter_or_damaged() -> None:
    right = encoded(BATCH, 1_000, PRODUCER)
    longer = encoded(Batch(RECORDS, odd=(("longer", 10),)), 1_000, PRODUCER)
    flipped = encoded(Batch(RECORDS, odd=(("flip", 1),)), 1_000, PRODUCER)

    assert encoded(Batch(RECORDS, odd=(("cut", -5),)), 1_000, PRODUCER) == right[:-5]
    assert struct.unpack_from(">i", longer, 8)[0] == len(right) - 12 + 10
    assert not check_crc(memoryview(flipped))


def test_codecs_make_no_difference_but_in_the_attributes() -> None:
    plain = encoded(BATCH, 1_000, PRODUCER)
    (told,) = _told(plain)
    (packed,) = _told(bytes(recompress(plain, 2)))
    assert isinstance(told, dict)
    assert isinstance(packed, dict)

    assert told["attributes"] == 0
    assert packed == told | {"attributes": 2}


def test_one_other_record_makes_a_difference() -> None:
    other = Batch((Record("k", "w", 3, (("h", None),)), *RECORDS[1:]))

    assert _told(encoded(BATCH, 1_000, PRODUCER)) != _told(encoded(other, 1_000, PRODUCER))
    assert _told(encoded(BATCH, 1_000, PRODUCER)) != _told(encoded(BATCH, 1_001, PRODUCER))
    assert _told(encoded(BATCH, 1_000, PRODUCER)) != _told(encoded(BATCH, 1_000, (77, 2, 8)))


def test_the_time_of_the_log_makes_none() -> None:
    stamped = Batch(RECORDS, attributes=8)
    raw = [encoded(stamped, moment, PRODUCER) for moment in (1_000, 2_000)]
    first, second = (compared(one, lambda moment: "later", _same) for one in raw)

    assert first == second


def test_records_that_cannot_be_read_are_told_apart_by_their_bytes() -> None:
    count = Batch(RECORDS, attributes=1)  # plain, and said to be gzip
    (told,) = _told(encoded(count, 1_000, PRODUCER))
    assert isinstance(told, dict)

    assert told["records"][1] == encoded(count, 1_000, PRODUCER)[HEADER.size :].hex()


def test_what_is_cut_off_is_told_and_not_counted() -> None:
    whole = encoded(BATCH, 1_000, PRODUCER)

    assert _told(whole + whole[:40])[1] == ("part of a header", 40)
    assert _told(whole + whole[:-1])[1] == ("part of the batch at", 0)
    assert next_offset(whole + whole[:-1]) == 3
    assert next_offset(whole[:-1]) is None
