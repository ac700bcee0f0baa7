"""What a leader accepts: by the 61 bytes of the batch header, its length and its CRC.

The checks, in Kafka's order; the first that fails is the answer:

| what is wrong | answer |
|---|---|
| not exactly one batch of magic 2: none, cut off, two, magic 0 or 1 | INVALID_RECORD |
| a magic that nobody has assigned; a length that no batch has | CORRUPT_MESSAGE |
| base offset not 0 | INVALID_RECORD |
| larger than max.message.bytes | MESSAGE_TOO_LARGE |
| larger than segment.bytes | RECORD_LIST_TOO_LARGE |
| CRC | CORRUPT_MESSAGE |
| codec 5 to 7 | UNSUPPORTED_COMPRESSION_TYPE |
| count not positive, or not last offset delta + 1 | INVALID_RECORD |
| a control batch; a producer id without a sequence | INVALID_RECORD |
| the bit of LogAppendTime on a topic that has it, or without any time | INVALID_TIMESTAMP |
| timestamps, by the header, outside message.timestamp.*.max.ms | INVALID_TIMESTAMP |
| compacted topic: a record without a key | INVALID_RECORD |

Records are looked at where a rule needs them: the keys of a compacted topic, and the codec of a
topic that has its own. That is the work of `prepare`, which costs too much for the event loop
unless the batch is small and not compressed. Nothing here knows offsets or writes files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ottla.broker.log import old_messages
from ottla.config.types import LogConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE,
    BatchHeader,
)
from ottla.protocol.records.crc import Buffer, crc32c
from ottla.protocol.records.record import PIECE_RECORDS, RECORDS_SIZE_MAX, GiveWay

if TYPE_CHECKING:
    from mmap import mmap

    from ottla.protocol.records.record import Record

# The keys of a batch up to this size are looked at in place: some 100 records, half a millisecond.
IN_PLACE_BYTES_MAX: Final = 16 * 1024

LARGE_BYTES: Final = 8 * 1024 * 1024
"""Decompressed: eight times the largest batch that may come, by default. One that holds more is
converted while no other such is: four workers with 64 MiB each, and copies, had half a gigabyte."""

# How many records an answer names at most. Kafka names all; a compressed batch of some kilobytes
# may hold millions, and nobody mends them one by one.
RECORD_ERRORS_MAX: Final = 1000

CODEC_MAX: Final = 4
CODECS: Final = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
PRODUCER_CODEC: Final = "producer"

# Kafka's smallest message, of magic 0, without the offset and the length in front of it.
_RECORD_SIZE_MIN: Final = 14
_ERRORS_SHOWN_MAX: Final = 3

NOT_THE_PRODUCERS: Final = "Producer should not set timestamp type to LogAppendTime."

BatchFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]

_unpack_header: Final = HEADER.unpack_from


class RefusedBatch(KafkaError):
    """A batch that is not appended. `log_start_offset` is -1 if it never reached the log.

    `record_errors` names the records, by their place in the batch, that are to blame.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str | None = None,
        *,
        reached_log: bool = True,
        record_errors: Sequence[tuple[int, str]] = (),
    ) -> None:
        super().__init__(code, message)
        self.reached_log = reached_log
        self.record_errors = record_errors
        self.log_start_offset = -1


class LargeBatch(Exception):
    """A batch that is to be prepared alone."""


class Rules:
    """What a topic's configuration asks of a batch."""

    __slots__ = (
        "codec",
        "compacted",
        "compression_level",
        "log_append_time",
        "max_message_bytes",
        "segment_bytes",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
        "topic_partition",
    )

    def __init__(self, config: LogConfig, topic_partition: str) -> None:
        self.topic_partition = topic_partition
        self.max_message_bytes = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.log_append_time = config.message_timestamp_type == "LogAppendTime"
        self.timestamp_before_max_ms = config.message_timestamp_before_max_ms
        self.timestamp_after_max_ms = config.message_timestamp_after_max_ms
        self.compacted = config.compacted
        self.codec = CODECS.get(config.compression_type)
        self.compression_level = config.compression_level

    def check(self, records: memoryview, now_ms: int) -> BatchFields:
        """The header of a client's batch that is in order; raises RefusedBatch."""
        size = len(records)
        if size < HEADER_SIZE:
            raise _no_single_batch(records)
        fields: BatchFields = _unpack_header(records)
        (
            base_offset,
            length,
            _epoch,
            magic,
            crc,
            attributes,
            last_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            _producer_epoch,
            base_sequence,
            count,
        ) = fields
        if length + LOG_OVERHEAD != size or magic != MAGIC:
            raise _no_single_batch(records)
        if base_offset:
            raise RefusedBatch(ErrorCode.INVALID_RECORD)
        if size > self.max_message_bytes:
            raise RefusedBatch(ErrorCode.MESSAGE_TOO_LARGE, reached_log=False)
        if size > self.segment_bytes:
            raise RefusedBatch(ErrorCode.RECORD_LIST_TOO_LARGE, reached_log=False)
        if crc32c(records[CRC_START:]) != crc:
            raise RefusedBatch(ErrorCode.CORRUPT_MESSAGE, reached_log=False)
        if attributes & CODEC_MASK > CODEC_MAX:
            raise RefusedBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if (
            count != last_delta + 1
            or count <= 0
            or attributes & CONTROL
            or (base_sequence < 0 and producer_id >= 0)
        ):
            raise RefusedBatch(ErrorCode.INVALID_RECORD)
        if attributes & TIMESTAMP_TYPE and (self.log_append_time or max_timestamp == NO_TIMESTAMP):
            raise _bad_timestamps([(0, NOT_THE_PRODUCERS)])
        if not self.log_append_time:
            if max_timestamp - now_ms > self.timestamp_after_max_ms:
                raise self._out_of_range(records, max_timestamp, last_delta, now_ms)
            is_old = now_ms - base_timestamp > self.timestamp_before_max_ms
            if is_old and base_timestamp != NO_TIMESTAMP:
                raise self._out_of_range(records, base_timestamp, 0, now_ms)
        if self.compacted and not attributes & CODEC_MASK and size <= IN_PLACE_BYTES_MAX:
            block = bytes(records[HEADER_SIZE:])
            self._check_keys(BatchHeader(*fields), block, len(block))
        return fields

    def is_too_large(self, size: int) -> bool:
        """Whether `check` refuses every batch of that size, before it looks at the records."""
        return size > self.max_message_bytes or size > self.segment_bytes

    def needs_conversion(self, records: memoryview) -> bool:
        """Whether a batch has to go through `prepare` before it is appended.

        Of a batch that is none the answer is False: `check` says what is wrong with it.
        """
        if self.codec is None and not self.compacted:
            return False
        size = len(records)
        if size < HEADER_SIZE:
            return False
        codec = records[CRC_START + 1] & CODEC_MASK
        if self.codec is not None and codec != self.codec:
            return True
        return self.compacted and (codec != 0 or size > IN_PLACE_BYTES_MAX)

    def prepare(
        self,
        records: memoryview,
        now_ms: int,
        *,
        alone: bool = False,
        give_way: GiveWay | None = None,
    ) -> bytearray:
        """The batch as it is to be appended: its keys checked, its records in the topic's codec.

        Reads every record, so what only that can show is refused here. Thread-safe, and slow.
        LargeBatch for one of which no more than one is to be in memory, unless it is said to be
        `alone`. `give_way` is called every few records.
        """
        from ottla.protocol.records.batch import read_header
        from ottla.protocol.records.record import payload_of

        self.check(records, now_ms)
        header = read_header(records)
        if alone and header.codec:
            from ottla.protocol.records.compression import decompress_into_map

            packed = records[HEADER_SIZE:]
            plain, size = decompress_into_map(header.codec, packed, limit=RECORDS_SIZE_MAX)
            with plain:
                is_numbered = self._check_keys(header, plain, size, give_way)
                with memoryview(plain) as whole, whole[:size] as block:
                    return self._packed(records, header, block, give_way, is_numbered=is_numbered)
        try:
            payload = payload_of(records, header, limit=LARGE_BYTES)
        except KafkaError as error:
            if error.code is ErrorCode.MESSAGE_TOO_LARGE:
                raise LargeBatch from None
            raise
        is_numbered = self._check_keys(header, payload, len(payload), give_way)
        return self._packed(records, header, payload, give_way, is_numbered=is_numbered)

    def _packed(
        self,
        records: memoryview,
        header: BatchHeader,
        block: Buffer,
        give_way: GiveWay | None,
        *,
        is_numbered: bool,
    ) -> bytearray:
        from ottla.protocol.records.recompress import recompress, renumbered

        if self.codec is None or header.codec == self.codec:
            return bytearray(records)
        if not is_numbered:
            block = renumbered(block, give_way=give_way)
        return recompress(records, self.codec, self.compression_level, block=block)

    def _check_keys(
        self,
        header: BatchHeader,
        block: bytes | mmap,
        size: int,
        give_way: GiveWay | None = None,
    ) -> bool:
        """Reads all records; refuses those of a compacted topic that have no key. Whether their
        offsets are 0, 1, 2 and so on."""
        text = (
            "Compacted topic cannot accept message without key in topic partition"
            f" {self.topic_partition}"
        )
        errors: list[tuple[int, str]] = []
        count = 0
        is_numbered = True
        for index, record in enumerate(_records_of(header, block, size)):
            if give_way is not None and not index % PIECE_RECORDS:
                give_way()
            if record.offset != index:
                is_numbered = False
            if record.key is None and self.compacted:
                count += 1
                if count <= RECORD_ERRORS_MAX:
                    errors.append((index, text))
        if errors:
            shown = ", ".join(
                f"RecordError(batchIndex={index}, message='{text}')"
                for index, text in errors[:_ERRORS_SHOWN_MAX]
            )
            raise RefusedBatch(
                ErrorCode.INVALID_RECORD,
                f"One or more records have been rejected due to {count} record errors in"
                f" total, and only showing the first three errors at most: [{shown}]",
                record_errors=errors,
            )
        return is_numbered

    def _out_of_range(
        self, records: memoryview, timestamp: int, index: int, now_ms: int
    ) -> RefusedBatch:
        """Names the records that are to blame where they can be looked at in place; else one, by
        the header, which does not say which record has the latest time."""
        low = now_ms - self.timestamp_before_max_ms
        high = now_ms + self.timestamp_after_max_ms
        found = [
            (at, one)
            for at, one in _timestamps(records)
            if one != NO_TIMESTAMP and not low <= one <= high
        ]
        return _bad_timestamps(
            [
                (
                    at,
                    f"Timestamp {one} of message with offset {at} is out of range."
                    f" The timestamp should be within [{low}, {high}]",
                )
                for at, one in (found or [(index, timestamp)])[:RECORD_ERRORS_MAX]
            ]
        )


def _timestamps(records: memoryview) -> list[tuple[int, int]]:
    """(place in the batch, time) of each record; nothing of one that would have to be unpacked, is
    large, or cannot be read."""
    from ottla.protocol.records.record import iterate_records

    if records[CRC_START + 1] & CODEC_MASK or len(records) > IN_PLACE_BYTES_MAX:
        return []
    try:
        return [(index, one.timestamp) for index, one in enumerate(iterate_records(records))]
    except KafkaError:
        return []


def _bad_timestamps(errors: list[tuple[int, str]]) -> RefusedBatch:
    return RefusedBatch(
        ErrorCode.INVALID_TIMESTAMP,
        "One or more records have been rejected due to invalid timestamp",
        record_errors=errors,
    )


def _records_of(header: BatchHeader, block: bytes | mmap, size: int) -> Iterator[Record]:
    """The records of a client's batch; raises RefusedBatch where they are none."""
    from ottla.protocol.records.record import iterate_block

    try:
        yield from iterate_block(header, block, size)
    except KafkaError as error:
        raise RefusedBatch(error.code, error.message) from None


def check_internal(records: memoryview) -> BatchFields:
    """The header of a batch that the broker made itself: one whole batch with its CRC.

    Control batches and transaction markers pass here; sizes, counts and times are the maker's.
    """
    if len(records) < HEADER_SIZE:
        raise _no_single_batch(records)
    fields: BatchFields = _unpack_header(records)
    if fields[1] + LOG_OVERHEAD != len(records) or fields[3] != MAGIC:
        raise _no_single_batch(records)
    if crc32c(records[CRC_START:]) != fields[4]:
        raise RefusedBatch(ErrorCode.CORRUPT_MESSAGE, reached_log=False)
    return fields


def check_batches(records: memoryview, expected: int) -> list[tuple[int, BatchHeader]]:
    """The (position, header) of each batch that a leader sent: whole ones, one behind the other.

    Messages of magic 0 and 1 count as batches. Raises CORRUPT_MESSAGE unless each has its CRC and
    begins at or above the end of the one before, the first at or above `expected`.
    """
    batches = list(old_messages.iterate_chain(records))
    end = 0
    for position, header in batches:
        if header.base_offset < expected or header.last_offset_delta < 0:
            raise _corrupt("Record batches are out of order")
        end = position + header.size
        if header.magic == MAGIC:
            is_sound = crc32c(records[position + CRC_START : end]) == header.crc
        else:
            is_sound = old_messages.is_sound(records[position:end], header)
        if not is_sound:
            raise _corrupt("A record batch has a wrong CRC")
        expected = header.last_offset + 1
    if not batches or end != len(records):
        raise _corrupt("A record batch is not whole")
    return batches


def _no_single_batch(records: memoryview) -> RefusedBatch:
    """What Kafka says of bytes that are not one batch of magic 2."""
    size = len(records)
    if size >= LOG_OVERHEAD:
        length = int.from_bytes(records[8:LOG_OVERHEAD], "big", signed=True)
        if length < _RECORD_SIZE_MIN:
            return _corrupt(
                f"Record size {length} is less than the minimum record overhead"
                f" ({_RECORD_SIZE_MIN})"
            )
        if size > MAGIC_POSITION:
            magic = int.from_bytes(records[MAGIC_POSITION : MAGIC_POSITION + 1], signed=True)
            if not 0 <= magic <= MAGIC:
                return _corrupt(f"Invalid magic found in record: {magic}")
            if length + LOG_OVERHEAD <= size:
                return _of_one_batch(magic, length)
    return RefusedBatch(
        ErrorCode.INVALID_RECORD,
        "Produce requests must have at least one record batch per partition",
        reached_log=False,
    )


def _of_one_batch(magic: int, length: int) -> RefusedBatch:
    """A whole first batch is there, but it is not the only thing, or not one of ours."""
    if magic != MAGIC:
        allowed = "record batches with magic version 2"
    elif length + LOG_OVERHEAD < HEADER_SIZE:
        return RefusedBatch(ErrorCode.CORRUPT_MESSAGE, reached_log=False)
    else:
        allowed = "exactly one record batch per partition"
    return RefusedBatch(
        ErrorCode.INVALID_RECORD,
        f"Produce requests are only allowed to contain {allowed}",
        reached_log=False,
    )


def _corrupt(message: str) -> RefusedBatch:
    return RefusedBatch(ErrorCode.CORRUPT_MESSAGE, message, reached_log=False)
