"""Snapshots: the metadata up to an offset, as a file of record batches.

    <end offset, 20 digits>-<epoch, 10 digits>.checkpoint            holds all records below it
    <end offset>-<epoch>-<number>.checkpoint.part                    being written
    <end offset>-<epoch>.checkpoint.deleted                          being removed
    bootstrap.checkpoint (beside the partitions)                     what a new cluster begins with

The first batch holds control records: SnapshotHeader, and from kraft.version 1 on KRaftVersion and
Voters. Data batches follow, and a control batch with SnapshotFooter ends it. Offsets restart at 0,
the leader epoch is the snapshot's. Snapshot 0-0 is made by formatting: it names the voters of a new
cluster and holds no data. A file under its final name is complete: it was synced before its rename.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from ottla.broker.log.checkpoints import parent_of
from ottla.broker.log.final_syncs import run_sync
from ottla.broker.ports import Disk
from ottla.broker.quorum.voters import VoterSet
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.control_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from ottla.protocol.records.batch import BatchHeader, check_crc, iterate_headers
from ottla.protocol.records.control import (
    ControlBody,
    ControlType,
    build_control_batch,
    read_control_batch,
)

SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
DELETED_SUFFIX = ".checkpoint.deleted"
BOOTSTRAP_FILE = "bootstrap.checkpoint"

RECORDS_PER_BATCH = 2_000
"""Batches of some 100 KB: small beside Kafka's limit of 8 MiB, and few enough to be quick."""

OPENING_SIZE_MAX = 64 * 1024
"""More than the first batch takes: header, kraft.version and a few voters with their endpoints."""

_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")

T = TypeVar("T")


class SnapshotError(Exception):
    """A file is no whole snapshot; the text says where it breaks."""


class SnapshotId(NamedTuple):
    """`end_offset` is that after the last record in it, and `epoch` the epoch of that record."""

    end_offset: int
    epoch: int

    @property
    def name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"


BOOTSTRAP_ID = SnapshotId(0, 0)


class Snapshot(NamedTuple):
    """A snapshot as read: its control records' contents and its data batches, CRCs checked."""

    last_contained_timestamp: int
    kraft_version: int
    voters: VoterSet | None
    batches: list[tuple[BatchHeader, memoryview]]


def list_snapshots(disk: Disk, directory: str) -> list[SnapshotId]:
    """The complete snapshots of a directory, oldest first."""
    matches = map(_NAME.fullmatch, disk.list(directory))
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in matches if match)


def remove_leftovers(disk: Disk, directory: str) -> None:
    """Removes what a crash left half written or half removed."""
    for name in disk.list(directory):
        if name.endswith((PART_SUFFIX, DELETED_SUFFIX)):
            disk.remove(f"{directory}/{name}")


def remove_snapshot(disk: Disk, directory: str, snapshot_id: SnapshotId) -> None:
    disk.remove(f"{directory}/{snapshot_id.name}")


def write_snapshot(
    disk: Disk, directory: str, snapshot_id: SnapshotId, batches: Iterable[bytearray]
) -> int:
    """Writes and names a snapshot; durable when it returns. Its size in bytes."""
    stem = snapshot_id.name.removesuffix(SUFFIX)
    part = f"{directory}/{stem}-0{PART_SUFFIX}"
    return write_batches(disk, f"{directory}/{snapshot_id.name}", batches, part=part)


def write_batches(disk: Disk, path: str, batches: Iterable[bytearray], *, part: str) -> int:
    """Writes a file of batches under a provisional name and renames it when it is on disk.

    Raises SyncFailed where a sync said no, and any other OSError where another call did. Of what
    was not renamed nothing is left: on a full disk each would take of the room that there is.
    """
    try:
        size = _write(disk, part, batches)
        disk.rename(part, path)
    except OSError:
        with suppress(OSError):  # a start removes it, too
            disk.remove(part)
        raise
    run_sync(partial(disk.sync_dir, parent_of(path)))
    return size


def _write(disk: Disk, path: str, batches: Iterable[bytearray]) -> int:
    file = disk.open(path, create=True)
    try:
        if file.size() > 0:
            file.truncate(0)
        position = 0
        for batch in batches:
            file.pwrite(batch, position)
            position += len(batch)
        run_sync(file.sync)
    finally:
        file.close()
    return position


def snapshot_batches(
    records: Iterable[T],
    encode: Callable[[list[T], int], bytearray],
    *,
    epoch: int,
    now_ms: int,
    last_contained_timestamp: int,
    kraft_version: int = 0,
    voters: VoterSet | None = None,
) -> Iterator[bytearray]:
    """The batches of a snapshot; `encode` makes a data batch of records and a base offset."""
    opening: list[ControlBody] = [
        SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_timestamp)
    ]
    if kraft_version > 0 and voters is not None:
        opening += [KRaftVersionRecord(kraft_version=kraft_version), voters.to_record()]
    yield build_control_batch(opening, timestamp=now_ms, leader_epoch=epoch)
    offset = len(opening)
    for chunk in _chunks(records):
        yield encode(chunk, offset)
        offset += len(chunk)
    footer: list[ControlBody] = [SnapshotFooterRecord()]
    yield build_control_batch(footer, timestamp=now_ms, base_offset=offset, leader_epoch=epoch)


def read_snapshot(disk: Disk, path: str) -> Snapshot:
    """Reads a snapshot or bootstrap.checkpoint, whole; SnapshotError if it is not."""
    file = disk.open(path)
    try:
        data = memoryview(file.pread(file.size(), 0))
    finally:
        file.close()
    return parse_snapshot(data)


def snapshot_timestamp(disk: Disk, path: str) -> int:
    """When the last record in a snapshot was written, from the snapshot's first batch alone."""
    file = disk.open(path)
    try:
        data = memoryview(file.pread(OPENING_SIZE_MAX, 0))
    finally:
        file.close()
    for _, header in iterate_headers(data):
        if header.is_control and check_crc(data[: header.size]):
            for record in read_control_batch(data[: header.size]):
                if isinstance(record.body, SnapshotHeaderRecord):
                    return record.body.last_contained_log_timestamp
        break
    raise SnapshotError("it does not begin with its header")


def parse_snapshot(data: memoryview) -> Snapshot:
    timestamp: int | None = None
    kraft_version = 0
    voters: VoterSet | None = None
    batches: list[tuple[BatchHeader, memoryview]] = []
    ended = False
    for header, view in _whole_batches(data):
        if ended:
            raise SnapshotError("there are records behind its footer")
        if timestamp is None and not header.is_control:
            raise SnapshotError("it does not begin with its header")
        if not header.is_control:
            batches.append((header, view))
            continue
        for record in read_control_batch(view):
            body = record.body
            if isinstance(body, SnapshotHeaderRecord):
                timestamp = body.last_contained_log_timestamp
            elif timestamp is None:
                raise SnapshotError("it does not begin with its header")
            elif isinstance(body, KRaftVersionRecord):
                kraft_version = body.kraft_version
            elif isinstance(body, VotersRecord):
                voters = VoterSet.from_record(body)
            ended = record.type_id == ControlType.SNAPSHOT_FOOTER
    if timestamp is None or not ended:
        raise SnapshotError("it ends before its footer")
    return Snapshot(timestamp, kraft_version, voters, batches)


def _whole_batches(data: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    end = 0
    try:
        for position, header in iterate_headers(data):
            end = position + header.size
            view = data[position:end]
            if not check_crc(view):
                raise SnapshotError(f"the batch at byte {position} does not agree with its CRC")
            yield header, view
    except KafkaError as error:
        raise SnapshotError(f"it breaks after byte {end}: {error}") from error
    if end != len(data):
        raise SnapshotError(f"{len(data) - end} bytes at its end are no whole batch")


def _chunks(records: Iterable[T]) -> Iterator[list[T]]:
    chunk: list[T] = []
    for record in records:
        chunk.append(record)
        if len(chunk) == RECORDS_PER_BATCH:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
