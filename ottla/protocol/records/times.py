"""The first record of a batch with at least a timestamp, and nothing else of its records.

A look-up by time goes through half a batch on the average, hundreds or thousands of records. Of
each it reads the length and the timestamp, and of the batch no more than a piece at a time: a
fifth of what decoding half of it and reading all of it cost.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import HEADER_SIZE, TIMESTAMP_TYPE, BatchHeader
from ottla.protocol.records.record import RECORD_SIZE_MIN, RECORDS_SIZE_MAX
from ottla.protocol.records.varint import read_varint, read_varlong

# What is read of a batch at once: some dozens of records of a kilobyte.
PIECE_BYTES = 64 * 1024
# A length, an attribute byte, a timestamp and an offset: the longest that one record's front takes.
_FRONT_BYTES_MAX = 5 + 1 + 10 + 5
# The least that a length says, as its varint stands for it.
_RAW_LENGTH_MIN = 2 * (RECORD_SIZE_MIN - 1)

Read = Callable[[int, int], bytes]


def first_with_time(
    header: BatchHeader,
    read: Read,
    timestamp: int,
    least_offset: int,
    *,
    give_way: Callable[[], None] | None = None,
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record with at least both; None if there is none.

    `read(position, size)` gives so many bytes of the batch, of magic 2, whose header is given, or
    fewer where it ends; the CRC is not checked. `give_way` is called before each piece: in a worker
    thread it lets others have the interpreter. Raises as `iterate_records`, of the records up to
    the one that is found.
    """
    if header.attributes & TIMESTAMP_TYPE and header.max_timestamp < timestamp:
        return None

    def read_next(position: int, size: int) -> bytes:
        if give_way is not None:
            give_way()
        return read(position, size)

    if header.codec == 0:
        return _search(header, read_next, HEADER_SIZE, header.size, timestamp, least_offset)
    # The codecs' library is loaded only by who decompresses.
    from ottla.protocol.records.compression import decompress_into_map

    batch = memoryview(read(0, header.size))
    plain, end = decompress_into_map(header.codec, batch[HEADER_SIZE:], limit=RECORDS_SIZE_MAX)

    def read_plain(position: int, size: int) -> bytes:
        if give_way is not None:
            give_way()
        return plain[position : position + size]

    with plain:
        return _search(header, read_plain, 0, end, timestamp, least_offset)


def _search(
    header: BatchHeader, read: Read, position: int, end: int, timestamp: int, least_offset: int
) -> tuple[int, int] | None:
    is_append_time = header.attributes & TIMESTAMP_TYPE != 0
    least_delta = timestamp - header.base_timestamp
    # A zig-zag below this stands for less than the least delta: nearly all are told by it.
    least_raw = 0 if is_append_time else max(2 * least_delta, 0)
    piece, at = b"", 0
    front_limit, left = -1, end - position
    for _ in range(header.record_count):
        if at > front_limit:
            position, left = position + at, left - at
            piece, at = read(position, min(PIECE_BYTES, left)), 0
            front_limit = len(piece) - _FRONT_BYTES_MAX
        try:
            # One or two bytes are what nearly every length and timestamp takes.
            raw, start = piece[at], at + 1
            if raw >= 0x80:
                high, start = piece[start], start + 1
                raw = raw & 0x7F | high << 7
                if high >= 0x80:
                    length, start = read_varint(piece, at)
                    raw = 2 * length
            at = start + (raw >> 1)
            if raw & 1 or raw < _RAW_LENGTH_MIN or at > left:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD, f"A record claims a length of {raw >> 1} bytes"
                )
            start += 1  # behind the attributes
            raw = piece[start]
            if raw >= 0x80:
                high = piece[start + 1]
                raw = raw & 0x7F | high << 7
                if high >= 0x80:
                    delta, _ = read_varlong(piece, start)
                    raw = 2 * delta if delta >= 0 else -2 * delta - 1
        except IndexError:
            raise KafkaError(ErrorCode.INVALID_RECORD, "A record runs past its end") from None
        if raw < least_raw:
            continue
        delta, start = read_varlong(piece, start)
        if is_append_time or delta >= least_delta:
            offset = header.base_offset + read_varint(piece, start)[0]
            if offset >= least_offset:
                found = header.max_timestamp if is_append_time else header.base_timestamp + delta
                return offset, found
    return None
