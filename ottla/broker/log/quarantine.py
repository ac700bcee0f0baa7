"""Ranges of sealed segments that hold no valid batch any more: what the scrub job has found.

A read of such a range is answered CORRUPT_MESSAGE; all around it is served, and nothing is cut.
The ranges are kept in one file in each log dir, so that a restart knows them, too:

    ottla-damaged-ranges    0
                            <count of rows>
                            <topic> <partition> <segment's base offset> <position> <size>
                            crc32c <8 hex digits, over all lines before>
The last line is a row that the count counts. The file is absent where nothing is damaged, Apache
Kafka passes it over, and each row is held against the log before it is believed: a range that can
be read again, or that is gone, is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.broker.log.checkpoints import CHECKPOINT_VERSION, MalformedFile, TopicPartition
from ottla.protocol.records.crc import crc32c

DAMAGED_RANGES_FILE = "ottla-damaged-ranges"

_CRC_ROW = "crc32c"
_FIELDS = 5


class DamagedRange(NamedTuple):
    """`size` bytes of a segment's .log file, from `position` on, that hold no valid batch."""

    base_offset: int
    position: int
    size: int


Ranges = dict[TopicPartition, list[DamagedRange]]


def format_ranges(ranges: Mapping[TopicPartition, Iterable[DamagedRange]]) -> bytes:
    rows = [
        f"{topic} {partition} {one.base_offset} {one.position} {one.size}"
        for (topic, partition), found in ranges.items()
        for one in found
    ]
    lines = [str(CHECKPOINT_VERSION), str(len(rows) + 1), *rows]
    body = ("\n".join(lines) + "\n").encode()
    return body + f"{_CRC_ROW} {crc32c(body):08x}\n".encode()


def parse_ranges(data: bytes) -> Ranges:
    """Raises MalformedFile for whatever `format_ranges` does not write."""
    start = data.rfind(b"\n", 0, -1) + 1
    body, last = data[:start], data[start:]
    if last != f"{_CRC_ROW} {crc32c(body):08x}\n".encode():
        raise MalformedFile("its last line is not the CRC of what stands before")
    version, count, *rows = body.decode().splitlines()
    if version != str(CHECKPOINT_VERSION) or count != str(len(rows) + 1):
        raise MalformedFile(f"version {version[:20]} with {count[:20]} rows")
    ranges: Ranges = {}
    for row in rows:
        fields = row.split(" ")
        if len(fields) != _FIELDS or not all(one.isdigit() for one in fields[1:]):
            raise MalformedFile(f"{row[:60]!r} names no range")
        partition, base_offset, position, size = map(int, fields[1:])
        found = ranges.setdefault((fields[0], partition), [])
        found.append(DamagedRange(base_offset, position, size))
    return ranges
