"""The metadata log and its snapshots on disk: opened, read back, appended to, cut off at the front.

At start the newest snapshot and the log behind it are read. A log that begins above every snapshot
has a hole and is refused, and so is one with damage that is no torn tail (`log/soundness.py`). A
snapshot that ends above the log (the log was cut by a crash, or the snapshot came from elsewhere)
makes the log begin anew behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.log.flush import REFUSALS
from ottla.broker.log.log import UPPER_LOG_END, Log
from ottla.broker.log.segment import LOG_SUFFIX, Segment
from ottla.broker.log.soundness import MetadataLost, check_whole
from ottla.broker.ports import Disk, Events
from ottla.broker.quorum.raft import QuorumError
from ottla.broker.quorum.snapshot import (
    BOOTSTRAP_ID,
    SnapshotError,
    SnapshotId,
    list_snapshots,
    read_snapshot,
    remove_leftovers,
    remove_snapshot,
    snapshot_batches,
    snapshot_timestamp,
    write_snapshot,
)
from ottla.broker.quorum.voters import VoterSet
from ottla.config.types import LogConfig
from ottla.protocol.messages.control_records import KRaftVersionRecord, VotersRecord
from ottla.protocol.records.batch import BatchHeader, iterate_headers
from ottla.protocol.records.control import read_control_batch

if TYPE_CHECKING:
    from ottla.broker.metadata.delta import Delta
    from ottla.broker.metadata.image import MetadataImage
    from ottla.broker.metadata.publish import MetadataMachine
    from ottla.broker.metadata.replay import Replay

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = bytes(15) + b"\x01"
METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"

READ_SIZE = 4 * 1024 * 1024
"""Bytes read at a time when the log is replayed."""

BATCH_SIZE_MAX = 2**31 - 1
"""A change is one batch, bounded by what one request may ask for, not by a producer's limit."""


class QuorumSettings(NamedTuple):
    """Kafka's metadata.log.* and metadata.max.* settings; the defaults are Kafka's."""

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    snapshot_bytes: int = 20_971_520
    snapshot_interval_ms: int = 3_600_000
    retention_bytes: int = 104_857_600
    retention_ms: int = 604_800_000


class Loaded(NamedTuple):
    """What the disk holds. `in_transaction` says that a former leader left one open; behind the
    newest snapshot the log has `bytes_behind`, since `behind_since_ms` by the wall clock of then,
    which is None if there are none."""

    delta: Delta
    image: MetadataImage
    in_transaction: bool
    voters: VoterSet | None
    voters_in_log: bool
    bytes_behind: int
    behind_since_ms: int | None


class QuorumStore:
    """One node's metadata log. Only the thread of the loop uses it, save where a method says so."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        settings: QuorumSettings,
        machine: MetadataMachine,
        events: Events,
        now_ms: int,
    ) -> None:
        self._disk = disk
        self.directory = directory
        self._settings = settings
        # What the last function of `segment_remover` is about.
        self._removed: list[Segment] = []
        self._machine = machine
        self._events = events
        self._voters: VoterSet | None = None
        self._voters_in_log = False
        remove_leftovers(disk, directory)
        self.snapshots = list_snapshots(disk, directory)
        try:
            check_whole(disk, directory)
        except MetadataLost as lost:
            raise QuorumError(str(lost)) from lost
        self.log = self._open_log(now_ms)

    def __repr__(self) -> str:
        return (
            f"<QuorumStore log={self.log.log_start_offset}-{self.log.log_end_offset}"
            f" snapshots={[tuple(one) for one in self.snapshots]}>"
        )

    def load(self) -> Loaded:
        """Reads the newest snapshot and the log behind it."""
        replay = self._machine.replay(self._machine.empty)
        offset = 0
        if self.snapshots:
            offset = self._load_snapshot(replay, self.snapshots[-1])
        bytes_behind, behind_since_ms = 0, None
        for header, view in self._batches_from(offset):
            try:
                self._add(replay, header, view)
            except QuorumError as error:
                where = f"{self.directory}, batch at offset {header.base_offset}"
                raise QuorumError(f"{where}: {error}.") from error
            if not bytes_behind:
                behind_since_ms = header.max_timestamp
            bytes_behind += header.size
        delta, image = replay.finish()
        return Loaded(
            delta,
            image,
            replay.in_transaction,
            self._voters,
            self._voters_in_log,
            bytes_behind,
            behind_since_ms,
        )

    def append(self, batch: bytearray, *, epoch: int, now_ms: int) -> int:
        """Appends a batch of ours; the offset of its last record."""
        with memoryview(batch) as view:
            result = self.log.append_as_leader(
                view, leader_epoch=epoch, now_ms=now_ms, internal=True
            )
        return result.last_offset

    def snapshot_writer(
        self, image: MetadataImage, voters: VoterSet, now_ms: int
    ) -> Callable[[], SnapshotId]:
        """A function that writes a snapshot of the image; it blocks and may run on any thread."""
        snapshot_id = SnapshotId(image.offset + 1, image.epoch)
        machine, disk, directory = self._machine, self._disk, self.directory

        def write() -> SnapshotId:
            batches = snapshot_batches(
                machine.contents(image),
                lambda records, offset: machine.batch(
                    machine.encode(records, image),
                    base_offset=offset,
                    leader_epoch=image.epoch,
                    timestamp=image.timestamp,
                ),
                epoch=image.epoch,
                now_ms=now_ms,
                last_contained_timestamp=image.timestamp,
                kraft_version=image.kraft_version,
                voters=voters,
            )
            write_snapshot(disk, directory, snapshot_id, batches)
            return snapshot_id

        return write

    def snapshot_written(self, snapshot_id: SnapshotId, *, now_ms: int) -> None:
        """Takes a new snapshot into account: older ones and the log below may go."""
        if snapshot_id not in self.snapshots:
            self.snapshots.append(snapshot_id)
        while len(self.snapshots) > 1 and self._may_drop(self.snapshots[0], now_ms):
            dropped = self.snapshots.pop(0)
            start = self.snapshots[0].end_offset
            self.log.delete_records(start)
            with suppress(FileNotFoundError):  # somebody has removed it
                remove_snapshot(self._disk, self.directory, dropped)
            self._events.info("metadata_log_trimmed", log_start_offset=start, dropped=dropped.name)
        self.log.delete_old_segments(now_ms=now_ms)

    def segment_remover(self, now_ms: int) -> Callable[[], None] | None:
        """A function that removes the files of the segments whose file.delete.delay.ms is over; it
        blocks and may run on any thread. None if there are none."""
        segments = self.log.segments
        self._removed = deleted = segments.take_deleted(now_ms)

        def remove() -> None:
            for _ in segments.remove_deleted(deleted):
                pass

        return remove if deleted else None

    def doubt_tail(self) -> None:
        """A sync in the directory has failed, be it not one of the log: it has marked the names
        there clean, and the next start must not believe what the page cache has of them."""
        self.log.home.doubt_tail()

    def removal_refused(self, now_ms: int) -> None:
        """What the last one was to remove waits for the same delay again."""
        self.log.segments.await_removal(self._removed, now_ms)
        self._removed = []

    def close(self, *, clean: bool) -> None:
        """Ends all use; `clean` brings the log's files to where a start need not repair them."""
        self.log.close(clean=clean)

    def _may_drop(self, oldest: SnapshotId, now_ms: int) -> bool:
        """Kafka's retention of metadata: by the size of log and snapshots, or by age. One that
        cannot be read goes, for the newest says all that it says.

        OSError for want of descriptors or memory, which says nothing of the snapshot.
        """
        sizes = [self._size(snapshot_id) for snapshot_id in self.snapshots]
        if self.log.size_bytes + sum(sizes) > self._settings.retention_bytes:
            return True
        try:
            timestamp = snapshot_timestamp(self._disk, f"{self.directory}/{oldest.name}")
        except (SnapshotError, OSError) as error:
            if isinstance(error, OSError) and error.errno in REFUSALS:
                raise
            self._events.warning("snapshot_unreadable", name=oldest.name, reason=str(error))
            return True
        return now_ms - timestamp > self._settings.retention_ms

    def _size(self, snapshot_id: SnapshotId) -> int:
        """Its bytes, 0 where it cannot be opened. OSError as `_may_drop`."""
        try:
            file = self._disk.open(f"{self.directory}/{snapshot_id.name}")
        except OSError as error:
            if error.errno in REFUSALS:
                raise
            return 0
        try:
            return file.size()
        finally:
            file.close()

    def _open_log(self, now_ms: int) -> Log:
        oldest = self.snapshots[0].end_offset if self.snapshots else 0
        newest = self.snapshots[-1].end_offset if self.snapshots else 0
        has_files = any(name.endswith(LOG_SUFFIX) for name in self._disk.list(self.directory))
        settings = self._settings
        log = Log.open(
            self._disk,
            self.directory,
            topic=METADATA_TOPIC,
            partition=0,
            topic_id=METADATA_TOPIC_ID,
            config=LogConfig(
                segment_bytes=settings.segment_bytes,
                segment_ms=settings.segment_ms,
                max_message_bytes=BATCH_SIZE_MAX,
                retention_ms=-1,
                retention_bytes=-1,
            ),
            # Without any file nothing was lost: a snapshot may have come alone.
            recovery_point=newest if has_files else 0,
            log_start_offset=oldest,
            high_watermark=newest,
            clean=False,
            now_ms=now_ms,
            events=self._events,
        )
        if log.log_start_offset > newest:
            raise QuorumError(
                f"{self.directory}: the metadata log begins at offset {log.log_start_offset}, and"
                f" the newest snapshot ends at {newest}: what lies between is lost."
            )
        if newest > log.log_end_offset:
            self._events.warning("metadata_log_behind_snapshot", snapshot=newest, log=repr(log))
            log.truncate_fully_and_start_at(newest)
        return log

    def _load_snapshot(self, replay: Replay, snapshot_id: SnapshotId) -> int:
        """Loads one; the offset at which the log goes on."""
        try:
            snapshot = read_snapshot(self._disk, f"{self.directory}/{snapshot_id.name}")
        except SnapshotError as error:
            raise QuorumError(
                f"{self.directory}/{snapshot_id.name} cannot be read: {error}."
            ) from error
        self._voters = snapshot.voters
        self._voters_in_log = snapshot_id != BOOTSTRAP_ID and snapshot.voters is not None
        # The records' offsets restart in a snapshot; all of them stand for its end.
        last, epoch = snapshot_id.end_offset - 1, snapshot_id.epoch
        timestamp = snapshot.last_contained_timestamp
        for _, view in snapshot.batches:
            records = self._machine.decode(view)
            replay.add(records, last_offset=last, epoch=epoch, timestamp=timestamp)
        replay.add_control(
            kraft_version=snapshot.kraft_version or None,
            last_offset=last,
            epoch=epoch,
            timestamp=timestamp,
        )
        return snapshot_id.end_offset

    def _add(self, replay: Replay, header: BatchHeader, view: memoryview) -> None:
        last, epoch = header.last_offset, header.partition_leader_epoch
        timestamp = header.max_timestamp
        if not header.is_control:
            records = self._machine.decode(view)
            replay.add(records, last_offset=last, epoch=epoch, timestamp=timestamp)
            return
        kraft_version: int | None = None
        for record in read_control_batch(view):
            if isinstance(record.body, VotersRecord):
                self._voters = VoterSet.from_record(record.body)
                self._voters_in_log = True
            elif isinstance(record.body, KRaftVersionRecord):
                kraft_version = record.body.kraft_version
        replay.add_control(
            kraft_version=kraft_version, last_offset=last, epoch=epoch, timestamp=timestamp
        )

    def _batches_from(self, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        while offset < self.log.log_end_offset:
            piece = self.log.read(
                offset, max_bytes=READ_SIZE, upper=UPPER_LOG_END, at_least_one=True
            )
            assert piece is not None, f"nothing at offset {offset} of {self.log!r}"
            began = offset
            data = memoryview(piece.read())
            for position, header in iterate_headers(data):
                if header.last_offset >= offset:
                    yield header, data[position : position + header.size]
                    offset = header.last_offset + 1
            assert offset > began, f"no whole batch at offset {offset} of {self.log!r}"
