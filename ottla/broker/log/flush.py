"""Bringing a log to disk off the loop, without lying about it.

    ticket = log.begin_flush()      on the loop: what is to be synced, up to which offset
    ticket.sync()                   in a worker: blocks, touches the ticket's own files only;
                                    or the kernel syncs ticket.descriptor(), where that is all
    log.finish_flush(ticket)        on the loop: the durable end moves, and nothing else moves it
    log.put_off_flush(ticket)       or, where `ticket.is_put_off`, for the next one to take it up

What is appended between begin and finish belongs to the next ticket. The order inside `sync`:
files of sealed segments, the active one, the leader epochs, the directory that names them all.
Only when everything is through does the durable end move, so that it is true of the whole log.

A sync that failed is final. The kernel has marked the pages clean, whatever became of them, and a
second sync would say yes and mean nothing: the ticket keeps the error, and its log is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from ottla.broker.faults import FULL_DISK_ERRORS, NO_DESCRIPTOR_ERRORS, SHORT_OF_MEANS
from ottla.broker.log.checkpoints import LEADER_EPOCH_FILE
from ottla.broker.log.partition_dir import PartitionDir
from ottla.broker.ports import File
from ottla.config.types import LogConfig

# From here on a flush may take longer than others do by what the disk needs to write it.
LARGE_BYTES: Final = 128 * 1024
# With these the disk said no without harm; it may say yes to the next one.
REFUSALS: Final = FULL_DISK_ERRORS | SHORT_OF_MEANS


@dataclass(slots=True, eq=False)
class FlushTicket:
    """One flush of one log, up to `end_offset`. Its files are open and pinned."""

    files: list[File]
    end_offset: int
    # Opened for this ticket alone, and closed with it.
    own_files: list[File]
    leader_epochs: bytes | None
    directory: PartitionDir
    new_names: bool
    # Tells the log that it has failed; called by whoever syncs.
    on_error: Callable[[OSError], None]
    # Whether the sync may take far longer than one of a few records.
    is_large: bool = False
    epochs_written: bool = False
    error: OSError | None = None
    is_put_off: bool = False
    """Nothing has failed, but the directory could not be opened, for want of a descriptor."""

    def sync(self) -> None:
        """Blocks until all of it is on disk. An OSError is final, unless `is_put_off`."""
        try:
            for file in self.own_files:
                file.sync()
            for file in self.files:
                file.sync()
            if self.leader_epochs is not None:
                self._write_epochs(self.leader_epochs)
        except OSError as error:
            self.fail(error)
            raise
        if self.new_names:
            self._sync_names()

    def descriptor(self) -> int | None:
        """The descriptor whose fdatasync is all that `sync` would do; None if there is more."""
        if self.own_files or self.new_names or self.leader_epochs is not None:
            return None
        return self.files[0].sync_descriptor() if len(self.files) == 1 else None

    def fail(self, error: OSError) -> None:
        """The sync failed, which is final."""
        self.error = error
        self.on_error(error)

    def release(self) -> None:
        """Gives the files back; on the loop, after `sync` returned or raised."""
        for file in self.files:
            file.unpin()
        for file in self.own_files:
            file.close()

    def _sync_names(self) -> None:
        try:
            self.directory.sync()
        except OSError as error:
            if error.errno in NO_DESCRIPTOR_ERRORS:
                self.is_put_off = True
            else:
                self.fail(error)
            raise

    def _write_epochs(self, data: bytes) -> None:
        """A full disk is no failed sync, nor is a file that could not be opened: the epochs stay
        in memory for the next ticket."""
        try:
            self.epochs_written = self.directory.replace_file(LEADER_EPOCH_FILE, data)
        except OSError as error:
            if error.errno not in FULL_DISK_ERRORS | NO_DESCRIPTOR_ERRORS:
                raise


class Flushable(Protocol):
    """What flush.ms asks of a log."""

    durable_end: int
    log_end_offset: int

    @property
    def config(self) -> LogConfig: ...


L = TypeVar("L", bound=Flushable)


class UnsyncedTimes(Generic[L]):
    """Since when which log has something unsynced, as far as the times of the looks can tell."""

    def __init__(self) -> None:
        # Log -> its durable end when it was first seen unsynced, and when that was.
        self._seen: dict[L, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return f"<UnsyncedTimes {self._seen}>"

    def due(self, logs: Iterable[L], now_ms: int) -> list[L]:
        """The logs unsynced for flush.ms, of all that there are; `now_ms` is monotonic."""
        seen, self._seen = self._seen, {}
        due: list[L] = []
        for log in logs:
            if log.durable_end == log.log_end_offset:
                continue
            durable_end, since_ms = seen.get(log, (-1, 0))
            if durable_end != log.durable_end:
                since_ms = now_ms  # synced since the last look: what is unsynced now is younger
            self._seen[log] = (log.durable_end, since_ms)
            if now_ms - since_ms >= log.config.flush_ms:
                due.append(log)
        return due

    def forget(self, log: L) -> None:
        self._seen.pop(log, None)
