"""A batch as columns: where each record's parts lie in the decompressed block, without copies.

For work that goes over many records (cleaner, consumer, pipeline) and for the checks that topics
with rules about records need. The walk is one piece of source; numba compiles it where it is
installed and asked for. Produce and fetch of ordinary topics never come here.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import BatchHeader, read_header
from ottla.protocol.records.crc import Buffer
from ottla.protocol.records.record import (
    RECORD_SIZE_MIN,
    RECORDS_SIZE_MAX,
    Headers,
    payload_of,
    read_headers,
)

_COLUMN_COUNT = 8
_INT64_MIN = -(2**63)
_INT64_MAX = 2**63 - 1


@dataclass(slots=True)
class Columns:
    """One batch's records; every column has one int64 a record. Starts are positions in `block`.

    A length of -1 is a null key or value. A record's headers begin at `header_starts` and end
    with the record.
    """

    header: BatchHeader
    block: bytes
    offsets: array[int]
    timestamps: array[int]
    key_starts: array[int]
    key_lengths: array[int]
    value_starts: array[int]
    value_lengths: array[int]
    header_starts: array[int]
    ends: array[int]

    def headers(self, index: int) -> Headers:
        """The headers of one record; raises INVALID_RECORD, for the walk passes over them."""
        end = self.ends[index]
        headers, position = read_headers(self.block, self.header_starts[index], end)
        if position != end:
            raise _invalid("A record has bytes behind its headers")
        return headers


@dataclass(slots=True)
class Inspection:
    """What only a walk over a batch's records can show, for the topics that must know it.

    `consecutive`: the offset deltas are 0, 1, 2 and so on. `null_keys` are indexes of records.
    `block` is the decompressed payload, for a conversion that follows.
    """

    header: BatchHeader
    block: bytes
    timestamps: array[int]
    null_keys: list[int]
    consecutive: bool
    max_timestamp: int
    index_of_max_timestamp: int


def read_columns(view: Buffer, *, limit: int = RECORDS_SIZE_MAX, compiled: bool = False) -> Columns:
    """The columns of one whole batch; decompressed to at most `limit` bytes.

    `compiled` asks for the walk by numba, which must be installed then. The CRC is not checked.
    Raises as `iterate_records` does, except that headers are walked only when they are asked for.
    """
    header = read_header(view)
    block = payload_of(view, header, limit=limit)
    count = header.record_count
    # Every record has at least its smallest size, so what is there bounds what is made.
    if count < 0 or count * RECORD_SIZE_MIN > len(block):
        raise _invalid(f"A batch counts {count} records in {len(block)} bytes")
    columns = [array("q", bytes(8 * count)) for _ in range(_COLUMN_COUNT)]
    end = _compiled_walk()(block, columns) if compiled else _walk(block, *columns)
    if end < 0:
        raise _invalid("A record does not agree with its own lengths")
    if end != len(block):
        raise _invalid("A batch has bytes behind the records that it counts")
    offset_deltas, timestamp_deltas, *spans = columns
    if header.is_log_append_time:
        timestamps = array("q", [header.max_timestamp]) * count
    else:
        timestamps = _shifted(timestamp_deltas, header.base_timestamp)
    return Columns(header, block, _shifted(offset_deltas, header.base_offset), timestamps, *spans)


def inspect_records(view: Buffer, *, limit: int = RECORDS_SIZE_MAX) -> Inspection:
    """Walks the records of one whole batch; raises as `read_columns`, and on headers too.

    A batch without records, which no producer may send, is INVALID_RECORD.
    """
    columns = read_columns(view, limit=limit)
    if not columns.timestamps:
        raise _invalid("A batch has no records")
    for index in range(len(columns.offsets)):
        if columns.ends[index] - columns.header_starts[index] != 1:
            columns.headers(index)
        elif columns.block[columns.header_starts[index]] != 0:
            raise _invalid("A record claims headers that it does not have")
    base = columns.header.base_offset
    max_timestamp = max(columns.timestamps)
    return Inspection(
        columns.header,
        columns.block,
        columns.timestamps,
        [index for index, length in enumerate(columns.key_lengths) if length < 0],
        columns.offsets == array("q", range(base, base + len(columns.offsets))),
        max_timestamp,
        columns.timestamps.index(max_timestamp),
    )


def _shifted(deltas: array[int], base: int) -> array[int]:
    if deltas and (base + min(deltas) < _INT64_MIN or base + max(deltas) > _INT64_MAX):
        raise _invalid("A record's offset or timestamp does not fit 64 bits")
    return array("q", [base + delta for delta in deltas])


def _build_walk(jit: Callable[[Any], Any]) -> Callable[..., int]:
    """The walk, compiled by `jit`: fills the columns, returns where it ended or -1."""

    @jit
    def read(block: bytes, position: int, end: int, bits: int) -> tuple[int, int]:
        value = 0
        shift = 0
        while position < end and shift < bits:
            byte = int(block[position])
            position += 1
            if bits - shift < 7 and byte >> (bits - shift) != 0:
                return 0, -1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1), position
            shift += 7
        return 0, -1

    @jit
    def skip(block: bytes, position: int, end: int) -> tuple[int, int, int]:
        length, start = read(block, position, end, 32)
        if start < 0 or length < -1 or length > end - start:
            return 0, 0, -1
        return length, start, start + max(length, 0)

    @jit
    def walk(
        block: bytes,
        offset_deltas: array[int],
        timestamp_deltas: array[int],
        key_starts: array[int],
        key_lengths: array[int],
        value_starts: array[int],
        value_lengths: array[int],
        header_starts: array[int],
        ends: array[int],
    ) -> int:
        position = 0
        for index in range(len(ends)):
            length, position = read(block, position, len(block), 32)
            if position < 0 or length < 6 or length > len(block) - position:
                return -1
            end = position + length
            timestamp_deltas[index], position = read(block, position + 1, end, 64)
            if position < 0:
                return -1
            offset_deltas[index], position = read(block, position, end, 32)
            if position < 0:
                return -1
            key_lengths[index], key_starts[index], position = skip(block, position, end)
            if position < 0:
                return -1
            value_lengths[index], value_starts[index], position = skip(block, position, end)
            if position < 0 or position >= end:
                return -1
            header_starts[index] = position
            ends[index] = end
            position = end
        return position

    compiled: Callable[..., int] = walk
    return compiled


_walk = _build_walk(lambda function: function)


@cache
def _compiled_walk() -> Callable[[bytes, list[array[int]]], int]:
    import numba
    import numpy

    walk = _build_walk(numba.njit(nogil=True))

    def run(block: bytes, columns: list[array[int]]) -> int:
        views = [numpy.frombuffer(column, dtype=numpy.int64) for column in columns]
        return walk(numpy.frombuffer(block, dtype=numpy.uint8), *views)

    return run


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, reason)
