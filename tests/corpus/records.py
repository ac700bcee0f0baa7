"""Bad and odd records on Produce, as data: what is sent, to what topic, and what is answered.

Each row is one topic, new for it, and the sends to it in order on one connection. `expected` is
what Ottla answers; `kafka` stands where Apache Kafka 4.3.1 answers otherwise, so the same rows can
be sent to it. Where the answer is NONE, `stored` judges what a fetch gives back.

Batches of ordinary topics are judged by their header, length and CRC alone; what only a walk over
the records can show is refused on compacted topics, whose records are read anyway.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from ottla.broker.log.validation import RECORD_ERRORS_MAX
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
    check_crc,
    read_header,
)
from ottla.protocol.records.builder import assemble, build_batch, encode_record
from ottla.protocol.records.codecs import Codec
from ottla.protocol.records.record import Record
from tests.corpus.shapes import batch, corrupted, legacy, relabelled, with_block
from tests.records import bombs

HOUR_MS = 3_600_000


class Topic(Enum):
    """The topic that a row is sent to; the value is its name, or the start of a fresh one."""

    PLAIN = "corpus-plain-"
    COMPACTED = "corpus-compacted-"
    LOG_APPEND_TIME = "corpus-append-time-"
    MIN_INSYNC_2 = "corpus-min-insync-"
    INTERNAL = "__consumer_offsets"  # which exists
    MISSING = "corpus-missing"
    INVALID = "no/such topic"
    UNNAMED = ""


TOPIC_CONFIGS: dict[Topic, dict[str, str]] = {
    Topic.PLAIN: {},
    Topic.COMPACTED: {"cleanup.policy": "compact"},
    Topic.LOG_APPEND_TIME: {"message.timestamp.type": "LogAppendTime"},
    Topic.MIN_INSYNC_2: {"min.insync.replicas": "2"},
}


class Outcome(Enum):
    """What stands for an answer where there is none: to acks=0, or by a fault."""

    CLOSED = "the connection is closed"
    SILENT = "nothing is answered and the connection stays"
    HANGS = "an answer is due and never comes"


Build = Callable[[int], bytes | bytearray | None]
Judge = Callable[[bytes, bytes], bool]


def as_sent(sent: bytes, stored: bytes) -> bool:
    """All but base offset and leader epoch, which the broker assigns."""
    return stored[16:] == sent[16:] and stored[8:12] == sent[8:12]


def as_created(sent: bytes, stored: bytes) -> bool:
    """The broker took the claim of LogAppendTime out, and computed the CRC anew."""
    header = read_header(stored)
    return (
        not header.is_log_append_time
        and check_crc(memoryview(stored))
        and stored[HEADER_SIZE:] == sent[HEADER_SIZE:]
    )


def as_appended(sent: bytes, stored: bytes) -> bool:
    """The broker's clock stands in the header; the records are as they were sent."""
    header = read_header(stored)
    return (
        header.is_log_append_time
        and check_crc(memoryview(stored))
        and header.max_timestamp > read_header(sent).max_timestamp
        and header.base_timestamp == read_header(sent).base_timestamp
        and stored[HEADER_SIZE:] == sent[HEADER_SIZE:]
    )


@dataclass(slots=True, frozen=True)
class Send:
    """One Produce of one partition. `records` makes the field, given the time in milliseconds.

    `reaches_log` is told by log_start_offset: -1 where a batch is refused before it, None where
    a row does not say. `base_offset` is checked where it is given.
    """

    records: Build
    expected: ErrorCode | Outcome
    kafka: ErrorCode | Outcome | None = None
    acks: int = -1
    version: int = 12
    partition: int = 0
    transactional_id: str | None = None
    reaches_log: bool | None = None
    record_errors: tuple[int, ...] = ()
    base_offset: int | None = None
    stored: Judge | None = None


@dataclass(slots=True, frozen=True)
class Row:
    name: str
    topic: Topic
    sends: tuple[Send, ...]


def plain(now_ms: int) -> bytes:
    return batch(now_ms)


def _row(
    name: str,
    records: Build,
    expected: ErrorCode | Outcome,
    *,
    topic: Topic = Topic.PLAIN,
    kafka: ErrorCode | Outcome | None = None,
    acks: int = -1,
    version: int = 12,
    partition: int = 0,
    transactional_id: str | None = None,
    reaches_log: bool | None = None,
    record_errors: tuple[int, ...] = (),
    stored: Judge | None = None,
) -> Row:
    if expected is ErrorCode.NONE and stored is None:
        stored = as_sent
    send = Send(
        records,
        expected,
        kafka=kafka,
        acks=acks,
        version=version,
        partition=partition,
        transactional_id=transactional_id,
        reaches_log=reaches_log,
        record_errors=record_errors,
        stored=stored,
    )
    return Row(name, topic, (send,))


NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
CORRUPT = ErrorCode.CORRUPT_MESSAGE
INVALID = ErrorCode.INVALID_RECORD
SERVER_ERROR = ErrorCode.UNKNOWN_SERVER_ERROR
CODEC = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
ACKS = ErrorCode.INVALID_REQUIRED_ACKS

ADDRESSES = [
    _row("a plain batch", plain, NONE, reaches_log=True),
    _row("topic unknown", plain, UNKNOWN, topic=Topic.MISSING),
    _row("topic name invalid", plain, UNKNOWN, topic=Topic.INVALID),
    _row("topic name empty", plain, UNKNOWN, topic=Topic.UNNAMED),
    _row("partition unknown", plain, UNKNOWN, partition=1),
    _row("partition negative", plain, UNKNOWN, partition=-1),
    _row("internal topic", plain, ErrorCode.INVALID_TOPIC_EXCEPTION, topic=Topic.INTERNAL),
    _row("min.insync.replicas above the replicas", plain, NONE, topic=Topic.MIN_INSYNC_2),
    *(_row(f"acks {acks}", plain, ACKS, acks=acks) for acks in (2, 3, -2, -7)),
    _row("acks 2, topic unknown", plain, UNKNOWN, acks=2, topic=Topic.MISSING),
    _row("acks 2, internal topic", plain, ACKS, acks=2, topic=Topic.INTERNAL),
    _row("acks 0", plain, Outcome.SILENT, acks=0),
    _row("acks 0, topic unknown", plain, Outcome.CLOSED, acks=0, topic=Topic.MISSING),
    _row("acks 0, topic name invalid", plain, Outcome.CLOSED, acks=0, topic=Topic.INVALID),
    _row("acks 0, wrong CRC", lambda now: corrupted(batch(now)), Outcome.CLOSED, acks=0),
]

FRAMING = [
    _row("null records", lambda now: None, INVALID, kafka=Outcome.HANGS, reaches_log=False),
    _row("no bytes", lambda now: b"", INVALID, reaches_log=False),
    _row("11 bytes", lambda now: batch(now)[:11], INVALID, reaches_log=False),
    _row("30 bytes", lambda now: batch(now)[:30], INVALID, reaches_log=False),
    _row("cut by a byte", lambda now: batch(now)[:-1], INVALID, reaches_log=False),
    # Apache Kafka stores the batch without the byte.
    _row("a byte too many", lambda now: batch(now) + b"\0", INVALID, kafka=NONE),
    _row("two batches", lambda now: batch(now) * 2, INVALID, reaches_log=False),
    _row(
        "a length that takes a second batch in",
        lambda now: relabelled(batch(now) * 2, 8, (2 * len(batch(now)) - 12).to_bytes(4, "big")),
        CORRUPT,
    ),
    _row(
        "length 2^31 - 1",
        lambda now: relabelled(batch(now), 8, b"\x7f\xff\xff\xff"),
        INVALID,
        kafka=SERVER_ERROR,
    ),
    _row("length -1", lambda now: relabelled(batch(now), 8, b"\xff" * 4), CORRUPT),
    _row("length 0", lambda now: relabelled(batch(now), 8, bytes(4)), CORRUPT),
    _row("wrong CRC", lambda now: corrupted(batch(now)), CORRUPT, reaches_log=False),
    _row("magic 0", lambda now: legacy(0), INVALID, reaches_log=False),
    _row("magic 1", lambda now: legacy(1), INVALID, reaches_log=False),
    _row(
        "magic 1, with what would be the transactional bit in its time",
        lambda now: relabelled(legacy(1), 22, b"\xff"),
        INVALID,
        reaches_log=False,
    ),
    _row("nothing but ones", lambda now: b"\xff" * 70, CORRUPT, reaches_log=False),
    _row("relabelled magic 0", lambda now: relabelled(batch(now), 16, b"\0"), INVALID),
    _row("relabelled magic 1", lambda now: relabelled(batch(now), 16, b"\1"), INVALID),
    _row("magic 3", lambda now: relabelled(batch(now), 16, b"\3"), CORRUPT),
]

HEADERS = [
    _row("count above the offsets", lambda now: batch(now, record_count=3), INVALID),
    _row("count below the offsets", lambda now: batch(now, record_count=1), INVALID),
    _row("count 0", lambda now: batch(now, record_count=0), INVALID, reaches_log=True),
    _row("count -1", lambda now: batch(now, record_count=-1, last_offset_delta=-2), INVALID),
    _row("base offset 77", lambda now: batch(now, base_offset=77), INVALID, reaches_log=True),
    _row("control bit", lambda now: batch(now, attributes=CONTROL), INVALID, reaches_log=True),
    _row(
        "producer id without a sequence",
        lambda now: batch(now, producer_id=1000, producer_epoch=0),
        INVALID,
        reaches_log=True,
    ),
    _row(
        "transactional bit without a transactional id",
        lambda now: batch(
            now, attributes=TRANSACTIONAL, producer_id=1000, producer_epoch=0, base_sequence=0
        ),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    _row("leader epoch 99", lambda now: batch(now, partition_leader_epoch=99), NONE),
    _row("delete horizon bit", lambda now: batch(now, attributes=DELETE_HORIZON), NONE),
    _row("attribute bit 7", lambda now: batch(now, attributes=128), NONE),
    _row(
        "LogAppendTime claimed",
        lambda now: batch(now, attributes=TIMESTAMP_TYPE),
        NONE,
        stored=as_created,
    ),
    _row(
        "1.2 MB",
        lambda now: build_batch([Record(0, now, b"k", bytes(1_200_000))]),
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
    _row(
        "LogAppendTime topic",
        lambda now: batch(now - HOUR_MS),
        NONE,
        topic=Topic.LOG_APPEND_TIME,
        stored=as_appended,
    ),
]

TIMESTAMPS = [
    _row(
        "two hours ahead",
        lambda now: batch(now + 2 * HOUR_MS),
        ErrorCode.INVALID_TIMESTAMP,
        record_errors=(0, 1),
    ),
    _row("timestamp -1", lambda now: batch(-1), NONE, stored=lambda sent, stored: True),
    _row("timestamp -5", lambda now: batch(-5), NONE, stored=lambda sent, stored: True),
    _row("years ago", lambda now: batch(1_000_000_000_000), NONE),
]


def _deltas(first: int, second: int) -> bytes:
    return encode_record(first, 0, key=b"k", value=b"v") + encode_record(
        second, 0, key=b"l", value=b"w"
    )


def _twice(records: Build, name: str, *, kafka: ErrorCode = INVALID) -> list[Row]:
    """What the header cannot show: stored on an ordinary topic, refused on a compacted one."""
    return [
        _row(f"{name}, ordinary topic", records, NONE, kafka=kafka),
        _row(f"{name}, compacted topic", records, INVALID, kafka=kafka, topic=Topic.COMPACTED),
    ]


def _null_keys(count: int) -> bytes:
    return b"".join(encode_record(delta, 0, key=None, value=None) for delta in range(count))


ONE = encode_record(0, 0, key=b"k", value=b"v")
RECORDS = [
    *_twice(lambda now: with_block(now, ONE, 2), "a record less than counted"),
    *_twice(lambda now: with_block(now, ONE + ONE, 1), "a record more than counted"),
    *_twice(lambda now: with_block(now, b"\x12" + ONE[1:] + b"\0", 1), "bytes behind the headers"),
    *_twice(lambda now: with_block(now, b"\x01" + ONE[1:], 1), "negative record length"),
    *_twice(
        lambda now: with_block(now, b"\xfe\xff\xff\xff\x0f" + ONE[1:], 1),
        "record length 2^31 - 1",
    ),
    *_twice(
        lambda now: with_block(now, b"\x14\0\0\0\x02k\x01\xfe\xff\xff\x07", 1),
        "many headers declared",
    ),
    *_twice(lambda now: with_block(now, b"\x0e\0\0\0\x02k\x01\x01", 1), "negative header count"),
    *_twice(
        lambda now: with_block(now, b"\x12\0\0\0\x02k\x01\x02\x01\x01", 1), "header without a name"
    ),
    _row("offset deltas 0 and 5", lambda now: with_block(now, _deltas(0, 5), 2), NONE),
    _row(
        "offset deltas 0 and 5 in gzip",
        lambda now: with_block(now, _deltas(0, 5), 2, codec=Codec.GZIP),
        NONE,
        kafka=SERVER_ERROR,
    ),
    _row(
        # Apache Kafka mends the header here.
        "a record later than the header's maximum",
        lambda now: batch(now, max_timestamp=now - 7),
        NONE,
        kafka=NONE,
    ),
    _row(
        "null key, compacted topic",
        lambda now: build_batch([Record(0, now, b"k", b"v"), Record(0, now, None, b"v")]),
        INVALID,
        topic=Topic.COMPACTED,
        record_errors=(1,),
    ),
    _row(
        "null key in zstd, compacted topic",
        lambda now: build_batch([Record(0, now, None, b"v")], codec=Codec.ZSTD),
        INVALID,
        topic=Topic.COMPACTED,
        record_errors=(0,),
        reaches_log=True,
    ),
    _row(
        # A few kilobytes that would make as many reasons, in memory and in the answer.
        "50,000 null keys in gzip, compacted topic",
        lambda now: with_block(now, _null_keys(50_000), 50_000, codec=Codec.GZIP),
        INVALID,
        topic=Topic.COMPACTED,
        record_errors=tuple(range(RECORD_ERRORS_MAX)),
    ),
]


def _payload(codec: int, payload: bytes) -> Build:
    def build(now_ms: int) -> bytes:
        header = read_header(batch(now_ms))
        return bytes(assemble(header._replace(attributes=codec), payload))

    return build


CODECS = [
    *(
        _row(f"codec {codec}", _payload(codec, ONE), CODEC, kafka=SERVER_ERROR)
        for codec in (5, 6, 7)
    ),
    _row(
        "zstd in Produce 3",
        lambda now: build_batch([Record(0, now, b"k", b"v")], codec=Codec.ZSTD),
        CODEC,
        version=3,
    ),
    _row(
        "bytes behind the gzip stream",
        lambda now: assemble(
            read_header(batch(now))._replace(attributes=Codec.GZIP),
            zlib.compress(batch(now)[HEADER_SIZE:], 6, 31) + b"garbage",
        ),
        NONE,
    ),
    *(
        row
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
        for row in (
            _row(
                f"garbage in {codec.name.lower()}, ordinary topic",
                _payload(codec, b"no such stream at all"),
                NONE,
                kafka=SERVER_ERROR,
            ),
            _row(
                f"garbage in {codec.name.lower()}, compacted topic",
                _payload(codec, b"no such stream at all"),
                CORRUPT,
                kafka=SERVER_ERROR,
                topic=Topic.COMPACTED,
            ),
        )
    ),
]

# Nothing decompresses them on an ordinary topic; on a compacted one the output is bounded.


def _bomb_rows(name: str, codec: Codec, payload: bytes, expected: ErrorCode) -> list[Row]:
    # Apache Kafka reads records as they come out: zeros are no record, before any limit.
    streamed = codec in (Codec.GZIP, Codec.ZSTD) and expected is ErrorCode.MESSAGE_TOO_LARGE
    kafka = INVALID if streamed else SERVER_ERROR
    build = _payload(codec, payload)
    return [
        _row(f"{name}, ordinary topic", build, NONE, kafka=kafka),
        _row(f"{name}, compacted topic", build, expected, kafka=kafka, topic=Topic.COMPACTED),
    ]


# Nothing decompresses them on an ordinary topic; on a compacted one the output is bounded.
BOMBS = [
    row
    for bomb_table, bomb_answer in (
        (bombs.TOO_LARGE, ErrorCode.MESSAGE_TOO_LARGE),
        (bombs.LIARS, CORRUPT),
    )
    for bomb, (bomb_codec, bomb_payload) in bomb_table.items()
    if len(bomb_payload) < 1_000_000
    for row in _bomb_rows(bomb, bomb_codec, bomb_payload, bomb_answer)
]


def _sequence(
    sequence: int,
    expected: ErrorCode,
    *,
    epoch: int = 0,
    producer_id: int = 1000,
    acks: int = -1,
    base_offset: int | None = None,
) -> Send:
    """Two records of an idempotent producer, from this sequence on."""
    return Send(
        lambda now: batch(
            now, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        ),
        expected,
        acks=acks,
        base_offset=base_offset,
    )


GAP = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
SEQUENCES = [
    Row("unknown producer id, any sequence", Topic.PLAIN, (_sequence(7, NONE),)),
    Row("producer id with acks 1", Topic.PLAIN, (_sequence(0, NONE, acks=1),)),
    Row("sequence gap", Topic.PLAIN, (_sequence(0, NONE), _sequence(3, GAP))),
    Row("sequence again, other length", Topic.PLAIN, (_sequence(0, NONE), _sequence(1, GAP))),
    Row(
        "duplicate, answered with the first offset",
        Topic.PLAIN,
        (
            _sequence(0, NONE, base_offset=0),
            _sequence(2, NONE, base_offset=2),
            _sequence(0, NONE, base_offset=0),
            _sequence(4, NONE, base_offset=4),
        ),
    ),
    Row(
        "the sixth batch back is no duplicate any more",
        Topic.PLAIN,
        (*(_sequence(2 * index, NONE) for index in range(6)), _sequence(0, GAP)),
    ),
    Row(
        "sequences wrap",
        Topic.PLAIN,
        (_sequence(2**31 - 2, NONE), _sequence(0, NONE, base_offset=2)),
    ),
    Row(
        "new epoch not from 0",
        Topic.PLAIN,
        (_sequence(0, NONE), _sequence(2, GAP, epoch=1), _sequence(0, NONE, epoch=1)),
    ),
    Row(
        "old epoch",
        Topic.PLAIN,
        (
            _sequence(0, NONE, epoch=1),
            _sequence(2, ErrorCode.INVALID_PRODUCER_EPOCH, epoch=0),
        ),
    ),
    Row(
        "two producer ids, one partition",
        Topic.PLAIN,
        (_sequence(0, NONE), _sequence(0, NONE, producer_id=1001), _sequence(2, NONE)),
    ),
]

ROWS: tuple[Row, ...] = (
    *ADDRESSES,
    *FRAMING,
    *HEADERS,
    *TIMESTAMPS,
    *RECORDS,
    *CODECS,
    *BOMBS,
    *SEQUENCES,
)
