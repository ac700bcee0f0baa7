"""The first record of a batch with at least a timestamp, and nothing else of its records.

A look-up by time goes through half a batch on the average, thousands of records. Of each it reads
the length and the timestamp: a fifth of what decoding them costs.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import HEADER_SIZE, TIMESTAMP_TYPE, read_header
from ottla.protocol.records.record import RECORD_SIZE_MIN, payload_of
from ottla.protocol.records.varint import read_varint, read_varlong


def first_with_time(
    batch: bytes | memoryview, timestamp: int, least_offset: int
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record with at least both; None if there is none.

    `batch` is one whole batch of magic 2; its CRC is not checked. Raises as `iterate_records`, of
    the records up to the one that is found.
    """
    header = read_header(batch)
    data, position = batch, HEADER_SIZE
    if header.codec != 0:
        data, position = payload_of(batch, header), 0
    size = len(data)
    least_delta = timestamp - header.base_timestamp
    is_append_time = header.attributes & TIMESTAMP_TYPE != 0
    if is_append_time and header.max_timestamp < timestamp:
        return None
    last = size - 2  # the last position at which two bytes may be read
    for _ in range(header.record_count):
        # One or two bytes are what nearly every length and delta takes.
        if position < last and (raw := data[position]) < 0x80:
            length, start = (raw >> 1) ^ -(raw & 1), position + 1
        elif position < last and (high := data[position + 1]) < 0x80:
            raw = (raw & 0x7F) | high << 7
            length, start = (raw >> 1) ^ -(raw & 1), position + 2
        else:
            length, start = read_varint(data, position)
        position = start + length
        if length < RECORD_SIZE_MIN - 1 or position > size:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, f"A record claims a length of {length} bytes"
            )
        raw = data[start + 1]
        if raw < 0x80:
            delta, start = (raw >> 1) ^ -(raw & 1), start + 2
        elif (high := data[start + 2]) < 0x80:
            raw = (raw & 0x7F) | high << 7
            delta, start = (raw >> 1) ^ -(raw & 1), start + 3
        else:
            delta, start = read_varlong(data, start + 1)
        if delta >= least_delta or is_append_time:
            offset_delta, _ = read_varint(data, start)
            if header.base_offset + offset_delta >= least_offset:
                found = header.max_timestamp if is_append_time else header.base_timestamp + delta
                return header.base_offset + offset_delta, found
    return None
