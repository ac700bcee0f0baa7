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

from ottla.broker.faults import FULL_DISK_ERRORS, Call, takes_dir_offline
from ottla.broker.ports import Disk, Events

RESERVE_FILE = "ottla-reserve"
RESERVE_BYTES = 4 * 1024 * 1024
"""Some thousand blocks, of which a small file takes one."""
START_BYTES = 1024 * 1024
"""With less a start gives up the reserve before it writes anything; commits do not have it."""
OWN_BYTES = 1024 * 1024
"""What the broker's own records may have of a full log dir until somebody looks at it again."""
OWN_BYTES_MIN = 64 * 1024
"""What a coordinator gathers for one append is hardly more."""
LOOKS_EACH = 10
"""Only with so many looks is it tried how much there is: the others go without it meanwhile."""


class OwnRoom:
    """What the broker's own records may still have of one full log dir. Belongs to the loop."""

    __slots__ = ("_looks", "left_bytes")

    def __init__(self, left_bytes: int) -> None:
        self.left_bytes = left_bytes
        self._looks = 0

    def __repr__(self) -> str:
        return f"<OwnRoom {self.left_bytes}>"

    @property
    def is_spent(self) -> bool:
        return self.left_bytes < OWN_BYTES_MIN

    def take(self, size: int) -> bool:
        """Whether records of that size may be written."""
        if size > self.left_bytes:
            return False
        self.left_bytes -= size
        return True

    def is_due(self) -> bool:
        """To be asked with each look at the dir: whether to try how much there is."""
        self._looks = (self._looks + 1) % LOOKS_EACH
        return self._looks == 0 and self.is_spent


class Reserves:
    """Belongs to the loop's thread, but for `recover` and `own_bytes`."""

    def __init__(self, disk: Disk, events: Events) -> None:
        self._disk = disk
        self._events = events
        self._held: set[str] = set()
        self.short: dict[str, OwnRoom] = {}
        """The log dirs whose reserve was given up: clients' records are refused there."""
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

    def recover(self, log_dir: str) -> bool:
        """Takes the room for the reserve, if there is as much beside it. Any thread, but one at a
        time with `own_bytes`; to be told by `recovered`, and by `do_without` where OSError is
        raised, as by both."""
        try:
            # A quota has the same room for both, whatever the disk says is free.
            return self._keep(log_dir, spare_bytes=RESERVE_BYTES)
        except OSError as error:
            if takes_dir_offline(Call.WRITE, error):
                raise
            return False

    def own_bytes(self, log_dir: str) -> int:
        """How many bytes the broker's own records may have of a dir that is full. Takes as much for
        a moment, in which others are refused it."""
        path = f"{log_dir}/{RESERVE_FILE}"
        try:
            sizes = (OWN_BYTES, OWN_BYTES // 8)
            return next((one for one in sizes if self._has_room(path, START_BYTES + one)), 0)
        except OSError as error:
            if takes_dir_offline(Call.WRITE, error):
                raise
            return 0

    def recovered(self, log_dir: str) -> None:
        self._held.add(log_dir)
        self.short.pop(log_dir, None)
        self._events.info("log_dir_full_no_more", dir=log_dir)
        self.on_change()

    def do_without(self, log_dir: str, error: OSError) -> None:
        """Nothing can be kept back there, for another reason than want of room."""
        self._events.warning("no_room_kept_back", dir=log_dir, error=str(error))
        if self.short.pop(log_dir, None) is not None:
            self.on_change()

    # inside

    def _begin(self, log_dir: str) -> None:
        path = f"{log_dir}/{RESERVE_FILE}"
        # This also fills the holes that a copy of the dir has.
        if self._keep(log_dir, spare_bytes=START_BYTES):
            self._held.add(log_dir)
        elif not self._disk.exists(path):
            return
        elif self._size(path) < RESERVE_BYTES:
            self._is_short(log_dir, self.own_bytes(log_dir))
        elif self._has_room(path, START_BYTES, beside_bytes=RESERVE_BYTES):
            self._held.add(log_dir)
        else:
            self._give_up(log_dir)

    def _keep(self, log_dir: str, *, spare_bytes: int) -> bool:
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
        self._cut(path, RESERVE_BYTES)
        return True

    def _give_up(self, log_dir: str) -> None:
        self._cut(f"{log_dir}/{RESERVE_FILE}", 0)
        self._held.discard(log_dir)
        self._is_short(log_dir, OWN_BYTES)

    def _is_short(self, log_dir: str, own_bytes: int) -> None:
        self.short[log_dir] = OwnRoom(own_bytes)
        self._events.error(
            "log_dir_full",
            dir=log_dir,
            reason="clients' records are refused there until there is room: delete topics or"
            " records, lower retention.bytes or retention.ms of large topics, or make room beside"
            " the broker",
            room_needed_bytes=2 * RESERVE_BYTES,
        )
        self.on_change()

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
            if self._disk.exists(path):
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
