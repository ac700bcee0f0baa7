"""What is deleted of the logs: old segments, a few at a time, and the files of all that is gone.

The rules of `retention` say which segments go. The files of what was deleted stay until
file.delete.delay.ms is over: deleted segments wait in their own log, under another name, the
directories of deleted partitions wait here. `due_segments` and `due_directories` give each out
once, on the loop; to unlink large files takes long, so `remove_segments` and `remove_directory` go
by steps, which may run in a worker. What fails there is told to the `faults` by `post_error`; what
is only refused waits for the next round.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from ottla.broker.faults import Call, DiskFaults, Reaction
from ottla.broker.log.checkpoints import parent_of
from ottla.broker.log.directories import partition_name
from ottla.broker.log.final_syncs import SyncFailed, call_of
from ottla.broker.log.log import Log
from ottla.broker.log.rearranging import Removal
from ottla.broker.log.retention import newest_of
from ottla.broker.log.segment import Segment
from ottla.broker.ports import Clock, Disk, Events
from ottla.protocol.errors import KafkaError

# Segments deleted at a time, four renames each.
SEGMENTS_AT_ONCE = 4
# Files of a deleted partition that are removed in one step: those of a segment.
FILES_AT_ONCE = 4
# A directory that is not empty any more, or has something mounted in it, or a file that NFS keeps
# for who has it open: they say nothing of the disk, and may pass.
IN_USE_ERRORS = frozenset({errno.ENOTEMPTY, errno.EBUSY})
# Seldom, for each try is told, and where it does not pass by itself somebody has to do something.
IN_USE_RETRY_MS = 600_000

PostError = Callable[[Callable[[], object]], object]


class Deletions:
    """The deleted directories of all log dirs. Belongs to the loop but where it says otherwise."""

    def __init__(
        self,
        disk: Disk,
        *,
        clock: Clock,
        events: Events,
        faults: DiskFaults,
        post_error: PostError,
        written_point: Callable[[Log], int | None],
    ) -> None:
        """`written_point(log)` is its recovery point on disk, or None if it is not served."""
        self._disk = disk
        self._clock = clock
        self._events = events
        self._faults = faults
        self._post_error = post_error
        self._written_point = written_point
        self._held_back: dict[Log, None] = {}
        self._unsynced: dict[Log, None] = {}
        self._waiting: list[Removal] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def __repr__(self) -> str:
        return f"<Deletions {[one.path for one in self._waiting]}>"

    def retire(self, log: Log, newest: Callable[[Segment], int] = newest_of) -> list[Segment]:
        """Takes a few segments out of a log that are doomed.

        The recovery points are to be checkpointed before. After a crash segments may be missing in
        any order: a recovery that begins at or above all of them does not notice, one that begins
        below takes the gap for the end of the log. So only what ends below the written one goes.
        The log starts are to be checkpointed behind it, before `set_aside`, and then `retired`.
        `newest` tells a segment's greatest timestamp; what it raises, this does.
        """
        below = self._written_point(log)
        if below is None:
            return []
        try:
            _, segments, is_held_back = log.retire_old_segments(
                self._clock.wall_ms(), below=below, at_most=SEGMENTS_AT_ONCE, newest=newest
            )
        except OSError as error:
            self._faults.failed(parent_of(log.directory), call_of(error), error)
            return []
        except KafkaError as error:  # of one log: those behind it have old segments, too
            name = partition_name(log.topic, log.partition)
            self._events.error("retention_failed", partition=name, error=str(error))
            return []
        if is_held_back:
            self._unsynced[log] = None
        if log.segments.awaits_sync:
            self._held_back[log] = None
        return segments

    def set_aside(self, log: Log, segments: list[Segment]) -> None:
        """Renames their files. May run in a worker. Those that it does not come to, for the disk
        refuses it, get their other names when they are removed."""
        try:
            log.segments.set_aside(segments)
        except OSError as error:
            log_dir = parent_of(log.directory)
            self._post_error(partial(self._faults.failed, log_dir, Call.WRITE, error))

    def retired(self, log: Log, segments: list[Segment]) -> bool:
        """They were set aside; True if there may be more to delete at once."""
        log.segments.await_removal(segments, self._clock.monotonic_ms())
        return len(segments) == SEGMENTS_AT_ONCE

    def take_held_back(self) -> list[Log]:
        """The logs of which segments wait for a flush before they go, each once."""
        held_back, self._held_back = self._held_back, {}
        return list(held_back)

    def take_unsynced(self) -> list[Log]:
        """The logs of which segments go when they are synced, and that is checkpointed, each once.
        Where flush.messages does not ask for it, nobody else may ever sync the last one."""
        unsynced, self._unsynced = self._unsynced, {}
        return list(unsynced)

    def add(self, log_dir: str, path: str, log: Log | None) -> None:
        """A directory that was set aside; it goes when readers of its log, if any, are through."""
        delay_ms = 0 if log is None else log.config.file_delete_delay_ms
        due_ms = self._clock.monotonic_ms() + delay_ms
        self._waiting.append(Removal(due_ms, log_dir, path, log))

    def due_directories(self) -> list[Removal]:
        """Those whose delay is over, their files closed; for `remove_directory`."""
        now_ms = self._clock.monotonic_ms()
        waiting, self._waiting = self._waiting, []
        due: list[Removal] = []
        for one in waiting:
            (due if one.is_due(now_ms) else self._waiting).append(one)
        for removal in due:
            removal.close()
        return [one for one in due if one.log_dir not in self._faults.offline]

    def remove_directory(self, removal: Removal) -> Iterator[None]:
        """Removes all that is in it, a few files with each step. The steps may run in a worker."""
        try:
            if self._disk.exists(removal.path):
                yield from self._empty(removal.path)
        except OSError as error:
            self._post_error(partial(self._not_removed, removal, error))

    def _empty(self, path: str) -> Iterator[None]:
        """Removes a directory, those in it first, however deep."""
        waiting = [path]
        while waiting:
            for number, name in enumerate(self._disk.list(waiting[-1]), 1):
                try:
                    with suppress(FileNotFoundError):  # somebody made room by hand
                        self._disk.remove(f"{waiting[-1]}/{name}")
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY:
                        raise
                    # Somebody has put it there; the partition it is in is deleted.
                    waiting.append(f"{waiting[-1]}/{name}")
                    break
                if number % FILES_AT_ONCE == 0:
                    yield
            else:
                self._disk.remove(waiting.pop())

    def awaits(self, removal: Removal) -> bool:
        """Whether the directory is still to be removed: that was refused."""
        return any(one.path == removal.path for one in self._waiting)

    def due_segments(self, logs: Iterable[Log]) -> list[tuple[Log, list[Segment]]]:
        """Deleted segments whose delay is over, by log; for `remove_segments`."""
        now_ms = self._clock.monotonic_ms()
        due = [(log, log.segments.take_deleted(now_ms)) for log in logs]
        return [(log, segments) for log, segments in due if segments]

    def remove_segments(self, log: Log, segments: list[Segment]) -> Iterator[None]:
        """Removes their files, a segment with each step. The steps may run in a worker."""
        try:
            yield from log.segments.remove_deleted(segments)
        except OSError as error:
            if isinstance(error, SyncFailed):
                # It may have been to bring the name of a new segment to disk, too.
                log.home.doubt_tail()
            self._post_error(partial(self._segments_not_removed, log, segments, error))

    def close(self) -> None:
        """Closes the files that are still open; the next start removes the directories."""
        for removal in self._waiting:
            removal.close()

    # inside; on the loop

    def _not_removed(self, removal: Removal, error: OSError) -> None:
        if error.errno in IN_USE_ERRORS:
            self._events.warning("directory_in_use", path=removal.path, error=str(error))
            due_ms = self._clock.monotonic_ms() + IN_USE_RETRY_MS
            self._waiting.append(replace(removal, due_ms=due_ms))
            return
        is_seen_to = error.errno == errno.ENOENT  # somebody is about to remove it by hand
        failed = partial(self._faults.failed, removal.log_dir, Call.WRITE, error)
        if is_seen_to or failed() is Reaction.REFUSED:
            self._waiting.append(removal)

    def _segments_not_removed(self, log: Log, segments: list[Segment], error: OSError) -> None:
        log_dir = parent_of(log.directory)
        if self._faults.failed(log_dir, call_of(error), error) is Reaction.REFUSED:
            log.segments.put_back(segments, self._clock.monotonic_ms())
