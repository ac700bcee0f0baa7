"""The segments of a log, by base offset; the last one is the active one.

A batch goes into the active segment unless that would make it larger than segment.bytes or older
than segment.ms, or it has no room for the batch's index entry or offset: then a new one begins at
the end of the log. Age counts in record time from the first batch, as long as that has a
timestamp, so that what is replayed rolls as it did the first time. What is sealed waits for the
next flush.

Sealed segments open their files when they are read. Of those so opened only the last few that
were used stay open: a descriptor for each of ten thousand segments would be too many. A deleted
segment keeps its files, under another name, until file.delete.delay.ms is over.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate, islice
from typing import Final, overload

from ottla.broker.log.final_syncs import run_sync
from ottla.broker.log.offset_index import RELATIVE_OFFSET_MAX
from ottla.broker.log.partition_dir import PartitionDir
from ottla.broker.log.segment import (
    DELETED_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    Segment,
)
from ottla.broker.log.time_index import NO_TIMESTAMP
from ottla.broker.ports import File
from ottla.config.types import LONG_MAX, LogConfig

# Sealed segments of one log that stay open: readers that are behind are few, and each reads one.
OPEN_SEALED_MAX: Final = 8


def write_snapshot(directory: PartitionDir, offset: int, snapshot: bytes) -> None:
    """Writes the producer snapshot at an offset."""
    file = directory.disk.open(directory.file(offset, SNAPSHOT_SUFFIX), create=True)
    try:
        file.truncate(0)
        file.pwrite(snapshot, 0)
    finally:
        file.close()


class Segments:
    """A sorted sequence of segments, never empty once the log is open."""

    __slots__ = (
        "_bases",
        "_coming_back",
        "_config",
        "_deleted",
        "_directory",
        "_flushed_size",
        "_greatest_times",
        "_opened",
        "_recalled",
        "_roll_after_ms",
        "_roll_after_timestamp",
        "_segment_bytes",
        "_segments",
        "_syncing_snapshots",
        "_unsynced",
        "_unsynced_snapshots",
        "active",
        "new_names",
        "sealed_bytes",
        "stray",
    )

    active: Segment

    def __init__(self, directory: PartitionDir, config: LogConfig) -> None:
        # Sealed segments and snapshots that no flush has taken yet, and whether a name is not
        # durable.
        self._unsynced: list[Segment] = []
        self._unsynced_snapshots: list[int] = []
        # Snapshots that the flush under way has taken.
        self._syncing_snapshots: list[int] = []
        self._flushed_size = 0
        """Of the active segment, when the last flush began."""
        self.new_names = False
        self.stray: Segment | None = None
        """What could not be begun, as long as a start might find it."""
        # Of all segments but the active one.
        self.sealed_bytes = 0
        self._directory = directory
        self._bases: list[int] = []
        self._segments: list[Segment] = []
        self._opened: dict[Segment, None] = {}
        # Sealed ones whose transaction index was looked at.
        self._recalled: dict[Segment, None] = {}
        # Of each sealed segment and all before it, for the search by time; None until it is asked.
        self._greatest_times: list[int] | None = None
        # When the files of a deleted segment go.
        self._deleted: list[tuple[int, Segment]] = []
        # Retired ones whose files may have the names of segments at the next start.
        self._coming_back: dict[Segment, None] = {}
        self.configure(config)

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @overload
    def __getitem__(self, index: int) -> Segment: ...

    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...

    def __getitem__(self, index: int | slice) -> Segment | list[Segment]:
        return self._segments[index]

    def configure(self, config: LogConfig) -> None:
        """A new configuration; it holds for the active segment, too."""
        self._config = config
        self._segment_bytes = config.segment_bytes
        # Below any time: the next append computes them.
        self._roll_after_ms = self._roll_after_timestamp = NO_TIMESTAMP

    # which one

    def floor_index(self, offset: int) -> int:
        """The index of the last segment that begins at or below an offset; 0 before the first."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def index_by_time(self, timestamp: int) -> int:
        """The index of the first segment with a record of at least that time; the last one's if
        no sealed one has any."""
        if self._greatest_times is None:
            greatest = (segment.max_timestamp for segment in self._segments[:-1])
            self._greatest_times = list(accumulate(greatest, max))
        return bisect_left(self._greatest_times, timestamp)

    @property
    def knows_times(self) -> bool:
        """Whether `index_by_time` opens no index."""
        return self._greatest_times is not None

    def read_from(self, segment: Segment) -> None:
        """To be called before a segment is read: a sealed one takes its place among the open."""
        if segment is not self.active:
            self._opened.pop(segment, None)
            self._opened[segment] = None
            self._close_surplus()

    def recall_aborted(self, segment: Segment) -> None:
        """To be called before a transaction index is looked at, of which as many are kept as files
        are open. It closes none: who asks for what was aborted is about to send from one."""
        if segment is not self.active:
            self._recalled.pop(segment, None)
            self._recalled[segment] = None
            if len(self._recalled) > OPEN_SEALED_MAX:
                oldest = next(iter(self._recalled))
                del self._recalled[oldest]
                oldest.transactions.release()

    def take(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> Segment | None:
        """The active segment, if a batch goes into it; None if a new one has to begin first."""
        segment = self.active
        if (
            size > self._segment_bytes - segment.size
            or max_timestamp > self._roll_after_timestamp
            or now_ms > self._roll_after_ms
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or segment.full
            or not segment.size
        ):
            return self._look_closer(size, last_offset, max_timestamp, now_ms)
        return segment

    def _look_closer(
        self, size: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> Segment | None:
        segment = self.active
        if self.stray is not None:
            return None
        if not segment.size:
            segment.created_ms = now_ms
            self._set_roll_times(max_timestamp)
            return segment
        self._set_roll_times(segment.first_timestamp)
        has_room = (
            size <= self._segment_bytes - segment.size
            and max_timestamp <= self._roll_after_timestamp
            and now_ms <= self._roll_after_ms
            and last_offset - segment.base_offset <= RELATIVE_OFFSET_MAX
            and not segment.full
        )
        return segment if has_room else None

    def _set_roll_times(self, first_timestamp: int) -> None:
        age_ms = self._config.segment_ms
        jitter_ms = min(self._config.segment_jitter_ms, age_ms)
        if jitter_ms > 0:
            # Any even spread will do, but the same segment must not draw again.
            age_ms -= zlib.crc32(self.active.log_path.encode()) % jitter_ms
        if first_timestamp > NO_TIMESTAMP:
            self._roll_after_timestamp = first_timestamp + age_ms
            self._roll_after_ms = LONG_MAX
        else:
            self._roll_after_timestamp = LONG_MAX
            self._roll_after_ms = self.active.created_ms + age_ms

    # coming

    def load(self, segments: list[Segment]) -> None:
        """Takes what was found on disk, oldest first."""
        for segment in segments:
            self._add(segment)

    def look_at_age(self) -> None:
        """Reads what the next append asks: the first batch may lie far before what was read last.
        Raises OSError."""
        if self.active.size:
            self._set_roll_times(self.active.first_timestamp)

    def begin(self, base_offset: int, now_ms: int) -> Segment:
        """Makes an empty segment the active one. An OSError leaves all as it was, but for a `stray`
        with its files, which are closed: no batch is taken until they are gone, or a segment
        begins."""
        assert not self._bases or base_offset > self._bases[-1], base_offset
        segment = Segment(self._directory, base_offset, config=self._config, now_ms=now_ms)
        try:
            segment.create()
        except OSError:
            if segment.file is not None:  # else it has no name, either
                segment.release()
                self.stray = segment
                self._roll_after_ms = self._roll_after_timestamp = NO_TIMESTAMP
            raise
        self.stray = None
        self._add(segment)
        self.new_names = True
        return segment

    def begin_anew(self, base_offset: int, now_ms: int) -> None:
        """The same where no roll will see to the stray: its files go, if the disk lets them."""
        try:
            self.begin(base_offset, now_ms)
        except OSError:
            if self.stray is not None:
                with suppress(OSError):
                    self.remove_stray()
            raise

    def remove_stray(self) -> None:
        """Removes the files of the stray, for whoever syncs the directory before it forgets it.
        Raises OSError."""
        assert self.stray is not None
        self._remove_files(self.stray)

    def roll(self, offset: int, now_ms: int, snapshot: bytes) -> Segment:
        """Seals the active segment and begins the next; `snapshot` is of the producers there.

        An OSError leaves all as it was, as one of `begin`.
        """
        old = self.active
        assert old.size, old
        write_snapshot(self._directory, offset, snapshot)
        old.seal()
        segment = self.begin(offset, now_ms)
        self._unsynced.append(old)
        self._unsynced_snapshots.append(offset)
        return segment

    def keep_snapshot(self, offset: int, snapshot: bytes) -> None:
        """Writes what is known of producers at the base of the only segment. Raises OSError."""
        write_snapshot(self._directory, offset, snapshot)
        self._unsynced_snapshots.append(offset)

    def open_unsynced(self) -> tuple[list[File], list[File]]:
        """What a flush has to sync: the .log files, which are shared, and files to be closed."""
        is_alone = not self._unsynced and not self._unsynced_snapshots
        if is_alone and not self.active.transactions.has_file:
            return [self.active.open()], []  # as nearly always
        directory = self._directory
        logs = [segment.open() for segment in (*self._unsynced, self.active)]
        others: list[File] = []
        try:
            for segment in self._unsynced:
                segment.open_for_sync(others)
            for offset in self._unsynced_snapshots:
                others.append(directory.disk.open(directory.file(offset, SNAPSHOT_SUFFIX)))
            if self.active.transactions.has_file:
                others.append(self.active.transactions.open_apart())
        except OSError:
            for file in others:
                file.close()
            raise
        return logs, others

    @property
    def has_unsynced(self) -> bool:
        """Whether something was sealed since the last flush began."""
        return bool(self._unsynced_snapshots)

    @property
    def awaits_sync(self) -> bool:
        """Whether a snapshot, or the name of a segment, is not durable yet."""
        return bool(self._unsynced_snapshots or self._syncing_snapshots)

    @property
    def unflushed_bytes(self) -> int:
        """What was written to the active segment since the last flush began, all of it before the
        first one."""
        return self.active.size - self._flushed_size

    def forget_unsynced(self) -> None:
        """A flush has taken what is not synced."""
        self._flushed_size = self.active.size
        self._unsynced = []
        self._syncing_snapshots, self._unsynced_snapshots = self._unsynced_snapshots, []
        self.new_names = False

    def not_synced(self) -> None:
        """The flush that has taken names and snapshots has given them back. Of the segments that it
        took all but their names is durable."""
        taken = [offset for offset in self._syncing_snapshots if offset in self._bases]
        self._unsynced_snapshots = taken + self._unsynced_snapshots
        self._syncing_snapshots = []
        self.new_names = True

    def synced(self) -> None:
        """What was taken is durable now."""
        self._syncing_snapshots = []

    def _add(self, segment: Segment) -> None:
        if self._segments:
            self.sealed_bytes += self.active.size
            self._opened[self.active] = None
            self._close_surplus()
        self._bases.append(segment.base_offset)
        self._segments.append(segment)
        self._greatest_times = None
        self.active = segment
        self._flushed_size = 0
        self._roll_after_ms = self._roll_after_timestamp = NO_TIMESTAMP
        if len(self._segments) > 2:
            left_behind = self._segments[-3]
            left_behind.forget_recent()
            if left_behind.is_synced:  # else it waits among the open
                left_behind.transactions.release()

    # going

    def retire(self, count: int) -> list[Segment]:
        """Takes the oldest ones out of the log; then comes `set_aside`."""
        assert count <= self.count_synced(count), self._bases[count]
        retired = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        self._greatest_times = None
        for segment in retired:
            self._forget(segment)
            self._coming_back[segment] = None
        return retired

    def set_aside(self, retired: list[Segment]) -> None:
        """Renames their files. May run in a worker: a rename may wait for the file system.

        What an OSError has left is renamed by `remove_deleted`, or once more by this.
        """
        for segment in retired:
            for suffix in SEGMENT_SUFFIXES:
                name = f"{segment.base_offset:020d}{suffix}"
                self._directory.add_suffix(name, DELETED_SUFFIX)

    @property
    def may_come_back(self) -> bool:
        """Whether a start might take the files of retired segments for those of the log: they still
        have their names, or would have them again after a loss of power."""
        return bool(self._coming_back)

    def await_removal(self, retired: list[Segment], now_ms: int) -> None:
        """Their files go when file.delete.delay.ms is over, by the clock of `now_ms`, also where
        they had to keep their names so far."""
        due_ms = now_ms + self._config.file_delete_delay_ms
        self._deleted += [(due_ms, segment) for segment in retired]

    def count_synced(self, count: int) -> int:
        """How many of so many oldest ones may go: what is known of producers whose batches are
        deleted must not be lost with them, nor the name of the segment that stays."""
        assert count < len(self._segments)
        unsynced = {*self._unsynced_snapshots, *self._syncing_snapshots}
        while count and self._bases[count] in unsynced:
            count -= 1
        return count

    def take_deleted(self, now_ms: int) -> list[Segment]:
        """The deleted segments whose delay is over, closed, each once; for `remove_deleted`."""
        due = [segment for due_ms, segment in self._deleted if due_ms <= now_ms]
        if due:
            self._deleted = [one for one in self._deleted if one[0] > now_ms]
            for segment in due:
                segment.release()
        return due

    def put_back(self, deleted: list[Segment], now_ms: int) -> None:
        """Their removal was refused: `take_deleted` is to give them out again."""
        self._deleted += [(now_ms, segment) for segment in deleted]

    def remove_deleted(self, deleted: list[Segment]) -> Iterator[None]:
        """Removes their files: a sync of the directory, then a segment with each step. The steps
        may run in a worker: to unlink a large file takes long. After an OSError that is no
        SyncFailed it may be repeated, see `put_back`.

        If the directory is set aside meanwhile, they go with it.
        """
        self.set_aside(deleted)  # those whose new name was refused
        # Until no old name can come back, the files stay: recovery knows by them what is gone.
        run_sync(self._directory.sync)
        for segment in deleted:
            self._coming_back.pop(segment, None)
        try:
            for segment in deleted:
                yield
                self._unlink(segment)
        except FileNotFoundError:
            if not self._directory.has_moved():
                raise

    def _unlink(self, segment: Segment) -> None:
        disk = self._directory.disk
        for suffix in SEGMENT_SUFFIXES:
            path = self._directory.file(segment.base_offset, suffix) + DELETED_SUFFIX
            if disk.exists(path):
                disk.remove(path)

    def remove_from(self, index: int) -> None:
        """Removes the segments from an index on with their files, the last one first.

        They must not come back in place of what is written next: the caller syncs the directory.
        """
        self._greatest_times = None
        if self.stray is not None:
            self.remove_stray()
            self.stray = None
        while len(self._segments) > index:
            segment = self._segments.pop()
            self._bases.pop()
            self._forget(segment)
            self._remove_files(segment)
        if self._segments:
            self.active = self._segments[-1]
            self._opened.pop(self.active, None)
            self._recalled.pop(self.active, None)
            if self.active in self._unsynced:
                self._unsynced.remove(self.active)
            self.sealed_bytes = sum(segment.size for segment in self._segments[:-1])
            self._roll_after_ms = self._roll_after_timestamp = NO_TIMESTAMP
        else:
            self.sealed_bytes = 0

    def release(self) -> None:
        """Closes all files. Readers that hold a pin finish."""
        for segment in self._segments:
            segment.release()
        for _, segment in self._deleted:
            segment.release()

    def _forget(self, segment: Segment) -> None:
        self.sealed_bytes -= segment.size
        self._opened.pop(segment, None)
        self._recalled.pop(segment, None)
        if segment in self._unsynced:
            self._unsynced.remove(segment)
        if segment.base_offset in self._unsynced_snapshots:
            self._unsynced_snapshots.remove(segment.base_offset)

    def _remove_files(self, segment: Segment) -> None:
        segment.release()
        for suffix in reversed(SEGMENT_SUFFIXES):
            path = self._directory.file(segment.base_offset, suffix)
            if self._directory.disk.exists(path):
                self._directory.remove(path)

    def _close_surplus(self) -> None:
        while len(self._opened) > OPEN_SEALED_MAX:
            # A look at few of them: where a flush is late, hundreds may be unsynced.
            some = islice(self._opened, OPEN_SEALED_MAX)
            oldest = next((one for one in some if one.is_synced), None)
            if oldest is None:
                return
            del self._opened[oldest]
            oldest.release()
            oldest.transactions.release()


def sync_indexes(segment: Segment) -> None:
    """Blocks until the sealed indexes of a segment are on disk."""
    files: list[File] = []
    try:
        segment.open_for_sync(files)
        for file in files:
            file.sync()
    finally:
        for file in files:
            file.close()
