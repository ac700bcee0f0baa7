"""Places inside a segment from which a recovery may begin.

A start after a crash reads the segment that holds the recovery point. That may be a gigabyte of
which all but the end has long been synced; so from time to time a log notes what the scan of the
synced part would find, in one file beside the segments, and the next scan begins behind it.

The file is a hint. It says nothing that is not checked against the other files, or by its own CRC,
so no order of syncs has to be kept and none is waited for: what a crash left of it is either true
or is found out, and then the segment is scanned as a whole. It is believed if
    its CRC is right,
    its offset is at or below the checkpointed recovery point: the batches before it were synced,
    the batch before its position has the header that the file says, so that the segment is still
    the one that it tells of, and
    the indexes of the segment begin with entries of the CRCs that the file says.
What stands in front of its position is then as it was when the file was written, for nothing but a
truncation changes a segment, and what follows one has other headers.

recovery-waypoint (Kafka leaves such a file alone):
    bytes    field
    0-1      int16 version (0)
    2-5      uint32 CRC-32C of all that follows
    6-13     int64 base offset of the segment
    14-21    int64 offset at which the scan begins
    22-29    int64 position of it
    30-37    int64 position of the batch before it
    38-98    first 61 bytes of that batch
    99-106   int64 greatest timestamp of the segment so far
    107-114  int64 last offset of the first batch that has it
    115-138  int32 bytes and uint32 CRC-32C of the entries of the offset index, of the time index
             and of the transaction index
    139-     the producers at the offset, as in N.snapshot

Writing one: `Log.begin_waypoint` on the loop, `WaypointTicket.write` in a worker, under a temporary
name, `Waypoints.finish` on the loop; and once a checkpoint says that its offset is synced,
`Waypoints.name`. Until then the one before keeps the name. `waypoint_keeper.py` says when.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from ottla.broker.log.checkpoints import TEMPORARY_SUFFIX, MalformedFile, read_whole
from ottla.broker.log.index import IndexCorrupt
from ottla.broker.log.partition_dir import PartitionDir
from ottla.broker.log.producer_state import ProducerState, SnapshotCorrupt
from ottla.broker.log.segment import Segment
from ottla.broker.ports import File
from ottla.protocol.records.batch import HEADER_SIZE
from ottla.protocol.records.crc import crc32c

WAYPOINT_FILE = "recovery-waypoint"
VERSION = 0

_PREFIX = Struct(">hI")
_BODY = Struct(f">qqqq{HEADER_SIZE}sqqiIiIiI")
_CRC_START = _PREFIX.size


class Waypoint(NamedTuple):
    """What a file says; see the module."""

    base_offset: int
    offset: int
    position: int
    last_position: int
    last_header: bytes
    max_timestamp: int
    max_timestamp_offset: int
    index_bytes: int
    index_crc: int
    time_index_bytes: int
    time_index_crc: int
    transactions_bytes: int
    transactions_crc: int


@dataclass(slots=True, eq=False)
class WaypointTicket:
    """A waypoint under way."""

    segment: Segment
    offset: int
    position: int
    last_position: int
    max_timestamp: int
    max_timestamp_offset: int
    last_header: bytes
    # Opened for this ticket alone: the index files with the bytes of their entries, the new file.
    indexes: list[tuple[File, int]]
    target: File
    producers: bytes
    written: bool = False
    # The log was cut meanwhile.
    void: bool = False

    def write(self) -> None:
        """Blocks for the disk; touches the ticket's own files only, and closes them.

        An OSError leaves it unwritten. So does an index that cannot be read, which is no failed
        write: the next start scans more.
        """
        try:
            try:
                sums = [(size, crc32c(file.pread(size, 0))) for file, size in self.indexes]
            except OSError:
                return
            self._write(sums)
        finally:
            for file, _ in self.indexes:
                file.close()
            self.target.close()

    def _write(self, sums: list[tuple[int, int]]) -> None:
        waypoint = Waypoint(
            self.segment.base_offset,
            self.offset,
            self.position,
            self.last_position,
            self.last_header,
            self.max_timestamp,
            self.max_timestamp_offset,
            *sums[0],
            *sums[1],
            *sums[2],
        )
        body = _BODY.pack(*waypoint) + self.producers
        self.target.truncate(0)
        self.target.pwrite(_PREFIX.pack(VERSION, crc32c(body)) + body, 0)
        self.written = True


class Waypoints:
    """The waypoints of one log: one that has its name, and one that is to take its place."""

    def __init__(self, directory: PartitionDir) -> None:
        self._directory = directory
        self._path = f"{directory.path}/{WAYPOINT_FILE}"
        # The last one, by the base offset of its segment and its position there.
        self._segment_base = -1
        self._position = 0
        self._coming: WaypointTicket | None = None
        # The offset of one that is written and has no name.
        self._nameless: int | None = None

    def __repr__(self) -> str:
        return f"<Waypoints {self._directory.path} {self._segment_base}+{self._position}>"

    def unmarked_bytes(self, active: Segment) -> int:
        """What lies in a segment behind the last waypoint; 0 while another is under way."""
        if self._coming is not None or self._nameless is not None:
            return 0
        return active.size - (self._position if self._segment_base == active.base_offset else 0)

    def begin(
        self, segment: Segment, end_offset: int, producers: ProducerState
    ) -> WaypointTicket | None:
        """A ticket for the end of a segment; None where nothing can be told. Raises OSError."""
        assert self._coming is None, self
        last_position = segment.last_position
        if last_position is None:
            return None
        disk = self._directory.disk
        opened: list[File] = []
        try:
            indexes = segment.write_entries(opened)
            last_header = segment.open().pread(HEADER_SIZE, last_position)
            opened.append(disk.open(self._path + TEMPORARY_SUFFIX, create=True))
        except OSError:
            for file in opened:
                file.close()
            raise
        self._nameless = None
        self._coming = WaypointTicket(
            segment=segment,
            offset=end_offset,
            position=segment.size,
            last_position=last_position,
            max_timestamp=segment.max_timestamp,
            max_timestamp_offset=segment.max_timestamp_offset,
            last_header=last_header,
            indexes=indexes,
            target=opened[-1],
            producers=producers.snapshot(),
        )
        return self._coming

    def finish(self, ticket: WaypointTicket) -> None:
        """The ticket's `write` has returned or raised."""
        assert ticket is self._coming, self
        self._coming = None
        if ticket.written and not ticket.void:
            self._nameless = ticket.offset
            self.reached(ticket.segment, ticket.position)

    def reached(self, segment: Segment, position: int) -> None:
        """There is one at that place."""
        self._segment_base, self._position = segment.base_offset, position

    def is_nameable(self, durable_end: int) -> bool:
        """Whether one waits for its name whose offset is synced."""
        return self._nameless is not None and self._nameless <= durable_end

    def name(self) -> None:
        """Recoveries may begin at the one that waits; a checkpoint has its offset. OSError."""
        if self._nameless is not None:
            self._nameless = None
            self._directory.disk.rename(self._path + TEMPORARY_SUFFIX, self._path)

    def forget(self) -> None:
        """The log is cut. That none is believed any more is seen to, too. Raises OSError."""
        if self._coming is not None:
            self._coming.void = True  # its worker may still be writing
        self._nameless = None
        self._segment_base = -1
        if self._directory.disk.exists(self._path):
            self._directory.disk.remove(self._path)


def read_waypoint(directory: PartitionDir) -> tuple[Waypoint, bytes] | None:
    """What the file says, and the producer snapshot; None if there is none, or no sound one."""
    data = read_whole(directory.disk, f"{directory.path}/{WAYPOINT_FILE}")
    if data is None:
        return None
    try:
        return parse_waypoint(data)
    except MalformedFile:
        return None


def parse_waypoint(data: bytes) -> tuple[Waypoint, bytes]:
    """What a file says, and its producer snapshot. Raises MalformedFile."""
    if len(data) < _CRC_START + _BODY.size:
        raise MalformedFile(f"{len(data)} bytes are no waypoint")
    version, crc = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise MalformedFile(f"version {version}")
    if crc32c(memoryview(data)[_CRC_START:]) != crc:
        raise MalformedFile("its CRC is not that of what follows")
    return Waypoint(*_BODY.unpack_from(data, _CRC_START)), data[_CRC_START + _BODY.size :]


def resume(
    segment: Segment, waypoint: Waypoint, snapshot: bytes, *, now_ms: int
) -> ProducerState | None:
    """Takes up a segment as the waypoint says; the producers there, or None if it is not true.

    Then the segment is to be scanned as a whole.
    """
    file = segment.open()
    header = file.pread(HEADER_SIZE, waypoint.last_position)
    if waypoint.position > file.size() or header != waypoint.last_header:
        return None
    try:
        producers = ProducerState.from_snapshot(snapshot, waypoint.offset, now_ms)
        segment.resume(
            waypoint.position,
            index=(waypoint.index_bytes, waypoint.index_crc),
            time_index=(waypoint.time_index_bytes, waypoint.time_index_crc),
            transactions=(waypoint.transactions_bytes, waypoint.transactions_crc),
            max_timestamp=(waypoint.max_timestamp, waypoint.max_timestamp_offset),
        )
    except (SnapshotCorrupt, IndexCorrupt):
        return None
    return producers
