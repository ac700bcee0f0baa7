"""Room kept back in each log dir, for what must be written when its disk is full.

Whoever makes room on a full disk needs some first: to delete a topic takes records of the metadata,
longer names for its directories, and checkpoints; to start takes a vote. So each dir has a file of
nothing but room. It is given up when the disk has no room for a write, and from then on clients'
records are refused there before they are tried, or they would have that room in a moment; the
broker's own, like commits, may have all of it but the last part. When there is as much beside it,
the file has its room again, and clients are served.

A file of no bytes is one that was given up: the next start goes on refusing. A dir that never had
room for one does without, and so does one whose file system refuses it for another reason.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from contextlib import suppress

from ottla.broker.faults import FULL_DISK_ERRORS, Call, takes_dir_offline
from ottla.broker.ports import Disk, Events

RESERVE_FILE = "ottla-reserve"
RESERVE_BYTES = 4 * 1024 * 1024
"""Some thousand blocks, of which a small file takes one."""
START_BYTES = 1024 * 1024
"""With less a start gives up the reserve before it writes anything; commits do not have it."""


class Reserves:
    """Belongs to the loop's thread, but for `recover`."""

    def __init__(self, disk: Disk, events: Events) -> None:
        self._disk = disk
        self._events = events
        self._held: set[str] = set()
        self.short: dict[str, int] = {}
        """The log dirs whose reserve was given up: clients' records are refused there. And how many
        bytes of the broker's own records may have some of that room until somebody looks again."""
        self.on_change: Callable[[], object] = lambda: None
        """Called when `short` has changed."""

    def __repr__(self) -> str:
        return f"<Reserves held={sorted(self._held)} short={sorted(self.short)}>"

    def begin(self, log_dirs: Iterable[str]) -> None:
        """Keeps room back in the dirs, each of which is locked; blocks."""
        for log_dir in log_dirs:
            try:
                self._begin(log_dir)
            except OSError as error:
                self.do_without(log_dir, error)

    def refused(self, log_dir: str, error: OSError) -> None:
        """A write was, for want of room: gives up what is kept back there, if it is short of it.
        A quota's room is not the disk's; and a disk may have no more files, but room."""
        if log_dir not in self._held:
            return
        try:
            _, free_bytes = self._disk.space(log_dir)
            if error.errno == errno.EDQUOT or free_bytes < RESERVE_BYTES:
                self._give_up(log_dir)
        except OSError as failed:
            self._events.warning("no_room_given_up", dir=log_dir, error=str(failed))

    def recover(self, log_dir: str) -> int | None:
        """Takes the room for the reserve, if there is as much beside it: None then, else how many
        bytes the broker's own records may have. Any thread, one at a time; to be told by
        `recovered` or `not_recovered`, and by `do_without` where OSError is raised."""
        try:
            # A quota has the same room for both, whatever the disk says is free.
            if self._keep(log_dir, spare_bytes=RESERVE_BYTES):
                return None
            return self._own_bytes(log_dir)
        except OSError as error:
            if takes_dir_offline(Call.WRITE, error):
                raise
            return 0

    def recovered(self, log_dir: str) -> None:
        self._held.add(log_dir)
        self.short.pop(log_dir, None)
        self._events.info("log_dir_full_no_more", dir=log_dir)
        self.on_change()

    def not_recovered(self, log_dir: str, own_bytes: int) -> None:
        self.short[log_dir] = own_bytes
        self.on_change()

    def do_without(self, log_dir: str, error: OSError) -> None:
        """Nothing can be kept back there, for another reason than want of room."""
        self._events.warning("no_room_kept_back", dir=log_dir, error=str(error))
        if self.short.pop(log_dir, None) is not None:
            self.on_change()

    # inside

    def _begin(self, log_dir: str) -> None:
        path = f"{log_dir}/{RESERVE_FILE}"
        if self._keep(log_dir):  # or fills the holes that a copy of the dir has
            self._held.add(log_dir)
        elif not self._disk.exists(path):
            return
        elif self._size(path) < RESERVE_BYTES:
            self._is_short(log_dir)
        elif self._has_room(path, START_BYTES, beside_bytes=RESERVE_BYTES):
            self._held.add(log_dir)
        else:
            self._give_up(log_dir)

    def _keep(self, log_dir: str, spare_bytes: int = 0) -> bool:
        _, free_bytes = self._disk.space(log_dir)
        if free_bytes < 2 * RESERVE_BYTES:
            return False
        path = f"{log_dir}/{RESERVE_FILE}"
        was_there = self._disk.exists(path)
        try:
            self._disk.allocate(path, RESERVE_BYTES + spare_bytes)
        except OSError as error:
            if error.errno not in FULL_DISK_ERRORS:
                raise
            if was_there:
                self._cut(path, 0)
            else:
                self._disk.remove(path)
            return False
        if spare_bytes:
            self._cut(path, RESERVE_BYTES)
        return True

    def _give_up(self, log_dir: str) -> None:
        self._cut(f"{log_dir}/{RESERVE_FILE}", 0)
        self._held.discard(log_dir)
        self._is_short(log_dir)

    def _is_short(self, log_dir: str) -> None:
        self.short[log_dir] = 0
        with suppress(OSError):  # who looks again will be told
            self.short[log_dir] = self._own_bytes(log_dir)
        self._events.error(
            "log_dir_full",
            dir=log_dir,
            reason="clients' records are refused there until there is room: delete topics or"
            " records, lower retention.bytes or retention.ms of large topics, or make room beside"
            " the broker",
            room_needed_bytes=2 * RESERVE_BYTES,
        )
        self.on_change()

    def _own_bytes(self, log_dir: str) -> int:
        path = f"{log_dir}/{RESERVE_FILE}"
        sizes = (START_BYTES, START_BYTES // 8)
        return next((one for one in sizes if self._has_room(path, START_BYTES + one)), 0)

    def _has_room(self, path: str, size: int, *, beside_bytes: int = 0) -> bool:
        """Whether the file could be so much larger. Only to try tells: root has the last blocks of
        some file systems, whatever is said to be free, and others have a quota."""
        try:
            self._disk.allocate(path, beside_bytes + size)
        except OSError as error:
            if error.errno not in FULL_DISK_ERRORS:
                raise
            return False
        finally:
            self._cut(path, beside_bytes)
        return True

    def _size(self, path: str) -> int:
        file = self._disk.open(path)
        try:
            return file.size()
        finally:
            file.close()

    def _cut(self, path: str, size: int) -> None:
        file = self._disk.open(path)
        try:
            file.truncate(size)
        finally:
            file.close()
