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

from ottla.broker.log.checkpoints import (
    CHECKPOINT_VERSION,
    MalformedFile,
    TopicPartition,
    read_whole,
    write_atomically,
)
from ottla.broker.log.segment import Segment
from ottla.broker.ports import Disk, Events
from ottla.protocol.errors import ErrorCode, KafkaError
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


class Quarantine:
    """The damaged ranges of one log. Empty, and then without cost, in nearly every one."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: dict[int, list[DamagedRange]] = {}

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __repr__(self) -> str:
        return f"<Quarantine {self.ranges}>"

    @property
    def ranges(self) -> list[DamagedRange]:
        return [one for _, found in sorted(self._ranges.items()) for one in found]

    @property
    def damaged_bytes(self) -> int:
        return sum(one.size for one in self.ranges)

    def replace(self, base_offset: int, ranges: list[DamagedRange]) -> bool:
        """What a segment has now, in order of positions; whether that is something else."""
        before = self._ranges.pop(base_offset, [])
        if ranges:
            self._ranges[base_offset] = sorted(ranges)
        return sorted(ranges) != before

    def keep(self, base_offsets: Iterable[int]) -> None:
        """Forgets the segments that are gone."""
        kept = set(base_offsets)
        for base_offset in [one for one in self._ranges if one not in kept]:
            del self._ranges[base_offset]

    def locate(self, segment: Segment, offset: int) -> tuple[int, int]:
        """As the segment's own `locate`, but over holes in the chain of its headers."""
        damages = self._ranges.get(segment.base_offset)
        if damages is None:
            return segment.locate(offset)
        try:
            position, size = segment.locate(offset)
        except KafkaError:
            found = _locate_behind(segment, offset, damages)
            if found is None:
                raise
            return found
        # An entry that names the batch itself has its last offset: the walk began before it.
        start = segment.position_before(max(position - 1, 0))
        if not any(
            start <= one.position + one.size and one.position <= position for one in damages
        ):
            return position, size
        # The walk led through damage, which may say anything of lengths and offsets.
        found = _locate_behind(segment, offset, damages)
        if found is None:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"{segment.log_path}: offset {offset} is damaged"
            )
        return found

    def bound(self, segment: Segment, position: int, size: int) -> int:
        """How much of a slice lies before the next damaged range. Raises CORRUPT_MESSAGE in one."""
        for damage in self._ranges.get(segment.base_offset, ()):
            if damage.position <= position < damage.position + damage.size:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{segment.log_path}: {damage.size} bytes at {damage.position} are damaged",
                )
            if position < damage.position:
                return min(size, damage.position - position)
        return size


def _locate_behind(
    segment: Segment, offset: int, damages: list[DamagedRange]
) -> tuple[int, int] | None:
    """As `Segment.locate`, by the headers behind the last range that lies before the offset; None
    where it lies in a range."""
    end = segment.size
    for damage in reversed(damages):
        behind = damage.position + damage.size
        if behind < end and segment.header_at(behind).base_offset <= offset:
            for position, header in segment.headers(behind, end=end):
                if header.last_offset >= offset:
                    return position, header.size
            return (end, 0) if end == segment.size else None
        end = damage.position
    return None


def read_ranges(disk: Disk, log_dir: str, events: Events) -> Ranges:
    """What a log dir's file says; empty if it is missing, or malformed (then an event says so)."""
    path = f"{log_dir}/{DAMAGED_RANGES_FILE}"
    data = read_whole(disk, path)
    if data is None:
        return {}
    try:
        return parse_ranges(data)
    except (MalformedFile, UnicodeDecodeError) as error:
        events.warning("checkpoint_malformed", path=path, reason=str(error), treated_as="absent")
        return {}


def write_ranges(disk: Disk, log_dir: str, ranges: Ranges) -> None:
    """Replaces the file; removes it where nothing is damaged. Durable when it returns."""
    path = f"{log_dir}/{DAMAGED_RANGES_FILE}"
    if ranges:
        write_atomically(disk, path, format_ranges(ranges))
    elif disk.exists(path):
        disk.remove(path)
        disk.sync_dir(log_dir)
