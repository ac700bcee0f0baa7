"""Records in and out of batches: against two other clients' own codecs, and against damage.

Every prefix and mutation of a batch is a typed error, or records within the limits.
"""

from __future__ import annotations

import random
import tracemalloc
import warnings
from collections.abc import Callable, Iterable

import pytest
from aiokafka.record.default_records import (
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    check_crc,
    read_header,
    write_crc,
)
from ottla.protocol.records.builder import assemble, build_batch, encode_record
from ottla.protocol.records.codecs import Codec
from ottla.protocol.records.columns import inspect_records, read_columns
from ottla.protocol.records.control import read_control_batch, read_marker
from ottla.protocol.records.recompress import recompress, renumbered
from ottla.protocol.records.record import Record, iterate_records
from ottla.protocol.records.varint import encode_varint, read_varint, read_varlong

with warnings.catch_warnings():
    # Its own schemas are loaded by a call that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import default_records as kafka_python

MIB = 1024 * 1024
BASE = 1_700_000_000_000
FIELDS = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=10), FIELDS), max_size=3).map(tuple)
RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp=st.integers(0, 2**45),
        key=FIELDS,
        value=FIELDS,
        headers=HEADERS,
    ),
    min_size=1,
    max_size=20,
)
SAMPLE = [
    Record(0, BASE, b"k0", b"v0", (("h", b"x"), ("none", None))),
    Record(1, BASE + 900, None, b"a" * 300),
    Record(2, BASE - 70_000, b"", None),
    Record(3, BASE + 5, b"key", b"", (("", b""),)),
]


def numbered(records: list[Record], base_offset: int) -> list[Record]:
    return [record._replace(offset=base_offset + index) for index, record in enumerate(records)]


@given(RECORDS, st.sampled_from(list(Codec)), st.integers(0, 2**62))
@settings(max_examples=100, deadline=None)
def test_records_come_back(records: list[Record], codec: Codec, base_offset: int) -> None:
    batch = build_batch(records, base_offset=base_offset, codec=codec)
    header = read_header(batch)

    assert list(iterate_records(batch)) == numbered(records, base_offset)
    assert check_crc(memoryview(batch))
    assert header.size == len(batch)
    assert header.record_count == header.last_offset_delta + 1 == len(records)
    assert header.max_timestamp == max(record.timestamp for record in records)


def test_every_header_field_is_set() -> None:
    batch = build_batch(
        SAMPLE,
        base_offset=5,
        leader_epoch=6,
        producer_id=7,
        producer_epoch=8,
        base_sequence=9,
        transactional=True,
        log_append_time_ms=BASE + 10**6,
    )
    header = read_header(batch)

    assert header[:4] == (5, len(batch) - 12, 6, 2)
    assert header[5:] == (8 | 16, 3, BASE, BASE + 10**6, 7, 8, 9, 4)
    assert {record.timestamp for record in iterate_records(batch)} == {BASE + 10**6}


def test_a_rewrite_keeps_offsets_and_the_end() -> None:
    kept = [SAMPLE[0]._replace(offset=12), SAMPLE[3]._replace(offset=17)]
    batch = build_batch(
        kept, base_offset=10, keep_offsets=True, last_offset_delta=9, delete_horizon_ms=BASE - 500
    )
    header = read_header(batch)

    assert list(iterate_records(batch)) == kept
    assert (header.last_offset, header.record_count) == (19, 2)
    assert header.delete_horizon == BASE - 500


def test_a_batch_may_be_empty() -> None:
    batch = build_batch([], base_offset=10, last_offset_delta=9, producer_id=1, producer_epoch=0)

    assert len(batch) == HEADER_SIZE
    assert list(iterate_records(batch)) == []
    assert len(read_columns(batch).offsets) == 0
    with pytest.raises(KafkaError, match="no records"):
        inspect_records(batch)


def test_names_that_are_not_utf8_are_replaced() -> None:
    record = b"\0\0\0\x01\x01\x02" + b"\x02\xff" + b"\x01"
    batch = rebuilt(SAMPLE[:1], bytes((len(record) * 2,)) + record, 1)

    assert next(iter(iterate_records(batch))).headers == (("\ufffd", None),)


@pytest.mark.parametrize("codec", Codec)
def test_kafka_python_reads_ours(codec: Codec) -> None:
    batch = build_batch(SAMPLE, base_offset=40, codec=codec, producer_id=3, producer_epoch=1)
    reader = kafka_python.DefaultRecordBatch(bytes(batch))

    assert reader.validate_crc()
    assert [
        Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in reader
    ] == numbered(SAMPLE, 40)


@pytest.mark.parametrize("codec", Codec)
def test_we_read_kafka_python(codec: Codec) -> None:
    assert_read(kafka_python.DefaultRecordBatchBuilder, codec)


@pytest.mark.parametrize("codec", Codec)
def test_we_read_aiokafka_and_it_reads_ours(codec: Codec) -> None:
    assert_read(DefaultRecordBatchBuilder, codec)
    reader = DefaultRecordBatch(bytes(build_batch(SAMPLE, base_offset=40, codec=codec)))

    assert reader.validate_crc()
    assert [
        Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in reader
    ] == numbered(SAMPLE, 40)


def assert_read(builder_class: Callable[..., object], codec: Codec) -> None:
    builder = builder_class(
        magic=2,
        compression_type=int(codec),
        is_transactional=False,
        producer_id=5,
        producer_epoch=1,
        base_sequence=2,
        batch_size=MIB,
    )
    for index, record in enumerate(SAMPLE * 30):
        builder.append(  # type: ignore[attr-defined]
            index, record.timestamp, record.key, record.value, list(record.headers)
        )
    batch = bytes(builder.build())  # type: ignore[attr-defined]

    assert check_crc(memoryview(batch))
    assert read_header(batch).codec == codec
    assert list(iterate_records(batch)) == numbered(SAMPLE * 30, 0)


@pytest.mark.parametrize("source", Codec)
@pytest.mark.parametrize("target", Codec)
def test_recompression_keeps_all_but_the_codec(source: Codec, target: Codec) -> None:
    batch = build_batch(
        SAMPLE, base_offset=9, codec=source, producer_id=4, producer_epoch=2, base_sequence=77
    )
    stored = bytes(batch)
    result = recompress(batch, target)
    header = read_header(result)

    assert check_crc(memoryview(result))
    assert header.codec == target
    assert header._replace(batch_length=0, crc=0, attributes=0) == read_header(batch)._replace(
        batch_length=0, crc=0, attributes=0
    )
    assert list(iterate_records(result)) == list(iterate_records(batch))
    assert recompress(batch, target, block=inspect_records(batch).block) == result
    assert batch == stored


def test_recompression_keeps_no_attribute_that_means_nothing() -> None:
    batch = build_batch(SAMPLE)
    batch[CRC_START : CRC_START + 2] = (0x7FD0).to_bytes(2, "big")

    assert read_header(recompress(batch, Codec.GZIP)).attributes == TRANSACTIONAL | Codec.GZIP


def test_records_that_outgrow_the_limit_with_their_numbers_are_refused() -> None:
    def block(numbers: Iterable[int]) -> bytes:
        return b"".join(encode_record(number, 0, key=None, value=b"v") for number in numbers)

    alike, counted = block([0] * 100), block(range(100))
    assert len(alike) < len(counted)

    assert renumbered(alike, limit=len(counted)) == counted
    with pytest.raises(KafkaError) as caught:
        renumbered(alike, limit=len(counted) - 1)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@given(RECORDS, st.sampled_from(list(Codec)))
@settings(max_examples=40, deadline=None)
def test_columns_say_what_the_iterator_says(records: list[Record], codec: Codec) -> None:
    batch = build_batch(records, base_offset=3, codec=codec)
    columns = read_columns(batch)

    def part(start: int, length: int) -> bytes | None:
        return None if length < 0 else columns.block[start : start + length]

    assert [
        Record(
            columns.offsets[i],
            columns.timestamps[i],
            part(columns.key_starts[i], columns.key_lengths[i]),
            part(columns.value_starts[i], columns.value_lengths[i]),
            columns.headers(i),
        )
        for i in range(len(columns.offsets))
    ] == list(iterate_records(batch))


def test_the_compiled_walk_is_the_same_walk() -> None:
    pytest.importorskip("numba", reason="the optional extra `compiled` is not installed")
    rng = random.Random(3)
    batch = build_batch(SAMPLE)

    assert read_columns(batch, compiled=True) == read_columns(batch)
    for _ in range(500):
        damaged = bytearray(batch)
        damaged[rng.randrange(HEADER_SIZE, len(batch))] = rng.choice((0x7F, 0x80, 0xFF))
        try:
            expected = read_columns(damaged)
        except KafkaError:
            with pytest.raises(KafkaError):
                read_columns(damaged, compiled=True)
        else:
            assert read_columns(damaged, compiled=True) == expected


def test_an_inspection_tells_what_rules_ask() -> None:
    seen = inspect_records(build_batch(SAMPLE, base_offset=7, codec=Codec.ZSTD))

    assert list(seen.timestamps) == [record.timestamp for record in SAMPLE]
    assert seen.null_keys == [1]
    assert seen.consecutive
    assert (seen.max_timestamp, seen.index_of_max_timestamp) == (BASE + 900, 1)

    gap = build_batch([SAMPLE[0], SAMPLE[1]._replace(offset=5)], keep_offsets=True)

    assert not inspect_records(gap).consecutive


def rebuilt(records: list[Record], block: bytes, count: int, codec: int = 0) -> bytearray:
    """A batch whose block and count were put in by hand, under a right CRC."""
    header = read_header(build_batch(records))
    return assemble(header._replace(record_count=count, attributes=codec), block)


def invalid_blocks() -> dict[str, tuple[bytes, int]]:
    whole = bytes(build_batch(SAMPLE)[HEADER_SIZE:])
    one = encode_record(0, 0, key=b"k", value=b"v")
    return {
        "a record less than counted": (whole, 5),
        "a record more than counted": (whole, 3),
        "a negative count": (whole, -1),
        "a count of 2^31 - 1": (whole, 2**31 - 1),
        "no record at all": (b"", 1),
        "bytes behind the last record": (one + b"\0", 1),
        "bytes within a record behind its headers": (b"\x12" + one[1:] + b"\0", 1),
        "a negative record length": (b"\x01" + one[1:], 1),
        "a record length of 2^31 - 1": (b"\xfe\xff\xff\xff\x0f" + one[1:], 1),
        "a record length of six bytes": (b"\xff\xff\xff\xff\xff\x01" + one[1:], 1),
        "a record length that wraps": (b"\xff\xff\xff\xff\x7f" + one[1:], 1),
        "a record length of 5": (b"\x0a\0\0\0\x01\x01", 1),
        "a key length of -2": (b"\x0e\0\0\0\x03\x01\0\0", 1),
        "a key longer than the record": (b"\x0e\0\0\0\x7e\x01\0\0", 1),
        "a value length of 2^31 - 1": (b"\x16\0\0\0\x01\xfe\xff\xff\xff\x0f\0\0", 1),
        "a negative header count": (b"\x0c\0\0\0\x01\x01\x01", 1),
        "2^31 - 1 headers": (b"\x14\0\0\0\x01\x01\xfe\xff\xff\xff\x0f", 1),
        "a header without a name": (b"\x10\0\0\0\x01\x01\x02\x01\x01", 1),
        "a header value longer than the record": (b"\x10\0\0\0\x01\x01\x02\0\x7e", 1),
        "a timestamp delta of eleven bytes": (b"\x1e\0" + b"\xff" * 10 + b"\x01\0\0\0", 1),
        "an offset delta of six bytes": (b"\x14\0\0" + b"\xff" * 5 + b"\x01\0\0", 1),
    }


@pytest.mark.parametrize("name", invalid_blocks())
def test_records_that_contradict_themselves_are_refused(name: str) -> None:
    block, count = invalid_blocks()[name]
    batch = rebuilt(SAMPLE, block, count)
    tracemalloc.start()
    try:
        for read in (lambda: list(iterate_records(batch)), lambda: inspect_records(batch)):
            with pytest.raises(KafkaError) as caught:
                read()

            assert caught.value.code is ErrorCode.INVALID_RECORD
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 100_000


def readers() -> list[Callable[[bytes | bytearray], object]]:
    return [
        lambda batch: list(iterate_records(batch, limit=MIB)),
        lambda batch: read_columns(batch, limit=MIB),
        lambda batch: inspect_records(batch, limit=MIB),
        lambda batch: recompress(batch, Codec.LZ4, limit=MIB),
        read_control_batch,
        read_marker,
    ]


@pytest.mark.parametrize("codec", Codec)
def test_every_prefix_is_a_typed_error(codec: Codec) -> None:
    batch = build_batch(SAMPLE, codec=codec, control=True)
    for size in range(len(batch)):
        for read in readers()[:3]:
            with pytest.raises(KafkaError):
                read(batch[:size])


@pytest.mark.parametrize("codec", Codec)
def test_mutations_are_read_or_refused_within_bounds(codec: Codec) -> None:
    """The CRC does not help: whoever sends a hostile batch computes it."""
    rng = random.Random(11 + codec)
    batch = build_batch(SAMPLE, codec=codec)
    tracemalloc.start()
    try:
        for _ in range(600):
            damaged = bytearray(batch)
            for _ in range(rng.randrange(1, 4)):
                position = rng.choice((rng.randrange(len(batch)), rng.randrange(21, 61)))
                damaged[position] = rng.choice((0, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            write_crc(memoryview(damaged))
            for read in readers():
                try:
                    read(damaged)
                except KafkaError:
                    continue
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 4 * MIB


def test_a_header_may_say_anything() -> None:
    extremes = HEADER.pack(
        2**63 - 1, 2**31 - 1, -1, 2, 0, -1, 2**31 - 1, 2**63 - 1, 2**63 - 1, 0, 0, 0, 2**31 - 1
    )
    for flags in (0, 8, 64, -8):
        header = read_header(extremes)._replace(attributes=flags)
        batch = assemble(header, build_batch(SAMPLE)[HEADER_SIZE:])
        for read in readers()[:3]:
            with pytest.raises(KafkaError):
                read(batch)


@pytest.mark.parametrize("value", [0, -1, 63, 64, -64, -65, 8191, 8192, 2**31 - 1, -(2**31)])
def test_varints(value: int) -> None:
    encoded = encode_varint(value)

    assert read_varint(b"x" + encoded + b"y", 1) == (value, 1 + len(encoded))
    assert read_varlong(b"x" + encoded + b"y", 1) == (value, 1 + len(encoded))
    for size in range(len(encoded)):
        with pytest.raises(KafkaError):
            read_varint(encoded[:size], 0)
        with pytest.raises(KafkaError):
            read_varlong(encoded[:size], 0)


def test_varints_are_no_wider_than_their_type() -> None:
    for value in (2**31, -(2**31) - 1, 2**63 - 1, -(2**63)):
        assert read_varlong(encode_varint(value), 0) == (value, len(encode_varint(value)))
        with pytest.raises(KafkaError, match="32 bits"):
            read_varint(encode_varint(value), 0)
    with pytest.raises(KafkaError, match="64 bits"):
        read_varlong(b"\xff" * 9 + b"\x02", 0)
    with pytest.raises(KafkaError, match="64 bits"):
        read_varlong(b"\x80" * 11, 0)


def test_a_header_view_is_a_plain_tuple() -> None:
    header = read_header(build_batch(SAMPLE))

    assert isinstance(header, BatchHeader)
    assert header == HEADER.unpack_from(build_batch(SAMPLE))
