"""What a leader takes, what it refuses, and what a failing disk does to an append."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ottla.broker.log.log import UPPER_LOG_END, Log
from ottla.broker.log.validation import RefusedBatch
from ottla.config.types import LogConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    TIMESTAMP_TYPE,
    check_crc,
    read_header,
    stamp,
    write_crc,
)
from ottla.protocol.records.builder import assemble, build_batch, encode_record
from ottla.protocol.records.compression import compress
from ottla.protocol.records.record import PIECE_RECORDS, Record, iterate_records
from ottla.testing.disk import SimDisk, SimFile
from tests.log.logs import NOW, append, batch, flush, headers_of, new_disk, open_log, read_all

HOUR_MS = 3_600_000


def new_log(config: LogConfig | None = None) -> Log:
    return open_log(new_disk(), config)


def changed(records: memoryview, position: int, data: bytes, *, crc: bool = True) -> memoryview:
    """The batch with other bytes at a position, and with its CRC made to fit."""
    records[position : position + len(data)] = data
    if crc:
        write_crc(records)
    return records


def int32(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def refusal(log: Log, records: memoryview, *, now_ms: int = NOW) -> KafkaError:
    before = (log.log_end_offset, log.size_bytes)
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(records, leader_epoch=0, now_ms=now_ms)

    assert before == (log.log_end_offset, log.size_bytes)
    return raised.value


def test_a_batch_is_stamped_in_place_and_written_as_it_came() -> None:
    log = new_log()
    append(log, 3)
    records = batch(2)
    sent = bytes(records)
    result = log.append_as_leader(records, leader_epoch=7, now_ms=NOW)

    assert (result.base_offset, result.last_offset) == (3, 4)
    assert (result.log_append_time_ms, result.log_start_offset, result.duplicate) == (-1, 0, False)
    assert read_all(log)[-len(sent) :] == bytes(records)
    header = read_header(records)
    assert (header.base_offset, header.partition_leader_epoch) == (3, 7)
    assert bytes(records[16:]) == sent[16:]


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (memoryview(b""), ErrorCode.INVALID_RECORD),
        (memoryview(bytearray(11)), ErrorCode.INVALID_RECORD),
        (batch()[:30], ErrorCode.INVALID_RECORD),
        (batch()[:-1], ErrorCode.INVALID_RECORD),
        (memoryview(bytearray(batch()) + batch()), ErrorCode.INVALID_RECORD),
        (memoryview(bytearray(batch()) + b"\0"), ErrorCode.INVALID_RECORD),
        (changed(batch(), 16, b"\0", crc=False), ErrorCode.INVALID_RECORD),
        (changed(batch(), 16, b"\1", crc=False), ErrorCode.INVALID_RECORD),
        (changed(batch(), 16, b"\3", crc=False), ErrorCode.CORRUPT_MESSAGE),
        (changed(batch(), 8, int32(3), crc=False), ErrorCode.CORRUPT_MESSAGE),
        (changed(batch(), 8, int32(-1), crc=False), ErrorCode.CORRUPT_MESSAGE),
        (changed(batch(), 8, int32(2**31 - 1), crc=False), ErrorCode.INVALID_RECORD),
        (changed(batch(), 70, b"!", crc=False), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_bytes_that_are_no_batch_never_reach_the_log(records: memoryview, code: ErrorCode) -> None:
    error = refusal(new_log(), records)

    assert isinstance(error, RefusedBatch)
    assert (error.code, error.log_start_offset) == (code, -1)


def test_the_message_names_the_magic() -> None:
    error = refusal(new_log(), changed(batch(), 16, b"\3", crc=False))

    assert error.message == "Invalid magic found in record: 3"


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (changed(batch(), 0, (77).to_bytes(8, "big")), ErrorCode.INVALID_RECORD),
        (changed(batch(2), 57, int32(3)), ErrorCode.INVALID_RECORD),
        (changed(batch(2), 57, int32(0)), ErrorCode.INVALID_RECORD),
        (changed(batch(2), 23, int32(-1) + bytes(0)), ErrorCode.INVALID_RECORD),
        (changed(batch(), 21, CONTROL.to_bytes(2, "big")), ErrorCode.INVALID_RECORD),
        (batch(producer_id=5, producer_epoch=0), ErrorCode.INVALID_RECORD),
        (changed(batch(), 21, (5).to_bytes(2, "big")), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (changed(batch(), 21, (7).to_bytes(2, "big")), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_a_header_against_the_rules_is_refused(records: memoryview, code: ErrorCode) -> None:
    log = new_log()
    append(log, 3)
    flush(log)
    log.delete_records(2)
    error = refusal(log, records)

    assert isinstance(error, RefusedBatch)
    assert (error.code, error.message, error.log_start_offset) == (code, None, 2)


def test_a_large_batch_is_refused() -> None:
    config = LogConfig(max_message_bytes=200)
    assert refusal(new_log(config), batch(size=200)).code is ErrorCode.MESSAGE_TOO_LARGE
    append(new_log(config), size=100)

    config = LogConfig(segment_bytes=200)
    assert refusal(new_log(config), batch(size=200)).code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_attribute_bits_without_meaning_here_are_kept() -> None:
    log = new_log()
    records = changed(batch(), 21, (DELETE_HORIZON | 0x80).to_bytes(2, "big"))
    log.append_as_leader(records, leader_epoch=0, now_ms=NOW)

    assert headers_of(read_all(log))[0].attributes == DELETE_HORIZON | 0x80


@pytest.mark.parametrize(
    ("times", "codec", "named"),
    [
        ((NOW, NOW + 2 * HOUR_MS), 0, [1]),
        ((NOW + 2 * HOUR_MS, NOW), 0, [0]),
        ((NOW + 2 * HOUR_MS, NOW + 2 * HOUR_MS), 0, [0, 1]),
        # It is not unpacked for that, and the header does not say which record is the latest.
        ((NOW + 2 * HOUR_MS, NOW), 1, [1]),
    ],
)
def test_a_timestamp_too_far_ahead_is_refused_with_its_record(
    times: tuple[int, ...], codec: int, named: list[int]
) -> None:
    log = new_log()
    append(log, timestamp=NOW + HOUR_MS)
    records = [Record(0, one, b"k", b"v") for one in times]
    error = refusal(log, memoryview(build_batch(records, codec=codec)))

    assert isinstance(error, RefusedBatch)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert error.message == "One or more records have been rejected due to invalid timestamp"
    assert error.record_errors == [
        (
            index,
            f"Timestamp {NOW + 2 * HOUR_MS} of message with offset {index} is out of range. The"
            f" timestamp should be within [{NOW - 2**63 + 1}, {NOW + HOUR_MS}]",
        )
        for index in named
    ]


def test_a_timestamp_too_far_back_is_refused_by_the_header() -> None:
    log = new_log(LogConfig(message_timestamp_before_max_ms=1000))
    append(log, timestamp=NOW - 1000)
    append(log, timestamp=-1)

    assert refusal(log, batch(timestamp=NOW - 1001)).code is ErrorCode.INVALID_TIMESTAMP


def test_the_append_time_bit_is_cleared_where_the_producer_sets_the_time() -> None:
    log = new_log()
    records = changed(batch(), 21, TIMESTAMP_TYPE.to_bytes(2, "big"))
    result = log.append_as_leader(records, leader_epoch=0, now_ms=NOW + 5)
    header = read_header(records)

    assert result.log_append_time_ms == -1
    assert (header.is_log_append_time, header.max_timestamp) == (False, NOW)
    assert check_crc(records)


@pytest.mark.parametrize("stamp", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("timestamp", [NOW, -1])
def test_the_append_time_bit_is_the_brokers(stamp: str, timestamp: int) -> None:
    log = new_log(LogConfig(message_timestamp_type=stamp))
    records = build_batch([Record(0, timestamp, b"k", b"v")])
    sent = changed(memoryview(records), 21, TIMESTAMP_TYPE.to_bytes(2, "big"))
    if (stamp, timestamp) == ("CreateTime", NOW):
        log.append_as_leader(sent, leader_epoch=0, now_ms=NOW)
    else:
        assert refusal(log, sent).code is ErrorCode.INVALID_TIMESTAMP


def test_the_broker_sets_the_time_in_the_header() -> None:
    log = new_log(LogConfig(message_timestamp_type="LogAppendTime"))
    records = batch(2, timestamp=5)
    result = log.append_as_leader(records, leader_epoch=0, now_ms=NOW)
    header = read_header(records)

    assert result.log_append_time_ms == NOW
    assert (header.is_log_append_time, header.max_timestamp) == (True, NOW)
    assert header.base_timestamp == 5
    assert check_crc(records)
    assert [record.timestamp for record in iterate_records(records)] == [NOW, NOW]


def keyless(codec: int = 0) -> memoryview:
    records = [Record(0, NOW, b"k", b"v"), Record(1, NOW, None, b"v")]
    return memoryview(build_batch(records, codec=codec))


COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}))


def test_a_compacted_topic_wants_keys() -> None:
    log = new_log(COMPACTED)
    append(log, 2)
    error = refusal(log, keyless())

    assert isinstance(error, RefusedBatch)
    assert error.code is ErrorCode.INVALID_RECORD
    assert error.record_errors == [
        (1, "Compacted topic cannot accept message without key in topic partition orders-0")
    ]
    assert error.message is not None
    assert error.message.startswith(
        "One or more records have been rejected due to 1 record errors in total, "
    )


def test_what_needs_more_than_the_header_is_prepared_off_the_loop() -> None:
    plain, zipped, large = batch(), batch(codec=1), batch(size=20_000)

    def wants(config: LogConfig) -> list[bool]:
        log = new_log(config)
        return [log.needs_conversion(one) for one in (plain, zipped, large, plain[:9])]

    assert wants(LogConfig()) == [False, False, False, False]
    assert wants(LogConfig(compression_type="gzip")) == [True, False, True, False]
    assert wants(LogConfig(compression_type="uncompressed")) == [False, True, False, False]
    assert wants(COMPACTED) == [False, True, True, False]


def test_prepare_brings_a_batch_to_the_topics_codec() -> None:
    log = new_log(LogConfig(compression_type="zstd"))
    records = batch(3, producer_id=5, producer_epoch=1, base_sequence=7)
    prepared = log.prepare(records, now_ms=NOW)
    log.append_as_leader(memoryview(prepared), leader_epoch=0, now_ms=NOW)
    header = headers_of(read_all(log))[0]

    assert (header.codec, header.producer_id, header.base_sequence) == (4, 5, 7)
    assert [one[1:] for one in iterate_records(read_all(log))] == [
        one[1:] for one in iterate_records(records)
    ]


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("codec", [0, 2])
@pytest.mark.parametrize(
    "deltas", [(0, 7), (1, 0), (0, 0), (-5, 2**31 - 1), tuple(range(199, -1, -1))]
)
def test_prepare_numbers_the_records_that_it_packs_anew(
    deltas: tuple[int, ...], codec: int, alone: bool
) -> None:
    """As Kafka does: a consumer would see an offset of the next batch, or go back."""
    records = [
        Record(
            0, NOW - index, b"%d" % index, None if index % 2 else b"v" * 90, [("h", b"%d" % index)]
        )
        for index in range(len(deltas))
    ]
    block = b"".join(
        encode_record(delta, one.timestamp - NOW, key=one.key, value=one.value, headers=one.headers)
        for delta, one in zip(deltas, records, strict=True)
    )
    header = read_header(build_batch(records, codec=codec))
    sent = assemble(header, compress(codec, block) if codec else block)
    log = new_log(LogConfig(compression_type="gzip"))
    append(log)
    prepared = log.prepare(memoryview(sent), now_ms=NOW, alone=alone)
    log.append_as_leader(memoryview(prepared), leader_epoch=0, now_ms=NOW)
    stored = read_all(log)
    stored = stored[headers_of(stored)[0].size :]

    assert list(iterate_records(stored)) == [
        one._replace(offset=1 + index, headers=tuple(one.headers))
        for index, one in enumerate(records)
    ]


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(("deltas", "walks"), [(range(1000), 1), (range(999, -1, -1), 2)])
def test_prepare_gives_way_all_along_its_walks(
    deltas: Sequence[int], walks: int, alone: bool
) -> None:
    """One looks at the keys, and one more numbers records anew where that has to be."""
    records = [Record(0, NOW, b"k", b"v")] * len(deltas)
    block = b"".join(encode_record(delta, 0, key=b"k", value=b"v", headers=()) for delta in deltas)
    sent = memoryview(assemble(read_header(build_batch(records, codec=2)), compress(2, block)))
    ways: list[None] = []
    new_log(LogConfig(compression_type="gzip")).prepare(
        sent, now_ms=NOW, alone=alone, give_way=lambda: ways.append(None)
    )

    assert len(ways) == walks * -(-len(deltas) // PIECE_RECORDS)


def test_prepare_refuses_what_an_append_would() -> None:
    log = new_log(replace(COMPACTED, compression_type="gzip"))
    for records, start in ((keyless(codec=2), 0), (changed(batch(), 70, b"!", crc=False), -1)):
        with pytest.raises(RefusedBatch) as caught:
            log.prepare(records, now_ms=NOW)

        assert caught.value.log_start_offset == start


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_where_records_are_none_the_log_start_is_told(policy: str) -> None:
    """Whether an append looks at them or what is done before it."""
    config = LogConfig(cleanup_policy=frozenset({policy}))
    log = new_log(config if policy == "compact" else replace(config, compression_type="gzip"))
    append(log, 2)
    flush(log)
    log.delete_records(1)
    records = changed(batch(), HEADER_SIZE, b"\xff" * 9)
    with pytest.raises(RefusedBatch) as caught:
        log.prepare(records, now_ms=NOW)
    refused = [caught.value, *([refusal(log, records)] if policy == "compact" else [])]

    for error in refused:
        assert isinstance(error, RefusedBatch)
        assert (error.code, error.log_start_offset) == (ErrorCode.INVALID_RECORD, 1)


def test_a_full_disk_refuses_and_goes_on() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log)
    before = read_all(log)
    fault = disk.inject("pwrite", errno.ENOSPC, path=".log", times=2, written=30)

    for _ in range(2):
        assert refusal(log, batch()).code is ErrorCode.KAFKA_STORAGE_ERROR
    assert fault.times == 0
    assert disk.open(log.segments.active.log_path).size() == len(before)
    assert log.failed is None
    assert append(log) == 1
    assert read_all(log)[: len(before)] == before


@pytest.mark.parametrize("call", ["pwrite", "truncate"])
def test_a_broken_disk_ends_the_log(call: str) -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log)
    disk.inject("pwrite", errno.ENOSPC if call == "truncate" else errno.EIO, path=".log")
    if call == "truncate":
        disk.inject("truncate", errno.EIO, path=".log")

    with pytest.raises(OSError, match="Input/output error"):
        append(log)
    assert log.failed is not None
    assert refusal(log, batch()).code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.begin_flush() is None
    assert len(read_all(log, UPPER_LOG_END)) == log.size_bytes
    with pytest.raises(OSError, match="error"):
        log.close()


def test_a_full_disk_at_a_roll_leaves_the_segment_as_it_was() -> None:
    disk = new_disk()
    log = open_log(disk, LogConfig(segment_bytes=300, index_interval_bytes=1))
    append(log)
    append(log)
    for call, path in (("create", ".snapshot"), ("pwrite", ".index"), ("create", ".timeindex")):
        disk.inject(call, errno.ENOSPC, path=path)
        assert refusal(log, batch(size=100)).code is ErrorCode.KAFKA_STORAGE_ERROR
        assert len(log.segments) == 1
    append(log, size=100)

    assert [segment.base_offset for segment in log.segments] == [0, 2]
    log.close()
    assert len(headers_of(read_all(open_log(disk)))) == 3


def test_a_follower_takes_what_its_leader_numbered() -> None:
    leader, follower = new_log(), new_log()
    for count in (2, 1, 3):
        append(leader, count, epoch=4)
    data = read_all(leader)
    result = follower.append_as_follower(memoryview(data), now_ms=NOW)

    assert (result.base_offset, result.last_offset) == (0, 5)
    assert read_all(follower) == data
    assert (follower.latest_epoch, follower.log_end_offset) == (4, 6)
    for offset, position in ((0, 0), (1, 0), (2, 119), (3, 209), (5, 209)):
        found = follower.read(offset, max_bytes=1, upper=UPPER_LOG_END, at_least_one=True)
        assert found is not None
        assert found.position == position


def test_a_follower_refuses_what_does_not_follow() -> None:
    leader, follower = new_log(), new_log()
    for _ in range(2):
        append(leader)
    data = bytearray(read_all(leader))
    follower.append_as_follower(memoryview(data), now_ms=NOW)
    broken = bytearray(data)
    broken[70] ^= 1

    for records, log in ((data, follower), (data[:-1], new_log()), (broken, new_log())):
        with pytest.raises(KafkaError) as raised:
            log.append_as_follower(memoryview(records), now_ms=NOW)
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_gap_for_which_no_segment_has_room_is_refused(is_empty: bool) -> None:
    """An index has 31 bits for an offset."""
    log = open_log(new_disk())
    if not is_empty:
        append(log)
    end_offset = log.log_end_offset
    for _ in range(2):
        records = batch()
        stamp(records, end_offset + 2**31, 0)
        with pytest.raises(KafkaError) as raised:
            log.append_as_follower(records, now_ms=NOW)
        assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    stamp(records, end_offset + 2**31 - 1, 0)
    log.append_as_follower(records, now_ms=NOW)

    flush(log)
    assert log.log_end_offset == end_offset + 2**31


class _BadSector(SimDisk):
    """A disk that cannot read the beginning of a log."""

    def open(self, path: str, *, create: bool = False) -> SimFile:
        file = super().open(path, create=create)
        return _BadStart(self, path, file._node) if path.endswith(".log") else file


class _BadStart(SimFile):
    __slots__ = ()

    def pread(self, size: int, position: int) -> bytes:
        if position < 512:
            raise OSError(errno.EIO, "Input/output error", self.path)
        return super().pread(size, position)


def test_a_segment_whose_first_batch_cannot_be_read_is_appended_to() -> None:
    """By that its age is told, and a log dir is not to be given up for it."""
    disk = _BadSector()
    for path in ("/data", "/data/orders-0"):
        disk.make_dir(path)
    log = open_log(disk)
    for later in range(60):
        append(log, size=1000, timestamp=NOW + later)
    flush(log)
    log.close()
    log = open_log(disk, recovery_point=60, high_watermark=60)
    append(log, timestamp=NOW + 60)
    flush(log)

    assert log.failed is None
    assert log.log_end_offset == 61
    assert len(log.segments) == 1
