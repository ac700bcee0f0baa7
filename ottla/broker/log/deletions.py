"""What was deleted and still has its files: they go when file.delete.delay.ms is over.

Deleted segments wait in their own log, under another name; the directories of deleted partitions
wait here. `due_segments` and `due_directories` give each out once, on the loop; to unlink large
files takes long, so `remove_segments` and `remove_directory` may run in a worker. What fails there
is told to the `faults`, by way of `post_error`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from ottla.broker.faults import Call, DiskFaults
from ottla.broker.log.checkpoints import parent_of
from ottla.broker.log.log import Log
from ottla.broker.log.rearranging import Removal
from ottla.broker.log.segment import Segment
from ottla.broker.ports import Clock, Disk

PostError = Callable[[Callable[[], object]], object]


class Deletions:
    """The deleted directories of all log dirs. Belongs to the loop but where it says otherwise."""

    def __init__(
        self, disk: Disk, *, clock: Clock, faults: DiskFaults, post_error: PostError
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._faults = faults
        self._post_error = post_error
        self._waiting: list[Removal] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def __repr__(self) -> str:
        return f"<Deletions {[one.path for one in self._waiting]}>"

    def add(self, log_dir: str, path: str, log: Log | None) -> None:
        """A directory that was set aside; it goes when readers of its log, if any, are through."""
        delay_ms = 0 if log is None else log.config.file_delete_delay_ms
        due_ms = self._clock.monotonic_ms() + delay_ms
        self._waiting.append(Removal(due_ms, log_dir, path, log))

    def due_directories(self) -> list[Removal]:
        """Those whose delay is over, their files closed; for `remove_directory`."""
        now_ms = self._clock.monotonic_ms()
        due = [one for one in self._waiting if one.due_ms <= now_ms]
        self._waiting = [one for one in self._waiting if one.due_ms > now_ms]
        due = [one for one in due if one.log_dir not in self._faults.offline]
        for removal in due:
            removal.close()
        return due

    def remove_directory(self, removal: Removal) -> None:
        """Removes the files. May run in a worker."""
        try:
            if self._disk.exists(removal.path):
                for name in self._disk.list(removal.path):
                    with suppress(FileNotFoundError):  # somebody made room by hand
                        self._disk.remove(f"{removal.path}/{name}")
                self._disk.remove(removal.path)
        except OSError as error:
            self._post_error(partial(self._faults.failed, removal.log_dir, Call.WRITE, error))

    def due_segments(self, logs: Iterable[Log], now_ms: int) -> list[tuple[Log, list[Segment]]]:
        """Deleted segments whose delay is over at a wall time, by log; for `remove_segments`."""
        due = [(log, log.segments.take_deleted(now_ms)) for log in logs]
        return [(log, segments) for log, segments in due if segments]

    def remove_segments(self, log: Log, segments: list[Segment]) -> None:
        """Removes their files. May run in a worker."""
        try:
            log.segments.remove_deleted(segments)
        except OSError as error:
            log_dir = parent_of(log.directory)
            self._post_error(partial(self._faults.failed, log_dir, Call.WRITE, error))

    def close(self) -> None:
        """Closes the files that are still open; the next start removes the directories."""
        for removal in self._waiting:
            removal.close()
